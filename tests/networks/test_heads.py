"""Noisy layers, dueling and distributional heads, CURL's parts."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gcr_rl.distribution import info_nce
from gcr_rl.errors import InputError
from gcr_rl.networks.contrastive import Contrast, bilinear_logits, contrast_logits, momentum_step
from gcr_rl.networks.dueling import make_head
from gcr_rl.networks.noisy import NoisyLinear, noise_size, realise, realise_by_key

KEY = jax.random.key(0)
FEATURES = jax.random.normal(jax.random.key(1), (6,))


def test_noisy_layer_by_hand():
    layer = NoisyLinear(2, 2, sigma=0.5, key=KEY)
    noise = jnp.array([4.0, -9.0, 1.0, -16.0])  # inputs 2, -3 and outputs 1, -4 after f
    x = jnp.array([1.0, 2.0])
    spread = np.array([[2.0, -3.0], [-8.0, 12.0]])
    scale = 0.5 / np.sqrt(2.0)
    expected = (np.asarray(layer.weight) + scale * spread) @ np.asarray(x)
    expected += np.asarray(layer.bias) + scale * np.array([1.0, -4.0])
    np.testing.assert_allclose(layer.realised(noise)(x), expected, rtol=1e-5)
    np.testing.assert_allclose(layer(x), layer.weight @ x + layer.bias, rtol=1e-6)


def test_noise_has_the_mean_of_none_and_moves_every_weight():
    layer = NoisyLinear(3, 4, key=KEY)
    draws = jax.vmap(lambda k: realise_by_key(layer, k).weight)(jax.random.split(KEY, 20_000))
    # f(e) has mean 0 and E f(e)^2 = E|e| = sqrt(2/pi), so a weight's spread is sigma E|e|
    spread = 0.5 * 3**-0.5 * np.sqrt(2 / np.pi)
    np.testing.assert_allclose(draws.mean(0), layer.weight, atol=5 * spread / np.sqrt(20_000))
    np.testing.assert_allclose(draws.std(0), spread, rtol=0.05)


def test_realised_network_is_plain_and_layers_draw_apart():
    head = make_head(6, 3, dueling=True, atoms=5, sigma=0.5, hidden=8, key=KEY)
    assert noise_size(head) == (6 + 8) + (8 + 5) + (6 + 8) + (8 + 15)
    noise = jax.random.normal(KEY, (noise_size(head),))
    first, again = realise(head, noise), realise(head, noise)
    assert noise_size(first) == 0
    np.testing.assert_array_equal(first(FEATURES), again(FEATURES))
    np.testing.assert_allclose(realise(head, None)(FEATURES), head(FEATURES), rtol=1e-6)
    for start, end in ((0, 14), (14, 27), (27, 41), (41, 64)):  # each layer's own normals matter
        other = realise(head, noise.at[start:end].add(1.0))
        assert float(jnp.abs(other(FEATURES) - first(FEATURES)).max()) > 1e-6
    plain = make_head(6, 3, key=KEY)
    assert noise_size(plain) == 0
    assert jax.tree.structure(realise(plain, None)) == jax.tree.structure(plain)


def test_noise_reaches_the_scales_by_gradient():
    layer = NoisyLinear(3, 2, key=KEY)
    noise = jax.random.normal(KEY, (5,))

    def loss(one):
        return jnp.sum(realise(one, noise)(jnp.ones(3)) ** 2)

    gradient = jax.grad(loss)(layer)
    assert float(jnp.abs(gradient.weight_scale).min()) > 0
    assert float(jnp.abs(gradient.bias_scale).min()) > 0


@pytest.mark.parametrize("atoms", [None, 5])
@pytest.mark.parametrize("hidden", [0, 8])
def test_dueling_is_value_plus_centred_advantage(atoms, hidden):
    head = make_head(6, 3, dueling=True, atoms=atoms, hidden=hidden, key=KEY)
    out = head(FEATURES)
    assert out.shape == ((3,) if atoms is None else (3, 5))
    value, advantage = head.value(FEATURES), head.advantage(FEATURES).reshape(out.shape)
    np.testing.assert_allclose(out.mean(0), value if atoms else value[0], atol=1e-5)
    np.testing.assert_allclose(
        out - out[:1], advantage - advantage[:1], atol=1e-5
    )  # differences between actions are the advantages'
    plain = make_head(6, 3, atoms=atoms, hidden=hidden, key=KEY)
    np.testing.assert_allclose(plain(FEATURES), advantage, atol=1e-6)


def test_one_atom_is_no_distribution():
    with pytest.raises(InputError, match="atoms"):
        make_head(6, 3, atoms=1, key=KEY)


def test_info_nce_by_hand():
    queries = jnp.array([[1.0, 0.0], [0.0, 2.0]])
    keys = jnp.array([[1.0, 1.0], [0.0, 1.0]])
    product = jnp.array([[1.0, 0.0], [1.0, 2.0]])
    logits = bilinear_logits(queries, keys, product)
    # q_0 W = (1, 0), q_1 W = (2, 4)
    np.testing.assert_allclose(logits, [[1.0, 0.0], [6.0, 4.0]])
    expected = -(np.log(np.e / (np.e + 1)) + np.log(np.exp(-2) / (1 + np.exp(-2)))) / 2
    np.testing.assert_allclose(info_nce(logits), expected, rtol=1e-6)
    # a constant added to a row changes nothing, and large logits stay finite
    np.testing.assert_allclose(
        info_nce(logits + jnp.array([[500.0], [-500.0]])), expected, rtol=1e-4
    )


def test_keys_get_no_gradient_and_the_product_learns():
    contrast = Contrast(6, code=4, key=KEY)
    slow = Contrast(6, code=4, key=jax.random.key(2)).projection
    query, key_features = jax.random.normal(KEY, (2, 8, 6))

    def loss(both, features):
        return info_nce(contrast_logits(both[0], both[1], features[0], features[1]))

    (by_contrast, by_slow), by_features = jax.grad(loss, argnums=(0, 1))(
        (contrast, slow), (query, key_features)
    )
    assert all(float(jnp.abs(leaf).max()) == 0.0 for leaf in jax.tree.leaves(by_slow))
    assert float(jnp.abs(by_features[1]).max()) == 0.0 < float(jnp.abs(by_features[0]).max())

    @jax.jit
    def descend(stepped):
        gradient = jax.grad(loss)((stepped, slow), (query, key_features))[0]
        return jax.tree.map(lambda p, g: p - 0.3 * g, stepped, gradient)

    stepped = contrast
    for _ in range(100):
        stepped = descend(stepped)
    assert loss((stepped, slow), (query, key_features)) < 0.5 * loss(
        (contrast, slow), (query, key_features)
    )
    assert float(jnp.abs(by_contrast.product).max()) > 0


def test_momentum_step():
    online, slow = (eqx.nn.Linear(2, 2, key=jax.random.key(i)) for i in (0, 1))
    moved = momentum_step(online, slow, 0.25)
    np.testing.assert_allclose(moved.weight, 0.75 * slow.weight + 0.25 * online.weight, rtol=1e-6)
    np.testing.assert_allclose(momentum_step(online, slow, 1.0).bias, online.bias, atol=1e-7)
    np.testing.assert_array_equal(momentum_step(online, slow, 0.0).bias, slow.bias)
