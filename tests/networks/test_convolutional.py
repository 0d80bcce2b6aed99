"""The encoders of the literature: sizes, and what their layers compute."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gcr_rl.errors import InputError
from gcr_rl.networks.convolutional import ImpalaBlock, MinAtarCNN, halved, make_convolutional


@pytest.mark.parametrize(
    ("kind", "shape", "hidden", "expected"),
    [
        # Mnih et al.: 8,224 + 32,832 + 36,928 in convolutions, 3,136 x 512 + 512 after them
        ("nature", (84, 84, 4), (512,), 8_224 + 32_832 + 36_928 + 1_606_144),
        # 3x3 of 4 -> 16 planes; 8 x 8 x 16 = 1,024 features
        ("minatar", (10, 10, 4), (128,), 592 + 1_024 * 128 + 128),
        # each block: one convolution in, four within; 21 -> 11 -> 6 -> 3
        (
            "impala", (21, 21, 3), (256,),
            (448 + 4 * 2_320) + (4_640 + 4 * 9_248) + (9_248 + 4 * 9_248) + 288 * 256 + 256,
        ),
    ],
)  # fmt: skip
def test_sizes_are_those_of_the_papers(kind, shape, hidden, expected):
    def build(key):
        return make_convolutional(kind, shape, hidden, key=key)

    built = jax.eval_shape(lambda k: jax.tree.leaves(build(k)), jax.random.key(0))
    assert sum(leaf.size for leaf in built) == expected
    out = jax.eval_shape(lambda k: build(k)(jnp.zeros(shape)), jax.random.key(0))
    assert out.shape == (hidden[-1],)


def test_channels_come_last_in_observations():
    """A convolution written out for one output place and channel."""
    encoder = MinAtarCNN((5, 5, 2), (3,), channels=4, key=jax.random.key(0))
    observation = jax.random.normal(jax.random.key(1), (5, 5, 2))
    maps = encoder.convolution(jnp.moveaxis(observation, -1, 0))
    patch = np.asarray(observation)[1:4, 2:5]
    kernel = np.asarray(encoder.convolution.weight)[3]
    expected = sum(
        kernel[c, i, j] * patch[i, j, c] for c in range(2) for i in range(3) for j in range(3)
    )
    np.testing.assert_allclose(
        maps[3, 1, 2], expected + encoder.convolution.bias[3, 0, 0], rtol=1e-4
    )
    features = encoder.mlp.layers[0](jax.nn.relu(maps).ravel())
    np.testing.assert_allclose(encoder(observation), jax.nn.relu(features), rtol=1e-5)


def test_impala_block_halves_and_pools():
    block = ImpalaBlock(1, 2, key=jax.random.key(0))
    x = jax.random.normal(jax.random.key(1), (1, 5, 7))
    assert block(x).shape == (2, 3, 4)
    pooled = np.asarray(halved(x))[0]
    picture = np.pad(np.asarray(x)[0], 1, constant_values=-np.inf)
    expected = [
        [picture[2 * i : 2 * i + 3, 2 * j : 2 * j + 3].max() for j in range(4)] for i in range(3)
    ]
    np.testing.assert_allclose(pooled, expected)


@pytest.mark.parametrize(
    ("kind", "shape"), [("nature", (20, 20, 3)), ("minatar", (4,)), ("resnet", (84, 84, 4))]
)
def test_what_cannot_be_built_is_named(kind, shape):
    with pytest.raises(InputError):
        make_convolutional(kind, shape, (8,), key=jax.random.key(0))
