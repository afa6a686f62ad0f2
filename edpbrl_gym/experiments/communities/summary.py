"""Numbers behind the report: means over new people, differences, answers needed, with intervals.

New people are the same in all regimes of a vocabulary. Means are over people of the means over the regimes that a
person answered in, and intervals are bootstraps of the people, then of the regimes of each (`nested_interval`).
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from edpbrl_gym._arrays import Floats
from edpbrl_gym.experiments.bench.first_runs import Estimated
from edpbrl_gym.experiments.communities.settings import ESTIMATORS, KINDS, REGIMES, RULES
from edpbrl_gym.experiments.people.summary import Series
from edpbrl_gym.reporting.statistics import episodes_to_reach, nested_interval, nested_mean

__all__ = ["METRICS", "Communities", "worse"]

METRICS: dict[str, str] = {
    "preference_error": "preference error",
    "regret_ten": "regret of the ten best",
    "log_likelihood": "log-likelihood of held-out answers",
}
"""Column -> what it is; lower is better in the first two, higher in the last."""

_HIGHER = ("log_likelihood",)


def worse(metric: str, difference: Estimated) -> int:
    """1 where a difference is surely for the worse, -1 where surely for the better, else 0."""
    return -difference.sign if metric in _HIGHER else difference.sign


class Communities:
    """The rows of a study, as the report reads them.

    Args:
        table: All rows (pandas DataFrame).
    """

    def __init__(self, table: Any) -> None:
        self.table = table
        self.regimes = [name for name in REGIMES if name in set(table["regime"])]
        self.kinds = [name for name in KINDS if name in set(table["kind"])]
        self.answers = sorted(int(count) for count in table["answers"].unique())
        pairs = table[["estimator", "rule"]].drop_duplicates().itertuples(index=False)
        there = {Series(*pair) for pair in pairs}
        self.series = [Series(one, rule) for one in ESTIMATORS for rule in RULES if Series(one, rule) in there]

    @functools.lru_cache(maxsize=2048)  # noqa: B019  # a report lives as long as its rows
    def frame(self, series: Series, kind: str, metric: str, regime: str | None = None) -> Any:
        """People in regimes by answers: a frame whose index is (words, person, regime).

        Args:
            series: Estimator and rule.
            kind: Of new people.
            metric: Name.
            regime: Name; None: all.
        """
        rows = self._of(series, kind)
        if regime is not None:
            rows = rows[rows["regime"] == regime]
        return rows.pivot_table(index=["words", "person", "regime"], columns="answers", values=metric)

    def mean(self, series: Series, kind: str, metric: str, answers: int) -> Estimated | None:
        """Mean and interval; None where there are no such rows."""
        frame = self.frame(series, kind, metric)
        return _estimated(frame[answers].dropna()) if answers in frame else None

    def difference(
        self, first: Series, second: Series, kind: str, metric: str, answers: int, regime: str | None = None
    ) -> Estimated | None:
        """First minus second series, person by person; None where they have no person in common."""
        one, two = (self.frame(series, kind, metric, regime) for series in (first, second))
        if answers not in one or answers not in two:
            return None
        gaps = (one[answers] - two[answers]).dropna()
        return _estimated(gaps) if len(gaps) else None

    def needed(self, series: Series, reference: Series, kind: str, metric: str, answers: int) -> Estimated | None:
        """Answers after which a series' mean is at the level that another one has after ``answers``, or better.

        Linear between the numbers of answers; infinity where the last one is still worse. None where the two have no
        person in common.
        """
        own, other = self.frame(series, kind, metric), self.frame(reference, kind, metric)
        if answers not in other:
            return None
        joined = own.assign(level=other[answers]).dropna()
        if not len(joined):
            return None
        places = np.array([count for count in own.columns], dtype=np.float64)
        sign = -1.0 if metric in _HIGHER else 1.0
        beyond = 10.0 * max(places[-1], 1.0)  # quantiles need finite numbers

        def reach(means: Floats) -> Floats:
            found = episodes_to_reach(sign * means[..., :-1], places, sign * means[..., -1], float("nan"))
            return np.where(np.isfinite(found), found, beyond)

        values, groups = joined.to_numpy(), _groups(joined)
        ends = float(reach(nested_mean(values, groups))), *nested_interval(values, groups, reach)
        return Estimated(*(float("inf") if end >= beyond else end for end in ends))

    def own_rule(self, estimator: str) -> Series | None:
        """The series of an estimator that doesn't ask at random, or else the random one; None where there is none."""
        return next((series for series in reversed(self.series) if series.estimator == estimator), None)

    def seconds(self, series: Series) -> tuple[float, float, float]:
        """Mean seconds of an estimate after at least one answer, of a question, and of what is learnt from others."""
        rows = self.table[(self.table["estimator"] == series.estimator) & (self.table["rule"] == series.rule)]
        after = rows[rows["answers"] > 0]
        once = rows.drop_duplicates("regime")["seconds_population"].mean()
        return float(after["seconds_fit"].mean()), float(after["seconds_question"].mean()), float(once)

    @functools.lru_cache(maxsize=256)  # noqa: B019
    def _of(self, series: Series, kind: str) -> Any:
        table = self.table
        chosen = (table["estimator"] == series.estimator) & (table["rule"] == series.rule) & (table["kind"] == kind)
        return table[chosen]


def _groups(frame: Any) -> list[tuple[str, int]]:
    """The person of each row."""
    return [(words, person) for words, person, _ in frame.index]


def _estimated(values: Any) -> Estimated:
    rows, groups = values.to_numpy()[:, None], _groups(values)
    return Estimated(float(nested_mean(rows, groups)[0]), *nested_interval(rows, groups))
