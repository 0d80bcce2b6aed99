"""Return distributions: by hand, by their defining properties, and against rlax."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gcr_rl.distribution import (
    cross_entropy,
    distributional_loss,
    distributional_target,
    divergence,
    expectation,
    make_support,
    project,
)
from gcr_rl.errors import InputError

SUPPORT = make_support(-2.0, 2.0, 5)  # -2, -1, 0, 1, 2
ATOMS = 51


def test_projection_by_hand():
    point = jnp.array([0.0, 0.0, 1.0, 0.0, 0.0])  # all at return 0
    one = jnp.float32(1.0)
    np.testing.assert_allclose(
        project(SUPPORT, point, jnp.float32(0.25), one), [0, 0, 0.75, 0.25, 0], atol=1e-6
    )
    np.testing.assert_allclose(project(SUPPORT, point, jnp.float32(-9.0), one), [1, 0, 0, 0, 0])
    spread = jnp.array([0.5, 0.0, 0.0, 0.0, 0.5])
    # 1 + 0.5 * (-2, 2) = (0, 2)
    np.testing.assert_allclose(
        project(SUPPORT, spread, one, jnp.float32(0.5)), [0, 0, 0.5, 0, 0.5], atol=1e-6
    )
    # a terminal step: everything at the reward
    np.testing.assert_allclose(
        project(SUPPORT, spread, jnp.float32(1.5), jnp.float32(0.0)), [0, 0, 0, 0.5, 0.5], atol=1e-6
    )


def random_case(seed, actions=3):
    keys = jax.random.split(jax.random.key(seed), 4)
    return (
        jax.random.normal(keys[0], (actions, ATOMS)) * 3,
        jax.random.normal(keys[1], (actions,)),
        jax.random.normal(keys[2], ()) * 3,
        jax.random.uniform(keys[3], ()),
    )


@pytest.mark.parametrize("seed", range(4))
def test_projection_keeps_mass_and_mean(seed):
    """Nothing is lost, and inside the support the expectation is that of r + g Z."""
    support = make_support(-10.0, 10.0, ATOMS)
    logits, _, reward, discount = random_case(seed)
    p, reward, discount = jax.nn.softmax(logits[0]), reward / 3, 0.5 * discount
    projected = project(support, p, reward, discount)
    assert float(projected.min()) >= 0
    np.testing.assert_allclose(projected.sum(), 1.0, atol=1e-5)
    np.testing.assert_allclose(
        projected @ support, reward + discount * (p @ support), atol=1e-3
    )  # |r + g z| < 10 always here


def test_expectation_and_losses_by_hand():
    logits = jnp.log(jnp.array([[0.5, 0.5, 1e-9, 1e-9, 1e-9], [1e-9, 1e-9, 1e-9, 0.25, 0.75]]))
    np.testing.assert_allclose(expectation(logits, SUPPORT), [-1.5, 1.75], atol=1e-5)
    target = jnp.array([0.0, 0.0, 0.0, 0.5, 0.5])
    loss = distributional_loss(logits, jnp.int32(1), target)
    np.testing.assert_allclose(loss, -0.5 * np.log(0.25) - 0.5 * np.log(0.75), rtol=1e-5)
    np.testing.assert_allclose(divergence(loss, target), loss - np.log(2.0), rtol=1e-4)
    exact = jnp.array([0.0, 0.0, 0.0, 0.25, 0.75])
    assert float(divergence(cross_entropy(logits[1], exact), exact)) == pytest.approx(0, abs=1e-5)


def test_gradient_is_that_of_cross_entropy():
    logits = jnp.array([[0.3, -1.0, 0.2, 0.0, 2.0]] * 2)
    target = jnp.array([0.1, 0.2, 0.3, 0.4, 0.0])
    gradient = jax.grad(lambda x: distributional_loss(x, jnp.int32(0), target))(logits)
    np.testing.assert_allclose(gradient[0], jax.nn.softmax(logits[0]) - target, atol=1e-6)
    np.testing.assert_array_equal(gradient[1], 0.0)


def test_target_selects_by_the_selector_and_stops_the_gradient():
    logits = jnp.array([[9.0, 0, 0, 0, 0], [0, 0, 0, 0, 9.0]])
    args = (SUPPORT, jnp.float32(0.0), jnp.float32(1.0))
    low = distributional_target(*args, logits, jnp.array([1.0, 0.0]))
    high = distributional_target(*args, logits, jnp.array([0.0, 1.0]))
    assert float(low[0]) > 0.99 and float(high[4]) > 0.99
    slope = jax.grad(lambda x: distributional_target(*args, x, jnp.array([1.0, 0.0]))[0])(logits)
    np.testing.assert_array_equal(slope, 0.0)


def test_bad_supports_are_refused():
    with pytest.raises(InputError):
        make_support(1.0, 1.0, 5)
    with pytest.raises(InputError):
        make_support(0.0, 1.0, 1)


@pytest.mark.foreign
def test_projection_and_loss_are_rlaxs():
    rlax = pytest.importorskip("rlax", reason="rlax is not installed (a test oracle)")
    support = make_support(-5.0, 5.0, ATOMS)
    for seed in range(8):
        logits, selector, reward, discount = random_case(seed)
        online = random_case(seed + 100)[0]
        mine = distributional_target(support, reward, discount, logits, selector)
        p = jax.nn.softmax(logits[jnp.argmax(selector)])
        theirs = rlax.categorical_l2_project(reward + discount * support, p, support)
        np.testing.assert_allclose(mine, theirs, atol=2e-5)
        loss = distributional_loss(online, jnp.int32(1), mine)
        expected = rlax.categorical_double_q_learning(
            support, online, jnp.int32(1), reward, discount, support, logits, selector
        )
        np.testing.assert_allclose(loss, expected, rtol=1e-4)
