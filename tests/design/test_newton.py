"""Working-set Newton against cvxpy, the verifier, finite differences and Frank-Wolfe; hard problems; interrupts."""

from __future__ import annotations

import importlib
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from edpbrl_gym.design import DesignProblem, IterationState, frank_wolfe, newton, reference, verify
from edpbrl_gym.design.solvers.newton.objective import Objective
from edpbrl_gym.design.solvers.newton.scores import PriorMetric, Scores
from edpbrl_gym.design.solvers.newton.steps import solve_simplex_qp
from edpbrl_gym.design.solvers.newton.tokens import PromptLayout
from edpbrl_gym.design.solvers.newton.woodbury import WoodburyObjective
from edpbrl_gym.design.solvers.newton.working_sets import WorkingSets
from tests.helpers.design_cases import (
    DESIGN_CRITERIA,
    Plain,
    check_repeats_and_starts,
    check_steps,
    hard_prompt_problems,
    problem_from,
    prompt_problem,
    random_mdp_problem,
    rounding_of_the_gap,
    screen_above,
)


def random_features(seed, rows, dimension, *, mean=0.0):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((rows, dimension)) + mean * rng.standard_normal(dimension)


@pytest.mark.parametrize("criterion", DESIGN_CRITERIA)
@pytest.mark.parametrize("prior", [0.0, 1e-3, 1.0, 1e3, "matrix"])
def test_agrees_with_cvxpy(criterion, prior):
    """Without a prior the start grows until its information is regular, and no step may leave the regular matrices."""
    options = {"regularization": prior}
    if prior == "matrix":
        root = np.random.default_rng(7).standard_normal((5, 5))
        options = {"prior_precision": root @ root.T}
    problem = problem_from(random_features(3, 31, 5, mean=1.0), (12, 9, 10), criterion, **options)
    design, exact = newton(problem), reference(problem)
    assert design.status == exact.status == "converged"
    assert design.relative_gap <= 1e-6
    assert exact.relative_gap <= 1e-5
    assert abs(design.value - exact.value) <= (1e-6 * design.gain if prior else 1e-5 * abs(exact.value))
    verification = verify(problem, design)
    assert verification.confirmed and verification.messages == ()


@pytest.mark.parametrize("criterion", DESIGN_CRITERIA)
def test_steps_with_the_same_vocabulary_share_a_block(criterion):
    own, other = random_features(6, 9, 4), random_features(7, 7, 4)
    problem = problem_from(np.concatenate([own, other, own]), (9, 7, 9), criterion)
    layout = PromptLayout(problem)
    assert list(layout.tokens.scale) == [120.0, 60.0]
    design = newton(problem)
    assert design.status == "converged"
    exact = reference(problem)
    assert abs(design.value - exact.value) <= 1e-6 * design.gain + exact.gap
    np.testing.assert_array_equal(design.mean_rows[0, :9], design.mean_rows[2, 16:])
    assert verify(problem, design).confirmed


def objective_of(problem: DesignProblem, kind: str, tokens) -> tuple[Objective, PromptLayout]:
    layout = PromptLayout(problem)
    if kind == "information":
        return WorkingSets(problem, layout.tokens).by_information(tokens), layout
    return WoodburyObjective(layout.tokens, tokens, PriorMetric(problem), problem), layout


@pytest.mark.parametrize("criterion", DESIGN_CRITERIA)
@pytest.mark.parametrize("kind", ["information", "woodbury"])
@pytest.mark.parametrize("prior", ["isotropic", "matrix"])
@pytest.mark.parametrize("sizes", [(6, 5), (6, 6, 5)])
def test_gradient_and_hessian_are_those_of_the_objective(criterion, kind, prior, sizes):
    """Central differences of `DesignProblem.objective` along directions that keep the sum of every block."""
    features = random_features(8, sum(sizes), 4)
    if len(sizes) == 3:
        features[6:12] = features[:6]  # a merged block
    options = {}
    if prior == "matrix":
        root = np.random.default_rng(5).standard_normal((4, 4))
        options["prior_precision"] = root @ root.T + 0.1 * np.eye(4)
    problem = problem_from(features, sizes, criterion, **options)
    tokens = np.arange(11)
    objective, layout = objective_of(problem, kind, tokens)
    rng = np.random.default_rng(0)

    def in_blocks(array, centred):
        parts = [array[own] for own in layout.tokens.slices]
        return np.concatenate([part - part.mean() if centred else part / part.sum() for part in parts])

    weights = in_blocks((0.5 + rng.random(11)) * (rng.random(11) > 0.3), False)
    direction = in_blocks(rng.standard_normal(11), True)
    gradient, hessian = objective.derivatives(weights)

    def value(step):
        return problem.objective(layout.occupancy(tokens, weights + step * direction))

    np.testing.assert_allclose(objective.gradient(weights), gradient, rtol=1e-12)
    assert objective.value(weights) + objective.offset == pytest.approx(value(0.0), rel=1e-12)
    width = 1e-5
    slope = (value(width) - value(-width)) / (2 * width)
    bend = (value(width) - 2 * value(0.0) + value(-width)) / width**2
    assert gradient @ direction == pytest.approx(slope, rel=1e-4)
    assert -direction @ hessian @ direction == pytest.approx(bend, rel=1e-4)


@pytest.mark.parametrize("seed", range(8))
def test_the_quadratic_program_against_scipy(seed):
    rng = np.random.default_rng(seed)
    size, blocks = 9, [slice(0, 4), slice(4, 9)]
    root = rng.standard_normal((size, 5 if seed % 2 else size))  # every second one is singular
    hessian, gradient = root @ root.T, 3 * rng.standard_normal(size)
    weights = np.zeros(size)
    weights[[0, 4, 5]] = 1.0, 0.5, 0.5

    def objective(v):
        return float(-gradient @ (v - weights) + 0.5 * (v - weights) @ hessian @ (v - weights))

    found = solve_simplex_qp(hessian.copy(), gradient, weights, blocks, tolerance=1e-10)
    constraints = [{"type": "eq", "fun": lambda v, own=own: v[own].sum() - 1.0} for own in blocks]
    expected = minimize(
        objective, weights, bounds=[(0, None)] * size, constraints=constraints, method="SLSQP", options={"ftol": 1e-14}
    )
    assert found.min() >= 0
    assert [found[own].sum() for own in blocks] == pytest.approx([1.0, 1.0], abs=1e-12)
    assert objective(found) <= expected.fun + 1e-7


@pytest.mark.parametrize("seed", range(5))
def test_a_quadratic_program_that_rounding_has_made_indefinite_still_moves(seed):
    """Where prior and data differ by many digits, cancellation leaves small negative eigenvalues."""
    rng = np.random.default_rng(seed)
    half = rng.standard_normal((30, 5))
    exact = half @ half.T
    noise = rng.standard_normal((30, 30))
    gradient, weights = rng.standard_normal(30), rng.dirichlet(np.ones(30))
    gradient -= weights @ gradient
    found = solve_simplex_qp(exact + 1e-8 * (noise + noise.T), gradient, weights, [slice(0, 30)], tolerance=1e-9)
    best = solve_simplex_qp(exact + 1e-7 * np.eye(30), gradient, weights, [slice(0, 30)], tolerance=1e-9)
    assert found.min() >= 0 and found.sum() == pytest.approx(1.0)

    def value(point):
        step = point - weights
        return 0.5 * step @ exact @ step - gradient @ step

    assert value(found) <= value(best) + 1e-4 * abs(value(best))


@settings(max_examples=150)
@given(hard_prompt_problems())
def test_the_verifier_confirms_the_certificate_of_hard_problems(problem):
    design = newton(problem)
    assert design.status in ("converged", "precision_reached")
    verification = verify(problem, design)
    assert verification.messages == ()
    if rounding_of_the_gap(problem, design) <= 1e-7 * design.gain:
        assert design.status == "converged"
        assert design.relative_gap <= 1e-6
    elif design.status == "precision_reached":
        assert design.gap <= 1e-6 * design.gain + 10 * rounding_of_the_gap(problem, design)


@settings(max_examples=15)
@given(st.integers(0, 2**32 - 1), st.sampled_from(["D", "A", "V1"]), st.sampled_from([1e-2, 1.0, 100.0]))
def test_working_sets_smaller_than_the_vocabulary(seed, criterion, regularization):
    features = random_features(seed, 900, 10, mean=0.5) * np.arange(1, 11) ** -0.5
    problem = problem_from(features, (500, 400), criterion, regularization=regularization)
    design = newton(problem, seed=seed % 7)
    assert design.status == "converged"
    assert verify(problem, design).confirmed


@pytest.mark.parametrize(("columns", "optimum"), [(11, 2.37326535), (31, 1.5625865117)])
def test_published_optima_of_the_classical_problem(columns, optimum):
    """D-optimal designs without a prior on the rows (phi, 1), det(M)^(1/m) as computed by REX.

    Harman, Filova and Richtarik (2020), "A randomized exchange algorithm for computing optimal approximate designs of
    experiments". With a mean subtracted, det of the d x d information is that of M, the moments of the rows (phi, 1).
    """
    features = np.random.default_rng(0).standard_normal((5000, columns - 1))
    problem = problem_from(features, (5000,), regularization=0.0, episodes=1)
    design = newton(problem, tolerance=1e-9)
    assert design.status == "converged"
    digits = 0.5 * 10.0 ** (len(str(int(optimum))) + 1 - len(str(optimum)))
    assert abs(np.exp(design.value / columns) - optimum) <= digits
    rows = np.column_stack([features, np.ones(5000)])
    moments = rows.T @ (design.mean_rows[0][:, None] * rows)
    assert np.linalg.det(moments) ** (1.0 / columns) == pytest.approx(optimum, abs=digits)
    # the equivalence theorem of Kiefer and Wolfowitz: no row has a variance above m
    variances = np.einsum("nm,nm->n", rows, np.linalg.solve(moments, rows.T).T)
    assert variances.max() <= columns + 1e-6


@pytest.mark.parametrize("seed", [9, 10, 18, 19])
def test_a_value_that_rounds_away_what_is_left_to_gain(seed):
    """More dimensions than tokens and a weak prior: the value errs by more than a step gains while the gap is large."""
    rng = np.random.default_rng(seed)
    features = 30 * rng.standard_normal((100, 150)) * np.arange(1, 151) ** -3.0
    features = features @ np.linalg.qr(rng.standard_normal((150, 150)))[0]
    problem = problem_from(features, (50, 30, 20), "V", regularization=1e-3)
    design = newton(problem)
    assert design.status == "converged"
    assert verify(problem, design).messages == ()


@pytest.mark.parametrize("criterion", ["D", "A", "V"])
def test_same_result_twice_and_from_any_start(criterion):
    check_repeats_and_starts(prompt_problem(criterion, 1, sizes=(60, 50), dimension=8))


def test_callback_history_and_iteration_limit():
    problem = prompt_problem("D", 0, sizes=(200, 200), dimension=20)
    seen: list[IterationState] = []
    design = newton(problem, callback=seen.append)
    assert (design.status, design.solver) == ("converged", "newton")
    check_steps(seen, design)
    states = [state for state in seen if state.step == 0]
    assert len(states) == design.iterations  # the last, converged point is not announced
    assert [record.iteration for record in design.history] == list(range(design.iterations + 1))
    values = [state.value for state in states] + [design.value]
    assert np.all(np.diff(values) > 0)
    for number, state in enumerate(states):
        assert state.iteration == number
        assert state.value == pytest.approx(problem.objective(state.occupancy), rel=1e-10)
        assert state.relative_gap == pytest.approx(state.gap / (state.value - problem.baseline))
        assert not state.occupancy.flags.writeable
    limited = newton(problem, max_iterations=1)
    assert (limited.status, limited.iterations) == ("iteration_limit", 1)
    assert verify(problem, limited).confirmed
    assert newton(problem, max_iterations=0).status == "iteration_limit"


def test_tolerance_zero_goes_as_far_as_float64_allows():
    problem = prompt_problem("A", 0, sizes=(80, 70), dimension=10)
    design = newton(problem, tolerance=0.0)
    assert design.status in ("precision_reached", "converged")
    assert design.relative_gap <= 1e-9


def test_a_callback_stops_between_the_newton_steps():
    problem = prompt_problem("D", 0, sizes=(200, 200), dimension=20)
    seen: list[IterationState] = []
    design = newton(problem, callback=lambda state: seen.append(state) or state.step == 2)
    assert (design.status, seen[-1].step) == ("interrupted", 2)
    assert design.value == seen[-1].value == design.history[-1].value
    assert len(design.history) == design.iterations + 1
    assert verify(problem, design).confirmed


def test_ctrl_c_inside_the_newton_steps(monkeypatch):
    module = importlib.import_module("edpbrl_gym.design.solvers.newton.steps")
    calls = []

    def interrupted(*arguments, **options):
        calls.append(1)
        if len(calls) == 6:
            raise KeyboardInterrupt
        return solve_simplex_qp(*arguments, **options)

    monkeypatch.setattr(module, "solve_simplex_qp", interrupted)
    problem = prompt_problem("D", 0, sizes=(200, 200), dimension=20)
    design = newton(problem)
    assert design.status == "interrupted"
    assert len(design.history) == design.iterations + 1 >= 2
    assert verify(problem, design).confirmed


def test_an_optimistic_float32_certificate_is_not_believed(monkeypatch):
    """Scores that hide the best tokens end in a recheck of all tokens in float64, not in a wrong design."""
    exact = Scores.__call__

    def blind(self, form, means, dtype=np.float32, tokens=None):
        scores = exact(self, form, means, dtype, tokens)
        return scores if np.dtype(dtype) == np.float64 else 0.5 * scores

    monkeypatch.setattr(Scores, "__call__", blind)
    problem = prompt_problem("D", 0, sizes=(300, 300), dimension=20)
    design = newton(problem)
    assert design.status == "converged"
    assert verify(problem, design).confirmed


@pytest.mark.parametrize("criterion", ["D", "V"])
def test_other_mdps_go_to_pairwise_frank_wolfe_and_the_design_says_so(criterion):
    problem = random_mdp_problem(criterion)
    seen: list[IterationState] = []
    design = newton(problem, callback=seen.append)
    pairwise = frank_wolfe(problem, variant="pairwise", tolerance=1e-6, max_iterations=10_000)
    assert (design.solver, design.status) == ("pairwise_frank_wolfe", "converged")
    np.testing.assert_array_equal(design.occupancies, pairwise.occupancies)
    assert design.warnings[:-1] == pairwise.warnings
    assert "newton is for prompt MDPs: this problem with a FiniteHorizonMDP was solved by pairwise" in design.summary()
    assert len(seen) == design.iterations and {state.step for state in seen} == {0}
    assert newton(problem, start=design.mean_occupancy).iterations == 0
    assert newton(problem, max_iterations=2).status == "iteration_limit"


@pytest.mark.parametrize("regularization", [0.0, 0.01, 10.0])
@pytest.mark.parametrize("criterion", DESIGN_CRITERIA[:3])
def test_a_criterion_without_a_closed_form(criterion, regularization):
    """The same optimum by value and gradient alone, with a certificate that an independent computation confirms."""
    problem = prompt_problem(criterion, 1, sizes=(25, 30), regularization=regularization)
    plain = replace(problem, criterion=Plain(problem.criterion))
    design, known = newton(plain), newton(problem)
    assert design.status == known.status == "converged"
    assert design.value <= known.upper_bound and known.value <= design.upper_bound
    assert verify(plain, design).confirmed


def test_a_criterion_without_a_closed_form_among_many_tokens(monkeypatch):
    screen_above(monkeypatch, tokens=100)
    problem = prompt_problem("A", 2, sizes=(300, 300), dimension=20)
    plain = replace(problem, criterion=Plain(problem.criterion))
    design, known = newton(plain), newton(problem)
    assert design.status == "converged" and verify(plain, design).confirmed
    assert design.value <= known.upper_bound and known.value <= design.upper_bound
