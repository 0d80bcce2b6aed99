"""E2: uniform permutations, and pictures in which exchanging tiles is exchanging buttons."""

from functools import cache
from itertools import combinations, permutations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from gcr_rl.envs import make, task
from gcr_rl.envs.button import (
    FRAMES,
    PERMUTATIONS,
    blind_random_return,
    memory_optimal_return,
)
from gcr_rl.envs.finite import reachable


@pytest.mark.parametrize("legend", [True, False])
def test_permutations_are_drawn_uniformly(legend):
    environment, params = make("ButtonPermutation", legend=legend)
    keys = jax.random.split(jax.random.key(0), 36_000)
    states = jax.jit(jax.vmap(lambda key: environment.reset_env(key, params)[1]))(keys)
    drawn = np.asarray(states.index // FRAMES if legend else states.permutation)
    assert stats.chisquare(np.bincount(drawn, minlength=720)).pvalue > 1e-4


def random_states(environment, params, count):
    """Reachable, unfinished states, as many as asked for."""
    live = np.flatnonzero(reachable(environment.finite_mdp(params)))
    return np.random.default_rng(0).choice(live, count, replace=False)


@pytest.mark.parametrize("tile_size", [3, 4])
def test_swapping_two_tiles_is_swapping_the_two_buttons(tile_size):
    """Picture, dynamics and rewards, for all 15 exchanges."""
    environment, params = make("ButtonPermutation", tile_size=tile_size)
    assert environment.metadata["tile_size"] == tile_size
    planted = environment.planted_symmetries(params)
    swaps = [tuple(np.flatnonzero(symmetry.relabel != np.arange(6))) for symmetry in planted[1:]]
    assert swaps == list(combinations(range(6), 2))
    states = random_states(environment, params, 64)
    number = {tuple(p): i for i, p in enumerate(PERMUTATIONS.tolist())}
    draw = jax.jit(jax.vmap(lambda index: environment.observation_of(index, params)))
    step = jax.jit(
        jax.vmap(
            lambda index, action: environment.step_env(
                jax.random.key(0), environment.at(index), action, params
            )
        )
    )
    pictures = np.asarray(draw(jnp.asarray(states)))
    for symmetry in planted:
        relabel = symmetry.relabel
        permutation, (progress, last) = states // FRAMES, np.divmod(states % FRAMES, 7)
        colours = np.empty((len(states), 6), int)
        colours[:, relabel] = PERMUTATIONS[permutation]
        swapped_permutation = np.array([number[tuple(row)] for row in colours.tolist()])
        swapped_last = np.where(last == 6, 6, relabel[np.minimum(last, 5)])
        swapped = swapped_permutation * FRAMES + progress * 7 + swapped_last
        np.testing.assert_array_equal(
            np.asarray(draw(jnp.asarray(swapped))),
            np.stack([symmetry.transform(picture) for picture in pictures]),
        )
        for action in range(6):
            actions = jnp.full(len(states), action)
            observation, _, reward, ended, _ = step(jnp.asarray(states), actions)
            twin = step(jnp.asarray(swapped), jnp.full(len(states), relabel[action]))
            np.testing.assert_array_equal(
                np.stack([symmetry.transform(o) for o in np.asarray(observation)]), twin[0]
            )
            np.testing.assert_array_equal(reward, twin[2])
            np.testing.assert_array_equal(ended, twin[3])


def test_pictures_tell_all_states_apart():
    environment, params = make("ButtonPermutation")
    states = np.concatenate([np.arange(2 * FRAMES), 700 * FRAMES + np.arange(FRAMES)])
    pictures = np.asarray(
        jax.vmap(lambda index: environment.observation_of(index, params))(jnp.asarray(states))
    )
    assert len({picture.tobytes() for picture in pictures}) == len(states)


def test_reading_the_legend_completes_the_sequence():
    environment, params = make("ButtonPermutation")
    _, state = environment.reset(jax.random.key(4), params)
    colours = PERMUTATIONS[int(state.index) // FRAMES]
    rewards, ends = [], []
    for colour in range(5):
        button = int(np.flatnonzero(colours == colour)[0])
        _, state, reward, ended, _ = environment.step_env(jax.random.key(0), state, button, params)
        rewards.append(float(reward))
        ends.append(bool(ended))
    assert rewards == [1.0] * 5 and ends == [False] * 4 + [True]


def test_without_the_legend_the_picture_hides_the_permutation_and_keeps_the_past():
    environment, params = make("ButtonPermutation", legend=False, horizon=4)
    assert environment.observation_space(params).shape == (21, 21, 15)
    _, state = environment.reset(jax.random.key(0), params)
    seen = {
        np.asarray(environment.get_obs(state.replace(permutation=jnp.int32(p)), params)).tobytes()
        for p in range(0, 720, 90)
    }
    assert len(seen) == 1
    frames = []
    for action in (0, 3, 5):
        observation, state, *_ = environment.step_env(jax.random.key(0), state, action, params)
        frames.append(np.asarray(observation))
    # what was seen stays where it was; what is to come is black
    np.testing.assert_array_equal(frames[2][..., :9], frames[1][..., :9])
    assert (frames[2][..., 9:12] != frames[1][..., 9:12]).any()
    assert not frames[2][..., 12:].any()
    # a longer limit cannot be shown, so it does not hold
    longer = params.replace(max_steps_in_episode=9)
    assert bool(environment.is_truncated(state.replace(time=jnp.int32(4)), longer))
    assert environment.exact_returns(longer) == environment.exact_returns(params)
    swap = environment.planted_symmetries(params)[1]
    assert (swap.transform(frames[0]) != frames[0]).any()


def expectimax_over_beliefs(buttons, colours, horizon):
    """The best return when the permutation is hidden: beliefs are sets of permutations."""

    @cache
    def value(belief, progress, steps):
        if steps == 0 or progress == colours:
            return 0.0
        best = -np.inf
        for button in range(buttons):
            right = frozenset(p for p in belief if p[button] == progress)
            wrong = belief - right
            outcome = 0.0
            if right:
                gain = 1.0 + value(right, progress + 1, steps - 1)
                outcome += len(right) / len(belief) * gain
            if wrong:
                gain = -0.5 + value(wrong, progress, steps - 1)
                outcome += len(wrong) / len(belief) * gain
            best = max(best, outcome)
        return best

    return value(frozenset(permutations(range(buttons))), 0, horizon)


@pytest.mark.parametrize(("buttons", "colours", "horizon"), [(3, 2, 4), (4, 3, 6), (4, 3, 3)])
def test_memory_optimum_is_expectimax_over_beliefs(buttons, colours, horizon):
    expected = expectimax_over_beliefs(buttons, colours, horizon)
    assert memory_optimal_return(horizon, buttons, colours) == pytest.approx(expected)


def test_returns():
    button = task("ButtonPermutation")
    assert button.optimal_return() == 5.0
    assert button.random_return() == pytest.approx(blind_random_return(10), abs=1e-5)
    assert button.random_return() == pytest.approx(-2.496, abs=1e-3)
    assert button.random_return(legend=False) == pytest.approx(button.random_return(), abs=1e-5)
    assert button.optimal_return(legend=False) == pytest.approx(0.1396, abs=1e-4)
