"""What a person's own answers and a population say together: a mixture of posteriors, weighted by their evidence.

Beside the population's Gaussian there is a fallback, N(m, s C) with an unknown scale s. A scale chosen by the same
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
from numpy.typing import ArrayLike
from scipy.special import softmax

from edpbrl_gym._arrays import Floats
from edpbrl_gym._threads import one_blas_thread
from edpbrl_gym.estimation.evidence import PriorFit
from edpbrl_gym.estimation.map_estimate import Estimate, estimate
from edpbrl_gym.estimation.mixture import MixturePosterior
from edpbrl_gym.estimation.neighbourhood import TasteFit, VocabularyPrior
from edpbrl_gym.estimation.population.answers import Answered
from edpbrl_gym.estimation.population.sites import fit_sites, rows_of
from edpbrl_gym.estimation.posterior import Posterior
from edpbrl_gym.estimation.prior import GaussianPrior
from edpbrl_gym.estimation.variational import importance_log_evidence
from edpbrl_gym.likelihood import Terms

__all__ = ["Fallback", "PersonFit", "PersonPart", "fit_person"]

_LOG_SPREAD = 1.5  # standard deviation of the fallback's log scale
_SCALES = np.linspace(-2.0, 2.0, 7)  # its points, in standard deviations
_SWITCH = 0.5  # weight of the fallback above which it plans; earlier is no better (docs/people.md)
_TOLERANCE = 1e-3  # nats, of a variational Gaussian
_NEGLIGIBLE = 1e-3  # weight of the fallback below which predictions are made without it
_DRAWS = 256  # for the evidence of a part


@dataclass(frozen=True, eq=False)
class Fallback:
    """What is known of a person unlike all others.

    Attributes:
        prior: A Gaussian, known but for its scale.
        covariance: Its covariance.
        typical: Its typical scale.
        weight: Its prior weight, in (0, 1).
        words: The prior of a vocabulary, to which the Gaussian belongs; None: the Gaussian is all.
    """

    prior: GaussianPrior
    covariance: Floats
    typical: float
    weight: float
    words: VocabularyPrior | None = None


@dataclass(frozen=True, eq=False)
class PersonPart:
    """The posterior under one Gaussian prior N(m, s C).

    Attributes:
        prior: The prior.
        scale: s; 1 for the population.
        log_evidence: Log evidence of the answers, by importance sampling from the variational Gaussian.
        mean: Mean of the variational Gaussian of theta, (d,).
        information: The expected information of each question, (n, k, k), which its precision adds to the prior's.
    """

    prior: GaussianPrior
    scale: float
    log_evidence: float
    mean: Floats
    information: Floats = field(repr=False)
    _answered: Answered = field(repr=False)

    @functools.cached_property
    def estimate(self) -> Estimate:
        """The maximum of the posterior."""
        return estimate(self._answered.terms(), prior=self.prior, start=self.mean)

    @functools.cached_property
    def posterior(self) -> Posterior:
        """The variational Gaussian of theta."""
        rows = self._answered.rows
        flat = rows.reshape(-1, rows.shape[2])
        added = flat.T @ np.matmul(self.information, rows).reshape(flat.shape)
        return Posterior(self.mean, self.prior.precision + (added + added.T) / 2)


@dataclass(frozen=True, eq=False)
class PersonFit:
    """A person's taste under a population.

    Attributes:
        parts: The posterior under the population, then those under the fallback: at each of its scales, or the parts of
            ``alone``.
        weights: Posterior weights of the parts, sum 1.
        terms: The answers.
        alone: What the answers say without other people, where the fallback is the prior of a vocabulary.
    """

    parts: tuple[PersonPart | PriorFit, ...]
    weights: Floats
    terms: Terms = field(repr=False)
    alone: TasteFit | None = None

    @property
    def hedged(self) -> int:
        """The base of the vocabulary's prior, if there is one."""
        return len(self.parts) if self.alone is None else 1

    @property
    def fallback_weight(self) -> float:
        """Posterior weight of the fallback: how likely it is that the person is unlike the population."""
        return float(self.weights[1:].sum())

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
            return self.parts[0].posterior
        if self.alone is not None:
            return self.alone.planned
        weights = self.weights[1:] / self.fallback_weight
        return Posterior.of_mixture([part.posterior for part in self.parts[1:]], weights)

    @functools.cached_property
    def posterior(self) -> Posterior:
        """The mixture of the parts' posteriors, without those of a weight below 0.001."""
        if self.alone is None:
            return MixturePosterior.of([part.posterior for part in self.parts], self.weights)
        other = self.fallback_weight
        if other < _NEGLIGIBLE:  # the other posterior takes some tenths of a second
            return self.parts[0].posterior
        return MixturePosterior.of([self.parts[0].posterior, self.alone.posterior], [1.0 - other, other])

    @one_blas_thread()
    def choice_probabilities(self, options: ArrayLike) -> Floats:
        """Probabilities of the person's choices among options (n, K, d), averaged over the posterior, (n, K).

        The probabilities at the mean would be too close to 0 and 1, as the taste is uncertain. Errors are those of
        `Posterior.choice_probabilities`.
        """
        return self.posterior.choice_probabilities(options)


@one_blas_thread()
def fit_person(
    terms: Terms, answered: Answered, prior: GaussianPrior, covariance: Floats, fallback: Fallback | None
) -> PersonFit:
    """The posterior of a person's taste under a population and a fallback.

    Args:
        terms: The answers.
        answered: The answers as differences of theta.
        prior: The population.
        covariance: Its covariance.
        fallback: For a person unlike all others; None: without.
    """
    if fallback is None:
        return PersonFit(tuple(_parts(answered, [(prior, covariance, [1.0])])), np.ones(1), terms)
    scales = fallback.typical * np.exp(_LOG_SPREAD * _SCALES)
    parts = _parts(answered, [(prior, covariance, [1.0]), (fallback.prior, fallback.covariance, scales.tolist())])
    logs = -0.5 * np.square(_SCALES) + np.log(fallback.weight)
    logs -= np.logaddexp.reduce(-0.5 * np.square(_SCALES))
    joint = np.append(np.log1p(-fallback.weight), logs) + [part.log_evidence for part in parts]
    if fallback.words is None:
        return PersonFit(tuple(parts), np.asarray(softmax(joint)), terms)
    alone = fallback.words.fit(terms)
    own, other = softmax([joint[0], float(np.logaddexp.reduce(joint[1:])) + alone.log_gain])
    return PersonFit((parts[0], *alone.parts), np.append(own, other * alone.weights), terms, alone)


def _parts(answered: Answered, priors: Sequence[tuple[GaussianPrior, Floats, list[float]]]) -> list[PersonPart]:
    """The posteriors under several priors at several scales, fitted together.

    All is in coordinates w ~ N(0, I) of the span of the answers.
    """
    flat = answered.rows.reshape(-1, answered.rows.shape[2])
    under: list[tuple[GaussianPrior, float, Floats, Floats]] = []
    rows, offsets = [], []
    for prior, covariance, scales in priors:
        crossed = covariance @ flat.T  # C D'
        if len(flat) < prior.dimension:
            own = rows_of((flat @ crossed)[None], answered.rows.shape[1])[0]
        else:
            own = answered.rows @ np.linalg.cholesky(covariance)
        for scale in scales:
            under.append((prior, scale, scale * crossed, np.sqrt(scale) * own))
            rows.append(under[-1][3])
            offsets.append(answered.offsets + answered.rows @ prior.mean)
    sites = fit_sites(np.stack(rows), np.stack(offsets), tolerance=_TOLERANCE)
    found = []
    for place, (prior, scale, loadings, own) in enumerate(under):
        scores, information = sites.scores[place].ravel(), sites.information[place]
        white = own.reshape(len(flat), -1)
        precision = white.T @ np.matmul(information, own).reshape(white.shape) + np.eye(white.shape[1])
        evidence = importance_log_evidence(own, offsets[place], 1.0, white.T @ scores, precision, _DRAWS)
        mean = prior.mean + loadings @ scores
        found.append(PersonPart(prior.scaled(scale), scale, evidence, mean, information, answered))
    return found
