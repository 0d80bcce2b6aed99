"""The page in headless Chromium, as a reader meets it."""

import io
from pathlib import Path

import numpy as np
import pytest
from browser import CHROMIUM, MISSING, Browser
from PIL import Image
from run_folders import METHODS, write_inspection, write_run, write_suite

from gcr_rl.report import TaskFacts, write_report

pytestmark = [
    pytest.mark.foreign,
    pytest.mark.skipif(CHROMIUM is None, reason=MISSING),
]
SCRIPT = "<script>alert(1)</script>"
IMAGE = "<img src=x onerror=alert(1)>"
FACTS = {
    "CartPole": TaskFacts(475.0, 500.0, 22.0),
    "RotMirrorGrid": TaskFacts(-60.0, -13.7, -200.0),
}
SECTIONS = [
    "summary", "curves", "speed", "final", "overall", "ablations", "costs", "groups", "hasse",
    "diagnostics",
]  # fmt: skip


@pytest.fixture(scope="module")
def page(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("suite")
    runs = write_suite(root / "runs")
    write_inspection(root / "runs" / "RotMirrorGrid-gcr-hard")
    runs.append(write_run(root / "runs" / SCRIPT.replace("/", ""), task=SCRIPT, method=IMAGE))
    write_report(runs, root / "out", facts_of=lambda task, env: FACTS.get(task, TaskFacts()))
    return root / "out" / "report.html"


@pytest.fixture(scope="module")
def browser():
    with Browser() as opened:
        yield opened


@pytest.fixture
def opened(browser, page):
    """The page, freshly loaded; at the end nothing may have been complained about."""
    browser.size(1200, 900)
    browser.complaints.clear()
    browser.open(page)
    yield browser
    browser.settle()
    assert browser.complaints == []


def chip(place, text):
    return f"[...document.querySelectorAll('#{place} .chip')].find(c => c.textContent === {text!r})"


def draw(browser, section):
    browser.evaluate(f"document.getElementById('{section}').scrollIntoView()")
    for _ in range(3):
        browser.settle()


def test_it_loads_with_all_its_sections_and_no_complaint(opened):
    found = opened.evaluate("[...document.querySelectorAll('main > section')].map(s => s.id)")
    assert [name for name in found if name != "notes"] == SECTIONS
    for section in SECTIONS[1:]:
        draw(opened, section)
        card = f"document.querySelector('#{section} .card .drawing')"
        assert opened.evaluate(f"{card}.querySelector('svg, table') !== null"), section
    assert opened.evaluate("document.documentElement.scrollWidth") == 1200


def test_a_complaint_would_be_seen(browser, tmp_path):
    """The control of the fixture above: an error, a refused script and a dialog are noticed."""
    (tmp_path / "bad.html").write_text(
        "<script>alert(1); console.error('x'); throw Error('y')</script>"
    )
    browser.complaints.clear()
    browser.open(tmp_path / "bad.html")
    assert "a dialog: 1" in browser.complaints and len(browser.complaints) >= 3
    browser.complaints.clear()


def test_picking_methods_changes_table_and_figures(opened):
    draw(opened, "curves")
    curves = "document.querySelectorAll('#curves .card')[0].querySelectorAll('.curve').length"
    rows = "[...document.querySelectorAll('#table tbody tr')].filter(r => !r.hidden).length"
    assert opened.evaluate(curves) == len(METHODS)
    before = opened.evaluate(rows)
    opened.evaluate(f"{chip('methods', 'ddqn')}.click()")
    opened.settle()
    assert opened.evaluate(curves) == len(METHODS) - 1
    assert opened.evaluate(rows) == before - 2  # a row in each of the two tasks
    assert opened.evaluate(f"{chip('methods', 'ddqn')}.getAttribute('aria-pressed')") == "false"
    opened.evaluate(f"{chip('methods', 'none')}.click()")
    opened.settle()
    assert opened.evaluate("document.querySelector('#curves .empty') !== null")
    opened.evaluate(f"{chip('methods', 'all')}.click()")
    opened.settle()
    assert (opened.evaluate(curves), opened.evaluate(rows)) == (len(METHODS), before)


def test_picking_tasks_hides_their_figures_everywhere(opened):
    cards = (
        "[...document.querySelectorAll('.card h3')]"
        ".filter(h => h.offsetParent && h.textContent.startsWith('CartPole')).length"
    )
    assert opened.evaluate(cards) > 5
    opened.evaluate(f"{chip('tasks', 'CartPole')}.click()")
    opened.settle()
    assert opened.evaluate(cards) == 0
    assert opened.evaluate("document.querySelectorAll('.card h3').length") > 5


def test_a_figure_that_was_hidden_is_drawn_when_it_returns(opened):
    draw(opened, "final")
    for _ in range(2):
        opened.evaluate(f"{chip('tasks', 'CartPole')}.click()")
        opened.settle()
    draw(opened, "final")
    assert opened.evaluate("document.querySelectorAll('#final .card circle').length") > 8 * 9


def test_hovering_shows_numbers(opened):
    draw(opened, "curves")
    box = opened.evaluate(
        "(b => [b.x, b.y, b.width, b.height])"
        "(document.querySelector('#curves svg.chart').getBoundingClientRect())"
    )
    opened.point(box[0] + box[2] * 0.6, box[1] + box[3] * 0.5)
    tip = opened.evaluate("document.getElementById('tip').innerText")
    assert tip.startswith("step ") and "gcr-hard" in tip and "[" in tip
    assert opened.evaluate("document.querySelectorAll('#tip .line').length") == len(METHODS)
    opened.point(2, 2)
    assert opened.evaluate("document.getElementById('tip').hidden")


def test_a_figure_unfolds_its_rows_configuration_and_command(opened):
    draw(opened, "curves")
    opened.evaluate("document.querySelector('#curves details.source').open = true")
    opened.settle()
    source = "document.querySelector('#curves details.source')"
    assert opened.evaluate(f"{source}.querySelectorAll('tbody tr').length") == 21 * len(METHODS)
    assert opened.evaluate(f"{source}.querySelectorAll('details').length") == len(METHODS)
    text = opened.evaluate(f"{source}.querySelector('details').textContent")
    assert "gcr train CartPole --method dqn" in text and '"steps": 10000' in text
    links = opened.evaluate(f"[...{source}.querySelectorAll('a')].map(a => a.href)")
    assert len(links) == 3 + 4 * len(METHODS)
    for link in links:
        assert link.startswith("file://") and Path(link.removeprefix("file://")).exists(), link


def test_diagnostics_change_their_field_and_scale(opened):
    draw(opened, "diagnostics")
    title = "document.querySelector('#diagnostics svg.chart').getAttribute('aria-label')"
    assert opened.evaluate(title) == "Bellman residual on CartPole"
    path = "document.querySelector('#diagnostics .curve').getAttribute('d')"
    linear = opened.evaluate(path)
    opened.evaluate("document.querySelector('#diagnostics .tools .plain').click()")
    opened.settle()
    assert opened.evaluate(path) != linear and "NaN" not in opened.evaluate(path)
    opened.evaluate("document.querySelector('[data-field=order_violation]').click()")
    opened.settle()
    assert opened.evaluate(title) == "order violation on CartPole"


def test_names_that_are_markup_are_harmless(opened):
    for section in SECTIONS:
        draw(opened, section)
    opened.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true; })")
    opened.settle()
    assert opened.evaluate("document.querySelectorAll('script').length") == 2
    assert opened.evaluate("document.querySelectorAll('img').length") == 0
    text = opened.evaluate("document.body.innerText")
    assert SCRIPT in text and IMAGE in text


def test_light_and_dark_follow_the_system_and_the_switch(opened):
    ground = "getComputedStyle(document.body).backgroundColor"
    light = opened.evaluate(ground)
    opened.size(1200, 900, dark=True)
    dark = opened.evaluate(ground)
    assert light != dark
    for expected in (light, dark, dark):  # light, dark, and the system's again
        opened.evaluate("document.getElementById('theme').click()")
        assert opened.evaluate(ground) == expected


@pytest.mark.parametrize("width", [1200, 400])
@pytest.mark.parametrize("dark", [False, True])
def test_pictures_are_not_empty_and_nothing_is_cut_off(opened, page, width, dark):
    opened.size(width, 900, dark)
    opened.open(page)
    draw(opened, "curves")
    picture = Image.open(io.BytesIO(opened.screenshot()))
    assert picture.size == (width, 900)
    colours = np.unique(np.asarray(picture.convert("RGB")).reshape(-1, 3), axis=0)
    assert len(colours) > 100
    assert opened.evaluate("document.documentElement.scrollWidth") == width
    inside = (
        "[...document.querySelectorAll('#curves svg.chart')].every(c => c.getBoundingClientRect()"
        ".right <= innerWidth)"
    )
    assert opened.evaluate(inside)
