"""Rewards pooled by pair: means of the right transitions, and nothing where no pair recurs."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gcr_rl.presets import preset
from gcr_rl.replay import init_pool, noted, pool, pooled
from gcr_rl.training import train
from gcr_rl.training.run_folder import read_rows
from gcr_rl.types import Segment, Transition


def transition(observation, action, reward):
    action = jnp.asarray(action, jnp.int32)
    nothing = jnp.zeros(action.shape, bool)
    return Transition(observation, action, jnp.asarray(reward), observation, nothing, nothing)


def played(states, actions, rewards):
    """The pool after these steps of one environment, and the steps as one segment."""
    found = init_pool()
    for state, action, reward in zip(states, actions, rewards, strict=True):
        found = noted(found, transition(jnp.array([state]), [action], [reward]))
    steps = transition(jnp.array(states)[None], [actions], [rewards])
    return found, Segment(steps, jnp.ones((1, len(states)), bool))


@pytest.mark.parametrize("kind", [jnp.int32, jnp.float32, jnp.uint8])
def test_a_reward_becomes_the_mean_of_its_pair(kind):
    draw = np.random.default_rng(0)
    states, actions = draw.integers(0, 5, 200), draw.integers(0, 3, 200)
    rewards = draw.normal(size=200).astype(np.float32)
    found, segment = played(jnp.asarray(states, kind), actions.tolist(), rewards.tolist())
    pairs = list(zip(states.tolist(), actions.tolist(), strict=True))
    expected = [rewards[(states == s) & (actions == a)].mean() for s, a in pairs]
    np.testing.assert_allclose(pooled(found, segment).steps.reward[0], expected, atol=1e-5)
    assert int(found.seen.sum()) == 200
    assert int((found.seen > 0).sum()) == len(set(pairs))


def test_pairs_that_are_met_once_keep_their_rewards_to_the_bit():
    draw = np.random.default_rng(1)
    states, rewards = draw.normal(size=(60, 3)), draw.normal(size=60).astype(np.float32)
    found, segment = played(jnp.asarray(states), [0] * 60, rewards.tolist())
    np.testing.assert_array_equal(pooled(found, segment).steps.reward[0], rewards)


def test_a_pair_that_finds_its_bucket_taken_keeps_its_own_reward(monkeypatch):
    monkeypatch.setattr(pool, "BUCKETS", 1)
    found, segment = played(jnp.array([7, 7, 8, 8]), [0, 0, 0, 0], [1.0, 3.0, 5.0, 9.0])
    assert pooled(found, segment).steps.reward.tolist() == [[2.0, 2.0, 5.0, 9.0]]


def test_environments_of_one_step_share_the_pool_whatever_their_order():
    state, reward = jnp.array([4, 4, 5, 4]), [1.0, 2.0, 7.0, 6.0]
    for order in ([0, 1, 2, 3], [3, 2, 1, 0]):
        place = jnp.array(order)
        found = noted(init_pool(), transition(state[place], [0] * 4, jnp.array(reward)[place]))
        segment = Segment(transition(state[None], [[0] * 4], [reward]), jnp.ones((1, 4), bool))
        assert pooled(found, segment).steps.reward.tolist() == [[3.0, 3.0, 7.0, 3.0]]


def test_names_tell_pairs_apart_and_see_every_leaf():
    states = jnp.arange(3000)
    bucket, tag = pool.names_of({"a": states, "b": states * 0}, states % 2)
    other = pool.names_of({"a": states, "b": states * 0 + 1}, states % 2)
    names = np.asarray(bucket).astype(np.int64) << 32 | np.asarray(tag)
    assert len(set(names.tolist())) == 3000
    assert not np.any((other[0] == bucket) & (other[1] == tag))
    filled = len(set(np.asarray(bucket).tolist()))  # of 4096, as random draws fill them: 2127
    assert 2000 < filled < 2250
    signs = pool.names_of(jnp.array([[0.0], [-0.0]]), jnp.zeros(2, jnp.int32))
    assert signs[0][0] == signs[0][1] and signs[1][0] == signs[1][1]


def test_under_vmap_every_seed_has_its_own_pool():
    pools = jax.vmap(lambda _: init_pool())(jnp.arange(2))
    steps = transition(jnp.array([[3], [3]]), [[0], [0]], [[1.0], [5.0]])
    pools = jax.vmap(noted)(pools, steps)
    batch = transition(jnp.array([[[3]], [[3]]]), [[[0]], [[0]]], [[[0.0]], [[0.0]]])
    found = jax.vmap(pooled)(pools, Segment(batch, jnp.ones((2, 1, 1), bool)))
    assert found.steps.reward.ravel().tolist() == [1.0, 5.0]


def test_rewards_that_do_not_vary_are_kept_to_the_bit():
    states = np.random.default_rng(2).integers(0, 4, 100)
    rewards = np.array([-1.0, 0.0, 0.5, 3.0])[states].tolist()
    found, segment = played(jnp.asarray(states), [0] * 100, rewards)
    assert pooled(found, segment).steps.reward[0].tolist() == rewards


@pytest.mark.slow
def test_where_rewards_do_not_vary_a_run_is_the_same(tmp_path):
    small = {
        "steps": 300, "network.hidden": (16,), "replay.batch_size": 16,
        "replay.learning_starts": 100, "evaluation.every": 100, "run.checkpoint_every": 300,
    }  # fmt: skip
    rows = []
    for on in (False, True):
        folder = tmp_path / str(on)
        train(preset("Probe-C4", "ddqn", small | {"replay.pooled": on}), folder)
        rows.append([row["q_mean"] for row in read_rows(folder / "log.jsonl") if "q_mean" in row])
    assert rows[0] == rows[1] and rows[0]
