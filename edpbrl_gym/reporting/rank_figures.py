"""Figures of average ranks: on a line with the critical difference, and as a heat map by regime."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from edpbrl_gym.reporting.figures import new_figure, set_title
from edpbrl_gym.reporting.ranks import AverageRanks, groups

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["ArmLabel", "heat_figure", "ranks_figure"]


class ArmLabel(NamedTuple):
    """Label of an arm: its title, its colour, and whether it is bold."""

    title: str
    colour: str = "#000000"
    bold: bool = False


def ranks_figure(rankings: Sequence[AverageRanks], label_of: Callable[[str], ArmLabel]) -> Figure:
    """Draw average ranks on a line, a panel for each ranking; a bar joins arms that Nemenyi's test can't separate.

    The best are at the left; labels are below, those of the better half on the left side, the others on the right.

    Args:
        rankings: The rankings.
        label_of: Label of an arm by its name.
    """
    panels = []
    for ranking in rankings:
        bars = groups(ranking.ranks.tolist(), ranking.difference)
        panels.append((ranking, bars, 0.45 + 0.16 * len(bars) + 0.25 * -(-len(ranking.arms) // 2)))
    with new_figure(9.2, 0.75 * sum(height + 1.1 for *_, height in panels) + 0.4) as figure:
        axes = figure.subplots(len(panels), 1, squeeze=False, height_ratios=[height + 1.1 for *_, height in panels])[
            :, 0
        ]
        for axis, (ranking, bars, height) in zip(axes, panels, strict=True):
            _draw_ranks(axis, ranking, bars, height, label_of)
        set_title(
            figure, "Average rank, 1 is best; bars join arms closer than the critical difference (CD, Nemenyi, 5%)"
        )
    return figure


def _draw_ranks(
    axis: Any,
    ranking: AverageRanks,
    bars: Sequence[tuple[int, int]],
    height: float,
    label_of: Callable[[str], ArmLabel],
) -> None:
    count = len(ranking.arms)
    span = count - 1
    left, right = 1 - 0.42 * span, count + 0.42 * span
    axis.set_xlim(left, right)
    axis.set_ylim(-height, 1.1)
    axis.set_axis_off()
    axis.plot([1, count], [0, 0], color="#000000", linewidth=1.0)
    for tick in range(1, count + 1):
        if span <= 14 or tick in (1, count) or tick % 5 == 0:
            axis.plot([tick, tick], [0, 0.1], color="#000000", linewidth=0.8)
            axis.annotate(str(tick), (tick, 0.16), ha="center", va="bottom", fontsize=8)
    axis.plot([1, 1 + min(ranking.difference, span)], [0.72, 0.72], color="#000000", linewidth=1.6)
    axis.annotate(f"CD = {ranking.difference:.2f}", (1, 0.8), ha="left", va="bottom", fontsize=8)
    axis.annotate(f"{ranking.title} ({ranking.blocks} blocks)", (count, 0.8), ha="right", va="bottom", fontsize=9.5)
    for level, (first, last) in enumerate(bars):
        y = -0.2 - 0.16 * level
        axis.plot(ranking.ranks[[first, last]] + np.array([-0.04, 0.04]), [y, y], color="#444444", linewidth=2.6)
    half = -(-count // 2)
    top = -0.55 - 0.16 * len(bars)
    for place, arm in enumerate(ranking.arms):
        title, colour, bold = label_of(arm)
        on_left = place < half
        y = top - 0.25 * (place if on_left else count - 1 - place)
        rank = float(ranking.ranks[place])
        end = 1 - 0.06 * span if on_left else count + 0.06 * span
        axis.plot([rank, rank, end], [0, y, y], color=colour, linewidth=0.8)
        text = f"{title}  {rank:.1f}" if on_left else f"{rank:.1f}  {title}"
        axis.annotate(
            text, (end, y), xytext=(-4 if on_left else 4, 0), textcoords="offset points", va="center",
            ha="right" if on_left else "left", fontsize=8, color=colour,
            fontweight="bold" if bold else "normal",
        )  # fmt: skip


def heat_figure(rankings: Sequence[tuple[str, AverageRanks]], label_of: Callable[[str], ArmLabel]) -> Figure:
    """Draw average ranks as heat maps: a panel for each ranking, arms as rows, regimes as columns.

    Args:
        rankings: Title and ranking; rows are in the order of the first.
        label_of: Label of an arm by its name.
    """
    order = list(dict.fromkeys(arm for _, ranking in rankings for arm in ranking.arms))
    columns = len(rankings[0][1].by_regime) + 1
    places = (1, len(rankings)) if columns <= 7 else (len(rankings), 1)  # side by side where there is room
    width, height = 2.6 + 0.62 * columns * places[1], (0.24 * len(order) + 1.2) * places[0] + 0.6
    with new_figure(width, height, grid=False) as figure:
        axes = figure.subplots(*places, squeeze=False, sharey=True).ravel()
        for axis, (title, ranking) in zip(axes, rankings, strict=True):
            values = np.full((len(order), len(ranking.by_regime) + 1), np.nan)
            for row, arm in enumerate(order):
                if arm in ranking.arms:
                    place = ranking.arms.index(arm)
                    values[row] = [ranking.ranks[place], *(ranks[place] for ranks in ranking.by_regime.values())]
            axis.imshow(values, cmap="viridis_r", vmin=1, vmax=len(ranking.arms), aspect="auto")
            for (row, column), value in np.ndenumerate(values):
                if np.isfinite(value):
                    dark = value > 0.55 * len(ranking.arms)
                    axis.annotate(
                        f"{value:.1f}", (column, row), ha="center", va="center", fontsize=7,
                        color="#ffffff" if dark else "#000000",
                    )  # fmt: skip
            names = ["all regimes", *ranking.by_regime]
            axis.set_xticks(range(len(names)), names, rotation=55, ha="right", rotation_mode="anchor", fontsize=7.5)
            axis.set_yticks(range(len(order)), [label_of(arm).title for arm in order], fontsize=8)
            axis.axvline(0.5, color="#ffffff", linewidth=2)
            axis.set_title(title)
            for side in axis.spines.values():
                side.set_visible(False)
        set_title(figure, "Average rank by regime, 1 is best; empty: not in all blocks")
    return figure
