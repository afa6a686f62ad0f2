"""The factor model: its E-step against dense formulas, recovery, and monotone bounds."""

from __future__ import annotations

import numpy as np
import pytest

from edpbrl_gym.estimation import GaussianPrior
from edpbrl_gym.estimation.population import choose_population, fit_population
from edpbrl_gym.estimation.population.answers import answered_people
from edpbrl_gym.estimation.population.factors import FactorPeople, Factors
from edpbrl_gym.estimation.population.parts import Parts
from edpbrl_gym.estimation.population.variational_steps import VariationalPeople
from tests.helpers.communities import simulated


def test_sums_and_bounds_are_those_of_the_dense_gaussian():
    """Two E-steps that share only the variational fit: factors, and a Gaussian with the same covariance."""
    rng = np.random.default_rng(0)
    dimension, number = 8, 2
    model = Factors(rng.normal(size=dimension), rng.normal(size=(dimension, number)), 0.7, np.array([0.1, 1.0, 1.0]))
    people = answered_people(simulated(rng.normal(size=(6, dimension)), 2, 3, 1), None)
    moments, bounds, centres = FactorPeople(people).expect(model)
    dense = VariationalPeople(people).expect(Parts(np.ones(1), model.means, model.covariances, np.ones(1)))
    assert bounds == pytest.approx(dense.log_likelihoods, abs=1e-8)
    assert moments.products[:, 0] == pytest.approx(dense.moments.first[0])
    assert (model.mean + centres).sum(axis=0) == pytest.approx(dense.moments.first[0])
    assert moments.square == pytest.approx(np.trace(dense.moments.second[0]))
    # f given u is linear: E f = A (u - m), so that E u f' and E f f' follow from the sums of u and u u'
    gain = np.linalg.solve(model.covariances[0], model.loadings).T
    second, first, mean = dense.moments.second[0], dense.moments.first[0], model.mean
    centred = second - np.outer(first, mean)
    assert moments.products[:, 1:] == pytest.approx(centred @ gain.T)
    inside = second - np.outer(first, mean) - np.outer(mean, first) + 6 * np.outer(mean, mean)
    remaining = 6 * (np.eye(number) - gain @ model.loadings)
    assert moments.regressors[1:, 1:] == pytest.approx(remaining + gain @ inside @ gain.T)
    assert moments.regressors[0] == pytest.approx(np.concatenate([[6.0], gain @ (first - 6 * mean)]))


@pytest.fixture(scope="module")
def people():
    rng = np.random.default_rng(2)
    direction = np.zeros(24)
    direction[:3] = [2.0, -2.0, 1.0]
    thetas = 0.4 * rng.normal(size=(120, 24)) + rng.normal(size=(120, 1)) * direction
    return simulated(thetas, 10, 3, 3)


def test_a_direction_in_which_people_differ_is_found(people):
    fitted = fit_population(people, kind="factors", factors=1)
    values, vectors = np.linalg.eigh(fitted.parts[0].covariance)
    assert abs(vectors[:3, -1] @ np.array([2.0, -2.0, 1.0]) / 3.0) > 0.85
    assert values[-1] > 3 * values[-2]
    assert values[:-1] == pytest.approx(np.full(23, values[0]))  # the residual's shape
    history = np.array(fitted.log_likelihood)
    assert np.diff(history).min() > -1e-6 * abs(history[-1])


def test_the_residual_has_the_shape_of_the_base(people):
    base = GaussianPrior.from_covariance(np.diag(np.linspace(0.5, 2.0, 24)))
    fitted = fit_population(people, kind="factors", factors=0, base=base, rounds=3)
    covariance = fitted.parts[0].covariance
    assert covariance / covariance[0, 0] == pytest.approx(base.covariance / 0.5)


def test_the_number_of_factors_is_chosen_by_people_left_out(people):
    choice = choose_population(people[:60], kind="factors", candidates=(0, 1), folds=2, rounds=8)
    assert choice.number == 1


def test_a_full_gaussian_of_many_features_is_fitted_in_spans(people):
    fitted = fit_population(people[:30], rounds=4)
    history = np.array(fitted.log_likelihood)
    assert 4 <= len(history) <= 6
    assert np.diff(history).min() > 0
    assert fitted.parts[0].dimension == 24


def test_too_many_factors_are_refused(people):
    with pytest.raises(ValueError, match="at most 24 factors"):
        fit_population(people, kind="factors", factors=25)
