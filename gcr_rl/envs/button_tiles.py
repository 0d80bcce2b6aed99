"""How ButtonPermutation looks: 7x7 tiles, and the exchange of two of them."""

from functools import lru_cache

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, UInt8

BUTTONS = 6
LAMPS = 5
TILES = 7
LAMP_ROW, BUTTON_ROW, AGENT_PLACE = 1, 3, (6, 3)
GREY = BUTTONS
"""The colour number of a button without legend."""

FLOOR, WALL, LAMP_OFF, LAMP_ON, AGENT, FIRST_BUTTON = range(6)
_COLOURS = np.array(
    [
        (220, 40, 40),
        (40, 180, 60),
        (50, 80, 230),
        (230, 210, 40),
        (170, 60, 200),
        (40, 200, 210),
        (130, 130, 130),
    ],
    np.uint8,
)
_PLAIN = {FLOOR: (20, 20, 20), WALL: (80, 80, 80), LAMP_OFF: (55, 45, 25), LAMP_ON: (255, 245, 190)}
_AGENT_COLOUR = (240, 120, 60)
_MARK_COLOUR = (255, 255, 255)


@lru_cache(maxsize=8)
def tile_bitmaps(size: int) -> UInt8[np.ndarray, "types size size 3"]:
    """One bitmap per tile type; button type FIRST_BUTTON + 2 colour + pressed.

    A pressed button keeps its colour as a frame around a white middle, which needs 3 pixels.
    """
    bitmaps = np.zeros((FIRST_BUTTON + 2 * len(_COLOURS), size, size, 3), np.uint8)
    for kind, colour in _PLAIN.items():
        bitmaps[kind] = colour
    row, column = np.indices((size, size))
    bitmaps[AGENT] = _PLAIN[FLOOR]
    bitmaps[AGENT, np.abs(2 * column - (size - 1)) <= row] = _AGENT_COLOUR
    for number, colour in enumerate(_COLOURS):
        bitmaps[FIRST_BUTTON + 2 * number : FIRST_BUTTON + 2 * number + 2] = colour
        bitmaps[FIRST_BUTTON + 2 * number + 1, 1:-1, 1:-1] = _MARK_COLOUR
    return bitmaps


def _scenery() -> Int[np.ndarray, "7 7"]:
    tiles = np.full((TILES, TILES), FLOOR, np.int32)
    tiles[0] = WALL
    tiles[LAMP_ROW] = WALL
    tiles[BUTTON_ROW, BUTTONS:] = WALL
    tiles[AGENT_PLACE] = AGENT
    return tiles


_SCENERY = _scenery()


def frame_pixels(
    colours: Int[Array, "6"],
    progress: Int[Array, ""] | int,
    last: Int[Array, ""] | int,
    size: int,
) -> UInt8[Array, "height width 3"]:
    """The picture of buttons of these colours, ``progress`` lamps lit, ``last`` pressed."""
    lamps = jnp.where(jnp.arange(LAMPS) < progress, LAMP_ON, LAMP_OFF)
    buttons = FIRST_BUTTON + 2 * colours + (jnp.arange(BUTTONS) == last)
    tiles = jnp.asarray(_SCENERY)
    tiles = tiles.at[LAMP_ROW, 1 : 1 + LAMPS].set(lamps)
    tiles = tiles.at[BUTTON_ROW, :BUTTONS].set(buttons)
    pixels = jnp.asarray(tile_bitmaps(size))[tiles]
    return pixels.transpose(0, 2, 1, 3, 4).reshape(TILES * size, TILES * size, 3)


def swap_tiles(
    size: int,
    first: tuple[int, int],
    second: tuple[int, int],
    picture: UInt8[np.ndarray, "height width channels"],
) -> UInt8[np.ndarray, "height width channels"]:
    """The picture with two tiles, given as (row, column), exchanged."""

    def window(place: tuple[int, int]) -> tuple[slice, slice]:
        row, column = place[0] * size, place[1] * size
        return slice(row, row + size), slice(column, column + size)

    source = np.asarray(picture)
    result = source.copy()
    result[window(first)], result[window(second)] = source[window(second)], source[window(first)]
    return result
