"""Observations as 64-bit codes on the host: of whole observations, of their images, of cells.

Equal contents have equal codes; different ones collide with a probability of about 2^-64.
Tables of (code, action) then compare transitions exactly, whatever the observations are.
"""

from copy import copy
from functools import lru_cache
from typing import Any

import jax
import numpy as np
from jaxtyping import Int, Shaped, UInt64

from gcr_rl.symmetry.distinct import Distinct, Observations
from gcr_rl.symmetry.transforms import BlockGather, Layout
from gcr_rl.symmetry.vocabulary import Vocabulary

Codes = UInt64[np.ndarray, "*shape"]
_SEED = 20_250_311
_FEW_BYTES = 3
_AT_ONCE = 2**21
"""Bytes of observations whose codes are computed at once: near the processor, and in steps long
enough to let the threads of other seeds work."""


def mix(values: Codes) -> Codes:
    """SplitMix64's finaliser: sums of mixed words do not cancel as sums of plain words do."""
    values = np.asarray(values, np.uint64)
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def join(first: Any, second: Any) -> Codes:
    """One code of an ordered pair of codes or whole numbers."""
    first, second = np.asarray(first).astype(np.uint64), np.asarray(second).astype(np.uint64)
    return mix(mix(first + np.uint64(0x9E3779B97F4A7C15)) + np.uint64(3) * second)


def words(values: Shaped[np.ndarray, "*shape"]) -> Codes:
    """One mixed word per number; -0.0 and 0.0 are one number."""
    values = np.asarray(values)
    if np.issubdtype(values.dtype, np.floating):
        values = (values.astype(np.float32) + np.float32(0.0)).view(np.uint32)
    return mix(values.astype(np.uint64, copy=False) + np.uint64(1))


@lru_cache(maxsize=64)
def weights(count: int, stream: int) -> Codes:
    """Fixed odd 64-bit numbers, the same in every run."""
    generator = np.random.default_rng([_SEED, stream])
    found = generator.integers(0, 2**64, count, np.uint64) | np.uint64(1)
    found.flags.writeable = False  # all who ask get the same array
    return found


def row_codes(rows: Shaped[np.ndarray, "*shape width"]) -> Codes:
    """sum_c weight_c * word(rows[..., c]) modulo 2^64; of wider rows of bytes eight make a word."""
    if rows.dtype == np.uint8 and rows.shape[-1] > _FEW_BYTES:
        rows = _eight_at_once(rows)
    weight = weights(rows.shape[-1], 0)
    if rows.dtype != np.uint8 or rows.size < 256 * rows.shape[-1]:
        return np.asarray(words(rows) @ weight)
    table = words(np.arange(256)) * weight[:, None]  # bytes have few words: look them up
    total = table[0][rows[..., 0]]
    for c in range(1, rows.shape[-1]):
        total += table[c][rows[..., c]]
    return total


def _eight_at_once(rows: Shaped[np.ndarray, "*shape width"]) -> Codes:
    """Bytes as words of eight, the last one filled up with zeros."""
    missing = -rows.shape[-1] % 8
    if missing:
        rows = np.pad(rows, [(0, 0)] * (rows.ndim - 1) + [(0, missing)])
    return np.ascontiguousarray(rows).view(np.uint64)


def observation_codes(observations: Shaped[np.ndarray, "n ..."]) -> UInt64[np.ndarray, " n"]:
    """One code per observation."""
    return row_codes(observations.reshape(len(observations), -1))


class ImageCodes:
    """Codes of images T_g o, one g at a time; no image is made where blocks are gathered.

    The code of o is sum_i weight_i * code(block i), so that of T_g o moves the weights.
    """

    def __init__(self, vocabulary: Vocabulary, observations: Observations) -> None:
        self.vocabulary = vocabulary
        self._place = observations.place if isinstance(observations, Distinct) else None
        kinds = observations.kinds if isinstance(observations, Distinct) else observations
        self.kinds = kinds
        transforms = vocabulary.transforms
        if isinstance(transforms, BlockGather):
            signed = transforms.sign is not None
            self._content = block_codes(transforms.layout, kinds)
            self._negative = block_codes(transforms.layout, -kinds) if signed else None
            self._weight = weights(self._content.shape[1], 1)
            self._plain = self._content @ self._weight

    def beside(self, observations: Observations) -> "ImageCodes":
        """Codes of further observations; of the same kinds they are known already."""
        if not isinstance(observations, Distinct) or observations.kinds is not self.kinds:
            return ImageCodes(self.vocabulary, observations)
        other = copy(self)
        other._place = observations.place
        return other

    def blocks(self, rows: Any) -> UInt64[np.ndarray, "m blocks"]:
        """Codes of the blocks of o for the rows asked for."""
        return self._content[rows if self._place is None else self._place[rows]]

    def of(self, element: int, rows: Any = slice(None)) -> UInt64[np.ndarray, " m"]:
        """Codes of T_element o for the rows asked for."""
        if self._place is None:
            return self._of_kinds(element, rows)
        if isinstance(rows, slice):  # every kind once
            return self._of_kinds(element, slice(None))[self._place[rows]]
        return self._of_kinds(element, self._place[rows])

    def of_many(
        self, elements: Int[np.ndarray, " k"], rows: Int[np.ndarray, " m"]
    ) -> UInt64[np.ndarray, "k m"]:
        """The same for several elements, in a few long steps where two blocks are exchanged."""
        if self.vocabulary.swaps is None:
            return np.stack([self.of(int(g), rows) for g in elements])
        place = rows if self._place is None else self._place[rows]
        content, (i, j) = self._content[place].T, np.asarray(self.vocabulary.swaps)[elements].T
        factor = (self._weight[i] - self._weight[j])[:, None]
        return self._plain[place] + (content[j] - content[i]) * factor

    def _of_kinds(self, element: int, rows: Any) -> UInt64[np.ndarray, " m"]:
        transforms = self.vocabulary.transforms
        if not isinstance(transforms, BlockGather):
            return observation_codes(transformed(self.vocabulary, element, self.kinds[rows]))
        if element == self.vocabulary.identity:
            return self._plain[rows]
        content, weight = self._content, self._weight
        if self.vocabulary.swaps is not None:  # only two blocks move: correct the plain sum
            i, j = self.vocabulary.swaps[element]
            change = content[rows, j] - content[rows, i]
            return self._plain[rows] + change * (weight[i : i + 1] - weight[j : j + 1])
        index = np.asarray(transforms.index)[element]
        moved = np.empty_like(weight)
        moved[index] = weight
        if self._negative is None:
            return content[rows] @ moved
        flipped = np.zeros(len(index), bool)
        flipped[index] = np.asarray(transforms.sign)[element] < 0
        zero = np.uint64(0)
        kept = content[rows] @ np.where(flipped, zero, moved)
        return kept + self._negative[rows] @ np.where(flipped, moved, zero)


def image_codes(
    vocabulary: Vocabulary, observations: Shaped[np.ndarray, "n ..."]
) -> UInt64[np.ndarray, "g n"]:
    """Codes of all images T_g o."""
    codes = ImageCodes(vocabulary, observations)
    return np.stack([codes.of(g) for g in range(vocabulary.size)])


def block_codes(
    layout: Layout, observations: Shaped[np.ndarray, "n ..."]
) -> UInt64[np.ndarray, "n blocks"]:
    """One code per block, a few observations at a time."""
    found = np.empty((len(observations), layout.num_blocks), np.uint64)
    together = max(_AT_ONCE // max(observations[:1].nbytes, 1), 1)
    for start in range(0, len(observations), together):
        part = slice(start, start + together)
        found[part] = row_codes(layout.split_all(observations[part]))
    return found


@lru_cache(maxsize=64)
def _block_places(layout: Layout) -> Int[np.ndarray, "blocks width"]:
    """Where the numbers of every block stand in a flat observation."""
    places = np.arange(int(np.prod(layout.shape)), dtype=np.int32).reshape(layout.shape)
    return np.asarray(layout.split(places))


def transformed(
    vocabulary: Vocabulary, element: int, observations: Shaped[np.ndarray, "n ..."]
) -> Shaped[np.ndarray, "n ..."]:
    """T_element of every observation, as a host array of the same dtype."""
    if element == vocabulary.identity:
        return observations
    transforms = vocabulary.transforms
    if not isinstance(transforms, BlockGather):
        image = jax.vmap(lambda o: transforms.at(element, o))(observations)
        return np.asarray(image).astype(observations.dtype)
    rows = _block_places(transforms.layout)
    source = np.empty(rows.size, np.int32)
    source[rows] = rows[np.asarray(transforms.index)[element]]
    flat = observations.reshape(len(observations), -1)[:, source]
    if transforms.sign is not None:
        factor = np.empty(rows.size, np.int8)
        factor[rows] = np.asarray(transforms.sign)[element][:, None]
        flat = flat * factor.astype(flat.dtype)
    return flat.reshape(observations.shape)


def cell_codes(observations: Shaped[np.ndarray, "n h w *c"]) -> UInt64[np.ndarray, "n h w"]:
    """One code per cell of a grid or image, over its channels."""
    planes = observations if observations.ndim == 4 else observations[..., None]
    return row_codes(planes)


OUTSIDE = np.uint64(7)
"""The content of places beyond the border."""


def neighbour_sums(cells: UInt64[np.ndarray, "n h w"]) -> UInt64[np.ndarray, "n h w"]:
    """The sum over every 3x3 neighbourhood: no rotation or reflection alters it."""
    outside = np.pad(cells, ((0, 0), (1, 1), (1, 1)), constant_values=OUTSIDE)
    tall = outside[:, :-2] + outside[:, 1:-1] + outside[:, 2:]
    return tall[:, :, :-2] + tall[:, :, 1:-1] + tall[:, :, 2:]


def neighbours(
    cells: UInt64[np.ndarray, "n h w"],
    row: Int[np.ndarray, " m"],
    place: Int[np.ndarray, " m"],
) -> UInt64[np.ndarray, "m 9"]:
    """The contents around (and at) the cells asked for, in the order of reading."""
    width = cells.shape[2] + 2
    outside = np.pad(cells, ((0, 0), (1, 1), (1, 1)), constant_values=OUTSIDE)
    down, right = np.divmod(place, cells.shape[2])
    offset = np.arange(3)[:, None] * width + np.arange(3)
    corner = row * outside[0].size + down * width + right
    return outside.reshape(-1)[corner[:, None] + offset.reshape(-1)]


def patch_codes(
    around: UInt64[np.ndarray, "m 9"], order: Int[np.ndarray, "9"] | None = None
) -> UInt64[np.ndarray, " m"]:
    """One code per 3x3 neighbourhood; ``order[d]`` is the place that an image shows at d."""
    weight = weights(9, 2)
    if order is not None:
        moved = np.empty_like(weight)
        moved[order] = weight
        weight = moved
    return mix(around @ weight)


def neighbour_order(vocabulary: Vocabulary, element: int) -> Int[np.ndarray, "9"] | None:
    """``order`` with (T o)[i + d] = o[p(i) + order[d]] for every cell i and 3x3 offset d.

    None where T moves more than whole cells, or not as a rotation or reflection does.
    """
    transforms = vocabulary.transforms
    if not isinstance(transforms, BlockGather) or transforms.sign is not None:
        return None
    height, width = transforms.layout.grid[:2]
    if transforms.layout.num_blocks != height * width or transforms.layout.block[:2] != (1, 1):
        return None
    index = np.asarray(transforms.index)[element].reshape(height, width)
    outside = np.pad(index, 1, constant_values=-1)
    source = np.pad(np.arange(index.size).reshape(height, width), 1, constant_values=-1)
    windows = (np.lib.stride_tricks.sliding_window_view(a, (3, 3)) for a in (outside, source))
    shown, known = (one.reshape(-1, 9) for one in windows)
    known = known[index.ravel()]
    matches = (shown[:, :, None] == known[:, None, :]).all(axis=0)
    order = matches.argmax(axis=1)
    return order if matches.any(axis=1).all() and len(set(order.tolist())) == 9 else None
