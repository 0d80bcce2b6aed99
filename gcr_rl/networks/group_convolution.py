"""Group convolutions of the square's symmetries (Cohen and Welling 2016, arXiv:1602.07576), and
a network of them for square grids and images with the actions up, down, left, right.

Maps carry the regular representation, [channels, |G|, height, width]; T_k rotates or mirrors
every map and moves map g to place k g.
"""

from dataclasses import dataclass
from functools import lru_cache

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray, Shaped

from gcr_rl.envs import dihedral
from gcr_rl.errors import InputError
from gcr_rl.networks.convolution import convolve
from gcr_rl.networks.equivariant import (
    ActionHead,
    FiniteGroup,
    Lift,
    RegularMLP,
    dihedral_group,
    matched_channels,
    uniform_weights,
)

PADDING = 1


@lru_cache(maxsize=32)
def cell_images(side: int, elements: tuple[int, ...]) -> Int[np.ndarray, "g cells"]:
    """``[g, i]``: the cell whose content T_g puts at cell i of a square of ``side``."""
    cells = np.arange(side * side).reshape(side, side)
    return np.stack([dihedral.transform(element, cells).ravel() for element in elements])


@dataclass(frozen=True)
class SquareSymmetry:
    """A group of rotations and mirror images, by its elements among the eight."""

    elements: tuple[int, ...] = tuple(range(8))

    @property
    def group(self) -> FiniteGroup:
        """Its tables."""
        return _tables(self.elements)

    def kernels(self, weight: Float[Array, "*lead side side"]) -> Float[Array, "g *lead side side"]:
        """T_g of square kernels, for all g."""
        side, lead = weight.shape[-1], weight.shape[:-2]
        flat = weight.reshape(*lead, side * side)[..., cell_images(side, self.elements)]
        return jnp.moveaxis(flat, -2, 0).reshape(len(self.elements), *lead, side, side)


@lru_cache(maxsize=32)
def _tables(elements: tuple[int, ...]) -> FiniteGroup:
    return dihedral_group(elements)


@dataclass(frozen=True)
class PlaneImages:
    """T_g of weights for whole observations, channels last, for all g."""

    symmetry: SquareSymmetry

    def __call__(
        self, weight: Float[Array, "channels side side depth"]
    ) -> Float[Array, "g channels side side depth"]:
        """T_g w."""
        return jnp.moveaxis(self.symmetry.kernels(jnp.moveaxis(weight, -1, 1)), 2, -1)


@dataclass(frozen=True)
class MapImages:
    """T_g of weights for regular maps, for all g: turned, and taken from place g^-1 h."""

    symmetry: SquareSymmetry

    def __call__(
        self, weight: Float[Array, "channels in h side side"]
    ) -> Float[Array, "g channels in h side side"]:
        """T_g w."""
        turned = self.symmetry.kernels(weight)
        return jnp.stack(
            [turned[g][:, :, row] for g, row in enumerate(self.symmetry.group.quotients)]
        )


def fitting_kernel(side: int, stride: int) -> int:
    """The smallest kernel from 3 on that ``stride`` places symmetrically on a padded square.

    Otherwise the last row and column would be left out on one side only, and a mirrored
    input would give other outputs, not mirrored ones.
    """
    return 3 + (side + 2 * PADDING - 3) % stride


class GroupConvolution(eqx.Module):
    """F'[c, g] = sum_{i, h} (T_g w[c, i, g^-1 h]) * F[i, h] + b_c, with * a convolution.

    The first layer, ``lifts``, reads a plain picture: F'[c, g] = sum_i (T_g w[c, i]) * o[i] + b_c.
    """

    weight: Float[Array, "channels in places side side"]
    bias: Float[Array, " channels"]
    symmetry: SquareSymmetry = eqx.field(static=True)
    stride: int = eqx.field(static=True)
    lifts: bool = eqx.field(static=True)

    def __init__(
        self,
        size: int,
        channels: int,
        kernel: int,
        stride: int,
        symmetry: SquareSymmetry,
        *,
        lifts: bool = False,
        key: PRNGKeyArray,
    ):
        weight_key, bias_key = jax.random.split(key)
        places = 1 if lifts else len(symmetry.elements)
        fan_in = size * places * kernel * kernel
        shape = (channels, size, places, kernel, kernel)
        self.weight = uniform_weights(weight_key, shape, fan_in)
        self.bias = uniform_weights(bias_key, (channels,), fan_in)
        self.symmetry, self.stride, self.lifts = symmetry, stride, lifts

    def __call__(
        self, x: Float[Array, "in places height width"]
    ) -> Float[Array, "channels g height width"]:
        """The maps."""
        images = self.symmetry.kernels if self.lifts else MapImages(self.symmetry)
        spread = images(self.weight)
        order, channels, size, places, side, _ = spread.shape
        kernels = spread.swapaxes(0, 1).reshape(channels * order, size * places, side, side)
        maps = convolve(x.reshape(size * places, *x.shape[2:]), kernels, self.stride, PADDING)
        return maps.reshape(channels, order, *maps.shape[1:]) + self.bias[:, None, None, None]


class Flatten(eqx.Module):
    """F'[c, g] = sum_{i, h} (T_g w[c, i, g^-1 h]) . F[i, h] + b_c: maps -> regular features."""

    lift: Lift

    def __init__(
        self, size: int, side: int, channels: int, symmetry: SquareSymmetry, *, key: PRNGKeyArray
    ):
        shape = (size, len(symmetry.elements), side, side)
        self.lift = Lift(shape, channels, MapImages(symmetry), key=key)

    def __call__(self, x: Float[Array, "in g side side"]) -> Float[Array, "channels g"]:
        """The features."""
        return self.lift(x)


class SquareNetwork(eqx.Module):
    """Q(T_g o, relabel[g, a]) = Q(o, a) for square grids and images.

    Group convolutions (none where ``channels`` is empty), a fully connected equivariant layer,
    group-linear layers, a head over the actions; ReLU between them. It keeps positions: no
    average over space is taken.
    """

    convolutions: tuple[GroupConvolution, ...]
    first: Lift | Flatten
    mlp: RegularMLP
    head: ActionHead
    scale: float = eqx.field(static=True)

    def __init__(
        self,
        shape: tuple[int, ...],
        hidden: tuple[int, ...],
        *,
        channels: tuple[int, ...] = (),
        strides: tuple[int, ...] = (),
        symmetry: SquareSymmetry | None = None,
        scale: float = 1.0,
        atoms: int | None = None,
        layer_norm: bool = False,
        key: PRNGKeyArray,
    ):
        symmetry = symmetry or SquareSymmetry()
        if len(shape) != 3 or shape[0] != shape[1]:
            raise InputError("shape", shape, "a square (side, side, channels)")
        convolution_key, first_key, mlp_key, head_key = jax.random.split(key, 4)
        group = symmetry.group
        widths = tuple(matched_channels(width, group) for width in hidden)
        maps = tuple(matched_channels(width, group) for width in channels)
        side, _, depth = shape
        self.convolutions, side, depth = _convolutions(
            side, depth, maps, strides, symmetry, key=convolution_key
        )
        self.first = (
            Flatten(depth, side, widths[0], symmetry, key=first_key)
            if maps
            else Lift(shape, widths[0], PlaneImages(symmetry), key=first_key)
        )
        self.mlp = RegularMLP(widths[0], widths[1:], group, layer_norm, key=mlp_key)
        self.head = ActionHead(widths[-1], group, atoms, key=head_key)
        self.scale = scale

    def features(self, observation: Shaped[Array, "side side depth"]) -> Float[Array, " features"]:
        """The regular features that the head reads, flat."""
        return self._regular(observation).ravel()

    def _regular(self, observation: Shaped[Array, "side side depth"]) -> Float[Array, "channels g"]:
        x = observation.astype(jnp.float32) * self.scale
        if self.convolutions:
            x = jnp.moveaxis(x, -1, 0)[:, None]
        for convolution in self.convolutions:
            x = jax.nn.relu(convolution(x))
        return self.mlp(self.first(x))

    def __call__(
        self, observation: Shaped[Array, "side side depth"]
    ) -> Float[Array, "actions *atoms"]:
        """Q(o, .) or its logits."""
        return self.head(self._regular(observation))


def _convolutions(
    side: int,
    depth: int,
    maps: tuple[int, ...],
    strides: tuple[int, ...],
    symmetry: SquareSymmetry,
    *,
    key: PRNGKeyArray,
) -> tuple[tuple[GroupConvolution, ...], int, int]:
    """The convolutions, and the side and the channels of what leaves them."""
    layers = []
    keys = jax.random.split(key, max(len(maps), 1))
    for number, (out, stride) in enumerate(zip(maps, strides, strict=True)):
        kernel = fitting_kernel(side, stride)
        layers.append(
            GroupConvolution(
                depth, out, kernel, stride, symmetry, lifts=number == 0, key=keys[number]
            )
        )
        depth, side = out, (side + 2 * PADDING - kernel) // stride + 1
    return tuple(layers), side, depth
