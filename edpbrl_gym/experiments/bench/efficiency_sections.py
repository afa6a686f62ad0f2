"""Query efficiency in the report: marks, questions needed, what each piece buys, curves."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edpbrl_gym.experiments.bench.efficiency import ADAPTIVE, BASELINE, PAPER, curves_of
from edpbrl_gym.experiments.bench.efficiency_tables import (
    TARGET_B,
    TARGETS_A,
    Efficiency,
    comparison_table,
    curves_table,
    main_series,
    marks_table,
    metrics_table,
    needed_table,
    pieces_table,
    tally_lines,
)
from edpbrl_gym.experiments.bench.measuring import METRICS
from edpbrl_gym.experiments.bench.settings import REGIMES
from edpbrl_gym.reporting.figures import PALETTE, Curve, Level, Look, Panel, curves_figure, look
from edpbrl_gym.reporting.forest import ForestPanel, Point, forest_figure
from edpbrl_gym.reporting.report import Picture, Section, Text, bullets
from edpbrl_gym.reporting.statistics import interval

__all__ = ["efficiency_sections"]

# the series that most figures show; others take what is left of the palette
_LOOKS: dict[str, Look] = {
    ADAPTIVE: Look(PALETTE[0], "-", "o"),
    BASELINE: Look(PALETTE[1], "--", "s"),
    PAPER: Look("#777777", ":", "X"),
    "d-design/vocabulary": Look(PALETTE[2], "-.", "^"),
    "tuples/vocabulary": Look(PALETTE[3], (0, (5, 1)), "D"),
}
_TICKS = (1, 2, 5, 10, 20, 60)


def efficiency_sections(summary: Efficiency, setting: str, horizon: int) -> list[Section]:
    """All that a run says of query efficiency.

    Args:
        summary: Of the results.
        setting: Vocabulary, encoder and seeds in words.
        horizon: Questions of an episode.
    """
    headline = [name for name in summary.regimes if REGIMES[name].headline]
    side = [name for name in summary.regimes if not REGIMES[name].headline]
    if not summary.regimes:
        return []
    return [
        marks_table(summary),
        *_curves_picture("curves", "Learning curves of the headline regimes", headline, summary, setting),
        *_needed_picture(summary),
        pieces_table(summary),
        *_pieces_picture(summary),
        needed_table(summary, horizon),
        comparison_table(summary),
        Text(bullets(tally_lines(summary))),
        metrics_table(summary),
        *_metrics_picture(headline, summary, setting),
        *_curves_picture("side-curves", "Learning curves of the side regimes", side, summary, setting),
        curves_table(summary),
    ]


def _looks(series: Sequence[str]) -> dict[str, Look]:
    """The look of each series, the same in all figures for the main ones."""
    others = [name for name in series if name not in _LOOKS]
    return {name: _LOOKS.get(name) or look(4 + others.index(name)) for name in series}


def _curves(summary: Efficiency, regime: str, metric: str) -> list[Curve]:
    """Means over runs with their 95% bootstrap intervals, of the main series."""
    drawn = []
    for name, style in _looks(main_series(summary)).items():
        curves = curves_of(summary.index, regime, (name,), metric)
        if curves is not None:
            values = curves.values[name]
            low, high = np.array([interval(column, resamples=500) for column in values.T]).T
            drawn.append(Curve(name, curves.episodes, values.mean(axis=0), style, low, high))
    return drawn


def _curves_picture(
    name: str, caption: str, regimes: Sequence[str], summary: Efficiency, setting: str
) -> list[Picture]:
    """The cosine error against the episodes, a panel for each regime, with the two marks as horizontal lines."""
    if not regimes:
        return []
    panels = []
    for regime in regimes:
        drawn = _curves(summary, regime, "cosine_error")
        ends = {curve.label: curve for curve in drawn}
        levels = [
            Level(float(ends[series].mean[-1]), note=note, look=Look(_LOOKS[series].colour, (0, (1, 2))))
            for series, note in ((PAPER, "(a)"), (BASELINE, "(b)"))
            if series in ends
        ]
        panels.append(Panel(drawn, title=REGIMES[regime].title, ylabel="cosine error", levels=levels))
    columns = 2 if len(regimes) <= 4 else 3
    figure = curves_figure(
        panels,
        columns=columns,
        xlabel="episodes answered, T (log)",
        title="Mean and 95% interval over runs; (a), (b): the errors to be reached",
        subtitle=setting,
        size=(4.4, 3.0) if columns < 3 else (3.3, 2.5),
        ticks=_TICKS,
        log=True,
    )
    return [Picture(name, caption, figure)]


def _metrics_picture(regimes: Sequence[str], summary: Efficiency, setting: str) -> list[Picture]:
    """All other metrics: a row for each, a column for each regime."""
    if not regimes:
        return []
    panels = [
        Panel(
            _curves(summary, regime, metric),
            title=REGIMES[regime].title if metric == "preference_error" else "",
            ylabel=name,
        )
        for metric, name in METRICS.items()
        if metric != "cosine_error"
        for regime in regimes
    ]
    figure = curves_figure(
        panels,
        columns=len(regimes),
        xlabel="episodes T (log)",
        title="Mean and 95% interval over runs",
        subtitle=setting,
        size=(2.7, 2.3),
        share="row",
        ticks=_TICKS,
        log=True,
    )
    return [Picture("metrics", "The other metrics", figure)]


def _needed_picture(summary: Efficiency) -> list[Picture]:
    """The share of the questions that each series needs for a mark: a panel for each mark, regimes as rows."""
    series = main_series(summary)
    panels = []
    for mark, title, aims in (
        ("a", "(a) to the error of Random, ridge 100", TARGETS_A),
        ("b", "(b) to the error of Random, vocabulary prior", dict.fromkeys(summary.regimes, TARGET_B)),
    ):
        points = [
            Point(REGIMES[item.regime].title, item.series, item.share, item.low / item.of, item.high / item.of)
            for item in summary.needed[mark, "cosine_error"]
            if item.series in series and item.series != PAPER
        ]
        panels.append(ForestPanel(title, points, {REGIMES[name].title: aim for name, aim in aims.items()}))
    rows = {point.row for panel in panels for point in panel.points}
    if not rows:
        return []
    figure = forest_figure(
        panels,
        rows=[regime.title for regime in REGIMES.values() if regime.title in rows],
        series=_looks(series),
        limits=(0.015, 1.6),
        ticks={0.02: "1/50", 0.05: "1/20", 0.1: "1/10", 0.2: "1/5", 0.5: "1/2", 1.0: "1"},
        xlabel="share of the reference's questions (log)",
        title="Questions needed, 95% intervals; black ticks: the aims of the adaptive planner; arrows: not reached",
    )
    return [Picture("needed", "Questions needed", figure)]


def _pieces_picture(summary: Efficiency) -> list[Picture]:
    """How many times fewer questions each piece makes, a colour for each regime."""
    pieces = summary.pieces
    if not pieces:
        return []
    points = [Point(one.title, REGIMES[one.regime].title, one.factor, one.low, one.high) for one in pieces]
    factors = np.array([[one.factor, one.low, one.high] for one in pieces])
    factors = factors[np.isfinite(factors)]
    titles = [regime.title for name, regime in REGIMES.items() if any(one.regime == name for one in pieces)]
    figure = forest_figure(
        [ForestPanel("", points)],
        rows=list(dict.fromkeys(one.title for one in pieces)),
        series={title: look(place) for place, title in enumerate(titles)},
        limits=(max(0.2, min(0.7, factors.min() * 0.9)), min(30.0, max(2.0, factors.max() * 1.2))),
        ticks={tick: f"{tick:g}" for tick in (0.5, 0.7, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0)},
        xlabel="times fewer questions for the same cosine error (log)",
        title="What each piece buys, with 95% intervals",
    )
    return [Picture("pieces", "What each piece buys", figure)]
