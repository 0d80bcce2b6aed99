"""Observations that are kept once a kind: nothing that is asked of them may tell the difference."""

import jax.numpy as jnp
import numpy as np
import pytest

from gcr_rl.envs.probes_symmetry import planted, play, traps
from gcr_rl.errors import InputError
from gcr_rl.symmetry import Evidence, Vocabulary, discover, vocabulary_kinds
from gcr_rl.symmetry.codes import ImageCodes, observation_codes
from gcr_rl.symmetry.distinct import Distinct, kinds_of
from gcr_rl.symmetry.enforcement import evidence_of
from gcr_rl.symmetry.transforms import BlockGather
from gcr_rl.types import Transition


def once_a_kind(*arrays):
    """The arrays again, as views of one table of kinds."""
    together = np.concatenate(arrays)
    kinds = kinds_of(observation_codes(together))
    table = together[kinds.first]
    return [Distinct(table, part) for part in np.split(kinds.place, len(arrays))]


def test_it_reads_as_the_array():
    array = np.arange(60, dtype=np.float32).reshape(5, 3, 4)[[0, 1, 0, 4, 1, 1]]
    (same,) = once_a_kind(array)
    assert len(same.kinds) == 3
    assert (len(same), same.shape, same.ndim, same.dtype) == (6, (6, 3, 4), 3, np.float32)
    for rows in (2, slice(1, 4), np.array([5, 0]), (slice(None), 1), (slice(2), ..., 0)):
        np.testing.assert_array_equal(same[rows], array[rows])
    np.testing.assert_array_equal(np.asarray(same), array)
    assert np.asarray(same, float).dtype == float


@pytest.mark.parametrize(
    "vocabulary",
    [
        vocabulary_kinds.dihedral((4, 4, 2)),
        vocabulary_kinds.signed_permutations(3),
        vocabulary_kinds.tile_swaps((4, 6, 1), 2),
        Vocabulary.from_functions(
            [("identity", lambda o: o), ("mirror", lambda o: o[:, ::-1])],
            np.zeros((3, 3), np.float32),
        ),
    ],
    ids=["dihedral", "signed", "tiles", "functions"],
)
def test_codes_of_images_are_the_same(vocabulary):
    generator = np.random.default_rng(0)
    pool = generator.integers(-2, 3, (7, *vocabulary.shape)).astype(np.float32)
    before, after = pool[generator.integers(7, size=40)], pool[generator.integers(7, size=40)]
    one, other = once_a_kind(before, after)
    plain = (ImageCodes(vocabulary, before), ImageCodes(vocabulary, after))
    first = ImageCodes(vocabulary, one)
    assert first.beside(other).kinds is first.kinds
    for g in range(vocabulary.size):
        for rows in (slice(None), np.array([3, 39, 0])):
            for codes, found in zip(plain, (first, first.beside(other)), strict=True):
                np.testing.assert_array_equal(found.of(g, rows), codes.of(g, rows))
                if isinstance(vocabulary.transforms, BlockGather):
                    np.testing.assert_array_equal(found.blocks(rows), codes.blocks(rows))
    np.testing.assert_array_equal(first.beside(after).of(0), plain[1].of(0))
    elements, rows = np.arange(vocabulary.size), np.array([5, 0, 39])
    for codes in (plain[0], first):
        expected = [plain[0].of(int(g), rows) for g in elements]
        np.testing.assert_array_equal(codes.of_many(elements, rows), expected)


WORLDS = {probe.vocabulary: probe for probe in (*traps(), *planted())}


@pytest.mark.parametrize("kind", sorted(WORLDS))
def test_the_verdict_is_the_same_to_the_bit(kind):
    probe = WORLDS[kind]
    vocabulary = getattr(vocabulary_kinds, kind)(*probe.arguments)
    plain = Evidence(*play(probe, 0, min(probe.budget, 1500)))
    before, after = once_a_kind(plain.observation, plain.next_observation)
    kept_once = plain._replace(observation=before, next_observation=after)
    one, other = (discover(e, vocabulary, probe.num_actions) for e in (plain, kept_once))
    np.testing.assert_equal(other.log(), one.log())
    np.testing.assert_array_equal(other.relabel, one.relabel)
    np.testing.assert_array_equal(other.disproved, one.disproved)


def test_what_is_not_a_number_is_refused_all_the_same():
    probe = WORLDS["sign_flips"]
    vocabulary = vocabulary_kinds.sign_flips(*probe.arguments)
    plain = Evidence(*play(probe, 0, 20))
    (bad,) = once_a_kind(np.where(np.arange(20)[:, None] == 7, np.nan, plain.observation))
    with pytest.raises(InputError, match="observation: got 'not finite'"):
        discover(plain._replace(observation=bad), vocabulary, probe.num_actions)


def test_replayed_observations_are_made_once_a_kind():
    """Also where what is stored has parts, of which each alone says too little."""
    code = jnp.array([[1, 2], [2, 1], [1, 2], [1, 1]])
    part = {"place": code[:-1], "goal": (code[:-1] > 1)[..., None]}
    following = {"place": code[1:], "goal": (code[:-1] > 1)[..., None]}
    none = jnp.zeros((3, 2), bool)
    rows = Transition(part, code[:-1], code[:-1] * 1.0, following, none, none)
    found = evidence_of(rows, lambda o: jnp.stack([o["place"], o["goal"][0].astype(int)]))
    assert found.observation.kinds is found.next_observation.kinds
    assert np.asarray(found.observation).tolist() == [
        [1, 0],
        [2, 1],
        [1, 0],
        [2, 1],
        [1, 0],
        [2, 1],
    ]
    assert np.asarray(found.next_observation).tolist() == [
        [2, 0], [1, 1], [1, 0], [1, 1], [2, 0], [1, 1],
    ]  # fmt: skip
    assert len(found.observation.kinds) == 4
