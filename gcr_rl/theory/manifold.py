"""Guarantees of the hard route, on quadratic objectives over constrained slots."""

from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from gcr_rl.manifold import step
from gcr_rl.theory.row import Row
from gcr_rl.types import Comparisons

SLOTS = 8
# A diamond, 0 over 1 and 2 over 3: its four rows hold an undirected cycle; and a chain.
UPPER = np.array([0, 0, 1, 2, 4, 5], np.int32)
LOWER = np.array([1, 2, 3, 3, 5, 6], np.int32)
Floats = NDArray[np.float64]


def constraints(margin: float) -> Comparisons:
    """V[upper] >= V[lower] + margin on the diamond and the chain."""
    ones = jnp.ones(len(UPPER))
    return Comparisons(
        jnp.asarray(UPPER), jnp.asarray(LOWER), ones, margin * ones, ones, ones.astype(bool)
    )


def jacobian() -> Floats:
    """Rows of ∂r/∂V."""
    matrix = np.zeros((len(UPPER), SLOTS))
    matrix[np.arange(len(UPPER)), UPPER] = -1.0
    matrix[np.arange(len(LOWER)), LOWER] = 1.0
    return matrix


def tangent_projector() -> Floats:
    """P = I − J†J."""
    matrix = jacobian()
    return np.eye(SLOTS) - np.linalg.pinv(matrix) @ matrix


@lru_cache(maxsize=8)
def _compiled(operator: Any) -> Any:
    """The step with its set searched to the end; values, gradient, margin, η, λ."""

    def call(values: Any, gradient: Any, margin: Any, size: Any, shrink: Any) -> Any:
        return operator(
            values, None, gradient, constraints(1.0)._replace(margin=margin),
            step_size=size, contraction=shrink, ascents=64, rounds=4,
        )  # fmt: skip

    return jax.jit(call)


def _tight_values(seed: int, margin: float) -> Floats:
    """Values at which all rows hold with equality."""
    level = np.array([2.0, 1.0, 1.0, 0.0, 2.0, 1.0, 0.0, 0.0])
    return margin * level + np.array([0.3] * 4 + [-0.2] * 3 + [seed], np.float64)


def _squeezing(seed: int) -> Floats:
    """A gradient whose descent breaks every row, plus something along the tangent space."""
    draw = np.random.default_rng(seed)
    pressure = 0.5 + draw.random(len(UPPER))
    along = tangent_projector() @ draw.normal(size=SLOTS)
    return -jacobian().T @ pressure + along


def tangent(quick: bool, operator: Any = step) -> Row:
    """max |J Δ_tan| at tight rows under gradients that press on all of them."""
    call, worst = _compiled(operator), 0.0
    margin = jnp.full(len(UPPER), 0.5)
    for seed in range(3 if quick else 20):
        values, gradient = _tight_values(seed, 0.5), _squeezing(seed)
        moved, _, _ = call(*_floats(values, gradient), margin, 1.0, 1.0)
        worst = max(worst, np.abs(jacobian() @ (np.asarray(moved) - values)).max())
    what = "max |J Δ_tan| at tight rows"
    return Row("tangent-feasible", "thm:tangent-normal", what, "at most", 0.0, float(worst), 1e-4)


def _floats(*arrays: Any) -> list[Any]:
    return [jnp.asarray(array, jnp.float32) for array in arrays]


def normal(quick: bool, operator: Any = step) -> Row:
    """½‖c‖² after a normal step of gain λ over that before, against (1 − λ)²; the worst λ."""
    call, worst = _compiled(operator), 0.0
    # The diamond is slack; the chain's two rows are broken and independent.
    margin = jnp.asarray([-9.0] * 4 + [0.4, 0.7], jnp.float32)
    values = np.array([9.0, 4.5, 4.5, 0.0, 0.0, 0.5, 1.0, 0.0])
    for shrink in (0.25,) if quick else (0.1, 0.25, 0.5, 0.75):
        _, _, stats = call(*_floats(values, np.zeros(SLOTS)), margin, 1.0, shrink)
        worst = max(worst, abs(float(stats.contraction) ** 2 - (1 - shrink) ** 2))
    what = "max over λ of |‖c⁺‖²/‖c‖² − (1 − λ)²|"
    return Row("normal-contraction", "thm:tangent-normal", what, "equal", 0.0, worst, 1e-3)


def _quadratic(seed: int) -> tuple[Floats, Floats]:
    """A Hessian with eigenvalues 0.5..4 and a random offset."""
    draw = np.random.default_rng(seed)
    basis, _ = np.linalg.qr(draw.normal(size=(SLOTS, SLOTS)))
    return basis @ np.diag(np.linspace(0.5, 4.0, SLOTS)) @ basis.T, draw.normal(size=SLOTS)


def _restricted(hessian: Floats) -> Floats:
    """Eigenvalues of H on the tangent space."""
    values, vectors = np.linalg.eigh(tangent_projector())
    basis = vectors[:, values > 0.5]
    return np.linalg.eigvalsh(basis.T @ hessian @ basis)


class _Objective(NamedTuple):
    """½(V − y)ᵀH(V − y) + pᵀV, with p a pressure on every row so strong that all stay tight."""

    hessian: Floats
    centre: Floats
    pressure: Floats

    def slope(self, v: Floats) -> Floats:
        return self.hessian @ (v - self.centre) + self.pressure

    def value(self, v: Floats) -> float:
        off = v - self.centre
        return float(0.5 * off @ self.hessian @ off + self.pressure @ v)


def _descents(quick: bool, operator: Any) -> list[tuple[list[float], list[float], float, float]]:
    """Runs of the step at η = 1/L_T from values at which all rows are tight:
    (objective − optimum on the tangent space, ‖P g‖² before each step, μ_T, L_T)."""
    call, projector = _compiled(operator), tangent_projector()
    margin, start = jnp.full(len(UPPER), 0.5), _tight_values(0, 0.5)
    pressure = -jacobian().T @ np.full(len(UPPER), 8.0)
    runs = []
    for seed in range(2 if quick else 8):
        hessian, offset = _quadratic(seed)
        objective = _Objective(hessian, start + projector @ offset, pressure)
        inside = projector @ hessian @ projector
        best = start - projector @ np.linalg.pinv(inside) @ projector @ objective.slope(start)
        spectrum = _restricted(hessian)
        losses, slopes, v = [objective.value(start) - objective.value(best)], [], start
        for _ in range(6):
            gradient = objective.slope(v)
            slopes.append(float(np.sum((projector @ gradient) ** 2)))
            moved, _, _ = call(*_floats(v, gradient), margin, float(1.0 / spectrum[-1]), 1.0)
            v = np.asarray(moved, np.float64)
            losses.append(objective.value(v) - objective.value(best))
        runs.append((losses, slopes, float(spectrum[0]), float(spectrum[-1])))
    return runs


def descent(quick: bool, operator: Any = step) -> Row:
    """max of L(V⁺) − L(V) + γ‖P g‖², γ = η − L_T η²/2, relative to the first gap."""
    worst = -np.inf
    for losses, slopes, _, smooth in _descents(quick, operator):
        gain = 0.5 / smooth
        for (before, after), slope in zip(pairwise(losses), slopes, strict=True):
            worst = max(worst, (after - before + gain * slope) / losses[0])
    what = "max (L⁺ − L + γ‖P g‖²) / L₀"
    return Row(
        "restricted-descent", "thm:restricted-descent", what, "at most", 0.0, float(worst), 1e-3
    )


def linear_rate(quick: bool, operator: Any = step) -> Row:
    """Largest (L⁺/L) / (1 − μ_T/L_T) while the gap is far above rounding."""
    worst = 0.0
    for losses, _, strong, smooth in _descents(quick, operator):
        for before, after in pairwise(losses):
            if before > 0.02 * losses[0]:
                worst = max(worst, after / before / (1 - strong / smooth))
    what = "largest factor of a step / (1 − μ_T/L_T)"
    return Row("linear-rate", "thm:restricted-descent", what, "at most", 1.0, worst, 0.01)


def spectral_radius(quick: bool, projector: Any = None) -> Row:
    """Largest ρ(P J) / ρ(J) over symmetric J = I − ηH. (False for other J: docs/theory.md.)"""
    matrix = tangent_projector() if projector is None else projector
    ratios = []
    for seed in range(10 if quick else 100):
        hessian, _ = _quadratic(seed)
        update = np.eye(SLOTS) - 0.3 * hessian
        ratios.append(radius(matrix @ update) / radius(update))
    what = "largest ρ(PJ)/ρ(J), J symmetric"
    return Row("spectral-radius", "thm:restricted-linear", what, "at most", 1.0, max(ratios), 1e-9)


def radius(matrix: Floats) -> float:
    """Spectral radius."""
    return float(np.abs(np.linalg.eigvals(matrix)).max())
