"""Figures of the race: learning curves, average ranks with the critical difference, ranks by regime."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from edpbrl_gym.experiments.figures import PALETTE, STYLE
from edpbrl_gym.experiments.race.contenders import get_contender
from edpbrl_gym.experiments.race.settings import get_regime
from edpbrl_gym.experiments.race.summary import METRICS, Ranking, groups

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["curves_figure", "heat_figure", "ranks_figure", "shown_arms"]

_STYLE: Any = {**STYLE, "axes.titlesize": 9.5}
_LOOKS: dict[str, tuple[str, Any, str]] = {
    "ours": (PALETTE[0], "-", "o"),
    "ours-best": (PALETTE[4], "-", "P"),
    "random": ("#000000", (0, (1, 1)), "X"),
    "paper-text": (PALETTE[1], "--", "s"),
    "paper-scripts": (PALETTE[1], ":", "D"),
}
_SPARE = ((PALETTE[2], "-.", "^"), (PALETTE[3], (0, (5, 1)), "v"), (PALETTE[5], (0, (3, 1, 1, 1)), "d"))
_GREY = "#c4c4c4"
_FAMILY_COLOURS = {
    "ours": PALETTE[0],
    "paper": PALETTE[1],
    "literature": "#000000",
    "packages": PALETTE[3],
    "baseline": "#777777",
}


def shown_arms(ranked: Ranking) -> list[str]:
    """Contenders that curves show in colour: ours, the paper's, Random, and the three best of the others."""
    best = [arm for arm in ranked.arms if arm not in _LOOKS][: len(_SPARE)]
    return [arm for arm in ranked.arms if arm in _LOOKS or arm in best]


def curves_figure(table: Any, ranked: Ranking, metric: str, *, score: str, subtitle: str) -> Figure:
    """Draw a metric against the questions answered, a panel for each regime.

    Args:
        table: Results.
        ranked: Tells which contenders are shown in colour; all others are grey.
        metric: One of ``METRICS``.
        score: "ours" or "own".
        subtitle: The setting in one line.
    """
    import matplotlib
    from matplotlib.figure import Figure

    regimes = list(ranked.by_regime)
    columns = min(3 if len(regimes) <= 9 else 4, len(regimes))
    rows = -(-len(regimes) // columns)
    shown = shown_arms(ranked)
    spare = iter(_SPARE)
    style = {arm: _LOOKS[arm] if arm in _LOOKS else next(spare) for arm in shown}
    own = table[(table["score"] == score)].dropna(subset=[metric])
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(max(3.3 * columns, 6.6), 2.7 * rows + 1.0), layout="constrained")
        axes = figure.subplots(rows, columns, squeeze=False)
        for axis, regime in zip(axes.ravel(), regimes, strict=False):
            cell = own[own["regime"] == regime]
            others = [arm for arm in dict.fromkeys(cell["arm"]) if arm not in shown]
            for arm in (*others, *reversed(shown)):
                _curve(axis, cell[cell["arm"] == arm], metric, style.get(arm), get_contender(arm).title)
            axis.set_title(get_regime(regime).title)
            axis.set_ylim(bottom=0)
            _question_axis(axis, cell)
        for axis in axes.ravel()[len(regimes) :]:
            axis.set_axis_off()
        for axis in axes.ravel()[: len(regimes)][-columns:]:
            axis.set_xlabel("questions answered (log)")
        for axis in axes[:, 0]:
            axis.set_ylabel(METRICS[metric])
        _legend(figure, axes, [get_contender(arm).title for arm in shown])
        figure.suptitle(f"Mean and standard error over blocks; grey: all others\n{subtitle}", fontsize=9)
    return figure


def _curve(axis: Any, rows: Any, metric: str, look: tuple[str, Any, str] | None, title: str) -> None:
    if not len(rows):
        return
    cells = rows.groupby("questions")[metric]
    x, mean = np.array(sorted(cells.groups)), cells.mean().to_numpy()
    if look is None:
        axis.plot(x, mean, color=_GREY, linewidth=0.8, label="others", zorder=1)
        return
    colour, line, marker = look
    error = cells.sem().to_numpy(dtype=float)  # NaN, of one value, draws no band
    axis.fill_between(x, mean - error, mean + error, color=colour, alpha=0.15, linewidth=0, zorder=2)
    axis.plot(
        x, mean, color=colour, linestyle=line, marker=marker, markersize=3.6, linewidth=1.4, label=title, zorder=3
    )


def _question_axis(axis: Any, cell: Any) -> None:
    axis.set_xscale("log")
    ticks = sorted({int(value) for value in cell["questions"]})
    axis.set_xticks(ticks, [str(tick) for tick in ticks])
    axis.minorticks_off()


def _legend(figure: Any, axes: Any, titles: Sequence[str]) -> None:
    drawn = {
        label: handle
        for axis in np.ravel(axes)
        for handle, label in zip(*axis.get_legend_handles_labels(), strict=True)
    }
    labels = [title for title in (*titles, "others") if title in drawn]
    figure.legend([drawn[label] for label in labels], labels, loc="outside lower center", ncols=min(len(labels), 4))


def ranks_figure(rankings: Sequence[Ranking]) -> Figure:
    """Draw average ranks on a line, a panel for each ranking; a bar joins contenders that Nemenyi's test leaves alike.

    The best are at the left; labels stand below, the better half on the left side, the other on the right.
    """
    import matplotlib
    from matplotlib.figure import Figure

    panels = []
    for ranked in rankings:
        joined = groups(ranked.ranks.tolist(), ranked.difference)
        panels.append((ranked, joined, 0.45 + 0.16 * len(joined) + 0.25 * -(-len(ranked.arms) // 2)))
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(9.2, 0.75 * sum(height + 1.1 for *_, height in panels) + 0.4), layout="constrained")
        axes = figure.subplots(len(panels), 1, squeeze=False, height_ratios=[height + 1.1 for *_, height in panels])[
            :, 0
        ]
        for axis, (ranked, joined, height) in zip(axes, panels, strict=True):
            _rank_panel(axis, ranked, joined, height)
        figure.suptitle(
            "Average rank, 1 is best; bars join contenders closer than the critical difference (CD, Nemenyi, 5%)",
            fontsize=9,
        )
    return figure


def _rank_panel(axis: Any, ranked: Ranking, joined: Sequence[tuple[int, int]], height: float) -> None:
    count = len(ranked.arms)
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
    axis.plot([1, 1 + min(ranked.difference, span)], [0.72, 0.72], color="#000000", linewidth=1.6)
    axis.annotate(f"CD = {ranked.difference:.2f}", (1, 0.8), ha="left", va="bottom", fontsize=8)
    axis.annotate(f"{ranked.title} ({ranked.blocks} blocks)", (count, 0.8), ha="right", va="bottom", fontsize=9.5)
    for level, (first, last) in enumerate(joined):
        y = -0.2 - 0.16 * level
        axis.plot(ranked.ranks[[first, last]] + np.array([-0.04, 0.04]), [y, y], color="#444444", linewidth=2.6)
    half = -(-count // 2)
    top = -0.55 - 0.16 * len(joined)
    for place, arm in enumerate(ranked.arms):
        contender = get_contender(arm)
        colour = _FAMILY_COLOURS[contender.family]
        on_left = place < half
        y = top - 0.25 * (place if on_left else count - 1 - place)
        rank = float(ranked.ranks[place])
        end = 1 - 0.06 * span if on_left else count + 0.06 * span
        axis.plot([rank, rank, end], [0, y, y], color=colour, linewidth=0.8)
        text = f"{contender.title}  {rank:.1f}" if on_left else f"{rank:.1f}  {contender.title}"
        axis.annotate(
            text, (end, y), xytext=(-4 if on_left else 4, 0), textcoords="offset points", va="center",
            ha="right" if on_left else "left", fontsize=8, color=colour,
            fontweight="bold" if contender.family == "ours" else "normal",
        )  # fmt: skip


def heat_figure(rankings: Sequence[tuple[str, Ranking]]) -> Figure:
    """Draw average ranks as tables of colours: a panel for each ranking, contenders as rows, regimes as columns.

    Args:
        rankings: Title and ranking; rows are in the order of the first.
    """
    import matplotlib
    from matplotlib.figure import Figure

    order = list(dict.fromkeys(arm for _, ranked in rankings for arm in ranked.arms))
    columns = len(rankings[0][1].by_regime) + 1
    places = (1, len(rankings)) if columns <= 7 else (len(rankings), 1)  # side by side where there is room
    with matplotlib.rc_context({**_STYLE, "axes.grid": False}):
        width, height = 2.6 + 0.62 * columns * places[1], (0.24 * len(order) + 1.2) * places[0] + 0.6
        figure = Figure(figsize=(width, height), layout="constrained")
        axes = figure.subplots(*places, squeeze=False, sharey=True).ravel()
        for axis, (title, ranked) in zip(axes, rankings, strict=True):
            values = np.full((len(order), len(ranked.by_regime) + 1), np.nan)
            for row, arm in enumerate(order):
                if arm in ranked.arms:
                    place = ranked.arms.index(arm)
                    values[row] = [ranked.ranks[place], *(ranks[place] for ranks in ranked.by_regime.values())]
            axis.imshow(values, cmap="viridis_r", vmin=1, vmax=len(ranked.arms), aspect="auto")
            for (row, column), value in np.ndenumerate(values):
                if np.isfinite(value):
                    dark = value > 0.55 * len(ranked.arms)
                    axis.annotate(
                        f"{value:.1f}", (column, row), ha="center", va="center", fontsize=7,
                        color="#ffffff" if dark else "#000000",
                    )  # fmt: skip
            names = ["all regimes", *ranked.by_regime]
            axis.set_xticks(range(len(names)), names, rotation=55, ha="right", rotation_mode="anchor", fontsize=7.5)
            axis.set_yticks(range(len(order)), [get_contender(arm).title for arm in order], fontsize=8)
            axis.axvline(0.5, color="#ffffff", linewidth=2)
            axis.set_title(title)
            for side in axis.spines.values():
                side.set_visible(False)
        figure.suptitle("Average rank by regime, 1 is best; empty: not in all blocks", fontsize=9)
    return figure
