"""What many people's answers say about the items of a pool: effects of items, tastes, and deviations that stay.

The utility of item i for person p is

    u_pi = m_i + theta_p . phi(x_i) + e_pi,    m_i = beta . phi(x_i) + b_i,

with b_i ~ N(0, v) the effect of the item, beta ~ N(0, w I), theta_p ~ N(0, C) the taste and e_pi ~ N(0, t^2) the
person's deviation at the item. So where few people were asked, an item's mean m_i is what the features say.

Each person's answers are about the utilities of the items that they were shown, whose prior covariance is
S_p = Phi_p C Phi_p' + t^2 I. Laplace's method makes them a Gaussian observation of these utilities, whose score g_p and
information T_p about m, with theta_p and e_p integrated out, give the posterior of m by one linear system (generalised
least squares). The variances v, w, t^2 and C are updated by EM (Breslow & Clayton, 1993, for the approximation). C is
shrunk towards a multiple of the identity by as many people as there are components.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve, solve_triangular

from edpbrl_gym._arrays import Floats
from edpbrl_gym._threads import one_blas_thread
from edpbrl_gym._validation import check_count
from edpbrl_gym.estimation.items import Crowd, ItemsPrior
from edpbrl_gym.estimation.map_estimate import Data
from edpbrl_gym.estimation.newton import maximise
from edpbrl_gym.estimation.population.answers import answered_people, check_group
from edpbrl_gym.likelihood import AnswerFormat

__all__ = ["fit_crowd"]

_ROUNDS = 12
_TASTE, _EFFECT, _DEVIATION = 1.0, 0.5, 1.0  # first variances of a utility by theta_p, of b_i and of e_pi
_TOLERANCE = 1e-3  # Newton decrements: of a Gaussian that later rounds correct


@dataclass(eq=False)
class _Person:
    """One person's answers about the utilities of the items shown to them.

    Attributes:
        items: Those items, (m,).
        rows: Differences to the chosen alternatives in their utilities, (n, K - 1, m).
        offsets: (n, K - 1), or None.
        utilities: The last mode, (m,); None before the first round.
    """

    items: NDArray[np.intp]
    rows: Floats
    offsets: Floats | None
    utilities: Floats | None = None

    def observed(self, mean: Floats, covariance: Floats) -> tuple[Floats, Floats]:
        """T, (m, m), and T mean + g, (m,), at the mode under the prior N(mean, covariance) of the utilities."""
        root = np.linalg.cholesky(covariance)
        shift = self.rows @ mean
        start = np.zeros(len(mean))
        if self.utilities is not None:
            start = solve_triangular(root, self.utilities - mean, lower=True)
        found = maximise(
            self.rows @ root,
            np.eye(len(mean)),
            start,
            tolerance=_TOLERANCE,
            max_iterations=50,
            offsets=shift if self.offsets is None else self.offsets + shift,
        )
        self.utilities = mean + root @ found.theta
        inner = np.eye(len(mean)) - cho_solve(cho_factor(found.precision, lower=True), np.eye(len(mean)))
        half = solve_triangular(root, inner, lower=True, trans="T")
        information = solve_triangular(root, half.T, lower=True, trans="T")
        information = (information + information.T) / 2
        return information, information @ mean + solve_triangular(root, found.theta, lower=True, trans="T")


@one_blas_thread()
def fit_crowd(
    people: Sequence[Data],
    prior: ItemsPrior,
    *,
    model: AnswerFormat | None = None,
    minimum_people: int = 20,
) -> Crowd:
    """What people's answers about the items of a pool say about the next person.

    Privacy: an item shown to fewer than ``minimum_people`` gets no effect of its own, but what its features say.

    Args:
        people: One item per person, as for `fit_population`, about features of ``prior.feature_map``. All options must
            be items of the pool.
        prior: The prior of the pool.
        model: Response model, as for `fit_population`.
        minimum_people: Fewest people with answers, and to whom an item was shown.

    Raises:
        TypeError: As for `fit_population`.
        ValueError: Too few people, other features, or options that are no items of the pool.
    """
    least = check_count(minimum_people, "minimum_people")
    answered = answered_people(people, model, prior.dimension)
    check_group(answered, least, "fit a population")
    phi = prior.components
    count, size = phi.shape
    group = []
    for number, one in enumerate(answered):
        rows = one.rows[:, :, prior.own]
        items = np.flatnonzero(rows.any(axis=(0, 1)))
        if not np.allclose(rows @ phi, one.rows[:, :, : prior.own.start], atol=1e-4 * float(np.abs(phi).max())):
            raise ValueError(f"Expected options that are items of the pool of {count}, person {number} saw others")
        group.append(_Person(items, np.ascontiguousarray(rows[:, :, items]), one.offsets))
    seen = np.bincount(np.concatenate([person.items for person in group]), minlength=count)
    spread = float(np.square(phi).sum(axis=1).mean())
    tastes = _TASTE / spread * np.eye(size)
    effect, deviation, common = _EFFECT, _DEVIATION, _TASTE / spread
    mean = np.zeros(count)
    for _ in range(_ROUNDS):
        total, score = np.zeros((count, count)), np.zeros(count)
        observed = []
        for person in group:
            own = phi[person.items]
            covariance = own @ tastes @ own.T + deviation * np.eye(len(own))
            information, weighted = person.observed(mean[person.items], covariance)
            total[np.ix_(person.items, person.items)] += information
            score[person.items] += weighted
            observed.append((person.items, information, weighted))
        before = common * phi @ phi.T + effect * np.eye(count)
        # posterior covariance of m: (before^-1 + total)^-1
        after = np.linalg.solve(np.eye(count) + before @ total, before)
        after = (after + after.T) / 2
        mean = after @ score
        pull = score - total @ mean  # before^-1 mean
        reduction = total - total @ after @ total  # before^-1 (before - after) before^-1
        taste, effects = common * (phi.T @ pull), effect * pull
        variances = effect - effect**2 * np.diagonal(reduction)
        common += float(taste @ taste - common**2 * np.vdot(phi, reduction @ phi)) / size
        effect = float(effects @ effects + variances.sum()) / count
        second, square, items_seen = np.zeros((size, size)), 0.0, 0
        for items, information, weighted in observed:
            rest = weighted - information @ mean[items]
            loadings = phi[items] @ tastes
            theta = rest @ loadings
            second += np.outer(theta, theta) + tastes - loadings.T @ information @ loadings
            square += deviation**2 * float(rest @ rest - np.trace(information)) + deviation * len(items)
            items_seen += len(items)
        tastes = (second + np.trace(second) / len(group) * np.eye(size)) / (len(group) + size)
        deviation = square / items_seen
    few = seen < least
    along = after.mean(axis=1)
    uncertainty = np.diagonal(after) - 2.0 * along + along.mean()
    effects[few], variances[few], uncertainty[few] = 0.0, effect, np.diagonal(before)[few]
    return Crowd(taste, tastes, effects, variances, deviation, seen, len(group), uncertainty)
