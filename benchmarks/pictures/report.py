"""The report of a replay: accuracy and regret per answer, per picture and per second, differences, calibration."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from benchmarks.kit.series import Curves, Key
from benchmarks.kit.tables import BY_PERSON, cell
from edpbrl_gym.experiments.runs import Results
from edpbrl_gym.experiments.sections import provenance_section
from edpbrl_gym.reporting.report import Report, Section, Text
from edpbrl_gym.reporting.tables import TextTable

MEASURES = {
    "accuracy": "share of pairs of held-out items ordered rightly",
    "regret": "regret of the ten best, in standard deviations of the person's ratings",
    "error": "predicted minus observed share of pairs ordered rightly",
    "log_probability": "log probability of the order of a pair",
    "pictures": "different pictures shown",
    "wait": "mean seconds until a question was chosen",
}
BUDGETS = {
    "pictures": ((5, 10, 20, 40, 90, 180), "A picture shown again need not be drawn again."),
    "seconds": ((10, 30, 60, 120), "Each picture shown is taken to need the time in which the person rated one."),
}
"""Name -> amounts, and what is assumed."""


def make_report(results: Results) -> Report:
    """The report of ``python -m benchmarks.pictures``."""
    table = results.table.assign(error=results.table["predicted"] - results.table["accuracy"])
    curves = Curves(table, ["data", "features", "form", "contender"], ["person"], None, "answers")
    counts, later = curves.counts, [count for count in curves.counts if count > 0]
    sections: list[Section] = []
    for data, features in dict.fromkeys(key[:2] for key in curves.series):
        keys = [key for key in curves.series if key[:2] == (data, features)]
        people = table[(table["data"] == data) & (table["features"] == features)]["person"].nunique()
        sections.append(Text([f"{people} people."], f"{data}, {features}", 1))

        def add(title: str, columns: Sequence[int], cells: Callable[[Key], list[str]], note: str = BY_PERSON) -> None:
            rows = [[*key[2:], *shown] for key in keys if any(shown := cells(key))]  # noqa: B023  # called here only
            header = ["form", "contender", *map(str, columns)]
            sections.append(TextTable(f"{data}, {features}: {title}", header, rows, note))  # noqa: B023

        for measure, words in MEASURES.items():
            add(words, counts, lambda key: [cell(curves.mean(key, measure, count)) for count in counts])  # noqa: B023
        for measure in ("accuracy", "regret"):
            words = f"{MEASURES[measure]}, less random questions with the same estimator"
            add(words, later, lambda key: _gains(curves, key, measure, later), f"{BY_PERSON} *: it excludes 0.")  # noqa: B023
        for budget, (amounts, assumed) in BUDGETS.items():
            words = f"{MEASURES['accuracy']}, after so many {budget}"
            add(words, amounts, lambda key: _read(curves, key, budget, amounts), assumed)  # noqa: B023
    words = tuple(f"{MEASURES['accuracy']}{end}" for end in ("", ", less random questions with the same estimator"))
    headline = [one for one in sections if isinstance(one, TextTable) and one.title.endswith(words)]
    return Report("Real people's ratings, replayed", [*sections, provenance_section(results)], headline=headline)


def _gains(curves: Curves, key: Key, measure: str, counts: Sequence[int]) -> list[str]:
    """A contender less random questions with the same form and estimator, paired by person; none for these."""
    random = (*key[:3], "random/" + key[3].split("/")[1])
    if key == random:
        return []
    return [cell(curves.difference([(key, random)], measure, count), "+.3f", star=True) for count in counts]


def _read(curves: Curves, key: Key, budget: str, amounts: Sequence[int]) -> list[str]:
    """The mean accuracy at each amount, linear between the numbers of answers; empty beyond the last one."""
    spent, values = curves.curve(key, budget), curves.curve(key, "accuracy")
    if not spent:
        return []
    at = np.interp(amounts, list(spent.values()), list(values.values()), right=np.nan)
    return ["" if np.isnan(one) else f"{one:.3f}" for one in at]
