"""Fast twin of :func:`gcr_rl.order.dag.greedy_by_node_reference`: nodes in blocks of 32.

All out-edges of a node carry its weight, so nodes are decided one after the other and an edge
u -> v is refused exactly when v reaches u. With nodes renamed by rank, the 32 nodes of block b
are word b of every bit row, and a node that has not been decided yet has no out-edges: inside
the block the closure lives on 32 words ``sources[y]``, the decided nodes that reach y.
"""

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int, UInt32

from gcr_rl.kernels.dag_bits import (
    WORD,
    batch_in_kernel,
    identity_reach,
    pick,
    reaches,
    spread,
    union,
    words_for,
)
from gcr_rl.kernels.dag_sort import descending_order

_EVERY_BIT = 0xFFFFFFFF


@jax.jit
def greedy_accepted_by_node(
    neighbours: Int[Array, "nodes degree"],
    weight: Float[Array, " nodes"],
    mask: Bool[Array, "nodes degree"],
) -> Bool[Array, "nodes degree"]:
    """Accepted edges node -> neighbour. Indices are in range, and a node with an unmasked
    edge has a weight that is not NaN: the caller has seen to both."""
    return _greedy_by_node_batch(neighbours[None], weight[None], mask[None])[0]


@batch_in_kernel
def _greedy_by_node_batch(
    neighbours: Int[Array, "batch nodes degree"],
    weight: Float[Array, "batch nodes"],
    mask: Bool[Array, "batch nodes degree"],
) -> Bool[Array, "batch nodes degree"]:
    batch, nodes, _ = neighbours.shape
    order = descending_order(weight, jnp.any(mask, axis=2))
    rank = _inverse(order)
    target = pick(rank, neighbours.reshape(batch, -1))
    blocks = words_for(nodes)
    by_rank = _degree_major(target.reshape(neighbours.shape), order, blocks)
    mask_by_rank = _degree_major(mask, order, blocks)

    def block_step(block: Array, reach: Array) -> Array:
        start = block * WORD
        targets = lax.dynamic_slice_in_dim(by_rank, start, WORD, axis=2)
        valid = lax.dynamic_slice_in_dim(mask_by_rank, start, WORD, axis=2)
        return _add_block(reach, block, targets, valid)

    reach = identity_reach(batch, blocks * WORD)
    reach = lax.fori_loop(0, blocks, block_step, reach)
    source = jnp.broadcast_to(rank[:, :, None], neighbours.shape).reshape(batch, -1)
    refused = reaches(reach, target, source).reshape(neighbours.shape)
    return mask & ~refused


def _add_block(
    reach: UInt32[Array, "batch words nodes"],
    block: Int[Array, ""],
    targets: Int[Array, "batch degree 32"],
    valid: Bool[Array, "batch degree 32"],
) -> UInt32[Array, "batch words nodes"]:
    """The closure with all accepted out-edges of the nodes of one block."""
    batch, degree, _ = targets.shape
    into_block = lax.dynamic_index_in_dim(reach, block, axis=1, keepdims=False)
    flat_targets = targets.reshape(batch, -1)
    # A masked edge is given every bit: it then meets its own node and is refused.
    reached = pick(into_block, flat_targets).reshape(targets.shape)
    onward = jnp.where(valid, reached, jnp.uint32(_EVERY_BIT))
    sources = _sources(onward)
    accepted = onward & sources[:, None, :] == 0
    used = union(
        [
            jnp.where(into_block & sources[:, j : j + 1] != 0, jnp.uint32(1 << j), jnp.uint32(0))
            for j in range(WORD)
        ]
    )
    rows = jnp.take_along_axis(reach, flat_targets[:, None, :], 2, mode="promise_in_bounds")
    rows = rows.reshape(batch, -1, degree, WORD)
    rows = jnp.where(accepted[:, None], rows, jnp.uint32(0))
    return spread(reach, used, lax.reduce(rows, jnp.uint32(0), lax.bitwise_or, (2,)))


def _sources(onward: UInt32[Array, "batch degree 32"]) -> UInt32[Array, "batch 32"]:
    """For each node y of the block the block nodes that reach it in the end, itself included.

    ``onward[l, j]`` are the block nodes that the l-th neighbour of node j reaches in the graph
    so far. Its edge is accepted unless one of them is a source of j; whoever has a source among
    the nodes that j now reaches has all sources of j too.
    """
    own = jnp.uint32(1) << jnp.arange(WORD, dtype=jnp.uint32)
    sources = jnp.broadcast_to(own, (onward.shape[0], WORD))
    for j in range(WORD):
        of_node = sources[:, j : j + 1]
        edges = onward[:, :, j]
        kept = jnp.where(edges & of_node == 0, edges, jnp.uint32(0))
        gained = lax.reduce(kept, jnp.uint32(0), lax.bitwise_or, (1,))[:, None]
        sources = jnp.where(sources & gained != 0, sources | of_node, sources)
    return sources


def _inverse(order: Int[Array, "batch nodes"]) -> Int[Array, "batch nodes"]:
    """The inverse permutation: ``inverse[order[i]] = i``."""
    batch, nodes = order.shape
    rank = jnp.broadcast_to(jnp.arange(nodes, dtype=order.dtype), order.shape)
    row = jnp.arange(batch)[:, None]
    place = jnp.zeros_like(order).at[row, order]
    return place.set(rank, unique_indices=True, mode="promise_in_bounds")


def _degree_major(values: Array, order: Int[Array, "batch nodes"], blocks: int) -> Array:
    """Node rows in order of rank, padded to whole blocks, as ``[batch, degree, rank]``."""
    ranked = jnp.take_along_axis(values, order[:, :, None], axis=1, mode="promise_in_bounds")
    padding = ((0, 0), (0, 0), (0, blocks * WORD - order.shape[1]))
    return jnp.pad(ranked.swapaxes(1, 2), padding)
