"""Checkpoints: safetensors, written atomically, with a checksum; nothing is unpickled.

A checkpoint is two files. ``step-N.safetensors`` holds every array of the state by its
path; ``step-N.json``, renamed into place last, makes it valid: it holds the checksum and
what the host must remember (the step, and how long the logs were).
"""

import hashlib
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import safetensors.numpy
from jaxtyping import PyTree

from gcr_rl.errors import InputError
from gcr_rl.training.state import GENERATOR

LATER = {".agent.noise.surprise": ".agent.noise.weight"}
"""Arrays that states did not always have, each with one beside which it belongs. A checkpoint
that has that one alone is from before, and is read with zeros for the other."""

_NAME = re.compile(r"step-(\d+)\.json")
_PARTIAL = re.compile(r"\.step-\d+\.(json|safetensors)\.partial")


def write_atomically(path: Path, data: bytes) -> None:
    """Write ``data`` so that ``path`` holds either the old content or all of the new."""
    partial = path.with_name(f".{path.name}.partial")
    try:
        with open(partial, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    except BaseException:  # an interruption too leaves nothing half written
        partial.unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)  # the rename itself must survive a power cut
    finally:
        os.close(folder)


def to_arrays(state: PyTree) -> dict[str, np.ndarray]:
    """Every leaf by its path, not copied where it lies in the host's memory; random keys as their
    raw words."""
    arrays = {}
    for path, leaf in jax.tree_util.tree_leaves_with_path(state):
        if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            leaf = jax.random.key_data(leaf)
        arrays[jax.tree_util.keystr(path)] = np.asarray(leaf, order="C")
    return arrays


def from_arrays(example: PyTree, arrays: Mapping[str, np.ndarray]) -> PyTree:
    """A state shaped like ``example`` (arrays or their shapes) with the stored leaves."""

    def restore(path: Any, leaf: Any) -> jax.Array:
        name = jax.tree_util.keystr(path)
        if LATER.get(name) in arrays and name not in arrays:
            return jnp.zeros(leaf.shape, leaf.dtype)
        if name not in arrays:
            raise InputError(
                "checkpoint", name, "a checkpoint of this configuration; it lacks this"
            )
        stored = arrays[name]
        value = jnp.array(stored)
        if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            value = jax.random.wrap_key_data(value, impl=GENERATOR)
        if value.shape != leaf.shape or value.dtype != leaf.dtype:
            raise InputError(
                f"checkpoint array {name}", f"{value.dtype}{list(value.shape)}",
                f"{leaf.dtype}{list(leaf.shape)}, as the configuration says",
            )  # fmt: skip
        return value

    return jax.tree_util.tree_map_with_path(restore, example)


def save(folder: Path, step: int, state: PyTree, host: Mapping[str, Any], keep: int) -> Path:
    """Write checkpoint ``step``; drop all but the newest ``keep``, and what kills left behind."""
    folder.mkdir(exist_ok=True)  # not its parents: a run folder that is gone stays gone
    data = safetensors.numpy.save(to_arrays(state))
    name = f"step-{step:012d}"
    write_atomically(folder / f"{name}.safetensors", data)
    note = {"step": step, "sha256": hashlib.sha256(data).hexdigest(), **host}
    write_atomically(folder / f"{name}.json", json.dumps(note).encode())
    for old in steps(folder)[:-keep]:
        # The note goes first: an interrupted removal must not leave a note without its data.
        (folder / f"step-{old:012d}.json").unlink(missing_ok=True)
        (folder / f"step-{old:012d}.safetensors").unlink(missing_ok=True)
    for path in leftovers(folder):
        path.unlink(missing_ok=True)
    return folder / f"{name}.safetensors"


def leftovers(folder: Path) -> list[Path]:
    """Files of checkpoints that a kill kept from being finished, or from being removed.

    Arrays without their note, and files that never got their name.
    """
    return [
        path
        for path in folder.iterdir()
        if _PARTIAL.fullmatch(path.name)
        or (
            _NAME.fullmatch(path.with_suffix(".json").name)
            and path.suffix == ".safetensors"
            and not path.with_suffix(".json").exists()
        )
    ]


def steps(folder: Path) -> list[int]:
    """The steps of all checkpoints with a note, ascending."""
    if not folder.is_dir():
        return []
    found = (_NAME.fullmatch(path.name) for path in folder.iterdir())
    return sorted(int(match.group(1)) for match in found if match)


def load(folder: Path, step: int) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """The arrays and the note of checkpoint ``step``; refuses one whose checksum is off."""
    path = folder / f"step-{step:012d}.safetensors"
    try:
        note = json.loads(path.with_suffix(".json").read_text())
        data = path.read_bytes()
    except (OSError, ValueError, RecursionError) as error:
        raise InputError("checkpoint", str(path), f"a readable checkpoint ({error})") from None
    if not isinstance(note, dict) or hashlib.sha256(data).hexdigest() != note.get("sha256"):
        raise InputError("checkpoint", str(path), "a file whose sha256 is the one in its note")
    if note.get("step") != step:
        raise InputError("checkpoint", str(path), f"a note that says step {step}")
    return safetensors.numpy.load(data), note


def load_newest(folder: Path) -> tuple[dict[str, np.ndarray], dict[str, Any], list[str]]:
    """The newest intact checkpoint, and one line for each damaged one that was passed over."""
    passed_over = []
    for step in reversed(steps(folder)):
        try:
            arrays, note = load(folder, step)
        except InputError as error:
            passed_over.append(str(error))
            continue
        return arrays, note, passed_over
    reason = passed_over[0] if passed_over else "there is none"
    raise InputError("checkpoint", str(folder), f"a folder with an intact checkpoint ({reason})")
