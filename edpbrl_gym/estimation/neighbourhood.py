"""A prior that looks around the estimate: tastes lie near words that the person is about to like.

A taste that can be put into words is close to many tokens of a vocabulary at once, so once the answers point somewhere,
the tokens there say more about the taste than the vocabulary as a whole (empirical Bayes):

1. estimate under the prior N(0, s C) from all embeddings (`GaussianPrior.from_embeddings`, about 0): theta_0;
2. for a few numbers k estimate again under N(0, s_k C_k), C_k = (1 - share) C + share S_k, with S_k the second moment
   of the k tokens with the largest cosine to theta_0, brought to the trace of C: theta_k;
3. average theta_0 and all theta_k with weights in proportion to the evidence, that of theta_k divided by N / k.

All scales are chosen by the evidence. The division pays for having picked one of N / k neighbourhoods after seeing the
answers: a person whose taste is like no words of the vocabulary gets (nearly) theta_0. The precision stays that of the
first posterior, which has seen the answers only once.

Few embeddings differ from each other by chance, too. The intensity a of Ledoit & Wolf (2004) is how much of the spread
of C's eigenvalues is that chance: C is shrunk by it, and ``share`` by 1 - a, since where nothing but chance makes the
tokens differ in kind there are no neighbourhoods either. It is below 0.01 for the built-in vocabulary and near 1 for a
pool of random directions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import softmax

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

Floats = NDArray[np.float64]

_NEIGHBOURS = (20, 50, 150)
_PARTS = (40, 16, 6)  # of the vocabulary: at most one token in so many counts as near


@dataclass(frozen=True, eq=False)
class TasteFit:
    """Estimates under several priors, and their average.

    Attributes:
        base: Under the prior from all embeddings.
        local: Under the priors of the neighbourhoods; empty while the estimate is zero.
        weights: Of the base estimate and the local ones in the average, (1 + len(local),), sum 1.
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
        """The base estimate with the averaged theta; ``converged`` if all did."""
        all_fits = (self.base, *self.local)
        return replace(
            self.base.estimate,
            theta=self.theta,
            converged=all(fit.estimate.converged for fit in all_fits),
            reason="; ".join(dict.fromkeys(fit.estimate.reason for fit in all_fits if fit.estimate.reason)),
        )

    @property
    def posterior(self) -> Posterior:
        """The averaged theta as mean, with the precision under the prior from all embeddings."""
        return Posterior(self.theta, self.base.estimate.precision)


class VocabularyPrior:
    """Priors over the taste from the embeddings of a vocabulary.

    Args:
        features: Embeddings of the tokens, (N, d), N >= 2.
        power: Exponent of the eigenvalues of their second moment, >= 0.
        neighbours: Numbers of tokens that count as near; None: 20, 50 and 150, but at most N / 40, N / 16 and N / 6.
        share: Of a local prior covariance that comes from them, in [0, 1), times 1 - a; 0 leaves the second step out.

    Attributes:
        base: The prior from all embeddings, shrunk, mean variance 1.
        neighbours: The numbers, ascending.
        intensity: a, in [0, 1]: how much of the spread of the embeddings' second moment is chance.
        share: As used: that of the argument times 1 - a.

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
            wanted = [min(count, -(-size // part)) for count, part in zip(_NEIGHBOURS, _PARTS, strict=True)]
        else:
            if not isinstance(neighbours, Sequence) or not neighbours:
                raise ValueError(f"Expected neighbours as a sequence of at least one number, got {neighbours!r}")
            wanted = [min(check_count(count, "neighbours"), size) for count in neighbours]
        self.neighbours = tuple(sorted(set(wanted)))
        given = check_number(share, "share", minimum=0.0)
        if given >= 1.0:
            raise ValueError(f"Expected share in [0, 1), got {share}; the rest keeps every taste possible")
        self.intensity = ledoit_wolf_intensity(self.features)
        self.share = given * (1.0 - self.intensity)
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

    @one_blas_thread()  # many small products: with two threads they take several times as long
    def fit(self, data: Data, *, model: ResponseModel | None = None) -> TasteFit:
        """Estimate the taste from answers.

        Args:
            data: The answers, as for ``estimate``.
            model: Of the answers, as for ``estimate``.

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
