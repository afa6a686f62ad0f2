"""The opening and the conversation behind the page: answers before there is an encoder, kills, undo, failures."""

import threading

import numpy as np
import pytest

from edpbrl_gym.asking.conversation import Conversation
from edpbrl_gym.asking.ending import words_of_items
from edpbrl_gym.asking.opening import Opening, differing_items
from edpbrl_gym.asking.pool_pictures import PoolPictures
from edpbrl_gym.likelihood import BestOf, Response
from edpbrl_gym.pictures.pool import prompt_pool
from edpbrl_gym.planners import make_planner
from edpbrl_gym.rendering import load_renderer
from edpbrl_gym.session import Session
from edpbrl_gym.study.pictures import Pictures
from edpbrl_gym.vocabulary import Vocabulary, load_vocabulary

K = 3
PAINTED = "tests.helpers.painted:Painted"


class Slow:
    """An encoder of words at random, which is not there before a test says so."""

    name, dimension, fingerprint = "slow", 6, "0" * 64

    def __init__(self):
        self.there = threading.Event()

    def encode(self, texts, *, progress=False):
        assert self.there.wait(60)
        rows = np.array([np.random.default_rng(sum(map(ord, text))).normal(size=6) for text in texts], dtype="f4")
        return rows / np.linalg.norm(rows, axis=1, keepdims=True)


@pytest.fixture
def pool(words):
    return prompt_pool(load_vocabulary(words[0]), 30, 0)


@pytest.fixture
def converse(pool, tmp_path):
    """A conversation about the pool, ended after the test."""
    running = []

    def begin(encoder, **options):
        def make():
            planner = make_planner("adaptive", pool, encoder, feedback="prompt", num_options=K, seed=0)
            shared = {"vocabulary": pool, "encoder": encoder}
            if (tmp_path / "session").exists():
                return Session.resume(tmp_path / "session", planner, exact=False, **shared)
            return Session(planner, num_options=K, feedback="prompt", **shared)

        opening = None if (tmp_path / "session").exists() else Opening(tmp_path / "opening", pool, K, 0)
        options = {"conclude": lambda session, reading: None, **options}
        keep = lambda session: session.save(tmp_path / "session")  # noqa: E731
        running.append(Conversation(BestOf(), make, keep=keep, opening=opening, **options))
        return running[-1]

    yield begin
    for one in running:
        if one.session is not None:
            one.session.close()


def ready(conversation):
    """Wait until it is known how sure the session is."""
    for _ in range(1000):
        if conversation.session is not None and conversation.certainty[0]:
            return
        threading.Event().wait(0.01)
    raise AssertionError("no session")


def test_options_of_the_opening_share_few_phrases_and_do_not_come_again(pool):
    texts = pool.tokens[0]
    shown = set()
    for number in range(6):
        items = differing_items(texts, K, 0, number, shown)
        assert len(set(items)) == K and not shown & set(items)
        phrases = [part for item in items for part in texts[item].split(", ")]
        assert len(set(phrases)) >= len(phrases) - 1
        shown |= set(items)
    assert differing_items(texts, K, 0, 0) == differing_items(texts, K, 0, 0) != differing_items(texts, K, 1, 0)
    assert set(differing_items(texts[:4], 4, 0, 0, {0, 1})) == {0, 1, 2, 3}  # where there are no others


def test_the_opening_is_on_the_disk(pool, tmp_path):
    opening = Opening(tmp_path / "opening", pool, K, 0)
    first = opening.ask()
    opening.tell(Response.best(2))
    second = opening.ask()
    opening.tell(Response.skip())
    opening.ask()
    opening.undo()
    assert opening.ask() == second and opening.answered == 1
    opening.close()  # a kill would leave the same
    again = Opening(tmp_path / "opening", pool, K, 0)
    assert again.questions == [first, second] and again.responses == [Response.best(2)] and again.ask() == second
    with pytest.raises(RuntimeError, match="already open"):
        Opening(tmp_path / "opening", pool, K, 0)
    again.close()
    with pytest.raises(ValueError, match="opening"):
        Opening(tmp_path / "opening", Vocabulary(("prompt",), (("a", "b", "c"),)), K, 0)


def test_answers_before_the_encoder_is_there_are_the_session_s_first(converse, pool, tmp_path):
    encoder = Slow()
    conversation = converse(encoder)
    conversation.start()
    shown = []
    for option in (2, 0, 1):
        asked = conversation.asked()
        shown.append(asked.texts)
        assert conversation.answer(asked.key, Response.best(option))
        assert conversation.answer(asked.key, Response.best(option))  # sent twice
        assert not conversation.answer(asked.key, Response.best((option + 1) % K))  # another one came first
        assert conversation.asked().texts == asked.following
    last = conversation.asked()
    assert conversation.undo(last.undo_key) and not conversation.undo(last.undo_key)
    asked = conversation.asked()
    assert asked.texts == shown[2] and asked.number == 2 and conversation.session is None
    encoder.there.set()
    ready(conversation)
    assert conversation.asked().texts == asked.texts  # the question on the page stays
    assert conversation.answer(asked.key, Response.best(0))
    session = conversation.session
    assert [one.texts for one in session.transcript.questions[:3]] == shown
    assert session.transcript.responses == [Response.best(2), Response.best(0), Response.best(0)]
    assert not (tmp_path / "opening").exists()
    assert len(conversation.asked().texts) == K and not conversation.asked().following
    assert conversation.undo(conversation.asked().undo_key) and conversation.asked().texts == asked.texts
    ready(conversation)
    assert 0.5 <= conversation.certainty[1].accuracy <= 1
    conversation.close()


def test_a_session_goes_on_where_it_was_left(converse):
    encoder = Slow()
    encoder.there.set()
    conversation = converse(encoder)
    conversation.start()
    ready(conversation)
    conversation.answer(conversation.asked().key, Response.best(1))
    texts = conversation.asked().texts
    conversation.close()
    conversation.session.close()
    again = converse(encoder)
    assert again.asked() is None  # not before it is read
    again.start()
    ready(again)
    assert again.asked().texts == texts and again.asked().number == 1 and again.undo(again.asked().undo_key)
    again.close()


def test_what_keeps_the_session_from_being_made_is_told_and_loses_nothing(converse, pool, tmp_path):
    class Broken(Slow):
        def encode(self, texts, *, progress=False):
            raise ValueError("Expected weights, got none")

    failures = []
    conversation = converse(Broken(), failed=failures.append)
    conversation.answer(conversation.asked().key, Response.best(1))
    conversation.start()
    with pytest.raises(ValueError, match="Expected weights"):
        conversation.close()
    assert len(failures) == 1
    conversation.opening.close()
    again = Opening(tmp_path / "opening", pool, K, 0)
    assert again.responses == [Response.best(1)]
    again.close()


class Told(PoolPictures):
    """Pictures that remember what was to be drawn ahead."""

    def ahead(self, texts):
        told = self.__dict__.setdefault("told", [])
        told.append(tuple(texts))
        return super().ahead(texts) or True


@pytest.fixture
def painted(pool, tmp_path):
    """Painted pictures of the pool; texts with a word are refused."""
    running = []

    def make(failing="", kind=PoolPictures):
        renderer = load_renderer(PAINTED, cache_folder=tmp_path / "images", failing=failing)
        running.append(kind(Pictures(renderer, 0), pool.tokens[0]))
        return running[-1]

    yield make
    for one in running:
        one.close()


def test_an_option_without_a_picture_gives_way_before_it_can_be_answered(converse, painted, pool, tmp_path):
    encoder, texts = Slow(), pool.tokens[0]
    never = texts[differing_items(texts, K, 0, 0)[1]]
    pictures = painted(failing=never)
    conversation = converse(encoder, pictures=pictures)
    asked = conversation.asked()
    assert never in asked.texts and not asked.ready
    pictures.wait(asked.texts, lambda: False)
    pictures.wait(texts[:8], lambda: False)
    seen = conversation.asked()
    assert seen.ready and seen.key != asked.key and len(set(seen.texts)) == K
    assert all(pictures.png(text) for text in seen.texts) and never not in seen.texts
    assert [one == other for one, other in zip(asked.texts, seen.texts, strict=True)] == [True, False, True]
    assert not conversation.answer(asked.key, Response.best(0))  # about what was there before
    conversation.opening.close()  # killed
    conversation = converse(encoder, pictures=pictures)
    assert conversation.asked().texts == seen.texts and conversation.asked().ready
    assert conversation.answer(conversation.asked().key, Response.best(1))
    encoder.there.set()
    conversation.start()
    ready(conversation)
    for _ in range(8):
        pictures.wait(conversation.asked().texts, lambda: False)
        asked = conversation.asked()
        assert asked.ready and never not in asked.texts
        conversation.answer(asked.key, Response.best(0))
    conversation.close()
    answers = conversation.session.comparisons
    assert answers.texts[0] == list(seen.texts) and never not in {text for one in answers.texts for text in one}


def test_where_all_pictures_fail_together_nothing_is_put_in_their_place(converse, painted, monkeypatch):
    monkeypatch.setattr("tests.helpers.painted.Painted.draw", lambda *_: 1 / 0)  # a service out of reach
    pictures = painted()
    conversation = converse(Slow(), pictures=pictures)
    asked = conversation.asked()
    assert pictures.wait(asked.texts, lambda: False) == {}
    again = conversation.asked()
    assert again == asked and not again.ready and all(map(pictures.failed, again.texts))


def test_the_next_question_of_every_answer_is_drawn_ahead(converse, painted):
    pictures, encoder = painted(kind=Told), Slow()
    encoder.there.set()
    conversation = converse(encoder, pictures=pictures)
    conversation.start()
    ready(conversation)
    for option in (1, 2):
        pictures.told = []
        conversation.answer(conversation.asked().key, Response.best(option))
        ready(conversation)
        expected = [one for one in pictures.told if one]
        assert len(expected) == K
        conversation.answer(conversation.asked().key, Response.best(0))
        assert conversation.asked().texts == expected[0]
        ready(conversation)
    conversation.close()


def test_words_are_judged_by_the_items_that_have_them():
    vocabulary = Vocabulary(("colour", "form"), (("red", "blue"), ("square", "round", "long")))
    items = [f"{colour}, {form}" for colour in vocabulary.tokens[0] for form in vocabulary.tokens[1]]

    class Red(Slow):
        dimension = 1

        def encode(self, texts, *, progress=False):
            return np.array([[1.0 if "red" in text else -1.0] for text in texts], dtype="f4")

    draws = 1.0 + 0.1 * np.random.default_rng(0).normal(size=(100, 1))
    colour, form = words_of_items(vocabulary, items, Red(), draws)
    assert (colour.liked, colour.disliked) == (("red",), ("blue",)) and (form.liked, form.disliked) == ((), ())
