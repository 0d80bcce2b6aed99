"""The loss of the value agent: temporal differences, and what symmetry and order add."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, PyTree, UInt32

from gcr_rl.agents.latent import Latent, network_of
from gcr_rl.agents.noise import Noise, measure, same_pairs
from gcr_rl.agents.ordering import Aligned, Batch, Ordering
from gcr_rl.agents.symmetric import NOTHING, at_level, random_image
from gcr_rl.config import Config
from gcr_rl.losses import pick, regression_loss, return_bound, td_target
from gcr_rl.networks import QNetwork
from gcr_rl.replay import n_step_return, return_over
from gcr_rl.symmetry import Group
from gcr_rl.symmetry.quotient import QFunction
from gcr_rl.types import Metrics, Segment


class Known(NamedTuple):
    """What an update takes as given."""

    target: PyTree
    group: PyTree
    noise: Any


class Slots(NamedTuple):
    """The value slots of a batch: where they are, their values, targets and Q̄(s', .)."""

    observation: PyTree
    taken: Float[Array, " batch"]
    goal: Float[Array, " batch"]
    next_q: Float[Array, "batch actions"]


@dataclass(frozen=True)
class Objective:
    """A network under its group, and the loss on a batch of segments; pure functions."""

    config: Config
    build: Callable[[PRNGKeyArray], QNetwork]
    static: Any
    """The network without its arrays."""
    decode: Callable[[PyTree], PyTree]
    enforcer: Callable[[QNetwork, PyTree, int], QFunction]
    latent: Latent | None

    @property
    def ordered(self) -> bool:
        """Whether the order has a say."""
        return self.config.order.evidence != "none" and self.config.order.coefficient > 0.0

    @property
    def segment_length(self) -> int:
        """Steps per segment that the loss reads."""
        bounded = self.ordered and self.config.order.evidence == "returns"
        return max(self.config.value.n_step, *(self.config.order.horizons if bounded else ()), 1)

    def init(self, key: PRNGKeyArray) -> PyTree:
        """Fresh parameters."""
        params = eqx.filter(self.build(key), eqx.is_array)
        return params if self.latent is None else self.latent.init(params, key)

    def network(self, params: PyTree) -> QNetwork:
        """The network with these parameters."""
        return eqx.combine(network_of(params), self.static)

    def q(self, params: PyTree, group: PyTree, level: int, observation: PyTree) -> Array:
        """Q(o, .) of the network under its group."""
        return self.enforcer(self.network(params), group, level)(observation)

    def loss(
        self,
        params: PyTree,
        known: Known,
        segments: Segment,
        words: UInt32[Array, " batch"] | None,
        clock: Array,
        level: int,
    ) -> tuple[Float[Array, ""], Metrics]:
        """The total objective of a batch, and its parts for the log."""
        value = self.config.value
        first = jax.tree.map(lambda leaf: leaf[:, 0], segments.steps)
        observation = jax.vmap(self.decode)(first.observation)
        q = jax.vmap(lambda o: self.q(params, known.group, level, o))(observation)
        taken = jax.vmap(pick)(q, first.action)
        fixed = jax.lax.stop_gradient(params)
        goal, next_q = jax.vmap(lambda s: self.target(fixed, known, level, s))(segments)
        extra, metrics = [], {}
        if self.ordered:
            aligned = self._aligned(
                fixed, known, level, segments, clock, Slots(observation, taken, goal, next_q)
            )
            goal, metrics = aligned.goal, aligned.metrics
            extra.append(aligned.loss)
        error = goal - taken
        total = jnp.mean(regression_loss(error, value.loss, value.huber_delta))
        metrics["q_mean"] = jnp.mean(jnp.max(q, axis=-1))
        metrics["td_error_abs"] = jnp.mean(jnp.abs(error))
        if self.latent is not None:
            soft, more = self.latent.loss(self.network(params), params, observation, q, clock)
            extra, metrics = [*extra, soft], metrics | more
        elif self.config.symmetry.enforce == "loss" and level != NOTHING:
            images = self._images(params, at_level(known.group, level), words, observation)
            soft, more = self._soft_symmetry(images, q, first.action, goal)
            extra, metrics = [*extra, soft], metrics | more
        if extra:
            metrics["td_loss"] = total
            total = total + sum(extra)
        metrics["loss"] = total
        return total, metrics

    def target(
        self, params: PyTree, known: Known, level: int, segment: Segment
    ) -> tuple[Array, Array]:
        """The n-step temporal-difference target of one segment's first step, and Q̄(s', .)."""
        value = self.config.value
        reward, discount, following = n_step_return(segment, value.discount, value.n_step)
        following = self.decode(following)
        q_target = self.q(known.target, known.group, level, following)
        selector = self.q(params, known.group, level, following) if value.double else q_target
        return td_target(reward, discount, q_target, selector), q_target

    def _aligned(
        self,
        params: PyTree,
        known: Known,
        level: int,
        segments: Segment,
        clock: Array | int,
        slots: Slots,
    ) -> Aligned:
        ordering = Ordering(self.config.order)
        if self.config.order.evidence == "returns":
            bound = self.bounds(params, known, level, segments, clock)
            return ordering.by_bounds(slots.taken, slots.goal, bound, known.noise)
        features = jax.vmap(self.network(params).features)(slots.observation)
        batch = Batch(slots.taken, slots.goal, features, slots.next_q)
        return ordering.by_nudges(batch, known.noise)

    def bounds(
        self, params: PyTree, known: Known, level: int, segments: Segment, clock: Array | int
    ) -> Float[Array, " batch"]:
        """A lower bound on Q(s, a) from each segment, the horizons taking turns."""
        order, discount = self.config.order, self.config.value.discount
        noise = known.noise
        steps = jnp.asarray(order.horizons)[clock % len(order.horizons)]

        def one(segment: Segment) -> Array:
            total, bootstrap, following = return_over(segment, discount, steps)
            following = self.decode(following)
            q_target = self.q(known.target, known.group, level, following)
            # The online network picks, as in Double-DQN: any action's value bounds from below.
            chosen = pick(q_target, jnp.argmax(self.q(params, known.group, level, following)))
            length = jnp.minimum(jnp.sum(segment.mask), steps)
            return return_bound(total, bootstrap, chosen, length, noise.variance, order.noise_z)

        return jax.lax.stop_gradient(jax.vmap(one)(segments))

    def _images(
        self,
        params: PyTree,
        group: PyTree,
        words: UInt32[Array, " batch"] | None,
        observation: PyTree,
    ) -> Float[Array, "batch actions"] | None:
        """Π_gᵀ Q(T_g o, .) with one random g of the group for each observation."""
        if not isinstance(group, Group) or words is None:
            return None  # blocks are sorted, which is exact
        network = self.network(params)

        def one(o: PyTree, word: Array) -> Array:
            image, relabel = random_image(group, o, word)
            return network(image)[relabel]

        return jax.vmap(one)(observation, words)

    def _soft_symmetry(
        self, images: Float[Array, "batch actions"] | None, q: Array, action: Array, goal: Array
    ) -> tuple[Array, Metrics]:
        """λ_eq mean ||Q(o, .) - Π_gᵀ Q(T_g o, .)||² and shared temporal differences."""
        if images is None:
            return jnp.zeros(()), {}
        symmetry, value = self.config.symmetry, self.config.value
        equivariance = jnp.mean(jnp.sum((q - images) ** 2, axis=-1))
        error = goal - jax.vmap(pick)(images, action)
        shared = jnp.mean(regression_loss(error, value.loss, value.huber_delta))
        total = symmetry.coefficient * equivariance + symmetry.shared * shared
        return total, {"equivariance_loss": equivariance, "shared_td_loss": shared}

    def noise(self, params: PyTree, known: Known, segments: Segment, level: int) -> Noise:
        """The noise estimates after one more sample of transitions."""
        discount = self.config.value.discount
        first = jax.tree.map(lambda leaf: leaf[:, 0], segments.steps)

        def one_step(step: Any) -> tuple[Array, Array, Array]:
            following = self.q(known.target, known.group, level, self.decode(step.next_observation))
            value = self.q(params, known.group, level, self.decode(step.observation))
            future = discount * (1.0 - step.terminated) * jnp.max(following)
            return step.reward + future, pick(value, step.action), jnp.var(following)

        goal, value, spread = jax.vmap(one_step)(first)
        same = same_pairs(first.observation, first.action)
        return measure(known.noise, same, goal, value, jnp.mean(spread))
