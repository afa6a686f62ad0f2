"""First answers: the runs of a results table, curves, differences and answers needed, with intervals.

A run is a (user, seed) of a regime, a series an arm with one of its estimators. Means are over users of the means over
their seeds, and every interval is a bootstrap of the users, then of the seeds of each (`nested_interval`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from edpbrl_gym._arrays import Floats
from edpbrl_gym.experiments.bench.arms import get_arm
from edpbrl_gym.experiments.bench.first_metrics import FIRST_METRICS, POSTERIOR_METRICS
from edpbrl_gym.experiments.bench.settings import REGIMES
from edpbrl_gym.reporting.statistics import episodes_to_reach, nested_interval, nested_mean

__all__ = ["Estimated", "FirstRuns", "Series", "taps_of"]

_CAP = 1e6  # stands for "not within the answers given" where quantiles are taken
# what is measured before the first answer, where it is known
_START = {"preference_error": 0.5, "regret_ten": 1.0, "cosine_centred": 1.0}


@dataclass(frozen=True, order=True)
class Series:
    """Who asks in which regime, and how the taste is estimated.

    Attributes:
        regime: Name.
        arm: Name.
        estimator: Name.
    """

    regime: str
    arm: str
    estimator: str = "vocabulary"


@dataclass(frozen=True)
class Estimated:
    """A number with its 95% interval.

    Attributes:
        value: The number; infinity where a level is not reached.
        low: Lower end; NaN for a single user.
        high: Upper end.
    """

    value: float
    low: float
    high: float

    @property
    def sign(self) -> int:
        """-1 or 1 where the interval excludes 0, else 0."""
        return -1 if self.high < 0 else int(self.low > 0)


def taps_of(arm: str, num_options: int) -> int:
    """How often a person taps for one answer: once for the best, and so on."""
    answers = get_arm(arm).answers
    most = num_options - 1
    return {"best": 1, "best-worst": min(2, most), "partial": min(3, most), "ranking": most}[answers]


class FirstRuns:
    """The rows of a results table about first answers, by series.

    Args:
        table: Results (pandas DataFrame); rows of other regimes are left out.
    """

    def __init__(self, table: Any) -> None:
        names = [name for name in table["regime"].unique() if REGIMES[name].first]
        self.table = table[table["regime"].isin(names)]
        self.regimes = [name for name in REGIMES if name in names]
        self._cells: dict[tuple[Series, str], dict[tuple[str, int], dict[int, float]]] = {}
        self.metrics = [*FIRST_METRICS, *(name for name in POSTERIOR_METRICS if name in table)]
        columns = ["regime", "arm", "estimator", "user", "seed", "questions", *self.metrics]
        for row in self.table[columns].itertuples(index=False) if names else ():
            series = Series(row.regime, row.arm, row.estimator)
            for metric in self.metrics:
                value = float(getattr(row, metric))
                if np.isfinite(value):
                    cell = self._cells.setdefault((series, metric), {}).setdefault((row.user, int(row.seed)), {})
                    cell[int(row.questions)] = value

    @property
    def answers(self) -> list[int]:
        """Numbers of answers after which any series is judged."""
        return sorted({int(value) for value in self.table["questions"]})

    def series(self, regime: str) -> list[Series]:
        """The series of a regime: Random first, then in the order of names."""
        found = {series for series, _ in self._cells if series.regime == regime}
        return sorted(found, key=lambda one: (not one.arm.startswith("random"), one))

    def curve(self, series: Series, metric: str) -> dict[int, float]:
        """Answers -> mean, where all runs of the series have the metric."""
        keys, answers, values = self._common([series], metric)
        if not keys:
            return {}
        means = nested_mean(values[0], [user for user, _ in keys])
        return dict(zip(answers, means.tolist(), strict=True))

    def band(self, series: Series, metric: str) -> dict[int, tuple[float, float]]:
        """Answers -> interval of the mean."""
        keys, answers, values = self._common([series], metric)
        users = [user for user, _ in keys]
        return {count: nested_interval(values[0][:, place], users) for place, count in enumerate(answers)}

    def difference(self, pairs: Sequence[tuple[Series, Series]], metric: str, answers: int) -> Estimated | None:
        """First minus second series of each pair after some answers, averaged over the pairs.

        Args:
            pairs: Such as the same two arms in several regimes; runs that all of them have are taken.
            metric: Name.
            answers: How many.

        Returns:
            None where there is no such run.
        """
        keys, counts, values = self._common([one for pair in pairs for one in pair], metric)
        if not keys or answers not in counts:
            return None
        column = np.stack([rows[:, counts.index(answers)] for rows in values])
        gaps = (column[::2] - column[1::2]).mean(axis=0)
        users = [user for user, _ in keys]
        return Estimated(float(nested_mean(gaps[:, None], users)[0]), *nested_interval(gaps, users))

    def needed(self, series: Series, reference: Series, metric: str, answers: int) -> Estimated | None:
        """Answers from which on the mean curve of a series is at or below a level, by linear interpolation.

        Args:
            series: Whose curve; before the first answer it knows nothing.
            reference: Sets the level: its mean after ``answers``.
            metric: Name.
            answers: Of the reference.

        Returns:
            None where the two have no run in common; infinity where the level is not reached.
        """
        own, level = self._cells.get((series, metric), {}), self._cells.get((reference, metric), {})
        keys = sorted(key for key in own.keys() & level.keys() if answers in level[key])
        counts = sorted(set.intersection(*(set(own[key]) for key in keys))) if keys else []
        if not counts:
            return None
        rows = np.array([[*(own[key][count] for count in counts), level[key][answers]] for key in keys])
        users = [user for user, _ in keys]

        def reach(means: Floats) -> Floats:
            return np.minimum(episodes_to_reach(means[..., :-1], counts, means[..., -1], _START[metric]), _CAP)

        ends = nested_interval(rows, users, reach)
        return Estimated(*(_uncapped(end) for end in (float(reach(nested_mean(rows, users))), *ends)))

    def _common(self, chosen: Sequence[Series], metric: str) -> tuple[list[tuple[str, int]], list[int], list[Floats]]:
        """The runs and the numbers of answers that all of the series have, and the values of each, (runs, answers)."""
        cells = [self._cells.get((series, metric), {}) for series in chosen]
        keys = sorted(set.intersection(*(set(cell) for cell in cells)))
        if not keys:
            return [], [], []
        counts = sorted(set.intersection(*(set(cell[key]) for cell in cells for key in keys)))
        values = [np.array([[cell[key][count] for count in counts] for key in keys]) for cell in cells]
        return keys, counts, values


def _uncapped(value: float) -> float:
    return float("inf") if value >= _CAP / 2 else value
