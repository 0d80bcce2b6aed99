"""One seed of a run at its newest intact checkpoint: its agent, its replay, its certificates."""

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from gcr_rl import envs
from gcr_rl.agents import AgentState, ValueAgent
from gcr_rl.config import Config
from gcr_rl.envs.external import is_external
from gcr_rl.errors import InputError
from gcr_rl.evaluation.metrics import window_value_variance
from gcr_rl.replay import ReplayState
from gcr_rl.symmetry import Standing, recovered
from gcr_rl.symmetry.discovery import discover
from gcr_rl.symmetry.enforcement import evidence_of, latest_rows
from gcr_rl.symmetry.recovered import RecoveredGroup
from gcr_rl.symmetry.watch import standing_from
from gcr_rl.training import checkpoint
from gcr_rl.training.run_folder import read_config
from gcr_rl.training.runner import build_program
from gcr_rl.types import Transition

MOST_CHECKPOINTS = 8
"""Of those that a run keeps, so many of the newest are compared."""
_STATES_COMPARED = 256


class _Stored(NamedTuple):
    """The parts of a stored TrainState that are read here (same path names)."""

    agent: AgentState
    replay: ReplayState


@dataclass(frozen=True)
class Snapshot:
    """``agent_state`` and ``replay`` are those of ``seed`` alone."""

    path: Path
    config: Config
    seed: int
    step: int
    agent: ValueAgent
    agent_state: AgentState
    replay: ReplayState
    decode: Any
    """What the replay stores -> observation."""
    standing: Standing | None
    """The certificates of the grounded family; None for the others."""
    passed_over: tuple[str, ...]

    @property
    def level(self) -> int:
        """How much of the group is in use, as the agent counts it."""
        return self.agent.level(self.agent_state)

    def q_values(
        self, observations: Float[Array, "n ..."], state: AgentState | None = None
    ) -> Float[Array, "n actions"]:
        """Q(o, .) for each observation, of this agent or of another state of it."""
        state = self.agent_state if state is None else state
        return _q_table(self.agent.q_values, state, observations, self.agent.level(state))


@partial(jax.jit, static_argnums=(0, 3))
def _q_table(q_values: Any, state: AgentState, observations: Any, level: int) -> Array:
    return jax.lax.map(lambda o: q_values(state, o, level), observations, batch_size=1024)


def seed_of(config: Config, seed: int | None) -> int:
    """The seed that is meant; the run's first if none is named."""
    if seed is not None and seed not in config.seeds:
        raise InputError("seed", seed, f"one of this run's seeds {list(config.seeds)}")
    return config.seeds[0] if seed is None else seed


def read_snapshot(path: Path, seed: int | None = None) -> Snapshot:
    """One seed at the newest intact checkpoint of the run in ``path``."""
    config = read_config(path)
    seed = seed_of(config, seed)
    place = config.seeds.index(seed)
    program = build_program(config)
    arrays, note, passed_over = checkpoint.load_newest(path / "checkpoints")
    stored = _restored(program, config, arrays, place)
    return Snapshot(
        path=path,
        config=config,
        seed=seed,
        step=note["step"],
        agent=program.agent,
        agent_state=stored.agent,
        replay=stored.replay,
        decode=program.decode,
        standing=_standing(program.agent, note, place),
        passed_over=tuple(passed_over),
    )


def _restored(program: Any, config: Config, arrays: dict[str, np.ndarray], place: int) -> _Stored:
    """The agent and the replay of one seed, sliced before anything is copied to a device."""
    shapes = jax.eval_shape(program.init, jnp.array(config.seeds[:1], jnp.int32))
    shared = (".replay.cursor", ".replay.size")
    mine = {
        name: array if name in shared else array[place : place + 1]
        for name, array in arrays.items()
        if name.startswith((".agent", ".replay"))
    }
    found = checkpoint.from_arrays(_Stored(shapes.agent, shapes.replay), mine)
    first = partial(jax.tree.map, lambda leaf: leaf[0])
    return _Stored(first(found.agent), found.replay._replace(rows=first(found.replay.rows)))


def _standing(agent: ValueAgent, note: dict[str, Any], place: int) -> Standing | None:
    if agent.vocabulary is None:
        return None
    standings = note.get("symmetry")
    if not isinstance(standings, list) or len(standings) <= place:
        raise InputError("checkpoint", "no standings", "the certificates of every seed")
    return standing_from(standings[place], agent.vocabulary, agent.num_actions)


def newest_rows(snapshot: Snapshot, count: int) -> Transition:
    """The newest ``count`` rows of the replay (or as many as there are), oldest first."""
    replay = snapshot.replay
    return latest_rows(replay.rows, int(replay.cursor), int(replay.size), count)


def certificates(snapshot: Snapshot) -> tuple[RecoveredGroup, Standing] | None:
    """The group in force, with the evidence that the newest window gives; None without one.

    A checkpoint keeps what was decided and not the counts behind it: they are read once more
    from the newest transitions of the replay, and change no decision.
    """
    standing, vocabulary = snapshot.standing, snapshot.agent.vocabulary
    if standing is None or vocabulary is None:
        return None
    actions = snapshot.agent.num_actions
    if standing.in_force.any():
        window = snapshot.config.symmetry.window
        rows = newest_rows(snapshot, window // snapshot.config.loop.num_envs)
        evidence = evidence_of(rows, snapshot.decode, latest=window)
        standing = replace(standing, discovery=discover(evidence, vocabulary, actions))
    return recovered(standing, vocabulary, actions), standing


def value_variance(snapshot: Snapshot) -> dict[str, Any] | None:
    """Var over the kept checkpoints of max_a Q(s, a), mean over states (thm:stability's variance
    with checkpoints as iterates); None with fewer than two intact ones.

    The states are all of a small finite task, else the newest of the replay.
    """
    if int(snapshot.replay.size) == 0:
        return None
    states = states_compared(snapshot)
    values, steps = [], []
    program = build_program(snapshot.config)
    place = snapshot.config.seeds.index(snapshot.seed)
    folder = snapshot.path / "checkpoints"
    for step in checkpoint.steps(folder)[-MOST_CHECKPOINTS:]:
        try:
            arrays, _ = checkpoint.load(folder, step)
        except InputError:
            continue  # `passed_over` says which
        state = _restored(program, snapshot.config, arrays, place).agent
        values.append(np.asarray(snapshot.q_values(states, state)).max(axis=1))
        steps.append(step)
    if len(steps) < 2:
        return None
    variance = window_value_variance(np.stack(values), len(steps))
    return {"checkpoints": steps, "states": len(values[0]), "variance": float(variance[0])}


def states_compared(snapshot: Snapshot) -> PyTree:
    """A fixed set of observations."""
    if not is_external(snapshot.config.task):
        environment, params = envs.make(snapshot.config.task, **snapshot.config.env)
        if getattr(environment, "num_states", _STATES_COMPARED + 1) <= _STATES_COMPARED:
            return environment.observations(params)
    rows = newest_rows(snapshot, _STATES_COMPARED // snapshot.config.loop.num_envs + 1)
    flat = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), rows.observation)
    return jax.vmap(snapshot.decode)(jax.tree.map(lambda leaf: leaf[-_STATES_COMPARED:], flat))
