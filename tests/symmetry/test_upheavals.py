"""What happens seldom must be symmetric too: a swarm that shifts once in thirty steps."""

import numpy as np
import pytest

from gcr_rl.symmetry import Evidence, discover, lenses, vocabulary_kinds
from gcr_rl.symmetry.certificate import CertificateSettings, Scores, judge

MIRROR = 4
SIDE = 9


def picture(agent, swarm):
    """An agent in the lowest row and a swarm of three times three above it, which wraps."""
    planes = np.zeros((SIDE, SIDE, 2), np.uint8)
    planes[SIDE - 1, agent, 0] = 1
    planes[1:4, (swarm + np.arange(3)) % SIDE, 1] = 1
    return planes


def play(both_ways, episodes=200, length=60):
    """A random walk of the agent; the swarm goes right, or right or left with equal chances."""
    generator = np.random.default_rng(0)
    rows = []
    for episode in range(episodes):
        agent, swarm = generator.integers(SIDE), generator.integers(SIDE)
        now = picture(agent, swarm)
        for clock in range(1, length + 1):
            action = generator.integers(3)
            agent = int(np.clip(agent + action - 1, 0, SIDE - 1))
            if clock % 30 == 0:
                swarm += generator.choice([-1, 1]) if both_ways else 1
            then = picture(agent, swarm)
            rows.append((now, action, float(agent == SIDE // 2), then, False, False, episode))
            now = then
    return Evidence(*map(np.asarray, zip(*rows, strict=True)))


@pytest.fixture(scope="module")
def dihedral():
    return vocabulary_kinds.dihedral((SIDE, SIDE, 2))


def test_a_swarm_that_goes_one_way_keeps_the_mirror_from_being_certified(dihedral, monkeypatch):
    evidence = play(both_ways=False)
    assert not discover(evidence, dihedral, 3).certified[1:].any()
    # The other tests alone would let it pass: the swarm moves in one transition of thirty.
    monkeypatch.setattr(lenses, "_upheavals", lambda sample, patches: [])
    assert discover(evidence, dihedral, 3).certified[MIRROR]


def test_a_swarm_that_goes_both_ways_does_not(dihedral):
    found = discover(play(both_ways=True), dihedral, 3)
    assert found.certified[MIRROR]
    assert found.relabel[MIRROR].tolist() == [2, 1, 0]


@pytest.mark.parametrize(("known", "doubted"), [(0, True), (9, True), (10, False), (20, False)])
def test_images_that_a_model_does_not_know_raise_doubt(known, doubted):
    images = np.where(np.arange(20) < known, 0.0, np.nan)[None]
    scores = Scores("any", np.zeros(20), images, np.zeros(20, int), True, speaks_for=False)
    found = judge(scores, np.ones((1, 20), bool), np.arange(20), CertificateSettings())
    assert bool(found.doubt[0]) is doubted
    assert found.verdict[0] == 0  # it lets nothing pass
