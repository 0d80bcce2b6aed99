"""Many projections by one compiled program: rows of one size, sixty-four at a time."""

from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from gcr_rl.types import Comparisons

NODES, EDGES, CHUNK = 16, 30, 64
Floats = NDArray[np.float64]


@lru_cache(maxsize=8)
def _compiled(operator: Any) -> Any:
    return jax.jit(jax.vmap(lambda values, order: operator(values, order).values))


def comparisons(upper: Any, lower: Any, kept: Any = None, margin: float = 0.0) -> Comparisons:
    """V[upper] >= V[lower] + margin, padded to EDGES; ``kept`` False masks an edge."""
    upper, lower = np.asarray(upper, np.int32), np.asarray(lower, np.int32)
    spare = EDGES - len(upper)
    mask = np.ones(len(upper), bool) if kept is None else np.asarray(kept)
    ones = jnp.ones(EDGES)
    return Comparisons(
        jnp.asarray(np.pad(upper, (0, spare))),
        jnp.asarray(np.pad(lower, (0, spare))),
        ones,
        margin * ones,
        ones,
        jnp.asarray(np.pad(mask, (0, spare))),
    )


def project_rows(values: Floats, orders: list[Comparisons], operator: Any) -> Floats:
    """operator(values[i], orders[i]).values for every row; one order may serve all rows."""
    rows = len(values)
    if len(orders) == 1:
        orders = orders * rows
    spare = -rows % CHUNK
    draws = np.concatenate([values, np.repeat(values[:1], spare, axis=0)]).astype(np.float32)
    stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *orders, *orders[:1] * spare)
    solve = _compiled(operator)
    found = []
    for i in range(0, rows + spare, CHUNK):
        part = jax.tree.map(lambda leaf, i=i: leaf[i : i + CHUNK], stacked)
        found.append(np.asarray(solve(draws[i : i + CHUNK], part)))
    return np.concatenate(found)[:rows].astype(np.float64)
