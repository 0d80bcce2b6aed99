"""The vocabularies we ship: each follows from the shape of an observation."""

import itertools
import math
from collections.abc import Iterable
from typing import Any

import numpy as np
from jaxtyping import Int

from gcr_rl.errors import InputError
from gcr_rl.symmetry.transforms import Layout
from gcr_rl.symmetry.vocabulary import Signed, Vocabulary, from_signed

ROTATIONS = tuple(
    ("" if mirror == 0 else "mirror of ") + f"rotation by {90 * turns} degrees"
    for mirror in (0, 1)
    for turns in range(4)
)


def identity_only(shape: tuple[int, ...]) -> Vocabulary:
    """The trivial vocabulary, for observations we can say nothing about."""
    return from_signed(Layout(shape, shape), ["identity"], [_plain(np.arange(1))])


def dihedral(shape: tuple[int, ...]) -> Vocabulary:
    """D4 on the first two axes of a square grid or image.

    Element k + 4m: k quarter turns counter-clockwise, then left and right mirrored if m.
    """
    _need_image(shape)
    if shape[0] != shape[1]:
        raise InputError("shape", shape, "a square grid or image (flips() takes any)")
    cells = _cells(shape)
    turned = [np.rot90(cells, turns) for turns in range(4)]
    images = turned + [image[:, ::-1] for image in turned]
    if shape[0] == 1:
        return identity_only(shape)
    return from_signed(_pixels(shape), ROTATIONS, [_plain(i.ravel()) for i in images], (1, 4))


def flips(shape: tuple[int, ...]) -> Vocabulary:
    """Left-right and up-down mirror images on the first two axes, and both together."""
    _need_image(shape)
    cells = _cells(shape)
    images = (cells, cells[:, ::-1], cells[::-1], cells[::-1, ::-1])
    names = ("identity", "mirror left and right", "mirror up and down", "half turn")
    if 1 in shape[:2]:  # a single row or column has one flip, a single cell none
        flip = cells.ravel()[::-1]
        elements = [_plain(cells.ravel()), _plain(flip)][: min(cells.size, 2)]
        return from_signed(_pixels(shape), ("identity", "reversal")[: len(elements)], elements)
    return from_signed(_pixels(shape), names, [_plain(i.ravel()) for i in images], (1, 2))


def horizontal_flip(shape: tuple[int, ...]) -> Vocabulary:
    """The left-right mirror image alone."""
    _need_image(shape)
    cells = _cells(shape)
    if shape[1] == 1:
        return identity_only(shape)
    elements = [_plain(cells.ravel()), _plain(cells[:, ::-1].ravel())]
    return from_signed(_pixels(shape), ("identity", "mirror left and right"), elements)


def sign_flips(dimension: int, budget: int = 256) -> Vocabulary:
    """All 2^d sign patterns where they fit the budget, else few flips first as generators.

    The order is by the number of flips, the flip of everything right after the identity.
    """
    _need_positive("dimension", dimension)
    patterns = itertools.islice(_flip_patterns(dimension), budget)
    elements = [(np.arange(dimension), _signs(dimension, pattern)) for pattern in patterns]
    names = [_flip_name(sign) for _, sign in elements]
    closed = 2**dimension <= budget
    singles = [g for g, (_, sign) in enumerate(elements) if (sign < 0).sum() == 1]
    return from_signed(_coordinates(dimension), names, elements, singles, closed)


def signed_permutations(dimension: int, budget: int = 512) -> Vocabulary:
    """Signed coordinate permutations: all 2^d d! within the budget, else the simplest ones.

    Beyond the budget it is a set of generators: sign patterns (few flips first) take half of
    it, the rest goes to transpositions, plain and with both coordinates negated, then to
    transpositions with a flip of everything else. All of these are involutions.
    """
    _need_positive("dimension", dimension)
    if 2**dimension * math.factorial(dimension) <= budget:
        elements = [
            (np.array(order), np.array(sign))
            for order in itertools.permutations(range(dimension))
            for sign in itertools.product((1, -1), repeat=dimension)
        ]
        names = [_signed_name(element) for element in elements]
        return from_signed(_coordinates(dimension), names, elements)
    flipped = itertools.islice(_flip_patterns(dimension), max(budget // 2, 2))
    elements = [(np.arange(dimension), _signs(dimension, pattern)) for pattern in flipped]
    elements += itertools.islice(_signed_swaps(dimension), max(budget - len(elements), 0))
    names = [_signed_name(element) for element in elements]
    return from_signed(_coordinates(dimension), names, elements, closed=False)


def tile_swaps(shape: tuple[int, ...], tile: int | tuple[int, int]) -> Vocabulary:
    """Exchanges of two tiles of an image, as generators: the closed group would be S_n."""
    _need_image(shape)
    height, width = (tile, tile) if isinstance(tile, int) else tile
    layout = Layout(tuple(shape), (height, width, *shape[2:]))
    columns = layout.grid[1]
    places = [f"({i // columns}, {i % columns})" for i in range(layout.num_blocks)]
    return _swaps(layout, "tiles", places)


def slot_permutations(num_slots: int, slot_size: int = 1) -> Vocabulary:
    """Exchanges of two of ``num_slots`` equal pieces of a vector, as generators of S_n."""
    _need_positive("num_slots", num_slots)
    _need_positive("slot_size", slot_size)
    layout = Layout((num_slots * slot_size,), (slot_size,))
    return _swaps(layout, "slots", [str(i) for i in range(num_slots)])


def ring(dimension: int) -> Vocabulary:
    """Cyclic shifts of the coordinates and their reversals: D_n, 2n elements."""
    _need_positive("dimension", dimension)
    numbers = np.arange(dimension)
    shifts = [np.roll(numbers, -shift) for shift in range(dimension)]
    names = ["identity", *(f"shift by {shift}" for shift in range(1, dimension))]
    generators = [1] if dimension > 1 else []
    if dimension > 2:  # with two coordinates the reversal is the shift
        names += ["reversal", *(f"reversal of shift by {s}" for s in range(1, dimension))]
        shifts += [shift[::-1] for shift in shifts]
        generators.append(dimension)
    return from_signed(_coordinates(dimension), names, [_plain(s) for s in shifts], generators)


def for_space(space: Any, tile_size: int | None = None) -> tuple[Vocabulary, ...]:
    """See :meth:`Vocabulary.for_space`."""
    shape = getattr(space, "shape", None)
    if shape is None:
        raise InputError("space", space, "an observation space with a shape, low and high")
    shape = tuple(int(n) for n in shape)
    if len(shape) in (2, 3):
        found = [dihedral(shape) if shape[0] == shape[1] else flips(shape)]
        return (*found, tile_swaps(shape, tile_size)) if tile_size else tuple(found)
    if len(shape) != 1:
        return (identity_only(shape),)
    low = np.asarray(getattr(space, "low", -np.inf))
    return (sign_flips(shape[0]) if (low < 0).any() else ring(shape[0]),)


def _swaps(layout: Layout, noun: str, places: list[str]) -> Vocabulary:
    count = layout.num_blocks
    pairs = list(itertools.combinations(range(count), 2))
    elements = [_plain(np.arange(count)), *(_plain(_transposition(count, *p)) for p in pairs)]
    names = ["identity", *(f"swap of {noun} {places[i]} and {places[j]}" for i, j in pairs)]
    swaps = np.array([(-1, -1), *pairs], np.int32)
    return from_signed(layout, names, elements, closed=count <= 2, swaps=swaps)


def _transposition(count: int, i: int, j: int) -> Int[np.ndarray, " n"]:
    order = np.arange(count)
    order[[i, j]] = j, i
    return order


def _flip_patterns(dimension: int) -> Iterable[tuple[int, ...]]:
    """Nothing, everything, then subsets of coordinates by size."""
    yield ()
    yield tuple(range(dimension))
    for size in range(1, dimension):
        yield from itertools.combinations(range(dimension), size)


def _signed_swaps(dimension: int) -> Iterable[Signed]:
    pairs = list(itertools.combinations(range(dimension), 2))
    for flip_pair, flip_rest in ((1, 1), (-1, 1), (1, -1)):
        for i, j in pairs:
            sign = np.full(dimension, flip_rest)
            sign[[i, j]] = flip_pair
            if dimension > 2 or flip_rest > 0:
                yield _transposition(dimension, i, j), sign


def _signs(dimension: int, flipped: tuple[int, ...]) -> Int[np.ndarray, " d"]:
    sign = np.ones(dimension, np.int64)
    sign[list(flipped)] = -1
    return sign


def _flip_name(sign: Int[np.ndarray, " d"]) -> str:
    flipped = np.flatnonzero(sign < 0).tolist()
    if not flipped:
        return "identity"
    return "negation" if len(flipped) == len(sign) else f"flip of {', '.join(map(str, flipped))}"


def _signed_name(element: Signed) -> str:
    index, sign = element
    if (index == np.arange(len(index))).all():
        return _flip_name(sign)
    parts = [("" if s > 0 else "-") + str(i) for i, s in zip(index, sign, strict=True)]
    return f"({', '.join(parts)})"


def _plain(index: Int[np.ndarray, " n"]) -> Signed:
    return np.asarray(index), np.ones(len(index), np.int64)


def _cells(shape: tuple[int, ...]) -> Int[np.ndarray, "height width"]:
    return np.arange(shape[0] * shape[1]).reshape(shape[:2])


def _pixels(shape: tuple[int, ...]) -> Layout:
    return Layout(tuple(shape), (1, 1, *shape[2:]))


def _coordinates(dimension: int) -> Layout:
    return Layout((dimension,), (1,))


def _need_image(shape: tuple[int, ...]) -> None:
    if len(shape) not in (2, 3) or any(n < 1 for n in shape):
        raise InputError("shape", shape, "(height, width) or (height, width, channels)")


def _need_positive(field: str, value: int) -> None:
    if value < 1:
        raise InputError(field, value, "at least 1")
