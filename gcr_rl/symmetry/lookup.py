"""Models of dynamics and rewards that are tables: what followed the same key in other episodes?

The score of an outcome is the clipped log-probability
max(log (n(key, outcome) + s) / (n(key) + 2 s), -CLIP), counts leaving the asker's own episode
out; NaN where no other episode has the key.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int, Shaped, UInt64

from gcr_rl.symmetry.codes import cell_codes, join, mix, patch_codes

CLIP = 5.0
SMOOTHING = 0.05
Column = UInt64[np.ndarray, " n"]


class Counts(NamedTuple):
    """How often each code occurred."""

    codes: Column
    number: Int[np.ndarray, " n"]

    def of(self, codes: UInt64[np.ndarray, "*n"]) -> Int[np.ndarray, "*n"]:
        """The number of occurrences of every code asked for."""
        if not len(self.codes):
            return np.zeros(codes.shape, np.int64)
        place = np.minimum(np.searchsorted(self.codes, codes), len(self.codes) - 1)
        return np.where(self.codes[place] == codes, self.number[place], 0)


class Table(NamedTuple):
    """Occurrences of keys and of (key, outcome), in all and per episode."""

    keys: Counts
    pairs: Counts
    own_keys: Counts
    own_pairs: Counts

    def number(self, key: Column, episode: Int[np.ndarray, " n"]) -> Int[np.ndarray, " n"]:
        """Occurrences of the key in other episodes."""
        return self.keys.of(key) - self.own_keys.of(join(key, episode))

    def times(
        self, key: Column, outcome: Column, episode: Int[np.ndarray, " n"]
    ) -> Int[np.ndarray, " n"]:
        """Occurrences of the key with this outcome in other episodes."""
        pair = join(key, outcome)
        return self.pairs.of(pair) - self.own_pairs.of(join(pair, episode))

    def score(
        self, key: Column, outcome: Column, episode: Int[np.ndarray, " n"]
    ) -> Float[np.ndarray, " n"]:
        """The clipped log-probability of the outcome."""
        total, hits = self.number(key, episode), self.times(key, outcome, episode)
        value = np.log((hits + SMOOTHING) / (total + 2 * SMOOTHING))
        return np.where(total > 0, np.maximum(value, -CLIP), np.nan)


def count(codes: Column) -> Counts:
    """Occurrences of every code."""
    return Counts(*np.unique(codes, return_counts=True))


def table(key: Column, outcome: Column, episode: Int[np.ndarray, " n"]) -> Table:
    """The table of a sample."""
    pair = join(key, outcome)
    return Table(count(key), count(pair), count(join(key, episode)), count(join(pair, episode)))


def action_shares(
    known: Table, key: Column, episode: Int[np.ndarray, " n"], num_actions: int
) -> Float[np.ndarray, "n actions"]:
    """How other episodes' actions between the same two observations are shared out.

    ``known`` has (o, o') as keys and actions as outcomes; NaN where it has nothing to say.
    """
    votes = np.stack(
        [known.times(key, np.full(key.shape, a, np.uint64), episode) for a in range(num_actions)],
        axis=1,
    )
    total = votes.sum(axis=1, keepdims=True)
    return np.where(total > 0, votes / np.maximum(total, 1), np.nan)


class Patches(NamedTuple):
    """Cells of a batch of transitions: contents before and after, 3x3 neighbourhoods before."""

    before: UInt64[np.ndarray, "n cells"]
    after: UInt64[np.ndarray, "n cells"]
    around: UInt64[np.ndarray, "n cells"]

    @property
    def changed(self) -> Bool[np.ndarray, "n cells"]:
        """Where the content changed."""
        return self.before != self.after


def patches(
    observation: Shaped[np.ndarray, "n h w *c"], following: Shaped[np.ndarray, "n h w *c"]
) -> Patches:
    """Cell and neighbourhood codes of transitions on grids."""
    before, after = cell_codes(observation), cell_codes(following)
    around = patch_codes(before)
    flat = (part.reshape(len(before), -1) for part in (before, after, around))
    return Patches(*flat)


def signature(cells: Patches) -> Column:
    """The multiset of (before, after) over changed cells: no permutation of cells alters it."""
    change = np.where(cells.changed, join(cells.before, cells.after), np.uint64(0))
    return mix(change.sum(axis=1, dtype=np.uint64))


class PatchModel(NamedTuple):
    """p(content after | 3x3 neighbourhood before, action), for neighbourhoods that ever changed."""

    volatile: Column
    known: Table


def fit_patches(
    cells: Patches, action: Int[np.ndarray, " n"], episode: Int[np.ndarray, " n"]
) -> PatchModel:
    """Count what happened in the middle of every neighbourhood that ever changed."""
    volatile = np.unique(cells.around[cells.changed])
    active = _contained(volatile, cells.around)
    row = np.nonzero(active)[0]
    key = join(cells.around[active], action[row])
    return PatchModel(volatile, table(key, cells.after[active], episode[row]))


def score_patches(
    model: PatchModel, cells: Patches, action: Int[np.ndarray, " n"], episode: Int[np.ndarray, " n"]
) -> Float[np.ndarray, " n"]:
    """The worst score of the cells that changed or might have; NaN if one of them is unknown.

    Not the sum: the cells of one move change together, and three small probabilities of one
    slip would make an outcome that occurs look as bad as one that never does.
    """
    active = _contained(model.volatile, cells.around) | cells.changed
    row = np.nonzero(active)[0]
    key = join(cells.around[active], action[row])
    part = model.known.score(key, cells.after[active], episode[row])
    total = np.zeros(len(action))
    with np.errstate(invalid="ignore"):  # NaN is meant to win
        np.minimum.at(total, row, part)
    return total


def _contained(known: Column, codes: UInt64[np.ndarray, "n cells"]) -> Bool[np.ndarray, "n cells"]:
    """np.isin for a short sorted list: many times faster than sorting all cells."""
    if not len(known):
        return np.zeros(codes.shape, bool)
    place = np.minimum(np.searchsorted(known, codes), len(known) - 1)
    return np.asarray(known[place] == codes)
