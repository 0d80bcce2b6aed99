"""A network under the group that certificates have put in force.

The group is traced data in the agent's state; how many of its places are used, its *level*, is
static: 1 while nothing is in force, so that an agent without certificates pays nothing.
"""

from collections.abc import Callable
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PyTree, UInt32

from gcr_rl.config import Config
from gcr_rl.networks import QNetwork
from gcr_rl.networks.encoders import MLPEncoder
from gcr_rl.symmetry import (
    Group,
    LinearFirst,
    SortingGroup,
    Vocabulary,
    init_standing,
    quotient,
    reynolds,
    sorting_quotient,
)
from gcr_rl.symmetry.enforcement import groups_in_force
from gcr_rl.symmetry.folding import make_fold
from gcr_rl.symmetry.padding import padded_size
from gcr_rl.symmetry.quotient import QFunction

NOTHING = 1
"""The level at which no group is in force."""

ROOM = 8
"""The least level above it where unused places are cheap: the group of the square fits."""

Enforcement = Literal["auto", "quotient", "reynolds", "loss"]


def vocabulary_of(config: Config, space: Any, tile_size: int | None = None) -> Vocabulary | None:
    """The transforms of observations in ``space`` that may be certified; None if nothing asks."""
    if config.symmetry.family != "grounded":
        return None
    # Swaps of tiles come last, where there are tiles.
    return Vocabulary.for_space(space, tile_size)[-1]


def without_fold(group: Group | SortingGroup) -> Group | SortingGroup:
    """The group's own arrays: the fold is its vocabulary's, and no seed has another."""
    if isinstance(group, SortingGroup):
        return group
    return eqx.tree_at(lambda g: g.fold, group, None, is_leaf=lambda leaf: leaf is None)


def no_group(vocabulary: Vocabulary, num_actions: int) -> Group | SortingGroup:
    """What is in force before anything is certified."""
    nothing = groups_in_force([init_standing(vocabulary, num_actions)], vocabulary, num_actions)
    return jax.tree.map(lambda leaf: leaf[0], without_fold(nothing.group))


def level_of(group: PyTree, least: int = 2) -> int:
    """The smallest power of two that holds the largest of the groups, ``least`` if it holds
    more than the identity; on the host."""
    if not jax.tree.leaves(group):
        return NOTHING
    largest = int(np.asarray(group.valid).sum(axis=-1).max())
    return NOTHING if largest <= 1 else max(least, padded_size(largest))


def least_level(vocabulary: Vocabulary | None, how: Enforcement) -> int:
    """The smallest level above nothing.

    Every level is compiled anew, and groups grow element by element. Canonical members and
    random images hardly cost more with places to spare; a mean costs as much as it has terms.
    """
    return 2 if resolved(vocabulary, how) == "reynolds" else ROOM


def resolved(vocabulary: Vocabulary | None, how: Enforcement) -> Enforcement:
    """What ``auto`` stands for: on numbers the canonical member jumps with its hash, and a
    network would have to follow, so vectors are averaged."""
    if how != "auto":
        return how
    is_vector = vocabulary is not None and len(vocabulary.shape) == 1
    return "reynolds" if is_vector else "quotient"


def at_level(group: Group | SortingGroup, level: int) -> Group | SortingGroup:
    """The first ``level`` places; later ones are padding."""
    if isinstance(group, Group):
        return group.trim(min(level, group.capacity))
    return jax.tree.map(lambda leaf: leaf[:level], group)


def make_enforcer(
    vocabulary: Vocabulary | None,
    how: Enforcement,
    atoms: int | None = None,
) -> Callable[[QNetwork, PyTree, int], QFunction]:
    """(network, group, level) -> the Q function that is trained and acted with.

    Swaps of blocks are sorted whatever ``how`` says: their mean would have n! terms. With
    ``atoms`` the network's logits are what is permuted and averaged, atom by atom.
    """
    how = resolved(vocabulary, how)
    fold = make_fold(vocabulary) if vocabulary is not None and how == "reynolds" else None

    def wrapped(network: QNetwork, group: Group | SortingGroup) -> QFunction:
        if isinstance(group, SortingGroup):
            return sorting_quotient(network, group)
        if how == "quotient":
            return quotient(network, group)
        folded = eqx.tree_at(lambda g: g.fold, group, fold, is_leaf=lambda leaf: leaf is None)
        return reynolds(first_layer_shown(network), folded)

    def enforced(network: QNetwork, group: PyTree, level: int) -> QFunction:
        if level == NOTHING:
            return network
        chosen = at_level(group, level)
        if how == "loss" and not isinstance(chosen, SortingGroup):
            return network
        if atoms is None:
            return wrapped(network, chosen)
        return atom_by_atom(network, atoms, lambda one: wrapped(one, chosen))

    return enforced


class AtomHead(eqx.Module):
    """One atom of a head's logits: [actions]."""

    head: Any
    atom: Float[Array, " atoms"]
    """One there, zero elsewhere: its product is cheaper than a gather, whose gradient scatters."""

    def __call__(self, features: Float[Array, " features"]) -> Float[Array, " actions"]:
        """The logits of the atom."""
        return self.head(features) @ self.atom


def atom_by_atom(
    network: QNetwork, atoms: int, wrapper: Callable[[QNetwork], QFunction]
) -> Callable[[Any], Float[Array, "actions atoms"]]:
    """``wrapper`` on the logits of each atom as if they were values; the network runs once."""

    def logits(observation: Any) -> Float[Array, "actions atoms"]:
        def one(atom: Float[Array, " atoms"]) -> Float[Array, " actions"]:
            head = AtomHead(network.head, atom)
            return wrapper(QNetwork(network.encoder, head, network.scale))(observation)

        return jax.vmap(one, out_axes=1)(jnp.eye(atoms))

    return logits


def first_layer_shown(network: QNetwork) -> QFunction:
    """The same function with its first linear layer in sight, where it begins with one."""
    encoder = network.encoder
    if not isinstance(encoder, MLPEncoder):
        return network
    first, *others = encoder.linear_parts()
    assert first.bias is not None

    def rest(hidden: Float[Array, " width"]) -> Float[Array, " actions"]:
        # x Wᵀ, not W x: under a vmap over images inside one over a batch it takes half the time.
        x = encoder.activation(hidden)
        for layer in others:
            assert layer.bias is not None
            x = encoder.activation(x @ layer.weight.T + layer.bias)
        return network.head(x)

    return LinearFirst(first.weight, first.bias, rest, network.scale)


def random_image(
    group: Group, observation: Any, word: UInt32[Array, ""]
) -> tuple[Any, Int[Array, " actions"]]:
    """(T_g o, relabel[g]) for the element g that a random word picks, uniform on the group."""
    element = (word % jnp.maximum(group.order, 1).astype(jnp.uint32)).astype(jnp.int32)
    return group.transforms.at(element, observation), group.relabel[element]
