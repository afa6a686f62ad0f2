"""Certificates of the screened path against dense float64: bounds, gaps, deletion, interrupts, hard features."""

from __future__ import annotations

import importlib

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from edpbrl_gym.design import DesignProblem, certify, newton, verify
from edpbrl_gym.design.solvers.newton.tokens import PromptLayout
from tests.helpers.design_cases import screen_above
from tests.helpers.hard_designs import dense_scores, gap_of, repeated_problem, screened_problems

screening = importlib.import_module("edpbrl_gym.design.solvers.newton.screening")


@pytest.fixture(autouse=True)
def screen_small_problems(monkeypatch):
    screen_above(monkeypatch, 60, pool=40)


@pytest.fixture
def watch(monkeypatch):
    """Checks the bounds and the screened-out tokens after every pricing call of the problem that is set."""
    price, calls = screening.Screening.__call__, []
    state: dict = {"calls": calls}

    def checked(self, space, weights, *, exact):
        prices = price(self, space, weights, exact=exact)
        problem = state["problem"]
        layout = PromptLayout(problem)
        scores, levels, rounding = dense_scores(problem, layout.occupancy(space.tokens, weights))
        true = np.concatenate([scores[steps[0]] * len(steps) for steps in layout._steps])
        level = np.concatenate([np.full(len(scores[s[0]]), levels[s[0]] * len(s)) for s in layout._steps])
        assert (true <= self.upper + rounding + 1e-9 * level).all(), "a bound is below the score"
        listed = np.zeros(len(true), dtype=bool)
        listed[prices.tokens] = listed[space.tokens] = True
        if exact:
            assert (true - level)[~listed].max(initial=0.0) <= rounding + 1e-9 * level.max(), "a violator was left out"
        calls.append(exact)
        return prices

    monkeypatch.setattr(screening.Screening, "__call__", checked)
    return state


def solve_and_check(problem, watch, tolerance=1e-6):
    watch["problem"] = problem
    design = newton(problem, tolerance=tolerance, max_iterations=40)
    assert watch["calls"]
    gap, rounding = gap_of(problem, design.mean_occupancy)
    assert gap <= design.gap + 1e-9 + rounding
    return design


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(problem=screened_problems())
def test_bounds_and_gaps_of_hard_problems(problem, watch):
    solve_and_check(problem, watch)


@pytest.mark.parametrize("criterion", ["D", "A"])
@pytest.mark.parametrize("power", [2.0, 4.0])
def test_ill_conditioned_features(criterion, power, watch):
    """Long rows with small scores: float32 errs by a share of the length, not of the score."""
    rng = np.random.default_rng(0)
    features = 30 * rng.standard_normal((400, 12)) * np.arange(1, 13) ** -power
    features = features @ np.linalg.qr(rng.standard_normal((12, 12)))[0]
    solve_and_check(repeated_problem(features, 400, criterion, regularization=1e-3), watch)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_target_in_directions_that_vary_little(dtype, watch):
    rng = np.random.default_rng(0)
    basis = np.linalg.qr(rng.standard_normal((12, 12)))[0]
    features = rng.standard_normal((400, 12)) * np.r_[np.full(3, 1e3), np.ones(9)] @ basis
    target = np.outer(basis[11], basis[11])
    solve_and_check(repeated_problem(features.astype(dtype), 400, "V", target, regularization=1.0), watch)


@pytest.mark.parametrize("criterion", ["D", "A"])
@pytest.mark.parametrize("precision", [1e2, 1e4])
def test_a_prior_that_knows_what_the_features_show(criterion, precision, watch):
    rng = np.random.default_rng(1)
    basis = np.linalg.qr(rng.standard_normal((20, 20)))[0]
    prior = (basis.T * np.r_[np.full(6, precision), np.ones(14)]) @ basis
    features = rng.standard_normal((400, 6)) @ basis[:6]
    solve_and_check(repeated_problem(features, 400, criterion, prior_precision=(prior + prior.T) / 2), watch)


def test_tokens_near_the_ellipsoid(watch):
    """Every token would nearly do: what float32 hides decides the gap."""
    rng = np.random.default_rng(1)
    features = rng.standard_normal((3000, 8))
    features *= 100 * np.arange(1, 9) ** -5.0 / np.linalg.norm(features, axis=1, keepdims=True)
    features = features @ np.linalg.qr(rng.standard_normal((8, 8)))[0]
    solve_and_check(repeated_problem(features, 3000, regularization=1e-3), watch)


@pytest.mark.parametrize(("criterion", "name"), [("D", "_largest_ratio"), ("A", "_information")])
@pytest.mark.parametrize("call", (1, 2, 4, 6))
def test_ctrl_c_while_bounds_are_carried(criterion, name, call, monkeypatch, watch):
    """Bounds that belong to an earlier design must not certify the one that is returned."""
    rng = np.random.default_rng(0)
    features = rng.standard_normal((3000, 20)) * np.arange(1, 21) ** -0.5
    problem = repeated_problem(features, 3000, criterion, regularization=1.0)
    exact, calls = getattr(screening, name), []

    def interrupted(*arguments):
        calls.append(1)
        if len(calls) == call:
            raise KeyboardInterrupt
        return exact(*arguments)

    monkeypatch.setattr(screening, name, interrupted)
    solve_and_check(problem, watch, tolerance=1e-9)


def test_without_a_prior_the_pool_grows_until_it_reaches_every_direction():
    features = np.random.default_rng(0).standard_normal((3000, 4))
    features[:, 3] = np.arange(3000) == 7
    design = newton(repeated_problem(features, 3000, regularization=0.0))
    assert design.status == "converged"
    assert design.mean_occupancy[0, 7] > 0


def longer(problem: DesignProblem, occupancy) -> tuple[np.longdouble, np.longdouble]:
    """Value and gap of A and V in long double (64 bits of mantissa or more), one step's mass at all steps."""
    rows, mass = problem.features.astype(np.longdouble), occupancy[0].astype(np.longdouble)
    mass /= mass.sum()
    rows -= rows[0]
    rows -= mass @ rows
    scale = problem.episodes * problem.horizon
    factor = np.array(problem.prior, dtype=np.longdouble) + scale * (rows.T * mass) @ rows
    for column in range(len(factor)):  # Cholesky: LAPACK knows no long double
        factor[column:, column] /= np.sqrt(factor[column, column])
        factor[column + 1 :, column + 1 :] -= np.outer(factor[column + 1 :, column], factor[column + 1 :, column])
    target = np.eye(len(factor)) if problem.criterion.name == "A" else problem.criterion.form.factor
    solved = np.concatenate([target.astype(np.longdouble), rows.T], axis=1)
    for row in range(len(factor)):
        solved[row] /= factor[row, row]
        solved[row + 1 :] -= np.outer(factor[row + 1 :, row], solved[row])
    half, moved = solved[:, : target.shape[1]], solved[:, target.shape[1] :]
    scores = scale * ((half.T @ moved) ** 2).sum(axis=0)
    return -(half**2).sum(), scores.max() - mass @ scores


def assert_covers(problem: DesignProblem, design) -> None:
    value, gap = longer(problem, design.mean_occupancy)
    assert gap <= design.gap
    assert value + gap <= design.upper_bound
    assert design.gap - float(gap) <= 1e-9 * design.gain
    assert verify(problem, design).confirmed


long_double = pytest.mark.skipif(np.finfo(np.longdouble).eps > 1e-18, reason="long double is double here")


@long_double
@pytest.mark.parametrize("seed", [1, 2, 13, 84])
def test_a_gap_is_not_short_where_the_prior_and_v_cancel(seed, watch):
    """In the metric of such a prior the products with V are 1,000 times what is left of them."""
    rng = np.random.default_rng(seed)
    features = rng.standard_normal((90, 150)) * np.arange(1, 151) ** -1.0
    features = features @ np.linalg.qr(rng.standard_normal((150, 150)))[0]
    target, root = rng.standard_normal((2, 150, 150))
    prior = 1e-3 * (root @ root.T + 1e-2 * np.eye(150))
    problem = repeated_problem(features, [90], "V", target @ target.T, prior_precision=prior)
    assert_covers(problem, solve_and_check(problem, watch))


@long_double
@pytest.mark.parametrize(("criterion", "rank"), [("A", 0), ("V", 1), ("V", 12)])
@pytest.mark.parametrize("shift", [1e3, 1e5])
def test_a_common_part_of_the_features_costs_no_digits(criterion, rank, shift):
    rng = np.random.default_rng(0)
    features = rng.standard_normal((90, 12)) * np.arange(1, 13) ** -1.0 + shift * rng.standard_normal(12)
    factor = rng.standard_normal((12, rank))
    problem = repeated_problem(features, 90, criterion, factor @ factor.T if rank else None, regularization=1e-3)
    found = newton(problem)
    options = {"status": "given", "solver": "by hand", "iterations": 0, "oracle_calls": 0, "seconds": 0.0}
    for design in (found, certify(problem, found.mean_occupancy, **options)):
        assert_covers(problem, design)
