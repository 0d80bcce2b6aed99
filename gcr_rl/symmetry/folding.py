"""Cheap first layers: W T_g o for all g of a vocabulary without |G| full products.

Let V = C2^k be a subgroup of commuting involutions and c run over its right cosets, so that
every element is T_v T_c. On the V-orbits m of the blocks, with the real characters χ of V,

    y_χ[c, m] = sum_u χ(u) (T_u T_c o)[m],    W_χ[m] = sum_u χ(u) W[u m] / (|V| |Stab(m)|),
    W T_v T_c o = sum_χ χ(v) W_χ y_χ[c],

so |V| images cost one product instead of |V|: two instead of eight for D4 on a square.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Shaped

from gcr_rl.symmetry.transforms import BlockGather
from gcr_rl.symmetry.vocabulary import Vocabulary

_BYTES = 128
"""So many bytes add up to less than the largest number of 16 bits."""


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

    points: Int[Array, "v cosets orbits"]
    """(T_v T_c o)[m] = o[points[v, c, m]]."""
    columns: Int[Array, "v orbits"]
    """u m: the block that T_u reads at m."""
    multiplicity: Float[Array, " orbits"]
    """1 / (|V| |Stab(m)|)."""
    source: Int[Array, " blocks"]
    """Where block j stands among ``columns``, once for each block."""
    place: Int[Array, " g"]
    """Where element g of the vocabulary stands in the order (v, c)."""

    def images(
        self, weight: Float[Array, "hidden inputs"], rows: Shaped[Array, "blocks width"]
    ) -> Float[Array, "g hidden"]:
        """weight @ ravel(T_g o) for every element g of the vocabulary, ``rows`` being o, in the
        order (v, c): element g is at ``place[g]``."""
        hidden, (order, cosets, _) = weight.shape[0], self.points.shape
        weight_rows = weight.T.reshape(*rows.shape, hidden)
        folded_weight = _folded(weight_rows, self.columns, self.multiplicity, self.source)
        # Bytes are read and added as whole numbers: less to move, and exact.
        in_bytes = rows.dtype == jnp.uint8 and order <= _BYTES
        read = rows[self.points].astype(jnp.int16 if in_bytes else weight.dtype)
        values = _characters_sum(read).astype(weight.dtype)
        product = jnp.einsum(
            "xcn,xnh->xch",
            values.reshape(order, cosets, -1),
            folded_weight.reshape(order, -1, hidden),
        )
        return _characters_sum(product).reshape(order * cosets, hidden)


@jax.custom_vjp
def _folded(
    weight_rows: Float[Array, "blocks width hidden"],
    columns: Int[Array, "v orbits"],
    multiplicity: Float[Array, " orbits"],
    source: Int[Array, " blocks"],
) -> Float[Array, "v orbits width hidden"]:
    """W_χ[m].

    Backwards a gather and not the scatter that the gather's own transpose is: y_χ[m] = 0 unless
    χ is 1 on Stab(m), so sum_χ χ(u) dW_χ[m] is the same for every u that leads to one block, and
    the |Stab(m)| of them over |Stab(m)| are any one of them.
    """
    return _characters_sum(weight_rows[columns] * multiplicity[:, None, None])


def _folded_forward(weight_rows: Any, columns: Any, multiplicity: Any, source: Any) -> Any:
    return _folded(weight_rows, columns, multiplicity, source), source


def _folded_backward(source: Any, change: Any) -> tuple[Any, None, None, None]:
    spread = _characters_sum(change) / len(change)
    return spread.reshape(-1, *spread.shape[2:])[source], None, None, None


_folded.defvjp(_folded_forward, _folded_backward)


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
        jnp.asarray(np.swapaxes(index[products][:, :, orbits], 0, 1)),
        jnp.asarray(columns),
        jnp.asarray(1.0 / len(subgroup) / (columns == orbits).sum(axis=0), jnp.float32),
        jnp.asarray(np.unique(columns, return_index=True)[1], jnp.int32),
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
