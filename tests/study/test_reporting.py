"""The report of a study: counts checked against tables made by hand, and against the same numbers counted otherwise."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest

from edpbrl_gym.study.exported import StudyTables
from edpbrl_gym.study.reporting.comparing import compare_arms, preferred
from edpbrl_gym.study.reporting.intervals import wilson
from edpbrl_gym.study.reporting.report import make_report
from edpbrl_gym.study.reporting.statistics import count_statistics

STUDY = {
    "kind": "study", "title": "By hand", "feedback": "prompt", "format": "best", "options": 4, "number": 4, "least": 4,
    "practice": 0, "comprehension": 1, "attention": 1, "repeated": 1, "test": 2, "pictures": False,
    "vocabulary": "images", "encoder": "minilm", "seed": 0, "config": "c" * 16, "deleted": 2,
    "arms": [{"name": name, "planner": name, "weight": 1, "population": False} for name in ("adaptive", "random")],
}  # fmt: skip


def participant(name, arm, status, answered=0, *, consented=True, attention=(0, 0), repeats=(0, 0), minutes=None):
    return {
        "participant": name, "arm": arm, "language": "en", "consent_version": "1" if consented else None,
        "status": status, "answered": answered, "undone": 0, "attention_asked": attention[1],
        "attention_passed": attention[0], "repeats_asked": repeats[1], "repeats_agreed": repeats[0], "minutes": minutes,
    }  # fmt: skip


def answer(name, arm, asked, kind="normal", best=1, *, milliseconds=1000, taken_back=False, response="best", text=""):
    given = response is not None
    return {
        "participant": name, "arm": arm, "asked": asked, "number": asked, "kind": kind, "taken_back": taken_back,
        "counts": kind == "normal" and given and not taken_back, "options": [f"{text}{option}" for option in range(4)],
        "tokens": [[option] for option in range(4)], "positions": [1, 2, 3, 4], "expected": None, "repeats": None,
        "answer": response, "order": [best] if response == "best" else ([] if given else None),
        "shown_s": 10.0 * asked, "answered_s": 10.0 * asked + 3 if given else None, "first_input_ms": None,
        "answer_ms": milliseconds, "visibility_changes": 0, "device": "phone", "config": "c" * 16, "code_version": "1",
    }  # fmt: skip


def event(name, kind, **detail):
    return {"participant": name, "after_s": 0.0, "kind": kind, "detail": detail}


def prediction(name, asked, probabilities, after=4, last=True):
    return {"participant": name, "asked": asked, "after": after, "last": last, "probabilities": probabilities}


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
        "arrived": (3, 4), "consented": (3, 3), "passed the comprehension check": (2, 3), "answered 1 question": (2, 3),
        "answered half (2)": (2, 3), "answered all": (2, 1), "finished": (2, 1),
    }  # fmt: skip
    assert counted.statuses["random"] == {
        "enrolled": 1, "consented": 0, "asking": 1, "finished": 1, "failed": 0, "withdrawn": 1
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
    from edpbrl_gym.study.reporting.agreement import krippendorff_alpha

    counted = count_statistics(tables)
    expected = krippendorff_alpha([[1, None], [2, 3], [2, 3], [2, None]])  # a1, a2, r1, r2; not r3
    assert counted.agreement.value == pytest.approx(expected) and counted.agreement.people == 4
    assert counted.tested == 2


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
    page = make_report(tables).markdown("figures/")
    assert page.startswith("# By hand\n") and "7 participants arrived and 3 finished; 16 answers count" in page
    assert "| adaptive | 0 | 0 | 0 | 2 | 1 | 0 |" in page and "2 participants more deleted on request" in page
    assert "| test answers predicted | 0.750 [0.500, 1.000] | 0.500 [undefined] |" in page
    assert not re.search(r"\bnan\b|−0\.0+\b", page)


@pytest.mark.needs("experiments")
@pytest.mark.parametrize("kept", ["nobody", "enrolled", "asking"])
def test_a_study_that_has_just_begun_is_reported_too(tables, kept, tmp_path):
    people = [row for row in tables.participants if row["status"] == kept]
    names = {row["participant"] for row in people}
    young = StudyTables(STUDY, people, [row for row in tables.answers if row["participant"] in names], [], [])
    page = make_report(young).markdown("figures/")
    assert "Nobody has finished yet." in page and not re.search(r"\bnan\b", page)
    assert make_report(young).write(tmp_path)[-1].name == "REPORT.md"


def test_many_participants_are_counted_as_a_loop_would(tables):
    """Random studies: shares and medians against a loop over the rows."""
    rng = np.random.default_rng(4)
    people, answers = [], []
    for number in range(30):
        name, arm = f"p{number:02}", ("adaptive", "random")[number % 2]
        status = ("finished", "asking", "withdrawn")[int(rng.integers(3))]
        count = int(rng.integers(0, 5))
        people.append(participant(name, arm, status, count))
        answers += [
            answer(name, arm, asked, milliseconds=int(rng.integers(500, 9000)), taken_back=bool(rng.random() < 0.2),
                   response=("best", "tie", "skip")[int(rng.integers(3))])
            for asked in range(count)
        ]  # fmt: skip
    counted = count_statistics(StudyTables(STUDY, people, answers, [], []))
    for arm in ("adaptive", "random"):
        kept = {row["participant"] for row in people if row["status"] != "withdrawn" and row["arm"] == arm}
        rows = [row for row in answers if row["participant"] in kept]
        live = [row for row in rows if not row["taken_back"]]
        assert counted.times[arm].median == pytest.approx(np.median([row["answer_ms"] for row in live]) / 1000)
        assert counted.care[arm].undone.value == pytest.approx(1 - len(live) / len(rows))
        unsure = sum(row["answer"] != "best" for row in live) / len(live)
        assert counted.care[arm].cannot_tell.value == pytest.approx(unsure)
