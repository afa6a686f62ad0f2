"""Embeddings of a vocabulary: computed once, and refused where they don't tell tokens apart."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edpbrl_gym.features import embed_tokens, load_encoder
from edpbrl_gym.features.precomputed import PrecomputedEncoder
from edpbrl_gym.features.tokens import equal_rows
from edpbrl_gym.planners import make_planner
from edpbrl_gym.planners.option_features import TokenFeatures
from edpbrl_gym.session import Session
from edpbrl_gym.vocabulary import Vocabulary
from tests.helpers.encoders import CountingEncoder

WORDS = Vocabulary(
    ("subject", "mood"), (("a lighthouse", "an old fox", "a paper boat"), ("before a storm", "half asleep", "at dusk"))
)
CHINESE = Vocabulary(
    ("subject", "mood"),
    (("灯塔", "狐狸", "纸船"), ("before a storm", "雪中", "at dusk")),
)


class Encoder(CountingEncoder):
    """With a fingerprint of its own, so that no other test has embedded its tokens."""

    number = 0

    def __init__(self):
        Encoder.number += 1
        super().__init__(dimension=12, fingerprint=f"once{Encoder.number:060}")


def test_the_tokens_are_embedded_once_for_planner_session_and_recommendations():
    encoder = Encoder()
    planner = make_planner("adaptive", WORDS, encoder, num_options=2)
    session = Session(planner, vocabulary=WORDS, encoder=encoder, num_options=2)
    for _ in range(4):
        session.ask()
        session.tell(0)
        session.progress()
    session.recommend(2, width=4)
    session.draws()
    alone = [text for text in encoder.encoded if ", " not in text]
    assert encoder.calls[0] == WORDS.all_tokens
    # those of the first step are partial prompts too, which are embedded with each question
    assert all(alone.count(text) == 1 for text in WORDS.tokens[1])
    assert all(encoder.calls.count(list(step)) == 0 for step in WORDS.tokens)
    # another session, and another instance of the encoder, share them
    before = len(encoder.calls)
    Session(planner, vocabulary=WORDS, encoder=encoder, num_options=2).outlook.prior  # noqa: B018
    assert len(encoder.calls) == before


LATIN = Vocabulary(("word",), (("schon", "schön", "café", "cafe", "fog"),))
ANIMALS = Vocabulary(("word",), (tuple(chr(0x1F430 + number) for number in range(8)),))  # one unknown piece each word


@pytest.mark.parametrize(
    ("vocabulary", "message"),
    [
        (
            CHINESE,
            "'灯塔' and '狐狸' .subject.; '灯塔' and '纸船' .subject.. No answer.*reads English.*multilingual",
        ),
        (LATIN, "'schon' and 'schön' .word.; 'café' and 'cafe' .word.. No answer.*without accents"),
        (ANIMALS, "equal ones: .*; 2 more. No answer"),
    ],
)
def test_tokens_with_equal_embeddings_are_named(vocabulary, message):
    encoder = load_encoder("minilm", cache=False)
    with pytest.raises(ValueError, match=f"Expected different embeddings by minilm of the tokens of a step.*{message}"):
        embed_tokens(vocabulary, encoder)
    for call in (
        lambda: make_planner("adaptive", vocabulary, encoder, num_options=2),
        lambda: make_planner("random", vocabulary, encoder, num_options=2),
        lambda: TokenFeatures(vocabulary, encoder.encode(vocabulary.all_tokens)),
    ):
        with pytest.raises(ValueError, match="equal ones"):
            call()


def test_equal_rows_of_a_file_are_named(tmp_path):
    rows = np.random.default_rng(0).normal(size=(6, 5))
    rows[4] = 2 * rows[3]  # of the second step, and equal after division by the norm
    encoder = PrecomputedEncoder.from_arrays(WORDS.all_tokens, rows, name="mine.npz")
    with pytest.raises(ValueError, match=r"by precomputed:mine.npz of .*'half asleep' \(mood\)\. .*leave one of"):
        embed_tokens(WORDS, encoder)
    rows[4] = rows[0]  # of another step: never options of one question
    embed_tokens(WORDS, PrecomputedEncoder.from_arrays(WORDS.all_tokens, rows))


@given(st.integers(2, 60), st.integers(1, 6), st.integers(0, 10**6), st.floats(1e-9, 2e-6))
def test_equal_rows_are_found_up_to_rounding(count, dimension, seed, noise):
    rng = np.random.default_rng(seed)
    distinct = rng.permutation(4 * count)[:count, None] + rng.uniform(-0.1, 0.1, size=(count, dimension))
    distinct /= np.linalg.norm(distinct, axis=1).max()  # rounding is relative to the longest row
    copies = rng.integers(count, size=count)
    shifted = distinct[copies] + noise * rng.uniform(-1, 1, size=(count, dimension)) / np.sqrt(dimension)
    scale = 10.0 ** rng.integers(-3, 4)
    found = equal_rows(scale * np.concatenate([distinct, shifted]))
    assert {second for _, second in found} == set(range(count, 2 * count))
    assert all(first < count and first == copies[second - count] for first, second in found)
    assert equal_rows(scale * distinct) == []
