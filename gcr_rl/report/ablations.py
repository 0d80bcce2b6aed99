"""What a part contributes: a method against the same method without it, on the same seeds."""

from dataclasses import dataclass

from gcr_rl.evaluation import statistics
from gcr_rl.evaluation.statistics import Interval
from gcr_rl.report.summary import BOOTSTRAP_SEED, MethodRow, TaskSummary

ABLATIONS: dict[str, dict[str, str]] = {
    "gcr-hard": {
        "sym-only": "without the order",
        "logic-only": "without symmetries",
        "no-relabel": "without relabelling",
        "gcr-soft": "as losses",
        "ddqn": "without either",
    },
    "paper-soft": {
        "paper-sym-only": "without the order",
        "paper-logic-only": "without symmetries",
        "paper-no-relabel": "without relabelling",
        "paper-hard": "by the manifold step",
    },
}
"""A full method, and for each of its variants what is different there."""


@dataclass(frozen=True)
class Ablation:
    """mean(variant − full) of the mean return over training, over the seeds that both have."""

    full: str
    variant: str
    change: str
    difference: Interval
    pairs: int


def ablations(task: TaskSummary) -> list[Ablation]:
    """Every variant of a full method that ran on the task, if they share a seed."""
    row_of = {row.method: row for row in task.rows}
    found = []
    for full, variants in ABLATIONS.items():
        for variant, change in variants.items():
            if full in row_of and variant in row_of:
                first, second = _by_seed(row_of[variant]), _by_seed(row_of[full])
                shared = sorted(set(first) & set(second))
                if shared:
                    difference = statistics.paired_difference(
                        {seed: first[seed] for seed in shared},
                        {seed: second[seed] for seed in shared},
                        seed=BOOTSTRAP_SEED,
                    )
                    found.append(Ablation(full, variant, change, difference, len(shared)))
    return found


def _by_seed(row: MethodRow) -> dict[int, float]:
    """AUC@N / N by seed: in the units of a return."""
    pairs = zip(row.seeds, row.auc_by_seed, strict=True)
    return {seed: value / row.budget for seed, value in pairs}
