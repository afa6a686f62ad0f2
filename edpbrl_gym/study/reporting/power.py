"""How many people and test questions a study needs: the report of `edpbrl study power`."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from edpbrl_gym.reporting.figures import Curve, Level, Panel, curves_figure, look
from edpbrl_gym.reporting.report import Picture, Report, Section, Text, bullets
from edpbrl_gym.reporting.statistics import bracket, plural
from edpbrl_gym.reporting.tables import TextTable
from edpbrl_gym.study.export_tables import StudyTables
from edpbrl_gym.study.reporting.arm_test import (
    MOST_PEOPLE,
    WANTED,
    ArmTest,
    compare_paired,
    detectable,
    people_needed,
    power_of,
    values_of,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Assumed", "expected_differences", "make_power_report", "power_figure"]

_PEOPLE = (10, 15, 20, 30, 40, 60, 80, 100, 150, 200)
_SHOWN = (10, 20, 30, 50, 100, 200)  # in the table
_QUESTIONS = (4, 8, 16, 32)
_LINE_WIDTH = 45  # letters of a panel's title
_MINUS = "−"


@dataclass(frozen=True)
class Assumed:
    """What the plan rests on.

    Attributes:
        asked: Test questions that the study asks.
        difference: Difference for which power is wanted; None: the simulated one.
        level: Largest probability of an error where arms do not differ.
    """

    asked: int
    scale: float  # of simulated people's utilities
    tastes: str  # where they come from
    difference: float | None = None
    level: float = 0.05


def expected_differences(tables: StudyTables, tastes: Mapping[str, int]) -> dict[int, list[ArmTest]]:
    """The differences of the simulated arms from the first one, by number of answers, ascending.

    Args:
        tables: Of simulated people.
        tastes: As of ``simulate``.
    """
    arms = [arm["name"] for arm in tables.study["arms"]]
    found: dict[int, list[ArmTest]] = {}
    moments = sorted({row["after"] for row in tables.predictions if not row["last"]})
    most = max(row["after"] for row in tables.predictions)
    for after in [*moments, most]:
        values = values_of(tables, after=None if after == most else after, order=tastes)
        if set(values) >= set(arms):
            count = min(len(values[arm]) for arm in arms)
            first = values[arms[0]][:count]
            found[after] = [compare_paired(first, values[arm][:count], names=(arms[0], arm)) for arm in arms[1:]]
    return found


def make_power_report(tables: StudyTables, tastes: Mapping[str, int], assumed: Assumed) -> Report:
    """The report: what is assumed, the expected differences, the people that they need, and the power."""
    found = expected_differences(tables, tastes)
    most = max(found)
    level = assumed.level / len(found[most])
    if assumed.difference is not None:
        found = {most: [_assumed(test, assumed.difference) for test in found[most]]}
    questions = sorted({assumed.asked, *_QUESTIONS} - {0})
    needed = _needed_table(found, questions, level)
    headline = _headline(found[most], assumed, level)
    sections: list[Section] = [Text(headline)]
    if assumed.difference is None:
        sections.append(_differences_table(found))
    sections += [
        needed,
        _found_table(found[most], questions, level),
        Picture("power", "Power against people of each arm", power_figure(found[most], questions, level)),
        *_power_table([test for test in found[most] if not _uncertain(test)], questions, level),
        Text(bullets(_how(found[most], assumed, level)), "What is assumed"),
    ]
    return Report(f"People for {tables.study['title']}", sections, headline=[Text(headline), needed])


def _assumed(test: ArmTest, difference: float) -> ArmTest:
    return replace(test, difference=difference, low=difference, high=difference, error=0.0)


def _uncertain(test: ArmTest) -> bool:
    """Whether the simulation leaves open which arm is better; never of a difference that was assumed."""
    return test.low <= 0 <= test.high


def _people(test: ArmTest, questions: int, level: float) -> str:
    """How many people of each arm find the difference, and those of the ends of its interval."""

    def needed(difference: float) -> str:
        people = people_needed(test.parts, difference, questions, level=level)
        return f"> {MOST_PEOPLE:,}" if people is None else f"{people:,}"

    if _uncertain(test):
        return "uncertain"
    near, far = sorted((test.low, test.high), key=abs)
    ends = "" if near == far else f" ({needed(far)} to {needed(near)})"
    return f"{needed(test.difference)}{ends}"


def _headline(tests: list[ArmTest], assumed: Assumed, level: float) -> list[str]:
    asked = assumed.asked or _QUESTIONS[0]
    lines = []
    for test in tests:
        size = f"{test.difference:+.3f} nats an answer".replace("-", _MINUS)
        known = "assumed" if assumed.difference is not None else f"simulated, ± {test.error:.3f}"
        people = people_needed(test.parts, test.difference, asked, level=level)
        if _uncertain(test):
            many = (
                "the simulation can't say how many people find it, since it may be 0: simulate more --people, or give "
                "the --difference that would matter to you"
            )
        elif people is None:
            many = f"even {MOST_PEOPLE:,} people of each arm are too few: ask more test questions"
        else:
            many = f"{_people(test, asked, level)} people of each arm find it with a probability of {WANTED:.0%}"
        lines.append(
            f"{test.arm} {_MINUS} {test.first}: {size} ({known}); with {plural(asked, 'test question')} {many}."
        )
    if not assumed.asked:
        lines.append("The study asks no test questions yet, by which arms are compared: set test in [checks].")
    return bullets(lines)


def _differences_table(found: Mapping[int, list[ArmTest]]) -> TextTable:
    rows = [
        [
            f"{test.arm} {_MINUS} {test.first}",
            str(after),
            f"{test.difference:+z.3f} {bracket(test.low, test.high, '+z.3f')}".replace("-", _MINUS),
            f"{np.mean(test.parts.people) ** 0.5:.3f}",
            f"{np.mean(test.parts.answers) ** 0.5:.3f}",
            f"{test.parts.questions**0.5:.3f}",
        ]
        for after, tests in found.items()
        for test in tests
    ]
    note = (
        "Log-likelihood of a test answer by what was learnt from so many answers, in nats, with 95% intervals of the "
        "simulation (more --people narrow them). Deviations: of people around their arm, of one answer around person "
        "and question, and of the difference from question to question."
    )
    header = ["difference of", "answers", "nats an answer [95%]", "of people", "of answers", "of questions"]
    return TextTable("What the arms are expected to differ by", header, rows, note, 1)


def _needed_table(found: Mapping[int, list[ArmTest]], questions: list[int], level: float) -> TextTable:
    rows = []
    for after, tests in found.items():
        for test in tests:
            shown = [_people(test, count, level) for count in questions]
            rows.append([f"{test.arm} {_MINUS} {test.first}", str(after), *shown])
    header = ["difference of", "answers", *(f"{count} test questions" for count in questions)]
    note = (
        "In brackets: for the ends of the 95% interval of the simulated difference. Uncertain: the interval holds 0, "
        "so that the simulation does not say which arm is better. More --people make it narrower."
    )
    every = [test for tests in found.values() for test in tests]
    note = note if any(test.low != test.high for test in every) else "For the difference that was assumed."
    return TextTable(f"People of each arm for a power of {WANTED:.0%}", header, rows, note, 1)


def _found_table(tests: list[ArmTest], questions: list[int], level: float) -> TextTable:
    rows = [
        [
            f"{test.arm} {_MINUS} {test.first}",
            str(people),
            *(f"{detectable(test.parts, people, count, level=level):.3f}" for count in questions),
        ]
        for test in tests
        for people in _SHOWN
    ]
    note = (
        "In nats an answer, after all answers. It depends on how much people, answers and questions vary, which few "
        "simulated people tell better than which arm is better."
    )
    header = ["difference of", "people of each arm", *(f"{count} test questions" for count in questions)]
    return TextTable(f"The smallest difference with a power of {WANTED:.0%}", header, rows, note, 1)


def _power_table(tests: list[ArmTest], questions: list[int], level: float) -> list[Section]:
    """Of the comparisons whose difference is known; nothing without any."""
    if not tests:
        return []
    rows = [
        [
            f"{test.arm} {_MINUS} {test.first}",
            str(people),
            *(f"{power_of(test.parts, test.difference, people, count, level=level):.2f}" for count in questions),
        ]
        for test in tests
        for people in _SHOWN
    ]
    header = ["difference of", "people of each arm", *(f"{count} test questions" for count in questions)]
    return [TextTable("Power after all answers", header, rows, words=1)]


def power_figure(tests: list[ArmTest], questions: list[int], level: float) -> Figure:
    """Power against people of each arm, a curve for each number of test questions, a panel for each comparison."""
    panels = []
    for test in tests:
        curves = []
        for place, count in enumerate(questions):
            powers = [power_of(test.parts, test.difference, people, count, level=level) for people in _PEOPLE]
            curves.append(Curve(plural(count, "test question"), np.array(_PEOPLE), np.array(powers), look(place)))
        names = f"{test.arm} {_MINUS} {test.first}"
        size = f"{test.difference:+.3f} nats{' (uncertain)' if _uncertain(test) else ''}".replace("-", _MINUS)
        panels.append(
            Panel(curves, f"{textwrap.fill(names, _LINE_WIDTH)}\n{size}", "power", levels=[Level(WANTED, note="80%")])
        )
    figure = curves_figure(
        panels,
        columns=2,
        xlabel="people of each arm",
        title="How surely the study finds the difference",
        subtitle="Probability that the test of the report finds it, where people answer as simulated.",
        size=(4.2, 3.0),
        ticks=[10, 50, 100, 150, 200],
    )
    for axis in figure.axes:
        axis.set_ylim(0, 1.02)
    return figure


def _how(tests: list[ArmTest], assumed: Assumed, level: float) -> list[str]:
    people, asked = tests[0].people[0], tests[0].questions
    lines = [
        f"{people} people of each arm took part in the study's own queue. Their tastes are draws from "
        f"{assumed.tastes}, their answers those of its answer format at a scale of {assumed.scale:g} (--scale; less "
        "is more noise).",
        f"Each was asked {asked} test questions, so that the variances of people, answers and questions are known for "
        "any number of them. Power is that of the report's test of arms, which takes people and test questions as "
        "drawn at random, on studies drawn with these variances.",
        f"Found means p < {level:.3g}"
        + (f", {assumed.level:g} over {len(tests)} comparisons." if len(tests) > 1 else "."),
        "It is assumed that people answer by the model of the estimates. Real people are noisier, and no prior is "
        "exactly theirs (docs/people.md): take the number of people as the least, and see what a smaller --scale or "
        "--difference says. People who drop out or are excluded come on top.",
    ]
    if assumed.difference is not None:
        lines.append("The difference was assumed (--difference); only variances are from the simulation.")
    return lines
