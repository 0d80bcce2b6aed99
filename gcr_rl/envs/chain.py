"""E4, NoisyRPSChain: a chain to the goal with rock-paper-scissors detours (paper, app:envs).

States 0..9 are the distance to the goal, which is 0; the start is 9. Acting in state 3, 5
or 7 leads, with probability ``eta``, to one of three gadget states (uniformly) instead of
moving. A gadget state shows the opponent's hand; the agent's three actions are hands there.
After a hand the game goes back to the chain state it left with probability 1/2, else to the
next hand. State 10 + 3 j + h is hand h with the j-th detour state as the place to rejoin.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from gymnax.environments import spaces
from gymnax.environments.environment import EnvParams
from jaxtyping import Array, Bool, Float, Int, UInt8

from gcr_rl.envs.base import (
    Amount,
    Count,
    IndexedEnvironment,
    IndexState,
    StepResult,
    one_hot_space,
)
from gcr_rl.envs.drawing import squares_picture
from gcr_rl.envs.finite import FiniteMDP

CHAIN = 10
HANDS = 3
DETOURS = (3, 5, 7)
STATES = CHAIN + len(DETOURS) * HANDS
BACK, FORWARD, STAY = 0, 1, 2
STEP_COST = 0.1
GOAL_REWARD = 10.0
GADGET_TOLL = 1.0
REJOIN_CHANCE = 0.5

_MOVE = np.stack(
    [
        np.minimum(np.arange(CHAIN) + 1, CHAIN - 1),
        np.maximum(np.arange(CHAIN) - 1, 0),
        np.arange(CHAIN),
    ],
    axis=1,
)


@struct.dataclass
class ChainParams(EnvParams):
    """``eta``: chance of a detour; ``sigma``: standard deviation of the reward noise."""

    max_steps_in_episode: Count = 60
    eta: Amount = 0.3
    sigma: Amount = 0.5


def hand_score(mine: Any, theirs: Any) -> Any:
    """+1 for a win, 0 for a draw, -1 for a loss; rock, paper, scissors = 0, 1, 2, and each
    hand beats the one before it."""
    return (mine - theirs + 1) % HANDS - 1


class NoisyRPSChain(IndexedEnvironment[ChainParams]):
    """-0.1 a chain step, +10 at the goal; in the gadget +1, 0 or -1, less a toll of 1."""

    num_states = STATES

    @property
    def default_params(self) -> ChainParams:
        """Detours three times in ten, reward noise 0.5, 60 steps."""
        return ChainParams()

    @property
    def num_actions(self) -> int:
        """Back, forward, stay; or rock, paper, scissors."""
        return 3

    def step_env(
        self, key: Array, state: IndexState, action: Any, params: ChainParams
    ) -> StepResult:
        """One move on the chain or one hand in the gadget."""
        key_move, key_noise = jax.random.split(key)
        chance, choice = jax.random.uniform(key_move, (2,))
        index, action = state.index, jnp.asarray(action, jnp.int32)

        slot, hand = (index - CHAIN) // HANDS, (index - CHAIN) % HANDS
        rejoin = jnp.asarray(DETOURS, jnp.int32)[jnp.clip(slot, 0, len(DETOURS) - 1)]
        turned = CHAIN + slot * HANDS + (hand + 1) % HANDS
        after_hand = jnp.where(chance < REJOIN_CHANCE, rejoin, turned)

        on_chain = index < CHAIN
        place = jnp.minimum(index, CHAIN - 1)
        detour_slot = jnp.asarray(_DETOUR_SLOT)[place]
        detours = (detour_slot >= 0) & (chance < params.eta)
        drawn = jnp.minimum((HANDS * choice).astype(jnp.int32), HANDS - 1)
        moved = jnp.asarray(_MOVE, jnp.int32)[place, action]
        after_move = jnp.where(detours, CHAIN + detour_slot * HANDS + drawn, moved)

        following = self.at(jnp.where(on_chain, after_move, after_hand), state.time + 1)
        terminated = self.is_terminated(following, params)
        expected = jnp.where(
            on_chain,
            jnp.where(terminated, GOAL_REWARD, 0.0) - STEP_COST,
            hand_score(action, hand) - GADGET_TOLL,
        )
        reward = expected + params.sigma * jax.random.normal(key_noise)
        observation = self.observation_of(following.index, params)
        return observation, following, reward.astype(jnp.float32), terminated, {}

    def reset_env(self, key: Array, params: ChainParams) -> tuple[Array, IndexState]:
        """The far end of the chain."""
        state = self.at(jnp.int32(CHAIN - 1))
        return self.observation_of(state.index, params), state

    def is_terminated(self, state: IndexState, params: ChainParams) -> Bool[Array, ""]:
        """Whether the distance to the goal is 0."""
        return state.index == 0

    def observation_of(self, code: Int[Array, ""], params: ChainParams) -> Float[Array, "16"]:
        """One-hot of the 13 positions, then one-hot of the place to rejoin (0 on the chain)."""
        return jnp.asarray(_OBSERVATIONS)[code]

    def finite_mdp(self, params: ChainParams) -> FiniteMDP:
        """Branches: on the chain the move and three hands; in the gadget rejoin and turn."""
        eta = float(params.eta)
        successors = np.zeros((STATES, 3, 1 + HANDS), np.int32)
        probabilities = np.zeros((STATES, 3, 1 + HANDS), np.float32)
        rewards = np.zeros((STATES, 3, 1 + HANDS), np.float32)
        for place in range(1, CHAIN):
            successors[place, :, 0] = _MOVE[place]
            probabilities[place, :, 0] = 1.0
            rewards[place] = -STEP_COST
            if place in DETOURS:
                first = CHAIN + DETOURS.index(place) * HANDS
                successors[place, :, 1:] = first + np.arange(HANDS)
                probabilities[place] = [1.0 - eta] + [eta / HANDS] * HANDS
        rewards[1, FORWARD, 0] += GOAL_REWARD
        for slot, place in enumerate(DETOURS):
            for hand in range(HANDS):
                state = CHAIN + slot * HANDS + hand
                successors[state, :, 0] = place
                successors[state, :, 1] = CHAIN + slot * HANDS + (hand + 1) % HANDS
                probabilities[state, :, :2] = [REJOIN_CHANCE, 1.0 - REJOIN_CHANCE]
                rewards[state] = (hand_score(np.arange(HANDS), hand) - GADGET_TOLL)[:, None]
        probabilities[0, :, 0] = 1.0
        return FiniteMDP(
            successors=jnp.asarray(successors),
            probabilities=jnp.asarray(probabilities),
            rewards=jnp.asarray(rewards),
            terminated=jnp.asarray(successors == 0),
            start=jnp.asarray(np.arange(STATES) == CHAIN - 1, jnp.float32),
            horizon=int(params.max_steps_in_episode),
        )

    def action_space(self, params: ChainParams | None = None) -> spaces.Discrete:
        """Back, forward, stay; or rock, paper, scissors."""
        return spaces.Discrete(3)

    def observation_space(self, params: ChainParams) -> spaces.Box:
        """Two one-hot parts, 13 and 3."""
        return one_hot_space(CHAIN + HANDS + len(DETOURS))

    def render(self, state: IndexState, params: ChainParams) -> UInt8[np.ndarray, "height width 3"]:
        """The chain below (goal at the right), each detour's three hands above its state."""
        chain = [(HANDS, CHAIN - 1 - distance) for distance in range(CHAIN)]
        hands = [(hand, CHAIN - 1 - place) for place in DETOURS for hand in range(HANDS)]
        return squares_picture(chain + hands, int(state.index), goals=(0,))


def _detour_slots() -> Int[np.ndarray, " chain"]:
    slots = np.full(CHAIN, -1, np.int32)
    slots[list(DETOURS)] = np.arange(len(DETOURS))
    return slots


def _observation_table() -> Float[np.ndarray, "states 16"]:
    table = np.zeros((STATES, CHAIN + HANDS + len(DETOURS)), np.float32)
    table[np.arange(CHAIN), np.arange(CHAIN)] = 1.0
    gadget = np.arange(len(DETOURS) * HANDS)
    table[CHAIN + gadget, CHAIN + gadget % HANDS] = 1.0
    table[CHAIN + gadget, CHAIN + HANDS + gadget // HANDS] = 1.0
    return table


_DETOUR_SLOT = _detour_slots()
_OBSERVATIONS = _observation_table()
