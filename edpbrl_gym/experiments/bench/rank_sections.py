"""The planner comparison in the report: ranks, where others are better, learning curves, estimates, means."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from edpbrl_gym.experiments.bench.arms import get_arm
from edpbrl_gym.experiments.bench.measuring import METRICS
from edpbrl_gym.experiments.bench.rank_tables import (
    ADAPTIVE_FOR,
    Ranks,
    estimator_table,
    losses_table,
    means_table,
    ranking_table,
    scored_by,
)
from edpbrl_gym.experiments.bench.settings import get_regime
from edpbrl_gym.experiments.runs import Results
from edpbrl_gym.reporting.figures import PALETTE, Curve, Look, Panel, curves_figure
from edpbrl_gym.reporting.rank_figures import ArmLabel, heat_figure, ranks_figure
from edpbrl_gym.reporting.ranks import AverageRanks
from edpbrl_gym.reporting.report import Picture, Section, Text, bullets
from edpbrl_gym.reporting.tables import TextTable

__all__ = ["LIMITS", "rank_sections"]

_LOOKS: dict[str, Look] = {
    "adaptive": Look(PALETTE[0], "-", "o"),
    "adaptive-best": Look(PALETTE[4], "-", "P"),
    "random": Look("#000000", (0, (1, 1)), "X"),
    "ed-pbrl": Look(PALETTE[1], "--", "s"),
    "ed-pbrl-exact": Look(PALETTE[1], ":", "D"),
}
_SPARE = (
    Look(PALETTE[2], "-.", "^"),
    Look(PALETTE[3], (0, (5, 1)), "v"),
    Look(PALETTE[5], (0, (3, 1, 1, 1)), "d"),
)
_FAMILY_COLOURS = {
    "adaptive": PALETTE[0],
    "design": PALETTE[2],
    "paper": PALETTE[1],
    "literature": "#000000",
    "external": PALETTE[3],
    "baseline": "#777777",
}


def rank_sections(results: Results, summary: Ranks) -> list[Section]:
    """All that a run says of who is better than whom; nothing where no two arms share a block."""
    if not summary.rankings:
        return []
    table, rankings, pairs = results.table, summary.rankings, summary.pairs
    return [
        Text(bullets(_headline(summary)), "Average ranks", level=1),
        *_ranks_picture("ranks", "Average ranks by the vocabulary prior", rankings, "common", "area"),
        *_losses(summary),
        *_rank_tables(rankings, "common", "area"),
        *_heat_picture(summary),
        *_curves_picture(results, summary, "rank-curves", "Learning curves", "knowledge", "cosine_error"),
        *_curves_picture(results, summary, "regret", "Regret of the best item", "regret", "regret"),
        Text(
            [
                "Above, one estimator learns from everybody's answers, which isolates the choice of the questions. "
                "Here every arm is judged by the estimate that belongs to it."
            ],
            "End to end",
            level=1,
        ),
        *_ranks_picture("own", "Average ranks end to end", rankings, "own", "area"),
        *_rank_tables(rankings, "own", "area"),
        estimator_table(summary, table, "cosine_error"),
        estimator_table(summary, table, "regret"),
        *([Text(title="Pairs, with other packages", level=1)] if pairs else []),
        *_ranks_picture("pairs", "Average ranks with K = 2, other packages among them", pairs, "common"),
        *_rank_tables(pairs, "common"),
        *_rank_tables(pairs, "own"),
        *_single_tables(summary),
        Text(title="After the last question", level=1),
        *_rank_tables(rankings, "common", "last"),
        Text(title="Means", level=1),
        *(means_table(summary, table, regime) for regime in summary.regimes),
    ]


# -- ranks -----------------------------------------------------------------------------------------------------------


def _label(arm: str) -> ArmLabel:
    named = get_arm(arm)
    return ArmLabel(named.title, _FAMILY_COLOURS[named.family], named.family == "adaptive")


def _ranks_picture(name: str, caption: str, rankings: Mapping[Any, AverageRanks], *key: str) -> list[Picture]:
    chosen = [rankings[what, *key] for what in ADAPTIVE_FOR if (what, *key) in rankings]
    return [Picture(name, caption, ranks_figure(chosen, _label))] if chosen else []


def _rank_tables(rankings: Mapping[Any, AverageRanks], *key: str) -> list[TextTable]:
    return [ranking_table(rankings[what, *key], what) for what in ADAPTIVE_FOR if (what, *key) in rankings]


def _heat_picture(summary: Ranks) -> list[Picture]:
    chosen = [
        (what, summary.rankings[what, "common", "area"])
        for what in ADAPTIVE_FOR
        if (what, "common", "area") in summary.rankings
    ]
    return [Picture("regimes", "Average ranks by regime", heat_figure(chosen, _label))] if chosen else []


def _single_tables(summary: Ranks) -> list[TextTable]:
    """Ranks in the regimes of those who run in too few to be ranked over all pairs, such as Optuna."""
    tables = []
    for what in ADAPTIVE_FOR:
        over_all = summary.pairs.get((what, "common"))
        late = set() if over_all is None else set(over_all.left_out)
        for (kind, estimate, regime), item in summary.single.items():
            if (kind, estimate) == (what, "common") and regime in (over_all.by_regime if over_all else ()):
                if late & set(item.arms):
                    tables.append(ranking_table(item, what, regimes=False))
    return tables


# -- curves ----------------------------------------------------------------------------------------------------------


def _curves_picture(results: Results, summary: Ranks, name: str, caption: str, what: str, metric: str) -> list[Picture]:
    """A metric against the questions answered, by the common estimate, a panel for each regime.

    In colour are the adaptive planners, ED-PBRL, Random and the three best of the others; all others are grey.
    """
    ranked = summary.rankings.get((what, "common", "area"))
    if ranked is None:
        return []
    best = [arm for arm in ranked.arms if arm not in _LOOKS][: len(_SPARE)]
    looks = {arm: _LOOKS.get(arm) or _SPARE[best.index(arm)] for arm in ranked.arms if arm in _LOOKS or arm in best}
    table = scored_by(results.table, "common").dropna(subset=[metric])
    panels = []
    for regime in ranked.by_regime:
        cell = table[table["regime"] == regime]
        others = [arm for arm in dict.fromkeys(cell["arm"]) if arm not in looks]
        drawn = [_curve(cell, arm, metric, looks.get(arm)) for arm in (*looks, *others) if (cell["arm"] == arm).any()]
        panels.append(Panel(drawn, title=get_regime(regime).title, ylabel=METRICS[metric]))
    seeds = int(results.table["seed"].nunique())
    figure = curves_figure(
        panels,
        columns=3 if len(panels) <= 9 else 4,
        xlabel="questions answered (log)",
        title="Mean and standard error over blocks; grey: all others",
        subtitle=f"estimates by the vocabulary prior; {seeds} seed{'s' if seeds > 1 else ''}, prompts embedded by "
        f"{results.provenance['encoder']}",
        share="none",
        log=True,
    )
    return [Picture(name, caption, figure)]


def _curve(cell: Any, arm: str, metric: str, look: Look | None) -> Curve:
    values = cell[cell["arm"] == arm].groupby("questions")[metric]
    mean, error = values.mean(), values.sem().to_numpy(dtype=float)
    label = "others" if look is None else get_arm(arm).title
    return Curve(label, mean.index, mean, look, mean - error, mean + error)


# -- words -----------------------------------------------------------------------------------------------------------

_MEANT = {
    "knowledge": "Knowledge of theta (cosine, preference and choice error)",
    "regret": "Regret of the best item or prompt found",
}


def _headline(summary: Ranks) -> list[str]:
    """Which arm is first, and where the adaptive planner is."""
    lines = []
    for what, adaptive in ADAPTIVE_FOR.items():
        item = summary.rankings.get((what, "common", "area"))
        if item is None:
            continue
        tied = [arm for arm in item.tied if arm != item.arms[0]]
        line = f"{_MEANT[what]}: first is `{item.arms[0]}` (average rank {item.ranks[0]:.2f} of {len(item.arms)})"
        if not item.known:
            line += ", which arms are tied can't be said: a regime has a single block"
        else:
            line += f", tied with it {', '.join(f'`{arm}`' for arm in tied)}" if tied else ", alone"
        place = item.place(adaptive)
        if place is not None and place > 1:
            line += f"; `{adaptive}` is number {place} (average rank {item.ranks[place - 1]:.2f})"
        lines.append(f"{line}.")
        lost = [loss for loss in summary.losses if loss.what == what]
        if lost:
            sure = sum(loss.sure for loss in lost)
            places = len({loss.regime for loss in lost})
            lines.append(
                f"`{adaptive}` is behind another arm in {places} of {len(item.by_regime)} regimes; in {sure} of these "
                f"{len(lost)} comparisons the interval excludes 0 (see below)."
            )
    return lines


def _losses(summary: Ranks) -> list[Section]:
    table = losses_table(summary)
    if table.rows:
        return [table]
    ran = set(ADAPTIVE_FOR.values()) & set(summary.arms)
    sentence = "In no regime is the average rank of another arm better than that of the adaptive planner."
    return [Text([sentence if ran else "The adaptive planner did not run."], table.title)]


LIMITS = (
    "Few seeds in the larger regimes: percentile intervals over two to five blocks are too narrow. Regimes with the "
    "same items and other K share items and tastes of a seed, and are resampled as if they did not. Being first is "
    "itself a choice of the best of many; no interval is corrected for that, or for the number of comparisons.",
    "Ranks depend on which arms there are, and say nothing about how large a difference is: see the means.",
    "On the sphere the ridge of the literature's rules, lambda = 1, is nearly the true prior there (theta* has "
    "length 5, the prior expects sqrt(d)); in prompts its length is right too (20), its directions are not.",
    "In prompt MDPs the rules take in every answer before the next question; the adaptive planner, as users get it, "
    "does so before every episode.",
    "Maximum regret weighs pairs of draws by their posterior density and the regret of acting on the wrong one "
    '(`form="regret"`); its other readings (`form="same_item"`, `weights="equal"`) did not run. DopeWolfe\'s design '
    "takes 18 d steps of 64 random subsets, at least 600.",
    "The vocabulary prior is made from the pool or the vocabulary, and the adaptive planner plans with it too.",
    "The default of the adaptive planner on pools, the trace of the posterior covariance, was chosen on development "
    "seeds from 1000 on. It is A-optimality, the literature's idea.",
    "BoTorch's planner takes theta's posterior from BoTorch once for each answer and scores all pairs with it, a "
    "shortcut that makes it faster than its own acquisition loop. Optuna estimates no theta; it is asked for its best "
    "item.",
    "All users are simulated, with theta* linear in the embedding that everybody is given.",
)
