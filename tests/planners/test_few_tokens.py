"""Steps with fewer tokens than options: complete prompts can still differ; what can not is refused early."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edpbrl_gym.planners import make_planner
from edpbrl_gym.session import Session
from tests.helpers.clustered_words import ToyEncoder, clustered_rows, make_words


def words_of(sizes, seed=0):
    words = make_words(sizes)
    return words, ToyEncoder(words, clustered_rows(seed, tokens=sum(sizes), d=6, clusters=3))


@settings(max_examples=40)
@given(
    sizes=st.lists(st.integers(1, 5), min_size=2, max_size=4),
    num_options=st.integers(2, 9),
    name=st.sampled_from(["adaptive", "random"]),
    planned=st.sampled_from(["truncated", "state", "prompt"]),
    seed=st.integers(0, 9),
)
def test_complete_prompts_differ_whenever_they_can(sizes, num_options, name, planned, seed):
    words, encoder = words_of(tuple(sizes))
    options = {"distinct": True} if name == "random" else {}

    def session():
        planner = make_planner(name, words, encoder, feedback=planned, num_options=num_options, seed=seed, **options)
        return Session(planner, vocabulary=words, encoder=encoder, num_options=num_options, feedback="prompt")

    if np.prod(sizes) < num_options:
        with pytest.raises(ValueError, match="different"):
            session()
        return
    asked = session()
    for number in range(4):
        texts = asked.ask().texts
        assert len(set(texts)) == num_options
        asked.tell(number % num_options)


@pytest.mark.parametrize("name", ["adaptive", "random"])
@pytest.mark.parametrize("feedback", ["truncated", "state"])
def test_what_is_compared_before_the_end_needs_enough_tokens(name, feedback):
    words, encoder = words_of((3, 8, 8))
    options = {"distinct": True} if name == "random" else {}
    planner = make_planner(name, words, encoder, feedback=feedback, num_options=4, **options)
    with pytest.raises(ValueError, match=r"3 at step 0 .*at most K = 3 options.*feedback 'prompt'"):
        Session(planner, vocabulary=words, encoder=encoder, num_options=4, feedback=feedback)
