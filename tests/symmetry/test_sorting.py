"""Permutation groups by sorting: equal to the enumerated group where that is small."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gcr_rl.errors import InputError
from gcr_rl.symmetry import generate, quotient, sorting_group, sorting_quotient
from gcr_rl.symmetry import vocabulary_kinds as kinds
from gcr_rl.symmetry.sorting import sort_blocks, sorted_relabelling

SLOTS = kinds.slot_permutations(5, 2)
WEIGHTS = jax.random.normal(jax.random.key(0), (6, 10))


def q_fn(observation):
    return jnp.tanh(WEIGHTS @ observation) + 0.1 * jnp.arange(6)


def swap(i, j, actions, size=6):
    """(element of SLOTS, relabelling) of the swap of slots i and j."""
    relabel = np.arange(size)
    a, b = actions[i], actions[j]
    relabel[[a, b]] = b, a
    pairs = [tuple(pair) for pair in SLOTS.swaps.tolist()]
    return pairs.index((i, j)), relabel


ACTIONS = {0: 4, 2: 1, 3: 0, 4: 5}  # slot -> action; slot 1 and actions 2, 3 stay
CERTIFIED = dict(swap(i, j, ACTIONS) for i, j in ((0, 2), (2, 3), (3, 4)))
GROUP = sorting_group(SLOTS, CERTIFIED, num_actions=6, capacity=6)


def moved(observation, order):
    """Slots 0, 2, 3, 4 hold the contents of ``order``; and the relabelling that goes with it."""
    rows, relabel = np.array(observation).reshape(5, 2), np.arange(6)
    image = rows.copy()
    for place, source in zip((0, 2, 3, 4), order, strict=True):
        image[place] = rows[source]
        relabel[ACTIONS[source]] = ACTIONS[place]
    return image.ravel(), relabel


@pytest.mark.parametrize("case", ["distinct", "two equal", "all equal"])
def test_equivariant_under_all_permutations_ties_included(case):
    rows = np.random.default_rng(0).normal(size=(5, 2)).astype(np.float32)
    if case == "two equal":
        rows[3] = rows[0]
    if case == "all equal":
        rows[:] = rows[0]
    o = rows.ravel()
    function = jax.jit(sorting_quotient(q_fn, GROUP))
    base = np.asarray(function(o))
    for order in itertools.permutations((0, 2, 3, 4)):
        image, relabel = moved(o, order)
        np.testing.assert_allclose(np.asarray(function(image))[relabel], base, atol=1e-6)
    if case == "all equal":
        assert len(set(np.round(base[list(ACTIONS.values())], 5))) == 1
    if case == "two equal":
        assert base[ACTIONS[0]] == pytest.approx(base[ACTIONS[3]], abs=1e-6)
        assert abs(base[ACTIONS[0]] - base[ACTIONS[2]]) > 1e-4


def test_it_is_the_quotient_of_the_enumerated_group():
    group = generate(SLOTS, CERTIFIED, num_actions=6)
    assert int(group.order) == 24
    o = jax.random.normal(jax.random.key(4), (10,))
    # Both pick a member of the same orbit, not the same one: compare on an invariant network.
    invariant = quotient(q_fn, group)
    np.testing.assert_allclose(sorting_quotient(invariant, GROUP)(o), invariant(o), atol=1e-5)


def test_sorted_observation_and_relabelling_belong_together():
    o = jax.random.normal(jax.random.key(5), (10,))
    canonical, score, order = sort_blocks(GROUP, o)
    rows, image = np.asarray(o).reshape(5, 2), np.asarray(canonical).reshape(5, 2)
    np.testing.assert_array_equal(image[1], rows[1])
    relabel = np.asarray(sorted_relabelling(GROUP, order))
    for place, source in zip(
        (0, 2, 3, 4), np.asarray(GROUP.blocks)[np.asarray(order)][:4], strict=True
    ):
        np.testing.assert_array_equal(image[place], rows[source])
        assert relabel[ACTIONS[int(source)]] == ACTIONS[place]
    assert (np.diff(np.asarray(score)[np.asarray(order)][:4]) > 0).all()
    np.testing.assert_allclose(
        np.asarray(q_fn(canonical))[relabel], sorting_quotient(q_fn, GROUP)(o), atol=1e-6
    )


def test_six_tiles_of_an_image_never_enumerate_720():
    vocabulary = kinds.tile_swaps((12, 12, 3), 4)
    pairs = [tuple(pair) for pair in vocabulary.swaps.tolist()]
    tiles = (0, 1, 2, 6, 7, 8)
    certified = {}
    for i, j in itertools.combinations(range(6), 2):
        relabel = np.arange(6)
        relabel[[i, j]] = j, i
        certified[pairs.index((tiles[i], tiles[j]))] = relabel
    group = sorting_group(vocabulary, certified, num_actions=6)
    assert group.blocks.shape == (6,)
    image = np.random.default_rng(1).integers(0, 256, (12, 12, 3)).astype(np.uint8)
    weights = jax.random.normal(jax.random.key(1), (6, 432)) / 255
    function = jax.jit(sorting_quotient(lambda o: weights @ o.ravel().astype(jnp.float32), group))
    base = np.asarray(function(image))
    for g, relabel in list(certified.items())[::4]:
        swapped = vocabulary.apply(g, image)
        np.testing.assert_allclose(np.asarray(function(swapped))[relabel], base, atol=1e-5)


def test_disjoint_groups_and_blocks_without_actions():
    free = {0: [0, 1, 2, 3, 4, 5]}
    pairs = [tuple(pair) for pair in SLOTS.swaps.tolist()]
    certified = dict([swap(0, 1, {0: 0, 1: 1})])
    certified[pairs.index((2, 3))] = np.array(free[0])
    group = sorting_group(SLOTS, certified, num_actions=6)
    np.testing.assert_array_equal(group.actions, [0, 1, -1, -1])
    function = jax.jit(sorting_quotient(q_fn, group))
    o = np.random.default_rng(2).normal(size=10).astype(np.float32)
    base = np.asarray(function(o))
    for g, relabel in certified.items():
        np.testing.assert_allclose(
            np.asarray(function(SLOTS.apply(g, o)))[np.asarray(relabel)], base, atol=1e-6
        )
    other = np.asarray(function(SLOTS.apply(pairs.index((0, 2)), o)))
    assert np.abs(other - base).max() > 1e-4  # not a swap of this group


def test_an_empty_group_changes_nothing():
    group = sorting_group(SLOTS, {}, num_actions=6, capacity=4)
    o = jax.random.normal(jax.random.key(6), (10,))
    np.testing.assert_array_equal(sorting_quotient(q_fn, group)(o), q_fn(o))


def test_bad_swaps_are_refused():
    with pytest.raises(InputError, match="tile_swaps"):
        sorting_group(kinds.ring(4), {}, 2)
    with pytest.raises(InputError, match="exchange of two actions"):
        sorting_group(SLOTS, {1: [1, 2, 0, 3, 4, 5]}, 6)
    with pytest.raises(InputError, match="6 actions"):
        sorting_group(SLOTS, {1: [1, 0]}, 6)
    first, second = swap(0, 1, {0: 0, 1: 1}), swap(1, 2, {1: 3, 2: 4})
    with pytest.raises(InputError, match="one fixed action per block"):
        sorting_group(SLOTS, dict([first, second]), 6)
    with pytest.raises(InputError, match="at least 2 blocks"):
        sorting_group(SLOTS, dict([first]), 6, capacity=1)
    with pytest.raises(InputError, match="q_fn"):
        sorting_quotient(lambda o: o, GROUP)(jnp.zeros(10))
