"""The latent bank: losses as written, schedules that average to the exact penalties."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from true_groups import matrices

from gcr_rl.errors import InputError
from gcr_rl.symmetry import latent, penalties
from gcr_rl.symmetry.operators import orthogonality_defect

SETTINGS = latent.LatentSettings(neighbours=None, sinkhorn_iterations=20)
KEYS = jax.random.split(jax.random.key(0), 5)
BANK = latent.init(KEYS[0], 3, 6, 4)
HEAD = latent.LinearHead(jax.random.normal(KEYS[1], (4, 6)), jax.random.normal(KEYS[2], (4,)))
FEATURES = jax.random.normal(KEYS[3], (10, 6))
VALUES = jax.vmap(HEAD)(FEATURES)
LOSSES = jax.jit(latent.losses, static_argnums=(5,))


def test_init_starts_orthogonal_with_an_identity():
    np.testing.assert_array_equal(BANK.transforms[0], jnp.eye(6))
    assert max(float(orthogonality_defect(w)) for w in BANK.transforms) < 1e-5
    assert jnp.argmax(latent.relabellings(BANK, SETTINGS)[0], axis=0).tolist() == [0, 1, 2, 3]
    with pytest.raises(InputError, match="elements"):
        latent.init(KEYS[0], 0, 6, 4)


def test_values_of_transformed_features_agree_for_both_kinds_of_head():
    fast = latent.transformed_values(BANK, FEATURES, HEAD)
    slow = latent.transformed_values(BANK, FEATURES, lambda z: HEAD(z))
    by_hand = HEAD(BANK.transforms[2] @ FEATURES[5])
    np.testing.assert_allclose(fast, slow, atol=1e-5)
    np.testing.assert_allclose(fast[2, 5], by_hand, atol=1e-5)


def test_local_loss_and_alpha_equal_the_formulas_written_out():
    permutations = np.asarray(latent.relabellings(BANK, SETTINGS))
    per_element, alphas = [], []
    for k in range(3):
        top = bottom = 0.0
        for i in range(10):
            moved = np.asarray(BANK.transforms[k] @ FEATURES[i])
            pulled = permutations[k].T @ np.asarray(HEAD(jnp.asarray(moved)))
            residual = np.sum((np.asarray(VALUES[i]) - pulled) ** 2)
            nearest = np.min(np.sum((np.asarray(FEATURES) - moved) ** 2, axis=1))
            alpha = np.exp(-nearest / SETTINGS.sigma**2) * np.exp(-residual / SETTINGS.tau)
            top, bottom = top + alpha * residual, bottom + alpha
            alphas.append(alpha)
        per_element.append(top / (bottom + 1e-8))
    found = LOSSES(BANK, FEATURES, VALUES, HEAD, 0, SETTINGS)
    assert found.equivariance == pytest.approx(np.mean(per_element), rel=1e-3)
    assert found.alpha == pytest.approx(np.mean(alphas), rel=1e-3)


def test_no_gradient_goes_through_alpha():
    def alpha(transforms):
        bank = BANK._replace(transforms=transforms)
        return jnp.sum(latent.applicability(bank, FEATURES, jnp.ones((3, 10)), SETTINGS))

    np.testing.assert_array_equal(jax.grad(alpha)(BANK.transforms), 0)


def test_terms_in_turn_average_to_the_exact_penalties():
    settings = latent.LatentSettings(pairs=1, penalty_period=2)
    steps = [LOSSES(BANK, FEATURES, VALUES, HEAD, step, settings) for step in range(2 * 9)]
    permutations = latent.relabellings(BANK, settings)
    exact = {
        "closure": penalties.closure_penalty(BANK.transforms, permutations),
        "inverse": penalties.inverse_penalty(BANK.transforms, permutations),
        "order": penalties.order_penalty(BANK.transforms, permutations, (2, 3, 4)),
        "diversity": penalties.diversity_penalty(BANK.transforms, permutations),
        "identity": penalties.identity_penalty(BANK.transforms, permutations),
    }
    full = LOSSES(BANK, FEATURES, VALUES, HEAD, 0, latent.LatentSettings(pairs=9, penalty_period=1))
    for name, value in exact.items():
        mean = np.mean([float(getattr(step, name)) for step in steps])
        assert mean == pytest.approx(float(value), rel=1e-4, abs=1e-6)
        assert getattr(full, name) == pytest.approx(float(value), rel=1e-4, abs=1e-6)


def test_a_true_group_with_an_equivariant_head_has_zero_loss():
    # W_k acts on the first coordinates as Π_k acts on actions, and the head reads those off.
    transforms, permutations = matrices("C4", 6), matrices("C4")
    head = latent.LinearHead(jnp.eye(4, 6), jnp.zeros(4))
    bank = latent.LatentBank(transforms, 200.0 * permutations)
    found = LOSSES(bank, FEATURES, jax.vmap(head)(FEATURES), head, 0, SETTINGS)
    assert found.equivariance < 1e-8
    assert found.total < 1e-6


def test_training_lowers_the_loss_and_keeps_the_bank_orthogonal():
    settings = latent.LatentSettings(neighbours=None, contraction_period=1000)
    optimiser = optax.adam(1e-2)

    @jax.jit
    def update(bank, state, step):
        gradient = jax.grad(
            lambda b: latent.losses(b, FEATURES, VALUES, HEAD, step, settings).total
        )(bank)
        change, state = optimiser.update(gradient, state)
        bank, defect = latent.retract(optax.apply_updates(bank, change), step)
        return latent.maybe_contract(bank, FEATURES, VALUES, HEAD, step, settings), state, defect

    bank, state = BANK, optimiser.init(BANK)
    exact = latent.LatentSettings(neighbours=None, pairs=9, penalty_period=1)
    before = LOSSES(bank, FEATURES, VALUES, HEAD, 0, exact).total
    for step in range(150):
        bank, state, _ = update(bank, state, step)
    assert LOSSES(bank, FEATURES, VALUES, HEAD, 0, exact).total < 0.8 * before
    assert max(float(orthogonality_defect(w)) for w in bank.transforms) < 0.1


def test_contraction_leaves_a_feasible_bank_and_comes_on_schedule():
    settings = latent.LatentSettings(contraction_period=3, sinkhorn_iterations=20)
    run = jax.jit(latent.maybe_contract, static_argnums=(5,))
    drifted = BANK._replace(transforms=BANK.transforms * 1.05)
    same = run(drifted, FEATURES, VALUES, HEAD, 0, settings)
    np.testing.assert_array_equal(same.transforms, drifted.transforms)
    contracted = run(drifted, FEATURES, VALUES, HEAD, 2, settings)
    assert max(float(orthogonality_defect(w)) for w in contracted.transforms) < 1e-4
    sharp = latent.relabellings(contracted, settings)
    np.testing.assert_allclose(jnp.max(sharp, axis=1), 1.0, atol=0.05)


def test_mismatched_actions_are_refused():
    with pytest.raises(InputError, match="as the bank"):
        latent.losses(BANK, FEATURES, VALUES[:, :3], HEAD, 0, SETTINGS)
