"""The end of a study: it is acknowledged at once, nobody waits for what is computed, and sessions are let go."""

from __future__ import annotations

import re
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from edpbrl_gym.likelihood import Response
from edpbrl_gym.study import visits
from edpbrl_gym.study.records import NotReadyError
from edpbrl_gym.study.style import STYLE, STYLE_CHOICE, make_style
from edpbrl_gym.study.visits import Visit
from tests.helpers.oracle_studies import Server
from tests.helpers.studies import SMALL
from tests.helpers.study_process import request
from tests.helpers.study_server import listening

SHORT = SMALL.replace("number = 6", "number = 2").replace("attention = 1", "attention = 0")
SHORT = SHORT.replace("repeated = 2", "repeated = 0").replace("questions = 1", "questions = 0")
ADAPTIVE = SHORT[: SHORT.index("[[arms]]")] + '[[arms]]\nname = "adaptive"\nplanner = "adaptive"\n'


def events(served, kind):
    return [one for who in served.store.participants() for one in served.store.events(who.id) if one["kind"] == kind]


def test_thanks_and_code_come_before_the_learnt_taste(serve, gate):
    served = serve(SHORT)
    person = served.begin()
    person.play()
    assert person.at == "/end" and "C1" in person.page.text and "Thank you" in person.page.text
    assert "data-pending" in person.page.text and "Group A" not in person.page.text
    assert re.search(r'<noscript><meta http-equiv="refresh" content="\d+"></noscript>', person.page.text)
    token = {"token": served.token(person), "group": "0"}
    assert person.client.post("/prefer", data=token).url.path == "/end" and events(served, STYLE_CHOICE) == []
    gate.set()
    person.wait_for_style()
    assert "C1" in person.page.text and "Group A" in person.page.text and "refresh" not in person.page.text
    person.post("/prefer", group="tie")
    assert len(events(served, STYLE)) == len(events(served, STYLE_CHOICE)) == 1


def test_pages_that_need_no_planner_do_not_wait_for_questions(serve):
    """While more people wait for their planners than the server has threads for other pages."""
    served = serve(ADAPTIVE)
    with listening(served.app) as port, ThreadPoolExecutor(45) as pool:
        people = [served.person() for _ in range(45)]
        for person in people:
            person.arrive()
        with served.queue.planning._turn.held(0):  # somebody's planner computes for long
            for person in people:
                person.client.post("/instructions", data=person.form("/instructions")["fields"], follow_redirects=False)
            cookies = [next(iter(person.client.cookies.values())) for person in people]
            waiting = [pool.submit(request, port, "GET", "/question", cookie, None, 120.0) for cookie in cookies]
            while len(served.queue.planning._turn._waiting) < 45:
                time.sleep(0.01)
            assert request(port, "GET", "/")[0] == request(port, "GET", "/health")[0] == 200
            assert request(port, "GET", "/instructions", cookies[0])[0] == 200
            assert not any(one.done() for one in waiting)
        assert [one.result(120)[0] for one in waiting] == [200] * 45


def test_sessions_of_those_who_do_nothing_are_let_go(served, monkeypatch):
    people = [served.person() for _ in range(6)]
    monkeypatch.setattr(visits, "_MOST", 3)
    for person in people:
        person.begin()
    assert len(served.queue._visits) == 3
    monkeypatch.setattr(visits, "_IDLE", 0.0)
    people[0].post("/answer", best=0)
    assert len(served.queue._visits) <= 1
    for person in people:  # and are made anew
        assert person.play() in (9, 10)


def test_a_taste_that_a_killed_server_was_making_is_made_when_it_is_asked_for(serve, gate):
    served = serve(SHORT)
    person = served.begin()
    person.play()
    [participant] = served.store.participants()
    server = Server(served.config)
    queue = server.queue
    with pytest.raises(NotReadyError):
        queue.style(participant)
    gate.set()
    queue.close()  # waits
    first = queue.style(participant)
    assert first is not None
    server.store.close()
    person.wait_for_style()
    assert served.queue.style(participant) == first and len(events(served, STYLE)) == 1


def test_a_taste_that_was_made_of_an_answer_taken_back_is_not_shown(serve, gate):
    """Made before the answer is taken back, and while it is."""
    served = serve(SHORT)
    person = served.begin()
    person.play()
    [participant] = served.store.participants()
    queue = served.queue
    gate.set()
    person.wait_for_style()
    for number in range(2):
        queue.undo(participant, served.store.last_key(participant.id))
        assert queue.style(participant) is None
        queue.answer(participant, queue.next_question(participant).key, Response.best(number))
        assert queue.next_question(participant) is None
        person.get("/end")
        person.wait_for_style()
    session = Visit(queue.materials, participant, served.config.arms[0]).session(served.store.history(participant.id))
    assert queue.style(participant) == make_style(queue.materials, participant, session, served.config.style)
    assert len(events(served, STYLE)) == 3


def test_a_participant_deleted_or_withdrawn_while_the_taste_is_made_leaves_none(serve, gate, caplog):
    served = serve(SHORT)
    people = [served.person() for _ in range(2)]
    for person in people:
        person.begin()
        person.play()
        person.get("/end")
    first, second = served.store.participants()
    served.store.set_status(first.id, "withdrawn")
    served.store.delete(second.id)
    gate.set()
    served.queue.close()
    assert events(served, STYLE) == [] and "Traceback" not in caplog.text


def test_the_script_is_told_that_an_answer_is_stored_before_the_next_page(served):
    person = served.begin()
    fields = {**person.form("/answer")["fields"], "best": "0"}
    answer = person.client.post("/answer", data=fields, headers={"Accept": "application/json"})
    assert answer.status_code == 200 and answer.json() == {"next": "/question"}
    answer = person.client.post("/answer", data={**fields, "best": "1"}, headers={"Accept": "application/json"})
    assert answer.json() == {"next": "/question?notice=already"}
    refused = person.client.post("/answer", data={"key": "x"}, headers={"Accept": "application/json"})
    assert refused.status_code == 403 and refused.headers["content-type"].startswith("text/html")


def test_an_answer_to_a_database_that_vanished_is_refused_and_said_in_the_log(served, caplog):
    person = served.begin()
    file = served.config.folder / "study.db"
    file.rename(file.with_name("old.db"))
    page, fields = person.page, {**person.form("/answer")["fields"], "best": "0"}
    answer = person.client.post("/answer", data=fields, follow_redirects=False)
    assert answer.status_code == 503 and "may not be stored" in answer.text and answer.headers["retry-after"]
    assert person.client.get("/question").status_code == 503
    assert "Refused 'POST' '/answer' (503): Expected the study's answers at" in caplog.text and "renamed" in caplog.text
    assert "Traceback" not in caplog.text and not file.exists()
    file.with_name("old.db").rename(file)
    person.page = page
    person.post("/answer", best=0)
    assert person.at == "/question" and len(served.store.history(served.store.participants()[0].id)) == 2
