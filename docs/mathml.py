"""mkdocs hook: formulas become MathML when the site is built, so pages need no script to show them.

``pymdownx.arithmatex`` marks what stands between dollar signs; browsers draw MathML themselves.
"""

import html
import re
from typing import Any

from latex2mathml.converter import convert

_MARKED = re.compile(
    r'<(?P<tag>span|div) class="arithmatex">\\[(\[](?P<formula>.*?)\\[)\]]</(?P=tag)>', re.DOTALL
)


def on_page_content(content: str, **_: Any) -> str:
    """The page with every marked formula in MathML."""

    def mathml(found: re.Match[str]) -> str:
        display = "block" if found["tag"] == "div" else "inline"
        return convert(html.unescape(found["formula"]).strip(), display=display)

    return _MARKED.sub(mathml, content)
