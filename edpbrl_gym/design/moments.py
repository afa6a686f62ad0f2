"""Designs of policies that have no table: an occupancy is known by the moments of what it shows.

The surrogate information of a mixture (paper, Eq. 6) depends on its occupancy only through z = (S, m_1..m_H),

    I(z) = T ( S - sum_h m_h m_h' ) + Lambda,    S = sum_h E[phi_h phi_h'],    m_h = E[phi_h],

and the moments of a mixture are the mixture of the moments. I is concave in z in the Loewner order and s is concave and
monotone, so f(z) = s(I(z)) is concave: for any z at which I is regular, attained by a policy or not, and every z',

    f(z') <= f(z) + <g, z' - z>,    <g, z> = T ( tr(G S) - 2 sum_h m_h(base)' G m_h ),    G = ds/dI.

So Frank-Wolfe needs of a policy only its moments, and of the linear oracle a policy that collects much of the reward
r_h(phi) = T (phi' G phi - 2 phi' G m_h) (`GradientReward`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import ArrayLike

from edpbrl_gym._arrays import Floats, read_only
from edpbrl_gym._validation import check_array, check_count, check_integers, check_tolerance
from edpbrl_gym.design.criteria import Criterion, CriterionAndPrior
from edpbrl_gym.design.solvers.line_search import Segment, exact_step

__all__ = ["GradientReward", "MixtureWeights", "MomentProblem", "PolicyMoments", "fully_corrective"]

_SUM_TOLERANCE = 1e-9
_STEPS = 500  # for the weights at most; their inner gap says what is left


@dataclass(frozen=True, eq=False)
class PolicyMoments:
    """First and second moments of the features that a policy shows.

    Attributes:
        means: m_h = E[phi_h], shape (H, d).
        second: S = sum_h E[phi_h phi_h'], symmetric, shape (d, d).
    """

    means: Floats
    second: Floats

    def __post_init__(self) -> None:
        means = check_array(self.means, "means", shape=("H", "d"))
        second = check_array(self.second, "second", shape=(means.shape[1], means.shape[1]))
        object.__setattr__(self, "means", read_only(means))
        object.__setattr__(self, "second", read_only(second))

    @classmethod
    def from_features(cls, features: ArrayLike) -> Self:
        """Moments of the empirical distribution of some episodes.

        Args:
            features: What each episode showed at each step, shape (n, H, d), n >= 1.
        """
        rows = check_array(features, "features", shape=("n", "H", "d"))
        if not len(rows):
            raise ValueError("Expected features of at least one episode, got none.")
        flat = rows.reshape(-1, rows.shape[-1])
        return cls(rows.mean(axis=0), flat.T @ flat / len(rows))

    @classmethod
    def mixture(cls, policies: Sequence[PolicyMoments], weights: ArrayLike) -> Self:
        """Moments of a policy that is drawn once for every episode, with the given probabilities (n,)."""
        shares = _checked_weights(weights, len(policies))
        used = [i for i, share in enumerate(shares) if share > 0]
        means = sum(shares[i] * policies[i].means for i in used)
        return cls(np.asarray(means), np.asarray(sum(shares[i] * policies[i].second for i in used)))


@dataclass(frozen=True, eq=False)
class GradientReward:
    """The gradient of the objective as a reward of features: r_h(phi) = T (phi' G phi - 2 phi' G m_h).

    Attributes:
        curvature: G = ds/dI, symmetric positive semidefinite, shape (d, d).
        means: m_h of the point at which the gradient was taken, shape (H, d).
        episodes: T.
    """

    curvature: Floats
    means: Floats
    episodes: int

    def __call__(self, features: ArrayLike, steps: ArrayLike) -> Floats:
        """Reward of each row.

        Args:
            features: Shape (n, d).
            steps: Step h of each row, integers in 0..H-1, shape (n,).

        Returns:
            Shape (n,).
        """
        horizon, dimension = self.means.shape
        rows = check_array(features, "features", shape=("n", dimension))
        step = check_integers(steps, "steps", shape=(len(rows),), low=0, high=horizon - 1)
        turned = rows @ self.curvature
        return np.asarray(self.episodes * np.einsum("nd,nd->n", turned, rows - 2.0 * self.means[step]))

    def expected(self, moments: PolicyMoments) -> float:
        """<g, z>: the expected sum over an episode of a policy with these moments."""
        linear = float(np.vdot(self.means @ self.curvature, moments.means))
        return float(self.episodes * (np.vdot(self.curvature, moments.second) - 2.0 * linear))


@dataclass(frozen=True, eq=False, kw_only=True)
class MomentProblem(CriterionAndPrior):
    """The design problem of policies that are known by their moments.

    Attributes:
        criterion: One by its name (`make_criterion`), or any `Criterion`.
        episodes: T >= 1.
        horizon: H >= 1.
        dimension: d >= 1.
        regularization: lambda >= 0, prior precision lambda I; give this or `prior_precision`.
        prior_precision: Lambda, symmetric positive semidefinite, shape (d, d).

    Raises:
        ValueError: If a value or shape does not fit.
        TypeError: If the criterion is of another type.
    """

    criterion: Criterion
    episodes: int
    horizon: int
    dimension: int
    regularization: float | None = None
    prior_precision: Floats | None = None

    def __post_init__(self) -> None:
        for name, symbol in (("episodes", "T"), ("horizon", "H"), ("dimension", "d")):
            object.__setattr__(self, name, check_count(getattr(self, name), f"{name} ({symbol})"))
        self._check_criterion_and_prior()

    def information(self, moments: PolicyMoments) -> Floats:
        """Surrogate information plus prior precision, shape (d, d)."""
        expected = (self.horizon, self.dimension)
        if moments.means.shape != expected:
            raise ValueError(f"Expected moments with means of shape (H, d) = {expected}, got {moments.means.shape}.")
        return np.asarray(self.episodes * (moments.second - moments.means.T @ moments.means) + self.prior)

    def value(self, moments: PolicyMoments) -> float:
        """f(z) = s(I(z)), to be maximised; raises SingularInformationError where I is singular."""
        return self.criterion.value(self.information(moments))

    def gradient(self, moments: PolicyMoments) -> GradientReward:
        """The gradient at these moments as a reward for the linear oracle."""
        return GradientReward(self.criterion.gradient(self.information(moments)), moments.means, self.episodes)


@dataclass(frozen=True, eq=False)
class MixtureWeights:
    """Weights of a mixture over given policies.

    Attributes:
        weights: Shape (n,), at least 0, with sum 1.
        inner_gap: max over the given policies of <g, z_i - z>: how much better weights could at most be.
        steps: Pairwise steps taken.
    """

    weights: Floats
    inner_gap: float
    steps: int


def fully_corrective(
    problem: MomentProblem,
    policies: Sequence[PolicyMoments],
    weights: ArrayLike | None = None,
    *,
    tolerance: float = 1e-4,
) -> MixtureWeights:
    """The best weights over given policies, by pairwise steps until their inner gap is small.

    A step moves weight to the best policy from the worst one that has any, by exact line search (Lacoste-Julien and
    Jaggi, 2015). It begins with the given weights (n,), or equal ones, and stops when the inner gap is at most
    ``tolerance`` times the gain over no data (of |value| if the prior is singular).
    """
    count = len(policies)
    check_tolerance(tolerance)
    current = _checked_weights(np.full(count, 1.0 / max(count, 1)) if weights is None else weights, count)
    steps = 0
    while True:
        slopes, gap = _slopes_and_gap(problem, policies, current)
        value = problem.value(PolicyMoments.mixture(policies, current))
        gain = value - problem.baseline if np.isfinite(problem.baseline) else abs(value)
        if gap <= tolerance * gain or steps >= _STEPS:
            return MixtureWeights(current, gap, steps)
        current, step = _step(problem, policies, current, slopes)
        steps += 1
        if step <= 0.0:  # rounding allows no further progress
            return MixtureWeights(current, gap, steps)


def _checked_weights(weights: ArrayLike, count: int) -> Floats:
    """Weights (n,) >= 0 that sum to 1, a new array."""
    array = np.array(check_array(weights, "weights", shape=(count,)))
    if not count:
        raise ValueError("Expected at least one policy, got none.")
    if array.min() < 0 or abs(array.sum() - 1.0) > _SUM_TOLERANCE:
        raise ValueError(f"Expected weights >= 0 with sum 1, got minimum {array.min():.6g} and sum {array.sum():.12g}.")
    return array


def _slopes_and_gap(problem: MomentProblem, policies: Sequence[PolicyMoments], weights: Floats) -> tuple[Floats, float]:
    """<g, z_i> of every policy, and the largest minus the mixture's."""
    reward = problem.gradient(PolicyMoments.mixture(policies, weights))
    slopes = np.array([reward.expected(policy) for policy in policies])
    return slopes, max(0.0, float(slopes.max() - weights @ slopes))


def _step(
    problem: MomentProblem,
    policies: Sequence[PolicyMoments],
    weights: Floats,
    slopes: Floats,
) -> tuple[Floats, float]:
    """Weights after one exact pairwise step towards the policy of the largest slope, and the step."""
    target = int(np.argmax(slopes))
    away = int(np.argmin(np.where(weights > 0, slopes, np.inf)))
    if away == target:
        return weights, 0.0
    current = PolicyMoments.mixture(policies, weights)
    towards, source = policies[target], policies[away]
    segment = Segment(
        information=problem.information(current),
        means=current.means,
        moment_change=towards.second - source.second,
        mean_change=towards.means - source.means,
        episodes=problem.episodes,
        longest=float(weights[away]),
    )
    step = exact_step(problem.criterion, segment)
    moved = weights.copy()
    moved[target] += step
    moved[away] = 0.0 if step >= segment.longest else moved[away] - step
    return moved / moved.sum(), step
