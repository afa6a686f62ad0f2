"""The search for the scale of a prior: its checked arguments, the prior on the scale, and a climb in log(scale)."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from edpbrl_gym._validation import check_number
from edpbrl_gym.estimation.map_estimate import answer_differences
from edpbrl_gym.estimation.prior import GaussianPrior
from edpbrl_gym.estimation.taste_prior import check_prior
from edpbrl_gym.estimation.whitened import WhitenedAnswers
from edpbrl_gym.likelihood import Terms

__all__ = ["BOUNDS", "FIRST_STEP", "WARM_STEP", "Peak", "ScaleSearch", "climb"]


BOUNDS = (1e-4, 1e6)  # smallest and largest scale, in units of the typical one
FIRST_STEP, WARM_STEP = float(np.log(3.0)), float(np.log(1.6))  # in log(scale)
_PROBES = (1e-3, 1e3)  # further starts of the search, in units of the typical scale
# a parabola through points this far apart in log scale is off by about a hundredth of a nat for the evidence of a scale
_TRUSTED_WIDTH, _TRUSTED_PRECISION = 1.6, 0.02
_LARGEST_STEP = float(np.log(1e3))
_FLAT = 1.0  # nats between the scales tried, below which the answers do not determine the scale


class ScaleSearch:
    """Checked arguments of a search for the scale, and the search."""

    def __init__(
        self,
        terms: Terms,
        base: GaussianPrior,
        typical_scale: float | None,
        log_spread: float,
        precision: float,
        max_evaluations: int,
        strength: float = 1.0,
    ) -> None:
        differences, offsets = answer_differences(terms)
        if typical_scale is not None:
            typical_scale = check_number(typical_scale, "typical_scale", minimum=0.0, exclusive=True)
        if not log_spread > 0:
            raise ValueError(f"Expected log_spread > 0 (numpy.inf: no prior on the scale), got {log_spread}")
        self._log_spread = log_spread
        self._precision, self._max_evaluations = precision, max_evaluations
        check_prior(base, "base", GaussianPrior)
        dimension = differences.shape[2]
        if base.dimension != dimension:
            raise ValueError(f"Expected a base of dimension {dimension} (the options'), got {base.dimension}")
        self.answers = WhitenedAnswers(differences, offsets, base)
        self.typical = strength * self.answers.typical_scale if typical_scale is None else typical_scale
        self._bounds = BOUNDS[0] * self.typical, BOUNDS[1] * self.typical
        self.tried: list[tuple[float, float]] = []

    def run(
        self, evidence: Callable[[float], float], first_scale: float, step: float, *, local: bool = False
    ) -> tuple[float, float, bool]:
        """The scale with the highest evidence plus log prior, the variance of log(scale), and whether it is a bound.

        The variance is 1 / curvature at the maximum; 0 if the curvature is unknown. Unless ``local``, the evidence
        is also computed at scales far below and above, and the search goes on from one that is better than the maximum.
        """
        found: dict[float, float] = {}

        def objective(log_scale: float) -> float:
            if log_scale not in found:
                scale = float(np.exp(log_scale))
                value = evidence(scale)
                self.tried.append((scale, value))
                found[log_scale] = value - 0.5 * ((log_scale - float(np.log(self.typical))) / self._log_spread) ** 2
            return found[log_scale]

        limits = float(np.log(self._bounds[0])), float(np.log(self._bounds[1]))

        def climb_from(start: float) -> Peak:
            most = self._max_evaluations
            return climb(objective, start, limits, step=step, precision=self._precision, max_evaluations=most)

        best, curvature = climb_from(float(np.log(first_scale)))
        for probe in () if local else _PROBES:
            start = float(np.clip(np.log(self.typical * probe), *limits))
            highest = max(found.values())
            if len(found) >= self._max_evaluations or min(found) <= start <= max(found):
                continue
            if objective(start) > highest + self._precision:
                best, curvature = climb_from(start)
        variance = 1.0 / curvature if curvature > 0 else 0.0
        return float(np.clip(np.exp(best), *self._bounds)), variance, best in limits

    @property
    def flat(self) -> bool:
        """Whether the log evidence is the same within 1 nat at scales that lie far apart."""
        scales, values = zip(*self.tried, strict=True)
        return max(scales) >= max(_PROBES) * min(scales) and max(values) - min(values) < _FLAT


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
