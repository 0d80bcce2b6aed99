"""What a report has beside its summary: logs, costs, ablations, and methods over all tasks."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gcr_rl.report.ablations import Ablation, ablations
from gcr_rl.report.aggregate import Aggregate, aggregates
from gcr_rl.report.logs import RunLog, StepCost, read_log, step_costs
from gcr_rl.report.runs import RunData
from gcr_rl.report.summary import Summary


@dataclass(frozen=True)
class Details:
    """In the order of the summary's tasks; ``logs`` by the identity of the run."""

    logs: Mapping[int, RunLog]
    costs: Sequence[Sequence[StepCost]]
    ablations: Sequence[Sequence[Ablation]]
    aggregates: Sequence[Aggregate]
    notes: Sequence[str]


def collect_details(summary: Summary, runs: Sequence[RunData]) -> Details:
    """Read the logs of all runs, and compare what the summary measured."""
    logs = {id(run): read_log(run) for run in runs}
    found, notes = aggregates(summary)
    costs = [
        step_costs({merged.method: merged.runs for merged in task.curves}, logs)
        for task in summary.tasks
    ]
    return Details(logs, costs, [ablations(task) for task in summary.tasks], found, notes)
