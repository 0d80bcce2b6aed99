"""Run jobs in this process: train, resume or skip, and write down what failed."""

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from gcr_rl.bench.job import Job
from gcr_rl.bench.store import Busy, Store
from gcr_rl.errors import InputError, RunFailed
from gcr_rl.training import Interrupted, resume, train
from gcr_rl.training.progress import Reporter

PATIENCE = 0.5
"""Seconds between two looks at a job that another process works on."""

Result = Literal["finished", "failed", "kept"]
CommandOf = Callable[[Job], str]


class Display(Protocol):
    """Receives the course of a set of jobs; calls may come from several threads."""

    def begin(self, job: Job) -> Reporter:
        """A job begins; what it returns receives the progress of its run."""

    def end(self, job: Job, result: Result, reason: str) -> None:
        """A job has ended; ``kept``: another process had finished it meanwhile."""

    def say(self, message: str) -> None:
        """One line for the person in front of the screen."""


Engine = Callable[[Store, Sequence[Job], CommandOf, Display], None]
"""Runs jobs one by one or side by side; raises KeyboardInterrupt once all have stopped."""


def run_job(store: Store, job: Job, command: str, reporter: Reporter) -> tuple[Result, str]:
    """Bring one job to its end; its failure is written down and no exception.

    Raises :class:`Busy` if another process works on it and :class:`Interrupted` if this one
    was asked to stop.
    """
    with store.claim(job.key) as folder:
        standing = store.standing(job.key)
        if standing.status in ("finished", "failed"):
            return ("kept" if standing.status == "finished" else "failed"), standing.reason
        try:
            if standing.status == "interrupted":
                resume(folder, reporter=reporter)
            else:
                train(job.config, folder, command=command, reporter=reporter)
        except Interrupted:
            raise
        except RunFailed as error:  # no room on disk, say: it can go on once there is
            reason, resumable = str(error), True
        except InputError as error:
            reason, resumable = str(error), False
        except Exception as error:  # one broken job must not take the others with it
            reason, resumable = f"{type(error).__name__}: {error}", False
        else:
            return "finished", ""
        store.note_failure(job.key, reason, resumable=resumable)
        return "failed", reason


def run_here(store: Store, jobs: Sequence[Job], command_of: CommandOf, display: Display) -> None:
    """Run jobs one after another in this process; those of other processes are waited for."""
    queue = deque(jobs)
    busy: set[str] = set()
    while queue:
        job = queue.popleft()
        try:
            result, reason = run_job(store, job, command_of(job), display.begin(job))
        except Busy:
            if job.key not in busy:
                display.say(f"waiting for another process: {job.name}")
            busy.add(job.key)
            queue.append(job)
            if all(other.key in busy for other in queue):
                time.sleep(PATIENCE)
            continue
        except Interrupted as stopped:
            raise KeyboardInterrupt(str(stopped)) from None
        display.end(job, result, reason)


@dataclass
class Quiet:
    """A display that shows nothing and remembers what ended."""

    ended: list[tuple[str, Result, str]] = field(default_factory=list)

    def begin(self, job: Job) -> Reporter:
        """Nothing is shown."""
        from gcr_rl.training.progress import Silent

        return Silent()

    def end(self, job: Job, result: Result, reason: str) -> None:
        """Remember it."""
        self.ended.append((job.key, result, reason))

    def say(self, message: str) -> None:
        """Nothing is shown."""
