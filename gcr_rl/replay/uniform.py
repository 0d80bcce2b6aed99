"""Uniform replay: a ring of time-ordered rows, one column per environment.

A share of the draws may be kept for the newest transitions, so that a memory of the whole
history still learns at the pace of a short one.

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
        return written(ring, leaf.astype(ring.dtype), state.cursor)

    return ReplayState(
        rows=jax.tree.map(write, state.rows, transition),
        cursor=(state.cursor + 1) % rows,
        size=jnp.minimum(state.size + 1, rows),
    )


@jax.custom_batching.custom_vmap
def written(ring: Array, row: Array, cursor: Int[Array, ""]) -> Array:
    """``ring`` with ``row`` at ``cursor``. Rings side by side with one cursor stay one slice to
    write; JAX's own rule makes a scatter of it."""
    return jax.lax.dynamic_update_index_in_dim(ring, row, cursor, 0)


@written.def_vmap
def _written_side_by_side(
    size: int, batched: list[bool], ring: Array, row: Array, cursor: Array
) -> tuple[Array, bool]:
    if batched == [True, True, False]:
        return jax.lax.dynamic_update_index_in_dim(ring, row, cursor, 1), True
    axes = tuple(0 if along else None for along in batched)
    return jax.vmap(written.fun, axes, axis_size=size)(ring, row, cursor), True


def can_sample(state: ReplayState, length: int) -> Bool[Array, ""]:
    """Whether a segment of ``length`` steps has been stored."""
    return state.size >= length


def sample(
    state: ReplayState,
    bits: UInt32[Array, " batch"],
    length: int,
    recent_share: float = 0.0,
    recent_rows: int = 1,
) -> Segment:
    """A segment of ``length`` steps for each random word.

    With probability ``recent_share`` its start is uniform over the newest ``recent_rows`` rows
    of starts, else over all of them. Starts are drawn so that the slice never crosses the
    write cursor; steps of a later episode are masked, not skipped.
    """
    rows, environments = state.rows.action.shape
    starts = jnp.maximum(state.size - length + 1, 1)
    drawn = draw_starts(bits, starts, environments, recent_share, recent_rows)
    offset, column = drawn // environments, drawn % environments
    oldest = state.cursor - state.size
    row = (oldest + offset[:, None] + jnp.arange(length)) % rows
    steps = jax.tree.map(lambda ring: ring[row, column[:, None]], state.rows)
    return Segment(steps, same_episode(steps.terminated | steps.truncated))


def draw_starts(
    bits: UInt32[Array, " batch"],
    starts: Int[Array, ""],
    environments: int,
    recent_share: float,
    recent_rows: int,
) -> Int[Array, " batch"]:
    """Start numbers in [0, starts * environments), oldest first, one for each random word.

    A word w below the threshold T = recent_share 2^32 draws from the newest rows by
    w mod (recent starts), any other from all by (w - T) mod (all starts): given its side, a
    word is uniform there, so one word serves both choices. (Taking the remainder favours no
    start by more than one part in T or 2^32 - T over the number of starts: for all of a
    million transitions and T = 0, 4,000.)
    """
    threshold = round(recent_share * 2**32)
    every = (starts * environments).astype(jnp.uint32)
    if threshold == 0:
        return (bits % every).astype(jnp.int32)
    recent = jnp.minimum(every, jnp.uint32(recent_rows * environments))
    newest = every - recent + bits % recent
    anywhere = (bits - jnp.uint32(threshold % 2**32)) % every
    return jnp.where(bits <= jnp.uint32(threshold - 1), newest, anywhere).astype(jnp.int32)


def same_episode(done: Bool[Array, "batch length"]) -> Bool[Array, "batch length"]:
    """True up to and including the first ``done`` of each row."""
    ends = jnp.cumsum(done.astype(jnp.int32), axis=1) - done.astype(jnp.int32)
    return ends == 0


def make_uniform(
    capacity: int,
    num_envs: int,
    length: int = 1,
    *,
    recent_share: float = 0.0,
    recent_window: int = 1,
) -> Replay:
    """Bind the functions above: ``capacity`` transitions in all, segments of ``length``.

    ``recent_share`` of the draws comes from the newest ``recent_window`` transitions.
    """
    rows, recent_rows = capacity // num_envs, max(recent_window // num_envs, 1)
    return Replay(
        init=lambda example: init(example, rows),
        add=add,
        sample=lambda state, bits: sample(state, bits, length, recent_share, recent_rows),
        can_sample=lambda state: can_sample(state, length),
    )
