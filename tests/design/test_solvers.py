"""Frank-Wolfe against cvxpy and the verifier; findings F1 and F4; line search, interrupts, determinism."""

from __future__ import annotations

import importlib
import signal
import sys
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar

from edpbrl_gym.design import (
    SOLVERS,
    DCriterion,
    DesignProblem,
    exact_design,
    exact_information,
    frank_wolfe,
    newton,
    query_set,
    reference,
    solve,
    surrogate_information,
    verify,
)
from edpbrl_gym.design.solvers.line_search import Segment, exact_step
from tests.helpers.design_cases import (
    Plain,
    problem_of,
    prompt_problem,
    random_mdp_problem,
    random_occupancy,
    stochastic_mdp,
)

TOLERANCE = 1e-4
CASES = [(kind, criterion) for kind in ("random", "prompt") for criterion in "DAV"]


def make(kind: str, criterion: str, seed: int = 0, **options) -> DesignProblem:
    return (random_mdp_problem if kind == "random" else prompt_problem)(criterion, seed, **options)


@pytest.mark.needs("reference")
@pytest.mark.parametrize(("kind", "criterion"), CASES)
@pytest.mark.parametrize(("variant", "seed"), [("plain", 0), ("pairwise", 1)])
def test_frank_wolfe_and_cvxpy_agree_and_verify_confirms_both(kind, criterion, variant, seed):
    """The gain of A and V over no data dwarfs the difference between designs, so 1e-4 of it is coarse."""
    problem = make(kind, criterion, seed)
    # on a product of simplices the plain steps zigzag: 1e-4 takes them many thousand iterations
    coarse = {("prompt", "plain"): 1e-3, ("random", "plain"): TOLERANCE}.get((kind, variant), 1e-6)
    tolerance = TOLERANCE if (kind, criterion, variant) == ("prompt", "D", "pairwise") else coarse
    design = frank_wolfe(problem, variant=variant, tolerance=tolerance, max_iterations=3000)
    exact = reference(problem)
    assert design.status == exact.status == "converged"
    assert design.relative_gap <= tolerance
    assert exact.relative_gap <= 1e-6
    for one in (design, exact):
        verification = verify(problem, one)
        assert verification.confirmed and verification.messages == ()
        assert verification.gap == pytest.approx(one.gap, abs=1e-7 * max(1.0, abs(one.value)))
    rounding = 1e-9 * max(1.0, abs(design.value))
    assert abs(design.value - exact.value) <= tolerance * design.gain
    assert design.value <= exact.upper_bound + rounding
    assert exact.value <= design.upper_bound + rounding


@pytest.mark.needs("reference")
@pytest.mark.parametrize("criterion", ["D", "A", "V"])
def test_scs_confirms_clarabel(criterion):
    problem = random_mdp_problem(criterion, 1)
    one, other = reference(problem), reference(problem, solver="SCS")
    assert other.solver == "cvxpy SCS"
    assert abs(one.value - other.value) <= 1e-6 * one.gain


@pytest.mark.needs("reference")
@pytest.mark.parametrize("masked", [False, True])
def test_row_kinds_admissibility_and_priors(masked):
    root = np.random.default_rng(0).standard_normal((4, 4))
    for rows in ("state", "pair"):
        mdp = stochastic_mdp(2, states=8, actions=3, horizon=3, rows=rows, masked=masked)
        problem = problem_of(mdp, "A", dimension=4, prior_precision=root @ root.T + np.eye(4))
        design = frank_wolfe(problem, variant="pairwise", max_iterations=2000)
        assert verify(problem, design).confirmed
        assert abs(design.value - reference(problem).value) <= 1e-4 * design.gain


def test_all_policies_are_identical():
    """F1: from a common start Frank-Wolfe returns K identical policies (the same gradient for every q)."""
    problem = make("random", "D")
    design = frank_wolfe(problem)
    assert design.occupancies.shape == design.policies.shape == (4, 4, 120)
    assert (design.occupancies == design.occupancies[0]).all()
    assert (design.policies == design.policies[0]).all()
    assert not design.occupancies.flags.writeable
    np.testing.assert_allclose(problem.mdp.occupancy(design.policies[2]), design.mean_occupancy, atol=1e-12)


def test_the_papers_start_is_not_feasible():
    """F4: d = 0 violates the flow equations; the gradient there exists but is no gradient of a design."""
    problem = make("random", "D")
    zero = np.zeros((problem.horizon, problem.mdp.num_pairs))
    with pytest.raises(ValueError, match="violates the flow equations.*not feasible"):
        frank_wolfe(problem, start=zero)
    rows = problem.mdp.row_occupancy(zero)
    expected = 60 * (problem.features**2).sum(axis=1)  # G = I at d = 0 with lambda = 1, and no mean to subtract
    np.testing.assert_allclose(problem.gradient(rows), np.broadcast_to(expected, rows.shape))


@pytest.mark.parametrize("criterion", ["D", "A", "V"])
def test_a_weak_prior_does_not_stop_it_at_once(criterion):
    """Against almost no prior any design gains so much that gap / gain alone would accept the uniform start."""
    problem = make("prompt", criterion, regularization=1e-6)
    uniform = frank_wolfe(problem, max_iterations=0)
    if criterion != "D":
        assert uniform.relative_gap <= TOLERANCE
        assert uniform.efficiency < 0.9
        assert uniform.status == "iteration_limit"
    design = frank_wolfe(problem, variant="pairwise", max_iterations=500)
    assert design.status == "converged"
    assert design.efficiency >= 0.99
    coarse = frank_wolfe(problem, tolerance=0.5)  # a tolerance above a hundredth is the user's own word
    assert coarse.status == "converged"
    assert coarse.efficiency >= 0.5


@pytest.mark.parametrize(("kind", "criterion"), CASES)
def test_the_history_rises_and_every_bound_holds(kind, criterion):
    problem = make(kind, criterion)
    design = frank_wolfe(problem, max_iterations=60, tolerance=0.0)
    values = np.array([record.value for record in design.history])
    bounds = values + np.array([record.gap for record in design.history])
    assert design.iterations == 60
    assert len(values) == 61
    assert design.status == "iteration_limit"
    assert (np.diff(values) >= -1e-12 * np.abs(values[1:])).all()  # exact line search
    assert bounds.min() >= values.max()
    assert design.value == pytest.approx(values[-1], rel=1e-12)
    assert design.gap == pytest.approx(design.history[-1].gap, rel=1e-6)
    assert design.history[-1].step == 0.0


def segment_between(problem, occupancy, other, longest=1.0):
    rows, towards = (problem.mdp.row_occupancy(one) for one in (occupancy, other))
    features, change = problem.features, towards - rows
    return Segment(
        information=problem.information(rows),
        means=rows @ features,
        moment_change=features.T @ (features * change.sum(axis=0)[:, None]),
        mean_change=change @ features,
        episodes=problem.episodes,
        longest=longest,
    ), rows, change  # fmt: skip


@given(seed=st.integers(0, 10**6), criterion=st.sampled_from("DAV"), regularization=st.sampled_from([0.0, 1.0]))
@settings(max_examples=40)
def test_line_search_finds_the_maximum_of_the_segment(seed, criterion, regularization):
    problem = make("prompt", criterion, regularization=regularization, sizes=(9, 8, 8), dimension=3)
    rng = np.random.default_rng(seed)
    start = random_occupancy(problem.mdp, rng)
    vertex = problem.mdp.occupancy(problem.mdp.best_response(rng.standard_normal((3, problem.mdp.num_rows)))[0])
    segment, rows, change = segment_between(problem, start, vertex)  # without a prior it ends in a singular matrix
    np.testing.assert_allclose(segment.at(0.3), problem.information(rows + 0.3 * change), rtol=1e-9, atol=1e-9)
    step = exact_step(problem.criterion, segment)
    found = minimize_scalar(
        lambda g: -problem.objective(rows + g * change),
        bounds=(0.0, 1.0 - 1e-9),
        method="bounded",
        options={"xatol": 1e-9},
    )
    best = problem.objective(rows + step * change)
    assert 0.0 <= step <= 1.0
    assert best >= -found.fun - 1e-10 * abs(found.fun)
    if criterion == "D":
        assert exact_step(Plain(DCriterion()), segment) == pytest.approx(step, abs=1e-6)


@pytest.mark.parametrize("kind", ["prompt", "random"])
def test_the_efficiency_of_a_criterion_of_ones_own(kind):
    """The default is that of a trace: a criterion for which that is wrong is refused, or found out."""
    problem = make(kind, "D")
    own = replace(problem, criterion=Plain(problem.criterion))
    design = frank_wolfe(own, max_iterations=20)
    assert design.value == pytest.approx(frank_wolfe(problem, max_iterations=20).value, rel=1e-9)
    assert verify(own, design).confirmed
    own.criterion.logarithmic = False
    with pytest.raises(ValueError, match="negative value of the criterion plain D, .* override `efficiency`"):
        frank_wolfe(own)


@pytest.mark.needs("reference")
@pytest.mark.parametrize("kind", ["prompt", "random"])
@pytest.mark.parametrize("criterion", ["D", "A", "V"])
def test_the_reference_without_an_expression_of_cvxpy(kind, criterion):
    problem = make(kind, criterion)
    own = replace(problem, criterion=Plain(problem.criterion))
    design, best = reference(own), frank_wolfe(problem, variant="pairwise", tolerance=1e-5, max_iterations=2000)
    assert design.status == "converged" and design.relative_gap <= 1e-4
    assert design.value <= best.upper_bound and best.value <= design.upper_bound
    assert verify(own, design).confirmed


def test_the_callback_sees_and_stops():
    seen = []

    def callback(state):
        seen.append(state)
        return state.iteration == 3

    problem = make("random", "D")
    design = frank_wolfe(problem, tolerance=0.0, callback=callback)
    assert design.status == "interrupted"
    assert design.iterations == 3
    assert [state.iteration for state in seen] == [0, 1, 2, 3]
    assert seen[-1].value == pytest.approx(design.value, rel=1e-12)
    assert not seen[0].occupancy.flags.writeable
    np.testing.assert_array_equal(seen[-1].occupancy, design.mean_occupancy)


@pytest.mark.parametrize("variant", ["plain", "pairwise"])
def test_control_c_returns_the_last_point_with_its_certificate(variant, monkeypatch):
    problem = make("random", "D")
    module = importlib.import_module("edpbrl_gym.design.solvers.frank_wolfe")
    calls = []

    def interrupted_search(criterion, segment):
        calls.append(1)
        if len(calls) == 4:
            signal.raise_signal(signal.SIGINT)  # in the middle of an iteration
        return exact_step(criterion, segment)

    monkeypatch.setattr(module, "exact_step", interrupted_search)
    design = frank_wolfe(problem, tolerance=0.0, variant=variant)
    assert design.status == "interrupted"
    assert design.iterations == 3
    assert verify(problem, design).confirmed
    calls[:] = [1, 1, 1]
    with pytest.raises(KeyboardInterrupt):
        frank_wolfe(problem, tolerance=0.0, variant=variant)  # nothing to return yet


def small() -> DesignProblem:
    return prompt_problem("D", episodes=3)


@pytest.mark.needs("reference")
@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda problem: frank_wolfe(problem, max_iterations=-1), "max_iterations >= 0, got -1"),
        (lambda problem: frank_wolfe(problem, tolerance=-1e-3), "tolerance >= 0"),
        (lambda problem: frank_wolfe(problem, variant="away"), "variant as one of 'plain', 'pairwise', got 'away'"),
        (lambda problem: solve(problem, solver="simplex"), "solver .*newton.* got 'simplex'"),
        (lambda problem: reference(problem, solver="MOSEK"), "solver as one of 'CLARABEL', 'SCS', got 'MOSEK'"),
        (lambda problem: newton(problem, tolerance=-1.0), "tolerance"),
        (lambda problem: newton(problem, max_iterations=-1), "max_iterations"),
        (lambda problem: newton(problem, start=np.zeros((3, 31))), "occupancy"),
        (lambda _: newton("problem"), "Expected a DesignProblem, got str"),
        (lambda problem: exact_design(problem, tolerance=-1.0), "tolerance"),
        (lambda problem: exact_design(problem, max_iterations=-1), "max_iterations"),
        (lambda problem: exact_design(problem, surrogate=frank_wolfe(small(), max_iterations=2)), "that of another"),
        *(
            (lambda problem, solver=solver, limit=limit: solver(problem, time_limit=limit), r"time_limit \(seconds\)")
            for solver in (newton, frank_wolfe, reference, exact_design)
            for limit in (-1, np.nan, "soon")
        ),
        (lambda problem: query_set(problem), "Expected a Design .*got DesignProblem"),
        (lambda _: query_set(frank_wolfe(small(), max_iterations=2), restarts=0), "restarts >= 1"),
        (
            lambda _: query_set(frank_wolfe(random_mdp_problem("D"), max_iterations=2)),
            "Expected a problem with a PromptMDP, .* play the design's policies",
        ),
        (lambda _: surrogate_information(np.eye(3), np.ones((2, 4)), 1), r"mean_rows of shape \(H, N\) with N = 3"),
        (lambda _: exact_information(np.eye(3), np.ones((2, 3)), 1), r"rows of shape \(K, H, N\) with N = 3"),
        (lambda _: exact_information(np.eye(3), np.ones((1, 2, 3)) / 3, 1), r"at least 2 policies \(K\), got 1"),
        (lambda _: reference(prompt_problem("D", dimension=100)), r"got d \+ H = 103 and 31 pairs"),
        (lambda _: reference(prompt_problem("D", sizes=(3000, 3000), dimension=60)), "6,000 pairs .*use frank_wolfe"),
    ],
)
def test_what_the_solvers_refuse(call, message):
    with pytest.raises((ValueError, TypeError), match=message):
        call(prompt_problem("D"))


def test_the_reference_without_cvxpy(monkeypatch):
    monkeypatch.setitem(sys.modules, "cvxpy", None)
    with pytest.raises(ImportError, match=r'pip install "edpbrl-gym\[reference\]"'):
        reference(make("prompt", "D"))


def test_starts_are_checked():
    problem = make("prompt", "D")
    good = random_occupancy(problem.mdp, np.random.default_rng(0))
    design = frank_wolfe(problem, start=good, max_iterations=0)
    assert design.value == pytest.approx(problem.objective(problem.mdp.row_occupancy(good)), rel=1e-14)
    for bad in (-good, 1.1 * good, good * np.nan, good[0]):
        with pytest.raises(ValueError, match=r"feasible|non-negative|shape \(H, M\) = \(3, 31\), got \(31,\)"):
            frank_wolfe(problem, start=bad)


@pytest.mark.needs("reference")
@pytest.mark.parametrize("criterion", ["D", "A", "V"])
def test_a_common_part_of_the_features_does_not_trouble_the_reference(criterion):
    problem = make("prompt", criterion)
    design = reference(replace(problem, features=problem.features + 1e3))
    assert design.relative_gap <= 1e-5
    assert design.value == pytest.approx(reference(problem).value, rel=1e-5)


@pytest.mark.parametrize("name", SOLVERS)
def test_every_registered_solver_reports_to_a_callback(name):
    problem, states = prompt_problem("D"), []
    design = solve(problem, solver=name, callback=states.append)
    assert verify(problem, design).confirmed
    assert states[-1].iteration <= design.iterations
    for state in states:
        assert state.value <= design.upper_bound
        assert state.gap >= 0 and state.relative_gap >= 0
        assert problem.objective(problem.mdp.row_occupancy(state.occupancy)) == pytest.approx(state.value, rel=1e-9)
