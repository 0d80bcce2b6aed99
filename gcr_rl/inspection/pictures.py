"""What is drawn of a run, as PNG and SVG bytes; matplotlib's objects, no pyplot."""

import io
from typing import Any

import matplotlib as mpl
import numpy as np
from jaxtyping import Bool, Float
from matplotlib.figure import Figure

from gcr_rl.envs.dihedral import MOVES
from gcr_rl.inspection.grid import ValueMap
from gcr_rl.inspection.slot_order import SlotOrder
from gcr_rl.order import Poset

_INK, _QUIET, _WRONG = "#222222", "#8a8a8a", "#D55E00"
_DPI = 140


def encoded(figure: Any) -> dict[str, bytes]:
    """``{"png": ..., "svg": ...}``; the same figure gives the same bytes."""
    found = {}
    for kind, metadata in (("png", {"Software": None}), ("svg", {"Date": None})):
        buffer = io.BytesIO()
        with mpl.rc_context({"svg.hashsalt": "gcr-rl", "font.family": "DejaVu Sans"}):
            figure.savefig(buffer, format=kind, dpi=_DPI, metadata=metadata)
        found[kind] = buffer.getvalue()
    return found


def hasse_figure(order: SlotOrder, title: str) -> Figure:
    """The Hasse diagram in layers, upper nodes on top, coloured by value.

    Nodes that are compared with nothing stand in rows of their own underneath.
    """
    place, size, alone = _places(order)
    across, down = np.ptp(place, axis=0) + 1
    size_of = (max(5.0, 0.55 * across), max(3.2, 1.6 + 0.75 * down))
    figure = Figure(figsize=size_of, layout="constrained")
    axes = figure.add_subplot()
    for upper, lower in order.poset.hasse():
        axes.plot(*place[[upper, lower]].T, color=_QUIET, linewidth=0.9, zorder=1)
    x, y = place.T
    edges = np.where(alone, _QUIET, _INK)
    dots = axes.scatter(
        x, y, c=order.values, s=size, cmap="viridis", zorder=2, edgecolors=list(edges)
    )
    dark = order.values < (order.values.min() + order.values.max()) / 2
    for node, label in enumerate(order.labels):
        axes.text(
            x[node], y[node], label, ha="center", va="center", fontsize=7, zorder=3,
            color="white" if dark[node] else _INK, parse_math=False,
        )  # fmt: skip
    figure.colorbar(dots, ax=axes, shrink=0.8, label="max Q(s, ·)" if order.named else "Q(s, a)")
    figure.suptitle(title, fontsize=9, parse_math=False)
    axes.set_xlim(x.min() - 0.8, x.max() + 0.8)
    axes.set_ylim(y.min() - 0.7, y.max() + 0.7)
    axes.set_axis_off()
    return figure


def _places(
    order: SlotOrder,
) -> tuple[Float[np.ndarray, "nodes 2"], float, Bool[np.ndarray, " nodes"]]:
    """Positions, the size of a dot, and which nodes are compared with nothing."""
    closure = order.poset.closure
    alone = np.asarray(~(closure.any(axis=0) | closure.any(axis=1)))
    place = np.zeros((len(alone), 2))
    related = np.flatnonzero(~alone)
    if len(related):
        place[related] = Poset(closure[np.ix_(related, related)]).layout()
    columns = max(int(np.ptp(place[related, 0])) + 1 if len(related) else 0, 12)
    lowest = place[related, 1].min() - 1.3 if len(related) else 0.0
    for number, node in enumerate(np.flatnonzero(alone)):
        row, column = divmod(number, columns)
        in_row = min(columns, int(alone.sum()) - row * columns)
        place[node] = column - (in_row - 1) / 2, lowest - row
    return place, 380.0 if order.named else 260.0, alone


def value_figure(values: ValueMap, title: str) -> Figure:
    """max_a Q over the cells with greedy arrows, beside Q* with every optimal action.

    An arrow of the agent that is not optimal is orange.
    """
    figure = Figure(figsize=(9.6, 4.9), layout="constrained")
    left, right = figure.subplots(1, 2)
    # Nobody acts at an end: its value is 0, whatever a network says there.
    tables = [np.where(values.grid.ends, 0.0, q.max(axis=1)) for q in (values.q, values.optimal)]
    limits = min(t.min() for t in tables), max(t.max() for t in tables)
    greedy = np.eye(values.q.shape[1], dtype=bool)[values.q.argmax(axis=1)]
    visible = [np.where(t < sum(limits) / 2, "white", _INK) for t in tables]
    colours = np.where(values.right, visible[0], _WRONG)
    image = _draw_map(left, values, tables[0], greedy, colours, limits)
    _draw_map(right, values, tables[1], values.best, visible[1], limits)
    share = values.data()["greedy_action_optimal"]
    left.set_title(f"agent: greedy action optimal in {share:.0%} of the cells", fontsize=9)
    right.set_title("optimal, by dynamic programming", fontsize=9)
    figure.colorbar(image, ax=[left, right], shrink=0.8, label="max Q(s, ·)")
    figure.suptitle(title, fontsize=10, parse_math=False)
    return figure


def _draw_map(
    axes: Any, values: ValueMap, table: Any, actions: Any, colours: Any, limits: tuple[float, float]
) -> Any:
    grid = values.grid
    rows, columns = grid.walls.shape
    picture = np.full(rows * columns, np.nan)
    picture[grid.cells] = table
    image = axes.imshow(picture.reshape(rows, columns), cmap="viridis", vmin=limits[0],
                        vmax=limits[1], interpolation="nearest")  # fmt: skip
    axes.set_facecolor("#3b3b3b")  # walls
    row, column = np.divmod(grid.cells, columns)
    for action, (down, across) in enumerate(MOVES):
        drawn = actions[:, action] & ~grid.ends
        axes.quiver(
            column[drawn], row[drawn], across, down, color=list(colours[drawn]), angles="xy",
            units="xy", scale_units="xy", scale=2.4, width=0.07, headwidth=3.5, headlength=3,
            headaxislength=3,
        )  # fmt: skip
    axes.scatter(column[grid.ends], row[grid.ends], marker="*", s=90, color="#D55E00")
    axes.set_xticks([])
    axes.set_yticks([])
    return image


def bank_figure(relabellings: Float[np.ndarray, "k a a"], title: str, most: int = 8) -> Figure:
    """The soft permutations Π_k of a latent bank, at most ``most`` of them."""
    shown = relabellings[:most]
    figure = Figure(figsize=(1.7 * max(len(shown), 2), 2.6), layout="constrained")
    figure.suptitle(title, fontsize=9, parse_math=False)
    for number, (axes, table) in enumerate(
        zip(np.ravel(figure.subplots(1, len(shown))), shown, strict=True)
    ):
        axes.imshow(table, cmap="Blues", vmin=0, vmax=1)
        axes.set_title(f"Π of element {number}", fontsize=7)
        axes.tick_params(labelsize=6)
    return figure
