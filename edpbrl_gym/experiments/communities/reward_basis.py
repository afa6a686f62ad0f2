"""PReF: a low-rank basis of all people's tastes, and a new person's coefficients in it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edpbrl_gym._arrays import Floats
from edpbrl_gym.estimation import Estimate, GaussianPrior, Posterior, estimate
from edpbrl_gym.experiments.communities.bilinear import AllAnswers, climb
from edpbrl_gym.experiments.people.data import Person
from edpbrl_gym.experiments.people.estimators import Fit, at_estimate
from edpbrl_gym.likelihood import Terms
from edpbrl_gym.planners.pool.information import MaximumUncertainty
from edpbrl_gym.planners.pool.state import PoolState

__all__ = ["RewardBasis", "learn_basis"]

RANK = 8
PENALTY = 4.0
_SCALES = 2.0 ** np.arange(-8, 5)  # of the first tastes


def learn_basis(answers: AllAnswers, rank: int, penalty: float) -> tuple[Floats, Floats]:
    """Basis (d, r) and coefficients (U, r) that minimise loss + penalty / 2 (|B|^2 + sum_i |a_i|^2).

    The problem isn't convex in both; the first point is the singular value decomposition of the people's scores.
    Published is that of the matrix of people and pairs, whose missing entries are 1/2: here nobody shares a question
    with anybody, and the scores are what remains of the answers when the expected ones at indifference are subtracted.
    """
    left, sizes, right = np.linalg.svd(answers.scores(), full_matrices=False)
    first = right[:rank].T * np.sqrt(sizes[:rank]), left[:, :rank] * np.sqrt(sizes[:rank])
    losses = [answers.loss(first[0] * scale, first[1])[0] for scale in _SCALES]
    half = np.sqrt(_SCALES[int(np.argmin(losses))])

    def objective(basis: Floats, weights: Floats) -> tuple[float, Floats, Floats]:
        value, by_basis, by_weights = answers.loss(basis, weights)
        size = float(np.square(basis).sum() + np.square(weights).sum())
        return value + penalty / 2 * size, by_basis + penalty * basis, by_weights + penalty * weights

    return climb((first[0] * half, first[1] * half), objective)


class RewardBasis:
    """A new person's taste is B a, the coefficients a by regularised logistic regression on the person's answers.

    The next question has the largest sum over its pairs of |B'(x_i - x_j)| in the metric H^-1, H the Hessian of the
    penalised loss at the estimate (the ellipsoid of a logistic bandit); for pairs, that is the published rule.

    Source: I. Shenfeld, F. Faltings, P. Agrawal and A. Pacchiano, "Language Model Personalization via Reward
    Factorization" (2025). The base rewards are linear in the embeddings here, in the coordinates of the vocabulary's
    prior, where the penalty is isotropic; there they are heads of a language model. Questions have K options, so the
    multinomial logit takes the place of the logit.

    Args:
        people: The answers of the others.
        prior: Zero mean; its coordinates are used.
        rank: r.
        penalty: Of basis and coefficients.
    """

    def __init__(
        self, people: Sequence[Terms], prior: GaussianPrior, *, rank: int = RANK, penalty: float = PENALTY
    ) -> None:
        root = prior.covariance_root()
        basis, _ = learn_basis(AllAnswers.of(people, root), rank, penalty)
        self.basis: Floats = root @ basis
        self._prior = GaussianPrior.isotropic(basis.shape[1], penalty)

    def _coefficients(self, answers: Terms) -> Estimate:
        return estimate(Terms(answers.rows @ self.basis, answers.offsets, answers.chosen), prior=self._prior)

    def plan(self, answers: Terms) -> Posterior:
        """Laplace's posterior of the coefficients, (r,)."""
        return Posterior.from_estimate(self._coefficients(answers))

    def fit(self, answers: Terms) -> Fit:
        """The estimate; predictions are those at it."""
        return at_estimate(self.basis @ self._coefficients(answers).theta)

    def choose(self, answers: Terms, left: Person) -> int:
        """Index of the next question."""
        count, size = left.options.shape[:2]
        known = self.plan(answers)
        items = (left.options @ self.basis).reshape(count * size, -1)
        state = PoolState(items, known.mean, known.precision, known.mean[None], known.precision, size)
        values = MaximumUncertainty().prepare(state)(np.arange(count * size).reshape(count, size))
        return int(values.argmax())
