"""Everything that is shown of a run: numbers from its rows, pictures from its newest checkpoint."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax
import numpy as np

from gcr_rl.inspection import pictures
from gcr_rl.inspection.diagnostics import Series, changes, over_seeds, read_series, trend
from gcr_rl.inspection.grid import grid_of, value_map
from gcr_rl.inspection.slot_order import can_order, slot_order
from gcr_rl.inspection.snapshot import (
    Snapshot,
    certificates,
    newest_rows,
    read_snapshot,
    value_variance,
)
from gcr_rl.symmetry import sinkhorn
from gcr_rl.symmetry.latent import LatentSettings
from gcr_rl.symmetry.recovered import figure as group_figure
from gcr_rl.training.run_folder import as_path, read_summary


@dataclass
class Findings:
    """What an inspection found. ``images`` are file contents by name, ``remarks`` say what could
    not be shown and why."""

    snapshot: Snapshot
    status: str
    series: dict[int, dict[str, Series]]
    symmetry: dict[str, Any] | None = None
    order: dict[str, Any] | None = None
    batch_order: dict[str, Any] | None = None
    values: dict[str, Any] | None = None
    value_variance: dict[str, Any] | None = None
    images: dict[str, bytes] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)

    def data(self) -> dict[str, Any]:
        """Plain data for a JSON file: trends per seed and of the mean over seeds."""
        snapshot = self.snapshot
        return {
            "run": str(snapshot.path), "task": snapshot.config.task,
            "method": snapshot.config.method, "status": self.status,
            "checkpoint": snapshot.step, "steps": snapshot.config.steps,
            "seeds": list(snapshot.config.seeds),
            "mean_over_seeds": _trends(over_seeds(self.series)),
            "per_seed": {str(seed): _trends(found) for seed, found in self.series.items()},
            "symmetry_changes": {str(seed): symmetry_changes(found)
                                 for seed, found in self.series.items()},
            "drawn_seed": snapshot.seed, "symmetry": self.symmetry, "order": self.order,
            "batch_order": self.batch_order, "values": self.values,
            "value_variance": self.value_variance, "remarks": self.remarks,
        }  # fmt: skip


def inspect_run(run: str | Path, *, seed: int | None = None) -> Findings:
    """Read the run's rows and the newest checkpoint of ``seed`` (the first, if none is named)."""
    path = as_path("run", run)
    snapshot = read_snapshot(path, seed)
    findings = Findings(snapshot, _status(path), read_series(path, snapshot.config.seeds))
    findings.remarks += [f"passed over a damaged checkpoint: {line}" for line in
                         snapshot.passed_over]  # fmt: skip
    for part in (_group, _bank, _order, _values, _variance):
        part(findings)
    return findings


def symmetry_changes(found: dict[str, Series]) -> dict[str, list[dict[str, float]]]:
    """When the counts of transforms in force, certified and revoked moved, by the rows."""
    names = ("symmetry_in_force", "symmetry_certified", "symmetry_revoked")
    return {name: changes(found[name]) for name in names if name in found}


def _trends(found: dict[str, Series]) -> dict[str, Any]:
    return {name: trend(series).data() for name, series in found.items()}


def _status(path: Path) -> str:
    if not (path / "summary.json").exists():
        return "unfinished"
    summary = read_summary(path)
    return str(summary["status"])


def _title(findings: Findings, what: str) -> str:
    snapshot = findings.snapshot
    return (
        f"{snapshot.config.task}, {snapshot.config.method}, seed {snapshot.seed}, "
        f"step {snapshot.step:,}: {what}"
    )


def _draw(findings: Findings, name: str, make: Callable[[], Any]) -> None:
    for kind, content in pictures.encoded(make()).items():
        findings.images[f"{name}-seed{findings.snapshot.seed}.{kind}"] = content


def _group(findings: Findings) -> None:
    """The recovered group: permutation heat maps, an observation and its orbits."""
    snapshot = findings.snapshot
    if snapshot.config.symmetry.family == "none":
        findings.remarks.append(f"no group: {snapshot.config.method} looks for no symmetry")
        return
    found = certificates(snapshot)
    if found is None:
        return
    group, standing = found
    findings.symmetry = group.data() | {
        "revoked": int(standing.revoked.sum()), "checks": standing.checks,
    }  # fmt: skip
    if not group.elements:
        findings.remarks.append(
            f"no group: no symmetry is in force at step {snapshot.step:,} "
            f"after {standing.checks} check(s)"
        )
        return
    vocabulary = snapshot.agent.vocabulary
    assert vocabulary is not None
    stored = newest_rows(snapshot, 1).observation
    newest = jax.tree.map(lambda leaf: leaf[-1, 0], stored)
    observation = np.asarray(snapshot.decode(newest))
    _draw(findings, "group", lambda: group_figure(group, standing, vocabulary, observation))


def _bank(findings: Findings) -> None:
    """The soft permutations of the latent family."""
    snapshot = findings.snapshot
    if snapshot.config.symmetry.family != "latent":
        return
    logits = snapshot.agent_state.params.bank.logits
    rounds = LatentSettings().sinkhorn_iterations
    soft = np.asarray(jax.vmap(lambda table: sinkhorn(table, rounds))(logits))
    if not snapshot.config.symmetry.relabel:
        soft = np.broadcast_to(np.eye(soft.shape[-1]), soft.shape)
    findings.symmetry = {"latent_elements": len(soft), "relabellings": soft.tolist()}
    title = _title(findings, "relabellings of the latent bank")
    _draw(findings, "group", lambda: pictures.bank_figure(soft, title))


def _order(findings: Findings) -> None:
    """The Hasse diagram of a batch, and the size of the order on a batch of the run's size."""
    snapshot = findings.snapshot
    reason = can_order(snapshot)
    if reason is not None:
        findings.remarks.append(f"no order: {reason}")
        return
    order = slot_order(snapshot)
    batch = order if order.named else slot_order(snapshot, snapshot.config.replay.batch_size)
    findings.order, findings.batch_order = order.data(), batch.data()
    what = "states" if order.named else "slots"
    told = findings.order
    title = _title(
        findings,
        f"\n{told['nodes']} {what}, {told['size']} relations, width {told['width']}, "
        f"height {told['height']}",
    )
    _draw(findings, "order", lambda: pictures.hasse_figure(order, title))


def _values(findings: Findings) -> None:
    """The value map of a grid task beside the optimal one."""
    snapshot = findings.snapshot
    grid = grid_of(snapshot.config)
    if grid is None:
        findings.remarks.append(f"no value map: {snapshot.config.task} is no grid task")
        return
    found = value_map(snapshot, grid)
    findings.values = found.data()
    _draw(findings, "values",
          lambda: pictures.value_figure(found, _title(findings, "values by cell")))  # fmt: skip


def _variance(findings: Findings) -> None:
    findings.value_variance = value_variance(findings.snapshot)
    if findings.value_variance is None:
        findings.remarks.append("no value variance: it takes two checkpoints with a replay")
