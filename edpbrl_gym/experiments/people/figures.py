"""The figures of a replay: learning curves and reliability."""

from __future__ import annotations

from typing import Any

import numpy as np

from edpbrl_gym.experiments.people.estimators import ESTIMATORS
from edpbrl_gym.experiments.people.summary import MEASURES, Replays, Series
from edpbrl_gym.reporting.figures import (
    GREY,
    Curve,
    Look,
    Panel,
    curves_figure,
    legend,
    look,
    new_figure,
    set_title,
)
from edpbrl_gym.reporting.statistics import interval

__all__ = ["learning_figure", "reliability_figure"]

_SHARE = 0.01  # of the answers, below which a bin is not drawn
_LINES = {"random": "-", "adaptive": "--", "bald": ":"}


def _look(series: Series) -> Look:
    """Colour and marker of the estimator, line of the rule."""
    place = list(ESTIMATORS).index(series.estimator)  # the first is grey, as the others use up the colours
    colour, _, marker = look(place - 1) if place else Look(GREY, "-", "x")
    return Look(colour, _LINES[series.rule], marker)


def learning_figure(replays: Replays) -> Any:
    """Hit rate and log-likelihood against answers, a row of panels for each data set."""
    panels = []
    for data in replays.data:
        for measure in ("hit", "log_probability"):
            curves = []
            for series in replays.series(data):
                frame = replays.complete(data, series, measure)
                ends = [interval(frame[count].to_numpy()) for count in frame.columns]
                curves.append(
                    Curve(
                        f"{series.estimator}, {series.rule}",
                        frame.columns.to_numpy(),
                        frame.mean().to_numpy(),
                        _look(series),
                        *(None if series.rule != "random" else np.array(end) for end in zip(*ends, strict=True)),
                    )
                )
            panels.append(Panel(curves, f"{data}: {MEASURES[measure]}", "held-out answers"))
    return curves_figure(
        panels,
        columns=2,
        xlabel="answers of the new person",
        title="What a person's answers teach, with and without other people's",
        subtitle="Bands: 95% bootstrap intervals over people, random questions.",
        share="none",
        zero=False,
    )


def reliability_figure(replays: Replays) -> Any:
    """Hit rate against confidence, all numbers of answers together; a panel for each data set."""
    with new_figure(max(3.4 * len(replays.data) + 0.4, 6.4), 4.4) as figure:
        axes = figure.subplots(1, len(replays.data), squeeze=False, sharey=True)[0]
        for axis, data in zip(axes, replays.data, strict=True):
            axis.plot([0, 1], [0, 1], color=GREY, linewidth=0.8, label="calibrated")
            for series in replays.series(data):
                bins = replays.bins(data, series, None)
                if series.rule != "random" or bins is None:
                    continue
                shares, confidence, hits = (part[bins.points[0] >= _SHARE] for part in bins.points)
                colour, line, marker = _look(series)
                axis.plot(confidence, hits, color=colour, linestyle=line, linewidth=1.2, label=series.estimator)
                axis.scatter(confidence, hits, s=6 + 120 * shares, color=colour, marker=marker, alpha=0.7)
            axis.set_title(data)
            axis.set_xlim(0, 1)
            axis.set_ylim(0, 1)
            axis.set_xlabel("confidence in the preferred option")
        axes[0].set_ylabel("hit rate")
        legend(figure)
        set_title(
            figure,
            "Reliability of predictions",
            f"Random questions; larger marks stand for more answers, bins below {_SHARE:.0%} are left out.",
        )
    return figure
