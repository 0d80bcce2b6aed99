"""What a network estimates of an action: its value, or the distribution of its return (C51).

Both forms have the same three functions, unbatched: values from outputs, a target from the
outputs at s', and a loss. Everything else (acting, V, bounds, symmetry) reads the values alone.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from gcr_rl.config import ValueConfig
from gcr_rl.distribution import (
    distributional_loss,
    divergence,
    expectation,
    make_support,
    project,
)
from gcr_rl.losses import pick, regression_loss, td_target


class Law(NamedTuple):
    """The return of a target as a random variable: reward + discount Z, Z by probabilities."""

    probabilities: Float[Array, " atoms"]
    reward: Float[Array, ""]
    discount: Float[Array, ""]


class Target(NamedTuple):
    """What Q(s, a) is drawn to: its mean, and its law where distributions are learned."""

    goal: Float[Array, ""]
    law: Law | tuple[()]


class Judged(NamedTuple):
    """The loss of one transition, and the size of its error, which is its priority."""

    loss: Float[Array, ""]
    error: Float[Array, ""]


@dataclass(frozen=True)
class Values:
    """One value per action."""

    config: ValueConfig

    def values(self, outputs: Float[Array, "*batch actions"]) -> Float[Array, "*batch actions"]:
        """Q(o, .): the outputs themselves."""
        return outputs

    def target(
        self,
        reward: Float[Array, ""],
        discount: Float[Array, ""],
        outputs: Float[Array, " actions"],
        selector: Float[Array, " actions"],
    ) -> Target:
        """y = R + g Q̄(s', argmax_a selector(a)), eq. (td-target)."""
        return Target(td_target(reward, discount, outputs, selector), ())

    def judge(
        self,
        outputs: Float[Array, " actions"],
        action: Int[Array, ""],
        target: Target,
        goal: Float[Array, ""],
    ) -> Judged:
        """ℓ(goal - Q(s, a)) and |goal - Q(s, a)|; ``goal`` is the target's, or has been moved."""
        error = goal - pick(outputs, action)
        loss = regression_loss(error, self.config.loss, self.config.huber_delta)
        return Judged(loss, jnp.abs(error))


@dataclass(frozen=True)
class Distributions:
    """Logits of a distribution on a fixed support for each action (arXiv:1707.06887)."""

    config: ValueConfig

    @property
    def support(self) -> Float[Array, " atoms"]:
        """The returns that a distribution lives on."""
        value = self.config
        return make_support(value.support_low, value.support_high, value.atoms)

    def values(
        self, outputs: Float[Array, "*batch actions atoms"]
    ) -> Float[Array, "*batch actions"]:
        """Q(o, .) = sum_i z_i softmax(logits)_i."""
        return expectation(outputs, self.support)

    def target(
        self,
        reward: Float[Array, ""],
        discount: Float[Array, ""],
        outputs: Float[Array, "actions atoms"],
        selector: Float[Array, " actions"],
    ) -> Target:
        """R + g Z̄(s', argmax_a selector(a)), not yet put back onto the support."""
        best = jnp.arange(selector.shape[0]) == jnp.argmax(selector)
        chosen = jnp.sum(jnp.where(best[:, None], outputs, 0.0), axis=0)
        law = Law(jax.nn.softmax(chosen), reward, discount)
        goal = reward + discount * (law.probabilities @ self.support)
        return jax.lax.stop_gradient(Target(goal, law))

    def judge(
        self,
        outputs: Float[Array, "actions atoms"],
        action: Int[Array, ""],
        target: Target,
        goal: Float[Array, ""],
    ) -> Judged:
        """Cross-entropy and divergence of Z(s, a) from the target's law on the support.

        Where the order has moved the goal, the whole law is moved by as much before it is
        projected, so that its mean is the new goal (up to the ends of the support).
        """
        law = target.law
        assert isinstance(law, Law)
        shift = jax.lax.stop_gradient(goal - target.goal)
        projected = project(self.support, law.probabilities, law.reward + shift, law.discount)
        loss = distributional_loss(outputs, action, projected)
        return Judged(loss, divergence(jax.lax.stop_gradient(loss), projected))


def make_estimate(config: ValueConfig) -> Any:
    """Distributions where the configuration gives them atoms, else values."""
    return Distributions(config) if config.atoms else Values(config)
