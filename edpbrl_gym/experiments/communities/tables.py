"""The tables of a study of communities."""

from __future__ import annotations

import math

from edpbrl_gym.experiments.bench.first_runs import Estimated
from edpbrl_gym.experiments.communities.settings import POPULATION
from edpbrl_gym.experiments.communities.summary import METRICS, Communities, worse
from edpbrl_gym.experiments.people.summary import Series
from edpbrl_gym.reporting.statistics import bracket
from edpbrl_gym.reporting.tables import TextTable

__all__ = [
    "contenders_table",
    "curve_table",
    "difference_table",
    "needed_table",
    "regime_table",
    "times_table",
    "verdict",
]

_BY_PERSON = "In brackets: 95% bootstrap intervals over people."


def curve_table(found: Communities, kind: str, metric: str) -> TextTable:
    """A metric at every number of answers, for every estimator and rule."""
    rows = []
    for series in found.series:
        cells = [_cell(found.mean(series, kind, metric, count), ".3f") for count in found.answers]
        rows.append([series.estimator, series.rule, *cells])
    header = ["estimator", "questions", *map(str, found.answers)]
    return TextTable(f"{METRICS[metric]}, {kind}, after so many answers", header, rows, _BY_PERSON)


def needed_table(found: Communities, metric: str) -> TextTable:
    """Answers that a person needs alone for what the population reaches after fewer."""
    counts = [count for count in found.answers if count > 0]
    rows = []
    for kind in found.kinds:
        for alone in (series for series in found.series if series.estimator == "alone"):
            reference = Series(POPULATION, alone.rule)
            cells = [_needed(found.needed(alone, reference, kind, metric, count), counts[-1]) for count in counts]
            rows.append([kind, alone.rule, *cells])
    title = f"Answers needed alone for the {METRICS[metric]} that {POPULATION} has after"
    note = f"Both with the same kind of questions; linear between the numbers of answers. {_BY_PERSON}"
    return TextTable(title, ["new person", "questions", *map(str, counts)], _known(rows), note)


def difference_table(found: Communities, metric: str) -> TextTable:
    """With minus without the population, person by person, with the same kind of questions."""
    rows = []
    for kind in found.kinds:
        for first, alone in _with_and_without(found):
            cells = [_cell(found.difference(first, alone, kind, metric, count), "+.3f") for count in found.answers]
            rows.append([kind, first.rule, *cells])
    title = f"{METRICS[metric]}: {POPULATION} minus alone"
    return TextTable(title, ["new person", "questions", *map(str, found.answers)], _known(rows), _BY_PERSON)


def regime_table(found: Communities, metric: str, answers: int) -> TextTable:
    """With minus without the population in each regime after some answers."""
    rows = []
    for regime in found.regimes:
        for first, alone in _with_and_without(found):
            cells = [
                _cell(found.difference(first, alone, kind, metric, answers, regime), "+.3f") for kind in found.kinds
            ]
            rows.append([regime, first.rule, *cells])
    title = f"{METRICS[metric]}: {POPULATION} minus alone after {answers} answers"
    return TextTable(title, ["regime", "questions", *found.kinds], _known(rows), _BY_PERSON)


def contenders_table(found: Communities, metric: str) -> TextTable:
    """Every contender, with its own questions where it has a rule for them, minus the population's adaptive ones."""
    ours = found.own_rule(POPULATION)
    rows = []
    names = dict.fromkeys(series.estimator for series in found.series if series.estimator not in ("alone", POPULATION))
    for kind in found.kinds:
        for name in names:
            theirs = found.own_rule(name)
            if ours is None or theirs is None:
                continue
            cells = [_cell(found.difference(theirs, ours, kind, metric, count), "+.3f") for count in found.answers]
            rows.append([kind, f"{name}, {theirs.rule}", *cells])
    title = f"{METRICS[metric]}: contenders minus {POPULATION} with adaptive questions"
    return TextTable(title, ["new person", "contender", *map(str, found.answers)], _known(rows), _BY_PERSON)


def times_table(found: Communities) -> TextTable:
    """Seconds of an estimate, of a question and of what is learnt from the community."""
    rows = []
    for series in found.series:
        fit, question, once = found.seconds(series)
        cells = ["" if math.isnan(one) else f"{1000 * one:.1f}" for one in (fit, question)]
        rows.append([series.estimator, series.rule, *cells, f"{once:.1f}"])
    header = ["estimator", "questions", "ms per estimate", "ms per question", "s for the community, once"]
    note = "An estimate after at least one answer; choosing the next question, with the estimate that it takes."
    return TextTable("Time", header, rows, note)


def verdict(found: Communities) -> list[str]:
    """Sentences: for each kind of new person, where the population is surely better and surely worse than none."""
    lines = []
    for kind in found.kinds:
        signs = {
            (metric, first.rule, count): worse(metric, difference)
            for metric in METRICS
            for first, alone in _with_and_without(found)
            for count in found.answers
            if (difference := found.difference(first, alone, kind, metric, count)) is not None
        }
        if not signs:
            continue
        lost: dict[str, list[str]] = {}
        for (metric, rule, count), sign in signs.items():
            if sign > 0:
                lost.setdefault(f"{METRICS[metric]}, {rule}", []).append(str(count))
        where = "; ".join(f"{what}: after {', '.join(counts)} answers" for what, counts in lost.items())
        worse_ones = sum(sign > 0 for sign in signs.values())
        better = sum(sign < 0 for sign in signs.values())
        lines.append(
            f"{kind}: of {len(signs)} differences between {POPULATION} and alone {better} are surely for the better "
            f"and {worse_ones} surely for the worse{f' ({where})' if where else ''}."
        )
    return lines


def _with_and_without(found: Communities) -> list[tuple[Series, Series]]:
    """The population and alone, with the same rule."""
    pairs = [(series, Series("alone", series.rule)) for series in found.series if series.estimator == POPULATION]
    return [pair for pair in pairs if pair[1] in found.series]


def _known(rows: list[list[str]]) -> list[list[str]]:
    """Rows that have a number."""
    return [row for row in rows if any(row[2:])]


def _cell(value: Estimated | None, form: str) -> str:
    return "" if value is None else f"{value.value:{form}} {bracket(value.low, value.high, form)}"


def _needed(value: Estimated | None, most: int) -> str:
    if value is None:
        return ""

    def text(number: float) -> str:
        return f"{number:.1f}" if math.isfinite(number) else f"> {most}"

    if math.isnan(value.low) or math.isnan(value.high):
        return text(value.value)
    return f"{text(value.value)} [{text(value.low)}, {text(value.high)}]"
