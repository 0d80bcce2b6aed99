"""The options of each command: one dataclass each, a doc line per option. No behaviour."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from gcr_rl.config import (
    AugmentConfig,
    ContrastConfig,
    EvaluationConfig,
    ExplorationConfig,
    LoopConfig,
    NetworkConfig,
    OptimiserConfig,
    OrderConfig,
    ReplayConfig,
    RunConfig,
    SymmetryConfig,
    ValueConfig,
)

RunFolder = Annotated[Path, tyro.conf.arg(metavar="RUN")]
Switch = Annotated[bool, tyro.conf.arg(metavar="BOOL")]
JsonFile = Annotated[Path | None, tyro.conf.arg(metavar="FILE")]


@dataclass(frozen=True)
class TrainArguments:
    """Train a method on a task: all seeds at once, logged, evaluated, resumable.

    Without options this runs the tuned defaults of the task. Everything is written to one
    run folder; `gcr resume` continues it, `gcr report` turns one or more into a page.
    `gcr train TASK --help` shows the tuned values of that task as defaults.
    """

    task: tyro.conf.Positional[Annotated[str, tyro.conf.arg(metavar="TASK")]]
    """Task name (see `gcr envs`), or gym:ID for any Gymnasium environment."""
    method: str = "ddqn"
    """Method name (see `gcr methods`)."""
    steps: int = 50_000
    """Environment steps per seed."""
    seeds: int = 1
    """How many seeds; they train side by side in one program."""
    first_seed: int = 0
    """The first seed; the others follow it."""
    env: Annotated[tuple[str, ...], tyro.conf.arg(metavar="NAME=VALUE ...")] = ()
    """Options of the task, e.g. `--env p_asym=0.1 epsilon=0.5`."""
    out: Annotated[Path | None, tyro.conf.arg(metavar="FOLDER")] = None
    """New folder for the run; runs/TASK-METHOD-NUMBER if not given."""
    json: JsonFile = None
    """Also write the summary to this file."""
    network: NetworkConfig = NetworkConfig()
    optimiser: OptimiserConfig = OptimiserConfig()
    value: ValueConfig = ValueConfig()
    symmetry: SymmetryConfig = SymmetryConfig()
    order: OrderConfig = OrderConfig()
    augment: AugmentConfig = AugmentConfig()
    contrast: ContrastConfig = ContrastConfig()
    replay: ReplayConfig = ReplayConfig()
    exploration: ExplorationConfig = ExplorationConfig()
    loop: LoopConfig = LoopConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    run: RunConfig = RunConfig()


@dataclass(frozen=True)
class ResumeArguments:
    """Continue an unfinished run from its newest checkpoint, to the same bits."""

    run: tyro.conf.Positional[RunFolder]
    """Folder of the run."""
    json: JsonFile = None
    """Also write the summary to this file."""


@dataclass(frozen=True)
class EvalArguments:
    """Evaluate a run's newest checkpoint afresh, optionally under other task options."""

    run: tyro.conf.Positional[RunFolder]
    """Folder of the run."""
    episodes: int = 100
    """Episodes per seed."""
    epsilon: float = 0.0
    """Share of random actions."""
    env: Annotated[tuple[str, ...], tyro.conf.arg(metavar="NAME=VALUE ...")] = ()
    """Task options to change."""
    evaluation_seed: int = 0
    """Which episodes are drawn; never those that training evaluated on."""
    json: JsonFile = None
    """Also write the rows to this file."""


@dataclass(frozen=True)
class PlayArguments:
    """Draw one greedy episode of a run as a GIF."""

    run: tyro.conf.Positional[RunFolder]
    """Folder of the run."""
    out: Annotated[Path, tyro.conf.arg(metavar="FILE")] = Path("episode.gif")
    """GIF to write; an existing file is not overwritten."""
    seed: int | None = None
    """Whose agent plays; the run's first seed if not given."""
    episode: int = 0
    """Which episode is drawn."""


@dataclass(frozen=True)
class InspectArguments:
    """Show a run's diagnostics; draw its group, the order of a batch and, on grids, its values.

    Numbers come from the run's rows, drawings from its newest checkpoint.
    """

    run: tyro.conf.Positional[RunFolder]
    """Folder of the run."""
    seed: int | None = None
    """Show this seed alone; without it means over seeds, and drawings of the first one."""
    out: Annotated[Path, tyro.conf.arg(metavar="FOLDER")] = Path("inspection")
    """Folder for the drawings and inspection.json; only an inspection's files are replaced."""
    json: JsonFile = None
    """Also write the numbers to this file."""


@dataclass(frozen=True)
class ReportArguments:
    """Compare runs: a page with tables and figures, and where every number came from."""

    runs: tyro.conf.Positional[Annotated[tuple[Path, ...], tyro.conf.arg(metavar="RUN")]]
    """Folders of the runs."""
    out: Annotated[Path, tyro.conf.arg(metavar="FOLDER")] = Path("report")
    """Folder for the report."""


@dataclass(frozen=True)
class ListArguments:
    """List what there is."""

    json: JsonFile = None
    """Also write the list to this file."""


@dataclass(frozen=True)
class TheoryArguments:
    """Measure the paper's guarantees: predicted against measured, one row each.

    Exits with code 3 if one does not hold within its tolerance. docs/theory.md says what each
    row measures, and which statements do not hold as the paper has them.
    """

    only: Annotated[str | None, tyro.conf.arg(metavar="NAME")] = None
    """Measure this guarantee alone."""
    quick: Annotated[bool, tyro.conf.arg(metavar="BOOL")] = False
    """Fewer draws; `--quick` alone means True."""
    json: JsonFile = None
    """Also write the rows to this file."""


@dataclass(frozen=True, kw_only=True)
class EngineArguments:
    """Where jobs run, and how many at a time."""

    jobs: int | None = None
    """Jobs at a time, each in a process of its own; if not given 1, at the scales smoke and cpu 2,
    on a cluster as many as it holds."""
    engine: Literal["local", "ray"] = "local"
    """local: this machine; ray: a Ray cluster (needs the extra `ray`)."""
    address: str | None = None
    """HOST:PORT of the cluster; without it one of this machine, for the occasion."""
    cpus: float | None = None
    """Processors that a job takes of a cluster; 1 if not given."""
    gpus: float | None = None
    """Accelerators that a job takes of a cluster, 0.5 say; 0 if not given."""


@dataclass(frozen=True, kw_only=True)
class PaperArguments(EngineArguments):
    """Run the paper's experiments, every figure and table: the suite `paper`.

    Finished jobs are never run again and interrupted ones go on where they stopped: give the
    same command again.
    """

    out: Annotated[Path, tyro.conf.arg(metavar="FOLDER")] = Path("runs/bench")
    """The store: a folder with one run folder per job, shared by suites."""
    scale: Literal["smoke", "cpu", "full"] = "full"
    """smoke: minutes on two cores; cpu: an hour; full: as published, for a GPU."""
    only: Annotated[str | None, tyro.conf.arg(metavar="PATTERN")] = None
    """Run the jobs whose key (see --list) matches this pattern."""
    retry: Switch = False
    """Also run what failed before, once more."""
    list: Switch = False
    """Say how each job stands, and run nothing."""
    json: JsonFile = None
    """Also write the jobs, the reports and the failures to this file."""


@dataclass(frozen=True, kw_only=True)
class BenchArguments(PaperArguments):
    """Run a suite: tasks x methods with their seeds, ending in a report.

    Finished jobs are never run again and interrupted ones go on where they stopped: give the
    same command again. docs/bench.md says what a suite's file holds.
    """

    suite: tyro.conf.Positional[Annotated[str, tyro.conf.arg(metavar="SUITE")]]
    """Name of a suite that comes with the library, or a .toml file."""


@dataclass(frozen=True, kw_only=True)
class TuneArguments(EngineArguments):
    """Search for better values of a method on a task, by the committed space of the task.

    Random search, halved over rungs with twice the seeds each; interrupted searches go on with
    the same command. Numbers that are not given come from the space's file.
    """

    task: tyro.conf.Positional[Annotated[str, tyro.conf.arg(metavar="TASK")]]
    """Task name (see `gcr envs`), or gym:ID."""
    method: tyro.conf.Positional[Annotated[str, tyro.conf.arg(metavar="METHOD")]]
    """Method name (see `gcr methods`)."""
    trials: int | None = None
    """Sets of values that are tried, the present preset included."""
    seeds: int | None = None
    """Seeds per trial on the first rung."""
    rungs: int | None = None
    """Each further rung halves the trials and doubles their seeds; 1 is plain random search."""
    first_seed: int = 2_000
    """The first seed, 1000 or more: lower ones are for what is reported."""
    search_seed: int = 0
    """Which values are drawn."""
    budget_steps: int | None = None
    """Environment steps per seed; the preset's if not given."""
    env: Annotated[tuple[str, ...], tyro.conf.arg(metavar="NAME=VALUE ...")] = ()
    """Options of the task."""
    space: Annotated[str | None, tyro.conf.arg(metavar="FILE")] = None
    """A .toml file with the space; the task's own if not given."""
    out: Annotated[Path, tyro.conf.arg(metavar="FOLDER")] = Path("runs/tune")
    """The store of the trials."""
    retry: Switch = False
    """Also run what failed before, once more."""
    json: JsonFile = None
    """Also write the ranking to this file."""


@dataclass(frozen=True)
class WatchArguments:
    """Show how a run or a suite stands while it trains: steps, returns, time left."""

    place: tyro.conf.Positional[Annotated[str, tyro.conf.arg(metavar="RUN|SUITE")]]
    """A run folder, a store, or the name of a suite that runs in the store."""
    out: Annotated[Path, tyro.conf.arg(metavar="FOLDER")] = Path("runs/bench")
    """The store of the suite."""
    interval: float = 2.0
    """Seconds between two looks."""
    once: Switch = False
    """Print how things stand, and end."""
