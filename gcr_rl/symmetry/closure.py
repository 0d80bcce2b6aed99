"""Projection, closure, alignment: alg. group-closure-full on a bank {(T_g, Π_g)}.

The product table of a learned bank is not given: gh is the element nearest to (T_gT_h, Π_gΠ_h),
read off once, after the projection, and only pairs nearer than a tolerance are enforced.
Element 0 is the identity.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from gcr_rl.errors import InputError
from gcr_rl.symmetry.operators import nearest_permutation, permutation_matrix, polar, procrustes
from gcr_rl.symmetry.penalties import nearest_element


class ClosureStats(NamedTuple):
    """Residuals over the enforced pairs, after the projection and after the whole cycle."""

    residual_transform: Float[Array, "2"]
    """mean r_T(g, h) = ||T_gh - T_gT_h||_F."""
    residual_permutation: Float[Array, "2"]
    """mean r_Π(g, h) = ||Π_gh - Π_gΠ_h||_F."""
    alignment: Float[Array, "2"]
    """mean_g,i ||image_gi - T_g z_i||² just before and just after Procrustes; 0 without data."""
    enforced: Float[Array, ""]
    """Share of pairs that are enforced."""
    closure_kept: Bool[Array, ""]
    """Whether the closure step lowered the residuals and was kept."""
    alignment_kept: Bool[Array, ""]
    """Whether the alignment left the residuals no larger than they were and was kept."""


class Closed(NamedTuple):
    """An orthogonal, permutation-valued bank and how it got there."""

    transforms: Float[Array, "k d d"]
    permutations: Float[Array, "k a a"]
    table: Int[Array, "k k"]
    stats: ClosureStats


class Alignment(NamedTuple):
    """Data for the third stage: z_i, their images, and values at both (K sets of images).

    ``images`` None takes the batch member nearest to T_g z_i, as the local weights α do.
    """

    features: Float[Array, "batch d"]
    images: Float[Array, "k batch d"] | None
    values: Float[Array, "batch a"] | None
    image_values: Float[Array, "k batch a"] | None


Bank = tuple[Float[Array, "k d d"], Float[Array, "k a a"]]


def close_group(
    transforms: Float[Array, "k d d"],
    permutations: Float[Array, "k a a"],
    alignment: Alignment | None = None,
    tolerance: float = 0.5,
) -> Closed:
    """One cycle: T_g <- Polar(T_g), Π_g <- ProjPerm(Π_g); T_gh <- Polar(mean T_gT_h); align.

    Where several pairs name the same product, their products are averaged before the polar
    step (for a nearly-homomorphic table this contracts quadratically). A stage that would
    leave the summed residuals larger than before it is not kept, so they never grow.
    ``tolerance`` is relative to sqrt(2 d), the distance of two unrelated rotations.
    """
    if transforms.ndim != 3 or permutations.ndim != 3 or len(transforms) != len(permutations):
        raise InputError(
            "bank", (transforms.shape, permutations.shape), "[K, d, d] and [K, A, A], one K"
        )
    bank = project(transforms, permutations)
    table, enforced = read_table(bank, tolerance)
    start = residuals(bank, table, enforced)
    closed = _enforce(bank, table, enforced)
    closed, after, closure_kept = _keep_better(bank, start, closed, table, enforced)
    error = jnp.zeros(2)
    alignment_kept = jnp.asarray(False)
    if alignment is not None:
        aligned, error = _align(closed, alignment)
        # Only what stage II gained may be given back: the start is the ceiling.
        value = residuals(aligned, table, enforced)
        alignment_kept = _total(value) <= _total(start) + 1e-6
        closed = _select(alignment_kept, aligned, closed)
        after = _select(alignment_kept, value, after)
    stats = ClosureStats(
        jnp.stack([start[0], after[0]]),
        jnp.stack([start[1], after[1]]),
        error,
        jnp.mean(enforced.astype(jnp.float32)),
        closure_kept,
        alignment_kept,
    )
    return Closed(*closed, table, stats)


def project(transforms: Float[Array, "k d d"], permutations: Float[Array, "k a a"]) -> Bank:
    """Stage I: the nearest orthogonal matrices and the nearest permutations; element 0 is I."""
    orthogonal = jax.vmap(polar)(transforms)
    exact = permutation_matrix(jax.vmap(nearest_permutation)(permutations))
    return _with_identity((orthogonal, exact.astype(permutations.dtype)))


def read_table(bank: Bank, tolerance: float) -> tuple[Int[Array, "k k"], Bool[Array, "k k"]]:
    """(gh for every pair, whether T_gT_h is within the tolerance of it and Π agrees)."""
    products = _products(bank)
    count, size = bank[0].shape[0], bank[0].shape[-1]
    flat = [product.reshape(count * count, *product.shape[2:]) for product in products]
    table = nearest_element(flat[0], flat[1], *bank).reshape(count, count)
    distance = jnp.linalg.norm(products[0] - bank[0][table], axis=(-1, -2))
    agrees = jnp.linalg.norm(products[1] - bank[1][table], axis=(-1, -2)) < 0.5
    return table, (distance <= tolerance * jnp.sqrt(2.0 * size)) & agrees


def residuals(
    bank: Bank, table: Int[Array, "k k"], enforced: Bool[Array, "k k"]
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """(mean r_T, mean r_Π) over the enforced pairs."""
    weight = enforced / jnp.maximum(jnp.sum(enforced), 1)
    gaps = [
        jnp.linalg.norm(part[table] - product, axis=(-1, -2))
        for part, product in zip(bank, _products(bank), strict=True)
    ]
    return jnp.sum(weight * gaps[0]), jnp.sum(weight * gaps[1])


def _enforce(bank: Bank, table: Int[Array, "k k"], enforced: Bool[Array, "k k"]) -> Bank:
    """Stage II: average the products that name each element; identity and inverses."""
    count = len(bank[0])
    # vote[l, g, h] = 1 where the enforced product gh is element l.
    vote = (table[None] == jnp.arange(count)[:, None, None]) & enforced[None]
    sums = [
        jnp.einsum("lgh,ghij->lij", vote.astype(part.dtype), product)
        for part, product in zip(bank, _products(bank), strict=True)
    ]
    has_vote = jnp.any(vote, axis=(1, 2))[:, None, None]
    mixed = [jnp.where(has_vote, total, part) for total, part in zip(sums, bank, strict=True)]
    # T_{g^-1} = T_gᵀ: average each element with the transposes of the elements inverse to it.
    inverse = ((table == 0) & enforced).astype(mixed[0].dtype)
    projected = project(mixed[0], mixed[1])
    paired = [part + jnp.einsum("gh,hij->gji", inverse, part) for part in projected]
    return project(paired[0], paired[1])


def _align(bank: Bank, data: Alignment) -> tuple[Bank, Float[Array, "2"]]:
    """Stage III: T_g by Procrustes on (z_i, image_gi), Π_g by matching values at both."""
    transforms, permutations = bank
    moved = jnp.einsum("kij,bj->kbi", transforms, data.features)
    images = _nearest_rows(moved, data.features) if data.images is None else data.images

    def error(candidate: Array) -> Array:
        fit = jnp.einsum("kij,bj->kbi", candidate, data.features)
        return jnp.mean(jnp.sum((images - fit) ** 2, axis=-1))

    turned = jax.vmap(procrustes, in_axes=(None, 0))(data.features, images)
    if data.values is not None and data.image_values is not None:
        # cost[k, b, a] = sum_i (Q(s_i, a) - Q(T_k s_i, b))²: a at s is b at T_k s.
        gap = data.image_values[:, :, :, None] - data.values[None, :, None, :]
        matched = jax.vmap(nearest_permutation)(-jnp.sum(gap**2, axis=1))
        permutations = permutation_matrix(matched).astype(permutations.dtype)
    aligned = _with_identity((turned, permutations))
    return aligned, jnp.stack([error(transforms), error(turned)])


def _nearest_rows(
    points: Float[Array, "k batch d"], rows: Float[Array, "batch d"]
) -> Float[Array, "k batch d"]:
    distance = jnp.sum(rows**2, axis=-1) - 2.0 * points @ rows.T
    return rows[jnp.argmin(distance, axis=-1)]


def _products(bank: Bank) -> tuple[Float[Array, "k k d d"], Float[Array, "k k a a"]]:
    transforms, permutations = bank
    return (
        jnp.einsum("gij,hjk->ghik", transforms, transforms),
        jnp.einsum("gij,hjk->ghik", permutations, permutations),
    )


def _with_identity(bank: Bank) -> Bank:
    transforms, permutations = bank
    return (
        transforms.at[0].set(jnp.eye(transforms.shape[-1], dtype=transforms.dtype)),
        permutations.at[0].set(jnp.eye(permutations.shape[-1], dtype=permutations.dtype)),
    )


def _total(pair: tuple[Array, Array]) -> Array:
    return pair[0] + pair[1]


def _select(keep: Array, new: tuple[Array, Array], old: tuple[Array, Array]) -> tuple[Array, Array]:
    return jnp.where(keep, new[0], old[0]), jnp.where(keep, new[1], old[1])


def _keep_better(
    old: Bank,
    before: tuple[Array, Array],
    new: Bank,
    table: Int[Array, "k k"],
    enforced: Bool[Array, "k k"],
) -> tuple[Bank, tuple[Array, Array], Bool[Array, ""]]:
    after = residuals(new, table, enforced)
    keep = _total(after) <= _total(before)
    return _select(keep, new, old), _select(keep, after, before), keep
