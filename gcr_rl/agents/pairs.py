"""Bounds without bootstraps of their own: every start of a batch comes with a later step of its
episode, whose temporal-difference target then bounds the start.

From a start at t and a horizon of n steps, the partner is t' = t + n - m with m-step targets (the
episode's last step where it ends before), and

    R_{t:t+n} + γ^n V̄(s_{t+n}) = R_{t:t'} + γ^(t'-t) y_{t'},

so the bound of :func:`gcr_rl.losses.return_bound` is made of a target that the batch has anyway.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from gcr_rl.replay import return_over
from gcr_rl.types import Segment


class Way(NamedTuple):
    """From each start to its partner: what was earned, γ^steps, and all steps of the bound."""

    total: Float[Array, " starts"]
    discount: Float[Array, " starts"]
    steps: Int[Array, " starts"]
    """Until the partner's target bootstraps."""


def with_partners(
    segments: Segment, horizon: Int[Array, ""], n_step: int, discount: float
) -> tuple[Segment, Way]:
    """The starts and then their partners, as segments of ``n_step`` steps, and the ways between."""

    def partner(segment: Segment) -> tuple[Segment, Way]:
        length = jnp.sum(segment.mask)
        way = jnp.clip(horizon - n_step, 0, length - 1)
        total, _, _ = return_over(segment, discount, way)
        later = jax.tree.map(lambda leaf: jax.lax.dynamic_slice_in_dim(leaf, way, n_step), segment)
        return later, Way(total, discount**way, jnp.minimum(length, way + n_step))

    later, way = jax.vmap(partner)(segments)
    starts = jax.tree.map(lambda leaf: leaf[:, :n_step], segments)
    return jax.tree.map(lambda *both: jnp.concatenate(both), starts, later), way
