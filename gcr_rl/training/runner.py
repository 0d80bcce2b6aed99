"""train / resume: drives the compiled program and writes everything down between chunks."""

import math
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from gcr_rl import envs
from gcr_rl.config import Config, validate
from gcr_rl.envs.external import describe, is_external
from gcr_rl.envs.simulator import make_simulator
from gcr_rl.errors import InputError, RunFailed
from gcr_rl.evaluation.rollouts import Evaluation, make_evaluator
from gcr_rl.training import checkpoint
from gcr_rl.training.host import HostProgram
from gcr_rl.training.loop import Program, epsilon_at, make_program
from gcr_rl.training.progress import Reporter, Silent
from gcr_rl.training.run_folder import RunFolder, as_path, read_config, read_rows, read_summary
from gcr_rl.training.state import ChunkStats, TrainState
from gcr_rl.training.summary import summarise
from gcr_rl.training.watching import Watch


class Interrupted(Exception):
    """Training was asked to stop and did, after a checkpoint."""


def build_program(config: Config) -> Program:
    """The functions of a run: all in one graph, or with a Gymnasium environment on the host."""
    if is_external(config.task):
        return HostProgram(config, describe(config.task, config.env)).program()
    environment, params = envs.make(config.task, **config.env)
    simulator = make_simulator(environment, params)
    return make_program(config, simulator, make_evaluator(config, simulator, environment, params))


def train(
    config: Config, out: str | Path, *, command: str = "", reporter: Reporter | None = None
) -> Path:
    """Train all seeds of ``config`` and write the run to the new folder ``out``."""
    validate(config)
    path, program = as_path("out", out), build_program(config)
    check_memory(config, program)
    with (
        _failures(path),
        _stop_requests() as stop,
        RunFolder.create(path, config, command) as folder,
    ):
        watch = Watch(config, program)
        _Drive(folder, program, watch, reporter or Silent(), stop).begin()
    return path


def resume(run: str | Path, *, reporter: Reporter | None = None) -> Path:
    """Continue an unfinished run from its newest checkpoint, to the same bits."""
    path, reporter = as_path("run", run), reporter or Silent()
    read_config(path)  # a clear error before anything is locked
    with _failures(path), _stop_requests() as stop, RunFolder.open(path) as folder:
        if (path / "summary.json").exists():
            reporter.say(f"{path} has {read_summary(path)['status']}; nothing to resume")
            return path
        program = build_program(folder.config)
        drive = _Drive(folder, program, Watch(folder.config, program), reporter, stop)
        if checkpoint.steps(folder.checkpoints):
            drive.go_on()
        else:  # killed before its first checkpoint: the run has not begun
            folder.cut_back({"log": 0, "evaluation": 0})
            drive.begin()
    return path


def check_memory(config: Config, program: Program) -> None:
    """Refuse a state larger than the device's memory: the system might kill others for it."""
    state = jax.eval_shape(program.init, jnp.array(config.seeds, jnp.int32))
    needed = {
        "replay.capacity": _size_of(state.replay),
        "network.hidden": _size_of(state.agent),
    }
    limits = jax.devices()[0].memory_stats() or {}  # none on the CPU
    there = limits.get("bytes_limit", 0) * program.devices or (
        os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    )
    if sum(needed.values()) > there:
        field = max(needed, key=lambda name: needed[name])
        raise InputError(
            field, config.get(field),
            f"less: with {len(config.seeds)} seed(s) it takes {needed[field] / 2**30:,.0f} GiB, "
            f"there are {there / 2**30:,.0f} GiB",
        )  # fmt: skip


def _size_of(part: Any) -> int:
    return sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in jax.tree.leaves(part))


@contextmanager
def _failures(path: Path) -> Iterator[None]:
    """What a machine can refuse in the middle of a run, as one line: room on disk, memory."""
    try:
        yield
    except OSError as error:
        reason = f"{error.strerror or error} ({error.filename})" if error.filename else f"{error}"
        raise RunFailed(
            f"cannot write the run {str(path)!r}: {reason}; "
            "once it can be written, `gcr resume` goes on from its newest checkpoint"
        ) from error
    except (MemoryError, jax.errors.JaxRuntimeError) as error:
        if isinstance(error, MemoryError) or "out of memory" in str(error).lower():
            raise RunFailed(
                f"the run {str(path)!r} does not fit into memory "
                f"({str(error).splitlines()[0] if str(error) else 'MemoryError'}); "
                "smaller replay.capacity, network, loop.num_envs or fewer seeds need less"
            ) from error
        raise


@dataclass
class _Drive:
    """One pass over a run, from a step to the end."""

    folder: RunFolder
    program: Program
    watch: Watch
    reporter: Reporter
    stop: threading.Event
    mean_return: float | None = None
    saved: int | None = None
    """The step of the newest checkpoint that this pass wrote or began with."""

    @property
    def config(self) -> Config:
        return self.folder.config

    def begin(self) -> None:
        """Train from the first step: evaluate and save the untrained agent, then go."""
        state = self.program.init(jnp.array(self.config.seeds, jnp.int32))
        self.evaluate(state, 0)
        self.checkpoint(state, 0)
        self.run(state, 0)

    def go_on(self) -> None:
        """Train from the newest intact checkpoint."""
        arrays, note, passed_over = checkpoint.load_newest(self.folder.checkpoints)
        for line in passed_over:
            self.reporter.say(f"passed over a damaged checkpoint: {line}")
        lengths = note.get("lengths")
        if not isinstance(lengths, dict) or {*lengths} != {"log", "evaluation"}:
            raise InputError("checkpoint", note, "a note with the lengths of both logs")
        seeds = jnp.array(self.config.seeds, jnp.int32)
        with _host_memory() if self.program.devices > 1 else nullcontext():
            # The program hands each device its seeds; one device may not hold them all.
            state = checkpoint.from_arrays(jax.eval_shape(self.program.init, seeds), arrays)
        self.watch.restore(note.get("symmetry"))
        self.folder.cut_back(lengths)
        self.saved = note["step"]
        self.run(state, note["step"])

    def run(self, state: TrainState, step: int) -> None:
        """Train from ``step`` to the end of the budget."""
        config = self.config
        label = f"{config.method} on {config.task}, {len(config.seeds)} seed(s)"
        self.reporter.start(label, step, config.steps)
        try:
            while step < config.steps:
                if self.stop.is_set():
                    if self.saved != step:
                        self.checkpoint(state, step)
                    raise Interrupted(f"stopped at step {step:,}; checkpoint written")
                state, step = self.advance(state, step)
        finally:
            self.reporter.stop()
        if self.saved != step:
            self.checkpoint(state, step)
        rows = read_rows(self.folder.path / "evaluation.jsonl")
        summary = {"status": "finished", **summarise(config, rows), **self.watch.summary()}
        self.folder.finish(summary)

    def advance(self, state: TrainState, step: int) -> tuple[TrainState, int]:
        """One chunk, and what is due after it."""
        config = self.config
        after = next_stop(config, step)
        learning = step >= learning_begins(config)
        began = time.monotonic()
        state, stats = self.program.chunk(
            state, step, (after - step) // config.steps_per_iteration, learning
        )
        stats = jax.device_get(stats)
        wall = time.monotonic() - began
        rows = log_rows(config, stats, after, wall, after - step)
        self.folder.append("log", [row | self.watch.log(i) for i, row in enumerate(rows)])
        self.stop_if_broken(state, stats, after)
        state = self.watch.after(state, after)
        if after % config.evaluation.every == 0 or after == config.steps:
            self.evaluate(state, after)
        if after % config.run.checkpoint_every == 0:
            self.checkpoint(state, after)
        updates = max(int(stats.updates[0]), 1)
        loss = float(np.mean(stats.metrics["loss"])) / updates if learning else None
        self.reporter.update(after, self.mean_return, loss)
        return state, after

    def evaluate(self, state: TrainState, step: int) -> None:
        """Evaluate all seeds and write their rows."""
        index = step // self.config.evaluation.every + (step % self.config.evaluation.every > 0)
        rows = evaluation_rows(
            self.config, jax.device_get(self.program.evaluate(state, index)), step
        )
        self.mean_return = float(np.mean([row["mean_return"] for row in rows]))
        self.folder.append("evaluation", rows)

    def checkpoint(self, state: TrainState, step: int) -> None:
        """Write the state and how long the logs are."""
        host = {"lengths": self.folder.lengths(), "symmetry": self.watch.note()}
        checkpoint.save(self.folder.checkpoints, step, state, host, self.config.run.keep)
        self.saved = step

    def stop_if_broken(self, state: TrainState, stats: ChunkStats, step: int) -> None:
        """Save and stop if a loss was not finite."""
        broken = [
            (seed, int(bad))
            for seed, bad in zip(self.config.seeds, stats.first_bad_step, strict=True)
            if bad >= 0
        ]
        if not broken:
            return
        seed, bad_step = broken[0]
        host = {"lengths": self.folder.lengths()}
        saved = checkpoint.save(self.folder.path / "failed", step, state, host, keep=1)
        reason = f"loss is not finite at step {bad_step:,} (seed {seed}); state saved in {saved}"
        self.folder.finish({"status": "failed", "reason": reason, "step": bad_step, "seed": seed})
        raise RunFailed(reason)


def _host_memory() -> Any:
    """New arrays lie in the machine's own memory, where JAX may use it."""
    try:
        return jax.default_device(jax.local_devices(backend="cpu")[0])
    except RuntimeError:  # JAX_PLATFORMS names accelerators alone
        return nullcontext()


def learning_begins(config: Config) -> int:
    """The first stop of the loop at which updates begin."""
    turn = config.steps_per_iteration
    return -(-config.replay.learning_starts // turn) * turn


def next_stop(config: Config, step: int) -> int:
    """The next step at which something is due: a row, an evaluation, a checkpoint, the end.

    It depends on the step alone, so a resumed run stops where an uninterrupted one does.
    """
    due = [config.steps]
    for every in (config.run.log_every, config.evaluation.every, config.run.checkpoint_every):
        due.append((step // every + 1) * every)
    if step < learning_begins(config):
        due.append(learning_begins(config))
    return min(due)


_BASE_METRICS = ("loss", "q_mean", "td_error_abs", "grad_norm")


def log_rows(
    config: Config, stats: ChunkStats, step: int, wall: float, steps: int
) -> list[dict[str, Any]]:
    """One row per seed: means over the chunk that ended at ``step``."""
    epsilon = float(epsilon_at(jnp.int32(step), config.exploration, config.steps))
    rows = []
    for i, seed in enumerate(config.seeds):
        row: dict[str, Any] = {"step": step, "seed": seed, "epsilon": epsilon}
        updates, episodes = int(stats.updates[i]), int(stats.episodes[i])
        row["updates"], row["episodes"] = updates, episodes
        if episodes:
            row["episode_return"] = float(stats.episode_return[i]) / episodes
        if updates:
            for name in (*_BASE_METRICS, *sorted({*stats.metrics} - {*_BASE_METRICS})):
                row[name] = float(stats.metrics[name][i]) / updates
        row["wall_s"] = round(wall, 4)
        row["steps_per_s"] = round(steps * len(config.seeds) / wall, 1)
        rows.append(row)
    return rows


def evaluation_rows(config: Config, evaluation: Evaluation, step: int) -> list[dict[str, Any]]:
    """One row per seed, with every episode's return."""
    rows = []
    for i, seed in enumerate(config.seeds):
        exact = float(evaluation.exact_return[i])
        returns = [float(value) for value in evaluation.returns[i]]
        rows.append(
            {
                "step": step,
                "seed": seed,
                "mean_return": float(np.mean(returns)),
                "exact_return": None if np.isnan(exact) else exact,
                "bellman_residual": float(evaluation.bellman_residual[i]),
                "start_value": float(evaluation.start_value[i]),
                "returns": returns,
                "lengths": [int(value) for value in evaluation.lengths[i]],
            }
        )
    return rows


@contextmanager
def _stop_requests() -> Iterator[threading.Event]:
    """An event that Ctrl-C or a termination signal sets; a second Ctrl-C stops at once."""
    requested = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield requested
        return

    def note(number: int, frame: FrameType | None) -> None:
        if requested.is_set():
            raise KeyboardInterrupt
        requested.set()

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield requested
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


__all__ = ["InputError", "Interrupted", "build_program", "resume", "train"]
