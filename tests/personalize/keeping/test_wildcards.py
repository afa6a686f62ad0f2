"""Weighted wildcards: weights by hand, and a reader of the syntax that finds the tokens again."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from edpbrl_gym.personalize.keeping import token_weights, wildcard, write_wildcards
from edpbrl_gym.vocabulary import Vocabulary
from tests.helpers.encoders import CountingEncoder

SIGNS = "{}|$#%\\_:/*!~@0123456789. ab<>\"'é"
texts = st.text(st.sampled_from(SIGNS), min_size=1, max_size=14).filter(
    lambda text: any(sign in "ab<>\"'é0123456789.!~@:" for sign in text.replace("::", ""))
)


def read(line: str) -> list[tuple[float, str]]:
    """The variants of one pair of braces, as the grammar of dynamicprompts 0.31 has them."""
    found = re.fullmatch(r"\{([^{}]*)\}", line)
    assert found, line
    variants = []
    for part in found[1].split("|"):
        weight = re.fullmatch(r"(\d+(?:\.\d+)?)::(.+)", part)
        assert weight, part
        variants.append((float(weight[1]), weight[2]))
    return variants


def test_weights_are_the_mean_probability_of_being_named_the_best():
    features = np.array([[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]])
    draws = np.array([[2.0, 0.0], [0.0, 1.0]])
    one = np.exp([2, 0, 0]) / np.exp([2, 0, 0]).sum()
    other = np.exp([0, 1, 0]) / np.exp([0, 1, 0]).sum()
    assert token_weights(features, draws) == pytest.approx((one + other) / 2)
    assert token_weights(features, draws[0]) == pytest.approx(one)


def test_the_likeliest_tokens_are_written_with_their_weights():
    tokens = ["ink drawing", "watercolor", "pixel art", "oil"]
    assert wildcard(tokens, [0.38, 0.57, 0.04, 0.01]) == "{0.6::watercolor|0.4::ink drawing}"
    assert wildcard(tokens, [0, 1, 0, 0]) == "watercolor"
    assert wildcard(tokens, [1, 1, 1, 1]) == "{0.25::ink drawing|0.25::watercolor|0.25::pixel art|0.25::oil}"
    for bad in ([1, 1], [0, 0, 0, 0], [1, -1, 1, 1], [1, np.nan, 1, 1]):
        with pytest.raises(ValueError, match="weights"):
            wildcard(tokens, bad)


@given(tokens=st.lists(texts, min_size=2, max_size=5))
@example(tokens=["a {red|blue} b", "0.5::watercolor", "2$$a", "100% b // a", "__a__ # b", "/* a */ ${b}", "%{a$$b}"])
def test_no_sign_of_the_syntax_gets_through(tokens):
    variants = read(wildcard(tokens, np.ones(len(tokens))))
    assert len(variants) == len(tokens)
    for token, (weight, text) in zip(tokens, variants, strict=True):
        assert weight == pytest.approx(1 / len(tokens), abs=6e-4)
        assert not re.search(r"[{}|$#%\\]|__|//|/\*|\*/|::", text) and text == " ".join(text.split())
        assert re.sub(r"[^ab<>\"'é\d.!~@]", "", text.replace("percent", "")) == re.sub(r"[^ab<>\"'é\d.!~@]", "", token)


def test_a_token_of_signs_alone_is_refused():
    with pytest.raises(ValueError, match=r"words in it for a wildcard, got '\|\|'"):
        wildcard(["||", "a"], [1, 1])


def test_a_file_for_each_step_with_a_choice_and_one_prompt_with_all(tmp_path):
    vocabulary = Vocabulary(
        ("1 Medium", "1_medium", "prompt", "lumière/../x"),
        (("watercolor", "ink"), ("oil", "clay"), ("calm", "tense"), ("dawn", "noon")),
    ).with_subject("a hut # 3")
    encoder = CountingEncoder(dimension=8)
    theta = np.random.default_rng(0).normal(size=8)
    files = write_wildcards(tmp_path / "new", vocabulary, encoder, theta)
    assert [file.name for file in files] == [
        "1-medium.txt", "1-medium-2.txt", "prompt-2.txt", "lumière-x.txt", "prompt.txt"
    ]  # fmt: skip
    lines = [file.read_text(encoding="utf-8").removesuffix("\n") for file in files]
    assert lines[-1] == ", ".join(["a hut 3", *lines[:-1]])
    for line, tokens in zip(lines, vocabulary.tokens[1:], strict=False):
        likeliest = max(tokens, key=lambda token: encoder.encode([token])[0] @ theta)
        assert read(line)[0][1] == likeliest if line.startswith("{") else line == likeliest
    write_wildcards(tmp_path / "new", vocabulary, encoder, np.zeros(8))
    assert files[0].read_text() == "{0.5::watercolor|0.5::ink}\n"
