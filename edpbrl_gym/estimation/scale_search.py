"""Maximisation of a smooth, expensive function of one number: the log scale of a prior."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

__all__ = ["Peak", "climb"]

# a parabola through points this far apart in log scale is off by about a hundredth of a nat for the evidence of a scale
_TRUSTED_WIDTH, _TRUSTED_PRECISION = 1.6, 0.02
_LARGEST_STEP = float(np.log(1e3))


class Peak(NamedTuple):
    """A maximum and minus the second derivative there; 0 if unknown, as at a limit."""

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
    """Find a local maximum of ``objective`` in ``limits``: bracket it by growing steps, then fit parabolas.

    With three points around the maximum, the vertex of their parabola is evaluated, until the points are so close that
    a parabola is accurate and promises less than ``precision`` above the best point. A vertex close to a known
    point is moved away from it, so that the bracket shrinks from both sides.

    Args:
        objective: The function.
        start: First argument, clipped to the limits.
        limits: Smallest and largest argument; the maximum may be at a limit.
        step: First step of the search for a bracket, > 0; each is twice the last.
        precision: Tolerance in units of the objective.
        max_evaluations: Maximum number of calls of the objective.

    Returns:
        The vertex of the last parabola, which is not evaluated, or the best evaluated argument if there is no bracket:
        exactly one of the limits if the search ends there.
    """
    low, high = limits
    # the error of a parabola is cubic in its width
    widest = _TRUSTED_WIDTH * float(np.cbrt(precision / _TRUSTED_PRECISION))
    values: dict[float, float] = {}

    def value(x: float) -> float:
        if x not in values:
            values[x] = objective(x)
        return values[x]

    def around() -> tuple[float | None, float, float | None]:
        best = max(values, key=lambda x: values[x])
        lower = max((x for x in values if x < best), default=None)
        return lower, best, min((x for x in values if x > best), default=None)

    value(min(max(start, low), high))
    while True:
        left, centre, right = around()
        if left is not None and right is not None:
            vertex, promise, bend = _vertex((left, centre, right), (values[left], values[centre], values[right]))
            wide = max(centre - left, right - centre) > widest
            if len(values) >= max_evaluations or (promise <= precision and not wide):
                return Peak(vertex, bend)
            argument = _away_from_ends(vertex, left, centre, right)
            if wide and promise <= precision:  # halve the larger side
                argument = (left + centre) / 2 if centre - left > right - centre else (centre + right) / 2
        elif len(values) >= max_evaluations:
            return Peak(centre, 0.0)
        elif right is None and centre < high:
            argument, step = min(centre + step, high), min(2 * step, _LARGEST_STEP)
        elif left is None and centre > low:
            argument, step = max(centre - step, low), min(2 * step, _LARGEST_STEP)
        else:
            return Peak(centre, 0.0)  # at a limit, and lower on its other side
        value(argument)


def _vertex(points: tuple[float, float, float], values: tuple[float, float, float]) -> tuple[float, float, float]:
    """The vertex of the parabola through three points, its height above the middle value, and minus its curvature."""
    (a, b, c), (fa, fb, fc) = points, values
    left_slope, right_slope = (fb - fa) / (b - a), (fc - fb) / (c - b)
    bend = (right_slope - left_slope) / (c - a)
    if bend >= 0:  # flat to rounding: the middle is no lower than its neighbours
        return b, 0.0, 0.0
    slope = left_slope + bend * (b - a)
    return b - slope / (2 * bend), slope**2 / (-4 * bend), -2 * bend


def _away_from_ends(vertex: float, left: float, centre: float, right: float) -> float:
    """The vertex, moved at least a tenth of its side of the bracket away from the known points."""
    if vertex >= centre:
        margin = 0.1 * (right - centre)
        return min(max(vertex, centre + margin), right - margin)
    margin = 0.1 * (centre - left)
    return max(min(vertex, centre - margin), left + margin)
