"""A replay against a plain Python list of everything that was ever added."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from gcr_rl.config import Config
from gcr_rl.errors import InputError
from gcr_rl.presets import preset
from gcr_rl.replay import make_replay, make_uniform, n_step_return, return_over
from gcr_rl.replay.uniform import draw_starts, same_episode, written
from gcr_rl.types import Segment, Transition

ENVS, ROWS, LENGTH = 2, 8, 3


def row(t: int, done_at: tuple[int, ...] = ()) -> Transition:
    """Step t of every environment; observations say where they come from."""
    where = jnp.array([[t, e] for e in range(ENVS)], jnp.float32)
    done = jnp.full(ENVS, t in done_at)
    return Transition(
        observation=where,
        action=jnp.full(ENVS, t, jnp.int32),
        reward=jnp.full(ENVS, float(t)),
        next_observation=where + jnp.array([1.0, 0.0]),
        terminated=done,
        truncated=jnp.zeros(ENVS, bool),
    )


def filled(steps: int, done_at: tuple[int, ...] = ()):
    replay = make_uniform(ENVS * ROWS, ENVS, LENGTH)
    state = replay.init(row(0))
    for t in range(steps):
        state = replay.add(state, row(t, done_at))
    return replay, state


@pytest.mark.parametrize("steps", [3, 8, 9, 13, 21])
def test_segments_are_consecutive_steps_of_one_environment_and_never_cross_the_cursor(steps):
    replay, state = filled(steps)
    segment = replay.sample(state, jax.random.bits(jax.random.key(0), (256,)))
    time, env = np.moveaxis(np.asarray(segment.steps.observation), -1, 0)
    np.testing.assert_array_equal(np.diff(time, axis=1), 1.0)
    assert (env == env[:, :1]).all()
    oldest = max(0, steps - ROWS)
    assert time.min() == oldest and time.max() == steps - 1  # 256 draws reach both ends
    assert set(env[:, 0]) == {0.0, 1.0}


def test_starts_are_uniform():
    replay, state = filled(13)
    segment = replay.sample(state, jax.random.bits(jax.random.key(1), (6_000,)))
    first = np.asarray(segment.steps.observation)[:, 0]
    cells = (first[:, 0] - 5) * ENVS + first[:, 1]
    counts = np.bincount(cells.astype(int), minlength=(ROWS - LENGTH + 1) * ENVS)
    assert stats.chisquare(counts).pvalue > 1e-3


def starts_of(segment: Segment, oldest: int, rows: int) -> np.ndarray:
    """How often each (row, environment) was a start, oldest first."""
    first = np.asarray(segment.steps.observation)[:, 0]
    cells = (first[:, 0] - oldest) * ENVS + first[:, 1]
    return np.bincount(cells.astype(int), minlength=rows * ENVS)


@pytest.mark.parametrize("steps", [13, 4])  # a full ring; one with fewer starts than the window
def test_a_share_of_the_starts_is_recent(steps):
    share, window = 0.4, 3  # of transitions: one row of both environments, the odd one left out
    replay = make_uniform(ENVS * ROWS, ENVS, LENGTH, recent_share=share, recent_window=window)
    _, state = filled(steps)
    segment = replay.sample(state, jax.random.bits(jax.random.key(3), (6_000,)))
    rows = min(steps, ROWS) - LENGTH + 1
    counts = starts_of(segment, max(0, steps - ROWS), rows)
    expected = np.full(rows * ENVS, (1 - share) / (rows * ENVS))
    expected[-ENVS:] += share / ENVS
    assert stats.chisquare(counts, 6_000 * expected).pvalue > 1e-3


def test_a_window_beyond_what_is_stored_is_all_of_it():
    bits = jax.random.bits(jax.random.key(4), (512,))
    drawn = draw_starts(bits, jnp.int32(5), ENVS, 1.0, 100)
    np.testing.assert_array_equal(drawn, np.asarray(bits) % (5 * ENVS))


def test_all_recent_and_none_recent_are_exact():
    words = jnp.array([0, 1, 2**31, 2**32 - 2, 2**32 - 1], jnp.uint32)  # the ends included
    newest = np.asarray(draw_starts(words, jnp.int32(50), ENVS, 1.0, 3))
    assert newest.min() >= (50 - 3) * ENVS and newest.max() < 50 * ENVS
    none = np.asarray(draw_starts(words, jnp.int32(50), ENVS, 0.0, 3))
    np.testing.assert_array_equal(none, np.asarray(words) % (50 * ENVS))


def test_a_word_on_either_side_of_the_threshold():
    words = jnp.array([2**31 - 1, 2**31, 2**31 + 7], jnp.uint32)
    drawn = draw_starts(words, jnp.int32(50), ENVS, 0.5, 3)
    np.testing.assert_array_equal(drawn, [94 + (2**31 - 1) % 6, 0, 7])


def test_the_configuration_reaches_the_draws():
    config = Config("CartPole").replace(
        {"replay.capacity": ENVS * ROWS, "loop.num_envs": ENVS,
         "replay.recent_share": 1.0, "replay.recent_window": 2 * ENVS}
    )  # fmt: skip
    _, state = filled(13)
    segment = make_replay(config, LENGTH).sample(state, jax.random.bits(jax.random.key(5), (64,)))
    assert set(np.asarray(segment.steps.observation)[:, 0, 0]) == {9.0, 10.0}  # 11, 12 follow


@pytest.mark.parametrize(
    ("overrides", "field"),
    [
        ({"replay.recent_share": -0.1}, "replay.recent_share"),
        ({"replay.recent_share": 1.1}, "replay.recent_share"),
        ({"replay.recent_share": float("nan")}, "replay.recent_share"),
        ({"replay.recent_window": 0}, "replay.recent_window"),
        ({"replay.recent_share": 0.5, "replay.recent_window": 20_001}, "replay.recent_window"),
        ({"replay.recent_share": 0.5, "replay.recent_window": 7, "loop.num_envs": 10},
         "replay.recent_window"),
    ],
)  # fmt: skip
def test_shares_and_windows_that_cannot_be_are_refused(overrides, field):
    with pytest.raises(InputError, match=field):
        preset("NoisyRPSChain", overrides={"replay.capacity": 20_000, **overrides})


def test_a_window_is_not_looked_at_while_the_share_is_none():
    preset("NoisyRPSChain", overrides={"replay.capacity": 500, "replay.recent_window": 1_000})


def test_can_sample_needs_a_whole_segment():
    for steps in range(5):
        replay, state = filled(steps)
        assert bool(replay.can_sample(state)) == (steps >= LENGTH)


def test_steps_after_an_episode_end_are_masked():
    _, state = filled(8, done_at=(4,))
    replay = make_uniform(ENVS * ROWS, ENVS, LENGTH)
    segment = replay.sample(state, jax.random.bits(jax.random.key(2), (256,)))
    time = np.asarray(segment.steps.observation)[..., 0]
    crosses = (time > 4) & (time[:, :1] <= 4)
    np.testing.assert_array_equal(np.asarray(segment.mask), ~crosses)


def test_mask_by_hand():
    done = jnp.array([[False, True, False, True], [False, False, False, False]])
    np.testing.assert_array_equal(same_episode(done), [[1, 1, 0, 0], [1, 1, 1, 1]])


def segment_of(rewards, terminated, truncated) -> Segment:
    n = len(rewards)
    done = jnp.array(terminated) | jnp.array(truncated)
    steps = Transition(
        observation=jnp.arange(n, dtype=jnp.float32),
        action=jnp.zeros(n, jnp.int32),
        reward=jnp.array(rewards),
        next_observation=jnp.arange(n, dtype=jnp.float32) + 0.5,
        terminated=jnp.array(terminated),
        truncated=jnp.array(truncated),
    )
    return Segment(steps, same_episode(done[None])[0])


def test_n_step_return_by_hand():
    no, yes = [False] * 3, [False, True, False]
    total, bootstrap, following = n_step_return(segment_of([1.0, 2.0, 4.0], no, no), 0.5, 3)
    assert (total, bootstrap, following) == (1 + 1 + 1, 0.125, 2.5)
    total, bootstrap, following = n_step_return(segment_of([1.0, 2.0, 4.0], yes, no), 0.5, 3)
    assert (total, bootstrap, following) == (2.0, 0.0, 1.5)
    # a time limit cuts the sum but not the bootstrap
    total, bootstrap, following = n_step_return(segment_of([1.0, 2.0, 4.0], no, yes), 0.5, 3)
    assert (total, bootstrap, following) == (2.0, 0.25, 1.5)


@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize("end", [None, "terminated", "truncated"])
def test_a_traced_number_of_steps_gives_the_same_return(n, end):
    no, yes = [False] * 3, [False, True, False]
    segment = segment_of(
        [1.0, 2.0, 4.0], yes if end == "terminated" else no, yes if end == "truncated" else no
    )
    found = jax.jit(lambda steps: return_over(segment, 0.5, steps))(jnp.int32(n))
    assert tuple(map(float, found)) == tuple(map(float, n_step_return(segment, 0.5, n)))


def test_one_step_of_a_longer_segment():
    total, bootstrap, following = n_step_return(
        segment_of([1.0, 2.0], [False] * 2, [False] * 2), 0.9, 1
    )
    assert float(total) == 1.0 and float(bootstrap) == pytest.approx(0.9) and following == 0.5


def test_donated_add_keeps_the_rest_of_the_ring():
    replay, state = filled(5)
    before = np.asarray(state.rows.reward).copy()
    after = jax.jit(replay.add, donate_argnums=0)(state, row(5))
    np.testing.assert_array_equal(np.asarray(after.rows.reward)[:5], before[:5])
    assert np.asarray(after.rows.reward)[5, 0] == 5.0


@pytest.mark.parametrize("batched", [(0, 0, None), (0, 0, 0), (0, None, 0), (None, 0, None)])
def test_rings_side_by_side_are_written_as_one_by_one(batched):
    all_three = np.arange(42).reshape(3, 7, 2), np.array([[-1] * 2, [-2] * 2, [-3] * 2]), [5, 0, 6]
    given = [
        np.asarray(x if axis == 0 else x[0]) for x, axis in zip(all_three, batched, strict=True)
    ]
    together = jax.vmap(written, batched)(*given)
    for i in range(3):
        before, new, at = (x[i] if axis == 0 else x for x, axis in zip(given, batched, strict=True))
        expected = np.array(before)
        expected[at] = new
        np.testing.assert_array_equal(together[i], expected)
