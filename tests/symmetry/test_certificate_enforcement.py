"""Certificates of several seeds as traced data: exact, without recompilation, never in the way."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gcr_rl.envs import dihedral
from gcr_rl.envs.probes_symmetry import planted, play, traps
from gcr_rl.errors import InputError
from gcr_rl.symmetry import (
    Evidence,
    Schedule,
    enforcement,
    init_standing,
    quotient,
    reynolds,
    vocabulary_kinds,
)
from gcr_rl.symmetry.enforcement import (
    check_all,
    default_capacity,
    enforce,
    evidence_of,
    groups_in_force,
    latest_rows,
    seed_axes,
)
from gcr_rl.types import Transition


def standing_with(vocabulary, relabellings, num_actions, provisional=()):
    """A standing that has certified ``relabellings``, the elements of ``provisional`` less so."""
    standing = init_standing(vocabulary, num_actions)
    relabel, certified = standing.relabel.copy(), standing.certified.copy()
    since = standing.accepted_at.copy()
    for time, (g, row) in enumerate(relabellings.items()):
        relabel[g], certified[g], since[g] = row, g not in provisional, time
    tentative = np.isin(np.arange(vocabulary.size), list(provisional))
    return dataclasses.replace(
        standing, relabel=relabel, certified=certified, provisional=tentative, accepted_at=since
    )


@pytest.mark.parametrize("wrapper", [quotient, reynolds])
def test_every_seed_has_its_own_group_and_a_certificate_compiles_nothing(wrapper):
    vocabulary = vocabulary_kinds.dihedral((5, 5, 2))
    turns = {g: dihedral.relabelling(g).tolist() for g in (1, 2, 3)}
    standings = [init_standing(vocabulary, 4)] * 2
    later = [standings[0], standing_with(vocabulary, turns, 4)]
    weight = jax.random.normal(jax.random.key(0), (2, 4, 50))
    observation = jax.random.normal(jax.random.key(1), (2, 5, 5, 2))
    traces = []

    def values(weight, observation, in_force):
        traces.append(1)
        return enforce(lambda o: jnp.tanh(weight @ jnp.ravel(o)), in_force, wrapper)(observation)

    nothing, something = (groups_in_force(s, vocabulary, 4) for s in (standings, later))
    run = jax.jit(jax.vmap(values, in_axes=(0, 0, seed_axes(nothing))))
    plain = np.asarray(jnp.tanh(jnp.einsum("sai,si->sa", weight, observation.reshape(2, -1))))
    np.testing.assert_allclose(run(weight, observation, nothing), plain, atol=1e-5)
    after = run(weight, observation, something)
    assert len(traces) == 1 and int(nothing.level) == 0 and int(something.level) == 2
    np.testing.assert_allclose(after[0], plain[0], atol=1e-5)
    assert np.abs(after[1] - plain[1]).max() > 1e-3
    turned = jnp.stack([vocabulary.apply(1, o) for o in observation])
    image = run(weight, turned, something)
    np.testing.assert_allclose(image[1, dihedral.relabelling(1)], after[1], atol=1e-5)
    assert np.abs(image[0, dihedral.relabelling(1)] - after[0]).max() > 1e-3


def test_swaps_are_sorted_and_a_swap_that_fits_no_action_is_left_out():
    vocabulary = vocabulary_kinds.slot_permutations(3, 2)
    swaps = {1: [1, 0, 2], 2: [2, 1, 0], 3: [1, 2, 0]}  # the last one is no exchange
    in_force = groups_in_force(
        [standing_with(vocabulary, {}, 3), standing_with(vocabulary, swaps, 3)], vocabulary, 3
    )
    assert int(in_force.level) == 1 and in_force.group.valid.sum(axis=1).tolist() == [0, 3]
    weight = jax.random.normal(jax.random.key(0), (3, 6))

    def values(observation, in_force):
        return enforce(lambda o: jnp.tanh(weight @ o), in_force)(observation)

    observation = jax.random.normal(jax.random.key(1), (6,))
    run = jax.vmap(values, in_axes=(None, seed_axes(in_force)))
    first, image = (run(o, in_force) for o in (observation, vocabulary.apply(1, observation)))
    np.testing.assert_allclose(image[1, np.array([1, 0, 2])], first[1], atol=1e-6)
    np.testing.assert_allclose(first[0], jnp.tanh(weight @ observation), atol=1e-6)


def test_what_exceeds_the_capacity_is_left_out_provisional_ones_first():
    vocabulary = vocabulary_kinds.sign_flips(2)
    rows = {1: [1, 0], 2: [0, 1], 3: [1, 0]}
    standing = standing_with(vocabulary, rows, 2, provisional=(1,))
    whole = groups_in_force([standing], vocabulary, 2)
    assert whole.group.valid.sum() == 4 and default_capacity(vocabulary) == 4
    part = groups_in_force([standing], vocabulary, 2, capacity=2)
    kept = {int(g) for g in part.group.element[0][part.group.valid[0]]}
    assert kept == {0, 2}
    sure = groups_in_force([standing], vocabulary, 2, capacity=2, provisional=False)
    assert {int(g) for g in sure.group.element[0][sure.group.valid[0]]} == {0, 2}
    with pytest.raises(InputError, match="standings"):
        groups_in_force([], vocabulary, 2)


def test_replayed_rows_become_evidence_environment_by_environment():
    time, envs = 6, 2
    code = jnp.arange(time * envs).reshape(time, envs)
    done = np.zeros((time, envs), bool)
    done[1, 0] = done[3, 1] = True
    rows = Transition(code, code % 3, code * 1.0, code + 1, jnp.asarray(done), jnp.zeros_like(done))
    found = evidence_of(rows, lambda c: jnp.stack([c, -c]))
    assert found.observation[:, 0].tolist() == [0, 2, 4, 6, 8, 10, 1, 3, 5, 7, 9, 11]
    assert found.next_observation[0].tolist() == [1, -1]
    assert found.episode.tolist() == [0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3]
    assert found.reward.tolist() == found.observation[:, 0].tolist()
    assert evidence_of(rows, latest=4).observation.tolist() == [8, 10, 9, 11]


def test_the_latest_rows_of_a_ring_come_oldest_first():
    code = jnp.array([[5], [6], [2], [3], [4]])
    ring = Transition(code, code, code * 1.0, code, code > 9, code > 9)
    assert latest_rows(ring, 2, 5, 10).action.ravel().tolist() == [2, 3, 4, 5, 6]
    assert latest_rows(ring, 2, 5, 3).reward.ravel().tolist() == [4, 5, 6]
    assert latest_rows(ring, 2, 2, 10).action.ravel().tolist() == [5, 6]
    assert latest_rows(ring, 0, 0, 10).action.shape == (0, 1)
    both = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf + 1]), ring)
    assert latest_rows(both, 2, 5, 3, seed=1).action.ravel().tolist() == [5, 6, 7]


def test_rows_are_read_in_pieces_of_one_length_and_compiled_once(monkeypatch):
    monkeypatch.setattr(enforcement, "PIECE", 4)
    code = jnp.arange(20)[:, None]
    ring = Transition(code, code, code * 1.0, code, code > 30, code > 30)
    enforcement._rows_of._clear_cache()
    for count in (1, 3, 4, 5, 11, 20):
        found = latest_rows(ring, 2, 20, count)
        assert found.action.ravel().tolist() == [i % 20 for i in range(22 - count, 22)]
    assert enforcement._rows_of._cache_size() == 1
    stored = Transition(*(np.asarray(leaf) for leaf in found))
    seen = evidence_of(stored, lambda c: jnp.stack([c, -c])).observation
    assert seen[:, 1].tolist() == [-c for c in found.observation.ravel()]


def test_only_seeds_that_are_due_are_checked():
    good, bad = planted()[0], next(p for p in traps() if p.name == "prize on one side")
    vocabulary, schedule = vocabulary_kinds.sign_flips(2), Schedule(first=3000)
    samples = [Evidence(*play(probe, 3, 3000)) for probe in (good, bad)]
    standings = [init_standing(vocabulary, 2, schedule)] * 2
    asked = []

    def evidence(seed):
        asked.append(seed)
        return samples[seed]

    assert check_all(standings, evidence, 2999, vocabulary, 2, schedule) == standings
    after = check_all(standings, evidence, 3000, vocabulary, 2, schedule)
    assert asked == [0, 1]
    assert [s.relabellings() for s in after] == [{1: [1, 0]}, {}]
    check_all([standings[0], after[1]], evidence, 3001, vocabulary, 2, schedule)
    assert asked == [0, 1, 0]
