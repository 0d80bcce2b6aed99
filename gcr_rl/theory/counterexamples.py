"""Where a statement of the paper does not hold as written: the case, and what it measures.

Each function returns what the statement claims and what its counter-example gives. The rows of
``gcr theory`` test the statements that do hold in their place; docs/theory.md tells which.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from gcr_rl.envs import probes
from gcr_rl.manifold import step
from gcr_rl.order import project
from gcr_rl.symmetry import close_group
from gcr_rl.theory.learning import project_all, residuals, values_of, window_variance
from gcr_rl.theory.manifold import jacobian, radius
from gcr_rl.theory.projecting import NODES, comparisons, project_rows
from gcr_rl.types import Comparisons


class Counterexample(NamedTuple):
    """``measured`` would have to be at most ``claimed``."""

    label: str
    claim: str
    claimed: float
    measured: float


def spectral_radius() -> Counterexample:
    """J = [[0, 4], [0, 0]] and P onto (1, 1)/√2: ρ(J) = 0, PJ = [[0, 2], [0, 2]]."""
    update, projector = np.array([[0.0, 4.0], [0.0, 0.0]]), np.full((2, 2), 0.5)
    claim = "ρ(PJ) <= ρ(J) for every J"
    return Counterexample(
        "thm:restricted-linear", claim, radius(update), radius(projector @ update)
    )


def strict_norm() -> Counterexample:
    """J = diag(1, ½) leaves the first axis, yet ‖PJ‖ = ‖J‖ = 1: measured is 1 − (‖J‖ − ‖PJ‖)."""
    update, projector = np.diag([1.0, 0.5]), np.diag([1.0, 0.0])
    gap = np.linalg.norm(update, 2) - np.linalg.norm(projector @ update, 2)
    claim = "‖PJ‖ < ‖J‖ if Range(J) is not inside Range(P)"
    return Counterexample("lem:proj-contract", claim, 1.0 - 1e-9, float(1.0 - gap))


def variance_of_one_slot() -> Counterexample:
    """A slot known well, ordered above one known badly, catches its noise."""
    draws = np.random.default_rng(0).normal(size=(512, NODES))
    draws[:, 0] *= 0.01
    moved = project_all(draws, [(0, 1)], project)
    claim = "the projection lowers the variance of every value (it does lower their sum)"
    return Counterexample("lem:var-noninc", claim, draws[:, 0].var(), moved[:, 0].var())


def penalty_too_strong() -> Counterexample:
    """V <- V − η(V + λ∇G) + ξ with ηλ above the stable step: more λ, far more variance."""
    claim = "the variance falls with λ, for every λ"
    plain, strong = (window_variance(1.0, penalty, 60) for penalty in (0.0, 12.0))
    return Counterexample("thm:stability", claim, plain, strong)


def order_collapse() -> Counterexample:
    """A chain (W = 1) whose values lie ten deviations apart: nothing to pool, so the degrees of
    freedom are all NODES of them, not W."""
    truth = 10.0 * np.arange(NODES)[::-1]
    draws = truth + np.random.default_rng(1).normal(size=(512, NODES))
    moved = project_all(draws, [(i, i + 1) for i in range(NODES - 1)], project)
    claim = "degrees of freedom fall to W(D*)"
    freedom = float(np.mean(np.sum((moved - truth) ** 2, axis=1)))
    return Counterexample("thm:oracle-speedups", claim, 1.0, freedom)


def residual_increase() -> Counterexample:
    """Probe-Order at V = V*, projected onto its true order with a margin δ = 1 that is more than
    some of the true gaps: the residual rises from 0."""
    environment = probes.known_order()
    upper, lower = zip(*environment.planted_order(environment.default_params), strict=True)
    truth = values_of(environment)[None]
    moved = project_rows(truth, [comparisons(upper, lower, margin=1.0)], project)
    before, after = residuals(environment, truth), residuals(environment, moved)
    claim = "order alignment with a margin δ >= 0 lowers the Bellman residual overall"
    return Counterexample("thm:bellman", claim, float(before[0]), float(after[0]))


def trivial_bank() -> Counterexample:
    """W_k = I, Π_k = I for all k: every term of L_sym that asks for a group is zero and so is
    L_eq for any Q, whatever the group of the MDP. Measured: elements that are not the identity
    that a vanishing loss guarantees; claimed 1 stands for 'some'."""
    identity = jnp.broadcast_to(jnp.eye(4), (4, 4, 4))
    closed = close_group(identity, identity)
    loss = float(closed.stats.residual_transform[-1] + closed.stats.residual_permutation[-1])
    features = np.random.default_rng(3).normal(size=(32, 4))
    loss += float(np.abs(features - features @ np.asarray(closed.transforms[1]).T).max())
    claim = "L_sym -> 0 forces the bank to the true group (loss of a bank of identities, negated)"
    return Counterexample("thm:ident", claim, -1e-3, -loss)


def shared_noise() -> Counterexample:
    """One noisy target turned into its eight views is still one target: averaging them leaves
    its variance as it was."""
    target = np.random.default_rng(4).normal(size=4096)
    views = np.repeat(target[:, None], 8, axis=1)
    claim = "variance falls by 1 + (K−1)ρ = 8 when every sample is seen in eight views"
    return Counterexample("thm:amp", claim, target.var() / 8, views.mean(axis=1).var())


def singular_system() -> Counterexample:
    """A diamond and a chain, six rows, rank five: (JJᵀ)⁻¹ does not exist. Measured: rows minus
    rank."""
    matrix = jacobian()
    missing = len(matrix) - np.linalg.matrix_rank(matrix @ matrix.T)
    return Counterexample("eq:tan-step", "JJᵀ can be inverted on a DAG", 0.0, float(missing))


def frozen_gaps() -> Counterexample:
    """V(0) = V(1) tight, and the gradient pulls them apart, into the feasible set. The tangent
    *space* does not let them move; the tangent cone does. Measured: by how much less the loss
    falls with the former (1 of 1)."""
    gradient = np.array([-1.0, 1.0])
    row = np.array([[-1.0, 1.0]])
    space = gradient - np.linalg.pinv(row) @ (row @ gradient)
    one = jnp.ones(1)
    zero = jnp.zeros(1, jnp.int32)
    order = Comparisons(zero, zero + 1, one, 0.0 * one, one, one.astype(bool))
    moved, _, _ = step(jnp.zeros(2), None, jnp.asarray(gradient, jnp.float32), order)
    possible, taken = -float(gradient @ np.asarray(moved)), float(gradient @ space)
    claim = "−P_tan g is the steepest feasible descent (share of it that is lost)"
    return Counterexample("eq:tan-step", claim, 0.0, 1.0 - taken / possible)


COUNTEREXAMPLES: dict[str, Callable[[], Counterexample]] = {
    "spectral-radius": spectral_radius,
    "strict-norm": strict_norm,
    "variance-of-one-slot": variance_of_one_slot,
    "penalty-too-strong": penalty_too_strong,
    "order-collapse": order_collapse,
    "residual-increase": residual_increase,
    "trivial-bank": trivial_bank,
    "shared-noise": shared_noise,
    "singular-system": singular_system,
    "frozen-gaps": frozen_gaps,
}
