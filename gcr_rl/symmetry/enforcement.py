"""What the certificates of all seeds put in force, as traced data for one compiled update.

Between two stretches of compiled training the host checks the seeds that are due and builds the
groups anew; shapes never change, so a certificate that arrives compiles nothing::

    standings = [init_standing(vocabulary, num_actions) for _ in seeds]
    in_force = groups_in_force(standings, vocabulary, num_actions)

    @jax.jit
    def train(states, in_force):  # leaves [seeds, ...]
        def one(state, in_force):
            q_fn = enforce(lambda o: network(state, o), in_force)
            ...
        return jax.vmap(one, in_axes=(0, seed_axes(in_force)))(states, in_force)

    while training:
        states = train(states, in_force)
        if any(due(standing, seen) for standing in standings):
            def evidence(i):
                ring = jax.tree.map(lambda leaf: leaf[i], replay.rows)
                rows = latest_rows(ring, replay.cursor, replay.size, evidence_size(vocabulary))
                return evidence_of(rows, decode)

            standings = check_all(standings, evidence, seen, vocabulary, num_actions)
            in_force = groups_in_force(standings, vocabulary, num_actions)
"""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache, reduce
from threading import Lock
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int, PRNGKeyArray

from gcr_rl.errors import InputError
from gcr_rl.symmetry.certificate import CertificateSettings
from gcr_rl.symmetry.codes import join, observation_codes
from gcr_rl.symmetry.discovery import discover
from gcr_rl.symmetry.distinct import Distinct, kinds_of
from gcr_rl.symmetry.group import Group, bucket_level, generate
from gcr_rl.symmetry.quotient import QFunction, Wrapper, bucketed, quotient
from gcr_rl.symmetry.sample import LONG_LIST, Evidence
from gcr_rl.symmetry.sorting import SortingGroup, sorting_group, sorting_quotient
from gcr_rl.symmetry.transforms import BlockGather
from gcr_rl.symmetry.vocabulary import Vocabulary
from gcr_rl.symmetry.watch import Schedule, Standing, due, update
from gcr_rl.types import Transition

MOST_AT_ONCE = 8
"""Seeds that are judged side by side: each has its window of observations in memory."""

PIECE = 1024
"""Rows that are read from a device at once."""

_ONE_AT_A_TIME = Lock()


class InForce(eqx.Module):
    """One group per seed, leaves [seeds, ...], and one level for all of them.

    ``level`` is the smallest bucket that holds the largest of the groups. It stays outside
    the vmap over seeds: a batched switch would run every branch.
    """

    group: Group | SortingGroup
    level: Int[Array, ""]


def groups_in_force(
    standings: Sequence[Standing],
    vocabulary: Vocabulary,
    num_actions: int,
    capacity: int | None = None,
    provisional: bool = True,
) -> InForce:
    """The group that each seed's certificates generate, padded to one capacity.

    ``capacity`` is by default the size of a closed vocabulary, the number of blocks of a
    vocabulary of swaps (which is sorted, never enumerated) and 64 for other generators.
    Certificates beyond the capacity, or swaps whose relabelling is no swap, are left out, the
    latest first: training goes on without them.
    """
    if not standings:
        raise InputError("standings", "none", "one per seed")
    size = capacity or default_capacity(vocabulary)
    found = [_generated(one, vocabulary, num_actions, size, provisional) for one in standings]
    group = jax.tree.map(lambda *leaves: jnp.stack(leaves), *found)
    tables = [one for one in found if isinstance(one, Group)]
    if not tables:
        return InForce(group, jnp.any(group.valid).astype(jnp.int32))
    # the fold belongs to the vocabulary and is the same for all seeds
    group = eqx.tree_at(
        lambda g: g.fold, group, tables[0].fold, is_leaf=lambda leaf: leaf is None
    )  # fmt: skip
    return InForce(group, jnp.max(jnp.stack([bucket_level(one) for one in tables])))


def default_capacity(vocabulary: Vocabulary) -> int:
    """Room for the largest group that a vocabulary is expected to generate."""
    if vocabulary.swaps is not None and isinstance(vocabulary.transforms, BlockGather):
        return vocabulary.transforms.layout.num_blocks
    return vocabulary.size if vocabulary.is_closed else 64


def enforce(q_fn: QFunction, in_force: InForce, wrapper: Wrapper = quotient) -> QFunction:
    """``q_fn`` made equivariant under one seed's group; ``q_fn`` itself while nothing is in force.

    ``wrapper`` is :func:`quotient` or :func:`reynolds`. Permutations of blocks are
    canonicalised by sorting in either case: their mean would have n! terms.
    """
    group, level = in_force.group, in_force.level
    if isinstance(group, Group):
        return bucketed(wrapper, q_fn, group, level)
    branches = [lambda o: q_fn(o), sorting_quotient(q_fn, group)]
    return lambda observation: lax.switch(level, branches, observation)


def seed_axes(in_force: InForce) -> Any:
    """``in_axes`` of an :class:`InForce` under a vmap over seeds: everything but level and fold."""
    group = jax.tree.map(lambda _: 0, in_force.group)
    if isinstance(group, Group):
        group = eqx.tree_at(lambda g: g.fold, group, None, is_leaf=lambda leaf: leaf is None)
    return eqx.tree_at(
        lambda x: (x.group, x.level), in_force, (group, None), is_leaf=lambda leaf: leaf is None
    )


def check_all(
    standings: Sequence[Standing],
    evidence: Callable[[int], Evidence],
    seen: int,
    vocabulary: Vocabulary,
    num_actions: int,
    schedule: Schedule | None = None,
    settings: CertificateSettings | None = None,
    *,
    keys: Sequence[PRNGKeyArray] | None = None,
) -> list[Standing]:
    """The standings after every seed that is due was judged on ``evidence(seed's place)``.

    Seeds are judged side by side, a thread for each processor: sorting and counting, which is
    what a check mostly does, leave the interpreter free.
    """

    def after(place: int, standing: Standing) -> Standing:
        if not due(standing, seen):
            return standing
        key = None if keys is None else keys[place]
        judged = discover(evidence(place), vocabulary, num_actions, settings, key=key)
        return update(standing, judged, seen, vocabulary, schedule)

    with ThreadPoolExecutor(min(_processors(), MOST_AT_ONCE)) as pool:
        return list(pool.map(after, range(len(standings)), standings))


def _processors() -> int:
    """Those that this process may use."""
    known = hasattr(os, "sched_getaffinity")
    return len(os.sched_getaffinity(0)) if known else os.cpu_count() or 1


def evidence_size(vocabulary: Vocabulary) -> int:
    """Transitions worth keeping for a check: swaps of long lists are seen in few of them."""
    return 20_480 if vocabulary.size > LONG_LIST else 4096


def latest_rows(
    ring: Transition, cursor: int, size: int, count: int, seed: int | None = None
) -> Transition:
    """The last ``count`` rows written to a ring (or as many as there are), oldest first.

    ``cursor`` is the row that is written next, ``size`` the number of rows that were written.
    ``seed`` picks one along a first axis of seeds, where the ring has one.
    """
    number = min(int(size), max(count, 1))
    rows = ring.action.shape[0 if seed is None else 1]
    taken = max(number, 1)  # none of an empty ring, in the shape of one
    order = (int(cursor) - taken + np.arange(taken)) % rows
    ring = jax.tree.map(jnp.asarray, ring)
    if seed is None:
        found = _by_pieces(lambda piece: _rows_of(ring, piece), order)
    else:
        place = jnp.int32(seed)  # as data: all seeds share a program
        found = _by_pieces(lambda piece: _rows_of_seed(ring, place, piece), order)
    return jax.tree.map(lambda leaf: leaf[:number], found)


@jax.jit
def _rows_of(ring: Transition, order: Int[Array, " m"]) -> Transition:
    return jax.tree.map(lambda leaf: leaf[order], ring)


@jax.jit
def _rows_of_seed(ring: Transition, seed: Int[Array, ""], order: Int[Array, " m"]) -> Transition:
    return jax.tree.map(lambda leaf: leaf[seed, order], ring)


def _by_pieces(function: Callable[[Any], Any], *arrays: Any) -> Any:
    """``function`` of host arrays, row by row, as host arrays.

    A program is compiled for each length, and a window grows from check to check: so it is
    called with pieces of one length, the last one filled up. One thread at a time: those that
    judge the seeds would all compile it at once.
    """
    count = len(jax.tree.leaves(arrays)[0])
    found = []
    with _ONE_AT_A_TIME:
        for start in range(0, count, PIECE):
            rows = np.minimum(np.arange(start, start + PIECE), count - 1)
            piece = function(*jax.tree.map(lambda leaf, rows=rows: leaf[rows], arrays))
            kept = min(PIECE, count - start)
            found.append(jax.tree.map(lambda leaf, kept=kept: np.asarray(leaf)[:kept], piece))
    return jax.tree.map(lambda *leaves: np.concatenate(leaves), *found)


def evidence_of(
    rows: Transition, decode: Callable[[Any], Any] | None = None, latest: int = 20_480
) -> Evidence:
    """Replayed transitions of one seed, leaves [time, envs, ...] in the order of play.

    ``decode`` turns what is stored into an observation, each kind of them once; at most the
    ``latest`` transitions are taken. Environment by environment, so that an episode is a stretch.
    """
    time, envs = rows.action.shape
    start = max(time - max(latest // envs, 1), 0)

    def flat(leaf: Any) -> np.ndarray:
        return np.swapaxes(np.asarray(leaf)[start:], 0, 1).reshape(-1, *leaf.shape[2:])

    done = np.swapaxes(np.asarray(rows.terminated | rows.truncated)[start:], 0, 1)
    begins = np.concatenate([np.ones((envs, 1), bool), done[:, :-1]], axis=1)
    before, after = (jax.tree.map(flat, o) for o in (rows.observation, rows.next_observation))
    if decode is not None:
        before, after = _decoded(decode, before, after)
    reward: Float[np.ndarray, " n"] = flat(rows.reward)
    return Evidence(
        before, flat(rows.action), reward, after, flat(rows.terminated), flat(rows.truncated),
        np.cumsum(begins.ravel()) - 1,
    )  # fmt: skip


@lru_cache(maxsize=16)
def _batched(decode: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return jax.jit(jax.vmap(decode))


def _decoded(decode: Callable[[Any], Any], before: Any, after: Any) -> tuple[Distinct, Distinct]:
    """Every stored observation; most are another row's next one."""
    stored = jax.tree.map(lambda *parts: np.concatenate(parts), before, after)
    kinds = kinds_of(reduce(join, map(observation_codes, jax.tree.leaves(stored))))
    made = _by_pieces(_batched(decode), jax.tree.map(lambda leaf: leaf[kinds.first], stored))
    first, second = np.split(kinds.place, 2)
    return Distinct(made, first), Distinct(made, second)


def _generated(
    standing: Standing, vocabulary: Vocabulary, num_actions: int, capacity: int, provisional: bool
) -> Group | SortingGroup:
    """All certificates, or where they do not fit as many as do, certified and early ones first."""

    def build(elements: dict[int, list[int]]) -> Group | SortingGroup:
        if vocabulary.swaps is not None:
            return sorting_group(vocabulary, elements, num_actions, capacity)
        return generate(vocabulary, elements, num_actions, capacity, limit=capacity)

    wanted = standing.relabellings(provisional)
    try:
        return build(wanted)
    except InputError:
        kept: dict[int, list[int]] = {}
    for g in sorted(wanted, key=lambda g: (not standing.certified[g], standing.accepted_at[g], g)):
        try:
            build(kept | {g: wanted[g]})
        except InputError:
            continue
        kept[g] = wanted[g]
    return build(kept)
