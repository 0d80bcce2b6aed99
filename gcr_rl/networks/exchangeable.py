"""A network that is told which tiles of a picture may be exchanged, and that action i belongs to
tile i: equivariant under all permutations of them (deep sets: Zaheer et al. 2017,
arXiv:1703.06114)."""

from typing import Final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray, Shaped

from gcr_rl.envs.button_tiles import BUTTON_ROW, BUTTONS
from gcr_rl.errors import InputError
from gcr_rl.networks.dueling import Stream
from gcr_rl.networks.encoders import MLPEncoder

BUTTON_PLACES: Final = tuple((BUTTON_ROW, column) for column in range(BUTTONS))
"""(row, column) of ButtonPermutation's buttons, in tiles; action i presses button i."""


def tile_pixels(
    shape: tuple[int, ...], tile_size: int, places: tuple[tuple[int, int], ...]
) -> tuple[Int[np.ndarray, "tiles width"], Int[np.ndarray, " rest"]]:
    """The flat positions of each tile's numbers, and those of everything else."""
    numbers = np.arange(np.prod(shape)).reshape(shape)
    tiles = np.stack(
        [
            numbers[
                row * tile_size : (row + 1) * tile_size,
                column * tile_size : (column + 1) * tile_size,
            ].ravel()
            for row, column in places
        ]
    )
    return tiles, np.setdiff1d(numbers, tiles)


class ExchangeableNetwork(eqx.Module):
    """Q(o, i) = top(e_i, mean_j e_j, c) with e_i = tower(tile i) and c = context(the rest).

    One tower for all tiles and one top for all actions: exchanging two tiles exchanges the two
    values and changes nothing else.
    """

    tower: MLPEncoder
    context: MLPEncoder
    top: MLPEncoder
    last: Stream
    shape: tuple[int, ...] = eqx.field(static=True)
    tile_size: int = eqx.field(static=True)
    places: tuple[tuple[int, int], ...] = eqx.field(static=True)
    atoms: int | None = eqx.field(static=True)
    scale: float = eqx.field(static=True)

    def __init__(
        self,
        shape: tuple[int, ...],
        hidden: tuple[int, ...],
        *,
        tile_size: int,
        places: tuple[tuple[int, int], ...] = BUTTON_PLACES,
        scale: float = 1.0,
        atoms: int | None = None,
        layer_norm: bool = False,
        key: PRNGKeyArray,
    ):
        rows, columns = (max(place[axis] for place in places) + 1 for axis in (0, 1))
        if len(shape) != 3 or rows * tile_size > shape[0] or columns * tile_size > shape[1]:
            raise InputError(
                "shape", shape,
                f"a picture of at least {rows}x{columns} tiles of {tile_size} pixels",
            )  # fmt: skip
        tower_key, context_key, top_key, last_key = jax.random.split(key, 4)
        tiles, rest = tile_pixels(shape, tile_size, places)
        self.tower = MLPEncoder(tiles.shape[1], hidden, layer_norm, key=tower_key)
        self.context = MLPEncoder(len(rest), hidden, layer_norm, key=context_key)
        self.top = MLPEncoder(3 * hidden[-1], hidden, layer_norm, key=top_key)
        self.last = Stream(hidden[-1], 0, atoms or 1, None, key=last_key)
        self.shape, self.tile_size, self.places = tuple(shape), tile_size, places
        self.atoms, self.scale = atoms, scale

    def features(
        self, observation: Shaped[Array, "height width depth"]
    ) -> Float[Array, " features"]:
        """The features of all tiles' actions, one after the other."""
        return self._tops(observation).ravel()

    def _tops(
        self, observation: Shaped[Array, "height width depth"]
    ) -> Float[Array, "tiles features"]:
        flat = observation.astype(jnp.float32).ravel() * self.scale
        tiles, rest = tile_pixels(self.shape, self.tile_size, self.places)
        each = jax.vmap(self.tower)(flat[tiles])
        shared = jnp.concatenate([jnp.mean(each, axis=0), self.context(flat[rest])])
        return jax.vmap(lambda one: self.top(jnp.concatenate([one, shared])))(each)

    def __call__(
        self, observation: Shaped[Array, "height width depth"]
    ) -> Float[Array, "tiles *atoms"]:
        """Q(o, .) or its logits."""
        outputs = jax.vmap(self.last)(self._tops(observation))
        return outputs[:, 0] if self.atoms is None else outputs
