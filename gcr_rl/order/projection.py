"""The projection, slowly and obviously: what the fast solver is tested against."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

from gcr_rl.types import Comparisons


class Reference(NamedTuple):
    """The projection and whether there is one; infeasible problems keep their values."""

    values: NDArray[np.float64]
    feasible: bool


def reference_project(
    values: NDArray[np.float64],
    comparisons: Comparisons,
    *,
    node_weight: NDArray[np.float64] | None = None,
    frozen: NDArray[np.bool_] | None = None,
) -> Reference:
    """argmin ½ Σ w_i (x_i − v_i)² s.t. x[upper] >= discount·x[lower] + margin.

    Lawson and Hanson's least-distance programming: with y = √w (x − v), G y >= h and
    u = argmin_{u>=0} ‖Eu − f‖ for E = [Gᵀ; hᵀ], f = (0, …, 0, 1), the residual r = Eu − f
    gives y = −r[:n] / r[n]; r = 0 exactly when no point is feasible.
    """
    values = np.asarray(values, np.float64)
    count = len(values)
    weight = np.ones(count) if node_weight is None else np.asarray(node_weight, np.float64)
    free = np.ones(count) if frozen is None else 1.0 - np.asarray(frozen, np.float64)
    keep = np.asarray(comparisons.mask, bool)
    upper, lower = (np.asarray(i)[keep] for i in (comparisons.upper, comparisons.lower))
    margin, discount = (
        np.asarray(x, np.float64)[keep] for x in (comparisons.margin, comparisons.discount)
    )
    row = np.arange(len(upper))
    matrix = np.zeros((len(upper), count))
    np.add.at(matrix, (row, upper), 1.0)
    np.add.at(matrix, (row, lower), -discount)
    missing = margin - matrix @ values
    largest = missing.max(initial=0.0)
    if largest <= 0:
        return Reference(values, True)
    scaled = matrix * (free / np.sqrt(weight))
    target = np.zeros(count + 1)
    target[count] = 1.0
    system = np.vstack([scaled.T, missing / largest])
    solution, distance = nnls(system, target, maxiter=50 * len(upper))
    if distance < 1e-9:
        return Reference(values, False)
    residual = system @ solution - target
    y = -residual[:count] / residual[count]
    return Reference(values + largest * y * free / np.sqrt(weight), True)
