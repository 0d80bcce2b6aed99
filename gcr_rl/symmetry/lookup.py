"""Models of dynamics and rewards that are tables: what followed the same key in other episodes?

The score of an outcome is the clipped log-probability
max(log (n(key, outcome) + s) / (n(key) + 2 s), -CLIP), counts leaving the asker's own episode
out; NaN where no other episode has the key.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int, UInt64

from gcr_rl.symmetry.codes import join, mix, neighbour_sums, neighbours, patch_codes

CLIP = 5.0
SMOOTHING = 0.05
MARK_SHIFT = np.uint64(44)
Column = UInt64[np.ndarray, " n"]


class Counts(NamedTuple):
    """How often each code occurred; ``marks`` tells at once of most codes that they did not."""

    codes: Column
    number: Int[np.ndarray, " n"]
    marks: Bool[np.ndarray, " marks"]

    def of(self, codes: UInt64[np.ndarray, "*n"]) -> Int[np.ndarray, "*n"]:
        """The number of occurrences of every code asked for."""
        found = np.zeros(codes.shape, np.int64)
        if not len(self.codes):
            return found
        likely = self.marks[codes >> MARK_SHIFT]
        asked = codes[likely]
        place = np.minimum(np.searchsorted(self.codes, asked), len(self.codes) - 1)
        found[likely] = np.where(self.codes[place] == asked, self.number[place], 0)
        return found


class Table(NamedTuple):
    """Occurrences of keys and of (key, outcome), in all and per episode."""

    keys: Counts
    pairs: Counts
    own_keys: Counts
    own_pairs: Counts

    def number(self, key: Column, episode: Int[np.ndarray, " n"]) -> Int[np.ndarray, " n"]:
        """Occurrences of the key in other episodes."""
        return _elsewhere(self.keys, self.own_keys, key, episode)

    def times(
        self, key: Column, outcome: Column, episode: Int[np.ndarray, " n"]
    ) -> Int[np.ndarray, " n"]:
        """Occurrences of the key with this outcome in other episodes."""
        return _elsewhere(self.pairs, self.own_pairs, join(key, outcome), episode)

    def score(
        self, key: Column, outcome: Column, episode: Int[np.ndarray, " n"]
    ) -> Float[np.ndarray, " n"]:
        """The clipped log-probability of the outcome."""
        total, hits = self.number(key, episode), self.times(key, outcome, episode)
        value = np.log((hits + SMOOTHING) / (total + 2 * SMOOTHING))
        return np.where(total > 0, np.maximum(value, -CLIP), np.nan)


def count(codes: Column) -> Counts:
    """Occurrences of every code."""
    found, number = np.unique(codes, return_counts=True)
    return Counts(found, number, _marks(found))


def _marks(codes: Column) -> Bool[np.ndarray, " marks"]:
    marks = np.zeros(1 << (64 - int(MARK_SHIFT)), bool)
    marks[codes >> MARK_SHIFT] = True
    return marks


def _elsewhere(
    everywhere: Counts, here: Counts, code: Column, episode: Int[np.ndarray, " n"]
) -> Int[np.ndarray, " n"]:
    """Occurrences in all episodes less those in the own one."""
    total = everywhere.of(code)
    known = total > 0
    total[known] -= here.of(join(code[known], episode[known]))
    return total


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


class Cells(NamedTuple):
    """Cells of transitions that changed, or look as if they might have."""

    row: Int[np.ndarray, " m"]
    """The transition that a cell belongs to."""
    before: Column
    after: Column
    around: UInt64[np.ndarray, "m 9"]

    @property
    def changed(self) -> Bool[np.ndarray, " m"]:
        """Where the content changed."""
        return self.before != self.after


def suspects(
    before: UInt64[np.ndarray, "n h w"],
    after: UInt64[np.ndarray, "n h w"],
    moody: Counts | None = None,
) -> tuple[Cells, Counts]:
    """The cells whose neighbourhood, up to its orientation, has ever changed in the middle.

    ``moody`` counts the sums of such neighbourhoods; by default they are those of this sample.
    """
    total, changed = neighbour_sums(before), before != after
    moody = moody or count(total[changed])
    row, *place = np.nonzero((moody.of(total) > 0) | changed)
    cell = place[0] * before.shape[2] + place[1]
    found = Cells(row, before[row, *place], after[row, *place], neighbours(before, row, cell))
    return found, moody


def signature(before: UInt64[np.ndarray, "n h w"], after: UInt64[np.ndarray, "n h w"]) -> Column:
    """The multiset of (before, after) over changed cells: no permutation of cells alters it."""
    place = np.nonzero(before != after)
    total = np.zeros(len(before), np.uint64)
    np.add.at(total, place[0], join(before[place], after[place]))
    return mix(total)


class PatchModel(NamedTuple):
    """p(content after | 3x3 neighbourhood before, action), for neighbourhoods that ever changed."""

    volatile: Counts
    known: Table


def fit_patches(
    cells: Cells, action: Int[np.ndarray, " n"], episode: Int[np.ndarray, " n"]
) -> PatchModel:
    """Count what happened in the middle of every neighbourhood that ever changed."""
    codes = patch_codes(cells.around)
    volatile = count(codes[cells.changed])
    active = volatile.of(codes) > 0
    row = cells.row[active]
    key = join(codes[active], action[row])
    return PatchModel(volatile, table(key, cells.after[active], episode[row]))


def score_patches(
    model: PatchModel,
    cells: Cells,
    action: Int[np.ndarray, " n"],
    episode: Int[np.ndarray, " n"],
    order: Int[np.ndarray, "9"] | None = None,
) -> Float[np.ndarray, " n"]:
    """The worst score of the cells that changed or might have; NaN if one of them is unknown.

    ``order`` scores the image of the cells under a rotation or reflection instead (see
    :func:`gcr_rl.symmetry.codes.neighbour_order`). Not the sum: the cells of one move change
    together, and three small probabilities of one slip would make an outcome that occurs look
    as bad as one that never does.
    """
    codes = patch_codes(cells.around, order)
    active = (model.volatile.of(codes) > 0) | cells.changed
    row = cells.row[active]
    part = model.known.score(join(codes[active], action[row]), cells.after[active], episode[row])
    total = np.zeros(len(action))
    with np.errstate(invalid="ignore"):  # NaN is meant to win
        np.minimum.at(total, row, part)
    return total
