"""The value network: observation -> Q(observation, .)."""

import math
from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, Shaped

from gcr_rl.config import NetworkConfig
from gcr_rl.errors import InputError
from gcr_rl.networks.encoders import CNNEncoder, MLPEncoder


@dataclass(frozen=True)
class ObservationSpec:
    """What a network must know of an observation: its shape, its type, its largest value."""

    shape: tuple[int, ...]
    dtype: str
    scale: float = 1.0
    """Observations are multiplied by this before the first layer (1/255 for RGB)."""


class QNetwork(eqx.Module):
    """Q(o, .) = head(encoder(scale * o)), unbatched."""

    encoder: MLPEncoder | CNNEncoder
    head: eqx.nn.Linear
    scale: float = eqx.field(static=True)

    def features(self, observation: Shaped[Array, "..."]) -> Float[Array, " features"]:
        """The representation f(o) that the head reads."""
        x = observation.astype(jnp.float32)
        return self.encoder(x if self.scale == 1.0 else x * self.scale)

    def __call__(self, observation: Shaped[Array, "..."]) -> Float[Array, " actions"]:
        """Q(o, .)."""
        return self.head(self.features(observation))


def make_q_network(
    config: NetworkConfig, spec: ObservationSpec, num_actions: int, *, key: PRNGKeyArray
) -> QNetwork:
    """Build the network that ``config`` names for observations like ``spec``."""
    encoder_key, head_key = jax.random.split(key)
    kind = config.encoder
    if kind == "auto":
        # Planes with values 0 and 1 are small grids; real pictures are scaled by 1/255.
        kind = "cnn" if len(spec.shape) == 3 and spec.scale != 1.0 else "mlp"
    encoder: MLPEncoder | CNNEncoder
    if kind == "cnn":
        if len(spec.shape) != 3:
            raise InputError(
                "network.encoder", kind,
                f"mlp, because observations have shape {spec.shape}, not (height, width, channels)",
            )  # fmt: skip
        height, width, depth = spec.shape
        encoder = CNNEncoder(
            (height, width, depth),
            config.channels,
            config.strides,
            config.hidden,
            key=encoder_key,
        )
    else:
        encoder = MLPEncoder(math.prod(spec.shape), config.hidden, key=encoder_key)
    head = eqx.nn.Linear(config.hidden[-1], num_actions, key=head_key)
    return QNetwork(encoder, head, spec.scale)
