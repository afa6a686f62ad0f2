"""Means with their errors and intervals as text; what is not defined is said to be so."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

__all__ = ["UNDEFINED", "bracket", "mean_over", "plus_minus", "standard_error"]

UNDEFINED = "undefined"  # the error of a single value: not zero, and not known


def plus_minus(value: float, error: float, form: str) -> str:
    """Return "0.512 ± 0.013".

    Args:
        value: The mean.
        error: Its standard error, or a deviation; NaN where there is none, as for a single value.
        form: Of the value, such as ".3f" or "+.1%"; the error has no sign.
    """
    told = format(error, form.removeprefix("+")) if math.isfinite(error) else UNDEFINED
    return f"{format(value, form)} ± {told}"


def bracket(low: float, high: float, form: str) -> str:
    """Return "[0.41, 0.63]"; "[undefined]" where there is no interval, as for a single value."""
    if math.isnan(low) or math.isnan(high):
        return f"[{UNDEFINED}]"
    return f"[{format(low, form)}, {format(high, form)}]"


def mean_over(count: int, what: str) -> str:
    """Return "mean ± standard error over 8 runs"; for one: "1 run, no standard error"."""
    return f"mean ± standard error over {count} {what}s" if count > 1 else f"1 {what}, no standard error"


def standard_error(values: NDArray[np.float64]) -> float:
    """Return the standard error of the mean of n values, NaN for fewer than two."""
    return float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else math.nan
