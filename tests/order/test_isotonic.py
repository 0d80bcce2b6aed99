"""The exact projection: oracles, optimality, guarantees, derivative, errors."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import enable_x64
from scipy.optimize import isotonic_regression

from gcr_rl.errors import InputError
from gcr_rl.order.isotonic import Result, project
from gcr_rl.order.projection import reference_project
from gcr_rl.types import Comparisons

NODES, EDGES = 12, 24
SEEDS = st.integers(0, 2**32 - 1)


def comparisons(upper, lower, margin=0.0, discount=1.0, mask=True):
    shape = np.shape(upper)
    fill = lambda x: np.broadcast_to(np.asarray(x, np.float64), shape)  # noqa: E731
    return Comparisons(
        np.asarray(upper, np.int32),
        np.asarray(lower, np.int32),
        np.ones(shape),
        fill(margin),
        fill(discount),
        np.broadcast_to(np.asarray(mask, bool), shape),
    )


def random_dag(rng, nodes=NODES, edges=EDGES, margin=0.0, discount=None):
    """Edges u -> v with u before v in a random order; repeated edges are welcome."""
    order = rng.permutation(nodes)
    first = rng.integers(0, nodes - 1, size=edges)
    second = rng.integers(first + 1, nodes)
    low = 1.0 if discount is None else rng.uniform(discount, 1.0, size=edges)
    return comparisons(
        order[first], order[second], margin, low, rng.random(edges) < rng.uniform(0.3, 1.0)
    )


@jax.jit
def solve(values, order, node_weight, frozen):
    return project(values, order, node_weight=node_weight, frozen=frozen)


def run(values, order, node_weight=None, frozen=None):
    weight = np.ones(len(values)) if node_weight is None else node_weight
    still = np.zeros(len(values), bool) if frozen is None else frozen
    return solve(values, order, weight, still)


def matrix(order, nodes):
    keep = np.asarray(order.mask)
    rows = np.zeros((keep.sum(), nodes))
    index = np.arange(keep.sum())
    np.add.at(rows, (index, np.asarray(order.upper)[keep]), 1.0)
    np.add.at(rows, (index, np.asarray(order.lower)[keep]), -np.asarray(order.discount)[keep])
    return rows, np.asarray(order.margin)[keep]


@given(SEEDS, st.booleans(), st.booleans(), st.booleans(), st.booleans())
def test_agrees_with_the_reference(seed, margins, discounts, cycles, holds):
    """Values, feasibility and result code, over bounds, cycles, weights and frozen nodes."""
    rng = np.random.default_rng(seed)
    order = random_dag(rng, margin=rng.uniform(-0.1, 0.4, EDGES) if margins else 0.0)
    if discounts:
        kept = rng.random(EDGES) < 0.8
        order = order._replace(discount=np.where(kept, rng.uniform(0.3, 1.0, EDGES), 0.0))
    if cycles:
        order = order._replace(upper=rng.integers(0, NODES, EDGES).astype(np.int32))
    frozen = rng.random(NODES) < (0.25 if holds else 0.0)
    weight = np.exp(rng.normal(size=NODES))
    values = rng.normal(size=NODES) * 10 ** rng.uniform(-2, 2)
    expected = reference_project(values, order, node_weight=weight, frozen=frozen)
    with enable_x64(True):
        found = run(values, order, weight, frozen)
        assert found.outcome == (Result.SUCCESS if expected.feasible else Result.INFEASIBLE)
        scale = np.abs(values).max()
        np.testing.assert_allclose(found.values, expected.values, atol=1e-7 * max(scale, 1.0))
        np.testing.assert_array_equal(np.asarray(found.values)[frozen], values[frozen])


@given(SEEDS)
def test_chain_is_pool_adjacent_violators(seed):
    rng = np.random.default_rng(seed)
    values, weight = rng.normal(size=NODES), rng.uniform(0.1, 3.0, NODES)
    chain = comparisons(np.arange(EDGES) % (NODES - 1), np.arange(EDGES) % (NODES - 1) + 1)
    expected = isotonic_regression(values, weights=weight, increasing=False).x
    with enable_x64(True):
        np.testing.assert_allclose(run(values, chain, weight).values, expected, atol=1e-8)


@given(SEEDS, st.booleans())
def test_optimality_conditions(seed, discounts):
    """Feasible, multipliers nonnegative and complementary, stationary, and the gap closed."""
    rng = np.random.default_rng(seed)
    order = random_dag(rng, margin=0.1, discount=0.5 if discounts else None)
    values, weight = rng.normal(size=NODES), np.exp(rng.normal(size=NODES))
    with enable_x64(True):
        found = run(values, order, weight)
        rows, margin = matrix(order, NODES)
        x = np.asarray(found.values)
        multipliers = np.asarray(found.stats.multipliers)[np.asarray(order.mask)]
        slack = rows @ x - margin
        assert found.outcome == Result.SUCCESS
        assert slack.min(initial=0.0) >= -1e-9
        assert float(found.stats.max_violation) <= 1e-9
        assert multipliers.min(initial=0.0) >= 0.0
        np.testing.assert_allclose(multipliers * slack, 0.0, atol=1e-8)
        np.testing.assert_allclose(weight * (x - values), rows.T @ multipliers, atol=1e-7)
        assert int(found.stats.active_edges) == (multipliers > 0).sum()
        assert abs(float(found.stats.duality_gap)) <= 1e-8


@given(SEEDS)
def test_nonexpansive_and_variance_not_increased(seed):
    rng = np.random.default_rng(seed)
    order = random_dag(rng)
    first, second = rng.normal(size=(2, NODES))
    with enable_x64(True):
        a, b = run(first, order).values, run(second, order).values
        assert np.linalg.norm(a - b) <= np.linalg.norm(first - second) + 1e-8
        assert np.var(a) <= np.var(first) + 1e-8
        np.testing.assert_allclose(np.mean(a), np.mean(first), atol=1e-8)


@given(SEEDS)
def test_margins_accumulate_along_paths_and_no_cycle_appears(seed):
    """x_0 >= x_m + m·δ on every path of m edges (lem:path-accumulate, thm:cyclefree)."""
    rng = np.random.default_rng(seed)
    delta = 0.25
    order = random_dag(rng, margin=delta)
    longest = np.full((NODES, NODES), -np.inf)
    keep = np.asarray(order.mask)
    longest[order.upper[keep], order.lower[keep]] = 1.0
    for k in range(NODES):
        longest = np.maximum(longest, longest[:, k, None] + longest[None, k, :])
    with enable_x64(True):
        x = np.asarray(run(rng.normal(size=NODES), order).values)
    reach = longest > 0
    gaps = (x[:, None] - x[None, :])[reach]
    assert (gaps >= delta * longest[reach] - 1e-8).all()
    assert not (reach & (x[:, None] <= x[None, :])).any()


@given(SEEDS)
def test_consistent_with_a_containing_order(seed):
    """Values that already obey a larger order stay; others come to agree with it on edges."""
    rng = np.random.default_rng(seed)
    order = random_dag(rng)
    truth = np.empty(NODES)
    depth = np.zeros(NODES)
    keep = np.asarray(order.mask)
    for _ in range(NODES):
        np.maximum.at(depth, order.upper[keep], depth[order.lower[keep]] + 1)
    truth[:] = depth
    with enable_x64(True):
        np.testing.assert_array_equal(run(truth, order).values, truth)
        x = np.asarray(run(truth + rng.normal(size=NODES), order).values)
    assert (x[order.upper[keep]] >= x[order.lower[keep]] - 1e-9).all()


def test_blocks_are_weighted_means():
    order = comparisons([0, 1], [1, 2])
    with enable_x64(True):
        weight = np.array([1.0, 2.0, 1.0])
        found = project(jnp.array([0.0, 3.0, 5.0]), order, node_weight=weight)
        np.testing.assert_allclose(found.values, 11.0 / 4.0, atol=1e-9)


def test_frozen_lower_end_only_lifts_the_upper():
    found = project(
        jnp.array([0.0, 2.0, 9.0]),
        comparisons([0, 2], [1, 1], margin=[1.0, 0.0], discount=[0.5, 1.0]),
        frozen=jnp.array([False, True, False]),
    )
    np.testing.assert_allclose(found.values, [2.0, 2.0, 9.0], atol=1e-6)


def test_discount_zero_is_a_bound():
    found = project(jnp.array([0.0, 7.0]), comparisons([0], [1], margin=3.0, discount=0.0))
    np.testing.assert_allclose(found.values, [3.0, 7.0], atol=1e-6)


@pytest.mark.parametrize(
    ("order", "frozen"),
    [
        (comparisons([0, 1], [1, 0], margin=0.5), None),
        (comparisons([0], [1], margin=0.5), [True, True]),
        (comparisons([0, 1], [0, 0], margin=[0.1, 0.0]), None),
        (comparisons([0, 0], [1, 1], margin=[0.0, 5.0], discount=[1.0, 0.0]), [True, False]),
    ],
    ids=["positive cycle", "frozen pair", "above itself", "frozen below its bound"],
)
@pytest.mark.parametrize("wide", [False, True])
def test_infeasible_is_reported(order, frozen, wide):
    with enable_x64(wide):
        still = None if frozen is None else jnp.array(frozen)
        found = project(jnp.array([0.0, 1.0]), order, frozen=still)
        assert found.outcome == Result.INFEASIBLE
        np.testing.assert_array_equal(found.values, [0.0, 1.0])


@given(SEEDS)
def test_zero_margin_cycles_are_equalities(seed):
    """x >= y >= z >= x is feasible, however the values round."""
    rng = np.random.default_rng(seed)
    size = NODES // 2
    ring = np.concatenate([np.arange(size), np.arange(EDGES - size) % NODES])
    order = comparisons(ring, np.where(np.arange(EDGES) < size, (ring + 1) % size, ring))
    values = (rng.normal(size=NODES) * 10 ** rng.uniform(-3, 3)).astype(np.float32)
    found = run(values, order)
    assert found.outcome == Result.SUCCESS
    scale = np.abs(values).max()
    np.testing.assert_allclose(found.values[:size], values[:size].mean(), atol=1e-5 * scale)


def test_discounted_cycle_is_feasible():
    """x >= 0.9 y + 1 and y >= 0.9 x + 1 hold together from 10 on."""
    order = comparisons([0, 1], [1, 0], margin=1.0, discount=0.9)
    found = project(jnp.array([0.0, 0.0]), order)
    assert found.outcome == Result.SUCCESS
    np.testing.assert_allclose(found.values, 10.0, rtol=1e-5)


@given(SEEDS)
@settings(max_examples=25)
def test_derivative_matches_finite_differences(seed):
    """In values, node weights, margins and discounts, forwards and backwards."""
    rng = np.random.default_rng(seed)
    order = random_dag(rng, margin=0.1, discount=0.5)
    order = order._replace(discount=np.minimum(order.discount, 0.99))
    frozen = rng.random(NODES) < 0.1
    with enable_x64(True):
        point = [rng.normal(size=NODES), np.exp(rng.normal(size=NODES) / 2)]
        point += [order.margin + rng.uniform(0, 0.1, EDGES), order.discount]
        along = [rng.normal(size=np.shape(part)) for part in point]
        back = rng.normal(size=NODES)
        forward, sides, pulled = _directional(point, along, back, order, frozen)
        expected = (sides[0] - sides[1]) / 2e-6
        middle = (sides[0] + sides[1] - 2 * sides[2]) / 1e-6
        if np.abs(middle).max() > 1e-4:
            return  # a kink of the projection lies within the difference
        np.testing.assert_allclose(forward, expected, atol=1e-4)  # as much as a kink may hide
        backwards = sum(np.vdot(p, a) for p, a in zip(pulled, along, strict=True))
        np.testing.assert_allclose(backwards, np.vdot(back, forward), atol=1e-7)


@jax.jit
def _directional(point, along, back, order, frozen):
    def values(vector, weight, margin, discount):
        edges = order._replace(margin=margin, discount=discount)
        return project(vector, edges, node_weight=weight, frozen=frozen).values

    shift = lambda t: [p + t * a for p, a in zip(point, along, strict=True)]  # noqa: E731
    _, forward = jax.jvp(values, point, along)
    _, transpose = jax.vjp(values, *point)
    sides = values(*shift(1e-6)), values(*shift(-1e-6)), values(*point)
    return forward, sides, transpose(back)


def test_derivative_averages_blocks_in_float32():
    order = comparisons([0, 1, 2], [1, 2, 3])
    jacobian = jax.jacrev(lambda v: project(v, order).values)(jnp.array([0.0, 1.0, 2.0, -9.0]))
    expected = np.zeros((4, 4))
    expected[:3, :3], expected[3, 3] = 1 / 3, 1.0
    np.testing.assert_allclose(jacobian, expected, atol=1e-4)


def test_nested_vmap_equals_single_calls():
    rng = np.random.default_rng(0)
    orders = [random_dag(rng, margin=0.1) for _ in range(3)]
    stacked = jax.tree.map(lambda *leaf: np.stack(leaf), *orders)
    values = rng.normal(size=(2, NODES)).astype(np.float32)
    both = jax.vmap(jax.vmap(project, in_axes=(None, 0)), in_axes=(0, None))(values, stacked)
    assert both.values.shape == (2, 3, NODES)
    assert (np.asarray(both.result) == Result.SUCCESS).all()
    for i in range(2):
        for j in range(3):
            alone = run(values[i], orders[j]).values
            np.testing.assert_allclose(both.values[i, j], alone, atol=2e-5)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"upper": [0, 9]}, r"comparisons\.upper\[1\]"),
        ({"lower": [-1, 0]}, r"comparisons\.lower\[0\]"),
        ({"margin": [0.0, np.nan]}, r"comparisons\.margin\[1\]"),
        ({"discount": [0.5, 1.5]}, r"comparisons\.discount\[1\]"),
        ({"discount": [-0.5, 1.0]}, r"comparisons\.discount\[0\]"),
        ({"values": [0.0, np.nan, 1.0]}, r"values\[1\]"),
        ({"node_weight": [1.0, np.nan, 1.0]}, r"node_weight\[1\]"),
        ({"node_weight": [1.0, 1.0, 0.0]}, r"node_weight\[2\]"),
        ({"margin": [-1.0, 0.0], "nonnegative_margins": True}, r"comparisons\.margin\[0\]"),
    ],
)
def test_bad_input_is_an_error_outside_jit_and_a_code_inside(change, field):
    order = {"upper": [0, 1], "lower": [1, 2], "margin": [0.0, 0.0], "discount": [1.0, 1.0]}
    order |= {key: change[key] for key in order if key in change}
    values = jnp.array(change.get("values", [0.0, 1.0, 2.0]))
    weight = jnp.array(change.get("node_weight", [1.0, 1.0, 1.0]))
    edges = comparisons(order["upper"], order["lower"], order["margin"], order["discount"])
    keywords = {"nonnegative_margins": change.get("nonnegative_margins", False)}
    with pytest.raises(InputError, match=field):
        project(values, edges, node_weight=weight, **keywords)
    traced = jax.jit(lambda v, e, w: project(v, e, node_weight=w, **keywords))
    found = traced(values, edges, weight)
    assert found.outcome == Result.INVALID_INPUT
    np.testing.assert_array_equal(found.values, values)


@pytest.mark.parametrize(
    ("values", "edges", "keywords", "field"),
    [
        (np.zeros((2, 3)), comparisons([0], [1]), {}, "values"),
        (np.zeros(3, int), comparisons([0], [1]), {}, "values"),
        (np.zeros(3), comparisons([0], [1])._replace(lower=np.array([1, 2])), {}, "lower"),
        (np.zeros(3), comparisons([0], [1])._replace(upper=np.array([0.0])), {}, "upper"),
        (np.zeros(3), comparisons([0], [1]), {"node_weight": np.ones(2)}, "node_weight"),
        (np.zeros(3), comparisons([0], [1]), {"frozen": np.zeros(4, bool)}, "frozen"),
    ],
)
def test_axes_that_do_not_fit(values, edges, keywords, field):
    with pytest.raises(InputError, match=field):
        project(values, edges, **keywords)


def test_masked_out_comparisons_may_hold_anything():
    edges = comparisons([0, 99], [1, -7], [0.0, np.nan], [1.0, 5.0], [True, False])
    found = project(jnp.array([0.0, 1.0]), edges)
    assert found.outcome == Result.SUCCESS
    np.testing.assert_allclose(found.values, 0.5, atol=1e-6)


def test_no_comparisons_changes_nothing():
    values = jnp.array([0.3, -1.7, 5.5])
    for edges in (comparisons([], []), comparisons([0], [1], mask=False)):
        found = project(values, edges)
        assert found.outcome == Result.SUCCESS
        np.testing.assert_array_equal(found.values, values)


def test_large_values_keep_small_differences_in_float32():
    """At ±200 a float32 resolves 1.5e-5; what it can represent it must obey."""
    rng = np.random.default_rng(3)
    order = random_dag(rng, margin=0.1)
    found = run((rng.normal(size=NODES) - 200).astype(np.float32), order)
    assert found.outcome == Result.SUCCESS
    assert float(found.stats.max_violation) <= 1e-5
