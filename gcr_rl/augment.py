"""Random transforms of observations: what RAD (Laskin et al. 2020, arXiv:2004.14990), DrQ-v2
(Yarats et al. 2021, arXiv:2107.09645) and CURL learn from. Actions are left as they are.

Each takes a key and a batch, [batch, height, width, channels] or [batch, size], and draws anew
for every member; the same key makes the same draws. Whole-number pictures keep their type
except where values are mixed (``random_bilinear_shift``).
"""

from collections.abc import Callable
from functools import partial
from typing import Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, Shaped

from gcr_rl.errors import InputError
from gcr_rl.sections import AugmentConfig

Images = Shaped[Array, "batch height width channels"]
Vectors = Float[Array, "batch size"]
Augmentation = Callable[[PRNGKeyArray, Array], Array]
Edge = Literal["zero", "repeat"]


def _need_images(images: Images) -> None:
    if images.ndim != 4:
        raise InputError("images", images.shape, "[batch, height, width, channels]")


def padded(images: Images, margin: int, edge: Edge) -> Images:
    """``margin`` more pixels on every side: zeros, or the outermost ones repeated."""
    pad = ((0, 0), (margin, margin), (margin, margin), (0, 0))
    return jnp.pad(images, pad, mode="edge" if edge == "repeat" else "constant")


def windows(
    images: Images, top: Int[Array, " batch"], left: Int[Array, " batch"], height: int, width: int
) -> Images:
    """From each picture the window of that size whose upper left corner is (top, left)."""

    def cut(image: Array, row: Array, column: Array) -> Array:
        return jax.lax.dynamic_slice(image, (row, column, 0), (height, width, image.shape[2]))

    return jax.vmap(cut)(images, top, left)


def random_crop(key: PRNGKeyArray, images: Images, height: int, width: int) -> Images:
    """A window of that size, its place uniform: RAD's crop. The size changes."""
    _need_images(images)
    batch, tall, wide, _ = images.shape
    if not (1 <= height <= tall and 1 <= width <= wide):
        raise InputError("height, width", (height, width), f"at most ({tall}, {wide})")
    row_key, column_key = jax.random.split(key)
    top = jax.random.randint(row_key, (batch,), 0, tall - height + 1)
    left = jax.random.randint(column_key, (batch,), 0, wide - width + 1)
    return windows(images, top, left, height, width)


def random_translate(key: PRNGKeyArray, images: Images, margin: int, edge: Edge = "zero") -> Images:
    """Moved by whole pixels, uniform in ±margin on both axes; the size stays.

    With zeros at the edge this is RAD's translate, with repeated pixels DrQ's shift.
    """
    _need_images(images)
    return random_crop(key, padded(images, margin, edge), images.shape[1], images.shape[2])


def random_bilinear_shift(
    key: PRNGKeyArray, images: Images, margin: int = 4
) -> Float[Array, "batch height width channels"]:
    """Moved by real amounts, uniform in [-margin, margin] on both axes, with bilinear
    interpolation and repeated edges: DrQ-v2's, as its paper says. (Its published code draws
    whole pixels, where nothing is interpolated: ``random_translate(..., edge="repeat")``.)
    """
    _need_images(images)
    shift = jax.random.uniform(key, (2, images.shape[0]), minval=0.0, maxval=2.0 * margin)
    return shifted_within(images, shift[0] - margin, shift[1] - margin, margin)


def shifted_within(
    images: Images, down: Float[Array, " batch"], right: Float[Array, " batch"], margin: int
) -> Float[Array, "batch height width channels"]:
    """``shifted`` for amounts in [-margin, margin], without its gather of single pixels: a window
    moved by whole pixels, and a mean of neighbours for what is left."""
    height, width = images.shape[1:3]
    around = padded(images, margin + 1, "repeat")
    top, left = margin + 1 - down, margin + 1 - right
    row, column = jnp.floor(top), jnp.floor(left)
    corner = (row.astype(jnp.int32), column.astype(jnp.int32))
    window = windows(around, *corner, height + 1, width + 1).astype(jnp.float32)
    lower, further = ((place - whole).reshape(-1, 1, 1, 1)
                      for place, whole in ((top, row), (left, column)))  # fmt: skip
    tall = window[:, :-1] + lower * (window[:, 1:] - window[:, :-1])
    return tall[:, :, :-1] + further * (tall[:, :, 1:] - tall[:, :, :-1])


def shifted(
    images: Images, down: Float[Array, " batch"], right: Float[Array, " batch"]
) -> Float[Array, "batch height width channels"]:
    """out[y, x] = in[y - down, x - right], bilinear, edges repeated; axis by axis."""

    def along(x: Array, amount: Array, axis: int) -> Array:
        last = x.shape[axis] - 1
        place = jnp.clip(jnp.arange(last + 1) - amount, 0.0, last)
        below = jnp.minimum(place.astype(jnp.int32), max(last - 1, 0))
        part = (place - below)[:, None] if axis == 1 else (place - below)[:, None, None]
        first = jnp.take(x, below, axis=axis)
        return first + part * (jnp.take(x, jnp.minimum(below + 1, last), axis=axis) - first)

    def one(image: Array, vertical: Array, horizontal: Array) -> Array:
        return along(along(image.astype(jnp.float32), vertical, 0), horizontal, 1)

    return jax.vmap(one)(images, down, right)


def _chosen(mask: Bool[Array, " batch"], changed: Array, kept: Array) -> Array:
    return jnp.where(mask.reshape(-1, *[1] * (kept.ndim - 1)), changed, kept)


def random_flip(
    key: PRNGKeyArray, images: Images, axis: Literal["horizontal", "vertical"] = "horizontal"
) -> Images:
    """Mirrored left and right (or up and down) with probability 1/2."""
    _need_images(images)
    mirrored = images[:, :, ::-1] if axis == "horizontal" else images[:, ::-1]
    return _chosen(jax.random.bernoulli(key, 0.5, images.shape[:1]), mirrored, images)


def random_rotate(key: PRNGKeyArray, images: Images) -> Images:
    """Turned by 0, 90, 180 or 270 degrees, uniformly; square pictures only."""
    _need_images(images)
    if images.shape[1] != images.shape[2]:
        raise InputError("images", images.shape, "square pictures")
    turns = jax.random.randint(key, images.shape[:1], 0, 4)
    half = _chosen(turns >= 2, images[:, ::-1, ::-1], images)
    return _chosen(turns % 2 == 1, jnp.rot90(half, axes=(1, 2)), half)


def random_cutout(key: PRNGKeyArray, images: Images, smallest: int, largest: int) -> Images:
    """A rectangle set to 0: sides uniform from ``smallest`` to ``largest``, its place uniform
    among those inside the picture."""
    _need_images(images)
    batch, height, width, _ = images.shape
    if not 0 <= smallest <= largest <= min(height, width):
        raise InputError(
            "smallest, largest", (smallest, largest), f"0 to {min(height, width)}, in this order"
        )
    size_key, place_key = jax.random.split(key)
    side = jax.random.randint(size_key, (2, batch), smallest, largest + 1)
    place = jax.random.uniform(place_key, (2, batch))

    def inside(axis: int, length: int) -> Bool[Array, "batch length"]:
        room = length - side[axis] + 1
        start = jnp.minimum((place[axis] * room).astype(jnp.int32), room - 1)[:, None]
        pixel = jnp.arange(length)
        return (pixel >= start) & (pixel < start + side[axis][:, None])

    cut = inside(0, height)[:, :, None, None] & inside(1, width)[:, None, :, None]
    return jnp.where(cut, jnp.zeros((), images.dtype), images)


def random_amplitude(
    key: PRNGKeyArray, vectors: Vectors, low: float = 0.6, high: float = 1.4
) -> Vectors:
    """s -> z s with one z uniform in [low, high] per vector: RAD's amplitude scaling."""
    scale = jax.random.uniform(key, (vectors.shape[0], 1), minval=low, maxval=high)
    return vectors * scale


def random_noise(key: PRNGKeyArray, vectors: Vectors, deviation: float = 0.1) -> Vectors:
    """s -> s + e with e normal, of that standard deviation: RAD's Gaussian noise."""
    return vectors + deviation * jax.random.normal(key, vectors.shape)


def compose(*parts: Augmentation) -> Augmentation:
    """The parts one after the other, each with a key of its own."""

    def composed(key: PRNGKeyArray, batch: Array) -> Array:
        for number, part in enumerate(parts):
            batch = part(jax.random.fold_in(key, number), batch)
        return batch

    return composed


def make_augmentation(config: AugmentConfig, shape: tuple[int, ...]) -> Augmentation | None:
    """The transform that ``config`` names for observations of that shape; None where it has none.

    ``crop`` keeps the size: a random window of the picture with ``margin`` repeated pixels on
    every side.
    """
    if len(shape) == 1:
        if config.images != "none" and config.vectors == "none":
            raise InputError(
                "augment.images", config.images,
                "none: observations are vectors, augment.vectors has what fits them",
            )  # fmt: skip
        return _of_vectors(config)
    if config.images == "none":
        if config.vectors != "none":
            raise InputError("augment.vectors", config.vectors, f"none: observations are {shape}")
        return None
    if len(shape) != 3:
        raise InputError(
            "augment.images", config.images,
            f"none: observations are {shape}, not (height, width, channels)",
        )  # fmt: skip
    return _of_images(config, shape[0], shape[1])


def _of_vectors(config: AugmentConfig) -> Augmentation | None:
    if config.vectors == "amplitude":
        low, high = 1.0 - config.amplitude, 1.0 + config.amplitude
        return partial(random_amplitude, low=low, high=high)
    if config.vectors == "noise":
        return partial(random_noise, deviation=config.deviation)
    return None


def _of_images(config: AugmentConfig, height: int, width: int) -> Augmentation:
    kind, margin = config.images, config.margin
    if kind == "rotate":
        if height != width:
            raise InputError(
                "augment.images", kind, f"another: {height}x{width} pictures are not square"
            )
        return random_rotate
    if kind == "cutout":
        if config.largest_cut > min(height, width):
            raise InputError(
                "augment.largest_cut", config.largest_cut, f"at most {min(height, width)}"
            )
        return partial(random_cutout, smallest=1, largest=config.largest_cut)
    horizontal = partial(random_flip, axis="horizontal")
    kinds: dict[str, Augmentation] = {
        "translate": partial(random_translate, margin=margin, edge="zero"),
        "crop": partial(random_translate, margin=margin, edge="repeat"),
        "shift": partial(random_bilinear_shift, margin=margin),
        "flip": horizontal,
        "mirror": compose(horizontal, partial(random_flip, axis="vertical")),
    }
    return kinds[kind]
