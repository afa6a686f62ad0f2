"""A forest plot: values with their intervals, row by row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from edpbrl_gym.reporting.figures import GREY, Look, new_figure, set_title

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["ForestPanel", "Point", "forest_figure"]


@dataclass(frozen=True)
class Point:
    """A value with its interval.

    Attributes:
        row: Name of its row.
        series: Name of its series, which decides its look.
        value: The value; beyond the axis it is drawn as an arrow at the end.
        low: Lower end of the interval; NaN for none.
        high: Upper end.
    """

    row: str
    series: str
    value: float
    low: float
    high: float


@dataclass(frozen=True, eq=False)
class ForestPanel:
    """One column of a forest plot.

    Attributes:
        title: Title above it.
        points: Points to draw.
        aims: Row -> target value, a black tick.
    """

    title: str
    points: Sequence[Point]
    aims: Mapping[str, float] = field(default_factory=dict)


def forest_figure(
    panels: Sequence[ForestPanel],
    *,
    rows: Sequence[str],
    series: Mapping[str, Look],
    limits: tuple[float, float],
    ticks: Mapping[float, str],
    xlabel: str,
    title: str,
) -> Figure:
    """Draw values with their intervals on a logarithmic axis, 1 marked by a line.

    Args:
        panels: Panels, side by side.
        rows: Names of the rows, from top to bottom.
        series: Name -> look, in the order within a row.
        limits: Limits of the x axis.
        ticks: Value -> text.
        xlabel: Name of the x axis.
        title: Title above the figure.
    """
    from matplotlib.lines import Line2D

    names = list(series)
    spread = np.linspace(0.3, -0.3, len(names)) if len(names) > 1 else np.zeros(1)
    heights = {row: len(rows) - 1 - place for place, row in enumerate(rows)}
    with new_figure(9.6, 0.5 * len(rows) + 1.7) as figure:
        for axis, panel in zip(figure.subplots(1, len(panels), sharey=True, squeeze=False)[0], panels, strict=True):
            for point in panel.points:
                height = heights[point.row] + float(spread[names.index(point.series)])
                _draw_point(axis, point, height, series[point.series], limits)
            for row, value in panel.aims.items():
                if row in heights:
                    axis.plot([value, value], [heights[row] - 0.42, heights[row] + 0.42], color="#000000", linewidth=1)
            axis.axvline(1.0, color=GREY, linewidth=0.9, linestyle=(0, (1, 2)))
            axis.set_xscale("log")
            axis.set_xticks(list(ticks), list(ticks.values()))
            axis.minorticks_off()
            axis.set_xlim(*limits)
            axis.set_title(panel.title)
            axis.set_xlabel(xlabel)
            axis.set_yticks(list(heights.values()), list(heights))
            for line in range(len(rows) - 1):
                axis.axhline(line + 0.5, color="#eeeeee", linewidth=0.8)
            axis.grid(axis="y", visible=False)
            axis.set_ylim(-0.5, len(rows) - 0.5)
        used_series = {point.series for panel in panels for point in panel.points}
        handles = [
            Line2D([], [], color=style.colour, marker=style.marker, markersize=5, linewidth=1.3, label=name)
            for name, style in series.items()
            if name in used_series
        ]
        figure.legend(handles=handles, loc="outside lower center", ncols=min(len(handles), 5))
        set_title(figure, title)
    return figure


def _draw_point(axis: Any, point: Point, height: float, style: Look, limits: tuple[float, float]) -> None:
    first, last = limits[0] * 1.07, limits[1] * 0.9
    if np.isfinite(point.low):
        ends = [min(max(end, first), last) for end in (point.low, point.high)]
        axis.plot(ends, [height, height], color=style.colour, linewidth=1.3)
    beyond = point.value > last
    marker, place = (">", last) if beyond else (style.marker, max(point.value, first))
    axis.plot(place, height, marker=marker, color=style.colour, markersize=5, linestyle="none")
