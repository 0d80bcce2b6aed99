"""Projection, closure, alignment: feasible, recovers perturbed groups, never worse."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from true_groups import matrices

from gcr_rl.errors import InputError
from gcr_rl.symmetry.closure import Alignment, close_group
from gcr_rl.symmetry.operators import polar

CYCLE = jax.jit(close_group)


def perturbed(group, scale, seed=0):
    transforms, permutations = matrices(group, 6), matrices(group)
    keys = jax.random.split(jax.random.key(seed), 3)
    turn = polar(jax.random.normal(keys[2], (6, 6)))  # not axis-aligned
    transforms = turn @ transforms @ turn.T
    noise = [
        scale * jax.random.normal(k, m.shape)
        for k, m in zip(keys, (transforms, permutations), strict=False)
    ]
    return transforms + noise[0], permutations + noise[1]


@pytest.mark.parametrize("group", ["C4", "S3"])
def test_a_perturbed_group_is_recovered_with_its_table(group):
    transforms, permutations = perturbed(group, 0.08)
    for _ in range(4):
        closed = CYCLE(transforms, permutations)
        before, after = closed.stats.residual_transform
        assert after <= before + 1e-5
        transforms, permutations = closed.transforms, closed.permutations
    assert closed.stats.enforced == 1.0
    assert closed.stats.residual_transform[1] < 1e-4
    assert closed.stats.residual_permutation[1] == 0.0
    true = matrices(group)
    np.testing.assert_array_equal(permutations, true)
    for g in range(len(true)):
        for h in range(len(true)):
            np.testing.assert_array_equal(true[closed.table[g, h]], true[g] @ true[h])


@pytest.mark.parametrize("seed", range(4))
def test_any_bank_becomes_feasible_and_no_residual_grows(seed):
    keys = jax.random.split(jax.random.key(seed), 3)
    transforms = jax.random.normal(keys[0], (4, 6, 6))
    permutations = jax.random.uniform(keys[1], (4, 3, 3))
    features = jax.random.normal(keys[2], (20, 6))
    data = Alignment(features, None, None, None)
    closed = CYCLE(transforms, permutations, data)
    identity = jnp.eye(6)
    for matrix in closed.transforms:
        np.testing.assert_allclose(matrix @ matrix.T, identity, atol=1e-5)
    assert ((closed.permutations == 0) | (closed.permutations == 1)).all()
    np.testing.assert_array_equal(closed.permutations.sum(axis=1), 1)
    np.testing.assert_array_equal(closed.transforms[0], identity)
    stats = closed.stats
    total = stats.residual_transform + stats.residual_permutation
    assert total[1] <= total[0] + 1e-5
    assert stats.alignment[1] <= stats.alignment[0] + 1e-5


def test_alignment_finds_transforms_and_relabellings_from_data():
    true_w, true_p = matrices("C4", 6), matrices("C4")
    features = jax.random.normal(jax.random.key(0), (40, 6))
    values = jax.random.normal(jax.random.key(1), (40, 4))
    images = jnp.einsum("kij,bj->kbi", true_w, features)
    # Q(s, a) = Q(T s, Π a): the image's values are Π Q(s, .), which for a 4-cycle is not Πᵀ Q.
    image_values = jnp.einsum("kij,bj->kbi", true_p, values)
    start = true_w + 0.05 * jax.random.normal(jax.random.key(2), true_w.shape)
    wrong = jnp.stack([true_p[0], true_p[1], true_p[2], true_p[3]])
    closed = CYCLE(start, wrong, Alignment(features, images, values, image_values))
    assert closed.stats.alignment_kept
    np.testing.assert_allclose(closed.transforms, true_w, atol=1e-4)
    np.testing.assert_array_equal(closed.permutations, true_p)
    assert closed.stats.alignment[1] < 1e-6


def test_banks_of_different_sizes_are_refused():
    with pytest.raises(InputError, match="one K"):
        close_group(jnp.zeros((2, 3, 3)), jnp.zeros((3, 2, 2)))
