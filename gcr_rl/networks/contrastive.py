"""CURL's parts (Laskin et al. 2020, arXiv:2004.04136): a projection with a bilinear product,
and the slow copy that encodes the keys. The loss on its logits is ``distribution.info_nce``.
"""

from typing import TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

NetworkT = TypeVar("NetworkT")


class Projection(eqx.Module):
    """Features -> code: linear, then normalised to mean 0 and variance 1."""

    layer: eqx.nn.Linear
    norm: eqx.nn.LayerNorm

    def __init__(self, size: int, code: int, *, key: PRNGKeyArray):
        self.layer = eqx.nn.Linear(size, code, key=key)
        self.norm = eqx.nn.LayerNorm(code)

    def __call__(self, features: Float[Array, " features"]) -> Float[Array, " code"]:
        """The code of one observation's features."""
        return self.norm(self.layer(features))


class Contrast(eqx.Module):
    """What CURL learns beside the encoder: a projection and the matrix W of the product."""

    projection: Projection
    product: Float[Array, "code code"]

    def __init__(self, size: int, code: int = 128, *, key: PRNGKeyArray):
        projection_key, product_key = jax.random.split(key)
        self.projection = Projection(size, code, key=projection_key)
        self.product = jax.random.uniform(product_key, (code, code)) / code


def bilinear_logits(
    queries: Float[Array, "batch code"],
    keys: Float[Array, "batch code"],
    product: Float[Array, "code code"],
) -> Float[Array, "batch batch"]:
    """q_i^T W k_j; no gradient reaches the keys."""
    return queries @ product @ jax.lax.stop_gradient(keys).T


def momentum_step(online: NetworkT, slow: NetworkT, rate: float | Array) -> NetworkT:
    """slow + rate (online - slow), array by array: the key encoder's step after an update."""

    def step(new: Array, old: Array) -> Array:
        return old + rate * (new - old) if eqx.is_inexact_array(old) else old

    return jax.tree.map(step, online, slow)


def contrast_logits(
    contrast: Contrast,
    slow: Projection,
    query_features: Float[Array, "batch features"],
    key_features: Float[Array, "batch features"],
) -> Float[Array, "batch batch"]:
    """The logits of a batch: queries by the online projection, keys by the slow one."""
    queries = jax.vmap(contrast.projection)(query_features)
    keys = jax.vmap(slow)(jnp.asarray(key_features))
    return bilinear_logits(queries, keys, contrast.product)
