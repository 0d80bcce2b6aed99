"""The generated group: closure, conflicts, names, buckets, and nothing transposed."""

import numpy as np
import pytest
from true_groups import permutations_of

from gcr_rl.envs import dihedral as oracle
from gcr_rl.errors import InputError
from gcr_rl.symmetry import (
    bucket_level,
    buckets,
    composition,
    describe,
    from_elements,
    generate,
    tables,
    trivial_group,
)
from gcr_rl.symmetry import vocabulary_kinds as kinds

GRID = kinds.dihedral((5, 5, 2))
RELABEL = np.stack([oracle.relabelling(g) for g in range(8)])


def test_two_certified_elements_generate_the_exact_group():
    quarter, mirror = 1, 4
    group = generate(GRID, {quarter: RELABEL[quarter], mirror: RELABEL[mirror]}, num_actions=4)
    assert describe(group) == "D4" and group.capacity == 8
    by_element = dict(
        zip(np.asarray(group.element).tolist(), np.asarray(group.relabel), strict=True)
    )
    for g in range(8):
        np.testing.assert_array_equal(by_element[g], RELABEL[g])
    table = composition(group)
    relabel = np.asarray(group.relabel)
    for g in range(8):
        for h in range(8):
            np.testing.assert_array_equal(relabel[table[g, h]], relabel[g][relabel[h]])


@pytest.mark.parametrize(
    ("elements", "name"),
    [([], "trivial"), ([4], "C2"), ([1], "C4"), ([2, 4], "C2xC2"), ([4, 5], "D4"), ([3], "C4")],
)
def test_subgroups_have_their_names(elements, name):
    group = generate(GRID, {g: RELABEL[g] for g in elements}, num_actions=4)
    assert describe(group) == name


def test_names_of_permutation_groups_and_others():
    slots = kinds.slot_permutations(4)
    three = generate(slots, {1: [1, 0, 2, 3], 2: [2, 1, 0, 3]}, num_actions=4)
    assert describe(three) == "S3" and int(three.order) == 6 and three.capacity == 8
    assert set(np.asarray(three.element).tolist()) > {-1}  # 3-cycles are not swaps
    for elements in ("C2", "C4", "S3", "D4"):
        rows = permutations_of(elements)
        compose = lambda f, g: tuple(f[i] for i in g)  # noqa: E731
        table = tables.composition_table(rows, compose, lambda e: e)
        assert tables.group_name(table) == elements
    quaternions = [
        [0, 1, 2, 3, 4, 5, 6, 7], [1, 0, 3, 2, 5, 4, 7, 6], [2, 3, 1, 0, 6, 7, 5, 4],
        [3, 2, 0, 1, 7, 6, 4, 5], [4, 5, 7, 6, 1, 0, 2, 3], [5, 4, 6, 7, 0, 1, 3, 2],
        [6, 7, 4, 5, 3, 2, 1, 0], [7, 6, 5, 4, 2, 3, 0, 1],
    ]  # fmt: skip
    tables.check_group(np.array(quaternions))
    assert tables.group_name(np.array(quaternions)) == "Q8"


def test_transposed_relabellings_of_a_quarter_turn_conflict():
    # On C4 alone the inverse relabelling also composes; with a mirror it must not.
    with pytest.raises(InputError, match="compose"):
        generate(GRID, {1: RELABEL[3], 2: RELABEL[2], 4: RELABEL[4], 5: RELABEL[5]}, 4)
    with pytest.raises(InputError, match="compose"):
        from_elements(GRID, RELABEL[GRID.inverse][[0, 1, 2, 3, 4, 5, 7, 6]])


def test_bad_certificates_are_refused():
    with pytest.raises(InputError, match="3 actions"):
        generate(GRID, {1: [0, 1]}, num_actions=3)
    with pytest.raises(InputError, match=r"permutations of 0\.\.3"):
        generate(GRID, {1: [0, 0, 1, 2]}, num_actions=4)
    with pytest.raises(InputError, match="elements 0 to 7"):
        generate(GRID, {8: [0, 1, 2, 3]}, num_actions=4)
    with pytest.raises(InputError, match="compose"):
        generate(GRID, {0: [1, 0, 2, 3]}, num_actions=4)  # the identity relabels nothing
    with pytest.raises(InputError, match="at least the group's order"):
        from_elements(GRID, RELABEL, capacity=4)
    with pytest.raises(InputError, match="one row per element"):
        from_elements(GRID, RELABEL[:4])
    with pytest.raises(InputError, match="SortingGroup"):
        generate(kinds.slot_permutations(6), {g: np.arange(2) for g in range(1, 16)}, 2)


def test_buckets_hold_the_group():
    assert buckets(1) == (1,) and buckets(8) == (1, 2, 4, 8) and buckets(6) == (1, 2, 4, 6)
    levels = {
        (): 0, (4,): 1, (1,): 2, (1, 4): 3,
    }  # fmt: skip
    for elements, level in levels.items():
        group = generate(GRID, {g: RELABEL[g] for g in elements}, 4, capacity=8)
        assert int(bucket_level(group)) == level
        trimmed = group.trim(buckets(8)[level])
        assert int(trimmed.order) == int(group.order)
    assert int(trivial_group(GRID, 4).order) == 1
    with pytest.raises(InputError, match="1 to 8"):
        group.trim(9)
