"""Newton steps on the policy against finite differences, scipy, cvxpy and the verifier; whose turn it is."""

from __future__ import annotations

import importlib

import numpy as np
import pytest
from hypothesis import given, settings
from scipy.optimize import minimize

from edpbrl_gym.design import DesignProblem, frank_wolfe, make_criterion, newton, reference, verify
from edpbrl_gym.design.deadline import NEVER, Deadline
from edpbrl_gym.design.solvers.newton.columns.columns import Column, ColumnSet
from edpbrl_gym.design.solvers.newton.columns.costs import interior_cost, pass_cost, step_cost
from edpbrl_gym.design.solvers.newton.columns.directions import Coordinates, directions
from edpbrl_gym.design.solvers.newton.columns.master import ColumnMaster
from edpbrl_gym.design.solvers.newton.columns.policies import Turns
from edpbrl_gym.design.solvers.newton.columns.policy_steps import PolicySteps
from edpbrl_gym.design.solvers.newton.interior import DenseHessian, LowRankHessian, solve_by_interior_point
from edpbrl_gym.mdp import FiniteHorizonMDP
from tests.helpers.design_cases import problem_of, random_occupancy, rounding_of_the_gap
from tests.helpers.hard_designs import deterministic_mdp, hard_mdp_problems, nearly_deterministic


def problem_with(criterion: str, mdp: FiniteHorizonMDP, **options) -> DesignProblem:
    problem = problem_of(mdp, criterion[0], **options)
    if criterion != "V1":
        return problem
    target = make_criterion("V", np.outer(problem.features[0], problem.features[0]))
    given = {"num_policies": 4, "episodes": 60, "regularization": 1.0}
    return DesignProblem(mdp=mdp, features=problem.features, criterion=target, **given)


def local_at(problem: DesignProblem, occupancy):
    """Objective, scores and gap at an occupancy."""
    master = ColumnMaster(problem, np.ones(1))
    point = master.point(ColumnSet(problem.mdp, [Column.of(occupancy)]), np.ones(1))
    scores = master.scores(point.local)
    gap = problem.mdp.best_response(scores)[1] - float(master.levels(point, scores)[0])
    return point.local, scores, gap


def always_newton(monkeypatch) -> list[Column | None]:
    """Let every turn be a Newton step; the columns that they find."""
    found = []
    column = PolicySteps.column
    monkeypatch.setattr(Turns, "is_newton", lambda *_: True)
    monkeypatch.setattr(PolicySteps, "column", lambda *given: found.append(column(*given)) or found[-1])
    return found


# -- the quadratic program ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("rank", [3, 9])
def test_the_interior_point_against_scipy(seed, rank):
    rng = np.random.default_rng(seed)
    sizes, totals = np.array([4, 1, 5]), np.array([0.3, 1e-3, 2.0])
    root, gradient = rng.standard_normal((10, rank)), rng.standard_normal(10)
    parts = [slice(0, 4), slice(4, 5), slice(5, 10)]

    def objective(v):
        return float(gradient @ v - 0.5 * np.sum((root.T @ v) ** 2))

    constraints = [
        {"type": "eq", "fun": lambda v, own=own, total=total: v[own].sum() - total}
        for own, total in zip(parts, totals, strict=True)
    ]
    start = np.repeat(totals / sizes, sizes)
    expected = minimize(
        lambda v: -objective(v), start, bounds=[(0, None)] * 10, constraints=constraints, options={"ftol": 1e-15}
    )
    for hessian in (DenseHessian(root @ root.T), LowRankHessian(root)):
        found = solve_by_interior_point(hessian, gradient, sizes, totals, share=0.0, smallest=1e-10)
        assert found.min() >= 0
        np.testing.assert_allclose([found[own].sum() for own in parts], totals, rtol=1e-12)
        assert objective(found) >= -expected.fun - 1e-7
        assert np.count_nonzero(found) < 10  # what vanishes is exactly 0


def test_the_interior_point_stops_at_a_share_of_the_gain_and_at_the_deadline():
    rng = np.random.default_rng(0)
    root, gradient = rng.standard_normal((60, 20)), rng.standard_normal(60)
    sizes, totals = np.full(20, 3), np.full(20, 0.05)
    exact, rough = (
        solve_by_interior_point(LowRankHessian(root), gradient, sizes, totals, share=share) for share in (1e-9, 0.3)
    )
    values = [float(gradient @ v - 0.5 * np.sum((root.T @ v) ** 2)) for v in (exact, rough)]
    assert values[0] > values[1] >= values[0] - 0.3 * values[1] / 0.7
    ended = solve_by_interior_point(LowRankHessian(root), gradient, sizes, totals, share=0.1, deadline=Deadline(0.0))
    assert ended is None


def test_a_program_without_curvature_goes_to_the_best_vertices():
    sizes, totals = np.array([2, 3]), np.array([1.0, 0.5])
    found = solve_by_interior_point(LowRankHessian(np.zeros((5, 2))), np.arange(5.0), sizes, totals, share=1e-9)
    np.testing.assert_allclose(found, [0.0, 1.0, 0.0, 0.0, 0.5])


# -- what the program is made of ------------------------------------------------------------------------------------


@pytest.mark.parametrize("criterion", ["D", "A", "V", "V1"])
def test_directions_are_the_derivatives_of_the_moments(criterion):
    """Central differences of `DesignProblem.objective` along the change of the occupancy that a few pairs make."""
    mdp = nearly_deterministic(1, states=9, actions=3, horizon=4, masked=True)
    problem = problem_with(criterion, mdp, dimension=4)
    rng = np.random.default_rng(0)
    occupancy = random_occupancy(mdp, rng)
    policy = mdp.policy_from_occupancy(occupancy)
    local, scores, _ = local_at(problem, occupancy)
    features = problem.features - problem.features.mean(axis=0)
    coordinates = Coordinates.at(local, features, problem.episodes)
    masses = np.stack([np.bincount(mdp.pair_state, weights=row, minlength=9) for row in occupancy])[:, mdp.pair_state]
    chosen = (rng.random(policy.shape) < 0.4) & mdp.admissible & (masses > 0)
    rows = directions(mdp, coordinates, policy, chosen)
    weights = rng.random(len(rows))

    def moved(width):  # the derivative of the occupancy with respect to the policy, by central differences
        changed = policy.copy()
        for (step, pair), weight in zip(np.argwhere(chosen), weights, strict=True):
            own = mdp.pair_state == mdp.pair_state[pair]
            changed[step, own] -= width * weight * policy[step, own]
            changed[step, pair] += width * weight
        return changed

    def occupancy_of(changed):  # `mdp.occupancy` refuses tables that are no policies
        mass, result = mdp.initial, np.empty_like(changed)
        for step, row in enumerate(changed):
            result[step] = mass[mdp.pair_state] * row
            mass = mdp.transitions.T @ result[step]
        return result

    direction = (occupancy_of(moved(1e-6)) - occupancy_of(moved(-1e-6))) / 2e-6
    change = rows.T @ (weights * masses[chosen])

    def objective(step):
        return problem.objective(mdp.row_occupancy(occupancy + step * direction))

    width = 1e-3
    bend = (objective(width) - 2 * objective(0.0) + objective(-width)) / width**2
    assert change @ change == pytest.approx(-bend, rel=1e-4)
    slope = (objective(width) - objective(-width)) / (2 * width)
    advantages = PolicySteps(problem)._advantages(policy, scores)
    assert (advantages[chosen] * masses[chosen]) @ weights == pytest.approx(slope, rel=1e-4)
    ahead, behind = (problem.gradient(mdp.row_occupancy(occupancy + w * direction)) for w in (width, -width))
    difference = (ahead - behind) / (2 * width) - (coordinates.predicted(scores, change) - scores)
    np.testing.assert_allclose(np.ptp(difference, axis=1), 0.0, atol=1e-4 * np.abs(ahead).max())


@pytest.mark.needs("reference")
@pytest.mark.parametrize("criterion", ["D", "A", "V", "V1"])
@pytest.mark.parametrize("masked", [False, True])
def test_steps_alone_solve_the_problem(criterion, masked):
    """Every full step near the optimum squares the error; against cvxpy."""
    problem = problem_with(criterion, nearly_deterministic(2, states=12, horizon=4, masked=masked), dimension=5)
    steps, master = PolicySteps(problem), ColumnMaster(problem, np.ones(1))
    occupancy = problem.mdp.occupancy(problem.mdp.uniform_policy())
    gaps = []
    for _ in range(12):
        local, scores, gap = local_at(problem, occupancy)
        gaps.append(gap / (local.value - problem.baseline))
        column = steps.column(local, occupancy, scores, gap, NEVER) if gaps[-1] > 1e-10 else None
        if column is None:
            break
        both = ColumnSet(problem.mdp, [Column.of(occupancy), column])
        weights = np.array([float(one is not column) for one in both.columns])
        occupancy = master.improve(master.point(both, weights), target=0.0, max_steps=10)[0].occupancy
    assert gaps[-1] <= 1e-6
    exact = reference(problem)
    assert local.value >= exact.value - 1e-6 * exact.gain
    assert local.value <= exact.upper_bound + 1e-9


# -- in the solver --------------------------------------------------------------------------------------------------


@settings(max_examples=60)
@given(hard_mdp_problems())
def test_the_verifier_confirms_designs_by_steps_alone(problem):
    with pytest.MonkeyPatch.context() as patch:
        always_newton(patch)
        design = newton(problem)
    verification = verify(problem, design)
    assert verification.messages == ()
    rounding = rounding_of_the_gap(problem, design)
    if rounding <= 1e-7 * design.gain:
        assert design.status == "converged"
        assert design.relative_gap <= 1e-6
    else:
        assert design.gap <= 1e-6 * design.gain + 10 * rounding


@pytest.mark.needs("reference")
@pytest.mark.parametrize("criterion", ["D", "A"])
def test_steps_without_a_prior(criterion, monkeypatch):
    found = always_newton(monkeypatch)
    problem = problem_of(nearly_deterministic(4, states=15), criterion, dimension=6, regularization=0.0)
    design, exact = newton(problem), reference(problem)
    assert any(column is not None for column in found)
    assert design.status == "converged"
    assert abs(design.value - exact.value) <= 1e-6 * abs(exact.value)
    assert verify(problem, design).confirmed


def test_steps_with_deterministic_transitions_and_many_initial_states(monkeypatch):
    found = always_newton(monkeypatch)
    problem = problem_of(deterministic_mdp(2, states=70, horizon=4, roots=65), "D", dimension=5)
    design = newton(problem)
    assert any(column is not None for column in found)
    assert design.status == "converged"
    assert verify(problem, design).confirmed


@pytest.mark.parametrize("criterion", ["D", "A", "V"])
def test_steps_take_over_where_frank_wolfe_steps_are_slow(criterion, monkeypatch):
    taken = []
    column = PolicySteps.column
    monkeypatch.setattr(PolicySteps, "column", lambda *given: taken.append(1) or column(*given))
    problem = problem_of(nearly_deterministic(5, states=60, horizon=8), criterion, dimension=6, regularization=10.0)
    design = newton(problem)
    assert taken
    assert design.status == "converged"
    assert verify(problem, design).confirmed
    other = frank_wolfe(problem, max_iterations=100)
    assert design.value <= other.upper_bound and other.value <= design.upper_bound
    assert other.relative_gap > 1e-4  # or the problem does not show what it should
    # the same without a single step
    taken.clear()
    monkeypatch.setattr(PolicySteps, "cost", lambda *_: np.inf)
    slow = newton(problem)
    assert not taken and slow.status == "converged" and slow.iterations > design.iterations
    assert abs(slow.value - design.value) <= 1e-6 * design.gain


def test_steps_end_with_the_time(monkeypatch):
    """The deadline passes inside a step: the design is the certified last point."""
    always_newton(monkeypatch)
    module = importlib.import_module("edpbrl_gym.design.solvers.newton.columns.policy_steps")
    problem = problem_of(nearly_deterministic(6), "D", dimension=6)
    expired = []

    def late(*given, **options):
        expired.append(solve_by_interior_point(*given, **options | {"deadline": Deadline(0.0)}))
        return expired[-1]

    monkeypatch.setattr(module, "solve_by_interior_point", late)
    design = newton(problem, max_iterations=3)
    assert expired == [None] * 3
    assert design.status == "iteration_limit" and verify(problem, design).confirmed
    assert newton(problem, time_limit=0).status == "time_limit"


# -- whose turn it is -----------------------------------------------------------------------------------------------


def test_a_newton_step_is_tried_after_as_much_other_work_and_again_while_it_pays():
    turns = Turns(chain_cost=1.0)
    assert [turns.is_newton(float(value), 1.0, 3.0) for value in range(4)] == [False, False, False, True]
    # a gain of 0.1 for the work of 3 is little beside 1 for 1, but a halved gap is worth another step
    assert turns.is_newton(3.1, 0.4, 3.0) and turns.is_newton(3.2, 0.1, 3.0)
    # three steps that do neither, and Frank-Wolfe steps get twice as much work as before
    assert [turns.is_newton(3.2, 0.1, 3.0) for _ in range(3)] == [True, True, False]
    assert [turns.is_newton(3.2, 0.1, 3.0) for _ in range(6)] == [False] * 5 + [True]


def test_a_newton_step_that_gains_a_fair_share_goes_on():
    turns = Turns(chain_cost=1.0)
    value = 0.0
    for _ in range(4):
        tried = turns.is_newton(value, 1.0, 3.0)
        value += 3.0 * 0.3 if tried else 1.0
    assert tried and all(turns.is_newton(value + 0.9 * number, 1.0, 3.0) for number in range(5))


def test_costs_know_both_sides():
    """Few moments make Newton steps cheap, many make them expensive, and what exceeds memory is never tried."""
    mdp = nearly_deterministic(0)
    small, large = (problem_of(mdp, "D", dimension=dimension) for dimension in (4, 200))
    given = {"states": 100, "candidates": 300}
    cheap = step_cost(small, moments=4 * 5 // 2 + 6 * 4, **given) / pass_cost(small)
    dear = step_cost(large, moments=200 * 201 // 2 + 6 * 200, **given) / pass_cost(large)
    assert 3.0 < cheap < 30.0 < 10 * cheap < dear
    assert step_cost(large, states=100, candidates=10**4, moments=21_300) == np.inf
    assert interior_cost(1000, 400) < interior_cost(2000, 400) < interior_cost(2000, 800)
