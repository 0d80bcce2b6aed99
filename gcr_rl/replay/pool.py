"""Rewards of one pair of observation and action, pooled over all of its transitions.

Two transitions with the same observation and action are two samples of one element of the
quotient, and a temporal difference asks for E[r | s, a]: the mean of all samples so far is as
right as one of them and varies less. Where no pair is met twice a mean of one is the reward
itself, so that nothing changes.

Pairs are told apart by 64 bits: 12 of them choose a bucket, 32 others are its tag. The first
pair to come keeps a bucket; one that finds it taken keeps its own rewards.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int, PyTree, UInt32

from gcr_rl.types import Segment, Transition

BUCKETS = 4096
"""Pairs that have room: tasks whose states can be named have few."""


class Pool(NamedTuple):
    """Sums and counts by bucket, and whose they are."""

    tag: UInt32[Array, " buckets"]
    total: Float[Array, " buckets"]
    seen: Float[Array, " buckets"]


def init_pool() -> Pool:
    """Nothing seen."""
    return Pool(jnp.zeros(BUCKETS, jnp.uint32), jnp.zeros(BUCKETS), jnp.zeros(BUCKETS))


def noted(pool: Pool, transition: Transition) -> Pool:
    """The pool after one step of every environment, leaves [envs, ...]."""
    bucket, tag = names_of(transition.observation, transition.action)
    free = jnp.where(pool.seen[bucket] == 0, bucket, BUCKETS)
    tags = pool.tag.at[free].max(tag, mode="drop")
    mine = jnp.where(tags[bucket] == tag, bucket, BUCKETS)
    return Pool(
        tags,
        pool.total.at[mine].add(transition.reward, mode="drop"),
        pool.seen.at[mine].add(1.0, mode="drop"),
    )


def pooled(pool: Pool, segments: Segment) -> Segment:
    """The segments, leaves [batch, length, ...], with the mean reward of each step's pair."""
    steps = segments.steps
    bucket, tag = names_of(steps.observation, steps.action)
    known = (pool.tag[bucket] == tag) & (pool.seen[bucket] > 0)
    mean = pool.total[bucket] / jnp.maximum(pool.seen[bucket], 1.0)
    return segments._replace(steps=steps._replace(reward=jnp.where(known, mean, steps.reward)))


def names_of(
    observation: PyTree, action: Int[Array, "*lead"]
) -> tuple[Int[Array, "*lead"], UInt32[Array, "*lead"]]:
    """(bucket, tag) of every pair of observation and action."""
    words = [_words(leaf, action.shape) for leaf in jax.tree.leaves(observation)]
    row = jnp.concatenate([*words, action[..., None].astype(jnp.uint32)], axis=-1)
    row = _mixed(row + jnp.uint32(0x9E3779B9))
    first, second = (_mixed(row @ jnp.asarray(_weights(row.shape[-1], k))) for k in (0, 1))
    return (first % BUCKETS).astype(jnp.int32), second


def _words(leaf: Array, lead: tuple[int, ...]) -> UInt32[Array, "*lead width"]:
    """The numbers of each observation as words; -0.0 and 0.0 are one number."""
    leaf = jnp.asarray(leaf).reshape(*lead, -1)
    if jnp.issubdtype(leaf.dtype, jnp.floating):
        return lax.bitcast_convert_type(leaf.astype(jnp.float32) + 0.0, jnp.uint32)
    return leaf.astype(jnp.uint32)


def _mixed(words: UInt32[Array, "*shape"]) -> UInt32[Array, "*shape"]:
    """A bijection of 32 bits under which sums of near words are not near (Murmur3's end)."""
    words = (words ^ (words >> 16)) * jnp.uint32(0x85EBCA6B)
    words = (words ^ (words >> 13)) * jnp.uint32(0xC2B2AE35)
    return words ^ (words >> 16)


def _weights(count: int, stream: int) -> UInt32[np.ndarray, " count"]:
    """Fixed odd numbers, the same in every run."""
    generator = np.random.default_rng([20_261_116, stream])
    return generator.integers(0, 2**32, count, np.uint32) | np.uint32(1)
