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

from edpbrl_gym.design import SOLVERS, Criterion, DCriterion, DesignProblem, frank_wolfe, reference, solve, verify
from edpbrl_gym.design.solvers.atoms import ActiveSet
from edpbrl_gym.design.solvers.line_search import Segment, exact_step
from edpbrl_gym.mdp import PromptMDP
from tests.helpers.design_cases import (
    problem_of,
    prompt_problem,
    random_mdp_problem,
    random_occupancy,
    random_rows,
    stochastic_mdp,
)

TOLERANCE = 1e-4
CASES = [(kind, criterion) for kind in ("random", "prompt") for criterion in "DAV"]


def make(kind: str, criterion: str, seed: int = 0, **options) -> DesignProblem:
    return (random_mdp_problem if kind == "random" else prompt_problem)(criterion, seed, **options)


@pytest.mark.needs("reference")
@pytest.mark.parametrize(("kind", "criterion"), CASES)
@pytest.mark.parametrize("variant", ["plain", "pairwise"])
def test_frank_wolfe_and_cvxpy_agree_and_verify_confirms_both(kind, criterion, variant):
    problem = make(kind, criterion)
    # on a product of simplices the plain steps zigzag: 1e-4 takes them many thousand iterations
    tolerance = 1e-3 if (kind, variant) == ("prompt", "plain") else TOLERANCE
    design = frank_wolfe(problem, variant=variant, tolerance=tolerance, max_iterations=3000)
    exact = reference(problem)
    assert design.status == exact.status == "converged"
    assert design.relative_gap <= tolerance
    assert exact.relative_gap <= 1e-6
    for one in (design, exact):
        verification = verify(problem, one)
        assert verification.messages == ()
        assert verification.confirmed
        assert verification.gap == pytest.approx(one.gap, abs=1e-7 * max(1.0, abs(one.value)))
    rounding = 1e-9 * max(1.0, abs(design.value))
    assert abs(design.value - exact.value) <= tolerance * design.gain
    assert design.value <= exact.upper_bound + rounding
    assert exact.value <= design.upper_bound + rounding


@pytest.mark.needs("reference")
@pytest.mark.parametrize(("kind", "criterion"), [case for case in CASES if case != ("prompt", "D")])
@pytest.mark.parametrize("seed", [0, 1])
def test_pairwise_steps_agree_with_cvxpy_to_a_millionth(kind, criterion, seed):
    """The gain of A and V over no data dwarfs the difference between designs, so 1e-4 of it is coarse."""
    problem = make(kind, criterion, seed)
    design = frank_wolfe(problem, variant="pairwise", tolerance=1e-6, max_iterations=2000)
    assert design.status == "converged"
    assert abs(design.value - reference(problem).value) <= 1e-6 * design.gain


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


@given(seed=st.integers(0, 10**6), criterion=st.sampled_from("DAV"))
@settings(max_examples=25)
def test_no_policies_beat_the_upper_bound(seed, criterion):
    problem = make("random", criterion, seed % 5)
    design = frank_wolfe(problem, max_iterations=seed % 4)  # a rough design has a true bound as well
    rng = np.random.default_rng(seed)
    for _ in range(20):
        assert problem.objective(random_rows(problem.mdp, rng)) <= design.upper_bound + 1e-9 * abs(design.upper_bound)


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
    # with the first step forced to 1 the iterate is a vertex, whatever the line search would have liked
    policy, _ = problem.mdp.best_response(problem.gradient(rows))
    design = frank_wolfe(problem, start=problem.mdp.occupancy(policy), max_iterations=500)
    assert verify(problem, design).confirmed
    assert design.status == "converged"


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


def test_starts_are_checked():
    problem = make("prompt", "D")
    good = random_occupancy(problem.mdp, np.random.default_rng(0))
    design = frank_wolfe(problem, start=good, max_iterations=0)
    assert design.value == pytest.approx(problem.objective(problem.mdp.row_occupancy(good)), rel=1e-14)
    with pytest.raises(ValueError, match=r"shape \(H, M\) = \(3, 31\), got \(31,\)"):
        frank_wolfe(problem, start=good[0])
    for bad in (-good, 1.1 * good, good * np.nan):
        with pytest.raises(ValueError, match="feasible|non-negative"):
            frank_wolfe(problem, start=bad)


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


@pytest.mark.parametrize("variant", ["plain", "pairwise"])
def test_the_same_problem_gives_the_same_design(variant):
    one, other = (frank_wolfe(make("prompt", "V"), variant=variant, max_iterations=70) for _ in range(2))
    np.testing.assert_allclose(one.occupancies, other.occupancies, rtol=0, atol=1e-9)
    assert one.value == pytest.approx(other.value, rel=1e-12)
    assert one.gap == pytest.approx(other.gap, rel=1e-9)


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


class ByGradient(Criterion):
    """The D criterion without its name, to reach the general line search."""

    name = "custom"

    def value(self, information):
        return DCriterion().value(information)

    def gradient(self, information):
        return DCriterion().gradient(information)


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
        assert exact_step(ByGradient(), segment) == pytest.approx(step, abs=1e-6)


def test_line_search_respects_the_ends():
    problem = make("prompt", "D")
    rng = np.random.default_rng(0)
    poor = problem.mdp.occupancy(problem.mdp.best_response(rng.standard_normal((3, 31)))[0])
    good = frank_wolfe(problem, max_iterations=50).mean_occupancy
    segment, _, _ = segment_between(problem, poor, good, longest=1e-3)
    assert exact_step(problem.criterion, segment) == 1e-3
    assert exact_step(problem.criterion, segment_between(problem, poor, good, longest=0.0)[0]) == 0.0
    away, _, _ = segment_between(problem, good, 0.999 * good + 0.001 * poor)
    assert exact_step(problem.criterion, away) <= 1.0


@pytest.mark.needs("reference")
def test_a_criterion_of_ones_own_works():
    base = make("prompt", "D")
    own = DesignProblem(
        mdp=base.mdp, features=base.features, num_policies=4, episodes=60, regularization=1.0, criterion=ByGradient()
    )
    with pytest.raises(ValueError, match="negative value of the criterion custom"):
        frank_wolfe(own)  # the default efficiency is that of a trace; a criterion of its own brings its own
    ByGradient.efficiency = DCriterion.efficiency
    try:
        design = frank_wolfe(own, max_iterations=20)
    finally:
        del ByGradient.efficiency
    assert design.value == pytest.approx(frank_wolfe(base, max_iterations=20).value, rel=1e-9)
    with pytest.raises(ValueError, match="A, V and D, got 'custom'"):
        verify(own, design)
    with pytest.raises(ValueError, match="A, V and D, got custom"):
        reference(own)


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
    assert verify(problem, design).confirmed


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


@pytest.mark.needs("reference")
def test_options_are_checked():
    problem = make("prompt", "D")
    with pytest.raises(ValueError, match="max_iterations >= 0, got -1"):
        frank_wolfe(problem, max_iterations=-1)
    with pytest.raises(ValueError, match="tolerance >= 0"):
        frank_wolfe(problem, tolerance=-1e-3)
    with pytest.raises(ValueError, match="variant as one of 'plain', 'pairwise', got 'away'"):
        frank_wolfe(problem, variant="away")
    with pytest.raises(ValueError, match="solver as one of 'CLARABEL', 'SCS', got 'MOSEK'"):
        reference(problem, solver="MOSEK")


@pytest.mark.needs("reference")
@pytest.mark.parametrize("criterion", ["D", "A", "V"])
def test_a_common_part_of_the_features_does_not_trouble_the_reference(criterion):
    problem = make("prompt", criterion)
    design = reference(replace(problem, features=problem.features + 1e3))
    assert design.relative_gap <= 1e-5
    assert design.value == pytest.approx(reference(problem).value, rel=1e-5)


@pytest.mark.needs("reference")
def test_the_reference_says_when_it_cannot(monkeypatch):
    with pytest.raises(ValueError, match=r"got d \+ H = 103 and 31 pairs"):
        reference(prompt_problem("D", dimension=100))
    large = problem_of(PromptMDP([3000, 3000]), "D", dimension=60)
    with pytest.raises(ValueError, match="6,000 pairs .*use frank_wolfe"):
        reference(large)
    monkeypatch.setitem(sys.modules, "cvxpy", None)
    with pytest.raises(ImportError, match=r'pip install "edpbrl-gym\[reference\]"'):
        reference(make("prompt", "D"))


def test_the_active_set_keeps_the_weighted_mean():
    mdp = stochastic_mdp(0, states=5, actions=3, horizon=3, rows="pair")
    rng = np.random.default_rng(0)
    atoms = ActiveSet(random_occupancy(mdp, rng))
    mean = atoms.mean()
    for number in range(60):
        reward = rng.standard_normal((3, mdp.num_pairs))
        away, most = atoms.worst(reward)
        totals = [np.vdot(reward, atoms.occupancy(position)) for position in range(len(atoms))]
        assert away == int(np.argmin(totals))
        target = mdp.occupancy(mdp.optimal_policy(rng.integers(0, 2, (3, mdp.num_pairs)).astype(float))[0])
        step = most if number % 3 == 0 else most * rng.random()
        mean = mean + step * (target - atoms.occupancy(away))
        atoms.shift(away, target, step)
        np.testing.assert_allclose(atoms.mean(), mean, atol=1e-12)
        assert atoms.weights.min() > 0
        assert atoms.weights.sum() == pytest.approx(1.0, abs=1e-12)


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


def test_an_unknown_solver_is_named():
    with pytest.raises(ValueError, match="solver .*newton.* got 'simplex'"):
        solve(prompt_problem("D"), solver="simplex")
