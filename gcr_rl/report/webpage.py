"""The page: one HTML file with its style, its script and its data inside."""

import base64
import hashlib
from collections.abc import Callable
from importlib import resources
from typing import Any

from gcr_rl.report.escaping import escape_script

SCRIPTS = ("drawing.js", "charts.js", "sections.js", "page.js")
MOST_BYTES = 14_000_000
"""A page stays below this: curves are thinned until it does."""
POINTS = (200, 100, 50, 25)


def html_page(data_of: Callable[[int], dict[str, Any]]) -> str:
    """The page of ``data_of(points)``, with as many points per curve as its size allows."""
    page = ""
    for points in POINTS:
        page = assemble(data_of(points))
        if len(page) < MOST_BYTES:
            break
    return page


def assemble(data: dict[str, Any]) -> str:
    """The file: nothing in it is fetched from elsewhere, and no script but ours may run.

    Data stand in it as JSON without ``<``; the script puts them into the page as text. Should
    markup ever slip through, the policy in the head lets no other script run: it names ours by
    its hash.
    """
    script = "\n".join(_asset(name) for name in SCRIPTS)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    parts = {
        "STYLE": _asset("style.css"),
        "POLICY": f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'",
        "DATA": escape_script(data),
        "SCRIPT": script,
    }
    # One pass over our own template: a placeholder inside the data is never filled.
    pieces = _asset("page.html").split("@@")
    return "".join(parts[piece] if number % 2 else piece for number, piece in enumerate(pieces))


def _asset(name: str) -> str:
    return (resources.files("gcr_rl.report") / "page" / name).read_text(encoding="utf-8")
