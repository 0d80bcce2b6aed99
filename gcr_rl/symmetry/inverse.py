"""The inverse-dynamics head: which action led from o to o'? It has an encoder of its own.

One shared layer reads windows of the pair (o, o') and the maximum over the windows is read out:
p(a | o, o') = softmax(W max_m relu(V x_m + v) + w).
On grids and images x_m are the 3x3 windows around cells that changed, so this is a single
convolution with max-pooling that skips cells where nothing happened, and what one place teaches
holds everywhere. A vector has one window, (o, o' - o): a perceptron with one hidden layer.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, Shaped

from gcr_rl.symmetry.padding import padded_size

MAX_WINDOWS = 8
"""Changed cells that are read; more of them are thinned out evenly."""


class Windows(NamedTuple):
    """Inputs of the head; ``mask`` is False at places without a window."""

    content: Float[np.ndarray, "n windows width"]
    mask: Bool[np.ndarray, "n windows"]


class Head(NamedTuple):
    """The weights V, v, W, w."""

    encoder: Float[Array, "width hidden"]
    encoder_bias: Float[Array, " hidden"]
    readout: Float[Array, "hidden actions"]
    readout_bias: Float[Array, " actions"]


class Scaling(NamedTuple):
    """Standardisation of vectors: (o - centre) / spread and (o' - o) / change."""

    centre: Float[np.ndarray, " d"]
    spread: Float[np.ndarray, " d"]
    change: Float[np.ndarray, " d"]


def scaling(
    observation: Shaped[np.ndarray, "n d"], following: Shaped[np.ndarray, "n d"]
) -> Scaling:
    """Mean and standard deviation of a sample; coordinates that never vary are divided by 1."""
    spread, change = observation.std(axis=0), (following - observation).std(axis=0)
    return Scaling(
        observation.mean(axis=0),
        np.where(spread > 0, spread, 1.0),
        np.where(change > 0, change, 1.0),
    )


def vector_windows(
    observation: Shaped[np.ndarray, "n d"], following: Shaped[np.ndarray, "n d"], scale: Scaling
) -> Windows:
    """One window per transition: the standardised (o, o' - o)."""
    parts = [(observation - scale.centre) / scale.spread, (following - observation) / scale.change]
    content = np.concatenate(parts, axis=1).astype(np.float32)[:, None]
    return Windows(content, np.ones(content.shape[:2], bool))


def grid_windows(
    observation: Shaped[np.ndarray, "n h w *c"], following: Shaped[np.ndarray, "n h w *c"]
) -> Windows:
    """3x3 windows of (o, o') around changed cells; a last channel marks what lies outside."""
    before, after = (o.reshape(*o.shape[:3], -1) for o in (observation, following))
    changed = np.zeros(before.shape[:3], bool)
    for c in range(before.shape[3]):  # a short axis is slow to reduce
        changed |= before[..., c] != after[..., c]
    places, mask = _changed_places(changed.reshape(len(changed), -1))
    count, height, width = before.shape[:3]
    scale = max(float(np.abs(observation).max(initial=0)), 1.0)
    row = places[..., None] // width + np.repeat(np.arange(-1, 2), 3)
    column = places[..., None] % width + np.tile(np.arange(-1, 2), 3)
    outside = (row < 0) | (row >= height) | (column < 0) | (column >= width)
    number = np.arange(count)[:, None, None]
    row, column = np.clip(row, 0, height - 1), np.clip(column, 0, width - 1)
    parts = [
        np.where(outside[..., None], 0.0, o[number, row, column].astype(np.float32) / scale)
        for o in (before, after)
    ]
    content = np.concatenate([*parts, outside[..., None]], axis=-1).astype(np.float32)
    return Windows(content.reshape(count, places.shape[1], -1), mask)


def _changed_places(
    changed: Bool[np.ndarray, "n cells"],
) -> tuple[Int[np.ndarray, "n windows"], Bool[np.ndarray, "n windows"]]:
    """Up to MAX_WINDOWS changed cells per row, evenly thinned; few windows where few changed."""
    total = changed.sum(axis=1)
    most = min(int(total.max(initial=1)), MAX_WINDOWS)
    size = padded_size(most)
    first = np.cumsum(total) - total
    step = np.maximum(total, size)[:, None] / size
    pick = (np.arange(size) * step).astype(int)
    mask = pick < total[:, None]
    cells = np.append(np.nonzero(changed)[1], 0)
    return cells[np.where(mask, first[:, None] + pick, -1)], mask


def turned(windows: Windows, order: Int[np.ndarray, "9"]) -> Windows:
    """The windows of an image under a rotation or reflection that shows place order[d] at d."""
    count, number, width = windows.content.shape
    places = windows.content.reshape(count, number, 9, width // 9)[:, :, order]
    return Windows(places.reshape(count, number, width), windows.mask)


def logits(
    head: Head, content: Float[Array, "windows width"], mask: Bool[Array, " windows"]
) -> Float[Array, " actions"]:
    """W max_m relu(V x_m + v) + w; the maximum over no window is 0."""
    hidden = jax.nn.relu(content @ head.encoder + head.encoder_bias)
    pooled = jnp.max(jnp.where(mask[:, None], hidden, 0.0), axis=0)
    return pooled @ head.readout + head.readout_bias


def fit(
    key: PRNGKeyArray,
    windows: Windows,
    action: Int[np.ndarray, " n"],
    num_actions: int,
    hidden: int = 48,
    steps: int = 400,
) -> Head:
    """min over heads of the mean cross-entropy of a, by Adam on minibatches of 128."""
    count = len(action)
    size = max(2048, padded_size(count))
    pad = np.arange(size) % count
    content, mask = jnp.asarray(windows.content[pad]), jnp.asarray(windows.mask[pad])
    target = jnp.asarray(action[pad], jnp.int32)
    return _fit(key, content, mask, target, num_actions, hidden, steps)


@partial(jax.jit, static_argnums=(4, 5, 6))
def _fit(
    key: PRNGKeyArray,
    content: Float[Array, "n windows width"],
    mask: Bool[Array, "n windows"],
    action: Int[Array, " n"],
    num_actions: int,
    hidden: int,
    steps: int,
) -> Head:
    first_key, second_key, batch_key = jax.random.split(key, 3)
    width = content.shape[-1]
    head = Head(
        jax.random.normal(first_key, (width, hidden)) * (2.0 / width) ** 0.5,
        jnp.zeros(hidden),
        jax.random.normal(second_key, (hidden, num_actions)) * hidden**-0.5,
        jnp.zeros(num_actions),
    )
    optimiser = optax.adamw(optax.cosine_decay_schedule(1e-2, steps), weight_decay=1e-4)

    def loss(head: Head, batch: Int[Array, " batch"]) -> Float[Array, ""]:
        values = jax.vmap(logits, (None, 0, 0))(head, content[batch], mask[batch])
        return optax.softmax_cross_entropy_with_integer_labels(values, action[batch]).mean()

    def step(carry: tuple[Head, optax.OptState], key: PRNGKeyArray) -> tuple[tuple, None]:
        head, state = carry
        batch = jax.random.randint(key, (128,), 0, len(action))
        change, state = optimiser.update(jax.grad(loss)(head, batch), state, head)
        return (optax.apply_updates(head, change), state), None

    start = (head, optimiser.init(head))
    return lax.scan(step, start, jax.random.split(batch_key, steps))[0][0]


def probabilities(head: Head, windows: Windows) -> Float[np.ndarray, "n actions"]:
    """p(a | o, o') on the host: a few small products."""
    encoder, encoder_bias, readout, readout_bias = (np.asarray(part) for part in head)
    count, number, width = windows.content.shape
    flat = windows.content.reshape(-1, width) @ encoder + encoder_bias  # one product, not n
    flat[~windows.mask.reshape(-1)] = 0.0
    hidden = np.maximum(flat, 0.0, out=flat).reshape(count, number, -1)
    pooled = hidden.max(axis=1) if number > 1 else hidden[:, 0]
    values = pooled @ readout + readout_bias
    chances = np.exp(values - values.max(axis=1, keepdims=True))
    return np.asarray(chances / chances.sum(axis=1, keepdims=True))
