"""From transitions to comparisons between value slots. No graphs, no groups.

A *value slot* is a number that may be compared: Q(s, a) of a sampled pair, or V(s). Each source
yields :class:`~gcr_rl.types.Comparisons`, value[upper] >= discount * value[lower] + margin, of
fixed size and masked. Nothing here carries a gradient. A NaN is never masked away: it stays in
the weight or the margin, where :func:`inspect` and the functions downstream report it.
"""

from enum import IntFlag
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int, Int32

from gcr_rl.errors import InputError
from gcr_rl.types import Comparisons, Segment

Scalar = float | Float[Array, ""]


class EvidenceResult(IntFlag):
    """What is wrong with unmasked comparisons; zero if nothing is."""

    SUCCESS = 0
    NOT_A_NUMBER = 1
    INDEX_OUT_OF_RANGE = 2
    DISCOUNT_OUT_OF_RANGE = 4
    NEGATIVE_MARGIN = 8


class VarianceScale(NamedTuple):
    """Running mean of the bootstrap variance: ``total / weight``, both decaying alike."""

    total: Float[Array, ""]
    weight: Float[Array, ""]


def init_variance_scale() -> VarianceScale:
    """Nothing seen yet."""
    return VarianceScale(jnp.zeros(()), jnp.zeros(()))


def update_variance_scale(
    scale: VarianceScale, next_q: Float[Array, "batch actions"], decay: Scalar
) -> VarianceScale:
    """One batch of Var_a' Q̄(s', a') into the running mean, unbiased from the first batch on."""
    mean = jnp.mean(jnp.var(lax.stop_gradient(next_q), axis=-1))
    return VarianceScale(
        decay * scale.total + (1.0 - decay) * mean, decay * scale.weight + (1.0 - decay)
    )


def nudge_scores(
    value: Float[Array, " batch"],
    target: Float[Array, " batch"],
    next_q: Float[Array, "batch actions"],
    scale: VarianceScale,
    *,
    temperature: Scalar,
    terminated: Bool[Array, " batch"] | None = None,
) -> tuple[Float[Array, " batch"], Float[Array, " batch"]]:
    """Nudges and their confidence-weighted scores (eq:td-target, eq:pref-score):

        Δ_i = y_i − V(s_i),   w_i = σ(Δ_i / τ) · exp(−Var_a' Q̄(s'_i, a') / scale).

    The running scale keeps exp from underflowing where returns are large. A true end has no
    bootstrap to disagree about: its confidence is 1.
    """
    _require_in_range("temperature", temperature, low=0.0, low_open=True)
    value, target, next_q = lax.stop_gradient((value, target, next_q))
    nudges = target - value
    variance = jnp.var(next_q, axis=-1)
    if terminated is not None:
        variance = jnp.where(terminated, 0.0, variance)
    usual = scale.total / jnp.maximum(scale.weight, jnp.finfo(scale.weight.dtype).tiny)
    # Before anything was seen, or where all bootstraps have agreed so far, only agreement counts.
    spread = jnp.where(variance == 0.0, 0.0, variance / jnp.maximum(usual, 1e-12))
    return nudges, jax.nn.sigmoid(nudges / temperature) * jnp.exp(-spread)


def nearest_neighbours(
    features: Float[Array, "batch width"], count: int
) -> Int[Array, "batch count"]:
    """For each row the ``count`` other rows of largest cosine, nearest first, ties by index."""
    batch = features.shape[0]
    if not 1 <= count < batch:
        raise InputError("neighbours", count, f"1..{batch - 1} for a batch of {batch}")
    features = lax.stop_gradient(features)
    norm = jnp.sqrt(jnp.sum(features**2, axis=-1, keepdims=True))
    unit = features / jnp.maximum(norm, 1e-12)
    cosine = jnp.where(jnp.eye(batch, dtype=bool), -jnp.inf, unit @ unit.T)
    return lax.top_k(cosine, count)[1]


def nudge(
    features: Float[Array, "batch width"],
    value: Float[Array, " batch"],
    target: Float[Array, " batch"],
    next_q: Float[Array, "batch actions"],
    scale: VarianceScale,
    *,
    neighbours: int,
    temperature: Scalar,
    percentile: Scalar,
    max_edges: int | None = None,
    margin: Scalar = 0.0,
    terminated: Bool[Array, " batch"] | None = None,
) -> Comparisons:
    """The paper's candidates (eq:pref-score): i -> j with weight w_i for j among the k nearest
    neighbours of i, if Δ_i > 0 and w_i is not below the p-th percentile of the batch's weights.

    Slots are the batch rows. Without ``max_edges`` the B·k comparisons come row by row, so that
    ``upper.reshape(B, k)`` is the per-node form; with it the heaviest M are kept, ties by index.
    """
    _require_rows(features=features, value=value, target=target, next_q=next_q)
    _require_in_range("percentile", percentile, low=0.0, high=100.0)
    nudges, score = nudge_scores(
        value, target, next_q, scale, temperature=temperature, terminated=terminated
    )
    near = nearest_neighbours(features, neighbours)
    # Negated comparisons let a NaN through, to be reported downstream.
    candidate = ~(nudges <= 0.0) & ~(score < jnp.percentile(score, percentile))
    lower = near.reshape(-1).astype(jnp.int32)
    upper = jnp.repeat(jnp.arange(len(value), dtype=jnp.int32), neighbours)
    weight, mask = jnp.repeat(score, neighbours), jnp.repeat(candidate, neighbours)
    level = jnp.broadcast_to(jnp.asarray(margin, weight.dtype), weight.shape)
    found = Comparisons(upper, lower, weight, level, jnp.ones_like(weight), mask)
    return found if max_edges is None else heaviest(found, max_edges)


def heaviest(comparisons: Comparisons, count: int) -> Comparisons:
    """The ``count`` unmasked comparisons of largest weight, heaviest first, ties by index."""
    if count < 1:
        raise InputError("max_edges", count, "a positive int")
    rank = jnp.where(comparisons.mask, comparisons.weight, -jnp.inf)
    _, kept = lax.top_k(rank, min(count, rank.shape[0]))
    return Comparisons(*(leaf[kept] for leaf in comparisons))


def returns(
    segment: Segment,
    bootstrap: Float[Array, " length"],
    upper: Int[Array, " length"],
    lower: Int[Array, " length"],
    *,
    discount: Scalar,
    horizon: int,
    starts: int | None = None,
) -> Comparisons:
    """Multi-step lower bounds on the action that was taken, for n = 1..horizon:

        Q(s_t, a_t) >= Σ_{i<n} γ^i r_{t+i} + γ^n V̄(s_{t+n}),

    without the bootstrap (discount 0) where step t+n−1 truly ended the episode, masked where the
    segment or its episode does not reach that far. Valid for Q* in a deterministic MDP; under
    noise see :func:`confident`.

    ``bootstrap[t]`` is V̄(s_{t+1}), a target value; ``upper[t]`` is the slot of Q(s_t, a_t),
    ``lower[t]`` that of V̄(s_{t+1}), which the caller keeps frozen. Only the first ``starts``
    steps (all of them if None) are bounded. Comparison t·horizon + n−1 is that of (t, n). Its
    weight is by how much the bound exceeds the lower end's value (zero at a true end).
    """
    _require_in_range("discount", discount, low=0.0, high=1.0)
    reward, terminated, alive = segment.steps.reward, segment.steps.terminated, segment.mask
    _require_rows(reward=reward, bootstrap=bootstrap, upper=upper, lower=lower)
    length = reward.shape[0]
    first = length if starts is None else starts
    if not 1 <= first <= length or horizon < 1:
        raise InputError("starts, horizon", (starts, horizon), f"1..{length} and at least 1")
    reward, bootstrap = lax.stop_gradient((reward, bootstrap))

    step = jnp.arange(first)[:, None] + jnp.arange(horizon)[None, :]
    inside, step = step < length, jnp.minimum(step, length - 1)
    ended = terminated[step]
    # An earlier true end inside the window cuts off all longer ones; alive[t] comes first.
    ended_before = jnp.cumsum(ended, axis=1) - ended > 0
    mask = inside & alive[step] & ~ended_before & alive[:first, None]
    powers = jnp.asarray(discount, reward.dtype) ** jnp.arange(horizon + 1)
    usable_reward = jnp.where(mask, reward[step], 0.0)
    margin = jnp.cumsum(usable_reward * powers[:-1], axis=1)
    power = jnp.where(ended, 0.0, powers[1:])
    excess = margin + jnp.where(ended, 0.0, (power - 1.0) * bootstrap[step])
    window = (first, horizon)
    uppers = jnp.broadcast_to(upper[:first, None], window)
    found = Comparisons(uppers, lower[step], excess, margin, power, mask)
    return flatten(found)


class Slots(NamedTuple):
    """Values of all slots of a batch of segments and which of them a projection may not move."""

    values: Float[Array, " slots"]
    frozen: Bool[Array, " slots"]


def batch_returns(
    segments: Segment,
    taken: Float[Array, "segments starts"],
    bootstrap: Float[Array, "segments length"],
    *,
    discount: Scalar,
    horizon: int,
) -> tuple[Comparisons, Slots]:
    """:func:`returns` over a batch of segments, with its slots.

    ``taken[b, t]`` is Q(s_t, a_t) of segment b, slot b·starts + t. The frozen target values
    ``bootstrap[b, t]`` = V̄(s_{t+1}) follow: slot S·starts + b·length + t.
    """
    count, length = bootstrap.shape
    starts = taken.shape[1] if taken.ndim == 2 else 0
    if taken.shape != (count, starts) or not 1 <= starts <= length:
        raise InputError("taken", taken.shape, f"({count}, starts) with starts in 1..{length}")
    upper = jnp.arange(count)[:, None] * starts + jnp.minimum(jnp.arange(length), starts - 1)
    lower = count * starts + jnp.arange(count * length).reshape(count, length)

    def one(segment: Segment, value: Array, upper: Array, lower: Array) -> Comparisons:
        return returns(
            segment, value, upper, lower, discount=discount, horizon=horizon, starts=starts
        )

    found = jax.vmap(one)(segments, bootstrap, upper.astype(jnp.int32), lower.astype(jnp.int32))
    values = jnp.concatenate([taken.reshape(-1), lax.stop_gradient(bootstrap).reshape(-1)])
    return flatten(found), Slots(values, jnp.arange(values.size) >= count * starts)


def confident(
    comparisons: Comparisons,
    sample_class: Int[Array, " edges"],
    num_classes: int,
    *,
    z: Scalar,
    prior_deviation: Scalar = 0.0,
) -> Comparisons:
    """One comparison per class of repeated samples, with a lower confidence bound as margin:

        margin = mean − z · s/√m   over the m unmasked samples of the class,

    s their standard deviation, or ``prior_deviation`` for a single sample. Single samples of a
    noisy return bias a one-sided bound upward; this is the remedy. Samples of one class share
    lower end and discount (:func:`fold` first if they do not). Each class keeps its first
    sample's place; the weight moves with the margin.
    """
    weight, margin, mask = comparisons.weight, comparisons.margin, comparisons.mask
    _require_rows(margin=margin, sample_class=sample_class)
    group = jnp.where(mask, sample_class, num_classes)

    def total(x: Array) -> Array:
        return jax.ops.segment_sum(jnp.where(mask, x, 0.0), group, num_classes + 1)[group]

    count = jnp.maximum(total(jnp.ones_like(margin)), 1.0)
    mean = total(margin) / count
    variance = total((margin - mean) ** 2) / jnp.maximum(count - 1.0, 1.0)
    deviation = jnp.where(count > 1.0, jnp.sqrt(variance), prior_deviation)
    bound = mean - z * deviation / jnp.sqrt(count)
    place = jnp.arange(margin.shape[0])
    leader = jax.ops.segment_min(place, group, num_classes + 1)[group] == place
    return comparisons._replace(
        weight=weight + bound - margin, margin=bound, mask=mask & leader & (group < num_classes)
    )


def fold(comparisons: Comparisons, values: Float[Array, " slots"]) -> Comparisons:
    """Bounds on the upper slots alone: discount 0, margin + discount · values[lower] as margin,
    for lower ends that are given numbers. The lower slot is then without meaning: the upper."""
    fixed = comparisons.discount * _at(values, comparisons.lower, jnp.nan)
    # Zero times an infinite value is NaN, and discount 0 asks for no value at all.
    fixed = jnp.where(comparisons.discount == 0.0, 0.0, fixed)
    return comparisons._replace(
        lower=comparisons.upper,
        margin=comparisons.margin + fixed,
        discount=jnp.zeros_like(comparisons.discount),
    )


def order_edges(
    comparisons: Comparisons, values: Float[Array, " slots"], *, margin: Scalar = 0.0
) -> Comparisons:
    """The comparisons that imply value[upper] >= value[lower]: margin + discount·v >= v at the
    lower end's (target) value v. Only these may enter a DAG or a poset.

    They come with discount 1, the given margin, and the excess margin + discount·v − v as
    weight. A bound without a lower end (discount 0) and a self-comparison imply no order.
    """
    lower_value = _at(values, comparisons.lower, jnp.nan)
    excess = comparisons.margin + (comparisons.discount - 1.0) * lower_value
    compares = (comparisons.discount > 0.0) & (comparisons.upper != comparisons.lower)
    return comparisons._replace(
        weight=excess,
        margin=jnp.full_like(comparisons.margin, margin),
        discount=jnp.ones_like(comparisons.discount),
        mask=comparisons.mask & compares & ~(excess < 0.0),
    )


def quotient(comparisons: Comparisons, class_of: Int[Array, " slots"]) -> Comparisons:
    """The same statements between equivalence classes. A class compared with itself says nothing
    about order and is masked; a bound on one slot (discount 0) stays. A slot that does not exist
    becomes class -1, which :func:`inspect` reports."""
    upper, lower = (_at(class_of, slot, -1) for slot in (comparisons.upper, comparisons.lower))
    between = (upper != lower) | (upper < 0) | (comparisons.discount == 0.0)
    return comparisons._replace(upper=upper, lower=lower, mask=comparisons.mask & between)


def merge(*sources: Comparisons) -> Comparisons:
    """All comparisons of several sources, in the order given."""
    if not sources:
        raise InputError("sources", sources, "at least one Comparisons")
    return Comparisons(*(jnp.concatenate(leaves) for leaves in zip(*sources, strict=True)))


def flatten(comparisons: Comparisons) -> Comparisons:
    """Comparisons with leading batch axes (from ``vmap``) as one list."""
    return Comparisons(*(leaf.reshape(-1) for leaf in comparisons))


def inspect(
    comparisons: Comparisons, num_nodes: int, *, negative_margins: bool = True
) -> Int32[Array, ""]:
    """An :class:`EvidenceResult` as an integer, under ``jit`` too; masked entries are free."""
    upper, lower, weight, margin, discount, mask = comparisons
    numbers = jnp.isnan(weight) | jnp.isnan(margin) | jnp.isnan(discount)
    outside = (upper < 0) | (upper >= num_nodes) | (lower < 0) | (lower >= num_nodes)
    faults = {
        EvidenceResult.NOT_A_NUMBER: numbers,
        EvidenceResult.INDEX_OUT_OF_RANGE: outside,
        EvidenceResult.DISCOUNT_OUT_OF_RANGE: (discount < 0.0) | (discount > 1.0),
        EvidenceResult.NEGATIVE_MARGIN: (margin < 0.0) & (not negative_margins),
    }
    code = sum(jnp.any(mask & fault) * int(flag) for flag, fault in faults.items())
    return jnp.asarray(code, jnp.int32)


def require_valid(
    comparisons: Comparisons, num_nodes: int, *, negative_margins: bool = True
) -> None:
    """Outside ``jit``: an :class:`InputError` for what :func:`inspect` finds."""
    lengths = {name: leaf.shape for name, leaf in comparisons._asdict().items()}
    if len(set(lengths.values())) != 1:
        raise InputError("comparisons", lengths, "six arrays of one length")
    found = EvidenceResult(int(inspect(comparisons, num_nodes, negative_margins=negative_margins)))
    accepted = {
        EvidenceResult.NOT_A_NUMBER: "no NaN in weight, margin or discount",
        EvidenceResult.INDEX_OUT_OF_RANGE: f"slots 0..{num_nodes - 1}",
        EvidenceResult.DISCOUNT_OUT_OF_RANGE: "discounts in [0, 1]",
        EvidenceResult.NEGATIVE_MARGIN: "margins of at least 0",
    }
    if found:
        wanted = "; ".join(text for flag, text in accepted.items() if flag in found)
        raise InputError("comparisons", found.name, wanted)


def _at(table: Array, slot: Int[Array, " edges"], missing: float) -> Array:
    """``table[slot]``, and ``missing`` for a slot that does not exist, where plain indexing would
    silently take the last one."""
    entries = lax.stop_gradient(jnp.asarray(table)).at[slot]
    return entries.get(mode="fill", fill_value=missing, wrap_negative_indices=False)


def _require_rows(**arrays: Any) -> None:
    """Every array has as many rows as the first."""
    (_, first), *_ = arrays.items()
    for name, array in arrays.items():
        if jnp.ndim(array) == 0 or jnp.shape(array)[0] != jnp.shape(first)[0]:
            raise InputError(name, jnp.shape(array), f"{jnp.shape(first)[0]} rows")


def _require_in_range(
    field: str, value: Any, *, low: float, high: float = float("inf"), low_open: bool = False
) -> None:
    """A concrete hyper-parameter in range; a traced one is its caller's care."""
    if isinstance(value, jax.core.Tracer):
        return
    above = value > low if low_open else value >= low
    if not (above and value <= high):
        limits = f"{'(' if low_open else '['}{low}, {high}]"
        raise InputError(field, value, f"a number in {limits}")
