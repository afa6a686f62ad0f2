"""From rows to answers: questions needed, who is better than Random, what each piece buys; with bootstrap intervals.

A run is a (seed, sentence) of a regime. All arms of a run see the same user with the same draws, so arms are compared
on the runs that both have, and every bootstrap resamples whole runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edpbrl_gym.experiments.kit.statistics import PairedDifference, episodes_to_reach, interval
from edpbrl_gym.experiments.query_bench.settings import REGIMES

__all__ = [
    "BASELINE",
    "CAP",
    "Comparison",
    "METRICS",
    "PIECES",
    "Curves",
    "Needed",
    "Piece",
    "RunIndex",
    "compare",
    "curves_of",
    "needed",
    "piece",
]

Floats = NDArray[np.float64]

PAPER, BASELINE = "random+ridge100", "random+ours"

# lower is better in all of them
METRICS: dict[str, str] = {
    "cosine_error": "cosine error",
    "preference_error": "preference error",
    "choice_error": "held-out choice error",
    "prompt_regret": "regret of the best prompt",
}

# what is added, the arm without it, the arm with it
PIECES: tuple[tuple[str, str, str], ...] = (
    ("lambda from the answers instead of 1, Random asks", "random+ridge1", "random+ridge-fit"),
    ("embedding prior instead of the ridge, Random asks", "random+ridge-fit", "random+global"),
    ("prior's scale from the answers, Random asks", "random+fixed", "random+global"),
    ("prior around the estimate, Random asks", "random+global", "random+ours"),
    ("the paper's V-design (lambda 100) instead of Random, ridge 100", "random+ridge100", "static-V100+ridge100"),
    ("V-design (lambda 1) instead of Random", "random+ours", "static-V+ours"),
    ("D-design (lambda 1) instead of Random", "random+ours", "static-D+ours"),
    ("exact objective, K different policies", "static-D+ours", "exact+ours"),
    ("realised tuples instead of independent draws", "static-D+ours", "tuples+ours"),
    ("adaptive instead of Random", "random+ours", "adaptive"),
    ("posterior draws instead of the estimate alone, adaptive", "adaptive-theta-hat", "adaptive"),
    ("expected information instead of mutual information, adaptive", "adaptive-mutual", "adaptive"),
    ("prior around the estimate, adaptive", "adaptive-global", "adaptive"),
    ("prior's scale from the answers, adaptive", "adaptive-fixed-scale", "adaptive-global"),
    ("embedding prior instead of ridge 1, adaptive", "adaptive-ridge1", "adaptive-fixed-scale"),
    ("best and worst instead of the best, Random asks", "random+ours", "random+ours+best-worst"),
    ("full rankings instead of the best, Random asks", "random+ours", "random+ours+ranking"),
    ("full rankings instead of the best, adaptive", "adaptive", "adaptive+ranking"),
)

_NO_TIME = 1e-3  # episodes
CAP = 1e6  # stands for "not within the questions asked" where quantiles are taken; infinity has none


@dataclass(frozen=True, eq=False)
class Curves:
    """One metric of several arms in a regime, on the runs that all of them have.

    Attributes:
        episodes: The T, (t,).
        values: Name of an arm -> (runs, t).
        runs: The (seed, sentence) of each row.
        start: Value that every arm has before the first question; NaN where there is no such value.
    """

    episodes: Floats
    values: dict[str, Floats]
    runs: list[tuple[int, str]]
    start: float


class RunIndex:
    """The rows of a results table by regime and arm, sorted once.

    Args:
        table: Results (pandas DataFrame).
    """

    def __init__(self, table: Any) -> None:
        self.episodes = sorted({int(value) for value in table["episodes"]})
        self._cells: dict[tuple[str, str], dict[tuple[int, str], dict[str, Floats]]] = {}
        places = {value: number for number, value in enumerate(self.episodes)}
        for (regime, arm, seed, sentence), rows in table.groupby(["regime", "arm", "seed", "sentence"]):
            columns = [places[int(value)] for value in rows["episodes"]]
            values = {}
            for metric in METRICS:
                values[metric] = np.full(len(self.episodes), np.nan)
                values[metric][columns] = rows[metric].to_numpy(dtype=np.float64)
            self._cells.setdefault((str(regime), str(arm)), {})[int(seed), str(sentence)] = values

    def runs(self, regime: str, arm: str) -> dict[tuple[int, str], dict[str, Floats]]:
        """(seed, sentence) -> metric -> value at each of ``episodes``, NaN where it was not measured."""
        return self._cells.get((regime, arm), {})


def curves_of(index: RunIndex, regime: str, arms: Sequence[str], metric: str) -> Curves | None:
    """Return the metric's values of the arms on their common runs; None where they have none.

    Args:
        index: Of the results.
        regime: Name.
        arms: Names.
        metric: One of ``METRICS``; T at which it was not measured in all of the runs are left out.
    """
    cells = {arm: index.runs(regime, arm) for arm in arms}
    common = sorted(set.intersection(*(set(cell) for cell in cells.values())))
    if not common:
        return None
    values = {arm: np.array([cell[run][metric] for run in common]) for arm, cell in cells.items()}
    measured = np.logical_and.reduce([np.isfinite(value).all(axis=0) for value in values.values()])
    if not measured.any():
        return None
    starts = {"cosine_error": 1.0, "preference_error": 0.5}
    if metric == "choice_error":
        starts[metric] = 1.0 - 1.0 / REGIMES[regime].num_options
    return Curves(
        episodes=np.array(index.episodes, dtype=np.float64)[measured],
        values={arm: value[:, measured] for arm, value in values.items()},
        runs=common,
        start=starts.get(metric, float("nan")),
    )


@dataclass(frozen=True)
class Needed:
    """Episodes that an arm needs for the error that a reference has after all of its episodes.

    Attributes:
        regime: Name.
        arm: Name.
        reference: Arm that sets the level.
        metric: Name.
        level: The error to be reached: the reference's mean at the largest T.
        episodes: T of the arm's mean curve; infinity where it does not get there.
        low: Lower end of the 95% interval.
        high: Upper end; infinity where it is beyond the questions asked.
        of: The reference's episodes.
        runs: Number of runs.
    """

    regime: str
    arm: str
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


def needed(index: RunIndex, regime: str, arm: str, reference: str, metric: str) -> Needed | None:
    """Return what an arm needs for the reference's last error; None where the two have no run in common."""
    found = curves_of(index, regime, (arm, reference), metric)
    if found is None:
        return None
    runs = np.column_stack([found.values[arm], found.values[reference][:, -1]])

    def reach(means: Floats) -> Floats:
        return np.minimum(episodes_to_reach(means[..., :-1], found.episodes, means[..., -1], found.start), CAP)

    mean = runs.mean(axis=0)
    low, high = (_uncapped(end) for end in interval(runs, reach))
    return Needed(
        regime, arm, reference, metric, float(mean[-1]), _uncapped(float(reach(mean))), low, high,
        float(found.episodes[-1]), len(runs),
    )  # fmt: skip


def _uncapped(value: float) -> float:
    return float("inf") if value >= CAP / 2 else value


@dataclass(frozen=True, eq=False)
class Comparison:
    """An arm against a baseline at one T.

    Attributes:
        regime: Name.
        arm: Name.
        baseline: Name.
        metric: Name.
        episodes: T.
        difference: Of the errors, arm - baseline, over the runs that both have; below 0 the arm is better.
    """

    regime: str
    arm: str
    baseline: str
    metric: str
    episodes: int
    difference: PairedDifference

    @property
    def outcome(self) -> str:
        """The arm's "win" or "loss" where the interval excludes 0, else "tie"."""
        return {-1: "win", 0: "tie", 1: "loss"}[self.difference.sign]


def compare(index: RunIndex, regime: str, arm: str, baseline: str, metric: str, episodes: int) -> Comparison | None:
    """Compare an arm with a baseline at T episodes; None where they have no run in common, or no such T."""
    curves = curves_of(index, regime, (arm, baseline), metric)
    if curves is None or episodes not in curves.episodes:
        return None
    column = int(np.flatnonzero(curves.episodes == episodes)[0])
    gaps = curves.values[arm][:, column] - curves.values[baseline][:, column]
    return Comparison(regime, arm, baseline, metric, episodes, PairedDifference(gaps))


@dataclass(frozen=True)
class Piece:
    """What one piece buys: how many times fewer questions the arm with it needs than the arm without.

    Attributes:
        title: The piece.
        without: Arm without it.
        given: Arm with it.
        regime: Name.
        factor: T_without / T_with for the same error, the larger of the two last errors; below 1 the piece costs.
        low: Lower end of the 95% interval.
        high: Upper end.
        runs: Number of runs.
    """

    title: str
    without: str
    given: str
    regime: str
    factor: float
    low: float
    high: float
    runs: int


def piece(
    index: RunIndex, regime: str, title: str, without: str, given: str, metric: str = "cosine_error"
) -> Piece | None:
    """Return what a piece buys in a regime; None where its two arms have no run in common.

    Both arms reach the larger of their two last errors: the better one after fewer episodes, the other at the last T.
    """
    found = curves_of(index, regime, (without, given), metric)
    if found is None:
        return None
    runs = np.concatenate([found.values[without], found.values[given]], axis=1)

    def factor(means: Floats) -> Floats:
        both = np.split(means, 2, axis=-1)
        level = np.maximum(both[0][..., -1], both[1][..., -1])
        slow, fast = (episodes_to_reach(mean, found.episodes, level, found.start) for mean in both)
        # an error worse than knowing nothing needs no question: neither 0 nor a ratio with it means anything
        return np.clip(np.maximum(slow, _NO_TIME) / np.maximum(fast, _NO_TIME), 1.0 / CAP, CAP)

    low, high = interval(runs, factor)
    return Piece(title, without, given, regime, float(factor(runs.mean(axis=0))), low, high, len(runs))
