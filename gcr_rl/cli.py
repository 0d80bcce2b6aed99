"""The command line. No maths, and nothing slow is imported before it is needed."""

import contextlib
import dataclasses
import io
import itertools
import os
import re
import shlex
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

from gcr_rl.arguments import (
    BenchArguments,
    EngineArguments,
    EvalArguments,
    InspectArguments,
    ListArguments,
    PaperArguments,
    PlayArguments,
    ReportArguments,
    ResumeArguments,
    TheoryArguments,
    TrainArguments,
    TuneArguments,
    WatchArguments,
)
from gcr_rl.config import Config, section_names
from gcr_rl.errors import InputError, RunFailed, unknown_name
from gcr_rl.methods import METHODS
from gcr_rl.presets import preset
from gcr_rl.results import check_json_file, write_result
from gcr_rl.words import UsageError, options, parse, switches

BAD_INPUT, FAILED_RUN, INTERRUPTED = 2, 3, 130
MOST_SEEDS = 10_000


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point of `gcr`: exit code 0, 2 (bad input), 3 (failed run) or 130 (interrupted)."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    _prepare_streams()
    try:
        with _termination_interrupts():
            _dispatch(words)
        if sys.stdout is not None:
            sys.stdout.flush()  # here, where a failure still has a handler
    except (InputError, UsageError) as error:
        _exit(str(error), BAD_INPUT)
    except RunFailed as error:
        _exit(str(error), FAILED_RUN)
    except KeyboardInterrupt as error:
        _exit(str(error) or "interrupted", INTERRUPTED)
    except BrokenPipeError:  # the reader has seen enough (`gcr envs | head -1`)
        _mute_output()
    except OSError as error:
        _mute_output()
        _exit(f"cannot read or write: {error}", BAD_INPUT)


def _prepare_streams() -> None:
    """A path may hold bytes that the terminal cannot show: show them escaped."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


@contextlib.contextmanager
def _termination_interrupts() -> Iterator[None]:
    """SIGTERM as Ctrl-C: while a command starts or compiles; training has its own handler."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _mute_output() -> None:
    """What is still buffered goes nowhere, or Python would complain when it exits."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _exit(message: str, code: int) -> None:
    """One line on standard error, and the exit code."""
    line = " ".join(part.strip() for part in message.splitlines())
    with contextlib.suppress(OSError):
        print(f"gcr: {line}", file=sys.stderr)
    raise SystemExit(code)


def _dispatch(words: list[str]) -> None:
    if not words or words[0] in ("-h", "--help"):
        print(_overview())
        return
    if words[0] == "--version":
        from gcr_rl import __version__

        print(f"gcr-rl {__version__}")
        return
    if words[0] not in COMMANDS:
        raise unknown_name("command", words[0], COMMANDS)
    COMMANDS[words[0]](words[1:])


def _overview() -> str:
    lines = ["Value learning that respects symmetry and order.", ""]
    lines += ["usage: gcr COMMAND [options]", ""]
    for name, command in COMMANDS.items():
        lines.append(f"  {name:<9} {(command.__doc__ or '?').splitlines()[0]}")
    return "\n".join([*lines, "", "`gcr COMMAND --help` describes a command."])


def _prepare_jax() -> None:
    """Settings that every command wants, unless the user has set them.

    The networks here are small: one thread per kernel is faster than two, and compiled
    programs are kept between commands.
    """
    os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "gcr_rl" / "jax"
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(cache))
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.5")


def train(words: list[str]) -> None:
    """Train a method on a task and write a run folder."""
    arguments, config = _train_config(words)
    _prepare_jax()
    from gcr_rl.training import train as run_training
    from gcr_rl.training.progress import Bar

    out = arguments.out or _claim_folder(f"{config.task}-{config.method}")
    command = shlex.join(["gcr", "train", *words])
    try:
        _train_or_resume(lambda: run_training(config, out, command=command, reporter=Bar()), out)
    finally:
        if arguments.out is None:
            _drop_if_empty(out)
    _show_summary(out, arguments.json)


def _train_config(words: list[str]) -> tuple[TrainArguments, Config]:
    """The arguments, with the tuned defaults of the task and method they name."""
    asked = [word for word in words if word not in ("-h", "--help")]
    if not asked:
        parse(TrainArguments, "train", ["--help"])
    first = parse(TrainArguments, "train", asked)
    base = preset(first.task, first.method)
    parts = section_names()
    default = TrainArguments(
        task=first.task, method=first.method, steps=base.steps,
        **{part: getattr(base, part) for part in parts},
    )  # fmt: skip
    arguments = parse(TrainArguments, "train", words, default)
    if not 1 <= arguments.seeds <= MOST_SEEDS:
        raise InputError("seeds", arguments.seeds, f"from 1 to {MOST_SEEDS}")
    check_json_file(arguments.json)
    overrides = {part: getattr(arguments, part) for part in parts}
    overrides["steps"] = arguments.steps
    overrides["seeds"] = tuple(range(arguments.first_seed, arguments.first_seed + arguments.seeds))
    overrides["env"] = {**base.env, **options(arguments.env)}
    return arguments, preset(first.task, first.method, overrides)


def _claim_folder(name: str) -> Path:
    """Make runs/NAME-NUMBER with the first free number; two commands never get the same one."""
    safe = re.sub(r"[^A-Za-z0-9._-]", "_", name)
    for number in itertools.count(1):
        path = Path("runs") / f"{safe}-{number}"
        try:
            path.mkdir(parents=True)
            break
        except FileExistsError:
            continue
        except OSError as error:
            raise InputError("out", str(path), f"a folder that can be made ({error})") from None
    return path


def _drop_if_empty(folder: Path) -> None:
    """Leave nothing behind for a run that was refused."""
    with contextlib.suppress(OSError):
        folder.rmdir()
        folder.parent.rmdir()


def _train_or_resume(work: Callable[[], Any], run: Path) -> None:
    from gcr_rl.training import Interrupted

    again = f"continue with: gcr resume {shlex.quote(str(run))}"
    try:
        work()
    except Interrupted as stopped:
        raise KeyboardInterrupt(f"{stopped}; {again}") from None
    except KeyboardInterrupt:
        begun = (run / "config.json").exists()
        raise KeyboardInterrupt(f"interrupted; {again}" if begun else "") from None


def resume(words: list[str]) -> None:
    """Continue an unfinished run from its newest checkpoint."""
    arguments = parse(ResumeArguments, "resume", words)
    check_json_file(arguments.json)
    _prepare_jax()
    from gcr_rl.training import resume as resume_training
    from gcr_rl.training.progress import Bar

    _train_or_resume(lambda: resume_training(arguments.run, reporter=Bar()), arguments.run)
    _show_summary(arguments.run, arguments.json)


def _show_summary(run: Path, json_file: Path | None) -> None:
    from gcr_rl.training.run_folder import read_summary

    summary = read_summary(run)
    if summary["status"] != "finished":
        raise RunFailed(summary["reason"])
    final = summary["final_return"]
    print(
        f"final return {final['mean']:.4g} (worst of {len(summary['seeds'])} seed(s) "
        f"{final['worst']:.4g}, {summary['returns_are']}) after {summary['steps']:,} steps"
    )
    print(f"run folder: {run}")
    write_result(json_file, {"run": str(run), **summary})


def evaluate(words: list[str]) -> None:
    """Evaluate a run's newest checkpoint afresh."""
    arguments = parse(EvalArguments, "eval", words)
    check_json_file(arguments.json)
    _prepare_jax()
    from gcr_rl.training import evaluate as evaluate_run

    run = _loaded(arguments.run)
    rows = evaluate_run(
        run,
        episodes=arguments.episodes,
        epsilon=arguments.epsilon,
        env=options(arguments.env),
        evaluation_seed=arguments.evaluation_seed,
    )
    print(f"{'seed':>6} {'mean return':>12} {'exact':>10} {'worst':>10} {'best':>10}")
    for row in rows:
        exact = "-" if row["exact_return"] is None else f"{row['exact_return']:.4g}"
        extremes = f"{min(row['returns']):>10.4g} {max(row['returns']):>10.4g}"
        print(f"{row['seed']:>6} {row['mean_return']:>12.4g} {exact:>10} {extremes}")
    write_result(arguments.json, {"run": str(arguments.run), "rows": rows})


def _loaded(path: Path) -> Any:
    """The run, after a word on what is being read if it is not the agent at the end."""
    from gcr_rl.training import load

    run = load(path)
    for line in run.passed_over:
        print(f"passed over a damaged checkpoint: {line}", file=sys.stderr)
    if run.step != run.config.steps:
        print(f"this is the agent at step {run.step:,} of {run.config.steps:,}", file=sys.stderr)
    return run


def play(words: list[str]) -> None:
    """Draw one greedy episode of a run as a GIF."""
    arguments = parse(PlayArguments, "play", words)
    if arguments.out.exists():
        raise InputError("out", str(arguments.out), "a file that does not exist yet")
    if arguments.out.suffix.lower() != ".gif":
        raise InputError("out", str(arguments.out), "a name that ends in .gif")
    _prepare_jax()
    from PIL import Image

    from gcr_rl.training import play as play_run

    frames = play_run(_loaded(arguments.run), seed=arguments.seed, episode=arguments.episode)
    pictures = [Image.fromarray(frame) for frame in frames]
    try:
        pictures[0].save(
            arguments.out, save_all=True, append_images=pictures[1:], duration=80, loop=0
        )
    except (OSError, ValueError) as error:
        raise InputError(
            "out", str(arguments.out), f"a .gif that can be written ({error})"
        ) from None
    print(f"{len(frames) - 1} steps: {arguments.out}")


def inspect(words: list[str]) -> None:
    """Show a run's diagnostics; draw its group, its order and its values."""
    arguments = parse(InspectArguments, "inspect", words)
    check_json_file(arguments.json)
    _prepare_jax()
    from gcr_rl.inspection import inspect_and_show

    write_result(arguments.json, inspect_and_show(arguments.run, arguments.seed, arguments.out))


def report(words: list[str]) -> None:
    """Compare runs: a page with tables and figures, and where every number came from."""
    arguments = parse(ReportArguments, "report", words)
    if not arguments.runs:
        raise InputError("runs", "nothing", "one or more run folders")
    _prepare_jax()
    from gcr_rl.report import format_table, load_runs, summarise, write_summary

    runs = load_runs(arguments.runs)
    summary = summarise(runs)
    print(format_table(summary.rows))
    for note in summary.notes:
        print(note)
    written = write_summary(summary, runs, arguments.out)
    print(f"{len(written)} files; the page: {arguments.out / 'report.html'}")


def bench(words: list[str]) -> None:
    """Run a suite of jobs, or what is left of it, and report."""
    arguments = parse(BenchArguments, "bench", switches(words, "--retry", "--list"))
    _run_suite(arguments.suite, arguments, ["bench", *words])


def paper(words: list[str]) -> None:
    """Run the paper's experiments, or what is left of them, and report."""
    arguments = parse(PaperArguments, "paper", switches(words, "--retry", "--list"))
    _run_suite("paper", arguments, ["paper", *words])


def _run_suite(suite: str, arguments: PaperArguments, command: list[str]) -> None:
    check_json_file(arguments.json)
    _prepare_jax()
    from gcr_rl.bench import list_suite, run_suite, usual_jobs

    if arguments.jobs is None and arguments.engine == "local":
        arguments = dataclasses.replace(arguments, jobs=usual_jobs(arguments.scale))
    out, scale, only = arguments.out, arguments.scale, arguments.only
    if arguments.list:
        write_result(arguments.json, list_suite(suite, out=out, scale=scale, only=only))
        return
    done = run_suite(
        suite, out=out, scale=scale, only=only, engine=_engine(arguments),
        retry=arguments.retry, command=shlex.join(["gcr", *command]),
    )  # fmt: skip
    write_result(arguments.json, done)
    if done["failed"]:
        raise RunFailed(f"{len(done['failed'])} job(s) failed; --retry runs them again")


def _engine(arguments: EngineArguments) -> Any:
    from gcr_rl.bench import engine_for

    names = ("jobs", "address", "cpus", "gpus")
    return engine_for(arguments.engine, **{name: getattr(arguments, name) for name in names})


def tune(words: list[str]) -> None:
    """Search for better values of a method on a task."""
    arguments = parse(TuneArguments, "tune", switches(words, "--retry"))
    check_json_file(arguments.json)
    _prepare_jax()
    from gcr_rl.bench import tuning

    search = tuning.make_search(
        arguments.task, arguments.method, trials=arguments.trials, seeds=arguments.seeds,
        rungs=arguments.rungs, first_seed=arguments.first_seed,
        search_seed=arguments.search_seed, steps=arguments.budget_steps,
        env=options(arguments.env), space=arguments.space,
    )  # fmt: skip
    trials = tuning.run_search(
        search, out=arguments.out, engine=_engine(arguments), retry=arguments.retry,
        command=shlex.join(["gcr", "tune", *words]),
    )  # fmt: skip
    print(f"{tuning.format_trials(trials)}\n\n{tuning.format_preset(search, trials[0])}")
    print(f"store: {arguments.out}")
    write_result(arguments.json, tuning.result_of(search, trials))


def watch(words: list[str]) -> None:
    """Show how a run or a suite stands while it trains."""
    arguments = parse(WatchArguments, "watch", switches(words, "--once"))
    _prepare_jax()
    from gcr_rl.bench.watch import watch as watch_runs

    watch_runs(
        arguments.place, store=arguments.out, interval=arguments.interval, once=arguments.once
    )


def theory(words: list[str]) -> None:
    """Measure the paper's guarantees: predicted against measured, one row each."""
    arguments = parse(TheoryArguments, "theory", switches(words, "--quick"))
    check_json_file(arguments.json)
    _prepare_jax()
    from gcr_rl.theory import measure
    from gcr_rl.theory.table import show

    rows = show(measure(arguments.only, arguments.quick))
    write_result(arguments.json, {"guarantees": [row.record() for row in rows]})
    failed = [row.name for row in rows if not row.holds]
    if failed:
        raise RunFailed(f"beyond tolerance: {', '.join(failed)}")


def list_envs(words: list[str]) -> None:
    """List the tasks."""
    arguments = parse(ListArguments, "envs", words)
    from gcr_rl.envs import TASKS

    for task in TASKS.values():
        known = " ".join(f"{name}={value}" for name, value in task.options.items())
        print(f"{task.name:<18} {task.summary}\n{'':<18} options: {known}")
    print(f"{'gym:ID':<18} any Gymnasium environment with discrete actions")
    rows = [
        {"name": t.name, "summary": t.summary, "options": t.options, "threshold": t.threshold}
        for t in TASKS.values()
    ]
    write_result(arguments.json, {"tasks": rows})


def list_methods(words: list[str]) -> None:
    """List the methods."""
    arguments = parse(ListArguments, "methods", words)
    for method in METHODS.values():
        print(f"{method.name:<18} {method.summary}")
    rows = [
        {"name": m.name, "summary": m.summary, "overrides": dict(m.overrides)}
        for m in METHODS.values()
    ]
    write_result(arguments.json, {"methods": rows})


COMMANDS: dict[str, Callable[[list[str]], None]] = {
    "train": train,
    "resume": resume,
    "eval": evaluate,
    "play": play,
    "inspect": inspect,
    "report": report,
    "bench": bench,
    "paper": paper,
    "tune": tune,
    "watch": watch,
    "theory": theory,
    "envs": list_envs,
    "methods": list_methods,
}

if __name__ == "__main__":
    main()
