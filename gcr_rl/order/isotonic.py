"""Exact projection of values onto an order, with its derivative (eq. iso-proj).

``x[upper] >= discount·x[lower] + margin`` on every comparison, values moved as little as
possible. Nothing here knows rewards or networks.
"""

from enum import IntEnum
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from gcr_rl.errors import InputError
from gcr_rl.kernels.isotonic import (
    Order,
    Solved,
    inverse_root_weight,
    missing,
    project_order,
    scaled_rows,
)
from gcr_rl.kernels.isotonic_program import (
    Program,
    apply,
    apply_transpose,
    factorize,
    solve_factored,
)
from gcr_rl.types import Comparisons


class Result(IntEnum):
    """How a projection ended; the traced code in :attr:`Projection.result`."""

    SUCCESS = 0
    NOT_CONVERGED = 1
    INFEASIBLE = 2
    INVALID_INPUT = 3


class ProjectionStats(NamedTuple):
    """What the solver saw.

    ``duality_gap`` is ½‖x − x(λ)‖²_W + Σ λ_e (A x − margin)_e, which bounds
    ½‖x − x*‖²_W when x is feasible. ``multipliers`` satisfy w_i (x_i − v_i) = Σ_e A_ei λ_e.
    """

    iterations: Int[Array, ""]
    max_violation: Float[Array, ""]
    active_edges: Int[Array, ""]
    duality_gap: Float[Array, ""]
    multipliers: Float[Array, " edges"]


class Projection(NamedTuple):
    """Projected values, a :class:`Result` code and stats.

    When the result is INFEASIBLE or INVALID_INPUT, ``values`` are the ones that came in.
    """

    values: Float[Array, " nodes"]
    result: Int[Array, ""]
    stats: ProjectionStats

    @property
    def outcome(self) -> Result:
        """The result as a name; for one concrete projection, outside jit and vmap."""
        return Result(int(self.result))


def project(
    values: Float[Array, " nodes"],
    comparisons: Comparisons,
    *,
    node_weight: Float[Array, " nodes"] | None = None,
    frozen: Bool[Array, " nodes"] | None = None,
    nonnegative_margins: bool = False,
) -> Projection:
    """argmin_x ½ Σ_i w_i (x_i − v_i)² s.t. x[upper] >= discount·x[lower] + margin (iso-proj).

    Only comparisons whose mask holds count; discount 0 bounds the upper slot alone; frozen
    nodes keep their values. Differentiable in values, node_weight, margin and discount: on
    the active set the solution is that of a linear system (for unit discounts and equal
    weights, the mean of each block), and its derivative is returned where the set is locally
    constant. Unbatched: vmap it; the problems of a batch are then solved together.

    Bad input raises :class:`~gcr_rl.errors.InputError` outside jit and gives
    ``Result.INVALID_INPUT`` inside; contradictory comparisons give ``Result.INFEASIBLE``.
    """
    values = jnp.asarray(values)
    if not jnp.issubdtype(values.dtype, jnp.floating):
        raise InputError("values", values.dtype, "floating-point values")
    dtype = values.dtype
    if node_weight is None:
        node_weight = jnp.ones_like(values)
    if frozen is None:
        frozen = jnp.zeros(values.shape, bool)
    check_shapes(values, comparisons, node_weight, frozen)
    raw = Order(
        values,
        jnp.asarray(node_weight, dtype),
        jnp.asarray(frozen, bool),
        jnp.asarray(comparisons.upper),
        jnp.asarray(comparisons.lower),
        jnp.asarray(comparisons.margin, dtype),
        jnp.asarray(comparisons.discount, dtype),
        jnp.asarray(comparisons.mask, bool),
    )
    broken = breaches(raw, nonnegative_margins)
    raise_if_known(raw, broken)
    valid = ~jnp.any(jnp.stack([jnp.any(bad) for bad in broken.values()]))
    order = sanitize(raw, valid)
    solved = project_order(lax.stop_gradient(order))
    projected = _with_derivative(order, lax.stop_gradient((solved.values, solved.multipliers)))
    projected = jnp.where(valid, projected, values)
    result = jnp.where(solved.converged, Result.SUCCESS, Result.NOT_CONVERGED)
    result = jnp.where(solved.infeasible, Result.INFEASIBLE, result)
    result = jnp.where(valid, result, Result.INVALID_INPUT).astype(jnp.int32)
    return Projection(projected, result, _stats(lax.stop_gradient(order), solved))


def check_shapes(
    values: Array, comparisons: Comparisons, node_weight: Array, frozen: Array
) -> None:
    """Raise on axes that do not fit; shapes are known under jit too."""
    if values.ndim != 1 or values.size == 0:
        raise InputError("values", values.shape, "one axis of nodes (vmap over batches)")
    for name, nodes in (("node_weight", node_weight), ("frozen", frozen)):
        if jnp.shape(nodes) != values.shape:
            raise InputError(name, jnp.shape(nodes), f"the shape of values, {values.shape}")
    edges = jnp.shape(comparisons.upper)
    if len(edges) != 1:
        raise InputError("comparisons.upper", edges, "one axis of edges (vmap over batches)")
    for name in ("lower", "margin", "discount", "mask"):
        shape = jnp.shape(getattr(comparisons, name))
        if shape != edges:
            raise InputError(f"comparisons.{name}", shape, f"the shape of upper, {edges}")
    for name in ("upper", "lower"):
        index = jnp.asarray(getattr(comparisons, name))
        if not jnp.issubdtype(index.dtype, jnp.integer):
            raise InputError(f"comparisons.{name}", index.dtype, "integer node indices")


def breaches(order: Order, nonnegative_margins: bool) -> dict[str, Array]:
    """Where each field breaks its contract; masked-out comparisons may hold anything."""
    count = order.values.shape[0]
    weight_ok = (order.node_weight > 0) & jnp.isfinite(order.node_weight)
    margin_ok = jnp.isfinite(order.margin)
    if nonnegative_margins:
        margin_ok &= order.margin >= 0
    return {
        "values": ~jnp.isfinite(order.values),
        "node_weight": ~weight_ok,
        "comparisons.upper": order.mask & ((order.upper < 0) | (order.upper >= count)),
        "comparisons.lower": order.mask & ((order.lower < 0) | (order.lower >= count)),
        "comparisons.margin": order.mask & ~margin_ok,
        "comparisons.discount": order.mask & ~((order.discount >= 0) & (order.discount <= 1)),
    }


_ACCEPTED = {
    "values": "finite numbers",
    "node_weight": "finite numbers above 0",
    "comparisons.upper": "indices of nodes",
    "comparisons.lower": "indices of nodes",
    "comparisons.margin": "finite numbers (and none below 0 if nonnegative_margins)",
    "comparisons.discount": "numbers in [0, 1]",
}


def raise_if_known(order: Order, broken: dict[str, Array]) -> None:
    """Raise on the first bad entry, if the inputs are concrete; tracers pass."""
    for name, bad in broken.items():
        if isinstance(bad, jax.core.Tracer):
            continue
        where = np.flatnonzero(np.asarray(bad))
        if where.size:
            field = np.asarray(getattr(order, name.rsplit(".", 1)[-1]))
            raise InputError(f"{name}[{where[0]}]", field[where[0]].item(), _ACCEPTED[name])


def sanitize(order: Order, valid: Array) -> Order:
    """A well-posed problem whatever came in: masked-out or bad entries become harmless."""
    mask = order.mask & valid
    # Frozen nodes do not enter the objective, so any weight will do for them.
    return Order(
        values=jnp.where(valid, order.values, 0.0),
        node_weight=jnp.where(valid, order.node_weight, 1.0),
        frozen=order.frozen,
        upper=jnp.where(mask, order.upper, 0).astype(jnp.int32),
        lower=jnp.where(mask, order.lower, 0).astype(jnp.int32),
        margin=jnp.where(mask, order.margin, 0.0),
        discount=jnp.where(mask, order.discount, 0.0),
        mask=mask,
    )


def _stats(order: Order, solved: Solved) -> ProjectionStats:
    x, multipliers = solved.values, lax.stop_gradient(solved.multipliers)
    batched = jax.tree.map(lambda leaf: leaf[None], order)
    short = missing(batched, x[None])[0]
    scaled = -order.discount * multipliers
    pull = jnp.zeros_like(x).at[order.upper].add(multipliers).at[order.lower].add(scaled)
    offset = jnp.where(order.frozen, 0.0, x - order.values - pull / order.node_weight)
    gap = 0.5 * jnp.sum(order.node_weight * offset**2) - jnp.sum(multipliers * short)
    return ProjectionStats(
        iterations=solved.iterations,
        max_violation=jnp.max(short, initial=0.0),
        active_edges=jnp.sum(multipliers > 0).astype(jnp.int32),
        duality_gap=gap,
        multipliers=multipliers,
    )


@jax.custom_jvp
def _with_derivative(order: Order, solution: tuple[Array, Array]) -> Float[Array, " nodes"]:
    return solution[0]


@_with_derivative.defjvp
def _derivative(
    primals: tuple[Order, tuple[Array, Array]], tangents: tuple[Order, tuple[Array, Array]]
) -> tuple[Array, Array]:
    """Differentiate W(x − v) = Aᵀλ, A x = m on the active rows, x = v on the frozen nodes.

    With v' = v̇ + W⁻¹(Ȧᵀλ − Ẇ(x − v)) and m' = ṁ − Ȧx, the tangent is
    argmin ½‖ẋ − v'‖²_W s.t. A ẋ = m': augmented-Lagrangian steps with one factorisation,
    which also settle rows that depend on each other.
    """
    (order, (x, multipliers)), (rate, _) = primals, tangents
    free = ~order.frozen
    own = jnp.zeros_like(x).at[order.lower].add(-rate.discount * multipliers)
    own = own - rate.node_weight * (x - order.values)
    nodes = rate.values + jnp.where(free, own / order.node_weight, 0.0)
    edges = rate.margin + rate.discount * x[order.lower]
    return x, _equality_projection(order, multipliers > 0, nodes, edges)


def _equality_projection(
    order: Order, active: Array, nodes: Float[Array, " nodes"], edges: Float[Array, " edges"]
) -> Float[Array, " nodes"]:
    """argmin ½‖z − nodes‖²_W s.t. z[upper] − discount·z[lower] = edges where active, and
    z = nodes where frozen. Linear in (nodes, edges), and written so that JAX transposes it."""
    count = nodes.shape[0]
    root = inverse_root_weight(order.node_weight, order.frozen)
    rows = scaled_rows(
        root[order.upper],
        root[order.lower],
        order.upper == order.lower,
        order.discount,
        active & order.mask,
    )
    bound = edges - nodes[order.upper] + order.discount * nodes[order.lower]
    bound = jnp.where(rows.live, bound / rows.norm, 0.0)
    ends = (order.upper, order.lower, rows.at_upper, rows.at_lower)
    fields = (*ends, bound, jnp.zeros_like(bound), rows.live)
    program = Program(*(field[None] for field in fields))
    penalty = 1e8 if nodes.dtype == jnp.float64 else 1e4
    factor = factorize(program, jnp.where(program.live, penalty, 0.0).astype(nodes.dtype), count)
    y = jnp.zeros_like(nodes)[None]
    multipliers = jnp.zeros_like(program.bound)
    for _ in range(3):
        gap = penalty * (program.bound - apply(program, y))
        right = apply_transpose(program, multipliers + gap, count) - y
        y = y + solve_factored(factor, right)
        multipliers = multipliers + penalty * (program.bound - apply(program, y))
    return nodes + root * y[0]
