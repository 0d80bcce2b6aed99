"""The projection as a least-distance program: min ½‖y‖² s.t. C y >= b, two entries per row.

Everything here is hand-batched: the leading axis runs over problems with graphs of their own.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int


class Program(NamedTuple):
    """min ½‖y‖² s.t. at_upper·y[upper] + at_lower·y[lower] >= bound on every live row.

    Rows have norms between 1 and 2; a row that is not live has coefficients 0 and bound 0.
    ``noise`` is how much of each bound may be rounding.
    """

    upper: Int[Array, "batch edges"]
    lower: Int[Array, "batch edges"]
    at_upper: Float[Array, "batch edges"]
    at_lower: Float[Array, "batch edges"]
    bound: Float[Array, "batch edges"]
    noise: Float[Array, "batch edges"]
    live: Bool[Array, "batch edges"]


def gather(
    nodes: Float[Array, "batch nodes"], index: Int[Array, "batch edges"]
) -> Float[Array, "batch edges"]:
    """nodes[b, index[b, e]]; every index is in range by construction."""
    return jax.vmap(lambda x, i: x.at[i].get(mode="promise_in_bounds"))(nodes, index)


def apply(program: Program, y: Float[Array, "batch nodes"]) -> Float[Array, "batch edges"]:
    """C y."""
    at_upper = program.at_upper * gather(y, program.upper)
    return at_upper + program.at_lower * gather(y, program.lower)


def _scatter_ends(
    program: Program, to_upper: Array, to_lower: Array, num_nodes: int
) -> Float[Array, "batch nodes"]:
    def one(upper: Array, lower: Array, up: Array, low: Array) -> Array:
        nodes = jnp.zeros(num_nodes, up.dtype).at[upper].add(up, mode="promise_in_bounds")
        return nodes.at[lower].add(low, mode="promise_in_bounds")

    return jax.vmap(one)(program.upper, program.lower, to_upper, to_lower)


def apply_transpose(
    program: Program, edges: Float[Array, "batch edges"], num_nodes: int
) -> Float[Array, "batch nodes"]:
    """Cᵀ edges."""
    return _scatter_ends(program, program.at_upper * edges, program.at_lower * edges, num_nodes)


def factorize(
    program: Program, stiffness: Float[Array, "batch edges"], num_nodes: int
) -> Float[Array, "batch nodes nodes"]:
    """Lower Cholesky factor of I + Cᵀ diag(stiffness) C.

    The entries are written into an upper triangle that is then read transposed: LAPACK wants
    columns, and so the matrix is never copied.
    """
    batch = stiffness.shape[0]
    first = jnp.minimum(program.upper, program.lower)
    second = jnp.maximum(program.upper, program.lower)

    def add(matrix: Array, index: Array, value: Array) -> Array:
        return jax.vmap(lambda m, i, v: m.at[i].add(v, mode="promise_in_bounds"))(
            matrix, index, value
        )

    eye = jnp.eye(num_nodes, dtype=stiffness.dtype).reshape(1, -1)
    matrix = jnp.broadcast_to(eye, (batch, num_nodes * num_nodes))
    cross = stiffness * program.at_upper * program.at_lower
    matrix = add(matrix, first * num_nodes + second, cross)
    matrix = add(matrix, program.upper * (num_nodes + 1), stiffness * program.at_upper**2)
    matrix = add(matrix, program.lower * (num_nodes + 1), stiffness * program.at_lower**2)
    square = matrix.reshape(batch, num_nodes, num_nodes)
    return lax.linalg.cholesky(jnp.swapaxes(square, 1, 2), symmetrize_input=False)


def solve_factored(
    factor: Float[Array, "batch nodes nodes"], right: Float[Array, "batch nodes"]
) -> Float[Array, "batch nodes"]:
    """(L Lᵀ)⁻¹ right."""
    half = lax.linalg.triangular_solve(factor, right[..., None], left_side=True, lower=True)
    full = lax.linalg.triangular_solve(factor, half, left_side=True, lower=True, transpose_a=True)
    return full[..., 0]


def accelerated_dual(
    program: Program, num_nodes: int, steps: int, window: int
) -> tuple[Float[Array, "batch edges"], Int[Array, " batch"]]:
    """``steps`` steps of FISTA with adaptive restart on min_{λ>=0} ½‖Cᵀλ‖² − bᵀλ.

    Also how many rows entered or left the support of λ over the last ``window`` steps: a
    support that has settled is worth a try as the active set.
    """
    absolute = program._replace(
        at_upper=jnp.abs(program.at_upper), at_lower=jnp.abs(program.at_lower)
    )
    ones = jnp.ones_like(program.bound)
    # Row sums of |C Cᵀ| bound its spectrum row by row, so each row has its own step size.
    row_sum = apply(absolute, apply_transpose(absolute, ones, num_nodes))
    step_size = jnp.where(program.live, 1.0 / jnp.where(program.live, row_sum, 1.0), 0.0)

    def step(_: int, carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        previous, extrapolated, momentum = carry
        ascent = program.bound - apply(program, apply_transpose(program, extrapolated, num_nodes))
        current = jnp.maximum(0.0, extrapolated + step_size * ascent)
        change = current - previous
        momentum = jnp.where(jnp.sum(ascent * change, 1) < 0, 1.0, momentum)
        following = (1.0 + jnp.sqrt(1.0 + 4.0 * momentum**2)) / 2.0
        weight = ((momentum - 1.0) / following)[:, None]
        return current, current + weight * change, following

    zero = jnp.zeros_like(program.bound)
    start = (zero, zero, jnp.ones(zero.shape[0], zero.dtype))
    early = lax.fori_loop(0, steps - window, step, start)
    late = lax.fori_loop(0, window, step, early)
    return late[0], jnp.sum((late[0] > 0) != (early[0] > 0), 1)
