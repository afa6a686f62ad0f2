"""Faults of a criterion that would make a certificate false.

Differences of the value along random symmetric directions must agree with the gradient; the value must lie below its
tangents, as that of a concave function does; where the criterion has a closed form its own value must be that of the
formula; and half of the information must have an efficiency of a half.
"""

from __future__ import annotations

import numpy as np

from edpbrl_gym._arrays import Floats
from edpbrl_gym.design.criteria import Criterion, SingularInformationError

__all__ = ["criterion_faults"]


_DIRECTIONS = 4  # along which a gradient is checked
_STEP = 1e-4  # of their differences, in the metric of the information
_GRADIENT_TOLERANCE = 1e-5  # relative, of differences
_VALUE_TOLERANCE = 1e-8  # relative to max(1, |value|)


def criterion_faults(
    criterion: Criterion, matrix: Floats, value: float, gradient: Floats, *, rounding: float
) -> list[str]:
    """What is wrong with a criterion at an information matrix; empty if nothing is.

    Args:
        criterion: The criterion.
        matrix: I, shape (d, d).
        value: s(I) by the formula of its form; its own if it has none.
        gradient: ds/dI, shape (d, d), likewise.
        rounding: What rounding may do to the value, absolute.
    """
    try:
        return _faults(criterion, matrix, value, gradient, rounding)
    except SingularInformationError:  # beside a matrix that is nearly so
        return []


def _faults(criterion: Criterion, matrix: Floats, value: float, gradient: Floats, rounding: float) -> list[str]:
    own_value, own = float(criterion.value(matrix)), np.asarray(criterion.gradient(matrix))
    if abs(own_value - value) > _VALUE_TOLERANCE * max(1.0, abs(value)) + rounding:
        return [f"the criterion {criterion.name} has the value {own_value:.10g}, by its form {value:.10g}"]
    if np.abs(own - own.T).max() > _GRADIENT_TOLERANCE * np.abs(own).max():
        return [f"the gradient of the criterion {criterion.name} is not symmetric"]
    half = criterion.efficiency(value, float(criterion.value(2.0 * matrix)), len(matrix))
    if not abs(half - 0.5) <= _GRADIENT_TOLERANCE + rounding / max(abs(value), 1e-300):
        return [f"the criterion {criterion.name} gives half of the information an efficiency of {half:.6g}, not 0.5"]
    lower = np.linalg.cholesky(matrix)
    draws = np.random.default_rng(0).standard_normal((_DIRECTIONS, 2, len(matrix)))
    for first, second in draws / np.linalg.norm(draws, axis=2, keepdims=True):
        one, other = lower @ first, lower @ second
        direction = (np.outer(one, other) + np.outer(other, one)) / 2  # E with -I <= E <= I
        slope = float(np.vdot(own, direction))
        scale = float(np.sqrt((one @ gradient @ one) * (other @ gradient @ other)))
        ahead, behind = (float(criterion.value(matrix + step * direction)) for step in (_STEP, -_STEP))
        off = abs((ahead - behind) / (2 * _STEP) - slope)
        if off > _GRADIENT_TOLERANCE * scale + (rounding + 1e-12 * abs(value)) / _STEP:
            return [f"the gradient of the criterion {criterion.name} is off by {off:.3g} from differences of its value"]
        for step in (0.5, -0.5):
            above = float(criterion.value(matrix + step * direction)) - value - step * slope
            if above > _GRADIENT_TOLERANCE * scale + 2 * rounding:
                return [f"the criterion {criterion.name} is not concave: it exceeds a tangent by {above:.3g}"]
    return []
