"""Rules that ask where posterior draws disagree, or where the best option is expected to be good.

All but the two closed forms are means over the draws theta_m, m = 1..M, of functions of p_m = softmax(X theta_m).
`DrawMoments` computes these means for many questions; a search that replaces one option of a question by every item
passes questions that share their other options, whose part is then a product of a matrix with a vector.

Sources: BALD, N. Houlsby, F. Huszar, Z. Ghahramani and M. Lengyel, "Bayesian active learning for classification and
preference learning" (2011), and for questions with K options E. Biyik et al., "Asking easy questions" (2019). Volume
removal: D. Sadigh, A. Dragan, S. Sastry and S. Seshia, "Active preference-based learning of reward functions" (2017).
Disagreement of an ensemble: P. Christiano et al., "Deep reinforcement learning from human preferences" (2017), for
pairs; as in B-Pref, K. Lee et al. (2021). qEUBO: R. Astudillo, Z. J. Lin, E. Bakshy and P. Frazier, "qEUBO: a
decision-theoretic acquisition function for preferential Bayesian optimization" (2023).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import ndtr, xlogy

from edpbrl_gym._arrays import Floats, Indices
from edpbrl_gym.planners.rules.search import QuestionValue
from edpbrl_gym.planners.rules.state import ItemProducts, PoolState, softmax

__all__ = ["DrawMoments", "Moments", "bald", "disagreement", "qeubo", "volume_removal"]

_RANGE = 600.0  # utilities of one draw in a range below this may be exponentiated without a shift for each question


def bald(state: PoolState) -> QuestionValue:
    """Bayesian active learning by disagreement: argmax over S of entropy(mean_m p_m) - mean_m entropy(p_m).

    It is the mutual information of the answer and theta, here under the discrete posterior on the draws: at most
    log min(K, M).
    """
    moments = DrawMoments(state)

    def value(questions: Indices) -> Floats:
        means = moments(questions)
        return np.asarray(-xlogy(means.mean, means.mean).sum(axis=0) - means.entropy)

    return value


def volume_removal(state: PoolState) -> QuestionValue:
    """Expected removal of the volume of the unnormalised posterior: argmin over S of sum_k (mean_m p_m,k)^2.

    An answer k leaves the share mean_m p_m,k of the posterior's volume and has the same probability, so this is the
    expected remaining volume. Its minimum 1/K is attained wherever all answers are equally likely on average: options
    that are all the same item are a global optimum though nothing is learnt from them, and among different items
    similar ones are preferred.
    """
    moments = DrawMoments(state)
    return lambda questions: -np.square(moments(questions).mean).sum(axis=0)


def disagreement(state: PoolState) -> QuestionValue:
    """Disagreement of an ensemble, the members being the posterior draws.

    K = 2: argmax of Var_m[theta_m . (x_i - x_j)], the variance of the logit. K > 2: argmax of the trace of the
    covariance of p_m over the draws, sum_k Var_m[p_m,k]. Variances are those of the M draws themselves (divided by M).
    """
    if state.num_options == 2:
        table = state.draw_utilities
        products = ItemProducts((table - table.mean(axis=1, keepdims=True)) / np.sqrt(table.shape[1]))
        return lambda questions: products.squared_distances(questions)[1, 0]
    moments = DrawMoments(state)

    def value(questions: Indices) -> Floats:
        means = moments(questions)
        return np.asarray((means.square - np.square(means.mean)).sum(axis=0))

    return value


def qeubo(state: PoolState) -> QuestionValue:
    """Expected utility of the best option, which looks for good items: argmax over S of E[max_k theta . x_k].

    K > 2: the mean over the draws. K = 2: in closed form under the Gaussian posterior N(theta_hat, H^-1), with
    mu_k = theta_hat . x_k, s^2 = (x_1 - x_2)' H^-1 (x_1 - x_2) and u = (mu_1 - mu_2) / s:
    mu_2 + s (phi(u) + u Phi(u)), phi and Phi the standard normal density and distribution.
    """
    if state.num_options == 2:
        return _best_of_pair(state)
    table = state.draw_utilities

    def value(questions: Indices) -> Floats:
        shared = (questions == questions[:1]).all(axis=0)
        best: Floats = table[questions[0, shared]].max(axis=0, initial=-np.inf)
        for column in questions[:, ~shared].T:
            best = np.maximum(best, table[column])
        return np.broadcast_to(best, (len(questions), table.shape[1])).mean(axis=1)

    return value


def _best_of_pair(state: PoolState) -> QuestionValue:
    """E max of two Gaussian utilities."""
    means, products = state.utilities, state.products

    def value(questions: Indices) -> Floats:
        first, second = means[questions[:, 0]], means[questions[:, 1]]
        lead = first - second
        spread = np.sqrt(products.squared_distances(questions)[1, 0])
        # without spread u is infinite with the sign of the lead, and the limit is the larger mean
        ratio = np.divide(lead, spread, out=np.zeros_like(lead), where=spread > 0)
        density = np.exp(-0.5 * ratio**2) / np.sqrt(2.0 * np.pi)
        gain = spread * density + lead * ndtr(ratio)
        return np.asarray(second + np.where(spread > 0, gain, np.maximum(lead, 0.0)))

    return value


class Moments(NamedTuple):
    """Means over the draws, of m questions: of p_k (K, m), of p_k^2 (K, m), and of the entropy of p in nats (m,)."""

    mean: Floats
    square: Floats
    entropy: Floats


class DrawMoments:
    """Means over the draws of a state of functions of the choice probabilities.

    The powers exp(theta_m . x_i) are computed once for all items. With Z_m their sum over a question's options,
    p_k = e_k / Z and the entropy is log Z - sum_k p_k log e_k.

    Args:
        state: State with M >= 1 draws.
    """

    def __init__(self, state: PoolState) -> None:
        self._state = state
        self._logs = state.draw_utilities - state.draw_utilities.max(axis=0)
        self._safe = bool(self._logs.min() > -_RANGE)
        self._powers = np.exp(self._logs) if self._safe else self._logs
        self._products = self._powers * self._logs if self._safe else self._logs

    def __call__(self, questions: Indices) -> Moments:
        """The means of questions (m, K)."""
        if not self._safe:
            return self._shifted(questions)
        count, size = questions.shape
        draws = self._powers.shape[1]
        shared = (questions == questions[:1]).all(axis=0) & (count > 1)
        # first the options that all questions share, as one row (M,); the others have a row for each question
        total: Floats = self._powers[questions[0, shared]].sum(axis=0)
        tables = [self._powers[column] for column in questions[:, ~shared].T]
        for table in tables:
            total = total + table
        total = np.broadcast_to(total, (count, draws))
        inverse = 1.0 / total
        mean, square = np.empty((size, count)), np.empty((size, count))
        entropy = np.log(total).sum(axis=1)
        if shared.any():
            items = questions[0, shared]
            mean[shared] = self._powers[items] @ inverse.T
            square[shared] = np.square(self._powers[items]) @ np.square(inverse).T
            entropy -= inverse @ self._products[items].sum(axis=0)
        for option, table in zip(np.flatnonzero(~shared), tables, strict=True):
            shares = table * inverse
            mean[option] = shares.sum(axis=1)
            square[option] = np.vecdot(shares, shares)
            entropy -= np.vecdot(inverse, self._products[questions[:, option]])
        return Moments(mean / draws, square / draws, entropy / draws)

    def _shifted(self, questions: Indices) -> Moments:
        """The same, with the largest utility of each question subtracted before the exponential."""
        shares = softmax(self._state.draw_utilities[questions.T])
        entropy = -xlogy(shares, shares).sum(axis=0).mean(axis=1)
        return Moments(shares.mean(axis=2), np.square(shares).mean(axis=2), entropy)
