r"""Predicted accuracy of the estimate, now and after more questions, and the stopping rule.

The predicted accuracy now is the share of held-out pairs of prompts, averaged over draws of theta from its posterior,
that the estimate m orders as theta does (``sampled_accuracy``).

For the forecast the posterior is a Gaussian about the estimate, theta ~ N(m, c S), with S = P^-1 the Laplace covariance
and c such that the Gaussian has the same accuracy now (``match_accuracy``): m orders a pair whose features differ by x
as theta does with probability Phi(|m . x| / s_0), s_0^2 = c x' S x. Let I be the expected Fisher information of one
typical question, averaged over typical questions and over the posterior. After n more of them the precision is about
P / c + n I, the estimate is m_n, and by the law of total variance

    m_n . x ~ N(m . x, t_n^2),   t_n^2 = s_0^2 - s_n^2,   s_n^2 = x' (P / c + n I)^-1 x,

so that the predicted accuracy after n more questions is the mean over the pairs of

    E[ Phi(|m_n . x| / s_n) ] = E_z[ Phi(|m . x + t_n z| / s_n) ],   z ~ N(0, 1).

For m . x = 0 this is 1/2 + arcsin(t_n / s_0) / pi. It never falls with n, and tends to 1 if the questions determine
theta. The scale of the prior is treated as known.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import cholesky, eigh, solve_triangular
from scipy.optimize import brentq
from scipy.special import ndtr, ndtri

from edpbrl_gym._arrays import Floats
from edpbrl_gym._validation import check_array, check_integers
from edpbrl_gym.estimation.posterior import Posterior
from edpbrl_gym.likelihood import ResponseModel

__all__ = [
    "Progress",
    "expected_information",
    "forecast_accuracy",
    "match_accuracy",
    "sampled_accuracy",
]


_NODES = ndtri((np.arange(128) + 0.5) / 128)  # equally likely values of a standard normal variable
_PAIRS = 512  # pairs per block: bounds the memory
_MAX_LOG_FACTOR = 12.0  # bound on |log c|, c the factor of the covariance


def expected_information(model: ResponseModel, options: ArrayLike, thetas: ArrayLike) -> Floats:
    """Expected Fisher information of one question, the mean over questions and tastes, (d, d).

    Args:
        model: Format of the answers.
        options: Typical questions, (n, K, d), n >= 1.
        thetas: Draws from the posterior, (s, d), s >= 1.

    Raises:
        ValueError: No questions or no draws, or dimensions that do not match.
    """
    features = check_array(options, "options", shape=("n", "K", "d"))
    tastes = check_array(thetas, "thetas", shape=("s", features.shape[2]))
    if not len(features) or not len(tastes):
        raise ValueError(f"Expected at least one question and one taste, got {len(features)} and {len(tastes)}")
    total = np.zeros((features.shape[2], features.shape[2]))
    for theta in tastes:
        total += model.information(features, theta)
    return total / (len(features) * len(tastes))


def sampled_accuracy(estimate: ArrayLike, thetas: ArrayLike, differences: ArrayLike) -> float:
    """Mean share of pairs that the estimate orders as a draw does; a pair to which it is indifferent counts one half.

    Args:
        estimate: Estimate of theta, (d,).
        thetas: Draws from the posterior, (s, d), s >= 1.
        differences: Differences of the features of the two prompts of each pair, (p, d), p >= 1.
    """
    signs = np.sign(np.asarray(differences) @ np.asarray(estimate))
    agreement = np.sign(np.asarray(thetas) @ np.asarray(differences).T) == signs
    return float(np.where(signs == 0, 0.5, agreement.mean(axis=0)).mean())


def match_accuracy(posterior: Posterior, differences: ArrayLike, accuracy: float) -> Posterior:
    """Return the Gaussian N(m, c S) that predicts the given accuracy, with c in exp(-12)..exp(12).

    Args:
        posterior: N(m, S).
        differences: Differences of the features of the pairs, (p, d).
        accuracy: Accuracy in [0.5, 1].
    """
    pairs = check_array(differences, "differences", shape=("p", posterior.dimension))
    deviations = posterior.standard_deviation(pairs)
    standardised = np.divide(np.abs(pairs @ posterior.mean), deviations, out=np.zeros(len(pairs)), where=deviations > 0)
    if not standardised.any():
        return posterior  # an estimate of 0: every c predicts one half

    def excess(log_factor: float) -> float:
        return float(ndtr(standardised * np.exp(-log_factor / 2)).mean()) - accuracy

    if excess(-_MAX_LOG_FACTOR) <= 0:
        log_factor = -_MAX_LOG_FACTOR
    elif excess(_MAX_LOG_FACTOR) >= 0:
        log_factor = _MAX_LOG_FACTOR
    else:
        log_factor = float(brentq(excess, -_MAX_LOG_FACTOR, _MAX_LOG_FACTOR, xtol=1e-10))
    return Posterior(posterior.mean, posterior.precision * np.exp(-log_factor))


def forecast_accuracy(
    posterior: Posterior, information: ArrayLike, differences: ArrayLike, further: ArrayLike
) -> Floats:
    """Predicted share of pairs that the estimate will order as the truth does, after more questions; see the module.

    Args:
        posterior: Present posterior of theta.
        information: Expected Fisher information of one more question, (d, d), positive semidefinite.
        differences: Differences of the features of the two prompts of each pair, (p, d); pairs without a difference
            count one half.
        further: Numbers of further questions, (m,), >= 0.

    Returns:
        Predicted accuracies, (m,), in [0.5, 1].

    Raises:
        ValueError: No pairs, or shapes that do not match.
    """
    dimension = len(posterior.mean)
    pairs = check_array(differences, "differences", shape=("p", dimension))
    if not len(pairs):
        raise ValueError("Expected at least one pair, got none")
    counts = check_integers(further, "further", shape=("m",), low=0).astype(np.float64)
    question_information = check_array(information, "information", shape=(dimension, dimension))
    factor = cholesky(posterior.precision, lower=True)
    half_solved = solve_triangular(factor, question_information, lower=True)
    rates, vectors = eigh(solve_triangular(factor, half_solved.T, lower=True))
    rates = np.maximum(rates, 0.0)  # rounding
    # x' (P + n I)^-1 x = sum_j w_j^2 / (1 + n r_j): one decomposition serves every n
    squares = np.square(solve_triangular(factor, pairs.T, lower=True).T @ vectors)
    variances = squares @ (1.0 / (1.0 + np.outer(rates, counts)))  # (p, m)
    present_variances = squares.sum(axis=1, keepdims=True)
    means = pairs @ posterior.mean
    totals = np.zeros(len(counts))
    for start in range(0, len(pairs), _PAIRS):
        block = slice(start, start + _PAIRS)
        spread = np.sqrt(np.maximum(present_variances[block] - variances[block], 0.0))
        leads = np.abs(means[block, None, None] + spread[:, :, None] * _NODES)
        deviation = np.sqrt(variances[block])[:, :, None]
        divisor = np.where(deviation > 0, deviation, 1.0)
        share = np.where(deviation > 0, ndtr(leads / divisor), np.where(leads > 0, 1.0, 0.5))
        totals += share.mean(axis=2).sum(axis=0)
    return np.asarray(totals / len(pairs))


@dataclass(frozen=True, eq=False)
class Progress:
    """Progress of a session.

    Attributes:
        questions: Number of questions answered or skipped.
        answers: Number of answers among them.
        accuracy: Predicted accuracy now: the share of held-out pairs of prompts that the estimate orders as the
            person would without noise.
        further: Numbers of further questions, (m,), beginning with 0.
        curve: Predicted accuracy after them, (m,).
        should_stop: Whether the stopping rule says stop.
        reason: Its reason.
    """

    questions: int
    answers: int
    accuracy: float
    further: NDArray[np.int64]
    curve: Floats
    should_stop: bool
    reason: str

    def questions_to(self, target: float) -> float | None:
        """Number of further questions until the predicted accuracy reaches ``target``, None if beyond the curve.

        Interpolated linearly between the points of the curve; 0 if the accuracy is reached already.
        """
        above_target = np.flatnonzero(self.curve >= target)
        if not len(above_target):
            return None
        first_index = int(above_target[0])
        if first_index == 0:
            return 0.0
        low, high = self.curve[first_index - 1], self.curve[first_index]
        share = (target - low) / (high - low)
        return float(
            self.further[first_index - 1] + share * (self.further[first_index] - self.further[first_index - 1])
        )
