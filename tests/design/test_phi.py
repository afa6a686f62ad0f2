"""Kiefer's criteria against differences, against A and D at the ends, and among the solvers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edpbrl_gym.design import (
    SingularInformationError,
    exact_design,
    frank_wolfe,
    make_criterion,
    newton,
    query_set,
    reference,
    verify,
)
from tests.helpers.design_cases import prompt_problem, random_mdp_problem


def information(seed: int, dimension: int, spread: float = 1.0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    vectors = np.linalg.qr(rng.standard_normal((dimension, dimension)))[0]
    return (vectors * np.exp(spread * rng.standard_normal(dimension))) @ vectors.T


@given(st.integers(0, 2**32 - 1), st.integers(1, 6), st.floats(1e-3, 100.0), st.floats(0.0, 2.0))
@settings(max_examples=100)
def test_value_gradient_concavity_and_scale(seed, dimension, p, spread):
    criterion, matrix = make_criterion(f"phi:{p:.12g}"), information(seed, dimension, spread)
    value, gradient = criterion.evaluate(matrix)
    sizes = np.linalg.eigvalsh(matrix)
    assert value == pytest.approx(-np.exp(np.log(np.mean((sizes[0] / sizes) ** p)) / p) / sizes[0], rel=1e-9)
    assert np.vdot(gradient, matrix) == pytest.approx(-value, rel=1e-9)  # Euler: s(c I) = s(I) / c
    assert criterion.efficiency(value, criterion.value(2 * matrix), dimension) == pytest.approx(0.5, rel=1e-9)
    other = information(seed + 1, dimension, spread)
    change, step = other - matrix, 1e-6
    slope = (criterion.value(matrix + step * change) - criterion.value(matrix - step * change)) / (2 * step)
    size = abs(value) * np.abs(np.linalg.eigvals(np.linalg.solve(matrix, change))).max()
    assert np.vdot(gradient, change) == pytest.approx(slope, rel=1e-4, abs=1e-4 * size - 1e-8 * value)
    assert criterion.value(other) <= value + np.vdot(gradient, change) + 1e-9 * (size - value)
    assert criterion.value(matrix + other) >= value - 1e-12 * abs(value)


def test_its_ends():
    matrix = information(0, 5)
    inverse = np.linalg.inv(matrix)
    assert make_criterion("phi:1").value(matrix) == pytest.approx(-np.trace(inverse) / 5)
    assert make_criterion("phi:2").value(matrix) == pytest.approx(-np.linalg.norm(inverse) / np.sqrt(5))
    assert make_criterion("phi:1e-9").value(matrix) == pytest.approx(-(np.linalg.det(inverse) ** (1 / 5)), rel=1e-7)
    assert make_criterion("phi:100").value(matrix) == pytest.approx(-np.linalg.norm(inverse, 2), rel=0.02)


@pytest.mark.parametrize("regularization", [0.0, 0.1, 10.0])
def test_the_best_designs_at_the_ends_are_those_of_a_and_d(regularization):
    base = prompt_problem("A", 3, regularization=regularization)
    of_a, best = newton(replace(base, criterion=make_criterion("phi:1")), tolerance=1e-8), newton(base, tolerance=1e-8)
    assert 5 * of_a.value == pytest.approx(best.value, rel=1e-7)
    assert base.objective(of_a.mean_rows) == pytest.approx(best.value, rel=1e-7)
    volume = replace(base, criterion=make_criterion("D"))
    near = newton(replace(base, criterion=make_criterion("phi:0.001")))
    best = newton(volume)
    assert volume.criterion.efficiency(volume.objective(near.mean_rows), best.upper_bound, 5) > 0.9999


@given(st.integers(0, 1000), st.sampled_from([0.05, 0.5, 2.0, 10.0, 50.0]), st.sampled_from([0.0, 0.1, 10.0]))
@settings(max_examples=15)
def test_newton_and_frank_wolfe_agree(seed, p, regularization):
    problem = replace(
        prompt_problem("A", seed, sizes=(8, 7), dimension=4, regularization=regularization),
        criterion=make_criterion(f"phi:{p}"),
    )
    design = newton(problem)
    steps = frank_wolfe(problem, variant="pairwise", tolerance=1e-4, max_iterations=300)
    assert design.status == "converged"
    assert steps.value <= design.upper_bound and design.value <= steps.upper_bound
    assert verify(problem, design).messages == ()
    assert verify(problem, steps).messages == ()


@pytest.mark.needs("reference")
@pytest.mark.parametrize("make", [prompt_problem, random_mdp_problem])
@pytest.mark.parametrize("p", [0.1, 2.0, 20.0])
def test_agrees_with_cvxpy(make, p):
    problem = replace(make("A", 1), criterion=make_criterion(f"phi:{p}"))
    design, exact = newton(problem), reference(problem)
    assert exact.status == design.status == "converged" and exact.relative_gap <= 1e-4
    assert design.value <= exact.upper_bound and exact.value <= design.upper_bound
    assert verify(problem, exact).confirmed


def test_questions():
    problem = replace(prompt_problem("A", episodes=8), criterion=make_criterion("phi:3"))
    design = newton(problem)
    exact = exact_design(problem, surrogate=design, max_iterations=10)
    assert exact.value <= exact.upper_bound and exact.efficiency > 0.8
    found = query_set(design)
    assert found.status == "converged" and found.criterion == "phi:3"
    assert found.value <= found.upper_bound and found.efficiency > 0.8


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("phi", "the criterion phi as phi:NUMBER, got 'phi'"),
        ("phi:two", "the criterion phi as phi:NUMBER, got 'phi:two'"),
        ("phi:nan", "the criterion phi as phi:NUMBER"),
        ("phi:0", "p of the criterion phi:p > 0, got 0"),
        ("phi:-1", "p of the criterion phi:p > 0"),
        ("phi:101", "at most 100, got 101"),
        ("phy:2", "did you mean 'phi'"),
    ],
)
def test_refusals(name, message):
    with pytest.raises(ValueError, match=message):
        make_criterion(name)


def test_names_and_singular_matrices():
    assert make_criterion("PHI:2.0").fingerprint() == make_criterion("phi:2").fingerprint() == "phi:2"
    assert make_criterion("phi:0.5").fingerprint() == "phi:0.5"
    with pytest.raises(SingularInformationError):
        make_criterion("phi:2").value(np.diag([1.0, 0.0]))
