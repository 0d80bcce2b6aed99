"""From values that break some constraints to values that break none.

Raising upper ends until nothing is missing gives the least feasible point above V, lowering
lower ends the greatest one below; the set is convex, so their mean is feasible too. With unit
discounts and no frozen slot it moves no slot farther than it must: it solves
min ‖x − V‖_∞ s.t. r(x) <= 0, sweep by sweep, at the price of a few gathers.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from gcr_rl.manifold.constraints import Rows, as_comparisons, take
from gcr_rl.order import project


class _Ends(NamedTuple):
    """Rows of inequalities that a sweep may use."""

    upper: Int[Array, " rows"]
    lower: Int[Array, " rows"]
    margin: Float[Array, " rows"]
    discount: Float[Array, " rows"]
    raises: Bool[Array, " rows"]
    lowers: Bool[Array, " rows"]


def _ends(rows: Rows, frozen: Bool[Array, " slots"]) -> _Ends:
    both = as_comparisons(rows)
    raises = both.mask & ~take(frozen, both.upper)
    lowers = both.mask & (both.discount > 0) & ~take(frozen, both.lower)
    return _Ends(both.upper, both.lower, both.margin, both.discount, raises, lowers)


def _raise(ends: _Ends, x: Float[Array, " slots"]) -> Float[Array, " slots"]:
    required = ends.margin + ends.discount * take(x, ends.lower)
    # 0 · −inf is NaN, and discount 0 asks for no value at all.
    required = jnp.where(ends.discount > 0, required, ends.margin)
    floor = jnp.where(ends.raises, required, -jnp.inf)
    return x.at[ends.upper].max(floor, mode="promise_in_bounds")


def _lower(ends: _Ends, x: Float[Array, " slots"]) -> Float[Array, " slots"]:
    slope = jnp.where(ends.discount > 0, ends.discount, 1.0)
    allowed = (take(x, ends.upper) - ends.margin) / slope
    ceiling = jnp.where(ends.lowers, allowed, jnp.inf)
    return x.at[ends.lower].min(ceiling, mode="promise_in_bounds")


_Sweep = tuple[Array, Array, Array, Array]


def _settle(
    ends: _Ends, low: Array, high: Array, wanted: Array, sweeps: int
) -> tuple[Array, Array]:
    """Raise ``low`` and lower ``high`` until neither changes, in at most ``sweeps`` sweeps."""

    def unfinished(carry: _Sweep) -> Array:
        return carry[0] & (carry[1] < sweeps)

    def sweep(carry: _Sweep) -> _Sweep:
        _, count, low, high = carry
        raised, lowered = _raise(ends, low), _lower(ends, high)
        changed = jnp.any(raised != low) | jnp.any(lowered != high)
        return changed, count + 1, raised, lowered

    start = (wanted, jnp.zeros((), jnp.int32), low, high)
    return lax.while_loop(unfinished, sweep, start)[2:]


def nearest_in_sweeps(
    rows: Rows,
    values: Float[Array, " slots"],
    frozen: Bool[Array, " slots"],
    wanted: Bool[Array, ""],
    sweeps: int,
    only_above: bool = False,
) -> Float[Array, " slots"]:
    """The mean of the least feasible point above V and the greatest below, where ``wanted``.

    What frozen slots and bounds imply for the others is found first, so that raising never
    passes a ceiling and lowering never a floor. Cycles of discounts below 1 close only in the
    limit and have no point below at all: then something is left over for the exact projection,
    and for ``only_above``, which takes the least point above by itself.
    """
    ends = _ends(rows, frozen)
    floor = jnp.where(frozen, values, -jnp.inf)
    ceiling = jnp.where(frozen, values, jnp.inf)
    limited = jnp.any(frozen) | jnp.any(ends.raises & (ends.discount == 0))
    floor, ceiling = _settle(ends, floor, ceiling, wanted & limited, sweeps)
    above, below = jnp.minimum(values, ceiling), jnp.maximum(values, floor)
    above, below = _settle(ends, above, below, wanted, sweeps)
    middle = above if only_above else above + 0.5 * (below - above)
    return jnp.where(wanted & ~frozen & jnp.isfinite(middle), middle, values)


def exactly(
    rows: Rows,
    values: Float[Array, " slots"],
    frozen: Bool[Array, " slots"],
    wanted: Bool[Array, ""],
) -> Float[Array, " slots"]:
    """The Euclidean projection where ``wanted``. A loop of at most one round, not a select:
    under vmap it costs nothing when no batch wants it."""

    def solve(carry: tuple[Array, Array]) -> tuple[Array, Array]:
        # The values come from the carry, or XLA would move the whole solver out of the loop.
        return jnp.zeros((), bool), project(carry[1], as_comparisons(rows), frozen=frozen).values

    return lax.while_loop(lambda carry: carry[0], solve, (wanted, values))[1]
