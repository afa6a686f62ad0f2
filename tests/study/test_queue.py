"""The queue: every planner asks through it, and a new server goes on where the old one was killed."""

from __future__ import annotations

import dataclasses
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from edpbrl_gym.likelihood import Response
from edpbrl_gym.planners import AdaptivePlanner
from edpbrl_gym.study.config_reading import read_config
from edpbrl_gym.study.materials import Materials
from edpbrl_gym.study.queue import NotAskingError, StudyQueue
from edpbrl_gym.study.records import StruckQuestionError
from edpbrl_gym.study.schedule import Slot, schedule
from edpbrl_gym.study.store import Store
from tests.helpers.encoders import CountingEncoder
from tests.helpers.studies import SMALL, write_study

THETA = np.linspace(-3, 3, 8)


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    return read_config(write_study(tmp_path_factory.mktemp("study") / "small"))


@pytest.fixture
def sqlite(tmp_path):
    return f"sqlite:///{tmp_path / 'study.db'}"


@pytest.fixture
def server(request):
    """Start servers; those of a test are stopped after it."""
    started = []

    def start(config, url):
        store = Store(url, config=config.fingerprint)
        queue = StudyQueue(config, store, Materials(config, encoder=CountingEncoder()))
        started.append(queue)
        return queue

    yield start
    for queue in started:
        queue.close()
        queue.store.close()


def arrive(queue, **external):
    return queue.consent(queue.enrol(external))


def liked(queue, question):
    """The answer of a person with the taste THETA; attention checks are passed."""
    if question.kind == "attention":
        return Response.best(question.expected)
    values = queue.materials.encoder.encode(question.texts) @ THETA
    return Response.best(int(values.argmax()))


def answer_all(queue, person, most=100):
    asked = []
    while len(asked) < most and (question := queue.next_question(person)) is not None:
        queue.answer(person, question.key, liked(queue, question))
        asked.append(question)
    return asked


def seen(questions):
    return [(one.kind, one.texts, one.positions, one.expected) for one in questions]


def test_a_participant_answers_all_questions(config, sqlite, server):
    queue = server(config, sqlite)
    person = arrive(queue, PROLIFIC_PID="p")
    asked = answer_all(queue, person)
    kinds = [question.kind for question in asked]
    assert kinds[0] == "practice" and kinds.count("normal") == 6
    assert kinds.count("attention") == 1 and kinds.count("repeat") == 2 and len(asked) == 10
    assert queue.next_question(person) is None
    assert queue.store.participant(person.code).status == "finished"
    for question in asked:
        assert len(set(question.texts)) == 3 and sorted(question.positions) == [0, 1, 2]
        if question.kind == "repeat":
            [first] = [one for one in asked if one.id == question.repeat_of]
            assert first.kind == "normal" and first.texts == question.texts and first.positions != question.positions
    assert all(question.shown_at for question, _ in queue.store.history(person.id))


def test_arms_are_assigned_in_blocks_and_ask_differently(config, sqlite, server):
    queue = server(config, sqlite)
    arms = [queue.enrol({"id": str(number)}).arm for number in range(9)]
    for block in range(3):
        assert sorted(arms[3 * block : 3 * block + 3]) == ["adaptive", "random", "random"]


@pytest.mark.parametrize("after", [0, 1, 4, 7])
def test_a_new_server_asks_what_the_old_one_would_have(config, url, sqlite, server, after):
    """Both arms; the second database, and the second server of the first one, see the same questions."""
    reference, first = server(config, sqlite.replace("study.db", "reference.db")), server(config, url)
    for name in ("a", "b", "c"):
        expected = seen(answer_all(reference, arrive(reference, id=name)))
        person = arrive(first, id=name)
        got = answer_all(first, person, after)
        other = server(config, url)  # nothing but the database is shared with the first server
        again = other.enrol({"id": name})
        assert again.code == person.code and again.arm == person.arm
        assert seen(got + answer_all(other, again)) == expected


def test_a_new_server_chooses_the_next_question_only(config, sqlite, server, monkeypatch):
    first = server(config, sqlite)
    people = [arrive(first, id=str(number)) for number in range(3)]
    for person in people:
        answer_all(first, person, 5)
        assert first.next_question(person) is not None
    asked = []
    ask = AdaptivePlanner.ask
    monkeypatch.setattr(AdaptivePlanner, "ask", lambda planner, given: asked.append(1) or ask(planner, given))
    other = server(config, sqlite)
    for person in people:
        while (question := other.next_question(person)) is not None and question.kind != "normal":
            other.answer(person, question.key, liked(other, question))
        other.answer(person, question.key, liked(other, question))
        while other.next_question(person).kind != "normal":
            other.answer(person, other.next_question(person).key, liked(other, other.next_question(person)))
    other.close()
    assert len(asked) == other.materials.vocabulary.horizon  # of the one adaptive participant, one question


def test_a_question_that_waits_is_shown_while_its_planner_works(config, sqlite, server):
    queue = server(config, sqlite)
    person = arrive(queue, id="x")
    key = queue.next_question(person).key
    with queue._seat(person).lock, ThreadPoolExecutor(1) as pool:
        assert pool.submit(queue.next_question, person).result(timeout=30).key == key


def test_two_servers_share_a_participant(config, url, server):
    """A load balancer may send every request to another server."""
    queues = [server(config, url), server(config, url)]
    person = arrive(queues[0], id="x")
    asked = []
    for turn in range(100):
        question = queues[turn % 2].next_question(person)
        if question is None:
            break
        assert queues[(turn + 1) % 2].next_question(person).key == question.key
        queues[turn % 2].answer(person, question.key, liked(queues[0], question))
        asked.append(question)
    alone = server(config, url)
    assert len(asked) == 10 and len({question.number for question in asked}) == 10
    assert alone.next_question(person) is None


def test_undo_goes_back_and_on_again(config, sqlite, server):
    queue = server(config, sqlite)
    for name in ("a", "b", "c"):
        person = arrive(queue, id=name)
        asked = answer_all(queue, person, 5)
        later = queue.next_question(person)
        for question in reversed(asked[2:]):  # each copy that is answered again gets a new key
            back = queue.undo(person, question.key)
            assert back.number == question.number and queue.next_question(person).key == back.key
        with pytest.raises(StruckQuestionError):
            queue.answer(person, later.key, Response.best(0))
        again = answer_all(queue, person)
        assert seen(again[:3]) == seen(asked[2:5]) and len(again) == 8
        assert seen([again[3]]) == seen([later])
        last = queue.undo(person, again[-1].key)  # from the last page
        assert queue.store.participant(person.code).status == "asking"
        assert queue.next_question(person).key == last.key
    assert {participant.arm for participant in queue.store.participants()} == {"adaptive", "random"}


def test_another_answer_after_undo_changes_what_the_adaptive_planner_asks(config, sqlite, server):
    queue = server(config, sqlite)
    people = [arrive(queue, id=str(number)) for number in range(3)]
    [person] = [one for one in people if one.arm == "adaptive"]
    asked = answer_all(queue, person, 4)
    before = queue.next_question(person)
    back = queue.undo(person, asked[-1].key)
    queue.answer(person, back.key, Response.best((liked(queue, back).order[0] + 1) % 3))
    after = queue.next_question(person)
    fresh = server(config, sqlite).next_question(person)
    assert fresh.key == after.key
    if asked[-1].kind == before.kind == "normal":
        assert after.texts != before.texts


def test_a_double_click_answers_once(config, sqlite, server):
    queue = server(config, sqlite)
    person = arrive(queue, id="x")
    question = queue.next_question(person)
    with ThreadPoolExecutor(6) as pool:
        receipts = list(
            pool.map(lambda option: queue.answer(person, question.key, Response.best(option % 3)), range(6))
        )
    assert sum(receipt.first for receipt in receipts) == 1
    assert queue.next_question(person).number == 1


def test_undo_in_one_tab_while_another_goes_on(config, url, server):
    """Whatever the order, both tabs end at one question that waits, and no error is seen."""
    queues = [server(config, url), server(config, url)]
    person = arrive(queues[0], id="x")
    for turn in range(12):
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


def test_many_people_at_once(config, url, server):
    queue = server(config, url)

    def take_part(name):
        return len(answer_all(queue, arrive(queue, id=name)))

    with ThreadPoolExecutor(6) as pool:
        assert list(pool.map(take_part, map(str, range(12)))) == [10] * 12
    assert queue.store.counts()["participants"] == 12


def test_no_question_before_consent_and_none_after_a_failed_check(tmp_path, server):
    text = SMALL.replace(
        "[checks]", 'attempts = 2\n[[practice.comprehension]]\ntext = "?"\nchoices = ["a", "b"]\ncorrect = 2\n[checks]'
    )
    queue = server(read_config(write_study(tmp_path / "s", text)), f"sqlite:///{tmp_path / 'study.db'}")
    person = queue.enrol({"id": "x"})
    with pytest.raises(NotAskingError, match="consent"):
        queue.next_question(person)
    queue.consent(person)
    for _ in range(3):
        assert not queue.check_comprehension(person, [0], 0)  # sent three times: one attempt
    with pytest.raises(ValueError, match="event 1"):
        queue.check_comprehension(person, [1], 2)
    assert queue.check_comprehension(person, [1], 1)
    assert queue.next_question(person) is not None
    other = arrive(queue, id="y")
    assert not queue.check_comprehension(other, [0], 0) and not queue.check_comprehension(other, [], 1)
    for refused in (queue.next_question, lambda one: queue.check_comprehension(one, [1], 2)):
        with pytest.raises(NotAskingError, match="comprehension"):
            refused(other)


def test_answers_of_another_format_are_refused(config, sqlite, server):
    queue = server(config, sqlite)
    person = arrive(queue, id="x")
    question = queue.next_question(person)
    with pytest.raises(ValueError, match="best or tie or skip"):
        queue.answer(person, question.key, Response.ranking([0, 1, 2]))
    assert queue.skip(person, question.key).first
    question = queue.next_question(person)
    assert queue.answer(person, question.key, Response.tie()).first
    assert len(answer_all(queue, person)) == 8
    strict = dataclasses.replace(config, questions=dataclasses.replace(config.questions, cant_tell=False, undo=False))
    other = server(strict, sqlite.replace("study.db", "other.db"))
    person = arrive(other, id="x")
    question = other.next_question(person)
    with pytest.raises(ValueError, match="best, got skip"):
        other.skip(person, question.key)
    with pytest.raises(NotAskingError, match="undo"):
        other.undo(person, question.key)


def test_a_study_goes_on_only_with_the_questions_it_began_with(config, sqlite, server):
    server(config, sqlite)
    server(dataclasses.replace(config, title="Another title"), sqlite)
    with pytest.raises(ValueError, match="restore them"):
        server(dataclasses.replace(config, seed=99), sqlite)


def test_the_stopping_rule_ends_the_questions(tmp_path, server):
    text = SMALL.replace("number = 6", "number = 40\n[questions.stop_when_sure]\nminimum = 6\ngain = 0.5")
    queue = server(read_config(write_study(tmp_path / "s", text)), f"sqlite:///{tmp_path / 'study.db'}")
    person = arrive(queue, id="x")
    assert len(answer_all(queue, person)) == 10  # a gain of one half is never predicted
    assert [event["kind"] for event in queue.store.events(person.id)].count("sure") == 1
    assert queue.next_question(person) is None


@pytest.mark.parametrize(
    ("feedback", "format", "response"),
    [
        ("truncated", "ranking", Response.ranking([2, 0, 1])),
        ("state", "best_worst", Response.best_worst(1, 2)),
        ("prompt", "partial", Response.partial([1])),
    ],
)
def test_every_feedback_and_format_is_asked_and_resumed(tmp_path, server, feedback, format, response):
    text = SMALL.replace("number = 6", f'number = 6\nfeedback = "{feedback}"\nformat = "{format}"')
    config = read_config(write_study(tmp_path / "s", text))
    url = f"sqlite:///{tmp_path / 'study.db'}"
    queue = server(config, url)
    people = [arrive(queue, id=str(number)) for number in range(3)]
    for person in people:
        for _ in range(6):
            queue.answer(person, queue.next_question(person).key, response)
    other = server(config, url)
    for person in people:
        pending = queue.next_question(person)
        assert other.next_question(person).key == pending.key
        for _ in range(4):
            other.answer(person, other.next_question(person).key, response)
        assert other.next_question(person) is None


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
    for name in map(str, range(6)):
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
    from edpbrl_gym.session.stopping import StoppingRule

    rule = StoppingRule(target=0.9, gain=0.01, lookahead=30, minimum=12)
    long = with_tests(config, 5, number=40, stopping=rule)
    for number in range(40):
        slots = schedule(long, number)
        places = [place for place, slot in enumerate(slots) if slot.kind == "test"]
        before = [sum(slot.kind == "normal" for slot in slots[:place]) for place in places]
        assert len(places) == 5 and 6 <= min(before) and max(before) <= 12
        others = [slot for slot in slots if slot.kind != "test"]
        assert others == schedule(dataclasses.replace(long, checks=config.checks), number)


def test_a_study_without_test_questions_keeps_its_fingerprint(config):
    """A study that began before there were test questions goes on; with them it asks something else."""
    assert with_tests(config, 0).asking_fingerprint == config.asking_fingerprint
    assert with_tests(config, 1).asking_fingerprint != config.asking_fingerprint
    assert "test" not in config._asking()["checks"]


def test_planning_ahead_gives_way_to_whoever_waits_for_a_question(config, sqlite, server):
    """While one participant's question is chosen, no planner works ahead, and then it does without harm."""
    queue = server(config, sqlite)
    people = [arrive(queue, id=str(number)) for number in range(3)]
    with queue._turns.turn(0):  # somebody's question is being chosen
        thoughts = [threading.Thread(target=queue._think, args=(person,)) for person in people]
        for thought in thoughts:
            thought.start()
        assert all(thought.is_alive() for thought in thoughts)
    for thought in thoughts:
        thought.join(60)
    with queue._seat(people[0]).lock:  # the next question is being chosen in another thread: nothing to wait for
        thought = threading.Thread(target=queue._think, args=(people[0],))
        thought.start()
        thought.join(60)
        assert not thought.is_alive()
    assert len(answer_all(queue, people[0])) == 10
