"""Observation -> feature vector. Unbatched; callers vmap."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from gcr_rl.networks.convolution import Convolution

SMALLEST_VARIANCE = 1e-5


def _of_size_one(x: Float[Array, "..."]) -> Float[Array, "..."]:
    """x over the root of the mean of its squares."""
    return x * jax.lax.rsqrt(jnp.mean(x * x) + SMALLEST_VARIANCE)


def rectified(x: Float[Array, "..."], layer_norm: bool) -> Float[Array, "..."]:
    """ReLU; with ``layer_norm`` of x brought to mean 0 and variance 1 over all its entries."""
    if layer_norm:
        x = _of_size_one(x - jnp.mean(x))
    return jax.nn.relu(x)


def centred(layer: eqx.nn.Linear) -> eqx.nn.Linear:
    """x -> W x + b - mean(W x + b), itself linear."""
    assert layer.bias is not None
    weight = layer.weight - jnp.mean(layer.weight, axis=0)
    bias = layer.bias - jnp.mean(layer.bias)
    return eqx.tree_at(lambda at: (at.weight, at.bias), layer, (weight, bias))


class MLPEncoder(eqx.Module):
    """Flatten, then fully connected layers with ReLU after each.

    Where layers are normalised, their weights are centred, once for a whole batch, and only the
    size of each output is left to divide by.
    """

    layers: tuple[eqx.nn.Linear, ...]
    layer_norm: bool = eqx.field(static=True)

    def __init__(
        self, size: int, hidden: tuple[int, ...], layer_norm: bool = False, *, key: PRNGKeyArray
    ):
        keys = jax.random.split(key, len(hidden))
        sizes = (size, *hidden)
        self.layers = tuple(
            eqx.nn.Linear(fan_in, fan_out, key=k)
            for fan_in, fan_out, k in zip(sizes[:-1], sizes[1:], keys, strict=True)
        )
        self.layer_norm = layer_norm

    def __call__(self, observation: Float[Array, "..."]) -> Float[Array, " features"]:
        """f(o)."""
        x = jnp.ravel(observation)
        for layer in self.linear_parts():
            x = self.activation(layer(x))
        return x

    def linear_parts(self) -> tuple[eqx.nn.Linear, ...]:
        """The layers, centred where they are normalised."""
        return tuple(map(centred, self.layers)) if self.layer_norm else self.layers

    def activation(self, x: Float[Array, " width"]) -> Float[Array, " width"]:
        """What follows each of ``linear_parts``."""
        return jax.nn.relu(_of_size_one(x) if self.layer_norm else x)


class CNNEncoder(eqx.Module):
    """3x3 convolutions on [height, width, channels] with ReLU, then an MLP."""

    convolutions: tuple[Convolution, ...]
    mlp: MLPEncoder

    def __init__(
        self,
        shape: tuple[int, int, int],
        channels: tuple[int, ...],
        strides: tuple[int, ...],
        hidden: tuple[int, ...],
        layer_norm: bool = False,
        *,
        key: PRNGKeyArray,
    ):
        mlp_key, *keys = jax.random.split(key, len(channels) + 1)
        height, width, depth = shape
        convolutions = []
        for out, stride, k in zip(channels, strides, keys, strict=True):
            convolutions.append(Convolution(depth, out, 3, stride, padding=1, key=k))
            depth, height, width = out, math.ceil(height / stride), math.ceil(width / stride)
        self.convolutions = tuple(convolutions)
        self.mlp = MLPEncoder(depth * height * width, hidden, layer_norm, key=mlp_key)

    def __call__(
        self, observation: Float[Array, "height width depth"]
    ) -> Float[Array, " features"]:
        """f(o)."""
        x = jnp.moveaxis(observation, -1, 0)
        for convolution in self.convolutions:
            x = jax.nn.relu(convolution(x))
        return self.mlp(x)
