"""Rules on pools of items: the state, the search, and what holds of every rule, also where options have lanes."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edpbrl_gym.estimation import GaussianPrior, estimate
from edpbrl_gym.planners.registry import RULES, make_rule
from edpbrl_gym.planners.rules import PoolState, search_questions
from edpbrl_gym.planners.rules.state import Lanes, draw_questions
from tests.helpers.rules_tools import Pool, information

VALUED = sorted(name for name, entry in RULES.items() if entry.kind == "value")
QUICK = {"dopewolfe": {"iterations": 5}}
# items of each lane, and the lane of each option


def made(blocks, options, n: int = 12) -> Lanes:
    of_items = np.full(n, -1)
    for lane, items in enumerate(blocks):
        of_items[np.asarray(items)] = lane
    return Lanes(of_items, np.array(options))


def fits(question: np.ndarray, lanes: Lanes) -> bool:
    return bool((lanes.of_items[question] == lanes.of_options).all()) and len(set(question.tolist())) == len(question)


def legal(lanes: Lanes) -> np.ndarray:
    every = itertools.product(range(len(lanes.of_items)), repeat=len(lanes.of_options))
    return np.array([row for row in every if fits(np.array(row), lanes)])


def test_the_state_is_the_estimate_its_information_and_that_at_zero():
    pool = Pool(1001)
    answers = pool.choices.copy()
    answers[1] = -1  # without an answer a question counts only where no answers are needed
    state, kept = pool.state(choices=answers), [0, 2, 3]
    found = estimate((pool.items[pool.questions[kept]], pool.choices[kept]), prior=pool.prior)
    np.testing.assert_allclose(state.mean, found.theta)
    options = pool.items[pool.questions]
    at_mean = pool.prior.precision + sum(information(one, state.mean) for one in options[kept])
    at_zero = pool.prior.precision + sum(information(one, np.zeros(4)) for one in options)
    np.testing.assert_allclose(state.precision, at_mean)
    np.testing.assert_allclose(state.agnostic, at_zero)
    assert state.asked == tuple(map(tuple, pool.questions.tolist()))
    covariance = np.linalg.inv(state.precision)
    np.testing.assert_allclose(state.solved, state.items @ covariance)
    np.testing.assert_allclose(state.solve(state.items[2]), covariance @ state.items[2])
    before = PoolState.of(pool.items, pool.prior, [], [], num_options=3)
    np.testing.assert_allclose(before.precision, pool.prior.precision)
    assert not before.mean.any() and before.asked == ()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_options": 10}, "at least K = 10 items, got 9"),
        ({"num_options": 1}, "num_options"),
        ({"questions": [[0, 1, 9]], "choices": [0]}, "questions in 0..8, got 9"),
        ({"questions": [[0, 1, 2]], "choices": [3]}, "choices in -1..2, got 3"),
        ({"questions": [[0, 1]], "choices": [0]}, "questions of shape"),
        ({"items": np.full((9, 4), np.nan)}, "finite items"),
        ({"prior": GaussianPrior.isotropic(4, 0.0)}, "proper prior"),
        ({"prior": GaussianPrior.isotropic(3, 1.0)}, "dimension 4"),
    ],
)
def test_what_makes_no_state_is_said(change, message):
    pool = Pool()
    parts = {"items": pool.items, "prior": pool.prior, "questions": [], "choices": [], "num_options": 3} | change
    with pytest.raises(ValueError, match=message):
        PoolState.of(**parts)


@pytest.mark.parametrize(
    ("change", "rule", "message"),
    [
        ({"precision": np.zeros((4, 4))}, "adaptive_a", "precision as a positive definite matrix"),
        ({"agnostic": np.zeros((4, 4))}, "greedy_d", "agnostic as a positive definite matrix"),
        ({"agnostic": np.zeros((4, 4)), "asked": ()}, "thinning", "agnostic as a positive definite matrix"),
        ({"draws": np.empty((0, 4))}, "bald", "at least one draw"),  # to draw until items differ would never end
        ({"lanes": Lanes(np.zeros(9, dtype=int), np.zeros(2, dtype=int))}, "bald", "lanes.of_options of shape"),
        ({"lanes": made([[0, 1], [2]], [0, 1, 1], 9)}, "bald", "at least 2 items in the lane of option 1"),
    ],
)
def test_a_state_of_which_a_rule_can_make_nothing_is_said(change, rule, message):
    with pytest.raises(ValueError, match=message):
        make_rule(rule).propose(replace(Pool().state(), **change))


@pytest.mark.parametrize("exhaustive", [0, 5000])
def test_a_value_that_is_no_number_is_said(exhaustive):
    def value(table):
        return np.where(table[:, 0] == 0, np.nan, 1.0)

    with pytest.raises(ValueError, match="NaN"):
        search_questions(value, 6, 2, rng=np.random.default_rng(1), starts=8, exhaustive=exhaustive)


@pytest.mark.parametrize("name", sorted(RULES))
def test_every_rule_asks_about_k_different_items_and_says_what_it_is(name):
    for K, asked in ((2, 4), (3, 4), (3, 0)):
        pool, rule = Pool(1010, n=12, K=K, asked=asked), make_rule(name, **QUICK.get(name, {}))
        question = rule.propose(pool.state(seed=5))
        assert rule.name == name and question.shape == (K,) and question.dtype.kind == "i"
        assert len(set(question.tolist())) == K and 0 <= question.min() and question.max() < 12
        np.testing.assert_array_equal(question, rule.propose(pool.state(seed=5)))
        if asked and not rule.adaptive:  # it looks at no answer
            others = pool.state(seed=5, choices=(pool.choices + 1) % K)
            np.testing.assert_array_equal(rule.propose(others), question)


@st.composite
def drawn_lanes(draw):
    """Blocks of a random permutation, each shared by some of the options, and a few items of no lane."""
    K = draw(st.integers(2, 4))
    count = draw(st.integers(1, K))
    owners = [*range(count), *(draw(st.integers(0, count - 1)) for _ in range(K - count))]
    sizes = [owners.count(lane) + draw(st.integers(0, 4)) for lane in range(count)]
    seed = draw(st.integers(1000, 1_000_000))
    order = np.random.default_rng(seed).permutation(sum(sizes) + draw(st.integers(0, 3)))
    return made(np.split(order, np.cumsum(sizes))[:count], owners, len(order)), seed


@pytest.mark.parametrize("name", sorted(RULES))
@settings(max_examples=10)
@given(drawn_lanes())
def test_no_rule_leaves_the_lanes(name: str, drawn) -> None:
    lanes, seed = drawn
    options = {"exhaustive": seed % 2 * 5000} if name in VALUED else QUICK.get(name, {})
    rule, K = make_rule(name, **options), len(lanes.of_options)
    state = replace(Pool(seed, n=len(lanes.of_items), K=K).state(seed=seed), lanes=lanes)
    assert all(fits(rule.propose(state), lanes) for _ in range(2))
    if rule.kind == "batch":
        assert all(fits(row, lanes) for row in rule.plan(state, 5))


def test_all_questions_of_the_lanes_are_equally_likely() -> None:
    lanes = made([[4, 1], [0, 2, 3]], [0, 1, 0], 6)
    drawn = draw_questions(12_000, 6, 3, np.random.default_rng(1000), lanes=lanes)
    rows, counts = np.unique(drawn, axis=0, return_counts=True)
    np.testing.assert_array_equal(rows, sorted(legal(lanes).tolist()))
    assert counts == pytest.approx(12_000 / len(rows), abs=6 * np.sqrt(12_000 / len(rows)))


@pytest.mark.parametrize(
    ("name", "options", "error", "message"),
    [
        ("bold", {}, ValueError, "rule as one of .*'bald'"),
        ("adaptive_v", {"start": 2}, TypeError, "no option 'start'; its options: starts, exhaustive"),
        ("maximum_regret", {"starts": 2}, TypeError, "no option 'starts'; its options: none"),
        ("bald", {"starts": 0}, ValueError, "starts >= 1"),
        ("dueling_thompson", {"attempts": -1}, ValueError, "attempts >= 0"),
        ("dopewolfe", {"subsets": 0}, ValueError, "subsets >= 1"),
        ("rollout_pool", {"rule": "none"}, ValueError, "rule as one of"),
    ],
)
def test_options_that_do_not_fit_are_said(name, options, error, message):
    with pytest.raises(error, match=message):
        make_rule(name, **options).propose(Pool().state())
