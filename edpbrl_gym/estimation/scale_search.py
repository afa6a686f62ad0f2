"""A search for the maximum of a smooth function of one number whose every value is dear: the log scale of a prior."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

__all__ = ["climb"]

_FIRST_STEP = float(np.log(3.0))
_WIDEST = 1.5 * _FIRST_STEP
_LARGEST_STEP = float(np.log(1e3))


def climb(
    objective: Callable[[float], float],
    start: float,
    limits: tuple[float, float],
    *,
    precision: float,
    max_evaluations: int,
) -> float:
    """A local maximum of ``objective`` in ``limits``: bracket it by growing steps, then fit parabolas.

    With three points around the maximum the vertex of their parabola is tried, until it promises less than
    ``precision`` above the best point. A vertex close to a known point is moved away from it, into the larger side of
    the bracket, so that the bracket shrinks from both sides.

    Args:
        objective: the function.
        start: where to begin; brought into the limits.
        limits: smallest and largest argument; both may be the maximum.
        precision: in units of the objective.
        max_evaluations: calls of the objective at most.

    Returns:
        The best argument that was evaluated; exactly one of the limits when it ends there.
    """
    low, high = limits
    known: dict[float, float] = {}

    def value(x: float) -> float:
        if x not in known:
            known[x] = objective(x)
        return known[x]

    def best() -> float:
        return max(known, key=lambda x: known[x])

    value(min(max(start, low), high))
    step = _FIRST_STEP
    while len(known) < max_evaluations:
        centre = best()
        left = max((x for x in known if x < centre), default=None)
        right = min((x for x in known if x > centre), default=None)
        if right is None and centre < high:
            following = min(centre + step, high)
        elif left is None and centre > low:
            following = max(centre - step, low)
        elif left is None or right is None:
            return centre  # at a limit, and lower on its other side
        else:
            vertex, promise = _vertex((left, centre, right), (known[left], known[centre], known[right]))
            wide = max(centre - left, right - centre) > _WIDEST
            if promise <= precision and not wide:
                return centre
            following = _kept_apart(vertex, left, centre, right)
            if wide and promise <= precision:  # too far apart for a parabola to be trusted: halve the larger side
                following = (left + centre) / 2 if centre - left > right - centre else (centre + right) / 2
        if left is None or right is None:
            step = min(2 * step, _LARGEST_STEP)
        value(following)
    return best()


def _vertex(points: tuple[float, float, float], values: tuple[float, float, float]) -> tuple[float, float]:
    """Where the parabola through three points has its maximum, and how far that lies above the middle value."""
    (a, b, c), (fa, fb, fc) = points, values
    left, right = (fb - fa) / (b - a), (fc - fb) / (c - b)
    bend = (right - left) / (c - a)
    if bend >= 0:  # flat to rounding: the middle is no lower than its neighbours
        return b, 0.0
    slope = left + bend * (b - a)
    return b - slope / (2 * bend), slope**2 / (-4 * bend)


def _kept_apart(vertex: float, left: float, centre: float, right: float) -> float:
    """The vertex, at least a tenth of the bracket's sides away from the points that are known."""
    if vertex >= centre:
        margin = 0.1 * (right - centre)
        return min(max(vertex, centre + margin), right - margin)
    margin = 0.1 * (centre - left)
    return max(min(vertex, centre - margin), left + margin)
