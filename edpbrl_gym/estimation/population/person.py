"""What a person's own answers and a population say together: a mixture of posteriors, weighted by their evidence.

Besides the parts of the population there is a fallback, N(m, s C) with an unknown scale s. A scale chosen by the same
answers would make its evidence too high; so log(s) has the prior N(log(typical), 1.5^2), on seven points two standard
deviations to both sides, and the evidence is their average. The typical scale is that of the population. An atypical
person's answers have little evidence under the population, and after some of them the fallback has all weight.

The fallback may be the prior of a vocabulary, a mixture itself: N(0, s C) from all embeddings, neighbourhoods of the
estimate, and no direction at all. Its evidence is that of N(0, s C), averaged over s as above, times the ratio of the
evidence of the whole mixture to that of its first part (`TasteFit.log_gain`), in which the chosen scales cancel but for
their curvature, and which is prequential for the neighbourhoods. With all weight, it says what the vocabulary's prior
says without other people.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import cho_factor, cho_solve, solve_triangular
from scipy.special import softmax

from edpbrl_gym._arrays import Floats
from edpbrl_gym._threads import one_blas_thread
from edpbrl_gym._validation import check_array
from edpbrl_gym.estimation.evidence import PriorFit
from edpbrl_gym.estimation.map_estimate import Estimate, estimate
from edpbrl_gym.estimation.mixture import MixturePosterior
from edpbrl_gym.estimation.neighbourhood import TasteFit, VocabularyPrior
from edpbrl_gym.estimation.population.answers import Answered
from edpbrl_gym.estimation.population.geometry import roots
from edpbrl_gym.estimation.population.points import normal_net
from edpbrl_gym.estimation.population.posteriors import Posteriors, Span
from edpbrl_gym.estimation.posterior import Posterior
from edpbrl_gym.estimation.prior import GaussianPrior
from edpbrl_gym.likelihood import Terms
from edpbrl_gym.likelihood.choice import check_options, log_softmax

__all__ = ["Fallback", "PersonFit", "PersonPart", "Source", "fallback_scales", "fit_person", "mixture_draws"]

_NEGLIGIBLE = 1e-3  # weight of a part below which predictions are made without it
_LOG_SPREAD = 1.5  # standard deviation of the fallback's log scale
_SCALES = np.linspace(-2.0, 2.0, 7)  # its points, in standard deviations
_SWITCH = 0.5  # weight of the fallback above which it plans; earlier is no better (docs/people.md)
_BLOCK_NUMBERS = 1 << 23
_POINTS = 1024  # from all variational Gaussians together, and half as many from the priors
_LEAST_LOG = 4


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
class Fallback:
    """What is known of a person unlike all others.

    Attributes:
        source: A Gaussian, known but for its scale.
        typical: Its typical scale.
        weight: Its prior weight, in (0, 1).
        words: The prior of a vocabulary, to which the Gaussian belongs; None: the Gaussian is all.
    """

    source: Source
    typical: float
    weight: float
    words: VocabularyPrior | None = None


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
    def estimate(self) -> Estimate:
        """The maximum of the posterior."""
        return estimate(self._answered.terms(), prior=self.prior, start=self.mean)

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
        parts: Posteriors under the parts of the population, then those under the fallback: at each of its scales, or
            the parts of ``alone``.
        weights: Posterior weights of the parts, sum 1.
        size: Number of parts that belong to the population.
        terms: The answers.
        alone: What the answers say without other people, where the fallback is the prior of a vocabulary.
    """

    parts: tuple[PersonPart | PriorFit, ...]
    weights: Floats
    size: int
    terms: Terms = field(repr=False)
    alone: TasteFit | None
    _posteriors: Posteriors = field(repr=False)
    _under: tuple[PersonPart, ...] = field(repr=False)  # those of ``_posteriors``

    @property
    def memberships(self) -> Floats:
        """Posterior weights of the parts of the population, such as types of people; with the fallback's sum 1."""
        return self.weights[: self.size]

    @property
    def hedged(self) -> int:
        """The base of the vocabulary's prior, if there is one."""
        return len(self.parts) if self.alone is None else self.size

    @property
    def fallback_weight(self) -> float:
        """Posterior weight of the fallback: how likely it is that the person belongs to no part of the population."""
        return float(self.weights[self.size :].sum())

    @property
    def theta(self) -> Floats:
        """The mean of the mixture, (d,); under the prior of a vocabulary modes take the place of means."""
        return np.asarray(self.weights @ np.stack([part.mean for part in self.parts]))

    @functools.cached_property
    def estimate(self) -> Estimate:
        """The maximum of the posterior under the prior of the heaviest part, with ``theta`` in its place."""
        return replace(self.parts[int(self.weights.argmax())].estimate, theta=self.theta)

    @functools.cached_property
    def planned(self) -> Posterior:
        """Posterior to plan questions with: that of the population alone, or of the fallback where it is heavier.

        The fallback's large scales would otherwise make every direction seem uncertain that the population knows.
        """
        if self.fallback_weight <= _SWITCH:
            return self._mixed(slice(0, self.size))
        return self._mixed(slice(self.size, None)) if self.alone is None else self.alone.planned

    @functools.cached_property
    def posterior(self) -> Posterior:
        """The mixture of the parts' posteriors (`MixturePosterior`), the fallback's scales together as one Gaussian."""
        return self._mixed(slice(None))

    @functools.cached_property
    def _points(self) -> tuple[Floats, Floats]:
        """Quasi-random points of all `PersonPart`s, (S, d), and their weights, (S,), which sum to 1."""
        own = np.zeros(len(self._under))
        own[: len(self._own)] = self._own / self._own.sum()
        used = own > _NEGLIGIBLE
        logs = np.where(used, np.log(np.maximum(own, 1e-300)) - [part.log_evidence for part in self._under], -np.inf)
        return mixture_draws(self._posteriors, [part._source for part in self._under], own * used, logs)

    @property
    def _own(self) -> Floats:
        """Weights of all `PersonPart`s."""
        return self.weights if self.alone is None else self.memberships

    @one_blas_thread()
    def choice_probabilities(self, options: ArrayLike) -> Floats:
        """Probabilities of the person's choices, averaged over the posterior.

        The probabilities at the mean would be too close to 0 and 1, as the taste is uncertain. The average is over
        weighted quasi-random points of each part's posterior (importance sampling from its variational Gaussian); under
        the prior of a vocabulary over the Gaussian `TasteFit.posterior`.

        Args:
            options: Features of n questions, (n, K, d).

        Returns:
            (n, K), rows sum to 1.

        Raises:
            ValueError: K < 2, NaN, or another dimension.
        """
        features = check_options(options)
        check_array(features, "options", shape=("n", "K", self.terms.dimension), hint="as the answers have")
        own = float(self._own.sum())
        if self.alone is None or own > 1.0 - _NEGLIGIBLE:
            return self._averaged(features)
        alone = self.alone.posterior.choice_probabilities(features)
        return alone if own < _NEGLIGIBLE else own * self._averaged(features) + (1.0 - own) * alone

    def _averaged(self, features: Floats) -> Floats:
        """Choice probabilities averaged over the points."""
        thetas, weights = self._points
        result = np.empty(features.shape[:2])
        step = max(1, _BLOCK_NUMBERS // (len(thetas) * features.shape[1]))
        for start in range(0, len(features), step):
            values = features[start : start + step] @ thetas.T  # (n, K, S)
            result[start : start + step] = np.exp(log_softmax(values.transpose(0, 2, 1))).transpose(0, 2, 1) @ weights
        return result / result.sum(axis=1, keepdims=True)

    def _mixed(self, chosen: slice) -> Posterior:
        """The mixture of some parts."""
        kept = np.zeros(len(self.weights), dtype=bool)
        kept[chosen] = True
        total = float(self.weights[chosen].sum())
        kept &= self.weights > _NEGLIGIBLE * total
        own = np.flatnonzero(kept[: self.size])
        rest = self.size + np.flatnonzero(kept[self.size :])
        found = [self._under[row].posterior for row in own]
        weights = list(self.weights[own])
        if len(rest):
            found.append(self._gathered(rest) if self.alone is None else self.alone.posterior)
            weights.append(float(self.weights[rest].sum()) if self.alone is None else self.fallback_weight)
        return MixturePosterior.of(found, np.array(weights) / sum(weights))

    def _gathered(self, rows: NDArray[np.intp]) -> Posterior:
        """The Gaussian with the moments of several scales: sums of s C - G (I - H^-1) G', once inverted."""
        parts = [self._under[row] for row in rows]
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
    fallback: Fallback | None,
) -> PersonFit:
    """The posterior of a person's taste under several Gaussians and a fallback.

    Args:
        terms: The answers.
        answered: The answers as differences of theta.
        sources: The Gaussians.
        weights: Their prior weights among themselves, sum 1.
        fallback: For a person unlike all others; None: without.
    """
    span = Span.of(answered)
    under = [span.under(source.prior.mean, source.covariance) for source in sources]
    priors = [(source, 1.0) for source in sources]
    logs = np.log(np.maximum(weights, 1e-300))
    if fallback is not None:
        scales, log_weights = fallback_scales(fallback.typical)
        local = span.under(fallback.source.prior.mean, fallback.source.covariance)
        under += [local.scaled(float(scale)) for scale in scales]
        priors += [(fallback.source, float(scale)) for scale in scales]
        logs = np.concatenate([np.log1p(-fallback.weight) + logs, np.log(fallback.weight) + log_weights])
    posteriors = Posteriors.of(span, under)
    evidence = posteriors.log_evidence()
    found = tuple(
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
    size, joint = len(sources), logs + evidence
    if fallback is None or fallback.words is None:
        return PersonFit(found, np.asarray(softmax(joint)), size, terms, None, posteriors, found)
    alone = fallback.words.fit(terms)
    total = float(np.logaddexp.reduce(joint[size:])) + alone.log_gain
    shares = np.asarray(softmax(np.append(joint[:size], total)))
    parts: tuple[PersonPart | PriorFit, ...] = (*found[:size], *alone.parts)
    return PersonFit(
        parts, np.append(shares[:size], shares[size] * alone.weights), size, terms, alone, posteriors, found
    )


def mixture_draws(
    posteriors: Posteriors, sources: Sequence[Source], weights: Floats, logs: Floats
) -> tuple[Floats, Floats]:
    """Points of theta under several posteriors, (S, d), and their weights, (S,), which sum to 1.

    Each posterior gets as many points as its weight. Weights above sqrt(S) times their mean are cut there (Ionides,
    2008): in many dimensions a single point could otherwise represent everything.

    Args:
        posteriors: The posteriors in the span of the answers.
        sources: The priors of theta, but for their scales.
        weights: Posterior weights; 0: without the posterior.
        logs: Logarithms of prior weights, up to a constant, (J,).
    """
    log_points = np.clip(np.rint(np.log2(np.maximum(_POINTS * weights, 1.0))), _LEAST_LOG, None)
    points, targets = posteriors.weigh(np.where(weights > 0.0, log_points, 0.0).astype(np.intp))
    joint = np.exp(targets + logs[:, None] - (targets + logs[:, None]).max())  # (J, S)
    total = joint.sum(axis=0)
    shares = np.minimum(total, np.sqrt(len(points)) * total.mean())
    shares /= shares.sum()
    if posteriors.span.basis is None:
        return points, shares
    # each point in the span belongs to one posterior, as likely as it is there
    places = (np.arange(len(points)) * (np.sqrt(5.0) - 1.0) / 2.0) % 1.0
    owners = (np.cumsum(joint, axis=0) < places * total).sum(axis=0)
    return _completed(posteriors, sources, points, np.minimum(owners, len(joint) - 1)), shares


def _completed(posteriors: Posteriors, sources: Sequence[Source], points: Floats, owners: Floats) -> Floats:
    """Points of theta given points in the span: about other directions the answers say nothing."""
    basis = posteriors.span.basis
    assert basis is not None
    dimension = len(basis)
    normal = normal_net(dimension, int(np.ceil(np.log2(len(points)))), np.full(dimension, 0.5))
    normal = np.random.default_rng(0).permutation(normal)[: len(points)]
    thetas = np.empty((len(points), dimension))
    for row in np.unique(owners):
        local, source, own = posteriors.locals[row], sources[row], owners == row
        whole = np.sqrt(local.scale) * (normal[own] @ source.lower.T)
        inside = points[own] - local.middle - whole @ basis
        if len(local.lower):
            inside = solve_triangular(local.lower, inside.T, lower=True, check_finite=False).T
        thetas[own] = source.prior.mean + whole + inside @ local.loadings.T
    return thetas
