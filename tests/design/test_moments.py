"""Designs by moments: values, gradients and weights against tables, finite differences and scipy."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize

from edpbrl_gym.design import make_criterion, surrogate_information, token_difference_matrix
from edpbrl_gym.design.moments import GradientReward, MomentProblem, PolicyMoments, fully_corrective
from tests.helpers.design_cases import prompt_problem

H, D, T = 3, 4, 20


def criterion_of(name: str):
    rows = np.random.default_rng(5).normal(size=(9, D))
    return make_criterion(name, token_difference_matrix(rows, [np.arange(9)]) if name == "V" else None)


def problem_of(name: str = "D", **options) -> MomentProblem:
    settings = {"regularization": 0.5} | options
    return MomentProblem(criterion=criterion_of(name), episodes=T, horizon=H, dimension=D, **settings)


def policies_of(count: int, seed: int = 0, *, episodes: int = 12) -> list[PolicyMoments]:
    rng = np.random.default_rng(seed)
    shape = (count, episodes, H, D)
    features = rng.normal(size=shape) * rng.uniform(0.1, 1, size=(count, 1, H, D)) + rng.normal(size=(count, 1, H, D))
    return [PolicyMoments.from_features(rows) for rows in features]


@pytest.mark.parametrize("name", ["D", "A", "V"])
def test_a_table_gives_the_same_value_and_gap(name):
    """For a prompt MDP the moments of an occupancy give the objective and the gradient of the design problem."""
    table = prompt_problem(name, seed=2)
    rng = np.random.default_rng(3)
    rows = np.zeros((table.horizon, table.mdp.num_rows))
    for step in range(table.horizon):
        pairs = table.mdp.step_pairs(step)
        rows[step, pairs.start : pairs.stop] = rng.dirichlet(np.ones(pairs.stop - pairs.start))
    features = np.asarray(table.features)
    moments = PolicyMoments(rows @ features, features.T @ (rows.sum(axis=0)[:, None] * features))
    problem = MomentProblem(
        criterion=table.criterion,
        episodes=table.episodes,
        horizon=table.horizon,
        dimension=table.dimension,
        regularization=table.regularization,
    )
    np.testing.assert_allclose(problem.value(moments), table.objective(rows), rtol=1e-12)
    assert problem.baseline == table.baseline
    reward, gradient = problem.gradient(moments), table.gradient(rows)
    for step in range(table.horizon):
        np.testing.assert_allclose(
            reward(features, np.full(len(features), step)), gradient[step], rtol=1e-9, atol=1e-12
        )
    np.testing.assert_allclose(reward.expected(moments), np.vdot(gradient, rows), rtol=1e-10)


@pytest.mark.parametrize("name", ["D", "A", "V"])
def test_the_gradient_is_the_slope(name):
    problem = problem_of(name)
    here, there = policies_of(2)
    reward = problem.gradient(here)
    step = 1e-5
    ends = [
        problem.value(
            PolicyMoments(here.means + s * (there.means - here.means), here.second + s * (there.second - here.second))
        )
        for s in (step, -step)
    ]
    slope = reward.expected(there) - reward.expected(here)
    np.testing.assert_allclose((ends[0] - ends[1]) / (2 * step), slope, rtol=1e-6)


@pytest.mark.parametrize("name", ["D", "A", "V"])
def test_the_tangent_at_any_moments_is_above_the_value(name):
    """Concavity, also between moments that no common policy has: what the bounds rest on."""
    problem = problem_of(name)
    policies = policies_of(30, seed=7, episodes=3)
    for here, there in zip(policies[:15], policies[15:], strict=True):
        reward = problem.gradient(here)
        tangent = problem.value(here) + reward.expected(there) - reward.expected(here)
        assert problem.value(there) <= tangent + 1e-9 * abs(tangent)


def test_the_moments_of_a_mixture_are_those_of_all_its_episodes():
    rng = np.random.default_rng(2)
    first, second = rng.normal(size=(5, H, D)), rng.normal(size=(15, H, D))
    mixed = PolicyMoments.mixture([PolicyMoments.from_features(f) for f in (first, second)], [0.25, 0.75])
    together = PolicyMoments.from_features(np.concatenate([first, second]))
    np.testing.assert_allclose(mixed.means, together.means)
    np.testing.assert_allclose(mixed.second, together.second)
    np.testing.assert_allclose(
        problem_of().information(mixed) - problem_of().prior,
        surrogate_information(
            np.concatenate([first, second]).reshape(-1, D), np.kron(np.full((1, 20), 1 / 20), np.eye(H)), T
        ),
        rtol=1e-9,
        atol=1e-9,
    )


@pytest.mark.parametrize("name", ["D", "A", "V"])
def test_fully_corrective_weights_are_the_best(name):
    problem, policies = problem_of(name), policies_of(6, seed=4)
    found = fully_corrective(problem, policies, tolerance=1e-9)
    assert found.weights.min() >= 0 and found.weights.sum() == pytest.approx(1.0)
    value = problem.value(PolicyMoments.mixture(policies, found.weights))

    def loss(logits: np.ndarray) -> float:
        shares = np.maximum(logits, 0) / np.maximum(logits, 0).sum()
        return -problem.value(PolicyMoments.mixture(policies, shares))

    best = minimize(
        loss,
        np.full(6, 1 / 6),
        bounds=[(0, 1)] * 6,
        constraints={"type": "eq", "fun": lambda w: w.sum() - 1},
        method="SLSQP",
        options={"ftol": 1e-12, "maxiter": 500},
    )
    assert value >= -best.fun - 1e-7 * abs(best.fun)
    # the gap says how far from the best the weights are
    assert -best.fun <= value + found.inner_gap + 1e-7 * abs(value)


def test_an_improper_prior():
    problem = problem_of(regularization=0.0)
    assert problem.baseline == -np.inf
    found = fully_corrective(problem, policies_of(4), tolerance=1e-6)
    assert np.isfinite(found.inner_gap)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda: problem_of(prior_precision=np.eye(D)), "either a regularization .* got both"),
        (lambda: problem_of(regularization=None), "got neither"),
        (lambda: problem_of(regularization=-1.0), "lambda"),
        (lambda: problem_of(regularization=None, prior_precision=-np.eye(D)), "positive semidefinite"),
        (lambda: PolicyMoments(np.zeros((H, D)), np.zeros((D, H))), "second"),
        (lambda: PolicyMoments.from_features(np.zeros((0, H, D))), "at least one episode"),
        (lambda: PolicyMoments.mixture(policies_of(2), [0.5, 0.6]), "sum 1"),
        (lambda: PolicyMoments.mixture(policies_of(2), [1.5, -0.5]), ">= 0"),
        (lambda: fully_corrective(problem_of(), []), "at least one policy"),
        (lambda: problem_of().value(PolicyMoments(np.zeros((H + 1, D)), np.eye(D))), r"\(H, d\)"),
        (lambda: GradientReward(np.eye(D), np.zeros((H, D)), T)(np.zeros((1, D)), [H]), "steps in 0..2"),
    ],
)
def test_messages(change, message):
    with pytest.raises(ValueError, match=message):
        change()
