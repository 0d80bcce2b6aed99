"""A run from end to end: repeatable, resumable, seeds apart, honest when it fails."""

import errno
import json
import shutil
import subprocess

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gcr_rl.errors import InputError, RunFailed
from gcr_rl.presets import preset
from gcr_rl.training import checkpoint, evaluate, load, play, resume, runner, train
from gcr_rl.training.run_folder import WALL_CLOCK_FIELDS, RunFolder, commit_of, read_rows
from gcr_rl.training.runner import build_program, next_stop
from gcr_rl.training.state import Streams, streams

SMALL = {
    "steps": 600,
    "seeds": (0, 3),
    "network.hidden": (16,),
    "replay.capacity": 256,
    "replay.batch_size": 16,
    "replay.learning_starts": 130,
    "evaluation.every": 200,
    "evaluation.episodes": 3,
    "run.log_every": 100,
    "run.checkpoint_every": 150,
    "run.keep": 10,
}


def config_of(task="NoisyRPSChain", method="ddqn", **overrides):
    return preset(task, method, {**SMALL, **overrides})


def rows_of(path, name="log"):
    rows = read_rows(path / f"{name}.jsonl")
    for row in rows:
        for field in WALL_CLOCK_FIELDS:
            row.pop(field, None)
    return rows


def final_arrays(path):
    arrays, _, _ = checkpoint.load_newest(path / "checkpoints")
    return arrays


def assert_same_run(first, second):
    assert rows_of(first) == rows_of(second)
    assert rows_of(first, "evaluation") == rows_of(second, "evaluation")
    a, b = final_arrays(first), final_arrays(second)
    assert a.keys() == b.keys()
    for name, array in a.items():
        np.testing.assert_array_equal(array, b[name], err_msg=name)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    return train(config_of(), tmp_path_factory.mktemp("run") / "a", command="gcr train …")


def test_the_folder_holds_what_it_should(finished):
    names = {path.name for path in finished.iterdir()}
    assert names == {
        "config.json", "provenance.json", "log.jsonl", "evaluation.jsonl", "summary.json",
        "checkpoints", "lock",
    }  # fmt: skip
    summary = json.loads((finished / "summary.json").read_text())
    assert summary["status"] == "finished" and len(summary["final_return"]["per_seed"]) == 2
    steps = [row["step"] for row in rows_of(finished, "evaluation") if row["seed"] == 0]
    assert steps == [0, 200, 400, 600]
    assert [row["step"] for row in rows_of(finished) if row["seed"] == 3] == [
        100, 130, 150, 200, 300, 400, 450, 500, 600,
    ]  # fmt: skip
    first = rows_of(finished, "evaluation")[0]
    assert len(first["returns"]) == 3 and first["exact_return"] is not None
    assert "loss" not in rows_of(finished)[0] and "loss" in rows_of(finished)[-1]
    provenance = json.loads((finished / "provenance.json").read_text())
    assert provenance["command"] == "gcr train …" and provenance["versions"]["jax"]


def test_one_seed_repeats_bit_for_bit(finished, tmp_path):
    assert_same_run(finished, train(config_of(), tmp_path / "again"))


def test_a_seed_does_not_depend_on_its_neighbours(finished, tmp_path):
    alone = train(config_of(seeds=(3,)), tmp_path / "alone")
    together = [row for row in rows_of(finished, "evaluation") if row["seed"] == 3]
    for mine, theirs in zip(rows_of(alone, "evaluation"), together, strict=True):
        np.testing.assert_allclose(mine["exact_return"], theirs["exact_return"], rtol=1e-3)
    assert [r["episodes"] for r in rows_of(alone)] == [
        r["episodes"] for r in rows_of(finished) if r["seed"] == 3
    ]


def test_two_seeds_differ_in_every_stream_and_streams_differ_from_each_other():
    words = {}
    for seed in (0, 1, 2):
        for name, key in zip(Streams._fields, streams(jnp.int32(seed)), strict=True):
            words[seed, name] = tuple(np.asarray(jax.random.key_data(key)).tolist())
    assert len(set(words.values())) == 3 * len(Streams._fields)


def test_seeds_start_with_different_networks_and_act_differently():
    program = build_program(config_of(seeds=(0, 1)))
    state = program.init(jnp.array([0, 1]))
    for leaf in jax.tree.leaves(state.agent.params):
        assert not np.array_equal(leaf[0], leaf[1])
    state, _ = program.chunk(state, 0, 100, False)
    actions = np.asarray(state.replay.rows.action)[:, :100]
    assert not np.array_equal(actions[0], actions[1])


def cut_back(path, copy, stop):
    """A copy of a finished run as it was after its checkpoint at ``stop``."""
    shutil.copytree(path, copy)
    (copy / "summary.json").unlink()
    for step in checkpoint.steps(copy / "checkpoints"):
        if step > stop:
            (copy / "checkpoints" / f"step-{step:012d}.json").unlink()
    return copy


@pytest.mark.parametrize("stop", [0, 150, 300, 450])
def test_resume_continues_to_the_same_bits(finished, tmp_path, stop):
    """Cut a finished run back to a checkpoint, leave later rows in the logs, resume."""
    copy = cut_back(finished, tmp_path / "copy", stop)
    with open(copy / "log.jsonl", "a") as file:
        file.write('{"step": 999, "half a ro')
    resume(copy)
    assert_same_run(finished, copy)


def test_a_run_killed_before_its_first_checkpoint_starts_over(finished, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(finished, copy)
    (copy / "summary.json").unlink()
    shutil.rmtree(copy / "checkpoints")
    resume(copy)
    assert_same_run(finished, copy)


def test_a_run_that_pools_rewards_is_another_and_resumes_to_the_same_bits(finished, tmp_path):
    train(config_of(**{"replay.pooled": True}), tmp_path / "run")
    assert rows_of(tmp_path / "run") != rows_of(finished)
    copy = cut_back(tmp_path / "run", tmp_path / "copy", 300)
    resume(copy)
    assert_same_run(tmp_path / "run", copy)


def test_interruption_saves_and_resumes_to_the_same_bits(finished, tmp_path, monkeypatch):
    def stop_after_second_evaluation(self, state, step):
        real(self, state, step)
        if step == 400:
            runner.signal.raise_signal(runner.signal.SIGTERM)

    real = runner._Drive.evaluate
    monkeypatch.setattr(runner._Drive, "evaluate", stop_after_second_evaluation)
    with pytest.raises(runner.Interrupted, match="step 400"):
        train(config_of(), tmp_path / "run")
    monkeypatch.setattr(runner._Drive, "evaluate", real)
    assert 400 in checkpoint.steps(tmp_path / "run" / "checkpoints")
    resume(tmp_path / "run")
    assert rows_of(finished) == rows_of(tmp_path / "run")


def test_a_run_interrupted_again_right_after_a_resume_can_still_be_resumed(
    finished, tmp_path, monkeypatch
):
    """The checkpoint of the second interruption remembers the logs as they are after the cut."""
    copy = cut_back(finished, tmp_path / "copy", 450)  # its evaluation.jsonl goes on to step 600

    def stop_at_once(self, state, stats, step):
        runner.signal.raise_signal(runner.signal.SIGINT)

    with monkeypatch.context() as patch:
        patch.setattr(runner._Drive, "stop_if_broken", stop_at_once)
        with pytest.raises(runner.Interrupted, match="step 500"):
            resume(copy)
    note = json.loads((copy / "checkpoints" / "step-000000000500.json").read_text())
    for name, length in note["lengths"].items():
        assert length == (copy / f"{name}.jsonl").stat().st_size
    resume(copy)
    assert rows_of(finished) == rows_of(copy)
    assert rows_of(finished, "evaluation") == rows_of(copy, "evaluation")


def test_a_damaged_last_checkpoint_is_written_again(tmp_path):
    path = train(config_of(**{"run.checkpoint_every": 250}), tmp_path / "run")  # not at 600
    (path / "summary.json").unlink()
    last = path / "checkpoints" / "step-000000000600.safetensors"
    last.write_bytes(last.read_bytes()[:-1])
    resume(path)
    assert load(path).step == 600 and load(path).passed_over == ()


def test_a_full_disk_ends_the_run_in_one_line_and_it_can_be_resumed(
    finished, tmp_path, monkeypatch
):
    def full(self):
        if len(checkpoint.steps(self.checkpoints)) == 2:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(self)

    real = RunFolder.lengths
    with monkeypatch.context() as patch:
        patch.setattr(RunFolder, "lengths", full)
        with pytest.raises(RunFailed, match=r"cannot write the run .*No space left on device"):
            train(config_of(), tmp_path / "run")
    resume(tmp_path / "run")
    assert_same_run(finished, tmp_path / "run")


def test_a_folder_that_is_removed_is_not_conjured_up_again(tmp_path, monkeypatch):
    def remove(self, state, step):
        real(self, state, step)
        if step == 200:
            shutil.rmtree(self.folder.path)

    real = runner._Drive.evaluate
    monkeypatch.setattr(runner._Drive, "evaluate", remove)
    with pytest.raises(RunFailed, match="cannot write the run"):
        train(config_of(), tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("task", "field", "value"),
    [
        ("ButtonPermutation", "replay.capacity", 2**31 - 1),
        ("NoisyRPSChain", "network.hidden", (2**20, 2**20)),
    ],
)
def test_a_run_that_does_not_fit_into_memory_is_refused(tmp_path, task, field, value):
    with pytest.raises(InputError, match=rf"{field}: got .*GiB, there are \d+ GiB"):
        train(config_of(task, **{field: value}), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_memory_that_runs_out_ends_the_run_in_one_line(tmp_path, monkeypatch):
    def exhausted(self, state, step):
        raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 9 bytes.")

    monkeypatch.setattr(runner._Drive, "evaluate", exhausted)
    with pytest.raises(RunFailed, match=r"does not fit into memory.*replay\.capacity"):
        train(config_of(), tmp_path / "run")


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("checkpoints/step-000000000600.json", {"lengths": None}),
        ("checkpoints/step-000000000600.json", {"step": 599}),
        ("summary.json", "[]"),
        ("summary.json", '{"status": "finished"}'),
        ("config.json", "[" * 100_000),
    ],
)
def test_files_that_no_run_wrote_are_one_clear_error(finished, tmp_path, file, text):
    copy = tmp_path / "copy"
    shutil.copytree(finished, copy)
    for step in checkpoint.steps(copy / "checkpoints"):
        if step < 600:
            (copy / "checkpoints" / f"step-{step:012d}.json").unlink()
    if isinstance(text, dict):
        (copy / "summary.json").unlink()
        text = json.dumps({**json.loads((copy / file).read_text()), **text})
    (copy / file).write_text(text)
    with pytest.raises(InputError) as caught:
        resume(copy)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 500


@pytest.mark.parametrize("wrong", [None, 3, "CartPole", {"task": "CartPole"}])
def test_arguments_of_the_wrong_type_are_named(finished, tmp_path, wrong):
    with pytest.raises(InputError, match="config: got"):
        train(wrong, tmp_path / "run")
    if wrong != "CartPole":
        with pytest.raises(InputError, match="out: got"):
            train(config_of(), wrong)
        with pytest.raises(InputError, match="run: got"):
            load(wrong)
    for keywords in ({"evaluation_seed": 1.5}, {"evaluation_seed": -1}, {"env": "x"}):
        with pytest.raises(InputError, match=f"{next(iter(keywords))}: got"):
            evaluate(finished, episodes=2, **keywords)
    for episode in (-1, 10**10, 0.5):
        with pytest.raises(InputError, match="episode: got"):
            play(finished, episode=episode)


def test_options_that_change_what_the_network_sees_are_refused(tmp_path):
    path = train(config_of("ButtonPermutation", seeds=(0,), steps=200), tmp_path / "run")
    with pytest.raises(InputError, match=r"env: got .*\(21, 21, 3\)"):
        evaluate(path, episodes=2, env={"tile_size": 4})


def test_resuming_a_finished_run_changes_nothing(finished):
    before = (finished / "log.jsonl").read_bytes()
    resume(finished)
    assert (finished / "log.jsonl").read_bytes() == before


def test_a_second_process_is_refused(finished):
    with RunFolder.open(finished), pytest.raises(InputError, match="no other process trains"):
        RunFolder.open(finished)
    RunFolder.open(finished).close()  # and the lock is free again


def test_an_existing_folder_is_not_overwritten(finished, tmp_path):
    with pytest.raises(InputError, match="does not exist or is empty"):
        train(config_of(), finished)
    (tmp_path / "file").write_text("mine")
    with pytest.raises(InputError, match="out"):
        train(config_of(), tmp_path / "file")
    assert (tmp_path / "file").read_text() == "mine"


def test_nan_loss_stops_saves_and_says_so(tmp_path):
    config = config_of(**{"env": {"sigma": 1e30}, "value.loss": "squared"})  # squares overflow
    with pytest.raises(RunFailed, match=r"not finite at step [\d,]+ \(seed 0\)"):
        train(config, tmp_path / "run")
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["status"] == "failed" and summary["step"] == 131
    assert checkpoint.steps(tmp_path / "run" / "failed") == [150]
    text = (tmp_path / "run" / "log.jsonl").read_text()

    def refuse(name):
        raise AssertionError(f"{name} is not JSON")

    last = json.loads(text.splitlines()[-2], parse_constant=refuse)  # seed 0 at the failure
    assert last["seed"] == 0 and last["step"] == 150 and last["loss"] is None
    assert json.loads((tmp_path / "run" / "config.json").read_text())["env"] == {"sigma": 1e30}


@pytest.mark.parametrize("damage", ["missing", "no config", "bad json", "bad field"])
def test_a_broken_folder_is_one_clear_error(finished, tmp_path, damage):
    copy = tmp_path / "copy"
    if damage != "missing":
        shutil.copytree(finished, copy)
    if damage == "no config":
        (copy / "config.json").unlink()
    if damage == "bad json":
        (copy / "config.json").write_text("{")
    if damage == "bad field":
        (copy / "config.json").write_text(json.dumps({"task": "CartPole", "wings": 2}))
    for read in (load, resume):
        with pytest.raises(InputError):
            read(copy)


def test_logs_shorter_than_the_checkpoint_says_are_refused(finished, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(finished, copy)
    (copy / "summary.json").unlink()
    (copy / "evaluation.jsonl").write_text("")
    with pytest.raises(InputError, match=r"evaluation.jsonl"):
        resume(copy)


def test_loaded_agents_act_as_they_did(finished):
    run = load(finished)
    assert run.step == 600 and run.summary["status"] == "finished"
    rows = evaluate(run, episodes=5)
    last = [row for row in run.evaluation if row["step"] == 600]
    for fresh, stored in zip(rows, last, strict=True):
        assert fresh["exact_return"] == pytest.approx(stored["exact_return"], rel=1e-5)
    assert evaluate(run, episodes=5) == rows
    assert evaluate(run, episodes=5, evaluation_seed=1) != rows
    other = evaluate(run, episodes=5, env={"horizon": 30})
    assert other[0]["exact_return"] != rows[0]["exact_return"]
    with pytest.raises(InputError, match="seed"):
        run.q_values(jnp.zeros(1), seed=77)


def test_another_default_generator_changes_nothing(finished, tmp_path):
    with jax.default_prng_impl("rbg"):
        train(config_of(), tmp_path / "run")
        assert load(tmp_path / "run").step == 600
    assert_same_run(finished, tmp_path / "run")


def test_the_commit_is_that_of_the_source_not_of_a_repository_around_it(tmp_path):
    def git(*words):
        subprocess.run(["git", "-C", str(tmp_path), *words], check=True, capture_output=True)

    git("init")
    (tmp_path / "mine.py").write_text("")
    git("add", "mine.py")
    git("-c", "user.name=a", "-c", "user.email=a@b", "commit", "-m", "x")
    (tmp_path / "site-packages").mkdir()
    (tmp_path / "site-packages" / "theirs.py").write_text("")
    assert commit_of(tmp_path / "site-packages" / "theirs.py") is None
    assert len(commit_of(tmp_path / "mine.py")) == 40
    (tmp_path / "mine.py").write_text("changed")
    assert commit_of(tmp_path / "mine.py").endswith("+changes")


def test_play_draws_an_episode(finished):
    frames = play(finished, seed=3)
    assert len(frames) > 1 and frames[0].ndim == 3 and frames[0].dtype == np.uint8


def test_stops_do_not_depend_on_where_one_starts():
    config = config_of()
    stops, step = [], 0
    while step < config.steps:
        step = next_stop(config, step)
        stops.append(step)
    for start in range(0, config.steps):
        assert next_stop(config, start) == min(s for s in stops if s > start)


def test_several_environments_and_updates_per_turn(tmp_path):
    config = config_of(**{"loop.num_envs": 4, "loop.train_every": 5, "loop.updates": 3,
                          "value.n_step": 3, "run.checkpoint_every": 200,
                          "replay.learning_starts": 140})  # fmt: skip
    path = train(config, tmp_path / "run")
    updates = sum(row["updates"] for row in rows_of(path) if row["seed"] == 0)
    assert updates == (600 - 140) // 20 * 3
    arrays = final_arrays(path)
    assert arrays[".replay.rows.action"].shape == (2, 64, 4)
    assert int(arrays[".replay.size"]) == 64


def test_stored_codes_decode_to_the_observations_that_were_seen():
    """A grid's replay holds state codes; decoding them gives the planes bit for bit."""
    from gcr_rl.envs import make
    from gcr_rl.envs.simulator import make_simulator

    environment, params = make("RotMirrorGrid")
    simulator = make_simulator(environment, params)
    state, observation = simulator.reset(jax.random.key(0))
    for t in range(20):
        stored = simulator.encode(state, observation)
        np.testing.assert_array_equal(simulator.decode(stored), observation)
        assert stored.size <= 2
        after = simulator.step(jax.random.key(t), state, jnp.int32(t % 4))
        state, observation = after.state, after.observation


def test_learning_reaches_the_optimum_of_a_small_task(tmp_path):
    config = preset("Probe-TwoState", "ddqn", {
        "steps": 1_500, "seeds": (0, 1), "network.hidden": (32,), "replay.learning_starts": 100,
        "value.target_period": 50, "evaluation.every": 500, "run.log_every": 500,
        "run.checkpoint_every": 1_500,
    })  # fmt: skip
    path = train(config, tmp_path / "run")
    from gcr_rl.envs import task

    optimum = task("Probe-TwoState").optimal_return()
    last = [row for row in rows_of(path, "evaluation") if row["step"] == 1_500]
    assert all(row["exact_return"] == pytest.approx(optimum, rel=1e-4) for row in last)
