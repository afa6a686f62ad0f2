"""The planner comparison: average ranks, and where others are better than the adaptive planner."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from benchmarks.planners.arms import get_arm
from benchmarks.planners.ranks import AverageRanks, average_ranks, block_values, rank_blocks
from benchmarks.planners.regimes import REGIMES, get_regime
from benchmarks.planners.scoring import KNOWLEDGE, METRICS
from edpbrl_gym.reporting.report import Section
from edpbrl_gym.reporting.statistics import PairedDifference, bracket
from edpbrl_gym.reporting.tables import TextTable

ESTIMATES: dict[str, str] = {"common": "by the vocabulary prior", "own": "by the estimate of its own"}
"""By which estimate arms are ranked: one for all, which isolates the choice of the questions, or that of each arm."""

_WHAT: dict[str, tuple[str, ...]] = {"knowledge": KNOWLEDGE, "regret": ("regret",)}

ADAPTIVE_FOR: dict[str, str] = {"knowledge": "adaptive", "regret": "adaptive-best"}
"""The adaptive planner by what it is after."""


def scored_by(table: Any, estimate: str) -> Any:
    """The rows of a results table with the estimate of ``ESTIMATES``."""
    if estimate == "common":
        return table[table["estimator"] == "vocabulary"]
    own = table["arm"].map({name: get_arm(name).estimator for name in table["arm"].unique()})
    return table[table["estimator"] == own]


def sections(table: Any) -> list[Section]:
    """All that a run says of who is better than whom; nothing where no two arms share a block."""
    regimes = [name for name in REGIMES if name in set(table["regime"])]
    external = table["arm"].map(lambda name: get_arm(name).family == "external")
    shared = set(table.loc[external, "regime"])
    pairs = [name for name in regimes if name in shared and get_regime(name).num_options == 2]
    found: list[Section] = [ranking_table(table, regimes, what, estimate) for what in _WHAT for estimate in ESTIMATES]
    found += [ranking_table(table, regimes, what, "common", last=True) for what in _WHAT]
    # other packages run in regimes with K = 2 only, and some in few of them
    found += [ranking_table(table, pairs, what, "common") for what in _WHAT if pairs]
    found += [ranking_table(table, [one], what, "common") for what in _WHAT for one in pairs if len(pairs) > 1]
    return [*found, losses_table(table, regimes)]


def ranking_table(table: Any, regimes: Sequence[str], what: str, estimate: str, *, last: bool = False) -> TextTable:
    """Average ranks with intervals and the difference to the first; no rows where no two arms share a block."""
    where = get_regime(regimes[0]).title if len(regimes) == 1 else f"{len(regimes)} regimes"
    title = f"Average ranks: {what}, {ESTIMATES[estimate]}, {where}{', after the last question' if last else ''}"
    value: Any = "last" if last else "area"
    blocks = block_values(scored_by(table, estimate), metrics=_WHAT[what], regimes=regimes, value=value)
    header = ("arm", "what it is", "average rank", "behind the first")
    if blocks is None:
        return TextTable(title, header, [])
    ranked = average_ranks(blocks)
    rows = []
    for place, arm in enumerate(ranked.arms):
        behind = "first"
        if place:
            ends = bracket(ranked.behind_low[place], ranked.behind_high[place], ".2f")
            behind = f"+{ranked.ranks[place] - ranked.ranks[0]:.2f} {ends}{' (tied)' if arm in ranked.tied else ''}"
        rank = f"{ranked.ranks[place]:.2f} {bracket(ranked.low[place], ranked.high[place], '.2f')}"
        rows.append((arm, get_arm(arm).title, rank, behind))
    return TextTable(title, header, rows, _note(ranked, what))


def _note(ranked: AverageRanks, what: str) -> str:
    missing = f" Not ranked, for want of a block: {', '.join(ranked.left_out)}." if ranked.left_out else ""
    intervals = "In brackets: 95% bootstrap intervals over blocks; tied: that of the difference includes 0."
    if not ranked.known:
        intervals = "No intervals, and nobody can be called tied: a regime has a single block."
    return (
        f"By {', '.join(METRICS[name] for name in _WHAT[what])}; {ranked.blocks} blocks, {len(ranked.arms)} arms. "
        f"{intervals} Friedman's test that all are alike: p = {ranked.friedman:.2g}. Critical difference (Nemenyi, "
        f"5%): {ranked.difference:.2f}.{missing}"
    )


def losses(table: Any, regimes: Sequence[str]) -> list[tuple[str, str, str, PairedDifference]]:
    """Arms whose mean rank in a regime is better than that of the adaptive planner, by the common estimate.

    Returns:
        (regime, what, arm, rank of the adaptive planner minus that of the arm over the blocks), ordered by regime, then
        the largest difference first. Ranks are those among all arms.
    """
    behind = []
    for what, adaptive in ADAPTIVE_FOR.items():
        for regime in regimes:
            blocks = block_values(scored_by(table, "common"), metrics=_WHAT[what], regimes=[regime])
            if blocks is None or adaptive not in blocks.arms:
                continue
            ranks = np.mean([rank_blocks(values) for values in blocks.values.values()], axis=0)
            own = ranks[:, blocks.arms.index(adaptive)]
            for place, arm in enumerate(blocks.arms):
                difference = PairedDifference(own - ranks[:, place])
                if difference.mean > 0 and get_arm(arm).family != "adaptive":
                    behind.append((regime, what, arm, difference))
    return sorted(behind, key=lambda one: (regimes.index(one[0]), one[1], -one[3].mean))


def losses_table(table: Any, regimes: Sequence[str]) -> TextTable:
    """Where the adaptive planner is not the best: a row for each regime and metric, with the arms that are better."""
    cells: dict[tuple[str, str], tuple[list[str], list[str]]] = {}
    for regime, what, arm, difference in losses(table, regimes):
        sure = difference.sign > 0
        text = f"{arm} {difference.mean:.1f}" + (f" {bracket(*difference.interval, '.2f')}" if sure else "")
        cells.setdefault((regime, what), ([], []))[0 if sure else 1].append(text)
    rows = [
        (get_regime(regime).title, what, ADAPTIVE_FOR[what], "; ".join(sure) or "-", "; ".join(others) or "-")
        for (regime, what), (sure, others) in cells.items()
    ]
    return TextTable(
        "Where other arms are better",
        ("regime", "what", "than", "better, interval excludes 0", "better, interval includes 0"),
        rows,
        "Arms whose average rank in a regime is better than that of the adaptive planner, by so many ranks, estimated "
        "by the vocabulary prior (mean over the checkpoints); 95% bootstrap intervals over the blocks of the regime, "
        "not corrected for the number of arms. A regime with one block has no interval: all of it stands on the right.",
    )
