"""Convolutions as products of matrices.

Seeds train under one vmap, each with its own kernels. XLA makes a grouped convolution of that and
has no fast code for it, neither forwards nor backwards; windows times a matrix become one batched
product. ``benchmarks/convolution.py`` measures both.
"""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray


def _blocks(
    x: Float[Array, "height width depth"], side: int
) -> Float[Array, "rows columns features"]:
    """Squares of ``side`` x ``side`` cells, each as one cell of side² x depth features."""
    if side == 1:
        return x
    height, width, depth = x.shape
    x = x.reshape(height // side, side, width // side, side, depth)
    return jnp.swapaxes(x, 1, 2).reshape(height // side, width // side, side * side * depth)


def convolve(
    x: Float[Array, "depth height width"],
    kernels: Float[Array, "channels depth size size"],
    stride: int = 1,
    padding: int = 0,
) -> Float[Array, "channels rows columns"]:
    """y[c, i, j] = sum over d, a, b of kernels[c, d, a, b] x[d, i stride + a, j stride + b].

    Where the stride divides the kernel's size, whole blocks of stride x stride cells are moved
    about instead of single ones: an 8x8 kernel with stride 4 takes four slices and not 64.
    """
    channels, depth, size, _ = kernels.shape
    side = stride if size % stride == 0 else 1
    step, reach = stride // side, size // side
    x = jnp.pad(jnp.moveaxis(x, 0, -1), ((padding, padding), (padding, padding), (0, 0)))
    rows, columns = ((length - size) // stride + 1 for length in x.shape[:2])
    used = tuple((count - 1) * stride + size for count in (rows, columns))
    cells = _blocks(x[: used[0], : used[1]], side)
    windows = jnp.concatenate(
        [
            cells[a : a + (rows - 1) * step + 1 : step, b : b + (columns - 1) * step + 1 : step]
            for a in range(reach)
            for b in range(reach)
        ],
        axis=-1,
    )
    matrix = kernels.reshape(channels, depth, reach, side, reach, side)
    matrix = jnp.transpose(matrix, (2, 4, 3, 5, 1, 0)).reshape(-1, channels)
    product = windows.reshape(rows * columns, -1) @ matrix
    return jnp.moveaxis(product, -1, 0).reshape(channels, rows, columns)


class Convolution(eqx.Module):
    """A layer with the weights of Equinox's ``Conv2d``, and its bias, through ``convolve``."""

    weight: Float[Array, "channels depth size size"]
    bias: Float[Array, "channels 1 1"]
    stride: int = eqx.field(static=True)
    padding: int = eqx.field(static=True)

    def __init__(
        self,
        depth: int,
        channels: int,
        size: int,
        stride: int = 1,
        padding: int = 0,
        *,
        key: PRNGKeyArray,
    ):
        layer = eqx.nn.Conv2d(depth, channels, size, key=key)
        assert layer.bias is not None
        self.weight, self.bias = layer.weight, layer.bias
        self.stride, self.padding = stride, padding

    def __call__(
        self, x: Float[Array, "depth height width"]
    ) -> Float[Array, "channels rows columns"]:
        """The maps."""
        return convolve(x, self.weight, self.stride, self.padding) + self.bias
