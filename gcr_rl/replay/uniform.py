"""Uniform replay: a ring of time-ordered rows, one column per environment.

Pure functions on a :class:`ReplayState`; donate the state to jit, or every ``add`` copies it.
Rows hold whole transitions, final observations included, so nothing is ever read across a
reset; consecutive rows of one column are consecutive steps, so segments are slices.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, PyTree, UInt32

from gcr_rl.types import Segment, Transition


class ReplayState(NamedTuple):
    """The ring: leaves [rows, environments, ...]; ``cursor`` is the next row to be written."""

    rows: Transition
    cursor: Int[Array, ""]
    size: Int[Array, ""]


@dataclass(frozen=True)
class Replay:
    """The functions of one memory, bound to its sizes."""

    init: Callable[[PyTree], ReplayState]
    add: Callable[[ReplayState, Transition], ReplayState]
    sample: Callable[[ReplayState, UInt32[Array, " batch"]], Segment]
    can_sample: Callable[[ReplayState], Bool[Array, ""]]


def init(example: Transition, rows: int) -> ReplayState:
    """An empty ring for transitions shaped like ``example`` (leaves [environments, ...])."""

    def empty(leaf: Array) -> Array:
        return jnp.zeros((rows, *jnp.shape(leaf)), jnp.result_type(leaf))

    return ReplayState(jax.tree.map(empty, example), jnp.int32(0), jnp.int32(0))


def add(state: ReplayState, transition: Transition) -> ReplayState:
    """Write one step of every environment over the oldest row."""
    rows = state.rows.action.shape[0]

    def write(ring: Array, leaf: Array) -> Array:
        return jax.lax.dynamic_update_index_in_dim(ring, leaf.astype(ring.dtype), state.cursor, 0)

    return ReplayState(
        rows=jax.tree.map(write, state.rows, transition),
        cursor=(state.cursor + 1) % rows,
        size=jnp.minimum(state.size + 1, rows),
    )


def can_sample(state: ReplayState, length: int) -> Bool[Array, ""]:
    """Whether a segment of ``length`` steps has been stored."""
    return state.size >= length


def sample(state: ReplayState, bits: UInt32[Array, " batch"], length: int) -> Segment:
    """A segment of ``length`` steps for each random word, uniform over all stored starts.

    Starts are drawn so that the slice never crosses the write cursor; steps of a later
    episode are masked, not skipped. (Taking the remainder favours no start by more than one
    part in 2^32 / starts: 4,000 for a million transitions.)
    """
    rows, environments = state.rows.action.shape
    starts = (state.size - length + 1) * environments
    drawn = (bits % jnp.maximum(starts, 1).astype(jnp.uint32)).astype(jnp.int32)
    offset, column = drawn // environments, drawn % environments
    oldest = state.cursor - state.size
    row = (oldest + offset[:, None] + jnp.arange(length)) % rows
    steps = jax.tree.map(lambda ring: ring[row, column[:, None]], state.rows)
    return Segment(steps, same_episode(steps.terminated | steps.truncated))


def same_episode(done: Bool[Array, "batch length"]) -> Bool[Array, "batch length"]:
    """True up to and including the first ``done`` of each row."""
    ends = jnp.cumsum(done.astype(jnp.int32), axis=1) - done.astype(jnp.int32)
    return ends == 0


def make_uniform(capacity: int, num_envs: int, length: int = 1) -> Replay:
    """Bind the functions above: ``capacity`` transitions in all, segments of ``length``."""
    rows = capacity // num_envs
    return Replay(
        init=lambda example: init(example, rows),
        add=add,
        sample=lambda state, bits: sample(state, bits, length),
        can_sample=lambda state: can_sample(state, length),
    )
