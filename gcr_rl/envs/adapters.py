"""The tasks as Gymnasium environments, and for users of gymnax's older five-value step.

The only file that knows Gymnasium. JAX and gymnax are imported when an environment is
made, not here, so that registering the names stays cheap.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.utils import seeding
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space
from jaxtyping import Bool, Float, Int, UInt8

from gcr_rl.envs.tasks import TASKS, make
from gcr_rl.errors import InputError

Observation = np.ndarray


def register() -> None:
    """Register every task as ``gcr_rl/NAME-v0``, single and vector form; idempotent.

    The time limit is the task's own, so Gymnasium adds none.
    """
    for name, task in TASKS.items():
        identifier = f"gcr_rl/{name}-v0"
        if identifier not in gymnasium.registry:
            gymnasium.register(
                id=identifier,
                entry_point="gcr_rl.envs.adapters:SingleEnvironment",
                vector_entry_point="gcr_rl.envs.adapters:VectorEnvironment",
                reward_threshold=task.threshold,
                kwargs={"task": name},
            )


def five_value_step(environment: Any) -> Any:
    """``environment`` with step -> (observation, state, reward, done, info) and autoreset,
    the form that rejax, PureJaxRL and Stoix unpack; ``info`` keeps terminated, truncated
    and the final observation."""
    from gymnax.wrappers.compat import LegacyStepAPIWrapper

    return LegacyStepAPIWrapper(environment)


@dataclass(frozen=True)
class _Compiled:
    """An environment with the jitted functions that one episode, or a batch, needs."""

    environment: Any
    params: Any
    reset: Callable[..., Any]
    step: Callable[..., Any]
    reset_batch: Callable[..., Any]
    step_batch: Callable[..., Any]


@lru_cache(maxsize=64)
def _compiled(task: str, options: tuple[tuple[str, Any], ...]) -> _Compiled:
    """Shared by all instances with the same options, so that they compile once."""
    import jax
    import jax.numpy as jnp

    environment, params = make(task, **dict(options))

    def reset(key: jax.Array) -> tuple[Any, Any, jax.Array]:
        key, key_reset = jax.random.split(key)
        observation, state = environment.reset_env(key_reset, params)
        return observation, state, key

    def step(key: jax.Array, state: Any, action: jax.Array) -> tuple[Any, ...]:
        key, key_step = jax.random.split(key)
        observation, state, reward, terminated, _ = environment.step_env(
            key_step, state, action, params
        )
        truncated = environment.is_truncated(state, params)
        return observation, state, reward, terminated, truncated, key

    def step_and_reset(key: jax.Array, state: Any, action: jax.Array) -> tuple[Any, ...]:
        final, state, reward, terminated, truncated, key = step(key, state, action)
        first = reset(key)
        observation, state, key = jax.tree.map(
            lambda new, old: jnp.where(terminated | truncated, new, old),
            first,
            (final, state, key),
        )
        return observation, final, state, reward, terminated, truncated, key

    return _Compiled(
        environment,
        params,
        jax.jit(reset),
        jax.jit(step),
        jax.jit(jax.vmap(reset)),
        jax.jit(jax.vmap(step_and_reset)),
    )


def _seed_of(generator: np.random.Generator) -> int:
    return int(generator.integers(2**31))


def _gymnasium_space(space: Any) -> spaces.Space[Any]:
    """Discrete or Box, with the dtype and the bounds of the gymnax space."""
    if hasattr(space, "n"):
        return spaces.Discrete(int(space.n))
    dtype = np.dtype(space.dtype)
    low, high = (
        np.broadcast_to(np.asarray(bound, dtype), space.shape) for bound in (space.low, space.high)
    )
    return spaces.Box(low, high, tuple(space.shape), dtype.type)


def _checked_render_mode(mode: str | None) -> str | None:
    if mode not in (None, "rgb_array"):
        raise InputError("render_mode", mode, "None or 'rgb_array'")
    return mode


class SingleEnvironment(gymnasium.Env[Observation, int | np.integer]):
    """One episode at a time. ``reset(seed=s)`` fixes every later draw, resets included."""

    # gymnasium.make reads the class, before there is an instance with metadata of its own
    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}  # noqa: RUF012

    def __init__(self, task: str, render_mode: str | None = None, **options: Any) -> None:
        self.render_mode = _checked_render_mode(render_mode)
        self._compiled = _compiled(task, tuple(sorted(options.items())))
        environment, params = self._compiled.environment, self._compiled.params
        self.metadata = environment.metadata
        self.observation_space = _gymnasium_space(environment.observation_space(params))
        self.action_space = _gymnasium_space(environment.action_space(params))
        self._key: Any = None
        self._state: Any = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Start an episode; without a seed the stream of random numbers goes on."""
        import jax

        super().reset(seed=seed)
        if seed is not None or self._key is None:
            self._key = jax.random.key(_seed_of(self.np_random))
        observation, self._state, self._key = self._compiled.reset(self._key)
        return np.array(observation), {}

    def step(
        self, action: int | np.integer
    ) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """One step; after an end, ``reset`` comes first."""
        if self._state is None:
            raise InputError("step", action, "a step after reset()")
        if not self.action_space.contains(action):
            raise InputError("action", action, f"an element of {self.action_space}")
        observation, self._state, reward, terminated, truncated, self._key = self._compiled.step(
            self._key, self._state, np.int32(action)
        )
        return np.array(observation), float(reward), bool(terminated), bool(truncated), {}

    def render(self) -> UInt8[np.ndarray, "height width 3"] | None:
        """The current state as a picture, if ``render_mode`` asks for it."""
        if self.render_mode is None or self._state is None:
            return None
        return self._compiled.environment.render(self._state, self._compiled.params)


class VectorEnvironment(gymnasium.vector.VectorEnv[Observation, np.ndarray, np.ndarray]):
    """Many episodes in one compiled call. An episode that ends is reset in the same step
    (``AutoresetMode.SAME_STEP``): ``infos["final_obs"]`` holds its last observation.

    Sub-environment i of ``reset(seed=s)`` repeats ``SingleEnvironment.reset(seed=s + i)``.
    """

    def __init__(
        self, task: str, num_envs: int = 1, render_mode: str | None = None, **options: Any
    ) -> None:
        if isinstance(num_envs, bool) or not isinstance(num_envs, int) or num_envs < 1:
            raise InputError("num_envs", num_envs, "a whole number, at least 1")
        self.num_envs = num_envs
        self.render_mode = _checked_render_mode(render_mode)
        self._compiled = _compiled(task, tuple(sorted(options.items())))
        environment, params = self._compiled.environment, self._compiled.params
        self.metadata = {**environment.metadata, "autoreset_mode": AutoresetMode.SAME_STEP}
        self.single_observation_space = _gymnasium_space(environment.observation_space(params))
        self.single_action_space = _gymnasium_space(environment.action_space(params))
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._keys: Any = None
        self._states: Any = None

    def reset(
        self,
        *,
        seed: int | list[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[Observation, dict[str, Any]]:
        """Start all episodes; a list gives each sub-environment its own seed."""
        import jax
        import jax.numpy as jnp

        super().reset(seed=seed if isinstance(seed, int) else None)
        if seed is not None or self._keys is None:
            seeds = [_seed_of(self._generator(seed, i)) for i in range(self.num_envs)]
            self._keys = jax.vmap(jax.random.key)(jnp.asarray(seeds, jnp.uint32))
        observation, self._states, self._keys = self._compiled.reset_batch(self._keys)
        return np.array(observation), {}

    def _generator(self, seed: int | list[int | None] | None, place: int) -> np.random.Generator:
        if seed is None:
            return self.np_random
        if isinstance(seed, int):
            return seeding.np_random(seed + place)[0]
        if len(seed) != self.num_envs:
            raise InputError("seed", seed, f"{self.num_envs} seeds, one per sub-environment")
        own = seed[place]
        return self.np_random if own is None else seeding.np_random(own)[0]

    def step(
        self, actions: Int[np.ndarray, " envs"]
    ) -> tuple[
        Observation,
        Float[np.ndarray, " envs"],
        Bool[np.ndarray, " envs"],
        Bool[np.ndarray, " envs"],
        dict[str, Any],
    ]:
        """One step everywhere; ended episodes already show their successor's first frame."""
        if self._states is None:
            raise InputError("step", actions, "a step after reset()")
        chosen = np.asarray(actions)
        if not self.action_space.contains(chosen.astype(np.int64)):
            raise InputError("actions", actions, f"an element of {self.action_space}")
        observation, final, self._states, reward, terminated, truncated, self._keys = (
            self._compiled.step_batch(self._keys, self._states, chosen.astype(np.int32))
        )
        terminated, truncated = np.array(terminated), np.array(truncated)
        infos = self._final_infos(np.asarray(final), terminated | truncated)
        rewards = np.array(reward, np.float64)
        return np.array(observation), rewards, terminated, truncated, infos

    def _final_infos(self, final: Observation, ended: Bool[np.ndarray, " envs"]) -> dict[str, Any]:
        """Gymnasium's form: an object array with None where no episode ended, and a mask."""
        if not ended.any():
            return {}
        observations = np.full(self.num_envs, None, dtype=object)
        for place in np.flatnonzero(ended):
            observations[place] = final[place].copy()
        return {
            "final_obs": observations,
            "_final_obs": ended.copy(),
            "final_info": {},
            "_final_info": ended.copy(),
        }

    def render(self) -> tuple[UInt8[np.ndarray, "height width 3"], ...] | None:
        """A picture of every sub-environment, if ``render_mode`` asks for it."""
        import jax

        if self.render_mode is None or self._states is None:
            return None
        environment, params = self._compiled.environment, self._compiled.params
        return tuple(
            environment.render(jax.tree.map(lambda leaf, i=i: leaf[i], self._states), params)
            for i in range(self.num_envs)
        )
