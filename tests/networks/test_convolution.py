"""Convolutions as products of matrices against XLA's own."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gcr_rl.networks.convolution import Convolution, convolve

CASES = [  # size, stride, padding, height, width
    (3, 1, 0, 10, 10),
    (3, 1, 1, 13, 9),
    (3, 2, 1, 13, 13),
    (3, 2, 0, 8, 11),
    (8, 4, 0, 84, 84),
    (8, 4, 0, 37, 42),
    (4, 2, 0, 9, 20),
    (4, 2, 1, 11, 10),
    (2, 2, 0, 5, 4),
    (5, 3, 2, 12, 7),
    (1, 1, 0, 3, 3),
    (1, 2, 0, 6, 5),
]


def xla(x, kernels, stride, padding):
    return jax.lax.conv_general_dilated(
        x[None], kernels, (stride, stride), ((padding, padding), (padding, padding))
    )[0]


@pytest.mark.parametrize(("size", "stride", "padding", "height", "width"), CASES)
def test_equals_xlas_convolution_and_its_gradients(size, stride, padding, height, width):
    x_key, kernel_key, weight_key = jax.random.split(jax.random.key(size + height), 3)
    x = jax.random.normal(x_key, (3, height, width))
    kernels = jax.random.normal(kernel_key, (4, 3, size, size)) / size
    expected = xla(x, kernels, stride, padding)
    weight = jax.random.normal(weight_key, expected.shape)

    def total(convolution, x, kernels):
        return jnp.sum(weight * convolution(x, kernels, stride, padding))

    np.testing.assert_allclose(convolve(x, kernels, stride, padding), expected, atol=2e-5)
    ours, theirs = (jax.grad(total, (1, 2))(f, x, kernels) for f in (convolve, xla))
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-4)


def test_every_seed_with_its_own_kernels():
    x_key, kernel_key = jax.random.split(jax.random.key(0))
    x = jax.random.normal(x_key, (5, 6, 2, 7, 7))
    kernels = jax.random.normal(kernel_key, (5, 3, 2, 3, 3))

    def batched(convolution):
        return jax.vmap(jax.vmap(lambda x, w: convolution(x, w, 1, 1), (0, None)))(x, kernels)

    np.testing.assert_allclose(batched(convolve), batched(xla), atol=2e-5)


def test_the_layer_has_equinoxs_weights_and_result():
    key = jax.random.key(1)
    ours, theirs = (layer(4, 8, 3, 2, 1, key=key) for layer in (Convolution, eqx.nn.Conv2d))
    x = jax.random.normal(jax.random.key(2), (4, 13, 13))
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_array_equal(a, b)
    np.testing.assert_allclose(ours(x), theirs(x), atol=2e-5)
