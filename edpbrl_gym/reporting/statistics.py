"""Means with errors and bootstrap intervals, paired differences, and their texts; undefined values are named."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from edpbrl_gym._arrays import Floats

__all__ = [
    "UNDEFINED",
    "PairedDifference",
    "bracket",
    "episodes_to_reach",
    "interval",
    "mean_over",
    "nested_interval",
    "nested_mean",
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

    Args:
        values: One row for each run (all that one user answered), resampled as a whole, (n, k).
        strata: Rows of each stratum, such as a regime; None: a single stratum.
        resamples: Number of resamples.
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

    Args:
        values: One value, or one row of values, for each run, (n,) or (n, k).
        statistic: Maps means (..., k) to finite numbers (...); None: the mean itself.
        resamples: Number of resamples.

    Returns:
        (low, high); NaN for a single run.
    """
    rows = np.asarray(values, dtype=np.float64)
    if len(rows) < 2:
        return math.nan, math.nan
    means = resampled_means(rows.reshape(len(rows), -1), resamples=resamples)
    low, high = np.quantile(means if statistic is None else statistic(means), (0.025, 0.975))
    return float(low), float(high)


def nested_mean(values: ArrayLike, groups: Sequence[Hashable]) -> Floats:
    """The mean over groups of the means of their rows, (k,).

    Args:
        values: One row of values for each run, (n, k).
        groups: The group of each run, such as its user, n of them.
    """
    rows = np.asarray(values, dtype=np.float64)
    return np.asarray(np.mean([rows[places].mean(axis=0) for places in _places(groups)], axis=0))


def nested_interval(
    values: ArrayLike,
    groups: Sequence[Hashable],
    statistic: Callable[[Floats], Floats] | None = None,
    *,
    resamples: int = 2000,
) -> tuple[float, float]:
    """95% percentile interval of a statistic of ``nested_mean``, by a bootstrap of the groups, then of their rows.

    A sample draws as many groups as there are, with replacement, and for each of them as many of its rows. Runs of one
    group, such as the seeds of a user, resemble each other: resampling the runs alone makes intervals too narrow.

    Args:
        values: One value, or one row of values, for each run, (n,) or (n, k).
        groups: The group of each run, n of them.
        statistic: Maps means (..., k) to finite numbers (...); None: the mean itself.
        resamples: Number of resamples.

    Returns:
        (low, high); NaN for a single group.
    """
    rows = np.asarray(values, dtype=np.float64)
    rows = rows.reshape(len(rows), -1)
    places = _places(groups)
    count = len(places)
    if count < 2:
        return math.nan, math.nan
    rng = np.random.default_rng(0)
    drawn = rng.integers(count, size=(resamples, count))
    means = np.zeros((resamples, rows.shape[1]))
    for number, members in enumerate(places):
        size = len(members)
        times = (drawn == number).sum(axis=1)
        # a group drawn m times has m times as many rows drawn
        weights = rng.multinomial(size * times, np.full(size, 1.0 / size)) / size
        means += weights @ rows[members] / count
    low, high = np.quantile(means if statistic is None else statistic(means), (0.025, 0.975))
    return float(low), float(high)


def _places(groups: Sequence[Hashable]) -> list[list[int]]:
    """The rows of each group, in the order of its first one."""
    places: dict[Hashable, list[int]] = {}
    for number, group in enumerate(groups):
        places.setdefault(group, []).append(number)
    return list(places.values())


@dataclass(frozen=True, eq=False)
class PairedDifference:
    """Two arms compared on the runs that both have.

    Attributes:
        values: First arm minus second arm in each run, (n,).
    """

    values: Floats

    @property
    def runs(self) -> int:
        """Number of runs, n."""
        return len(self.values)

    @property
    def below(self) -> int:
        """Runs in which the first arm is lower."""
        return int((self.values < 0).sum())

    @property
    def above(self) -> int:
        """Runs in which the first arm is higher."""
        return int((self.values > 0).sum())

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


def episodes_to_reach(curve: ArrayLike, episodes: ArrayLike, level: ArrayLike, start: float) -> Floats:
    """Return the T from which on a curve stays at or below a level, by linear interpolation between the T measured.

    Args:
        curve: Errors at each T, (..., t).
        episodes: The T, (t,), increasing.
        level: The error to be reached, (...).
        start: Error at T = 0; NaN: unknown, and a curve that is below the level from the first T on gets that T.

    Returns:
        T, (...); infinity where the last error is above the level.
    """
    values, places = np.asarray(curve, dtype=np.float64), np.asarray(episodes, dtype=np.float64)
    levels = np.asarray(level, dtype=np.float64)
    if np.isfinite(start):
        values = np.concatenate([np.full((*values.shape[:-1], 1), start), values], axis=-1)
        places = np.concatenate([[0.0], places])
    above = values > levels[..., None]
    last = np.where(above.any(axis=-1), values.shape[-1] - 1 - np.argmax(above[..., ::-1], axis=-1), -1)
    before = np.clip(last, 0, values.shape[-1] - 2)
    high = np.take_along_axis(values, before[..., None], axis=-1)[..., 0]
    low = np.take_along_axis(values, before[..., None] + 1, axis=-1)[..., 0]
    drop = np.where(high > low, high - low, 1.0)
    crossing = places[before] + (high - levels) / drop * (places[before + 1] - places[before])
    crossing = np.where(last < 0, places[0], crossing)
    return np.where(last == values.shape[-1] - 1, np.inf, crossing)
