"""EM with exact steps, accelerated by squared extrapolation that never lowers the objective."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

import numpy as np
from scipy.linalg import LinAlgError

from edpbrl_gym._arrays import Floats

__all__ = ["climb_by_em"]

_LONGEST = 64.0  # extrapolation


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
