"""The folder of an inspection: pictures and their index, never over somebody else's file."""

import json
import os
from pathlib import Path
from typing import Any

from gcr_rl.errors import InputError
from gcr_rl.inspection.findings import Findings
from gcr_rl.training.checkpoint import write_atomically

KIND, INDEX = "gcr-rl inspection", "inspection.json"


def check_folder(out: Path) -> None:
    """Refuse, before any work, a place where no folder can be or somebody's inspection.json."""
    if os.path.lexists(out) and not out.is_dir():
        raise InputError("out", str(out), "a folder, or a path where one can be made")
    if os.path.lexists(out / INDEX) and _earlier(out) is None:
        raise InputError("out", str(out / INDEX), "a folder without this file: no inspection's")


def write_findings(findings: Findings, out: Path) -> list[Path]:
    """Write inspection.json (all numbers, and which files are ours), then the pictures."""
    check_folder(out)
    ours = _earlier(out) or []
    for name in findings.images:
        if os.path.lexists(out / name) and name not in ours:
            raise InputError("out", str(out / name), "a folder without this file: it is not ours")
    names = sorted({*ours, *findings.images})
    index = {"kind": KIND, "files": names, **findings.data()}
    contents = {INDEX: (json.dumps(index, indent=2) + "\n").encode(), **findings.images}
    try:
        out.mkdir(parents=True, exist_ok=True)
        for name, content in contents.items():
            write_atomically(out / name, content)
    except OSError as error:
        raise InputError("out", str(out), f"a writable folder ({error})") from None
    return [out / name for name in contents]


def _earlier(out: Path) -> list[str] | None:
    """The pictures of an earlier inspection, by its index; None where there is none of ours."""
    try:
        index: Any = json.loads((out / INDEX).read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(index, dict) or index.get("kind") != KIND:
        return None
    files = index.get("files")
    return [name for name in files if isinstance(name, str)] if isinstance(files, list) else []
