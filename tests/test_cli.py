"""The command line as a user meets it: exit codes, one-line errors, files."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time

import pytest
from command import gcr

from gcr_rl import cli
from gcr_rl.presets import preset

SMALL = [
    "--steps", "200", "--seeds", "2", "--network.hidden", "8", "--replay.learning-starts", "50",
    "--evaluation.every", "100", "--evaluation.episodes", "2", "--run.log-every", "100",
    "--run.checkpoint-every", "100",
]  # fmt: skip


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    out = tmp_path_factory.mktemp("cli") / "run"
    result = out.parent / "result.json"
    cli.main(["train", "Probe-TwoState", *SMALL, "--out", str(out), "--json", str(result)])
    return out, json.loads(result.read_text())


def test_train_writes_a_run_and_its_summary(run, capsys):
    out, result = run
    assert result["status"] == "finished" and result["run"] == str(out)
    command = json.loads((out / "provenance.json").read_text())["command"]
    assert command.startswith("gcr train Probe-TwoState --steps 200")


def test_eval_resume_play_and_report(run, capsys, tmp_path):
    out, _ = run
    code, text, _ = gcr(capsys, "eval", str(out), "--episodes", "3", "--json", str(tmp_path / "e"))
    assert code == 0 and "mean return" in text
    assert len(json.loads((tmp_path / "e").read_text())["rows"]) == 2
    code, text, _ = gcr(capsys, "resume", str(out))
    assert code == 0 and "final return" in text
    gif = tmp_path / "episode.gif"
    code, _, _ = gcr(capsys, "play", str(out), "--out", str(gif))
    assert code == 0 and gif.read_bytes()[:4] == b"GIF8"
    code, _, error = gcr(capsys, "play", str(out), "--out", str(gif))
    assert code == 2 and "does not exist yet" in error
    code, text, _ = gcr(capsys, "report", str(out), "--out", str(tmp_path / "report"))
    assert code == 0 and (tmp_path / "report" / "report.md").exists() and "Probe-TwoState" in text


def test_lists(capsys, tmp_path):
    code, text, _ = gcr(capsys, "envs", "--json", str(tmp_path / "envs.json"))
    assert code == 0 and "RotMirrorGrid" in text
    assert len(json.loads((tmp_path / "envs.json").read_text())["tasks"]) >= 10
    code, text, _ = gcr(capsys, "methods")
    assert code == 0 and "ddqn" in text


def test_help_reads_well_and_shows_the_tuned_defaults(capsys):
    code, text, _ = gcr(capsys)
    assert code == 0 and "train" in text and "resume" in text
    code, text, _ = gcr(capsys, "train", "CartPole", "--help")
    assert code == 0 and "--loop.train-every" in text
    tuned = preset("CartPole")
    assert f"(default: {tuned.loop.train_every})" in text and tuned.loop.train_every > 1
    code, text, _ = gcr(capsys, "--version")
    assert code == 0 and text.startswith("gcr-rl ")


@pytest.mark.parametrize(
    ("words", "fragments"),
    [
        (["trian"], ["command", "'trian'", "did you mean 'train'"]),
        (["train", "CartPol"], ["task", "'CartPol'", "did you mean 'CartPole'"]),
        (["train", "CartPole", "--method", "ddpn"], ["method", "'ddpn'", "did you mean 'ddqn'"]),
        (["train", "CartPole", "--steps", "-1"], ["steps", "-1", "from 1"]),
        (["train", "CartPole", "--steps", "many"], ["--steps", "many"]),
        (["train", "CartPole", "--stpes", "5"], ["--stpes", "--steps"]),
        (["train", "CartPole", "--seeds", "0"], ["seeds", "0", "from 1 to"]),
        (["train", "CartPole", "--seeds", "99999999999"], ["seeds", "99999999999", "from 1 to"]),
        (["train", "CartPole", "--value.loss", "l1"], ["gcr: invalid choice 'l1'", "huber"]),
        (["train", "CartPole", "--json", "no/such/f.json"], ["json", "no/such/f.json", "folder"]),
        (["train", "CartPole", "--json", "."], ["json", "not a folder"]),
        (["train", "CartPole", "--json", ""], ["json", "not a folder"]),
        (["train", "Probe-C4", "--env", "horizon=99999999999"], ["horizon", "99999999999"]),
        (["train", "gym:::"], ["task", "'gym:::'", "Gymnasium can make"]),
        (["report", "."], ["config.json", "readable file of a run folder"]),
        (["play", "x", "--out", "x.png"], ["out", "x.png", ".gif"]),
        (["train", "CartPole", "--replay.batch-size", "99999"], ["replay.batch_size", "99999"]),
        (["train", "RotMirrorGrid", "--env", "p_asym=2"], ["p_asym", "2"]),
        (["train", "RotMirrorGrid", "--env", "p_asim=0.1"], ["p_asim", "p_asym"]),
        (["train", "RotMirrorGrid", "--env", "p_asym"], ["env", "'p_asym'", "NAME=VALUE"]),
        (["train", "CartPole", "--evaluation.mode", "exact"], ["evaluation.mode", "not finite"]),
        (["train", "gym:Pendulum-v1"], ["task", "discrete"]),
        (["resume", "no/such/run"], ["run", "no/such/run"]),
        (["eval", "no/such/run"], ["run", "no/such/run"]),
        (["report", "no/such/run"], ["no/such/run"]),
        (["play", "no/such/run"], ["run", "no/such/run"]),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(capsys, tmp_path, monkeypatch, words, fragments):
    monkeypatch.chdir(tmp_path)
    code, _, error = gcr(capsys, *words)
    assert code == 2, error
    assert error.count("\n") == 1 and error.startswith("gcr: ")
    for fragment in fragments:
        assert fragment in error
    assert list(tmp_path.iterdir()) == []  # nothing was written


def test_unwritable_output_is_refused(capsys, tmp_path):
    (tmp_path / "file").write_text("x")
    code, _, error = gcr(
        capsys, "train", "Probe-TwoState", *SMALL, "--out", str(tmp_path / "file" / "run")
    )
    assert code == 2 and "out" in error


def test_commands_without_a_folder_never_share_one(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folders = {cli._claim_folder("gym:x/y") for _ in range(3)}
    assert {str(folder) for folder in folders} == {f"runs/gym_x_y-{n}" for n in (1, 2, 3)}
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    (tmp_path / "elsewhere" / "runs").write_text("mine")
    code, _, error = gcr(capsys, "train", "Probe-TwoState", *SMALL)
    assert code == 2 and error.startswith("gcr: out: got 'runs/Probe-TwoState-ddqn-1'")


def test_results_can_go_to_a_stream_or_through_a_link(capsys, tmp_path):
    (tmp_path / "target.json").write_text("old")
    (tmp_path / "link.json").symlink_to(tmp_path / "target.json")
    assert gcr(capsys, "methods", "--json", str(tmp_path / "link.json"))[0] == 0
    assert (tmp_path / "link.json").is_symlink()
    assert json.loads((tmp_path / "target.json").read_text())["methods"]
    result = subprocess.run(
        [sys.executable, "-m", "gcr_rl.cli", "methods", "--json", "/dev/stdout"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert any("overrides" in line for line in result.stdout.splitlines())


def test_eval_says_when_the_newest_checkpoint_is_damaged(run, capsys, tmp_path):
    out = tmp_path / "run"
    shutil.copytree(run[0], out)
    newest = out / "checkpoints" / "step-000000000200.safetensors"
    newest.write_bytes(newest.read_bytes()[:-1] + b"x")
    code, text, error = gcr(capsys, "eval", str(out), "--episodes", "2")
    assert code == 0 and "mean return" in text
    assert "passed over a damaged checkpoint" in error and "step 100 of 200" in error


def test_a_failed_run_has_exit_code_3(capsys, tmp_path):
    words = ["train", "NoisyRPSChain", *SMALL, "--env", "sigma=1e30", "--value.loss", "squared"]
    code, _, error = gcr(capsys, *words, "--out", str(tmp_path / "run"))
    assert code == 3 and "not finite at step" in error and "state saved" in error
    code, _, error = gcr(capsys, "resume", str(tmp_path / "run"))
    assert code == 3 and "has failed; nothing to resume" in error
    code, _, error = gcr(capsys, "eval", str(tmp_path / "run"), "--episodes", "2")
    assert code == 0 and "the agent at step 0 of 200" in error


def process(*words, **keywords):
    """The same in a process of its own, for what a process alone can show."""
    return subprocess.Popen(
        [sys.executable, "-m", "gcr_rl.cli", *map(str, words)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **keywords,
    )  # fmt: skip


def wait_for(path, child):
    while not path.exists():
        assert child.poll() is None, child.stderr.read()
        time.sleep(0.01)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_it_compiles_says_how_to_continue(tmp_path, number):
    out = tmp_path / "a  folder"
    child = process("train", "Probe-TwoState", *SMALL, "--steps", 10**8, "--out", out)
    wait_for(out / "provenance.json", child)
    child.send_signal(number)
    _, error = child.communicate()
    assert child.returncode == 130
    assert "checkpoint written" in error
    assert error.splitlines()[-1].endswith(f"continue with: gcr resume '{out}'")
    assert "Traceback" not in error


def test_a_reader_that_leaves_ends_the_progress_but_not_the_run(tmp_path):
    child = process("train", "Probe-TwoState", *SMALL, "--out", tmp_path / "run")
    child.stderr.close()
    child.stdout.close()
    assert child.wait() == 0
    assert (tmp_path / "run" / "summary.json").exists()


def test_output_that_cannot_be_written_is_one_line():
    with open("/dev/full", "w") as full:
        result = subprocess.run(
            [sys.executable, "-m", "gcr_rl.cli", "envs"],
            stdout=full, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
    assert result.returncode == 2 and result.stderr.count("\n") == 1
    assert "No space left on device" in result.stderr


def test_a_path_that_is_not_text_is_shown_escaped(run, tmp_path):
    out, _ = run
    strange = os.fsencode(tmp_path) + b"/gr\xfcn \n run"
    shutil.copytree(os.fsencode(out), strange)
    child = process("resume", os.fsdecode(strange))
    text, error = child.communicate()
    assert child.returncode == 0, error
    assert "gr\\udcfcn" in text
