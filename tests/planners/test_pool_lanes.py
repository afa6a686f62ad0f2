"""Options that come from lanes of their own: every rule keeps to them, and finds the best question among them."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edpbrl_gym.planners.pool import PoolState, ScoreRule, search_questions
from edpbrl_gym.planners.pool.batches import DopeWolfe, RolloutPool
from edpbrl_gym.planners.pool.lanes import check_lanes, draw_questions
from edpbrl_gym.planners.registry import RULES, make_rule
from tests.helpers.rules_tools import Pool, information, log_det

SEARCHED = sorted(name for name in RULES if isinstance(make_rule(name), ScoreRule))


def state_with(lanes, *, seed: int = 1000, n: int = 12, K: int = 3, draws: int = 8) -> PoolState:
    pool = Pool(seed, n=n, K=K)
    return replace(pool.state(draws=draws, seed=seed), lanes=tuple(np.array(lane) for lane in lanes))


def fits(question: np.ndarray, lanes) -> bool:
    own = all(int(item) in set(np.asarray(lane).tolist()) for item, lane in zip(question, lanes, strict=True))
    return own and len(set(question.tolist())) == len(lanes)


def legal(lanes) -> np.ndarray:
    """All questions that the lanes allow, written out."""
    every = itertools.product(*(np.asarray(lane).tolist() for lane in lanes))
    return np.array([row for row in every if len(set(row)) == len(row)])


LANES = {
    2: [[[0, 3, 5, 7], [1, 2, 4, 6, 8]], [[1, 4, 9, 2], [1, 2, 4, 9]]],
    3: [[[0, 3, 5, 7], [1, 2, 4], [6, 8, 9, 10, 11]], [[2, 5, 6, 1], [0, 3, 4, 7], [6, 5, 1, 2]]],
}


@pytest.mark.parametrize("exhaustive", [5000, 0])
@pytest.mark.parametrize(("K", "lanes"), [(K, lanes) for K, given in LANES.items() for lanes in given])
@pytest.mark.parametrize("name", SEARCHED)
def test_a_rule_finds_the_best_question_of_the_lanes(name: str, K: int, lanes, exhaustive: int) -> None:
    state = state_with(lanes, K=K)
    rule = make_rule(name, exhaustive=exhaustive, starts=60)
    found = rule.propose(state)
    assert fits(found, lanes)
    value = make_rule(name).prepare(replace(state, rng=np.random.default_rng([1000])))
    best = max(float(value(row[None])[0]) for row in legal(lanes))
    assert float(value(found[None])[0]) == pytest.approx(best, abs=1e-9)


@pytest.mark.parametrize("K", [2, 3])
def test_the_best_question_of_the_lanes_against_the_information_written_out(K: int) -> None:
    lanes = LANES[K][0]
    state = state_with(lanes, K=K)
    found = make_rule("adaptive_d", exhaustive=0, starts=12).propose(state)
    best = max(
        legal(lanes).tolist(), key=lambda row: log_det(state.precision + information(state.items[row], state.mean))
    )
    assert found.tolist() == best or set(found.tolist()) == set(best)


@st.composite
def lanes_of(draw):
    """Lanes of a pool: blocks of a random permutation, each shared by some of the options."""
    K = draw(st.integers(2, 4))
    blocks = draw(st.integers(1, K))
    owners = [*range(blocks), *(draw(st.integers(0, blocks - 1)) for _ in range(K - blocks))]
    sizes = [owners.count(b) + draw(st.integers(0, 4)) for b in range(blocks)]
    extra = draw(st.integers(0, 3))  # items of no lane
    seed = draw(st.integers(1000, 1_000_000))
    order = np.random.default_rng(seed).permutation(sum(sizes) + extra)
    parts = np.split(order, np.cumsum(sizes))[:blocks]
    return K, len(order), [parts[b] for b in owners], seed


@pytest.mark.parametrize("name", sorted(RULES))
@settings(max_examples=25)
@given(lanes_of())
def test_no_rule_leaves_the_lanes(name: str, drawn) -> None:
    K, n, lanes, seed = drawn
    state = state_with(lanes, seed=seed, n=max(n, K), K=K)
    options = {"iterations": 3} if name == "dopewolfe" else {}
    if name not in ("random_distinct", "thinning", "dopewolfe", "rollout_pool", "dueling_thompson", "maximum_regret"):
        options = {"exhaustive": seed % 2 * 5000}
    rule = make_rule(name, **options)
    for _ in range(2):
        question = rule.propose(state)
        assert question.shape == (K,) and fits(question, lanes)
    if hasattr(rule, "plan"):
        assert all(fits(row, lanes) for row in rule.plan(state, 5))


@pytest.mark.parametrize("rule", [RolloutPool(rule=name, size=6) for name in ("bald", "thinning", "maximum_regret")])
def test_a_rollout_pool_keeps_to_the_lanes_and_their_shares(rule: RolloutPool) -> None:
    lanes = LANES[3][1]
    state = state_with(lanes, K=3)
    seen = {int(item) for _ in range(30) for item in rule.propose(replace(state, rng=np.random.default_rng()))}
    assert fits(rule.propose(state), lanes)
    assert len(seen & {1, 2, 5, 6}) <= 4 and len(seen & {0, 3, 4, 7}) <= 2


def test_rules_that_search_nothing_use_the_lanes_favourites() -> None:
    lanes = [[0, 3, 5, 7], [1, 2, 4], [6, 8, 9, 10, 11]]
    state = state_with(lanes, K=3)
    tops = [np.array(lane)[state.draw_utilities[lane].argmax(axis=0)] for lane in lanes]
    # option q is the favourite of draw q
    assert make_rule("dueling_thompson").propose(state).tolist() == [int(top[q]) for q, top in enumerate(tops)]
    found = make_rule("maximum_regret").propose(state)
    M = len(state.draws)
    moved = state.draws - state.mean
    logs = [-0.5 * one @ state.precision @ one for one in moved]

    def worth(draws) -> float:
        options = [state.items[tops[q][m]] for q, m in enumerate(draws)]
        regret = 0.0
        for (a, m), (b, k) in itertools.combinations(zip(options, draws, strict=True), 2):
            regret += max(state.draws[m] @ (a - b), 0) + max(state.draws[k] @ (b - a), 0)
        return float(np.log(max(regret, 1e-300)) + sum(logs[m] for m in draws))

    best = max(itertools.permutations(range(M), 3), key=worth)
    assert found.tolist() == [int(tops[q][m]) for q, m in enumerate(best)]


def test_all_questions_of_the_lanes_are_equally_likely() -> None:
    lanes = check_lanes([np.array([4, 1]), np.array([0, 2, 3]), np.array([1, 4])], 6, 3)
    table = legal(lanes)
    drawn = draw_questions(12_000, 6, 3, np.random.default_rng(1000), lanes=lanes)
    rows, counts = np.unique(drawn, axis=0, return_counts=True)
    assert sorted(map(tuple, rows.tolist())) == sorted(map(tuple, table.tolist()))
    assert counts == pytest.approx(2000, abs=6 * np.sqrt(2000))


def test_lanes_of_all_items_are_no_lanes() -> None:
    state = Pool(1001, n=9, K=3).state()
    whole = replace(state, lanes=(np.arange(9),) * 3)
    for name in SEARCHED:
        found = [set(make_rule(name).propose(one).tolist()) for one in (state, whole)]
        if name != "directed_fisher":  # which breaks ties of the best items at random
            assert found[0] == found[1], name


def test_a_design_is_of_its_pool_and_lanes() -> None:
    state = state_with(LANES[3][0], K=3)
    rule = DopeWolfe(iterations=5)
    design = rule.design(state)
    assert rule.design(replace(state, rng=np.random.default_rng(3))) is design
    again = DopeWolfe(iterations=5).design(replace(state, rng=np.random.default_rng(3)))
    np.testing.assert_array_equal(again.questions, design.questions)  # it has its own seed
    assert rule.design(replace(state, lanes=None)) is not design


@pytest.mark.parametrize("repeats", [False, True])
def test_repeats_within_lanes(repeats: bool) -> None:
    lanes = [np.arange(3), np.arange(3)]
    rng = np.random.default_rng(0)
    for exhaustive in (0, 100):
        found, worth = search_questions(
            lambda q: -np.abs(q - 1.0).sum(axis=1), 3, 2, rng=rng, lanes=lanes, repeats=repeats, exhaustive=exhaustive
        )
        assert (worth == 0.0) == repeats and (found[0] == found[1]) == repeats


@pytest.mark.parametrize(
    ("lanes", "message"),
    [
        ([[0, 1]], "lanes for K = 2 options, got 1"),
        ([[0, 1], []], r"lanes\[1\]"),
        ([[0, 0], [1, 2]], r"different items in lanes\[0\]"),
        ([[0, 1], [1, 2]], r"lanes\[1\] to have the same items as an earlier lane"),
        ([[0, 1], [0]], r"lanes\[1\] to have the same items as an earlier lane"),
        ([[0], [0]], r"at least 2 items in lanes\[0\], which as many options share, got 1"),
        ([[0, 1], [2, 9]], r"lanes\[1\]"),
    ],
)
def test_wrong_lanes(lanes, message: str) -> None:
    state = Pool(n=9, K=2).state()
    with pytest.raises(ValueError, match=message):
        replace(state, lanes=tuple(np.array(lane, dtype=np.int64) for lane in lanes))
