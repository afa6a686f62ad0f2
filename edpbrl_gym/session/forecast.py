r"""How well the taste is known, how well it will be known after more questions, and whether it is time to stop.

The predicted accuracy now is the mean over held-out pairs of prompts, and over draws of theta from its posterior, of
whether the estimate m orders the pair as theta does (``sampled_accuracy``).

For the future the posterior is taken as a Gaussian about the estimate, theta ~ N(m, c S), S = P^-1 the Laplace
covariance and c the factor with which the Gaussian has the same accuracy now (``matched``): for a pair whose features
differ by x, m orders it as theta does with probability Phi(|m . x| / s_0), s_0^2 = c x' S x. Let I be the expected
Fisher information of one typical question, averaged over typical questions and over the posterior. After n more of them
the precision is about P / c + n I, the estimate will be m_n, and by the law of total variance

    m_n . x ~ N(m . x, t_n^2),   t_n^2 = s_0^2 - s_n^2,   s_n^2 = x' (P / c + n I)^-1 x,

so that the predicted accuracy after n more questions is the mean over the pairs of

    E[ Phi(|m_n . x| / s_n) ] = E_z[ Phi(|m . x + t_n z| / s_n) ],   z ~ N(0, 1).

With m . x = 0 this is 1/2 + arcsin(t_n / s_0) / pi; it never falls with n, and tends to 1 where the questions tell all
of theta. The scale of the prior is taken as known.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import cholesky, eigh, solve_triangular
from scipy.optimize import brentq
from scipy.special import ndtr, ndtri

from edpbrl_gym._arrays import Floats
from edpbrl_gym._validation import check_array, check_count, check_integers, check_number
from edpbrl_gym.estimation.posterior import Posterior
from edpbrl_gym.likelihood import ResponseModel

__all__ = [
    "Progress",
    "StoppingRule",
    "expected_information",
    "forecast_accuracy",
    "matched",
    "sampled_accuracy",
]


_NODES = ndtri((np.arange(128) + 0.5) / 128)  # equally likely values of a standard normal variable
_PAIRS = 512  # pairs whose nodes are held in memory at a time
_WIDEST = 12.0  # |log c| of the factor on the covariance


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
    """Share of pairs, and of draws, that the estimate orders as the draw does; where it is indifferent, one half.

    Args:
        estimate: (d,).
        thetas: Draws from the posterior, (s, d), s >= 1.
        differences: Features of one prompt of each pair less those of the other, (p, d), p >= 1.
    """
    given = np.sign(np.asarray(differences) @ np.asarray(estimate))
    right = np.sign(np.asarray(thetas) @ np.asarray(differences).T) == given
    return float(np.where(given == 0, 0.5, right.mean(axis=0)).mean())


def matched(posterior: Posterior, differences: ArrayLike, accuracy: float) -> Posterior:
    """The Gaussian N(m, c S) that predicts this accuracy; c within exp(-12)..exp(12).

    Args:
        posterior: N(m, S).
        differences: Of the pairs, (p, d).
        accuracy: In [0.5, 1].
    """
    pairs = check_array(differences, "differences", shape=("p", posterior.dimension))
    spread = posterior.standard_deviation(pairs)
    sure = np.divide(np.abs(pairs @ posterior.mean), spread, out=np.zeros(len(pairs)), where=spread > 0)
    if not sure.any():
        return posterior  # no estimate: every width predicts one half

    def excess(log_factor: float) -> float:
        return float(ndtr(sure * np.exp(-log_factor / 2)).mean()) - accuracy

    if excess(-_WIDEST) <= 0:
        log_factor = -_WIDEST
    elif excess(_WIDEST) >= 0:
        log_factor = _WIDEST
    else:
        log_factor = float(brentq(excess, -_WIDEST, _WIDEST, xtol=1e-10))
    return Posterior(posterior.mean, posterior.precision * np.exp(-log_factor))


def forecast_accuracy(
    posterior: Posterior, information: ArrayLike, differences: ArrayLike, further: ArrayLike
) -> Floats:
    """Predicted share of pairs that the estimate will order as the truth does, after more questions; see the module.

    Args:
        posterior: What is known of theta now.
        information: Expected Fisher information of one more question, (d, d), positive semidefinite.
        differences: Features of one prompt of each pair less those of the other, (p, d); pairs without a difference
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
    gained = check_array(information, "information", shape=(dimension, dimension))
    factor = cholesky(posterior.precision, lower=True)
    half = solve_triangular(factor, gained, lower=True)
    rates, vectors = eigh(solve_triangular(factor, half.T, lower=True))
    rates = np.maximum(rates, 0.0)  # rounding
    # x' (P + n I)^-1 x = sum_j w_j^2 / (1 + n r_j): one decomposition serves every n
    squares = np.square(solve_triangular(factor, pairs.T, lower=True).T @ vectors)
    variances = squares @ (1.0 / (1.0 + np.outer(rates, counts)))  # (p, m)
    now = squares.sum(axis=1, keepdims=True)
    means = pairs @ posterior.mean
    totals = np.zeros(len(counts))
    for start in range(0, len(pairs), _PAIRS):
        part = slice(start, start + _PAIRS)
        spread = np.sqrt(np.maximum(now[part] - variances[part], 0.0))
        reached = np.abs(means[part, None, None] + spread[:, :, None] * _NODES)
        left = np.sqrt(variances[part])[:, :, None]
        safe = np.where(left > 0, left, 1.0)
        share = np.where(left > 0, ndtr(reached / safe), np.where(reached > 0, 1.0, 0.5))
        totals += share.mean(axis=2).sum(axis=0)
    return np.asarray(totals / len(pairs))


@dataclass(frozen=True, kw_only=True)
class StoppingRule:
    """When to stop asking.

    Attributes:
        target: Stop when the predicted accuracy reaches this, in (0.5, 1].
        gain: Stop when the next ``lookahead`` questions are predicted to raise it by less than this, >= 0.
        lookahead: Questions over which the gain counts, >= 1.
        minimum: Never stop before so many answers: the prior's scale is guesswork until then.

    Raises:
        ValueError: A value out of its range.
    """

    target: float = 0.9
    gain: float = 0.01
    lookahead: int = 30
    minimum: int = 24

    def __post_init__(self) -> None:
        if not 0.5 < check_number(self.target, "target") <= 1.0:
            raise ValueError(f"Expected target in (0.5, 1], got {self.target}; guessing reaches 0.5")
        check_number(self.gain, "gain", minimum=0.0)
        check_count(self.lookahead, "lookahead")
        check_count(self.minimum, "minimum", minimum=0)

    def decide(self, answers: int, accuracy: float, ahead: float) -> tuple[bool, str]:
        """Whether to stop, and why.

        Args:
            answers: Answers told so far.
            accuracy: Predicted accuracy now.
            ahead: Predicted accuracy after ``lookahead`` more questions.
        """
        gain = ahead - accuracy
        if answers < self.minimum:
            return False, f"{answers} of at least {self.minimum} answers"
        if accuracy >= self.target:
            return True, f"predicted accuracy {accuracy:.1%} has reached the target {self.target:.1%}"
        if gain < self.gain:
            return True, f"{self.lookahead} more questions would gain {gain:.1%}, less than {self.gain:.1%}"
        return False, f"predicted accuracy {accuracy:.1%}; {self.lookahead} more questions would gain {gain:.1%}"


@dataclass(frozen=True, eq=False)
class Progress:
    """How far a session is.

    Attributes:
        questions: Questions that were answered or skipped.
        answers: Answers among them.
        accuracy: Predicted accuracy now: the share of held-out pairs of prompts that the estimate orders as the
            person would without noise.
        further: Numbers of further questions, (m,), beginning with 0.
        curve: Predicted accuracy after them, (m,).
        should_stop: What the stopping rule says.
        reason: Why.
    """

    questions: int
    answers: int
    accuracy: float
    further: NDArray[np.int64]
    curve: Floats
    should_stop: bool
    reason: str

    def questions_to(self, target: float) -> float | None:
        """How many more questions until the predicted accuracy reaches ``target``; None: more than were looked at.

        Interpolated linearly between the points of the curve; 0 where it is reached.
        """
        reached = np.flatnonzero(self.curve >= target)
        if not len(reached):
            return None
        last = int(reached[0])
        if last == 0:
            return 0.0
        low, high = self.curve[last - 1], self.curve[last]
        share = (target - low) / (high - low)
        return float(self.further[last - 1] + share * (self.further[last] - self.further[last - 1]))
