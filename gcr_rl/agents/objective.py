"""The loss of the value agent: temporal differences, and what symmetry and order add."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree, UInt32

from gcr_rl.agents.contrast import Contrastive
from gcr_rl.agents.estimates import Target, make_estimate
from gcr_rl.agents.latent import Latent
from gcr_rl.agents.noise import Noise, measure, same_pairs
from gcr_rl.agents.ordering import Aligned, Batch, Ordering
from gcr_rl.agents.pairs import Way, with_partners
from gcr_rl.agents.parameters import network_of
from gcr_rl.agents.symmetric import NOTHING, at_level, random_image
from gcr_rl.augment import Augmentation
from gcr_rl.config import Config
from gcr_rl.errors import InputError
from gcr_rl.losses import pick, return_bound
from gcr_rl.networks import QNetwork, factors_of, shaken
from gcr_rl.replay import n_step_return, return_over
from gcr_rl.symmetry import Group
from gcr_rl.symmetry.quotient import QFunction
from gcr_rl.types import Metrics, Segment

_VIEWS = 4
"""Keys of an update that augments."""


class Known(NamedTuple):
    """What an update takes as given."""

    target: PyTree
    group: PyTree
    noise: Any
    slow: PyTree = ()
    """The slow encoder of the contrast, where there is one."""


class Dice(NamedTuple):
    """The randomness of one update; None of everything is its mean form."""

    images: UInt32[Array, " batch"] | None = None
    """A word per segment: which element of the group moves it (soft symmetry)."""
    online: Float[Array, " noise"] | None = None
    target: Float[Array, " noise"] | None = None
    """Factors of the noisy layers of the two networks."""
    views: PRNGKeyArray | None = None
    """Keys of the augmentations: of s, of s', and of the two views that are contrasted."""


class Slots(NamedTuple):
    """The value slots of a batch: where they are, their values, targets and Q̄(s', .)."""

    observation: PyTree
    taken: Float[Array, " batch"]
    goal: Float[Array, " batch"]
    next_q: Float[Array, "batch actions"]


class Scene(NamedTuple):
    """What the soft terms of a loss see of a batch."""

    plain: PyTree
    """Observations before any augmentation."""
    observation: PyTree
    action: Int[Array, " batch"]
    q: Float[Array, "batch actions"]
    target: Target
    goal: Float[Array, " batch"]
    """The target's, or where the order has moved it."""
    weight: Float[Array, " batch"] | None


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
    noise_size: int = 0
    """Factors that one draw of the network's noisy layers needs."""
    augmentation: Augmentation | None = None
    contrastive: Contrastive | None = None

    @property
    def ordered(self) -> bool:
        """Whether the order has a say."""
        return self.config.order.evidence != "none" and self.config.order.coefficient > 0.0

    @property
    def paired(self) -> bool:
        """Whether every segment stands for two slots, its start and a partner."""
        order = self.config.order
        return self.ordered and order.evidence == "returns" and order.pairs

    def segments_for(self, batch: int) -> int:
        """Segments that an update of ``batch`` slots takes."""
        return batch // 2 if self.paired else batch

    @property
    def segment_length(self) -> int:
        """Steps per segment that the loss reads."""
        bounded = self.ordered and self.config.order.evidence == "returns"
        return max(self.config.value.n_step, *(self.config.order.horizons if bounded else ()), 1)

    @property
    def estimate(self) -> Any:
        """What the network's outputs are: values, or distributions of returns."""
        return make_estimate(self.config.value)

    @property
    def _keys(self) -> int:
        return 0 if self.augmentation is None and self.contrastive is None else _VIEWS

    def words(self, batch: int) -> int:
        """Random words that an update of ``batch`` slots needs."""
        return batch + 2 * self.noise_size + 2 * self._keys

    def dice(self, words: UInt32[Array, " words"] | None, batch: int) -> Dice:
        """The words cut up by purpose; fewer than :meth:`words` are refused."""
        if words is None:
            return Dice()
        if words.shape[0] != self.words(batch):
            raise InputError("words", words.shape, f"({self.words(batch)},), or None")
        size, end = self.noise_size, batch + 2 * self.noise_size
        noise = factors_of(words[batch:end]) if size else None
        pairs = words[end:].reshape(-1, 2)
        return Dice(
            images=words[:batch],
            online=None if noise is None else noise[:size],
            target=None if noise is None else noise[size:],
            views=jax.random.wrap_key_data(pairs, impl="threefry2x32") if self._keys else None,
        )

    def init(self, key: PRNGKeyArray) -> PyTree:
        """Fresh parameters."""
        params = eqx.filter(self.build(key), eqx.is_array)
        if self.contrastive is not None:
            return self.contrastive.init(params, key)
        return params if self.latent is None else self.latent.init(params, key)

    def moved(self, params: PyTree, change: PyTree, clock: Array | int) -> PyTree:
        """The parameters after the optimiser's change; a latent bank is kept near its manifold."""
        latent = self.latent
        if latent is None:
            return optax.apply_updates(params, change)
        change = latent.restrained(change, self.config.optimiser.learning_rate)
        return latent.retracted(optax.apply_updates(params, change), jnp.asarray(clock))

    def network(self, params: PyTree) -> QNetwork:
        """The network with these parameters."""
        return eqx.combine(network_of(params), self.static)

    def outputs(self, params: PyTree, group: PyTree, level: int, observation: PyTree) -> Array:
        """What the network under its group gives: Q(o, .), or the logits of distributions."""
        return self.enforcer(self.network(params), group, level)(observation)

    def q(self, params: PyTree, group: PyTree, level: int, observation: PyTree) -> Array:
        """Q(o, .) of the network under its group."""
        return self.estimate.values(self.outputs(params, group, level, observation))

    def loss(
        self,
        params: PyTree,
        known: Known,
        segments: Segment,
        words: UInt32[Array, " words"] | None,
        clock: Array,
        level: int,
        weight: Float[Array, " batch"] | None = None,
    ) -> tuple[Float[Array, ""], tuple[Metrics, Float[Array, " batch"]]]:
        """The total objective of a batch, its parts for the log, and the size of each error.

        ``weight`` is the importance of each segment; without it all count alike.
        """
        drawn, way = segments.mask.shape[0], None
        if self.paired:
            value = self.config.value
            segments, way = with_partners(
                segments, self._horizon(clock), value.n_step, value.discount
            )
            weight = None if weight is None else jnp.tile(weight, 2)
        first = jax.tree.map(lambda leaf: leaf[:, 0], segments.steps)
        dice = self.dice(words, first.action.shape[0])
        params = shaken(params, dice.online)
        known = known._replace(target=shaken(known.target, dice.target))
        plain = jax.vmap(self.decode)(first.observation)
        observation = self._seen(plain, dice, 0)
        outputs = jax.vmap(lambda o: self.outputs(params, known.group, level, o))(observation)
        q = self.estimate.values(outputs)
        taken = jax.vmap(pick)(q, first.action)
        fixed = jax.lax.stop_gradient(params)
        target, next_q = self._targets(fixed, known, level, segments, dice)
        goal, extra, metrics = target.goal, [], {}
        if self.ordered:
            aligned = self._aligned(
                fixed, known, level, segments, clock, Slots(observation, taken, goal, next_q), way
            )
            goal, metrics = aligned.goal, aligned.metrics
            extra.append(aligned.loss)
        judged = jax.vmap(self.estimate.judge)(outputs, first.action, target, goal)
        total = weighted_mean(judged.loss, weight)
        metrics["q_mean"] = jnp.mean(jnp.max(q, axis=-1))
        metrics["td_error_abs"] = jnp.mean(jnp.abs(goal - taken))
        if weight is not None:
            metrics["importance"] = jnp.mean(weight)
        scene = Scene(plain, observation, first.action, q, target, goal, weight)
        for term, more in self._soft_terms(params, known, level, clock, dice, scene):
            extra, metrics = [*extra, term], metrics | more
        if extra:
            metrics["td_loss"] = total
            total = total + sum(extra)
        metrics["loss"] = total
        return total, (metrics, judged.error[:drawn])

    def _soft_terms(
        self, params: PyTree, known: Known, level: int, clock: Array, dice: Dice, scene: Scene
    ) -> Iterator[tuple[Array, Metrics]]:
        """What is added to the temporal-difference loss beside the order, with its metrics."""
        if self.latent is not None:
            network = self.network(params)
            yield self.latent.loss(network, params, scene.observation, scene.q, clock)
        elif self.config.symmetry.enforce == "loss" and level != NOTHING:
            group = at_level(known.group, level)
            images = self._images(params, group, dice.images, scene.observation)
            if images is not None:
                yield self._soft_symmetry(images, scene)
        if self.contrastive is not None and dice.views is not None:
            networks = self.network(params), eqx.combine(known.slow.network, self.static)
            views = dice.views[2], dice.views[3]
            term = self.contrastive.loss(networks, params, known.slow, scene.plain, views)
            yield term, {"contrast_loss": term}

    def _seen(self, observation: PyTree, dice: Dice, view: int) -> PyTree:
        """The observations of a batch as temporal differences see them."""
        if self.augmentation is None or dice.views is None or not self.config.augment.value_loss:
            return observation
        return self.augmentation(dice.views[view], observation)

    def _targets(
        self, params: PyTree, known: Known, level: int, segments: Segment, dice: Dice
    ) -> tuple[Target, Float[Array, "batch actions"]]:
        """The n-step targets of a batch's first steps, and Q̄(s', .)."""
        value, estimate = self.config.value, self.estimate
        reward, discount, following = jax.vmap(
            lambda segment: n_step_return(segment, value.discount, value.n_step)
        )(segments)
        following = self._seen(jax.vmap(self.decode)(following), dice, 1)

        def one(reward: Array, discount: Array, following: PyTree) -> tuple[Target, Array]:
            outputs = self.outputs(known.target, known.group, level, following)
            q_target = estimate.values(outputs)
            selector = self.q(params, known.group, level, following) if value.double else q_target
            return estimate.target(reward, discount, outputs, selector), q_target

        return jax.vmap(one)(reward, discount, following)

    def target(
        self, params: PyTree, known: Known, level: int, segment: Segment
    ) -> tuple[Array, Array]:
        """The n-step temporal-difference target of one segment's first step, and Q̄(s', .)."""
        batch = jax.tree.map(lambda leaf: leaf[None], segment)
        target, next_q = self._targets(params, known, level, batch, Dice())
        return target.goal[0], next_q[0]

    def _aligned(
        self,
        params: PyTree,
        known: Known,
        level: int,
        segments: Segment,
        clock: Array | int,
        slots: Slots,
        way: Way | None,
    ) -> Aligned:
        ordering = Ordering(self.config.order)
        if way is not None:
            starts, noise, z = way.total.shape[0], known.noise, self.config.order.noise_z
            bound = return_bound(
                way.total, way.discount, slots.goal[starts:], way.steps,
                noise.variance, noise.surprise, z,
            )  # fmt: skip
            aligned = ordering.by_bounds(
                slots.taken[:starts], slots.goal[:starts], bound, known.noise
            )
            goal = jnp.concatenate([aligned.goal, slots.goal[starts:]])
            return aligned._replace(goal=goal)
        if self.config.order.evidence == "returns":
            bound = self.bounds(params, known, level, segments, clock)
            return ordering.by_bounds(slots.taken, slots.goal, bound, known.noise)
        features = jax.vmap(self.network(params).features)(slots.observation)
        batch = Batch(slots.taken, slots.goal, features, slots.next_q)
        return ordering.by_nudges(batch, known.noise)

    def _horizon(self, clock: Array | int) -> Int[Array, ""]:
        """The steps of a bound: the horizons take turns."""
        horizons = self.config.order.horizons
        return jnp.asarray(horizons)[clock % len(horizons)]

    def bounds(
        self, params: PyTree, known: Known, level: int, segments: Segment, clock: Array | int
    ) -> Float[Array, " batch"]:
        """A lower bound on Q(s, a) from each segment, the horizons taking turns."""
        order, discount = self.config.order, self.config.value.discount
        noise = known.noise
        steps = self._horizon(clock)

        def one(segment: Segment) -> Array:
            total, bootstrap, following = return_over(segment, discount, steps)
            following = self.decode(following)
            q_target = self.q(known.target, known.group, level, following)
            # The online network picks, as in Double-DQN: any action's value bounds from below.
            chosen = pick(q_target, jnp.argmax(self.q(params, known.group, level, following)))
            length = jnp.minimum(jnp.sum(segment.mask), steps)
            return return_bound(
                total, bootstrap, chosen, length, noise.variance, noise.surprise, order.noise_z
            )

        return jax.lax.stop_gradient(jax.vmap(one)(segments))

    def _images(
        self,
        params: PyTree,
        group: PyTree,
        words: UInt32[Array, " batch"] | None,
        observation: PyTree,
    ) -> Float[Array, "batch actions *atoms"] | None:
        """Π_gᵀ Q(T_g o, .) (or logits) with one random g of the group for each observation."""
        if not isinstance(group, Group) or words is None:
            return None  # blocks are sorted, which is exact
        network = self.network(params)

        def one(o: PyTree, word: Array) -> Array:
            image, relabel = random_image(group, o, word)
            return network(image)[relabel]

        return jax.vmap(one)(observation, words)

    def _soft_symmetry(
        self, images: Float[Array, "batch actions *atoms"], scene: Scene
    ) -> tuple[Array, Metrics]:
        """λ_eq mean ||Q(o, .) - Π_gᵀ Q(T_g o, .)||² and shared temporal differences."""
        symmetry = self.config.symmetry
        difference = scene.q - self.estimate.values(images)
        equivariance = jnp.mean(jnp.sum(difference**2, axis=-1))
        judge = jax.vmap(self.estimate.judge)
        judged = judge(images, scene.action, scene.target, scene.goal)
        shared = weighted_mean(judged.loss, scene.weight)
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


def weighted_mean(
    losses: Float[Array, " batch"], weight: Float[Array, " batch"] | None
) -> Float[Array, ""]:
    """mean_i w_i l_i, every w_i = 1 if there are none."""
    return jnp.mean(losses if weight is None else weight * losses)
