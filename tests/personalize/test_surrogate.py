"""The search by a model of the scores: against all prompts of small vocabularies, additive encoders and others."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edpbrl_gym.personalize.differing import most_shared, pick
from edpbrl_gym.personalize.search import best_prompts
from edpbrl_gym.personalize.surrogate import _Model, search_by_model
from edpbrl_gym.vocabulary import SEPARATOR, Vocabulary

DIMENSION = 6


class SumEncoder:
    """Embeds a text as the weighted sum of random embeddings of its tokens, plus a mixing part of the whole text."""

    name, dimension, fingerprint = "sum", DIMENSION, "sum"

    def __init__(self, vocabulary, mixing=0.0, seed=0):
        rng = np.random.default_rng(seed)
        self.rows = {token: rng.normal(size=DIMENSION) for token in vocabulary.all_tokens}
        self.mixing, self.texts = mixing, []

    def encode(self, texts, *, progress=False):
        self.texts.extend(texts)
        return np.array([self.row(text) for text in texts], dtype=np.float32).reshape(-1, DIMENSION)

    def row(self, text):
        words = text.split(SEPARATOR)
        if len(words) == 1:
            return self.rows[text]
        own = np.random.default_rng(list(text.encode())).normal(size=DIMENSION)
        weights = 0.2 + 0.03 * np.arange(len(words))
        return weights @ [self.rows[word] for word in words] + self.mixing * own


def vocabulary_of(sizes):
    steps = tuple(tuple(f"w{step}x{token}" for token in range(size)) for step, size in enumerate(sizes))
    return Vocabulary(tuple(f"step{step}" for step in range(len(sizes))), steps)


def all_scores(vocabulary, encoder, theta):
    prompts = list(itertools.product(*(range(size) for size in vocabulary.sizes)))
    return prompts, encoder.encode([vocabulary.prompt(prompt) for prompt in prompts]).astype(float) @ theta


def best_of_all(vocabulary, encoder, theta, count, shared):
    """The scores of the best prompts that differ, by enumeration."""
    prompts, scores = all_scores(vocabulary, encoder, theta)
    alike = sum(size == 1 for size in vocabulary.sizes)  # steps without a choice are no difference
    return scores[pick(scores, prompts, count, most_shared(shared, vocabulary.horizon - alike) + alike)]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("shared", [0.5, 1.0])
def test_with_an_additive_encoder_it_finds_the_best_prompts_of_thousands(seed, shared):
    vocabulary = vocabulary_of((8, 9, 7, 8))
    encoder = SumEncoder(vocabulary, seed=seed)
    theta = np.random.default_rng(100 + seed).normal(size=DIMENSION)
    encoder.texts.clear()
    found = best_prompts(vocabulary, encoder, theta, count=6, shared=shared, width=20, method="model")
    assert len(set(encoder.texts) - set(vocabulary.all_tokens)) == 60  # of 4,032
    expected = best_of_all(vocabulary, encoder, theta, 6, shared)
    assert [prompt.score for prompt in found] == pytest.approx(expected, abs=1e-6)
    assert [prompt.text for prompt in found] == [vocabulary.prompt(prompt.tokens) for prompt in found]


@settings(max_examples=25)
@given(
    sizes=st.lists(st.integers(1, 4), min_size=1, max_size=4),
    mixing=st.sampled_from([0.0, 1.0]),
    count=st.integers(1, 5),
    shared=st.sampled_from([0.0, 0.5, 1.0]),
    seed=st.integers(0, 1000),
)
def test_a_vocabulary_of_few_prompts_is_searched_completely(sizes, mixing, count, shared, seed):
    vocabulary = vocabulary_of(tuple(sizes))
    encoder = SumEncoder(vocabulary, mixing, seed)
    theta = np.random.default_rng(seed).normal(size=DIMENSION)
    found = best_prompts(
        vocabulary, encoder, theta, count=count, shared=shared, width=300, method="model"
    )  # at least as many texts as prompts
    expected = best_of_all(vocabulary, encoder, theta, count, shared)
    assert [prompt.score for prompt in found] == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("method", ["model", "beam"])
@pytest.mark.parametrize("first", ["bases", "medium"])
def test_a_base_stands_before_every_prompt_in_place_of_the_step_that_says_what_is_shown(first, method):
    vocabulary = vocabulary_of((3, 5, 6))
    vocabulary = Vocabulary((first, *vocabulary.names[1:]), vocabulary.tokens)
    steps = vocabulary.tokens[first == "bases" :]
    encoder = SumEncoder(vocabulary)
    encoder.rows["a gate"] = np.ones(DIMENSION)
    theta = np.random.default_rng(5).normal(size=DIMENSION)
    found = best_prompts(vocabulary, encoder, theta, count=4, base=" a gate ", width=100, method=method)
    texts = [SEPARATOR.join(["a gate", *words]) for words in itertools.product(*steps)]
    scores = encoder.encode(texts).astype(float) @ theta
    prompts = list(itertools.product(*(range(len(step)) for step in steps)))
    best = scores[pick(scores, prompts, 4, most_shared(0.5, len(steps)))]
    assert [prompt.score for prompt in found] == pytest.approx(best, abs=1e-6)
    for prompt in found:
        words = [step[token] for step, token in zip(steps, prompt.tokens, strict=True)]
        assert prompt.text == SEPARATOR.join(["a gate", *words])
    same = best_prompts(vocabulary.with_subject("a gate"), encoder, theta, count=4, width=100, method=method)
    assert [(one.text, one.score) for one in same] == [(one.text, one.score) for one in found]
    assert [one.tokens for one in same] == [(0, *one.tokens) for one in found]


def test_without_additive_structure_the_scores_are_true_and_better_than_chance():
    vocabulary = vocabulary_of((6, 8, 8, 8))
    encoder = SumEncoder(vocabulary, mixing=3.0)
    theta = np.random.default_rng(6).normal(size=DIMENSION)
    found = best_prompts(vocabulary, encoder, theta, count=5, method="model")
    texts = [prompt.text for prompt in found]
    scores = encoder.encode(texts).astype(float) @ theta
    np.testing.assert_allclose([prompt.score for prompt in found], scores, atol=1e-9)
    assert found[0].score > np.quantile(all_scores(vocabulary, encoder, theta)[1], 0.9)


def test_the_same_call_embeds_the_same_texts():
    vocabulary = vocabulary_of((6, 8, 8, 8))
    theta = np.random.default_rng(7).normal(size=DIMENSION)
    encoders = [SumEncoder(vocabulary, mixing=0.5) for _ in range(2)]
    found = [best_prompts(vocabulary, encoder, theta, count=5, method="model") for encoder in encoders]
    assert found[0] == found[1] and encoders[0].texts == encoders[1].texts


def test_only_the_shortlist_is_tried_and_the_progress_is_told():
    vocabulary, steps = vocabulary_of((6, 8, 8, 8)), []
    encoder = SumEncoder(vocabulary)
    theta = np.random.default_rng(8).normal(size=DIMENSION)
    rows = [encoder.encode(step).astype(float) for step in vocabulary.tokens]
    asked = []

    def score(prompts):
        asked.extend(prompts)
        return encoder.encode([vocabulary.prompt(prompt) for prompt in prompts]).astype(float) @ theta

    track = lambda done, total: steps.append((done, total))  # noqa: E731
    arguments = {"count": 3, "texts": 50, "shortlist": 2, "most": 2, "track": track}
    found = search_by_model(rows, theta, score, **arguments)
    assert list(found) == asked and steps == [(16, 16)]  # 2 x 2 x 2 x 2: there are no more
    for step in range(4):
        best = set(np.argsort(-(rows[step] @ theta))[:2].tolist())
        assert {prompt[step] for prompt in found} == best


def test_the_method_is_checked():
    vocabulary = vocabulary_of((2, 2))
    with pytest.raises(ValueError, match=r"method.*beam"):
        best_prompts(vocabulary, SumEncoder(vocabulary), np.ones(DIMENSION), method="magic")


def test_embeddings_of_two_dimensions_are_searched_too():
    """Cosines cut at 0 are then no covariance; the search goes on with a larger jitter."""
    vocabulary = vocabulary_of((30, 30, 30))
    encoder = SumEncoder(vocabulary)
    rng = np.random.default_rng(5)
    encoder.rows = {token: np.append(rng.normal(size=2), np.zeros(DIMENSION - 2)) for token in vocabulary.all_tokens}
    features = [np.array([encoder.rows[token] for token in tokens]) for tokens in vocabulary.tokens]
    model = _Model(features, np.eye(DIMENSION)[0])
    prompts = rng.integers(30, size=(120, 3))
    matrix = model._covariance(prompts, prompts)
    assert np.linalg.eigvalsh(matrix).min() < -model.jitter  # what the test is about
    model.learn({tuple(prompt): float(rng.normal()) for prompt in prompts.tolist()})
    assert all(np.isfinite(table).all() for table in model.tables())
    assert len(best_prompts(vocabulary, encoder, np.eye(DIMENSION)[0], count=3, method="model")) == 3
