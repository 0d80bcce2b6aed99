"""Relabellings from an inverse-dynamics head: counts, Sinkhorn, assignment, merged actions.

``counts[k, a, b]``: held-out transitions with action a that changed something and whose image
(T_k o, T_k o') the head reads as action b. ``relabel[k, a] = b``: action a at o is b at T_k o.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int

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


def count_predictions(
    action: Int[np.ndarray, " n"], predicted: Int[np.ndarray, "k n"], num_actions: int
) -> Int[np.ndarray, "k a a"]:
    """counts[k, a, b]; a prediction of -1 (no opinion) counts nowhere."""
    counts = np.zeros((len(predicted), num_actions, num_actions), np.int64)
    for k, row in enumerate(predicted):
        known = row >= 0
        np.add.at(counts[k], (action[known], row[known]), 1)
    return counts


def action_classes(
    identity_counts: Int[np.ndarray, "a a"],
    changed: Int[np.ndarray, " a"],
    taken: Int[np.ndarray, " a"],
    confusion: float = 0.25,
    inert_share: float = 0.01,
) -> ActionClasses:
    """Merge a and b where the head takes a for b, and b for a, at least ``confusion`` of the time.

    An action that was taken often and changed something in at most ``inert_share`` of its
    transitions is inert. Classes are the connected components, named by their least action.
    """
    actions = len(identity_counts)
    inert = (taken >= 20) & (changed <= inert_share * taken)
    rate = identity_counts / np.maximum(identity_counts.sum(axis=1, keepdims=True), 1)
    # a guess among m twins confuses each with 1/m: compare with the diagonal too
    own = np.diag(rate)
    alike = (rate >= np.minimum(confusion, 0.5 * own[:, None])) & (rate > 0.05)
    together = (alike & alike.T) | (inert[:, None] & inert[None, :]) | np.eye(actions, dtype=bool)
    for _ in range(actions):
        together = together @ together
    return ActionClasses(together.argmax(axis=1).astype(np.int32), inert)


def relabelling(
    counts: Int[np.ndarray, "k a a"], classes: ActionClasses, iterations: int = 20
) -> Int[np.ndarray, "k a"]:
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
    scores = _doubly_stochastic(merged, iterations)
    allowed = (size[:, None] == size[None, :]) & (inert[:, None] == inert[None, :])
    scores = np.where(allowed, scores, -10.0)
    matched = np.asarray(jax.jit(jax.vmap(nearest_permutation))(jnp.asarray(scores.swapaxes(1, 2))))
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


def _doubly_stochastic(
    counts: Int[np.ndarray, "k c c"], iterations: int
) -> Float[np.ndarray, "k c c"]:
    logits = jnp.log(jnp.asarray(counts, jnp.float32) + 0.5)
    return np.asarray(jax.jit(jax.vmap(lambda one: sinkhorn(one, iterations)))(logits))
