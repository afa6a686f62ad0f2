"""Features of phrases: nearly orthogonal directions, in which effects of tokens are linear."""

import numpy as np
import pytest

from edpbrl_gym.estimation import GaussianPrior, estimate
from edpbrl_gym.features import load_encoder
from edpbrl_gym.features.joined import blocks_of
from edpbrl_gym.features.phrases import PhrasesEncoder
from edpbrl_gym.vocabulary import load_vocabulary


def test_a_prompt_is_the_sum_of_its_phrases():
    encoder = PhrasesEncoder()
    whole, first, second = encoder.encode(["a fox, in the rain", "a fox", "in the rain"]).astype(np.float64)
    np.testing.assert_allclose(whole, (first + second) / np.linalg.norm(first + second), atol=1e-6)
    same = encoder.encode(["In the Rain ,a fox,, a fox"])[0]
    np.testing.assert_allclose(same, whole, atol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(encoder.encode(["", " ,", "x"]), axis=1), 1.0, atol=1e-6)


def test_different_phrases_are_nearly_orthogonal():
    rows = PhrasesEncoder().encode(sorted(set(load_vocabulary("styles").all_tokens))).astype(np.float64)
    cosines = (rows @ rows.T)[np.triu_indices(len(rows), 1)]
    assert np.sqrt(np.square(cosines).mean()) == pytest.approx(384**-0.5, rel=0.1)
    assert np.abs(cosines).max() < 6 * 384**-0.5


def test_effects_of_tokens_are_learnt():
    """A person who likes some phrases, by nothing that their words say."""
    words, rng = load_vocabulary("posters"), np.random.default_rng(0)
    likes = {token: rng.normal() for token in words.all_tokens}
    prompts = [words.prompt([rng.integers(size) for size in words.sizes]) for _ in range(1600)]
    utilities = np.array([sum(likes[phrase] for phrase in prompt.split(", ")) for prompt in prompts])
    rows = PhrasesEncoder().encode(prompts)
    shown = np.arange(1200).reshape(300, 4)
    found = estimate((rows[shown], utilities[shown].argmax(axis=1)), prior=GaussianPrior.isotropic(384, 0.02))
    assert np.corrcoef(rows[1200:] @ found.theta, utilities[1200:])[0, 1] > 0.85


def test_it_is_joined_by_its_name():
    joined = load_encoder("minilm+phrases")
    assert joined.name == "minilm+phrases" and blocks_of(joined) == (384, 384)
    assert load_encoder("phrases").fingerprint == PhrasesEncoder().fingerprint
