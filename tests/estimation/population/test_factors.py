"""The factor model: its E-step against dense formulas, recovery, and monotone bounds."""

import numpy as np
import pytest

from edpbrl_gym.estimation import GaussianPrior
from edpbrl_gym.estimation.population import Population, fit_population
from edpbrl_gym.estimation.population.answers import answered_people
from edpbrl_gym.estimation.population.em import VariationalPeople
from edpbrl_gym.estimation.population.factors import FactorPeople, Factors
from edpbrl_gym.estimation.population.parts import Parts
from tests.helpers.communities import simulated


@pytest.mark.parametrize("types", [1, 3])
def test_sums_and_bounds_are_those_of_dense_gaussians(types):
    """Two E-steps that share only the variational fit: types with factors, and Gaussians with the same covariance."""
    rng = np.random.default_rng(0)
    dimension, number = 8, 2
    loadings, weights = rng.normal(size=(dimension, number)), rng.dirichlet(np.full(types, 5.0))
    pulls = np.concatenate([np.full(types, 0.1), [1.0, 1.0]])
    model = Factors(weights, rng.normal(size=(types, dimension)), loadings, 0.7, pulls)
    people = answered_people(simulated(rng.normal(size=(6, dimension)), 2, 3, 1), None)
    moments, bounds, tastes = FactorPeople(people).expect(model)
    dense = VariationalPeople(people).expect(Parts(weights, model.means, model.covariances, np.ones(types)))
    assert bounds == pytest.approx(dense.log_likelihoods, abs=1e-8)
    assert moments.counts == pytest.approx(dense.moments.counts)
    assert moments.products[:, :types] == pytest.approx(dense.moments.first.T)
    assert tastes.sum(axis=0) == pytest.approx(dense.moments.first.sum(axis=0))
    assert moments.square == pytest.approx(np.trace(dense.moments.second.sum(axis=0)))
    # f given u is linear: E f = A (u - m_j), so that E u f' and E f f' follow from the sums of u and u u'
    gain = np.linalg.solve(model.covariances[0], loadings).T
    crossed, inside = np.zeros((dimension, number)), 6 * (np.eye(number) - gain @ loadings)
    for part, mean in enumerate(model.means):
        count, first, second = (getattr(dense.moments, name)[part] for name in ("counts", "first", "second"))
        crossed += (second - np.outer(first, mean)) @ gain.T
        about = second - np.outer(first, mean) - np.outer(mean, first) + count * np.outer(mean, mean)
        inside += gain @ about @ gain.T
        assert moments.regressors[part, types:] == pytest.approx(gain @ (first - count * mean))
        assert moments.regressors[part, :types] == pytest.approx(np.eye(types)[part] * count)
    assert moments.products[:, types:] == pytest.approx(crossed)
    assert moments.regressors[types:, types:] == pytest.approx(inside)


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


def test_a_full_gaussian_of_many_features_is_fitted_in_spans(people):
    fitted = fit_population(people[:30], rounds=4)
    history = np.array(fitted.log_likelihood)
    assert 4 <= len(history) <= 6
    assert np.diff(history).min() > 0
    assert fitted.parts[0].dimension == 24


def communities_of_types(size, seed):
    rng = np.random.default_rng(seed)
    means = np.zeros((2, 24))
    means[0, :3], means[1, :3] = [2.0, -2.0, 1.0], [-1.0, 2.0, 2.0]
    kinds = (rng.random(size) < 0.4).astype(int)
    return simulated(means[kinds] + 0.4 * rng.normal(size=(size, 24)), 12, 3, seed + 1), kinds, means


def test_types_of_many_features_are_recovered(tmp_path):
    people, _, means = communities_of_types(90, 6)
    fitted = fit_population(people, kind="types", types=2)
    assert fitted.kind == "types"
    assert fitted.weights == pytest.approx([0.6, 0.4], abs=0.15)
    for part, mean in zip(fitted.parts, means, strict=True):
        assert np.corrcoef(part.mean, mean)[0, 1] > 0.9
    history = np.array(fitted.log_likelihood)
    assert np.diff(history).min() > -1e-6 * abs(history[-1])
    new, kinds, _ = communities_of_types(30, 8)
    assert np.mean([fitted.fit(one).memberships.argmax() == kind for one, kind in zip(new, kinds, strict=True)]) > 0.9
    fitted.save(tmp_path / "types.safetensors")
    more = Population.load(tmp_path / "types.safetensors").updated(new, forgetting=0.5)
    assert more.moments.counts.sum() == pytest.approx(90 / 2 + 30)
    assert len(more.parts) == 2
