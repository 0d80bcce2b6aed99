"""Vocabularies: the observation transforms that a task *might* be symmetric under.

A vocabulary is either closed (a group with a composition table) or a set of generators
(swaps of tiles, say) whose closure is generated only when asked for. It follows from the
observation space alone; which of its elements are symmetries is learned elsewhere.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, Shaped

from gcr_rl.errors import InputError
from gcr_rl.symmetry import tables
from gcr_rl.symmetry.transforms import (
    BlockGather,
    Element,
    FunctionBank,
    Layout,
    Observation,
    TransformList,
    block_gather,
    check_observation,
    random_observation,
)

Signed = tuple[Int[np.ndarray, " blocks"], Int[np.ndarray, " blocks"]]


@dataclass(frozen=True, eq=False)
class Vocabulary:
    """Named transforms T_0 = identity, T_1, ... of observations of one shape.

    ``compose[g, h]`` is the element T_g∘T_h (h acts first); None where the list is only a
    set of generators. ``swaps[g]`` names the two blocks that g exchanges, in vocabularies
    of transpositions.
    """

    names: tuple[str, ...]
    transforms: TransformList
    generators: tuple[int, ...]
    compose: Int[np.ndarray, "g g"] | None
    inverse: Int[np.ndarray, " g"]
    swaps: Int[np.ndarray, "g 2"] | None = None
    identity: int = 0

    @property
    def size(self) -> int:
        """Transforms in the list, the identity included."""
        return len(self.names)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of an observation."""
        return self.transforms.shape

    @property
    def is_closed(self) -> bool:
        """Whether the list is a group."""
        return self.compose is not None

    def index(self, name: str) -> int:
        """The element called ``name``."""
        if name not in self.names:
            raise InputError("transform", name, f"one of {', '.join(self.names)}")
        return self.names.index(name)

    def apply(self, index: Element, observation: Observation) -> Observation:
        """T_index o; ``index`` may be traced."""
        check_observation(observation, self.shape)
        if isinstance(index, int) and not 0 <= index < self.size:
            raise InputError("index", index, f"0 to {self.size - 1}")
        return self.transforms.at(jnp.asarray(index), jnp.asarray(observation))

    def apply_all(self, observation: Observation) -> Shaped[Array, "g ..."]:
        """All images T_g o, [size, *shape]."""
        check_observation(observation, self.shape)
        return self.transforms.all(jnp.asarray(observation))

    def canonicalize(self, observation: Observation) -> tuple[Observation, Int[Array, ""]]:
        """(T_g o, g) with the largest hash of T_g o: the same T_g o for a whole orbit."""
        if self.compose is None:
            raise InputError("vocabulary", "generators", "a closed one: call close() first")
        check_observation(observation, self.shape)
        observation = jnp.asarray(observation)
        element = jnp.argmax(self.transforms.scores(observation))
        return self.transforms.at(element, observation), element

    def close(self, limit: int = 1024) -> "Vocabulary":
        """The group that these transforms generate; ``InputError`` beyond ``limit`` elements."""
        if self.compose is not None:
            return self
        rows = signed_rows(self)
        chosen = [rows[g] for g in range(self.size) if g != self.identity]
        found = tables.closure(chosen, rows[0], compose_signed, signed_key, limit)
        known = {signed_key(row): name for row, name in zip(rows, self.names, strict=True)}
        names = [known.get(signed_key(row), f"word {i}") for i, row in enumerate(found)]
        assert isinstance(self.transforms, BlockGather)
        return from_signed(self.transforms.layout, names, found)

    @staticmethod
    def from_functions(
        functions: Sequence[tuple[str, Callable[[Any], Any]]],
        example: Shaped[np.ndarray, "..."],
        low: Any = None,
        high: Any = None,
        trials: int = 8,
    ) -> "Vocabulary":
        """A closed vocabulary of your own functions o -> T o, the identity first.

        The composition table is read off ``trials`` random observations like ``example``
        (within ``low`` and ``high``); a product that equals no function, an element without
        inverse or a table that is not associative is an ``InputError``.
        """
        return _from_functions(functions, example, low, high, trials)

    @staticmethod
    def for_space(space: Any, tile_size: int | None = None) -> "tuple[Vocabulary, ...]":
        """Sensible vocabularies for a space with ``shape``, ``low`` and ``high``.

        Square grids and images: the dihedral group. Other images: flips. With a tile size:
        swaps of tiles as well. Vectors that can be negative: sign flips. Vectors that
        cannot (one-hot ones): shifts and reversal of the coordinates.
        """
        from gcr_rl.symmetry import vocabulary_kinds as kinds

        return kinds.for_space(space, tile_size)


def from_signed(
    layout: Layout,
    names: Sequence[str],
    elements: Sequence[Signed],
    generators: Sequence[int] | None = None,
    closed: bool = True,
    swaps: Int[np.ndarray, "g 2"] | None = None,
) -> Vocabulary:
    """A vocabulary of signed block permutations, the identity first; refuses an open table."""
    index = np.stack([index for index, _ in elements])
    sign = np.stack([sign for _, sign in elements])
    if (index[0] != np.arange(index.shape[1])).any() or (sign[0] < 0).any():
        raise InputError("elements", "another first element", "the identity first")
    table = tables.composition_table(elements, compose_signed, signed_key) if closed else None
    if closed and table is None:
        raise InputError("vocabulary", list(names), "transforms that are closed under composition")
    place = {signed_key(element): i for i, element in enumerate(elements)}
    inverse = [place.get(signed_key(invert_signed(element)), -1) for element in elements]
    if min(inverse) < 0:
        raise InputError("vocabulary", list(names), "transforms that contain their inverses")
    chosen = tuple(generators) if generators is not None else tuple(range(1, len(elements)))
    return Vocabulary(
        tuple(names),
        block_gather(layout, index, sign),
        chosen,
        table,
        np.array(inverse, np.int32),
        swaps,
    )


def signed_rows(vocabulary: Vocabulary) -> list[Signed]:
    """The elements of a block-gather vocabulary as host arrays (index, sign)."""
    transforms = vocabulary.transforms
    if not isinstance(transforms, BlockGather):
        raise InputError("vocabulary", "functions", "signed permutations of blocks")
    index = np.asarray(transforms.index)
    sign = np.ones_like(index) if transforms.sign is None else np.asarray(transforms.sign, np.int32)
    return list(zip(index, sign, strict=True))


def compose_signed(first: Signed, second: Signed) -> Signed:
    """T_first∘T_second: (T_g T_h o)[i] = s_g[i] s_h[p_g[i]] o[p_h[p_g[i]]]."""
    (index_g, sign_g), (index_h, sign_h) = first, second
    return index_h[index_g], sign_g * sign_h[index_g]


def invert_signed(element: Signed) -> Signed:
    """The T with T∘T_element = identity."""
    index, sign = element
    inverse = np.argsort(index).astype(index.dtype)
    return inverse, sign[inverse]


def signed_key(element: Signed) -> bytes:
    """Equal for equal transforms only."""
    return element[0].astype(np.int32).tobytes() + element[1].astype(np.int8).tobytes()


def _from_functions(
    functions: Sequence[tuple[str, Callable[[Any], Any]]],
    example: Shaped[np.ndarray, "..."],
    low: Any,
    high: Any,
    trials: int,
) -> Vocabulary:
    names, maps = [name for name, _ in functions], [function for _, function in functions]
    example = np.asarray(example)
    if not maps:
        raise InputError("functions", functions, "at least the identity")
    generator = np.random.default_rng(0)
    probes = [
        random_observation(generator, example.shape, low, high, example.dtype)
        for _ in range(trials)
    ]
    images = [np.stack([_image(f, probe, name) for probe in probes]) for name, f in functions]
    if not _same(images[0], np.stack(probes)):
        raise InputError("functions", names[0], "the identity as the first function")
    size = len(maps)
    table = np.full((size, size), -1, np.int32)
    for g in range(size):
        for h in range(size):
            product = np.stack([_image(maps[g], image, names[g]) for image in images[h]])
            matches = [i for i in range(size) if _same(product, images[i])]
            if len(matches) != 1:
                raise InputError(
                    "functions", f"{names[g]} after {names[h]}",
                    "products that equal exactly one function of the list"
                    + (" (two are the same)" if matches else " (it is not closed)"),
                )  # fmt: skip
            table[g, h] = matches[0]
    tables.check_group(table, "functions")
    products = tuple(tuple(row) for row in table.tolist())
    bank = FunctionBank(jnp.arange(size), tuple(maps), tuple(example.shape), products)
    return Vocabulary(tuple(names), bank, tuple(range(1, size)), table, tables.inverses(table))


def _image(function: Callable[[Any], Any], observation: Any, name: str) -> np.ndarray:
    image = np.asarray(function(jnp.asarray(observation)))
    if image.shape != np.shape(observation) or image.dtype != np.asarray(observation).dtype:
        raise InputError(
            "functions", f"{name}: {image.dtype}{list(image.shape)}",
            f"images like the observation: {np.asarray(observation).dtype}"
            f"{list(np.shape(observation))}",
        )  # fmt: skip
    return image


def _same(first: np.ndarray, second: np.ndarray) -> bool:
    if np.issubdtype(first.dtype, np.floating):
        return bool(np.allclose(first, second, rtol=1e-5, atol=1e-6))
    return bool(np.array_equal(first, second))
