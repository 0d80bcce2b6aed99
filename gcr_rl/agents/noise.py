"""How noisy the evidence is, measured now and then from a sample of the replay.

Three numbers. *Transition noise* is the standard deviation of r + discount V(s') given (s, a),
pooled over pairs that the sample holds more than once: zero in a deterministic task, whatever
the policy did. The *largest surprise* is how far one of them was above the others of its pair:
where luck is rare and large, a deviation averaged over all pairs says little about it. The
*unexplained share* of the variance of the temporal-difference targets falls from 1 as learning
proceeds, and sets how strongly the order is enforced.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PyTree

from gcr_rl.symmetry.transforms import hash_observation


class Noise(NamedTuple):
    """Running estimates; scalars."""

    variance: Float[Array, ""]
    """Of one transition."""
    surprise: Float[Array, ""]
    """The largest excess of a target over the others of its pair; older ones count for less."""
    unexplained: Float[Array, ""]
    bootstrap_variance: Float[Array, ""]
    """Usual variance of Q(s', .) over the actions, by which the paper's confidences are scaled."""
    weight: Float[Array, ""]
    """Of both running means: 0 before the first measurement."""


def init_noise() -> Noise:
    """Nothing measured: no noise is assumed, and nothing is taken as explained."""
    # an array each: a state whose parts share one could not be donated
    return Noise(*(jnp.full((), value) for value in (0.0, 0.0, 1.0, 0.0, 0.0)))


def measure(
    noise: Noise,
    same: Bool[Array, "n n"],
    target: Float[Array, " n"],
    value: Float[Array, " n"],
    bootstrap_variance: Float[Array, ""],
    decay: float = 0.7,
    fading: float = 0.98,
) -> Noise:
    """One sample of one-step targets y and values Q(s, a) into the running estimates.

    ``same[i, j]`` says that i and j are the same state and action. Means forget by ``decay``
    from one sample to the next, the largest surprise by ``fading``.
    """
    count = jnp.sum(same, axis=1)
    mean = same @ target / count
    repeated = count > 1
    # Of m seen of a pair, one differs from the mean of the others by m/(m - 1) of what it differs
    # from the mean of all, which would underestimate the variance as much.
    apart = count / jnp.maximum(count - 1, 1)
    squares = jnp.where(repeated, (target - mean) ** 2 * apart, 0.0)
    within = jnp.sum(squares) / jnp.maximum(jnp.sum(repeated), 1)
    # The excess over the least of them is nothing where all agree, without rounding.
    least = jnp.min(jnp.where(same, target[None, :], jnp.inf), axis=1)
    above = jnp.minimum((target - mean) * apart, target - least)
    surprise = jnp.max(jnp.where(repeated, above, 0.0))
    spread = jnp.maximum(jnp.var(target), 1e-12)
    unexplained = jnp.clip(jnp.mean((target - value) ** 2) / spread, 0.0, 1.0)
    keep = jnp.where(noise.weight > 0, decay, 0.0)

    def blend(old: Array, new: Array) -> Array:
        return keep * old + (1 - keep) * new

    return Noise(
        blend(noise.variance, within),
        jnp.maximum(fading * noise.surprise, surprise),
        blend(noise.unexplained, unexplained),
        blend(noise.bootstrap_variance, bootstrap_variance),
        jnp.ones(()),
    )


def same_pairs(observation: PyTree, action: Int[Array, " n"]) -> Bool[Array, "n n"]:
    """Which of n stored observations and actions are equal, by two 32-bit hashes."""

    def key(leaves: PyTree, stream: int) -> Array:
        words = [hash_observation(leaf, stream + i) for i, leaf in enumerate(leaves)]
        return jnp.sum(jnp.stack(words))

    leaves = jax.tree.leaves(observation)
    equal = action[:, None] == action[None, :]
    for stream in (3, 64):
        keys = jax.vmap(lambda *row, s=stream: key(row, s))(*leaves)
        equal &= keys[:, None] == keys[None, :]
    return equal


def strength(noise: Noise, floor: float) -> Float[Array, ""]:
    """floor + (1 - floor) (1 - unexplained share): what the annealed coefficients are scaled by."""
    return floor + (1.0 - floor) * (1.0 - noise.unexplained)
