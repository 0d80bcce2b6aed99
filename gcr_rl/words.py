"""The words of a command line as values, or as one line that says what is wrong with them."""

import contextlib
import io
import re
import shlex
from collections.abc import Sequence
from typing import Any

import tyro

from gcr_rl.errors import InputError


class UsageError(Exception):
    """Words on the command line that no option takes."""


def parse(kind: Any, name: str, words: list[str], default: Any = None) -> Any:
    """tyro's parser; what it would print as a box of errors becomes one line."""
    errors = io.StringIO()
    keywords: dict[str, Any] = {} if default is None else {"default": default}
    try:
        with contextlib.redirect_stderr(errors):
            return tyro.cli(
                kind, prog=f"gcr {name}", args=words,
                config=(tyro.conf.FlagConversionOff,), **keywords,
            )  # fmt: skip
    except SystemExit as stop:
        if not stop.code:
            raise
        text = " ".join(re.sub(r"[^\x20-\x7e]|[-+|]{4,}", " ", errors.getvalue()).split())
        # Drop the box's title, which its text repeats, and the help that follows.
        text = re.sub(r"^(?:Unrecognized options|Value error|Parsing error|Invalid choice"
                      r"|Missing argument|Required options) (?=[A-Zi])", "", text)  # fmt: skip
        text = re.sub(r"(Argument helptext:|For full helptext).*", "", text).strip()
        raise UsageError(f"{text or shlex.join(words)} (see gcr {name} --help)") from None


def switches(words: list[str], *names: str) -> list[str]:
    """``words`` in which a switch that stands alone says True."""
    return [
        f"{word}=True" if word in names and after[:1] not in (["True"], ["False"]) else word
        for word, after in ((word, words[place + 1 :]) for place, word in enumerate(words))
    ]


def options(words: Sequence[str]) -> dict[str, Any]:
    """NAME=VALUE words as a dictionary of numbers, truth values and texts."""
    named: dict[str, Any] = {}
    for word in words:
        name, separator, value = word.partition("=")
        if not separator or not name:
            raise InputError("env", word, "NAME=VALUE")
        named[name] = _value(value)
    return named


def _value(text: str) -> bool | int | float | str:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for kind in (int, float):
        with contextlib.suppress(ValueError):
            return kind(text)
    return text
