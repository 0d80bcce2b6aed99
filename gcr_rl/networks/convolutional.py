"""Convolutional encoders of the literature, [height, width, channels] -> features. Unbatched.

``nature``: Mnih et al. 2015. ``impala``: the deep one of Espeholt et al. 2018
(arXiv:1802.01561). ``minatar``: Young and Tian 2019 (arXiv:1903.03176).
"""

from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from gcr_rl.errors import InputError
from gcr_rl.networks.convolution import Convolution
from gcr_rl.networks.encoders import MLPEncoder

Shape = tuple[int, ...]


def _channels_first(observation: Float[Array, "height width depth"]) -> Float[Array, "c h w"]:
    return jnp.moveaxis(observation, -1, 0)


def _need_image(shape: Shape, smallest: int) -> None:
    if len(shape) != 3 or min(shape[:2]) < smallest:
        raise InputError(
            "shape", shape, f"(height, width, channels) of at least {smallest}x{smallest}"
        )


class NatureCNN(eqx.Module):
    """8x8/4, 4x4/2 and 3x3/1 convolutions of 32, 64, 64 channels, no padding; then an MLP."""

    convolutions: tuple[Convolution, ...]
    mlp: MLPEncoder

    def __init__(
        self,
        shape: Shape,
        hidden: tuple[int, ...] = (512,),
        layer_norm: bool = False,
        *,
        key: PRNGKeyArray,
    ):
        _need_image(shape, 36)
        mlp_key, *keys = jax.random.split(key, 4)
        height, width, depth = shape
        convolutions = []
        for (out, size, stride), k in zip(((32, 8, 4), (64, 4, 2), (64, 3, 1)), keys, strict=True):
            convolutions.append(Convolution(depth, out, size, stride, key=k))
            depth = out
            height, width = (height - size) // stride + 1, (width - size) // stride + 1
        self.convolutions = tuple(convolutions)
        self.mlp = MLPEncoder(depth * height * width, hidden, layer_norm, key=mlp_key)

    def __call__(
        self, observation: Float[Array, "height width depth"]
    ) -> Float[Array, " features"]:
        """f(o)."""
        x = _channels_first(observation)
        for convolution in self.convolutions:
            x = jax.nn.relu(convolution(x))
        return self.mlp(x)


class MinAtarCNN(eqx.Module):
    """One 3x3 convolution without padding, then an MLP."""

    convolution: Convolution
    mlp: MLPEncoder

    def __init__(
        self,
        shape: Shape,
        hidden: tuple[int, ...] = (128,),
        channels: int = 16,
        layer_norm: bool = False,
        *,
        key: PRNGKeyArray,
    ):
        _need_image(shape, 3)
        convolution_key, mlp_key = jax.random.split(key)
        self.convolution = Convolution(shape[2], channels, 3, key=convolution_key)
        size = channels * (shape[0] - 2) * (shape[1] - 2)
        self.mlp = MLPEncoder(size, hidden, layer_norm, key=mlp_key)

    def __call__(
        self, observation: Float[Array, "height width depth"]
    ) -> Float[Array, " features"]:
        """f(o)."""
        return self.mlp(jax.nn.relu(self.convolution(_channels_first(observation))))


class Residual(eqx.Module):
    """x + conv(relu(conv(relu(x)))), 3x3."""

    first: Convolution
    second: Convolution

    def __init__(self, channels: int, *, key: PRNGKeyArray):
        first_key, second_key = jax.random.split(key)
        self.first = Convolution(channels, channels, 3, padding=1, key=first_key)
        self.second = Convolution(channels, channels, 3, padding=1, key=second_key)

    def __call__(self, x: Float[Array, "c h w"]) -> Float[Array, "c h w"]:
        """The block's output."""
        return x + self.second(jax.nn.relu(self.first(jax.nn.relu(x))))


def halved(x: Float[Array, "c h w"]) -> Float[Array, "c half half"]:
    """Max-pooling over 3x3 with stride 2, to ceil(h / 2) x ceil(w / 2)."""
    return jax.lax.reduce_window(
        x, -jnp.inf, jax.lax.max, (1, 3, 3), (1, 2, 2), ((0, 0), (1, 1), (1, 1))
    )


class ImpalaBlock(eqx.Module):
    """3x3 convolution, 3x3 max-pooling with stride 2, two residual blocks."""

    convolution: Convolution
    residuals: tuple[Residual, Residual]

    def __init__(self, depth: int, channels: int, *, key: PRNGKeyArray):
        keys = jax.random.split(key, 3)
        self.convolution = Convolution(depth, channels, 3, padding=1, key=keys[0])
        self.residuals = (Residual(channels, key=keys[1]), Residual(channels, key=keys[2]))

    def __call__(self, x: Float[Array, "c h w"]) -> Float[Array, "channels half half"]:
        """The block's output, ceil(h / 2) x ceil(w / 2)."""
        x = halved(self.convolution(x))
        for residual in self.residuals:
            x = residual(x)
        return x


class ImpalaCNN(eqx.Module):
    """IMPALA blocks, ReLU, then an MLP."""

    blocks: tuple[ImpalaBlock, ...]
    mlp: MLPEncoder

    def __init__(
        self,
        shape: Shape,
        hidden: tuple[int, ...] = (256,),
        channels: tuple[int, ...] = (16, 32, 32),
        layer_norm: bool = False,
        *,
        key: PRNGKeyArray,
    ):
        _need_image(shape, 1)
        mlp_key, *keys = jax.random.split(key, len(channels) + 1)
        height, width, depth = shape
        blocks = []
        for out, k in zip(channels, keys, strict=True):
            blocks.append(ImpalaBlock(depth, out, key=k))
            depth, height, width = out, -(-height // 2), -(-width // 2)
        self.blocks = tuple(blocks)
        self.mlp = MLPEncoder(depth * height * width, hidden, layer_norm, key=mlp_key)

    def __call__(
        self, observation: Float[Array, "height width depth"]
    ) -> Float[Array, " features"]:
        """f(o)."""
        x = _channels_first(observation)
        for block in self.blocks:
            x = block(x)
        return self.mlp(jax.nn.relu(x))


Kind = Literal["nature", "impala", "minatar"]


def make_convolutional(
    kind: Kind,
    shape: Shape,
    hidden: tuple[int, ...],
    layer_norm: bool = False,
    *,
    key: PRNGKeyArray,
) -> NatureCNN | ImpalaCNN | MinAtarCNN:
    """The encoder of that name, with fully connected layers of widths ``hidden`` at its end."""
    if kind == "nature":
        return NatureCNN(shape, hidden, layer_norm=layer_norm, key=key)
    if kind == "impala":
        return ImpalaCNN(shape, hidden, layer_norm=layer_norm, key=key)
    if kind == "minatar":
        return MinAtarCNN(shape, hidden, layer_norm=layer_norm, key=key)
    raise InputError("encoder", kind, "nature, impala or minatar")
