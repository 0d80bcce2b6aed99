"""One configurable value agent: DQN and Double-DQN are settings of it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from gcr_rl.config import Config, OptimiserConfig
from gcr_rl.losses import regression_loss, td_error, td_target
from gcr_rl.networks import ObservationSpec, make_q_network
from gcr_rl.replay import n_step_return
from gcr_rl.types import Segment


class AgentState(NamedTuple):
    """Everything that learns."""

    params: PyTree
    target: PyTree
    optimiser: PyTree
    updates: Int[Array, ""]


class UpdateMetrics(NamedTuple):
    """What one update tells the log; scalars."""

    loss: Float[Array, ""]
    q_mean: Float[Array, ""]
    td_error_abs: Float[Array, ""]
    grad_norm: Float[Array, ""]


@dataclass(frozen=True)
class ValueAgent:
    """The functions of one agent; pure, to be jitted and vmapped by the caller."""

    init: Callable[[PRNGKeyArray], AgentState]
    q_values: Callable[[AgentState, PyTree], Float[Array, " actions"]]
    update: Callable[[AgentState, Segment], tuple[AgentState, UpdateMetrics]]
    num_actions: int
    segment_length: int

    def act(
        self,
        state: AgentState,
        observation: PyTree,
        draws: Float[Array, "envs 2"],
        epsilon: Float[Array, ""],
    ) -> Int[Array, " envs"]:
        """Epsilon-greedy actions for a batch of observations (leaves [envs, ...]).

        ``draws`` are uniform in [0, 1): whether to explore, and where to.
        """
        greedy = jnp.argmax(jax.vmap(lambda o: self.q_values(state, o))(observation), axis=-1)
        random = (draws[:, 1] * self.num_actions).astype(greedy.dtype)
        return jnp.where(draws[:, 0] < epsilon, random, greedy)


def make_optimiser(config: OptimiserConfig, total_updates: int) -> optax.GradientTransformation:
    """Clip, then Adam with the configured schedule over ``total_updates``."""
    rate, final = config.learning_rate, config.learning_rate * config.final_fraction
    schedule: optax.ScalarOrSchedule = rate
    if config.schedule == "linear":
        schedule = optax.linear_schedule(rate, final, total_updates)
    elif config.schedule == "cosine":
        schedule = optax.cosine_decay_schedule(rate, total_updates, config.final_fraction)
    adam = optax.adam(schedule, eps=config.adam_epsilon)
    if config.clip_norm == 0.0:
        return adam
    return optax.chain(optax.clip_by_global_norm(config.clip_norm), adam)


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


def make_value_agent(
    config: Config,
    spec: ObservationSpec,
    num_actions: int,
    decode: Callable[[PyTree], PyTree] = lambda observation: observation,
) -> ValueAgent:
    """Bind the agent's functions to a configuration.

    ``decode`` turns what the replay stores into one observation (see ``envs``: compact codes).
    """
    value = config.value
    optimiser = make_optimiser(config.optimiser, total_updates(config))
    skeleton = eqx.filter_eval_shape(
        lambda key: make_q_network(config.network, spec, num_actions, key=key), jax.random.key(0)
    )
    _, static = eqx.partition(skeleton, lambda leaf: isinstance(leaf, jax.ShapeDtypeStruct))

    def init(key: PRNGKeyArray) -> AgentState:
        network = make_q_network(config.network, spec, num_actions, key=key)
        params = eqx.filter(network, eqx.is_array)
        target = jax.tree.map(jnp.copy, params)  # its own buffers, so that both can be donated
        return AgentState(params, target, optimiser.init(params), jnp.int32(0))

    def q_of(params: PyTree, observation: PyTree) -> Float[Array, " actions"]:
        return eqx.combine(params, static)(observation)

    def loss(
        params: PyTree, target: PyTree, segments: Segment
    ) -> tuple[Array, tuple[Array, Array]]:
        def one(segment: Segment) -> tuple[Array, Array]:
            reward, discount, following = n_step_return(segment, value.discount, value.n_step)
            first = jax.tree.map(lambda leaf: leaf[0], segment.steps)
            following = decode(following)
            q_target = q_of(target, following)
            selector = q_of(jax.lax.stop_gradient(params), following) if value.double else q_target
            goal = td_target(reward, discount, q_target, selector)
            q = q_of(params, decode(first.observation))
            return td_error(q, first.action, goal), jnp.max(q)

        error, q = jax.vmap(one)(segments)
        mean_loss = jnp.mean(regression_loss(error, value.loss, value.huber_delta))
        return mean_loss, (jnp.mean(q), jnp.mean(jnp.abs(error)))

    def update(state: AgentState, segments: Segment) -> tuple[AgentState, UpdateMetrics]:
        (loss_value, (q_mean, error)), gradient = jax.value_and_grad(loss, has_aux=True)(
            state.params, state.target, segments
        )
        change, optimiser_state = optimiser.update(gradient, state.optimiser, state.params)
        params = optax.apply_updates(state.params, change)
        updates = state.updates + 1
        target = move_target(params, state.target, updates, value.target_period, value.target_rate)
        metrics = UpdateMetrics(loss_value, q_mean, error, optax.global_norm(gradient))
        return AgentState(params, target, optimiser_state, updates), metrics

    return ValueAgent(
        init=init,
        q_values=lambda state, observation: q_of(state.params, observation),
        update=update,
        num_actions=num_actions,
        segment_length=value.n_step,
    )
