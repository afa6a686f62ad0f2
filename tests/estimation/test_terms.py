"""The estimate from answers of any format, against ``estimate`` and independent optimisers."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.stats import chi2

from edpbrl_gym.comparisons import Comparisons
from edpbrl_gym.estimation import GaussianPrior, estimate
from edpbrl_gym.likelihood import BestOf, BestWorst, Ranking, Response, Terms, WithTies

MODELS = [BestOf(), BestWorst(), Ranking(), WithTies(0.7)]
model_of_each_kind = pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)


def problem(seed, model, n=60, num_options=4, d=5, spread=1.0):
    rng = np.random.default_rng(seed)
    options, theta = spread * rng.normal(size=(n, num_options, d)), rng.normal(size=d)
    return options, model.sample(options, theta, rng.random(n)), theta


def padded(terms, places):
    empty = np.zeros((0, terms.rows.shape[1] + places, terms.dimension))
    return Terms.concatenate([terms, Terms(empty, empty[..., 0], np.zeros(0, dtype=int))])


@settings(max_examples=25)
@given(st.integers(0, 10**6), st.integers(0, 40), st.integers(2, 6), st.integers(1, 12), st.floats(0.01, 100))
def test_plain_choices_are_estimated_as_before(seed, n, num_options, d, spread):
    options, responses, _ = problem(seed, BestOf(), n, num_options, d, spread)
    choices = np.array([response.first for response in responses], dtype=int)
    expected = estimate((options, choices), regularization=0.5)
    terms = BestOf().terms(options, responses)
    for one in (terms, padded(terms, 2)):
        result = estimate(one, regularization=0.5)
        # absent rows change the rounding of products, and with it where within the tolerance the steps end
        assert result.converged and abs(result.iterations - expected.iterations) <= 1
        shift = result.theta - expected.theta
        assert np.sqrt(shift @ expected.precision @ shift) <= 2.1e-8  # twice the tolerance, in standard deviations
        np.testing.assert_allclose(result.precision, expected.precision, atol=1e-6 * np.abs(expected.precision).max())
        assert result.log_likelihood == pytest.approx(expected.log_likelihood, abs=1e-6)
        assert result.log_posterior == pytest.approx(expected.log_posterior, abs=1e-9)


def test_three_ways_to_say_the_same():
    model = Ranking()
    options, responses, _ = problem(2, model)
    options = options.astype(np.float32)
    place = np.zeros(60, dtype=int)
    answers = Comparisons(options, tuple(responses), place, place)
    expected = estimate(model.terms(options, responses)).theta
    np.testing.assert_array_equal(estimate((options, responses), model=model).theta, expected)
    np.testing.assert_array_equal(estimate(answers, model=model).theta, expected)
    skipped = answers.appended(options[0], Response.skip(), episode=0, step=0)
    np.testing.assert_array_equal(estimate(skipped, model=model).theta, expected)


@model_of_each_kind
@settings(max_examples=15)
@given(st.integers(0, 10**6), st.integers(0, 40), st.integers(2, 5), st.integers(1, 8), st.floats(0.01, 100))
def test_the_gradient_vanishes_at_the_estimate(model, seed, n, num_options, d, spread):
    options, responses, _ = problem(seed, model, n, num_options, d, spread)
    terms = model.terms(options, responses)
    result = estimate(terms, regularization=0.3)
    assert result.converged, result.reason
    gradient = terms.score(result.theta) - 0.3 * result.theta
    assert np.sqrt(gradient @ np.linalg.solve(result.precision, gradient)) <= 1e-7
    expected = terms.information(result.theta) + 0.3 * np.eye(d)
    np.testing.assert_allclose(result.precision, expected, rtol=1e-7, atol=1e-9 * np.abs(expected).max())
    assert result.log_likelihood == pytest.approx(terms.log_likelihood(result.theta), rel=1e-9, abs=1e-9)


@model_of_each_kind
@pytest.mark.parametrize("regularization", [0.0, 0.1, 10.0])
def test_scipy_on_the_probabilities_of_the_outcomes(model, regularization):
    """A quasi-Newton method on the models' probabilities, which know nothing of terms."""
    options, responses, _ = problem(3, model, n=150, d=4)
    index = {outcome: place for place, outcome in enumerate(model.outcomes(4))}
    seen = np.arange(150), np.array([index[response] for response in responses])

    def loss(theta):
        return -np.log(model.probabilities(options, theta)[seen]).sum() + 0.5 * regularization * theta @ theta

    found = minimize(loss, np.zeros(4), method="BFGS", options={"gtol": 1e-7})
    result = estimate((options, responses), model=model, regularization=regularization)
    assert result.converged
    np.testing.assert_allclose(result.theta, found.x, atol=2e-5)
    assert result.log_posterior == pytest.approx(-found.fun, abs=1e-8)
    assert result.log_posterior >= -found.fun - 1e-10


@pytest.mark.needs("test")
@pytest.mark.parametrize("model", [Ranking(), BestWorst()], ids=lambda model: model.name)
def test_statsmodels_on_exploded_rankings(model):
    from statsmodels.discrete.conditional_models import ConditionalLogit

    options, responses, _ = problem(4, model, n=100, d=3)
    rows, chosen, strata = [], [], []
    for question, response in zip(options, responses, strict=True):
        if model.name == "ranking":
            stages = [(response.order[stage], list(response.order[stage:]), 1.0) for stage in range(3)]
        else:
            best, worst = response.order
            stages = [(best, list(range(4)), 1.0), (worst, [k for k in range(4) if k != best], -1.0)]
        for taken, left, sign in stages:
            rows += [sign * question[k] for k in left]
            chosen += [int(k == taken) for k in left]
            strata += [strata[-1] + 1 if strata else 0] * len(left)
    fit = ConditionalLogit(np.array(chosen), np.array(rows), groups=np.array(strata)).fit(
        method="bfgs", gtol=1e-8, disp=False
    )
    result = estimate((options, responses), model=model, regularization=0.0)
    assert result.converged
    np.testing.assert_allclose(result.theta, fit.params, atol=2e-4)
    np.testing.assert_allclose(np.sqrt(np.diag(result.covariance())), fit.bse, rtol=1e-3)
    assert fit.llf <= result.log_likelihood <= fit.llf + 1e-6


@model_of_each_kind
def test_the_taste_is_recovered_from_many_answers(model):
    """theta_hat - theta is Gaussian with the posterior covariance: its length in it is chi-square with d degrees."""
    options, responses, theta = problem(5, model, n=5_000)
    result = estimate((options, responses), model=model, regularization=1e-6)
    away = result.theta - theta
    assert away @ result.precision @ away < chi2.ppf(0.9999, 5)
    assert np.linalg.norm(away) < 0.15
    # the observed information is near the expected one
    expected = model.information(options, theta)
    ratio = np.linalg.eigvals(np.linalg.solve(expected, result.precision)).real
    assert 0.85 < ratio.min() and ratio.max() < 1.15


def test_what_a_tie_is_worth():
    """Ties left out keep the estimate consistent (the logit is free of irrelevant alternatives) but cost information.

    A person who has to name one all the same, and then does so at random, looks more careless than they are.
    """
    model = WithTies(2.0)
    options, responses, theta = problem(6, model, n=5_000)
    told = [Response.skip() if response.kind == "tie" else response for response in responses]
    rng = np.random.default_rng(0)
    forced = [Response.best(int(rng.integers(4))) if one.kind == "tie" else one for one in responses]
    full, left_out, guessed = (
        estimate((options, answers), model=used, regularization=1e-6)
        for answers, used in ((responses, model), (told, BestOf()), (forced, BestOf()))
    )
    for result in (full, left_out):
        away = result.theta - theta
        assert away @ result.precision @ away < chi2.ppf(0.9999, 5)
    # more information in every direction, up to the noise of the estimates at which it is taken
    assert np.linalg.eigvals(np.linalg.solve(left_out.precision, full.precision)).real.min() > 1.0
    assert np.linalg.norm(guessed.theta) < 0.85 * np.linalg.norm(theta)


@model_of_each_kind
def test_no_answers_give_the_mode_of_the_prior(model):
    options, _, _ = problem(8, model)
    prior = GaussianPrior(2.0 * np.eye(5), mean=np.arange(5.0))
    result = estimate((options, [Response.skip()] * 60), model=model, prior=prior)
    assert result.converged
    np.testing.assert_allclose(result.theta, np.arange(5.0), atol=1e-12)
    np.testing.assert_allclose(result.precision, 2.0 * np.eye(5))


@pytest.mark.parametrize("model", [BestOf(), BestWorst(), Ranking()], ids=lambda model: model.name)
def test_answers_without_error_have_no_maximum_without_a_prior(model):
    options, _, theta = problem(11, model, d=3)
    responses = model.sample(options, theta, None)
    result = estimate((options, responses), model=model, regularization=0.0)
    assert not result.converged and "separable" in result.reason
    assert estimate((options, responses), model=model, regularization=1e-3).converged


@pytest.mark.parametrize("model", [BestWorst(), Ranking()], ids=lambda model: model.name)
def test_padding_does_not_hide_that_a_maximum_exists(model):
    options, responses, _ = problem(12, model, d=3, spread=0.3)
    terms = model.terms(options, responses)
    for one in (terms, padded(terms, 3)):
        result = estimate(one, regularization=0.0)
        assert result.converged, result.reason
        np.testing.assert_allclose(one.score(result.theta), 0.0, atol=1e-6)
