"""Experience memory that lives on the device."""

from gcr_rl.replay.memory import Memory, Priorities, make_replay
from gcr_rl.replay.pool import Pool, init_pool, noted, pooled
from gcr_rl.replay.prioritised import (
    Draw,
    PrioritisedReplay,
    PrioritisedState,
    beta_at,
    make_prioritised,
)
from gcr_rl.replay.segments import n_step_return, return_over
from gcr_rl.replay.uniform import Replay, ReplayState, make_uniform

__all__ = [
    "Draw",
    "Memory",
    "Pool",
    "Priorities",
    "PrioritisedReplay",
    "PrioritisedState",
    "Replay",
    "ReplayState",
    "beta_at",
    "init_pool",
    "make_prioritised",
    "make_replay",
    "make_uniform",
    "n_step_return",
    "noted",
    "pooled",
    "return_over",
]
