"""Random bits for one step of a stream, as one fused kernel.

On the CPU, JAX lowers each draw to a loop of small kernels, which costs more than a small
network's forward pass. Written out, the same generator (Threefry-2x32, 20 rounds, Salmon et
al. 2011) fuses into its consumer. Twins, bit for bit: ``folded_bits`` of
``bits(fold_in(key, data), shape)`` and ``folded_keys`` of ``split(fold_in(key, data), shape)``.
"""

import math

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray, UInt32

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = 0x1BD11BDA

Pair = tuple[UInt32[Array, "..."], UInt32[Array, "..."]]


def threefry(key: Pair, counter: Pair) -> Pair:
    """Threefry-2x32 with 20 rounds: a counter's two words, hashed under a key's two words."""
    schedule = (key[0], key[1], key[0] ^ key[1] ^ jnp.uint32(_PARITY))
    x, y = counter[0] + schedule[0], counter[1] + schedule[1]
    for group in range(5):
        for rotation in _ROTATIONS[group % 2]:
            x = x + y
            y = x ^ ((y << rotation) | (y >> (32 - rotation)))
        x = x + schedule[(group + 1) % 3]
        y = y + schedule[(group + 2) % 3] + jnp.uint32(group + 1)
    return x, y


def _folded(key: PRNGKeyArray, data: Int[Array, ""]) -> Pair:
    """The two words of ``fold_in(key, data)``."""
    words = jax.random.key_data(key)
    return threefry((words[0], words[1]), (jnp.uint32(0), jnp.asarray(data).astype(jnp.uint32)))


def _hashed_counters(key: Pair, shape: tuple[int, ...]) -> Pair:
    counter = jnp.arange(math.prod(shape), dtype=jnp.uint32).reshape(shape)
    return threefry(key, (jnp.zeros_like(counter), counter))


def folded_bits(
    key: PRNGKeyArray, data: Int[Array, ""], shape: tuple[int, ...]
) -> UInt32[Array, "*shape"]:
    """``jax.random.bits(jax.random.fold_in(key, data), shape)``."""
    high, low = _hashed_counters(_folded(key, data), shape)
    return high ^ low


def folded_uniform(
    key: PRNGKeyArray, data: Int[Array, ""], shape: tuple[int, ...]
) -> Float[Array, "*shape"]:
    """``jax.random.uniform(jax.random.fold_in(key, data), shape)``: float32 in [0, 1)."""
    mantissa = folded_bits(key, data, shape) >> 9
    return jax.lax.bitcast_convert_type(mantissa | jnp.uint32(0x3F800000), jnp.float32) - 1.0


def folded_keys(key: PRNGKeyArray, data: Int[Array, ""], shape: tuple[int, ...]) -> PRNGKeyArray:
    """``jax.random.split(jax.random.fold_in(key, data), shape)``."""
    words = jnp.stack(_hashed_counters(_folded(key, data), shape), axis=-1)
    return jax.random.wrap_key_data(words, impl=jax.random.key_impl(key))
