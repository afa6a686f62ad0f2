"""Typical questions: features up to a constant of each question, from few embedded texts where tokens add up."""

import numpy as np
import pytest

from edpbrl_gym.features.memo import MemoEncoder
from edpbrl_gym.session.outlook import typical_questions
from edpbrl_gym.session.questions import QuestionMaker
from edpbrl_gym.vocabulary import SEPARATOR, Vocabulary
from tests.helpers.encoders import CountingEncoder

WORDS = Vocabulary(
    ("one", "two", "three"), tuple(tuple(f"{name}{token}" for token in range(7)) for name in ("a", "b", "c"))
)
K, EPISODES = 3, 5


class Sums(CountingEncoder):
    """The embedding of a text is a constant and a weighted sum of those of its words; a word's is random."""

    def encode(self, texts, *, progress=False):
        self.calls.append(list(texts))
        return np.array([self.row(text.split(SEPARATOR)) for text in texts], dtype=np.float32)

    def row(self, words):
        rows = CountingEncoder(self.dimension).encode(words).astype(float)
        return rows[0] if len(words) == 1 else 0.3 + (0.5 + 0.1 * np.arange(len(words))) @ rows / len(words)


def questions(encoder, feedback):
    tokens = encoder.encode(WORDS.all_tokens)
    maker = QuestionMaker(WORDS, encoder, feedback)
    rows = typical_questions(
        maker,
        MemoEncoder(encoder, texts=WORDS.all_tokens, rows=tokens),
        tokens,
        K,
        EPISODES,
        np.random.default_rng(0),
    )
    drawn = np.random.default_rng(0)
    episodes = np.stack([drawn.integers(size, size=(EPISODES, K)) for size in WORDS.sizes], axis=2)
    steps = range(maker.num_new - 1, WORDS.horizon)
    texts = [maker.texts(episode[:, : step + 1]) for episode in episodes for step in steps]
    return rows, texts


def differences(rows):
    return rows - rows.mean(axis=1, keepdims=True)


@pytest.mark.parametrize(("feedback", "embedded"), [("truncated", 8), ("prompt", 4), ("state", 0)])
def test_with_an_additive_encoder_the_differences_are_true_and_few_texts_embedded(feedback, embedded):
    encoder = Sums(40)
    rows, texts = questions(encoder, feedback)
    assert len(encoder.encoded) - len(WORDS.all_tokens) == embedded  # four prompts, of every length but one token
    true = np.stack([encoder.encode(row).astype(float) for row in texts])
    assert rows.shape == true.shape
    np.testing.assert_allclose(differences(rows), differences(true), atol=1e-5)


@pytest.mark.parametrize("feedback", ["truncated", "prompt"])
def test_with_any_other_encoder_all_texts_are_embedded(feedback):
    encoder = CountingEncoder(40)
    rows, texts = questions(encoder, feedback)
    np.testing.assert_array_equal(rows, np.stack([encoder.encode(row).astype(float) for row in texts]))


def test_the_real_encoder_adds_up_enough(minilm):
    rows, texts = questions(minilm, "truncated")
    true = differences(np.stack([minilm.encode(row).astype(float) for row in texts]))
    left = differences(rows) - true
    assert np.sum(left**2) < 0.5 * np.sum(true**2)
