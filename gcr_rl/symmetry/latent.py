"""The paper's letter: a bank of K pairs (W_k, Π_k) acting on features and actions.

W_k is a plain matrix that Newton–Schulz keeps orthogonal: after every update one element, in
turn, takes one step X <- X(3I - XᵀX)/2. That is two d x d products an update for the whole
bank; a Cayley transform would need K linear solves, a full product of reflections d
sequential steps. Π_k is Sinkhorn's of free logits. Element 0 is meant to be the identity.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int, PRNGKeyArray

from gcr_rl.errors import InputError
from gcr_rl.symmetry import penalties
from gcr_rl.symmetry.closure import Alignment, ClosureStats, close_group
from gcr_rl.symmetry.operators import newton_schulz, orthogonality_defect, polar, sinkhorn


class LatentBank(NamedTuple):
    """Parameters: W_k [K, d, d] and the logits of Π_k [K, A, A]."""

    transforms: Float[Array, "k d d"]
    logits: Float[Array, "k a a"]


class LinearHead(NamedTuple):
    """h(z) = weight z + bias. Q(T_k s) is then (weight W_k) z + bias: K small products."""

    weight: Float[Array, "a d"]
    bias: Float[Array, " a"]

    def __call__(self, features: Float[Array, " d"]) -> Float[Array, " a"]:
        """h(features)."""
        return self.weight @ features + self.bias


@dataclass(frozen=True)
class LatentSettings:
    """Coefficients and schedules of the bank."""

    equivariance: float = 1.0
    """λ_eq, on L_eq^local."""
    group: float = 0.1
    """γ_grp, on R_id + R_clo + R_inv + R_ord."""
    permutation: float = 0.01
    """γ_perm, on the entropy of Π."""
    diversity: float = 0.01
    """γ_div, on the repulsion."""
    pairs: int = 1
    """Pairs of R_clo, elements of R_inv, R_ord and R_div each time, in turn; K² means all."""
    penalty_period: int = 4
    """Updates between two evaluations of these four terms, which then count as often."""
    sigma: float = 1.0
    """σ of α: distance of W_k z to its nearest neighbour in the batch."""
    tau: float = 1.0
    """τ_loc of α: equivariance residual."""
    neighbours: int | None = 16
    """Batch members among which that neighbour is sought; None means all."""
    sinkhorn_iterations: int = 5
    """Rounds of Sinkhorn's normalisation."""
    contraction_period: int = 200
    """r: updates between two projection-closure-alignment cycles."""
    contraction_tolerance: float = 0.5
    """Pairs nearer than this share of sqrt(2 d) are closed."""


class LatentLosses(NamedTuple):
    """Every term, unweighted, and what the log wants to know of α."""

    total: Float[Array, ""]
    equivariance: Float[Array, ""]
    identity: Float[Array, ""]
    closure: Float[Array, ""]
    inverse: Float[Array, ""]
    order: Float[Array, ""]
    permutation: Float[Array, ""]
    diversity: Float[Array, ""]
    alpha: Float[Array, ""]


def init(key: PRNGKeyArray, elements: int, features: int, actions: int) -> LatentBank:
    """W_0 = I, the others uniform on O(d); Π_0 near I, the others near the centre."""
    for field, value in (("elements", elements), ("features", features), ("actions", actions)):
        if value < 1:
            raise InputError(field, value, "at least 1")
    transform_key, logit_key = jax.random.split(key)
    gaussian = jax.random.normal(transform_key, (elements, features, features))
    transforms = jax.vmap(polar)(gaussian).at[0].set(jnp.eye(features))
    logits = 0.1 * jax.random.normal(logit_key, (elements, actions, actions))
    return LatentBank(transforms, logits.at[0].set(5.0 * jnp.eye(actions)))


def relabellings(bank: LatentBank, settings: LatentSettings) -> Float[Array, "k a a"]:
    """Π_k = Sinkhorn(logits_k)."""
    return jax.vmap(lambda logits: sinkhorn(logits, settings.sinkhorn_iterations))(bank.logits)


def transformed_values(
    bank: LatentBank, features: Float[Array, "batch d"], head: Callable[[Any], Any]
) -> Float[Array, "k batch a"]:
    """Q(T_k s_i, .) = h(W_k z_i)."""
    if isinstance(head, LinearHead):
        rows = jnp.einsum("ad,kde->kae", head.weight, bank.transforms)
        return jnp.einsum("bd,kad->kba", features, rows) + head.bias
    moved = jnp.einsum("kij,bj->kbi", bank.transforms, features)
    return jax.vmap(jax.vmap(head))(moved)


def applicability(
    bank: LatentBank,
    features: Float[Array, "batch d"],
    residual: Float[Array, "k batch"],
    settings: LatentSettings,
) -> Float[Array, "k batch"]:
    """α_ik = exp(-||W_k z_i - NN(W_k z_i)||² / σ²) exp(-residual_ik / τ), without gradient.

    NN is the nearest of the first ``neighbours`` batch members (batches are drawn at random).
    For orthogonal W the distance is ||z_i||² + ||z_j||² - 2 (W_kᵀ z_j)·z_i.
    """
    near = features[: settings.neighbours]
    pulled = jnp.einsum("nd,kde->kne", near, bank.transforms)
    overlap = (pulled.reshape(-1, near.shape[1]) @ features.T).reshape(*pulled.shape[:2], -1)
    size = jnp.sum(features**2, axis=1)
    distance = size + jnp.min(size[: len(near), None] - 2.0 * overlap, axis=1)
    distance = jnp.maximum(distance, 0.0) / settings.sigma**2
    return lax.stop_gradient(jnp.exp(-distance - residual / settings.tau))


def losses(
    bank: LatentBank,
    features: Float[Array, "batch d"],
    values: Float[Array, "batch a"],
    head: Callable[[Any], Any],
    step: Int[Array, ""] | int,
    settings: LatentSettings,
) -> LatentLosses:
    """L_sym = λ_eq L_eq^local + γ_grp (R_id + R_clo + R_inv + R_ord) + γ_perm R_perm + γ_div R_div.

    ``values`` is Q(s_i, .) = h(z_i); gradients reach the bank, the head and the features.
    The orthogonality part of R_id is left out: :func:`retract` keeps it near zero. Keep
    ``step`` out of any vmap: it decides which terms are computed.
    """
    if values.shape[-1] != bank.logits.shape[-1]:
        raise InputError("values", values.shape, f"[batch, {bank.logits.shape[-1]}] as the bank")
    permutations = relabellings(bank, settings)
    moved = transformed_values(bank, features, head)
    pulled = jnp.einsum("kba,kib->kia", permutations, moved)
    residual = jnp.sum((values - pulled) ** 2, axis=-1)
    alpha = applicability(bank, features, residual, settings)
    weighted = jnp.sum(alpha * residual, axis=1) / (jnp.sum(alpha, axis=1) + 1e-8)
    equivariance = jnp.mean(weighted)
    identity, closing, inverse, order, diversity = _group_terms(bank, permutations, step, settings)
    entropy = penalties.permutation_penalty(permutations)
    total = (
        settings.equivariance * equivariance
        + settings.group * (identity + closing + inverse + order)
        + settings.permutation * entropy
        + settings.diversity * diversity
    )
    return LatentLosses(
        total, equivariance, identity, closing, inverse, order, entropy, diversity, jnp.mean(alpha)
    )


def _group_terms(
    bank: LatentBank,
    permutations: Float[Array, "k a a"],
    step: Int[Array, ""] | int,
    settings: LatentSettings,
) -> tuple[Array, ...]:
    """R_id, R_clo, R_inv, R_ord, R_div, the last four every ``penalty_period`` updates, scaled.

    With fewer than K² pairs each is a mean over the pairs or elements whose turn it is, so
    that over a full turn the mean of what is returned is the exact penalty.
    """
    count, transforms = len(bank.transforms), bank.transforms
    anchor = penalties.anchor_penalty(transforms, permutations)
    turn = (step // settings.penalty_period) * settings.pairs + jnp.arange(settings.pairs)
    pairs = jnp.stack([turn % count, (turn // count) % count], axis=1)
    some = None if settings.pairs >= count**2 else turn[:count] % count

    def terms() -> tuple[Array, ...]:
        chosen = [
            p if some is None else penalties.pick(p, some) for p in (transforms, permutations)
        ]
        found = (
            penalties.closure_penalty(transforms, permutations, None if some is None else pairs),
            penalties.inverse_penalty(transforms, permutations, some),
            penalties.orthogonal_order_penalty(*chosen),
            penalties.diversity_penalty(transforms, permutations, elements=some),
        )
        return tuple(settings.penalty_period * term for term in found)

    if settings.penalty_period == 1:
        return (anchor, *terms())
    nothing = (jnp.zeros((), transforms.dtype),) * 4
    return (anchor, *lax.cond(step % settings.penalty_period == 0, terms, lambda: nothing))


def retract(bank: LatentBank, step: Int[Array, ""] | int) -> tuple[LatentBank, Float[Array, ""]]:
    """One Newton–Schulz step for element ``step mod K``, and its ||WᵀW - I|| before it."""
    turn = step % len(bank.transforms)
    element = bank.transforms[turn]
    moved = bank.transforms.at[turn].set(newton_schulz(element))
    return bank._replace(transforms=moved), orthogonality_defect(element)


def contract(
    bank: LatentBank,
    features: Float[Array, "batch d"],
    values: Float[Array, "batch a"],
    head: Callable[[Any], Any],
    settings: LatentSettings,
) -> tuple[LatentBank, ClosureStats]:
    """One projection-closure-alignment cycle; the logits then stand for the new permutations."""
    permutations = relabellings(bank, settings)
    moved = transformed_values(bank, features, head)
    data = Alignment(features, None, values, moved)
    closed = close_group(bank.transforms, permutations, data, settings.contraction_tolerance)
    return LatentBank(closed.transforms, 5.0 * closed.permutations), closed.stats


def maybe_contract(
    bank: LatentBank,
    features: Float[Array, "batch d"],
    values: Float[Array, "batch a"],
    head: Callable[[Any], Any],
    step: Int[Array, ""] | int,
    settings: LatentSettings,
) -> LatentBank:
    """:func:`contract` every ``contraction_period`` updates (keep ``step`` out of any vmap)."""
    due = (step + 1) % settings.contraction_period == 0
    return lax.cond(due, lambda: contract(bank, features, values, head, settings)[0], lambda: bank)
