"""Seeds over several devices: what one device computes, but for the last bits of sums."""

import os
import shutil
import subprocess
import sys
from types import SimpleNamespace

import jax
import numpy as np
import pytest

from gcr_rl.presets import preset
from gcr_rl.training import checkpoint, resume, sharding, train
from gcr_rl.training.run_folder import WALL_CLOCK_FIELDS, read_rows, read_summary
from gcr_rl.training.runner import build_program

PLAIN = {
    "steps": 600, "seeds": (0, 3, 4, 7), "network.hidden": (16,), "replay.capacity": 256,
    "replay.batch_size": 16, "replay.learning_starts": 130, "evaluation.every": 200,
    "evaluation.episodes": 3, "run.log_every": 100, "run.checkpoint_every": 150, "run.keep": 10,
}  # fmt: skip
CERTIFIED = {
    "steps": 2_500, "seeds": (0, 1), "network.hidden": (16, 16), "order.horizons": (4,),
    "replay.batch_size": 16, "replay.learning_starts": 2_300, "evaluation.every": 500,
    "evaluation.episodes": 2, "run.log_every": 500, "run.checkpoint_every": 500, "run.keep": 10,
}  # fmt: skip
RUNS = {
    "plain": ("NoisyRPSChain", "ddqn", PLAIN),
    "certified": ("Probe-D4", "gcr-hard", CERTIFIED),
}
COUNTS_OF_BRANCHES = ("manifold_active", "manifold_accepted", "edges_kept", "edges_refused")
"""A last bit may turn one over."""
PROGRAM = """
import sys
from pathlib import Path
import jax
from gcr_rl.training import resume, train
from test_sharding import RUNS, config_of, copy_until
from gcr_rl.training.runner import build_program
assert jax.device_count() == 4
out = Path(sys.argv[1])
for name in RUNS:
    assert build_program(config_of(name)).devices == len(config_of(name).seeds)
    train(config_of(name), out / name)
copy_until(2_000, out / "certified", out / "resumed")
resume(out / "resumed")
"""


def config_of(name):
    task, method, values = RUNS[name]
    return preset(task, method, values)


def copy_until(step, run, copy):
    """A copy of a finished run as it stood after the checkpoint at ``step``, logs uncut."""
    shutil.copytree(run, copy)
    (copy / "summary.json").unlink()
    for path in (copy / "checkpoints").iterdir():
        if int(path.stem.split("-")[1]) > step:
            path.unlink()


@pytest.fixture(scope="module")
def four(tmp_path_factory):
    """Runs of a process with four devices."""
    folder = tmp_path_factory.mktemp("devices")
    flags = "--xla_force_host_platform_device_count=4"
    places = [os.path.dirname(__file__), *sys.path]
    environment = {
        **os.environ,
        "XLA_FLAGS": f"{os.environ.get('XLA_FLAGS', '')} {flags}",
        "PYTHONPATH": os.pathsep.join(place for place in places if place),
    }
    subprocess.run([sys.executable, "-c", PROGRAM, str(folder)], env=environment, check=True)
    return folder


def rows_of(run, name):
    return [
        {field: value for field, value in row.items() if field not in WALL_CLOCK_FIELDS}
        for row in read_rows(run / f"{name}.jsonl")
    ]


def arrays_of(run):
    return checkpoint.load_newest(run / "checkpoints")[0]


def assert_close_rows(first, second):
    for log in ("log", "evaluation"):
        for mine, theirs in zip(rows_of(first, log), rows_of(second, log), strict=True):
            assert mine.keys() == theirs.keys()
            for field, value in mine.items():
                if value is not None and field not in COUNTS_OF_BRANCHES:
                    where = f"{field} of seed {mine['seed']} at step {mine['step']}"
                    np.testing.assert_allclose(
                        value, theirs[field], rtol=1e-3, atol=1e-5, err_msg=where
                    )


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_several_devices_compute_what_one_does(four, tmp_path, name):
    assert build_program(config_of(name)).devices == jax.local_device_count() == 1
    one = train(config_of(name), tmp_path / "one")
    assert_close_rows(one, four / name)
    ours, theirs = arrays_of(one), arrays_of(four / name)
    assert ours.keys() == theirs.keys()
    for path, array in ours.items():
        assert array.shape == theirs[path].shape and array.dtype == theirs[path].dtype
        if not np.issubdtype(array.dtype, np.floating):  # actions, ends, counters, keys, groups
            np.testing.assert_array_equal(array, theirs[path], err_msg=path)


@pytest.mark.slow
def test_a_group_was_in_force(four):
    """Else the run that certifies would show nothing of how groups are placed."""
    found = read_summary(four / "certified")["symmetry"]
    assert [found[seed]["name"] for seed in ("0", "1")] == ["D4", "D4"]
    assert rows_of(four / "certified", "log")[-1]["symmetry_in_force"] > 0


@pytest.mark.slow
def test_a_resumed_run_continues_to_the_same_bits(four):
    for log in ("log", "evaluation"):
        assert rows_of(four / "certified", log) == rows_of(four / "resumed", log)
    ours, theirs = arrays_of(four / "certified"), arrays_of(four / "resumed")
    for path, array in ours.items():
        np.testing.assert_array_equal(array, theirs[path], err_msg=path)


@pytest.mark.slow
def test_a_run_moves_from_four_devices_to_one(four, tmp_path):
    copy_until(300, four / "plain", tmp_path / "moved")
    resume(tmp_path / "moved")
    assert_close_rows(four / "plain", tmp_path / "moved")
    assert read_summary(tmp_path / "moved")["status"] == "finished"


@pytest.mark.parametrize(
    ("seeds", "devices", "used"), [(16, 4, 4), (6, 4, 3), (7, 4, 1), (2, 8, 2), (8, 1, 1)]
)
def test_the_largest_number_of_devices_that_divides_the_seeds(monkeypatch, seeds, devices, used):
    there = jax.local_devices() * devices
    monkeypatch.setattr(sharding, "jax", SimpleNamespace(local_devices=lambda: there[:devices]))
    monkeypatch.setattr(sharding, "Mesh", lambda array, names: len(array))
    assert (sharding.seed_mesh(seeds) or 1) == used
