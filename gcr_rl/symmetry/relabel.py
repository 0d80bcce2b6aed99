"""Relabellings from an inverse-dynamics head: counts, Sinkhorn, assignment, merged actions.

``counts[k, a, b]``: held-out transitions with action a that changed something and whose image
(T_k o, T_k o') the head reads as action b. ``relabel[k, a] = b``: action a at o is b at T_k o.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from gcr_rl.symmetry.operators import nearest_permutation, sinkhorn


class ActionClasses(NamedTuple):
    """Actions that the environment does not tell apart share a class.

    ``inert`` actions change nothing that can be observed; they are one class.
    """

    label: Int[np.ndarray, " actions"]
    inert: Bool[np.ndarray, " actions"]


def wilson(
    successes: Float[np.ndarray, "*n"], trials: Float[np.ndarray, "*n"], z: float
) -> tuple[Float[np.ndarray, "*n"], Float[np.ndarray, "*n"]]:
    """The score interval of a proportion, (lower, upper); (0, 1) without trials."""
    trials = np.asarray(trials, float)
    share = np.divide(successes, trials, out=np.full_like(trials, 0.5), where=trials > 0)
    centre = share * trials + z * z / 2
    spread = z * np.sqrt(share * (1 - share) * trials + z * z / 4)
    return (centre - spread) / (trials + z * z), (centre + spread) / (trials + z * z)


def read_classes(
    chances: Float[np.ndarray, "n actions"],
    label: Int[np.ndarray, " actions"],
    confidence: float,
) -> Int[np.ndarray, " n"]:
    """The class that has at least ``confidence`` of the probability, by its label; else -1.

    Where several actions would have done the same (a blocked move that slides), the head's
    choice among them means nothing, and counting it would break true symmetries.
    """
    labels = np.unique(label)
    shares = np.stack([chances[:, label == one].sum(axis=1) for one in labels], axis=1)
    best = np.nan_to_num(shares).argmax(axis=1)
    sure = np.nan_to_num(shares.max(axis=1)) >= confidence
    return np.where(sure, labels[best], -1).astype(np.int32)


def count_predictions(
    action: Int[np.ndarray, " n"], predicted: Int[np.ndarray, " n"], num_actions: int
) -> Int[np.ndarray, "a a"]:
    """counts[a, b]; a prediction of -1 (no opinion) counts nowhere."""
    counts = np.zeros((num_actions, num_actions), np.int64)
    np.add.at(counts, (action[predicted >= 0], predicted[predicted >= 0]), 1)
    return counts


def action_classes(
    identity_counts: Int[np.ndarray, "a a"],
    changed: Int[np.ndarray, " a"],
    taken: Int[np.ndarray, " a"],
    confusion: float = 0.25,
    inert_share: float = 0.01,
) -> ActionClasses:
    """Merge a and b where the head takes a for b ``confusion`` of the time and b for a as well,
    or a for b far more often than for itself.

    An action that was taken often and changed something in at most ``inert_share`` of its
    transitions is inert. Classes are the connected components, named by their least action.
    """
    actions = len(identity_counts)
    inert = (taken >= 20) & (changed <= inert_share * taken)
    rate = identity_counts / np.maximum(identity_counts.sum(axis=1, keepdims=True), 1)
    often = rate >= confusion
    # twins look alike both ways, or one of them always wins the vote over the other
    alike = often & (often.T | (2 * np.diag(rate)[:, None] <= rate))
    together = alike | alike.T | (inert[:, None] & inert[None, :]) | np.eye(actions, dtype=bool)
    for _ in range(actions):
        together = together @ together
    return ActionClasses(together.argmax(axis=1).astype(np.int32), inert)


def relabelling(counts: Int[np.ndarray, "k a a"], classes: ActionClasses) -> Int[np.ndarray, "k a"]:
    """argmax_Π ⟨Sinkhorn(log(C_k + 1/2)), Π⟩ over permutations that keep classes together.

    Classes are matched as wholes, twins inside a class in ascending order. A class can only
    be matched with one of its own size; where that leaves no matching the row is the identity.
    """
    labels = np.unique(classes.label)
    members = [np.flatnonzero(classes.label == label) for label in labels]
    size = np.array([len(part) for part in members])
    inert = np.array([bool(classes.inert[part].all()) for part in members])
    merged = np.stack(
        [[counts[:, p][:, :, q].sum(axis=(1, 2)) for q in members] for p in members]
    ).transpose(2, 0, 1)
    allowed = (size[:, None] == size[None, :]) & (inert[:, None] == inert[None, :])
    matched = [np.asarray(_match(one, allowed)) for one in merged.astype(np.float32)]
    actions = counts.shape[1]
    table = np.tile(np.arange(actions, dtype=np.int32), (len(counts), 1))
    for k, row in enumerate(matched):
        if allowed[np.arange(len(row)), row].all():
            for source, target in enumerate(row):
                table[k, members[source]] = members[target]
    return table


def agreement(
    counts: Int[np.ndarray, "k a a"], relabel: Int[np.ndarray, "k a"], classes: ActionClasses
) -> tuple[Int[np.ndarray, "k a"], Int[np.ndarray, "k a"]]:
    """(hits, trials) per action: predictions in the class of relabel[k, a], and all of them."""
    label = classes.label
    same = label[relabel][:, :, None] == label[None, None, :]
    return (counts * same).sum(axis=2), counts.sum(axis=2)


@jax.jit
def _match(counts: Float[Array, "c c"], allowed: Bool[Array, "c c"]) -> Int[Array, " c"]:
    """The assignment on S = Sinkhorn(log(C + 1/2)); pairs that are not allowed come last."""
    scores = jnp.where(allowed, sinkhorn(jnp.log(counts + 0.5)), -float(len(counts)))
    return nearest_permutation(scores.T)
