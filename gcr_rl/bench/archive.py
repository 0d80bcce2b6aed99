"""A run folder as bytes: a tar of plain files, read back without trust in it."""

import io
import tarfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from gcr_rl.errors import InputError
from gcr_rl.training import checkpoint
from gcr_rl.training.checkpoint import write_atomically

_LOGS = ("log.jsonl", "evaluation.jsonl")
_LOOKS = 3
"""Looks at a run that removes checkpoints while they are read."""


def pack(run: Path, *, ended: bool) -> bytes:
    """The files of a run; of one that has not ended, what it needs to go on.

    That is its newest checkpoint and, read after it, its logs: a checkpoint knows how long they
    were, and they only grow.
    """
    held = io.BytesIO()
    with tarfile.open(fileobj=held, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, data in _all_files(run) if ended else _files_to_go_on(run):
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return held.getvalue()


def unpack(data: bytes, folder: Path) -> None:
    """Write the files of an archive below the new folder ``folder``.

    Only regular files with plain relative names: anything else is refused before a byte of it is
    written. Modes, owners and times of the archive are not taken over.
    """
    folder.mkdir(parents=True)
    seen: set[PurePosixPath] = set()
    try:
        with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as archive:
            for entry in archive:
                name = _plain_name(entry, seen)
                content = archive.extractfile(entry)
                assert content is not None
                path = folder / name
                path.parent.mkdir(parents=True, exist_ok=True)
                write_atomically(path, content.read())
    except tarfile.TarError as error:
        raise InputError("archive", f"{len(data)} bytes", f"a tar file ({error})") from None


def _plain_name(entry: tarfile.TarInfo, seen: set[PurePosixPath]) -> PurePosixPath:
    name = PurePosixPath(entry.name)
    plain = (
        entry.isreg()
        and not name.is_absolute()
        and name.parts
        and not {"..", ""} & {*name.parts}
        and "\0" not in entry.name
        and name not in seen
    )
    if not plain:
        raise InputError("archive", entry.name, "regular files below one folder, each once")
    seen.add(name)
    return name


def _all_files(run: Path) -> Iterator[tuple[str, bytes]]:
    for path in sorted(run.rglob("*")):
        if path.is_file() and not path.is_symlink() and not _is_passing(path):
            yield path.relative_to(run).as_posix(), path.read_bytes()


def _is_passing(path: Path) -> bool:
    """What only a process at work needs."""
    return path.name == "lock" or (path.name.startswith(".") and path.suffix == ".partial")


def _files_to_go_on(run: Path) -> Iterator[tuple[str, bytes]]:
    for name in ("config.json", "provenance.json"):
        yield name, (run / name).read_bytes()
    yield from _newest_checkpoint(run).items()
    for path in sorted((run / "tensorboard").rglob("*")):
        if path.is_file():
            yield path.relative_to(run).as_posix(), path.read_bytes()
    for name in _LOGS:
        if (run / name).exists():
            yield name, (run / name).read_bytes()


def _newest_checkpoint(run: Path) -> dict[str, bytes]:
    """The two files of the newest checkpoint; none if there is none yet."""
    folder = run / "checkpoints"
    for _ in range(_LOOKS):
        steps = checkpoint.steps(folder)
        names = [
            f"step-{step:012d}.{kind}" for step in steps[-1:] for kind in ("safetensors", "json")
        ]
        try:
            return {f"checkpoints/{name}": (folder / name).read_bytes() for name in names}
        except FileNotFoundError:  # a newer one has taken its place
            continue
    return {}
