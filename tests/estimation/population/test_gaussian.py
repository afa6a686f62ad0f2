"""EM for one Gaussian: against brute-force integrals, recovery of a known population, monotone likelihood."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import logsumexp

from edpbrl_gym.estimation import GaussianPrior
from edpbrl_gym.estimation.population import Population, fit_population
from edpbrl_gym.likelihood import Ranking, Response


def simulated(thetas, questions, num_options, seed):
    """One (options, choices) per taste, answered by the multinomial logit."""
    rng = np.random.default_rng(seed)
    people = []
    for theta in thetas:
        options = rng.normal(size=(questions, num_options, len(theta)))
        people.append((options, (options @ theta + rng.gumbel(size=options.shape[:2])).argmax(axis=1)))
    return people


def grid_likelihoods(people, grid):
    """Log-likelihood of each person at each grid point, (N, G)."""
    found = []
    for options, choices in people:
        values = options @ grid.T
        chosen = np.take_along_axis(values, choices[:, None, None], axis=1)[:, 0]
        found.append((chosen - logsumexp(values, axis=1)).sum(axis=0))
    return np.array(found)


def brute_force(people, dimension, size, width):
    """Sum over people of the log integral over a fine grid, as a function of mean and Cholesky factor."""
    axis = np.linspace(-width, width, size)
    grid = np.stack(np.meshgrid(*[axis] * dimension, indexing="ij"), axis=-1).reshape(-1, dimension)
    likelihoods = np.exp(grid_likelihoods(people, grid))
    cell = (axis[1] - axis[0]) ** dimension

    def log_likelihood(mean, lower):
        white = np.linalg.solve(lower, (grid - mean).T)
        density = np.exp(-0.5 * (white**2).sum(axis=0)) / np.sqrt(2 * np.pi) ** dimension / np.prod(np.diag(lower))
        return np.log(likelihoods @ density * cell)

    return log_likelihood


@pytest.mark.parametrize(("dimension", "size", "width"), [(1, 2001, 12.0), (2, 161, 8.0)])
def test_em_agrees_with_the_maximum_of_brute_force_integrals(dimension, size, width):
    rng = np.random.default_rng(3)
    thetas = rng.multivariate_normal([1.0, -0.5][:dimension], np.array([[1.0, 0.4], [0.4, 0.6]])[:dimension, :dimension], 60)
    people = simulated(thetas, 6, 3, 4)
    exact = brute_force(people, dimension, size, width)
    fitted = fit_population(people, shrinkage=0.0, rounds=2000)
    part = fitted.parts[0]
    lower = np.linalg.cholesky(part.covariance)
    # the likelihood of the fitted parameters, a person
    assert exact(part.mean, lower).sum() == pytest.approx(fitted.log_likelihood[-1], abs=1e-4 * len(people))

    def objective(vector):
        factor = np.zeros((dimension, dimension))
        factor[np.tril_indices(dimension)] = vector[dimension:]
        index = np.arange(dimension)
        factor[index, index] = np.exp(factor[index, index])
        return -exact(vector[:dimension], factor).sum()

    start = np.concatenate([np.zeros(dimension), np.zeros(dimension * (dimension + 1) // 2)])
    best = minimize(objective, start, method="BFGS", options={"gtol": 1e-6}).x
    factor = np.zeros((dimension, dimension))
    factor[np.tril_indices(dimension)] = best[dimension:]
    factor[np.arange(dimension), np.arange(dimension)] = np.exp(np.diag(factor))
    print(part.mean - best[:dimension], part.covariance - factor @ factor.T, fitted.log_likelihood[-1] + objective(best))
    assert part.mean == pytest.approx(best[:dimension], abs=1e-3)
    assert part.covariance == pytest.approx(factor @ factor.T, abs=1e-3)
