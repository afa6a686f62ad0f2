"""The figures of a study's report."""

from __future__ import annotations

import math
import textwrap
from typing import TYPE_CHECKING, Any

import numpy as np

from edpbrl_gym.reporting.figures import (
    GREY,
    Curve,
    Level,
    Panel,
    curves_figure,
    look,
    new_figure,
    set_title,
)
from edpbrl_gym.study.reporting.comparing import MEASURES, Compared
from edpbrl_gym.study.reporting.statistics import Counted

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["arms_figure", "funnel_figure", "learning_figure", "times_figure"]

_HATCHES = ("", "////", "....", "\\\\\\\\", "xxxx", "----", "++++")
_LINE_WIDTH = 22  # letters of a name in a line


def funnel_figure(counted: Counted) -> Figure:
    """How many participants of each arm came how far, as a share of those who arrived."""
    from matplotlib.patches import Patch

    steps, arms = counted.funnel, counted.arms
    height = 0.8 / len(arms)
    with new_figure(7.2, 0.62 + len(steps) * max(0.36, 0.21 * len(arms)) + 0.62) as figure:
        axis = figure.subplots()
        for place, arm in enumerate(arms):
            arrived = max(1, steps[0].arms[arm])
            shares = [step.arms[arm] / arrived for step in steps]
            ys = np.arange(len(steps)) + (place - (len(arms) - 1) / 2) * height
            colour = look(place).colour
            axis.barh(ys, shares, height * 0.86, color=colour, alpha=0.85, edgecolor="white", linewidth=0.0,
                      hatch=_HATCHES[place % len(_HATCHES)])  # fmt: skip
            for y, share, step in zip(ys, shares, steps, strict=True):
                label = f"{step.arms[arm]}" if step is steps[0] else f"{step.arms[arm]}  ({share:.0%})"
                axis.annotate(label, (share, y), xytext=(4, 0), textcoords="offset points", va="center", fontsize=7.5)
        axis.set_yticks(np.arange(len(steps)), [step.name for step in steps])
        axis.invert_yaxis()
        axis.set_xlim(0, 1.16)
        axis.set_xticks(np.linspace(0, 1, 6), [f"{share:.0%}" for share in np.linspace(0, 1, 6)])
        axis.spines["bottom"].set_bounds(0, 1)
        axis.set_xlabel("share of those of the arm who arrived")
        axis.grid(axis="y", visible=False)
        axis.tick_params(axis="y", length=0)
        handles = [
            Patch(facecolor=look(place).colour, alpha=0.85, edgecolor="white", linewidth=0.0,
                  hatch=_HATCHES[place % len(_HATCHES)], label=arm)
            for place, arm in enumerate(arms)
        ]  # fmt: skip
        figure.legend(handles=handles, loc="outside lower center", ncols=min(4, len(arms)))
        set_title(figure, "How far participants came", "Numbers of participants, in brackets their share of the arm.")
    return figure


def times_figure(counted: Counted) -> Figure:
    """Median seconds for an answer against its place, with quartiles."""
    curves = []
    for place, arm in enumerate(counted.arms):
        times = counted.places[arm]
        if times.places:
            low, middle, high = (np.array([one.values[index] for one in times.quantiles]) for index in (1, 2, 3))
            curves.append(Curve(arm, np.array(times.places), middle, look(place), low, high))
    last = max(int(curve.x[-1]) for curve in curves)
    step = max(1, round(last / 10))
    return curves_figure(
        [Panel(curves, "", "seconds for an answer")],
        columns=1,
        xlabel="place of the question among those that count",
        title="Time for an answer",
        subtitle="Median over participants; bands: the middle half of them.",
        size=(6.4, 2.9),
        ticks=[1, *range(step if step > 1 else 2, last + 1, step)],
    )


def learning_figure(compared: Compared) -> Figure:
    """How well the test answers are predicted after some of the answers that count."""
    panels = []
    levels = {"hit": compared.chance, "log": math.log(compared.chance)}
    for name in ("hit", "log"):
        curves = []
        for place, arm in enumerate(compared.arms):
            curve = compared.curves[arm]
            measured = curve.hit if name == "hit" else curve.log
            if curve.after:
                value, low, high = (
                    np.array([getattr(one, end) for one in measured]) for end in ("value", "low", "high")
                )
                curves.append(Curve(arm, np.array(curve.after), value, look(place), low, high))
        panels.append(Panel(curves, _title(name), levels=[Level(levels[name], note="chance")]))
    return curves_figure(
        panels,
        columns=2,
        xlabel="answers",
        title="What the answers teach about the test questions",
        subtitle="Participants who finished; bands: 95% bootstrap intervals over participants.",
        share="none",
        zero=False,
    )


def _title(measure: str) -> str:
    name = MEASURES[measure]
    return name[0].upper() + name[1:] + (", nats" if measure == "log" else "")


def arms_figure(compared: Compared) -> Figure:
    """The measures of all arms with their intervals, a panel for each measure."""
    panels: list[tuple[str, dict[str, Any], float | None]] = []
    for measure in ("hit", "log", "repeats", "answers", "seconds"):
        known = {arm: one for arm, one in compared.values[measure].items() if one.people}
        level = {"hit": compared.chance, "log": math.log(compared.chance)}.get(measure)
        fixed = measure == "answers" and len({one.value for one in known.values()}) == 1  # no stopping rule
        if known and not fixed:
            panels.append((_title(measure), known, level))
    styles = {arm: one for arm, one in compared.styles.items() if one.people}
    if styles:
        panels.append(("Preferred the learnt style", styles, 0.5))
    columns = min(3, len(panels))
    rows = -(-len(panels) // columns)
    with new_figure(9.2, rows * (0.75 + 0.3 * len(compared.arms)) + 0.75) as figure:
        axes = figure.subplots(rows, columns, squeeze=False, sharey=True).ravel()
        for axis, (title, known, level) in zip(axes, panels, strict=False):
            _draw_measures(axis, compared.arms, known, level)
            axis.set_title(title)
        for axis in axes[len(panels) :]:
            axis.set_axis_off()
        set_title(
            figure,
            "The arms compared",
            "Participants who finished; lines: 95% intervals over participants; dotted: chance.",
        )
    return figure


def _draw_measures(axis: Any, arms: tuple[str, ...], known: dict[str, Any], level: float | None) -> None:
    """Points and intervals of one measure, from the first arm on top."""
    for place, arm in enumerate(arms):
        if arm not in known:
            continue
        one, style = known[arm], look(place)
        if math.isfinite(one.low):
            axis.plot([one.low, one.high], [place, place], color=style.colour, linewidth=1.6)
        axis.plot(one.value, place, marker=style.marker, color=style.colour, markersize=6, linestyle="none")
    if level is not None:
        axis.axvline(level, color=GREY, linewidth=0.9, linestyle=(0, (1, 2)))
    axis.set_yticks(range(len(arms)), [textwrap.fill(arm, _LINE_WIDTH) for arm in arms])
    axis.set_ylim(len(arms) - 0.5, -0.5)
    axis.grid(axis="y", visible=False)
    axis.tick_params(axis="y", length=0)
    axis.margins(x=0.12)
