"""Small problems that the design tests share."""

from __future__ import annotations

import importlib
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import strategies as st

from edpbrl_gym.design import Criterion, Design, DesignProblem, make_criterion, newton, token_difference_matrix
from edpbrl_gym.design.problem import IterationState
from edpbrl_gym.mdp import FiniteHorizonMDP, PromptMDP

DESIGN_CRITERIA = ["D", "A", "V", "V1"]  # V1: V of rank one


class Plain(Criterion):
    """A criterion by its value and gradient alone, without its closed form."""

    def __init__(self, criterion: Criterion) -> None:
        self.criterion, self.name, self.logarithmic = criterion, f"plain {criterion.name}", criterion.logarithmic

    def value(self, information):
        return self.criterion.value(information)

    def gradient(self, information):
        return self.criterion.gradient(information)


class Root(Criterion):
    """-det(I)^(-1/d), as the limit of Kiefer's criteria is."""

    name = "root"

    def value(self, information):
        return -float(np.exp(-np.linalg.slogdet(information)[1] / len(information)))

    def gradient(self, information):
        return -self.value(information) / len(information) * np.linalg.inv(information)


def stochastic_mdp(seed: int, *, states=30, actions=4, horizon=4, rows="state", masked=False) -> FiniteHorizonMDP:
    rng = np.random.default_rng(seed)
    transitions = 0.98 * rng.dirichlet(np.full(states, 0.05), size=(states, actions)) + 0.02 / states
    admissible = None
    if masked:
        admissible = rng.random((horizon, states, actions)) < 0.7
        admissible[..., 0] |= ~admissible.any(axis=-1)
    initial = rng.dirichlet(np.ones(states))
    return FiniteHorizonMDP.from_dense(transitions, initial, horizon, admissible=admissible, rows=rows)


def problem_of(mdp, criterion: str, *, dimension=6, seed=0, unit=False, groups=None, **options) -> DesignProblem:
    rng = np.random.default_rng(1000 + seed)
    features = rng.standard_normal((mdp.num_rows, dimension))
    if unit:
        features /= np.linalg.norm(features, axis=1, keepdims=True)
    groups = [range(mdp.num_rows)] if groups is None else groups
    target = token_difference_matrix(features, [np.array(group) for group in groups]) if criterion == "V" else None
    settings = {"num_policies": 4, "episodes": 60, "regularization": 1.0} | options
    if "prior_precision" in options:
        del settings["regularization"]
    return DesignProblem(mdp=mdp, features=features, criterion=make_criterion(criterion, target), **settings)


def random_mdp_problem(criterion: str, seed=0, **options) -> DesignProblem:
    """The issue's size: S = 30, A = 4, H = 4, d = 6, stochastic transitions."""
    return problem_of(stochastic_mdp(seed), criterion, seed=seed, **options)


def prompt_problem(criterion: str, seed=0, *, sizes=(12, 9, 10), dimension=5, **options) -> DesignProblem:
    mdp = PromptMDP(sizes)
    groups = [range(mdp.offsets[step], mdp.offsets[step + 1]) for step in range(1, len(sizes))]
    return problem_of(mdp, criterion, dimension=dimension, seed=seed, unit=True, groups=groups, **options)


def random_occupancy(mdp: FiniteHorizonMDP, rng: np.random.Generator) -> np.ndarray:
    weights = rng.random((mdp.horizon, mdp.num_pairs)) ** 3 * mdp.admissible
    return mdp.occupancy(mdp.policy_from_occupancy(weights))


def check_steps(seen: list[IterationState], design: Design) -> None:
    """A callback sees every Newton step: the objective rises, under an upper bound that holds."""
    assert max(state.step for state in seen) >= 1
    for before, state in pairwise(seen):
        assert (state.iteration, state.step) in ((before.iteration, before.step + 1), (before.iteration + 1, 0))
        assert state.value >= before.value
        bound = before.value + before.gap
        assert state.value + state.gap == pytest.approx(bound, rel=1e-12) or state.step == 0
    for state in seen:
        assert state.value + state.gap >= design.value
        assert state.occupancy.sum(axis=1) == pytest.approx(1.0)


def check_repeats_and_starts(problem: DesignProblem) -> None:
    """Newton gives the same design twice, and an equally good one from any start."""
    mdp = problem.mdp
    design, again = newton(problem), newton(problem)
    np.testing.assert_array_equal(design.occupancies, again.occupancies)
    assert (design.value, design.gap, design.iterations) == (again.value, again.gap, again.iterations)
    for start in (
        random_occupancy(mdp, np.random.default_rng(3)),
        mdp.occupancy(mdp.optimal_policy(np.ones((mdp.horizon, mdp.num_pairs)))[0]),
        design.mean_occupancy,
    ):
        other = newton(problem, start=start)
        assert other.status == "converged"
        assert abs(other.value - design.value) <= 1e-6 * design.gain
    assert other.iterations == 0  # it began at the optimum
    assert newton(problem, seed=1).status == "converged"


def random_rows(mdp: FiniteHorizonMDP, rng: np.random.Generator) -> np.ndarray:
    return mdp.row_occupancy(random_occupancy(mdp, rng))


def smallest_eigenvalue(matrix: np.ndarray) -> float:
    return float(np.linalg.eigvalsh((matrix + matrix.T) / 2)[0])


def rounding_of_the_gap(problem: DesignProblem, design: Design) -> float:
    """What rounding may do to a gap: an error of eps times the uncentred moment in I, times |I^-1|, moves scores."""
    moment = problem.episodes * problem.horizon * float(np.square(problem.features).sum(axis=1).max())
    matrix = problem.information(design.mean_rows)
    error = 8 * np.finfo(float).eps * (np.linalg.norm(problem.prior, 2) + moment)
    largest = float(np.abs(problem.gradient(design.mean_rows)).max(axis=1).sum())
    curvature = np.linalg.norm(problem.criterion.gradient(matrix), 2)
    return float(error * (curvature + np.linalg.norm(np.linalg.inv(matrix), 2) * largest))


def problem_from(features, sizes, criterion="D", *, rank_seed=0, **options) -> DesignProblem:
    """A prompt problem with these features; V has a random target of full rank, V1 one of rank one."""
    features = np.asarray(features, dtype=float)
    target = None
    if criterion != "D" and criterion != "A":
        rank = 1 if criterion == "V1" else features.shape[1]
        factor = np.random.default_rng(rank_seed).standard_normal((features.shape[1], rank))
        target = factor @ factor.T
    chosen = {"num_policies": 4, "episodes": 60, "regularization": 1.0} | options
    if "prior_precision" in options:
        del chosen["regularization"]
    return DesignProblem(
        mdp=PromptMDP(sizes), features=features, criterion=make_criterion(criterion[0], target), **chosen
    )


def copied(count, copies, noise, dimension=12, seed=0):
    """Rows of unit norm, each a number of times with noise of a norm, shuffled; and of which row each is a copy."""
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((count, dimension))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    original = rng.permutation(np.repeat(np.arange(count), copies))
    noisy = rows[original] + noise * rng.standard_normal((len(original), dimension)) / np.sqrt(dimension)
    return noisy, original


@st.composite
def hard_prompt_problems(draw) -> DesignProblem:
    """Duplicates, near-duplicates, zero rows, a strong common mean, single tokens, more dimensions than tokens."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    sizes = draw(st.lists(st.sampled_from([1, 2, 3, 8, 40]), min_size=1, max_size=4))
    dimension = draw(st.sampled_from([1, 2, 5, 12]))
    features = rng.standard_normal((sum(sizes), dimension))
    features *= np.arange(1, dimension + 1) ** -draw(st.sampled_from([0.0, 1.0, 2.0]))
    if draw(st.booleans()):
        features += draw(st.sampled_from([1.0, 30.0])) * rng.standard_normal(dimension)
    if draw(st.booleans()):
        features /= np.linalg.norm(features, axis=1, keepdims=True)
    for kind in draw(st.lists(st.sampled_from(["equal", "nearly equal", "zero"]), max_size=3)):
        chosen = rng.integers(len(features), size=max(1, len(features) // 3))
        if kind == "zero":
            features[chosen] = 0.0
        else:
            source = features[rng.integers(len(features), size=len(chosen))]
            features[chosen] = source + (kind == "nearly equal") * 1e-7 * rng.standard_normal(source.shape)
    criterion = draw(st.sampled_from(DESIGN_CRITERIA))
    regularization = draw(st.sampled_from([1e-3, 1e-1, 1.0, 1e2, 1e3]))
    return problem_from(features, sizes, criterion, regularization=regularization)


def screen_above(patch: pytest.MonkeyPatch, tokens: int, pool: int | None = None) -> None:
    """Above so many tokens bounds are computed first, and the start is found in a pool."""
    solver = importlib.import_module("edpbrl_gym.design.solvers.newton.solver")
    patch.setattr(solver, "MANY", tokens)
    working_sets = importlib.import_module("edpbrl_gym.design.solvers.newton.working_sets")
    patch.setattr(working_sets, "MANY", tokens)
    patch.setattr(working_sets, "_BOUNDED", tokens)
    if pool is not None:
        patch.setattr(solver, "_POOL", pool)
