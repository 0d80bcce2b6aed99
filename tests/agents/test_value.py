"""The value agent: a fixed point it must find, and the pieces of its update."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from batches import batch_of

from gcr_rl.agents import make_value_agent
from gcr_rl.agents.optimiser import make_optimiser, move_target, total_updates
from gcr_rl.config import Config, OptimiserConfig
from gcr_rl.envs import make
from gcr_rl.envs.finite import optimal_q
from gcr_rl.networks import ObservationSpec
from gcr_rl.presets import preset
from gcr_rl.types import Segment, Transition

SPEC = ObservationSpec((4,), "float32")


def agent_for(**overrides):
    return make_value_agent(Config("CartPole").replace(overrides), SPEC, 3)


@pytest.mark.parametrize("double", [True, False])
def test_update_equals_a_gradient_step_written_out(double):
    """One update with plain numbers: targets by hand, gradient by autodiff of the plain loss."""
    agent = agent_for(
        **{"value.double": double, "optimiser.clip_norm": 0.0, "value.loss": "squared"}
    )
    state = agent.init(jax.random.key(0))
    other = agent.init(jax.random.key(1))
    state = state._replace(target=other.params)
    batch = batch_of(jax.random.key(2))
    first = jax.tree.map(lambda leaf: leaf[:, 0], batch.steps)

    def q(params, observation):
        return jax.vmap(lambda o: agent.q_values(state._replace(params=params), o))(observation)

    q_next = q(state.target, first.next_observation)
    chooser = q(state.params, first.next_observation) if double else q_next
    value = jnp.take_along_axis(q_next, jnp.argmax(chooser, axis=1)[:, None], axis=1)[:, 0]
    goal = first.reward + 0.99 * jnp.where(first.terminated, 0.0, value)

    def loss(params):
        taken = jnp.take_along_axis(q(params, first.observation), first.action[:, None], axis=1)
        return 0.5 * jnp.mean((goal - taken[:, 0]) ** 2)

    expected = loss(state.params)
    gradient = jax.grad(loss)(state.params)
    after, metrics = jax.jit(agent.update)(state, batch)
    assert metrics["loss"] == pytest.approx(float(expected), rel=1e-5)
    # Adam's first step is learning_rate * sign(gradient)
    step = jax.tree.map(lambda new, old: new - old, after.params, state.params)
    for moved, slope in zip(jax.tree.leaves(step), jax.tree.leaves(gradient), strict=True):
        large = np.abs(slope) > 1e-4
        np.testing.assert_allclose(
            np.asarray(moved)[large], -1e-3 * np.sign(slope)[large], rtol=1e-2
        )


def test_periodic_and_soft_targets():
    online, target = {"w": jnp.array([2.0])}, {"w": jnp.array([0.0])}
    for updates, expected in ((4, 2.0), (5, 0.0)):
        moved = move_target(online, target, jnp.int32(updates), period=4, rate=1.0)
        assert float(moved["w"][0]) == expected
    soft = move_target(online, target, jnp.int32(1), period=1, rate=0.25)
    assert float(soft["w"][0]) == 0.5


def test_schedules_reach_their_ends():
    for schedule, fraction in (("linear", 0.0), ("cosine", 0.1)):
        config = OptimiserConfig(schedule=schedule, final_fraction=fraction, clip_norm=0.0)
        sizes = step_sizes(config)
        assert sizes[0] == pytest.approx(1e-3, rel=1e-4)
        assert sizes[-1] == pytest.approx(1e-3 * fraction, abs=1e-8)


def test_a_warm_up_rises_to_the_schedule_and_then_leaves_it_alone():
    for schedule in ("constant", "linear"):
        plain, warm = (
            step_sizes(OptimiserConfig(schedule=schedule, clip_norm=0.0, warm_up=updates))
            for updates in (0, 4)
        )
        expected = np.array([0.25, 0.5, 0.75, *[1.0] * 8]) * plain
        np.testing.assert_allclose(warm, expected, rtol=1e-4, atol=1e-9)


def step_sizes(config, updates=11):
    """The steps that an optimiser for ten updates makes on a gradient of 1."""
    optimiser = make_optimiser(config, 10)
    state, sizes = optimiser.init(jnp.array(0.0)), []
    for _ in range(updates):
        change, state = optimiser.update(jnp.array(1.0), state)
        sizes.append(-float(change))
    return sizes


def test_clipping_bounds_the_gradient_norm():
    config = OptimiserConfig(clip_norm=1.0)
    optimiser = make_optimiser(config, 1)
    # Adam hides the scale of one step, so look at its first moment
    _, state = optimiser.update({"w": jnp.array([30.0, 40.0])}, optimiser.init({"w": jnp.zeros(2)}))
    moments = [leaf for leaf in jax.tree.leaves(state) if leaf.shape == (2,)]
    np.testing.assert_allclose(moments[0], 0.1 * np.array([0.6, 0.8]), rtol=1e-5)


def test_total_updates_counts_learning_phases():
    config = Config("CartPole").replace({"steps": 3_000, "loop.updates": 2})
    assert total_updates(config) == 4_000


def test_epsilon_greedy_frequencies():
    agent = agent_for()
    state = agent.init(jax.random.key(0))
    observation = jnp.ones((4_000, 4))
    greedy = int(jnp.argmax(agent.q_values(state, observation[0])))
    draws = jax.random.uniform(jax.random.key(1), (4_000, 2))
    actions = np.asarray(agent.act(state, observation, draws, jnp.float32(0.3)))
    counts = np.bincount(actions, minlength=3) / 4_000
    expected = np.full(3, 0.1)
    expected[greedy] = 0.8
    np.testing.assert_allclose(counts, expected, atol=0.03)


def test_reaches_the_optimal_values_of_a_two_state_problem():
    environment, params = make("Probe-TwoState")
    mdp = environment.finite_mdp(params)
    truth = np.asarray(optimal_q(mdp, 0.9))
    observations = environment.observations(params)
    states, actions, branches = mdp.successors.shape
    assert branches == 1
    config = preset(
        "Probe-TwoState",
        "ddqn",
        {"value.discount": 0.9, "value.target_period": 20, "value.loss": "squared",
         "optimiser.learning_rate": 3e-3},
    )  # fmt: skip
    spec = ObservationSpec(observations.shape[1:], str(observations.dtype))
    agent = make_value_agent(config, spec, actions)
    s, a = np.divmod(np.arange(states * actions), actions)
    steps = Transition(
        observation=observations[s][:, None],
        action=jnp.array(a, jnp.int32)[:, None],
        reward=mdp.rewards[s, a],
        next_observation=observations[mdp.successors[s, a, 0]][:, None],
        terminated=mdp.terminated[s, a],
        truncated=jnp.zeros((len(s), 1), bool),
    )
    batch = Segment(steps, jnp.ones((len(s), 1), bool))

    @jax.jit
    def learn(state):
        return jax.lax.fori_loop(0, 3_000, lambda _, x: agent.update(x, batch)[0], state)

    state = learn(agent.init(jax.random.key(0)))
    q = np.asarray(jax.vmap(lambda o: agent.q_values(state, o))(observations))
    live = ~np.asarray(mdp.terminated[..., 0]) | (np.asarray(mdp.start)[:, None] > 0)
    np.testing.assert_allclose(q[live], truth[live], atol=0.05)
