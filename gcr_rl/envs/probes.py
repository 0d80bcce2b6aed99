"""Tiny MDPs with a known answer: a group, an order, a cycle, no symmetry, two states."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from gymnax.environments import spaces
from gymnax.environments.environment import EnvParams
from jaxtyping import Array, Bool, Float, Int, Shaped, UInt8

from gcr_rl.envs import dihedral
from gcr_rl.envs.base import (
    Count,
    IndexedEnvironment,
    IndexState,
    PlantedSymmetry,
    StepResult,
    one_hot_space,
    planes_space,
)
from gcr_rl.envs.drawing import planes_picture, squares_picture
from gcr_rl.envs.finite import FiniteMDP
from gcr_rl.envs.rotmirror import grid_successors

GRID = 5
LATTICE = 4
FIRST_COST, SECOND_COST = 1.0, 2.0


@struct.dataclass
class ProbeParams(EnvParams):
    """A probe is its tables; only the horizon can be chosen."""

    max_steps_in_episode: Count = 30


class TableEnvironment(IndexedEnvironment[ProbeParams]):
    """Any FiniteMDP as an environment: branches are drawn with the table's probabilities."""

    def __init__(
        self,
        name: str,
        mdp: FiniteMDP,
        observations: Shaped[np.ndarray, "states *shape"],
        picture_places: Sequence[tuple[int, int]] = (),
        symmetries: Sequence[PlantedSymmetry] = (),
        order: Sequence[tuple[int, int]] = (),
    ) -> None:
        super().__init__()
        self._name, self._mdp, self._observations = name, mdp, observations
        self._places, self._symmetries, self._order = picture_places, symmetries, order
        self.num_states = len(observations)
        self._terminal = np.asarray(mdp.terminated).all(axis=(1, 2))

    @property
    def name(self) -> str:
        """The task's name."""
        return self._name

    @property
    def default_params(self) -> ProbeParams:
        """The horizon of the probe's definition."""
        return ProbeParams(max_steps_in_episode=self._mdp.horizon)

    @property
    def num_actions(self) -> int:
        """Number of actions."""
        return int(self._mdp.successors.shape[1])

    def step_env(
        self, key: Array, state: IndexState, action: Any, params: ProbeParams
    ) -> StepResult:
        """Draw a branch of (state, action) and look its outcome up."""
        mdp, row = self._mdp, (state.index, jnp.asarray(action, jnp.int32))
        below = jnp.cumsum(mdp.probabilities[row])[:-1]
        branch = jnp.sum(jax.random.uniform(key) >= below) if below.size else 0
        outcome = (*row, branch)
        following = self.at(mdp.successors[outcome], state.time + 1)
        observation = self.observation_of(following.index, params)
        return observation, following, mdp.rewards[outcome], mdp.terminated[outcome], {}

    def reset_env(self, key: Array, params: ProbeParams) -> tuple[Array, IndexState]:
        """Draw a start state."""
        index = jax.random.choice(key, self.num_states, p=self._mdp.start)
        state = self.at(index)
        return self.observation_of(state.index, params), state

    def is_terminated(self, state: IndexState, params: ProbeParams) -> Bool[Array, ""]:
        """Whether every branch of the state is an end."""
        return jnp.asarray(self._terminal)[state.index]

    def observation_of(self, code: Int[Array, ""], params: ProbeParams) -> Array:
        """A row of the observation table."""
        return jnp.asarray(self._observations)[code]

    def finite_mdp(self, params: ProbeParams) -> FiniteMDP:
        """The table itself, with the horizon asked for."""
        return self._mdp._replace(horizon=int(params.max_steps_in_episode))

    def planted_symmetries(self, params: ProbeParams) -> list[PlantedSymmetry]:
        """The automorphisms of the definition, the identity first; [] where none is stated."""
        return list(self._symmetries)

    def planted_order(self, params: ProbeParams) -> list[tuple[int, int]]:
        """Pairs (upper, lower) of states with V*(upper) > V*(lower); [] where none is stated."""
        return list(self._order)

    def action_space(self, params: ProbeParams | None = None) -> spaces.Discrete:
        """All actions, in every state."""
        return spaces.Discrete(self.num_actions)

    def observation_space(self, params: ProbeParams) -> spaces.Box:
        """One-hot vectors or planes."""
        if self._observations.ndim == 2:
            return one_hot_space(self._observations.shape[1])
        return planes_space(*self._observations.shape[1:])

    def render(self, state: IndexState, params: ProbeParams) -> UInt8[np.ndarray, "height width 3"]:
        """Planes as cells; one-hot states as squares."""
        if self._observations.ndim == 4:
            return planes_picture(self._observations[int(state.index)], cell=20)
        return squares_picture(
            self._places, int(state.index), np.flatnonzero(self._terminal).tolist()
        )


def table(
    outcome: Callable[[int, int], list[tuple[float, int, float, bool]]],
    actions: int,
    start: Shaped[np.ndarray, " states"],
    horizon: int,
) -> FiniteMDP:
    """A FiniteMDP from ``outcome(state, action) -> [(probability, successor, reward, end)]``."""
    rows = [[outcome(state, action) for action in range(actions)] for state in range(len(start))]
    width = max(len(branches) for row in rows for branches in row)
    shape = (len(start), actions, width)
    probability, successor = np.zeros(shape, np.float32), np.zeros(shape, np.int32)
    reward, end = np.zeros(shape, np.float32), np.zeros(shape, bool)
    for place in np.ndindex(*shape):
        branches = rows[place[0]][place[1]]
        if place[2] < len(branches):
            probability[place], successor[place], reward[place], end[place] = branches[place[2]]
        else:  # a branch that never happens must not make its state look alive
            successor[place], end[place] = branches[0][1], branches[0][3]
    share = np.asarray(start, np.float64) / np.sum(start)
    return FiniteMDP(
        successors=jnp.asarray(successor),
        probabilities=jnp.asarray(probability),
        rewards=jnp.asarray(reward),
        terminated=jnp.asarray(end),
        start=jnp.asarray(share, jnp.float32),
        horizon=horizon,
    )


def two_state() -> TableEnvironment:
    """State 0: 0 stays, 1 goes to state 1. State 1: 0 ends with +1, 1 goes back to state 0.

    Q*(0,·) = (g^2, g) and Q*(1,·) = (1, g^2) for discount g.
    """
    outcomes = {
        (0, 0): (1.0, 0, 0.0, False),
        (0, 1): (1.0, 1, 0.0, False),
        (1, 0): (1.0, 2, 1.0, True),
        (1, 1): (1.0, 0, 0.0, False),
    }
    mdp = table(
        lambda state, action: [outcomes.get((state, action), (1.0, 2, 0.0, True))],
        actions=2,
        start=np.array([1.0, 0.0, 0.0]),
        horizon=10,
    )
    places = [(0, column) for column in range(3)]
    return TableEnvironment("Probe-TwoState", mdp, np.eye(3, dtype=np.float32), places)


def known_order() -> TableEnvironment:
    """A 4x4 lattice: action 0 raises the first coordinate for 1, action 1 the second for 2.

    V*(i, j) = -(3 - i) - 2 (3 - j): strictly monotone in the product order, whose covering
    relations are ``planted_order``; states that it does not compare may have any order.
    """
    top = LATTICE - 1

    def outcome(state: int, action: int) -> list[tuple[float, int, float, bool]]:
        i, j = divmod(state, LATTICE)
        if (i, j) == (top, top):
            return [(1.0, state, 0.0, True)]
        i, j = (min(i + 1, top), j) if action == 0 else (i, min(j + 1, top))
        cost = FIRST_COST if action == 0 else SECOND_COST
        return [(1.0, i * LATTICE + j, -cost, (i, j) == (top, top))]

    states = LATTICE * LATTICE
    mdp = table(outcome, actions=2, start=np.arange(states) < states - 1, horizon=20)
    covers = [(state + LATTICE, state) for state in range(states - LATTICE)]
    covers += [(state + 1, state) for state in range(states) if state % LATTICE < top]
    places = [(top - state // LATTICE, state % LATTICE) for state in range(states)]
    one_hot = np.eye(states, dtype=np.float32)
    return TableEnvironment("Probe-Order", mdp, one_hot, places, order=covers)


def _turn_ring(turn: int, one_hot: Float[np.ndarray, "4"]) -> Float[np.ndarray, "4"]:
    """State s of the ring becomes s + turn; the end stays."""
    return np.concatenate([np.roll(np.asarray(one_hot)[:3], turn), one_hot[3:]])


def injected_cycle() -> TableEnvironment:
    """A ring of three equal states. Action 0 moves on and pays +1 or -1.5 with equal chance,
    action 1 ends with +1.

    V* = 1 everywhere, yet lucky moves say that every state beats the next: a cycle of
    evidence without any true order in it. Turning the ring is an automorphism.
    """

    def outcome(state: int, action: int) -> list[tuple[float, int, float, bool]]:
        if state == 3:
            return [(1.0, 3, 0.0, True)]
        if action == 1:
            return [(1.0, 3, 1.0, True)]
        following = (state + 1) % 3
        return [(0.5, following, 1.0, False), (0.5, following, -1.5, False)]

    mdp = table(outcome, actions=2, start=np.array([1.0, 1.0, 1.0, 0.0]), horizon=10)
    turns = [
        PlantedSymmetry(
            f"turn by {turn}",
            partial(_turn_ring, turn),
            np.arange(2, dtype=np.int32),
        )
        for turn in range(3)
    ]
    places = [(0, 1), (1, 2), (1, 0), (2, 1)]
    return TableEnvironment("Probe-Cycle", mdp, np.eye(4, dtype=np.float32), places, turns)


def _grid_probe(
    name: str,
    goal: tuple[int, int],
    cost: Callable[[int], float],
    elements: Sequence[int],
    slides: bool = False,
    shows_goal: bool = True,
) -> TableEnvironment:
    """An open 5x5 grid; a blocked move stays, or slides to the right of its direction."""
    cells = GRID * GRID
    moved = grid_successors(np.zeros((GRID, GRID), bool))
    clockwise = np.array([dihedral.RIGHT, dihedral.LEFT, dihedral.UP, dihedral.DOWN])
    if slides:
        moved = np.where(moved == np.arange(cells)[:, None], moved[:, clockwise], moved)
    end = goal[0] * GRID + goal[1]

    def outcome(state: int, action: int) -> list[tuple[float, int, float, bool]]:
        if state == end:
            return [(1.0, end, 0.0, True)]
        following = int(moved[state, action])
        return [(1.0, following, 0.0 if following == end else -cost(state), following == end)]

    planes = np.zeros((cells, GRID, GRID, 3), np.uint8)
    planes[:, goal[0], goal[1], 1] = shows_goal
    planes[np.arange(cells), np.arange(cells) // GRID, np.arange(cells) % GRID, 2] = 1
    symmetries = [
        PlantedSymmetry(
            dihedral.NAMES[element],
            partial(dihedral.transform, element),
            dihedral.relabelling(element),
        )
        for element in elements
    ]
    mdp = table(outcome, actions=4, start=np.arange(cells) != end, horizon=30)
    return TableEnvironment(name, mdp, planes, symmetries=symmetries)


def known_c4() -> TableEnvironment:
    """Open 5x5 grid, goal in the centre, -1 a step; a blocked move slides clockwise, so the
    rotations are automorphisms and the mirror images, though their pictures occur, are not."""
    return _grid_probe("Probe-C4", (2, 2), lambda cell: 1.0, elements=range(4), slides=True)


def known_d4() -> TableEnvironment:
    """Open 5x5 grid, goal in the centre, -1 a step; all of D4, which is not abelian."""
    return _grid_probe("Probe-D4", (2, 2), lambda cell: 1.0, elements=range(8))


def no_symmetry() -> TableEnvironment:
    """Open 5x5 grid, an unseen goal off every axis, and leaving cell c costs 0.5 + c/24.

    No two cells are alike, so the identity is the only automorphism; yet every turned or
    mirrored picture is one that occurs, so nothing but rewards and ends can tell.
    """
    return _grid_probe(
        "Probe-NoSymmetry",
        (0, 3),
        lambda cell: 0.5 + cell / 24,
        elements=range(1),
        shows_goal=False,
    )
