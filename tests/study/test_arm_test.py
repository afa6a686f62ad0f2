"""The test of arms against independent computations, and its power against simulated studies."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from edpbrl_gym.study.export_tables import StudyTables
from edpbrl_gym.study.reporting.arm_test import (
    ArmTest,
    Parts,
    arm_tests,
    compare_paired,
    compare_values,
    detectable,
    p_text,
    people_needed,
    power_of,
    section_of_tests,
    values_of,
)
from tests.helpers.study_rows import STUDY, answer, participant, prediction


def drawn(rng, people, questions, *, person=0.3, by_question=0.0, answer=1.0, difference=0.0):
    """Values of two arms, (people, questions) each, where people, answers and arms by question vary so much."""
    return [
        place * difference
        + person * rng.normal(size=(count, 1))
        + by_question / math.sqrt(2) * rng.normal(size=questions)
        + answer * rng.normal(size=(count, questions))
        for place, count in enumerate(people)
    ]


def mean_squares(first, other):
    """Of arm, people in arms, arm by question and residual: sums of squares of a balanced layout, by its cells."""
    values = np.stack([first, other])  # (arms, people, questions)
    _, count, questions = values.shape
    arm = values.mean(axis=(1, 2), keepdims=True)
    person = values.mean(axis=2, keepdims=True)
    question = values.mean(axis=(0, 1), keepdims=True)
    cell = values.mean(axis=1, keepdims=True)
    whole = values.mean()
    return (
        count * questions * ((arm - whole) ** 2).sum(),
        questions * ((person - arm) ** 2).sum() / (2 * (count - 1)),
        count * ((cell - arm - question + whole) ** 2).sum() / (questions - 1),
        ((values - person - cell + arm) ** 2).sum() / (2 * (count - 1) * (questions - 1)),
    )


def test_where_questions_differ_it_is_clarks_quasi_f_of_the_mean_squares():
    first, other = drawn(np.random.default_rng(1), (12, 12), 8, by_question=2.0, difference=0.5)
    test = compare_values(first, other)
    arm, people, by_question, rest = mean_squares(first, other)
    quasi = arm / (people + by_question - rest)
    assert by_question > 2 * rest
    assert (test.difference / test.error) ** 2 == pytest.approx(quasi)
    assert test.difference == pytest.approx(other.mean() - first.mean())
    assert test.parts.questions == pytest.approx(2 * (by_question - rest) / 12)
    assert np.mean(test.parts.people) == pytest.approx((people - rest) / 8)
    assert np.mean(test.parts.answers) == pytest.approx(rest)
    # Satterthwaite's degrees of freedom, each mean square with its own; those of an arm by its people
    scale = 2 / (12 * 8)
    by_arm = [values.mean(axis=1).var(ddof=1) / 12 for values in (first, other)]
    noise = [
        ((values - values.mean(0) - values.mean(1, keepdims=True) + values.mean()) ** 2).sum() / (11 * 7) / 96
        for values in (first, other)
    ]
    spread = (by_arm[0] ** 2 + by_arm[1] ** 2) / 11 + (scale * by_question) ** 2 / 7
    freedom = test.error**4 / (spread + (noise[0] ** 2 + noise[1] ** 2) / 77)
    assert test.p == pytest.approx(2 * stats.t.sf(abs(test.difference) / test.error, freedom))
    half = stats.t.ppf(0.975, freedom) * test.error
    assert (test.low, test.high) == pytest.approx((test.difference - half, test.difference + half))


@pytest.mark.parametrize("questions", [1, 6])
def test_where_questions_do_not_differ_it_is_welchs_test_of_peoples_means(questions):
    first, other = drawn(np.random.default_rng(3), (9, 14), questions, difference=0.4)
    test = compare_values(first, other)
    expected = stats.ttest_ind(other.mean(axis=1), first.mean(axis=1), equal_var=False)
    assert test.p == pytest.approx(expected.pvalue)
    assert (test.low, test.high) == pytest.approx(tuple(expected.confidence_interval()))
    assert (test.people, test.questions) == ((9, 14), questions)


def test_missing_answers_leave_out_a_cell_and_not_a_person():
    first, other = drawn(np.random.default_rng(5), (10, 10), 4)
    whole = compare_values(first, other)
    first[3, 2] = math.nan
    test = compare_values(first, other)
    assert test.people == (10, 10)
    expected = other.mean(axis=0) - np.nanmean(first, axis=0)
    assert test.difference == pytest.approx(expected.mean())
    assert test.difference != whole.difference and test.error == pytest.approx(whole.error, rel=0.3)
    with pytest.raises(ValueError, match="at least 2 people in each arm"):
        compare_values(first[:1], other)


def test_holms_correction_takes_all_comparisons_together():
    rng = np.random.default_rng(7)
    values = {name: drawn(rng, (20,), 4)[0] + shift for name, shift in (("a", 0.0), ("b", 0.5), ("c", 0.1))}
    tests = arm_tests(values, ["a", "b", "c"])
    small, large = sorted(tests, key=lambda one: one.p)
    assert small.corrected == pytest.approx(min(1, 2 * small.p))
    assert large.corrected == pytest.approx(max(2 * small.p, large.p))
    assert [(test.first, test.arm) for test in tests] == [("a", "b"), ("a", "c")]
    assert arm_tests({"b": values["b"], "c": values["c"]}, ["a", "b", "c"]) == []


@pytest.mark.parametrize(("by_question", "people", "difference"), [(0.0, 20, 0.35), (0.5, 25, 0.6), (0.0, 20, 0.0)])
def test_power_is_how_often_simulated_studies_find_the_difference(by_question, people, difference):
    rng, questions, studies = np.random.default_rng(11), 4, 600
    found = np.mean([
        compare_values(
            *drawn(rng, (people, people), questions, by_question=by_question, difference=difference)
        ).p < 0.05
        for _ in range(studies)
    ])  # fmt: skip
    parts = Parts(people=(0.09, 0.09), answers=(1.0, 1.0), questions=by_question**2)
    power = power_of(parts, difference, people, questions)
    assert power == pytest.approx(found, abs=4 * math.sqrt(max(power * (1 - power), 0.05) / studies))


def test_power_grows_with_people_questions_and_the_difference():
    parts = Parts(people=(0.1, 0.2), answers=(1.0, 1.5), questions=0.02)
    for grown in (
        [power_of(parts, 0.3, people, 8) for people in (5, 10, 20, 40, 80)],
        [power_of(parts, 0.3, 20, questions) for questions in (2, 4, 8, 16)],
        [power_of(parts, difference, 20, 8) for difference in (0.0, 0.1, 0.3, 0.6)],
    ):
        assert grown == sorted(grown) and grown[0] < grown[-1]
    needed = people_needed(parts, 0.3, 8)
    assert needed is not None
    assert power_of(parts, 0.3, needed, 8) >= 0.8 > power_of(parts, 0.3, needed - 1, 8)
    assert power_of(parts, detectable(parts, 20, 8), 20, 8) == pytest.approx(0.8, abs=0.01)
    assert people_needed(replace(parts, questions=4.0), 0.3, 4) is None  # however many people, the questions stay


def test_people_who_are_in_both_arms_are_compared_by_their_differences():
    rng = np.random.default_rng(13)
    person, question = rng.normal(size=(30, 1)), rng.normal(size=6)
    first = person + rng.normal(size=(30, 6))
    other = first + 0.2 + 0.5 * question + 0.1 * rng.normal(size=(30, 6))
    test = compare_paired(first, other)
    differences = other - first
    # two-way layout of the differences: people and questions at random
    rows, columns = differences.mean(axis=1), differences.mean(axis=0)
    rest = ((differences - rows[:, None] - columns + differences.mean()) ** 2).sum() / (29 * 5)
    expected = rows.var(ddof=1) / 30 + columns.var(ddof=1) / 6 - rest / 180
    assert test.difference == pytest.approx(differences.mean())
    assert test.error == pytest.approx(math.sqrt(expected))
    assert test.parts.questions == pytest.approx(columns.var(ddof=1) - rest / 30)
    assert test.error < compare_values(first, other).error and math.isnan(test.p)
    half = stats.t.ppf(0.975, 5) * test.error
    assert (test.low, test.high) == pytest.approx((test.difference - half, test.difference + half))


@pytest.fixture
def tables():
    """Three who finish in each arm and answer a test question; one who does not finish."""
    people = [participant(name, name[:-1], "finished", answered=4) for name in ("a1", "a2", "a3", "b1", "b2", "b3")]
    people.append(participant("a4", "a", "asking", answered=4))
    chances = {"a1": 0.2, "a2": 0.3, "a3": 0.4, "b1": 0.6, "b2": 0.7, "b3": 0.8, "a4": 0.9}
    answers = [answer(name, name[:-1], 8, "test", 1, text="x") for name in chances]
    predictions = [prediction(name, 8, [one, 1 - one, 0.0, 0.0]) for name, one in chances.items()]
    arms = [{"name": name, "planner": "random", "weight": 1, "population": False} for name in "ab"]
    return StudyTables(STUDY | {"arms": arms}, people, answers, [], predictions)


def test_the_report_tests_the_log_likelihoods_of_who_finished(tables):
    values = values_of(tables)
    assert values["a"].ravel().tolist() == pytest.approx(np.log([0.2, 0.3, 0.4]).tolist())
    expected = stats.ttest_ind(np.log([0.6, 0.7, 0.8]), np.log([0.2, 0.3, 0.4]), equal_var=False)
    [section] = section_of_tests(tables, ["a", "b"], ", without those excluded")
    page = "\n".join(section.markdown())
    assert "## Whether the arms differ, without those excluded" in page
    assert f"| {p_text(expected.pvalue)} | 3 and 3 |" in page and "There is one test question" in page
    assert section_of_tests(tables, ["a"]) == []
    [untold] = section_of_tests(replace(tables, predictions=[]), ["a", "b"])
    assert "Not tested" in "\n".join(untold.markdown())


def test_small_p_are_not_printed_as_zero():
    assert [p_text(p) for p in (0.0, 0.0009, 0.032, 1.0)] == ["< .001", "< .001", ".032", "1.000"]
    assert isinstance(compare_values(np.zeros((3, 2)), np.zeros((3, 2))), ArmTest)
    assert compare_values(np.zeros((3, 2)), np.zeros((3, 2))).p == 1.0
    assert compare_values(np.zeros((3, 2)), np.ones((3, 2))).p == 0.0
