"""Parameters of a population: their penalties by formula, their step of EM as a maximum."""

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from scipy.stats import multivariate_normal

from edpbrl_gym.estimation.population.factors import Factors
from edpbrl_gym.estimation.population.gaussian import Gaussian


def some_gaussian(rng, people=2.5, dimension=3):
    root = rng.normal(size=(dimension, dimension))
    covariance = root @ root.T + 0.5 * np.eye(dimension)
    return Gaussian(rng.normal(size=dimension), covariance, rng.uniform(0.5, 2.0), people)


def written_penalty(mean, covariance, scale, people):
    inverse = np.linalg.inv(covariance)
    total = -people / 2 * (np.linalg.slogdet(covariance / scale)[1] + scale * np.trace(inverse))
    return total - 0.1 / 2 * mean @ inverse @ mean - np.log(scale) ** 2 / (2 * 3**2)


def test_the_penalty_is_the_written_one():
    one = some_gaussian(np.random.default_rng(1), 4.5)
    assert one.penalty() == pytest.approx(written_penalty(one.mean, one.covariance, one.scale, 4.5))
    assert some_gaussian(np.random.default_rng(1), 0.0).penalty() == 0.0


def test_no_other_parameters_are_better_than_a_step_of_em():
    rng = np.random.default_rng(3)
    last, points = some_gaussian(rng), rng.normal(size=(12, 3)) * [1.0, 2.0, 0.5] + 0.7
    sums = {"counts": np.full(1, 12.0), "first": points.sum(axis=0)[None], "second": (points.T @ points)[None]}
    step = last.maximised(sums)

    def objective(mean, covariance):
        likelihood = multivariate_normal.logpdf(points, mean, covariance).sum()
        return likelihood + written_penalty(mean, covariance, last.scale, 2.5)

    best = objective(step.mean, step.covariance)
    for _ in range(30):
        size = 10.0 ** rng.uniform(-3, 0)
        root = np.linalg.cholesky(step.covariance) @ (np.eye(3) + 0.3 * size * rng.normal(size=(3, 3)))
        assert objective(step.mean + size * rng.normal(size=3), step.covariance) <= best + 1e-9
        assert objective(step.mean, root @ root.T) <= best + 1e-9
    found = minimize_scalar(
        lambda log_scale: -written_penalty(step.mean, step.covariance, np.exp(log_scale), 2.5),
        bounds=(-5, 5), method="bounded", options={"xatol": 1e-9},
    )  # fmt: skip
    assert np.log(step.scale) == pytest.approx(found.x, abs=1e-5)


def test_longer_steps_go_further_in_the_same_direction():
    rng = np.random.default_rng(4)
    one, other = some_gaussian(rng), some_gaussian(rng)
    whole = one.moved(other, 1.0)
    assert whole.mean == pytest.approx(other.mean) and whole.scale == pytest.approx(other.scale)
    assert whole.covariance == pytest.approx(other.covariance)
    twice = one.moved(other, 2.0)
    assert twice.mean == pytest.approx(2 * other.mean - one.mean)
    ratio = other.covariance @ np.linalg.inv(one.covariance)
    assert twice.covariance == pytest.approx(ratio @ other.covariance)
    factors = Factors(one.mean, np.ones((3, 1)), 2.0, np.ones(2))
    factors = factors.moved(Factors(other.mean, np.zeros((3, 1)), 1.0, np.ones(2)), 2.0)
    assert factors.residual == pytest.approx(0.5) and factors.loadings == pytest.approx(-np.ones((3, 1)))


def some_factors(rng, dimension=4, number=2, pull=0.7):
    pulls = np.array([pull, *[3.0 if pull else 0.0] * number])
    return Factors(rng.normal(size=dimension), rng.normal(size=(dimension, number)), 1.7, pulls)


def test_the_penalty_of_factors_is_the_written_one():
    model = some_factors(np.random.default_rng(8))
    expected = -0.5 * 0.7 * np.square(model.mean).sum() / 1.7 - 1.5 * np.square(model.loadings).sum() / 1.7
    assert model.penalty() == pytest.approx(expected - np.log(1.7) ** 2 / 18)
    assert some_factors(np.random.default_rng(8), pull=0.0).penalty() == 0.0


@pytest.mark.parametrize(("pull", "size"), [(0.0, 1.0), (0.7, 1.0), (0.7, 1e-4)])
def test_no_other_factors_are_better_than_a_step_of_em(pull, size):
    """Also for small tastes, whose residual variance is far from its prior."""
    rng = np.random.default_rng(9)
    model = some_factors(rng, pull=pull)
    regressors = np.concatenate([np.ones((15, 1)), rng.normal(size=(15, 2))], axis=1)
    tastes = size * (regressors @ rng.normal(size=(3, 4)) + rng.normal(size=(15, 4)))
    sums = {"regressors": regressors.T @ regressors, "products": tastes.T @ regressors}
    step = model.maximised({**sums, "square": np.square(tastes).sum(), "information": np.array(9.0)})
    np.testing.assert_array_equal(step.pulls, model.pulls)

    def objective(mean, loadings, residual):
        away = np.square(tastes - mean - regressors[:, 1:] @ loadings.T).sum()
        likelihood = -0.5 * tastes.size * np.log(residual) - 0.5 * away / residual
        return likelihood + Factors(mean, loadings, residual, model.pulls).penalty()

    best = objective(step.mean, step.loadings, step.residual)
    for _ in range(60):
        unit = size * 10.0 ** rng.uniform(-3, 0)
        away = unit * rng.normal(size=4), unit * rng.normal(size=(4, 2)), np.exp(unit / size * rng.normal())
        assert objective(step.mean + away[0], step.loadings, step.residual) <= best + 1e-9
        assert objective(step.mean, step.loadings + away[1], step.residual) <= best + 1e-9
        assert objective(step.mean, step.loadings, step.residual * away[2]) <= best + 1e-9
