"""A database that is no longer where it was: nothing is acknowledged any more, and what was is not touched."""

from __future__ import annotations

import os
import shutil
import sqlite3
from functools import partial

import pytest
from sqlalchemy.exc import DBAPIError

from edpbrl_gym.likelihood import Response
from edpbrl_gym.study.database import DatabaseGoneError
from edpbrl_gym.study.store import Store
from tests.helpers.studies import ask


def begun(place, *, events=0):
    """A study with an answer, and so many events that it is as large as a real one."""
    place.parent.mkdir(parents=True, exist_ok=True)
    store = Store(f"sqlite:///{place}", config="c" * 64)
    person = store.enrol({"id": "x"}, lambda number: "a")
    store.answer(person.id, ask(store, person.id, 0).key, Response.best(0))
    for _ in range(events):
        store.add_event(person.id, "note", {"text": "x" * 500})
    store.database.empty_log()
    return store, person


@pytest.fixture
def study(tmp_path):
    """A study in a folder of its own, and a question that waits for an answer."""
    store, person = begun(tmp_path / "study" / "study.db")
    question = ask(store, person.id, 1)
    answer = lambda: store.answer(person.id, question.key, Response.best(1))  # noqa: E731
    yield tmp_path / "study" / "study.db", answer, store, person
    store.close()


def truncate(place):
    with place.open("r+b") as file:
        file.truncate()


def other(place, *, events=0):
    """Another study's database."""
    begun(place.parent.parent / "other" / "other.db", events=events)[0].close()
    return place.parent.parent / "other" / "other.db"


LOSSES = {
    "removed": lambda place: place.unlink(),
    "removed with its log": lambda place: [one.unlink() for one in place.parent.iterdir()],
    "its log removed": lambda place: place.with_name("study.db-wal").unlink(),
    "its folder removed": lambda place: shutil.rmtree(place.parent),
    "replaced by another study": lambda place: os.replace(other(place), place),
    "replaced by a copy": lambda place: os.replace(shutil.copy(place, place.with_name("copy.db")), place),
    "replaced by an empty file": lambda place: [place.unlink(), place.touch()],
    "another study written over it": lambda place: shutil.copyfile(other(place), place),
    "a larger study written over it": lambda place: shutil.copyfile(other(place, events=300), place),
    "emptied": truncate,
}


@pytest.mark.parametrize("lose", LOSSES.values(), ids=LOSSES.keys())
def test_nothing_is_acknowledged_when_the_file_has_vanished(study, lose):
    place, answer, _, _ = study
    lose(place)
    for _ in range(2):
        with pytest.raises(DatabaseGoneError, match=r"Expected the study's answers at .*study\.db, .* were open; put"):
            answer()
    assert not place.exists() or lose is not LOSSES["removed"]  # none is made in its place


def test_nothing_is_acknowledged_when_the_file_vanishes_while_an_answer_is_stored_and_one_put_back_goes_on(study):
    place, answer, store, person = study
    with pytest.raises(DatabaseGoneError), store.database.writing():
        place.rename(place.with_name("old.db"))
    place.with_name("old.db").rename(place)
    assert store.participant(person.code) == person
    assert answer().first and len(store.history(person.id)) == 2


def test_an_older_copy_that_is_written_over_a_study_is_noticed(tmp_path):
    """It has the same secret; a backup is restored when the server is stopped."""
    place = tmp_path / "study.db"
    store, person = begun(place)
    shutil.copy(place, tmp_path / "backup.db")
    for _ in range(300):
        store.add_event(person.id, "note", {"text": "x" * 500})
    store.database.empty_log()
    store.participant(person.code)
    shutil.copyfile(tmp_path / "backup.db", place)
    with pytest.raises(DatabaseGoneError, match="written over"):
        store.add_event(person.id, "note")
    store.close()


def test_what_others_do_with_the_file_is_no_loss(study):
    """Another server, a backup and a vacuum write into it, and beside it."""
    place, answer, store, person = study
    again = Store(f"sqlite:///{place}")
    for _ in range(300):
        again.add_event(person.id, "note", {"text": "x" * 500})
    again.database.empty_log()
    assert store.participant(person.code) == person
    with sqlite3.connect(place.with_name("backup.db")) as copy, sqlite3.connect(place) as one:
        one.backup(copy)
    again.delete(again.enrol({"id": "y"}, lambda number: "a").id)
    again.close()
    with sqlite3.connect(place) as one:
        one.execute("DELETE FROM events WHERE kind = 'note'")
        one.commit()
        one.execute("VACUUM")
        one.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    assert answer().first
    assert [said is not None for _, said in store.history(person.id)] == [True, True]


def test_what_other_threads_store_while_one_looks_at_the_file_is_no_loss(study, monkeypatch):
    """Between the look and its judgement a checkpoint makes the file larger, or more rows are counted."""
    _, _, store, person = study
    happened = []

    def meanwhile(event):
        if event not in happened:
            happened.append(event)
            for _ in range(40):
                store.add_event(person.id, "note", {"text": "x" * 500})
            store.database.empty_log()
            store.database.check()

    stat, connect = os.stat, sqlite3.connect

    def slow_stat(*arguments, **options):
        found = stat(*arguments, **options)
        meanwhile("looked")
        return found

    class Slow(sqlite3.Connection):
        def close(self):
            super().close()
            meanwhile("counted")

    monkeypatch.setattr("edpbrl_gym.study.database.os.stat", slow_stat)
    store.database.check()
    monkeypatch.setattr("edpbrl_gym.study.database.os.stat", stat)
    store.add_event(person.id, "note", {"text": "x" * 5000})
    store.database.empty_log()  # so that the next look counts
    monkeypatch.setattr("edpbrl_gym.study.database.sqlite3.connect", partial(connect, factory=Slow))
    store.database.check()
    assert happened == ["looked", "counted"]
    assert [event["kind"] for event in store.events(person.id)].count("note") == 81


def test_a_relative_place_is_that_of_the_beginning(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    store = Store("sqlite:///study.db")
    (tmp_path / "sub").mkdir()
    monkeypatch.chdir(tmp_path / "sub")
    assert store.enrol({"id": "x"}, lambda number: "a").number == 0
    store.close()
    assert os.listdir(tmp_path / "sub") == []


# PostgreSQL


def drop(server, name):
    import psycopg

    with psycopg.connect(f"{server}/postgres", autocommit=True) as connection:
        connection.execute(f'DROP DATABASE "{name}" WITH (FORCE)')


@pytest.mark.parametrize("then", ["nothing", "an empty one", "another study"])
def test_nothing_is_acknowledged_when_a_database_of_postgresql_was_dropped(postgres, then):
    from tests.helpers.postgres import new_database

    name = f"gone_{then.replace(' ', '_')}"
    url = new_database(postgres, name)
    store = Store(url, config="c" * 64)
    person = store.enrol({"id": "x"}, lambda number: "a")
    question = ask(store, person.id, 0)
    drop(postgres, name)
    if then != "nothing":
        new_database(postgres, name)
    if then == "another study":
        another = Store(url, config="c" * 64)
        same = another.enrol({"id": "x"}, lambda number: "a")
        ask(another, same.id, 0)
        another.close()
    expected = DBAPIError if then == "nothing" else DatabaseGoneError
    for _ in range(2):
        with pytest.raises(expected):
            store.answer(person.id, question.key, Response.best(1))
        with pytest.raises(expected):
            store.history(person.id)
    store.close()
