"""The value network: observation -> Q(observation, .)."""

import math
from dataclasses import dataclass
from typing import Any, cast

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, Shaped

from gcr_rl.config import NetworkConfig
from gcr_rl.errors import InputError
from gcr_rl.networks.convolutional import make_convolutional
from gcr_rl.networks.dueling import make_head
from gcr_rl.networks.encoders import CNNEncoder, MLPEncoder
from gcr_rl.networks.equivariant import SignNetwork
from gcr_rl.networks.exchangeable import ExchangeableNetwork
from gcr_rl.networks.group_convolution import SquareNetwork, SquareSymmetry
from gcr_rl.sections import TOLD


@dataclass(frozen=True)
class ObservationSpec:
    """What a network must know of an observation: its shape, its type, its largest value."""

    shape: tuple[int, ...]
    dtype: str
    scale: float = 1.0
    """Observations are multiplied by this before the first layer (1/255 for RGB)."""
    tile_size: int | None = None
    """Pixels per tile, where observations are pictures of tiles."""


class QNetwork(eqx.Module):
    """Q(o, .) = head(encoder(scale * o)), unbatched."""

    encoder: Any
    head: Any
    scale: float = eqx.field(static=True)

    def features(self, observation: Shaped[Array, "..."]) -> Float[Array, " features"]:
        """The representation f(o) that the head reads."""
        x = observation.astype(jnp.float32)
        return self.encoder(x if self.scale == 1.0 else x * self.scale)

    def __call__(self, observation: Shaped[Array, "..."]) -> Float[Array, "actions *atoms"]:
        """Q(o, .), or the logits of its distributions."""
        return self.head(self.features(observation))


def make_q_network(
    config: NetworkConfig,
    spec: ObservationSpec,
    num_actions: int,
    *,
    atoms: int | None = None,
    key: PRNGKeyArray,
) -> Any:
    """Build the network that ``config`` names for observations like ``spec``: a
    :class:`QNetwork`, or one that is told a group, with the same ``features`` and call.

    With ``atoms`` it gives the logits of a distribution for each action, [actions, atoms].
    """
    if config.encoder in TOLD:
        network = told_network(config, spec, atoms, key=key)
        values = eqx.filter_eval_shape(network, jnp.zeros(spec.shape, spec.dtype))
        if values.shape[0] != num_actions:
            raise InputError(
                "network.encoder", config.encoder,
                f"mlp, cnn or another: this one has {values.shape[0]} actions, not {num_actions}",
            )  # fmt: skip
        return network
    encoder_key, head_key = jax.random.split(key)
    encoder = make_encoder(config, spec, key=encoder_key)
    width = config.hidden[-1]
    if not (config.dueling or config.noisy or config.stream or atoms):
        return QNetwork(encoder, eqx.nn.Linear(width, num_actions, key=head_key), spec.scale)
    head = make_head(
        width, num_actions, dueling=config.dueling, atoms=atoms, hidden=config.stream,
        sigma=config.noisy_sigma if config.noisy else None, key=head_key,
    )  # fmt: skip
    return QNetwork(encoder, head, spec.scale)


def make_encoder(config: NetworkConfig, spec: ObservationSpec, *, key: PRNGKeyArray) -> Any:
    """Observation -> features."""
    kind = config.encoder
    if kind == "auto":
        # Planes with values 0 and 1 are small grids; real pictures are scaled by 1/255.
        kind = "cnn" if len(spec.shape) == 3 and spec.scale != 1.0 else "mlp"
    if kind == "mlp":
        return MLPEncoder(math.prod(spec.shape), config.hidden, config.layer_norm, key=key)
    if len(spec.shape) != 3:
        raise InputError(
            "network.encoder", kind,
            f"mlp, because observations have shape {spec.shape}, not (height, width, channels)",
        )  # fmt: skip
    height, width, depth = spec.shape
    shape = (height, width, depth)
    if kind == "cnn":
        return CNNEncoder(
            shape, config.channels, config.strides, config.hidden, config.layer_norm, key=key
        )
    return make_convolutional(cast(Any, kind), shape, config.hidden, config.layer_norm, key=key)


def told_network(
    config: NetworkConfig, spec: ObservationSpec, atoms: int | None = None, *, key: PRNGKeyArray
) -> Any:
    """A network that respects a group which it is told: of signs, of the square, of tiles."""
    hidden, kind = config.hidden, config.encoder
    shared: dict[str, Any] = {
        "scale": spec.scale, "atoms": atoms, "layer_norm": config.layer_norm, "key": key
    }  # fmt: skip
    if kind == "sign":
        if len(spec.shape) != 1:
            raise InputError("network.encoder", kind, f"square: observations are {spec.shape}")
        return SignNetwork(spec.shape[0], hidden, **shared)
    if kind == "tiles":
        if spec.tile_size is None:
            raise InputError("network.encoder", kind, "another: observations have no tiles")
        return ExchangeableNetwork(spec.shape, hidden, tile_size=spec.tile_size, **shared)
    symmetry = SquareSymmetry((0, 1, 2, 3)) if kind == "rotations" else None
    return SquareNetwork(spec.shape, hidden, symmetry=symmetry, **shared)
