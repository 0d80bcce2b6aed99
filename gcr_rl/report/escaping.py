"""Names come from run folders and are never trusted: what may be printed, and where."""

import re
import unicodedata

LONGEST_NAME = 80
_MARKDOWN_SPECIAL = re.compile(r"([\\`*_\[\]|~$#!])")


def clean(text: object, longest: int = LONGEST_NAME) -> str:
    """One printable line: control and format characters (newlines, escapes) become spaces."""
    shown = "".join(" " if unicodedata.category(c)[0] in "CZ" else c for c in str(text))
    shown = " ".join(shown.split())
    return shown if len(shown) <= longest else shown[: longest - 1] + "…"


def escape_markdown(text: object, longest: int = LONGEST_NAME) -> str:
    """``clean`` text that Markdown and HTML show as it is, inside a table too."""
    shown = clean(text, longest).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return _MARKDOWN_SPECIAL.sub(r"\\\1", shown)
