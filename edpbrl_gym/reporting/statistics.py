"""Means with errors and bootstrap intervals, paired differences, and their texts; undefined values are named."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from edpbrl_gym._arrays import Floats

__all__ = [
    "UNDEFINED",
    "PairedDifference",
    "bracket",
    "interval",
    "mean_over",
    "plural",
    "plus_minus",
    "resampled_means",
    "standard_error",
]


UNDEFINED = "undefined"  # the error of a single value: not zero, and not known


def plus_minus(value: float, error: float, form: str) -> str:
    """Return "0.512 ± 0.013".

    Args:
        value: The mean.
        error: Its standard error, or a deviation; NaN if undefined, as for a single value.
        form: Format of the value, such as ".3f" or "+.1%"; the error has no sign.
    """
    deviation = format(error, form.removeprefix("+")) if math.isfinite(error) else UNDEFINED
    return f"{format(value, form)} ± {deviation}"


def bracket(low: float, high: float, form: str) -> str:
    """Return "[0.41, 0.63]"; "[undefined]" without an interval, as for a single value."""
    if math.isnan(low) or math.isnan(high):
        return f"[{UNDEFINED}]"
    return f"[{format(low, form)}, {format(high, form)}]"


def plural(count: int, noun: str) -> str:
    """Return "1 question", or "8 questions"."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def mean_over(count: int, noun: str) -> str:
    """Return "mean ± standard error over 8 runs"; for one: "1 run, no standard error"."""
    return f"mean ± standard error over {count} {noun}s" if count > 1 else f"1 {noun}, no standard error"


def standard_error(values: Floats) -> float:
    """Return the standard error of the mean of n values, NaN for fewer than two."""
    return float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else math.nan


def resampled_means(
    values: Floats, strata: Sequence[NDArray[np.intp]] | None = None, *, resamples: int = 2000
) -> Floats:
    """Means of bootstrap samples, (resamples, k): the mean over the strata of the means of their resampled rows.

    The same values give the same samples.

    ``values`` have one row for each run (all that one user answered), resampled as a whole, (n, k); ``strata`` are the
    rows of each stratum, such as a regime; None: a single stratum.
    """
    groups = [np.arange(len(values))] if strata is None else strata
    rng = np.random.default_rng(0)
    total = np.zeros((resamples, values.shape[1]))
    for rows in groups:
        weights = rng.multinomial(len(rows), np.full(len(rows), 1.0 / len(rows)), size=resamples)
        total += weights @ values[rows] / len(rows)
    return total / len(groups)


def interval(
    values: ArrayLike, statistic: Callable[[Floats], Floats] | None = None, *, resamples: int = 2000
) -> tuple[float, float]:
    """95% percentile bootstrap interval of a statistic of the mean run.

    ``values`` are one value, or one row of values, for each run, (n,) or (n, k); ``statistic`` maps means (..., k) to
    finite numbers (...); None: the mean itself.

    Returns:
        (low, high); NaN for a single run.
    """
    rows = np.asarray(values, dtype=np.float64)
    if len(rows) < 2:
        return math.nan, math.nan
    means = resampled_means(rows.reshape(len(rows), -1), resamples=resamples)
    low, high = np.quantile(means if statistic is None else statistic(means), (0.025, 0.975))
    return float(low), float(high)


@dataclass(frozen=True, eq=False)
class PairedDifference:
    """Two arms compared on the runs that both have."""

    values: Floats  # first arm minus second arm in each run, (n,)

    @property
    def runs(self) -> int:
        """Number of runs, n."""
        return len(self.values)

    @property
    def mean(self) -> float:
        """Mean of the differences; NaN without runs."""
        return float(self.values.mean()) if self.runs else math.nan

    @property
    def error(self) -> float:
        """Standard error of the mean; NaN for a single run."""
        return standard_error(self.values)

    @property
    def clear(self) -> bool:
        """Whether the mean is more than two standard errors from 0."""
        return bool(np.isfinite(self.error) and abs(self.mean) > 2 * self.error)

    @functools.cached_property
    def interval(self) -> tuple[float, float]:
        """95% bootstrap interval of the mean; NaN for a single run."""
        return interval(self.values)

    @property
    def sign(self) -> int:
        """-1 or 1 where the interval excludes 0, else 0."""
        low, high = self.interval
        return -1 if high < 0 else int(low > 0)
