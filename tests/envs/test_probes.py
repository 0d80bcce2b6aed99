"""Each probe has the structure that its name promises, and no more."""

from itertools import permutations

import numpy as np
import pytest

from gcr_rl.envs import dihedral, make
from gcr_rl.envs.finite import optimal_q, optimal_values

PLANTED = ["Probe-C4", "Probe-D4", "Probe-Cycle"]
GRIDS = {"Probe-C4": 4, "Probe-D4": 8, "Probe-NoSymmetry": 1}


def tables(name):
    environment, params = make(name)
    mdp = environment.finite_mdp(params)
    return environment, params, mdp, np.asarray(environment.observations(params))


def is_automorphism(mdp, image, relabel):
    """Expected rewards, ends and transition probabilities agree at (image(s), relabel(a))."""
    states, actions, branches = mdp.successors.shape
    dense = np.zeros((states, actions, states))
    rows, columns = np.ogrid[:states, :actions]
    for branch in range(branches):
        index = rows, columns, np.asarray(mdp.successors)[:, :, branch]
        np.add.at(dense, index, np.asarray(mdp.probabilities)[:, :, branch])
    rewards = np.sum(np.asarray(mdp.probabilities * mdp.rewards), axis=-1)
    ends = np.sum(np.asarray(mdp.probabilities * mdp.terminated), axis=-1)
    twin = image[:, None], relabel[None, :]
    return (
        np.allclose(dense[twin][:, :, image], dense)
        and np.allclose(rewards[twin], rewards)
        and np.allclose(ends[twin], ends)
        and np.allclose(np.asarray(mdp.start)[image], mdp.start)
    )


def image_of(transform, observations):
    number = {row.tobytes(): state for state, row in enumerate(observations)}
    return np.array([number.get(np.asarray(transform(row)).tobytes(), -1) for row in observations])


@pytest.mark.parametrize("name", PLANTED)
def test_planted_symmetries_are_automorphisms(name):
    environment, params, mdp, observations = tables(name)
    planted = environment.planted_symmetries(params)
    assert len(planted) > 1
    for symmetry in planted:
        image = image_of(symmetry.transform, observations)
        assert sorted(image) == list(range(environment.num_states))
        assert is_automorphism(mdp, image, symmetry.relabel)


@pytest.mark.parametrize(("name", "order"), GRIDS.items())
def test_grids_have_no_other_dihedral_symmetry(name, order):
    """All 8 transforms with all 24 relabellings: only the planted pairs hold, though every
    transformed picture occurs."""
    environment, params, mdp, observations = tables(name)
    holding = []
    for element in range(8):
        image = image_of(lambda o, g=element: dihedral.transform(g, o), observations)
        assert sorted(image) == list(range(environment.num_states))
        holding += [
            (element, relabel)
            for relabel in permutations(range(4))
            if is_automorphism(mdp, image, np.array(relabel))
        ]
    assert holding == [(g, tuple(dihedral.relabelling(g).tolist())) for g in range(order)]
    planted = environment.planted_symmetries(params)
    assert [tuple(s.relabel.tolist()) for s in planted] == [relabel for _, relabel in holding]


def test_no_two_cells_are_alike_without_symmetry():
    """Leaving costs differ everywhere, so no bijection of states can be an automorphism."""
    _, _, mdp, _ = tables("Probe-NoSymmetry")
    live = np.asarray(mdp.start) > 0
    lowest = np.asarray(mdp.rewards)[live].min(axis=(1, 2))
    assert len(np.unique(lowest)) == live.sum()


def test_two_state_values_in_closed_form():
    _, _, mdp, _ = tables("Probe-TwoState")
    g = 0.9
    np.testing.assert_allclose(optimal_q(mdp, g)[:2], [[g**2, g], [1.0, g**2]], rtol=1e-6)


def test_order_is_strict_on_the_planted_pairs_and_partial():
    environment, params, mdp, _ = tables("Probe-Order")
    values = np.asarray(optimal_values(mdp))
    i, j = np.divmod(np.arange(16), 4)
    np.testing.assert_allclose(values, -(3.0 - i) - 2.0 * (3.0 - j))
    covers = environment.planted_order(params)
    assert len(covers) == 24
    assert all(values[upper] > values[lower] for upper, lower in covers)
    above = np.eye(16, dtype=bool)
    for upper, lower in covers:
        above[upper, lower] = True
    for _ in range(4):
        above = above @ above
    product_order = (i[:, None] >= i) & (j[:, None] >= j)
    np.testing.assert_array_equal(above, product_order)
    # (1, 0) and (0, 3) are not compared, and their values are not those of the lattice's rank
    assert not above[4, 3] and not above[3, 4] and values[3] > values[4]


def test_cycle_has_equal_values_and_rewards_that_say_otherwise():
    _, _, mdp, _ = tables("Probe-Cycle")
    np.testing.assert_allclose(optimal_values(mdp)[:3], 1.0)
    np.testing.assert_allclose(optimal_q(mdp, 0.99)[:3].max(axis=1), 1.0)
    forward, chances = np.asarray(mdp.rewards)[:3, 0], np.asarray(mdp.probabilities)[:3, 0]
    assert (forward.max(axis=1) > 0).all()  # each lucky move says: better than the next state
    assert ((forward * chances).sum(axis=1) < 0).all()
    assert np.asarray(mdp.successors)[:3, 0, 0].tolist() == [1, 2, 0]
