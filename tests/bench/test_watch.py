"""Watching reads what is there, complete or not, and changes nothing."""

import json
import os
import time

import pytest

from gcr_rl import cli
from gcr_rl.bench.watch import _patience, _views, draw, look, runs_in, sparkline, watch
from gcr_rl.errors import InputError


def make_run(folder, *, evaluations=3, tail="", summary=None):
    folder.mkdir(parents=True)
    config = {"task": "[red]Chain", "method": "ddqn", "steps": 1_000, "seeds": [0, 1]}
    (folder / "config.json").write_text(json.dumps(config))
    rows = [
        {"step": 100 * i, "seed": seed, "mean_return": float(i + seed)}
        for i in range(evaluations)
        for seed in (0, 1)
    ]
    (folder / "evaluation.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows) + tail)
    log = {"step": 400, "seed": 1, "steps_per_s": 100.0}
    (folder / "log.jsonl").write_text(json.dumps(log) + "\n" + tail)
    if summary:
        (folder / "summary.json").write_text(json.dumps(summary))
    return folder


def age(folder, seconds):
    for path in folder.iterdir():
        os.utime(path, (time.time() - seconds,) * 2)


@pytest.mark.parametrize("tail", ["", '{"step": 500, "mean_ret', "not json\n"])
def test_a_run_at_work_is_read_to_its_last_complete_row(tmp_path, tail):
    view = look(make_run(tmp_path / "run", tail=tail))
    assert (view.status, view.step, view.steps) == ("training", 400, 1_000)
    assert view.returns == (0.5, 1.5, 2.5)
    assert view.seconds_left == 600 * 2 / 100.0


def test_runs_that_ended_or_fell_silent(tmp_path):
    silent = make_run(tmp_path / "silent")
    age(silent, 3_600)
    assert look(silent).status == "stopped"
    failed = make_run(tmp_path / "failed", summary={"status": "failed", "reason": "loss"})
    assert (look(failed).status, look(failed).reason) == ("failed", "loss")
    bare = tmp_path / "bare"
    bare.mkdir()
    (bare / "config.json").write_text('{"steps": 10}')
    assert (look(bare).step, look(bare).returns) == (0, ())


def test_a_place_is_a_run_a_store_or_a_suite(tmp_path):
    run = make_run(tmp_path / "jobs" / "a")
    make_run(tmp_path / "jobs" / "b")
    (tmp_path / "suites").mkdir()
    index = {"jobs": [{"key": "b"}, {"key": "not-begun"}]}
    (tmp_path / "suites" / "chain-smoke.json").write_text(json.dumps(index))
    assert runs_in(str(run), tmp_path) == [run]
    assert [path.name for path in runs_in(str(tmp_path), tmp_path)] == ["a", "b"]
    for name in ("chain", "chain-smoke"):
        assert [path.name for path in runs_in(name, tmp_path)] == ["b"]
    with pytest.raises(InputError, match="did you mean 'chain-smoke'"):
        runs_in("chian-smoke", tmp_path)


def test_a_suite_is_waited_for_until_all_its_jobs_have_ended(tmp_path):
    run = make_run(tmp_path / "jobs" / "a")
    (tmp_path / "suites").mkdir()
    index = tmp_path / "suites" / "chain-smoke.json"
    for status, ended in (("waiting", False), ("finished", True), ("failed", True)):
        index.write_text(json.dumps({"jobs": [{"key": "a", "status": status}]}))
        for place in ("chain", str(tmp_path)):
            assert (_patience(place, tmp_path) == 0.0) is ended
    assert _patience(str(run), tmp_path) == 0.0


def test_a_folder_that_is_exchanged_meanwhile_is_left_out(tmp_path, monkeypatch):
    run = make_run(tmp_path / "jobs" / "a")
    monkeypatch.setattr("gcr_rl.bench.watch.runs_in", lambda *_: [run, tmp_path / "jobs" / "b"])
    assert [view.steps for view in _views(str(tmp_path), tmp_path)] == [1_000]
    (run / "config.json").write_text("not json")
    with pytest.raises(InputError, match="a readable JSON file"):
        _views(str(tmp_path), tmp_path)


def test_names_are_shown_as_they_are(tmp_path, capsys):
    make_run(tmp_path / "jobs" / "a")
    cli.main(["watch", str(tmp_path), "--once"])
    out = capsys.readouterr().out
    assert "ddqn on [red]Chain" in out and "400 / 1,000" in out and "0 of 1" in out
    assert draw([]) is not None


def test_sparklines():
    assert sparkline([1.0]) == ""
    assert sparkline([0.0, 1.0]) == "▁█"
    assert sparkline([2.0, 2.0]) == "▁▁"
    line = sparkline([float(i) for i in range(100)])
    assert len(line) == 24 and line[0] == "▁" and line[-1] == "█" and list(line) == sorted(line)


def test_odd_intervals_are_refused(tmp_path):
    with pytest.raises(InputError, match="interval: got 0"):
        watch(str(tmp_path), store=tmp_path, interval=0)
