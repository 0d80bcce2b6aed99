"""Guarantees of the order room, on random graphs with a fixed seed."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from gcr_rl.order import greedy_dag, project
from gcr_rl.theory.projecting import EDGES, NODES, comparisons, project_rows
from gcr_rl.theory.row import Row

MARGIN = 0.1
Floats = NDArray[np.float64]
Project = Callable[..., Any]


def graphs(count: int, seed: int, dag: Any = greedy_dag) -> tuple[Any, Any, Any, Any]:
    """Random candidate edges of ``count`` graphs and which of them the greedy step accepts."""
    draw = np.random.default_rng(seed)
    upper, lower = (draw.integers(0, NODES, (count, EDGES)).astype(np.int32) for _ in range(2))
    weight = draw.random((count, EDGES)).astype(np.float32)
    mask = upper != lower
    accept = jax.vmap(lambda u, low, w, m: dag(u, low, w, m, NODES))
    accepted = accept(*(jnp.asarray(part) for part in (upper, lower, weight, mask)))
    return upper, lower, mask, np.asarray(accepted)


def reachable(upper: Any, lower: Any, kept: Any) -> NDArray[np.bool_]:
    """[u, v]: a path of at least one edge runs from u to v."""
    paths = np.zeros((NODES, NODES), bool)
    paths[upper[kept], lower[kept]] = True
    for middle in range(NODES):  # Warshall
        paths |= paths[:, middle, None] & paths[None, middle, :]
    return paths


def acyclic(quick: bool, dag: Any = greedy_dag) -> Row:
    """Share of greedy graphs without a directed cycle."""
    upper, lower, _, kept = graphs(20 if quick else 200, 0, dag)
    share = np.mean(
        [~reachable(*part).diagonal().any() for part in zip(upper, lower, kept, strict=True)]
    )
    what = "share of greedy graphs without a cycle"
    return Row("greedy-acyclic", "thm:dagify", what, "equal", 1.0, float(share), 0.0)


def maximal(quick: bool, dag: Any = greedy_dag) -> Row:
    """Share of refused candidates (u, v) for which v already reaches u."""
    upper, lower, mask, kept = graphs(20 if quick else 200, 1, dag)
    closes: list[bool] = []
    for u, low, candidate, part in zip(upper, lower, mask, kept, strict=True):
        refused = candidate & ~part
        closes += reachable(u, low, part)[low[refused], u[refused]].tolist()
    what = "share of refused edges that would close a cycle"
    return Row("greedy-maximal", "thm:dagify", what, "equal", 1.0, float(np.mean(closes)), 0.0)


def minimise_penalty(values: Floats, upper: Any, lower: Any, weight: float) -> Floats:
    """argmin 1/B ‖x − v‖² + μ/|E| Σ [δ + x_l − x_u]₊² (eq. L-iso), by Newton with halving."""
    count, edges = len(values), len(upper)
    matrix = np.zeros((edges, count))
    np.add.at(matrix, (np.arange(edges), lower), 1.0)
    np.add.at(matrix, (np.arange(edges), upper), -1.0)

    def objective(x: Floats) -> float:
        short = np.maximum(MARGIN + matrix @ x, 0.0)
        return float(np.mean((x - values) ** 2) + weight * np.mean(short**2))

    x = values.copy()
    for _ in range(200):
        short = MARGIN + matrix @ x
        active = matrix * (short > 0)[:, None]
        slope = 2 / count * (x - values) + 2 * weight / edges * active.T @ np.maximum(short, 0)
        if np.abs(slope).max() < 1e-13 * (1 + weight):
            break
        step = np.linalg.solve(
            2 / count * np.eye(count) + 2 * weight / edges * active.T @ active, slope
        )
        length = 1.0
        while objective(x - length * step) > objective(x) and length > 1e-8:
            length /= 2
        x = x - length * step
    return x


def _penalty_problems(quick: bool) -> list[tuple[Floats, Any, Any]]:
    count = 3 if quick else 10
    upper, lower, _, kept = graphs(count, 2)
    values = np.random.default_rng(3).normal(size=(count, NODES))
    return [(values[i], upper[i][kept[i]], lower[i][kept[i]]) for i in range(count)]


def _projected(problems: list[tuple[Floats, Any, Any]], operator: Project) -> Floats:
    """The operator's projection of every problem."""
    values = np.stack([problem[0] for problem in problems])
    orders = [comparisons(upper, lower, margin=MARGIN) for _, upper, lower in problems]
    return project_rows(values, orders, operator)


def penalty_violation(quick: bool, minimise: Any = minimise_penalty) -> Row:
    """max over μ and graphs of μ · G(V̂_μ) / F(V̂*), G the mean squared violation."""
    worst = 0.0
    problems = _penalty_problems(quick)
    for exact, (values, upper, lower) in zip(_projected(problems, project), problems, strict=True):
        limit = np.mean((exact - values) ** 2)
        for weight in (1.0, 10.0, 100.0, 1e4):
            x = minimise(values, upper, lower, weight)
            short = np.maximum(MARGIN + x[lower] - x[upper], 0.0)
            worst = max(worst, float(weight * np.mean(short**2) / limit))
    what = "largest μ · mean squared violation / F*"
    return Row("penalty-violation", "lem:violate-bound", what, "at most", 1.0, worst, 1e-3)


def penalty_limit(quick: bool, operator: Project = project) -> Row:
    """‖V̂_μ − projection‖_∞ at μ = 1e6."""
    worst, problems = 0.0, _penalty_problems(quick)
    for exact, (values, upper, lower) in zip(_projected(problems, operator), problems, strict=True):
        worst = max(worst, np.abs(minimise_penalty(values, upper, lower, 1e6) - exact).max())
    what = "distance of the minimiser at μ = 1e6 from the projection"
    return Row("penalty-limit", "thm:penalty", what, "at most", 0.0, float(worst), 1e-3)


def path_accumulation(quick: bool, operator: Project = project) -> Row:
    """min over pairs of V(u) − V(v) − δ · (longest path from u to v) after the projection."""
    least, problems = np.inf, _penalty_problems(quick)
    for x, (_, upper, lower) in zip(_projected(problems, operator), problems, strict=True):
        longest = np.full((NODES, NODES), -np.inf)
        longest[upper, lower] = 1.0
        for _ in range(NODES):
            longest = np.maximum(longest, (longest[:, :, None] + longest[None]).max(axis=1))
        u, v = np.nonzero(longest > 0)
        least = min(least, float(np.min(x[u] - x[v] - MARGIN * longest[u, v])))
    what = "least V(u) − V(v) − δ · path length"
    return Row("path-accumulation", "lem:path-accumulate", what, "at least", 0.0, least, 1e-5)


def _projected_pairs(quick: bool, operator: Project, noise: int) -> tuple[Floats, Floats]:
    """(values, projections) [graphs, draws, nodes]; draws share their graph."""
    count = 4 if quick else 16
    upper, lower, _, kept = graphs(count, 4)
    centre = np.random.default_rng(5).normal(size=(count, 1, NODES))
    values = centre + np.random.default_rng(6).normal(size=(count, noise, NODES))
    orders = [
        comparisons(upper[i], lower[i], kept[i], MARGIN) for i in range(count) for _ in range(noise)
    ]
    moved = project_rows(values.reshape(-1, NODES), orders, operator)
    return values, moved.reshape(values.shape)


def nonexpansive(quick: bool, operator: Project = project) -> Row:
    """Largest ‖P x − P y‖ / ‖x − y‖ over pairs of draws."""
    values, moved = _projected_pairs(quick, operator, 16)
    before = np.linalg.norm(values[:, 1:] - values[:, :-1], axis=-1)
    after = np.linalg.norm(moved[:, 1:] - moved[:, :-1], axis=-1)
    what = "largest ‖Px − Py‖ / ‖x − y‖"
    worst = float((after / before).max())
    return Row("projection-nonexpansive", "lem:proj", what, "at most", 1.0, worst, 1e-4)


def variance(quick: bool, operator: Project = project) -> Row:
    """Largest ratio of total variances E‖Px − E Px‖² / E‖x − E x‖² over graphs."""
    values, moved = _projected_pairs(quick, operator, 16)
    ratio = moved.var(axis=1).sum(axis=-1) / values.var(axis=1).sum(axis=-1)
    what = "largest total variance after / before"
    return Row(
        "projection-variance", "lem:var-noninc", what, "at most", 1.0, float(ratio.max()), 1e-4
    )


def feasible(quick: bool, dag: Any = greedy_dag) -> Row:
    """Largest violation left by the projection onto greedy graphs with a margin."""
    count = 4 if quick else 16
    upper, lower, _, kept = graphs(count, 7, dag)
    values = np.random.default_rng(8).normal(size=(count, NODES))
    orders = [comparisons(upper[i], lower[i], kept[i], MARGIN) for i in range(count)]
    moved = project_rows(values, orders, project)
    rows = np.arange(count)[:, None]
    short = np.where(kept, MARGIN + moved[rows, lower] - moved[rows, upper], 0.0)
    what = "largest violation of the projection onto a greedy graph"
    worst = float(short.max())
    return Row("order-feasible", "thm:feasible-nonempty", what, "at most", 0.0, worst, 1e-5)
