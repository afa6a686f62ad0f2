"""Composed prompts: what they are made of, how they are distributed, and what is held out."""

from __future__ import annotations

import re
from collections import Counter
from itertools import combinations

import numpy as np
import pytest

from edpbrl_gym.language.corpus import MAX_PARTS, compose_corpus, compose_prompts, is_reserved
from edpbrl_gym.language.phrasing import joins, openings, role_of, with_article
from edpbrl_gym.vocabulary import Vocabulary, load_vocabulary

ROLES = ("bases", "ambient", "style", "composition", "lighting", "detail")
# one nonsense word a token, so that a prompt can be taken apart again without knowing how it was written
NONSENSE = Vocabulary(ROLES, tuple(tuple(f"q{step}x{i}z" for i in range(12)) for step in range(6)))
TWO_WORDS = Vocabulary(ROLES, tuple(tuple(f"a q{step}x{i}z" for i in range(12)) for step in range(6)))
TOKEN = re.compile(r"q(\d)x(\d+)z")
CONNECTIVES = {*"a an of photo painting picture illustration drawing in the style mood atmosphere with and".split()}


def parts(prompt: str) -> list[tuple[int, int]]:
    return [(int(step), int(token)) for step, token in TOKEN.findall(prompt)]


def test_the_same_seed_gives_the_same_prompts_and_another_seed_others():
    first = compose_prompts(NONSENSE, 200, 7)
    assert first == compose_prompts(NONSENSE, 200, 7)
    assert first[:50] == compose_prompts(NONSENSE, 50, 7)  # a longer list begins with the shorter one
    assert first != compose_prompts(NONSENSE, 200, 8)
    corpus = compose_corpus(NONSENSE, train=100, held_out=20, seed=7)
    again = compose_corpus(NONSENSE, train=100, held_out=20, seed=7)
    other = compose_corpus(NONSENSE, train=100, held_out=20, seed=8)
    assert corpus == again and corpus.fingerprint == again.fingerprint != other.fingerprint


@pytest.mark.parametrize("vocabulary", [NONSENSE, TWO_WORDS])
def test_prompts_are_tokens_and_connectives_and_nothing_else(vocabulary):
    for prompt in compose_prompts(vocabulary, 500, 1000):
        found = parts(prompt)
        assert 1 <= len(found) <= MAX_PARTS and len(set(found)) == len(found)
        left = TOKEN.sub(" ", prompt).replace(",", " ").split()
        assert set(left) <= CONNECTIVES, prompt
        assert prompt == " ".join(prompt.split()) and ",," not in prompt and " ," not in prompt
        assert prompt[0] != "," and prompt[-1] != ","


def test_lengths_orders_and_tokens_vary_as_said():
    prompts = [parts(prompt) for prompt in compose_prompts(NONSENSE, 6000, 1001)]
    lengths = Counter(map(len, prompts))
    for count, share in enumerate((0.06, 0.16, 0.24, 0.24, 0.18, 0.12), start=1):
        assert abs(lengths[count] / 6000 - share) < 5 * np.sqrt(share * (1 - share) / 6000)
    tokens = Counter(part for prompt in prompts for part in prompt)
    for step in range(6):
        counts = np.array([tokens[step, i] for i in range(12)])
        expected = counts.sum() / 12
        assert ((counts - expected) ** 2 / expected).sum() < 40  # chi square with 11 degrees; P(> 40) < 1e-4
    # every order of two other steps occurs, and most prompts begin with the subject
    orders = {(a, b) for prompt in prompts for (a, _), (b, _) in combinations(prompt, 2)}
    assert {(a, b) for a in range(1, 6) for b in range(1, 6) if a != b} <= orders
    assert 0.75 < np.mean([prompt[0][0] == 0 for prompt in prompts]) < 0.95


def test_no_training_prompt_holds_a_combination_that_a_held_out_prompt_was_chosen_for():
    corpus = compose_corpus(NONSENSE, train=8000, held_out=200, seed=1002)
    seen = {frozenset(pair) for prompt in corpus.train for pair in combinations(parts(prompt), 2)}
    possible = 6 * 5 // 2 * 12 * 12
    assert len(seen) > 0.75 * possible  # so that an unseen pair says something
    for prompt in corpus.held_out:
        assert any(frozenset(pair) not in seen for pair in combinations(parts(prompt), 2)), prompt
    assert not set(corpus.train) & set(corpus.held_out)
    assert len(set(corpus.held_out)) == len(corpus.held_out) == 200
    known = {part for prompt in corpus.train for part in parts(prompt)}
    assert {part for prompt in corpus.held_out for part in parts(prompt)} <= known  # phrases known, combination new


def test_one_pair_in_sixteen_is_reserved_in_either_order():
    tokens = load_vocabulary().all_tokens[::40]
    pairs = list(combinations(tokens, 2))
    share = np.mean([is_reserved(a, b, 0) for a, b in pairs])
    assert abs(share - 1 / 16) < 5 * np.sqrt(1 / 16 * 15 / 16 / len(pairs))
    assert all(is_reserved(a, b, 3) == is_reserved(b, a, 3) for a, b in pairs[:300])
    assert [is_reserved(a, b, 3) for a, b in pairs[:300]] != [is_reserved(a, b, 4) for a, b in pairs[:300]]


def test_holding_out_hardly_changes_the_lengths():
    large = Vocabulary(ROLES, tuple(tuple(f"q{step}x{i}z" for i in range(300)) for step in range(6)))
    corpus = compose_corpus(large, train=3000, held_out=1000, seed=1003)  # large: distinct prompts of 2 parts abound
    free = [len(parts(prompt)) for prompt in compose_prompts(large, 3000, 1003)]
    train = [len(parts(prompt)) for prompt in corpus.train]
    held_out = [len(parts(prompt)) for prompt in corpus.held_out]
    error = np.std(free) * np.sqrt(2 / 3000)
    assert abs(np.mean(train) - np.mean(free)) < 5 * error
    assert min(held_out) >= 2
    longer = [length for length in free if length > 1]
    assert abs(np.mean(held_out) - np.mean(longer)) < 5 * np.std(longer) * np.sqrt(1 / 1000 + 1 / 3000)


def test_the_built_in_vocabulary_reads_like_prompts():
    vocabulary = load_vocabulary()
    prompts = compose_prompts(vocabulary, 3000, 1004)
    words = [len(prompt.split()) for prompt in prompts]
    assert 8 < np.mean(words) < 18 and max(words) < 50
    for connective in ("a photo of ", " of a", ", with ", " and ", " in the style of a", " style", " mood", " lit by "):
        assert any(connective in prompt for prompt in prompts), connective


def test_small_and_unknown_vocabularies():
    pair = Vocabulary(("1", "2"), (("fox", "owl", "bear"), ("dawn", "dusk", "noon")))
    seed = next(
        seed for seed in range(100) if sum(is_reserved(a, b, seed) for a in pair.tokens[0] for b in pair.tokens[1]) == 1
    )
    corpus = compose_corpus(pair, train=50, held_out=1000, seed=seed)
    assert 1 <= len(corpus.held_out) < 1000  # all that there are, and the corpus says how many
    assert all(re.fullmatch(r"[a-z]+(, [a-z]+)*", prompt) for prompt in corpus.train)  # unknown steps: commas only
    assert set(compose_prompts(Vocabulary(("only",), (("fox",),)), 5, 0)) == {"fox"}
    with pytest.raises(ValueError, match="enough combinations"):
        compose_corpus(Vocabulary(("only",), (("fox",),)), train=5, held_out=1, seed=0)
    with pytest.raises(ValueError, match="count >= 1"):
        compose_prompts(pair, 0, 0)
    with pytest.raises(ValueError, match="seed >= 0"):
        compose_prompts(pair, 1, -1)


def test_connectives_by_role_and_words():
    assert role_of("2-ambient") == "ambient" and role_of("Lighting") == "lighting" and role_of("mood") is None
    assert with_article("owl") == "an owl" and with_article("fox") == "a fox" and with_article("the fox") == "the fox"
    assert with_article("hour of gold") == "an hour of gold" and with_article("unicorn") == "a unicorn"
    assert with_article("80mm view") == "an 80mm view" and with_article("one line") == "one line"
    templates = dict(joins("lighting", "dozens of votive candles"))
    assert ", {}" in templates and " lit by {}" in templates
    assert " lit by {a}" in dict(joins("lighting", "cloud-veiled moon"))
    assert dict(joins("composition", "looking straight into the camera")).keys() == {", {}"}
    assert " {}" in dict(joins("composition", "from the head of the table"))
    assert " in {a} mood" in dict(joins("ambient", "sultry"))
    assert " on {a}" in dict(joins("ambient", "quiet evening"))
    assert " with {}" in dict(joins("detail", "lace cuffs")) and " with {}" not in dict(joins("detail", "masterpiece"))
    assert openings("style", "mechanical pencil sketch") and not openings("style", "sashiko")
    assert not openings("detail", "mechanical pencil sketch")
