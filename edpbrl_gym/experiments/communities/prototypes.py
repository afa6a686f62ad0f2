"""PAL: every taste is a convex combination of a few prototypes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.cluster.vq import kmeans2
from scipy.optimize import minimize
from scipy.special import softmax

from edpbrl_gym._arrays import Floats
from edpbrl_gym.estimation import GaussianPrior, estimate
from edpbrl_gym.experiments.communities.bilinear import AllAnswers, climb
from edpbrl_gym.experiments.people.estimators import Fit, at_estimate
from edpbrl_gym.likelihood import Terms

__all__ = ["Prototypes", "learn_prototypes"]

NUMBER = 8
PENALTY = 1.0
_CERTAIN = 2.0  # first logit of a person's nearest prototype


def learn_prototypes(
    answers: AllAnswers, first: Floats, number: int, penalty: float, *, seed: int = 0
) -> tuple[Floats, Floats]:
    """Prototypes (d, P) and weights (U, P), rows in the simplex, that minimise loss + penalty / 2 |prototypes|^2.

    Args:
        answers: Of all people.
        first: A first taste of each person, (U, d); the first prototypes are the centres of their clusters.
        number: P.
        penalty: Weight decay.
        seed: Of the clustering.
    """
    centres, nearest = kmeans2(first, number, minit="++", rng=np.random.default_rng(seed))
    start = np.zeros((answers.people, number))
    start[np.arange(answers.people), nearest] = _CERTAIN

    def objective(prototypes: Floats, logits: Floats) -> tuple[float, Floats, Floats]:
        weights = softmax(logits, axis=1)
        value, by_prototypes, by_weights = answers.loss(prototypes, weights)
        by_logits = weights * (by_weights - (weights * by_weights).sum(axis=1, keepdims=True))
        size = float(np.square(prototypes).sum())
        return value + penalty / 2 * size, by_prototypes + penalty * prototypes, by_logits

    prototypes, logits = climb((centres.T.copy(), start), objective)
    return prototypes, np.asarray(softmax(logits, axis=1))


class Prototypes:
    """A new person's taste is a convex combination of the prototypes, its weights by maximum likelihood.

    There is no published rule for questions. Before the first answer the weights are the average of the others'.

    Source: D. Chen, Y. Chen, A. Rege and R. K. Vinayak, "PAL: Pluralistic Alignment Framework for Learning from
    Heterogeneous Preferences" (2024), its model B. The prototypes' rewards are linear in the embeddings here, in the
    coordinates of the vocabulary's prior, where the weight decay is isotropic; there they are networks on embeddings.

    Args:
        people: The answers of the others.
        prior: Zero mean; its coordinates are used.
        number: P.
        penalty: Weight decay of the prototypes.
    """

    def __init__(
        self, people: Sequence[Terms], prior: GaussianPrior, *, number: int = NUMBER, penalty: float = PENALTY
    ) -> None:
        root = prior.covariance_root()
        estimates = np.stack([estimate(person, prior=prior).theta for person in people])
        first: Floats = np.linalg.solve(root, estimates.T).T.astype(np.float64)
        prototypes, weights = learn_prototypes(AllAnswers.of(people, root), first, number, penalty)
        self.prototypes: Floats = root @ prototypes
        self._average: Floats = weights.mean(axis=0)

    def weights(self, answers: Terms) -> Floats:
        """The weights of the prototypes, (P,), in the simplex."""
        if not len(answers):
            return self._average
        own = AllAnswers.of([answers], self.prototypes)  # in the coordinates of the weights
        identity = np.eye(len(self._average))

        def loss(weights: Floats) -> tuple[float, Floats]:
            value, _, gradient = own.loss(identity, weights[None])
            return value, gradient[0]

        found = minimize(
            loss,
            self._average,
            jac=True,
            method="SLSQP",
            bounds=[(0.0, 1.0)] * len(self._average),
            constraints={"type": "eq", "fun": lambda one: one.sum() - 1.0, "jac": np.ones_like},
        )
        weights = np.clip(found.x, 0.0, 1.0)
        return np.asarray(weights / weights.sum())

    def fit(self, answers: Terms) -> Fit:
        """The estimate; predictions are those at it."""
        return at_estimate(self.prototypes @ self.weights(answers))
