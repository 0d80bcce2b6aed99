"""Gymnasium environments as training sees them: a batch of slots, stepped on the host."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from gcr_rl.errors import InputError

PREFIX = "gym:"


class HostStep(NamedTuple):
    """One step of every slot. ``final`` is what the step led to; ``following`` is what the
    next action sees: the same, or the first observation of a new episode."""

    final: np.ndarray
    following: np.ndarray
    reward: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray


@dataclass(frozen=True)
class ExternalTask:
    """What a network must know of a Gymnasium environment."""

    identifier: str
    options: dict[str, Any]
    num_actions: int
    first_action: int
    shape: tuple[int, ...]
    dtype: np.dtype
    scale: float

    def with_pictures(self) -> Any:
        """A single environment that can be drawn."""
        import gymnasium

        try:
            return gymnasium.make(self.identifier, render_mode="rgb_array", **self.options)
        except (gymnasium.error.Error, TypeError, ImportError) as error:
            raise InputError("task", self.identifier, f"one that can be drawn ({error})") from None


def is_external(task: str) -> bool:
    """Whether a task name means a Gymnasium environment."""
    return task.startswith(PREFIX)


def describe(task: str, options: dict[str, Any]) -> ExternalTask:
    """Look at a Gymnasium environment; refuses what a value agent cannot act in."""
    import gymnasium

    identifier = task.removeprefix(PREFIX)
    try:
        environment = gymnasium.make(identifier, **options)
    except (gymnasium.error.Error, TypeError, ImportError) as error:
        raise InputError(
            "task", task, f"an environment that Gymnasium can make ({error})"
        ) from None
    actions, observations = environment.action_space, environment.observation_space
    environment.close()
    if not isinstance(actions, gymnasium.spaces.Discrete):
        raise InputError("task", task, f"a discrete action space (this one is {actions})")
    if not isinstance(observations, gymnasium.spaces.Box):
        raise InputError("task", task, f"vector or image observations (these are {observations})")
    whole = np.issubdtype(observations.dtype, np.integer)
    return ExternalTask(
        identifier=identifier,
        options=dict(options),
        num_actions=int(actions.n),
        first_action=int(actions.start),
        shape=tuple(observations.shape),
        dtype=np.dtype(observations.dtype) if whole else np.dtype(np.float32),
        scale=1.0 / float(np.max(observations.high)) if whole else 1.0,
    )


class ExternalSlots:
    """``count`` copies of a Gymnasium environment, stepped together, reset in the same step."""

    def __init__(self, task: ExternalTask, count: int) -> None:
        import gymnasium
        from gymnasium.vector import AutoresetMode, SyncVectorEnv

        self._task, self.count = task, count
        self._vector: Any = SyncVectorEnv(
            [lambda: gymnasium.make(task.identifier, **task.options)] * count,
            autoreset_mode=AutoresetMode.SAME_STEP,
        )

    def reset(self, seed: int) -> np.ndarray:
        """Begin an episode in every slot."""
        observation, _ = self._vector.reset(seed=seed)
        return np.asarray(observation, self._task.dtype)

    def step(self, action: np.ndarray) -> HostStep:
        """One step of every slot; slots that end are reset at once, their end is kept."""
        following, reward, terminated, truncated, info = self._vector.step(
            np.asarray(action) + self._task.first_action
        )
        following = np.array(following, self._task.dtype)
        final = following.copy()
        for slot in np.flatnonzero(terminated | truncated):
            final[slot] = info["final_obs"][slot]
        return HostStep(final, following, np.asarray(reward, np.float32), terminated, truncated)

    def close(self) -> None:
        """Close the environments."""
        self._vector.close()
