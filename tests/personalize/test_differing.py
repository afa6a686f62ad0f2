"""Prompts that really differ: any two share at most some of their phrases, in every search, and none is a copy."""

import itertools
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edpbrl_gym.personalize.differing import most_shared, pick, shortage
from edpbrl_gym.personalize.search import best_prompts
from edpbrl_gym.vocabulary import Vocabulary
from tests.helpers.encoders import CountingEncoder


def shared(first, second):
    return sum(token == other for token, other in zip(first, second, strict=True))


def largest_set(prompts, most):
    """The size of the largest set of prompts that differ, by trying all sets."""
    best = 0
    for chosen in itertools.product((False, True), repeat=len(prompts)):
        some = list(itertools.compress(prompts, chosen))
        if len(some) > best and all(shared(*pair) <= most for pair in itertools.combinations(some, 2)):
            best = len(some)
    return best


@pytest.mark.parametrize(
    ("share", "steps", "most"),
    [(0.5, 6, 3), (0.5, 5, 2), (0.0, 4, 0), (1.0, 4, 3), (1.0, 1, 0), (1 / 3, 6, 2), (0.5, 0, 0)],
)
def test_the_limit_is_rounded_down_and_excludes_copies(share, steps, most):
    assert most_shared(share, steps) == most


@pytest.mark.parametrize("share", [-0.1, 1.01, float("nan"), "half"])
def test_a_limit_that_is_no_share_is_refused(share):
    with pytest.raises((ValueError, TypeError), match="shared"):
        most_shared(share, 6)


@settings(max_examples=60)
@given(
    sizes=st.lists(st.integers(1, 3), min_size=1, max_size=3),
    most=st.integers(0, 2),
    count=st.integers(1, 9),
    seed=st.integers(0, 1000),
)
def test_the_best_first_and_as_many_as_there_are(sizes, most, count, seed):
    prompts = list(itertools.product(*map(range, sizes)))[:12]
    most = min(most, len(sizes) - 1)
    scores = np.random.default_rng(seed).normal(size=len(prompts))
    found = pick(scores, prompts, count, most)
    assert list(scores[found]) == sorted(scores[found], reverse=True)
    assert all(shared(prompts[a], prompts[b]) <= most for a, b in itertools.combinations(found, 2))
    assert len(found) == min(count, largest_set(prompts, most))
    greedy = pick(scores, prompts, count, most, fill=False)
    for place, index in enumerate(greedy):
        free = [i for i, one in enumerate(prompts) if all(shared(one, prompts[j]) <= most for j in greedy[:place])]
        assert scores[index] == max(scores[i] for i in free if i not in greedy[:place])
    if len(greedy) == count:
        assert found == greedy


@settings(max_examples=30, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 6), min_size=1, max_size=5),
    share=st.sampled_from([Fraction(0), Fraction(1, 3), Fraction(1, 2), Fraction(1)]),
    method=st.sampled_from(["beam", "model"]),
    base=st.sampled_from([None, "a gate"]),
    count=st.integers(1, 8),
    seed=st.integers(0, 1000),
)
def test_no_search_returns_prompts_that_share_more(sizes, share, method, base, count, seed):
    steps = tuple(tuple(f"w{step}x{token}" for token in range(size)) for step, size in enumerate(sizes))
    vocabulary = Vocabulary(tuple(f"step{step}" for step in range(len(sizes))), steps)
    theta = np.random.default_rng(seed).normal(size=8)
    encoder = CountingEncoder(dimension=8)
    found = best_prompts(
        vocabulary, encoder, theta, count=count, base=base, shared=float(share), method=method, width=6, shortlist=3
    )
    searched = [size for size in sizes if size > 1]  # a step of one token is no choice
    most = max(0, min(int(share * len(searched)), len(searched) - 1))
    assert 1 <= len(found) <= count and len({prompt.text for prompt in found}) == len(found)
    for first, second in itertools.combinations(found, 2):
        assert shared(first.tokens, second.tokens) - (len(sizes) - len(searched)) <= most
    assert [one.score for one in found] == sorted((one.score for one in found), reverse=True)
    if np.prod(searched) <= 12 and max(searched, default=1) <= max(3, count):  # all of them may be tried
        prompts = list(itertools.product(*map(range, searched)))
        assert len(found) == min(count, largest_set(prompts, most))


def test_a_shortage_is_told():
    assert shortage(5, 5) == ""
    assert shortage(3, 5) == "Only 3 of 5 prompts could be found that differ enough from each other."
