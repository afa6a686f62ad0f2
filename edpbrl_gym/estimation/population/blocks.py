"""Many people's answers as padded arrays, in blocks that stay in the cache, and their variational Gaussians."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from edpbrl_gym._arrays import Floats
from edpbrl_gym.estimation.population.answers import Answered
from edpbrl_gym.estimation.population.geometry import Geometry, geometry_of
from edpbrl_gym.estimation.population.sites import Sites, fit_sites

__all__ = ["Block", "WarmSites", "blocks_of"]

PointT = TypeVar("PointT")

_POINTS = 1 << 7  # of the variational integrals
_TOLERANCE = 1e-4  # nats a person
_MORE_STEPS = 20
_BLOCK_NUMBERS = 1 << 19


@dataclass(frozen=True, eq=False)
class Block:
    """Answers of B people; questions and alternatives that a person does not have are absent.

    Attributes:
        people: Their places among all people, (B,).
        rows: Differences to the chosen alternatives, (B, n, k, d); 0 for absent ones.
        offsets: (B, n, k); -inf for absent alternatives.
    """

    people: NDArray[np.intp]
    rows: Floats
    offsets: Floats

    @property
    def flat(self) -> Floats:
        """The rows of all questions, (B, n k, d)."""
        return self.rows.reshape(len(self.rows), -1, self.rows.shape[3])

    def offsets_at(self, mean: Floats) -> Floats:
        """Offsets of the utility differences about the taste ``mean``, (B, n, k)."""
        return np.asarray(self.offsets + self.rows @ mean)

    def under(self, root: Floats) -> Geometry:
        """The geometry under a covariance with the given root, (d, d)."""
        return geometry_of(self.rows @ root)


def blocks_of(people: Sequence[Answered]) -> list[Block]:
    """The people, those with similarly many answers together."""
    sizes = np.array([person.rows.shape[0] * person.rows.shape[1] for person in people])
    order = np.argsort(-sizes, kind="stable")
    found: list[Block] = []
    start = 0
    while start < len(order):
        size = int(sizes[order[start]])
        numbers = size * max(_POINTS, size, people[0].rows.shape[2])
        members = order[start : start + max(1, _BLOCK_NUMBERS // numbers)]
        found.append(_padded([people[row] for row in members], members))
        start += len(members)
    return found


def _padded(people: Sequence[Answered], members: NDArray[np.intp]) -> Block:
    questions = max(person.rows.shape[0] for person in people)
    others = max(person.rows.shape[1] for person in people)
    rows = np.zeros((len(people), questions, others, people[0].rows.shape[2]))
    offsets = np.full(rows.shape[:3], -np.inf)
    for place, person in enumerate(people):
        count, own, _ = person.rows.shape
        rows[place, :count, :own] = person.rows
        offsets[place, :count, :own] = 0.0 if person.offsets is None else person.offsets
    return Block(members, rows, offsets)


class WarmSites:
    """Variational Gaussians of people, each started from its last sites."""

    def __init__(self) -> None:
        self._last: dict[tuple[int, int], Sites] = {}

    def guarded(self, step: Callable[[PointT], tuple[float, PointT]]) -> Callable[[PointT], tuple[float, PointT]]:
        """The same step of EM, which leaves the sites as they were after a trial that is no improvement."""
        best = -np.inf

        def guarded_step(point: PointT) -> tuple[float, PointT]:
            nonlocal best
            kept = dict(self._last)
            value, after = step(point)
            if value < best:
                self._last = kept
            best = max(best, value)
            return value, after

        return guarded_step

    def fit(self, block: int, part: int, geometry: Geometry, offsets: Floats) -> Sites:
        """The sites of a block's people under a part."""
        start = self._last.get((block, part))
        limit = 200 if start is None else _MORE_STEPS
        found = fit_sites(geometry, offsets, start=start, tolerance=_TOLERANCE, max_iterations=limit)
        self._last[block, part] = found
        return found
