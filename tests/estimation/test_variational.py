"""The variational Gaussian and its evidence, beside quadrature, finite differences and densities of scipy."""

import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import multivariate_normal

from edpbrl_gym.estimation.variational import _evaluate, fit_gaussian, importance_log_evidence

SCALE = 1.7


def some_rows(seed=0, n=9, k=2, r=3):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, k, r)), rng.normal(size=(n, k))


def some_precision(r=3, seed=1):
    root = np.random.default_rng(seed).normal(size=(r, r))
    return root @ root.T + np.eye(r)


def fitted(rows, offsets, tolerance=1e-9, **given):
    r = rows.shape[2]
    return fit_gaussian(rows, offsets, SCALE, np.zeros(r), np.eye(r), tolerance=tolerance, **given)


def log_posterior(rows, offsets, thetas):
    """Log likelihood plus log prior density at each theta, (s,)."""
    values = np.einsum("nkr,sr->snk", rows, thetas) + (0 if offsets is None else offsets)
    return -np.log1p(np.exp(values).sum(axis=2)).sum(axis=1) + multivariate_normal(
        np.zeros(rows.shape[2]), SCALE * np.eye(rows.shape[2])
    ).logpdf(thetas)


@pytest.mark.parametrize("with_offsets", [False, True])
def test_the_bound_and_its_parts_by_monte_carlo(with_offsets):
    rows, offsets = some_rows()
    offsets = offsets if with_offsets else None
    mean, precision = np.array([0.3, -0.2, 0.5]), some_precision()
    state = _evaluate(rows, offsets, SCALE, mean, precision)
    gaussian = multivariate_normal(mean, np.linalg.inv(precision), seed=0)
    thetas = gaussian.rvs(50_000)
    values = np.einsum("nkr,sr->snk", rows, thetas) + (0 if offsets is None else offsets)
    weights = np.exp(values) / (1 + np.exp(values).sum(axis=2, keepdims=True))
    likelihood = -np.log1p(np.exp(values).sum(axis=2)).sum(axis=1).mean()
    assert state.log_likelihood == pytest.approx(likelihood, abs=0.05)
    bound = (log_posterior(rows, offsets, thetas) - gaussian.logpdf(thetas)).mean()
    assert state.log_evidence == pytest.approx(bound, abs=0.05)
    np.testing.assert_allclose(state.score, -np.einsum("snk,nkr->r", weights, rows) / len(thetas), atol=0.08)
    expected = -np.einsum("snk,snj->nkj", weights, weights) / len(thetas)
    expected[:, [0, 1], [0, 1]] += weights.mean(axis=0)
    np.testing.assert_allclose(state.curvature @ state.curvature, expected, atol=0.02)


@pytest.mark.parametrize("with_offsets", [False, True])
def test_no_gaussian_near_the_fit_has_a_higher_bound(with_offsets):
    rows, offsets = some_rows(3, n=12)
    offsets = offsets if with_offsets else None
    found = fitted(rows, offsets)
    assert found.converged and 1 < found.iterations < 60
    rng = np.random.default_rng(0)
    for _ in range(20):
        mean = found.mean + 0.05 * rng.normal(size=3)
        tilt = np.eye(3) + 0.03 * rng.normal(size=(3, 3))
        other = _evaluate(rows, offsets, SCALE, mean, tilt @ found.precision @ tilt.T)
        assert other.log_evidence <= found.log_evidence + 5e-4  # 128 points are no exact average
    state = _evaluate(rows, offsets, SCALE, found.mean, found.precision)
    assert (state.log_evidence, state.log_likelihood) == pytest.approx((found.log_evidence, found.log_likelihood))
    np.testing.assert_allclose(state.curvature, found.curvature)
    np.testing.assert_allclose(state.score, found.mean / SCALE, atol=2e-3)
    flat = (found.curvature @ rows).reshape(-1, 3)
    np.testing.assert_allclose(found.precision, flat.T @ flat + np.eye(3) / SCALE, atol=0.02)


@pytest.mark.parametrize("draws", [2, 6, 512])
@pytest.mark.parametrize("with_offsets", [False, True])
def test_the_evidence_is_the_mean_of_weights_of_mirrored_draws(draws, with_offsets):
    rows, offsets = some_rows(6)
    offsets = offsets if with_offsets else None
    fit = fitted(rows, offsets)
    half = np.random.default_rng(0).standard_normal((draws // 2, 3))
    normal = np.concatenate([half, -half])
    thetas = fit.mean + np.linalg.solve(np.linalg.cholesky(fit.precision).T, normal.T).T
    proposal = multivariate_normal(fit.mean, np.linalg.inv(fit.precision)).logpdf(thetas)
    expected = logsumexp(log_posterior(rows, offsets, thetas) - proposal) - np.log(draws)
    assert importance_log_evidence(rows, offsets, SCALE, fit.mean, fit.precision, draws) == pytest.approx(
        expected, abs=1e-9
    )


def test_large_utilities_do_not_overflow():
    rows = np.array([[[800.0]], [[-900.0]]])
    with np.errstate(over="raise", invalid="raise"):
        state = _evaluate(rows, None, 1.0, np.array([1.0]), np.eye(1) * 1e4)
        fit = fit_gaussian(rows, None, 1.0, np.array([0.0]), np.eye(1), tolerance=1e-3)
        assert np.isfinite(importance_log_evidence(rows, None, 1.0, fit.mean, fit.precision, 8))
    assert state.log_likelihood == pytest.approx(-800.0, rel=1e-6)
