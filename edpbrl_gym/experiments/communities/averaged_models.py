"""Meta-PO: earlier people's models, weighted by how well they agree with the new person's."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.stats import norm

from edpbrl_gym._arrays import Floats
from edpbrl_gym.estimation import Estimate, GaussianPrior, Posterior, fit_prior
from edpbrl_gym.experiments.people.data import Person
from edpbrl_gym.experiments.people.estimators import Fit, at_estimate
from edpbrl_gym.likelihood import Terms

__all__ = ["AveragedModels"]

_DECAY_START, _DECAY = 5, 0.1  # published


class AveragedModels:
    """A new person's taste is a weighted average of earlier people's estimates and the person's own.

    An earlier model's weight is proportional to the number of pairs (chosen option, other option) of the person's
    questions that it orders as the person's own model does; all together have weight 1 for the first five answers and
    0.1 less with each further one, the own model has the rest. Before the first answer all weights are equal. The next
    question maximises the transfer acquisition function: the weighted sum of the earlier models' improvements
    max(m_i(x) - max over the shown x' of m_i(x'), 0) and the own model's expected improvement.

    Source: Z. Li, Y.-C. Liao and C. Holz, "Efficient Visual Appearance Optimization by Learning from Prior Preferences"
    (2025), with the rank weights (TAF-R) and the decay of the authors' code; the acquisition function is that of
    M. Wistuba, N. Schilling and L. Schmidt-Thieme (2018). There the models are Gaussian processes of a few sliders, and
    the options points of a plane through the maximiser; here they are linear in the embeddings (a Gaussian process with
    the vocabulary's prior, its scale by the evidence), and a question has the sum of its options' values.

    Args:
        people: The answers of the earlier people.
        prior: Of every model, up to its scale.
    """

    def __init__(self, people: Sequence[Terms], prior: GaussianPrior) -> None:
        self.prior = prior
        self.earlier: Floats = np.stack([fit_prior(person, base=prior).estimate.theta for person in people])

    def weights(self, answers: Terms, own: Floats) -> Floats:
        """Weights of the earlier models and of the own one, last, (U + 1,), sum 1.

        Args:
            answers: The person's answers.
            own: The own estimate, (d,).
        """
        count = len(self.earlier)
        if not len(answers):
            return np.full(count + 1, 1.0 / (count + 1))
        leads = -answers.differences()[0].reshape(-1, answers.dimension)
        agreed = ((leads @ self.earlier.T > 0) == (leads @ own > 0)[:, None]).sum(axis=0)
        shares = agreed / agreed.sum() if agreed.any() else np.full(count, 1.0 / count)
        shares = shares * max(0.0, 1.0 - _DECAY * max(0, len(answers) - _DECAY_START))
        return np.append(shares, 1.0 - shares.sum())

    def _own(self, answers: Terms) -> Estimate:
        return fit_prior(answers, base=self.prior).estimate

    def plan(self, answers: Terms) -> Posterior:
        """Laplace's posterior of the own model."""
        return Posterior.from_estimate(self._own(answers))

    def fit(self, answers: Terms) -> Fit:
        """The weighted average; predictions are those at it."""
        own = self._own(answers).theta
        weights = self.weights(answers, own)
        return at_estimate(weights[:-1] @ self.earlier + weights[-1] * own)

    def choose(self, answers: Terms, left: Person) -> int:
        """Index of the next question."""
        count, size, dimension = left.options.shape
        own = self.plan(answers)
        weights = self.weights(answers, own.mean)
        rows, shown = left.options.reshape(-1, dimension), answers.rows.reshape(-1, dimension)
        values = np.zeros(len(rows))
        best = (shown @ self.earlier.T).max(axis=0) if len(shown) else np.zeros(len(self.earlier))
        values += np.maximum(rows @ self.earlier.T - best, 0.0) @ weights[:-1]
        deviations = np.sqrt(np.einsum("nd,nd->n", rows @ own.covariance(), rows))
        lead = rows @ own.mean - (float((shown @ own.mean).max()) if len(shown) else 0.0)
        ratio = lead / deviations
        values += weights[-1] * (lead * norm.cdf(ratio) + deviations * norm.pdf(ratio))
        return int(values.reshape(count, size).sum(axis=1).argmax())
