"""Parts of the screened path against dense float64: forms, bounds, carry-over, deletion, chunks, memory maps."""

from __future__ import annotations

import importlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.linalg import eigh

from edpbrl_gym.design import DesignProblem, make_criterion, newton
from edpbrl_gym.design.metric import PriorMetric
from edpbrl_gym.design.solvers.newton.tokens.blocks import TokenBlocks
from edpbrl_gym.design.solvers.newton.tokens.feature_space import FeatureSpace
from edpbrl_gym.design.solvers.newton.tokens.forms import ScoreForm
from edpbrl_gym.design.solvers.newton.tokens.screening import ScreenedPricing, deletion_factor
from edpbrl_gym.design.solvers.newton.tokens.space import Space
from edpbrl_gym.design.solvers.newton.tokens.token_space import TokenSpace
from edpbrl_gym.mdp import PromptMDP
from tests.helpers.design_cases import screen_above

blocks_module = importlib.import_module("edpbrl_gym.design.solvers.newton.tokens.blocks")


def make_problem(features, sizes, criterion="D", **options) -> DesignProblem:
    chosen = {"num_policies": 2, "episodes": 10, "regularization": 1.0} | options
    if "prior_precision" in options:
        del chosen["regularization"]
    target = None
    if criterion == "V":
        factor = np.random.default_rng(11).standard_normal((features.shape[1], 3))
        target = factor @ factor.T
    mdp = PromptMDP.repeated(sizes, 3) if isinstance(sizes, int) else PromptMDP(sizes)
    return DesignProblem(mdp=mdp, features=features, criterion=make_criterion(criterion, target), **chosen)


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
        self.blocks = TokenBlocks(problem.features, slices, self.scale, self.metric)
        self.target = None if problem.criterion.name == "D" else problem.criterion.target_factor(problem.dimension)
        self.isotropic_a = problem.criterion.name == "A" and problem.regularization is not None

    def space(self, tokens, *, in_tokens: bool = True) -> Space:
        if not in_tokens:
            return FeatureSpace(self.blocks, tokens, self.problem.prior, self.target)
        return TokenSpace(
            self.blocks,
            tokens,
            self.metric,
            self.problem.prior,
            self.target,
            baseline=self.problem.baseline,
            isotropic_a=self.isotropic_a,
        )

    def random_point(self, rng, count: int, *, in_tokens: bool = True) -> tuple[Space, np.ndarray]:
        """Random weights on `count` random tokens of each block (all of a smaller one)."""
        tokens = [
            np.sort(own.start + rng.permutation(own.stop - own.start)[: rng.integers(1, count + 1)])
            for own in self.blocks.slices
        ]
        weights = np.concatenate([rng.dirichlet(np.ones(len(own))) for own in tokens])
        return self.space(np.concatenate(tokens), in_tokens=in_tokens), weights

    def dense(self, space: Space, weights) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
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

    def lifted(self, space: Space, weights) -> np.ndarray:
        """M~ = sum_i c w_i phi~_i phi~_i' + diag(Lambda, 0) from its definition."""
        size = self.problem.dimension + len(self.scale)
        matrix = np.zeros((size, size))
        matrix[: self.problem.dimension, : self.problem.dimension] = self.problem.prior
        block = self.blocks.block(space.tokens)
        for token, mass, number in zip(space.tokens, weights, block, strict=True):
            row = np.concatenate([self.problem.features[token], np.eye(len(self.scale))[number]])
            matrix += self.scale[number] * mass * np.outer(row, row)
        return matrix


# -- forms ----------------------------------------------------------------------------------------------------------


def matrix_of(form: ScoreForm, prior: np.ndarray) -> np.ndarray:
    coefficients = np.ones(len(form.directions)) if form.coefficients is None else form.coefficients
    return form.base * np.linalg.inv(prior) + (form.directions.T * coefficients) @ form.directions


@settings(max_examples=200)
@given(
    arrays(np.float64, st.integers(0, 12), elements=st.floats(-1e3, 0.0)),
    st.integers(0, 14),
    st.integers(0, 2**32 - 1),
)
def test_the_head_of_a_form_bounds_it_and_the_tail_completes_it(coefficients, count, seed):
    rng = np.random.default_rng(seed)
    prior = matrix_prior(4, seed)
    form = ScoreForm(2.0, rng.standard_normal((len(coefficients), 4)), coefficients)
    split = form.split(count)
    if len(coefficients) <= count:
        assert split is None
        return
    assert split is not None
    head, tail = split
    assert (head.base, tail.base) == (2.0, 0.0)
    assert len(head.directions) == count
    whole = matrix_of(form, prior)
    size = 1.0 + np.abs(whole).max() + np.abs(coefficients).sum()
    np.testing.assert_allclose(matrix_of(head, prior) + matrix_of(tail, prior), whole, atol=1e-12 * size)
    assert np.linalg.eigvalsh(matrix_of(head, prior) - whole)[0] >= -1e-12 * size
    assert head.coefficients.sum() == pytest.approx(np.sort(coefficients)[:count].sum(), abs=0)  # the most negative


def test_forms_without_a_bound_are_not_split():
    directions = np.eye(3)
    assert ScoreForm.of_factor(directions).split(1) is None
    assert ScoreForm(1.0, directions, np.array([-1.0, 0.5, -2.0])).split(1) is None
    assert ScoreForm(1.0, directions, -np.ones(3)).split(3) is None


@pytest.mark.parametrize(("criterion", "prior"), [("D", "isotropic"), ("D", "matrix"), ("A", "isotropic")])
def test_the_form_of_the_scores_has_terms_to_leave_out(criterion, prior):
    """The form of a `TokenSpace` is I^-1 (D) or I^-2 (A); its head is above it."""
    options = {"prior_precision": 100 * matrix_prior(9)} if prior == "matrix" else {"regularization": 100.0}
    setting = Setting(make_problem(np.random.default_rng(0).standard_normal((60, 9)), (40, 20), criterion, **options))
    space, weights = setting.space(np.array([0, 5, 9, 41, 55])), np.array([0.2, 0.5, 0.3, 0.4, 0.6])
    form = space.form(weights)
    inverse = np.linalg.inv(setting.dense(space, weights)[1])
    expected = inverse if criterion == "D" else inverse @ inverse
    np.testing.assert_allclose(matrix_of(form, setting.problem.prior), expected, rtol=1e-9, atol=1e-12)
    assert len(form.coefficients) == 3  # so many directions of 5 tokens in 2 blocks
    head, _ = form.split(1)
    assert np.linalg.eigvalsh(matrix_of(head, setting.problem.prior) - expected)[0] >= -1e-12


# -- bounds over all tokens, across chunks --------------------------------------------------------------------------

SEVERAL_CHUNKS = (2 * 2048 + 5, 1, 2048, 2049)


@pytest.mark.parametrize(("kind", "criterion"), [("base", "D"), ("base", "A"), ("triangle", "D"), ("few", "V")])
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
    scores = blocks.scores(form, means, dtype)
    np.testing.assert_allclose(scores, expected, atol=accuracy * expected.max())
    # tokens next to the borders of chunks and of blocks, and a random choice of more than one chunk
    edges = np.concatenate([np.arange(-2, 3) + border for border in (2048, 4096, *blocks.starts)])
    some = np.unique(np.clip(edges, 0, len(blocks) - 1))
    many = np.sort(rng.permutation(len(blocks))[:5000])
    for tokens in (some, many, some[:0]):
        found = blocks.scores(form, means, dtype, tokens)
        np.testing.assert_allclose(found, expected[tokens], atol=accuracy * expected.max())
    monkeypatch.setattr(blocks_module, "CHUNK", 100)
    np.testing.assert_allclose(blocks.scores(form, means, dtype), scores, atol=0.1 * accuracy * expected.max())


@pytest.mark.parametrize("tokens", [None, "some"])
@pytest.mark.parametrize("criterion", ["D", "A", "V"])
def test_bounds_are_tight_where_all_terms_count_and_low_elsewhere(criterion, tokens):
    """`bounds` answers for every token: at most its level, or as tight as float32 allows."""
    rng = np.random.default_rng(1)
    features = rng.standard_normal((sum(SEVERAL_CHUNKS), 25)) * np.arange(1, 26) ** -0.5
    setting = Setting(make_problem(features, SEVERAL_CHUNKS, criterion, episodes=2, regularization=1.0))
    space, weights = setting.random_point(np.random.default_rng(3), 6)
    form, means = space.form(weights), space.means(weights)
    scores = setting.dense(space, weights)[0]
    some = None if tokens is None else np.sort(rng.permutation(len(scores))[:5000])
    chosen = np.arange(len(scores)) if some is None else some
    block = setting.blocks.block(chosen)
    levels = np.array([np.quantile(scores[own], 0.8) for own in setting.blocks.slices])
    upper, complete = setting.blocks.bounds(form, 3, means, levels, some)
    whole = ~np.isnan(complete)
    np.testing.assert_allclose(complete[whole], scores[chosen][whole], atol=1e-5 * scores.max())
    assert upper.shape == whole.shape == chosen.shape
    assert (upper >= scores[chosen]).all()
    assert (upper[~whole] <= levels[block][~whole] * (1 + 1e-4)).all()
    assert (upper[whole] - scores[chosen][whole]).max() <= 1e-4 * scores.max()
    # V has no terms to leave out: then every bound is whole
    assert whole.all() if criterion == "V" else (whole.any() and not whole.all())


# -- carry-over -----------------------------------------------------------------------------------------------------


def carried(setting: Setting, first, second) -> tuple[np.ndarray, np.ndarray | None]:
    """Bounds at one design, and what `carry` makes of them at another."""
    pricing = ScreenedPricing(setting.blocks, setting.metric, setting.problem.criterion.name)
    pricing(*first, exact=False)
    before = pricing.upper.copy()
    space, weights = second
    pricing.carry(space, weights, space.means(weights))
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
    block = setting.blocks.block(np.arange(120))
    root = ratio * np.sqrt(before) + np.sqrt(setting.scale[block]) * shifts[block]
    np.testing.assert_allclose(after, root**2, rtol=1e-7)
    assert (after >= scores).all()


@pytest.mark.parametrize("criterion", ["D", "A"])
def test_bounds_of_the_same_design_stay_as_they_are(criterion):
    """Or nearly so, when its working set grows by tokens without mass: means are summed in another order."""
    setting = Setting(make_problem(np.random.default_rng(0).standard_normal((120, 12)), (70, 50), criterion))
    space, weights = setting.random_point(np.random.default_rng(1), 5)
    wider = setting.space(np.union1d(space.tokens, [3, 50, 119]))
    padded = np.zeros(len(wider.tokens))
    padded[np.searchsorted(wider.tokens, space.tokens)] = weights
    before, after = carried(setting, (space, weights), (space, weights))
    np.testing.assert_array_equal(after, before)
    before, after = carried(setting, (space, weights), (wider, padded))
    np.testing.assert_allclose(after, before, rtol=1e-8)


def test_bounds_that_cannot_be_carried_are_forgotten():
    features = np.random.default_rng(0).standard_normal((120, 12))
    for criterion, options in [("V", {}), ("A", {"prior_precision": matrix_prior(12)})]:
        setting = Setting(make_problem(features, (70, 50), criterion, **options))
        rng = np.random.default_rng(1)
        before, after = carried(setting, setting.random_point(rng, 5), setting.random_point(rng, 5))
        assert before is not None and after is None


# -- deletion -------------------------------------------------------------------------------------------------------


@given(st.floats(0.0, 1e12))
def test_the_deletion_factor_solves_its_equation(gap):
    """b + 1/b = 2 + e, b <= 1: no eigenvalue of M~^-1 M~* is outside of [b, 1/b]."""
    root = np.sqrt(deletion_factor(gap))
    assert 0.0 < root <= 1.0
    assert root + 1.0 / root == pytest.approx(2.0 + gap, rel=1e-12)


@settings(max_examples=100)
@given(st.integers(0, 2**32 - 1), st.sampled_from([1e-2, 1.0, 30.0]), st.integers(1, 2))
def test_eigenvalues_between_a_design_and_the_optimum_are_within_the_deletion_factor(seed, regularization, steps):
    rng = np.random.default_rng(seed)
    setting, vertices = cross_polytopes(rng, 3, steps, 10, regularization)
    space, weights = near_optimum(setting, vertices, rng, rng.random() ** 4)
    scores = setting.dense(space, weights)[0]
    gap = sum(max(0.0, scores[own].max() - weights[own] @ scores[own]) for own in setting.blocks.slices)
    optimum = near_optimum(setting, vertices, rng, 0.0)
    sizes = eigh(setting.lifted(*optimum), setting.lifted(space, weights), eigvals_only=True)
    root = np.sqrt(deletion_factor(gap))
    assert root * (1 - 1e-9) <= sizes[0] <= sizes[-1] <= (1 + 1e-9) / root


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


def near_optimum(setting: Setting, vertices, rng, share: float) -> tuple[Space, np.ndarray]:
    """The optimum mixed with some share of random weights, on all tokens."""
    weights = np.zeros(len(setting.blocks))
    for own in setting.blocks.slices:
        mine = vertices[(vertices >= own.start) & (vertices < own.stop)]
        weights[mine] = (1.0 - share) / len(mine)
        weights[own] += share * rng.dirichlet(np.full(own.stop - own.start, 0.3))
        weights[own] /= weights[own].sum()
    return setting.space(np.arange(len(weights)), in_tokens=False), weights


@settings(max_examples=150)
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
    pricing = ScreenedPricing(setting.blocks, setting.metric, "D")
    for share in shares:
        space, weights = near_optimum(setting, vertices, rng, share)
        prices = pricing(space, weights, exact=False)
        assert pricing.alive[vertices].all()
        scores = setting.dense(space, weights)[0]
        gaps = [scores[own].max() - weights[own] @ scores[own] for own in setting.blocks.slices]
        assert prices.gap == pytest.approx(sum(gaps), abs=1e-7 * scores.max())


@pytest.mark.parametrize("share", [0.0, 1e-4])
def test_tokens_below_the_deletion_factor_are_deleted(share):
    rng = np.random.default_rng(4)
    setting, vertices = cross_polytopes(rng, 4, 2, 300, 1.0)
    space, weights = near_optimum(setting, vertices, rng, share)
    pricing = ScreenedPricing(setting.blocks, setting.metric, "D")
    pricing(space, weights, exact=False)
    lifted = (setting.dense(space, weights)[0] + 1.0) / np.repeat(setting.scale, 308)
    largest = np.repeat([lifted[own].max() for own in setting.blocks.slices], 308)
    scores = setting.dense(space, weights)[0]
    gap = sum(max(0.0, scores[own].max() - weights[own] @ scores[own]) for own in setting.blocks.slices)
    share_kept = lifted / (deletion_factor(gap) * largest)
    assert not pricing.alive[share_kept < 1.0 - 1e-3].any()
    assert pricing.alive[share_kept > 1.0 + 1e-3].all()
    assert (~pricing.alive).sum() > 300


# -- whole problems -------------------------------------------------------------------------------------------------


def gap_of(problem: DesignProblem, design) -> float:
    rewards = problem.gradient(design.mean_rows)
    return float((rewards.max(axis=1) - (rewards * design.mean_rows).sum(axis=1)).sum())


def many_tokens(dtype=np.float64) -> np.ndarray:
    """Clusters around a common mean, 60,000 x 16."""
    rng = np.random.default_rng(1000)
    features = rng.standard_normal((50, 16))[rng.integers(50, size=60_000)] * 0.5
    features += rng.standard_normal(features.shape) * np.arange(1, 17) ** -0.5 + 3.0
    return (features / np.linalg.norm(features, axis=1, keepdims=True)).astype(dtype)


@pytest.fixture
def scored(monkeypatch):
    """Shares of the tokens that each screened pricing pass gave a whole score."""
    price, shares = ScreenedPricing.__call__, []

    def noted(self, space, weights, *, exact):
        prices = price(self, space, weights, exact=exact)
        shares.append(prices.scored / len(self.alive))
        return prices

    monkeypatch.setattr(ScreenedPricing, "__call__", noted)
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
        assert gap_of(problem, design) <= design.gap + 1e-9 * abs(design.value)
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
