"""The report of a study of communities."""

from __future__ import annotations

import numpy as np

from edpbrl_gym.estimation.population.model import WORDS_WEIGHT
from edpbrl_gym.experiments.communities.figures import learning_figure
from edpbrl_gym.experiments.communities.settings import ESTIMATORS, KINDS, NUM_OPTIONS, RULES
from edpbrl_gym.experiments.communities.styles import UNSEEN
from edpbrl_gym.experiments.communities.summary import METRICS, Communities
from edpbrl_gym.experiments.communities.tables import (
    contenders_table,
    curve_table,
    difference_table,
    needed_table,
    regime_table,
    times_table,
    verdict,
)
from edpbrl_gym.experiments.runs import Results
from edpbrl_gym.experiments.sections import provenance_section
from edpbrl_gym.reporting.report import Picture, Report, Section, Text, bullets

__all__ = ["make_report"]

_MARK = 10  # answers after which regimes are compared


def make_report(results: Results) -> Report:
    """The report of `edpbrl bench communities`."""
    found = Communities(results.table)
    compared = min(found.answers, key=lambda count: abs(count - _MARK))
    sections: list[Section] = [
        Text([_opening(results, found), "", *bullets(verdict(found))]),
        Picture("learning", "What is known of new people against their answers", learning_figure(found)),
    ]
    for metric in METRICS:
        sections += [
            Text(title=METRICS[metric], level=1),
            needed_table(found, metric),
            difference_table(found, metric),
            regime_table(found, metric, compared),
            contenders_table(found, metric),
            *(curve_table(found, kind, metric) for kind in found.kinds),
        ]
    sections += [
        times_table(found),
        Text(bullets(_how(results, found)), "How it was done", level=1),
        provenance_section(results),
    ]
    return Report(
        "Simulated communities",
        sections,
        headline=[needed_table(found, "preference_error"), difference_table(found, "preference_error")],
        prefix="communities-",
    )


def _opening(results: Results, found: Communities) -> str:
    config = results.config
    return (
        f"`edpbrl bench communities`: {config['people']} people have answered {config['questions']} questions each; "
        f"{config['new']} new people of each kind are asked in {len(found.regimes)} regimes "
        f"({', '.join(found.regimes)}). Every number below is computed from results.parquet; `edpbrl report RUN` "
        "writes this page again."
    )


def _how(results: Results, found: Communities) -> list[str]:
    config, estimators = results.config, {series.estimator for series in found.series}
    words = dict.fromkeys(regime.partition("-")[0] for regime in found.regimes)
    rules = {series.rule for series in found.series}
    return [
        *(f"{name}: {text}." for name, text in ESTIMATORS.items() if name in estimators),
        *(f"Questions {name}: {text}." for name, text in RULES.items() if name in rules),
        *(f"New people, {name}: {text}." for name, text in KINDS.items() if name in found.kinds),
        "A taste is a unit vector: the unit-norm centred embedding of a style's sentence plus "
        f"{config['individual']:g} times the unit-norm centred mean of three random tokens. Of each vocabulary's "
        f"styles the last {UNSEEN} are unseen; the others are taken in turn.",
        *(
            f"Styles of {name}: " + "; ".join(f'{style}: "{text}"' for style, text in config["styles"][name].items())
            for name in words
        ),
        f"Questions show {NUM_OPTIONS} complete prompts out of {config['shown']} random ones of the training "
        f"vocabulary; a new person's are chosen from {config['candidates']} random questions, the same for all "
        "estimators and rules. Held-out prompts consist of head words that no question shows: "
        f"{config['prompts']} prompts and {config['pairs']} pairs of the preference error, {config['pool']} of the ten "
        f"best, {config['held_out']} questions of the log-likelihood, whose expectation over the person's answers is "
        "taken.",
        "The library's estimators predict with averages over their posterior, the contenders at their estimates, as "
        "published. Ranks, numbers and penalties of the contenders and the number of factors were chosen with "
        "--development.",
        "What a population can promise to people unlike it: its predictions of the first answers come from other "
        "people, so that it must lose log-likelihood on someone of another taste, whom nobody can tell; alone gives "
        "all options the same probability then. With the prior weight w of the fallback, all answers of a person "
        "together are at most log(1 / w) nats less likely than under the fallback, but for approximations "
        f"({-np.log(WORDS_WEIGHT):.1f} nats by the default w = {WORDS_WEIGHT:g}). Only once the answers have told "
        "who is unlike the others can preference error and regret be no worse.",
        "New people are the same in all regimes of a vocabulary: means are over people of the means over their "
        "regimes, intervals bootstrap the people, then their regimes. They are for these styles: how much "
        "other styles would differ is not in them.",
    ]
