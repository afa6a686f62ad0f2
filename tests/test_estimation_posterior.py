"""The Gaussian posterior beside its definition, Monte Carlo, and the coverage of its intervals."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import multivariate_normal, norm

from edpbrl_gym.choice import choice_probabilities
from edpbrl_gym.estimation import GaussianPrior, Posterior, estimate


def posterior(seed=0, d=4):
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(d, d))
    return Posterior(rng.normal(size=d), root @ root.T + 0.5 * np.eye(d))


def test_draws_have_the_mean_and_the_covariance():
    found = posterior()
    draws = found.draws(40_000, np.random.default_rng(1))
    covariance = np.linalg.inv(found.precision)
    np.testing.assert_allclose(found.covariance(), covariance, atol=1e-10)
    scale = np.sqrt(np.diag(covariance))
    np.testing.assert_allclose(draws.mean(axis=0), found.mean, atol=4 * scale.max() / 200)
    np.testing.assert_allclose(np.cov(draws.T), covariance, atol=0.04 * np.diag(covariance).max())
    assert found.draws(0, np.random.default_rng(1)).shape == (0, 4)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 8), st.floats(0.05, 0.99))
def test_intervals_and_preferences_are_those_of_the_normal(seed, d, level):
    found = posterior(seed, d)
    rows = np.random.default_rng(seed).normal(size=(5, d))
    deviation = np.sqrt(np.einsum("nd,de,ne->n", rows, np.linalg.inv(found.precision), rows))
    low, high = found.interval(rows, level)
    expected = norm.interval(level, rows @ found.mean, deviation)
    np.testing.assert_allclose(low, expected[0], rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(high, expected[1], rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(found.standard_deviation(rows), deviation, rtol=1e-7)
    np.testing.assert_allclose(
        found.preference_probability(rows), norm.cdf(rows @ found.mean / deviation), rtol=1e-6, atol=1e-12
    )


def test_equal_options_are_a_coin_toss_and_zero_rows_have_no_width():
    found = posterior()
    assert found.preference_probability(np.zeros((1, 4)))[0] == 0.5
    low, high = found.interval(np.zeros((1, 4)))
    assert low[0] == high[0] == 0.0


def test_scaling_scales_theta():
    found, double = posterior(), posterior().scaled(2.0)
    rows = np.random.default_rng(0).normal(size=(3, 4))
    np.testing.assert_allclose(np.array(double.interval(rows)), 2 * np.array(found.interval(rows)))
    np.testing.assert_allclose(double.preference_probability(rows), found.preference_probability(rows))


@pytest.mark.parametrize("num_options", [2, 3, 5])
def test_expected_accuracy_is_the_share_of_draws_with_the_same_favourite(num_options):
    found = posterior(3)
    options = np.random.default_rng(2).normal(size=(40, num_options, 4))
    thetas = found.draws(20_000, np.random.default_rng(3))
    favourite = (options @ found.mean).argmax(axis=1)
    truth = (np.einsum("nkd,sd->snk", options, thetas).argmax(axis=2) == favourite).mean()
    assert found.expected_accuracy(options, draws=4000) == pytest.approx(truth, abs=0.01)
    picks = np.mean([choice_probabilities(options, theta)[np.arange(40), favourite].mean() for theta in thetas[:4000]])
    assert found.expected_accuracy(options, against="answers", draws=4000) == pytest.approx(picks, abs=0.01)
    assert picks < truth


def test_expected_accuracy_of_three_options_against_the_bivariate_normal():
    found = posterior(4)
    options = np.random.default_rng(5).normal(size=(1, 3, 4))
    order = np.argsort(-(options[0] @ found.mean))
    leads = options[0, order[0]] - options[0, order[1:]]
    covariance = leads @ np.linalg.inv(found.precision) @ leads.T
    orthant = multivariate_normal(-leads @ found.mean, covariance).cdf(np.zeros(2))
    assert found.expected_accuracy(options, draws=100_000) == pytest.approx(orthant, abs=5e-3)


def test_pairs_may_be_given_as_differences():
    found = posterior(6)
    options = np.random.default_rng(6).normal(size=(9, 2, 4))
    exact = found.expected_accuracy(options)
    assert found.expected_accuracy(options[:, 0] - options[:, 1]) == pytest.approx(exact)
    assert exact == pytest.approx(
        np.mean(np.abs(found.preference_probability(options[:, 0] - options[:, 1]) - 0.5)) + 0.5
    )
    assert found.expected_accuracy(np.ones((1, 2, 4))) == 0.5


def test_equal_posteriors_give_equal_accuracies():
    options = np.random.default_rng(7).normal(size=(30, 4, 4))
    first = posterior(7).expected_accuracy(options)
    assert first == posterior(7).expected_accuracy(options)
    assert first != posterior(7).expected_accuracy(options, rng=np.random.default_rng(1))


def test_the_intervals_cover_the_truth():
    """300 users drawn from the prior: 90% intervals of coordinates, scores and leads cover about 90% of the truths,
    and the expected accuracy is the true one."""
    rng = np.random.default_rng(8)
    prior = GaussianPrior.from_covariance(np.diag(np.arange(1, 13.0) ** -1) * 9)
    root = prior.covariance_root()
    rows = np.concatenate([np.eye(12), rng.normal(size=(20, 12))])
    held_out = rng.normal(size=(60, 4, 12))
    inside, predicted, true = [], [], []
    for _ in range(300):
        theta = root @ rng.normal(size=12)
        options = rng.normal(size=(40, 4, 12))
        choices = (options @ theta + rng.gumbel(size=(40, 4))).argmax(axis=1)
        found = Posterior.from_estimate(estimate(options, choices, prior=prior))
        low, high = found.interval(rows)
        inside.append(((low <= rows @ theta) & (rows @ theta <= high)).mean())
        predicted.append(found.expected_accuracy(held_out, draws=100))
        true.append(((held_out @ theta).argmax(axis=1) == (held_out @ found.mean).argmax(axis=1)).mean())
    assert 0.87 < np.mean(inside) < 0.93
    assert np.mean(predicted) == pytest.approx(np.mean(true), abs=0.02)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Posterior(np.zeros(2), np.diag([1.0, 0.0])), "positive definite"),
        (lambda: Posterior(np.zeros(2), np.eye(3)), r"precision of shape \(2, 2\)"),
        (lambda: Posterior(np.array([0.0, np.nan]), np.eye(2)), "finite mean"),
        (lambda: posterior().interval(np.eye(4), level=1.0), r"level in \(0, 1\)"),
        (lambda: posterior().interval(np.eye(3)), "theta has 4 features"),
        (lambda: posterior().scaled(0.0), "factor > 0"),
        (lambda: posterior().draws(-1, np.random.default_rng(0)), "size >= 0"),
        (lambda: posterior().expected_accuracy(np.zeros((0, 4, 4))), "at least 1 question"),
        (lambda: posterior().expected_accuracy(np.zeros((3, 1, 4))), "2 options"),
        (lambda: posterior().expected_accuracy(np.zeros((3, 2, 4)), against="me"), "'truth', 'answers'"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
