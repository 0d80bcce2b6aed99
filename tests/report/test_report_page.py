"""The page as a file: self-contained, its data whole, names out of run folders harmless."""

import base64
import hashlib
import json
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from fnmatch import fnmatch
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from run_folders import METHODS, write_inspection, write_run, write_suite

from gcr_rl.evaluation.statistics import Band
from gcr_rl.report import TaskFacts, load_runs, summarise, webpage, write_report
from gcr_rl.report.escaping import escape_script
from gcr_rl.report.figures import method_looks
from gcr_rl.report.page_data import _thinned, link_to, rounded

ROOT = Path(__file__).parents[2]
NASTY = "</script><script>alert(1)</script><img src=x onerror=alert(1)> @@DATA@@ javascript:x"
FACTS = {
    "CartPole": TaskFacts(475.0, 500.0, 22.0),
    "RotMirrorGrid": TaskFacts(-60.0, -13.7, -200.0),
}


def facts(task, env):
    return FACTS.get(task, TaskFacts())


class Page(HTMLParser):
    """The elements of a page with their attributes, and the text of its scripts."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.scripts, self._open = [], [], False
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        self._open = tag == "script"
        if self._open:
            self.scripts.append("")

    def handle_endtag(self, tag):
        self._open = False

    def handle_data(self, data):
        if self._open:
            self.scripts[-1] += data


@pytest.fixture(scope="module")
def suite(tmp_path_factory):
    """A page of two tasks, nine methods and a run whose names are markup."""
    root = tmp_path_factory.mktemp("suite")
    runs = write_suite(root / "runs")
    write_inspection(root / "runs" / "RotMirrorGrid-gcr-hard")
    runs.append(write_run(root / "runs" / "<b>", task=NASTY, method=NASTY, env={"a": NASTY}))
    write_report(runs, root / "out", facts_of=facts)
    text = (root / "out" / "report.html").read_text()
    page = Page(text)
    return SimpleNamespace(root=root, text=text, page=page, data=json.loads(page.scripts[0]))


def test_the_page_fetches_nothing(suite):
    loading = {"link", "img", "iframe", "object", "embed", "base", "video", "audio", "source"}
    tags = [tag for tag, _ in suite.page.elements]
    assert not loading & set(tags)
    for _, attributes in suite.page.elements:
        assert "src" not in attributes
        assert not any(name.startswith("on") for name in attributes)
    outside = re.findall(r"(?:https?:)?//[a-z]\S*", suite.text.replace("\\/", "/"))
    assert {address.strip('";,)') for address in outside} <= {"http://www.w3.org/2000/svg"}
    assert "@import" not in suite.text and "url(" not in suite.text


def test_only_our_script_may_run(suite):
    scripts = [attributes for tag, attributes in suite.page.elements if tag == "script"]
    assert scripts == [{"type": "application/json", "id": "data"}, {}]
    policy = next(a["content"] for _, a in suite.page.elements if "http-equiv" in a)
    digest = hashlib.sha256(suite.page.scripts[1].encode()).digest()
    assert f"script-src 'sha256-{base64.b64encode(digest).decode()}'" in policy
    assert policy.startswith("default-src 'none';")
    forbidden = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function"
    assert not re.search(forbidden, suite.page.scripts[1])


def test_names_that_are_markup_stay_data(suite):
    assert suite.text.count("<script") == 2
    assert "alert(1)</" not in suite.text and "<img" not in suite.text
    assert suite.data["tasks"][-1]["label"].startswith("</script><script>alert(1)</script>")
    assert suite.data["methods"][-1]["name"].startswith("</script>")
    assert "@@DATA@@" in suite.data["methods"][-1]["name"]


def test_script_data_hold_no_markup():
    text = escape_script({"a": "</script><!--&\u2028"})
    assert not set("<>&\u2028") & set(text)
    assert json.loads(text) == {"a": "</script><!--&\u2028"}


def test_links_to_runs_have_no_scheme(tmp_path):
    link = link_to(tmp_path / "javascript:alert(1)" / "a b", tmp_path / "javascript:alert(1)")
    assert link == "./a%20b"
    assert link_to(tmp_path / "x:y", tmp_path) == "./x%3Ay"


def test_the_page_holds_the_numbers_of_the_summary(suite):
    runs = load_runs([suite.root / "runs" / f"CartPole-{method}" for method in METHODS])
    (task,) = summarise(runs, facts).tasks
    shown = suite.data["tasks"][0]
    assert shown["threshold"] == 475
    names = [suite.data["methods"][row["m"]]["name"] for row in shown["rows"]]
    assert names == [row.method for row in task.rows]
    for mine, row in zip(shown["rows"], task.rows, strict=True):
        assert mine["mean"] == pytest.approx(list(row.mean_training_return), rel=1e-4)
        assert mine["final"] == pytest.approx(row.final_by_seed, rel=1e-4)
        assert mine["box"][2] == pytest.approx(np.median(row.final_by_seed), rel=1e-4)
        assert mine["steps"]["reached"] == row.to_threshold.reached.sum()
    curve = next(one for one in task.curves if one.method == "gcr-hard")
    drawn = next(c for c in shown["curves"] if suite.data["methods"][c["m"]]["name"] == "gcr-hard")
    assert drawn["y"] == pytest.approx(curve.band.estimate, rel=1e-4)
    assert drawn["low"] == pytest.approx(curve.band.low, rel=1e-4)


def test_best_and_second_best_are_marked(suite):
    column = suite.data["titles"].index("mean return over training")
    ranks = [row["cells"][column][1] for row in suite.data["tasks"][0]["rows"]]
    assert ranks == [1, 2] + [0] * 7


def test_every_figure_has_its_rows_configuration_and_command(suite):
    for task in suite.data["tasks"]:
        for curve in task["curves"]:
            for number in curve["runs"]:
                run = suite.data["runs"][number]
                assert (suite.root / "out" / run["link"].replace("%3Cb%3E", "<b>")).is_dir()
                assert run["command"].startswith("gcr train")
                assert run["config"]["steps"] == 10_000
                assert len(run["sha256"]) == 64
        for stem in task["figures"]:
            assert (suite.root / "out" / f"{stem}.pdf").exists()


def test_what_runs_do_not_have_is_left_out(make_run, tmp_path):
    write_report([make_run()], tmp_path / "out", facts_of=facts)
    data = json.loads(Page((tmp_path / "out" / "report.html").read_text()).scripts[0])
    task = data["tasks"][0]
    assert data["hasse"] == data["aggregates"] == []
    assert task["groups"] == task["costs"] == task["ablations"] == []
    assert list(task["diagnostics"]) == ["bellman_residual"]


def test_every_method_has_a_colour_of_the_style_sheet():
    style = (ROOT / "gcr_rl" / "report" / "page" / "style.css").read_text()
    looks = method_looks(f"m{number}" for number in range(20))
    for colour in {colour for colour, _ in looks.values()}:
        assert len(re.findall(rf"--c{colour}: #[0-9a-f]{{6}};", style)) == 3  # light, dark, system
    assert len(set(looks.values())) == 20


def test_curves_are_thinned_and_keep_their_ends():
    steps = np.arange(0, 1001)
    band = Band(steps * 2.0, steps * 1.0, steps * 3.0)
    thin = _thinned(steps, band, 100)
    assert len(thin["steps"]) == 100
    assert (thin["steps"][0], thin["steps"][-1]) == (0, 1000)
    assert thin["y"] == [2 * step for step in thin["steps"]]
    assert _thinned(steps[:5], Band(*(part[:5] for part in band)), 100)["steps"] == [0, 1, 2, 3, 4]


def test_a_page_that_grows_too_large_has_fewer_points(monkeypatch):
    monkeypatch.setattr(webpage, "MOST_BYTES", 120_000)
    asked = []

    def data_of(points):
        asked.append(points)
        return {"curve": list(range(points * 1000))} if points > 50 else {"curve": []}

    assert len(webpage.html_page(data_of)) < 120_000
    assert asked == [200, 100, 50]


def test_numbers_keep_five_digits_and_no_nan():
    assert rounded([1.234567, 1e6, float("nan"), None]) == [1.2346, 1_000_000, None, None]
    assert rounded(np.array([[0.5]])) == [[0.5]]


def test_the_parts_of_the_page_are_package_data():
    """Every file that the page is made of goes into a wheel."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    patterns = project["tool"]["setuptools"]["package-data"]["gcr_rl"]
    parts = sorted((ROOT / "gcr_rl" / "report" / "page").iterdir())
    assert {part.name for part in parts} == {"page.html", "style.css", *webpage.SCRIPTS}
    for part in parts:
        name = part.relative_to(ROOT / "gcr_rl").as_posix()
        assert any(fnmatch(name, pattern) for pattern in patterns), name


@pytest.mark.slow
def test_a_built_wheel_holds_the_parts_of_the_page(tmp_path):
    pytest.importorskip("setuptools", reason="setuptools, which builds the wheel, is not installed")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path)
    shutil.copytree(
        ROOT / "gcr_rl", tmp_path / "gcr_rl", ignore=shutil.ignore_patterns("__pycache__")
    )
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*build, "--wheel-dir", "dist", "."], cwd=tmp_path, check=True)
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    for part in ("page.html", "style.css", *webpage.SCRIPTS):
        assert f"gcr_rl/report/page/{part}" in names
