"""Prioritised replay (Schaul et al. 2016, arXiv:1511.05952): uniform's ring, drawn by priority.

Priorities are the leaves of a tree of sums on the device. A node has ``FAN_OUT`` children
rather than two: fewer levels, each read or repaired for a whole batch at once.

Only a start from which ``length`` rows follow has a priority above zero: the newest rows get
theirs when the steps after them have been written, and lose it when they are overwritten.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PyTree, UInt32

from gcr_rl.errors import InputError
from gcr_rl.replay import uniform
from gcr_rl.replay.uniform import ReplayState, same_episode
from gcr_rl.types import Segment, Transition

FAN_OUT = 4
"""Children of a node; of 2, 4, 8, 16, 32 the fastest on a CPU for 10^4, 10^5 and 10^6 leaves."""
SMALLEST = 1e-6
"""Added to a temporal-difference error before its power, so that no start is lost for good."""

Tree = tuple[Float[Array, " nodes"], ...]
"""Sums by level, leaves first; every level is padded with zeros to whole families."""


class PrioritisedState(NamedTuple):
    """The ring, the tree over its starts (leaf = row * environments + column), and the largest
    priority ever given, which a start has until it is first drawn."""

    ring: ReplayState
    tree: Tree
    largest: Float[Array, ""]


class Draw(NamedTuple):
    """A batch: its segments, their leaves in the tree, their importance weights (None of both
    where all count alike)."""

    segments: Segment
    leaf: Int[Array, " batch"] | None
    weight: Float[Array, " batch"] | None


@dataclass(frozen=True)
class PrioritisedReplay:
    """The functions of one memory, bound to its sizes."""

    init: Callable[[PyTree], PrioritisedState]
    add: Callable[[PrioritisedState, Transition], PrioritisedState]
    sample: Callable[[PrioritisedState, UInt32[Array, " batch"], Float[Array, ""]], Draw]
    """(state, a random word per segment, beta)."""
    update: Callable[..., PrioritisedState]
    """(state, leaf, error): new priorities for what was drawn."""
    can_sample: Callable[[PrioritisedState], Bool[Array, ""]]


def seed_axes() -> Any:
    """The axis of the seeds in every leaf, for vmap: as in uniform replay all seeds write in
    step, so the cursor is shared."""
    ring = cast(Any, ReplayState)(rows=0, cursor=None, size=None)
    return cast(Any, PrioritisedState)(ring=ring, tree=0, largest=0)


def init_tree(leaves: int, fan_out: int = FAN_OUT) -> Tree:
    """A tree of zeros over ``leaves`` leaves; its last level has ``fan_out`` nodes or fewer."""
    levels, nodes = [], leaves
    while True:
        families = -(-nodes // fan_out)
        levels.append(jnp.zeros(families * fan_out))
        if families == 1:
            return tuple(levels)
        nodes = families


def fan_out_of(tree: Tree) -> int:
    """Children per node: the size of the last level, which is one family."""
    return tree[-1].shape[0]


def total(tree: Tree) -> Float[Array, ""]:
    """The sum of all leaves."""
    return jnp.sum(tree[-1])


def write(tree: Tree, index: Int[Array, " n"], value: Float[Array, " n"]) -> Tree:
    """The tree with new leaves; the largest of several values for one leaf counts.

    Each level is summed anew from its children, so rounding never adds up.
    """
    # What is written first depends on ``value`` as well: with a constant in its place, a value
    # that was read off the leaves would not be ordered before, and cost a copy of all leaves.
    fan_out = fan_out_of(tree)
    leaves = tree[0].at[index].set(value).at[index].max(value)
    levels = [leaves]
    for level in tree[1:]:
        index = index // fan_out
        families = levels[-1].reshape(-1, fan_out)
        levels.append(level.at[index].set(jnp.sum(families[index], axis=-1)))
    return tuple(levels)


def find(tree: Tree, mass: Float[Array, " n"]) -> tuple[Int[Array, " n"], Float[Array, " n"]]:
    """The leaf at which the running sum of the leaves first exceeds ``mass``, and its value.

    A leaf of zero is never found as long as there is another one, whatever rounding does.
    """
    fan_out = fan_out_of(tree)
    node, value = jnp.zeros(mass.shape, jnp.int32), mass
    for level in reversed(tree):
        family = level.reshape(-1, fan_out)[node]
        running = jnp.cumsum(family, axis=-1)
        # Rounding may leave more mass than the family has: then it is the last positive child.
        last = fan_out - 1 - jnp.argmax(family[:, ::-1] > 0.0, axis=-1)
        child = jnp.minimum(jnp.sum(running <= mass[:, None], axis=-1), last)
        place = jnp.arange(fan_out) - child[:, None]
        mass = mass - jnp.sum(jnp.where(place < 0, family, 0.0), axis=-1)
        value = jnp.sum(jnp.where(place == 0, family, 0.0), axis=-1)
        node = node * fan_out + child.astype(jnp.int32)
    return node, value


def stratified(bits: UInt32[Array, " batch"]) -> Float[Array, " batch"]:
    """One uniform number in each of ``batch`` equal parts of [0, 1), from random words."""
    uniform_draw = (bits >> 8).astype(jnp.float32) * 2.0**-24
    share = (jnp.arange(bits.shape[0]) + uniform_draw) / bits.shape[0]
    return jnp.minimum(share, 1.0 - 2.0**-24)


def importance_weights(
    probability: Float[Array, " batch"], starts: Float[Array, ""], beta: Float[Array, ""] | float
) -> Float[Array, " batch"]:
    """(starts * P(i))^-beta, divided by the largest in the batch."""
    weight = (starts * probability) ** -beta
    return weight / jnp.max(weight)


def beta_at(step: Int[Array, ""], start: float, total_steps: int) -> Float[Array, ""]:
    """Linear from ``start`` at step 0 to 1 at the end."""
    return start + (1.0 - start) * jnp.clip(step / total_steps, 0.0, 1.0)


def init(example: Transition, rows: int, fan_out: int = FAN_OUT) -> PrioritisedState:
    """An empty memory for transitions shaped like ``example`` (leaves [environments, ...])."""
    ring = uniform.init(example, rows)
    return PrioritisedState(ring, init_tree(ring.rows.action.size, fan_out), jnp.float32(1.0))


def add(state: PrioritisedState, transition: Transition, length: int) -> PrioritisedState:
    """Write one step of every environment over the oldest row.

    The row that now has ``length`` rows becomes a start, with the largest priority so far; the
    row that was overwritten is none.
    """
    rows, environments = state.ring.rows.action.shape
    column = jnp.arange(environments)
    ring = uniform.add(state.ring, transition)
    complete = (state.ring.cursor - (length - 1)) % rows
    leaf = complete * environments + column
    # Before the first ``length`` rows are there, the row so far back has never been written.
    priority = jnp.full(environments, jnp.where(ring.size >= length, state.largest, 0.0))
    if length > 1:  # in one write, since a second one would cost a copy of the leaves
        leaf = jnp.concatenate([leaf, state.ring.cursor * environments + column])
        priority = jnp.concatenate([priority, jnp.zeros(environments)])
    return PrioritisedState(ring, write(state.tree, leaf, priority), state.largest)


def sample(
    state: PrioritisedState,
    bits: UInt32[Array, " batch"],
    beta: Float[Array, ""] | float,
    length: int,
) -> Draw:
    """A segment of ``length`` steps for each random word, start i with P(i) = p_i / sum_j p_j.

    The draws are stratified. P is right to about 2^-24, the resolution of a float32 sum.
    """
    rows, environments = state.ring.rows.action.shape
    mass = total(state.tree)
    leaf, priority = find(state.tree, stratified(bits) * mass)
    # Before there is a start (see ``can_sample``) the search ends in the padding.
    leaf = jnp.minimum(leaf, rows * environments - 1)
    starts = jnp.maximum(state.ring.size - length + 1, 1) * environments
    row = (leaf[:, None] // environments + jnp.arange(length)) % rows
    column = leaf[:, None] % environments
    steps = jax.tree.map(lambda ring: ring[row, column], state.ring.rows)
    segments = Segment(steps, same_episode(steps.terminated | steps.truncated))
    return Draw(segments, leaf, importance_weights(priority / mass, starts, beta))


def update(
    state: PrioritisedState,
    leaf: Int[Array, " batch"],
    error: Float[Array, " batch"],
    exponent: float,
) -> PrioritisedState:
    """p_i = (|error_i| + SMALLEST)^exponent; what is no start any more stays none."""
    priority = (jnp.abs(error) + SMALLEST) ** exponent
    largest = jnp.maximum(state.largest, jnp.max(priority))
    alive = state.tree[0][leaf] > 0.0
    tree = write(state.tree, leaf, jnp.where(alive, priority, 0.0))
    return state._replace(tree=tree, largest=largest)


def make_prioritised(
    capacity: int,
    num_envs: int,
    length: int = 1,
    *,
    exponent: float = 0.5,
    fan_out: int = FAN_OUT,
) -> PrioritisedReplay:
    """Bind the functions above: ``capacity`` transitions in all, segments of ``length``."""
    rows = capacity // num_envs
    if rows < length:
        raise InputError("capacity", capacity, f"at least num_envs * length = {num_envs * length}")
    if fan_out < 2:
        raise InputError("fan_out", fan_out, "at least 2")
    if not 0.0 <= exponent <= 1.0:
        raise InputError("exponent", exponent, "from 0 (uniform) to 1 (proportional)")
    return PrioritisedReplay(
        init=lambda example: init(example, rows, fan_out),
        add=lambda state, transition: add(state, transition, length),
        sample=lambda state, bits, beta: sample(state, bits, beta, length),
        update=lambda state, leaf, error: update(state, leaf, error, exponent),
        can_sample=lambda state: uniform.can_sample(state.ring, length),
    )
