"""The Gaussian posterior beside its definition, Monte Carlo, and the coverage of its intervals."""

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import softmax
from scipy.stats import norm

from edpbrl_gym.estimation import GaussianPrior, Posterior, estimate, fit_posterior
from edpbrl_gym.estimation.map_estimate import answer_differences, answer_terms
from edpbrl_gym.estimation.whitened import WhitenedAnswers
from edpbrl_gym.likelihood import Ranking, Response
from edpbrl_gym.likelihood.choice import fisher_information, log_likelihood, score


def posterior(seed=0, d=4):
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(d, d))
    return Posterior(rng.normal(size=d), root @ root.T + 0.5 * np.eye(d))


@settings(max_examples=30)
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


@pytest.mark.parametrize("num_options", [2, 3, 5])
def test_expected_accuracy_is_the_share_of_draws_with_the_same_favourite(num_options):
    found = posterior(3)
    options = np.random.default_rng(2).normal(size=(40, num_options, 4))
    thetas = found.draws(20_000, np.random.default_rng(3))
    favourite = (options @ found.mean).argmax(axis=1)
    truth = (np.einsum("nkd,sd->snk", options, thetas).argmax(axis=2) == favourite).mean()
    assert found.expected_accuracy(options, draws=4000) == pytest.approx(truth, abs=0.01)


def test_pairs_may_be_given_as_differences():
    found = posterior(6)
    options = np.random.default_rng(6).normal(size=(9, 2, 4))
    exact = found.expected_accuracy(options)
    assert found.expected_accuracy(options[:, 0] - options[:, 1]) == pytest.approx(exact)
    leads = options[:, 0] - options[:, 1]
    deviation = found.standard_deviation(leads)
    assert exact == pytest.approx(norm.cdf(np.abs(leads @ found.mean) / deviation).mean())
    assert found.expected_accuracy(np.ones((1, 2, 4))) == 0.5


def test_the_intervals_cover_the_truth():
    """Users drawn from the prior who answer with little noise: 90% intervals of coordinates and of leads cover 90% of
    the truths and the expected accuracy is the true one for the variational posterior; Laplace's is too narrow."""
    rng = np.random.default_rng(8)
    prior = GaussianPrior.from_covariance(np.diag(np.arange(1, 13.0) ** -1) * 9)
    root = prior.covariance_root()
    rows = np.concatenate([np.eye(12), rng.normal(size=(20, 12))])
    held_out = rng.normal(size=(60, 4, 12))
    inside, predicted, true = [], [], []
    for _ in range(30):
        theta = root @ rng.normal(size=12)
        options = rng.normal(size=(40, 4, 12))
        choices = (options @ theta + rng.gumbel(size=(40, 4))).argmax(axis=1)
        laplace = Posterior.from_estimate(estimate((options, choices), prior=prior))
        close = fit_posterior((options, choices), base=prior, scale=1.0).posterior
        covered = []
        for found in (laplace, close):
            low, high = found.interval(rows)
            covered.append(((low <= rows @ theta) & (rows @ theta <= high)).mean())
        inside.append(covered)
        predicted.append([found.expected_accuracy(held_out, draws=100) for found in (laplace, close)])
        true.append(((held_out @ theta).argmax(axis=1) == (held_out @ close.mean).argmax(axis=1)).mean())
    assert np.mean(inside, axis=0)[0] < 0.86 < 0.87 < np.mean(inside, axis=0)[1] < 0.93
    assert np.mean(predicted, axis=0)[1] == pytest.approx(np.mean(true), abs=0.02)


def one_dimension(size, n=12, seed=0):
    rng = np.random.default_rng(seed)
    options = size * rng.normal(size=(n, 4, 1))
    return options, (options @ [2.0] + rng.gumbel(size=(n, 4))).argmax(axis=1)


def exact_moments(options, choices, precision, middle):
    grid = np.linspace(-10, 40, 40_001)
    logs = np.array([log_likelihood(options, choices, [x]) for x in grid[::20]])
    fine = np.interp(grid, grid[::20], logs) - 0.5 * precision * (grid - middle) ** 2
    fine += 0.5 * np.log(precision / (2 * np.pi))
    weights = np.exp(fine - fine.max())
    mass = weights.sum() * (grid[1] - grid[0])
    mean = (weights * grid).sum() / weights.sum()
    variance = (weights * (grid - mean) ** 2).sum() / weights.sum()
    return float(np.log(mass) + fine.max()), float(mean), float(variance)


@pytest.mark.parametrize(("size", "tolerance"), [(0.5, 0.1), (3.0, 0.45)])
def test_the_variational_posterior_against_quadrature(size, tolerance):
    """Theta small beside its prior, and answers nearly certain, so that the posterior is far from a Gaussian."""
    options, choices = one_dimension(size)
    prior = GaussianPrior.from_precision([[0.02]], [0.5])
    evidence, mean, variance = exact_moments(options, choices, 0.02, 0.5)
    found = fit_posterior((options, choices), base=prior, scale=1.0, draws=20_000)
    assert found.converged
    assert found.posterior.mean[0] == pytest.approx(mean, abs=tolerance * np.sqrt(variance))
    assert found.bound < evidence + 0.01  # the 128 points are no exact average
    assert found.log_evidence == pytest.approx(evidence, abs=0.12)
    mode = estimate((options, choices), prior=prior)
    assert abs(found.posterior.mean[0] - mean) < abs(mode.theta[0] - mean)


@pytest.mark.parametrize(("n", "d"), [(40, 5), (8, 60)])
def test_the_variational_posterior_satisfies_its_equations(n, d):
    """Over draws of it the gradient vanishes and the precision is the mean Hessian."""
    rng = np.random.default_rng(3)
    options = rng.normal(size=(n, 4, d)) / np.sqrt(d) * 3
    choices = rng.integers(4, size=n)
    prior = GaussianPrior.from_covariance(np.diag(rng.uniform(0.5, 2, size=d)), rng.normal(size=d))
    found = fit_posterior((options, choices), base=prior, scale=1.0).posterior
    thetas = found.draws(3000, rng)
    gradients = np.array([score(options, choices, theta) - prior.precision @ (theta - prior.mean) for theta in thetas])
    error = gradients.std(axis=0) / np.sqrt(3000)
    deviation = np.sqrt(np.diag(found.covariance()))
    assert (np.abs(gradients.mean(axis=0)) * deviation < 5 * error * deviation + 0.05).all()
    hessian = np.mean([fisher_information(options, theta) for theta in thetas[:1000]], axis=0) + prior.precision
    np.testing.assert_allclose(found.precision, hessian, atol=0.06 * np.abs(hessian).max())


def test_no_answers_leave_the_prior():
    base = GaussianPrior.from_precision(np.diag([1.0, 4.0]), [3.0, 1.0])
    found = fit_posterior((np.zeros((0, 4, 2)), np.zeros(0, dtype=int)), base=base, scale=2.0)
    np.testing.assert_allclose(found.posterior.mean, [3.0, 1.0])
    np.testing.assert_allclose(found.posterior.precision, np.diag([0.5, 2.0]))
    assert found.log_evidence == pytest.approx(0.0, abs=1e-9)


def test_draws_are_the_mean_and_a_root_of_the_covariance_times_normal_numbers():
    found = posterior(9)
    normal = np.random.default_rng(5).standard_normal((6, 4))
    expected = found.mean + np.linalg.solve(np.linalg.cholesky(found.precision).T, normal.T).T
    np.testing.assert_allclose(found.draws(6, np.random.default_rng(5)), expected, rtol=1e-9)


def test_as_a_prior_it_is_the_same_gaussian():
    found = posterior(11)
    prior = found.as_prior()
    np.testing.assert_array_equal(prior.precision, found.precision)
    np.testing.assert_array_equal(prior.mean, found.mean)
    np.testing.assert_allclose(prior.covariance, found.covariance())
    assert prior.log_determinant == pytest.approx(np.linalg.slogdet(found.precision)[1])
    assert prior.proper and found.mean.flags.writeable and found.dimension == prior.dimension == 4
    options, choices = np.random.default_rng(2).normal(size=(9, 3, 4)), np.arange(9) % 3
    expected = estimate((options, choices), prior=GaussianPrior(found.precision, found.mean)).theta
    np.testing.assert_allclose(estimate((options, choices), prior=prior).theta, expected, atol=1e-8)


@pytest.mark.parametrize("num_options", [2, 3, 5])
def test_choice_probabilities_are_averages_of_the_logit(num_options):
    found, options = posterior(13), np.random.default_rng(4).normal(size=(7, num_options, 4))
    probabilities = found.choice_probabilities(options)
    assert probabilities.shape == (7, num_options)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1.0)
    thetas = found.draws(20_000, np.random.default_rng(5))
    expected = softmax(np.einsum("nkd,sd->snk", options, thetas), axis=2).mean(axis=0)
    np.testing.assert_allclose(probabilities, expected, atol=0.015)


def precision_of(dimension: int, seed: int) -> np.ndarray:
    columns = np.random.default_rng(seed).normal(size=(dimension, dimension + 5)) / np.sqrt(dimension)
    return columns @ columns.T + 0.1 * np.eye(dimension)


@pytest.mark.parametrize(("d", "count"), [(90, 3), (90, 60), (33, 1), (1, 2)])
def test_a_posterior_with_rows_is_that_of_the_sum(d, count):
    rng = np.random.default_rng(1)
    precision, mean, rows = precision_of(d, 2), rng.normal(size=d), rng.normal(size=(count, d))
    found = Posterior(rng.normal(size=d), precision).with_rows(mean, rows)
    expected = Posterior(mean, precision + rows.T @ rows)
    for one in (found, pickle.loads(pickle.dumps(found))):
        np.testing.assert_array_equal(one.mean, mean)
        np.testing.assert_allclose(one.inverse_factor, expected.inverse_factor, rtol=0, atol=1e-11)
        np.testing.assert_allclose(one.precision, expected.precision, rtol=1e-12)
    draws = [one.draws(5, np.random.default_rng(3)) for one in (found, expected)]
    np.testing.assert_allclose(*draws, atol=1e-11)
    np.testing.assert_allclose(found.standard_deviation(rows), expected.standard_deviation(rows), rtol=1e-10)
    np.testing.assert_allclose(found.covariance(), expected.covariance(), rtol=0, atol=1e-11)
    np.testing.assert_allclose(found.as_prior().covariance, expected.as_prior().covariance, rtol=0, atol=1e-11)


@pytest.mark.parametrize("ranked", [False, True])
def test_an_answer_gives_the_posterior_of_its_estimate(ranked):
    rng = np.random.default_rng(5)
    before = Posterior(0.3 * rng.normal(size=80), precision_of(80, 4))
    options = rng.normal(size=(1 if ranked else 2, 5, 80))
    answers = [Response.ranking([1, 3, 0, 4, 2])] if ranked else [1, 0]
    terms = answer_terms((options, answers), Ranking() if ranked else None)
    found = before.after(*answer_differences(terms))
    estimate, *_ = WhitenedAnswers(*terms.differences(), before.as_prior()).estimate(1.0)
    expected = Posterior.from_estimate(estimate)
    np.testing.assert_allclose(found.mean, expected.mean, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(found.precision, expected.precision, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(found.inverse_factor, expected.inverse_factor, rtol=0, atol=1e-11)
