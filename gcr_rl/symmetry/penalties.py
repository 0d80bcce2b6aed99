"""Group penalties on a bank of pairs (W_k, Π_k), eq. group-reg; all zero on a true group.

Squared distances of a pair add both parts: D(i, l) = ||W_i - W_l||² + ||Π_i - Π_l||².
The minimum over l is taken without gradient and its distance is then computed directly
(the gradient is the same, and no rounding is lost in expanded squares).
"""

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int

Transforms = Float[Array, "k d d"]
Permutations = Float[Array, "k a a"]


def identity_penalty(transforms: Transforms, permutations: Permutations) -> Float[Array, ""]:
    """R_id = ||W_1 - I||² + ||Π_1 - I||² + mean_k ||W_kᵀW_k - I||²."""
    return anchor_penalty(transforms, permutations) + orthogonality_penalty(transforms)


def anchor_penalty(transforms: Transforms, permutations: Permutations) -> Float[Array, ""]:
    """||W_1 - I||² + ||Π_1 - I||², the part of R_id that names the identity."""
    return _to_identity(transforms[0]) + _to_identity(permutations[0])


def orthogonality_penalty(transforms: Transforms) -> Float[Array, ""]:
    """mean_k ||W_kᵀW_k - I||²; identically zero where W_k is kept orthogonal."""
    return jnp.mean(_to_identity(jnp.swapaxes(transforms, -1, -2) @ transforms))


def closure_penalty(
    transforms: Transforms,
    permutations: Permutations,
    pairs: Int[Array, "pairs 2"] | None = None,
) -> Float[Array, ""]:
    """R_clo = E_{i,j} min_l (||W_iW_j - W_l||² + ||Π_iΠ_j - Π_l||²).

    ``pairs`` restricts the mean to some (i, j): an unbiased estimate when they are drawn or
    cycled through uniformly. All K² pairs cost K² products of d x d matrices.
    """
    first, second = _all_pairs(len(transforms)) if pairs is None else (pairs[:, 0], pairs[:, 1])
    return jnp.mean(
        _nearest_distance(
            pick(transforms, first) @ pick(transforms, second),
            pick(permutations, first) @ pick(permutations, second),
            transforms,
            permutations,
        )
    )


def inverse_penalty(
    transforms: Transforms, permutations: Permutations, elements: Int[Array, " e"] | None = None
) -> Float[Array, ""]:
    """R_inv = E_i min_l (||W_iᵀ - W_l||² + ||Π_iᵀ - Π_l||²), the mean over ``elements`` or all."""
    some_w, some_p = _some(transforms, elements), _some(permutations, elements)
    return jnp.mean(
        _nearest_distance(
            jnp.swapaxes(some_w, -1, -2),
            jnp.swapaxes(some_p, -1, -2),
            transforms,
            permutations,
        )
    )


def order_penalty(
    transforms: Transforms, permutations: Permutations, orders: tuple[int, ...] = (2, 3, 4)
) -> Float[Array, ""]:
    """R_ord = mean_i min_{m in M} (||W_i^m - I||² + ||Π_i^m - I||²).

    The paper sums over m. W² = I and W³ = I together leave only W = I, so that sum vanishes
    at the identity alone; with the minimum every element has one order, the nearest.
    """
    powers_w, powers_p = transforms, permutations
    distances = []
    for power in range(2, max(orders) + 1):
        powers_w, powers_p = powers_w @ transforms, powers_p @ permutations
        if power in orders:
            distances.append(_to_identity(powers_w) + _to_identity(powers_p))
    return jnp.mean(jnp.min(jnp.stack(distances), axis=0))


def orthogonal_order_penalty(
    transforms: Transforms, permutations: Permutations
) -> Float[Array, ""]:
    """R_ord for orders 2, 3, 4 and orthogonal W, with one product instead of three.

    ||W² - I|| = ||W - Wᵀ||, ||W³ - I|| = ||W² - Wᵀ||, ||W⁴ - I|| = ||W² - (W²)ᵀ||; the
    permutations, whose Sinkhorn form is not orthogonal, are multiplied out.
    """
    square, transposed = transforms @ transforms, jnp.swapaxes(transforms, -1, -2)
    square_p = permutations @ permutations
    by_order = (
        _squared(transforms - transposed) + _to_identity(square_p),
        _squared(square - transposed) + _to_identity(square_p @ permutations),
        _squared(square - jnp.swapaxes(square, -1, -2)) + _to_identity(square_p @ square_p),
    )
    return jnp.mean(jnp.min(jnp.stack(by_order), axis=0))


def permutation_penalty(permutations: Permutations) -> Float[Array, ""]:
    """R_perm = mean_k of the entropy of Π_k: zero exactly at permutations."""
    tiny = jnp.finfo(permutations.dtype).tiny
    entropy = -jnp.sum(permutations * jnp.log(jnp.maximum(permutations, tiny)), axis=(-1, -2))
    return jnp.mean(entropy) / permutations.shape[-1]


def diversity_penalty(
    transforms: Transforms,
    permutations: Permutations,
    margin: float = 1.0,
    elements: Int[Array, " e"] | None = None,
) -> Float[Array, ""]:
    """R_div = mean_{i != j} max(0, 1 - D(i, j) / margin)²: elements repel within ``margin``.

    Ours: the paper names the term and gives no formula. It is zero as soon as all pairs are
    farther apart than the margin, so it does not fight a group that is found: distinct
    permutations differ by at least 4, and so do distinct signed permutations W. The mean
    runs over all pairs, or over those with i in ``elements``.
    """
    count = len(transforms)
    places = jnp.arange(count) if elements is None else elements
    distance = _pair_distances(_some(transforms, elements), transforms)
    distance = distance + _pair_distances(_some(permutations, elements), permutations)
    repulsion = jnp.maximum(0.0, 1.0 - distance / margin) ** 2
    others = places[:, None] != jnp.arange(count)
    return jnp.sum(jnp.where(others, repulsion, 0.0)) / max(len(places) * (count - 1), 1)


def _all_pairs(count: int) -> tuple[Array, Array]:
    grid = jnp.arange(count)
    return jnp.repeat(grid, count), jnp.tile(grid, count)


def _squared(matrices: Float[Array, "*k n n"]) -> Float[Array, "*k"]:
    return jnp.sum(matrices**2, axis=(-1, -2))


def _to_identity(matrices: Float[Array, "*k n n"]) -> Float[Array, "*k"]:
    return _squared(matrices - jnp.eye(matrices.shape[-1], dtype=matrices.dtype))


def _some(bank: Float[Array, "k n n"], elements: Int[Array, " e"] | None) -> Array:
    return bank if elements is None else pick(bank, elements)


def _pair_distances(
    some: Float[Array, "e n n"], bank: Float[Array, "k n n"]
) -> Float[Array, "e k"]:
    first, second = some.reshape(len(some), -1), bank.reshape(len(bank), -1)
    sizes = jnp.sum(first**2, axis=1)[:, None] + jnp.sum(second**2, axis=1)
    return sizes - 2.0 * first @ second.T


def nearest_element(
    targets_w: Float[Array, "p d d"],
    targets_p: Float[Array, "p a a"],
    transforms: Transforms,
    permutations: Permutations,
) -> Int[Array, " p"]:
    """argmin_l (||target_w - W_l||² + ||target_p - Π_l||²), without gradient."""

    def cross(targets: Array, bank: Array) -> Array:
        bank = bank.reshape(len(bank), -1)
        return jnp.sum(bank**2, axis=1) - 2.0 * targets.reshape(len(targets), -1) @ bank.T

    distance = cross(targets_w, transforms) + cross(targets_p, permutations)
    return jnp.argmin(lax.stop_gradient(distance), axis=1)


def _nearest_distance(
    targets_w: Float[Array, "p d d"],
    targets_p: Float[Array, "p a a"],
    transforms: Transforms,
    permutations: Permutations,
) -> Float[Array, " p"]:
    nearest = nearest_element(targets_w, targets_p, transforms, permutations)
    return _squared(targets_w - pick(transforms, nearest)) + _squared(
        targets_p - pick(permutations, nearest)
    )


def pick(bank: Float[Array, "k n n"], places: Int[Array, " p"]) -> Float[Array, "p n n"]:
    """bank[places] as a product: the gradient of a gather would be a scatter, slow on CPU."""
    chosen = jax.nn.one_hot(places, len(bank), dtype=bank.dtype)
    return (chosen @ bank.reshape(len(bank), -1)).reshape(len(places), *bank.shape[1:])
