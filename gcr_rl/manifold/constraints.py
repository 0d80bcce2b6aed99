"""Constraints on value slots as sparse rows: J V, Jᵀ y, residuals, and input made harmless.

A row e says r_e(V) = margin + discount·V[lower] − V[upper] <= 0, or = 0 for an equality
(eq. mono-ineq, eq-equi). Its row of J has −1 at upper and discount at lower, and nothing at a
frozen slot. No reward, no network: only numbers in slots.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from gcr_rl.errors import InputError
from gcr_rl.types import Comparisons


class Equalities(NamedTuple):
    """Pairs of slots with equal values, V[first] = V[second]: fixed size, masked."""

    first: Int[Array, " pairs"]
    second: Int[Array, " pairs"]
    mask: Bool[Array, " pairs"]


class Rows(NamedTuple):
    """All constraints of one batch; inequalities first, then equalities.

    ``equal`` marks the latter and is None if there are none, which is known at trace time.
    """

    upper: Int[Array, " rows"]
    lower: Int[Array, " rows"]
    margin: Float[Array, " rows"]
    discount: Float[Array, " rows"]
    mask: Bool[Array, " rows"]
    equal: Bool[Array, " rows"] | None
    at_upper: Float[Array, " rows"]
    at_lower: Float[Array, " rows"]


def take(slots: Float[Array, " slots"], index: Int[Array, " rows"]) -> Float[Array, " rows"]:
    """slots[index]; every index is in range by construction."""
    return slots.at[index].get(mode="promise_in_bounds")


def residual(rows: Rows, values: Float[Array, " slots"]) -> Float[Array, " rows"]:
    """margin + discount·V[lower] − V[upper] where the mask holds, 0 elsewhere."""
    required = rows.margin + rows.discount * take(values, rows.lower)
    return jnp.where(rows.mask, required - take(values, rows.upper), 0.0)


def broken_by(rows: Rows, short: Float[Array, " rows"]) -> Float[Array, " rows"]:
    """[r]₊ of an inequality, |r| of an equality, for residuals r."""
    hinge = jnp.maximum(short, 0.0)
    return hinge if rows.equal is None else jnp.where(rows.equal, jnp.abs(short), hinge)


def violation(rows: Rows, values: Float[Array, " slots"]) -> Float[Array, " rows"]:
    """How much each row is broken, 0 where it holds."""
    return broken_by(rows, residual(rows, values))


def worst(rows: Rows, values: Float[Array, " slots"]) -> Float[Array, ""]:
    """The largest violation."""
    return jnp.max(violation(rows, values), initial=0.0)


def along(rows: Rows, direction: Float[Array, " slots"]) -> Float[Array, " rows"]:
    """J · direction."""
    at_upper = rows.at_upper * take(direction, rows.upper)
    return at_upper + rows.at_lower * take(direction, rows.lower)


def transposed(
    rows: Rows, multipliers: Float[Array, " rows"], num_slots: int
) -> Float[Array, " slots"]:
    """Jᵀ · multipliers."""
    slots = jnp.zeros(num_slots, multipliers.dtype)
    slots = slots.at[rows.upper].add(rows.at_upper * multipliers, mode="promise_in_bounds")
    return slots.at[rows.lower].add(rows.at_lower * multipliers, mode="promise_in_bounds")


def make_rows(
    values: Float[Array, " slots"],
    constraints: Comparisons,
    frozen: Bool[Array, " slots"],
    equalities: Equalities | None,
) -> tuple[Rows, Bool[Array, ""]]:
    """Rows of both kinds and whether all unmasked input is valid; bad rows become harmless.

    A slot compared with itself, V >= d·V + m, is the bound V >= m / (1 − d).
    """
    count = values.shape[0]
    dtype = values.dtype
    upper, lower, mask = constraints.upper, constraints.lower, constraints.mask
    margin, discount = constraints.margin.astype(dtype), constraints.discount.astype(dtype)
    equal = None
    if equalities is not None:
        pairs = equalities.mask.shape
        upper = jnp.concatenate([upper, equalities.first])
        lower = jnp.concatenate([lower, equalities.second])
        mask = jnp.concatenate([mask, equalities.mask])
        margin = jnp.concatenate([margin, jnp.zeros(pairs, dtype)])
        discount = jnp.concatenate([discount, jnp.ones(pairs, dtype)])
        equal = jnp.arange(mask.shape[0]) >= mask.shape[0] - pairs[0]
    inside = (upper >= 0) & (upper < count) & (lower >= 0) & (lower < count)
    numbers = jnp.isfinite(margin) & (discount >= 0) & (discount <= 1)
    valid = jnp.all(~mask | (inside & numbers))
    mask = mask & valid
    upper, lower = (jnp.where(mask, slot, 0).astype(jnp.int32) for slot in (upper, lower))
    discount = jnp.where(mask, discount, 0.0)
    itself = (upper == lower) & (discount > 0)
    mask = mask & ~(itself & (discount == 1) & (margin <= 0))  # V >= V, V = V: nothing said
    bound = itself & (discount < 1)
    margin = jnp.where(bound, margin / jnp.where(bound, 1.0 - discount, 1.0), margin)
    discount = jnp.where(bound, 0.0, discount)
    live = mask & ~(itself & ~bound)  # V >= V + m with m > 0 moves nothing: never satisfied
    at_upper = jnp.where(live & ~take(frozen, upper), -1.0, 0.0).astype(dtype)
    at_lower = jnp.where(live & ~take(frozen, lower), discount, 0.0)
    margin = jnp.where(mask, margin, 0.0)
    return Rows(upper, lower, margin, discount, mask, equal, at_upper, at_lower), valid


def subsample(equalities: Equalities, key: Array, count: int) -> Equalities:
    """``count`` of the unmasked pairs, drawn without replacement (all, if there are fewer)."""
    size = equalities.mask.shape[0]
    if not 1 <= count <= size:
        raise InputError("count", count, f"1..{size}")
    rank = jnp.where(equalities.mask, jax.random.uniform(key, (size,)), -1.0)
    return Equalities(*(leaf[jax.lax.top_k(rank, count)[1]] for leaf in equalities))


def as_comparisons(rows: Rows) -> Comparisons:
    """The same set with every equality as two inequalities."""
    if rows.equal is None:
        weight = jnp.zeros_like(rows.margin)
        return Comparisons(rows.upper, rows.lower, weight, rows.margin, rows.discount, rows.mask)
    back = rows.mask & rows.equal
    return Comparisons(
        upper=jnp.concatenate([rows.upper, rows.lower]),
        lower=jnp.concatenate([rows.lower, rows.upper]),
        weight=jnp.zeros(2 * rows.mask.shape[0], rows.margin.dtype),
        margin=jnp.concatenate([rows.margin, -rows.margin]),
        discount=jnp.concatenate([rows.discount, rows.discount]),
        mask=jnp.concatenate([rows.mask, back]),
    )


def check_shapes(
    values: Array,
    slack: Array | None,
    gradient: Array,
    constraints: Comparisons,
    frozen: Array | None,
    equalities: Equalities | None,
) -> None:
    """Raise on shapes and types that do not fit, under jit too."""
    if values.ndim != 1 or values.size == 0 or not jnp.issubdtype(values.dtype, jnp.floating):
        raise InputError("values", (values.shape, values.dtype), "floats, one axis of slots")
    for name, slots in (("gradient", gradient), ("frozen", frozen)):
        if slots is not None and jnp.shape(slots) != values.shape:
            raise InputError(name, jnp.shape(slots), f"the shape of values, {values.shape}")
    edges = jnp.shape(constraints.upper)
    if len(edges) != 1:
        raise InputError("constraints.upper", edges, "one axis of rows (vmap over batches)")
    fields = {f"constraints.{name}": leaf for name, leaf in constraints._asdict().items()}
    for name, leaf in (fields | ({} if slack is None else {"slack": slack})).items():
        if jnp.shape(leaf) != edges:
            raise InputError(name, jnp.shape(leaf), f"{edges}, as constraints.upper")
    if equalities is not None and len({jnp.shape(leaf) for leaf in equalities}) != 1:
        raise InputError("equalities", [jnp.shape(leaf) for leaf in equalities], "equal shapes")


def raise_if_known(values: Array, gradient: Array, rows_valid: Array) -> None:
    """Raise outside jit, where the numbers are known; tracers pass."""
    checks = {"values": values, "gradient": gradient}
    for name, array in checks.items():
        if not isinstance(array, jax.core.Tracer) and not np.isfinite(array).all():
            raise InputError(name, np.asarray(array).tolist()[:8], "finite numbers")
    if not isinstance(rows_valid, jax.core.Tracer) and not bool(rows_valid):
        accepted = "slots in range, finite margins, discounts in [0, 1] where the mask holds"
        raise InputError("constraints", "an unmasked row", accepted)
