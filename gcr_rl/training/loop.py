"""The in-graph loop: environment, replay, agent and evaluation in one compiled program.

One turn ("iteration") takes ``train_every`` steps of every environment and then makes
``updates`` updates. All seeds turn together: what is the same for all of them (the step
count, whether learning has begun) stays outside the vmap, so nothing is computed twice.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jaxtyping import Array, Float, Int, PyTree

from gcr_rl.agents import AgentState, Chore, ValueAgent, make_value_agent, vocabulary_of
from gcr_rl.config import Config, ExplorationConfig
from gcr_rl.envs.simulator import Simulator
from gcr_rl.evaluation.rollouts import Evaluation, Evaluator
from gcr_rl.kernels.random import folded_bits, folded_keys, folded_uniform
from gcr_rl.networks import ObservationSpec, factors_of
from gcr_rl.replay import Memory, Pool, beta_at, init_pool, make_replay, noted, pooled
from gcr_rl.training.sharding import over_devices, placed, seed_mesh
from gcr_rl.training.state import SEED_AXES, ChunkStats, Streams, TrainState, streams
from gcr_rl.types import Metrics, Segment, Transition

CHORE_SAMPLE = 512
"""Transitions that an agent's chore looks at."""

_COMPILER: dict[str, dict[str, bool | str]] = {
    "cpu": {"xla_cpu_copy_insertion_use_region_analysis": True}
}
"""The write of a step is fused into what reads the replay. With this the compiler sees that the
read comes first; without it, it copies the replay twice in every step."""


def epsilon_at(
    step: Int[Array, ""], config: ExplorationConfig, total_steps: int
) -> Float[Array, ""]:
    """Linear from ``start`` to ``end`` over the first ``fraction`` of the budget, then flat."""
    span = max(config.fraction * total_steps, 1.0)
    share = jnp.clip(step / span, 0.0, 1.0)
    return config.start + share * (config.end - config.start)


@dataclass(frozen=True)
class Learner:
    """The per-seed pieces of a run, bound together."""

    config: Config
    simulator: Simulator
    replay: Memory
    agent: ValueAgent

    def init(self, keys: Streams) -> TrainState:
        """The state before the first step."""
        first_keys = jax.random.split(
            jax.random.fold_in(keys.environment, 0), self.config.loop.num_envs
        )
        environment, observation = jax.vmap(self.simulator.reset)(first_keys)
        stored = jax.vmap(self.simulator.encode)(environment, observation)
        return self.assemble(keys, environment, observation, stored)

    def assemble(
        self, keys: Streams, environment: PyTree, observation: PyTree, stored: PyTree
    ) -> TrainState:
        """A state with an untrained agent and an empty replay of ``stored`` observations."""
        num_envs = self.config.loop.num_envs
        zeros, none = jnp.zeros(num_envs), jnp.zeros(num_envs, bool)
        example = Transition(stored, jnp.zeros(num_envs, jnp.int32), zeros, stored, none, none)
        replay, priorities = self.replay.init(example)
        return TrainState(
            agent=self.agent.init(keys.initialisation),
            replay=replay,
            environment=environment,
            observation=observation,
            episode_return=zeros,
            streams=keys,
            priorities=priorities,
            pool=init_pool() if self.config.replay.pooled else (),
        )

    def act(
        self, state: TrainState, step: Int[Array, ""], epsilon: Float[Array, ""], level: int
    ) -> Int[Array, " envs"]:
        """The actions of one seed at ``step``: exploration and noise are the step's own."""
        num_envs, size = self.config.loop.num_envs, self.agent.noise_size
        stream = state.streams.exploration
        draws = folded_uniform(stream, step, (num_envs, 2))
        noise = None
        if size:  # the words after those of the draws
            noise = factors_of(folded_bits(stream, step, (2 * num_envs + size,))[2 * num_envs :])
        return self.agent.act(state.agent, state.observation, draws, epsilon, level, noise)

    def interact(
        self,
        state: TrainState,
        stats: ChunkStats,
        step: Int[Array, ""],
        epsilon: Float[Array, ""],
        level: int,
    ) -> tuple[TrainState, ChunkStats]:
        """One step of every environment of one seed; ``step`` counts from 1."""
        action = self.act(state, step, epsilon, level)
        keys = folded_keys(state.streams.environment, step, (2, self.config.loop.num_envs))
        after = jax.vmap(self.simulator.step)(keys[0], state.environment, action)
        fresh_environment, fresh_observation = jax.vmap(self.simulator.reset)(keys[1])
        done = after.terminated | after.truncated
        encode = jax.vmap(self.simulator.encode)
        transition = Transition(
            observation=encode(state.environment, state.observation),
            action=action.astype(jnp.int32),
            reward=after.reward,
            next_observation=encode(after.state, after.observation),
            terminated=after.terminated,
            truncated=after.truncated,
        )
        state = state._replace(
            environment=where_done(done, fresh_environment, after.state),
            observation=where_done(done, fresh_observation, after.observation),
        )
        return self.record(state, stats, transition)

    def record(
        self, state: TrainState, stats: ChunkStats, transition: Transition
    ) -> tuple[TrainState, ChunkStats]:
        """Store one step of every environment and keep the books of their episodes."""
        done = transition.terminated | transition.truncated
        total = state.episode_return + transition.reward
        stats = stats._replace(
            episodes=stats.episodes + jnp.sum(done),
            episode_return=stats.episode_return + jnp.sum(jnp.where(done, total, 0.0)),
        )
        replay, priorities = self.replay.add((state.replay, state.priorities), transition)
        if isinstance(state.pool, Pool):
            state = state._replace(pool=noted(state.pool, transition))
        state = state._replace(
            replay=replay, priorities=priorities, episode_return=jnp.where(done, 0.0, total)
        )
        return state, stats

    def learn(
        self,
        state: TrainState,
        stats: ChunkStats,
        step: Int[Array, ""],
        index: Int[Array, ""],
        level: int,
    ) -> tuple[TrainState, ChunkStats]:
        """One update of one seed; ``index`` counts the updates of the run."""
        agent, priorities, metrics = self.updated(state, step, index, level)
        bad = ~jnp.isfinite(metrics["loss"]) & (stats.first_bad_step < 0)
        stats = stats._replace(
            metrics=jax.tree.map(jnp.add, stats.metrics, metrics),
            updates=stats.updates + 1,
            first_bad_step=jnp.where(bad, step, stats.first_bad_step),
        )
        return state._replace(agent=agent, priorities=priorities), stats

    def updated(
        self, state: TrainState, step: Int[Array, ""], index: Int[Array, ""], level: int
    ) -> tuple[AgentState, PyTree, Metrics]:
        """The agent and the priorities after one update, and what it logs."""
        replay, batch = self.config.replay, self.config.replay.batch_size
        held = state.replay, state.priorities
        bits = folded_bits(state.streams.replay, index, (self.agent.segments_for(batch),))
        words = folded_bits(state.streams.update, index, (self.agent.words_needed(batch),))
        draw = self.replay.draw(held, bits, beta_at(step, replay.beta, self.config.steps))
        segments = draw.segments
        if isinstance(state.pool, Pool):
            segments = pooled(state.pool, segments)
        agent, metrics, error = self.agent.learn(
            state.agent, segments, words, index, level, draw.weight
        )
        _, priorities = self.replay.update(held, draw, error)
        return agent, priorities, metrics

    def draw(self, state: TrainState, index: Int[Array, ""], count: int) -> Segment:
        """``count`` segments of one seed's replay, whatever their priority."""
        return self.replay.sample(state.replay, folded_bits(state.streams.replay, index, (count,)))

    def chores_done(self, state: TrainState, index: Int[Array, ""], level: int) -> TrainState:
        """The state, all seeds along the first axis, after the agent's chores that are due."""
        for chore in self.agent.chores:
            state = self.done(chore, state, index, level)
        return state

    def done(
        self, chore: Chore, state: TrainState, index: Int[Array, ""], level: int
    ) -> TrainState:
        """The state after one chore, if it is due."""

        def renewed(one: TrainState) -> PyTree:
            return chore.renewed(one.agent, self.draw(one, index, CHORE_SAMPLE), level)

        # Outside the vmap, where a condition runs one branch only.
        part = jax.lax.cond(
            index % chore.period == 0,
            lambda: jax.vmap(renewed, (SEED_AXES,))(state),
            lambda: chore.get(state.agent),
        )
        return state._replace(agent=chore.put(state.agent, part))

    def learn_all(
        self, state: TrainState, stats: ChunkStats, step: Int[Array, ""], level: int
    ) -> tuple[TrainState, ChunkStats]:
        """The learning phase after environment step ``step``, all seeds along the first axis."""
        count = self.config.loop.updates

        def once(j: Array, carry: tuple[TrainState, ChunkStats]) -> Any:
            # Counting from the environment step keeps the replay keys independent of chunks.
            index = step * count + j
            learn = partial(self.learn, level=level)
            learn_seeds = jax.vmap(learn, (SEED_AXES, 0, None, None), (SEED_AXES, 0))
            return learn_seeds(self.chores_done(carry[0], index, level), carry[1], step, index)

        return repeat(count, once, (state, stats))

    def no_stats(self, state: TrainState, learning: bool, level: int) -> ChunkStats:
        """The stats of a chunk that has not begun, all seeds along the first axis."""

        def metrics(one: TrainState) -> PyTree:
            return self.updated(one, jnp.int32(0), jnp.int32(0), level)[2]

        seeds = state.episode_return.shape[0]
        zero, count = jnp.zeros(seeds), jnp.zeros(seeds, jnp.int32)
        shapes = jax.eval_shape(jax.vmap(metrics, (SEED_AXES,)), state) if learning else {}
        return ChunkStats(jax.tree.map(lambda _: zero, shapes), count, count, zero, count - 1)


def where_done(done: Array, fresh: PyTree, old: PyTree) -> PyTree:
    """Leaf by leaf: ``fresh`` where an episode ended, else ``old``."""

    def pick(new_leaf: Array, old_leaf: Array) -> Array:
        mask = done.reshape(done.shape + (1,) * (old_leaf.ndim - done.ndim))
        return jnp.where(mask, new_leaf, old_leaf)

    return jax.tree.map(pick, fresh, old)


@dataclass(frozen=True)
class Program:
    """The compiled functions of a run; states carry all seeds along their first axis."""

    init: Callable[[Int[Array, " seeds"]], TrainState]
    chunk: Callable[[TrainState, int, int, bool], tuple[TrainState, ChunkStats]]
    evaluate: Callable[[TrainState, int], Evaluation]
    agent: ValueAgent
    decode: Callable[[PyTree], PyTree]
    """What the replay stores -> observation."""
    devices: int = 1
    """Devices that share the seeds."""


def make_learner(config: Config, simulator: Simulator) -> Learner:
    """Build the per-seed pieces that ``config`` describes."""
    spec = ObservationSpec(
        simulator.observation_shape,
        simulator.observation_dtype,
        simulator.observation_scale,
        simulator.tile_size,
    )
    vocabulary = vocabulary_of(config, simulator.space, simulator.tile_size)
    agent = make_value_agent(config, spec, simulator.num_actions, simulator.decode, vocabulary)
    replay = make_replay(config, agent.segment_length)
    return Learner(config, simulator, replay, agent)


def make_program(config: Config, simulator: Simulator, evaluator: Evaluator) -> Program:
    """Compile-ready functions of a run, its seeds over all devices of this machine.

    ``chunk(state, start, iterations, learning)`` takes ``iterations`` turns from environment
    step ``start`` on and donates ``state``.
    """
    learner, mesh = make_learner(config, simulator), seed_mesh(len(config.seeds))
    chunk = make_chunk(learner, mesh)

    @jax.jit
    def init(seeds: Int[Array, " seeds"]) -> TrainState:
        first = jax.vmap(lambda seed: learner.init(streams(seed)), out_axes=SEED_AXES)
        return over_devices(first, mesh, (0,), SEED_AXES)(seeds)

    @partial(jax.jit, static_argnames="level")
    def evaluate(state: TrainState, index: Array, tables: PyTree, level: int) -> Evaluation:
        def one(agent_state: PyTree, key: Array, index: Array, tables: PyTree) -> Evaluation:
            def q_values(observation: PyTree) -> Array:
                return learner.agent.q_values(agent_state, observation, level)

            return evaluator.evaluate(q_values, jax.random.fold_in(key, index), tables)

        axes = (0, 0, None, None)
        seeds = over_devices(jax.vmap(one, axes), mesh, axes, 0)
        return seeds(state.agent, state.streams.evaluation, index, tables)

    agent, put = learner.agent, partial(placed, mesh=mesh, axes=SEED_AXES)
    return Program(
        init=init,
        chunk=lambda state, start, count, learning: chunk(
            put(state), jnp.int32(start), jnp.int32(count), learning, agent.level(state.agent)
        ),
        evaluate=lambda state, index: evaluate(
            put(state), jnp.int32(index), evaluator.tables, agent.level(state.agent)
        ),
        agent=agent,
        decode=simulator.decode,
        devices=1 if mesh is None else mesh.size,
    )


def make_chunk(
    learner: Learner, mesh: Mesh | None = None
) -> Callable[..., tuple[TrainState, ChunkStats]]:
    """(state, start, iterations, learning, level) -> the state after so many turns, its stats."""
    config, loop = learner.config, learner.config.loop

    def turn(
        start: Array, learning: bool, level: int, i: Array, carry: tuple[TrainState, ChunkStats]
    ) -> tuple[TrainState, ChunkStats]:
        step = start + i * config.steps_per_iteration

        def interact(j: Array, inner: tuple[TrainState, ChunkStats]) -> Any:
            now = step + (j + 1) * loop.num_envs
            epsilon = epsilon_at(now, config.exploration, config.steps)
            play = partial(learner.interact, level=level)
            return jax.vmap(play, (SEED_AXES, 0, None, None), (SEED_AXES, 0))(*inner, now, epsilon)

        carry = repeat(loop.train_every, interact, carry)
        if not learning:
            return carry
        return learner.learn_all(*carry, step + config.steps_per_iteration, level)

    @partial(
        jax.jit,
        static_argnames=("learning", "level"),
        donate_argnames="state",
        compiler_options=_COMPILER.get(jax.default_backend()),
    )
    def chunk(
        state: TrainState, start: Array, iterations: Array, learning: bool, level: int
    ) -> tuple[TrainState, ChunkStats]:
        def turns(state: TrainState, start: Array, iterations: Array) -> Any:
            begin = (state, learner.no_stats(state, learning, level))
            return jax.lax.fori_loop(0, iterations, partial(turn, start, learning, level), begin)

        axes = (SEED_AXES, None, None)
        return over_devices(turns, mesh, axes, (SEED_AXES, 0))(state, start, iterations)

    return chunk


def repeat(times: int, body: Callable[[Array, PyTree], PyTree], carry: PyTree) -> PyTree:
    """``body`` applied ``times`` times; inlined for one, where a loop would only add overhead."""
    if times == 1:
        return body(jnp.int32(0), carry)
    return jax.lax.fori_loop(0, times, body, carry)
