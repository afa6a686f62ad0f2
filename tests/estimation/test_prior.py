"""Gaussian priors: the ridge, precision matrices, and the covariance of the vocabulary's embeddings."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from sklearn.covariance import ledoit_wolf

from edpbrl_gym.estimation import GaussianPrior, estimate
from edpbrl_gym.estimation.covariance import ledoit_wolf_intensity
from edpbrl_gym.likelihood.choice import log_likelihood


def test_a_mean_shifts_the_estimate():
    rng = np.random.default_rng(5)
    options, choices = rng.normal(size=(30, 4, 3)), rng.integers(4, size=30)
    root = np.tril(rng.normal(size=(3, 3))) + 2 * np.eye(3)
    prior = GaussianPrior.from_precision(root @ root.T, [1.0, -2.0, 0.5])

    def loss(theta):
        away = theta - prior.mean
        return 0.5 * away @ prior.precision @ away - log_likelihood(options, choices, theta)

    expected = minimize(loss, np.zeros(3), tol=1e-12)
    result = estimate((options, choices), prior=prior)
    np.testing.assert_allclose(result.theta, expected.x, atol=1e-5)
    assert result.log_posterior == pytest.approx(-expected.fun) and result.converged
    np.testing.assert_allclose(estimate((options[:0], choices[:0]), prior=prior).theta, prior.mean)
    warm = estimate((options, choices), prior=prior, start=100 * np.ones(3))
    np.testing.assert_allclose(warm.theta, result.theta, atol=1e-8)


def test_covariance_and_scaling():
    root = np.random.default_rng(6).normal(size=(4, 4))
    covariance = root @ root.T + 0.1 * np.eye(4)
    wide = GaussianPrior.from_covariance(covariance, np.arange(4.0)).scaled(3.0)
    np.testing.assert_allclose(wide.precision @ covariance, np.eye(4) / 3, atol=1e-10)
    np.testing.assert_allclose(wide.covariance_root() @ wide.covariance_root().T, 3 * covariance, atol=1e-9)
    np.testing.assert_array_equal(wide.mean, np.arange(4.0))
    with pytest.raises(ValueError, match="read-only"):
        wide.mean[0] = 1.0
    flat = GaussianPrior.from_precision(np.diag([0.0, 2.0, 3.0])).scaled(0.5)
    assert flat.log_determinant == pytest.approx(np.log(4 * 6)) and flat.null_space.shape == (3, 1)
    assert GaussianPrior.isotropic(5, 0.0).log_determinant == 0.0
    assert GaussianPrior.isotropic(5, 2.0).log_determinant == pytest.approx(5 * np.log(2))


@settings(max_examples=40)
@given(st.integers(0, 10**6), st.integers(2, 12), st.floats(-13, 0))
def test_the_quick_test_for_a_proper_prior_agrees_with_the_eigenvalues(seed, d, exponent):
    rng = np.random.default_rng(seed)
    vectors = np.linalg.qr(rng.normal(size=(d, d)))[0]
    values = np.concatenate([[10.0**exponent], rng.uniform(1, 2, size=d - 1)])
    prior = GaussianPrior.from_precision((vectors * values) @ vectors.T)
    assert prior.proper
    assert prior.log_determinant == pytest.approx(np.log(values).sum(), abs=1e-4 if exponent > -10 else 0.5)
    values[0] = 0.0
    singular = GaussianPrior.from_precision((vectors * values) @ vectors.T)
    np.testing.assert_allclose(np.abs(singular.null_space.T @ vectors[:, :1]), [[1.0]])
    assert singular.log_determinant == pytest.approx(np.log(values[1:]).sum())


@pytest.mark.parametrize("condition", [1.0, 1e4, 1e13])
def test_a_prior_from_a_covariance_agrees_with_the_one_from_its_precision(condition: float) -> None:
    rng = np.random.default_rng(5)
    vectors = np.linalg.qr(rng.normal(size=(6, 6)))[0]
    values = np.geomspace(1.0, condition, 6)
    covariance, precision = (vectors * values) @ vectors.T, (vectors / values) @ vectors.T
    covariance, precision = (covariance + covariance.T) / 2, (precision + precision.T) / 2
    prior = GaussianPrior.from_covariance(covariance, np.arange(6.0)).scaled(4.0)
    expected = GaussianPrior.from_precision(precision, np.arange(6.0)).scaled(4.0)
    tolerance = 1e-14 * condition
    np.testing.assert_allclose(prior.precision, expected.precision, rtol=1e-6 + tolerance, atol=1e-9)
    assert prior.log_determinant == pytest.approx(-6 * np.log(4.0) - np.log(values).sum(), rel=1e-3)
    if condition < 1e10:
        np.testing.assert_allclose(prior.covariance_root(), expected.covariance_root(), rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(prior.covariance, 4.0 * covariance, rtol=1e-9, atol=1e-9)


def test_many_dimensions_keep_their_leading_directions(monkeypatch):
    """Above a limit the other directions share one variance; where they are alike that is the full decomposition."""
    rng = np.random.default_rng(4)
    spread = np.where(np.arange(30) < 6, 5.0 / np.arange(1, 31), 0.3)
    rows = np.linalg.qr(rng.normal(size=(400, 30)))[0] * spread @ np.linalg.qr(rng.normal(size=(30, 30)))[0].T
    full = GaussianPrior.from_embeddings(rows, centred=False, shrunk=0.1)
    monkeypatch.setattr("edpbrl_gym.estimation.covariance._FULL", 29)
    monkeypatch.setattr("edpbrl_gym.estimation.covariance._LEADING", 8)
    monkeypatch.setattr("edpbrl_gym.estimation.covariance._ITERATIONS", 12)
    leading = GaussianPrior.from_embeddings(rows, centred=False, shrunk=0.1)
    np.testing.assert_allclose(leading.precision, full.precision, rtol=1e-6, atol=1e-8)
    assert leading.log_determinant == pytest.approx(full.log_determinant)
    assert np.trace(leading.covariance) == pytest.approx(30.0)


def test_rounding_of_a_symmetric_matrix_is_repaired_and_more_is_refused():
    matrix = np.array([[2.0, 0.5, 0.0], [0.5, 3.0, 0.1], [0.0, 0.1, 4.0]])
    matrix[0, 1] += 4.0 * 0.9e-8  # relative to the largest entry
    found = GaussianPrior(matrix)
    np.testing.assert_array_equal(found.precision, found.precision.T)
    assert found.precision[0, 1] == pytest.approx(0.5 + 2.0 * 0.9e-8, abs=1e-15)
    matrix[0, 1] += 4.0 * 0.2e-8
    with pytest.raises(ValueError, match=r"symmetric precision matrix, got entries that differ by 4.4e-08"):
        GaussianPrior(matrix)


def test_negative_eigenvalues_of_rounding_are_zeros():
    vectors = np.linalg.qr(np.random.default_rng(1).normal(size=(3, 3)))[0]
    eps = np.finfo(np.float64).eps
    found = GaussianPrior((vectors * [1.0, 1.0, -30 * eps]) @ vectors.T)
    assert (
        not found.proper and found.null_space.shape == (3, 1) and found.log_determinant == pytest.approx(0.0, abs=1e-9)
    )
    np.testing.assert_allclose(np.abs(found.null_space[:, 0]), np.abs(vectors[:, 2]), atol=1e-9)
    with pytest.raises(ValueError, match="positive semidefinite precision matrix, got the eigenvalue -1e-1"):
        GaussianPrior((vectors * [1.0, 1.0, -1e-11]) @ vectors.T)
    # below d eps of the largest eigenvalue it is zero, above it is one of few
    assert not GaussianPrior(np.diag([1.0, 0.5, 1e-16])).proper
    small = GaussianPrior(np.diag([1.0, 0.5, 1e-13]))
    assert small.proper and small.log_determinant == pytest.approx(np.log(0.5e-13))


def test_what_is_given_stays_the_caller_s():
    matrix, mean = np.diag([1.0, 2.0]), np.array([3.0, 4.0])
    for prior in (
        GaussianPrior(matrix, mean), GaussianPrior.from_precision(matrix, mean),
        GaussianPrior.from_covariance(matrix, mean), GaussianPrior.from_root(matrix, np.sqrt(matrix), mean),
    ):  # fmt: skip
        assert not prior.precision.flags.writeable and not prior.mean.flags.writeable
        assert matrix.flags.writeable and mean.flags.writeable
        assert prior.mean.tolist() == [3.0, 4.0]
    mean[0] = 7.0
    assert GaussianPrior.from_precision(matrix).mean.tolist() == [0.0, 0.0]
    for one in (GaussianPrior.isotropic(2, 3.0), GaussianPrior.from_embeddings(np.eye(2)), prior.scaled(2.0)):
        assert not one.precision.flags.writeable and not one.mean.flags.writeable


@pytest.mark.parametrize("centred", [True, False])
@pytest.mark.parametrize("shrunk", [False, True, 0.3])
def test_embeddings_by_the_formula(centred, shrunk):
    rows = np.random.default_rng(4).normal(size=(60, 5)) * [3.0, 2.0, 1.0, 0.5, 0.1] + 1.5
    about = rows - rows.mean(axis=0) if centred else rows
    moment = about.T @ about / 60
    share = {False: 0.0, True: ledoit_wolf_intensity(about), 0.3: 0.3}[shrunk]
    values, vectors = np.linalg.eigh((1 - share) * moment + share * np.trace(moment) / 5 * np.eye(5))
    variances = np.maximum((values / values[-1]) ** 0.7, 0.02)
    variances *= 5 * 2.5 / variances.sum()
    given = dict(power=0.7, scale=2.5, floor=0.02, centred=centred, shrunk=shrunk)
    gram = rows.T @ rows  # of no use where the embeddings are centred
    for one in (
        GaussianPrior.from_embeddings(rows, **given), GaussianPrior.from_embeddings(rows, gram=gram, **given)
    ):  # fmt: skip
        np.testing.assert_allclose(one.covariance, (vectors * variances) @ vectors.T, rtol=1e-8, atol=1e-10)
        assert one.log_determinant == pytest.approx(-np.log(variances).sum())
    given["floor"] = 1e-9  # small variances: checked by eigenvalues
    tiny = GaussianPrior.from_embeddings(rows[:3] - rows[:3].mean(axis=0), power=2.0, floor=1e-9)
    assert tiny.dimension == 5 and tiny.log_determinant == pytest.approx(np.linalg.slogdet(tiny.precision)[1], rel=1e-3)


def test_a_zero_eigenvalue_is_none_of_rounding():
    """The root of a zero eigenvalue's rounding, 1e-16, would be 1e-8: far above the floor."""
    rows = np.random.default_rng(5).normal(size=(40, 2)) @ np.random.default_rng(6).normal(size=(2, 4))
    variances = np.linalg.eigvalsh(GaussianPrior.from_embeddings(rows, power=0.25, floor=1e-6).covariance)
    np.testing.assert_allclose(variances[:2] / variances[-1], 1e-6, rtol=1e-6)
    assert variances[2] / variances[-1] > 1e-3


def test_the_least_intensity_and_the_largest():
    rng = np.random.default_rng(8)
    rows = rng.normal(size=(40_000, 3)) * [10.0, 1.0, 0.1]
    centred = rows - rows.mean(axis=0)
    assert 0 < ledoit_wolf_intensity(centred) < 1e-3
    assert ledoit_wolf_intensity(rng.normal(size=(9, 1))) == 1.0  # in one dimension the target is the matrix
    assert ledoit_wolf_intensity(np.eye(3)) == 1.0  # no spread to keep
    assert ledoit_wolf_intensity(np.array([[1.0, 2.0]] * 4 + [[-1.0, -2.0]] * 4)) == 0.0  # no noise
    few = rng.normal(size=(4, 9))
    expected = ledoit_wolf(few, assume_centered=True)[1]
    assert ledoit_wolf_intensity(few) == pytest.approx(expected)
    assert ledoit_wolf_intensity(few, few.T @ few) == pytest.approx(expected)
