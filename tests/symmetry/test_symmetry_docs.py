"""The two pages on symmetry: their snippets run and print what they say."""

import contextlib
import io
import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
SNIPPET = re.compile(
    r"^```python\n(.*?)^```$(?:\n+<!-- test: output -->\n```text\n(.*?)^```$)?",
    re.MULTILINE | re.DOTALL,
)


@pytest.mark.parametrize("page", ["symmetry-operators", "symmetry-vocabulary"])
def test_snippets_run(page):
    namespace = {}
    found = SNIPPET.findall((DOCS / f"{page}.md").read_text())
    assert len(found) == 2
    for code, expected in found:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(code, namespace)
        assert printed.getvalue() == expected
