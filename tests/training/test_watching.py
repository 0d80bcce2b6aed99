"""Certificates in a run: they arrive, are enforced, logged, summarised, and survive a resume."""

import dataclasses
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from planted import SETTINGS

from gcr_rl.errors import InputError
from gcr_rl.presets import preset
from gcr_rl.training import checkpoint, load, resume, train, watching
from gcr_rl.training.run_folder import WALL_CLOCK_FIELDS, read_rows, read_summary
from gcr_rl.training.runner import build_program
from gcr_rl.training.watching import Watch


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    config = preset("Probe-D4", "gcr-hard", SETTINGS)
    return train(config, tmp_path_factory.mktemp("watch") / "run")


def logged(path, name="log"):
    return [
        {key: value for key, value in row.items() if key not in WALL_CLOCK_FIELDS}
        for row in read_rows(path / f"{name}.jsonl")
    ]


def test_the_planted_group_is_found_enforced_and_reported(finished):
    rows = [row for row in logged(finished) if row["seed"] == 0]
    assert rows[0]["symmetry_in_force"] == 0
    assert rows[-1]["symmetry_in_force"] == 7
    found = read_summary(finished)["symmetry"]
    assert [found[seed]["name"] for seed in ("0", "1")] == ["D4", "D4"]
    run = load(finished)
    assert run.agent.level(run.agent_state) == 8
    vocabulary = run.agent.vocabulary
    observation = jax.random.randint(jax.random.key(0), vocabulary.shape, 0, 2).astype(jnp.uint8)
    value = np.asarray(run.q_values(observation))
    for g in range(1, 8):
        image = np.asarray(run.q_values(vocabulary.apply(g, observation)))
        np.testing.assert_allclose(np.sort(image), np.sort(value), atol=1e-5)


def test_a_resumed_run_keeps_its_certificates_and_ends_in_the_same_bits(finished, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(finished, copy)
    (copy / "summary.json").unlink()
    for path in copy.glob("checkpoints/step-*"):
        if int(path.name[5:17]) > 1_000:
            path.unlink()
    resume(copy)
    assert logged(copy) == logged(finished)
    assert logged(copy, "evaluation") == logged(finished, "evaluation")
    a, b = (checkpoint.load_newest(path / "checkpoints")[0] for path in (copy, finished))
    for name, array in a.items():
        np.testing.assert_array_equal(array, b[name], err_msg=name)


def test_a_checkpoint_without_standings_is_one_clear_error(finished, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(finished, copy)
    (copy / "summary.json").unlink()
    for path in copy.glob("checkpoints/step-*.json"):
        path.write_text(path.read_text().replace('"symmetry"', '"other"'))
    with pytest.raises(InputError, match="certificates"):
        resume(copy)


@pytest.mark.slow
def test_without_relabelling_the_transforms_leave_actions_as_they_are(tmp_path):
    config = preset("Probe-D4", "no-relabel", {**SETTINGS, "seeds": (0,)})
    run = load(train(config, tmp_path / "run"))
    relabel = np.asarray(run.agent_state.group.relabel)
    np.testing.assert_array_equal(relabel, np.broadcast_to(np.arange(4), relabel.shape))
    assert run.agent.level(run.agent_state) > 1


def test_a_promoted_certificate_is_enforced_where_provisional_ones_are_not(monkeypatch):
    config = preset("Probe-D4", "gcr-hard", {**SETTINGS, "symmetry.provisional": False})
    program = build_program(config)
    state = program.init(jnp.array(config.seeds, jnp.int32))
    watch = Watch(config, program)
    blank = watch.standings[0]
    place = 1
    early = dataclasses.replace(blank, provisional=np.arange(len(blank.certified)) == place)
    full = dataclasses.replace(early, provisional=blank.certified, certified=early.provisional)
    for found, level in ((early, 1), (full, 8)):
        monkeypatch.setattr(
            watching, "check_all", lambda standings, *rest, now=found: [now] * len(standings)
        )
        state = watch.after(state, 10_000)
        assert program.agent.level(state.agent) == level
