"""What a learning curve is worth: numbers per seed, on numpy alone (paper: app:metrics).

Every function takes a :class:`Curve` and a budget N in environment steps, and looks at no
checkpoint later than the first one at or after N.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy.typing import ArrayLike

from gcr_rl.errors import InputError

SMOOTHING_WINDOW = 5
"""Checkpoints in the trailing mean that AUC@N and steps-to-threshold are read from."""

FINAL_FRACTION = 0.2
"""Share of the checkpoints, counted from the end, whose mean is the final return."""


@dataclass(frozen=True)
class Curve:
    """Evaluation returns R[i, t] of seed ``seeds[i]`` at environment step ``steps[t]``."""

    steps: Int[np.ndarray, " checkpoints"]
    returns: Float[np.ndarray, "seeds checkpoints"]
    seeds: tuple[int, ...]

    def __post_init__(self) -> None:
        """Refuse what would give a number without meaning: ragged, unordered, not finite."""
        steps, returns = _as_steps(self.steps), _finite("returns", self.returns)
        if returns.ndim != 2 or returns.shape[1] != steps.size or returns.shape[0] == 0:
            accepted = f"shape (seeds, checkpoints) with {steps.size} checkpoints, a seed at least"
            raise InputError("returns", returns.shape, accepted)
        if len(self.seeds) != returns.shape[0] or len(set(self.seeds)) != len(self.seeds):
            raise InputError(
                "seeds", self.seeds, f"{returns.shape[0]} different seeds, one for each row"
            )
        # Frozen dataclass: the checked copies replace whatever sequence was handed in.
        object.__setattr__(self, "steps", steps)
        object.__setattr__(self, "returns", returns)
        object.__setattr__(self, "seeds", tuple(int(seed) for seed in self.seeds))


class StepsToThreshold(NamedTuple):
    """Steps per seed, N where the threshold was not reached, and their median.

    ``median_censored`` says that the median rests on a seed that never got there: it is then
    a lower bound on the median, not its value.
    """

    steps: Float[np.ndarray, " seeds"]
    reached: Bool[np.ndarray, " seeds"]
    median: float
    median_censored: bool


class FiveNumbers(NamedTuple):
    """Minimum, quartiles and maximum: what a box plot draws."""

    least: float
    lower: float
    median: float
    upper: float
    most: float


def smooth(
    returns: Float[np.ndarray, "*seeds checkpoints"], window: int = SMOOTHING_WINDOW
) -> Float[np.ndarray, "*seeds checkpoints"]:
    """Trailing mean R̃[t] = mean(R[max(0, t−window+1) .. t]).

    The first window−1 entries are means of the checkpoints that exist; padding with zeros
    would pull them toward zero. Trailing and not centred, so that R̃ up to N does not change
    when the run goes on beyond N.
    """
    window = _positive_int("window", window)
    values = _finite("returns", returns)
    if values.ndim == 0 or values.shape[-1] == 0:
        raise InputError("returns", values.shape, "at least one checkpoint")
    # Direct sums, not differences of one running sum, which would lose digits.
    first = [max(0, t - window + 1) for t in range(values.shape[-1])]
    means = [values[..., start : t + 1].mean(axis=-1) for t, start in enumerate(first)]
    return np.stack(means, axis=-1)


def auc(curve: Curve, budget: int, window: int = SMOOTHING_WINDOW) -> Float[np.ndarray, " seeds"]:
    """AUC@N = ∫₀ᴺ R̃(τ) dτ per seed, by trapezoids; R̃(N) is interpolated linearly.

    The curve must have its first checkpoint at step 0 and its last at N or later: nothing is
    extrapolated.
    """
    budget = _covered_budget(curve, budget)
    if curve.steps[0] != 0:
        raise InputError("steps", int(curve.steps[0]), "a first checkpoint at step 0")
    smoothed = smooth(curve.returns, window)
    at_budget = np.array([np.interp(budget, curve.steps, row) for row in smoothed])
    before = curve.steps < budget
    steps = np.append(curve.steps[before], budget)
    values = np.concatenate([smoothed[:, before], at_budget[:, None]], axis=1)
    return np.trapezoid(values, steps, axis=1)


def mean_training_return(
    curve: Curve, budget: int, window: int = SMOOTHING_WINDOW
) -> Float[np.ndarray, " seeds"]:
    """AUC@N / N per seed: the mean return over training, in the units of a return."""
    return auc(curve, budget, window) / budget


def steps_to_threshold(
    curve: Curve, threshold: float, budget: int, window: int = SMOOTHING_WINDOW
) -> StepsToThreshold:
    """min {τ ≤ N a checkpoint : R̃(τ) ≥ threshold} per seed, N where there is none."""
    threshold = _finite_number("threshold", threshold)
    budget = _covered_budget(curve, budget)
    within = curve.steps <= budget
    above = np.asarray(smooth(curve.returns, window)[:, within] >= threshold)
    reached = np.asarray(above.any(axis=1))
    first = curve.steps[within][above.argmax(axis=1)]
    steps = np.where(reached, first, budget).astype(float)
    # Seeds that reached it sort before those that did not, also when both stand at N.
    order = np.lexsort((~reached, steps))
    upper_middle = order[steps.size // 2]
    return StepsToThreshold(
        steps, reached, float(np.median(steps)), not bool(reached[upper_middle])
    )


def final_return(
    curve: Curve, budget: int, fraction: float = FINAL_FRACTION
) -> Float[np.ndarray, " seeds"]:
    """Mean of the unsmoothed returns over the last ``fraction`` of the checkpoints up to N.

    ⌊fraction · checkpoints⌋ of them, one at least.
    """
    if not 0 < fraction <= 1:
        raise InputError("fraction", fraction, "a number in (0, 1]")
    budget = _covered_budget(curve, budget)
    returns = curve.returns[:, curve.steps <= budget]
    if returns.shape[1] == 0:
        raise InputError("budget", budget, f"at least the first checkpoint, {curve.steps[0]}")
    # The small term keeps 0.3 · 10 at 3 where floating point says 2.999….
    count = max(1, int(fraction * returns.shape[1] + 1e-9))
    return returns[:, -count:].mean(axis=1)


def normalised_score(
    returns: ArrayLike, random_return: float, optimal_return: float
) -> Float[np.ndarray, "*shape"]:
    """(R − random) / (optimal − random): 0 is random play, 1 is the optimum."""
    low = _finite_number("random_return", random_return)
    high = _finite_number("optimal_return", optimal_return)
    if high <= low:
        raise InputError("optimal_return", high, f"more than the random return, {low}")
    return (_finite("returns", returns) - low) / (high - low)


def across_seed_std(scores: ArrayLike) -> float:
    """Standard deviation over seeds with n−1 in the denominator; NaN for a single seed."""
    values = _scores(scores)
    return float(values.std(ddof=1)) if values.size > 1 else float("nan")


def worst_seed(scores: ArrayLike) -> float:
    """min over seeds (app:metrics, M3)."""
    return float(_scores(scores).min())


def five_numbers(scores: ArrayLike) -> FiveNumbers:
    """min, Q₁, Q₂, Q₃, max over seeds; Q_k is the order statistic at k(n−1)/4, interpolated."""
    return FiveNumbers(*np.quantile(_scores(scores), [0.0, 0.25, 0.5, 0.75, 1.0]).tolist())


def window_value_variance(
    values: Float[np.ndarray, "iterates states"], window: int
) -> Float[np.ndarray, " windows"]:
    """Var over iterates t..t+window−1 of V_t(s), mean over the states s, for every t.

    The variance of the theorem thm:stability. ``values[t, s]`` are the values of one fixed
    set of states at consecutive iterates; the denominator is window−1.
    """
    array = _finite("values", values)
    if array.ndim != 2 or array.shape[1] == 0:
        raise InputError("values", array.shape, "shape (iterates, states), one state at least")
    window = _positive_int("window", window)
    if not 2 <= window <= array.shape[0]:
        raise InputError("window", window, f"between 2 and the {array.shape[0]} iterates")
    windows = np.lib.stride_tricks.sliding_window_view(array, window, axis=0)
    return windows.var(axis=-1, ddof=1).mean(axis=1)


def bellman_residual(q: ArrayLike, target: ArrayLike) -> float:
    """mean (Q(s,a) − y(s,a))² over a held-out batch (eq. bell-resid).

    ``target`` holds y = r + γ·(1 − terminated)·max_b Q(s',b) of the *same* Q. Where
    transitions are random, a sampled y adds γ²·Var[max_b Q(s',b)] + Var[r] to the exact
    residual; finite tasks have the exact one.
    """
    values, targets = _finite("q", q), _finite("target", target)
    if values.shape != targets.shape or values.size == 0:
        raise InputError(
            "target", targets.shape, f"the shape of q, {values.shape}, and at least one entry"
        )
    return float(np.mean((values - targets) ** 2))


def _as_steps(steps: ArrayLike) -> Int[np.ndarray, " checkpoints"]:
    array = np.asarray(steps)
    integral = array.ndim == 1 and array.size > 0 and np.issubdtype(array.dtype, np.integer)
    if not integral or array[0] < 0 or (np.diff(array) <= 0).any():
        raise InputError("steps", steps, "strictly increasing whole numbers from 0 on, not empty")
    return array


def _finite(field: str, values: ArrayLike) -> Float[np.ndarray, "*shape"]:
    try:
        array = np.array(values, dtype=float)
    except (TypeError, ValueError) as error:
        raise InputError(field, values, "an array of numbers") from error
    if not np.isfinite(array).all():
        place = tuple(int(i) for i in np.argwhere(~np.isfinite(array))[0])
        raise InputError(f"{field}{list(place)}", float(array[place]), "finite numbers")
    return array


def _finite_number(field: str, value: float) -> float:
    array = _finite(field, value)
    if array.ndim != 0:
        raise InputError(field, value, "one finite number")
    return float(array)


def _scores(scores: ArrayLike) -> Float[np.ndarray, " seeds"]:
    values = _finite("scores", scores)
    if values.ndim != 1 or values.size == 0:
        raise InputError("scores", values.shape, "one number per seed, a seed at least")
    return values


def _positive_int(field: str, value: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
        raise InputError(field, value, "a whole number of at least 1")
    return int(value)


def _covered_budget(curve: Curve, budget: int) -> int:
    budget = _positive_int("budget", budget)
    if budget > curve.steps[-1]:
        raise InputError("budget", budget, f"at most the last checkpoint, {curve.steps[-1]}")
    return budget
