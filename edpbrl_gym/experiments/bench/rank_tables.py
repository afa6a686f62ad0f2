"""Average ranks of the arms, where others are better, means and times: the tables of the planner comparison."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from edpbrl_gym.experiments.bench.arms import get_arm
from edpbrl_gym.experiments.bench.measuring import KNOWLEDGE, METRICS
from edpbrl_gym.experiments.bench.settings import REGIMES, get_regime
from edpbrl_gym.experiments.bench.studies import STUDIES
from edpbrl_gym.reporting.ranks import AverageRanks, Blocks, average_ranks, block_values, rank_blocks
from edpbrl_gym.reporting.statistics import PairedDifference, bracket, interval
from edpbrl_gym.reporting.tables import TextTable

__all__ = [
    "ADAPTIVE_FOR",
    "ESTIMATES",
    "Loss",
    "Ranks",
    "estimator_table",
    "losses",
    "losses_table",
    "means_table",
    "rank_headline",
    "ranking_table",
    "scored_by",
    "summarise_ranks",
    "time_tables",
]

ESTIMATES: dict[str, str] = {"common": "by the vocabulary prior", "own": "by the estimate of its own"}
"""By which estimate arms are ranked: one for all, which isolates the choice of the questions, or that of each arm."""

_WHAT: dict[str, tuple[str, ...]] = {"knowledge": KNOWLEDGE, "regret": ("regret",)}

ADAPTIVE_FOR: dict[str, str] = {"knowledge": "adaptive", "regret": "adaptive-best"}
"""The adaptive planner by what it is after."""


def scored_by(table: Any, estimate: str) -> Any:
    """The rows of a results table with the estimate of ``ESTIMATES``."""
    if estimate == "common":
        return table[table["estimator"] == "vocabulary"]
    own = table["arm"].map({name: get_arm(name).estimator for name in table["arm"].unique()})
    return table[table["estimator"] == own]


@dataclass(frozen=True, eq=False)
class Loss:
    """An arm that is better than the adaptive planner in a regime.

    Attributes:
        regime: Name.
        what: "knowledge" or "regret".
        adaptive: The adaptive planner that is after it.
        arm: The better one.
        difference: Rank of the adaptive planner minus that of the other, over the blocks; above 0.
    """

    regime: str
    what: str
    adaptive: str
    arm: str
    difference: PairedDifference

    @property
    def sure(self) -> bool:
        """Whether the interval excludes 0."""
        return self.difference.sign > 0


@dataclass(frozen=True, eq=False)
class Ranks:
    """Everything that tables and figures show.

    Attributes:
        regimes: Names that the results hold, in their order.
        arms: Names, in the order of the study.
        rankings: By (what, estimate, value): what "knowledge" or "regret", estimate "common" or "own", value "area" or
            "last"; over all regimes.
        pairs: By (what, estimate), over the regimes with K = 2 in which planners of other packages ran.
        single: By (what, estimate, regime).
        losses: Where others are better than the adaptive planner.
    """

    regimes: list[str]
    arms: list[str]
    rankings: dict[tuple[str, str, str], AverageRanks] = field(default_factory=dict)
    pairs: dict[tuple[str, str], AverageRanks] = field(default_factory=dict)
    single: dict[tuple[str, str, str], AverageRanks] = field(default_factory=dict)
    losses: list[Loss] = field(default_factory=list)


def summarise_ranks(table: Any) -> Ranks:
    """Compute the summary of a results table."""
    present = set(table["arm"])
    arms = [name for name in dict.fromkeys((*STUDIES["comparison"].arms, *sorted(present))) if name in present]
    present_regimes = set(table["regime"])
    regimes = [name for name in REGIMES if name in present_regimes]
    summary = Ranks(regimes, arms)
    external = {name for name in arms if get_arm(name).family == "external"}
    shared = set(table.loc[table["arm"].isin(external), "regime"])
    pairs = [name for name in regimes if name in shared and get_regime(name).num_options == 2]
    for what, metrics in _WHAT.items():
        for estimate, name in ESTIMATES.items():
            scored, title = scored_by(table, estimate), f"{what}, {name}"
            for value in ("area", "last"):
                blocks = block_values(scored, metrics=metrics, regimes=regimes, value=value)
                if blocks is not None:
                    summary.rankings[what, estimate, value] = average_ranks(title, blocks)
            blocks = block_values(scored, metrics=metrics, regimes=pairs) if pairs else None
            if blocks is not None:
                summary.pairs[what, estimate] = average_ranks(f"{title}, K = 2", blocks)
            for regime in summary.regimes:
                blocks = block_values(scored, metrics=metrics, regimes=[regime])
                if blocks is not None:
                    summary.single[what, estimate, regime] = average_ranks(
                        f"{title}, {get_regime(regime).title}", blocks
                    )
    summary.losses.extend(losses(table, summary.regimes))
    return summary


def losses(table: Any, regimes: Sequence[str]) -> list[Loss]:
    """Arms whose mean rank in a regime is better than that of the adaptive planner, by the common estimate.

    Ordered by regime, then the largest difference first.

    The two are compared with each other: ranks are those among all, their difference is resampled by blocks.
    """
    behind = []
    for what, metrics in _WHAT.items():
        adaptive = ADAPTIVE_FOR[what]
        for regime in regimes:
            blocks = block_values(scored_by(table, "common"), metrics=metrics, regimes=[regime])
            if blocks is None or adaptive not in blocks.arms:
                continue
            for arm, difference in _rank_differences(blocks, adaptive).items():
                if difference.mean > 0 and get_arm(arm).family not in ("adaptive", "design"):
                    behind.append(Loss(regime, what, adaptive, arm, difference))
    return sorted(behind, key=lambda loss: (regimes.index(loss.regime), loss.what, -loss.difference.mean))


def _rank_differences(blocks: Blocks, name: str) -> dict[str, PairedDifference]:
    """Mean rank of an arm minus that of each other one, over the blocks of one regime."""
    ranks = np.mean([rank_blocks(values) for values in blocks.values.values()], axis=0)
    of_arm = ranks[:, blocks.arms.index(name)]
    return {arm: PairedDifference(of_arm - ranks[:, place]) for place, arm in enumerate(blocks.arms) if arm != name}


# -- ranks -----------------------------------------------------------------------------------------------------------


def rank_headline(summary: Ranks) -> list[TextTable]:
    """The tables for the terminal: ranks by the common estimate, over all regimes."""
    tables = [
        ranking_table(summary.rankings[what, "common", "area"], what, regimes=False)
        for what in _WHAT
        if (what, "common", "area") in summary.rankings
    ]
    return [table for table in tables if table.rows]


def ranking_table(ranked: AverageRanks, what: str, *, regimes: bool = True) -> TextTable:
    """Average ranks with intervals, the difference to the first, and the ranks by regime (unless they are left out)."""
    rows = []
    columns = ranked.by_regime if regimes else {}
    tied = set(ranked.tied)
    for place, arm in enumerate(ranked.arms):
        behind = "first"
        if place:
            gap = ranked.ranks[place] - ranked.ranks[0]
            behind = f"+{gap:.2f}{_ends(ranked.behind_low[place], ranked.behind_high[place])}"
            behind += " (tied)" if arm in tied else ""
        rows.append(
            (
                arm,
                get_arm(arm).title,
                f"{ranked.ranks[place]:.2f}{_ends(ranked.low[place], ranked.high[place])}",
                behind,
                *(f"{ranks[place]:.1f}" for ranks in columns.values()),
            )
        )
    return TextTable(
        f"Average ranks: {ranked.title}",
        ("arm", "what it is", "average rank", "behind the first", *columns),
        tuple(rows),
        _note(ranked, what),
    )


def _ends(low: float, high: float) -> str:
    return f" {bracket(low, high, '.2f')}"


def _note(ranked: AverageRanks, what: str) -> str:
    metrics = ", ".join(METRICS[name] for name in _WHAT[what])
    number = f"{ranked.blocks} blocks" if ranked.blocks > 1 else "1 block"
    friedman = "" if np.isnan(ranked.friedman) else f" Friedman's test that all are alike: p = {ranked.friedman:.2g}."
    missing = ""
    if ranked.left_out:
        missing = f" Not ranked, because they have no value in some of the blocks: {', '.join(ranked.left_out)}."
    intervals = (
        "In brackets: 95% bootstrap intervals over blocks; tied: that of the difference to the first includes 0."
    )
    if not ranked.known:
        intervals = "No intervals, and nobody can be called tied: a regime has a single block."
    return (
        f"By {metrics}; {number}, {len(ranked.arms)} arms. {intervals}{friedman} Critical difference (Nemenyi, "
        f"5%): {ranked.difference:.2f}.{missing}"
    )


def losses_table(summary: Ranks) -> TextTable:
    """Where the adaptive planner is not the best: a row for each regime and metric, with the arms that are better."""
    behind: dict[tuple[str, str, str], list[Loss]] = {}
    for loss in summary.losses:
        behind.setdefault((loss.regime, loss.what, loss.adaptive), []).append(loss)
    rows = []
    for (regime, what, adaptive), better in behind.items():
        sure = [
            f"{loss.arm} {loss.difference.mean:.1f}{_ends(*loss.difference.interval)}" for loss in better if loss.sure
        ]
        others = [f"{loss.arm} {loss.difference.mean:.1f}" for loss in better if not loss.sure]
        rows.append((get_regime(regime).title, what, adaptive, "; ".join(sure) or "-", "; ".join(others) or "-"))
    return TextTable(
        "Where other arms are better",
        ("regime", "what", "than", "better, interval excludes 0", "better, interval includes 0"),
        tuple(rows),
        "Arms whose average rank in a regime is better than that of the adaptive planner, by so many ranks, estimated "
        "by the vocabulary prior (mean over the checkpoints); 95% bootstrap intervals over the blocks of the regime, "
        "not corrected for the number of arms. A regime with one block has no interval: all of it stands on the right.",
    )


# -- means, estimators, times ----------------------------------------------------------------------------------------


def means_table(summary: Ranks, table: Any, regime: str) -> TextTable:
    """Mean of every metric in a regime by the common estimate: over the checkpoints, and at the last one."""
    rows = []
    scored = scored_by(table[table["regime"] == regime], "common")
    for arm in summary.arms:
        of_arm = scored[scored["arm"] == arm].sort_values("episodes")
        if not len(of_arm):
            continue
        cells = []
        for metric in METRICS:
            measured = of_arm.dropna(subset=[metric]).groupby(["seed", "user"])[metric]
            for values in (measured.mean().to_numpy(dtype=float), measured.last().to_numpy(dtype=float)):
                low, high = interval(values)
                cells.append(f"{values.mean():.3f} {bracket(low, high, '.3f')}")
        rows.append((arm, *cells))
    header = tuple(f"{name}, {when}" for name in METRICS.values() for when in ("mean", "last"))
    questions = sorted({int(value) for value in scored["questions"]})
    return TextTable(
        get_regime(regime).title,
        ("arm", *header),
        tuple(rows),
        f"By the vocabulary prior. Mean: over the checkpoints, after {', '.join(map(str, questions))} questions. "
        f"Brackets: 95% bootstrap intervals over blocks ({scored[['seed', 'user']].drop_duplicates().shape[0]}).",
    )


def _by_regime(summary: Ranks, table: Any, title: str, note: str, cell: Callable[[Any], str]) -> TextTable:
    """A row for each arm, a column for each regime; ``cell`` says what the rows of an arm there come to."""
    texts = {key: cell(rows) for key, rows in table.groupby(["arm", "regime"])}
    rows = [(arm, *(texts.get((arm, regime), "") for regime in summary.regimes)) for arm in summary.arms]
    return TextTable(title, ("arm", *summary.regimes), tuple(rows), note)


def estimator_table(summary: Ranks, table: Any, metric: str) -> TextTable:
    """What the estimators make of the answers of each arm."""

    def cell(rows: Any) -> str:
        means = [scored_by(rows, estimate)[metric].mean() for estimate in ESTIMATES]
        return " / ".join("-" if np.isnan(mean) else f"{mean:.3f}" for mean in means)

    note = (
        "By the vocabulary prior / by the estimate that belongs to the arm, from the same answers, means over blocks "
        "and checkpoints. The rules of the literature estimate with a ridge of 1, ED-PBRL with a ridge of 100; where a "
        "dash stands the arm estimates no taste."
    )
    return _by_regime(summary, table, f"Both estimates: {METRICS[metric]}", note, cell)


def time_tables(summary: Ranks, table: Any) -> list[TextTable]:
    """CPU time of every arm in every regime: until the first question, of a question, and while a person looks."""
    last = table[table["episodes"] == table.groupby("regime")["episodes"].transform("max")]

    def question(rows: Any) -> str:
        return f"{_ms(rows['seconds_question'].median())} ({_ms(rows['seconds_longest'].median())})"

    def first(rows: Any) -> str:
        return _ms((rows["seconds_setup"] + rows["seconds_first"]).median())

    means = last.groupby(["arm", "regime"])["seconds_question"].median()
    slow = [f"{arm} in {regime} ({seconds:.1f} s)" for (arm, regime), seconds in means.items() if seconds >= 1.0]
    verdict = f"Not under a second: {'; '.join(slow)}." if slow else "All stay under a second on average."
    return [
        _by_regime(
            summary,
            last,
            "Milliseconds per question",
            "CPU time on one core: mean (longest) of a run's questions after the first, medians over blocks; choosing "
            f"the question and taking in the answer before. Embedding the options is not counted. {verdict}",
            question,
        ),
        _by_regime(
            summary,
            last,
            "Milliseconds until the first question",
            "Setup and first question, medians over blocks; of a design: planning, and drawing all questions.",
            first,
        ),
        _by_regime(
            summary,
            last,
            "Milliseconds of work while the person looks at the options",
            "Mean of a run's questions, medians over blocks: nobody waits for it.",
            lambda rows: _ms(rows["seconds_think"].median()),
        ),
    ]


def _ms(seconds: float) -> str:
    value = 1e3 * float(seconds)
    return f"{value:.0f}" if value >= 9.95 else f"{value:.1f}"
