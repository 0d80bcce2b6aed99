"""Sinkhorn, assignment, polar factor and Procrustes: the operators of app. group-projection.

Convention everywhere: ``relabel[a] = b`` is the permutation matrix Π with Π[b, a] = 1.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax
from jaxtyping import Array, Float, Int

from gcr_rl.errors import InputError

_POLAR_STEPS = 60


def sinkhorn(logits: Float[Array, "n n"], iterations: int = 20) -> Float[Array, "n n"]:
    """S_T with S_0 = exp(L), S_{t+1} = N_row(N_col(S_t)), in the log domain.

    Rows sum to one exactly (they come last), columns up to the error of the iteration.
    """

    def normalise(_: Array | int, log_s: Array) -> Array:
        log_s = log_s - jax.nn.logsumexp(log_s, axis=0, keepdims=True)
        return log_s - jax.nn.logsumexp(log_s, axis=1, keepdims=True)

    if iterations > 8:
        return jnp.exp(lax.fori_loop(0, iterations, normalise, logits))
    # Few rounds are unrolled: the matrices are tiny and a loop costs more than its body.
    for step in range(iterations):
        logits = normalise(step, logits)
    return jnp.exp(logits)


def nearest_permutation(scores: Float[Array, "n n"]) -> Int[Array, " n"]:
    """argmin_Π ||S - Π||_F^2 = argmax_Π <S, Π> over permutations, as ``relabel`` (lem:hungarian).

    Entries that are not numbers count as the worst score, so that the search always ends.
    """
    worst = jnp.min(jnp.where(jnp.isfinite(scores), scores, 0.0)) - 1.0
    cost = -jnp.where(jnp.isfinite(scores), scores, worst)
    rows, columns = optax.assignment.hungarian_algorithm(cost)
    return jnp.zeros_like(rows).at[columns].set(rows).astype(jnp.int32)


def permutation_matrix(relabel: Int[Array, "*k n"]) -> Float[Array, "*k n n"]:
    """Π with Π[relabel[a], a] = 1."""
    return jax.nn.one_hot(relabel, relabel.shape[-1], axis=-2)


def check_permutations(relabel: object, field: str = "relabel") -> Int[np.ndarray, "g a"]:
    """``relabel`` as an int32 table whose rows are permutations, or an ``InputError``."""
    table = np.asarray(relabel)
    if table.ndim != 2 or not np.issubdtype(table.dtype, np.integer):
        raise InputError(field, np.shape(table), "a table of whole numbers, one row per element")
    for row in table:
        if not np.array_equal(np.sort(row), np.arange(table.shape[1])):
            raise InputError(
                field, row.tolist(), f"rows that are permutations of 0..{table.shape[1] - 1}"
            )
    return table.astype(np.int32)


@jax.custom_jvp
def polar(matrix: Float[Array, "d d"]) -> Float[Array, "d d"]:
    """UVᵀ of A = UΣVᵀ, the solution of min_{Q in O(d)} ||A - Q||_F (lem:polar).

    Its derivative is written out (see :func:`_polar_jvp`): that of the singular vectors is
    not defined where singular values are equal, which they are at every orthogonal matrix.

    On a processor by LAPACK, on accelerators by products: there a decomposition of a 256 x 256
    matrix takes milliseconds and a batch of them goes one after the other.
    """
    return lax.platform_dependent(matrix, cpu=_polar_by_decomposition, default=_polar_by_products)


@polar.defjvp
def _polar_jvp(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    """dQ = Q Ω, where Ω is the skew solution of Ω P + P Ω = QᵀdA - dAᵀQ and A = QP.

    In the eigenbasis of P the equation is diagonal with denominators σ_i + σ_j, which vanish
    only where A is singular; there Q is not unique and we return the derivative 0.
    """
    (matrix,), (tangent,) = primals, tangents
    left, sigma, right = jnp.linalg.svd(matrix)
    turned = left.T @ tangent @ right.T
    total = sigma[:, None] + sigma[None, :]
    skew = turned - turned.T
    omega = jnp.where(total > 1e-12, skew / jnp.maximum(total, 1e-12), 0.0)
    return left @ right, left @ omega @ right


def _polar_by_decomposition(matrix: Float[Array, "d d"]) -> Float[Array, "d d"]:
    """UVᵀ from LAPACK. Its divide and conquer gives up (NaN) on about one in a hundred 128 x 128
    matrices whose singular values agree to rounding, as those of a kept transform do; products
    take over there. The QR algorithm does not give up and takes three times as long."""
    left, _, right = jnp.linalg.svd(matrix)
    return _polar_by_products(matrix, left @ right)


def _polar_by_products(
    matrix: Float[Array, "d d"], found: Float[Array, "d d"] | None = None
) -> Float[Array, "d d"]:
    """Newton–Schulz from A / ||A||_F, each step scaled for singular values in [low, 1].

    X <- (a/2) X (3 I - a² XᵀX) with a² = 3 / (1 + low + low²) sends both ends of [low, 1] to the
    same point, the next ``low``, and the largest value inside to 1 (Chen and Chow, 2014). Small
    ones grow 2.6-fold a step instead of 1.5-fold: twenty steps where all are above 1e-6 of the
    norm. Smaller ones take longer; where A is singular, rounding decides as it does in LAPACK.
    ``found``, where it is finite, is taken for the answer, and no step is made.
    """
    size, tiny = matrix.shape[-1], jnp.finfo(matrix.dtype).tiny
    identity = jnp.eye(size, dtype=matrix.dtype)

    def unfinished(carry: tuple[Array, Array, Any, Array]) -> Array:
        _, _, step, defect = carry
        return (defect > 2e-6 * size**0.5) & (step < _POLAR_STEPS)

    def body(carry: tuple[Array, Array, Any, Array]) -> tuple[Array, Array, Any, Array]:
        x, low, step, _ = carry
        gram = jnp.matmul(x.T, x, precision="highest")
        square = 3.0 / (1.0 + low + low**2)
        moved = jnp.matmul(x, 3.0 * identity - square * gram, precision="highest")
        low = jnp.minimum(0.5 * jnp.sqrt(square) * low * (3.0 - square * low**2), 1.0)
        defect = jnp.linalg.norm(gram - identity)
        return 0.5 * jnp.sqrt(square) * moved, low, step + 1, defect

    start = matrix / jnp.maximum(jnp.linalg.norm(matrix), tiny)
    low, defect = jnp.asarray(1e-6, matrix.dtype), jnp.asarray(jnp.inf, matrix.dtype)
    if found is not None:
        given = jnp.all(jnp.isfinite(found))
        start, defect = jnp.where(given, found, start), jnp.where(given, 0.0, defect)
    return lax.while_loop(unfinished, body, (start, low, jnp.int32(0), defect))[0]


def newton_schulz(matrix: Float[Array, "d d"], iterations: int = 1) -> Float[Array, "d d"]:
    """X <- X (3 I - XᵀX) / 2: polar's retraction for a matrix that is already nearly orthogonal.

    Two products a step, no solve, no decomposition; singular values 1 + e become 1 - 3e²/2.
    It converges to polar(X) whenever all singular values lie in (0, √3).
    """
    identity = jnp.eye(matrix.shape[-1], dtype=matrix.dtype)
    for _ in range(iterations):
        matrix = 0.5 * matrix @ (3.0 * identity - matrix.T @ matrix)
    return matrix


def procrustes(
    source: Float[Array, "batch d"], target: Float[Array, "batch d"]
) -> Float[Array, "d d"]:
    """argmin_{W in O(d)} sum_i ||target_i - W source_i||^2 = Polar(sum_i target_i source_iᵀ)."""
    return polar(target.T @ source)


def permutation_entropy(matrix: Float[Array, "n n"]) -> Float[Array, ""]:
    """-(1/n) sum_ab Π[b,a] log Π[b,a]: zero exactly at permutations, log n at the centre."""
    tiny = jnp.finfo(matrix.dtype).tiny  # keeps the slope finite at exact zeros
    return -jnp.sum(matrix * jnp.log(jnp.maximum(matrix, tiny))) / matrix.shape[-1]


def orthogonality_defect(matrix: Float[Array, "d d"]) -> Float[Array, ""]:
    """||WᵀW - I||_F."""
    return jnp.linalg.norm(matrix.T @ matrix - jnp.eye(matrix.shape[-1], dtype=matrix.dtype))
