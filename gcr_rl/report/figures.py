"""Learning curves as PNG, SVG and PDF, by matplotlib's objects: no pyplot, no global figure."""

import io
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, MaxNLocator

from gcr_rl.methods import METHODS
from gcr_rl.report.escaping import clean
from gcr_rl.report.summary import MethodCurve, TaskSummary

KINDS: dict[str, dict[str, None]] = {
    "png": {"Software": None},
    "svg": {"Date": None},
    "pdf": {"CreationDate": None},
}
"""Kinds of files, with what matplotlib must not write into them."""

_INK, _QUIET = "#222222", "#6b6b6b"
# Okabe and Ito's colours, which colour-blind readers tell apart, without the pale yellow; then
# Tol's muted ones, which come with dashes. The page has the same, as --c0 and so on.
_FIRST = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_COLOURS = (
    *_FIRST, "#332288", "#882255", "#117733", "#AA4499", "#8A8A1F", "#3A9C8C", "#A98C2C",
)  # fmt: skip
_DASHES = ("solid", (0, (5, 1.5)), (0, (1.5, 1.2)), (0, (6, 1.5, 1.5, 1.5)))
_WIDTH, _HEIGHT, _DPI = 7.2, 4.2, 160
_LABEL_GAP = 0.062
_LONGEST_LABEL = 28


def method_looks(methods: Iterable[str]) -> dict[str, tuple[int, int]]:
    """Numbers of colour and dashes per method; the same in all figures of a report.

    Our methods come first, in their own order, then all others by name.
    """
    known = {name: place for place, name in enumerate(METHODS)}
    ordered = sorted(set(methods), key=lambda name: (known.get(name, len(known)), name))
    return {
        method: (place % len(_COLOURS), (place // len(_FIRST)) % len(_DASHES))
        for place, method in enumerate(ordered)
    }


def method_styles(methods: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Colour and dashes per method, as matplotlib names them."""
    return {
        method: {"color": _COLOURS[colour], "linestyle": _DASHES[dashes]}
        for method, (colour, dashes) in method_looks(methods).items()
    }


def learning_curves(task: TaskSummary, styles: Mapping[str, Mapping[str, Any]]) -> dict[str, bytes]:
    """Mean over seeds with its 95 % band, against environment steps; content by kind of file."""
    figure = Figure(figsize=(_WIDTH, _HEIGHT), facecolor="white")
    axes = figure.add_subplot()
    names = [clean(curve.method, _LONGEST_LABEL) for curve in task.curves]
    right = 1 - (0.55 + 0.082 * max(map(len, names))) / _WIDTH
    figure.subplots_adjust(left=0.11, right=right, bottom=0.13, top=0.85)
    for curve in task.curves:
        _draw_curve(axes, curve, task.budget, styles[curve.method])
    _draw_frame(axes, task)
    _draw_reference(axes, task.facts.optimal_return, "optimum", above=True)
    _draw_reference(axes, task.facts.threshold, "threshold", above=False)
    axes.set_ylim(*_limits(task))
    _draw_labels(axes, task.curves, styles)
    return encoded(figure)


def _draw_curve(axes: Axes, merged: MethodCurve, budget: int, style: Mapping[str, Any]) -> None:
    steps = merged.curve.steps[merged.curve.steps <= budget]
    axes.plot(steps, merged.band.estimate, linewidth=1.9, zorder=3, **style)
    if np.isfinite(merged.band.low).all():
        axes.fill_between(
            steps,
            merged.band.low,
            merged.band.high,
            color=str(style["color"]),
            alpha=0.16,
            linewidth=0,
            zorder=2,
        )


def _draw_frame(axes: Axes, task: TaskSummary) -> None:
    counts = sorted({len(curve.curve.seeds) for curve in task.curves})
    seeds = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]}–{counts[-1]}"
    plural = "" if counts[-1] == 1 else "s"
    band = ", band: 95 % bootstrap interval" if counts[-1] > 1 else ""
    axes.text(
        0, 1.10, clean(task.label), transform=axes.transAxes, fontsize=12, color=_INK,
        fontweight="bold", va="bottom", parse_math=False,
    )  # fmt: skip
    axes.text(
        0, 1.035, f"mean of {seeds} seed{plural}{band}", transform=axes.transAxes,
        fontsize=8.5, color=_QUIET, va="bottom",
    )  # fmt: skip
    axes.set_xlim(0, task.budget)
    axes.set_xlabel("environment steps", color=_INK)
    axes.set_ylabel("expected return (exact)" if task.exact else "evaluation return", color=_INK)
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.xaxis.set_major_locator(MaxNLocator(6))
    axes.yaxis.set_major_locator(MaxNLocator(6))
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color("#b0b0b0")
    axes.tick_params(color="#b0b0b0", labelcolor=_INK, labelsize=9)
    axes.grid(axis="y", color="#ececec", linewidth=0.8)
    axes.set_axisbelow(True)


def _draw_reference(axes: Axes, value: float | None, name: str, *, above: bool) -> None:
    if value is None:
        return
    axes.axhline(value, color=_QUIET, linewidth=0.9, linestyle=(0, (2, 2)), zorder=1)
    axes.annotate(
        f"{name} {value:.4g}",
        (0.006, value),
        xycoords=axes.get_yaxis_transform(),
        xytext=(0, 2.5 if above else -2.5),
        textcoords="offset points",
        fontsize=8,
        color=_QUIET,
        va="bottom" if above else "top",
        zorder=4,
    )


def _draw_labels(
    axes: Axes, curves: Sequence[MethodCurve], styles: Mapping[str, Mapping[str, Any]]
) -> None:
    """Names at the curves' ends, pushed apart where ends meet; a key repeats the line's look."""
    low, high = axes.get_ylim()
    ends = np.array([(curve.band.estimate[-1] - low) / (high - low) for curve in curves])
    for curve, height in zip(curves, spread(ends, _LABEL_GAP), strict=True):
        axes.plot(
            [1.015, 1.06], [height, height], transform=axes.transAxes, clip_on=False,
            linewidth=1.9, scalex=False, scaley=False, **styles[curve.method],
        )  # fmt: skip
        axes.text(
            1.075, height, clean(curve.method, _LONGEST_LABEL), transform=axes.transAxes,
            fontsize=9.5, color=_INK, va="center", parse_math=False,
        )  # fmt: skip


def _limits(task: TaskSummary) -> tuple[float, float]:
    """The range of all that is drawn, with room above for the optimum's name."""
    drawn = [array for curve in task.curves for array in curve.band]
    known = [value for value in task.facts[:2] if value is not None]
    values = np.concatenate([*drawn, np.array(known, dtype=float)])
    low, high = float(np.nanmin(values)), float(np.nanmax(values))
    room = (high - low) or max(abs(high), 1.0)
    return low - 0.05 * room, high + 0.08 * room


def spread(positions: np.ndarray, gap: float) -> np.ndarray:
    """argmin Σ (x − positions)² with x in the same order and ``gap`` apart, then put in [0, 1].

    Isotonic regression of position − rank·gap: labels that touch merge into a block, which
    stays centred on its members.
    """
    positions = np.asarray(positions, dtype=float)
    count = positions.size
    gap = min(gap, 1 / max(count - 1, 1))
    order = np.argsort(positions, kind="stable")
    offsets = np.arange(count) * gap
    blocks: list[list[float]] = []
    for value in positions[order] - offsets:
        blocks.append([float(value)])
        while len(blocks) > 1 and np.mean(blocks[-2]) > np.mean(blocks[-1]):
            last = blocks.pop()
            blocks[-1] += last
    level = np.concatenate([np.full(len(block), np.mean(block)) for block in blocks])
    moved = np.empty(count)
    moved[order] = np.clip(level, 0.0, max(0.0, 1.0 - offsets[-1])) + offsets
    return moved


def encoded(figure: Figure) -> dict[str, bytes]:
    """The figure as each of :data:`KINDS`. No date and a fixed salt: the same bytes each time."""
    found = {}
    with mpl.rc_context({"svg.hashsalt": "gcr-rl", "font.family": "DejaVu Sans"}):
        if figure.get_layout_engine() is not None:
            figure.draw_without_rendering()
            figure.set_layout_engine("none")  # placed once, not once more for every kind
        for kind, metadata in KINDS.items():
            buffer = io.BytesIO()
            figure.savefig(buffer, format=kind, dpi=_DPI, metadata=metadata)
            found[kind] = buffer.getvalue()
    return found
