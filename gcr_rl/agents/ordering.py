"""The order's part of the loss: comparisons between the value slots of a batch, and what they do.

The slots are Q(s_i, a_i) of the sampled transitions. ``returns`` bounds each from below;
``nudge`` compares each with its nearest neighbours in feature space, as the paper does.
"""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from gcr_rl import manifold
from gcr_rl.agents.noise import Noise, strength
from gcr_rl.config import OrderConfig
from gcr_rl.evidence import VarianceScale, nudge
from gcr_rl.losses import beyond_chance, bounds_of, soft_bound_loss
from gcr_rl.order import dag_loss, greedy_dag_by_node_full, soft_project
from gcr_rl.types import Comparisons, Metrics


class Aligned(NamedTuple):
    """Regression targets, a loss to add, and the log."""

    goal: Float[Array, " batch"]
    loss: Float[Array, ""]
    metrics: Metrics


class Batch(NamedTuple):
    """What the order sees of a batch, gradients only through ``taken``."""

    taken: Float[Array, " batch"]
    goal: Float[Array, " batch"]
    features: Float[Array, "batch width"]
    next_q: Float[Array, "batch actions"]


@dataclass(frozen=True)
class Ordering:
    """Alignment by one configuration; pure functions."""

    config: OrderConfig

    def by_bounds(
        self,
        taken: Float[Array, " batch"],
        goal: Float[Array, " batch"],
        bound: Float[Array, " batch"],
        noise: Noise,
    ) -> Aligned:
        """Values that are at least ``bound``: softly, or V+ = the targets' projection."""
        order, scale = self.config, strength(noise, self.config.floor)
        higher, mask = bound > goal, None
        refused = jnp.zeros(())
        if order.doubt < 1.0:
            mask = beyond_chance(bound - goal, order.doubt)
            refused, higher = jnp.sum(higher & ~mask).astype(jnp.float32), mask
            bound = jnp.where(mask, bound, jnp.minimum(bound, jax.lax.stop_gradient(taken)))
        metrics = self._common(noise) | {
            "order_violation": jnp.mean(jnp.maximum(bound - jax.lax.stop_gradient(taken), 0.0)),
            "order_coverage": jnp.mean(higher),
            "edges_proposed": jnp.float32(bound.shape[0]),
            "edges_kept": jnp.sum(higher).astype(jnp.float32),
            "edges_refused": refused,
        }
        if order.route == "hard":
            aligned, more = self._stepped(taken, goal, bounds_of(bound, mask), bounds_only=True)
            return Aligned(aligned, jnp.zeros(()), metrics | more)
        loss = order.coefficient * scale * soft_bound_loss(taken, bound, order.penalty * scale)
        return Aligned(goal, loss, metrics | {"order_loss": loss})

    def by_nudges(self, batch: Batch, noise: Noise) -> Aligned:
        """The paper's comparisons, made acyclic, then the isotonic loss or the manifold step."""
        order, scale = self.config, strength(noise, self.config.floor)
        kept, metrics = self._acyclic(self.nudges(batch, noise), batch.taken.shape[0])
        metrics |= self._common(noise) | {"order_margin": order.margin * scale}
        if order.route == "hard":
            aligned, more = self._stepped(batch.taken, batch.goal, kept, bounds_only=False)
            return Aligned(aligned, jnp.zeros(()), metrics | more)
        penalty = order.penalty * scale
        _, losses = soft_project(
            batch.taken, kept, penalty, order.steps, order.rank_weight, stop_gradient=True
        )
        loss = order.coefficient * scale * losses.ord
        metrics |= {
            "order_loss": loss,
            "order_violation": losses.violation_before,
            "order_violation_target": losses.violation_after,
            "order_penalty": penalty,
        }
        return Aligned(batch.goal, loss, metrics)

    def nudges(self, batch: Batch, noise: Noise) -> Comparisons:
        """The comparisons that a batch proposes, row by row of its slots."""
        order = self.config
        return nudge(
            batch.features, batch.taken, batch.goal, batch.next_q,
            VarianceScale(noise.bootstrap_variance, jnp.ones(())),
            neighbours=order.neighbours, temperature=order.temperature,
            percentile=order.percentile, margin=order.margin * strength(noise, order.floor),
        )  # fmt: skip

    def _acyclic(self, found: Comparisons, nodes: int) -> tuple[Comparisons, Metrics]:
        """The comparisons without those that close a cycle; L_dag and counts for the log."""
        shape = (nodes, self.config.neighbours)
        weight, mask = found.weight.reshape(shape)[:, 0], found.mask.reshape(shape)
        accepted, refused = mask, jnp.zeros_like(mask)
        if self.config.dag:
            dag = greedy_dag_by_node_full(found.lower.reshape(shape), weight, mask)
            accepted, refused = dag.accepted, dag.refused
        flat = accepted.reshape(-1)
        return found._replace(mask=flat), {
            "edges_proposed": jnp.sum(mask).astype(jnp.float32),
            "edges_kept": jnp.sum(accepted).astype(jnp.float32),
            "edges_refused": jnp.sum(refused).astype(jnp.float32),
            "order_coverage": jnp.mean(accepted.any(axis=1)),
            "dag_loss": dag_loss(found.weight, flat),
        }

    def _stepped(
        self, taken: Array, goal: Array, constraints: Comparisons, bounds_only: bool
    ) -> tuple[Array, Metrics]:
        """V+ of the manifold step from V along the temporal-difference gradient V - y."""
        value = jax.lax.stop_gradient(taken)
        aligned, _, stats = manifold.step(
            value, None, value - goal, constraints, bounds_only=bounds_only
        )
        return aligned, {
            "order_violation_network": stats.violation_before,
            "order_violation_target": stats.violation_after,
            "manifold_active": stats.active.astype(jnp.float32),
            "manifold_accepted": stats.accepted.astype(jnp.float32),
            "manifold_fallback": stats.fallback.astype(jnp.float32),
        }

    def _common(self, noise: Noise) -> Metrics:
        return {
            "order_strength": strength(noise, self.config.floor),
            "transition_noise": jnp.sqrt(noise.variance),
            "transition_surprise": noise.surprise,
            "td_unexplained": noise.unexplained,
        }
