"""The posterior that says how sure one is: variational, its prior's scale from the answers and uncertain."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edpbrl_gym._validation import check_array, check_count, check_number
from edpbrl_gym.estimation.data import Data
from edpbrl_gym.estimation.evidence import PriorFit, fit_prior
from edpbrl_gym.estimation.posterior import Posterior
from edpbrl_gym.estimation.prior import GaussianPrior
from edpbrl_gym.estimation.prior_scale import WARM_STEP, ScaleSearch
from edpbrl_gym.likelihood import ResponseModel

__all__ = ["VariationalPosterior", "fit_posterior"]

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class VariationalPosterior:
    """The variational Gaussian posterior of a taste.

    Attributes:
        posterior: the Gaussian; its mean is an estimate of theta, further out than the mode.
        scale: of the base prior's covariance.
        scale_deviation: standard deviation of log(scale) given the answers; 0 where the scale was given, or is a bound.
        log_evidence: of the answers, by importance sampling from the Gaussian.
        bound: the lower bound on the log evidence that the Gaussian maximises.
        converged: whether the bound stopped rising.
        iterations: steps taken.
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
    model: ResponseModel | None = None,
    scale: float | None = None,
    bounds: tuple[float, float] = (1e-4, 1e6),
    typical_scale: float = 1.0,
    log_spread: float = 3.0,
    start: PriorFit | None = None,
    precision: float = 0.05,
    max_evaluations: int = 20,
    draws: int = 512,
) -> VariationalPosterior:
    """The Gaussian closest to the posterior (least Kullback-Leibler divergence), where Laplace's is too narrow.

    For a person who answers with little noise Laplace's approximation sits too far in and is too narrow, and its
    evidence prefers too small a scale: intervals miss, and predicted accuracies are too low. Here the Gaussian is the
    variational one (:mod:`~edpbrl_gym.estimation.variational`), and the scale of the prior is chosen by the evidence
    that importance sampling from it gives. The scale stays uncertain, and that widens the posterior along the way that
    the mean goes with log(scale), by its move within one standard deviation (Kass & Steffey, 1989). All this costs some
    tens of estimates: for saying how sure one is, not for every question.

    Args:
        data: as for :func:`~edpbrl_gym.estimation.evidence.fit_prior`.
        base: a proper prior.
        model: as for :func:`~edpbrl_gym.estimation.evidence.fit_prior`.
        scale: of the base's covariance, > 0; None: chosen by the evidence. 1.0 takes the prior as it is.
        bounds: as for :func:`~edpbrl_gym.estimation.evidence.fit_prior`.
        typical_scale: as for :func:`~edpbrl_gym.estimation.evidence.fit_prior`.
        log_spread: as for :func:`~edpbrl_gym.estimation.evidence.fit_prior`.
        start: a fit with the same base; None: the one that :func:`~edpbrl_gym.estimation.evidence.fit_prior` finds.
        precision: as for :func:`~edpbrl_gym.estimation.evidence.fit_prior`.
        max_evaluations: as for :func:`~edpbrl_gym.estimation.evidence.fit_prior`.
        draws: of the importance sampling, >= 2.

    Raises:
        TypeError: a base that is no GaussianPrior.
        ValueError: an improper base, a scale <= 0, or data as for :func:`~edpbrl_gym.estimation.evidence.fit_prior`.
    """
    search = ScaleSearch(data, model, base, bounds, typical_scale, log_spread, precision, max_evaluations)
    count = check_count(draws, "draws", minimum=2)
    if scale is None:
        begin = start or fit_prior(
            data, base=base, model=model, bounds=bounds, typical_scale=typical_scale, log_spread=log_spread
        )
        search.answers.start_at(begin.estimate.theta)
        scale, variance, _ = search.run(
            lambda each: search.answers.sampled_evidence(each, count), begin.scale, WARM_STEP
        )
    else:
        variance = 0.0
        scale = check_number(scale, "scale", minimum=0.0, exclusive=True)
        if start is not None:
            search.answers.start_at(check_array(start.estimate.theta, "start.estimate.theta", shape=(base.dimension,)))
    mean, sharpness, fit = search.answers.gaussian(scale)
    evidence = search.answers.sampled_evidence(scale, count)
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


def _widened(precision: Floats, move: Floats) -> Floats:
    """Precision of the covariance plus move move' (Sherman & Morrison, 1950)."""
    image = precision @ move
    return np.asarray(precision - np.outer(image, image) / (1.0 + float(move @ image)))
