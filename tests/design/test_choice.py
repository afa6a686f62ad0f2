"""Where two ways lead to the same design of tokens, the cheaper is taken: both sides of every such switch."""

from __future__ import annotations

import importlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edpbrl_gym.design import newton, verify
from edpbrl_gym.design.solvers.newton.quasi_newton import CurvatureModel
from edpbrl_gym.design.solvers.newton.tokens.costs import Rounds, bounds_pay, products_above
from edpbrl_gym.design.solvers.newton.tokens.feature_space import FeatureSpace
from edpbrl_gym.design.solvers.newton.tokens.screening import ScreenedPricing
from edpbrl_gym.design.solvers.newton.tokens.solver import TokenSolver
from tests.helpers.design_cases import copied, problem_from

choice = importlib.import_module("edpbrl_gym.design.solvers.newton.tokens.choice")
feature_space = importlib.import_module("edpbrl_gym.design.solvers.newton.tokens.feature_space")
solver = importlib.import_module("edpbrl_gym.design.solvers.newton.tokens.solver")

SMALL = {"count": 1000, "priced": 1000}
# rounds that were measured, at 5,000 tokens of dimension 384, and whether all tokens at once took less time
MEASURED = [
    ("CLIP-like, D, lambda = 1", {"support": 128, "kept": 1.0, "improving": 4941, "grams": 1}, True),
    ("CLIP-like, A, lambda = 1", {"support": 128, "kept": 1.0, "improving": 4934, "grams": 2}, True),
    ("isotropic, D, lambda = 1", {"support": 128, "kept": 1.0, "improving": 4872, "grams": 1}, True),
    ("CLIP-like, D, lambda = 100", {"support": 64, "kept": 1.0, "improving": 1414, "grams": 1}, False),
    ("decaying, D, lambda = 100", {"support": 128, "kept": 1.0, "improving": 4093, "grams": 1}, False),
    ("clustered, D, lambda = 100", {"support": 128, "kept": 1.0, "improving": 4042, "grams": 1}, False),
    ("clustered, D, lambda = 100, later", {"support": 209, "kept": 209 / 558, "improving": 3266, "grams": 1}, False),
    ("1,000 decaying, A, lambda = 1", {**SMALL, "improving": 940, "grams": 2}, True),
    ("1,000 decaying, D, lambda = 1, d = 64", {**SMALL, "improving": 966, "budget": 64, "dimension": 64}, True),
    ("clustered, A, lambda = 100, later", {"support": 162, "kept": 162 / 224, "improving": 4517, "grams": 2}, False),
]


def rounds(**changes) -> Rounds:
    usual = {"count": 5000, "priced": 5000, "support": 128, "kept": 1.0, "improving": 4900, "budget": 96, "grams": 1}
    return Rounds(**({"sufficient": 74_000, "dimension": 384} | usual | changes))


@pytest.mark.parametrize(("known", "at_once"), [case[1:] for case in MEASURED], ids=[case[0] for case in MEASURED])
def test_the_cheaper_way_is_taken(known, at_once):
    case = rounds(**known)
    assert (case.at_once() < case.one_by_one()) == at_once


def test_costs_of_rounds_by_hand():
    """Half of 1,600 tokens, to be added by 300, by factors, and then 500, by products, after 100 that all have mass."""
    some = rounds(count=1600, priced=2000, support=100, improving=1600, budget=300, dimension=10)
    assert some.expected_support == 900
    by_factors = 2.2 * (5.4 * 400 * 100 + 3.6 * 400**2 * 10 + 2.7 * 400**3)
    assert some.one_by_one() == pytest.approx((1 + by_factors / (2000 * 100)) + (1 + 10 * 0.45))
    assert some.at_once() == pytest.approx(1 + 10 * 0.8)


@given(st.integers(1, 5000), st.floats(0.01, 1.0), st.integers(1, 4000), st.integers(1, 5000))
def test_no_more_than_suffices_is_expected(improving, kept, support, sufficient):
    known = rounds(improving=improving, kept=kept, support=support, sufficient=max(support, sufficient))
    assert support <= known.expected_support <= known.sufficient
    assert rounds(improving=improving, kept=kept, support=support).one_by_one() >= 0.0


@pytest.mark.parametrize("criterion", ["D", "A"])
@pytest.mark.parametrize("at_once", [True, False])
def test_both_ways_lead_to_the_same_design(criterion, at_once, monkeypatch):
    rows, _ = copied(400, 1, 0.0, dimension=40, seed=6)
    problem = problem_from(rows, [400], criterion)
    expected = newton(problem)
    taken = []
    cost = 0.0 if at_once else 1e9
    monkeypatch.setattr(choice.Rounds, "at_once", lambda self: taken.append(self.count) or cost)
    design = newton(problem)
    assert taken and design.status == "converged" and verify(problem, design).confirmed
    assert design.value == pytest.approx(expected.value, abs=2e-6 * (expected.value - problem.baseline))


@pytest.mark.parametrize("limit", ["_LARGEST", "_SUPPORTS"])
def test_limits_keep_all_tokens_out(limit, monkeypatch):
    """Features that take too much memory, and more tokens than can have mass."""
    sizes = []
    space = TokenSolver.space
    monkeypatch.setattr(TokenSolver, "space", lambda self, tokens: sizes.append(len(tokens)) or space(self, tokens))
    rows, _ = copied(400, 1, 0.0, dimension=40, seed=6)
    problem = problem_from(rows, [400], "D")
    monkeypatch.setattr(choice.Rounds, "at_once", lambda self: 0.0)
    monkeypatch.setattr(choice, "central_path_cost", lambda count, directions: float("inf"))
    assert newton(problem).status == "converged" and max(sizes) == 400
    sizes.clear()
    monkeypatch.setattr(choice, limit, 0.1)
    assert newton(problem).status == "converged" and max(sizes) < 400


# -- by factors of the Hessian or by products with it ---------------------------------------------------------------


# working sets that were measured, and whether products took less than 0.6 or more than 1.7 times the time of factors
SOLVED = [
    ("16 dimensions, D", 250, 16, 1, False),
    ("16 dimensions, D", 600, 16, 1, True),
    ("32 dimensions, A", 250, 32, 2, False),
    ("32 dimensions, A", 600, 32, 2, True),
    ("96 dimensions, D", 150, 96, 1, False),
    ("96 dimensions, D", 1200, 96, 1, True),
    ("256 dimensions, A", 250, 256, 2, False),
    ("256 dimensions, A", 1200, 256, 2, True),
    ("384 dimensions, D", 400, 384, 1, False),
    ("768 dimensions, A", 700, 768, 2, False),
]


@pytest.mark.parametrize(("tokens", "dimension", "grams", "by_products"), [case[1:] for case in SOLVED])
def test_the_cheaper_program_is_chosen(tokens, dimension, grams, by_products):
    assert (tokens > products_above(dimension, grams)) == by_products


@given(st.integers(1, 4096), st.sampled_from([1, 2]))
def test_the_crossing_is_where_both_programs_cost_the_same(dimension, grams):
    tokens = products_above(dimension, grams)
    by_factors = 1.2e8 + 21 * tokens * dimension**2 + 5.6 * grams * tokens**2 * dimension + 2740 * tokens**2
    by_products = 5.2e8 + 19.5 * grams * tokens * dimension**2 + 560 * tokens**2 + 17.0 * dimension**3
    assert tokens > 0 and by_factors == pytest.approx(by_products, rel=1e-9)


@pytest.mark.parametrize("criterion", ["D", "A"])
@pytest.mark.parametrize("by_products", [True, False])
def test_both_programs_lead_to_the_same_design(criterion, by_products, monkeypatch):
    """On a problem whose working sets lie on both sides."""
    rows, _ = copied(900, 1, 0.0, dimension=24, seed=6)
    problem = problem_from(rows, [900], criterion, regularization=1e-3)
    taken = []
    at, derivatives = CurvatureModel.at, FeatureSpace.derivatives
    monkeypatch.setattr(CurvatureModel, "at", lambda self, *given: taken.append("products") or at(self, *given))
    monkeypatch.setattr(
        FeatureSpace, "derivatives", lambda self, weights: taken.append("factors") or derivatives(self, weights)
    )
    expected = newton(problem)
    for place in (feature_space, choice):
        monkeypatch.setattr(place, "products_above", lambda *_: 0.0 if by_products else 1e9)
    taken.clear()
    design = newton(problem)
    assert ("products" in taken) == by_products
    assert design.status == expected.status == "converged" and verify(problem, design).confirmed
    assert max(design.value, expected.value) <= min(design.upper_bound, expected.upper_bound)


# -- bounds first, or all scores ------------------------------------------------------------------------------------


# problems that were measured, and whether bounds took less than 0.93 or more than 1.07 times the time without
PRICED = [(1_500, 24, False), (6_000, 96, False), (40_000, 160, True), (60_000, 384, True), (100_000, 768, True)]


@pytest.mark.parametrize(("count", "dimension", "pay"), PRICED)
def test_bounds_are_computed_where_they_save_more_than_they_cost(count, dimension, pay):
    assert bounds_pay(count, dimension) == pay


@pytest.mark.parametrize("criterion", ["D", "A"])
@pytest.mark.parametrize("screened", [True, False])
def test_bounds_change_nothing_but_what_is_scored(criterion, screened, monkeypatch):
    rows, _ = copied(500, 1, 0.0, dimension=30, seed=6)
    problem = problem_from(rows, [500], criterion)
    expected = newton(problem)
    priced = []
    price = ScreenedPricing.__call__
    monkeypatch.setattr(
        ScreenedPricing, "__call__", lambda self, *given, **known: priced.append(1) or price(self, *given, **known)
    )
    monkeypatch.setattr(solver, "bounds_pay", lambda *_: screened)
    design = newton(problem)
    assert bool(priced) == screened
    assert design.status == "converged" and verify(problem, design).confirmed
    assert max(design.value, expected.value) <= min(design.upper_bound, expected.upper_bound)
