"""Held-out transitions seen through the models that speak for them.

Tables of whole observations (where observations recur), tables of 3x3 neighbourhoods (grids and
images) and regressions (vectors). Each gives :class:`Scores` for forward dynamics and for
rewards and ends. ``relabel[k]`` is the relabelling that goes with element ``elements[k]``.
"""

import numpy as np
from jaxtyping import Bool, Float, Int

from gcr_rl.symmetry import lookup, smooth
from gcr_rl.symmetry.certificate import CertificateSettings, Scores, table_fits
from gcr_rl.symmetry.codes import join
from gcr_rl.symmetry.sample import Sample

MAX_KINDS = 8
"""Outcomes (reward, ended) that are told apart as kinds; more are a continuous reward."""


def forward_scores(
    sample: Sample,
    elements: Int[np.ndarray, " k"],
    relabel: Int[np.ndarray, "k actions"],
    settings: CertificateSettings,
) -> list[Scores]:
    """Every model of the forward dynamics that this kind of observation has."""
    found = [_exact(sample, elements, relabel, settings, reward=False)]
    if sample.is_grid:
        found.append(_patches(sample, elements, relabel, settings))
    if sample.is_vector:
        found += _regressions(sample, elements, relabel, settings)
    found = [one._replace(target=relabel[:, sample.action]) for one in found]
    return [*found, *_upheavals(sample, found[1])] if sample.is_grid else found


def _upheavals(sample: Sample, patches: Scores) -> list[Scores]:
    """The neighbourhoods of transitions in which unusually many cells changed, by themselves.

    What happens seldom (a swarm that moves once in a dozen steps) hardly counts in a mean over
    all transitions, but a symmetry must hold for it too. How many cells change is the same
    for an image, so that a true symmetry has nothing to fear from this choice. Such changes are
    often hard to predict: paired with their images they contradict (or, where these are never
    seen, raise doubt), alone they prove nothing.
    """
    if not sample.permutes_cells:
        return []  # an image may change more cells, or fewer
    before, after = sample.cells(sample.vocabulary.identity, slice(None))
    number = (before != after).sum(axis=(1, 2))
    large = number > max(2 * np.median(number), 4)
    if not large.any():
        return []
    group = np.where(large, 0, -1)
    return [
        patches._replace(
            name="neighbourhoods of upheavals", group=group, fits=True, target=None,
            speaks_for=False,
        )
    ]  # fmt: skip


def reward_scores(
    sample: Sample,
    elements: Int[np.ndarray, " k"],
    relabel: Int[np.ndarray, "k actions"],
    settings: CertificateSettings,
) -> list[Scores]:
    """Every model of rewards and ends that this kind of observation has."""
    found = [_exact(sample, elements, relabel, settings, reward=True)]
    if sample.is_grid:
        found += _signatures(sample, elements, relabel, settings)
    if sample.is_vector:
        found += _classifiers(sample, elements, relabel, settings)
    return found


def _exact(
    sample: Sample,
    elements: Int[np.ndarray, " k"],
    relabel: Int[np.ndarray, "k actions"],
    settings: CertificateSettings,
    reward: bool,
) -> Scores:
    """p(o' | o, a), or p(reward, end | o, a), by whole observations."""
    own, cluster = sample.vocabulary.identity, sample.cluster
    kind = sample.kind.astype(np.uint64)
    key = join(sample.before(own), sample.action)
    known = lookup.table(key, kind if reward else sample.after(own), cluster)
    identity = known.score(key, kind if reward else sample.after(own), cluster)
    images = np.stack(
        [
            known.score(
                join(sample.before(g), row[sample.action]),
                kind if reward else sample.after(g),
                cluster,
            )
            for g, row in zip(elements, relabel, strict=True)
        ]
    )
    group = _event_group(sample) if reward else sample.action
    fits = table_fits(identity, group, settings.fit, settings.min_count)
    return Scores("rewards of whole observations" if reward else "whole observations",
                  identity, images, group, fits)  # fmt: skip


def _event_group(sample: Sample) -> Int[np.ndarray, " n"]:
    """0: the commonest outcome, 1: events; one group where most outcomes are events."""
    event = (sample.kind > 0).astype(np.int64)
    return event if event.mean() <= 0.5 else np.ones_like(event)


def _spread(values: np.ndarray, rows: np.ndarray, count: int) -> np.ndarray:
    """Values of the chosen rows at their places, NaN elsewhere."""
    full = np.full((*values.shape[:-1], count), np.nan)
    full[..., rows] = values
    return full


def _patches(
    sample: Sample,
    elements: Int[np.ndarray, " k"],
    relabel: Int[np.ndarray, "k actions"],
    settings: CertificateSettings,
) -> Scores:
    """p(content after | 3x3 neighbourhood, a) over the cells that changed or might have."""
    rows, count = sample.rows, len(sample.action)
    action, cluster = sample.action[rows], sample.cluster[rows]
    cells, moody = lookup.suspects(*sample.cells(sample.vocabulary.identity, rows))
    model = lookup.fit_patches(cells, action, cluster)
    identity = lookup.score_patches(model, cells, action, cluster)
    images = []
    for g, row in zip(elements, relabel, strict=True):
        order, image = sample.order(int(g)), cells
        if order is None:
            image, _ = lookup.suspects(*sample.cells(int(g), rows), moody)
        images.append(lookup.score_patches(model, image, row[action], cluster, order))
    fits = table_fits(identity, action, settings.fit, settings.min_count)
    return Scores(
        "neighbourhoods",
        _spread(identity, rows, count),
        _spread(np.stack(images), rows, count),
        sample.action,
        fits,
    )


def _signatures(
    sample: Sample,
    elements: Int[np.ndarray, " k"],
    relabel: Int[np.ndarray, "k actions"],
    settings: CertificateSettings,
) -> list[Scores]:
    """p(reward, end | what changed), without the action (then no image differs) and with it."""
    own, cluster = sample.vocabulary.identity, sample.cluster
    what = lookup.signature(*sample.cells(own, slice(None)))
    seen = [what] * len(elements)
    if not sample.permutes_cells:
        seen = [lookup.signature(*sample.cells(int(g), slice(None))) for g in elements]
    kind, group = sample.kind.astype(np.uint64), _event_group(sample)

    def scores(name: str, with_action: bool) -> Scores:
        def key(code: np.ndarray, action: np.ndarray) -> np.ndarray:
            return join(code, action) if with_action else code

        known = lookup.table(key(what, sample.action), kind, cluster)
        identity = known.score(key(what, sample.action), kind, cluster)
        images = np.stack(
            [
                known.score(key(code, row[sample.action]), kind, cluster)
                for code, row in zip(seen, relabel, strict=True)
            ]
        )
        if with_action or not sample.permutes_cells:
            fits = table_fits(identity, group, settings.fit, settings.min_count)
            return Scores(name, identity, images, group, fits)
        identity = explain_novelty(identity, group)
        # It passes wherever it fits, so it must explain every kind of event by itself.
        fits = table_fits(identity, sample.kind, 0.75 * settings.fit, 1)
        images = np.tile(identity, (len(elements), 1))
        return Scores(name, identity, images, group, fits, True, settings.min_events)

    return [scores("rewards of changes", False), scores("rewards of changes by action", True)]


def explain_novelty(
    score: Float[np.ndarray, " n"], group: Int[np.ndarray, " n"], rate: float = 0.01
) -> Float[np.ndarray, " n"]:
    """An event whose change no other transition shows is explained, if such changes are rare.

    Where at most ``rate`` of the other transitions are new, that an event coincides with a new
    change by chance has that probability: it counts as predicted with probability 1/2.
    """
    new, ordinary = np.isnan(score), group == 0
    if not ordinary.any() or new[ordinary].mean() > rate:
        return score
    return np.where(new & (group == 1), np.log(0.5), score)


def _regressions(
    sample: Sample,
    elements: Int[np.ndarray, " k"],
    relabel: Int[np.ndarray, "k actions"],
    settings: CertificateSettings,
    reward: bool = False,
) -> list[Scores]:
    """Squared errors of o' - o = W_a φ(o), one model a coordinate; or of reward = W_a φ(o)."""
    evidence, count = sample.evidence, len(sample.action)
    pairs = [sample.pair(int(g), slice(None)) for g in (sample.vocabulary.identity, *elements)]
    rows = np.concatenate([np.arange(sample.num_actions)[None], relabel])

    def target(pair: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
        return np.asarray(evidence.reward)[:, None] if reward else pair[1] - pair[0]

    width = target(pairs[0]).shape[1]
    least = 2 + evidence.observation.shape[1]
    error = np.full((1 + len(elements), count, width), np.nan)
    for fitted, scored in sample.halves():
        action = sample.action[fitted]
        if min(np.bincount(action, minlength=sample.num_actions)) < least:
            continue
        model = smooth.fit_regression(
            pairs[0][0][fitted], action, target(pairs[0])[fitted], sample.num_actions
        )
        for k, (pair, row) in enumerate(zip(pairs, rows, strict=True)):
            predicted = model.predict(pair[0][scored].astype(float), row[sample.action[scored]])
            error[k, scored] = predicted - target(pair)[scored]
    known = ~np.isnan(error[0, :, 0])
    if not known.any():
        return []
    noun = "reward" if reward else "coordinate"
    seen = target(pairs[0])[known]
    return [
        _regression(f"regression of {noun} {d}", error[:, :, d], known, seen[:, d], sample,
                    settings)
        for d in range(width)
    ]  # fmt: skip


def _regression(
    name: str,
    error: Float[np.ndarray, "k n"],
    known: Bool[np.ndarray, " n"],
    target: Float[np.ndarray, " m"],
    sample: Sample,
    settings: CertificateSettings,
) -> Scores:
    spread = np.array([float(target.std())])
    unit = smooth.error_unit(error[0, known][:, None], spread)
    explained = 1.0 - float(unit[0]) ** 2 / max(float(spread[0]) ** 2, 1e-30)
    # a coordinate that never changes by itself must not be changed by an image either
    fits = explained >= settings.r_squared or spread[0] == 0.0
    scores = smooth.error_scores(error, unit)
    return Scores(name, scores[0], scores[1:], sample.action, bool(fits))


def _classifiers(
    sample: Sample,
    elements: Int[np.ndarray, " k"],
    relabel: Int[np.ndarray, "k actions"],
    settings: CertificateSettings,
) -> list[Scores]:
    """Logistic regressions of every kind of outcome on o, a and o'.

    Rewards of many values are regressed instead, and the kinds are ended or not.
    """
    kind, found = sample.kind, []
    if sample.kinds > MAX_KINDS:
        found = _regressions(sample, elements, relabel, settings, reward=True)
        kind = np.asarray(sample.evidence.terminated, np.int64)
    kinds = int(kind.max())
    if kinds == 0:
        return found
    scores = np.full((1 + len(elements), len(kind)), np.nan)
    one_hot = np.eye(sample.num_actions)
    pairs = [sample.pair(int(g), slice(None)) for g in (sample.vocabulary.identity, *elements)]
    rows = np.concatenate([np.arange(sample.num_actions)[None], relabel])
    for fitted, scored in sample.halves():
        if len(np.unique(kind[fitted])) <= kinds:
            continue
        before, after = (part[fitted].astype(float) for part in pairs[0])
        model = smooth.fit_classifier(
            before, after, one_hot[sample.action[fitted]], kind[fitted], kinds
        )
        for k, (pair, row) in enumerate(zip(pairs, rows, strict=True)):
            o, following = (part[scored].astype(float) for part in pair)
            margins = model.margins(o, following, one_hot[row[sample.action[scored]]])
            scores[k, scored] = smooth.kind_scores(margins, kind[scored])
    fits = table_fits(scores[0], kind, settings.fit, 1)
    return [*found, Scores("classifier of outcomes", scores[0], scores[1:], kind, fits)]
