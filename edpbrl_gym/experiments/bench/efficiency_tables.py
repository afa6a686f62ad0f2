"""Questions needed, wins and losses, pieces: the tables of query efficiency, for the terminal and for Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from edpbrl_gym.experiments.bench.efficiency import (
    ADAPTIVE,
    BASELINE,
    PAPER,
    PIECES,
    Comparison,
    Needed,
    Piece,
    RunIndex,
    compare,
    needed,
    piece,
    with_series,
)
from edpbrl_gym.experiments.bench.measuring import METRICS
from edpbrl_gym.experiments.bench.settings import REGIMES
from edpbrl_gym.reporting.statistics import UNDEFINED, bracket
from edpbrl_gym.reporting.tables import TextTable

__all__ = [
    "MAIN_SERIES",
    "TARGETS_A",
    "TARGET_B",
    "Efficiency",
    "comparison_table",
    "curves_table",
    "headline_tables",
    "main_series",
    "marks_table",
    "metrics_table",
    "needed_table",
    "pieces_table",
    "summarise_efficiency",
    "tally_lines",
]

# what the adaptive planner was to reach: share of the questions of mark (a) by regime, and of mark (b) everywhere
TARGETS_A: dict[str, float] = {"argmax": 1 / 8, "scale-50": 1 / 8, "scale-20": 1 / 5, "scale-5": 1 / 3}
TARGET_B = 0.6
MAIN_SERIES = (PAPER, BASELINE, "d-design/vocabulary", "tuples/vocabulary", ADAPTIVE)  # of the figures
_COMPARED_AT = (10, 30, 60)


@dataclass(frozen=True, eq=False)
class Efficiency:
    """Everything that tables and figures show.

    Attributes:
        rows: From ``with_series``.
        index: Of these rows.
        regimes: Names that they hold, in their order.
        series: Names, in their order.
        needed: By (mark, metric): what the series need, mark "a" or "b"; only the adaptive planner in metrics other
            than the cosine error.
        comparisons: Every series against Random with the vocabulary prior.
        pieces: What each piece buys in each headline regime.
    """

    rows: Any
    index: RunIndex
    regimes: list[str]
    series: list[str]
    needed: dict[tuple[str, str], list[Needed]] = field(default_factory=dict)
    comparisons: list[Comparison] = field(default_factory=list)
    pieces: list[Piece] = field(default_factory=list)


def summarise_efficiency(table: Any) -> Efficiency:
    """Compute the summary of the rows of a results table about prompt MDPs."""
    rows = with_series(table)
    regimes = [name for name in REGIMES if (rows["regime"] == name).any()]
    present = set(rows["series"])
    series = [name for name in dict.fromkeys((*MAIN_SERIES, *sorted(present))) if name in present]
    summary = Efficiency(rows, RunIndex(rows), regimes, series)
    if not regimes:
        return summary
    runs = summary.index
    for mark, reference in (("a", PAPER), ("b", BASELINE)):
        for metric in METRICS:
            asked = series if metric == "cosine_error" else [ADAPTIVE]
            items = [needed(runs, regime, name, reference, metric) for regime in regimes for name in asked]
            summary.needed[mark, metric] = [item for item in items if item is not None and item.series != reference]
    last = int(rows["episodes"].max())
    for episodes in dict.fromkeys([*(at for at in _COMPARED_AT if at < last), last]):
        for regime in regimes:
            others = [name for name in series if name != BASELINE]
            compared = [compare(runs, regime, name, BASELINE, "cosine_error", episodes) for name in others]
            summary.comparisons.extend(one for one in compared if one is not None)
    for title, without, added in PIECES:
        for regime in regimes:
            if REGIMES[regime].headline:
                bought = piece(runs, regime, title, without, added)
                summary.pieces.extend([] if bought is None else [bought])
    return summary


def headline_tables(summary: Efficiency, horizon: int) -> list[TextTable]:
    """The tables for the terminal: the marks, and questions needed in cosine error by the series that figures show."""
    tables = [marks_table(summary), needed_table(summary, horizon, main_series(summary))]
    return [table for table in tables if table.rows]


def share_cell(item: Needed) -> str:
    """Share of the reference's questions as text, with its interval."""
    if not np.isfinite(item.share):
        return "not reached"
    ends = [f"{end / item.of:.3f}" if np.isfinite(end) else "beyond" for end in (item.low, item.high)]
    interval = f" [{UNDEFINED}]" if np.isnan(item.low) else f" [{ends[0]}, {ends[1]}]"
    return f"{item.share:.3f}{interval}"


def _one(items: Sequence[Needed], regime: str, series: str) -> Needed | None:
    return next((item for item in items if (item.regime, item.series) == (regime, series)), None)


def marks_table(summary: Efficiency) -> TextTable:
    """What the adaptive planner was to show, and what it showed."""
    rows = []
    for regime in summary.regimes:
        cells = []
        for mark, aim in (("a", TARGETS_A.get(regime)), ("b", TARGET_B)):
            item = _one(summary.needed[mark, "cosine_error"], regime, ADAPTIVE)
            if item is None:
                cells += ["", ""]
                continue
            verdict = "" if aim is None else "reached" if item.share <= aim else "missed"
            cells += [share_cell(item), "" if aim is None else f"{aim:.3g}: {verdict}"]
        compared = [one for one in summary.comparisons if (one.regime, one.series) == (regime, ADAPTIVE)]
        if not any(cells) and not compared:
            continue
        lost = [one.episodes for one in compared if one.outcome == "loss"]
        worse = f"yes, at T = {', '.join(map(str, lost))}" if lost else "no" if compared else ""
        rows.append((REGIMES[regime].title, *cells, worse))
    return TextTable(
        "The adaptive planner against its marks",
        ("regime", "share for (a)", "aim", "share for (b)", "aim", "worse than Random"),
        tuple(rows),
        "Shares of the questions that the reference asks, by cosine error: (a) is the error of Random questions with "
        f"the paper's ridge ({PAPER}), (b) that of Random questions with the vocabulary prior ({BASELINE}), both after "
        "all their questions. In brackets: 95% bootstrap intervals over runs.",
    )


def main_series(summary: Efficiency) -> list[str]:
    """The series that figures show: the main ones, or the first six where there are none of them."""
    return [name for name in summary.series if name in MAIN_SERIES] or summary.series[:6]


def needed_table(summary: Efficiency, horizon: int, series: Sequence[str] | None = None) -> TextTable:
    """What the series (None: all) need in every regime, by cosine error; ``horizon`` questions are an episode."""
    rows = []
    for regime in summary.regimes:
        for name in summary.series if series is None else series:
            cells: list[str] = []
            runs = ""
            for mark in ("a", "b"):
                item = _one(summary.needed[mark, "cosine_error"], regime, name)
                if item is None:
                    cells += ["", ""]
                    continue
                questions = f"{horizon * item.episodes:.0f}" if np.isfinite(item.episodes) else "-"
                cells += [questions, share_cell(item)]
                runs = str(item.runs)
            if any(cells):
                rows.append((REGIMES[regime].title, name, *cells, runs))
    total = horizon * int(summary.index.episodes[-1]) if summary.index.episodes else 0
    return TextTable(
        "Questions needed (cosine error)",
        ("regime", "series", "for (a)", "share", "for (b)", "share", "runs"),
        tuple(rows),
        f"Of {total} questions ({total // horizon} episodes of {horizon}).",
    )


def metrics_table(summary: Efficiency) -> TextTable:
    """What the adaptive planner needs by each metric."""
    rows = []
    for regime in summary.regimes:
        for metric, name in METRICS.items():
            cells = []
            for mark in ("a", "b"):
                item = _one(summary.needed[mark, metric], regime, ADAPTIVE)
                cells.append("" if item is None else share_cell(item))
            if any(cells):
                rows.append((REGIMES[regime].title, name, *cells))
    return TextTable(
        "The adaptive planner by every metric",
        ("regime", "metric", "share for (a)", "share for (b)"),
        tuple(rows),
        "The regret is measured at a few T only, so its shares are coarse.",
    )


def comparison_table(summary: Efficiency) -> TextTable:
    """One row for each series and regime: outcome and difference at each T."""
    places = list(dict.fromkeys(one.episodes for one in summary.comparisons))
    rows = []
    for name in summary.series:
        for regime in summary.regimes:
            compared = {c.episodes: c for c in summary.comparisons if (c.series, c.regime) == (name, regime)}
            if compared:
                cells = [comparison_cell(compared[at]) if at in compared else "" for at in places]
                rows.append((name, REGIMES[regime].title, *cells))
    return TextTable(
        f"Win, tie or loss against {BASELINE}",
        ("series", "regime", *(f"T = {at}" for at in places)),
        tuple(rows),
        "Mean paired difference of the cosine error (below 0: the series is better) with its 95% bootstrap interval; a "
        "win or a loss is an interval that excludes 0. About one comparison in 20 does so by chance alone.",
    )


def comparison_cell(one: Comparison) -> str:
    """Outcome, mean difference and interval."""
    return f"{one.outcome} {one.difference.mean:+.3f} {bracket(*one.difference.interval, '+.3f')}"


def tally_lines(summary: Efficiency) -> list[str]:
    """Wins, ties and losses of each series over regimes and T."""
    lines = []
    for name in summary.series:
        outcomes = [one.outcome for one in summary.comparisons if one.series == name]
        if outcomes:
            won, tied, lost = (outcomes.count(kind) for kind in ("win", "tie", "loss"))
            lines.append(f"{name}: {won} wins, {tied} ties, {lost} losses")
    return lines


def pieces_table(summary: Efficiency) -> TextTable:
    """What each piece buys in each headline regime."""
    regimes = [name for name in summary.regimes if any(item.regime == name for item in summary.pieces)]
    rows = []
    for title, without, added in PIECES:
        bought = {item.regime: item for item in summary.pieces if item.title == title}
        if bought:
            cells = [factor_cell(bought[name]) if name in bought else "" for name in regimes]
            rows.append((title, f"{without} -> {added}", *cells))
    return TextTable(
        "What each piece buys",
        ("piece", "series", *(REGIMES[name].title for name in regimes)),
        tuple(rows),
        "How many times fewer questions for the same cosine error (the larger of the two errors after all questions), "
        "with 95% bootstrap intervals; below 1 the piece costs questions.",
    )


def factor_cell(item: Piece) -> str:
    """Factor and interval."""
    return f"{item.factor:.2f} {bracket(item.low, item.high, '.2f')}"


def curves_table(summary: Efficiency) -> TextTable:
    """Mean cosine error at some T."""
    places = [at for at in (1, 3, 10, 30, 60) if at in summary.index.episodes]
    means = summary.rows.groupby(["regime", "series", "episodes"])["cosine_error"].mean()
    rows = []
    for regime in summary.regimes:
        for name in summary.series:
            if (regime, name) in means.index.droplevel("episodes"):
                cells = [f"{means[regime, name, at]:.3f}" if (regime, name, at) in means.index else "" for at in places]
                rows.append((REGIMES[regime].title, name, *cells))
    return TextTable("Mean cosine error", ("regime", "series", *(f"T = {at}" for at in places)), tuple(rows))
