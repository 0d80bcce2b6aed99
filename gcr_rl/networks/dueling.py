"""Heads: features -> Q(o, .), or the logits of its distribution; plain or dueling, noisy or not.

Every head maps features to [actions], or to [actions, atoms] where ``atoms`` is given. The
dueling form is that of Wang et al. 2016 (arXiv:1511.06581); with atoms, Rainbow's (Hessel et
al. 2018, arXiv:1710.02298).
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from gcr_rl.errors import InputError
from gcr_rl.networks.noisy import NoisyLinear

Layer = eqx.nn.Linear | NoisyLinear


def linear(size: int, out: int, sigma: float | None, *, key: PRNGKeyArray) -> Layer:
    """A linear layer, noisy with initial scale ``sigma`` unless that is None."""
    if sigma is None:
        return eqx.nn.Linear(size, out, key=key)
    return NoisyLinear(size, out, sigma, key=key)


class Stream(eqx.Module):
    """Linear, or linear - ReLU - linear where it has a hidden layer."""

    layers: tuple[Layer, ...]

    def __init__(self, size: int, hidden: int, out: int, sigma: float | None, *, key: PRNGKeyArray):
        first, last = jax.random.split(key)
        if hidden == 0:
            self.layers = (linear(size, out, sigma, key=last),)
        else:
            self.layers = (
                linear(size, hidden, sigma, key=first),
                linear(hidden, out, sigma, key=last),
            )

    def __call__(self, x: Float[Array, " features"]) -> Float[Array, " out"]:
        """The stream's output."""
        for layer in self.layers[:-1]:
            x = jax.nn.relu(layer(x))
        return self.layers[-1](x)


class PlainHead(eqx.Module):
    """One output (or one per atom) for each action."""

    stream: Stream
    shape: tuple[int, ...] = eqx.field(static=True)

    def __call__(self, features: Float[Array, " features"]) -> Float[Array, "actions *atoms"]:
        """Q(o, .) or its logits."""
        return self.stream(features).reshape(self.shape)


class DuelingHead(eqx.Module):
    """Q(o, a) = V(o) + A(o, a) - mean_b A(o, b); with atoms the same of logits, atom by atom."""

    value: Stream
    advantage: Stream
    shape: tuple[int, ...] = eqx.field(static=True)

    def __call__(self, features: Float[Array, " features"]) -> Float[Array, "actions *atoms"]:
        """Q(o, .) or its logits."""
        advantage = self.advantage(features).reshape(self.shape)
        value = self.value(features).reshape(1, *self.shape[1:])
        return value + advantage - jnp.mean(advantage, axis=0, keepdims=True)


def make_head(
    size: int,
    num_actions: int,
    *,
    dueling: bool = False,
    atoms: int | None = None,
    sigma: float | None = None,
    hidden: int = 0,
    key: PRNGKeyArray,
) -> PlainHead | DuelingHead:
    """A head for features of width ``size``; the parts of Rainbow's are switched one by one.

    ``atoms`` None gives values, else logits of a distribution; ``sigma`` None gives plain
    layers, else noisy ones of that initial scale; ``hidden`` is the width of a hidden layer in
    each stream, 0 for none.
    """
    if atoms is not None and atoms < 2:
        raise InputError("atoms", atoms, "None, or at least 2")
    shape = (num_actions,) if atoms is None else (num_actions, atoms)
    value_key, advantage_key = jax.random.split(key)
    advantage = Stream(size, hidden, num_actions * (atoms or 1), sigma, key=advantage_key)
    if not dueling:
        return PlainHead(advantage, shape)
    return DuelingHead(Stream(size, hidden, atoms or 1, sigma, key=value_key), advantage, shape)
