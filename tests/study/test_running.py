"""What a researcher is told of a study that runs: alerts, the log, its state, and the doctor."""

from __future__ import annotations

import http.server
import json
import logging
import sqlite3
import threading
import time
from datetime import UTC, datetime, timedelta

import pytest

from tests.helpers.extras import reason

if why := reason(["study"]):
    pytest.skip(why, allow_module_level=True)

from sqlalchemy import insert, update
from sqlalchemy.exc import IntegrityError

from edpbrl_gym.study.alerts import Alerts, AlertsConfig
from edpbrl_gym.study.config_reading import Mistakes, read_config
from edpbrl_gym.study.doctor import look_at
from edpbrl_gym.study.logs import JsonFormatter
from edpbrl_gym.study.overview import overview
from edpbrl_gym.study.tables import answers, events, participants
from edpbrl_gym.study.watching import Watch
from tests.helpers.small_vocabulary import write_embedded
from tests.helpers.studies import SMALL, write_study

NAME = "prolific-of-somebody"


def wait_for(condition):
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.fixture
def posted():
    """A local server; yields its address and what was posted to it."""
    got = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            got.append((self.headers["content-type"], self.rfile.read(int(self.headers["content-length"]))))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *arguments):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}/hook", got
        server.shutdown()


def test_alerts_reach_a_command_and_an_address_once_in_a_while(tmp_path, posted):
    url, got = posted
    command = f'cat >> {tmp_path}/alerts; echo "$EDPBRL_EVENT" >> {tmp_path}/events'
    alerts = Alerts(AlertsConfig(command, url), "Tastes")
    assert [alerts.tell("disk", "full") for _ in range(3)] == [True, False, False]
    assert alerts.tell("database", "gone")
    alerts.close()
    assert (tmp_path / "events").read_text().split() == ["disk", "database"]
    decoder, text, told = json.JSONDecoder(), (tmp_path / "alerts").read_text(), []
    while text:
        one, end = decoder.raw_decode(text)
        told.append(one)
        text = text[end:]
    assert told == [json.loads(body) for _, body in got]
    assert [(one["study"], one["event"], one["message"]) for one in told] == [
        ("Tastes", "disk", "full"),
        ("Tastes", "database", "gone"),
    ]
    assert {kind for kind, _ in got} == {"application/json"}


def test_alerts_that_can_not_be_sent_stop_nothing(tmp_path, caplog):
    alerts = Alerts(AlertsConfig(f"touch {tmp_path}/called; exit 3", "http://127.0.0.1:9/nobody"), "Tastes")
    for number in range(100):  # more than wait, each at once
        alerts.tell(f"event {number}", "broken")
    wait_for((tmp_path / "called").exists)
    wait_for(lambda: "ended with 3" in caplog.text and "could not be sent" in caplog.text)


def test_nobody_is_told_without_a_table_and_a_wrong_one_is_a_mistake(tmp_path):
    assert not Alerts(AlertsConfig(), "Tastes").tell("disk", "full")
    folder = write_study(
        tmp_path / "study", SMALL + '[alerts]\ncommand = "true"\nurl = "ftp://x"\nevery = 0\nnope = 1\n'
    )
    with pytest.raises(Mistakes) as error:
        read_config(folder)
    assert [one.partition(":")[0] for one in error.value.mistakes] == ["alerts.every", "alerts.url", "alerts.nope"]


def test_a_database_that_is_gone_is_told_of_and_nobody_is_named(serve, tmp_path, posted):
    url, got = posted
    folder = write_study(tmp_path / "study", SMALL + f'[alerts]\nurl = "{url}"\n')
    server = serve(folder)
    person = server.arrive(NAME)
    alerts = Alerts(server.config.alerts, server.config.title)
    watch = Watch(server.queue, alerts)
    try:
        watch.look()
        assert watch.failures() == {}
        (folder / "study.db").rename(folder / "elsewhere")
        watch.look()
        watch.look()
        (folder / "elsewhere").rename(folder / "study.db")
        assert watch.failures() == {"database": 2}
        log = logging.getLogger("edpbrl_gym.study.web.guards")
        log.warning("Refused 'GET' '/question' (404): Not Found", extra={"event": "refused", "status": 404})
        log.warning("Refused 'GET' '/question' (500): x", extra={"event": "refused", "status": 500})
        logging.getLogger("edpbrl_gym.study.pictures").error("A picture could not be drawn: x")
        logging.getLogger("edpbrl_gym.study.planning").warning("A worker process was lost; x")
        assert watch.failures() == {"database": 2, "errors": 1, "pictures": 1, "planning": 1}
    finally:
        watch.close()
        alerts.close()
    assert sorted(json.loads(body)["event"] for _, body in got) == ["database", "errors", "pictures", "planning"]
    for _, body in got:
        assert NAME.encode() not in body and person.code.encode() not in body


def test_lines_of_the_log_name_nobody_also_when_the_database_fails(serve, tmp_path):
    server = serve(write_study(tmp_path / "study"))
    person = server.arrive(NAME)
    lines = []

    class Collect(logging.Handler):
        def emit(self, record):
            lines.append(JsonFormatter().format(record))

    log, handler = logging.getLogger("edpbrl_gym.study.test"), Collect()
    log.addHandler(handler)
    try:
        row = {"number": 0, "code": person.code, "external": {"PROLIFIC_PID": NAME}, "arm": "random"}
        row |= {"language": "en", "status": "asking", "created_at": "now"}
        with pytest.raises(IntegrityError) as caught, server.store.database.writing() as connection:
            connection.execute(insert(participants).values(**row))
        assert NAME not in str(caught.value) and person.code not in str(caught.value)
        log.error("A page failed", exc_info=caught.value)
        log.warning("Refused", extra={"event": "refused", "status": 503})
    finally:
        log.removeHandler(handler)
    first, second = map(json.loads, lines)
    assert first["level"] == "error" and first["error"] == "IntegrityError" and first["place"]
    assert first["message"] == "A page failed" and NAME not in lines[0]
    assert (second["event"], second["status"], second["level"]) == ("refused", 503, "warning")
    assert datetime.fromisoformat(first["time"]).tzinfo is not None


def set_back(server, person, minutes):
    """Let everything that a person did be so long ago."""
    at = (datetime.now(UTC) - timedelta(minutes=minutes)).isoformat(timespec="microseconds")
    with server.store.database.writing() as connection:
        connection.execute(update(answers).where(answers.c.participant == person.id).values(answered_at=at))
        connection.execute(update(events).where(events.c.participant == person.id).values(at=at))
        mine = update(participants).where(participants.c.id == person.id)
        connection.execute(mine.values(consented_at=at, created_at=at))


def test_the_state_says_who_is_here_who_waits_and_who_has_left(serve, tmp_path):
    text = SMALL.replace("[recruitment.codes]", "[recruitment]\npeople = 2\n[recruitment.codes]")
    server = serve(write_study(tmp_path / "study", text))
    here = server.arrive("here")
    server.queue.next_question(here)
    left = server.arrive("left")
    server.queue.next_question(left)
    state = overview(server.queue, {})
    assert state.answering == 2 and state.hours[0] == 2 and not state.stuck and not state.to_do
    assert state.target == 2 and state.disk and state.workers == 0 and state.pictures is None
    set_back(server, left, 45)
    state = overview(server.queue, {"errors": 3})
    assert state.answering == 1 and state.hours[0] == 2 and len(state.stuck) == 1 and not state.waiting
    assert any("time_out" in one for one in state.to_do) and any("Pages failed" in one for one in state.to_do)
    while question := server.queue.next_question(here):
        server.queue.answer(here, question.key, server.liked(question))
    state = overview(server.queue, {})
    assert state.finished == 1 == sum(one.finished for one in state.arms)
    set_back(server, here, 45)  # on a page after the choices, or gone: nobody waits for them
    assert len(overview(server.queue, {}).stuck) == 1


def test_somebody_for_whom_no_question_comes_is_noticed(serve, tmp_path, monkeypatch):
    server = serve(write_study(tmp_path / "study"))
    person = server.arrive("one")
    question = server.queue.next_question(person)
    monkeypatch.setattr(server.queue, "_work", lambda *arguments: None)  # the planner fails
    server.queue.answer(person, question.key, server.liked(question))
    assert not overview(server.queue, {}).waiting
    set_back(server, person, 3)
    state = overview(server.queue, {})
    assert len(state.waiting) == 1 and "1 person waits" in state.to_do[0]


def doctored(folder, **more):
    return {one.what: one for one in look_at(folder, **more)}


def embedded_study(tmp_path, more=""):
    words, encoder = write_embedded(tmp_path)
    text = SMALL.replace('vocabulary = "words"', f'vocabulary = "{words}"\nencoder = "{encoder}"')
    return write_study(tmp_path / "study", text + more)


def test_the_doctor_finds_what_is_wrong(tmp_path):
    assert not doctored(tmp_path)["Configuration"].is_well
    folder = embedded_study(tmp_path)
    found = doctored(folder, port=1, public_url="https://127.0.0.1:1")
    wrong = {name for name, one in found.items() if not one.is_well}
    assert wrong == {"Configuration", "Server", "Public address"}  # the texts are those of the template
    assert "2 of 2 arms" in found["Questions"].found and "none yet" in found["Database"].found
    with sqlite3.connect(folder / "study.db") as connection:
        connection.execute("CREATE TABLE other (x)")
    (folder / "study.db").write_bytes((folder / "study.db").read_bytes()[:100] + b"\xff" * 4000)
    assert not doctored(folder)["Database"].is_well
    (folder / "study.toml").write_text("title = 3\n")
    [only] = doctored(folder).values()
    assert not only.is_well and "mistakes" in only.found


@pytest.mark.needs("pictures")
def test_the_doctor_draws_a_picture_or_says_why_not(tmp_path):
    folder = embedded_study(tmp_path, '[pictures]\nrenderer = "posters"\n')
    found = doctored(folder)["Pictures"]
    assert found.is_well, found
