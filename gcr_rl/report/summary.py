"""Runs -> rows of a table: grouping and bookkeeping. Every number comes from evaluation/."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from gcr_rl.errors import InputError
from gcr_rl.evaluation import metrics, statistics
from gcr_rl.evaluation.metrics import Curve, StepsToThreshold
from gcr_rl.evaluation.statistics import Band, Interval
from gcr_rl.report.escaping import clean
from gcr_rl.report.runs import RunData

BOOTSTRAP_SEED = 0
"""One fixed seed: the same runs give the same report, bit for bit."""

SIGNIFICANCE = 0.05
LONGEST_NOTE = 400


class TaskFacts(NamedTuple):
    """What is known of a task beforehand; None where it is not."""

    threshold: float | None = None
    optimal_return: float | None = None
    random_return: float | None = None


FactsOf = Callable[[str, Mapping[str, Any]], TaskFacts]


@dataclass(frozen=True)
class Comparison:
    """Paired sign-flip test of AUC@N against the best of the other methods."""

    reference: str
    difference: float
    p_value: float
    p_holm: float
    pairs: int

    @property
    def better(self) -> bool:
        """Significantly above the reference after Holm's correction."""
        return self.p_holm < SIGNIFICANCE and self.difference > 0

    @property
    def worse(self) -> bool:
        """Significantly below the reference after Holm's correction."""
        return self.p_holm < SIGNIFICANCE and self.difference < 0


@dataclass(frozen=True)
class MethodRow:
    """One row of the table: a method on a task, over all its seeds."""

    task: str
    method: str
    seeds: tuple[int, ...]
    budget: int
    auc_by_seed: tuple[float, ...]
    auc: Interval
    mean_training_return: Interval
    to_threshold: StepsToThreshold | None
    final_by_seed: tuple[float, ...]
    final: Interval
    std: float
    worst: float
    normalised: Interval | None
    comparison: Comparison | None


@dataclass(frozen=True)
class MethodCurve:
    """The merged runs of one method on one task, and the band that a figure draws."""

    method: str
    runs: tuple[RunData, ...]
    curve: Curve
    band: Band


@dataclass(frozen=True)
class TaskSummary:
    """All methods of one task and one set of environment options, judged up to one budget."""

    task: str
    env: Mapping[str, Any]
    label: str
    facts: TaskFacts
    exact: bool
    budget: int
    curves: tuple[MethodCurve, ...]
    rows: tuple[MethodRow, ...]


@dataclass(frozen=True)
class Summary:
    """Everything that a report shows."""

    tasks: tuple[TaskSummary, ...]
    notes: tuple[str, ...]
    tests: int
    """Different tests made, over which Holm's correction runs."""

    @property
    def rows(self) -> list[MethodRow]:
        """The rows of all tasks, task by task, best AUC@N first."""
        return [row for task in self.tasks for row in task.rows]


def task_facts(task: str, env: Mapping[str, Any]) -> TaskFacts:
    """Threshold, optimum and random return of a task of ours; nothing for a foreign one."""
    if task.startswith("gym:"):
        return TaskFacts()
    from gcr_rl.envs import task as find_task  # late: a report of foreign tasks needs no JAX

    found = find_task(task)
    return TaskFacts(found.threshold, found.optimal_return(**env), found.random_return(**env))


def summarise(runs: Sequence[RunData], facts_of: FactsOf = task_facts) -> Summary:
    """Group by (task, environment options, method), merge seeds, measure, test, correct."""
    notes: list[str] = []
    groups: dict[str, list[RunData]] = {}
    for run in runs:
        groups.setdefault(_task_key(run), []).append(run)
    measured = [_summarise_task(group, facts_of, notes) for group in groups.values()]
    tasks, tests = _compare_all(measured, notes)
    printable = [clean(note, LONGEST_NOTE) for note in notes]
    return Summary(tuple(tasks), tuple(dict.fromkeys(printable)), tests)


def _summarise_task(group: list[RunData], facts_of: FactsOf, notes: list[str]) -> TaskSummary:
    first, label = group[0], _task_label(group[0])
    facts = _known_facts(first, facts_of, label, notes)
    # One measure for all methods of a task, or the comparison would be between measures.
    exact = all(run.exact is not None for run in group)
    if not exact and any(run.exact is not None for run in group):
        notes.append(f"{label}: some runs have no exact returns; sampled episodes are used for all")
    budget = min(run.budget for run in group)
    if any(run.config["steps"] != budget for run in group):
        notes.append(f"{label}: all runs are judged up to step {budget:,}, which all have reached")
    by_method: dict[str, list[RunData]] = {}
    for run in group:
        by_method.setdefault(run.method, []).append(run)
    curves = [_merge(runs, exact, budget, label, notes) for runs in by_method.values()]
    if len({tuple(c.curve.steps[c.curve.steps <= budget]) for c in curves}) > 1:
        notes.append(
            f"{label}: methods were evaluated at different steps; the smoothing window, counted "
            "in checkpoints, spans different times"
        )
    rows = [_measure(label, curve, facts, budget) for curve in curves]
    rows.sort(key=lambda row: (-row.auc.estimate, row.method))
    return TaskSummary(
        first.task, first.env, label, facts, exact, budget, tuple(curves), tuple(rows)
    )


def _merge(
    runs: list[RunData], exact: bool, budget: int, label: str, notes: list[str]
) -> MethodCurve:
    owner: dict[int, RunData] = {}
    for run in runs:
        for seed in run.seeds:
            if seed in owner:
                both = f"seed {seed} in both {owner[seed].folder} and {run.folder}"
                raise InputError("runs", both, "every seed of a method once")
            owner[seed] = run
        if not np.array_equal(run.steps, runs[0].steps):
            both = f"{runs[0].folder} and {run.folder} were evaluated at different steps"
            raise InputError("runs", both, "one evaluation interval for the seeds of a method")
        if changed := _changed_fields(runs[0].config, run.config):
            notes.append(
                f"{label}, {run.method}: merged runs differ in {', '.join(changed)} "
                f"({runs[0].folder}, {run.folder})"
            )
    returns = np.concatenate([run.exact if exact else run.sampled for run in runs])
    seeds = tuple(seed for run in runs for seed in run.seeds)
    order = np.argsort(seeds)
    curve = Curve(runs[0].steps, returns[order], tuple(seeds[i] for i in order))
    # The figure shows what was measured: smoothing would lag behind it.
    shown = curve.returns[:, curve.steps <= budget]
    band = statistics.mean_band(shown, seed=BOOTSTRAP_SEED)
    return MethodCurve(runs[0].method, tuple(runs), curve, band)


def _measure(label: str, merged: MethodCurve, facts: TaskFacts, budget: int) -> MethodRow:
    curve = merged.curve
    auc = metrics.auc(curve, budget)
    final = metrics.final_return(curve, budget)
    normalised, low, high = None, facts.random_return, facts.optimal_return
    # Where play cannot matter (a horizon of one step, say) there is nothing to normalise by.
    if low is not None and high is not None and low < high:
        score = metrics.normalised_score(final, low, high)
        normalised = statistics.mean_interval(score, seed=BOOTSTRAP_SEED)
    to_threshold = None
    if facts.threshold is not None:
        to_threshold = metrics.steps_to_threshold(curve, facts.threshold, budget)
    return MethodRow(
        task=label,
        method=merged.method,
        seeds=curve.seeds,
        budget=budget,
        auc_by_seed=tuple(auc.tolist()),
        auc=statistics.mean_interval(auc, seed=BOOTSTRAP_SEED),
        mean_training_return=statistics.mean_interval(
            metrics.mean_training_return(curve, budget), seed=BOOTSTRAP_SEED
        ),
        to_threshold=to_threshold,
        final_by_seed=tuple(final.tolist()),
        final=statistics.mean_interval(final, seed=BOOTSTRAP_SEED),
        std=metrics.across_seed_std(final),
        worst=metrics.worst_seed(final),
        normalised=normalised,
        comparison=None,
    )


def _compare_all(tasks: Sequence[TaskSummary], notes: list[str]) -> tuple[list[TaskSummary], int]:
    """Test each method against the best other one; Holm over all different tests of the report.

    The best method against the second and the second against the best are one test.
    """
    plan = [
        (index, row, reference)
        for index, task in enumerate(tasks)
        for row, reference in _comparable(task, notes)
    ]
    tests = {_test_key(*entry): _paired_test(*entry[1:]) for entry in plan}
    _note_small_samples(tests.values(), notes)
    adjusted = statistics.holm([test.p_value for test in tests.values()])
    holm_of = dict(zip(tests, adjusted.tolist(), strict=True))
    comparison_of = {
        (entry[0], entry[1].method): _comparison(
            *entry[1:], tests[_test_key(*entry)], holm_of[_test_key(*entry)]
        )
        for entry in plan
    }
    return [
        replace(task, rows=tuple(_attach(row, comparison_of, index) for row in task.rows))
        for index, task in enumerate(tasks)
    ], len(tests)


def _attach(
    row: MethodRow, comparison_of: Mapping[tuple[int, str], Comparison], task: int
) -> MethodRow:
    return replace(row, comparison=comparison_of.get((task, row.method)))


def _comparable(task: TaskSummary, notes: list[str]) -> Iterable[tuple[MethodRow, MethodRow]]:
    """Each row with the best of the others, where the seeds pair up; rows are sorted by AUC."""
    if len(task.rows) < 2:
        return
    for place, row in enumerate(task.rows):
        reference = task.rows[0 if place else 1]
        if row.seeds == reference.seeds:
            yield row, reference
        else:
            names = " and ".join(sorted((row.method, reference.method)))
            notes.append(f"{task.label}: {names} have different seeds, so no paired test")


def _test_key(task: int, row: MethodRow, reference: MethodRow) -> tuple[int, frozenset[str]]:
    return task, frozenset((row.method, reference.method))


def _paired_test(row: MethodRow, reference: MethodRow) -> statistics.PairedTest:
    return statistics.paired_permutation_test(
        dict(zip(row.seeds, row.auc_by_seed, strict=True)),
        dict(zip(reference.seeds, reference.auc_by_seed, strict=True)),
        seed=BOOTSTRAP_SEED,
    )


def _comparison(
    row: MethodRow, reference: MethodRow, test: statistics.PairedTest, p_holm: float
) -> Comparison:
    difference = row.auc.estimate - reference.auc.estimate
    return Comparison(reference.method, difference, test.p_value, p_holm, test.pairs)


def _note_small_samples(tests: Iterable[statistics.PairedTest], notes: list[str]) -> None:
    for pairs in sorted({test.pairs for test in tests}):
        if (least := statistics.smallest_p_value(pairs)) >= SIGNIFICANCE:
            notes.append(
                f"{pairs} paired seeds cannot show a difference at p < {SIGNIFICANCE}: "
                f"the smallest p value there is {least:g}"
            )


def _known_facts(run: RunData, facts_of: FactsOf, label: str, notes: list[str]) -> TaskFacts:
    try:
        return facts_of(run.task, run.env)
    except InputError as error:
        # A run of a task that this version does not know still has a curve to show.
        notes.append(f"{label}: threshold and optimum unknown ({error})")
        return TaskFacts()


def _task_key(run: RunData) -> str:
    return json.dumps([run.task, run.env], sort_keys=True)


def _task_label(run: RunData) -> str:
    options = ", ".join(f"{name}={value}" for name, value in sorted(run.env.items()))
    return f"{run.task} ({options})" if options else run.task


def _changed_fields(first: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """Settings that shape the result and differ; seeds and what is written do not count."""
    names = sorted((set(first) | set(other)) - {"seeds", "run"})
    return [name for name in names if first.get(name) != other.get(name)]
