"""Many tokens in few dimensions on the central path: the Hessian by its directions, the optimum, when it is taken."""

from __future__ import annotations

import importlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edpbrl_gym.design import DesignProblem, newton, reference, verify
from edpbrl_gym.design.criteria import SingularInformationError
from edpbrl_gym.design.deadline import NEVER, Deadline, WorkLimit
from edpbrl_gym.design.solvers.newton.master import centred_gradient, restricted_gap, uniform_weights
from edpbrl_gym.design.solvers.newton.tokens.backend import make_backend
from edpbrl_gym.design.solvers.newton.tokens.central_path import hessian_directions, solve_on_central_path
from edpbrl_gym.design.solvers.newton.tokens.costs import central_path_cost, round_cost
from edpbrl_gym.design.solvers.newton.tokens.feature_space import FeatureSpace
from edpbrl_gym.design.solvers.newton.tokens.solver import TokenSolver
from tests.helpers.design_cases import problem_from

choice = importlib.import_module("edpbrl_gym.design.solvers.newton.tokens.choice")
CRITERIA = ("D", "A", "V")


def problem_of_rows(
    sizes: tuple[int, ...], dimension: int, criterion: str, *, seed: int = 0, regularization: float = 1.0
) -> DesignProblem:
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((sum(sizes), dimension)) * np.arange(1, dimension + 1) ** -0.5
    return problem_from(rows, sizes, criterion, regularization=regularization)


def rounded_rows(count: int, dimension: int, seed: int = 0) -> np.ndarray:
    """Rows of equal length, rounded to float16: the optimum is a choice among tokens that are nearly as good."""
    rows = np.random.default_rng(seed).standard_normal((count, dimension))
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float16).astype(np.float64)


def space_of(problem: DesignProblem) -> FeatureSpace:
    solver = TokenSolver.of(problem, make_backend("numpy"))
    return solver._feature_space(np.arange(len(solver.blocks)))


def gap_of_gradient(gradient: np.ndarray, weights: np.ndarray, space: FeatureSpace) -> float:
    return restricted_gap(centred_gradient(gradient, weights, space.parts), space.parts)


def gap_of(space: FeatureSpace, weights: np.ndarray) -> float:
    return gap_of_gradient(space.gradient(weights), weights, space)


# -- the Hessian and the optimum ------------------------------------------------------------------------------------


@settings(max_examples=40)
@given(
    st.sampled_from(CRITERIA),
    st.sampled_from([(9,), (7, 5), (4, 1, 6)]),
    st.integers(1, 5),
    st.integers(0, 2**32 - 1),
    st.sampled_from([1e-2, 1.0, 100.0]),
)
def test_directions_are_those_of_the_hessian(criterion, sizes, dimension, seed, regularization):
    """On changes that sum to 0 in every block, which are all that the weights can make."""
    space = space_of(problem_of_rows(sizes, dimension, criterion, seed=seed, regularization=regularization))
    weights = np.random.default_rng(seed).uniform(0.1, 1.0, sum(sizes))
    for part in space.parts:
        weights[part] /= weights[part].sum()
    rows = hessian_directions(space, weights, np.float64)
    assert rows.shape[1] == dimension * (dimension + 1) // 2 + len(sizes) * dimension
    _, hessian = space.derivatives(weights)
    centring = np.eye(len(weights))
    for part in space.parts:
        centring[part, part] -= 1.0 / (part.stop - part.start)
    left = centring @ (hessian - rows @ rows.T) @ centring
    assert np.abs(left).max() <= 1e-11 * np.abs(hessian).max()
    single = hessian_directions(space, weights, np.float32)
    np.testing.assert_allclose(single, rows, atol=1e-5 * np.abs(rows).max())


@pytest.mark.parametrize("criterion", CRITERIA)
@pytest.mark.parametrize("sizes", [(300,), (120, 40, 90)])
@pytest.mark.parametrize("regularization", [1e-4, 1.0, 100.0])
def test_the_central_path_leads_to_the_optimum(criterion, sizes, regularization):
    """The value of working sets, which share neither steps nor directions with it."""
    problem = problem_of_rows(sizes, 6, criterion, regularization=regularization)
    expected = newton(problem, tolerance=1e-10)
    space = space_of(problem)
    start = uniform_weights(space.parts)
    weights, value = solve_on_central_path(space, start, target=1e-8 * expected.gain)
    assert gap_of(space, weights) <= 1e-8 * expected.gain
    assert value + space.offset == pytest.approx(expected.value, abs=2e-8 * expected.gain)
    assert (weights >= 0).all()
    np.testing.assert_allclose([weights[part].sum() for part in space.parts], 1.0)


@pytest.mark.needs("reference")
@pytest.mark.parametrize("criterion", CRITERIA)
def test_the_optimum_is_that_of_cvxpy(criterion):
    problem = problem_of_rows((30, 20), 4, criterion)
    space = space_of(problem)
    _, value = solve_on_central_path(space, uniform_weights(space.parts), target=1e-9)
    assert value + space.offset == pytest.approx(reference(problem).value, rel=1e-6)


def test_without_a_prior():
    """The optimum of the regression on (1, x, x^2) over [-1, 1]: a third at -1, 0 and 1 (Fedorov, 1972)."""
    x = np.linspace(-1.0, 1.0, 201)
    problem = problem_from(np.stack([x, x**2], axis=1), [201], "D", regularization=0.0)
    space = space_of(problem)
    weights, _ = solve_on_central_path(space, uniform_weights(space.parts), target=1e-9)
    for centre in (-1.0, 0.0, 1.0):
        assert weights[np.abs(x - centre) < 0.03].sum() == pytest.approx(1.0 / 3.0, abs=1e-4)


def test_the_best_so_far_is_returned_when_it_is_stopped():
    space = space_of(problem_of_rows((400,), 5, "D"))
    start = uniform_weights(space.parts)
    seen = []
    weights, value = solve_on_central_path(
        space, start, target=0.0, observe=lambda weights, value: seen.append((gap_of(space, weights), value)) or True
    )
    assert len(seen) == 1 and value == pytest.approx(seen[0][1])
    assert gap_of(space, weights) == pytest.approx(seen[0][0])
    seen.clear()
    solve_on_central_path(space, start, target=0.0, observe=lambda *step: seen.append(gap_of(space, step[0])))
    assert len(seen) > 5 and seen == sorted(seen, reverse=True)
    stopped, value = solve_on_central_path(space, start, target=0.0, deadline=Deadline(0.0))
    np.testing.assert_allclose(stopped, start)
    assert value == pytest.approx(space.value(start))


def test_a_singular_matrix_on_the_way_leaves_the_best_so_far(monkeypatch):
    space = space_of(problem_of_rows((60,), 3, "D"))
    start, reached = uniform_weights(space.parts), []
    gradient = FeatureSpace.gradient

    def singular_later(self, weights):
        if len(reached) == 3:
            raise SingularInformationError("not invertible")
        reached.append(gap_of_gradient(gradient(self, weights), weights, space))
        return gradient(self, weights)

    monkeypatch.setattr(FeatureSpace, "gradient", singular_later)
    weights, value = solve_on_central_path(space, start, target=0.0)
    monkeypatch.undo()
    assert gap_of(space, weights) == pytest.approx(min(reached)) and min(reached) < reached[0]
    assert value == pytest.approx(space.value(weights))


def test_without_time_no_path_is_begun(monkeypatch):
    """All work is used up and the time as well: the working set's point is what is left."""
    calls = taken_by(monkeypatch)
    monkeypatch.setattr(choice, "central_path_cost", lambda *_: 0.0)
    problem = problem_of_rows((60,), 3, "D")
    design = newton(problem, time_limit=0.0)
    assert calls == [] and design.status == "time_limit" and verify(problem, design).confirmed
    solver = importlib.import_module("edpbrl_gym.design.solvers.newton.tokens.solver")
    monkeypatch.setattr(solver.TokenSolver, "_on_working_set", lambda self, run, *_: (run.point, 0.0))
    engine = TokenSolver.of(problem, make_backend("numpy"))
    run = engine.run_from(*engine.first(None, 0, NEVER))
    prices = engine.price(run.point, budget=8, exact=False)
    options = {"target": 0.0, "max_steps": 1, "observe": lambda _: False}
    assert engine.advanced(run, prices, deadline=Deadline(0.0), **options) == (run.point, 0.0)
    assert calls == []


# -- when it is taken -----------------------------------------------------------------------------------------------


def taken_by(monkeypatch) -> list[int]:
    """Where the central path begins: the tokens of every call."""
    solver = importlib.import_module("edpbrl_gym.design.solvers.newton.tokens.solver")
    calls: list[int] = []
    solve = solver.solve_on_central_path

    def noted(space, weights, **options):
        calls.append(len(weights))
        return solve(space, weights, **options)

    monkeypatch.setattr(solver, "solve_on_central_path", noted)
    return calls


@pytest.mark.parametrize("criterion", ["D", "A"])
def test_rows_that_are_nearly_as_good_go_there_at_once(criterion, monkeypatch):
    calls = taken_by(monkeypatch)
    problem = problem_from(rounded_rows(3000, 20), [3000], criterion)
    design = newton(problem)
    assert calls == [3000] and design.status == "converged" and design.iterations == 2
    assert verify(problem, design).confirmed
    again = newton(problem)
    np.testing.assert_array_equal(again.mean_occupancy, design.mean_occupancy)


@pytest.mark.parametrize("criterion", ["D", "A"])
def test_working_sets_that_take_too_much_work_are_left(criterion, monkeypatch):
    """The first working set is better than the uniform design, yet the last digits take dozens of rounds."""
    calls = taken_by(monkeypatch)
    problem = problem_from(rounded_rows(1000, 8), [1000], criterion)
    design = newton(problem)
    assert calls == [1000] and design.status == "converged" and design.iterations > 2
    assert verify(problem, design).confirmed
    monkeypatch.setattr(choice, "central_path_cost", lambda *_: np.inf)
    slow = newton(problem)
    assert calls == [1000] and slow.iterations > design.iterations
    assert design.value == pytest.approx(slow.value, abs=2e-6 * slow.gain)


@pytest.mark.parametrize("dimension", [8, 24])
def test_structured_features_do_without(dimension, monkeypatch):
    calls = taken_by(monkeypatch)
    rng = np.random.default_rng(5)
    centre, clusters = rng.standard_normal(dimension), rng.standard_normal((20, dimension))
    rows = centre + 0.4 * clusters[rng.integers(20, size=2000)] + 0.5 * rng.standard_normal((2000, dimension))
    design = newton(problem_from(rows / np.linalg.norm(rows, axis=1, keepdims=True), [2000], "D"))
    assert calls == [] and design.status == "converged"
    assert np.count_nonzero(design.mean_occupancy[0]) <= dimension * (dimension + 3) // 2


@pytest.mark.parametrize(("count", "largest"), [(300, 300 * 28), (20, 28 * 28)], ids=["columns", "factor"])
def test_too_many_directions_for_the_memory_are_left_alone(count, largest, monkeypatch):
    """The directions of 28 columns and as many tokens, or their factor, where these are more than the tokens."""
    calls = taken_by(monkeypatch)
    monkeypatch.setattr(choice, "central_path_cost", lambda *_: 0.0)
    monkeypatch.setattr(choice, "_LARGEST", largest)
    assert newton(problem_of_rows((count,), 6, "D")).status == "converged" and calls == [count]
    monkeypatch.setattr(choice, "_LARGEST", largest - 1)
    assert newton(problem_of_rows((count,), 6, "D")).status == "converged" and calls == [count]


# problems that were measured (exact rows of equal length and rounded ones): tokens, dimension, tokens of the first
# working set, and whether the central path took less time in the geometric mean of the two
SPREAD = [
    (3_000, 16, 128, True),
    (3_000, 20, 128, True),
    (2_000, 32, 192, True),
    (8_000, 24, 192, True),
    (6_000, 48, 192, False),
    (4_000, 60, 192, False),
]


@pytest.mark.parametrize(("count", "dimension", "size", "pays"), SPREAD)
def test_the_cheaper_way_is_taken(count, dimension, size, pays):
    cost = central_path_cost(count, dimension * (dimension + 3) // 2 + 1)
    assert (cost <= choice._HARD * round_cost(size, dimension, 1)) == pays


@given(st.integers(1, 100_000), st.integers(1, 2_000), st.sampled_from([1, 2]))
def test_costs_grow_with_size(count, dimension, grams):
    assert central_path_cost(count, dimension) < central_path_cost(count + 1, dimension)
    assert central_path_cost(count, dimension) < central_path_cost(count, dimension + 1)
    assert round_cost(count, dimension, grams) < round_cost(count + 1, dimension, grams)


# -- a limit of work ------------------------------------------------------------------------------------------------


def test_a_limit_of_work_passes_by_work_or_time():
    limit = WorkLimit(NEVER, 10.0)
    assert not limit.passed and not limit.spent and limit.left is None
    limit.spend(9.0)
    assert not limit.passed
    limit.spend(1.0)
    assert limit.passed and limit.spent
    late = WorkLimit(Deadline(0.0), 10.0)
    assert late.passed and not late.spent and late.left == 0.0
    assert WorkLimit(NEVER, 0.0).spent and not WorkLimit(NEVER, np.inf).spent
    NEVER.spend(1e300)
    assert not NEVER.passed
