"""Suites as data: a TOML file of experiments -> jobs.

An experiment is tasks x environment options x methods, with seeds, steps and overrides. Its
tables `smoke` and `cpu` change fields for those scales; `full` is the experiment as written.
"""

import dataclasses
import fnmatch
import itertools
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gcr_rl import envs
from gcr_rl.bench.job import Job
from gcr_rl.bench.tables import (
    as_count,
    as_table,
    as_text,
    as_texts,
    dotted,
    locate,
    only_names,
    packaged,
    read_toml,
)
from gcr_rl.config import Config
from gcr_rl.envs.external import is_external
from gcr_rl.errors import InputError
from gcr_rl.methods import METHODS
from gcr_rl.presets import preset

SCALES = ("smoke", "cpu", "full")
FIRST_TUNING_SEED = 1_000
"""Suites report on lower seeds, `gcr tune` chooses on these and higher ones: never the same."""

_FIELDS = ("tasks", "methods", "seeds", "first_seed", "steps", "env", "overrides", "report", "skip")
_RESERVED = ("task", "method", "steps", "seeds", "env")


@dataclass(frozen=True)
class Suite:
    """The jobs of a suite at one scale."""

    name: str
    scale: str
    summary: str
    jobs: tuple[Job, ...]

    @property
    def label(self) -> str:
        """NAME-SCALE, the name of its index and its reports."""
        return f"{self.name}-{self.scale}"


def suite_names() -> list[str]:
    """The suites that come with the library."""
    return list(packaged("suites"))


def load_suite(name: str, scale: str = "full") -> Suite:
    """The suite of that name, or in that .toml file, at ``scale``; every job is validated."""
    if scale not in SCALES:
        raise InputError("scale", scale, f"one of {', '.join(SCALES)}")
    path = locate("suite", name, "suites")
    return parse_suite(read_toml(path, "suite"), path, scale)


def parse_suite(data: Mapping[str, Any], path: Path, scale: str) -> Suite:
    """The suite that ``data`` describes; ``path`` names it and stands in complaints."""
    only_names(str(path), data, ("summary", "experiment"))
    experiments = data.get("experiment")
    if not isinstance(experiments, list) or not experiments:
        raise InputError(f"{path}: experiment", experiments, "one or more [[experiment]] tables")
    jobs: list[Job] = []
    for number, table in enumerate(experiments, 1):
        where = f"{path}: experiment {number}"
        jobs += _expand(where, _at_scale(where, as_table(where, table), scale))
    if not jobs:
        raise InputError(f"{path}: scale", scale, "a scale at which an experiment is not skipped")
    unique = list({(job.report, job.key): job for job in jobs}.values())
    _check_reports(path, unique)
    summary = as_text(f"{path}: summary", data.get("summary", path.stem))
    return Suite(path.stem, scale, summary, tuple(unique))


def select(jobs: Iterable[Job], pattern: str | None) -> list[Job]:
    """Jobs whose key matches a shell pattern; a plain word matches anywhere in the key."""
    listed = list(jobs)
    if pattern is None:
        return listed
    shell = pattern if set(pattern) & set("*?[") else f"*{pattern}*"
    chosen = [job for job in listed if fnmatch.fnmatchcase(job.key, shell)]
    if not chosen:
        raise InputError("only", pattern, f"a pattern of keys, {listed[0].key!r} for one")
    return chosen


def _at_scale(where: str, table: dict[str, Any], scale: str) -> dict[str, Any]:
    """The experiment with the changes of its scale; overrides and options are joined by name."""
    only_names(where, table, (*_FIELDS, *SCALES[:-1]))
    merged = {name: value for name, value in table.items() if name not in SCALES}
    for name in SCALES[:-1]:
        changes = as_table(f"{where}.{name}", table.get(name, {}))
        only_names(f"{where}.{name}", changes, _FIELDS)
        if name != scale:
            continue
        for field, value in changes.items():
            joined = field in ("env", "overrides") and isinstance(value, dict)
            before = as_table(f"{where}.{field}", merged.get(field, {})) if joined else {}
            merged[field] = {**dotted(before), **dotted(value)} if joined else value
    return merged


def _expand(where: str, table: Mapping[str, Any]) -> list[Job]:
    if not isinstance(skip := table.get("skip", False), bool):
        raise InputError(f"{where}.skip", skip, "true or false")
    if skip:
        return []
    portions = _portions(where, table)
    report = as_text(f"{where}.report", table.get("report", "report"))
    if not re.fullmatch(r"[A-Za-z0-9_-]+", report):
        raise InputError(f"{where}.report", report, "letters, digits, - and _: it names a folder")
    overrides = dotted(as_table(f"{where}.overrides", table.get("overrides", {})))
    for name in _RESERVED:
        if name in overrides:
            raise InputError(f"{where}.overrides", name, "a field that the experiment lacks")
    jobs = []
    methods = _named(f"{where}.methods", table.get("methods"), METHODS)
    for task in _named(f"{where}.tasks", table.get("tasks"), envs.TASKS):
        steps = _steps_of(where, table.get("steps"), task)
        for options in _grid(as_table(f"{where}.env", table.get("env", {}))):
            for method, seeds in itertools.product(methods, portions):
                changes = {**overrides, "seeds": seeds} | steps
                jobs.append(Job(_resolve(where, task, method, options, changes), report))
    return jobs


def _portions(where: str, table: Mapping[str, Any]) -> list[tuple[int, ...]]:
    """The seeds of every job: `seeds` of them from `first_seed` on, or from each of a list."""
    count = as_count(f"{where}.seeds", table.get("seeds"))
    firsts = table.get("first_seed", 0)
    portions = []
    for first in firsts if isinstance(firsts, list) else [firsts]:
        as_count(f"{where}.first_seed", first, least=0)
        if first + count > FIRST_TUNING_SEED:
            raise InputError(
                f"{where}.seeds", f"{first} to {first + count - 1}",
                f"seeds below {FIRST_TUNING_SEED}: those from there on are for tuning",
            )  # fmt: skip
        portions.append(tuple(range(first, first + count)))
    if not portions:
        raise InputError(f"{where}.first_seed", firsts, "a whole number, or one or more of them")
    return portions


def _named(where: str, value: object, known: Iterable[str]) -> list[str]:
    """The names in a list; ``*`` in one stands for known names, ``!`` before one takes out."""
    names: list[str] = []
    every = list(known)
    for word in as_texts(where, value):
        pattern = word.removeprefix("!")
        found = fnmatch.filter(every, pattern) if set(pattern) & set("*?[") else [pattern]
        if not found:
            raise InputError(where, word, f"a pattern of {', '.join(every)}")
        if word.startswith("!"):
            names = [name for name in names if name not in found]
        else:
            names += [name for name in found if name not in names]
    return names


def _steps_of(where: str, steps: object, task: str) -> dict[str, int]:
    """The budget of ``task``: one number for all, a table by task, or else the preset's own."""
    if isinstance(steps, dict):
        steps = steps.get(task)
    return {} if steps is None else {"steps": as_count(f"{where}.steps", steps)}


def _grid(options: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Every combination of options, where a list holds the values that one of them takes."""
    values = [value if isinstance(value, list) else [value] for value in options.values()]
    return [dict(zip(options, chosen, strict=True)) for chosen in itertools.product(*values)]


def _resolve(
    where: str, task: str, method: str, options: dict[str, Any], changes: Mapping[str, Any]
) -> Config:
    """The complete configuration; what could not run is refused before anything does."""
    try:
        if is_external(task):
            return preset(task, method, {**changes, "env": options})
        known = envs.task(task)
        base = preset(known.name, method).env
        env = {**base, **{name: _typed(known, name, value) for name, value in options.items()}}
        envs.make(known.name, **env)
        return preset(known.name, method, {**changes, "env": env})
    except InputError as error:
        place = f"{where} ({method} on {task}), {error.field}"
        raise InputError(place, error.value, error.accepted) from None


def _typed(task: envs.Task, name: str, value: Any) -> Any:
    """A whole number where the option is a real one, as that real number."""
    whole = isinstance(value, int) and not isinstance(value, bool)
    return float(value) if whole and isinstance(task.options.get(name), float) else value


def _check_reports(path: Path, jobs: Iterable[Job]) -> None:
    """A report joins a method's seeds per task and options; another variant needs another one."""
    seen: dict[tuple[str, str, str, str], list[Job]] = defaultdict(list)
    for job in jobs:
        config = job.config
        place = (job.report, config.task, str(sorted(config.env.items())), config.method)
        for other in seen[place]:
            if not _follows(config, other.config):
                raise InputError(
                    f"{path}: {job.report}", f"{other.name}, and {job.name}",
                    "one variant of a method per task in a report (name another with `report`)",
                )  # fmt: skip
        seen[place].append(job)


def _follows(config: Config, other: Config) -> bool:
    """Whether two configurations are one with different seeds, none in both."""
    same = dataclasses.replace(config, seeds=other.seeds) == other
    return same and not set(config.seeds) & set(other.seeds)
