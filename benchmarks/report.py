"""The report of 100,000 evaluation rows: seconds to build it, milliseconds of its filters.

10 tasks x 10 methods x 10 seeds x 100 evaluations of 10 episodes, as generated run folders with
logs of as many rows. ``build_s`` is wall time of ``write_report``: reading, statistics, figures,
page. A filter's time is measured in headless Chromium, from the click to the frame after the one
that shows it; ``script_ms`` is the part of it that the page's own handler takes. Without Chromium
the page is built and not clicked on. Wall times of a shared machine: the largest is given too.

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
CLICK = """(async () => {
  const chips = [...document.querySelectorAll('#%s .chip:not(.all)')];
  const painted = () => new Promise(done =>
    requestAnimationFrame(() => requestAnimationFrame(() => done(performance.now()))));
  await painted();
  const start = performance.now();
  chips[%d %% chips.length].click();
  const handled = performance.now();
  return [handled - start, await painted() - start];
})()"""


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
    """Open the page, then pick and unpick methods and tasks at several places of it."""
    with Browser() as browser:
        browser.size(1200, 900)
        start = time.perf_counter()
        browser.open(page)
        opened = time.perf_counter() - start
        found: dict[str, Any] = {}
        every: list[float] = []
        for place in PLACES:
            browser.evaluate(f"document.getElementById('{place}').scrollIntoView()")
            for kind in ("methods", "tasks"):
                for _ in range(3):
                    browser.settle()
                pairs = [browser.evaluate(CLICK % (kind, n // 2)) for n in range(2 * CLICKS)]
                found[f"{kind}, at {place}"] = spread(pairs)
                every += [painted for _, painted in pairs]
        version = browser.call("Browser.getVersion")["product"]
        assert not browser.complaints, browser.complaints
    return {
        "browser": version,
        "open_s": round(opened, 2),
        "filter_ms": found,
        "clicks": len(every),
        "clicks_over_200_ms": sum(one > 200 for one in every),
        "filter_ms_median": round(statistics.median(every), 1),
        "filter_ms_largest": round(max(every), 1),
    }


def spread(pairs: list[list[float]]) -> dict[str, float]:
    handled, painted = zip(*pairs, strict=True)
    return {
        "median": round(statistics.median(painted), 1),
        "largest": round(max(painted), 1),
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
