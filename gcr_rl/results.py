"""The file of `--json`: refused before the work begins, written as a whole after it."""

import json
import os
from pathlib import Path
from typing import Any

from gcr_rl.errors import InputError


def check_json_file(file: Path | None) -> None:
    """Refuse, before any work is done, a place where no file can be written."""
    if file is None or _is_stream(file):
        return
    if not file.name or file.is_dir():
        raise InputError("json", str(file), "a file, not a folder")
    if not os.access(file.parent, os.W_OK):
        raise InputError("json", str(file), "a file in a folder that exists and can be written")


def _is_stream(file: Path) -> bool:
    """/dev/stdout, a pipe or a link: written to, where a plain file is replaced as a whole."""
    return not file.is_dir() and (file.is_symlink() or (file.exists() and not file.is_file()))


def write_result(file: Path | None, data: Any) -> None:
    """Write ``data`` as JSON to ``file``, as a whole; nothing if there is no file."""
    if file is None:
        return
    check_json_file(file)
    from gcr_rl.training.run_folder import write_json

    try:
        if _is_stream(file):
            file.write_text(json.dumps(data) + "\n")
        else:
            write_json(file, data)
    except OSError as error:
        raise InputError("json", str(file), f"a file that can be written ({error})") from None
