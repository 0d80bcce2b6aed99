"""The paper's guarantees as measurements: one row each, predicted against measured."""

from collections.abc import Callable, Iterator

from gcr_rl.errors import unknown_name
from gcr_rl.theory import learning, manifold, order, symmetry
from gcr_rl.theory.row import Row

GUARANTEES: dict[str, Callable[..., Row]] = {
    "greedy-acyclic": order.acyclic,
    "greedy-maximal": order.maximal,
    "penalty-violation": order.penalty_violation,
    "penalty-limit": order.penalty_limit,
    "path-accumulation": order.path_accumulation,
    "projection-nonexpansive": order.nonexpansive,
    "projection-variance": order.variance,
    "order-feasible": order.feasible,
    "tangent-feasible": manifold.tangent,
    "normal-contraction": manifold.normal,
    "restricted-descent": manifold.descent,
    "linear-rate": manifold.linear_rate,
    "spectral-radius": manifold.spectral_radius,
    "closure-residuals": symmetry.closure,
    "sample-amplification": symmetry.amplification,
    "optimum-equivariant": symmetry.optimal_equivariance,
    "backup-commutes": symmetry.backup_commutes,
    "fixed-point-equivariant": symmetry.fixed_point,
    "group-identified": symmetry.identifiable,
    "oracle-symmetry": learning.symmetry_speedup,
    "oracle-order": learning.order_speedup,
    "order-never-hurts": learning.order_never_hurts,
    "residual-decrease": learning.residual_decrease,
    "structural-consistency": learning.structural_consistency,
    "stability": learning.stability,
    "bias-variance": learning.bias_variance,
    "structural-bias": learning.structural_bias,
}


def measure(only: str | None = None, quick: bool = False) -> Iterator[Row]:
    """Measure every guarantee, or the one named, in order; rows come as they are done."""
    if only is not None and only not in GUARANTEES:
        raise unknown_name("only", only, GUARANTEES)
    for name in GUARANTEES if only is None else (only,):
        yield GUARANTEES[name](quick)


__all__ = ["GUARANTEES", "Row", "measure"]
