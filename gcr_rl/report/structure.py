"""Recovered groups out of summary.json, and Hasse diagrams out of inspections, as plain data.

Both are untrusted: what does not have the shape that our own files have is left out.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from gcr_rl.errors import InputError
from gcr_rl.order import Poset
from gcr_rl.report.escaping import clean
from gcr_rl.report.runs import RunData, is_finite, read_object

MOST_ELEMENTS = 16
"""Transforms that are shown of a group; its order says how many there are."""
MOST_ACTIONS = 64
MOST_NODES = 256
INSPECTIONS = ("inspection/inspection.json", "inspection.json")
"""Where a run folder may hold an inspection (`gcr inspect RUN --out RUN/inspection`)."""


def recovered_groups(run: RunData) -> list[dict[str, Any]]:
    """Name, order and transforms of the group that each seed found."""
    found = run.summary.get("symmetry")
    if not isinstance(found, Mapping):
        return []
    groups = [_group(seed, value) for seed, value in found.items() if isinstance(value, Mapping)]
    return [group for group in groups if group is not None]


def _group(seed: str, value: Mapping[str, Any]) -> dict[str, Any] | None:
    order, elements = value.get("order"), value.get("elements")
    if not _is_count(order) or not isinstance(elements, list):
        return None
    shown = [_element(e) for e in elements[:MOST_ELEMENTS] if isinstance(e, Mapping)]
    return {
        "seed": clean(seed),
        "name": clean(value.get("name", "")),
        "order": order,
        "transforms": len(elements),
        "elements": shown,
    }


def _element(element: Mapping[str, Any]) -> dict[str, Any]:
    certified, accepted = element.get("certified_at"), element.get("accepted_at")
    return {
        "name": clean(element.get("name", "")),
        "status": clean(element.get("status", "")),
        "since": accepted if _is_count(accepted) else None,
        "certified": certified if _is_count(certified) else None,
        "relabel": _permutation(element.get("relabel")),
    }


def _permutation(value: object) -> list[int] | None:
    if not isinstance(value, list) or not 0 < len(value) <= MOST_ACTIONS:
        return None
    whole = all(type(entry) is int for entry in value)
    return value if whole and sorted(value) == list(range(len(value))) else None


def hasse_diagram(run: RunData) -> dict[str, Any] | None:
    """The order that an inspection inside the run folder drew, with places for its nodes."""
    for name in INSPECTIONS:
        path = run.folder / name
        if path.exists():
            inspection = read_object(path)
            order = inspection.get("order")
            drawn = _diagram(order) if isinstance(order, Mapping) else None
            if drawn is not None:
                seed, step = inspection.get("drawn_seed"), inspection.get("checkpoint")
                return {**drawn, "seed": clean(seed), "step": clean(step)}
    return None


def _diagram(order: Mapping[str, Any]) -> dict[str, Any] | None:
    found: list[Any] = [order.get(name) for name in ("nodes", "covers", "labels", "values")]
    count, covers, labels, values = found
    if not _is_count(count) or not 0 < count <= MOST_NODES:
        return None
    if not _list_of(count, labels) or not _list_of(count, values) or not isinstance(covers, list):
        return None
    if not all(map(is_finite, values)) or not all(_is_edge(edge, count) for edge in covers):
        return None
    try:
        place = _places(count, covers)
    except InputError:  # a cycle
        return None
    return {
        "x": place[:, 0].tolist(),
        "y": place[:, 1].tolist(),
        "labels": [clean(label, 16) for label in labels],
        "values": values,
        "covers": covers,
        "named": order.get("states_named") is True,
        **{key: order.get(key) for key in ("size", "width", "height") if _is_count(order.get(key))},
    }


def _places(count: int, covers: Sequence[Sequence[int]]) -> Float[np.ndarray, "nodes 2"]:
    """Layers of the order; nodes that are compared with nothing stand in rows underneath."""
    related = sorted({end for edge in covers for end in edge})
    number = {node: place for place, node in enumerate(related)}
    places = np.zeros((count, 2))
    lowest, widest = 1.0, 12
    if related:
        edges = [(number[upper], number[lower]) for upper, lower in covers]
        places[related] = Poset.from_edges(len(related), edges).layout()
        lowest = places[related, 1].min()
        widest = max(widest, int(np.ptp(places[related, 0])) + 1)
    alone = [node for node in range(count) if node not in number]
    for start in range(0, len(alone), widest):
        row = alone[start : start + widest]
        lowest -= 1.0
        places[row, 0] = np.arange(len(row)) - (len(row) - 1) / 2
        places[row, 1] = lowest
    return places


def _list_of(count: int, value: Any) -> bool:
    return isinstance(value, list) and len(value) == count


def _is_edge(edge: object, count: int) -> bool:
    return (
        isinstance(edge, Sequence)
        and len(edge) == 2
        and all(type(end) is int and 0 <= end < count for end in edge)
    )


def _is_count(value: object) -> bool:
    return type(value) is int and value >= 0
