"""The report of a replay: hit rate and log-likelihood, and what adaptive questions save."""

from __future__ import annotations

from typing import Any

from benchmarks.kit.series import Curves
from benchmarks.kit.tables import BY_PERSON, curve_table, learning_panel, needed_cell
from benchmarks.people.estimators import ESTIMATORS
from benchmarks.people.replay import RULES
from edpbrl_gym.experiments.runs import Results
from edpbrl_gym.experiments.sections import provenance_section
from edpbrl_gym.reporting.figures import curves_figure
from edpbrl_gym.reporting.report import Picture, Report, Section, Text
from edpbrl_gym.reporting.tables import TextTable

MEASURES = {"hit": "hit rate", "log_probability": "log-likelihood per answer"}


class Replays:
    """The rows of one data set, as the report reads them."""

    def __init__(self, table: Any, data: str) -> None:
        self.data = data
        rows = table[table["data"] == data]
        self.curves = Curves(rows, ["estimator", "rule"], ["person"], None, "answers")
        people = rows.groupby("answers")["person"].nunique()
        # numbers of answers that at least half of the people have; figures and answers needed are of who has them all
        self.common = sorted(int(count) for count in people.index[people * 2 >= people.max()])
        last = rows.groupby("person")["answers"].transform("max")
        whole = rows[(last >= self.common[-1]) & rows["answers"].isin(self.common)]
        self.complete = Curves(whole, ["estimator", "rule"], ["person"], None, "answers")
        there = set(self.curves.series)
        self.keys = {(one, rule): (one, rule) for one in ESTIMATORS for rule in RULES if (one, rule) in there}

    def table(self, title: str, counts: list[int], rows: list[list[str]]) -> TextTable:
        """A table with a column for each number of answers."""
        return TextTable(f"{self.data}: {title}", ["estimator", "questions", *map(str, counts)], rows, BY_PERSON)


def make_report(results: Results) -> Report:
    """The report of ``python -m benchmarks.people``."""
    found = [Replays(results.table, data) for data in dict.fromkeys(results.table["data"])]
    sections: list[Section] = [
        Picture("learning", "Hit rate and log-likelihood against the answers of a person", _learning_figure(found))
    ]
    for one in found:
        sections += [
            Text(title=one.data, level=1),
            *(_curve_table(one, measure) for measure in MEASURES),
            *(_ratio_table(one, measure) for measure in MEASURES),
        ]
    return Report(
        "Real people's choices, replayed",
        [*sections, provenance_section(results)],
        headline=[_curve_table(one, measure) for one in found for measure in MEASURES],
    )


def _curve_table(found: Replays, measure: str) -> TextTable:
    title = f"{found.data}: {MEASURES[measure]} of held-out answers, after so many answers of the person"
    return curve_table(title, found.curves, found.keys, measure)


def _ratio_table(found: Replays, measure: str) -> TextTable:
    """Answers that a rule needs for what random questions reach, with the same estimator."""
    counts = [count for count in found.common if count > 0]
    rows = []
    for estimator, rule in found.keys:
        random = (estimator, "random")
        if rule != "random" and random in found.keys:
            needed = [found.complete.needed((estimator, rule), random, measure, at, higher=True) for at in counts]
            rows.append([estimator, rule, *(needed_cell(one, counts[-1]) for one in needed)])
    return found.table(f"answers needed for the {MEASURES[measure]} that random questions reach after", counts, rows)


def _learning_figure(found: list[Replays]) -> Any:
    """Hit rate and log-likelihood against answers, a row of panels for each data set."""
    about = {"estimators": list(ESTIMATORS), "shaded": "random", "ylabel": "held-out answers"}
    panels = [
        learning_panel(one.complete, one.keys, measure, title=f"{one.data}: {title}", **about)  # type: ignore[arg-type]
        for one in found
        for measure, title in MEASURES.items()
    ]
    return curves_figure(
        panels,
        columns=2,
        xlabel="answers of the new person",
        title="What a person's answers teach, with and without other people's",
        subtitle="Bands: 95% bootstrap intervals over people, random questions.",
        share="none",
        zero=False,
    )
