"""Run jobs on the machines of a Ray cluster; the store stays on this one.

A worker trains in a folder of its own machine. It sends the run's files when the job has ended
and now and then before, so a job whose worker is lost goes on elsewhere from what was sent.
Only this process writes to the store, under the claim of the job.
"""

import contextlib
import os
import time
from collections import Counter, deque
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import gcr_rl
from gcr_rl.bench.archive import pack
from gcr_rl.bench.engine import PATIENCE, CommandOf, Display
from gcr_rl.bench.job import Job
from gcr_rl.bench.processes import GRACE
from gcr_rl.bench.ray_cluster import Demand, connected, import_ray, places
from gcr_rl.bench.ray_worker import RayWorker
from gcr_rl.bench.store import Busy, Store
from gcr_rl.errors import InputError
from gcr_rl.training.progress import Reporter
from gcr_rl.training.run_folder import read_summary, write_json

SAVE_EVERY = 120.0
"""Seconds between two times that a job at work sends its newest checkpoint."""

ONE_PROCESSOR = Demand()

MOST_LOSSES = 3
"""A job whose worker was lost more often has failed: it may be what kills them."""

_SETTINGS = ("XLA_FLAGS", "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS")
"""Variables that workers take over from this process, unless they have their own."""


def run_on_ray(
    store: Store,
    jobs: Sequence[Job],
    command_of: CommandOf,
    display: Display,
    *,
    address: str | None = None,
    demand: Demand = ONE_PROCESSOR,
    most: int | None = None,
    save_every: float = SAVE_EVERY,
) -> None:
    """Run jobs on the cluster at ``address``, as many at a time as it holds (at most ``most``)."""
    ray = import_ray()
    with connected(ray, address):
        if not places(ray, demand):
            asked = f"{demand.cpus:g} cpus, {demand.gpus:g} gpus"
            raise InputError("resources of a job", asked, "what a machine of the cluster has")
        _Driver(ray, store, command_of, display, demand, most, save_every, deque(jobs)).run()


@dataclass
class _Remote:
    """A job that a worker has."""

    job: Job
    worker: Any
    claim: ExitStack
    reporter: Reporter
    saved_at: float
    saved: int = -1
    """The step of the newest checkpoint that is in the store."""
    heard: bool = False


@dataclass
class _Driver:
    """The jobs that wait and those that workers have, by the answer that is awaited of each."""

    ray: Any
    store: Store
    command_of: CommandOf
    display: Display
    demand: Demand
    most: int | None
    save_every: float
    queue: deque[Job]
    running: dict[Any, _Remote] = field(default_factory=dict)
    losses: Counter[str] = field(default_factory=Counter)
    busy: set[str] = field(default_factory=set)

    def run(self) -> None:
        """Until nothing is left; an interruption first saves what the workers have."""
        try:
            while self.queue or self.running:
                self.hand_out()
                if self.running:
                    self.listen()
                else:  # what is left, other processes have; or no machine has room
                    time.sleep(PATIENCE)
        except BaseException:
            self.stop()
            raise
        finally:
            for remote in self.running.values():
                self.release(remote)

    def hand_out(self) -> None:
        """Give jobs to workers as long as there is room."""
        room = places(self.ray, self.demand)
        room = room if self.most is None else min(room, self.most)
        for _ in range(len(self.queue)):
            if len(self.running) >= room:
                return
            job = self.queue.popleft()
            claim = ExitStack()
            try:
                folder = claim.enter_context(self.store.claim(job.key))
            except Busy:
                if job.key not in self.busy:
                    self.display.say(f"waiting for another process: {job.name}")
                self.busy.add(job.key)
                self.queue.append(job)
                continue
            with claim:
                standing = self.store.standing(job.key)
                if standing.status in ("finished", "failed"):
                    kept = standing.status == "finished"
                    self.display.end(job, "kept" if kept else "failed", standing.reason)
                    continue
                begun = standing.status == "interrupted"
                self.start(job, claim.pop_all(), pack(folder, ended=False) if begun else None)

    def start(self, job: Job, claim: ExitStack, run: bytes | None) -> None:
        """Give one job to a new worker."""
        settings = {name: os.environ[name] for name in _SETTINGS if name in os.environ}
        worker = (
            self.ray.remote(RayWorker)
            .options(
                num_cpus=self.demand.cpus, num_gpus=self.demand.gpus, max_restarts=0,
                max_concurrency=4,  # it can be asked to stop while it waits for news
            )
            .remote(settings)
        )  # fmt: skip
        worker.begin.remote(gcr_rl.__version__, job.config.to_json(), self.command_of(job), run)
        remote = _Remote(job, worker, claim, self.display.begin(job), time.monotonic())
        self.running[worker.news.remote()] = remote

    def listen(self) -> None:
        """Hear from the workers that have something to say."""
        ready, _ = self.ray.wait(list(self.running), timeout=PATIENCE)
        for answer in ready:
            remote, goes_on = self.running[answer], False
            try:
                goes_on = self.hear(remote, self.ray.get(answer))
            except self.ray.exceptions.RayTaskError as error:  # its own code is at fault
                self.fail(remote, str(error.cause or error))
            except self.ray.exceptions.RayError as error:
                self.lose(remote, type(error).__name__)
            del self.running[answer]  # only now: an interruption must still find it
            if goes_on:
                self.running[remote.worker.news.remote()] = remote

    def hear(self, remote: _Remote, news: dict[str, Any]) -> bool:
        """Show what a worker tells and take over what it has saved; whether it goes on."""
        remote.heard = True
        for event, content in news["events"]:
            getattr(remote.reporter, event)(**content)
        if news["end"] is not None:
            self.finish(remote, news["end"])
            return False
        due = time.monotonic() - remote.saved_at >= self.save_every
        if due and news["checkpoint"] > remote.saved:
            self.save(remote)
            remote.saved, remote.saved_at = news["checkpoint"], time.monotonic()
        return True

    def save(self, remote: _Remote) -> None:
        """Put what the worker has of the run into the store."""
        files = self.ray.get(remote.worker.files.remote())
        if files is not None:
            self.store.receive(remote.job.key, files)

    def finish(self, remote: _Remote, end: dict[str, Any]) -> None:
        """Gather the result of a job that has ended."""
        self.save(remote)
        with contextlib.suppress(self.ray.exceptions.RayError):
            self.ray.get(remote.worker.clear.remote())
        if end["result"] == "finished":
            self.release(remote)
            self.display.end(remote.job, "finished", "")
        elif end["result"] == "failed":
            reason = end["reason"].replace(end["place"], str(self.store.root))
            summary = self.store.folder(remote.job.key) / "summary.json"
            if summary.exists():  # it names a file of the worker's machine
                write_json(summary, {**read_summary(summary.parent), "reason": reason})
            self.fail(remote, reason, resumable=end["resumable"])
        else:  # asked to stop
            self.release(remote)

    def fail(self, remote: _Remote, reason: str, *, resumable: bool = True) -> None:
        """Write down why a job has no result."""
        self.store.note_failure(remote.job.key, reason, resumable=resumable)
        self.release(remote)
        self.display.end(remote.job, "failed", reason)

    def lose(self, remote: _Remote, how: str) -> None:
        """A worker is gone, or its machine: its job goes on elsewhere."""
        job = remote.job
        self.losses[job.key] += 1
        if self.losses[job.key] > MOST_LOSSES:
            self.fail(remote, f"its worker was lost {self.losses[job.key]} times ({how})")
            return
        self.release(remote)
        self.display.say(f"lost the worker of a job ({how}), which goes on elsewhere: {job.name}")
        self.queue.append(job)

    def release(self, remote: _Remote) -> None:
        """Let go of a worker and of the claim on its job."""
        with contextlib.suppress(self.ray.exceptions.RayError):
            self.ray.kill(remote.worker)
        remote.claim.close()

    def stop(self) -> None:
        """Have all workers write a checkpoint, and gather it."""
        self.queue.clear()
        deadline = time.monotonic() + GRACE
        for answer, remote in list(self.running.items()):
            remote.worker.stop.remote()
            if not remote.heard:  # it may wait for a machine: there is nothing to save
                self.release(self.running.pop(answer))
        while self.running and time.monotonic() < deadline:
            self.listen()
            self.queue.clear()
