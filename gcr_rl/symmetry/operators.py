"""Sinkhorn, assignment, polar factor and Procrustes: the operators of app. group-projection.

Convention everywhere: ``relabel[a] = b`` is the permutation matrix Π with Π[b, a] = 1.
"""

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax
from jaxtyping import Array, Float, Int

from gcr_rl.errors import InputError


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

    LAPACK's divide and conquer gives up (NaN) on about one in a hundred 128 x 128 matrices whose
    singular values agree to rounding, as those of a kept transform do; Newton–Schulz is at its
    best there and takes over. The QR algorithm does not give up and takes three times as long.
    """
    left, _, right = jnp.linalg.svd(matrix)
    found = left @ right
    return jnp.where(jnp.all(jnp.isfinite(found)), found, _polar_by_products(matrix))


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


def _polar_by_products(matrix: Float[Array, "d d"]) -> Float[Array, "d d"]:
    """Newton–Schulz from A / ||A||_F, whose singular values are at most 1: it cannot diverge.

    A multiple of an orthogonal matrix begins at 1/√d and grows by half each time: eight steps
    to 1 for d = 512, four more to rounding.
    """
    start = matrix / jnp.maximum(jnp.linalg.norm(matrix), jnp.finfo(matrix.dtype).tiny)
    return lax.fori_loop(0, 16, lambda _, x: newton_schulz(x), start)


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
