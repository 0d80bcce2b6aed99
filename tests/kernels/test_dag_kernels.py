"""The fast greedy DAG kernels against their references, and their parts against numpy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gcr_rl.kernels.dag import _first_set, greedy_closure
from gcr_rl.kernels.dag_bits import identity_reach, pack_rows, unpack_rows
from gcr_rl.kernels.dag_node import greedy_accepted_by_node
from gcr_rl.kernels.dag_sort import descending_order
from gcr_rl.order.dag import greedy_by_node_reference, greedy_reference


def random_case(rng, count, nodes, edges):
    upper, lower = rng.integers(0, nodes, (2, count, edges), dtype=np.int32)
    weight = rng.normal(size=(count, edges)).astype(np.float32)
    weight[1::2] = np.round(weight[1::2])
    mask = rng.random((count, edges)) < rng.random((count, 1)) * 1.5
    return upper, lower, weight, mask


def assert_edge_kernel_agrees(count, nodes, edges, seed):
    arrays = random_case(np.random.default_rng(seed), count, nodes, edges)
    start = identity_reach(1, nodes)[0]
    fast = jax.jit(jax.vmap(greedy_closure, in_axes=(0, 0, 0, 0, None)))(*arrays, start)
    slow = jax.jit(jax.vmap(greedy_reference, in_axes=(0, 0, 0, 0, None)))(*arrays, start)
    np.testing.assert_array_equal(fast, slow)


def assert_node_kernel_agrees(count, nodes, degree, seed):
    rng = np.random.default_rng(seed)
    neighbours = rng.integers(0, nodes, (count, nodes, degree), dtype=np.int32)
    weight = rng.normal(size=(count, nodes)).astype(np.float32)
    weight[1::2] = np.round(weight[1::2])
    mask = rng.random(neighbours.shape) < rng.random((count, 1, 1)) * 1.5
    fast = jax.jit(jax.vmap(greedy_accepted_by_node))(neighbours, weight, mask)
    slow = jax.jit(jax.vmap(greedy_by_node_reference))(neighbours, weight, mask)
    np.testing.assert_array_equal(fast, slow)


def test_edge_kernel_agrees_with_its_reference():
    assert_edge_kernel_agrees(300, 45, 170, seed=0)


def test_node_kernel_agrees_with_its_reference():
    assert_node_kernel_agrees(300, 45, 4, seed=1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("count", "nodes", "edges"),
    [(3000, 1, 40), (3000, 5, 64), (3000, 33, 100), (1000, 96, 700), (40, 300, 2400)],
)
def test_edge_kernel_agrees_in_every_shape(count, nodes, edges):
    assert_edge_kernel_agrees(count, nodes, edges, seed=edges)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("count", "nodes", "degree"),
    [(3000, 1, 2), (3000, 7, 3), (3000, 32, 1), (1000, 65, 6), (40, 300, 8)],
)
def test_node_kernel_agrees_in_every_shape(count, nodes, degree):
    assert_node_kernel_agrees(count, nodes, degree, seed=nodes)


def test_long_chains_inside_one_block():
    """A path of 32 edges, added in an order that joins it only at the end, then its closing
    edges: the closure inside a block must follow the longest path a block can hold."""
    for order in (np.arange(32), np.arange(32)[::-1], np.random.default_rng(0).permutation(32)):
        upper, lower = np.zeros((2, 170), np.int32)
        upper[:36] = [*order, 32, 5, 0, 31]
        lower[:36] = [*(order + 1), 0, 5, 32, 2]
        weight, mask = -np.arange(170, dtype=np.float32), np.arange(170) < 36
        closure = greedy_closure(upper, lower, weight, mask, identity_reach(1, 45)[0])
        chain = np.asarray(unpack_rows(closure.T, 45))[:33, :33]
        np.testing.assert_array_equal(chain, np.triu(np.ones((33, 33), bool)))


def test_kernels_under_plain_and_nested_vmap():
    upper, lower, weight, mask = random_case(np.random.default_rng(2), 6, 45, 170)
    start = identity_reach(1, 45)[0]
    one_by_one = np.stack(
        [greedy_closure(*edges, start) for edges in zip(upper, lower, weight, mask, strict=True)]
    )
    nested = jax.vmap(jax.vmap(greedy_closure, (0, 0, 0, 0, None)), (0, 0, 0, 0, None))
    shaped = (array.reshape(2, 3, -1) for array in (upper, lower, weight, mask))
    result = nested(*shaped, start)
    np.testing.assert_array_equal(np.reshape(result, one_by_one.shape), one_by_one)


def crowded(rng, size):
    """Weights that share their leading bits, so that the coarse sort alone cannot order them."""
    return (1.0 + rng.integers(0, 4 * size, (3, size)) * 2.0**-23).astype(np.float32)


SORT_CASES = {
    "normal": lambda rng, size: rng.normal(size=(3, size)).astype(np.float32),
    "ties": lambda rng, size: rng.integers(-2, 3, (3, size)).astype(np.float32),
    "crowded": crowded,
    "crowded, with one outlier": lambda rng, size: np.concatenate(
        [crowded(rng, size)[:, :-1], np.full((3, 1), -1e30, np.float32)], axis=1
    ),
    "zeros and infinities": lambda rng, size: rng.choice(
        np.array([0.0, -0.0, np.inf, -np.inf], np.float32), (3, size)
    ),
}


@pytest.mark.parametrize("case", SORT_CASES)
@pytest.mark.parametrize("size", [1, 2, 300])
def test_descending_order_is_a_stable_argsort(case, size):
    weight = SORT_CASES[case](np.random.default_rng(size), size)
    order = descending_order(weight, np.ones(weight.shape, bool))
    np.testing.assert_array_equal(order, np.argsort(-weight, axis=1, kind="stable"))


def test_descending_order_ignores_masked_items_and_their_nans():
    rng = np.random.default_rng(9)
    weight = crowded(rng, 300)
    mask = rng.random(weight.shape) < 0.5
    mask[2] = False
    order = np.asarray(descending_order(np.where(mask, weight, np.nan), mask))
    for row in range(3):
        np.testing.assert_array_equal(np.sort(order[row]), np.arange(300))
        expected = [i for i in np.argsort(-weight[row], kind="stable") if mask[row, i]]
        np.testing.assert_array_equal([i for i in order[row] if mask[row, i]], expected)


def test_descending_order_keeps_double_precision():
    with jax.enable_x64(True):
        weight = 1.0 + np.random.default_rng(0).permutation(64)[None] * 2.0**-50
        order = descending_order(jnp.asarray(weight), jnp.ones((1, 64), bool))
        np.testing.assert_array_equal(order, np.argsort(-weight, axis=1))


@pytest.mark.parametrize("blocks", [1, 3, 80])
def test_first_set_finds_the_first_32_bits(blocks):
    rng = np.random.default_rng(blocks)
    bits = rng.random((20, 32 * blocks)) < rng.choice([0.0, 0.02, 0.3, 1.0], (20, 1))
    words = pack_rows(jnp.asarray(bits))
    slot, valid = (np.asarray(array) for array in _first_set(words))
    for row in range(20):
        expected = np.flatnonzero(bits[row])[:32]
        found = (slot[row] % blocks) * 32 + slot[row] // blocks
        np.testing.assert_array_equal(found[: len(expected)], expected)
        assert int(valid[row]) == (1 << len(expected)) - 1


@pytest.mark.parametrize("columns", [1, 31, 32, 33, 70])
def test_packing_round_trips(columns):
    relation = np.random.default_rng(columns).random((4, 5, columns)) < 0.5
    packed = pack_rows(jnp.asarray(relation))
    assert packed.shape == (4, 5, -(-columns // 32))
    np.testing.assert_array_equal(unpack_rows(packed, columns), relation)
