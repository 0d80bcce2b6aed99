"""From transitions to certified symmetries: the five parts of the certificate put together.

``discover`` judges one sample; ``Watch`` (see :mod:`gcr_rl.symmetry.watch`) does so on a schedule.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jaxtyping import Bool, Float, Int, PRNGKeyArray

from gcr_rl.errors import InputError
from gcr_rl.symmetry import inverse, lookup
from gcr_rl.symmetry.certificate import (
    CONTRADICTED,
    FEW,
    PASSED,
    SILENT,
    CertificateSettings,
    Exchanges,
    Scores,
    Verdict,
    against,
    combine,
    consistent,
    judge,
    linked,
    near_share,
    support_verdict,
)
from gcr_rl.symmetry.codes import join
from gcr_rl.symmetry.distinct import Distinct
from gcr_rl.symmetry.lenses import forward_scores, reward_scores
from gcr_rl.symmetry.relabel import (
    ActionClasses,
    action_classes,
    agreement,
    count_predictions,
    read_classes,
    relabelling,
    wilson,
)
from gcr_rl.symmetry.sample import LONG_LIST, Evidence, Sample, thinned
from gcr_rl.symmetry.vocabulary import Vocabulary

PARTS = ("support", "agreement", "forward", "reward", "homomorphism")
QUERIES, REFERENCES = 128, 2048
"""Observations whose nearest neighbours are sought, and among how many."""
FEW_QUERIES, FEW_REFERENCES = 32, 512
"""The same for long lists of transforms of images."""


@dataclass(frozen=True, eq=False)
class Discovery:
    """What a sample says of every transform of a vocabulary; row 0 is the identity.

    ``verdict[p, g]`` is 1 (passed), 0 (silent: too little seen) or -1 (contradicted) for the
    parts of ``PARTS``; ``statistic[p, g]`` is the number that was compared with its threshold.
    """

    relabel: Int[np.ndarray, "g actions"]
    certified: Bool[np.ndarray, " g"]
    provisional: Bool[np.ndarray, " g"]
    """Nothing is contradicted, but events or episodes are too few for a full certificate."""
    trivial: Bool[np.ndarray, " g"]
    verdict: Int[np.ndarray, "parts g"]
    statistic: Float[np.ndarray, "parts g"]
    counts: Int[np.ndarray, "g actions actions"]
    """Evidence counts C_g[a, b] of the inverse head, 0 where T was refused before."""
    classes: ActionClasses
    transitions: int
    events: int
    head: str
    """The inverse head that was read: "table" or "learned"."""

    @property
    def refused(self) -> Bool[np.ndarray, " g"]:
        """Transforms that some part contradicts."""
        return (self.verdict == CONTRADICTED).any(axis=0)

    @property
    def disproved(self) -> Bool[np.ndarray, " g"]:
        """The same without support: a policy may stop visiting images, which proves nothing."""
        return (self.verdict[1:] == CONTRADICTED).any(axis=0)

    def relabellings(self, provisional: bool = True) -> dict[int, list[int]]:
        """{element: relabelling} for :func:`gcr_rl.symmetry.generate`, trivial ones left out."""
        chosen = self.certified | (self.provisional & provisional)
        return {int(g): self.relabel[g].tolist() for g in np.flatnonzero(chosen) if g > 0}

    def log(self) -> dict[str, float]:
        """Every statistic as a plain number, ``part/element``."""
        found = {
            "certified": float(self.certified[1:].sum()),
            "provisional": float(self.provisional[1:].sum()),
            "trivial": float(self.trivial[1:].sum()),
            "transitions": float(self.transitions),
            "events": float(self.events),
            "identity_agreement": float(self.statistic[1, 0]),
            "action_classes": float(len(np.unique(self.classes.label))),
        }
        for p, part in enumerate(PARTS):
            found[f"{part}/passed"] = float((self.verdict[p, 1:] == PASSED).sum())
            for g in np.flatnonzero(~np.isnan(self.statistic[p])):
                found[f"{part}/{g}"] = float(self.statistic[p, g])
        return found


def discover(
    evidence: Evidence,
    vocabulary: Vocabulary,
    num_actions: int,
    settings: CertificateSettings | None = None,
    *,
    key: PRNGKeyArray | None = None,
) -> Discovery:
    """Which T_g are symmetries, with which relabelling: certified on held-out transitions.

    Parts that cost little come first, and a transform that one of them contradicts or leaves
    open goes no further. Uncertified transforms change nothing.
    """
    settings = settings or CertificateSettings()
    key = jax.random.key(0) if key is None else key
    evidence = _checked(evidence, vocabulary, num_actions)
    sample = Sample(evidence, vocabulary, num_actions, settings.max_rows)
    size = vocabulary.size
    verdict, statistic = np.zeros((5, size), int), np.full((5, size), np.nan)

    verdict[0], statistic[0] = support(sample, settings)
    alive = np.flatnonzero((verdict[0] != CONTRADICTED) & ~np.isnan(statistic[0]))
    counts, classes, head = inverse_counts(sample, alive, settings, key)
    relabel = np.tile(np.arange(num_actions, dtype=np.int32), (size, 1))
    relabel[alive] = relabelling(counts[alive], classes) if len(alive) else relabel[alive]
    verdict[1], statistic[1] = agreements(sample, counts, relabel, classes, alive, settings)

    alive = alive[verdict[1, alive] == PASSED]
    if len(alive):
        scores = forward_scores(sample, alive, relabel[alive], settings)
        judged = _judged(scores, sample, alive, relabel, settings)
        verdict[2, alive], statistic[2, alive] = judged.verdict, judged.bound
        alive = alive[judged.verdict == PASSED]
    doubtful = alive[:0]
    if len(alive):
        scores = reward_scores(sample, alive, relabel[alive], settings)
        judged = _judged_rewards(scores, sample, alive, relabel, settings)
        verdict[3, alive], statistic[3, alive] = judged.verdict, judged.bound
        doubtful = alive[judged.doubt]
    events = int((sample.kind > 0).sum())
    early = events < settings.untested_events
    possible = np.zeros(size, bool)
    possible[alive] = (verdict[3, alive] == PASSED) | (early & (verdict[3, alive] == SILENT))
    possible[doubtful] = False
    refused = (verdict == CONTRADICTED).any(axis=0)
    agreed = consistent(vocabulary, relabel, possible, refused)
    verdict[4] = np.where(possible, np.where(agreed, PASSED, CONTRADICTED), SILENT)
    full = agreed & (verdict[[0, 3]] == PASSED).all(axis=0)
    return Discovery(
        relabel, full, agreed & ~full, sample.trivial, verdict, statistic, counts, classes,
        len(sample.action), events, head,
    )  # fmt: skip


def support(
    sample: Sample, settings: CertificateSettings
) -> tuple[Int[np.ndarray, " g"], Float[np.ndarray, " g"]]:
    """Support: is T o as near to other episodes as o is?

    Where observations recur in other episodes (half of them), images must recur at least half
    as often; elsewhere the distances of nearest neighbours are compared.
    """
    size, own = sample.vocabulary.size, sample.vocabulary.identity
    statistic, verdict = np.full(size, np.nan), np.zeros(size, int)
    moved, recurrence = sample.screen
    asked = np.flatnonzero((moved >= settings.min_count).all(axis=1))
    base, episodes = float(recurrence[own]), int(sample.cluster.max()) + 1
    share = recurrence[asked] / max(base, 1e-12)
    if base < 0.5:
        # Over many episodes, images that hardly ever recur where dozens should have are far
        # off, and their neighbours need not be sought. Of long lists over images (swaps of tiles)
        # nothing is sought before the sample is large: that would cost more than it tells.
        few = base * moved[asked].sum(axis=1) < 30
        sought = few | (share >= 0.2) | (episodes < 50)
        costly = size > LONG_LIST and not sample.is_vector
        if costly and len(sample.action) < settings.max_rows:
            share[few], sought = np.nan, sought & ~few
        measure = _distances(sample, *((FEW_QUERIES, FEW_REFERENCES) if costly else ()))
        for place in np.flatnonzero(sought):
            share[place] = near_share(*measure(int(asked[place])), settings.support_slack)
    known = ~np.isnan(share)
    statistic[asked] = share
    verdict[asked[known]] = support_verdict(share[known], episodes, settings)
    return verdict, statistic


Distances = tuple[Float[np.ndarray, " q"], Float[np.ndarray, " q"]]


def _distances(
    sample: Sample, queries: int = QUERIES, most: int = REFERENCES
) -> Callable[[int], Distances]:
    """g -> distances of o and of T_g o to their nearest neighbours in other episodes."""
    observation, count = sample.evidence.observation, len(sample.action)
    references = thinned(count, most)
    spread = observation[:].std(axis=0) if sample.is_vector else None

    def points(asked: np.ndarray) -> Float[np.ndarray, "q d"]:
        flat = asked.reshape(len(asked), -1)
        scaled = flat if spread is None else flat / np.where(spread > 0, spread, 1.0)
        return scaled.astype(np.float32)

    known = points(observation[references])
    # Where all references are alike no product is needed: most of a picture never changes.
    alike = (known == known[:1]).all(axis=0)
    varied, usual_value = np.flatnonzero(~alike), np.where(alike, known[0], np.float32(0.0))
    known = np.ascontiguousarray(known[:, varied])
    length = (known**2).sum(axis=1)

    def nearest(asked: np.ndarray, rows: Int[np.ndarray, " q"]) -> Float[np.ndarray, " q"]:
        near = points(asked) - usual_value
        square = length - 2 * near[:, varied] @ known.T
        square[sample.cluster[rows][:, None] == sample.cluster[references]] = np.inf
        return np.sqrt(np.maximum(square.min(axis=1) + (near**2).sum(axis=1), 0.0))

    usual = thinned(count, queries)
    original = nearest(observation[usual], usual)

    def measure(element: int) -> Distances:
        moved = sample.moved(element)
        mine = moved[usual]
        if 2 * mine.sum() >= len(usual):
            rows = usual[mine]
            return original[mine], nearest(sample.images(element, rows), rows)
        places = np.flatnonzero(moved)
        rows = places[thinned(len(places), queries)]
        return nearest(observation[rows], rows), nearest(sample.images(element, rows), rows)

    return measure


def inverse_counts(
    sample: Sample,
    elements: Int[np.ndarray, " k"],
    settings: CertificateSettings,
    key: PRNGKeyArray,
) -> tuple[Int[np.ndarray, "g a a"], ActionClasses, str]:
    """Evidence counts of the head that knows its own actions best, table or learned.

    Only transitions that changed something and that T moves are counted; the identity's counts
    are over all that changed something.
    """
    actions, own = sample.num_actions, sample.vocabulary.identity
    used = np.flatnonzero(sample.changed)
    heads = {"table": _table_head(sample, used)}
    if (sample.is_vector or sample.is_grid) and len(elements):
        heads["learned"] = _learned_head(sample, used, settings, key)
    action, taken = sample.action[used], np.bincount(sample.action, minlength=actions)
    read = {name: head(own) for name, head in heads.items()}
    right = {
        name: float((np.nan_to_num(one).argmax(axis=1) == action)[~np.isnan(one[:, 0])].sum())
        for name, one in read.items()
    }
    name = max(right, key=lambda one: right[one])
    guess = np.where(np.isnan(read[name][:, 0]), -1, np.nan_to_num(read[name]).argmax(axis=1))
    changed = np.bincount(action, minlength=actions)
    classes = action_classes(count_predictions(action, guess, actions), changed, taken)
    counts = np.zeros((sample.vocabulary.size, actions, actions), np.int64)
    for g in (own, *elements):
        chances = read[name] if g == own else heads[name](int(g))
        sure = read_classes(chances, classes.label, settings.confidence)
        counted = sure if g == own else np.where(sample.moved(g)[used], sure, -1)
        counts[g] = count_predictions(action, counted, actions)
    return counts, classes, name


Reader = Callable[[int], Float[np.ndarray, "m actions"]]
"""p(a | T_g o, T_g o') of the transitions in use, for an element g."""


def _table_head(sample: Sample, used: Int[np.ndarray, " m"]) -> Reader:
    own, cluster = sample.vocabulary.identity, sample.cluster[used]

    def pairs(element: int) -> np.ndarray:
        return join(sample.before(element)[used], sample.after(element)[used])

    known = lookup.table(pairs(own), sample.action[used].astype(np.uint64), cluster)
    return lambda g: lookup.action_shares(known, pairs(g), cluster, sample.num_actions)


def _learned_head(
    sample: Sample,
    used: Int[np.ndarray, " m"],
    settings: CertificateSettings,
    key: PRNGKeyArray,
) -> Reader:
    """The learned head, fitted on one half of the episodes and read on the other."""
    place = np.full(len(sample.action), -1)
    place[used] = np.arange(len(used))
    own = sample.vocabulary.identity
    fits: list[tuple[inverse.Head, inverse.Scaling | None, np.ndarray, inverse.Windows]] = []

    def windows(element: int, rows: np.ndarray, scale: inverse.Scaling | None) -> inverse.Windows:
        pair = sample.pair(element, rows)
        if scale is None:
            return inverse.grid_windows(*pair)
        return inverse.vector_windows(*pair, scale)

    for half_key, halves in zip(jax.random.split(key), sample.halves(), strict=True):
        fitted, scored = (_some(rows[place[rows] >= 0], settings.max_rows) for rows in halves)
        if len(fitted) >= sample.num_actions and len(scored):
            scale = None if sample.is_grid else inverse.scaling(*sample.pair(own, fitted))
            head = inverse.fit(
                half_key, windows(own, fitted, scale), sample.action[fitted], sample.num_actions,
                steps=settings.head_steps,
            )  # fmt: skip
            fits.append((head, scale, scored, windows(own, scored, scale)))

    def read(element: int) -> Float[np.ndarray, "m actions"]:
        chances, order = np.full((len(used), sample.num_actions), np.nan), sample.order(element)
        for head, scale, scored, seen in fits:
            if order is not None:
                image = inverse.turned(seen, order)
            else:
                image = windows(element, scored, scale)
            chances[place[scored]] = inverse.probabilities(head, image)
        return chances

    return read


def _some(rows: Int[np.ndarray, " n"], most: int) -> Int[np.ndarray, " m"]:
    return rows[thinned(len(rows), most)] if len(rows) else rows


def agreements(
    sample: Sample,
    counts: Int[np.ndarray, "g a a"],
    relabel: Int[np.ndarray, "g a"],
    classes: ActionClasses,
    elements: Int[np.ndarray, " k"],
    settings: CertificateSettings,
) -> tuple[Int[np.ndarray, " g"], Float[np.ndarray, " g"]]:
    """Agreement: the worst action's Wilson bound, relative to the identity's own agreement.

    Exchanges that link the same blocks are also counted together, as in :func:`judge`, if each
    of them has a few readings of every action and enough of these agree.
    """
    own = sample.vocabulary.identity
    size = sample.vocabulary.size
    hits, trials = agreement(counts, relabel, classes)
    lower, upper = wilson(hits, trials, settings.z)
    base = hits[own] / np.maximum(trials[own], 1)
    active = ~classes.inert
    verdict, statistic = np.zeros(size, int), np.full(size, np.nan)
    knows = bool((base[active] >= settings.identity_agreement).all()) and bool(active.any())
    alone = len(np.unique(classes.label)) == 1 and sample.num_actions > 1
    statistic[own] = float(base[active].min()) if active.any() else np.nan
    if not knows or alone:
        return verdict, statistic
    for g in elements:
        low = lower[g, active] / base[active]
        high = upper[g, active] / base[active]
        statistic[g] = float(low.min())
        if (trials[g, active] >= settings.min_count).all() and statistic[g] >= settings.agreement:
            verdict[g] = PASSED
        elif (high < settings.agreement).any():
            verdict[g] = CONTRADICTED
    if sample.vocabulary.swaps is not None:
        usual, open_ones = base[active], elements[verdict[elements] != CONTRADICTED]
        tally = hits[:, active], trials[:, active]
        for members, low in _together(sample, tally, usual, open_ones, settings):
            verdict[members], statistic[members] = PASSED, np.fmax(statistic[members], low)
    verdict[own] = PASSED
    return verdict, statistic


def _together(
    sample: Sample,
    tally: tuple[Int[np.ndarray, "g a"], Int[np.ndarray, "g a"]],
    usual: Float[np.ndarray, " a"],
    elements: Int[np.ndarray, " k"],
    settings: CertificateSettings,
) -> Iterator[tuple[Int[np.ndarray, " part"], float]]:
    """Linked exchanges that agree when their readings are counted together, and their bound."""
    hits, trials = tally
    share = hits[elements] / np.maximum(trials[elements], 1)
    fair = (trials[elements] >= FEW) & (share >= settings.agreement * usual)
    for members in linked(np.asarray(sample.vocabulary.swaps), elements[fair.all(axis=1)]):
        number = trials[members].sum(axis=0)
        lower, _ = wilson(hits[members].sum(axis=0), number, settings.z)
        low = float((lower / usual).min())
        if (number >= settings.min_count).all() and low >= settings.agreement:
            yield members, low


def _judged(
    scores: list[Scores],
    sample: Sample,
    elements: Int[np.ndarray, " k"],
    relabel: Int[np.ndarray, "g actions"],
    settings: CertificateSettings,
) -> Verdict:
    moved = np.stack([sample.moved(g) for g in elements])
    swaps, exchanges = sample.vocabulary.swaps, None
    if swaps is not None:
        relabelled = relabel[elements][:, sample.action] != sample.action
        exchanges = Exchanges(np.asarray(swaps)[elements], relabelled)
    return combine([judge(one, moved, sample.cluster, settings, exchanges) for one in scores])


def _judged_rewards(
    scores: list[Scores],
    sample: Sample,
    elements: Int[np.ndarray, " k"],
    relabel: Int[np.ndarray, "g actions"],
    settings: CertificateSettings,
) -> Verdict:
    """As ``_judged``; silent while events are missing: constant rewards prove nothing."""
    judged = _judged(scores, sample, elements, relabel, settings)
    if (sample.kind > 0).sum() >= settings.min_events:
        return judged
    return against(judged)


def _checked(evidence: Evidence, vocabulary: Vocabulary, num_actions: int) -> Evidence:
    """Host arrays of one length; refuses wrong shapes, actions and numbers."""
    arrays: Any = (part if isinstance(part, Distinct) else np.asarray(part) for part in evidence)
    evidence = Evidence(*arrays)
    count = len(evidence.action)
    if count == 0:
        raise InputError("evidence", "no transitions", "at least one transition")
    for field, part in evidence._asdict().items():
        if len(part) != count:
            raise InputError(field, len(part), f"{count} entries, one per action")
    for field in ("observation", "next_observation"):
        part = getattr(evidence, field)
        if part.shape[1:] != vocabulary.shape:
            raise InputError(field, part.shape[1:], f"shape {vocabulary.shape}")
        kinds = part.kinds if isinstance(part, Distinct) else part
        if np.issubdtype(part.dtype, np.floating) and not np.isfinite(kinds).all():
            raise InputError(field, "not finite", "numbers without NaN or infinity")
    if not np.isfinite(np.asarray(evidence.reward, float)).all():
        raise InputError("reward", "not finite", "numbers without NaN or infinity")
    low, high = int(evidence.action.min()), int(evidence.action.max())
    if low < 0 or high >= num_actions:
        raise InputError("action", (low, high), f"0 to {num_actions - 1}")
    return evidence
