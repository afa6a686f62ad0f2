"""The pages of a participant, without JavaScript: consent, instructions, questions, the end."""

from __future__ import annotations

import html
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import update

from edpbrl_gym.comparisons import Comparisons
from edpbrl_gym.study.audit import audit
from edpbrl_gym.study.export import export
from edpbrl_gym.study.export_tables import read_tables
from edpbrl_gym.study.records import Timing
from edpbrl_gym.study.tables import questions
from edpbrl_gym.study.web.questions import LABELS
from tests.helpers.studies import CHECKED, SMALL
from tests.helpers.study_server import dump


def test_a_whole_study_is_played_and_stored(served):
    person = served.begin(PROLIFIC_PID="p1", STUDY_ID="s", SESSION_ID="t")
    assert "Practice" in person.page.text and "Question 1 of 10" in person.page.text
    [participant] = served.store.participants()
    for _ in range(10):
        question = served.store.history(participant.id)[-1][0]
        assert (question.expected is not None) == ("you are reading" in person.page.text)
        if question.expected is not None:
            assert f"choose option {LABELS[question.positions.index(question.expected)]}." in person.page.text
        person.post("/answer", best=question.positions[0])
    assert person.at == "/end" and "C1" in person.page.text
    [participant] = served.store.participants()
    assert participant.status == "finished"
    assert participant.external == {"PROLIFIC_PID": "p1", "STUDY_ID": "s", "SESSION_ID": "t"}
    history = served.store.history(participant.id)
    by_row = {question.id: question for question, _ in history}
    for question, answer in history:
        assert answer.response.first == question.positions[0] and len(set(question.texts)) == 3
        if question.kind == "repeat":
            first = by_row[question.repeat_of]
            assert first.kind == "normal" and first.texts == question.texts and first.positions != question.positions
    assert [question.kind for question, _ in history].count("normal") == 6 and len(history) == 10


def test_nobody_is_asked_before_consent_and_one_sent_twice_is_one_participant(served):
    person = served.person()
    person.get("/")
    fields = {**person.form("/consent")["fields"], "agree": "yes"}
    assert person.post("/consent").status_code == 422  # the box is not ticked
    assert "tick the box" in person.page.text
    for address in ("/question", "/instructions", "/end", "/withdraw"):
        assert person.get(address).status_code == 403
    assert served.store.participants() == []
    cookies = dict(person.client.cookies)
    for _ in range(2):
        again = served.person(cookies=cookies)
        assert again.client.post("/consent", data=fields).url.path == "/instructions"
    assert len(served.store.participants()) == 1


def test_whoever_comes_back_goes_on_and_another_person_at_the_same_browser_is_another(served):
    person = served.begin(PROLIFIC_PID="p1", SESSION_ID="t1")
    person.post("/answer", best=0)
    key = person.key
    assert person.get("/?PROLIFIC_PID=p1&SESSION_ID=t2").url.path == "/question" and person.key == key
    other = served.person()
    other.arrive(PROLIFIC_PID="p1", SESSION_ID="t3")
    assert other.at == "/question" and other.key == key
    assert len(served.store.participants()) == 1
    person.arrive(PROLIFIC_PID="p2")
    assert person.at == "/instructions" and len(served.store.participants()) == 2


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("prolific_pid=%257B%257B%2525PROLIFIC_PID%2525%257D%257D", "under the name PROLIFIC_PID"),
        ("c=[ID]", "under the name c"),
        ("workerid=" + "A" * 200, "too long"),
    ],
)
def test_an_identifier_that_can_not_be_taken_is_said_and_stores_nobody(served, caplog, query, said):
    for person in (served.person(), None):
        if person is None:  # also in the browser of a participant
            person = served.begin(PROLIFIC_PID="p0")
        caplog.clear()
        page = person.client.get(f"/?{query}")
        text = html.unescape(page.text)
        assert page.status_code == 400 and said in text and "Open the study again" in text
        assert "<form" not in page.text and "A" * 20 not in page.text
        [line] = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
        assert "Expected an identifier as" in line and "A" * 20 not in line
    assert [one.external for one in served.store.participants()] == [{"PROLIFIC_PID": "p0"}]


def test_the_preview_of_a_task_shows_the_consent_text_and_stores_nobody(served, caplog):
    person = served.person()
    page = person.get("/?assignmentId=ASSIGNMENT_ID_NOT_AVAILABLE&hitId=3X")
    assert page.status_code == 200 and "This is a preview" in page.text and "set-cookie" not in page.headers
    assert "<form" not in page.text and served.config.texts["consent.en"].split()[0] in page.text
    assert served.store.participants() == [] and not caplog.records
    person.begin(workerId="A1", assignmentId="3T", hitId="3X")  # the task was accepted
    person.post("/answer", best=0)
    key = person.key
    again = served.person()
    again.get("/?workerid=A1&assignmentid=3Z&hitid=3Y")  # the same worker in another task of this study
    again.post("/consent", agree="yes")
    assert again.at == "/question" and again.key == key
    [participant] = served.store.participants()
    assert participant.external == {"workerId": "A1", "assignmentId": "3T", "hitId": "3X"}


def test_links_and_participants_without_an_identifier_are_noted_once(served, caplog):
    served.person().arrive(PROLIFIC_PID="p1")
    assert "without an identifier" not in caplog.text
    for _ in range(2):
        served.person().arrive()
    assert caplog.text.count("A participant without an identifier is stored") == 1
    caplog.clear()
    for query in ("", "lang=en", "c=4711", "c=4712", "x=1&c=3", "utm_source=mail"):
        served.person().get(f"/?{query}")
    lines = [record.getMessage() for record in caplog.records if "anonymous" in record.getMessage()]
    assert len(lines) == 2 and "has c;" in lines[0] and "has x, c;" in lines[1] and "4711" not in caplog.text
    for number in range(100):
        served.person().get(f"/?made{number}=up")
    assert caplog.text.count("anonymous") == 19  # with the first one, twenty in all


def test_identifiers_stay_in_the_links_of_languages(serve):
    served = serve(SMALL.replace("seed = 3", 'seed = 3\nlanguages = ["en", "de"]'), languages=("de",))
    person = served.person()
    for page in (person.get("/?prolific_pid=p1&study_id=s"), person.post("/consent")):  # the box is not ticked
        assert 'href="/?lang=de&amp;PROLIFIC_PID=p1&amp;STUDY_ID=s"' in page.text


def test_the_check_of_the_instructions_has_two_attempts(serve):
    served = serve(CHECKED)
    person = served.person()
    person.arrive()
    assert person.at == "/page" and "How it works" in person.page.text
    person.post("/page")
    assert person.page.status_code == 422 and "Please answer this question" in person.page.text
    person.post("/page", **{"q-what": 0})
    assert person.at == "/page" and "Attempts left: 1" in person.page.text
    assert person.get("/question").url.path == "/page"
    person.post("/page", **{"q-what": 0})
    assert person.at == "/end" and "cannot take part" in person.page.text
    assert person.get("/question").url.path == "/end" == person.get("/instructions").url.path
    second = served.person()
    second.arrive()
    wrong = {**second.form("/page")["fields"], "q-what": "0"}
    for _ in range(3):  # sent again, it is one attempt
        assert "Attempts left: 1" in second.client.post("/page", data=wrong).text
    assert second.client.post("/page", data={**wrong, "attempt": "1", "q-what": "1"}).url.path == "/question"


def test_an_answer_sent_twice_counts_once_and_a_different_one_is_told_so(served):
    person = served.begin()
    fields = {**person.form("/answer")["fields"]}
    person.page = person.client.post("/answer", data={**fields, "best": "1"})
    following = person.key
    person.page = person.client.post("/answer", data={**fields, "best": "1"})  # a double click
    assert person.key == following and "answered before" not in person.page.text
    person.page = person.client.post("/answer", data={**fields, "best": "2"})  # another tab
    assert person.key == following and "answered before" in person.page.text
    assert [answer.response.first for _, answer in served.history() if answer] == [1]


def test_undo_shows_the_last_question_again_once_and_what_was_taken_back_takes_no_answer(served):
    person = served.begin()
    assert "data-undo disabled" in person.page.text
    stale = {**person.form("/answer")["fields"], "best": "0"}
    person.post("/answer", best=1)
    waiting = {**person.form("/answer")["fields"], "best": "0"}
    person.post("/answer", to="/undo")
    assert "taken back" in person.page.text and "Question 1 of 10" in person.page.text
    key, before = person.key, dump(served.store)
    person.page = person.client.post("/undo", data=waiting)  # its acknowledgement was lost: nothing happens twice
    assert person.key == key and dump(served.store) == before
    for fields, said in ((waiting, "was taken back"), (stale, "answered before")):
        person.page = person.client.post("/answer", data=fields)
        assert said in person.page.text and dump(served.store)["answers"] == before["answers"]
    person.post("/answer", best=2)
    assert [answer.response.first for _, answer in served.history() if answer] == [2]
    person.post("/answer", to="/undo", undo_key="nothing")
    assert "nothing to undo" in person.page.text


@pytest.mark.parametrize(
    ("format", "complete", "incomplete", "order"),
    [
        ("best", {"best": 2}, {}, (2,)),
        ("best_worst", {"best": 0, "worst": 2}, {"best": 1, "worst": 1}, (0, 2)),
        ("ranking", {"place-0": 3, "place-1": 1, "place-2": 2}, {"place-0": 1, "place-1": 2}, (1, 2, 0)),
        ("partial", {"place-2": 1, "place-0": 2}, {"place-0": 2}, (2, 0)),
        ("rating", {"level-0": 4, "level-1": 0, "level-2": 2}, {"level-0": 4, "level-1": 5, "level-2": 2}, (4, 0, 2)),
        ("like", {"level-0": 1, "level-1": 0, "level-2": 1}, {"level-0": 1}, (1, 0, 1)),
    ],
)
def test_every_format_is_answered_and_asks_for_what_is_missing(serve, format, complete, incomplete, order):
    served = serve(SMALL.replace("options = 3", f'options = 3\nformat = "{format}"'))
    person = served.begin()
    key = person.key
    person.post("/answer", **incomplete)
    assert person.at == "/question" and person.key == key and 'role="status">' in person.page.text
    person.post("/answer", **complete)
    assert person.key != key
    person.post("/answer", cant_tell="1")
    first, second, *_ = [answer.response for _, answer in served.history() if answer]
    assert (first.order or first.levels) == order and second.kind == "tie"
    assert first.kind == ("rating" if first.levels else format)


@pytest.mark.parametrize("language", ["en", "de", "ar", "zh"])
def test_one_prompt_at_a_time_is_rated_to_the_end_and_exported(serve, tmp_path, language):
    text = SMALL.replace("options = 3", 'options = 1\nformat = "rating"\nlevels = 4').replace(
        "seed = 3", f'seed = 3\nlanguages = ["{language}"]'
    )
    served = serve(text, languages=[language])
    person = served.begin()
    given = []
    while person.at == "/question":
        assert person.page.text.count('name="level-0"') == 4
        question = served.history()[-1][0]
        given.append(3 if question.expected is not None else len(given) % 4)
        person.post("/answer", **{"level-0": given[-1]})
    assert [answer.response.levels for _, answer in served.history()] == [(level,) for level in given]
    exported = export(served.store, served.queue.materials, tmp_path / "export")
    [row] = read_tables(tmp_path / "export").participants
    assert (row["attention_asked"], row["attention_passed"]) == (1, 1)
    [path] = exported.people
    assert len(Comparisons.from_parquet(path)) == 6
    replayed = audit("p", served.store.records()[0], served.queue.materials)
    assert replayed.different == 0


def test_after_a_day_a_page_says_where_the_participant_stopped(served):
    person = served.begin()
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
    person = served.begin()
    stale = {**person.form("/answer")["fields"], "best": "0"}
    person.get("/withdraw")
    person.post("/withdraw")
    assert person.at == "/end" and "no longer take part" in person.page.text
    assert person.client.post("/answer", data=stale).url.path == "/end"
    [participant] = served.store.participants()
    assert participant.status == "withdrawn" and served.store.history(participant.id)[0][1] is None


def test_measurements_of_the_script_are_stored_and_nonsense_is_left_out(served):
    person = served.begin()
    person.post("/answer", best=0, first_input_ms=700, answer_ms=1500, visibility_changes=2, viewport_width=390,
                viewport_height=844)  # fmt: skip
    person.post("/answer", best=0, first_input_ms=-1, answer_ms="x" * 2000, viewport_width=9, visibility_changes="1e3")
    first, second, *_ = [answer.timing for _, answer in served.history() if answer]
    assert first == Timing(first_input_ms=700, answer_ms=1500, visibility_changes=2, viewport=(390, 844))
    assert second == Timing()


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
    person = served.begin()
    assert "Question 1 of at most 16" in person.page.text and "left" not in person.page.text
    [participant] = served.store.participants()
    shown = []
    while person.at == "/question":
        question = served.store.history(participant.id)[-1][0]
        expected = served.queue.questions_left(participant, question)
        assert (expected is not None) == ("about" in person.page.text)
        if expected is not None:
            reach = "" if expected.reach is None else " ({} to {})".format(*expected.reach)
            assert f"about {expected.questions} left{reach}" in person.page.text
            shown.append(expected.questions)
        person.post("/answer", best=0)
    forecasts = [event["detail"] for event in served.store.events(participant.id) if event["kind"] == "forecast"]
    assert forecasts and forecasts[0]["questions"] == 6
    for earlier, later in zip(shown, shown[1:], strict=False):
        assert later in (earlier - 1, 0)
