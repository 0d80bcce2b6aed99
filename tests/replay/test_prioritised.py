"""Prioritised replay against plain numpy: the tree, the frequencies, the starts, the weights."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from gcr_rl.errors import InputError
from gcr_rl.replay import prioritised
from gcr_rl.replay.prioritised import (
    beta_at,
    find,
    importance_weights,
    init_tree,
    make_prioritised,
    stratified,
    total,
    write,
)
from gcr_rl.types import Transition

ENVS, ROWS, LENGTH, BATCH = 2, 8, 3, 64


def row(t, done_at=()):
    """Step t of every environment; observations say where they come from."""
    where = jnp.array([[t, e] for e in range(ENVS)], jnp.float32)
    return Transition(
        observation=where,
        action=jnp.full(ENVS, t, jnp.int32),
        reward=jnp.full(ENVS, float(t)),
        next_observation=where + jnp.array([1.0, 0.0]),
        terminated=jnp.full(ENVS, t in done_at),
        truncated=jnp.zeros(ENVS, bool),
    )


REPLAY = make_prioritised(ENVS * ROWS, ENVS, LENGTH, exponent=0.5)
ADD, SAMPLE, UPDATE = jax.jit(REPLAY.add), jax.jit(REPLAY.sample), jax.jit(REPLAY.update)


def filled(steps, done_at=()):
    state = REPLAY.init(row(0))
    for t in range(steps):
        state = ADD(state, row(t, done_at))
    return state


def words(seed, count=BATCH):
    return jax.random.bits(jax.random.key(seed), (count,))


@pytest.mark.parametrize(("leaves", "fan_out"), [(1, 2), (5, 2), (16, 4), (17, 4), (70, 16)])
def test_tree_holds_sums_and_finds_by_running_sum(leaves, fan_out):
    generator = np.random.default_rng(leaves)
    tree, truth = init_tree(leaves, fan_out), np.zeros(leaves)
    for _ in range(4):
        index = generator.integers(0, leaves, 6)
        value = generator.integers(0, 9, 6).astype(np.float64)
        tree = write(tree, jnp.asarray(index), jnp.asarray(value, jnp.float32))
        for i in set(index.tolist()):
            truth[i] = value[index == i].max()
    truth[0] = 3.0
    tree = write(tree, jnp.array([0]), jnp.array([3.0]))
    np.testing.assert_array_equal(tree[0][:leaves], truth)
    for level, above in itertools.pairwise(tree):
        sums = np.asarray(level).reshape(-1, fan_out).sum(1)
        np.testing.assert_array_equal(above[: len(sums)], sums)
        assert not np.asarray(above[len(sums) :]).any()
    assert float(total(tree)) == truth.sum()
    mass = np.arange(0, truth.sum(), 0.5)
    expected = np.searchsorted(np.cumsum(truth), mass, side="right")
    index, value = find(tree, jnp.asarray(mass, jnp.float32))
    np.testing.assert_array_equal(index, expected)
    np.testing.assert_array_equal(value, truth[expected])


def test_rounding_never_finds_a_leaf_of_zero():
    """Leaves of wildly different size, many of them zero, and mass up to and beyond the sum."""
    generator = np.random.default_rng(0)
    leaves = np.where(generator.random(300) < 0.5, 0.0, 10.0 ** generator.uniform(-6, 6, 300))
    tree = write(init_tree(300), jnp.arange(300), jnp.asarray(leaves, jnp.float32))
    shares = np.concatenate([generator.random(5_000), [0.0, 1.0, 1.0 + 1e-6]])
    index, value = find(tree, jnp.asarray(shares, jnp.float32) * total(tree))
    assert (leaves[np.asarray(index)] > 0).all() and float(value.min()) > 0


def test_frequencies_are_the_priorities():
    """Chi-square over 400 batches; stratified draws can only be nearer than independent ones, so
    the other side is checked on shuffled priorities, which must be told apart."""
    state = filled(ROWS + 3)
    starts = np.flatnonzero(np.asarray(state.tree[0]) > 0)
    errors = np.random.default_rng(1).uniform(0.1, 9.0, len(starts)).astype(np.float32)
    state = UPDATE(state, jnp.asarray(starts), jnp.asarray(errors))
    drawn = jax.vmap(lambda bits: SAMPLE(state, bits, 0.4).leaf)(
        jax.random.bits(jax.random.key(2), (400, BATCH))
    )
    counts = np.bincount(np.asarray(drawn).ravel(), minlength=ENVS * ROWS)
    assert counts.sum() == counts[starts].sum() == 400 * BATCH
    priority = np.sqrt(errors.astype(np.float64))
    expected = priority / priority.sum() * 400 * BATCH
    assert stats.chisquare(counts[starts], expected).pvalue > 1e-4
    assert stats.chisquare(counts[starts], np.roll(expected, 1)).pvalue < 1e-6


def test_single_draws_pass_a_two_sided_test():
    """One word per batch is an independent draw: its frequencies must vary as chance does."""
    priority = np.array([1.0, 2.0, 0.0, 3.0, 4.0, 10.0, 0.5])
    tree = write(init_tree(7), jnp.arange(7), jnp.asarray(priority, jnp.float32))
    bits = jax.random.bits(jax.random.key(5), (20_000, 1))
    mass = jax.vmap(stratified)(bits)[:, 0] * total(tree)
    counts = np.bincount(np.asarray(find(tree, mass)[0]), minlength=7)
    positive = priority > 0
    expected = priority[positive] / priority.sum() * 20_000
    assert counts[~positive].sum() == 0
    assert 1e-4 < stats.chisquare(counts[positive], expected).pvalue < 1 - 1e-4


def test_stratified_has_one_number_in_every_part():
    share = np.asarray(stratified(words(0)))
    np.testing.assert_array_equal(np.floor(share * BATCH), np.arange(BATCH))
    edge = np.asarray(stratified(jnp.full(BATCH, 2**32 - 1, jnp.uint32)))
    assert edge.max() < 1.0


@pytest.mark.parametrize("steps", [1, 2, 3, 7, 8, 9, 13, 21])
def test_starts_are_those_of_uniform_replay(steps):
    """Positive exactly where ``length`` rows follow before the cursor."""
    state = filled(steps)
    valid = range(max(0, steps - ROWS), steps - LENGTH + 1)
    expected = {(t % ROWS) * ENVS + e for t in valid for e in range(ENVS)}
    assert set(np.flatnonzero(np.asarray(state.tree[0]) > 0).tolist()) == expected
    assert bool(REPLAY.can_sample(state)) == bool(expected)
    np.testing.assert_allclose(total(state.tree), len(expected))


@pytest.mark.parametrize("steps", [3, 8, 13, 21])
def test_segments_are_consecutive_steps_and_never_cross_the_cursor(steps):
    draw = SAMPLE(filled(steps), words(0), 0.4)
    time, env = np.moveaxis(np.asarray(draw.segments.steps.observation), -1, 0)
    np.testing.assert_array_equal(np.diff(time, axis=1), 1.0)
    assert (env == env[:, :1]).all() and set(env[:, 0].tolist()) == {0.0, 1.0}
    assert time.min() == max(0, steps - ROWS) and time.max() == steps - 1
    np.testing.assert_array_equal(draw.leaf, (time[:, 0] % ROWS) * ENVS + env[:, 0])


def test_steps_of_a_later_episode_are_masked():
    draw = SAMPLE(filled(13, done_at=(7, 10)), words(1), 0.4)
    time = np.asarray(draw.segments.steps.reward)
    expected = [[not any(s in (7, 10) for s in seen[:k]) for k in range(3)] for seen in time]
    np.testing.assert_array_equal(draw.segments.mask, expected)
    assert not np.asarray(draw.segments.mask).all()


def test_new_starts_have_the_largest_priority_and_errors_set_it():
    state = filled(ROWS)
    assert float(state.largest) == 1.0
    state = UPDATE(state, jnp.array([0, 3]), jnp.array([16.0, -0.25]))
    np.testing.assert_allclose(state.tree[0][jnp.array([0, 3])], [4.0, 0.5], rtol=1e-4)
    assert float(state.largest) == pytest.approx(4.0, rel=1e-5)
    newest = (ROWS - LENGTH + 1) * ENVS  # becomes a start with the next row
    assert float(state.tree[0][newest]) == 0.0
    assert float(ADD(state, row(ROWS)).tree[0][newest]) == pytest.approx(4.0, rel=1e-5)


def test_zero_error_can_still_be_drawn_and_lost_starts_stay_lost():
    state = filled(ROWS)
    state = UPDATE(state, jnp.array([0, (ROWS - 1) * ENVS]), jnp.array([0.0, 9.0]))
    assert float(state.tree[0][0]) > 0.0
    assert float(state.tree[0][(ROWS - 1) * ENVS]) == 0.0


def test_one_place_twice_in_a_batch_takes_the_larger_error():
    state = filled(ROWS)
    for order in ([4.0, 9.0], [9.0, 4.0]):
        after = UPDATE(state, jnp.array([2, 2]), jnp.array(order))
        assert float(after.tree[0][2]) == pytest.approx(3.0, rel=1e-5)


def test_weights_by_hand():
    np.testing.assert_allclose(
        importance_weights(jnp.array([0.5, 0.25, 0.25]), jnp.float32(3.0), 1.0), [0.5, 1.0, 1.0]
    )
    np.testing.assert_allclose(
        importance_weights(jnp.array([0.5, 0.125]), jnp.float32(4.0), 0.5), [0.5, 1.0]
    )
    draw = SAMPLE(filled(ROWS), words(3), 0.4)  # all priorities are one: no correction
    np.testing.assert_allclose(draw.weight, 1.0, rtol=1e-5)


def test_weights_undo_the_priorities():
    """With beta 1 the weighted mean of any number is its uniform mean."""
    state = filled(ROWS)
    starts = np.flatnonzero(np.asarray(state.tree[0]) > 0)
    errors = np.random.default_rng(3).uniform(0.5, 4.0, len(starts)).astype(np.float32)
    state = UPDATE(state, jnp.asarray(starts), jnp.asarray(errors))
    draws = jax.vmap(lambda bits: SAMPLE(state, bits, 1.0))(
        jax.random.bits(jax.random.key(6), (400, BATCH))
    )
    weight = np.asarray(draws.weight / draws.weight.sum(1, keepdims=True))
    reward = np.asarray(draws.segments.steps.reward[..., 0])
    uniform_mean = np.mean(starts // ENVS)
    assert np.mean((weight * reward).sum(1)) == pytest.approx(uniform_mean, abs=0.03)
    assert abs(reward.mean() - uniform_mean) > 0.06  # without weights it is another number


def test_beta_rises_to_one():
    assert [float(beta_at(jnp.int32(s), 0.4, 100)) for s in (0, 50, 100, 200)] == pytest.approx(
        [0.4, 0.7, 1.0, 1.0]
    )


def test_seeds_are_independent_under_vmap_with_a_shared_cursor():
    """Along the axes that training uses: one cursor, a tree per seed."""
    state = filled(ROWS)
    axes = prioritised.seed_axes()
    both = jax.tree.map(lambda leaf: leaf, state)
    stacked = jax.vmap(lambda _: both, out_axes=axes)(jnp.arange(2))
    errors = jnp.array([[1.0, 100.0], [100.0, 1.0]])
    after = jax.vmap(lambda s, e: REPLAY.update(s, jnp.array([0, 1]), e), (axes, 0), axes)(
        stacked, errors
    )
    again = jax.vmap(lambda s, t: REPLAY.add(s, t), (axes, None), axes)(after, row(ROWS))
    assert again.ring.cursor.shape == () and again.ring.rows.reward.shape[0] == 2
    for seed in range(2):
        alone = ADD(UPDATE(state, jnp.array([0, 1]), errors[seed]), row(ROWS))
        for level, expected in zip(again.tree, alone.tree, strict=True):
            np.testing.assert_array_equal(level[seed], expected)


def test_bad_sizes_are_refused():
    with pytest.raises(InputError, match="capacity"):
        make_prioritised(4, 2, 3)
    with pytest.raises(InputError, match="exponent"):
        make_prioritised(8, 2, exponent=1.5)
    with pytest.raises(InputError, match="fan_out"):
        make_prioritised(8, 2, fan_out=1)
