import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gcr_rl.losses import regression_loss, td_error, td_target


def test_dqn_target_is_the_maximum_and_double_dqn_uses_the_selector():
    target, online = jnp.array([1.0, 5.0, 2.0]), jnp.array([0.0, 1.0, 9.0])
    assert td_target(0.5, 0.9, target, target) == pytest.approx(0.5 + 0.9 * 5.0)
    assert td_target(0.5, 0.9, target, online) == pytest.approx(0.5 + 0.9 * 2.0)


def test_no_gradient_flows_through_the_target():
    gradient = jax.grad(lambda q: td_target(1.0, 0.9, q, q))(jnp.array([1.0, 2.0]))
    np.testing.assert_array_equal(gradient, 0.0)


def test_error_is_of_the_taken_action():
    assert td_error(jnp.array([1.0, 2.0]), 1, 5.0) == 3.0


@pytest.mark.parametrize("delta", [0.5, 1.0, 2.0])
def test_huber_is_smooth_and_linear_beyond_delta(delta):
    def slope(x):
        return jax.grad(lambda e: regression_loss(e, "huber", delta))(x)

    for x in (-3.0, -0.2, 0.1, 0.4, 4.0):
        assert slope(x) == pytest.approx(np.clip(x, -delta, delta), rel=1e-5)
    assert regression_loss(3.0, "squared", delta) == pytest.approx(4.5)
