"""`gcr bench` as a user meets it: exit codes, one-line errors, a report, nothing run twice."""

import json
import re
import sys

import pytest
from command import gcr

from gcr_rl.bench import Job, engine
from gcr_rl.bench.display import Screen, duration
from gcr_rl.presets import preset

SUITE = """
summary = "two methods"
[[experiment]]
tasks = ["Probe-TwoState"]
methods = ["ddqn", "dqn"]
seeds = 2
steps = 500
[experiment.overrides]
network.hidden = [8]
replay.learning_starts = 50
evaluation.every = 100
evaluation.episodes = 2
run.log_every = 100
run.checkpoint_every = 100
"""


@pytest.fixture
def place(tmp_path):
    (tmp_path / "small.toml").write_text(SUITE)
    return tmp_path / "small.toml", tmp_path / "store", tmp_path / "result.json"


def test_a_suite_ends_in_a_report_and_is_not_run_again(place, capsys, monkeypatch):
    suite, store, result = place
    code, text, errors = gcr(capsys, "bench", suite, "--out", store, "--json", result)
    assert code == 0 and "2 of 2 jobs finished" in text
    assert "[1/2] finished in" in errors and "about" in errors and "[2/2]" in errors
    page = store / "reports" / "small-full" / "report" / "report.html"
    assert str(page) in text and page.with_name("curves-probe-twostate.png").exists()
    written = json.loads(result.read_text())
    assert [job["status"] for job in written["jobs"]] == ["finished"] * 2
    assert written["failed"] == {} and str(page) in written["reports"]["report"]
    command = json.loads(
        (store / "jobs" / written["jobs"][0]["key"] / "provenance.json").read_text()
    )
    assert f"--only {written['jobs'][0]['key']}" in command["command"]

    def never(*_, **__):
        raise AssertionError("a finished job was run again")

    for name in ("train", "resume"):
        monkeypatch.setattr(engine, name, never)
    before = page.read_bytes()
    code, again, errors = gcr(capsys, "bench", suite, "--out", store)
    assert code == 0 and again == text and errors == "" and page.read_bytes() == before
    code, text, _ = gcr(capsys, "bench", suite, "--out", store, "--list", "--only", "*-dqn-*")
    assert code == 0 and text.count("finished ") == 1 and "-ddqn-" not in text


def test_a_failed_job_is_listed_and_the_others_are_reported(place, capsys, monkeypatch):
    suite, store, _ = place
    train = engine.train

    def half_broken(config, *words, **keywords):
        if config.method == "dqn":
            raise ValueError("no such luck")
        return train(config, *words, **keywords)

    with monkeypatch.context() as patch:
        patch.setattr(engine, "train", half_broken)
        code, text, errors = gcr(capsys, "bench", suite, "--out", store)
    assert code == 3 and "1 of 2 jobs finished" in text and "report.html" in text
    assert re.search(r"failed: dqn on Probe-TwoState.*: ValueError: no such luck", text)
    assert errors.splitlines()[-1] == "gcr: 1 job(s) failed; --retry runs them again"
    code, text, _ = gcr(capsys, "bench", suite, "--out", store, "--list")
    assert code == 0 and "failed      Probe-TwoState-dqn" in text and "no such luck" in text
    code, text, _ = gcr(capsys, "bench", suite, "--out", store, "--retry")
    assert code == 0 and "2 of 2 jobs finished" in text


def test_an_interrupted_suite_says_how_to_go_on(place, capsys, monkeypatch):
    suite, store, _ = place

    def stopped(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(engine, "train", stopped)
        code, _, errors = gcr(capsys, "bench", suite, "--out", store)
    assert code == 130
    assert errors.splitlines()[-1] == (
        f"gcr: interrupted; go on with: gcr bench {suite} --out {store}"
    )
    assert (store / "suites" / "small-full.json").exists()


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["bench", "nothing"], "suite: got 'nothing'"),
        (["bench", "absent.toml"], "a readable TOML file"),
        (["bench", "probes", "--jobs", "0"], "jobs: got 0"),
        (["bench", "probes", "--only", "Pong"], "only: got 'Pong'"),
        (["bench", "probes", "--scale", "huge"], "huge"),
        (["bench", "probes", "--json", "absent/x.json"], "json: got 'absent/x.json'"),
        (["paper", "--only", "Pong", "--list"], "only: got 'Pong'"),
        (["bench", "probes", "--engine", "slurm"], "slurm"),
        (["bench", "probes", "--address", "localhost:6379"], "address: got 'localhost:6379'"),
        (["paper", "--gpus", "1"], "gpus: got 1.0; accepted: this option with --engine ray"),
        (["bench", "probes", "--engine", "ray", "--cpus", "0"], "cpus: got 0.0"),
        (["tune", "CartPole", "ddqn", "--engine", "ray", "--gpus", "1.5"], "gpus: got 1.5"),
        (["tune", "CartPole", "ddqn", "--first-seed", "0"], "first_seed: got 0"),
        (["tune", "CartPole", "ddqq"], "did you mean 'ddqn'"),
        (["tune", "CartPole", "ddqn", "--env", "horizon=0"], "horizon: got 0"),
        (["tune", "CartPole", "ddqn", "--budget-steps", "7"], "replay.learning_starts"),
        (["watch", "nothing"], "place: got 'nothing'"),
    ],
)
def test_bad_words_are_one_line_and_code_2(words, complaint, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, text, errors = gcr(capsys, *words)
    assert code == 2 and text == "" and complaint in errors and errors.count("\n") == 1
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("words", [["bench", "probes"], ["paper"], ["tune", "CartPole", "ddqn"]])
def test_without_ray_its_engine_is_refused_in_one_line(words, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "ray", None)
    code, text, errors = gcr(capsys, *words, "--engine", "ray")
    assert code == 2 and text == "" and errors.count("\n") == 1
    assert "engine: got 'ray'" in errors and "pip install 'gcr-rl[ray]'" in errors
    assert not list(tmp_path.iterdir())


def test_the_screen_counts_and_estimates_on_a_terminal_too(capsys, monkeypatch):
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    jobs = [
        Job(preset("Probe-TwoState", method, {"steps": 2_000, "seeds": (0, 1)}))
        for method in ("ddqn", "dqn")
    ]
    with Screen(jobs, kept=3) as screen:
        for job in jobs:
            reporter = screen.begin(job)
            reporter.start("x", 1_000, 2_000)
            reporter.update(1_500, 0.25, 0.1)
            reporter.say("[bold]a line")
            reporter.stop()
        screen.end(jobs[0], "finished", "")
        screen.end(jobs[1], "failed", "no room")
    shown = capsys.readouterr().err
    assert "[bold]a line" in shown and "[4/5] finished in" in shown
    assert "[4/5, 1 failed] FAILED: dqn on Probe-TwoState, 2 seeds, 2,000 steps (no room)" in shown


def test_durations():
    assert [duration(s) for s in (3.4, 99, 600, 7_200)] == ["3 s", "99 s", "10 min", "2.0 h"]
