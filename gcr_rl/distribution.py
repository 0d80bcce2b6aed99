"""Categorical distributions: of returns (C51, Bellemare et al. 2017, arXiv:1707.06887), and of
the matching key in a batch (InfoNCE). Cross-entropies are their losses.

A return distribution lives on a fixed, evenly spaced support z_1 < ... < z_n; networks give
its logits. Unbatched, callers vmap.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from gcr_rl.errors import InputError


def make_support(low: float, high: float, atoms: int) -> Float[Array, " atoms"]:
    """``atoms`` evenly spaced returns from ``low`` to ``high``."""
    if not low < high:
        raise InputError("low", low, f"less than high ({high})")
    if atoms < 2:
        raise InputError("atoms", atoms, "at least 2")
    return jnp.linspace(low, high, atoms)


def expectation(
    logits: Float[Array, "*actions atoms"], support: Float[Array, " atoms"]
) -> Float[Array, "*actions"]:
    """sum_i z_i softmax(logits)_i along the last axis: Q from the logits of its distribution."""
    return jax.nn.softmax(logits, axis=-1) @ support


def project(
    support: Float[Array, " atoms"],
    probabilities: Float[Array, " atoms"],
    reward: Float[Array, ""],
    discount: Float[Array, ""],
) -> Float[Array, " atoms"]:
    """The distribution of r + g Z put back onto the support, Z having ``probabilities``.

    m_i = sum_j p_j [1 - |clip(r + g z_j, z_1, z_n) - z_i| / dz]_+ : each moved atom is shared
    by its two neighbours, in proportion to their nearness. (No gather or scatter: products of
    n x n triangles are faster than either for the 51 atoms in use.)
    """
    spacing = (support[-1] - support[0]) / (support.shape[0] - 1)
    moved = jnp.clip(reward + discount * support, support[0], support[-1])
    share = jnp.clip(1.0 - jnp.abs(moved[None, :] - support[:, None]) / spacing, 0.0, 1.0)
    return share @ probabilities


def distributional_target(
    support: Float[Array, " atoms"],
    reward_t: Float[Array, ""],
    discount_t: Float[Array, ""],
    logits_t_target: Float[Array, "actions atoms"],
    q_t_selector: Float[Array, " actions"],
) -> Float[Array, " atoms"]:
    """The projected distribution of r + g Z(s', argmax_a q_selector(a)), no gradient.

    With ``q_t_selector`` of the online network this is the double form, as in Rainbow.
    """
    best = jnp.arange(q_t_selector.shape[0]) == jnp.argmax(q_t_selector)
    chosen = jnp.sum(jnp.where(best[:, None], logits_t_target, 0.0), axis=0)
    projected = project(support, jax.nn.softmax(chosen), reward_t, discount_t)
    return jax.lax.stop_gradient(projected)


def cross_entropy(
    logits: Float[Array, " atoms"], target: Float[Array, " atoms"]
) -> Float[Array, ""]:
    """-sum_i m_i log softmax(logits)_i."""
    return -jnp.sum(target * jax.nn.log_softmax(logits))


def distributional_loss(
    logits_tm1: Float[Array, "actions atoms"],
    a_tm1: Int[Array, ""],
    target: Float[Array, " atoms"],
) -> Float[Array, ""]:
    """The cross-entropy of Z(s, a) to its target."""
    taken = jnp.arange(logits_tm1.shape[0]) == a_tm1
    return cross_entropy(jnp.sum(jnp.where(taken[:, None], logits_tm1, 0.0), axis=0), target)


def divergence(loss: Float[Array, ""], target: Float[Array, " atoms"]) -> Float[Array, ""]:
    """KL(m || p) = cross-entropy - entropy of the target, at least 0: Rainbow's priority."""
    positive = target > 0.0
    entropy = -jnp.sum(jnp.where(positive, target * jnp.log(jnp.where(positive, target, 1.0)), 0.0))
    return jnp.maximum(loss - entropy, 0.0)


def info_nce(logits: Float[Array, "batch batch"]) -> Float[Array, ""]:
    """-mean_i log softmax(logits_i)_i: query i belongs to key i, all other keys are negatives.

    The loss of CURL (Laskin et al. 2020, arXiv:2004.04136).
    """
    return -jnp.mean(jnp.diagonal(jax.nn.log_softmax(logits, axis=-1)))
