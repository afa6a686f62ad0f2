"""The report of a study: counts checked against tables made by hand, and against the same numbers counted otherwise."""

from __future__ import annotations

import itertools
import math
import re

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from edpbrl_gym.study.export_tables import StudyTables
from edpbrl_gym.study.reporting.comparing import compare_arms, preferred
from edpbrl_gym.study.reporting.report import make_report
from edpbrl_gym.study.reporting.statistics import (
    agreement,
    count_statistics,
    difference_of_means,
    kappa,
    mean_of,
    share_of,
    wilson,
)
from tests.helpers.study_rows import STUDY, answer, event, participant, prediction


@pytest.fixture
def tables():
    """Two who finish in each arm; one who fails, one who withdraws after two answers, one who never consents."""
    people = [
        participant("a1", "adaptive", "finished", 4, attention=(1, 1), repeats=(1, 1), minutes=3.0),
        participant("a2", "adaptive", "finished", 4, attention=(0, 1), repeats=(0, 1), minutes=5.0),
        participant("a3", "adaptive", "failed"),
        participant("r1", "random", "finished", 4, attention=(1, 1), repeats=(1, 1), minutes=4.0),
        participant("r2", "random", "asking", 2),
        participant("r3", "random", "withdrawn", 2, attention=(0, 1)),
        participant("r4", "random", "enrolled", consented=False),
    ]
    answers, events = [], [event("a3", "comprehension", correct=False)]
    for row in people:
        name, arm = row["participant"], row["arm"]
        if row["answered"]:
            events += [event(name, "comprehension", correct=False), event(name, "comprehension", correct=True)]
        answers += [answer(name, arm, asked, milliseconds=1000 * (asked + 1)) for asked in range(row["answered"])]
    answers += [answer("a1", "adaptive", 4, taken_back=True), answer("a1", "adaptive", 5, response="tie")]
    answers[-1]["counts"] = False  # a practice question would do as well
    answers[-1]["kind"] = "test"
    answers[-1]["options"] = list("abcd")
    for name, best in (("a2", 2), ("r1", 2)):
        arm = "adaptive" if name[0] == "a" else "random"
        answers += [answer(name, arm, 8, "test", best, text="x"), answer(name, arm, 9, "test", 3, text="y")]
    answers += [answer("a1", "adaptive", 8, "test", 1, text="x"), answer("r3", "random", 8, "test", 4, text="x")]
    answers.append(answer("r2", "random", 8, "test", 2, text="x", milliseconds=None))
    events += [event("a1", "style_choice", chosen="random"), event("a1", "style_choice", chosen="learnt"),
               event("a2", "style_choice", chosen="tie"), event("r3", "style_choice", chosen="learnt")]  # fmt: skip
    predictions = [
        prediction("a1", 8, [0.7, 0.1, 0.1, 0.1]),
        prediction("a2", 8, [0.1, 0.5, 0.2, 0.2]),
        prediction("a2", 9, [0.4, 0.3, 0.2, 0.1]),
        prediction("a2", 9, [0.1, 0.1, 0.7, 0.1], after=1, last=False),
        prediction("r1", 8, [0.25, 0.25, 0.3, 0.2]),
        prediction("r1", 9, [0.25, 0.25, 0.3, 0.2]),
        prediction("r2", 8, [0.97, 0.01, 0.01, 0.01], after=2),
    ]
    return StudyTables(dict(STUDY), people, answers, events, predictions)


def test_the_funnel_counts_everybody_and_the_rest_only_who_takes_part(tables):
    counted = count_statistics(tables)
    steps = {step.name: (step.arms["adaptive"], step.arms["random"]) for step in counted.funnel}
    assert steps == {
        "arrived": (3, 4), "consented": (3, 3), "passed the check": (2, 3), "answered 1 question": (2, 3),
        "answered half (2)": (2, 3), "answered all": (2, 1), "finished": (2, 1),
    }  # fmt: skip
    assert counted.statuses["random"] == {
        "enrolled": 1, "consented": 0, "asking": 1, "finished": 1, "failed": 0, "withdrawn": 1,
            "timed_out": 0,
    }  # fmt: skip
    assert counted.deleted == 2
    assert counted.care["random"].attention.value == 1.0  # not 0.5: the one who failed it has withdrawn
    assert counted.care[""].attention.value == pytest.approx(2 / 3) and counted.care[""].repeats.people == 3
    # taken back: 1 of 2 + 4 + ... answers: a1 gave 7, a2 6, r1 6, r2 3
    assert counted.care[""].undone.value == pytest.approx(1 / 22)
    # can't tell: 1 of the 21 answers that count or are to test questions
    assert counted.care["adaptive"].cannot_tell.value == pytest.approx(1 / 12)


def test_times_are_those_of_answers_that_count(tables):
    counted = count_statistics(tables)
    assert counted.times["adaptive"].answers == 8 and counted.times["adaptive"].median == 2.5
    assert counted.places["random"].places == (1, 2, 3, 4)
    assert [one.median for one in counted.places["random"].quantiles] == [1.0, 2.0, 3.0, 4.0]
    assert [one.answers for one in counted.places["random"].quantiles] == [2, 2, 1, 1]
    for row in tables.answers:
        row["answer_ms"] = None
    assert count_statistics(tables).times["adaptive"].median == 3.0 and count_statistics(tables).by_server == 1.0


def test_agreement_is_about_the_options_of_the_test_questions(tables):
    counted = count_statistics(tables)
    expected = kappa([[1, None], [2, 3], [2, 3], [2, None]], [4, 4])  # a1, a2, r1, r2; not r3
    assert counted.agreement.value == pytest.approx(expected) and counted.agreement.people == 4
    assert counted.tested == 2


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(random=st.randoms(use_true_random=False))
def test_no_number_of_the_report_depends_on_how_options_are_numbered(tables, random):
    """Each row's options are numbered anew, also differently for two people."""
    tables.predictions.append(prediction("r1", 9, [0.25] * 4, after=1, last=False))  # an estimate that knows nothing
    numbers = {}
    answers = []
    for row in tables.answers:
        order = random.sample(range(4), 4)  # old number at each new place
        numbers[row["participant"], row["asked"]] = order
        answers.append({
            **row,
            "options": [row["options"][old] for old in order],
            "positions": [order.index(old - 1) + 1 for old in row["positions"]],
            "order": row["order"] and [order.index(old - 1) + 1 for old in row["order"]],
        })  # fmt: skip
    predictions = [
        {**row, "probabilities": [row["probabilities"][old] for old in numbers[row["participant"], row["asked"]]]}
        for row in tables.predictions
    ]
    other = StudyTables(tables.study, tables.participants, answers, tables.events, predictions)
    counted, again = count_statistics(tables), count_statistics(other)
    assert repr(counted) == repr(again)  # NaN too
    assert repr(compare_arms(tables, counted)) == repr(compare_arms(other, again))


def test_arms_are_compared_on_who_finished(tables):
    counted = count_statistics(tables)
    compared = compare_arms(tables, counted)
    assert compared.finished == {"adaptive": 2, "random": 1} and compared.chance == 0.25
    # a1 hits its one question; a2 hits the first (0.5) and misses the second (0.2)
    assert compared.values["hit"]["adaptive"].value == pytest.approx((1 + 0.5) / 2)
    expected = (math.log(0.7) + (math.log(0.5) + math.log(0.2)) / 2) / 2
    assert compared.values["log"]["adaptive"].value == pytest.approx(expected)
    assert compared.values["hit"]["random"].value == pytest.approx(0.5)
    assert compared.values["answers"]["random"].value == 4 and compared.values["minutes"]["adaptive"].value == 4.0
    assert compared.values["repeats"]["adaptive"].value == 0.5
    assert compared.differences["hit"]["random"].value == pytest.approx(0.5 - 0.75)
    assert compared.curves["adaptive"].after == (1, 4)  # half of the people is enough
    assert compared.curves["adaptive"].hit[0].value == 1.0
    assert compared.styles["adaptive"].value == 1.0 and compared.styles["adaptive"].people == 1
    assert math.isnan(compared.styles["random"].value)
    assert (compared.styles["adaptive"].low, compared.styles["adaptive"].high) == wilson(1, 1)
    assert preferred({"learnt": 3, "random": 1, "tie": 9}).value == 0.75


def test_answers_needed_are_those_until_the_stopping_rule_was_sure(tables):
    tables.study["least"] = 2
    tables.participants[1]["answered"] = 3
    tables.events.append(event("a2", "sure", questions=3))
    counted = count_statistics(tables)
    steps = {step.name: step.total for step in counted.funnel}
    assert steps["answered all, or until sure"] == 3
    assert compare_arms(tables, counted).values["answers"]["adaptive"].value == 3.5


@pytest.mark.needs("experiments")
def test_the_report_says_what_was_counted(tables):
    page = make_report(tables).markdown()
    assert page.startswith("# By hand\n") and "7 participants arrived and 3 finished; 16 answers count" in page
    assert "| adaptive | 0 | 0 | 0 | 2 | 1 | 0 |" in page and "2 participants more deleted on request" in page
    assert "| test answers predicted | 0.750 [0.500, 1.000] | 0.500 [undefined] |" in page
    assert not re.search(r"\bnan\b|−0\.0+\b", page)


@pytest.mark.needs("experiments")
@pytest.mark.parametrize("kept", [None, "enrolled", "asking"])
def test_a_study_that_has_just_begun_is_reported_too(tables, kept, tmp_path):
    people = [row for row in tables.participants if row["status"] == kept]
    names = {row["participant"] for row in people}
    young = StudyTables(STUDY, people, [row for row in tables.answers if row["participant"] in names], [], [])
    page = make_report(young).markdown()
    assert "Nobody has finished yet." in page and not re.search(r"\bnan\b", page)
    assert make_report(young).write(tmp_path)[-1].name == "REPORT.md"


# intervals and agreement, against statsmodels and independent formulas


def by_pairs(values, options):
    """The definition, pair by pair."""
    same, chance, answers = 0.0, 0.0, 0
    for question, number in enumerate(options):
        given = [row[question] for row in values if row[question] is not None]
        if len(given) < 2:
            continue
        pairs = list(itertools.combinations(given, 2))
        same += len(given) * sum(a == b for a, b in pairs) / len(pairs)
        chance += len(given) / number
        answers += len(given)
    return (same - chance) / (answers - chance) if answers else math.nan


@st.composite
def answers_to_questions(draw):
    """Answers of some people to questions with two to five options each, some of them missing."""
    options = draw(st.lists(st.integers(2, 5), min_size=1, max_size=5))
    rows = st.tuples(*(st.none() | st.integers(0, number - 1) for number in options)).map(list)
    return draw(st.lists(rows, min_size=1, max_size=6)), options


@settings(max_examples=200)
@given(answers_to_questions())
def test_kappa_is_the_definition_pair_by_pair(table):
    values, options = table
    expected = by_pairs(values, options)
    assert kappa(values, options) == pytest.approx(expected, nan_ok=True)
    found = agreement(values, options)
    assert found.value == pytest.approx(expected, nan_ok=True)
    assert math.isnan(expected) == math.isnan(found.low) == (found.people == 0)
    assert math.isnan(expected) or -1.0 - 1e-12 <= found.low <= found.high <= 1.0 + 1e-12


def test_the_interval_of_kappa_holds_the_truth():
    """In populations where a person gives the favourite of a question with probability 0.7: kappa is known."""
    rng = np.random.default_rng(2)
    options, people, questions, truth = 4, 30, 12, 0.6**2  # favourite with 0.6 + 0.4 / 4 = 0.7; pairs agree as 0.36
    held = 0
    for _ in range(100):
        favourites = rng.permutation(np.arange(questions) % options)  # each option equally often
        drawn = rng.integers(options, size=(people, questions))
        values = np.where(rng.random((people, questions)) < 0.6, favourites, drawn)
        found = agreement(values.tolist(), [options] * questions)
        held += found.low <= truth <= found.high
    assert 86 <= held <= 100


@pytest.mark.needs("test")
@pytest.mark.parametrize(("successes", "total"), [(0, 10), (15, 20), (50, 100), (1, 1)])
def test_wilson_intervals(successes, total):
    from statsmodels.stats.proportion import proportion_confint

    assert wilson(successes, total) == pytest.approx(proportion_confint(successes, total, method="wilson"))


def test_shares_and_means_over_people():
    found = share_of([1, 2, 0, 0], [2, 2, 1, 0])
    assert found.value == 0.6 and found.people == 3 and found.low < 0.6 < found.high
    sure = share_of([2] * 20, [2] * 20)
    assert sure.value == sure.high == 1.0 and sure.low == pytest.approx(wilson(20, 20)[0])
    assert math.isnan(share_of([0], [0]).value) and math.isnan(mean_of([]).value)
    assert math.isnan(mean_of([3.0]).low) and mean_of([3.0]).value == 3.0


def test_differences_have_the_spread_of_both_groups():
    rng = np.random.default_rng(3)
    first, second = rng.normal(1.0, 1.0, 200), rng.normal(0.0, 2.0, 100)
    found = difference_of_means(first.tolist(), second.tolist())
    error = math.sqrt(first.var(ddof=1) / 200 + second.var(ddof=1) / 100)
    assert found.value == pytest.approx(first.mean() - second.mean())
    assert found.high - found.low == pytest.approx(2 * 1.96 * error, rel=0.1) and found.people == 300
    assert math.isnan(difference_of_means([1.0], [1.0, 2.0]).low)
