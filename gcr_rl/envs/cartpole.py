"""gymnax's CartPole-v1, with a picture and a scan-stable step counter."""

import jax.numpy as jnp
import numpy as np
from gymnax.environments.classic_control import cartpole
from jaxtyping import Array, Float, UInt8

from gcr_rl.envs.base import BaseEnvironment
from gcr_rl.envs.drawing import AGENT, LINE, WALL, blank, rectangle, segment

DEFAULT_HORIZON = 500
# Mean of 1,000,000 episodes of uniformly random actions, standard error 0.012; the longest
# lasted 208 steps, so the mean holds for any horizon of RANDOM_NEVER_LASTS or more.
RANDOM_RETURN = 22.24
RANDOM_NEVER_LASTS = 250


class CartPole(cartpole.CartPole, BaseEnvironment[cartpole.EnvState, cartpole.EnvParams]):
    """Balance a pole on a cart: four numbers, two actions, +1 a step."""

    def reset_env(
        self, key: Array, params: cartpole.EnvParams
    ) -> tuple[Float[Array, "4"], cartpole.EnvState]:
        """gymnax's start; the counter is an int32 array from the first step on."""
        observation, state = super().reset_env(key, params)
        return observation, state.replace(time=jnp.int32(0))

    def exact_returns(self, params: cartpole.EnvParams) -> tuple[float | None, float | None]:
        """The horizon (controllers that never fail are known), and a measured mean."""
        horizon = int(params.max_steps_in_episode)
        return float(horizon), RANDOM_RETURN if horizon >= RANDOM_NEVER_LASTS else None

    def render(
        self, state: cartpole.EnvState, params: cartpole.EnvParams
    ) -> UInt8[np.ndarray, "120 180 3"]:
        """Cart and pole, the track as wide as the cart may move."""
        height, width, ground = 120, 180, 100
        centre = width / 2 + float(state.x) / params.x_threshold * (width / 2 - 16)
        picture = rectangle(blank(height, width), ground, 0, 2, width, LINE)
        picture = rectangle(picture, ground - 12, round(centre) - 14, 12, 28, WALL)
        foot = np.array([ground - 12.0, centre])
        angle = float(state.theta)
        return segment(
            picture, foot, foot + 70 * np.array([-np.cos(angle), np.sin(angle)]), 2.5, AGENT
        )
