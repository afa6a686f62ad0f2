"""Figures: the common style, legends and titles, and learning curves."""

from __future__ import annotations

import functools
import math
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from edpbrl_gym._places import write_atomically

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = [
    "GREY",
    "MARKERS",
    "PALETTE",
    "STYLE",
    "Curve",
    "Level",
    "Look",
    "Panel",
    "curves_figure",
    "legend",
    "look",
    "new_figure",
    "save_figure",
    "set_title",
]

# Okabe & Ito (2008), told apart by readers with any colour vision; yellow is left out, too pale on white
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
GREY = "#777777"
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
_LINES = ("-", "--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1)), (0, (1, 1)))
_PALE = "#c4c4c4"
_ROOM = 1.3  # least ratio of two labelled ticks on a log axis
STYLE: Any = {
    "font.size": 9,
    "axes.titlesize": 9.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "pdf.fonttype": 42,
}


class Look(NamedTuple):
    """Colour, line and marker of an arm."""

    colour: str
    line: Any = "-"
    marker: str = "o"


def look(number: int) -> Look:
    """The look of arm number ``number``, distinct without colour too."""
    return Look(PALETTE[number % len(PALETTE)], _LINES[number % len(_LINES)], MARKERS[number % len(MARKERS)])


@contextmanager
def new_figure(width: float, height: float, *, grid: bool = True) -> Iterator[Figure]:
    """An empty figure, in inches, to be drawn in the style that all share."""
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context({**STYLE, "axes.grid": grid}):
        yield Figure(figsize=(width, height), layout="constrained")


def save_figure(figure: Figure, folder: Path, name: str) -> list[Path]:
    """Write ``name``.png (200 dpi) and ``name``.pdf; without dates, so that equal figures are equal files."""
    paths = []
    for suffix, options in ((".png", {"dpi": 200}), (".pdf", {"metadata": {"CreationDate": None}})):
        path = folder / f"{name}{suffix}"
        write_atomically(path, functools.partial(figure.savefig, format=suffix[1:], **options))
        paths.append(path)
    return paths


def legend(figure: Figure) -> None:
    """One legend below all panels, in the order of first use, in as many rows as needed."""
    handles = {
        label: handle for axis in figure.axes for handle, label in zip(*axis.get_legend_handles_labels(), strict=True)
    }
    width = sum(len(label) + 7 for label in handles) / 13.5  # about, in inches
    rows = max(1, math.ceil(width / figure.get_figwidth()))
    columns = max(1, math.ceil(len(handles) / rows))
    figure.legend(list(handles.values()), list(handles), loc="outside lower center", ncols=columns)


def set_title(figure: Figure, title: str, subtitle: str = "") -> None:
    """Write the title above the figure, and below it the setting, wrapped to the width."""
    width = int(15.2 * figure.get_figwidth())
    figure.suptitle("\n".join([title, *textwrap.wrap(subtitle, width)]), fontsize=9)


# -- learning curves -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Curve:
    """One arm in one panel."""

    label: str  # in the legend
    x: Any  # numbers of episodes or questions, (n,), ascending
    mean: Any  # values, (n,)
    look: Look | None  # None is pale, behind the others
    low: Any = None  # lower end of the band, (n,); NaN, as for one run, draws none
    high: Any = None  # upper end


@dataclass(frozen=True)
class Level:
    """A horizontal line for reference."""

    value: float  # its height
    label: str = ""  # in the legend, "" for none
    note: str = ""  # at its left end, "" for none
    look: Look = Look(GREY, (0, (1, 2)))
    stretches: bool = True  # whether the axis is extended to show it; else it is left out if it is beyond the curves


@dataclass(frozen=True, eq=False)
class Panel:
    """Curves that share their axes, the front one first; the y axis is named in the first column."""

    curves: Sequence[Curve]
    title: str = ""
    ylabel: str = ""
    levels: Sequence[Level] = ()


def curves_figure(
    panels: Sequence[Panel],
    *,
    columns: int,
    xlabel: str,
    title: str,
    subtitle: str = "",
    size: tuple[float, float] = (3.3, 2.7),
    share: Literal["all", "row", "none"] = "all",
    ticks: Sequence[int] | None = None,
    log: bool = False,
    zero: bool = True,
) -> Figure:
    """Draw learning curves, panel by panel, at most ``columns`` in a row, each of ``size`` inches.

    Panels share the limits of the y axis by ``share``; "none" gives each its own x axis too. ``ticks`` of the x axis
    are used within the data; None: every x, on a log axis with labels where there is room. With ``zero`` y begins at 0.
    """
    columns = min(columns, len(panels))
    rows = -(-len(panels) // columns)
    with new_figure(max(size[0] * columns + 0.4, 6.4), size[1] * rows + 1.0) as figure:
        grid = figure.subplots(rows, columns, sharex=share != "none", sharey=share, squeeze=False)
        axes = list(grid.ravel())
        for axis, panel in zip(axes, panels, strict=False):
            for number, curve in enumerate(panel.curves):
                _draw_curve(axis, curve, zorder=3.0 - 0.01 * number)
            axis.set_title(panel.title)
            _set_x_axis(axis, [panel] if share == "none" else panels, ticks, log)
            if zero:
                axis.set_ylim(bottom=0)
        for axis in axes[len(panels) :]:
            axis.set_axis_off()
        for number, (axis, panel) in enumerate(zip(axes, panels, strict=False)):
            for level in panel.levels:  # after all curves, since panels share limits
                low, high = axis.get_ylim()
                if level.stretches or low <= level.value <= high:
                    _draw_level(axis, level)
            if number + columns >= len(panels):  # the lowest of its column
                axis.set_xlabel(xlabel)
                axis.tick_params(labelbottom=True)
            if number % columns == 0:
                axis.set_ylabel(panel.ylabel)
        legend(figure)
        set_title(figure, title, subtitle)
    return figure


def _draw_curve(axis: Any, curve: Curve, *, zorder: float) -> None:
    x, mean = np.asarray(curve.x), np.asarray(curve.mean, dtype=float)
    if curve.look is None:
        axis.plot(x, mean, color=_PALE, linewidth=0.8, label=curve.label, zorder=1)
        return
    colour, line, marker = curve.look
    if curve.low is not None:
        low, high = (np.asarray(end, dtype=float) for end in (curve.low, curve.high))
        axis.fill_between(x, low, high, color=colour, alpha=0.18, linewidth=0, zorder=2)
    axis.plot(
        x, mean, color=colour, linestyle=line, marker=marker, markersize=4.0, linewidth=1.5, label=curve.label,
        zorder=zorder,
    )  # fmt: skip


def _draw_level(axis: Any, level: Level) -> None:
    colour = level.look.colour
    named = {"label": level.label} if level.label else {}
    axis.axhline(level.value, color=colour, linewidth=0.9, linestyle=level.look.line, **named)
    if level.note:
        axis.annotate(
            level.note, (0.01, level.value), xycoords=("axes fraction", "data"), va="bottom", fontsize=8, color=colour
        )


def _labels(values: Sequence[float], room: float) -> list[str]:
    """Labels of ticks; none where a value is less than ``room`` times the last labelled one, so that none overlap."""
    labels: list[str] = []
    last = 0.0
    for value in values:
        shown = value >= room * last
        labels.append(f"{value:g}" if shown else "")
        last = value if shown else last
    return labels


def _set_x_axis(axis: Any, panels: Sequence[Panel], ticks: Sequence[int] | None, log: bool) -> None:
    x = sorted({float(value) for panel in panels for curve in panel.curves for value in np.asarray(curve.x)})
    if not x:
        return
    if log:
        axis.set_xscale("log")
    values = x if ticks is None else [tick for tick in ticks if x[0] <= tick <= x[-1]]
    axis.set_xticks(values, _labels(values, _ROOM if log and ticks is None else 0.0))
    axis.minorticks_off()
