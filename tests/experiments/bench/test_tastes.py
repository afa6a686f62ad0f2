"""Tastes of many shapes: each against its definition, computed another way."""

from __future__ import annotations

import numpy as np
import pytest

from edpbrl_gym.experiments.bench.sentences import DEVELOPMENT, FRESH
from edpbrl_gym.experiments.bench.tastes import (
    STYLE_WEIGHTS,
    TASTES,
    load_directions,
    make_directions,
    prepare_directions,
    taste_sentences,
    taste_users,
)
from edpbrl_gym.vocabulary import BUILT_IN, Vocabulary, load_vocabulary
from tests.helpers.encoders import CountingEncoder


def small(words: str) -> Vocabulary:
    return load_vocabulary(words).subset(6, 0)


def unit(rows):
    return rows / np.linalg.norm(rows, axis=-1, keepdims=True)


@pytest.mark.parametrize("words", list(BUILT_IN))
@pytest.mark.parametrize("taste", list(TASTES))
def test_users_have_unit_tastes_that_differ(words, taste):
    users = taste_users(taste, words)
    made = make_directions(taste, words, small(words), CountingEncoder())
    assert tuple(made) == users and len(set(users)) == len(FRESH[words])
    rows = np.stack(list(made.values()))
    assert rows.shape == (len(users), 2 if taste == "two-styles" else 1, 8)
    np.testing.assert_allclose(np.linalg.norm(rows, axis=-1), 1.0)
    gram = rows[:, 0] @ rows[:, 0].T
    if taste != "mean":  # those of eight random features may come near each other
        assert (gram - np.eye(len(gram))).max() < 0.999
    assert not set(users) & set(taste_users(taste, words, development=True))
    again = make_directions(taste, words, small(words), CountingEncoder())
    for user in users:
        np.testing.assert_array_equal(made[user], again[user])


def test_sentences_their_means_and_their_differences():
    words, encoder = "images", CountingEncoder()
    texts = taste_sentences(words, development=True)
    assert texts == DEVELOPMENT[words]
    first = encoder.encode([texts["harbour"]])[0].astype(float)
    second = encoder.encode([texts["tender"]])[0].astype(float)  # three further on
    made = {
        taste: make_directions(taste, words, small(words), encoder, development=True)
        for taste in ("sentence", "mean", "not", "two-styles")
    }
    np.testing.assert_allclose(made["sentence"]["harbour"][0], unit(first))
    np.testing.assert_allclose(made["mean"]["harbour+tender"][0], unit(unit(first) + unit(second)))
    np.testing.assert_allclose(made["not"]["harbour-tender"][0], unit(unit(first) - unit(second)))
    np.testing.assert_allclose(made["two-styles"]["harbour-or-tender"], [unit(first), unit(second)])
    pairs = [frozenset(user.split("+")) for user in made["mean"]]
    assert len(set(pairs)) == len(pairs)


class SumEncoder(CountingEncoder):
    """A prompt is the sum of its tokens' rows, each in coordinates of its own step: u is linear in it."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        super().__init__(4 * vocabulary.horizon)
        self.known = {}
        for step, tokens in enumerate(vocabulary.tokens):
            for token, row in zip(tokens, CountingEncoder(4).encode(tokens), strict=True):
                self.known[token] = np.zeros(self.dimension)
                self.known[token][4 * step : 4 * step + 4] = row

    def encode(self, texts, *, progress=False):
        return np.stack([self._row(text) for text in texts])

    def _row(self, text):
        tokens = text.split(", ")
        if not set(tokens) <= set(self.known):
            return super().encode([text])[0]
        return np.sum([self.known[token] for token in tokens], axis=0)


@pytest.mark.parametrize("words", list(BUILT_IN))
def test_style_weighs_the_coordinates_of_each_step(words):
    vocabulary = load_vocabulary(words)
    vocabulary = Vocabulary(vocabulary.names, tuple(tokens[:9] for tokens in vocabulary.tokens))
    encoder = SumEncoder(vocabulary)
    made = make_directions("style", words, vocabulary, encoder)
    name, text = next(iter(taste_sentences(words).items()))
    weights = np.repeat([STYLE_WEIGHTS[words][step] for step in vocabulary.names], 4)
    expected = unit(weights * encoder.encode([text])[0])
    np.testing.assert_allclose(made[f"{name}-in-style"][0], expected, atol=1e-6)
    assert set(STYLE_WEIGHTS[words]) == set(vocabulary.names)


def test_low_tastes_lie_where_the_tokens_vary_least():
    vocabulary = small("images")

    class Flat(CountingEncoder):
        def encode(self, texts, *, progress=False):
            return super().encode(texts) * np.array([3, 3, 3, 3, 1e-6, 1e-6, 1e-6, 1e-6])

    for row in make_directions("low", "images", vocabulary, Flat()).values():
        assert np.linalg.norm(row[0, :4]) < 1e-5
    gaussian = make_directions("gaussian", "images", vocabulary, Flat())
    assert np.mean([np.linalg.norm(row[0, :4]) for row in gaussian.values()]) > 0.5


def test_the_run_folder_keeps_them(tmp_path):
    vocabulary, encoder = small("interiors"), CountingEncoder()
    prepare_directions("not", "interiors", vocabulary, encoder, tmp_path)
    before = len(encoder.calls)
    prepare_directions("not", "interiors", vocabulary, encoder, tmp_path)
    assert len(encoder.calls) == before
    loaded, made = (
        load_directions(tmp_path, "not", "interiors"),
        make_directions("not", "interiors", vocabulary, encoder),
    )
    assert list(loaded) == list(made)
    for user, rows in made.items():
        np.testing.assert_array_equal(loaded[user], rows)


def test_an_unknown_shape():
    with pytest.raises(ValueError, match="taste"):
        taste_users("round", "images")
