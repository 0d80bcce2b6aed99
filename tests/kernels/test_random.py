"""The fused generator against JAX's own."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gcr_rl.kernels.random import folded_bits, folded_keys, folded_uniform


@pytest.mark.parametrize("seed", [0, 1, 2**31 - 1])
@pytest.mark.parametrize("data", [0, 1, 77, 2**31 - 1])
def test_bit_for_bit_what_jax_draws(seed, data):
    key = jax.random.key(seed)
    reference = jax.random.fold_in(key, data)
    for shape in ((1,), (5,), (3, 2)):
        np.testing.assert_array_equal(
            folded_bits(key, jnp.int32(data), shape), jax.random.bits(reference, shape)
        )
        np.testing.assert_array_equal(
            folded_uniform(key, jnp.int32(data), shape), jax.random.uniform(reference, shape)
        )
        np.testing.assert_array_equal(
            jax.random.key_data(folded_keys(key, jnp.int32(data), shape)),
            jax.random.key_data(jax.random.split(reference, shape)),
        )


def test_under_jit_and_vmap():
    keys = jax.random.split(jax.random.key(0), 4)
    drawn = jax.jit(jax.vmap(lambda key: folded_bits(key, jnp.int32(9), (6,))))(keys)
    expected = jax.vmap(lambda key: jax.random.bits(jax.random.fold_in(key, 9), (6,)))(keys)
    np.testing.assert_array_equal(drawn, expected)
