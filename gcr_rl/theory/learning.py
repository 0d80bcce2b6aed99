"""What structure buys when it is right: errors, rates and stability of simple estimators."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gcr_rl.envs import probes
from gcr_rl.envs.finite import optimal_q
from gcr_rl.order import Poset, project
from gcr_rl.theory.projecting import comparisons, project_rows
from gcr_rl.theory.row import Row
from gcr_rl.theory.symmetry import DISCOUNT, Automorphisms, backup

Floats = NDArray[np.float64]


def project_all(draws: Floats, pairs: list[tuple[int, int]], operator: Any = project) -> Floats:
    """The projection of every row of ``draws`` onto V[upper] >= V[lower] for all pairs."""
    upper, lower = ([pair[i] for pair in pairs] for i in range(2))
    return project_rows(draws, [comparisons(upper, lower)], operator)


def symmetry_speedup(quick: bool, average: Callable[[Floats], Floats] | None = None) -> Row:
    """Mean squared error of noisy Q tables before / after averaging over D4, on pairs (s, a)
    whose orbit has all |G| = 8 members: so many samples fewer are needed for the same error."""
    group = Automorphisms(probes.known_d4())
    average = group.average if average is None else average
    best = np.asarray(optimal_q(group.mdp, DISCOUNT), np.float64)
    orbit = np.array([len(set(column)) for column in group.state.T])
    draw, before, after = np.random.default_rng(0), 0.0, 0.0
    for _ in range(200 if quick else 2000):
        noisy = best + draw.normal(size=best.shape)
        before += np.mean((noisy - best)[orbit == 8] ** 2)
        after += np.mean((average(noisy) - best)[orbit == 8] ** 2)
    what = "error before / after averaging over |G| = 8 (ρ = 1)"
    return Row("oracle-symmetry", "thm:oracle-speedups", what, "equal", 8.0, before / after, 0.8)


def order_speedup(quick: bool, operator: Any = project) -> Row:
    """Degrees of freedom Σ E(x̂ − v)²/σ² of the oracle projection at constant truth, for W = 2
    chains of 8: W · H_8 (H the harmonic number), where the paper has W. Largest gain there is:
    strictly increasing values gain less (docs/theory.md)."""
    chains, length = 2, 8
    pairs = [(c * length + i, c * length + i + 1) for c in range(chains) for i in range(length - 1)]
    width = Poset.from_edges(chains * length, pairs).width()
    draws = np.random.default_rng(1).normal(size=(400 if quick else 2000, chains * length))
    freedom = np.mean(np.sum(project_all(draws, pairs, operator) ** 2, axis=1))
    predicted = width * sum(1.0 / k for k in range(1, length + 1))
    what = "degrees of freedom on W = 2 chains of 8 at constant truth, against W·H_8"
    return Row("oracle-order", "thm:oracle-speedups", what, "equal", predicted, float(freedom), 0.6)


def order_never_hurts(quick: bool, operator: Any = project) -> Row:
    """Largest error after / before projecting onto the true order of Probe-Order, any draw."""
    environment = probes.known_order()
    pairs = environment.planted_order(environment.default_params)
    truth = values_of(environment)
    draws = truth + np.random.default_rng(2).normal(size=(200 if quick else 1000, len(truth)))
    moved = project_all(draws, pairs, operator)
    ratio = np.sum((moved - truth) ** 2, axis=1) / np.sum((draws - truth) ** 2, axis=1)
    what = "largest squared error after / before the true order, single draws"
    return Row("order-never-hurts", "thm:var-bias", what, "at most", 1.0, float(ratio.max()), 1e-4)


def values_of(environment: Any) -> Floats:
    """V* of a finite environment."""
    mdp = environment.finite_mdp(environment.default_params)
    return np.asarray(optimal_q(mdp, DISCOUNT), np.float64).max(axis=1)


def residuals(environment: Any, values: Floats) -> Floats:
    """(V − max_a(r + γ V'))² averaged over the states, for rows of values."""
    mdp = environment.finite_mdp(environment.default_params)
    return np.array([np.mean((v - backup(mdp, v[:, None]).max(axis=1)) ** 2) for v in values])


def residual_decrease(quick: bool, operator: Any = project) -> Row:
    """Mean Bellman residual after / before projecting noisy values onto the true order."""
    environment = probes.known_order()
    pairs = environment.planted_order(environment.default_params)
    truth = values_of(environment)
    draws = truth + np.random.default_rng(3).normal(size=(100 if quick else 500, len(truth)))
    moved = project_all(draws, pairs, operator)
    ratio = residuals(environment, moved).mean() / residuals(environment, draws).mean()
    what = "mean Bellman residual after / before the true order (noise 1)"
    return Row("residual-decrease", "thm:bellman", what, "at most", 1.0, float(ratio), 0.0)


def sampled_q(mdp: Any, count: int, draw: np.random.Generator) -> Floats:
    """The optimum of the MDP that ``count`` samples of every (s, a) show, with reward noise 1."""
    chance = np.asarray(mdp.probabilities, np.float64)
    chance = chance / chance.sum(axis=-1, keepdims=True)
    noise = draw.normal(size=chance.shape[:2])[..., None] / np.sqrt(count)
    seen = mdp._replace(
        probabilities=draw.multinomial(count, chance) / count,
        rewards=np.asarray(mdp.rewards) + noise,
    )
    q = np.zeros(chance.shape[:2])
    for _ in range(80):
        q = backup(seen, q)
    return q


def structural_consistency(quick: bool, estimate: Any = sampled_q) -> Row:
    """Slope of log(equivariance residual + order violation) against log N, with N samples per
    pair: the residual on Probe-Cycle (its turns), the violation on Probe-Order."""
    group = Automorphisms(probes.injected_cycle())
    environment = probes.known_order()
    pairs = np.array(environment.planted_order(environment.default_params))
    lattice = environment.finite_mdp(environment.default_params)
    draw = np.random.default_rng(4)
    sizes = 4 ** np.arange(2, 7)
    errors = []
    for count in sizes:
        total = []
        for _ in range(10 if quick else 40):
            q = estimate(group.mdp, int(count), draw)
            v = estimate(lattice, int(count), draw).max(axis=1)
            gap = max(np.abs(group.act(q, g) - q).max() for g in range(len(group.state)))
            total.append(gap + np.mean(np.maximum(v[pairs[:, 1]] - v[pairs[:, 0]], 0.0)))
        errors.append(np.mean(total))
    slope = float(np.polyfit(np.log(sizes), np.log(errors), 1)[0])
    what = "slope of log(residual + violation) against log N"
    return Row("structural-consistency", "thm:joint-consistency", what, "equal", -0.5, slope, 0.1)


def window_variance(coverage: float, penalty: float, steps: int, rate: float = 0.1) -> float:
    """Steady-state variance of V <- V − η(V − V* + λ∇G) + ξ on a chain of 16 equal values, with
    the first share ``coverage`` of its edges; G = ½ Σ [V_l − V_u]₊², ξ with deviation 0.1."""
    nodes = 16
    kept = round(coverage * (nodes - 1))
    draw = np.random.default_rng(5)
    v, total = np.zeros((64, nodes)), 0.0
    for t in range(steps):
        short = np.maximum(v[:, 1 : kept + 1] - v[:, :kept], 0.0)
        slope = v.copy()
        slope[:, :kept] -= penalty * short
        slope[:, 1 : kept + 1] += penalty * short
        v = v - rate * slope + 0.1 * draw.normal(size=v.shape)
        if t >= steps // 4:
            total += float(np.mean(v.var(axis=0)))
    return total / (steps - steps // 4)


def stability(quick: bool, variance: Any = window_variance) -> Row:
    """Largest ratio of variances of neighbours on a grid of coverage x λ, more over less."""
    steps = 200 if quick else 600
    grid = np.array(
        [[variance(c, p, steps) for p in (0.0, 1.0, 2.0, 4.0)] for c in (0.25, 0.5, 0.75, 1.0)]
    )
    by_penalty = (grid[:, 1:] / grid[:, :-1]).max()
    by_coverage = (grid[1:, 1:] / grid[:-1, 1:]).max()
    what = "largest variance ratio, more against less coverage or λ (η λ small)"
    measured = float(max(by_penalty, by_coverage))
    return Row("stability", "thm:stability", what, "at most", 1.0, measured, 0.0)


def bias_variance(quick: bool, operator: Any = project) -> Row:
    """|E(V̂ − V*)² − Var − bias²| / E(V̂ − V*)² with a wrong order imposed, so that both terms
    are there, and the variance must still not exceed the raw one."""
    environment = probes.known_order()
    truth = values_of(environment)
    wrong = [(15, 0), (0, 5), (3, 12), (12, 7)]
    draws = truth + np.random.default_rng(6).normal(size=(200 if quick else 1000, len(truth)))
    moved = project_all(draws, wrong, operator)
    error = np.mean(np.sum((moved - truth) ** 2, axis=1))
    spread = np.sum(moved.var(axis=0))
    bias = np.sum((moved.mean(axis=0) - truth) ** 2)
    growth = max(0.0, spread / np.sum(draws.var(axis=0)) - 1.0)
    what = "|error − variance − bias²| / error, plus any growth of the variance"
    measured = float(abs(error - spread - bias) / error + growth)
    return Row("bias-variance", "thm:bv", what, "at most", 0.0, measured, 1e-6)


def structural_bias(quick: bool, operator: Any = project) -> Row:
    """E‖P X − x*‖² − E‖X − x*‖² over ‖P x* − x*‖², for wrong orders. (The paper's proof takes
    the cross term with the wrong sign; the bound itself is true: docs/theory.md.)"""
    draw, worst = np.random.default_rng(7), -np.inf
    for _ in range(2 if quick else 8):
        truth = draw.normal(size=16)
        first = draw.permutation(16)
        pairs = [(int(a), int(b)) for a, b in zip(first[:-1:2], first[1::2], strict=True)]
        draws = truth + 0.5 * draw.normal(size=(64, 16))
        moved = project_all(np.concatenate([draws, truth[None]]), pairs, operator)
        mismatch = np.sum((moved[-1] - truth) ** 2)
        grown = np.sum((moved[:-1] - truth) ** 2, axis=1) - np.sum((draws - truth) ** 2, axis=1)
        worst = max(worst, float(grown.mean() / mismatch))
    what = "growth of the squared error over ‖P x* − x*‖², wrong orders"
    return Row("structural-bias", "lem:bias-up", what, "at most", 1.0, worst, 1e-3)
