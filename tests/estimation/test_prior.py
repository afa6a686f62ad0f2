"""Gaussian priors: the ridge, precision matrices, and the covariance of the vocabulary's embeddings (F8)."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from sklearn.covariance import LedoitWolf, ledoit_wolf

from edpbrl_gym.estimation import GaussianPrior, estimate
from edpbrl_gym.estimation import spectrum as spectrum_module
from edpbrl_gym.estimation.shrinkage import ledoit_wolf_intensity, shrunk_covariance
from edpbrl_gym.likelihood.choice import log_likelihood


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
    expected = estimate((options @ np.linalg.inv(root).T, choices), regularization=1.0).theta
    result = estimate((options, choices), prior=GaussianPrior.from_precision(root @ root.T))
    np.testing.assert_allclose(root.T @ result.theta, expected, atol=1e-9)


@settings(max_examples=40)
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
            found = estimate((options, choices), prior=prior).theta
            errors[name].append(1 - found @ theta / np.linalg.norm(found))
    means = {name: np.mean(values) for name, values in errors.items()}
    assert means["embeddings"] < min(means[0.1], means[1.0], means[100.0])


def test_a_mean_shifts_the_estimate():
    """With theta = m + delta the mean is an offset of the utilities: scipy on the objective, and the gradient."""
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
    rng = np.random.default_rng(6)
    root = rng.normal(size=(4, 4))
    covariance = root @ root.T + 0.1 * np.eye(4)
    prior = GaussianPrior.from_covariance(covariance, np.arange(4.0))
    np.testing.assert_allclose(prior.precision @ covariance, np.eye(4), atol=1e-10)
    np.testing.assert_allclose(prior.covariance, covariance, atol=1e-10)
    assert prior.log_determinant == pytest.approx(-np.linalg.slogdet(covariance)[1])
    wide = prior.scaled(3.0)
    np.testing.assert_allclose(wide.covariance, 3 * covariance, atol=1e-9)
    np.testing.assert_array_equal(wide.mean, prior.mean)
    assert wide.log_determinant == pytest.approx(np.linalg.slogdet(wide.precision)[1])
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


@settings(max_examples=30)
@given(st.integers(0, 10**6), st.integers(3, 60), st.integers(1, 12))
def test_the_population_prior_is_ledoit_and_wolfs(seed, n, d):
    rng = np.random.default_rng(seed)
    thetas = rng.normal(size=(n, d)) * np.linspace(0.5, 2, d) + 1.0
    reference = LedoitWolf().fit(thetas)
    prior = GaussianPrior.from_estimates(thetas)
    np.testing.assert_allclose(prior.mean, reference.location_, atol=1e-12)
    if reference.shrinkage_ > 1e-3:  # ours keeps a little
        np.testing.assert_allclose(prior.covariance, reference.covariance_, rtol=1e-6, atol=1e-8)


def test_the_population_prior_in_the_shape_of_a_target():
    """Shrinking towards C is shrinking towards the identity where C is the identity."""
    rng = np.random.default_rng(7)
    thetas = rng.normal(size=(10, 5))
    root = np.tril(rng.normal(size=(5, 5))) + 2 * np.eye(5)
    target = GaussianPrior.from_covariance(root @ root.T)
    expected = root @ LedoitWolf().fit(thetas @ np.linalg.inv(root).T).covariance_ @ root.T
    prior = GaussianPrior.from_estimates(thetas, target=target)
    np.testing.assert_allclose(prior.covariance, expected, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(  # its size does not matter
        GaussianPrior.from_estimates(thetas, target=target.scaled(7.0)).covariance, expected, rtol=1e-6, atol=1e-8
    )


def test_population_options():
    rng = np.random.default_rng(8)
    thetas = rng.normal(size=(50, 4)) + [3.0, 0, 0, 0]
    plain = GaussianPrior.from_estimates(thetas)
    scaled = GaussianPrior.from_estimates(thetas, scale=10.0)
    assert np.trace(scaled.covariance) == pytest.approx(40.0)
    ratio = scaled.covariance[0, 0] / plain.covariance[0, 0]
    np.testing.assert_allclose(scaled.mean, np.sqrt(ratio) * plain.mean)
    sizes = rng.uniform(0.1, 10, size=(50, 1))
    np.testing.assert_allclose(
        GaussianPrior.from_estimates(thetas * sizes, normalise=True).covariance,
        GaussianPrior.from_estimates(thetas, normalise=True).covariance,
    )
    wider = GaussianPrior.from_estimates(thetas, posterior_covariance=np.diag([1.0, 2.0, 0.0, 0.0]))
    assert np.trace(wider.covariance) == pytest.approx(np.trace(plain.covariance) + 3.0)


def test_the_population_prior_helps_the_next_user():
    """Users around a common taste: from the estimates of 30 of them the next one is known better than by a ridge."""
    rng = np.random.default_rng(9)
    d, spectrum = 20, np.arange(1, 21.0) ** -1
    common = 3 * rng.normal(size=d) * np.sqrt(spectrum)

    def user():
        theta = common + 2 * rng.normal(size=d) * np.sqrt(spectrum)
        options = rng.normal(size=(25, 4, d))
        return theta, options, (options @ theta + rng.gumbel(size=(25, 4))).argmax(axis=1)

    earlier = [user() for _ in range(30)]
    found = [estimate((options, choices), regularization=0.5) for _, options, choices in earlier]
    spread = np.mean([each.covariance() for each in found], axis=0)
    population = GaussianPrior.from_estimates([each.theta for each in found], posterior_covariance=spread)
    errors = {"population": [], "ridge": []}
    for _ in range(20):
        theta, options, choices = user()
        for name, prior in (("population", population), ("ridge", GaussianPrior.isotropic(d, 0.5))):
            guess = estimate((options, choices), prior=prior).theta
            errors[name].append(1 - guess @ theta / np.linalg.norm(guess) / np.linalg.norm(theta))
    assert np.mean(errors["population"]) < 0.8 * np.mean(errors["ridge"])


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
        (lambda: GaussianPrior.from_precision(np.eye(3), np.zeros(2)), "the precision has 3 rows"),
        (lambda: GaussianPrior.from_precision(np.eye(2), [0.0, np.inf]), "finite mean"),
        (lambda: GaussianPrior.from_covariance(np.diag([1.0, 0.0])), "positive definite covariance"),
        (lambda: GaussianPrior.isotropic(2, 0.0).covariance, "proper prior"),
        (lambda: GaussianPrior.isotropic(2, 1.0).scaled(0.0), "factor > 0"),
        (lambda: GaussianPrior.from_estimates(np.ones((1, 2))), "at least 2 users"),
        (lambda: GaussianPrior.from_estimates(np.ones((3, 2))), "all equal"),
        (lambda: GaussianPrior.from_estimates([[1.0, 0], [0, 0]], normalise=True), "got 0 for user 1"),
        (lambda: GaussianPrior.from_estimates(np.eye(2), target=GaussianPrior.isotropic(2, 0)), "proper prior"),
        (lambda: GaussianPrior.from_estimates(np.eye(2), target=GaussianPrior.isotropic(3, 1)), "dimension 2"),
    ],
)
def test_bad_input_is_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()


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
    prior.covariance_root()[:] = 0.0  # the caller's own
    assert prior.covariance[0, 0] > 0


def test_a_given_intensity_shrinks_like_the_estimated_one() -> None:
    rows = np.random.default_rng(0).normal(size=(30, 8)) * np.arange(1, 9)
    estimated = GaussianPrior.from_embeddings(rows, centred=False, shrunk=True)
    given = GaussianPrior.from_embeddings(rows, centred=False, shrunk=ledoit_wolf_intensity(rows))
    np.testing.assert_array_equal(given.precision, estimated.precision)
    none = GaussianPrior.from_embeddings(rows, centred=False, shrunk=0.0)
    np.testing.assert_allclose(none.precision, GaussianPrior.from_embeddings(rows, centred=False).precision)


def test_many_dimensions_keep_their_leading_directions(monkeypatch):
    """Above a limit the other directions share one variance; where they are alike that is the full decomposition."""
    rng = np.random.default_rng(4)
    spread = np.where(np.arange(30) < 6, 5.0 / np.arange(1, 31), 0.3)
    rows = np.linalg.qr(rng.normal(size=(400, 30)))[0] * spread @ np.linalg.qr(rng.normal(size=(30, 30)))[0].T
    full = GaussianPrior.from_embeddings(rows, centred=False, shrunk=0.1)
    monkeypatch.setattr("edpbrl_gym.estimation.spectrum._FULL", 29)
    monkeypatch.setattr("edpbrl_gym.estimation.spectrum._LEADING", 8)
    monkeypatch.setattr("edpbrl_gym.estimation.spectrum._ITERATIONS", 12)
    leading = GaussianPrior.from_embeddings(rows, centred=False, shrunk=0.1)
    np.testing.assert_allclose(leading.precision, full.precision, rtol=1e-6, atol=1e-8)
    assert leading.log_determinant == pytest.approx(full.log_determinant)
    assert np.trace(leading.covariance) == pytest.approx(30.0)


def test_a_prior_from_eigenvalues_is_that_of_its_precision():
    rows = np.random.default_rng(5).normal(size=(50, 7)) * np.arange(1, 8)
    made = GaussianPrior.from_embeddings(rows)
    checked = GaussianPrior.from_precision(made.precision)
    assert made.log_determinant == pytest.approx(checked.log_determinant) and made.proper
    np.testing.assert_allclose(made.covariance, np.linalg.inv(made.precision), rtol=1e-9)


@pytest.mark.parametrize("scale", [0.25, 1.0, 30.0])
def test_estimates_give_a_prior_of_any_positive_scale(scale):
    thetas = np.random.default_rng(5).standard_normal((12, 3)) + 1.0
    plain, scaled = GaussianPrior.from_estimates(thetas), GaussianPrior.from_estimates(thetas, scale=scale)
    assert np.trace(scaled.covariance) / 3 == pytest.approx(scale)
    factor = scale / (np.trace(plain.covariance) / 3)
    np.testing.assert_allclose(scaled.mean, np.sqrt(factor) * plain.mean)
    with pytest.raises(ValueError, match="Expected a finite scale > 0"):
        GaussianPrior.from_estimates(thetas, scale=0.0)


def test_rounding_of_a_symmetric_matrix_is_repaired_and_more_is_refused():
    matrix = np.array([[2.0, 0.5, 0.0], [0.5, 3.0, 0.1], [0.0, 0.1, 4.0]])
    for apart in (0.9e-8, 1.1e-8):
        wrong = matrix.copy()
        wrong[0, 1] += 4.0 * apart  # relative to the largest entry
        if apart > 1e-8:
            with pytest.raises(ValueError, match=r"symmetric precision matrix, got entries that differ by 4.4e-08"):
                GaussianPrior(wrong)
        else:
            found = GaussianPrior(wrong)
            np.testing.assert_array_equal(found.precision, found.precision.T)
            assert found.precision[0, 1] == pytest.approx(0.5 + 2.0 * apart, abs=1e-15)
    with pytest.raises(ValueError, match=r"got shape \(0, 0\)"):
        GaussianPrior(np.zeros((0, 0)))


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


def test_a_good_condition_needs_no_eigenvalues(monkeypatch):
    def refuse(matrix):
        raise AssertionError("eigenvalues are ten times as expensive as a factor")

    rng = np.random.default_rng(2)
    root = rng.normal(size=(6, 6))
    covariance = root @ root.T + np.eye(6)
    nearly = np.diag([1.0, 2.0, 1e-14])
    embeddings = rng.normal(size=(20, 6))
    made = GaussianPrior.from_embeddings(embeddings, power=0.5)
    monkeypatch.setattr(np.linalg, "eigh", refuse)
    for prior in (
        GaussianPrior(covariance), GaussianPrior.from_covariance(covariance), GaussianPrior.isotropic(6, 0.0),
        GaussianPrior(3.0 * np.eye(6)), made.scaled(2.0), GaussianPrior.from_estimates(embeddings),
    ):  # fmt: skip
        assert prior.dimension == 6
    with pytest.raises(AssertionError, match="eigenvalues"):
        GaussianPrior(nearly)


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


def test_the_root_of_a_covariance():
    rng = np.random.default_rng(3)
    root = rng.normal(size=(5, 5))
    covariance = root @ root.T + 0.5 * np.eye(5)
    known = GaussianPrior.from_covariance(covariance)
    computed = GaussianPrior(np.linalg.inv(covariance))
    for prior, factor in ((known, 1.0), (computed, 1.0), (known.scaled(4.0), 4.0), (computed.scaled(4.0), 4.0)):
        found = prior.covariance_root(5)
        np.testing.assert_allclose(found, np.triu(found))
        np.testing.assert_allclose(found @ found.T, factor * covariance, rtol=1e-9)
        inverse = np.linalg.inv(found)
        np.testing.assert_allclose(inverse.T @ inverse, prior.precision, rtol=1e-8)
        found[:] = 0.0  # the caller's own
        np.testing.assert_allclose(prior.covariance, factor * covariance, rtol=1e-9)
        assert prior.log_determinant == pytest.approx(np.linalg.slogdet(prior.precision)[1])
    with pytest.raises(ValueError, match="Expected a prior of dimension 4, got one of 5"):
        known.covariance_root(4)
    flat = GaussianPrior(np.diag([1.0, 0.0, 0.0]))
    with pytest.raises(ValueError) as caught:
        flat.covariance_root()
    assert str(caught.value) == (
        "Expected a proper prior, got one that says nothing about 2 of 3 directions; use regularization > 0"
    )


def test_products_of_a_scaled_ridge():
    ridge, vector = GaussianPrior.isotropic(3, 4.0).scaled(2.0), np.arange(3.0)
    np.testing.assert_array_equal(ridge.times(vector), 2.0 * vector)
    np.testing.assert_array_equal(ridge.solver()(vector), 0.5 * vector)
    matrix = GaussianPrior(np.array([[2.0, 1.0], [1.0, 3.0]]))
    np.testing.assert_allclose(matrix.times(vector[:2]), [1.0, 3.0])
    np.testing.assert_allclose(matrix.solver()(np.array([1.0, 3.0])), [0.0, 1.0], atol=1e-12)
    assert GaussianPrior(np.diag([1.0, 0.0])).solver() is None
    for unlike in (np.diag([2.0, 2.0, 3.0]), 2 * np.eye(3) + 0.1 * (np.ones((3, 3)) - np.eye(3))):
        np.testing.assert_allclose(GaussianPrior(unlike).times(vector), unlike @ vector)


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


def test_embeddings_that_differ_by_little_differ():
    rows = np.ones((6000, 3))
    rows[5999] += [1e-4, 0.0, 0.0]  # in the second block of rows
    assert GaussianPrior.from_embeddings(rows).proper
    for apart, differ in ((1e-6, True), (1e-9, False)):
        few = np.ones((4, 3))
        few[0, 0] += apart
        if differ:
            assert GaussianPrior.from_embeddings(few).proper
        else:
            with pytest.raises(ValueError, match="rows are all equal"):
                GaussianPrior.from_embeddings(few)
    assert GaussianPrior.from_embeddings([[0.0, 1.0], [1.0, 0.0]]).proper


@pytest.mark.parametrize("size", [30, 31])
def test_the_spectrum_in_full_up_to_a_limit(size, monkeypatch):
    monkeypatch.setattr(spectrum_module, "_FULL", 30)
    monkeypatch.setattr(spectrum_module, "_LEADING", 5)
    monkeypatch.setattr(spectrum_module, "_ITERATIONS", 15)
    vectors = np.linalg.qr(np.random.default_rng(7).normal(size=(size, size)))[0]
    spread = np.where(np.arange(size) < 5, 100.0 / 2.0 ** np.arange(size), 0.5)
    values, found, rest = spectrum_module.spectrum((vectors * spread) @ vectors.T)
    if size == 30:
        assert values.shape == (30,) and found.shape == (30, 30) and rest == 0.0
        np.testing.assert_allclose(values, np.sort(spread), rtol=1e-9)
    else:
        assert values.shape == (5,) and found.shape == (31, 5) and rest == pytest.approx(0.5)
        np.testing.assert_allclose(values, np.sort(spread)[-5:], rtol=1e-6)
        np.testing.assert_allclose(np.abs(np.vecdot(found.T, vectors[:, 4::-1].T)), 1.0, rtol=1e-6)
    # of a moment of rank 2 nothing is left for the other directions
    low = spectrum_module.spectrum((vectors[:, :2] * [3.0, 2.0]) @ vectors[:, :2].T)
    assert low[2] == pytest.approx(0.0, abs=1e-12) and low[0].min() >= (0.0 if size == 31 else -1e-12)


def test_leading_directions_by_products_alone():
    spread, asked = np.arange(1.0, 41.0) ** 3, []

    def times(columns):
        asked.append(columns.shape)
        return spread[:, None] * columns

    found = spectrum_module.leading_directions(times, 40, 4, iterations=30)
    assert asked == [(40, 4)] * 30 and found.shape == (40, 4)
    np.testing.assert_allclose(found.T @ found, np.eye(4), atol=1e-12)
    np.testing.assert_allclose(np.linalg.norm(found[36:], axis=0), 1.0, atol=1e-3)
    np.testing.assert_array_equal(found, spectrum_module.leading_directions(times, 40, 4, iterations=30))


def test_the_least_intensity_and_the_largest():
    rng = np.random.default_rng(8)
    rows = rng.normal(size=(40_000, 3)) * [10.0, 1.0, 0.1]
    centred = rows - rows.mean(axis=0)
    assert 0 < ledoit_wolf_intensity(centred) < 1e-3
    sample, root = centred.T @ centred / len(rows), np.diag([1.0, 2.0, 3.0])
    size = np.trace(np.linalg.solve(root @ root.T, sample)) / 3
    np.testing.assert_allclose(
        shrunk_covariance(centred, np.eye(3)), 0.999 * sample + 1e-3 * np.trace(sample) / 3 * np.eye(3)
    )
    extra = np.array([[1.0, 0.2, 0.0], [0.2, 2.0, 0.0], [0.0, 0.0, 0.5]])
    size += np.trace(np.linalg.solve(root @ root.T, extra)) / 3
    np.testing.assert_allclose(
        shrunk_covariance(centred, root, extra), 0.999 * (sample + extra) + 1e-3 * size * root @ root.T, rtol=1e-9
    )
    assert ledoit_wolf_intensity(rng.normal(size=(9, 1))) == 1.0  # in one dimension the target is the matrix
    assert ledoit_wolf_intensity(np.eye(3)) == 1.0  # no spread to keep
    assert ledoit_wolf_intensity(np.array([[1.0, 2.0]] * 4 + [[-1.0, -2.0]] * 4)) == 0.0  # no noise
    few = rng.normal(size=(4, 9))
    expected = ledoit_wolf(few, assume_centered=True)[1]
    assert ledoit_wolf_intensity(few) == pytest.approx(expected)
    assert ledoit_wolf_intensity(few, few.T @ few) == pytest.approx(expected)


def test_normalised_estimates_have_unit_norm():
    thetas = np.array([[3.0, 4.0], [0.0, 2.0], [5.0, 0.0], [-1.0, 1.0]])
    found = GaussianPrior.from_estimates(thetas, normalise=True)
    units = thetas / np.linalg.norm(thetas, axis=1, keepdims=True)
    np.testing.assert_allclose(found.mean, units.mean(axis=0))
    np.testing.assert_allclose(found.precision, GaussianPrior.from_estimates(units).precision)
    with pytest.raises(ValueError, match="got 0 for user 2; leave it out"):
        GaussianPrior.from_estimates([[1.0, 0], [0, 1.0], [0, 0]], normalise=True)
    assert GaussianPrior.from_estimates([[1.0, 0], [0, 1.0], [0, 0]]).proper
