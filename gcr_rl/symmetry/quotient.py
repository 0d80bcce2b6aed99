"""Exact and soft enforcement: wrap any unbatched Q function o -> [actions] (or policy logits).

The wrapped function satisfies Q(T_g o, relabel[g, a]) = Q(o, a) for every g of the group, at
observations that some g leaves unchanged as well.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int, PRNGKeyArray

from gcr_rl.errors import InputError
from gcr_rl.symmetry.folding import LinearFirst
from gcr_rl.symmetry.group import Group, buckets
from gcr_rl.symmetry.transforms import (
    BlockGather,
    Observation,
    check_observation,
    hash_observation,
)
from gcr_rl.types import Transition

QFunction = Callable[[Any], Float[Array, " actions"]]
Wrapper = Callable[[QFunction, Group], QFunction]


def reynolds(q_fn: QFunction, group: Group) -> QFunction:
    """Q(o, .) = mean_g Π_gᵀ q(T_g o, .): |G| forward passes.

    A :class:`LinearFirst` network shares its first layer's work over the group where the
    vocabulary has a fold; a group of capacity 1 returns ``q_fn`` itself.
    """
    if group.capacity == 1:
        return q_fn

    def averaged(observation: Observation) -> Float[Array, " actions"]:
        check_observation(observation, group.transforms.shape)
        values, place = _values_on_orbit(q_fn, group, jnp.asarray(observation))
        _check_actions(values, group)
        weights = group.valid.astype(values.dtype) / group.order.astype(values.dtype)
        terms = weights[:, None, None] * _pullback(group)
        mean = jnp.tensordot(jax.nn.one_hot(place, len(values), axis=0), terms, axes=1)
        return jnp.einsum("iab,ib->a", mean, values)

    return averaged


def quotient(q_fn: QFunction, group: Group) -> QFunction:
    """Q(o, .) = mean_{g in M} Π_gᵀ q(o*, .) with o* = T_g o, M = argmax_g hash(T_g o).

    o* is the same for the whole orbit, so one forward pass is enough. M is a coset of the
    stabiliser of o: the mean keeps the values equal on actions that T_g exchanges while it
    leaves o unchanged.
    """
    if group.capacity == 1:
        return q_fn

    def on_orbit(observation: Observation) -> Float[Array, " actions"]:
        canonical, tied = canonical_member(group, observation)
        values = q_fn(canonical)
        _check_actions(values, group)
        weights = tied.astype(values.dtype)
        mean = jnp.tensordot(weights / jnp.sum(weights), _pullback(group), axes=1)
        return jnp.sum(mean * values, axis=1)  # under vmap a product would be many tiny ones

    return on_orbit


def canonical_member(group: Group, observation: Observation) -> tuple[Observation, Array]:
    """(o*, tied): the member of o's orbit with the largest hash, and the g with T_g o = o*."""
    check_observation(observation, group.transforms.shape)
    observation = jnp.asarray(observation)
    scores = group.transforms.scores(observation)
    # A padded element is the identity: it never beats a valid one and is never counted.
    chosen = jnp.argmax(scores)
    return group.transforms.at(chosen, observation), (scores == scores[chosen]) & group.valid


def bucketed(wrapper: Wrapper, q_fn: QFunction, group: Group, level: Int[Array, ""]) -> QFunction:
    """``wrapper`` on the smallest bucket (1, 2, 4, ...) that holds the group.

    ``level`` is ``bucket_level(group)``, traced: when a certificate arrives nothing is
    compiled again, and at level 0 the cost is that of ``q_fn`` alone. Keep ``level`` out of
    any vmap over seeds (one level for all, the largest): a batched switch runs every branch.
    """
    wrapped = [wrapper(q_fn, group.trim(size)) for size in buckets(group.capacity)]
    if len(wrapped) == 1:
        return wrapped[0]
    # A switch hashes its branches, which a network full of traced arrays does not allow.
    branches = [lambda observation, f=function: f(observation) for function in wrapped]
    return lambda observation: lax.switch(level, branches, observation)


def equivariance_loss(
    q_fn: QFunction,
    group: Group,
    observation: Observation,
    alpha: Float[Array, " g"] | None = None,
) -> tuple[Float[Array, " g"], Float[Array, " g"]]:
    """(α_g ||Q(o, .) - Π_gᵀ Q(T_g o, .)||², α_g), padded elements 0; eq. Leq-vector-local.

    Unbatched; :func:`normalised_equivariance` joins a batch. No gradient goes through α.
    """
    values, place = _values_on_orbit(q_fn, group, observation)
    _check_actions(values, group)
    residual = q_fn(observation) - jnp.einsum("gab,gb->ga", _pullback(group), values[place])
    weights = group.valid.astype(values.dtype)
    if alpha is not None:
        weights = weights * lax.stop_gradient(alpha)
    return weights * jnp.sum(residual**2, axis=1), weights


def normalised_equivariance(
    weighted: Float[Array, "batch g"], weights: Float[Array, "batch g"], group: Group
) -> Float[Array, ""]:
    """(1/|G|) sum_g (sum_i α_ig residual_ig) / (sum_i α_ig + 1e-8), eq. Leq-vector-local."""
    per_element = jnp.sum(weighted, axis=0) / (jnp.sum(weights, axis=0) + 1e-8)
    return jnp.sum(per_element) / group.order


def transform_transitions(key: PRNGKeyArray, group: Group, transitions: Transition) -> Transition:
    """Each transition of a batch under its own random g: (T_g o, relabel[g, a], r, T_g o').

    g is uniform on the group; rewards and ends stay. This is what shared TD learns from.
    """
    count = transitions.action.shape[0]
    elements = jax.random.randint(key, (count,), 0, group.order)
    move = jax.vmap(group.transforms.at)
    return transitions._replace(
        observation=move(elements, transitions.observation),
        action=group.relabel[elements, transitions.action].astype(transitions.action.dtype),
        next_observation=move(elements, transitions.next_observation),
    )


def orbit_ids(group: Group, observations: Observation) -> Int[Array, " batch"]:
    """The first place in the batch whose observation lies in the same orbit."""
    return _first_equal(*_orbit_keys(group, observations)[:2])


def class_ids(
    group: Group, observations: Observation, actions: Int[Array, " batch"]
) -> Int[Array, " batch"]:
    """The first place whose pair (o, a) is T_g-equivalent: its value slot in the order room."""
    first, second, tied = _orbit_keys(group, observations)
    renamed = jnp.where(tied, group.relabel[:, actions].T, group.num_actions)
    return _first_equal(first, second, jnp.min(renamed, axis=1))


def _orbit_keys(group: Group, observations: Observation) -> tuple[Array, Array, Array]:
    """Two 32-bit keys that an orbit shares, and the elements that reach its canonical member."""

    def keys(observation: Observation) -> tuple[Array, Array, Array]:
        canonical, tied = canonical_member(group, observation)
        return hash_observation(canonical, 1), hash_observation(canonical, 2), tied

    return jax.vmap(keys)(observations)


def _first_equal(*keys: Int[Array, " batch"]) -> Int[Array, " batch"]:
    equal = jnp.stack([key[:, None] == key[None, :] for key in keys]).all(axis=0)
    return jnp.argmax(equal, axis=1).astype(jnp.int32)


def _values_on_orbit(
    q_fn: QFunction, group: Group, observation: Observation
) -> tuple[Float[Array, "images actions"], Int[Array, " g"]]:
    """q(T_g o, .) for every g, and the place of g among them.

    Putting them in the group's order would gather hidden layers, and a gather's gradient scatters.
    """
    fold = group.fold
    transforms, in_order = group.transforms, jnp.arange(group.capacity)
    if (
        isinstance(q_fn, LinearFirst)
        and fold is not None
        and isinstance(transforms, BlockGather)
        and group.capacity > fold.points.shape[1]
    ):
        hidden = fold.images(q_fn.weight, transforms.layout.split(observation)) * q_fn.scale
        place = fold.place[group.element]
        if group.capacity < len(hidden):
            hidden, place = hidden[place], in_order
        return jax.vmap(q_fn.rest)(hidden + q_fn.bias), place
    return jax.vmap(q_fn)(transforms.all(observation)), in_order


def _pullback(group: Group) -> Float[Array, "g actions actions"]:
    """Π_gᵀ: a product with it has a cheap gradient, where a gather's would be a scatter."""
    return jax.nn.one_hot(group.relabel, group.num_actions)


def _check_actions(values: Float[Array, "*g actions"], group: Group) -> None:
    if values.shape[-1] != group.num_actions:
        raise InputError(
            "q_fn", f"{values.shape[-1]} actions", f"the group's {group.num_actions} actions"
        )
