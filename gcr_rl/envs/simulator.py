"""One environment as the few pure functions that training and evaluation need."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree


class Stepped(NamedTuple):
    """The outcome of one step, before any reset."""

    state: PyTree
    observation: PyTree
    reward: Float[Array, ""]
    terminated: Bool[Array, ""]
    truncated: Bool[Array, ""]


@dataclass(frozen=True)
class Simulator:
    """reset / step without autoreset, and the compact form that replay stores.

    ``decode(encode(state, observation))`` is the observation again, bit for bit; where an
    environment has no state code both are the identity on observations.
    """

    reset: Callable[[PRNGKeyArray], tuple[PyTree, PyTree]]
    step: Callable[[PRNGKeyArray, PyTree, Int[Array, ""]], Stepped]
    encode: Callable[[PyTree, PyTree], PyTree]
    decode: Callable[[PyTree], PyTree]
    num_actions: int
    observation_shape: tuple[int, ...]
    observation_dtype: str
    observation_scale: float
    space: Any
    """The observation space: shape, low and high."""
    tile_size: int | None
    """Pixels per tile, where observations are pictures of tiles."""


def make_simulator(environment: Any, params: Any) -> Simulator:
    """Bind a gymnax environment and its parameters."""

    def reset(key: PRNGKeyArray) -> tuple[PyTree, PyTree]:
        observation, state = environment.reset_env(key, params)
        return jax.tree.map(jnp.asarray, state), observation

    def step(key: PRNGKeyArray, state: PyTree, action: Int[Array, ""]) -> Stepped:
        observation, after, reward, terminated, _ = environment.step_env(key, state, action, params)
        # Some environments return Python numbers or other types: keep the carry's types.
        after = jax.tree.map(lambda new, old: jnp.asarray(new, old.dtype), after, state)
        truncated = jnp.asarray(environment.is_truncated(after, params), bool)
        terminated = jnp.asarray(terminated, bool)
        return Stepped(
            after,
            observation,
            jnp.asarray(reward, jnp.float32),
            terminated,
            truncated & ~terminated,
        )

    coded = getattr(environment, "supports_state_code", False)
    space = environment.observation_space(params)
    return Simulator(
        reset=reset,
        step=step,
        encode=(lambda state, _: environment.state_code(state, params))
        if coded
        else (lambda _, observation: observation),
        decode=(lambda code: environment.observation_of(code, params))
        if coded
        else (lambda observation: observation),
        num_actions=int(environment.action_space(params).n),
        observation_shape=tuple(space.shape),
        observation_dtype=str(jnp.dtype(space.dtype)),
        observation_scale=_scale(space),
        space=space,
        tile_size=environment.metadata.get("tile_size")
        if hasattr(environment, "metadata")
        else None,
    )


def _scale(space: Any) -> float:
    """1 / high for whole-number observations (RGB: 1/255, planes: 1), else 1."""
    if not jnp.issubdtype(space.dtype, jnp.integer):
        return 1.0
    high = float(jnp.max(jnp.asarray(space.high)))
    return 1.0 / high
