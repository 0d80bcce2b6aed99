"""Fast twin of :func:`gcr_rl.order.dag.greedy_reference`: edges in blocks of 32.

Let ``D`` be the graph of the edges decided so far and ``reach`` its closure. In the order of
weight, take the next 32 edges (u_j, v_j) that ``reach`` does not decide yet (v_j reaches u_j:
refused; u_j reaches v_j: implied, nothing to add). Write ``start[x]`` for the set, one word, of
those j whose u_j is reached from x. Everything sequential happens on the 32 words
``start[v_i]``; then the whole block enters the B x B/32 bit matrix in one pass:

    reach[x]  <-  reach[x] | union of reach[v_j] over accepted j reachable from x.

About E/3 edges of a random k-nearest-neighbour graph ever need a block, the others are decided
by the closure in passing. The accepted edges need not be carried: an edge is refused exactly
when its lower end reaches its upper end in the *final* graph.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int, UInt32

from gcr_rl.kernels.dag_bits import (
    WORD,
    batch_in_kernel,
    has_bit,
    pick,
    reaches,
    spread,
    union,
    where_bit,
    words_for,
)
from gcr_rl.kernels.dag_sort import descending_order


class _Ordered(NamedTuple):
    """Edges by descending weight. The edge of rank ``32 i + j`` lies at ``[j * blocks + i]``,
    so that packing 32 consecutive ranks into one word is elementwise over i."""

    upper: Int[Array, "batch edges"]
    lower: Int[Array, "batch edges"]
    mask: Bool[Array, "batch edges"]


@jax.jit
def greedy_closure(
    upper: Int[Array, " edges"],
    lower: Int[Array, " edges"],
    weight: Float[Array, " edges"],
    mask: Bool[Array, " edges"],
    reach: UInt32[Array, "words nodes"],
) -> UInt32[Array, "words nodes"]:
    """Word-major closure of the greedy DAG that grows from ``reach`` (itself acyclic).

    Indices are in range and unmasked weights are not NaN: the caller has seen to both.
    """
    arguments = (upper, lower, weight, mask, reach)
    return _greedy_closure_batch(*(argument[None] for argument in arguments))[0]


@batch_in_kernel
def _greedy_closure_batch(
    upper: Int[Array, "batch edges"],
    lower: Int[Array, "batch edges"],
    weight: Float[Array, "batch edges"],
    mask: Bool[Array, "batch edges"],
    reach: UInt32[Array, "batch words nodes"],
) -> UInt32[Array, "batch words nodes"]:
    edges = _ordered(upper, lower, weight, mask)
    # One that the compiler cannot prove to be one; see _held.
    one = jnp.where(edges.upper[:, 0] < 0, jnp.uint32(2), jnp.uint32(1))

    def body(carry: tuple[Array, Array]) -> tuple[Array, Array]:
        reach, undecided = carry
        slot, valid = _first_set(undecided)
        block_upper, block_lower = pick(edges.upper, slot), pick(edges.lower, slot)
        start = _start_sets(reach, block_upper, valid)
        accepted, onward = _resolve(pick(start, block_lower), valid, one)
        used = _close(start, accepted, onward) & accepted[:, None]
        rows = jnp.take_along_axis(reach, block_lower[:, None, :], 2, mode="promise_in_bounds")
        reach = spread(reach, used, rows)
        return reach, _undecided(reach, edges)

    start_carry = (reach, _undecided(reach, edges))
    return lax.while_loop(lambda carry: jnp.any(carry[1] != 0), body, start_carry)[0]


def _ordered(upper: Array, lower: Array, weight: Array, mask: Array) -> _Ordered:
    batch, size = upper.shape
    blocks = max(words_for(size), 1)
    padding = ((0, 0), (0, blocks * WORD - size))
    upper, lower, weight = (jnp.pad(array, padding) for array in (upper, lower, weight))
    mask = jnp.pad(mask, padding)
    order = descending_order(weight, mask)
    order = order.reshape(batch, blocks, WORD).swapaxes(1, 2).reshape(batch, -1)
    return _Ordered(pick(upper, order), pick(lower, order), pick(mask, order))


def _undecided(
    reach: UInt32[Array, "batch words nodes"], edges: _Ordered
) -> UInt32[Array, "batch blocks"]:
    """The ranks, as a bit set, of edges that the closure neither refuses nor implies."""
    refused = reaches(reach, edges.lower, edges.upper)
    implied = reaches(reach, edges.upper, edges.lower)
    open_edges = (edges.mask & ~refused & ~implied).astype(jnp.uint32)
    by_bit = open_edges.reshape(open_edges.shape[0], WORD, -1)
    return union([by_bit[:, j] << j for j in range(WORD)])


def _first_set(
    words: UInt32[Array, "batch blocks"],
) -> tuple[Int[Array, "batch 32"], UInt32[Array, " batch"]]:
    """Where the first 32 set bits lie (as in :class:`_Ordered`), and which of the 32 exist."""
    blocks = words.shape[1]
    count = lax.population_count(words).astype(jnp.int32)
    through = jnp.cumsum(count, axis=1) if blocks > 64 else _small_cumsum(count)
    nth = jnp.arange(WORD, dtype=jnp.int32)
    block = jnp.sum(through[:, None, :] <= nth[None, :, None], axis=-1, dtype=jnp.int32)
    block = jnp.minimum(block, blocks - 1)
    remaining = nth[None] - (pick(through, block) - pick(count, block))
    word, bit = pick(words, block), jnp.zeros_like(remaining)
    for half in (16, 8, 4, 2, 1):
        below = lax.population_count(word & jnp.uint32((1 << half) - 1)).astype(jnp.int32)
        upper_half = remaining >= below
        bit = jnp.where(upper_half, bit + half, bit)
        remaining = jnp.where(upper_half, remaining - below, remaining)
        word = jnp.where(upper_half, word >> half, word)
    total = jnp.minimum(through[:, -1], WORD).astype(jnp.uint32)
    full = jnp.uint32(0xFFFFFFFF)
    valid = jnp.where(total == WORD, full, (jnp.uint32(1) << (total & 31)) - 1)
    return bit * blocks + block, valid


def _small_cumsum(count: Int[Array, "batch blocks"]) -> Int[Array, "batch blocks"]:
    """One fused kernel, where XLA's cumulative sum is a cascade of them."""
    position = jnp.arange(count.shape[1])
    before = position[None, :] <= position[:, None]
    return jnp.sum(jnp.where(before, count[:, None, :], 0), axis=-1)


def _start_sets(
    reach: UInt32[Array, "batch words nodes"],
    block_upper: Int[Array, "batch 32"],
    valid: UInt32[Array, " batch"],
) -> UInt32[Array, "batch nodes"]:
    """For every node x the block edges whose upper end is reached from x."""
    word = (block_upper >> 5)[:, :, None]
    column = jnp.take_along_axis(reach, word, axis=1, mode="promise_in_bounds")
    column = (column >> (block_upper & 31).astype(jnp.uint32)[:, :, None]) & 1
    return union([column[:, j] << j for j in range(WORD)]) & valid[:, None]


def _resolve(
    after: UInt32[Array, "batch 32"],
    valid: UInt32[Array, " batch"],
    one: UInt32[Array, " batch"],
) -> tuple[UInt32[Array, " batch"], UInt32[Array, "batch 32"]]:
    """Which edges of the block are accepted, and for each the block edges reachable after it.

    ``after[i]`` are the block edges that can follow edge i in the graph so far. Edge j is
    refused when it follows itself; if accepted, what follows j follows all that j follows.
    Straight-line code on 32 words per graph: one vectorised kernel, no loop.
    """
    words = [after[:, j] for j in range(WORD)]
    accepted = jnp.zeros_like(valid)
    for j in range(WORD):
        refused = has_bit(words[j], j)
        accepted = accepted | jnp.where(refused, jnp.uint32(0), jnp.uint32(1 << j))
        added = jnp.where(refused, jnp.uint32(0), words[j])
        for i in range(j + 1, WORD):
            words[i] = words[i] | where_bit(words[i], j, added)
    accepted = _held(accepted & valid, one)
    onward = after
    for _ in range(WORD.bit_length() - 1):  # each pass doubles the path length, up to 32
        onward = _close(onward, accepted, onward)
    return accepted, onward


def _held(word: UInt32[Array, " batch"], one: UInt32[Array, " batch"]) -> UInt32[Array, " batch"]:
    """``word``, computed once. XLA would fuse all of :func:`_resolve` into each consumer and
    repeat it there; it does not do so with a division, and its CPU backend drops barriers."""
    return word // one


def _close(
    sets: UInt32[Array, "batch rows"],
    accepted: UInt32[Array, " batch"],
    onward: UInt32[Array, "batch 32"],
) -> UInt32[Array, "batch rows"]:
    """Each set with what is onward of its accepted members."""
    members = sets & accepted[:, None]
    return union([sets, *(where_bit(members, j, onward[:, j : j + 1]) for j in range(WORD))])
