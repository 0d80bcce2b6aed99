"""The statistics of the certificate: paired tests, verdicts, support, homomorphism.

A model gives every held-out transition two scores: how well (o, a) -> o' is predicted, and how
well its image (T o, Π a) -> T o' is. T may be a symmetry only if the second is no worse.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from gcr_rl.errors import InputError
from gcr_rl.symmetry.lookup import CLIP
from gcr_rl.symmetry.relabel import wilson
from gcr_rl.symmetry.sorting import connected
from gcr_rl.symmetry.vocabulary import (
    Vocabulary,
    compose_signed,
    invert_signed,
    signed_key,
    signed_rows,
)

PASSED, SILENT, CONTRADICTED = 1, 0, -1
FEW = 5
"""What an exchange of blocks must have seen of its own to be judged with others: readings of
every action, comparisons of actions that it relabels."""


@dataclass(frozen=True)
class CertificateSettings:
    """Thresholds of the certificate; the defaults are those of the published figures."""

    z: float = 2.33
    """Standard errors that every confidence bound keeps away."""
    min_count: int = 20
    """Transitions per action (and per kind of event) that a model must cover before it speaks."""
    agreement: float = 0.9
    """Least lower bound of an action's agreement, relative to the identity's own agreement."""
    identity_agreement: float = 0.5
    """Least agreement of the inverse head itself, per action."""
    confidence: float = 0.75
    """Probability that the head must give to an action before its reading counts."""
    tolerance: float = 0.25
    """Nats per transition by which an image may be predicted worse than its original.

    A contradiction costs about 5 nats: 0.25 is one contradiction in twenty transitions."""
    fit: float = 1.0
    """A table speaks if its own mean score on held-out transitions is at least -fit nats."""
    r_squared: float = 0.9
    """A regression speaks if it explains this share of the variance, in every coordinate."""
    min_events: int = 1
    """Explained reward or termination events that make a provisional certificate a full one."""
    untested_events: int = 3
    """With this many events and no model that explains them, nothing is provisional."""
    support_slack: float = 1.5
    """How much farther than usual (90 % quantile) an image's nearest neighbour may be."""
    support_share: float = 0.5
    """The share of images that must be as near as that."""
    head_steps: int = 400
    """Gradient steps of the inverse head."""
    max_rows: int = 4096
    """Transitions that models of patches and nearest neighbours look at; the rest is thinned."""

    def __post_init__(self) -> None:
        for field in ("z", "tolerance", "fit", "support_slack"):
            if not getattr(self, field) > 0:
                raise InputError(field, getattr(self, field), "a positive number")
        for field in (
            "agreement",
            "identity_agreement",
            "confidence",
            "r_squared",
            "support_share",
        ):
            if not 0 <= getattr(self, field) <= 1:
                raise InputError(field, getattr(self, field), "a share from 0 to 1")
        for field in ("min_count", "min_events", "head_steps", "max_rows"):
            if getattr(self, field) < 1:
                raise InputError(field, getattr(self, field), "at least 1")


class Scores(NamedTuple):
    """One model's scores; NaN where it has no opinion.

    ``group`` splits the transitions that are tested apart (by action, by kind of event), -1
    leaves one out. An ``invariant`` model cannot tell an image from its original, so it needs
    to fit and nothing else.
    """

    name: str
    identity: Float[np.ndarray, " n"]
    images: Float[np.ndarray, "k n"]
    group: Int[np.ndarray, " n"]
    fits: bool
    invariant: bool = False
    min_count: int | None = None
    target: Int[np.ndarray, "k n"] | None = None
    """The group an image falls into (its relabelled action), where images change groups."""
    speaks_for: bool = True
    """Whether it may let a transform pass; one that may not can still contradict it."""


class Exchanges(NamedTuple):
    """What transforms that exchange two blocks of an observation have in common."""

    blocks: Int[np.ndarray, "k 2"]
    relabelled: Bool[np.ndarray, "k n"]
    """Transitions whose action the transform relabels."""


class Verdict(NamedTuple):
    """What a part of the certificate says of every transform."""

    verdict: Int[np.ndarray, " k"]
    """PASSED, SILENT or CONTRADICTED."""
    bound: Float[np.ndarray, " k"]
    """The worst lower bound over models that speak and groups; NaN if none does."""
    covered: Int[np.ndarray, " k"]
    """Transitions that the models that speak could compare."""
    doubt: Bool[np.ndarray, " k"]
    """Whether a model has seen too little to contradict, yet what it saw looks bad."""


def table_fits(
    identity: Float[np.ndarray, " n"], group: Int[np.ndarray, " n"], fit: float, least: int
) -> bool:
    """Whether every group that is seen ``least`` times has a mean score of at least -fit."""
    known = ~np.isnan(identity) & (group >= 0)
    if not known.any():
        return False
    for g in np.unique(group[known]):
        mine = identity[known & (group == g)]
        if len(mine) >= least and mine.mean() < -fit:
            return False
    return True


def judge(
    scores: Scores,
    moved: Bool[np.ndarray, "k n"],
    cluster: Int[np.ndarray, " n"],
    settings: CertificateSettings,
    exchanges: Exchanges | None = None,
) -> Verdict:
    """Differences image - original, per group, with standard errors over episodes.

    Paired by transition and, where images change groups, also between the images that fall
    into a group and the originals of that group: noise that belongs to one action must stay
    with it. A transform passes if in every group mean - z·se - 2 CLIP/n >= -tolerance, and is
    contradicted if in some group mean + z·se < -tolerance.

    Exchanges that link the same blocks stand or fall together, since their products are
    exchanges of those blocks as well: those that are neither contradicted nor in doubt also
    pass if they do so taken together, each with comparisons enough for one group, ``FEW`` of
    them of actions that it relabels, and a mean of at least -tolerance in all groups.
    """
    count = len(moved)
    result = silence(count)
    if not scores.fits:
        return result
    least, clean = scores.min_count or settings.min_count, np.zeros(count, bool)
    for k in range(count):
        number, lower, middle, upper = _bounds(
            scores, np.array([k]), moved, cluster, settings.z, least
        )
        result.covered[k] = number.sum()
        enough, clean[k] = number >= least, not (middle < -settings.tolerance).any()
        result.doubt[k] = ((number >= 3) & (upper < -settings.tolerance)).any()
        if enough.any():
            hardly = (2 * middle - upper)[enough]  # the lower bound before caution
            result.doubt[k] |= hardly.min() < -settings.tolerance
            result.bound[k] = lower[enough].min()
        if (enough & (upper < -settings.tolerance)).any():
            result.verdict[k] = CONTRADICTED
        elif enough.all() and (lower >= -settings.tolerance).all():
            result.verdict[k] = PASSED
    if exchanges is not None:
        clean &= (result.verdict != CONTRADICTED) & ~result.doubt & (result.covered >= least)
        compared = moved & ~np.isnan(scores.images - scores.identity)
        clean &= (compared & exchanges.relabelled).sum(axis=1) >= FEW
        for members in linked(exchanges.blocks, np.flatnonzero(clean)):
            number, lower, _, _ = _bounds(scores, members, moved, cluster, settings.z, least)
            if (number >= least).all() and (lower >= -settings.tolerance).all():
                result.verdict[members] = PASSED
                result.bound[members] = np.fmax(result.bound[members], lower.min())
    if scores.speaks_for:
        return result
    return combine([against(result), strange(scores, moved, settings)])


def linked(
    swaps: Int[np.ndarray, "k 2"], members: Int[np.ndarray, " m"]
) -> list[Int[np.ndarray, " part"]]:
    """The exchanges asked for, put together where a chain of them shares blocks."""
    first, second = swaps[members].T
    parts = connected(zip(first.tolist(), second.tolist(), strict=True))
    return [members[np.isin(first, part)] for part in parts]


def silence(count: int) -> Verdict:
    """No model speaks."""
    return Verdict(
        np.zeros(count, int),
        np.full(count, np.nan),
        np.zeros(count, int),
        np.zeros(count, bool),
    )


def strange(
    scores: Scores, moved: Bool[np.ndarray, "k n"], settings: CertificateSettings
) -> Verdict:
    """In doubt is a transform whose images a model does not know although it knows the originals.

    A symmetry maps what happens onto what happens, so that images are about as familiar; less
    than ``support_share`` of them, and the transform has to wait.
    """
    asked = moved & ~np.isnan(scores.identity) & (scores.group >= 0)
    number, known = asked.sum(axis=1), (asked & ~np.isnan(scores.images)).sum(axis=1)
    few = known < settings.support_share * number
    return silence(len(moved))._replace(doubt=few & (number >= settings.min_count))


def against(verdict: Verdict) -> Verdict:
    """The same without anything that would let a transform pass."""
    return verdict._replace(verdict=np.minimum(verdict.verdict, SILENT))


def combine(verdicts: list[Verdict]) -> Verdict:
    """One contradiction outweighs everything; a model in doubt keeps another from passing."""
    table = np.stack([v.verdict for v in verdicts])
    bound = np.stack([v.bound for v in verdicts])
    doubt = np.asarray(np.stack([v.doubt for v in verdicts]).any(axis=0))
    contradicted = (table == CONTRADICTED).any(axis=0)
    passed = (table == PASSED).any(axis=0) & ~doubt
    verdict = np.where(contradicted, CONTRADICTED, np.where(passed, PASSED, SILENT))
    worst = np.where(np.isnan(bound), np.inf, bound).min(axis=0)
    covered = np.stack([v.covered for v in verdicts]).max(axis=0)
    return Verdict(verdict, np.where(np.isinf(worst), np.nan, worst), covered, doubt)


Bound = tuple[int, float, float, float]
"""(n, lower bound, mean, upper bound)."""


class Bounds(NamedTuple):
    """The same of several groups."""

    number: Int[np.ndarray, " groups"]
    lower: Float[np.ndarray, " groups"]
    mean: Float[np.ndarray, " groups"]
    upper: Float[np.ndarray, " groups"]


def _bounds(
    scores: Scores,
    chosen: Int[np.ndarray, " m"],
    moved: Bool[np.ndarray, "k n"],
    cluster: Int[np.ndarray, " n"],
    z: float,
    least: int,
) -> Bounds:
    """The bounds of all groups of the chosen transforms taken together, paired ones first."""
    images = scores.images[chosen]
    difference = images - scores.identity
    present = np.unique(scores.group[scores.group >= 0])
    known = moved[chosen] & ~np.isnan(difference)
    episode = np.broadcast_to(cluster, known.shape)
    caution = 0.0 if scores.invariant else 2 * CLIP
    found = []
    for g in present:
        mine = known & (scores.group == g)
        found.append(_bound(difference[mine], episode[mine], z, caution, least))
    own = ~np.isnan(scores.identity)
    for g in present if scores.target is not None else ():
        assert scores.target is not None
        landed, originals = known & (scores.target[chosen] == g), own & (scores.group == g)
        if not landed.any() or not originals.any():
            continue
        usual = scores.identity[originals]
        number, lower, mean, upper = _bound(
            images[landed] - usual.mean(), episode[landed], z, caution, least
        )
        # the error of the usual score is added in quadrature to that of the images
        _, _, _, reach = _bound(usual - usual.mean(), cluster[originals], z, 0.0, least)
        wider = float(np.hypot(upper - mean, reach)) - (upper - mean)
        found.append((number, lower - wider, mean, upper + wider))
    table = np.array(found, float).reshape(-1, 4)
    return Bounds(table[:, 0].astype(int), table[:, 1], table[:, 2], table[:, 3])


def _bound(
    difference: Float[np.ndarray, " m"],
    cluster: Int[np.ndarray, " m"],
    z: float,
    caution: float,
    least: int,
) -> Bound:
    """Errors inside an episode may all be one error; ``caution`` / n is taken off below."""
    number = len(difference)
    if number == 0:
        return 0, np.nan, np.nan, np.nan
    mean = float(difference.mean())
    _, place = np.unique(cluster, return_inverse=True)
    total = np.bincount(place, weights=difference - mean)
    error = z * float(np.sqrt(np.square(total).sum())) / number
    return number, mean - error - caution / max(number, least), mean, mean + error


def near_share(
    original: Float[np.ndarray, " q"], image: Float[np.ndarray, " q"], slack: float
) -> float:
    """The share of images whose neighbour is near: within slack times the originals' 90 % quantile.

    The paper's α as a test.
    """
    reach = slack * float(np.quantile(original, 0.9)) + 1e-6
    return float((image <= reach).mean())


def support_verdict(
    share: Float[np.ndarray, " k"], episodes: int, settings: CertificateSettings
) -> Int[np.ndarray, " k"]:
    """Passed at ``support_share``; contradicted if that is out of the reach of chance.

    Episodes are what is drawn: with few of them, images may be missing by chance (an eighth of
    the maps each), and a Wilson interval over episodes of three standard errors says so.
    """
    hits = np.minimum(share, 1.0) * episodes
    _, upper = wilson(hits, np.full(hits.shape, float(episodes)), 3.0)
    wanted = settings.support_share
    return np.where(share >= wanted, PASSED, np.where(upper < wanted, CONTRADICTED, SILENT))


def consistent(
    vocabulary: Vocabulary,
    relabel: Int[np.ndarray, "g actions"],
    candidate: Bool[np.ndarray, " g"],
    refused: Bool[np.ndarray, " g"],
) -> Bool[np.ndarray, " g"]:
    """The largest part of the candidates, dropped greedily, that is free of conflicts.

    A conflict of g and h: relabel[gh] differs from relabel[g]∘relabel[h] although gh is a
    candidate, or gh was refused, so that the generated group would enforce it nevertheless.
    Open vocabularies of involutions are checked on conjugates ghg⁻¹, which they list.
    """
    kept = candidate.copy()
    kept[vocabulary.identity] = True
    while True:
        members = np.flatnonzero(kept)
        conflicts = np.zeros(vocabulary.size, int)
        for g, h, product, row in _products(vocabulary, relabel, members):
            wrong = not np.array_equal(row, relabel[product]) if kept[product] else refused[product]
            if wrong:
                for one in {g, h} | ({product} if kept[product] else set()):
                    conflicts[one] += 1
        conflicts[vocabulary.identity] = 0
        if not conflicts.any():
            return kept & candidate
        kept[int(conflicts.argmax())] = False


def _products(
    vocabulary: Vocabulary, relabel: Int[np.ndarray, "g actions"], members: Int[np.ndarray, " m"]
) -> list[tuple[int, int, int, Int[np.ndarray, " actions"]]]:
    """(g, h, element, relabelling that it must have) for all products that the list contains."""
    found = []
    if vocabulary.compose is not None:
        for g in members:
            for h in members:
                product = int(vocabulary.compose[g, h])
                found.append((int(g), int(h), product, relabel[g][relabel[h]]))
        return found
    rows = signed_rows(vocabulary)
    place = {signed_key(row): i for i, row in enumerate(rows)}
    for g in members:
        inverse = int(vocabulary.inverse[g])
        found.append((int(g), int(g), inverse, np.argsort(relabel[g])))
        for h in members:
            turned = compose_signed(compose_signed(rows[g], rows[h]), invert_signed(rows[g]))
            if signed_key(turned) in place:
                row = relabel[g][relabel[h][np.argsort(relabel[g])]]
                found.append((int(g), int(h), place[signed_key(turned)], row))
    return found
