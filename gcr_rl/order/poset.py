"""Finite partially ordered sets, on the host: what a learned order looks like.

As everywhere, ``u -> v`` says value[u] >= value[v], that is v ⪯ u; "above" is "larger value".
A :class:`Poset` is immutable and keeps the strict transitive closure as a boolean matrix. The
version that lives inside a training state is :mod:`gcr_rl.order.bounded`.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array
from scipy.sparse.csgraph import maximum_bipartite_matching

from gcr_rl.errors import InputError

Edges = Iterable[Sequence[int]] | npt.NDArray[np.integer]
BoolMatrix = npt.NDArray[np.bool_]
IntArray = npt.NDArray[np.int64]


class Poset:
    """A partial order on nodes 0..num_nodes-1.

    ``closure[u, v]`` is True iff u is strictly above v. Build one with :meth:`from_edges`,
    :meth:`from_reach` or :meth:`antichain`; the constructor takes a closure as it is.
    """

    __slots__ = ("_closure",)

    def __init__(self, closure: BoolMatrix) -> None:
        self._closure = np.array(closure, dtype=bool)
        self._closure.setflags(write=False)

    @classmethod
    def antichain(cls, num_nodes: int) -> "Poset":
        """The order in which nothing is comparable."""
        return cls(np.zeros((num_nodes, num_nodes), bool))

    @classmethod
    def from_edges(cls, num_nodes: int, edges: Edges) -> "Poset":
        """The transitive closure of ``edges``, pairs (upper, lower).

        A directed cycle has no order and is an :class:`InputError` that names one.
        """
        pairs = _checked_edges(num_nodes, edges)
        order, cycle = _topological_order(num_nodes, pairs)
        if cycle:
            path = " -> ".join(str(node) for node in cycle)
            raise InputError("edges", f"cycle {path}", "a directed acyclic graph")
        closure = np.zeros((num_nodes, num_nodes), bool)
        below = _successors(num_nodes, pairs)
        for node in reversed(order):
            for child in below[node]:
                closure[node] |= closure[child]
                closure[node, child] = True
        return cls(closure)

    @classmethod
    def from_reach(cls, reach: npt.ArrayLike) -> "Poset":
        """The order of reachability bit rows ``uint32[nodes, words]``, as the greedy DAG and
        the bounded poset carry them (the diagonal, if set, is dropped)."""
        rows = np.asarray(reach)
        if rows.ndim != 2 or rows.dtype != np.uint32 or rows.shape[1] * 32 < rows.shape[0]:
            raise InputError("reach", f"{rows.dtype}{list(rows.shape)}", "uint32[nodes, words]")
        bits = (rows[:, :, None] >> np.arange(32, dtype=np.uint32)) & 1
        closure = bits.reshape(len(rows), -1)[:, : len(rows)].astype(bool)
        np.fill_diagonal(closure, False)
        if np.any(closure & closure.T):
            raise InputError("reach", "two nodes that reach each other", "an acyclic relation")
        if np.any(_compose(closure, closure) & ~closure):
            raise InputError("reach", "a relation that is not transitive", "a closure")
        return cls(closure)

    @property
    def num_nodes(self) -> int:
        """How many elements are ordered."""
        return len(self._closure)

    @property
    def closure(self) -> BoolMatrix:
        """``closure[u, v]``: u is strictly above v. Read-only."""
        return self._closure

    @property
    def size(self) -> int:
        """The number of strict relations u > v, implied ones included."""
        return int(self._closure.sum())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Poset) and np.array_equal(self._closure, other._closure)

    def __hash__(self) -> int:
        return hash((self.num_nodes, self._closure.tobytes()))

    def __repr__(self) -> str:
        return f"Poset(num_nodes={self.num_nodes}, size={self.size})"

    def reaches(self, upper: int, lower: int) -> bool:
        """Whether lower ⪯ upper (every node reaches itself)."""
        _checked_edges(self.num_nodes, [(upper, lower)])
        return upper == lower or bool(self._closure[upper, lower])

    def contained_in(self, other: "Poset") -> bool:
        """Whether every relation of this order holds in ``other``: other refines this."""
        if self.num_nodes != other.num_nodes:
            raise InputError("other", other.num_nodes, f"a poset on {self.num_nodes} nodes")
        return not np.any(self._closure & ~other._closure)

    def refine(self, edges: Edges) -> tuple["Poset", int]:
        """This order with ``edges`` added one by one, and how many were refused.

        An edge is refused if it contradicts what is there already (a self-loop does); nothing
        is ever taken away, so self.contained_in(refined).
        """
        closure, refused = self._closure.copy(), 0
        for upper, lower in _checked_edges(self.num_nodes, edges):
            if upper == lower or closure[lower, upper]:
                refused += 1
            elif not closure[upper, lower]:
                above, below = closure[:, upper].copy(), closure[lower].copy()
                above[upper] = below[lower] = True
                closure[above] |= below
        return Poset(closure), refused

    def hasse(self) -> IntArray:
        """The transitive reduction: pairs (u, v), u > v with nothing in between, by index."""
        return np.argwhere(self._closure & ~_compose(self._closure, self._closure))

    def levels(self) -> IntArray:
        """For each node the length of the longest chain strictly above it."""
        level = np.zeros(self.num_nodes, np.int64)
        # A node above another has strictly more below it, so this order visits uppers first.
        for node in np.argsort(-self._closure.sum(axis=1), kind="stable"):
            above = self._closure[:, node]
            if above.any():
                level[node] = level[above].max() + 1
        return level

    def height(self) -> int:
        """The number of elements in a longest chain."""
        return int(self.levels().max() + 1) if self.num_nodes else 0

    def width(self) -> int:
        """The size of a largest antichain: by Dilworth, num_nodes minus a maximum matching in
        the bipartite graph of the strict relations."""
        return self.num_nodes - int(np.sum(self._matching() >= 0))

    def max_antichain(self) -> IntArray:
        """A largest set of pairwise incomparable nodes, read off a minimum vertex cover
        (König): x with its left copy outside and its right copy outside the cover."""
        right_of = self._matching()
        left_of = np.full(self.num_nodes, -1)
        matched = np.flatnonzero(right_of >= 0)
        left_of[right_of[matched]] = matched
        left, right = right_of < 0, np.zeros(self.num_nodes, bool)
        frontier = left.copy()
        while frontier.any():
            found = self._closure[frontier].any(axis=0) & ~right
            right |= found
            frontier = np.zeros_like(left)
            frontier[left_of[found]] = True  # a free right node would augment the matching
            frontier &= ~left
            left |= frontier
        return np.flatnonzero(left & ~right)

    def _matching(self) -> IntArray:
        """For each node the partner below it in a maximum matching, or -1."""
        if self.num_nodes == 0:
            return np.zeros(0, np.int64)
        graph = csr_array(self._closure.astype(np.int8))
        return np.asarray(maximum_bipartite_matching(graph, perm_type="column"), np.int64)

    def linear_extension(self) -> IntArray:
        """All nodes in one line, each before everything below it; ties by index."""
        return np.argsort(self.levels(), kind="stable")

    def quotient(self, labels: npt.ArrayLike) -> "Poset":
        """The order on classes 0..max(labels): class a is above class b if some member is above
        some member. Relations inside a class vanish.

        If two classes would be above each other, no order on the classes contains this one, and
        dropping relations would take back what was learned: an :class:`InputError` names the
        cycle.
        """
        label = np.asarray(labels)
        whole = np.issubdtype(label.dtype, np.integer)
        if not whole or label.shape != (self.num_nodes,) or np.any(label < 0):
            raise InputError("labels", labels, f"{self.num_nodes} non-negative integers")
        pairs = label[np.argwhere(self._closure)].reshape(-1, 2)
        pairs = np.unique(pairs[pairs[:, 0] != pairs[:, 1]], axis=0)
        classes = int(label.max()) + 1 if label.size else 0
        try:
            return Poset.from_edges(classes, pairs)
        except InputError as error:
            accepted = "labels whose classes the order does not run around in a circle"
            raise InputError("labels", error.value, accepted) from None

    def layout(self, sweeps: int = 8) -> npt.NDArray[np.float64]:
        """Positions (x, y) for drawing in layers: y is minus the level, and x orders each layer
        by the mean position of its Hasse neighbours, which keeps crossings few."""
        level, covers = self.levels(), self.hasse()
        adjacent = np.zeros((self.num_nodes, self.num_nodes))
        adjacent[covers[:, 0], covers[:, 1]] = adjacent[covers[:, 1], covers[:, 0]] = 1.0
        degree = adjacent.sum(axis=1)
        layers = [np.flatnonzero(level == i) for i in range(self.height())]
        x = np.zeros(self.num_nodes)
        for layer in layers:
            x[layer] = np.arange(len(layer)) - (len(layer) - 1) / 2
        for sweep in range(sweeps):
            for layer in layers if sweep % 2 == 0 else reversed(layers):
                mean = np.where(degree > 0, adjacent @ x / np.maximum(degree, 1.0), x)[layer]
                order = layer[np.argsort(mean, kind="stable")]
                x[order] = np.arange(len(layer)) - (len(layer) - 1) / 2
        return np.stack([x, -level.astype(float)], axis=1)

    def to_networkx(self, labels: Sequence[object] | None = None) -> Any:
        """The Hasse diagram as a ``networkx.DiGraph`` (networkx must be installed), with
        ``labels`` as node attribute ``label``."""
        import networkx

        graph: Any = networkx.DiGraph()
        for node, label in enumerate(self._labels(labels)):
            graph.add_node(node, label=label)
        graph.add_edges_from(self.hasse().tolist())
        return graph

    def to_graphviz(self, labels: Sequence[object] | None = None) -> str:
        """The Hasse diagram in the DOT language, larger values on top."""
        lines = ["digraph poset {", "  rankdir=TB;"]
        for node, label in enumerate(self._labels(labels)):
            lines.append(f'  {node} [label="{_dot_escaped(label)}"];')
        lines += [f"  {upper} -> {lower};" for upper, lower in self.hasse().tolist()]
        return "\n".join([*lines, "}", ""])

    def _labels(self, labels: Sequence[object] | None) -> list[str]:
        if labels is None:
            return [str(node) for node in range(self.num_nodes)]
        if len(labels) != self.num_nodes:
            raise InputError("labels", len(labels), f"{self.num_nodes} labels")
        return [str(label) for label in labels]


def _compose(first: BoolMatrix, second: BoolMatrix) -> BoolMatrix:
    """Relation product: u to v in one step of each. Sums of float32 ones are exact here."""
    return (first.astype(np.float32) @ second.astype(np.float32)) > 0.5


def _checked_edges(num_nodes: int, edges: Edges) -> IntArray:
    if not isinstance(num_nodes, int | np.integer) or num_nodes < 0:
        raise InputError("num_nodes", num_nodes, "a non-negative int")
    listed = edges if isinstance(edges, np.ndarray) else list(edges)
    try:
        pairs = np.asarray(listed)
    except ValueError:
        raise InputError("edges", listed, "pairs (upper, lower)") from None
    if pairs.size == 0:
        return np.zeros((0, 2), np.int64)
    if pairs.ndim != 2 or pairs.shape[1] != 2 or not np.issubdtype(pairs.dtype, np.integer):
        raise InputError("edges", f"{pairs.dtype}{list(pairs.shape)}", "integer pairs")
    outside = np.any((pairs < 0) | (pairs >= num_nodes), axis=1)
    if outside.any():
        raise InputError("edges", tuple(pairs[outside][0].tolist()), f"nodes 0..{num_nodes - 1}")
    return pairs.astype(np.int64)


def _successors(num_nodes: int, pairs: IntArray) -> list[list[int]]:
    below: list[list[int]] = [[] for _ in range(num_nodes)]
    for upper, lower in pairs.tolist():
        below[upper].append(lower)
    return below


def _topological_order(num_nodes: int, pairs: IntArray) -> tuple[list[int], list[int]]:
    """Kahn's order, uppers first, and one cycle (closed, first node repeated) if there is any."""
    below = _successors(num_nodes, pairs)
    waiting = np.bincount(pairs[:, 1], minlength=num_nodes) if len(pairs) else np.zeros(num_nodes)
    order = [node for node in range(num_nodes) if waiting[node] == 0]
    for node in order:  # grows while it is read
        for child in below[node]:
            waiting[child] -= 1
            if waiting[child] == 0:
                order.append(child)
    return order, _find_cycle(pairs, waiting > 0) if len(order) < num_nodes else []


def _find_cycle(pairs: IntArray, stuck: BoolMatrix) -> list[int]:
    """A cycle among stuck nodes. Each has a stuck node above it: walking up must come back."""
    above = {int(lower): int(upper) for upper, lower in pairs if stuck[upper] and stuck[lower]}
    walk = [next(iter(above))]
    while walk[-1] not in walk[:-1]:
        walk.append(above[walk[-1]])
    return walk[walk.index(walk[-1]) :][::-1]


def _dot_escaped(text: str) -> str:
    """Safe inside a double-quoted DOT string."""
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\r", "").replace("\n", "\\n")
