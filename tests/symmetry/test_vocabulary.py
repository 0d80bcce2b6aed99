"""Vocabularies: group laws as properties, exact tables, choices by space, clear refusals."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given
from hypothesis import strategies as st

from gcr_rl.errors import InputError
from gcr_rl.symmetry import Vocabulary, tables
from gcr_rl.symmetry import vocabulary_kinds as kinds

CLOSED = {
    "dihedral": kinds.dihedral((5, 5, 2)),
    "dihedral without channels": kinds.dihedral((4, 4)),
    "flips": kinds.flips((3, 5, 2)),
    "horizontal flip": kinds.horizontal_flip((3, 4, 1)),
    "sign flips": kinds.sign_flips(4),
    "signed permutations": kinds.signed_permutations(2),
    "ring": kinds.ring(5),
    "slots of S3": kinds.slot_permutations(3, 2).close(),
    "tiles of S4": kinds.tile_swaps((4, 6, 2), (2, 3)).close(),
}
NAMES = {
    "dihedral": "D4", "flips": "C2xC2", "horizontal flip": "C2", "sign flips": "C2^4",
    "signed permutations": "D4", "ring": "D5", "slots of S3": "S3", "tiles of S4": "S4",
    "dihedral without channels": "D4",
}  # fmt: skip
APPLY_ALL = {name: jax.jit(v.apply_all) for name, v in CLOSED.items()}


def observation(vocabulary, seed):
    return np.random.default_rng(seed).integers(-9, 10, vocabulary.shape).astype(np.int32)


@pytest.mark.parametrize("name", CLOSED)
def test_the_table_is_a_group_of_the_right_name(name):
    vocabulary = CLOSED[name]
    tables.check_group(vocabulary.compose)
    np.testing.assert_array_equal(vocabulary.inverse, tables.inverses(vocabulary.compose))
    assert tables.group_name(vocabulary.compose) == NAMES[name]


@pytest.mark.parametrize("name", CLOSED)
@given(seed=st.integers(0, 2**31))
def test_group_laws_on_observations(name, seed):
    vocabulary, apply_all = CLOSED[name], APPLY_ALL[name]
    rng = np.random.default_rng(seed)
    g, h = rng.integers(vocabulary.size, size=2)
    o = observation(vocabulary, seed)
    images = np.asarray(apply_all(o))
    np.testing.assert_array_equal(images[0], o)
    # compose[g, h] is T_g after T_h
    np.testing.assert_array_equal(
        np.asarray(apply_all(images[h]))[g], images[vocabulary.compose[g, h]]
    )
    np.testing.assert_array_equal(np.asarray(apply_all(images[g]))[vocabulary.inverse[g]], o)


@pytest.mark.parametrize("name", CLOSED)
def test_generators_generate_and_one_element_equals_its_row(name):
    vocabulary = CLOSED[name]
    table = vocabulary.compose
    found = tables.closure(vocabulary.generators, 0, lambda a, b: int(table[a, b]), int, 1000)
    assert sorted(found) == list(range(vocabulary.size))
    o = observation(vocabulary, 0)
    last = vocabulary.size - 1
    np.testing.assert_array_equal(jax.jit(vocabulary.apply)(last, o), APPLY_ALL[name](o)[last])


@pytest.mark.parametrize("name", ["dihedral", "sign flips", "tiles of S4"])
def test_canonical_member_is_one_for_the_orbit(name):
    vocabulary = CLOSED[name]
    canonicalize = jax.jit(vocabulary.canonicalize)
    o = observation(vocabulary, 3)
    first, element = canonicalize(o)
    np.testing.assert_array_equal(vocabulary.apply(element, o), first)
    for image in vocabulary.apply_all(o):
        np.testing.assert_array_equal(canonicalize(image)[0], first)


def test_sign_flips_of_zero_are_still_zero():
    vocabulary = kinds.sign_flips(2)
    first = vocabulary.canonicalize(jnp.array([0.0, 1.5]))[0]
    np.testing.assert_array_equal(vocabulary.canonicalize(jnp.array([-0.0, -1.5]))[0], first)


def test_dihedral_moves_what_rot90_moves_batched_and_bytes():
    vocabulary = kinds.dihedral((4, 4, 3))
    batch = np.random.default_rng(0).integers(0, 256, (6, 4, 4, 3)).astype(np.uint8)
    elements = np.array([0, 1, 2, 3, 4, 5])
    found = jax.jit(jax.vmap(vocabulary.apply))(elements, batch)
    assert found.dtype == jnp.uint8
    for g, o, image in zip(elements, batch, found, strict=True):
        turned = np.rot90(o, g % 4)
        np.testing.assert_array_equal(image, turned[:, ::-1] if g >= 4 else turned)
    twice = jax.vmap(jax.vmap(vocabulary.apply))(
        elements.reshape(2, 3), batch.reshape(2, 3, 4, 4, 3)
    )
    np.testing.assert_array_equal(twice.reshape(found.shape), found)
    alone = jax.vmap(vocabulary.apply, (0, None))(elements, batch[0])
    np.testing.assert_array_equal(alone, vocabulary.apply_all(batch[0])[:6])


def test_large_groups_stay_generator_sets_within_budget():
    for vocabulary in (kinds.signed_permutations(10, 200), kinds.sign_flips(20, 100)):
        assert vocabulary.size <= 200 and not vocabulary.is_closed
        assert "negation" in vocabulary.names and len(set(vocabulary.names)) == vocabulary.size
        np.testing.assert_array_equal(vocabulary.inverse, np.arange(vocabulary.size))
        with pytest.raises(InputError, match="SortingGroup"):
            vocabulary.close(limit=500)
    swaps = kinds.tile_swaps((56, 56, 3), 8)
    assert swaps.size == 1 + 49 * 48 // 2 and not swaps.is_closed
    with pytest.raises(InputError, match="close"):
        swaps.canonicalize(np.zeros((56, 56, 3), np.uint8))


def test_tile_swap_moves_exactly_two_tiles():
    vocabulary = kinds.tile_swaps((4, 6, 1), 2)
    g = vocabulary.index("swap of tiles (0, 0) and (1, 2)")
    image = np.arange(24).reshape(4, 6, 1)
    expected = image.copy()
    expected[0:2, 0:2], expected[2:4, 4:6] = image[2:4, 4:6], image[0:2, 0:2]
    np.testing.assert_array_equal(vocabulary.apply(g, image), expected)


def test_vocabularies_follow_from_the_space():
    def sizes(space, **options):
        return [v.size for v in Vocabulary.for_space(space, **options)]

    assert sizes(spaces.Box(0, 1, (19, 19, 3), np.uint8)) == [8]
    assert sizes(spaces.Box(0, 255, (4, 6, 3), np.uint8)) == [4]
    assert sizes(spaces.Box(0, 255, (6, 6, 3), np.uint8), tile_size=3) == [8, 7]
    assert sizes(spaces.Box(-np.inf, np.inf, (4,))) == [16]
    assert sizes(spaces.Box(0, 1, (13,))) == [26]  # one-hot: shifts and reversal
    assert sizes(spaces.Box(0, 1, (2, 2, 2, 2))) == [1]
    with pytest.raises(InputError, match="shape"):
        Vocabulary.for_space(object())


def test_users_add_their_own_in_a_few_lines():
    def turn(o):  # velocity (x, y) by 120 degrees, the last number untouched
        c, s = -0.5, np.sqrt(0.75)
        return jnp.stack([c * o[0] - s * o[1], s * o[0] + c * o[1], o[2]])

    vocabulary = Vocabulary.from_functions(
        [("identity", lambda o: o), ("third", turn), ("two thirds", lambda o: turn(turn(o)))],
        example=np.zeros(3, np.float32),
    )
    assert tables.group_name(vocabulary.compose) == "C3"
    o = jnp.array([1.0, 2.0, 3.0])
    np.testing.assert_allclose(jax.jit(vocabulary.apply)(1, o), turn(o), rtol=1e-6)
    np.testing.assert_allclose(vocabulary.apply_all(o)[2], turn(turn(o)), rtol=1e-6)


def test_functions_that_are_no_group_are_refused():
    example = np.zeros(2, np.float32)
    identity = ("identity", lambda o: o)
    with pytest.raises(InputError, match="not closed"):
        Vocabulary.from_functions([identity, ("double", lambda o: 2 * o)], example)
    with pytest.raises(InputError, match="two are the same"):
        Vocabulary.from_functions([identity, ("again", lambda o: o)], example)
    with pytest.raises(InputError, match="identity as the first"):
        Vocabulary.from_functions([("negation", lambda o: -o)], example)
    with pytest.raises(InputError, match="images like the observation"):
        Vocabulary.from_functions([("first", lambda o: o[:1])], example)
    with pytest.raises(InputError, match="inverse"):  # a projection has none
        Vocabulary.from_functions(
            [identity, ("nothing", jnp.zeros_like), ("x", lambda o: -o)], example
        )


def test_an_open_list_of_gathers_is_refused():
    from gcr_rl.symmetry.transforms import Layout
    from gcr_rl.symmetry.vocabulary import from_signed

    ones = np.ones(4, int)
    turn = [(np.arange(4), ones), (np.array([1, 2, 3, 0]), ones)]
    with pytest.raises(InputError, match="closed under composition"):
        from_signed(Layout((4,), (1,)), ["identity", "shift"], turn)


def test_bad_observations_and_shapes_are_refused():
    vocabulary = kinds.sign_flips(2)
    with pytest.raises(InputError, match="NaN"):
        vocabulary.apply(1, np.array([np.nan, 0.0]))
    with pytest.raises(InputError, match="shape"):
        vocabulary.apply_all(np.zeros(3))
    with pytest.raises(InputError, match="0 to 3"):
        vocabulary.apply(4, np.zeros(2))
    with pytest.raises(InputError, match="square"):
        kinds.dihedral((3, 4, 1))
    with pytest.raises(InputError, match="divide"):
        kinds.tile_swaps((5, 5, 3), 2)
    with pytest.raises(InputError, match="one of identity"):
        vocabulary.index("mirror")


@pytest.mark.parametrize("shape", [(1, 1), (1, 4), (3, 1, 2), (2, 2)])
def test_tiny_images_have_no_repeated_elements(shape):
    for vocabulary in Vocabulary.for_space(spaces.Box(0, 1, shape)):
        tables.check_group(vocabulary.compose)
