"""The estimate from answers of any format, through their likelihood as a sum of multinomial logits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from numpy.typing import ArrayLike

from edpbrl_gym.estimation.map_estimate import Estimate, resolve_prior, solve
from edpbrl_gym.estimation.prior import GaussianPrior
from edpbrl_gym.likelihood import Response, ResponseModel, Terms

if TYPE_CHECKING:
    from edpbrl_gym.comparisons import History

__all__ = ["estimate_history", "estimate_responses", "estimate_terms"]


def estimate_terms(
    terms: Terms,
    *,
    prior: GaussianPrior | None = None,
    regularization: float | None = None,
    tolerance: float = 1e-8,
    max_iterations: int = 100,
    start: ArrayLike | None = None,
) -> Estimate:
    """Estimate the taste from terms: the maximum of their log-likelihood and the log prior.

    The same Newton method as :func:`~edpbrl_gym.estimation.estimate`, with offsets; for terms that are plain choices
    the two agree. ``Estimate.precision`` holds the observed information, minus the Hessian.

    Args:
        terms: of all answers, as a response model's ``terms`` makes them; none of them returns the prior's mode.
        prior: a Gaussian prior; or give ``regularization``.
        regularization: lambda >= 0 of the isotropic prior, 1.0 when neither is given.
        tolerance: bound on the Newton decrement, > 0.
        max_iterations: most Newton steps, >= 1.
        start: where to start, (d,), for example the last estimate.

    Returns:
        The estimate; look at ``converged``.

    Raises:
        TypeError: ``terms`` is no Terms, ``prior`` no GaussianPrior.
        ValueError: dimensions that do not match, lambda < 0, both a prior and a regularization, or no prior and terms
            that do not span the features.
    """
    if not isinstance(terms, Terms):
        raise TypeError(f"Expected Terms, got {type(terms).__name__}; make them with a response model's terms()")
    differences, offsets = terms.differences()
    return solve(
        differences,
        offsets,
        resolve_prior(prior, regularization, terms.dimension),
        tolerance=tolerance,
        max_iterations=max_iterations,
        start=start,
    )


def estimate_responses(
    options: ArrayLike,
    responses: Sequence[Response],
    model: ResponseModel,
    *,
    prior: GaussianPrior | None = None,
    regularization: float | None = None,
    tolerance: float = 1e-8,
    max_iterations: int = 100,
    start: ArrayLike | None = None,
) -> Estimate:
    """Estimate the taste from options (n, K, d) and the n responses to them under a response model.

    Skips say nothing. See :func:`estimate_terms` for the other arguments and the errors.
    """
    return estimate_terms(
        model.terms(options, responses),
        prior=prior,
        regularization=regularization,
        tolerance=tolerance,
        max_iterations=max_iterations,
        start=start,
    )


def estimate_history(
    history: History,
    model: ResponseModel,
    *,
    prior: GaussianPrior | None = None,
    regularization: float | None = None,
    tolerance: float = 1e-8,
    max_iterations: int = 100,
    start: ArrayLike | None = None,
) -> Estimate:
    """Estimate the taste from a :class:`~edpbrl_gym.comparisons.History`; see :func:`estimate_terms`."""
    return estimate_terms(
        history.terms(model),
        prior=prior,
        regularization=regularization,
        tolerance=tolerance,
        max_iterations=max_iterations,
        start=start,
    )
