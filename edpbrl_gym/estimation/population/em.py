"""The fit of a mixture of Gaussians to people's answers by EM: one Gaussian, or several types of people."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

import numpy as np
from scipy.linalg import LinAlgError
from scipy.special import logsumexp

from edpbrl_gym._arrays import Floats
from edpbrl_gym.estimation.population.answers import Answered
from edpbrl_gym.estimation.population.blocks import WarmSites, blocks_of
from edpbrl_gym.estimation.population.cloud import Cloud, Expectation, Proposals
from edpbrl_gym.estimation.population.geometry import reduction
from edpbrl_gym.estimation.population.parts import Moments, Parts, Shrinkage
from edpbrl_gym.estimation.population.points import DEFENSIVE_RANK
from edpbrl_gym.estimation.population.sites import Sites
from edpbrl_gym.estimation.prior import GaussianPrior
from edpbrl_gym.estimation.prior_scale import BOUNDS, FIRST_STEP, climb
from edpbrl_gym.estimation.whitened import WhitenedAnswers

__all__ = [
    "Fitted",
    "Settings",
    "VariationalPeople",
    "climb_by_em",
    "first_scale",
    "fit_bounds",
    "fit_parts",
    "split_parts",
    "update_parts",
]


# a few rounds with the same points as long as the likelihood rises much: points far from a posterior hold it back
_ROUGH_ROUNDS, _ROUGH_RISE, _MOST_ROUGH = 6, 0.005, 30
_RENEWALS = 2  # of the points after that, the last followed by EM to convergence
_ROUNDS_BEFORE = 30
_MOST_NUMBERS = 1 << 22  # in all points; with more people the errors of each average out
# nats a person, rise in one step; with points of more than two features their own error is larger by far
_GRID_TOLERANCE, _TOLERANCE = 1e-9, 1e-6
_VARIATIONAL_TOLERANCE, _FIRST_TOLERANCE = 1e-4, 1e-3
_PEOPLE_OF_FIRST_SCALE = 50
_LONGEST = 64.0  # extrapolation


@dataclass(frozen=True)
class Settings:
    """How a population is fitted.

    Attributes:
        rounds: Largest number of rounds of EM.
        seed: Of the points.
        progress: Whether to write a line to stderr after each set of points.
    """

    rounds: int
    seed: int
    progress: bool

    def tell(self, line: str) -> None:
        """Write a line of progress."""
        if self.progress:
            print(line, file=sys.stderr, flush=True)


@dataclass(frozen=True, eq=False)
class Fitted:
    """Fitted parts, the statistics they were made from, and the objective after each round."""

    parts: Parts
    moments: Moments
    history: list[float]
    converged: bool
    memberships: Floats


def first_scale(people: Sequence[Answered]) -> float:
    """The scale s of N(0, s I) with the largest Laplace evidence over the first people."""
    base = GaussianPrior.isotropic(people[0].rows.shape[2], 1.0)
    some = [WhitenedAnswers(person.rows, person.offsets, base) for person in people[:_PEOPLE_OF_FIRST_SCALE]]

    def evidence(log_scale: float) -> float:
        return sum(person.log_evidence(float(np.exp(log_scale))) for person in some) - log_scale**2 / 18.0

    limits = float(np.log(BOUNDS[0])), float(np.log(BOUNDS[1]))
    peak = climb(evidence, 0.0, limits, step=FIRST_STEP, precision=0.5, max_evaluations=15)
    return float(np.exp(np.clip(peak.at, *limits)))


def fit_parts(people: Sequence[Answered], start: Parts, shrinkage: Shrinkage, settings: Settings) -> Fitted:
    """EM from a first mixture: by variational Gaussians, then for few features by importance sampling."""
    few = start.dimension <= DEFENSIVE_RANK
    first = fit_bounds(people, start, shrinkage, settings, _FIRST_TOLERANCE if few else _VARIATIONAL_TOLERANCE)
    if not few:
        return first
    parts, previous = first.parts, -np.inf
    log_points = _log_points(people, start)
    for trial in range(_MOST_ROUGH):
        proposals = Proposals.variational(people, parts)
        cloud = Cloud(people, proposals, parts, log_points - (log_points > 7), settings.seed)
        parts, history, _ = _climb(cloud, parts, shrinkage, min(_ROUGH_ROUNDS, settings.rounds), len(people))
        settings.tell(f"rough points {trial + 1}: log-likelihood {history[-1]:.3f}")
        if history[-1] - previous < _ROUGH_RISE * len(people):
            break
        previous = history[-1]
    for renewal in range(_RENEWALS):
        proposals = cloud.proposals(people, parts) if renewal else Proposals.variational(people, parts)
        cloud = Cloud(people, proposals, parts, log_points, settings.seed + 1 + renewal)
        rounds = settings.rounds if renewal == _RENEWALS - 1 else min(_ROUNDS_BEFORE, settings.rounds)
        parts, history, converged = _climb(cloud, parts, shrinkage, rounds, len(people))
        found = cloud.expect(parts)
        settings.tell(
            f"points {renewal + 1} of {_RENEWALS}: {len(history)} rounds, log-likelihood {history[-1]:.4f}, "
            f"effective share of the points {np.median(found.effective):.2f}"
        )
    return Fitted(parts, found.moments, history, converged, found.memberships)


def _climb(
    cloud: Cloud, start: Parts, shrinkage: Shrinkage, rounds: int, people: int
) -> tuple[Parts, list[float], bool]:
    """EM with fixed points."""

    def step(point: Parts) -> tuple[float, Parts]:
        found = cloud.expect(point)
        value = float(found.log_likelihoods.sum()) + shrinkage.penalty(point)
        return value, shrinkage.maximise(found.moments, point)

    tolerance = _GRID_TOLERANCE if start.dimension <= 2 else _TOLERANCE
    return climb_by_em(step, start, rounds=rounds, tolerance=tolerance * people)


def fit_bounds(
    people: Sequence[Answered],
    start: Parts,
    shrinkage: Shrinkage,
    settings: Settings,
    tolerance: float = _FIRST_TOLERANCE,
) -> Fitted:
    """EM with variational Gaussians alone, until a step raises the bound by at most ``tolerance`` nats a person."""
    inner = VariationalPeople(people)

    def step(point: Parts) -> tuple[float, Parts]:
        found = inner.expect(point)
        value = float(found.log_likelihoods.sum()) + shrinkage.penalty(point)
        return value, shrinkage.maximise(found.moments, point)

    parts, history, converged = climb_by_em(
        inner.fits.guarded(step), start, rounds=settings.rounds, tolerance=tolerance * len(people)
    )
    settings.tell(f"{len(history)} rounds: bound on the log-likelihood {history[-1]:.3f}")
    found = inner.expect(parts)
    return Fitted(parts, found.moments, history, converged, found.memberships)


def _log_points(people: Sequence[Answered], parts: Parts) -> int:
    """2^10 points for each person and part, fewer where they would not fit into the memory."""
    numbers = 1.5 * len(people) * len(parts) * parts.dimension
    return int(np.clip(np.floor(np.log2(_MOST_NUMBERS / numbers)), 7, 10))


def split_parts(people: Sequence[Answered], fitted: Parts, number: int, seed: int) -> Parts:
    """A first mixture of ``number`` parts: the people's posterior means in groups by k-means."""
    from scipy.cluster.vq import kmeans2

    one = fitted
    centres = Proposals.variational(people, one).means[:, 0]
    white = np.linalg.solve(np.linalg.cholesky(one.covariances[0]), (centres - one.means[0]).T).T
    _, labels = kmeans2(white, number, minit="++", rng=np.random.default_rng(seed), missing="warn")
    counts = np.bincount(labels, minlength=number) + 1.0
    means = np.stack([
        (one.means[0] + centres[labels == part].sum(axis=0)) / counts[part] for part in range(number)
    ])  # fmt: skip
    return Parts(
        counts / counts.sum(),
        means,
        np.repeat(one.covariances * 0.7, number, axis=0),
        np.repeat(one.scales, number),
    )


def update_parts(
    people: Sequence[Answered], parts: Parts, old: Moments, shrinkage: Shrinkage, settings: Settings
) -> tuple[Parts, Moments]:
    """Incremental EM (Neal & Hinton, 1998): only the new people's statistics are computed anew in each round."""
    few = parts.dimension <= DEFENSIVE_RANK
    spans = None if few else VariationalPeople(people)
    cloud: Cloud | None = None
    total = old
    for number in range(settings.rounds):
        if few and number % 10 == 0:
            proposals = Proposals.variational(people, parts) if cloud is None else cloud.proposals(people, parts)
            cloud = Cloud(people, proposals, parts, _log_points(people, parts), settings.seed)
        found: Expectation = (cloud or spans).expect(parts)  # type: ignore[union-attr]
        total = old + found.moments
        last, parts = parts, shrinkage.maximise(total, parts)
        if float(np.abs(parts.pack() - last.pack()).max()) < 1e-5:
            break
    return parts, total


class VariationalPeople:
    """The E-step for many features: people's answers, and their variational Gaussians under the parts of a population.

    Importance sampling needs too many points there. The sum of the people's variational bounds takes the place of the
    log-likelihood: the best Gaussian of each person raises it, and so does each step of the population (Neal & Hinton,
    1998).
    """

    def __init__(self, people: Sequence[Answered]) -> None:
        self._blocks = blocks_of(people)
        self._count = len(people)
        self.fits = WarmSites()

    def expect(self, parts: Parts) -> Expectation:
        """The E-step: statistics and bounds. Weights of the parts are proportional to the exponential of the bounds."""
        number = len(parts)
        roots = np.asarray(np.linalg.cholesky(parts.covariances), dtype=np.float64)
        bounds = np.empty((self._count, number))
        fits: dict[tuple[int, int], Sites] = {}
        for index, block in enumerate(self._blocks):
            for part in range(number):
                offsets = block.offsets_at(parts.means[part])
                fits[index, part] = self.fits.fit(index, part, block.under(roots[part]), offsets)
                bounds[block.people, part] = fits[index, part].bounds
        logs = bounds + np.log(parts.weights)
        likelihoods = logsumexp(logs, axis=1)
        memberships = np.exp(logs - likelihoods[:, None])
        moments = self._moments(parts, roots, fits, memberships)
        return Expectation(moments, likelihoods, memberships, np.ones(self._count))

    def _moments(self, parts: Parts, roots: Floats, fits: dict[tuple[int, int], Sites], memberships: Floats) -> Moments:
        number, dimension = parts.means.shape
        moments = Moments(
            memberships.sum(axis=0), np.zeros((number, dimension)), np.zeros((number, dimension, dimension))
        )
        for part, root in enumerate(roots):
            removed = np.zeros((dimension, dimension))
            for index, block in enumerate(self._blocks):
                found, shares = fits[index, part], memberships[block.people, part]
                rows = block.rows @ root
                inner = np.matmul(found.scores.reshape(len(rows), 1, -1), rows.reshape(block.flat.shape))[:, 0]
                means = parts.means[part] + inner @ root.T
                moments.first[part] += shares @ means
                moments.second[part] += (means * shares[:, None]).T @ means
                removed += reduction(rows, found.information, shares)
            moments.second[part] += moments.counts[part] * parts.covariances[part] - root @ removed @ root.T
        return moments


class _Packed(Protocol):
    def pack(self) -> Floats: ...

    def unpack(self: PointT, vector: Floats) -> PointT: ...


PointT = TypeVar("PointT", bound=_Packed)


def climb_by_em(
    step: Callable[[PointT], tuple[float, PointT]],
    start: PointT,
    *,
    rounds: int,
    tolerance: float,
    cycle_tolerance: float = 0.0,
) -> tuple[PointT, list[float], bool]:
    """Repeat a step of EM until the objective stops rising (SQUAREM; Varadhan & Roland, 2008).

    After two steps x0, x1, x2 the point x0 - 2 a r + a^2 v, with r = x1 - x0, v = x2 - 2 x1 + x0 and a = -|r| / |v|, is
    tried in unconstrained coordinates, and taken where the objective is no lower there.

    Args:
        step: Maps a point to the objective there and the point after one step of EM.
        start: First point.
        rounds: Largest number of steps.
        tolerance: Largest rise of the objective in one step that ends the search.
        cycle_tolerance: Largest rise from one extrapolation to the next that ends it.

    Returns:
        The last point, the objective at each point on the way (never falling, up to rounding), whether it converged.
    """
    history: list[float] = []
    point = start
    last = -np.inf
    while len(history) < rounds:
        value, first = step(point)
        history.append(value)
        if value - last <= cycle_tolerance:
            return first, history, True
        last = value
        after, second = step(first)
        history.append(after)
        if after - value <= tolerance:
            return second, history, True
        trial = _extrapolated(point, first, second)
        point = second
        if trial is not None:
            try:
                value, beyond = step(trial)
            except LinAlgError:  # so far out that a covariance is singular in floating point
                continue
            if np.isfinite(value) and value >= after:
                history.append(value)
                point = beyond
    return point, history, False


def _extrapolated(start: PointT, first: PointT, second: PointT) -> PointT | None:
    x0, x1, x2 = start.pack(), first.pack(), second.pack()
    change = x1 - x0
    bend = x2 - x1 - change
    size = float(np.linalg.norm(bend))
    if size == 0.0:
        return None
    length = float(np.linalg.norm(change)) / size
    if length <= 1.0:
        return None
    length = min(length, _LONGEST)
    return start.unpack(x0 + 2.0 * length * change + length**2 * bend)
