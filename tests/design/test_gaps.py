"""The three gaps and the trees they enumerate: bounds against search, estimates against all sequences."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy import stats
from scipy.optimize import minimize

from edpbrl_gym.design import make_criterion
from edpbrl_gym.design.gaps import (
    GapEstimate,
    MeanEstimate,
    achieved_gap,
    ball_maximum,
    enumerated_gap,
    gap_bound,
    optimum_bound,
)
from edpbrl_gym.design.moments import MomentProblem, PolicyMoments
from edpbrl_gym.design.trees import EpisodeTrees

A, H, D = 3, 3, 3


def world(noises: int, seed: int = 0) -> EpisodeTrees:
    rng = np.random.default_rng(seed)
    levels = [rng.normal(size=(noises, A ** (h + 1), D)) + 0.5 for h in range(H)]
    return EpisodeTrees([level / np.linalg.norm(level, axis=-1, keepdims=True) for level in levels])


def problem_of(name: str = "D") -> MomentProblem:
    criterion = make_criterion(name, np.diag([1.0, 2.0, 3.0]) if name == "V" else None)
    return MomentProblem(criterion=criterion, episodes=30, horizon=H, dimension=D, regularization=1.0)


def moments_of(trees: EpisodeTrees, actions) -> PolicyMoments:
    return PolicyMoments.from_features(trees.path_features(actions))


def constant(trees: EpisodeTrees, action: int) -> np.ndarray:
    return np.full((trees.noises, H), action)


def trees_of(noises: int, actions: int, horizon: int, dimension: int, seed: int) -> EpisodeTrees:
    rng = np.random.default_rng(seed)
    return EpisodeTrees([rng.normal(size=(noises, actions ** (h + 1), dimension)) for h in range(horizon)])


def reward_of(dimension: int, horizon: int, seed: int):
    rng = np.random.default_rng(seed + 1)
    weights = rng.normal(size=(horizon, dimension))
    return lambda features, steps: np.sin(np.einsum("nd,nd->n", np.asarray(features), weights[np.asarray(steps)]))


@settings(max_examples=25)
@given(st.integers(1, 4), st.integers(1, 4), st.integers(1, 4), st.integers(1, 3), st.integers(0, 1000))
def test_backward_induction_against_all_sequences(noises, actions, horizon, dimension, seed):
    trees, reward = trees_of(noises, actions, horizon, dimension, seed), reward_of(dimension, horizon, seed)
    best = trees.best_values(reward)
    sequences = list(itertools.product(range(actions), repeat=horizon))
    totals = np.empty((noises, len(sequences)))
    for noise, (number, sequence) in itertools.product(range(noises), enumerate(sequences)):
        node, total = 0, 0.0
        for h, action in enumerate(sequence):
            node = node * actions + action
            total += reward(trees.features[h][noise, node][None], [h])[0]
        totals[noise, number] = total
    np.testing.assert_allclose(best, totals.max(axis=1), rtol=1e-12)
    chosen = trees.best_actions(reward)
    np.testing.assert_allclose(trees.values(reward, chosen), best, rtol=1e-12)
    np.testing.assert_array_equal(trees.sequences(), sequences)
    other = np.array([sequences[seed % len(sequences)]] * noises)
    np.testing.assert_allclose(trees.values(reward, other), totals[:, seed % len(sequences)], rtol=1e-12)


@settings(max_examples=40)
@given(st.integers(1, 5), st.integers(0, 10_000), st.floats(0.1, 5.0), st.sampled_from(["plain", "hard", "flat"]))
@example(4, 71, 0.875, "plain")  # two local maxima
def test_the_maximum_over_a_ball(dimension, seed, radius, kind):
    rng = np.random.default_rng(seed)
    factor = rng.normal(size=(dimension, dimension if kind == "plain" else max(1, dimension - 1)))
    matrix = np.zeros((dimension, dimension)) if kind == "flat" else factor @ factor.T
    slope = rng.normal(size=dimension)
    if kind == "hard":  # no part along the leading eigenvector
        leading = np.linalg.eigh(matrix)[1][:, -1]
        slope = slope - leading * (leading @ slope)
        slope *= 0.01
    bound = float(ball_maximum(matrix, slope[None], radius)[0])

    def value(phi):
        return np.einsum("...i,ij,...j->...", phi, matrix, phi) - 2 * phi @ slope

    directions = rng.normal(size=(2000, dimension))
    unit = directions / np.linalg.norm(directions, axis=1, keepdims=True)
    points = np.concatenate([radius * unit, radius * rng.random((2000, 1)) * unit])
    slack = 1e-9 * (1 + abs(bound))
    assert value(points).max() <= bound + slack
    # a quadratic has at most one more local maximum on a sphere, on the other side of the leading direction
    side = points @ np.linalg.eigh(matrix)[1][:, -1] > 0
    starts = [start for half in (points[side], points[~side]) for start in half[np.argsort(-value(half))[:2]]]
    found = max(
        float(-minimize(lambda v: -value(radius * v / np.linalg.norm(v)), start, tol=1e-14).fun) for start in starts
    )
    assert found == pytest.approx(bound, rel=1e-5, abs=1e-7)


@pytest.mark.parametrize("name", ["D", "A", "V"])
def test_the_order_of_the_three(name):
    population, problem = world(50), problem_of(name)
    mixture = PolicyMoments.mixture([moments_of(population, constant(population, a)) for a in range(2)], [0.5, 0.5])
    reward = problem.gradient(mixture)
    trained = moments_of(population, constant(population, 2))
    best = moments_of(population, population.best_actions(reward))
    exact = population.best_values(reward).mean() - reward.expected(mixture)
    played = np.stack([constant(population, a) for a in range(2)], axis=1)
    estimate = enumerated_gap(population, reward, played, [0.5, 0.5])
    assert estimate.mean == pytest.approx(exact, rel=1e-9)
    assert achieved_gap(reward, best, mixture) == pytest.approx(exact, rel=1e-9)  # a perfect oracle attains it
    assert achieved_gap(reward, trained, mixture) <= exact + 1e-9
    assert exact <= gap_bound(reward, mixture, radius=1.0)


@pytest.mark.parametrize("name", ["D", "A", "V"])
def test_the_gap_of_fresh_noises_is_unbiased(name):
    """The mean over many samples of noises is the gap of the population, at moments from other noises."""
    population, problem, rng = world(60, seed=1), problem_of(name), np.random.default_rng(2)
    design = world(8, seed=3)
    reward = problem.gradient(moments_of(design, constant(design, 0)))
    actions = rng.integers(A, size=(population.noises, 1, H))
    exact = float((population.best_values(reward) - population.values(reward, actions[:, 0])).mean())
    means = []
    for _ in range(300):
        drawn = rng.integers(population.noises, size=20)
        means.append(enumerated_gap(population.select(drawn), reward, actions[drawn]).mean)
    assert abs(np.mean(means) - exact) < 4 * stats.sem(means)


@pytest.mark.parametrize("name", ["D", "A", "V"])
def test_no_policy_is_above_the_bound_on_the_optimum(name):
    """At moments of other noises; policies that know the noise, and mixtures of them, in the whole population."""
    population, problem = world(40, seed=4), problem_of(name)
    design = world(5, seed=5)
    anywhere = moments_of(design, constant(design, 1))
    bound = optimum_bound(population, problem, anywhere)
    rng = np.random.default_rng(6)
    tried = [moments_of(population, rng.integers(A, size=(population.noises, H))) for _ in range(5)]
    for _ in range(40):  # Frank-Wolfe with the exact oracle comes close to the optimum
        reward = problem.gradient(tried[-1])
        vertex = moments_of(population, population.best_actions(reward))
        values = [
            (problem.value(mixed), mixed)
            for mixed in (PolicyMoments.mixture([tried[-1], vertex], [1 - s, s]) for s in np.linspace(0, 1, 21))
        ]
        tried.append(max(values, key=lambda pair: pair[0])[1])
    best = max(problem.value(moments) for moments in tried)
    assert best <= bound.mean
    tight = optimum_bound(population, problem, tried[-1])
    assert best <= tight.mean <= bound.mean
    assert tight.mean - best < 0.05 * (best - problem.baseline)


def test_the_interval_solves_halls_cubic():
    values = np.random.default_rng(5).exponential(size=20)
    estimate = MeanEstimate.of(values, level=0.95)
    skewness = ((values - values.mean()) ** 3).mean() / values.std(ddof=1) ** 3

    def transformed(mu):
        w = (values.mean() - mu) / values.std(ddof=1)
        return np.sqrt(20) * (w + skewness * w**2 / 3 + skewness**2 * w**3 / 27 + skewness / (6 * 20))

    quantile = stats.t.ppf(0.975, 19)
    assert transformed(estimate.low) == pytest.approx(quantile)
    assert transformed(estimate.high) == pytest.approx(-quantile)


def test_no_gap_is_below_zero():
    assert GapEstimate.of([0.0, 1.0, 0.0]).low == 0.0


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: EpisodeTrees([]), "at least one level"),
        (lambda: EpisodeTrees([np.zeros((2, 3, 4)), np.zeros((2, 6, 4))]), r"features\[1\] .* \(2, 9, 4\)"),
        (lambda: EpisodeTrees([np.zeros((0, 3, 4))]), "at least one noise"),
        (lambda: trees_of(2, 2, 2, 3, 0).path_features([[0, 2], [0, 0]]), "actions in 0..1"),
        (lambda: trees_of(2, 2, 2, 3, 0).select([2]), "noises in 0..1"),
        (lambda: MeanEstimate.of([1.0]), "at least 2 noises"),
        (lambda: MeanEstimate.of([1.0, 2.0], level=1.0), "below 1"),
        (lambda: ball_maximum(np.eye(2), np.zeros((1, 2)), 0.0), "radius"),
        (lambda: enumerated_gap(world(3), lambda f, s: np.zeros(len(f)), np.zeros((3, 2, H), int), [1.0]), r"\(2,\)"),
        (lambda: enumerated_gap(world(3), lambda f, s: np.zeros(len(f)), np.zeros((2, 2, H), int)), "played"),
    ],
)
def test_messages(call, message):
    with pytest.raises(ValueError, match=message):
        call()
