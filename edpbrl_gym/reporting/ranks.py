"""Ranks of arms from result rows: the best, those tied with it, and intervals.

A block is a (regime, seed, user): all arms see the same items and the same user with the same draws. In a block an arm
has one value of each metric, the mean over the checkpoints (the area under its learning curve), and a rank among the
arms; ties share the mean of their ranks. Ranks are averaged over the blocks of a regime, then over regimes, and every
bootstrap resamples the blocks of each regime.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from edpbrl_gym._arrays import Floats
from edpbrl_gym.reporting.statistics import resampled_means

__all__ = [
    "AverageRanks",
    "Blocks",
    "Value",
    "average_ranks",
    "block_values",
    "critical_difference",
    "groups",
    "nemenyi_quantile",
    "rank_blocks",
]

Value = Literal["area", "last"]


@dataclass(frozen=True, eq=False)
class Blocks:
    """One value of each metric, arm and block.

    Attributes:
        regimes: Name of each block's regime, (b,); blocks of a regime stand together.
        keys: (regime, seed, user) of each block.
        arms: Names of the arms with a value in all blocks.
        left_out: Names of the other arms.
        values: Metric -> (b, k), lower is better.
    """

    regimes: NDArray[np.str_]
    keys: list[tuple[str, int, str]]
    arms: list[str]
    left_out: list[str]
    values: dict[str, Floats]


def block_values(
    table: Any, *, metrics: Sequence[str], regimes: Sequence[str] | None = None, value: Value = "area"
) -> Blocks | None:
    """Return the values of a results table; None without two arms that have a block in common.

    All arms have values in all blocks, and every regime has a block. In an incomplete run, or one with fewer seeds of
    some arms, arms or seeds are dropped so that as many values as possible remain.

    Args:
        table: Results (pandas DataFrame) with regime, seed, user, arm, episodes and the metrics.
        metrics: Names.
        regimes: Names, in the order in which they are reported; None takes all.
        value: "area", the mean over the checkpoints at which the metric was measured, or "last".
    """
    order = list(dict.fromkeys(table["regime"])) if regimes is None else list(regimes)
    rows = table[table["regime"].isin(order)]
    if not len(rows):
        return None
    frames = {}
    for metric in metrics:
        measured = rows.dropna(subset=[metric]).sort_values("episodes")
        cells = measured.groupby(["regime", "seed", "user", "arm"])[metric]
        frames[metric] = (cells.mean() if value == "area" else cells.last()).unstack("arm")
    shared = frames[metrics[0]].index
    for frame in frames.values():
        shared = shared.union(frame.index)
    shared = shared[np.argsort([order.index(key[0]) for key in shared], kind="stable")]
    names = [str(arm) for arm in dict.fromkeys(rows["arm"])]
    tables = {name: frame.reindex(index=shared, columns=names) for name, frame in frames.items()}
    present_cells = np.logical_and.reduce([frame.notna().to_numpy() for frame in tables.values()])
    complete, present = _complete(present_cells, np.array([str(key[0]) for key in shared]))
    if present.sum() < 2:
        return None
    keys = [(str(regime), int(seed), str(user)) for regime, seed, user in shared[complete]]
    return Blocks(
        regimes=np.array([key[0] for key in keys]),
        keys=keys,
        arms=[name for name, is_present in zip(names, present, strict=True) if is_present],
        left_out=[name for name, is_present in zip(names, present, strict=True) if not is_present],
        values={name: frame.to_numpy(dtype=np.float64)[complete][:, present] for name, frame in tables.items()},
    )


def _complete(present: NDArray[np.bool_], regimes: NDArray[np.str_]) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Blocks and arms of the largest complete table, given which cells (b, k) have a value.

    Arms are added in the order of their numbers of blocks, as long as no regime is lost; of equally large tables the
    one with more arms counts.
    """
    order = np.argsort(-present.sum(axis=0), kind="stable")
    blocks, arms = np.ones(len(present), dtype=np.bool_), np.zeros(present.shape[1], dtype=np.bool_)
    best, size = (blocks, arms), 0
    num_regimes = len(set(regimes.tolist()))
    for place in order:
        with_it = blocks & present[:, place]
        if len(set(regimes[with_it].tolist())) < num_regimes:
            continue
        blocks = with_it
        arms = arms.copy()
        arms[place] = True
        if blocks.sum() * arms.sum() >= size and arms.sum() >= 2:
            best, size = (blocks, arms), int(blocks.sum() * arms.sum())
    return best


def rank_blocks(values: Floats) -> Floats:
    """Ranks within each block, (b, k): 1 for the lowest value; equal values share the mean of their ranks.

    Values that differ by rounding only (1e-12) are equal: two arms with the same questions must tie.
    """
    from scipy.stats import rankdata

    return np.asarray(rankdata(np.round(values, 12), axis=1), dtype=np.float64)


def critical_difference(arms: int, blocks: float, *, alpha: float = 0.05) -> float:
    """Nemenyi's critical difference of average ranks (Demsar 2006, section 3.2.2).

    Args:
        arms: k >= 2.
        blocks: N.
        alpha: Level.

    Returns:
        q_alpha sqrt(k (k + 1) / (6 N)), q_alpha the studentized range of k groups and infinitely many degrees of
        freedom, divided by sqrt(2).
    """
    return nemenyi_quantile(arms, alpha=alpha) * float(np.sqrt(arms * (arms + 1) / (6.0 * blocks)))


def nemenyi_quantile(arms: int, *, alpha: float = 0.05) -> float:
    """q_alpha of Nemenyi's test, the studentized range divided by sqrt(2)."""
    from scipy.stats import studentized_range

    return float(studentized_range.ppf(1.0 - alpha, arms, np.inf) / np.sqrt(2.0))


def groups(ranks: Sequence[float], difference: float) -> list[tuple[int, int]]:
    """Maximal groups within the critical difference, as (first, last) indices of ascending ranks, of at least two."""
    result: list[tuple[int, int]] = []
    for first, rank in enumerate(ranks):
        last = max(place for place, higher in enumerate(ranks) if higher - rank <= difference)
        if last > first and (not result or last > result[-1][1]):
            result.append((first, last))
    return result


@dataclass(frozen=True, eq=False)
class AverageRanks:
    """Average ranks of arms, best first.

    Attributes:
        title: Title of the ranking.
        arms: Names, best first.
        ranks: Average ranks, (k,).
        low: Lower ends of their 95% bootstrap intervals, (k,); NaN if a regime has a single block.
        high: Upper ends.
        behind_low: Lower ends of the 95% intervals of the rank minus that of the first, (k,).
        behind_high: Upper ends.
        by_regime: Regime -> average ranks there, (k,).
        blocks: Number of blocks.
        friedman: p-value of Friedman's test that all arms are equal; NaN with fewer than three arms or two blocks.
        difference: Nemenyi's critical difference.
        left_out: Arms that lack a block.
    """

    title: str
    arms: list[str]
    ranks: Floats
    low: Floats
    high: Floats
    behind_low: Floats
    behind_high: Floats
    by_regime: dict[str, Floats]
    blocks: int
    friedman: float
    difference: float
    left_out: list[str] = field(default_factory=list)

    @property
    def tied(self) -> list[str]:
        """Names of the first and of those whose interval of the rank difference to it includes 0.

        Only the first without intervals: see ``known``.
        """
        return [arm for place, arm in enumerate(self.arms) if place == 0 or self.behind_low[place] <= 0]

    @property
    def known(self) -> bool:
        """Whether there are intervals; a regime with a single block gives none, so no tie can be established."""
        return not bool(np.isnan(self.behind_low).any())

    def place(self, arm: str) -> int | None:
        """Rank position of an arm, 1 for the first; None if it is not ranked."""
        return self.arms.index(arm) + 1 if arm in self.arms else None


def average_ranks(title: str, blocks: Blocks) -> AverageRanks:
    """Rank arms by the mean of their ranks in the metrics of the blocks.

    The critical difference is that of one rank per block; a mean over several metrics' ranks varies less, so it is too
    wide rather than too narrow. Regimes have equal weight: with different numbers of blocks n_r in R regimes, N is
    R^2 / sum 1 / n_r.

    Args:
        title: Title of the ranking.
        blocks: Values of the arms.
    """
    from scipy.stats import friedmanchisquare

    of_metric = np.stack([rank_blocks(values) for values in blocks.values.values()])
    ranks = of_metric.mean(axis=0)
    names = list(dict.fromkeys(blocks.regimes.tolist()))
    members = [np.flatnonzero(blocks.regimes == name) for name in names]
    means = np.stack([ranks[places].mean(axis=0) for places in members])
    overall = means.mean(axis=0)
    order = np.argsort(overall, kind="stable")
    count, arms = ranks.shape
    friedman = float("nan")
    if arms >= 3 and count >= 2 and np.ptp(ranks, axis=1).any():
        friedman = float(friedmanchisquare(*ranks.T).pvalue)
    ends = np.full((2, arms), np.nan)
    behind = np.full((2, arms), np.nan)
    if all(len(places) > 1 for places in members):
        samples = resampled_means(ranks[:, order], members)
        ends = np.quantile(samples, (0.025, 0.975), axis=0)
        behind = np.quantile(samples - samples[:, :1], (0.025, 0.975), axis=0)
    effective = len(members) ** 2 / sum(1.0 / len(places) for places in members)
    return AverageRanks(
        title,
        [blocks.arms[place] for place in order],
        overall[order],
        ends[0],
        ends[1],
        behind[0],
        behind[1],
        {name: mean[order] for name, mean in zip(names, means, strict=True)},
        count,
        friedman,
        critical_difference(arms, effective),
        list(blocks.left_out),
    )
