"""From weighted comparisons to an acyclic order: the greedy DAG (thm:dagify) and L_dag.

An edge ``upper -> lower`` says value[upper] >= value[lower]. Edges are taken by descending
weight, ties by index, and each is added unless it closes a directed cycle with those added
before. The result D is acyclic, and maximal for that order: every refused edge closes a cycle
with D. A self-loop is a cycle and is refused. A duplicate, or any edge that D already implies,
closes none and is accepted.

Reachability is carried as bit rows, ``uint32[nodes, words]``: bit ``v % 32`` of word ``v // 32``
in row u says that a path runs from u to v, the empty path included.
"""

from enum import IntFlag
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int, Int32, UInt32

from gcr_rl.errors import InputError
from gcr_rl.kernels.dag import greedy_closure
from gcr_rl.kernels.dag_bits import WORD, identity_reach, pack_rows, reaches, unpack_rows, words_for
from gcr_rl.kernels.dag_node import greedy_accepted_by_node


class DagResult(IntFlag):
    """What was wrong with the unmasked input of a traced call; such edges count as masked."""

    SUCCESS = 0
    NAN_WEIGHT = 1
    INDEX_OUT_OF_RANGE = 2


class Dag(NamedTuple):
    """Accepted and refused edges (disjoint; their union is what was unmasked and well-formed),
    the reachability of D as bit rows, and a :class:`DagResult` as an integer."""

    accepted: Bool[Array, " edges"]
    refused: Bool[Array, " edges"]
    reach: UInt32[Array, "nodes words"]
    result: Int32[Array, ""]


class NodeDag(NamedTuple):
    """As :class:`Dag`, for the per-node form, which does not carry its reachability out."""

    accepted: Bool[Array, "nodes degree"]
    refused: Bool[Array, "nodes degree"]
    result: Int32[Array, ""]


def greedy_dag(
    upper: Int[Array, " edges"],
    lower: Int[Array, " edges"],
    weight: Float[Array, " edges"],
    mask: Bool[Array, " edges"],
    num_nodes: int,
) -> Bool[Array, " edges"]:
    """Which edges the add-unless-cycle rule accepts (thm:dagify): with e_1, e_2, ... by
    descending weight, e_i = (u, v) is in D iff no path runs from v to u in D ∩ {e_1..e_{i-1}}.

    Exact, under ``jit`` and ``vmap``. Equivalently, the refused edges are those whose lower end
    reaches their upper end in the final D.
    """
    return greedy_dag_full(upper, lower, weight, mask, num_nodes).accepted


def greedy_dag_full(
    upper: Int[Array, " edges"],
    lower: Int[Array, " edges"],
    weight: Float[Array, " edges"],
    mask: Bool[Array, " edges"],
    num_nodes: int,
    reach: UInt32[Array, "nodes words"] | None = None,
) -> Dag:
    """:func:`greedy_dag` with refusals, reachability and a result code.

    ``reach``, the reachability of an acyclic graph, is an order to grow from: an edge is then
    also refused if it contradicts that order, whatever its weight.
    """
    upper, lower, weight, mask = _edge_arrays(upper, lower, weight, mask, num_nodes)
    start = _word_major(reach, num_nodes)
    usable, result = _usable(upper, lower, weight, mask, num_nodes)
    upper, lower = (jnp.where(usable, index, 0) for index in (upper, lower))
    # For one block on few nodes there is little to save, and the plain loop compiles faster.
    small = upper.shape[0] <= WORD and num_nodes <= 256
    closure = greedy_reference if small else greedy_closure
    final = closure(upper, lower, lax.stop_gradient(weight), usable, start)
    refused = usable & reaches(final[None], lower[None], upper[None])[0]
    return Dag(usable & ~refused, refused, final.T, result)


def greedy_dag_by_node(
    neighbours: Int[Array, "nodes degree"],
    weight: Float[Array, " nodes"],
    mask: Bool[Array, "nodes degree"],
) -> Bool[Array, "nodes degree"]:
    """:func:`greedy_dag` for edges i -> neighbours[i, l] that all carry weight[i].

    Ties between nodes go by node, inside a node by l: the same edges as from the flattened
    arrays, found in B steps instead of B·k since the out-edges of one node cannot close a cycle
    with each other.
    """
    return greedy_dag_by_node_full(neighbours, weight, mask).accepted


def greedy_dag_by_node_full(
    neighbours: Int[Array, "nodes degree"],
    weight: Float[Array, " nodes"],
    mask: Bool[Array, "nodes degree"],
) -> NodeDag:
    """:func:`greedy_dag_by_node` with refusals and a result code."""
    neighbours, weight, mask = jnp.asarray(neighbours), jnp.asarray(weight), jnp.asarray(mask)
    _check_node_shapes(neighbours, weight, mask)
    nodes, degree = neighbours.shape
    if nodes == 0 or degree == 0:
        nothing = jnp.zeros((nodes, degree), bool)
        return NodeDag(nothing, nothing, jnp.int32(DagResult.SUCCESS))
    source = jnp.broadcast_to(jnp.arange(nodes, dtype=neighbours.dtype)[:, None], (nodes, degree))
    per_edge = jnp.broadcast_to(weight[:, None], (nodes, degree))
    _check_values(source, neighbours, per_edge, mask, nodes)
    usable, result = _usable(source, neighbours, per_edge, mask, nodes)
    target = jnp.where(usable, neighbours, 0).astype(jnp.int32)
    accepted = greedy_accepted_by_node(target, lax.stop_gradient(weight), usable)
    return NodeDag(accepted, usable & ~accepted, result)


def dag_loss(weight: Float[Array, " edges"], accepted: Bool[Array, " edges"]) -> Float[Array, ""]:
    """L_dag = −(1/|D|) Σ_{e∈D} w(e), zero for an empty D. Carries no gradient: it is logged."""
    kept = jnp.sum(jnp.where(accepted, weight, 0.0))
    return lax.stop_gradient(-kept / jnp.maximum(jnp.sum(accepted), 1))


@jax.jit
def greedy_reference(
    upper: Int[Array, " edges"],
    lower: Int[Array, " edges"],
    weight: Float[Array, " edges"],
    mask: Bool[Array, " edges"],
    reach: UInt32[Array, "words nodes"],
) -> UInt32[Array, "words nodes"]:
    """The closure of the greedy DAG, one edge at a time on a boolean matrix: for an accepted
    (u, v), everything that reaches u now reaches all that v reaches."""
    if upper.shape[0] == 0:
        return reach
    order = jnp.argsort(jnp.where(mask, -weight, jnp.inf), stable=True)

    def add(closure: Array, edge: Array) -> tuple[Array, None]:
        u, v = upper[edge], lower[edge]
        accepted = mask[edge] & ~closure[v, u]
        return closure | (accepted & closure[:, u, None] & closure[None, v, :]), None

    closure, _ = lax.scan(add, unpack_rows(reach.T, reach.shape[1]), order)
    return pack_rows(closure).T


def greedy_by_node_reference(
    neighbours: Int[Array, "nodes degree"],
    weight: Float[Array, " nodes"],
    mask: Bool[Array, "nodes degree"],
) -> Bool[Array, "nodes degree"]:
    """The per-node form as what it means: the per-edge form on the flattened edges."""
    nodes, degree = neighbours.shape
    upper, lower = jnp.repeat(jnp.arange(nodes), degree), neighbours.reshape(-1)
    usable = mask.reshape(-1)
    start = identity_reach(1, nodes)[0]
    closure = greedy_reference(upper, lower, jnp.repeat(weight, degree), usable, start)
    refused = reaches(closure[None], lower[None], upper[None])[0]
    return (usable & ~refused).reshape(nodes, degree)


def _edge_arrays(
    upper: Any, lower: Any, weight: Any, mask: Any, num_nodes: int
) -> tuple[Array, Array, Array, Array]:
    upper, lower, weight, mask = (jnp.asarray(array) for array in (upper, lower, weight, mask))
    if not isinstance(num_nodes, int) or num_nodes < 1:
        raise InputError("num_nodes", num_nodes, "a positive Python int")
    shapes = {"upper": upper, "lower": lower, "weight": weight, "mask": mask}
    for field, array in shapes.items():
        if array.ndim != 1 or array.shape != upper.shape:
            raise InputError(field, array.shape, f"one entry per edge, shape ({upper.size},)")
    _check_types({"upper": upper, "lower": lower}, weight, mask)
    _check_values(upper, lower, weight, mask, num_nodes)
    return upper.astype(jnp.int32), lower.astype(jnp.int32), weight, mask


def _check_node_shapes(neighbours: Array, weight: Array, mask: Array) -> None:
    if neighbours.ndim != 2:
        raise InputError("neighbours", neighbours.shape, "shape (nodes, degree)")
    if weight.shape != neighbours.shape[:1]:
        raise InputError("weight", weight.shape, f"one weight per node, {neighbours.shape[:1]}")
    if mask.shape != neighbours.shape:
        raise InputError("mask", mask.shape, f"the shape of neighbours, {neighbours.shape}")
    _check_types({"neighbours": neighbours}, weight, mask)


def _check_types(indices: dict[str, Array], weight: Array, mask: Array) -> None:
    for field, array in indices.items():
        if not jnp.issubdtype(array.dtype, jnp.integer):
            raise InputError(field, array.dtype.name, "integers")
    if not jnp.issubdtype(weight.dtype, jnp.floating):
        raise InputError("weight", weight.dtype.name, "floating point")
    if mask.dtype != jnp.bool_:
        raise InputError("mask", mask.dtype.name, "booleans")


def _check_values(upper: Array, lower: Array, weight: Array, mask: Array, num_nodes: int) -> None:
    """What only concrete arrays can tell; traced ones get a result code instead."""
    if any(isinstance(array, jax.core.Tracer) for array in (upper, lower, weight, mask)):
        return
    _, result = _usable(upper, lower, weight, mask, num_nodes)
    found = DagResult(int(result))
    if DagResult.INDEX_OUT_OF_RANGE in found:
        wrong = mask & ~(_in_range(upper, num_nodes) & _in_range(lower, num_nodes))
        edge = tuple(int(i) for i in jnp.argwhere(wrong)[0])
        pair = (int(upper[edge]), int(lower[edge]))
        raise InputError("upper, lower", pair, f"nodes 0..{num_nodes - 1} (edge {edge})")
    if DagResult.NAN_WEIGHT in found:
        edge = tuple(int(i) for i in jnp.argwhere(mask & jnp.isnan(weight))[0])
        raise InputError("weight", float("nan"), f"no NaN where mask is True (edge {edge})")


def _in_range(index: Array, num_nodes: int) -> Array:
    return (index >= 0) & (index < num_nodes)


def _usable(
    upper: Array, lower: Array, weight: Array, mask: Array, num_nodes: int
) -> tuple[Array, Array]:
    """The unmasked, well-formed edges, and the :class:`DagResult` of the others."""
    inside = _in_range(upper, num_nodes) & _in_range(lower, num_nodes)
    unordered = jnp.isnan(weight)
    code = jnp.any(mask & unordered) * int(DagResult.NAN_WEIGHT)
    code += jnp.any(mask & ~inside) * int(DagResult.INDEX_OUT_OF_RANGE)
    return mask & inside & ~unordered, code.astype(jnp.int32)


def _word_major(reach: Array | None, num_nodes: int) -> UInt32[Array, "words nodes"]:
    if reach is None:
        return identity_reach(1, num_nodes)[0]
    reach, shape = jnp.asarray(reach), (num_nodes, words_for(num_nodes))
    if reach.shape != shape or reach.dtype != jnp.uint32:
        got = f"{reach.dtype.name}{list(reach.shape)}"
        raise InputError("reach", got, f"bit rows uint32{list(shape)}")
    return reach.T
