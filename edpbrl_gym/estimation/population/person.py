"""What a person's own answers and a population say together: a mixture of posteriors, weighted by their evidence.

Besides the parts of the population there is a fallback, N(m, s C) with the base prior's mean and covariance and an
unknown scale s. A scale chosen by the same answers would make its evidence too high; so log(s) has the prior
N(log(typical), 1.5^2), on seven points two standard deviations to both sides, and the evidence is their average. The
typical scale is that of the population. An atypical person's answers have little evidence under the population, and
after a few of them the fallback has all weight.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import cho_factor, cho_solve
from scipy.special import softmax

from edpbrl_gym._arrays import Floats
from edpbrl_gym._threads import one_blas_thread
from edpbrl_gym._validation import check_array
from edpbrl_gym.estimation.map_estimate import Estimate, estimate
from edpbrl_gym.estimation.mixture import MixturePosterior
from edpbrl_gym.estimation.population.answers import Answered
from edpbrl_gym.estimation.population.draws import Source, mixture_draws
from edpbrl_gym.estimation.population.geometry import roots
from edpbrl_gym.estimation.population.posteriors import Posteriors
from edpbrl_gym.estimation.population.spans import Span
from edpbrl_gym.estimation.posterior import Posterior
from edpbrl_gym.estimation.prior import GaussianPrior
from edpbrl_gym.likelihood import Terms
from edpbrl_gym.likelihood.choice import check_options, log_softmax

__all__ = ["PersonFit", "PersonPart", "fallback_scales", "fit_person"]

_NEGLIGIBLE = 1e-3  # weight of a part below which predictions are made without it
_LOG_SPREAD = 1.5  # standard deviation of the fallback's log scale
_SCALES = np.linspace(-2.0, 2.0, 7)  # its points, in standard deviations
_BLOCK_NUMBERS = 1 << 23


@dataclass(frozen=True, eq=False)
class PersonPart:
    """The posterior under one Gaussian prior N(m, s C).

    Attributes:
        scale: s; 1 for the parts of the population.
        log_evidence: Log evidence of the answers, by importance sampling from the variational Gaussians.
        mean: Mean of the variational Gaussian of theta, (d,).
    """

    scale: float
    log_evidence: float
    mean: Floats
    _source: Source = field(repr=False)
    _posteriors: Posteriors = field(repr=False)
    _row: int = field(repr=False)  # of the posteriors
    _answered: Answered = field(repr=False)

    @property
    def prior(self) -> GaussianPrior:
        """The prior."""
        return self._source.prior if self.scale == 1.0 else self._source.prior.scaled(self.scale)

    @functools.cached_property
    def posterior(self) -> Posterior:
        """The variational Gaussian of theta."""
        prior = self.prior
        half = roots(self._posteriors.sites.information[self._row]).transpose(0, 2, 1)
        rows = np.matmul(half, self._answered.rows).reshape(-1, prior.dimension)
        return Posterior(self.mean, rows.T @ rows + prior.precision)


@dataclass(frozen=True, eq=False)
class PersonFit:
    """A person's taste under a population.

    Attributes:
        parts: Posteriors under the parts of the population, then those under the fallback at each of its scales.
        weights: Posterior weights of the parts, sum 1.
        size: Number of parts that belong to the population.
        terms: The answers.
    """

    parts: tuple[PersonPart, ...]
    weights: Floats
    size: int
    terms: Terms = field(repr=False)
    _posteriors: Posteriors = field(repr=False)

    @property
    def memberships(self) -> Floats:
        """Posterior weights of the parts of the population, such as types of people; with the fallback's sum 1."""
        return self.weights[: self.size]

    @property
    def fallback_weight(self) -> float:
        """Posterior weight of the fallback: how likely it is that the person belongs to no part of the population."""
        return float(self.weights[self.size :].sum())

    @property
    def theta(self) -> Floats:
        """The mean of the mixture, (d,)."""
        return np.asarray(self.weights @ np.stack([part.mean for part in self.parts]))

    @functools.cached_property
    def estimate(self) -> Estimate:
        """The maximum of the posterior under the prior of the heaviest part, with ``theta`` in its place."""
        heaviest = self.parts[int(self.weights.argmax())]
        found = estimate(self.terms, prior=heaviest.prior, start=heaviest.mean)
        return replace(found, theta=self.theta)

    @functools.cached_property
    def planned(self) -> Posterior:
        """Posterior to plan questions with: that of the population alone, or of the fallback where it is heavier.

        The fallback's large scales would otherwise make every direction seem uncertain that the population knows.
        """
        chosen = slice(0, self.size) if self.fallback_weight <= 0.5 else slice(self.size, None)
        return self._mixed(chosen)

    @functools.cached_property
    def posterior(self) -> Posterior:
        """The mixture of the parts' posteriors (`MixturePosterior`), the fallback's scales together as one Gaussian."""
        return self._mixed(slice(None))

    def draws(self, count: int, rng: np.random.Generator) -> Floats:
        """Draws of theta from the mixture of the variational Gaussians of all parts, in their proportions, (count, d).

        Raises:
            ValueError: Count < 0.
        """
        return self.posterior.draws(count, rng)

    def points(self) -> tuple[Floats, Floats]:
        """Quasi-random points of the mixture, (S, d), and their weights, (S,), which sum to 1."""
        return self._points

    @functools.cached_property
    def _points(self) -> tuple[Floats, Floats]:
        used = self.weights > _NEGLIGIBLE
        logs = np.where(used, np.log(np.maximum(self.weights, 1e-300)) - [p.log_evidence for p in self.parts], -np.inf)
        return mixture_draws(self._posteriors, [part._source for part in self.parts], self.weights * used, logs)

    @one_blas_thread()
    def choice_probabilities(self, options: ArrayLike) -> Floats:
        """Probabilities of the person's choices, averaged over the posterior.

        The probabilities at the mean would be too close to 0 and 1, as the taste is uncertain. The average is over
        weighted quasi-random points of each part's posterior (importance sampling from its variational Gaussian).

        Args:
            options: Features of n questions, (n, K, d).

        Returns:
            (n, K), rows sum to 1.

        Raises:
            ValueError: K < 2, NaN, or another dimension.
        """
        features = check_options(options)
        check_array(features, "options", shape=("n", "K", self.terms.dimension), hint="as the answers have")
        thetas, weights = self._points
        result = np.empty(features.shape[:2])
        step = max(1, _BLOCK_NUMBERS // (len(thetas) * features.shape[1]))
        for start in range(0, len(features), step):
            values = features[start : start + step] @ thetas.T  # (n, K, S)
            result[start : start + step] = np.exp(log_softmax(values.transpose(0, 2, 1))).transpose(0, 2, 1) @ weights
        return result / result.sum(axis=1, keepdims=True)

    def _mixed(self, chosen: slice) -> Posterior:
        kept = np.zeros(len(self.weights), dtype=bool)
        kept[chosen] = True
        kept &= self.weights > _NEGLIGIBLE * self.weights[chosen].sum()
        own = np.flatnonzero(kept[: self.size])
        rest = self.size + np.flatnonzero(kept[self.size :])
        found = [self.parts[row].posterior for row in own]
        weights = list(self.weights[own])
        if len(rest):
            found.append(self._gathered(rest))
            weights.append(float(self.weights[rest].sum()))
        return MixturePosterior.of(found, np.array(weights) / sum(weights))

    def _gathered(self, rows: NDArray[np.intp]) -> Posterior:
        """The Gaussian with the moments of several scales: sums of s C - G (I - H^-1) G', once inverted."""
        parts = [self.parts[row] for row in rows]
        if len(parts) == 1:
            return parts[0].posterior
        weights = self.weights[rows] / self.weights[rows].sum()
        means = np.stack([part.mean for part in parts])
        mean = weights @ means
        shifts = np.sqrt(weights)[:, None] * (means - mean)
        shares = weights * [part.scale for part in parts]
        # loadings of several scales differ by a factor alone
        loadings = self._posteriors.locals[rows[0]].loadings / np.sqrt(parts[0].scale)
        removed = np.einsum("j,jrs->rs", shares, self._posteriors.reduction[rows])
        covariance = shares.sum() * parts[0]._source.covariance + shifts.T @ shifts - loadings @ removed @ loadings.T
        precision = cho_solve(cho_factor(covariance, lower=True, check_finite=False), np.eye(len(mean)))
        return Posterior(mean, (precision + precision.T) / 2)


def fallback_scales(typical: float) -> tuple[Floats, Floats]:
    """The fallback's scales, (7,), and the logarithms of their prior weights, which sum to 1."""
    logs = -0.5 * np.square(_SCALES)
    return typical * np.exp(_LOG_SPREAD * _SCALES), logs - np.logaddexp.reduce(logs)


@one_blas_thread()
def fit_person(
    terms: Terms,
    answered: Answered,
    sources: Sequence[Source],
    weights: Floats,
    fallback: tuple[Source, float, float] | None,
) -> PersonFit:
    """The posterior of a person's taste under several Gaussians and a fallback.

    Args:
        terms: The answers.
        answered: The answers as differences of theta.
        sources: The Gaussians.
        weights: Their prior weights among themselves, sum 1.
        fallback: The Gaussian, its typical scale and its prior weight in (0, 1); None: without.
    """
    span = Span.of(answered)
    rest = 0.0 if fallback is None else fallback[2]
    logs = list(np.log1p(-rest) + np.log(np.maximum(weights, 1e-300)))
    priors = [(source, 1.0) for source in sources]
    under = [span.under(source.prior.mean, source.covariance) for source in sources]
    if fallback is not None:
        source, typical, weight = fallback
        scales, log_weights = fallback_scales(typical)
        local = span.under(source.prior.mean, source.covariance)
        under += [local.scaled(float(scale)) for scale in scales]
        priors += [(source, float(scale)) for scale in scales]
        logs += [float(np.log(weight)) + float(log) for log in log_weights]
    posteriors = Posteriors.of(span, under)
    evidence = posteriors.log_evidence()
    posterior_weights = np.asarray(softmax(np.array(logs) + evidence))
    parts = tuple(
        PersonPart(
            scale,
            float(evidence[row]),
            source.prior.mean + under[row].loadings @ posteriors.inner[row],
            source,
            posteriors,
            row,
            answered,
        )
        for row, (source, scale) in enumerate(priors)
    )
    return PersonFit(parts, posterior_weights, len(sources), terms, posteriors)
