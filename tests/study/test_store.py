"""The store: nothing acknowledged is lost, nothing is counted twice, one person can be deleted."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from sqlalchemy import select, text

from edpbrl_gym.likelihood import Response
from edpbrl_gym.study.records import (
    HistoryChangedError,
    StruckQuestionError,
    Timing,
    UnknownParticipantError,
    UnknownQuestionError,
)
from edpbrl_gym.study.store import Store
from edpbrl_gym.study.tables import answers, events, metadata, participants, questions
from tests.helpers.study_writer import ask

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def store(url):
    opened = Store(url, config="c" * 64, document="title = 'x'")
    yield opened
    opened.close()


def enrol(store, **external):
    return store.enrol(external, lambda number: ("a", "b")[number % 2])


def rows(store, table):
    with store.database.reading() as connection:
        return connection.execute(select(table)).mappings().all()


def test_an_answer_is_there_after_reopening(url):
    store = Store(url, config="c" * 64)
    person = enrol(store, PROLIFIC_PID="p1")
    question = ask(store, person.id, 0)
    timing = Timing(first_input_ms=900, answer_ms=2100, visibility_changes=2, viewport=(390, 844))
    receipt = store.answer(person.id, question.key, Response.best_worst(2, 0), timing)
    store.close()
    again = Store(url)
    [(same, answer)] = again.history(person.id)
    assert same == question and answer == receipt.answer and receipt.first
    assert answer.timing == timing and answer.response == Response.best_worst(2, 0)
    [row] = rows(again, answers)
    assert row["config"] == "c" * 64 and row["code_version"]
    again.close()


def test_the_same_key_answers_once_and_returns_the_first_answer(store):
    person = enrol(store)
    question = ask(store, person.id, 0)
    first = store.answer(person.id, question.key, Response.best(1))
    second = store.answer(person.id, question.key, Response.best(2), Timing(answer_ms=1))
    assert first.first and not second.first and second.answer == first.answer
    assert len(rows(store, answers)) == 1


def test_many_posts_of_one_key_at_once_answer_once(store):
    person = enrol(store)
    question = ask(store, person.id, 0)
    barrier = threading.Barrier(8)

    def post(option):
        barrier.wait()
        return store.answer(person.id, question.key, Response.best(option % 3))

    with ThreadPoolExecutor(8) as pool:
        receipts = list(pool.map(post, range(8)))
    assert sum(receipt.first for receipt in receipts) == 1
    assert len({receipt.answer.response for receipt in receipts}) == 1 and len(rows(store, answers)) == 1


def test_what_was_not_asked_is_refused_and_kept_as_an_event(store):
    one, other = enrol(store, id="1"), enrol(store, id="2")
    question = ask(store, one.id, 0)
    for person, key in ((other, question.key), (one, "made-up'; DROP TABLE answers; --")):
        with pytest.raises(UnknownQuestionError):
            store.answer(person.id, key, Response.best(0))
        assert store.events(person.id)[-1]["kind"] == "refused"
    with pytest.raises(ValueError, match=r"0\.\.2"):
        store.answer(one.id, question.key, Response.best(3))
    with pytest.raises(UnknownParticipantError):
        store.answer(77, question.key, Response.best(0))
    assert rows(store, answers) == []


def test_a_question_is_added_once_and_only_when_its_turn_comes(store):
    person = enrol(store)
    first = ask(store, person.id, 0)
    assert ask(store, person.id, 0) == first
    for number in (1, 2):
        with pytest.raises(HistoryChangedError, match="next"):
            ask(store, person.id, number)
    store.answer(person.id, first.key, Response.best(0))
    with pytest.raises(HistoryChangedError, match="next"):
        ask(store, person.id, 0)
    assert ask(store, person.id, 1).number == 1


def test_undo_adds_and_deletes_nothing(store):
    person = enrol(store)
    first = ask(store, person.id, 0)
    store.answer(person.id, first.key, Response.best(0))
    second = ask(store, person.id, 1)
    copy = store.undo(person.id, first.key)
    assert copy.number == 0 and copy.texts == first.texts and copy.positions == first.positions
    assert copy.key != first.key
    assert store.undo(person.id, first.key) == copy  # the button pressed twice
    assert store.history(person.id) == [(copy, None)]
    assert len(rows(store, answers)) == 1 and len(rows(store, questions)) == 3
    assert not store.answer(person.id, first.key, Response.best(2)).first  # a late repeat of the first post
    with pytest.raises(StruckQuestionError):
        store.answer(person.id, second.key, Response.best(2))
    store.answer(person.id, copy.key, Response.best(1))
    assert [answer.response for _, answer in store.history(person.id)] == [Response.best(1)]
    assert [question.struck for question, _ in store.full_history(person.id)] == [True, True, False]
    with pytest.raises(UnknownQuestionError):
        store.undo(person.id, "another key")


def test_a_person_who_comes_back_is_the_same_participant(store):
    first, other = enrol(store, PROLIFIC_PID="p1", STUDY_ID="s"), enrol(store, PROLIFIC_PID="p2", STUDY_ID="s")
    assert enrol(store, STUDY_ID="s", PROLIFIC_PID="p1") == first
    assert (first.number, other.number) == (0, 1) and {first.arm, other.arm} == {"a", "b"}
    assert enrol(store).id != enrol(store).id
    assert store.participant(other.code) == other
    with pytest.raises(UnknownParticipantError):
        store.participant("p1")


def test_consent_counts_once_with_its_version_and_time(store):
    person = enrol(store)
    given = store.consent(person.id, "1")
    assert given.consent_version == "1" and given.consented_at and given.status == "consented"
    assert store.consent(person.id, "2") == given
    assert store.set_status(person.id, "finished").status == "finished"
    assert [event["kind"] for event in store.events(person.id)] == ["consent", "status"]


def test_deletion_deletes_all_rows_of_one_person(store, url):
    people = [enrol(store, PROLIFIC_PID=f"person-{name}") for name in "ab"]
    for person in people:
        first = ask(store, person.id, 0)
        store.answer(person.id, first.key, Response.best(0))
        store.undo(person.id, first.key)
        store.add_event(person.id, "hidden", {"by": person.external["PROLIFIC_PID"]})
    kept = store.full_history(people[1].id)
    store.delete(people[0].id)
    for table in (questions, answers, events):
        assert {row["participant"] for row in rows(store, table)} == {people[1].id}
    assert [row["id"] for row in rows(store, participants)] == [people[1].id]
    assert store.full_history(people[1].id) == kept
    assert store.counts() == {"participants": 2, "deleted": 1}
    assert enrol(store, PROLIFIC_PID="person-a").number == 2  # no number is given twice
    with pytest.raises(UnknownParticipantError):
        store.delete(people[0].id)
    if url.startswith("sqlite"):
        store.delete(store.participants()[-1].id)
        store.close()
        left = b"".join(path.read_bytes() for path in Path(url.removeprefix("sqlite:///")).parent.iterdir())
        assert b"person-a" not in left and b"person-b" in left


def test_facts_are_set_once(store, url):
    assert store.claim("asking", "one") == "one" and store.claim("asking", "two") == "one"
    other = Store(url)
    assert other.secret == store.secret and len(store.secret) > 30
    other.close()


def python(*words):
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, *words]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, cwd=ROOT
    )


def writer(url, code, *more):
    return python("-m", "tests.helpers.study_writer", url, code, *map(str, more))


def test_no_acknowledged_answer_is_lost_by_a_kill(store, url):
    """The writer is killed without warning after a random number of acknowledgements, again and again."""
    person = enrol(store)
    acknowledged = {}
    rng = np.random.default_rng(7)
    for wanted in rng.integers(1, 40, size=6):
        process = writer(url, person.code)
        for _ in range(int(wanted)):
            line = process.stdout.readline()
            assert line, process.stderr.read()
            key, option = line.split()
            acknowledged[key] = int(option)
        process.kill()
        for line in process.communicate()[0].splitlines(keepends=True):
            if line.endswith("\n"):  # printed before the kill, so acknowledged
                key, option = line.split()
                acknowledged[key] = int(option)
    history = store.history(person.id)
    stored = {question.key: answer.response.order[0] for question, answer in history if answer is not None}
    assert acknowledged.items() <= stored.items()
    assert len(stored) - len(acknowledged) <= 6  # on the disk, killed before it was acknowledged
    assert [question.number for question, _ in history] == list(range(len(history)))


def test_writers_in_several_processes_wait_for_each_other(store, url):
    people = [enrol(store) for _ in range(4)]
    processes = [writer(url, person.code, 40) for person in people]
    for process in processes:
        _, errors = process.communicate(timeout=300)
        assert process.returncode == 0, errors
    for person in people:
        history = store.history(person.id)
        assert len(history) == 40 and all(answer is not None for _, answer in history)


def test_one_new_database_is_opened_by_several_processes_at_once(url):
    code = f"from edpbrl_gym.study.store import Store; print(Store({url!r}).secret)"
    processes = [python("-c", code) for _ in range(4)]
    results = [process.communicate(timeout=300) for process in processes]
    assert [process.returncode for process in processes] == [0] * 4, results
    assert len({printed for printed, _ in results}) == 1


def test_migrations_make_the_tables_of_the_code(store):
    from alembic.autogenerate import compare_metadata
    from alembic.migration import MigrationContext

    with store.database.reading() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, metadata) == []


def test_a_database_of_the_first_version_is_migrated_with_its_answers(store, url):
    person = enrol(store)
    with store.database.writing() as connection:  # back to the first revision
        for table in ("posts", "oracles"):
            connection.execute(text(f"DROP TABLE {table}"))
        connection.execute(text("UPDATE alembic_version SET version_num = '0001'"))
    again = Store(url)
    assert again.participant(person.code) == person
    test_migrations_make_the_tables_of_the_code(again)
    again.close()


def test_a_database_of_a_newer_version_is_refused(store, url):
    with store.database.writing() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(ValueError, match="another one"):
        Store(url)


def test_a_place_that_is_no_database_is_explained(tmp_path):
    (tmp_path / "notes.db").write_text("these are notes " * 100)
    with pytest.raises(ConnectionError, match="not a database"):
        Store(f"sqlite:///{tmp_path / 'notes.db'}")
    with pytest.raises(ConnectionError, match="could not open"):
        Store(f"sqlite:///{tmp_path / 'nowhere' / 'study.db'}")
    with pytest.raises(ValueError, match="sqlite:///FILE"):
        Store("mysql://host/name")


@pytest.mark.needs("postgresql")
def test_a_server_that_does_not_answer_is_named_without_its_password():
    with pytest.raises(ConnectionError, match=r"\*\*\*"):
        Store("postgresql://user:secret@127.0.0.1:1/name")


def test_sqlite_is_set_up_to_survive_a_power_cut(tmp_path):
    store = Store(f"sqlite:///{tmp_path / 'study.db'}")
    with store.database.writing() as connection:
        found = {name: connection.execute(text(f"PRAGMA {name}")).scalar() for name in
                 ("journal_mode", "synchronous", "foreign_keys", "secure_delete")}  # fmt: skip
    store.close()
    assert found == {"journal_mode": "wal", "synchronous": 2, "foreign_keys": 1, "secure_delete": 1}
