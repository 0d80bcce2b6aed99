"""Each group penalty: zero exactly on a true group, and equal to a case worked by hand."""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from true_groups import matrices

from gcr_rl.symmetry import penalties
from gcr_rl.symmetry.operators import polar


@jax.jit
def every_penalty(transforms, permutations):
    bank = (transforms, permutations)
    return {
        "identity": penalties.identity_penalty(*bank),
        "closure": penalties.closure_penalty(*bank),
        "inverse": penalties.inverse_penalty(*bank),
        "order": penalties.order_penalty(*bank, (2, 3, 4)),
        "permutation": penalties.permutation_penalty(permutations),
        "diversity": penalties.diversity_penalty(*bank),
    }


def random_bank(count=3, size=4, actions=3):
    keys = jax.random.split(jax.random.key(0), 2)
    transforms = jax.vmap(polar)(jax.random.normal(keys[0], (count, size, size)))
    return transforms, jax.nn.softmax(jax.random.normal(keys[1], (count, actions, actions)))


@pytest.mark.parametrize("group", ["C2", "C4", "S3", "D4"])
def test_all_penalties_vanish_exactly_on_a_true_group(group):
    transforms, permutations = matrices(group, 6), matrices(group)
    on_group = every_penalty(transforms, permutations)
    assert {name: float(value) for name, value in on_group.items()} == dict.fromkeys(on_group, 0.0)
    moved = transforms + 0.1 * jax.random.normal(jax.random.key(1), transforms.shape)
    off_group = every_penalty(moved, permutations)
    for name in ("identity", "closure", "inverse", "order"):
        assert off_group[name] > 0.01


def test_identity_penalty_by_hand():
    transforms = jnp.array([[[2.0, 0.0], [0.0, 1.0]], [[0.0, 1.0], [1.0, 0.0]]])
    permutations = jnp.array([[[0.5, 0.5], [0.5, 0.5]], [[0.0, 1.0], [1.0, 0.0]]])
    # |W1-I|² = 1, |Π1-I|² = 4 * 0.25 = 1, W1ᵀW1 - I = diag(3, 0) gives 9, W2 gives 0.
    assert penalties.identity_penalty(transforms, permutations) == pytest.approx(1 + 1 + 9 / 2)


def test_closure_and_inverse_by_hand_in_one_dimension():
    transforms = jnp.array([[[1.0]], [[2.0]]])
    permutations = jnp.ones((2, 1, 1))
    # Products 1, 2, 2, 4: nearest elements 1, 2, 2, 2; squared gaps 0, 0, 0, 4.
    assert penalties.closure_penalty(transforms, permutations) == pytest.approx(1.0)
    assert penalties.closure_penalty(transforms, permutations, jnp.array([[1, 1]])) == 4.0
    assert penalties.inverse_penalty(transforms, permutations) == 0.0
    turned = jnp.array([[[1.0, 0.0], [0.0, 1.0]], [[0.0, -1.0], [1.0, 0.0]]])
    # The transpose of the quarter turn is 2 away from I (squared 4) and 8 from the turn.
    assert penalties.inverse_penalty(turned, jnp.ones((2, 1, 1))) == pytest.approx(2.0)


def test_closure_equals_the_brute_force_minimum():
    transforms, permutations = random_bank()
    gaps = [
        min(
            float(jnp.sum((transforms[i] @ transforms[j] - transforms[k]) ** 2))
            + float(jnp.sum((permutations[i] @ permutations[j] - permutations[k]) ** 2))
            for k in range(3)
        )
        for i, j in itertools.product(range(3), repeat=2)
    ]
    assert penalties.closure_penalty(transforms, permutations) == pytest.approx(
        np.mean(gaps), rel=1e-5
    )


def test_order_takes_the_nearest_order_and_the_orthogonal_form_agrees():
    angle = 2 * math.pi / 3
    turn = jnp.array([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]])
    once = jnp.ones((1, 1, 1))
    assert penalties.order_penalty(turn[None], once, (2, 3, 4)) == pytest.approx(0, abs=1e-10)
    # With order 2 alone: |R(240°) - I|² = 4 (1 - cos 240°) = 6.
    assert penalties.order_penalty(turn[None], once, (2,)) == pytest.approx(6.0, rel=1e-5)
    bank = random_bank()
    assert penalties.orthogonal_order_penalty(*bank) == pytest.approx(
        float(penalties.order_penalty(*bank, (2, 3, 4))), rel=1e-5
    )


def test_permutation_and_diversity_by_hand():
    centre = jnp.full((1, 2, 2), 0.5)
    assert penalties.permutation_penalty(centre) == pytest.approx(math.log(2), rel=1e-6)
    transforms = jnp.array([[[0.0]], [[0.5]], [[3.0]]])
    permutations = jnp.ones((3, 1, 1))
    # One pair within the margin at squared distance 1/4: (1 - 1/4)² over 3 pairs.
    assert penalties.diversity_penalty(transforms, permutations) == pytest.approx(0.75**2 / 3)
    some = penalties.diversity_penalty(transforms, permutations, elements=jnp.array([0]))
    assert some == pytest.approx(0.75**2 / 2)


def test_gradients_equal_finite_differences():
    def total(transforms, permutations):
        return (
            penalties.identity_penalty(transforms, permutations)
            + 2.0 * penalties.closure_penalty(transforms, permutations)
            + 3.0 * penalties.inverse_penalty(transforms, permutations)
            + 4.0 * penalties.order_penalty(transforms, permutations)
            + 5.0 * penalties.diversity_penalty(transforms, permutations, margin=50.0)
        )

    with jax.enable_x64(True):
        point, fixed = (jnp.asarray(np.asarray(part), jnp.float64) for part in random_bank())
        direction = jax.random.normal(jax.random.key(5), point.shape, jnp.float64)
        evaluate = jax.jit(lambda t: total(point + t * direction, fixed))
        _, slope = jax.jvp(evaluate, (0.0,), (1.0,))
        difference = (evaluate(1e-6) - evaluate(-1e-6)) / 2e-6
        assert slope == pytest.approx(float(difference), rel=1e-6)
