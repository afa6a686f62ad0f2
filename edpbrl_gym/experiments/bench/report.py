"""The report of a benchmark: query efficiency in prompt MDPs, and ranks of all arms."""

from __future__ import annotations

from typing import Any

from edpbrl_gym.experiments.bench.arms import get_arm
from edpbrl_gym.experiments.bench.efficiency_sections import efficiency_sections
from edpbrl_gym.experiments.bench.efficiency_tables import headline_tables, summarise_efficiency
from edpbrl_gym.experiments.bench.first_runs import FirstRuns
from edpbrl_gym.experiments.bench.first_sections import first_headline, first_notes, first_sections
from edpbrl_gym.experiments.bench.rank_sections import LIMITS, rank_sections
from edpbrl_gym.experiments.bench.rank_tables import rank_headline, summarise_ranks, time_tables
from edpbrl_gym.experiments.bench.settings import get_regime
from edpbrl_gym.experiments.runs import Results
from edpbrl_gym.experiments.sections import code_line, convergence_line, provenance_section, sentences_line
from edpbrl_gym.reporting.report import Report, Section, Text, bullets
from edpbrl_gym.reporting.tables import TextTable

__all__ = ["make_report"]


def make_report(results: Results) -> Report:
    """The report of `edpbrl bench`."""
    table, first = results.table, FirstRuns(results.table)
    rest = table[~table["regime"].isin(first.regimes)]
    sections, headline = first_sections(first), first_headline(first)
    if len(rest):
        others = Results(rest, kind=results.kind, config=results.config, provenance=results.provenance)
        more, tables = _other_sections(others)
        sections, headline = [*sections, *more], [*headline, *tables]
    runs = table[["regime", "arm", "seed", "user"]].drop_duplicates()
    return Report(
        "Planners, designs and estimators: a benchmark",
        [
            Text(
                [
                    f"`edpbrl bench`: {len(runs)} runs of {table['arm'].nunique()} arms in "
                    f"{table['regime'].nunique()} regimes; {_setting_line(results)}. Every number below is computed "
                    "from results.parquet; `edpbrl report RUN` writes this page again."
                ]
            ),
            *sections,
            *(
                [Text(bullets(first_notes(first, results)), "How the first answers were measured", level=1)]
                if first.regimes
                else []
            ),
            provenance_section(results, code_line(table)),
            *([Text(bullets(LIMITS), "Limits", level=1)] if len(rest) else []),
        ],
        headline=headline,
        prefix="bench-",
    )


def _other_sections(results: Results) -> tuple[list[Section], list[TextTable]]:
    """What a run says beside the first answers: how many questions are needed, and ranks; tables for the terminal."""
    table, horizon = results.table, len(results.provenance["steps"])
    efficiency, ranks = summarise_efficiency(table), summarise_ranks(table)
    sections = [
        *efficiency_sections(efficiency, _setting_line(results), horizon),
        *rank_sections(results, ranks),
        Text(title="Time", level=1),
        *time_tables(ranks, table),
        _how(results),
    ]
    return sections, [*headline_tables(efficiency, horizon), *rank_headline(ranks)]


def _setting_line(results: Results) -> str:
    known, regimes = results.provenance, [get_regime(name) for name in results.table["regime"].unique()]
    seeds = int(results.table["seed"].nunique())
    words = f"vocabulary of {sum(known['sizes'])} tokens ({len(known['steps'])} steps)"
    if all(regime.first for regime in regimes):
        words = " and ".join(f"vocabulary {name}" for name in dict.fromkeys(regime.vocabulary for regime in regimes))
    return f"{words}, encoder {known['encoder']}, {seeds} seed{'s' if seeds > 1 else ''}"


def _how(results: Results) -> Text:
    config, table = results.config, results.table
    regimes = [get_regime(name) for name in dict.fromkeys(table["regime"])]
    blocks = table[["regime", "seed", "user"]].drop_duplicates()["regime"].value_counts()
    families: dict[str, list[str]] = {}
    for name in dict.fromkeys(table["arm"]):
        families.setdefault(get_arm(name).family, []).append(name)
    scales = "; ".join(f"{regime.title}: {regime.scale:g}" for regime in regimes if regime.mode == "sampled")
    lines = [
        "Arms: " + "; ".join(f"{family}: {', '.join(arms)}" for family, arms in families.items()) + ".",
        f"Users in prompt MDPs and of prompts as items: {sentences_line(config['sentences'])}. Items on the sphere and "
        "in clusters, and the tastes that go with them, are drawn anew for every seed.",
        "A run, or block, is a (regime, seed, user): "
        f"{'; '.join(f'{regime.title}: {blocks[regime.name]}' for regime in regimes)}. All arms of a block see the "
        "same user with the same random draws; designs ask the same questions of all users of a seed. Intervals "
        "resample whole blocks.",
        *([f"Users answer by the softmax of scale times utility: {scales}."] if scales else []),
        "Questions in prompt MDPs come from the train split of the vocabulary. Preference error on "
        f"{config['pairs']} pairs of {config['prompts']} held-out prompts or items, choice error on held-out questions "
        "answered without noise. Regret of items: utility of the best item minus that of the item that the estimate "
        "likes best, divided by the best minus the mean of the pool. Regret in prompt MDPs: the score of the best "
        "prompt that a wide beam search finds with theta* minus the true score of the one found with the estimate, "
        f"after {_listed(config['prompt_episodes'])} episodes only, and for some estimators only.",
        "T needed: the mean curve over runs, linear between the T measured, from which T on it stays at or below the "
        "level.",
        "What is ranked is the mean over the checkpoints, which lie roughly evenly on a log scale of questions; equal "
        "values share ranks. The critical difference is that of one rank a block; knowledge is the mean of three "
        "ranks, which varies less.",
        convergence_line(table["converged"]),
        f"Share of skipped questions: {float(table['skipped'].mean()):.3f} over all rows.",
    ]
    return Text(bullets(lines), "How it was done", level=1)


def _listed(numbers: Any) -> str:
    return ", ".join(str(number) for number in numbers)
