"""A run folder: the only place where a run's files are named, written and read.

config.json        the configuration, complete
provenance.json    command, commit, versions, machine: what made these rows
log.jsonl          a row per seed at each stop of the training loop
evaluation.jsonl   a row per seed and evaluation, with every episode's return
summary.json       status and final numbers; written when the run ends
checkpoints/       the newest states, see checkpoint.py
failed/            the state at a failure (a NaN loss, say)
tensorboard/       the rows as event files, if run.tensorboard asks for them
lock               held while a process trains in this folder
"""

import fcntl
import importlib.metadata
import json
import math
import os
import platform
import subprocess
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import IO, Any

from gcr_rl.config import Config, validate
from gcr_rl.errors import InputError
from gcr_rl.training.checkpoint import write_atomically
from gcr_rl.training.events import EventFiles

WALL_CLOCK_FIELDS = ("wall_s", "steps_per_s")
"""Fields of log rows that differ between two runs of one configuration; all others do not."""

_PACKAGES = ("gcr-rl", "jax", "jaxlib", "equinox", "optax", "gymnax", "gymnasium", "numpy")


class RunFolder:
    """An open run folder, locked for as long as it is open."""

    def __init__(self, path: Path, config: Config, lock: IO[str]) -> None:
        self.path, self.config, self._lock = path, config, lock
        self._logs = {name: open(path / f"{name}.jsonl", "a") for name in ("log", "evaluation")}
        self._events = EventFiles(path / "tensorboard") if config.run.tensorboard else None

    @property
    def checkpoints(self) -> Path:
        """The folder of the newest states."""
        return self.path / "checkpoints"

    @staticmethod
    def create(path: Path, config: Config, command: str) -> "RunFolder":
        """Make a new folder for ``config``; one that holds anything is refused."""
        try:
            if path.exists() and (not path.is_dir() or any(path.iterdir())):
                raise InputError(
                    "out", str(path), "a folder that does not exist or is empty "
                    "(`gcr resume` continues an unfinished run)",
                )  # fmt: skip
            path.mkdir(parents=True, exist_ok=True)
            lock = _acquire(path)
            (path / "checkpoints").mkdir()  # fails if another process trained here meanwhile
            write_json(path / "config.json", config.to_json())
            write_json(path / "provenance.json", provenance(command))
        except OSError as error:
            raise InputError("out", str(path), f"a folder that can be written ({error})") from None
        return RunFolder(path, config, lock)

    @staticmethod
    def open(path: Path) -> "RunFolder":
        """Open an existing folder to train on in it."""
        config = read_config(path)
        try:
            lock = _acquire(path)
        except OSError as error:
            raise InputError("run", str(path), f"a folder that can be written ({error})") from None
        return RunFolder(path, config, lock)

    def append(self, log: str, rows: Iterable[Mapping[str, Any]]) -> None:
        """Add rows to ``log`` or ``evaluation``; numbers that are not finite become null."""
        file, kept = self._logs[log], [finite(row) for row in rows]
        file.writelines(json.dumps(row, allow_nan=False) + "\n" for row in kept)
        file.flush()
        if self._events is not None:
            self._events.append(log, kept)

    def lengths(self) -> dict[str, int]:
        """Bytes in each log, safely on disk: what a checkpoint remembers."""
        for file in self._logs.values():
            file.flush()
            os.fsync(file.fileno())
        return {name: file.tell() for name, file in self._logs.items()}

    def cut_back(self, lengths: Mapping[str, int]) -> None:
        """Drop the rows that were written after a checkpoint with these ``lengths``."""
        for name, file in self._logs.items():
            present, kept = (self.path / f"{name}.jsonl").stat().st_size, lengths[name]
            if present < kept:
                raise InputError(
                    f"{name}.jsonl", f"{present} bytes",
                    f"at least the {kept} bytes it had at the checkpoint",
                )  # fmt: skip
            file.truncate(kept)
            file.seek(kept)  # or the next checkpoint would remember the length before the cut

    def finish(self, summary: Mapping[str, Any]) -> None:
        """Write summary.json."""
        write_json(self.path / "summary.json", summary)

    def close(self) -> None:
        """Close the logs and release the lock."""
        try:
            for file in self._logs.values():
                file.close()
        finally:
            self._lock.close()

    def __enter__(self) -> "RunFolder":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _acquire(path: Path) -> IO[str]:
    """The folder's lock; the system frees it when its process ends, however it ends."""
    lock = open(path / "lock", "a")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        raise InputError("run", str(path), "a folder in which no other process trains") from None
    return lock


def finite(data: Any) -> Any:
    """``data`` with None for every NaN and infinity, which JSON does not have."""
    if isinstance(data, Mapping):
        return {name: finite(value) for name, value in data.items()}
    if isinstance(data, list | tuple):
        return [finite(value) for value in data]
    return None if isinstance(data, float) and not math.isfinite(data) else data


def write_json(path: Path, data: Mapping[str, Any]) -> None:
    """Write ``data`` atomically, readable by people."""
    write_atomically(path, (json.dumps(data, indent=2) + "\n").encode())


def as_path(field: str, path: object) -> Path:
    """``path`` as a Path; refuses what is neither text nor a path."""
    if not isinstance(path, str | Path):
        raise InputError(field, path, "a path, as text or pathlib.Path")
    return Path(path)


def read_json(path: Path, field: str) -> dict[str, Any]:
    """The object in a JSON file, or one clear line."""
    try:
        data = json.loads(path.read_text())
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(field, str(path), f"a readable JSON file ({error})") from None
    if not isinstance(data, dict):
        raise InputError(field, str(path), f"a JSON object (this is a {type(data).__name__})")
    return data


def read_summary(path: Path) -> dict[str, Any]:
    """The summary of the ended run in ``path``; refuses one that no run wrote."""
    file = path / "summary.json"
    summary = read_json(file, "run")
    needed = {
        "finished": ("seeds", "steps", "final_return", "returns_are"),
        "failed": ("reason",),
    }.get(summary.get("status", ""))
    if needed is None or any(name not in summary for name in needed):
        raise InputError("run", str(file), "the summary of a run, finished or failed")
    return summary


def read_config(path: Path) -> Config:
    """The validated configuration of the run in ``path``."""
    if not path.is_dir():
        raise InputError("run", str(path), "the folder of a run (as `gcr train` made it)")
    config = Config.from_json(read_json(path / "config.json", "run"))
    validate(config)
    return config


def read_rows(path: Path) -> list[dict[str, Any]]:
    """The rows of a .jsonl file."""
    try:
        return [json.loads(line) for line in path.read_text().splitlines()]
    except (OSError, ValueError, RecursionError) as error:
        raise InputError("run", str(path), f"a readable log ({error})") from None


def provenance(command: str) -> dict[str, Any]:
    """What made a run: command, commit, versions, machine, time."""
    import jax

    return {
        "command": command,
        "commit": commit_of(Path(__file__)),
        "versions": {name: _version(name) for name in _PACKAGES},
        "python": platform.python_version(),
        "platform": platform.platform(),
        "device": str(jax.devices()[0].device_kind),
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def commit_of(file: Path) -> str | None:
    """The commit of the source tree of ``file``, with '+changes' if its folder was modified.

    None outside git, and for an installed copy that merely lies inside somebody's repository.
    """

    def git(*words: str) -> str:
        return subprocess.run(
            ["git", "-C", str(file.parent), *words],
            capture_output=True, text=True, check=True, timeout=10,
        ).stdout.strip()  # fmt: skip

    try:
        git("ls-files", "--error-unmatch", file.name)
        changes = git("status", "--porcelain", "--untracked-files=no", ".")
        return git("rev-parse", "HEAD") + ("+changes" if changes else "")
    except (OSError, subprocess.SubprocessError):
        return None
