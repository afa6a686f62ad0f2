"""Prompts about one subject: where it stands, what is refused, splits, and questions and words about such prompts."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edpbrl_gym.estimation import GaussianPrior
from edpbrl_gym.features import embed_tokens
from edpbrl_gym.likelihood import make_format
from edpbrl_gym.oracles import ImperfectUser
from edpbrl_gym.planners import RandomPlanner, make_planner
from edpbrl_gym.session import Session, run
from edpbrl_gym.vocabulary import Vocabulary, load_vocabulary
from tests.helpers.encoders import CountingEncoder

SUBJECT = "a lighthouse on a cliff"


def vocabulary_of(*names: str) -> Vocabulary:
    return Vocabulary(names, tuple((f"{name} 1", f"{name} 2") for name in names))


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (("medium", "light"), ("subject", "medium", "light")),
        (("subject", "light"), ("subject", "light")),
        (("bases", "light"), ("subject", "light")),
        (("detail", "01_Subjects", "light"), ("subject", "detail", "light")),
        (("basement", "subjective"), ("subject", "basement", "subjective")),
        (("room",), ("subject",)),
    ],
)
def test_the_subject_stands_in_front_or_where_the_vocabulary_says_what_is_shown(names, expected):
    vocabulary = vocabulary_of(*names).with_subject(SUBJECT)
    assert vocabulary.names == expected and vocabulary.tokens[0] == (SUBJECT,)
    assert vocabulary.with_subject("a fox").prompt([0] * len(expected)).startswith("a fox")
    assert vocabulary.tokens[1:] == tuple((f"{name} 1", f"{name} 2") for name in expected[1:])
    for name, horizon in (("images", 6), ("interiors", 6), ("styles", 7)):
        assert load_vocabulary(name).with_subject(SUBJECT).horizon == horizon


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("  a\tfox,  asleep , ", "a fox, asleep"),
        ("A cafe\u0301.", "A caf\u00e9"),
        ("\u5c71\u306e\u4e0a\u306e\u57ce", "\u5c71\u306e\u4e0a\u306e\u57ce"),
        ("x" * 300, "x" * 300),
    ],
)
def test_subjects_are_written_by_people(written, read):
    assert vocabulary_of("medium").with_subject(written).tokens[0] == (read,)


@pytest.mark.parametrize(
    ("written", "error", "message"),
    [
        ("", ValueError, "a subject with words in it"),
        (" ,. ", ValueError, "a subject with words in it"),
        ("\u200b", ValueError, "a subject with words in it"),
        ("x" * 301, ValueError, "at most 300 characters, got 301"),
        ("a\u202efox", ValueError, r"readable subject, got U\+202E"),
        (["a fox"], TypeError, "as a text, got list"),
    ],
)
def test_what_is_no_subject_is_refused(written, error, message):
    with pytest.raises(error, match=message):
        vocabulary_of("medium").with_subject(written)


@given(seed=st.integers(0, 1000), by=st.sampled_from(["token", "head"]))
def test_a_split_has_the_subject_on_both_sides(seed, by):
    styles = load_vocabulary("styles")
    sides, bare = styles.with_subject(SUBJECT).split(seed, by=by), styles.split(seed, by=by)
    for side, other in zip(sides, bare, strict=True):
        assert side.tokens[0] == (SUBJECT,) and [len(step) for step in side.tokens[1:]] == list(other.sizes)


@pytest.mark.parametrize("planner", ["adaptive", "random"])
@pytest.mark.parametrize("num_options", [1, 4])
def test_a_session_asks_about_the_subject_in_different_styles(planner, num_options):
    vocabulary = load_vocabulary("styles").subset(6, 0).with_subject(SUBJECT)
    encoder = CountingEncoder(dimension=8)
    model = make_format("rating", levels=5) if num_options == 1 else make_format("best")
    options = {"distinct": True} if planner == "random" else {}
    made = make_planner(planner, vocabulary, encoder, seed=1, num_options=num_options, feedback="prompt",
                        model=model, **options)  # fmt: skip
    session = Session(made, vocabulary=vocabulary, encoder=encoder, num_options=num_options, feedback="prompt")
    theta = np.random.default_rng(4).normal(size=8) * 8
    run(session, ImperfectUser(theta, mode="sampled", response=model, seed=1), 6)
    for question in session.transcript.questions:
        assert len(set(question.texts)) == num_options
        assert all(text.startswith(f"{SUBJECT}, ") and len(text.split(", ")) == 7 for text in question.texts)
    found = session.recommend(3)
    assert len(found) == 3 and all(vocabulary.prompt(one.tokens) == one.text for one in found)
    for first, second in ((found[0], found[1]), (found[0], found[2]), (found[1], found[2])):
        assert sum(a == b for a, b in zip(first.tokens[1:], second.tokens[1:], strict=True)) <= 3
    words = session.words()
    assert [one.step for one in words] == list(vocabulary.names)
    assert words[0].liked == words[0].disliked == ()  # nothing is said about what is in every prompt
    other = session.recommend(1, base="a red fox")
    assert other[0].text.startswith("a red fox, ") and len(other[0].tokens) == 6
    assert session.progress().accuracy > 0.4 and len(embed_tokens(vocabulary, encoder)) == 37


@pytest.mark.parametrize("feedback", ["truncated", "state"])
def test_questions_that_would_show_the_subject_alone_are_refused(feedback):
    vocabulary = load_vocabulary("styles").subset(6, 0).with_subject(SUBJECT)
    planner = RandomPlanner(vocabulary.sizes, prior=GaussianPrior.isotropic(8, 1.0), num_options=4, seed=1)
    planner.distinct = True
    with pytest.raises(ValueError, match=r"1 at step 0 \(subject\).*compare complete prompts"):
        Session(planner, vocabulary=vocabulary, encoder=CountingEncoder(dimension=8), feedback=feedback)
