"""E1, RotMirrorGrid: one map in eight orientations (paper, app:envs).

Every episode draws an orientation and a start cell, uniformly among the free cells other
than the goal. With ``p_asym * epsilon`` = 0 the MDP is exactly invariant under all eight
(T_g, relabelling_g); otherwise the absolute action "right" slips to the absolute side "up"
with that probability, which is then the total-variation distance to symmetry.
"""

from functools import lru_cache, partial
from importlib.resources import files
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from gymnax.environments import spaces
from gymnax.environments.environment import EnvParams
from jaxtyping import Array, Bool, Int, UInt8

from gcr_rl.envs import dihedral
from gcr_rl.envs.base import (
    Amount,
    Count,
    IndexedEnvironment,
    IndexState,
    PlantedSymmetry,
    StepResult,
    planes_space,
)
from gcr_rl.envs.drawing import planes_picture
from gcr_rl.envs.finite import FiniteMDP

ORIENTATIONS = 8
SIZE = 19


@struct.dataclass
class RotMirrorParams(EnvParams):
    """A step slips with probability ``p_asym * epsilon``, if its action is "right"."""

    max_steps_in_episode: Count = 200
    p_asym: Amount = 0.0
    epsilon: Amount = 0.0


class GridTables(NamedTuple):
    """State = orientation * cells + free cell of the unrotated map."""

    successors: Int[np.ndarray, "states 4"]
    position: Int[np.ndarray, " states"]
    scenery: UInt8[np.ndarray, "8 19 19 2"]
    goal: Bool[np.ndarray, " states"]
    starts: Int[np.ndarray, " starts"]


@lru_cache(maxsize=1)
def read_map() -> tuple[Bool[np.ndarray, "19 19"], tuple[int, int]]:
    """The walls and the goal of ``rotmirror_map.txt``."""
    lines = files("gcr_rl.envs").joinpath("rotmirror_map.txt").read_text().split()
    letters = np.array([list(line) for line in lines])
    row, column = np.argwhere(letters == "G")[0]
    return letters == "#", (int(row), int(column))


def grid_successors(walls: Bool[np.ndarray, "rows columns"]) -> Int[np.ndarray, "cells 4"]:
    """Where each of the four moves leads, over flat cells; blocked moves stay."""
    rows, columns = walls.shape
    cells = np.arange(rows * columns)
    result = np.empty((rows * columns, 4), np.int32)
    for action, (down, right) in enumerate(dihedral.MOVES):
        row, column = cells // columns + down, cells % columns + right
        inside = (row >= 0) & (row < rows) & (column >= 0) & (column < columns)
        target = np.where(inside, row * columns + column, cells)
        result[:, action] = np.where(walls.ravel()[target], cells, target)
    return result


@lru_cache(maxsize=1)
def grid_tables() -> GridTables:
    """The transition and observation tables of all orientations."""
    walls, goal = read_map()
    cell_numbers = np.arange(SIZE * SIZE).reshape(SIZE, SIZE)
    free = np.flatnonzero(~walls.ravel())
    number_of = np.full(SIZE * SIZE, -1)
    number_of[free] = np.arange(len(free))
    goal_plane = cell_numbers == goal[0] * SIZE + goal[1]

    successors, positions, scenery = [], [], []
    for element in range(ORIENTATIONS):
        turned_numbers = dihedral.transform(element, cell_numbers).ravel()
        place = np.empty(SIZE * SIZE, np.int32)
        place[turned_numbers] = np.arange(SIZE * SIZE)
        moved = grid_successors(dihedral.transform(element, walls))[place[free]]
        successors.append(element * len(free) + number_of[turned_numbers[moved]])
        positions.append(place[free])
        planes = np.stack([walls, goal_plane], axis=-1).astype(np.uint8)
        scenery.append(dihedral.transform(element, planes))

    at_goal = np.tile(free == goal[0] * SIZE + goal[1], ORIENTATIONS)
    table = np.concatenate(successors).astype(np.int32)
    table[at_goal] = np.flatnonzero(at_goal)[:, None]
    return GridTables(
        successors=table,
        position=np.concatenate(positions),
        scenery=np.stack(scenery),
        goal=at_goal,
        starts=np.flatnonzero(~at_goal).astype(np.int32),
    )


class RotMirrorGrid(IndexedEnvironment[RotMirrorParams]):
    """19x19 grid, planes wall/goal/agent, -1 a step, 0 on reaching the goal, which ends it."""

    def __init__(self) -> None:
        super().__init__()
        self.tables = grid_tables()
        self.num_states = len(self.tables.position)
        self.cells = self.num_states // ORIENTATIONS

    @property
    def default_params(self) -> RotMirrorParams:
        """No asymmetry, 200 steps."""
        return RotMirrorParams()

    @property
    def num_actions(self) -> int:
        """Up, down, left, right."""
        return 4

    def step_env(
        self, key: Array, state: IndexState, action: Any, params: RotMirrorParams
    ) -> StepResult:
        """Move; "right" becomes "up" with probability p_asym * epsilon."""
        action = jnp.asarray(action, jnp.int32)
        slips = (action == dihedral.RIGHT) & (
            jax.random.uniform(key) < params.p_asym * params.epsilon
        )
        made = jnp.where(slips, dihedral.UP, action)
        index = jnp.asarray(self.tables.successors)[state.index, made]
        following = self.at(index, state.time + 1)
        terminated = self.is_terminated(following, params)
        reward = jnp.where(terminated, 0.0, -1.0).astype(jnp.float32)
        return self.observation_of(index, params), following, reward, terminated, {}

    def reset_env(self, key: Array, params: RotMirrorParams) -> tuple[Array, IndexState]:
        """One of eight orientations and a free cell other than the goal, uniformly."""
        starts = jnp.asarray(self.tables.starts)
        state = self.at(starts[jax.random.randint(key, (), 0, len(starts))])
        return self.observation_of(state.index, params), state

    def is_terminated(self, state: IndexState, params: RotMirrorParams) -> Bool[Array, ""]:
        """Whether the agent stands on the goal."""
        return jnp.asarray(self.tables.goal)[state.index]

    def observation_of(
        self, code: Int[Array, ""], params: RotMirrorParams
    ) -> UInt8[Array, "19 19 3"]:
        """Planes wall, goal, agent."""
        scenery = jnp.asarray(self.tables.scenery)[code // self.cells]
        position = jnp.asarray(self.tables.position)[code]
        agent = jnp.arange(SIZE * SIZE, dtype=jnp.int32).reshape(SIZE, SIZE, 1) == position
        return jnp.concatenate([scenery, agent.astype(jnp.uint8)], axis=-1)

    def finite_mdp(self, params: RotMirrorParams) -> FiniteMDP:
        """Branch 0 is the move, branch 1 (present only if steps can slip) the slip."""
        slip = float(params.p_asym) * float(params.epsilon)
        successors, goal = self.tables.successors[:, :, None], self.tables.goal
        probabilities = np.ones_like(successors, np.float32)
        if slip > 0:
            slippery = np.arange(4)[:, None] == dihedral.RIGHT
            slipped = np.where(slippery, successors[:, [dihedral.UP]], successors)
            successors = np.concatenate([successors, slipped], axis=2)
            chance = np.where(slippery[:, 0], slip, 0.0)
            probabilities = np.broadcast_to(np.stack([1 - chance, chance], -1), successors.shape)
        terminated = goal[successors]
        return FiniteMDP(
            successors=jnp.asarray(successors, jnp.int32),
            probabilities=jnp.asarray(probabilities, jnp.float32),
            rewards=jnp.where(terminated, 0.0, -1.0),
            terminated=jnp.asarray(terminated),
            start=jnp.asarray(np.where(goal, 0.0, 1.0 / np.sum(~goal)), jnp.float32),
            horizon=int(params.max_steps_in_episode),
        )

    def planted_symmetries(self, params: RotMirrorParams) -> list[PlantedSymmetry]:
        """All of D4 while no step can slip; the identity alone otherwise."""
        broken = float(params.p_asym) * float(params.epsilon) > 0
        return [
            PlantedSymmetry(
                dihedral.NAMES[element],
                partial(dihedral.transform, element),
                dihedral.relabelling(element),
            )
            for element in range(1 if broken else ORIENTATIONS)
        ]

    def action_space(self, params: RotMirrorParams | None = None) -> spaces.Discrete:
        """Up, down, left, right."""
        return spaces.Discrete(4)

    def observation_space(self, params: RotMirrorParams) -> spaces.Box:
        """Three planes of 0 and 1."""
        return planes_space(SIZE, SIZE, 3)

    def render(
        self, state: IndexState, params: RotMirrorParams
    ) -> UInt8[np.ndarray, "height width 3"]:
        """Walls grey, goal green, agent red."""
        return planes_picture(np.asarray(self.observation_of(state.index, params)))
