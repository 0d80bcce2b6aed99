"""Fields of nested frozen dataclasses: read from JSON, checked against their annotations."""

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal, cast, get_args, get_origin, get_type_hints

from gcr_rl.errors import InputError, unknown_name


def field_names(node: Any) -> list[str]:
    """The names of a dataclass's fields."""
    return [f.name for f in dataclasses.fields(node)]


def plain(value: Any) -> Any:
    """Numbers and arrays of NumPy or JAX as Python's own; ranges and lists as tuples."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, dict):
        return {k: v.tolist() if hasattr(v, "tolist") else v for k, v in value.items()}
    return tuple(value) if isinstance(value, list | range) else value


def from_json(kind: Any, data: Mapping[str, Any], where: str) -> Any:
    """The ``kind`` that ``data`` describes; fields that do not exist are refused."""
    if not isinstance(data, Mapping):
        raise InputError(where, data, "a JSON object")
    hints = get_type_hints(kind)
    for name in data:
        if name not in hints:
            raise unknown_name(f"{where} field", name, hints)
    values: dict[str, Any] = {}
    for name, value in data.items():
        if dataclasses.is_dataclass(hints[name]):
            values[name] = from_json(hints[name], value, f"{where}.{name}")
        else:
            values[name] = tuple(value) if isinstance(value, list) else value
    try:
        return kind(**values)
    except TypeError as error:
        raise InputError(
            where, sorted(data), f"an object with the field it lacks: {error}"
        ) from None


def check_types(node: Any, prefix: str) -> None:
    """Refuse a field whose value is not of the annotated type, by its dotted name."""
    hints = get_type_hints(type(node))
    for name, hint in hints.items():
        value, dotted = getattr(node, name), prefix + name
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            check_types(value, dotted + ".")
        elif not _has_type(value, hint):
            raise InputError(dotted, value, _type_name(hint))


def _has_type(value: Any, hint: Any) -> bool:
    origin = get_origin(hint)
    if origin is Literal:
        return value in get_args(hint)
    if origin is tuple:
        return isinstance(value, tuple) and all(_has_type(v, get_args(hint)[0]) for v in value)
    if origin is dict:
        return isinstance(value, dict)
    if hint is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, hint)


def _type_name(hint: Any) -> str:
    if get_origin(hint) is Literal:
        return "one of " + ", ".join(map(str, get_args(hint)))
    if dataclasses.is_dataclass(hint):
        return f"a {cast(type, hint).__name__}"
    names = {
        int: "a whole number", float: "a number", bool: "true or false", str: "a text",
        tuple[int, ...]: "whole numbers", dict[str, Any]: "a dictionary of options",
    }  # fmt: skip
    return names.get(hint, str(hint))
