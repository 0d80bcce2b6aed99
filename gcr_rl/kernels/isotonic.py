"""Exact projection of values onto the order they must obey, for batches of graphs.

The fast twin of :func:`gcr_rl.order.projection.reference_project`. It turns the problem
into a least-distance program (:mod:`gcr_rl.kernels.isotonic_program`), solves that
(:mod:`gcr_rl.kernels.isotonic_newton`) and turns the answer back.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.custom_batching import custom_vmap
from jaxtyping import Array, Bool, Float, Int

from gcr_rl.kernels.isotonic_newton import precision, solve
from gcr_rl.kernels.isotonic_program import Program, apply, apply_transpose, gather

MAX_ITERATIONS = 60
CPU_CHUNK = 2


class Order(NamedTuple):
    """min ½ Σ w_i (x_i − v_i)² s.t. x[upper] >= discount·x[lower] + margin where mask holds,
    and x_i = v_i where frozen. Leading axis: problems."""

    values: Float[Array, "batch nodes"]
    node_weight: Float[Array, "batch nodes"]
    frozen: Bool[Array, "batch nodes"]
    upper: Int[Array, "batch edges"]
    lower: Int[Array, "batch edges"]
    margin: Float[Array, "batch edges"]
    discount: Float[Array, "batch edges"]
    mask: Bool[Array, "batch edges"]


class Solved(NamedTuple):
    """The projection, its multipliers (w_i (x_i − v_i) = Σ_e A_ei λ_e) and how it went."""

    values: Float[Array, "batch nodes"]
    multipliers: Float[Array, "batch edges"]
    infeasible: Bool[Array, " batch"]
    converged: Bool[Array, " batch"]
    iterations: Int[Array, " batch"]


class Rows(NamedTuple):
    """The constraint matrix in variables y = √w·x, with rows of norm between 1 and 2.

    C = diag(1/norm) A W^-½ with the columns of frozen nodes removed; a row whose norm is
    zero constrains nothing that can move.
    """

    at_upper: Float[Array, "*batch edges"]
    at_lower: Float[Array, "*batch edges"]
    norm: Float[Array, "*batch edges"]
    live: Bool[Array, "*batch edges"]


def scaled_rows(
    upper_scale: Float[Array, "*batch edges"],
    lower_scale: Float[Array, "*batch edges"],
    same: Bool[Array, "*batch edges"],
    discount: Float[Array, "*batch edges"],
    mask: Bool[Array, "*batch edges"],
) -> Rows:
    """Rows of x[upper] − discount·x[lower], given each end's 1/√w (0 where frozen)."""
    # A comparison of a slot with itself, x >= d x + m, is the bound (1 − d) x >= m.
    at_upper = upper_scale * jnp.where(same, 1.0 - discount, 1.0)
    at_lower = jnp.where(same, 0.0, -discount * lower_scale)
    norm = jnp.hypot(at_upper, at_lower)
    live = mask & (norm > 0)
    # A power of two, so that scaling rounds nothing: near-dependent rows would magnify it.
    safe = jnp.ldexp(jnp.ones_like(norm), jnp.frexp(jnp.where(live, norm, 1.0))[1] - 1)
    return Rows(
        jnp.where(live, at_upper / safe, 0.0), jnp.where(live, at_lower / safe, 0.0), safe, live
    )


def missing(order: Order, values: Float[Array, "batch nodes"]) -> Float[Array, "batch edges"]:
    """discount·x[lower] + margin − x[upper] where the mask holds, 0 elsewhere."""
    required = order.discount * gather(values, order.lower) + order.margin
    return jnp.where(order.mask, required - gather(values, order.upper), 0.0)


def inverse_root_weight(
    node_weight: Float[Array, "*batch nodes"], frozen: Bool[Array, "*batch nodes"]
) -> Float[Array, "*batch nodes"]:
    """√(w_max / w), 0 where frozen, and w_max beside it is the caller's affair."""
    largest = jnp.max(jnp.where(frozen, 0.0, node_weight), axis=-1, keepdims=True)
    return jnp.where(frozen, 0.0, jnp.sqrt(largest / jnp.where(frozen, 1.0, node_weight)))


def _repair(order: Order, values: Array, tolerance: Array, active: Array) -> Array:
    """Close what rounding left open: raise upper ends, lower the free ends of frozen ones."""
    frozen_upper = gather(order.frozen, order.upper)
    frozen_lower = gather(order.frozen, order.lower)
    slope = jnp.where(order.discount > 0, order.discount, 1.0)
    raises = order.mask & ~frozen_upper & active
    lowers = order.mask & frozen_upper & ~frozen_lower & (order.discount > 0) & active

    def unfinished(carry: tuple[Array, Array]) -> Array:
        return (carry[0] < values.shape[1]) & jnp.any(
            jnp.max(missing(order, carry[1]), 1) * active[:, 0] > tolerance
        )

    def sweep(carry: tuple[Array, Array]) -> tuple[Array, Array]:
        count, x = carry
        required = order.discount * gather(x, order.lower) + order.margin
        floor = jnp.where(raises, required, -jnp.inf)
        x = jax.vmap(lambda x, i, v: x.at[i].max(v))(x, order.upper, floor)
        allowed = (gather(x, order.upper) - order.margin) / slope
        ceiling = jnp.where(lowers, allowed, jnp.inf)
        return count + 1, jax.vmap(lambda x, i, v: x.at[i].min(v))(x, order.lower, ceiling)

    return lax.while_loop(unfinished, sweep, (jnp.zeros((), jnp.int32), values))[1]


@partial(jax.jit, static_argnames="chunk")
def _project(order: Order, chunk: int) -> Solved:
    num_nodes = order.values.shape[1]
    limits = precision(order.values.dtype)
    scale = inverse_root_weight(order.node_weight, order.frozen)
    rows = scaled_rows(
        gather(scale, order.upper),
        gather(scale, order.lower),
        order.upper == order.lower,
        order.discount,
        order.mask,
    )
    short = missing(order, order.values)
    magnitude = 1.0 + jnp.max(jnp.abs(order.values), 1, keepdims=True) + jnp.abs(order.margin)
    rounding = 16 * jnp.finfo(short.dtype).eps * magnitude
    contradiction = jnp.any(order.mask & ~rows.live & (short > rounding), 1)
    bound = jnp.where(rows.live, short / rows.norm, 0.0)
    unit = jnp.max(jnp.maximum(bound, 0.0), 1, keepdims=True)
    unit = jnp.where(unit > 0, unit, 1.0)
    program = Program(
        upper=order.upper,
        lower=order.lower,
        at_upper=rows.at_upper,
        at_lower=rows.at_lower,
        bound=bound / unit,
        noise=jnp.where(rows.live, rounding / (rows.norm * unit), 0.0),
        live=rows.live,
    )
    dual = solve(program, num_nodes, MAX_ITERATIONS, chunk)
    scaled = jnp.where(rows.live, jnp.maximum(dual.multipliers, 0.0), 0.0)
    infeasible = dual.infeasible | contradiction
    y = apply_transpose(program, scaled, num_nodes)
    # Of each pair (multiplier, slack) only the larger one is not rounding.
    active = scaled > jnp.abs(apply(program, y) - program.bound)
    moved = order.values + scale * y * unit
    feasible = ~infeasible[:, None]
    tolerance = limits.tolerance * jnp.clip(jnp.max(short, 1), 0.0, 1.0)
    moved = _repair(order, moved, tolerance, feasible)
    largest = jnp.max(jnp.where(order.frozen, 0.0, order.node_weight), 1, keepdims=True)
    return Solved(
        values=jnp.where(feasible & ~order.frozen, moved, order.values),
        multipliers=jnp.where(feasible & active, scaled * unit * largest / rows.norm, 0.0),
        infeasible=infeasible,
        converged=dual.residual <= limits.acceptable,
        iterations=dual.iterations,
    )


@custom_vmap
def _project_batch(order: Order) -> Solved:
    on_cpu = jax.default_backend() == "cpu"
    return _project(order, CPU_CHUNK if on_cpu else order.values.shape[0])


@_project_batch.def_vmap
def _project_more(axis_size: int, in_batched: list[Any], order: Order) -> tuple[Solved, Solved]:
    """A further vmap only makes the batch longer."""
    (batched,) = in_batched

    def flat(leaf: Array, is_batched: bool) -> Array:
        whole = leaf if is_batched else jnp.broadcast_to(leaf, (axis_size, *leaf.shape))
        return whole.reshape(-1, whole.shape[-1])

    solved = _project_batch(jax.tree.map(flat, order, batched))
    split = jax.tree.map(lambda leaf: leaf.reshape(axis_size, -1, *leaf.shape[1:]), solved)
    return split, jax.tree.map(lambda _: True, split)


def project_order(order: Order) -> Solved:
    """Project one problem; under vmap the problems are solved together."""
    if order.upper.shape[0] == 0:
        nothing = jnp.zeros((), bool)
        return Solved(order.values, order.margin, nothing, ~nothing, jnp.zeros((), jnp.int32))
    solved = _project_batch(jax.tree.map(lambda leaf: leaf[None], order))
    return jax.tree.map(lambda leaf: leaf[0], solved)
