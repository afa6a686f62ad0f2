"""Large supports: the float32 Hessian as an operator, projections, the first-order program, and whole problems."""

from __future__ import annotations

import importlib

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.linalg import solve_triangular
from scipy.optimize import brentq, minimize

from edpbrl_gym.design import frank_wolfe, newton, verify
from edpbrl_gym.design.rounding import factor_condition
from edpbrl_gym.design.solvers.newton.projected import project, solve_by_gradients
from edpbrl_gym.design.solvers.newton.quasi_newton import Costs, CurvatureModel, Secants
from edpbrl_gym.design.solvers.newton.simplex_qp import solve_simplex_qp
from edpbrl_gym.design.solvers.newton.tokens.blocks import TokenBlocks
from edpbrl_gym.design.solvers.newton.tokens.curvature import DiagonalCurvature, ImplicitCurvature, MatrixCurvature
from edpbrl_gym.design.solvers.newton.tokens.feature_space import FeatureSpace
from tests.helpers.design_cases import DESIGN_CRITERIA, hard_prompt_problems, problem_from, rounding_of_the_gap

master = importlib.import_module("edpbrl_gym.design.solvers.newton.master")
projected = importlib.import_module("edpbrl_gym.design.solvers.newton.projected")
feature_space = importlib.import_module("edpbrl_gym.design.solvers.newton.tokens.feature_space")

CRITERIA = DESIGN_CRITERIA


# -- the Hessian ----------------------------------------------------------------------------------------------------

BLOCKS = (300, 700, 1, 450)  # tiles of 512 tokens cross their borders
SCALE = np.array([60.0, 300.0, 5.0, 120.0])


def target_of(criterion: str, dimension: int) -> np.ndarray | None:
    rank = {"D": 0, "A": dimension, "V": dimension // 2, "V1": 1}[criterion]
    if criterion == "A":
        return np.eye(dimension)
    return np.random.default_rng(2).standard_normal((dimension, rank)) if rank else None


def dense_space(criterion: str, prior, sizes=BLOCKS, scale=SCALE, *, seed=0) -> tuple[FeatureSpace, np.ndarray]:
    """A space of all tokens of some blocks, and weights of which a third are 0."""
    rng = np.random.default_rng(seed)
    dimension = len(prior)
    features = rng.standard_normal((sum(sizes), dimension)) + 5.0
    bounds = np.cumsum([0, *sizes])
    rows = [slice(int(begin), int(end)) for begin, end in zip(bounds[:-1], bounds[1:], strict=True)]
    space = FeatureSpace(
        TokenBlocks(features, rows, scale), np.arange(len(features)), prior, target_of(criterion, dimension)
    )
    weights = rng.random(len(features)) * (rng.random(len(features)) > 1 / 3) + 1e-3 * (bounds[-2] - 1 < 0)
    for own in rows:
        if not weights[own].any():
            weights[own] = 1.0
        weights[own] /= weights[own].sum()
    return space, weights


def exact_product(space: FeatureSpace, prior, target, weights, vectors) -> np.ndarray:
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


@pytest.fixture(params=[MatrixCurvature, ImplicitCurvature], ids=["stored", "not stored"])
def operator(request, monkeypatch):
    """Either form of the Hessian, whatever the size of the working set."""
    monkeypatch.setattr(FeatureSpace, "stores_hessian", request.param is MatrixCurvature)
    return request.param


@pytest.mark.parametrize("criterion", CRITERIA)
@pytest.mark.parametrize("strength", [1e-2, 1e2, 1e9])
@pytest.mark.parametrize("prior", ["isotropic", "matrix"])
def test_products_are_those_of_the_float64_hessian(criterion, strength, prior, operator):
    """With lambda = 1e9 the Hessian of D is 1 in every entry but for 1e-6: all that matters is in what is left."""
    matrix = np.eye(9)
    if prior == "matrix":
        root = np.random.default_rng(1).standard_normal((9, 9))
        matrix = root @ root.T + 0.1 * np.eye(9)
    matrix = strength * matrix
    space, weights = dense_space(criterion, matrix)
    curvature = space.curvature(weights)
    assert isinstance(curvature, operator)
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
    np.testing.assert_allclose(space.diagonal(weights), diagonal, rtol=1e-9, atol=1e-12 * diagonal.max())
    np.testing.assert_allclose(np.diag(hessian), diagonal, rtol=1e-4, atol=1e-9 * np.diag(hessian).max())


@pytest.mark.parametrize("criterion", CRITERIA)
@pytest.mark.parametrize(
    "sizes", [(512,), (513,), (1024, 512), (511, 2, 511), (1, 1, 600), (2100, 30), (5, 2043, 2049)]
)
def test_tiles_and_chunks_meet_blocks_of_any_size(sizes, criterion, operator):
    scale = np.arange(1.0, len(sizes) + 1.0) ** 3 * 7.0
    space, weights = dense_space(criterion, np.eye(4), sizes, scale)
    curvature = space.curvature(weights)
    assert isinstance(curvature, operator)
    vectors = zero_sums(np.random.default_rng(4), space.parts, 3).T
    expected = exact_product(space, np.eye(4), target_of(criterion, 4), weights, vectors.T).T
    for vector, exact in zip(vectors, expected, strict=True):
        np.testing.assert_allclose(curvature.product(vector), exact, atol=2e-5 * np.abs(exact).max())


@pytest.mark.parametrize("criterion", CRITERIA)
@pytest.mark.parametrize("whole", [True, False], ids=["mass on all", "mass on some"])
def test_value_and_gradient_are_those_of_the_definition(criterion, whole):
    """In 150 dimensions, whose triangle is inverted by halves; chunks of tokens with and without gaps."""
    prior = np.diag(np.linspace(0.5, 2.0, 150))
    space, weights = dense_space(criterion, prior)
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


@settings(max_examples=30)
@given(st.integers(1, 300), st.integers(0, 2**32 - 1), st.sampled_from([np.float32, np.float64]))
def test_triangles_inverted_by_halves_are_inverses(size, seed, kind):
    upper = np.triu(np.random.default_rng(seed).standard_normal((size, size))) / np.sqrt(size)
    upper[np.diag_indices(size)] = 1.0 + np.abs(np.diag(upper))
    inverse = np.zeros((size, size), dtype=kind, order="F")
    feature_space._invert(np.asfortranarray(upper, dtype=kind), inverse)
    expected = solve_triangular(upper, np.eye(size))
    np.testing.assert_allclose(inverse, expected, atol=1e3 * np.finfo(kind).eps * np.abs(expected).max())


@pytest.mark.parametrize("criterion", CRITERIA)
def test_sums_in_float32_are_those_of_float64(criterion):
    space, weights = dense_space(criterion, np.eye(9))
    single = FeatureSpace.__new__(FeatureSpace)
    single.__dict__.update(space.__dict__, dtype=np.dtype(np.float32), rows=space.rows.astype(np.float32), _cache=None)
    assert single.value(weights) == pytest.approx(space.value(weights), rel=1e-5)
    exact = space.gradient(weights)
    np.testing.assert_allclose(single.gradient(weights), exact, rtol=1e-4, atol=1e-6 * exact.max())
    np.testing.assert_allclose(single.means(weights), space.means(weights), atol=1e-5)


# -- secants --------------------------------------------------------------------------------------------------------


@settings(max_examples=60)
@given(st.integers(0, 2**32 - 1), st.integers(1, 20), st.booleans())
def test_secants_are_the_updates_of_broyden_fletcher_goldfarb_and_shanno(seed, count, repeated):
    """Against the textbook recursion on matrices; gradients are known up to a constant in every block."""
    rng = np.random.default_rng(seed)
    parts = [slice(0, 14), slice(14, 40)]
    root = rng.standard_normal((40, 40))
    hessian = root @ root.T + np.eye(40)
    secants, expected = Secants(DiagonalCurvature(np.diag(hessian).copy()), parts), np.diag(np.diag(hessian))
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


def test_steps_without_curvature_teach_nothing():
    secants = Secants(DiagonalCurvature(np.ones(6)), [slice(0, 6)])
    step = np.array([1.0, -1.0, 0, 0, 0, 0])
    for change in (-step, np.zeros(6), np.full(6, 5.0)):
        secants.learn(step, change)
        np.testing.assert_array_equal(secants.product(np.arange(6.0)), np.arange(6.0))
    secants.learn(np.zeros(6), step)
    np.testing.assert_array_equal(secants.product(step), step)


def test_steps_that_repeat_each_other_keep_the_product_finite():
    secants = Secants(DiagonalCurvature(np.array([1e-12, 1.0, 1.0, 1e6])), [slice(0, 4)])
    step = np.array([1.0, -0.5, -0.5, 0.0])
    for _ in range(50):
        secants.learn(step, 3.0 * step)
    assert np.isfinite(secants.product(np.arange(4.0))).all()


def test_a_hessian_is_made_where_it_pays():
    """Recorded costs, in units of an evaluation: 5,000 tokens, all in the support, and 1,900 of 5,000."""
    large, small = Costs(3.0, 12.0, 1.6), Costs(1.0, 1.8, 0.4)
    for costs in (large, small):
        assert not costs.hessian_pays(0.15, 1e-5)  # what isotropic features show
        assert costs.hessian_pays(0.8, 1e-5)
        assert not costs.hessian_pays(0.8, 0.9) and not costs.hessian_pays(0.8, 1.0)
        assert costs.hessian_pays(1.3, 1e-5)  # no progress at all
    assert small.hessian_pays(0.4, 1e-5) and not large.hessian_pays(0.35, 1e-5)
    assert not Costs(1.0, np.inf, 0.4).hessian_pays(0.99, 1e-9)
    # a step more, and the Hessian is that of half as many weights: 3 + 12 / 4 < 12, but 3 + 12 * 0.9^2 > 12
    assert not large.hessian_pays(0.8, 1e-5, 0.5) and large.hessian_pays(0.8, 1e-5, 0.9)


@settings(max_examples=60)
@given(st.integers(0, 2**32 - 1), st.integers(1, 8))
def test_secants_promise_no_worse_rate_than_the_eigenvalues(seed, count):
    """(l - 1) / (l + 1), l the largest eigenvalue of the scaled Hessian, is not exceeded, and reached by its vector."""
    rng = np.random.default_rng(seed)
    root = rng.standard_normal((12, 12)) * 10.0 ** rng.uniform(-1, 1, 12)
    hessian = root @ root.T + 0.1 * np.eye(12)
    diagonal = np.diag(hessian).copy()
    values, vectors = np.linalg.eigh(hessian / np.sqrt(np.outer(diagonal, diagonal)))
    bound = (values[-1] - 1.0) / (values[-1] + 1.0)
    secants = Secants(DiagonalCurvature(diagonal), [])  # no constraint, so nothing is taken off the changes
    assert secants.rate == 0.0
    for step in rng.standard_normal((count, 12)):
        secants.learn(step, hessian @ step)
    assert secants.rate <= bound + 1e-12
    steepest = vectors[:, -1] / np.sqrt(diagonal)
    secants.learn(steepest, hessian @ steepest)
    assert secants.rate == pytest.approx(bound, rel=1e-9)


# -- the projection -------------------------------------------------------------------------------------------------


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


@settings(max_examples=150)
@given(projections())
def test_projections_have_one_multiplier_for_every_block(case):
    """v_i = max(0, p_i - nu / h_i), with nu found by bisection instead of sorting."""
    point, diagonal, parts = case
    found = project(point, diagonal, parts)
    for part in parts:
        own, weight = point[part], diagonal[part]
        low, high = ((own - 1.0) * weight).min() - 1.0, (own * weight).max()

        def surplus(nu: float, own=own, weight=weight) -> float:
            return float(np.maximum(own - nu / weight, 0.0).sum() - 1.0)

        nu = brentq(surplus, low, high, xtol=1e-14, rtol=1e-15)
        np.testing.assert_allclose(found[part], np.maximum(own - nu / weight, 0.0), atol=1e-9 * (1 + abs(own).max()))
        assert found[part].sum() == pytest.approx(1.0, abs=1e-12 * (1 + np.abs(own).max()))
    assert found.min() >= 0


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


@settings(max_examples=100)
@given(projections(), st.floats(-1e6, 1e6))
def test_a_feasible_point_stays_and_a_multiple_of_the_constraint_does_nothing(case, shift):
    point, diagonal, parts = case
    feasible = project(point, diagonal, parts)
    # rounding of one entry moves the others by the ratio of the diagonals
    rounding = 1e-14 * diagonal.max() / diagonal.min()
    np.testing.assert_allclose(project(feasible, diagonal, parts), feasible, atol=rounding)
    moved = project(point + shift / diagonal, diagonal, parts)
    np.testing.assert_allclose(moved, feasible, atol=rounding * (1.0 + np.abs(point + shift / diagonal).max()))


# -- the first-order program ----------------------------------------------------------------------------------------


class Explicit:
    """A Hessian given as a float64 matrix."""

    def __init__(self, matrix: np.ndarray) -> None:
        self._matrix = matrix
        self.diagonal = np.diag(matrix).copy()
        self.work = float(matrix.size)
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


@settings(max_examples=150)
@given(programs(), st.sampled_from([0.0, 1e-9, 1e-2]))
def test_few_products_give_a_feasible_point_that_is_no_worse(case, tolerance):
    hessian, gradient, weights, parts = case
    found = solve_by_gradients(Explicit(hessian), gradient, weights, parts, tolerance=tolerance)
    assert np.isfinite(found).all() and found.min() >= 0
    for part in parts:
        assert found[part].sum() == pytest.approx(1.0, abs=1e-9)
    assert model(case, found) <= 1e-12 * (1.0 + np.abs(gradient).max())


@settings(max_examples=150)
@given(programs())
def test_many_products_give_the_minimum_of_the_active_set(case):
    hessian, gradient, weights, parts = case
    assume(hessian.any())  # the active set needs some curvature
    scale = np.abs(gradient).max()
    found = solve_by_gradients(Explicit(hessian), gradient, weights, parts, tolerance=1e-7 * scale, max_products=20_000)
    exact = solve_simplex_qp(hessian.copy(), gradient, weights, parts, tolerance=1e-9 * scale, max_factorizations=500)
    exact = master.cleaned(exact, parts)  # as its caller does: on singular matrices its sums are 1 to 1e-6 only
    assert abs(model(case, found) - model(case, exact)) <= 1e-5 * scale + 1e-30 * np.abs(hessian).max()


@pytest.mark.parametrize("steepest", [1e-200, 1.0, 1e12])
def test_without_curvature_the_gradient_decides(steepest):
    """A step to the best vertex of every block, or none at all."""
    parts = [slice(0, 1), slice(1, 4), slice(4, 9)]
    weights = np.concatenate([np.full(part.stop - part.start, 1.0 / (part.stop - part.start)) for part in parts])
    gradient = steepest * np.array([0.0, -1.0, 0.2, 0.8, -0.5, -0.5, 0.7, 0.4, -0.1])
    nothing = Explicit(np.zeros((9, 9)))
    found = solve_by_gradients(nothing, gradient, weights, parts, tolerance=0.0)
    np.testing.assert_allclose(found, np.eye(9)[[0, 3, 6]].sum(axis=0), atol=1e-15)
    np.testing.assert_array_equal(solve_by_gradients(nothing, 0 * gradient, weights, parts, tolerance=0.0), weights)


@pytest.mark.parametrize("estimate", [1e-2, 1.0])
def test_an_estimate_of_the_largest_eigenvalue_that_is_too_small_is_mended(estimate, monkeypatch):
    """Half of the tokens against the other half: the scaled Hessian has an eigenvalue near 40."""
    monkeypatch.setattr(projected, "largest_eigenvalue", lambda *_: estimate)
    sign = np.repeat([1.0, -1.0], 20)
    hessian = np.outer(sign, sign) + 0.1 * np.eye(40)
    best = np.random.default_rng(0).dirichlet(np.full(40, 5.0))  # in the interior: no vertex saves a long step
    weights, parts = np.full(40, 1 / 40), [slice(0, 40)]
    found = solve_by_gradients(
        Explicit(hessian), hessian @ (best - weights), weights, parts, tolerance=1e-10, max_products=500
    )
    np.testing.assert_allclose(found, best, atol=1e-4)


def test_a_well_conditioned_program_takes_few_products():
    space, weights = dense_space("D", 0.01 * np.eye(12), (900,), np.array([60.0]))
    gradient = master.centred_gradient(space.gradient(weights), weights, space.parts)
    curvature = space.curvature(weights)
    gap = float(gradient.max())
    found = solve_by_gradients(curvature, gradient, weights, space.parts, tolerance=0.05 * gap)
    _, hessian = space.derivatives(weights)
    left = gradient - hessian @ (found - weights)
    assert left.max() - found @ left <= 0.06 * gap


# -- whole problems -------------------------------------------------------------------------------------------------


@pytest.fixture
def products(monkeypatch):
    """Which kinds of operators were multiplied with."""
    used: list[str] = []
    for kind in (MatrixCurvature, DiagonalCurvature):
        exact = kind.product

        def noted(self, vector, exact=exact):
            used.append(type(self).__name__)
            return exact(self, vector)

        monkeypatch.setattr(kind, "product", noted)
    return used


@pytest.fixture(params=["hessian", "secants"])
def kind(request, monkeypatch) -> str:
    """Both sides of the choice: a Hessian as soon as there is one to choose, or never."""
    pays = request.param == "hessian"
    monkeypatch.setattr(FeatureSpace, "stores_hessian", True)
    monkeypatch.setattr(CurvatureModel, "_hessian_pays", lambda self, *_: pays and not self._whole)
    return "MatrixCurvature" if pays else "DiagonalCurvature"


def evenly(problem) -> np.ndarray:
    """Uniform weights: a start in whose working set all tokens are."""
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


@pytest.mark.parametrize("criterion", CRITERIA)
def test_isotropic_features_with_a_weak_prior(criterion, kind, products):
    rng = np.random.default_rng(1)
    problem = problem_from(rng.standard_normal((900, 24)), (900,), criterion, regularization=1e-2)
    design = newton(problem, start=evenly(problem))
    assert products[-1] == kind
    assert design.status == "converged"
    assert verify(problem, design).confirmed
    pairwise = frank_wolfe(problem, variant="pairwise", max_iterations=300)
    rounding = 1e-12 * abs(design.value)
    assert design.value <= pairwise.upper_bound + rounding
    assert pairwise.value <= design.upper_bound + rounding
    assert design.relative_gap <= 1e-6


@pytest.mark.parametrize("criterion", ["D", "A"])
@pytest.mark.parametrize(("regularization", "expected"), [(1.0, False), (100.0, True)])
def test_a_strong_prior_calls_for_a_hessian_and_a_weak_one_does_not(criterion, regularization, expected, monkeypatch):
    """With both the other choice gives the same certified design."""
    problem = problem_from(on_the_sphere(900, 100, 0), (900,), criterion, regularization=regularization)
    made: list[int] = []
    curvature = FeatureSpace.curvature

    def noted(self, weights):
        made.append(len(weights))
        return curvature(self, weights)

    monkeypatch.setattr(FeatureSpace, "curvature", noted)
    chosen = newton(problem, start=evenly(problem))
    assert bool(made) == expected
    monkeypatch.setattr(CurvatureModel, "_hessian_pays", lambda self, *_: not expected and not self._whole)
    made.clear()
    other = newton(problem, start=evenly(problem))
    assert bool(made) != expected
    for design in (chosen, other):
        assert design.status == "converged"
        assert verify(problem, design).confirmed
    assert max(chosen.value, other.value) <= min(chosen.upper_bound, other.upper_bound)


@pytest.mark.parametrize("criterion", ["D", "A"])
@pytest.mark.parametrize(("dimension", "stored"), [(24, False), (100, True)])
def test_a_hessian_is_stored_where_that_costs_less(criterion, dimension, stored, monkeypatch):
    """With both the other choice gives the same certified design; where there is no room for it, it is not stored."""
    problem = problem_from(on_the_sphere(900, dimension, 0), (900,), criterion, regularization=100.0)
    made: set[str] = set()
    curvature = FeatureSpace.curvature

    def noted(self, weights):
        found = curvature(self, weights)
        made.add(type(found).__name__)
        return found

    monkeypatch.setattr(FeatureSpace, "curvature", noted)
    designs = []
    for forced in (None, not stored):
        if forced is not None:
            monkeypatch.setattr(FeatureSpace, "stores_hessian", forced)
        made.clear()
        designs.append(newton(problem, start=evenly(problem)))
        is_stored = stored if forced is None else forced
        assert made == {"MatrixCurvature" if is_stored else "ImplicitCurvature"}
        assert designs[-1].status == "converged"
        assert verify(problem, designs[-1]).confirmed
    assert max(design.value for design in designs) <= min(design.upper_bound for design in designs)
    monkeypatch.undo()
    monkeypatch.setattr(feature_space, "LARGEST_MATRIX", 800)
    assert not dense_space(criterion, np.eye(dimension), (900,), np.array([60.0]))[0].stores_hessian


@pytest.mark.parametrize("criterion", ["D", "A"])
def test_several_blocks_on_the_sphere(criterion, kind, products):
    """A merged block of two steps and one of its own: the bound by the trace holds for their sum."""
    one, other = on_the_sphere(900, 12, 2), on_the_sphere(500, 12, 3)
    problem = problem_from(np.concatenate([one, other, one]), (900, 500, 900), criterion, regularization=1e-2)
    design = newton(problem, start=evenly(problem))
    assert products[-1] == kind
    assert design.status == "converged"
    assert verify(problem, design).confirmed
    each = 1e-2 + 180 / 12
    best = 12 * np.log(each) if criterion == "D" else -12 / each
    assert abs(best - design.value) <= 1e-6 * design.gain


def test_tolerance_zero_goes_as_far_as_float64_allows(kind):
    problem = problem_from(on_the_sphere(900, 24, 0), (900,), "D", regularization=1e-2)
    design = newton(problem, start=evenly(problem), tolerance=0.0)
    assert design.status in ("precision_reached", "converged")
    assert design.relative_gap <= 1e-9


@settings(max_examples=150)
@given(hard_prompt_problems(), st.booleans())
def test_hard_problems_by_first_order_programs(problem, hessian):
    """Every working set as large as the dimension solved as if it were large."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(feature_space, "products_above", lambda *_: 0.0)
        patch.setattr(CurvatureModel, "_hessian_pays", lambda self, *_: hessian and not self._whole)
        design = newton(problem)
    assert verify(problem, design).messages == ()
    if rounding_of_the_gap(problem, design) <= 1e-7 * design.gain:
        assert design.status == "converged"
        assert design.relative_gap <= 1e-6
    elif design.status == "precision_reached":
        assert design.gap <= 1e-6 * design.gain + 10 * rounding_of_the_gap(problem, design)


# -- which working sets ---------------------------------------------------------------------------------------------


def supports(problem, **options) -> list[int]:
    found: list[int] = []

    def watch(state):
        if state.step == 0:
            found.append(state.support)

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
    features = np.random.default_rng(0).standard_normal((900, 120))
    features /= np.linalg.norm(features, axis=1, keepdims=True)
    found = supports(problem_from(features, [900], regularization=1.0))
    assert found[1] > 800
