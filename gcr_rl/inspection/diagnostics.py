"""The rows of a run as series over training, and what people read of them at a glance."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from gcr_rl.errors import InputError
from gcr_rl.training.run_folder import read_rows

SECTIONS: dict[str, tuple[str, ...]] = {
    "learning": (
        "episode_return", "epsilon", "td_loss", "loss", "td_error_abs", "q_mean", "grad_norm",
    ),
    "order": (
        "order_violation", "order_violation_network", "order_violation_target", "order_coverage",
        "edges_proposed", "edges_kept", "edges_refused", "order_loss", "dag_loss",
        "manifold_active", "manifold_accepted", "manifold_fallback",
    ),
    "schedule": (
        "order_strength", "order_margin", "order_penalty", "transition_noise",
        "transition_surprise", "td_unexplained",
    ),
    "symmetry": (
        "symmetry_in_force", "symmetry_certified", "symmetry_revoked", "symmetry_checks",
        "equivariance_loss", "shared_td_loss",
    ),
    "evaluation": ("exact_return", "mean_return", "bellman_residual", "start_value"),
}  # fmt: skip
"""Where each field is shown, in this order; ``latent_...`` and unknown fields come after."""

_NOT_SHOWN = frozenset({"step", "seed", "updates", "episodes", "wall_s", "steps_per_s"})
_BLOCKS = "▁▂▃▄▅▆▇█"


@dataclass(frozen=True)
class Series:
    """One field of one seed, or its mean over seeds: ``values[i]`` at environment step
    ``steps[i]``. Rows without a finite value are left out."""

    name: str
    steps: Int[np.ndarray, " rows"]
    values: Float[np.ndarray, " rows"]


@dataclass(frozen=True)
class Trend:
    """A series at its first row, at the row nearest to half its steps, and at its last."""

    first: float
    middle: float
    last: float
    least: float
    most: float
    rows: int

    def data(self) -> dict[str, Any]:
        """Plain data for a JSON file."""
        return asdict(self)


def read_series(path: Path, seeds: Sequence[int]) -> dict[int, dict[str, Series]]:
    """Every numeric field of log.jsonl and evaluation.jsonl, by seed and name."""
    found: dict[int, dict[str, Series]] = {seed: {} for seed in seeds}
    for name in ("log", "evaluation"):
        file = path / f"{name}.jsonl"
        rows = read_rows(file)
        for seed in seeds:
            found[seed] |= _series_of(_rows_of(rows, seed, seeds, file))
    return found


def _rows_of(rows: list[Any], seed: int, seeds: Sequence[int], file: Path) -> list[dict[str, Any]]:
    for row in rows:
        whole = isinstance(row, dict) and all(type(row.get(n)) is int for n in ("step", "seed"))
        if not whole or row["seed"] not in seeds:
            accepted = f"rows with a step and one of the seeds {list(seeds)}"
            raise InputError("run", str(file), f"{accepted}, not {str(row)[:60]}")
    return [row for row in rows if row["seed"] == seed]


def _series_of(rows: list[dict[str, Any]]) -> dict[str, Series]:
    points: dict[str, list[tuple[int, float]]] = {}
    for row in rows:
        for name, value in row.items():
            number = isinstance(value, int | float) and not isinstance(value, bool)
            if name not in _NOT_SHOWN and number and math.isfinite(value):
                points.setdefault(name, []).append((row["step"], float(value)))
    return {
        name: Series(name, np.array([s for s, _ in pairs]), np.array([v for _, v in pairs]))
        for name, pairs in points.items()
    }


def mean_series(series: Sequence[Series]) -> Series:
    """The mean over seeds at every step, over the seeds that have a value there."""
    steps = np.unique(np.concatenate([one.steps for one in series]))
    total, count = np.zeros(len(steps)), np.zeros(len(steps))
    for one in series:
        place = np.searchsorted(steps, one.steps)
        np.add.at(total, place, one.values)
        np.add.at(count, place, 1)
    return Series(series[0].name, steps, total / count)


def over_seeds(found: Mapping[int, Mapping[str, Series]]) -> dict[str, Series]:
    """The mean over seeds of every field that some seed has."""
    names = {name: None for fields in found.values() for name in fields}
    return {
        name: mean_series([fields[name] for fields in found.values() if name in fields])
        for name in names
    }


def trend(series: Series) -> Trend:
    """First, middle and last value, range and number of rows."""
    middle = np.abs(series.steps - (series.steps[0] + series.steps[-1]) / 2).argmin()
    values = series.values
    return Trend(
        float(values[0]), float(values[middle]), float(values[-1]),
        float(values.min()), float(values.max()), len(values),
    )  # fmt: skip


def sparkline(values: Float[np.ndarray, " rows"], width: int = 16) -> str:
    """At most ``width`` bars, each the mean of a stretch, from the least to the largest."""
    stretches = np.array_split(values, min(width, len(values)))
    means = np.array([stretch.mean() for stretch in stretches])
    span = means.max() - means.min()
    if not span > 1e-6 * np.abs(means).max():  # rounding is no movement
        return _BLOCKS[0] * len(means)
    level = (means - means.min()) / span * (len(_BLOCKS) - 1)
    return "".join(_BLOCKS[round(one)] for one in level.tolist())


def sections(names: Iterable[str]) -> dict[str, list[str]]:
    """The fields that exist, under the headings of a table."""
    left = set(names)
    found = {title: [name for name in known if name in left] for title, known in SECTIONS.items()}
    left -= {name for known in SECTIONS.values() for name in known}
    found["latent"] = sorted(name for name in left if name.startswith("latent_"))
    found["other"] = sorted(left - set(found["latent"]))
    return {title: fields for title, fields in found.items() if fields}


def changes(series: Series) -> list[dict[str, float]]:
    """The rows at which a count differs from the row before: ``step``, ``before``, ``after``."""
    moved = np.flatnonzero(np.diff(series.values)) + 1
    return [
        {
            "step": int(series.steps[i]),
            "before": float(series.values[i - 1]),
            "after": float(series.values[i]),
        }
        for i in moved
    ]
