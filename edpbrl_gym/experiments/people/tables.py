"""The tables of a replay."""

from __future__ import annotations

import math

from edpbrl_gym.experiments.people.estimators import ALONE, HIERARCHICAL_BAYES
from edpbrl_gym.experiments.people.summary import MEASURES, Replays, Series
from edpbrl_gym.reporting.statistics import PairedDifference, bracket
from edpbrl_gym.reporting.tables import TextTable

__all__ = [
    "anchor_table",
    "calibration_table",
    "curve_table",
    "estimators_table",
    "needed_table",
    "ratio_table",
    "rules_table",
    "times_table",
]

_BY_PERSON = "In brackets: 95% bootstrap intervals over people."


def curve_table(replays: Replays, data: str, measure: str, *, intervals: bool) -> TextTable:
    """A measure at every number of answers, for every estimator and rule."""
    counts = replays.answers(data)
    rows = []
    for series in replays.series(data):
        cells = []
        for count in counts:
            values = replays.values(data, series, measure, count)
            if not len(values):
                cells.append("")
                continue
            low, high = PairedDifference(values).interval if intervals else (math.nan, math.nan)
            cells.append(f"{values.mean():.3f}" + (f" {bracket(low, high, '.3f')}" if intervals else ""))
        rows.append([series.estimator, series.rule, *cells])
    people = [str(len(replays.values(data, replays.series(data)[0], measure, count))) for count in counts]
    rows.append(["people", "", *people])
    title = f"{data}: {MEASURES[measure]} of held-out answers, after so many answers of the person"
    return TextTable(title, ["estimator", "questions", *map(str, counts)], rows, _BY_PERSON if intervals else "")


def calibration_table(replays: Replays, data: str) -> TextTable:
    """Expected calibration error at every number of answers, and of all together."""
    counts = replays.common(data)
    rows = []
    for series in replays.series(data):
        bins = [replays.bins(data, series, count) for count in counts]
        whole = replays.bins(data, series, None)
        cells = ["" if one is None else f"{one.error:.3f}" for one in bins]
        last = "" if whole is None else f"{whole.error:.3f} {bracket(*whole.interval, '.3f')}"
        rows.append([series.estimator, series.rule, *cells, last])
    note = (
        "Mean over answers of |hit rate - confidence| in ten bins of confidence, the probability of the option that "
        "the estimate prefers. Few answers in a bin make it larger than it is; all together is the number to read. "
        + _BY_PERSON
    )
    header = ["estimator", "questions", *map(str, counts), "all together"]
    return TextTable(f"{data}: expected calibration error", header, rows, note)


def needed_table(replays: Replays, data: str, measure: str) -> TextTable:
    """Answers needed for what the best estimator without other people reaches with random questions."""
    best = replays.best_alone(data, measure)
    if best is None:
        return TextTable("", [], [])
    counts = [count for count in replays.common(data) if count > 0]
    levels = replays.complete(data, best, measure).mean()
    rows = []
    for series in replays.series(data):
        cells = [_needed(*replays.needed(data, series, measure, float(levels[count])), counts[-1]) for count in counts]
        rows.append([series.estimator, series.rule, *cells])
    note = (
        f"Levels: what {best.estimator} reaches with random questions after so many answers "
        f"({', '.join(f'{levels[count]:.3f}' for count in counts)}). Linear between the numbers of answers. "
        + _BY_PERSON
    )
    title = f"{data}: answers needed for the {MEASURES[measure]} that {best.estimator} has after"
    return TextTable(title, ["estimator", "questions", *map(str, counts)], rows, note)


def _needed(value: float, ends: tuple[float, float], most: int) -> str:
    def text(number: float) -> str:
        return f"{number:.1f}" if math.isfinite(number) else f"> {most}"

    if any(math.isnan(end) for end in ends):
        return text(value)
    return f"{text(value)} [{text(ends[0])}, {text(ends[1])}]"


def ratio_table(replays: Replays, data: str, measure: str) -> TextTable:
    """Answers that a rule needs for what random questions reach, with the same estimator."""
    counts = [count for count in replays.common(data) if count > 0]
    rows = []
    for series in replays.series(data):
        random = Series(series.estimator, "random")
        if series.rule == "random" or random not in replays.series(data):
            continue
        levels = replays.complete(data, random, measure).mean()
        cells = [_needed(*replays.needed(data, series, measure, float(levels[count])), counts[-1]) for count in counts]
        rows.append([series.estimator, series.rule, *cells])
    title = f"{data}: answers needed for the {MEASURES[measure]} that random questions reach after"
    return TextTable(title, ["estimator", "questions", *map(str, counts)], rows, _BY_PERSON)


def rules_table(replays: Replays, data: str, measure: str) -> TextTable:
    """Differences of every rule to random questions, person by person, with the same estimator."""
    counts = [count for count in replays.answers(data) if count > 0]
    rows = []
    for series in replays.series(data):
        random = Series(series.estimator, "random")
        if series.rule != "random" and random in replays.series(data):
            rows.append(_differences(replays, data, measure, counts, series, random))
    title = f"{data}: {MEASURES[measure]}, difference to random questions"
    return TextTable(title, ["estimator", "questions", *map(str, counts)], rows, _BY_PERSON)


def estimators_table(replays: Replays, data: str, measure: str) -> TextTable:
    """Differences of every estimator to the best one without other people, with random questions."""
    best = replays.best_alone(data, measure)
    counts = replays.answers(data)
    rows = []
    for series in replays.series(data):
        if best is not None and series.rule == "random" and series.estimator not in ALONE:
            rows.append(_differences(replays, data, measure, counts, series, best))
    title = f"{data}: {MEASURES[measure]}, difference to {best.estimator if best else ''}, random questions"
    return TextTable(title, ["estimator", "questions", *map(str, counts)], rows, _BY_PERSON)


def anchor_table(replays: Replays, data: str, measure: str) -> TextTable:
    """Differences of every estimator that knows others, by every rule, to hierarchical Bayes with random questions."""
    anchor = Series(HIERARCHICAL_BAYES, "random")
    counts = replays.answers(data)
    rows = []
    if anchor in replays.series(data):
        for series in replays.series(data):
            if series != anchor and series.estimator not in ALONE:
                rows.append(_differences(replays, data, measure, counts, series, anchor))
    title = f"{data}: {MEASURES[measure]}, difference to {HIERARCHICAL_BAYES} with random questions"
    return TextTable(title, ["estimator", "questions", *map(str, counts)], rows, _BY_PERSON)


def _differences(
    replays: Replays, data: str, measure: str, counts: list[int], first: Series, second: Series
) -> list[str]:
    cells = []
    for count in counts:
        pairs = replays.difference(data, measure, count, first, second)
        cells.append(f"{pairs.mean:+.3f} {bracket(*pairs.interval, '+.3f')}" if pairs.runs else "")
    return [first.estimator, first.rule, *cells]


def times_table(replays: Replays, data: str) -> TextTable:
    """Seconds per person."""
    rows = []
    for series in replays.series(data):
        fit, question, population = replays.seconds(data, series)
        cells = ["" if math.isnan(one) else f"{1000 * one:.2f}" for one in (fit, question)]
        rows.append([series.estimator, series.rule, *cells, f"{population:.2f}"])
    header = ["estimator", "questions", "ms per estimate", "ms per question", "s for the other people, once"]
    note = (
        "An estimate with its posterior for one person; choosing the next question, with the estimate that it takes; "
        "what is learnt from the other people of a fold, once for all new ones. For hierarchical-bayes an estimate is "
        "the time of a chain divided by the number of new people whom it serves."
    )
    return TextTable(f"{data}: time", header, rows, note)
