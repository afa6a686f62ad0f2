"""Simulated people with known tastes, and the exact likelihood of a population for few features."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.special import logsumexp

from edpbrl_gym._arrays import Floats
from edpbrl_gym.estimation import GaussianPrior
from edpbrl_gym.estimation.population import Population
from edpbrl_gym.estimation.population.gaussian import Gaussian

Person = tuple[Floats, np.ndarray]


def simulated(thetas: Floats, questions: int, num_options: int, seed: int) -> list[Person]:
    """One (options, choices) per taste, answered by the multinomial logit."""
    rng = np.random.default_rng(seed)
    people = []
    for theta in thetas:
        options = rng.normal(size=(questions, num_options, len(theta)))
        people.append((options, (options @ theta + rng.gumbel(size=options.shape[:2])).argmax(axis=1)))
    return people


def brute_force(people: list[Person], dimension: int, size: int, width: float) -> Callable[[Floats, Floats], Floats]:
    """Each person's log integral over a fine grid of tastes, as a function of the mean and the Cholesky factor."""
    axis = np.linspace(-width, width, size)
    grid = np.stack(np.meshgrid(*[axis] * dimension, indexing="ij"), axis=-1).reshape(-1, dimension)
    likelihoods = np.empty((len(people), len(grid)))
    for row, (options, choices) in enumerate(people):
        values = options @ grid.T
        chosen = np.take_along_axis(values, choices[:, None, None], axis=1)[:, 0]
        likelihoods[row] = np.exp((chosen - logsumexp(values, axis=1)).sum(axis=0))
    cell = (axis[1] - axis[0]) ** dimension

    def log_likelihoods(mean: Floats, lower: Floats) -> Floats:
        white = np.linalg.solve(lower, (grid - mean).T)
        density = np.exp(-0.5 * (white**2).sum(axis=0)) / np.sqrt(2 * np.pi) ** dimension / np.prod(np.diag(lower))
        return np.asarray(np.log(likelihoods @ density * cell))

    return log_likelihoods


def known_population(mean: Floats, *, spread: float = 0.5) -> Population:
    """The population N(mean, spread^2 I), as if fitted to 100 people of it."""
    dimension = len(mean)
    covariance = spread**2 * np.eye(dimension)
    second = 100 * (covariance + np.outer(mean, mean))
    return Population.of(
        Gaussian(np.asarray(mean, dtype=np.float64), covariance, spread**2, dimension + 2.0),
        {"counts": np.full(1, 100.0), "first": 100.0 * mean[None], "second": second[None]},
        base=GaussianPrior.isotropic(dimension, 1.0),
        kind="gaussian",
        people=100,
        log_likelihood=(-1.0,),
        shrinkage=dimension + 2.0,
    )
