"""Files of a report: written whole or not at all, and never over somebody else's file."""

import json
import os
from collections.abc import Mapping
from pathlib import Path

from gcr_rl.errors import InputError

KIND = "gcr-rl report"
INDEX = "report.json"


def earlier_files(out_dir: Path) -> list[str]:
    """Names of the files that an earlier report wrote into ``out_dir``, by its index."""
    try:
        index = json.loads((out_dir / INDEX).read_bytes())
    except (OSError, ValueError, RecursionError):
        return []
    if not isinstance(index, dict) or index.get("kind") != KIND:
        return []
    listed = [index.get("files"), index.get("earlier_files")]
    names = [name for names in listed if isinstance(names, list) for name in names]
    return [name for name in names if isinstance(name, str)]


def check_target(out_dir: Path, names: list[str]) -> None:
    """Refuse, before anything is written, what would overwrite a file that is not a report's."""
    if out_dir.exists() and not out_dir.is_dir():
        raise InputError("out", str(out_dir), "a folder, or a path where one can be made")
    ours = set(earlier_files(out_dir))
    for name in names:
        if os.path.lexists(out_dir / name) and name not in ours:
            raise InputError(
                "out", str(out_dir / name), "a folder without this file: no report of ours wrote it"
            )


def write_files(out_dir: Path, contents: Mapping[str, bytes]) -> list[Path]:
    """Write each file beside its place and rename it there; the index goes first.

    The index names what belongs to the report, so an interrupted report can be written again.
    """
    names = sorted(contents, key=lambda name: (name != INDEX, name))
    check_target(out_dir, names)
    try:
        out_dir.mkdir(parents=True, exist_ok=True)
        return [_write_atomically(out_dir / name, contents[name]) for name in names]
    except OSError as error:
        raise InputError("out", str(out_dir), f"a writable folder ({error.strerror})") from error


def _write_atomically(path: Path, content: bytes) -> Path:
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with open(temporary, "xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    return path
