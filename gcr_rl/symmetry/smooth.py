"""Models of dynamics, rewards and ends for vectors: ridge and logistic regression.

Features are the monomials of the standardised observation up to the highest degree that the
sample carries. All fits are made on one half of the episodes and scored on the other.
"""

from itertools import combinations_with_replacement
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from gcr_rl.symmetry.lookup import CLIP

Matrix = Float[np.ndarray, "n d"]
MAX_DEGREE = 3
ROWS_PER_FEATURE = 6
CAP = 60.0
"""Squared errors count up to this multiple of the identity's mean; CAP / CLIP scales scores."""


def monomials(values: Matrix, degree: int) -> Matrix:
    """All products of up to ``degree`` coordinates, the constant first."""
    columns = [np.ones(len(values))]
    for size in range(1, degree + 1):
        columns += [
            np.prod(values[:, list(pick)], axis=1)
            for pick in combinations_with_replacement(range(values.shape[1]), size)
        ]
    return np.stack(columns, axis=1)


def affordable_degree(dimension: int, rows: int) -> int:
    """The highest degree up to MAX_DEGREE with ROWS_PER_FEATURE rows for every monomial."""
    degree, features = 1, 1 + dimension
    while degree < MAX_DEGREE:
        features = features * (dimension + degree + 1) // (degree + 1)
        if features * ROWS_PER_FEATURE > rows:
            break
        degree += 1
    return degree


class Regression(NamedTuple):
    """y = W_a φ(o) per action; y is o' - o, or the reward."""

    centre: Float[np.ndarray, " d"]
    spread: Float[np.ndarray, " d"]
    degree: int
    weight: Float[np.ndarray, "actions features d"]

    def predict(self, observation: Matrix, action: Int[np.ndarray, " n"]) -> Matrix:
        """W_a φ(o)."""
        features = monomials((observation - self.centre) / self.spread, self.degree)
        return np.einsum("nf,nfd->nd", features, self.weight[action])


def fit_regression(
    observation: Matrix, action: Int[np.ndarray, " n"], target: Matrix, num_actions: int
) -> Regression:
    """argmin_W sum ||y - W_a φ(o)||^2 + ridge ||W||^2, per action."""
    observation, target = observation.astype(float), target.astype(float)
    centre, spread = observation.mean(axis=0), observation.std(axis=0)
    spread = np.where(spread > 0, spread, 1.0)
    rows = min(int(np.sum(action == a)) for a in range(num_actions))
    degree = affordable_degree(observation.shape[1], rows)
    features = monomials((observation - centre) / spread, degree)
    weight = [
        _ridge(features[action == a], target[action == a]) for a in range(num_actions)
    ]  # fmt: skip
    return Regression(centre, spread, degree, np.stack(weight))


class Classifier(NamedTuple):
    """p(kind | o, a, o') = logistic(w φ(o, a, o')), one per kind of outcome."""

    centre: Float[np.ndarray, " d"]
    spread: Float[np.ndarray, " d"]
    weight: Float[np.ndarray, "kinds features"]

    def margins(
        self, observation: Matrix, following: Matrix, relabelled: Matrix
    ) -> Float[np.ndarray, "n kinds"]:
        """Log odds of every kind."""
        return self.features(observation, following, relabelled) @ self.weight.T

    def features(self, observation: Matrix, following: Matrix, one_hot: Matrix) -> Matrix:
        """Squares and products of o and of o' (apart), and the action."""
        parts = [monomials((o - self.centre) / self.spread, 2) for o in (observation, following)]
        return np.concatenate([*parts, one_hot], axis=1)


def fit_classifier(
    observation: Matrix,
    following: Matrix,
    one_hot: Matrix,
    kind: Int[np.ndarray, " n"],
    kinds: int,
) -> Classifier:
    """Class-balanced logistic regression of [kind = c] for c = 1..kinds, by Newton's method."""
    centre, spread = observation.mean(axis=0), observation.std(axis=0)
    spread = np.where(spread > 0, spread, 1.0)
    blank = Classifier(centre, spread, np.zeros((kinds, 1)))
    features = blank.features(observation, following, one_hot)
    weight = [_logistic(features, kind == c) for c in range(1, kinds + 1)]
    return Classifier(centre, spread, np.stack(weight))


def kind_scores(
    margins: Float[np.ndarray, "n kinds"], kind: Int[np.ndarray, " n"]
) -> Float[np.ndarray, " n"]:
    """Clipped log-likelihood: of kind c > 0 by its classifier, of kind 0 by the worst of all."""
    positive = -np.logaddexp(0.0, -margins)
    negative = -np.logaddexp(0.0, margins)
    own = np.take_along_axis(positive, np.maximum(kind - 1, 0)[:, None], axis=1)[:, 0]
    return np.maximum(np.where(kind > 0, own, negative.min(axis=1)), -CLIP)


def error_scores(
    error: Float[np.ndarray, "*n"], unit: Float[np.ndarray, "*d"]
) -> Float[np.ndarray, "*n"]:
    """-min(error² / unit², CAP) · CLIP / CAP: -CLIP is the worst there is."""
    return -np.minimum(np.square(error / unit), CAP) * (CLIP / CAP)


def error_unit(error: Float[np.ndarray, "n d"], spread: Float[np.ndarray, " d"]) -> np.ndarray:
    """The root mean square of the identity's errors, capped ones as the cap; not below spread/1000.

    Solves unit² = mean min(error², CAP unit²) by iteration from the median upwards.
    """
    square = np.square(error)
    unit = np.maximum(2.2 * np.median(square, axis=0), 1e-6 * np.square(spread))
    for _ in range(20):
        unit = np.maximum(np.minimum(square, CAP * unit).mean(axis=0), 1e-6 * np.square(spread))
    return np.sqrt(np.maximum(unit, 1e-30))


def _ridge(features: Matrix, target: Matrix, strength: float = 1e-9) -> Matrix:
    count = max(len(features), 1)
    normal = features.T @ features / count + strength * np.eye(features.shape[1])
    return np.linalg.solve(normal, features.T @ target / count)


def _logistic(
    features: Matrix, positive: Bool[np.ndarray, " n"], strength: float = 1e-3, rounds: int = 25
) -> Float[np.ndarray, " features"]:
    share = np.clip(positive.mean(), 1e-9, 1 - 1e-9)
    balance = np.where(positive, 0.5 / share, 0.5 / (1 - share)) / len(features)
    weight = np.zeros(features.shape[1])
    penalty = strength * np.eye(features.shape[1])
    for _ in range(rounds):
        chance = 1.0 / (1.0 + np.exp(-np.clip(features @ weight, -30, 30)))
        slope = features.T @ (balance * (chance - positive)) + strength * weight
        curve = (features * (balance * np.maximum(chance * (1 - chance), 1e-6))[:, None]).T
        weight = weight - np.linalg.solve(curve @ features + penalty, slope)
    return weight
