"""The greedy DAG against networkx, its stated properties, and its edges."""

from functools import partial

import jax
import jax.numpy as jnp
import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gcr_rl.errors import InputError
from gcr_rl.kernels.dag_bits import unpack_rows
from gcr_rl.order.dag import (
    DagResult,
    dag_loss,
    greedy_dag,
    greedy_dag_by_node,
    greedy_dag_by_node_full,
    greedy_dag_full,
)

NODES, EDGES = 24, 96


def add_unless_cycle(upper, lower, weight, mask, num_nodes):
    graph = nx.DiGraph()
    graph.add_nodes_from(range(num_nodes))
    accepted = np.zeros(len(upper), bool)
    for edge in np.argsort(-np.asarray(weight), kind="stable"):
        u, v = int(upper[edge]), int(lower[edge])
        if mask[edge] and not nx.has_path(graph, v, u):
            graph.add_edge(u, v)
            accepted[edge] = True
    return accepted, graph


def random_edges(rng, count, nodes, edges):
    """Random graphs with self-loops and duplicates, ties in half of them, some masked."""
    upper = rng.integers(0, nodes, (count, edges), dtype=np.int32)
    lower = rng.integers(0, nodes, (count, edges), dtype=np.int32)
    weight = rng.normal(size=(count, edges)).astype(np.float32)
    weight[::2] = np.round(weight[::2])
    mask = rng.random((count, edges)) < rng.choice([0.0, 0.3, 1.0], (count, 1), p=[0.1, 0.3, 0.6])
    return upper, lower, weight, mask


@partial(jax.jit, static_argnames="nodes")
def batched_dag(upper, lower, weight, mask, nodes):
    return jax.vmap(partial(greedy_dag_full, num_nodes=nodes))(upper, lower, weight, mask)


def padded(edges):
    """Columns of (upper, lower, weight) rows, masked up to the one size that is compiled."""
    columns = [np.array([e[i] for e in edges] + [0] * (EDGES - len(edges))) for i in range(3)]
    return *columns[:2], columns[2].astype(np.float32), np.arange(EDGES) < len(edges)


def check_against_networkx(count, nodes, edges, seed):
    arrays = random_edges(np.random.default_rng(seed), count, nodes, edges)
    full = batched_dag(*arrays, nodes)
    closure = np.asarray(unpack_rows(full.reach, nodes))
    for g in range(count):
        accepted, graph = add_unless_cycle(*(array[g] for array in arrays), nodes)
        np.testing.assert_array_equal(full.accepted[g], accepted)
        np.testing.assert_array_equal(full.refused[g], arrays[3][g] & ~accepted)
        expected = nx.to_numpy_array(nx.transitive_closure(graph, reflexive=True), dtype=bool)
        np.testing.assert_array_equal(closure[g], expected)


def test_agrees_with_networkx():
    check_against_networkx(200, NODES, EDGES, seed=0)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("count", "nodes", "edges"),
    [(6000, NODES, EDGES), (3000, 40, 200), (900, 64, 512), (100, 150, 1200)],
)
def test_agrees_with_networkx_on_ten_thousand_graphs(count, nodes, edges):
    check_against_networkx(count, nodes, edges, seed=nodes)


@pytest.mark.parametrize("edges", [1, 20])
def test_few_edges_take_the_reference(edges):
    check_against_networkx(50, 7, edges, seed=edges)


edge_lists = st.lists(
    st.tuples(st.integers(0, 9), st.integers(0, 9), st.integers(-3, 3)), max_size=EDGES
)


@given(edge_lists)
def test_acyclic_and_maximal(edges):
    upper, lower, weight, mask = padded(edges)
    accepted = np.asarray(greedy_dag(upper, lower, weight, mask, NODES))
    graph = nx.DiGraph()
    graph.add_nodes_from(range(NODES))
    graph.add_edges_from(zip(upper[accepted], lower[accepted], strict=True))
    assert nx.is_directed_acyclic_graph(graph)
    assert not np.any(accepted & ~mask)
    for u, v in zip(upper[mask & ~accepted], lower[mask & ~accepted], strict=True):
        assert nx.has_path(graph, v, u)


def test_duplicates_self_loops_and_two_cycles():
    edges = [(0, 1, 1.0), (0, 1, 1.0), (1, 0, 1.0), (2, 2, 1.0), (1, 2, 1.0)] * 8
    accepted = greedy_dag(*padded(edges), NODES)
    np.testing.assert_array_equal(accepted[:40], np.tile([True, True, False, False, True], 8))
    assert not accepted[40:].any()


@pytest.mark.parametrize("edges", [0, 5, EDGES])
def test_all_masked_accepts_nothing(edges):
    index = jnp.zeros(edges, jnp.int32)
    full = greedy_dag_full(index, index + 99, jnp.full(edges, jnp.nan), index > 0, NODES)
    assert not full.accepted.any() and not full.refused.any()
    assert full.result == DagResult.SUCCESS
    np.testing.assert_array_equal(full.reach[:, 0], 1 << np.arange(NODES))


def test_equal_and_infinite_weights_and_signed_zeros_order_by_index():
    rng = np.random.default_rng(3)
    upper, lower, _, _ = (array[0] for array in random_edges(rng, 1, NODES, EDGES))
    mask = np.ones(EDGES, bool)
    for weight in (
        np.ones(EDGES, np.float32),
        rng.choice(np.array([-np.inf, np.inf, 1.0], np.float32), EDGES),
        rng.choice(np.array([-0.0, 0.0], np.float32), EDGES),
    ):
        expected, _ = add_unless_cycle(upper, lower, weight, mask, NODES)
        np.testing.assert_array_equal(greedy_dag(upper, lower, weight, mask, NODES), expected)


def test_one_node_has_no_order():
    index = jnp.zeros(9, jnp.int32)
    assert not greedy_dag(index, index, jnp.ones(9), jnp.ones(9, bool), 1).any()


def test_grows_from_a_given_order():
    """An earlier order outranks any weight, and growing in two halves, the heavier first,
    is the same as all at once."""
    upper, lower, weight, mask = (
        array[0] for array in random_edges(np.random.default_rng(4), 1, NODES, EDGES)
    )
    mask = np.ones_like(mask)
    heavy = weight >= np.median(weight)
    whole = greedy_dag_full(upper, lower, weight, mask, NODES)
    first = greedy_dag_full(upper, lower, weight, heavy, NODES)
    second = greedy_dag_full(upper, lower, weight, ~heavy, NODES, first.reach)
    np.testing.assert_array_equal(whole.accepted, first.accepted | second.accepted)
    np.testing.assert_array_equal(whole.reach, second.reach)
    one = jnp.ones(1, jnp.int32)
    zero_above_one = jnp.array([[3], [2]], jnp.uint32)
    against = greedy_dag_full(one, one - 1, 9.0 * one, one > 0, 2, zero_above_one)
    assert against.refused[0]


def test_by_node_is_the_flattened_form():
    rng = np.random.default_rng(5)
    neighbours = rng.integers(0, NODES, (200, NODES, 4), dtype=np.int32)
    weight = np.round(rng.normal(size=(200, NODES)) * 3).astype(np.float32)
    mask = rng.random(neighbours.shape) < 0.8
    accepted = jax.jit(jax.vmap(greedy_dag_by_node))(neighbours, weight, mask)
    upper = np.broadcast_to(np.repeat(np.arange(NODES, dtype=np.int32), 4), (200, EDGES))
    lower, per_edge = neighbours.reshape(200, -1), np.repeat(weight, 4, axis=1)
    flat = batched_dag(upper, lower, per_edge, mask.reshape(200, -1), NODES)
    np.testing.assert_array_equal(np.reshape(accepted, (200, -1)), flat.accepted)


def test_by_node_result_codes_inside_jit():
    """Bad edges count as masked, the others are decided as if these were not there."""
    rng = np.random.default_rng(10)
    neighbours = rng.integers(0, NODES, (NODES, 4), dtype=np.int32)
    weight = rng.random(NODES, np.float32)
    neighbours[2, 1], weight[5] = NODES, np.nan
    mask = np.ones(neighbours.shape, bool)
    full = jax.jit(greedy_dag_by_node_full)(neighbours, weight, mask)
    assert DagResult(int(full.result)) == DagResult.NAN_WEIGHT | DagResult.INDEX_OUT_OF_RANGE
    mask[2, 1] = mask[5] = False
    clean = greedy_dag_by_node_full(neighbours, weight, mask)
    assert clean.result == DagResult.SUCCESS
    np.testing.assert_array_equal(full.accepted, clean.accepted)
    np.testing.assert_array_equal(full.refused, clean.refused)


def test_double_precision_weights_order_exactly():
    upper, lower, _, mask = (
        array[0] for array in random_edges(np.random.default_rng(11), 1, NODES, EDGES)
    )
    mask = np.ones_like(mask)
    weight = 1.0 + np.random.default_rng(11).permutation(EDGES) * 2.0**-50
    expected, _ = add_unless_cycle(upper, lower, weight, mask, NODES)
    with jax.enable_x64(True):
        found = greedy_dag(upper, lower, jnp.asarray(weight), mask, NODES)
    np.testing.assert_array_equal(found, expected)


def test_by_node_without_edges():
    for shape in ((0, 3), (5, 0)):
        index = jnp.zeros(shape, jnp.int32)
        assert greedy_dag_by_node(index, jnp.zeros(shape[0]), index > 0).shape == shape


def test_vmap_over_some_arguments_and_twice():
    upper, lower, weight, mask = random_edges(np.random.default_rng(6), 6, NODES, EDGES)
    call = partial(greedy_dag, num_nodes=NODES)
    pairs = weight.reshape(3, 2, -1)
    each = [[call(upper[0], lower[0], w, mask[1]) for w in pair] for pair in pairs]
    twice = jax.vmap(jax.vmap(lambda w: call(upper[0], lower[0], w, mask[1])))
    np.testing.assert_array_equal(twice(pairs), np.array(each))


def test_gradient_flows_around_the_selection():
    upper, lower, weight, mask = (
        array[0] for array in random_edges(np.random.default_rng(7), 1, NODES, EDGES)
    )
    mask = np.ones_like(mask)

    def kept_weight(w):
        return jnp.sum(w * greedy_dag(upper, lower, w, mask, NODES))

    accepted = greedy_dag(upper, lower, weight, mask, NODES)
    np.testing.assert_array_equal(jax.grad(kept_weight)(weight), accepted.astype(jnp.float32))


def test_result_codes_inside_jit_and_errors_outside():
    upper, lower, weight, mask = (
        array[0].copy() for array in random_edges(np.random.default_rng(8), 1, NODES, EDGES)
    )
    mask[:] = True
    weight[3], lower[5], upper[6] = np.nan, NODES, -1
    full = jax.jit(partial(greedy_dag_full, num_nodes=NODES))(upper, lower, weight, mask)
    assert DagResult(int(full.result)) == DagResult.NAN_WEIGHT | DagResult.INDEX_OUT_OF_RANGE
    bad = np.isin(np.arange(EDGES), [3, 5, 6])
    assert not np.any((full.accepted | full.refused)[bad])
    expected, _ = add_unless_cycle(upper % NODES, lower % NODES, weight, ~bad, NODES)
    np.testing.assert_array_equal(full.accepted, expected)
    with pytest.raises(InputError, match=r"upper, lower.*24"):
        greedy_dag(upper, lower, weight, mask, NODES)
    with pytest.raises(InputError, match=r"weight.*nan"):
        greedy_dag(upper, lower, weight, mask & ~np.isin(np.arange(EDGES), [5, 6]), NODES)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"num_nodes": 0}, "num_nodes"),
        ({"weight": jnp.ones(3)}, "weight"),
        ({"mask": jnp.ones((4, 1), bool)}, "mask"),
        ({"mask": jnp.ones(4)}, "mask"),
        ({"upper": jnp.ones(4)}, "upper"),
        ({"weight": jnp.ones(4, jnp.int32)}, "weight"),
        ({"reach": jnp.zeros((5, 2), jnp.uint32)}, "reach"),
    ],
)
def test_malformed_input_names_the_field(change, field):
    index = jnp.zeros(4, jnp.int32)
    good = {"upper": index, "lower": index, "weight": jnp.ones(4), "mask": index == 0}
    with pytest.raises(InputError) as error:
        greedy_dag_full(**(good | {"num_nodes": 5} | change))
    assert error.value.field == field


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"neighbours": jnp.zeros(4, int)}, "neighbours"),
        ({"weight": jnp.ones(3)}, "weight"),
        ({"mask": jnp.ones((4, 3), bool)}, "mask"),
        ({"neighbours": jnp.full((4, 2), 4)}, "upper, lower"),
        ({"weight": jnp.full(4, jnp.nan)}, "weight"),
    ],
)
def test_malformed_node_input_names_the_field(change, field):
    index = jnp.zeros((4, 2), int)
    good = {"neighbours": index, "weight": jnp.ones(4), "mask": index == 0}
    with pytest.raises(InputError) as error:
        greedy_dag_by_node(**(good | change))
    assert error.value.field == field


def test_dag_loss_is_the_negative_mean_weight_kept():
    weight, accepted = jnp.array([1.0, 2.0, 4.0]), jnp.array([True, False, True])
    assert dag_loss(weight, accepted) == -2.5
    assert dag_loss(weight, jnp.zeros(3, bool)) == 0.0
    np.testing.assert_array_equal(jax.grad(dag_loss)(weight, accepted), np.zeros(3))
