"""Event files hold every number of the rows, and a resumed run is shown once."""

import shutil
import struct

import pytest

from gcr_rl.presets import preset
from gcr_rl.training import events, resume, train
from gcr_rl.training.run_folder import read_rows

SMALL = {
    "steps": 600, "seeds": (0, 3), "network.hidden": (16,), "replay.capacity": 256,
    "replay.batch_size": 16, "replay.learning_starts": 130, "evaluation.every": 200,
    "evaluation.episodes": 3, "run.log_every": 100, "run.checkpoint_every": 150, "run.keep": 10,
    "run.tensorboard": True,
}  # fmt: skip


def records_of(path):
    """The data of all records; every checksum is looked at."""
    data, found = path.read_bytes(), []
    while data:
        (length,) = struct.unpack("<Q", data[:8])
        whole = events.record(data[12 : 12 + length])
        assert data.startswith(whole)
        found.append(data[12 : 12 + length])
        data = data[len(whole) :]
    return found


def test_checksums_are_castagnoli_s():
    crc = 0xE3069283  # of "123456789", RFC 3720's check value
    masked = ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
    assert events.record(b"123456789")[-4:] == struct.pack("<I", masked)


def test_numbers_are_written_and_nothing_else(tmp_path):
    files = events.EventFiles(tmp_path)
    row = {"step": 300, "seed": 5, "loss": 0.5, "none": None, "list": [1.0], "flag": True}
    files.append("log", [row, {"step": 400, "seed": 5, "loss": 1e300}])
    (path,) = (tmp_path / "seed-5").iterdir()
    version, start, first, second = records_of(path)
    assert b"brain.Event:2" in version and start.endswith(b"\x3a\x02\x08\x01")
    assert first[9:12] == b"\x10\xac\x02"  # step 300
    assert b"log/loss\x15" + struct.pack("<f", 0.5) in first
    assert not any(word in first for word in (b"none", b"list", b"flag", b"seed", b"log/step"))
    assert struct.pack("<I", 0x7F7FFFFF) in second


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return train(preset("NoisyRPSChain", "ddqn", SMALL), tmp_path_factory.mktemp("run") / "a")


def test_a_run_writes_them_only_when_asked(run, tmp_path):
    names = sorted(path.name for path in (run / "tensorboard").iterdir())
    assert names == ["seed-0", "seed-3"]
    for name in names:
        (path,) = (run / "tensorboard" / name).iterdir()
        rows = len(read_rows(run / "log.jsonl")) + len(read_rows(run / "evaluation.jsonl"))
        assert len(records_of(path)) == 2 + rows // 2


def scalars_of(folder):
    """What TensorBoard shows: {tag: [(step, value)]}."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    shown = EventAccumulator(str(folder), size_guidance={"scalars": 0})
    shown.Reload()
    return {
        tag: [(event.step, event.value) for event in shown.Scalars(tag)]
        for tag in shown.Tags()["scalars"]
    }


def expected(run, seed):
    wanted = {}
    for log in ("log", "evaluation"):
        for row in read_rows(run / f"{log}.jsonl"):
            for name, value in row.items():
                number = isinstance(value, int | float) and name not in ("step", "seed")
                if number and row["seed"] == seed:
                    shown = (row["step"], pytest.approx(value, rel=1e-6))
                    wanted.setdefault(f"{log}/{name}", []).append(shown)
    return wanted


@pytest.mark.foreign
@pytest.mark.parametrize("resumed", [False, True])
def test_tensorboard_reads_back_every_row(run, tmp_path, resumed):
    pytest.importorskip("tensorboard", reason="the extra tensorboard is not installed")
    place = run
    if resumed:
        place = tmp_path / "copy"
        shutil.copytree(run, place)
        (place / "summary.json").unlink()
        for path in (place / "checkpoints").iterdir():
            if int(path.stem.split("-")[1]) > 300:
                path.unlink()
        resume(place)
        assert len(list((place / "tensorboard" / "seed-0").iterdir())) == 2
    for seed in (0, 3):
        shown = scalars_of(place / "tensorboard" / f"seed-{seed}")
        assert shown == expected(place, seed)
        assert [step for step, _ in shown["evaluation/mean_return"]] == [0, 200, 400, 600]
