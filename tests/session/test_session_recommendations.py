"""What a session says about a taste: prompts that really differ, and phrases that are surely liked or disliked."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edpbrl_gym.oracles import SyntheticUser
from edpbrl_gym.planners import make_planner
from edpbrl_gym.session import Session, run, step_words
from edpbrl_gym.vocabulary import Vocabulary, load_vocabulary
from tests.helpers.encoders import CountingEncoder

USERS = (
    "A hushed hotel bar with leather, brass and whisky",
    "Pink and mint rooms as sweet as a candy shop",
    "A greenhouse where ferns and orchids climb up to the roof",
    "A whitewashed monk's cell with a plain wooden cross",
)


@pytest.fixture(scope="module")
def sessions(minilm):
    """Four people's, and the direction of each one's taste."""
    words = load_vocabulary("interiors")
    found = []
    for seed, sentence in enumerate(USERS):
        planner = make_planner("adaptive", words, minilm, seed=seed, num_options=4, feedback="prompt")
        session = Session(planner, vocabulary=words, encoder=minilm, num_options=4, feedback="prompt", seed=seed)
        run(session, SyntheticUser.from_text(sentence, minilm), 10)
        found.append((session, minilm.encode([sentence])[0].astype(float)))
    return found


def test_the_prompts_of_people_share_at_most_half_of_their_phrases(sessions):
    for session, truth in sessions[:2]:
        found = session.recommend(10)
        assert len(found) == 10
        for first, second in itertools.combinations(found, 2):
            same = sum(map(str.__eq__, first.text.split(", "), second.text.split(", ")))
            assert same == sum(map(int.__eq__, first.tokens, second.tokens)) <= 3
        random = session.vocabulary.prompt([0] * 6), session.vocabulary.prompt([1] * 6)
        scores = session.memo.encode([prompt.text for prompt in found]) @ truth
        assert scores.mean() > (session.memo.encode(random) @ truth).max()


def test_the_phrases_of_four_people_are_on_their_side_of_the_average(sessions):
    right = []
    for session, truth in sessions:
        found = session.words()
        assert [one.step for one in found] == list(session.vocabulary.names)
        for one, tokens in zip(found, session.vocabulary.tokens, strict=True):
            leads = session.memo.encode(tokens) @ truth
            leads = dict(zip(tokens, leads - leads.mean(), strict=True))
            assert len(one.liked) <= 3 and len(one.disliked) <= 3 and not set(one.liked) & set(one.disliked)
            right += [leads[word] > 0 for word in one.liked] + [leads[word] < 0 for word in one.disliked]
    assert len(right) > 10 and np.mean(right) > 0.9


def test_nothing_is_sure_before_the_first_answer_and_fewer_phrases_at_a_higher_level(sessions, minilm):
    session, _ = sessions[0]
    planner = make_planner("adaptive", session.vocabulary, minilm, num_options=4, feedback="prompt")
    fresh = Session(planner, vocabulary=session.vocabulary, encoder=minilm, num_options=4, feedback="prompt")
    assert not any(one.liked or one.disliked for one in fresh.words(99, level=0.99))
    many, few = (
        {(one.step, word) for one in session.words(99, level=level) for word in (*one.liked, *one.disliked)}
        for level in (0.9, 0.99)
    )
    assert few < many


@settings(max_examples=30, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 5), min_size=1, max_size=3),
    count=st.integers(1, 4),
    level=st.sampled_from([0.5, 0.8, 0.95]),
    seed=st.integers(0, 99),
)
def test_a_phrase_is_named_where_enough_draws_put_it_on_that_side(sizes, count, level, seed):
    steps = tuple(tuple(f"w{step}x{token}" for token in range(size)) for step, size in enumerate(sizes))
    vocabulary = Vocabulary(tuple(f"step{step}" for step in range(len(sizes))), steps)
    encoder, rng = CountingEncoder(dimension=8), np.random.default_rng(seed)
    draws = rng.normal(size=8) + rng.normal(size=(200, 8))
    for one, tokens in zip(step_words(vocabulary, encoder, draws, count=count, level=level), steps, strict=True):
        values = draws @ encoder.encode(tokens).T
        leads = values - values.mean(axis=1, keepdims=True)
        above, below = (leads > 0).mean(axis=0), (leads < 0).mean(axis=0)
        for words, share in ((one.liked, above), (one.disliked, below)):
            assert len(words) <= count and len(set(words)) == len(words)
            assert all(share[tokens.index(word)] >= level - 0.01 for word in words)
            sure = {token for token, value in zip(tokens, share, strict=True) if value > level + 0.01}
            assert len(words) == count or sure <= set(words)


@pytest.mark.parametrize(("argument", "value"), [("count", 0), ("level", 0.4), ("level", 1.0)])
def test_bad_arguments_of_words(sessions, argument, value):
    with pytest.raises(ValueError, match=f"{argument}"):
        sessions[0][0].words(**{argument: value})
