"""Methods over several tasks: IQM, performance profiles and probability of improvement.

Scores are normalised final returns (0 random play, 1 optimal), an array runs × tasks. Only tasks
with a known optimum can take part, and only what every compared method has run is compared.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from jaxtyping import Float

from gcr_rl.evaluation import metrics, statistics
from gcr_rl.evaluation.statistics import Band, Interval
from gcr_rl.report.summary import BOOTSTRAP_SEED, MethodRow, Summary, TaskSummary

RESAMPLES = 2_000
"""Of the stratified bootstrap: percentile ends of these aggregates move little beyond it."""

LEVELS = np.linspace(0.0, 1.0, 51)
"""Scores at which a performance profile is read."""


@dataclass(frozen=True)
class MethodScores:
    """A method over the tasks of an aggregate; ``seeds`` are those that all its tasks share."""

    method: str
    seeds: tuple[int, ...]
    iqm: Interval
    profile: Band


@dataclass(frozen=True)
class Improvement:
    """Chance that a run of ``first`` scores above one of ``second``, mean over tasks."""

    first: str
    second: str
    probability: Interval


@dataclass(frozen=True)
class Aggregate:
    """A set of methods judged on a set of tasks that all of them have run."""

    title: str
    tasks: tuple[str, ...]
    methods: tuple[MethodScores, ...]
    improvements: tuple[Improvement, ...]


def aggregates(summary: Summary) -> tuple[list[Aggregate], list[str]]:
    """Every method on the tasks that all have run, and those that have run all tasks on all.

    One aggregate where the two are the same. Returns them and notes on what was left out.
    """
    tasks = [task for task in summary.tasks if _can_be_normalised(task)]
    methods = list(dict.fromkeys(row.method for task in tasks for row in task.rows))
    ran = {method: {t.label for t in tasks if method in _names(t)} for method in methods}
    shared = [task for task in tasks if all(task.label in ran[method] for method in methods)]
    everywhere = [method for method in methods if len(ran[method]) == len(tasks)]
    wanted = [("every method, on the tasks that all have run", methods, shared)]
    if len(shared) < len(tasks):
        wanted.append(("methods that have run every task", everywhere, tasks))
    notes: list[str] = []
    found = []
    for title, chosen, on in wanted:
        if len(chosen) > 1 and on:
            found.append(_aggregate(title, chosen, on, notes))
    return [one for one in found if len(one.methods) > 1], notes


def _aggregate(
    title: str, methods: Sequence[str], tasks: Sequence[TaskSummary], notes: list[str]
) -> Aggregate:
    scores = {method: _scores(method, tasks, title, notes) for method in methods}
    kept = {method: pair for method, pair in scores.items() if pair is not None}
    judged = tuple(
        MethodScores(
            method,
            seeds,
            statistics.iqm_interval(table, seed=BOOTSTRAP_SEED, resamples=RESAMPLES),
            statistics.performance_profile(table, LEVELS, seed=BOOTSTRAP_SEED, resamples=RESAMPLES),
        )
        for method, (seeds, table) in kept.items()
    )
    tables = {method: table for method, (_, table) in kept.items()}
    return Aggregate(title, tuple(task.label for task in tasks), judged, _improvements(tables))


def _improvements(tables: Mapping[str, np.ndarray]) -> tuple[Improvement, ...]:
    return tuple(
        Improvement(
            first,
            second,
            statistics.probability_of_improvement(
                tables[first], tables[second], seed=BOOTSTRAP_SEED, resamples=RESAMPLES
            ),
        )
        for first, second in combinations(tables, 2)
    )


def _scores(
    method: str, tasks: Sequence[TaskSummary], title: str, notes: list[str]
) -> tuple[tuple[int, ...], Float[np.ndarray, "runs tasks"]] | None:
    """Normalised final returns of the seeds that ``method`` has on every task; None without."""
    rows = [next(row for row in task.rows if row.method == method) for task in tasks]
    seeds = sorted(set.intersection(*(set(row.seeds) for row in rows)))
    if dropped := max(len(row.seeds) for row in rows) - len(seeds):
        notes.append(
            f"{title}: {method} is judged on the {len(seeds)} seed(s) that all its tasks share; "
            f"up to {dropped} of a task are left out"
        )
    if not seeds:
        return None
    columns = [_normalised(row, task, seeds) for row, task in zip(rows, tasks, strict=True)]
    return tuple(seeds), np.stack(columns, axis=1)


def _normalised(
    row: MethodRow, task: TaskSummary, seeds: Sequence[int]
) -> Float[np.ndarray, " runs"]:
    final = dict(zip(row.seeds, row.final_by_seed, strict=True))
    low, high = task.facts.random_return, task.facts.optimal_return
    assert low is not None and high is not None  # only such tasks are aggregated
    return metrics.normalised_score([final[seed] for seed in seeds], low, high)


def _can_be_normalised(task: TaskSummary) -> bool:
    low, high = task.facts.random_return, task.facts.optimal_return
    return low is not None and high is not None and low < high


def _names(task: TaskSummary) -> set[str]:
    return {row.method for row in task.rows}
