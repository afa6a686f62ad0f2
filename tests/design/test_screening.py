"""Parts of the screened path against dense float64: forms, bounds, carry-over, deletion, chunks, memory maps."""

from __future__ import annotations

import importlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.linalg import eigh

from edpbrl_gym.design import DesignProblem, newton
from edpbrl_gym.design.solvers.newton.objective import InformationObjective, Objective
from edpbrl_gym.design.solvers.newton.scores import PriorMetric, Scores
from edpbrl_gym.design.solvers.newton.screening import Screening
from edpbrl_gym.design.solvers.newton.tokens import Tokens
from edpbrl_gym.design.solvers.newton.woodbury import WoodburyObjective
from tests.helpers.design_cases import screen_above
from tests.helpers.hard_designs import gap_of, repeated_problem

tokens_module = importlib.import_module("edpbrl_gym.design.solvers.newton.tokens")
screening = importlib.import_module("edpbrl_gym.design.solvers.newton.screening")


def make_problem(features, sizes, criterion="D", **options) -> DesignProblem:
    factor = np.random.default_rng(11).standard_normal((features.shape[1], 3))
    chosen = {"episodes": 10} | ({} if "prior_precision" in options else {"regularization": 1.0}) | options
    return repeated_problem(features, sizes, criterion, factor @ factor.T if criterion == "V" else None, **chosen)


def matrix_prior(dimension: int, seed: int = 5) -> np.ndarray:
    root = np.random.default_rng(seed).standard_normal((dimension, dimension))
    return root @ root.T + 0.1 * np.eye(dimension)


class Setting:
    """The pieces of the screened path for a problem whose steps are one block each."""

    def __init__(self, problem: DesignProblem) -> None:
        self.problem = problem
        slices = [problem.mdp.step_pairs(step) for step in range(problem.horizon)]
        self.metric = PriorMetric(problem)
        self.scale = np.arange(1.0, len(slices) + 1.0) * problem.episodes
        self.blocks = Tokens(problem.features, slices, self.scale)
        self.scores = Scores(self.blocks, self.metric)
        self.target = problem.criterion.form.target(problem.dimension)

    def space(self, tokens, *, in_tokens: bool = True) -> Objective:
        if not in_tokens:
            return InformationObjective(self.blocks, tokens, self.problem.prior, self.target)
        return WoodburyObjective(self.blocks, tokens, self.metric, self.problem)

    def block(self, tokens) -> np.ndarray:
        return np.searchsorted(self.blocks.starts, tokens, side="right") - 1

    def random_point(self, rng, count: int, *, in_tokens: bool = True) -> tuple[Objective, np.ndarray]:
        """Random weights on `count` random tokens of each block (all of a smaller one)."""
        tokens = [
            np.sort(own.start + rng.permutation(own.stop - own.start)[: rng.integers(1, count + 1)])
            for own in self.blocks.slices
        ]
        weights = np.concatenate([rng.dirichlet(np.ones(len(own))) for own in tokens])
        return self.space(np.concatenate(tokens), in_tokens=in_tokens), weights

    def dense(self, space: Objective, weights) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Scores (n,), information (d, d) and means (B, d), written out in float64."""
        everything = np.zeros(len(self.blocks))
        everything[space.tokens] = weights
        features = self.problem.features.astype(np.float64)
        matrix, rows, means = np.array(self.problem.prior), [], []
        for own, scale in zip(self.blocks.slices, self.scale, strict=True):
            means.append(everything[own] @ features[own])
            rows.append(features[own] - means[-1])
            matrix += scale * (rows[-1].T * everything[own]) @ rows[-1]
        inverse = np.linalg.inv(matrix)
        weight = inverse if self.target is None else inverse @ self.target @ self.target.T @ inverse
        scores = [scale * np.einsum("nd,nd->n", own @ weight, own) for own, scale in zip(rows, self.scale, strict=True)]
        return np.concatenate(scores), matrix, np.stack(means)

    def lifted(self, space: Objective, weights) -> np.ndarray:
        """M~ = sum_i c w_i phi~_i phi~_i' + diag(Lambda, 0) from its definition."""
        size = self.problem.dimension + len(self.scale)
        matrix = np.zeros((size, size))
        matrix[: self.problem.dimension, : self.problem.dimension] = self.problem.prior
        block = self.block(space.tokens)
        for token, mass, number in zip(space.tokens, weights, block, strict=True):
            row = np.concatenate([self.problem.features[token], np.eye(len(self.scale))[number]])
            matrix += self.scale[number] * mass * np.outer(row, row)
        return matrix


SEVERAL_CHUNKS = (2 * 2048 + 5, 1, 2048, 2049)


@pytest.mark.parametrize(
    ("kind", "criterion"), [("base", "D"), ("base", "A"), ("triangle", "D"), ("triangle", "A"), ("few", "V")]
)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("stored", [np.float32, np.float64])
def test_scores_and_bounds_across_chunks(kind, criterion, dtype, stored, monkeypatch):
    rng = np.random.default_rng(0)
    features = (rng.standard_normal((sum(SEVERAL_CHUNKS), 25)) + 20.0 * rng.standard_normal(25)).astype(stored)
    setting = Setting(make_problem(features, SEVERAL_CHUNKS, criterion, episodes=2, regularization=40.0))
    blocks = setting.blocks
    space, weights = setting.random_point(np.random.default_rng(3), 20, in_tokens=kind != "triangle")
    form, means = space.form(weights), space.means(weights)
    assert (form.base != 0, form.triangle is not None) == (kind == "base", kind == "triangle")
    expected = setting.dense(space, weights)[0]
    accuracy = 1e-5 if dtype == np.float32 else 1e-10
    scores = setting.scores(form, means, dtype)
    np.testing.assert_allclose(scores, expected, atol=accuracy * expected.max())
    # tokens next to the borders of chunks and of blocks, and a random choice of more than one chunk
    edges = np.concatenate([np.arange(-2, 3) + border for border in (2048, 4096, *blocks.starts)])
    some = np.unique(np.clip(edges, 0, len(blocks) - 1))
    many = np.sort(rng.permutation(len(blocks))[:5000])
    for tokens in (some, many, some[:0]):
        found = setting.scores(form, means, dtype, tokens)
        np.testing.assert_allclose(found, expected[tokens], atol=accuracy * expected.max())
    monkeypatch.setattr(tokens_module, "CHUNK", 100)
    np.testing.assert_allclose(setting.scores(form, means, dtype), scores, atol=0.1 * accuracy * expected.max())


@pytest.mark.parametrize("tokens", [None, "some"])
@pytest.mark.parametrize("criterion", ["D", "A", "V"])
def test_bounds_are_tight_where_all_terms_count_and_low_elsewhere(criterion, tokens, monkeypatch):
    """`upper_bounds` answers for every token: at most its level, or as tight as float32 allows."""
    rng = np.random.default_rng(1)
    features = rng.standard_normal((sum(SEVERAL_CHUNKS), 25)) * np.arange(1, 26) ** -0.5
    setting = Setting(make_problem(features, SEVERAL_CHUNKS, criterion, episodes=2, regularization=1.0))
    space, weights = setting.random_point(np.random.default_rng(3), 6)
    form, means = space.form(weights), space.means(weights)
    scores = setting.dense(space, weights)[0]
    some = None if tokens is None else np.sort(rng.permutation(len(scores))[:5000])
    chosen = np.arange(len(scores)) if some is None else some
    block = setting.block(chosen)
    levels = np.array([np.quantile(scores[own], 0.8) for own in setting.blocks.slices])
    monkeypatch.setattr(screening, "_TERMS", 3)
    upper, complete = screening.upper_bounds(setting.scores, form, means, levels, some)
    whole = ~np.isnan(complete)
    np.testing.assert_allclose(complete[whole], scores[chosen][whole], atol=1e-5 * scores.max())
    assert upper.shape == whole.shape == chosen.shape
    assert (upper >= scores[chosen]).all()
    assert (upper[~whole] <= levels[block][~whole] * (1 + 1e-4)).all()
    assert (upper[whole] - scores[chosen][whole]).max() <= 1e-4 * scores.max()
    # V has no terms to leave out: then every bound is whole
    assert whole.all() if criterion == "V" else (whole.any() and not whole.all())


def carried(setting: Setting, first, second) -> tuple[np.ndarray, np.ndarray | None]:
    pricing = Screening(setting.scores, setting.problem.criterion.form)
    pricing(*first, exact=False)
    before = pricing.upper.copy()
    space, weights = second
    pricing._carry(space, weights, space.means(weights))
    return before, pricing.upper


@pytest.mark.parametrize("count", [2, 40])
@pytest.mark.parametrize("prior", ["isotropic", "matrix"])
@pytest.mark.parametrize("seed", range(4))
def test_carried_bounds_for_d_are_the_generalised_eigenvalue_of_the_lifted_matrices(seed, prior, count):
    """Few tokens: the designs differ in a small space only; many: in all of R^d."""
    rng = np.random.default_rng(seed)
    options = {"prior_precision": matrix_prior(12)} if prior == "matrix" else {"regularization": 0.3}
    setting = Setting(make_problem(rng.standard_normal((120, 12)) + 2.0, (70, 50), **options))
    first, second = (setting.random_point(rng, count, in_tokens=count < 10) for _ in range(2))
    before, after = carried(setting, first, second)
    ratio = eigh(setting.lifted(*first), setting.lifted(*second), eigvals_only=True)[-1]
    np.testing.assert_allclose(after + 1.0, max(1.0, ratio) * (before + 1.0), rtol=1e-7)
    assert (after >= setting.dense(*second)[0]).all()


@pytest.mark.parametrize("count", [2, 40])
@pytest.mark.parametrize("regularization", [1e-2, 7.0])
@pytest.mark.parametrize("seed", range(4))
def test_carried_bounds_for_a_are_those_of_the_triangle_inequality(seed, regularization, count):
    rng = np.random.default_rng(seed)
    features = rng.standard_normal((120, 12)) + 2.0
    setting = Setting(make_problem(features, (70, 50), "A", regularization=regularization))
    first, second = (setting.random_point(rng, count, in_tokens=count < 10) for _ in range(2))
    before, after = carried(setting, first, second)
    _, old, old_means = setting.dense(*first)
    scores, new, new_means = setting.dense(*second)
    ratio = max(1.0, np.linalg.norm(np.linalg.solve(new, old), 2))
    shifts = np.linalg.norm(np.linalg.solve(new, (old_means - new_means).T), axis=0)
    block = setting.block(np.arange(120))
    root = ratio * np.sqrt(before) + np.sqrt(setting.scale[block]) * shifts[block]
    np.testing.assert_allclose(after, root**2, rtol=1e-7)
    assert (after >= scores).all()


def cross_polytopes(rng, dimension, steps, inside, regularization) -> tuple[Setting, np.ndarray]:
    """Blocks of the vertices +-r u_i of a turned cross-polytope and of tokens inside the ball, sheared and moved.

    For the prior sheared along, uniform weights on the vertices are D-optimal: sum_b c_b tr C_b is at most r^2 sum c_b,
    so log det I <= d log(lambda + r^2 sum c_b / d), which they attain. So no vertex may ever be deleted.
    """
    rows, vertices, begin = [], [], 0
    for _ in range(steps):
        turned = np.linalg.qr(rng.standard_normal((dimension, dimension)))[0]
        inner = rng.standard_normal((inside, dimension))
        inner *= (0.98 * rng.random((inside, 1)) ** (1 / dimension)) / np.linalg.norm(inner, axis=1, keepdims=True)
        order = rng.permutation(2 * dimension + inside)
        block = np.concatenate([turned, -turned, inner])[order]
        rows.append(block)
        vertices.append(begin + np.flatnonzero(order < 2 * dimension))
        begin += len(block)
    left, right = (np.linalg.qr(rng.standard_normal((dimension, dimension)))[0] for _ in range(2))
    shear = left * np.geomspace(1.0, 10.0, dimension) @ right
    prior = regularization * shear.T @ shear
    features = np.concatenate(rows) @ shear + rng.standard_normal(dimension)
    problem = make_problem(features, [len(own) for own in rows], prior_precision=(prior + prior.T) / 2)
    return Setting(problem), np.concatenate(vertices)


def near_optimum(setting: Setting, vertices, rng, share: float) -> tuple[Objective, np.ndarray]:
    weights = np.zeros(len(setting.blocks))
    for own in setting.blocks.slices:
        mine = vertices[(vertices >= own.start) & (vertices < own.stop)]
        weights[mine] = (1.0 - share) / len(mine)
        weights[own] += share * rng.dirichlet(np.full(own.stop - own.start, 0.3))
        weights[own] /= weights[own].sum()
    return setting.space(np.arange(len(weights)), in_tokens=False), weights


@settings(max_examples=60)
@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from([1, 2, 5]),
    st.integers(1, 3),
    st.sampled_from([1e-3, 1.0, 100.0]),
    st.lists(st.sampled_from([0.0, 1e-6, 1e-3, 0.1, 1.0]), min_size=1, max_size=4),
)
def test_no_token_of_an_optimal_support_is_deleted(seed, dimension, steps, regularization, shares):
    """Through several designs, so that carried bounds decide too."""
    rng = np.random.default_rng(seed)
    setting, vertices = cross_polytopes(rng, dimension, steps, 30, regularization)
    pricing = Screening(setting.scores, setting.problem.criterion.form)
    for share in shares:
        space, weights = near_optimum(setting, vertices, rng, share)
        prices = pricing(space, weights, exact=False)
        assert pricing.alive[vertices].all()
        scores = setting.dense(space, weights)[0]
        gaps = [scores[own].max() - weights[own] @ scores[own] for own in setting.blocks.slices]
        assert prices.gap == pytest.approx(sum(gaps), abs=1e-7 * scores.max())


def many_tokens(dtype=np.float64) -> np.ndarray:
    rng = np.random.default_rng(1000)
    features = rng.standard_normal((50, 16))[rng.integers(50, size=60_000)] * 0.5
    features += rng.standard_normal(features.shape) * np.arange(1, 17) ** -0.5 + 3.0
    return (features / np.linalg.norm(features, axis=1, keepdims=True)).astype(dtype)


@pytest.fixture
def scored(monkeypatch):
    price, shares = Screening.__call__, []

    def noted(self, space, weights, *, exact):
        prices = price(self, space, weights, exact=exact)
        shares.append(prices.scored / len(self.alive))
        return prices

    monkeypatch.setattr(Screening, "__call__", noted)
    return shares


@pytest.mark.parametrize("criterion", ["D", "A", "V"])
def test_screened_and_unscreened_designs_agree(criterion, scored, monkeypatch):
    problem = make_problem(many_tokens(), 60_000, criterion, episodes=60)
    screen_above(monkeypatch, 40_000)
    screened = newton(problem)
    assert scored and min(scored) < (1.01 if criterion == "V" else 0.05)
    scored.clear()
    screen_above(monkeypatch, 10**9)
    plain = newton(problem)
    assert not scored
    assert screened.status == plain.status == "converged"
    assert abs(screened.value - plain.value) <= 1e-6 * plain.gain
    for design in (screened, plain):
        assert gap_of(problem, design.mean_occupancy)[0] <= design.gap + 1e-9 * abs(design.value)
        assert design.gap <= 1e-6 * design.gain


@pytest.mark.parametrize("screened", [True, False])
@pytest.mark.parametrize("criterion", ["D", "A", "V"])
def test_memory_mapped_features_give_the_same_design(criterion, screened, tmp_path, monkeypatch, scored):
    screen_above(monkeypatch, 5000 if screened else 10**9, pool=3000)
    features = many_tokens(np.float32)[:6000]
    np.save(tmp_path / "features.npy", features)
    mapped = np.load(tmp_path / "features.npy", mmap_mode="r")
    in_memory = newton(make_problem(features, (5000, 1000), criterion))
    from_file_problem = make_problem(mapped, (5000, 1000), criterion)
    assert np.shares_memory(from_file_problem.features, mapped)
    from_file = newton(from_file_problem)
    assert bool(scored) == screened
    np.testing.assert_array_equal(from_file.occupancies, in_memory.occupancies)
    assert (from_file.value, from_file.gap) == (in_memory.value, in_memory.gap)
    large = newton(make_problem(features.astype(np.float64), (5000, 1000), criterion))
    assert abs(large.value - from_file.value) <= 1e-6 * large.gain
    assert from_file.status == large.status == "converged"
