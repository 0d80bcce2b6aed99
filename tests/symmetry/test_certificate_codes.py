"""Fast paths of the certificate against slow, obvious ones."""

import numpy as np
import pytest

from gcr_rl.symmetry import Vocabulary, codes, inverse, lookup, vocabulary_kinds
from gcr_rl.symmetry.codes import (
    block_codes,
    cell_codes,
    neighbour_order,
    neighbours,
    patch_codes,
    row_codes,
    transformed,
)
from gcr_rl.symmetry.discovery import _distances
from gcr_rl.symmetry.sample import Evidence, Sample
from gcr_rl.symmetry.transforms import Layout

SHAPE = (5, 5, 2)
DIHEDRAL = vocabulary_kinds.dihedral(SHAPE)


def grids(count, seed=0):
    """Few kinds of cells, of which few change, so that neighbourhoods recur."""
    generator = np.random.default_rng(seed)
    before = (generator.random((count, *SHAPE)) < 0.2).astype(np.uint8)
    after = before.copy()
    place = generator.integers(5, size=(count, 2))
    after[np.arange(count), place[:, 0], place[:, 1], 1] ^= 1
    return before, after, generator.integers(3, size=count), np.arange(count) // 20


def whole(cells):
    """The code of every neighbourhood, [n, cells]."""
    row, place = np.divmod(np.arange(cells.size), cells[0].size)
    return patch_codes(neighbours(cells, row, place)).reshape(len(cells), -1)


def dense_scores(model_pair, image_pair, action, image_action, episode):
    """score_patches over all cells, one by one."""
    (before, after), (seen, following) = [
        [cell_codes(o) for o in p] for p in (model_pair, image_pair)
    ]
    around, asked = whole(before), whole(seen)
    volatile = set(around[(before != after).reshape(around.shape)].tolist())
    outcomes: dict = {}
    for i, j in np.ndindex(around.shape):
        if int(around[i, j]) in volatile:
            outcomes.setdefault((int(around[i, j]), action[i]), []).append(
                (episode[i], after.reshape(around.shape)[i, j])
            )
    scores = np.zeros(len(action))
    for i, j in np.ndindex(asked.shape):
        now, then = (a.reshape(asked.shape)[i, j] for a in (seen, following))
        if int(asked[i, j]) in volatile or now != then:
            others = outcomes.get((int(asked[i, j]), image_action[i]), [])
            others = [code for e, code in others if e != episode[i]]
            hits = sum(code == then for code in others)
            score = max(np.log((hits + 0.05) / (len(others) + 0.1)), -5) if others else np.nan
            scores[i] = min(scores[i], score) if not np.isnan(scores[i] + score) else np.nan
    return scores


@pytest.mark.parametrize("element", [0, 1, 4, 6])
def test_patch_scores_equal_the_dense_reference(element):
    before, after, action, episode = grids(120)
    relabel = np.array([1, 2, 0])
    pair = [transformed(DIHEDRAL, element, part) for part in (before, after)]
    expected = dense_scores((before, after), pair, action, relabel[action], episode)
    cells, moody = lookup.suspects(cell_codes(before), cell_codes(after))
    model = lookup.fit_patches(cells, action, episode)
    order = neighbour_order(DIHEDRAL, element)
    turned = lookup.score_patches(model, cells, relabel[action], episode, order)
    np.testing.assert_allclose(turned, expected)
    image, _ = lookup.suspects(*(cell_codes(part) for part in pair), moody)
    np.testing.assert_allclose(
        lookup.score_patches(model, image, relabel[action], episode), expected
    )
    assert 0 < np.isnan(expected).mean() < 1 or element == 0


@pytest.mark.parametrize("element", range(1, 8))
def test_windows_of_an_image_are_turned_windows(element):
    before, after, _, _ = grids(30)
    direct = inverse.grid_windows(*(transformed(DIHEDRAL, element, o) for o in (before, after)))
    turned = inverse.turned(inverse.grid_windows(before, after), neighbour_order(DIHEDRAL, element))
    np.testing.assert_array_equal(direct.content, turned.content)
    np.testing.assert_array_equal(direct.mask, turned.mask)


def test_other_transforms_have_no_neighbour_order():
    swaps = vocabulary_kinds.tile_swaps((4, 4, 1), 1)
    assert neighbour_order(swaps, 1) is None
    assert neighbour_order(vocabulary_kinds.tile_swaps((4, 4, 1), 2), 1) is None
    assert neighbour_order(vocabulary_kinds.sign_flips(3), 1) is None


def test_a_change_of_several_cells_fills_the_windows_evenly():
    before = np.zeros((2, 6, 6, 1), np.uint8)
    after = before.copy()
    after[0] = 1
    after[1, 2, 3] = 1
    windows = inverse.grid_windows(before, after)
    assert windows.mask.sum(axis=1).tolist() == [8, 1] and windows.content.shape[1] == 8
    assert inverse.grid_windows(before[1:], after[1:]).content.shape[1] == 1


def test_own_functions_and_tables_of_moves_give_one_discovery():
    """A vocabulary of functions has no fast path; cells and codes must agree all the same."""
    before, after, action, episode = grids(60)
    flip = lambda o: o[:, ::-1]  # noqa: E731
    own = Vocabulary.from_functions([("identity", lambda o: o), ("mirror", flip)], before[0])
    rest = (action, np.zeros(60), after, np.zeros(60, bool), np.zeros(60, bool), episode)
    evidence = Evidence(before, *rest)
    slow, fast = Sample(evidence, own, 3, 60), Sample(evidence, DIHEDRAL, 3, 60)
    mirror = next(
        g for g in range(8) if (transformed(DIHEDRAL, g, before) == before[:, :, ::-1]).all()
    )
    rows = np.arange(5, 20)
    for one, other in zip(slow.cells(1, rows), fast.cells(mirror, rows), strict=True):
        np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(slow.moved(1), fast.moved(mirror))
    assert slow.order(1) is None and fast.order(mirror) is not None
    np.testing.assert_allclose(slow.screen.recurrence[1], fast.screen.recurrence[mirror])


def test_long_lists_are_screened_on_a_thinned_sample():
    generator = np.random.default_rng(0)
    before = generator.integers(2, size=(5000, 12)).astype(np.float32)
    none = np.zeros(5000, bool)
    action, episode = generator.integers(2, size=5000), np.arange(5000) // 10
    evidence = Evidence(before, action, np.zeros(5000), before[::-1], none, none, episode)
    vocabulary = vocabulary_kinds.slot_permutations(12)
    sample = Sample(evidence, vocabulary, 2, 4096)
    moved, recurrence = sample.screen
    assert vocabulary.size > 64 and moved.shape == (67, 2)
    exact = sample.moved(3)
    np.testing.assert_allclose(moved[3].sum() / 5000, exact.mean(), atol=0.05)
    known = set(map(tuple, before))
    image = transformed(vocabulary, 3, before)[exact]
    share = np.mean([tuple(row) in known for row in image])
    np.testing.assert_allclose(recurrence[3], share, atol=0.1)


@pytest.mark.parametrize("at_once", [1, 700, 2**20])
def test_codes_of_blocks_do_not_depend_on_how_many_are_made_at_once(at_once, monkeypatch):
    monkeypatch.setattr(codes, "_AT_ONCE", at_once)
    layout = Layout((6, 4, 5), (3, 2, 5))
    pictures = np.random.default_rng(0).integers(0, 256, (30, 6, 4, 5)).astype(np.uint8)
    rows = np.stack([np.asarray(layout.split(one)) for one in pictures])
    np.testing.assert_array_equal(layout.split_all(pictures), rows)
    np.testing.assert_array_equal(block_codes(layout, pictures), row_codes(rows))


@pytest.mark.parametrize("element", [1, 4])
def test_distances_leave_out_only_what_never_changes(element):
    before, after, action, episode = grids(90)
    before[..., 1] = 3  # a plane that says nothing
    before[:, 0, 0, 0] = 1  # a corner that is always set: turned, it is set elsewhere
    none = np.zeros(90, bool)
    evidence = Evidence(before, action, np.zeros(90), after, none, none, episode)
    sample = Sample(evidence, DIHEDRAL, 3, 4096)
    original, image = _distances(sample)(element)
    rows = np.flatnonzero(sample.moved(element))
    flat = before.reshape(90, -1).astype(float)
    for found, asked in ((original, before), (image, transformed(DIHEDRAL, element, before))):
        apart = asked[rows].reshape(len(rows), -1)[:, None].astype(float) - flat[None]
        distance = np.sqrt((apart**2).sum(axis=2))
        distance[episode[rows][:, None] == episode[None]] = np.inf
        np.testing.assert_allclose(found, distance.min(axis=1), rtol=1e-6)
