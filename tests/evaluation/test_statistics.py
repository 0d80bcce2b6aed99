from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from gcr_rl.errors import InputError
from gcr_rl.evaluation.statistics import (
    holm,
    iqm,
    iqm_interval,
    mean_band,
    mean_interval,
    non_inferiority,
    paired_difference,
    paired_permutation_test,
    performance_profile,
    probability_of_improvement,
    seed_range,
    smallest_p_value,
)

SAMPLE = np.array([3.0, 9.0, 4.0, 7.0, 1.0, 8.0, 2.0, 6.0])
RUNS = np.random.default_rng(3).normal(size=(6, 3)) + np.array([0.0, 1.0, 2.0])
OTHER_RUNS = np.random.default_rng(4).normal(size=(5, 3)) + np.array([0.0, 0.5, 2.5])
INTERVALS = {
    "mean": lambda seed, **options: mean_interval(SAMPLE, seed=seed, **options),
    "iqm": lambda seed, **options: iqm_interval(RUNS, seed=seed, **options),
    "improvement": lambda seed, **options: probability_of_improvement(
        RUNS, OTHER_RUNS, seed=seed, **options
    ),
}


def by_seed(values):
    return dict(enumerate(values))


@pytest.mark.parametrize("name", INTERVALS)
def test_the_seed_matters_and_repeats(name):
    interval = INTERVALS[name]
    assert interval(0, resamples=200) == interval(0, resamples=200)
    assert interval(0, resamples=200)[1:] != interval(1, resamples=200)[1:]


@pytest.mark.parametrize("name", INTERVALS)
def test_more_confidence_is_a_wider_interval_around_the_estimate(name):
    narrow, wide = (INTERVALS[name](0, confidence=level) for level in (0.5, 0.95))
    assert wide.low < narrow.low < narrow.estimate < narrow.high < wide.high


def test_mean_interval_is_the_percentile_bootstrap_at_the_expanded_level():
    mine = mean_interval(SAMPLE, seed=0, resamples=200_000)
    tail = stats.norm.cdf(stats.t.ppf(0.025, 7) * np.sqrt(8 / 7))
    theirs = stats.bootstrap(
        (SAMPLE,), np.mean, confidence_level=1 - 2 * tail, method="percentile",
        n_resamples=200_000, rng=np.random.default_rng(1), batch=10_000,
    ).confidence_interval  # fmt: skip
    assert mine.estimate == pytest.approx(5.0)
    assert (mine.low, mine.high) == pytest.approx(theirs, abs=0.06)


def test_mean_interval_of_two_values_by_hand():
    # Resampled means are 0, 1 and 2 (a quarter, a half, a quarter): the ends are the extremes.
    assert mean_interval([0.0, 2.0], seed=0) == (1.0, 0.0, 2.0)


def test_mean_interval_covers_the_truth_far_more_often_than_the_plain_percentile_one():
    rng = np.random.default_rng(0)
    samples = rng.normal(size=(5, 2000))
    band = mean_band(samples, seed=0, resamples=4000)
    covered = np.mean((band.low <= 0) & (band.high >= 0))
    assert 0.88 < covered < 0.97  # the plain one: 0.83


def test_mean_interval_of_equal_values_is_a_point():
    assert mean_interval([0.1] * 7, seed=0) == pytest.approx((0.1, 0.1, 0.1))


def test_band_columns_are_the_single_intervals():
    values = np.stack([SAMPLE, -2 * SAMPLE], axis=1)
    band = mean_band(values, seed=5)
    for column in range(2):
        single = mean_interval(values[:, column], seed=5)
        ends = band.estimate[column], band.low[column], band.high[column]
        assert single == pytest.approx(ends)


def test_a_band_of_many_columns_is_the_same_column_by_column():
    values = np.random.default_rng(0).normal(size=(4, 600))
    whole = mean_band(values, seed=5, resamples=50)
    some = mean_band(values[:, 250:260], seed=5, resamples=50)
    np.testing.assert_allclose(whole.low[250:260], some.low)
    np.testing.assert_allclose(whole.high[250:260], some.high)


def test_a_single_seed_has_no_interval():
    for result in (
        mean_interval([4.0], seed=0),
        iqm_interval(np.array([[4.0]]), seed=0),
        probability_of_improvement([[4.0]], [[3.0], [5.0]], seed=0),
        performance_profile([[4.0]], [1.0], seed=0),
    ):
        assert np.isfinite(result.estimate)
        assert np.isnan(result.low)
        assert np.isnan(result.high)


def test_iqm_by_hand():
    assert iqm([100.0, 1.0, 2.0, 3.0, -50.0, 4.0, 5.0, 6.0]) == pytest.approx(3.5)
    assert iqm([[1.0, 2.0], [9.0, 4.0]]) == pytest.approx(3.0)


def test_iqm_resamples_runs_within_their_task():
    # Both runs of each task agree: within a task nothing can change, across tasks it would.
    scores = np.array([[0.0, 10.0, 20.0, 30.0]] * 2)
    assert iqm_interval(scores, seed=0, resamples=500) == (15.0, 15.0, 15.0)


def test_permutation_test_by_hand():
    # Differences 1, 2, 3: of the 8 sign patterns only +++ and --- reach |sum| 6.
    result = paired_permutation_test(by_seed([2, 4, 6]), by_seed([1, 2, 3]), seed=0)
    assert result == (2.0, 0.25, 3, True)
    greater = paired_permutation_test(
        by_seed([2, 4, 6]), by_seed([1, 2, 3]), seed=0, alternative="greater"
    )
    assert greater.p_value == 0.125


@pytest.mark.parametrize("alternative", ["two-sided", "greater", "less"])
@given(values=st.lists(st.integers(-4, 4), min_size=2, max_size=9))
def test_permutation_test_is_brute_force_and_scipy(alternative, values):
    d = np.array(values, dtype=float)
    mine = paired_permutation_test(
        by_seed(d), by_seed(np.zeros_like(d)), seed=0, alternative=alternative
    )
    sums = np.array([np.dot(signs, d) for signs in product([-1, 1], repeat=d.size)])
    at_least = {
        "two-sided": np.abs(sums) >= abs(d.sum()),
        "greater": sums >= d.sum(),
        "less": sums <= d.sum(),
    }[alternative]
    assert mine.exact
    assert mine.p_value == pytest.approx(at_least.mean())
    theirs = stats.permutation_test(
        (d,), np.mean, permutation_type="samples", alternative=alternative
    )
    assert mine.p_value == pytest.approx(theirs.pvalue)


def test_permutation_test_counts_ties_through_rounding():
    # 0.1 + 0.2 + 0.3 sums to two different floats; every sum of that size is a tie.
    d = by_seed([0.1, 0.2, 0.3, 0.1, 0.2, 0.3])
    assert paired_permutation_test(d, by_seed([0.0] * 6), seed=0).p_value == 2 / 64


def test_permutation_test_pairs_by_seed_and_not_by_position():
    first, second = {7: 1.0, 3: 5.0, 9: 2.0}, {9: 1.0, 7: 0.0, 3: 4.0}
    assert paired_permutation_test(first, second, seed=0) == (1.0, 0.25, 3, True)


def test_permutation_test_samples_signs_for_many_pairs():
    d = np.random.default_rng(0).normal(0.35, 1.0, size=24)
    zero = by_seed(np.zeros(24))
    runs = [paired_permutation_test(by_seed(d), zero, seed=seed) for seed in (0, 0, 1)]
    assert not runs[0].exact
    assert runs[0] == runs[1]
    assert runs[0].p_value != runs[2].p_value
    assert runs[0].p_value == pytest.approx(stats.ttest_1samp(d, 0).pvalue, abs=0.02)


def test_sampled_p_value_is_never_zero():
    d = by_seed(np.full(40, 3.0))
    result = paired_permutation_test(d, by_seed(np.zeros(40)), seed=0, resamples=99)
    assert result.p_value == pytest.approx(0.01)


def test_no_difference_at_all_is_p_one():
    assert paired_permutation_test(by_seed(SAMPLE), by_seed(SAMPLE), seed=0).p_value == 1.0


@pytest.mark.parametrize(
    ("first", "second"),
    [({0: 1.0, 1: 2.0}, {0: 1.0, 2: 2.0}), ({0: 1.0}, {0: 1.0, 1: 1.0}), ({}, {})],
)
def test_unequal_seeds_are_refused(first, second):
    with pytest.raises(InputError, match="same seeds on both sides"):
        paired_permutation_test(first, second, seed=0)


def test_unknown_alternative_is_refused():
    with pytest.raises(InputError, match="alternative"):
        paired_permutation_test({0: 1.0}, {0: 0.0}, seed=0, alternative="bigger")


def test_smallest_p_value_is_what_the_test_gives():
    for pairs in (1, 3, 5, 6):
        ones = by_seed(np.ones(pairs))
        result = paired_permutation_test(ones, by_seed(np.zeros(pairs)), seed=0)
        assert result.p_value == smallest_p_value(pairs)
    assert smallest_p_value(5) > 0.05 > smallest_p_value(6)
    with pytest.raises(InputError, match="pairs"):
        smallest_p_value(0)


def test_holm_by_hand():
    # Sorted 0.01, 0.02, 0.03, 0.04 times 4, 3, 2, 1; the running maximum holds 0.06.
    np.testing.assert_allclose(holm([0.03, 0.01, 0.04, 0.02]), [0.06, 0.04, 0.06, 0.06])
    np.testing.assert_allclose(holm([0.6, 0.7]), [1.0, 1.0])
    assert holm([]).shape == (0,)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_holm_lies_between_no_correction_and_bonferroni(p_values):
    p, adjusted = np.array(p_values), holm(p_values)
    assert (adjusted >= p).all()
    assert (adjusted <= np.minimum(1, p * p.size)).all()
    assert (np.diff(adjusted[np.argsort(p, kind="stable")]) >= 0).all()


@pytest.mark.parametrize("p_values", [[1.2], [-0.1], [float("nan")], [[0.5]]])
def test_holm_refuses_what_is_no_p_value(p_values):
    with pytest.raises(InputError, match="p_values"):
        holm(p_values)


def test_non_inferiority_by_hand():
    # d = -1 on each of 6 seeds: d + 2 = 1, of 64 patterns one reaches the sum 6.
    result = non_inferiority(by_seed(SAMPLE[:6] - 1), by_seed(SAMPLE[:6]), margin=2.0, seed=0)
    assert result.difference == pytest.approx(-1.0)
    assert result.lower_bound == pytest.approx(-1.0)
    assert result.p_value == 1 / 64
    assert result.non_inferior


def test_non_inferiority_fails_when_the_margin_is_smaller_than_the_loss():
    result = non_inferiority(by_seed(SAMPLE - 1), by_seed(SAMPLE), margin=0.5, seed=0)
    assert result.p_value == 1.0
    assert not result.non_inferior


def test_non_inferiority_needs_enough_seeds_for_its_test():
    # Four pairs: the smallest one-sided p is 1/16, above 0.05, whatever the bound says.
    result = non_inferiority(by_seed(SAMPLE[:4]), by_seed(SAMPLE[:4]), margin=9.0, seed=0)
    assert result.lower_bound > -9.0
    assert result.p_value == 1 / 16
    assert not result.non_inferior


def test_non_inferiority_needs_the_bound_too():
    # d + 1 = -3, 5, 1, 4, 6, 5: of the 64 patterns three reach the sum 18 (as it is, with -3
    # turned, with -3 and 1 turned), yet a resample of many -3 falls below the margin.
    d = by_seed(np.array([-3.0, 5.0, 1.0, 4.0, 6.0, 5.0]) - 1)
    result = non_inferiority(d, by_seed(np.zeros(6)), margin=1.0, seed=0)
    assert result.p_value == 3 / 64
    assert result.lower_bound < -1.0
    assert not result.non_inferior


def test_non_inferiority_uses_its_seed():
    noisy = by_seed(SAMPLE + np.random.default_rng(0).normal(size=8))
    bounds = [
        non_inferiority(noisy, by_seed(SAMPLE), margin=1, seed=seed, resamples=200).lower_bound
        for seed in (0, 0, 1)
    ]
    assert bounds[0] == bounds[1] != bounds[2]


@pytest.mark.parametrize("margin", [-1.0, float("nan"), float("inf")])
def test_non_inferiority_refuses_a_bad_margin(margin):
    with pytest.raises(InputError, match="margin"):
        non_inferiority({0: 1.0, 1: 1.0}, {0: 1.0, 1: 2.0}, margin=margin, seed=0)


def test_non_inferiority_refuses_a_single_pair():
    with pytest.raises(InputError, match="two pairs"):
        non_inferiority({0: 1.0}, {0: 1.0}, margin=1.0, seed=0)


def test_probability_of_improvement_by_hand():
    # Task 0: 3 of 4 pairs won and one tied, 0.875; task 1: none, 0. Mean 0.4375.
    first = np.array([[3.0, 0.0], [2.0, 0.0]])
    second = np.array([[1.0, 5.0], [2.0, 5.0]])
    assert probability_of_improvement(first, second, seed=0).estimate == pytest.approx(0.4375)


def test_probability_of_improvement_is_mann_whitneys_u():
    u = [stats.mannwhitneyu(RUNS[:, task], OTHER_RUNS[:, task]).statistic / 30 for task in range(3)]
    result = probability_of_improvement(RUNS, OTHER_RUNS, seed=0)
    assert result.estimate == pytest.approx(np.mean(u))


def test_probability_of_improvement_interval_is_scipys_bootstrap():
    x, y = RUNS[:, 0], OTHER_RUNS[:, 0]
    mine = probability_of_improvement(x[:, None], y[:, None], seed=0, resamples=20_000)

    def share(a, b, axis):
        # scipy resamples along the last axis and broadcasts the rest.
        return (a[..., :, None] > b[..., None, :]).mean(axis=(-1, -2))

    theirs = stats.bootstrap(
        (x, y), share, method="percentile", n_resamples=20_000, vectorized=True,
        rng=np.random.default_rng(1),
    ).confidence_interval  # fmt: skip
    assert (mine.low, mine.high) == pytest.approx(theirs, abs=0.04)


def test_probability_of_improvement_wants_the_same_tasks():
    with pytest.raises(InputError, match="as many tasks"):
        probability_of_improvement(RUNS, OTHER_RUNS[:, :2], seed=0)


def test_performance_profile_by_hand():
    profile = performance_profile([[0.2, 0.8], [0.4, 1.0]], [0.0, 0.4, 0.9, 1.0], seed=0)
    np.testing.assert_allclose(profile.estimate, [1.0, 0.5, 0.25, 0.0])
    np.testing.assert_allclose(profile.low, [1.0, 0.5, 0.0, 0.0])
    np.testing.assert_allclose(profile.high, [1.0, 0.5, 0.5, 0.0])


def test_performance_profile_uses_its_seed():
    bands = [performance_profile(RUNS, [0.5, 1.5], seed=s, resamples=50) for s in (0, 0, 1)]
    np.testing.assert_array_equal(bands[0].low, bands[1].low)
    assert (bands[0].low != bands[2].low).any() or (bands[0].high != bands[2].high).any()


@pytest.mark.parametrize(
    "call",
    [
        lambda bad: mean_interval(bad, seed=0),
        lambda bad: iqm(bad),
        lambda bad: iqm_interval([bad], seed=0),
        lambda bad: probability_of_improvement([bad], [bad], seed=0),
        lambda bad: performance_profile([bad], [0.5], seed=0),
        lambda bad: paired_permutation_test(by_seed(bad), by_seed(bad), seed=0),
    ],
)
@pytest.mark.parametrize("bad", [[], [1.0, float("nan")], [float("inf")]])
def test_empty_and_not_finite_input_is_refused(call, bad):
    with pytest.raises(InputError):
        call(bad)


@pytest.mark.parametrize("options", [{"confidence": 1.0}, {"confidence": 0}, {"resamples": 0}])
@pytest.mark.parametrize("name", INTERVALS)
def test_bad_options_are_refused(name, options):
    with pytest.raises(InputError, match=next(iter(options))):
        INTERVALS[name](0, **options)


@pytest.mark.parametrize(
    "interval",
    [
        lambda **options: iqm_interval([[0.0], [1.0]], seed=0, **options),
        lambda **options: probability_of_improvement(
            [[0.0], [2.0]], [[1.0], [1.0]], seed=0, **options
        ),
    ],
)
def test_stratified_interval_of_two_runs_by_hand(interval):
    # Two runs drawn with replacement have the mean 0, 1/2 or 1 with chance 1/4, 1/2, 1/4: the
    # quantiles at 0.3 and 0.7 are 1/2, those at 0.2 and 0.8 the ends.
    assert interval(confidence=0.4) == (0.5, 0.5, 0.5)
    assert interval(confidence=0.6) == (0.5, 0.0, 1.0)


def test_strata_are_resampled_apart_by_hand():
    # Two tasks with such a pair each: the mean is 0, 1/4, 1/2, 3/4, 1 with 1, 4, 6, 4, 1 in 16.
    pair = [[0.0, 0.0], [1.0, 1.0]]
    wins = probability_of_improvement(pair, np.full((2, 2), 0.5), seed=0, confidence=0.5)
    assert wins == (0.5, 0.25, 0.75)  # quantiles at 0.25 and 0.75: 5/16 lie at 1/4 or below


def test_paired_difference_by_hand():
    # Differences 1 and 3, by seed and not by position: the mean of two values has these ends.
    first, second = {4: 5.0, 9: 2.0}, {9: 1.0, 4: 2.0}
    assert paired_difference(first, second, seed=0) == mean_interval([3.0, 1.0], seed=0)
    assert paired_difference(first, second, seed=0).estimate == 2.0
    with pytest.raises(InputError, match="seeds"):
        paired_difference(first, {4: 1.0}, seed=0)


def test_seed_range_by_hand():
    nan = float("nan")
    found = seed_range(np.array([[1.0, nan, 4.0], [3.0, 5.0, 8.0]]))
    np.testing.assert_array_equal(found.estimate, [2.0, 5.0, 6.0])
    np.testing.assert_array_equal(found.low, [1.0, 5.0, 4.0])
    np.testing.assert_array_equal(found.high, [3.0, 5.0, 8.0])
    for bad in ([[nan, 1.0]], [[float("inf")]], [[]], [1.0]):
        with pytest.raises(InputError, match="values"):
            seed_range(np.array(bad))
