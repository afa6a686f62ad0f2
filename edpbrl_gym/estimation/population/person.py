"""What a person's own answers and a population say together: a mixture of posteriors, weighted by their evidence.

Besides the parts of the population there is a fallback, N(m, s C) with the base prior's mean and covariance and an
unknown scale s. A scale chosen by the same answers would make its evidence too high; so log(s) has the prior
N(log(typical), 2^2), on nine points two standard deviations to both sides, and the evidence is the average over them.
The typical scale is that of the population. An atypical person's answers have little evidence under the population, and
after a few of them the fallback has all weight.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import solve_triangular
from scipy.special import softmax

from edpbrl_gym._arrays import Floats
from edpbrl_gym._threads import one_blas_thread
from edpbrl_gym._validation import check_array
from edpbrl_gym.estimation.map_estimate import Estimate, estimate
from edpbrl_gym.estimation.mixture import MixturePosterior
from edpbrl_gym.estimation.population.answers import Answered
from edpbrl_gym.estimation.population.points import Weighted, normal_net, weigh
from edpbrl_gym.estimation.population.spans import Local, Span, fit_local
from edpbrl_gym.estimation.posterior import Posterior
from edpbrl_gym.estimation.prior import GaussianPrior
from edpbrl_gym.estimation.variational import GaussianFit
from edpbrl_gym.likelihood import Terms
from edpbrl_gym.likelihood.choice import check_options, log_softmax

__all__ = ["PersonFit", "PersonPart", "Source", "fit_person", "fallback_scales"]

_LOG_POINTS = 9
_NEGLIGIBLE = 1e-3  # weight of a part below which predictions are made without it
_LOG_SPREAD = 2.0  # standard deviation of the fallback's log scale
_SCALES = np.linspace(-2.0, 2.0, 9)  # its points, in standard deviations
_BLOCK_NUMBERS = 1 << 23


@dataclass(frozen=True, eq=False)
class Source:
    """A Gaussian prior with what computations need of it: covariance and its lower Cholesky factor, (d, d) each."""

    prior: GaussianPrior
    covariance: Floats
    lower: Floats

    @classmethod
    def of(cls, prior: GaussianPrior) -> Source:
        """The same prior.

        Raises:
            ValueError: An improper prior.
        """
        covariance = prior.covariance
        lower = np.asarray(np.linalg.cholesky((covariance + covariance.T) / 2), dtype=np.float64)
        return cls(prior, covariance, lower)


@dataclass(frozen=True, eq=False)
class PersonPart:
    """The posterior under one Gaussian prior N(m, s C).

    Attributes:
        scale: s; 1 for the parts of the population.
        log_evidence: Log evidence of the answers, by importance sampling from the variational Gaussian.
        mean: Mean of the variational Gaussian of theta, (d,).
    """

    scale: float
    log_evidence: float
    mean: Floats
    _source: Source = field(repr=False)
    _span: Span = field(repr=False)
    _local: Local = field(repr=False)
    _fit: GaussianFit = field(repr=False)
    _weighted: Weighted = field(repr=False)
    _answered: Answered = field(repr=False)

    @property
    def prior(self) -> GaussianPrior:
        """The prior."""
        return self._source.prior if self.scale == 1.0 else self._source.prior.scaled(self.scale)

    @functools.cached_property
    def posterior(self) -> Posterior:
        """The variational Gaussian of theta."""
        prior = self.prior
        rows = np.matmul(self._fit.curvature, self._answered.rows).reshape(-1, prior.dimension)
        return Posterior(self.mean, rows.T @ rows + prior.precision)

    def draws(self) -> tuple[Floats, Floats]:
        """Quasi-random points of the posterior, (S, d), and their weights, (S,), which sum to 1."""
        loadings = self._local.loadings
        thetas = self._source.prior.mean + self._weighted.points @ loadings.T
        basis = self._span.basis
        if basis is not None:  # about these directions the answers say nothing: the prior given the others
            shift = np.full(len(loadings), 0.5)
            size = len(thetas)
            normal = normal_net(len(loadings), int(np.ceil(np.log2(size))), shift)
            normal = np.random.default_rng(0).permutation(normal)[:size]
            whole = np.sqrt(self.scale) * (normal @ self._source.lower.T)
            inside = whole @ basis
            if len(self._local.lower):
                inside = solve_triangular(self._local.lower, inside.T, lower=True, check_finite=False).T
            thetas += whole - inside @ loadings.T
        return thetas, self._weighted.weights


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
        return self._mixed(self.parts[chosen], self.weights[chosen])

    @functools.cached_property
    def posterior(self) -> Posterior:
        """The mixture of all parts' posteriors (`MixturePosterior`); computed on first use."""
        return self._mixed(self.parts, self.weights)

    def draws(self, count: int, rng: np.random.Generator) -> Floats:
        """Draws of theta from the mixture of the variational Gaussians of all parts, in their proportions, (count, d).

        Raises:
            ValueError: Count < 0.
        """
        return self.posterior.draws(count, rng)

    @functools.cached_property
    def _draws(self) -> tuple[Floats, Floats]:
        """Points of the mixture, (S, d), and their weights, (S,)."""
        kept = self.weights > _NEGLIGIBLE
        total = float(self.weights[kept].sum())
        points, weights = [], []
        for weight, part in zip(self.weights[kept], np.array(self.parts, dtype=object)[kept], strict=True):
            thetas, own = part.draws()
            points.append(thetas)
            weights.append(own * weight / total)
        return np.concatenate(points), np.concatenate(weights)

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
        thetas, weights = self._draws
        result = np.empty(features.shape[:2])
        step = max(1, _BLOCK_NUMBERS // (len(thetas) * features.shape[1]))
        for start in range(0, len(features), step):
            values = features[start : start + step] @ thetas.T  # (n, K, S)
            result[start : start + step] = np.exp(log_softmax(values.transpose(0, 2, 1))).transpose(0, 2, 1) @ weights
        return result / result.sum(axis=1, keepdims=True)

    @staticmethod
    def _mixed(parts: Sequence[PersonPart], weights: Floats) -> Posterior:
        kept = weights > _NEGLIGIBLE * weights.sum()
        shares = weights[kept] / weights[kept].sum()
        return MixturePosterior.of([part.posterior for part, use in zip(parts, kept, strict=True) if use], shares)


def fallback_scales(typical: float) -> tuple[Floats, Floats]:
    """The fallback's scales, (9,), and the logarithms of their prior weights, which sum to 1."""
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
    parts = []
    rest = 0.0 if fallback is None else fallback[2]
    logs = list(np.log1p(-rest) + np.log(np.maximum(weights, 1e-300)))
    for source in sources:
        parts.append(_fit_part(answered, span, source, span.under(source.prior.mean, source.covariance), 1.0))
    if fallback is not None:
        source, typical, weight = fallback
        local = span.under(source.prior.mean, source.covariance)
        scales, log_weights = fallback_scales(typical)
        for scale, log_weight in zip(scales, log_weights, strict=True):
            parts.append(_fit_part(answered, span, source, local, float(scale)))
            logs.append(np.log(weight) + log_weight)
    evidence = np.array([part.log_evidence for part in parts])
    return PersonFit(tuple(parts), np.asarray(softmax(np.array(logs) + evidence)), len(sources), terms)


def _fit_part(answered: Answered, span: Span, source: Source, local: Local, scale: float) -> PersonPart:
    if scale != 1.0:
        root = np.sqrt(scale)
        inside = Answered(local.answered.rows * root, local.answered.offsets)
        local = Local(inside, local.lower * root, local.loadings * root)
    fit = fit_local(local.answered)
    weighted = weigh(local.answered, fit, _LOG_POINTS)
    mean = source.prior.mean + local.loadings @ fit.mean
    return PersonPart(scale, weighted.log_evidence, mean, source, span, local, fit, weighted, answered)
