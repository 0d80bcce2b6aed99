"""What was reached: a task's scores and the profiles over tasks, for papers."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, FuncFormatter, MaxNLocator

from gcr_rl.report.aggregate import LEVELS, Aggregate
from gcr_rl.report.escaping import clean
from gcr_rl.report.figures import encoded
from gcr_rl.report.summary import MethodRow, TaskSummary

_INK, _QUIET, _LINE = "#222222", "#6b6b6b", "#b0b0b0"
_LONGEST_LABEL = 28

Styles = Mapping[str, Mapping[str, Any]]


def task_scores(task: TaskSummary, styles: Styles) -> dict[str, bytes]:
    """Mean return over training, steps to threshold and final return, a row per method."""
    rows = task.rows[::-1]
    drawings: list[tuple[str, Callable[[Axes, float, MethodRow, str], None]]] = [
        ("mean return over training", _draw_mean),
        ("final return, a dot per seed", _draw_box),
    ]
    if task.facts.threshold is not None:
        drawings.insert(1, (f"steps to {task.facts.threshold:.4g}", _draw_steps))
    figure = Figure(figsize=(9.0, 1.4 + 0.34 * len(rows)), layout="constrained", facecolor="white")
    figure.suptitle(clean(task.label), fontsize=11, color=_INK, parse_math=False)
    panels = np.ravel(figure.subplots(1, len(drawings), sharey=True))
    for axes, (title, draw) in zip(panels, drawings, strict=True):
        for height, row in enumerate(rows):
            draw(axes, height, row, str(styles[row.method]["color"]))
        _frame(axes, title)
    panels[0].set_yticks(range(len(rows)))
    labels = panels[0].set_yticklabels([clean(row.method, _LONGEST_LABEL) for row in rows])
    for label in labels:
        label.set_parse_math(False)
    return encoded(figure)


def profiles(aggregate: Aggregate, styles: Styles) -> dict[str, bytes]:
    """Share of runs above a normalised score, with the band of the stratified bootstrap."""
    figure = Figure(figsize=(6.4, 4.0), layout="constrained", facecolor="white")
    axes = figure.add_subplot()
    for scores in aggregate.methods:
        style = styles[scores.method]
        label = clean(scores.method, _LONGEST_LABEL)
        axes.plot(LEVELS, scores.profile.estimate, linewidth=1.8, label=label, **style)
        if np.isfinite(scores.profile.low).all():
            ends = scores.profile.low, scores.profile.high
            axes.fill_between(LEVELS, *ends, color=str(style["color"]), alpha=0.14, linewidth=0)
    count = len(aggregate.tasks)
    _frame(axes, f"share of runs above a score, {count} task{'' if count == 1 else 's'}")
    axes.set_xlabel("normalised final return (0 random play, 1 optimal)", color=_INK, fontsize=9)
    axes.set_xlim(0, 1)
    axes.set_ylim(0, 1.02)
    legend = figure.legend(loc="outside right upper", fontsize=8.5, frameon=False)
    for text in legend.get_texts():
        text.set_parse_math(False)
    return encoded(figure)


def _draw_mean(axes: Axes, height: float, row: MethodRow, colour: str) -> None:
    interval = row.mean_training_return
    axes.plot([interval.low, interval.high], [height, height], color=colour, linewidth=5, alpha=0.3)
    axes.plot(interval.estimate, height, "o", color=colour, markersize=6)


def _draw_steps(axes: Axes, height: float, row: MethodRow, colour: str) -> None:
    found = row.to_threshold
    if found is None:
        return
    # A hollow bar is a lower bound: the seed in the middle never got there.
    face = "white" if found.median_censored else colour
    axes.barh(height, found.median, height=0.55, color=face, edgecolor=colour, alpha=0.85)
    reached = f"{int(found.reached.sum())}/{len(row.seeds)}"
    axes.annotate(
        reached, (found.median, height), xytext=(3, 0), textcoords="offset points",
        fontsize=7.5, color=_QUIET, va="center",
    )  # fmt: skip


def _draw_box(axes: Axes, height: float, row: MethodRow, colour: str) -> None:
    axes.boxplot(
        [row.final_by_seed], positions=[height], widths=0.5, vert=False, whis=(0, 100),
        patch_artist=True, showfliers=False, manage_ticks=False,
        boxprops={"facecolor": colour, "alpha": 0.25, "edgecolor": colour},
        medianprops={"color": colour, "linewidth": 2},
        whiskerprops={"color": colour}, capprops={"color": colour},
    )  # fmt: skip
    axes.plot(
        row.final_by_seed, [height] * len(row.seeds), "o", color=colour, markersize=3, alpha=0.6
    )


def _frame(axes: Axes, title: str) -> None:
    axes.set_title(title, fontsize=9, color=_QUIET)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(_LINE)
    axes.tick_params(color=_LINE, labelcolor=_INK, labelsize=8.5)
    axes.xaxis.set_major_formatter(FuncFormatter(_tick))
    axes.xaxis.set_major_locator(MaxNLocator(5))
    axes.grid(axis="x", color="#ececec", linewidth=0.8)
    axes.set_axisbelow(True)


def _tick(value: float, _: int | None = None) -> str:
    """Thousands and millions by their letter; fractions as they are."""
    return EngFormatter(sep="")(value) if abs(value) >= 1e4 else f"{value:g}"
