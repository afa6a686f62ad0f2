"""Problems in which nothing can be learned, and features too large for floating point."""

from __future__ import annotations

import re
import warnings
from dataclasses import replace

import numpy as np
import pytest

from edpbrl_gym.design import (
    DesignProblem,
    SingularInformationError,
    exact_design,
    frank_wolfe,
    make_criterion,
    newton,
    verify,
)
from edpbrl_gym.mdp import FiniteHorizonMDP
from tests.helpers.design_cases import DESIGN_CRITERIA, problem_from, prompt_problem, stochastic_mdp


def chain() -> FiniteHorizonMDP:
    """Three states in a row with different features, one a step: the options of a step are always equal."""
    return FiniteHorizonMDP.from_dense(np.tile(np.eye(3)[[1, 2, 2]][:, None], (1, 2, 1)), [1, 0, 0], 3)


SOLVERS = {
    "newton": newton,
    "frank_wolfe": frank_wolfe,
    "pairwise": lambda problem: frank_wolfe(problem, variant="pairwise"),
    "exact": exact_design,
}


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("criterion", DESIGN_CRITERIA)
@pytest.mark.parametrize("length", [0.0, 0.3, 345.6, 1e6])
def test_equal_rows_are_converged_with_nothing_to_gain(solver, criterion, length):
    row = length * np.random.default_rng(0).standard_normal(3)
    for regularization in (1.0, 100.0):
        problem = problem_from(np.tile(row, (12, 1)), [6, 6], criterion, regularization=regularization)
        assert problem.uninformative
        design = SOLVERS[solver](problem)
        assert design.status == "converged" and design.efficiency == 1.0
        assert design.gap == design.gain == design.relative_gap == 0.0
        assert design.value == design.upper_bound == problem.baseline
        assert verify(problem, design).confirmed
        assert design.warnings[0].startswith("no information: the options of a step all have the same features")


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("mdp", [chain(), stochastic_mdp(0, states=5)], ids=["chain", "equal rows"])
def test_so_they_are_in_general_mdps(solver, mdp):
    rows = np.random.default_rng(1).standard_normal((mdp.num_rows, 4)) + 1e4
    if mdp.num_rows > 3:
        rows[:] = rows[0]
    problem = DesignProblem(
        mdp=mdp, features=rows, num_policies=3, episodes=10, criterion=make_criterion("A"), regularization=1.0
    )
    design = SOLVERS[solver](problem)
    assert (design.status, design.gap, design.relative_gap, design.value) == ("converged", 0.0, 0.0, problem.baseline)


@pytest.mark.parametrize("criterion", DESIGN_CRITERIA)
@pytest.mark.parametrize("regularization", [1.0, 100.0, 1e6])
def test_rows_that_differ_in_their_last_bits_only_have_nothing_to_gain(criterion, regularization):
    rows = np.tile(np.random.default_rng(0).standard_normal(3), (12, 1))
    rows[::2] *= 1.0 + np.finfo(float).eps
    problem = problem_from(rows, [6, 6], criterion, regularization=regularization)
    assert not problem.uninformative
    design = newton(problem)
    assert design.status == "converged" and design.relative_gap == 0.0


def test_a_small_gain_is_still_solved_for():
    problem = prompt_problem("A", regularization=1e10)
    design = newton(problem)
    assert 0.0 < design.gain < 1e-15  # of a value of 5e-10
    assert design.status == "converged"
    assert 0.0 < design.relative_gap < 1e-6 or design.gap == 0.0
    assert frank_wolfe(problem, max_iterations=3).status == "iteration_limit"


@pytest.mark.parametrize("size", [2e15, 1e80, 1e200, 1e300])
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_features_that_overflow_are_named(size, sign):
    features = np.random.default_rng(0).random((20, 3))
    features[7, 2] = sign * size
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ValueError, match=r"features of at most 1e\+15 in size, got -?\d.* in row 7, column 2"):
            problem_from(features, [10, 10])


@pytest.mark.parametrize("criterion", DESIGN_CRITERIA)
def test_the_largest_features_are_solved(criterion):
    """Scores in float32 hold: many more tokens than the working set."""
    base = np.random.default_rng(0).standard_normal((3000, 3))
    features = base * (1e15 / np.abs(base).max())
    problem = problem_from(features, [3000], criterion, regularization=1.0)
    design = newton(problem)
    assert design.status == "converged"
    assert verify(problem, design).confirmed


@pytest.mark.parametrize("solve", [newton, frank_wolfe, exact_design])
@pytest.mark.parametrize("given", ["regularization", "prior_precision"])
def test_a_prior_lost_beside_large_features_is_named(solve, given):
    """lambda = 1 is a regularization > 0; beside an information of 1e20 it is nothing."""
    features = 1e9 * np.random.default_rng(0).standard_normal((4, 8))
    problem = problem_from(features, [4], regularization=1.0)
    if given == "prior_precision":
        problem = replace(problem, regularization=None, prior_precision=np.diag(np.linspace(1.0, 2.0, 8)))
    with pytest.raises(SingularInformationError, match=r"rounding loses a prior precision below \d") as caught:
        solve(problem)
    assert "use a regularization > 0" not in str(caught.value)
    lost = float(re.search(r"below (\S+),", str(caught.value))[1])
    assert solve(problem_from(features, [4], regularization=10 * lost)).value > -np.inf  # what it says helps
    frank_wolfe(problem_from(features / 1e4, [4], regularization=1.0), max_iterations=3)
