"""Figures and REPORT.md of a race, from its results alone."""

from __future__ import annotations

import functools
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from edpbrl_gym.experiments.figures import save_figure
from edpbrl_gym.experiments.query_bench.report import code_line
from edpbrl_gym.experiments.query_bench.tables import TextTable
from edpbrl_gym.experiments.race.contenders import get_contender
from edpbrl_gym.experiments.race.figures import curves_figure, heat_figure, ranks_figure
from edpbrl_gym.experiments.race.settings import get_regime
from edpbrl_gym.experiments.race.summary import Ranking
from edpbrl_gym.experiments.race.tables import (
    Summary,
    estimator_table,
    losses_table,
    means_table,
    ranking_table,
    summarise,
    time_tables,
)
from edpbrl_gym.experiments.runs import Results, write_atomically

__all__ = ["write_report"]

_WHAT = ("knowledge", "regret")


def write_report(
    results: Results, folder: str | os.PathLike[str], *, page: Path | None = None, summary: Summary | None = None
) -> list[Path]:
    """Write every figure (PNG and PDF) and REPORT.md.

    Args:
        results: From ``run.gather``.
        folder: Where they go.
        page: Also write the report as this Markdown file, the PNG figures beside it.
        summary: Of the results, where it is known already.

    Returns:
        The files written, the report last.

    Raises:
        RunFolderError: If a place can't be written.
    """
    target = Path(folder)
    found = summarise(results.table) if summary is None else summary
    figures = _figures(results, found, target / "figures")
    path = target / "REPORT.md"
    text = _text(results, found, {name: f"figures/{name}.png" for name in figures})
    write_atomically(path, lambda name: name.write_text(text, encoding="utf-8"))
    if page is not None:
        names = {name: f"{page.stem}-{name}.png" for name in figures}
        document = _text(results, found, names)
        write_atomically(page, lambda name: name.write_text(document, encoding="utf-8"))
        for name, paths in figures.items():
            write_atomically(page.parent / names[name], functools.partial(shutil.copyfile, paths[0]))
    return [*(path for paths in figures.values() for path in paths), path]


def _figures(results: Results, summary: Summary, folder: Path) -> dict[str, list[Path]]:
    made: dict[str, Any] = {}
    line = _setting_line(results, summary)
    overall = {what: summary.rankings.get((what, "ours", "area")) for what in _WHAT}
    ranked = [item for item in overall.values() if item is not None]
    if ranked:
        made["ranks"] = ranks_figure(ranked)
        made["regimes"] = heat_figure([(what, item) for what, item in overall.items() if item is not None])
    for name, what, metric in (("curves", "knowledge", "cosine_error"), ("regret", "regret", "regret")):
        item = overall[what]
        if item is not None:
            made[name] = curves_figure(results.table, item, metric, score="ours", subtitle=line)
    pairs = [summary.pairs[what, "ours"] for what in _WHAT if (what, "ours") in summary.pairs]
    if pairs:
        made["pairs"] = ranks_figure(pairs)
    own = [summary.rankings[what, "own", "area"] for what in _WHAT if (what, "own", "area") in summary.rankings]
    if own:
        made["own"] = ranks_figure(own)
    return {name: save_figure(figure, folder, name) for name, figure in made.items()}


def _setting_line(results: Results, summary: Summary) -> str:
    seeds = int(results.table["seed"].nunique())
    known = results.provenance
    return f"our estimator; {seeds} seed{'s' if seeds > 1 else ''}, prompts embedded by {known['encoder']}"


_PICTURES = {
    "ranks": "Average ranks by our estimator",
    "regimes": "Average ranks by regime",
    "curves": "Learning curves",
    "regret": "Regret of the best item",
    "pairs": "Average ranks with K = 2, other packages among them",
    "own": "Average ranks end to end",
}


def _text(results: Results, summary: Summary, pictures: Mapping[str, str]) -> str:
    def picture(name: str) -> list[str]:
        return [f"![{_PICTURES[name]}]({pictures[name]})", ""] if name in pictures else []

    def section(table: TextTable) -> list[str]:
        return table.markdown() if table.rows else []

    def ranks(found: Mapping[Any, Ranking], *key: str) -> list[str]:
        tables = [ranking_table(found[what, *key], what) for what in _WHAT if (what, *key) in found]
        return [line for ranked in tables for line in section(ranked)]

    table = results.table
    units = table[["regime", "arm", "seed", "user"]].drop_duplicates()
    lines = [
        "# The race: every rule on the same track",
        "",
        f"`edpbrl bench race`: {len(units)} runs of {len(summary.arms)} contenders in {len(summary.regimes)} regimes, "
        f"{int(table['seed'].nunique())} seeds. Every number below is computed from results.parquet; "
        "`edpbrl bench race --report RUN` writes this page again.",
        "",
        *_headline(summary),
        *picture("ranks"),
        *_losses(summary),
        *ranks(summary.rankings, "ours", "area"),
        *picture("regimes"),
        *picture("curves"),
        *picture("regret"),
        "# End to end",
        "",
        "Above, our estimator learns from everybody's answers, which isolates the choice of the questions. Here every "
        "contender is judged by its own estimate.",
        "",
        *picture("own"),
        *ranks(summary.rankings, "own", "area"),
        *section(estimator_table(summary, table, "cosine_error")),
        *section(estimator_table(summary, table, "regret")),
        *(["# Pairs, with other packages", ""] if summary.pairs else []),
        *picture("pairs"),
        *ranks(summary.pairs, "ours"),
        *ranks(summary.pairs, "own"),
        *(line for item in _guests(summary) for line in section(item)),
        "# After the last question",
        "",
        *ranks(summary.rankings, "ours", "last"),
        "# Time",
        "",
        *(line for times in time_tables(summary, table) for line in section(times)),
        "# Means",
        "",
    ]
    for regime in summary.regimes:
        lines += section(means_table(summary, table, regime))
    return "\n".join([*lines, *_how(results, summary), *_LIMITS]).rstrip() + "\n"


def _guests(summary: Summary) -> list[TextTable]:
    """Ranks in the regimes of those who run in too few to be ranked over all pairs, such as Optuna."""
    found = []
    for what in _WHAT:
        over_all = summary.pairs.get((what, "ours"))
        late = set() if over_all is None else set(over_all.left_out)
        for (kind, score, regime), item in summary.single.items():
            if (kind, score) == (what, "ours") and regime in (over_all.by_regime if over_all else ()):
                if late & set(item.arms):
                    found.append(ranking_table(item, what, regimes=False))
    return found


_MEANT = {
    "knowledge": "Knowledge of theta (cosine, preference and choice error)",
    "regret": "Regret of the best item or prompt found",
}


def _headline(summary: Summary) -> list[str]:
    """Who is first, and where ours are."""
    lines = []
    for what, champion in (("knowledge", "ours"), ("regret", "ours-best")):
        item = summary.rankings.get((what, "ours", "area"))
        if item is None:
            continue
        tied = [arm for arm in item.tied if arm != item.arms[0]]
        line = f"- {_MEANT[what]}: first is `{item.arms[0]}` (average rank {item.ranks[0]:.2f} of {len(item.arms)})"
        if not item.known:
            line += ", who is tied can't be said: a regime has a single block"
        else:
            line += f", tied with it {', '.join(f'`{arm}`' for arm in tied)}" if tied else ", alone"
        place = item.place(champion)
        if place is not None and place > 1:
            line += f"; `{champion}` is number {place} (average rank {item.ranks[place - 1]:.2f})"
        lines.append(f"{line}.")
        mine = [loss for loss in summary.losses if loss.what == what]
        if mine:
            sure = sum(loss.sure for loss in mine)
            places = len({loss.regime for loss in mine})
            lines.append(
                f"- `{champion}` is behind somebody in {places} of {len(item.by_regime)} regimes; in {sure} of these "
                f"{len(mine)} comparisons the interval excludes 0 (see below)."
            )
    return [*lines, ""] if lines else []


def _losses(summary: Summary) -> list[str]:
    table = losses_table(summary)
    if table.rows:
        return table.markdown()
    present = {"ours", "ours-best"} & set(summary.arms)
    said = "In no regime is a contender's average rank better than that of ours." if present else "Ours did not run."
    return [f"## {table.title}", "", said, ""]


def _how(results: Results, summary: Summary) -> list[str]:
    config, known, table = results.config, results.provenance, results.table
    software = ", ".join(f"{name} {version}" for name, version in known["sessions"][-1]["versions"].items())
    sentences = "; ".join(f'{name}: "{text}"' for name, text in config["sentences"].items())
    blocks = table[["regime", "seed", "user"]].drop_duplicates()["regime"].value_counts()
    counted = "; ".join(f"{get_regime(name).title}: {blocks[name]}" for name in summary.regimes)
    families: dict[str, list[str]] = {}
    for arm in summary.arms:
        families.setdefault(get_contender(arm).family, []).append(arm)
    return [
        "# How it was done",
        "",
        f"- Contenders: {'; '.join(f'{family}: {_listed(arms)}' for family, arms in families.items())}.",
        "- Items on the sphere and in clusters, and the tastes that go with them, are drawn anew for every seed. "
        "Prompts and prompt MDPs are the same for all seeds, their users' theta* is the embedding of a sentence: "
        f"{sentences}.",
        "- All contenders of a block (regime, seed, user) see the same items and the same user with the same draws. "
        "Users answer by the softmax of scale times utility: scale "
        f"{', '.join(f'{get_regime(name).scale:g} ({get_regime(name).title})' for name in summary.regimes)}.",
        f"- Blocks: {counted}.",
        f"- Preference error on {config['pairs']} pairs of {config['prompts']} held-out items or prompts, choice error "
        f"on {config['held_out_questions']} held-out questions answered without noise. Regret of items: utility of the "
        "best item minus that of the item that the estimate likes best, divided by the best minus the mean of the "
        "pool. Regret in prompt MDPs: the score of the best prompt that a wide beam search finds with theta* minus the "
        "true score of the one found with the estimate, in the last checkpoints only.",
        "- What is ranked is the mean over the checkpoints, which lie "
        "roughly evenly on a log scale of questions; equal values share ranks. The critical difference "
        "is that of one rank a block; knowledge is the mean of three ranks, which varies less.",
        f"- Estimates that did not converge: {int((~table['converged'].astype(bool)).sum())} of {len(table)}.",
        f"- Encoder sha256 {config['encoder_fingerprint'][:16]}, vocabulary sha256 "
        f"{config['vocabulary_fingerprint'][:16]}.",
        f"- {code_line(table)}",
        f"- {software}.",
    ]


_LIMITS = (
    "",
    "# Limits",
    "",
    "- Few seeds in the larger regimes: percentile intervals over two to five blocks are too narrow. Regimes with the "
    "same items and other K share items and tastes of a seed, and are resampled as if they did not. Being first is "
    "itself a choice of the best of many; no interval is corrected for that, or for the number of comparisons.",
    "- Ranks depend on who takes part, and say nothing about how large a difference is: see the means.",
    "- On the sphere the ridge of the literature's rules, lambda = 1, is nearly the true prior there (theta* has "
    "length 5, the prior expects sqrt(d)); in prompts its length is right too (20), its directions are not.",
    "- In prompt MDPs the rules take in every answer before the next question; our planner, as users get it, does so "
    "before every episode.",
    "- Maximum regret weighs pairs of draws by their posterior density and the regret of acting on the wrong one "
    '(`form="regret"`); its other readings (`form="same_item"`, `weights="equal"`) did not run. DopeWolfe\'s design '
    "takes 18 d steps of 64 random subsets, at least 600.",
    "- The score by our estimator uses a prior made from the pool or the vocabulary, which our planners too plan with.",
    "- The default of our planner on pools, the trace of the posterior covariance, was chosen on development seeds "
    "from 1000 on. It is A-optimality, the literature's idea.",
    "- BoTorch's planner takes theta's posterior from BoTorch once for each answer and scores all pairs with it, a "
    "shortcut that makes it faster than its own acquisition loop. Optuna estimates no theta; it is asked for its best "
    "item.",
    "- All users are simulated, with theta* linear in the embedding that everybody is given.",
)


def _listed(names: list[str]) -> str:
    return ", ".join(names)
