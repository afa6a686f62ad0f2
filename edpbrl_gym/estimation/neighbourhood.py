"""A prior that adapts to the neighbourhood of the estimate in the vocabulary.

A taste that can be put into words is close to many tokens of a vocabulary at once. Once the answers indicate a
direction, the tokens near it say more about the taste than the vocabulary as a whole (empirical Bayes):

1. estimate under the prior N(0, s C) from all embeddings (`GaussianPrior.from_embeddings`, about 0): theta_0;
2. for a few values of k estimate again under N(0, s_k C_k), C_k = (1 - share) C + share S_k, with S_k the second moment
   of the k tokens with the largest cosine to theta_0, scaled to the trace of C: theta_k;
3. average theta_0 and all theta_k with weights proportional to the evidence, that of theta_k divided by N / k.

All scales are chosen by the evidence. The division accounts for the choice of one of N / k neighbourhoods after seeing
the answers: for a taste unlike any words of the vocabulary the average is (nearly) theta_0. The precision remains that
of the first posterior, which has used the answers only once.

With few embeddings, part of the spread of C's eigenvalues is due to chance; the intensity a of Ledoit & Wolf (2004)
estimates that part. C is shrunk by a, and ``share`` is multiplied by 1 - a, since tokens that differ only by chance
form no neighbourhoods. It is below 0.01 for the built-in vocabulary and near 1 for a pool of random directions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import softmax

from edpbrl_gym._arrays import Floats
from edpbrl_gym._threads import one_blas_thread
from edpbrl_gym._validation import check_array, check_count, check_number
from edpbrl_gym.estimation.data import Data
from edpbrl_gym.estimation.evidence import PriorFit, fit_prior
from edpbrl_gym.estimation.map_estimate import Estimate
from edpbrl_gym.estimation.posterior import Posterior
from edpbrl_gym.estimation.prior import GaussianPrior
from edpbrl_gym.estimation.shrinkage import ledoit_wolf_intensity

if TYPE_CHECKING:
    from edpbrl_gym.likelihood import ResponseModel

__all__ = ["TasteFit", "VocabularyPrior"]


_NEIGHBOURS = (20, 50, 150)
_DIVISORS = (40, 16, 6)  # at most 1/40, 1/16 and 1/6 of the vocabulary's tokens count as near


@dataclass(frozen=True, eq=False)
class TasteFit:
    """Estimates under several priors, and their average.

    Attributes:
        base: Fit of the prior from all embeddings.
        local: Fits of the priors of the neighbourhoods; empty while the estimate is zero.
        weights: Weights of the base estimate and the local ones in the average, (1 + len(local),), sum 1.
        neighbourhoods: Rows of the tokens of each neighbourhood, nearest first.
    """

    base: PriorFit
    local: tuple[PriorFit, ...]
    weights: Floats
    neighbourhoods: tuple[NDArray[np.intp], ...]

    @property
    def theta(self) -> Floats:
        """The average of the estimates, (d,)."""
        return np.asarray(self.weights @ np.stack([fit.estimate.theta for fit in (self.base, *self.local)]))

    @property
    def estimate(self) -> Estimate:
        """The base estimate with the averaged theta; ``converged`` if all estimates did."""
        all_fits = (self.base, *self.local)
        return replace(
            self.base.estimate,
            theta=self.theta,
            converged=all(fit.estimate.converged for fit in all_fits),
            reason="; ".join(dict.fromkeys(fit.estimate.reason for fit in all_fits if fit.estimate.reason)),
        )

    @property
    def posterior(self) -> Posterior:
        """Gaussian with the averaged theta as its mean and the precision under the prior from all embeddings."""
        return Posterior(self.theta, self.base.estimate.precision)


class VocabularyPrior:
    """Priors over the taste from the embeddings of a vocabulary.

    Args:
        features: Embeddings of the tokens, (N, d), N >= 2.
        power: Exponent of the eigenvalues of their second moment, >= 0.
        neighbours: Numbers of tokens that count as near; None: 20, 50 and 150, but at most N / 40, N / 16 and N / 6.
        share: Share of the near tokens in a local prior covariance, in [0, 1), before its multiplication by 1 - a; 0
            skips the second step.

    Attributes:
        base: The prior from all embeddings, shrunk, mean variance 1.
        neighbours: Numbers of near tokens, ascending.
        intensity: A, in [0, 1]: the part of the spread of the embeddings' second moment that is due to chance.
        share: The argument times 1 - a.

    Raises:
        ValueError: Fewer than two tokens, all equal, NaN, or an argument out of its range.
    """

    def __init__(
        self,
        features: ArrayLike,
        *,
        power: float = 0.75,
        neighbours: Sequence[int] | None = None,
        share: float = 0.5,
    ) -> None:
        self.features = check_array(features, "features", shape=("N", "d"))
        self.base = GaussianPrior.from_embeddings(self.features, power=power, centred=False, shrunk=True)
        size = len(self.features)
        if neighbours is None:
            counts = [min(count, -(-size // divisor)) for count, divisor in zip(_NEIGHBOURS, _DIVISORS, strict=True)]
        else:
            if not isinstance(neighbours, Sequence) or not neighbours:
                raise ValueError(f"Expected neighbours as a sequence of at least one number, got {neighbours!r}")
            counts = [min(check_count(count, "neighbours"), size) for count in neighbours]
        self.neighbours = tuple(sorted(set(counts)))
        largest_share = check_number(share, "share", minimum=0.0)
        if largest_share >= 1.0:
            raise ValueError(f"Expected share in [0, 1), got {share}; the rest keeps every taste possible")
        self.intensity = ledoit_wolf_intensity(self.features)
        self.share = largest_share * (1.0 - self.intensity)
        norms = np.linalg.norm(self.features, axis=1, keepdims=True)
        self._unit: Floats = self.features / np.where(norms > 0, norms, 1.0)
        self._covariance = self.base.covariance

    def near(self, theta: ArrayLike, count: int) -> NDArray[np.intp]:
        """Rows of the ``count`` tokens with the largest cosine to theta, nearest first.

        Raises:
            ValueError: Another dimension, or NaN.
        """
        values = self._unit @ check_array(theta, "theta", shape=(self.base.dimension,))
        return np.argsort(-values, kind="stable")[:count]

    def around(self, tokens: ArrayLike) -> GaussianPrior:
        """The prior N(0, C_k) of a neighbourhood, given by the rows of its tokens."""
        rows = self.features[np.asarray(tokens)]
        moment = rows.T @ rows
        size = float(np.trace(moment))
        if self.share == 0.0 or size == 0.0:
            return self.base
        moment *= float(np.trace(self._covariance)) / size
        return GaussianPrior.from_covariance((1.0 - self.share) * self._covariance + self.share * moment)

    @one_blas_thread()  # many small products, which take several times as long with two threads
    def fit(self, data: Data, *, model: ResponseModel | None = None) -> TasteFit:
        """Estimate the taste from answers.

        Args:
            data: Answers, as for ``estimate``.
            model: Response model, as for ``estimate``.

        Raises:
            TypeError: As for ``estimate``.
            ValueError: As for ``fit_prior``.
        """
        base = fit_prior(data, base=self.base, model=model)
        theta = base.estimate.theta
        if self.share == 0.0 or not theta.any():
            return TasteFit(base, (), np.ones(1), ())
        nearest = self.near(theta, self.neighbours[-1])
        groups = tuple(nearest[:count] for count in self.neighbours)
        local = tuple(fit_prior(data, base=self.around(group), model=model, start=base) for group in groups)
        odds = [
            fit.log_evidence - np.log(len(self.features) / len(group)) for fit, group in zip(local, groups, strict=True)
        ]
        return TasteFit(base, local, softmax(np.array([base.log_evidence, *odds])), groups)
