"""The Gaussian process against dense computations, scikit-learn's kernels and quadrature; and what it finds."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import log_expit, log_softmax, softmax
from scipy.stats import norm
from sklearn.gaussian_process.kernels import RBF, Matern
from sklearn.preprocessing import KernelCenterer

from edpbrl_gym.estimation import GaussianPrior, fit_prior
from edpbrl_gym.estimation.gaussian_process import GaussianProcessPrior
from edpbrl_gym.estimation.priors import make_prior


def rows(count, dimension, seed=0):
    found = np.random.default_rng(seed).normal(size=(count, dimension))
    return found / np.linalg.norm(found, axis=1, keepdims=True)


def asked(items, utility, count, seed=0, num_options=4):
    """Which items were shown (n, K), and the choices of a noisy person."""
    rng = np.random.default_rng(seed)
    shown = rng.integers(len(items), size=(count, num_options))
    return shown, (utility(items)[shown] + rng.gumbel(size=shown.shape)).argmax(axis=1)


@pytest.mark.parametrize(("name", "kernel"), [("rbf", RBF), ("matern", lambda scale: Matern(scale, nu=2.5))])
def test_the_features_give_the_kernel_of_scikit_learn(name, kernel):
    z, x = rows(12, 3), rows(7, 3, 1)
    prior = GaussianProcessPrior(z, kernel=name, length_scales=(0.7,))
    exact = kernel(prior.length_scales[0])
    centre = KernelCenterer().fit(exact(z))
    np.testing.assert_array_equal(prior.feature_map(z)[:, :3], z)
    at, elsewhere = prior.feature_map(z)[:, 3:], prior.feature_map(x[:, None])[:, 0, 3:]
    matrix = centre.transform(exact(z))
    np.testing.assert_allclose(at @ at.T, matrix, atol=1e-9)
    across = centre.transform(exact(x, z))
    np.testing.assert_allclose(elsewhere @ at.T, across, atol=1e-7)
    nystrom = across @ np.linalg.pinv(matrix, rcond=1e-10, hermitian=True) @ across.T
    np.testing.assert_allclose(elsewhere @ elsewhere.T, nystrom, atol=1e-7)
    # both parts of the covariance let two random landmarks differ as much
    covariance = 1.0 / np.diagonal(prior.bases[1].precision)
    pairs = np.triu_indices(12, 1)
    squares = np.square(prior.feature_map(z)[pairs[0]] - prior.feature_map(z)[pairs[1]]).mean(axis=0) * covariance
    assert squares[3:].sum() == pytest.approx(squares[:3].sum())


def test_the_linear_kernel_is_the_ridge():
    z = rows(30, 4)
    shown, choice = asked(z, lambda x: 5 * x @ np.arange(4), 25)
    prior = GaussianProcessPrior(z, kernel="linear")
    found, expected = prior.fit((z[shown], choice)), fit_prior((z[shown], choice), base=GaussianPrior.isotropic(4, 1.0))
    assert prior.space == "" and prior.landmarks is None and prior.feature_map(z) is z
    np.testing.assert_allclose(found.theta, expected.estimate.theta, rtol=1e-8)
    np.testing.assert_allclose(found.planned.precision, expected.posterior.precision, rtol=1e-8)
    assert found.parts[0].log_evidence == pytest.approx(expected.log_evidence, abs=1e-8)


def dense_laplace(matrix, shown, choice):
    """Mode (N,), covariance and log evidence of utilities u ~ N(0, matrix): Rasmussen & Williams (2006), chapter 3."""
    size = len(matrix)
    pick = np.zeros((len(shown), shown.shape[1], size))
    np.put_along_axis(pick, shown[:, :, None], 1.0, axis=2)

    def state(u):
        p = softmax(u[shown], axis=1)
        gradient = np.einsum("nk,nkj->j", np.eye(shown.shape[1])[choice] - p, pick)
        curvature = np.einsum("nk,nki,nkj->ij", p, pick, pick)
        means = np.einsum("nk,nki->ni", p, pick)
        return gradient, curvature - means.T @ means

    u = np.zeros(size)
    for _ in range(100):
        gradient, curvature = state(u)
        u = 0.5 * u + 0.5 * matrix @ np.linalg.solve(np.eye(size) + curvature @ matrix, curvature @ u + gradient)
    gradient, curvature = state(u)
    inner = np.eye(size) + curvature @ matrix
    likelihood = np.take_along_axis(log_softmax(u[shown], axis=1), choice[:, None], 1).sum()
    evidence = likelihood - 0.5 * gradient @ u - 0.5 * np.linalg.slogdet(inner)[1]
    return u, matrix - matrix @ np.linalg.solve(inner, curvature @ matrix), evidence


def test_estimates_and_evidence_are_those_of_the_dense_process():
    z = rows(9, 2)
    shown, choice = asked(z, lambda x: 4 * x[:, 0] ** 2, 30, num_options=3)
    prior = GaussianProcessPrior(z, length_scales=(0.6,), shares=(0.7,))
    fit = prior.fit((prior.feature_map(z)[shown], choice))
    kernel = KernelCenterer().fit_transform(RBF(prior.length_scales[0])(z))
    pairs = np.triu_indices(9, 1)
    spread = np.square(np.linalg.norm(z[pairs[0]] - z[pairs[1]], axis=1)).mean()
    diagonal = np.diagonal(kernel)
    same = spread / (diagonal[pairs[0]] + diagonal[pairs[1]] - 2 * kernel[pairs]).mean()
    for part, share in zip(fit.parts, (0.0, 0.7), strict=True):
        matrix = part.scale * ((1 - share) * z @ z.T + share * same * kernel)
        u, covariance, evidence = dense_laplace(matrix, shown, choice)
        features = prior.feature_map(z)
        np.testing.assert_allclose(features @ part.mean, u, atol=1e-5)
        found = features @ part.posterior.covariance() @ features.T
        np.testing.assert_allclose(found, covariance, atol=1e-5)
        assert part.log_evidence == pytest.approx(evidence, abs=1e-5)
    logs = [part.log_evidence for part in fit.parts]
    assert fit.weights == pytest.approx(softmax(logs))
    assert fit.theta == pytest.approx(fit.weights @ np.stack([part.mean for part in fit.parts]))


def test_the_gradient_at_the_estimate_is_zero_by_differences():
    z = rows(10, 3)
    shown, choice = asked(z, lambda x: 3 * x[:, 0] ** 2, 20)
    prior = GaussianProcessPrior(z, length_scales=(0.8,), shares=(0.5,))
    part = prior.fit((prior.feature_map(z)[shown], choice)).parts[1]

    def log_posterior(theta):
        values = log_softmax(prior.feature_map(z)[shown] @ theta, axis=1)
        return values[np.arange(20), choice].sum() - 0.5 * theta @ part.prior.precision @ theta

    rng = np.random.default_rng(0)
    for _ in range(5):  # along directions that the prior allows
        step = part.prior.covariance_root() @ rng.normal(size=prior.dimension)
        ends = [log_posterior(part.mean + sign * 1e-4 * step) for sign in (1, -1)]
        assert (ends[0] - ends[1]) / 2e-4 == pytest.approx(0.0, abs=1e-5)


def test_evidence_and_posterior_against_quadrature():
    """Ten answers about one pair of options, 7 to 3: everything depends on one difference of utilities."""
    z = rows(5, 2)
    prior = GaussianProcessPrior(z, length_scales=(0.5,), shares=(0.9,))
    features = prior.feature_map(z[:2])
    fit = prior.fit((np.repeat(features[None], 10, axis=0), np.repeat([0, 1], [7, 3])))
    lead = features[0] - features[1]
    for part in fit.parts:
        spread = np.sqrt(lead @ part.prior.covariance @ lead)

        def density(u, spread=spread):
            return np.exp(7 * log_expit(u) + 3 * log_expit(-u)) * norm.pdf(u, scale=spread)

        total = quad(density, -30, 30)[0]
        assert part.log_evidence == pytest.approx(np.log(total), abs=0.05)
        mean = quad(lambda u: u * density(u), -30, 30)[0] / total
        assert lead @ part.mean == pytest.approx(mean, abs=0.1)
        square = quad(lambda u, mean=mean: (u - mean) ** 2 * density(u), -30, 30)[0] / total
        assert part.posterior.standard_deviation(lead[None])[0] == pytest.approx(np.sqrt(square), rel=0.1)
    assert fit.posterior.interval(lead[None])[0][0] < 0.85 < fit.posterior.interval(lead[None])[1][0]


def errors(utility, seed, count=60):
    """Share of wrongly ordered pairs of new options, by the ridge and by the process."""
    z, new = rows(100, 5, seed), rows(200, 5, 1000 + seed)
    shown, choice = asked(z, lambda x: 5 * utility(x), count, seed)
    ridge = fit_prior((z[shown], choice), base=GaussianPrior.isotropic(5, 1.0)).estimate.theta
    prior = GaussianProcessPrior(z)
    process = prior.fit((prior.feature_map(z)[shown], choice))
    pairs = np.triu_indices(200, 1)

    def wrong(values):
        truth = utility(new)
        return ((values[pairs[0]] > values[pairs[1]]) != (truth[pairs[0]] > truth[pairs[1]])).mean()

    return wrong(new @ ridge), wrong(prior.feature_map(new) @ process.theta), process.weights[0]


def test_a_taste_that_is_not_linear_is_learnt_and_a_linear_one_costs_little():
    either = np.array([errors(lambda x: np.maximum(x[:, 0], x[:, 1]), seed) for seed in range(4)])
    square = np.array([errors(lambda x: 2 * x[:, 0] ** 2, seed) for seed in range(3)])
    linear = np.array([errors(lambda x: x[:, 0], seed) for seed in range(4)])
    assert (either[:, 1] - either[:, 0]).mean() < -0.02
    assert square[:, 0].mean() > 0.4 and square[:, 1].mean() < 0.28  # 0.5 is guessing
    assert (linear[:, 1] - linear[:, 0]).mean() < 0.01
    assert linear[:, 2].mean() > 0.5 > square[:, 2].mean()


def test_nothing_depends_on_the_unit_of_the_features():
    z = rows(30, 3)
    shown, choice = asked(z, lambda x: 4 * x[:, 0] ** 2, 30)
    one, other = (GaussianProcessPrior(unit * z) for unit in (1.0, 1e-3))
    found = [prior.fit((prior.feature_map(unit * z)[shown], choice)) for prior, unit in ((one, 1.0), (other, 1e-3))]
    assert found[1].weights == pytest.approx(found[0].weights, abs=1e-4)
    values = [
        prior.feature_map(unit * z) @ fit.theta for prior, unit, fit in zip((one, other), (1, 1e-3), found, strict=True)
    ]
    np.testing.assert_allclose(values[1], values[0], atol=1e-3 * np.abs(values[0]).max())


def test_landmarks_make_the_same_map_again():
    prior = make_prior("gp", rows(200, 4).astype(np.float32), landmarks=70)
    again = make_prior("gp", prior.landmarks, **prior.options)
    assert prior.landmarks.shape == (70, 4) and again.space == prior.space == prior.fingerprint
    np.testing.assert_array_equal(again.feature_map(rows(5, 4, 1)), prior.feature_map(rows(5, 4, 1)))
    assert make_prior("gp", rows(200, 4), length_scales=(2.0,)).space != prior.space
    assert prior.feature_map(np.zeros((0, 3, 4))).shape == (0, 3, prior.dimension)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"kernel": "cosine"}, "'rbf', 'matern', 'linear'"),
        ({"length_scales": (0.0,)}, "length_scales > 0"),
        ({"shares": (1.0,)}, "shares in"),
        ({"landmarks": 1}, "landmarks >= 2"),
        ({"features": np.ones((4, 2))}, "two different rows"),
        ({"features": np.ones((1, 2))}, "two different rows"),
    ],
)
def test_what_is_refused(options, said):
    with pytest.raises(ValueError, match=said):
        GaussianProcessPrior(**{"features": rows(5, 2), **options})
    with pytest.raises(ValueError, match="as the landmarks have"):
        GaussianProcessPrior(rows(5, 2)).feature_map(np.ones((3, 4)))
