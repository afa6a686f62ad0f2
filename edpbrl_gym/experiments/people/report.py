"""The report of a replay."""

from __future__ import annotations

from edpbrl_gym.experiments.people.asking import RULES
from edpbrl_gym.experiments.people.estimators import ESTIMATORS
from edpbrl_gym.experiments.people.figures import learning_figure, reliability_figure
from edpbrl_gym.experiments.people.summary import Replays
from edpbrl_gym.experiments.people.tables import (
    anchor_table,
    calibration_table,
    curve_table,
    estimators_table,
    needed_table,
    ratio_table,
    rules_table,
    times_table,
)
from edpbrl_gym.experiments.runs import Results
from edpbrl_gym.experiments.sections import provenance_section
from edpbrl_gym.reporting.report import Picture, Report, Section, Text, bullets

__all__ = ["make_report"]


def make_report(results: Results) -> Report:
    """The report of `edpbrl bench people`."""
    replays = Replays(results.table)
    sections: list[Section] = [
        Text([_opening(replays)]),
        Picture("learning", "Hit rate and log-likelihood against the answers of a person", learning_figure(replays)),
        Picture("reliability", "Hit rate against confidence", reliability_figure(replays)),
    ]
    for data in replays.data:
        sections += [
            Text(title=data, level=1),
            curve_table(replays, data, "hit", intervals=True),
            curve_table(replays, data, "log_probability", intervals=True),
            curve_table(replays, data, "log_probability_at_estimate", intervals=False),
            calibration_table(replays, data),
            *(needed_table(replays, data, measure) for measure in ("hit", "log_probability")),
            *(ratio_table(replays, data, measure) for measure in ("hit", "log_probability")),
            *(rules_table(replays, data, measure) for measure in ("hit", "log_probability")),
            *(estimators_table(replays, data, measure) for measure in ("hit", "log_probability")),
            *(anchor_table(replays, data, measure) for measure in ("hit", "log_probability")),
            times_table(replays, data),
        ]
    return Report(
        "Real people's choices, replayed",
        [*sections, Text(bullets(_how(results, replays)), "How it was done", level=1), provenance_section(results)],
        headline=[
            curve_table(replays, data, measure, intervals=False)
            for data in replays.data
            for measure in ("hit", "log_probability")
        ],
        prefix="people-",
    )


def _opening(replays: Replays) -> str:
    people = sum(replays.table[replays.table["data"] == data]["person"].nunique() for data in replays.data)
    return (
        f"`edpbrl bench people`: the answers of {people} people, replayed as if each of them were new. Every number "
        "below is computed from results.parquet; `edpbrl report RUN` writes this page again."
    )


def _how(results: Results, replays: Replays) -> list[str]:
    config = results.config
    table = results.table
    lines = []
    for facts in results.provenance.get("data", []):
        fewest, most = facts["questions"]
        lines.append(
            f"{facts['name']}: {facts['people']} people with {fewest} to {most} questions, up to {facts['options']} "
            f"options, {facts['attributes']} attributes; {facts['replayed']} people replayed, {facts['left_out']} of "
            f"the folds left out for too few questions. From {facts['source']}."
        )
    lines += [f"{name}: {words}." for name, words in ESTIMATORS.items() if name in set(table["estimator"])]
    lines += [f"Questions {name}: {words}." for name, words in RULES.items() if name in set(table["rule"])]
    return [
        *lines,
        "Every attribute is divided by its standard deviation over all options. People are shuffled once and cut into "
        f"{config['folds']} folds; what is known of others comes from all answers of the other folds' people. Up to "
        f"{config['people_per_fold']} people of a fold are replayed. {config['held_out']} questions of each are held "
        "out, drawn by a generator seeded with the person's place in the data; the questions that are asked are the "
        "person's own other ones, with the answers that the person gave.",
        "A number of answers counts the people who have so many; the last line of a table says how many. Figures, "
        "answers needed and calibration use the numbers that at least half of the people have, and the first two the "
        "people who have them all.",
        "Hit rate: the estimate prefers the chosen option (a tie of m options counts 1 / m). Log-likelihood: of the "
        "chosen option, in nats, its probability averaged over the posterior; at the estimate: as if it were certain.",
    ]
