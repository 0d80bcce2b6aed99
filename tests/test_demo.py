"""The demo's folders: its own runs are taken up, others are left alone."""

import json

import pytest

from gcr_rl import cli, demo
from gcr_rl.presets import preset


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(demo, "FOLDER", tmp_path)
    return tmp_path


def put(run, config):
    run.mkdir()
    (run / "config.json").write_text(json.dumps(config.to_json()))


def test_runs_of_these_settings_are_taken_up_and_others_are_left_alone(folder, capsys):
    ours = preset("RotMirrorGrid", "ddqn", demo.SETTINGS)
    assert demo.folder_of("ddqn") == folder / "ddqn"
    put(folder / "ddqn", ours.replace({"seeds": (0, 1)}))
    assert demo.folder_of("ddqn") == folder / "ddqn-2"
    assert "ddqn has other settings" in capsys.readouterr().out
    put(folder / "ddqn-2", ours)
    assert demo.folder_of("ddqn") == folder / "ddqn-2"
    (folder / "ddqn-2" / "config.json").write_text("{")
    assert demo.folder_of("ddqn") == folder / "ddqn-3"


def test_what_is_left_to_do(folder):
    run = folder / "ddqn"
    train = demo.command_for("ddqn", run)
    assert train[2:5] == ["gcr_rl.cli", "train", "RotMirrorGrid"] and train[-1] == str(run)
    put(run, preset("RotMirrorGrid", "ddqn", demo.SETTINGS))
    assert demo.command_for("ddqn", run)[3:] == ["resume", str(run)]
    (run / "summary.json").write_text("{}")
    assert demo.command_for("ddqn", run) is None


@pytest.mark.parametrize("method", demo.METHODS)
def test_the_words_of_the_command_mean_the_settings(folder, method):
    words = demo.command_for(method, folder / method)[4:]
    _, config = cli._train_config(words)
    assert config == preset("RotMirrorGrid", method, demo.SETTINGS)
