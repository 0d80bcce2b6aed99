"""What a value update reads from a trajectory segment."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PyTree

from gcr_rl.types import Segment


def n_step_return(
    segment: Segment, discount: float, n: int
) -> tuple[Float[Array, ""], Float[Array, ""], PyTree]:
    """The n-step target's parts for one segment, from its first step.

    Returns (R, g, s') with R = sum_{i<m} discount^i r_i, g = discount^m (0 if the last of the
    m steps terminated) and s' the observation after them, where m is the smaller of n and
    the steps left in the episode: the target is R + g V(s').
    """
    if n == 1:  # every step belongs to its own episode: no mask, nothing to look up
        first = jax.tree.map(lambda leaf: leaf[0], segment.steps)
        return first.reward, discount * (1.0 - first.terminated), first.next_observation
    return masked_return(jax.tree.map(lambda leaf: leaf[:n], segment), discount)


def return_over(
    segment: Segment, discount: float, n: Int[Array, ""]
) -> tuple[Float[Array, ""], Float[Array, ""], PyTree]:
    """:func:`n_step_return` for a traced n, at most the segment's length."""
    near = jnp.arange(segment.mask.shape[0]) < n
    return masked_return(segment._replace(mask=segment.mask & near), discount)


def masked_return(
    segment: Segment, discount: float
) -> tuple[Float[Array, ""], Float[Array, ""], PyTree]:
    """(R, g, s') over the unmasked steps, which are the first ones."""
    mask, steps = segment.mask, segment.steps
    n = mask.shape[0]
    powers = discount ** jnp.arange(n)
    total = jnp.sum(jnp.where(mask, powers * steps.reward, 0.0))
    last = jnp.sum(mask) - 1
    bootstrap = discount * powers[last] * (1.0 - steps.terminated[last])
    return total, bootstrap, jax.tree.map(lambda leaf: leaf[last], steps.next_observation)
