"""Whether arms differ: a test that takes people and test questions as drawn at random, its power, and its words.

The value of a person at a test question is the log-likelihood of the answer under the estimate. People are nested in
arms, and everybody is asked the same questions, so that how hard a question is cancels in the difference of two arms;
how much more it shows of one arm than of the other does not. The variance of the difference has a part for the people
of each arm (Welch's) and one for how the difference itself changes from question to question, beyond what chance alone
makes of it; its degrees of freedom are Satterthwaite's. This is the quasi-F of H. H. Clark, "The
language-as-fixed-effect fallacy", Journal of Verbal Learning and Verbal Behavior 12 (1973), for two arms of different
variances. With few questions the second part is mostly noise, which makes the quasi-F reject too rarely where the arms
have none; so it is taken in where an F test of it gives p < .25, the level of T. A. Bancroft, "Analysis and inference
for incompletely specified models", Biometrics 20 (1964). `python -m benchmarks.study_arms` measures how often the test
errs.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from scipy.special import fdtrc, gammaincinv, ndtr, stdtr, stdtrit

from edpbrl_gym._arrays import Floats
from edpbrl_gym.reporting.report import Section, Text
from edpbrl_gym.reporting.statistics import bracket, plural
from edpbrl_gym.reporting.tables import TextTable
from edpbrl_gym.study.export_tables import StudyTables
from edpbrl_gym.study.reporting.statistics import tested_answers

__all__ = [
    "WANTED",
    "ArmTest",
    "Parts",
    "arm_tests",
    "compare_paired",
    "compare_values",
    "detectable",
    "p_text",
    "people_needed",
    "power_of",
    "section_of_tests",
    "values_of",
]

WANTED = 0.8  # power that a study should have, by convention
MOST_PEOPLE = 10_000  # of an arm, beyond which no number is named
_POOLED = 0.25  # p of the questions' part from which on it is left out
_DRAWS = 500  # of the variances that a study finds
_MINUS = "−"


def values_of(
    tables: StudyTables, *, after: int | None = None, order: Mapping[str, int] | None = None
) -> dict[str, Floats]:
    """The log-likelihoods of those who finished, by arm, (people, questions); NaN where one can't tell.

    Args:
        tables: Of a study.
        after: Predictions after so many answers, without people who have no such prediction; None: after all.
        order: Number of each person, by which the rows of an arm are ordered; None: by pseudonym.
    """
    arms = {row["participant"]: row["arm"] for row in tables.participants if row["status"] == "finished"}
    found: dict[str, dict[str, dict[tuple[str, ...], float]]] = defaultdict(lambda: defaultdict(dict))
    for one in tested_answers(tables):
        if one.participant in arms and (one.is_last if after is None else one.after == after):
            found[arms[one.participant]][one.participant][one.question] = one.log
    questions = sorted({question for people in found.values() for given in people.values() for question in given})
    return {
        arm: np.array(
            [
                [given.get(question, math.nan) for question in questions]
                for name, given in sorted(people.items(), key=lambda one: one[0] if order is None else order[one[0]])
            ]
        )
        for arm, people in found.items()
    }


@dataclass(frozen=True)
class Parts:
    """What the values of two arms vary by: variances, those of people and answers for the first arm and the other."""

    people: tuple[float, float]  # of a person's mean over all questions
    answers: tuple[float, float]  # of one answer around person and question
    questions: float  # over questions, of the difference between the arms


@dataclass(frozen=True)
class ArmTest:
    """The difference of an arm from the first one."""

    first: str  # name of the first arm
    arm: str  # name of the other one
    difference: float  # mean of the other minus mean of the first
    low: float  # ends of its interval
    high: float
    error: float  # standard error of the difference
    p: float  # of no difference, of this comparison alone
    people: tuple[int, int]  # in the first arm and the other one
    questions: int  # number of test questions
    parts: Parts
    corrected: float = math.nan  # p of no difference for all comparisons together (Holm)


def compare_values(first: Floats, other: Floats, *, names: tuple[str, str] = ("", ""), level: float = 0.05) -> ArmTest:
    """Test whether two arms differ.

    With one question nothing is known of other questions; the test is then of this question.

    Args:
        first: Values of the first arm, (people, questions); NaN: missing.
        other: Of the other arm, about the same questions.
        names: Of the two.
        level: 1 minus the probability of the interval.

    Raises:
        ValueError: Fewer than two people in an arm, or no question that both arms have values of.
    """
    both = np.isfinite(first).any(axis=0) & np.isfinite(other).any(axis=0)
    arms = [values[:, both] for values in (first, other)]
    arms = [values[np.isfinite(values).any(axis=1)] for values in arms]
    people = (len(arms[0]), len(arms[1]))
    if min(people) < 2:
        raise ValueError(f"Expected at least 2 people in each arm with answers to the same questions, got {people}")
    questions = int(both.sum())
    measured = [_of_arm(values) for values in arms]
    differences = measured[1].means - measured[0].means
    found = _Found(
        differences.mean(),
        np.array([[one.people] for one in measured]),
        np.array([[one.noise] for one in measured]),
        np.atleast_1d(differences.var(ddof=1) / questions if questions > 1 else 0.0),
        people,
        questions,
    )
    variance, freedom = (float(one[0]) for one in _judged(found))
    difference = float(found.difference)
    half = math.sqrt(variance) * float(stdtrit(freedom, 1 - level / 2))
    if variance > 0:
        p = float(2 * stdtr(freedom, -abs(difference) / math.sqrt(variance)))
    else:
        p = 1.0 if difference == 0 else 0.0
    noise = float(found.noise.sum())
    parts = Parts(
        people=(measured[0].apart, measured[1].apart),
        answers=(measured[0].answers, measured[1].answers),
        questions=max(0.0, float(found.questions[0]) - noise) * questions,
    )
    return ArmTest(
        names[0],
        names[1],
        difference,
        difference - half,
        difference + half,
        math.sqrt(variance),
        p,
        people,
        questions,
        parts,
    )


def compare_paired(first: Floats, other: Floats, *, names: tuple[str, str] = ("", "")) -> ArmTest:
    """As ``compare_values``, where the n-th row of each arm is of the same simulated person, without missing values.

    Difference, error and the questions' part are then those of the paired differences, which vary less.
    """
    test, differences = compare_values(first, other, names=names), other - first
    one, count = _of_arm(differences), len(differences)
    varying = float(one.means.var(ddof=1)) / test.questions
    error = math.sqrt(one.people + max(0.0, varying - one.noise))
    half = error * float(stdtrit(min(count, test.questions) - 1, 0.975))
    parts = replace(test.parts, questions=max(0.0, varying - one.noise) * test.questions)
    return replace(test, low=test.difference - half, high=test.difference + half, error=error, p=math.nan, parts=parts)


class _OfArm(NamedTuple):
    means: Floats  # of each question
    people: float  # variance of the arm's mean over people, for these questions
    noise: float  # the part of it that chance alone makes, were there no people
    answers: float  # variance of one answer around person and question
    apart: float  # of a person's mean over all questions


def _of_arm(values: Floats) -> _OfArm:
    """Of values (people, questions) with at least one in each row and column; exact where none is missing."""
    count, questions = values.shape
    known = np.isfinite(values)
    means = np.nanmean(values, axis=0)
    rest = np.where(known, values - means, 0.0)
    given = known.sum(axis=0)
    shares = (rest / given).sum(axis=1) / questions  # what each person adds to the arm's mean
    people = count / (count - 1) * float((shares**2).sum())
    within = np.where(known, rest - (rest.sum(axis=1) / known.sum(axis=1))[:, None], 0.0)
    freedom = int(known.sum()) - count - questions + 1
    answers = float((within**2).sum()) / freedom if freedom > 0 else 0.0
    noise = answers * float((1.0 / given).mean()) / questions
    return _OfArm(means, people, noise, answers, max(0.0, (people - noise) * count))


class _Found(NamedTuple):
    """What one or many studies say; arrays are (2, studies) for the two arms, or (studies,)."""

    difference: Any
    people: Floats  # estimated variance of each arm's mean over people
    noise: Floats  # the part of it by chance
    questions: Floats  # variance of the mean of the questions' differences, chance included
    counts: tuple[int, int]  # people of each arm
    number: int  # of questions


def _judged(found: _Found) -> tuple[Floats, Floats]:
    """The variance of the difference, and its degrees of freedom."""
    people = np.array(found.counts, dtype=np.float64)[:, None] - 1
    variance = found.people.sum(axis=0)
    spread = (found.people**2 / people).sum(axis=0)
    if found.number > 1:
        others = found.number - 1
        chance = found.noise.sum(axis=0)
        spread_of_chance = (found.noise**2 / (people * others)).sum(axis=0)
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.where(chance > 0, found.questions / chance, np.inf)
            p = fdtrc(others, np.where(chance > 0, chance**2 / spread_of_chance, np.inf), ratio)
        taken = (found.questions > chance) & ((p < _POOLED) | np.isinf(ratio))
        variance = variance + np.where(taken, found.questions - chance, 0.0)
        spread = spread + np.where(taken, found.questions**2 / others + spread_of_chance, 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        freedom = np.where(spread > 0, variance**2 / spread, people.sum())
    return variance, freedom


def arm_tests(values: dict[str, Floats], arms: Sequence[str], *, level: float = 0.05) -> list[ArmTest]:
    """The tests of all arms against the first one, without arms of fewer than two people who answered test questions.

    Args:
        values: As of ``values_of``.
        arms: Names, the first one is compared with the others.
        level: As for ``compare_values``.
    """
    known = [arm for arm in arms if len(values.get(arm, ())) > 1]
    if len(known) < 2 or known[0] != arms[0]:
        return []
    tests = []
    for arm in known[1:]:
        if (np.isfinite(values[known[0]]).any(axis=0) & np.isfinite(values[arm]).any(axis=0)).any():
            tests.append(compare_values(values[known[0]], values[arm], names=(known[0], arm), level=level))
    return [replace(test, corrected=p) for test, p in zip(tests, _holm([test.p for test in tests]), strict=True)]


def _holm(ps: Sequence[float]) -> list[float]:
    """Holm's correction (1979) of several p."""
    corrected, largest = [math.nan] * len(ps), 0.0
    for place, index in enumerate(np.argsort(ps, kind="stable").tolist()):
        largest = max(largest, min(1.0, (len(ps) - place) * ps[index]))
        corrected[index] = largest
    return corrected


# -- power -----------------------------------------------------------------------------------------------------------


def power_of(parts: Parts, difference: float, people: int, questions: int, *, level: float = 0.05) -> float:
    """The probability that the test finds a difference, with so many people in each arm and so many questions.

    Of studies whose values are normal, so that the difference does not depend on the variances: these are drawn, the
    same whatever the arguments, and the probability of the difference given them is exact.
    """
    shares = _shares()
    noise = np.array(parts.answers)[:, None] / (people * questions)
    whole = np.array(parts.people)[:, None] / people + noise
    varying = parts.questions / questions
    found = _Found(
        difference,
        whole * _chi_square_share(shares[:2], people - 1),
        noise * _chi_square_share(shares[2:4], (people - 1) * (questions - 1)),
        (varying + noise.sum()) * _chi_square_share(shares[4], questions - 1),
        (people, people),
        questions,
    )
    variance, freedom = _judged(found)
    least = np.sqrt(variance) * stdtrit(freedom, 1 - level / 2)  # difference that is found
    deviation = math.sqrt(float(whole.sum()) + varying)
    if deviation == 0:
        return float(difference != 0)
    return float((ndtr((difference - least) / deviation) + ndtr((-difference - least) / deviation)).mean())


@cache
def _shares() -> Floats:
    """Five rows of shares between 0 and 1, (5, draws), each spread evenly and in an order of its own."""
    rng = np.random.default_rng(0)
    return np.stack([(rng.permutation(_DRAWS) + 0.5) / _DRAWS for _ in range(5)])


def _chi_square_share(shares: Floats, freedom: int) -> Floats:
    """Quantiles of chi square by its degrees of freedom; 1 without any.

    Quantiles of the same shares, and not new draws, so that power grows evenly with people and questions.
    """
    if not freedom:
        return np.ones_like(shares)
    return np.asarray(2 * gammaincinv(freedom / 2, shares) / freedom)


def people_needed(parts: Parts, difference: float, questions: int, *, level: float = 0.05) -> int | None:
    """The fewest people of each arm with whom a difference is found with the power ``WANTED``.

    None: more than ``MOST_PEOPLE``, or none are enough, as the questions' part stays whoever answers.
    """
    if power_of(parts, difference, MOST_PEOPLE, questions, level=level) < WANTED:
        return None
    low, high = 1, MOST_PEOPLE
    while high - low > 1:
        middle = (low + high) // 2
        if power_of(parts, difference, middle, questions, level=level) < WANTED:
            low = middle
        else:
            high = middle
    return high


def detectable(parts: Parts, people: int, questions: int, *, level: float = 0.05) -> float:
    """The smallest difference that is found with the power ``WANTED``."""
    low, high = 0.0, 1e-6
    while power_of(parts, high, people, questions, level=level) < WANTED and high < 1e6:
        high *= 2
    for _ in range(12):
        middle = (low + high) / 2
        if power_of(parts, middle, people, questions, level=level) < WANTED:
            low = middle
        else:
            high = middle
    return high


# -- words -----------------------------------------------------------------------------------------------------------


def p_text(p: float) -> str:
    """Return ".032", or "< .001"."""
    return "< .001" if p < 0.001 else f"{p:.3f}".removeprefix("0")


def section_of_tests(tables: StudyTables, arms: Sequence[str], when: str = "") -> list[Section]:
    """What the report says of the test; nothing where there is nothing to compare."""
    if len(arms) < 2:
        return []
    title, values = f"Whether the arms differ{when}", values_of(tables)
    tests = arm_tests(values, arms)
    if not tests:
        why = "asks no test questions" if not tables.study["test"] else "has too few people who finished"
        return [Text([f"Not tested: the study {why} ([checks] test, at least two people of the first arm and another "
                      "one)."], title)]  # fmt: skip
    several = len(tests) > 1
    rows = []
    for test in tests:
        needed = people_needed(test.parts, test.difference, test.questions)
        interval = f"{test.difference:+z.3f} {bracket(test.low, test.high, '+z.3f')}".replace("-", _MINUS)
        found = detectable(test.parts, round(2 / sum(1 / count for count in test.people)), test.questions)
        rows.append([
            f"{test.arm} {_MINUS} {test.first}", interval, p_text(test.p),
            *([p_text(test.corrected)] if several else []),
            f"{test.people[1]} and {test.people[0]}", f"{found:.3f}",
            f"more than {MOST_PEOPLE:,}" if needed is None else str(needed),
        ])  # fmt: skip
    header = ["difference of", "nats an answer [95%]", "p", *(["p of all"] if several else []), "people",
              "found with 80%", "people an arm it takes"]  # fmt: skip
    count = tests[0].questions
    scope = (
        f"People and the {plural(count, 'test question')} both count as drawn at random: the test is about other "
        "people and other random questions of the vocabulary too, not about these alone."
        if count > 1
        else "There is one test question: the test is about other people, and about this question alone."
    )
    note = (
        "How much more probable, in log-likelihood, an arm's estimates make the answers to the test questions, and the "
        f"p of no difference. {scope} "
        + ("p of all is corrected for the number of comparisons (Holm). " if several else "")
        + "Found with 80%: the smallest difference that a study of so many people and questions finds with a "
        "probability of 80%, if answers vary as they did here. The last column: how many people of each arm find the "
        "difference that was measured so surely; as that is itself uncertain, take it for planning, not as a result."
    )
    return [TextTable(title, header, rows, note, 1)]
