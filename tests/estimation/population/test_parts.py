"""Parameters of a population: their penalties by formula, their step of EM as a maximum, their coordinates."""

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from scipy.stats import multivariate_normal

from edpbrl_gym.estimation.population.factors import FactorMoments, Factors
from edpbrl_gym.estimation.population.parts import Moments, Parts, Shrinkage


def some_covariance(rng, dimension):
    root = rng.normal(size=(dimension, dimension))
    return root @ root.T + 0.5 * np.eye(dimension)


def some_parts(rng, number=2, dimension=3):
    covariances = np.stack([some_covariance(rng, dimension) for _ in range(number)])
    weights = rng.dirichlet(np.full(number, 5.0))
    return Parts(weights, rng.normal(size=(number, dimension)), covariances, rng.uniform(0.5, 2.0, size=number))


def sums_of(points, shares):
    """Statistics of known tastes (N, d) with memberships (N, M)."""
    return Moments(shares.sum(axis=0), shares.T @ points, np.einsum("nm,nd,ne->mde", shares, points, points))


def written_penalty(parts, people):
    total = np.log(parts.weights).sum() if len(parts) > 1 else 0.0
    for mean, covariance, scale in zip(parts.means, parts.covariances, parts.scales, strict=True):
        inverse = np.linalg.inv(covariance)
        total -= people / 2 * (np.linalg.slogdet(covariance / scale)[1] + scale * np.trace(inverse))
        total -= 0.1 / 2 * mean @ inverse @ mean + np.log(scale) ** 2 / (2 * 3**2)
    return total


@pytest.mark.parametrize("number", [1, 2])
def test_the_penalty_is_the_written_one(number):
    parts = some_parts(np.random.default_rng(number), number)
    assert Shrinkage(4.5).penalty(parts) == pytest.approx(written_penalty(parts, 4.5))
    assert Shrinkage(0.0).penalty(parts) == 0.0


@pytest.mark.parametrize("number", [1, 3])
def test_no_other_parameters_are_better_than_a_step_of_em(number):
    rng = np.random.default_rng(3)
    last, points = some_parts(rng, number), rng.normal(size=(12, 3)) * [1.0, 2.0, 0.5] + 0.7
    shares = rng.dirichlet(np.ones(number), size=12)
    rule = Shrinkage(2.5)
    step = rule.maximise(sums_of(points, shares), last)

    def objective(weights, means, covariances, scales):
        total = written_penalty(Parts(weights, means, covariances, scales), 2.5)
        for part in range(number):
            logs = multivariate_normal.logpdf(points, means[part], covariances[part])
            total += shares[:, part] @ (np.log(weights[part]) + logs)
        return total

    best = objective(step.weights, step.means, step.covariances, last.scales)
    for _ in range(30):
        size = 10.0 ** rng.uniform(-3, 0)
        weights = step.weights * np.exp(size * rng.normal(size=number))
        means = step.means + size * rng.normal(size=step.means.shape)
        roots = np.linalg.cholesky(step.covariances) @ (np.eye(3) + 0.3 * size * rng.normal(size=(number, 3, 3)))
        covariances = roots @ roots.transpose(0, 2, 1)
        assert objective(weights / weights.sum(), step.means, step.covariances, last.scales) <= best + 1e-9
        assert objective(step.weights, means, step.covariances, last.scales) <= best + 1e-9
        assert objective(step.weights, step.means, covariances, last.scales) <= best + 1e-9
    assert step.weights.sum() == pytest.approx(1.0)
    for part in range(number):

        def loss(log_scale, part=part):
            scales = step.scales.copy()
            scales[part] = np.exp(log_scale)
            return -written_penalty(Parts(step.weights, step.means, step.covariances, scales), 2.5)

        found = minimize_scalar(loss, bounds=(-5, 5), method="bounded", options={"xatol": 1e-9})
        assert np.log(step.scales[part]) == pytest.approx(found.x, abs=1e-5)


def some_factors(rng, types=2, dimension=4, number=2, pull=0.7):
    pulls = np.concatenate([np.full(types, pull), np.full(number, 1.0 if pull else 0.0)])
    weights, loadings = rng.dirichlet(np.full(types, 5.0)), rng.normal(size=(dimension, number))
    return Factors(weights, rng.normal(size=(types, dimension)), loadings, 1.7, pulls)


def factor_sums(rng, model, people=15, size=1.0):
    types, number = len(model.weights), model.loadings.shape[1]
    factors, kinds = rng.normal(size=(people, number)), np.eye(types)[rng.integers(types, size=people)]
    regressors = np.concatenate([kinds, factors], axis=1)
    tastes = regressors @ rng.normal(size=(types + number, model.means.shape[1])) + rng.normal(size=(people, 4))
    tastes *= size
    square = float(np.square(tastes).sum())
    return FactorMoments(regressors.T @ regressors, tastes.T @ regressors, square, 9.0, types), regressors, tastes


@pytest.mark.parametrize("types", [1, 2])
def test_the_penalty_of_factors_is_the_written_one(types):
    model = some_factors(np.random.default_rng(8), types)
    expected = -0.5 * 0.7 * np.square(model.means).sum() / 1.7 - 0.5 * np.square(model.loadings).sum() / 1.7
    expected += (np.log(model.weights).sum() if types > 1 else 0.0) - np.log(1.7) ** 2 / 18
    assert model.penalty() == pytest.approx(expected)
    assert some_factors(np.random.default_rng(8), types, pull=0.0).penalty() == 0.0


@pytest.mark.parametrize("types", [1, 2])
@pytest.mark.parametrize(("pull", "size"), [(0.0, 1.0), (0.7, 1.0), (0.7, 1e-4)])
def test_no_other_factors_are_better_than_a_step_of_em(types, pull, size):
    """Also for small tastes, whose residual variance is far from its prior."""
    rng = np.random.default_rng(9)
    model = some_factors(rng, types, pull=pull)
    moments, regressors, tastes = factor_sums(rng, model, size=size)
    step = model.maximised(moments)

    def objective(at):
        coefficients = np.concatenate([at.means, at.loadings.T])
        away = np.square(tastes - regressors @ coefficients).sum()
        expected = regressors[:, :types].sum(axis=0) @ np.log(at.weights) - 0.5 * tastes.size * np.log(at.residual)
        return expected - 0.5 * away / at.residual + at.penalty()

    best, vector = objective(step), step.pack()
    for _ in range(60):
        place = np.zeros(len(vector))
        chosen = rng.integers(types, len(vector)) if rng.random() < 0.7 else len(vector) - 1
        unit = size if chosen < len(vector) - 1 else 1.0
        place[chosen] = 10.0 ** rng.uniform(-3, 0) * rng.choice([-1, 1]) * unit
        assert objective(step.unpack(vector + place)) <= best + 1e-9
    for part in range(types):
        place = 0.1 * np.eye(len(vector))[part]
        assert objective(step.unpack(vector + place)) <= best and objective(step.unpack(vector - place)) <= best
    np.testing.assert_array_equal(step.pulls, model.pulls)
