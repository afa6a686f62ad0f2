"""Heads of phrases, and splits that keep the tokens of a head together."""

import itertools
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edpbrl_gym.vocabulary import Vocabulary, load_vocabulary
from edpbrl_gym.vocabulary.heads import head_word

ADJECTIVES = ("old", "thick", "two pale", "hand-painted", "a", "the heavy")
NOUNS = ("oil", "engraving", "lamp", "lamps", "glass", "glasses", "city", "cities", "box", "fog", "chair", "mural")
ENDS = ("", "on canvas", "of a captain", "hanging from the beams", "lit by a fire", "and a shelf", "in Rome")
phrases = st.tuples(st.sampled_from(ADJECTIVES), st.sampled_from(NOUNS), st.sampled_from(ENDS)).map(
    lambda words: " ".join(word for word in words if word)
)
steps = st.lists(st.lists(phrases, min_size=2, max_size=30, unique_by=str.casefold), min_size=1, max_size=3).filter(
    lambda found: all(len(set(map(head_word, step))) > 1 for step in found)
)


@pytest.mark.parametrize(
    ("token", "head"),
    [
        ("oil on canvas", "oil"),
        ("Portrait of a sea captain", "portrait"),
        ("a griffin guarding a tower", "griffin"),
        ("two foxes curled up on straw", "fox"),
        ("under the low beams", "beam"),
        ("a fox and a rabbit", "fox"),
        ("moss and lichen greens", "green"),
        ("stained glass", "glass"),
        ("finger painting", "painting"),
        ("the captain's", "captain"),
        ("夜の街", "夜の街"),
    ],
)
def test_the_head_is_what_the_phrase_names(token, head):
    assert head_word(token) == head


@given(st.sampled_from(ADJECTIVES), st.sampled_from(NOUNS), st.sampled_from(ENDS))
def test_what_stands_around_a_head_does_not_change_it(adjective, noun, end):
    assert head_word(f"{adjective} {noun} {end}".upper()) == head_word(noun)


@given(steps, st.integers(0, 2**40), st.floats(0.01, 0.99))
def test_a_split_by_head(tokens, seed, fraction):
    vocabulary = Vocabulary(tuple(f"step {number}" for number in range(len(tokens))), tuple(map(tuple, tokens)))
    train, test = vocabulary.split(seed, fraction, by="head")
    assert (train, test) == vocabulary.split(seed, fraction, by="head")
    assert train.names == test.names == vocabulary.names
    for whole, one, other in zip(vocabulary.tokens, train.tokens, test.tokens, strict=True):
        assert one and other and Counter(one + other) == Counter(whole)
        assert one == tuple(token for token in whole if token in one), "the order of a step is kept"
        assert other == tuple(token for token in whole if token in other)
        heads = Counter(map(head_word, whole))
        assert not set(map(head_word, one)) & set(map(head_word, other))
        asked = min(max(round(fraction * len(whole)), 1), len(whole) - 1)
        assert abs(len(other) - asked) <= max(heads.values())
        sums = {sum(group) for count in range(1, len(heads)) for group in itertools.combinations(heads.values(), count)}
        assert abs(len(other) - asked) == min(abs(total - asked) for total in sums), "as near as whole groups allow"


def test_a_split_by_token_is_the_one_it_always_was():
    """Runs record the seed of their split, not its tokens."""
    train, test = load_vocabulary().split(0)
    assert (train, test) == load_vocabulary().split(0, by="token")
    assert test.fingerprint == "ab260053ac131dde164174d479de081f53b7550a463f7d2a3f5efd3c8a4f8ba7"


def test_splits_that_are_impossible():
    lamps = Vocabulary(("room", "light"), (("a hall", "a bar"), ("a lamp", "old lamps", "lamp of brass")))
    with pytest.raises(ValueError, match="at least 2 head words in step 'light'.*all 3 have the head word 'lamp'"):
        lamps.split(0, by="head")
    with pytest.raises(ValueError, match="Expected by as one of 'token', 'head', got 'word'"):
        lamps.split(0, by="word")
    lamps.split(0)
