"""Curves of a results table: means over runs, differences, and answers needed, with 95% bootstrap intervals.

A series is who asks and how the taste is estimated, a run what is resampled: runs alone (`interval`), or groups of
runs, such as users, and then the runs of each (`nested_interval`). Series are compared on the runs that all have.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from edpbrl_gym._arrays import Floats
from edpbrl_gym.reporting.statistics import interval

_CAP = 1e6  # stands for "not within the answers given" where quantiles are taken; infinity has none

Key = tuple[str, ...]


@dataclass(frozen=True)
class Estimated:
    """A number with its 95% interval."""

    value: float  # infinity where a level is not reached
    low: float  # NaN for a single run or group
    high: float

    @property
    def sign(self) -> int:
        """-1 or 1 where the interval excludes 0, else 0."""
        return -1 if self.high < 0 else int(self.low > 0)


@dataclass(frozen=True, eq=False)
class Shared:
    """What several series have in common."""

    counts: list[int]  # numbers of answers that all runs of all of them have
    values: list[Floats]  # of each series, (runs, counts)
    groups: list[Hashable] | None  # the group of each run; None: runs have no groups

    def estimated(self, rows: Floats, statistic: Callable[[Floats], Floats] | None = None) -> Estimated:
        """A statistic of the mean of rows, (runs, k), one for each run; None: the mean, k is 1."""
        if self.groups is None:
            mean, ends = rows.mean(axis=0), interval(rows, statistic)
        else:
            mean, ends = nested_mean(rows, self.groups), nested_interval(rows, self.groups, statistic)
        value = float(mean[0] if statistic is None else statistic(mean))
        return Estimated(*(math.inf if end >= _CAP / 2 else end for end in (value, *ends)))


class Curves:
    """A metric against answers, by series.

    Args:
        table: Results (pandas DataFrame).
        series: Columns whose values name a series.
        runs: Columns whose values name a run of it.
        groups: How many of ``runs``, the first ones, name a group; None: runs have no groups.
        count: Column of the numbers of answers.
    """

    def __init__(self, table: Any, series: Sequence[str], runs: Sequence[str], groups: int | None, count: str) -> None:
        self.table, self.runs, self.groups, self.count = table, list(runs), groups, count
        self._rows = dict(list(table.groupby(list(series), sort=False))) if len(table) else {}

    @property
    def series(self) -> list[Key]:
        """The series in the order in which they first appear."""
        return list(self._rows)

    @property
    def counts(self) -> list[int]:
        """Numbers of answers after which any series is judged."""
        return sorted({int(value) for value in self.table[self.count]})

    @functools.lru_cache(maxsize=4096)  # noqa: B019  # a report lives as long as its rows
    def frame(self, series: Key, metric: str) -> Any:
        """Runs by numbers of answers: a DataFrame, NaN where there is no value; None: the series has none at all."""
        rows = self._rows.get(series)
        if rows is None or not rows[metric].notna().any():
            return None
        return rows.pivot_table(index=self.runs, columns=self.count, values=metric)

    def shared(self, series: Sequence[Key], metric: str) -> Shared | None:
        """The values of the series in their common runs; None where they have none."""
        import pandas

        frames = [self.frame(one, metric) for one in series]
        if any(frame is None for frame in frames):
            return None
        joined = pandas.concat(frames, axis=1, join="inner", keys=range(len(frames))).sort_index()
        full = joined.dropna(axis=1)
        counts = [count for count in self.counts if all((one, count) in full for one in range(len(frames)))]
        if not len(joined) or not counts:
            return None
        values = [full[one][counts].to_numpy(dtype=np.float64) for one in range(len(frames))]
        return Shared(counts, values, self._groups(joined.index))

    def _groups(self, index: Any) -> list[Hashable] | None:
        if self.groups is None:
            return None
        return [key[: self.groups] if isinstance(key, tuple) else key for key in index]

    def mean(self, series: Key, metric: str, count: int) -> Estimated | None:
        """The mean over the runs that have so many answers; None where there are none."""
        return self._estimated([self.frame(series, metric)], count, [1.0])

    @functools.lru_cache(maxsize=4096)  # noqa: B019
    def band(self, series: Key, metric: str) -> dict[int, Estimated]:
        """Answers -> mean."""
        means = {count: self.mean(series, metric, count) for count in self.counts}
        return {count: mean for count, mean in means.items() if mean is not None}

    def curve(self, series: Key, metric: str) -> dict[int, float]:
        """Answers -> mean, without its interval."""
        return {count: mean.value for count, mean in self.band(series, metric).items()}

    def difference(self, pairs: Sequence[tuple[Key, Key]], metric: str, count: int) -> Estimated | None:
        """First minus second series of each pair after some answers, averaged over the pairs.

        None where they have no run in common. Pairs are, for example, the same two arms in several regimes.
        """
        frames = [self.frame(one, metric) for pair in pairs for one in pair]
        return self._estimated(frames, count, [1.0, -1.0] * len(pairs))

    def _estimated(self, frames: Sequence[Any], count: int, signs: Sequence[float]) -> Estimated | None:
        import pandas

        if any(frame is None or count not in frame for frame in frames):
            return None
        rows = pandas.concat([frame[count] for frame in frames], axis=1, join="inner").dropna().sort_index()
        if not len(rows):
            return None
        values = rows.to_numpy() @ np.array(signs) / max(1, len(signs) // 2)
        return Shared([count], [], self._groups(rows.index)).estimated(values[:, None])

    def needed(
        self,
        series: Key,
        reference: Key,
        metric: str,
        count: int,
        *,
        start: float = math.nan,
        higher: bool = False,
    ) -> Estimated | None:
        """Answers from which on the mean curve of a series is at a level or better, by linear interpolation.

        Args:
            series: Whose curve.
            reference: Sets the level: its mean after ``count`` answers.
            metric: Name.
            count: Number of answers.
            start: Value before the first answer; NaN: unknown.
            higher: Whether a larger value is better.

        Returns:
            None where the two have no run in common; infinity where the level is not reached.
        """
        own, level = self.frame(series, metric), self.frame(reference, metric)
        if own is None or level is None or count not in level:
            return None
        joined = own.assign(level=level[count]).dropna(subset="level").dropna(axis=1)
        counts = [one for one in joined.columns if one != "level"]
        if not len(joined) or not counts:
            return None
        sign = -1.0 if higher else 1.0

        def reach(means: Floats) -> Floats:
            found = episodes_to_reach(sign * means[..., :-1], counts, sign * means[..., -1], start)
            return np.minimum(found, _CAP)

        rows = joined[[*counts, "level"]].to_numpy(dtype=np.float64)
        return Shared(counts, [], self._groups(joined.index)).estimated(rows, reach)


# -- statistics --------------------------------------------------------------------------------------------------------


def nested_mean(values: ArrayLike, groups: Sequence[Hashable]) -> Floats:
    """The mean over groups, (k,), of the means of their rows, (n, k)."""
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
        groups: The group of each run, n of them; NaN is returned for a single one.
        statistic: Maps means (..., k) to finite numbers (...); None: the mean itself.
        resamples: Number of resamples.
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


def episodes_to_reach(curve: ArrayLike, episodes: ArrayLike, level: ArrayLike, start: float) -> Floats:
    """Return the T, (...), from which on a curve stays at or below a level; infinity where the last error is above it.

    Args:
        curve: Errors at each T, (..., t), between which it is linear.
        episodes: The T, (t,), increasing.
        level: The error to be reached, (...).
        start: Error at T = 0; NaN: unknown, and a curve that is below the level from the first T on gets that T.
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
