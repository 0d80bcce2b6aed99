"""From a set of jobs to the end of it: what is left is run, what failed is listed."""

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from gcr_rl.bench.display import Screen
from gcr_rl.bench.engine import CommandOf, Display, Engine, Result, run_here
from gcr_rl.bench.job import Job
from gcr_rl.bench.processes import run_in_processes
from gcr_rl.bench.ray_cluster import Demand, import_ray
from gcr_rl.bench.ray_engine import run_on_ray
from gcr_rl.bench.store import Store
from gcr_rl.errors import InputError, unknown_name
from gcr_rl.training.progress import Reporter

MOST_PROCESSES = 256


@dataclass(frozen=True)
class Outcome:
    """Keys of the jobs that have a result, and the reasons of those that have none."""

    finished: tuple[str, ...]
    failed: dict[str, str]


def engine_for(
    kind: str = "local",
    *,
    jobs: int | None = None,
    address: str | None = None,
    cpus: float | None = None,
    gpus: float | None = None,
) -> Engine:
    """What runs jobs: this machine (``local``) or a Ray cluster (``ray``).

    ``jobs`` at a time: one in this process if not given, more in worker processes; on a cluster
    as many as its machines hold. The other options are those of a cluster.
    """
    if jobs is not None and not 1 <= jobs <= MOST_PROCESSES:
        raise InputError("jobs", jobs, f"from 1 to {MOST_PROCESSES}")
    if kind == "ray":
        demand = Demand(1.0 if cpus is None else cpus, gpus or 0.0)
        import_ray()  # a clear word before anything is written
        return partial(run_on_ray, address=address, demand=demand, most=jobs)
    if kind != "local":
        raise unknown_name("engine", kind, ("local", "ray"))
    for name, value in (("address", address), ("cpus", cpus), ("gpus", gpus)):
        if value is not None:
            raise InputError(name, value, "this option with --engine ray")
    return run_here if jobs in (None, 1) else partial(run_in_processes, count=jobs)


def usual_jobs(scale: str) -> int:
    """Jobs at a time if nobody says: two at the scales that are made for two cores, else one."""
    return 2 if scale != "full" and (os.cpu_count() or 1) > 1 else 1


def run_jobs(
    store: Store,
    jobs: Iterable[Job],
    *,
    engine: Engine = run_here,
    retry: bool = False,
    command_of: CommandOf = lambda job: "",
    after_each: Callable[[], None] = lambda: None,
    command: str = "",
) -> Outcome:
    """Run what is left of ``jobs``: finished ones never again, failed ones only with ``retry``.

    ``after_each`` is called whenever a job has ended; ``command`` is what a person who
    interrupts it is told to go on with.
    """
    unique = list({job.key: job for job in jobs}.values())
    if retry:
        for job in unique:
            if store.standing(job.key).status == "failed":
                store.forgive(job.key)
    left = [job for job in unique if store.standing(job.key).status in ("waiting", "interrupted")]
    kept = sum(store.standing(job.key).status == "finished" for job in unique)
    if left:
        try:
            with Screen(left, kept) as screen:
                engine(store, left, command_of, _Notified(screen, after_each))
        except KeyboardInterrupt:
            again = f"; go on with: {command}" if command else ""
            raise KeyboardInterrupt(f"interrupted{again}") from None
    return outcome_of(store, unique)


def outcome_of(store: Store, jobs: Iterable[Job]) -> Outcome:
    """How the jobs stand now."""
    standings = {job.key: store.standing(job.key) for job in jobs}
    return Outcome(
        tuple(key for key, standing in standings.items() if standing.status == "finished"),
        {key: s.reason for key, s in standings.items() if s.status == "failed"},
    )


class _Notified:
    """A display that also calls a function at the end of each job."""

    def __init__(self, display: Display, after_each: Callable[[], None]) -> None:
        self._display, self._after_each = display, after_each

    def begin(self, job: Job) -> Reporter:
        """A job begins."""
        return self._display.begin(job)

    def end(self, job: Job, result: Result, reason: str) -> None:
        """A job has ended."""
        self._display.end(job, result, reason)
        self._after_each()

    def say(self, message: str) -> None:
        """One line."""
        self._display.say(message)


def list_failures(jobs: Sequence[Job], failed: dict[str, str]) -> list[str]:
    """A line for each failed job: what it is, its key and the reason."""
    names = {job.key: job.name for job in jobs}
    return [f"failed: {names[key]} [{key}]: {reason}" for key, reason in failed.items()]
