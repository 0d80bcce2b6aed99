"""The order that a run's own evidence gives on a batch of value slots from its replay.

``nudge`` compares slots with each other. ``returns`` bounds each slot from below, V_i >= b_i, and
compares no two; what the bounds say between slots is their interval order: i is above j where
b_i exceeds V+_j = max(V_j, b_j), so that V+_i >= b_i > V+_j.
"""

from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from gcr_rl import envs
from gcr_rl.agents.noise import Noise
from gcr_rl.agents.ordering import Batch, Ordering
from gcr_rl.config import Config
from gcr_rl.envs.base import IndexedEnvironment
from gcr_rl.envs.external import is_external
from gcr_rl.evidence import quotient
from gcr_rl.inspection.grid import grid_of
from gcr_rl.inspection.snapshot import Snapshot
from gcr_rl.losses import pick
from gcr_rl.order import Poset
from gcr_rl.order.dag import greedy_dag_full
from gcr_rl.replay.uniform import sample
from gcr_rl.types import Comparisons, Segment

SLOTS = 24
"""Slots of a drawing."""
MOST_NAMED_STATES = 32
"""A finite task with at most so many states is drawn state by state."""
_NAMED_SAMPLE = 512
_DRAWN_SEED = 0


@dataclass(frozen=True)
class SlotOrder:
    """A poset on slots, or on states where they can be named, with the slots' values."""

    poset: Poset
    labels: list[str]
    values: Float[np.ndarray, " nodes"]
    named: bool
    proposed: int
    kept: int
    refused: int

    def data(self) -> dict[str, Any]:
        """Plain data for a JSON file: ``size`` counts relations, ``width`` is the largest
        antichain, ``height`` the longest chain."""
        return {
            "nodes": self.poset.num_nodes, "states_named": self.named,
            "edges_proposed": self.proposed, "edges_kept": self.kept,
            "edges_refused": self.refused, "size": self.poset.size,
            "width": self.poset.width(), "height": self.poset.height(),
            "covers": self.poset.hasse().tolist(), "labels": self.labels,
            "values": self.values.tolist(),
        }  # fmt: skip


def can_order(snapshot: Snapshot) -> str | None:
    """Why there is no order to show; None where there is one."""
    config = snapshot.config
    if config.order.evidence == "none" or config.order.coefficient == 0.0:
        return f"{config.method} orders no values"
    if int(snapshot.replay.size) < snapshot.agent.segment_length:
        return f"the replay at step {snapshot.step:,} holds no segment yet"
    return None


def slot_order(snapshot: Snapshot, slots: int = SLOTS) -> SlotOrder:
    """The order on ``slots`` pairs (s, a) drawn from the replay; on a small finite task on the
    states that a larger sample holds."""
    names = state_names(snapshot.config)
    by_returns = snapshot.config.order.evidence == "returns"
    count = slots
    if names is not None:
        count = _NAMED_SAMPLE if by_returns else snapshot.config.replay.batch_size
    segments = draw(snapshot, count)
    state = np.asarray(segments.steps.observation)[:, 0] if names is not None else np.arange(count)
    present, node = np.unique(state, return_inverse=True)
    labels = [str(slot) for slot in present] if names is None else [names[i] for i in present]
    values, taken = _values(snapshot, segments, node, len(present), names is not None)
    if by_returns:
        bound = np.full(len(present), -np.inf)
        np.maximum.at(bound, node, np.asarray(bounds(snapshot, segments)))
        found = interval_comparisons(values, bound)
    else:
        found = quotient(nudges(snapshot, segments, taken), jnp.asarray(node, jnp.int32))
    dag = greedy_dag_full(found.upper, found.lower, found.weight, found.mask, len(present))
    return SlotOrder(
        Poset.from_reach(np.asarray(dag.reach)), labels, values, names is not None,
        int(found.mask.sum()), int(dag.accepted.sum()), int(dag.refused.sum()),
    )  # fmt: skip


def draw(snapshot: Snapshot, count: int) -> Segment:
    """``count`` segments of the replay, the same ones each time."""
    words = jax.random.bits(jax.random.key(_DRAWN_SEED), (count,), jnp.uint32)
    return sample(snapshot.replay, words, snapshot.agent.segment_length)


def state_names(config: Config) -> list[str] | None:
    """A name for each state of a small finite task: its cell on a grid, else its number."""
    if is_external(config.task):
        return None
    environment, _ = envs.make(config.task, **config.env)
    if not isinstance(environment, IndexedEnvironment):
        return None
    if environment.num_states > MOST_NAMED_STATES:
        return None
    grid = grid_of(config)
    if grid is None or len(grid.states) < environment.num_states:
        return [str(state) for state in range(environment.num_states)]
    places = {int(state): divmod(int(cell), grid.columns)
              for state, cell in zip(grid.states, grid.cells, strict=True)}  # fmt: skip
    return [f"{row},{column}" for row, column in (places[s] for s in range(len(places)))]


def _values(
    snapshot: Snapshot, segments: Segment, node: Int[np.ndarray, " n"], nodes: int, by_state: bool
) -> tuple[Float[np.ndarray, " nodes"], Float[Array, " n"]]:
    """Of each node Q(s, a), or max_a Q(s, a) for a state; and Q(s, a) of each segment."""
    first = jax.tree.map(lambda leaf: leaf[:, 0], segments.steps)
    q = snapshot.q_values(jax.vmap(snapshot.decode)(first.observation))
    taken = jax.vmap(pick)(q, first.action)
    values = np.zeros(nodes)
    values[node] = np.asarray(q).max(axis=1) if by_state else np.asarray(taken)
    return values, taken


def interval_comparisons(
    values: Float[np.ndarray, " nodes"], bound: Float[np.ndarray, " nodes"]
) -> Comparisons:
    """i -> j with weight b_i − V+_j where that is positive; acyclic, since V+ falls along it."""
    excess = bound[:, None] - np.maximum(values, bound)[None, :]
    np.fill_diagonal(excess, 0.0)
    upper, lower = np.nonzero(excess > 0.0)
    if not len(upper):  # arrays of size one, masked, keep the solvers' shapes simple
        upper, lower = np.zeros(1, int), np.zeros(1, int)
    weight = jnp.asarray(excess[upper, lower], jnp.float32)
    zero, one = jnp.zeros_like(weight), jnp.ones_like(weight)
    return Comparisons(
        jnp.asarray(upper, jnp.int32), jnp.asarray(lower, jnp.int32), weight, zero, one, weight > 0
    )


def bounds(snapshot: Snapshot, segments: Segment) -> Float[Array, " n"]:
    """The largest of the bounds that updates give the segments while the horizons take turns."""
    objective, state = snapshot.agent.objective, snapshot.agent_state

    @jax.jit
    def at(clock: Array) -> Float[Array, " n"]:
        return objective.bounds(state.params, state.known, snapshot.level, segments, clock)

    turns = jnp.arange(len(snapshot.config.order.horizons))
    return jnp.max(jnp.stack([at(clock) for clock in turns]), axis=0)


def nudges(snapshot: Snapshot, segments: Segment, taken: Float[Array, " n"]) -> Comparisons:
    """The paper's comparisons between the slots, as the run's updates propose them."""
    objective, state = snapshot.agent.objective, snapshot.agent_state
    noise, order = state.noise, snapshot.config.order
    assert isinstance(noise, Noise)  # an agent that orders values measures it
    network = objective.network(state.params)

    def one(segment: Segment) -> tuple[Array, Array, Array]:
        now = jax.tree.map(lambda leaf: leaf[0], segment.steps.observation)
        goal, next_q = objective.target(state.params, state.known, snapshot.level, segment)
        return goal, next_q, network.features(snapshot.decode(now))

    goal, next_q, features = jax.jit(jax.vmap(one))(segments)
    fewer = replace(order, neighbours=min(order.neighbours, len(taken) - 1))
    return Ordering(fewer).nudges(Batch(taken, goal, features, next_q), noise)
