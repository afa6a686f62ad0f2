"""The estimators of the replay, by name: without other people."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from benchmarks.pictures.data import Rater, Ratings
from benchmarks.pictures.replay import Asked, Belief, Estimator
from edpbrl_gym._arrays import Floats
from edpbrl_gym.estimation.priors import make_prior
from edpbrl_gym.estimation.taste_prior import TastePrior


class FeatureEstimator:
    """Utilities that are linear in features of the items, under a prior of the library.

    Args:
        prior: Of the taste.
        features: Of all items of the set, (N, r).
    """

    def __init__(self, prior: TastePrior, features: Floats) -> None:
        self.prior, self.features = prior, features

    def rows(self, asked: Asked) -> Floats:
        """Features of a person's items, (n, r)."""
        return self.features[asked.rater.items]

    def fit(self, asked: Asked) -> Belief:
        """The estimate, and the posterior's covariance."""
        rows = np.asarray(self.prior.feature_map(self.rows(asked)))
        if not asked.questions:
            start = self.prior.start()
            return Belief(rows @ start.mean, rows @ start.covariance() @ rows.T)
        found = self.prior.fit(asked.terms(rows))
        return Belief(rows @ found.estimate.theta, rows @ found.posterior.covariance() @ rows.T)


def _by_name(name: str, **options: Any) -> Callable[[Ratings, Sequence[Rater]], Estimator]:
    return lambda ratings, known: FeatureEstimator(make_prior(name, ratings.features, **options), ratings.features)


ESTIMATORS: dict[str, Callable[[Ratings, Sequence[Rater]], Estimator]] = {
    "ridge1": _by_name("ridge"),
    "ridge-fit": _by_name("ridge", scale="auto"),
    "words": _by_name("words"),
    "gp": _by_name("gp", landmarks=100),
}
"""Name -> (the set, other people) -> estimator. One's own is an object with ``fit`` and a line here."""
