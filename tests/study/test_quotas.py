"""Places: blocks count people who finish, the last one is given once, and one that is free goes to the next person."""

from __future__ import annotations

import random
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import update

from edpbrl_gym.likelihood import Response
from edpbrl_gym.study.config import Arm
from edpbrl_gym.study.quotas import NoPlaceError, Quotas, idle
from edpbrl_gym.study.recruitment import Recruitment
from edpbrl_gym.study.rows import locked
from edpbrl_gym.study.schedule import arm_of
from edpbrl_gym.study.store import Store
from edpbrl_gym.study.tables import answers, events, participants
from tests.helpers.studies import ask

ARMS = (Arm("a", "random"), Arm("b", "random", 2))
NOW = datetime.now(UTC)


def time(minutes):
    """So many minutes ago, as the database holds it."""
    return (NOW - timedelta(minutes=minutes)).isoformat(timespec="microseconds")


def name_of(place):
    return arm_of(ARMS, place, 7).name


def open_store(url):
    return Store(url, config="c" * 64, document="title = 'x'")


@pytest.fixture
def store(url):
    opened = open_store(url)
    yield opened
    opened.close()


def enrol(store, name, **options):
    return store.consent(store.enrol({"id": str(name)}, name_of, **options).id, "1")


def long_ago(store, participant, minutes):
    """Everything that a participant has done was so many minutes earlier."""
    with store.database.writing() as connection:
        for table, column, whose in (
            (participants, "consented_at", participants.c.id),
            (answers, "answered_at", answers.c.participant),
            (events, "at", events.c.participant),
        ):
            connection.execute(update(table).where(whose == participant).values({column: time(minutes)}))


def test_after_every_block_of_people_who_finish_the_arms_have_their_shares(store):
    rng = random.Random(3)
    waiting, finished = [], Counter()
    for number in range(60):
        waiting.append(enrol(store, number))
        rng.shuffle(waiting)
        while len(waiting) > 4:
            one = waiting.pop()
            end = rng.choice(["finished", "finished", "withdrawn", "failed", "timed_out", "deleted"])
            store.delete(one.id) if end == "deleted" else store.set_status(one.id, end)
            finished[one.arm] += end == "finished"
    for one in waiting:
        store.set_status(one.id, "withdrawn")
    taken = store.places(pilot=False)
    assert len(taken) == sum(finished.values()) and all(arm == name_of(place) for place, arm in taken.items())
    while set(taken) != set(range(len(taken))) or len(taken) % 3:  # those who come now close the gaps
        assert enrol(store, f"more {len(taken)}").place == min(set(range(100)) - set(taken))
        taken = store.places(pilot=False)
    assert Counter(taken.values()) == {"a": len(taken) // 3, "b": 2 * len(taken) // 3}


def test_two_servers_give_the_last_places_once(url):
    stores = [open_store(url) for _ in range(2)]
    quotas = Quotas(people=5)

    def come(number):
        try:
            return stores[number % 2].enrol({"id": str(number)}, name_of, quotas=quotas)
        except NoPlaceError as error:
            return error.why

    with ThreadPoolExecutor(12) as pool:
        found = list(pool.map(come, range(12)))
    people = [one for one in found if one != "full"]
    assert sorted(one.place for one in people) == list(range(5)) and found.count("full") == 7
    assert come(int(people[0].external["id"])) == people[0]  # whoever is in stays in
    stores[0].set_status(people[0].id, "withdrawn")
    assert come(20).place == people[0].place and come(21) == "full"
    assert len(stores[0].participants()) == 6
    for one in stores:
        one.close()


def test_an_arm_that_is_full_is_passed_over_until_all_are(store):
    quotas = Quotas(arms={"a": 1, "b": 4})
    people = [enrol(store, number, quotas=quotas) for number in range(5)]
    assert Counter(one.arm for one in people) == {"a": 1, "b": 4}
    with pytest.raises(NoPlaceError):
        enrol(store, "one more", quotas=quotas)
    store.set_status(next(one.id for one in people if one.arm == "a"), "failed")
    assert enrol(store, "one more", quotas=quotas).arm == "a"
    assert enrol(store, "without a limit", quotas=Quotas(arms={"a": 1, "b": None})).arm == "b"


def test_who_has_done_nothing_for_long_gives_the_place_to_the_next_person(store):
    here, gone, waits, done, left = (enrol(store, number) for number in range(5))
    for person in (here, gone, waits):
        store.set_status(person.id, "asking")
        store.answer(person.id, ask(store, person.id, 0).key, Response.best(0))
    for person in (here, gone):
        ask(store, person.id, 1)
    store.set_status(done.id, "finished")
    for person in (gone, waits, done, left):
        long_ago(store, person.id, 61)
    long_ago(store, here.id, 59)
    assert store.time_out(time(60)) and not store.time_out(time(60))
    statuses = {one.id: one.status for one in store.participants()}
    assert [statuses[one.id] for one in (here, gone, waits, done, left)] == [
        "asking", "timed_out", "asking", "finished", "timed_out",
    ]  # fmt: skip
    assert [enrol(store, f"next {number}").place for number in range(3)] == [gone.place, left.place, 5]
    assert [one["detail"] for one in store.events(gone.id)][-1] == {"from": "asking", "to": "timed_out"}
    assert store.set_status(gone.id, "asking").status == "timed_out"  # for good
    assert len(store.history(gone.id)) == 2 and [one.id for one in store.without_question()] == [waits.id]


def test_a_page_of_questions_after_an_answer_is_waited_for_although_no_question_is_there(store):
    people = [store.set_status(enrol(store, number).id, "asking") for number in range(3)]
    for person in people:
        store.answer(person.id, ask(store, person.id, 0).key, Response.best(0))
    store.add_event(people[1].id, "page", {"page": "load"})
    store.answer(people[2].id, ask(store, people[2].id, 1).key, Response.best(0))
    for person in people:
        long_ago(store, person.id, 61)
    assert not store.time_out(time(60))  # the study is waited for

    def page_waits(happened, answered):
        return answered == 1 and not any(one["kind"] == "page" for one in happened)

    assert store.time_out(time(60), None, page_waits) and not store.time_out(time(60), None, page_waits)
    assert [one.status for one in store.participants()] == ["timed_out", "asking", "asking"]


def test_an_answer_that_is_stored_while_places_are_given_back_keeps_the_place(url, monkeypatch):
    store, other = open_store(url), open_store(url)
    person = store.set_status(enrol(store, 0).id, "asking")
    question = ask(store, person.id, 0)
    long_ago(store, person.id, 61)
    found = threading.Event()

    def seen(*arguments):
        people = idle(*arguments)
        found.set()
        return people

    monkeypatch.setattr("edpbrl_gym.study.store.idle", seen)
    with ThreadPoolExecutor(1) as pool:
        with store.database.writing() as connection:  # the answer is stored after the other server has seen nobody
            locked(connection, person.id)
            late = pool.submit(other.time_out, time(60))
            assert found.wait(30)
            row = {"participant": person.id, "question": question.id, "key": question.key, "answered_at": time(0)}
            more = {"response": Response.best(0).as_json(), "config": "c" * 64, "code_version": "0"}
            connection.execute(answers.insert().values(**row, **more))
        assert not late.result(60)
    assert store.participant(person.code).status == "asking"
    store.close()
    other.close()


def test_people_of_a_pilot_have_places_of_their_own(store):
    first = [enrol(store, f"pilot {number}", pilot=True, quotas=Quotas(people=2)) for number in range(2)]
    with pytest.raises(NoPlaceError):
        enrol(store, "pilot 2", pilot=True, quotas=Quotas(people=2))
    real = [enrol(store, number, quotas=Quotas(people=2)) for number in range(2)]
    assert [one.place for one in first] == [one.place for one in real] == [0, 1]
    assert [one.arm for one in first] == [one.arm for one in real] and len({one.number for one in first + real}) == 4


def test_a_study_is_open_from_its_first_moment_to_before_its_last():
    hour = timedelta(hours=1)
    recruitment = Recruitment(opens=NOW - hour, closes=NOW + hour)
    moments = [NOW - 2 * hour, NOW - hour, NOW, NOW + hour - timedelta(seconds=1), NOW + hour]
    assert [recruitment.closed(moment) for moment in moments] == ["not_open", None, None, None, "closed"]
    assert Recruitment().closed(NOW) is None and Recruitment().idle_since is None
