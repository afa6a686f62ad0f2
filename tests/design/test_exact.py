"""Exact designs against definitions, Monte Carlo, grids and bounds (findings F2 and F3)."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from edpbrl_gym.design import (
    Criterion,
    Design,
    DesignProblem,
    exact_design,
    exact_information,
    frank_wolfe,
    make_criterion,
    realised_information,
    surrogate_information,
    verify,
)
from edpbrl_gym.design.exact import block
from edpbrl_gym.design.exact.ascent import Ascent
from edpbrl_gym.design.exact.block import BlockSpace, CentredFeatures, Moments, Surroundings
from edpbrl_gym.design.exact.starts import clustered, random_policies, tilted
from edpbrl_gym.design.solvers.newton.master import improve
from edpbrl_gym.mdp import FiniteHorizonMDP, PromptMDP
from tests.helpers.design_cases import problem_of, prompt_problem, random_mdp_problem, random_occupancy, stochastic_mdp

CRITERIA = ("D", "A", "V")


def graph_mdp(seed: int, *, states=12, degree=3, horizon=4) -> FiniteHorizonMDP:
    """A random graph: deterministic transitions, so that columns are paths."""
    rng = np.random.default_rng(seed)
    pairs = states * degree
    successors = np.concatenate([rng.choice(states, degree, replace=False) for _ in range(states)])
    return FiniteHorizonMDP(
        pair_state=np.repeat(np.arange(states), degree),
        pair_action=np.tile(np.arange(degree), states),
        transitions=sparse.csr_array((np.ones(pairs), (np.arange(pairs), successors)), shape=(pairs, states)),
        initial=np.eye(1, states)[0],
        horizon=horizon,
        allow_unreachable=True,
    )


def kinds(criterion: str, **options) -> dict[str, DesignProblem]:
    """One problem of each way to find columns: tokens, shared tokens, paths, policies."""
    return {
        "tokens": prompt_problem(criterion, **options),
        "shared": problem_of(PromptMDP.repeated(7, 3), criterion, dimension=4, **options),
        "paths": problem_of(graph_mdp(2), criterion, dimension=4, **options),
        "policies": problem_of(
            stochastic_mdp(5, states=8, actions=3, horizon=3, rows="pair", masked=True), criterion, **options
        ),
    }


KINDS = tuple(kinds("D"))


def exact_value(problem: DesignProblem, occupancies: np.ndarray) -> float:
    rows = problem.mdp.row_occupancy(occupancies)
    return problem.criterion.value(exact_information(problem.features, rows, problem.episodes) + problem.prior)


# -- the block of one policy ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_moments_give_the_exact_information_and_its_gradient(kind):
    problem = kinds("D", num_policies=3)[kind]
    rng = np.random.default_rng(0)
    occupancies = np.stack([random_occupancy(problem.mdp, rng) for _ in range(3)])
    rows = problem.mdp.row_occupancy(occupancies)
    ascent = Ascent(problem)
    points = [ascent.point(one) for one in occupancies]
    expected = exact_information(problem.features, rows, problem.episodes) + problem.prior
    np.testing.assert_allclose(ascent.information(points), expected, atol=1e-10)
    for point, occupancy in zip(points, occupancies, strict=True):
        np.testing.assert_allclose(point.occupancy, occupancy, atol=1e-14)
    # the scores are the gradient of `information` up to a constant for each step, for any curvature
    curvature = np.linalg.inv(expected)
    gradient = np.zeros(rows.shape[1:])
    for entry in np.ndindex(gradient.shape):  # the information is affine in one policy, so a unit step is its slope
        moved = rows.copy()
        moved[1][entry] += 1.0
        change = exact_information(problem.features, moved, problem.episodes) + problem.prior - expected
        gradient[entry] = np.vdot(curvature, change)
    around = Surroundings.of(problem.prior, [points[0].moments, points[2].moments], problem.episodes)
    factor = np.linalg.inv(np.linalg.cholesky(expected))
    scores = around.scale * ascent.features.scores(factor, around.centres)
    shift = scores - gradient
    np.testing.assert_allclose(shift, np.broadcast_to(shift[:, :1], shift.shape), atol=1e-10)


@pytest.mark.parametrize("criterion", CRITERIA)
@pytest.mark.parametrize("kind", ["tokens", "paths"])
@pytest.mark.parametrize("gram", [10**6, 0])
def test_derivatives_of_a_block(criterion, kind, gram, monkeypatch):
    """Gradient and Hessian against finite differences, in both forms of the Hessian."""
    monkeypatch.setattr(block, "LARGEST_GRAM", gram)
    problem = kinds(criterion, num_policies=3)[kind]
    rng = np.random.default_rng(1)
    ascent = Ascent(problem)
    others = [ascent.point(random_occupancy(problem.mdp, rng)).moments for _ in range(2)]
    around = Surroundings.of(problem.prior, others, problem.episodes)
    if kind == "tokens":
        columns = ascent.point(random_occupancy(problem.mdp, rng)).columns
    else:
        found = [ascent.point(one).support for one in random_policies(problem.mdp, ascent.features, 4, rng)]
        columns = ascent.column_set([column for columns in found for column in columns])
    space = BlockSpace(ascent.features, around, columns, ascent.target)
    weights = rng.dirichlet(np.ones(len(columns)))
    gradient, hessian = space.derivatives(weights)
    np.testing.assert_allclose(space.gradient(weights), gradient)
    size = 1e-6
    for number in range(0, len(columns), 2):
        change = np.zeros(len(columns))
        change[number] = size
        up, down = space.value(weights + change), space.value(weights - change)
        np.testing.assert_allclose(gradient[number], (up - down) / (2 * size), rtol=2e-6, atol=1e-7)
        slope = (space.gradient(weights + change) - space.gradient(weights - change)) / (2 * size)
        np.testing.assert_allclose(-hessian[number], slope, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("criterion", CRITERIA)
@pytest.mark.parametrize("kind", ["tokens", "paths"])
def test_steps_on_many_columns_find_the_same_weights(criterion, kind, monkeypatch):
    problem = kinds(criterion, num_policies=3)[kind]
    rng = np.random.default_rng(6)
    ascent = Ascent(problem)
    others = [ascent.point(random_occupancy(problem.mdp, rng)).moments for _ in range(2)]
    around = Surroundings.of(problem.prior, others, problem.episodes)
    found = [ascent.point(one).support for one in random_policies(problem.mdp, ascent.features, 6, rng)]
    columns = ascent.column_set([column for columns in found for column in columns])
    values = []
    for few in (10**6, 0):
        monkeypatch.setattr(block, "FEW", few)
        space = BlockSpace(ascent.features, around, columns, ascent.target)
        weights = np.concatenate(
            [np.full(part.stop - part.start, 1 / (part.stop - part.start)) for part in space.parts]
        )
        weights, _, _ = improve(space, weights, target=1e-9, max_steps=100)
        gradient = space.gradient(weights)
        gap = sum(gradient[part].max() - weights[part] @ gradient[part] for part in space.parts)
        assert gap <= 1e-5 * abs(space.value(weights))
        values.append(space.value(weights))
    assert values[0] == pytest.approx(values[1], rel=1e-5)


def test_large_float32_features_are_taken_in_chunks(monkeypatch):
    rng = np.random.default_rng(3)
    features = (rng.standard_normal((5000, 4)) + 2.0).astype(np.float32)
    whole = CentredFeatures(features)
    monkeypatch.setattr(block, "COPIED", 0)
    chunked = CentredFeatures(features)
    factor, centres = rng.standard_normal((3, 4)), rng.standard_normal((2, 4))
    np.testing.assert_allclose(chunked.scores(factor, centres), whole.scores(factor, centres))
    np.testing.assert_allclose(chunked.linear(centres), whole.linear(centres))
    np.testing.assert_array_equal(chunked.rows(np.array([7, 4000])), whole.rows(np.array([7, 4000])))
    for triangle in (np.tril(rng.standard_normal((4, 4))), np.triu(rng.standard_normal((4, 4)))):
        expected = [
            [np.sum((triangle @ (row - centre)) ** 2) for row in whole.rows(np.arange(9))] for centre in centres
        ]
        np.testing.assert_allclose(whole.scores(triangle, centres)[:, :9], expected, rtol=1e-10)


# -- results -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("criterion", CRITERIA)
@pytest.mark.parametrize("kind", KINDS)
def test_the_result_is_what_it_says(criterion, kind):
    problem = kinds(criterion, num_policies=3)[kind]
    found = exact_design(problem, starts=("clusters", "surrogate", "random", "random"), seed=1)
    design = found.design
    assert found.value == design.value
    assert found.value == pytest.approx(exact_value(problem, design.occupancies), rel=1e-12)
    assert found.upper_bound == found.surrogate.upper_bound
    assert verify(problem, found.surrogate).confirmed  # apart from all solvers: the bound is true
    assert design.gap == pytest.approx(found.upper_bound - found.value)
    assert 0 < found.efficiency <= found.independent_efficiency <= 1
    assert found.value <= found.independent_bound <= found.upper_bound
    assert found.identical_value <= found.best_identical.value + 1e-6 * abs(found.value)
    assert found.best_identical.value == pytest.approx(exact_value(problem, found.best_identical.occupancies), rel=1e-9)
    assert found.best_identical.value <= found.value + 1e-9 * abs(found.value)
    assert found.policies.shape == (3, problem.horizon, problem.mdp.num_pairs)
    occupancies = np.stack([problem.mdp.occupancy(policy) for policy in found.policies])
    np.testing.assert_allclose(occupancies, design.occupancies, atol=1e-9)
    assert np.abs(occupancies[0] - occupancies[1]).max() > 1e-3  # they differ
    assert design.status == "converged" and len(found.starts) == 4
    assert max(start.value for start in found.starts) == pytest.approx(found.value)
    for text in (problem.criterion.name, "independent", "gain", "starts       4"):
        assert text in found.summary()


@pytest.mark.parametrize("criterion", CRITERIA)
@pytest.mark.parametrize("kind", KINDS)
def test_block_ascent_never_lowers_the_objective(criterion, kind):
    problem = kinds(criterion, num_policies=4)[kind]
    found = exact_design(problem, starts=["clusters", "surrogate", "random"], tolerance=0.0, max_sweeps=6)
    for start in found.starts:
        assert len(start.values) == 4 * start.sweeps
        assert np.all(np.diff([start.first, *start.values]) >= 0)
        assert start.values[-1] == start.value > start.first


@pytest.mark.parametrize("kind", KINDS)
def test_no_policy_alone_can_gain_more_than_the_block_gap(kind):
    problem = kinds("D", num_policies=3)[kind]
    found = exact_design(problem, tolerance=1e-9, max_sweeps=400)
    assert found.block_gap < 1e-3 * (found.value - problem.baseline)
    rng = np.random.default_rng(2)
    best = 0.0
    for number, step in itertools.product(range(60), (0.01, 0.1, 1.0)):
        changed = np.array(found.design.occupancies)
        policy = number % 3
        other = random_occupancy(problem.mdp, rng) if number % 2 else random_vertex(problem.mdp, rng)
        changed[policy] += step * (other - changed[policy])
        best = max(best, exact_value(problem, changed) - found.value)
    assert best <= found.block_gap + 1e-9


def random_vertex(mdp: FiniteHorizonMDP, rng: np.random.Generator) -> np.ndarray:
    return mdp.occupancy(mdp.best_response(rng.standard_normal((mdp.horizon, mdp.num_rows)))[0])


@pytest.mark.parametrize("kind", ["tokens", "policies"])
def test_the_value_is_the_expectation_of_sampled_questions(kind):
    """F2: the mean information of questions drawn from the K policies, within its standard error."""
    problem = kinds("A", num_policies=3)[kind]
    found = exact_design(problem, starts="clusters")
    rng = np.random.default_rng(4)
    size = 20_000
    drawn = np.stack([problem.mdp.sample(policy, size, rng).rows for policy in found.policies], axis=1)  # (n, K, H)
    options = problem.features[drawn].transpose(0, 2, 1, 3)  # (n, H, K, d)
    centred = options - options.mean(axis=2, keepdims=True)
    samples = np.einsum("nhki,nhkj->nij", centred, centred) / 3
    error = samples.std(axis=0) / np.sqrt(size) + 1e-12
    rows = problem.mdp.row_occupancy(found.design.occupancies)
    exact = exact_information(problem.features, rows, 1)
    surrogate = surrogate_information(problem.features, rows.mean(axis=0), 1)
    assert np.abs((samples.mean(axis=0) - exact) / error).max() < 4.5
    assert np.abs((samples.mean(axis=0) - surrogate) / error).max() > 10
    asked = realised_information(options.reshape(-1, 3, problem.dimension)) * (problem.episodes / size)
    assert problem.criterion.value(asked + problem.prior) == pytest.approx(found.value, rel=0.02)


# -- against grids -------------------------------------------------------------------------------------------------


def grid_of(tokens: int, steps: int) -> np.ndarray:
    points = [point for point in itertools.product(range(steps + 1), repeat=tokens) if sum(point) == steps]
    return np.array(points) / steps


@pytest.mark.parametrize("criterion", CRITERIA)
@pytest.mark.parametrize(("sizes", "steps"), [((2,), 200), ((3,), 24), ((2, 2), 20)])
@pytest.mark.parametrize("seed", [0, 1])
def test_tiny_problems_against_a_grid(criterion, sizes, steps, seed):
    """K = 2: nothing on a fine grid over both policies is better, and the grid comes close."""
    mdp = PromptMDP(sizes)
    groups = [range(mdp.num_rows)]
    problem = problem_of(mdp, criterion, dimension=2, seed=seed, groups=groups, num_policies=2, episodes=5)
    found = exact_design(problem, starts=("clusters", "random", "random", "random"), tolerance=1e-10, max_sweeps=200)
    singles = [np.concatenate(parts) for parts in itertools.product(*[grid_of(size, steps) for size in sizes])]
    flat = np.array(singles)  # (n, M)
    owner = np.repeat(np.arange(len(sizes)), sizes)
    by_step = flat[:, None, :] * (owner == np.arange(len(sizes))[:, None])  # (n, H, M)
    means = by_step @ problem.features  # (n, H, d)
    second = np.einsum("nm,md,me->nde", flat, problem.features, problem.features)
    left, right = np.triu_indices(len(flat))
    cross = np.einsum("nhd,nhe->nde", means[left], means[right])
    data = problem.episodes / 4 * (second[left] + second[right] - cross - cross.transpose(0, 2, 1))
    matrices = data + problem.prior
    if criterion == "D":
        values = np.linalg.slogdet(matrices)[1]
    else:
        target = np.eye(2) if criterion == "A" else problem.criterion.matrix
        values = -np.einsum("nde,ed->n", np.linalg.inv(matrices), target)
    best = float(values.max())
    assert found.value >= best - 1e-9 * abs(best)
    assert found.value - best <= 0.02 * abs(best) + 0.01
    assert found.value <= found.independent_bound + 1e-9 * abs(best)


# -- bounds --------------------------------------------------------------------------------------------------------


@given(
    seed=st.integers(0, 10**6),
    policies=st.integers(2, 5),
    criterion=st.sampled_from(CRITERIA),
    regularization=st.sampled_from([1e-3, 1.0, 100.0]),
)
@settings(max_examples=25)
def test_bounds_hold_on_random_problems(seed, policies, criterion, regularization):
    """Gain and saving within their ranges; no policies, found or random, beat the bound for independent draws."""
    rng = np.random.default_rng(seed)
    sizes = tuple(int(size) for size in rng.integers(1, 5, size=rng.integers(1, 4)))
    if max(sizes) == 1:
        sizes = (*sizes, 2)
    mdp = PromptMDP(sizes) if seed % 2 else stochastic_mdp(seed, states=6, actions=2, horizon=2)
    problem = problem_of(
        mdp, criterion, dimension=3, seed=seed, num_policies=policies, episodes=10, regularization=regularization
    )
    found = exact_design(problem, starts=("clusters", "random"), max_sweeps=30, seed=seed)
    allowed = 1 + 1e-5
    assert 1 <= found.gain_over_identical <= policies / (policies - 1) * allowed
    assert 0 <= found.questions_saved <= found.most_questions_saved + 1e-6 <= 1 / policies + 1e-5
    slack = 1e-9 * max(1.0, abs(found.value))
    assert found.identical_value - slack <= found.value <= found.independent_bound + slack
    assert found.independent_bound <= found.upper_bound + slack
    for _ in range(5):
        make = random_vertex if rng.random() < 0.5 else random_occupancy
        occupancies = np.stack([make(mdp, rng) for _ in range(policies)])
        assert exact_value(problem, occupancies) <= found.independent_bound + slack


@pytest.mark.parametrize("criterion", CRITERIA)
@pytest.mark.parametrize(("policies", "most"), [(2, 2.0), (4, 4 / 3)])
def test_the_full_gain_is_reached_where_two_options_say_all(criterion, policies, most):
    """Two tokens a step, one dimension each: fixed policies ask the best question, identical ones waste 1/K of them."""
    features = np.repeat(np.eye(3), 2, axis=0) * np.tile([1.0, -1.0], 3)[:, None]
    problem = DesignProblem(
        mdp=PromptMDP((2, 2, 2)),
        features=features,
        num_policies=policies,
        episodes=10,
        criterion=make_criterion(criterion, np.eye(3) if criterion == "V" else None),
        regularization=1e-6,
    )
    found = exact_design(problem, starts=("clusters", "random"))
    assert found.gain_over_identical == pytest.approx(most, rel=1e-5)
    assert found.questions_saved == pytest.approx(1 / policies, rel=1e-5)
    assert found.efficiency == pytest.approx(1.0, abs=1e-5)
    assert exact_value(problem, found.design.occupancies) == pytest.approx(found.surrogate.value, rel=1e-5)


def test_a_strong_prior_leaves_the_ratio_of_questions():
    """With a prior that outweighs the data the values hardly differ, the questions saved do."""
    features = np.array([[1.0], [-1.0]])
    problem = DesignProblem(
        mdp=PromptMDP((2,)),
        features=features,
        num_policies=2,
        episodes=10,
        criterion=make_criterion("D"),
        regularization=1e4,
    )
    found = exact_design(problem, starts="random")
    assert found.gain_over_identical < 1.001
    assert found.questions_saved == pytest.approx(0.5, rel=1e-4)


# -- starts and options --------------------------------------------------------------------------------------------


def test_clusters_keep_the_mean_and_separate_the_policies():
    problem = prompt_problem("D", sizes=(12, 1, 10), num_policies=3)
    features = CentredFeatures(problem.features)
    occupancy = random_occupancy(problem.mdp, np.random.default_rng(0))
    parts = clustered(problem.mdp, features, occupancy, np.eye(5), 3, np.random.default_rng(1))
    np.testing.assert_allclose(parts.sum(axis=2), 1.0)
    np.testing.assert_allclose(parts.mean(axis=0), occupancy, atol=0.02)
    within = [surrogate_information(problem.features, one, 1).trace() for one in parts]
    assert np.mean(within) < 0.8 * surrogate_information(problem.features, occupancy, 1).trace()


def test_clusters_of_equal_rows():
    features = CentredFeatures(np.ones((6, 2)))
    mdp = PromptMDP((4, 2))
    uniform = mdp.occupancy(mdp.uniform_policy())
    parts = clustered(mdp, features, uniform, np.eye(2), 2, np.random.default_rng(0))
    np.testing.assert_allclose(parts, np.stack([uniform, uniform]))


@pytest.mark.parametrize("kind", KINDS)
def test_starts_are_feasible_and_differ(kind):
    problem = kinds("D")[kind]
    mdp, features = problem.mdp, CentredFeatures(problem.features)
    occupancy = random_occupancy(mdp, np.random.default_rng(0))
    for make in (clustered, tilted):
        found = make(mdp, features, occupancy, np.eye(problem.dimension), 3, np.random.default_rng(1))
        for one in found:
            assert mdp.flow_violation(one) < 1e-12
        means = mdp.row_occupancy(found) @ problem.features
        assert np.abs(means[0] - means[1]).max() > 1e-3


@pytest.mark.parametrize("kind", KINDS)
def test_the_seed_decides_everything(kind):
    problem = kinds("A", num_policies=2)[kind]
    first, again, other = (exact_design(problem, starts=("clusters", "random"), seed=seed) for seed in (5, 5, 6))
    np.testing.assert_allclose(first.design.occupancies, again.design.occupancies, atol=1e-7)
    assert first.starts[1].first != other.starts[1].first
    alone = exact_design(problem, starts=("random", "random"), seed=5)
    # whatever the start before it was
    np.testing.assert_allclose(alone.starts[1].values, first.starts[1].values, rtol=1e-10)


def test_given_starts_and_surrogate():
    problem = prompt_problem("D", num_policies=2)
    found = exact_design(problem, starts="clusters")
    better = exact_design(problem, starts=[found.design.occupancies], surrogate=found.surrogate, tolerance=1e-8)
    assert better.starts[0].name == "given" and better.value >= found.value
    assert better.surrogate is found.surrogate
    none = exact_design(problem, starts=[found.design.occupancies], max_sweeps=0)
    assert none.value == pytest.approx(found.value, rel=1e-12) and none.design.status == "sweep_limit"


def test_a_start_worse_than_identical_policies_is_not_returned():
    problem = prompt_problem("D", num_policies=2, sizes=(3, 3))
    vertex = random_vertex(problem.mdp, np.random.default_rng(0))
    found = exact_design(problem, starts=[np.stack([vertex, vertex])], max_sweeps=0)
    assert found.starts[0].value < found.best_identical.value == pytest.approx(found.value)
    assert found.gain_over_identical >= 1


@pytest.mark.parametrize("criterion", CRITERIA)
def test_without_a_prior_and_with_a_given_one(criterion):
    flat = prompt_problem(criterion, sizes=(9, 9), dimension=3, num_policies=2, regularization=0.0)
    found = exact_design(flat, starts=("random", "clusters"))
    assert np.isfinite(found.value) and found.gain_over_identical > 1.05
    scaled = prompt_problem(criterion, num_policies=2, regularization=2.5)
    given = prompt_problem(criterion, num_policies=2, prior_precision=2.5 * np.eye(5))
    one, other = (exact_design(problem, starts="clusters", tolerance=1e-7) for problem in (scaled, given))
    assert one.value == pytest.approx(other.value, rel=1e-6)
    assert one.independent_bound == pytest.approx(other.independent_bound, rel=1e-6)


def test_steps_with_a_single_token_say_nothing():
    problem = prompt_problem("D", sizes=(1, 5, 1), dimension=3, num_policies=3)
    found = exact_design(problem)
    np.testing.assert_array_equal(found.design.occupancies[:, 0, 0], 1.0)
    np.testing.assert_array_equal(found.design.occupancies[:, 2, -1], 1.0)
    only = prompt_problem("D", sizes=(5,), dimension=3, num_policies=3)
    assert only.features.shape == (5, 3)
    alone = DesignProblem(
        mdp=PromptMDP((5,)),
        features=problem.features[1:6],
        num_policies=3,
        episodes=60,
        criterion=problem.criterion,
        regularization=1.0,
    )
    assert exact_design(alone).value == pytest.approx(found.value, rel=1e-6)


def test_a_callback_sees_every_sweep_and_stops():
    problem = prompt_problem("D", num_policies=2)
    seen = []
    found = exact_design(
        problem, starts=("random", "clusters"), callback=lambda state: seen.append(state) or len(seen) == 2
    )
    assert found.design.status == "interrupted" and len(found.starts) == 1
    assert [state.sweep for state in seen] == [1, 2] and seen[1].value >= seen[0].value
    assert seen[1].best == pytest.approx(found.value, rel=1e-12) and seen[0].name == "random"
    assert found.value <= seen[0].upper_bound


def test_ctrl_c_keeps_the_best_so_far():
    problem = prompt_problem("D", num_policies=2)

    def stop(state):
        if state.start == 1:
            raise KeyboardInterrupt

    found = exact_design(problem, starts=("clusters", "random"), callback=stop)
    assert found.design.status == "interrupted" and found.value >= found.starts[0].value

    def at_once(state):
        raise KeyboardInterrupt

    none = exact_design(problem, starts="random", callback=at_once)
    assert none.starts == () and none.gain_over_identical >= 1 and "interrupted" in none.summary()


def test_the_design_is_saved_like_any_other(tmp_path):
    problem = prompt_problem("V", num_policies=2)
    design = exact_design(problem).design
    loaded = Design.load(design.save(tmp_path / "exact.npz"), problem)
    np.testing.assert_array_equal(loaded.policies, design.policies)
    assert (loaded.value, loaded.upper_bound, loaded.solver) == (design.value, design.upper_bound, "exact")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"starts": ("clusters", "best")}, "start among clusters, surrogate, random, .* got 'best'"),
        ({"starts": ()}, "at least one start"),
        ({"starts": [np.zeros((2, 3, 4))]}, r"start of shape \(K, H, M\)"),
        ({"starts": [np.zeros((2, 3, 31))]}, "feasible occupancy"),
        ({"tolerance": -1.0}, "tolerance"),
        ({"max_sweeps": -1}, "max_sweeps"),
        ({"seed": -1}, "seed"),
    ],
)
def test_wrong_options(options, message):
    with pytest.raises(ValueError, match=message):
        exact_design(prompt_problem("D", num_policies=2), **options)


def test_another_problems_surrogate_and_other_criteria():
    problem = prompt_problem("D", num_policies=2)
    surrogate = exact_design(problem, max_sweeps=0).surrogate
    with pytest.raises(ValueError, match="that of another"):
        exact_design(prompt_problem("D", num_policies=3), surrogate=surrogate)
    with pytest.raises(TypeError, match="Expected a DesignProblem"):
        exact_design("problem")

    class Root(Criterion):
        name = "root"

        def value(self, information):
            return -(float(np.linalg.det(information)) ** (-1 / len(information)))

        def gradient(self, information):
            return -self.value(information) / len(information) * np.linalg.inv(information)

    other = DesignProblem(
        mdp=problem.mdp,
        features=problem.features,
        num_policies=2,
        episodes=60,
        criterion=Root(),
        regularization=1.0,
    )
    for known in (None, frank_wolfe(other)):
        with pytest.raises(ValueError, match="criterion A, V or D"):
            exact_design(other, surrogate=known)


def test_moments_of_nothing_but_one_row():
    """A deterministic policy has no covariance."""
    problem = prompt_problem("D")
    moments = Ascent(problem).point(random_vertex(problem.mdp, np.random.default_rng(0))).moments
    assert isinstance(moments, Moments) and np.abs(moments.covariance).max() < 1e-12


def test_random_mdp_of_the_issues_size_gains():
    found = exact_design(random_mdp_problem("D", num_policies=2), starts=("clusters", "random", "random"))
    assert found.gain_over_identical > 1.01
