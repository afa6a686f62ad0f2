"""Thinning, DopeWolfe, random questions and random rollouts: against optima found another way, and what is known."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from edpbrl_gym.estimation import GaussianPrior
from edpbrl_gym.likelihood.choice import fisher_information
from edpbrl_gym.planners.pool import Rule
from edpbrl_gym.planners.pool.batches import DopeWolfe, RandomQuestions, RolloutPool, Thinning
from edpbrl_gym.planners.pool.information import AdaptiveD, NaiveDesign
from edpbrl_gym.planners.pool.lanes import draw_questions
from edpbrl_gym.planners.pool.state import PoolState
from edpbrl_gym.planners.pool.subsets import solve_subset_design, thin
from edpbrl_gym.planners.pool.trajectories import sample_trajectories


def make_state(*, n: int = 10, d: int = 3, K: int = 2, asked: int = 0, seed: int = 1000) -> PoolState:
    rng = np.random.default_rng(seed)
    items = rng.standard_normal((n, d))
    questions = np.array([rng.choice(n, K, replace=False) for _ in range(asked)], dtype=int).reshape(asked, K)
    choices = rng.integers(K, size=asked)
    prior = GaussianPrior.isotropic(d, 0.5)
    return PoolState.of(items, prior, questions, choices, num_options=K, draws=8, seed=seed)


def log_det(matrix: np.ndarray) -> float:
    return float(np.linalg.slogdet(matrix)[1])


def information(items: np.ndarray, questions: np.ndarray) -> np.ndarray:
    """Sum of F(S; 0)."""
    return np.asarray(fisher_information(items[np.asarray(questions)]))


# ------------------------------------------------------------------------------------------------------ random


@pytest.mark.parametrize("K", [2, 3, 4])
def test_every_ordered_question_is_equally_likely(K: int) -> None:
    drawn = draw_questions(48_000, 5, K, np.random.default_rng(1))
    found, counts = np.unique(drawn, axis=0, return_counts=True)
    every = np.array(sorted(itertools.permutations(range(5), K)))
    np.testing.assert_array_equal(found, every)
    expected = len(drawn) / len(every)
    assert np.square(counts - expected).sum() / expected < len(every) + 6 * np.sqrt(2 * len(every))  # chi-squared


def test_random_proposes_and_plans_different_items() -> None:
    state = make_state(K=3)
    assert len(set(RandomQuestions().propose(state).tolist())) == 3
    plan = RandomQuestions().plan(state, 50)
    assert plan.shape == (50, 3)
    assert all(len(set(row)) == 3 for row in plan.tolist())
    assert len(np.unique(np.sort(plan, axis=1), axis=0)) > 30


# ---------------------------------------------------------------------------------------------------- thinning


def thinned_by_hand(
    batch: np.ndarray, items: np.ndarray, agnostic: np.ndarray, *, repeats: bool, share: float = 1.0
) -> list[list[int]]:
    """Greedy picks with a determinant for every candidate."""
    whole = log_det(agnostic + information(items, batch)) - log_det(agnostic)
    current, picks, free = agnostic.copy(), [], set(range(len(batch)))
    while free and len(picks) < len(batch) and log_det(current) - log_det(agnostic) < share * whole * (1 - 1e-9):
        best = max(free, key=lambda b: log_det(current + information(items, batch[b : b + 1])))
        current = current + information(items, batch[best : best + 1])
        picks.append(batch[best].tolist())
        if not repeats:
            free.remove(best)
    return picks


@pytest.mark.parametrize("K", [2, 3])
@pytest.mark.parametrize(("repeats", "share"), [(True, 1.0), (False, 0.8), (True, 0.5)])
def test_thinning_picks_the_most_telling_candidate_each_time(K: int, repeats: bool, share: float) -> None:
    state = make_state(K=K, asked=3)
    batch = RandomQuestions().plan(state, 30)
    picks = thin(batch, state.items, state.agnostic, repeats=repeats, share=share)
    assert picks.tolist() == thinned_by_hand(batch, state.items, state.agnostic, repeats=repeats, share=share)
    assert 0 < len(picks) < len(batch)
    reached = log_det(state.agnostic + information(state.items, picks)) - log_det(state.agnostic)
    whole = log_det(state.agnostic + information(state.items, batch)) - log_det(state.agnostic)
    assert reached >= share * whole * (1 - 1e-6)
    short = log_det(state.agnostic + information(state.items, picks[:-1])) - log_det(state.agnostic)
    assert short < share * whole  # one less would not do


def test_for_pairs_the_pick_is_the_longest_difference_in_the_inverse_metric() -> None:
    state = make_state(n=12, asked=4)
    batch = RandomQuestions().plan(state, 40)
    differences = state.items[batch[:, 0]] - state.items[batch[:, 1]]
    lengths = np.einsum("bd,de,be->b", differences, np.linalg.inv(state.agnostic), differences)
    first = thin(batch, state.items, state.agnostic, limit=1)[0]
    assert first.tolist() == batch[lengths.argmax()].tolist()


def test_a_batch_whose_every_question_is_needed_is_asked_as_it_is() -> None:
    items = np.vstack([np.zeros(3), np.eye(3)])
    batch = np.array([[0, 1], [0, 2], [0, 3]])
    for repeats in (True, False):
        picks = thin(batch, items, np.eye(3), repeats=repeats)
        assert sorted(picks.tolist()) == batch.tolist()


def test_thinning_proposes_and_plans() -> None:
    state = make_state(n=12, K=3)
    plan = Thinning(oversampling=6).plan(state, 10)
    assert plan.shape[1] == 3 and 0 < len(plan) <= 10
    random = RandomQuestions().plan(state, len(plan))
    assert log_det(state.agnostic + information(state.items, plan)) > log_det(
        state.agnostic + information(state.items, random)
    )
    values = [log_det(state.agnostic + information(state.items, q[None])) for q in RandomQuestions().plan(state, 200)]
    proposed = Thinning().propose(state)
    assert log_det(state.agnostic + information(state.items, proposed[None])) > np.quantile(values, 0.9)


# --------------------------------------------------------------------------------------------------- DopeWolfe


def best_design(items: np.ndarray, K: int) -> float:
    """The optimal log det over all subsets by the multiplicative algorithm (Silvey, Titterington and Torsney, 1978)."""
    subsets = np.array(list(itertools.combinations(range(len(items)), K)))
    atoms = np.array([K**2 * information(items, subset[None]) for subset in subsets])
    weights = np.full(len(atoms), 1.0 / len(atoms))
    for _ in range(4000):
        inverse = np.linalg.inv(np.tensordot(weights, atoms, axes=1))
        weights *= np.einsum("sij,ij->s", atoms, inverse) / items.shape[1]
    traces = np.einsum("sij,ij->s", atoms, np.linalg.inv(np.tensordot(weights, atoms, axes=1)))
    assert traces.max() < items.shape[1] + 0.01  # the equivalence theorem: this is the optimum
    return log_det(np.tensordot(weights, atoms, axes=1))


@pytest.mark.parametrize("K", [2, 3])
def test_dopewolfe_finds_the_optimal_distribution(K: int) -> None:
    state = make_state(n=9, K=K)
    design = DopeWolfe(iterations=800).design(state)
    assert design.weights.sum() == pytest.approx(1.0)
    assert design.weights.min() > 0
    assert all(len(set(row)) == K for row in design.questions.tolist())
    reached = log_det(design.information(state.items))
    best = best_design(state.items, K)
    assert best - 0.02 < reached <= best + 1e-6
    assert 0 <= design.gap < 0.5
    # the pairs' form of K^2 F(S; 0)
    question = design.questions[0]
    pairs = [np.subtract(*state.items[list(pair)]) for pair in itertools.combinations(question, 2)]
    np.testing.assert_allclose(K**2 * information(state.items, question[None]), sum(np.outer(p, p) for p in pairs))


def test_the_method_keeps_count_of_its_own_information() -> None:
    state = make_state(n=9, d=4, K=3)
    design = solve_subset_design(state.items, 3, rng=np.random.default_rng(0), subsets=20, iterations=60)
    first = draw_questions(32 * 4 // 2, 9, 3, np.random.default_rng(0))
    scale = 9 * np.trace(information(state.items, first)) / (len(first) * 4)
    matrix = design.start * scale * np.eye(4) + (1 - design.start) * design.information(state.items)
    assert design.log_determinant == pytest.approx(log_det(matrix), abs=1e-8)


def test_dopewolfe_solves_a_pool_once_and_samples_from_it() -> None:
    state = make_state(n=9, K=3)
    rule = DopeWolfe(iterations=100)
    design = rule.design(state)
    assert rule.design(state) is design
    support = {tuple(row) for row in design.questions.tolist()}
    plan = rule.plan(state, 3000)
    assert {tuple(row) for row in plan.tolist()} <= support
    heaviest = int(design.weights.argmax())
    share = float((plan == design.questions[heaviest]).all(axis=1).mean())
    assert share == pytest.approx(design.weights[heaviest], abs=5 * np.sqrt(0.25 / 3000))
    assert tuple(rule.propose(state).tolist()) in support
    assert rule.design(make_state(n=8, K=3)) is not design


def test_dopewolfe_needs_no_spanning_items() -> None:
    items = np.random.default_rng(3).standard_normal((6, 2)) @ np.random.default_rng(4).standard_normal((2, 5))
    design = solve_subset_design(items, 2, rng=np.random.default_rng(0), iterations=50)
    assert np.isfinite(design.weights).all() and design.start > 0
    with pytest.raises(ValueError, match="all are the same"):
        solve_subset_design(np.ones((4, 2)), 2, rng=np.random.default_rng(0))


# ---------------------------------------------------------------------------------------------------- rollouts


def test_random_trajectories_are_different_and_all_come() -> None:
    every = sample_trajectories((3, 2, 4), 2000, np.random.default_rng(0))
    assert sorted(map(tuple, every.tolist())) == list(itertools.product(range(3), range(2), range(4)))
    few = sample_trajectories((50,) * 6, 200, np.random.default_rng(0))
    assert len(few) == 200 == len(np.unique(few, axis=0)) and few.min() >= 0 and few.max() == 49


@pytest.mark.parametrize("K", [2, 3])
def test_a_rollout_pool_asks_what_its_rule_finds_among_the_candidates(K: int) -> None:
    state = make_state(n=40, K=K)
    pool = RolloutPool(rule="adaptive_d", size=9, seed=3)
    assert isinstance(pool, Rule) and pool.adaptive
    proposed = set(pool.propose(state).tolist())
    places = np.random.default_rng([3, 40]).choice(40, 9, replace=False)
    best = max(
        itertools.combinations(sorted(places.tolist()), K),
        key=lambda q: log_det(state.precision + fisher_information(state.items[list(q)][None], state.mean)),
    )
    assert proposed == set(best)
    assert set(pool.propose(state).tolist()) == proposed  # the candidates are drawn once


def test_a_pool_of_all_items_is_the_rule_itself() -> None:
    state = make_state(n=10, K=3, asked=4)
    for rule in (AdaptiveD(), NaiveDesign()):
        assert set(RolloutPool(rule=rule).propose(state).tolist()) == set(rule.propose(state).tolist())


def test_a_rollout_pool_goes_on_from_questions_of_others() -> None:
    state = make_state(n=40, K=2, asked=6)
    places = set(np.random.default_rng([0, 40]).choice(40, 5, replace=False).tolist())
    known = sorted(places | {item for question in state.asked for item in question})
    assert len(known) < 20
    for rule in (AdaptiveD(), NaiveDesign()):
        second = state.agnostic + sum(np.outer(m, m) for m in state.items[np.array(state.asked)].mean(axis=1))
        base = state.precision if isinstance(rule, AdaptiveD) else second

        def gain(question: tuple[int, ...], rule: Rule = rule, base: np.ndarray = base) -> float:
            options = state.items[list(question)]
            naive = options.T @ options / 2
            added = fisher_information(options[None], state.mean) if isinstance(rule, AdaptiveD) else naive
            return log_det(base + added)

        best = max(itertools.combinations(known, 2), key=gain)
        assert set(RolloutPool(rule=rule, size=5).propose(state).tolist()) == set(best)


def test_options_are_checked() -> None:
    for wrong in (0.0, 1.5, float("nan")):
        with pytest.raises(ValueError, match="share"):
            Thinning(share=wrong)
    with pytest.raises(ValueError, match="subsets"):
        DopeWolfe(subsets=0)
    with pytest.raises(ValueError, match="rule"):
        RolloutPool(rule="none")
    with pytest.raises(ValueError, match="positive definite"):
        thin(np.array([[0, 1]]), np.eye(2), np.zeros((2, 2)))
    with pytest.raises(ValueError, match="items that differ"):
        thin(np.array([[0, 1], [1, 2]]), np.ones((3, 2)), np.eye(2))
