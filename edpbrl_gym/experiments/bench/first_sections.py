"""First answers in the report: the tables in their order, and the figure."""

from __future__ import annotations

import numpy as np

from edpbrl_gym.experiments.bench.first_metrics import FIRST_METRICS
from edpbrl_gym.experiments.bench.first_runs import FirstRuns, Series
from edpbrl_gym.experiments.bench.first_tables import (
    calibration_table,
    curves_table,
    differences_table,
    mode_of,
    needed_table,
    prompts_of,
    shapes_table,
    times_table,
    words_of,
)
from edpbrl_gym.experiments.bench.settings import REGIMES
from edpbrl_gym.experiments.bench.tastes import TASTES
from edpbrl_gym.experiments.runs import Results
from edpbrl_gym.experiments.sections import convergence_line, sentences_line
from edpbrl_gym.reporting.figures import PALETTE, Curve, Look, Panel, curves_figure
from edpbrl_gym.reporting.report import Picture, Section, Text
from edpbrl_gym.reporting.tables import TextTable

__all__ = ["first_headline", "first_notes", "first_sections"]

_PEOPLE = ("preference_error", "regret_ten")

# label, suffix of the regime, arm, look
_DRAWN: tuple[tuple[str, str, str, Look], ...] = (
    ("Random, 4 partial prompts", "-partial", "random", Look("#777777", (0, (1, 1)), "X")),
    ("Random, 4 complete prompts", "", "random", Look("#000000", (0, (1, 1)), "o")),
    ("Adaptive, 4 complete prompts", "", "adaptive", Look(PALETTE[0], "-", "o")),
    ("Random, best of 9", "-K9", "random", Look(PALETTE[4], (0, (1, 1)), "s")),
    ("Adaptive, best of 9", "-K9", "adaptive", Look(PALETTE[2], "-", "s")),
    ("Adaptive, best and worst of 6", "-K6", "adaptive+best-worst", Look(PALETTE[3], "--", "^")),
    ("Adaptive, ranking of 6", "-K6", "adaptive+ranking", Look(PALETTE[1], "-.", "D")),
)


def first_sections(runs: FirstRuns) -> list[Section]:
    """All that a run says about first answers; nothing where it has none."""
    if not runs.regimes:
        return []
    vocabularies = words_of(runs)
    return [
        Text(
            [
                "What a person's first answers teach about complete prompts. Held-out prompts consist of head words "
                "that no question shows. The regret of the ten best: the mean true utility of the ten held-out prompts "
                "with the highest estimated one, as the share of the attainable gain that is lost; 1 is as good as "
                "random prompts."
            ],
            "The first answers",
            level=1,
        ),
        *_figure(runs),
        needed_table(runs),
        *(differences_table(runs, words, metric) for words in vocabularies for metric in _PEOPLE),
        shapes_table(runs),
        calibration_table(runs),
        *(curves_table(runs, words, metric) for metric in FIRST_METRICS for words in vocabularies),
        times_table(runs),
    ]


def first_headline(runs: FirstRuns) -> list[TextTable]:
    """The tables for the terminal: answers needed, and planners against Random in preference error."""
    tables = [needed_table(runs), *(differences_table(runs, words, "preference_error") for words in words_of(runs))]
    return [table for table in tables if table.rows]


def first_notes(runs: FirstRuns, results: Results) -> list[str]:
    """How the first answers were measured, one line each."""
    config, sentences = results.config, results.config["first_sentences"]
    table = runs.table
    shapes = {REGIMES[name].taste: TASTES[REGIMES[name].taste] for name in runs.regimes}
    return [
        *(
            f"Users of the vocabulary {words}, with seeds from {int(table['seed'].min())} on: "
            f"{sentences_line(sentences[words])}."
            for words in words_of(runs)
        ),
        "Shapes of tastes: " + "; ".join(f"{name}: {what}" for name, what in shapes.items()) + ".",
        *(["These users and seeds are those on which constants are chosen."] if config["development"] else []),
        "Held-out prompts come from the test split by head word. Preference error on "
        f"{config['pairs']} pairs of {config['prompts']} of them, the ten best among {config['pool']}.",
        "All arms of a run see the same user with the same random draws; Random asks all users of a seed the same "
        "questions, whoever answers in whatever format.",
        convergence_line(table["converged"]),
    ]


def _figure(runs: FirstRuns) -> list[Picture]:
    """Preference error and regret against answers; a column for each vocabulary and mode of best-of-4 questions."""
    columns = [
        regime
        for words in words_of(runs)
        for regime in prompts_of(runs, words)
        if regime.num_options == 4 and regime.feedback == "prompt" and mode_of(regime) in ("argmax", "scale 20")
    ]
    if not columns:
        return []
    panels = []
    for metric in _PEOPLE:
        for regime in columns:
            curves = []
            for label, suffix, arm, look in _DRAWN:
                series = Series(regime.name + suffix, arm)
                mean = runs.curve(series, metric)
                if mean:
                    low, high = np.array(list(runs.band(series, metric).values())).T
                    curves.append(Curve(label, list(mean), list(mean.values()), look, low, high))
            panels.append(Panel(curves, title=regime.title, ylabel=FIRST_METRICS[metric]))
    figure = curves_figure(
        panels,
        columns=len(columns),
        xlabel="answers (log)",
        title="What the first answers teach, estimated by the vocabulary prior",
        subtitle="means over users of the means over their seeds; bands: 95% bootstrap intervals over users, then "
        "seeds",
        share="row",
        log=True,
        zero=False,
    )
    return [Picture("first-answers", "Preference error and regret against the number of answers", figure)]
