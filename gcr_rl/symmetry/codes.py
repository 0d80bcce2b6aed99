"""Observations as 64-bit codes on the host: of whole observations, of their images, of cells.

Equal contents have equal codes; different ones collide with a probability of about 2^-64.
Tables of (code, action) then compare transitions exactly, whatever the observations are.
"""

from typing import Any

import jax
import numpy as np
from jaxtyping import Int, Shaped, UInt64

from gcr_rl.symmetry.transforms import BlockGather
from gcr_rl.symmetry.vocabulary import Vocabulary

Codes = UInt64[np.ndarray, "*shape"]
_SEED = 20_250_311


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
        bits = (values.astype(np.float32) + np.float32(0.0)).view(np.uint32)
        return mix(bits.astype(np.uint64) + np.uint64(1))
    return mix(values.astype(np.uint64) + np.uint64(1))


def weights(count: int, stream: int) -> Codes:
    """Fixed odd 64-bit numbers, the same in every run."""
    generator = np.random.default_rng([_SEED, stream])
    return generator.integers(0, 2**64, count, np.uint64) | np.uint64(1)


def row_codes(rows: Shaped[np.ndarray, "*shape width"]) -> Codes:
    """sum_c weight_c * word(rows[..., c]) modulo 2^64."""
    return np.asarray((words(rows) * weights(rows.shape[-1], 0)).sum(axis=-1, dtype=np.uint64))


def observation_codes(observations: Shaped[np.ndarray, "n ..."]) -> UInt64[np.ndarray, " n"]:
    """One code per observation."""
    return row_codes(observations.reshape(len(observations), -1))


def image_codes(
    vocabulary: Vocabulary, observations: Shaped[np.ndarray, "n ..."]
) -> UInt64[np.ndarray, "g n"]:
    """Codes of all images T_g o, without making the images where blocks are gathered."""
    if not isinstance(vocabulary.transforms, BlockGather):
        images = (transformed(vocabulary, g, observations) for g in range(vocabulary.size))
        return np.stack([observation_codes(image) for image in images])
    rows = _block_rows(vocabulary.transforms, observations)
    content = row_codes(rows)
    weight = weights(content.shape[1], 1)
    plain = (content * weight).sum(axis=1, dtype=np.uint64)
    if vocabulary.swaps is not None:  # only two blocks move: correct the plain sum
        first, second = vocabulary.swaps[1:].T
        change = (weight[first] - weight[second]) * (content[:, second] - content[:, first])
        return np.concatenate([plain[None], plain + change.T])
    index, sign = np.asarray(vocabulary.transforms.index), vocabulary.transforms.sign
    negative = None if sign is None else row_codes(-rows)
    found = []
    for g in range(vocabulary.size):
        moved = content[:, index[g]]
        if sign is not None and negative is not None:
            moved = np.where(np.asarray(sign[g]) < 0, negative[:, index[g]], moved)
        found.append((moved * weight).sum(axis=1, dtype=np.uint64))
    return np.stack(found)


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
    places = np.arange(int(np.prod(transforms.shape)), dtype=np.int32).reshape(transforms.shape)
    rows = np.asarray(transforms.layout.split(places))
    source = np.empty(places.size, np.int32)
    source[rows] = rows[np.asarray(transforms.index[element])]
    flat = observations.reshape(len(observations), -1)[:, source]
    if transforms.sign is not None:
        factor = np.empty(places.size, np.int8)
        factor[rows] = np.asarray(transforms.sign[element])[:, None]
        flat = flat * factor.astype(flat.dtype)
    return flat.reshape(observations.shape)


def cell_codes(observations: Shaped[np.ndarray, "n h w *c"]) -> UInt64[np.ndarray, "n h w"]:
    """One code per cell of a grid or image, over its channels."""
    planes = observations if observations.ndim == 4 else observations[..., None]
    return row_codes(planes)


def patch_codes(cells: UInt64[np.ndarray, "n h w"]) -> UInt64[np.ndarray, "n h w"]:
    """One code per 3x3 neighbourhood, places beyond the border being a content of their own."""
    outside = np.pad(cells, ((0, 0), (1, 1), (1, 1)), constant_values=np.uint64(7))
    weight = weights(9, 2)
    height, width = cells.shape[1:]
    total = np.zeros_like(cells)
    for place in range(9):
        row, column = divmod(place, 3)
        total += weight[place] * outside[:, row : row + height, column : column + width]
    return mix(total)


def _block_rows(
    transforms: BlockGather, observations: Shaped[np.ndarray, "n ..."]
) -> Shaped[np.ndarray, "n blocks width"]:
    places = np.arange(int(np.prod(transforms.shape)), dtype=np.int32).reshape(transforms.shape)
    rows: Int[np.ndarray, "blocks width"] = np.asarray(transforms.layout.split(places))
    return observations.reshape(len(observations), -1)[:, rows]
