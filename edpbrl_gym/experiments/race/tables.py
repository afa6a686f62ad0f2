"""The tables of the race, for the terminal and for Markdown."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from edpbrl_gym.experiments.kit.ranks import AverageRanks, Blocks, average_ranks, block_values, rank_blocks
from edpbrl_gym.experiments.kit.statistics import PairedDifference, bracket, interval
from edpbrl_gym.experiments.kit.tables import TextTable
from edpbrl_gym.experiments.race.contenders import CONTENDERS, get_contender
from edpbrl_gym.experiments.race.settings import REGIMES, get_regime

__all__ = [
    "KNOWLEDGE",
    "METRICS",
    "SCORES",
    "Loss",
    "OURS",
    "Summary",
    "estimator_table",
    "headline_tables",
    "losses",
    "losses_table",
    "means_table",
    "ranking_table",
    "summarise",
    "time_tables",
]

SCORES: dict[str, str] = {"ours": "our estimator", "own": "its own estimator"}
# lower is better in all of them
METRICS: dict[str, str] = {
    "cosine_error": "cosine error",
    "preference_error": "preference error",
    "choice_error": "held-out choice error",
    "regret": "regret of the best item",
}
KNOWLEDGE: tuple[str, ...] = ("cosine_error", "preference_error", "choice_error")
_WHAT: dict[str, tuple[str, ...]] = {"knowledge": KNOWLEDGE, "regret": ("regret",)}
# ours by what it is after
OURS: dict[str, str] = {"knowledge": "ours", "regret": "ours-best"}


@dataclass(frozen=True, eq=False)
class Loss:
    """An arm that is better than ours in a regime.

    Attributes:
        regime: Name.
        what: "knowledge" or "regret".
        ours: Which of ours.
        arm: Who is better.
        difference: Rank of ours minus that of the other, over the blocks; above 0.
    """

    regime: str
    what: str
    ours: str
    arm: str
    difference: PairedDifference

    @property
    def sure(self) -> bool:
        """Whether the interval excludes 0."""
        return self.difference.sign > 0


@dataclass(frozen=True, eq=False)
class Summary:
    """Everything that tables and figures show.

    Attributes:
        regimes: Names that the results hold, in their order.
        arms: Names, in the order of the contenders.
        rankings: By (what, score, value): what "knowledge" or "regret", score "ours" or "own", value "area" or "last";
            over all regimes.
        pairs: By (what, score), over the regimes with K = 2 in which other packages ran.
        single: By (what, score, regime).
        losses: Where others are better than ours.
    """

    regimes: list[str]
    arms: list[str]
    rankings: dict[tuple[str, str, str], AverageRanks] = field(default_factory=dict)
    pairs: dict[tuple[str, str], AverageRanks] = field(default_factory=dict)
    single: dict[tuple[str, str, str], AverageRanks] = field(default_factory=dict)
    losses: list[Loss] = field(default_factory=list)


def summarise(table: Any) -> Summary:
    """Compute the summary of a results table."""
    present = set(table["arm"])
    arms = [name for name in dict.fromkeys((*CONTENDERS, *sorted(present))) if name in present]
    present_regimes = set(table["regime"])
    regimes = [name for name in REGIMES if name in present_regimes]
    summary = Summary(regimes, arms)
    packages = {name for name in arms if get_contender(name).family == "packages"}
    guests = set(table.loc[table["arm"].isin(packages), "regime"])
    pairs = [name for name in regimes if name in guests and get_regime(name).num_options == 2]
    for what, metrics in _WHAT.items():
        for score, name in SCORES.items():
            scored, title = table[table["score"] == score], f"{what}, {name}"
            for value in ("area", "last"):
                blocks = block_values(scored, metrics=metrics, regimes=regimes, value=value)
                if blocks is not None:
                    summary.rankings[what, score, value] = average_ranks(title, blocks)
            blocks = block_values(scored, metrics=metrics, regimes=pairs) if pairs else None
            if blocks is not None:
                summary.pairs[what, score] = average_ranks(f"{title}, K = 2", blocks)
            for regime in summary.regimes:
                blocks = block_values(scored, metrics=metrics, regimes=[regime])
                if blocks is not None:
                    summary.single[what, score, regime] = average_ranks(f"{title}, {get_regime(regime).title}", blocks)
    summary.losses.extend(losses(table, summary.regimes))
    return summary


def losses(table: Any, regimes: Sequence[str]) -> list[Loss]:
    """Contenders whose mean rank in a regime is better than that of ours, by our estimator, largest gap first.

    The two are compared with each other: ranks are those among all, their difference is resampled by blocks.
    """
    found = []
    for what, metrics in _WHAT.items():
        ours = OURS[what]
        for regime in regimes:
            blocks = block_values(table[table["score"] == "ours"], metrics=metrics, regimes=[regime])
            if blocks is None or ours not in blocks.arms:
                continue
            for arm, difference in _rank_differences(blocks, ours).items():
                if difference.mean > 0 and get_contender(arm).family != "ours":
                    found.append(Loss(regime, what, ours, arm, difference))
    return sorted(found, key=lambda loss: (regimes.index(loss.regime), loss.what, -loss.difference.mean))


def _rank_differences(blocks: Blocks, ours: str) -> dict[str, PairedDifference]:
    """Mean rank of ours minus that of each other arm, over the blocks of one regime."""
    ranks = np.mean([rank_blocks(values) for values in blocks.values.values()], axis=0)
    own = ranks[:, blocks.arms.index(ours)]
    return {arm: PairedDifference(own - ranks[:, place]) for place, arm in enumerate(blocks.arms) if arm != ours}


# -- ranks -----------------------------------------------------------------------------------------------------------


def headline_tables(summary: Summary) -> list[TextTable]:
    """The tables for the terminal: ranks by our estimator, over all regimes."""
    found = [
        ranking_table(summary.rankings[what, "ours", "area"], what, regimes=False)
        for what in _WHAT
        if (what, "ours", "area") in summary.rankings
    ]
    return [table for table in found if table.rows]


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
                get_contender(arm).title,
                f"{ranked.ranks[place]:.2f}{_ends(ranked.low[place], ranked.high[place])}",
                behind,
                *(f"{ranks[place]:.1f}" for ranks in columns.values()),
            )
        )
    return TextTable(
        f"Average ranks: {ranked.title}",
        ("contender", "what it is", "average rank", "behind the first", *columns),
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
        f"By {metrics}; {number}, {len(ranked.arms)} contenders. {intervals}{friedman} Critical difference (Nemenyi, "
        f"5%): {ranked.difference:.2f}.{missing}"
    )


def losses_table(summary: Summary) -> TextTable:
    """Where ours is not the best: a row for each regime and metric, with those who are ahead."""
    found: dict[tuple[str, str, str], list[Loss]] = {}
    for loss in summary.losses:
        found.setdefault((loss.regime, loss.what, loss.ours), []).append(loss)
    rows = []
    for (regime, what, ours), ahead in found.items():
        sure = [
            f"{loss.arm} {loss.difference.mean:.1f}{_ends(*loss.difference.interval)}" for loss in ahead if loss.sure
        ]
        others = [f"{loss.arm} {loss.difference.mean:.1f}" for loss in ahead if not loss.sure]
        rows.append((get_regime(regime).title, what, ours, "; ".join(sure) or "-", "; ".join(others) or "-"))
    return TextTable(
        "What ours loses at",
        ("regime", "what", "ours", "ahead, interval excludes 0", "ahead, interval includes 0"),
        tuple(rows),
        "Contenders whose average rank in a regime is better than that of ours, by so many ranks, scored by our "
        "estimator (mean over the checkpoints); 95% bootstrap intervals over the blocks of the regime, not corrected "
        "for the number of contenders. A regime with one block has no interval: all of it stands on the right. For "
        "knowledge ours is `ours`, for regret `ours-best`.",
    )


# -- means, estimators, times ----------------------------------------------------------------------------------------


def means_table(summary: Summary, table: Any, regime: str) -> TextTable:
    """Mean of every metric in a regime by our estimator: over the checkpoints, and at the last one."""
    rows = []
    own = table[(table["regime"] == regime) & (table["score"] == "ours")]
    for arm in summary.arms:
        mine = own[own["arm"] == arm].sort_values("episodes")
        if not len(mine):
            continue
        cells = []
        for metric in METRICS:
            measured = mine.dropna(subset=[metric]).groupby(["seed", "user"])[metric]
            for values in (measured.mean().to_numpy(dtype=float), measured.last().to_numpy(dtype=float)):
                low, high = interval(values)
                cells.append(f"{values.mean():.3f} {bracket(low, high, '.3f')}")
        rows.append((arm, *cells))
    header = tuple(f"{name}, {when}" for name in METRICS.values() for when in ("mean", "last"))
    questions = sorted({int(value) for value in own["questions"]})
    return TextTable(
        get_regime(regime).title,
        ("contender", *header),
        tuple(rows),
        f"Our estimator. Mean: over the checkpoints, after {', '.join(map(str, questions))} questions. Brackets: 95% "
        f"bootstrap intervals over blocks ({own[['seed', 'user']].drop_duplicates().shape[0]}).",
    )


def _by_regime(summary: Summary, table: Any, title: str, note: str, cell: Callable[[Any], str]) -> TextTable:
    """A row for each contender, a column for each regime; ``cell`` says what a contender's rows there come to."""
    found = {key: cell(rows) for key, rows in table.groupby(["arm", "regime"])}
    rows = [(arm, *(found.get((arm, regime), "") for regime in summary.regimes)) for arm in summary.arms]
    return TextTable(title, ("contender", *summary.regimes), tuple(rows), note)


def estimator_table(summary: Summary, table: Any, metric: str) -> TextTable:
    """What our estimator makes of each contender's answers, and what its own does."""

    def cell(rows: Any) -> str:
        means = rows.groupby("score")[metric].mean()
        return " / ".join("-" if np.isnan(means[score]) else f"{means[score]:.3f}" for score in SCORES)

    note = (
        "Our estimator / its own on the same answers, means over blocks and checkpoints. The rules of the literature "
        "estimate with a ridge of 1, the paper's designs with a ridge of 100; where a dash stands the contender "
        "estimates no taste."
    )
    return _by_regime(summary, table, f"Both estimators: {METRICS[metric]}", note, cell)


def time_tables(summary: Summary, table: Any) -> list[TextTable]:
    """CPU time of the questions of every contender in every regime, and until the first of them."""
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
            "Setup and first question, medians over blocks. Contenders that need no answers do nearly all of their "
            "work here; designs that all seeds share were solved before and are not counted.",
            first,
        ),
    ]


def _ms(seconds: float) -> str:
    value = 1e3 * float(seconds)
    return f"{value:.0f}" if value >= 9.95 else f"{value:.1f}"
