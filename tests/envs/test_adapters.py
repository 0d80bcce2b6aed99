"""Gymnasium's own checker, its vector conventions, and the five-value step."""

import subprocess
import sys
import warnings

import gymnasium
import jax
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode

from gcr_rl.envs import TASKS, make
from gcr_rl.envs.adapters import SingleEnvironment, VectorEnvironment, five_value_step, register
from gcr_rl.errors import InputError

register()
CASES = [(name, {}) for name in TASKS] + [("ButtonPermutation", {"legend": False})]


@pytest.mark.parametrize(("name", "options"), CASES, ids=[n + str(len(o)) for n, o in CASES])
def test_check_env(name, options):
    environment = gymnasium.make(f"gcr_rl/{name}-v0", render_mode="rgb_array", **options)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # Gymnasium warns about unbounded spaces; CartPole's velocities are just that
        warnings.filterwarnings("ignore", message=".*(infinity|Inf).*")
        check_env(environment.unwrapped)
    assert environment.unwrapped.spec is not None


def test_registering_twice_changes_nothing():
    before = dict(gymnasium.registry)
    register()
    assert dict(gymnasium.registry) == before


def test_registration_imports_neither_jax_nor_gymnax():
    code = (
        "import sys, gcr_rl.envs.adapters as a; a.register(); "
        "print(sorted({'jax', 'gymnax'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_seed_repeats_a_whole_episode_and_two_seeds_differ():
    def episode(seed):
        environment = SingleEnvironment("NoisyRPSChain", horizon=12)
        environment.reset(seed=seed)
        return [environment.step(1)[1] for _ in range(12)]

    assert episode(5) == episode(5)
    assert episode(5) != episode(6)


def test_single_environment_truncates_at_its_own_horizon():
    environment = gymnasium.make("gcr_rl/RotMirrorGrid-v0", horizon=3)
    environment.reset(seed=0)
    # an agent that cannot reach the goal in three steps from this start
    flags = [environment.step(0)[2:4] for _ in range(3)]
    assert flags == [(False, False), (False, False), (False, True)]


def test_vector_form_repeats_the_single_form_and_resets_in_the_same_step():
    count, steps, seed = 3, 25, 11
    vector = gymnasium.make_vec("gcr_rl/NoisyRPSChain-v0", num_envs=count, horizon=10)
    assert isinstance(vector.unwrapped, VectorEnvironment)
    assert vector.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP
    actions = np.random.default_rng(0).integers(0, 3, (steps, count))
    first, _ = vector.reset(seed=seed)
    assert first in vector.observation_space
    seen = [vector.step(row) for row in actions]

    ended = 0
    for place in range(count):
        single = SingleEnvironment("NoisyRPSChain", horizon=10)
        observation, _ = single.reset(seed=seed + place)
        np.testing.assert_array_equal(first[place], observation)
        for step in range(steps):
            observation, reward, terminated, truncated, _ = single.step(int(actions[step, place]))
            batch, rewards, terminations, truncations, infos = seen[step]
            assert rewards[place] == pytest.approx(reward)
            assert (terminations[place], truncations[place]) == (terminated, truncated)
            if terminated or truncated:
                ended += 1
                assert infos["_final_obs"][place]
                np.testing.assert_array_equal(infos["final_obs"][place], observation)
                observation, _ = single.reset()
            elif infos:
                assert not infos["_final_obs"][place] and infos["final_obs"][place] is None
            np.testing.assert_array_equal(batch[place], observation)
    assert ended >= 2 * count


def test_infos_have_the_form_of_gymnasiums_own_same_step_vector():
    def make_single():
        return SingleEnvironment("Probe-TwoState", horizon=1)

    own = gymnasium.vector.SyncVectorEnv(
        [make_single, make_single], autoreset_mode=AutoresetMode.SAME_STEP
    )
    ours = VectorEnvironment("Probe-TwoState", num_envs=2, horizon=1)
    for vector in (own, ours):
        vector.reset(seed=0)
    expected, got = own.step(np.array([0, 1]))[4], ours.step(np.array([0, 1]))[4]
    assert expected.keys() == got.keys()
    assert expected["final_info"] == got["final_info"]
    np.testing.assert_array_equal(expected["_final_obs"], got["_final_obs"])
    for left, right in zip(expected["final_obs"], got["final_obs"], strict=True):
        np.testing.assert_array_equal(left, right)


def test_vector_seeds_and_pictures():
    vector = VectorEnvironment("RotMirrorGrid", num_envs=2, render_mode="rgb_array")
    assert vector.render() is None
    listed, _ = vector.reset(seed=[3, None])
    np.testing.assert_array_equal(listed[0], SingleEnvironment("RotMirrorGrid").reset(seed=3)[0])
    assert [picture.shape for picture in vector.render()] == [(228, 228, 3)] * 2
    again, _ = vector.reset()
    assert (again != listed).any()


@pytest.mark.parametrize(
    ("attempt", "field"),
    [
        (lambda: SingleEnvironment("CartPole", render_mode="human"), "render_mode"),
        (lambda: SingleEnvironment("CartPole", colour=1), "option of CartPole"),
        (lambda: SingleEnvironment("Probe-Order").step(0), "step"),
        (lambda: VectorEnvironment("CartPole", num_envs=0), "num_envs"),
        (lambda: VectorEnvironment("CartPole", num_envs=2).reset(seed=[1]), "seed"),
    ],
)
def test_bad_input_names_its_field(attempt, field):
    with pytest.raises(InputError) as caught:
        attempt()
    assert caught.value.field == field


def test_bad_actions_are_refused():
    single = SingleEnvironment("Probe-Order")
    single.reset(seed=0)
    with pytest.raises(InputError):
        single.step(2)
    vector = VectorEnvironment("Probe-Order", num_envs=2)
    vector.reset(seed=0)
    with pytest.raises(InputError):
        vector.step(np.array([0, -1]))


def test_five_value_step():
    environment, params = make("Probe-TwoState", horizon=2)
    wrapped = five_value_step(environment)
    _, state = wrapped.reset(jax.random.key(0), params)
    _, state, reward, done, _ = wrapped.step(jax.random.key(1), state, 1, params)
    assert not bool(done) and float(reward) == 0.0
    observation, state, reward, done, info = wrapped.step(jax.random.key(2), state, 0, params)
    assert bool(done) and bool(info["terminated"]) and float(reward) == 1.0
    assert int(state.time) == 0 and observation.tolist() == [1.0, 0.0, 0.0]
    assert info["final_observation"].tolist() == [0.0, 0.0, 1.0]
