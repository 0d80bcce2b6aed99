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
_RAINBOW = {
    "value.atoms": 51,
    "value.n_step": 3,
    "network.dueling": True,
    "network.noisy": True,
    "replay.prioritised": True,
    "replay.recent_share": 0.0,  # priorities say what is drawn
    "exploration.start": 0.0,  # the noise explores
    "exploration.end": 0.0,
}

METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        Method("dqn", "deep Q-learning with replay and a target network", {"value.double": False}),
        Method("ddqn", "Double-DQN: the online network picks the next action", {}),
        Method(
            "rainbow",
            "distributions of returns, prioritised replay, noisy and dueling layers, 3 steps",
            _RAINBOW,
        ),
        Method(
            "rad",
            "Double-DQN on randomly moved pictures (vectors: randomly scaled)",
            {"augment.images": "translate", "augment.vectors": "amplitude"},
        ),
        Method(
            "drq-v2",
            "Double-DQN on pictures shifted by fractions of a pixel (vectors: noise), 3 steps",
            {"augment.images": "shift", "augment.vectors": "noise", "value.n_step": 3},
        ),
        Method(
            "curl",
            "Double-DQN whose encoder also tells two random views of an observation from others",
            {
                "augment.images": "crop",
                "augment.vectors": "noise",
                "augment.value_loss": False,
                "contrast.weight": 1.0,
            },
        ),
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
        Method(
            "gcr-rainbow",
            "Rainbow with certified symmetries, its targets moved onto return bounds",
            _RAINBOW | _GROUNDED | _BOUNDS,
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
METHOD_ALIASES = {"gcr": "gcr-soft"}
"""Other names of methods: gcr is the route that learned as fast and kept what it had learned on
every seed (docs/gcr.md, CartPole and RotMirrorGrid)."""
