"""Cheap first layers: W T_g o for all g of a vocabulary without |G| full products.

Let V = C2^k be a subgroup of commuting involutions and c run over its right cosets, so that
every element is T_v T_c. On the V-orbits m of the blocks, with the real characters χ of V,

    y_χ[c, m] = (1/|V|) sum_u χ(u) (T_u T_c o)[m],    W_χ[m] = sum_u χ(u) W[u m] / |Stab(m)|,
    W T_v T_c o = sum_χ χ(v) W_χ y_χ[c],

so |V| images cost one product instead of |V|: two instead of eight for D4 on a square.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Shaped

from gcr_rl.symmetry.transforms import BlockGather
from gcr_rl.symmetry.vocabulary import Vocabulary


class LinearFirst(eqx.Module):
    """q(o) = rest(weight @ (scale * ravel(o)) + bias): a network that shows its first layer."""

    weight: Float[Array, "hidden inputs"]
    bias: Float[Array, " hidden"]
    rest: Callable[[Any], Any]
    scale: float = eqx.field(static=True, default=1.0)

    def __call__(self, observation: Shaped[Array, "..."]) -> Float[Array, " actions"]:
        """q(observation, .)."""
        x = jnp.ravel(observation).astype(self.weight.dtype)
        x = x if self.scale == 1.0 else x * self.scale
        return self.rest(self.weight @ x + self.bias)


class Fold(eqx.Module):
    """The index tables of the sums above, for one vocabulary."""

    points: Int[Array, "cosets v orbits"]
    """(T_v T_c o)[m] = o[points[c, v, m]]."""
    columns: Int[Array, "v orbits"]
    """u m: the block that T_u reads at m."""
    multiplicity: Float[Array, " orbits"]
    """1 / |Stab(m)|."""
    place: Int[Array, " g"]
    """Where element g of the vocabulary stands in the order (v, c)."""

    def images(
        self, weight: Float[Array, "hidden inputs"], rows: Float[Array, "blocks width"]
    ) -> Float[Array, "g hidden"]:
        """weight @ ravel(T_g o) for every element g of the vocabulary, ``rows`` being o."""
        hidden, (cosets, order, _) = weight.shape[0], self.points.shape
        weight_rows = weight.T.reshape(*rows.shape, hidden)
        columns = weight_rows[self.columns] * self.multiplicity[:, None, None]
        folded_weight = _characters_sum(columns).reshape(order, -1, hidden)
        values = jnp.swapaxes(rows[self.points], 0, 1)
        folded = _characters_sum(values).reshape(order, cosets, -1) / order
        product = jnp.einsum("xcn,xnh->xch", folded, folded_weight)
        images = _characters_sum(product).reshape(order * cosets, hidden)
        return images[self.place]


def _characters_sum(values: Float[Array, "v ..."]) -> Float[Array, "v ..."]:
    """x_χ = sum_v χ(v) x_v over C2^k, as k rounds of sums and differences."""
    if len(values) == 1:
        return values
    half = len(values) // 2
    low, high = _characters_sum(values[:half]), _characters_sum(values[half:])
    return jnp.concatenate([low + high, low - high])


def make_fold(vocabulary: Vocabulary) -> Fold | None:
    """The fold of a closed vocabulary of unsigned block gathers; None where nothing is saved."""
    transforms, table = vocabulary.transforms, vocabulary.compose
    if table is None or not isinstance(transforms, BlockGather) or transforms.sign is not None:
        return None
    subgroup = _largest_elementary_subgroup(table)
    if len(subgroup) < 4 or not transforms.layout.is_reshape:
        return None
    index, representatives = np.asarray(transforms.index), []
    seen: set[int] = set()
    for g in range(len(table)):
        if g not in seen:
            representatives.append(g)
            seen.update(int(table[v, g]) for v in subgroup)
    products = np.array([[table[v, c] for v in subgroup] for c in representatives])
    orbits = np.flatnonzero(index[subgroup].min(axis=0) == np.arange(index.shape[1]))
    columns = index[subgroup][:, orbits]
    return Fold(
        jnp.asarray(index[products][:, :, orbits]),
        jnp.asarray(columns),
        jnp.asarray(1.0 / (columns == orbits).sum(axis=0), jnp.float32),
        jnp.asarray(np.argsort(products.T.ravel()), jnp.int32),
    )


def _largest_elementary_subgroup(table: Int[np.ndarray, "g g"]) -> list[int]:
    """Commuting involutions, greedily from every start; element i is the product of i's bits."""
    involutions = [g for g in range(1, len(table)) if table[g, g] == 0]
    best = [0]
    for start in involutions:
        subgroup = [0]
        for g in [start, *involutions]:
            if g not in subgroup and all(table[g, h] == table[h, g] for h in subgroup):
                subgroup += [int(table[h, g]) for h in subgroup]
        best = subgroup if len(subgroup) > len(best) else best
    return best
