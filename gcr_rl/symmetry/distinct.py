"""Observations that recur, each kept once."""

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Int, Shaped


class Distinct:
    """Reads as the array ``kinds[place]`` and holds ``kinds`` alone.

    Most observations of a window are another row's next one, and in small tasks all of them recur:
    what is made or coded once a kind costs a fraction of what it costs once a row.
    """

    def __init__(self, kinds: Shaped[np.ndarray, "m ..."], place: Int[np.ndarray, " n"]) -> None:
        self.kinds, self.place = kinds, place

    def __len__(self) -> int:
        return len(self.place)

    def __getitem__(self, rows: Any) -> Shaped[np.ndarray, "..."]:
        if isinstance(rows, tuple):
            return np.asarray(self)[rows]
        return np.asarray(self.kinds[self.place[rows]])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return self[:].astype(dtype or self.dtype, copy=False)

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the array that this reads as."""
        return (len(self.place), *self.kinds.shape[1:])

    @property
    def ndim(self) -> int:
        """Of the array that this reads as."""
        return self.kinds.ndim

    @property
    def dtype(self) -> np.dtype:
        """Of every observation."""
        return self.kinds.dtype


Observations = Shaped[np.ndarray, "n ..."] | Distinct


class Kinds(NamedTuple):
    """Which of many rows are alike."""

    first: Int[np.ndarray, " m"]
    """A row of every kind."""
    place: Int[np.ndarray, " n"]
    """The kind of every row."""


def kinds_of(codes: Shaped[np.ndarray, " n"]) -> Kinds:
    """Rows with equal codes are of one kind."""
    _, first, place = np.unique(codes, return_index=True, return_inverse=True)
    return Kinds(first, place)
