"""`gcr tune`: random search with successive halving over seeds, in a store.

Trial 0 is the preset as it is. Rung r runs the best ⌈trials / 2^r⌉ trials on seeds · 2^r seeds
in all. The budget of steps is never cut: schedules depend on it, so a short run is no
beginning of a long one. Seeds begin at 1000 or later; suites report on lower ones.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from gcr_rl import envs
from gcr_rl.bench.engine import Engine, run_here
from gcr_rl.bench.job import Job
from gcr_rl.bench.running import run_jobs
from gcr_rl.bench.space import Space, load_space
from gcr_rl.bench.store import Store
from gcr_rl.bench.suite import FIRST_TUNING_SEED
from gcr_rl.config import Config
from gcr_rl.envs.external import is_external
from gcr_rl.errors import InputError, RunFailed
from gcr_rl.presets import METHOD_PRESETS, preset
from gcr_rl.training.run_folder import read_summary

DEFAULT_STORE = Path("runs/tune")
MOST_ATTEMPTS = 1_000


@dataclass(frozen=True)
class Trial:
    """One set of values and what they gave, over the seeds of all rungs it has reached."""

    number: int
    values: Mapping[str, Any]
    seeds: tuple[int, ...] = ()
    final: tuple[float, ...] = ()
    training: tuple[float, ...] = ()
    reason: str = ""
    """Why it has no result, if it failed."""

    @property
    def merit(self) -> tuple[float, ...]:
        """What is ranked by: rungs survived, mean final return, worst, mean over training."""
        if self.reason or not self.final:
            return (-1.0,)
        means = float(np.mean(self.final)), min(self.final), float(np.mean(self.training))
        return (float(len(self.seeds)), *means)

    def record(self) -> dict[str, Any]:
        """Plain data for JSON."""
        known = not self.reason and bool(self.final)
        return {
            "trial": self.number,
            "values": {k: list(v) if isinstance(v, tuple) else v for k, v in self.values.items()},
            "seeds": list(self.seeds),
            "final_return": float(np.mean(self.final)) if known else None,
            "worst": min(self.final) if known else None,
            "mean_training_return": float(np.mean(self.training)) if known else None,
            "final_by_seed": list(self.final),
            "reason": self.reason,
        }


@dataclass(frozen=True)
class Search:
    """Everything that determines a search; the same search always draws the same trials."""

    base: Config
    space: Space
    first_seed: int
    search_seed: int

    def trials(self) -> list[Trial]:
        """The preset, then random draws; a draw that could not run is drawn again."""
        drawn = [self._draw(number) for number in range(1, self.space.trials)]
        return [Trial(0, {}), *drawn]

    def job(self, trial: Trial, seeds: Sequence[int]) -> Job:
        """The job of a trial on ``seeds``."""
        return Job(self._config(trial.values, tuple(seeds)))

    def seeds_of(self, rung: int) -> range:
        """The seeds that rung r adds: they double the number of those before."""
        count = self.space.seeds
        before = 0 if rung == 0 else count * 2 ** (rung - 1)
        return range(self.first_seed + before, self.first_seed + count * 2**rung)

    def _config(self, values: Mapping[str, Any], seeds: tuple[int, ...]) -> Config:
        base = self.base
        changes = {**values, "steps": base.steps, "env": base.env, "seeds": seeds}
        return preset(base.task, base.method, changes)

    def _draw(self, number: int) -> Trial:
        for attempt in range(MOST_ATTEMPTS):
            values = self.space.draw(self.search_seed, number, attempt)
            try:
                self._config(values, (self.first_seed,))
            except InputError as error:
                refused = error
                continue
            return Trial(number, values)
        raise InputError(
            "space",
            f"trial {number}: {refused}",
            f"a space of which one draw in {MOST_ATTEMPTS} can run",
        )


def make_search(
    task: str,
    method: str,
    *,
    trials: int | None = None,
    seeds: int | None = None,
    rungs: int | None = None,
    first_seed: int = 2_000,
    search_seed: int = 0,
    steps: int | None = None,
    env: Mapping[str, Any] | None = None,
    space: str | None = None,
) -> Search:
    """A checked search; numbers that are not given are those of the space's file."""
    if first_seed < FIRST_TUNING_SEED:
        accepted = f"{FIRST_TUNING_SEED} or more: lower seeds are for what is reported"
        raise InputError("first_seed", first_seed, accepted)
    name = task if is_external(task) else envs.task(task).name
    budget = {} if steps is None else {"steps": steps}
    base = preset(name, method, {**budget, "env": dict(env or {})})
    if not is_external(name):
        envs.make(name, **base.env)
    found = load_space(name, base.method, space)
    given = {"trials": trials, "seeds": seeds, "rungs": rungs}
    for field, value in given.items():
        if value is not None and not 1 <= value <= 10_000:
            raise InputError(field, value, "from 1 to 10000")
    found = Space(found.ranges, trials or found.trials, seeds or found.seeds, rungs or found.rungs)
    if 2 ** (found.rungs - 1) > found.trials:
        raise InputError("rungs", found.rungs, f"fewer: {found.trials} trials halve no further")
    return Search(base, found, first_seed, search_seed)


def run_search(
    search: Search,
    *,
    out: Path = DEFAULT_STORE,
    engine: Engine = run_here,
    retry: bool = False,
    command: str = "",
) -> list[Trial]:
    """Run what is left of a search; the trials, best first. ``command`` goes into each run."""
    store = Store(out)
    ranked = search.trials()
    for rung in range(search.space.rungs):
        alive = ranked[: -(-search.space.trials // 2**rung)]
        seeds = search.seeds_of(rung)
        jobs = {trial.number: search.job(trial, seeds) for trial in alive if not trial.reason}
        outcome = run_jobs(
            store, jobs.values(), engine=engine, retry=retry,
            command_of=lambda job: command, command=command,
        )  # fmt: skip
        measured = [
            _measured(store, trial, jobs[trial.number], outcome.failed)
            if trial.number in jobs
            else trial
            for trial in alive
        ]
        ranked = rank([*measured, *ranked[len(alive) :]])
    if ranked[0].reason:
        raise RunFailed(f"no trial finished; the first: {ranked[0].reason}")
    return ranked


def rank(trials: Sequence[Trial]) -> list[Trial]:
    """Best first; of two equal ones the one that was drawn first."""
    return sorted(trials, key=lambda trial: (tuple(-m for m in trial.merit), trial.number))


def _measured(store: Store, trial: Trial, job: Job, failed: Mapping[str, str]) -> Trial:
    """``trial`` with the returns of one more rung."""
    if job.key in failed:
        return replace(trial, reason=failed[job.key])
    summary = read_summary(store.folder(job.key))
    return replace(
        trial,
        seeds=trial.seeds + tuple(summary["seeds"]),
        final=trial.final + tuple(summary["final_return"]["per_seed"]),
        training=trial.training + tuple(summary["mean_training_return"]["per_seed"]),
    )


def format_trials(trials: Sequence[Trial]) -> str:
    """A table for a terminal, best first."""
    lines = [["trial", "seeds", "final return", "worst", "over training", "values"]]
    for trial in trials:
        values = " ".join(f"{name}={value}" for name, value in trial.values.items())
        shown = values.replace(", ", ",") or "the preset"
        if trial.reason:
            lines.append([str(trial.number), "-", "failed", "-", "-", f"{shown} ({trial.reason})"])
            continue
        record = trial.record()
        numbers = [f"{record[n]:.5g}" for n in ("final_return", "worst", "mean_training_return")]
        lines.append([str(trial.number), str(len(trial.seeds)), *numbers, shown])
    widths = [max(len(line[i]) for line in lines) for i in range(5)]
    return "\n".join(
        "  ".join([*(c.rjust(w) for c, w in zip(line, widths, strict=False)), line[5]])
        for line in lines
    )


def format_preset(search: Search, best: Trial) -> str:
    """The best values as gcr_rl/presets.py takes them, over those that it has already."""
    task, method = search.base.task, search.base.method
    values = {**METHOD_PRESETS.get((task, method), {}), **best.values}
    lines = [f"    {name!r}: {value!r}," for name, value in values.items()]
    text = "\n".join([f"METHOD_PRESETS[{task!r}, {method!r}] = {{", *lines, "}"])
    return text.replace("'", '"')


def result_of(search: Search, trials: Sequence[Trial]) -> dict[str, Any]:
    """What `--json` writes."""
    return {
        "task": search.base.task,
        "method": search.base.method,
        "env": search.base.env,
        "steps": search.base.steps,
        "first_seed": search.first_seed,
        "search_seed": search.search_seed,
        "trials": search.space.trials,
        "seeds": search.space.seeds,
        "rungs": search.space.rungs,
        "fields": {
            name: {values.kind: [list(v) if isinstance(v, tuple) else v for v in values.values]}
            for name, values in search.space.ranges.items()
        },
        "best": trials[0].record(),
        "ranking": [trial.record() for trial in trials],
    }
