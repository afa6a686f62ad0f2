"""Every credit's gradient against the exact one, where all prompts can be enumerated."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from edpbrl_gym.language.credit import CREDITS, Credit, Rewards
from edpbrl_gym.language.objective import TruncatedObjective

TOKENS, WORDS, DIMENSION, REGULARIZATION = 3, 2, 4, 0.1


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

    def gradients(self, credit, batches, samples, seed=1):
        """REINFORCE gradients of many batches of M meta-samples, (batches, K, parameters)."""
        rng = np.random.default_rng(seed)
        shape = (batches, samples, self.episodes)
        drawn = [rng.choice(len(self.prompts), size=shape, p=p) for p in self.probabilities]
        prompts = np.stack(drawn, axis=-1)
        objective = self.objective(prompts.reshape(-1, *prompts.shape[2:]))
        found = Rewards.of(objective)
        parts = (found.values, found.gains, found.contributions)
        split = [part.reshape(batches, samples, *part.shape[1:]) for part in parts]
        weights = np.array([credit.weights(Rewards(*batch, found.sizes)) for batch in zip(*split, strict=True)])
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
    credit = Credit(name)
    gradients = model.gradients(credit, 12_000, samples)
    factor = (samples - 1) / samples if name == "batch_mean" else 1.0
    error, standard = deviation(gradients / factor, exact)
    assert standard < 0.08  # precise enough to see a wrong factor
    assert error < 3 * standard
    z = (gradients.mean(axis=0) / factor - exact) / (gradients.std(axis=0) / factor / np.sqrt(len(gradients)) + 1e-12)
    assert np.abs(z).max() < 4.5


def test_the_batch_mean_is_too_short_by_its_factor():
    model = TableModel(2, 1)
    error, standard = deviation(model.gradients(Credit("batch_mean"), 12_000, 2), model.exact_gradient())
    assert error > 0.5 - 3 * standard > 3 * standard
    assert error < 0.5 + 3 * standard


def test_the_exact_gradient_is_that_of_finite_differences():
    """Of the expected objective under shifted logits (importance weights of all outcomes)."""
    model = TableModel(2, 1)
    outcomes = np.array(list(itertools.product(range(9), repeat=2)))
    values = model.objective(outcomes[:, None]).values

    def expected(policy, index, step):
        probabilities = model.probabilities.copy()
        logits = np.log(probabilities[policy])
        if index < TOKENS:
            logits = logits + step * (model.prompts[:, 0] == index)
            probabilities[policy] = np.exp(logits) / np.exp(logits).sum()
        else:
            x, y = divmod(index - TOKENS, TOKENS)
            inside = model.prompts[:, 0] == x
            mass = probabilities[policy][inside].sum()
            changed = np.exp(logits + step * (model.prompts[:, 1] == y))[inside]
            probabilities[policy, inside] = changed / changed.sum() * mass
        return (probabilities[[0, 1], outcomes].prod(axis=1) * values).sum()

    exact = model.exact_gradient()
    for policy, index in itertools.product(range(2), range(12)):
        slope = (expected(policy, index, 1e-5) - expected(policy, index, -1e-5)) / 2e-5
        assert exact[policy, index] == pytest.approx(slope, abs=1e-8)


def test_a_baseline_that_depends_on_the_token_is_seen():
    """The check can fail: a marginal credit that also takes off what the prompt itself brings is biased."""

    class Wrong(Credit):
        def weights(self, rewards):
            return super().weights(rewards) - 0.5 * rewards.contributions[..., :1]

    model = TableModel(2, 2)
    error, standard = deviation(model.gradients(Wrong("marginal"), 12_000, 4), model.exact_gradient())
    assert error > 3 * standard


def rewards(samples=3, seed=0):
    rows = np.random.default_rng(seed).normal(size=(samples, 2, 3, 4, 5))
    return Rewards.of(TruncatedObjective(rows, 1.0))


def test_leave_one_out_is_the_scaled_batch_mean():
    found = rewards()
    batch, loo = Credit("batch_mean").weights(found), Credit("leave_one_out").weights(found)
    np.testing.assert_allclose(loo, batch * 3 / 2, rtol=1e-12)
    for m in range(3):
        expected = found.values[m] - np.delete(found.values, m).mean()
        np.testing.assert_allclose(loo[m], expected, rtol=1e-12)


def test_marginal_credits_are_the_plain_loop():
    found = rewards()
    whole, causal = Credit("marginal").weights(found), Credit("marginal_causal").weights(found)
    later = Credit("causal").weights(found)
    for m, t, q, h in np.ndindex(causal.shape):
        others = [i for i in range(3) if i != m]
        part = found.contributions
        added = part[m, t, q, h] - part[others, :, q, h].mean()
        assert causal[m, t, q, h] == pytest.approx(added, rel=1e-9, abs=1e-12)
        assert whole[m, t, q, h] == pytest.approx(part[m, t, q, 0] - part[others, :, q, 0].mean(), rel=1e-9)
        assert later[m, t, q, h] == pytest.approx(
            found.gains[m, h] - found.gains[others, h].mean(), rel=1e-9, abs=1e-12
        )


def test_the_moving_average_knows_only_the_past():
    credit = Credit("moving_average", decay=0.5)
    first, second, third = rewards(seed=1), rewards(seed=2), rewards(seed=3)
    np.testing.assert_allclose(credit.weights(first), Credit("leave_one_out").weights(first))
    average = first.values.mean()
    np.testing.assert_allclose(credit.weights(second)[:, 0, 0, 0], second.values - average)
    average = 0.5 * average + 0.5 * second.values.mean()
    again = Credit("moving_average", decay=0.5)
    again.load_state(credit.state())
    np.testing.assert_allclose(again.weights(third)[:, 0, 0, 0], third.values - average)
    assert Credit("marginal").state() == {"average": None}


@pytest.mark.parametrize("name", CREDITS)
def test_only_the_parts_of_the_credit_are_evaluated(name):
    rows = np.random.default_rng(0).normal(size=(3, 2, 3, 4, 5))
    objective, credit = TruncatedObjective(rows, 1.0), Credit(name)
    few = Rewards.of(objective, credit.parts)
    evaluated = {part for part in ("gains", "contributions") if part in vars(objective)}
    assert evaluated == {"causal": {"gains"}, "marginal": {"contributions"}, "marginal_causal": {"contributions"}}.get(
        name, set()
    )
    found = credit.weights(few)
    assert found.shape == (3, 2, 3, 5)
    np.testing.assert_array_equal(found, Credit(name).weights(rewards()))
    if credit.parts:
        with pytest.raises(ValueError, match=f"rewards with {credit.parts[0]}, got some without"):
            Credit(name).weights(Rewards.of(objective, ()))


@pytest.mark.parametrize("name", ["batch_mean", "leave_one_out", "moving_average"])
def test_one_meta_sample_has_no_baseline(name):
    with pytest.raises(ValueError, match="at least 2 meta-samples"):
        Credit(name).weights(rewards(1))


def test_one_meta_sample_has_marginal_credits():
    found = rewards(1)
    np.testing.assert_array_equal(Credit("marginal_causal").weights(found), found.contributions)


def test_marginal_credit_lowers_the_variance():
    """With the paper's K = 4, T = 8, M = 8 a prompt's own contribution is a small part of the objective (-s prints)."""
    model = TableModel(4, 8)
    variance = {name: model.gradients(Credit(name), 150, 8, seed=1001).var(axis=0).sum() for name in CREDITS}
    for name, own in variance.items():
        print(f"{name}: variance {own:.4g}, batch_mean's is {variance['batch_mean'] / own:.2f} times as high")
    assert variance["marginal"] < variance["batch_mean"] / 4
    assert variance["marginal_causal"] < variance["marginal"]
    # the same estimate but for its length
    assert variance["leave_one_out"] == pytest.approx(variance["batch_mean"] * (8 / 7) ** 2)


def test_causal_credit_lowers_the_variance_where_words_matter_more():
    model = TableModel(2, 1)
    variance = {name: model.gradients(Credit(name), 1500, 4).var(axis=0).sum() for name in CREDITS}
    assert variance["causal"] < variance["leave_one_out"]
    assert variance["marginal_causal"] < variance["marginal"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [({"name": "best"}, "batch_mean.*got 'best'"), ({"decay": 1.0}, r"\[0, 1\)"), ({"decay": -0.1}, ">= 0")],
)
def test_wrong_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        Credit(**arguments)
