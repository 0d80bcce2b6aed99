"""The batched projection against its reference and against other people's solvers."""

import jax
import numpy as np
import pytest
from jax import enable_x64

from gcr_rl.order.isotonic import Result, project
from gcr_rl.order.projection import reference_project
from gcr_rl.types import Comparisons

NODES, EDGES = 64, 200
KINDS = ["plain", "margins", "discounts", "both"]


def random_problem(rng, kind, dtype=np.float64):
    """A DAG with 64 nodes and 200 distinct edges; values that ignore the order."""
    rank = rng.permutation(NODES)
    first, second = np.triu_indices(NODES, 1)
    pick = rng.choice(len(first), EDGES, replace=False)
    margin = rng.uniform(0, 0.2, EDGES) if kind in ("margins", "both") else np.zeros(EDGES)
    discount = rng.uniform(0.5, 1, EDGES) if kind in ("discounts", "both") else np.ones(EDGES)
    order = Comparisons(
        rank[first[pick]].astype(np.int32),
        rank[second[pick]].astype(np.int32),
        np.ones(EDGES, dtype),
        margin.astype(dtype),
        discount.astype(dtype),
        np.ones(EDGES, bool),
    )
    return rng.normal(size=NODES).astype(dtype), order


def batch_of(problems):
    return jax.tree.map(lambda *leaf: np.stack(leaf), *problems)


batched = jax.jit(jax.vmap(project))


@pytest.mark.parametrize("wide", [True, False], ids=["float64", "float32"])
def test_batch_agrees_with_the_reference(wide):
    """The reference solves the same, rounded, numbers."""
    rng = np.random.default_rng(0)
    dtype, atol = (np.float64, 1e-6) if wide else (np.float32, 1e-4)
    problems = [random_problem(rng, KINDS[i % 4], dtype) for i in range(8)]
    with enable_x64(wide):
        found = batched(*batch_of(problems))
        assert found.values.dtype == dtype
        assert (np.asarray(found.result) == Result.SUCCESS).all()
        assert float(np.max(found.stats.max_violation)) <= 1e-5
    for (values, order), x in zip(problems, found.values, strict=True):
        np.testing.assert_allclose(x, reference_project(values, order).values, atol=atol)


def quadratic_optimum(daqp, values, order):
    rows = np.zeros((EDGES, NODES))
    rows[np.arange(EDGES), order.upper] = 1.0
    rows[np.arange(EDGES), order.lower] = -order.discount.astype(np.float64)
    solution, _, flag, _ = daqp.solve(
        np.eye(NODES),
        -values.astype(np.float64),
        rows,
        np.full(EDGES, 1e30),
        order.margin.astype(np.float64),
        np.zeros(EDGES, np.int32),
        primal_tol=1e-11,
        dual_tol=1e-11,
    )
    assert flag == 1
    return solution


@pytest.mark.slow
@pytest.mark.foreign
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("wide", [True, False], ids=["float64", "float32"])
def test_thousand_dags_against_a_quadratic_solver(wide, kind):
    daqp = pytest.importorskip("daqp", reason="the bench extra is not installed")
    rng = np.random.default_rng(KINDS.index(kind))
    dtype, atol = (np.float64, 1e-6) if wide else (np.float32, 1e-4)
    worst_error = worst_violation = 0.0
    for _ in range(25):
        problems = [random_problem(rng, kind, dtype) for _ in range(40)]
        with enable_x64(wide):
            found = batched(*batch_of(problems))
        assert (np.asarray(found.result) == Result.SUCCESS).all()
        worst_violation = max(worst_violation, float(np.max(found.stats.max_violation)))
        for (values, order), x in zip(problems, found.values, strict=True):
            exact = quadratic_optimum(daqp, values, order)
            worst_error = max(worst_error, np.abs(np.asarray(x, np.float64) - exact).max())
    print(f"{kind} {dtype.__name__}: error {worst_error:.1e}, violation {worst_violation:.1e}")
    assert worst_error <= atol
    assert worst_violation <= 1e-5


@pytest.mark.slow
@pytest.mark.parametrize("wide", [True, False], ids=["float64", "float32"])
def test_thousands_of_small_graphs_with_everything(wide):
    """Weights, frozen nodes, bounds, cycles, contradictions: values and result codes."""
    rng = np.random.default_rng(5)
    nodes, edges, count = 10, 24, 2000
    dtype = np.float64 if wide else np.float32
    values = rng.normal(size=(count, nodes)).astype(dtype)
    weight = np.exp(rng.normal(size=(count, nodes))).astype(dtype)
    frozen = rng.random((count, nodes)) < 0.15
    zero = rng.random((count, edges)) < 0.2
    order = Comparisons(
        rng.integers(0, nodes, (count, edges)).astype(np.int32),
        rng.integers(0, nodes, (count, edges)).astype(np.int32),
        np.ones((count, edges), dtype),
        rng.uniform(-1.0, 0.2, (count, edges)).astype(dtype),
        np.where(zero, 0.0, rng.uniform(0.3, 1.0, (count, edges))).astype(dtype),
        rng.random((count, edges)) < 0.8,
    )
    with enable_x64(wide):
        found = jax.jit(jax.vmap(lambda v, o, w, f: project(v, o, node_weight=w, frozen=f)))(
            values, order, weight, frozen
        )
    feasible = np.zeros(count, bool)
    result = np.asarray(found.result)
    for i in range(count):
        one = jax.tree.map(lambda leaf, i=i: leaf[i], order)
        expected = reference_project(values[i], one, node_weight=weight[i], frozen=frozen[i])
        feasible[i] = expected.feasible
        if expected.feasible:
            error = np.abs(np.asarray(found.values[i], np.float64) - expected.values).max()
            assert error <= (1e-6 if wide else 1e-3), i
    np.testing.assert_array_equal(result == Result.SUCCESS, feasible)
    # In float32 a contradiction of a part in a thousand may be too shallow to certify.
    unsure = np.sum(result == Result.NOT_CONVERGED)
    assert unsure <= (0 if wide else 0.005 * count)
    assert 0 < feasible.sum() < count
