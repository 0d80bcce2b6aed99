import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gcr_rl.errors import InputError
from gcr_rl.evaluation.metrics import (
    Curve,
    across_seed_std,
    auc,
    bellman_residual,
    final_return,
    five_numbers,
    mean_training_return,
    normalised_score,
    smooth,
    steps_to_threshold,
    window_value_variance,
    worst_seed,
)


def curve(*rows, steps=None):
    steps = np.arange(len(rows[0])) * 10 if steps is None else np.array(steps)
    return Curve(steps, np.array(rows, dtype=float), tuple(range(len(rows))))


def test_smoothing_is_the_trailing_mean_of_what_exists():
    smoothed = smooth(np.array([[3.0, 1.0, 5.0, 9.0]]), window=3)
    np.testing.assert_allclose(smoothed, [[3.0, 2.0, 3.0, 5.0]])


def test_smoothing_leaves_a_constant_alone_at_both_edges():
    np.testing.assert_allclose(smooth(np.full((2, 9), -200.0), window=5), -200.0)


def test_smoothing_with_window_one_changes_nothing():
    returns = np.array([1.0, -4.0, 2.5])
    np.testing.assert_array_equal(smooth(returns, window=1), returns)


@given(
    st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=30),
    st.integers(1, 8),
    st.integers(1, 29),
)
def test_smoothing_up_to_a_step_ignores_what_comes_after(values, window, cut):
    cut = min(cut, len(values))
    whole = smooth(np.array(values), window)
    np.testing.assert_array_equal(whole[:cut], smooth(np.array(values[:cut]), window))


@pytest.mark.parametrize("window", [0, -1, 2.5, True])
def test_smoothing_refuses_a_bad_window(window):
    with pytest.raises(InputError, match="window"):
        smooth(np.zeros(3), window)


def test_auc_by_hand():
    # Trapezoids of 0, 2, 4 over steps 0, 10, 20: 10 + 30.
    np.testing.assert_allclose(auc(curve([0, 2, 4]), budget=20, window=1), [40.0])


def test_auc_of_the_smoothed_curve_by_hand():
    # Trailing mean of 2: 0, 1, 3, so 5 + 20.
    np.testing.assert_allclose(auc(curve([0, 2, 4]), budget=20, window=2), [25.0])


def test_auc_stops_exactly_at_the_budget():
    # R(τ) = τ / 5 up to τ = 15: ∫ = 15² / 10.
    np.testing.assert_allclose(auc(curve([0, 2, 4]), budget=15, window=1), [22.5])


def test_auc_weighs_uneven_checkpoints_by_their_distance():
    uneven = curve([1, 1, 3], [0, 0, 0], steps=[0, 90, 100])
    np.testing.assert_allclose(auc(uneven, budget=100, window=1), [90 + 20, 0])


def test_mean_training_return_of_a_constant_is_the_constant():
    np.testing.assert_allclose(mean_training_return(curve([7] * 6), budget=33), [7.0])


def test_auc_does_not_extrapolate():
    with pytest.raises(InputError, match=r"budget.*at most the last checkpoint, 20"):
        auc(curve([0, 2, 4]), budget=21)
    with pytest.raises(InputError, match="first checkpoint at step 0"):
        auc(curve([0, 2], steps=[5, 10]), budget=10)


def test_steps_to_threshold_by_hand():
    result = steps_to_threshold(
        curve([0, 5, 9, 9], [9, 9, 9, 9], [0, 0, 0, 0]), threshold=5, budget=30, window=1
    )
    np.testing.assert_array_equal(result.steps, [10, 0, 30])
    np.testing.assert_array_equal(result.reached, [True, True, False])
    assert result.median == 10
    assert not result.median_censored


def test_steps_to_threshold_reads_the_smoothed_curve():
    lucky = curve([0, 8, 0, 0, 8, 8, 8])
    assert steps_to_threshold(lucky, 6.0, budget=60, window=1).steps[0] == 10
    assert steps_to_threshold(lucky, 6.0, budget=60, window=3).steps[0] == 60


def test_steps_to_threshold_ignores_what_happens_after_the_budget():
    result = steps_to_threshold(curve([0, 0, 0, 9]), 5, budget=29, window=1)
    assert (result.steps[0], bool(result.reached[0])) == (29, False)


@pytest.mark.parametrize(
    ("reached_rows", "median", "censored"),
    [(0, 30.0, True), (1, 30.0, True), (2, 20.0, True), (3, 10.0, False), (4, 10.0, False)],
)
def test_median_says_when_it_is_only_a_lower_bound(reached_rows, median, censored):
    rows = [[0, 9, 9, 9]] * reached_rows + [[0, 0, 0, 0]] * (4 - reached_rows)
    result = steps_to_threshold(curve(*rows), 5, budget=30, window=1)
    assert (result.median, result.median_censored) == (median, censored)


def test_a_seed_that_gets_there_at_the_budget_counts_as_there():
    result = steps_to_threshold(curve([0, 0, 9], [0, 0, 9], [0, 0, 0]), 5, budget=20, window=1)
    assert (result.median, result.median_censored) == (20.0, False)


def test_final_return_is_the_mean_of_the_last_fifth():
    ten = curve(list(range(10)), [5] * 10)
    np.testing.assert_allclose(final_return(ten, budget=90), [8.5, 5.0])
    np.testing.assert_allclose(final_return(ten, budget=49), [4.0, 5.0])
    np.testing.assert_allclose(final_return(ten, budget=90, fraction=0.3), [8.0, 5.0])


def test_final_return_takes_at_least_one_checkpoint():
    np.testing.assert_allclose(final_return(curve([1, 2, 3]), budget=20), [3.0])


@pytest.mark.parametrize("fraction", [0, -0.1, 1.1, float("nan")])
def test_final_return_refuses_a_bad_fraction(fraction):
    with pytest.raises(InputError, match="fraction"):
        final_return(curve([1, 2]), budget=10, fraction=fraction)


def test_final_return_before_the_first_checkpoint_is_refused():
    with pytest.raises(InputError, match="budget"):
        final_return(curve([1, 2], steps=[50, 100]), budget=10)


def test_normalised_score_by_hand():
    np.testing.assert_allclose(
        normalised_score([-200, -14, -107], random_return=-200, optimal_return=-14), [0, 1, 0.5]
    )


@pytest.mark.parametrize("optimal", [-200.0, -300.0, float("nan")])
def test_normalised_score_needs_an_optimum_above_random(optimal):
    with pytest.raises(InputError, match="optimal_return"):
        normalised_score([0.0], random_return=-200.0, optimal_return=optimal)


def test_spread_and_worst_seed_by_hand():
    assert across_seed_std([2, 4, 6]) == pytest.approx(2.0)
    assert worst_seed([2, -4, 6]) == -4
    assert np.isnan(across_seed_std([2.0]))


@pytest.mark.parametrize("function", [across_seed_std, worst_seed])
@pytest.mark.parametrize("scores", [[], [1.0, float("nan")], [[1.0]], ["a"]])
def test_spread_and_worst_seed_refuse_bad_scores(function, scores):
    with pytest.raises(InputError, match="scores"):
        function(scores)


def test_window_value_variance_by_hand():
    # State 0: (0, 2) and (2, 2); state 1: (1, 1) and (1, 5). Sample variances 2, 0 | 0, 8.
    values = np.array([[0.0, 1.0], [2.0, 1.0], [2.0, 5.0]])
    np.testing.assert_allclose(window_value_variance(values, window=2), [1.0, 4.0])


@pytest.mark.parametrize("window", [1, 4])
def test_window_value_variance_refuses_a_window_that_does_not_fit(window):
    with pytest.raises(InputError, match="window"):
        window_value_variance(np.zeros((3, 2)), window)


def test_bellman_residual_by_hand():
    assert bellman_residual([1.0, 2.0], [1.0, 5.0]) == pytest.approx(4.5)


@pytest.mark.parametrize("target", [[1.0], [1.0, float("inf")], []])
def test_bellman_residual_refuses_bad_targets(target):
    with pytest.raises(InputError, match="target"):
        bellman_residual([1.0, 2.0], target)


@pytest.mark.parametrize(
    ("field", "steps", "returns", "seeds"),
    [
        ("steps", [0, 0], [[1, 2]], (0,)),
        ("steps", [], [[]], (0,)),
        ("steps", [-1, 2], [[1, 2]], (0,)),
        ("steps", [0.0, 1.0], [[1, 2]], (0,)),
        ("returns", [0, 1], [[1, 2, 3]], (0,)),
        ("returns", [0, 1], [1, 2], (0,)),
        ("returns", [0, 1], np.zeros((0, 2)), ()),
        (r"returns\[0, 1\]", [0, 1], [[1, np.nan]], (0,)),
        ("returns", [0, 1], [[1, 2], [3]], (0, 1)),
        ("seeds", [0, 1], [[1, 2]], (0, 1)),
        ("seeds", [0, 1], [[1, 2], [3, 4]], (5, 5)),
    ],
)
def test_curve_refuses_what_has_no_meaning(field, steps, returns, seeds):
    with pytest.raises(InputError, match=field):
        Curve(np.array(steps), returns, seeds)


def test_five_numbers_by_hand():
    assert five_numbers([5.0, 1.0, 4.0, 2.0, 3.0]) == (1.0, 2.0, 3.0, 4.0, 5.0)
    assert five_numbers([0.0, 1.0]) == (0.0, 0.25, 0.5, 0.75, 1.0)
    assert five_numbers([7.0]) == (7.0,) * 5
    with pytest.raises(InputError):
        five_numbers([])
