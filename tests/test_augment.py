"""Augmentations: what they keep, how they are distributed, where they are the identity."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import ndimage, stats

from gcr_rl import augment
from gcr_rl.errors import InputError

KEY = jax.random.key(0)
BATCH, SIDE = 400, 6
PICTURE = np.random.default_rng(0).integers(1, 256, (SIDE, SIDE, 2)).astype(np.uint8)
PICTURES = jnp.asarray(np.broadcast_to(PICTURE, (BATCH, SIDE, SIDE, 2)))
VECTORS = jnp.asarray(np.random.default_rng(0).normal(size=(BATCH, 5)), jnp.float32)

KEEPING = {
    "translate": partial(augment.random_translate, margin=2),
    "translate repeating": partial(augment.random_translate, margin=2, edge="repeat"),
    "flip": augment.random_flip,
    "flip vertical": partial(augment.random_flip, axis="vertical"),
    "rotate": augment.random_rotate,
    "cutout": partial(augment.random_cutout, smallest=1, largest=3),
}


def counts_of(images, candidates):
    """How many of the images are each of the candidates; every one must be one of them."""
    keys = [np.asarray(candidate).tobytes() for candidate in candidates]
    assert len(set(keys)) == len(keys)
    found = [keys.index(np.ascontiguousarray(image).tobytes()) for image in np.asarray(images)]
    return np.bincount(found, minlength=len(keys))


def assert_uniform(counts):
    assert stats.chisquare(counts).pvalue > 1e-4


@pytest.mark.parametrize("name", KEEPING)
def test_shape_and_type_are_kept_and_keys_decide(name):
    change = jax.jit(KEEPING[name])
    out = change(KEY, PICTURES)
    assert out.shape == PICTURES.shape and out.dtype == jnp.uint8
    np.testing.assert_array_equal(out, change(KEY, PICTURES))
    assert (np.asarray(out) != np.asarray(change(jax.random.key(1), PICTURES))).any()
    assert len({np.asarray(image).tobytes() for image in out}) > 1  # members draw apart


def test_crop_is_uniform_over_places():
    out = augment.random_crop(KEY, PICTURES, 4, 5)
    places = [PICTURE[r : r + 4, c : c + 5] for r in range(3) for c in range(2)]
    assert_uniform(counts_of(out, places))
    np.testing.assert_array_equal(augment.random_crop(KEY, PICTURES, SIDE, SIDE), PICTURES)


def test_translate_is_uniform_over_shifts_with_zeros_or_repeated_edges():
    for edge, mode in (("zero", "constant"), ("repeat", "edge")):
        around = np.pad(PICTURE, ((1, 1), (1, 1), (0, 0)), mode=mode)
        shifts = [around[r : r + SIDE, c : c + SIDE] for r in range(3) for c in range(3)]
        assert_uniform(counts_of(augment.random_translate(KEY, PICTURES, 1, edge), shifts))
    np.testing.assert_array_equal(augment.random_translate(KEY, PICTURES, 0), PICTURES)


def test_flips_and_turns_are_uniform():
    assert_uniform(counts_of(augment.random_flip(KEY, PICTURES), [PICTURE, PICTURE[:, ::-1]]))
    vertical = augment.random_flip(KEY, PICTURES, "vertical")
    assert_uniform(counts_of(vertical, [PICTURE, PICTURE[::-1]]))
    turned = augment.random_rotate(KEY, PICTURES)
    assert_uniform(counts_of(turned, [np.rot90(PICTURE, k) for k in range(4)]))


def test_cutout_is_a_rectangle_of_the_right_size_anywhere():
    out = np.asarray(augment.random_cutout(KEY, PICTURES, 2, 3))
    gone = (out == 0).all(-1)
    np.testing.assert_array_equal(np.where(gone[..., None], 0, PICTURE), out)
    tall, wide = gone.any(2).sum(1), gone.any(1).sum(1)
    np.testing.assert_array_equal(gone.sum((1, 2)), tall * wide)
    assert_uniform(np.bincount(tall)[2:])
    assert_uniform(np.bincount(wide)[2:])
    starts = gone.any(2).argmax(1)
    assert_uniform(np.bincount(starts[tall == 2], minlength=5))
    assert_uniform(np.bincount(starts[tall == 3], minlength=4))
    np.testing.assert_array_equal(augment.random_cutout(KEY, PICTURES, 0, 0), PICTURES)


def test_shift_is_scipys_bilinear():
    down = np.array([0.0, 1.25, -2.0, 0.5, -3.75, 9.0], np.float32)
    right = np.array([0.0, -0.5, 1.0, 3.3, 2.6, -9.0], np.float32)
    out = augment.shifted(PICTURES[:6], jnp.asarray(down), jnp.asarray(right))
    for image, vertical, horizontal in zip(np.asarray(out), down, right, strict=True):
        expected = ndimage.shift(
            PICTURE.astype(np.float64), (vertical, horizontal, 0), order=1, mode="nearest"
        )
        np.testing.assert_allclose(image, expected, atol=2e-3)
    np.testing.assert_array_equal(out[0], PICTURE)


@pytest.mark.parametrize("margin", [0, 1, 4])
def test_shift_by_windows_is_the_shift_by_pixels(margin):
    ends = jnp.array([[-margin, margin, 0.0], [margin, -margin, 0.0]])
    drawn = jax.random.uniform(KEY, (2, BATCH - 3), minval=-margin, maxval=margin)
    down, right = jnp.concatenate([ends, drawn], axis=1)
    out = augment.shifted_within(PICTURES, down, right, margin)
    np.testing.assert_allclose(out, augment.shifted(PICTURES, down, right), atol=1e-3)


def test_shift_is_uniform_and_keeps_averages():
    ramp = jnp.broadcast_to(jnp.arange(64.0)[None, :, None, None], (BATCH, 64, 64, 1))
    out = jax.jit(partial(augment.random_bilinear_shift, margin=4))(KEY, ramp)
    assert out.dtype == jnp.float32
    moved = np.asarray(ramp - out)[:, 8:56].mean((1, 2, 3))
    assert stats.kstest(moved, stats.uniform(-4, 8).cdf).pvalue > 1e-4
    same = augment.random_bilinear_shift(KEY, PICTURES, 0)
    np.testing.assert_array_equal(same, PICTURES)


def test_amplitude_is_one_factor_per_vector():
    out = augment.random_amplitude(KEY, VECTORS, 0.6, 1.4)
    factor = np.asarray(out / VECTORS)
    np.testing.assert_allclose(factor, np.broadcast_to(factor[:, :1], factor.shape), rtol=1e-5)
    assert stats.kstest(factor[:, 0], stats.uniform(0.6, 0.8).cdf).pvalue > 1e-4
    np.testing.assert_array_equal(augment.random_amplitude(KEY, VECTORS, 1.0, 1.0), VECTORS)


def test_noise_is_normal():
    difference = np.asarray(augment.random_noise(KEY, VECTORS, 0.3) - VECTORS).ravel()
    assert stats.kstest(difference, stats.norm(0, 0.3).cdf).pvalue > 1e-4
    np.testing.assert_array_equal(augment.random_noise(KEY, VECTORS, 0.0), VECTORS)


def test_composition_draws_apart():
    both = augment.compose(augment.random_flip, partial(augment.random_flip, axis="vertical"))
    four = [PICTURE, PICTURE[:, ::-1], PICTURE[::-1], PICTURE[::-1, ::-1]]
    assert_uniform(counts_of(both(KEY, PICTURES), four))
    np.testing.assert_array_equal(augment.compose()(KEY, PICTURES), PICTURES)


def test_what_cannot_be_done_is_named():
    with pytest.raises(InputError, match="square"):
        augment.random_rotate(KEY, PICTURES[:, :4])
    with pytest.raises(InputError, match="at most"):
        augment.random_crop(KEY, PICTURES, SIDE + 1, 2)
    with pytest.raises(InputError, match="largest"):
        augment.random_cutout(KEY, PICTURES, 3, 2)
    with pytest.raises(InputError, match="batch"):
        augment.random_flip(KEY, VECTORS)
