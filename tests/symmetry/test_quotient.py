"""Exact equivariance of wrapped networks, at fixed points too; soft terms; orbit ids."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from true_groups import permutations_of

from gcr_rl.config import NetworkConfig
from gcr_rl.envs import dihedral as oracle
from gcr_rl.errors import InputError
from gcr_rl.networks import ObservationSpec, make_q_network
from gcr_rl.symmetry import (
    LinearFirst,
    Vocabulary,
    bucket_level,
    bucketed,
    class_ids,
    equivariance_loss,
    from_elements,
    generate,
    normalised_equivariance,
    orbit_ids,
    quotient,
    reynolds,
    transform_transitions,
    trivial_group,
)
from gcr_rl.symmetry import vocabulary_kinds as kinds
from gcr_rl.types import Transition

SHAPE = (7, 7, 3)
GRID = kinds.dihedral(SHAPE)
RELABEL = np.stack([oracle.relabelling(g) for g in range(8)])
D4 = from_elements(GRID, RELABEL)
C4 = generate(GRID, {1: RELABEL[1]}, num_actions=4)
SLOTS = kinds.slot_permutations(3, 2)
S3 = generate(SLOTS, {1: [1, 0, 2], 3: [0, 2, 1]}, num_actions=3)
WRAPPERS = {"reynolds": reynolds, "quotient": quotient}
RNG = np.random.default_rng(0)


def network(encoder, scale=1.0):
    config = NetworkConfig(encoder=encoder, hidden=(16, 16), channels=(4,), strides=(2,))
    return make_q_network(config, ObservationSpec(SHAPE, "uint8", scale), 4, key=jax.random.key(0))


def slot_network(observation):
    weights = jax.random.normal(jax.random.key(3), (3, 6))
    return jnp.tanh(weights @ observation) + observation[:3]


def check_equivariant(function, images, relabel, tolerance=1e-5):
    """Q(o, a) = Q(T_g o, relabel[g, a]) for every g; images[g] = T_g o, images[0] = o."""
    values = np.asarray(jax.vmap(function)(images))
    for g in range(len(images)):
        np.testing.assert_allclose(values[g][relabel[g]], values[0], atol=tolerance)
    return values


@pytest.mark.parametrize("wrapper", WRAPPERS)
@pytest.mark.parametrize("encoder", ["mlp", "cnn"])
@pytest.mark.parametrize("name", ["D4", "C4"])
def test_random_networks_become_equivariant(wrapper, encoder, name):
    group = {"D4": D4, "C4": C4}[name]
    elements = np.asarray(group.element)
    function = jax.jit(WRAPPERS[wrapper](network(encoder), group))
    plain = jax.vmap(network(encoder))
    for _ in range(3):
        o = jnp.asarray(RNG.integers(0, 2, SHAPE), jnp.uint8)
        images = GRID.apply_all(o)[elements]
        values = check_equivariant(function, images, RELABEL[elements])
        assert np.abs(values - values[0]).max() > 1e-4  # equivariant, not invariant
        raw = np.asarray(plain(images))
        gaps = [np.abs(raw[g][RELABEL[elements[g]]] - raw[0]).max() for g in range(len(images))]
        assert max(gaps) > 1e-3  # the network itself is not


@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_a_non_abelian_group_on_vectors(wrapper):
    relabel = np.asarray(S3.relabel)[:6]
    function = jax.jit(WRAPPERS[wrapper](slot_network, S3))
    o = jax.random.normal(jax.random.key(1), (6,))
    check_equivariant(function, S3.transforms.all(o)[:6], relabel)


@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_signs_and_float_observations(wrapper):
    group = generate(kinds.sign_flips(4), {1: [1, 0]}, num_actions=2)
    weights = jax.random.normal(jax.random.key(0), (2, 4))
    function = jax.jit(WRAPPERS[wrapper](lambda o: jnp.tanh(weights @ o + 1.0), group))
    o = jnp.array([0.3, -1.0, 0.0, 2.0])
    check_equivariant(function, jnp.stack([o, -o]), np.array([[0, 1], [1, 0]]))
    check_equivariant(function, jnp.zeros((2, 4)), np.array([[0, 1], [1, 0]]))


@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_user_functions(wrapper):
    def turn(o):
        return jnp.roll(o, 1)

    vocabulary = Vocabulary.from_functions(
        [("identity", lambda o: o), ("one", turn), ("two", lambda o: turn(turn(o)))],
        np.zeros(3, np.float32),
    )
    group = generate(vocabulary, {1: [1, 2, 0]}, num_actions=3)
    assert group.capacity == 4 and int(group.order) == 3
    function = jax.jit(WRAPPERS[wrapper](lambda o: jnp.sin(o * jnp.array([1.0, 2.0, 3.0])), group))
    o = jnp.array([0.1, 0.2, 0.7])
    check_equivariant(function, group.transforms.all(o)[:3], np.asarray(group.relabel)[:3])


@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_values_agree_on_exchanged_actions_at_fixed_points(wrapper):
    function = jax.jit(WRAPPERS[wrapper](network("mlp"), D4))
    blank = function(jnp.zeros(SHAPE, jnp.uint8))
    np.testing.assert_allclose(blank, jnp.full(4, blank[0]), atol=1e-6)
    mirrored = np.zeros(SHAPE, np.uint8)
    mirrored[1, 3] = 1  # on the vertical axis: left and right are alike, up and down are not
    values = function(jnp.asarray(mirrored))
    assert values[2] == pytest.approx(float(values[3]), abs=1e-6)
    assert abs(values[0] - values[1]) > 1e-4
    check_equivariant(function, GRID.apply_all(jnp.asarray(mirrored)), RELABEL)


def test_reynolds_is_the_mean_written_out_and_padding_does_not_count():
    o = jnp.asarray(RNG.integers(0, 2, SHAPE), jnp.uint8)
    q = network("mlp")
    expected = np.mean([np.asarray(q(GRID.apply(g, o)))[RELABEL[g]] for g in range(4)], axis=0)
    padded = generate(GRID, {1: RELABEL[1]}, num_actions=4, capacity=8)
    for group in (C4, padded):
        np.testing.assert_allclose(reynolds(q, group)(o), expected, atol=1e-6)
        np.testing.assert_allclose(quotient(q, group)(o), quotient(q, C4)(o), atol=1e-6)


def shown(q):
    first, second = q.encoder.layers
    rest = lambda hidden: q.head(jax.nn.relu(second(jax.nn.relu(hidden))))  # noqa: E731
    return LinearFirst(first.weight, first.bias, rest, q.scale)


@pytest.mark.parametrize("elements", [(1, 4), (2, 4), (1,), (6,), ()])
def test_the_shared_first_layer_equals_the_plain_one(elements):
    group = generate(GRID, {g: RELABEL[g] for g in elements}, num_actions=4, capacity=8)
    assert group.fold is not None and group.fold.points.shape[:2] == (4, 2)
    q = network("mlp", scale=1 / 3)
    o = jnp.asarray(RNG.integers(0, 4, SHAPE), jnp.uint8)
    np.testing.assert_allclose(shown(q)(o), q(o), atol=1e-6)
    np.testing.assert_allclose(reynolds(shown(q), group)(o), reynolds(q, group)(o), atol=1e-6)


def test_the_shared_first_layer_has_the_same_gradient():
    o = jnp.asarray(RNG.integers(0, 2, SHAPE), jnp.uint8)
    params, static = eqx.partition(network("mlp"), eqx.is_array)

    def loss(params, wrap):
        return jnp.sum(reynolds(wrap(eqx.combine(params, static)), D4)(o) ** 2)

    folded, plain = (jax.grad(loss)(params, wrap) for wrap in (shown, lambda q: q))
    for left, right in zip(jax.tree.leaves(folded), jax.tree.leaves(plain), strict=True):
        np.testing.assert_allclose(left, right, atol=1e-5)


def test_one_program_serves_every_certificate():
    q = network("mlp")
    traces = []

    @jax.jit
    def values(group, level, o):
        traces.append(1)
        return bucketed(quotient, q, group, level)(o)

    o = jnp.asarray(RNG.integers(0, 2, SHAPE), jnp.uint8)
    for elements in ((), (4,), (1,), (1, 4)):
        group = generate(GRID, {g: RELABEL[g] for g in elements}, num_actions=4, capacity=8)
        found = values(group, bucket_level(group), o)
        np.testing.assert_allclose(found, quotient(q, group)(o), atol=1e-6)
        if not elements:
            np.testing.assert_array_equal(found, jax.jit(lambda x: q(x))(o))
    assert len(traces) == 1


def test_an_uncertified_group_is_the_network_itself():
    q = network("mlp")
    for wrapper in WRAPPERS.values():
        assert wrapper(q, trivial_group(GRID, 4)) is q


def test_equivariance_loss_is_zero_for_a_wrapped_network_and_has_no_gradient_through_alpha():
    o = jnp.asarray(RNG.integers(0, 2, (5, *SHAPE)), jnp.uint8)
    q = network("mlp")

    def loss(function, alpha=None):
        weighted, weights = jax.vmap(lambda x: equivariance_loss(function, D4, x, alpha))(o)
        return normalised_equivariance(weighted, weights, D4)

    assert loss(reynolds(q, D4)) < 1e-10
    by_hand = np.mean(
        [
            [
                np.sum((np.asarray(q(x)) - np.asarray(q(GRID.apply(g, x)))[RELABEL[g]]) ** 2)
                for g in range(8)
            ]
            for x in o
        ]
    )
    assert loss(q) == pytest.approx(by_hand, rel=1e-4)
    only = jnp.zeros(8).at[3].set(0.5)
    third = np.mean(
        [np.sum((np.asarray(q(x)) - np.asarray(q(GRID.apply(3, x)))[RELABEL[3]]) ** 2) for x in o]
    )
    place = int(np.flatnonzero(np.asarray(D4.element) == 3)[0])
    assert loss(q, jnp.zeros(8).at[place].set(0.5)) == pytest.approx(third / 8, rel=1e-4)
    np.testing.assert_array_equal(jax.grad(lambda a: loss(q, a))(only), 0)


def test_shared_transitions_move_together():
    count = 64
    o = jnp.asarray(RNG.integers(0, 2, (count, *SHAPE)), jnp.uint8)
    steps = Transition(
        o, jnp.asarray(RNG.integers(0, 4, count)), jnp.arange(count, dtype=jnp.float32),
        o[::-1], jnp.zeros(count, bool), jnp.zeros(count, bool),
    )  # fmt: skip
    moved = jax.jit(transform_transitions)(jax.random.key(0), D4, steps)
    used = set()
    for i in range(count):
        images = np.asarray(GRID.apply_all(o[i]))
        (g,) = (g for g in range(8) if (images[g] == np.asarray(moved.observation[i])).all())
        used.add(g)
        assert moved.action[i] == RELABEL[g][steps.action[i]]
        np.testing.assert_array_equal(moved.next_observation[i], GRID.apply(g, o[count - 1 - i]))
    assert used == set(range(8))
    np.testing.assert_array_equal(moved.reward, steps.reward)


def test_orbit_and_class_ids():
    o = jnp.asarray(RNG.integers(0, 2, (2, *SHAPE)), jnp.uint8)
    mirrored = jnp.zeros(SHAPE, jnp.uint8).at[1, 3].set(1)
    batch = jnp.stack([o[0], o[1], GRID.apply(3, o[0]), GRID.apply(6, o[1]), mirrored, mirrored])
    np.testing.assert_array_equal(orbit_ids(D4, batch), [0, 1, 0, 1, 4, 4])
    actions = jnp.array([1, 2, RELABEL[3][1], RELABEL[6][0], 2, 3])
    # The fourth has the orbit of the second and another action; the last two are exchanged
    # by the mirror that leaves them unchanged.
    np.testing.assert_array_equal(class_ids(D4, batch, actions), [0, 1, 0, 3, 4, 4])
    np.testing.assert_array_equal(orbit_ids(trivial_group(GRID, 4), batch), [0, 1, 2, 3, 4, 4])


@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_bad_input_is_refused(wrapper):
    wrap = WRAPPERS[wrapper]
    o = jnp.zeros(SHAPE, jnp.uint8)
    with pytest.raises(InputError, match="4 actions"):
        wrap(lambda _: jnp.zeros(3), D4)(o)
    with pytest.raises(InputError, match="shape"):
        wrap(network("mlp"), D4)(jnp.zeros((7, 7, 1)))
    with pytest.raises(InputError, match="NaN"):
        wrap(slot_network, S3)(jnp.full(6, jnp.nan))


def test_policy_logits_are_wrapped_alike():
    q = network("mlp")
    policy = jax.jit(lambda o: jax.nn.log_softmax(quotient(q, D4)(o)))
    o = jnp.asarray(RNG.integers(0, 2, SHAPE), jnp.uint8)
    check_equivariant(policy, GRID.apply_all(o), RELABEL)


def test_permutation_oracle_has_the_stated_convention():
    # Π_g[b, a] = 1 composes as the transforms do: relabel[gh] = relabel[g][relabel[h]].
    rows = permutations_of("S3")
    assert {tuple(r) for r in np.asarray(S3.relabel)[:6].tolist()} == set(rows)


def test_every_seed_may_have_its_own_group():
    q = network("mlp")
    groups = [generate(GRID, {g: RELABEL[g]}, num_actions=4, capacity=8) for g in (1, 4)]
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *groups)
    o = jnp.asarray(RNG.integers(0, 2, (2, 3, *SHAPE)), jnp.uint8)
    for wrap in (reynolds, quotient, lambda f, g: reynolds(shown(f), g)):
        batch = jax.jit(lambda g, b, wrap=wrap: jax.vmap(wrap(q, g))(b))
        together = jax.jit(jax.vmap(batch))(stacked, o)
        for seed in range(2):
            alone = batch(groups[seed], o[seed])
            np.testing.assert_allclose(together[seed], alone, atol=1e-6)
