"""The soft order loss: equations, monotone descent, penalty bound, gradients, errors."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import enable_x64
from jax.test_util import check_grads

from gcr_rl.errors import InputError
from gcr_rl.order import project, soft_project
from gcr_rl.types import Comparisons

NODES, EDGES = 10, 20
SEEDS = st.integers(0, 2**32 - 1)


def random_order(rng, margin=0.1, hub=False):
    rank = rng.permutation(NODES)
    first = np.zeros(EDGES, int) if hub else rng.integers(0, NODES - 1, EDGES)
    second = rng.integers(first + 1, NODES)
    return Comparisons(
        rank[first].astype(np.int32),
        rank[second].astype(np.int32),
        np.ones(EDGES),
        np.full(EDGES, margin),
        np.ones(EDGES),
        np.arange(EDGES) < rng.integers(1, EDGES + 1),
    )


def by_hand(estimate, values, order, penalty):
    """F, G and L_rank as the paper writes them, in numpy."""
    keep = np.asarray(order.mask)
    upper, lower = order.upper[keep], order.lower[keep]
    gap = estimate[lower] - estimate[upper]
    fidelity = np.mean((estimate - values) ** 2)
    hinge = np.mean(np.maximum(order.margin[keep] + gap, 0) ** 2)
    return fidelity, hinge, np.mean(np.log1p(np.exp(gap)))


@given(SEEDS, st.integers(1, 3))
@settings(max_examples=20)
def test_losses_are_the_papers(seed, steps):
    rng = np.random.default_rng(seed)
    order, values = random_order(rng), rng.normal(size=NODES)
    with enable_x64(True):
        estimate, losses = soft_project(values, order, 7.0, steps, 0.3)
        estimate = np.asarray(estimate)
        fidelity, hinge, rank = by_hand(estimate, values, order, 7.0)
        before = by_hand(values, values, order, 7.0)[1]
        np.testing.assert_allclose(losses.iso, fidelity + 7.0 * hinge, rtol=1e-10)
        np.testing.assert_allclose(losses.rank, rank, rtol=1e-10)
        np.testing.assert_allclose(losses.ord, losses.iso + 0.3 * losses.rank, rtol=1e-10)
        np.testing.assert_allclose(losses.violation_after, hinge, atol=1e-12)
        np.testing.assert_allclose(losses.violation_before, before, atol=1e-12)


@jax.jit
def _descent(values, order, penalty, rank_weight):
    def after(steps):
        return soft_project(values, order, penalty, steps, rank_weight)[1].ord

    return jnp.stack([after(steps) for steps in (1, 2, 3, 5)])


@given(SEEDS, st.floats(-3, 6), st.floats(-3, 4), st.booleans())
def test_no_step_raises_the_loss(seed, log_penalty, log_rank, hub):
    """For every penalty, rank weight and degree, a star with one hub included."""
    rng = np.random.default_rng(seed)
    order, values = random_order(rng, hub=hub), rng.normal(size=NODES)
    penalty, rank_weight = 10.0**log_penalty, 10.0**log_rank
    with enable_x64(True):
        path = np.asarray(_descent(values, order, penalty, rank_weight))
    fidelity, hinge, rank = by_hand(values, values, order, penalty)
    start = fidelity + penalty * hinge + rank_weight * rank
    assert (np.diff(np.concatenate([[start], path])) <= 1e-9 * max(start, 1.0)).all()


@given(SEEDS)
@settings(max_examples=10)
def test_penalty_bound_and_limit(seed):
    """G(V_μ) <= F*/μ, F(V_μ) <= F*, and V_μ -> V* as μ grows (thm:penalty)."""
    rng = np.random.default_rng(seed)
    order, values = random_order(rng), rng.normal(size=NODES)
    with enable_x64(True):
        exact = np.asarray(_exact(values, order))
        best = np.mean((exact - values) ** 2)
        distances = []
        for penalty in (1.0, 30.0, 1000.0):
            estimate = np.asarray(_minimiser(values, order, penalty))
            fidelity, hinge, _ = by_hand(estimate, values, order, penalty)
            assert hinge <= best / penalty + 1e-9
            assert fidelity <= best + 1e-9
            distances.append(np.abs(estimate - exact).max())
    assert distances[2] <= distances[0] + 1e-9
    assert distances[2] <= 0.05 * max(np.ptp(values), 1.0)


@jax.jit
def _exact(values, order):
    return project(values, order).values


@jax.jit
def _minimiser(values, order, penalty):
    """Minimise L_iso by Newton's method, which is exact on its quadratic pieces."""

    def loss(x):
        short = order.margin + x[order.lower] - x[order.upper]
        hinge = jnp.where(order.mask, jnp.maximum(short, 0.0) ** 2, 0.0)
        return jnp.mean((x - values) ** 2) + penalty * jnp.sum(hinge) / jnp.sum(order.mask)

    def newton(_, x):
        step = jnp.linalg.solve(jax.hessian(loss)(x), jax.grad(loss)(x))
        lengths = 0.5 ** jnp.arange(12)
        losses = jax.vmap(lambda t: loss(x - t * step))(lengths)
        return x - lengths[jnp.argmin(losses)] * step

    return jax.lax.fori_loop(0, 60, newton, values)


def test_gradient_through_the_steps():
    rng = np.random.default_rng(1)
    order, values = random_order(rng), rng.normal(size=NODES)
    with enable_x64(True):

        def loss(vector):
            estimate, losses = soft_project(vector, order, 5.0, 3, 0.2)
            return jnp.sum(estimate**3) + losses.ord

        check_grads(loss, (jnp.asarray(values),), order=1, atol=1e-5, rtol=1e-5)


def test_stopped_gradient_pulls_towards_the_estimate():
    """With V̂ constant, ∇_V L_ord = 2 (V − V̂) / B and nothing flows through V̂."""
    rng = np.random.default_rng(2)
    order, values = random_order(rng), jnp.asarray(rng.normal(size=NODES), jnp.float32)
    kept = lambda v: soft_project(v, order, 5.0, 3, 0.2, stop_gradient=True)  # noqa: E731
    estimate, _ = kept(values)
    free, _ = soft_project(values, order, 5.0, 3, 0.2)
    np.testing.assert_allclose(estimate, free, atol=1e-6)
    pull = jax.grad(lambda v: kept(v)[1].ord)(values)
    np.testing.assert_allclose(pull, 2 * (values - estimate) / NODES, atol=1e-6)
    np.testing.assert_array_equal(jax.grad(lambda v: jnp.sum(kept(v)[0]))(values), 0.0)


def test_margin_override_frozen_and_empty():
    rng = np.random.default_rng(3)
    order, values = random_order(rng), rng.normal(size=NODES).astype(np.float32)
    same = order._replace(margin=np.full(EDGES, 0.7))
    np.testing.assert_array_equal(
        soft_project(values, order, 5.0, margin=0.7)[0], soft_project(values, same, 5.0)[0]
    )
    frozen = np.arange(NODES) % 2 == 0
    estimate, _ = soft_project(values, same, 5.0, frozen=frozen)
    np.testing.assert_array_equal(estimate[frozen], values[frozen])
    estimate, losses = soft_project(values, order._replace(mask=np.zeros(EDGES, bool)), 5.0)
    np.testing.assert_array_equal(estimate, values)
    assert float(losses.ord) == 0.0


def test_bad_input():
    order, values = random_order(np.random.default_rng(4)), jnp.zeros(NODES)
    for keywords, field in (
        ({"penalty": -1.0}, "penalty"),
        ({"penalty": np.nan}, "penalty"),
        ({"penalty": 1.0, "rank_weight": -1.0}, "rank_weight"),
        ({"penalty": 1.0, "steps": 0}, "steps"),
    ):
        with pytest.raises(InputError, match=field):
            soft_project(values, order, **keywords)
    with pytest.raises(InputError, match=r"values\[2\]"):
        soft_project(values.at[2].set(jnp.nan), order, 1.0)
    outside = order._replace(upper=np.full(EDGES, NODES))
    with pytest.raises(InputError, match="upper"):
        soft_project(values, outside, 1.0)
    _, losses = jax.jit(lambda v, o: soft_project(v, o, 1.0))(values, outside)
    assert np.isnan(losses.ord)
