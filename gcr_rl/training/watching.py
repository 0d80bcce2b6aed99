"""Certificates on their schedule: between chunks the host judges each seed's newest transitions
and puts the group that follows into the agents' states."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp

from gcr_rl.agents.symmetric import without_fold
from gcr_rl.config import Config
from gcr_rl.errors import InputError
from gcr_rl.symmetry import (
    Evidence,
    Group,
    Schedule,
    SortingGroup,
    Standing,
    due,
    init_standing,
    recovered,
)
from gcr_rl.symmetry.enforcement import check_all, evidence_of, groups_in_force, latest_rows
from gcr_rl.symmetry.watch import standing_data, standing_from
from gcr_rl.training.loop import Program
from gcr_rl.training.state import TrainState


class Watch:
    """The standings of all seeds; inert without a vocabulary."""

    def __init__(self, config: Config, program: Program) -> None:
        self._config, self._decode = config, program.decode
        self._vocabulary, self._actions = program.agent.vocabulary, program.agent.num_actions
        symmetry = config.symmetry
        self._schedule = Schedule(
            symmetry.first_check, symmetry.pause, longest=symmetry.longest_pause
        )
        self.standings: list[Standing] = []
        if self._vocabulary is not None:
            blank = init_standing(self._vocabulary, self._actions, self._schedule)
            self.standings = [blank] * len(config.seeds)

    def after(self, state: TrainState, step: int) -> TrainState:
        """The state at ``step`` with the groups that are in force from now on."""
        vocabulary = self._vocabulary
        if vocabulary is None or not any(due(standing, step) for standing in self.standings):
            return state
        before = self._enforced()
        self.standings = check_all(
            self.standings, lambda i: self._evidence(state, i), step,
            vocabulary, self._actions, self._schedule,
        )  # fmt: skip
        if before == self._enforced():
            return state
        provisional = self._config.symmetry.provisional
        group = without_fold(
            groups_in_force(
                self.standings, vocabulary, self._actions, provisional=provisional
            ).group
        )
        if not self._config.symmetry.relabel:
            group = _keeping_actions(group)
        return state._replace(agent=state.agent._replace(group=group))

    def _enforced(self) -> list[dict[int, list[int]]]:
        """Of every seed the transforms that the configuration lets count, with relabellings."""
        provisional = self._config.symmetry.provisional
        return [standing.relabellings(provisional) for standing in self.standings]

    def _evidence(self, state: TrainState, place: int) -> Evidence:
        """The newest transitions of one seed."""
        window, replay = self._config.symmetry.window, state.replay
        count = window // self._config.loop.num_envs
        rows = latest_rows(replay.rows, int(replay.cursor), int(replay.size), count, place)
        return evidence_of(rows, self._decode, latest=window)

    def log(self, place: int) -> dict[str, float]:
        """What a row of the log says of one seed's certificates."""
        if not self.standings:
            return {}
        standing = self.standings[place]
        return {
            "symmetry_in_force": float(standing.in_force.sum()),
            "symmetry_certified": float(standing.certified.sum()),
            "symmetry_revoked": float(standing.revoked.sum()),
            "symmetry_checks": float(standing.checks),
        }

    def summary(self) -> dict[str, Any]:
        """The recovered group of every seed, for summary.json."""
        vocabulary = self._vocabulary
        if vocabulary is None:
            return {}
        found = [recovered(one, vocabulary, self._actions).data() for one in self.standings]
        return {"symmetry": dict(zip(map(str, self._config.seeds), found, strict=True))}

    def note(self) -> list[dict[str, Any]]:
        """The standings as plain data: what a resumed run begins with."""
        return [standing_data(standing) for standing in self.standings]

    def restore(self, note: Any) -> None:
        """The inverse of :meth:`note`."""
        if not self.standings:
            return
        if not isinstance(note, list) or len(note) != len(self.standings):
            raise InputError("checkpoint", "no standings", "the certificates of every seed")
        assert self._vocabulary is not None
        self.standings = [standing_from(one, self._vocabulary, self._actions) for one in note]


def _keeping_actions(group: Group | SortingGroup) -> Group | SortingGroup:
    """The same transforms without their relabelling."""
    if isinstance(group, SortingGroup):
        return eqx.tree_at(lambda g: g.actions, group, jnp.full_like(group.actions, -1))
    actions = jnp.arange(group.relabel.shape[-1], dtype=group.relabel.dtype)  # [seeds, g, actions]
    return eqx.tree_at(lambda g: g.relabel, group, jnp.broadcast_to(actions, group.relabel.shape))
