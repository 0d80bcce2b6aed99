"""What a person sees while a suite runs: jobs done, time left, the jobs at work."""

import contextlib
import sys
import threading
import time
from collections.abc import Iterable

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn
from rich.table import Column

from gcr_rl.bench.engine import Result
from gcr_rl.bench.job import Job
from gcr_rl.training.progress import Reporter

PAUSE = 30.0
"""Seconds after which a job at work gets another line where there is no terminal."""


def duration(seconds: float) -> str:
    """42 s, 12 min, 3.4 h."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6_000 else f"{seconds / 3_600:.1f} h"


class _StandardError(Console):
    """A reader that goes away ends the progress, not the suite."""

    def __init__(self) -> None:
        super().__init__(file=sys.stderr)

    def on_broken_pipe(self) -> None:
        """Say no more (rich would exit)."""
        self.quiet = True


class Screen:
    """Bars on a terminal; lines elsewhere. Its methods may be called from several threads."""

    def __init__(self, jobs: Iterable[Job], kept: int = 0) -> None:
        """``jobs`` are left to do; ``kept`` were finished before."""
        left = list(jobs)
        self._work = {job.key: job.work for job in left}
        self._first: dict[str, int] = {}
        self._reached: dict[str, float] = {}
        self._begun: dict[str, float] = {}
        self._done, self._total = kept, kept + len(left)
        self._failed = 0
        self._began = self._spoke = time.monotonic()
        self._lock = threading.RLock()
        self._console = _StandardError()
        self._bars: Progress | None = None
        self._tasks: dict[str, TaskID] = {}

    def __enter__(self) -> "Screen":
        if self._console.is_terminal:
            self._bars = Progress(
                TextColumn("{task.description}", table_column=Column(ratio=2, no_wrap=True)),
                BarColumn(bar_width=24),
                TextColumn("{task.fields[note]}", table_column=Column(ratio=1, no_wrap=True)),
                console=self._console,
            )
            self._bars.start()
            self._overall = self._bars.add_task("jobs", total=1.0, note="")
            self._draw()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bars is not None:
            self._draw()
            self._bars.stop()
            self._bars = None

    def begin(self, job: Job) -> Reporter:
        """A job begins."""
        with self._lock:
            self._begun[job.key] = time.monotonic()
            if self._bars is not None and job.key not in self._tasks:
                self._tasks[job.key] = self._bars.add_task(
                    job.name, total=job.config.steps, note="compiling"
                )
        return _JobReporter(self, job)

    def goes_on(self, job: Job, step: int) -> None:
        """A job starts at ``step``: what comes before it is not work of this pass."""
        with self._lock:
            self._first[job.key] = step
            self._work[job.key] = len(job.config.seeds) * (job.config.steps - step)
            self.moved(job, step, "")

    def moved(self, job: Job, step: int, note: str) -> None:
        """A job has reached ``step``."""
        with self._lock:
            self._reached[job.key] = self._share_of(job, step)
            if self._bars is not None:
                self._bars.update(self._tasks[job.key], completed=step, note=note)
                self._draw()
            elif note and time.monotonic() - self._spoke > PAUSE:
                self.say(f"{self._count()} at step {step:,}: {job.name}; {note}{self._left()}")

    def end(self, job: Job, result: Result, reason: str) -> None:
        """A job has ended."""
        with self._lock:
            self._reached[job.key] = 1.0
            self._done += result != "failed"
            self._failed += result == "failed"
            if self._bars is not None and job.key in self._tasks:
                self._bars.remove_task(self._tasks.pop(job.key))
            took = duration(time.monotonic() - self._begun.get(job.key, self._began))
            verb = {"finished": f"finished in {took}", "kept": "finished elsewhere"}
            ended = verb.get(result, "FAILED")
            tail = f" ({reason})" if reason else ""
            self.say(f"{self._count()} {ended}: {job.name}{tail}{self._left()}")
            self._draw()

    def say(self, message: str) -> None:
        """Print one line, above the bars if there are any."""
        self._spoke = time.monotonic()
        with contextlib.suppress(OSError):
            self._console.print(message, highlight=False, markup=False, soft_wrap=True)

    def _count(self) -> str:
        failed = f", {self._failed} failed" if self._failed else ""
        return f"[{self._done}/{self._total}{failed}]"

    def _share_of(self, job: Job, step: int) -> float:
        first = self._first.get(job.key, 0)
        return (step - first) / max(job.config.steps - first, 1)

    def _share(self) -> float:
        whole = sum(self._work.values()) or 1
        return sum(self._work[key] * part for key, part in self._reached.items()) / whole

    def _left(self) -> str:
        share, spent = self._share(), time.monotonic() - self._began
        if not 0.0 < share < 1.0:
            return ""
        return f"; about {duration(spent / share * (1.0 - share))} left"

    def _draw(self) -> None:
        if self._bars is not None:
            note = f"{self._done}/{self._total} done{self._left()}"
            self._bars.update(self._overall, completed=self._share(), note=note)


class _JobReporter:
    """The progress of one run, handed on to the screen of all."""

    def __init__(self, screen: Screen, job: Job) -> None:
        self._screen, self._job = screen, job

    def start(self, label: str, step: int, total: int) -> None:
        """The run begins or goes on."""
        self._screen.goes_on(self._job, step)

    def update(self, step: int, mean_return: float | None, loss: float | None) -> None:
        """The run has reached ``step``."""
        note = "" if mean_return is None else f"return {mean_return:.4g}"
        self._screen.moved(self._job, step, note)

    def say(self, message: str) -> None:
        """One line."""
        self._screen.say(message)

    def stop(self) -> None:
        """The screen hears of it by its own ``end``."""
