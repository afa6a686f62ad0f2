"""Findings F8, F9 and F11 of docs/findings.md at a size that a test can afford; the others stand with their rooms."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from edpbrl_gym.comparisons import Queries
from edpbrl_gym.design import DesignProblem, exact_information, frank_wolfe, make_criterion
from edpbrl_gym.estimation import GaussianPrior, estimate
from edpbrl_gym.likelihood.choice import fisher_information
from edpbrl_gym.mdp import PromptMDP
from edpbrl_gym.oracles import SyntheticUser
from edpbrl_gym.vocabulary import load_vocabulary

SENTENCES = ("a quiet rainy street in soft grey tones", "a cheerful picture book for small children")


@pytest.fixture(scope="module")
def small(minilm):
    """A sub-vocabulary of the built-in training tokens with real features."""
    vocabulary = load_vocabulary().split(seed=0)[0].subset(40, 0)
    return vocabulary, minilm.encode(list(vocabulary.all_tokens)).astype(np.float64)


def test_f8_an_embedding_prior_saves_more_questions_than_anything_else_here(small, minilm):
    """Uniform questions over partial prompts: at T = 10 the informed prior beats ridge 100 at T = 20."""
    vocabulary, features = small
    mdp = PromptMDP(vocabulary.sizes)
    drawn = mdp.sample(mdp.uniform_policy(), 4 * 20, np.random.default_rng(0)).actions.reshape(20, 4, mdp.horizon)
    texts = [[vocabulary.prompt(drawn[t, q, : h + 1]) for q in range(4)] for t in range(20) for h in range(mdp.horizon)]
    embedded = minilm.encode([text for question in texts for text in question]).reshape(len(texts), 4, -1)
    episode, step = np.divmod(np.arange(len(texts)), mdp.horizon)
    queries = Queries(features=embedded, episode=episode, step=step, texts=texts)
    informed = GaussianPrior.from_precision(0.1 * GaussianPrior.from_embeddings(features, power=0.5).precision)

    def error(user: SyntheticUser, episodes: int, prior: GaussianPrior) -> float:
        asked = episode < episodes
        choices = user.answer(queries).choices
        theta = estimate((embedded[asked], choices[asked]), prior=prior).theta
        return 1.0 - float(theta @ user.theta / np.linalg.norm(theta) / np.linalg.norm(user.theta))

    users = [SyntheticUser.from_text(sentence, minilm, mode="argmax") for sentence in SENTENCES]
    ridge = GaussianPrior.isotropic(features.shape[1], 100.0)
    with_prior = np.mean([error(user, 10, informed) for user in users])
    with_ridge = np.mean([error(user, 20, ridge) for user in users])
    assert with_prior < with_ridge


def test_f9_uniform_questions_are_already_close_to_the_certified_bound(small):
    """On a balanced vocabulary there is little for a static design to win."""
    vocabulary, features = small
    mdp = PromptMDP(vocabulary.sizes)
    problem = DesignProblem(
        mdp=mdp, features=features, num_policies=4, episodes=60, regularization=1.0, criterion=make_criterion("D")
    )
    bound = frank_wolfe(problem, max_iterations=40).upper_bound
    uniform = mdp.row_occupancy(mdp.occupancy(mdp.uniform_policy()))
    prior, dimension = np.eye(features.shape[1]), features.shape[1]

    def efficiency(information: np.ndarray) -> float:
        return float(np.exp((np.linalg.slogdet(information + prior)[1] - bound) / dimension))

    expected = {k: efficiency(exact_information(features, np.stack([uniform] * k), 60)) for k in (2, 4)}
    rows = mdp.sample(mdp.uniform_policy(), 240, np.random.default_rng(0)).rows.reshape(60, 4, -1).swapaxes(1, 2)
    realised = efficiency(fisher_information(features[rows].reshape(-1, 4, dimension)))
    assert 0.7 < expected[2] < expected[4] < 1.0
    assert 0.7 < realised < expected[4]


@pytest.mark.parametrize("options", [2, 3, 4, 5])
def test_f11_what_a_full_ranking_carries_at_theta_zero(options):
    """A ranking is a choice of the best among K, then K - 1, ... 2: its information is sum_m (m - 1)/m times S.

    S is the sample covariance of the options; best-of-K carries its first term, best-worst its first two (the worst of
    the other K - 1 is a choice too). Checked by averaging the library's Fisher information over all orders.
    """
    rng = np.random.default_rng(options)
    x = rng.standard_normal((options, 3))
    covariance = np.atleast_2d(np.cov(x, rowvar=False))
    orders = list(itertools.permutations(range(options)))
    stages = {
        size: np.mean([fisher_information(x[None, list(order[:size])]) for order in orders], axis=0)
        for size in range(options, 1, -1)
    }
    for size, information in stages.items():
        np.testing.assert_allclose(information, (size - 1) / size * covariance, atol=1e-12)
    ranking = sum((size - 1) / size for size in range(2, options + 1)) / ((options - 1) / options)
    expected = {2: 1.0, 3: 1.75, 4: 2.5555555555555554, 5: 3.395833333333333}[options]
    assert ranking == pytest.approx(expected)
