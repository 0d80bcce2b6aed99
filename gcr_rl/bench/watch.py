"""`gcr watch`: how runs stand, read from their files alone while others write them."""

import json
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from gcr_rl.bench.display import duration
from gcr_rl.errors import InputError, unknown_name
from gcr_rl.training.run_folder import read_json, read_summary

_TAIL = 2**20
"""Bytes of a log that are read from its end: enough for its newest rows."""

_QUIET = 300.0
"""Seconds without a new row after which a run no longer counts as at work."""

_BETWEEN_JOBS = 60.0
"""Seconds for which a suite may have no run at work and still be watched."""

_BARS = "▁▂▃▄▅▆▇█"


@dataclass(frozen=True)
class View:
    """How one run stands."""

    name: str
    status: str
    step: int
    steps: int
    returns: tuple[float, ...]
    """Mean return over seeds at each evaluation that was read, oldest first."""
    seconds_left: float | None
    reason: str = ""


def look(run: Path) -> View:
    """How the run in ``run`` stands now; a row that is being written is not read yet."""
    config = read_json(run / "config.json", "run")
    log = _newest_rows(run / "log.jsonl")
    evaluation = _newest_rows(run / "evaluation.jsonl")
    steps, seeds = int(config.get("steps", 0)), len(config.get("seeds", [])) or 1
    step = max((int(row["step"]) for row in log), default=0)
    status, reason, left = _status(run), "", None
    if (run / "summary.json").exists():
        summary = read_summary(run)
        status, reason = summary["status"], str(summary.get("reason", ""))
    elif log and log[-1].get("steps_per_s"):
        left = (steps - step) * seeds / float(log[-1]["steps_per_s"])
    name = f"{config.get('method')} on {config.get('task')}, {seeds} seeds"
    return View(name, status, step, steps, _returns(evaluation), left, reason)


def runs_in(place: str, store: Path) -> list[Path]:
    """The runs that ``place`` means: a run folder, a store, or a suite of ``store``."""
    folder = Path(place)
    if (folder / "config.json").exists():
        return [folder]
    if (folder / "jobs").is_dir():
        return sorted(path.parent for path in folder.glob("jobs/*/config.json"))
    chosen = indices_of(place, store)
    if not chosen:
        names = [path.stem for path in sorted(store.glob("suites/*.json"))]
        known = unknown_name("place", place, names).accepted
        raise InputError("place", place, f"a run folder, a store, or a suite in {store}: {known}")
    keys = [str(job["key"]) for path in chosen for job in read_json(path, "store").get("jobs", [])]
    folders = [store / "jobs" / key for key in dict.fromkeys(keys)]
    return [path for path in folders if (path / "config.json").exists()]


def indices_of(place: str, store: Path) -> list[Path]:
    """The index files of a suite in ``store``, or of all suites if ``place`` is the store."""
    found = sorted(store.glob("suites/*.json"))
    if Path(place) == store:
        return found
    return [path for path in found if place in (path.stem, path.stem.rpartition("-")[0])]


def draw(views: Sequence[View]) -> Group:
    """The runs as a table, those at work first."""
    table = Table(box=None, pad_edge=False)
    for title in ("run", "status", "step", "return", "", "left"):
        number = title in ("step", "return")
        table.add_column(title, no_wrap=title != "run", justify="right" if number else "left")
    order = {"training": 0, "stopped": 1, "failed": 2, "finished": 3}
    for view in sorted(views, key=lambda view: order.get(view.status, 4)):
        share = f"{view.step:,} / {view.steps:,}"
        newest = f"{view.returns[-1]:.4g}" if view.returns else "-"
        left = duration(view.seconds_left) if view.seconds_left and not view.reason else ""
        cells = (
            view.name,
            view.status,
            share,
            newest,
            sparkline(view.returns),
            view.reason or left,
        )
        table.add_row(*(Text(cell) for cell in cells))
    done = sum(view.status == "finished" for view in views)
    return Group(table, Text(f"{done} of {len(views)} begun runs finished"))


def sparkline(values: Sequence[float], width: int = 24) -> str:
    """The curve in one line of bars, lowest to highest."""
    if len(values) < 2:
        return ""
    picked = [values[i * (len(values) - 1) // (width - 1)] for i in range(width)]
    shown = picked if len(values) > width else list(values)
    low, high = min(shown), max(shown)
    scale = (len(_BARS) - 1) / (high - low) if high > low else 0.0
    return "".join(_BARS[round((value - low) * scale)] for value in shown)


def watch(place: str, *, store: Path, interval: float = 2.0, once: bool = False) -> None:
    """Show the runs until none is at work; ``once`` prints them and returns.

    A terminal is drawn on a screen of its own, which a change of its size cannot spoil; it ends
    with the last picture on the screen that was there before.
    """
    if not 0.1 <= interval <= 3_600.0:
        raise InputError("interval", interval, "from 0.1 to 3600 seconds")
    console = Console(width=None if sys.stdout.isatty() else 120)
    views = _views(place, store)
    if console.is_terminal and not once:
        quiet_since = time.monotonic()
        live = Live(draw(views), console=console, auto_refresh=False, screen=True)
        try:  # not `with`: an interruption of the first picture would leave the terminal as it is
            live.start(refresh=True)
            while _at_work(views) or time.monotonic() - quiet_since < _patience(place, store):
                if _at_work(views):
                    quiet_since = time.monotonic()
                time.sleep(interval)
                views = _views(place, store)
                live.update(draw(views), refresh=True)
        finally:
            live.stop()
    console.print(draw(views))


def _views(place: str, store: Path) -> list[View]:
    """How the runs stand; one whose folder is exchanged at this moment is left out."""
    views = []
    for run in runs_in(place, store):
        try:
            views.append(look(run))
        except InputError:
            if (run / "config.json").exists():
                raise
    return views


def _patience(place: str, store: Path) -> float:
    """Seconds for which no run may be at work: none for a run, or once all jobs have ended."""
    if (Path(place) / "config.json").exists():
        return 0.0
    root = Path(place) if (Path(place) / "jobs").is_dir() else store
    indices = [read_json(path, "store") for path in indices_of(place, root)]
    jobs = [job for index in indices for job in index.get("jobs", [])]
    ended = jobs and all(job.get("status") in ("finished", "failed") for job in jobs)
    return 0.0 if ended else _BETWEEN_JOBS


def _at_work(views: Iterable[View]) -> bool:
    return any(view.status == "training" for view in views)


def _status(run: Path) -> str:
    """Of a run without a summary: rows that still come mean that it trains."""
    logs = [run / "log.jsonl", run / "evaluation.jsonl", run / "config.json"]
    newest = max((path.stat().st_mtime for path in logs if path.exists()), default=0.0)
    return "training" if time.time() - newest < _QUIET else "stopped"


def _newest_rows(path: Path) -> list[dict[str, Any]]:
    """Complete rows at the end of a log."""
    try:
        with open(path, "rb") as file:
            size = file.seek(0, 2)
            file.seek(max(size - _TAIL, 0))
            text = file.read()
    except OSError:
        return []
    lines = text.split(b"\n")[:-1]
    return [row for line in lines[size > _TAIL :] if isinstance(row := _row(line), dict)]


def _row(line: bytes) -> Any:
    try:
        return json.loads(line)
    except ValueError:  # cut back by a resumed run at this moment
        return None


def _returns(rows: Iterable[dict[str, Any]]) -> tuple[float, ...]:
    by_step: dict[int, list[float]] = {}
    for row in rows:
        if isinstance(value := row.get("mean_return"), int | float):
            by_step.setdefault(int(row.get("step", 0)), []).append(float(value))
    return tuple(sum(values) / len(values) for _, values in sorted(by_step.items()))
