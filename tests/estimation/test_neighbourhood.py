"""The prior that looks around the estimate: its parts against their formulas, and whom it helps."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from scipy.special import softmax

from edpbrl_gym.estimation import GaussianPrior, Posterior
from edpbrl_gym.estimation.evidence import fit_posterior, fit_prior
from edpbrl_gym.estimation.neighbourhood import VocabularyPrior
from tests.helpers.clustered_words import clustered_rows, cosine_error

N, D, K = 200, 16, 4


@pytest.fixture(scope="module")
def rows():
    return clustered_rows(0, tokens=N, d=D, clusters=20)


@pytest.fixture
def prior(rows):
    return VocabularyPrior(rows)


def answers(rows, theta, questions, seed):
    rng = np.random.default_rng(seed)
    options = rows[rng.integers(len(rows), size=(questions, K))]
    return options, (options @ theta + rng.gumbel(size=(questions, K))).argmax(axis=1)


@pytest.fixture(scope="module")
def data(rows):
    return answers(rows, 20.0 * rows[7], 30, 1)


def test_without_a_share_it_is_the_fit_under_the_prior_of_all_embeddings(rows, data):
    found = VocabularyPrior(rows, share=0.0, isotropic=0.0).fit(data)
    plain = fit_prior(data, base=VocabularyPrior(rows).base, typical_scale=1.0 / np.square(rows).sum(axis=1).mean())
    np.testing.assert_allclose(found.theta, plain.estimate.theta, rtol=1e-9)
    assert found.base.scale == pytest.approx(plain.scale, rel=1e-9) and found.local == ()
    np.testing.assert_array_equal(found.weights, [1.0])
    alone = fit_posterior(data, base=VocabularyPrior(rows).base, start=plain, draws=256).posterior
    np.testing.assert_allclose(found.posterior.mean, alone.mean, rtol=1e-6)
    np.testing.assert_allclose(found.posterior.precision, alone.precision, rtol=1e-6)


def test_the_local_covariance_is_the_formula(rows):
    tokens = np.array([4, 9, 100])
    prior = VocabularyPrior(rows, share=0.3)
    share = 0.3 * (1.0 - prior.intensity)
    whole = prior.base.covariance
    moment = sum(np.outer(rows[token], rows[token]) for token in tokens)
    moment *= np.trace(whole) / np.trace(moment)
    found = prior.around(tokens)
    np.testing.assert_allclose(found.covariance, (1 - share) * whole + share * moment, rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(np.trace(found.covariance), np.trace(whole))
    np.testing.assert_array_equal(found.mean, np.zeros(D))


def predicted(prior, data, ends):
    """Log probabilities of blocks of answers under the base and the averaged local posterior, by Monte Carlo."""
    totals = np.zeros(2)
    rng = np.random.default_rng(0)
    options, choice = data
    for start, end in itertools.pairwise(ends):
        past = prior.fit((options[:start], choice[:start]))
        sizes = np.array([len(group) for group in past.neighbourhoods])
        shares = softmax([fit.log_evidence for fit in past.local] + np.log(sizes))
        mean = sum(share * fit.estimate.theta for share, fit in zip(shares, past.local, strict=True))
        sharpest = past.local[int(np.argmax(shares))].estimate.precision
        for place, posterior in enumerate((Posterior(mean, sharpest), Posterior.from_estimate(past.base.estimate))):
            thetas = posterior.draws(20_000, rng)
            for options_of, chosen in zip(options[start:end], choice[start:end], strict=True):
                totals[place] += np.log(softmax(thetas @ options_of.T, axis=1)[:, chosen].mean())
    return totals


def test_the_weights_are_posterior_probabilities(prior, data):
    found = prior.fit(data)
    ahead, behind = predicted(prior, data, [4, 6, 9, 14, 21, 30])
    shares = softmax([fit.log_evidence for fit in found.local] + np.log([len(group) for group in found.neighbourhoods]))
    base, isotropic = found.base.log_evidence, found.isotropic.log_evidence
    logs = np.concatenate(
        [
            [np.log(0.8 * 0.7) + base],
            np.log(0.8 * 0.3) + base + ahead - behind + np.log(shares),
            [np.log(0.2) + isotropic],
        ]
    )
    np.testing.assert_allclose(found.weights, softmax(logs), atol=0.01)
    typical = found.base.typical_scale
    alone = fit_prior(data, base=GaussianPrior.isotropic(D, 1.0), typical_scale=typical)
    np.testing.assert_allclose(found.isotropic.estimate.theta, alone.estimate.theta, rtol=1e-6)
    thetas = [fit.estimate.theta for fit in found.parts]
    mixed = sum(weight * theta for weight, theta in zip(found.weights, thetas, strict=True))
    np.testing.assert_allclose(found.theta, mixed)
    np.testing.assert_allclose(found.estimate.theta, mixed)
    assert found.estimate.converged


def test_near_counts_cosines_not_products(rows):
    scaled = rows * np.where(np.arange(N) % 2, 1.0, 10.0)[:, None]
    theta = rows[7] + 0.1 * rows[8]
    cosines = rows @ theta
    np.testing.assert_array_equal(VocabularyPrior(scaled).near(theta, 5), np.argsort(-cosines, kind="stable")[:5])


def test_without_answers_the_estimate_is_zero(prior):
    found = prior.fit((np.empty((0, K, D)), np.empty(0, dtype=int)))
    np.testing.assert_array_equal(found.theta, np.zeros(D))
    assert found.local == ()
    np.testing.assert_allclose(found.posterior.mean, np.zeros(D), atol=1e-12)
    for fit in found.parts:
        assert fit.scale == pytest.approx(1.0)


def test_intervals_hold_the_truth_from_the_first_answers_on(rows):
    """Users drawn from the prior, with scales from its prior: their scales are part of what is not known."""
    prior = VocabularyPrior(rows)
    root = prior.base.covariance_root()
    covered, accuracy = [], []
    for seed in range(6):
        questions = 6 if seed % 2 else 12
        rng = np.random.default_rng([questions, seed])
        theta = np.exp(1.5 * rng.normal()) * root @ rng.normal(size=D)
        found = prior.fit(answers(rows, theta, questions, [seed, questions]))
        pairs = rows[rng.integers(N, size=200)] - rows[rng.integers(N, size=200)]
        low, high = found.posterior.interval(pairs)
        covered.append(np.mean((low <= pairs @ theta) & (pairs @ theta <= high)))
        right = np.sign(pairs @ found.theta) == np.sign(pairs @ theta)
        accuracy.append(found.posterior.expected_accuracy(pairs) - np.mean(right))
    assert 0.75 < np.mean(covered) < 0.99
    assert abs(np.mean(accuracy)) < 0.2


def test_users_whose_taste_is_a_word_gain_and_those_of_the_plain_prior_lose_little(rows):
    prior, plain = VocabularyPrior(rows), VocabularyPrior(rows, share=0.0)
    rng = np.random.default_rng(3)
    users = {"word": 20.0 * rows[rng.integers(N, size=10)]}
    drawn = Posterior(np.zeros(D), prior.base.precision).draws(10, rng)
    users["prior"] = 20.0 * drawn / np.linalg.norm(drawn, axis=1, keepdims=True)
    errors = {}
    for kind, thetas in users.items():
        pairs = []
        for seed, theta in enumerate(thetas):
            asked = answers(rows, theta, 24, 100 + seed)
            pairs.append([cosine_error(each.fit(asked).theta, theta) for each in (prior, plain)])
        errors[kind] = np.mean(pairs, axis=0)
    assert errors["word"][0] < 0.85 * errors["word"][1]
    assert errors["prior"][0] < errors["prior"][1] + 0.03


def test_numbers_of_near_tokens():
    """20, 50 and 150, but at most a 40th, a 16th and a 6th of the vocabulary, rounded up."""
    rng = np.random.default_rng(0)
    for size, expected in (
        (900, (20, 50, 150)), (899, (20, 50, 150)), (241, (7, 16, 41)), (200, (5, 13, 34)), (12, (1, 2)), (2, (1,))
    ):  # fmt: skip
        assert VocabularyPrior(rng.normal(size=(size, 3))).neighbours == expected


def test_a_token_of_zeros_counts_as_orthogonal(rows):
    with_zero = np.concatenate([rows[:20], np.zeros((1, D)), rows[20:]])
    prior = VocabularyPrior(with_zero)
    order = prior.near(rows[3], N + 1)
    cosines = (with_zero @ rows[3])[order]
    assert sorted(order) == list(range(N + 1)) and (np.diff(cosines) <= 1e-12).all()
    place = int(np.flatnonzero(order == 20)[0])
    assert cosines[place - 1] > 0 > cosines[place + 1]


def test_the_gain_is_the_evidence_of_all_parts_beside_the_base(prior, data):
    found = prior.fit(data)
    # a part's weight is its share of the whole: the base has 0.8 * 0.7 of the prior probability
    total = np.log(0.8 * 0.7) + found.base.log_evidence - np.log(found.weights[0])
    assert found.log_gain == pytest.approx(total - found.base.log_evidence)
    last = np.log(0.2) + found.isotropic.log_evidence - np.log(found.weights[-1])
    assert last == pytest.approx(total)
    assert found.weights.sum() == pytest.approx(1.0) and len(found.parts) == len(found.weights) == 5
    assert found.parts == (found.base, *found.local, found.isotropic)
    other = VocabularyPrior(prior.features, isotropic=0.4, share=0.3).fit(data)
    for_base = np.log(0.6 * 0.7) + other.base.log_evidence - np.log(other.weights[0])
    assert np.log(0.4) + other.isotropic.log_evidence - np.log(other.weights[-1]) == pytest.approx(for_base)


def test_what_questions_are_planned_with(prior, data):
    found = prior.fit(data)
    typical = 1.0 / np.square(prior.features).sum(axis=1).mean()
    alone = fit_prior(data, base=prior.base, typical_scale=typical).estimate
    for planned in (found.planned, prior.fit_planned(found.terms)):
        np.testing.assert_allclose(planned.mean, alone.theta, rtol=1e-7)
        np.testing.assert_allclose(planned.precision, alone.precision, rtol=1e-7)


def test_the_posterior_is_that_of_the_parts_with_weight(prior, data):
    found = prior.fit(data)
    weights = np.array([0.5, 0.021, 0.019, 0.0, 0.46])
    chosen = replace(found, weights=weights)
    parts = [
        fit_posterior(data, base=fit.prior.scaled(1 / fit.scale), start=fit, draws=256).posterior
        for fit in (found.parts[number] for number in (0, 1, 4))
    ]
    expected = Posterior.of_mixture(parts, weights[[0, 1, 4]] / 0.981)
    np.testing.assert_allclose(chosen.posterior.mean, expected.mean, rtol=1e-9)
    np.testing.assert_allclose(chosen.posterior.precision, expected.precision, rtol=1e-9)
    assert chosen.posterior is chosen.posterior  # made once


def test_parts_that_did_not_converge_are_told_once(prior, data):
    found = prior.fit(data)

    def failed(fit, reason):
        return replace(fit, estimate=replace(fit.estimate, converged=False, reason=reason))

    assert found.estimate.converged and found.estimate.reason == ""
    local = (failed(found.local[0], "one"), found.local[1], failed(found.local[2], "two"))
    broken = replace(found, local=local, isotropic=failed(found.isotropic, "one"))
    assert not broken.estimate.converged and broken.estimate.reason == "one; two"
    np.testing.assert_array_equal(broken.estimate.precision, found.base.estimate.precision)
    without = replace(found, isotropic=None, weights=np.full(4, 0.25))
    assert without.parts == (found.base, *found.local)
    np.testing.assert_allclose(without.theta, np.mean([fit.estimate.theta for fit in without.parts], axis=0))


def test_other_collections_are_weighed_by_their_evidence(rows, data):
    """Against the mixture of the priors of the collections, each fitted alone."""
    collections = [clustered_rows(seed, tokens=150, d=D, clusters=30) for seed in (5, 6)]
    found = VocabularyPrior(rows, others=lambda: collections).fit(data)
    alone = [VocabularyPrior(one, isotropic=0.0).fit(data) for one in (rows, *collections)]
    plain = fit_prior(
        data, base=GaussianPrior.isotropic(D, 1.0), typical_scale=1.0 / np.square(rows).sum(axis=1).mean()
    )
    logs = [
        np.log(0.6 * share) + one.base.log_evidence + one.log_gain
        for share, one in zip((0.5, 0.25, 0.25), alone, strict=True)
    ]
    weights = softmax([*logs, np.log(0.4) + plain.log_evidence])
    theta = weights @ np.stack([*(one.theta for one in alone), plain.estimate.theta])
    np.testing.assert_allclose(found.theta, theta, rtol=1e-6)
    assert len(found.parts) == len(found.weights) == sum(len(one.parts) for one in alone) + 1
    assert found.log_gain == pytest.approx(
        np.logaddexp.reduce([*logs, np.log(0.4) + plain.log_evidence]) - found.base.log_evidence
    )
    described = VocabularyPrior(rows, others=lambda: collections).described(found)
    assert described.facts["weight_of_other_texts"] == pytest.approx(weights[1] + weights[2])
    assert "of other texts" in described.title


def test_other_collections_are_made_when_the_first_estimate_needs_them(rows, data):
    calls = []

    def others():
        calls.append(1)
        return [rows[:50]]

    prior = VocabularyPrior(rows, others=others)
    prior.start()
    prior.fit_planned(VocabularyPrior(rows).fit(data).terms)
    assert calls == []
    prior.think()
    prior.fit(data)
    prior.fit(data)
    assert calls == [1]


def test_a_taste_that_only_other_texts_know_is_estimated_better(rows):
    """Clusters that the vocabulary lacks: on average over eight people."""
    bank = clustered_rows(9, tokens=300, d=D, clusters=15)
    gains = []
    for seed in range(8):
        theta = 20.0 * bank[seed * 11]
        told = answers(rows, theta, 15, seed)
        alone, beside = (VocabularyPrior(rows, others=one).fit(told).theta for one in (None, lambda: [bank]))
        gains.append(cosine_error(alone, theta) - cosine_error(beside, theta))
    assert np.mean(gains) > 0.0
