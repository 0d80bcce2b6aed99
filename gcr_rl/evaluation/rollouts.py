"""Evaluation inside XLA: sampled episodes, and exact policy evaluation on finite tasks."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from gcr_rl.config import Config
from gcr_rl.envs.finite import FiniteMDP, bellman_residual, greedy_return, policy_return
from gcr_rl.envs.simulator import Simulator
from gcr_rl.errors import InputError

QFunction = Callable[[PyTree], Float[Array, " actions"]]

EXACT_STATE_LIMIT = 5_000
"""``auto`` evaluates exactly up to this many states: beyond it a pass costs more than episodes."""


class Evaluation(NamedTuple):
    """One evaluation of one agent. ``exact_return`` is NaN where it was not computed.

    ``bellman_residual`` is the mean of |T Q - Q| over all reachable state-action pairs on
    finite tasks, else the mean of |r + discount max Q(s') - Q(s, a)| along the evaluation
    episodes, which no update ever sees.
    """

    returns: Float[Array, " episodes"]
    lengths: Int[Array, " episodes"]
    exact_return: Float[Array, ""]
    bellman_residual: Float[Array, ""]
    start_value: Float[Array, ""]
    """Mean of max_a Q over the episodes' first observations."""


class ExactTables(NamedTuple):
    """What exact evaluation reads; passed as data so that it is not compiled in."""

    mdp: FiniteMDP
    observations: PyTree


@dataclass(frozen=True)
class Evaluator:
    """A fixed protocol: the same episodes count, epsilon and horizon at every call."""

    simulator: Simulator
    episodes: int
    epsilon: float
    discount: float
    tables: ExactTables | None

    def evaluate(
        self, q_values: QFunction, key: PRNGKeyArray, tables: ExactTables | None
    ) -> Evaluation:
        """Evaluate the (epsilon-)greedy policy of ``q_values``."""
        sampled = self.sample_episodes(q_values, key)
        if tables is None:
            return sampled
        q = jax.lax.map(q_values, tables.observations, batch_size=1024)
        if self.epsilon == 0.0:
            exact = greedy_return(tables.mdp, jnp.argmax(q, axis=-1))
        else:
            exact = policy_return(tables.mdp, epsilon_greedy(q, self.epsilon))
        return sampled._replace(
            exact_return=exact,
            bellman_residual=bellman_residual(tables.mdp, q, self.discount).mean,
        )

    def sample_episodes(self, q_values: QFunction, key: PRNGKeyArray) -> Evaluation:
        """Play ``episodes`` episodes side by side until the last one has ended."""
        reset_key, play_key = jax.random.split(key)
        reset_keys = jax.random.split(reset_key, self.episodes)
        state, observation = jax.vmap(self.simulator.reset)(reset_keys)
        q = jax.vmap(q_values)(observation)
        first = Playing(
            state, q, jnp.zeros(self.episodes, bool), jnp.zeros(self.episodes),
            jnp.zeros(self.episodes, jnp.int32), jnp.float32(0.0), jnp.int32(0),
        )  # fmt: skip
        last = jax.lax.while_loop(
            lambda playing: ~jnp.all(playing.done),
            lambda playing: self._play(q_values, play_key, playing),
            first,
        )
        steps = jnp.sum(last.lengths)
        return Evaluation(
            returns=last.returns,
            lengths=last.lengths,
            exact_return=jnp.float32(jnp.nan),
            bellman_residual=last.residual / steps,
            start_value=jnp.mean(jnp.max(q, axis=-1)),
        )

    def _play(self, q_values: QFunction, key: PRNGKeyArray, now: "Playing") -> "Playing":
        step_key, act_key = jax.random.split(jax.random.fold_in(key, now.time))
        draws = jax.random.uniform(act_key, (self.episodes, 2))
        random = (draws[:, 1] * self.simulator.num_actions).astype(jnp.int32)
        greedy = jnp.argmax(now.q, axis=-1).astype(jnp.int32)
        action = jnp.where(draws[:, 0] < self.epsilon, random, greedy)
        after = jax.vmap(self.simulator.step)(
            jax.random.split(step_key, self.episodes), now.state, action
        )
        q = jax.vmap(q_values)(after.observation)
        live = ~now.done
        future = jnp.where(after.terminated, 0.0, self.discount * jnp.max(q, axis=-1))
        taken = jnp.take_along_axis(now.q, action[:, None], axis=-1)[:, 0]
        gap = jnp.abs(after.reward + future - taken)
        return Playing(
            state=after.state,
            q=q,
            done=now.done | after.terminated | after.truncated,
            returns=now.returns + jnp.where(live, after.reward, 0.0),
            lengths=now.lengths + live,
            residual=now.residual + jnp.sum(jnp.where(live, gap, 0.0)),
            time=now.time + 1,
        )


class Playing(NamedTuple):
    """Episodes under way, side by side."""

    state: PyTree
    q: Float[Array, "episodes actions"]
    done: Bool[Array, " episodes"]
    returns: Float[Array, " episodes"]
    lengths: Int[Array, " episodes"]
    residual: Float[Array, ""]
    time: Int[Array, ""]


def epsilon_greedy(
    q: Float[Array, "states actions"], epsilon: float
) -> Float[Array, "states actions"]:
    """pi(a|s): the first maximal action with 1 - epsilon, the rest uniform."""
    actions = q.shape[-1]
    greedy = jax.nn.one_hot(jnp.argmax(q, axis=-1), actions)
    return (1.0 - epsilon) * greedy + epsilon / actions


def make_evaluator(
    config: Config, simulator: Simulator, environment: Any, params: Any
) -> Evaluator:
    """The evaluator that ``config.evaluation`` describes."""
    evaluation = config.evaluation
    mdp = environment.finite_mdp(params) if hasattr(environment, "finite_mdp") else None
    if evaluation.mode == "exact" and mdp is None:
        raise InputError(
            "evaluation.mode", "exact", f"auto or sampled: {config.task} is not finite"
        )
    small = mdp is not None and mdp.start.shape[0] <= EXACT_STATE_LIMIT
    exact = evaluation.mode == "exact" or (evaluation.mode == "auto" and small)
    tables = (
        ExactTables(mdp, environment.observations(params)) if mdp is not None and exact else None
    )
    return Evaluator(
        simulator, evaluation.episodes, evaluation.epsilon, config.value.discount, tables
    )
