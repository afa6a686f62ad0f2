"""Large supports: the float32 Hessian, secants, projections, the first-order program, and whole problems."""

from __future__ import annotations

import importlib

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from edpbrl_gym.design import newton, verify
from edpbrl_gym.design.certificate import factor_condition
from edpbrl_gym.design.solvers.newton.curvature import (
    CurvatureModel,
    Diagonal,
    Hessian,
    Secants,
    project,
    solve_by_gradients,
)
from edpbrl_gym.design.solvers.newton.objective import InformationObjective
from edpbrl_gym.design.solvers.newton.steps import solve_simplex_qp
from edpbrl_gym.design.solvers.newton.tokens import Tokens
from tests.helpers.design_cases import DESIGN_CRITERIA, problem_from

curvature = importlib.import_module("edpbrl_gym.design.solvers.newton.curvature")
objective_module = importlib.import_module("edpbrl_gym.design.solvers.newton.objective")
working_sets = importlib.import_module("edpbrl_gym.design.solvers.newton.working_sets")

BLOCKS = (300, 700, 1, 450)  # tiles of 512 tokens cross their borders
SCALE = np.array([60.0, 300.0, 5.0, 120.0])


def target_of(criterion: str, dimension: int) -> np.ndarray | None:
    rank = {"D": 0, "A": dimension, "V": dimension // 2, "V1": 1}[criterion]
    if criterion == "A":
        return np.eye(dimension)
    return np.random.default_rng(2).standard_normal((dimension, rank)) if rank else None


def dense_objective(
    criterion: str, prior, sizes=BLOCKS, scale=SCALE, *, dtype=np.float64
) -> tuple[InformationObjective, np.ndarray]:
    """The objective on all tokens of some blocks, and weights of which a third are 0."""
    rng = np.random.default_rng(0)
    dimension = len(prior)
    features = rng.standard_normal((sum(sizes), dimension)) + 5.0
    bounds = np.cumsum([0, *sizes])
    rows = [slice(int(begin), int(end)) for begin, end in zip(bounds[:-1], bounds[1:], strict=True)]
    tokens = Tokens(features, rows, scale)
    objective = InformationObjective(tokens, np.arange(len(features)), prior, target_of(criterion, dimension), dtype)
    weights = rng.random(len(features)) * (rng.random(len(features)) > 1 / 3) + 1e-3 * (bounds[-2] - 1 < 0)
    for own in rows:
        if not weights[own].any():
            weights[own] = 1.0
        weights[own] /= weights[own].sum()
    return objective, weights


def exact_product(space: InformationObjective, prior, target, weights, vectors) -> np.ndarray:
    """H V in float64 for columns that sum to 0 in every block, without the constants that vanish there."""
    moved = space.rows.copy()
    for part in space.parts:
        moved[part] -= weights[part] @ moved[part]
    inverse = np.linalg.inv(prior + (moved.T * (space.scale * weights)) @ moved)
    inner = moved @ inverse @ moved.T
    same = np.zeros_like(inner)
    for part in space.parts:
        same[part, part] = 1.0 / space.scale[part][:1]
    if target is None:
        hessian = inner**2 + 2.0 * inner * same
    else:
        other = moved @ inverse @ target
        hessian = 2.0 * (inner + same) * (other @ other.T)
    return (hessian * np.outer(space.scale, space.scale)) @ vectors


def zero_sums(rng, parts, count: int) -> np.ndarray:
    """Random columns that sum to 0 in every block, some of them differences of two tokens."""
    size = parts[-1].stop
    vectors = rng.standard_normal((size, count))
    vectors[:, ::2] *= rng.random((size, (count + 1) // 2)) < 0.01
    for part in parts:
        vectors[part] -= vectors[part].mean(axis=0)
    return vectors


@pytest.mark.parametrize("criterion", DESIGN_CRITERIA)
@pytest.mark.parametrize("strength", [1e-2, 1e9])
@pytest.mark.parametrize("prior", ["isotropic", "matrix"])
def test_products_are_those_of_the_float64_hessian(criterion, strength, prior):
    """With lambda = 1e9 the Hessian of D is 1 in every entry but for 1e-6: all that matters is in what is left."""
    matrix = np.eye(9)
    if prior == "matrix":
        root = np.random.default_rng(1).standard_normal((9, 9))
        matrix = root @ root.T + 0.1 * np.eye(9)
    matrix = strength * matrix
    space, weights = dense_objective(criterion, matrix)
    curvature = Hessian(space, weights)
    vectors = zero_sums(np.random.default_rng(3), space.parts, 6)
    expected = exact_product(space, matrix, target_of(criterion, 9), weights, vectors)
    _, hessian = space.derivatives(weights)
    spread = np.abs(expected).max(axis=0)
    assert (np.abs(hessian @ vectors - expected) <= 1e-9 * spread).all()
    found = np.stack([curvature.product(vector) for vector in vectors.T], axis=1)
    assert found.dtype == np.float64
    assert (np.abs(found - expected) <= 2e-5 * spread).all()
    diagonal = np.diag(exact_product(space, matrix, target_of(criterion, 9), weights, np.eye(len(weights))))
    np.testing.assert_allclose(curvature.diagonal, diagonal, rtol=1e-4, atol=1e-6 * diagonal.max())
    np.testing.assert_allclose(space.hessian_diagonal(weights), diagonal, rtol=1e-9, atol=1e-12 * diagonal.max())
    np.testing.assert_allclose(np.diag(hessian), diagonal, rtol=1e-4, atol=1e-9 * np.diag(hessian).max())


@pytest.mark.parametrize("criterion", DESIGN_CRITERIA)
@pytest.mark.parametrize("whole", [True, False], ids=["mass on all", "mass on some"])
def test_value_and_gradient_are_those_of_the_definition(criterion, whole):
    """In 150 dimensions, whose triangle is inverted by halves; chunks of tokens with and without gaps."""
    prior = np.diag(np.linspace(0.5, 2.0, 150))
    space, weights = dense_objective(criterion, prior)
    if whole:
        weights = np.concatenate([np.full(size, 1.0 / size) for size in BLOCKS])
    moved = np.concatenate([space.rows[part] - weights[part] @ space.rows[part] for part in space.parts])
    information = prior + (moved.T * (space.scale * weights)) @ moved
    inverse, target = np.linalg.inv(information), target_of(criterion, 150)
    value = np.linalg.slogdet(information)[1] if target is None else -np.trace(target.T @ inverse @ target)
    half = inverse if target is None else inverse @ target @ target.T @ inverse
    gradient = space.scale * np.einsum("ki,ij,kj->k", moved, half, moved, optimize=True)
    assert space.value(weights) == pytest.approx(value, rel=1e-11)
    np.testing.assert_allclose(space.gradient(weights), gradient, rtol=1e-9, atol=1e-12 * gradient.max())
    means = np.stack([weights[part] @ space.rows[part] for part in space.parts])
    by_factor = factor_condition(np.linalg.cholesky(information), means, SCALE)
    assert space.condition(weights) == pytest.approx(by_factor, rel=1e-9)


@settings(max_examples=60)
@given(st.integers(0, 2**32 - 1), st.integers(1, 20), st.booleans())
def test_secants_are_the_updates_of_broyden_fletcher_goldfarb_and_shanno(seed, count, repeated):
    """Against the textbook recursion on matrices; gradients are known up to a constant in every block."""
    rng = np.random.default_rng(seed)
    parts = [slice(0, 14), slice(14, 40)]
    root = rng.standard_normal((40, 40))
    hessian = root @ root.T + np.eye(40)
    secants, expected = Secants(Diagonal(np.diag(hessian).copy()), parts), np.diag(np.diag(hessian))
    steps = rng.standard_normal((20, 40))
    for part in parts:
        steps[:, part] -= steps[:, part].mean(axis=1, keepdims=True)
    if repeated:  # what lies in the span of earlier steps teaches nothing new, or is rounding
        steps[1::3] = steps[::3][: len(steps[1::3])]
    for step in steps[:count]:
        change = hessian @ step
        secants.learn(step, change + np.where(np.arange(40) < 14, 3.0, -7.0))
        product = expected @ step
        shifted = change.copy()
        for part in parts:  # the constants that make the change smallest in the metric of the diagonal
            inverse = 1.0 / np.diag(hessian)[part]
            shifted[part] -= inverse @ shifted[part] / inverse.sum()
        expected = (
            expected - np.outer(product, product) / (step @ product) + np.outer(shifted, shifted) / (step @ shifted)
        )
        found = np.stack([secants.product(column) for column in np.eye(40)], axis=1)
        np.testing.assert_allclose(found, expected, atol=1e-7 * np.abs(expected).max())
    assert np.linalg.eigvalsh(expected)[0] > 0


@st.composite
def projections(draw) -> tuple[np.ndarray, np.ndarray, list[slice]]:
    sizes = draw(st.lists(st.integers(1, 7), min_size=1, max_size=3))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    point = draw(st.sampled_from([0.1, 1.0, 100.0])) * rng.standard_normal(sum(sizes))
    if draw(st.booleans()):  # ties
        point = np.round(point, 1)
    diagonal = 10.0 ** (draw(st.sampled_from([0.0, 1.0, 3.0])) * rng.uniform(-1, 1, len(point)))
    bounds = np.cumsum([0, *sizes])
    return point, diagonal, [slice(int(a), int(b)) for a, b in zip(bounds[:-1], bounds[1:], strict=True)]


@settings(max_examples=60)
@given(projections())
def test_projections_are_the_quadratic_programs_of_scipy(case):
    point, diagonal, parts = case
    diagonal = diagonal / diagonal.max()
    found = project(point, diagonal, parts)

    def distance(v):
        return 0.5 * float(diagonal @ (v - point) ** 2)

    start = np.concatenate([np.full(part.stop - part.start, 1.0 / (part.stop - part.start)) for part in parts])
    exact = minimize(
        distance,
        start,
        jac=lambda v: diagonal * (v - point),
        bounds=[(0, None)] * len(point),
        constraints=[{"type": "eq", "fun": lambda v, own=own: v[own].sum() - 1.0} for own in parts],
        method="SLSQP",
        options={"ftol": 1e-14, "maxiter": 500},
    )
    scale = 1.0 + distance(start)
    assert distance(found) <= exact.fun + 1e-7 * scale
    # and no vertex is a better direction: the optimality condition of the program itself
    slope = diagonal * (point - found)
    for part in parts:
        assert slope[part].max() - found[part] @ slope[part] <= 1e-9 * scale


class Explicit:
    def __init__(self, matrix: np.ndarray) -> None:
        self._matrix = matrix
        self.diagonal = np.diag(matrix).copy()
        self.products = 0

    def product(self, vector: np.ndarray) -> np.ndarray:
        self.products += 1
        return self._matrix @ vector


@st.composite
def programs(draw) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[slice]]:
    """H, g, w and blocks: singular Hessians, duplicates, zero rows, a zero Hessian, weights with zeros."""
    sizes = draw(st.lists(st.sampled_from([1, 2, 5, 12]), min_size=1, max_size=3))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    size = sum(sizes)
    root = rng.standard_normal((size, draw(st.sampled_from([1, 2, 40]))))
    kind = draw(st.sampled_from(["plain", "duplicates", "zero rows", "zero", "scales"]))
    gradient = rng.standard_normal(size)
    if kind == "duplicates":
        source = rng.integers(size, size=size)
        root, gradient = root[source], gradient[source]
    elif kind == "zero rows":
        root[rng.random(size) < 0.4] = 0.0
    elif kind == "zero":
        root[:] = 0.0
    elif kind == "scales":
        root *= 10.0 ** rng.uniform(-2, 2, (size, 1))
    factor = draw(st.sampled_from([1e-3, 1.0, 1e4]))
    gradient *= factor
    bounds = np.cumsum([0, *sizes])
    parts = [slice(int(a), int(b)) for a, b in zip(bounds[:-1], bounds[1:], strict=True)]
    weights = rng.random(size) * (rng.random(size) < 0.6)
    for part in parts:
        weights[part] = (
            weights[part] / weights[part].sum() if weights[part].any() else np.eye(part.stop - part.start)[0]
        )
        gradient[part] -= weights[part] @ gradient[part]
    return factor * root @ root.T, gradient, weights, parts


def model(case, v: np.ndarray) -> float:
    hessian, gradient, weights, _ = case
    return float(-gradient @ (v - weights) + 0.5 * (v - weights) @ hessian @ (v - weights))


@settings(max_examples=60)
@given(programs(), st.sampled_from([0.0, 1e-9, 1e-2]))
def test_few_products_give_a_feasible_point_that_is_no_worse(case, tolerance):
    hessian, gradient, weights, parts = case
    found = solve_by_gradients(Explicit(hessian), gradient, weights, parts, tolerance=tolerance)
    assert np.isfinite(found).all() and found.min() >= 0
    for part in parts:
        assert found[part].sum() == pytest.approx(1.0, abs=1e-9)
    assert model(case, found) <= 1e-12 * (1.0 + np.abs(gradient).max())


@settings(max_examples=60)
@given(programs())
def test_many_products_give_the_minimum_of_the_active_set(case):
    hessian, gradient, weights, parts = case
    assume(hessian.any())  # the active set needs some curvature
    scale = np.abs(gradient).max()
    found = solve_by_gradients(Explicit(hessian), gradient, weights, parts, tolerance=1e-7 * scale, max_products=20_000)
    exact = solve_simplex_qp(hessian.copy(), gradient, weights, parts, tolerance=1e-9 * scale, max_factorizations=500)
    exact /= np.concatenate([np.full(p.stop - p.start, exact[p].sum()) for p in parts])  # as its caller does
    assert abs(model(case, found) - model(case, exact)) <= 1e-5 * scale + 1e-30 * np.abs(hessian).max()


@pytest.mark.parametrize("estimate", [1e-2, 1.0])
def test_an_estimate_of_the_largest_eigenvalue_that_is_too_small_is_mended(estimate, monkeypatch):
    """Half of the tokens against the other half: the scaled Hessian has an eigenvalue near 40."""
    monkeypatch.setattr(curvature, "_largest_eigenvalue", lambda *_: estimate)
    sign = np.repeat([1.0, -1.0], 20)
    hessian = np.outer(sign, sign) + 0.1 * np.eye(40)
    best = np.random.default_rng(0).dirichlet(np.full(40, 5.0))  # in the interior: no vertex saves a long step
    weights, parts = np.full(40, 1 / 40), [slice(0, 40)]
    found = solve_by_gradients(
        Explicit(hessian), hessian @ (best - weights), weights, parts, tolerance=1e-10, max_products=500
    )
    np.testing.assert_allclose(found, best, atol=1e-4)


@pytest.fixture
def products(monkeypatch):
    used: list[str] = []
    for kind in (Hessian, Diagonal):
        exact = kind.product

        def noted(self, vector, exact=exact):
            used.append(type(self).__name__)
            return exact(self, vector)

        monkeypatch.setattr(kind, "product", noted)
    return used


@pytest.fixture(params=["hessian", "secants"])
def kind(request, monkeypatch) -> str:
    """Both sides of the choice: a Hessian as soon as there is one to choose, or never."""
    slow = request.param == "hessian"
    monkeypatch.setattr(CurvatureModel, "_too_slow", lambda self, *_: slow and not self._whole)
    monkeypatch.setattr(curvature, "IDLE", 0.0)
    return "Hessian" if slow else "Diagonal"


def evenly(problem) -> np.ndarray:
    return problem.mdp.occupancy(problem.mdp.uniform_policy())


def on_the_sphere(count: int, dimension: int, seed: int) -> np.ndarray:
    features = np.random.default_rng(seed).standard_normal((count, dimension))
    return features / np.linalg.norm(features, axis=1, keepdims=True)


@pytest.mark.parametrize(("criterion", "regularization"), [("D", 1e-2), ("D", 1.0), ("A", 1e-2)])
def test_every_token_in_the_support(criterion, regularization, kind, products):
    """On the sphere no design has a larger trace than c, and one with I = (lambda + c/d) E exists: the optimum.

    Its score is the same for every token, so all may have mass; the Hessian has rank d (d + 3) / 2 < n.
    """
    problem = problem_from(on_the_sphere(900, 24, 0), (900,), criterion, regularization=regularization)
    design = newton(problem, start=evenly(problem))
    assert products[-1] == kind
    assert design.status == "converged"
    assert verify(problem, design).confirmed
    each = regularization + 60 / 24
    best = 24 * np.log(each) if criterion == "D" else -24 / each
    assert design.value <= best + 1e-12 * abs(best)
    assert best - design.value <= 1e-6 * design.gain
    assert best <= design.upper_bound + 1e-12 * abs(best)
    assert np.count_nonzero(design.mean_occupancy) > 700


@pytest.mark.parametrize("criterion", ["D", "A"])
@pytest.mark.parametrize(("regularization", "expected"), [(1.0, False), (100.0, True)])
def test_a_strong_prior_calls_for_a_hessian_and_a_weak_one_does_not(criterion, regularization, expected, monkeypatch):
    """With both the other choice gives the same certified design."""
    problem = problem_from(on_the_sphere(900, 100, 0), (900,), criterion, regularization=regularization)
    made: list[int] = []
    make = Hessian.__init__

    def noted(self, objective, weights):
        made.append(len(weights))
        make(self, objective, weights)

    monkeypatch.setattr(Hessian, "__init__", noted)
    chosen = newton(problem, start=evenly(problem))
    assert bool(made) == expected
    monkeypatch.setattr(CurvatureModel, "_too_slow", lambda self, *_: not expected and not self._whole)
    made.clear()
    other = newton(problem, start=evenly(problem))
    assert bool(made) != expected
    for design in (chosen, other):
        assert design.status == "converged"
        assert verify(problem, design).confirmed
    assert max(chosen.value, other.value) <= min(chosen.upper_bound, other.upper_bound)


def supports(problem, **options) -> list[int]:
    found: list[int] = []

    def watch(state):
        if state.step == 0:
            found.append(np.count_nonzero(state.occupancy))

    assert newton(problem, callback=watch, **options).status == "converged"
    return found


@pytest.mark.parametrize("criterion", ["D", "A"])
@pytest.mark.parametrize("kind", ["gauss", "sphere"])
@pytest.mark.parametrize("sizes", [[5000], [1000] * 5], ids=["one step", "five steps"])
def test_without_a_prior_the_working_sets_stay_as_small_as_with_a_weak_one(kind, criterion, sizes):
    """126 tokens suffice for d = 11: a start that is bad enough to be beaten by nearly all tokens needs no 5,000."""
    features = np.random.default_rng(0).standard_normal((5000, 11))
    if kind == "sphere":
        features /= np.linalg.norm(features, axis=1, keepdims=True)
    problems = [problem_from(features, sizes, criterion, regularization=value) for value in (0.0, 1e-9)]
    without, weak = (supports(problem) for problem in problems)
    assert max(without) <= 1.5 * max(weak) <= 400
    assert len(without) <= len(weak) + 3


def test_a_dense_support_is_taken_at_once_where_so_many_tokens_may_be_needed():
    found = supports(problem_from(on_the_sphere(2000, 120, 0), [2000], regularization=0.1))
    assert found[1] > 1800
