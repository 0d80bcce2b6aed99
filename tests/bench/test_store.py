"""What is in the store decides what is run: nothing twice, nothing lost."""

import json
import shutil

import pytest

from gcr_rl.bench import Job, Store, engine, run_jobs
from gcr_rl.bench.engine import Quiet, run_here
from gcr_rl.bench.store import Busy
from gcr_rl.errors import InputError, RunFailed
from gcr_rl.presets import preset
from gcr_rl.training.run_folder import WALL_CLOCK_FIELDS, read_rows

TINY = {
    "steps": 500, "seeds": (0, 1), "network.hidden": (8,), "replay.learning_starts": 50,
    "evaluation.every": 100, "evaluation.episodes": 2, "run.log_every": 100,
    "run.checkpoint_every": 100,
}  # fmt: skip
DDQN = Job(preset("Probe-TwoState", "ddqn", TINY))
DQN = Job(preset("Probe-TwoState", "dqn", TINY))


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """A store in which both jobs have run without interruption; tests copy it."""
    store = Store(tmp_path_factory.mktemp("store"))
    assert run_jobs(store, [DDQN, DQN]).finished == (DDQN.key, DQN.key)
    return store


@pytest.fixture
def calls(monkeypatch):
    """The keys of jobs that were trained or resumed, in order."""
    seen = []
    for name in ("train", "resume"):
        original = getattr(engine, name)

        def counted(first, *words, name=name, original=original, **keywords):
            where = words[0] if name == "train" else first
            seen.append((name, where.name))
            return original(first, *words, **keywords)

        monkeypatch.setattr(engine, name, counted)
    return seen


def copy_of(store, tmp_path):
    shutil.copytree(store.root, tmp_path / "copy")
    return Store(tmp_path / "copy")


def rows_of(store, key):
    return [
        {k: v for k, v in row.items() if k not in WALL_CLOCK_FIELDS}
        for name in ("log", "evaluation")
        for row in read_rows(store.folder(key) / f"{name}.jsonl")
    ]


def test_finished_jobs_are_not_run_again(done, tmp_path, calls):
    store = copy_of(done, tmp_path)
    shutil.rmtree(store.folder(DQN.key))
    outcome = run_jobs(store, [DDQN, DQN, DDQN])
    assert calls == [("train", DQN.key)]
    assert outcome.finished == (DDQN.key, DQN.key) and not outcome.failed
    assert rows_of(store, DQN.key) == rows_of(done, DQN.key)


def test_an_interrupted_job_goes_on_to_the_same_rows(done, tmp_path, calls, monkeypatch):
    class Impatient:
        def update(self, step, mean_return, loss):
            if step >= 300:
                raise KeyboardInterrupt

        def start(self, label, step, total):
            pass

        stop = say = lambda *_: None

    class Watched(Quiet):
        def begin(self, job):
            return Impatient()

    store = Store(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        run_here(store, [DDQN], lambda job: "", Watched())
    assert store.standing(DDQN.key).status == "interrupted"
    assert run_jobs(store, [DDQN]).finished == (DDQN.key,)
    assert calls == [("train", DDQN.key), ("resume", DDQN.key)]
    assert rows_of(store, DDQN.key) == rows_of(done, DDQN.key)


@pytest.mark.parametrize("written", [(), ("lock",), ("lock", "config.json", "checkpoints/")])
def test_a_folder_that_a_kill_left_without_a_run_is_begun_again(done, tmp_path, calls, written):
    store = Store(tmp_path)
    folder = store.folder(DDQN.key)
    folder.mkdir(parents=True)
    for name in written:
        (folder / name).mkdir() if name.endswith("/") else (folder / name).write_text("{")
    assert store.standing(DDQN.key).status == "waiting"
    assert run_jobs(store, [DDQN]).finished == (DDQN.key,)
    assert calls == [("train", DDQN.key)]
    assert rows_of(store, DDQN.key) == rows_of(done, DDQN.key)


@pytest.mark.parametrize("error", [ValueError("odd\nshape"), InputError("x", 1, "2")])
def test_a_failed_job_is_listed_and_only_retried_on_request(done, tmp_path, monkeypatch, error):
    store, attempts = copy_of(done, tmp_path), []
    shutil.rmtree(store.folder(DDQN.key))

    def broken(config, folder, **_):
        attempts.append(folder.name)
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(engine, "train", broken)
        for _ in range(2):
            outcome = run_jobs(store, [DDQN, DQN])
            assert outcome.finished == (DQN.key,)
            assert " ".join(str(error).split()) in outcome.failed[DDQN.key]
        assert attempts == [DDQN.key]
        run_jobs(store, [DDQN, DQN], retry=True)
        assert attempts == [DDQN.key] * 2
    outcome = run_jobs(store, [DDQN, DQN], retry=True)
    assert outcome.finished == (DDQN.key, DQN.key) and not outcome.failed
    assert rows_of(store, DDQN.key) == rows_of(done, DDQN.key)


def test_a_run_that_broke_is_put_aside_and_begun_again(done, tmp_path, calls):
    store = copy_of(done, tmp_path)
    summary = store.folder(DDQN.key) / "summary.json"
    summary.write_text(json.dumps({"status": "failed", "reason": "loss is not finite"}))
    assert run_jobs(store, [DDQN]).failed == {DDQN.key: "loss is not finite"}
    assert run_jobs(store, [DDQN], retry=True).finished == (DDQN.key,)
    assert calls == [("train", DDQN.key)]
    aside = store.root / "failed" / f"{DDQN.key}-1" / "summary.json"
    assert json.loads(aside.read_text())["reason"] == "loss is not finite"


def test_what_the_machine_refused_goes_on_where_it_was(done, tmp_path, calls, monkeypatch):
    store = copy_of(done, tmp_path)
    (store.folder(DDQN.key) / "summary.json").unlink()
    with monkeypatch.context() as patch:

        def full(*_, **__):
            raise RunFailed("no room on the disk")

        patch.setattr(engine, "resume", full)
        assert run_jobs(store, [DDQN]).failed == {DDQN.key: "no room on the disk"}
    assert run_jobs(store, [DDQN], retry=True).finished == (DDQN.key,)
    assert calls == [("resume", DDQN.key)]
    assert not (store.root / "failed").exists()


def test_a_job_of_another_process_is_left_to_it(done, tmp_path, monkeypatch):
    store = copy_of(done, tmp_path)
    monkeypatch.setattr(engine, "PATIENCE", 0.0)
    hidden = store.folder(DDQN.key).rename(tmp_path / "elsewhere")
    claim = store.claim(DDQN.key)
    claim.__enter__()
    with pytest.raises(Busy), store.claim(DDQN.key):
        pass

    class OtherFinishes(Quiet):
        def say(self, message):
            assert "waiting for another process" in message
            hidden.rename(store.folder(DDQN.key))
            claim.__exit__(None, None, None)

    display = OtherFinishes()
    run_here(store, [DDQN, DQN], lambda job: "", display)
    assert sorted(display.ended) == [(DDQN.key, "kept", ""), (DQN.key, "kept", "")]


def test_a_folder_with_another_run_in_it_is_refused(done, tmp_path):
    store = copy_of(done, tmp_path)
    config = store.folder(DDQN.key) / "config.json"
    config.write_text(config.read_text().replace('"discount": 0.99', '"discount": 0.98'))
    with pytest.raises(InputError, match=r"the run of this job \(config.json is of "):
        run_jobs(store, [DDQN])


def test_the_index_says_how_every_job_stands(done, tmp_path):
    store = copy_of(done, tmp_path)
    shutil.rmtree(store.folder(DQN.key))
    store.write_index("small-full", {"suite": "small"}, [DDQN, DQN])
    index = json.loads(store.index_file("small-full").read_text())
    assert index["suite"] == "small"
    assert [job["status"] for job in index["jobs"]] == ["finished", "waiting"]
    assert [job["key"] for job in index["jobs"]] == [DDQN.key, DQN.key]
