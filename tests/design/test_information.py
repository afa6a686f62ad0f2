"""Information matrices against Monte Carlo, enumeration and finite differences; findings F2, F3 and F10."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edpbrl_gym.design import exact_information, information, surrogate_information
from edpbrl_gym.likelihood.choice import fisher_information
from tests.helpers.design_cases import random_mdp_problem, random_rows, smallest_eigenvalue, stochastic_mdp


def random_design(seed: int, policies: int):
    rng = np.random.default_rng(seed)
    mdp = stochastic_mdp(seed, states=6, actions=3, horizon=3, rows="pair", masked=True)
    features = rng.standard_normal((mdp.num_rows, 4)) + 1.0
    rows = np.stack([random_rows(mdp, rng) for _ in range(policies)])
    return mdp, features, rows, rng


@pytest.mark.parametrize("policies", [2, 4])
def test_exact_expectation_agrees_with_monte_carlo_and_the_papers_form_does_not(policies):
    """F2: the mean information of drawn tuples is the exact form, within its standard error."""
    mdp, features, _, rng = random_design(5, policies)
    choices = [mdp.policy_from_occupancy(rng.random((mdp.horizon, mdp.num_pairs)) ** 3 * mdp.admissible)
               for _ in range(policies)]  # fmt: skip
    rows = np.stack([mdp.row_occupancy(mdp.occupancy(policy)) for policy in choices])
    size = 20_000
    drawn = np.stack([mdp.sample(policy, size, rng).rows for policy in choices], axis=1)  # (size, K, H)
    options = features[drawn]  # (size, K, H, d)
    centred = options - options.mean(axis=1, keepdims=True)
    samples = np.einsum("nkhi,nkhj->nij", centred, centred) / policies
    error = samples.std(axis=0) / np.sqrt(size)
    exact = exact_information(features, rows, 1)
    paper = surrogate_information(features, rows.mean(axis=0), 1)
    assert np.abs((samples.mean(axis=0) - exact) / error).max() < 4.5
    assert np.abs((samples.mean(axis=0) - paper) / error).max() > 30
    asked = options.transpose(0, 2, 1, 3).reshape(-1, policies, features.shape[1])
    np.testing.assert_allclose(fisher_information(asked) / size, samples.mean(axis=0), rtol=1e-9, atol=1e-12)


@given(seed=st.integers(0, 10**6), policies=st.integers(2, 5))
@settings(max_examples=100)
def test_the_surrogate_bounds_the_exact_expectation(seed, policies):
    """F2 and F3 on random designs, in the Loewner order; the difference is (1/K^2) sum_q Cov_q."""
    _, features, rows, _ = random_design(seed, policies)
    surrogate = surrogate_information(features, rows.mean(axis=0), 3)
    exact = exact_information(features, rows, 3)
    scale = np.abs(surrogate).max()
    assert smallest_eigenvalue(surrogate - exact) >= -1e-12 * scale
    assert smallest_eigenvalue(exact) >= -1e-12 * scale
    covariances = sum(surrogate_information(features, one, 3) for one in rows)
    np.testing.assert_allclose(surrogate - exact, covariances / policies**2, rtol=0, atol=1e-11 * scale)


def tuple_expectations(features, joint):
    policies = joint.ndim
    index = np.stack(np.unravel_index(np.arange(joint.size), joint.shape), axis=1)
    options, weight = features[index], joint.ravel()  # (n^K, K, d)
    bar = options.mean(axis=1)
    spread = options - bar[:, None]
    information = np.einsum("n,nki,nkj->ij", weight, spread, spread) / policies
    mean = weight @ bar
    covariance = (bar - mean).T @ ((bar - mean) * weight[:, None])
    axes = range(policies)
    marginals = np.stack([joint.sum(axis=tuple(a for a in axes if a != q)) for q in axes])
    return information, covariance, marginals


@given(seed=st.integers(0, 10**6), policies=st.integers(2, 4))
@settings(max_examples=100)
def test_every_coupling_has_the_surrogate_less_the_covariance_of_the_mean(seed, policies):
    """F3: E[I] = surrogate - Cov(xbar) for any joint distribution of the K options."""
    rng = np.random.default_rng(seed)
    features = rng.standard_normal((4, 3))
    joint = rng.dirichlet(np.full(4**policies, 0.2)).reshape((4,) * policies)
    information, covariance, marginals = tuple_expectations(features, joint)
    surrogate = surrogate_information(features, marginals.mean(axis=0)[None], 1)
    np.testing.assert_allclose(information, surrogate - covariance, rtol=0, atol=1e-12)
    assert smallest_eigenvalue(surrogate - information) >= -1e-12


def test_balanced_tuples_reach_the_bound():
    """F3: with a constant tuple mean the surrogate is attained, by identical marginals that are coupled."""
    features = np.array([[1.0, 0.0], [-1.0, 0.0], [0.0, 2.0], [0.0, -2.0]])
    joint = np.zeros((4, 4))
    joint[[0, 1, 2, 3], [1, 0, 3, 2]] = 0.25  # always a row and its opposite
    information, covariance, marginals = tuple_expectations(features, joint)
    np.testing.assert_allclose(marginals, 0.25)
    np.testing.assert_allclose(covariance, 0.0)
    surrogate = surrogate_information(features, marginals.mean(axis=0)[None], 1)
    np.testing.assert_allclose(information, surrogate, atol=1e-15)
    np.testing.assert_allclose(exact_information(features, marginals[:, None], 1), surrogate / 2, atol=1e-15)


@given(seed=st.integers(0, 10**6), horizon=st.integers(1, 8), policies=st.integers(2, 4))
@settings(max_examples=30)
def test_truncated_feedback_has_at_least_a_quarter_of_the_state_information(seed, horizon, policies):
    """F10: additive features; the truncation matrix S has S'S with eigenvalues 1 / (4 sin^2(...)) >= 1/4."""
    truncation = np.tril(np.ones((horizon, horizon)))
    numbers = np.arange(1, horizon + 1)
    closed = 1 / (4 * np.sin((2 * numbers - 1) * np.pi / (2 * (2 * horizon + 1))) ** 2)
    np.testing.assert_allclose(np.linalg.eigvalsh(truncation.T @ truncation), np.sort(closed), rtol=1e-9)
    assert closed.min() > 0.25
    rng = np.random.default_rng(seed)
    states = rng.standard_normal((20, policies, horizon, 3))  # random trajectories
    partial = states.cumsum(axis=2)

    def information(features):
        return fisher_information(features.transpose(0, 2, 1, 3).reshape(-1, policies, 3))

    state, truncated = information(states), information(partial)
    assert smallest_eigenvalue(truncated - closed.min() * state) >= -1e-10 * np.abs(truncated).max()
    assert smallest_eigenvalue(truncated - 0.25 * state) >= -1e-10 * np.abs(truncated).max()


@pytest.mark.parametrize("criterion", ["D", "A", "V"])
def test_gradient_of_the_objective_agrees_with_finite_differences(criterion):
    problem = random_mdp_problem(criterion)
    rng = np.random.default_rng(3)
    rows = random_rows(problem.mdp, rng)
    gradient = problem.gradient(rows)
    for _ in range(5):
        direction = random_rows(problem.mdp, rng) - rows  # a feasible direction
        step = 1e-4
        values = [problem.objective(rows + k * step * direction) for k in (-2, -1, 1, 2)]
        slope = (values[0] - 8 * values[1] + 8 * values[2] - values[3]) / (12 * step)
        assert np.vdot(gradient, direction) == pytest.approx(slope, rel=1e-6)
    entry = np.zeros_like(rows)
    entry[1, 7] = 1e-5  # it is the gradient in every single entry as well
    slope = (problem.objective(rows + entry) - problem.objective(rows - entry)) / 2e-5
    assert gradient[1, 7] == pytest.approx(slope, rel=1e-5)


def test_a_centre_changes_nothing_but_rounding(monkeypatch):
    """In chunks of seven rows, so that sums go over several; the masses of every step sum to 1."""
    monkeypatch.setattr("edpbrl_gym._arrays.CHUNK_ROWS", 7)
    rng = np.random.default_rng(1)
    features = rng.normal(size=(30, 4))
    rows = rng.dirichlet(np.ones(30), size=3)
    curvature = np.cov(rng.normal(size=(4, 9)))
    centre = information.common_centre(features, rows)
    np.testing.assert_allclose(centre, (rows @ features).mean(axis=0), rtol=1e-12)
    negative = rng.normal(size=30)
    for around in (centre, rng.normal(size=4)):
        moved = features - around
        np.testing.assert_allclose(information.mean_features(features, rows, around), rows @ moved, atol=1e-12)
        for weights in (rows[0], negative):
            found = information.second_moment(features, weights, around)
            np.testing.assert_allclose(found, moved.T @ (moved * weights[:, None]), atol=1e-12)
        found = surrogate_information(features, rows, 60, centre=around)
        np.testing.assert_allclose(found, surrogate_information(features, rows, 60), atol=1e-10)
        scores = [information.gradient(features, rows, curvature, 60, centre=at) for at in (around, None)]
        centred = [one - one.mean(axis=1, keepdims=True) for one in scores]
        np.testing.assert_allclose(*centred, atol=1e-10)
