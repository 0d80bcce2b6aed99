"""The report of 100,000 evaluation rows: seconds to build it, milliseconds of its filters.

10 tasks x 10 methods x 10 seeds x 100 evaluations of 10 episodes, as generated run folders with
logs of as many rows. ``build_s`` is wall time of ``write_report``: reading, statistics, figures,
page. A filter's time is the browser's own event timing in headless Chromium: from a click of the
mouse to the paint that follows its handler, in steps of 8 ms; ``script_ms`` is the handler's part.
Without Chromium the page is built and not clicked on. These are wall times: ``load_average`` says
how busy the machine was.

    python benchmarks/report.py [--json FILE]
"""

import argparse
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "report"))

from browser import CHROMIUM, MISSING, Browser
from run_folders import METHODS, write_suite

from gcr_rl.report import TaskFacts, write_report

RESULTS = Path(__file__).parent / "results"
TASKS = tuple(f"Task-{number}" for number in range(10))
SEEDS, EVALUATIONS, EVERY, EPISODES, CLICKS = 10, 100, 500, 10, 15
SPEEDS = {**METHODS, "equivariant": 6.0}
PLACES = ("summary", "curves", "speed", "final", "overall", "diagnostics")
WATCH = """(() => { window.reactions = [];
  new PerformanceObserver(list => { for (const one of list.getEntries())
    if (one.name === 'click')
      reactions.push([one.processingEnd - one.processingStart, one.duration]);
  }).observe({ type: 'event', durationThreshold: 16 }); })()"""
PRESSED = "document.querySelectorAll('#%s .chip')[%d].getAttribute('aria-pressed')"
PLACE = """(b => [b.x + b.width / 2, b.y + b.height / 2])
  (document.querySelectorAll('#%s .chip')[%d].getBoundingClientRect())"""


def build(root: Path) -> dict[str, Any]:
    runs = write_suite(
        root / "runs", tasks=TASKS, methods=SPEEDS, seeds=SEEDS, every=EVERY,
        steps=EVERY * (EVALUATIONS - 1), episodes=EPISODES,
    )  # fmt: skip
    rows = sum(count_lines(run / "evaluation.jsonl") for run in runs)
    facts = TaskFacts(threshold=-60.0, optimal_return=-15.0, random_return=-200.0)
    wall, processor = time.perf_counter(), time.process_time()
    files = write_report(runs, root / "out", facts_of=lambda task, env: facts)
    return {
        "evaluation_rows": rows,
        "log_rows": sum(count_lines(run / "log.jsonl") for run in runs),
        "build_s": round(time.perf_counter() - wall, 2),
        "build_processor_s": round(time.process_time() - processor, 2),
        "files": len(files),
        "page_bytes": (root / "out" / "report.html").stat().st_size,
    }


def count_lines(path: Path) -> int:
    with open(path, "rb") as file:
        return sum(1 for _ in file)


def click(page: Path) -> dict[str, Any]:
    """Open the page, then pick and unpick methods at several places of it, and tasks."""
    with Browser() as browser:
        browser.size(1200, 900)
        start = time.perf_counter()
        browser.open(page)
        opened = time.perf_counter() - start
        browser.evaluate(WATCH)
        found = {"tasks": reactions(browser, "tasks")}
        for place in PLACES:
            browser.evaluate(f"document.getElementById('{place}').scrollIntoView()")
            found[f"methods, at {place}"] = reactions(browser, "methods")
        version = browser.call("Browser.getVersion")["product"]
        assert not browser.complaints, browser.complaints
    assert any(handled for pairs in found.values() for handled, _ in pairs), "nothing was timed"
    every = [painted for pairs in found.values() for _, painted in pairs]
    return {
        "browser": version,
        "open_s": round(opened, 2),
        "filter_ms": {name: spread(pairs) for name, pairs in found.items()},
        "clicks": len(every),
        "clicks_over_200_ms": sum(one > 200 for one in every),
        "filter_ms_median": statistics.median(every),
        "filter_ms_largest": max(every),
    }


def reactions(browser: Browser, kind: str) -> list[list[float]]:
    """Milliseconds of the handler and from the click to the paint, for each click."""
    for _ in range(5):
        browser.settle()
    found = []
    for number in range(2 * CLICKS):
        chip = number // 2 % 8
        x, y = browser.evaluate(PLACE % (kind, chip))
        before = browser.evaluate(PRESSED % (kind, chip))
        browser.evaluate("reactions.length = 0")
        for event in ("mousePressed", "mouseReleased"):
            browser.call("Input.dispatchMouseEvent", type=event, x=x, y=y, button="left",
                         clickCount=1)  # fmt: skip
        for _ in range(3):
            browser.settle()
        assert browser.evaluate(PRESSED % (kind, chip)) != before, "the click missed"
        # A click that was painted within 16 ms is not reported.
        found += browser.evaluate("reactions.slice(0, 1)") or [[0.0, 16.0]]
    return found


def spread(pairs: list[list[float]]) -> dict[str, float]:
    handled, painted = zip(*pairs, strict=True)
    return {
        "median": statistics.median(painted),
        "largest": max(painted),
        "script_ms": round(statistics.median(handled), 1),
    }


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--json", type=Path, default=RESULTS / "report.json")
    target = arguments.parse_args().json
    with tempfile.TemporaryDirectory() as folder:
        machine = f"{platform.machine()}, {os.cpu_count()} cores"
        result: dict[str, Any] = {"machine": machine, **build(Path(folder))}
        page = Path(folder) / "out" / "report.html"
        result |= {"skipped": MISSING} if CHROMIUM is None else click(page)
    result["load_average"] = os.getloadavg()  # what else kept the cores busy meanwhile
    print(json.dumps(result, indent=1))
    target.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
