"""Rainbow's parts on the value agent: each alone and all together, what each must do."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from batches import batch_of

from gcr_rl import envs
from gcr_rl.agents import make_value_agent
from gcr_rl.agents.estimates import Distributions, Law, Target
from gcr_rl.config import Config, ValueConfig
from gcr_rl.distribution import expectation
from gcr_rl.envs.finite import optimal_q
from gcr_rl.envs.simulator import make_simulator
from gcr_rl.errors import InputError
from gcr_rl.networks import ObservationSpec, factors_of
from gcr_rl.presets import preset
from gcr_rl.training.loop import make_learner
from gcr_rl.training.state import SEED_AXES, streams
from gcr_rl.types import Segment, Transition

PARTS = {
    "atoms": {"value.atoms": 51},
    "dueling": {"network.dueling": True},
    "noisy": {"network.noisy": True},
    "n_step": {"value.n_step": 3},
    "all": {"value.atoms": 51, "network.dueling": True, "network.noisy": True},
}


def all_pairs(length):
    """The two-state probe: its Q*, its observations and a segment from every pair (s, a), which
    goes on with the best actions."""
    environment, params = envs.make("Probe-TwoState")
    mdp = environment.finite_mdp(params)
    truth = np.asarray(optimal_q(mdp, 0.9))
    observations = environment.observations(params)
    states, actions, _ = mdp.successors.shape
    s, a = np.divmod(np.arange(states * actions), actions)
    rows = []
    for _ in range(length):
        after = np.asarray(mdp.successors)[s, a, 0]
        rows.append(
            Transition(
                observations[s], jnp.array(a, jnp.int32), mdp.rewards[s, a, 0],
                observations[after], mdp.terminated[s, a, 0], jnp.zeros(len(s), bool),
            )
        )  # fmt: skip
        s, a = after, truth[after].argmax(axis=1)
    steps = jax.tree.map(lambda *leaves: jnp.stack(leaves, axis=1), *rows)
    ends = np.cumsum(np.asarray(steps.terminated), axis=1) - np.asarray(steps.terminated)
    live = ~np.asarray(mdp.terminated[..., 0]) | (np.asarray(mdp.start)[:, None] > 0)
    return truth, live, observations, Segment(steps, jnp.asarray(ends == 0))


@pytest.mark.parametrize("part", PARTS)
def test_each_part_alone_and_all_together_find_the_exact_values(part):
    settings = {
        "value.discount": 0.9, "value.target_period": 20, "value.loss": "squared",
        "optimiser.learning_rate": 3e-3, **PARTS[part],
    }  # fmt: skip
    config = preset("Probe-TwoState", "ddqn", settings)
    truth, live, observations, batch = all_pairs(config.value.n_step)
    spec = ObservationSpec(observations.shape[1:], str(observations.dtype))
    agent = make_value_agent(config, spec, truth.shape[1])
    size = batch.mask.shape[0]

    @jax.jit
    def learn(state):
        def once(i, x):
            bits = jax.random.bits(jax.random.key(i), (agent.words_needed(size),), jnp.uint32)
            return agent.update(x, batch, bits)[0]

        return jax.lax.fori_loop(0, 3_000, once, state)

    state = learn(agent.init(jax.random.key(0)))
    q = np.asarray(jax.vmap(lambda o: agent.q_values(state, o))(observations))
    np.testing.assert_allclose(q[live], truth[live], atol=0.05)


def small_agent(**overrides):
    config = Config("mine").replace({"network.hidden": (16,), "optimiser.clip_norm": 0.0})
    return make_value_agent(config.replace(overrides), ObservationSpec((4,), "float32"), 3)


@pytest.mark.parametrize("atoms", [0, 21])
def test_importance_weights_weigh_the_losses(atoms):
    """Weights 2 and 0 on the two halves are the loss of the first half alone."""
    agent = small_agent(**{"value.atoms": atoms})
    state, batch = agent.init(jax.random.key(0)), batch_of(jax.random.key(1))
    half = jax.tree.map(lambda leaf: leaf[:8], batch)
    weight = jnp.repeat(jnp.array([2.0, 0.0]), 8)
    learn = jax.jit(lambda segments, weight: agent.learn(state, segments, weight=weight))
    found, metrics, error = learn(batch, weight)
    expected, plain, half_error = learn(half, None)
    assert metrics["loss"] == pytest.approx(float(plain["loss"]), rel=1e-5)
    assert metrics["importance"] == 1.0 and "importance" not in plain
    np.testing.assert_allclose(error[:8], half_error, rtol=1e-4, atol=1e-6)
    for a, b in zip(jax.tree.leaves(found.params), jax.tree.leaves(expected.params), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)


def test_a_noisy_network_acts_differently_by_draw_and_is_evaluated_without():
    agent = small_agent(**{"network.noisy": True, "network.noisy_sigma": 3.0})
    state = agent.init(jax.random.key(0))
    observation = jax.random.normal(jax.random.key(1), (64, 4))
    draws, none = jnp.ones((64, 2)), jnp.float32(0.0)

    def actions(seed):
        bits = jax.random.bits(jax.random.key(seed), (agent.noise_size,), jnp.uint32)
        return np.asarray(agent.act(state, observation, draws, none, 1, factors_of(bits)))

    assert (actions(0) != actions(1)).any()
    np.testing.assert_array_equal(actions(0), actions(0))
    mean = jax.vmap(lambda o: agent.q_values(state, o))(observation)
    plain = agent.act(state, observation, draws, none)
    np.testing.assert_array_equal(plain, jnp.argmax(mean, axis=1))
    assert small_agent().noise_size == 0


def test_factors_are_those_of_standard_normals():
    bits = jax.random.bits(jax.random.key(0), (20_001,), jnp.uint32)
    found = np.asarray(factors_of(bits))
    normal = np.sign(found) * found**2
    assert abs(normal.mean()) < 0.03 and normal.std() == pytest.approx(1.0, abs=0.02)
    assert np.mean(np.abs(normal) < 1.0) == pytest.approx(0.6827, abs=0.01)
    ends = np.asarray(factors_of(jnp.array([0, 2**32 - 1], jnp.uint32)))
    assert np.isfinite(ends).all() and ends[0] == -ends[1] < -2.2
    np.testing.assert_array_equal(jax.jit(jax.vmap(factors_of))(bits[None])[0], found)


def test_noise_moves_the_loss_only_where_layers_are_noisy():
    batch = batch_of(jax.random.key(1))
    for noisy in (True, False):
        agent = small_agent(**{"network.noisy": noisy})
        state, update = agent.init(jax.random.key(0)), jax.jit(agent.update)
        losses = {
            float(update(state, batch, words)[1]["loss"])
            for words in (
                jax.random.bits(jax.random.key(i), (agent.words_needed(16),), jnp.uint32)
                for i in range(3)
            )
        }
        assert len(losses) == (3 if noisy else 1)
    with pytest.raises(InputError, match="words"):
        small_agent(**{"network.noisy": True}).update(state, batch, jnp.zeros(16, jnp.uint32))


def test_a_moved_goal_moves_the_law_of_the_return():
    estimate = Distributions(ValueConfig(atoms=101, support_low=-10.0, support_high=10.0))
    probabilities = jax.nn.softmax(jax.random.normal(jax.random.key(0), (101,)))
    law = Law(probabilities, jnp.float32(0.5), jnp.float32(0.2))
    target = Target(0.5 + 0.2 * probabilities @ estimate.support, law)
    logits = jnp.zeros((3, 101))

    def pulled(goal):
        """The mean of the distribution whose cross-entropy the loss is: minus its gradient."""
        slope = jax.grad(lambda x: estimate.judge(x, jnp.int32(1), target, goal).loss)(logits)
        assert float(jnp.abs(slope[0]).max()) == 0.0
        return float((1 / 101 - slope[1]) @ estimate.support)

    assert pulled(target.goal) == pytest.approx(float(target.goal), abs=1e-4)
    assert pulled(target.goal + 3.0) == pytest.approx(float(target.goal) + 3.0, abs=1e-4)


def test_divergence_is_the_priority_and_zero_at_the_target():
    estimate = Distributions(ValueConfig(atoms=11, support_low=-1.0, support_high=1.0))
    logits = jax.random.normal(jax.random.key(0), (2, 11))
    law = Law(jax.nn.softmax(logits[0]), jnp.float32(0.0), jnp.float32(1.0))
    target = Target(expectation(logits[0], estimate.support), law)
    right, wrong = (estimate.judge(logits, jnp.int32(a), target, target.goal) for a in (0, 1))
    assert float(right.error) == pytest.approx(0.0, abs=1e-5)
    assert float(wrong.error) > 0.05 and float(right.loss) > 0.5


def learner_of(method, **overrides):
    small = {
        "network.hidden": (8,), "replay.capacity": 64, "replay.batch_size": 8, "steps": 400,
        "replay.learning_starts": 40, "evaluation.every": 100, "run.log_every": 100,
        "run.checkpoint_every": 100,
    }  # fmt: skip
    config = preset("NoisyRPSChain", method, {**small, **overrides})
    return make_learner(config, make_simulator(*envs.make("NoisyRPSChain")))


def played(learner, steps):
    """The state of two seeds after so many random steps."""

    @jax.jit
    def run():
        state = jax.vmap(lambda s: learner.init(streams(s)), out_axes=SEED_AXES)(jnp.arange(2))
        play = jax.vmap(
            lambda s, c, i: learner.interact(s, c, i, jnp.float32(1.0), 1),
            (SEED_AXES, 0, None), (SEED_AXES, 0),
        )  # fmt: skip
        begin = state, learner.no_stats(state, False, 1)
        return jax.lax.fori_loop(1, steps + 1, lambda i, carry: play(*carry, i), begin)[0]

    return run()


def test_updates_renew_the_priorities_of_what_was_drawn():
    learner = learner_of("rainbow", **{"value.atoms": 0, "value.n_step": 3, "network.noisy": False})
    state = played(learner, 30)
    before = np.asarray(state.priorities.tree[0])
    # 30 rows, segments of three: the last two are no starts yet, the others are at the largest.
    np.testing.assert_array_equal(before[:, :28], 1.0)
    np.testing.assert_array_equal(before[:, 28:], 0.0)

    def update(one):
        return learner.updated(one, jnp.int32(200), jnp.int32(7), 1)

    run = jax.jit(jax.vmap(update, (SEED_AXES,)))
    agent, priorities, metrics = run(state)
    after = np.asarray(priorities.tree[0])
    changed = (after != before).sum(axis=1)
    assert (changed > 3).all() and (changed <= 8).all() and (after[:, 28:] == 0.0).all()
    assert (metrics["importance"] == 1.0).all()  # equal priorities, equal weights
    _, _, later = run(state._replace(agent=agent, priorities=priorities))
    assert (later["importance"] < 1.0).all()


def test_a_draw_by_priority_repeats_the_errors_of_its_segments():
    """The new priority of a start is its error to the power of the exponent."""
    learner = learner_of("ddqn", **{"replay.prioritised": True, "replay.exponent": 0.7})
    state = played(learner, 20)
    ring = state.replay._replace(rows=jax.tree.map(lambda leaf: leaf[0], state.replay.rows))
    first = jax.tree.map(lambda leaf: leaf[0], (state.agent, state.priorities))
    state = state._replace(agent=first[0], replay=ring, priorities=first[1])
    held = state.replay, state.priorities
    words = jnp.arange(8, dtype=jnp.uint32) << 29
    draw = jax.jit(lambda: learner.replay.draw(held, words, jnp.float32(0.5)))()
    learn = jax.jit(lambda segments: learner.agent.learn(state.agent, segments))
    _, _, error = learn(draw.segments)
    _, priorities = jax.jit(learner.replay.update)(held, draw, error)
    leaf, expected = np.asarray(draw.leaf), (np.abs(error) + 1e-6) ** 0.7
    for place in range(8):
        most = expected[leaf == leaf[place]].max()
        assert float(priorities.tree[0][leaf[place]]) == pytest.approx(most, rel=1e-5)


def test_an_update_keeps_the_types_of_the_state():
    """A weak type that an update makes strong would compile every program twice."""
    for method in ("rainbow", "curl"):
        learner = learner_of(method)
        state = learner.init(streams(jnp.int32(0)))
        after, _, _ = jax.eval_shape(
            lambda x, run=learner: run.updated(x, jnp.int32(0), jnp.int32(0), 1), state
        )
        for old, new in zip(jax.tree.leaves(state.agent), jax.tree.leaves(after), strict=True):
            assert jax.typeof(old).weak_type == new.weak_type, (method, old.shape)
            assert old.dtype == new.dtype and old.shape == new.shape


@pytest.mark.parametrize(
    ("overrides", "field"),
    [
        ({"value.atoms": 1}, "value.atoms"),
        ({"value.atoms": -1}, "value.atoms"),
        ({"value.support_low": 200.0}, "value.support_low"),
        ({"network.noisy_sigma": -1.0}, "network.noisy_sigma"),
        ({"network.stream": -1}, "network.stream"),
        ({"replay.exponent": 1.5}, "replay.exponent"),
        ({"replay.beta": -0.5}, "replay.beta"),
        ({"symmetry.family": "latent"}, "network.dueling"),
        ({"symmetry.family": "latent", "network.dueling": False}, "network.noisy"),
        ({"symmetry.family": "latent", "network.dueling": False, "network.noisy": False},
         "value.atoms"),
        ({"network.encoder": "sign"}, "network.dueling"),
        ({"augment.images": "blur"}, "augment.images"),
        ({"augment.vectors": "translate"}, "augment.vectors"),
        ({"augment.margin": -1}, "augment.margin"),
        ({"augment.amplitude": 2.0}, "augment.amplitude"),
        ({"contrast.weight": 1.0}, "contrast.weight"),
        ({"contrast.rate": 0.0}, "contrast.rate"),
    ],
)  # fmt: skip
def test_bad_combinations_are_refused_in_one_line(overrides, field):
    with pytest.raises(InputError) as caught:
        preset("CartPole", "rainbow", overrides)
    assert str(caught.value).startswith(field) and "\n" not in str(caught.value)


def test_told_networks_give_distributions_too():
    config = preset("CartPole", "equivariant", {"value.atoms": 11})
    agent = make_value_agent(config, ObservationSpec((4,), "float32"), 2)
    state = agent.init(jax.random.key(0))
    observation = jnp.array([0.1, -0.2, 0.3, 0.4])
    outputs = agent.objective.outputs(state.params, (), 1, observation)
    assert outputs.shape == (2, 11)
    mirrored = agent.objective.outputs(state.params, (), 1, -observation)
    np.testing.assert_allclose(mirrored, outputs[::-1], atol=1e-5)
