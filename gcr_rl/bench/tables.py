"""TOML files as checked values: every complaint names the file and the place in it."""

import tomllib
from collections.abc import Iterable, Mapping
from importlib import resources
from pathlib import Path
from typing import Any

from gcr_rl.errors import InputError, unknown_name


def packaged(folder: str) -> dict[str, Path]:
    """The TOML files of that folder of this room, by their names."""
    found = Path(str(resources.files("gcr_rl.bench"))) / folder
    return {path.stem: path for path in sorted(found.glob("*.toml"))}


def locate(kind: str, name: str, folder: str) -> Path:
    """The file that ``name`` means: a path ending in .toml, or the name of a packaged file."""
    if name.endswith(".toml"):
        return Path(name)
    known = packaged(folder)
    if name not in known:
        error = unknown_name(kind, name, known)
        raise InputError(kind, name, f"{error.accepted}, or a path that ends in .toml")
    return known[name]


def read_toml(path: Path, field: str) -> dict[str, Any]:
    """The content of a TOML file, or one clear line."""
    try:
        return tomllib.loads(path.read_text())
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(field, str(path), f"a readable TOML file ({error})") from None


def only_names(where: str, table: Mapping[str, Any], known: Iterable[str]) -> None:
    """Refuse a name that nothing reads."""
    names = list(known)
    for name in table:
        if name not in names:
            raise unknown_name(f"{where}: field", name, names)


def as_table(where: str, value: object) -> dict[str, Any]:
    """``value`` if it is a table."""
    if not isinstance(value, dict):
        raise InputError(where, value, "a table")
    return value


def as_text(where: str, value: object) -> str:
    """``value`` if it is a text that says something."""
    if not isinstance(value, str) or not value:
        raise InputError(where, value, "a text")
    return value


def as_texts(where: str, value: object) -> list[str]:
    """``value`` if it is a list of texts, without repetition."""
    if not isinstance(value, list) or not value or not all(isinstance(v, str) for v in value):
        raise InputError(where, value, "a list of names")
    if len(set(value)) != len(value):
        raise InputError(where, value, "each name once")
    return value


def as_count(where: str, value: object, least: int = 1) -> int:
    """``value`` if it is a whole number of at least ``least``."""
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise InputError(where, value, f"a whole number of at least {least}")
    return value


def dotted(table: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested tables as dotted names: {replay = {batch_size = 64}} -> {"replay.batch_size": 64}."""
    flat: dict[str, Any] = {}
    for name, value in table.items():
        if isinstance(value, dict):
            flat |= dotted(value, f"{prefix}{name}.")
        else:
            flat[f"{prefix}{name}"] = value
    return flat
