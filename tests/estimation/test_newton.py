"""The Newton estimate: its objective, starts, reasons to stop, Laplace posterior, and data without a maximum."""

import numpy as np
import pytest
import scipy.optimize
from hypothesis import given, settings
from hypothesis import strategies as st

from edpbrl_gym.estimation import GaussianPrior, estimate
from edpbrl_gym.estimation.map_estimate import answer_differences
from edpbrl_gym.estimation.newton import Objective, log_posterior
from edpbrl_gym.estimation.separation import is_separable
from edpbrl_gym.likelihood.choice import choice_probabilities


def answers(options, theta, rng):
    return (choice_probabilities(options, theta).cumsum(axis=1) < rng.random((len(options), 1))).sum(axis=1)


def problem(n=40, num_options=4, d=5):
    rng = np.random.default_rng(0)
    options = rng.normal(size=(n, num_options, d))
    return options, answers(options, rng.normal(size=d), rng)


def test_the_objective_and_its_parts():
    differences, mean = answer_differences(problem())[0], np.arange(5.0)
    offsets = np.random.default_rng(1).normal(size=differences.shape[:2])
    precision, theta = np.diag([1.0, 2, 3, 4, 5]), np.full(5, 0.3)
    point = Objective(differences, precision.dot, offsets, mean).at(theta)
    values = differences @ theta + offsets
    np.testing.assert_allclose(point.values, values)
    expected = -np.log1p(np.exp(values).sum(axis=1)).sum()
    assert point.log_likelihood == pytest.approx(expected)
    penalty = 0.5 * (theta - mean) @ precision @ (theta - mean)
    assert point.log_posterior == pytest.approx(expected - penalty)
    assert log_posterior(differences, precision, theta, offsets=offsets, prior_mean=mean) == point.log_posterior
    np.testing.assert_allclose(point.slope, precision @ (theta - mean))
    np.testing.assert_allclose(point.gradient, point.score - point.slope)
    numeric = scipy.optimize.approx_fprime(
        theta, lambda at: log_posterior(differences, precision, at, offsets=offsets, prior_mean=mean), 1e-6
    )
    np.testing.assert_allclose(point.gradient, numeric, atol=1e-4)
    np.testing.assert_allclose(point.probabilities.sum(axis=1), 1.0)
    np.testing.assert_allclose(point.probabilities[:, 1:] / point.probabilities[:, :1], np.exp(values))


def test_any_start_leads_to_the_same_maximum_and_none_is_changed():
    options, choices = problem()
    first, plain = estimate((options, choices)), estimate((options, choices), max_iterations=2)
    for start in (100 * np.ones(5), -30 * np.eye(5)[0], first.theta):
        given = start.copy()
        other = estimate((options, choices), start=start)
        assert other.converged and not np.shares_memory(other.theta, start)
        np.testing.assert_allclose(other.theta, first.theta, atol=1e-8)
        np.testing.assert_array_equal(start, given)
    assert other.iterations == 0
    far = estimate((options, choices), max_iterations=2, start=np.full(5, 50.0))  # worse than the prior's mean
    np.testing.assert_array_equal(far.theta, plain.theta)
    prior = GaussianPrior(np.eye(5), np.arange(5.0))
    empty = estimate((options[:0], choices[:0]), prior=prior)
    assert empty.iterations == 0 and not np.shares_memory(empty.theta, prior.mean) and empty.theta.flags.writeable


@pytest.mark.parametrize("seed", range(6))
def test_extreme_scales_converge(seed):
    """Features up to 1e3, lambda down to 1e-8, separable answers, wild starts: the curvature spans 14 decades."""
    rng = np.random.default_rng(seed)
    options = 10 ** rng.uniform(-3, 3) * rng.normal(size=(rng.integers(1, 60), rng.integers(2, 7), rng.integers(1, 20)))
    options = np.round(options) if seed % 3 == 0 else options
    choices = (options @ rng.normal(size=options.shape[2])).argmax(axis=1)
    start = None if seed % 2 else 100 * rng.normal(size=options.shape[2])
    result = estimate((options, choices), regularization=10 ** rng.uniform(-8, 4), start=start)
    assert result.converged, result.reason


def test_the_laplace_covariance_matches_the_spread_of_estimates():
    rng = np.random.default_rng(10)
    options, theta = rng.normal(size=(500, 3, 2)), np.array([0.7, -0.4])
    squares = []
    for _ in range(100):
        result = estimate((options, answers(options, theta, rng)), regularization=1e-6)
        error = result.theta - theta
        squares.append(error @ result.precision @ error)
    assert np.mean(squares) == pytest.approx(2.0, abs=5 * np.sqrt(4 / 100))  # chi square, 2 degrees of freedom
    np.testing.assert_allclose(result.covariance() @ result.precision, np.eye(2), atol=1e-10)


@settings(max_examples=25)
@given(st.integers(0, 10**6), st.integers(1, 12), st.integers(2, 4), st.integers(1, 3))
def test_the_verdict_agrees_with_integer_geometry(seed, n, num_options, d):
    """Small integer features, so that ties and quasi-separation are common; an LP in another form decides."""
    rng = np.random.default_rng(seed)
    options = rng.integers(-2, 3, size=(n, num_options, d)).astype(float)
    choices = rng.integers(num_options, size=n)
    rows = np.concatenate([x[c] - np.delete(x, c, axis=0) for x, c in zip(options, choices, strict=True)])
    if np.linalg.matrix_rank(rows) < d:
        with pytest.raises(ValueError, match="options that differ in all"):
            estimate((options, choices), regularization=0.0)
        return
    answer = scipy.optimize.linprog(-rows.sum(axis=0), A_ub=-rows, b_ub=np.zeros(len(rows)), bounds=[(-1, 1)] * d)
    result = estimate((options, choices), regularization=0.0)
    assert result.converged == (-answer.fun < 1e-9), result.reason


def test_a_prior_on_some_directions_only():
    """Separable in the free direction: no maximum. Separable in the penalised one: a maximum."""
    rng = np.random.default_rng(16)
    options = rng.normal(size=(40, 3, 2))
    choices = options[:, :, 0].argmax(axis=1)
    free_second = GaussianPrior.from_precision(np.diag([1.0, 0.0]))
    free_first = GaussianPrior.from_precision(np.diag([0.0, 1.0]))
    assert not free_second.proper and free_second.null_space.shape == (2, 1)
    assert estimate((options, choices), prior=free_second).converged
    result = estimate((options, choices), prior=free_first)
    assert not result.converged and "separable" in result.reason


def test_why_it_stopped_is_said():
    options, choices = problem()
    found = estimate((options, choices), tolerance=1e-30)
    gradient = found.gradient_norm
    assert found.converged or (
        found.reason.startswith("rounding stops progress at a Newton decrement of ")
        and found.reason.endswith("; use a larger tolerance")
    )
    assert gradient < 1e-9
    few = estimate((options, choices), regularization=1e-3, max_iterations=1)
    decrement = few.reason.split()[4]
    assert few.reason == f"the Newton decrement is {decrement} after 1 iterations; raise max_iterations"
    assert 1e-8 < float(decrement) < 10
    enough = estimate((options, choices))
    assert enough.reason == "" and enough.converged
    split = estimate((np.array([[[0.0], [1.0]]] * 3), [1, 1, 1]), regularization=0.0)
    assert split.reason == (
        "the answers are separable: a direction ranks every chosen option at least as high as the others, so the "
        "likelihood has no maximum; use regularization > 0 or ask more questions"
    )


def mixed(size):
    """Two answers that contradict each other, and the last point of a maximisation that was cut short."""
    differences = size * np.array([[1.0], [-0.5]])
    return differences, np.array([0.9, 0.1]), np.eye(1), np.array([-0.5 * size]), float(np.linalg.norm(differences))


@pytest.mark.parametrize("size", [1e-9, 1.0, 1e9])
def test_the_linear_program_does_not_depend_on_the_units(size):
    assert not is_separable(*mixed(size))
    differences, *rest = mixed(size)
    assert is_separable(np.abs(differences), *rest) and is_separable(-np.abs(differences), *rest)
    one = size * np.array([[1.0, 0.0], [-1.0, 0.0], [0.3, 1.0]])  # only the last answer speaks of the second feature
    assert is_separable(one, np.full(3, 0.01), np.eye(2), np.full(2, size), size)


def test_a_linear_program_that_is_not_solved_is_told(monkeypatch):
    monkeypatch.setattr(
        scipy.optimize, "linprog", lambda *a, **b: scipy.optimize.OptimizeResult(status=1, message="limit", fun=0.0)
    )
    with pytest.raises(RuntimeError, match="The linear program for separability was not solved: limit"):
        is_separable(*mixed(1.0))
