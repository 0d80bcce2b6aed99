"""Runs of the baselines from end to end: repeatable, resumable, on the host, many environments."""

import json
import shutil

import gymnasium
import numpy as np
import pytest

from gcr_rl.inspection import inspect_run
from gcr_rl.presets import preset
from gcr_rl.training import checkpoint, resume, train
from gcr_rl.training.run_folder import WALL_CLOCK_FIELDS, read_rows

SMALL = {
    "steps": 360,
    "seeds": (0, 3),
    "network.hidden": (16,),
    "replay.capacity": 128,
    "replay.batch_size": 8,
    "replay.learning_starts": 80,
    "evaluation.every": 180,
    "evaluation.episodes": 2,
    "run.log_every": 90,
    "run.checkpoint_every": 180,
    "run.keep": 10,
}


def rows_of(path, name="log"):
    return [
        {field: value for field, value in row.items() if field not in WALL_CLOCK_FIELDS}
        for row in read_rows(path / f"{name}.jsonl")
    ]


def arrays_of(path):
    return checkpoint.load_newest(path / "checkpoints")[0]


@pytest.mark.parametrize("method", [pytest.param("gcr-rainbow", marks=pytest.mark.slow), "curl"])
def test_a_resumed_run_ends_at_the_same_bits(tmp_path, method):
    """Priorities, noise, slow encoder and views: all of them go on where they were."""
    path = train(preset("NoisyRPSChain", method, SMALL), tmp_path / "run")
    copy = tmp_path / "copy"
    shutil.copytree(path, copy)
    (copy / "summary.json").unlink()
    (copy / "checkpoints" / "step-000000000360.json").unlink()
    resume(copy)
    assert rows_of(path) == rows_of(copy)
    assert rows_of(path, "evaluation") == rows_of(copy, "evaluation")
    first, second = arrays_of(path), arrays_of(copy)
    assert first.keys() == second.keys()
    for name, array in first.items():
        np.testing.assert_array_equal(array, second[name], err_msg=name)
    if method == "curl":
        assert any(".slow" in name for name in first)
        assert rows_of(path)[-1]["contrast_loss"] > 0.0
        return
    leaves = first[".priorities.tree[0]"]
    assert leaves.shape == (2, 128) and len(np.unique(leaves)) > 20
    assert any("weight_scale" in name for name in first)
    found = inspect_run(path, seed=3)
    assert json.dumps(found.data(), allow_nan=False)


def test_rainbow_plays_on_the_host_and_with_several_environments(tmp_path):
    class Line(gymnasium.Env):
        """Right ends it with 1, left with 0."""

        action_space = gymnasium.spaces.Discrete(2)
        observation_space = gymnasium.spaces.Box(-1.0, 1.0, (3,), np.float32)

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            return np.ones(3, np.float32), {}

        def step(self, action):
            return np.zeros(3, np.float32), float(action), True, False, {}

    gymnasium.register("gcr_tests/Line-v0", Line)
    settings = {"loop.num_envs": 2, "value.support_low": 0.0, "value.support_high": 1.0}
    path = train(preset("gym:gcr_tests/Line-v0", "rainbow", {**SMALL, **settings}), tmp_path / "a")
    assert [row["returns"] for row in rows_of(path, "evaluation")][-2:] == [[1.0, 1.0]] * 2
    arrays = arrays_of(path)
    assert arrays[".replay.rows.action"].shape == (2, 64, 2)
    assert arrays[".priorities.tree[0]"].shape == (2, 128)


@pytest.mark.slow
def test_rainbow_solves_a_probe(tmp_path):
    settings = {"steps": 4_000, "seeds": (0,), "evaluation.every": 2_000, "run.log_every": 2_000}
    path = train(preset("Probe-Order", "rainbow", settings), tmp_path / "run")
    assert rows_of(path, "evaluation")[-1]["exact_return"] == pytest.approx(-4.8, abs=0.01)
