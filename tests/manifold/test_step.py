"""The hard step: feasible, tangent, contracting, near the dense reference, safe on bad input."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gcr_rl.errors import InputError
from gcr_rl.manifold import Equalities, step, subsample
from gcr_rl.order import greedy_dag
from gcr_rl.order.projection import reference_project
from gcr_rl.types import Comparisons

SLOTS, ROWS, BATCH, PAIRS = 8, 12, 16, 3
TOLERANCE = 1e-4


def rows(*edges, size=ROWS):
    """Comparisons from (upper, lower, margin, discount), padded with masked rubbish."""
    table = [*edges, *[(-7, 99, np.nan, 5.0)] * (size - len(edges))]
    upper, lower, margin, discount = (np.array(column) for column in zip(*table, strict=True))
    mask = np.arange(size) < len(edges)
    return Comparisons(
        jnp.asarray(upper, jnp.int32), jnp.asarray(lower, jnp.int32), jnp.zeros(size),
        jnp.asarray(margin, jnp.float32), jnp.asarray(discount, jnp.float32), jnp.asarray(mask),
    )  # fmt: skip


def no_pairs():
    zero = jnp.zeros(PAIRS, jnp.int32)
    return Equalities(zero, zero, jnp.zeros(PAIRS, bool))


@partial(jax.jit, static_argnames=("rounds", "ascents"))
def run(values, slack, gradient, constraints, frozen, pairs, size, shrink, rate, rounds, ascents):
    call = partial(step, rounds=rounds, ascents=ascents)
    return jax.vmap(
        lambda v, m, g, c, f, e: call(
            v, m, g, c, frozen=f, equalities=e, step_size=size, contraction=shrink, slack_rate=rate
        )
    )(values, slack, gradient, constraints, frozen, pairs)


def one(values, gradient, constraints, *, slack=None, frozen=None, pairs=None, size=1.0,
        shrink=1.0, rate=1.0, rounds=4, ascents=40):  # fmt: skip
    """One problem in every place of the batch, so that all tests share a compiled program."""
    values, gradient = jnp.asarray(values, jnp.float32), jnp.asarray(gradient, jnp.float32)
    short = constraints.margin + constraints.discount * values[constraints.lower]
    short = jnp.where(constraints.mask, short - values[constraints.upper], 0.0)
    slack = jnp.maximum(-short, 0.0) if slack is None else jnp.asarray(slack, jnp.float32)
    frozen = jnp.zeros(SLOTS, bool) if frozen is None else jnp.asarray(frozen)
    pairs = no_pairs() if pairs is None else pairs
    fields = (values, slack, gradient, constraints, frozen, pairs)
    batch = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (BATCH, *leaf.shape)), fields)
    found = run(*batch, size, shrink, rate, rounds, ascents)
    return jax.tree.map(lambda leaf: leaf[0], found)


def random_problem(key):
    keys = jax.random.split(key, 8)
    upper, lower = (jax.random.randint(k, (ROWS,), 0, SLOTS) for k in keys[:2])
    weight = jax.random.uniform(keys[2], (ROWS,))
    mask = greedy_dag(upper, lower, weight, upper != lower, SLOTS)
    discount = jax.random.bernoulli(keys[3], 0.7, (ROWS,)).astype(jnp.float32)
    constraints = Comparisons(upper, lower, weight, 0.1 * weight, discount, mask)
    values = jax.random.normal(keys[4], (SLOTS,))
    gradient = 0.3 * jax.random.normal(keys[5], (SLOTS,))
    return values, gradient, constraints


def broken(values, constraints):
    short = constraints.margin + constraints.discount * values[constraints.lower]
    return float(jnp.max(jnp.where(constraints.mask, short - values[constraints.upper], 0.0)))


@pytest.fixture(scope="module")
def problems():
    return jax.vmap(random_problem)(jax.random.split(jax.random.key(3), BATCH))


def run_batch(problems, rounds=4, ascents=40):
    values, gradient, constraints = problems
    pairs = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (BATCH, PAIRS)), no_pairs())
    short = jax.vmap(lambda v, c: c.margin + c.discount * v[c.lower] - v[c.upper])(
        values, constraints
    )
    slack = jnp.maximum(-short, 0.0)
    frozen = jnp.zeros((BATCH, SLOTS), bool)
    return run(values, slack, gradient, constraints, frozen, pairs, 1.0, 1.0, 1.0, rounds, ascents)


def test_result_is_feasible_and_next_to_the_projection_of_the_gradient_step(problems):
    values, gradient, constraints = problems
    moved, _, stats = run_batch(problems)
    assert stats.violation_before.max() > 0.5
    off = []
    for i in range(BATCH):
        here = jax.tree.map(lambda leaf, i=i: leaf[i], constraints)
        assert broken(moved[i], here) <= TOLERANCE
        exact = reference_project(np.asarray(values[i] - gradient[i], np.float64), here)
        off.append(np.abs(np.asarray(moved[i]) - exact.values).max())
    assert np.quantile(off, 0.75) < 1e-3
    np.testing.assert_array_less(stats.violation_after, TOLERANCE)


def test_cheapest_setting_is_feasible_too_and_fallback_says_so(problems):
    moved, _, stats = run_batch(problems, rounds=1, ascents=0)
    for i in range(BATCH):
        here = jax.tree.map(lambda leaf, i=i: leaf[i], problems[2])
        assert broken(moved[i], here) <= TOLERANCE
    assert stats.fallback.any()


def test_large_values_and_cycles_of_discounts_are_feasible_too(problems):
    values, gradient, constraints = problems
    wide = constraints._replace(
        margin=100 * constraints.margin,
        discount=jnp.where(constraints.discount > 0, 0.8, 0.0).astype(jnp.float32),
        mask=constraints.upper != constraints.lower,  # cycles and all
    )
    moved, _, stats = run_batch((100 * values, 100 * gradient, wide))
    assert stats.violation_before.max() > 50
    assert stats.violation_after.max() <= TOLERANCE
    for i in range(BATCH):
        assert broken(moved[i], jax.tree.map(lambda leaf, i=i: leaf[i], wide)) <= TOLERANCE


def test_vmap_agrees_with_one_by_one(problems):
    values, gradient, constraints = problems
    together, slack, stats = run_batch(problems)
    for i in (0, 5):
        alone, alone_slack, alone_stats = one(
            values[i], gradient[i], jax.tree.map(lambda leaf, i=i: leaf[i], constraints)
        )
        np.testing.assert_allclose(alone, together[i], atol=1e-6)
        np.testing.assert_allclose(alone_slack, slack[i], atol=1e-6)
        assert alone_stats.active == stats.active[i]


def test_tangent_step_moves_along_tight_rows_and_leaves_them_freely():
    tight = rows((0, 1, 0.5, 1.0), (1, 2, 0.5, 1.0), (3, 3, 2.0, 0.0))
    values = jnp.array([1.0, 0.5, 0.0, 2.0, 0.0, 0.0, 0.0, 0.0])
    against = jnp.array([0.3, 0.0, -0.3, 0.4, 0.1, 0.0, 0.0, 0.0])  # squeezes all three rows
    moved, _, stats = one(values, against, tight)
    # −P_tan g: the mean of the block of three, nothing on the bounded slot
    np.testing.assert_allclose(moved - values, [0, 0, 0, 0, -0.1, 0, 0, 0], atol=1e-5)
    assert stats.active == 3 and stats.tangent_residual < 1e-5 and stats.accepted
    away, _, freed = one(values, -against, tight)
    np.testing.assert_allclose(away - values, against, atol=1e-5)
    assert freed.active == 0 and not freed.fallback


def test_normal_step_contracts_by_one_minus_lambda_and_the_correction_finishes():
    violated = rows((0, 1, 1.0, 1.0), (2, 3, 0.5, 0.9))
    values = jnp.array([0.0, 2.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0])
    for shrink in (0.25, 0.5, 1.0):
        moved, _, stats = one(values, jnp.zeros(SLOTS), violated, shrink=shrink)
        np.testing.assert_allclose(stats.contraction, 1.0 - shrink, atol=1e-4)
        assert stats.violation_before == 3.0
        assert broken(moved, violated) <= TOLERANCE
        assert bool(stats.fallback) == (shrink < 1.0)
    np.testing.assert_allclose(moved[:2], [1.5, 0.5], atol=1e-4)  # both ends share alike


def test_undirected_cycle_makes_no_trouble():
    triangle = rows((0, 1, 0.0, 1.0), (1, 2, 0.0, 1.0), (0, 2, 0.0, 1.0), (0, 2, 0.0, 1.0))
    values = jnp.array([0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 1.0, 1.0])
    gradient = jnp.array([1.0, 0.0, -1.0, 0.0, 0.0, 0.0, 0.0, 0.0])
    moved, _, stats = one(values, gradient, triangle)
    np.testing.assert_allclose(moved, values, atol=1e-4)
    assert stats.tangent_residual < 1e-3


def test_directed_cycles():
    damped = rows((0, 1, 0.1, 0.9), (1, 0, 0.1, 0.9))  # V >= 0.1 + 0.9 V': feasible from 1 on
    moved, _, _ = one(jnp.zeros(SLOTS), jnp.zeros(SLOTS), damped)
    assert broken(moved, damped) <= TOLERANCE
    contradiction = rows((0, 1, 0.5, 1.0), (1, 0, 0.5, 1.0))
    values = jnp.arange(SLOTS, dtype=jnp.float32)
    moved, _, stats = one(values, jnp.zeros(SLOTS), contradiction)
    assert np.isfinite(moved).all() and stats.violation_after <= stats.violation_before
    assert stats.violation_after >= 0.5 - 1e-4


def test_frozen_slots_stay_and_the_others_give_way():
    chain = rows((0, 1, 0.0, 1.0), (1, 2, 0.0, 1.0))
    values = jnp.array([1.0, 3.0, 2.0, 0, 0, 0, 0, 0])
    frozen = jnp.arange(SLOTS) == 0
    moved, _, _ = one(values, jnp.ones(SLOTS), chain, frozen=frozen)
    assert moved[0] == 1.0 and broken(moved, chain) <= TOLERANCE
    np.testing.assert_allclose(moved[1:3], [1.0, 1.0], atol=1e-4)
    above = rows((2, 0, 0.5, 1.0), (1, 2, 0.0, 1.0))
    moved, _, _ = one(values, jnp.ones(SLOTS), above, frozen=frozen)
    assert moved[0] == 1.0 and broken(moved, above) <= TOLERANCE


def test_all_masked_is_a_plain_gradient_step():
    values, gradient = jnp.linspace(-1.0, 1.0, SLOTS), jnp.linspace(0.0, 1.0, SLOTS)
    moved, slack, stats = one(values, gradient, rows(), size=0.5)
    np.testing.assert_allclose(moved, values - 0.5 * gradient, atol=1e-6)
    assert stats.active == 0 and stats.accepted and not stats.fallback
    np.testing.assert_array_equal(slack, 0.0)


def test_slot_against_itself():
    itself = rows((0, 0, 1.0, 0.5), (1, 1, -1.0, 1.0))
    moved, _, stats = one(jnp.zeros(SLOTS), jnp.zeros(SLOTS), itself)
    np.testing.assert_allclose(moved, [2.0] + [0.0] * 7, atol=1e-4)
    assert stats.violation_before == 2.0


def test_equalities_hold_together_with_an_order():
    pairs = Equalities(jnp.array([0, 2, 5]), jnp.array([1, 3, 6]), jnp.array([True, True, False]))
    ordered = rows((0, 2, 0.5, 1.0))
    values = jnp.array([0.0, 1.0, 2.0, 1.0, 0, 5.0, 6.0, 0])
    moved, _, stats = one(values, jnp.zeros(SLOTS), ordered, pairs=pairs)
    np.testing.assert_allclose(moved, [1.25, 1.25, 0.75, 0.75, 0, 5, 6, 0], atol=1e-3)
    assert stats.violation_before == 2.5 and stats.violation_after <= TOLERANCE


def test_slack_follows_its_equation_and_shares_the_correction():
    single = rows((0, 0, 1.0, 0.0))
    values = jnp.zeros(SLOTS).at[0].set(1.5)
    stale = jnp.zeros(ROWS).at[0].set(1.5)  # r = −0.5, c = 1: half falls to V, half to the slack
    moved, slack, _ = one(values, jnp.zeros(SLOTS), single, slack=stale, rate=0.5)
    np.testing.assert_allclose(moved[0], 2.0, atol=1e-3)
    np.testing.assert_allclose(slack[0], 1.5 - 0.5 * ((1.0 - moved[0]) + 1.5), atol=1e-6)
    moved, slack, _ = one(values, jnp.zeros(SLOTS), single)
    assert moved[0] == 1.5 and slack[0] == 0.5


def test_not_a_number_is_reported_and_changes_nothing():
    values = jnp.zeros(SLOTS)
    bad = rows((0, 1, np.nan, 1.0))
    for inputs in (
        (values.at[2].set(jnp.nan), values, rows((0, 1, 1.0, 1.0))),
        (values, values.at[1].set(jnp.inf), rows((0, 1, 1.0, 1.0))),
        (values, values, bad),
        (values, values, rows((0, SLOTS, 1.0, 1.0))),
    ):
        moved, _, stats = one(*inputs)
        np.testing.assert_array_equal(moved, inputs[0])
        assert np.isnan(stats.violation_after) and not stats.accepted
        with pytest.raises(InputError):
            step(inputs[0], None, inputs[1], inputs[2])


def test_bad_shapes_and_numbers_raise():
    values, good = jnp.zeros(SLOTS), rows()
    for call in (
        lambda: step(values[None], None, values, good),
        lambda: step(values, jnp.zeros(3), values, good),
        lambda: step(values, None, values[:3], good),
        lambda: step(values, None, values, good, contraction=1.5),
        lambda: step(values, None, values, good, rounds=0),
        lambda: step(values, None, values, good, bounds_only=True, equalities=no_pairs()),
        lambda: subsample(no_pairs(), jax.random.key(0), PAIRS + 1),
    ):
        with pytest.raises(InputError):
            call()


def test_subsample_takes_unmasked_pairs_first():
    pairs = Equalities(jnp.arange(6), jnp.arange(6) + 6, jnp.array([1, 0, 1, 0, 1, 0], bool))
    drawn = [subsample(pairs, jax.random.key(i), 2) for i in range(20)]
    assert all(bool(part.mask.all()) for part in drawn)
    assert len({tuple(np.asarray(part.first)) for part in drawn}) > 1
    assert all(int(part.second[0] - part.first[0]) == 6 for part in drawn)
    assert subsample(pairs, jax.random.key(0), 4).mask.sum() == 3
