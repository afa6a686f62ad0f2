"""The gradient of REINFORCE on a GPT-2 against the exact one, by enumeration of all prompts, and the plain loop."""

import itertools

import numpy as np
import pytest

from edpbrl_gym.language.model import load_language_model
from edpbrl_gym.language.objective import d_objective
from edpbrl_gym.language.policies import make_policies
from edpbrl_gym.language.rollouts import embed
from edpbrl_gym.language.sampling import word_prefixes
from edpbrl_gym.language.settings import CREDITS, ReinforceSettings
from edpbrl_gym.language.trainer import Trainer
from tests.helpers.tiny_language_model import write_tiny_model
from tests.helpers.tiny_reinforce import HashEncoder, tiny_policies, tiny_settings

TOKENS = ("x", " a", " b")
WORDS, MOST, REGULARIZATION = 2, 3, 0.1


@pytest.fixture(scope="module")
def enumerable(tmp_path_factory):
    """A model of three text tokens: all its prompts of two words and three tokens can be listed."""
    return write_tiny_model(tmp_path_factory.mktemp("enumerable"), tokens=TOKENS, layers=1, width=8, spread=0.7)


def outcomes(language):
    """All (text, log-probability with gradient) of a model over TOKENS and END, by walking the tree of tokens."""
    import torch

    end = len(TOKENS)
    found = []

    def words(tokens):
        return len("".join(TOKENS[token] for token in tokens).split())

    def walk(tokens, log):
        if len(tokens) == MOST:
            found.append((tokens, log))  # the cut is forced
            return
        scores = language.model(input_ids=torch.tensor([[end, *tokens]])).logits[0, -1].log_softmax(0)
        stops = [end] + [token for token in range(end) if words((*tokens, token)) > WORDS]
        found.append((tokens, log + scores[stops].logsumexp(0)))
        for token in set(range(end)) - set(stops):
            walk((*tokens, token), log + scores[token])

    walk((), torch.zeros(()))
    texts = ["".join(TOKENS[token] for token in tokens).strip() for tokens, _ in found]
    return texts, torch.stack([log for _, log in found])


def exact_gradient(policies, encoder, kl_weight):
    """Gradient of E[L] - beta sum_q KL(p_q || p_base) at T = 1, K = 2 over all pairs of prompts, flat."""
    import torch

    with policies.base_model() as language, torch.no_grad():
        texts, base = outcomes(language)
    rows = embed(encoder, [prefix for text in texts for prefix in word_prefixes(text, WORDS)])
    rows = rows.reshape(len(texts), WORDS, -1)
    pairs = np.array(list(itertools.product(range(len(texts)), repeat=2)))
    values = torch.from_numpy(d_objective(rows[pairs][:, None], REGULARIZATION))
    logs = []
    for q in range(2):
        with policies.policy(q) as language:
            logs.append(outcomes(language)[1].double())
    assert all(float(log.detach().exp().sum()) == pytest.approx(1.0, abs=1e-6) for log in logs)
    expected = ((logs[0][pairs[:, 0]] + logs[1][pairs[:, 1]]).exp() * values).sum()
    divergences = sum((log.exp() * (log - base)).sum() for log in logs)
    found = torch.autograd.grad(expected - kl_weight * divergences, policies.parameters())
    return torch.cat([part.flatten() for part in found]).numpy(), float(divergences.detach()) / 2


@pytest.mark.parametrize(
    ("credit", "kl_weight"),
    [(name, 0.0) for name in CREDITS] + [("marginal_causal", 3.0)],
)
def test_the_gradient_is_exact_on_average(enumerable, credit, kl_weight):
    import torch

    policies = make_policies(load_language_model(enumerable, device="cpu"), 2, rank=1, noise=2.0, seed=3)
    encoder = HashEncoder()
    exact, divergence = exact_gradient(policies, encoder, kl_weight)
    settings = ReinforceSettings(
        meta_samples=600, episodes=1, words=WORDS, max_tokens=MOST, regularization=REGULARIZATION, credit=credit,
        kl_weight=kl_weight, seed=1001, batch_size=600,
    )  # fmt: skip
    trainer = Trainer(policies, encoder, settings)
    found, divergences = [], []
    for trainer.iteration in range(20):
        trainer.optimiser.zero_grad(set_to_none=True)
        divergences.append(trainer.gradient()[1])
        found.append(-torch.cat([p.grad.flatten() for p in policies.parameters()]).numpy())
    gradients = np.array(found) * (600 / 599 if credit == "batch_mean" else 1.0)
    error = np.linalg.norm(gradients.mean(axis=0) - exact)
    standard = np.sqrt(gradients.var(axis=0, ddof=1).sum() / len(gradients))
    assert standard < 0.15 * np.linalg.norm(exact)
    assert error < 3 * standard
    if kl_weight:
        assert divergence > 0.002
        spread = np.std(divergences) / np.sqrt(len(divergences))
        assert np.mean(divergences) == pytest.approx(divergence, abs=4 * spread)


def gradient(policies, settings, encoder=None):
    import torch

    trainer = Trainer(policies, HashEncoder() if encoder is None else encoder, settings)
    trainer.gradient()
    return torch.cat([p.grad.flatten() for p in policies.parameters()])


def test_batches_do_not_matter(gpt2):
    import torch

    one = gradient(tiny_policies(gpt2), tiny_settings(credit="marginal_causal", kl_weight=0.1))
    two = gradient(tiny_policies(gpt2), tiny_settings(credit="marginal_causal", kl_weight=0.1, batch_size=3))
    torch.testing.assert_close(one, two, rtol=1e-3, atol=1e-6)
