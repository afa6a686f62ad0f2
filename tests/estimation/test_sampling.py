"""Draws from the exact posterior: against quadrature, importance weights and Laplace where that is exact."""

import numpy as np
import pytest

from edpbrl_gym.estimation import GaussianPrior, estimate, sample_posterior
from edpbrl_gym.estimation.posterior import Posterior
from edpbrl_gym.likelihood import BestOf, Ranking, WithTies

D = 3


def fitted(model, n, scale=1.0, mode_only=False, seed=0, regularization=0.5):
    rng = np.random.default_rng(seed)
    options, theta = rng.normal(size=(n, 3, D)), scale * rng.normal(size=D)
    responses = model.sample(options, theta, None if mode_only else rng.random(n))
    terms = model.terms(options, responses)
    prior = GaussianPrior.isotropic(D, regularization)
    return terms, prior, Posterior.from_estimate(estimate(terms, prior=prior))


def weighted(terms, prior, posterior, draws=20_000):
    """Mean and covariance of the exact posterior by importance sampling from a wider Gaussian."""
    rng = np.random.default_rng(1)
    wide = Posterior(posterior.mean, posterior.precision / 2.0)
    thetas = wide.draws(draws, rng)
    log_weights = np.array([terms.log_likelihood(theta) for theta in thetas])
    log_weights -= 0.5 * np.einsum("ni,ij,nj->n", thetas, prior.precision, thetas)
    centred = thetas - posterior.mean
    log_weights += 0.5 * np.einsum("ni,ij,nj->n", centred, wide.precision, centred)
    weights = np.exp(log_weights - log_weights.max())
    weights /= weights.sum()
    mean = weights @ thetas
    return mean, (thetas - mean).T @ ((thetas - mean) * weights[:, None])


@pytest.mark.parametrize(
    ("model", "n", "mode_only"),
    [(BestOf(), 6, True), (BestOf(), 40, False), (Ranking(), 5, True), (WithTies(0.5), 8, False)],
)
def test_mean_and_covariance_are_those_of_the_posterior(model, n, mode_only):
    terms, prior, posterior = fitted(model, n, mode_only=mode_only)
    draws = sample_posterior(posterior, terms, draws=20_000, rng=np.random.default_rng(3), chains=50, thin=2)
    mean, covariance = weighted(terms, prior, posterior)
    sizes = np.sqrt(np.diag(covariance))
    np.testing.assert_allclose(draws.mean(axis=0) / sizes, mean / sizes, atol=0.08)
    np.testing.assert_allclose(np.cov(draws.T) / np.outer(sizes, sizes), covariance / np.outer(sizes, sizes), atol=0.1)


def test_answers_without_doubt_are_where_laplace_fails():
    """The test has something to find: for an argmax user Laplace's mean is far off, the draws' mean is not."""
    terms, prior, posterior = fitted(BestOf(), 6, mode_only=True, regularization=0.05)
    mean, covariance = weighted(terms, prior, posterior)
    sizes = np.sqrt(np.diag(covariance))
    assert np.abs((posterior.mean - mean) / sizes).max() > 0.3
    draws = sample_posterior(posterior, terms, draws=20_000, rng=np.random.default_rng(3), chains=50, thin=2)
    assert np.abs((draws.mean(axis=0) - mean) / sizes).max() < 0.12


def test_it_is_seeded_and_gives_what_was_asked_for():
    terms, _, posterior = fitted(BestOf(), 5)
    first, second = (sample_posterior(posterior, terms, draws=21, rng=np.random.default_rng(7)) for _ in range(2))
    assert first.shape == (21, D)
    np.testing.assert_array_equal(first, second)
    with pytest.raises(ValueError, match="terms of dimension 2"):
        sample_posterior(Posterior(np.zeros(2), np.eye(2)), terms, draws=1, rng=np.random.default_rng(0))
