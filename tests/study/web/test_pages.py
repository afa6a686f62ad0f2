"""The pages of a participant, without JavaScript: consent, instructions, questions, the end."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import update

from edpbrl_gym.study.tables import questions
from edpbrl_gym.study.web.views import LABELS
from tests.helpers.studies import CHECKED, SMALL


def test_a_whole_study_is_played_and_stored(served):
    person = served.person()
    person.begin(PROLIFIC_PID="p1", STUDY_ID="s", SESSION_ID="t")
    assert "Practice" in person.page.text and "Question 1 of 10" in person.page.text
    assert person.play() == 10
    assert person.at == "/end" and "C1" in person.page.text
    [participant] = served.store.participants()
    assert participant.status == "finished"
    assert participant.external == {"PROLIFIC_PID": "p1", "STUDY_ID": "s", "SESSION_ID": "t"}
    history = served.store.history(participant.id)
    assert len(history) == 10
    for question, answer in history:
        assert answer.response.first == question.positions[0]


def test_nobody_is_asked_before_consent(served):
    person = served.person()
    person.get("/")
    assert person.post("/consent").status_code == 422  # the box is not ticked
    assert "tick the box" in person.page.text and served.store.participants() == []
    for address in ("/question", "/instructions", "/end", "/withdraw"):
        assert person.get(address).status_code == 403
    assert served.store.participants() == []


def test_consent_that_is_sent_twice_is_one_participant(served):
    person = served.person()
    person.get("/")
    fields = {**person.form("/consent")["fields"], "agree": "yes"}
    cookies = dict(person.client.cookies)
    for _ in range(2):
        again = served.person(cookies=cookies)
        assert again.client.post("/consent", data=fields).url.path == "/instructions"
    assert len(served.store.participants()) == 1


def test_whoever_comes_back_goes_on_also_in_another_browser_and_session(served):
    person = served.person()
    person.begin(PROLIFIC_PID="p1", SESSION_ID="t1")
    person.post("/answer", best=0)
    key = person.key
    assert person.get("/?PROLIFIC_PID=p1&SESSION_ID=t2").url.path == "/question" and person.key == key
    other = served.person()
    other.arrive(PROLIFIC_PID="p1", SESSION_ID="t3")
    assert other.at == "/question" and other.key == key
    assert len(served.store.participants()) == 1


def test_another_person_at_the_same_browser_is_another_participant(served):
    person = served.person()
    person.begin(PROLIFIC_PID="p1")
    person.arrive(PROLIFIC_PID="p2")
    assert person.at == "/instructions" and len(served.store.participants()) == 2


def test_the_comprehension_check_has_two_attempts(serve):
    served = serve(CHECKED)
    person = served.person()
    person.arrive()
    person.post("/instructions")
    assert "answer every question" in person.page.text
    person.post("/instructions", **{"check-0": 0})
    assert person.at == "/instructions" and "Attempts left: 1" in person.page.text
    assert person.get("/question").url.path == "/instructions"
    person.post("/instructions", **{"check-0": 0})
    assert person.at == "/end" and "cannot take part" in person.page.text
    assert person.get("/question").url.path == "/end" == person.get("/instructions").url.path
    second = served.person()
    second.arrive()
    second.post("/instructions", **{"check-0": 1})
    assert second.at == "/question"


def test_an_answer_sent_twice_counts_once_and_a_different_one_is_told_so(served):
    person = served.person()
    person.begin()
    fields = {**person.form("/answer")["fields"]}
    person.page = person.client.post("/answer", data={**fields, "best": "1"})
    following = person.key
    person.page = person.client.post("/answer", data={**fields, "best": "1"})  # a double click
    assert person.key == following and "answered before" not in person.page.text
    person.page = person.client.post("/answer", data={**fields, "best": "2"})  # another tab
    assert person.key == following and "answered before" in person.page.text
    [participant] = served.store.participants()
    assert [answer.response.first for _, answer in served.store.history(participant.id) if answer] == [1]


def test_undo_shows_the_last_question_again(served):
    person = served.person()
    person.begin()
    assert "data-undo disabled" in person.page.text
    person.post("/answer", best=1)
    person.post("/answer", to="/undo")
    assert "taken back" in person.page.text and "Question 1 of 10" in person.page.text
    person.post("/answer", best=2)
    [participant] = served.store.participants()
    assert [answer.response.first for _, answer in served.store.history(participant.id) if answer] == [2]
    person.post("/answer", to="/undo", undo_key="nothing")
    assert "nothing to undo" in person.page.text


def test_an_answer_to_a_question_that_was_taken_back_is_not_stored(served):
    person = served.person()
    person.begin()
    stale = {**person.form("/answer")["fields"], "best": "0"}
    person.post("/answer", best=1)
    waiting = {**person.form("/answer")["fields"], "best": "0"}
    person.post("/answer", to="/undo")
    person.page = person.client.post("/answer", data=waiting)
    assert "was taken back" in person.page.text
    person.page = person.client.post("/answer", data=stale)
    assert "answered before" in person.page.text
    [participant] = served.store.participants()
    assert all(answer is None for _, answer in served.store.history(participant.id))


@pytest.mark.parametrize(
    ("format", "complete", "incomplete", "order"),
    [
        ("best", {"best": 2}, {}, (2,)),
        ("best_worst", {"best": 0, "worst": 2}, {"best": 1, "worst": 1}, (0, 2)),
        ("ranking", {"place-0": 3, "place-1": 1, "place-2": 2}, {"place-0": 1, "place-1": 2}, (1, 2, 0)),
        ("partial", {"place-2": 1, "place-0": 2}, {"place-0": 2}, (2, 0)),
    ],
)
def test_every_format_is_answered_and_asks_for_what_is_missing(serve, format, complete, incomplete, order):
    served = serve(SMALL.replace("options = 3", f'options = 3\nformat = "{format}"'))
    person = served.person()
    person.begin()
    key = person.key
    person.post("/answer", **incomplete)
    assert person.at == "/question" and person.key == key and 'role="status">' in person.page.text
    person.post("/answer", **complete)
    assert person.key != key
    person.post("/answer", cant_tell="1")
    [participant] = served.store.participants()
    first, second, *_ = [answer.response for _, answer in served.store.history(participant.id) if answer]
    assert (first.kind, first.order) == (format, order) and second.kind == "tie"


def test_an_attention_check_names_the_position_of_its_option(served):
    person = served.person()
    person.begin()
    [participant] = served.store.participants()
    for _ in range(10):
        question = served.store.history(participant.id)[-1][0]
        assert (question.expected is not None) == ("you are reading" in person.page.text)
        if question.expected is not None:
            assert f"choose option {LABELS[question.positions.index(question.expected)]}." in person.page.text
        person.post("/answer", best=0)


def test_after_a_day_a_page_says_where_the_participant_stopped(served):
    person = served.person()
    person.begin()
    person.post("/answer", best=1)
    key = person.key
    with served.store.database.writing() as connection:
        past = (datetime.now(UTC) - timedelta(days=1, minutes=1)).isoformat(timespec="microseconds")
        connection.execute(update(questions).values(created_at=past))
    assert person.get("/question").url.path == "/welcome-back" and "Questions answered: 1." in person.page.text
    person.post("/welcome-back")
    assert person.at == "/question" and person.key == key
    person.post("/answer", best=1)
    assert person.at == "/question"


def test_whoever_stops_is_asked_nothing_more(served):
    person = served.person()
    person.begin()
    stale = {**person.form("/answer")["fields"], "best": "0"}
    person.get("/withdraw")
    person.post("/withdraw")
    assert person.at == "/end" and "no longer take part" in person.page.text
    assert person.client.post("/answer", data=stale).url.path == "/end"
    [participant] = served.store.participants()
    assert participant.status == "withdrawn" and served.store.history(participant.id)[0][1] is None


def test_measurements_of_the_script_are_stored_and_nonsense_is_left_out(served):
    person = served.person()
    person.begin()
    person.post("/answer", best=0, first_input_ms=700, answer_ms=1500, visibility_changes=2, viewport_width=390,
                viewport_height=844)  # fmt: skip
    person.post("/answer", best=0, first_input_ms=-1, answer_ms="x" * 2000, viewport_width=9, visibility_changes="1e3")
    [participant] = served.store.participants()
    first, second, *_ = [answer.timing for _, answer in served.store.history(participant.id) if answer]
    assert (first.first_input_ms, first.answer_ms, first.visibility_changes, first.viewport) == (
        700,
        1500,
        2,
        (390, 844),
    )
    assert (second.first_input_ms, second.answer_ms, second.visibility_changes, second.viewport) == (None,) * 4


def test_a_page_waits_for_the_question_of_an_oracle(serve):
    text = SMALL[: SMALL.index("[[arms]]")] + '[[arms]]\nname = "loop"\nplanner = "oracle"\n'
    served = serve(text.replace("[practice]\nquestions = 1", "[practice]\nquestions = 0"))
    person = served.person()
    person.arrive()
    person.post("/instructions")
    while "reading" in person.page.text:  # attention checks need no oracle
        person.post("/answer", best=0)
    assert person.at == "/question" and "being prepared" in person.page.text
    assert person.page.headers["refresh"] == "3"
    assert person.get("/end").url.path == "/question"


def test_the_page_forecasts_how_many_questions_are_left(serve):
    rule = "number = 12\n[questions.stop_when_sure]\nminimum = 6\naccuracy = 1.0\ngain = 0.0\nlookahead = 1"
    served = serve(SMALL.replace("number = 6", rule))
    person = served.person()
    person.begin()
    assert "Question 1 of at most 16" in person.page.text and "left" not in person.page.text
    [participant] = served.store.participants()
    shown = []
    while person.at == "/question":
        question = served.store.history(participant.id)[-1][0]
        expected = served.queue.questions_left(participant, question)
        assert (expected is not None) == ("about" in person.page.text)
        if expected is not None:
            assert f"about {expected} left" in person.page.text
            shown.append(expected)
        person.post("/answer", best=0)
    forecasts = [event["detail"] for event in served.store.events(participant.id) if event["kind"] == "forecast"]
    assert forecasts and forecasts[0]["questions"] == 6
    for earlier, later in zip(shown, shown[1:], strict=False):
        assert later in (earlier - 1, 0)
