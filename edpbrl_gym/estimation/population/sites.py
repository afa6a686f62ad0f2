"""Variational Gaussians of many people at once, each given by what its answers contribute: its sites.

With v = c + D w the utility differences of a person under the prior w ~ N(0, I), the Gaussian of v closest to the
posterior (`edpbrl_gym.estimation.variational`) is N(c + K a, (K^-1 + W)^-1) with K = D D': n k numbers a and one matrix
k x k for each question in W (Opper & Archambeau, 2009). At the optimum a is the expected score and W the expected
information. The sites change little with the prior, so those of one prior are a good start under the next.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edpbrl_gym._arrays import Floats
from edpbrl_gym.estimation.population.geometry import Geometry, roots
from edpbrl_gym.estimation.variational import normal_points

__all__ = ["Sites", "fit_sites"]

_SHORTEST = 1.0 / 64.0  # share of a step that is tried; where none raises the bound, the person's fit ends


@dataclass(frozen=True, eq=False)
class Sites:
    """The Gaussians of B people.

    Attributes:
        scores: a, (B, n, k).
        information: W, (B, n, k, k).
        bounds: Lower bounds on the log evidence, (B,).
        log_likelihoods: Expected log-likelihoods, (B,).
        iterations: Number of steps.
    """

    scores: Floats
    information: Floats
    bounds: Floats
    log_likelihoods: Floats
    iterations: int

    @classmethod
    def empty(cls, count: int, questions: int, others: int) -> Sites:
        """Those of answers that say nothing."""
        shape = count, questions, others
        return cls(np.zeros(shape), np.zeros((*shape, others)), np.zeros(count), np.zeros(count), 0)

    def take(self, chosen: NDArray[np.intp]) -> Sites:
        """Those of the chosen people."""
        scores, information, bounds = self.scores[chosen], self.information[chosen], self.bounds[chosen]
        return Sites(scores, information, bounds, self.log_likelihoods[chosen], self.iterations)


@dataclass(eq=False)
class _State:
    """Sites, and the expectations under them: the next step's score a - so b = W (v - c) - p - and information."""

    scores: Floats
    information: Floats
    bounds: Floats
    log_likelihoods: Floats
    right: Floats
    target: Floats

    def arrays(self) -> tuple[Floats, ...]:
        return self.scores, self.information, self.bounds, self.log_likelihoods, self.right, self.target

    def take(self, chosen: NDArray[np.intp]) -> _State:
        return _State(*(array[chosen] for array in self.arrays()))

    def put(self, chosen: NDArray[np.intp], other: _State) -> None:
        for array, new in zip(self.arrays(), other.arrays(), strict=True):
            array[chosen] = new


def fit_sites(
    geometry: Geometry,
    offsets: Floats,
    *,
    start: Sites | None = None,
    tolerance: float = 1e-4,
    max_iterations: int = 200,
) -> Sites:
    """The variational Gaussians of several people.

    Newton steps with the expected gradient and Hessian, shortened where the bound falls.

    Args:
        geometry: The covariances K.
        offsets: c, (B, n, k); -inf for absent alternatives.
        start: Sites of the same answers, such as those under another prior; None: the prior.
        tolerance: Rise of a person's bound in the last step, in nats.
        max_iterations: Largest number of steps.
    """
    shape = offsets.shape
    points = normal_points(shape[2]).T
    if start is None:
        scores, information = np.zeros(shape), np.zeros((*shape, shape[-1]))
        blocks, log_determinant = geometry.blocks(), np.zeros(len(offsets))
    else:
        scores, information = start.scores, start.information
        solved = geometry.solve(information, scores)
        blocks, log_determinant = solved.blocks, solved.log_determinant
    state = _evaluated(geometry, offsets, points, scores, information, blocks, log_determinant)
    active = np.arange(len(offsets))
    here, present = geometry, offsets
    iteration = 0
    while iteration < max_iterations and len(active):
        iteration += 1
        old = state.take(active)
        new = _step(here, present, points, old)
        rise = new.bounds - old.bounds
        better = rise > 0.0  # below 0 where the integration error of the points allows no further rise
        state.put(active[better], new.take(np.flatnonzero(better)))
        going = rise > tolerance
        if not going.all():
            active = active[going]
            here, present = geometry.take(active), offsets[active]
    return Sites(state.scores, state.information, state.bounds, state.log_likelihoods, iteration)


def _step(geometry: Geometry, offsets: Floats, points: Floats, old: _State) -> _State:
    solved = geometry.solve(old.target, old.right)
    new = _evaluated(geometry, offsets, points, solved.scores, old.target, solved.blocks, solved.log_determinant)
    length = 0.5
    low = np.flatnonzero(~(new.bounds >= old.bounds))
    while len(low) and length >= _SHORTEST:
        some, last = geometry.take(low), old.take(low)
        scores = last.scores + length * (solved.scores[low] - last.scores)
        information = last.information + length * (last.target - last.information)
        shorter = some.solve(information, scores)
        trial = _evaluated(some, offsets[low], points, scores, information, shorter.blocks, shorter.log_determinant)
        new.put(low, trial)
        low = low[~(trial.bounds >= last.bounds)]
        length /= 2
    return new


def _evaluated(
    geometry: Geometry,
    offsets: Floats,
    points: Floats,
    scores: Floats,
    information: Floats,
    blocks: Floats,
    log_determinant: Floats,
) -> _State:
    shifts = geometry.times(scores)  # K a
    values = np.matmul(roots(blocks), points)  # (B, n, k, S)
    values += (shifts + offsets)[..., None]
    largest = np.maximum(values.max(axis=2), 0.0)
    values -= largest[:, :, None]
    np.exp(values, out=values)
    total = values.sum(axis=2) + np.exp(-largest)
    log_likelihoods = -(np.log(total) + largest).mean(axis=2).sum(axis=1)
    values /= total[:, :, None]
    average = values.mean(axis=3)
    target = np.matmul(values, values.transpose(0, 1, 3, 2)) / -points.shape[1]
    diagonal = np.arange(offsets.shape[2])
    target[..., diagonal, diagonal] += average
    right = np.matmul(target, shifts[..., None])[..., 0] - average
    trace = (information * blocks).sum(axis=(1, 2, 3))
    quadratic = (scores * shifts).sum(axis=(1, 2))
    bounds = log_likelihoods - 0.5 * (quadratic + log_determinant - trace)
    return _State(scores, information, bounds, log_likelihoods, right, target)
