"""Ranks of arms from result rows: the best, those tied with it, and intervals.

A block is a (regime, seed, user): all arms see the same items and the same user with the same draws. In a block an arm
has one value of each metric, the mean over the checkpoints (the area under its learning curve), and a rank among the
arms; ties share the mean of their ranks. Ranks are averaged over the blocks of a regime, then over regimes, and every
bootstrap resamples the blocks of each regime.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.stats import friedmanchisquare, rankdata, studentized_range

from edpbrl_gym._arrays import Floats
from edpbrl_gym.reporting.statistics import resampled_means


@dataclass(frozen=True, eq=False)
class Blocks:
    """One value of each metric, arm and block."""

    regimes: NDArray[np.str_]  # of each block, (b,); blocks of a regime stand together
    arms: list[str]  # with a value in all blocks
    left_out: list[str]  # the other arms
    values: dict[str, Floats]  # metric -> (b, k), lower is better


def block_values(
    table: Any, *, metrics: Sequence[str], regimes: Sequence[str], value: Literal["area", "last"] = "area"
) -> Blocks | None:
    """Return the values of a results table; None without two arms that have a block in common.

    All arms have values in all blocks, and every regime has a block. In an incomplete run, or one with fewer seeds of
    some arms, arms or seeds are dropped so that as many values as possible remain. "area" is the mean over the
    checkpoints at which the metric was measured.
    """
    order = list(regimes)
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
    present = np.logical_and.reduce([frame.notna().to_numpy() for frame in tables.values()])
    of_block = np.array([str(key[0]) for key in shared])
    complete, ranked = _complete(present, of_block)
    if ranked.sum() < 2:
        return None
    return Blocks(
        regimes=of_block[complete],
        arms=[name for name, chosen in zip(names, ranked, strict=True) if chosen],
        left_out=[name for name, chosen in zip(names, ranked, strict=True) if not chosen],
        values={name: frame.to_numpy(dtype=np.float64)[complete][:, ranked] for name, frame in tables.items()},
    )


def _complete(present: NDArray[np.bool_], regimes: NDArray[np.str_]) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Blocks and arms of the largest complete table, given which cells (b, k) have a value.

    Arms are added in the order of their numbers of blocks, as long as no regime is lost; of equally large tables the
    one with more arms counts.
    """
    blocks, arms = np.ones(len(present), dtype=np.bool_), np.zeros(present.shape[1], dtype=np.bool_)
    best, size = (blocks, arms), 0
    for place in np.argsort(-present.sum(axis=0), kind="stable"):
        with_it = blocks & present[:, place]
        if len(set(regimes[with_it].tolist())) < len(set(regimes.tolist())):
            continue
        blocks, arms = with_it, arms.copy()
        arms[place] = True
        if blocks.sum() * arms.sum() >= size and arms.sum() >= 2:
            best, size = (blocks, arms), int(blocks.sum() * arms.sum())
    return best


def rank_blocks(values: Floats) -> Floats:
    """Ranks within each block, (b, k): 1 for the lowest value; equal values share the mean of their ranks.

    Values that differ by rounding only (1e-12) are equal: two arms with the same questions must tie.
    """
    return np.asarray(rankdata(np.round(values, 12), axis=1), dtype=np.float64)


def critical_difference(arms: int, blocks: float, *, alpha: float = 0.05) -> float:
    """Nemenyi's critical difference of average ranks of k arms in N blocks (Demsar 2006, section 3.2.2).

    q_alpha sqrt(k (k + 1) / (6 N)), q_alpha the studentized range of k groups and infinitely many degrees of freedom,
    divided by sqrt(2).
    """
    quantile = float(studentized_range.ppf(1.0 - alpha, arms, np.inf) / np.sqrt(2.0))
    return quantile * float(np.sqrt(arms * (arms + 1) / (6.0 * blocks)))


@dataclass(frozen=True, eq=False)
class AverageRanks:
    """Average ranks of arms, best first."""

    arms: list[str]
    ranks: Floats  # (k,)
    low: Floats  # lower ends of their 95% bootstrap intervals, (k,); NaN if a regime has a single block
    high: Floats
    behind_low: Floats  # lower ends of the 95% intervals of the rank minus that of the first, (k,)
    behind_high: Floats
    blocks: int
    friedman: float  # p-value of Friedman's test that all arms are equal; NaN with < 3 arms or 2 blocks
    difference: float  # Nemenyi's critical difference
    left_out: list[str]  # arms that lack a block

    @property
    def tied(self) -> list[str]:
        """The first and those whose interval of the rank difference to it includes 0; only the first without any."""
        return [arm for place, arm in enumerate(self.arms) if place == 0 or self.behind_low[place] <= 0]

    @property
    def known(self) -> bool:
        """Whether there are intervals; a regime with a single block gives none, so no tie can be established."""
        return not bool(np.isnan(self.behind_low).any())


def average_ranks(blocks: Blocks) -> AverageRanks:
    """Rank arms by the mean of their ranks in the metrics of the blocks.

    The critical difference is that of one rank per block; a mean over several metrics' ranks varies less, so it is too
    wide rather than too narrow. Regimes have equal weight: with different numbers of blocks n_r in R regimes, N is
    R^2 / sum 1 / n_r.
    """
    ranks = np.stack([rank_blocks(values) for values in blocks.values.values()]).mean(axis=0)
    members = [np.flatnonzero(blocks.regimes == name) for name in dict.fromkeys(blocks.regimes.tolist())]
    overall = np.stack([ranks[places].mean(axis=0) for places in members]).mean(axis=0)
    order = np.argsort(overall, kind="stable")
    count, arms = ranks.shape
    friedman = float("nan")
    if arms >= 3 and count >= 2 and np.ptp(ranks, axis=1).any():
        friedman = float(friedmanchisquare(*ranks.T).pvalue)
    ends, behind = np.full((2, arms), np.nan), np.full((2, arms), np.nan)
    if all(len(places) > 1 for places in members):
        samples = resampled_means(ranks[:, order], members)
        ends = np.quantile(samples, (0.025, 0.975), axis=0)
        behind = np.quantile(samples - samples[:, :1], (0.025, 0.975), axis=0)
    effective = len(members) ** 2 / sum(1.0 / len(places) for places in members)
    return AverageRanks(
        [blocks.arms[place] for place in order],
        overall[order],
        ends[0],
        ends[1],
        behind[0],
        behind[1],
        count,
        friedman,
        critical_difference(arms, effective),
        blocks.left_out,
    )
