"""Favourites of draws, thinning, DopeWolfe and rollouts: against searches written out and optima found another way."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

from edpbrl_gym.likelihood.choice import fisher_information
from edpbrl_gym.planners.registry import make_rule
from edpbrl_gym.planners.rules import PoolState
from edpbrl_gym.planners.rules.batches import solve_subset_design, thin
from edpbrl_gym.planners.rules.state import Lanes, draw_questions
from tests.helpers.rules_tools import Pool, log_det

LANES = Lanes(np.array([0, 1, 1, 0, 1, 0, 2, 0, 2, 2, 2, 2]), np.array([0, 1, 2]))


def favourite(state: PoolState, theta: np.ndarray) -> int:
    return int((state.items @ theta).argmax())


@pytest.mark.parametrize("K", [2, 3])
def test_thompson_asks_the_favourites_of_the_first_draws_that_differ(K: int) -> None:
    state = Pool(1000, n=12, K=K).state(draws=16)
    expected = list(dict.fromkeys(favourite(state, theta) for theta in state.draws))
    assert len(expected) >= K  # else the seed tests nothing
    assert make_rule("dueling_thompson").propose(state).tolist() == expected[:K]


def test_thompson_redraws_until_the_items_differ() -> None:
    state = Pool(1000, n=8).state()
    one, counts = np.repeat(state.draws[:1], 2, axis=0), np.zeros(8)
    first = favourite(state, one[0])
    for seed in range(200):
        seeded = replace(state, draws=one, rng=np.random.default_rng(seed))
        chosen = make_rule("dueling_thompson").propose(seeded)
        assert chosen[0] == first and len(set(chosen.tolist())) == 3
        counts[chosen[1]] += 1
    # the second item follows the probability to be the best one, among the others
    thetas = np.random.default_rng(5).multivariate_normal(state.mean, np.linalg.inv(state.precision), size=100_000)
    likely = np.bincount((thetas @ state.items.T).argmax(axis=1), minlength=8).astype(float)
    likely[first] = 0.0
    assert np.abs(counts / 200 - likely / likely.sum()).max() < 4 * np.sqrt(0.25 / 200)


def test_a_sure_posterior_is_filled_up_with_the_next_best_items() -> None:
    state = Pool(1000).state()
    best = np.argsort(-state.items @ state.mean)
    sure = replace(state, draws=np.repeat(state.mean[None], 4, axis=0), precision=1e14 * np.eye(4))
    for rule in (make_rule("dueling_thompson", attempts=20), make_rule("maximum_regret")):
        assert rule.propose(sure).tolist() == best[:3].tolist()


@pytest.mark.parametrize("K", [2, 3])
def test_maximum_regret_agrees_with_a_search_through_all_sets_of_draws(K: int) -> None:
    for seed, lanes in itertools.product((1000, 1001, 1002), (None, LANES)):
        lanes = lanes and Lanes(lanes.of_items, lanes.of_options[:K])
        state = replace(Pool(seed, n=12, K=K).state(draws=10), lanes=lanes)
        own = [np.arange(12) if lanes is None else np.flatnonzero(lanes.of_items == lane) for lane in range(K)]
        best, expected = -np.inf, []
        for draws in itertools.permutations(range(10), K):
            thetas = state.draws[list(draws)]
            chosen = [items[(state.items[items] @ theta).argmax()] for items, theta in zip(own, thetas, strict=True)]
            if len(set(chosen)) < K:
                continue
            options, moved = state.items[chosen], thetas - state.mean
            value = np.exp(-0.5 * np.vecdot(moved, moved @ state.precision).sum())
            value *= sum(
                max(thetas[a] @ (options[a] - options[b]), 0.0) + max(thetas[b] @ (options[b] - options[a]), 0.0)
                for a, b in itertools.combinations(range(K), 2)
            )
            if value > best * (1 + 1e-12):
                best, expected = value, sorted(map(int, chosen))
        assert sorted(make_rule("maximum_regret").propose(state).tolist()) == expected


def told(state: PoolState, questions: np.ndarray) -> float:
    return log_det(state.agnostic + fisher_information(state.items[questions])) - log_det(state.agnostic)


@pytest.mark.parametrize("K", [2, 3])
def test_thinning_picks_the_most_telling_candidate_each_time(K: int) -> None:
    state = Pool(1000, n=10, d=3, K=K, asked=3).state()
    batch = draw_questions(30, 10, K, np.random.default_rng(1))
    current, by_hand = state.agnostic.copy(), []
    while len(by_hand) < 30 and log_det(current) - log_det(state.agnostic) < told(state, batch) * (1 - 1e-9):
        best = max(batch, key=lambda one: log_det(current + fisher_information(state.items[one][None])))  # noqa: B023
        current = current + fisher_information(state.items[best][None])
        by_hand.append(best.tolist())
    picks = thin(batch, state.items, state.agnostic, limit=30)
    assert picks.tolist() == by_hand and 0 < len(picks) < 30
    assert told(state, picks) >= told(state, batch) * (1 - 1e-6)
    assert thin(batch, state.items, state.agnostic, limit=2).tolist() == by_hand[:2]
    with pytest.raises(ValueError, match="items that differ"):
        thin(batch, np.ones((10, 3)), np.eye(3), limit=2)


def best_design(items: np.ndarray, K: int) -> float:
    """The optimal log det over all subsets by the multiplicative algorithm (Silvey, Titterington and Torsney, 1978)."""
    subsets = np.array(list(itertools.combinations(range(len(items)), K)))
    atoms = np.array([K**2 * fisher_information(items[subset][None]) for subset in subsets])
    weights = np.full(len(atoms), 1.0 / len(atoms))
    for _ in range(2000):
        inverse = np.linalg.inv(np.tensordot(weights, atoms, axes=1))
        weights *= np.einsum("sij,ij->s", atoms, inverse) / items.shape[1]
    traces = np.einsum("sij,ij->s", atoms, np.linalg.inv(np.tensordot(weights, atoms, axes=1)))
    assert traces.max() < items.shape[1] + 0.02  # the equivalence theorem: this is the optimum
    return log_det(np.tensordot(weights, atoms, axes=1))


@pytest.mark.parametrize("K", [2, 3])
def test_dopewolfe_finds_the_optimal_distribution(K: int) -> None:
    items = Pool(1000, d=3).items
    design = solve_subset_design(items, K, rng=np.random.default_rng(0), iterations=800)
    assert design.weights.sum() == pytest.approx(1.0) and design.weights.min() > 0
    assert all(len(set(row)) == K for row in design.questions.tolist())
    atoms = [K**2 * fisher_information(items[question][None]) for question in design.questions]
    reached, best = log_det(np.tensordot(design.weights, atoms, axes=1)), best_design(items, K)
    assert best - 0.02 < reached <= best + 1e-6
    assert 0 <= design.gap < 0.5


def test_dopewolfe_solves_a_pool_with_its_own_seed_and_samples_from_it() -> None:
    pool, rule = Pool(1000, d=3), make_rule("dopewolfe", iterations=100)
    state = pool.state()
    plan = rule.plan(state, 3000)
    rng = np.random.default_rng([0, 9])
    design = solve_subset_design(state.items, 3, rng=rng, subsets=64, iterations=100)
    assert {tuple(row) for row in plan.tolist()} <= {tuple(row) for row in design.questions.tolist()}
    heaviest = int(design.weights.argmax())
    share = float((plan == design.questions[heaviest]).all(axis=1).mean())
    assert share == pytest.approx(design.weights[heaviest], abs=5 * np.sqrt(0.25 / 3000))


def test_dopewolfe_needs_no_spanning_items_but_some_that_differ() -> None:
    items = np.random.default_rng(3).standard_normal((6, 2)) @ np.random.default_rng(4).standard_normal((2, 5))
    design = solve_subset_design(items, 2, rng=np.random.default_rng(0), iterations=50)
    assert np.isfinite(design.weights).all()
    with pytest.raises(ValueError, match="all are the same"):
        solve_subset_design(np.ones((4, 2)), 2, rng=np.random.default_rng(0))


@pytest.mark.parametrize("rule", ["adaptive_d", "naive"])
@pytest.mark.parametrize("asked", [0, 6])
def test_a_rollout_pool_asks_what_its_rule_finds_among_the_candidates_and_earlier_items(rule: str, asked: int) -> None:
    state = Pool(1000, n=40, K=2, asked=asked).state()
    places = set(np.random.default_rng([3, 40]).choice(40, 9, replace=False).tolist())
    known = sorted(places | {item for question in state.asked for item in question})
    value = make_rule(rule).value(state)
    best = max(itertools.combinations(known, 2), key=lambda question: float(value(np.array([question]))[0]))
    pool = make_rule("rollout_pool", rule=rule, size=9, seed=3)
    assert pool.adaptive == (rule == "adaptive_d")
    for _ in range(2):  # the candidates are drawn once
        assert set(pool.propose(state).tolist()) == set(best)


@pytest.mark.parametrize("name", ["bald", "thinning", "maximum_regret"])
def test_a_rollout_pool_keeps_to_the_lanes_and_their_shares(name: str) -> None:
    lanes = Lanes(np.array([1, 0, 0, 1, 1, 0, 0, 1, -1, -1, -1, -1]), np.array([0, 1, 0]))
    state, rule = replace(Pool(1000, n=12).state(), lanes=lanes), make_rule("rollout_pool", rule=name, size=6)
    questions = [rule.propose(replace(state, rng=np.random.default_rng(seed))) for seed in range(20)]
    assert all((lanes.of_items[question] == lanes.of_options).all() for question in questions)
    seen = {int(item) for question in questions for item in question}
    assert len(seen & {1, 2, 5, 6}) <= 4 and len(seen & {0, 3, 4, 7}) <= 2
