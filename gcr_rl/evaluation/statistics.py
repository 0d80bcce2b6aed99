"""What the seeds allow one to say: intervals and tests, on numpy and scipy.

Randomness comes in by ``seed`` alone, which every function that resamples demands; the same
seed gives the same bits.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import ArrayLike
from scipy import stats

from gcr_rl.errors import InputError

CONFIDENCE = 0.95
RESAMPLES = 10_000
EXACT_PAIRS = 16
"""Up to this many pairs all 2ⁿ sign patterns are enumerated."""

_COLUMNS_AT_ONCE = 256

Alternative = Literal["two-sided", "greater", "less"]
Scores = Mapping[int, float]
"""One number per seed, keyed by the seed: what is paired is visible."""


class Interval(NamedTuple):
    """An estimate and its confidence interval; the ends are NaN where n = 1."""

    estimate: float
    low: float
    high: float


class Band(NamedTuple):
    """Estimates with pointwise intervals, one per column; the ends are NaN where n = 1."""

    estimate: Float[np.ndarray, " columns"]
    low: Float[np.ndarray, " columns"]
    high: Float[np.ndarray, " columns"]


class PairedTest(NamedTuple):
    """mean(first − second) over pairs and the p value of "the signs are a coin's"."""

    difference: float
    p_value: float
    pairs: int
    exact: bool


class NonInferiority(NamedTuple):
    """Verdict on H₀: mean(candidate − reference) ≤ −margin."""

    difference: float
    lower_bound: float
    p_value: float
    margin: float
    non_inferior: bool


def mean_interval(
    values: ArrayLike, *, seed: int, confidence: float = CONFIDENCE, resamples: int = RESAMPLES
) -> Interval:
    """Mean over seeds with a bootstrap interval: expanded percentile (see ``mean_band``)."""
    array = _vector("values", values)
    band = mean_band(array[:, None], seed=seed, confidence=confidence, resamples=resamples)
    return Interval(float(band.estimate[0]), float(band.low[0]), float(band.high[0]))


def mean_band(
    values: ArrayLike, *, seed: int, confidence: float = CONFIDENCE, resamples: int = RESAMPLES
) -> Band:
    """Column means of ``values[n, columns]`` with pointwise bootstrap intervals.

    The interval is the percentile one at the level α' that makes it as wide as Student's t
    would be on normal data: Φ⁻¹(α'/2) = √(n/(n−1)) · t⁻¹_{n−1}(α/2) (Hesterberg 2014,
    arXiv:1411.5279). The plain percentile interval is too narrow for the handful of seeds
    that reinforcement learning affords. Whole rows are resampled, so that a seed stays a seed.
    """
    array = _matrix("values", values)
    _check_level(confidence)
    count = array.shape[0]
    estimate = array.mean(axis=0)
    if count == 1:
        unknown = np.full_like(estimate, np.nan)
        return Band(estimate, unknown, unknown)
    tail = _expanded_tail((1 - confidence) / 2, count)
    weights = _resampling_weights(count, seed, resamples)
    # In blocks: all resampled columns at once would not fit for a long log.
    blocks = np.array_split(array, -(-array.shape[1] // _COLUMNS_AT_ONCE), axis=1)
    ends = [np.quantile(weights @ block, [tail, 1 - tail], axis=0) for block in blocks]
    low, high = np.concatenate(ends, axis=1)
    return Band(estimate, low, high)


def seed_range(values: Float[np.ndarray, "seeds columns"]) -> Band:
    """Mean, minimum and maximum over the seeds that have a value (not NaN), column by column.

    No confidence is claimed: the ends are those of the seeds at hand. Every column needs one
    value at least.
    """
    array = np.asarray(values, dtype=float)
    if array.ndim != 2 or array.size == 0 or np.isinf(array).any():
        raise InputError("values", array.shape, "finite numbers or NaN, [seeds, columns]")
    if np.isnan(array).all(axis=0).any():
        raise InputError("values", "a column of NaN alone", "a value in every column")
    return Band(np.nanmean(array, axis=0), np.nanmin(array, axis=0), np.nanmax(array, axis=0))


def iqm(scores: ArrayLike) -> float:
    """Mean of the middle half of all scores; ⌊n/4⌋ are cut at either end."""
    array = _finite("scores", scores)
    if array.size == 0:
        raise InputError("scores", array.shape, "at least one score")
    return float(stats.trim_mean(array, 0.25, axis=None))


def iqm_interval(
    scores: ArrayLike,
    *,
    seed: int,
    confidence: float = CONFIDENCE,
    resamples: int = RESAMPLES,
) -> Interval:
    """IQM over all of ``scores[runs, tasks]``; runs are resampled within each task (strata).

    Percentile interval; NaN ends for a single run, which leaves nothing to resample.
    """
    array = _matrix("scores", scores)
    _check_level(confidence)
    if array.shape[0] == 1:
        return Interval(iqm(array), float("nan"), float("nan"))
    drawn = _stratified(array, np.random.default_rng(seed), resamples)
    estimates = np.asarray(stats.trim_mean(drawn.reshape(resamples, -1), 0.25, axis=1))
    return Interval(iqm(array), *_percentiles(estimates, confidence))


def paired_permutation_test(
    first: Scores,
    second: Scores,
    *,
    seed: int,
    alternative: Alternative = "two-sided",
    resamples: int = RESAMPLES,
) -> PairedTest:
    """Sign-flip test of mean(first − second) = 0, pairs made by seed.

    p = share of the 2ⁿ sign patterns ε with mean(ε·d) at least as extreme as mean(d): all
    patterns up to ``EXACT_PAIRS`` pairs, else (1 + hits)/(1 + resamples) over random ones.
    The smallest possible p is :func:`smallest_p_value`: five pairs can never reach 0.05 on
    two sides.
    """
    differences = _paired_differences(first, second)
    p_value, exact = _sign_flip_p(differences, alternative, seed, resamples)
    return PairedTest(float(differences.mean()), p_value, differences.size, exact)


def paired_difference(
    first: Scores,
    second: Scores,
    *,
    seed: int,
    confidence: float = CONFIDENCE,
    resamples: int = RESAMPLES,
) -> Interval:
    """mean(first − second) over pairs made by seed, with the interval of ``mean_interval``."""
    differences = _paired_differences(first, second)
    return mean_interval(differences, seed=seed, confidence=confidence, resamples=resamples)


def smallest_p_value(pairs: int, alternative: Alternative = "two-sided") -> float:
    """The p value of n pairs that all point one way: 2/2ⁿ on two sides, 1/2ⁿ on one."""
    if pairs < 1:
        raise InputError("pairs", pairs, "at least 1")
    return min(1.0, (2.0 if alternative == "two-sided" else 1.0) / 2.0**pairs)


def holm(p_values: ArrayLike) -> Float[np.ndarray, " tests"]:
    """Holm's step-down adjusted p: p̃₍ᵢ₎ = max_{j≤i} min(1, (m−j+1)·p₍ⱼ₎), in input order.

    Rejecting where p̃ < α keeps the chance of any false rejection below α, whatever the
    dependence between the tests. No tests give no values.
    """
    p = _finite("p_values", p_values)
    if p.ndim != 1 or (p < 0).any() or (p > 1).any():
        raise InputError("p_values", p_values, "a list of numbers in [0, 1]")
    order = np.argsort(p, kind="stable")
    stepped = np.minimum(1.0, np.arange(p.size, 0, -1) * p[order])
    adjusted = np.empty_like(p)
    adjusted[order] = np.maximum.accumulate(stepped)
    return adjusted


def non_inferiority(
    candidate: Scores,
    reference: Scores,
    *,
    margin: float,
    seed: int,
    confidence: float = CONFIDENCE,
    resamples: int = RESAMPLES,
) -> NonInferiority:
    """One-sided paired test of H₀: mean(candidate − reference) ≤ −margin; higher is better.

    ``non_inferior`` needs both: the one-sided bootstrap lower bound lies above −margin, and
    the sign-flip test of d + margin > 0 has p < 1 − confidence. Two pairs at least.
    """
    if not np.isfinite(margin) or margin < 0:
        raise InputError("margin", margin, "a finite number of at least 0, in return units")
    differences = _paired_differences(candidate, reference)
    if differences.size < 2:
        raise InputError("seeds", differences.size, "at least two pairs")
    # A one-sided bound at level c is the lower end of the two-sided interval at 2c − 1.
    if not 0.5 < confidence < 1:
        raise InputError("confidence", confidence, "a number in (0.5, 1)")
    lower = mean_interval(
        differences, seed=seed, confidence=2 * confidence - 1, resamples=resamples
    ).low
    p_value, _ = _sign_flip_p(differences + margin, "greater", seed, resamples)
    verdict = bool(lower > -margin and p_value < 1 - confidence)
    return NonInferiority(float(differences.mean()), lower, p_value, float(margin), verdict)


def probability_of_improvement(
    first: ArrayLike,
    second: ArrayLike,
    *,
    seed: int,
    confidence: float = CONFIDENCE,
    resamples: int = RESAMPLES,
) -> Interval:
    """Mean over tasks of P(X > Y) + ½·P(X = Y), X and Y single runs of first and second.

    Both are ``[runs, tasks]``; the numbers of runs may differ.

    Percentile interval, runs of either side resampled within each task.
    """
    x, y = _matrix("first", first), _matrix("second", second)
    _check_level(confidence)
    if x.shape[1] != y.shape[1]:
        raise InputError("second", y.shape, f"as many tasks as first, {x.shape[1]}")
    # wins[i, j, task]; a resample picks rows and columns of this table.
    wins = (x[:, None] > y[None]) + 0.5 * (x[:, None] == y[None])
    estimate = float(wins.mean())
    if x.shape[0] == 1 or y.shape[0] == 1:
        return Interval(estimate, float("nan"), float("nan"))
    rng = np.random.default_rng(seed)
    tasks = x.shape[1]
    rows = _multinomial(x.shape[0], rng, (resamples, tasks))
    columns = _multinomial(y.shape[0], rng, (resamples, tasks))
    estimates = np.einsum("bti,ijt,btj->b", rows, wins, columns, optimize=True) / tasks
    return Interval(estimate, *_percentiles(estimates, confidence))


def performance_profile(
    scores: ArrayLike,
    thresholds: ArrayLike,
    *,
    seed: int,
    confidence: float = CONFIDENCE,
    resamples: int = RESAMPLES,
) -> Band:
    """Share of ``scores[runs, tasks]`` above each threshold, with a stratified band."""
    array = _matrix("scores", scores)
    levels = _vector("thresholds", thresholds)
    _check_level(confidence)
    above = (array[:, :, None] > levels).astype(float)
    estimate = above.mean(axis=(0, 1))
    if array.shape[0] == 1:
        unknown = np.full_like(estimate, np.nan)
        return Band(estimate, unknown, unknown)
    shape = (resamples, array.shape[1])
    weights = _multinomial(array.shape[0], np.random.default_rng(seed), shape)
    estimates = np.einsum("btr,rtk->bk", weights, above, optimize=True) / array.shape[1]
    tail = (1 - confidence) / 2
    low, high = np.quantile(estimates, [tail, 1 - tail], axis=0)
    return Band(estimate, low, high)


def _sign_flip_p(
    differences: Float[np.ndarray, " pairs"], alternative: str, seed: int, resamples: int
) -> tuple[float, bool]:
    count = differences.size
    exact = count <= EXACT_PAIRS
    if exact:
        bits = np.arange(2**count)[:, None] >> np.arange(count) & 1
        signs = 1.0 - 2.0 * bits
    else:
        _check_resamples(resamples)
        signs = np.random.default_rng(seed).choice([-1.0, 1.0], size=(resamples, count))
    null, observed = signs @ differences, differences.sum()
    if alternative == "two-sided":
        null, observed = np.abs(null), abs(observed)
    elif alternative == "less":
        null, observed = -null, -observed
    elif alternative != "greater":
        raise InputError("alternative", alternative, "'two-sided', 'greater' or 'less'")
    # Equal sums come out of different additions: ties are counted up to rounding.
    hits = int((null >= observed - 1e-10 * np.abs(differences).sum()).sum())
    return (hits / 2**count if exact else (1 + hits) / (1 + resamples)), exact


def _paired_differences(first: Scores, second: Scores) -> Float[np.ndarray, " pairs"]:
    if not first or set(first) != set(second):
        only_first, only_second = sorted(set(first) - set(second)), sorted(set(second) - set(first))
        raise InputError(
            "seeds",
            f"only in the first: {only_first}, only in the second: {only_second}",
            "the same seeds on both sides, one at least",
        )
    seeds = sorted(first)
    x = _finite("first", [first[seed] for seed in seeds])
    return x - _finite("second", [second[seed] for seed in seeds])


def _expanded_tail(tail: float, count: int) -> float:
    student = stats.t.ppf(tail, count - 1) * np.sqrt(count / (count - 1))
    return float(stats.norm.cdf(student))


@lru_cache(maxsize=4)
def _resampling_weights(
    count: int, seed: int, resamples: int
) -> Float[np.ndarray, "resamples count"]:
    """The same draws for the same arguments: a report asks for them once per number it shows."""
    weights = _multinomial(count, np.random.default_rng(seed), (resamples,))
    weights.setflags(write=False)
    return weights


def _multinomial(
    count: int, rng: np.random.Generator, shape: tuple[int, ...]
) -> Float[np.ndarray, "*shape count"]:
    """Share of each of ``count`` items in a draw of ``count`` with replacement."""
    _check_resamples(shape[0])
    return rng.multinomial(count, np.full(count, 1 / count), size=shape) / count


def _stratified(
    scores: Float[np.ndarray, "runs tasks"], rng: np.random.Generator, resamples: int
) -> Float[np.ndarray, "resamples runs tasks"]:
    _check_resamples(resamples)
    runs, tasks = scores.shape
    rows: Int[np.ndarray, "resamples runs tasks"]
    rows = rng.integers(0, runs, size=(resamples, runs, tasks))
    return scores[rows, np.arange(tasks)]


def _percentiles(
    estimates: Float[np.ndarray, " resamples"], confidence: float
) -> tuple[float, float]:
    tail = (1 - confidence) / 2
    low, high = np.quantile(estimates, [tail, 1 - tail])
    return float(low), float(high)


def _check_level(confidence: float) -> None:
    if not 0 < confidence < 1:
        raise InputError("confidence", confidence, "a number in (0, 1)")


def _check_resamples(resamples: int) -> None:
    if resamples < 1:
        raise InputError("resamples", resamples, "at least 1")


def _finite(field: str, values: ArrayLike) -> Float[np.ndarray, "*shape"]:
    try:
        array = np.asarray(values, dtype=float)
    except (TypeError, ValueError) as error:
        raise InputError(field, values, "numbers, as many in every row") from error
    if not np.isfinite(array).all():
        place = [int(i) for i in np.argwhere(~np.isfinite(array))[0]]
        raise InputError(f"{field}{place}", "not finite", "finite numbers")
    return array


def _vector(field: str, values: ArrayLike) -> Float[np.ndarray, " n"]:
    array = _finite(field, values)
    if array.ndim != 1 or array.size == 0:
        raise InputError(field, array.shape, "a list of at least one number")
    return array


def _matrix(field: str, values: ArrayLike) -> Float[np.ndarray, "rows columns"]:
    array = _finite(field, values)
    if array.ndim != 2 or array.size == 0:
        raise InputError(field, array.shape, "two dimensions, neither of them empty")
    return array
