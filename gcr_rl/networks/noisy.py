"""Noisy linear layers (Fortunato et al. 2018, arXiv:1706.10295), factorised.

Noise is data: a vector of standard normals turns a network with noisy layers into a plain one,
once per update or step and outside the vmap over a batch. No noise gives the mean network.
"""

from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, UInt32

NetworkT = TypeVar("NetworkT")


class Affine(eqx.Module):
    """x -> W x + b, with weights that are given."""

    weight: Float[Array, "out in"]
    bias: Float[Array, " out"]

    def __call__(self, x: Float[Array, " in"]) -> Float[Array, " out"]:
        """W x + b."""
        return self.weight @ x + self.bias


class NoisyLinear(eqx.Module):
    """y = (M + S * f(e_out) f(e_in)^T) x + m + s * f(e_out), with f(e) = sign(e) sqrt(|e|).

    M, m begin uniform in ±1/sqrt(fan-in), S and s at ``sigma`` / sqrt(fan-in).
    """

    weight: Float[Array, "out in"]
    weight_scale: Float[Array, "out in"]
    bias: Float[Array, " out"]
    bias_scale: Float[Array, " out"]

    def __init__(self, size: int, out: int, sigma: float = 0.5, *, key: PRNGKeyArray):
        weight_key, bias_key = jax.random.split(key)
        bound = size**-0.5
        self.weight = jax.random.uniform(weight_key, (out, size), minval=-bound, maxval=bound)
        self.bias = jax.random.uniform(bias_key, (out,), minval=-bound, maxval=bound)
        self.weight_scale = jnp.full((out, size), sigma * bound, jnp.float32)
        self.bias_scale = jnp.full((out,), sigma * bound, jnp.float32)

    @property
    def noise_size(self) -> int:
        """Normals that one draw needs: one per input and one per output."""
        return sum(self.weight.shape)

    def realised(self, noise: Float[Array, " size"] | None) -> Affine:
        """The layer under given standard normals, inputs first; its mean for None."""
        if noise is None:
            return Affine(self.weight, self.bias)
        return self.scaled(factor(noise))

    def scaled(self, factors: Float[Array, " size"]) -> Affine:
        """The layer under given factors f(e), inputs first."""
        rows, columns = factors[self.weight.shape[1] :], factors[: self.weight.shape[1]]
        return Affine(
            self.weight + self.weight_scale * jnp.outer(rows, columns),
            self.bias + self.bias_scale * rows,
        )

    def __call__(self, x: Float[Array, " in"]) -> Float[Array, " out"]:
        """The mean layer: M x + m."""
        return self.realised(None)(x)


def factor(noise: Float[Array, " size"]) -> Float[Array, " size"]:
    """f(e) = sign(e) sqrt(|e|)."""
    return jnp.sign(noise) * jnp.sqrt(jnp.abs(noise))


def _is_noisy(node: Any) -> bool:
    return isinstance(node, NoisyLinear)


def noise_size(network: Any) -> int:
    """Normals that one draw of all noisy layers of a network needs; 0 where there are none."""
    layers = jax.tree.leaves(network, is_leaf=_is_noisy)
    return sum(layer.noise_size for layer in layers if _is_noisy(layer))


def realise(network: NetworkT, noise: Float[Array, " size"] | None) -> NetworkT:
    """The network with every noisy layer replaced by the plain one that ``noise`` makes of it.

    ``noise`` holds ``noise_size(network)`` standard normals; None gives the means.
    """
    return _layer_by_layer(network, noise, NoisyLinear.realised)


def shaken(network: NetworkT, factors: Float[Array, " size"] | None) -> NetworkT:
    """A network, or its parameters, in its own structure: the means of the noisy layers become
    what ``noise_size(network)`` factors f(e) make of them; None changes nothing."""

    def moved(layer: NoisyLinear, part: Float[Array, " size"]) -> NoisyLinear:
        drawn = layer.scaled(part)
        return eqx.tree_at(lambda x: (x.weight, x.bias), layer, (drawn.weight, drawn.bias))

    return network if factors is None else _layer_by_layer(network, factors, moved)


def _layer_by_layer(network: NetworkT, noise: Array | None, change: Any) -> NetworkT:
    """Every noisy layer changed by its own part of the noise."""
    used = 0

    def replaced(node: Any) -> Any:
        nonlocal used
        if not _is_noisy(node):
            return node
        first, used = used, used + node.noise_size
        return change(node, None if noise is None else noise[first:used])

    return jax.tree.map(replaced, network, is_leaf=_is_noisy)


def factors_of(words: UInt32[Array, " n"]) -> Float[Array, " n"]:
    """f(e) for a standard normal e from each random word, by its inverse distribution function.

    The words' 23 leading bits count, so no normal is farther out than 5.2.
    """

    def factors(part: UInt32[Array, "..."]) -> Float[Array, "..."]:
        share = ((part >> 9).astype(jnp.float32) + 0.5) * 2.0**-23
        return factor(jnp.sqrt(2.0) * jax.lax.erf_inv(2.0 * share - 1.0))

    def in_a_loop(part: UInt32[Array, " n"]) -> Float[Array, " n"]:
        halves = jnp.pad(part, (0, part.shape[0] % 2)).reshape(2, -1)
        return jax.lax.map(factors, halves).reshape(-1)[: part.shape[0]]

    # On the CPU a factor, and its word, would be computed anew for every weight that it moves:
    # the compiler fuses all of it but a loop. Rainbow's update took 3.5 times as long, measured.
    return jax.lax.platform_dependent(words, cpu=in_a_loop, default=factors)


def realise_by_key(network: NetworkT, key: PRNGKeyArray) -> NetworkT:
    """``realise`` with normals drawn from a key."""
    return realise(network, jax.random.normal(key, (noise_size(network),)))
