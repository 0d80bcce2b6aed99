"""Hard constraints on value slots: steps along them, across them, and back onto them."""

from gcr_rl.manifold.constraints import Equalities, subsample
from gcr_rl.manifold.step import StepStats, step

__all__ = ["Equalities", "StepStats", "step", "subsample"]
