"""Uniform or prioritised replay behind one interface, as a run's configuration says.

The ring and the priorities are apart: whoever reads transitions needs the ring alone, and where
draws are uniform there are no priorities.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from jaxtyping import Array, Float, Int, PyTree, UInt32

from gcr_rl.config import Config
from gcr_rl.replay.prioritised import (
    Draw,
    PrioritisedReplay,
    PrioritisedState,
    Tree,
    make_prioritised,
)
from gcr_rl.replay.uniform import Replay, ReplayState, make_uniform
from gcr_rl.types import Segment, Transition


class Priorities(NamedTuple):
    """The tree over the starts and the largest priority ever given."""

    tree: Tree
    largest: Float[Array, ""]


Held = tuple[ReplayState, Priorities | tuple[()]]
"""The ring, and the priorities of its starts where there are any."""


@dataclass(frozen=True)
class Memory:
    """The functions of one memory, bound to its sizes."""

    init: Callable[[PyTree], Held]
    add: Callable[[Held, Transition], Held]
    draw: Callable[[Held, UInt32[Array, " batch"], Float[Array, ""]], Draw]
    """(held, a random word per segment, beta): what an update learns from."""
    update: Callable[[Held, Draw, Float[Array, " batch"]], Held]
    """(held, what was drawn, its errors): new priorities, where there are any."""
    sample: Callable[[ReplayState, UInt32[Array, " batch"]], Segment]
    """Segments whatever their priority."""


def make_replay(config: Config, length: int) -> Memory:
    """The memory of one seed that ``config`` describes, for segments of ``length``."""
    replay, num_envs = config.replay, config.loop.num_envs
    plain = make_uniform(
        replay.capacity,
        num_envs,
        length,
        recent_share=replay.recent_share,
        recent_window=replay.recent_window,
    )
    if not replay.prioritised:
        return _uniform(plain)
    by_priority = make_prioritised(replay.capacity, num_envs, length, exponent=replay.exponent)
    return _prioritised(by_priority, plain)


def _uniform(replay: Replay) -> Memory:
    return Memory(
        init=lambda example: (replay.init(example), ()),
        add=lambda held, transition: (replay.add(held[0], transition), ()),
        draw=lambda held, bits, beta: Draw(replay.sample(held[0], bits), None, None),
        update=lambda held, draw, error: held,
        sample=replay.sample,
    )


def _prioritised(replay: PrioritisedReplay, plain: Replay) -> Memory:
    def joined(held: Held) -> PrioritisedState:
        ring, priorities = held
        assert isinstance(priorities, Priorities)
        return PrioritisedState(ring, priorities.tree, priorities.largest)

    def apart(state: PrioritisedState) -> Held:
        return state.ring, Priorities(state.tree, state.largest)

    def update(held: Held, draw: Draw, error: Float[Array, " batch"]) -> Held:
        leaf: Int[Array, " batch"] | None = draw.leaf
        return apart(replay.update(joined(held), leaf, error))

    return Memory(
        init=lambda example: apart(replay.init(example)),
        add=lambda held, transition: apart(replay.add(joined(held), transition)),
        draw=lambda held, bits, beta: replay.sample(joined(held), bits, beta),
        update=update,
        sample=plain.sample,
    )
