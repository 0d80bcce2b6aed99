"""The data that flows between rooms. Imports nothing of ours."""

from typing import Any, NamedTuple

from jaxtyping import Array, Bool, Float, Int

PyTree = Any

Metrics = dict[str, Float[Array, ""]]
"""What an update tells the log; scalars by name."""


class Transition(NamedTuple):
    """One step (s, a, r, s'). ``next_observation`` is the final observation at an
    episode's end, never the one after the reset; only ``terminated`` stops the bootstrap."""

    observation: PyTree
    action: Int[Array, "*batch"]
    reward: Float[Array, "*batch"]
    next_observation: PyTree
    terminated: Bool[Array, "*batch"]
    truncated: Bool[Array, "*batch"]


class Segment(NamedTuple):
    """L consecutive steps of one environment. ``mask[t]`` is False from the first step
    that belongs to a later episode on, so a segment never reaches across a reset."""

    steps: Transition
    mask: Bool[Array, "*batch length"]


class Comparisons(NamedTuple):
    """Statements ``value[upper] >= discount * value[lower] + margin``, fixed size, masked.

    Discount 0 makes a statement a bound on the upper slot alone. ``weight`` orders the
    statements for the greedy DAG step and has no other meaning here.
    """

    upper: Int[Array, " edges"]
    lower: Int[Array, " edges"]
    weight: Float[Array, " edges"]
    margin: Float[Array, " edges"]
    discount: Float[Array, " edges"]
    mask: Bool[Array, " edges"]
