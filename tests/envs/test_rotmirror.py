"""E1: exactly symmetric when asked to be, asymmetric by exactly the stated amount otherwise."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gcr_rl.envs import dihedral, make, task
from gcr_rl.envs.rotmirror import read_map

SLIP = 0.3


@pytest.fixture(scope="module")
def symmetric():
    environment, params = make("RotMirrorGrid")
    return environment, params, np.asarray(environment.observations(params))


def images(environment, params, observations):
    """``image[g, s]``: the state whose observation is T_g of state s's, found by comparing bytes;
    -1 where no state looks like that."""
    number = {planes.tobytes(): state for state, planes in enumerate(observations)}
    assert len(number) == environment.num_states
    return np.array(
        [
            [number.get(dihedral.transform(g, planes).tobytes(), -1) for planes in observations]
            for g in range(8)
        ]
    )


def test_composition_table_is_that_of_the_relabellings_and_not_abelian():
    table = dihedral.composition()
    relabel = [dihedral.relabelling(g) for g in range(8)]
    for g in range(8):
        assert sorted(table[g]) == list(range(8))
        for h in range(8):
            np.testing.assert_array_equal(relabel[table[g, h]], relabel[g][relabel[h]])
    assert (table != table.T).any()
    # a quarter turn counter-clockwise sends right to up, up to left: not an involution
    assert relabel[1].tolist() == [2, 3, 1, 0]


def test_map_is_asymmetric_and_has_one_goal():
    walls, goal = read_map()
    assert walls.shape == (19, 19) and not walls[goal]
    assert len({dihedral.transform(g, walls).tobytes() for g in range(8)}) == 8


def test_the_whole_transition_table_is_invariant_under_all_eight(symmetric):
    environment, params, observations = symmetric
    mdp = environment.finite_mdp(params)
    assert mdp.successors.shape == (8 * 243, 4, 1)
    successors, ends = np.asarray(mdp.successors)[:, :, 0], np.asarray(mdp.terminated)[:, :, 0]
    rewards, start = np.asarray(mdp.rewards)[:, :, 0], np.asarray(mdp.start)
    image = images(environment, params, observations)
    planted = environment.planted_symmetries(params)
    assert len(planted) == 8
    for g, symmetry in enumerate(planted):
        assert sorted(image[g]) == list(range(environment.num_states))
        twin = image[g][:, None], symmetry.relabel[None, :]
        np.testing.assert_array_equal(successors[twin], image[g][successors])
        np.testing.assert_array_equal(rewards[twin], rewards)
        np.testing.assert_array_equal(ends[twin], ends)
        np.testing.assert_array_equal(start[image[g]], start)
        np.testing.assert_array_equal(
            symmetry.transform(observations[5]), observations[image[g][5]]
        )


def test_relabelling_matters(symmetric):
    """Without it, or with its inverse, a quarter turn is no automorphism."""
    environment, params, observations = symmetric
    successors = np.asarray(environment.finite_mdp(params).successors)[:, :, 0]
    image = images(environment, params, observations)[1]
    for relabel in (np.arange(4), np.argsort(dihedral.relabelling(1))):
        assert (successors[image[:, None], relabel] != image[successors]).any()


def test_asymmetry_is_a_total_variation_of_p_asym_times_epsilon(symmetric):
    _, _, observations = symmetric
    environment, params = make("RotMirrorGrid", p_asym=0.6, epsilon=0.5)
    assert environment.planted_symmetries(params)[1:] == []
    mdp = environment.finite_mdp(params)
    states = environment.num_states
    dense = np.zeros((states, 4, states), np.float32)
    rows, columns = np.ogrid[:states, :4]
    for branch in range(2):
        np.add.at(
            dense,
            (rows, columns, np.asarray(mdp.successors)[:, :, branch]),
            np.asarray(mdp.probabilities)[:, :, branch],
        )
    image = images(environment, params, observations)
    touched = np.zeros((8, 4), bool)
    for g in range(1, 8):
        relabel = dihedral.relabelling(g)
        for action in range(4):
            moved = dense[image[g], relabel[action]][:, image[g]]
            distance = 0.5 * np.abs(moved - dense[:, action]).sum(axis=1)
            assert np.all((distance < 1e-6) | (np.abs(distance - SLIP) < 1e-6))
            touched[g, action] = distance.max() > 0.1
            involved = dihedral.RIGHT in (action, relabel[action])
            assert touched[g, action] == involved
    assert touched.any(axis=1)[1:].all()


def test_a_slip_moves_up_in_absolute_terms_in_every_orientation():
    environment, params = make("RotMirrorGrid", p_asym=1.0, epsilon=1.0)
    for orientation in range(8):
        state = environment.at(jnp.int32(orientation * 243 + 120))
        right = environment.step_env(jax.random.key(0), state, dihedral.RIGHT, params)[1]
        up = environment.step_env(jax.random.key(0), state, dihedral.UP, params)[1]
        assert int(right.index) == int(up.index)


def test_moves_change_the_agent_plane_as_named(symmetric):
    environment, params, observations = symmetric
    walls = observations[..., 0].astype(bool)
    successors = np.asarray(environment.finite_mdp(params).successors)[:, :, 0]
    rng = np.random.default_rng(0)
    for state in rng.choice(environment.num_states, 60, replace=False):
        row, column = np.argwhere(observations[state, :, :, 2])[0]
        if observations[state, row, column, 1]:
            continue
        for action, (down, right) in enumerate([(-1, 0), (1, 0), (0, -1), (0, 1)]):
            target = (row + down, column + right)
            expected = (row, column) if walls[state][target] else target
            got = tuple(np.argwhere(observations[successors[state, action], :, :, 2])[0])
            assert got == expected


def test_returns_by_dynamic_programming_agree_with_shortest_paths():
    """-1 a step and 0 on the last: the optimum is 1 - distance, averaged over the starts."""
    walls, goal = read_map()
    distance, frontier = {goal: 0}, [goal]
    for cell in frontier:
        for down, right in dihedral.MOVES:
            near = (cell[0] + int(down), cell[1] + int(right))
            if not walls[near] and near not in distance:
                distance[near] = distance[cell] + 1
                frontier.append(near)
    assert len(distance) == 243
    shortest = np.mean([1 - steps for cell, steps in distance.items() if cell != goal])
    grid = task("RotMirrorGrid")
    assert grid.optimal_return() == pytest.approx(float(shortest), abs=1e-4)
    assert grid.optimal_return() == pytest.approx(-13.72, abs=0.005)
    assert grid.random_return() == pytest.approx(-179.24, abs=0.005)
    assert grid.optimal_return(p_asym=1.0, epsilon=0.5) < grid.optimal_return() - 0.1
