"""The store: nothing acknowledged is lost, nothing is counted twice, one person can be deleted."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import select, text

from edpbrl_gym.likelihood import Response
from edpbrl_gym.study.own_photos import Photo, RefusedPhotoError
from edpbrl_gym.study.photo_store import PhotoStore
from edpbrl_gym.study.records import (
    HistoryChangedError,
    NotAskingError,
    Timing,
    UnknownParticipantError,
    UnknownQuestionError,
)
from edpbrl_gym.study.store import Store
from edpbrl_gym.study.tables import answers, events, metadata, participants, questions
from tests.helpers.studies import ask


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
    if url.startswith("sqlite"):  # written to the disk before it is acknowledged, overwritten when deleted
        with store.database.writing() as connection:
            found = [connection.execute(text(f"PRAGMA {name}")).scalar() for name in ("synchronous", "secure_delete")]
        assert found == [2, 1]
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
    assert ask(store, one.id, 0) == question
    with pytest.raises(HistoryChangedError, match="next"):
        ask(store, one.id, 1)


def test_undo_adds_and_deletes_nothing(store):
    person = enrol(store)
    first = ask(store, person.id, 0)
    receipt = store.answer(person.id, first.key, Response.best(0))
    second = ask(store, person.id, 1)
    copy = store.undo(person.id, first.key)
    assert copy.number == 0 and copy.texts == first.texts and copy.positions == first.positions
    assert copy.key != first.key
    assert store.undo(person.id, first.key) == copy  # the button pressed twice
    assert store.history(person.id) == [(copy, None)]
    late = store.answer(person.id, first.key, Response.best(2), Timing(answer_ms=1))  # a late repeat of the first post
    assert not late.first and late.answer == receipt.answer
    assert len(rows(store, answers)) == 1 and len(rows(store, questions)) == 3
    with pytest.raises(HistoryChangedError):
        store.answer(person.id, second.key, Response.best(2))
    store.answer(person.id, copy.key, Response.best(1))
    assert [answer.response for _, answer in store.history(person.id)] == [Response.best(1)]
    assert [question.struck for question, _ in store.record(person.id).history] == [True, True, False]
    with pytest.raises(UnknownQuestionError):
        store.undo(person.id, "another key")


@pytest.mark.parametrize("seed", range(4))
def test_what_waits_and_how_much_is_answered_is_what_the_history_says(store, seed):
    """After any order of asking, answering, taking back and replacing, of two people whose rows mix."""
    rng, people = np.random.default_rng(seed), [enrol(store, id="1"), enrol(store, id="2")]
    for _ in range(40):
        person = people[rng.integers(2)]
        history = store.history(person.id)
        waits = bool(history) and history[-1][1] is None
        move = rng.choice(["ask", "answer", "undo", "replace"], p=[0.4, 0.35, 0.2, 0.05])
        if move == "ask" and not waits:
            assert ask(store, person.id, len(history)).number == len(history)
        elif move == "answer" and waits:
            store.answer(person.id, history[-1][0].key, Response.best(int(rng.integers(3))))
        elif move == "undo" and (answered := [question for question, answer in history if answer is not None]):
            store.undo(person.id, answered[-1].key)
        elif move == "replace" and waits:
            store.replace(person.id, history[-1][0].id, "replaced", {"why": {}})
        for one in people:
            now = store.history(one.id)
            last = now[-1][0] if now and now[-1][1] is None else None
            assert store.waiting(one.code) == (one, last)
            assert store.answered(one.id) == sum(answer is not None for _, answer in now)


def test_a_person_who_comes_back_is_the_same_participant(store):
    first, other = enrol(store, PROLIFIC_PID="p1", STUDY_ID="s"), enrol(store, PROLIFIC_PID="p2", STUDY_ID="s")
    assert enrol(store, STUDY_ID="s", PROLIFIC_PID="p1") == first
    assert (first.number, other.number) == (0, 1) and {first.arm, other.arm} == {"a", "b"}
    assert enrol(store).id != enrol(store).id
    assert store.participant(other.code) == other
    with pytest.raises(UnknownParticipantError):
        store.participant("p1")
    given = store.consent(first.id, "1")
    assert given.consent_version == "1" and given.consented_at and given.status == "consented"
    assert store.consent(first.id, "2") == given  # it counts once
    assert all(enrol(store).code.isalnum() for _ in range(9))  # no hyphen first: `edpbrl study delete FOLDER CODE`


def test_deletion_deletes_all_rows_of_one_person(store, url):
    people = [enrol(store, PROLIFIC_PID=f"person-{name}") for name in "ab"]
    for person in people:
        first = ask(store, person.id, 0)
        store.answer(person.id, first.key, Response.best(0))
        store.undo(person.id, first.key)
        store.add_event(person.id, "hidden", {"by": person.external["PROLIFIC_PID"]})
    kept = store.record(people[1].id).history
    store.delete(people[0].id)
    for table in (questions, answers, events):
        assert {row["participant"] for row in rows(store, table)} == {people[1].id}
    assert [row["id"] for row in rows(store, participants)] == [people[1].id]
    assert store.record(people[1].id).history == kept
    assert store.counts() == {"participants": 2, "deleted": 1}
    assert enrol(store, PROLIFIC_PID="person-a").number == 2  # no number is given twice
    with pytest.raises(UnknownParticipantError):
        store.delete(people[0].id)
    if url.startswith("sqlite"):
        store.delete(store.participants()[-1].id)
        store.close()
        left = b"".join(path.read_bytes() for path in Path(url.removeprefix("sqlite:///")).parent.iterdir())
        assert b"person-a" not in left and b"person-b" in left


@pytest.mark.parametrize("status", ["withdrawn", "failed", "timed_out"])
def test_photos_go_with_whoever_does_not_finish_and_with_the_deleted(store, status):
    kept = PhotoStore(store.database)
    people = [store.consent(enrol(store).id, "1") for _ in range(3)]
    for person in people:
        for number in range(3):
            kept.add(person.id, Photo(b"%d of %d" % (number, person.id), 4, 3), most=3)
        kept.add(person.id, Photo(b"0 of %d" % person.id, 4, 3), most=3)  # again
        with pytest.raises(RefusedPhotoError):
            kept.add(person.id, Photo(b"one too many", 4, 3), most=3)
    first, second, third = people
    kept.remove(third.id, kept.of(third.id)[1].key)
    kept.remove(third.id, kept.of(first.id)[0].key)  # of somebody else
    store.set_status(first.id, status)
    store.delete(second.id)
    assert kept.of(first.id) == kept.of(second.id) == []
    keys = [one.key for one in kept.of(third.id)]
    assert [kept.jpeg(third.id, key) for key in keys] == [b"%d of %d" % (number, third.id) for number in (0, 2)]
    assert kept.jpeg(first.id, keys[0]) is None
    kept.rate(third.id, {keys[1]: 5})
    assert [one.rating for one in kept.of(third.id)] == [None, 5]
    for change in (lambda: kept.add(first.id, Photo(b"late", 4, 3), most=3), lambda: kept.decline(first.id)):
        with pytest.raises(NotAskingError):
            change()


def test_one_new_database_is_opened_by_several_servers_at_once(url):
    with ThreadPoolExecutor(3) as pool:
        stores = list(pool.map(Store, [url] * 3))
    assert len({one.secret for one in stores}) == 1
    for one in stores:
        one.close()


def test_a_database_of_the_first_version_is_migrated_with_its_answers(store, url):
    person = enrol(store)
    with store.database.writing() as connection:  # back to the first revision
        for table in ("posts", "oracles", "photos"):
            connection.execute(text(f"DROP TABLE {table}"))
        connection.execute(text("DROP INDEX uq_participants_place"))
        for column in ("place", "pilot"):
            connection.execute(text(f"ALTER TABLE participants DROP COLUMN {column}"))
        connection.execute(text("UPDATE alembic_version SET version_num = '0001'"))
    again = Store(url)
    assert again.participant(person.code) == person
    with again.database.reading() as connection:  # the tables are those of the code
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, metadata) == []
    again.close()


def test_a_place_that_is_no_database_or_of_a_newer_version_is_explained(tmp_path):
    (tmp_path / "notes.db").write_text("these are notes " * 100)
    with pytest.raises(ConnectionError, match="not a database"):
        Store(f"sqlite:///{tmp_path / 'notes.db'}")
    with pytest.raises(ConnectionError, match="could not open"):
        Store(f"sqlite:///{tmp_path / 'nowhere' / 'study.db'}")
    with pytest.raises(ValueError, match="sqlite:///FILE"):
        Store("mysql://host/name")
    newer = Store(f"sqlite:///{tmp_path / 'newer.db'}")
    with newer.database.writing() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    newer.close()
    with pytest.raises(ValueError, match="another one"):
        Store(f"sqlite:///{tmp_path / 'newer.db'}")
