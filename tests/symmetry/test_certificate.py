"""The statistics: paired tests, support, homomorphism, tables and regressions."""

import numpy as np
import pytest

from gcr_rl.envs import dihedral
from gcr_rl.errors import InputError
from gcr_rl.symmetry import CertificateSettings, lookup, smooth
from gcr_rl.symmetry.certificate import (
    CONTRADICTED,
    PASSED,
    SILENT,
    Exchanges,
    Scores,
    combine,
    consistent,
    judge,
    linked,
    near_share,
    support_verdict,
    table_fits,
)
from gcr_rl.symmetry.lenses import explain_novelty
from gcr_rl.symmetry.sample import clusters, outcome_kinds
from gcr_rl.symmetry.vocabulary_kinds import dihedral as dihedral_vocabulary
from gcr_rl.symmetry.vocabulary_kinds import slot_permutations

SETTINGS = CertificateSettings()


def verdict_of(difference, group=None, fits=True, invariant=False, min_count=None, episodes=10):
    count = len(difference)
    group = np.zeros(count, int) if group is None else group
    scores = Scores("m", np.zeros(count), np.asarray(difference)[None], group, fits, invariant,
                    min_count)  # fmt: skip
    moved = np.ones((1, count), bool)
    return judge(scores, moved, np.arange(count) % episodes, SETTINGS)


def test_equal_scores_pass_only_with_enough_transitions():
    assert verdict_of(np.zeros(100)).verdict[0] == PASSED
    assert verdict_of(np.zeros(19)).verdict[0] == SILENT


def test_one_bad_action_among_four_contradicts():
    difference, group = np.zeros(400), np.repeat(np.arange(4), 100)
    difference[300:] = np.where(np.arange(100) % 2 == 0, -5.0, 0.0)
    assert verdict_of(difference, group).verdict[0] == CONTRADICTED


def test_an_action_that_was_never_compared_keeps_silent():
    difference, group = np.zeros(400), np.repeat(np.arange(4), 100)
    difference[300:] = np.nan
    assert verdict_of(difference, group).verdict[0] == SILENT


def exchanges_judged(images, blocks, relabelled=None):
    """Transitions of six episodes by turns, in two groups, under exchanges of ``blocks``."""
    images = np.asarray(images, float)
    group, cluster = np.arange(images.shape[1]) % 2, np.arange(images.shape[1]) % 6
    scores = Scores("m", np.zeros(images.shape[1]), images, group, True)
    touched = np.ones(images.shape, bool) if relabelled is None else relabelled
    exchanges = Exchanges(np.asarray(blocks), touched)
    return judge(scores, np.ones(images.shape, bool), cluster, SETTINGS, exchanges)


def test_exchanges_of_the_same_blocks_pass_together_where_none_passes_alone():
    triangle = [(0, 1), (0, 2), (1, 2)]
    alone = [verdict_of(np.zeros(30), np.arange(30) % 2).verdict[0] for _ in triangle]
    assert alone == [SILENT] * 3
    assert exchanges_judged(np.zeros((3, 30)), triangle).verdict.tolist() == [PASSED] * 3
    apart = [(0, 1), (2, 3), (4, 5)]  # nothing links them: each on its own evidence
    assert exchanges_judged(np.zeros((3, 30)), apart).verdict.tolist() == [SILENT] * 3


def test_an_exchange_that_looks_bad_or_was_hardly_seen_is_not_carried_by_the_others():
    triangle = [(0, 1), (0, 2), (1, 2)]
    images = np.zeros((3, 60))
    images[1, [0, 2]] = -5.0  # too few to contradict, yet the mean is beyond the tolerance
    assert exchanges_judged(images, triangle).verdict.tolist() == [PASSED, SILENT, PASSED]
    images = np.zeros((3, 60))
    images[1, 10:] = np.nan
    assert exchanges_judged(images, triangle).verdict.tolist() == [PASSED, SILENT, PASSED]
    relabelled = np.ones((3, 60), bool)
    relabelled[1, 4:] = False  # four comparisons of the actions that it exchanges
    found = exchanges_judged(np.zeros((3, 60)), triangle, relabelled)
    assert found.verdict.tolist() == [PASSED, SILENT, PASSED]


def test_exchanges_are_linked_by_chains_of_blocks():
    blocks = np.array([(0, 1), (2, 3), (1, 4), (5, 6), (3, 6)])
    parts = sorted(sorted(part.tolist()) for part in linked(blocks, np.arange(5)))
    assert parts == [[0, 2], [1, 3, 4]]
    assert [part.tolist() for part in linked(blocks, np.array([1]))] == [[1]]
    assert linked(blocks, np.zeros(0, int)) == []


def test_a_model_that_does_not_fit_says_nothing():
    found = verdict_of(np.zeros(400), fits=False)
    assert found.verdict[0] == SILENT and np.isnan(found.bound[0])
    assert not table_fits(np.full(50, -4.0), np.zeros(50, int), fit=1.0, least=20)
    assert table_fits(np.full(50, -0.2), np.zeros(50, int), fit=1.0, least=20)


def test_errors_of_one_episode_are_one_error():
    difference = np.zeros(200)
    difference[::50] = -3.0  # four errors, all of them in the same one of 50 episodes
    one = verdict_of(difference, episodes=50).bound[0]
    spread = np.zeros(200)
    spread[[0, 51, 102, 153]] = -3.0
    assert one < verdict_of(spread, episodes=50).bound[0]


def test_doubt_of_one_model_keeps_another_from_passing_and_contradiction_wins():
    good, few_bad = verdict_of(np.zeros(100)), verdict_of(np.full(5, -5.0))
    bad, silent = verdict_of(np.full(100, -5.0)), verdict_of(np.full(100, np.nan))
    assert combine([good, silent]).verdict[0] == PASSED
    assert combine([good, few_bad]).verdict[0] == SILENT
    assert combine([good, bad]).verdict[0] == CONTRADICTED


def test_support_needs_images_as_near_as_originals():
    near, far = np.full(100, 1.0), np.full(100, 9.0)
    assert near_share(near, near, 1.5) == 1.0 and near_share(near, far, 1.5) == 0.0


def test_support_is_contradicted_only_over_enough_episodes():
    shares = np.array([0.6, 0.0])
    assert support_verdict(shares, 6, SETTINGS).tolist() == [PASSED, SILENT]
    assert support_verdict(shares, 12, SETTINGS).tolist() == [PASSED, CONTRADICTED]


def true_dihedral():
    return dihedral_vocabulary((5, 5, 1)), np.stack([dihedral.relabelling(g) for g in range(8)])


def test_a_true_group_is_consistent_and_a_transposed_quarter_turn_is_dropped():
    vocabulary, relabel = true_dihedral()
    everything, nothing = np.ones(8, bool), np.zeros(8, bool)
    assert consistent(vocabulary, relabel, everything, nothing).all()
    wrong = relabel.copy()
    wrong[1] = relabel[3]
    kept = consistent(vocabulary, wrong, everything, nothing)
    assert not kept[1] and kept[[2, 3, 4, 5, 6, 7]].sum() >= 3


def test_elements_whose_product_was_refused_do_not_both_stay():
    vocabulary, relabel = true_dihedral()
    candidate, refused = np.zeros(8, bool), np.zeros(8, bool)
    candidate[[2, 4]] = True
    refused[vocabulary.compose[2, 4]] = True
    assert consistent(vocabulary, relabel, candidate, refused).sum() == 1


def test_swaps_are_checked_on_conjugates():
    vocabulary = slot_permutations(3, 1)
    relabel = np.array([[0, 1, 2], [1, 0, 2], [2, 1, 0], [0, 2, 1]])
    candidate = np.array([False, True, True, True])
    assert consistent(vocabulary, relabel, candidate, ~candidate[::-1] & False).sum() == 3
    relabel[3] = [0, 1, 2]
    assert consistent(vocabulary, relabel, candidate, np.zeros(4, bool)).sum() < 3


def test_a_table_leaves_the_own_episode_out():
    key, outcome = np.array([7, 7, 7], np.uint64), np.array([1, 1, 2], np.uint64)
    episode = np.array([0, 0, 1])
    known = lookup.table(key, outcome, episode)
    assert known.number(key, episode).tolist() == [1, 1, 2]
    score = known.score(key, outcome, episode)
    np.testing.assert_allclose(score, np.log([0.05 / 1.1, 0.05 / 1.1, 0.05 / 2.1]))
    assert np.isnan(known.score(np.array([8], np.uint64), outcome[:1], episode[:1])).all()


def test_new_changes_explain_events_only_where_new_changes_are_rare():
    score, group = np.zeros(1000), np.zeros(1000, int)
    group[0], score[0] = 1, np.nan
    assert explain_novelty(score, group)[0] == np.log(0.5)
    score[1:50] = np.nan
    assert np.isnan(explain_novelty(score, group)[0])


def test_outcomes_are_numbered_by_how_common_they_are():
    kind, kinds = outcome_kinds(np.array([0.0, 0, 1, 0]), np.array([False, False, True, True]))
    assert kinds == 3 and kind[:2].tolist() == [0, 0] and set(kind[2:]) == {1, 2}


def test_few_episodes_are_cut_into_stretches():
    assert len(np.unique(clusters(np.zeros(80, int)))) == 8
    assert clusters(np.array([5, 5, 9, 9, 11, 12])).tolist() == [0, 0, 1, 1, 2, 3]


def test_regression_recovers_a_cubic_map():
    generator = np.random.default_rng(0)
    x, action = generator.normal(size=(600, 2)), generator.integers(2, size=600)
    target = np.stack([x[:, 0] ** 3 - x[:, 1], (2.0 * action - 1) * x[:, 0] * x[:, 1]], axis=1)
    model = smooth.fit_regression(x[:400], action[:400], target[:400], 2)
    np.testing.assert_allclose(model.predict(x[400:], action[400:]), target[400:], atol=1e-4)


def test_classifier_tells_two_kinds_of_events_apart():
    generator = np.random.default_rng(0)
    x = generator.normal(size=(1500, 2))
    kind = np.where(x[:, 0] > 1, 1, np.where(x[:, 0] < -1, 2, 0))
    none = np.ones((1500, 1))
    model = smooth.fit_classifier(x, x, none, kind, 2)
    scores = smooth.kind_scores(model.margins(x, x, none), kind)
    mirrored = smooth.kind_scores(model.margins(-x, -x, none), kind)
    assert scores[kind > 0].mean() > -0.5 and mirrored[kind > 0].mean() < -1.5


def test_settings_are_checked():
    with pytest.raises(InputError, match="agreement"):
        CertificateSettings(agreement=1.5)
    with pytest.raises(InputError, match="min_count"):
        CertificateSettings(min_count=0)
