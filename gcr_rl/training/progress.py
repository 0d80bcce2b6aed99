"""What a person sees while a run trains."""

import contextlib
import sys
import time
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.text import Text


class Reporter(Protocol):
    """Receives the state of a run now and then."""

    def start(self, label: str, step: int, total: int) -> None:
        """A run begins, or goes on, at ``step`` of ``total``."""

    def update(self, step: int, mean_return: float | None, loss: float | None) -> None:
        """The run has reached ``step``."""

    def say(self, message: str) -> None:
        """One line for the person in front of the screen."""

    def stop(self) -> None:
        """The run has ended."""


class Silent:
    """Shows nothing."""

    def start(self, label: str, step: int, total: int) -> None:
        """Nothing."""

    def update(self, step: int, mean_return: float | None, loss: float | None) -> None:
        """Nothing."""

    def say(self, message: str) -> None:
        """Nothing."""

    def stop(self) -> None:
        """Nothing."""


class _Console(Console):
    """Standard error; a reader that goes away ends the progress, not the run."""

    def on_broken_pipe(self) -> None:
        """Say no more (rich would exit)."""
        self.quiet = True


class _Speed(ProgressColumn):
    def render(self, task: Task) -> Text:
        return Text(f"{task.speed:,.0f} steps/s" if task.speed else "compiling")


class Bar:
    """A progress bar on a terminal; a line every tenth of the run elsewhere."""

    def __init__(self) -> None:
        self._console = _Console(file=sys.stderr)
        self._bar: Progress | None = None

    def start(self, label: str, step: int, total: int) -> None:
        """Draw the bar, or note where the tenths are."""
        self._label, self._total, self._first, self._tenth = label, total, step, -1
        self._began = time.monotonic()
        if self._console.is_terminal:
            self._bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                TextColumn("{task.percentage:>3.0f}%"),
                _Speed(),
                TimeRemainingColumn(),
                TextColumn("{task.fields[note]}"),
                console=self._console,
            )
            self._bar.start()
            self._task = self._bar.add_task(label, total=total, completed=step, note="")

    def update(self, step: int, mean_return: float | None, loss: float | None) -> None:
        """Move the bar."""
        parts = [] if mean_return is None else [f"return {mean_return:.4g}"]
        parts += [] if loss is None else [f"loss {loss:.3g}"]
        note = ", ".join(parts)
        if self._bar is not None:
            self._bar.update(self._task, completed=step, note=note)
            return
        tenth = step * 10 // self._total
        if tenth != self._tenth:
            self._tenth = tenth
            elapsed = time.monotonic() - self._began
            speed = (step - self._first) / elapsed
            left = (self._total - step) / speed if speed else 0.0
            pace = [f"{speed:,.0f} steps/s, {left:.0f} s left"] if speed else []
            reached = f"{self._label}: step {step:,} of {self._total:,}"
            self.say(", ".join([reached, *pace, *parts]))

    def say(self, message: str) -> None:
        """Print one line above the bar."""
        with contextlib.suppress(OSError):  # a full disk behind standard error, say
            self._console.print(message, highlight=False, markup=False, soft_wrap=True)

    def stop(self) -> None:
        """Leave the bar where it is."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None
