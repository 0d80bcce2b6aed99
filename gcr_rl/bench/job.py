"""A job: one configuration with all its seeds, keyed by everything that determines its result."""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gcr_rl.config import Config

SCHEMA = 2
"""Part of every key: raised when the same configuration comes to mean another computation."""

_WITHOUT_EFFECT = (("run", "keep"), ("run", "tensorboard"))
"""Fields that change what is kept of a run, never its rows."""

_DIGITS = 16


@dataclass(frozen=True)
class Job:
    """One program to run: a task, a method, their settings and all seeds side by side."""

    config: Config
    report: str = "report"
    """Name of the report that shows it."""

    @property
    def key(self) -> str:
        """TASK-METHOD-HASH."""
        return key_of(self.config.to_json())

    @property
    def name(self) -> str:
        """For people: the method, the task with its options, the seeds, the steps."""
        config = self.config
        options = ", ".join(f"{name}={value}" for name, value in sorted(config.env.items()))
        task = f"{config.task} ({options})" if options else config.task
        first, count = config.seeds[0], len(config.seeds)
        start = f" from {first}" if first else ""
        seeds = f"seed {first}" if count == 1 else f"{count} seeds{start}"
        return f"{config.method} on {task}, {seeds}, {config.steps:,} steps"

    @property
    def work(self) -> int:
        """Environment steps over all seeds."""
        return self.config.steps * len(self.config.seeds)


def key_of(config: Mapping[str, Any]) -> str:
    """SHA-256 of the canonical configuration and the schema, after a readable beginning.

    Canonical: names sorted, numbers by their value (1 and 1.0 are one), without the fields
    that have no effect on a run's rows and without settings at their defaults, so that a
    setting that the library gains later leaves the keys of finished jobs as they are. (If a
    default changes, old folders no longer fit their keys, and the store says so.)
    """
    kept = json.loads(json.dumps(config))
    for section, name in _WITHOUT_EFFECT:
        kept.get(section, {}).pop(name, None)
    told = {name: _told(value, _DEFAULTS.get(name)) for name, value in _by_value(kept).items()}
    told = {name: value for name, value in told.items() if value != {}}
    text = json.dumps({"schema": SCHEMA, "config": told}, sort_keys=True, separators=(",", ":"))
    digest = hashlib.sha256(text.encode()).hexdigest()[:_DIGITS]
    begin = re.sub(r"[^A-Za-z0-9._-]", "_", f"{config.get('task')}-{config.get('method')}")
    return f"{begin[:80]}-{digest}"


def _told(value: Any, default: Any) -> Any:
    """A section without what is at its default; anything else as it is."""
    if not isinstance(value, dict) or not isinstance(default, dict):
        return value
    return {name: part for name, part in value.items() if part != default.get(name, _NOTHING)}


def _by_value(data: Any) -> Any:
    if isinstance(data, dict):
        return {name: _by_value(value) for name, value in data.items()}
    if isinstance(data, list):
        return [_by_value(value) for value in data]
    return float(data) if isinstance(data, int) and not isinstance(data, bool) else data


_NOTHING = object()
_DEFAULTS: dict[str, Any] = _by_value(Config(task="", method="").to_json())
