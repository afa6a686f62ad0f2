"""The estimate against independent solvers: scikit-learn, scipy.optimize, statsmodels."""

import numpy as np
import pytest
from scipy.optimize import minimize, root

from edpbrl_gym.estimation import estimate
from edpbrl_gym.likelihood.choice import choice_probabilities


def problem(seed, n, num_options, d):
    rng = np.random.default_rng(seed)
    options, theta = rng.normal(size=(n, num_options, d)), rng.normal(size=d)
    return options, (choice_probabilities(options, theta).cumsum(axis=1) < rng.random((n, 1))).sum(axis=1)


def objective(theta, options, choices, precision):
    values = np.einsum("nkd,d->nk", options, theta)
    shift = values.max(axis=1, keepdims=True)
    weights = np.exp(values - shift)
    total = weights.sum(axis=1, keepdims=True)
    chosen = np.arange(len(choices)), choices
    loss = (np.log(total) + shift).sum() - values[chosen].sum() + 0.5 * theta @ precision @ theta
    gradient = np.einsum("nk,nkd->d", weights / total, options) - options[chosen].sum(axis=0) + precision @ theta
    return loss, gradient


@pytest.mark.needs("experiments")
@pytest.mark.parametrize("regularization", [0.01, 1.0, 100.0])
@pytest.mark.parametrize(("n", "d"), [(200, 10), (80, 120)])
def test_scikit_learn_on_differences(regularization, n, d):
    from sklearn.linear_model import LogisticRegression

    options, choices = problem(1, n, 2, d)
    model = LogisticRegression(
        C=1 / regularization, fit_intercept=False, solver="newton-cholesky", tol=1e-12, max_iter=1000
    )
    model.fit(options[:, 1] - options[:, 0], choices)
    result = estimate((options, choices), regularization=regularization)
    assert result.converged
    np.testing.assert_allclose(result.theta, model.coef_[0], rtol=0, atol=1e-6)


@pytest.mark.parametrize("regularization", [0.01, 1.0, 100.0])
@pytest.mark.parametrize(("n", "d"), [(200, 10), (60, 80)])
def test_scipy_for_four_options(regularization, n, d):
    options, choices = problem(2, n, 4, d)
    arguments = (options, choices, regularization * np.eye(d))
    reference = minimize(objective, np.zeros(d), arguments, jac=True, method="L-BFGS-B")
    # L-BFGS-B stops where the objective no longer falls in floating point; the gradient's root is sharper
    polished = root(lambda theta: objective(theta, *arguments)[1], reference.x, tol=1e-12)
    result = estimate((options, choices), regularization=regularization)
    assert result.converged
    np.testing.assert_allclose(result.theta, polished.x, rtol=0, atol=1e-6)
    assert -result.log_posterior <= reference.fun + 1e-9


@pytest.mark.needs("test")
@pytest.mark.parametrize("num_options", [2, 4])
def test_statsmodels_conditional_logit_at_a_vanishing_ridge(num_options):
    from statsmodels.discrete.conditional_models import ConditionalLogit

    n, d = 150, 4
    options, choices = problem(4, n, num_options, d)
    chosen = np.zeros((n, num_options))
    chosen[np.arange(n), choices] = 1
    model = ConditionalLogit(chosen.ravel(), options.reshape(-1, d), groups=np.repeat(np.arange(n), num_options))
    fitted = model.fit(method="bfgs", disp=False, gtol=1e-8, maxiter=500)
    for regularization in (1e-8, 0.0):
        result = estimate((options, choices), regularization=regularization)
        assert result.converged
        np.testing.assert_allclose(result.theta, fitted.params, rtol=0, atol=1e-3)
        np.testing.assert_allclose(np.sqrt(np.diag(result.covariance())), fitted.bse, rtol=1e-3)
    assert result.log_likelihood == pytest.approx(model.loglike(fitted.params), abs=1e-5)
