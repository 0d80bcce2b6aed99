"""Lists of observation transforms as data: block gathers with signs, and plain functions.

A transform is used by its place in the list, which may be traced. Every list can also score
its images by an integer hash: the sums wrap around and so do not depend on their order, and
equal images have exactly equal scores. The canonical member of an orbit is the image with
the largest score.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.custom_batching import custom_vmap
from jaxtyping import Array, Float, Int, Shaped

from gcr_rl.errors import InputError

Observation = Shaped[Array, "..."] | Shaped[np.ndarray, "..."]
Element = Int[Array, ""] | Int[np.ndarray, ""] | int
_HASH_SEED = 20_240_607
IN_BOUNDS: dict[str, Any] = {"mode": "promise_in_bounds", "wrap_negative_indices": False}
"""Options of a gather whose indices need no care: the care costs more than the gather."""


@dataclass(frozen=True)
class Layout:
    """An observation of ``shape`` cut into equal blocks of shape ``block`` (same rank)."""

    shape: tuple[int, ...]
    block: tuple[int, ...]

    def __post_init__(self) -> None:
        if len(self.shape) != len(self.block) or any(
            b < 1 or n % b for n, b in zip(self.shape, self.block, strict=False)
        ):
            raise InputError("block", self.block, f"sizes that divide the shape {self.shape}")

    @property
    def grid(self) -> tuple[int, ...]:
        """Blocks along each axis."""
        return tuple(n // b for n, b in zip(self.shape, self.block, strict=True))

    @property
    def num_blocks(self) -> int:
        """Blocks in all."""
        return math.prod(self.grid)

    @property
    def is_reshape(self) -> bool:
        """Whether the blocks are contiguous, so that cutting is only a reshape."""
        cut = next((i for i, b in enumerate(self.block) if b > 1), len(self.shape))
        return self.block[cut + 1 :] == self.shape[cut + 1 :]

    def split(self, observation: Observation) -> Shaped[Array, "blocks width"]:
        """The observation as one row per block."""
        return self._cut(jnp.asarray(observation), ())

    def split_all(
        self, observations: Shaped[np.ndarray, "n ..."]
    ) -> Shaped[np.ndarray, "n blocks width"]:
        """Many observations on the host, each as one row per block."""
        return self._cut(observations, observations.shape[:1])

    def _cut(self, observations: Any, lead: tuple[int, ...]) -> Any:
        if not self.is_reshape:
            pairs = [n for pair in zip(self.grid, self.block, strict=True) for n in pair]
            axes = (*range(0, len(pairs), 2), *range(1, len(pairs), 2))
            kept, moved = range(len(lead)), (axis + len(lead) for axis in axes)
            observations = observations.reshape(*lead, *pairs).transpose(*kept, *moved)
        return observations.reshape(*lead, self.num_blocks, math.prod(self.block))

    def join(self, rows: Shaped[Array, "blocks width"]) -> Shaped[Array, "..."]:
        """The inverse of :meth:`split`."""
        if self.is_reshape:
            return rows.reshape(self.shape)
        rank = len(self.shape)
        axes = [
            axis for pair in zip(range(rank), range(rank, 2 * rank), strict=True) for axis in pair
        ]
        return rows.reshape(self.grid + self.block).transpose(axes).reshape(self.shape)


class BlockGather(eqx.Module):
    """(T_g o)[i] = sign[g, i] * o[index[g, i]] over blocks i; ``sign`` None means all +1."""

    index: Int[Array, "g blocks"]
    inverse: Int[Array, "g blocks"]
    sign: Int[Array, "g blocks"] | None
    layout: Layout = eqx.field(static=True)

    @property
    def size(self) -> int:
        """Transforms in the list."""
        return self.index.shape[0]

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of an observation."""
        return self.layout.shape

    def at(self, element: Element, observation: Observation) -> Observation:
        """T_element o."""
        rows = _gather_rows(self.layout.split(observation), self.index, element)
        if self.sign is not None:
            rows = rows * self.sign[element][:, None].astype(rows.dtype)
        return self.layout.join(rows)

    def all(self, observation: Observation) -> Shaped[Array, "g ..."]:
        """All images, [size, *shape]."""
        rows = self.layout.split(observation).at[self.index].get(**IN_BOUNDS)
        if self.sign is not None:
            rows = rows * self.sign[..., None].astype(rows.dtype)
        return jax.vmap(self.layout.join)(rows)

    def take(self, elements: Int[Array, " n"]) -> "BlockGather":
        """The sub-list ``elements``, in their order."""
        sign = None if self.sign is None else self.sign[elements]
        return BlockGather(self.index[elements], self.inverse[elements], sign, self.layout)

    def scores(self, observation: Observation) -> Int[Array, " g"]:
        """hash(T_g o) for every g as one integer product: the weights move, not the pixels.

        hash(o) = sum_i weight_i * (sum_c content_c * word(o[i, c])) modulo 2^32.
        """
        rows = self.layout.split(observation)
        weights = jnp.asarray(hash_weights(rows.shape[:1]))[self.inverse]
        if self.sign is None:
            return weights @ hash_rows(rows)
        sign = jnp.take_along_axis(self.sign, self.inverse, axis=1)
        return jnp.sum(weights * jnp.where(sign > 0, hash_rows(rows), hash_rows(-rows)), axis=1)


def _gather_rows(
    rows: Shaped[Array, "blocks width"], index: Int[Array, "g blocks"], element: Element
) -> Shaped[Array, "blocks width"]:
    """rows[index[element]]; number by number for integers, which is the fast way in a batch."""
    if jnp.issubdtype(rows.dtype, jnp.floating):
        return rows.at[index[element]].get(**IN_BOUNDS)
    width = rows.shape[1]
    numbers = (index[..., None] * width + jnp.arange(width)).reshape(len(index), -1)
    return _gather_integers(rows.reshape(-1), numbers.at[element].get(**IN_BOUNDS)).reshape(
        rows.shape
    )


@custom_vmap
def _gather_integers(values: Shaped[Array, " n"], index: Int[Array, " m"]) -> Shaped[Array, " m"]:
    """values[index]. A batch is gathered from one flat array: vmap's own rule is slower on CPU.

    For integers only: they have no gradient, which a custom batching rule could not carry.
    """
    return values.at[index].get(**IN_BOUNDS)


@_gather_integers.def_vmap
def _gather_integer_batch(
    axis_size: int, in_batched: list[bool], values: Array, index: Array
) -> tuple[Array, bool]:
    if not in_batched[0]:
        return values.at[index].get(**IN_BOUNDS), True
    start = values.shape[1] * jnp.arange(axis_size, dtype=index.dtype)[:, None]
    return _gather_integers(values.reshape(-1), (index + start).reshape(-1)).reshape(
        axis_size, -1
    ), True


class FunctionBank(eqx.Module):
    """Any functions; ``choice[g]`` is the function that element g uses.

    Inside ``vmap`` one traced choice costs as much as all functions together.
    """

    choice: Int[Array, " g"]
    functions: tuple[Callable[[Any], Any], ...] = eqx.field(static=True)
    observation_shape: tuple[int, ...] = eqx.field(static=True)
    products: tuple[tuple[int, ...], ...] = eqx.field(static=True)
    """``products[i][j]``: the function that equals function i after function j."""

    @property
    def size(self) -> int:
        """Transforms in the list."""
        return self.choice.shape[0]

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of an observation."""
        return self.observation_shape

    def at(self, element: Element, observation: Observation) -> Observation:
        """T_element o."""
        return lax.switch(self.choice[element], self.functions, observation)

    def all(self, observation: Observation) -> Shaped[Array, "g ..."]:
        """All images, [size, *shape]."""
        return jnp.stack([f(observation) for f in self.functions])[self.choice]

    def take(self, elements: Int[Array, " n"]) -> "FunctionBank":
        """The sub-list ``elements``, in their order."""
        return FunctionBank(
            self.choice[elements], self.functions, self.observation_shape, self.products
        )

    def scores(self, observation: Observation) -> Int[Array, " g"]:
        """hash(T_g o) for every g."""
        return jax.vmap(hash_observation)(self.all(observation))


TransformList = BlockGather | FunctionBank


def block_gather(
    layout: Layout, index: Int[np.ndarray, "g blocks"], sign: np.ndarray | None = None
) -> BlockGather:
    """A checked list of gathers, with the inverse of each."""
    index = np.asarray(index, np.int32)
    if index.ndim != 2 or index.shape[1] != layout.num_blocks:
        raise InputError("index", np.shape(index), f"rows of {layout.num_blocks} blocks")
    if not np.array_equal(
        np.sort(index, axis=1), np.broadcast_to(np.arange(index.shape[1]), index.shape)
    ):
        raise InputError("index", index.tolist()[:4], "rows that are permutations of the blocks")
    signs = None
    if sign is not None and (np.asarray(sign) < 0).any():
        signs = jnp.asarray(sign, jnp.int8)
    inverse = np.argsort(index, axis=1).astype(np.int32)
    return BlockGather(jnp.asarray(index), jnp.asarray(inverse), signs, layout)


def hash_weights(shape: tuple[int, ...], stream: int = 0) -> Int[np.ndarray, "..."]:
    """Fixed odd 32-bit numbers; the same ones in every run."""
    generator = np.random.default_rng([_HASH_SEED, stream])
    return (generator.integers(0, 2**32, shape, np.uint32) | 1).view(np.int32)


def hash_words(values: Shaped[Array, "..."]) -> Int[Array, "..."]:
    """One 32-bit word per number; -0.0 and 0.0 are one number."""
    if not jnp.issubdtype(values.dtype, jnp.floating):
        return values.astype(jnp.int32)
    values = values.astype(jnp.float32)
    words = lax.bitcast_convert_type(jnp.where(values == 0.0, 0.0, values), jnp.uint32)
    # Murmur's finaliser: the low bits of round floats are all zero and would waste the weights.
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        words = (words ^ (words >> shift)) * jnp.uint32(factor)
    return lax.bitcast_convert_type(words ^ (words >> 16), jnp.int32)


def hash_rows(rows: Shaped[Array, "blocks width"]) -> Int[Array, " blocks"]:
    """One 32-bit word per block: sum_c weight_c * word(rows[i, c]) modulo 2^32."""
    words, weights = hash_words(rows), hash_weights(rows.shape[1:], 3)
    if len(weights) > 8:
        return words @ jnp.asarray(weights)
    # Few channels: written out, because a reduction over a short last axis is slow on CPU.
    return sum(words[:, c] * weights[c] for c in range(1, len(weights))) + words[:, 0] * weights[0]


def hash_observation(observation: Observation, stream: int = 0) -> Int[Array, ""]:
    """sum_i weight_i * word(o_i) modulo 2^32."""
    weights = jnp.asarray(hash_weights(observation.shape, stream))
    return jnp.sum(weights * hash_words(jnp.asarray(observation)))


def check_observation(observation: Any, shape: tuple[int, ...]) -> None:
    """Refuse a wrong shape always, and numbers that are not finite where they can be seen."""
    if tuple(jnp.shape(observation)) != tuple(shape):
        raise InputError("observation", tuple(jnp.shape(observation)), f"shape {tuple(shape)}")
    if isinstance(observation, jax.core.Tracer):
        return
    if (
        jnp.issubdtype(jnp.result_type(observation), jnp.floating)
        and not np.isfinite(np.asarray(observation)).all()
    ):
        raise InputError("observation", "not finite", "numbers without NaN or infinity")


def random_observation(
    generator: np.random.Generator, shape: tuple[int, ...], low: Any, high: Any, dtype: Any
) -> Shaped[np.ndarray, "..."]:
    """A uniform observation within the bounds (unbounded sides become ±1)."""
    low = np.where(np.isfinite(low), low, -1.0) if low is not None else -1.0
    high = np.where(np.isfinite(high), high, 1.0) if high is not None else 1.0
    if np.issubdtype(np.dtype(dtype), np.integer):
        return generator.integers(low, np.asarray(high, np.int64) + 1, shape).astype(dtype)
    draws: Float[np.ndarray, "..."] = generator.uniform(low, high, shape)
    return draws.astype(dtype)
