"""The estimate of the taste: penalised maximum likelihood (MAP) of the multinomial logit by a damped Newton method.

theta_hat maximises  log-likelihood(theta) - 1/2 (theta - m)' P (theta - m),  with P and m the precision and mean of a
Gaussian prior; P = lambda I with m = 0 is the paper's ridge. For a positive definite P the objective is strictly
concave, so there is exactly one maximum. Without a prior (lambda = 0) it may not exist: see :func:`estimate`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from edpbrl_gym._arrays import Floats
from edpbrl_gym._lazy import MadeWhenRead
from edpbrl_gym._validation import check_array, check_count, check_number
from edpbrl_gym.estimation.conjugate import climb
from edpbrl_gym.estimation.data import Data, answer_differences
from edpbrl_gym.estimation.newton import Maximum, log_posterior, maximise
from edpbrl_gym.estimation.prior import GaussianPrior
from edpbrl_gym.estimation.separation import is_separable, smallest_singular_value
from edpbrl_gym.likelihood import ResponseModel

if TYPE_CHECKING:
    from edpbrl_gym.estimation.diagnosis import Diagnosis

__all__ = ["Estimate", "Fitted", "estimate"]


class Fitted(NamedTuple):
    """What an estimate was fitted to, by reference: the answers as differences, their offsets (or None), the prior."""

    differences: Floats
    offsets: Floats | None
    prior: GaussianPrior


@dataclass(frozen=True, eq=False)
class Estimate:
    """The estimated taste and its precision.

    Attributes:
        theta: The maximiser, (d,), in the user's own units: for a user with inverse temperature s and direction t it
            estimates s * t.
        converged: Whether theta is the maximiser to the tolerance. If False, read ``reason`` and do not use theta.
        iterations: Number of Newton steps.
        gradient_norm: Euclidean norm of the gradient of the log posterior at theta.
        log_likelihood: Log-likelihood of the answers at theta.
        log_posterior: log_likelihood - 1/2 (theta - m)' P (theta - m) (without the normalising constants).
        precision: Fisher information at theta plus the prior precision, (d, d): the precision of the Laplace posterior.
            It may be given as a function without arguments, which is called when the precision is first read.
        reason: Why the iteration did not converge; "" if it did.
        fitted: The answers and the prior, for :meth:`diagnose`; None for an estimate made by other means.
    """

    theta: Floats
    converged: bool
    iterations: int
    gradient_norm: float
    log_likelihood: float
    log_posterior: float
    precision: MadeWhenRead[Floats] = MadeWhenRead()
    reason: str = ""
    fitted: Fitted | None = field(default=None, repr=False)

    def __getstate__(self) -> dict[str, Any]:
        """All fields, the precision made."""
        _ = self.precision
        return self.__dict__

    def covariance(self) -> Floats:
        """Covariance of the Laplace approximation of the posterior, the inverse of ``precision``, (d, d).

        Raises:
            ValueError: The precision is singular, for example without a prior where the estimate did not converge.
        """
        try:
            inverse = cho_solve(cho_factor(self.precision), np.eye(len(self.precision)))
        except LinAlgError:
            reason = self.reason or "no prior and too few answers"
            raise ValueError(
                f"Expected a positive definite precision, got a singular one ({reason}); use regularization > 0"
            ) from None
        return np.asarray((inverse + inverse.T) / 2)

    def diagnose(
        self,
        *,
        truth: ArrayLike | None = None,
        level: float = 0.95,
        draws: int = 1000,
        seed: int = 0,
        limit: float = 4.0,
    ) -> Diagnosis:
        """Whether the assumptions of the paper's bound on the error hold here, and what bound does hold.

        The formulas are in :mod:`edpbrl_gym.estimation.diagnosis`. The paper assumes a local radius r < 1. For a proper
        maximum likelihood estimate r^2 is about chi-squared with as many degrees of freedom as parameters learnt, at
        any number of answers: more answers do not make this true, only a prior that dominates them. The bound from
        generalised self-concordance does get better with more answers.

        Without ``truth`` the numbers are quantiles of the Laplace posterior, which has to be trusted for that. For
        rankings and best-worst answers the information is the observed one, so that the bound is conditional on it.

        Args:
            truth: theta* of a synthetic user, (d,), in the units of theta (times the inverse temperature); None: not
                known. A user without noise has no finite theta*.
            level: Level of the quantiles, in (0, 1).
            draws: Number of draws from the posterior, >= 1; without effect where the truth is known.
            seed: Seed of the draws.
            limit: Largest total constant that counts as useful, >= 1.

        Raises:
            ValueError: An estimate that did not converge, has a singular precision or was not made by ``estimate`` or
                ``fit_prior``, a truth of another dimension, or an argument out of its range.
        """
        from edpbrl_gym.estimation.diagnosis import diagnose

        return diagnose(self, truth=truth, level=level, draws=draws, seed=seed, limit=limit)


def estimate(
    data: Data,
    *,
    prior: GaussianPrior | None = None,
    regularization: float | None = None,
    model: ResponseModel | None = None,
    tolerance: float = 1e-8,
    max_iterations: int = 100,
    start: ArrayLike | None = None,
) -> Estimate:
    """Estimate the taste from answered questions: the maximum of the penalised log-likelihood.

    The likelihood is that of the best of K options; with ``model``, or from terms, that of any format of answers, as a
    sum of multinomial logits with offsets. ``Estimate.precision`` then contains the observed information, minus the
    Hessian. Skips carry no information.

    Newton's method with the exact gradient and backtracking. With a proper prior its steps are those of conjugate
    gradients (:mod:`~edpbrl_gym.estimation.conjugate`), and the Hessian is computed when ``precision`` is first read;
    without one, or where these don't converge, of a Cholesky factor. It has converged when the Newton decrement
    sqrt(g' H^-1 g), the length of the next step in posterior standard deviations, is at most ``tolerance``; this does
    not depend on the scale of the features.

    Without a proper prior the maximum exists if and only if the differences of the options span the features and no
    direction ranks every chosen option at least as high as the others (Albert & Anderson, 1984). If the first condition
    fails, that is an error; if the second fails (separable answers), ``converged`` is False.

    Args:
        data: :class:`~edpbrl_gym.comparisons.Comparisons`; the :class:`~edpbrl_gym.likelihood.Terms` of any answers;
            or a pair (options, answers): features (n, K, d), K >= 2, and the chosen options (n,), or, with ``model``,
            the n :class:`~edpbrl_gym.likelihood.Response`. For n = 0 the result is the prior's mode.
        prior: Gaussian prior; alternatively give ``regularization``.
        regularization: lambda >= 0 of the isotropic prior, 1.0 if neither is given.
        model: Response model (best-worst, a ranking, with ties); None: the answers name the best option.
        tolerance: Bound on the Newton decrement, > 0.
        max_iterations: Maximum number of Newton steps, >= 1.
        start: Initial theta, (d,), for example the last estimate; ignored where the prior's mean is better. None: the
            prior's mean.

    Returns:
        The estimate; check ``converged``.

    Raises:
        TypeError: Data of another type, responses without a model, or a prior that is not a GaussianPrior.
        ValueError: NaN, K < 2, choices outside 0..K-1, dimensions that do not match, lambda < 0, both a prior and a
            regularization, both terms and a model, or no prior and options that do not span the features.
    """
    differences, offsets = answer_differences(data, model)
    full = _resolve_prior(prior, regularization, differences.shape[2])
    return _solve(differences, offsets, full, tolerance=tolerance, max_iterations=max_iterations, start=start)


def _resolve_prior(prior: GaussianPrior | None, regularization: float | None, dimension: int) -> GaussianPrior:
    """The given prior, or without one the ridge with lambda = ``regularization`` (None: 1.0).

    Raises:
        TypeError: The prior is not a GaussianPrior.
        ValueError: Both are given, the prior has another dimension, or lambda < 0.
    """
    if prior is None:
        return GaussianPrior.isotropic(dimension, 1.0 if regularization is None else regularization)
    if not isinstance(prior, GaussianPrior):
        raise TypeError(
            f"Expected prior as a GaussianPrior, got {type(prior).__name__}; make one with "
            f"GaussianPrior.from_precision(matrix)"
        )
    if regularization is not None:
        raise ValueError("Expected either prior or regularization, got both; the prior already holds the precision")
    if prior.dimension != dimension:
        raise ValueError(f"Expected a prior of dimension {dimension} (the options'), got one of {prior.dimension}")
    return prior


def _solve(
    differences: Floats,
    offsets: Floats | None,
    prior: GaussianPrior,
    *,
    tolerance: float,
    max_iterations: int,
    start: ArrayLike | None,
) -> Estimate:
    """Estimate from the result of :func:`~edpbrl_gym.estimation.data.answer_differences`."""
    dimension = prior.dimension
    tolerance = check_number(tolerance, "tolerance", minimum=0.0, exclusive=True)
    max_iterations = check_count(max_iterations, "max_iterations")
    theta, mean = prior.mean.copy(), prior.mean if prior.mean.any() else None
    if start is not None:
        warm = check_array(start, "start", shape=(dimension,)).copy()
        # far away, saturated probabilities carry next to no curvature
        at_mean, at_warm = (
            log_posterior(differences, prior.precision, point, offsets=offsets, prior_mean=mean)
            for point in (theta, warm)
        )
        theta = theta if at_warm < at_mean else warm
    smallest = 0.0 if prior.proper else smallest_singular_value(differences, prior.null_space)
    maximum: Maximum | None = None
    if prior.proper:
        most = max_iterations // 2  # should products be too inaccurate to converge, dense steps still can
        maximum = climb(differences, prior, theta, tolerance=tolerance, max_iterations=most, offsets=offsets)
        theta = maximum.theta
    if maximum is None or maximum.reason:
        maximum = maximise(
            differences,
            prior.precision,
            theta,
            tolerance=tolerance,
            max_iterations=max_iterations,
            offsets=offsets,
            prior_mean=mean,
            taken=0 if maximum is None else maximum.iterations,
        )
    reason = maximum.reason
    if not prior.proper and is_separable(
        *_rejected(differences, offsets, maximum.probabilities), prior.null_space, maximum.score, smallest
    ):
        reason = (
            "the answers are separable: a direction ranks every chosen option at least as high as the others, so the "
            "likelihood has no maximum; use regularization > 0 or ask more questions"
        )
    return Estimate(
        theta=maximum.theta,
        converged=not reason,
        iterations=maximum.iterations,
        gradient_norm=maximum.gradient_norm,
        log_likelihood=maximum.log_likelihood,
        log_posterior=maximum.log_posterior,
        precision=partial(attrgetter("precision"), maximum),
        reason=reason,
        fitted=Fitted(differences, offsets, prior),
    )


def _rejected(differences: Floats, offsets: Floats | None, probabilities: Floats) -> tuple[Floats, Floats]:
    """The differences (m, d) of the options that were there and not chosen, and their probabilities (m,)."""
    present = np.ones(differences.shape[:2], dtype=bool) if offsets is None else ~np.isneginf(offsets)
    return differences[present], probabilities[:, 1:][present]
