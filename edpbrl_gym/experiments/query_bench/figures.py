"""Figures of the benchmark: learning curves, questions needed, what each piece buys."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from edpbrl_gym.experiments.figures import PALETTE, STYLE
from edpbrl_gym.experiments.query_bench.settings import REGIMES
from edpbrl_gym.experiments.query_bench.summary import (
    BASELINE,
    METRICS,
    PAPER,
    Needed,
    Piece,
    RunIndex,
    curves_of,
    interval,
    mean_of,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["curves_figure", "metrics_figure", "needed_figure", "pieces_figure"]

_STYLE: Any = {**STYLE, "axes.titlesize": 9.5}
# colour, line and marker of the arms that most figures show; others take what is left of the palette
_LOOKS: dict[str, tuple[str, Any, str]] = {
    "adaptive": (PALETTE[0], "-", "o"),
    BASELINE: (PALETTE[1], "--", "s"),
    PAPER: ("#777777", ":", "X"),
    "static-D+ours": (PALETTE[2], "-.", "^"),
    "tuples+ours": (PALETTE[3], (0, (5, 1)), "D"),
}
_SPARE: tuple[tuple[str, Any, str], ...] = (
    (PALETTE[4], (0, (3, 1, 1, 1)), "v"),
    (PALETTE[5], "-", "P"),
    (PALETTE[6], (0, (1, 1)), "*"),
)


def looks(arms: Sequence[str]) -> dict[str, tuple[str, Any, str]]:
    """Colour, line and marker of each arm, the same in all figures for the main ones."""
    others = [arm for arm in arms if arm not in _LOOKS]
    return {arm: _LOOKS[arm] for arm in arms if arm in _LOOKS} | {
        arm: _SPARE[number % len(_SPARE)] for number, arm in enumerate(others)
    }


def _curve(axis: Any, index: RunIndex, regime: str, arm: str, metric: str, look: tuple[str, Any, str]) -> Any:
    """Draw the mean and its 95% bootstrap interval; return the curves, None where there are none."""
    found = curves_of(index, regime, (arm,), metric)
    if found is None:
        return None
    values = found.values[arm]
    colour, line, marker = look
    mean = values.mean(axis=0)
    if len(values) > 1:
        ends = np.array([interval(mean_of(column), len(values), resamples=500) for column in values.T])
        axis.fill_between(found.episodes, ends[:, 0], ends[:, 1], color=colour, alpha=0.18, linewidth=0)
    axis.plot(
        found.episodes, mean, color=colour, linestyle=line, marker=marker, markersize=3.8, linewidth=1.5, label=arm
    )
    return found


def _episode_axis(axis: Any, episodes: Any) -> None:
    axis.set_xscale("log")
    ticks = [tick for tick in (1, 2, 5, 10, 20, 60) if episodes.min() <= tick <= episodes.max()]
    axis.set_xticks(ticks, [str(tick) for tick in ticks])
    axis.minorticks_off()


def _legend(figure: Any, axes: Any) -> None:
    drawn = {
        label: handle
        for axis in np.ravel(axes)
        for handle, label in zip(*axis.get_legend_handles_labels(), strict=True)
    }
    columns = max(1, int(figure.get_figwidth() / 1.8))
    figure.legend(list(drawn.values()), list(drawn), loc="outside lower center", ncols=min(len(drawn), columns))


def curves_figure(index: RunIndex, regimes: Sequence[str], arms: Sequence[str], *, subtitle: str) -> Figure:
    """Draw the cosine error against the episodes, a panel for each regime, with the two marks as horizontal lines."""
    import matplotlib
    from matplotlib.figure import Figure

    columns = min(2 if len(regimes) <= 4 else 3, len(regimes))
    rows = -(-len(regimes) // columns)
    style = looks(arms)
    with matplotlib.rc_context(_STYLE):
        width, height = (4.4, 3.0) if columns < 3 else (3.3, 2.5)
        figure = Figure(figsize=(max(width * columns + 0.4, 6.4), height * rows + 1.0), layout="constrained")
        axes = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
        for axis, regime in zip(axes.ravel(), regimes, strict=False):
            ends: dict[str, float] = {}
            for arm in arms:
                found = _curve(axis, index, regime, arm, "cosine_error", style[arm])
                if found is not None:
                    ends[arm] = float(found.values[arm].mean(axis=0)[-1])
                    _episode_axis(axis, found.episodes)
            for arm, name in ((PAPER, "(a)"), (BASELINE, "(b)")):
                if arm in ends:
                    axis.axhline(ends[arm], color=style[arm][0], linewidth=0.9, linestyle=(0, (1, 2)))
                    axis.annotate(
                        name, (0.01, ends[arm]), xycoords=("axes fraction", "data"), va="bottom", fontsize=8,
                        color=style[arm][0],
                    )  # fmt: skip
            axis.set_title(REGIMES[regime].title)
        for axis in axes.ravel()[len(regimes) :]:
            axis.set_axis_off()
        for axis in axes.ravel()[: len(regimes)][-columns:]:  # the lowest of each column
            axis.set_xlabel("episodes answered, T (log)")
            axis.tick_params(labelbottom=True)
        for axis in axes[:, 0]:
            axis.set_ylabel("cosine error")
            axis.set_ylim(bottom=0)
        _legend(figure, axes)
        figure.suptitle(f"Mean and 95% interval over runs; (a), (b): the errors to be reached\n{subtitle}", fontsize=9)
    return figure


def metrics_figure(index: RunIndex, regimes: Sequence[str], arms: Sequence[str], *, subtitle: str) -> Figure:
    """Draw all other metrics: a row for each, a column for each regime."""
    import matplotlib
    from matplotlib.figure import Figure

    metrics = [metric for metric in METRICS if metric != "cosine_error"]
    style = looks(arms)
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(max(2.7 * len(regimes) + 0.8, 6.4), 2.3 * len(metrics) + 1.0), layout="constrained")
        axes = figure.subplots(len(metrics), len(regimes), sharex=True, sharey="row", squeeze=False)
        for row, metric in enumerate(metrics):
            for column, regime in enumerate(regimes):
                for arm in arms:
                    found = _curve(axes[row, column], index, regime, arm, metric, style[arm])
                    if found is not None and metric != "prompt_regret":
                        _episode_axis(axes[row, column], found.episodes)
                if row == 0:
                    axes[row, column].set_title(REGIMES[regime].title)
            axes[row, 0].set_ylabel(METRICS[metric])
            axes[row, 0].set_ylim(bottom=0)
        for axis in axes[-1]:
            axis.set_xlabel("episodes T (log)")
        _legend(figure, axes)
        figure.suptitle(f"Mean and 95% interval over runs\n{subtitle}", fontsize=9)
    return figure


def needed_figure(
    marks: Sequence[tuple[str, Sequence[Needed]]], arms: Sequence[str], targets: Sequence[dict[str, float]]
) -> Figure:
    """Draw the share of the questions that each arm needs for a mark: a panel for each mark, regimes as rows.

    Args:
        marks: Title of a mark, and what the arms need for it.
        arms: Names, in the order of their colours.
        targets: For each mark: name of a regime -> share that the default agent aims at, drawn as a tick.
    """
    import matplotlib
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    style = looks(arms)
    regimes = [name for name in REGIMES if any(item.regime == name for _, found in marks for item in found)]
    spread = np.linspace(0.3, -0.3, len(arms)) if len(arms) > 1 else np.zeros(1)
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(9.6, 0.5 * len(regimes) + 1.7), layout="constrained")
        axes = figure.subplots(1, len(marks), sharey=True, squeeze=False)[0]
        for axis, (title, found), aims in zip(axes, marks, targets, strict=True):
            for item in found:
                place = len(regimes) - 1 - regimes.index(item.regime) + spread[list(arms).index(item.arm)]
                _point(axis, item, float(place), style[item.arm])
            for regime, share in aims.items():
                if regime in regimes:
                    place = len(regimes) - 1 - regimes.index(regime)
                    axis.plot([share, share], [place - 0.42, place + 0.42], color="#000000", linewidth=1.0)
            axis.axvline(1.0, color="#777777", linewidth=0.9, linestyle=(0, (1, 2)))
            axis.set_xscale("log")
            ticks = (0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
            axis.set_xticks(ticks, ["1/50", "1/20", "1/10", "1/5", "1/2", "1"])
            axis.minorticks_off()
            axis.set_xlim(0.015, 1.6)
            axis.set_title(title)
            axis.set_xlabel("share of the reference's questions (log)")
            axis.set_yticks(range(len(regimes)), [REGIMES[name].title for name in reversed(regimes)])
            for line in range(len(regimes) - 1):
                axis.axhline(line + 0.5, color="#eeeeee", linewidth=0.8)
            axis.grid(axis="y", visible=False)
            axis.set_ylim(-0.5, len(regimes) - 0.5)
        drawn = {item.arm for _, found in marks for item in found}
        handles = [
            Line2D([], [], color=style[arm][0], marker=style[arm][2], markersize=5, linewidth=1.3, label=arm)
            for arm in arms
            if arm in drawn
        ]
        figure.legend(handles=handles, loc="outside lower center", ncols=min(len(handles), 5))
        figure.suptitle(
            "Questions needed, 95% intervals; black ticks: what the adaptive agent is to reach; arrows: not reached",
            fontsize=9,
        )
    return figure


def _point(axis: Any, item: Needed, place: float, look: tuple[str, Any, str]) -> None:
    """A point with its interval; an arrow at the right end where the mark was not reached."""
    colour, _, marker = look
    high = min(item.high / item.of, 1.45)
    if np.isfinite(item.low):
        axis.plot([min(item.low / item.of, 1.45), high], [place, place], color=colour, linewidth=1.3)
    if np.isfinite(item.share):
        axis.plot(max(item.share, 0.016), place, marker=marker, color=colour, markersize=5, linestyle="none")
    else:
        axis.plot(1.45, place, marker=">", color=colour, markersize=5, linestyle="none")


def pieces_figure(pieces: Sequence[Piece]) -> Figure:
    """Draw how many times fewer questions each piece makes, a colour for each regime."""
    import matplotlib
    from matplotlib.figure import Figure

    titles = list(dict.fromkeys(item.title for item in pieces))
    regimes = [name for name in REGIMES if any(item.regime == name for item in pieces)]
    spread = np.linspace(0.27, -0.27, len(regimes)) if len(regimes) > 1 else np.zeros(1)
    markers = ("o", "s", "^", "D", "v", "P", "X")
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(8.8, 0.5 * len(titles) + 1.5), layout="constrained")
        axis = figure.subplots()
        for item in pieces:
            number = regimes.index(item.regime)
            place = len(titles) - 1 - titles.index(item.title) + float(spread[number])
            colour = PALETTE[number % len(PALETTE)]
            axis.plot([item.low, min(item.high, 1e3)], [place, place], color=colour, linewidth=1.3)
            axis.plot(
                item.factor, place, marker=markers[number % len(markers)], color=colour, markersize=5,
                linestyle="none", label=REGIMES[item.regime].title,
            )  # fmt: skip
        axis.axvline(1.0, color="#777777", linewidth=0.9)
        axis.set_xscale("log")
        ticks = (0.5, 0.7, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0)
        axis.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        axis.minorticks_off()
        factors = np.array([[item.factor, item.low, item.high] for item in pieces])
        finite = factors[np.isfinite(factors)]
        axis.set_xlim(max(0.2, min(0.7, finite.min() * 0.9)), min(30.0, max(2.0, finite.max() * 1.1)))
        axis.set_yticks(range(len(titles)), list(reversed(titles)))
        axis.grid(axis="y", visible=False)
        axis.set_ylim(-0.5, len(titles) - 0.5)
        for line in range(len(titles) - 1):
            axis.axhline(line + 0.5, color="#eeeeee", linewidth=0.8)
        axis.set_xlabel("times fewer questions for the same cosine error (log)")
        _legend(figure, [axis])
    return figure
