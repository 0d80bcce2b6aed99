"""The host loop on Gymnasium environments: what is stored, what is refused, that it learns."""

from typing import ClassVar

import gymnasium
import numpy as np
import pytest

from gcr_rl.envs import external
from gcr_rl.envs.external import ExternalSlots, describe
from gcr_rl.errors import InputError, RunFailed
from gcr_rl.presets import preset
from gcr_rl.training import checkpoint, evaluate, load, play, resume, train
from gcr_rl.training.run_folder import read_rows

SMALL = {
    "steps": 240,
    "seeds": (0, 1),
    "network.hidden": (16,),
    "replay.capacity": 128,
    "replay.batch_size": 8,
    "replay.learning_starts": 40,
    "evaluation.every": 120,
    "evaluation.episodes": 2,
    "run.log_every": 60,
    "run.checkpoint_every": 120,
}


class Corridor(gymnasium.Env):
    """Counts its steps in the observation; ends after 5 (terminated) or 7 (truncated)."""

    action_space = gymnasium.spaces.Discrete(2, start=1)
    observation_space = gymnasium.spaces.Box(0.0, 100.0, (2,), np.float32)
    episodes = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.episodes += 1
        self.time = 0
        return np.array([self.episodes, 0.0], np.float32), {}

    def step(self, action):
        assert action in (1, 2)
        self.time += 1
        terminated = bool(self.time == 5 and self.episodes % 2)
        truncated = self.time == 7
        observation = np.array([self.episodes, self.time], np.float32)
        return observation, 1.0, terminated, truncated, {}


class Pixels(Corridor):
    observation_space = gymnasium.spaces.Box(0, 255, (12, 12, 3), np.uint8)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.full((12, 12, 3), self.time, np.uint8), {}

    def step(self, action):
        _, reward, terminated, truncated, info = super().step(action)
        return np.full((12, 12, 3), self.time, np.uint8), reward, terminated, truncated, info


@pytest.fixture(scope="module", autouse=True)
def registered():
    gymnasium.register("gcr_tests/Corridor-v0", Corridor)
    gymnasium.register("gcr_tests/Pixels-v0", Pixels)


def test_final_observations_are_kept_apart_from_reset_ones():
    slots = ExternalSlots(describe("gym:gcr_tests/Corridor-v0", {}), 2)
    slots.reset([0, 1])
    seen = [slots.step(np.array([0, 1])) for _ in range(12)]
    ends = [t for t, step in enumerate(seen) if step.terminated[0] or step.truncated[0]]
    assert ends == [4, 11]
    np.testing.assert_array_equal(seen[4].final[0], [1, 5])
    np.testing.assert_array_equal(seen[4].following[0], [2, 0])
    assert seen[4].terminated[0] and not seen[4].truncated[0]
    np.testing.assert_array_equal(seen[11].final[0], [2, 7])
    assert seen[11].truncated[0] and not seen[11].terminated[0]


def test_no_stored_transition_crosses_a_reset(tmp_path):
    path = train(preset("gym:gcr_tests/Corridor-v0", "ddqn", SMALL), tmp_path / "run")
    arrays, _, _ = checkpoint.load_newest(path / "checkpoints")
    before = arrays[".replay.rows.observation"][:, :, 0]
    after = arrays[".replay.rows.next_observation"][:, :, 0]
    np.testing.assert_array_equal(before[..., 0], after[..., 0])  # the same episode
    np.testing.assert_array_equal(before[..., 1] + 1, after[..., 1])  # the next step of it
    ends = arrays[".replay.rows.terminated"][..., 0]
    np.testing.assert_array_equal(ends, (after[..., 1] == 5) & (after[..., 0] % 2 == 1))
    np.testing.assert_array_equal(arrays[".replay.rows.truncated"][..., 0], after[..., 1] == 7)


def test_a_run_can_be_resumed_evaluated_and_loaded(tmp_path):
    path = train(preset("gym:gcr_tests/Corridor-v0", "ddqn", SMALL), tmp_path / "run")
    rows = read_rows(path / "evaluation.jsonl")
    assert [row["step"] for row in rows] == [0, 0, 120, 120, 240, 240]
    assert {value for row in rows for value in row["returns"]} <= {5.0, 7.0}
    (path / "summary.json").unlink()
    newest = max(checkpoint.steps(path / "checkpoints"))
    (path / "checkpoints" / f"step-{newest:012d}.json").unlink()
    resume(path)
    assert [row["step"] for row in read_rows(path / "evaluation.jsonl")] == [
        0,
        0,
        120,
        120,
        240,
        240,
    ]
    fresh = evaluate(path, episodes=3)
    assert len(fresh) == 2 and len(fresh[0]["returns"]) == 3
    assert load(path).q_values(np.zeros(2, np.float32)).shape == (2,)
    with pytest.raises(InputError, match="drawn"):
        play(path)


def test_images_train_with_the_small_cnn(tmp_path):
    config = preset("gym:gcr_tests/Pixels-v0", "dqn", {**SMALL, "seeds": (0,), "steps": 120})
    path = train(config, tmp_path / "run")
    arrays, _, _ = checkpoint.load_newest(path / "checkpoints")
    assert arrays[".replay.rows.observation"].dtype == np.uint8
    assert any("convolutions" in name for name in arrays)


@pytest.mark.parametrize(
    ("identifier", "reason"),
    [
        ("Pendulum-v1", "discrete action space"),
        ("FrozenLake-v1", "vector or image observations"),
        ("NoSuchThing-v0", "Gymnasium can make"),
        ("::", "Gymnasium can make"),
    ],
)
def test_what_cannot_be_trained_is_refused_before_anything_is_written(tmp_path, identifier, reason):
    with pytest.raises(InputError, match=reason):
        train(preset(f"gym:{identifier}", "ddqn", SMALL), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_our_own_registered_task_trains_through_gymnasium(tmp_path):
    config = preset("gym:gcr_rl/NoisyRPSChain-v0", "ddqn", {**SMALL, "seeds": (0,), "steps": 120})
    assert train(config, tmp_path / "run").joinpath("summary.json").exists()


class Fragile(Corridor):
    def step(self, action):
        if self.episodes == 3:
            raise ZeroDivisionError("three is too many")
        return super().step(action)


def test_an_error_in_the_environment_is_blamed_on_it(tmp_path):
    gymnasium.register("gcr_tests/Fragile-v0", Fragile)
    with pytest.raises(RunFailed, match=r"Fragile-v0 raised ZeroDivisionError: three"):
        train(preset("gym:gcr_tests/Fragile-v0", "ddqn", SMALL), tmp_path / "run")


def test_a_seed_does_not_depend_on_its_neighbours(tmp_path):
    """Gymnasium's CartPole starts at random: the slots of a seed are seeded by it alone."""
    config = preset("gym:CartPole-v1", "ddqn", {**SMALL, "evaluation.epsilon": 0.3, "steps": 120})
    both = train(config, tmp_path / "both")
    alone = train(config.replace({"seeds": (1,)}), tmp_path / "alone")
    mine = [row["returns"] for row in read_rows(both / "evaluation.jsonl") if row["seed"] == 1]
    assert mine[0] == read_rows(alone / "evaluation.jsonl")[0]["returns"]
    first = [checkpoint.load_newest(path / "checkpoints")[0] for path in (both, alone)]
    name = ".replay.rows.observation"
    np.testing.assert_array_equal(first[0][name][1, :5], first[1][name][0, :5])


class Endless(Corridor):
    """Never ends by itself."""

    metadata: ClassVar = {"render_modes": ["rgb_array"], "render_fps": 30}

    def __init__(self, render_mode=None):
        self.render_mode = render_mode

    def step(self, action):
        self.time += 1
        return np.array([self.episodes, self.time], np.float32), 1.0, False, False, {}

    def render(self):
        return np.zeros((2, 2, 3), np.uint8)


def test_an_environment_that_never_ends_is_cut_and_that_is_said(tmp_path, monkeypatch):
    gymnasium.register("gcr_tests/Endless-v0", Endless)
    monkeypatch.setattr(external, "EPISODE_LIMIT", 30)
    monkeypatch.setattr(external, "FRAME_LIMIT", 20)
    config = preset("gym:gcr_tests/Endless-v0", "ddqn", {**SMALL, "steps": 120})
    with pytest.warns(RuntimeWarning, match="4 of 4 evaluation episodes were cut after 30 steps"):
        path = train(config, tmp_path / "run")
    for row in read_rows(path / "evaluation.jsonl"):
        assert row["lengths"] == [30, 30] and row["returns"] == [30.0, 30.0]
    with pytest.warns(RuntimeWarning, match="the drawn episode was cut after 20 steps"):
        assert len(play(path)) == 20 + 1


@pytest.mark.parametrize(
    ("options", "limit"),
    [({}, 500), ({"max_episode_steps": 7}, 7), ({"max_episode_steps": -1}, 10_000)],
)
def test_the_limit_of_an_environment_is_its_own_or_ours(options, limit):
    assert describe("gym:CartPole-v1", options).episode_limit == limit


def test_an_environment_with_a_limit_of_its_own_ends_there_without_a_word(tmp_path, recwarn):
    gymnasium.register("gcr_tests/Limited-v0", Endless, max_episode_steps=9)
    config = preset("gym:gcr_tests/Limited-v0", "ddqn", {**SMALL, "steps": 120})
    path = train(config, tmp_path / "run")
    assert read_rows(path / "evaluation.jsonl")[-1]["lengths"] == [9, 9]
    assert not [warning for warning in recwarn if "time limit" in str(warning.message)]


def test_whole_numbers_keep_their_values():
    class Wide(Corridor):
        observation_space = gymnasium.spaces.Box(-(2**62), 2**62, (2,), np.int64)

    class Dark(Corridor):
        observation_space = gymnasium.spaces.Box(-5, 0, (2,), np.int16)

    gymnasium.register("gcr_tests/Wide-v0", Wide)
    gymnasium.register("gcr_tests/Dark-v0", Dark)
    wide, dark = describe("gym:gcr_tests/Wide-v0", {}), describe("gym:gcr_tests/Dark-v0", {})
    assert wide.dtype == np.float32 and wide.scale == 1.0
    assert dark.dtype == np.int16 and dark.scale == 1.0
    assert describe("gym:gcr_tests/Pixels-v0", {}).scale == 1 / 255
