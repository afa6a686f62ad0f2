"""The scale of a prior from the answers alone, by the evidence, and the posterior under it.

How strongly a person's taste shows in their answers (the inverse temperature of the logit) is part of theta, so the
prior's overall variance has to fit the person. The evidence of a prior is the probability of the answers under it,

    log p(answers | prior) = log of the integral of p(answers | theta) p(theta) over theta,

and Laplace's method computes it from the posterior's mode and the Hessian there (MacKay, 1992; Kass & Raftery, 1995).
No held-out answers are needed.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from edpbrl_gym._arrays import Floats, MadeWhenRead
from edpbrl_gym._validation import check_count, check_number
from edpbrl_gym.estimation.map_estimate import Data, Estimate, answer_terms, estimate
from edpbrl_gym.estimation.posterior import Posterior
from edpbrl_gym.estimation.prior import GaussianPrior
from edpbrl_gym.estimation.prior_scale import FIRST_STEP, WARM_STEP, ScaleSearch
from edpbrl_gym.likelihood import AnswerFormat, Terms

__all__ = [
    "PriorFit",
    "VariationalPosterior",
    "fit_given",
    "fit_posterior",
    "fit_prior",
    "mixture_posterior",
    "search_prior",
]

# nats that the search for the scale leaves, by Laplace's and by sampled evidence; one deviation of the scale is 0.5
_LAPLACE_PRECISION, _SCALE_PRECISION = 0.02, 0.05
_MOST_LAPLACE_SCALES, _MOST_SCALES = 40, 20  # tried in one climb
_MANY = 10  # answers, from which on a flat evidence is worth a warning
_NEGLIGIBLE = 0.02  # weight of a part below which a mixture is made without it
_DRAWS = 256  # for the evidence of a part
_SPREAD = 3.0  # standard deviation of log(scale) under its prior


@dataclass(frozen=True, eq=False)
class PriorFit:
    """A prior whose scale was chosen by the evidence, and the estimate under it.

    Attributes:
        prior: The base prior with its covariance times ``scale``.
        estimate: The estimate under ``prior``; check ``estimate.converged``.
        scale: The chosen factor.
        log_evidence: Log evidence of the answers under ``prior``, by Laplace's method.
        grid: Scales tried and the log evidence at each, (g, 2), in ascending order.
        at_bound: Whether the search ended at 1e-4 or 1e6 times the typical scale.
        typical_scale: Median of the prior on the scale.
        log_spread: Standard deviation of log(scale) under that prior.
        flat: Whether the log evidence is the same within 1 nat at all scales tried, so that the answers say nothing
            about the scale, which is then that of its prior.
    """

    prior: GaussianPrior
    estimate: Estimate
    scale: float
    log_evidence: MadeWhenRead[float] = MadeWhenRead()
    grid: Floats = field(default_factory=lambda: np.empty((0, 2)))
    at_bound: bool = False
    typical_scale: float = 1.0
    log_spread: float = _SPREAD
    flat: bool = False
    hedged = 1  # no later parts

    @property
    def parts(self) -> tuple[PriorFit]:
        """This one."""
        return (self,)

    @property
    def weights(self) -> Floats:
        """1, (1,)."""
        return np.ones(1)

    @property
    def mean(self) -> Floats:
        """The estimate of theta, (d,)."""
        return self.estimate.theta

    @functools.cached_property
    def posterior(self) -> Posterior:
        """Laplace's posterior at ``scale``."""
        return Posterior.from_estimate(self.estimate)

    @property
    def planned(self) -> Posterior:
        """The same."""
        return self.posterior

    def __getstate__(self) -> dict[str, Any]:
        """All fields, the evidence made."""
        _ = self.log_evidence
        return self.__dict__


def fit_given(data: Data, prior: GaussianPrior, *, model: AnswerFormat | None = None) -> PriorFit:
    """The estimate under a prior whose scale is kept; arguments and errors are those of ``estimate``."""
    found = estimate(data, prior=prior, model=model)
    return PriorFit(prior, found, 1.0, partial(_laplace_evidence, prior, found))


def _laplace_evidence(prior: GaussianPrior, found: Estimate) -> float:
    return found.log_posterior + 0.5 * (prior.log_determinant - float(np.linalg.slogdet(found.precision)[1]))


def fit_prior(
    data: Data,
    *,
    base: GaussianPrior,
    model: AnswerFormat | None = None,
    typical_scale: float | None = None,
    strength: float = 1.0,
    log_spread: float = _SPREAD,
    start: PriorFit | None = None,
) -> PriorFit:
    """Choose the scale of a prior by the evidence of the answers: theta ~ N(m, scale * C), C the base's covariance.

    The objective is the Laplace log evidence plus a weak log-normal prior on the scale, log(scale) ~
    N(log(typical_scale), log_spread^2). The second term matters only where the answers do not determine the scale:
    before any answer, and for a person who never errs, whose evidence rises to a plateau as the scale grows. With the
    default spread a factor of 20 costs 0.5 nats.

    By default the result does not depend on the unit of the features: the typical scale is the one at which a utility
    difference has the prior variance 2, in the median over the differences to the chosen options. That is the
    variance for two orthogonal options of norm 1 under N(0, I).

    All scales share the coordinates in which the base prior is N(0, I), restricted to the span of the differences if
    these have fewer rows than features (see :mod:`~edpbrl_gym.estimation.whitened`). The search climbs in log(scale)
    from the typical scale, each estimate starting from the last one. It then looks at scales a thousand times smaller
    and larger, and climbs from there too if one is better. From ``start`` it only climbs.

    Args:
        data: Answers, as for :func:`~edpbrl_gym.estimation.estimate`.
        base: Proper prior.
        model: Response model, as for :func:`~edpbrl_gym.estimation.estimate`.
        typical_scale: Median of the prior on the scale, > 0; None: from the size of the differences, as above.
        strength: Factor of the median where it comes from the differences, > 0.
        log_spread: Standard deviation of log(scale) under that prior, > 0; ``numpy.inf`` turns the prior off.
        start: Earlier fit with the same base, for example before the last answers: the search starts at its scale
            and estimate.

    Returns:
        The fit; the estimate has the tolerance of :func:`~edpbrl_gym.estimation.estimate`.

    Warns:
        UserWarning: The evidence of at least 10 answers is the same at all scales tried (``PriorFit.flat``).

    Raises:
        TypeError: The base is not a GaussianPrior.
        ValueError: An improper base, or data as for ``estimate``.
    """
    terms = answer_terms(data, model)
    fit = search_prior(
        terms, base=base, typical_scale=typical_scale, strength=strength, log_spread=log_spread, start=start
    )
    if fit.flat and len(terms) >= _MANY:
        low, high = fit.grid[[0, -1], 0]
        warnings.warn(
            f"Expected answers that say how strongly the taste shows, got answers whose log evidence is the same "
            f"within 1 nat at all scales of the prior from {low:.3g} to {high:.3g}; the scale {fit.scale:.3g} is a "
            f"guess. Do the options' features differ, and do the choices depend on them?",
            stacklevel=2,
        )
    return fit


def search_prior(
    terms: Terms,
    *,
    base: GaussianPrior,
    typical_scale: float | None = None,
    strength: float = 1.0,
    log_spread: float = _SPREAD,
    start: PriorFit | None = None,
) -> PriorFit:
    """`fit_prior` without its warning, for callers that fit after every answer."""
    if start is not None and typical_scale is None:
        typical_scale = start.typical_scale
    search = ScaleSearch(terms, base, typical_scale, log_spread, _LAPLACE_PRECISION, _MOST_LAPLACE_SCALES, strength)
    answers = search.answers
    if start is not None:
        answers.start_at(start.estimate.theta)
    first_scale, step = (search.typical, FIRST_STEP) if start is None else (start.scale, WARM_STEP)
    scale, _, at_bound = search.run(answers.log_evidence, first_scale, step, local=start is not None)
    estimate, prior, evidence = answers.estimate(scale)
    return PriorFit(
        prior=prior,
        estimate=estimate,
        scale=scale,
        log_evidence=evidence,
        grid=np.array(sorted(search.tried)),
        at_bound=at_bound,
        typical_scale=search.typical,
        log_spread=log_spread,
        flat=search.flat,
    )


@dataclass(frozen=True, eq=False)
class VariationalPosterior:
    """The variational Gaussian posterior of a taste.

    Attributes:
        posterior: The Gaussian; its mean is an estimate of theta, further from 0 than the mode.
        scale: Factor of the base prior's covariance.
        scale_deviation: Standard deviation of log(scale) given the answers; 0 if the scale was given or is a bound.
        log_evidence: Log evidence of the answers, by importance sampling from the Gaussian.
        bound: Lower bound on the log evidence, which the Gaussian maximises.
        converged: Whether the bound stopped rising.
        iterations: Number of steps.
    """

    posterior: Posterior
    scale: float
    scale_deviation: float
    log_evidence: float
    bound: float
    converged: bool
    iterations: int


def fit_posterior(
    data: Data,
    *,
    base: GaussianPrior,
    model: AnswerFormat | None = None,
    scale: float | None = None,
    log_spread: float | None = None,
    start: PriorFit | None = None,
    draws: int = 512,
) -> VariationalPosterior:
    """Fit the Gaussian closest to the posterior in Kullback-Leibler divergence; Laplace's is often too narrow.

    For a person who answers with little noise, Laplace's approximation lies too close to 0 and is too narrow, and its
    evidence prefers too small a scale: intervals miss, and predicted accuracies are too low. Here the Gaussian is the
    variational one (:mod:`~edpbrl_gym.estimation.variational`), and the scale of the prior is chosen by the evidence
    from importance sampling. The scale remains uncertain, which widens the posterior along the direction in which the
    mean moves with log(scale), by its change over one standard deviation (Kass & Steffey, 1989). A fit costs as much as
    some tens of estimates: use it to report uncertainty, not after every question.

    Args:
        data: Answers, as for :func:`~edpbrl_gym.estimation.evidence.fit_prior`; so are ``model`` and ``log_spread``.
        base: Proper prior.
        model: Response model.
        scale: Factor of the base's covariance, > 0; None: chosen by the evidence. 1.0 takes the prior as it is.
        log_spread: Standard deviation of log(scale) under its prior, whose median is that of ``fit_prior``; None: that
            of ``start``, or 3.
        start: Fit with the same base; None: the result of :func:`~edpbrl_gym.estimation.evidence.fit_prior`.
        draws: Number of draws for importance sampling, >= 2.

    Raises:
        TypeError: The base is not a GaussianPrior.
        ValueError: An improper base, a scale <= 0, or data as for :func:`~edpbrl_gym.estimation.evidence.fit_prior`.
    """
    typical = None if start is None else start.typical_scale
    if log_spread is None:
        log_spread = _SPREAD if start is None else start.log_spread
    terms = answer_terms(data, model)
    search = ScaleSearch(terms, base, typical, log_spread, _SCALE_PRECISION, _MOST_SCALES)
    num_draws = check_count(draws, "draws", minimum=2)
    if scale is None:
        laplace = start or fit_prior(terms, base=base, log_spread=log_spread)
        search.answers.start_at(laplace.estimate.theta)
        scale, variance, _ = search.run(
            lambda trial_scale: search.answers.sampled_evidence(trial_scale, num_draws),
            laplace.scale,
            WARM_STEP,
            local=True,
        )
    else:
        variance = 0.0
        scale = check_number(scale, "scale", minimum=0.0, exclusive=True)
        if start is not None:
            search.answers.start_at(start.estimate.theta)
    mean, sharpness, fit = search.answers.gaussian(scale)
    evidence = search.answers.sampled_evidence(scale, num_draws)
    if variance:
        further = search.answers.gaussian(scale * float(np.exp(np.sqrt(variance))))[0]
        sharpness = _widened(sharpness, further - mean)
    return VariationalPosterior(
        posterior=Posterior(mean, sharpness),
        scale=scale,
        scale_deviation=float(np.sqrt(variance)),
        log_evidence=evidence,
        bound=fit.log_evidence,
        converged=fit.converged,
        iterations=fit.iterations,
    )


def mixture_posterior(parts: Sequence[PriorFit], weights: Floats, terms: Terms) -> Posterior:
    """The Gaussian with the mean and the covariance of the mixture of variational posteriors under several priors.

    It also covers the uncertainty of the scales (`fit_posterior`), which Laplace's does not: after 6 to 24 answers
    that makes the difference between intervals that hold the truth and intervals that miss it. Its mean is further from
    0 than that of the estimates. Parts of little weight are left out.
    """
    kept = np.flatnonzero(weights > _NEGLIGIBLE)
    found = [
        fit_posterior(terms, base=part.prior.scaled(1.0 / part.scale), start=part, draws=_DRAWS).posterior
        for part in (parts[int(number)] for number in kept)
    ]
    return Posterior.of_mixture(found, weights[kept] / weights[kept].sum())


def _widened(precision: Floats, shift: Floats) -> Floats:
    """Precision of the covariance plus move move' (Sherman & Morrison, 1950)."""
    image = precision @ shift
    return np.asarray(precision - np.outer(image, image) / (1.0 + float(shift @ image)))
