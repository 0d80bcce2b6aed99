"""Posets against brute force and networkx; the bounded poset against the one on the host."""

from itertools import combinations, pairwise, permutations

import jax
import jax.numpy as jnp
import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gcr_rl.errors import InputError
from gcr_rl.order import (
    BoundedPoset,
    DagResult,
    Poset,
    empty_poset,
    holds,
    refine_poset,
    relation_count,
)
from gcr_rl.types import Comparisons


@st.composite
def small_posets(draw, max_nodes=7):
    """A poset on a few nodes, its edges drawn along a random line so that it is acyclic."""
    nodes = draw(st.integers(1, max_nodes))
    line = draw(st.permutations(range(nodes)))
    pairs = list(combinations(line, 2))
    edges = draw(st.lists(st.sampled_from(pairs), max_size=12)) if pairs else []
    return Poset.from_edges(nodes, edges), edges


def random_poset(rng, nodes, density):
    line = rng.permutation(nodes)
    upper, lower = np.nonzero(np.triu(rng.random((nodes, nodes)) < density, 1))
    return Poset.from_edges(nodes, np.stack([line[upper], line[lower]], axis=1))


def antichains(poset):
    nodes = range(poset.num_nodes)
    for size in range(poset.num_nodes, 0, -1):
        for chosen in combinations(nodes, size):
            if not poset.closure[np.ix_(chosen, chosen)].any():
                yield set(chosen)


def longest_chain(poset):
    return max(
        (
            size
            for size in range(1, poset.num_nodes + 1)
            for line in permutations(range(poset.num_nodes), size)
            if all(poset.closure[a, b] for a, b in pairwise(line))
        ),
        default=0,
    )


@given(small_posets())
def test_closure_is_a_strict_order_and_the_smallest_one(case):
    poset, edges = case
    graph = nx.DiGraph(edges)
    graph.add_nodes_from(range(poset.num_nodes))
    expected = nx.to_numpy_array(
        nx.transitive_closure_dag(graph), nodelist=range(poset.num_nodes), dtype=bool
    )
    np.testing.assert_array_equal(poset.closure, expected)
    assert poset.size == expected.sum()
    assert poset.reaches(0, 0)


@given(small_posets())
def test_hasse_is_the_smallest_graph_with_this_closure(case):
    poset, _ = case
    covers = poset.hasse()
    assert Poset.from_edges(poset.num_nodes, covers) == poset
    for leave_out in range(len(covers)):
        fewer = np.delete(covers, leave_out, axis=0)
        assert Poset.from_edges(poset.num_nodes, fewer) != poset


@given(small_posets())
def test_width_and_antichain_against_all_subsets(case):
    poset, _ = case
    best = next(antichains(poset))
    found = poset.max_antichain()
    assert poset.width() == len(best) == len(found)
    assert not poset.closure[np.ix_(found, found)].any()


@given(small_posets(max_nodes=5))
def test_height_against_all_chains(case):
    poset, _ = case
    assert poset.height() == longest_chain(poset)


@given(small_posets())
def test_linear_extension_lists_uppers_first(case):
    poset, _ = case
    line = poset.linear_extension()
    place = np.argsort(line)
    np.testing.assert_array_equal(np.sort(line), np.arange(poset.num_nodes))
    assert all(place[u] < place[v] for u, v in np.argwhere(poset.closure))


@given(small_posets(), st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=10))
def test_refine_only_adds_and_refuses_exactly_what_would_close_a_cycle(case, new):
    poset, _ = case
    new = [(u % poset.num_nodes, v % poset.num_nodes) for u, v in new]
    refined, refused = poset.refine(new)
    assert poset.contained_in(refined)
    graph = nx.DiGraph()
    graph.add_nodes_from(range(poset.num_nodes))
    graph.add_edges_from(np.argwhere(poset.closure).tolist())
    expected_refusals = 0
    for u, v in new:
        if nx.has_path(graph, v, u):
            expected_refusals += 1
        else:
            graph.add_edge(u, v)
    assert refused == expected_refusals
    assert refined == Poset.from_edges(poset.num_nodes, list(graph.edges))


@pytest.mark.slow
def test_thousands_of_posets_against_networkx_and_brute_force():
    rng = np.random.default_rng(0)
    for _ in range(2000):
        poset = random_poset(rng, int(rng.integers(1, 11)), rng.random())
        assert poset.width() == len(next(antichains(poset))) == len(poset.max_antichain())
        graph = poset.to_networkx()
        reduced = nx.transitive_reduction(nx.DiGraph(np.argwhere(poset.closure).tolist()))
        assert set(graph.edges) == set(reduced.edges)
        longest = nx.dag_longest_path_length(graph) + 1
        assert poset.height() == longest


def test_width_on_larger_orders():
    """60 nodes, too many for all subsets: the antichain is one, as large as the width, and at
    the density where networkx can list all antichains none is larger."""
    rng = np.random.default_rng(1)
    for density in (0.01, 0.05, 0.2):
        poset = random_poset(rng, 60, density)
        found = poset.max_antichain()
        assert not poset.closure[np.ix_(found, found)].any()
        assert len(found) == poset.width()
    assert poset.width() == max(len(a) for a in nx.antichains(poset.to_networkx()))


def test_a_cycle_is_named():
    with pytest.raises(
        InputError, match=r"cycle (0 -> 2 -> 1 -> 0|2 -> 1 -> 0 -> 2|1 -> 0 -> 2 -> 1)"
    ):
        Poset.from_edges(5, [(3, 0), (0, 2), (2, 1), (1, 0), (1, 4)])
    with pytest.raises(InputError, match="cycle 1 -> 1"):
        Poset.from_edges(2, [(1, 1)])


@pytest.mark.parametrize("edges", [[(0, 5)], [(-1, 0)], [(0, 1, 2)], [(0.5, 1.0)], [(0,), (1, 2)]])
def test_malformed_edges(edges):
    with pytest.raises(InputError, match="edges"):
        Poset.from_edges(3, edges)


def test_quotient_merges_classes_and_refuses_a_circle():
    poset = Poset.from_edges(5, [(0, 1), (1, 2), (3, 4)])
    merged = poset.quotient([0, 0, 1, 2, 1])
    assert merged == Poset.from_edges(3, [(0, 1), (2, 1)])
    with pytest.raises(InputError, match="labels"):
        poset.quotient([0, 1, 0, 2, 2])
    with pytest.raises(InputError, match="labels"):
        poset.quotient([0, 1])
    with pytest.raises(InputError, match="labels"):
        poset.quotient([0.0, 1, 0, 2, 2])


@given(small_posets())
def test_quotient_by_distinct_labels_changes_nothing(case):
    poset, _ = case
    assert poset.quotient(np.arange(poset.num_nodes)) == poset


def test_layout_puts_uppers_higher_and_shares_no_place():
    poset = random_poset(np.random.default_rng(2), 30, 0.1)
    place = poset.layout()
    for u, v in poset.hasse():
        assert place[u, 1] > place[v, 1]
    assert len({tuple(p) for p in place}) == 30


def test_layout_untangles_two_crossed_chains():
    poset = Poset.from_edges(4, [(0, 3), (1, 2)])
    x = poset.layout()[:, 0]
    assert (x[0] < x[1]) == (x[3] < x[2])


def test_exports():
    poset = Poset.from_edges(3, [(0, 1), (1, 2), (0, 2)])
    assert set(poset.to_networkx(["a", "b", "c"]).edges) == {(0, 1), (1, 2)}
    text = poset.to_graphviz(['say "hi"', "back\\slash", "two\nlines"])
    assert '0 [label="say \\"hi\\""];' in text
    assert '1 [label="back\\\\slash"];' in text
    assert '2 [label="two\\nlines"];' in text
    assert "0 -> 1;" in text and "0 -> 2;" not in text
    with pytest.raises(InputError, match="labels"):
        poset.to_graphviz(["only one"])


def test_empty_and_immutable():
    nothing = Poset.antichain(0)
    assert (nothing.width(), nothing.height(), nothing.size) == (0, 0, 0)
    assert len(nothing.hasse()) == len(nothing.layout()) == len(nothing.max_antichain()) == 0
    poset = Poset.antichain(3)
    assert (poset.width(), poset.height()) == (3, 1)
    with pytest.raises(ValueError, match="read-only"):
        poset.closure[0, 1] = True
    assert poset == Poset.antichain(3) and hash(poset) == hash(Poset.antichain(3))
    with pytest.raises(InputError, match="other"):
        poset.contained_in(nothing)


def comparisons(rng, edges, nodes):
    upper, lower = rng.integers(0, nodes, (2, edges), dtype=np.int32)
    weight = rng.random(edges, np.float32)
    zero = np.zeros(edges, np.float32)
    return Comparisons(upper, lower, weight, zero, zero + 1, rng.random(edges) < 0.8)


def test_bounded_poset_grows_like_the_one_on_the_host():
    """Twenty refinements under jit: D_{k-1} ⊆ D_k, the same relations and the same refusals."""
    rng = np.random.default_rng(3)
    step = jax.jit(refine_poset)
    state, host = empty_poset(37), Poset.antichain(37)
    total = 0
    for _ in range(20):
        new = comparisons(rng, 40, 37)
        order = np.argsort(-new.weight, kind="stable")
        order = order[new.mask[order]]
        grown, refused_on_host = host.refine(np.stack([new.upper, new.lower], axis=1)[order])
        state, refused = step(state, new)
        total += int(refused)
        assert host.contained_in(grown)
        host = grown
        assert int(refused) == refused_on_host
        assert Poset.from_reach(state.reach) == host
        assert int(relation_count(state)) == host.size
    assert int(state.refused) == total > 0
    assert DagResult(int(state.result)) == DagResult.SUCCESS
    upper, lower = np.divmod(np.arange(37 * 37), 37)
    expected = host.closure | np.eye(37, dtype=bool)
    np.testing.assert_array_equal(holds(state, upper, lower).reshape(37, 37), expected)


def test_bounded_poset_remembers_bad_input():
    state = empty_poset(4)
    one = jnp.ones(2)
    bad = Comparisons(jnp.array([0, 1]), jnp.array([9, 2]), one, one, one, one > 0)
    state, _ = jax.jit(refine_poset)(state, bad)
    good = bad._replace(lower=jnp.array([2, 3]))
    state, _ = jax.jit(refine_poset)(state, good)
    assert DagResult(int(state.result)) == DagResult.INDEX_OUT_OF_RANGE
    assert Poset.from_reach(state.reach) == Poset.from_edges(4, [(1, 2), (0, 2), (1, 3)])


def test_malformed_reach_and_sizes():
    with pytest.raises(InputError, match="num_nodes"):
        empty_poset(0)
    both_ways = np.array([[3], [3]], np.uint32)
    with pytest.raises(InputError, match="reach"):
        Poset.from_reach(both_ways)
    with pytest.raises(InputError, match="transitive"):
        Poset.from_reach(np.array([[2], [4], [0]], np.uint32))
    with pytest.raises(InputError, match="reach"):
        Poset.from_reach(np.zeros((40, 1), np.uint32))
    assert isinstance(empty_poset(2), BoundedPoset)
