"""The evidence of priors and the scale it chooses, beside quadrature, Monte Carlo and scipy."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.optimize import minimize_scalar
from scipy.stats import multivariate_t

from edpbrl_gym.estimation import GaussianPrior, Posterior, estimate, fit_posterior, fit_prior
from edpbrl_gym.estimation.map_estimate import answer_differences
from edpbrl_gym.estimation.scaled_prior import of_attributes
from edpbrl_gym.estimation.whitened import WhitenedAnswers
from edpbrl_gym.likelihood import Ranking, WithTies
from edpbrl_gym.likelihood.choice import choice_probabilities, log_likelihood
from tests.helpers.evidence import log_evidence


def answers(options, theta, rng):
    return (choice_probabilities(options, theta).cumsum(axis=1) < rng.random((len(options), 1))).sum(axis=1)


def problem(seed, n=60, num_options=4, d=5, size=1.0):
    rng = np.random.default_rng(seed)
    options, theta = rng.normal(size=(n, num_options, d)), size * rng.normal(size=d)
    return options, answers(options, theta, rng)


def some_prior(seed, d, mean=False):
    rng = np.random.default_rng(seed)
    root = np.tril(0.3 * rng.normal(size=(d, d))) / np.sqrt(d) + np.diag(rng.uniform(0.5, 2, size=d))
    return GaussianPrior.from_precision(root @ root.T, rng.normal(size=d) if mean else None)


def monte_carlo_evidence(options, choices, prior, draws=20_000):
    """Importance sampling from a heavy-tailed proposal around the mode, with the standard error of the log."""
    mode = estimate((options, choices), prior=prior)
    proposal = multivariate_t(mode.theta, np.linalg.inv(mode.precision), df=5, seed=0)
    thetas = proposal.rvs(draws)
    away = thetas - prior.mean
    log_prior = (
        -0.5 * np.einsum("nd,de,ne->n", away, prior.precision, away)
        + 0.5 * np.linalg.slogdet(prior.precision / (2 * np.pi))[1]
    )
    values = np.einsum("ikd,nd->nik", options, thetas)
    values -= values.max(axis=2, keepdims=True)
    logs = values[:, np.arange(len(choices)), choices] - np.log(np.exp(values).sum(axis=2))
    weights = logs.sum(axis=1) + log_prior - proposal.logpdf(thetas)
    shift = weights.max()
    ratios = np.exp(weights - shift)
    return float(np.log(ratios.mean()) + shift), float(ratios.std() / ratios.mean() / np.sqrt(draws))


@pytest.mark.parametrize(("seed", "n", "tolerance"), [(0, 15, 0.15), (1, 40, 0.08), (2, 160, 0.05)])
def test_evidence_against_importance_sampling(seed, n, tolerance):
    """Laplace's error falls with the number of answers; the Monte Carlo value is good to a hundredth."""
    options, choices = problem(seed, n=n, d=3)
    prior = some_prior(seed, 3, mean=True)
    expected, error = monte_carlo_evidence(options, choices, prior)
    assert error < 0.02
    found = WhitenedAnswers(*answer_differences((options, choices)), prior)
    assert found.log_evidence(1.0) == pytest.approx(expected, abs=tolerance)


def test_evidence_against_quadrature_in_one_dimension():
    options, choices = problem(5, n=50, d=1)
    prior = GaussianPrior.from_precision([[0.7]], [0.4])
    top = estimate((options, choices), prior=prior)

    def density(x):
        size = log_likelihood(options, choices, [x]) - 0.35 * (x - 0.4) ** 2 + 0.5 * np.log(0.7 / (2 * np.pi))
        return np.exp(size - top.log_posterior)

    expected = np.log(quad(density, -10, 10, points=[top.theta[0]])[0]) + top.log_posterior
    assert log_evidence(top, prior) == pytest.approx(expected, abs=0.02)  # the reference of the tests below


def brute_force(options, choices, base, log_spread=3.0, typical=1.0):
    def loss(log_scale):
        prior = base.scaled(np.exp(log_scale))
        penalty = 0.5 * ((log_scale - np.log(typical)) / log_spread) ** 2
        return penalty - log_evidence(estimate((options, choices), prior=prior), prior)

    answer = minimize_scalar(loss, bounds=(-8, 12), method="bounded", options={"xatol": 1e-4})
    return float(np.exp(answer.x)), -float(answer.fun)


@pytest.mark.parametrize(
    ("seed", "n", "d", "size"),
    [(0, 60, 5, 1.0), (1, 60, 5, 4.0), (2, 200, 4, 0.3), (3, 6, 30, 2.0), (4, 10, 29, 1.0), (5, 10, 31, 1.0)],
)
@pytest.mark.parametrize("mean", [False, True])
def test_the_scale_against_scipy_over_the_estimates(seed, n, d, size, mean):
    """More rows of differences than features, fewer, and as many (the span of the answers)."""
    options, choices = problem(seed, n=n, d=d, size=size)
    base = some_prior(seed, d, mean=mean)
    fit = fit_prior((options, choices), base=base)
    _, expected = brute_force(options, choices, base, typical=fit.typical_scale)
    assert fit.log_evidence - 0.5 * (np.log(fit.scale / fit.typical_scale) / 3) ** 2 == pytest.approx(
        expected, abs=2e-2
    )
    direct = estimate((options, choices), prior=base.scaled(fit.scale))
    np.testing.assert_allclose(fit.prior.precision, base.precision / fit.scale)
    np.testing.assert_allclose(fit.estimate.theta, direct.theta, atol=1e-6)
    np.testing.assert_allclose(fit.estimate.precision, direct.precision, rtol=1e-6, atol=1e-6)
    assert fit.estimate.log_likelihood == pytest.approx(direct.log_likelihood, abs=1e-7)
    assert fit.estimate.log_posterior == pytest.approx(direct.log_posterior, abs=1e-7)
    assert fit.log_evidence == pytest.approx(log_evidence(direct, fit.prior), abs=1e-6)
    assert fit.estimate.converged and not fit.at_bound and fit.estimate.gradient_norm < 1e-5


@settings(max_examples=15)
@given(st.integers(0, 10**6), st.integers(1, 40), st.integers(1, 10), st.floats(-3, 3), st.floats(-2, 2))
@example(548, 10, 1, 0.0, -0.7548592234184175)
@example(20, 10, 3, -3.0, 1.0)
def test_no_tried_scale_is_better_and_units_of_the_base_do_not_matter(seed, n, d, log_size, log_unit):
    options, choices = problem(seed, n=n, d=d, size=np.exp(log_size))
    base = some_prior(seed, d)
    fit = fit_prior((options, choices), base=base)
    objective = fit.grid[:, 1] - 0.5 * (np.log(fit.grid[:, 0] / fit.typical_scale) / 3) ** 2
    assert objective.max() <= fit.log_evidence - 0.5 * (np.log(fit.scale / fit.typical_scale) / 3) ** 2 + 0.02
    unit = float(np.exp(log_unit))
    same = fit_prior((options, choices), base=base.scaled(unit))
    # the estimates that compare scales are rough, and a flat maximum turns their rounding into a percent
    assert same.scale * unit == pytest.approx(fit.scale, rel=5e-2)
    assert same.log_evidence == pytest.approx(fit.log_evidence, abs=0.02)  # the precision of the search


@pytest.mark.parametrize("model", [WithTies(0.8), Ranking()])
@pytest.mark.parametrize("d", [4, 200])
def test_answers_with_offsets_and_absent_alternatives(model, d):
    rng = np.random.default_rng(8)
    options = rng.normal(size=(30, 3, d)) / np.sqrt(d)
    terms = model.terms(options, model.sample(options, 2 * rng.normal(size=d), rng.random(30)))
    base = some_prior(8, d, mean=True)
    fit = fit_prior(terms, base=base)
    direct = estimate(terms, prior=fit.prior)
    np.testing.assert_allclose(fit.estimate.theta, direct.theta, atol=1e-6)
    assert fit.log_evidence == pytest.approx(log_evidence(direct, fit.prior), abs=1e-6)


def test_the_scale_of_the_users_is_found():
    rng = np.random.default_rng(9)
    base = some_prior(9, 8)
    root = base.covariance_root()
    for true in (0.2, 8.0):
        logs = []
        for _ in range(16):
            theta = np.sqrt(true) * root @ rng.normal(size=8)
            options = rng.normal(size=(150, 4, 8))
            logs.append(np.log(fit_prior((options, answers(options, theta, rng)), base=base, log_spread=np.inf).scale))
        # log of a chi-square mean with 8 degrees of freedom: mean about -0.13, deviation about 0.5
        assert np.mean(logs) == pytest.approx(np.log(true) - 0.13, abs=4 * 0.55 / 4)


def test_an_infallible_person_does_not_push_the_scale_away():
    rng = np.random.default_rng(10)
    options, theta = rng.normal(size=(40, 4, 10)), rng.normal(size=10)
    choices = (options @ theta).argmax(axis=1)
    base = GaussianPrior.isotropic(10, 1.0)
    fits = [fit_prior((options, choices), base=base, log_spread=spread) for spread in (0.5, 3.0, 10.0)]
    scales = [fit.scale / fit.typical_scale for fit in fits]
    assert 1 < scales[0] < scales[1] < scales[2] < 1e6


def test_without_answers_the_scale_is_the_typical_one():
    base = some_prior(11, 4, mean=True)
    fit = fit_prior((np.zeros((0, 4, 4)), np.zeros(0, dtype=int)), base=base, typical_scale=2.5)
    assert fit.scale == pytest.approx(2.5) and fit.log_evidence == pytest.approx(0.0, abs=1e-12)
    np.testing.assert_allclose(fit.estimate.theta, base.mean)
    np.testing.assert_allclose(fit.estimate.precision, base.precision / 2.5)


def test_bounds_of_the_scale_where_nothing_is_said():
    """A base far from the person: the default bounds, 1e-4 and 1e6, end the search."""
    data = problem(0, n=60, d=1, num_options=2, size=2.0)
    for precision, bound in ((1e9, 1e6), (1e-9, 1e-4)):
        base = GaussianPrior.isotropic(1, precision)
        fit = fit_prior(data, base=base, typical_scale=1.0, log_spread=np.inf)
        assert fit.scale == pytest.approx(bound, rel=1e-12) and fit.at_bound
        found = fit_posterior(data, base=base, log_spread=np.inf, start=fit, draws=64)
        assert found.scale == pytest.approx(bound, rel=1e-12) and found.scale_deviation == 0.0
    inside = fit_prior(data, base=GaussianPrior.isotropic(1, 1.0))
    assert not inside.at_bound


@pytest.mark.parametrize(("typical", "spread"), [(0.01, 0.1), (20.0, 0.3)])
def test_the_prior_on_the_scale_is_log_normal(typical, spread):
    data, base = problem(1, n=40, num_options=3, d=4), GaussianPrior.isotropic(4, 1.0)
    best, _ = brute_force(*data, base, log_spread=spread, typical=typical)
    fit = fit_prior(data, base=base, typical_scale=typical, log_spread=spread)
    assert np.log(fit.scale) == pytest.approx(np.log(best), abs=0.1)


def test_the_scale_and_its_deviation_are_those_of_the_sampled_evidence():
    data, base = problem(7, n=60, num_options=3, d=3), GaussianPrior.isotropic(3, 1.0)
    found = fit_posterior(data, base=base, log_spread=1.5)
    typical = fit_prior(data, base=base).typical_scale

    def objective(log_scale):
        value = fit_posterior(data, base=base, scale=float(np.exp(log_scale))).log_evidence
        return value - 0.5 * ((log_scale - np.log(typical)) / 1.5) ** 2

    grid = np.log(found.scale) + np.linspace(-1.5, 1.5, 7)
    values = np.array([objective(x) for x in grid])
    second, first, _ = np.polyfit(grid - grid[3], values, 2)
    assert values[3] > values.max() - 0.06
    assert found.scale_deviation == pytest.approx((-2 * second) ** -0.5, rel=0.25)
    assert found.log_evidence == pytest.approx(fit_posterior(data, base=base, scale=found.scale).log_evidence, abs=0.01)
    assert isinstance(found.posterior, Posterior) and found.converged and found.iterations >= 0


def test_the_uncertain_scale_widens_along_the_move_of_the_mean():
    """The covariance plus m m', m the change of the mean by one standard deviation of log(scale)."""
    data, base = problem(8, n=25, num_options=3, d=3), GaussianPrior.isotropic(3, 1.0)
    found = fit_posterior(data, base=base)
    fixed = fit_posterior(data, base=base, scale=found.scale)
    further = fit_posterior(data, base=base, scale=found.scale * np.exp(found.scale_deviation))
    move = further.posterior.mean - fixed.posterior.mean
    np.testing.assert_allclose(found.posterior.mean, fixed.posterior.mean, atol=5e-3)
    added = found.posterior.covariance() - fixed.posterior.covariance()
    assert np.linalg.norm(move) > 0.1
    np.testing.assert_allclose(added, np.outer(move, move), atol=0.1 * move @ move)


def test_a_start_changes_where_a_posterior_is_sought_not_what_it_is():
    data, base = problem(9, n=30, num_options=3, d=3), GaussianPrior.isotropic(3, 1.0)
    for scale in (None, 2.0):
        plain = fit_posterior(data, base=base, scale=scale)
        started = fit_posterior(data, base=base, scale=scale, start=fit_prior(data, base=base))
        assert started.scale == pytest.approx(plain.scale, rel=1e-9)
        np.testing.assert_allclose(started.posterior.mean, plain.posterior.mean, atol=5e-3)
    begun = fit_prior(data, base=base, log_spread=0.2)
    plain = fit_posterior(data, base=base, log_spread=0.2)
    started = fit_posterior(data, base=base, log_spread=0.2, start=begun)
    assert (started.scale, started.bound) == (plain.scale, plain.bound)


def test_the_prior_of_attributes_has_a_stronger_and_narrower_scale():
    rng = np.random.default_rng(3)
    options, base = rng.normal(size=(5, 3, 4)), GaussianPrior.isotropic(4, 1.0)
    data = options, answers(options, np.array([4.0, -2.0, 1.0, 0.0]), rng)
    plain, found = fit_prior(data, base=base), of_attributes(base).fit(data)
    assert found.typical_scale == pytest.approx(8.0 * plain.typical_scale)
    best, _ = brute_force(*data, base, log_spread=0.5, typical=found.typical_scale)
    assert np.log(found.scale) == pytest.approx(np.log(best), abs=0.1)
    inherited = fit_posterior(data, base=base, start=found)  # the prior on the scale is that of the start
    assert inherited.scale == fit_posterior(data, base=base, start=found, log_spread=0.5).scale
    assert inherited.scale != fit_posterior(data, base=base, start=found, log_spread=3.0).scale
