"""E2, ButtonPermutation: six buttons, a fresh permutation of colours each episode
(paper, app:envs).

A fixed sequence of five of the six colours has to be pressed. Pressing the button of the
next colour pays +1 and lights a lamp, any other press costs 0.5 and leaves progress as it
is; the fifth lamp ends the episode. The picture is 7x7 tiles seen from the agent: lamps,
the row of buttons, the agent. A button's own tile carries both its colour and the mark of
the last press, so that exchanging two button tiles of the picture is exactly exchanging the
two buttons. Without the legend all buttons are grey, and the observation stacks every frame
of the episode along the channels: what the best memory could know.
"""

from functools import cache, lru_cache, partial
from itertools import combinations, permutations
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from gymnax.environments import spaces
from gymnax.environments.environment import EnvParams, EnvState
from jaxtyping import Array, Bool, Int, UInt8

from gcr_rl.envs.base import (
    BaseEnvironment,
    Count,
    IndexedEnvironment,
    IndexState,
    PlantedSymmetry,
    StepResult,
    rgb_space,
)
from gcr_rl.envs.button_tiles import (
    BUTTON_ROW,
    BUTTONS,
    GREY,
    LAMPS,
    TILES,
    frame_pixels,
    swap_tiles,
)
from gcr_rl.envs.finite import FiniteMDP

NONE_PRESSED = BUTTONS
FRAMES = (LAMPS + 1) * (BUTTONS + 1)
"""A frame is progress * 7 + last button pressed (6: none yet)."""
RIGHT_REWARD, WRONG_REWARD = 1.0, -0.5
PERMUTATIONS = np.array(list(permutations(range(BUTTONS))), np.int32)
"""``PERMUTATIONS[p, button]`` is the button's colour; the sequence is colours 0, 1, 2, 3, 4."""


@struct.dataclass
class ButtonParams(EnvParams):
    """Presses per episode."""

    max_steps_in_episode: Count = 10


@struct.dataclass
class HistoryState(EnvState):
    """The hidden permutation and all frames so far; -1 for those to come."""

    time: Int[Array, "*batch"]
    permutation: Int[Array, "*batch"]
    frames: Int[Array, "*batch frames"]


def press(
    permutation: Int[Array, ""], frame: Int[Array, ""], button: Int[Array, ""]
) -> tuple[Int[Array, ""], Bool[Array, ""]]:
    """The frame after pressing ``button``, and whether it was the right one."""
    progress = frame // (BUTTONS + 1)
    right = jnp.asarray(PERMUTATIONS)[permutation, button] == progress
    return (progress + right) * (BUTTONS + 1) + button, right


def press_reward(right: Bool[Array, ""]) -> Array:
    """+1 or -0.5."""
    return jnp.where(right, RIGHT_REWARD, WRONG_REWARD).astype(jnp.float32)


def button_swaps(tile_size: int) -> list[PlantedSymmetry]:
    """The identity and the 15 exchanges of two buttons, which generate all 720."""
    found = [PlantedSymmetry("identity", np.asarray, np.arange(BUTTONS, dtype=np.int32))]
    for first, second in combinations(range(BUTTONS), 2):
        relabel = np.arange(BUTTONS, dtype=np.int32)
        relabel[[first, second]] = second, first
        places = ((BUTTON_ROW, first), (BUTTON_ROW, second))
        swap = partial(swap_tiles, tile_size, *places)
        found.append(PlantedSymmetry(f"swap {first} and {second}", swap, relabel))
    return found


class ButtonPermutation(IndexedEnvironment[ButtonParams]):
    """With the legend. State = permutation * 42 + frame."""

    num_states = len(PERMUTATIONS) * FRAMES

    def __init__(self, tile_size: int = 3) -> None:
        super().__init__()
        self.tile_size = tile_size
        self.metadata = {**BaseEnvironment.metadata, "tile_size": tile_size}

    @property
    def default_params(self) -> ButtonParams:
        """Ten presses."""
        return ButtonParams()

    @property
    def num_actions(self) -> int:
        """One action per button."""
        return BUTTONS

    def step_env(
        self, key: Array, state: IndexState, action: Any, params: ButtonParams
    ) -> StepResult:
        """Press a button."""
        permutation, frame = state.index // FRAMES, state.index % FRAMES
        frame, right = press(permutation, frame, jnp.asarray(action, jnp.int32))
        following = self.at(permutation * FRAMES + frame, state.time + 1)
        observation = self.observation_of(following.index, params)
        terminated = self.is_terminated(following, params)
        return observation, following, press_reward(right), terminated, {}

    def reset_env(self, key: Array, params: ButtonParams) -> tuple[Array, IndexState]:
        """A uniform permutation, nothing pressed."""
        permutation = jax.random.randint(key, (), 0, len(PERMUTATIONS))
        state = self.at(permutation * FRAMES + NONE_PRESSED)
        return self.observation_of(state.index, params), state

    def is_terminated(self, state: IndexState, params: ButtonParams) -> Bool[Array, ""]:
        """Whether all lamps are lit."""
        return state.index % FRAMES >= LAMPS * (BUTTONS + 1)

    def observation_of(
        self, code: Int[Array, ""], params: ButtonParams
    ) -> UInt8[Array, "height width 3"]:
        """The picture."""
        frame = code % FRAMES
        colours = jnp.asarray(PERMUTATIONS)[code // FRAMES]
        return frame_pixels(colours, frame // (BUTTONS + 1), frame % (BUTTONS + 1), self.tile_size)

    def finite_mdp(self, params: ButtonParams) -> FiniteMDP:
        """Deterministic: one branch. Frames that no play produces are listed, never reached."""
        permutation, frame, button = np.ogrid[: len(PERMUTATIONS), :FRAMES, :BUTTONS]
        progress = frame // (BUTTONS + 1)
        over = progress == LAMPS
        right = (PERMUTATIONS[:, None, :] == progress) & ~over
        pressed = permutation * FRAMES + (progress + right) * (BUTTONS + 1) + button
        successors = np.where(over, permutation * FRAMES + frame, pressed)
        rewards = np.where(over, 0.0, np.where(right, RIGHT_REWARD, WRONG_REWARD))
        rewards = np.broadcast_to(rewards, successors.shape)
        shape = (self.num_states, BUTTONS, 1)
        first = np.arange(self.num_states) % FRAMES == NONE_PRESSED
        return FiniteMDP(
            successors=jnp.asarray(successors.reshape(shape), jnp.int32),
            probabilities=jnp.ones(shape, jnp.float32),
            rewards=jnp.asarray(rewards.reshape(shape), jnp.float32),
            terminated=jnp.asarray((successors % FRAMES >= LAMPS * (BUTTONS + 1)).reshape(shape)),
            start=jnp.asarray(first / len(PERMUTATIONS), jnp.float32),
            horizon=int(params.max_steps_in_episode),
        )

    def planted_symmetries(self, params: ButtonParams) -> list[PlantedSymmetry]:
        """The identity and the 15 exchanges of two buttons."""
        return button_swaps(self.tile_size)

    def action_space(self, params: ButtonParams | None = None) -> spaces.Discrete:
        """One action per button."""
        return spaces.Discrete(BUTTONS)

    def observation_space(self, params: ButtonParams) -> spaces.Box:
        """An RGB picture of 7x7 tiles."""
        side = TILES * self.tile_size
        return rgb_space(side, side, 3)

    def render(
        self, state: IndexState, params: ButtonParams
    ) -> UInt8[np.ndarray, "height width 3"]:
        """The observation, enlarged."""
        return enlarged(np.asarray(self.observation_of(state.index, params)))


class HiddenButtonPermutation(BaseEnvironment[HistoryState, ButtonParams]):
    """Without the legend: grey buttons, all frames of the episode stacked, oldest first.

    ``horizon`` fixes the number of channels, 3 (horizon + 1); frames to come are black.
    """

    supports_state_code = True

    def __init__(self, tile_size: int = 3, horizon: int = 10) -> None:
        super().__init__()
        self.tile_size, self.horizon = tile_size, horizon
        self._frames = grey_frames(tile_size)
        self.metadata = {**BaseEnvironment.metadata, "tile_size": tile_size}

    @property
    def default_params(self) -> ButtonParams:
        """As many presses as there are frames to show them."""
        return ButtonParams(max_steps_in_episode=self.horizon)

    @property
    def num_actions(self) -> int:
        """One action per button."""
        return BUTTONS

    def step_env(
        self, key: Array, state: HistoryState, action: Any, params: ButtonParams
    ) -> StepResult:
        """Press a button and append the frame."""
        frame, right = press(
            state.permutation, state.frames[state.time], jnp.asarray(action, jnp.int32)
        )
        time = state.time + 1
        following = state.replace(time=time, frames=state.frames.at[time].set(frame))
        observation = self.observation_of(following.frames, params)
        terminated = self.is_terminated(following, params)
        return observation, following, press_reward(right), terminated, {}

    def reset_env(self, key: Array, params: ButtonParams) -> tuple[Array, HistoryState]:
        """A uniform permutation, nothing pressed."""
        state = HistoryState(
            time=jnp.int32(0),
            permutation=jax.random.randint(key, (), 0, len(PERMUTATIONS)),
            frames=jnp.full(self.horizon + 1, -1, jnp.int32).at[0].set(NONE_PRESSED),
        )
        return self.observation_of(state.frames, params), state

    def is_terminated(self, state: HistoryState, params: ButtonParams) -> Bool[Array, ""]:
        """Whether all lamps are lit."""
        return state.frames[state.time] >= LAMPS * (BUTTONS + 1)

    def is_truncated(self, state: HistoryState, params: ButtonParams) -> Bool[Array, ""]:
        """At the horizon of the parameters, or when no channel is left to show a frame."""
        return state.time >= jnp.minimum(params.max_steps_in_episode, self.horizon)

    def state_code(self, state: HistoryState, params: ButtonParams) -> Int[Array, " frames"]:
        """The frames so far: all that the observation shows."""
        return state.frames

    def observation_of(
        self, code: Int[Array, " frames"], params: ButtonParams
    ) -> UInt8[Array, "height width channels"]:
        """The frames side by side along the channels."""
        # frame -1, yet to come, is the last row: black
        stacked = jnp.moveaxis(jnp.asarray(self._frames)[code], 0, 2)
        return stacked.reshape(*stacked.shape[:2], -1)

    def get_obs(self, state: HistoryState, params: Any = None, key: Any = None) -> Array:
        """gymnax's observation hook."""
        return self.observation_of(state.frames, params)

    def exact_returns(self, params: ButtonParams) -> tuple[float, float]:
        """The best memory policy's return, and random play's."""
        horizon = min(int(params.max_steps_in_episode), self.horizon)
        return memory_optimal_return(horizon), blind_random_return(horizon)

    def planted_symmetries(self, params: ButtonParams) -> list[PlantedSymmetry]:
        """The identity and the 15 exchanges of two buttons, in all frames at once."""
        return button_swaps(self.tile_size)

    def action_space(self, params: ButtonParams | None = None) -> spaces.Discrete:
        """One action per button."""
        return spaces.Discrete(BUTTONS)

    def observation_space(self, params: ButtonParams) -> spaces.Box:
        """horizon + 1 RGB pictures, stacked along the channels."""
        side = TILES * self.tile_size
        return rgb_space(side, side, 3 * (self.horizon + 1))

    def render(
        self, state: HistoryState, params: ButtonParams
    ) -> UInt8[np.ndarray, "height width 3"]:
        """The newest frame, enlarged."""
        last = 3 * int(state.time)
        observation = np.asarray(self.observation_of(state.frames, params))
        return enlarged(observation[:, :, last : last + 3])


@lru_cache(maxsize=8)
def grey_frames(tile_size: int) -> UInt8[np.ndarray, "frames height width 3"]:
    """All frames without legend, then a black one: looked up, since a step shows many."""
    grey = jnp.full(BUTTONS, GREY, jnp.int32)
    shown = [
        np.asarray(frame_pixels(grey, frame // (BUTTONS + 1), frame % (BUTTONS + 1), tile_size))
        for frame in range(FRAMES)
    ]
    return np.stack([*shown, np.zeros_like(shown[0])])


def button_permutation(
    legend: bool = True, tile_size: int = 3, horizon: int = 10
) -> ButtonPermutation | HiddenButtonPermutation:
    """The environment with or without its legend."""
    if legend:
        return ButtonPermutation(tile_size)
    return HiddenButtonPermutation(tile_size, horizon)


def enlarged(picture: UInt8[np.ndarray, "height width 3"]) -> UInt8[np.ndarray, "tall wide 3"]:
    """At least 160 pixels wide, every pixel a square."""
    factor = -(-160 // picture.shape[1])
    return picture.repeat(factor, axis=0).repeat(factor, axis=1)


@cache
def memory_optimal_return(
    horizon: int, buttons: int = BUTTONS, colours: int = LAMPS, found: int = 0, refuted: int = 0
) -> float:
    """V(f, m, h): the best expected return without a legend, remembering every press.

    With f colours found and m buttons refuted for the next colour, it is equally likely to
    be any of the other n = buttons - f - m: what was refuted for earlier colours is known to
    be elsewhere by now. Every press that cannot be right costs the same and teaches nothing,
    so the best is an untried one:
    V(f, m, h) = 1/n (1 + V(f+1, 0, h-1)) + (1 - 1/n) (-0.5 + V(f, m+1, h-1)).
    """
    if horizon == 0 or found == colours:
        return 0.0
    chance = 1.0 / (buttons - found - refuted)
    value = chance * (
        RIGHT_REWARD + memory_optimal_return(horizon - 1, buttons, colours, found + 1, 0)
    )
    if chance < 1.0:
        value += (1.0 - chance) * (
            WRONG_REWARD + memory_optimal_return(horizon - 1, buttons, colours, found, refuted + 1)
        )
    return value


def blind_random_return(horizon: int) -> float:
    """Uniformly random presses: a lamp with chance 1/6 a press, until five are lit."""
    chances = np.zeros(LAMPS + 1)
    chances[0] = 1.0
    total = 0.0
    for _ in range(horizon):
        playing = chances.copy()
        playing[LAMPS] = 0.0
        total += playing.sum() * (RIGHT_REWARD + (BUTTONS - 1) * WRONG_REWARD) / BUTTONS
        chances = chances - playing / BUTTONS
        chances[1:] += playing[:-1] / BUTTONS
    return float(total)
