"""Which network a configuration gets."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gcr_rl.config import Config, NetworkConfig
from gcr_rl.errors import InputError
from gcr_rl.methods import METHODS
from gcr_rl.networks import (
    ExchangeableNetwork,
    ObservationSpec,
    QNetwork,
    SignNetwork,
    SquareNetwork,
    make_q_network,
)
from gcr_rl.presets import METHOD_PRESETS, preset

VECTOR, GRID = ObservationSpec((4,), "float32"), ObservationSpec((10, 10, 4), "uint8")
TILES = ObservationSpec((21, 21, 3), "uint8", 1 / 255, 3)


def built(spec, actions, **settings):
    return make_q_network(
        NetworkConfig(hidden=(16, 16), **settings), spec, actions, key=jax.random.key(0)
    )


@pytest.mark.parametrize(
    ("encoder", "spec", "actions", "kind"),
    [
        ("minatar", GRID, 6, QNetwork),
        ("impala", GRID, 6, QNetwork),
        ("sign", VECTOR, 2, SignNetwork),
        ("square", GRID, 4, SquareNetwork),
        ("rotations", GRID, 4, SquareNetwork),
        ("tiles", TILES, 6, ExchangeableNetwork),
    ],
)
def test_each_name_builds_its_network(encoder, spec, actions, kind):
    network = built(spec, actions, encoder=encoder)
    assert isinstance(network, kind)
    observation = jnp.ones(spec.shape, spec.dtype)
    assert network(observation).shape == (actions,)
    assert network.features(observation).ndim == 1


def test_dueling_values_differ_from_their_mean_by_centred_advantages():
    network = built(VECTOR, 3, dueling=True)
    plain = built(VECTOR, 3)
    assert network(jnp.ones(4)).shape == plain(jnp.ones(4)).shape == (3,)
    assert not np.allclose(network(jnp.ones(4)), plain(jnp.ones(4)))


@pytest.mark.parametrize(
    ("encoder", "spec", "actions"),
    [("sign", GRID, 2), ("tiles", GRID, 6), ("minatar", VECTOR, 2), ("square", GRID, 6)],
)
def test_a_network_that_does_not_fit_is_named(encoder, spec, actions):
    with pytest.raises(InputError, match=r"network\.encoder"):
        built(spec, actions, encoder=encoder)


def test_told_and_learned_groups_exclude_each_other():
    with pytest.raises(InputError, match=r"network\.encoder"):
        preset("CartPole", "gcr", {"network.encoder": "sign"})
    with pytest.raises(InputError, match=r"network\.dueling"):
        preset("CartPole", "paper-soft", {"network.dueling": True})


def test_equivariant_is_double_dqn_but_for_its_network():
    assert METHODS["equivariant"].overrides == {}
    for (task, method), values in METHOD_PRESETS.items():
        if method == "equivariant":
            assert set(values) == {"network.encoder"}
            told = preset(task, "equivariant").to_json()
            plain = preset(task, "ddqn").to_json()
            told["network"]["encoder"] = plain["network"]["encoder"]
            assert told | {"method": ""} == plain | {"method": ""}
    assert Config("CartPole").network.encoder == "auto"
