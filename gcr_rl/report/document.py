"""The report: a page, its Markdown, tables, figures, and an index with every number behind them."""

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gcr_rl import __version__
from gcr_rl.evaluation import metrics, statistics
from gcr_rl.report.aggregate import LEVELS
from gcr_rl.report.aggregate import RESAMPLES as AGGREGATE_RESAMPLES
from gcr_rl.report.details import Details, collect_details
from gcr_rl.report.escaping import clean, escape_markdown
from gcr_rl.report.figures import KINDS, learning_curves, method_styles
from gcr_rl.report.files import INDEX, KIND, check_target, earlier_files, write_files
from gcr_rl.report.page_data import page_data
from gcr_rl.report.runs import RunData, load_runs
from gcr_rl.report.score_figures import profiles, task_scores
from gcr_rl.report.summary import (
    BOOTSTRAP_SEED,
    SIGNIFICANCE,
    FactsOf,
    MethodRow,
    Summary,
    TaskSummary,
    summarise,
    task_facts,
)
from gcr_rl.report.text import latex_table, markdown_table
from gcr_rl.report.webpage import html_page

PAGE, WEBPAGE = "report.md", "report.html"
TABLES = {"table.md": markdown_table, "table.tex": latex_table}


@dataclass(frozen=True)
class _Stems:
    """Names of the figures' files, without their kinds."""

    curves: list[str]
    scores: list[str]
    profiles: list[str]


def write_report(
    paths: Iterable[str | Path] | str | Path, out_dir: str | Path, *, facts_of: FactsOf = task_facts
) -> list[Path]:
    """Report on run folders in ``out_dir``: page, Markdown, tables, figures and their index.

    Returns the paths written, the index first. Everything is computed before the first file
    is written; a file in ``out_dir`` that no report of ours wrote is never overwritten.
    """
    runs = load_runs(paths)
    return write_summary(summarise(runs, facts_of), runs, out_dir)


def write_summary(summary: Summary, runs: Sequence[RunData], out_dir: str | Path) -> list[Path]:
    """``write_report`` on runs that have been read and summarised already."""
    out = Path(out_dir)
    check_target(out, [INDEX, PAGE, WEBPAGE, *TABLES])
    details = collect_details(summary, runs)
    curves = _figure_stems(summary.tasks)
    stems = _Stems(
        curves,
        [stem.replace("curves-", "scores-", 1) for stem in curves],
        ["profiles", "profiles-2"][: len(details.aggregates)],
    )
    every = [*stems.curves, *stems.scores, *stems.profiles]
    names = [INDEX, PAGE, WEBPAGE, *TABLES, *(f"{stem}.{kind}" for stem in every for kind in KINDS)]
    check_target(out, names)
    contents = {
        PAGE: _page(summary, runs, stems.curves).encode(),
        WEBPAGE: _webpage(summary, details, runs, out, stems).encode(),
        **{name: table(summary.rows).encode() for name, table in TABLES.items()},
        **_figures(summary, details, stems),
    }
    index = _index(summary, runs, stems.curves, details)
    index["files"] = names
    index["earlier_files"] = sorted(set(earlier_files(out)) - set(names))
    text = json.dumps(_plain(index), indent=1, allow_nan=False)
    return write_files(out, {INDEX: text.encode(), **contents})


def _figures(summary: Summary, details: Details, stems: _Stems) -> dict[str, bytes]:
    styles = method_styles(row.method for row in summary.rows)
    drawn: list[tuple[str, dict[str, bytes]]] = []
    for task, curves, scores in zip(summary.tasks, stems.curves, stems.scores, strict=True):
        drawn += [(curves, learning_curves(task, styles)), (scores, task_scores(task, styles))]
    for aggregate, stem in zip(details.aggregates, stems.profiles, strict=True):
        drawn.append((stem, profiles(aggregate, styles)))
    return {f"{stem}.{kind}": data for stem, found in drawn for kind, data in found.items()}


def _webpage(
    summary: Summary, details: Details, runs: Sequence[RunData], out: Path, stems: _Stems
) -> str:
    pairs = zip(stems.curves, stems.scores, strict=True)
    figures: dict[str, list[Any]] = {
        "tasks": [list(pair) for pair in pairs],
        "profiles": stems.profiles,
    }
    return html_page(lambda points: page_data(summary, details, runs, out, points, figures))


def _page(summary: Summary, runs: Sequence[RunData], stems: Sequence[str]) -> str:
    parts = ["# Report\n", markdown_table(summary.rows), _legend(summary)]
    if summary.notes:
        notes = "\n".join(f"- {escape_markdown(note, 400)}" for note in summary.notes)
        parts.append(f"## Notes\n\n{notes}\n")
    for task, stem in zip(summary.tasks, stems, strict=True):
        label = escape_markdown(task.label)
        parts.append(f"## {label}\n\n![Learning curves, {label}]({stem}.png)\n\n{_facts(task)}\n")
    parts.append(f"## Sources\n\n{_sources(runs)}\n")
    return "\n".join(parts)


def _legend(summary: Summary) -> str:
    different = "1 test" if summary.tests == 1 else f"{summary.tests} different tests"
    tested = (
        "p: paired sign-flip test of AUC@N over seeds against the best of the other methods, "
        f"Holm-corrected over the {different} of this report; † better and ‡ worse at "
        f"p < {SIGNIFICANCE}."
        if summary.tests
        else "No two methods of a task share their seeds, so no test was made."
    )
    return (
        "**Best** and *second best* of a task are marked. Square brackets: 95 % bootstrap "
        f"interval of the mean over seeds ({statistics.RESAMPLES:,} resamples, expanded "
        "percentile). AUC@N and steps to threshold are read from the trailing mean of "
        f"{metrics.SMOOTHING_WINDOW} checkpoints; mean return over training is AUC@N / N. "
        "Steps to threshold: median over seeds, those that never got there counted at N "
        "(seeds that got there / seeds); ≥ marks a median that is a lower bound. Final return: "
        f"last {metrics.FINAL_FRACTION:.0%} of the checkpoints. std and worst seed: of the final "
        f"return. Normalised score: 0 random play, 1 optimal. {tested}\n"
    )


def _facts(task: TaskSummary) -> str:
    names = ("threshold", "optimum", "random play")
    known = [
        f"{name} {value:.5g}"
        for name, value in zip(names, task.facts, strict=True)
        if value is not None
    ]
    measure = (
        "All numbers are exact expected returns of the evaluated policy, not sampled episodes."
        if task.exact
        else "All numbers are means over sampled evaluation episodes."
    )
    return (", ".join(known).capitalize() + ". " if known else "") + measure


def _sources(runs: Sequence[RunData]) -> str:
    lines = []
    for run in runs:
        commit = str(run.provenance.get("commit") or "unknown")[:12]
        lines.append(
            f"- {_code(run.folder)}: {escape_markdown(run.method)} on {escape_markdown(run.task)}, "
            f"seeds {escape_markdown(', '.join(map(str, run.seeds)), 200)}, commit "
            f"{_code(commit)}, command {_code(_command(run) or 'unknown')}"
        )
    return "\n".join(lines)


def _command(run: RunData) -> str | None:
    command = run.provenance.get("command")
    return " ".join(map(str, command)) if isinstance(command, list) else command


def _code(text: object) -> str:
    """A code span; escaped text instead where the content could close one or be markup."""
    shown = clean(text, 400)
    return escape_markdown(text, 400) if re.search("[`<>&|]", shown) else f"`{shown}`"


def _index(
    summary: Summary, runs: Sequence[RunData], stems: Sequence[str], details: Details
) -> dict[str, Any]:
    place = {id(run): number for number, run in enumerate(runs)}
    return {
        "kind": KIND,
        "gcr_rl": __version__,
        "settings": {
            "smoothing_window": metrics.SMOOTHING_WINDOW,
            "final_fraction": metrics.FINAL_FRACTION,
            "confidence": statistics.CONFIDENCE,
            "resamples": statistics.RESAMPLES,
            "aggregate_resamples": AGGREGATE_RESAMPLES,
            "bootstrap_seed": BOOTSTRAP_SEED,
            "significance": SIGNIFICANCE,
            "correction": "Holm over all different tests of the report",
        },
        "notes": [*summary.notes, *details.notes],
        "runs": [_source(run) for run in runs],
        "rows": [_row(row) for row in summary.rows],
        "figures": [
            _figure(task, stem, place) for task, stem in zip(summary.tasks, stems, strict=True)
        ],
        "ablations": _by_task(summary, details.ablations),
        "step_costs": _by_task(summary, details.costs),
        "aggregates": [asdict(aggregate) for aggregate in details.aggregates],
        "aggregate_levels": LEVELS,
    }


def _by_task(summary: Summary, found: Sequence[Sequence[Any]]) -> list[dict[str, Any]]:
    pairs = zip(summary.tasks, found, strict=True)
    return [{"task": task.label, **asdict(one)} for task, several in pairs for one in several]


def _source(run: RunData) -> dict[str, Any]:
    return {
        "folder": str(run.folder),
        "rows": str(run.folder / "evaluation.jsonl"),
        "rows_sha256": run.evaluation_sha256,
        "config": run.config,
        "command": _command(run),
        "provenance": run.provenance,
    }


def _row(row: MethodRow) -> dict[str, Any]:
    plain = dict(vars(row))
    for name in ("auc", "mean_training_return", "final", "normalised", "to_threshold"):
        plain[name] = None if plain[name] is None else plain[name]._asdict()
    if row.comparison is not None:
        plain["comparison"] = dict(vars(row.comparison))
    return plain


def _figure(task: TaskSummary, stem: str, place: Mapping[int, int]) -> dict[str, Any]:
    return {
        "files": [f"{stem}.{kind}" for kind in KINDS],
        "task": task.task,
        "env": task.env,
        "exact": task.exact,
        "budget": task.budget,
        **task.facts._asdict(),
        "curves": [
            {
                "method": merged.method,
                "runs": [place[id(run)] for run in merged.runs],
                "seeds": merged.curve.seeds,
                "steps": merged.curve.steps[merged.curve.steps <= task.budget],
                **merged.band._asdict(),
            }
            for merged in task.curves
        ],
    }


def _figure_stems(tasks: Sequence[TaskSummary]) -> list[str]:
    """A file name per task from its label, letters and digits only; a number breaks ties."""
    stems: list[str] = []
    for task in tasks:
        plain = re.sub(r"[^A-Za-z0-9.]+", "-", task.label).strip("-.")[:60].lower()
        stem = base = f"curves-{plain or 'task'}"
        number = 2
        while stem in stems:
            stem, number = f"{base}-{number}", number + 1
        stems.append(stem)
    return stems


def _plain(value: Any) -> Any:
    """The same value in JSON's types; NaN and infinity, which JSON lacks, become null."""
    if isinstance(value, Mapping):
        return {str(key): _plain(entry) for key, entry in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        return _plain(value.tolist())
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
