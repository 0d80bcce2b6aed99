"""Gymnasium environments as training sees them: a batch of slots, stepped on the host."""

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from gcr_rl.errors import InputError, RunFailed

PREFIX = "gym:"

EPISODE_LIMIT = 10_000
"""Steps after which evaluation cuts an episode of an environment without a time limit."""
FRAME_LIMIT = 1_000
"""Steps after which a drawn episode of such an environment is cut: pictures take memory."""


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
    time_limit: int | None
    """Steps after which Gymnasium itself ends an episode; None if it never does."""

    @property
    def episode_limit(self) -> int:
        """Steps after which an evaluation episode ends at the latest."""
        return self.time_limit or EPISODE_LIMIT

    def frames(self, policy: Callable[[np.ndarray], int], seed: int) -> list[np.ndarray]:
        """The pictures of one episode of ``policy``, as Gymnasium draws it.

        Without a time limit of the environment's own, at most FRAME_LIMIT steps of it.
        """
        import gymnasium

        limit = self.time_limit or FRAME_LIMIT
        options = {**self.options, "render_mode": "rgb_array"}
        try:
            environment = gymnasium.make(self.identifier, **options)
            observation, _ = environment.reset(seed=seed)
            frames, done = [_picture(environment.render())], False
            while not done and len(frames) <= limit:
                action = policy(np.asarray(observation, self.dtype)) + self.first_action
                observation, _, terminated, truncated, _ = environment.step(action)
                frames.append(_picture(environment.render()))
                done = terminated or truncated
            environment.close()
        except Exception as error:  # foreign code: it may raise anything, pygame missing say
            raise InputError("task", self.identifier, f"one that can be drawn ({error})") from error
        if not done:
            warn_of_cut(self.identifier, "the drawn episode was", limit)
        return frames


def warn_of_cut(identifier: str, what: str, limit: int) -> None:
    """Say that an environment that never ends was ended."""
    warnings.warn(
        f"{identifier} has no time limit: {what} cut after {limit:,} steps "
        "(the option max_episode_steps sets a limit of your own)",
        RuntimeWarning,
        stacklevel=3,
    )


def _picture(drawn: object) -> np.ndarray:
    picture = np.asarray(drawn)
    if picture.ndim != 3 or picture.dtype != np.uint8:
        raise ValueError(f"render() gave {type(drawn).__name__}, not an RGB picture")
    return picture


def is_external(task: str) -> bool:
    """Whether a task name means a Gymnasium environment."""
    return task.startswith(PREFIX)


def describe(task: str, options: dict[str, Any]) -> ExternalTask:
    """Look at a Gymnasium environment; refuses what a value agent cannot act in."""
    import gymnasium

    identifier = task.removeprefix(PREFIX)
    try:
        environment = gymnasium.make(identifier, **options)
    except InputError:  # one of ours, which names its option
        raise
    except Exception as error:  # foreign code: it may raise anything
        reason = f"an environment that Gymnasium can make ({error or type(error).__name__})"
        raise InputError("task", task, reason) from error
    actions, observations = environment.action_space, environment.observation_space
    limit = environment.spec.max_episode_steps if environment.spec else None
    environment.close()
    if not isinstance(actions, gymnasium.spaces.Discrete):
        raise InputError("task", task, f"a discrete action space (this one is {actions})")
    if not isinstance(observations, gymnasium.spaces.Box):
        raise InputError("task", task, f"vector or image observations (these are {observations})")
    if not observations.shape or 0 in observations.shape:
        raise InputError("task", task, f"observations with entries (these are {observations})")
    dtype, high = np.dtype(observations.dtype), float(np.max(observations.high))
    whole = np.issubdtype(dtype, np.integer)
    narrow = whole and dtype.itemsize <= 4  # wider ones do not survive 32-bit JAX
    return ExternalTask(
        identifier=identifier,
        options=dict(options),
        num_actions=int(actions.n),
        first_action=int(actions.start),
        shape=tuple(observations.shape),
        dtype=dtype if narrow else np.dtype(np.float32),
        # beyond 16 bits ``high`` is only the type's bound, and dividing by it leaves nothing
        scale=1.0 / high if whole and 1.0 <= high < 2**16 else 1.0,
        time_limit=limit if limit and limit > 0 else None,  # Gymnasium: -1 takes a limit away
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

    @contextmanager
    def _blamed(self) -> Iterator[None]:
        """An error inside the environment ends the run, and says whose it is."""
        try:
            yield
        except Exception as error:
            raise RunFailed(
                f"the environment {self._task.identifier} raised {type(error).__name__}: {error}"
            ) from error

    def reset(self, seeds: Sequence[int]) -> np.ndarray:
        """Begin an episode in every slot, each with its own seed."""
        with self._blamed():
            observation, _ = self._vector.reset(seed=list(seeds))
        return np.asarray(observation, self._task.dtype)

    def step(self, action: np.ndarray) -> HostStep:
        """One step of every slot; slots that end are reset at once, their end is kept."""
        with self._blamed():
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
