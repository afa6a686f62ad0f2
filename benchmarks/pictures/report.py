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
    "hit": "share of best-of-4 questions about held-out items predicted rightly",
    "regret": "regret of the ten best, in standard deviations of the person's ratings",
    "error": "predicted minus observed share of answers to pairs that are the likelier ones",
    "covered": "share of leads in their 90% intervals",
    "log_probability": "log probability of the answer about a pair",
    "different": "different pictures among those shown",
    "wait": "mean seconds until a question was chosen",
}
BUDGETS = {
    "pictures": ((5, 10, 20, 40, 90, 180), "Every picture shown counts, as if drawn for its question."),
    "seconds": ((10, 30, 60, 120), "Each picture shown is taken to need the median time of the person's ratings."),
}
"""Name -> amounts, and what is assumed."""
_GAIN = "less random questions with the same estimator"


def make_report(results: Results) -> Report:
    """The report of ``python -m benchmarks.pictures``."""
    table = results.table.assign(error=results.table["predicted"] - results.table["answered"])
    curves = Curves(table, ["data", "features", "form", "contender"], ["person"], None, "answers")
    sections: list[Section] = []
    for data, features in dict.fromkeys(key[:2] for key in curves.series):
        people = table[(table["data"] == data) & (table["features"] == features)]["person"].nunique()
        sections.append(Text([f"{people} people."], f"{data}, {features}", 1))
        sections += _tables(curves, [key for key in curves.series if key[:2] == (data, features)])
    main = (MEASURES["accuracy"], f"{MEASURES['accuracy']}, {_GAIN}")
    headline = [one for one in sections if isinstance(one, TextTable) and one.title.endswith(main)]
    return Report("Real people's ratings, replayed", [*sections, provenance_section(results)], headline=headline)


def _tables(curves: Curves, keys: list[Key]) -> list[TextTable]:
    """Of one set and its features."""
    found: list[TextTable] = []

    def add(words: str, columns: Sequence[int], cells: Callable[..., list[str]], measure: str, note: str) -> None:
        rows = [[*key[2:], *shown] for key in keys if any(shown := cells(curves, key, measure, columns))]
        header = ["form", "contender", *map(str, columns)]
        found.append(TextTable(f"{', '.join(keys[0][:2])}: {words}", header, rows, note))

    for measure, words in MEASURES.items():
        add(words, curves.counts, _means, measure, BY_PERSON)
    for measure in ("accuracy", "regret"):
        later = [count for count in curves.counts if count > 0]
        add(f"{MEASURES[measure]}, {_GAIN}", later, _gains, measure, f"{BY_PERSON} *: it excludes 0.")
    for budget, (amounts, assumed) in BUDGETS.items():
        add(f"{MEASURES['accuracy']}, after so many {budget}", amounts, _read, budget, assumed)
    return found


def _means(curves: Curves, key: Key, measure: str, counts: Sequence[int]) -> list[str]:
    return [cell(curves.mean(key, measure, count)) for count in counts]


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
