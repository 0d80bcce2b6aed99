"""Least-distance programs to machine precision: accelerated dual steps, then Newton.

Every problem of a batch is, at any iteration, in one of two modes that share one Cholesky
factorisation and two solves, so the batch runs in lockstep and nothing is computed twice:

- *interior*: one Mehrotra predictor–corrector step of the interior-point method;
- *polish*: the active set is fixed and the equality-constrained program is solved by two
  augmented-Lagrangian steps, exact when the set is right.

A problem starts with a few cheap first-order steps. If their support has settled it goes
straight to polish; otherwise, or when polish fails, it goes through the interior, whose own
active set is polished once it stops changing. The natural residual |min(λ, C y − b)| at
y = Cᵀλ decides; it is zero exactly at the solution.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from gcr_rl.kernels.isotonic_program import (
    Program,
    accelerated_dual,
    apply,
    apply_transpose,
    factorize,
    solve_factored,
)

FIRST_ORDER_STEPS = 32
SETTLED_WINDOW = 4
SETTLED_CHANGES = 2  # a support that moved by more is not worth a factorisation
STABLE_CHANGES = 1  # the interior's active set may move by this much and still be polished
POLISH_ROUNDS = 3
POLISH_GAIN = 0.7  # a further round must have something to gain
POLISH_WHILE_BELOW = 0.1  # residual above which the active set was simply wrong
LATE = 20  # iterations after which an interior that is still far off is left to diverge
NEAR = 1e-3
WARM_FLOOR = 0.05  # multipliers and slacks start at least this far inside
TO_BOUNDARY = 0.9995


class Precision(NamedTuple):
    """What a float type can bear: see :func:`precision`."""

    penalty: float
    first_penalty: float
    regularization: float
    tolerance: float
    acceptable: float
    certificate: float


def precision(dtype: jnp.dtype) -> Precision:
    """Penalty of a polish step, also of one that follows the first-order steps; damping of the
    interior step; residual to stop at and to accept; and how far, in units of the largest
    violation, a feasible point is looked for."""
    if dtype == jnp.float64:
        return Precision(1e9, 1e7, 1e-10, 1e-10, 1e-7, 1e6)
    return Precision(3e5, 3e3, 1e-6, 1e-6, 1e-4, 5e3)


class Iterate(NamedTuple):
    """What a problem of the batch carries from one Newton step to the next.

    ``rows`` is C y, ``polished`` the residual of the last polish in a row of them.
    """

    y: Float[Array, "batch nodes"]
    rows: Float[Array, "batch edges"]
    multipliers: Float[Array, "batch edges"]
    interior_y: Float[Array, "batch nodes"]
    interior_rows: Float[Array, "batch edges"]
    interior_multipliers: Float[Array, "batch edges"]
    slack: Float[Array, "batch edges"]
    active: Bool[Array, "batch edges"]
    polishing: Bool[Array, " batch"]
    rounds: Int[Array, " batch"]
    polished: Float[Array, " batch"]
    best_multipliers: Float[Array, "batch edges"]
    best_residual: Float[Array, " batch"]
    infeasible: Bool[Array, " batch"]
    done: Bool[Array, " batch"]
    iterations: Int[Array, " batch"]


class Dual(NamedTuple):
    """Multipliers of a solved program: y = Cᵀ multipliers."""

    multipliers: Float[Array, "batch edges"]
    residual: Float[Array, " batch"]
    infeasible: Bool[Array, " batch"]
    iterations: Int[Array, " batch"]


def _start(program: Program, num_nodes: int) -> tuple[Iterate, Int[Array, " batch"]]:
    """First-order steps, and how far from settled each problem's support still is."""
    batch, dtype = program.bound.shape[0], program.bound.dtype
    multipliers, moved = accelerated_dual(program, num_nodes, FIRST_ORDER_STEPS, SETTLED_WINDOW)
    y = apply_transpose(program, multipliers, num_nodes)
    rows = apply(program, y)
    live = program.live
    trivial = ~jnp.any(live & (program.bound > 0), 1)
    state = Iterate(
        y=y,
        rows=rows,
        multipliers=multipliers,
        interior_y=y,
        interior_rows=rows,
        interior_multipliers=jnp.where(live, jnp.maximum(multipliers, WARM_FLOOR), 1.0),
        slack=jnp.where(live, jnp.maximum(rows - program.bound, WARM_FLOOR), 1.0),
        active=jnp.zeros_like(live),
        polishing=~trivial & (moved <= SETTLED_CHANGES),
        rounds=jnp.zeros(batch, jnp.int32),
        polished=jnp.full(batch, jnp.inf, dtype),
        best_multipliers=jnp.zeros_like(multipliers),
        best_residual=jnp.where(trivial, 0.0, jnp.inf).astype(dtype),
        infeasible=jnp.zeros(batch, bool),
        done=trivial,
        iterations=jnp.zeros(batch, jnp.int32),
    )
    return state, moved


def _room(value: Array, change: Array, other: Array, other_change: Array) -> Array:
    """The largest t with value + t·change >= 0 and other + t·other_change >= 0."""
    shrink = jnp.maximum(-change / value, -other_change / other)
    return 1.0 / jnp.max(jnp.maximum(shrink, 1e-30), 1)


class _System(NamedTuple):
    """One linearisation: where it was taken and the factor of I + Cᵀ diag(stiffness) C."""

    y: Array
    rows: Array
    multipliers: Array
    stiffness: Array
    per_slack: Array
    primal: Array
    factor: Array


class _Step(NamedTuple):
    y: Array
    rows: Array
    multipliers: Array
    slack: Array
    active: Array
    ascent: Array


def _first(state: Iterate) -> Bool[Array, "batch 1"]:
    """Which problems polish what the first-order steps left, all of them well conditioned."""
    return (state.polishing & (state.iterations == 0))[:, None]


def _linearize(program: Program, state: Iterate, num_nodes: int) -> _System:
    limits = precision(program.bound.dtype)
    polishing = state.polishing[:, None]
    y = jnp.where(polishing, state.y, state.interior_y)
    rows = jnp.where(polishing, state.rows, state.interior_rows)
    inner = state.interior_multipliers
    active = program.live & (state.multipliers + (program.bound - rows) > 0)
    multipliers = jnp.where(polishing, jnp.where(active, state.multipliers, 0.0), inner)
    damped = state.slack + limits.regularization * inner
    per_slack = jnp.where(program.live, 1.0 / damped, 0.0)
    penalty = jnp.where(_first(state), limits.first_penalty, limits.penalty)
    stiffness = jnp.where(polishing, jnp.where(active, penalty, 0.0), inner * per_slack)
    factor = factorize(program, stiffness, num_nodes)
    primal = rows - program.bound - state.slack
    return _System(y, rows, multipliers, stiffness, per_slack, primal, factor)


def _direction(
    program: Program, system: _System, y: Array, multipliers: Array, pull: Array
) -> tuple[Array, Array, Array]:
    """(I + Cᵀ D C) Δy = Cᵀ(λ + pull) − y, and with it C Δy and Δλ = pull − D C Δy."""
    edges = jnp.where(program.live, multipliers, 0.0) + pull
    right = apply_transpose(program, edges, y.shape[1]) - y
    y_change = solve_factored(system.factor, right)
    rows_change = apply(program, y_change)
    return y_change, rows_change, pull - system.stiffness * rows_change


def _corrector_pull(
    program: Program, system: _System, slack: Array, rows_change: Array, change: Array
) -> Array:
    """Mehrotra's second-order and centring terms, from the predictor's outcome."""
    inner, damping = system.multipliers, precision(slack.dtype).regularization
    live = program.live.astype(slack.dtype)
    count = jnp.maximum(jnp.sum(live, 1), 1.0)
    slack_change = live * (rows_change + system.primal + damping * change)
    length = jnp.minimum(1.0, _room(slack, slack_change, inner, change))[:, None]
    mean = jnp.sum(live * slack * inner, 1) / count
    ahead = live * (slack + length * slack_change) * (inner + length * change)
    centring = mean * (jnp.sum(ahead, 1) / count / mean) ** 3
    complementarity = slack * inner + slack_change * change - centring[:, None]
    return -(complementarity + inner * system.primal) * system.per_slack


def _newton_step(program: Program, state: Iterate, num_nodes: int) -> _Step:
    """One factorisation, two solves.

    Interior: predictor and corrector. Polish: the first solve finds y on the active rows, the
    second the smallest change of λ that gives Cᵀλ = y; taking the first solve's own Δλ
    instead would put rounding errors, times the penalty, on every cycle of the graph. Only
    the first polish, with its small penalty, can afford two plain steps.
    """
    polishing, first, slack = state.polishing[:, None], _first(state), state.slack
    limits = precision(slack.dtype)
    system = _linearize(program, state, num_nodes)
    predictor = -(slack + system.primal) * system.multipliers * system.per_slack
    restore = system.stiffness * (program.bound - system.rows)
    pull = jnp.where(polishing, restore, predictor)
    y_change, rows_change, change = _direction(program, system, system.y, system.multipliers, pull)
    corrector = _corrector_pull(program, system, slack, rows_change, change)
    gap = program.bound - system.rows - rows_change
    noise = 4 * jnp.finfo(gap.dtype).eps * (1.0 + jnp.abs(program.bound))
    restore = jnp.where(first & (jnp.abs(gap) > noise), system.stiffness * gap, 0.0)
    pull = jnp.where(polishing, restore, corrector)
    y = jnp.where(polishing, system.y + y_change, system.y)
    multipliers = jnp.where(first, system.multipliers + change, system.multipliers)
    restoring = change
    y_change, rows_change, change = _direction(program, system, y, multipliers, pull)
    slack_change = rows_change + system.primal + limits.regularization * change
    slack_change = jnp.where(program.live, slack_change, 0.0)
    room = _room(slack, slack_change, state.interior_multipliers, change)
    length = jnp.where(polishing, 1.0, jnp.minimum(1.0, TO_BOUNDARY * room)[:, None])
    slack = jnp.where(polishing, slack, slack + length * slack_change)
    multipliers = multipliers + length * change
    return _Step(
        y=y + length * y_change,
        rows=system.rows + length * rows_change,
        multipliers=multipliers,
        slack=slack,
        active=program.live & (multipliers > slack),
        ascent=jnp.where(polishing, restoring, length * change),
    )


def _contradicts(program: Program, ascent: Array, num_nodes: int) -> Bool[Array, " batch"]:
    """Whether ``ascent`` proves that no feasible point is within reach.

    By Farkas: a feasible z gives bᵀd <= dᵀC z <= ‖Cᵀd‖₁ ‖z‖∞ for every d >= 0.
    """
    reach = precision(program.bound.dtype).certificate
    direction = jnp.where(program.live, jnp.maximum(ascent, 0.0), 0.0)
    doubt = jnp.sum(direction * program.noise, 1)
    image = jnp.sum(jnp.abs(apply_transpose(program, direction, num_nodes)), 1)
    return jnp.sum(direction * program.bound, 1) > reach * image + doubt


def _advance(program: Program, state: Iterate, num_nodes: int) -> Iterate:
    """Take one Newton step, judge it, keep the best, choose the next mode."""
    limits = precision(program.bound.dtype)
    step = _newton_step(program, state, num_nodes)
    polishing = state.polishing[:, None]
    live = program.live
    weighed = jnp.where(live, step.multipliers, 0.0)
    y = apply_transpose(program, weighed, num_nodes)
    rows = apply(program, y)
    natural = jnp.abs(jnp.minimum(step.multipliers, rows - program.bound))
    residual = jnp.max(jnp.where(live, natural, 0.0), 1)
    residual = jnp.where(jnp.isfinite(residual), residual, jnp.inf)
    better = (residual < state.best_residual) & ~state.done
    best_residual = jnp.where(better, residual, state.best_residual)
    infeasible = state.infeasible | (_contradicts(program, step.ascent, num_nodes) & ~state.done)
    settled = jnp.sum(step.active != state.active, 1) <= STABLE_CHANGES
    settled &= (state.iterations < LATE) | (residual < NEAR)
    again = (state.rounds + 1 < POLISH_ROUNDS) & (
        residual < jnp.minimum(POLISH_WHILE_BELOW, POLISH_GAIN * state.polished)
    )
    interior = {
        "interior_y": jnp.where(polishing, state.interior_y, step.y),
        "interior_rows": jnp.where(polishing, state.interior_rows, step.rows),
        "interior_multipliers": jnp.where(polishing, state.interior_multipliers, step.multipliers),
    }
    return Iterate(
        y=y,
        rows=rows,
        multipliers=jnp.where(polishing | step.active, step.multipliers, 0.0),
        slack=step.slack,
        active=jnp.where(polishing, state.active, step.active),
        polishing=jnp.where(state.polishing, again, settled),
        rounds=jnp.where(state.polishing, state.rounds + 1, 0),
        polished=jnp.where(state.polishing, residual, jnp.inf),
        best_multipliers=jnp.where(better[:, None], step.multipliers, state.best_multipliers),
        best_residual=best_residual,
        infeasible=infeasible,
        done=state.done | infeasible | (best_residual <= limits.tolerance),
        iterations=state.iterations + ~state.done,
        **interior,
    )


def _iterate(program: Program, state: Iterate, num_nodes: int, limit: int) -> Iterate:
    """At most ``limit`` Newton steps, until every problem is done."""

    def unfinished(carry: tuple[Array, Iterate]) -> Array:
        return (carry[0] < limit) & ~jnp.all(carry[1].done)

    def body(carry: tuple[Array, Iterate]) -> tuple[Array, Iterate]:
        return carry[0] + 1, _advance(program, carry[1], num_nodes)

    return lax.while_loop(unfinished, body, (jnp.zeros((), jnp.int32), state))[1]


def solve(program: Program, num_nodes: int, max_iterations: int, chunk: int) -> Dual:
    """argmin ½‖y‖² s.t. C y >= b for every problem of the batch.

    One Newton step for all of them, then ``chunk`` at a time, the easy ones first: a chunk
    ends with its slowest problem, and one that is done costs nothing.
    """
    batch = program.bound.shape[0]
    start, moved = _start(program, num_nodes)
    state = _iterate(program, start, num_nodes, 1)
    if batch <= chunk:
        state = _iterate(program, state, num_nodes, max_iterations - 1)
    else:
        queue = jnp.argsort(jnp.where(state.done, -1, moved))
        state = lax.cond(
            jnp.all(state.done),
            lambda state: state,
            lambda state: _in_chunks(program, state, num_nodes, max_iterations - 1, chunk, queue),
            state,
        )
    return Dual(state.best_multipliers, state.best_residual, state.infeasible, state.iterations)


def _in_chunks(
    program: Program,
    state: Iterate,
    num_nodes: int,
    limit: int,
    chunk: int,
    queue: Int[Array, " batch"],
) -> Iterate:
    batch = queue.shape[0]
    # The last chunk is filled up with the easiest problems, solved twice to the same end.
    filled = jnp.concatenate([queue, queue[: -batch % chunk]]).reshape(-1, chunk)
    parts = jax.tree.map(lambda leaf: leaf[filled], (program, state))
    solved = lax.map(lambda part: _iterate(part[0], part[1], num_nodes, limit), parts)
    place = jnp.argsort(queue)
    return jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:])[place], solved)
