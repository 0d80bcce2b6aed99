"""One hard step: along the constraints for the gradient, across them for the violations.

Slots V, residuals r_e(V) = margin + discount·V[lower] − V[upper] <= 0, slack μ >= 0, pairs of
equal slots. With A the rows that hold the step back,

    Δ_tan = argmin ½‖d + η g‖²  s.t. J_A d = room,     Δ_nor = −λ J_A† c,    c = r + μ,
    V⁺ = V + Δ_tan + Δ_nor,                            μ⁺ = [μ − η_μ (r(V⁺) + μ)]₊

(eqs. tan-step, nor-step, update). Where a row is tight its room is 0 and Δ_tan = −η P_tan g.
A row is in A if its multiplier is positive or if the step would break it: the tangent *cone*,
so a tight row does not hold back a gradient that leads away from it. At λ = 1, with fresh
slack and A settled, V⁺ is the projection of V − η g onto the constraints.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from gcr_rl.errors import InputError
from gcr_rl.manifold.active_set import first_guess, revise
from gcr_rl.manifold.constraints import (
    Equalities,
    Rows,
    as_comparisons,
    broken_by,
    check_shapes,
    make_rows,
    raise_if_known,
    residual,
    violation,
    worst,
)
from gcr_rl.manifold.correction import exactly, nearest_in_sweeps
from gcr_rl.manifold.normal_equations import Direction, constrained
from gcr_rl.order import project
from gcr_rl.types import Comparisons

Scalar = float | Float[Array, ""]
DENSE_SLOTS = 256  # more slots than this: conjugate gradients (benchmarks/manifold_step.py)


class StepStats(NamedTuple):
    """What a step saw and did; NaN, 0 or False if an input was not a number.

    Violations are the largest over the rows. ``active`` counts the rows that held the step
    back. ``accepted``: the gate let the tangent part pass. ``fallback``: a correction was
    needed. ``tangent_residual`` is max_A |J Δ_tan − room|; ``contraction`` is
    ‖c + J Δ_nor‖ / ‖c‖ over A (0 where c is).
    """

    violation_before: Float[Array, ""]
    violation_after: Float[Array, ""]
    active: Int[Array, ""]
    accepted: Bool[Array, ""]
    fallback: Bool[Array, ""]
    tangent_residual: Float[Array, ""]
    contraction: Float[Array, ""]


class Options(NamedTuple):
    """The static choices of :func:`step`, under its names."""

    tolerance: float
    damping: float
    ascents: int
    rounds: int
    through_solver: bool


def step(
    values: Float[Array, " slots"],
    slack: Float[Array, " edges"] | None,
    gradient: Float[Array, " slots"],
    constraints: Comparisons,
    *,
    frozen: Bool[Array, " slots"] | None = None,
    equalities: Equalities | None = None,
    step_size: Scalar = 1.0,
    contraction: Scalar = 1.0,
    slack_rate: Scalar = 1.0,
    tolerance: float = 1e-4,
    damping: float = 1e-3,
    ascents: int = 8,
    rounds: int = 1,
    bounds_only: bool = False,
    through_solver: bool = False,
) -> tuple[Float[Array, " slots"], Float[Array, " edges"], StepStats]:
    """V⁺ = V + Δ_tan + Δ_nor, corrected until no constraint is broken by more than
    ``tolerance`` (if they can all hold), μ⁺, and :class:`StepStats`. Unbatched: vmap it.

    ``slack`` None means fresh slack, μ = [−r(V)]₊. ``step_size`` is η, ``contraction`` λ in
    [0, 1], ``slack_rate`` η_μ. ``ascents`` cheap dual steps guess A and ``rounds`` solves
    revise it (more of either: nearer to the projection); what they leave is corrected. The
    gate takes the tangent part only if the result breaks no more than V did and, if V broke
    nothing, is no farther from V − η g than V is; otherwise the normal part alone.

    ``bounds_only`` (static) promises that every row has discount 0 and there are no equalities;
    then all of this is elementwise. ``through_solver`` (static) lets gradients pass through the
    solve with A held fixed; by default V⁺ is a constant. Bad input raises outside jit; inside,
    values come back as they were and the violations are NaN.
    """
    options = Options(tolerance, damping, ascents, rounds, through_solver)
    _check_numbers(step_size, contraction, slack_rate, options)
    if bounds_only and equalities is not None:
        raise InputError("equalities", "given", "None with bounds_only")
    values, slack, gradient, constraints, equalities = jax.tree.map(
        jnp.asarray, (values, slack, gradient, constraints, equalities)
    )
    check_shapes(values, slack, gradient, constraints, frozen, equalities)
    if not through_solver:
        values, slack, gradient, constraints = lax.stop_gradient(
            (values, slack, gradient, constraints)
        )
    still = jnp.zeros(values.shape, bool) if frozen is None else jnp.asarray(frozen)
    rows, valid = make_rows(values, constraints, still, equalities)
    raise_if_known(values, gradient, valid)
    valid = valid & jnp.all(jnp.isfinite(values)) & jnp.all(jnp.isfinite(gradient))
    known = jnp.where(valid, values, 0.0)
    descent = -step_size * jnp.where(valid & ~still, gradient, 0.0)
    start = _slack(rows, known, slack)
    if bounds_only:
        moved, stats = _bounds_step(rows, known, descent, still, contraction, tolerance)
    else:
        aim = _aim(rows, known, start, descent, contraction)
        moved, stats = _general_step(rows, known, aim, still, options)
    short = residual(rows, moved)
    stats = stats._replace(violation_after=jnp.max(broken_by(rows, short), initial=0.0))
    following = jnp.maximum(start - slack_rate * (short + start), 0.0)
    return (
        jnp.where(valid, moved, values),
        following[: constraints.mask.shape[0]],
        _reported(stats, valid),
    )


def _slack(rows: Rows, values: Array, slack: Array | None) -> Float[Array, " rows"]:
    """The slack given, or [−r(V)]₊; none on equalities and masked rows."""
    start = jnp.maximum(-residual(rows, values), 0.0)
    if slack is not None:
        pairs = rows.mask.shape[0] - slack.shape[0]
        given = jnp.concatenate([slack, jnp.zeros(pairs, slack.dtype)])
        start = jnp.where(jnp.isfinite(given), jnp.maximum(given, 0.0), start)
    counts = rows.mask if rows.equal is None else rows.mask & ~rows.equal
    return jnp.where(counts, start, 0.0)


class _Aim(NamedTuple):
    """What each row asks of the step, J d <= room + shrink, and what the gradient asks."""

    descent: Float[Array, " slots"]
    room: Float[Array, " rows"]
    shrink: Float[Array, " rows"]
    slack_columns: Float[Array, " rows"]


def _aim(rows: Rows, values: Array, slack: Array, descent: Array, contraction: Scalar) -> _Aim:
    """Rows with c > 0 are to shrink by λ c, the others may be used up to their room −r."""
    short = residual(rows, values)
    excess = short + slack
    broken = excess > 0 if rows.equal is None else (excess > 0) | rows.equal
    # Slack that is overstated gives way together with the values, in least squares.
    columns = jnp.where((slack > 0) & broken, 1.0, 0.0).astype(values.dtype)
    room = jnp.where(broken, 0.0, -short)
    return _Aim(descent, room, jnp.where(broken, -contraction * excess, 0.0), columns)


def _directions(
    rows: Rows, aim: _Aim, chosen: Bool[Array, " rows"], options: Options
) -> tuple[Direction, Direction]:
    """Δ_tan and Δ_nor on a given set."""
    sides = [(aim.descent, aim.room), (jnp.zeros_like(aim.descent), aim.shrink)]
    dense = aim.descent.shape[0] <= DENSE_SLOTS
    tangent, normal = constrained(
        rows, chosen, sides, aim.slack_columns, damping=options.damping, dense=dense
    )
    return tangent, normal


def _search(
    rows: Rows, aim: _Aim, options: Options
) -> tuple[Bool[Array, " rows"], Direction, Direction]:
    """The set A and its directions, after ``rounds`` solves."""
    target = aim.room + aim.shrink
    chosen = first_guess(rows, aim.descent, target, options.ascents)
    tangent, normal = _directions(rows, aim, chosen, options)
    for _ in range(options.rounds - 1):
        multipliers = tangent.multipliers + normal.multipliers
        chosen = revise(rows, multipliers, tangent.image + normal.image, target)
        tangent, normal = _directions(rows, aim, chosen, options)
    return chosen, tangent, normal


def _general_step(
    rows: Rows, values: Array, aim: _Aim, frozen: Array, options: Options
) -> tuple[Float[Array, " slots"], StepStats]:
    chosen, tangent, normal = _search(rows, lax.stop_gradient(aim), options)
    if options.through_solver:
        tangent, normal = _directions(rows, aim, chosen, options)
    whole = values + tangent.x + normal.x
    across = values + normal.x
    moved, accepted, fallback = _gated(rows, values, whole, across, aim.descent, frozen, options)
    if options.through_solver:
        reached = jnp.where(accepted, whole, across)
        exact = project(reached, as_comparisons(rows), frozen=frozen).values
        # Where rows contradict each other there is no projection to differentiate.
        exact = jnp.where(worst(rows, exact) <= options.tolerance, exact, moved)
        moved = jnp.where(fallback, exact, reached)
    off = jnp.where(chosen, jnp.abs(tangent.image - aim.room), 0.0)
    excess = jnp.where(chosen, residual(rows, values) + aim.room, 0.0)
    before = jnp.sum(excess**2)
    left = jnp.sum(jnp.where(chosen, (excess + normal.image) ** 2, 0.0))
    stats = StepStats(
        violation_before=worst(rows, values),
        violation_after=jnp.zeros((), values.dtype),
        active=jnp.sum(chosen, dtype=jnp.int32),
        accepted=accepted,
        fallback=fallback,
        tangent_residual=jnp.max(off, initial=0.0),
        contraction=jnp.where(before > 0, jnp.sqrt(left / jnp.where(before > 0, before, 1.0)), 0.0),
    )
    return moved, stats


_Second = tuple[Array, Array, Array, Array, Array, Array]


def _gated(
    rows: Rows,
    values: Array,
    whole: Array,
    across: Array,
    descent: Array,
    frozen: Array,
    options: Options,
) -> tuple[Float[Array, " slots"], Bool[Array, ""], Bool[Array, ""]]:
    """The corrected V + Δ_tan + Δ_nor if it does not raise the merit, else the corrected
    V + Δ_nor; whether the tangent part was taken; whether anything was corrected."""
    rows, values, whole, across, descent = lax.stop_gradient((rows, values, whole, across, descent))
    tolerance, sweeps = options.tolerance, values.shape[0]
    noise = 0.5 * tolerance**2
    before = _merit(rows, values)
    broken = worst(rows, whole) > tolerance
    full = nearest_in_sweeps(rows, whole, frozen, broken, sweeps)
    # What sweeps cannot settle is left to the exact projection, which never raises the merit.
    settled = worst(rows, full) <= tolerance
    nearer = jnp.sum((full - values - descent) ** 2) <= jnp.sum(descent**2)
    accepted = ~settled | nearer | (before > noise)

    def otherwise(carry: _Second) -> _Second:
        # All it works on comes from the carry and changes there, or XLA would see that the
        # solver's input is always the same and move the solver out of the loop.
        _, full, _, whole, across, _ = carry
        part = jnp.where(_merit(rows, across) > before + noise, values, across)
        wrong = worst(rows, part) > tolerance
        part = nearest_in_sweeps(rows, part, frozen, wrong, sweeps)
        part = jnp.where(accepted, whole, part)
        exact = exactly(rows, part, frozen, worst(rows, part) > tolerance)
        # The projection is exact to a part of what it had to mend; sweeps close the rest.
        open_still = worst(rows, exact) > tolerance
        swept = nearest_in_sweeps(rows, exact, frozen, open_still, 16 * sweeps, only_above=True)
        exact = jnp.where(_merit(rows, swept) < _merit(rows, exact), swept, exact)
        # Contradictory rows have no projection: then the least broken of what there is.
        least = jnp.where(_merit(rows, exact) <= _merit(rows, full), exact, full)
        best = jnp.where(accepted, least, exact)
        better = _merit(rows, best) <= before + noise
        best = jnp.where(better, best, values)
        return jnp.zeros((), bool), best, jnp.where(accepted, broken, wrong), best, best, better

    # A loop of at most one round: under vmap it costs nothing while all first tries are good.
    start = (~(accepted & settled), full, broken, whole, across, jnp.ones((), bool))
    _, final, corrected, _, _, better = lax.while_loop(lambda carry: carry[0], otherwise, start)
    return final, accepted & better, corrected


def _merit(rows: Rows, values: Array) -> Float[Array, ""]:
    return 0.5 * jnp.sum(violation(rows, values) ** 2)


def _bounds_step(
    rows: Rows, values: Array, descent: Array, frozen: Array, contraction: Scalar, tolerance: float
) -> tuple[Float[Array, " slots"], StepStats]:
    """Slot by slot, with b the largest bound of a slot. The row is in A if V − η g falls short
    of V + λ [b − V]₊ − [V − b]₊; there Δ_tan uses up the room [V − b]₊ and Δ_nor = λ [b − V]₊.
    The correction is a maximum: V⁺ = max(V − η g, b) in the end, for any λ. The slack plays no
    part in it, as a bound has no second slot to share with."""
    margin = jnp.where(rows.mask, rows.margin, -jnp.inf)
    bound = jnp.full_like(values, -jnp.inf).at[rows.upper].max(margin, mode="promise_in_bounds")
    short = jnp.maximum(bound - values, 0.0)
    reached = jnp.where(bound > values, values + contraction * short, bound)
    held = ~frozen & (values + descent < reached)
    moved = jnp.where(held, reached, values + descent)
    final = jnp.where(frozen, values, jnp.maximum(moved, bound))
    before = jnp.sum(jnp.where(held, short, 0.0) ** 2)
    left = jnp.sum(jnp.where(held, bound - moved, 0.0) ** 2)
    stats = StepStats(
        violation_before=jnp.max(short),
        violation_after=jnp.zeros((), values.dtype),
        active=jnp.sum(held, dtype=jnp.int32),
        accepted=jnp.ones((), bool),
        fallback=jnp.any(final - moved > tolerance),
        tangent_residual=jnp.zeros((), values.dtype),
        contraction=jnp.where(before > 0, jnp.sqrt(left / jnp.where(before > 0, before, 1.0)), 0.0),
    )
    return final, stats


def _reported(stats: StepStats, valid: Array) -> StepStats:
    """NaN for numbers and False or 0 for the rest where the input was not valid."""

    def one(leaf: Array) -> Array:
        nothing = jnp.nan if jnp.issubdtype(leaf.dtype, jnp.floating) else 0
        return jnp.where(valid, leaf, jnp.asarray(nothing).astype(leaf.dtype))

    return StepStats(*(lax.stop_gradient(one(leaf)) for leaf in stats))


def _check_numbers(
    step_size: Scalar, contraction: Scalar, slack_rate: Scalar, options: Options
) -> None:
    """Hyper-parameters in range, where they are known; tracers pass."""
    limits = {
        "step_size": (step_size, 0.0, jnp.inf),
        "contraction": (contraction, 0.0, 1.0),
        "slack_rate": (slack_rate, 0.0, 1.0),
        "tolerance": (options.tolerance, 1e-12, jnp.inf),
        "damping": (options.damping, 1e-12, 1.0),
    }
    for name, (number, low, high) in limits.items():
        if not isinstance(number, jax.core.Tracer) and not low <= number <= high:
            raise InputError(name, number, f"a number in [{low}, {high}]")
    for name, count, least in (("ascents", options.ascents, 0), ("rounds", options.rounds, 1)):
        if not isinstance(count, int) or count < least:
            raise InputError(name, count, f"a whole number of at least {least}")
