"""The report of a study of communities: curves, and what the population changes for each kind of new person.

New people are the same in all regimes of a vocabulary. Means are over people of the means over the regimes that a
person answered in, and intervals are bootstraps of the people, then of the regimes of each.
"""

from __future__ import annotations

from typing import Any

from benchmarks.communities.settings import ESTIMATORS, KINDS, RULES
from benchmarks.kit.series import Curves, Estimated
from benchmarks.kit.tables import BY_PERSON, cell, curve_table, learning_panel, needed_cell
from edpbrl_gym.experiments.runs import Results
from edpbrl_gym.experiments.sections import provenance_section
from edpbrl_gym.reporting.figures import curves_figure
from edpbrl_gym.reporting.report import Picture, Report, Section, Text, bullets
from edpbrl_gym.reporting.tables import TextTable

METRICS: dict[str, str] = {
    "preference_error": "preference error",
    "regret_ten": "regret of the ten best",
    "log_likelihood": "log-likelihood of held-out answers",
}
"""Column -> what it is; lower is better in the first two, higher in the last."""

_HIGHER = "log_likelihood"
_POPULATION = "population-factors"  # what is compared with "alone"


class Communities:
    """The rows of a study, as the report reads them."""

    def __init__(self, table: Any) -> None:
        self.kinds = [name for name in KINDS if name in set(table["kind"])]
        there = set(zip(table["estimator"], table["rule"], strict=True))
        self.series = [(one, rule) for one in ESTIMATORS for rule in RULES if (one, rule) in there]
        self.curves = Curves(table, ["kind", "estimator", "rule"], ["words", "person", "regime"], 2, "answers")

    @property
    def rules(self) -> list[str]:
        """Those by which both the population and alone were asked."""
        return [rule for rule in RULES if {(_POPULATION, rule), ("alone", rule)} <= set(self.series)]

    def keys(self, kind: str) -> dict[tuple[str, str], tuple[str, str, str]]:
        """Estimator and rule -> their series of a kind of new people."""
        return {shown: (kind, *shown) for shown in self.series}

    def gain(self, kind: str, rule: str, metric: str, answers: int) -> Estimated | None:
        """With minus without the population, person by person, with the same kind of questions."""
        return self.curves.difference([((kind, _POPULATION, rule), (kind, "alone", rule))], metric, answers)


def make_report(results: Results) -> Report:
    """The report of ``python -m benchmarks.communities``."""
    found = Communities(results.table)
    sections: list[Section] = [
        Text(bullets(_verdict(found))),
        Picture("learning", "What is known of new people against their answers", _learning_figure(found)),
    ]
    for metric, title in METRICS.items():
        sections += [
            Text(title=title, level=1),
            _needed_table(found, metric),
            _gain_table(found, metric),
            *(_curve_table(found, kind, metric) for kind in found.kinds),
        ]
    return Report(
        "Simulated communities",
        [*sections, provenance_section(results)],
        headline=[_needed_table(found, "preference_error"), _gain_table(found, "preference_error")],
    )


def _table(title: str, first: str, columns: list[Any], rows: list[list[str]]) -> TextTable:
    """A table of the rows that have a number."""
    known = [row for row in rows if any(row[2:])]
    return TextTable(title, [first, "questions", *map(str, columns)], known, BY_PERSON)


def _curve_table(found: Communities, kind: str, metric: str) -> TextTable:
    return curve_table(f"{METRICS[metric]}, {kind}, after so many answers", found.curves, found.keys(kind), metric)


def _needed_table(found: Communities, metric: str) -> TextTable:
    """Answers that a person needs alone for what the population reaches after fewer."""
    counts, curves = [count for count in found.curves.counts if count > 0], found.curves
    rows = []
    for kind in found.kinds:
        for rule in found.rules:
            alone, reference = (kind, "alone", rule), (kind, _POPULATION, rule)
            needed = [curves.needed(alone, reference, metric, at, higher=metric == _HIGHER) for at in counts]
            rows.append([kind, rule, *(needed_cell(one, counts[-1]) for one in needed)])
    return _table(f"Answers needed alone for the {METRICS[metric]} that {_POPULATION} has after", "kind", counts, rows)


def _gain_table(found: Communities, metric: str) -> TextTable:
    """With minus without the population at every number of answers."""
    counts = found.curves.counts
    rows = [
        [kind, rule, *(cell(found.gain(kind, rule, metric, count), "+.3f") for count in counts)]
        for kind in found.kinds
        for rule in found.rules
    ]
    return _table(f"{METRICS[metric]}: {_POPULATION} minus alone", "kind", counts, rows)


def _verdict(found: Communities) -> list[str]:
    """For each kind of new person, where the population is surely better and surely worse than none."""
    lines = []
    for kind in found.kinds:
        gains = {
            (metric, rule, count): found.gain(kind, rule, metric, count)
            for metric in METRICS
            for rule in found.rules
            for count in found.curves.counts
        }
        signs = {key: one.sign * (-1 if key[0] == _HIGHER else 1) for key, one in gains.items() if one is not None}
        worse = [f"{METRICS[key[0]]}, {key[1]}, after {key[2]}" for key, sign in signs.items() if sign > 0]
        better = sum(sign < 0 for sign in signs.values())
        where = f" ({'; '.join(worse)})" if worse else ""
        lines.append(
            f"{kind}: of {len(signs)} differences between {_POPULATION} and alone {better} are surely for the better "
            f"and {len(worse)} surely for the worse{where}."
        )
    return lines


def _learning_figure(found: Communities) -> Any:
    """Every metric against answers, a column of panels for each kind of new person."""
    about = {"estimators": list(ESTIMATORS), "shaded": "adaptive"}
    panels = [
        learning_panel(found.curves, found.keys(kind), metric, title=kind, ylabel=title, **about)  # type: ignore[arg-type]
        for metric, title in METRICS.items()
        for kind in found.kinds
    ]
    counts = found.curves.counts
    return curves_figure(
        panels,
        columns=len(found.kinds),
        xlabel="answers of the new person",
        title="New people, with and without what the community has answered",
        subtitle="Means over people and regimes; bands: 95% bootstrap intervals over people, adaptive questions.",
        share="row",
        zero=False,
        ticks=[count for count in counts if count == 0 or count >= counts[-1] / 8],  # labels that do not overlap
    )
