"""Transitions as the certificate sees them: codes of observations and of their images."""

from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int, Shaped, UInt64

from gcr_rl.symmetry import lookup
from gcr_rl.symmetry.codes import ImageCodes, cell_codes, neighbour_order, transformed
from gcr_rl.symmetry.distinct import Observations
from gcr_rl.symmetry.transforms import BlockGather
from gcr_rl.symmetry.vocabulary import Vocabulary

LONG_LIST, SCREENED_ROWS = 64, 2048
"""Longer vocabularies are screened on this many transitions before more is asked."""

TOGETHER = 64
"""Transforms that are screened at once: many short steps keep other seeds' threads waiting."""


class Evidence(NamedTuple):
    """Transitions in the order of play, of a policy that tries every action.

    ``episode`` numbers the episodes; ``next_observation`` is never the one after a reset.
    """

    observation: Observations
    action: Int[np.ndarray, " n"]
    reward: Float[np.ndarray, " n"]
    next_observation: Observations
    terminated: Bool[np.ndarray, " n"]
    truncated: Bool[np.ndarray, " n"]
    episode: Int[np.ndarray, " n"]


class Screen(NamedTuple):
    """What a few rows say of every transform: where it moves something, where images recur."""

    moved: Int[np.ndarray, "g actions"]
    """Transitions that T_g moves, by action, scaled up to the whole sample."""
    recurrence: Float[np.ndarray, " g"]
    """The share of moved T_g o that another episode contains; the identity's over all."""


class Sample:
    """Evidence with its codes; everything is computed once, when it is first needed."""

    def __init__(
        self, evidence: Evidence, vocabulary: Vocabulary, num_actions: int, max_rows: int
    ) -> None:
        self.evidence, self.vocabulary, self.num_actions = evidence, vocabulary, num_actions
        self.action = np.asarray(evidence.action, np.int64)
        self.cluster = clusters(np.asarray(evidence.episode))
        self._before = ImageCodes(vocabulary, evidence.observation)
        self._after = self._before.beside(evidence.next_observation)
        self._kept: dict[int, tuple[np.ndarray, np.ndarray]] = {}
        own = vocabulary.identity
        self.changed = self.before(own) != self.after(own)
        self.kind, self.kinds = outcome_kinds(evidence.reward, evidence.terminated)
        self.rows = thinned(len(self.action), max_rows)

    def _codes(self, element: int) -> tuple[np.ndarray, np.ndarray]:
        if element not in self._kept:
            self._kept[element] = (self._before.of(element), self._after.of(element))
        return self._kept[element]

    def before(self, element: int) -> UInt64[np.ndarray, " n"]:
        """Codes of T o."""
        return self._codes(int(element))[0]

    def after(self, element: int) -> UInt64[np.ndarray, " n"]:
        """Codes of T o'."""
        return self._codes(int(element))[1]

    def moved(self, element: int) -> Bool[np.ndarray, " n"]:
        """Whether T moves o or o'."""
        own = self.vocabulary.identity
        before, after = self._codes(int(element))
        return (before != self.before(own)) | (after != self.after(own))

    @cached_property
    def screen(self) -> Screen:
        """Every transform on all rows, or on a thinned sample where the vocabulary is long."""
        own, size, count = self.vocabulary.identity, self.vocabulary.size, len(self.action)
        rows = thinned(count, count if size <= LONG_LIST else SCREENED_ROWS)
        known = lookup.table(self.before(own), self.before(own), self.cluster)
        before, after = self.before(own)[rows], self.after(own)[rows]
        action, cluster, share = self.action[rows], self.cluster[rows], np.full(size, np.nan)
        number = np.zeros((size, self.num_actions), int)
        for elements in np.split(np.arange(size), range(TOGETHER, size, TOGETHER)):
            image, following = self._images_of(elements, rows)
            moved = (image != before) | (following != after)
            for a in range(self.num_actions):
                number[elements, a] = moved[:, action == a].sum(axis=1)
            asked = moved | (elements == own)[:, None]
            which, row = np.nonzero(asked)
            hits = known.number(image[asked], cluster[row]) > 0
            total = asked.sum(axis=1)
            found = np.bincount(which, hits, len(elements)) / np.maximum(total, 1)
            share[elements] = np.where(total > 0, found, np.nan)
        return Screen(number * count // len(rows), share)

    def _images_of(
        self, elements: Int[np.ndarray, " k"], rows: Int[np.ndarray, " m"]
    ) -> tuple[UInt64[np.ndarray, "k m"], UInt64[np.ndarray, "k m"]]:
        """Codes of (T o, T o'); those of a short vocabulary are kept."""
        if self.vocabulary.size > LONG_LIST:
            return self._before.of_many(elements, rows), self._after.of_many(elements, rows)
        pairs = [self._codes(int(g)) for g in elements]
        return np.stack([pair[0] for pair in pairs]), np.stack([pair[1] for pair in pairs])

    @property
    def trivial(self) -> Bool[np.ndarray, " g"]:
        """Transforms that moved nothing that was screened."""
        return np.asarray(self.screen.moved.sum(axis=1) == 0)

    @property
    def is_grid(self) -> bool:
        """Whether the observation has rows and columns that the transforms move as cells."""
        return self.evidence.observation.ndim in (3, 4) and self.vocabulary.swaps is None

    @property
    def permutes_cells(self) -> bool:
        """Whether every transform only moves whole cells, so that no content is new."""
        transforms = self.vocabulary.transforms
        return (
            isinstance(transforms, BlockGather)
            and transforms.sign is None
            and transforms.layout.block[:2] == (1, 1)
        )

    @property
    def is_vector(self) -> bool:
        """Whether observations are vectors of real numbers."""
        observation = self.evidence.observation
        return observation.ndim == 2 and np.issubdtype(observation.dtype, np.floating)

    def pair(self, element: int, rows: Any) -> tuple[np.ndarray, np.ndarray]:
        """(T o, T o') of the rows asked for."""
        after = self.evidence.next_observation[rows]
        return self.images(element, rows), transformed(self.vocabulary, element, after)

    def images(self, element: int, rows: Any) -> Shaped[np.ndarray, "m ..."]:
        """T o of the rows asked for."""
        return transformed(self.vocabulary, element, self.evidence.observation[rows])

    def cells(self, element: int, rows: Any) -> tuple[np.ndarray, np.ndarray]:
        """Codes of the cells of (T o, T o'), of the rows asked for, on grids."""
        if not self.permutes_cells:
            before, after = self.pair(element, rows)
            return cell_codes(before), cell_codes(after)
        assert isinstance(self.vocabulary.transforms, BlockGather)
        index = np.asarray(self.vocabulary.transforms.index)[element]
        shape = (-1, *self.vocabulary.shape[:2])
        contents = (self._before.blocks(rows), self._after.blocks(rows))
        if element == self.vocabulary.identity:
            return contents[0].reshape(shape), contents[1].reshape(shape)
        return contents[0][:, index].reshape(shape), contents[1][:, index].reshape(shape)

    def order(self, element: int) -> Int[np.ndarray, "9"] | None:
        """How T turns 3x3 neighbourhoods on grids, None where it does not just turn them."""
        return neighbour_order(self.vocabulary, element) if self.permutes_cells else None

    def halves(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """(fitted on, scored on) twice: alternate episodes."""
        odd = self.cluster % 2 == 1
        first, second = np.flatnonzero(odd), np.flatnonzero(~odd)
        return [(first, second), (second, first)]


def clusters(episode: Int[np.ndarray, " n"]) -> Int[np.ndarray, " n"]:
    """Episodes numbered 0, 1, ...; fewer than four are cut into eight stretches of time."""
    labels, place = np.unique(episode, return_inverse=True)
    if len(labels) >= 4:
        return place.astype(np.int64)
    return (np.arange(len(episode)) * 8 // max(len(episode), 1)).astype(np.int64)


def thinned(count: int, most: int) -> Int[np.ndarray, " m"]:
    """At most ``most`` places, evenly spread."""
    return np.unique(np.linspace(0, count - 1, min(count, most)).astype(np.int64))


def outcome_kinds(
    reward: Float[np.ndarray, " n"], terminated: Bool[np.ndarray, " n"]
) -> tuple[Int[np.ndarray, " n"], int]:
    """(kind, number of kinds): 0 is the commonest (reward, terminated), the others are events."""
    rounded = np.round(np.asarray(reward, float), 5) + 0.0
    pair = np.stack([rounded, np.asarray(terminated, float)], axis=1)
    _, place, number = np.unique(pair, axis=0, return_inverse=True, return_counts=True)
    rank = np.empty(len(number), np.int64)
    rank[np.argsort(-number, kind="stable")] = np.arange(len(number))
    return rank[place.ravel()], len(number)
