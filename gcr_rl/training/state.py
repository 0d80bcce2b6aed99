"""What a training run carries from step to step, and where its randomness comes from."""

from typing import Any, NamedTuple, cast

import jax
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from gcr_rl.agents import AgentState
from gcr_rl.replay import Pool, Priorities, ReplayState

GENERATOR = "threefry2x32"
"""The one that ``kernels.random`` writes out, whatever JAX's default is set to."""


class Streams(NamedTuple):
    """One random key per purpose; a step's key is the stream's key folded with the step.

    The streams of a seed are split here and nowhere else, and the keys never change, so a
    resumed run draws the same numbers as an uninterrupted one.
    """

    initialisation: PRNGKeyArray
    environment: PRNGKeyArray
    exploration: PRNGKeyArray
    replay: PRNGKeyArray
    update: PRNGKeyArray
    evaluation: PRNGKeyArray


def streams(seed: Int[Array, ""]) -> Streams:
    """The keys of one seed, one per purpose."""
    base = jax.random.key(seed, impl=GENERATOR)
    return Streams(*(jax.random.fold_in(base, i) for i in range(len(Streams._fields))))


class TrainState(NamedTuple):
    """The state of one seed; a run stacks one per seed along the axes of ``SEED_AXES``."""

    agent: AgentState
    replay: ReplayState
    environment: PyTree
    observation: PyTree
    episode_return: Float[Array, " envs"]
    streams: Streams
    priorities: Priorities | tuple[()] = ()
    """Of the replay's starts, where they have some."""
    pool: Pool | tuple[()] = ()
    """Mean rewards by pair, where they are pooled."""


# The axis of the seeds in every leaf. All seeds write their replay in step, so its cursor is
# shared: with one cursor per seed a write would be a scatter instead of a slice.
SEED_AXES: Any = cast(Any, TrainState)(
    agent=0,
    replay=cast(Any, ReplayState)(rows=0, cursor=None, size=None),
    environment=0,
    observation=0,
    episode_return=0,
    streams=0,
    priorities=0,
    pool=0,
)


class ChunkStats(NamedTuple):
    """Sums over one chunk of training, per seed; the host turns them into a log row."""

    metrics: PyTree
    updates: Int[Array, ""]
    episodes: Int[Array, ""]
    episode_return: Float[Array, ""]
    first_bad_step: Int[Array, ""]
    """Environment steps at the first non-finite loss; -1 while there is none."""
