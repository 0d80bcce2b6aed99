"""The host loop: the same learner on any Gymnasium environment.

The environments of all seeds are slots of one vector environment; acting, storing and
learning stay on the device, one call each per step for all seeds together. A Gymnasium
environment cannot be saved, so a resumed run begins fresh episodes: it keeps its agent and
its replay, and repeats neither bit for bit nor row for row what an uninterrupted run does.
"""

from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from gcr_rl.agents import make_value_agent, vocabulary_of
from gcr_rl.config import Config
from gcr_rl.envs.external import ExternalSlots, ExternalTask, warn_of_cut
from gcr_rl.evaluation.rollouts import Evaluation
from gcr_rl.networks import ObservationSpec
from gcr_rl.replay import make_replay
from gcr_rl.training.loop import Learner, Program, epsilon_at
from gcr_rl.training.state import SEED_AXES, ChunkStats, TrainState, streams
from gcr_rl.types import Transition

_TRAINING, _EVALUATION = 0, 1
"""What an episode is for: mixed into its seed, so that the two never share one."""


class HostProgram:
    """``init``, ``chunk`` and ``evaluate`` with the environment on the host."""

    def __init__(self, config: Config, task: ExternalTask) -> None:
        self._config, self._task = config, task
        spec = ObservationSpec(task.shape, str(task.dtype), task.scale)
        low = 0 if np.issubdtype(task.dtype, np.integer) else -np.inf
        vocabulary = vocabulary_of(config, SimpleNamespace(shape=task.shape, low=low))
        agent = make_value_agent(config, spec, task.num_actions, vocabulary=vocabulary)
        replay = make_replay(config, agent.segment_length)
        self._learner = Learner(config, None, replay, agent)  # type: ignore[arg-type]
        self._slots: ExternalSlots | None = None
        self._blank: dict[tuple[bool, int], ChunkStats] = {}
        self._compile()

    def _compile(self) -> None:
        learner = self._learner

        @partial(jax.jit, static_argnames="level")
        def act(state: TrainState, step: Array, epsilon: Array, level: int) -> Array:
            play = partial(learner.act, level=level)
            return jax.vmap(play, in_axes=(SEED_AXES, None, None))(state, step, epsilon)

        @partial(jax.jit, donate_argnums=0)
        def record(
            state: TrainState, stats: ChunkStats, transition: Transition, following: Array
        ) -> Any:
            transition = transition._replace(observation=state.observation)
            record_all = jax.vmap(learner.record, (SEED_AXES, 0, 0), (SEED_AXES, 0))
            state, stats = record_all(state, stats, transition)
            return state._replace(observation=following), stats

        self._act, self._record = act, record
        self._learn = jax.jit(learner.learn_all, static_argnames="level", donate_argnums=0)

        @partial(jax.jit, static_argnames="level")
        def greedy(agent: PyTree, observation: Array, level: int) -> Array:
            q_values = partial(learner.agent.q_values, level=level)
            return jax.vmap(jax.vmap(q_values, in_axes=(None, 0)))(agent, observation)

        self._greedy = greedy

    def program(self) -> Program:
        """This loop behind the interface that the runner drives."""
        return Program(
            init=self.init,
            chunk=self.chunk,
            evaluate=lambda state, index: self.evaluate(state.agent, index),
            agent=self._learner.agent,
            decode=_as_stored,
        )

    def init(self, seeds: Array) -> TrainState:
        """The state before the first step (shapes only, if ``seeds`` is abstract)."""
        shape = (self._config.loop.num_envs, *self._task.shape)
        observation = jnp.zeros(shape, self._task.dtype)

        def one(seed: Array) -> TrainState:
            return self._learner.assemble(streams(seed), (), observation, observation)

        return jax.vmap(one, out_axes=SEED_AXES)(seeds)

    def chunk(
        self, state: TrainState, start: int, iterations: int, learning: bool
    ) -> tuple[TrainState, ChunkStats]:
        """``iterations`` turns of the loop from environment step ``start`` on."""
        config = self._config
        if self._slots is None:
            self._slots = self._new_slots(len(config.seeds) * config.loop.num_envs)
            first = self._slots.reset(
                [
                    _slot_seed(_TRAINING, seed, start, slot)
                    for seed in config.seeds
                    for slot in range(config.loop.num_envs)
                ]
            )
            observation = jnp.asarray(first).reshape(state.observation.shape)
            state = state._replace(
                observation=observation, episode_return=jnp.zeros_like(state.episode_return)
            )
        level = self._learner.agent.level(state.agent)
        stats = self._no_stats(state, learning, level)
        step = start
        for _ in range(iterations):
            for _ in range(config.loop.train_every):
                step += config.loop.num_envs
                state, stats = self._interact(state, stats, step, level)
            if learning:
                state, stats = self._learn(state, stats, jnp.int32(step), level=level)
        return state, stats

    def _no_stats(self, state: TrainState, learning: bool, level: int) -> ChunkStats:
        """Their shapes take a tracing of the update to know: once per kind of chunk."""
        if (learning, level) not in self._blank:
            self._blank[learning, level] = self._learner.no_stats(state, learning, level)
        return self._blank[learning, level]

    def _new_slots(self, count: int) -> ExternalSlots:
        return ExternalSlots(self._task, count)

    def _interact(self, state: TrainState, stats: ChunkStats, step: int, level: int) -> Any:
        assert self._slots is not None
        config = self._config
        epsilon = epsilon_at(jnp.float32(step), config.exploration, config.steps)
        action = np.asarray(self._act(state, jnp.int32(step), epsilon, level))
        outcome = self._slots.step(action.reshape(-1))
        seeds, num_envs = action.shape

        def by_seed(flat: np.ndarray) -> Any:
            return flat.reshape(seeds, num_envs, *flat.shape[1:])

        transition = Transition(
            observation=None,  # the state's own, see ``record``: donated, so not passed twice
            action=by_seed(action.reshape(-1).astype(np.int32)),
            reward=by_seed(outcome.reward),
            next_observation=by_seed(outcome.final),
            terminated=by_seed(outcome.terminated),
            truncated=by_seed(outcome.truncated & ~outcome.terminated),
        )
        return self._record(state, stats, transition, by_seed(outcome.following))

    def evaluate(self, agent: PyTree, index: int) -> Evaluation:
        """Play the fixed number of episodes with every seed's agent, side by side.

        An environment without a time limit is cut off; a warning says how many episodes were.
        """
        config = self._config
        seeds, episodes = len(config.seeds), config.evaluation.episodes
        slots = self._new_slots(seeds * episodes)
        random = [np.random.default_rng([_EVALUATION, seed, index]) for seed in config.seeds]
        observation = slots.reset(
            [
                _slot_seed(_EVALUATION, seed, index, episode)
                for seed in config.seeds
                for episode in range(episodes)
            ]
        )
        books = _Books(seeds * episodes, config.value.discount)
        q_of = self._q_function(agent, seeds)
        q = q_of(observation)
        start = q.max(axis=-1).reshape(seeds, episodes).mean(axis=1)
        for _ in range(self._task.episode_limit):
            draws = np.concatenate([stream.random((episodes, 2)) for stream in random])
            anywhere = (draws[:, 1] * self._task.num_actions).astype(np.int64)
            explore = draws[:, 0] < config.evaluation.epsilon
            action = np.where(explore, anywhere, q.argmax(axis=-1))
            outcome = slots.step(action)
            taken = q[np.arange(len(q)), action]
            q = q_of(outcome.following)
            books.note(outcome.reward, outcome.terminated, outcome.truncated, taken, q)
            if books.done.all():
                break
        else:
            endless = f"{np.sum(~books.done)} of {books.done.size} evaluation episodes were"
            warn_of_cut(self._task.identifier, endless, self._task.episode_limit)
        slots.close()
        return books.close(seeds, start)

    def frames(self, agent: PyTree, seed: int, episode: int) -> list[np.ndarray]:
        """The pictures of one greedy episode of one agent (no seed axis), as Gymnasium draws it."""
        q_of = self._q_function(jax.tree.map(lambda leaf: leaf[None], agent), 1)

        def policy(observation: np.ndarray) -> int:
            return int(q_of(observation)[0].argmax())

        return self._task.frames(policy, _slot_seed(_EVALUATION, seed, episode))

    def _q_function(self, agent: PyTree, seeds: int) -> Callable[[np.ndarray], np.ndarray]:
        """Observations of all seeds, one after the other -> their values."""
        level = self._learner.agent.level(agent)

        def q_of(observation: np.ndarray) -> np.ndarray:
            batch = jnp.asarray(observation.reshape(seeds, -1, *self._task.shape))
            return np.asarray(self._greedy(agent, batch, level)).reshape(-1, self._task.num_actions)

        return q_of


class _Books:
    """Returns, lengths and residuals of episodes under way."""

    def __init__(self, slots: int, discount: float) -> None:
        self.discount = discount
        self.done = np.zeros(slots, bool)
        self.returns = np.zeros(slots, np.float32)
        self.lengths = np.zeros(slots, np.int32)
        self.gaps = np.zeros(slots)
        self.counted = np.zeros(slots, np.int32)

    def note(
        self,
        reward: np.ndarray,
        terminated: np.ndarray,
        truncated: np.ndarray,
        taken: np.ndarray,
        q: np.ndarray,
    ) -> None:
        """One step of every slot; ``q`` belongs to the observation that follows."""
        live = ~self.done
        self.returns[live] += reward[live]
        self.lengths[live] += 1
        # After a truncation ``q`` belongs to a new episode: that one gap is left out.
        known = live & ~(truncated & ~terminated)
        future = np.where(terminated, 0.0, self.discount * q.max(axis=-1))
        self.gaps[known] += np.abs(reward + future - taken)[known]
        self.counted[known] += 1
        self.done |= terminated | truncated

    def close(self, seeds: int, start_value: np.ndarray) -> Evaluation:
        """The books as one evaluation per seed."""

        def by_seed(values: np.ndarray) -> Any:
            return values.reshape(seeds, -1)

        counted = np.maximum(by_seed(self.counted).sum(axis=1), 1)
        return Evaluation(
            returns=by_seed(self.returns),
            lengths=by_seed(self.lengths),
            exact_return=cast(Any, np.full(seeds, np.nan)),
            bellman_residual=by_seed(self.gaps).sum(axis=1) / counted,
            start_value=cast(Any, start_value),
        )


def _as_stored(observation: PyTree) -> PyTree:
    """Gymnasium's observations are stored as they are."""
    return observation


def _slot_seed(*numbers: int) -> int:
    """A seed for Gymnasium from several numbers, well mixed."""
    return int(np.random.SeedSequence(numbers).generate_state(1)[0] % 2**31)
