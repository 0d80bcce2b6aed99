"""The optimiser of an agent and the motion of its target network."""

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, PyTree

from gcr_rl.config import Config, OptimiserConfig


def make_optimiser(config: OptimiserConfig, total_updates: int) -> optax.GradientTransformation:
    """Clip, then Adam with the configured schedule over ``total_updates``."""
    rate, final = config.learning_rate, config.learning_rate * config.final_fraction
    schedule: optax.ScalarOrSchedule = rate
    if config.schedule == "linear":
        schedule = optax.linear_schedule(rate, final, total_updates)
    elif config.schedule == "cosine":
        schedule = optax.cosine_decay_schedule(rate, total_updates, config.final_fraction)
    if config.warm_up:
        schedule = warmed_up(schedule, config.warm_up)
    adam = optax.adam(schedule, eps=config.adam_epsilon)
    if config.clip_norm == 0.0:
        return adam
    return optax.chain(optax.clip_by_global_norm(config.clip_norm), adam)


def warmed_up(schedule: optax.ScalarOrSchedule, updates: int) -> optax.Schedule:
    """``schedule`` times n / ``updates`` at the n-th of the first ``updates``."""

    def rate(count: Array) -> Array:
        whole = schedule(count) if callable(schedule) else jnp.float32(schedule)
        return whole * jnp.minimum((count + 1) / updates, 1.0)

    return rate


def total_updates(config: Config) -> int:
    """Updates that a run of ``config`` makes (at least one, for the schedules)."""
    learning_steps = max(config.steps - config.replay.learning_starts, 0)
    return max(learning_steps // config.steps_per_iteration * config.loop.updates, 1)


def move_target(online: PyTree, target: PyTree, updates: Array, period: int, rate: float) -> PyTree:
    """Every ``period`` updates: target <- (1 - rate) * target + rate * online."""
    share = jnp.where(updates % period == 0, rate, 0.0)
    if rate == 1.0:
        return jax.tree.map(lambda new, old: jnp.where(share > 0, new, old), online, target)
    return jax.tree.map(lambda new, old: old + share * (new - old), online, target)
