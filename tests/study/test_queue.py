"""The queue: every planner asks through it, and a new server goes on where the old one was killed."""

from __future__ import annotations

import dataclasses
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from edpbrl_gym.likelihood import Response
from edpbrl_gym.session.stopping import StoppingRule
from edpbrl_gym.study.config_reading import read_config
from edpbrl_gym.study.materials import PriorityLock
from edpbrl_gym.study.records import HistoryChangedError
from edpbrl_gym.study.schedule import Slot, schedule
from tests.helpers.oracle_studies import THETA, liked
from tests.helpers.studies import SMALL, write_study


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    return read_config(write_study(tmp_path_factory.mktemp("study") / "small"))


@pytest.fixture
def sqlite(tmp_path):
    return f"sqlite:///{tmp_path / 'study.db'}"


@pytest.fixture
def server(serve):
    """Start the queue of a server."""
    return lambda config, url: serve(config, url).queue


def arrive(queue, **external):
    return queue.consent(queue.enrol(external))


def answer_all(queue, person, most=100, response=None):
    asked = []
    while len(asked) < most and (question := queue.next_question(person)) is not None:
        queue.answer(person, question.key, response or liked(queue, question))
        asked.append(question)
    return asked


def seen(questions):
    return [(one.kind, one.texts, one.positions, one.expected) for one in questions]


@pytest.mark.parametrize(
    ("url", "feedback", "format", "response", "after"),
    [
        ("sqlite", "prompt", "best", None, 1),
        ("postgresql", "prompt", "best", None, 6),
        ("sqlite", "truncated", "ranking", Response.ranking([2, 0, 1]), 6),
        ("postgresql", "state", "best_worst", Response.best_worst(1, 2), 6),
        ("sqlite", "prompt", "partial", Response.partial([1]), 6),
    ],
    indirect=["url"],
)
def test_a_new_server_asks_what_the_old_one_would(tmp_path, url, sqlite, server, feedback, format, response, after):
    """Both arms; the second database, and the second server of the first one, see the same questions."""
    text = SMALL.replace("number = 6", f'number = 6\nfeedback = "{feedback}"\nformat = "{format}"')
    config = read_config(write_study(tmp_path / "s", text))
    reference, first = server(config, sqlite.replace("study.db", "reference.db")), server(config, url)
    for name in ("a", "b", "c"):
        expected = seen(answer_all(reference, arrive(reference, id=name), response=response))
        person = arrive(first, id=name)
        got = answer_all(first, person, after, response)
        other = server(config, url)  # nothing but the database is shared with the first server
        again = other.enrol({"id": name})
        assert again.code == person.code and again.arm == person.arm
        assert seen(got + answer_all(other, again, response=response)) == expected


def test_a_question_that_waits_is_shown_while_its_planner_works(config, sqlite, server):
    queue = server(config, sqlite)
    person = arrive(queue, id="x")
    key = queue.next_question(person).key
    with queue._visits.of(person).lock, ThreadPoolExecutor(1) as pool:
        assert pool.submit(queue.next_question, person).result(timeout=30).key == key


def test_a_busy_server_has_one_thing_to_do_for_each_person(config, sqlite, server):
    """Pages are loaded again and again while nothing can be planned: what waits does not pile up."""
    queue = server(dataclasses.replace(config, arms=config.arms[:1]), sqlite)
    people = [arrive(queue, id=name) for name in ("x", "y")]
    questions = []
    for person in people:
        while (question := queue.next_question(person)).kind != "normal":
            answer_all(queue, person, 1)
        questions.append(question)
    with queue.planning.turn(queue._visits.of(people[0]), 0):
        assert {queue.next_question(people[number % 2]).key for number in range(60)} == {one.key for one in questions}
        assert all(pool._work_queue.qsize() <= len(people) for pool in (queue._pool, queue._ahead))
    assert all(answer_all(queue, person)[-1].number == 9 for person in people)  # then it goes on


def test_undo_goes_back_and_on_again(config, sqlite, server):
    queue = server(config, sqlite)
    for name in ("a", "b", "c"):
        person = arrive(queue, id=name)
        asked = answer_all(queue, person, 5)
        later = queue.next_question(person)
        for question in reversed(asked[2:]):  # each copy that is answered again gets a new key
            back = queue.undo(person, question.key)
            assert back.number == question.number and queue.next_question(person).key == back.key
        with pytest.raises(HistoryChangedError):
            queue.answer(person, later.key, Response.best(0))
        again = answer_all(queue, person)
        assert seen(again[:3]) == seen(asked[2:5]) and len(again) == 8
        assert seen([again[3]]) == seen([later])
        last = queue.undo(person, again[-1].key)  # from the last page
        assert queue.store.participant(person.code).status == "asking"
        assert queue.next_question(person).key == last.key
    assert {participant.arm for participant in queue.store.participants()} == {"adaptive", "random"}


def test_adaptive_questions_change_with_an_answer_that_was_taken_back(config, sqlite, server):
    queue = server(dataclasses.replace(config, arms=config.arms[:1]), sqlite)
    person, changed = arrive(queue, id="x"), 0
    while (question := queue.next_question(person)) is not None:
        answer = liked(queue, question)
        queue.answer(person, question.key, answer)
        following = queue.next_question(person)
        back = queue.undo(person, question.key)
        queue.answer(person, back.key, Response.best((answer.first + 1) % 3))
        again = queue.next_question(person)
        changed += again is not None and again.texts != following.texts
    assert changed > 0


def test_undo_in_one_tab_while_another_goes_on(config, url, server):
    """Whatever the order, both tabs end at one question that waits, and no error is seen."""
    queues = [server(config, url), server(config, url)]
    person = arrive(queues[0], id="x")
    for turn in range(6):
        question = queues[0].next_question(person)
        queues[0].answer(person, question.key, liked(queues[0], question))
        with ThreadPoolExecutor(2) as pool:
            back = pool.submit(queues[turn % 2].undo, person, question.key)
            on = pool.submit(queues[1 - turn % 2].next_question, person)
            assert on.result().number in (question.number, question.number + 1)
            assert back.result().number == question.number
        waiting = queues[0].next_question(person)
        assert waiting.key == queues[1].next_question(person).key and waiting.number == question.number
        if turn % 2:
            queues[0].answer(person, waiting.key, liked(queues[0], waiting))
    numbers = [question.number for question, _ in queues[0].store.history(person.id)]
    assert numbers == list(range(len(numbers)))


def test_a_study_goes_on_only_with_the_questions_it_began_with(config, sqlite, server):
    server(config, sqlite)
    server(dataclasses.replace(config, title="Another title"), sqlite)
    assert "test" not in config._asking()["checks"]  # one that began before there were test questions goes on
    with pytest.raises(ValueError, match="restore them"):
        server(dataclasses.replace(config, seed=99), sqlite)


def test_the_stopping_rule_ends_the_questions(tmp_path, server):
    text = SMALL.replace("number = 6", "number = 40\n[questions.stop_when_sure]\nminimum = 6\ngain = 0.5")
    queue = server(read_config(write_study(tmp_path / "s", text)), f"sqlite:///{tmp_path / 'study.db'}")
    person = arrive(queue, id="x")
    assert len(answer_all(queue, person)) == 10  # a gain of one half is never predicted
    assert [event["kind"] for event in queue.store.events(person.id)].count("sure") == 1
    assert queue.next_question(person) is None


def test_schedules_repeat_earlier_questions_later(config):
    questions = dataclasses.replace(config.questions, number=30)
    long = dataclasses.replace(
        config, questions=questions, checks=dataclasses.replace(config.checks, attention=2, repeated=3)
    )
    orders = set()
    for number in range(40):
        slots = schedule(long, number)
        orders.add(tuple(slots))
        assert slots == schedule(long, number) and slots[0] == Slot("practice")
        assert [slot.index for slot in slots if slot.kind == "normal"] == list(range(30))
        assert sum(slot.kind == "attention" for slot in slots) == 2
        repeats = [(place, slot.index) for place, slot in enumerate(slots) if slot.kind == "repeat"]
        assert len({index for _, index in repeats}) == 3
        for place, index in repeats:
            before = [slot.index for slot in slots[:place] if slot.kind == "normal"]
            assert index in before and len(before) - index > 10
    assert len(orders) > 30


def with_tests(config, count, **questions):
    checks = dataclasses.replace(config.checks, test=count)
    return dataclasses.replace(config, checks=checks, questions=dataclasses.replace(config.questions, **questions))


def test_everybody_is_asked_the_same_test_questions_and_nobody_learns_from_them(config, sqlite, server):
    """In both arms; without them, the other questions are the same: what is answered to them teaches nothing."""
    plain, tested = server(config, sqlite.replace("study.db", "plain.db")), server(with_tests(config, 3), sqlite)
    found, orders, positions = [], set(), set()
    for name in map(str, range(4)):
        person = arrive(tested, id=name)
        asked = []
        while (question := tested.next_question(person)) is not None:
            # the worst option of a test question, the best of others
            values = tested.materials.encoder.encode(question.texts) @ THETA
            other = Response.best(int(values.argmin()))
            tested.answer(person, question.key, other if question.kind == "test" else liked(tested, question))
            asked.append(question)
        tests = [one for one in asked if one.kind == "test"]
        assert len(tests) == 3 and len(asked) == 13 and all(one.expected is one.repeat_of is None for one in tests)
        found.append(sorted(one.texts for one in tests))
        orders.add(tuple(one.texts[0] for one in tests))
        positions |= {tuple(one.positions) for one in tests}
        before = [sum(one.kind == "normal" for one in asked[: one.number]) for one in tests]
        assert min(before) >= 3
        others = [(one.kind, one.texts) for one in asked if one.kind in ("normal", "repeat")]
        alone = answer_all(plain, arrive(plain, id=name))
        assert others == [(one.kind, one.texts) for one in alone if one.kind in ("normal", "repeat")]
    assert all(texts == found[0] for texts in found) and len(orders) > 1 and len(positions) > 1
    assert {one.arm for one in tested.store.participants()} == {"adaptive", "random"}


def test_test_questions_come_before_what_a_stopping_rule_may_save(config):
    rule = StoppingRule(target=0.9, gain=0.01, lookahead=30, minimum=12)
    long = with_tests(config, 5, number=40, stopping=rule)
    for number in range(20):
        slots = schedule(long, number)
        places = [place for place, slot in enumerate(slots) if slot.kind == "test"]
        before = [sum(slot.kind == "normal" for slot in slots[:place]) for place in places]
        assert len(places) == 5 and 6 <= min(before) and max(before) <= 12
        others = [slot for slot in slots if slot.kind != "test"]
        assert others == schedule(dataclasses.replace(long, checks=config.checks), number)


def test_the_lock_of_planners_goes_to_what_people_wait_for_first():
    lock, got, inside = PriorityLock(), [], []

    def take(number, name):
        with lock.held(number):
            inside.append(name)
            assert len(inside) == 1
            got.append(name)
            inside.remove(name)

    threads = []
    with lock.held(0):
        for number, name in ((2, "last"), (1, "think"), (0, "first"), (0, "second")):
            threads.append(threading.Thread(target=take, args=(number, name)))
            threads[-1].start()
            while len(lock._waiting) < len(threads):
                time.sleep(0.001)
        assert got == []
    for thread in threads:
        thread.join(10)
    assert got == ["first", "second", "think", "last"]
    with pytest.raises(ZeroDivisionError), lock.held(0):
        _ = 1 / 0
    with lock.held(5):  # an error gives the lock back
        pass
