"""Sampling and scoring of prompts: against enumeration of all outcomes, and against the plain loop."""

import math
from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from edpbrl_gym.language.model import load_language_model
from edpbrl_gym.language.sampling import invert_distribution, log_probabilities, sample_prompts
from edpbrl_gym.language.words import WHITESPACE, WordRules, word_prefixes
from tests.helpers.tiny_language_model import write_tiny_model

TOKENS = ("a", "b", " ", " a", "b a")


@pytest.fixture(scope="module")
def tiny(gpt2):
    return load_language_model(gpt2, device="cpu")


@pytest.fixture(scope="module")
def enumerable(tmp_path_factory):
    """Five tokens and EOS; "b a" has a space in its middle."""
    return load_language_model(write_tiny_model(tmp_path_factory.mktemp("few"), tokens=TOKENS, seed=4), device="cpu")


def seeded(seed):
    return torch.Generator().manual_seed(seed)


def next_probabilities(language, given, temperature):
    with torch.no_grad():
        logits = language.model(input_ids=torch.tensor([given])).logits[0, -1].double()
    return torch.softmax(logits / temperature, dim=0).tolist()


def outcomes(language, *, words, max_tokens, temperature=1.0, prefix=""):
    """Every outcome (text tokens, stopped) with its probability, by recursion over texts and ``str.split``."""
    end = language.tokenizer.eos_token_id
    start = list(language.start_tokens(prefix))
    found = {}

    def visit(tokens, probability):
        text = prefix + "".join(TOKENS[token] for token in tokens)
        full = len(text.split()) == words and text != text.rstrip()
        if len(tokens) == max_tokens or full:
            found[tokens, False] = probability
            return
        stop = 0.0
        for token, chance in enumerate(next_probabilities(language, [*start, *tokens], temperature)):
            if token == end or len((text + TOKENS[token]).split()) > words:
                stop += chance
            else:
                visit((*tokens, token), probability * chance)
        found[tokens, True] = probability * stop

    visit((), 1.0)
    return found


def keys(samples):
    rows = zip(samples.tokens.tolist(), samples.lengths.tolist(), samples.stopped.tolist(), strict=True)
    return [(tuple(row[: length - stop]), stop) for row, length, stop in rows]


CASES = [
    {"words": 1, "max_tokens": 3},
    {"words": 2, "max_tokens": 4, "temperature": 0.7},
    {"words": 2, "max_tokens": 3, "temperature": 2.0, "prefix": "ab"},
    {"words": 3, "max_tokens": 3, "prefix": "a "},
]


@pytest.mark.parametrize("case", CASES)
def test_all_outcomes_sum_to_one_and_are_drawn_as_often_as_they_should(enumerable, case):
    expected = outcomes(enumerable, **case)
    assert math.isclose(sum(expected.values()), 1.0, abs_tol=1e-9)
    samples = sample_prompts(enumerable, 6000, generator=seeded(1000), batch_size=3000, **case)
    counts = Counter(keys(samples))
    assert set(counts) <= set(expected)
    common = [key for key, chance in expected.items() if 6000 * chance >= 5]
    observed = np.array([*(counts[key] for key in common), 0])
    observed[-1] = 6000 - observed.sum()
    chances = np.array([*(expected[key] for key in common), 0.0])
    chances[-1] = 1.0 - chances.sum()
    if chances[-1] < 1e-9:
        observed, chances = observed[:-1], chances[:-1] / chances[:-1].sum()
    assert stats.chisquare(observed, 6000 * chances).pvalue > 0.01


@pytest.mark.parametrize("case", CASES)
def test_the_score_is_the_log_probability_of_the_outcome(enumerable, case):
    expected = outcomes(enumerable, **case)
    samples = sample_prompts(enumerable, 300, generator=seeded(1001), **case)
    wanted = np.log([expected[key] for key in keys(samples)])
    np.testing.assert_allclose(samples.log_probabilities.sum(dim=1).numpy(), wanted, atol=2e-5)
    np.testing.assert_allclose(log_probabilities(enumerable, samples).sum(dim=1).detach().numpy(), wanted, atol=2e-5)


@pytest.mark.parametrize("batch_size", [1, 40])
def test_draws_do_not_depend_on_the_batch_size(tiny, batch_size):
    case = {"words": 3, "max_tokens": 16, "temperature": 0.8}
    one, other = (sample_prompts(tiny, 40, generator=seeded(5), batch_size=b, **case) for b in (13, batch_size))
    for name in ("tokens", "lengths", "stopped", "num_words", "inside"):
        assert torch.equal(getattr(one, name), getattr(other, name)), name
    assert one.texts == other.texts
    torch.testing.assert_close(one.log_probabilities, other.log_probabilities, atol=1e-4, rtol=0)
    again = sample_prompts(tiny, 40, generator=seeded(6), batch_size=batch_size, **case)
    assert again.texts != one.texts


def test_sampling_equals_the_plain_loop(tiny):
    """Without cache, one prompt at a time, words by ``str.split`` of the tokenizer's own decoding."""
    end, words, limit = tiny.tokenizer.eos_token_id, 3, 12
    samples = sample_prompts(tiny, 12, words=words, max_tokens=limit, generator=seeded(9), prefix="a city")
    uniforms = torch.rand((12, limit), generator=seeded(9), dtype=torch.float64)
    prefix = list(tiny.start_tokens("a city"))
    for row in range(12):
        tokens = []
        while len(tokens) < limit:
            chances = np.array(next_probabilities(tiny, prefix + tokens, 1.0))
            token = int(np.searchsorted(np.cumsum(chances), float(uniforms[row, len(tokens)]), side="right"))
            data = tiny.rules.data([*tokens, token])
            full = b"a city" + data
            if token == end or len(full.split()) > words:
                break
            tokens.append(token)
            if len(full.split()) == words and full[-1:].isspace():
                break
        assert samples.tokens[row, : len(tokens)].tolist() == tokens
        assert int(samples.lengths[row] - samples.stopped[row].long()) == len(tokens)
        assert samples.texts[row] == tiny.tokenizer.decode(prefix[1:] + tokens).strip(WHITESPACE)


@pytest.mark.parametrize("training", [False, True])
def test_teacher_forcing_gives_the_probabilities_of_the_draws(tiny, training):
    """Also for a model left in training mode: dropout is off while sampling and scoring, and on again after."""
    samples = sample_prompts(tiny, 50, words=4, max_tokens=20, temperature=1.3, generator=seeded(11), batch_size=16)
    tiny.model.train(training)
    try:
        scored = log_probabilities(tiny, samples)
        assert tiny.model.training is training
    finally:
        tiny.model.eval()
    assert scored.shape == samples.tokens.shape and scored.dtype == torch.float32 and scored.requires_grad
    torch.testing.assert_close(scored.detach().double(), samples.log_probabilities, atol=2e-5, rtol=0)
    assert torch.all(scored[~samples.mask] == 0) and torch.all(scored[samples.mask] <= 1e-6)
    torch.testing.assert_close(log_probabilities(tiny, samples, batch_size=7), scored, atol=1e-5, rtol=0)
    scored.sum().backward()
    assert all(torch.isfinite(parameter.grad).all() for parameter in tiny.model.parameters())
    tiny.model.zero_grad(set_to_none=True)


def test_an_ended_prefix_has_nothing_to_draw(enumerable):
    samples = sample_prompts(enumerable, 3, words=1, max_tokens=4, generator=seeded(0), prefix="ab ")
    assert samples.texts == ["ab"] * 3 and samples.lengths.tolist() == [0, 0, 0]
    assert log_probabilities(enumerable, samples).sum().item() == 0.0


def test_bad_arguments_are_named(tiny):
    case = {"words": 3, "max_tokens": 8, "generator": seeded(0)}
    with pytest.raises(ValueError, match="prefix of at most 3 words, got 4"):
        sample_prompts(tiny, 2, prefix="a b c d", **case)
    with pytest.raises(ValueError, match="64 tokens of context, got 64|64 tokens of context, got 65"):
        sample_prompts(tiny, 2, words=3, max_tokens=65, generator=seeded(0))
    with pytest.raises(ValueError, match="temperature"):
        sample_prompts(tiny, 2, temperature=0.0, **case)
    with pytest.raises(TypeError, match="torch.Generator on the CPU"):
        sample_prompts(tiny, 2, words=3, max_tokens=8, generator=np.random.default_rng(0))


def test_inversion_never_draws_what_has_no_probability():
    chances = torch.tensor([[0.0, 0.25, 0.0, 0.75, 0.0]], dtype=torch.float64)
    largest = 1.0 - 2.0**-53
    for uniform, index in [(0.0, 1), (0.2499999, 1), (0.25, 3), (0.9, 3), (largest, 3)]:
        assert invert_distribution(chances, torch.tensor([uniform], dtype=torch.float64)).item() == index
    short = chances * (1 - 1e-9)  # a sum beside 1
    assert invert_distribution(short, torch.tensor([largest], dtype=torch.float64)).item() == 3


TEXT = st.text(alphabet="ab,. \t\n\u00a0\u00e9\u2003", max_size=30)


@given(TEXT, st.integers(1, 6))
def test_word_prefixes(text, words):
    found = text.translate({ord(space): " " for space in WHITESPACE}).split(" ")
    found = [word for word in found if word]
    prefixes = word_prefixes(text, words)
    assert len(prefixes) == words
    for position, prefix in enumerate(prefixes):
        assert prefix == prefix.strip(WHITESPACE) and prefix in text
        split = [word for word in prefix.translate({ord(space): " " for space in WHITESPACE}).split(" ") if word]
        assert split == found[: position + 1]
    if not found:
        assert prefixes == [""] * words


PIECES = [b"a", b" a", b"a ", b" ", b"\n\n", b"b a", b" a b c ", b"\xc3", b"\xa9", b"<end>"]


@settings(max_examples=200)
@given(st.lists(st.integers(0, 8), max_size=8), st.integers(1, 4))
def test_rules_follow_the_text(tokens, words):
    rules = WordRules(PIECES, eos=9)
    num_words, inside = 0, False
    for position, token in enumerate([*tokens, None]):
        data = rules.data(tokens[:position])
        assert rules.state(tokens[:position]) == (num_words, inside)
        assert (num_words, inside) == (len(data.split()), bool(data) and not data[-1:].isspace())
        stops = rules.stop_mask(num_words, inside, words)
        assert stops[9] and rules.legal_mask(num_words, inside, words)[9]
        for other in range(9):
            over = len((data + PIECES[other]).split()) > words
            assert stops[other] == over and rules.legal_mask(num_words, inside, words)[other] != over
        if num_words <= words and not rules.complete(num_words, inside, words):
            assert rules.legal_mask(num_words, inside, words)[rules.always_legal].all()
        if token is not None:
            num_words, inside = (value.item() for value in rules.advance(num_words, inside, token))
