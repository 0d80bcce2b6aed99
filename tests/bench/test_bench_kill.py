"""kill -9 of a suite at random moments: no finished job repeated, none lost, the same table."""

import json
import os
import random
import signal
import subprocess
import sys
import time

import pytest

pytestmark = pytest.mark.slow

KILLS = 5
SUITE = """
[[experiment]]
tasks = ["Probe-TwoState"]
methods = ["ddqn", "dqn"]
seeds = 2
steps = 6_000
env.horizon = [5, 10, 15]
[experiment.overrides]
network.hidden = [8]
replay.learning_starts = 50
evaluation.every = 500
evaluation.episodes = 2
run.log_every = 100
run.checkpoint_every = 500
"""
JOBS = 6


def bench(suite, store, processes):
    return subprocess.Popen(
        [sys.executable, "-m", "gcr_rl.cli", "bench", str(suite), "--out", str(store),
         "--jobs", str(processes)],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        env={**os.environ, "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false"},
    )  # fmt: skip


def progress_of(store):
    """Bytes in all logs: grows while a job is at work."""
    return sum(path.stat().st_size for path in store.glob("jobs/*/*.jsonl"))


def finished(store):
    """What only a second run of a finished job would change: when it began, and its files."""
    return {
        path.parent.name: (
            path.stat().st_ino,
            path.stat().st_mtime_ns,
            (path.parent / "provenance.json").read_text(),
        )
        for path in store.glob("jobs/*/summary.json")
    }


def kill_at_a_random_moment(process, store, wait):
    before = progress_of(store)
    while progress_of(store) <= before:
        if process.poll() is not None:
            return False
        time.sleep(0.005)
    time.sleep(wait)
    process.send_signal(signal.SIGKILL)
    return process.wait() == -signal.SIGKILL


def table_of(store):
    report = store / "reports" / "small-full" / "report"
    index = json.loads((report / "report.json").read_text())
    page = (report / "report.md").read_text().split("## Sources")[0]
    return page, index["rows"], [figure["curves"] for figure in index["figures"]]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    (folder / "small.toml").write_text(SUITE)
    assert bench(folder / "small.toml", folder / "store", 1).wait() == 0
    assert len(finished(folder / "store")) == JOBS
    return folder


@pytest.mark.parametrize("processes", [1, 2])
def test_killed_five_times_and_still_the_same_table(whole, tmp_path, processes):
    store, moments = tmp_path / "store", random.Random(processes)
    kept, kills = {}, 0
    process = bench(whole / "small.toml", store, processes)
    while kills < KILLS:
        if not kill_at_a_random_moment(process, store, moments.uniform(0.0, 1.0)):
            break
        kills += 1
        now = finished(store)
        assert kept.items() <= now.items(), "a finished job was run again or lost"
        kept = now
        process = bench(whole / "small.toml", store, processes)
    assert process.wait() == 0
    assert kills == KILLS, f"the suite ended after {kills} kills: make it longer"
    assert kept.items() <= finished(store).items()
    assert len(finished(store)) == JOBS and not (store / "failures").exists()
    assert table_of(store) == table_of(whole / "store")


def test_a_worker_that_is_killed_fails_its_job_alone(whole, tmp_path):
    store = tmp_path / "store"
    process = bench(whole / "small.toml", store, 2)
    workers = []
    while not progress_of(store):
        time.sleep(0.01)
        assert process.poll() is None
    listing = subprocess.run(
        ["ps", "--ppid", str(process.pid), "-o", "pid="], capture_output=True, text=True, check=True
    )
    workers = [int(word) for word in listing.stdout.split()]
    os.kill(workers[0], signal.SIGKILL)
    assert process.wait() == 3  # a failed job, after all others have ended
    assert len(finished(store)) == JOBS - 1
    (failure,) = (store / "failures").glob("*.json")
    assert "ended with signal 9" in json.loads(failure.read_text())["reason"]
    again = [sys.executable, "-m", "gcr_rl.cli", "bench", str(whole / "small.toml"),
             "--out", str(store), "--retry"]  # fmt: skip
    assert subprocess.run(again, capture_output=True, check=False).returncode == 0
    assert table_of(store) == table_of(whole / "store")


@pytest.mark.parametrize("processes", [1, 2])
def test_a_suite_that_is_asked_to_stop_saves_what_it_has(whole, tmp_path, processes):
    store = tmp_path / "store"
    process = bench(whole / "small.toml", store, processes)
    while not progress_of(store):
        time.sleep(0.01)
        assert process.poll() is None
    process.send_signal(signal.SIGTERM)
    assert process.wait() == 130
    stopped = [path for path in store.glob("jobs/*") if not (path / "summary.json").exists()]
    assert stopped and not (store / "failures").exists()
    assert bench(whole / "small.toml", store, processes).wait() == 0
    assert table_of(store) == table_of(whole / "store")
