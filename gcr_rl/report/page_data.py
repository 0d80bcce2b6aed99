"""Everything that the page shows, as plain data; its script only draws and hides."""

import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from gcr_rl import __version__
from gcr_rl.evaluation import metrics, statistics
from gcr_rl.evaluation.statistics import Band, Interval
from gcr_rl.methods import METHODS
from gcr_rl.report import aggregate as over_tasks
from gcr_rl.report.ablations import Ablation
from gcr_rl.report.aggregate import Aggregate
from gcr_rl.report.details import Details
from gcr_rl.report.escaping import clean
from gcr_rl.report.figures import method_looks
from gcr_rl.report.logs import FIELDS, RunLog, StepCost
from gcr_rl.report.runs import RunData
from gcr_rl.report.structure import hasse_diagram, recovered_groups
from gcr_rl.report.summary import BOOTSTRAP_SEED, SIGNIFICANCE, MethodRow, Summary, TaskSummary
from gcr_rl.report.text import TITLES, table_cells

_DIGITS = 5
"""Significant digits of the numbers in the page; report.json has all of them."""
_LONGEST_TEXT = 400


def page_data(
    summary: Summary, details: Details, runs: Sequence[RunData], out: Path, points: int,
    figures: Mapping[str, Sequence[Any]],
) -> dict[str, Any]:  # fmt: skip
    """The data of the page; at most ``points`` points of a curve, links relative to ``out``.

    ``figures`` are the names of the files without their kinds, under ``tasks`` (two a task),
    and ``profiles``.
    """
    looks = method_looks(row.method for row in summary.rows)
    names = {method: place for place, method in enumerate(looks)}
    place = {id(run): number for number, run in enumerate(runs)}
    return {
        "version": __version__,
        "settings": _settings(summary),
        "notes": [clean(note, _LONGEST_TEXT) for note in (*summary.notes, *details.notes)],
        "titles": list(TITLES),
        "fields": FIELDS,
        "methods": [_method(method, look) for method, look in looks.items()],
        "tasks": [
            _task(task, details, number, names, place, points)
            | {"figures": figures["tasks"][number]}
            for number, task in enumerate(summary.tasks)
        ],
        "aggregates": [_aggregate(one, names, summary.tasks) for one in details.aggregates],
        "profiles": list(figures["profiles"]),
        "hasse": _hasse(summary, names, place),
        "runs": [_run(run, out) for run in runs],
    }


def _settings(summary: Summary) -> dict[str, Any]:
    return {
        "confidence": statistics.CONFIDENCE,
        "resamples": statistics.RESAMPLES,
        "aggregate_resamples": over_tasks.RESAMPLES,
        "bootstrap_seed": BOOTSTRAP_SEED,
        "significance": SIGNIFICANCE,
        "tests": summary.tests,
        "window": metrics.SMOOTHING_WINDOW,
        "final_fraction": metrics.FINAL_FRACTION,
    }


def _method(method: str, look: tuple[int, int]) -> dict[str, Any]:
    known = METHODS.get(method)
    about = known.summary if known is not None else ""
    return {"name": clean(method), "about": about, "colour": look[0], "dashes": look[1]}


def _task(
    task: TaskSummary, details: Details, number: int, names: Mapping[str, int],
    place: Mapping[int, int], points: int,
) -> dict[str, Any]:  # fmt: skip
    (cells,) = table_cells(task.rows)
    return {
        "label": clean(task.label),
        "exact": task.exact,
        "budget": task.budget,
        "threshold": rounded(task.facts.threshold),
        "optimum": rounded(task.facts.optimal_return),
        "random": rounded(task.facts.random_return),
        "curves": [
            {
                "m": names[merged.method],
                "runs": [place[id(run)] for run in merged.runs],
                "seeds": len(merged.curve.seeds),
                **_thinned(
                    merged.curve.steps[merged.curve.steps <= task.budget], merged.band, points
                ),
            }
            for merged in task.curves
        ],
        "rows": [
            _row(row, names) | {"cells": [[clean(c[0], _LONGEST_TEXT), c[1]] for c in line]}
            for row, line in zip(task.rows, cells, strict=True)
        ],
        "ablations": [_ablation(one, names) for one in details.ablations[number]],
        "costs": [_cost(cost, names) for cost in details.costs[number]],
        "groups": [
            {"m": names[merged.method], "run": place[id(run)], "seeds": groups}
            for merged in task.curves
            for run in merged.runs
            if (groups := recovered_groups(run))
        ],
        "diagnostics": _diagnostics(task, details.logs, names, place, points),
    }


def _row(row: MethodRow, names: Mapping[str, int]) -> dict[str, Any]:
    steps = row.to_threshold
    return {
        "m": names[row.method],
        "seeds": list(row.seeds),
        "auc": _ends(row.auc),
        "mean": _ends(row.mean_training_return),
        "final": rounded(row.final_by_seed),
        "box": rounded(metrics.five_numbers(row.final_by_seed)),
        "steps": None
        if steps is None
        else {
            "median": rounded(steps.median),
            "bound": steps.median_censored,
            "reached": int(steps.reached.sum()),
            "by_seed": rounded(steps.steps),
        },
    }


def _ablation(one: Ablation, names: Mapping[str, int]) -> dict[str, Any]:
    return {
        "m": names[one.variant], "full": names[one.full], "change": one.change,
        "difference": _ends(one.difference), "pairs": one.pairs,
    }  # fmt: skip


def _cost(cost: StepCost, names: Mapping[str, int]) -> dict[str, Any]:
    return {
        "m": names[cost.method], "rate": rounded(cost.steps_per_s), "wall": rounded(cost.wall_s),
        "seeds": cost.seeds, "device": clean(cost.device), "relative": rounded(cost.relative),
    }  # fmt: skip


def _diagnostics(
    task: TaskSummary, logs: Mapping[int, RunLog], names: Mapping[str, int],
    place: Mapping[int, int], points: int,
) -> dict[str, list[dict[str, Any]]]:  # fmt: skip
    """By field a curve per run: the seeds of a run share their rows, merged runs may not."""
    found: dict[str, list[dict[str, Any]]] = {}
    for name in FIELDS:
        for merged in task.curves:
            for run in merged.runs:
                if (curve := logs[id(run)].fields.get(name)) is not None:
                    about = {"m": names[merged.method], "runs": [place[id(run)]]}
                    drawn = _thinned(curve.steps, curve.band, points)
                    found.setdefault(name, []).append({**about, "seeds": len(run.seeds), **drawn})
    return found


def _aggregate(
    one: Aggregate, names: Mapping[str, int], tasks: Sequence[TaskSummary]
) -> dict[str, Any]:
    number = {task.label: place for place, task in enumerate(tasks)}
    return {
        "title": one.title,
        "tasks": [number[label] for label in one.tasks],
        "levels": rounded(over_tasks.LEVELS),
        "methods": [
            {
                "m": names[scores.method],
                "seeds": len(scores.seeds),
                "iqm": _ends(scores.iqm),
                **_band(scores.profile),
            }
            for scores in one.methods
        ],
        "improvements": [
            {"first": names[i.first], "second": names[i.second], "p": _ends(i.probability)}
            for i in one.improvements
        ],
    }


def _hasse(
    summary: Summary, names: Mapping[str, int], place: Mapping[int, int]
) -> list[dict[str, Any]]:
    return [
        {"task": number, "m": names[merged.method], "run": place[id(run)], **diagram}
        for number, task in enumerate(summary.tasks)
        for merged in task.curves
        for run in merged.runs
        if (diagram := hasse_diagram(run)) is not None
    ]


def _run(run: RunData, out: Path) -> dict[str, Any]:
    command = run.provenance.get("command")
    joined = " ".join(map(str, command)) if isinstance(command, list) else command
    return {
        "folder": clean(run.folder, _LONGEST_TEXT),
        "link": link_to(run.folder, out),
        "log": (run.folder / "log.jsonl").exists(),
        "sha256": run.evaluation_sha256,
        "command": None if joined is None else clean(joined, _LONGEST_TEXT),
        "commit": clean(run.provenance.get("commit") or "unknown"),
        "seeds": clean(", ".join(map(str, run.seeds)), _LONGEST_TEXT),
        "config": finite(run.config),
    }


def link_to(folder: Path, out: Path) -> str:
    """The run folder as a relative address from ``out``, never one with a scheme."""
    path = os.path.relpath(folder.absolute(), out.absolute())
    return quote(f"./{path}", safe="/")


def _thinned(steps: np.ndarray, band: Band, points: int) -> dict[str, Any]:
    """At most ``points`` of the points, evenly chosen, the first and the last among them."""
    count = len(steps)
    chosen = np.unique(np.linspace(0, count - 1, min(points, count)).round().astype(int))
    kept = Band(*(part[chosen] for part in band))
    return {"steps": steps[chosen].tolist(), **_band(kept)}


def _band(band: Band) -> dict[str, Any]:
    drawn = {"y": rounded(band.estimate)}
    if np.isfinite(band.low).all():
        drawn |= {"low": rounded(band.low), "high": rounded(band.high)}
    return drawn


def _ends(interval: Interval) -> list[float | None]:
    return rounded(list(interval))


def rounded(value: Any) -> Any:
    """Numbers to few digits, which the page needs; None for NaN and infinity."""
    if isinstance(value, np.ndarray):
        return rounded(value.tolist())
    if isinstance(value, list | tuple):
        return [rounded(entry) for entry in value]
    if value is None or not math.isfinite(value):
        return None
    short = float(f"{value:.{_DIGITS}g}")
    return int(short) if short.is_integer() and abs(short) < 1e15 else short


def finite(value: Any) -> Any:
    """JSON data with None for every NaN and infinity."""
    if isinstance(value, Mapping):
        return {str(key): finite(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [finite(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
