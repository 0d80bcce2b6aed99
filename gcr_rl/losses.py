"""Losses of the value agent. The only file that joins the rooms."""

from typing import Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int


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
