"""The evidence of priors and the scale it chooses, beside quadrature, Monte Carlo and scipy."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.optimize import minimize_scalar
from scipy.stats import multivariate_t

from edpbrl_gym.estimation import (
    Estimate,
    GaussianPrior,
    choose_prior,
    estimate,
    fit_prior,
    log_evidence,
)
from edpbrl_gym.estimation.scale_search import climb
from edpbrl_gym.likelihood import BestOf, Ranking, Terms, WithTies
from edpbrl_gym.likelihood.choice import choice_probabilities, log_likelihood


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
    assert log_evidence(estimate((options, choices), prior=prior), prior) == pytest.approx(expected, abs=tolerance)


def test_evidence_against_quadrature_in_one_dimension():
    options, choices = problem(5, n=50, d=1)
    prior = GaussianPrior.from_precision([[0.7]], [0.4])
    top = estimate((options, choices), prior=prior)

    def density(x):
        size = log_likelihood(options, choices, [x]) - 0.35 * (x - 0.4) ** 2 + 0.5 * np.log(0.7 / (2 * np.pi))
        return np.exp(size - top.log_posterior)

    expected = np.log(quad(density, -10, 10, points=[top.theta[0]])[0]) + top.log_posterior
    assert log_evidence(top, prior) == pytest.approx(expected, abs=0.02)


@settings(max_examples=20)
@given(st.integers(0, 10**6), st.integers(1, 6), st.integers(0, 30))
def test_evidence_does_not_depend_on_the_coordinates(seed, d, n):
    options, choices = problem(seed, n=n, d=d)
    prior = some_prior(seed, d, mean=True)
    expected = log_evidence(estimate((options, choices), prior=prior), prior)
    if n == 0:
        assert expected == pytest.approx(0.0, abs=1e-9)
    change = np.linalg.qr(np.random.default_rng(seed).normal(size=(d, d)))[0] * np.linspace(1, 3, d)
    inverse = np.linalg.inv(change)  # theta -> change theta, x -> change^-T x
    moved = GaussianPrior.from_precision(inverse.T @ prior.precision @ inverse, change @ prior.mean)
    found = log_evidence(estimate((options @ inverse, choices), prior=moved), moved)
    assert found == pytest.approx(expected, abs=1e-6)


def test_an_improper_prior_is_the_limit_of_proper_ones_up_to_the_density_in_its_free_directions():
    options, choices = problem(3, n=80, d=3)
    free = GaussianPrior.from_precision(np.diag([1.0, 2.0, 0.0]))
    small = 1e-7
    near = GaussianPrior.from_precision(np.diag([1.0, 2.0, small]))
    limit = log_evidence(estimate((options, choices), prior=near), near) + 0.5 * np.log(2 * np.pi / small)
    assert log_evidence(estimate((options, choices), prior=free), free) == pytest.approx(limit, abs=1e-4)


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
    _, expected = brute_force(options, choices, base)
    fit = fit_prior((options, choices), base=base, precision=1e-4)
    assert fit.log_evidence - 0.5 * (np.log(fit.scale) / 3) ** 2 == pytest.approx(expected, abs=2e-3)
    direct = estimate((options, choices), prior=base.scaled(fit.scale))
    np.testing.assert_allclose(fit.prior.precision, base.precision / fit.scale)
    np.testing.assert_allclose(fit.estimate.theta, direct.theta, atol=1e-6)
    np.testing.assert_allclose(fit.estimate.precision, direct.precision, rtol=1e-6, atol=1e-6)
    assert fit.estimate.log_likelihood == pytest.approx(direct.log_likelihood, abs=1e-7)
    assert fit.estimate.log_posterior == pytest.approx(direct.log_posterior, abs=1e-7)
    assert fit.log_evidence == pytest.approx(log_evidence(direct, fit.prior), abs=1e-6)
    assert fit.estimate.converged and not fit.at_bound and fit.estimate.gradient_norm < 1e-5


@settings(max_examples=25)
@given(st.integers(0, 10**6), st.integers(0, 40), st.integers(1, 10), st.floats(-3, 3), st.floats(-2, 2))
@example(548, 10, 1, 0.0, -0.7548592234184175)
def test_no_tried_scale_is_better_and_units_of_the_base_do_not_matter(seed, n, d, log_size, log_unit):
    options, choices = problem(seed, n=n, d=d, size=np.exp(log_size))
    base = some_prior(seed, d)
    fit = fit_prior((options, choices), base=base)
    objective = fit.grid[:, 1] - 0.5 * (np.log(fit.grid[:, 0]) / 3) ** 2
    assert objective.max() <= fit.log_evidence - 0.5 * (np.log(fit.scale) / 3) ** 2 + 0.02
    unit = float(np.exp(log_unit))
    same = fit_prior((options, choices), base=base.scaled(unit), typical_scale=1 / unit)
    # the estimates that compare scales are rough, and a flat maximum turns their rounding into parts of a percent
    assert same.scale * unit == pytest.approx(fit.scale, rel=1e-2)
    assert same.log_evidence == pytest.approx(fit.log_evidence, abs=0.02)  # the precision of the search


def test_terms_of_choices_are_the_choices():
    options, choices = problem(7, n=30, d=4)
    base = some_prior(7, 4)
    terms = Terms(options, np.zeros(options.shape[:2]), choices)
    np.testing.assert_array_equal(
        fit_prior(terms, base=base).estimate.theta, fit_prior((options, choices), base=base).estimate.theta
    )


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
    """200 users' worth of answers: the scale of the tastes' distribution within sampling error."""
    rng = np.random.default_rng(9)
    base = some_prior(9, 8)
    root = base.covariance_root()
    for true in (0.2, 1.0, 8.0):
        logs = []
        for _ in range(25):
            theta = np.sqrt(true) * root @ rng.normal(size=8)
            options = rng.normal(size=(150, 4, 8))
            logs.append(np.log(fit_prior((options, answers(options, theta, rng)), base=base, log_spread=np.inf).scale))
        # log of a chi-square mean with 8 degrees of freedom: mean about -0.13, deviation about 0.5
        assert np.mean(logs) == pytest.approx(np.log(true) - 0.13, abs=4 * 0.55 / 5)


def test_an_infallible_person_does_not_push_the_scale_away():
    rng = np.random.default_rng(10)
    options, theta = rng.normal(size=(40, 4, 10)), rng.normal(size=10)
    choices = (options @ theta).argmax(axis=1)
    base = GaussianPrior.isotropic(10, 1.0)
    scales = [fit_prior((options, choices), base=base, log_spread=spread).scale for spread in (0.5, 3.0, 10.0)]
    assert 1 < scales[0] < scales[1] < scales[2] < 1e6
    bound = fit_prior((options, choices), base=base, bounds=(0.5, 2.0))
    assert bound.scale == 2.0 and bound.at_bound and bound.estimate.converged
    np.testing.assert_allclose(bound.prior.precision, np.eye(10) / 2)


def test_without_answers_the_scale_is_the_typical_one():
    base = some_prior(11, 4, mean=True)
    fit = fit_prior((np.zeros((0, 4, 4)), np.zeros(0, dtype=int)), base=base, typical_scale=2.5)
    assert fit.scale == pytest.approx(2.5) and fit.log_evidence == pytest.approx(0.0, abs=1e-12)
    np.testing.assert_allclose(fit.estimate.theta, base.mean)
    np.testing.assert_allclose(fit.estimate.precision, base.precision / 2.5)


def test_a_warm_start_follows_in_few_evaluations():
    options, choices = problem(12, n=120, d=60, size=2.0)
    base = some_prior(12, 60)
    cold = fit_prior((options, choices), base=base)
    before = fit_prior((options[:114], choices[:114]), base=base)
    warm = fit_prior((options, choices), base=base, start=before, max_evaluations=3)
    assert len(warm.grid) == 3 and len(cold.grid) > 3
    assert warm.log_evidence == pytest.approx(cold.log_evidence, abs=0.1)
    fixed = fit_prior((options, choices), base=base, start=before, max_evaluations=1)
    assert fixed.scale == before.scale and len(fixed.grid) == 1
    np.testing.assert_allclose(
        fixed.estimate.theta, estimate((options, choices), prior=base.scaled(before.scale)).theta, atol=1e-6
    )


def test_the_right_base_prior_is_chosen():
    """Tastes in a few directions: the prior that expects them there has the higher evidence, users' sum above all."""
    rng = np.random.default_rng(13)
    spectrum = np.arange(1, 41.0) ** -1.5
    narrow = GaussianPrior.from_precision(np.diag(1 / spectrum))
    candidates = {"narrow": narrow, "ridge": GaussianPrior.isotropic(40, 1.0)}
    wins, lead = 0, 0.0
    for _ in range(20):
        options = rng.normal(size=(60, 4, 40))
        theta = rng.normal(size=40) * np.sqrt(spectrum)
        found = choose_prior((options, answers(options, theta, rng)), candidates=candidates)
        assert found.fit is found.fits[found.name] and set(found.fits) == set(candidates)
        assert found.fit.log_evidence == max(fit.log_evidence for fit in found.fits.values())
        wins += found.name == "narrow"
        lead += found.fits["narrow"].log_evidence - found.fits["ridge"].log_evidence
    assert wins >= 15 and lead > 20


def test_climb_finds_maxima_inside_and_at_the_limits():
    calls = []

    def objective(x, at, bend):
        calls.append(x)
        return -bend * np.log(np.cosh(x - at))

    for at in (-5.0, 0.3, 7.5):
        for bend in (0.5, 20.0):
            calls.clear()
            found, curvature = climb(
                lambda x, a=at, b=bend: objective(x, a, b), 0.0, (-10, 10), step=1.0, precision=1e-3, max_evaluations=40
            )
            assert bend * np.log(np.cosh(found - at)) < 5e-3 and len(calls) <= 16
            assert curvature == pytest.approx(bend, rel=0.2)
    assert climb(lambda x: x, 0.0, (-1.0, 4.0), step=1.0, precision=1e-3, max_evaluations=40).at == 4.0
    assert climb(lambda x: -x, 0.0, (-1.0, 4.0), step=1.0, precision=1e-3, max_evaluations=40).at == -1.0
    assert climb(lambda x: 0.0, 9.0, (-1.0, 4.0), step=1.0, precision=1e-3, max_evaluations=40).at == 4.0
    calls.clear()
    climb(lambda x: objective(x, 3.0, 1.0), 0.0, (-10, 10), step=1.0, precision=1e-9, max_evaluations=2)
    assert len(calls) == 2


RIDGE = GaussianPrior.isotropic(2, 1.0)
OPTIONS, CHOICES = np.eye(2)[None], [0]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: fit_prior(Terms(OPTIONS, np.zeros((1, 2)), [0]), model=BestOf(), base=RIDGE), "no model beside Terms"),
        (lambda: fit_prior((OPTIONS, CHOICES), base=GaussianPrior.isotropic(2, 0.0)), "proper prior"),
        (lambda: fit_prior((OPTIONS, CHOICES), base=GaussianPrior.isotropic(3, 1.0)), "dimension 2"),
        (lambda: fit_prior((OPTIONS, CHOICES), base=RIDGE, bounds=(2, 1)), "smallest, largest"),
        (lambda: fit_prior((OPTIONS, CHOICES), base=RIDGE, bounds=(0, 1)), r"bounds\[0\] > 0"),
        (lambda: fit_prior((OPTIONS, CHOICES), base=RIDGE, log_spread=0), "log_spread > 0"),
        (lambda: fit_prior((OPTIONS, CHOICES), base=RIDGE, max_evaluations=0), "max_evaluations >= 1"),
        (lambda: choose_prior((OPTIONS, CHOICES), candidates={}), "at least one candidate"),
        (lambda: log_evidence(estimate((OPTIONS, CHOICES)), GaussianPrior.isotropic(3, 1.0)), "dimension 2"),
        (
            lambda: log_evidence(Estimate(np.zeros(2), False, 1, 1.0, 0.0, 0.0, np.eye(2), "because"), RIDGE),
            "did not: because",
        ),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_a_bare_matrix_is_no_base():
    with pytest.raises(TypeError, match="GaussianPrior, got ndarray"):
        fit_prior((OPTIONS, CHOICES), base=np.eye(2))
