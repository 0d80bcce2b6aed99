"""Every method on the four small tasks in one table, with the paper's metrics.

    python benchmarks/suite_table.py --out docs/full-size.md

Reads benchmarks/results/suite_*.json and writes the part of the page between its two marks:
AUC@N / N (the mean return over training), steps to the task's threshold, final return and its
spread over seeds. The intervals are 95 % bootstrap intervals of the mean over seeds.
"""

import argparse
import json
from pathlib import Path

import numpy as np

from gcr_rl.evaluation import statistics
from gcr_rl.methods import METHODS
from gcr_rl.report.summary import task_facts

RESULTS = Path(__file__).parent / "results"
TASKS = {
    "CartPole": "suite_cartpole.json",
    "RotMirrorGrid": "suite_grid.json",
    "ButtonPermutation": "suite_button.json",
    "NoisyRPSChain": "suite_chain.json",
}
REGISTERED = {"ButtonPermutation": {"legend": True}}
MARKS = ("<!-- table -->", "<!-- end of table -->")


def rows_of(task, file):
    """method -> row, of the task as registered and at its full budget."""
    rows = json.loads((RESULTS / file).read_text(encoding="utf-8"))["rows"]
    chosen = [
        row
        for row in rows
        if row["env"] == REGISTERED.get(task, {})
        and row["steps"] == max(other["steps"] for other in rows)
        and row.get("until") is None
        and row["config"]["order"].get("dag", True)
        and row.get("report") is None
    ]
    found = {row["method"]: row for row in chosen}
    assert len(found) == len(chosen), f"{task}: two rows of one method"
    return found


def with_interval(values, digits):
    """Mean and 95 % interval over seeds."""
    found = statistics.mean_interval(values, seed=0)
    return f"{found.estimate:.{digits}f} ({found.low:.{digits}f} to {found.high:.{digits}f})"


def line(task, row):
    """One method on one task."""
    digits = 2 if task in ("ButtonPermutation", "NoisyRPSChain") else 1
    final, steps = np.array(row["final"]), np.array(row["to_threshold"])
    reached = row["reached"]
    # Seeds that never got there stand at the end: more than half of them leave no median.
    median = f"{np.median(steps):,.0f}" if 2 * reached > row["seeds"] else "–"
    cells = (
        f"`{row['method']}`",
        str(row["seeds"]),
        with_interval(row["training"], digits),
        f"{median} ({reached}/{row['seeds']})",
        with_interval(final, digits),
        f"{final.std(ddof=1):.{digits}f}",
        f"{final.min():.{digits}f}",
    )
    return f"| {cells[0]} | " + " | ".join(cells[1:]).replace("-", "−") + " |"


def page():
    """The table, task by task."""
    lines = []
    for task, file in TASKS.items():
        rows, facts = rows_of(task, file), task_facts(task, REGISTERED.get(task, {}))
        budget = next(iter(rows.values()))["steps"]
        lines += [
            f"**{task}**, {budget:,} steps, threshold {facts.threshold:.2f}:".replace("-", "−"),
            "",
            "| method | seeds | AUC@N / N | steps to threshold | final | spread | worst seed |",
            "|---|---|---|---|---|---|---|",
        ]
        ranked = sorted(rows.values(), key=lambda row: -np.mean(row["training"]))
        lines += [line(task, row) for row in ranked] + [""]
        missing = [name for name in METHODS if name not in rows]
        if missing:
            lines += ["Not run: " + ", ".join(f"`{name}`" for name in missing) + ".", ""]
    return "\n".join(lines)


def main():
    """Write the part of the page that is measured."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, required=True, help="a page with both marks in it")
    options = parser.parse_args()
    text = options.out.read_text(encoding="utf-8")
    before, rest = text.split(MARKS[0])
    after = rest.split(MARKS[1])[1]
    options.out.write_text(f"{before}{MARKS[0]}\n\n{page()}\n{MARKS[1]}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
