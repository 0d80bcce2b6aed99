"""The soft order loss: a few gradient steps towards the projection (eqs. L-iso, L-rank)."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float

from gcr_rl.errors import InputError
from gcr_rl.kernels.isotonic import Order
from gcr_rl.order.isotonic import breaches, check_shapes, raise_if_known, sanitize
from gcr_rl.types import Comparisons


class OrderLosses(NamedTuple):
    """Losses at the returned values; violations are mean squared hinges over the edges."""

    iso: Float[Array, ""]
    rank: Float[Array, ""]
    ord: Float[Array, ""]
    violation_before: Float[Array, ""]
    violation_after: Float[Array, ""]


def soft_project(
    values: Float[Array, " nodes"],
    comparisons: Comparisons,
    penalty: float | Float[Array, ""],
    steps: int = 3,
    rank_weight: float | Float[Array, ""] = 0.0,
    *,
    margin: float | Float[Array, ""] | None = None,
    frozen: Bool[Array, " nodes"] | None = None,
    stop_gradient: bool = False,
) -> tuple[Float[Array, " nodes"], OrderLosses]:
    """``steps`` descent steps from V̂ = V on L_ord = L_iso + rank_weight·L_rank.

    L_iso  = 1/B Σ_i (V̂_i − V_i)² + penalty/|E| Σ_e [margin + discount·V̂_l − V̂_u]₊²
    L_rank = 1/|E| Σ_e log(1 + exp(discount·V̂_l − V̂_u)), over comparisons of two slots

    Each slot steps by 1/D_i, D_i a row sum of absolute curvatures, so that diag(D) majorises
    the Hessian everywhere: no step raises L_ord, for any penalty and any degree. ``margin``
    replaces the comparisons' own. Frozen slots stay. With ``stop_gradient`` V̂ is a constant
    and only V in the losses is differentiated; otherwise gradients pass through the steps.
    Bad input raises outside jit; inside, values come back as they were and losses are NaN.
    """
    order, valid = _checked(values, comparisons, penalty, steps, rank_weight, margin, frozen)
    start = lax.stop_gradient(order.values) if stop_gradient else order.values

    def objective(estimate: Array, anchor: Array) -> Array:
        return _losses(estimate, anchor, order, penalty, rank_weight).ord

    rate = jnp.where(order.frozen, 0.0, 1.0 / _curvature(order, penalty, rank_weight))
    estimate = start
    for _ in range(steps):
        estimate = estimate - rate * jax.grad(objective)(estimate, start)
    if stop_gradient:
        estimate = lax.stop_gradient(estimate)
    losses = _losses(estimate, order.values, order, penalty, rank_weight)
    losses = jax.tree.map(lambda loss: jnp.where(valid, loss, jnp.nan), losses)
    return jnp.where(valid, estimate, values), losses


def _checked(
    values: Array,
    comparisons: Comparisons,
    penalty: float | Array,
    steps: int,
    rank_weight: float | Array,
    margin: float | Array | None,
    frozen: Array | None,
) -> tuple[Order, Array]:
    values = jnp.asarray(values)
    if not jnp.issubdtype(values.dtype, jnp.floating):
        raise InputError("values", values.dtype, "floating-point values")
    if not isinstance(steps, int) or steps < 1:
        raise InputError("steps", steps, "a whole number of at least 1, known outside jit")
    broken: dict[str, Array] = {}
    for name, scalar in (("penalty", penalty), ("rank_weight", rank_weight)):
        bad = ~((jnp.asarray(scalar) >= 0) & jnp.isfinite(jnp.asarray(scalar)))
        if not isinstance(bad, jax.core.Tracer) and bool(bad):
            raise InputError(name, float(scalar), "a finite number of at least 0")
        broken[name] = bad
    if margin is not None:
        shape = jnp.shape(comparisons.margin)
        comparisons = comparisons._replace(margin=jnp.broadcast_to(jnp.asarray(margin), shape))
    if frozen is None:
        frozen = jnp.zeros(values.shape, bool)
    check_shapes(values, comparisons, values, frozen)
    raw = Order(
        values=values,
        node_weight=jnp.ones_like(values),
        frozen=jnp.asarray(frozen, bool),
        upper=jnp.asarray(comparisons.upper),
        lower=jnp.asarray(comparisons.lower),
        margin=jnp.asarray(comparisons.margin, values.dtype),
        discount=jnp.asarray(comparisons.discount, values.dtype),
        mask=jnp.asarray(comparisons.mask, bool),
    )
    fields = breaches(raw, nonnegative_margins=False)
    raise_if_known(raw, fields)
    valid = ~jnp.any(jnp.stack([jnp.any(bad) for bad in (broken | fields).values()]))
    return sanitize(raw, valid), valid


def _per_edge(order: Order, terms: Array) -> Array:
    """Mean over the comparisons whose mask holds; 0 if none does."""
    count = jnp.maximum(jnp.sum(order.mask), 1)
    return jnp.sum(jnp.where(order.mask, terms, 0.0)) / count


def _losses(
    estimate: Array,
    anchor: Array,
    order: Order,
    penalty: float | Array,
    rank_weight: float | Array,
) -> OrderLosses:
    def violation(nodes: Array) -> Array:
        short = order.margin + order.discount * nodes[order.lower] - nodes[order.upper]
        return _per_edge(order, jnp.maximum(short, 0.0) ** 2)

    difference = order.discount * estimate[order.lower] - estimate[order.upper]
    # A bound (discount 0) compares no two slots, so it has no rank to stabilise.
    ranks = jnp.where(order.discount > 0, jax.nn.softplus(difference), 0.0)
    after = violation(estimate)
    iso = jnp.mean((estimate - anchor) ** 2) + penalty * after
    rank = _per_edge(order, ranks)
    before = lax.stop_gradient(violation(anchor))
    return OrderLosses(iso, rank, iso + rank_weight * rank, before, after)


def _curvature(
    order: Order, penalty: float | Array, rank_weight: float | Array
) -> Float[Array, " nodes"]:
    """D with diag(D) ⪰ ∇²L_ord everywhere: row sums of the absolute Hessian's bound.

    An edge adds at most (2·penalty + rank_weight/4)/|E| · a aᵀ, a = (1, −discount), as the
    logistic function's slope is at most 1/4.
    """
    size = order.values.shape[0]
    per_edge = (2.0 * penalty + 0.25 * rank_weight) / jnp.maximum(jnp.sum(order.mask), 1)
    reach = jnp.where(order.mask, per_edge * (1.0 + order.discount), 0.0)
    degree = jnp.zeros_like(order.values).at[order.upper].add(reach)
    degree = degree.at[order.lower].add(order.discount * reach)
    return 2.0 / size + degree
