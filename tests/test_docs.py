"""The documentation says what the code does: snippets run, commands parse, tables hold."""

import contextlib
import importlib.util
import io
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import gcr_rl
from gcr_rl import cli
from gcr_rl.envs import TASKS
from gcr_rl.methods import METHODS
from gcr_rl.presets import preset

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
TESTED = (
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *(
        DOCS / f"{name}.md"
        for name in (
            "agents", "architecture", "bench", "cli", "configuration", "first-run", "index",
            "install", "networks", "paper", "replay", "rooms", "training",
        )
    ),
)  # fmt: skip
PAGES = sorted({ROOT / "CHANGELOG.md", *TESTED, *DOCS.glob("*.md")})

FENCE = re.compile(
    r"(?:^<!-- test: (?P<tag>[^\n]*?) -->\n+)?^```(?P<kind>\w+)\n(?P<body>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)


class Block(NamedTuple):
    kind: str
    body: str
    tag: str
    line: int


def blocks(page: Path) -> list[Block]:
    text = page.read_text()
    return [
        Block(m["kind"], m["body"], m["tag"] or "", text[: m.start("body")].count("\n") + 1)
        for m in FENCE.finditer(text)
    ]


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def run_snippets(page: Path, *, slow: bool) -> int:
    """Run the python blocks in one namespace; compare what they print where the page says it."""
    namespace: dict[str, Any] = {"__name__": "snippet"}
    found = blocks(page)
    ran = 0
    for block, after in zip(found, [*found[1:], None], strict=True):
        if block.kind != "python" or block.tag.startswith("skip "):
            continue
        if block.tag == "slow" and not slow:
            continue
        assert block.tag in ("", "slow"), f"{name(page)}:{block.line}: unknown tag {block.tag!r}"
        printed = io.StringIO()
        # The empty lines make line numbers in a traceback those of the page.
        code = compile("\n" * block.line + block.body, str(page), "exec")
        with contextlib.redirect_stdout(printed):
            exec(code, namespace)
        ran += 1
        if after is not None and after.tag == "output":
            assert printed.getvalue() == after.body, f"{name(page)}:{after.line}"
    return ran


def with_python(slow: bool) -> list[Path]:
    return [
        page
        for page in TESTED
        if any(block.kind == "python" and (block.tag == "slow") == slow for block in blocks(page))
    ]


@pytest.mark.parametrize("page", with_python(slow=False), ids=name)
def test_snippets_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_snippets(page, slow=False)


@pytest.mark.slow
@pytest.mark.parametrize("page", with_python(slow=True), ids=name)
def test_slow_snippets_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_snippets(page, slow=True)


def commands(page: Path) -> list[tuple[int, list[str]]]:
    """The words of every line in a bash block, without comments."""
    found = []
    for block in blocks(page):
        if block.kind == "bash":
            for offset, line in enumerate(block.body.splitlines()):
                if words := shlex.split(line, comments=True):
                    found.append((block.line + 1 + offset, words))
    return found


PARSERS = {
    "resume": cli.ResumeArguments,
    "eval": cli.EvalArguments,
    "play": cli.PlayArguments,
    "inspect": cli.InspectArguments,
    "report": cli.ReportArguments,
    "bench": cli.BenchArguments,
    "paper": cli.PaperArguments,
    "tune": cli.TuneArguments,
    "watch": cli.WatchArguments,
    "theory": cli.TheoryArguments,
    "envs": cli.ListArguments,
    "methods": cli.ListArguments,
}
SWITCHES = ("--retry", "--list", "--quick", "--once")


def parse(words: list[str]) -> None:
    """What `gcr` does with ``words`` before it does anything."""
    command, *rest = words
    if words in (["--help"], ["--version"]):
        return
    assert command in cli.COMMANDS
    if rest == ["--help"]:
        return
    if command == "train":
        _, config = cli._train_config(rest)
        assert config.task in TASKS or config.task.startswith("gym:")
        assert config.task not in TASKS or set(config.env) <= set(TASKS[config.task].options)
    else:
        cli.parse(PARSERS[command], command, cli.switches(rest, *SWITCHES))


@pytest.mark.parametrize("page", TESTED, ids=name)
def test_commands_parse(page: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for line, words in commands(page):
        where = f"{name(page)}:{line}: {shlex.join(words)}"
        if words[0] == "gcr":
            try:
                parse(words[1:])
            except Exception as error:
                raise AssertionError(where) from error
        elif words[0] == "make":
            assert set(words[1:]) <= targets, where
    for mention in re.findall(r"`gcr ([a-z]+)", page.read_text()):
        assert mention in cli.COMMANDS, f"{name(page)}: gcr {mention}"
    for mention in re.findall(r"`make ([a-z-]+)`", page.read_text()):
        assert mention in targets, f"{name(page)}: make {mention}"


def test_the_parser_refuses_what_does_not_exist() -> None:
    for words in (["train", "CartPole", "--stepz", "3"], ["eval", "runs/x", "--episode", "3"]):
        with pytest.raises(cli.UsageError):
            parse(words)


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as the site and code hosts both write them."""
    text = FENCE.sub("", page.read_text())
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    plain = [re.sub(r"[^\w\s-]", "", heading).strip().lower() for heading in headings]
    return {re.sub(r"\s+", "-", heading) for heading in plain}


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_resolve(page: Path) -> None:
    text = re.sub(r"`[^`\n]*`", "", FENCE.sub("", page.read_text()))
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        assert target.exists(), f"{name(page)}: {link}"
        assert not anchor or anchor in anchors(target), f"{name(page)}: {link}"


def test_navigation_has_every_page() -> None:
    listed = re.findall(r"[\w-]+\.md", (ROOT / "mkdocs.yml").read_text())
    assert sorted(listed) == sorted(path.name for path in DOCS.glob("*.md"))


def test_configuration_tables_are_those_of_the_code() -> None:
    spec = importlib.util.spec_from_file_location("config_tables", DOCS / "config_tables.py")
    assert spec is not None and spec.loader is not None
    tables = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tables)
    page = tables.PAGE.read_text()
    assert page == tables.refreshed(page), "run: python docs/config_tables.py"


def section(page: Path, heading: str) -> str:
    """What stands between a heading and the next one."""
    after = re.split(rf"^#+ {re.escape(heading)}$", page.read_text(), flags=re.MULTILINE)[1]
    return re.split(r"^#+ ", after, flags=re.MULTILINE)[0]


def first_column(page: Path, heading: str) -> list[str]:
    """The code names in the first column of the first table under a heading."""
    table = re.search(r"^\|.*\n\|[-|]+\n((?:\|.*\n)+)", section(page, heading), re.MULTILINE)
    assert table is not None
    return re.findall(r"`([^`]+)`", " ".join(row.split("|")[1] for row in table[1].splitlines()))


def test_imports_of_rooms_are_documented() -> None:
    import grimp

    graph = grimp.build_graph("gcr_rl")
    imports: dict[str, set[str]] = {}
    for module in graph.modules - {"gcr_rl"}:
        room = module.split(".")[1]
        found = {other.split(".")[1] for other in
                 graph.find_modules_directly_imported_by(module) - {"gcr_rl"}}  # fmt: skip
        imports.setdefault(room, set()).update(found - {room})
    documented: dict[str, set[str]] = {}
    for first, second in re.findall(
        r"^\| (`[^|]+) \| ([^|]+) \|$", section(DOCS / "architecture.md", "One way"), re.M
    ):
        for room in re.findall(r"`(\w+)`", first):
            documented[room] = set(re.findall(r"`(\w+)`", second)) & set(imports)
    assert documented == imports


def test_readme_lists_every_task_and_method() -> None:
    page = ROOT / "README.md"
    assert sorted(first_column(page, "Tasks")) == sorted([*TASKS, "gym:ID"])
    assert sorted(first_column(page, "Methods")) == sorted(METHODS)
    assert sorted(first_column(DOCS / "agents.md", "Agents")) == sorted(METHODS)


def test_readme_returns_are_exact() -> None:
    text = (ROOT / "README.md").read_text().replace("−", "-")
    for task, decimals in (("RotMirrorGrid", 2), ("ButtonPermutation", 2), ("NoisyRPSChain", 2)):
        row = re.search(rf"^\| `{task}` .*\| ([-\d.]+) \| ([-\d.]+) \|$", text, re.MULTILINE)
        assert row is not None
        assert float(row[1]) == round(TASKS[task].optimal_return() or 0.0, decimals)
        assert float(row[2]) == round(TASKS[task].random_return() or 0.0, decimals)


@pytest.fixture(scope="module")
def small_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    config = preset("NoisyRPSChain", "ddqn", {"steps": 2_000, "seeds": (0, 1)})
    return gcr_rl.train(config, tmp_path_factory.mktemp("docs") / "run")


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.parametrize("file", ["log.jsonl", "evaluation.jsonl"])
def test_schema_of_rows_is_documented(small_run: Path, file: str) -> None:
    documented = first_column(DOCS / "training.md", file)
    kinds = {"int": int, "float": float, "list of float": list, "list of int": list}
    table = dict(
        re.findall(r"^\| `(\w+)` \| ([\w ]+) \|", (DOCS / "training.md").read_text(), re.M)
    )
    written = rows(small_run / file)
    assert list(written[-1]) == documented
    for row in written:
        assert set(row) <= set(documented)
        for field, value in row.items():
            assert isinstance(value, kinds[table[field].removesuffix(" or null")])


@pytest.mark.parametrize("file", ["summary.json", "provenance.json"])
def test_schema_of_files_is_documented(small_run: Path, file: str) -> None:
    documented = first_column(DOCS / "training.md", file)
    assert set(json.loads((small_run / file).read_text())) == set(documented)


def test_citation_names_this_version() -> None:
    assert f"version: {gcr_rl.__version__}\n" in (ROOT / "CITATION.cff").read_text()


@pytest.mark.foreign
def test_site_builds(tmp_path: Path) -> None:
    for module in ("mkdocs", "material", "latex2mathml"):
        pytest.importorskip(module, reason=f"{module} is not installed (extra: docs)")
    subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)],
        cwd=ROOT, check=True,
    )  # fmt: skip
    evaluation = (tmp_path / "evaluation.html").read_text()
    assert "<math" in evaluation and "arithmatex" not in evaluation
    for page in tmp_path.rglob("*.html"):
        loaded = re.findall(
            r'<(?:script|link|img)[^>]*(?:src|href)="(https?:[^"]+)"', page.read_text()
        )
        assert not loaded, f"{page.name} loads {loaded}"
