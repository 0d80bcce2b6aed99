"""Words of 32 bits as sets: the vocabulary of the bit-packed greedy DAG kernels.

Reachability is kept *word-major*, ``reach[n, w, x]``: bit ``y % 32`` of word ``w = y // 32``
says that node x reaches node y (reflexive: every x reaches itself). Nodes x lie on the minor
axis, so that one set operation over all x is one contiguous vector operation.
"""

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.custom_batching import custom_vmap
from jaxtyping import Array, Bool, Int, UInt32

WORD = 32


def words_for(size: int) -> int:
    """How many words hold ``size`` bits."""
    return -(-size // WORD)


def has_bit(word: UInt32[Array, "..."], position: int) -> Bool[Array, "..."]:
    """Whether bit ``position`` is set."""
    return (word & jnp.uint32(1 << position)) != 0


def union(words: Sequence[UInt32[Array, "..."]]) -> UInt32[Array, "..."]:
    """Bitwise or of all. An unrolled chain, which XLA fuses to one vectorised loop."""
    return reduce(lax.bitwise_or, words)


def where_bit(
    selector: UInt32[Array, "..."], position: int, word: UInt32[Array, "..."]
) -> UInt32[Array, "..."]:
    """``word`` where bit ``position`` of ``selector`` is set, the empty set elsewhere."""
    return jnp.where(has_bit(selector, position), word, jnp.uint32(0))


def pick(table: Array, index: Int[Array, "batch picked"]) -> Array:
    """``table[b, index[b, i]]``; the index is known to be in range."""
    return jnp.take_along_axis(table, index, axis=1, mode="promise_in_bounds")


def identity_reach(batch: int, num_nodes: int) -> UInt32[Array, "batch words nodes"]:
    """Word-major reachability of the empty graph: every node reaches itself alone."""
    node = jnp.arange(num_nodes, dtype=jnp.uint32)
    word = jnp.arange(words_for(num_nodes), dtype=jnp.uint32)
    own = jnp.where(node >> 5 == word[:, None], jnp.uint32(1) << (node & 31), jnp.uint32(0))
    return jnp.broadcast_to(own, (batch, *own.shape))


def reaches(
    reach: UInt32[Array, "batch words nodes"],
    source: Int[Array, "batch edges"],
    target: Int[Array, "batch edges"],
) -> Bool[Array, "batch edges"]:
    """Whether ``source`` reaches ``target``, pair by pair."""
    batch, words, nodes = reach.shape
    found = pick(reach.reshape(batch, words * nodes), (target >> 5) * nodes + source)
    return (found >> (target & 31).astype(jnp.uint32)) & 1 != 0


def spread(
    reach: UInt32[Array, "batch words nodes"],
    selector: UInt32[Array, "batch nodes"],
    rows: UInt32[Array, "batch words 32"],
) -> UInt32[Array, "batch words nodes"]:
    """``reach[x] | union of rows[j] over the bits j of selector[x]``: up to 32 closure
    updates in one pass over the matrix, which is read and written once."""
    added = [where_bit(selector[:, None, :], j, rows[:, :, j : j + 1]) for j in range(WORD)]
    return union([reach, *added])


def pack_rows(relation: Bool[Array, "*batch rows columns"]) -> UInt32[Array, "*batch rows words"]:
    """Bit rows of a boolean relation."""
    *lead, columns = relation.shape
    padded = jnp.pad(relation, [(0, 0)] * len(lead) + [(0, -columns % WORD)])
    bits = padded.reshape(*lead, words_for(columns), WORD).astype(jnp.uint32)
    return jnp.sum(bits << jnp.arange(WORD, dtype=jnp.uint32), axis=-1, dtype=jnp.uint32)


def unpack_rows(
    rows: UInt32[Array, "*batch rows words"], columns: int
) -> Bool[Array, "*batch rows columns"]:
    """The boolean relation of bit rows; inverse of :func:`pack_rows`."""
    bits = (rows[..., None] >> jnp.arange(WORD, dtype=jnp.uint32)) & 1 != 0
    return bits.reshape(*rows.shape[:-1], -1)[..., :columns]


def batch_in_kernel(kernel: Callable[..., Any]) -> Callable[..., Any]:
    """Makes ``vmap`` hand its axis to ``kernel`` as more rows of the leading batch axis.

    Plain ``vmap`` of a ``while_loop`` copies the whole carry at every step to freeze finished
    elements; our kernels do nothing to them by construction, so one loop serves the batch.
    """
    batched = custom_vmap(kernel)

    @batched.def_vmap
    def rule(axis_size: int, in_batched: Sequence[bool], *arguments: Array) -> tuple[Any, Any]:
        full = [
            array if mapped else jnp.broadcast_to(array, (axis_size, *array.shape))
            for array, mapped in zip(arguments, in_batched, strict=True)
        ]
        flat = batched(*(array.reshape(-1, *array.shape[2:]) for array in full))
        outputs = jax.tree.map(lambda leaf: leaf.reshape(axis_size, -1, *leaf.shape[1:]), flat)
        return outputs, jax.tree.map(lambda _: True, outputs)

    return batched
