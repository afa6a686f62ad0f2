"""Working-set Newton against cvxpy, the verifier, finite differences and Frank-Wolfe; hard problems; interrupts."""

from __future__ import annotations

import importlib
import signal

import numpy as np
import pytest
from gymnasium.spaces import Discrete
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from edpbrl_gym.agents.registry import make_agent
from edpbrl_gym.design import (
    Criterion,
    DesignProblem,
    IterationState,
    NewtonState,
    frank_wolfe,
    newton,
    reference,
    verify,
)
from edpbrl_gym.design.metric import PriorMetric
from edpbrl_gym.design.solvers.newton.simplex_qp import solve_simplex_qp
from edpbrl_gym.design.solvers.newton.tokens.blocks import TokenBlocks
from edpbrl_gym.design.solvers.newton.tokens.feature_space import FeatureSpace
from edpbrl_gym.design.solvers.newton.tokens.layout import PromptLayout
from edpbrl_gym.design.solvers.newton.tokens.space import Space
from edpbrl_gym.design.solvers.newton.tokens.token_space import TokenSpace
from edpbrl_gym.mdp import PromptMDP
from tests.helpers.design_cases import (
    DESIGN_CRITERIA,
    check_repeats_and_starts,
    check_steps,
    hard_prompt_problems,
    problem_from,
    prompt_problem,
    rounding_of_the_gap,
)
from tests.helpers.lane_environments import ChainEnv

CRITERIA = DESIGN_CRITERIA


def random_features(seed, rows, dimension, *, mean=0.0):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((rows, dimension)) + mean * rng.standard_normal(dimension)


def agrees(design, exact) -> bool:
    """Two certified values of one optimum differ by at most a millionth of the gain (or each other's gap)."""
    return abs(design.value - exact.value) <= 1e-6 * design.gain + exact.gap


# -- against independent computations -------------------------------------------------------------------------------


@pytest.mark.parametrize("criterion", CRITERIA)
@pytest.mark.parametrize("regularization", [1e-3, 1.0, 1e3])
def test_agrees_with_cvxpy(criterion, regularization):
    features = random_features(3, 31, 5, mean=1.0)
    problem = problem_from(features, (12, 9, 10), criterion, regularization=regularization)
    design, exact = newton(problem), reference(problem)
    assert design.status == exact.status == "converged"
    assert design.relative_gap <= 1e-6
    assert exact.relative_gap <= 1e-5
    assert abs(design.value - exact.value) <= 1e-6 * design.gain
    verification = verify(problem, design)
    assert verification.messages == ()
    assert verification.confirmed


@pytest.mark.parametrize("criterion", CRITERIA)
def test_agrees_with_cvxpy_under_a_given_prior(criterion):
    root = np.random.default_rng(7).standard_normal((5, 5))
    problem = problem_from(random_features(4, 26, 5), (8, 11, 7), criterion, prior_precision=root @ root.T)
    design, exact = newton(problem), reference(problem)
    assert design.status == "converged"
    assert agrees(design, exact)
    assert verify(problem, design).confirmed


@pytest.mark.parametrize("criterion", ["D", "A"])
def test_no_prior_at_all(criterion):
    """The start grows until its information is regular; no step may leave the regular matrices."""
    problem = problem_from(random_features(5, 40, 6), (20, 20), criterion, regularization=0.0)
    design, exact = newton(problem), reference(problem)
    assert design.status == "converged"
    assert abs(design.value - exact.value) <= 1e-5 * abs(exact.value)
    assert verify(problem, design).confirmed


@pytest.mark.parametrize("criterion", CRITERIA)
def test_steps_with_the_same_vocabulary_share_a_block(criterion):
    own, other = random_features(6, 9, 4), random_features(7, 7, 4)
    problem = problem_from(np.concatenate([own, other, own]), (9, 7, 9), criterion)
    layout = PromptLayout(problem)
    assert layout.steps == ((0, 2), (1,))
    assert list(layout.scale) == [120.0, 60.0]
    design = newton(problem)
    assert design.status == "converged"
    assert agrees(design, reference(problem))
    np.testing.assert_array_equal(design.mean_rows[0, :9], design.mean_rows[2, 16:])
    assert verify(problem, design).confirmed


def test_nearly_equal_tokens_leave_a_program_together():
    """Mass is spread over five copies of each token, hundreds of which have to leave: more than there are factors."""
    rng = np.random.default_rng(4)
    tokens = rng.standard_normal((120, 40))
    copies = np.repeat(tokens, 5, axis=0) + 1e-2 * rng.standard_normal((600, 40))
    hessian, weights = (copies @ copies.T) ** 2, np.full(600, 1 / 600)
    gradient = hessian @ weights + 10.0 * rng.standard_normal(40) @ copies.T
    found = solve_simplex_qp(hessian.copy(), gradient, weights, [slice(0, 600)], tolerance=1e-6)
    slope = gradient - hessian @ (found - weights)
    assert found.min() >= 0 and found.sum() == pytest.approx(1.0) and np.count_nonzero(found) < 300
    assert slope.max() - found @ slope < 1e-4 * np.abs(slope).max()


def space_of(problem: DesignProblem, kind: type[Space], tokens) -> tuple[Space, TokenBlocks, PromptLayout]:
    layout, metric = PromptLayout(problem), PriorMetric(problem)
    blocks = TokenBlocks(problem.features, layout.rows, layout.scale, metric)
    target = None
    if problem.criterion.name != "D":
        target = problem.criterion.target_factor(problem.dimension)
    if kind is FeatureSpace:
        return FeatureSpace(blocks, tokens, problem.prior, target), blocks, layout
    isotropic_a = problem.criterion.name == "A" and problem.regularization is not None
    space = TokenSpace(
        blocks, tokens, metric, problem.prior, target, baseline=problem.baseline, isotropic_a=isotropic_a
    )
    return space, blocks, layout


@pytest.mark.parametrize("criterion", CRITERIA)
@pytest.mark.parametrize("kind", [FeatureSpace, TokenSpace])
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
    space, blocks, layout = space_of(problem, kind, tokens)
    rng = np.random.default_rng(0)

    def in_blocks(array, centred):
        parts = [array[own] for own in blocks.slices]
        return np.concatenate([part - part.mean() if centred else part / part.sum() for part in parts])

    weights = in_blocks((0.5 + rng.random(11)) * (rng.random(11) > 0.3), False)
    direction = in_blocks(rng.standard_normal(11), True)
    gradient, hessian = space.derivatives(weights)

    def objective(step):
        moved = np.zeros((problem.horizon, sum(sizes)))
        for number, steps in enumerate(layout.steps):
            own = blocks.tokens(number)
            for step_number in steps:
                moved[step_number, problem.mdp.step_pairs(step_number)] = (weights + step * direction)[own]
        return problem.objective(moved)

    np.testing.assert_allclose(space.gradient(weights), gradient, rtol=1e-12)
    assert space.value(weights) + space.offset == pytest.approx(objective(0.0), rel=1e-12)
    width = 1e-5
    slope = (objective(width) - objective(-width)) / (2 * width)
    bend = (objective(width) - 2 * objective(0.0) + objective(-width)) / width**2
    assert gradient @ direction == pytest.approx(slope, rel=1e-4)
    assert -direction @ hessian @ direction == pytest.approx(bend, rel=1e-4)


@pytest.mark.parametrize("criterion", CRITERIA)
@pytest.mark.parametrize(("dtype", "accuracy"), [(np.float32, 1e-5), (np.float64, 1e-12)])
@pytest.mark.parametrize("kind", [FeatureSpace, TokenSpace])
def test_scores_of_all_tokens_are_the_gradient(criterion, dtype, accuracy, kind):
    problem = problem_from(random_features(9, 60, 7, mean=30.0), (25, 35), criterion)
    tokens = np.sort(np.random.default_rng(1).permutation(60)[:30])
    space, blocks, layout = space_of(problem, kind, tokens)
    weights = np.concatenate([np.full(part.stop - part.start, 1 / (part.stop - part.start)) for part in space.parts])
    form, means = space.form(weights), space.means(weights)
    scores = blocks.scores(form, means, dtype)
    some = np.array([0, 3, 24, 25, 59])
    np.testing.assert_allclose(blocks.scores(form, means, dtype, some), scores[some], rtol=1e-5)
    occupancy = layout.occupancy(tokens, weights)
    for number in range(2):
        own = blocks.tokens(number)
        expected = problem.gradient(occupancy)[number, own]
        difference = scores[own] - expected
        scale = scores[own].max()
        assert np.ptp(difference) <= (accuracy + 1e-10) * scale  # equal up to a constant of the block


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
def test_a_nearly_singular_quadratic_program_keeps_its_sums(seed):
    """Large steps along the null space cancel; the sums of the blocks must not pay for it."""
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(30, 3))
    blocks = [slice(0, 18), slice(18, 30)]
    weights = np.concatenate([np.full(18, 1 / 18), np.full(12, 1 / 12)])
    gradient = 10.0 + 1e-10 * rng.normal(size=30)  # a level that the constraint takes away, far above the rest
    found = solve_simplex_qp(rows @ rows.T, gradient, weights, blocks, tolerance=1e-9)
    assert found.min() >= 0
    np.testing.assert_allclose([found[own].sum() for own in blocks], 1.0, atol=1e-12)


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


def test_a_quadratic_program_without_curvature_is_feasible():
    weights = np.full(6, 1 / 6)
    found = solve_simplex_qp(np.zeros((6, 6)), np.arange(6.0), weights, [slice(0, 6)], tolerance=1e-9)
    assert found.min() >= 0 and found.sum() == pytest.approx(1.0, abs=1e-12)


@pytest.mark.parametrize("criterion", ["D", "A", "V"])
def test_bounds_of_frank_wolfe_hold(criterion):
    problem = prompt_problem(criterion, 2, sizes=(40, 40, 40), dimension=12)
    design = newton(problem)
    for variant in ("plain", "pairwise"):
        other = frank_wolfe(problem, variant=variant, max_iterations=60)
        rounding = 1e-12 * abs(design.value)
        assert design.value <= other.upper_bound + rounding
        assert other.value <= design.upper_bound + rounding
        assert design.relative_gap < other.relative_gap


# -- hard problems --------------------------------------------------------------------------------------------------


@settings(max_examples=300)
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
    """More tokens than the first working set holds, so that tokens are added and deleted."""
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


def test_nothing_to_learn():
    """One token at every step, and equal tokens: no design has information, and that is no crash."""
    for features, sizes in [(np.eye(2), (1, 1)), (np.ones((6, 2)), (3, 3)), (np.zeros((4, 2)), (4,))]:
        design = newton(problem_from(features, sizes))
        assert design.gap == pytest.approx(0.0, abs=1e-12)
        assert "no information" in design.warnings[0]


# -- running it -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("criterion", ["D", "A", "V"])
def test_same_result_twice_and_from_any_start(criterion):
    problem = prompt_problem(criterion, 1, sizes=(60, 50), dimension=8)
    check_repeats_and_starts(problem)


def test_callback_history_and_iteration_limit():
    problem = prompt_problem("D", 0, sizes=(200, 200), dimension=20)
    seen: list[NewtonState] = []
    design = newton(problem, callback=seen.append)
    assert design.status == "converged"
    assert design.solver == "newton"
    check_steps(seen, design)
    states = [state for state in seen if state.step == 0]
    assert len(states) == design.iterations  # the last, converged point is not announced
    assert len(design.history) == design.iterations + 1
    assert [record.iteration for record in design.history] == list(range(design.iterations + 1))
    values = [state.value for state in states] + [design.value]
    assert np.all(np.diff(values) > 0)
    for number, state in enumerate(states):
        assert isinstance(state, IterationState)
        assert state.iteration == number
        assert state.upper_bound == state.value + state.gap
        assert state.upper_bound >= design.value
        assert state.support == np.count_nonzero(state.occupancy)
        assert state.oracle_calls == number + 2  # one of them to find the start
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


def test_a_callback_stops_with_the_certified_best_so_far():
    problem = prompt_problem("D", 0, sizes=(200, 200), dimension=20)
    design = newton(problem, callback=lambda state: state.iteration == 2)
    assert (design.status, design.iterations) == ("interrupted", 2)
    assert verify(problem, design).confirmed


def test_a_callback_stops_between_the_newton_steps():
    problem = prompt_problem("D", 0, sizes=(200, 200), dimension=20)
    seen: list[NewtonState] = []
    design = newton(problem, callback=lambda state: seen.append(state) or state.step == 2)
    assert (design.status, seen[-1].step) == ("interrupted", 2)
    assert design.value == seen[-1].value
    assert len(design.history) == design.iterations + 1
    assert design.history[-1].value == design.value
    assert verify(problem, design).confirmed


def test_ctrl_c_returns_the_certified_best_so_far():
    problem = prompt_problem("D", 0, sizes=(200, 200), dimension=20)

    def press(state):
        if state.iteration == 2:
            signal.raise_signal(signal.SIGINT)

    design = newton(problem, callback=press)
    assert (design.status, design.iterations) == ("interrupted", 2)
    assert design.value > newton(problem, max_iterations=1).value
    assert verify(problem, design).confirmed


def test_ctrl_c_inside_the_newton_steps(monkeypatch):
    """An interrupt in the middle of the restricted problem leaves the last whole point."""
    module = importlib.import_module("edpbrl_gym.design.solvers.newton.master")
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


def test_ctrl_c_before_the_first_iteration_is_an_interrupt():
    problem = prompt_problem("D", 0)

    def press(_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        newton(problem, callback=press)


def test_an_optimistic_float32_certificate_is_not_believed(monkeypatch):
    """Scores that hide the best tokens end in a recheck of all tokens in float64, not in a wrong design."""
    exact = TokenBlocks.scores

    def blind(self, form, means, dtype=np.float32, tokens=None):
        scores = exact(self, form, means, dtype, tokens)
        return scores if np.dtype(dtype) == np.float64 else 0.5 * scores

    monkeypatch.setattr(TokenBlocks, "scores", blind)
    problem = prompt_problem("D", 0, sizes=(300, 300), dimension=20)
    design = newton(problem)
    assert design.status == "converged"
    assert verify(problem, design).confirmed


def test_errors_say_what_to_do():
    class Other(Criterion):
        name = "E"

        def value(self, information):
            return float(np.linalg.eigvalsh(information)[0])

        def gradient(self, information):
            vector = np.linalg.eigh(information)[1][:, 0]
            return np.outer(vector, vector)

    problem = prompt_problem("D", 0)
    with pytest.raises(TypeError, match="Expected a DesignProblem, got str"):
        newton("problem")
    other = DesignProblem(
        mdp=problem.mdp,
        features=problem.features,
        num_policies=2,
        episodes=5,
        criterion=Other(),
        regularization=1.0,
    )
    with pytest.raises(ValueError, match="newton expects the criterion A, V or D, got 'E'; use frank_wolfe"):
        newton(other)
    with pytest.raises(ValueError, match="tolerance"):
        newton(problem, tolerance=-1.0)
    with pytest.raises(ValueError, match="max_iterations"):
        newton(problem, max_iterations=-1)
    with pytest.raises(ValueError, match="occupancy"):
        newton(problem, start=np.zeros((3, 31)))


def test_the_agent_plays_the_design():
    env = ChainEnv()
    env.mdp, env.features = PromptMDP((30, 20)), random_features(0, 50, 6)
    env.observation_space, env.action_space = Discrete(2), Discrete(30)
    agent = make_agent("newton", env, num_options=2, episodes=5, criterion="D", tolerance=1e-7).learn()
    assert agent.design.solver == "newton"
    assert agent.design.relative_gap <= 1e-7
    paper = make_agent("frank_wolfe", env, num_options=2, episodes=5, criterion="D", max_iterations=3).learn()
    assert paper.design.value <= agent.design.upper_bound
