"""A question with a picture that fails is replaced before anybody sees it, and a replay knows of it."""

from __future__ import annotations

import zlib
from contextlib import closing
from types import SimpleNamespace

import pytest

from edpbrl_gym.cli import main
from edpbrl_gym.comparisons.question_files import write_questions
from edpbrl_gym.likelihood import Response
from edpbrl_gym.rendering import NotDrawn
from edpbrl_gym.study import replacing
from edpbrl_gym.study.audit import audit
from edpbrl_gym.study.pictures import Pictures
from edpbrl_gym.study.records import NotReadyError
from edpbrl_gym.study.replacing import REPLACED
from edpbrl_gym.vocabulary import load_vocabulary
from tests.helpers.oracle_studies import Server
from tests.helpers.small_vocabulary import write_embedded
from tests.helpers.studies import SMALL, write_study

BEGIN = SMALL[: SMALL.index("[[arms]]")]


class Faulty:
    """Draws what ``fault`` says nothing about: it gives None, an error, or True where the picture is to be withheld."""

    batch_size = 4

    def __init__(self, fault):
        self.fault, self.calls = fault, []

    def render(self, texts, seed, each):
        for place, text in enumerate(texts):
            self.calls.append(text)
            fault = self.fault(text)
            if isinstance(fault, Exception) and not isinstance(fault, NotDrawn):
                raise fault
            each(place, fault if isinstance(fault, NotDrawn) else SimpleNamespace(png=b"PNG", flagged=bool(fault)))

    def close(self):
        pass


def some(text):
    return zlib.crc32(text.encode()) % 12 == 0


def fails(text):
    return NotDrawn("too odd") if some(text) else None


def withheld(text):
    return some(text)


@pytest.fixture
def begin(tmp_path):
    """Start a server of a study in a folder, again on the same database too, with a renderer of its own."""
    running = []

    def start(fault, text=SMALL, name="s", prepare=None):
        folder = tmp_path / name
        if not folder.exists():
            write_study(folder, text)
            if prepare:
                prepare(folder)
        pictures = Pictures(Faulty(fault), seed=0)
        server = Server(folder, pictures=pictures)
        running.append((server, pictures))
        return server

    yield start
    for server, pictures in running:
        server.close()
        pictures.close()


def ask(server, person):
    """The next question, after its pictures."""
    while True:
        try:
            return server.queue.next_question(person)
        except NotReadyError:
            pass


def play(server, name, most=100):
    """The questions that a person sees, some of them again after Undo."""
    person, seen = server.arrive(name), []
    while len(seen) < most and (question := ask(server, person)) is not None:
        seen.append(question)
        server.queue.answer(person, question.key, server.liked(question))
        if len(seen) in (3, 6):
            ask(server, person)
            server.queue.undo(person, question.key)
    return person, seen


def replaced(server, person):
    return [one["detail"] for one in server.store.events(person.id) if one["kind"] == REPLACED]


@pytest.mark.parametrize("fault", [fails, withheld])
def test_nobody_sees_a_question_with_a_picture_that_fails_and_replays_are_the_same(begin, fault, caplog):
    server, count = begin(fault), 0
    for name in ("a", "b", "c"):  # of both arms
        person, seen = play(server, name)
        record = server.store.record(person.id)
        assert not any(some(text) for question in seen for text in question.texts)
        assert len(record.live) == 10 and all(answer is not None for _, answer in record.live)
        assert all(answer.response.kind == "best" for _, answer in record.live)
        found = audit(name, record, server.queue.materials)
        assert found.different == 0, [one.differences for one in found.questions]
        assert [one.replaced for one in found.questions if one.replaced] == [
            one["why"] for one in replaced(server, person)
        ]
        count += len(replaced(server, person))
    assert count > 3 and "it has no picture" in caplog.text
    again = begin(fault)  # another server on the database draws nothing that failed
    play(again, "d")
    known = {text for name in ("a", "b", "c") for one in replaced(server, server.arrive(name)) for text in one["why"]}
    asked = again.queue.pictures._renderer.calls
    assert known and not known & set(asked) - {text for text in asked if fault(text) is None}


def test_a_new_server_asks_on_after_replaced_questions(begin):
    whole, (_, expected) = begin(fails, name="whole"), ([], [])
    for name in ("a", "b", "c"):
        expected = [one.texts for one in play(whole, name)[1]]
        first = begin(fails, name="parts")
        person, seen = play(first, name, 7)
        second = begin(fails, name="parts")
        while (question := ask(second, person)) is not None:
            seen.append(question)
            second.queue.answer(person, question.key, second.liked(question))
        assert [one.texts for one in seen] == expected


def test_a_fixed_design_goes_on_with_its_next_question_while_it_has_some(begin):
    lacking = []

    def prepare(folder):
        words = load_vocabulary(folder / "words")
        asked = [
            (i, 0, [words.prompt([(i + lane + step) % 8 for step in range(3)]) for lane in range(3)]) for i in range(8)
        ]
        write_questions(folder / "q.csv", asked)
        lacking.extend(asked[i][2][1 + (i == 5)] for i in (1, 2, 5))

    text = BEGIN.replace("attention = 1", "attention = 0").replace("repeated = 2", "repeated = 0")
    text = (
        text.replace("questions = 1", "questions = 0") + '[[arms]]\nname = "f"\nplanner = "questions"\nfile = "q.csv"\n'
    )
    server = begin(lambda text: NotDrawn("no") if text in lacking[-1:] + lacking[:1] else None, text, prepare=prepare)
    person, seen = play(server, "a")
    order = server.store.record(person.id)
    kinds = [answer.response.kind for _, answer in order.live]
    assert len(order.live) == 6 and len(replaced(server, person)) == 2
    assert kinds.count("skip") == sum(any(map(server.queue.pictures.refused, one.texts)) for one, _ in order.live) > 0
    assert audit("a", order, server.queue.materials).different == 0


def test_what_fails_at_random_is_tried_again_and_ends(begin):
    calls = iter(range(10**6))
    server = begin(lambda text: NotDrawn("busy") if zlib.crc32(b"%d" % next(calls)) % 10 < 3 else None)
    for name in ("a", "b", "c"):
        person, _ = play(server, name)
        record = server.store.record(person.id)
        assert [answer.response.kind for _, answer in record.live].count("best") == 10
        assert audit(name, record, server.queue.materials).different == 0


def test_where_all_fail_the_researcher_is_told_and_nothing_goes_on_forever(begin, caplog):
    server = begin(lambda text: NotDrawn("out of paper"))
    people = [play(server, name)[0] for name in ("a", "b", "c", "d")]
    assert [one.levelname for one in caplog.records if "stored as skips" in one.message] == ["ERROR"]
    assert "out of paper" in caplog.text
    for person in people:
        record = server.store.record(person.id)
        assert {answer.response.kind for question, answer in record.live if question.expected is None} == {"skip"}
        assert audit("x", record, server.queue.materials).different == 0
    assert not replaced(server, people[-1])  # there is no use in it
    asked = sum(len(server.store.record(person.id).history) for person in people)
    assert len(server.queue.pictures._renderer.calls) <= 2 * 3 * asked


def test_a_renderer_out_of_reach_is_waited_for_and_leaves_nothing_out(begin, monkeypatch):
    broken = [ConnectionError("no route")]
    server = begin(lambda text: broken[0] if broken else None)
    person = server.arrive("a")
    for _ in range(3):
        with pytest.raises(NotReadyError):
            server.queue.next_question(person)
    assert server.store.history(person.id)[0][0].shown_at is None
    broken.clear()
    assert ask(server, person) is not None and not replaced(server, person)
    server.queue.answer(person, ask(server, person).key, Response.best(0))
    broken.append(ConnectionError("no route"))
    monkeypatch.setattr(replacing, "_PATIENCE", -1.0)  # not without end
    server.queue.pictures._futures.clear()
    question = server.queue.next_question(person)
    assert question is not None and question.shown_at is None and not replaced(server, person)


@pytest.mark.needs("images")
def test_a_replay_says_what_was_replaced(tmp_path, capsys):
    from edpbrl_gym.study.config_reading import read_config
    from edpbrl_gym.study.materials import Materials
    from edpbrl_gym.study.queue import StudyQueue
    from edpbrl_gym.study.store import Store

    words, encoder = write_embedded(tmp_path)
    text = SMALL.replace('vocabulary = "words"', f'vocabulary = "{words}"\nencoder = "{encoder}"')
    folder = write_study(tmp_path / "s", text)
    config, pictures = read_config(folder), Pictures(Faulty(fails), seed=0)
    store = Store(config.database_url, config=config.fingerprint)
    with (
        closing(pictures),
        closing(store),
        closing(StudyQueue(config, store, Materials(config), pictures=pictures)) as queue,
    ):
        server = SimpleNamespace(queue=queue, store=store)
        for name in ("a", "b", "c"):
            person = queue.consent(queue.enrol({"PROLIFIC_PID": name}))
            while (question := ask(server, person)) is not None:
                queue.answer(person, question.key, Response.best(0))
            if replaced(server, person):
                break
        count = len(replaced(server, person))
    assert count and main(["study", "replay", str(folder), name]) == 0
    printed = capsys.readouterr().out
    assert printed.count("replaced before anybody saw it") == count and "(too odd)" in printed
    assert "DIFFERS" not in printed and "are asked again by the same arm" in printed
