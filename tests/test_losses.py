import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gcr_rl.losses import beyond_chance, regression_loss, td_error, td_target


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


def counted_by_hand(gap, share):
    """The smallest size from which on the other side is rare enough."""
    sizes = [t for t in sorted(abs(gap)) if 1 + sum(gap <= -t) <= share * sum(gap >= t)]
    return (gap > 0) & (gap >= sizes[0]) if sizes else np.zeros(len(gap), bool)


@pytest.mark.parametrize("share", [0.1, 0.3, 0.9])
def test_bounds_beyond_chance_are_those_counted_by_hand(share):
    generator = np.random.default_rng(0)
    for shift in (-1.0, 0.0, 1.0, 3.0):
        gap = np.round(generator.normal(shift, 1.0, 64), 1).astype(np.float32)
        expected = counted_by_hand(gap, share)
        np.testing.assert_array_equal(beyond_chance(jnp.asarray(gap), share), expected)


def test_symmetric_noise_raises_hardly_anything_and_a_signal_gets_through():
    noise = np.random.default_rng(1).normal(size=(200, 64)).astype(np.float32)
    raised = jax.vmap(lambda gap: beyond_chance(gap, 0.2))(noise)
    assert raised.mean() < 0.01 < (noise > 0).mean()
    signal = jax.vmap(lambda gap: beyond_chance(gap, 0.2))(noise + 8.0 * (np.arange(64) < 20))
    assert signal[:, :20].mean() > 0.99
    assert signal[:, 20:].mean() < 0.2


def test_gaps_that_are_all_zero_or_all_below_raise_nothing():
    assert not beyond_chance(jnp.zeros(16), 0.2).any()
    assert not beyond_chance(-jnp.arange(16.0), 0.2).any()
