"""The report of a race: who is first, what ours loses at, ranks, curves, estimators, times, means."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from edpbrl_gym.experiments.kit.figures import PALETTE, Curve, Look, Panel, curves_figure
from edpbrl_gym.experiments.kit.rank_figures import ArmLabel, heat_figure, ranks_figure
from edpbrl_gym.experiments.kit.ranks import AverageRanks
from edpbrl_gym.experiments.kit.report import (
    Picture,
    Report,
    Section,
    Text,
    bullets,
    code_line,
    convergence_line,
    provenance_section,
)
from edpbrl_gym.experiments.kit.tables import TextTable
from edpbrl_gym.experiments.race.contenders import get_contender
from edpbrl_gym.experiments.race.settings import get_regime
from edpbrl_gym.experiments.race.tables import (
    METRICS,
    OURS,
    Summary,
    estimator_table,
    headline_tables,
    losses_table,
    means_table,
    ranking_table,
    summarise,
    time_tables,
)
from edpbrl_gym.experiments.runs import Results

__all__ = ["make_report"]

_LOOKS: dict[str, Look] = {
    "ours": Look(PALETTE[0], "-", "o"),
    "ours-best": Look(PALETTE[4], "-", "P"),
    "random": Look("#000000", (0, (1, 1)), "X"),
    "paper-text": Look(PALETTE[1], "--", "s"),
    "paper-scripts": Look(PALETTE[1], ":", "D"),
}
_SPARE = (
    Look(PALETTE[2], "-.", "^"),
    Look(PALETTE[3], (0, (5, 1)), "v"),
    Look(PALETTE[5], (0, (3, 1, 1, 1)), "d"),
)
_FAMILY_COLOURS = {
    "ours": PALETTE[0],
    "paper": PALETTE[1],
    "literature": "#000000",
    "packages": PALETTE[3],
    "baseline": "#777777",
}


def make_report(results: Results) -> Report:
    """The report of `edpbrl bench race`."""
    table = results.table
    summary = summarise(table)
    rankings, pairs = summary.rankings, summary.pairs
    units = table[["regime", "arm", "seed", "user"]].drop_duplicates()
    return Report(
        "The race: every rule on the same track",
        [
            Text(
                [
                    f"`edpbrl bench race`: {len(units)} runs of {len(summary.arms)} contenders in "
                    f"{len(summary.regimes)} regimes, {int(table['seed'].nunique())} seeds. Every number below is "
                    "computed from results.parquet; `edpbrl bench race --report RUN` writes this page again."
                ]
            ),
            Text(bullets(_headline(summary))),
            *_ranks_picture("ranks", "Average ranks by our estimator", rankings, "ours", "area"),
            *_losses(summary),
            *_rank_tables(rankings, "ours", "area"),
            *_heat_picture(summary),
            *_curves_picture(results, summary, "curves", "Learning curves", "knowledge", "cosine_error"),
            *_curves_picture(results, summary, "regret", "Regret of the best item", "regret", "regret"),
            Text(
                [
                    "Above, our estimator learns from everybody's answers, which isolates the choice of the questions. "
                    "Here every contender is judged by its own estimate."
                ],
                "End to end",
                level=1,
            ),
            *_ranks_picture("own", "Average ranks end to end", rankings, "own", "area"),
            *_rank_tables(rankings, "own", "area"),
            estimator_table(summary, table, "cosine_error"),
            estimator_table(summary, table, "regret"),
            *([Text(title="Pairs, with other packages", level=1)] if pairs else []),
            *_ranks_picture("pairs", "Average ranks with K = 2, other packages among them", pairs, "ours"),
            *_rank_tables(pairs, "ours"),
            *_rank_tables(pairs, "own"),
            *_single_tables(summary),
            Text(title="After the last question", level=1),
            *_rank_tables(rankings, "ours", "last"),
            Text(title="Time", level=1),
            *time_tables(summary, table),
            Text(title="Means", level=1),
            *(means_table(summary, table, regime) for regime in summary.regimes),
            _how(results, summary),
            provenance_section(results, code_line(table)),
            Text(bullets(_LIMITS), "Limits", level=1),
        ],
        headline=headline_tables(summary),
        prefix="race-",
    )


# -- ranks -----------------------------------------------------------------------------------------------------------


def _label(arm: str) -> ArmLabel:
    contender = get_contender(arm)
    return ArmLabel(contender.title, _FAMILY_COLOURS[contender.family], contender.family == "ours")


def _ranks_picture(name: str, caption: str, rankings: Mapping[Any, AverageRanks], *key: str) -> list[Picture]:
    chosen = [rankings[what, *key] for what in OURS if (what, *key) in rankings]
    return [Picture(name, caption, ranks_figure(chosen, _label))] if chosen else []


def _rank_tables(rankings: Mapping[Any, AverageRanks], *key: str) -> list[TextTable]:
    return [ranking_table(rankings[what, *key], what) for what in OURS if (what, *key) in rankings]


def _heat_picture(summary: Summary) -> list[Picture]:
    chosen = [
        (what, summary.rankings[what, "ours", "area"]) for what in OURS if (what, "ours", "area") in summary.rankings
    ]
    return [Picture("regimes", "Average ranks by regime", heat_figure(chosen, _label))] if chosen else []


def _single_tables(summary: Summary) -> list[TextTable]:
    """Ranks in the regimes of those who run in too few to be ranked over all pairs, such as Optuna."""
    tables = []
    for what in OURS:
        over_all = summary.pairs.get((what, "ours"))
        late = set() if over_all is None else set(over_all.left_out)
        for (kind, score, regime), item in summary.single.items():
            if (kind, score) == (what, "ours") and regime in (over_all.by_regime if over_all else ()):
                if late & set(item.arms):
                    tables.append(ranking_table(item, what, regimes=False))
    return tables


# -- curves ----------------------------------------------------------------------------------------------------------


def _curves_picture(
    results: Results, summary: Summary, name: str, caption: str, what: str, metric: str
) -> list[Picture]:
    """A metric against the questions answered, by our estimator, a panel for each regime.

    In colour are ours, the paper's, Random and the three best of the others; all others are grey.
    """
    ranked = summary.rankings.get((what, "ours", "area"))
    if ranked is None:
        return []
    best = [arm for arm in ranked.arms if arm not in _LOOKS][: len(_SPARE)]
    looks = {arm: _LOOKS.get(arm) or _SPARE[best.index(arm)] for arm in ranked.arms if arm in _LOOKS or arm in best}
    table = results.table
    table = table[table["score"] == "ours"].dropna(subset=[metric])
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
        subtitle=f"our estimator; {seeds} seed{'s' if seeds > 1 else ''}, prompts embedded by "
        f"{results.provenance['encoder']}",
        share="none",
        log=True,
    )
    return [Picture(name, caption, figure)]


def _curve(cell: Any, arm: str, metric: str, look: Look | None) -> Curve:
    values = cell[cell["arm"] == arm].groupby("questions")[metric]
    mean, error = values.mean(), values.sem().to_numpy(dtype=float)
    label = "others" if look is None else get_contender(arm).title
    return Curve(label, mean.index, mean, look, mean - error, mean + error)


# -- words -----------------------------------------------------------------------------------------------------------

_MEANT = {
    "knowledge": "Knowledge of theta (cosine, preference and choice error)",
    "regret": "Regret of the best item or prompt found",
}


def _headline(summary: Summary) -> list[str]:
    """Who is first, and where ours are."""
    lines = []
    for what, ours in OURS.items():
        item = summary.rankings.get((what, "ours", "area"))
        if item is None:
            continue
        tied = [arm for arm in item.tied if arm != item.arms[0]]
        line = f"{_MEANT[what]}: first is `{item.arms[0]}` (average rank {item.ranks[0]:.2f} of {len(item.arms)})"
        if not item.known:
            line += ", who is tied can't be said: a regime has a single block"
        else:
            line += f", tied with it {', '.join(f'`{arm}`' for arm in tied)}" if tied else ", alone"
        place = item.place(ours)
        if place is not None and place > 1:
            line += f"; `{ours}` is number {place} (average rank {item.ranks[place - 1]:.2f})"
        lines.append(f"{line}.")
        lost = [loss for loss in summary.losses if loss.what == what]
        if lost:
            sure = sum(loss.sure for loss in lost)
            places = len({loss.regime for loss in lost})
            lines.append(
                f"`{ours}` is behind somebody in {places} of {len(item.by_regime)} regimes; in {sure} of these "
                f"{len(lost)} comparisons the interval excludes 0 (see below)."
            )
    return lines


def _losses(summary: Summary) -> list[Section]:
    table = losses_table(summary)
    if table.rows:
        return [table]
    present = set(OURS.values()) & set(summary.arms)
    said = "In no regime is a contender's average rank better than that of ours." if present else "Ours did not run."
    return [Text([said], table.title)]


def _how(results: Results, summary: Summary) -> Text:
    config, table = results.config, results.table
    sentences = "; ".join(f'{name}: "{text}"' for name, text in config["sentences"].items())
    blocks = table[["regime", "seed", "user"]].drop_duplicates()["regime"].value_counts()
    counted = "; ".join(f"{get_regime(name).title}: {blocks[name]}" for name in summary.regimes)
    families: dict[str, list[str]] = {}
    for arm in summary.arms:
        families.setdefault(get_contender(arm).family, []).append(arm)
    lines = [
        "Contenders: " + "; ".join(f"{family}: {', '.join(arms)}" for family, arms in families.items()) + ".",
        "Items on the sphere and in clusters, and the tastes that go with them, are drawn anew for every seed. "
        "Prompts and prompt MDPs are the same for all seeds, their users' theta* is the embedding of a sentence: "
        f"{sentences}.",
        "All contenders of a block (regime, seed, user) see the same items and the same user with the same draws. "
        "Users answer by the softmax of scale times utility: scale "
        f"{', '.join(f'{get_regime(name).scale:g} ({get_regime(name).title})' for name in summary.regimes)}.",
        f"Blocks: {counted}.",
        f"Preference error on {config['pairs']} pairs of {config['prompts']} held-out items or prompts, choice error "
        f"on {config['held_out_questions']} held-out questions answered without noise. Regret of items: utility of the "
        "best item minus that of the item that the estimate likes best, divided by the best minus the mean of the "
        "pool. Regret in prompt MDPs: the score of the best prompt that a wide beam search finds with theta* minus the "
        "true score of the one found with the estimate, in the last checkpoints only.",
        "What is ranked is the mean over the checkpoints, which lie roughly evenly on a log scale of questions; equal "
        "values share ranks. The critical difference is that of one rank a block; knowledge is the mean of three "
        "ranks, which varies less.",
        convergence_line(table["converged"]),
    ]
    return Text(bullets(lines), "How it was done", level=1)


_LIMITS = (
    "Few seeds in the larger regimes: percentile intervals over two to five blocks are too narrow. Regimes with the "
    "same items and other K share items and tastes of a seed, and are resampled as if they did not. Being first is "
    "itself a choice of the best of many; no interval is corrected for that, or for the number of comparisons.",
    "Ranks depend on who takes part, and say nothing about how large a difference is: see the means.",
    "On the sphere the ridge of the literature's rules, lambda = 1, is nearly the true prior there (theta* has "
    "length 5, the prior expects sqrt(d)); in prompts its length is right too (20), its directions are not.",
    "In prompt MDPs the rules take in every answer before the next question; our planner, as users get it, does so "
    "before every episode.",
    "Maximum regret weighs pairs of draws by their posterior density and the regret of acting on the wrong one "
    '(`form="regret"`); its other readings (`form="same_item"`, `weights="equal"`) did not run. DopeWolfe\'s design '
    "takes 18 d steps of 64 random subsets, at least 600.",
    "The score by our estimator uses a prior made from the pool or the vocabulary, which our planners too plan with.",
    "The default of our planner on pools, the trace of the posterior covariance, was chosen on development seeds "
    "from 1000 on. It is A-optimality, the literature's idea.",
    "BoTorch's planner takes theta's posterior from BoTorch once for each answer and scores all pairs with it, a "
    "shortcut that makes it faster than its own acquisition loop. Optuna estimates no theta; it is asked for its best "
    "item.",
    "All users are simulated, with theta* linear in the embedding that everybody is given.",
)
