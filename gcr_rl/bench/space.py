"""Search spaces as data: which fields are tuned, over which values, with how many trials."""

import fnmatch
import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gcr_rl.bench.tables import as_count, as_table, locate, only_names, packaged, read_toml
from gcr_rl.config import dotted_names
from gcr_rl.errors import InputError, unknown_name

_KINDS = ("log", "uniform", "choices")
_DIGITS = 3
"""Significant digits of a drawn number: a preset is read by people."""


@dataclass(frozen=True)
class Range:
    """The values of one field: u in [0, 1) -> a value.

    ``log``: low·(high/low)^u; ``uniform``: low + (high − low)·u; ``choices``: values[⌊u·n⌋].
    """

    kind: str
    values: tuple[Any, ...]

    def at(self, u: float) -> Any:
        """The value at ``u``."""
        if self.kind == "choices":
            return self.values[int(u * len(self.values))]
        low, high = self.values
        value = low * (high / low) ** u if self.kind == "log" else low + (high - low) * u
        return float(f"{value:.{_DIGITS}g}")


@dataclass(frozen=True)
class Space:
    """What is searched for a method on a task; the numbers are the same for every method."""

    ranges: Mapping[str, Range]
    trials: int
    seeds: int
    rungs: int

    def draw(self, seed: int, trial: int, attempt: int = 0) -> dict[str, Any]:
        """The values of one trial; each field has a stream of its own.

        A field that is added or removed leaves the values of the others as they were.
        """
        return {
            name: values.at(_uniform(f"{seed}/{trial}/{attempt}/{name}"))
            for name, values in sorted(self.ranges.items())
        }


def load_space(task: str, method: str, file: str | None = None) -> Space:
    """The space of ``task`` (or in ``file``) as ``method`` sees it."""
    if file is None and task not in packaged("spaces"):
        accepted = f"a task with a space ({', '.join(packaged('spaces'))}), or --space FILE"
        raise InputError("task", task, accepted)
    path = locate("space", file or task, "spaces")
    return parse_space(read_toml(path, "space"), path, method)


def parse_space(data: Mapping[str, Any], path: Path, method: str) -> Space:
    """The space that ``data`` describes; ``path`` stands in complaints."""
    only_names(str(path), data, ("trials", "seeds", "rungs", "fields", "methods"))
    tables = [("fields", as_table(f"{path}: fields", data.get("fields", {})))]
    for pattern, table in as_table(f"{path}: methods", data.get("methods", {})).items():
        if fnmatch.fnmatchcase(method, pattern):
            tables.append((f"methods.{pattern}", as_table(f"{path}: methods.{pattern}", table)))
    ranges: dict[str, Range] = {}
    for place, table in tables:
        for name, value in table.items():
            ranges[name] = _range(f"{path}: {place}.{name}", name, value)
    if not ranges:
        raise InputError(f"{path}: fields", {}, "one field to tune at least")
    return Space(
        ranges,
        as_count(f"{path}: trials", data.get("trials", 16)),
        as_count(f"{path}: seeds", data.get("seeds", 4)),
        as_count(f"{path}: rungs", data.get("rungs", 1)),
    )


def _range(where: str, name: str, value: object) -> Range:
    if name not in dotted_names() or name in ("task", "method", "seeds", "steps", "env"):
        raise unknown_name(f"{where}: configuration field", name, dotted_names())
    table = as_table(where, value)
    if len(table) != 1 or next(iter(table)) not in _KINDS:
        raise InputError(where, sorted(table), f"one of {', '.join(_KINDS)}")
    kind, values = next(iter(table.items()))
    if not isinstance(values, list) or not values:
        raise InputError(where, values, "a list of values")
    if kind == "choices":
        return Range(kind, tuple(tuple(v) if isinstance(v, list) else v for v in values))
    numbers = [float(v) for v in values if isinstance(v, int | float) and not isinstance(v, bool)]
    low, high = (numbers[0], numbers[-1]) if len(numbers) == len(values) == 2 else (1.0, 0.0)
    if not (math.isfinite(low) and math.isfinite(high)) or low >= high:
        raise InputError(where, values, "two numbers, the lower one first")
    if kind == "log" and low <= 0:
        raise InputError(where, values, "two numbers above 0")
    return Range(kind, (low, high))


def _uniform(text: str) -> float:
    """A number in [0, 1) with 53 random bits, the same for the same text everywhere."""
    return (int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 11) / 2**53
