"""Numbers behind the report: means over people at each number of answers, calibration, answers needed, differences."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from edpbrl_gym._arrays import Floats
from edpbrl_gym.experiments.people.asking import RULES
from edpbrl_gym.experiments.people.estimators import ALONE, ESTIMATORS
from edpbrl_gym.reporting.statistics import PairedDifference, episodes_to_reach, interval

__all__ = ["BINS", "MEASURES", "Bins", "Replays", "Series", "calibration_error"]

BINS = 10
"""Bins of confidence of equal width."""

MEASURES = {
    "hit": "hit rate",
    "log_probability": "log-likelihood per answer",
    "log_probability_at_estimate": "log-likelihood per answer at the estimate",
}


class Series(NamedTuple):
    """An estimator and who asks."""

    estimator: str
    rule: str


@dataclass(frozen=True, eq=False)
class Bins:
    """Held-out answers in bins of confidence.

    Attributes:
        people: For each person the shares of answers, their confidence and their hits in each bin, (n, 3 * BINS): the
            mean over people gives those of all.
    """

    people: Floats

    @property
    def error(self) -> float:
        """Expected calibration error: the mean over answers of |hit rate - confidence| of their bins."""
        return float(calibration_error(self.people.mean(axis=0)))

    @property
    def interval(self) -> tuple[float, float]:
        """95% bootstrap interval of ``error``, over people."""
        return interval(self.people, calibration_error)

    @property
    def points(self) -> tuple[Floats, Floats, Floats]:
        """Share of answers, mean confidence and hit rate of the bins that are not empty."""
        shares, confidence, hits = self.people.mean(axis=0).reshape(3, BINS)
        full = shares > 0
        return shares[full], confidence[full] / shares[full], hits[full] / shares[full]


def calibration_error(means: Floats) -> Floats:
    """Expected calibration error from means as of ``Bins.people``, (..., 3 * BINS) -> (...)."""
    parts = means.reshape(*means.shape[:-1], 3, BINS)
    return np.asarray(np.abs(parts[..., 1, :] - parts[..., 2, :]).sum(axis=-1))


class Replays:
    """The rows of a replay, as the report reads them.

    Args:
        table: All rows (pandas DataFrame).
    """

    def __init__(self, table: Any) -> None:
        self.table = table
        self.data = list(dict.fromkeys(table["data"]))

    def series(self, data: str) -> list[Series]:
        """What there is of a data set, in the order of estimators and rules."""
        pairs = self._of(data)[["estimator", "rule"]].drop_duplicates()
        there = {Series(*pair) for pair in pairs.itertuples(index=False)}
        return [Series(one, rule) for one in ESTIMATORS for rule in RULES if Series(one, rule) in there]

    def answers(self, data: str) -> list[int]:
        """Numbers of answers at which people were judged."""
        return sorted(int(count) for count in self._of(data)["answers"].unique())

    def common(self, data: str) -> list[int]:
        """Those that at least half of the people have reached; curves are read there."""
        counts = self._of(data).groupby("answers")["person"].nunique()
        return sorted(int(count) for count in counts.index[counts * 2 >= counts.max()])

    @functools.lru_cache(maxsize=512)  # noqa: B019  # a report lives as long as its rows
    def people(self, data: str, series: Series, measure: str) -> Any:
        """Mean of a measure over the held-out answers of each person: a frame of people by answers, NaN beyond."""
        rows = self._rows(data, series)
        return rows.pivot_table(index="person", columns="answers", values=measure, aggfunc="mean")

    def values(self, data: str, series: Series, measure: str, answers: int) -> Floats:
        """The same for the people who have so many answers, (n,); empty where there are none."""
        frame = self.people(data, series, measure)
        return frame[answers].dropna().to_numpy() if answers in frame else np.empty(0)

    def complete(self, data: str, series: Series, measure: str) -> Any:
        """People with all of ``common``: a frame of people by answers without gaps."""
        frame = self.people(data, series, measure)
        return frame[[count for count in self.common(data) if count in frame]].dropna()

    def difference(self, data: str, measure: str, answers: int, first: Series, second: Series) -> PairedDifference:
        """First minus second series, person by person."""
        one, two = (self.people(data, series, measure) for series in (first, second))
        if answers not in one or answers not in two:
            return PairedDifference(np.empty(0))
        return PairedDifference((one[answers] - two[answers]).dropna().to_numpy())

    def needed(self, data: str, series: Series, measure: str, level: float) -> tuple[float, tuple[float, float]]:
        """Answers after which the mean curve stays at or above a level, and its 95% interval over people.

        Linear between the numbers of answers; infinity where the last one is below the level.
        """
        frame = self.complete(data, series, measure)
        places, values = frame.columns.to_numpy(dtype=float), frame.to_numpy()
        beyond = 10.0 * max(places[-1], 1.0)  # quantiles need finite numbers

        def count(means: Floats) -> Floats:
            found = episodes_to_reach(-means, places, np.full(means.shape[:-1], -level), float("nan"))
            return np.where(np.isfinite(found), found, beyond)

        low, high = interval(values, count)
        middle = float(count(values.mean(axis=0)))
        low, high, middle = (float("inf") if one >= beyond else one for one in (low, high, middle))
        return middle, (low, high)

    def best_alone(self, data: str, measure: str) -> Series | None:
        """The estimator without other people, asked at random, with the highest value after the last answer."""
        last = self.common(data)[-1]
        alone = [one for one in self.series(data) if one.estimator in ALONE and one.rule == "random"]
        return max(alone, key=lambda one: self.values(data, one, measure, last).mean(), default=None)

    def bins(self, data: str, series: Series, answers: int | None) -> Bins | None:
        """Calibration after so many answers (None: all numbers of ``common`` together); None where there is none."""
        rows = self._rows(data, series)
        rows = rows[rows["answers"].isin(self.common(data) if answers is None else [answers])]
        if not len(rows):
            return None
        number = np.minimum((rows["confidence"].to_numpy() * BINS).astype(int), BINS - 1)
        codes, names = rows["person"].factorize()
        weight = 1.0 / np.bincount(codes)[codes]
        people = np.zeros((len(names), 3, BINS))
        for part, column in enumerate((np.ones(len(rows)), rows["confidence"].to_numpy(), rows["hit"].to_numpy())):
            np.add.at(people, (codes, part, number), weight * column)
        return Bins(people.reshape(len(names), -1))

    def seconds(self, data: str, series: Series) -> tuple[float, float, float]:
        """Mean seconds of an estimate after at least one answer, of a question, and of what is learnt from others."""
        rows = self._rows(data, series)
        after = rows[rows["answers"] > 0]
        after = after if len(after) else rows
        once = rows.drop_duplicates("fold")["seconds_population"].mean()
        return float(after["seconds_fit"].mean()), float(after["seconds_question"].mean()), float(once)

    @functools.lru_cache(maxsize=64)  # noqa: B019
    def _of(self, data: str) -> Any:
        return self.table[self.table["data"] == data]

    @functools.lru_cache(maxsize=256)  # noqa: B019
    def _rows(self, data: str, series: Series) -> Any:
        rows = self._of(data)
        return rows[(rows["estimator"] == series.estimator) & (rows["rule"] == series.rule)]
