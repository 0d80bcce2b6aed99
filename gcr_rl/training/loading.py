"""A finished or unfinished run, read back: its agent, its rows, its configuration."""

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from gcr_rl import envs
from gcr_rl.agents import AgentState, ValueAgent
from gcr_rl.config import Config, validate
from gcr_rl.envs.external import describe, is_external
from gcr_rl.envs.simulator import make_simulator
from gcr_rl.errors import InputError
from gcr_rl.evaluation.rollouts import Evaluation, make_evaluator
from gcr_rl.training import checkpoint
from gcr_rl.training.host import HostProgram
from gcr_rl.training.run_folder import as_path, read_config, read_rows, read_summary
from gcr_rl.training.runner import build_program, evaluation_rows
from gcr_rl.training.state import streams

_HELD_OUT_EPISODES = 1_000_000_000
"""Offset of the key index of ``evaluate``: far from the indices that training uses."""


class _AgentPart(NamedTuple):
    """The part of a stored TrainState that acting needs (same path names)."""

    agent: AgentState


@dataclass(frozen=True)
class Run:
    """A run that can act. ``agent_state`` carries all seeds along its first axis."""

    path: Path
    config: Config
    agent: ValueAgent
    agent_state: AgentState
    step: int
    passed_over: tuple[str, ...] = ()
    """One line for each damaged checkpoint that is newer than ``step``."""

    def state_of(self, seed: int) -> AgentState:
        """The agent of one seed."""
        if seed not in self.config.seeds:
            raise InputError("seed", seed, f"one of this run's seeds {list(self.config.seeds)}")
        index = self.config.seeds.index(seed)
        return jax.tree.map(lambda leaf: leaf[index], self.agent_state)

    def q_values(self, observation: PyTree, seed: int | None = None) -> Float[Array, " actions"]:
        """Q(observation, .) of one seed (the first, if none is named)."""
        state = self.state_of(self.config.seeds[0] if seed is None else seed)
        return self.agent.q_values(state, jnp.asarray(observation), self.agent.level(state))

    @property
    def evaluation(self) -> list[dict[str, Any]]:
        """The rows of evaluation.jsonl."""
        return read_rows(self.path / "evaluation.jsonl")

    @property
    def summary(self) -> dict[str, Any] | None:
        """The content of summary.json, once the run has ended."""
        return read_summary(self.path) if (self.path / "summary.json").exists() else None


def _check_index(field: str, index: object) -> None:
    whole = isinstance(index, int) and not isinstance(index, bool)
    if not whole or not 0 <= index < _HELD_OUT_EPISODES:  # type: ignore[operator]
        raise InputError(field, index, f"a whole number from 0 to {_HELD_OUT_EPISODES - 1}")


def load(run: str | Path) -> Run:
    """Read the newest intact checkpoint of a run."""
    path = as_path("run", run)
    config = read_config(path)
    agent = build_program(config).agent
    arrays, note, passed_over = checkpoint.load_newest(path / "checkpoints")
    seeds = jnp.array(config.seeds, jnp.int32)
    example = jax.eval_shape(
        jax.vmap(lambda seed: _AgentPart(agent.init(streams(seed).initialisation))), seeds
    )
    stored = checkpoint.from_arrays(example, arrays)
    return Run(path, config, agent, stored.agent, note["step"], tuple(passed_over))


def _interface(config: Config) -> tuple[tuple[int, ...], int]:
    """What a network is built for: the shape of an observation, the number of actions."""
    if is_external(config.task):
        task = describe(config.task, config.env)
        return task.shape, task.num_actions
    simulator = make_simulator(*envs.make(config.task, **config.env))
    return simulator.observation_shape, simulator.num_actions


def evaluate(
    run: Run | str | Path,
    *,
    episodes: int = 100,
    epsilon: float = 0.0,
    env: Mapping[str, Any] | None = None,
    evaluation_seed: int = 0,
) -> list[dict[str, Any]]:
    """Evaluate every seed of a run afresh, optionally under other task options.

    One row per seed, as in evaluation.jsonl. ``evaluation_seed`` picks the episodes; they
    are never those that training evaluated on.
    """
    _check_index("evaluation_seed", evaluation_seed)
    if not isinstance(env, Mapping | None):
        raise InputError("env", env, "a dictionary of task options")
    run = run if isinstance(run, Run) else load(run)
    config = run.config.replace(
        {"evaluation.episodes": episodes, "evaluation.epsilon": epsilon,
         "env": {**run.config.env, **(env or {})}}
    )  # fmt: skip
    validate(config)
    seen, fits = _interface(config), _interface(run.config)
    if seen != fits:
        raise InputError("env", env, f"options with the shape and actions trained on, {fits}")
    index = _HELD_OUT_EPISODES + evaluation_seed
    if is_external(config.task):
        host = HostProgram(config, describe(config.task, config.env))
        return evaluation_rows(config, host.evaluate(run.agent_state, index), run.step)
    environment, params = envs.make(config.task, **config.env)
    simulator = make_simulator(environment, params)
    evaluator = make_evaluator(config, simulator, environment, params)

    level = run.agent.level(run.agent_state)

    def one(state: AgentState, seed: Array, tables: PyTree) -> Evaluation:
        key = jax.random.fold_in(streams(seed).evaluation, jnp.int32(index))
        return evaluator.evaluate(partial(run.agent.q_values, state, level=level), key, tables)

    seeds = jnp.array(config.seeds, jnp.int32)
    result = jax.jit(jax.vmap(one, in_axes=(0, 0, None)))(run.agent_state, seeds, evaluator.tables)
    return evaluation_rows(config, jax.device_get(result), run.step)


def play(run: Run | str | Path, *, seed: int | None = None, episode: int = 0) -> list[np.ndarray]:
    """The frames of one greedy episode, as the environment draws them."""
    _check_index("episode", episode)
    run = run if isinstance(run, Run) else load(run)
    config = run.config
    seed = config.seeds[0] if seed is None else seed
    state = run.state_of(seed)
    if is_external(config.task):
        host = HostProgram(config, describe(config.task, config.env))
        return host.frames(state, seed, _HELD_OUT_EPISODES + episode)
    environment, params = envs.make(config.task, **config.env)
    simulator = make_simulator(environment, params)
    step = jax.jit(simulator.step)
    level = run.agent.level(state)
    act = jax.jit(lambda observation: jnp.argmax(run.agent.q_values(state, observation, level)))
    key = jax.random.fold_in(streams(jnp.int32(seed)).evaluation, _HELD_OUT_EPISODES + episode)
    reset_key, play_key = jax.random.split(key)
    situation, observation = simulator.reset(reset_key)
    frames = [np.asarray(environment.render(situation, params))]
    for time in itertools.count():
        after = step(jax.random.fold_in(play_key, time), situation, act(observation))
        situation, observation = after.state, after.observation
        frames.append(np.asarray(environment.render(situation, params)))
        if after.terminated or after.truncated:
            break
    return frames
