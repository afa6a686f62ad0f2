"""The factor model: its E-step against dense formulas, recovery, and monotone bounds."""

import numpy as np
import pytest

from edpbrl_gym.estimation import GaussianPrior
from edpbrl_gym.estimation.population import fit_population
from edpbrl_gym.estimation.population.answers import People, answered_people
from edpbrl_gym.estimation.population.factors import Factors
from edpbrl_gym.estimation.population.gaussian import Gaussian
from tests.helpers.communities import simulated


def test_sums_and_bounds_are_those_of_dense_gaussians():
    """Two E-steps that share only the variational fit: factors, and the Gaussian with the same covariance."""
    rng = np.random.default_rng(0)
    dimension, number = 8, 2
    loadings = rng.normal(size=(dimension, number))
    model = Factors(rng.normal(size=dimension), loadings, 0.7, np.array([0.1, 1.0, 1.0]))
    people = answered_people(simulated(rng.normal(size=(6, dimension)), 2, 3, 1), None)
    sums, bounds, tastes = model.expect(People(people))
    dense, expected, means = Gaussian(model.mean, model.covariance, 1.0, 0.0).expect(People(people))
    count, first, second = (dense[name][0] for name in ("counts", "first", "second"))
    assert bounds == pytest.approx(expected, abs=1e-5) and tastes == pytest.approx(means, abs=1e-5)
    assert sums["regressors"][0, 0] == count == 6
    assert sums["products"][:, 0] == pytest.approx(first)
    assert sums["square"] == pytest.approx(np.trace(second))
    # f given u is linear: E f = A (u - m), so that E u f' and E f f' follow from the sums of u and u u'
    gain = np.linalg.solve(model.covariance, loadings).T
    about = second - np.outer(first, model.mean) - np.outer(model.mean, first) + 6 * np.outer(model.mean, model.mean)
    inside = 6 * (np.eye(number) - gain @ loadings) + gain @ about @ gain.T
    assert sums["regressors"][0, 1:] == pytest.approx(gain @ (first - 6 * model.mean), abs=1e-5)
    assert sums["products"][:, 1:] == pytest.approx((second - np.outer(first, model.mean)) @ gain.T, abs=1e-4)
    assert sums["regressors"][1:, 1:] == pytest.approx(inside, abs=1e-4)


@pytest.fixture(scope="module")
def people():
    rng = np.random.default_rng(2)
    direction = np.zeros(24)
    direction[:3] = [2.0, -2.0, 1.0]
    thetas = 0.4 * rng.normal(size=(120, 24)) + rng.normal(size=(120, 1)) * direction
    return simulated(thetas, 10, 3, 3)


def test_a_direction_in_which_people_differ_is_found(people):
    fitted = fit_population(people, kind="factors", factors=1)
    values, vectors = np.linalg.eigh(fitted.gaussian.covariance)
    assert abs(vectors[:3, -1] @ np.array([2.0, -2.0, 1.0]) / 3.0) > 0.85
    assert values[-1] > 3 * values[-2]
    assert values[:-1] == pytest.approx(np.full(23, values[0]))  # the residual's shape
    history = np.array(fitted.log_likelihood)
    assert np.diff(history).min() > -1e-6 * abs(history[-1])


def test_the_residual_has_the_shape_of_the_base(people):
    base = GaussianPrior.from_covariance(np.diag(np.linspace(0.5, 2.0, 24)))
    fitted = fit_population(people, kind="factors", factors=0, base=base, rounds=3)
    covariance = fitted.gaussian.covariance
    assert covariance / covariance[0, 0] == pytest.approx(base.covariance / 0.5)


def test_a_full_gaussian_of_many_features_is_fitted_in_spans(people):
    fitted = fit_population(people[:30], rounds=4)
    history = np.array(fitted.log_likelihood)
    assert 4 <= len(history) <= 6
    assert np.diff(history).min() > 0
    assert fitted.gaussian.dimension == 24
