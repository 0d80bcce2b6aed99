"""Planted groups are certified, traps are not; schedule, revocation and report."""

import contextlib
import io
import json
import re
from pathlib import Path

import jax
import numpy as np
import pytest

from gcr_rl import envs
from gcr_rl.envs.probes_symmetry import planted, play, traps
from gcr_rl.envs.rotmirror import read_map
from gcr_rl.errors import InputError
from gcr_rl.symmetry import (
    Evidence,
    Schedule,
    check,
    describe,
    discover,
    due,
    generate,
    init_standing,
    init_window,
    record,
    recovered,
    vocabulary_kinds,
)
from gcr_rl.symmetry.recovered import figure
from gcr_rl.symmetry.watch import ordered, standing_data, standing_from, update

PLANTED = {probe.name: probe for probe in planted()}
TRAPS = {probe.name: probe for probe in traps()}


def found(probe, seed, count):
    vocabulary = getattr(vocabulary_kinds, probe.vocabulary)(*probe.arguments)
    evidence = Evidence(*play(probe, seed, count))
    return vocabulary, discover(evidence, vocabulary, probe.num_actions)


def named(vocabulary, discovery, provisional=False):
    return {vocabulary.names[g]: row for g, row in discovery.relabellings(provisional).items()}


@pytest.mark.parametrize("name", ["C2", "C4", "S3", "C2xC2"])
def test_planted_group_is_certified(name):
    probe = PLANTED[name]
    vocabulary, discovery = found(probe, 3, probe.budget)
    assert named(vocabulary, discovery) == probe.truth
    group = generate(vocabulary, discovery.relabellings(), probe.num_actions)
    assert describe(group) == name


@pytest.mark.parametrize("name", [name for name in TRAPS if "swirl" not in name])
def test_trap_is_not_sprung(name):
    probe = TRAPS[name]
    vocabulary, discovery = found(probe, 3, 2500)
    for element, row in named(vocabulary, discovery).items():
        assert probe.truth.get(element) == row


def rot_mirror_play(seed, count):
    """Random play over the tables of RotMirrorGrid, without compiling anything."""
    environment, params = envs.make("RotMirrorGrid")
    generator, tables = np.random.default_rng(seed), environment.tables
    rows, state, time, episode = [], int(generator.choice(tables.starts)), 0, 0
    for _ in range(count):
        action = int(generator.integers(4))
        following, time = int(tables.successors[state, action]), time + 1
        ended = bool(tables.goal[following])
        rows.append((state, action, 0.0 if ended else -1.0, following, ended, time >= 200, episode))
        state = following
        if ended or time >= 200:
            state, time, episode = int(generator.choice(tables.starts)), 0, episode + 1
    columns = [np.array(column) for column in zip(*rows, strict=True)]
    walls, _ = read_map()
    size, cells = len(walls), environment.cells

    def observe(states):
        agent = np.zeros((len(states), size * size, 1), np.uint8)
        agent[np.arange(len(states)), tables.position[states]] = 1
        planes = agent.reshape(len(states), size, size, 1)
        return np.concatenate([tables.scenery[states // cells], planes], axis=-1)

    columns[0], columns[3] = observe(columns[0]), observe(columns[3])
    return Evidence(*columns), environment.planted_symmetries(params)


def test_rot_mirror_grid_is_provisional_within_a_thousand_transitions():
    evidence, truth = rot_mirror_play(0, 1000)
    vocabulary = vocabulary_kinds.dihedral((19, 19, 3))
    discovery = discover(evidence, vocabulary, 4)
    assert discovery.relabellings() == {g: truth[g].relabel.tolist() for g in range(1, 8)}
    log = discovery.log()
    assert all(isinstance(value, float) for value in log.values())
    assert log["certified"] + log["provisional"] == 7 and "forward/1" in log


def test_without_events_everything_stays_provisional():
    evidence, _ = rot_mirror_play(0, 1000)
    quiet = evidence._replace(reward=np.full(1000, -1.0), terminated=np.zeros(1000, bool))
    discovery = discover(quiet, vocabulary_kinds.dihedral((19, 19, 3)), 4)
    assert discovery.certified.sum() == 0 and discovery.provisional.sum() == 7


def test_transforms_that_change_nothing_are_trivial():
    evidence = Evidence(*play(PLANTED["C2"], 0, 200))
    padded = np.pad(evidence.observation, ((0, 0), (0, 1)))
    following = np.pad(evidence.next_observation, ((0, 0), (0, 1)))
    vocabulary = vocabulary_kinds.sign_flips(3)
    discovery = discover(
        evidence._replace(observation=padded, next_observation=following), vocabulary, 2
    )
    assert discovery.trivial[vocabulary.index("flip of 2")]
    assert not discovery.certified[discovery.trivial].any()


def test_bad_input_is_named():
    vocabulary = vocabulary_kinds.sign_flips(2)
    evidence = Evidence(*play(PLANTED["C2"], 0, 60))
    with pytest.raises(InputError, match="action"):
        discover(evidence, vocabulary, 1)
    with pytest.raises(InputError, match="shape"):
        discover(evidence, vocabulary_kinds.sign_flips(3), 2)
    with pytest.raises(InputError, match="not finite"):
        discover(evidence._replace(observation=evidence.observation * np.nan), vocabulary, 2)
    with pytest.raises(InputError, match="reward"):
        discover(evidence._replace(reward=evidence.reward[:5]), vocabulary, 2)


def test_window_keeps_the_latest_transitions_in_order():
    evidence = Evidence(*play(PLANTED["C2"], 0, 10))
    window, write = init_window(4, evidence.observation[0]), jax.jit(record)
    for i in range(10):
        window = write(window, Evidence(*(part[i] for part in evidence)))
    kept = ordered(window)
    assert int(window.seen) == 10
    for part, whole in zip(kept, evidence, strict=True):
        np.testing.assert_allclose(part, whole[6:])


def filled(probe, seed, count):
    evidence = Evidence(*play(probe, seed, count))
    window = init_window(count, evidence.observation[0])
    return window._replace(rows=evidence, seen=np.int32(count))


def test_schedule_slows_down_and_a_window_that_contradicts_revokes():
    good, bad = PLANTED["C2"], TRAPS["prize on one side"]
    vocabulary = vocabulary_kinds.sign_flips(2)
    schedule = Schedule(first=2000, pause=100)
    standing = init_standing(vocabulary, 2, schedule)
    assert not due(standing, 1999) and due(standing, 2000)
    window = filled(good, 3, 3000)
    standing = check(standing, window, vocabulary, 2, schedule)
    assert standing.relabellings() == {1: [1, 0]} and standing.certified_at[1] == 3000
    pauses = []
    for _ in range(2):
        standing = update(standing, standing.discovery, 3000, vocabulary, schedule)
        pauses.append(standing.pause)
    assert pauses == [400, 1600]

    report = recovered(standing, vocabulary, 2)
    assert (report.name, report.order) == ("C2", 2)
    assert report.data()["elements"][0]["relabel"] == [1, 0]
    assert report.elements[0].residual < 0.05 and report.elements[0].status == "certified"

    standing = check(standing, filled(bad, 3, 3000), vocabulary, 2, schedule)
    assert standing.relabellings() == {} and standing.revoked[1] == 1
    assert standing.certified_at[1] == -1 and standing.pause == 100
    assert recovered(standing, vocabulary, 2).name == "trivial"


def test_a_standing_survives_a_file():
    vocabulary = vocabulary_kinds.sign_flips(2)
    window = filled(PLANTED["C2"], 3, 3000)
    standing = check(init_standing(vocabulary, 2), window, vocabulary, 2)
    saved = json.loads(json.dumps(standing_data(standing)))
    again = standing_from(saved, vocabulary, 2)
    assert standing_data(again) == standing_data(standing) and again.discovery is None
    assert again.relabellings() == {1: [1, 0]} and again.relabel.dtype == standing.relabel.dtype
    after = [check(one, window, vocabulary, 2) for one in (standing, again)]
    assert after[0].log() == after[1].log()
    with pytest.raises(InputError, match="relabel"):
        standing_from(saved, vocabulary_kinds.sign_flips(3), 2)
    with pytest.raises(InputError, match="pause"):
        standing_from({k: v for k, v in saved.items() if k != "pause"}, vocabulary, 2)


def test_pauses_grow_faster_where_everything_was_refused():
    vocabulary = vocabulary_kinds.dihedral((7, 7, 2))
    window = filled(TRAPS["rewards of every cell"], 3, 2500)
    standing = check(init_standing(vocabulary, 4), window, vocabulary, 4)
    assert standing.discovery.refused[1:].all() and standing.pause == 1000
    patient = check(
        init_standing(vocabulary, 4), filled(TRAPS["hidden goal"], 3, 60), vocabulary, 4
    )
    assert not patient.discovery.refused[1:].all() and patient.pause == 625


def test_a_silent_window_leaves_the_standing_alone():
    vocabulary = vocabulary_kinds.sign_flips(2)
    standing = check(init_standing(vocabulary, 2), filled(PLANTED["C2"], 3, 3000), vocabulary, 2)
    again = check(standing, filled(PLANTED["C2"], 4, 60), vocabulary, 2)
    assert again.certified[1] and again.revoked.sum() == 0


@pytest.mark.parametrize("name", ["D4", "S3"])
def test_report_and_figure(name, tmp_path):
    probe = PLANTED[name]
    vocabulary = getattr(vocabulary_kinds, probe.vocabulary)(*probe.arguments)
    window = filled(probe, 1, 1500)
    standing = check(init_standing(vocabulary, probe.num_actions), window, vocabulary,
                     probe.num_actions)  # fmt: skip
    group = recovered(standing, vocabulary, probe.num_actions)
    assert group.name == name and group.order == {"D4": 8, "S3": 6}[name]
    assert len(set(group.orbits)) == {"D4": 10, "S3": 1}[name]
    picture = tmp_path / "group.png"
    figure(group, standing, vocabulary, np.asarray(window.rows.observation[0])).savefig(picture)
    assert picture.stat().st_size > 5000


def test_the_page_runs_and_prints_what_it_says():
    page = (Path(__file__).parents[2] / "docs" / "symmetry-certificate.md").read_text()
    code, expected = re.search(
        r"```python\n(.*?)```\n\n<!-- test: output -->\n```text\n(.*?)```", page, re.DOTALL
    ).groups()
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(code, {})
    assert printed.getvalue() == expected
