"""The numbers of a finished run, from its evaluation rows."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from gcr_rl.config import Config
from gcr_rl.evaluation import metrics


def curve_of(rows: Sequence[Mapping[str, Any]], seeds: Sequence[int]) -> metrics.Curve:
    """The learning curve; exact returns where every row has one, else episode means."""
    exact = all(row["exact_return"] is not None for row in rows)
    name = "exact_return" if exact else "mean_return"
    by_seed = {seed: [row for row in rows if row["seed"] == seed] for seed in seeds}
    steps = np.array([row["step"] for row in by_seed[seeds[0]]])
    returns = np.array([[row[name] for row in by_seed[seed]] for seed in seeds], float)
    return metrics.Curve(steps, returns, tuple(seeds))


def summarise(config: Config, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Final return per seed, their mean, spread and worst, and the mean over training."""
    curve = curve_of(rows, config.seeds)
    final = metrics.final_return(curve, config.steps)
    training = metrics.mean_training_return(curve, config.steps)
    return {
        "steps": config.steps,
        "seeds": list(config.seeds),
        "returns_are": "exact" if rows[0]["exact_return"] is not None else "sampled",
        "final_return": {
            "mean": float(np.mean(final)),
            "worst": float(np.min(final)),
            "std": metrics.across_seed_std(final) if len(final) > 1 else None,
            "per_seed": [float(value) for value in final],
        },
        "mean_training_return": {
            "mean": float(np.mean(training)),
            "per_seed": [float(value) for value in training],
        },
    }
