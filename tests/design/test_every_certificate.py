"""No certificate is wrong: hard problems of every kind through every solver, and both sides of every switch.

`EDPBRL_TEST_PROBLEMS` sets how many problems are drawn (60); 500 take less than a minute.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edpbrl_gym.design import Design, DesignProblem, SingularInformationError, frank_wolfe, newton, reference, verify
from edpbrl_gym.design.solvers.newton.tokens import feature_space
from edpbrl_gym.mdp import PromptMDP
from tests.helpers.design_cases import hard_prompt_problems, rounding_of_the_gap
from tests.helpers.hard_designs import gap_of, hard_mdp_problems, screened_problems

choice = importlib.import_module("edpbrl_gym.design.solvers.newton.tokens.choice")
tokens_solver = importlib.import_module("edpbrl_gym.design.solvers.newton.tokens.solver")
PROBLEMS = int(os.environ.get("EDPBRL_TEST_PROBLEMS", "60"))
STATUSES = {"converged", "iteration_limit", "time_limit", "interrupted", "precision_reached"}


def _torch(problem: DesignProblem) -> Design:
    return newton(problem, backend="torch" if isinstance(problem.mdp, PromptMDP) else "numpy")


def _reference(problem: DesignProblem) -> Design:
    small = problem.dimension + problem.horizon <= 9 and problem.features.shape[0] <= 30
    return reference(problem) if small else newton(problem)


SCREENED = (
    (tokens_solver, "bounds_pay", lambda *_: True),
    (tokens_solver, "POOLED", 2),
    (tokens_solver, "POOL", 30),
)
PRODUCTS = (feature_space, "products_above", lambda *_: 0.0)
COLUMNS = "edpbrl_gym.design.solvers.newton.columns."
SWITCHES = [  # of the solver of columns, which takes the cheaper side
    (importlib.import_module(COLUMNS + "solver"), "paths_pay"),
    (importlib.import_module(COLUMNS + "master").ColumnMaster, "_nodes_pay"),
    (importlib.import_module(COLUMNS + "master"), "sparse_congruence_pays"),
    (importlib.import_module(COLUMNS + "directions"), "sparse_product_pays"),
    (importlib.import_module(COLUMNS + "policy_steps"), "low_rank_pays"),
]
SOLVERS: dict[str, tuple[Callable[[DesignProblem], Design], tuple[tuple[object, str, object], ...]]] = {
    # each with the thresholds that force one side of a switch
    "newton": (newton, ()),
    "screened": (newton, SCREENED),
    "all tokens at once": (newton, ((choice.Rounds, "at_once", lambda _: 0.0),)),
    "round by round": (newton, ((choice.Rounds, "at_once", lambda _: float("inf")),)),
    "on the central path": (newton, ((choice, "central_path_cost", lambda *_: 0.0),)),
    "never on the central path": (newton, ((choice, "central_path_cost", lambda *_: float("inf")),)),
    "by products, Hessian stored": (newton, (PRODUCTS, (feature_space.FeatureSpace, "stores_hessian", True))),
    "by products, Hessian not stored": (newton, (PRODUCTS, (feature_space.FeatureSpace, "stores_hessian", False))),
    "columns, one side": (newton, tuple((place, name, lambda *_: True) for place, name in SWITCHES)),
    "columns, the other": (newton, tuple((place, name, lambda *_: False) for place, name in SWITCHES)),
    "torch": (_torch, ()),
    "stopped": (partial(newton, callback=lambda state: state.step == 1), ()),
    "out of time": (partial(newton, time_limit=0.0), ()),
    "frank_wolfe": (partial(frank_wolfe, max_iterations=20), ()),
    "pairwise": (partial(frank_wolfe, max_iterations=20, variant="pairwise"), ()),
    "reference": (_reference, ()),
}


@pytest.mark.needs("text", "reference")
@settings(max_examples=PROBLEMS)
@given(
    problem=st.one_of(hard_prompt_problems(), screened_problems(), hard_mdp_problems()),
    name=st.sampled_from(sorted(SOLVERS)),
)
def test_no_certificate_is_wrong(problem: DesignProblem, name: str):
    solve, forced = SOLVERS[name]
    with pytest.MonkeyPatch.context() as patch:
        for module, constant, value in forced:
            patch.setattr(module, constant, value)
        try:
            design = solve(problem)
        except SingularInformationError as refused:  # float64 can't tell the prior from rounding
            assert "rounding loses" in str(refused)
            return
        except RuntimeError as failed:  # cvxpy's solvers may fail on such problems, and say so
            assert name == "reference" and "cvxpy" in str(failed)
            return
    assert verify(problem, design).messages == ()
    assert design.status in STATUSES | {"inaccurate"}
    if isinstance(problem.mdp, PromptMDP):
        gap, allowance = gap_of(problem, design.mean_occupancy)
        assert gap <= design.gap + 1e-9 + allowance
    if design.status == "converged" and design.solver == "newton":
        assert design.relative_gap <= 1e-6
    if design.status == "precision_reached":
        assert design.gap <= 1e-6 * design.gain + 10 * rounding_of_the_gap(problem, design)
