"""Grid tasks cell by cell: the values of an agent beside those of dynamic programming."""

from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jaxtyping import Bool, Float, Int

from gcr_rl import envs
from gcr_rl.config import Config
from gcr_rl.envs.base import IndexedEnvironment
from gcr_rl.envs.dihedral import MOVES
from gcr_rl.envs.external import is_external
from gcr_rl.envs.finite import optimal_q
from gcr_rl.evaluation.rollouts import EXACT_STATE_LIMIT
from gcr_rl.inspection.snapshot import Snapshot

_NEARLY = 1e-4
"""Actions whose optimal values differ by less than this share of the largest |Q*| are alike."""


@dataclass(frozen=True)
class Grid:
    """The states of one scenery (one orientation of the map): ``states[i]`` stands on
    ``cells[i]`` = row · columns + column."""

    states: Int[np.ndarray, " n"]
    cells: Int[np.ndarray, " n"]
    walls: Bool[np.ndarray, "rows columns"]
    ends: Bool[np.ndarray, " n"]
    observations: Any
    mdp: Any

    @property
    def columns(self) -> int:
        """Cells in a row."""
        return self.walls.shape[1]


@dataclass(frozen=True)
class ValueMap:
    """Q of an agent and Q* on the same states."""

    grid: Grid
    q: Float[np.ndarray, "n actions"]
    optimal: Float[np.ndarray, "n actions"]

    @property
    def best(self) -> Bool[np.ndarray, "n actions"]:
        """Which actions are optimal, ties included."""
        close = _NEARLY * max(float(np.abs(self.optimal).max()), 1e-12)
        return self.optimal >= self.optimal.max(axis=1, keepdims=True) - close

    @property
    def right(self) -> Bool[np.ndarray, " n"]:
        """Where the agent's greedy action is optimal."""
        return self.best[np.arange(len(self.q)), self.q.argmax(axis=1)]

    def data(self) -> dict[str, Any]:
        """Plain data for a JSON file; goals count neither way."""
        live = ~self.grid.ends
        gap = np.abs(self.q.max(axis=1) - self.optimal.max(axis=1))[live]
        return {
            "cells": int(live.sum()),
            "greedy_action_optimal": float(self.right[live].mean()),
            "mean_value_error": float(gap.mean()),
            "largest_value_error": float(gap.max()),
        }


def grid_of(config: Config) -> Grid | None:
    """The grid of a task, in the orientation of its first state; None for other tasks.

    A grid task is finite, has the four moves, and the last plane of an observation shows the
    agent; the other planes are the scenery.
    """
    if is_external(config.task):
        return None
    environment, params = envs.make(config.task, **config.env)
    if not isinstance(environment, IndexedEnvironment) or environment.num_actions != len(MOVES):
        return None
    mdp = environment.finite_mdp(params)
    shape = environment.observation_space(params).shape
    if mdp is None or len(shape) != 3 or environment.num_states > EXACT_STATE_LIMIT:
        return None
    planes = np.asarray(environment.observations(params))
    if (planes[..., -1].sum(axis=(1, 2)) != 1).any():
        return None
    scenery = planes[..., :-1].reshape(len(planes), -1)
    states = np.flatnonzero((scenery == scenery[0]).all(axis=1))
    return Grid(
        states=states,
        cells=planes[states, ..., -1].reshape(len(states), -1).argmax(axis=1),
        walls=planes[0, ..., 0] > 0,
        ends=np.asarray(np.asarray(mdp.terminated).all(axis=(1, 2)))[states],
        observations=planes[states],
        mdp=mdp,
    )


def value_map(snapshot: Snapshot, grid: Grid) -> ValueMap:
    """Q of the snapshot's agent and Q* by value iteration, at the run's discount."""
    optimal = np.asarray(optimal_q(grid.mdp, snapshot.config.value.discount))
    q = np.asarray(snapshot.q_values(jax.numpy.asarray(grid.observations)))
    return ValueMap(grid, q, optimal[grid.states])
