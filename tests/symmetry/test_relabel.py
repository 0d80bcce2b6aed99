"""Relabellings from counts, merged actions, and what the inverse head reads."""

import jax
import numpy as np
import pytest

from gcr_rl.envs import dihedral
from gcr_rl.symmetry import inverse
from gcr_rl.symmetry.codes import image_codes, observation_codes, transformed
from gcr_rl.symmetry.relabel import (
    ActionClasses,
    action_classes,
    agreement,
    read_classes,
    relabelling,
    wilson,
)
from gcr_rl.symmetry.vocabulary_kinds import dihedral as dihedral_vocabulary
from gcr_rl.symmetry.vocabulary_kinds import signed_permutations, tile_swaps


def distinct(actions):
    return ActionClasses(np.arange(actions), np.zeros(actions, bool))


def test_wilson_interval_of_known_cases():
    lower, upper = wilson(np.array([50.0, 0.0, 10.0]), np.array([100.0, 0.0, 10.0]), 1.96)
    np.testing.assert_allclose(lower, [0.4038, 0.0, 0.7225], atol=1e-4)
    np.testing.assert_allclose(upper, [0.5962, 1.0, 1.0], atol=1e-4)


def test_a_four_cycle_is_not_transposed():
    cycle = np.array([1, 2, 3, 0])
    counts = np.ones((1, 4, 4), int)
    counts[0, np.arange(4), cycle] = 50
    assert relabelling(counts, distinct(4))[0].tolist() == cycle.tolist()
    hits, trials = agreement(counts, cycle[None], distinct(4))
    assert hits.tolist() == [[50] * 4] and trials.tolist() == [[53] * 4]


def test_rare_actions_are_matched_by_sinkhorn():
    # Row maxima alone would send both actions to b = 0.
    counts = np.array([[[900, 100], [6, 4]]])
    assert relabelling(counts, distinct(2))[0].tolist() == [0, 1]


def test_twins_are_merged_even_if_one_always_wins_the_vote():
    counts = np.diag([90, 90, 90, 90])
    counts[3] = [0, 0, 90, 0]  # action 3 is read as 2
    classes = action_classes(counts, np.full(4, 90), np.full(4, 100))
    assert classes.label.tolist() == [0, 1, 2, 2]
    swapped = np.zeros((1, 4, 4), int)
    swapped[0, [0, 1, 2, 3], [1, 0, 2, 2]] = 90
    assert relabelling(swapped, classes)[0].tolist() == [1, 0, 2, 3]


def test_a_slip_does_not_merge_actions_and_inert_ones_form_a_class():
    counts = np.diag([70, 100, 0, 0])
    counts[0, 1] = 30
    classes = action_classes(counts, np.array([100, 100, 0, 0]), np.full(4, 100))
    assert classes.label.tolist() == [0, 1, 2, 2]
    assert classes.inert.tolist() == [False, False, True, True]


def test_classes_of_different_size_are_never_exchanged():
    classes = ActionClasses(np.array([0, 1, 1]), np.zeros(3, bool))
    counts = np.zeros((1, 3, 3), int)
    counts[0, 0, 1] = counts[0, 1, 0] = counts[0, 2, 0] = 50
    assert relabelling(counts, classes)[0].tolist() == [0, 1, 2]


def test_an_unsure_head_has_no_opinion():
    chances = np.array([[0.5, 0.5, 0.0], [0.9, 0.05, 0.05], [np.nan] * 3])
    assert read_classes(chances, np.arange(3), 0.75).tolist() == [-1, 0, -1]
    assert read_classes(chances, np.array([0, 0, 2]), 0.75).tolist() == [0, 0, -1]


@pytest.mark.parametrize(
    "vocabulary",
    [dihedral_vocabulary((4, 4, 2)), signed_permutations(3), tile_swaps((4, 6, 1), 2)],
    ids=["dihedral", "signed", "tiles"],
)
def test_image_codes_and_host_transforms_agree_with_apply(vocabulary):
    generator = np.random.default_rng(0)
    observations = generator.normal(size=(5, *vocabulary.shape)).astype(np.float32)
    codes = image_codes(vocabulary, observations)
    images = np.stack([np.asarray(vocabulary.apply_all(o)) for o in observations], axis=1)
    for g in range(vocabulary.size):
        np.testing.assert_array_equal(transformed(vocabulary, g, observations), images[g])
    # equal codes exactly where the images are equal
    flat = codes.ravel()
    direct = observation_codes(images.reshape(-1, *vocabulary.shape))
    np.testing.assert_array_equal(flat[:, None] == flat[None], direct[:, None] == direct[None])


def moves(seed, count, size=9):
    """Moves of one agent over planes with random walls."""
    generator = np.random.default_rng(seed)
    before = np.zeros((count, size, size, 2), np.uint8)
    before[..., 0] = generator.random((count, size, size)) < 0.2
    after = before.copy()
    action = generator.integers(4, size=count)
    place = generator.integers(1, size - 1, (count, 2))
    target = place + dihedral.MOVES[action]
    before[np.arange(count), place[:, 0], place[:, 1], 1] = 1
    after[np.arange(count), target[:, 0], target[:, 1], 1] = 1
    return before, action, after


def test_the_pooled_head_reads_all_eight_relabellings_from_200_transitions():
    before, action, after = moves(0, 200)
    head = inverse.fit(jax.random.key(0), inverse.grid_windows(before, after), action, 4)
    before, action, after = moves(1, 400)
    vocabulary = dihedral_vocabulary((9, 9, 2))
    for g in range(8):
        pair = (transformed(vocabulary, g, part) for part in (before, after))
        read = inverse.probabilities(head, inverse.grid_windows(*pair)).argmax(axis=1)
        assert np.mean(read == dihedral.relabelling(g)[action]) > 0.97
