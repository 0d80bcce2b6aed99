"""The certificate on a schedule: a window of transitions, checks that grow rarer, revocation.

The window is a pytree of fixed size, written under ``jit``; a check runs on the host and costs
about as much as :func:`discover`. What is in force stays in force while a window is silent
about it, and is revoked when a window contradicts it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, PRNGKeyArray

from gcr_rl.errors import InputError
from gcr_rl.symmetry.certificate import CertificateSettings, consistent
from gcr_rl.symmetry.discovery import Discovery, discover
from gcr_rl.symmetry.sample import Evidence
from gcr_rl.symmetry.vocabulary import Vocabulary


class Window(NamedTuple):
    """The last ``capacity`` transitions; ``seen`` counts all of them."""

    rows: Evidence
    seen: Int[Array, ""]


@dataclass(frozen=True)
class Schedule:
    """When to check: at ``first`` transitions, then after pauses that grow."""

    first: int = 500
    pause: int = 500
    growth: float = 1.25
    """Factor of the pause after a check that changed nothing."""
    settled_growth: float = 4.0
    """The same once something is certified and nothing is provisional."""
    refused_growth: float = 2.0
    """The same while nothing is in force and every transform was contradicted."""
    longest: int = 50_000

    def __post_init__(self) -> None:
        for field in ("first", "pause", "longest"):
            if getattr(self, field) < 1:
                raise InputError(field, getattr(self, field), "at least 1")
        for field in ("growth", "settled_growth", "refused_growth"):
            if getattr(self, field) < 1:
                raise InputError(field, getattr(self, field), "at least 1")


@dataclass(frozen=True, eq=False)
class Standing:
    """What is in force, since when, and when to look again."""

    relabel: Int[np.ndarray, "g actions"]
    certified: Bool[np.ndarray, " g"]
    provisional: Bool[np.ndarray, " g"]
    certified_at: Int[np.ndarray, " g"]
    """Transitions seen at the first full certificate now in force, -1 without one."""
    accepted_at: Int[np.ndarray, " g"]
    """The same for a certificate of either kind."""
    revoked: Int[np.ndarray, " g"]
    """How often the element was revoked."""
    next_check: int
    pause: int
    checks: int
    discovery: Discovery | None
    """The latest check."""

    @property
    def in_force(self) -> Bool[np.ndarray, " g"]:
        """Certified or provisional."""
        return self.certified | self.provisional

    def relabellings(self, provisional: bool = True) -> dict[int, list[int]]:
        """{element: relabelling} for :func:`gcr_rl.symmetry.generate`."""
        chosen = self.in_force if provisional else self.certified
        return {int(g): self.relabel[g].tolist() for g in np.flatnonzero(chosen)}

    def log(self) -> dict[str, float]:
        """Plain numbers: what is in force, and every statistic of the latest check."""
        found = {
            "in_force": float(self.in_force.sum()),
            "in_force_certified": float(self.certified.sum()),
            "revoked": float(self.revoked.sum()),
            "checks": float(self.checks),
            "next_check": float(self.next_check),
        }
        return found | (self.discovery.log() if self.discovery else {})


def standing_data(standing: Standing) -> dict[str, Any]:
    """Plain data for a JSON file; the latest check's statistics are left out."""
    arrays = ("relabel", "certified", "provisional", "certified_at", "accepted_at", "revoked")
    found: dict[str, Any] = {name: getattr(standing, name).tolist() for name in arrays}
    return found | {name: getattr(standing, name) for name in ("next_check", "pause", "checks")}


def standing_from(data: Mapping[str, Any], vocabulary: Vocabulary, num_actions: int) -> Standing:
    """The inverse of :func:`standing_data`, for a run that goes on; ``discovery`` is None."""
    empty = init_standing(vocabulary, num_actions)
    found: dict[str, Any] = {}
    for field in fields(Standing):
        if field.name == "discovery":
            continue
        if field.name not in data:
            raise InputError("standing", sorted(data), f"a field {field.name}")
        blank = getattr(empty, field.name)
        value = np.asarray(data[field.name], getattr(blank, "dtype", int))
        if value.shape != np.shape(blank):
            raise InputError(field.name, value.shape, f"the vocabulary's {np.shape(blank)}")
        found[field.name] = int(value) if isinstance(blank, int) else value
    return Standing(**found, discovery=None)


def init_window(capacity: int, observation: Any) -> Window:
    """An empty window for observations like ``observation``."""
    if capacity < 1:
        raise InputError("capacity", capacity, "at least 1")
    example = jnp.asarray(observation)
    blank = jnp.zeros((capacity, *example.shape), example.dtype)
    flag, number = jnp.zeros(capacity, bool), jnp.zeros(capacity, jnp.int32)
    rows = Evidence(blank, number, jnp.zeros(capacity), blank, flag, flag, number)  # type: ignore[arg-type]
    return Window(rows, jnp.int32(0))


def record(window: Window, row: Evidence) -> Window:
    """The window with one more transition, the oldest one overwritten; for use under ``jit``."""
    capacity = window.rows.action.shape[0]
    place = window.seen % capacity
    rows = jax.tree.map(lambda kept, new: kept.at[place].set(new), window.rows, row)
    return Window(rows, window.seen + 1)


def ordered(window: Window) -> Evidence:
    """The recorded transitions, oldest first, as host arrays."""
    capacity, seen = window.rows.action.shape[0], int(window.seen)
    order = (np.arange(min(seen, capacity)) + max(seen - capacity, 0)) % capacity
    return Evidence(*(np.asarray(part)[order] for part in window.rows))


def init_standing(
    vocabulary: Vocabulary, num_actions: int, schedule: Schedule | None = None
) -> Standing:
    """Nothing is in force."""
    schedule = schedule or Schedule()
    size = vocabulary.size
    never, none = np.full(size, -1), np.zeros(size, bool)
    table = np.tile(np.arange(num_actions, dtype=np.int32), (size, 1))
    return Standing(
        table, none, none, never, never, np.zeros(size, int), schedule.first, schedule.pause, 0,
        None,
    )  # fmt: skip


def due(standing: Standing, seen: int) -> bool:
    """Whether it is time to check."""
    return seen >= standing.next_check


def check(
    standing: Standing,
    window: Window,
    vocabulary: Vocabulary,
    num_actions: int,
    schedule: Schedule | None = None,
    settings: CertificateSettings | None = None,
    *,
    key: PRNGKeyArray | None = None,
) -> Standing:
    """Judge the window and bring the standing up to date."""
    found = discover(ordered(window), vocabulary, num_actions, settings, key=key)
    return update(standing, found, int(window.seen), vocabulary, schedule)


def update(
    standing: Standing,
    found: Discovery,
    seen: int,
    vocabulary: Vocabulary,
    schedule: Schedule | None = None,
) -> Standing:
    """The standing after one more discovery, which may add, promote and revoke."""
    schedule = schedule or Schedule()
    accepted = found.certified | found.provisional
    refused = found.disproved & ~accepted
    relabel = np.where(accepted[:, None], found.relabel, standing.relabel)
    kept = consistent(vocabulary, relabel, (standing.in_force & ~refused) | accepted, refused)
    certified = kept & (found.certified | standing.certified)
    revoked = standing.in_force & ~kept
    changed = (kept != standing.in_force).any() or (certified != standing.certified).any()
    provisional = kept & ~certified
    growth = _growth(schedule, found, certified, provisional)
    pause = schedule.pause if changed else min(int(standing.pause * growth), schedule.longest)
    return replace(
        standing,
        relabel=relabel.astype(np.int32),
        certified=certified,
        provisional=provisional,
        certified_at=_since(certified, standing.certified_at, seen),
        accepted_at=_since(kept, standing.accepted_at, seen),
        revoked=standing.revoked + revoked,
        next_check=seen + pause,
        pause=pause,
        checks=standing.checks + 1,
        discovery=found,
    )


def _growth(
    schedule: Schedule,
    found: Discovery,
    certified: Bool[np.ndarray, " g"],
    provisional: Bool[np.ndarray, " g"],
) -> float:
    """How fast the pauses grow: slowly only while something is still open."""
    if certified.any() and not provisional.any():
        return schedule.settled_growth
    hopeless = (found.refused | found.trivial)[1:].all() and not provisional.any()
    return schedule.refused_growth if hopeless else schedule.growth


def _since(
    holds: Bool[np.ndarray, " g"], since: Int[np.ndarray, " g"], now: int
) -> Int[np.ndarray, " g"]:
    return np.where(holds, np.where(since >= 0, since, now), -1)
