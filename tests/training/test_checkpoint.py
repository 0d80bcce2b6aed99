import json
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gcr_rl.agents.noise import Noise
from gcr_rl.errors import InputError
from gcr_rl.training import checkpoint


class Agent(NamedTuple):
    noise: Noise


class Whole(NamedTuple):
    agent: Agent


def state(scale=1.0):
    return {
        "weights": jnp.arange(6.0).reshape(2, 3) * scale,
        "flags": jnp.array([True, False]),
        "count": jnp.int32(7),
        "pixels": jnp.arange(4, dtype=jnp.uint8),
        "key": jax.random.split(jax.random.key(3), 2),
    }


def test_round_trip_is_exact(tmp_path):
    checkpoint.save(tmp_path, 5, state(), {"note": "x"}, keep=1)
    arrays, note = checkpoint.load(tmp_path, 5)
    restored = checkpoint.from_arrays(jax.eval_shape(state), arrays)
    assert note["step"] == 5 and note["note"] == "x"
    original = state()
    for name, leaf in restored.items():
        if name == "key":
            leaf, original[name] = jax.random.key_data(leaf), jax.random.key_data(original[name])
        np.testing.assert_array_equal(leaf, original[name])
        assert leaf.dtype == original[name].dtype


def test_only_the_newest_are_kept(tmp_path):
    for step in (1, 2, 3, 10):
        checkpoint.save(tmp_path, step, state(), {}, keep=2)
    assert checkpoint.steps(tmp_path) == [3, 10]
    assert len(list(tmp_path.iterdir())) == 4


@pytest.mark.parametrize("damage", ["flip", "cut", "empty", "note", "gone"])
def test_damage_is_noticed_and_the_older_one_is_used(tmp_path, damage):
    checkpoint.save(tmp_path, 1, state(1.0), {}, keep=2)
    path = checkpoint.save(tmp_path, 2, state(2.0), {}, keep=2)
    data = path.read_bytes()
    if damage == "flip":
        path.write_bytes(data[:-3] + bytes([data[-3] ^ 1]) + data[-2:])
    elif damage == "cut":
        path.write_bytes(data[: len(data) // 2])
    elif damage == "empty":
        path.write_bytes(b"")
    elif damage == "note":
        path.with_suffix(".json").write_text("{")
    else:
        path.unlink()
    arrays, note, passed_over = checkpoint.load_newest(tmp_path)
    assert note["step"] == 1 and len(passed_over) == 1 and "step-000000000002" in passed_over[0]
    np.testing.assert_array_equal(arrays["['weights']"], state(1.0)["weights"])


def test_no_intact_checkpoint_is_one_clear_error(tmp_path):
    with pytest.raises(InputError, match="there is none"):
        checkpoint.load_newest(tmp_path / "nothing")
    path = checkpoint.save(tmp_path, 1, state(), {}, keep=1)
    path.write_bytes(b"x")
    with pytest.raises(InputError, match="sha256"):
        checkpoint.load_newest(tmp_path)


def test_a_checkpoint_from_before_an_array_is_read_with_zeros_for_it():
    example = Whole(Agent(Noise(*(np.ones(2, np.float32) for _ in Noise._fields))))
    arrays = checkpoint.to_arrays(example)
    (later, beside), *_ = checkpoint.LATER.items()
    del arrays[later]
    found = checkpoint.from_arrays(example, arrays).agent.noise
    assert found.surprise.tolist() == [0.0, 0.0]
    assert found.weight.tolist() == [1.0, 1.0]
    del arrays[beside]  # neither is there: another configuration, not an older one
    with pytest.raises(InputError, match="surprise"):
        checkpoint.from_arrays(example, arrays)


def test_another_configuration_is_refused_by_name(tmp_path):
    checkpoint.save(tmp_path, 1, state(), {}, keep=1)
    arrays, _ = checkpoint.load(tmp_path, 1)
    other = jax.eval_shape(lambda: {**state(), "weights": jnp.zeros((2, 4))})
    with pytest.raises(InputError, match=r"weights.*float32\[2, 3\].*float32\[2, 4\]"):
        checkpoint.from_arrays(other, arrays)
    with pytest.raises(InputError, match="bias"):
        checkpoint.from_arrays(jax.eval_shape(lambda: {"bias": jnp.zeros(1)}), arrays)


def test_a_half_written_file_never_replaces_a_good_one(tmp_path, monkeypatch):
    target = tmp_path / "config.json"
    checkpoint.write_atomically(target, b"old")

    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr(checkpoint.os, "fsync", fail)
    with pytest.raises(OSError, match="disk full"):
        checkpoint.write_atomically(target, b"new and longer")
    assert target.read_bytes() == b"old"


def test_a_checkpoint_without_its_note_does_not_count(tmp_path):
    path = checkpoint.save(tmp_path, 4, state(), {}, keep=2)
    path.with_suffix(".json").unlink()
    assert checkpoint.steps(tmp_path) == []


def test_what_a_kill_left_behind_goes_with_the_next_checkpoint(tmp_path):
    orphan = checkpoint.save(tmp_path, 4, state(), {}, keep=2)
    orphan.with_suffix(".json").unlink()  # killed between the two files
    partial = tmp_path / ".step-000000000003.safetensors.partial"
    partial.write_bytes(b"half")
    mine = tmp_path / "notes.safetensors"
    mine.write_bytes(b"not a checkpoint")
    checkpoint.save(tmp_path, 2, state(), {}, keep=2)
    checkpoint.save(tmp_path, 3, state(), {}, keep=2)
    assert checkpoint.steps(tmp_path) == [2, 3]
    assert not orphan.exists() and not partial.exists() and mine.exists()
    assert len(list(tmp_path.iterdir())) == 5


def test_notes_are_plain_json(tmp_path):
    path = checkpoint.save(tmp_path, 4, state(), {"lengths": {"log": 3}}, keep=2)
    assert json.loads(path.with_suffix(".json").read_text())["lengths"] == {"log": 3}
