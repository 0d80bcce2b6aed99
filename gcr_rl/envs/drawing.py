"""Plain numpy pictures of states, for people."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, UInt8

Colour = tuple[int, int, int]
Picture = UInt8[np.ndarray, "height width 3"]

FLOOR: Colour = (245, 245, 245)
WALL: Colour = (90, 90, 90)
GOAL: Colour = (60, 160, 90)
AGENT: Colour = (200, 50, 50)
LINE: Colour = (205, 205, 205)


def blank(height: int, width: int, colour: Colour = FLOOR) -> Picture:
    """A picture of one colour."""
    return np.full((height, width, 3), colour, np.uint8)


def rectangle(
    picture: Picture, top: int, left: int, height: int, width: int, colour: Colour
) -> Picture:
    """A copy of ``picture`` with a filled rectangle; what lies outside is cut off."""
    result = picture.copy()
    result[max(top, 0) : max(top + height, 0), max(left, 0) : max(left + width, 0)] = colour
    return result


def segment(
    picture: Picture,
    start: Float[np.ndarray, "2"],
    end: Float[np.ndarray, "2"],
    radius: float,
    colour: Colour,
) -> Picture:
    """A copy of ``picture`` with a thick line between two (row, column) points."""
    pixels = np.moveaxis(np.indices(picture.shape[:2]), 0, -1) + 0.5
    along = end - start
    share = np.clip((pixels - start) @ along / max(float(along @ along), 1e-12), 0.0, 1.0)
    distance = np.linalg.norm(pixels - start - share[..., None] * along, axis=-1)
    result = picture.copy()
    result[distance <= radius] = colour
    return result


def planes_picture(planes: UInt8[np.ndarray, "rows columns 3"], cell: int = 12) -> Picture:
    """Planes wall, goal, agent as coloured cells; the agent is a smaller square in its cell."""
    rows, columns, _ = planes.shape
    colours = np.full((rows, columns, 3), FLOOR, np.uint8)
    colours[planes[..., 0] > 0] = WALL
    colours[planes[..., 1] > 0] = GOAL
    picture = colours.repeat(cell, axis=0).repeat(cell, axis=1)
    inset = max(cell // 5, 1)
    for row, column in np.argwhere(planes[..., 2] > 0).tolist():
        top, left = row * cell + inset, column * cell + inset
        picture = rectangle(picture, top, left, cell - 2 * inset, cell - 2 * inset, AGENT)
    return picture


def squares_picture(
    places: Sequence[tuple[int, int]],
    current: int,
    goals: Sequence[int] = (),
    cell: int = 20,
) -> Picture:
    """States as squares at (row, column) ``places``; goals green, the current one red."""
    rows = 1 + max(row for row, _ in places)
    columns = 1 + max(column for _, column in places)
    picture = blank(rows * cell, columns * cell)
    for number, (row, column) in enumerate(places):
        colour = GOAL if number in goals else LINE
        picture = rectangle(picture, row * cell + 2, column * cell + 2, cell - 4, cell - 4, colour)
    row, column = places[current]
    return rectangle(picture, row * cell + 5, column * cell + 5, cell - 10, cell - 10, AGENT)
