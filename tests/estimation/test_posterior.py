"""The Gaussian posterior beside its definition, Monte Carlo, and the coverage of its intervals."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.special import softmax
from scipy.stats import multivariate_normal, norm

from edpbrl_gym.estimation import GaussianPrior, Posterior, estimate, fit_posterior, fit_prior
from edpbrl_gym.estimation.variational import normal_points
from edpbrl_gym.likelihood import Ranking, WithTies
from edpbrl_gym.likelihood.choice import choice_probabilities, fisher_information, log_likelihood, score


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


def test_zero_rows_have_no_width():
    low, high = posterior().interval(np.zeros((1, 4)))
    assert low[0] == high[0] == 0.0


def test_scaling_scales_theta():
    found, double = posterior(), posterior().scaled(2.0)
    rows = np.random.default_rng(0).normal(size=(3, 4))
    np.testing.assert_allclose(np.array(double.interval(rows)), 2 * np.array(found.interval(rows)))


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
    leads = options[:, 0] - options[:, 1]
    deviation = found.standard_deviation(leads)
    assert exact == pytest.approx(norm.cdf(np.abs(leads @ found.mean) / deviation).mean())
    assert found.expected_accuracy(np.ones((1, 2, 4))) == 0.5


def test_equal_posteriors_give_equal_accuracies():
    options = np.random.default_rng(7).normal(size=(30, 4, 4))
    first = posterior(7).expected_accuracy(options)
    assert first == posterior(7).expected_accuracy(options)
    assert first != posterior(7).expected_accuracy(options, rng=np.random.default_rng(1))


def test_the_intervals_cover_the_truth():
    """Users drawn from the prior who answer with little noise: 90% intervals of coordinates and of leads cover 90% of
    the truths and the expected accuracy is the true one for the variational posterior; Laplace's is too narrow."""
    rng = np.random.default_rng(8)
    prior = GaussianPrior.from_covariance(np.diag(np.arange(1, 13.0) ** -1) * 9)
    root = prior.covariance_root()
    rows = np.concatenate([np.eye(12), rng.normal(size=(20, 12))])
    held_out = rng.normal(size=(60, 4, 12))
    inside, predicted, true = [], [], []
    for _ in range(60):
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
    """Log evidence, mean and variance by quadrature on a fine grid."""
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
    """In one dimension, where theta is small beside its prior and where answers are nearly certain and the posterior is
    far from a Gaussian: nearer to the exact mean than the mode is; the evidence is nearly exact."""
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


def test_the_variational_posterior_maximises_the_bound():
    """scipy over mean and deviation, the expectation by Gauss-Hermite quadrature."""
    options, choices = one_dimension(1.5)
    nodes, weights = np.polynomial.hermite_e.hermegauss(80)
    weights = weights / weights.sum()

    def loss(point):
        mean, deviation = point[0], np.exp(point[1])
        expected = weights @ [log_likelihood(options, choices, [mean + deviation * z]) for z in nodes]
        divergence = 0.5 * (0.02 * (deviation**2 + (mean - 0.5) ** 2) - 1 - np.log(0.02 * deviation**2))
        return divergence - expected

    answer = minimize(loss, [2.0, 0.0], method="Nelder-Mead", options={"xatol": 1e-6, "fatol": 1e-9})
    found = fit_posterior((options, choices), base=GaussianPrior.from_precision([[0.02]], [0.5]), scale=1.0)
    assert found.posterior.mean[0] == pytest.approx(answer.x[0], rel=0.01)
    assert found.posterior.precision[0, 0] ** -0.5 == pytest.approx(np.exp(answer.x[1]), rel=0.02)
    assert found.bound == pytest.approx(-answer.fun, abs=0.01)


@pytest.mark.parametrize(("n", "d"), [(40, 5), (8, 60)])
def test_the_variational_posterior_satisfies_its_equations(n, d):
    """Averages over draws of the Gaussian: the gradient vanishes and the precision is the mean Hessian; with more and
    with fewer rows of differences than features."""
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


def test_the_points_of_the_normal_have_its_moments():
    for dimension in (1, 3, 7):
        points = normal_points(dimension)
        np.testing.assert_allclose(points.mean(axis=0), 0.0, atol=1e-12)
        np.testing.assert_allclose(points.T @ points / len(points), np.eye(dimension), atol=1e-12)


def test_the_scale_of_the_variational_posterior_is_less_biased():
    """Many users of one scale who answer with little noise: Laplace's evidence prefers too small a scale."""
    rng = np.random.default_rng(4)
    base, true = GaussianPrior.isotropic(20, 1.0), 2.0
    laplace, sampled, deviations = [], [], []
    for _ in range(8):
        theta = np.sqrt(true) * rng.normal(size=20)
        options = rng.normal(size=(90, 4, 20))
        choices = (options @ theta + rng.gumbel(size=(90, 4))).argmax(axis=1)
        fit = fit_prior((options, choices), base=base, log_spread=np.inf)
        found = fit_posterior((options, choices), base=base, start=fit, log_spread=np.inf)
        laplace.append(np.log(fit.scale / true))
        sampled.append(np.log(found.scale / true))
        deviations.append(found.scale_deviation)
        fixed = fit_posterior((options, choices), base=base, scale=found.scale)
        assert fixed.scale_deviation == 0.0
        np.testing.assert_allclose(fixed.posterior.mean, found.posterior.mean, atol=0.3)
        wider = found.posterior.covariance() - fixed.posterior.covariance()
        assert np.trace(wider) > 0
    assert np.mean(laplace) < np.mean(sampled) - 0.05
    assert abs(np.mean(sampled)) < 0.5 and 0.1 < np.mean(deviations) < 2


def test_other_answers_than_the_best_have_a_variational_posterior():
    rng = np.random.default_rng(5)
    options = rng.normal(size=(25, 3, 4))
    for model in (Ranking(), WithTies(0.7)):
        terms = model.terms(options, model.sample(options, [2.0, 0, 0, 0], rng.random(25)))
        found = fit_posterior(terms, base=GaussianPrior.isotropic(4, 1.0))
        assert found.converged and found.posterior.mean[0] > 0.5


def test_no_answers_leave_the_prior():
    base = GaussianPrior.from_precision(np.diag([1.0, 4.0]), [3.0, 1.0])
    found = fit_posterior((np.zeros((0, 4, 2)), np.zeros(0, dtype=int)), base=base, scale=2.0)
    np.testing.assert_allclose(found.posterior.mean, [3.0, 1.0])
    np.testing.assert_allclose(found.posterior.precision, np.diag([0.5, 2.0]))
    assert found.log_evidence == pytest.approx(0.0, abs=1e-9)


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


def test_the_moments_of_a_mixture():
    rng = np.random.default_rng(4)
    parts = []
    for _ in range(3):
        root = rng.normal(size=(4, 4))
        parts.append(Posterior(rng.normal(size=4), root @ root.T + np.eye(4)))
    weights = np.array([0.2, 0.5, 0.3])
    found = Posterior.of_mixture(parts, weights)
    second = sum(
        w * (np.linalg.inv(p.precision) + np.outer(p.mean, p.mean)) for w, p in zip(weights, parts, strict=True)
    )
    mean = sum(w * p.mean for w, p in zip(weights, parts, strict=True))
    np.testing.assert_allclose(found.mean, mean)
    np.testing.assert_allclose(found.covariance(), second - np.outer(mean, mean), rtol=1e-9, atol=1e-12)
    assert Posterior.of_mixture(parts, [0.0, 1.0, 0.0]) is parts[1]


@pytest.mark.parametrize("weights", [[0.5, 0.6], [-0.5, 1.5], [1.0]])
def test_weights_of_a_mixture_that_do_not_fit(weights):
    part = Posterior(np.zeros(2), np.eye(2))
    with pytest.raises(ValueError, match="weights"):
        Posterior.of_mixture([part, part], weights)


def test_draws_are_the_mean_and_a_root_of_the_covariance_times_normal_numbers():
    found = posterior(9)
    normal = np.random.default_rng(5).standard_normal((6, 4))
    expected = found.mean + np.linalg.solve(np.linalg.cholesky(found.precision).T, normal.T).T
    np.testing.assert_allclose(found.draws(6, np.random.default_rng(5)), expected, rtol=1e-9)


def test_the_inverse_factor():
    found = posterior(10)
    factor = found.inverse_factor
    assert factor is found.inverse_factor and not factor.flags.writeable
    np.testing.assert_array_equal(factor, np.tril(factor))
    np.testing.assert_allclose(factor @ np.linalg.cholesky(found.precision), np.eye(4), atol=1e-10)
    rows = np.random.default_rng(1).normal(size=(3, 4))
    np.testing.assert_allclose(np.linalg.norm(rows @ factor.T, axis=1), found.standard_deviation(rows))


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


def test_roots_of_the_covariances_of_groups_of_rows():
    found, rows = posterior(12), np.random.default_rng(3).normal(size=(5, 2, 4))
    roots = found.roots(rows)
    assert roots.shape == (5, 2, 2)
    np.testing.assert_allclose(roots @ roots, rows @ np.linalg.inv(found.precision) @ rows.transpose(0, 2, 1))


@pytest.mark.parametrize("num_options", [2, 3, 5])
def test_choice_probabilities_are_averages_of_the_logit(num_options):
    found, options = posterior(13), np.random.default_rng(4).normal(size=(7, num_options, 4))
    probabilities = found.choice_probabilities(options)
    assert probabilities.shape == (7, num_options)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1.0)
    thetas = found.draws(20_000, np.random.default_rng(5))
    expected = softmax(np.einsum("nkd,sd->snk", options, thetas), axis=2).mean(axis=0)
    np.testing.assert_allclose(probabilities, expected, atol=0.015)
    with pytest.raises(ValueError, match="2 options"):
        found.choice_probabilities(options[:, :1])
    with pytest.raises(ValueError, match="theta has 4 features"):
        found.choice_probabilities(options[:, :, :3])


def test_choice_probabilities_of_two_options_are_a_smooth_function_of_the_lead():
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    found = Posterior(np.array([0.7]), np.array([[0.5]]))
    options = np.array([[[x], [0.0]] for x in (-2.0, 0.0, 0.5, 1.0)])
    values = options[:, 0, 0, None] * (0.7 + np.sqrt(2.0) * nodes)
    expected = (1 / (1 + np.exp(-values))) @ weights / weights.sum()
    np.testing.assert_allclose(found.choice_probabilities(options)[:, 0], expected, atol=5e-3)
    np.testing.assert_allclose(found.choice_probabilities(options)[1], 0.5)


@pytest.mark.parametrize("against", ["truth", "answers"])
def test_accuracy_in_blocks_of_questions(against, monkeypatch):
    found, options = posterior(14), np.random.default_rng(6).normal(size=(11, 3, 4))
    whole = found.expected_accuracy(options, against=against, draws=50)
    monkeypatch.setattr("edpbrl_gym.estimation.posterior._BLOCK_NUMBERS", 50 * 2 * 3)
    assert found.expected_accuracy(options, against=against, draws=50) == pytest.approx(whole, rel=1e-12)
    monkeypatch.setattr("edpbrl_gym.estimation.posterior._BLOCK_NUMBERS", 1)
    assert found.expected_accuracy(options, against=against, draws=50) == pytest.approx(whole, rel=1e-12)


def test_accuracy_against_answers_of_pairs_is_an_integral():
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    found = Posterior(np.array([0.7]), np.array([[0.5]]))
    rows = np.array([[-2.0], [0.5], [1.0]])
    values = np.abs(rows) * 0.7 + np.abs(rows) * np.sqrt(2.0) * nodes
    expected = ((1 / (1 + np.exp(-values))) @ weights / weights.sum()).mean()
    assert found.expected_accuracy(rows, against="answers", draws=50_000) == pytest.approx(expected, abs=0.01)
    assert found.expected_accuracy(-rows, against="answers", draws=50_000) == pytest.approx(expected, abs=0.01)


def test_the_favourite_among_equal_options_is_the_first():
    found = Posterior(np.array([1.0, 0.0]), np.eye(2))
    options = np.array([[[1.0, 0.0], [1.0, 5.0], [0.0, 0.0]]])
    leads = found._leads(options)
    np.testing.assert_array_equal(leads, [[[0.0, -5.0], [1.0, 0.0]]])
    np.testing.assert_array_equal(found._leads(options[:, ::-1]), [[[1.0, 5.0], [0.0, 5.0]]])


def test_small_weights_of_a_mixture_are_left_out_and_sums_are_checked_to_rounding():
    parts = [posterior(seed) for seed in (15, 16)]
    assert Posterior.of_mixture(parts, [1 - 0.9e-6, 0.9e-6]) is parts[0]
    both = Posterior.of_mixture(parts, [1 - 1.1e-5, 1.1e-5])
    assert both is not parts[0]
    np.testing.assert_allclose(both.mean, (1 - 1.1e-5) * parts[0].mean + 1.1e-5 * parts[1].mean)
    np.testing.assert_array_equal(both.precision, both.precision.T)
    assert Posterior.of_mixture(parts, [0.5, 0.5 + 0.9e-9]) is not None
    for weights in ([0.5, 0.5 + 2e-9], [0.5, 0.5 - 2e-9], [-1e-12, 1 + 1e-12]):
        with pytest.raises(ValueError, match="Expected weights >= 0 with the sum 1, one for each part, got"):
            Posterior.of_mixture(parts, weights)
    with pytest.raises(ValueError, match=r"got \[\]"):
        Posterior.of_mixture([], [])
