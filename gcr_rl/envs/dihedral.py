"""The eight rotations and mirror images of a square grid, and what they do to four moves.

Element g = k + 4 m rotates k quarter turns counter-clockwise, then mirrors left and right
if m. Environments use it to build and to test themselves; agents learn theirs from data.
"""

from typing import Final

import numpy as np
from jaxtyping import Int, Shaped

UP, DOWN, LEFT, RIGHT = 0, 1, 2, 3
MOVES: Final = np.array([(-1, 0), (1, 0), (0, -1), (0, 1)], np.int32)
NAMES: Final = tuple(
    ("" if mirror == 0 else "mirror of ") + f"rotation by {90 * turns} degrees"
    for mirror in (0, 1)
    for turns in range(4)
)


def transform(
    element: int, grid: Shaped[np.ndarray, "size size *rest"]
) -> Shaped[np.ndarray, "size size *rest"]:
    """T_g of an array whose first two axes are rows and columns."""
    turned = np.rot90(grid, element % 4, axes=(0, 1))
    return np.ascontiguousarray(turned[:, ::-1] if element >= 4 else turned)


def relabelling(element: int) -> Int[np.ndarray, "4"]:
    """``relabel[a]``: the move at T_g o that does what move a does at o."""
    moved = []
    for row, column in MOVES:
        for _ in range(element % 4):
            row, column = -column, row
        moved.append((row, -column if element >= 4 else column))
    return np.array(
        [int(np.flatnonzero(np.all(np.array(move) == MOVES, axis=1))[0]) for move in moved],
        np.int32,
    )


def composition() -> Int[np.ndarray, "8 8"]:
    """``table[g, h]``: the element T_g T_h, read off a grid without symmetry of its own."""
    probe = np.arange(9).reshape(3, 3)
    images = [transform(element, probe) for element in range(8)]
    return np.array(
        [
            [
                next(
                    i for i, image in enumerate(images) if (image == transform(g, images[h])).all()
                )
                for h in range(8)
            ]
            for g in range(8)
        ],
        np.int32,
    )
