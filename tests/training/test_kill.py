"""kill -9 at random moments, resume each time: the same bits as an uninterrupted run."""

import os
import random
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from gcr_rl.training import checkpoint
from gcr_rl.training.run_folder import WALL_CLOCK_FIELDS, read_rows

pytestmark = pytest.mark.slow

KILLS = 10
OPTIONS = [
    "CartPole", "--steps", "24000", "--seeds", "2", "--replay.learning-starts", "500",
    "--evaluation.every", "1000", "--run.log-every", "250", "--run.checkpoint-every", "500",
    "--network.hidden", "32", "--run.keep", "2",
]  # fmt: skip


def gcr(*words, **keywords):
    return subprocess.Popen(
        [sys.executable, "-m", "gcr_rl.cli", *words],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **keywords,
    )  # fmt: skip


def progress_of(run):
    """Bytes in the logs: grows while the run is alive and past its compilation."""
    return sum(path.stat().st_size for path in run.glob("*.jsonl"))


def kill_when_alive(process, run, random_wait):
    """Kill at a random moment after the logs have begun to grow; False if it ended before."""
    before = progress_of(run)
    while progress_of(run) <= before:
        if process.poll() is not None:
            return False
        time.sleep(0.005)
    time.sleep(random_wait)
    process.send_signal(signal.SIGKILL)
    return process.wait() == -signal.SIGKILL


def rows_of(run, name):
    rows = read_rows(run / f"{name}.jsonl")
    return [{k: v for k, v in row.items() if k not in WALL_CLOCK_FIELDS} for row in rows]


def test_killed_ten_times_and_still_the_same_bits(tmp_path):
    environment = {**os.environ, "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false"}
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    assert gcr("train", *OPTIONS, "--out", str(whole), env=environment).wait() == 0
    moments = random.Random(0)
    broken.mkdir()
    process = gcr("train", *OPTIONS, "--out", str(broken), env=environment)
    kills = 0
    while kills < KILLS:
        if not kill_when_alive(process, broken, moments.uniform(0.0, 0.12)):
            break
        kills += 1
        # any command that reads the folder must cope with what the kill left behind
        process = gcr("resume", str(broken), env=environment)
    assert process.wait() == 0
    assert kills == KILLS, f"the run ended after {kills} kills: make it longer"
    for name in ("log", "evaluation"):
        assert rows_of(broken, name) == rows_of(whole, name)
    mine = checkpoint.load_newest(broken / "checkpoints")[0]
    theirs = checkpoint.load_newest(whole / "checkpoints")[0]
    assert mine.keys() == theirs.keys()
    for name, array in mine.items():
        np.testing.assert_array_equal(array, theirs[name], err_msg=name)
