"""Fast paths against slow ones: bounds, Cholesky, conjugate gradients, gradients."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gcr_rl.manifold import step
from gcr_rl.manifold.constraints import make_rows
from gcr_rl.manifold.correction import nearest_in_sweeps
from gcr_rl.manifold.normal_equations import constrained
from gcr_rl.types import Comparisons

SLOTS, ROWS = 6, 9


def bounds(seed):
    draw = np.random.default_rng(seed)
    upper = jnp.asarray(draw.integers(0, SLOTS, ROWS), jnp.int32)
    margin = jnp.asarray(draw.normal(size=ROWS), jnp.float32)
    mask = jnp.asarray(draw.random(ROWS) < 0.8)
    none = jnp.zeros(ROWS)
    constraints = Comparisons(upper, upper, none, margin, none, mask)
    values, gradient = (jnp.asarray(draw.normal(size=SLOTS), jnp.float32) for _ in range(2))
    return values, gradient, constraints


@pytest.mark.parametrize("contraction", [0.3, 1.0])
def test_bounds_only_is_the_closed_form(contraction):
    fast = jax.jit(partial(step, bounds_only=True))
    for seed in range(5):
        values, gradient, constraints = bounds(seed)
        highest = np.full(SLOTS, -np.inf)
        for slot, margin, kept in zip(*constraints[::3], constraints.mask, strict=False):
            highest[slot] = max(highest[slot], margin) if kept else highest[slot]
        frozen = jnp.arange(SLOTS) == 1
        moved, slack, stats = fast(
            values, None, gradient, constraints, frozen=frozen, contraction=contraction
        )
        wanted = np.maximum(values - gradient, highest)
        wanted[1] = values[1]
        np.testing.assert_allclose(moved, wanted, atol=1e-5)
        assert stats.contraction <= 1.0 - contraction + 1e-5
        short = constraints.margin - moved[constraints.upper]
        expected = jnp.where(constraints.mask, jnp.maximum(-short, 0.0), 0.0)
        np.testing.assert_allclose(slack, expected, atol=1e-5)
        worst = np.maximum(np.where(constraints.mask, short, 0.0), 0.0).max()
        np.testing.assert_allclose(stats.violation_after, worst, atol=1e-6)


def loop_rows():
    """A square with a diagonal: five rows, two independent undirected cycles."""
    upper = jnp.array([0, 1, 2, 0, 0, 4, 0, 0, 0])
    lower = jnp.array([1, 2, 3, 3, 2, 5, 0, 0, 0])
    discount = jnp.array([1.0, 1.0, 1.0, 1.0, 1.0, 0.9, 0, 0, 0])
    mask = jnp.arange(ROWS) < 6
    none = jnp.zeros(ROWS)
    constraints = Comparisons(upper, lower, none, none, discount, mask)
    frozen = jnp.arange(SLOTS) == 3
    return make_rows(jnp.zeros(SLOTS), constraints, frozen, None)[0]


@pytest.mark.parametrize("dense", [True, False])
def test_directions_agree_with_the_pseudoinverse(dense):
    rows = loop_rows()
    jacobian = np.zeros((ROWS, SLOTS))
    np.add.at(jacobian, (np.arange(ROWS), rows.upper), rows.at_upper)
    np.add.at(jacobian, (np.arange(ROWS), rows.lower), rows.at_lower)
    chosen = np.array(rows.mask)
    active = jacobian[chosen]
    assert np.linalg.matrix_rank(active @ active.T) < len(active)  # why it is damped
    draw = np.random.default_rng(0)
    anchor = draw.normal(size=SLOTS)
    target = np.where(chosen, jacobian @ draw.normal(size=SLOTS), 0.0)  # can be met
    tangent, normal = constrained(
        rows, jnp.asarray(chosen),
        [(jnp.asarray(anchor, jnp.float32), jnp.zeros(ROWS)),
         (jnp.zeros(SLOTS), jnp.asarray(target, jnp.float32))],
        jnp.zeros(ROWS), damping=1e-3, dense=dense,
    )  # fmt: skip
    pseudo = np.linalg.pinv(active)
    free = np.arange(SLOTS) != 3
    np.testing.assert_allclose(
        tangent.x[free], (anchor - pseudo @ active @ anchor)[free], atol=2e-4
    )
    np.testing.assert_allclose(normal.x, pseudo @ target[chosen], atol=2e-4)
    assert np.abs(active @ np.asarray(tangent.x)).max() < 1e-4
    np.testing.assert_allclose(
        tangent.x, anchor - jacobian.T @ np.asarray(tangent.multipliers), atol=1e-3
    )


def test_sweeps_give_the_smallest_largest_change():
    constraints = Comparisons(
        jnp.array([0, 1, 2]), jnp.array([1, 2, 3]), jnp.zeros(3), jnp.full(3, 0.1), jnp.ones(3),
        jnp.ones(3, bool),
    )  # fmt: skip
    values = jnp.array([0.0, 2.0, 1.0, 3.0, 9.0, 9.0])
    rows, _ = make_rows(values, constraints, jnp.zeros(SLOTS, bool), None)
    moved = nearest_in_sweeps(rows, values, jnp.zeros(SLOTS, bool), jnp.array(True), SLOTS)
    gaps = moved[:3] - moved[1:4]
    assert (gaps >= 0.1 - 1e-6).all() and (moved[4:] == 9.0).all()
    # V_3 must come at least 0.3 under V_0, 3.3 apart from where they are: half of it each
    np.testing.assert_allclose(jnp.abs(moved - values).max(), 1.65, atol=1e-6)


def smooth_problem():
    constraints = Comparisons(
        jnp.array([0, 1]), jnp.array([1, 2]), jnp.zeros(2), jnp.array([0.2, 0.1]),
        jnp.array([1.0, 0.5]), jnp.ones(2, bool),
    )  # fmt: skip
    return jnp.array([0.0, 1.0, 4.0, 0.5]), jnp.array([0.1, -0.2, 0.3, 0.4]), constraints


@pytest.mark.slow
def test_gradient_through_the_solve_is_that_of_finite_differences():
    values, gradient, constraints = smooth_problem()
    weights = jnp.array([1.0, -2.0, 0.5, 3.0])

    @partial(jax.jit, static_argnames="through")
    def loss(values, gradient, margin, through=True):
        changed = constraints._replace(margin=margin)
        moved = step(
            values, None, gradient, changed, through_solver=through, rounds=3, contraction=1.0
        )[0]
        return jnp.sum(weights * moved)

    inputs = (values, gradient, constraints.margin)
    slopes = jax.grad(loss, argnums=(0, 1, 2))(*inputs)
    for place, slope in enumerate(slopes):
        for i in range(slope.shape[0]):
            changes = [list(inputs), list(inputs)]
            for sign, change in zip((1, -1), changes, strict=True):
                change[place] = change[place].at[i].add(sign * 1e-2)
            difference = (loss(*changes[0]) - loss(*changes[1])) / 2e-2
            np.testing.assert_allclose(slope[i], difference, atol=5e-3)
    stopped = jax.grad(partial(loss, through=False), argnums=(0, 1))(*inputs)
    assert all((slope == 0).all() for slope in stopped)


def test_numpy_input_is_taken():
    values, gradient, constraints = smooth_problem()
    as_numpy = jax.tree.map(np.asarray, (values, gradient, constraints))
    frozen = np.array([True, False, False, False])
    plain = step(as_numpy[0], None, as_numpy[1], as_numpy[2], frozen=frozen, bounds_only=False)
    moved = np.asarray(plain[0])
    assert moved[0] == values[0] and plain[2].violation_after <= 1e-4
