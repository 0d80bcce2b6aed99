"""Starts with partners: their bounds are those with bootstraps of their own."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gcr_rl.agents import make_value_agent
from gcr_rl.agents.noise import Noise
from gcr_rl.agents.objective import Dice
from gcr_rl.agents.pairs import with_partners
from gcr_rl.config import Config
from gcr_rl.errors import InputError
from gcr_rl.losses import return_bound
from gcr_rl.methods import METHODS
from gcr_rl.networks import ObservationSpec
from gcr_rl.presets import preset
from gcr_rl.replay.uniform import same_episode
from gcr_rl.types import Segment, Transition

LENGTH, SIZE = 7, 32
NOISE = Noise(*(jnp.float32(value) for value in (0.25, 0.1, 0.5, 1.0, 1.0)))


def agent_for(method, **overrides):
    config = Config("mine", method).replace(METHODS[method].overrides)
    config = config.replace(
        {"network.hidden": (16,), "symmetry.family": "none", "order.horizons": (LENGTH, 4, 2)}
        | {"value.loss": "squared", **overrides}
    )
    return make_value_agent(config, ObservationSpec((4,), "float32"), num_actions=3)


def walk(key):
    """Segments of consecutive steps, some of which end, one way or the other."""
    keys = jax.random.split(key, 4)
    seen = jax.random.normal(keys[0], (SIZE, LENGTH + 1, 4))
    ends = jax.random.uniform(keys[3], (SIZE, LENGTH))
    terminated, truncated = ends < 0.1, (ends > 0.1) & (ends < 0.2)
    steps = Transition(
        observation=seen[:, :-1],
        action=jax.random.randint(keys[1], (SIZE, LENGTH), 0, 3),
        reward=jax.random.normal(keys[2], (SIZE, LENGTH)),
        next_observation=seen[:, 1:],
        terminated=terminated,
        truncated=truncated,
    )
    return Segment(steps, same_episode(terminated | truncated))


@pytest.mark.parametrize(("n_step", "clock"), [(1, 0), (2, 1), (2, 2)])
def test_bounds_are_those_with_bootstraps_of_their_own(n_step, clock):
    agent = agent_for("logic-only", **{"value.n_step": n_step})
    objective, state = agent.objective, agent.init(jax.random.key(0))
    known, segments = state.known._replace(noise=NOISE), walk(jax.random.key(1))
    assert not segments.mask.all()
    expected = objective.bounds(state.params, known, 1, segments, clock)
    horizon = jnp.int32((LENGTH, 4, 2)[clock])
    discount = objective.config.value.discount
    both, way = with_partners(segments, horizon, n_step, discount)
    target, _ = objective._targets(state.params, known, 1, both, Dice())
    z = objective.config.order.noise_z
    found = return_bound(
        way.total, way.discount, target.goal[SIZE:], way.steps, NOISE.variance, NOISE.surprise, z
    )
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_a_partner_is_a_later_step_of_the_same_episode():
    segments = walk(jax.random.key(2))
    both, way = with_partners(segments, jnp.int32(LENGTH), 2, 0.9)
    length = segments.mask.sum(axis=1)
    later = np.minimum(LENGTH - 2, length - 1)
    for i, (start, n) in enumerate(zip(later, length, strict=True)):
        np.testing.assert_array_equal(
            both.steps.observation[SIZE + i, 0], segments.steps.observation[i, start]
        )
        earned = sum(0.9**k * segments.steps.reward[i, k] for k in range(int(start)))
        assert float(way.total[i]) == pytest.approx(float(earned), abs=1e-5)
        assert int(way.steps[i]) == min(int(n), int(start) + 2)
    np.testing.assert_array_equal(both.mask[:SIZE], segments.mask[:, :2])


@pytest.mark.parametrize("method", ["logic-only", "gcr-soft", "gcr-rainbow"])
def test_an_update_bounds_the_starts_and_reports_their_errors_alone(method):
    settings = {"order.pairs": True, "value.n_step": 1, "order.coefficient": 1.0}
    agent = agent_for(method, **settings)
    assert agent.segments_for(2 * SIZE) == SIZE
    state, segments = agent.init(jax.random.key(0)), walk(jax.random.key(3))
    # A reward that comes late: only bounds see it.
    late = jnp.zeros((SIZE, LENGTH)).at[:, 1].set(50.0)
    segments = segments._replace(
        steps=segments.steps._replace(reward=late), mask=jnp.ones((SIZE, LENGTH), bool)
    )
    words = jnp.zeros(agent.words_needed(2 * SIZE), jnp.uint32)
    weight = jnp.linspace(0.5, 1.0, SIZE)
    learn = jax.jit(agent.learn, static_argnames="level")
    new, metrics, error = learn(state, segments, words, 0, 1, weight)
    assert error.shape == (SIZE,)
    assert metrics["order_coverage"] > 0.5 and metrics["edges_proposed"] == SIZE
    assert metrics["importance"] == pytest.approx(0.75, abs=1e-5)
    assert new.updates == 1 and np.isfinite(metrics["loss"])


@pytest.mark.parametrize(
    ("method", "overrides"), [("ddqn", {}), ("gcr-hard", {"replay.batch_size": 33})]
)
def test_pairs_need_bounds_and_an_even_batch(method, overrides):
    with pytest.raises(InputError, match=r"order\.pairs"):
        preset("CartPole", method, {"order.pairs": True, **overrides})
