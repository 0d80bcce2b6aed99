"""Four of gymnax's MinAtar games (Young and Tian 2019, arXiv:1903.03176), as cheap pixels.

The rules are gymnax's, with its minimal sets of actions. Observations are uint8 planes of 0 and
1; replay keeps them as bits. ``terminated`` is the end of a game, ``truncated`` the horizon:
Freeway, which MinAtar calls over after 2,500 frames, is never terminated here.
"""

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from gymnax.environments import spaces
from gymnax.environments.minatar import asterix, breakout, freeway, space_invaders
from jaxtyping import Array, Int, UInt8

from gcr_rl.envs.base import BaseEnvironment, StepResult, planes_space

SIDE = 10
WORD = 32
# One colour per plane, in the order of gymnax's channels.
_COLOURS = np.array(
    [
        (200, 50, 50),
        (90, 90, 90),
        (205, 205, 205),
        (60, 160, 90),
        (60, 100, 200),
        (230, 160, 40),
        (150, 80, 180),
    ],
    np.uint8,
)


def pack(planes: UInt8[Array, "10 10 channels"]) -> Int[Array, " words"]:
    """The bits of the planes, 32 to a word, the last word filled up with zeros."""
    bits = planes.ravel().astype(jnp.uint32)
    bits = jnp.pad(bits, (0, -bits.shape[0] % WORD)).reshape(-1, WORD)
    words = jnp.sum(bits << jnp.arange(WORD, dtype=jnp.uint32), axis=1, dtype=jnp.uint32)
    return jax.lax.bitcast_convert_type(words, jnp.int32)


def unpack(words: Int[Array, " words"], channels: int) -> UInt8[Array, "10 10 channels"]:
    """The inverse of :func:`pack`."""
    unsigned = jax.lax.bitcast_convert_type(words, jnp.uint32)
    bits = (unsigned[:, None] >> jnp.arange(WORD, dtype=jnp.uint32)) & 1
    size = SIDE * SIDE * channels
    return bits.ravel()[:size].reshape(SIDE, SIDE, channels).astype(jnp.uint8)


def _as_arrays(state: Any) -> Any:
    """gymnax starts with Python numbers: give every leaf the type that a scan carries."""

    def typed(leaf: Any) -> Array:
        kind = jnp.result_type(leaf)
        if kind == jnp.bool_:
            return jnp.asarray(leaf, bool)
        return jnp.asarray(leaf, jnp.int32 if jnp.issubdtype(kind, jnp.integer) else jnp.float32)

    return jax.tree.map(typed, state)


class MinAtarGame(BaseEnvironment[Any, Any]):
    """What the four have in common; mixed in before gymnax's class."""

    supports_state_code = True
    obs_shape: tuple[int, ...]
    random_return: ClassVar[float]
    """Mean return of uniformly random play at the default horizon, measured."""

    def reset_env(self, key: Array, params: Any) -> tuple[UInt8[Array, "10 10 channels"], Any]:
        """gymnax's start."""
        observation, state = super().reset_env(key, params)
        return observation, _as_arrays(state)

    def step_env(self, key: Array, state: Any, action: Any, params: Any) -> StepResult:
        """gymnax's step; every number keeps its type, whatever the arithmetic made of it."""
        observation, after, reward, terminated, _ = super().step_env(key, state, action, params)
        after = jax.tree.map(lambda new, old: jnp.asarray(new, jnp.result_type(old)), after, state)
        ended = jnp.asarray(terminated, bool)
        return observation, after, jnp.asarray(reward, jnp.float32), ended, {}

    def get_obs(self, state: Any, params: Any = None, key: Any = None) -> Array:
        """gymnax's planes, as uint8."""
        return super().get_obs(state).astype(jnp.uint8)

    def state_code(self, state: Any, params: Any) -> Int[Array, " words"]:
        """The bits of the observation."""
        return pack(self.get_obs(state))

    def observation_of(
        self, code: Int[Array, " words"], params: Any
    ) -> UInt8[Array, "10 10 channels"]:
        """The observation of these bits."""
        return unpack(code, self.obs_shape[-1])

    def observation_space(self, params: Any) -> spaces.Box:
        """Planes of 0 and 1."""
        return planes_space(*self.obs_shape)

    def exact_returns(self, params: Any) -> tuple[float | None, float | None]:
        """No optimum is known; random play was measured at the default horizon."""
        default = int(self.default_params.max_steps_in_episode)
        same = int(params.max_steps_in_episode) == default
        return None, self.random_return if same else None

    def render(self, state: Any, params: Any) -> UInt8[np.ndarray, "160 160 3"]:
        """Planes as coloured cells, the first plane on top."""
        planes = np.asarray(self.get_obs(state))
        picture = np.full((SIDE, SIDE, 3), 245, np.uint8)
        for plane in reversed(range(planes.shape[-1])):
            picture[planes[..., plane] > 0] = _COLOURS[plane]
        return picture.repeat(16, axis=0).repeat(16, axis=1)


class Breakout(MinAtarGame, breakout.MinBreakout):
    """A paddle, a ball and three rows of bricks: +1 a brick."""

    random_return = 0.42  # 200,000 episodes, standard error 0.0015


class Asterix(MinAtarGame, asterix.MinAsterix):
    """Run from enemies, collect gold: +1 each; both come from the sides, ever faster."""

    random_return = 0.50  # 60,000 episodes, standard error 0.0035


class Freeway(MinAtarGame, freeway.MinFreeway):
    """Cross a road of eight lanes: +1 each time."""

    random_return = 0.39  # 6,000 episodes, standard error 0.008


class SpaceInvaders(MinAtarGame, space_invaders.MinSpaceInvaders):
    """Shoot the aliens before they arrive: +1 each."""

    random_return = 4.17  # 60,000 episodes, standard error 0.013
