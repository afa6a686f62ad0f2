"""The tables of the benchmark, for the terminal and for Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from edpbrl_gym.experiments.kit.statistics import UNDEFINED, bracket
from edpbrl_gym.experiments.kit.tables import TextTable
from edpbrl_gym.experiments.query_bench.arms import ABLATION_ARMS, HEADLINE_ARMS, get_arm
from edpbrl_gym.experiments.query_bench.settings import REGIMES
from edpbrl_gym.experiments.query_bench.summary import (
    BASELINE,
    METRICS,
    PAPER,
    PIECES,
    Comparison,
    Needed,
    Piece,
    RunIndex,
    compare,
    needed,
    piece,
)
from edpbrl_gym.experiments.runs import Results

__all__ = [
    "TARGETS_A",
    "TARGET_B",
    "Summary",
    "curves_table",
    "comparison_table",
    "headline_tables",
    "main_arms",
    "marks_table",
    "metrics_table",
    "needed_table",
    "pieces_table",
    "summarise",
    "tally_lines",
    "time_table",
]

# what the default agent was to reach: share of the questions of mark (a) by regime, and of mark (b) everywhere
TARGETS_A: dict[str, float] = {"argmax": 1 / 8, "scale-50": 1 / 8, "scale-20": 1 / 5, "scale-5": 1 / 3}
TARGET_B = 0.6
DEFAULT = "adaptive"
_COMPARED_AT = (10, 30, 60)


@dataclass(frozen=True, eq=False)
class Summary:
    """Everything that tables and figures show.

    Attributes:
        regimes: Names that the results hold, in their order.
        arms: Names, in their order.
        needed: By (mark, metric): what the arms need, mark "a" or "b"; only the default agent in metrics other than the
            cosine error.
        comparisons: Every arm against Random with our estimator.
        pieces: What each piece buys in each headline regime.
    """

    regimes: list[str]
    arms: list[str]
    needed: dict[tuple[str, str], list[Needed]] = field(default_factory=dict)
    comparisons: list[Comparison] = field(default_factory=list)
    pieces: list[Piece] = field(default_factory=list)


def summarise(table: Any) -> Summary:
    """Compute the summary of a results table."""
    regimes = [name for name in REGIMES if (table["regime"] == name).any()]
    present = set(table["arm"])
    arms = [name for name in dict.fromkeys((*HEADLINE_ARMS, *ABLATION_ARMS, *sorted(present))) if name in present]
    summary = Summary(regimes, arms)
    runs = RunIndex(table)
    for mark, reference in (("a", PAPER), ("b", BASELINE)):
        for metric in METRICS:
            asked = arms if metric == "cosine_error" else [DEFAULT]
            found = [needed(runs, regime, arm, reference, metric) for regime in regimes for arm in asked]
            summary.needed[mark, metric] = [item for item in found if item is not None and item.arm != reference]
    last = int(table["episodes"].max())
    for episodes in dict.fromkeys([*(at for at in _COMPARED_AT if at < last), last]):
        for regime in regimes:
            others = [arm for arm in arms if arm != BASELINE]
            compared = [compare(runs, regime, arm, BASELINE, "cosine_error", episodes) for arm in others]
            summary.comparisons.extend(one for one in compared if one is not None)
    for title, without, given in PIECES:
        for regime in regimes:
            if REGIMES[regime].headline:
                bought = piece(runs, regime, title, without, given)
                summary.pieces.extend([] if bought is None else [bought])
    return summary


def headline_tables(results: Results, summary: Summary | None = None) -> list[TextTable]:
    """The tables for the terminal: the marks, and questions needed in cosine error by the arms that figures show."""
    found = summarise(results.table) if summary is None else summary
    return [table for table in (marks_table(found), needed_table(found, results, main_arms(found))) if table.rows]


def share_cell(item: Needed) -> str:
    """Share of the reference's questions as text, with its interval."""
    if not np.isfinite(item.share):
        return "not reached"
    ends = [f"{end / item.of:.3f}" if np.isfinite(end) else "beyond" for end in (item.low, item.high)]
    interval = f" [{UNDEFINED}]" if np.isnan(item.low) else f" [{ends[0]}, {ends[1]}]"
    return f"{item.share:.3f}{interval}"


def _one(items: Sequence[Needed], regime: str, arm: str) -> Needed | None:
    return next((item for item in items if (item.regime, item.arm) == (regime, arm)), None)


def marks_table(summary: Summary) -> TextTable:
    """What the default agent was to show, and what it showed."""
    rows = []
    for regime in summary.regimes:
        cells = []
        for mark, aim in (("a", TARGETS_A.get(regime)), ("b", TARGET_B)):
            item = _one(summary.needed[mark, "cosine_error"], regime, DEFAULT)
            if item is None:
                cells += ["", ""]
                continue
            verdict = "" if aim is None else "reached" if item.share <= aim else "missed"
            cells += [share_cell(item), "" if aim is None else f"{aim:.3g}: {verdict}"]
        compared = [one for one in summary.comparisons if (one.regime, one.arm) == (regime, DEFAULT)]
        if not any(cells) and not compared:
            continue
        lost = [one.episodes for one in compared if one.outcome == "loss"]
        worse = f"yes, at T = {', '.join(map(str, lost))}" if lost else "no" if compared else ""
        rows.append((REGIMES[regime].title, *cells, worse))
    return TextTable(
        "The default agent against its marks",
        ("regime", "share for (a)", "aim", "share for (b)", "aim", "worse than Random"),
        tuple(rows),
        "Shares of the questions that the reference asks, by cosine error: (a) is the error of Random questions with "
        f"the paper's ridge (lambda 100), (b) that of Random questions with our estimator ({BASELINE}), both after all "
        "their questions. In brackets: 95% bootstrap intervals over runs.",
    )


def main_arms(summary: Summary) -> list[str]:
    """The arms that figures show: those of the headline, or the first six where there are none of them."""
    return [arm for arm in summary.arms if arm in HEADLINE_ARMS] or summary.arms[:6]


def needed_table(summary: Summary, results: Results, arms: Sequence[str] | None = None) -> TextTable:
    """What the arms (None: all) need in every regime, by cosine error."""
    horizon = len(results.provenance["steps"])
    rows = []
    for regime in summary.regimes:
        for arm in summary.arms if arms is None else arms:
            cells: list[str] = []
            runs = ""
            for mark in ("a", "b"):
                item = _one(summary.needed[mark, "cosine_error"], regime, arm)
                if item is None:
                    cells += ["", ""]
                    continue
                questions = f"{horizon * item.episodes:.0f}" if np.isfinite(item.episodes) else "-"
                cells += [questions, share_cell(item)]
                runs = str(item.runs)
            if any(cells):
                rows.append((REGIMES[regime].title, arm, *cells, runs))
    total = horizon * int(results.table["episodes"].max())
    return TextTable(
        "Questions needed (cosine error)",
        ("regime", "arm", "for (a)", "share", "for (b)", "share", "runs"),
        tuple(rows),
        f"Of {total} questions ({total // horizon} episodes of {horizon}).",
    )


def metrics_table(summary: Summary) -> TextTable:
    """What the default agent needs by each metric."""
    rows = []
    for regime in summary.regimes:
        for metric, name in METRICS.items():
            cells = []
            for mark in ("a", "b"):
                item = _one(summary.needed[mark, metric], regime, DEFAULT)
                cells.append("" if item is None else share_cell(item))
            if any(cells):
                rows.append((REGIMES[regime].title, name, *cells))
    return TextTable(
        "The default agent by every metric",
        ("regime", "metric", "share for (a)", "share for (b)"),
        tuple(rows),
        "The regret of the best prompt is measured at a few T only, so its shares are coarse.",
    )


def comparison_table(summary: Summary) -> TextTable:
    """One row an arm and regime: outcome and difference at each T."""
    places = list(dict.fromkeys(one.episodes for one in summary.comparisons))
    rows = []
    for arm in summary.arms:
        for regime in summary.regimes:
            compared = {c.episodes: c for c in summary.comparisons if (c.arm, c.regime) == (arm, regime)}
            if compared:
                cells = [comparison_cell(compared[at]) if at in compared else "" for at in places]
                rows.append((arm, REGIMES[regime].title, *cells))
    return TextTable(
        f"Win, tie or loss against {BASELINE}",
        ("arm", "regime", *(f"T = {at}" for at in places)),
        tuple(rows),
        "Mean paired difference of the cosine error (below 0: the arm is better) with its 95% bootstrap interval; a "
        "win or a loss is an interval that excludes 0. About one comparison in 20 does so by chance alone.",
    )


def comparison_cell(one: Comparison) -> str:
    """Outcome, mean difference and interval."""
    return f"{one.outcome} {one.difference.mean:+.3f} {bracket(*one.difference.interval, '+.3f')}"


def tally_lines(summary: Summary) -> list[str]:
    """Wins, ties and losses of each arm over regimes and T."""
    lines = []
    for arm in summary.arms:
        outcomes = [one.outcome for one in summary.comparisons if one.arm == arm]
        if outcomes:
            won, tied, lost = (outcomes.count(kind) for kind in ("win", "tie", "loss"))
            lines.append(f"{arm}: {won} wins, {tied} ties, {lost} losses")
    return lines


def pieces_table(summary: Summary) -> TextTable:
    """What each piece buys in each headline regime."""
    regimes = [name for name in summary.regimes if any(item.regime == name for item in summary.pieces)]
    rows = []
    for title, without, given in PIECES:
        found = {item.regime: item for item in summary.pieces if item.title == title}
        if found:
            cells = [factor_cell(found[name]) if name in found else "" for name in regimes]
            rows.append((title, f"{without} -> {given}", *cells))
    return TextTable(
        "What each piece buys",
        ("piece", "arms", *(REGIMES[name].title for name in regimes)),
        tuple(rows),
        "How many times fewer questions for the same cosine error (the larger of the two errors after all questions), "
        "with 95% bootstrap intervals; below 1 the piece costs questions.",
    )


def factor_cell(item: Piece) -> str:
    """Factor and interval."""
    return f"{item.factor:.2f} {bracket(item.low, item.high, '.2f')}"


def time_table(summary: Summary, table: Any) -> TextTable:
    """Time of a question for each arm."""
    last = table[table["episodes"] == table["episodes"].max()]
    rows = []
    for arm in summary.arms:
        own = last[last["arm"] == arm]
        without, encoder, think, estimate = (
            1e3 * float(own[f"seconds_{part}"].median()) for part in ("question", "encoder", "think", "estimate")
        )
        cells = (without, without + encoder, think, estimate)
        rows.append((arm, get_arm(arm).title, *(f"{value:.1f}" for value in cells)))
    return TextTable(
        "Milliseconds per question",
        ("arm", "what it is", "without the encoder", "with it", "while one looks", "an estimate at the largest T"),
        tuple(rows),
        "CPU time on one core, medians over runs. Adaptive arms: choosing a question and taking in its answer; what is "
        "done while the person looks at the options makes nobody wait. Static arms: design and draw divided by the "
        "questions.",
    )


def curves_table(summary: Summary, table: Any) -> TextTable:
    """Mean cosine error at some T."""
    places = [at for at in (1, 3, 10, 30, 60) if (table["episodes"] == at).any()]
    means = table.groupby(["regime", "arm", "episodes"])["cosine_error"].mean()
    rows = []
    for regime in summary.regimes:
        for arm in summary.arms:
            if (regime, arm) in means.index.droplevel("episodes"):
                cells = [f"{means[regime, arm, at]:.3f}" if (regime, arm, at) in means.index else "" for at in places]
                rows.append((REGIMES[regime].title, arm, *cells))
    return TextTable("Mean cosine error", ("regime", "arm", *(f"T = {at}" for at in places)), tuple(rows))
