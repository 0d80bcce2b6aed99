"""log.jsonl and the residuals of evaluation.jsonl -> curves of diagnostics, and what steps cost."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from gcr_rl.evaluation import metrics, statistics
from gcr_rl.evaluation.statistics import Band
from gcr_rl.report.runs import RunData, is_finite, read_bytes, read_row

RESIDUAL = "bellman_residual"
FIELDS: dict[str, str] = {
    RESIDUAL: "Bellman residual",
    "order_violation": "order violation",
    "order_violation_network": "largest violation, network",
    "order_violation_target": "violation left in targets",
    "order_loss": "order loss",
    "equivariance_loss": "equivariance loss",
    "symmetry_in_force": "transforms in force",
    "td_error_abs": "absolute temporal difference",
}
"""The fields that a report draws, in this order, with their titles."""

BASE_METHOD = "ddqn"


@dataclass(frozen=True)
class FieldCurve:
    """Mean and range over seeds of one field at environment steps ``steps``."""

    steps: Int[np.ndarray, " rows"]
    band: Band


@dataclass(frozen=True)
class RunLog:
    """What a report takes from a run's log: fields over training and the speed of its chunks."""

    fields: Mapping[str, FieldCurve]
    steps_per_s: float | None
    """Median over the chunks in which the network was updated, all seeds together."""
    wall_s: float | None
    """Sum over all chunks: training without evaluation, compilation included."""


@dataclass(frozen=True)
class StepCost:
    """The speed of a method on a task; ``relative`` is Double-DQN's speed divided by it.

    None where Double-DQN was not run there with as many seeds on the same device.
    """

    method: str
    steps_per_s: float
    wall_s: float
    seeds: int
    device: str
    relative: float | None


def read_log(run: RunData) -> RunLog:
    """The run's log; a folder without one (or with an empty one) has residuals alone."""
    path = run.folder / "log.jsonl"
    rows = []
    if path.exists():
        lines = enumerate(read_bytes(path).split(b"\n"), start=1)
        rows = [read_row(f"{path}:{number}", line) for number, line in lines if line.strip()]
    fields = {}
    residual = _curve(run.steps, run.residual)
    if residual is not None:
        fields[RESIDUAL] = residual
    steps = np.array(sorted({row["step"] for row in rows}), dtype=int)
    for name in FIELDS:
        if name != RESIDUAL and (found := _curve(steps, _table(rows, name, run.seeds, steps))):
            fields[name] = found
    return RunLog(fields, *_speed(rows))


def _table(
    rows: Sequence[Mapping[str, Any]], name: str, seeds: Sequence[int], steps: np.ndarray
) -> Float[np.ndarray, "seeds rows"]:
    row_of = {seed: place for place, seed in enumerate(seeds)}
    column_of = {int(step): place for place, step in enumerate(steps)}
    table = np.full((len(seeds), len(steps)), math.nan)
    for row in rows:
        if row["seed"] in row_of and is_finite(row.get(name)):
            table[row_of[row["seed"]], column_of[row["step"]]] = row[name]
    return table


def _curve(steps: np.ndarray, table: np.ndarray) -> FieldCurve | None:
    known = ~np.isnan(table).all(axis=0) if table.size else np.zeros(0, bool)
    if not known.any():
        return None
    return FieldCurve(steps[known], statistics.seed_range(table[:, known]))


def _speed(rows: Sequence[Mapping[str, Any]]) -> tuple[float | None, float | None]:
    """(steps per second, seconds): every seed's row of a chunk says the same, so one counts."""
    chunks = {row["step"]: row for row in rows}
    timed = [row for row in chunks.values() if is_finite(row.get("steps_per_s"))]
    updating, before = [], 0
    for row in sorted(timed, key=lambda row: row["step"]):
        updates = row.get("updates", 0)
        # Chunks that only fill the replay are no measure of a method.
        if is_finite(updates) and updates > before:
            updating.append(float(row["steps_per_s"]))
            before = updates
    if not updating:
        return None, None
    wall = [float(row["wall_s"]) for row in timed if is_finite(row.get("wall_s"))]
    return metrics.five_numbers(updating).median, math.fsum(wall)


def step_costs(
    by_method: Mapping[str, Sequence[RunData]], log_of: Mapping[int, RunLog]
) -> list[StepCost]:
    """The speed of each method of a task, over its runs, and relative to Double-DQN's."""
    found = []
    for method, runs in by_method.items():
        logs = [log_of[id(run)] for run in runs]
        speeds = [log.steps_per_s for log in logs if log.steps_per_s is not None]
        devices = sorted({str(run.provenance.get("device") or "unknown") for run in runs})
        if speeds:
            wall = math.fsum(log.wall_s or 0.0 for log in logs)
            median = metrics.five_numbers(speeds).median
            seeds = max(len(run.seeds) for run in runs)
            found.append(StepCost(method, median, wall, seeds, ", ".join(devices), None))
    base = next((cost for cost in found if cost.method == BASE_METHOD), None)
    return [_relative_to(base, cost) for cost in found]


def _relative_to(base: StepCost | None, cost: StepCost) -> StepCost:
    if base is None or (base.seeds, base.device) != (cost.seeds, cost.device):
        return cost
    ratio = base.steps_per_s / cost.steps_per_s if cost.steps_per_s > 0 else None
    return replace(cost, relative=ratio)
