"""Writes the tables of docs/configuration.md from the package's sections and presets.

Run it by ``python docs/config_tables.py``.

A test compares the page with what this would write.
"""

import ast
import dataclasses
import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

from gcr_rl import config, methods, sections
from gcr_rl import presets as presets_module

PAGE = Path(__file__).parent / "configuration.md"
BEGIN, END = "<!-- tables of {}: begin -->", "<!-- tables of {}: end -->"


def field_lines() -> dict[tuple[str, str], str]:
    """(class, field) -> the line under the field where it is defined."""
    lines = {}
    sources = (inspect.getsource(module) for module in (sections, config))
    for node in (node for source in sources for node in ast.parse(source).body):
        if isinstance(node, ast.ClassDef):
            for field, text in zip(node.body, node.body[1:], strict=False):
                if (
                    isinstance(field, ast.AnnAssign)
                    and isinstance(field.target, ast.Name)
                    and isinstance(text, ast.Expr)
                    and isinstance(text.value, ast.Constant)
                ):
                    lines[node.name, field.target.id] = str(text.value.value)
    return lines


def show(value: Any) -> str:
    """A value as one would type it on the command line."""
    if isinstance(value, bool):
        return str(value)
    if isinstance(value, tuple):
        return " ".join(map(str, value))
    if isinstance(value, int):
        return f"{value:,}"
    return str(value) if value != {} else "none"


def accepted(name: str, hint: Any) -> str:
    """The values that ``validate`` lets pass, for one field alone."""
    if get_origin(hint) is Literal:
        return ", ".join(map(str, get_args(hint)))
    bounds = {field: (low, high) for field, low, high in config._BOUNDS}
    if name in bounds:
        return config._interval(*bounds[name])
    kinds = {bool: "True, False", tuple: "positive whole numbers"}
    return kinds.get(hint, kinds.get(get_origin(hint), ""))


def fields() -> str:
    """One table per part of the configuration."""
    lines, page = field_lines(), []
    example = config.Config(task="TASK")
    for part in dataclasses.fields(config.Config):
        inner = getattr(example, part.name)
        if not dataclasses.is_dataclass(inner):
            continue
        page += [f"### {part.name}", "", str(type(inner).__doc__), ""]
        page += ["| field | default | accepts | what |", "|---|---|---|---|"]
        hints = get_type_hints(type(inner))
        for field in dataclasses.fields(inner):
            name = f"{part.name}.{field.name}"
            what = lines[type(inner).__name__, field.name]
            default = show(getattr(inner, field.name))
            page.append(f"| `{name}` | {default} | {accepted(name, hints[field.name])} | {what} |")
        page.append("")
    return "\n".join(page)


def presets() -> str:
    """What each task sets, and what a method sets on top."""
    page = ["| preset | sets |", "|---|---|"]
    layers: dict[str, Mapping[str, Any]]
    layers = {f"task `{task}`": values for task, values in presets_module.TASK_PRESETS.items()}
    layers |= {f"method `{name}`": method.overrides for name, method in methods.METHODS.items()}
    layers |= {
        f"`{method}` on `{task}`": values
        for (task, method), values in presets_module.METHOD_PRESETS.items()
    }
    for layer, values in layers.items():
        sets = ", ".join(f"`{name}` {show(value)}" for name, value in values.items())
        page.append(f"| {layer} | {sets or 'nothing'} |")
    return "\n".join([*page, ""])


def refreshed(page: str) -> str:
    """``page`` with its tables as the code says."""
    for name, table in (("fields", fields()), ("presets", presets())):
        begin, end = BEGIN.format(name), END.format(name)
        before, _, rest = page.partition(begin)
        _, _, after = rest.partition(end)
        page = f"{before}{begin}\n{table}\n{end}{after}"
    return page


if __name__ == "__main__":
    PAGE.write_text(refreshed(PAGE.read_text()))
