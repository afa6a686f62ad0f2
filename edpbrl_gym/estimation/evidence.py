"""Choice of a prior and of its scale from the answers alone, by the Laplace evidence.

How strongly a person's taste shows in their answers (the inverse temperature of the logit) is part of theta, so the
prior's overall variance has to fit the person. The evidence of a prior is the probability of the answers under it,

    log p(answers | prior) = log of the integral of p(answers | theta) p(theta) over theta,

and Laplace's method computes it from the posterior's mode and the Hessian there (MacKay, 1992; Kass & Raftery, 1995).
No held-out answers are needed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from edpbrl_gym._arrays import Floats
from edpbrl_gym._validation import check_array
from edpbrl_gym.estimation.data import Data
from edpbrl_gym.estimation.map_estimate import Estimate
from edpbrl_gym.estimation.prior import GaussianPrior
from edpbrl_gym.estimation.prior_scale import BOUNDS, FIRST_STEP, WARM_STEP, ScaleSearch
from edpbrl_gym.likelihood import ResponseModel

__all__ = [
    "PriorChoice",
    "PriorFit",
    "choose_prior",
    "fit_prior",
    "log_evidence",
]


@dataclass(frozen=True, eq=False)
class PriorFit:
    """A prior whose scale was chosen by the evidence, and the estimate under it.

    Attributes:
        prior: The base prior with its covariance times ``scale``.
        estimate: The estimate under ``prior``; check ``estimate.converged``.
        scale: The chosen factor.
        log_evidence: Log evidence of the answers under ``prior``, by Laplace's method.
        grid: Scales tried and the log evidence at each, (g, 2), in ascending order.
        at_bound: Whether the search ended at one of the bounds.
    """

    prior: GaussianPrior
    estimate: Estimate
    scale: float
    log_evidence: float
    grid: Floats
    at_bound: bool


@dataclass(frozen=True, eq=False)
class PriorChoice:
    """The best of several base priors, each at its own best scale.

    Attributes:
        name: Name of the chosen candidate.
        fit: Its fit.
        fits: The fits of all candidates, by name.
    """

    name: str
    fit: PriorFit
    fits: Mapping[str, PriorFit]


def log_evidence(estimate: Estimate, prior: GaussianPrior) -> float:
    """Laplace's approximation of the log evidence of the answers under the prior.

        log p(answers) = log-likelihood(theta_hat) + log p(theta_hat) + d/2 log(2 pi) - 1/2 log det H
                       = log-likelihood - 1/2 (theta_hat - m)' P (theta_hat - m) + 1/2 log det P - 1/2 log det H,

    with P and m the prior's precision and mean, H the estimate's precision (MacKay, 1992). Without answers it is 0. For
    an improper prior, the determinant of P is that of its nonzero part, and the null space counts as a density of 1
    (log(2 pi)/2 for each direction): such values are comparable only among priors with the same null space.

    Args:
        estimate: Converged estimate under this very prior.
        prior: The prior.

    Raises:
        ValueError: The estimate did not converge, has a singular precision or another dimension.
    """
    if len(estimate.theta) != prior.dimension:
        raise ValueError(f"Expected a prior of dimension {len(estimate.theta)} (theta's), got one of {prior.dimension}")
    if not estimate.converged:
        raise ValueError(f"Expected an estimate that converged, got one that did not: {estimate.reason}")
    sign, log_determinant = np.linalg.slogdet(estimate.precision)
    if sign <= 0:
        raise ValueError("Expected a positive definite precision of the estimate, got a singular one")
    free = prior.null_space.shape[1] * float(np.log(2 * np.pi))
    return float(estimate.log_posterior + 0.5 * (prior.log_determinant + free - log_determinant))


def fit_prior(
    data: Data,
    *,
    base: GaussianPrior,
    model: ResponseModel | None = None,
    bounds: tuple[float, float] = BOUNDS,
    typical_scale: float = 1.0,
    log_spread: float = 3.0,
    start: PriorFit | None = None,
    precision: float = 0.02,
    max_evaluations: int = 40,
) -> PriorFit:
    """Choose the scale of a prior by the evidence of the answers: theta ~ N(m, scale * C), C the base's covariance.

    The objective is the Laplace log evidence plus a weak log-normal prior on the scale, log(scale) ~
    N(log(typical_scale), log_spread^2). The second term matters only where the answers do not determine the scale:
    before any answer, and for a person who never errs, whose evidence rises to a plateau as the scale grows. With the
    default spread a factor of 20 costs 0.5 nats.

    All scales share the coordinates in which the base prior is N(0, I), restricted to the span of the differences if
    these have fewer rows than features (see :mod:`~edpbrl_gym.estimation.whitened`). The search climbs in log(scale)
    from ``start`` (or the typical scale), each estimate starting from the last one; it finds a local maximum, in
    practice the only one.

    Args:
        data: Answers, as for :func:`~edpbrl_gym.estimation.estimate`.
        base: Proper prior.
        model: Response model, as for :func:`~edpbrl_gym.estimation.estimate`.
        bounds: Smallest and largest scale.
        typical_scale: Median of the prior on the scale, > 0.
        log_spread: Standard deviation of log(scale) under that prior, > 0; ``numpy.inf`` turns the prior off.
        start: Earlier fit with the same base, for example before the last answers: the search starts at its scale
            and estimate.
        precision: Tolerance in nats, > 0: the search ends when the objective can rise by no more than about this. At
            one standard deviation of the scale's own posterior it is lower by 0.5.
        max_evaluations: Maximum number of scales tried, >= 1; with ``start``, 3 suffice for a slowly changing scale.

    Returns:
        The fit; the estimate has the tolerance of :func:`~edpbrl_gym.estimation.estimate`.

    Raises:
        TypeError: The base is not a GaussianPrior.
        ValueError: An improper base, bounds that are not interval, or data as for ``estimate``.
    """
    search = ScaleSearch(data, model, base, bounds, typical_scale, log_spread, precision, max_evaluations)
    answers = search.answers
    if start is not None:
        answers.start_at(check_array(start.estimate.theta, "start.estimate.theta", shape=(base.dimension,)))
    first_scale, step = (search.typical, FIRST_STEP) if start is None else (start.scale, WARM_STEP)
    scale, _, at_bound = search.run(answers.log_evidence, first_scale, step)
    estimate, prior, evidence = answers.estimate(scale)
    return PriorFit(
        prior=prior,
        estimate=estimate,
        scale=scale,
        log_evidence=evidence,
        grid=np.array(sorted(search.tried)),
        at_bound=at_bound,
    )


def choose_prior(
    data: Data,
    *,
    candidates: Mapping[str, GaussianPrior],
    model: ResponseModel | None = None,
) -> PriorChoice:
    """Choose the base prior with the highest log evidence, each candidate at the scale that fits the answers best.

    Args:
        data: Answers, as for :func:`fit_prior`.
        candidates: At least one proper prior, by name, for example powers of the embeddings' covariance.
        model: Response model, as for :func:`fit_prior`.

    Raises:
        ValueError: There are no candidates, or as for :func:`fit_prior`.
    """
    if not candidates:
        raise ValueError("Expected at least one candidate prior, got none")
    fits = {name: fit_prior(data, base=base, model=model) for name, base in candidates.items()}
    name = max(fits, key=lambda candidate: fits[candidate].log_evidence)
    return PriorChoice(name=name, fit=fits[name], fits=fits)
