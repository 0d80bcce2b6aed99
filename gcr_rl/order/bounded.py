"""The poset that lives inside a training state: fixed size, bit-packed, under jit and vmap.

It holds the reachability of D_k alone and only ever grows, D_{k-1} ⊆ D_k. For width, Hasse
diagram or drawing, take it to the host: ``Poset.from_reach(state.reach)``.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Int, Int32, UInt32

from gcr_rl.errors import InputError
from gcr_rl.kernels.dag_bits import identity_reach
from gcr_rl.order.dag import greedy_dag_full
from gcr_rl.types import Comparisons


class BoundedPoset(NamedTuple):
    """Reachability bit rows, the refusals so far, and every :class:`DagResult` flag seen."""

    reach: UInt32[Array, "nodes words"]
    refused: Int32[Array, ""]
    result: Int32[Array, ""]


def empty_poset(num_nodes: int) -> BoundedPoset:
    """The antichain on ``num_nodes`` nodes."""
    if not isinstance(num_nodes, int) or num_nodes < 1:
        raise InputError("num_nodes", num_nodes, "a positive Python int")
    zero = jnp.zeros((), jnp.int32)
    return BoundedPoset(identity_reach(1, num_nodes)[0].T, zero, zero)


def refine_poset(
    state: BoundedPoset, comparisons: Comparisons
) -> tuple[BoundedPoset, Int32[Array, ""]]:
    """D_k from D_{k-1}: comparisons enter by descending weight, each unless it closes a cycle
    with what is there. Returns the new state and how many were refused this time.

    Margins and discounts are not read: pass order edges only (``evidence.order_edges``).
    """
    upper, lower, weight, _, _, mask = comparisons
    dag = greedy_dag_full(upper, lower, weight, mask, state.reach.shape[0], state.reach)
    refused = jnp.sum(dag.refused, dtype=jnp.int32)
    return BoundedPoset(dag.reach, state.refused + refused, state.result | dag.result), refused


def relation_count(state: BoundedPoset) -> Int32[Array, ""]:
    """|D_k|: strict relations u > v, implied ones included."""
    pairs = jnp.sum(lax.population_count(state.reach).astype(jnp.int32))
    return pairs - state.reach.shape[0]


def holds(
    state: BoundedPoset, upper: Int[Array, "*pairs"], lower: Int[Array, "*pairs"]
) -> Bool[Array, "*pairs"]:
    """Whether lower ⪯ upper, pair by pair; every node is below itself."""
    word = state.reach[upper, lower >> 5]
    return (word >> (lower & 31).astype(jnp.uint32)) & 1 != 0
