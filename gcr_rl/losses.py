"""Losses of the value agent. The only file that joins the rooms."""

from typing import Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from gcr_rl.types import Comparisons


def pick(q: Float[Array, " actions"], action: Int[Array, ""]) -> Float[Array, ""]:
    """q[action], as a masked sum: under vmap an index would be a gather, and its gradient a
    scatter, both slower than this for the few actions that there are."""
    return jnp.sum(jnp.where(jnp.arange(q.shape[0]) == action, q, 0.0))


def td_target(
    reward_t: Float[Array, ""],
    discount_t: Float[Array, ""],
    q_t_target: Float[Array, " actions"],
    q_t_selector: Float[Array, " actions"],
) -> Float[Array, ""]:
    """y = r + discount * Qbar(s', argmax_a' Q_selector(s', a')), eq. (td-target).

    DQN selects by the target network itself, Double-DQN by the online one.
    """
    chosen = pick(q_t_target, jnp.argmax(q_t_selector))
    return jax.lax.stop_gradient(reward_t + discount_t * chosen)


def td_error(
    q_tm1: Float[Array, " actions"], a_tm1: Int[Array, ""], target_t: Float[Array, ""]
) -> Float[Array, ""]:
    """The nudge: y - Q(s, a)."""
    return target_t - pick(q_tm1, a_tm1)


def regression_loss(
    error: Float[Array, "..."], kind: Literal["huber", "squared"], delta: float
) -> Float[Array, "..."]:
    """Half the square of ``error``, or Huber's: linear with slope ``delta`` beyond ``delta``."""
    square = 0.5 * error**2
    if kind == "squared":
        return square
    size = jnp.abs(error)
    return jnp.where(size <= delta, square, delta * (size - 0.5 * delta))


def return_bound(
    total: Float[Array, "*batch"],
    bootstrap: Float[Array, "*batch"],
    value: Float[Array, "*batch"],
    steps: Int[Array, "*batch"],
    variance: Float[Array, ""],
    surprise: Float[Array, ""],
    z: float,
) -> Float[Array, "*batch"]:
    """R + γ^n V̄(s_{t+n}) - z sqrt(n variance) - z²/3 surprise, a lower bound on Q(s_t, a_t).

    In a deterministic task variance and surprise of a transition are 0 and the bound holds
    whatever the policy was, as far as V̄ does. Otherwise noise adds up over the n steps: a sum of
    martingale differences of at most ``surprise`` each exceeds what is taken off with
    probability exp(-z²/2) at most (Freedman's inequality, doi:10.1214/aop/1176996452). Without
    the second term rare luck, such as a goal that is hit once in a hundred times, would pass.
    """
    return total + bootstrap * value - z * jnp.sqrt(variance * steps) - z**2 / 3.0 * surprise


def soft_bound_loss(
    value: Float[Array, " batch"], bound: Float[Array, " batch"], penalty: float | Float[Array, ""]
) -> Float[Array, ""]:
    """min over V̂ of mean (V̂ - V)² + penalty [bound - V̂]₊²: the isotonic surrogate (eq. L-iso)
    for bounds on single slots, where its minimiser is known:

        penalty / (1 + penalty) · mean [bound - V]₊².
    """
    return penalty / (1.0 + penalty) * jnp.mean(jnp.maximum(bound - value, 0.0) ** 2)


def beyond_chance(gap: Float[Array, " batch"], share: float) -> Bool[Array, " batch"]:
    """Which bounds exceed their targets by more than chance: ``gap`` is bound - target.

    Noise of either is as likely to set them apart one way as the other, so gaps below -t tell
    how many above t are chance (they are more than that: a policy that explores adds to them).
    Kept are gaps from the smallest t on with 1 + #{gap <= -t} <= share · #{gap >= t}, as
    knockoffs control false discoveries; none where there is no such t.
    """
    size = jnp.abs(gap)
    up = jnp.sum(gap[None, :] >= size[:, None], axis=1)
    down = jnp.sum(gap[None, :] <= -size[:, None], axis=1)
    least = jnp.min(jnp.where(1 + down <= share * up, size, jnp.inf))
    return (gap > 0) & (gap >= least)


def bounds_of(
    bound: Float[Array, " batch"], mask: Bool[Array, " batch"] | None = None
) -> Comparisons:
    """value[i] >= bound[i] as comparisons: discount 0, no lower end."""
    slot = jnp.arange(bound.shape[0], dtype=jnp.int32)
    zero = jnp.zeros_like(bound)
    return Comparisons(
        slot, slot, zero, bound, zero, jnp.ones(bound.shape, bool) if mask is None else mask
    )
