"""Layers that are told a finite group: baselines for methods that have to find it.

Features carry the regular representation, [channels, |G|]: an observation's transform T_k moves
feature g to place k g. The layers here commute with that, so that exactly, up to rounding,

    Q(T_g o, relabel[g, a]) = Q(o, a).
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray, Shaped

from gcr_rl.envs import dihedral
from gcr_rl.networks.encoders import rectified


@dataclass(frozen=True)
class FiniteGroup:
    """``table[g][h]`` is the element T_g T_h, element 0 the identity; ``relabel[g][a]`` the
    action at T_g o that does what a does at o."""

    table: tuple[tuple[int, ...], ...]
    relabel: tuple[tuple[int, ...], ...]

    @property
    def order(self) -> int:
        """|G|."""
        return len(self.table)

    @cached_property
    def inverse(self) -> Int[np.ndarray, " g"]:
        """The inverse of each element."""
        return np.argmin(np.asarray(self.table), axis=1)

    @cached_property
    def quotients(self) -> Int[np.ndarray, "g h"]:
        """``[g, h]``: the element g^-1 h."""
        return np.asarray(self.table)[self.inverse]

    @cached_property
    def returned(self) -> Int[np.ndarray, "g actions"]:
        """``[g, a]``: the action g^-1 a."""
        return np.asarray(self.relabel)[self.inverse]

    @property
    def num_actions(self) -> int:
        """Actions that the group relabels."""
        return len(self.relabel[0])


def dihedral_group(elements: tuple[int, ...] = tuple(range(8))) -> FiniteGroup:
    """The rotations and mirror images of a square, with what they do to up, down, left, right.

    ``elements`` may name a subgroup: range(4) are the rotations, (0, 4) the mirror image.
    """
    place = {element: number for number, element in enumerate(elements)}
    table = dihedral.composition()
    return FiniteGroup(
        tuple(tuple(place[int(table[g, h])] for h in elements) for g in elements),
        tuple(tuple(dihedral.relabelling(g).tolist()) for g in elements),
    )


SIGN = FiniteGroup(((0, 1), (1, 0)), ((0, 1), (1, 0)))
"""o -> -o, which exchanges two actions: CartPole's."""


def matched_channels(width: int, group: FiniteGroup) -> int:
    """Channels per element such that a layer has as many weights as a plain one of ``width``.

    A map between c and c channels has c^2 |G| weights, so c = width / sqrt(|G|).
    """
    return max(1, round(width / group.order**0.5))


def uniform_weights(
    key: PRNGKeyArray, shape: tuple[int, ...], fan_in: int
) -> Float[Array, "*shape"]:
    """Uniform in ±1/sqrt(fan-in), as plain layers begin."""
    bound = fan_in**-0.5
    return jax.random.uniform(key, shape, minval=-bound, maxval=bound)


class Lift(eqx.Module):
    """F[c, g] = (T_g w_c) . o + b_c: observation -> regular features, fully connected.

    ``images`` gives T_g w for all g: weights [channels, *shape] -> [|G|, channels, *shape]. It
    is compared and hashed with the network: a function, or a frozen dataclass.
    """

    weight: Float[Array, "channels *shape"]
    bias: Float[Array, " channels"]
    images: Callable[[Array], Array] = eqx.field(static=True)

    def __init__(
        self,
        shape: tuple[int, ...],
        channels: int,
        images: Callable[[Array], Array],
        *,
        key: PRNGKeyArray,
    ):
        weight_key, bias_key = jax.random.split(key)
        fan_in = int(np.prod(shape))
        self.weight = uniform_weights(weight_key, (channels, *shape), fan_in)
        self.bias = uniform_weights(bias_key, (channels,), fan_in)
        self.images = images

    def __call__(self, x: Float[Array, "*shape"]) -> Float[Array, "channels g"]:
        """The features."""
        return jnp.tensordot(self.images(self.weight), x, axes=x.ndim).T + self.bias[:, None]


class GroupLinear(eqx.Module):
    """F'[c, g] = sum_{i, h} w[c, i, g^-1 h] F[i, h] + b_c: regular -> regular features."""

    weight: Float[Array, "channels in g"]
    bias: Float[Array, " channels"]
    group: FiniteGroup = eqx.field(static=True)

    def __init__(self, size: int, channels: int, group: FiniteGroup, *, key: PRNGKeyArray):
        weight_key, bias_key = jax.random.split(key)
        fan_in = size * group.order
        self.weight = uniform_weights(weight_key, (channels, size, group.order), fan_in)
        self.bias = uniform_weights(bias_key, (channels,), fan_in)
        self.group = group

    def __call__(self, x: Float[Array, "in g"]) -> Float[Array, "channels g"]:
        """The features."""
        # The weights are spread out once; under vmap the product is one matrix product.
        spread = self.weight[:, :, self.group.quotients]  # [channels, in, g, h]
        channels, size, order, _ = spread.shape
        matrix = spread.transpose(0, 2, 1, 3).reshape(channels * order, size * order)
        return (matrix @ x.ravel()).reshape(channels, order) + self.bias[:, None]


class ActionHead(eqx.Module):
    """Q[a] = sum_{c, h} w[c, h^-1 a] F[c, h] + mean_g b[g a]: regular features -> actions.

    With ``atoms`` every action has that many outputs, logits of a distribution.
    """

    weight: Float[Array, "in actions *atoms"]
    bias: Float[Array, "actions *atoms"]
    group: FiniteGroup = eqx.field(static=True)

    def __init__(
        self, size: int, group: FiniteGroup, atoms: int | None = None, *, key: PRNGKeyArray
    ):
        weight_key, bias_key = jax.random.split(key)
        fan_in = size * group.order
        outputs = (group.num_actions,) if atoms is None else (group.num_actions, atoms)
        self.weight = uniform_weights(weight_key, (size, *outputs), fan_in)
        self.bias = uniform_weights(bias_key, outputs, fan_in)
        self.group = group

    def __call__(self, x: Float[Array, "in g"]) -> Float[Array, "actions *atoms"]:
        """Q(o, .) or its logits."""
        spread = self.weight[:, self.group.returned]  # [in, h, actions, *atoms]
        bias = jnp.mean(self.bias[np.asarray(self.group.relabel)], axis=0)
        return jnp.tensordot(x, spread, axes=2) + bias


class RegularMLP(eqx.Module):
    """ReLU and a group-linear layer, alternating; begins and ends with ReLU."""

    layers: tuple[GroupLinear, ...]
    layer_norm: bool = eqx.field(static=True)

    def __init__(
        self,
        size: int,
        channels: tuple[int, ...],
        group: FiniteGroup,
        layer_norm: bool = False,
        *,
        key: PRNGKeyArray,
    ):
        sizes = (size, *channels)
        keys = jax.random.split(key, max(len(channels), 1))
        self.layers = tuple(
            GroupLinear(i, o, group, key=k)
            for i, o, k in zip(sizes[:-1], sizes[1:], keys, strict=False)
        )
        self.layer_norm = layer_norm

    def __call__(self, x: Float[Array, "in g"]) -> Float[Array, "channels g"]:
        """The features."""
        x = rectified(x, self.layer_norm)
        for layer in self.layers:
            x = rectified(layer(x), self.layer_norm)
        return x


def signed_images(weight: Float[Array, "channels *shape"]) -> Float[Array, "2 channels *shape"]:
    """w and -w: the images under o -> -o."""
    return jnp.stack([weight, -weight])


class SignNetwork(eqx.Module):
    """Q(-o, 1 - a) = Q(o, a) on vectors. The sum over the two places of a feature is an even
    function of o, the difference an odd one: the first makes V, the second Q_0 - Q_1."""

    lift: Lift
    mlp: RegularMLP
    head: ActionHead
    scale: float = eqx.field(static=True)

    def __init__(
        self,
        size: int,
        hidden: tuple[int, ...],
        *,
        scale: float = 1.0,
        atoms: int | None = None,
        layer_norm: bool = False,
        key: PRNGKeyArray,
    ):
        lift_key, mlp_key, head_key = jax.random.split(key, 3)
        channels = tuple(matched_channels(width, SIGN) for width in hidden)
        self.lift = Lift((size,), channels[0], signed_images, key=lift_key)
        self.mlp = RegularMLP(channels[0], channels[1:], SIGN, layer_norm, key=mlp_key)
        self.head = ActionHead(channels[-1], SIGN, atoms, key=head_key)
        self.scale = scale

    def features(self, observation: Shaped[Array, " size"]) -> Float[Array, " features"]:
        """The regular features that the head reads, flat."""
        return self._regular(observation).ravel()

    def _regular(self, observation: Shaped[Array, " size"]) -> Float[Array, "channels 2"]:
        return self.mlp(self.lift(observation.astype(jnp.float32) * self.scale))

    def __call__(self, observation: Shaped[Array, " size"]) -> Float[Array, "2 *atoms"]:
        """Q(o, .) or its logits."""
        return self.head(self._regular(observation))
