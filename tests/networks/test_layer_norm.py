"""Layer normalisation: what it does, that it keeps equivariance, and that both ways through a
network agree on it."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gcr_rl.agents.symmetric import first_layer_shown
from gcr_rl.config import NetworkConfig
from gcr_rl.networks import ObservationSpec, make_q_network
from gcr_rl.networks.encoders import MLPEncoder, rectified


def test_it_brings_the_entries_to_mean_zero_and_variance_one():
    x = jax.random.normal(jax.random.key(0), (64, 2)) * 7 + 3
    expected = np.maximum((x - np.mean(x)) / np.std(x), 0)
    np.testing.assert_allclose(rectified(x, True), expected, atol=1e-5)
    np.testing.assert_array_equal(rectified(x, False), np.maximum(x, 0))
    assert np.isfinite(jax.grad(lambda y: rectified(y, True).sum())(jnp.ones(5))).all()


def test_centred_weights_give_the_normalised_layer():
    encoder = MLPEncoder(6, (32, 8), layer_norm=True, key=jax.random.key(0))
    observation = jax.random.normal(jax.random.key(1), (6,)) + 2

    def plainly(encoder):
        x = observation
        for layer in encoder.layers:
            x = rectified(layer(x), True)
        return jnp.sum(x * jnp.arange(8))

    def fast(encoder):
        return jnp.sum(encoder(observation) * jnp.arange(8))

    assert float(fast(encoder)) != 0.0
    np.testing.assert_allclose(fast(encoder), plainly(encoder), rtol=1e-5)
    ours, theirs = eqx.filter_grad(fast)(encoder), eqx.filter_grad(plainly)(encoder)
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_allclose(a, b, atol=2e-5)


@pytest.mark.parametrize(
    ("encoder", "shape"),
    [
        ("mlp", (6,)),
        ("cnn", (12, 12, 2)),
        ("minatar", (10, 10, 4)),
        ("nature", (44, 44, 1)),
        ("impala", (12, 12, 2)),
        ("sign", (4,)),
        ("square", (7, 7, 2)),
    ],
)
def test_every_encoder_has_it_and_features_forget_the_scale_of_the_last_layer(encoder, shape):
    spec, key = ObservationSpec(shape, "float32"), jax.random.key(1)
    actions = {"sign": 2}.get(encoder, 4)
    plain, normal = (
        make_q_network(
            NetworkConfig(encoder=encoder, hidden=(16, 16), layer_norm=on),
            spec, actions, key=key,
        )
        for on in (False, True)
    )  # fmt: skip
    observation = jax.random.normal(jax.random.key(2), shape)
    assert eqx.tree_equal(*(jax.tree.leaves(net) for net in (plain, normal)))
    features = normal.features(observation)
    assert not np.allclose(features, plain.features(observation))
    louder = eqx.tree_at(last_layer, normal, replace_fn=lambda layer: scaled(layer, 10.0))
    np.testing.assert_allclose(louder.features(observation), features, atol=2e-2)


def last_layer(network):
    """The last fully connected layer before the head."""
    if hasattr(network, "encoder"):
        return getattr(network.encoder, "mlp", network.encoder).layers[-1]
    return network.mlp.layers[-1]


def scaled(layer, factor):
    return jax.tree.map(lambda leaf: leaf * factor, layer)


@pytest.mark.parametrize("encoder", ["sign", "square"])
def test_networks_that_are_told_a_group_stay_equivariant(encoder):
    shape, actions = {"sign": ((4,), 2), "square": ((7, 7, 2), 4)}[encoder]
    config = NetworkConfig(encoder=encoder, hidden=(16, 16), layer_norm=True)
    network = make_q_network(
        config, ObservationSpec(shape, "float32"), actions, key=jax.random.key(3)
    )
    observation = jax.random.normal(jax.random.key(4), shape)
    if encoder == "sign":
        image, order = -observation, [1, 0]
    else:  # upside down: up and down change places
        image, order = observation[::-1], [1, 0, 2, 3]
    np.testing.assert_allclose(network(image), network(observation)[jnp.array(order)], atol=1e-5)


def test_the_form_with_its_first_layer_in_sight_is_the_same_function():
    config = NetworkConfig(hidden=(16, 16), layer_norm=True)
    network = make_q_network(config, ObservationSpec((6,), "float32"), 3, key=jax.random.key(5))
    assert isinstance(network.encoder, MLPEncoder)
    observation = jax.random.normal(jax.random.key(6), (6,))
    shown = first_layer_shown(network)
    np.testing.assert_allclose(shown(observation), network(observation), atol=1e-6)
