"""Sinkhorn, assignment, polar factor and Procrustes against oracles and finite differences."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.linalg import polar as scipy_polar
from scipy.optimize import linear_sum_assignment

from gcr_rl.errors import InputError
from gcr_rl.symmetry import operators
from gcr_rl.symmetry.operators import (
    check_permutations,
    nearest_permutation,
    newton_schulz,
    orthogonality_defect,
    permutation_entropy,
    permutation_matrix,
    polar,
    procrustes,
    sinkhorn,
)

KEY = jax.random.key(0)


def test_sinkhorn_is_doubly_stochastic_and_stable_for_large_logits():
    for scale in (1.0, 30.0):
        matrix = sinkhorn(scale * jax.random.normal(KEY, (5, 5)), iterations=200)
        np.testing.assert_allclose(matrix.sum(axis=1), 1.0, atol=1e-5)
        np.testing.assert_allclose(matrix.sum(axis=0), 1.0, atol=2e-2 if scale > 1 else 1e-5)
        assert np.isfinite(matrix).all()


def test_sinkhorn_equals_the_alternating_normalisation_by_hand():
    logits = np.array([[0.0, 1.0], [2.0, -1.0]])
    plain = np.exp(logits)
    for _ in range(3):
        plain = plain / plain.sum(axis=0, keepdims=True)
        plain = plain / plain.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(sinkhorn(jnp.asarray(logits), 3), plain, rtol=1e-5)


@pytest.mark.parametrize("size", [2, 4, 6])
def test_nearest_permutation_is_optimal_and_reads_columns_as_actions(size):
    scores = jax.random.normal(KEY, (16, size, size))
    relabels = jax.jit(jax.vmap(nearest_permutation))(scores)
    for matrix, relabel in zip(np.asarray(scores), np.asarray(relabels), strict=True):
        rows, columns = linear_sum_assignment(-matrix)
        best = matrix[rows, columns].sum()
        found = matrix[relabel, np.arange(size)].sum()  # Π[relabel[a], a] = 1
        assert found == pytest.approx(best, abs=1e-5)
        by_force = max(
            sum(matrix[b, a] for a, b in enumerate(order))
            for order in itertools.permutations(range(min(size, 4)))
        )
        assert size > 4 or found == pytest.approx(by_force, abs=1e-5)


def test_nearest_permutation_undoes_permutation_matrix_for_a_three_cycle():
    relabel = jnp.array([1, 2, 0])  # not an involution: a transposed Π would show
    matrix = permutation_matrix(relabel)
    assert matrix[1, 0] == 1 and matrix[0, 2] == 1
    np.testing.assert_array_equal(nearest_permutation(matrix), relabel)


def test_nearest_permutation_survives_numbers_that_are_not():
    scores = jnp.array([[jnp.nan, 1.0, 0.0], [0.0, jnp.inf, 2.0], [3.0, 0.0, -jnp.inf]])
    assert sorted(np.asarray(nearest_permutation(scores)).tolist()) == [0, 1, 2]


def test_permutation_tables_are_checked():
    with pytest.raises(InputError, match=r"permutations of 0\.\.2"):
        check_permutations([[0, 1, 1]])
    with pytest.raises(InputError, match="whole numbers"):
        check_permutations([[0.0, 1.0]])


def test_polar_equals_scipy_and_newton_schulz_near_the_manifold():
    matrix = jax.random.normal(KEY, (5, 5))
    np.testing.assert_allclose(polar(matrix), scipy_polar(np.asarray(matrix))[0], atol=1e-5)
    near = polar(matrix) + 0.02 * jax.random.normal(jax.random.key(1), (5, 5))
    np.testing.assert_allclose(newton_schulz(near, 4), polar(near), atol=1e-5)
    assert orthogonality_defect(newton_schulz(near)) < 0.1 * orthogonality_defect(near)


@pytest.mark.slow
def test_polar_never_gives_up_on_matrices_that_are_orthogonal_to_rounding():
    """LAPACK's divide and conquer does so on about one in a hundred of these."""
    draw = np.random.default_rng(5)
    exact, _ = np.linalg.qr(draw.normal(size=(200, 128, 128)))
    near = (exact + 1e-6 * draw.normal(size=exact.shape)).astype(np.float32)
    np.testing.assert_allclose(jax.jit(jax.vmap(polar))(near), exact, atol=2e-5)


def test_polar_takes_over_where_the_decomposition_gives_up(monkeypatch):
    exact = np.linalg.qr(np.random.default_rng(1).normal(size=(3, 48, 48)))[0].astype(np.float32)

    def gives_up(matrix):
        return (jnp.full_like(matrix, jnp.nan),) * 3

    monkeypatch.setattr(jnp.linalg, "svd", gives_up)
    for scale in (1.0, 1e-3, 40.0):
        np.testing.assert_allclose(jax.vmap(polar)(scale * exact), exact, atol=1e-5)
    assert np.isfinite(polar(jnp.zeros((4, 4)))).all()


@pytest.mark.parametrize("spread", [0.0, 1.0, 3.0, 5.0])
def test_polar_by_products_equals_scipy_for_every_condition(spread):
    draw = np.random.default_rng(2)
    left, right = np.linalg.qr(draw.normal(size=(2, 64, 64)))[0]
    matrix = 7.0 * left @ np.diag(np.logspace(0.0, -spread, 64)) @ right
    found = jax.jit(operators._polar_by_products)(jnp.asarray(matrix, jnp.float32))
    np.testing.assert_allclose(found, left @ right, atol=3e-6 * 10.0**spread + 1e-5)
    np.testing.assert_allclose(found.T @ found, np.eye(64), atol=1e-5)


def test_polar_by_products_of_a_singular_matrix_is_orthogonal_and_solves_procrustes():
    draw = np.random.default_rng(3)
    source, target = draw.normal(size=(2, 20, 64))
    matrix = target.T @ source  # rank 20
    found = np.asarray(operators._polar_by_products(jnp.asarray(matrix, jnp.float32)))
    np.testing.assert_allclose(found.T @ found, np.eye(64), atol=1e-5)
    best = np.linalg.svd(matrix, compute_uv=False).sum()
    assert np.sum(found * matrix) >= (1 - 1e-5) * best


def test_polar_gradient_is_finite_at_orthogonal_and_singular_matrices():
    weights = jax.random.normal(jax.random.key(1), (4, 4))
    gradient = jax.grad(lambda a: jnp.sum(weights * polar(a)))
    for matrix in (jnp.eye(4), polar(weights), jnp.zeros((4, 4)), jnp.diag(jnp.arange(4.0))):
        assert np.isfinite(gradient(matrix)).all()
    # At the identity dQ is the skew part of dA, by hand.
    np.testing.assert_allclose(gradient(jnp.eye(4)), (weights - weights.T) / 2, atol=1e-5)


@pytest.mark.parametrize("case", ["general", "orthogonal"])
def test_polar_gradient_equals_finite_differences(case):
    with jax.enable_x64(True):
        matrix = jax.random.normal(KEY, (4, 4), jnp.float64)
        matrix = polar(matrix) if case == "orthogonal" else matrix
        direction = jax.random.normal(jax.random.key(2), (4, 4), jnp.float64)
        _, tangent = jax.jvp(polar, (matrix,), (direction,))
        step = 1e-6
        difference = (polar(matrix + step * direction) - polar(matrix - step * direction)) / (
            2 * step
        )
        np.testing.assert_allclose(tangent, difference, atol=1e-7)


def test_procrustes_recovers_a_rotation_and_beats_others():
    source = jax.random.normal(KEY, (30, 4))
    rotation = polar(jax.random.normal(jax.random.key(1), (4, 4)))
    target = source @ rotation.T
    np.testing.assert_allclose(procrustes(source, target), rotation, atol=1e-4)
    noisy = target + 0.5 * jax.random.normal(jax.random.key(2), target.shape)
    best = jnp.sum((noisy - source @ procrustes(source, noisy).T) ** 2)
    for key in jax.random.split(jax.random.key(3), 20):
        other = polar(rotation + 0.3 * jax.random.normal(key, (4, 4)))
        assert best <= jnp.sum((noisy - source @ other.T) ** 2)


def test_permutation_entropy_is_zero_at_permutations_and_log_n_at_the_centre():
    assert permutation_entropy(permutation_matrix(jnp.array([2, 0, 1]))) == 0.0
    assert permutation_entropy(jnp.full((3, 3), 1 / 3)) == pytest.approx(np.log(3), rel=1e-5)
    assert np.isfinite(jax.grad(permutation_entropy)(jnp.eye(3))).all()
