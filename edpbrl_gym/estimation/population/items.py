"""What many people's answers say about the items of a pool: effects of items, tastes, and deviations that stay.

The utility of item i for person p is

    u_pi = m_i + theta_p . phi(x_i) + e_pi,    m_i = beta . phi(x_i) + b_i,

with b_i ~ N(0, v) the effect of the item, beta ~ N(0, w I), theta_p ~ N(0, C) the taste and e_pi ~ N(0, t^2) the
person's deviation at the item. So where few people were asked, an item's mean m_i is what the features say.

Each person's answers are about the utilities of the items that they were shown, whose prior covariance is
S_p = Phi_p C Phi_p' + t^2 I. The variational Gaussian closest to the posterior (`sites`) makes them a Gaussian
observation of these utilities, whose score g_p and information T_p about m, with theta_p and e_p integrated out, give
the posterior of m by one linear system (generalised least squares). The variances v, w, t^2 and C are updated by EM.
Laplace's method in its place makes them half as large (Breslow & Lin, 1995). C is shrunk towards a multiple of the
identity by as many people as there are components.

For updates without these people's answers, sums over them are kept as they were computed last (Neal & Hinton, 1998): of
T_p, of its scores, and of what C and t^2 are the means of. The sum of T_p has an entry for every two items that one
person saw, so that it would tell what a single person was shown. Kept are its diagonal and its product with
F = (1, phi), whose rows are about all people who saw one item; with R the product of all entries outside of the
diagonal, these are replaced by R (F' R)^+ R', which has the same product (Nystrom). Items that fewer people saw than
the least group are integrated out before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edpbrl_gym._arrays import Booleans, Floats, Indices
from edpbrl_gym._threads import one_blas_thread
from edpbrl_gym._validation import check_count
from edpbrl_gym.estimation.items import Crowd, ItemsPrior
from edpbrl_gym.estimation.map_estimate import Data
from edpbrl_gym.estimation.population.answers import answered_people, check_forgetting, check_group
from edpbrl_gym.estimation.population.sites import Sites, fit_sites, gain, reduced
from edpbrl_gym.likelihood import AnswerFormat

__all__ = ["fit_crowd"]

_ROUNDS = 12
_TASTE, _EFFECT, _DEVIATION = 1.0, 0.5, 1.0  # first variances of a utility by theta_p, of b_i and of e_pi
_TOLERANCE = 1e-3  # nats a person, of a Gaussian that later rounds correct
_STEPS, _MORE_STEPS = 60, 5  # of a person's Gaussian in the first round, and from the last one


@dataclass(eq=False)
class _Person:
    """One person's answers about the utilities of the items shown to them.

    Attributes:
        items: Those items, (m,).
        rows: Differences to the chosen alternatives in their utilities, (n, K - 1, m).
        offsets: (n, K - 1).
        last: The variational Gaussian of the last round; None: before the first.
    """

    items: NDArray[np.intp]
    rows: Floats
    offsets: Floats
    last: Sites | None = None

    def observed(self, mean: Floats, covariance: Floats) -> tuple[Floats, Floats]:
        """T, (m, m), and T mean + g, (m,), under the prior N(mean, covariance) of the utilities."""
        rows = reduced((self.rows @ np.linalg.cholesky(covariance))[None])
        steps = _STEPS if self.last is None else _MORE_STEPS
        offsets = (self.offsets + self.rows @ mean)[None]
        self.last = fit_sites(rows, offsets, start=self.last, tolerance=_TOLERANCE, max_iterations=steps)
        flat = self.rows.reshape(-1, len(mean))
        information = flat.T @ gain(rows, self.last.information)[0] @ flat
        information = (information + information.T) / 2
        return information, information @ mean + flat.T @ self.last.scores[0].ravel()


@one_blas_thread()
def fit_crowd(
    people: Sequence[Data],
    prior: ItemsPrior,
    *,
    model: AnswerFormat | None = None,
    minimum_people: int = 20,
    earlier: Crowd | None = None,
    forgetting: float = 0.0,
) -> Crowd:
    """What people's answers about the items of a pool say about the next person.

    Privacy: an item shown to fewer than ``minimum_people`` gets no effect of its own, but what its features say, and
    nothing of it is kept for updates: the people who saw it do not count again when more have seen it.

    Args:
        people: One item per person, as for `fit_population`, about features of ``prior.feature_map``. All options must
            be items of the pool.
        prior: The prior of the pool.
        model: Response model, as for `fit_population`.
        minimum_people: Fewest people with answers, and to whom an item was shown.
        earlier: What other people's answers said about the same pool; these people are added to them.
        forgetting: Weight f in [0, 1) that the earlier people lose, as in `Population.updated`.

    Raises:
        TypeError: As for `fit_population`.
        ValueError: Too few people, other features, options that are no items of the pool, or ``earlier`` of another
            pool or without sums.
    """
    least = check_count(minimum_people, "minimum_people")
    answered = answered_people(people, model, prior.dimension)
    check_group(answered, least, "fit a population" if earlier is None else "update a population")
    phi = prior.components
    count, size = phi.shape
    known = _Known.of(earlier, check_forgetting(forgetting), phi)
    group = []
    for number, one in enumerate(answered):
        rows = one.rows[:, :, prior.own]
        items = np.flatnonzero(rows.any(axis=(0, 1)))
        if not np.allclose(rows @ phi, one.rows[:, :, : prior.own.start], atol=1e-4 * float(np.abs(phi).max())):
            raise ValueError(f"Expected options that are items of the pool of {count}, person {number} saw others")
        group.append(_Person(items, np.ascontiguousarray(rows[:, :, items]), one.offsets))
    seen = known.seen + np.bincount(np.concatenate([person.items for person in group]), minlength=count)
    common, effect, deviation, tastes, mean = known.start
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
        new = total, score
        total, score = total + known.total, score + known.score
        before = common * phi @ phi.T + effect * np.eye(count)
        # posterior covariance of m: (before^-1 + total)^-1
        after = np.linalg.solve(np.eye(count) + before @ total, before)
        after = (after + after.T) / 2
        mean = after @ score
        pull = score - total @ mean  # before^-1 mean
        reduction = total - total @ after @ total  # before^-1 (before - after) before^-1
        taste, effects = common * (phi.T @ pull), effect * pull
        uncertain = count * effect - effect**2 * np.trace(reduction)
        common += float(taste @ taste - common**2 * np.vdot(phi, reduction @ phi)) / size
        effect = float(effects @ effects + uncertain) / count
        second, square, shown = known.second.copy(), known.square, known.shown
        for items, information, weighted in observed:
            rest = weighted - information @ mean[items]
            loadings = phi[items] @ tastes
            theta = rest @ loadings
            second += np.outer(theta, theta) + tastes - loadings.T @ information @ loadings
            square += deviation**2 * float(rest @ rest - np.trace(information)) + deviation * len(items)
            shown += len(items)
        weight = known.people + len(group)
        tastes = (second + np.trace(second) / weight * np.eye(size)) / (weight + size)
        deviation = square / shown
    few = seen < least
    centred = np.diagonal(after) - 2.0 * after.mean(axis=0) + after.mean()  # a common utility says nothing
    variances = np.where(few, effect, centred)
    effects[few] = 0.0
    sums = known.sums | {"second": second, "numbers": np.array([weight, square, shown, common, effect])}
    for name, values in _item_sums(*new, few, effect, phi).items():
        sums[name] = sums.get(name, 0.0) + values
    number = len(group) if earlier is None else earlier.people + len(group)
    return Crowd(taste, tastes, effects, variances, deviation, seen, number, sums)


def _item_sums(total: Floats, score: Floats, few: Booleans, effect: float, phi: Floats) -> dict[str, Floats]:
    """The sums that are kept of those of T_p, (N, N), and of its scores, (N,), without items that few people saw."""
    kept = ~few
    across = total[np.ix_(kept, few)]
    inner = total[np.ix_(few, few)] + np.eye(int(few.sum())) / effect
    solved = np.linalg.solve(inner, np.column_stack([across.T, score[few]]))
    left = np.zeros_like(total)
    left[np.ix_(kept, kept)] = total[np.ix_(kept, kept)] - across @ solved[:, :-1]
    scores = np.zeros_like(score)
    scores[kept] = score[kept] - across @ solved[:, -1]
    return {"diagonal": np.diagonal(left).copy(), "products": left @ _features(phi), "score": scores}


def _features(phi: Floats) -> Floats:
    """F = (1, phi), (N, c + 1)."""
    return np.column_stack([np.ones(len(phi)), phi])


@dataclass(frozen=True, eq=False)
class _Known:
    """Sums over earlier people, less what is forgotten, and where a fit begins: w, v, t^2, C and m."""

    sums: dict[str, Floats]
    seen: Indices
    total: Floats
    score: Floats
    second: Floats
    square: float
    shown: float
    people: float
    start: tuple[float, float, float, Floats, Floats]

    @classmethod
    def of(cls, earlier: Crowd | None, forgetting: float, phi: Floats) -> _Known:
        """Of people whose answers are not here; None: of nobody."""
        count, size = phi.shape
        if earlier is None:
            common = _TASTE / float(np.square(phi).sum(axis=1).mean())
            start = common, _EFFECT, _DEVIATION, common * np.eye(size), np.zeros(count)
            none = np.zeros(count)
            seen, total, second = np.zeros(count, dtype=np.int64), np.zeros((count, count)), np.zeros((size, size))
            return cls({}, seen, total, none, second, 0.0, 0.0, 0.0, start)
        if not earlier.sums or len(earlier.effects) != count:
            raise ValueError(
                f"Expected what fit_crowd learnt about the same pool of {count} items as earlier, got "
                + ("one without sums over its people" if not earlier.sums else f"{len(earlier.effects)} items")
            )
        sums = {name: (1.0 - forgetting) * earlier.sums[name] for name in ("diagonal", "products", "score")}
        people, square, shown = (1.0 - forgetting) * earlier.sums["numbers"][:3]
        features, diagonal = _features(phi), sums["diagonal"]
        across = sums["products"] - diagonal[:, None] * features
        total = np.diag(diagonal) + across @ np.linalg.pinv(features.T @ across) @ across.T
        common, effect = earlier.sums["numbers"][3:]
        mean = phi @ earlier.taste + earlier.effects
        start = float(common), float(effect), earlier.deviation, earlier.covariance, mean
        seen = np.where(diagonal > 0, earlier.seen, 0)
        second = (1.0 - forgetting) * earlier.sums["second"]
        return cls(
            sums, seen, (total + total.T) / 2, sums["score"], second, float(square), float(shown), float(people), start
        )
