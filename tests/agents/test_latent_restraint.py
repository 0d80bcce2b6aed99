"""The latent bank stays near orthogonal matrices at any learning rate."""

import jax
import jax.numpy as jnp
import numpy as np

from gcr_rl.agents.latent import Latent
from gcr_rl.config import SymmetryConfig

FEATURES, ACTIONS, ELEMENTS, RATE = 64, 3, 4, 0.02


def singular_values_after(updates, restrained):
    """Of all transforms, while Adam pushes every entry the same way by the learning rate."""
    holder = Latent(SymmetryConfig(family="latent", elements=ELEMENTS), FEATURES, ACTIONS)
    params = holder.init((), jax.random.key(0))
    push = jax.tree.map(lambda leaf: jnp.full_like(leaf, RATE), params)
    step = holder.restrained(push, RATE) if restrained else push
    retracted = jax.jit(holder.retracted)
    for clock in range(updates):
        params = jax.tree.map(jnp.add, params, step)
        params = retracted(params, jnp.int32(clock))
    return np.linalg.svd(np.nan_to_num(np.asarray(params.bank.transforms, np.float64), nan=1e9))[1]


def test_transforms_stay_near_orthogonal_under_the_largest_steps_adam_takes():
    values = singular_values_after(100, restrained=True)
    assert values.min() > 0.4 and values.max() < 1.6


def test_without_restraint_they_would_diverge():
    assert singular_values_after(100, restrained=False).max() > 1e3


def test_logits_and_small_rates_are_left_alone():
    holder = Latent(SymmetryConfig(family="latent", elements=ELEMENTS), FEATURES, ACTIONS)
    params = holder.init((), jax.random.key(1))
    small = holder.restrained(params, 1e-4)
    assert (small.bank.transforms == params.bank.transforms).all()
    large = holder.restrained(params, RATE)
    assert (large.bank.logits == params.bank.logits).all()
    assert (large.bank.transforms != params.bank.transforms).any()
