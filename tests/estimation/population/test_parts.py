"""Parameters of a population: their penalties by formula, their step of EM as a maximum, their coordinates."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from scipy.stats import multivariate_normal

from edpbrl_gym.estimation.population.factor_fit import _axes, _clusters
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
    """The formula at the head of the module."""
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
    """Weights, means and covariances under the last scales, then the scales, against random changes."""
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


def test_without_a_penalty_a_step_gives_the_moments():
    rng = np.random.default_rng(4)
    points, shares, last = rng.normal(size=(20, 3)), rng.dirichlet(np.ones(2), size=20), some_parts(rng)
    step = Shrinkage(0.0).maximise(sums_of(points, shares), last)
    for part in range(2):
        assert step.means[part] == pytest.approx(np.average(points, axis=0, weights=shares[:, part]))
        assert step.covariances[part] == pytest.approx(np.cov(points.T, aweights=shares[:, part], ddof=0))
    assert step.weights == pytest.approx(shares.mean(axis=0))
    np.testing.assert_array_equal(step.scales, last.scales)
    # a part without people keeps a weight that has a logarithm
    lonely = np.stack([np.ones(20), np.zeros(20)], axis=1)
    assert Shrinkage(2.0).maximise(sums_of(points, lonely), last).weights == pytest.approx([21 / 22, 1 / 22])


def test_coordinates_of_parts_lead_back():
    parts = some_parts(np.random.default_rng(5))
    vector = parts.pack()
    assert len(vector) == 2 * (1 + 3 + 6 + 1)
    lower = np.linalg.cholesky(parts.covariances[1])
    assert vector[:2] == pytest.approx(np.log(parts.weights)) and vector[-2:] == pytest.approx(np.log(parts.scales))
    assert vector[14:20] == pytest.approx(
        [np.log(lower[0, 0]), lower[1, 0], np.log(lower[1, 1]), *lower[2, :2], np.log(lower[2, 2])]
    )
    other = some_parts(np.random.default_rng(6)).unpack(vector)
    for name, array in parts.tensors().items():
        assert other.tensors()[name] == pytest.approx(array)
    vector[:2] += 700.0  # log weights are known up to a constant
    assert parts.unpack(vector).weights == pytest.approx(parts.weights)


def test_sums_of_parts():
    rng = np.random.default_rng(7)
    parts, moments = some_parts(rng), sums_of(rng.normal(size=(5, 3)), rng.dirichlet(np.ones(2), size=5))
    expected = sum(
        w * (np.trace(c) + m @ m) for w, m, c in zip(parts.weights, parts.means, parts.covariances, strict=True)
    )
    assert parts.mean_square() == pytest.approx(expected)
    both, turned = moments + moments.times(0.5), moments.take(np.array([1, 0]))
    assert Parts.single(4, 2.5).mean_square() == pytest.approx(10.0)
    assert Parts.single(4, 2.5).scales.tolist() == [2.5]
    for name, array in moments.tensors().items():
        assert both.tensors()[name] == pytest.approx(1.5 * array)
        np.testing.assert_array_equal(turned.tensors()[name], array[::-1])
    for name, array in parts.take(np.array([1, 0])).tensors().items():
        np.testing.assert_array_equal(array, parts.tensors()[name][::-1])


def some_factors(rng, types=2, dimension=4, number=2, pull=0.7):
    pulls = np.concatenate([np.full(types, pull), np.full(number, 1.0 if pull else 0.0)])
    weights, loadings = rng.dirichlet(np.full(types, 5.0)), rng.normal(size=(dimension, number))
    return Factors(weights, rng.normal(size=(types, dimension)), loadings, 1.7, pulls)


def factor_sums(rng, model, people=15, size=1.0):
    """Sums over people with known tastes, factors and types."""
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


def test_coordinates_of_factors_lead_back():
    model, other = some_factors(np.random.default_rng(10)), some_factors(np.random.default_rng(11))
    for name, array in other.unpack(model.pack()).tensors().items():
        assert array == pytest.approx(model.tensors()[name])
    assert len(model.pack()) == 2 + 8 + 8 + 1


def test_sums_of_factors():
    rng = np.random.default_rng(12)
    model = some_factors(rng)
    moments, _, _ = factor_sums(rng, model)
    covariance = model.loadings @ model.loadings.T + 1.7 * np.eye(4)
    np.testing.assert_allclose(model.covariances, [covariance, covariance])
    assert model.mean_square() == pytest.approx(np.trace(covariance) + model.weights @ np.square(model.means).sum(1))
    assert moments.counts == pytest.approx(moments.regressors.diagonal()[:2]) and moments.counts.sum() == 15
    both = moments + moments.times(0.5)
    for name, array in moments.tensors().items():
        assert both.tensors()[name] == pytest.approx(array if name == "types" else 1.5 * array)
    order = np.array([1, 0])
    turned, model_turned = moments.take(order), model.take(order)
    assert turned.regressors[0, 2:] == pytest.approx(moments.regressors[1, 2:])
    assert turned.regressors[2:, 2:] == pytest.approx(moments.regressors[2:, 2:])
    assert turned.products[:, 0] == pytest.approx(moments.products[:, 1]) and turned.square == moments.square
    for name, array in model_turned.maximised(turned).take(order).tensors().items():
        assert array == pytest.approx(model.maximised(moments).tensors()[name])
    nobody = FactorMoments.zero(4, 2, 2)
    for name, array in (moments + nobody).tensors().items():
        assert array == pytest.approx(moments.tensors()[name])


def test_the_pull_of_one_mean_is_what_its_size_says():
    """Directions' means spread by s / k and the answers' error d / information."""
    rng = np.random.default_rng(13)
    truth = 0.8 * rng.normal(size=20_000)
    known = Factors(np.ones(1), (truth + 0.5 * rng.normal(size=20_000))[None], np.zeros((20_000, 0)), 1.7, np.ones(1))
    sums = FactorMoments(np.ones((1, 1)), np.zeros((20_000, 1)), 0.0, 20_000 / 0.25, 1)
    pulled = known.with_evident_pull(sums)
    assert 1.7 / pulled.pulls[0] == pytest.approx(0.64, rel=0.03)
    assert known.pulls[0] == 1.0 and pulled.residual == 1.7
    noise = Factors(np.ones(1), 0.5 * rng.normal(size=(1, 20_000)), np.zeros((20_000, 0)), 1.7, np.ones(1))
    assert 1.7 / noise.with_evident_pull(sums).pulls[0] <= 0.02 * 0.25
    free = Factors(np.ones(1), known.means, known.loadings, 1.7, np.zeros(1))
    assert free.with_evident_pull(sums) is free


@pytest.mark.parametrize("shrunk", [True, False])
def test_first_factors(shrunk):
    one = Factors.isotropic(5, 2.0, shrunk)
    assert one.mean_square() == pytest.approx(10.0) and one.pulls.tolist() == [0.1 if shrunk else 0.0]
    two = Factors.types(np.eye(5)[:2], 2.0, shrunk)
    assert two.weights.tolist() == [0.5, 0.5] and two.pulls.tolist() == [float(shrunk)] * 2
    more = two.extended(np.ones((5, 3)))
    assert more.pulls.tolist() == [float(shrunk)] * 5 and more.loadings.shape == (5, 3)
    np.testing.assert_array_equal(more.means, two.means)


@pytest.mark.parametrize("number", [0, 2, 9])
def test_first_loadings_are_principal_axes(number):
    """Also with more factors than people."""
    rng = np.random.default_rng(14)
    centres = rng.normal(size=(6, 12)) * np.linspace(3, 1, 12)
    loadings = _axes(centres, number)
    values, vectors = np.linalg.eigh(centres.T @ centres / 6)
    kept = slice(12 - min(number, 6), None)
    assert loadings.shape == (12, number)
    assert loadings @ loadings.T == pytest.approx((vectors[:, kept] * values[kept]) @ vectors[:, kept].T)


def test_clusters_are_the_best_of_their_starts():
    rng = np.random.default_rng(15)
    truth = np.repeat(np.arange(4), [30, 20, 10, 5])
    points = np.array([[0.0, 0.0], [9.0, 0.0], [0.0, 9.0], [9.0, 9.0]])[truth] + rng.normal(size=(65, 2))
    found = _clusters(points, 4, 0)
    assert len({(one, other) for one, other in zip(truth, found, strict=True)}) == 4
    np.testing.assert_array_equal(_clusters(points, 4, 0), found)
