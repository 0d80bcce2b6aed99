"""A real Ray cluster of which a machine is killed: every job ends, none twice."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from gcr_rl.bench import Job, Store, run_jobs
from gcr_rl.bench.engine import Quiet
from gcr_rl.bench.ray_cluster import Demand
from gcr_rl.bench.ray_engine import run_on_ray
from gcr_rl.errors import InputError
from gcr_rl.presets import preset
from gcr_rl.training import checkpoint
from gcr_rl.training.run_folder import WALL_CLOCK_FIELDS, read_rows

pytestmark = [pytest.mark.foreign, pytest.mark.slow]
ray = pytest.importorskip("ray", reason="the extra ray is not installed")

SMALL = {
    "seeds": (0, 1), "network.hidden": (8,), "replay.learning_starts": 50,
    "evaluation.every": 500, "evaluation.episodes": 2, "run.log_every": 100,
    "run.checkpoint_every": 500,
}  # fmt: skip


def job(horizon, steps, method="ddqn"):
    return Job(
        preset("Probe-TwoState", method, {**SMALL, "steps": steps, "env": {"horizon": horizon}})
    )


LONG = [job(5, 20_000), job(10, 20_000)]
SHORT = [job(5, 1_000), job(5, 1_000, "dqn")]


@pytest.fixture
def cluster():
    from ray.cluster_utils import Cluster

    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    soon = {
        "health_check_initial_delay_ms": 0, "health_check_period_ms": 500,
        "health_check_failure_threshold": 4,
    }  # fmt: skip
    head = {"num_cpus": 0, "include_dashboard": False, "_system_config": soon}
    there = Cluster(initialize_head=True, head_node_args=head)
    there.first = there.add_node(num_cpus=1)
    there.wait_for_nodes()
    yield there
    ray.shutdown()
    there.shutdown()


class Recorder(Quiet):
    """Remembers every beginning, step and word; ``at`` is called after each update."""

    def __init__(self, at=lambda recorder: None):
        super().__init__()
        self.starts, self.steps, self.said, self.at = [], {}, [], at

    def begin(self, job):
        recorder = self

        class Reporter:
            def start(self, label, step, total):
                recorder.starts.append((job.key, step))

            def update(self, step, mean_return, loss):
                recorder.steps[job.key] = step
                recorder.at(recorder)

            def say(self, message):
                recorder.said.append(message)

            def stop(self):
                pass

        return Reporter()

    def say(self, message):
        self.said.append(message)


def rows_of(store, key):
    return [
        {k: v for k, v in row.items() if k not in WALL_CLOCK_FIELDS}
        for name in ("log", "evaluation")
        for row in read_rows(store.folder(key) / f"{name}.jsonl")
    ]


def test_a_machine_is_killed_and_every_job_ends_once(cluster, tmp_path):
    """It alone has the work when it goes, so it is in the middle of a job; two take its place."""
    store, jobs, killed = Store(tmp_path / "store"), LONG + SHORT, []

    def kill_it(recorder):
        sent = checkpoint.steps(store.folder(LONG[0].key) / "checkpoints")
        if not killed and max(sent, default=0) > 0:
            killed.append(dict(recorder.steps))
            cluster.remove_node(cluster.first, allow_graceful=False)
            for _ in range(2):
                cluster.add_node(num_cpus=1)

    recorder = Recorder(kill_it)
    run_on_ray(
        store, jobs, lambda j: f"gcr bench --only {j.key}", recorder,
        address=cluster.address, save_every=0.0,
    )  # fmt: skip
    assert len(killed) == 1 and list(killed[0]) == [LONG[0].key]
    assert 0 < killed[0][LONG[0].key] < 20_000
    assert sum("lost the worker" in line for line in recorder.said) == 1
    assert sorted(recorder.ended) == sorted((j.key, "finished", "") for j in jobs)
    assert sorted(path.name for path in (store.root / "jobs").iterdir()) == sorted(
        j.key for j in jobs
    )
    assert not list((store.root / "incoming").iterdir()) and not (store.root / "failures").exists()
    begun = [key for key, _ in recorder.starts]
    assert sorted(begun) == sorted([*(j.key for j in jobs), LONG[0].key])
    assert [step > 0 for key, step in recorder.starts if key == LONG[0].key] == [False, True]
    alone = Store(tmp_path / "alone")
    run_jobs(alone, jobs)
    for one in jobs:
        assert rows_of(store, one.key) == rows_of(alone, one.key)
        provenance = json.loads((store.folder(one.key) / "provenance.json").read_text())
        assert provenance["command"] == f"gcr bench --only {one.key}"


def test_demands_that_no_machine_meets_and_jobs_that_fail(cluster, tmp_path):
    store = Store(tmp_path)
    with pytest.raises(InputError, match="what a machine of the cluster has"):
        run_on_ray(
            store, SHORT, lambda j: "", Quiet(), address=cluster.address, demand=Demand(64.0)
        )
    overflow = {"steps": 1_000, "env": {"sigma": 1e30}, "value.loss": "squared"}
    burst = Job(preset("NoisyRPSChain", "ddqn", {**SMALL, **overflow}))
    broken = Job(
        preset("Probe-TwoState", "ddqn", {**SMALL, "steps": 1_000}).replace({"env": {"no": 1}})
    )
    quiet = Quiet()
    jobs = [broken, burst, SHORT[0]]
    run_on_ray(store, jobs, lambda j: "", quiet, address=cluster.address)
    assert [result for _, result, _ in quiet.ended] == ["failed", "failed", "finished"]
    assert "no" in store.standing(broken.key).reason
    place = store.folder(burst.key) / "failed"
    assert f"state saved in {place}" in store.standing(burst.key).reason
    assert list(place.glob("*.safetensors"))
    quiet = Quiet()
    run_on_ray(store, [SHORT[0]], lambda j: "", quiet, address=cluster.address)
    assert quiet.ended == [(SHORT[0].key, "kept", "")]


SUITE = """
[[experiment]]
tasks = ["Probe-TwoState"]
methods = ["ddqn", "dqn"]
seeds = 2
steps = 20_000
[experiment.overrides]
network.hidden = [8]
replay.learning_starts = 50
evaluation.every = 500
evaluation.episodes = 2
run.log_every = 100
run.checkpoint_every = 500
"""


def test_the_command_on_a_cluster_of_its_own_stops_and_goes_on(tmp_path):
    """SIGTERM in the middle: what the workers have is gathered, and the same command ends it."""
    (tmp_path / "small.toml").write_text(SUITE)
    words = [sys.executable, "-m", "gcr_rl.cli", "bench", str(tmp_path / "small.toml"),
             "--out", str(tmp_path / "store"), "--engine", "ray"]  # fmt: skip
    errors = tmp_path / "errors"
    with open(errors, "w") as file:
        process = subprocess.Popen(
            words, stdout=subprocess.DEVNULL, stderr=file, env={**os.environ, "TTY_COMPATIBLE": "1"}
        )
        while "return" not in errors.read_text():  # a job has shown its first result
            assert process.poll() is None, errors.read_text()
            time.sleep(0.05)
        process.send_signal(signal.SIGTERM)
        assert process.wait() == 130, errors.read_text()
    jobs = tmp_path / "store" / "jobs"
    saved = [path for path in jobs.iterdir() if list(path.glob("checkpoints/step-*.json"))]
    assert saved and not (tmp_path / "store" / "failures").exists()
    left = 2 - sum((path / "summary.json").exists() for path in saved)
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "2 of 2 jobs finished" in done.stdout, done.stderr
    assert left > 0 and done.stderr.count("finished in") == left
    assert "Warning" not in done.stderr


def test_bad_addresses_are_one_line(tmp_path):
    for address, complaint in (
        ("127.0.0.1:1", "a Ray cluster that answers"),
        ("nowhere", "HOST:PORT"),
        ("auto", "a Ray cluster that answers"),
    ):
        done = subprocess.run(
            [sys.executable, "-m", "gcr_rl.cli", "bench", "probes", "--scale", "smoke",
             "--out", str(tmp_path / "store"), "--engine", "ray", "--address", address],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 2 and done.stderr.count("\n") == 1, done.stderr
        assert complaint in done.stderr and f"address: got '{address}'" in done.stderr
