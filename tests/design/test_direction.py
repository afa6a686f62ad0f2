"""c-optimality against V with V = c c', against differences, and against Elfving's theorem."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from edpbrl_gym.agents.registry import make_agent
from edpbrl_gym.design import SOLVERS, DesignProblem, make_criterion, newton, query_set, solve, verify
from edpbrl_gym.mdp import PromptMDP
from tests.helpers.design_cases import prompt_problem
from tests.helpers.lane_environments import ChainEnv


@given(st.integers(0, 2**32 - 1), st.integers(1, 6))
@settings(max_examples=50)
def test_value_and_gradient(seed, dimension):
    rng = np.random.default_rng(seed)
    root = rng.standard_normal((2, dimension, dimension))
    matrix, change = root[0] @ root[0].T + np.eye(dimension), (root[1] + root[1].T) / 2
    vector = rng.standard_normal(dimension)
    criterion, step = make_criterion("c", vector), 1e-6
    assert criterion.value(matrix) == pytest.approx(-vector @ np.linalg.inv(matrix) @ vector)
    slope = (criterion.value(matrix + step * change) - criterion.value(matrix - step * change)) / (2 * step)
    size = abs(criterion.value(matrix)) * np.linalg.norm(change, 2)
    assert np.vdot(criterion.gradient(matrix), change) == pytest.approx(slope, rel=1e-5, abs=1e-6 * size)


@given(st.integers(0, 1000), st.sampled_from([0.01, 1.0, 100.0]))
@settings(max_examples=8)
def test_it_is_v_of_one_direction(seed, regularization):
    base = prompt_problem("A", seed, regularization=regularization)
    vector = np.random.default_rng(seed).standard_normal(5)
    one = newton(replace(base, criterion=make_criterion("c", vector)))
    other = newton(replace(base, criterion=make_criterion("V", np.outer(vector, vector))))
    assert one.status == "converged" and verify(one.problem, one).confirmed
    assert one.value <= other.upper_bound and other.value <= one.upper_bound
    assert query_set(one).value <= one.upper_bound


@pytest.mark.needs("reference")
@pytest.mark.parametrize("solver", sorted(SOLVERS))
def test_every_solver(solver):
    problem = replace(prompt_problem("A", 1), criterion=make_criterion("c", [1.0, 2.0, 0.0, -1.0, 0.5]))
    options = {"max_iterations": 300, "variant": "pairwise"} if solver == "frank_wolfe" else {}
    design, best = solve(problem, solver=solver, **options), newton(problem)
    assert design.efficiency > 0.99 and verify(problem, design).messages == ()
    assert design.value <= best.upper_bound and best.value <= design.upper_bound


def test_the_theorem_of_elfving():
    """One step and a weak prior: the least variance is the square of Elfving's norm of c.

    The design's information is the covariance of the tokens. Of tokens x and -x with equal weights it is their second
    moment, for which the smallest variance of c' theta is the square of min sum |u_i| over c = sum u_i x_i.
    """
    rng = np.random.default_rng(4)
    half, vector, prior = rng.standard_normal((6, 3)), rng.standard_normal(3), 1e-7
    problem = DesignProblem(
        mdp=PromptMDP((12,)),
        features=np.concatenate([half, -half]),
        num_policies=2,
        episodes=1,
        regularization=prior,
        criterion=make_criterion("c", vector),
    )
    norm = linprog(np.ones(12), A_eq=np.concatenate([half, -half]).T, b_eq=vector).fun
    design = newton(problem)
    assert -design.value == pytest.approx(norm**2, rel=1e-3)


def test_an_agent_keeps_the_vector(tmp_path):
    env = ChainEnv()
    vector = np.arange(1.0, env.features.shape[1] + 1)
    np.save(tmp_path / "c.npy", vector)
    for criterion, array in (("c", vector), (f"C:{tmp_path / 'c.npy'}", None)):
        agent = make_agent("newton", env, num_options=2, episodes=4, criterion=criterion, v_matrix=array).learn()
        agent.save(tmp_path / "agent")
        again = type(agent).load(tmp_path / "agent", env)
        np.testing.assert_array_equal(again.problem().criterion.vector, vector)
        np.testing.assert_array_equal(again.design.occupancies, agent.design.occupancies)
    with pytest.raises(ValueError, match="criterion c needs a vector"):
        make_agent("newton", env, num_options=2, episodes=4, criterion="c").learn()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: make_criterion("c"), "criterion c needs a vector: .* c:FILE.npy"),
        (lambda: make_criterion("c", np.eye(2)), r"vector of the criterion c of shape \(d,\)"),
        (lambda: make_criterion("c", np.zeros(2)), "not zero"),
        (lambda: make_criterion("c", [1.0, np.nan]), "finite vector of the criterion c"),
        (lambda: make_criterion("c", [1.0, 2.0]).value(np.eye(3)), "target, 2, got 3"),
    ],
)
def test_refusals(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_the_vector_decides_the_fingerprint():
    one, same, other = (make_criterion("c", [1.0, value]).fingerprint() for value in (2.0, 2.0, 3.0))
    assert one == same != other and one.startswith("c ")
