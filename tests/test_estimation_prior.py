"""Gaussian priors: the ridge, precision matrices, and the covariance of the vocabulary's embeddings (F8)."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edpbrl_gym.estimation import GaussianPrior, estimate


def test_isotropic_is_the_ridge():
    prior = GaussianPrior.isotropic(3, 2.5)
    np.testing.assert_array_equal(prior.precision, 2.5 * np.eye(3))
    assert prior.proper and prior.dimension == 3
    with pytest.raises(ValueError, match="read-only"):
        prior.precision[0, 0] = 0.0
    flat = GaussianPrior.isotropic(3, 0.0)
    assert not flat.proper and flat.null_space.shape == (3, 3)


def test_a_prior_is_the_ridge_in_other_coordinates():
    """theta' P theta with P = L L' is |L' theta|^2: the same estimate from features x L^-T with lambda = 1."""
    rng = np.random.default_rng(1)
    options, choices = rng.normal(size=(50, 4, 3)), rng.integers(4, size=50)
    root = np.tril(rng.normal(size=(3, 3))) + 2 * np.eye(3)
    expected = estimate(options @ np.linalg.inv(root).T, choices, regularization=1.0).theta
    result = estimate(options, choices, prior=GaussianPrior.from_precision(root @ root.T))
    np.testing.assert_allclose(root.T @ result.theta, expected, atol=1e-9)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.integers(2, 40), st.integers(1, 12), st.floats(0, 2), st.floats(1e-2, 100))
def test_embedding_prior_has_the_stated_trace_and_directions(seed, rows, d, power, scale):
    features = np.random.default_rng(seed).normal(size=(rows, d)) * np.arange(1, d + 1)
    prior = GaussianPrior.from_embeddings(features, power=power, scale=scale)
    assert prior.proper
    covariance = np.linalg.inv(prior.precision)
    assert np.trace(covariance) == pytest.approx(scale * d, rel=1e-6)
    values, vectors = np.linalg.eigh(np.cov(features.T, bias=True).reshape(d, d))
    expected = np.maximum(np.where(values > 1e-12 * values[-1], values / values[-1], 0.0) ** power, 1e-4)
    expected *= scale * d / expected.sum()
    np.testing.assert_allclose(covariance, (vectors * expected) @ vectors.T, rtol=1e-6, atol=1e-6 * expected.max())


def test_power_zero_is_the_ridge_of_one_over_scale():
    features = np.random.default_rng(0).normal(size=(20, 4)) * [1, 2, 3, 4]
    prior = GaussianPrior.from_embeddings(features, power=0.0, scale=10.0)
    np.testing.assert_allclose(prior.precision, 0.1 * np.eye(4), atol=1e-12)


def test_fewer_tokens_than_features():
    features = np.random.default_rng(0).normal(size=(3, 50))
    prior = GaussianPrior.from_embeddings(features)
    assert prior.proper and np.linalg.eigvalsh(prior.precision)[0] > 0


def test_f8_the_embedding_prior_needs_fewer_answers():
    """Tastes that lie where the vocabulary varies: a lower error than every ridge, from the same random questions."""
    rng = np.random.default_rng(3)
    spectrum = np.arange(1, 61) ** -1.0
    errors = {"embeddings": [], 0.1: [], 1.0: [], 100.0: []}
    for _ in range(6):
        tokens = rng.normal(size=(400, 60)) * spectrum
        tokens /= np.linalg.norm(tokens, axis=1, keepdims=True)
        theta = tokens[0]  # as in the experiments: the embedding of a text
        options = tokens[rng.integers(1, 400, size=(60, 4))]
        choices = (options @ theta).argmax(axis=1)
        for name in errors:
            if name == "embeddings":
                prior = GaussianPrior.from_embeddings(tokens, power=0.5, scale=10.0)
            else:
                prior = GaussianPrior.isotropic(60, name)
            found = estimate(options, choices, prior=prior).theta
            errors[name].append(1 - found @ theta / np.linalg.norm(found))
    means = {name: np.mean(values) for name, values in errors.items()}
    assert means["embeddings"] < min(means[0.1], means[1.0], means[100.0])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: GaussianPrior.isotropic(3, -0.1), ">= 0, got -0.1"),
        (lambda: GaussianPrior.isotropic(0, 1.0), "dimension >= 1"),
        (lambda: GaussianPrior.from_precision(np.ones((2, 3))), "square"),
        (lambda: GaussianPrior.from_precision([[1.0, 2.0], [0.0, 1.0]]), "symmetric"),
        (lambda: GaussianPrior.from_precision([[1.0, np.nan], [0.0, 1.0]]), "finite precision"),
        (lambda: GaussianPrior.from_precision(np.diag([1.0, -1.0])), "semidefinite .* eigenvalue -1"),
        (lambda: GaussianPrior.from_precision(-np.eye(2)), "semidefinite"),
        (lambda: GaussianPrior.from_embeddings(np.ones((1, 3))), "at least 2 tokens"),
        (lambda: GaussianPrior.from_embeddings(np.full((5, 3), 0.1)), "all equal"),
        (lambda: GaussianPrior.from_embeddings(np.full((5, 3), np.nan)), "finite features"),
        (lambda: GaussianPrior.from_embeddings(np.eye(3), power=-1), "power >= 0"),
        (lambda: GaussianPrior.from_embeddings(np.eye(3), scale=0), "scale > 0"),
        (lambda: GaussianPrior.from_embeddings(np.eye(3), floor=2), r"floor in \(0, 1\]"),
    ],
)
def test_bad_input_is_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()
