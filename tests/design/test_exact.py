"""Exact designs against definitions, Monte Carlo, grids and bounds (findings F2 and F3)."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from edpbrl_gym.design import DesignProblem, exact, exact_design, exact_information, make_criterion, newton, verify
from edpbrl_gym.mdp import FiniteHorizonMDP, PromptMDP
from tests.helpers.design_cases import problem_of, prompt_problem, random_occupancy, stochastic_mdp

CRITERIA = ("D", "A", "V")


def kinds(criterion: str, **options) -> dict[str, DesignProblem]:
    return {
        "tokens": prompt_problem(criterion, **options),
        "shared": problem_of(PromptMDP.repeated(7, 3), criterion, dimension=4, **options),
        "chance": problem_of(
            stochastic_mdp(5, states=8, actions=3, horizon=3, rows="pair", masked=True), criterion, **options
        ),
    }


KINDS = tuple(kinds("D"))


def exact_value(problem: DesignProblem, occupancies: np.ndarray) -> float:
    rows = problem.mdp.row_occupancy(occupancies)
    return problem.criterion.value(exact_information(problem.features, rows, problem.episodes) + problem.prior)


def random_vertex(mdp: FiniteHorizonMDP, rng: np.random.Generator) -> np.ndarray:
    return mdp.occupancy(mdp.best_response(rng.standard_normal((mdp.horizon, mdp.num_rows)))[0])


@pytest.mark.parametrize(("criterion", "kind"), [*(("D", kind) for kind in KINDS), ("A", "chance"), ("V", "tokens")])
def test_the_result_is_what_it_says(criterion, kind):
    problem = kinds(criterion, num_policies=3)[kind]
    surrogate = newton(problem)
    design = exact_design(problem, surrogate=surrogate)
    identical = exact_value(problem, np.stack([surrogate.mean_occupancy] * 3))
    assert verify(problem, surrogate).confirmed  # apart from all solvers: the bound is true
    assert design.solver == "exact" and design.upper_bound == surrogate.upper_bound
    assert design.value == pytest.approx(exact_value(problem, design.occupancies), rel=1e-12)
    assert design.gap == pytest.approx(design.upper_bound - design.value) and 0 < design.efficiency <= 1
    assert identical < design.value
    assert 1 / problem.criterion.efficiency(identical, design.value, problem.dimension) <= 3 / 2 * (1 + 1e-5)
    occupancies = np.stack([problem.mdp.occupancy(policy) for policy in design.policies])
    np.testing.assert_allclose(occupancies, design.occupancies, atol=1e-9)
    assert np.abs(occupancies[0] - occupancies[1]).max() > 1e-3  # they differ
    values = [record.value for record in design.history]
    assert np.all(np.diff(values) >= -1e-12 * np.abs(values[1:])) and values[-1] > values[0]
    np.testing.assert_array_equal(exact_design(problem).occupancies, design.occupancies)


@pytest.mark.parametrize("kind", KINDS)
def test_no_policies_alone_can_gain_more_than_the_gap_of_the_iterations(kind):
    problem = kinds("D", num_policies=3)[kind]
    found = exact_design(problem, tolerance=1e-4, max_iterations=400)
    assert found.status == "converged"
    left = found.history[-1].gap
    assert left <= 1e-4 * (found.value - problem.baseline)
    rng = np.random.default_rng(2)
    best = 0.0
    for number, step in itertools.product(range(60), (0.01, 0.1, 1.0)):
        changed = np.array(found.occupancies)
        other = random_occupancy(problem.mdp, rng) if number % 2 else random_vertex(problem.mdp, rng)
        changed[number % 3] += step * (other - changed[number % 3])
        best = max(best, exact_value(problem, changed) - found.value)
    assert best <= left + 1e-9


def grid_of(tokens: int, steps: int) -> np.ndarray:
    points = [point for point in itertools.product(range(steps + 1), repeat=tokens) if sum(point) == steps]
    return np.array(points) / steps


@pytest.mark.parametrize("criterion", CRITERIA)
@pytest.mark.parametrize(("sizes", "steps"), [((2,), 200), ((3,), 24), ((2, 2), 20)])
def test_tiny_problems_against_a_grid(criterion, sizes, steps):
    """K = 2: hardly anything on a fine grid over both policies is better, and the grid comes close."""
    mdp = PromptMDP(sizes)
    problem = problem_of(mdp, criterion, dimension=2, groups=[range(mdp.num_rows)], num_policies=2, episodes=5)
    found = exact_design(problem, tolerance=1e-8, max_iterations=1000)
    singles = [np.concatenate(parts) for parts in itertools.product(*[grid_of(size, steps) for size in sizes])]
    flat = np.array(singles)  # (n, M)
    owner = np.repeat(np.arange(len(sizes)), sizes)
    by_step = flat[:, None, :] * (owner == np.arange(len(sizes))[:, None])  # (n, H, M)
    means = by_step @ problem.features  # (n, H, d)
    second = np.einsum("nm,md,me->nde", flat, problem.features, problem.features)
    left, right = np.triu_indices(len(flat))
    cross = np.einsum("nhd,nhe->nde", means[left], means[right])
    matrices = problem.episodes / 4 * (second[left] + second[right] - cross - cross.transpose(0, 2, 1)) + problem.prior
    if criterion == "D":
        values = np.linalg.slogdet(matrices)[1]
    else:
        target = np.eye(2) if criterion == "A" else problem.criterion.matrix
        values = -np.einsum("nde,ed->n", np.linalg.inv(matrices), target)
    best = float(values.max())
    assert abs(found.value - best) <= 0.02 * abs(best) + 0.01


@pytest.mark.parametrize("criterion", CRITERIA)
@pytest.mark.parametrize(("policies", "most"), [(2, 2.0), (4, 4 / 3)])
def test_the_full_gain_is_reached_where_two_options_say_all(criterion, policies, most):
    """Two tokens a step, one dimension each: fixed policies ask the best question, identical ones waste 1/K of them."""
    problem = DesignProblem(
        mdp=PromptMDP((2, 2, 2)),
        features=np.repeat(np.eye(3), 2, axis=0) * np.tile([1.0, -1.0], 3)[:, None],
        num_policies=policies,
        episodes=10,
        criterion=make_criterion(criterion, np.eye(3) if criterion == "V" else None),
        regularization=1e-6,
    )
    found = exact_design(problem)
    identical = exact_value(problem, np.stack([newton(problem).mean_occupancy] * policies))
    assert 1 / problem.criterion.efficiency(identical, found.value, 3) == pytest.approx(most, rel=1e-5)
    assert found.efficiency == pytest.approx(1.0, abs=1e-5)


@pytest.mark.parametrize("criterion", CRITERIA)
def test_without_a_prior(criterion):
    flat = prompt_problem(criterion, sizes=(9, 9), dimension=3, num_policies=2, regularization=0.0)
    assert np.isfinite(exact_design(flat).value)


@pytest.mark.parametrize("how", ["asked", "Ctrl-C"])
def test_a_callback_sees_every_iteration_and_stops(how):
    seen = []

    def watch(state):
        seen.append(state)
        if len(seen) == 2 and how == "Ctrl-C":
            raise KeyboardInterrupt
        return len(seen) == 2

    found = exact_design(prompt_problem("D", num_policies=2), callback=watch)
    assert found.status == "interrupted" and [state.iteration for state in seen] == [0, 1]
    assert seen[0].value <= seen[1].value <= found.value <= found.upper_bound
    assert seen[1].relative_gap > 0 and seen[1].occupancy.sum(axis=1) == pytest.approx(1.0)


def test_a_mass_that_is_lost_in_the_sum_of_the_others_is_shared_by_all():
    problem = prompt_problem("D", sizes=(5,), dimension=3)
    masses = np.array([[0.3, 1e-20, 0.4, 1e-25, 0.3]])
    shares = exact._shares(problem, masses, np.eye(3))
    assert np.isfinite(shares).all()
    np.testing.assert_allclose(shares.sum(axis=0), 1.0, rtol=1e-12)
