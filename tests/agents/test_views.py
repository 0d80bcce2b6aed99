"""Augmentation and contrast on the value agent: which observation is seen where."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gcr_rl.agents import make_value_agent
from gcr_rl.agents.symmetric import without_fold
from gcr_rl.augment import make_augmentation
from gcr_rl.config import Config
from gcr_rl.errors import InputError
from gcr_rl.methods import METHODS
from gcr_rl.networks import ObservationSpec
from gcr_rl.sections import AugmentConfig
from gcr_rl.symmetry import Vocabulary, from_elements
from gcr_rl.types import Segment, Transition

SHAPE, ACTIONS, SIZE = (5, 5, 2), 4, 16
VOCABULARY = Vocabulary.for_space(type("Space", (), {"shape": SHAPE, "low": 0}))[-1]


def agent_for(method, shape=SHAPE, **overrides):
    config = Config("mine", method).replace(METHODS[method].overrides)
    config = config.replace({"network.hidden": (16,), "value.loss": "squared", **overrides})
    vocabulary = VOCABULARY if shape == SHAPE else None
    return make_value_agent(
        config, ObservationSpec(shape, "float32"), ACTIONS, vocabulary=vocabulary
    )


def batch_of(key, shape=SHAPE, length=1):
    keys = jax.random.split(key, 4)
    steps = Transition(
        observation=jax.random.normal(keys[0], (SIZE, length, *shape)),
        action=jax.random.randint(keys[1], (SIZE, length), 0, ACTIONS),
        reward=jax.random.normal(keys[2], (SIZE, length)),
        next_observation=jax.random.normal(keys[3], (SIZE, length, *shape)),
        terminated=jnp.zeros((SIZE, length), bool),
        truncated=jnp.zeros((SIZE, length), bool),
    )
    return Segment(steps, jnp.ones((SIZE, length), bool))


def words_for(agent, seed=0):
    return jax.random.bits(jax.random.key(seed), (agent.words_needed(SIZE),), jnp.uint32)


@pytest.mark.parametrize(("shape", "method"), [(SHAPE, "rad"), ((4,), "rad"), ((4,), "drq-v2")])
def test_both_branches_of_the_loss_see_augmented_observations(shape, method):
    agent = agent_for(method, shape, **{"value.n_step": 1})
    state, batch = agent.init(jax.random.key(0)), batch_of(jax.random.key(1), shape)
    state = state._replace(target=agent.init(jax.random.key(9)).params)
    words = words_for(agent)
    dice, transform = agent.objective.dice(words, SIZE), agent.objective.augmentation
    first = jax.tree.map(lambda leaf: leaf[:, 0], batch.steps)
    now = transform(dice.views[0], first.observation)
    following = transform(dice.views[1], first.next_observation)
    assert float(jnp.abs(now - first.observation).max()) > 0.0
    seen = first._replace(observation=now, next_observation=following)
    by_hand = Segment(jax.tree.map(lambda leaf: leaf[:, None], seen), batch.mask)
    update = jax.jit(agent.update)
    _, expected = update(state, by_hand)  # no words: nothing random
    _, found = update(state, batch, words)
    assert found["loss"] == pytest.approx(float(expected["loss"]), rel=1e-5)
    _, plain = update(state, batch)
    assert plain["loss"] != pytest.approx(float(expected["loss"]), rel=1e-3)


def test_drq_shifts_pictures_by_fractions_of_a_pixel():
    transform = make_augmentation(AugmentConfig(images="shift", margin=2), SHAPE)
    ramp = jnp.broadcast_to(jnp.arange(5.0)[None, :, None, None], (SIZE, *SHAPE))
    middle = np.asarray(transform(jax.random.key(0), ramp))[:, 2, 2, 0]
    assert (np.abs(middle - np.round(middle)) > 1e-3).mean() > 0.8
    assert (np.abs(middle - 2.0) <= 2.0).all()


def test_curl_leaves_temporal_differences_alone_and_moves_its_slow_encoder():
    agent, base = agent_for("curl"), agent_for("ddqn")
    state, batch = agent.init(jax.random.key(0)), batch_of(jax.random.key(1))
    plain = base.init(jax.random.key(0))
    for a, b in zip(jax.tree.leaves(state.params.network), jax.tree.leaves(plain.params),
                    strict=True):  # fmt: skip
        np.testing.assert_array_equal(a, b)
    after, metrics = jax.jit(agent.update)(state, batch, words_for(agent))
    _, expected = jax.jit(base.update)(plain, batch)
    assert metrics["td_loss"] == pytest.approx(float(expected["loss"]), rel=1e-5)
    assert metrics["loss"] == pytest.approx(
        float(metrics["td_loss"] + metrics["contrast_loss"]), rel=1e-5
    )
    rate = agent.objective.config.contrast.rate
    moved = 0.0
    for old, new, online in zip(
        jax.tree.leaves(state.slow), jax.tree.leaves(after.slow),
        jax.tree.leaves((after.params.network, after.params.contrast.projection)), strict=True,
    ):  # fmt: skip
        np.testing.assert_allclose(new, old + rate * (online - old), atol=1e-7)
        moved = max(moved, float(jnp.abs(new - old).max()))
    assert moved > 0.0


def test_the_contrast_learns_to_tell_observations_apart():
    agent = agent_for("curl", (4,), **{"optimiser.learning_rate": 3e-3, "contrast.rate": 0.05})
    state, batch = agent.init(jax.random.key(0)), batch_of(jax.random.key(1), (4,))
    update = jax.jit(agent.update)
    losses = []
    for i in range(150):
        state, metrics = update(state, batch, words_for(agent, i))
        losses.append(float(metrics["contrast_loss"]))
    assert losses[0] > 0.8 * np.log(SIZE) and np.mean(losses[-10:]) < 0.5 * losses[0]


def test_symmetry_and_bounds_go_on_top_of_an_augmented_base():
    agent = agent_for(
        "rad",
        **{"symmetry.family": "grounded", "order.evidence": "returns", "order.route": "hard",
           "order.horizons": (3,)},
    )  # fmt: skip
    relabel = np.broadcast_to(np.arange(ACTIONS, dtype=np.int32), (VOCABULARY.size, ACTIONS))
    group = without_fold(from_elements(VOCABULARY, relabel))
    state = agent.init(jax.random.key(0))._replace(group=group)
    level = agent.level(state)
    batch = batch_of(jax.random.key(1), length=agent.segment_length)
    update = jax.jit(agent.update, static_argnums=4)
    after, metrics = update(state, batch, words_for(agent), 0, level)
    assert np.isfinite(float(metrics["loss"])) and metrics["order_violation_target"] <= 1e-5
    observation = jax.random.normal(jax.random.key(3), SHAPE)
    images = jnp.stack([VOCABULARY.apply(g, observation) for g in range(8)])
    values = jax.jit(jax.vmap(lambda o: agent.q_values(after, o, level)))(images)
    np.testing.assert_allclose(values, np.stack([values[0]] * 8), atol=1e-5)


@pytest.mark.parametrize(
    "kind", ["translate", "crop", "shift", "flip", "mirror", "rotate", "cutout"]
)
def test_every_kind_of_picture_keeps_its_shape_and_changes(kind):
    images = jax.random.uniform(jax.random.key(0), (SIZE, *SHAPE)) + 1.0
    transform = make_augmentation(AugmentConfig(images=kind, vectors="noise"), SHAPE)
    found = transform(jax.random.key(1), images)
    assert found.shape == images.shape and float(jnp.abs(found - images).max()) > 0.1


@pytest.mark.parametrize(
    ("config", "shape", "field"),
    [
        (AugmentConfig(images="flip"), (4,), "augment.images"),
        (AugmentConfig(vectors="noise"), SHAPE, "augment.vectors"),
        (AugmentConfig(images="rotate"), (4, 5, 2), "augment.images"),
        (AugmentConfig(images="flip"), (4, 5), "augment.images"),
        (AugmentConfig(images="cutout", largest_cut=6), SHAPE, "augment.largest_cut"),
    ],
)
def test_what_does_not_fit_the_observations_is_refused(config, shape, field):
    with pytest.raises(InputError, match=field):
        make_augmentation(config, shape)
    assert make_augmentation(AugmentConfig(), shape) is None
