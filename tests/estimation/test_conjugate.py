"""The maximum by conjugate gradients, against dense Newton and scipy; the precision that is made when it is read."""

import copy
import pickle
from dataclasses import FrozenInstanceError, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from edpbrl_gym.estimation import Estimate, GaussianPrior, estimate, newton
from edpbrl_gym.estimation.map_estimate import answer_differences
from edpbrl_gym.estimation.newton import conjugate_newton
from edpbrl_gym.likelihood import BestOf, BestWorst, Ranking, WithTies
from edpbrl_gym.likelihood.choice import choice_probabilities


def problem(seed, n, num_options, d, spread=1.0, decay=0.0):
    rng = np.random.default_rng(seed)
    options = spread * rng.normal(size=(n, num_options, d)) * np.arange(1, d + 1) ** -decay
    chances = choice_probabilities(options, rng.normal(size=d) / spread)
    choices = (chances.cumsum(axis=1) < rng.random((n, 1))).sum(axis=1)
    return options, np.minimum(choices, num_options - 1)


def correlated(d, seed, power):
    rng = np.random.default_rng(seed)
    basis, _ = np.linalg.qr(rng.normal(size=(d, d)))
    return GaussianPrior.from_covariance((basis * np.arange(1, d + 1) ** -power) @ basis.T, rng.normal(size=d))


def dense(differences, prior, offsets=None):
    mean = prior.mean if prior.mean.any() else None
    return newton.maximise(
        differences, prior.precision, prior.mean.copy(), tolerance=1e-8, max_iterations=100, offsets=offsets,
        prior_mean=mean,
    )  # fmt: skip


def distance(first, second):
    shift = first.theta - second.theta
    return float(np.sqrt(shift @ second.precision @ shift))


@settings(max_examples=30)
@given(
    seed=st.integers(0, 10**6),
    n=st.integers(1, 80),
    num_options=st.integers(2, 6),
    d=st.integers(1, 60),
    spread=st.floats(0.1, 10),
    decay=st.floats(0, 2),
    ridge=st.floats(-4, 3) | st.none(),
)
def test_the_maximum_of_dense_newton(seed, n, num_options, d, spread, decay, ridge):
    differences, _ = answer_differences(problem(seed, n, num_options, d, spread, decay))
    prior = correlated(d, seed, 1.5) if ridge is None else GaussianPrior.isotropic(d, 10.0**ridge)
    found = conjugate_newton(differences, prior, prior.mean, tolerance=1e-8, max_iterations=100)
    expected = dense(differences, prior)
    assert not expected.reason
    if found.reason:  # allowed, as dense Newton then continues; but not where the prior holds the estimate well
        assert ridge is None or ridge < -1
    gradient = found.score - prior.precision @ (found.theta - prior.mean)
    decrement = np.sqrt(gradient @ np.linalg.solve(expected.precision, gradient))
    assert decrement <= (1e-3 if found.reason else 1e-7)
    assert distance(found, expected) <= (1e-3 if found.reason else 1e-7)
    np.testing.assert_allclose(found.precision, expected.precision, rtol=1e-5, atol=1e-6 * expected.precision.max())


@pytest.mark.parametrize("model", [BestOf(), BestWorst(), Ranking(), WithTies(0.7)], ids=lambda model: model.name)
def test_scipy_on_every_format_of_answers(model):
    rng = np.random.default_rng(4)
    options, theta = rng.normal(size=(50, 4, 30)), rng.normal(size=30) / 3
    terms = model.terms(options, model.sample(options, theta, rng.random(50)))
    prior = correlated(30, 2, 1.0)

    def objective(point):
        shift = point - prior.mean
        loss = 0.5 * shift @ prior.precision @ shift - terms.log_likelihood(point)
        return loss, prior.precision @ shift - terms.score(point)

    expected = minimize(objective, prior.mean, jac=True, method="L-BFGS-B", options={"ftol": 1e-15, "gtol": 1e-9})
    found = estimate(terms, prior=prior)
    assert found.converged and found.gradient_norm < np.linalg.norm(objective(expected.x)[1]) + 1e-9
    np.testing.assert_allclose(found.theta, expected.x, atol=1e-5)
    np.testing.assert_allclose(found.precision, terms.information(found.theta) + prior.precision, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("fault", ["negative", "nan", "zero", "noise", "small"])
def test_a_wrong_curvature_gives_no_wrong_estimate(monkeypatch, fault):
    """Products only choose the steps: with bad ones dense Newton finds the same maximum."""
    data = problem(2, 60, 3, 40)
    expected = estimate(data)
    product, rng = newton._Curvature._product, np.random.default_rng(0)

    def wrong(self, weights, vector):
        utilities, image = product(self, weights, vector)
        changes = {"negative": -image, "nan": image * np.nan, "zero": 0 * image, "small": 1e-3 * image}
        return utilities, changes.get(fault, image * rng.uniform(0, 3, size=image.shape))

    monkeypatch.setattr(newton._Curvature, "_product", wrong)
    found = estimate(data)
    assert found.converged and distance(found, expected) < 1e-7


@pytest.mark.parametrize("spread", [1e-60, 1e-25, 1e25, 1e60])
def test_features_that_float32_cannot_hold(spread):
    options, choices = problem(3, 40, 3, 12)
    expected = estimate((options, choices), regularization=1.0)
    found = estimate((spread * options, choices), regularization=spread**2)
    assert found.converged
    np.testing.assert_allclose(found.theta * spread, expected.theta, rtol=1e-6)


def test_copies_and_pickles_hold_the_precision():
    found = estimate(problem(8, 30, 4, 20))
    loaded, copied, changed = pickle.loads(pickle.dumps(found)), copy.deepcopy(found), replace(found, reason="why")
    for other in (loaded, copied, changed):
        np.testing.assert_array_equal(other.precision, found.precision)
        np.testing.assert_array_equal(other.theta, found.theta)
    assert changed.reason == "why" and "precision=array" in repr(found)
    assert isinstance(loaded.__dict__["precision"], np.ndarray)
    with pytest.raises(FrozenInstanceError):
        found.precision = np.eye(20)


def test_an_estimate_of_other_means_is_given_its_precision():
    given_array = Estimate(np.zeros(2), True, 1, 0.0, 0.0, 0.0, np.eye(2))
    given_function = Estimate(np.zeros(2), True, 1, 0.0, 0.0, 0.0, precision=lambda: 2 * np.eye(2))
    assert given_array.precision[0, 0] == 1.0 and given_function.precision[0, 0] == 2.0
    with pytest.raises(TypeError, match="precision"):
        Estimate(np.zeros(2), True, 1, 0.0, 0.0, 0.0)
