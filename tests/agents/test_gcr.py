"""Symmetry and order on the value agent: off is off, exact is exact, noise is noticed."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gcr_rl import envs
from gcr_rl.agents import make_value_agent
from gcr_rl.agents.noise import init_noise, measure, same_pairs, strength
from gcr_rl.agents.symmetric import level_of, without_fold
from gcr_rl.config import Config
from gcr_rl.envs.simulator import make_simulator
from gcr_rl.errors import InputError
from gcr_rl.losses import return_bound, soft_bound_loss
from gcr_rl.methods import METHODS
from gcr_rl.networks import ObservationSpec
from gcr_rl.presets import preset
from gcr_rl.symmetry import Vocabulary, from_elements, generate, init_standing
from gcr_rl.symmetry.enforcement import groups_in_force
from gcr_rl.types import Segment, Transition

SHAPE, ACTIONS, LENGTH = (5, 5, 2), 4, 4
SPEC = ObservationSpec(SHAPE, "float32")
SMALL = {
    "network.hidden": (16, 16),
    "order.horizons": (2, 4),
    "value.loss": "squared",
    "optimiser.clip_norm": 0.0,
    "order.neighbours": 3,
}
DIHEDRAL = Vocabulary.for_space(type("Space", (), {"shape": SHAPE, "low": 0}))[-1]
# up, down, left, right under the elements of the vocabulary, read off moves of a mark
MOVES = ((-1, 0), (1, 0), (0, -1), (0, 1))


def relabellings():
    """relabel[g, a]: where T_g sends a step away from the centre."""
    table = []
    for g in range(DIHEDRAL.size):
        row = []
        for dy, dx in MOVES:
            mark = np.zeros(SHAPE, np.float32)
            mark[2 + dy, 2 + dx, 0] = 1.0
            y, x, _ = np.argwhere(np.asarray(DIHEDRAL.apply(g, mark)) == 1.0)[0]
            row.append(MOVES.index((y - 2, x - 2)))
        table.append(row)
    return np.array(table, np.int32)


def agent_for(method, **overrides):
    config = Config("Probe-D4", method).replace(METHODS[method].overrides)
    config = config.replace({**SMALL, **overrides})
    return make_value_agent(config, SPEC, ACTIONS, vocabulary=DIHEDRAL)


def batch_of(key, size=32, reward=None):
    keys = jax.random.split(key, 4)
    steps = Transition(
        observation=jax.random.normal(keys[0], (size, LENGTH, *SHAPE)),
        action=jax.random.randint(keys[1], (size, LENGTH), 0, ACTIONS),
        reward=jax.random.normal(keys[2], (size, LENGTH)) if reward is None else reward,
        next_observation=jax.random.normal(keys[3], (size, LENGTH, *SHAPE)),
        terminated=jnp.zeros((size, LENGTH), bool),
        truncated=jnp.zeros((size, LENGTH), bool),
    )
    return Segment(steps, jnp.ones((size, LENGTH), bool))


def shorter(batch, length):
    return jax.tree.map(lambda leaf: leaf[:, :length], batch)


def with_group(state, group):
    return state._replace(group=without_fold(group))


@pytest.mark.parametrize("method", ["gcr-hard", "gcr-soft", "paper-logic-only", "gcr-rainbow"])
def test_with_coefficients_zero_the_update_is_the_base_agents_bit_for_bit(method):
    base = agent_for("rainbow" if method == "gcr-rainbow" else "ddqn")
    agent = agent_for(method, **{"order.coefficient": 0.0})
    assert agent.segment_length == base.segment_length
    key, batch = jax.random.key(0), shorter(batch_of(jax.random.key(1)), base.segment_length)
    expected, plain = jax.jit(base.update)(base.init(key), batch)
    found, metrics = jax.jit(agent.update)(agent.init(key), batch)
    assert plain.keys() == metrics.keys()
    for a, b in zip(
        jax.tree.leaves((expected.params, expected.target, expected.optimiser)),
        jax.tree.leaves((found.params, found.target, found.optimiser)),
        strict=True,
    ):
        np.testing.assert_array_equal(a, b)


def test_the_hard_route_regresses_on_the_larger_of_target_and_bound():
    agent, base = agent_for("logic-only"), agent_for("ddqn")
    state = agent.init(jax.random.key(0))
    batch = batch_of(jax.random.key(1))
    # A reward that comes late: the bounds see it, the one-step targets do not.
    late = jnp.zeros((32, LENGTH)).at[:, 2].set(5.0)
    batch = batch._replace(steps=batch.steps._replace(reward=late))
    # The horizons take turns: two steps do not reach the reward, four do.
    _, short = jax.jit(agent.update)(state, batch, None, 0)
    assert short["order_coverage"] < 1.0
    found, metrics = jax.jit(agent.update)(state, batch, None, 1)
    plain, before = jax.jit(base.update)(state._replace(noise=(), group=()), shorter(batch, 1))
    assert metrics["order_coverage"] == 1.0
    assert metrics["order_violation_target"] <= 1e-5
    assert metrics["td_error_abs"] > 3.0 > before["td_error_abs"]
    pairs = zip(jax.tree.leaves(found.params), jax.tree.leaves(plain.params), strict=True)
    moved = [float(jnp.abs(a - b).max()) for a, b in pairs]
    assert max(moved) > 0


@pytest.mark.parametrize("method", ["logic-only", "gcr-soft"])
def test_doubt_lets_a_clear_bound_through_and_stops_what_the_other_side_outweighs(method):
    late = jnp.zeros((32, LENGTH)).at[:, 2].set(5.0)  # only bounds of four steps see it
    mixed = late.at[::2, 2].set(-5.0)  # as often down as up: chance
    clear, chance, free = (
        update_with(method, reward, doubt)
        for reward, doubt in ((late, 0.2), (mixed, 0.2), (mixed, 1.0))
    )
    assert clear["edges_kept"] == 32 and clear["edges_refused"] == 0
    assert chance["edges_kept"] == 0 and chance["edges_refused"] == free["edges_kept"] >= 16
    assert chance["order_violation"] == 0.0 < free["order_violation"]


def update_with(method, reward, doubt):
    """The log of an update on segments with these rewards, bounds of four steps."""
    agent = agent_for(method, **{"order.doubt": doubt})
    batch = batch_of(jax.random.key(1))
    batch = batch._replace(steps=batch.steps._replace(reward=reward))
    _, metrics = jax.jit(agent.update)(agent.init(jax.random.key(0)), batch, None, 1)
    return metrics


def test_bounds_below_the_targets_change_nothing():
    agent, base = agent_for("logic-only"), agent_for("ddqn")
    state = agent.init(jax.random.key(0))
    batch = batch_of(jax.random.key(1))
    early = jnp.full((32, LENGTH), -50.0).at[:, 0].set(0.0)
    batch = batch._replace(steps=batch.steps._replace(reward=early))
    found, metrics = jax.jit(agent.update)(state, batch)
    plain, _ = jax.jit(base.update)(state._replace(noise=(), group=()), shorter(batch, 1))
    assert metrics["order_coverage"] == 0.0
    for a, b in zip(jax.tree.leaves(found.params), jax.tree.leaves(plain.params), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-6)


@pytest.mark.parametrize("enforce", ["quotient", "reynolds"])
def test_distributions_are_equivariant_under_the_group_in_force(enforce):
    agent = agent_for("gcr-rainbow", **{"symmetry.enforce": enforce, "value.atoms": 7})
    relabel = relabellings()
    state = with_group(agent.init(jax.random.key(0)), from_elements(DIHEDRAL, relabel))
    observation = jax.random.normal(jax.random.key(3), SHAPE)
    images = jnp.stack([DIHEDRAL.apply(g, observation) for g in range(8)])
    outputs = agent.objective.outputs

    def logits(level):
        run = jax.vmap(lambda o: outputs(state.params, state.group, level, o))
        return np.asarray(jax.jit(run)(images))

    found = logits(8)
    assert found.shape == (8, ACTIONS, 7) and np.ptp(found[0], axis=1).min() > 1e-3
    for g in range(8):
        np.testing.assert_allclose(found[g][relabel[g]], found[0], atol=1e-5)
    plain = logits(1)
    differ = [np.abs(plain[g][relabel[g]] - plain[0]).max() for g in range(8)]
    assert max(differ) > 1e-3


def test_a_bound_moves_the_distribution_that_rainbow_learns():
    agent = agent_for("gcr-rainbow", **{"value.support_low": -30.0, "value.support_high": 30.0})
    base = agent_for("rainbow", **{"value.support_low": -30.0, "value.support_high": 30.0})
    state, batch = agent.init(jax.random.key(0)), batch_of(jax.random.key(1))
    late = jnp.zeros((32, LENGTH)).at[:, 3].set(15.0)  # beyond the three-step targets
    batch = batch._replace(steps=batch.steps._replace(reward=late))
    _, metrics = jax.jit(agent.update)(state, batch, None, 1)
    plain = shorter(batch, base.segment_length)
    _, before = jax.jit(base.update)(state._replace(noise=(), group=()), plain)
    assert metrics["order_coverage"] == 1.0 and metrics["order_violation_target"] <= 1e-5
    assert metrics["td_error_abs"] > before["td_error_abs"] + 10.0
    assert metrics["td_loss"] > before["loss"] + 0.1


@pytest.mark.parametrize("enforce", ["quotient", "reynolds"])
def test_values_are_equivariant_under_the_group_in_force(enforce):
    agent = agent_for("gcr-hard", **{"symmetry.enforce": enforce})
    state = agent.init(jax.random.key(0))
    assert agent.level(state) == 1
    relabel = relabellings()
    state = with_group(state, from_elements(DIHEDRAL, relabel))
    level = agent.level(state)
    assert level == 8
    observation = jax.random.normal(jax.random.key(3), SHAPE)
    value = np.asarray(agent.q_values(state, observation, level))
    for g in range(8):
        image = agent.q_values(state, DIHEDRAL.apply(g, observation), level)
        np.testing.assert_allclose(np.asarray(image)[relabel[g]], value, atol=1e-5)
    # Without the group the network's values differ on some images (not on the canonical one).
    plain = [np.asarray(agent.q_values(state, DIHEDRAL.apply(g, observation), 1)) for g in range(8)]
    assert max(np.abs(q[row] - value).max() for q, row in zip(plain, relabel, strict=True)) > 1e-3


def test_the_soft_route_pulls_the_network_towards_equivariance():
    agent = agent_for(
        "gcr-soft",
        **{"symmetry.shared": 0.0, "order.coefficient": 0.0, "symmetry.coefficient": 9.0},
    )
    state = with_group(agent.init(jax.random.key(0)), from_elements(DIHEDRAL, relabellings()))
    batch = shorter(batch_of(jax.random.key(1), reward=jnp.zeros((32, LENGTH))), 1)
    update = jax.jit(agent.update, static_argnames="level")
    losses = []
    for i in range(60):
        words = jax.random.bits(jax.random.key(i), (32,), jnp.uint32)
        state, metrics = update(state, batch, words, 0, level=8)
        losses.append(float(metrics["equivariance_loss"]))
    assert np.mean(losses[-10:]) < 0.5 * np.mean(losses[:10])


@pytest.mark.slow
@pytest.mark.parametrize("method", ["paper-hard", "paper-no-relabel"])
def test_the_papers_letter_runs_for_several_seeds_at_once(method):
    agent = agent_for(method)
    states = jax.vmap(agent.init)(jax.random.split(jax.random.key(0), 2))
    batch = jax.vmap(batch_of)(jax.random.split(jax.random.key(1), 2))
    batch = jax.tree.map(lambda leaf: leaf[:, :, : agent.segment_length], batch)
    update = jax.jit(
        lambda s, b, clock: jax.vmap(lambda t, c: agent.update(t, c, None, clock))(s, b)
    )
    after, metrics = update(states, batch, jnp.int32(4))
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves((after.params, metrics)))
    assert (metrics["edges_kept"] + metrics["edges_refused"] == metrics["edges_proposed"]).all()
    assert (metrics["edges_kept"] > 0).all()
    if method == "paper-hard":
        assert (metrics["order_violation_target"] <= 1e-4).all()
        assert (metrics["order_violation_network"] > 1e-3).any()
    for chore in agent.chores:
        part = jax.vmap(lambda s, b, run=chore.renewed: run(s, b, 1))(after, batch)
        assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(part))


def test_transition_noise_is_that_of_repeated_pairs_and_zero_if_they_agree():
    generator = np.random.default_rng(0)
    pair = np.repeat(np.arange(40), 12)
    same = jnp.asarray(pair[:, None] == pair[None, :])
    centre = generator.normal(size=40)[pair] * 5
    quiet = measure(init_noise(), same, jnp.asarray(centre), jnp.asarray(centre), jnp.zeros(()))
    assert float(quiet.variance) == pytest.approx(0.0, abs=1e-8)
    assert float(quiet.surprise) == 0.0  # to the bit
    assert float(strength(quiet, 0.2)) == pytest.approx(1.0)
    noisy = centre + generator.normal(size=480) * 0.7
    found = measure(init_noise(), same, jnp.asarray(noisy), jnp.asarray(centre), jnp.zeros(()))
    assert float(found.variance) == pytest.approx(0.49, rel=0.15)
    nothing = measure(init_noise(), jnp.eye(480, dtype=bool), jnp.asarray(noisy),
                      jnp.zeros(480), jnp.zeros(()))  # fmt: skip
    assert float(nothing.variance) == float(nothing.surprise) == 0.0  # no pair was seen twice
    assert float(strength(init_noise(), 0.2)) == pytest.approx(0.2)


def test_pairs_are_the_same_exactly_if_state_and_action_are():
    states = jnp.array([[0, 1], [0, 1], [1, 0], [0, 1]])
    found = same_pairs({"a": states}, jnp.array([2, 2, 2, 1]))
    expected = np.eye(4, dtype=bool)
    expected[0, 1] = expected[1, 0] = True
    np.testing.assert_array_equal(found, expected)


def test_bounds_subtract_noise_that_adds_up_over_steps():
    bound = return_bound(*map(jnp.float32, (3.0, 0.5, 4.0, 9, 0.25, 0.0)), 2.0)
    assert float(bound) == pytest.approx(3.0 + 2.0 - 2.0 * 1.5)


def test_the_largest_surprise_is_the_excess_over_the_others_of_a_pair_and_fades():
    pair = jnp.array([0, 0, 0, 0, 1, 1, 2])
    same = pair[:, None] == pair[None, :]
    target = jnp.array([1.0, 1.0, 1.0, 9.0, -3.0, -7.0, 50.0])  # the last was seen once
    found = measure(init_noise(), same, target, target, jnp.zeros(()))
    assert float(found.surprise) == pytest.approx(8.0)
    later = measure(found, same, jnp.zeros(7), jnp.zeros(7), jnp.zeros(()), fading=0.5)
    assert float(later.surprise) == pytest.approx(4.0)
    unlucky = measure(init_noise(), same, -target, target, jnp.zeros(()))
    assert float(unlucky.surprise) == pytest.approx(4.0)  # of pair 1; the other's luck was bad


@pytest.mark.parametrize("luck", [0.5, 0.05, 0.01])
def test_bounds_from_luck_hold_whether_it_is_common_or_rare(luck):
    """Ways of ten steps, a prize of 1 at each with a small chance, nothing after them."""
    steps, z = 10, 3.0
    prize = np.random.default_rng(0).random((200_000, steps)) < luck
    total, value = jnp.asarray(prize.sum(axis=1), jnp.float32), steps * luck
    variance, surprise = jnp.float32(luck * (1 - luck)), jnp.float32(1 - luck)
    nothing = jnp.zeros_like(total)

    def passed(surprise):
        bound = return_bound(
            total, nothing, nothing, jnp.int32(steps), variance, jnp.float32(surprise), z
        )
        return float(jnp.mean(bound > value))

    assert passed(surprise) <= np.exp(-(z**2) / 2)
    if luck < 0.1:
        assert passed(0.0) > 0.003  # a normal law would say 0.0013


def test_the_soft_loss_is_the_minimum_of_the_surrogate():
    value, bound, penalty = jnp.array([0.0, 2.0]), jnp.array([1.0, 1.0]), 3.0
    grid = np.linspace(-1, 3, 40_001)
    surrogate = [(grid - v) ** 2 + penalty * np.maximum(b - grid, 0) ** 2 for v, b in
                 zip(value, bound, strict=True)]  # fmt: skip
    expected = np.mean([one.min() for one in surrogate])
    assert float(soft_bound_loss(value, bound, penalty)) == pytest.approx(expected, abs=1e-6)


def test_levels_are_powers_of_two_over_all_seeds():
    blank = init_standing(DIHEDRAL, ACTIONS)
    assert level_of(groups_in_force([blank, blank], DIHEDRAL, ACTIONS).group) == 1
    assert level_of(()) == 1


@pytest.mark.parametrize(("enforce", "level"), [("quotient", 8), ("reynolds", 2), ("loss", 8)])
def test_places_to_spare_are_taken_where_they_are_cheap(enforce, level):
    """A group of two: levels between nothing and eight would each be compiled anew."""
    agent = agent_for("gcr-hard", **{"symmetry.enforce": enforce})
    half_turn = {2: relabellings()[2].tolist()}
    group = generate(DIHEDRAL, half_turn, ACTIONS, capacity=8)
    assert int(np.asarray(group.valid).sum()) == 2
    state = with_group(agent.init(jax.random.key(0)), group)
    assert agent.level(state) == level


def test_button_tiles_are_sorted_whatever_the_wrapper():
    environment, params = envs.make("ButtonPermutation")
    simulator = make_simulator(environment, params)
    vocabulary = Vocabulary.for_space(simulator.space, simulator.tile_size)[-1]
    assert vocabulary.swaps is not None
    spec = ObservationSpec(simulator.observation_shape, "uint8", 1 / 255)
    config = preset("ButtonPermutation", "gcr-hard", {"network.hidden": (8,)})
    agent = make_value_agent(config, spec, 6, vocabulary=vocabulary)
    assert agent.level(agent.init(jax.random.key(0))) == 1


@pytest.mark.parametrize(
    ("field", "value"),
    [("order.horizons", ()), ("order.horizons", (0,)), ("order.steps", 6), ("order.floor", 1.5),
     ("symmetry.elements", 0), ("order.evidence", "guess"), ("symmetry.family", "graph")],
)  # fmt: skip
def test_bad_settings_are_named(field, value):
    with pytest.raises(InputError, match=field):
        preset("NoisyRPSChain", "paper-soft", {field: value})


def test_more_neighbours_than_others_in_the_batch_are_refused():
    with pytest.raises(InputError, match=r"order\.neighbours"):
        preset("NoisyRPSChain", "paper-soft", {"order.neighbours": 64})
