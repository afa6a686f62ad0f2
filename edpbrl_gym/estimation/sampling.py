"""Draws from the exact posterior of a fit: of all its parts, and of the scale of each part's prior.

A part whose scale was chosen by the evidence is averaged over its scale s. On a lattice of log(s) about the chosen one,
Laplace's Gaussian at s is N(m_s, H_s^-1), and the exact posterior of theta = m_s + H_s^-1/2 u and s together is

    p(u, s) ~ p(s) Z_s N(u; 0, I) r_s(u),

Z_s Laplace's evidence at s and r_s the exact posterior over Laplace's. Given s an elliptical slice step moves u; given
u, s is drawn from its few values. So the scales get the weights of the exact evidence, not of Laplace's, which prefers
too small ones for people who hardly err.

Laplace's Gaussian alone is too wide if the answers have little noise: much of its mass lies where they would have been
different. Elliptical slice sampling (Murray, Adams & MacKay, 2010) draws from a density that is a Gaussian times any
positive function; with Laplace's the function is nearly constant and the steps are long (Fagan, Bhandari & Cunningham,
2016, use that of expectation propagation). With v the changes of the utilities relative to the chosen options, the log
of r is log L(m + d) - log L(m) - d . grad log L(m) + 1/2 d' F d, F the observed information at m, which depends on v
alone: the prior cancels, and along an ellipse no matrix product is needed.

The random numbers are the same whatever the answers are (common random numbers): draw i belongs to the part in which
the fraction (i + 1/2) / n of the weights falls, starts from the same normal numbers and moves by the same ones. Similar
answers therefore give similar draws.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

from edpbrl_gym._arrays import Floats
from edpbrl_gym._seeds import generator
from edpbrl_gym._threads import one_blas_thread
from edpbrl_gym._validation import check_array, check_count
from edpbrl_gym.estimation.evidence import PriorFit
from edpbrl_gym.estimation.map_estimate import answer_differences
from edpbrl_gym.estimation.posterior import Posterior
from edpbrl_gym.estimation.prior_scale import BOUNDS
from edpbrl_gym.estimation.taste_prior import FitPart
from edpbrl_gym.estimation.whitened import WhitenedAnswers
from edpbrl_gym.likelihood import Terms

__all__ = ["sample_parts"]

_STEPS, _APART = 12, 6  # of a chain before its first draw, and between two draws
_FEWEST, _CHAINS = 16, 160  # fewer where there are many answers
_OPERATIONS = 4e7  # multiplications of one step of all chains: bounds their number
_SCALE_EVERY = 3  # steps between two draws of the scale
_GOLDEN = (5.0**0.5 - 1.0) / 2.0  # its multiples, up to whole numbers, are spread evenly
_ANGLES = 16  # random numbers of an elliptical slice step; beyond, they are used again
_SPACING = 1.0  # of the lattice of log(s); twice as much for a flat evidence, half as much for a sharp one
# standard deviation of log(s) under its prior, at most; wider ones, which let the evidence choose freely, count people
# without any taste among those whose answers say little yet
_SPREAD = 1.5
_NATS = 3.5  # a scale that the evidence makes less likely than the best by more is left out
_MOST_SCALES = 8


def sample_parts(parts: Sequence[FitPart], weights: Floats, terms: Terms, *, draws: int, seed: int) -> Floats:
    """Draws from the exact posterior given the answers, under priors with weights.

    Args:
        parts: Fits to the answers, as of a `Fit`.
        weights: Of the parts, >= 0, sum 1.
        terms: The answers, with the format's own parameters put in.
        draws: Number of draws n, >= 1.
        seed: Of the random numbers, which depend on nothing else.

    Returns:
        The draws, (n, d), in the order of the parts.

    Raises:
        ValueError: Weights of another number or with another sum.
    """
    num_draws = check_count(draws, "draws")
    shares = check_array(weights, "weights", shape=(len(parts),))
    if shares.min() < 0 or abs(float(shares.sum()) - 1.0) > 1e-9:
        raise ValueError(f"Expected weights >= 0 with the sum 1, one for each part, got {shares.tolist()}")
    changes = len(terms) * (terms.rows.shape[1] - 1)
    affordable = int(_OPERATIONS / max(1, changes * min(changes, terms.dimension)))
    chains = min(num_draws, _CHAINS, max(_FEWEST, affordable))
    part_of = np.searchsorted(np.cumsum(shares), (np.arange(chains) + 0.5) / chains).clip(max=len(parts) - 1)
    each = -(-num_draws // chains)
    known = all(isinstance(parts[int(number)], PriorFit) for number in np.unique(part_of))
    rank = min(terms.dimension, changes) if known else terms.dimension  # of the coordinates that move
    steps = _STEPS + (each - 1) * _APART if len(terms) else 0
    numbers = _Numbers.of(seed, (chains, each, terms.dimension), rank, steps)
    found = np.empty((chains, each, terms.dimension))
    for number in np.unique(part_of):
        mine = np.flatnonzero(part_of == number)
        found[mine] = _sample(parts[int(number)], terms, numbers.of_chains(mine))
    return found.reshape(-1, terms.dimension)[:num_draws]


@dataclass(frozen=True)
class _Numbers:
    """Random numbers of some chains: normal ones for each draw, (c, n, d), and what moves the chains in each step."""

    normals: Floats
    directions: Floats  # normal, (r, steps, c): the first are the same whatever the rank r is
    levels: Floats  # logs of uniform ones, (steps, c)
    angles: Floats  # uniform, (steps, c, a)
    scales: Floats  # uniform, (steps, c)

    @classmethod
    def of(cls, seed: int, shape: tuple[int, int, int], rank: int, steps: int) -> _Numbers:
        normal, uniform = (generator(seed, "posterior draws", name) for name in ("normal", "uniform"))
        chains = shape[0]
        return cls(
            normals=normal.standard_normal(shape),
            directions=normal.standard_normal((rank, steps, chains)),
            levels=np.log(uniform.random((steps, chains))),
            angles=uniform.random((steps, chains, _ANGLES)),
            scales=uniform.random((steps, chains)),
        )

    def of_chains(self, chosen: NDArray[np.intp]) -> _Numbers:
        return _Numbers(
            self.normals[chosen], self.directions[:, :, chosen], self.levels[:, chosen], self.angles[:, chosen],
            self.scales[:, chosen],
        )  # fmt: skip


@dataclass(frozen=True)
class _Scale:
    """Laplace's Gaussian at one scale, in coordinates of which its rank r is used."""

    mean: Floats  # (r,)
    factor: Floats  # lower triangular L with the precision L L', (r, r)
    changes: Floats  # of the utilities with u, (r, m (J - 1))
    values: Floats  # utilities at the mode relative to the chosen alternatives, (m, J - 1)
    log_weight: float  # log p(s) Z_s
    deviation: float  # of the coordinates about which the answers say nothing


class _Exact:
    """Log of the exact posterior over Laplace's at each of some scales."""

    def __init__(self, scales: Sequence[_Scale]) -> None:
        self.values = np.stack([scale.values for scale in scales])  # (S, m, k)
        top = np.maximum(self.values.max(axis=2, initial=0.0), 0.0)
        weights = np.exp(self.values - top[:, :, None])
        base = np.exp(-top) + weights.sum(axis=2)
        self.shares = weights / base[:, :, None]
        self.at_mode = (top + np.log(base)).sum(axis=1)

    def __call__(self, number: NDArray[np.intp], v: Floats) -> Floats:
        """At the scale ``number`` (c,) of each chain, (c,), for changes v (c, m, k) of the utilities."""
        values, shares = self.values[number] + v, self.shares[number]
        top = np.maximum(values.max(axis=2, initial=0.0), 0.0)
        logs = top + np.log(np.exp(-top) + np.exp(values - top[:, :, None]).sum(axis=2))
        mean = (shares * v).sum(axis=2)
        spread = (shares * v * v).sum(axis=2) - mean * mean
        return np.asarray(self.at_mode[number] + (mean + 0.5 * spread - logs).sum(axis=1))


@one_blas_thread()
def _sample(part: FitPart, terms: Terms, numbers: _Numbers) -> Floats:
    """Draws of one part, (c, n, d)."""
    normals = numbers.normals
    if not len(terms):
        return (
            Posterior.from_estimate(part.estimate)
            .of_normals(normals.reshape(-1, terms.dimension))
            .reshape(normals.shape)
        )
    space = _Whitened(part, terms) if isinstance(part, PriorFit) else _Laplace(part, terms)
    scales, exact = space.scales, _Exact(space.scales)
    rank, shape, chains = len(scales[0].mean), scales[0].values.shape, len(normals)
    logs = np.array([scale.log_weight for scale in scales])
    point = normals[:, 0, :rank].copy()
    number = _drawn(np.tile(logs, (chains, 1)), np.asarray(np.arange(chains) * _GOLDEN % 1.0, dtype=np.float64))
    changes = _changed(scales, number, point, shape)
    found: list[Floats] = []
    for step in range(len(numbers.levels)):
        if len(scales) > 1 and step % _SCALE_EVERY == 0:
            every = [(point @ scale.changes).reshape(chains, *shape) for scale in scales]
            ratios = [exact(np.full(chains, index), moved) for index, moved in enumerate(every)]
            number = _drawn(logs + np.stack(ratios, axis=1), numbers.scales[step])
            changes = np.stack(every)[number, np.arange(chains)]
        direction = np.ascontiguousarray(numbers.directions[:rank, step].T)
        moved = _changed(scales, number, direction, shape)
        angle = _angles(exact, number, changes, moved, numbers.levels[step], numbers.angles[step])
        cos, sin = np.cos(angle), np.sin(angle)
        point = cos[:, None] * point + sin[:, None] * direction
        changes = cos[:, None, None] * changes + sin[:, None, None] * moved
        if step + 1 >= _STEPS and (step + 1 - _STEPS) % _APART == 0:
            found.append(space.thetas(number, point, normals[:, len(found)]))
    return np.stack(found, axis=1)


def _changed(scales: Sequence[_Scale], number: NDArray[np.intp], points: Floats, shape: tuple[int, ...]) -> Floats:
    """Changes of the utilities with points (c, r), each at its own scale, (c, m, k)."""
    found = np.empty((len(points), scales[0].changes.shape[1]))
    for index in np.unique(number):
        mine = number == index
        found[mine] = points[mine] @ scales[int(index)].changes
    return found.reshape(len(points), *shape)


def _drawn(logs: Floats, uniform: Floats) -> NDArray[np.intp]:
    """Columns drawn with probabilities proportional to exp(logs) (c, S), by uniform numbers (c,)."""
    totals = np.cumsum(np.exp(logs - logs.max(axis=1, keepdims=True)), axis=1)
    return np.asarray((totals < uniform[:, None] * totals[:, -1:]).sum(axis=1))


def _angles(
    exact: _Exact, number: NDArray[np.intp], point: Floats, direction: Floats, level: Floats, uniform: Floats
) -> Floats:
    """Angle of each chain's next point on its ellipse, (c,), by given random numbers (c, a)."""
    least = exact(number, point) + level
    angle = 2 * np.pi * uniform[:, 0]
    low, high = angle - 2 * np.pi, angle.copy()
    waiting, tries = np.arange(len(point)), 0
    while len(waiting):
        tries += 1
        cos, sin = np.cos(angle[waiting])[:, None, None], np.sin(angle[waiting])[:, None, None]
        inside = exact(number[waiting], cos * point[waiting] + sin * direction[waiting]) > least[waiting]
        waiting = waiting[~inside]
        below = angle[waiting] < 0
        low[waiting[below]], high[waiting[~below]] = angle[waiting[below]], angle[waiting[~below]]
        share = uniform[waiting, tries % _ANGLES]
        angle[waiting] = low[waiting] + share * (high[waiting] - low[waiting])  # shrinks to 0, the present point
    return angle


class _Whitened:
    """A part whose prior is known, in whitened coordinates of the span of the answers; at several scales."""

    def __init__(self, part: PriorFit, terms: Terms) -> None:
        self.answers = WhitenedAnswers(*answer_differences(terms), part.prior)
        self.answers.start_at(part.estimate.theta)
        self.chosen, self.typical = np.log(part.scale), np.log(part.typical_scale)
        self.spread = min(part.log_spread, _SPREAD)
        self.scales = self._lattice(part.grid) if len(part.grid) > 1 else [self._at(self.chosen)[1]]

    def _at(self, log_scale: float) -> tuple[float, _Scale]:
        factor = float(np.exp(log_scale - self.chosen))
        mean, precision, log_evidence = self.answers.mode(factor)
        lower: Floats = np.asarray(np.linalg.cholesky(precision), dtype=np.float64)
        rows = self.answers.rows
        changes = solve_triangular(lower, rows.reshape(-1, rows.shape[2]).T, lower=True, check_finite=False)
        log_weight = log_evidence - 0.5 * ((log_scale - self.typical) / self.spread) ** 2
        return log_weight, _Scale(mean, lower, changes, self.answers.values(mean), log_weight, float(np.sqrt(factor)))

    def _lattice(self, tried: Floats) -> list[_Scale]:
        """Scales about the best one tried (g, 2), as far as they are likely, and as close as the evidence changes."""
        values = tried[:, 1] - 0.5 * ((np.log(tried[:, 0]) - self.typical) / self.spread) ** 2
        start = float(np.log(tried[int(values.argmax()), 0]))
        spacing = _SPACING
        found = self._walk(start, spacing)
        while len(found) < 3 and spacing > _SPACING / 8:
            spacing /= 2
            found = self._walk(start, spacing)
        return found

    def _walk(self, start: float, spacing: float) -> list[_Scale]:
        low, high = (self.typical + np.log(bound) for bound in BOUNDS)
        middle = round((start - self.typical) / spacing)
        best, scale = self._at(self.typical + middle * spacing)
        found = {middle: scale}
        ends = {-1: True, 1: True}
        while any(ends.values()) and len(found) < _MOST_SCALES:
            for sign in (1, -1):
                if not ends[sign]:
                    continue
                index = (max(found) if sign > 0 else min(found)) + sign
                place = self.typical + index * spacing
                if not low <= place <= high or len(found) >= _MOST_SCALES:
                    ends[sign] = False
                    continue
                value, scale = self._at(place)
                best = max(best, value)
                ends[sign] = value > best - _NATS
                if ends[sign]:
                    found[index] = scale
        return [found[index] for index in sorted(found) if found[index].log_weight > best - _NATS]

    def thetas(self, number: NDArray[np.intp], points: Floats, rest: Floats) -> Floats:
        """Tastes of points (c, r) at their scales, the rest of the coordinates from normal numbers (c, d)."""
        white = np.empty((len(points), self.answers.rank))
        for index in np.unique(number):
            mine, scale = number == index, self.scales[int(index)]
            steps = solve_triangular(scale.factor, points[mine].T, lower=True, trans="T", check_finite=False)
            white[mine] = scale.mean + steps.T
        deviations = np.array([scale.deviation for scale in self.scales])[number]
        return self.answers.thetas(white, deviations[:, None] * rest)


class _Laplace:
    """Another part, about its estimate; at its own scale."""

    def __init__(self, part: FitPart, terms: Terms) -> None:
        self.posterior = Posterior.from_estimate(part.estimate)
        differences, offsets = terms.differences()
        factor: Floats = np.asarray(np.linalg.cholesky(self.posterior.precision), dtype=np.float64)
        changes = solve_triangular(factor, differences.reshape(-1, terms.dimension).T, lower=True, check_finite=False)
        values = np.vecdot(differences, self.posterior.mean) + offsets
        self.scales = [_Scale(self.posterior.mean, factor, changes, values, 0.0, 1.0)]

    def thetas(self, number: NDArray[np.intp], points: Floats, rest: Floats) -> Floats:
        """Tastes of points (c, d)."""
        return self.posterior.of_normals(points)
