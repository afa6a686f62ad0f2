"""A prior that looks around the estimate: tastes lie near words that the person is about to like.

A taste that can be put into words is close to many tokens of a vocabulary at once, so once the answers point somewhere,
the tokens there say more about the taste than the vocabulary as a whole (empirical Bayes):

1. estimate under the prior N(0, s C) from all embeddings (`GaussianPrior.from_embeddings`): theta_0;
2. estimate again under N(0, s' C'), C' = (1 - share) C + share S, with S the second moment of the k tokens with the
   largest cosine to theta_0, brought to the trace of C: theta_1;
3. average: theta = w theta_1 + (1 - w) theta_0, log(w / (1 - w)) = log evidence_1 - log evidence_0 - log(N / k).

Both scales are chosen by the evidence. The last term pays for having picked one of N / k neighbourhoods after seeing
the answers: a person whose taste is like no words of the vocabulary gets (nearly) theta_0. The precision stays that of
the first posterior, which has seen the answers only once.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit

from edpbrl_gym._validation import check_array, check_count, check_number
from edpbrl_gym.estimation.evidence import PriorFit, fit_prior
from edpbrl_gym.estimation.map_estimate import Estimate
from edpbrl_gym.estimation.posterior import Posterior
from edpbrl_gym.estimation.prior import GaussianPrior

if TYPE_CHECKING:
    from edpbrl_gym.responses import Terms

__all__ = ["TasteFit", "VocabularyPrior"]

Floats = NDArray[np.float64]

_NEIGHBOURS = 50
_SHARE_OF_VOCABULARY = 20  # at most one token in so many counts as near


@dataclass(frozen=True, eq=False)
class TasteFit:
    """An estimate under both priors.

    Attributes:
        base: Under the prior from all embeddings.
        local: Under the prior of the neighbourhood (the same as ``base`` while the estimate is zero).
        weight: w, of the local estimate, in [0, 1].
        tokens: Rows of the tokens that count as near, (k,).
    """

    base: PriorFit
    local: PriorFit
    weight: float
    tokens: NDArray[np.intp]

    @property
    def theta(self) -> Floats:
        """The average of the two estimates, (d,)."""
        return self.weight * self.local.estimate.theta + (1.0 - self.weight) * self.base.estimate.theta

    @property
    def estimate(self) -> Estimate:
        """The base estimate with the averaged theta; ``converged`` if both did."""
        both = (self.base.estimate, self.local.estimate)
        return replace(
            both[0],
            theta=self.theta,
            converged=all(one.converged for one in both),
            reason="; ".join(dict.fromkeys(one.reason for one in both if one.reason)),
        )

    @property
    def posterior(self) -> Posterior:
        """The averaged theta as mean, with the precision under the prior from all embeddings."""
        return Posterior(self.theta, self.base.estimate.precision)


class VocabularyPrior:
    """Priors over the taste from the embeddings of a vocabulary.

    Args:
        features: Embeddings of the tokens, (N, d), N >= 2.
        power: Exponent of the eigenvalues of their covariance, >= 0.
        neighbours: Tokens that count as near; None: 50, but at most one in twenty of the vocabulary.
        share: Of the prior covariance that comes from them, in [0, 1); 0 leaves the second step out.

    Attributes:
        base: The prior from all embeddings, mean variance 1.

    Raises:
        ValueError: Fewer than two tokens, all equal, NaN, or an argument out of its range.
    """

    def __init__(
        self, features: ArrayLike, *, power: float = 0.75, neighbours: int | None = None, share: float = 0.5
    ) -> None:
        self.features = check_array(features, "features", shape=("N", "d"))
        self.base = GaussianPrior.from_embeddings(self.features, power=power)
        count = len(self.features)
        most = min(_NEIGHBOURS, -(-count // _SHARE_OF_VOCABULARY)) if neighbours is None else neighbours
        self.neighbours = min(check_count(most, "neighbours"), count)
        self.share = check_number(share, "share", minimum=0.0)
        if self.share >= 1.0:
            raise ValueError(f"Expected share in [0, 1), got {share}; the rest keeps every taste possible")
        norms = np.linalg.norm(self.features, axis=1, keepdims=True)
        self._unit: Floats = self.features / np.where(norms > 0, norms, 1.0)
        self._covariance = self.base.covariance

    def near(self, theta: ArrayLike) -> NDArray[np.intp]:
        """Rows of the tokens with the largest cosine to theta, (k,), nearest first.

        Raises:
            ValueError: Another dimension, or NaN.
        """
        values = self._unit @ check_array(theta, "theta", shape=(self.base.dimension,))
        return np.argsort(-values, kind="stable")[: self.neighbours]

    def around(self, theta: ArrayLike) -> GaussianPrior:
        """The prior N(0, C') of the neighbourhood of theta.

        Raises:
            ValueError: Another dimension, or NaN.
        """
        rows = self.features[self.near(theta)]
        moment = rows.T @ rows
        size = float(np.trace(moment))
        if self.share == 0.0 or size == 0.0:
            return self.base
        moment *= float(np.trace(self._covariance)) / size
        return GaussianPrior.from_covariance((1.0 - self.share) * self._covariance + self.share * moment)

    def fit(
        self,
        options: ArrayLike | Terms,
        choices: ArrayLike | None = None,
        *,
        start: TasteFit | None = None,
        max_evaluations: int = 40,
    ) -> TasteFit:
        """Estimate the taste from answers.

        Args:
            options: Features of the options, (n, K, d), or the ``Terms`` of any answers.
            choices: Index of the chosen option, (n,); None with Terms.
            start: An earlier fit, for example before the last answers.
            max_evaluations: Scales tried at most for each of the two priors; 3 with ``start`` follow a slowly changing
                scale at a fixed cost.

        Raises:
            ValueError: As for ``fit_prior``.
        """
        given = None if start is None else start.base
        base = fit_prior(options, choices, base=self.base, start=given, max_evaluations=max_evaluations)
        theta = base.estimate.theta
        tokens = self.near(theta)
        if self.share == 0.0 or not theta.any():
            return TasteFit(base, base, 0.0, tokens)
        local = fit_prior(
            options,
            choices,
            base=self.around(theta),
            start=base if start is None else start.local,
            max_evaluations=max_evaluations,
        )
        odds = local.log_evidence - base.log_evidence - float(np.log(len(self.features) / self.neighbours))
        return TasteFit(base, local, float(expit(odds)), tokens)
