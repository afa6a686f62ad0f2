"""Newton on general MDPs: paths and policies against cvxpy, the verifier, enumeration and finite differences."""

from __future__ import annotations

import importlib
import itertools
import signal

import numpy as np
import pytest
from hypothesis import given, settings

from edpbrl_gym.agents.registry import make_agent
from edpbrl_gym.design import DesignProblem, NewtonState, frank_wolfe, make_criterion, newton, reference, verify
from edpbrl_gym.design.solvers.newton.columns.columns import Column, ColumnSet
from edpbrl_gym.design.solvers.newton.columns.master import ColumnMaster
from edpbrl_gym.design.solvers.newton.columns.paths import PathPricing
from edpbrl_gym.design.solvers.newton.columns.policies import PolicyPricing, Turns
from edpbrl_gym.design.solvers.newton.simplex_qp import solve_simplex_qp
from edpbrl_gym.mdp import FiniteHorizonMDP, PromptMDP
from tests.helpers.design_cases import (
    check_repeats_and_starts,
    check_steps,
    problem_of,
    random_mdp_problem,
    rounding_of_the_gap,
)
from tests.helpers.hard_designs import deterministic_mdp, hard_mdp_problems, make_mdp
from tests.helpers.lane_environments import ChainEnv

CRITERIA = ["D", "A", "V"]


def check(problem, **options):
    """Solve, and hold the result against the verifier and against cvxpy, both ways."""
    design, exact = newton(problem, **options), reference(problem)
    assert design.status == "converged"
    assert design.solver == "newton"
    assert exact.value - design.value <= 1e-6 * design.gain
    assert design.value - exact.value <= 1e-6 * design.gain + exact.gap
    assert exact.relative_gap <= 2e-5
    verification = verify(problem, design)
    assert verification.messages == ()
    assert verification.confirmed
    return design


# -- against independent computations -------------------------------------------------------------------------------


@pytest.mark.needs("reference")
@pytest.mark.parametrize("criterion", CRITERIA)
@pytest.mark.parametrize("kind", ["paths", "policies"])
@pytest.mark.parametrize("options", [{}, {"rows": "pair", "masked": True}])
def test_agrees_with_cvxpy(criterion, kind, options):
    mdp = make_mdp(kind, 1, states=12, actions=3, horizon=3, **options)
    for regularization in (1e-3, 1.0, 1e3):
        design = check(problem_of(mdp, criterion, dimension=5, regularization=regularization))
        if regularization >= 1.0:  # with a weak prior the efficiency decides, see DesignProblem.converged
            assert design.relative_gap <= 1e-6


@pytest.mark.needs("reference")
@pytest.mark.parametrize("criterion", CRITERIA)
def test_several_initial_states_are_blocks_of_paths(criterion):
    mdp = deterministic_mdp(2, roots=4)
    assert PathPricing.applies(mdp)
    check(problem_of(mdp, criterion, dimension=4))


@pytest.mark.parametrize("tolerance", [1e-2, 1e-6, 0.0])
def test_many_initial_states_are_designed_by_policies(tolerance):
    """The first point is one policy, or at least a path from every initial state."""
    for roots, paths in ((1, True), (2, True), (40, False), (65, False)):
        problem = problem_of(deterministic_mdp(2, states=70, horizon=3, roots=roots), "D", dimension=4)
        seen = []
        design = newton(problem, tolerance=tolerance, callback=lambda state, seen=seen: seen.append(state.support) or 1)
        first = seen[0] if seen else np.inf  # of the columns that the first pricing found, if they were better
        assert design.status == "interrupted"
        assert first > roots if paths else first == 1


@pytest.mark.needs("reference")
@pytest.mark.parametrize("kind", ["paths", "policies"])
def test_a_given_prior_and_a_target_of_rank_one(kind):
    root = np.random.default_rng(7).standard_normal((5, 5))
    mdp = make_mdp(kind, 3, states=10, horizon=3)
    check(problem_of(mdp, "D", dimension=5, prior_precision=root @ root.T))
    features = np.random.default_rng(8).standard_normal((mdp.num_rows, 5))
    target = make_criterion("V", np.outer(root[0], root[0]))
    settings = {"num_policies": 2, "episodes": 20, "regularization": 1.0}
    check(DesignProblem(mdp=mdp, features=features, criterion=target, **settings))


@pytest.mark.needs("reference")
@pytest.mark.parametrize("kind", ["paths", "policies"])
@pytest.mark.parametrize("criterion", ["D", "A"])
def test_no_prior_at_all(kind, criterion):
    """The first columns must reach every direction, and no step may leave the regular matrices."""
    mdp = make_mdp(kind, 4, states=12, horizon=4, rows="pair")
    problem = problem_of(mdp, criterion, dimension=6, regularization=0.0)
    design, exact = newton(problem), reference(problem)
    assert design.status == "converged"
    assert abs(design.value - exact.value) <= 1e-6 * abs(exact.value)
    assert verify(problem, design).confirmed


@pytest.mark.parametrize("roots", [1, 3])
def test_max_marginals_against_enumeration(roots):
    """Every path of a small MDP, written out: the best value and the best path through each chosen node."""
    mdp = deterministic_mdp(5, states=6, actions=2, horizon=3, rows="pair", masked=True, roots=roots)
    scores = np.random.default_rng(0).standard_normal((3, mdp.num_rows))
    successor = mdp.transitions.indices
    pricing = PathPricing(mdp)
    best, columns = pricing.price(scores, np.full(roots, -np.inf), 1000)
    for block, root in enumerate(np.flatnonzero(mdp.initial)):
        values = {}
        for path in itertools.product(range(mdp.num_pairs), repeat=3):
            states = [root, *successor[list(path[:-1])]]
            if all(mdp.pair_state[path[h]] == states[h] and mdp.admissible[h, path[h]] for h in range(3)):
                values[path] = mdp.initial[root] * sum(scores[h, path[h]] for h in range(3))
        assert best[block] == pytest.approx(max(values.values()), rel=1e-12)
        marginals = {}
        for path, value in values.items():
            for node in enumerate(path):
                marginals[node] = max(marginals.get(node, -np.inf), value)
        found = {tuple(c.indices - mdp.num_pairs * np.arange(3)) for c in columns if c.block == block}
        assert found == {path for path, value in values.items() if value in [marginals[n] for n in enumerate(path)]}
    assert sum(column.values[0] for column in columns if column.block == 0) > 0


@pytest.mark.parametrize("criterion", [*CRITERIA, "V1"])
@pytest.mark.parametrize("kind", ["paths", "policies"])
def test_both_forms_of_the_derivatives_are_those_of_the_objective(criterion, kind):
    """Central differences of `DesignProblem.objective`; nodes and moments give the same on the simplices."""
    roots = {"roots": 2} if kind == "paths" else {}
    problem = problem_of(make_mdp(kind, 6, states=8, horizon=3, **roots), criterion[0], dimension=4)
    if criterion == "V1":
        target = make_criterion("V", np.outer(problem.features[0], problem.features[0]))
        settings = {"num_policies": 4, "episodes": 60, "regularization": 1.0}
        problem = DesignProblem(mdp=problem.mdp, features=problem.features, criterion=target, **settings)
    rng = np.random.default_rng(0)
    pricing = PathPricing(problem.mdp) if kind == "paths" else PolicyPricing(problem.mdp)
    columns = pricing.start(rng, 8) + [
        column for _ in range(6) for column in pricing.price(rng.random((3, problem.mdp.num_rows)), [-1.0] * 2, 4)[1]
    ]
    working = ColumnSet(problem.mdp, columns)
    master = ColumnMaster(problem, pricing.masses)
    weights, direction = rng.random(len(working)) + 0.5, rng.standard_normal(len(working))
    for own in working.slices:
        weights[own] /= weights[own].sum()
        direction[own] -= direction[own].mean()
    point = master.point(working, weights)

    def objective(step):
        return problem.objective(problem.mdp.row_occupancy(working.occupancy(weights + step * direction)))

    assert point.value == pytest.approx(objective(0.0), rel=1e-12)
    width = 1e-4
    slope = (objective(width) - objective(-width)) / (2 * width)
    bend = (objective(width) - 2 * objective(0.0) + objective(-width)) / width**2
    for gradient, hessian in (master.by_nodes(point, True), master.by_moments(point)):
        assert gradient @ direction == pytest.approx(slope, rel=1e-5)
        assert -direction @ hessian @ direction == pytest.approx(bend, rel=1e-5)
    scores = master.scores(point.local)
    rewards = problem.gradient(problem.mdp.row_occupancy(point.occupancy))
    np.testing.assert_allclose(np.ptp(scores - rewards, axis=1), 0.0, atol=1e-10 * scores.max())


@pytest.mark.parametrize("criterion", CRITERIA)
@pytest.mark.parametrize("kind", ["paths", "policies"])
def test_bounds_of_frank_wolfe_hold(criterion, kind):
    problem = problem_of(make_mdp(kind, 2, states=60, horizon=5), criterion, dimension=12)
    design = newton(problem)
    assert design.status == "converged"
    for variant in ("plain", "pairwise"):
        other = frank_wolfe(problem, variant=variant, max_iterations=40)
        rounding = 1e-12 * abs(design.value)
        assert design.value <= other.upper_bound + rounding
        assert other.value <= design.upper_bound + rounding
        assert design.relative_gap < other.relative_gap


def test_a_prompt_mdp_written_as_a_general_one():
    """The product of simplices is a DAG: paths must give what the solver of prompt problems gives."""
    prompt = PromptMDP((7, 9, 8))
    general = FiniteHorizonMDP(
        pair_state=prompt.pair_state,
        pair_action=prompt.pair_action,
        transitions=prompt.transitions,
        initial=prompt.initial,
        horizon=3,
        pair_row=prompt.pair_row,
    )
    for criterion in ("D", "A"):
        one, other = (newton(problem_of(mdp, criterion, dimension=6)) for mdp in (prompt, general))
        assert other.status == "converged"
        assert abs(one.value - other.value) <= 2e-6 * one.gain


# -- hard problems --------------------------------------------------------------------------------------------------


@settings(max_examples=150)
@given(hard_mdp_problems())
def test_the_verifier_confirms_the_certificate_of_hard_problems(problem):
    design = newton(problem)
    verification = verify(problem, design)
    assert verification.messages == ()
    rounding = rounding_of_the_gap(problem, design)
    largest = float(np.abs(problem.gradient(design.mean_rows)).max(axis=1).sum())
    # the verifier's linear program is solved to 1e-10 of each reward
    assert verification.gap <= design.gap + 1e-9 * (1.0 + largest) + rounding
    if rounding <= 1e-7 * design.gain:
        assert design.status == "converged"
        assert design.relative_gap <= 1e-6
    else:
        assert design.status in ("converged", "precision_reached")
        assert design.gap <= 1e-6 * design.gain + 10 * rounding


@pytest.mark.parametrize("kind", ["paths", "policies"])
def test_nothing_to_learn(kind):
    """One policy, or equal rows: no design has information, and that is no crash."""
    for options in ({"actions": 1}, {"actions": 2}):
        mdp = make_mdp(kind, 0, states=3, horizon=2, **options)
        features = np.ones((mdp.num_rows, 2))
        settings = {"num_policies": 2, "episodes": 5, "criterion": make_criterion("D"), "regularization": 1.0}
        design = newton(DesignProblem(mdp=mdp, features=features, **settings))
        assert design.gap == pytest.approx(0.0, abs=1e-12)
        assert "no information" in design.warnings[0]


# -- running it -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["paths", "policies"])
def test_same_result_twice_and_from_any_start(kind):
    options = {"roots": 2} if kind == "paths" else {}
    problem = problem_of(make_mdp(kind, 1, **options), "D")
    check_repeats_and_starts(problem)
    with pytest.raises(ValueError, match="occupancy"):
        newton(problem, start=np.zeros((4, problem.mdp.num_pairs)))


@pytest.mark.parametrize("kind", ["paths", "policies"])
def test_callback_history_and_iteration_limit(kind):
    problem = problem_of(make_mdp(kind, 0, states=40, horizon=5), "D", dimension=12)
    seen: list[NewtonState] = []
    design = newton(problem, callback=seen.append)
    assert design.status == "converged"
    check_steps(seen, design)
    states = [state for state in seen if state.step == 0]
    assert len(states) == design.iterations >= 2
    assert [record.iteration for record in design.history] == list(range(design.iterations + 1))
    assert np.all(np.diff([state.value for state in states] + [design.value]) > 0)
    for number, state in enumerate(states):
        assert state.iteration == number
        if kind == "paths":
            assert state.oracle_calls == number + 2  # one of them to find the start
        else:  # further policies: one of a Newton step, or one for each of 8 Frank-Wolfe steps
            assert state.oracle_calls == 2 or state.oracle_calls - states[number - 1].oracle_calls in (2, 9)
        assert state.upper_bound == state.value + state.gap >= design.value
        assert state.support >= 1
        assert state.value == pytest.approx(problem.objective(problem.mdp.row_occupancy(state.occupancy)), rel=1e-10)
        assert state.relative_gap == pytest.approx(state.gap / (state.value - problem.baseline))
        assert not state.occupancy.flags.writeable
    limited = newton(problem, max_iterations=1)
    assert (limited.status, limited.iterations) == ("iteration_limit", 1)
    assert verify(problem, limited).confirmed


@pytest.mark.parametrize("kind", ["paths", "policies"])
def test_tolerance_zero_goes_as_far_as_float64_allows(kind):
    design = newton(problem_of(make_mdp(kind, 0, states=12, horizon=3), "A", dimension=5), tolerance=0.0)
    assert design.status in ("precision_reached", "converged")
    assert design.relative_gap <= 1e-9


@pytest.mark.parametrize("kind", ["paths", "policies"])
def test_stopping_returns_the_certified_best_so_far(kind):
    problem = problem_of(make_mdp(kind, 0, states=40, horizon=5), "D", dimension=12)

    def press(state):
        if state.iteration == 2:
            signal.raise_signal(signal.SIGINT)

    for callback in (press, lambda state: state.iteration == 2):
        design = newton(problem, callback=callback)
        assert (design.status, design.iterations) == ("interrupted", 2)
        assert design.value > newton(problem, max_iterations=1).value
        assert verify(problem, design).confirmed


def test_ctrl_c_inside_the_newton_steps(monkeypatch):
    """An interrupt in the middle of the restricted problem leaves the last whole point."""
    seen: list[NewtonState] = []

    def interrupted(*arguments, **options):
        if seen[-1].iteration == 1:
            raise KeyboardInterrupt
        return solve_simplex_qp(*arguments, **options)

    monkeypatch.setattr(
        importlib.import_module("edpbrl_gym.design.solvers.newton.master"), "solve_simplex_qp", interrupted
    )
    monkeypatch.setattr(Turns, "is_newton", lambda *_: False)  # a step on the policy may leave nothing to restrict
    problem = random_mdp_problem("D")
    design = newton(problem, callback=seen.append)
    assert design.status == "interrupted"
    assert len(design.history) == design.iterations + 1 >= 2
    assert verify(problem, design).confirmed


def test_a_certificate_that_is_not_confirmed_is_not_believed(monkeypatch):
    """A solver that takes its gap for a hundredth of what it is ends "stalled" or goes on, never wrong."""
    exact, problem = ColumnMaster.levels, random_mdp_problem("D")

    def blind(self, point, scores):
        levels = exact(self, point, scores)
        return levels + 0.99 * (PolicyPricing(problem.mdp).price(scores, levels, 1)[0] - levels)

    monkeypatch.setattr(ColumnMaster, "levels", blind)
    design = newton(problem)
    assert verify(problem, design).confirmed
    assert design.status == ("converged" if design.relative_gap <= 1e-6 else "stalled")
    assert len(design.history) == design.iterations + 1


def test_equal_columns_are_kept_once():
    mdp = deterministic_mdp(0)
    one, other = (Column.of(mdp.occupancy(mdp.optimal_policy(np.ones((4, mdp.num_pairs)))[0])) for _ in range(2))
    assert len(ColumnSet(mdp, [one, other])) == 1
    assert ColumnSet(mdp, [one, other]).columns[0] is one


def test_the_agent_plays_the_design_of_any_mdp():
    env = ChainEnv()
    agent = make_agent("newton", env, num_options=2, episodes=5, criterion="D", tolerance=1e-7).learn()
    assert agent.design.solver == "newton"
    assert agent.design.status == "converged"
    paper = make_agent("frank_wolfe", env, num_options=2, episodes=5, criterion="D", max_iterations=3).learn()
    assert paper.design.value <= agent.design.upper_bound
