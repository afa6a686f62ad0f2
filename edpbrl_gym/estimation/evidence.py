"""The scale of the prior, and which prior, from the answers alone: Laplace evidence.

How strongly a person's taste shows in their answers (the inverse temperature of the logit) is part of theta, so the
prior's overall variance has to fit the person. The evidence of a prior is the probability of the answers under it,

    log p(answers | prior) = log of the integral of p(answers | theta) p(theta) over theta,

and Laplace's method gives it from the posterior's mode and the Hessian there (MacKay, 1992; Kass & Raftery, 1995). It
needs no held-out answers; :mod:`~edpbrl_gym.estimation.cross_validation` is the check on it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from edpbrl_gym._validation import check_array, check_count, check_number
from edpbrl_gym.choice import check_choices, check_options
from edpbrl_gym.estimation.map_estimate import Estimate
from edpbrl_gym.estimation.newton import differences_to_chosen
from edpbrl_gym.estimation.posterior import Posterior
from edpbrl_gym.estimation.prior import GaussianPrior
from edpbrl_gym.estimation.scale_search import climb
from edpbrl_gym.estimation.whitened import WhitenedAnswers
from edpbrl_gym.responses import Terms

__all__ = [
    "PriorChoice",
    "PriorFit",
    "VariationalPosterior",
    "answer_differences",
    "choose_prior",
    "fit_posterior",
    "fit_prior",
    "log_evidence",
]

Floats = NDArray[np.float64]

_FIRST_STEP, _WARM_STEP = float(np.log(3.0)), float(np.log(1.6))  # in log(scale)


@dataclass(frozen=True, eq=False)
class PriorFit:
    """A prior whose scale was chosen by the evidence, and the estimate under it.

    Attributes:
        prior: the base prior with its covariance times ``scale``.
        estimate: the estimate under ``prior``; look at ``estimate.converged``.
        scale: the chosen factor.
        log_evidence: of the answers under ``prior``, by Laplace's method.
        grid: scales that were tried and the log evidence at each, (g, 2), by scale.
        at_bound: whether the search ended at one of the bounds.
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
        name: of the chosen candidate.
        fit: its fit.
        fits: the fits of all candidates, by name.
    """

    name: str
    fit: PriorFit
    fits: Mapping[str, PriorFit]


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


def log_evidence(estimate: Estimate, prior: GaussianPrior) -> float:
    """Laplace's approximation of the log evidence of the answers under the prior.

        log p(answers) = log-likelihood(theta_hat) + log p(theta_hat) + d/2 log(2 pi) - 1/2 log det H
                       = log-likelihood - 1/2 (theta_hat - m)' P (theta_hat - m) + 1/2 log det P - 1/2 log det H,

    P, m the prior's precision and mean, H the estimate's precision (MacKay, 1992). Without answers it is 0. For an
    improper prior P's determinant is that of its nonzero part and the rest counts as a density of 1 (which leaves
    log(2 pi)/2 a direction): such values compare only among priors with the same null space, where the arbitrary
    constant is the same.

    Args:
        estimate: made under this very prior, converged.
        prior: the prior.

    Raises:
        ValueError: an estimate that did not converge, whose precision is singular, or of another dimension.
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


def answer_differences(options: ArrayLike | Terms, choices: ArrayLike | None) -> tuple[Floats, Floats | None]:
    """Differences to the chosen alternatives (n, K - 1, d), their offsets (n, K - 1) or None, of either kind of data.

    Raises:
        ValueError: options without choices, or Terms with them.
    """
    if isinstance(options, Terms):
        if choices is not None:
            raise ValueError("Expected no choices beside Terms, which hold their own; got both")
        differences, offsets = options.differences()
        return differences, offsets if offsets.any() else None
    if choices is None:
        raise ValueError("Expected the choices of the options, got None; or give Terms alone")
    features = check_options(options)
    return differences_to_chosen(features, check_choices(choices, features)), None


def fit_prior(
    options: ArrayLike | Terms,
    choices: ArrayLike | None = None,
    *,
    base: GaussianPrior,
    bounds: tuple[float, float] = (1e-4, 1e6),
    typical_scale: float = 1.0,
    log_spread: float = 3.0,
    start: PriorFit | None = None,
    precision: float = 0.02,
    max_evaluations: int = 40,
) -> PriorFit:
    """Choose the scale of a prior by the evidence of the answers: theta ~ N(m, scale * C), C the base's covariance.

    The objective is the Laplace log evidence plus a weak log-normal prior on the scale, log(scale) ~
    N(log(typical_scale), log_spread^2). The second term matters only where the answers leave the scale open: before any
    answer, and for a person who never errs, whose evidence grows towards a plateau for ever larger scales. With the
    default spread a factor of 20 costs 0.5 nats.

    All scales share the coordinates in which the base prior is N(0, I); with fewer rows of differences than features
    only their span (see :mod:`~edpbrl_gym.estimation.whitened`). The search climbs from ``start`` (or the typical
    scale) in log(scale), each estimate starting from the last one; it finds a local maximum, in practice the only one.

    Args:
        options: features of the options, (n, K, d), or the :class:`~edpbrl_gym.responses.Terms` of any answers.
        choices: index of the chosen option, (n,); None with Terms.
        base: a proper prior.
        bounds: smallest and largest scale.
        typical_scale: median of the prior on the scale, > 0.
        log_spread: standard deviation of log(scale) under it, > 0; ``numpy.inf`` turns it off.
        start: an earlier fit with the same base, for example before the last answers: the search starts at its scale
            and estimate.
        precision: the search ends when the objective can rise by no more than about this many nats, > 0; one standard
            deviation of the scale's own posterior is where it falls by 0.5.
        max_evaluations: scales tried at most, >= 1; 3 after ``start`` follow a slowly changing scale at a fixed cost.

    Returns:
        The fit; the estimate has the tolerance of :func:`~edpbrl_gym.estimation.estimate`.

    Raises:
        TypeError: a base that is no GaussianPrior.
        ValueError: an improper base, bounds that are no interval, or data as for ``estimate``.
    """
    search = _ScaleSearch(options, choices, base, bounds, typical_scale, log_spread, precision, max_evaluations)
    answers = search.answers
    if start is not None:
        answers.start_at(check_array(start.estimate.theta, "start.estimate.theta", shape=(base.dimension,)))
    first, step = (search.typical, _FIRST_STEP) if start is None else (start.scale, _WARM_STEP)
    scale, _, at_bound = search.run(answers.log_evidence, first, step)
    estimate, evidence = answers.estimate(scale)
    return PriorFit(
        prior=base.scaled(scale),
        estimate=estimate,
        scale=scale,
        log_evidence=evidence,
        grid=np.array(sorted(search.tried)),
        at_bound=at_bound,
    )


def fit_posterior(
    options: ArrayLike | Terms,
    choices: ArrayLike | None = None,
    *,
    base: GaussianPrior,
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
        options: as for :func:`fit_prior`.
        choices: as for :func:`fit_prior`.
        base: a proper prior.
        scale: of the base's covariance, > 0; None: chosen by the evidence. 1.0 takes the prior as it is.
        bounds: as for :func:`fit_prior`.
        typical_scale: as for :func:`fit_prior`.
        log_spread: as for :func:`fit_prior`.
        start: a fit with the same base; None: the one that :func:`fit_prior` finds.
        precision: as for :func:`fit_prior`.
        max_evaluations: as for :func:`fit_prior`.
        draws: of the importance sampling, >= 2.

    Raises:
        TypeError: a base that is no GaussianPrior.
        ValueError: an improper base, a scale <= 0, or data as for :func:`fit_prior`.
    """
    search = _ScaleSearch(options, choices, base, bounds, typical_scale, log_spread, precision, max_evaluations)
    count = check_count(draws, "draws", minimum=2)
    if scale is None:
        begin = start or fit_prior(
            options, choices, base=base, bounds=bounds, typical_scale=typical_scale, log_spread=log_spread
        )
        search.answers.start_at(begin.estimate.theta)
        scale, variance, _ = search.run(
            lambda each: search.answers.sampled_evidence(each, count), begin.scale, _WARM_STEP
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


def choose_prior(
    options: ArrayLike | Terms,
    choices: ArrayLike | None = None,
    *,
    candidates: Mapping[str, GaussianPrior],
    bounds: tuple[float, float] = (1e-4, 1e6),
    typical_scale: float = 1.0,
    log_spread: float = 3.0,
) -> PriorChoice:
    """Choose among several base priors, each at the scale that fits the answers best: the highest log evidence wins.

    Args:
        options: as for :func:`fit_prior`.
        choices: as for :func:`fit_prior`.
        candidates: proper priors by name, for example powers of the embeddings' covariance, at least one.
        bounds: as for :func:`fit_prior`.
        typical_scale: as for :func:`fit_prior`.
        log_spread: as for :func:`fit_prior`.

    Raises:
        ValueError: no candidates, or as for :func:`fit_prior`.
    """
    if not candidates:
        raise ValueError("Expected at least one candidate prior, got none")
    fits = {
        name: fit_prior(options, choices, base=base, bounds=bounds, typical_scale=typical_scale, log_spread=log_spread)
        for name, base in candidates.items()
    }
    name = max(fits, key=lambda each: fits[each].log_evidence)
    return PriorChoice(name=name, fit=fits[name], fits=fits)


def _widened(precision: Floats, move: Floats) -> Floats:
    """Precision of the covariance plus move move' (Sherman & Morrison, 1950)."""
    image = precision @ move
    return np.asarray(precision - np.outer(image, image) / (1.0 + float(move @ image)))


class _ScaleSearch:
    """Checked arguments of a search for the scale, and the search."""

    def __init__(
        self,
        options: ArrayLike | Terms,
        choices: ArrayLike | None,
        base: GaussianPrior,
        bounds: tuple[float, float],
        typical_scale: float,
        log_spread: float,
        precision: float,
        max_evaluations: int,
    ) -> None:
        differences, offsets = answer_differences(options, choices)
        self._bounds = _checked_bounds(bounds)
        self.typical = check_number(typical_scale, "typical_scale", minimum=0.0, exclusive=True)
        if not log_spread > 0:
            raise ValueError(f"Expected log_spread > 0 (numpy.inf: no prior on the scale), got {log_spread}")
        self._log_spread = log_spread
        self._precision = check_number(precision, "precision", minimum=0.0, exclusive=True)
        self._most = check_count(max_evaluations, "max_evaluations")
        if not isinstance(base, GaussianPrior):
            raise TypeError(f"Expected base as a GaussianPrior, got {type(base).__name__}")
        dimension = differences.shape[2]
        if base.dimension != dimension:
            raise ValueError(f"Expected a base of dimension {dimension} (the options'), got {base.dimension}")
        self.answers = WhitenedAnswers(differences, offsets, base)
        self.tried: list[tuple[float, float]] = []

    def run(self, evidence: Callable[[float], float], first: float, step: float) -> tuple[float, float, bool]:
        """The scale with the highest evidence under the prior on it, the variance of log(scale), and if it is a bound.

        The variance is 1 / curvature at the maximum; 0 where none was measured.
        """

        def objective(log_scale: float) -> float:
            scale = float(np.exp(log_scale))
            value = evidence(scale)
            self.tried.append((scale, value))
            return value - 0.5 * ((log_scale - float(np.log(self.typical))) / self._log_spread) ** 2

        limits = float(np.log(self._bounds[0])), float(np.log(self._bounds[1]))
        best, curvature = climb(
            objective,
            float(np.log(first)),
            limits,
            step=step,
            precision=self._precision,
            max_evaluations=self._most,
        )
        variance = 1.0 / curvature if curvature > 0 else 0.0
        return float(np.clip(np.exp(best), *self._bounds)), variance, best in limits


def _checked_bounds(bounds: tuple[float, float]) -> tuple[float, float]:
    if len(bounds) != 2:
        raise ValueError(f"Expected bounds as (smallest, largest) scale, got {bounds!r}")
    low = check_number(bounds[0], "bounds[0]", minimum=0.0, exclusive=True)
    high = check_number(bounds[1], "bounds[1]", minimum=0.0, exclusive=True)
    if low > high:
        raise ValueError(f"Expected bounds (smallest, largest), got {bounds!r}")
    return low, high
