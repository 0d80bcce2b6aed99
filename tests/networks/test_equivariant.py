"""Networks that are told the group, against the environments' own symmetries."""

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gcr_rl.envs import dihedral, make
from gcr_rl.errors import InputError
from gcr_rl.networks.equivariant import SIGN, SignNetwork, dihedral_group, matched_channels
from gcr_rl.networks.exchangeable import ExchangeableNetwork
from gcr_rl.networks.group_convolution import SquareNetwork, SquareSymmetry, fitting_kernel

ROTATIONS = SquareSymmetry((0, 1, 2, 3))


def loud(network, factor=4.0):
    """The same network with larger weights, so that a broken symmetry cannot hide in 1e-5."""
    return jax.tree.map(
        lambda leaf: leaf * factor if isinstance(leaf, jax.Array) else leaf, network
    )


def assert_equivariant(network, observations, symmetries):
    """Q(T o, relabel[a]) = Q(o, a), and the values say something at all."""
    network = jax.jit(jax.vmap(network))
    here = np.asarray(network(jnp.asarray(observations)))
    size = np.abs(here).max()
    assert here.std(axis=1).mean() > 1e-3 * size and here.std(axis=0).mean() > 1e-3 * size
    for symmetry in symmetries:
        images = np.stack([symmetry.transform(o) for o in np.asarray(observations)])
        there = np.asarray(network(jnp.asarray(images)))
        np.testing.assert_allclose(there[:, symmetry.relabel], here, atol=1e-5 * max(size, 1.0))


def observations_of(environment, params, count=12):
    generator = np.random.default_rng(0)
    index = generator.choice(environment.num_states, min(count, environment.num_states), False)
    return jax.vmap(lambda i: environment.observation_of(i, params))(jnp.asarray(index))


@pytest.mark.parametrize("elements", [tuple(range(8)), (0, 1, 2, 3), (0, 2), (0, 4)])
def test_tables_are_a_group_that_acts_on_actions(elements):
    group = dihedral_group(elements)
    table, relabel = np.asarray(group.table), np.asarray(group.relabel)
    everyone = range(group.order)
    assert table[0].tolist() == table[:, 0].tolist() == list(everyone)
    for g, h in itertools.product(everyone, everyone):
        assert (table[table[g, h]] == table[g][table[h]]).all()
        assert (relabel[table[g, h]] == relabel[g][relabel[h]]).all()
    assert (table[everyone, group.inverse] == 0).all()


def test_d4_is_not_abelian():
    table = np.asarray(dihedral_group().table)
    assert (table != table.T).any()


@pytest.mark.parametrize(
    ("channels", "strides"), [((), ()), ((12,), (2,)), ((8, 12), (2, 2)), ((8,), (3,))]
)
def test_square_network_on_rotmirrorgrid(channels, strides):
    environment, params = make("RotMirrorGrid")
    space = environment.observation_space(params)
    network = SquareNetwork(
        space.shape, (32, 24), channels=channels, strides=strides, key=jax.random.key(1)
    )
    symmetries = environment.planted_symmetries(params)
    assert len(symmetries) == 8
    assert_equivariant(loud(network), observations_of(environment, params), symmetries)


@pytest.mark.parametrize(("name", "symmetry"), [("Probe-D4", None), ("Probe-C4", ROTATIONS)])
def test_square_network_on_probes(name, symmetry):
    environment, params = make(name)
    network = SquareNetwork(
        environment.observation_space(params).shape, (32,), channels=(8,), strides=(1,),
        symmetry=symmetry, key=jax.random.key(1),
    )  # fmt: skip
    symmetries = environment.planted_symmetries(params)
    assert len(symmetries) == (8 if symmetry is None else 4)
    assert_equivariant(loud(network), observations_of(environment, params), symmetries)


def test_rotations_alone_do_not_impose_mirror_images():
    network = loud(SquareNetwork((5, 5, 3), (32,), symmetry=ROTATIONS, key=jax.random.key(1)))
    picture = np.random.default_rng(0).integers(0, 2, (5, 5, 3)).astype(np.float32)
    here, there = network(jnp.asarray(picture)), network(jnp.asarray(picture[:, ::-1]))
    assert float(jnp.abs(here - there[dihedral.relabelling(4)]).max()) > 1e-2


@pytest.mark.parametrize("side", [10, 11, 21])
def test_square_network_on_images_of_any_parity_with_atoms(side):
    """Even and odd sides, strides 2: byte images, logits of 5 atoms."""
    network = SquareNetwork(
        (side, side, 3), (24,), channels=(8, 8), strides=(2, 2), scale=1 / 255, atoms=5,
        key=jax.random.key(2),
    )  # fmt: skip
    picture = np.random.default_rng(1).integers(0, 256, (side, side, 3)).astype(np.uint8)
    here = np.asarray(loud(network)(jnp.asarray(picture)))
    assert here.shape == (4, 5) and here.std() > 1e-2
    for element in range(8):
        there = np.asarray(loud(network)(jnp.asarray(dihedral.transform(element, picture))))
        np.testing.assert_allclose(
            there[dihedral.relabelling(element)], here, atol=1e-5 * max(1.0, np.abs(here).max())
        )


def test_kernels_fit():
    for side, stride in itertools.product(range(3, 30), (1, 2, 3, 4)):
        kernel = fitting_kernel(side, stride)
        assert 3 <= kernel < 3 + stride and (side + 2 - kernel) % stride == 0


def test_widths_match_the_weights_of_a_plain_layer():
    assert matched_channels(128, dihedral_group()) == 45  # 45 * 45 * 8 = 16,200 of 16,384
    assert matched_channels(128, SIGN) == 91


def test_sign_network_has_cartpoles_symmetry():
    """The mirrored state under the other action leads to the mirrored state; so do the values."""
    environment, params = make("CartPole")
    generator = np.random.default_rng(0)
    states = generator.uniform(-0.2, 0.2, (16, 4)).astype(np.float32)

    def step(numbers, action):
        _, state = environment.reset_env(jax.random.key(0), params)
        state = state.replace(
            x=numbers[0], x_dot=numbers[1], theta=numbers[2], theta_dot=numbers[3]
        )
        return environment.step_env(jax.random.key(0), state, action, params)[0]

    for action in (0, 1):
        after = jax.vmap(lambda s, a=action: step(s, a))(states)
        mirrored = jax.vmap(lambda s, a=action: step(-s, 1 - a))(states)
        np.testing.assert_allclose(mirrored, -after, atol=1e-6)

    network = loud(SignNetwork(4, (32, 32), key=jax.random.key(3)), 2.0)
    q = jax.vmap(network)(jnp.asarray(10 * states))
    there = jax.vmap(network)(jnp.asarray(-10 * states))
    np.testing.assert_allclose(there[:, ::-1], q, atol=1e-5 * max(1.0, float(jnp.abs(q).max())))
    assert float(jnp.abs(q[:, 0] - q[:, 1]).mean()) > 1e-2
    assert float(jnp.abs(q - there).mean()) > 1e-2
    # V is even and the advantage odd
    np.testing.assert_allclose(q.max(1), there.max(1), atol=1e-4)
    assert network.features(jnp.asarray(states[0])).shape == (2 * matched_channels(32, SIGN),)


@pytest.mark.parametrize("legend", [True, False])
def test_exchangeable_network_on_buttonpermutation(legend):
    environment, params = make("ButtonPermutation", legend=legend)
    shape = environment.observation_space(params).shape
    if legend:
        observations = observations_of(environment, params)
    else:
        frames = np.full((6, 11), -1, np.int32)
        frames[:, 0] = 6
        frames[:, 1] = np.arange(6)
        frames[:, 2] = 7 + np.arange(6)[::-1]
        observations = jax.vmap(lambda f: environment.observation_of(f, params))(
            jnp.asarray(frames)
        )
    network = ExchangeableNetwork(
        shape, (24,), tile_size=environment.tile_size, scale=1 / 255, key=jax.random.key(4)
    )
    symmetries = environment.planted_symmetries(params)
    assert len(symmetries) == 16
    assert_equivariant(loud(network, 2.0), observations, symmetries)


def test_exchangeable_network_gives_logits():
    network = ExchangeableNetwork((21, 21, 3), (8,), tile_size=3, atoms=7, key=jax.random.key(0))
    assert network(jnp.zeros((21, 21, 3), jnp.uint8)).shape == (6, 7)
    assert network.features(jnp.zeros((21, 21, 3), jnp.uint8)).shape == (6 * 8,)


def test_two_builds_have_one_structure():
    """Parameters of one build go into the frame of another, as the value agent does."""

    def build(key):
        return (
            SquareNetwork((5, 5, 3), (8,), channels=(8,), strides=(1,), key=key),
            SquareNetwork((5, 5, 3), (8, 8), key=key),
            SignNetwork(4, (8,), key=key),
            ExchangeableNetwork((21, 21, 3), (8,), tile_size=3, key=key),
        )

    first, second = (eqx.filter_eval_shape(build, jax.random.key(seed)) for seed in (0, 1))
    assert jax.tree.structure(first) == jax.tree.structure(second)
    assert hash(jax.tree.structure(first)) == hash(jax.tree.structure(second))


def test_shapes_that_cannot_be_are_refused():
    with pytest.raises(InputError, match="square"):
        SquareNetwork((5, 6, 3), (8,), key=jax.random.key(0))
    with pytest.raises(InputError, match="4x6 tiles"):
        ExchangeableNetwork((9, 9, 3), (8,), tile_size=3, key=jax.random.key(0))
