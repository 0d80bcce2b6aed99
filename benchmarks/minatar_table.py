"""MinAtar at a million frames: Double-DQN, Rainbow and GCR beside rejax's DQN, table and picture.

    gcr bench minatar --out STORE
    python benchmarks/suite_figures.py STORE minatar-full --candidate rainbow gcr-rainbow \
        --out benchmarks/results/suite_minatar.json
    python benchmarks/minatar_table.py [--picture docs/images/minatar.png]

Reads that file and the peer's (benchmarks/minatar_peer.py, all games in
benchmarks/results/minatar_peer.json). IQM over all games: the first ten seeds of each, returns
in units of Double-DQN's mean above random play, runs resampled within a game for the 95 % interval.
"""

import argparse
import json
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from gcr_rl.evaluation import statistics
from gcr_rl.report.summary import task_facts

RESULTS = Path(__file__).parent / "results"
SEEDS = 10  # where a game has more, they do not count for more
METHODS = ("rejax 0.1.3 DQN", "ddqn", "rainbow", "gcr-rainbow")
COLOURS = ("#777777", "#0072b2", "#d55e00", "#009e73")


def read_rows():
    """(task, method) -> row, ours and the peer's."""
    ours = json.loads((RESULTS / "suite_minatar.json").read_text(encoding="utf-8"))["rows"]
    peer = json.loads((RESULTS / "minatar_peer.json").read_text(encoding="utf-8"))
    for row in peer:
        row["curve_steps"] = row["steps"]
    return {(row["task"], row["method"]): row for row in [*ours, *peer]}


def normalised(rows, tasks, method):
    """Final scores [runs, games]: 0 is random play, 1 the mean of Double-DQN."""
    columns = []
    for task in tasks:
        random = task_facts(task, {}).random_return
        unit = np.mean(rows[task, "ddqn"]["final"]) - random
        columns.append((np.array(rows[task, method]["final"][:SEEDS]) - random) / unit)
    return np.stack(columns, axis=1)


def show(rows, tasks):
    """The Markdown table: mean, worst seed and IQM of every game, and the IQM over all."""
    print("| game | method | final | worst seed | IQM, 95 % interval |")
    print("|---|---|---|---|---|")
    for task in tasks:
        for method in METHODS:
            final = np.array(rows[task, method]["final"])
            band = statistics.iqm_interval(final[:, None], seed=0)
            print(
                f"| {task.removeprefix('MinAtar-')} | {method} | {final.mean():.1f} "
                f"| {final.min():.1f} | {band.estimate:.1f}, {band.low:.1f} to {band.high:.1f} |"
            )
    for method in METHODS:
        band = statistics.iqm_interval(normalised(rows, tasks, method), seed=0)
        print(
            f"| all, Double-DQN's mean = 1 | {method} | | "
            f"| {band.estimate:.2f}, {band.low:.2f} to {band.high:.2f} |"
        )


def draw(rows, tasks, path):
    """Mean over seeds and its 95 % band, one panel a game."""
    figure = Figure(figsize=(10.0, 2.9), facecolor="white")
    for panel, (task, axes) in enumerate(zip(tasks, figure.subplots(1, len(tasks)), strict=True)):
        for method, colour in zip(METHODS, COLOURS, strict=True):
            row = rows[task, method]
            band = statistics.mean_band(np.array(row["curves"]), seed=0)
            frames = np.array(row["curve_steps"]) / 1e6
            axes.plot(frames, band.estimate, color=colour, linewidth=1.6, label=method)
            axes.fill_between(frames, band.low, band.high, color=colour, alpha=0.16, linewidth=0)
        axes.set_title(task.removeprefix("MinAtar-"), fontsize=10)
        axes.set_xlabel("million frames", fontsize=9)
        axes.set_xlim(0, 1)
        axes.set_ylim(bottom=0)
        axes.tick_params(labelsize=8)
        axes.spines[["top", "right"]].set_visible(False)
        if panel == 0:
            axes.set_ylabel("return", fontsize=9)
            axes.legend(fontsize=8, frameon=False, loc="upper left")
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    print(f"picture: {path}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--picture", type=Path, help="draw the curves into this file")
    options = parser.parse_args()
    rows = read_rows()
    tasks = [row["task"] for (_, method), row in rows.items() if method == METHODS[0]]
    show(rows, tasks)
    if options.picture:
        draw(rows, tasks, options.picture)


if __name__ == "__main__":
    main()
