"""True groups as banks (W_k, Π_k): signed or plain permutation matrices, exact in floats."""

import itertools

import jax.numpy as jnp
import numpy as np


def permutations_of(group: str) -> list[tuple[int, ...]]:
    """The elements of a group as permutations, identity first."""
    if group == "C2":
        return [(0, 1), (1, 0)]
    if group == "C4":
        return [tuple((i + k) % 4 for i in range(4)) for k in range(4)]
    if group == "S3":
        return list(itertools.permutations(range(3)))
    if group == "D4":
        turns = [tuple((i + k) % 4 for i in range(4)) for k in range(4)]
        return turns + [tuple((k - i) % 4 for i in range(4)) for k in range(4)]
    raise ValueError(group)


def matrices(group: str, size: int = 0) -> jnp.ndarray:
    """Permutation matrices M[p[i], i] = 1, padded with ones on the diagonal to ``size``."""
    found = []
    for element in permutations_of(group):
        matrix = np.eye(max(size, len(element)))
        matrix[: len(element), : len(element)] = 0
        matrix[list(element), list(range(len(element)))] = 1
        found.append(matrix)
    return jnp.asarray(np.stack(found), jnp.float32)
