"""Random segments of observations of four numbers, three actions."""

import jax
import jax.numpy as jnp

from gcr_rl.types import Segment, Transition


def batch_of(key, size=16, length=1):
    keys = jax.random.split(key, 4)
    steps = Transition(
        observation=jax.random.normal(keys[0], (size, length, 4)),
        action=jax.random.randint(keys[1], (size, length), 0, 3),
        reward=jax.random.normal(keys[2], (size, length)),
        next_observation=jax.random.normal(keys[3], (size, length, 4)),
        terminated=jnp.zeros((size, length), bool).at[0].set(True),
        truncated=jnp.zeros((size, length), bool),
    )
    return Segment(steps, jnp.ones((size, length), bool))
