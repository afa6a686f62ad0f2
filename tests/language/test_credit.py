"""Every credit's gradient against the exact one, where all prompts can be enumerated."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from edpbrl_gym.language.gradient import credit_weights
from edpbrl_gym.language.objective import TruncatedObjective
from edpbrl_gym.language.settings import CREDITS

TOKENS, WORDS, DIMENSION, REGULARIZATION = 3, 2, 4, 0.1
BATCHES = 4000


class TableModel:
    """K policies over prompts of two words: softmax tables, token = word; all prompts can be listed.

    Prompt i is (i // TOKENS, i % TOKENS). Parameters of a policy: logits of the first word (V), then of the second
    given the first (V, V), flat.
    """

    def __init__(self, policies: int, episodes: int, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        self.policies, self.episodes = policies, episodes
        self.prompts = np.array(list(itertools.product(range(TOKENS), repeat=WORDS)))
        first = softmax(rng.normal(size=(policies, TOKENS)))
        second = softmax(rng.normal(size=(policies, TOKENS, TOKENS)))
        a, b = self.prompts.T
        self.probabilities = first[:, a] * second[:, a, b]  # (K, prompts)
        # score of each token of each prompt, (K, prompts, WORDS, parameters)
        count = TOKENS + TOKENS**2
        self.scores = np.zeros((policies, len(self.prompts), WORDS, count))
        for q, (i, (x, y)) in itertools.product(range(policies), enumerate(self.prompts)):
            self.scores[q, i, 0, :TOKENS] = np.eye(TOKENS)[x] - first[q]
            block = slice(TOKENS + TOKENS * x, TOKENS + TOKENS * (x + 1))
            self.scores[q, i, 1, block] = np.eye(TOKENS)[y] - second[q, x]
        one, two = rng.normal(size=(TOKENS, DIMENSION)), rng.normal(size=(TOKENS, TOKENS, DIMENSION))
        self.embeddings = np.stack([one[a], two[a, b]], axis=1)  # (prompts, WORDS, d)

    def objective(self, prompts):
        """Of prompt indices (M, T, K)."""
        return TruncatedObjective(self.embeddings[prompts], REGULARIZATION)

    def exact_gradient(self):
        """d E[L] / d parameters by enumeration of all T K prompts, (K, parameters)."""
        shape = (self.episodes, self.policies)
        outcomes = np.array(list(itertools.product(range(len(self.prompts)), repeat=self.episodes * self.policies)))
        outcomes = outcomes.reshape(-1, *shape)
        lane = np.arange(self.policies)
        weight = self.probabilities[lane, outcomes].prod(axis=(1, 2)) * self.objective(outcomes).values
        assert self.probabilities[lane, outcomes].prod(axis=(1, 2)).sum() == pytest.approx(1.0)
        return np.einsum("n,ntqjp->qp", weight, self.scores[lane, outcomes])

    def gradients(self, weigh, batches, samples, seed=1):
        """REINFORCE gradients of many batches of M meta-samples, (batches, K, parameters)."""
        rng = np.random.default_rng(seed)
        shape = (batches, samples, self.episodes)
        drawn = [rng.choice(len(self.prompts), size=shape, p=p) for p in self.probabilities]
        prompts = np.stack(drawn, axis=-1)
        weights = np.array([weigh(self.objective(batch)) for batch in prompts])
        scores = self.scores[np.arange(self.policies), prompts]  # (batches, M, T, K, WORDS, parameters)
        # token j is drawn when j words are complete
        return np.einsum("bmtqj,bmtqjp->bqp", weights[..., :WORDS], scores) / samples


def softmax(logits):
    exponentials = np.exp(logits)
    return exponentials / exponentials.sum(axis=-1, keepdims=True)


def deviation(gradients, exact):
    """Relative error of the mean gradient, and its Monte-Carlo standard error."""
    norm = np.linalg.norm(exact)
    error = np.linalg.norm(gradients.mean(axis=0) - exact) / norm
    return error, np.sqrt(gradients.var(axis=0, ddof=1).sum() / len(gradients)) / norm


@pytest.fixture(scope="module", params=[(2, 1), (2, 2), (3, 1)], ids=lambda size: f"K={size[0]},T={size[1]}")
def model(request):
    return TableModel(*request.param)


@pytest.mark.parametrize("name", CREDITS)
def test_the_mean_of_the_gradient_is_the_exact_gradient(model, name):
    samples = 4
    exact = model.exact_gradient()
    gradients = model.gradients(lambda objective: credit_weights(objective, name), BATCHES, samples)
    factor = (samples - 1) / samples if name == "batch_mean" else 1.0
    error, standard = deviation(gradients / factor, exact)
    assert standard < 0.14  # precise enough to see a wrong factor
    assert error < 3 * standard
    z = (gradients.mean(axis=0) / factor - exact) / (gradients.std(axis=0) / factor / np.sqrt(len(gradients)) + 1e-12)
    assert np.abs(z).max() < 4.5


def an_objective(samples=3):
    return TruncatedObjective(np.random.default_rng(0).normal(size=(samples, 2, 3, 4, 5)), 1.0)


def test_credits_are_the_plain_loop():
    objective = an_objective()
    paper, causal = credit_weights(objective, "batch_mean"), credit_weights(objective, "marginal_causal")
    assert paper.shape == causal.shape == (3, 2, 3, 5)
    part = objective.contributions
    for m, t, q, h in np.ndindex(causal.shape):
        others = [i for i in range(3) if i != m]
        expected = part[m, t, q, h] - part[others, :, q, h].mean()
        assert causal[m, t, q, h] == pytest.approx(expected, rel=1e-9, abs=1e-12)
        assert paper[m, t, q, h] == pytest.approx(objective.values[m] - objective.values.mean(), rel=1e-12)


def test_one_meta_sample_and_unknown_credits():
    objective = an_objective(1)
    np.testing.assert_array_equal(credit_weights(objective, "marginal_causal"), objective.contributions)
    with pytest.raises(ValueError, match="at least 2 meta-samples"):
        credit_weights(objective, "batch_mean")
    with pytest.raises(ValueError, match="batch_mean.*got 'best'"):
        credit_weights(objective, "best")


def test_the_marginal_credit_lowers_the_variance():
    """With the paper's K = 4, T = 8, M = 8 a prompt's own contribution is a small part of the objective."""
    model = TableModel(4, 8)
    variance = {}
    for name in CREDITS:
        gradients = model.gradients(lambda objective, name=name: credit_weights(objective, name), 150, 8, seed=1001)
        variance[name] = gradients.var(axis=0).sum()
    assert variance["marginal_causal"] < variance["batch_mean"] / 8
