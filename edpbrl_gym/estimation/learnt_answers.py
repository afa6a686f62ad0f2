"""What a person's "can't tell" and skips mean, learnt from their answers.

Two response models have a number that belongs to the person: nu of ``WithTies`` (how large a difference must be to be
seen) and the offset c of ``WithOutside`` (how good an option must be to be chosen at all). Both are the logarithm of a
weight w beside the exp(utility) of the options, w = nu or w = exp(c), and are learnt like the scale s of the prior, by
the evidence of the answers. With weak log-normal priors on both, the objective

    log p(answers | w, s) - (log w - log w_0)^2 / (2 spread^2) - (log s - log s_0)^2 / (2 spread_s^2)

is maximised jointly: a climb in log w, with the best scale (``fit_prior``) at each w.

Ties and skips may also tell nothing, as those of a person in a hurry do. Then they come at a constant rate,
w / (K + w), that of the model above at theta = 0, and the evidence is that of the other answers by best-of-K times the
probability of the sequence of the n - m answers and m ties or skips,

    integral of (w / (K + w))^m (K / (K + w))^(n - m) under the same prior on log w.

Its ratio to the evidence of the model above, integrated over log w by Laplace's method, is the odds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import logsumexp

from edpbrl_gym._arrays import Floats
from edpbrl_gym._validation import check_number
from edpbrl_gym.comparisons import Comparisons
from edpbrl_gym.estimation.evidence import PriorFit, fit_prior
from edpbrl_gym.estimation.prior import GaussianPrior
from edpbrl_gym.estimation.scale_search import climb
from edpbrl_gym.likelihood import BestOf, Kind, ResponseModel, Terms, WithOutside, WithTies

__all__ = ["AnswerFit", "learn_outside", "learn_ties"]


_LIMITS = (np.log(1e-4), np.log(1e4))  # of log w
_SCALE_SPREAD = 3.0  # of the log scale, the default of ``fit_prior``
_STEP = float(np.log(2.0))  # first step in log w
_PRECISION, _MAX_EVALUATIONS = 0.02, 20


@dataclass(frozen=True, eq=False)
class AnswerFit:
    """A response model with its learnt number, and the taste estimated with it.

    Attributes:
        model: The model, ``WithTies`` with its nu or ``WithOutside`` with its offset.
        fit: The prior at its chosen scale, the estimate, and the evidence.
        grid: Values of log w tried and the objective at each, (g, 2), in ascending order.
        log_odds: Log of the odds that the ties or skips tell what the model says, against nothing, at even prior odds;
            below 0 they are better left out.
    """

    model: ResponseModel
    fit: PriorFit
    grid: Floats
    log_odds: float


def learn_ties(
    data: Comparisons,
    *,
    base: GaussianPrior,
    typical_nu: float = 1.0,
    log_spread: float = 1.0,
    typical_scale: float = 1.0,
) -> AnswerFit:
    """Learn how readily a person calls a tie, nu of ``WithTies``, with the scale of the prior.

    Args:
        data: Answers of the kinds "best" and "tie"; skips carry no information.
        base: Proper prior of the taste, whose scale is chosen as in ``fit_prior``.
        typical_nu: Median of the log-normal prior on nu, > 0.
        log_spread: Standard deviation of log nu under that prior, > 0. Few answers don't tell a large nu from a
            large scale of the taste, so it is moderate: at the default two of them are a factor of 7.
        typical_scale: Median of the prior on the scale, > 0.

    Raises:
        TypeError: The answers are not Comparisons.
        ValueError: Answers of other kinds, or an argument out of its range.
    """
    centre = float(np.log(check_number(typical_nu, "typical_nu", minimum=0.0, exclusive=True)))
    return _learn(
        data, "tie", lambda log_weight: WithTies(float(np.exp(log_weight))), base, centre, log_spread, typical_scale
    )


def learn_outside(
    data: Comparisons,
    *,
    base: GaussianPrior,
    reference: ArrayLike,
    typical_offset: float = 0.0,
    spread: float = 2.0,
    typical_scale: float = 1.0,
) -> AnswerFit:
    """Learn from which utility on a person answers at all, the offset c of ``WithOutside``, with the prior's scale.

    Args:
        data: All questions with answers of the kind "best" and with their skips, which here carry information.
        base: Proper prior of the taste, whose scale is chosen as in ``fit_prior``.
        reference: The row of utility 0, (d,), for example the mean of the vocabulary's embeddings.
        typical_offset: Mean of the Gaussian prior on c; at 0 a person skips one question of K + 1 average options.
        spread: Standard deviation of c under that prior, > 0.
        typical_scale: Median of the prior on the scale, > 0.

    Raises:
        TypeError: The answers are not Comparisons.
        ValueError: Answers of other kinds, a reference of another dimension, or an argument out of its range.
    """
    row = np.asarray(reference)
    centre = check_number(typical_offset, "typical_offset")
    return _learn(data, "skip", lambda offset: WithOutside(offset, row), base, centre, spread, typical_scale)


def _learn(
    data: Comparisons,
    kind: Kind,
    model_at: Callable[[float], ResponseModel],
    base: GaussianPrior,
    centre: float,
    spread: float,
    typical_scale: float,
) -> AnswerFit:
    if not isinstance(data, Comparisons):
        raise TypeError(f"Expected answers as Comparisons, got {type(data).__name__}")
    width = check_number(spread, "spread", minimum=0.0, exclusive=True)
    fit: PriorFit | None = None

    def fitted(terms: Terms) -> PriorFit:
        return fit_prior(terms, base=base, typical_scale=typical_scale, log_spread=_SCALE_SPREAD, start=fit)

    def evidence(found: PriorFit) -> float:
        return float(found.log_evidence - 0.5 * (np.log(found.scale / typical_scale) / _SCALE_SPREAD) ** 2)

    tried: list[tuple[float, float]] = []

    def objective(log_weight: float) -> float:
        nonlocal fit
        fit = fitted(data.terms(model_at(log_weight)))
        value = float(evidence(fit) - 0.5 * ((log_weight - centre) / width) ** 2)
        tried.append((log_weight, value))
        return value

    limits = float(_LIMITS[0]), float(_LIMITS[1])
    best, curvature = climb(
        objective, centre, limits, step=_STEP, precision=_PRECISION, max_evaluations=_MAX_EVALUATIONS
    )
    # at a limit the curvature is unknown: that of the prior
    integral = objective(best) - np.log(width) - 0.5 * np.log(curvature if curvature > 0 else width**-2)
    assert fit is not None
    told = data if kind == "skip" else data.answered
    silent = np.array([response.kind == kind for response in told.responses], dtype=bool)
    others = fitted(told.select(~silent).terms(BestOf()))
    at_random = _log_evidence_at_random(int(silent.sum()), len(told), told.num_options, centre, width)
    return AnswerFit(model_at(best), fit, np.array(sorted(tried)), float(integral - evidence(others) - at_random))


def _log_evidence_at_random(silent: int, total: int, num_options: int, centre: float, width: float) -> float:
    """Log probability of ``silent`` ties or skips at their places among ``total`` answers, at a constant rate."""
    deviations = np.linspace(-8.0, 8.0, 4001)
    log_weight = centre + width * deviations
    log_total = np.logaddexp(log_weight, np.log(num_options))
    logs = silent * log_weight + (total - silent) * np.log(num_options) - total * log_total - 0.5 * deviations**2
    return float(logsumexp(logs) + np.log(deviations[1] - deviations[0]) - 0.5 * np.log(2 * np.pi))
