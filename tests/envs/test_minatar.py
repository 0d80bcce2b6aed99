"""MinAtar as tasks: gymnax's games, unchanged but for types, bits and ends."""

import gymnax
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gcr_rl.envs import make, task
from gcr_rl.envs.minatar import pack, unpack
from gcr_rl.envs.simulator import make_simulator

GAMES = ("Breakout", "Asterix", "Freeway", "SpaceInvaders")
STEPS = 200
every = pytest.mark.parametrize("game", GAMES)
# Asterix and Freeway are long programs, slow to compile.
some_slow = pytest.mark.parametrize(
    "game",
    [pytest.param(g, marks=[pytest.mark.slow] * (g in ("Asterix", "Freeway"))) for g in GAMES],
)


def play(environment, params, key):
    """(observations, rewards, ends) of random play that goes on after an end, and the start."""
    observation, state = environment.reset_env(jax.random.fold_in(key, 0), params)
    state = jax.tree.map(jnp.asarray, state)

    def step(state, key):
        action = jax.random.randint(key, (), 0, environment.num_actions)
        seen, after, reward, ended, _ = environment.step_env(key, state, action, params)
        after = jax.tree.map(lambda new, old: jnp.asarray(new, old.dtype), after, state)
        return after, (seen, reward, ended)

    return observation, *jax.lax.scan(step, state, jax.random.split(key, STEPS))[1]


@some_slow
def test_plays_as_gymnax_does(game):
    mine, params = make(f"MinAtar-{game}")
    theirs, their_params = gymnax.make(f"{game}-MinAtar")
    assert params.max_steps_in_episode == their_params.max_steps_in_episode
    assert mine.num_actions == theirs.num_actions
    first, seen, reward, ended = jax.jit(lambda k: play(mine, params, k))(jax.random.key(3))
    expected = jax.jit(lambda k: play(theirs, their_params, k))(jax.random.key(3))
    assert first.dtype == seen.dtype == jnp.uint8
    for got, wanted in zip((first, seen, reward, ended), expected, strict=True):
        np.testing.assert_array_equal(got, wanted)
    assert set(np.unique(seen).tolist()) == {0, 1}
    assert game != "SpaceInvaders" or float(reward.sum()) > 0  # elsewhere it may well be 0


@some_slow
def test_an_end_is_a_loss_and_the_horizon_a_cut(game):
    environment, params = make(f"MinAtar-{game}", horizon=STEPS)
    simulator = make_simulator(environment, params)

    def episode(key):
        state, _ = simulator.reset(key)

        def step(carry, key):
            state, over = carry
            action = jax.random.randint(key, (), 0, simulator.num_actions)
            after = simulator.step(key, state, action)
            ends = ~over & (after.terminated | after.truncated)
            kinds = (ends & after.terminated, ends & after.truncated, after.state.time)
            return (after.state, over | after.terminated | after.truncated), kinds

        keys = jax.random.split(jax.random.fold_in(key, 1), STEPS)
        return jax.lax.scan(step, (state, jnp.bool_(False)), keys)[1]

    terminated, truncated, time = jax.jit(jax.vmap(episode))(
        jax.random.split(jax.random.key(0), 16)
    )
    assert ((terminated.sum(1) + truncated.sum(1)) == 1).all()
    np.testing.assert_array_equal(time[np.asarray(truncated)], STEPS)
    if game == "Freeway":
        assert not bool(terminated.any())
    else:
        assert bool(terminated.any())


@every
def test_replay_keeps_bits(game):
    environment, params = make(f"MinAtar-{game}")
    planes = np.random.default_rng(0).integers(0, 2, environment.obs_shape).astype(np.uint8)
    words = pack(jnp.asarray(planes))
    assert words.dtype == jnp.int32 and words.size == -(-planes.size // 32)
    np.testing.assert_array_equal(unpack(words, planes.shape[-1]), planes)
    np.testing.assert_array_equal(environment.observation_of(words, params), planes)
    ones = jnp.ones(environment.obs_shape, jnp.uint8)
    np.testing.assert_array_equal(unpack(pack(ones), planes.shape[-1]), ones)


@every
def test_returns_are_stated_where_they_were_measured(game):
    known = task(f"MinAtar-{game}")
    assert known.optimal_return() is None and known.threshold is None
    assert 0.1 < known.random_return() < 10.0
    assert known.random_return(horizon=50) is None
