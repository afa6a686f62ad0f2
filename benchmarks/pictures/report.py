"""The report of a replay: accuracy and regret per answer, per picture and per second, differences, calibration."""

from __future__ import annotations

from typing import Any

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
}
BUDGETS = {"pictures": (5, 10, 20, 40, 90, 180), "seconds": (10, 30, 60, 120)}
_ASSUMED = {
    "pictures": "Pictures count when they are first shown: a picture shown again need not be drawn again.",
    "seconds": "Each picture of a question is taken to need the time that the person took to rate one.",
}
_SERIES = ["data", "features", "form", "contender"]


def make_report(results: Results) -> Report:
    """The report of ``python -m benchmarks.pictures``."""
    table = results.table.assign(error=results.table["predicted"] - results.table["accuracy"])
    curves = Curves(table, _SERIES, ["person"], None, "answers")
    sections: list[Section] = []
    for data, features in dict.fromkeys(key[:2] for key in curves.series):
        keys = [key for key in curves.series if key[:2] == (data, features)]
        people = table[(table["data"] == data) & (table["features"] == features)]["person"].nunique()
        sections.append(Text([f"{people} people."], f"{data}, features of {features}", 1))
        title = f"{data}, {features}: "
        for measure, words in MEASURES.items():
            sections.append(_measure_table(title + words, curves, keys, measure))
        for measure in ("accuracy", "regret"):
            sections.append(
                _difference_table(f"{title}{MEASURES[measure]}, less random questions", curves, keys, measure)
            )
        sections += [
            _budget_table(f"{title}{measure} after so many {budget}", curves, keys, measure, budget)
            for budget in BUDGETS
            for measure in ("accuracy", "regret")
        ]
        sections.append(_cost_table(f"{title}what was shown, and the wait for a question", table, keys))
    tables = [one for one in sections if isinstance(one, TextTable)]
    headline = [one for one in tables if "random questions" in one.title or MEASURES["accuracy"] in one.title]
    return Report("Real people's ratings, replayed", [*sections, provenance_section(results)], headline=headline)


def _measure_table(title: str, curves: Curves, keys: list[Key], measure: str) -> TextTable:
    counts = curves.counts
    rows = [[*key[2:], *(cell(curves.mean(key, measure, count)) for count in counts)] for key in keys]
    return TextTable(title, ["form", "contender", *map(str, counts)], [r for r in rows if any(r[2:])], BY_PERSON)


def _difference_table(title: str, curves: Curves, keys: list[Key], measure: str) -> TextTable:
    """Paired by person, with the same form and estimator."""
    counts = [count for count in curves.counts if count > 0]
    rows = []
    for key in keys:
        random = (*key[:3], "random/" + key[3].split("/")[1])
        if key != random and random in keys:
            found = [curves.difference([(key, random)], measure, count) for count in counts]
            rows.append([*key[2:], *(cell(one, "+.3f", star=True) for one in found)])
    return TextTable(title, ["form", "contender", *map(str, counts)], rows, f"{BY_PERSON} *: it excludes 0.")


def _budget_table(title: str, curves: Curves, keys: list[Key], measure: str, budget: str) -> TextTable:
    """Mean curves read at budgets, linear between the numbers of answers; empty beyond the last one."""
    rows = []
    for key in keys:
        spent, values = curves.curve(key, budget), curves.curve(key, measure)
        if spent and values:
            at = np.interp(BUDGETS[budget], list(spent.values()), list(values.values()), right=np.nan)
            rows.append([*key[2:], *("" if np.isnan(one) else f"{one:.3f}" for one in at)])
    return TextTable(title, ["form", "contender", *map(str, BUDGETS[budget])], rows, _ASSUMED[budget])


def _cost_table(title: str, table: Any, keys: list[Key]) -> TextTable:
    """Means after the largest number of answers."""
    last = table[table["answers"] == table["answers"].max()].groupby(_SERIES)[["pictures", "seconds", "wait"]].mean()
    rows = [
        [
            *key[2:],
            f"{last.loc[key, 'pictures']:.0f}",
            f"{last.loc[key, 'seconds']:.0f}",
            f"{1000 * last.loc[key, 'wait']:.0f}",
        ]
        for key in keys
    ]
    count = table["answers"].max()
    return TextTable(title, ["form", "contender", f"pictures in {count} answers", "seconds", "ms a question"], rows)
