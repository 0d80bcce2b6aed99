"""Names come from run folders and are never trusted: what may be printed, and where."""

import json
import re
import unicodedata
from typing import Any

LONGEST_NAME = 80
_MARKDOWN_SPECIAL = re.compile(r"([\\`*_\[\]|~$#!])")
_LATEX_SPECIAL = {
    **{sign: "\\" + sign for sign in "&%$#_{}"},
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "[": "{[}",  # after a line break [ would begin its optional argument
    "]": "{]}",
    "†": r"\dag{}",
    "‡": r"\ddag{}",
    "≥": r"$\geq$",
    "–": "--",
    "…": r"\ldots{}",
}


def clean(text: object, longest: int = LONGEST_NAME) -> str:
    """One printable line: control and format characters (newlines, escapes) become spaces."""
    shown = "".join(" " if unicodedata.category(c)[0] in "CZ" else c for c in str(text))
    shown = " ".join(shown.split())
    return shown if len(shown) <= longest else shown[: longest - 1] + "…"


def escape_markdown(text: object, longest: int = LONGEST_NAME) -> str:
    """``clean`` text that Markdown and HTML show as it is, inside a table too."""
    shown = clean(text, longest).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return _MARKDOWN_SPECIAL.sub(r"\\\1", shown)


def escape_latex(text: object, longest: int = LONGEST_NAME) -> str:
    """``clean`` text that LaTeX sets as it is, inside a table too; numbers keep a real minus.

    Letters beyond ASCII are left to the engine, which reads UTF-8.
    """
    escaped = "".join(_LATEX_SPECIAL.get(sign, sign) for sign in clean(text, longest))
    return re.sub(r"(?<![\w-])-(?=\d)", "$-$", escaped)


def escape_script(data: Any) -> str:
    """``data`` as JSON that may stand inside a ``<script>`` element: no ``<``, ``>``, ``&``.

    ASCII alone: no line separator of Unicode can end a line of script.
    """
    text = json.dumps(data, separators=(",", ":"), allow_nan=False, ensure_ascii=True)
    for sign in "<>&":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return text
