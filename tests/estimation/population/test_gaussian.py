"""EM for one Gaussian: against brute-force integrals, recovery of a known population, degenerate answers."""

import numpy as np
import pytest
from scipy.optimize import minimize

from edpbrl_gym.estimation import GaussianPrior
from edpbrl_gym.estimation.population import fit_population
from edpbrl_gym.likelihood import Ranking, Response
from tests.helpers.communities import brute_force, simulated


def lower_of(vector, dimension):
    factor = np.zeros((dimension, dimension))
    factor[np.tril_indices(dimension)] = vector
    index = np.arange(dimension)
    factor[index, index] = np.exp(factor[index, index])
    return factor


@pytest.mark.parametrize(("dimension", "size", "width"), [(1, 2001, 12.0), (2, 121, 8.0)])
def test_em_agrees_with_the_maximum_of_brute_force_integrals(dimension, size, width):
    rng = np.random.default_rng(3)
    covariance = np.array([[1.0, 0.4], [0.4, 0.6]])[:dimension, :dimension]
    people = simulated(rng.multivariate_normal([1.0, -0.5][:dimension], covariance, 60), 6, 3, 4)
    exact = brute_force(people, dimension, size, width)
    fitted = fit_population(people, shrinkage=0.0, rounds=2000)
    mean, lower = fitted.gaussian.mean, np.linalg.cholesky(fitted.gaussian.covariance)
    best = minimize(
        lambda vector: -exact(vector[:dimension], lower_of(vector[dimension:], dimension)).sum(),
        np.zeros(dimension + dimension * (dimension + 1) // 2),
        method="BFGS",
        options={"gtol": 1e-6},
    ).x
    # the variational bound lies below, and its maximum is nearly as likely as the best
    likelihood = exact(mean, lower).sum()
    assert likelihood - 0.02 * len(people) < fitted.log_likelihood[-1] < likelihood
    factor = lower_of(best[dimension:], dimension)
    assert likelihood > exact(best[:dimension], factor).sum() - 0.05
    assert mean == pytest.approx(best[:dimension], abs=0.02)
    assert fitted.gaussian.covariance == pytest.approx(factor @ factor.T, rel=0.08)
    # and for each person, without the fallback
    for person, value in zip(people[:10], exact(mean, lower), strict=False):
        assert fitted.fit(person, fallback=None).parts[0].log_evidence == pytest.approx(value, abs=0.01)


def test_a_known_population_is_recovered_and_the_likelihood_never_falls():
    mean, covariance = np.array([1.0, -1.0, 0.5]), np.array([[1.0, 0.5, 0.0], [0.5, 1.0, 0.2], [0.0, 0.2, 0.5]])
    thetas = np.random.default_rng(0).multivariate_normal(mean, covariance, 500)
    fitted = fit_population(simulated(thetas, 4, 3, 1))
    part = fitted.gaussian
    assert fitted.people == 500
    # standard errors for 500 people with 4 answers, from the spread over simulated sets: about 0.08 and 0.2
    assert part.mean == pytest.approx(mean, abs=0.3)
    assert part.covariance == pytest.approx(covariance, abs=0.6)
    history = np.array(fitted.log_likelihood)
    assert len(history) > 2
    assert np.diff(history).min() > -1e-9 * abs(history[-1])


def test_few_people_are_shrunk_towards_the_base_prior():
    thetas = np.random.default_rng(5).multivariate_normal(np.zeros(3), np.diag([4.0, 1.0, 0.25]), 25)
    people = simulated(thetas, 4, 3, 6)
    base = GaussianPrior.from_covariance(np.diag([4.0, 1.0, 0.25]))
    strong = fit_population(people, base=base, shrinkage=1e5).gaussian.covariance
    assert strong / strong[0, 0] == pytest.approx(base.covariance / 4.0, abs=1e-3)
    free = fit_population(people, base=base, shrinkage=0.0).gaussian.covariance
    assert np.abs(free / free[0, 0] - base.covariance / 4.0).max() > 0.05


def test_the_result_does_not_depend_on_the_units_of_a_base_prior():
    people = simulated(np.random.default_rng(7).normal(size=(30, 2)), 5, 3, 8)
    units = np.array([[10.0, 3.0], [0.0, 0.1]])
    one = fit_population(people).gaussian
    scaled = [(options @ np.linalg.inv(units), choices) for options, choices in people]
    other = fit_population(scaled, base=GaussianPrior.from_covariance(units @ units.T)).gaussian
    assert other.mean == pytest.approx(units @ one.mean, rel=1e-3, abs=1e-3)
    assert other.covariance == pytest.approx(units @ one.covariance @ units.T, rel=1e-3, abs=1e-3)


def test_people_without_answers_and_with_one_answer_take_part():
    people = simulated(np.random.default_rng(9).normal(size=(40, 2)), 1, 3, 10)
    nobody = np.zeros((0, 3, 2)), np.zeros(0, dtype=int)
    fitted = fit_population([*people, nobody, nobody])
    assert fitted.people == 40
    assert fitted.gaussian.mean == pytest.approx(fit_population(people).gaussian.mean)
    assert fitted.gaussian.proper


def test_identical_answers_give_a_finite_population():
    options = np.random.default_rng(11).normal(size=(5, 3, 2))
    best = (options @ [1.0, 0.5]).argmax(axis=1)
    fitted = fit_population([(options, best)] * 20)
    part = fitted.gaussian
    assert np.isfinite(part.mean).all()
    assert np.isfinite(part.covariance).all()
    assert fitted.fit((options, best)).choice_probabilities(options)[np.arange(5), best].min() > 0.5


def test_rankings_count_as_the_choices_they_are_made_of():
    rng = np.random.default_rng(12)
    thetas = rng.multivariate_normal([1.0, -1.0], np.eye(2) * 0.5, 40)
    people = []
    for theta in thetas:
        options = rng.normal(size=(4, 4, 2))
        order = (-(options @ theta + rng.gumbel(size=(4, 4)))).argsort(axis=1)
        people.append((options, [Response.ranking(tuple(int(k) for k in row)) for row in order]))
    fitted = fit_population(people, model=Ranking())
    again = fit_population([Ranking().terms(options, responses) for options, responses in people])
    assert fitted.gaussian.mean == pytest.approx(again.gaussian.mean)
    assert fitted.gaussian.mean == pytest.approx([1.0, -1.0], abs=0.4)
