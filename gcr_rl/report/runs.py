"""Run folders -> checked arrays. Reads only; every complaint names the folder and the place."""

import hashlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from gcr_rl.errors import InputError

_MEAN_TOLERANCE = 1e-3
"""Relative: the trainer may have averaged in single precision."""


@dataclass(frozen=True)
class RunData:
    """One finished run: its settings, and the mean return of every seed at every checkpoint.

    ``exact`` holds the exact expected returns where all rows have one, else None;
    ``residual`` the Bellman residuals, NaN where a row has none.
    """

    folder: Path
    config: Mapping[str, Any]
    provenance: Mapping[str, Any]
    summary: Mapping[str, Any]
    evaluation_sha256: str
    steps: Int[np.ndarray, " checkpoints"]
    seeds: tuple[int, ...]
    sampled: Float[np.ndarray, "seeds checkpoints"]
    exact: Float[np.ndarray, "seeds checkpoints"] | None
    residual: Float[np.ndarray, "seeds checkpoints"]

    @property
    def task(self) -> str:
        """Task name."""
        return str(self.config["task"])

    @property
    def method(self) -> str:
        """Method name."""
        return str(self.config["method"])

    @property
    def env(self) -> Mapping[str, Any]:
        """Options that the environment was made with."""
        return self.config["env"]

    @property
    def budget(self) -> int:
        """Environment steps up to which the run can be judged: N, or its last checkpoint."""
        return min(int(self.config["steps"]), int(self.steps[-1]))


def load_runs(paths: Iterable[str | Path] | str | Path) -> list[RunData]:
    """Read and check run folders; each must be finished (have a ``summary.json``)."""
    # A lone string would otherwise be read as one folder per letter.
    several = [paths] if isinstance(paths, str | Path) else paths
    folders = [Path(path) for path in several]
    if not folders:
        raise InputError("runs", [], "at least one run folder")
    return [_load_run(folder) for folder in folders]


def _load_run(folder: Path) -> RunData:
    if not folder.is_dir():
        raise InputError("run", str(folder), "an existing run folder")
    config = _read_config(folder)
    if not (folder / "summary.json").exists():
        raise InputError("run", str(folder), "a finished run; `gcr resume` finishes this one")
    summary = read_object(folder / "summary.json")
    if (status := summary.get("status")) != "finished":
        reason = f"{folder} ({status or 'no status'}: {summary.get('reason', 'no reason given')})"
        raise InputError("run", reason, "a run whose summary.json says that it finished")
    provenance = read_object(folder / "provenance.json")
    content = read_bytes(folder / "evaluation.jsonl")
    rows = _read_rows(folder / "evaluation.jsonl", content)
    steps, sampled, exact, residual = _arrange(folder, rows, config["seeds"])
    return RunData(
        folder=folder,
        config=config,
        provenance=provenance,
        summary=summary,
        evaluation_sha256=hashlib.sha256(content).hexdigest(),
        steps=steps,
        seeds=tuple(config["seeds"]),
        sampled=sampled,
        exact=exact,
        residual=residual,
    )


def read_bytes(path: Path) -> bytes:
    """The content of a file, or a complaint that names it."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(str(path), error.strerror, "a readable file of a run folder") from error


def read_object(path: Path) -> dict[str, Any]:
    """The object in a JSON file, or a complaint that names the file."""
    content = read_bytes(path)
    try:
        value = json.loads(content)
    # RecursionError: a file of nested brackets.
    except (ValueError, RecursionError) as error:
        raise InputError(str(path), f"not JSON ({error})", "a JSON object") from error
    if not isinstance(value, dict):
        raise InputError(str(path), type(value).__name__, "a JSON object")
    return value


def _read_config(folder: Path) -> dict[str, Any]:
    path = folder / "config.json"
    config = {"env": {}, **read_object(path)}
    for key in ("task", "method"):
        if not isinstance(config.get(key), str) or not config[key]:
            raise InputError(f"{path}: {key}", config.get(key), "a name")
    if not _is_whole(config.get("steps")) or config["steps"] < 1:
        raise InputError(f"{path}: steps", config.get("steps"), "a whole number of at least 1")
    if not isinstance(config["env"], dict):
        raise InputError(f"{path}: env", config["env"], "an object of options")
    seeds = config.get("seeds")
    if (
        not isinstance(seeds, list)
        or not seeds
        or not all(_is_whole(seed) for seed in seeds)
        or len(set(seeds)) != len(seeds)
    ):
        raise InputError(f"{path}: seeds", seeds, "a list of different whole numbers")
    return config


def _read_rows(path: Path, content: bytes) -> list[dict[str, Any]]:
    rows = []
    for number, line in enumerate(content.split(b"\n"), start=1):
        if line.strip():
            rows.append(_read_evaluation(f"{path}:{number}", line))
    if not rows:
        raise InputError(str(path), "no rows", "one row per seed and checkpoint")
    return rows


def read_row(place: str, line: bytes) -> dict[str, Any]:
    """The object in a line of a log, with its step and seed; ``place`` stands in complaints."""
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InputError(place, f"not JSON ({error})", "a JSON object per line") from error
    if not isinstance(row, dict):
        raise InputError(place, type(row).__name__, "a JSON object per line")
    for key in ("step", "seed"):
        if not _is_whole(row.get(key)):
            raise InputError(f"{place}: {key}", row.get(key), "a whole number")
    return row


def _read_evaluation(place: str, line: bytes) -> dict[str, Any]:
    row = read_row(place, line)
    returns = row.get("returns")
    if not isinstance(returns, list) or not returns or not all(map(is_finite, returns)):
        raise InputError(f"{place}: returns", returns, "a list of finite numbers, not empty")
    mean = math.fsum(returns) / len(returns)
    if not is_finite(row.get("mean_return")) or not math.isclose(
        row["mean_return"], mean, rel_tol=_MEAN_TOLERANCE, abs_tol=_MEAN_TOLERANCE
    ):
        raise InputError(f"{place}: mean_return", row.get("mean_return"), f"the mean, {mean}")
    exact = row.get("exact_return")
    if exact is not None and not is_finite(exact):
        raise InputError(f"{place}: exact_return", exact, "a finite number or null")
    residual = row.get("bellman_residual")
    if not is_finite(residual):  # a run before the first update, or of an older version
        residual = math.nan
    kept = {"step": row["step"], "seed": row["seed"]}
    return {**kept, "mean": mean, "exact": exact, "residual": residual}


def _arrange(
    folder: Path, rows: Sequence[Mapping[str, Any]], seeds: Sequence[int]
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None, np.ndarray]:
    """Rows -> (steps, sampled means, exact returns or None, residuals), seeds × checkpoints."""
    field = str(folder / "evaluation.jsonl")
    by_place = {(row["seed"], row["step"]): row for row in rows}
    if len(by_place) != len(rows):
        raise InputError(field, "two rows of one seed and step", "one row per seed and step")
    steps = sorted({row["step"] for row in rows})
    expected = {(seed, step) for seed in seeds for step in steps}
    if strangers := sorted({seed for seed, _ in set(by_place) - expected}):
        raise InputError(field, f"seeds {strangers}", f"the seeds of config.json, {list(seeds)}")
    if missing := sorted(expected - set(by_place)):
        seed, step = missing[0]
        raise InputError(field, f"no row of seed {seed} at step {step}", "a row per seed and step")
    if steps[0] != 0 or len(steps) < 2:
        raise InputError(field, f"checkpoints {steps[:3]}", "one at step 0 and one later at least")
    table = [[by_place[seed, step] for step in steps] for seed in seeds]
    sampled = np.array([[row["mean"] for row in line] for line in table])
    residual = np.array([[row["residual"] for row in line] for line in table])
    exact = None
    if all(row["exact"] is not None for row in rows):
        exact = np.array([[row["exact"] for row in line] for line in table])
    return np.array(steps), sampled, exact, residual


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**63


def is_finite(value: object) -> bool:
    """Whether ``value`` is a number that arithmetic can take."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return abs(value) < 1e300
