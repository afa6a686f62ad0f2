"""The report of a benchmark of questions: marks, questions needed, what each piece buys, curves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from edpbrl_gym.experiments.kit.figures import PALETTE, Curve, Level, Look, Panel, curves_figure, look
from edpbrl_gym.experiments.kit.forest import ForestPanel, Point, forest_figure
from edpbrl_gym.experiments.kit.report import (
    Picture,
    Report,
    Text,
    bullets,
    code_line,
    convergence_line,
    provenance_section,
    sentences_line,
)
from edpbrl_gym.experiments.kit.statistics import interval
from edpbrl_gym.experiments.query_bench.settings import REGIMES
from edpbrl_gym.experiments.query_bench.summary import BASELINE, METRICS, PAPER, RunIndex, curves_of
from edpbrl_gym.experiments.query_bench.tables import (
    TARGET_B,
    TARGETS_A,
    Summary,
    comparison_table,
    curves_table,
    headline_tables,
    main_arms,
    marks_table,
    metrics_table,
    needed_table,
    pieces_table,
    summarise,
    tally_lines,
    time_table,
)
from edpbrl_gym.experiments.runs import Results

__all__ = ["make_report"]

# the arms that most figures show; others take what is left of the palette
_LOOKS: dict[str, Look] = {
    "adaptive": Look(PALETTE[0], "-", "o"),
    BASELINE: Look(PALETTE[1], "--", "s"),
    PAPER: Look("#777777", ":", "X"),
    "static-D+ours": Look(PALETTE[2], "-.", "^"),
    "tuples+ours": Look(PALETTE[3], (0, (5, 1)), "D"),
}
_TICKS = (1, 2, 5, 10, 20, 60)


def make_report(results: Results) -> Report:
    """The report of `edpbrl bench queries`."""
    table = results.table
    summary, index = summarise(table), RunIndex(table)
    headline = [name for name in summary.regimes if REGIMES[name].headline]
    side = [name for name in summary.regimes if not REGIMES[name].headline]
    runs = table[["regime", "arm", "seed", "sentence"]].drop_duplicates()
    setting = _setting_line(results)
    return Report(
        "Query efficiency: how few questions will do",
        [
            Text(
                [
                    f"`edpbrl bench queries`: {len(runs)} runs (regime x arm x user x seed); {setting}. Every number "
                    "below is computed from results.parquet; `edpbrl bench queries --report RUN` writes this page "
                    "again."
                ]
            ),
            marks_table(summary),
            *_curves_picture("curves", "Learning curves of the headline regimes", index, headline, summary, setting),
            *_needed_picture(summary),
            pieces_table(summary),
            *_pieces_picture(summary),
            needed_table(summary, results),
            comparison_table(summary),
            Text(bullets(tally_lines(summary))),
            metrics_table(summary),
            *_metrics_picture(index, headline, summary, setting),
            *_curves_picture("side-curves", "Learning curves of the side regimes", index, side, summary, setting),
            curves_table(summary, table),
            time_table(summary, table),
            _how(results),
            provenance_section(results, code_line(table)),
        ],
        headline=headline_tables(results, summary),
        prefix="queries-",
    )


def _setting_line(results: Results) -> str:
    known = results.provenance
    seeds = int(results.table["seed"].nunique())
    return (
        f"vocabulary of {sum(known['sizes'])} tokens ({len(known['steps'])} steps), encoder {known['encoder']}, "
        f"{seeds} seed{'s' if seeds > 1 else ''}"
    )


# -- figures ---------------------------------------------------------------------------------------------------------


def _looks(arms: Sequence[str]) -> dict[str, Look]:
    """The look of each arm, the same in all figures for the main ones."""
    others = [arm for arm in arms if arm not in _LOOKS]
    return {arm: _LOOKS.get(arm) or look(4 + others.index(arm)) for arm in arms}


def _curves(index: RunIndex, regime: str, arms: Sequence[str], metric: str) -> list[Curve]:
    """Means over runs with their 95% bootstrap intervals."""
    drawn = []
    for arm, style in _looks(arms).items():
        curves = curves_of(index, regime, (arm,), metric)
        if curves is not None:
            values = curves.values[arm]
            low, high = np.array([interval(column, resamples=500) for column in values.T]).T
            drawn.append(Curve(arm, curves.episodes, values.mean(axis=0), style, low, high))
    return drawn


def _curves_picture(
    name: str, caption: str, index: RunIndex, regimes: Sequence[str], summary: Summary, setting: str
) -> list[Picture]:
    """The cosine error against the episodes, a panel for each regime, with the two marks as horizontal lines."""
    if not regimes:
        return []
    panels = []
    for regime in regimes:
        drawn = _curves(index, regime, main_arms(summary), "cosine_error")
        ends = {curve.label: curve for curve in drawn}
        levels = [
            Level(float(ends[arm].mean[-1]), note=note, look=Look(_LOOKS[arm].colour, (0, (1, 2))))
            for arm, note in ((PAPER, "(a)"), (BASELINE, "(b)"))
            if arm in ends
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


def _metrics_picture(index: RunIndex, regimes: Sequence[str], summary: Summary, setting: str) -> list[Picture]:
    """All other metrics: a row for each, a column for each regime."""
    if not regimes:
        return []
    panels = [
        Panel(
            _curves(index, regime, main_arms(summary), metric),
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


def _needed_picture(summary: Summary) -> list[Picture]:
    """The share of the questions that each arm needs for a mark: a panel for each mark, regimes as rows."""
    arms = main_arms(summary)
    panels = []
    for mark, title, aims in (
        ("a", "(a) to the error of Random + ridge 100", TARGETS_A),
        ("b", "(b) to the error of Random + our estimator", dict.fromkeys(summary.regimes, TARGET_B)),
    ):
        points = [
            Point(REGIMES[item.regime].title, item.arm, item.share, item.low / item.of, item.high / item.of)
            for item in summary.needed[mark, "cosine_error"]
            if item.arm in arms and item.arm != PAPER
        ]
        panels.append(ForestPanel(title, points, {REGIMES[name].title: aim for name, aim in aims.items()}))
    rows = {point.row for panel in panels for point in panel.points}
    if not rows:
        return []
    figure = forest_figure(
        panels,
        rows=[regime.title for regime in REGIMES.values() if regime.title in rows],
        series=_looks(arms),
        limits=(0.015, 1.6),
        ticks={0.02: "1/50", 0.05: "1/20", 0.1: "1/10", 0.2: "1/5", 0.5: "1/2", 1.0: "1"},
        xlabel="share of the reference's questions (log)",
        title="Questions needed, 95% intervals; black ticks: what the adaptive agent is to reach; arrows: not reached",
    )
    return [Picture("needed", "Questions needed", figure)]


def _pieces_picture(summary: Summary) -> list[Picture]:
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


# -- how it was done -------------------------------------------------------------------------------------------------


def _how(results: Results) -> Text:
    config, table = results.config, results.table
    lines = [
        f"Users: {sentences_line(config['sentences'])}. A seed has {_per_seed(table)} of them.",
        "A run is a (seed, sentence). All arms of a run see the same user with the same random draws; static rules "
        "ask the same questions of all users of a seed. Intervals resample whole runs.",
        f"Questions come from the train split of the vocabulary; preference error on {config['pairs']} pairs of "
        f"{config['prompts']} held-out prompts, choice error on held-out questions answered without noise, regret "
        "against the best prompt that a wider beam search finds with theta* itself.",
        "T needed: the mean curve over runs, linear between the T measured, from which T on it stays at or below the "
        "level.",
        convergence_line(table["converged"]),
        f"Share of skipped questions: {float(table['skipped'].mean()):.3f} over all rows.",
    ]
    return Text(bullets(lines), "How it was done")


def _per_seed(table: Any) -> str:
    counts = sorted({int(count) for count in table.groupby("seed")["sentence"].nunique()})
    return " to ".join(map(str, dict.fromkeys((counts[0], counts[-1]))))
