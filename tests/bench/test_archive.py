"""Runs as bytes: all of a run comes back, and an archive can write nowhere else."""

import io
import shutil
import tarfile

import pytest

from gcr_rl.bench import Job, Store, run_jobs
from gcr_rl.bench.archive import pack, unpack
from gcr_rl.errors import InputError
from gcr_rl.presets import preset
from gcr_rl.training import checkpoint, resume
from gcr_rl.training.run_folder import WALL_CLOCK_FIELDS, read_rows

TINY = {
    "steps": 500, "seeds": (0, 1), "network.hidden": (8,), "replay.learning_starts": 50,
    "evaluation.every": 100, "evaluation.episodes": 2, "run.log_every": 100,
    "run.checkpoint_every": 100, "run.tensorboard": True, "run.keep": 10,
}  # fmt: skip
JOB = Job(preset("Probe-TwoState", "ddqn", TINY))
OTHER = Job(preset("Probe-TwoState", "dqn", TINY))


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    store = Store(tmp_path_factory.mktemp("store"))
    run_jobs(store, [JOB])
    return store


def files_of(folder):
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.name != "lock"
    }


def rows_of(run):
    return [
        {k: v for k, v in row.items() if k not in WALL_CLOCK_FIELDS}
        for name in ("log", "evaluation")
        for row in read_rows(run / f"{name}.jsonl")
    ]


def archive_of(*entries):
    held = io.BytesIO()
    with tarfile.open(fileobj=held, mode="w") as archive:
        for entry, data in entries:
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return held.getvalue()


def entry_of(name, **fields):
    entry = tarfile.TarInfo(name)
    for field, value in fields.items():
        setattr(entry, field, value)
    return entry


def test_an_ended_run_comes_back_whole(done, tmp_path):
    folder = done.folder(JOB.key)
    (folder / ".step-000000000100.json.partial").write_text("left by a kill")
    unpack(pack(folder, ended=True), tmp_path / "copy")
    (folder / ".step-000000000100.json.partial").unlink()
    assert files_of(tmp_path / "copy") == files_of(folder)
    assert any(name.startswith("tensorboard/seed-0/") for name in files_of(tmp_path / "copy"))


def test_a_run_at_work_comes_back_so_that_it_can_go_on(done, tmp_path):
    folder = tmp_path / "cut"
    shutil.copytree(done.folder(JOB.key), folder)
    for path in (folder / "checkpoints").iterdir():
        if int(path.stem.split("-")[1]) > 300:
            path.unlink()
    unpack(pack(folder, ended=False), tmp_path / "copy")
    assert checkpoint.steps(tmp_path / "copy" / "checkpoints") == [300]
    assert not (tmp_path / "copy" / "summary.json").exists()
    resume(tmp_path / "copy")
    assert rows_of(tmp_path / "copy") == rows_of(done.folder(JOB.key))


@pytest.mark.parametrize(
    "entry",
    [
        entry_of("/tmp/absolute"),
        entry_of("../above"),
        entry_of("checkpoints/../../above"),
        entry_of("."),
        entry_of("link", type=tarfile.SYMTYPE, linkname="/etc/passwd"),
        entry_of("link", type=tarfile.LNKTYPE, linkname="config.json"),
        entry_of("folder", type=tarfile.DIRTYPE),
        entry_of("pipe", type=tarfile.FIFOTYPE),
        entry_of("device", type=tarfile.CHRTYPE),
    ],
    ids=lambda entry: f"{entry.name}-{entry.type!r}",
)
def test_anything_but_plain_files_is_refused(tmp_path, entry):
    with pytest.raises(InputError, match="regular files below one folder"):
        unpack(archive_of((entry, b"")), tmp_path / "inner" / "run")
    assert [path.name for path in tmp_path.rglob("*")] == ["inner", "run"]


def test_a_name_twice_and_noise_are_refused(tmp_path):
    twice = archive_of((entry_of("a"), b"1"), (entry_of("./a"), b"2"))
    with pytest.raises(InputError, match="each once"):
        unpack(twice, tmp_path / "twice")
    with pytest.raises(InputError, match="a tar file"):
        unpack(b"noise" * 200, tmp_path / "noise")


def test_modes_are_not_taken_over(tmp_path):
    unpack(archive_of((entry_of("a", mode=0o4777, uid=0), b"1")), tmp_path / "run")
    assert (tmp_path / "run" / "a").stat().st_mode & 0o7111 == 0


def test_a_received_run_takes_the_place_of_the_old_one(done, tmp_path):
    store, data = Store(tmp_path), pack(done.folder(JOB.key), ended=True)
    for _ in range(2):
        with store.claim(JOB.key):
            store.receive(JOB.key, data)
        assert store.standing(JOB.key).status == "finished"
        assert files_of(store.folder(JOB.key)) == files_of(done.folder(JOB.key))
        assert not list((tmp_path / "incoming").iterdir())


def test_a_run_of_another_job_is_refused_and_changes_nothing(done, tmp_path):
    store = Store(tmp_path)
    with store.claim(OTHER.key), pytest.raises(InputError, match="the run of this job"):
        store.receive(OTHER.key, pack(done.folder(JOB.key), ended=True))
    assert store.standing(OTHER.key).status == "waiting"
    with store.claim(OTHER.key):
        assert not list((tmp_path / "incoming").iterdir())


@pytest.mark.parametrize("staged", [True, False])
@pytest.mark.parametrize("placed", [True, False])
def test_a_kill_in_the_middle_of_receiving_loses_nothing(done, tmp_path, staged, placed):
    """Old run set aside; new one half there or not; already in its place or not."""
    store, incoming = Store(tmp_path), tmp_path / "incoming"
    shutil.copytree(done.folder(JOB.key), incoming / f"{JOB.key}.replaced")
    if staged:
        (incoming / JOB.key).mkdir()
    if placed:
        shutil.copytree(done.folder(JOB.key), store.folder(JOB.key))
    with store.claim(JOB.key):
        assert store.standing(JOB.key).status == "finished"
    assert not list(incoming.iterdir())
