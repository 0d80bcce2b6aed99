"""Composition tables of finite groups, exact and on the host: closure, laws, orders, names."""

import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TypeVar

import numpy as np
from jaxtyping import Int

from gcr_rl.errors import InputError

Table = Int[np.ndarray, "g g"]
ElementT = TypeVar("ElementT")


def closure(
    generators: Iterable[ElementT],
    identity: ElementT,
    compose: Callable[[ElementT, ElementT], ElementT],
    key: Callable[[ElementT], Hashable],
    limit: int,
) -> list[ElementT]:
    """The group generated, identity first, in breadth-first order of word length.

    In a finite group products of generators reach inverses too. Beyond ``limit`` elements
    the search stops with an ``InputError``.
    """
    generators = list(generators)
    found, seen = [identity], {key(identity)}
    for element in found:  # grows while it is walked: breadth first
        for generator in generators:
            product = compose(generator, element)
            if key(product) in seen:
                continue
            if len(found) == limit:
                raise InputError(
                    "group size", f"more than {limit}",
                    "a smaller group, a larger limit, or swaps canonicalised by sorting "
                    "(SortingGroup)",
                )  # fmt: skip
            seen.add(key(product))
            found.append(product)
    return found


def composition_table(
    elements: Sequence[ElementT],
    compose: Callable[[ElementT, ElementT], ElementT],
    key: Callable[[ElementT], Hashable],
) -> Table | None:
    """``table[g, h]``: the place of g∘h; None if a product is not among the elements."""
    place = {key(element): i for i, element in enumerate(elements)}
    table = np.empty((len(elements), len(elements)), np.int32)
    for g, first in enumerate(elements):
        for h, second in enumerate(elements):
            found = place.get(key(compose(first, second)))
            if found is None:
                return None
            table[g, h] = found
    return table


def check_group(table: Table, field: str = "compose") -> None:
    """Identity at 0, every row and column a permutation, associative; else ``InputError``."""
    size = len(table)
    numbers = np.arange(size)
    if not (np.array_equal(table[0], numbers) and np.array_equal(table[:, 0], numbers)):
        raise InputError(field, table[0].tolist(), "element 0 as the identity")
    if not (
        np.array_equal(np.sort(table, axis=0), np.tile(numbers[:, None], size))
        and np.array_equal(np.sort(table, axis=1), np.tile(numbers, (size, 1)))
    ):
        raise InputError(field, "a repeated product", "a table with an inverse for every element")
    for g in range(size):
        if not np.array_equal(table[table[g]], table[g][table]):
            raise InputError(field, f"(g{g} h) k != g{g} (h k)", "an associative table")


def inverses(table: Table) -> Int[np.ndarray, " g"]:
    """``inverse[g]``: the h with g∘h = identity (element 0)."""
    return np.argmax(table == 0, axis=1).astype(np.int32)


def element_orders(table: Table) -> Int[np.ndarray, " g"]:
    """The smallest m >= 1 with g^m = identity, for every g."""
    orders = np.ones(len(table), np.int32)
    for g in range(len(table)):
        power = g
        while power != 0:
            power = int(table[power, g])
            orders[g] += 1
    return orders


def group_name(table: Table) -> str:
    """The usual name where order, element orders and commutativity tell it, else "order n".

    Cyclic, elementary abelian, products of two cyclic groups, symmetric and dihedral groups
    and the quaternions are recognised. S3 is called S3, not D3; the Klein group C2xC2.
    """
    signature = Counter(element_orders(table).tolist())
    abelian = bool(np.array_equal(table, table.T))
    for name, is_abelian, expected in _known_groups(len(table)):
        if abelian == is_abelian and signature == expected:
            return name
    return f"order {len(table)}"


def _known_groups(size: int) -> Iterable[tuple[str, bool, Counter[int]]]:
    if size == 1:
        yield "trivial", True, Counter({1: 1})
    yield f"C{size}", True, _product_orders(size)
    for first in range(2, size):
        if size % first == 0 and first >= size // first > 1:
            yield f"C{first}xC{size // first}", True, _product_orders(first, size // first)
    if size >= 8 and size & (size - 1) == 0:
        yield f"C2^{size.bit_length() - 1}", True, Counter({1: 1, 2: size - 1})
    degree = next(n for n in range(1, 20) if math.factorial(n) >= size)
    if degree >= 3 and math.factorial(degree) == size:
        yield f"S{degree}", False, _symmetric_orders(degree)
    if size >= 6 and size % 2 == 0:
        yield f"D{size // 2}", False, _product_orders(size // 2) + Counter({2: size // 2})
    if size == 8:
        yield "Q8", False, Counter({1: 1, 2: 1, 4: 6})


def _product_orders(*sizes: int) -> Counter[int]:
    orders = Counter({1: 1})
    for size in sizes:
        cyclic = Counter(size // math.gcd(size, i) for i in range(size))
        grown: Counter[int] = Counter()
        for one, count in orders.items():
            for other, more in cyclic.items():
                grown[math.lcm(one, other)] += count * more
        orders = grown
    return orders


def _symmetric_orders(degree: int) -> Counter[int]:
    orders: Counter[int] = Counter()
    for parts in _partitions(degree, degree):
        ways = math.factorial(degree)
        for length, repeats in Counter(parts).items():
            ways //= length**repeats * math.factorial(repeats)
        orders[math.lcm(*parts)] += ways
    return orders


def _partitions(total: int, largest: int) -> Iterable[tuple[int, ...]]:
    if total == 0:
        yield ()
    for part in range(min(total, largest), 0, -1):
        for rest in _partitions(total - part, part):
            yield (part, *rest)
