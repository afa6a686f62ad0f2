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
from edpbrl_gym.mdp import PromptMDP
from tests.helpers.design_cases import hard_prompt_problems, rounding_of_the_gap
from tests.helpers.hard_designs import gap_of, hard_mdp_problems, screened_problems

curvature = importlib.import_module("edpbrl_gym.design.solvers.newton.curvature")
solver = importlib.import_module("edpbrl_gym.design.solvers.newton.solver")
working_sets = importlib.import_module("edpbrl_gym.design.solvers.newton.working_sets")
PROBLEMS = int(os.environ.get("EDPBRL_TEST_PROBLEMS", "60"))
STATUSES = {"converged", "iteration_limit", "time_limit", "interrupted", "precision_reached"}


def _reference(problem: DesignProblem) -> Design:
    small = problem.dimension + problem.horizon <= 9 and problem.features.shape[0] <= 30
    return reference(problem) if small else newton(problem)


SCREENED = ((working_sets, "_BOUNDED", 2), (working_sets, "MANY", 2), (solver, "MANY", 2), (solver, "_POOL", 30))
PRODUCTS = (working_sets, "_FACTORED", -1000)
SOLVERS: dict[str, tuple[Callable[[DesignProblem], Design], tuple[tuple[object, str, object], ...]]] = {
    # each with the constants that force one side of a choice
    "newton": (newton, ()),
    "screened": (newton, SCREENED),
    "all tokens at once": (newton, ((working_sets, "_NEARLY_ALL", 0.0),)),
    "round by round": (newton, ((working_sets, "_NEARLY_ALL", 1.0),)),
    "by products": (newton, (PRODUCTS,)),
    "by products with a Hessian": (newton, (PRODUCTS, (curvature, "_HESSIAN", 1e9), (curvature, "IDLE", 0.0))),
    "stopped": (partial(newton, callback=lambda state: state.step == 1), ()),
    "out of time": (partial(newton, time_limit=0.0), ()),
    "frank_wolfe": (partial(frank_wolfe, max_iterations=20), ()),
    "pairwise": (partial(frank_wolfe, max_iterations=20, variant="pairwise"), ()),
    "reference": (_reference, ()),
}


@pytest.mark.needs("reference")
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
