"""The search for the scale of a prior: its checked arguments, the prior on the scale and the first step."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from edpbrl_gym._validation import check_count, check_number
from edpbrl_gym.estimation.data import Data, answer_differences
from edpbrl_gym.estimation.prior import GaussianPrior
from edpbrl_gym.estimation.scale_search import climb
from edpbrl_gym.estimation.whitened import WhitenedAnswers
from edpbrl_gym.likelihood import ResponseModel

__all__ = ["BOUNDS", "FIRST_STEP", "WARM_STEP", "ScaleSearch"]


BOUNDS = (1e-4, 1e6)  # smallest and largest scale
FIRST_STEP, WARM_STEP = float(np.log(3.0)), float(np.log(1.6))  # in log(scale)


class ScaleSearch:
    """Checked arguments of a search for the scale, and the search."""

    def __init__(
        self,
        data: Data,
        model: ResponseModel | None,
        base: GaussianPrior,
        bounds: tuple[float, float],
        typical_scale: float,
        log_spread: float,
        precision: float,
        max_evaluations: int,
    ) -> None:
        differences, offsets = answer_differences(data, model)
        self._bounds = _checked_bounds(bounds)
        self.typical = check_number(typical_scale, "typical_scale", minimum=0.0, exclusive=True)
        if not log_spread > 0:
            raise ValueError(f"Expected log_spread > 0 (numpy.inf: no prior on the scale), got {log_spread}")
        self._log_spread = log_spread
        self._precision = check_number(precision, "precision", minimum=0.0, exclusive=True)
        self._max_evaluations = check_count(max_evaluations, "max_evaluations")
        if not isinstance(base, GaussianPrior):
            raise TypeError(f"Expected base as a GaussianPrior, got {type(base).__name__}")
        dimension = differences.shape[2]
        if base.dimension != dimension:
            raise ValueError(f"Expected a base of dimension {dimension} (the options'), got {base.dimension}")
        self.answers = WhitenedAnswers(differences, offsets, base)
        self.tried: list[tuple[float, float]] = []

    def run(self, evidence: Callable[[float], float], first_scale: float, step: float) -> tuple[float, float, bool]:
        """The scale with the highest evidence plus log prior, the variance of log(scale), and whether it is a bound.

        The variance is 1 / curvature at the maximum; 0 if the curvature is unknown.
        """

        def objective(log_scale: float) -> float:
            scale = float(np.exp(log_scale))
            value = evidence(scale)
            self.tried.append((scale, value))
            return value - 0.5 * ((log_scale - float(np.log(self.typical))) / self._log_spread) ** 2

        limits = float(np.log(self._bounds[0])), float(np.log(self._bounds[1]))
        best, curvature = climb(
            objective,
            float(np.log(first_scale)),
            limits,
            step=step,
            precision=self._precision,
            max_evaluations=self._max_evaluations,
        )
        variance = 1.0 / curvature if curvature > 0 else 0.0
        return float(np.clip(np.exp(best), *self._bounds)), variance, best in limits


def _checked_bounds(bounds: tuple[float, float]) -> tuple[float, float]:
    if len(bounds) != 2:
        raise ValueError(f"Expected bounds as (smallest, largest) scale, got {bounds!r}")
    low = check_number(bounds[0], "bounds[0]", minimum=0.0, exclusive=True)
    high = check_number(bounds[1], "bounds[1]", minimum=0.0, exclusive=True)
    if low > high:
        raise ValueError(f"Expected bounds (smallest, largest), got {bounds!r}")
    return low, high
