"""How many questions will do: questions needed, who is better than Random, what each piece buys; with intervals.

A run is a (seed, user) of a regime. All arms of a run see the same user with the same draws, so they are compared on
the runs that both have, and every bootstrap resamples whole runs. A series is an arm with one of its estimators:
"adaptive" with the planner's own estimate, "random/ridge100" with another one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from edpbrl_gym._arrays import Floats
from edpbrl_gym.experiments.bench.arms import get_arm
from edpbrl_gym.experiments.bench.measuring import METRICS
from edpbrl_gym.experiments.bench.settings import REGIMES
from edpbrl_gym.reporting.statistics import PairedDifference, episodes_to_reach, interval

__all__ = [
    "ADAPTIVE",
    "BASELINE",
    "CAP",
    "Comparison",
    "PAPER",
    "PIECES",
    "Curves",
    "Needed",
    "Piece",
    "RunIndex",
    "compare",
    "curves_of",
    "needed",
    "piece",
    "with_series",
]

PAPER, BASELINE, ADAPTIVE = "random/ridge100", "random/vocabulary", "adaptive"

# what is added, the series without it, the series with it
PIECES: tuple[tuple[str, str, str], ...] = (
    ("lambda from the answers instead of 1, Random asks", "random/ridge1", "random/ridge-fit"),
    ("embedding prior instead of the ridge, Random asks", "random/ridge-fit", "random/global"),
    ("prior's scale from the answers, Random asks", "random/fixed", "random/global"),
    ("prior around the estimate, Random asks", "random/global", BASELINE),
    ("ED-PBRL (V, lambda 100) instead of Random, ridge 100", PAPER, "ed-pbrl/ridge100"),
    ("V-design (lambda 1) instead of Random", BASELINE, "v-design/vocabulary"),
    ("D-design (lambda 1) instead of Random", BASELINE, "d-design/vocabulary"),
    ("exact objective, K different policies", "d-design/vocabulary", "exact-design/vocabulary"),
    ("realised tuples instead of independent draws", "d-design/vocabulary", "tuples/vocabulary"),
    ("adaptive instead of Random", BASELINE, ADAPTIVE),
    ("posterior draws instead of the estimate alone, adaptive", "adaptive-theta-hat", ADAPTIVE),
    ("expected information instead of mutual information, adaptive", "adaptive-mutual", ADAPTIVE),
    ("prior around the estimate, adaptive", "adaptive,prior=global", ADAPTIVE),
    ("prior's scale from the answers, adaptive", "adaptive,prior=fixed", "adaptive,prior=global"),
    ("best and worst instead of the best, Random asks", BASELINE, "random+best-worst/vocabulary"),
    ("full rankings instead of the best, Random asks", BASELINE, "random+ranking/vocabulary"),
    ("full rankings instead of the best, adaptive", ADAPTIVE, "adaptive+ranking"),
)

_NO_TIME = 1e-3  # episodes
CAP = 1e6  # stands for "not within the questions asked" where quantiles are taken; infinity has none


def with_series(table: Any) -> Any:
    """The rows of a results table about prompt MDPs with their ``series``; of a planner, its own estimate only."""
    arms = {name: get_arm(name) for name in table["arm"].unique()}
    prompts = table["regime"].map(lambda name: not REGIMES[name].items)
    own = table["estimator"] == "planner"
    designs = table["arm"].map(lambda name: arms[name].design is not None)
    rows = table[prompts & (own | designs)]
    series = rows["arm"].where(rows["estimator"] == "planner", rows["arm"] + "/" + rows["estimator"])
    return rows.assign(series=series)


@dataclass(frozen=True, eq=False)
class Curves:
    """One metric of several series in a regime, on the runs that all of them have.

    Attributes:
        episodes: The T, (t,).
        values: Name of a series -> (runs, t).
        runs: The (seed, user) of each row.
        start: Value that every series has before the first question; NaN where there is no such value.
    """

    episodes: Floats
    values: dict[str, Floats]
    runs: list[tuple[int, str]]
    start: float


class RunIndex:
    """The rows of a results table by regime and series, sorted once.

    Args:
        table: Results (pandas DataFrame), from ``with_series``.
    """

    def __init__(self, table: Any) -> None:
        self.episodes = sorted({int(value) for value in table["episodes"]})
        self._cells: dict[tuple[str, str], dict[tuple[int, str], dict[str, Floats]]] = {}
        places = {value: number for number, value in enumerate(self.episodes)}
        for (regime, series, seed, user), rows in table.groupby(["regime", "series", "seed", "user"]):
            columns = [places[int(value)] for value in rows["episodes"]]
            values = {}
            for metric in METRICS:
                values[metric] = np.full(len(self.episodes), np.nan)
                values[metric][columns] = rows[metric].to_numpy(dtype=np.float64)
            self._cells.setdefault((str(regime), str(series)), {})[int(seed), str(user)] = values

    def runs(self, regime: str, series: str) -> dict[tuple[int, str], dict[str, Floats]]:
        """(seed, user) -> metric -> value at each of ``episodes``, NaN where it was not measured."""
        return self._cells.get((regime, series), {})


def curves_of(index: RunIndex, regime: str, series: Sequence[str], metric: str) -> Curves | None:
    """Return the metric's values of the series on their common runs; None where they have none.

    Args:
        index: Of the results.
        regime: Name.
        series: Names.
        metric: One of ``METRICS``; T at which it was not measured in all of the runs are left out.
    """
    cells = {name: index.runs(regime, name) for name in series}
    common = sorted(set.intersection(*(set(cell) for cell in cells.values())))
    if not common:
        return None
    values = {name: np.array([cell[run][metric] for run in common]) for name, cell in cells.items()}
    measured = np.logical_and.reduce([np.isfinite(value).all(axis=0) for value in values.values()])
    if not measured.any():
        return None
    starts = {"cosine_error": 1.0, "preference_error": 0.5}
    if metric == "choice_error":
        starts[metric] = 1.0 - 1.0 / REGIMES[regime].num_options
    return Curves(
        episodes=np.array(index.episodes, dtype=np.float64)[measured],
        values={name: value[:, measured] for name, value in values.items()},
        runs=common,
        start=starts.get(metric, float("nan")),
    )


@dataclass(frozen=True)
class Needed:
    """Episodes that a series needs for the error that a reference has after all of its episodes.

    Attributes:
        regime: Name.
        series: Name.
        reference: Series that sets the level.
        metric: Name.
        level: The error to be reached: the reference's mean at the largest T.
        episodes: T of the mean curve of the series; infinity where it does not get there.
        low: Lower end of the 95% interval.
        high: Upper end; infinity where it is beyond the questions asked.
        of: The reference's episodes.
        runs: Number of runs.
    """

    regime: str
    series: str
    reference: str
    metric: str
    level: float
    episodes: float
    low: float
    high: float
    of: float
    runs: int

    @property
    def share(self) -> float:
        """Of the reference's episodes."""
        return self.episodes / self.of


def needed(index: RunIndex, regime: str, series: str, reference: str, metric: str) -> Needed | None:
    """Return what a series needs for the reference's last error; None where the two have no run in common."""
    curves = curves_of(index, regime, (series, reference), metric)
    if curves is None:
        return None
    runs = np.column_stack([curves.values[series], curves.values[reference][:, -1]])

    def reach(means: Floats) -> Floats:
        return np.minimum(episodes_to_reach(means[..., :-1], curves.episodes, means[..., -1], curves.start), CAP)

    mean = runs.mean(axis=0)
    low, high = (_uncapped(end) for end in interval(runs, reach))
    return Needed(
        regime, series, reference, metric, float(mean[-1]), _uncapped(float(reach(mean))), low, high,
        float(curves.episodes[-1]), len(runs),
    )  # fmt: skip


def _uncapped(value: float) -> float:
    return float("inf") if value >= CAP / 2 else value


@dataclass(frozen=True, eq=False)
class Comparison:
    """A series against a baseline at one T.

    Attributes:
        regime: Name.
        series: Name.
        baseline: Name.
        metric: Name.
        episodes: T.
        difference: Of the errors, series - baseline, over the runs that both have; below 0 the series is better.
    """

    regime: str
    series: str
    baseline: str
    metric: str
    episodes: int
    difference: PairedDifference

    @property
    def outcome(self) -> str:
        """The "win" or "loss" of the series where the interval excludes 0, else "tie"."""
        return {-1: "win", 0: "tie", 1: "loss"}[self.difference.sign]


def compare(index: RunIndex, regime: str, series: str, baseline: str, metric: str, episodes: int) -> Comparison | None:
    """Compare a series with a baseline at T episodes; None where they have no run in common, or no such T."""
    curves = curves_of(index, regime, (series, baseline), metric)
    if curves is None or episodes not in curves.episodes:
        return None
    column = int(np.flatnonzero(curves.episodes == episodes)[0])
    gaps = curves.values[series][:, column] - curves.values[baseline][:, column]
    return Comparison(regime, series, baseline, metric, episodes, PairedDifference(gaps))


@dataclass(frozen=True)
class Piece:
    """What one piece buys: how many times fewer questions the series with it needs than the series without.

    Attributes:
        title: The piece.
        without: Series without it.
        added: Series with it.
        regime: Name.
        factor: T_without / T_with for the same error, the larger of the two last errors; below 1 the piece costs.
        low: Lower end of the 95% interval.
        high: Upper end.
        runs: Number of runs.
    """

    title: str
    without: str
    added: str
    regime: str
    factor: float
    low: float
    high: float
    runs: int


def piece(
    index: RunIndex, regime: str, title: str, without: str, added: str, metric: str = "cosine_error"
) -> Piece | None:
    """Return what a piece buys in a regime; None where its two series have no run in common.

    Both series reach the larger of their two last errors: the better one after fewer episodes, the other at the last T.
    """
    curves = curves_of(index, regime, (without, added), metric)
    if curves is None:
        return None
    runs = np.concatenate([curves.values[without], curves.values[added]], axis=1)

    def factor(means: Floats) -> Floats:
        both = np.split(means, 2, axis=-1)
        level = np.maximum(both[0][..., -1], both[1][..., -1])
        slow, fast = (episodes_to_reach(mean, curves.episodes, level, curves.start) for mean in both)
        # an error worse than knowing nothing needs no question: neither 0 nor a ratio with it means anything
        return np.clip(np.maximum(slow, _NO_TIME) / np.maximum(fast, _NO_TIME), 1.0 / CAP, CAP)

    low, high = interval(runs, factor)
    return Piece(title, without, added, regime, float(factor(runs.mean(axis=0))), low, high, len(runs))
