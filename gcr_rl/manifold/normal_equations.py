"""Directions that obey linear equations on a set of rows, by damped normal equations.

P_tan b = b − Jᵀ(JJᵀ)⁻¹J b and J†t are the two cases (b, 0) and (0, t) of

    x = argmin ½‖x − b‖²   s.t.   J_A x = t.

JJᵀ is singular whenever the rows hold an undirected cycle, so it is damped; a second,
proximal step takes the damping's error out again. The matrix is the one over slots,
I + Jᵀ(S + ε)⁻¹J (Woodbury), which is smaller than the one over rows and never singular.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float

from gcr_rl.manifold.constraints import Rows, along, transposed

CG_STEPS = 100

Inverse = Callable[[list[Array]], list[Array]]


class Direction(NamedTuple):
    """x with its multipliers and image: x = b − Jᵀy and J x = t + S y on the set."""

    x: Float[Array, " slots"]
    multipliers: Float[Array, " rows"]
    image: Float[Array, " rows"]


def stiffness_matrix(
    rows: Rows, stiffness: Float[Array, " rows"], num_slots: int
) -> Float[Array, "slots slots"]:
    """I + Jᵀ diag(stiffness) J, lower triangle only (read transposed, as LAPACK wants it)."""
    first, second = jnp.minimum(rows.upper, rows.lower), jnp.maximum(rows.upper, rows.lower)
    flat = jnp.eye(num_slots, dtype=stiffness.dtype).reshape(-1)
    entries = (
        (first * num_slots + second, rows.at_upper * rows.at_lower),
        (rows.upper * (num_slots + 1), rows.at_upper**2),
        (rows.lower * (num_slots + 1), rows.at_lower**2),
    )
    for place, value in entries:
        flat = flat.at[place].add(stiffness * value, mode="promise_in_bounds")
    return flat.reshape(num_slots, num_slots).T


def constrained(
    rows: Rows,
    chosen: Bool[Array, " rows"],
    sides: list[tuple[Float[Array, " slots"], Float[Array, " rows"]]],
    slack_columns: Float[Array, " rows"],
    *,
    damping: float,
    dense: bool,
) -> list[Direction]:
    """For each side (b, t): argmin ½‖x − b‖² + ½‖u‖² s.t. J x + S^½ u = t on the chosen rows.

    ``slack_columns`` is the diagonal of S: 1 where a slack variable may give way, else 0.
    All sides share one factorisation (``dense``) or use conjugate gradients.
    """
    count = sides[0][0].shape[0]
    stiffness = jnp.where(chosen, 1.0 / (slack_columns + damping), 0.0)
    inverse = (_cholesky if dense else _conjugate_gradients)(rows, stiffness, count)
    found = [Direction(b, jnp.zeros_like(t), t) for b, t in sides]
    for _ in range(2):
        wanted = [t - damping * side.multipliers for (_, t), side in zip(sides, found, strict=True)]
        right = [
            b + transposed(rows, stiffness * w, count)
            for (b, _), w in zip(sides, wanted, strict=True)
        ]
        solved = inverse(right)
        images = [along(rows, x) for x in solved]
        found = [
            Direction(x, stiffness * (image - w), image)
            for x, image, w in zip(solved, images, wanted, strict=True)
        ]
    return found


def _cholesky(rows: Rows, stiffness: Float[Array, " rows"], count: int) -> Inverse:
    matrix = stiffness_matrix(rows, stiffness, count)
    factor = lax.linalg.cholesky(matrix, symmetrize_input=False)

    def inverse(right: list[Array]) -> list[Array]:
        block = jnp.stack(right, axis=1)
        half = lax.linalg.triangular_solve(factor, block, left_side=True, lower=True)
        full = lax.linalg.triangular_solve(
            factor, half, left_side=True, lower=True, transpose_a=True
        )
        return [full[:, side] for side in range(len(right))]

    return inverse


def _conjugate_gradients(rows: Rows, stiffness: Float[Array, " rows"], count: int) -> Inverse:
    squares = rows._replace(at_upper=rows.at_upper**2, at_lower=rows.at_lower**2)
    diagonal = 1.0 + transposed(squares, stiffness, count)

    def product(x: Array) -> Array:
        return x + transposed(rows, stiffness * along(rows, x), count)

    def one(right: Array) -> Array:
        return jax.scipy.sparse.linalg.cg(
            product, right, tol=1e-6, maxiter=CG_STEPS, M=lambda x: x / diagonal
        )[0]

    return lambda right: [one(side) for side in right]
