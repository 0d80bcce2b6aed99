"""Methods by name: each is a set of overrides, never a copied file."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Method:
    """A named set of overrides: an ablation is a coefficient, never a copied file."""

    name: str
    summary: str
    overrides: Mapping[str, Any]


_GROUNDED = {"symmetry.family": "grounded"}
_LATENT = {"symmetry.family": "latent"}
_BOUNDS = {"order.evidence": "returns", "order.route": "hard"}
_NUDGES = {"order.evidence": "nudge"}
_PLAIN_ACTIONS = {"symmetry.relabel": False}

METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        Method("dqn", "deep Q-learning with replay and a target network", {"value.double": False}),
        Method("ddqn", "Double-DQN: the online network picks the next action", {}),
        Method("equivariant", "Double-DQN on a network that is told the task's group", {}),
        Method(
            "gcr-hard",
            "certified symmetries by the quotient map, targets moved onto return bounds",
            _GROUNDED | _BOUNDS,
        ),
        Method(
            "gcr-soft",
            "certified symmetries and return bounds, both as losses",
            _GROUNDED | {"symmetry.enforce": "loss", "order.evidence": "returns"},
        ),
        Method("sym-only", "gcr-hard without the order", _GROUNDED),
        Method("logic-only", "gcr-hard without symmetries", _BOUNDS),
        Method(
            "no-relabel",
            "gcr-hard whose transforms leave the actions as they are",
            _GROUNDED | _BOUNDS | _PLAIN_ACTIONS,
        ),
        Method(
            "paper-soft",
            "the paper's letter: latent transforms and nudge comparisons as losses",
            _LATENT | _NUDGES,
        ),
        Method(
            "paper-hard",
            "the paper's letter with the manifold step on the batch's value slots",
            _LATENT | _NUDGES | {"order.route": "hard"},
        ),
        Method("paper-sym-only", "paper-soft without the order", _LATENT),
        Method("paper-logic-only", "paper-soft without symmetries", _NUDGES),
        Method(
            "paper-no-relabel",
            "paper-soft whose transforms leave the actions as they are",
            _LATENT | _NUDGES | _PLAIN_ACTIONS,
        ),
    )
}
METHOD_ALIASES = {"gcr": "gcr-hard"}
"""Other names of methods: gcr is the better of its two routes."""
