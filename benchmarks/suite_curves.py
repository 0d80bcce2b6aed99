"""Learning curves of every method in files of suite_figures.py, one panel a file.

    python benchmarks/suite_curves.py benchmarks/results/suite_{cartpole,grid,button,chain}.json \
        --out docs/images/curves.png

Mean over seeds; of each file the task, options and budget that most rows have.
"""

import argparse
import json
from collections import Counter
from pathlib import Path

from matplotlib.figure import Figure
from suite_figures import group_of

from gcr_rl.methods import METHODS
from gcr_rl.report.figures import method_styles
from gcr_rl.report.summary import task_facts


def most_rows(path):
    """The largest group of rows of a file that differ by method alone."""
    rows = json.loads(path.read_text(encoding="utf-8"))["rows"]
    chosen = Counter(map(group_of, rows)).most_common(1)[0][0]
    methods = {}
    for row in rows:  # the first of a method: variants with other settings follow it
        if group_of(row) == chosen:
            methods.setdefault(row["method"], row)
    return [methods[name] for name in METHODS if name in methods]


def draw(axes, rows, styles):
    """One panel: mean curves, the optimum where it is known."""
    for row in rows:
        thousands = [step / 1e3 for step in row["curve_steps"]]
        wide = 2.2 if row["method"].startswith("gcr") else 1.3
        axes.plot(thousands, row["curve_mean"], linewidth=wide, **styles[row["method"]])
    best = task_facts(rows[0]["task"], rows[0]["env"]).optimal_return
    if best is not None:
        axes.axhline(best, color="#999999", linewidth=0.8, linestyle=(0, (2, 2)))
    seeds = "–".join(str(count) for count in sorted({row["seeds"] for row in rows}))
    axes.set_title(f"{rows[0]['task']}, {seeds} seeds", fontsize=10)
    axes.set_xlabel("thousand steps", fontsize=9)
    axes.set_xlim(0, rows[0]["steps"] / 1e3)
    axes.tick_params(labelsize=8)
    axes.spines[["top", "right"]].set_visible(False)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    panels = [most_rows(path) for path in options.files]
    styles = method_styles({row["method"] for rows in panels for row in rows})
    figure = Figure(figsize=(10.5, 3.4 * -(-len(panels) // 2)), facecolor="white")
    places = figure.subplots(-(-len(panels) // 2), 2, squeeze=False).flatten()
    for axes, rows in zip(places, panels, strict=False):
        draw(axes, rows, styles)
        axes.set_ylabel("return", fontsize=9)
    for axes in places[len(panels) :]:
        axes.remove()
    marks = [places[0].plot([], [], label=name, **style)[0] for name, style in styles.items()]
    figure.tight_layout(rect=(0, 0, 0.84, 1))
    figure.legend(handles=marks, fontsize=8, frameon=False, loc="center right")
    figure.savefig(options.out, dpi=110)
    print(f"picture: {options.out}")


if __name__ == "__main__":
    main()
