"""A search for the maximum of a smooth function of one number whose every value is dear: the log scale of a prior."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

__all__ = ["Peak", "climb"]

# a parabola through points this far apart in log scale is off by about a hundredth of a nat for the evidence of a scale
_TRUSTED, _OFF = 1.6, 0.02
_LARGEST_STEP = float(np.log(1e3))


class Peak(NamedTuple):
    """A maximum and minus the second derivative there; 0 where none was measured, as at a limit."""

    at: float
    curvature: float


def climb(
    objective: Callable[[float], float],
    start: float,
    limits: tuple[float, float],
    *,
    step: float,
    precision: float,
    max_evaluations: int,
) -> Peak:
    """A local maximum of ``objective`` in ``limits``: bracket it by growing steps, then fit parabolas.

    With three points around the maximum the vertex of their parabola is tried, until the points are so near that a
    parabola can be trusted and it promises less than ``precision`` above the best point. A vertex close to a known
    point is moved away from it, so that the bracket shrinks from both sides.

    Args:
        objective: the function.
        start: where to begin; brought into the limits.
        limits: smallest and largest argument; both may be the maximum.
        step: first step of the search for a bracket, > 0; each is twice the last.
        precision: in units of the objective.
        max_evaluations: calls of the objective at most.

    Returns:
        The vertex of the last parabola (which the objective has not seen), or the best argument that was evaluated
        where there is no bracket: exactly one of the limits when it ends there.
    """
    low, high = limits
    widest = _TRUSTED * float(np.cbrt(precision / _OFF))  # the cubic term is what a parabola misses
    known: dict[float, float] = {}

    def value(x: float) -> float:
        if x not in known:
            known[x] = objective(x)
        return known[x]

    def around() -> tuple[float | None, float, float | None]:
        centre = max(known, key=lambda x: known[x])
        left = max((x for x in known if x < centre), default=None)
        return left, centre, min((x for x in known if x > centre), default=None)

    value(min(max(start, low), high))
    while True:
        left, centre, right = around()
        if left is not None and right is not None:
            vertex, promise, bend = _vertex((left, centre, right), (known[left], known[centre], known[right]))
            wide = max(centre - left, right - centre) > widest
            if len(known) >= max_evaluations or (promise <= precision and not wide):
                return Peak(vertex, bend)
            following = _kept_apart(vertex, left, centre, right)
            if wide and promise <= precision:  # halve the larger side
                following = (left + centre) / 2 if centre - left > right - centre else (centre + right) / 2
        elif len(known) >= max_evaluations:
            return Peak(centre, 0.0)
        elif right is None and centre < high:
            following, step = min(centre + step, high), min(2 * step, _LARGEST_STEP)
        elif left is None and centre > low:
            following, step = max(centre - step, low), min(2 * step, _LARGEST_STEP)
        else:
            return Peak(centre, 0.0)  # at a limit, and lower on its other side
        value(following)


def _vertex(points: tuple[float, float, float], values: tuple[float, float, float]) -> tuple[float, float, float]:
    """Where the parabola through three points is highest, how far above the middle value, and minus its curvature."""
    (a, b, c), (fa, fb, fc) = points, values
    left, right = (fb - fa) / (b - a), (fc - fb) / (c - b)
    bend = (right - left) / (c - a)
    if bend >= 0:  # flat to rounding: the middle is no lower than its neighbours
        return b, 0.0, 0.0
    slope = left + bend * (b - a)
    return b - slope / (2 * bend), slope**2 / (-4 * bend), -2 * bend


def _kept_apart(vertex: float, left: float, centre: float, right: float) -> float:
    """The vertex, at least a tenth of the bracket's sides away from the points that are known."""
    if vertex >= centre:
        margin = 0.1 * (right - centre)
        return min(max(vertex, centre + margin), right - margin)
    margin = 0.1 * (centre - left)
    return max(min(vertex, centre - margin), left + margin)
