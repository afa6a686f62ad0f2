"""Where two ways lead to the same, the solver of columns takes the cheaper: both sides of every such switch."""

from __future__ import annotations

import importlib

import numpy as np
import pytest

from edpbrl_gym.design import newton, verify
from edpbrl_gym.design.solvers.newton.columns import costs, directions, master, policy_steps
from edpbrl_gym.design.solvers.newton.columns.policies import Turns
from tests.helpers.design_cases import problem_of, stochastic_mdp
from tests.helpers.hard_designs import deterministic_mdp, nearly_deterministic

solver = importlib.import_module("edpbrl_gym.design.solvers.newton.columns.solver")

FEW_PATHS = problem_of(deterministic_mdp(3, states=70, horizon=4), "D")
LONG_PATHS = problem_of(deterministic_mdp(3, states=300, horizon=6), "D", dimension=20)
MANY_STARTS = problem_of(deterministic_mdp(3, states=70, horizon=4, roots=48), "D")
FEW_STATES = problem_of(stochastic_mdp(3, states=12, horizon=3), "A", dimension=12)
UNEVEN = problem_of(nearly_deterministic(3), "A")
UNEVEN_WIDE = problem_of(nearly_deterministic(3, horizon=5), "A", dimension=24)
# each with problems on which it is true and false at (nearly) every turn
SWITCHES = {
    "paths": (solver, "paths_pay", FEW_PATHS, MANY_STARTS),
    "nodes": (master.ColumnMaster, "_nodes_pay", FEW_PATHS, UNEVEN),
    "sparse incidence": (master, "sparse_congruence_pays", LONG_PATHS, FEW_STATES),
    "sparse transitions": (directions, "sparse_product_pays", UNEVEN_WIDE, FEW_STATES),
    "low rank": (policy_steps, "low_rank_pays", UNEVEN, FEW_STATES),
}


@pytest.mark.parametrize("side", [True, False])
@pytest.mark.parametrize("name", sorted(SWITCHES))
def test_both_sides_of_a_switch(name, side, monkeypatch):
    """The cheaper side is taken, and the other gives the same certified design."""
    place, decision, *problems = SWITCHES[name]
    problem = problems[0 if side else 1]
    decide, taken = getattr(place, decision), []
    if "transitions" in name or "rank" in name:  # parts of Newton steps on the policy
        monkeypatch.setattr(Turns, "is_newton", lambda *_: True)
    monkeypatch.setattr(place, decision, lambda *given: taken.append(decide(*given)) or taken[-1])
    chosen = newton(problem)
    assert taken and np.mean(np.array(taken) == side) > 0.5
    monkeypatch.setattr(place, decision, lambda *_: not side)
    other = newton(problem)
    for design in (chosen, other):
        assert design.status == "converged"
        assert verify(problem, design).confirmed
    assert max(chosen.value, other.value) <= min(chosen.upper_bound, other.upper_bound)


@pytest.mark.parametrize("tolerance", [1e-2, 1e-6])
def test_more_initial_states_speak_for_policies_and_more_digits_for_paths(tolerance):
    """In any problem there are few enough, or many enough."""
    for states, horizon, dimension in ((200, 4, 8), (1000, 6, 16), (300, 10, 32)):
        pays = []
        for roots in (1, 2, 4, 8, 16, 32, 64, 128):
            problem = problem_of(
                deterministic_mdp(0, states=states, horizon=horizon, roots=roots), "D", dimension=dimension
            )
            pays.append(costs.paths_pay(problem, tolerance))
            assert costs.paths_pay(problem, 1e-6) or not pays[-1]
        assert pays[0] and not pays[-1]
        assert pays == sorted(pays, reverse=True)


@pytest.mark.parametrize("rank", [0, 3, 30])
def test_costs_of_the_hessian_on_columns(rank):
    """Short paths through many nodes, in many dimensions, are cheap by nodes; policies through all by moments."""
    for hessian in (True, False):
        few, many = (costs.nodes_cost((n, 50), 50 * 6, 30, rank, hessian=hessian) for n in (100, 2000))
        assert few < many
    known = costs.moments_cost(50, 6, 30, rank)
    new = sum(costs.new_moments_cost(6, 1000, 30) for _ in range(50))
    assert costs.nodes_cost((100, 50), 50 * 6, 30, rank, hessian=True) < known + new
    assert known + new < costs.nodes_cost((2000, 50), 50 * 600, 30, rank, hessian=True)
    assert costs.moments_cost(50, 6, 300, rank) > 30 * known


def test_costs_of_products():
    """What is nearly empty stays sparse, what is nearly full does not, and little numbers are cheaper dense."""
    for columns in (1, 30, 1000):
        assert costs.sparse_product_pays(3000, (1000, 300), columns)
        assert not costs.sparse_product_pays(300_000, (1000, 300), columns) or columns == 1
    assert not costs.sparse_product_pays(40, (20, 20), 10)
    assert costs.sparse_congruence_pays(3000, (700, 300))
    assert not costs.sparse_congruence_pays(700 * 25, (700, 25))
    assert costs.low_rank_pays(200, 100) and not costs.low_rank_pays(90, 100)
    assert costs.low_rank_pays(4000, 2000) and not costs.low_rank_pays(2200, 2000)
