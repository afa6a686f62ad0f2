"""The state of a pool, the products of its items, the search for a question, and the registry of the rules."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

from edpbrl_gym.estimation import GaussianPrior, estimate
from edpbrl_gym.likelihood.choice import choice_probabilities
from edpbrl_gym.planners.pool import ItemProducts, PoolState, Rule, search_questions
from edpbrl_gym.planners.pool import products as products_module
from edpbrl_gym.planners.registry import PLANNERS, RULES, make_rule
from tests.helpers.rules_tools import Pool, brute_force, information

# ------------------------------------------------------------------------------------------------------- state


@pytest.mark.parametrize("K", [2, 3])
def test_the_state_is_the_estimate_its_information_and_that_at_zero(K):
    pool = Pool(1001, K=K)
    state = pool.state()
    found = estimate((pool.items[pool.questions], pool.choices), prior=pool.prior)
    np.testing.assert_allclose(state.mean, found.theta)
    options = pool.items[pool.questions]
    at_mean = pool.prior.precision + sum(information(one, state.mean) for one in options)
    at_zero = pool.prior.precision + sum(information(one, np.zeros(4)) for one in options)
    np.testing.assert_allclose(state.precision, at_mean)
    np.testing.assert_allclose(state.agnostic, at_zero)
    assert state.asked == tuple(map(tuple, pool.questions.tolist()))
    assert (state.num_items, state.dimension, state.num_options) == (9, 4, K)


def test_before_the_first_question_the_state_is_the_prior():
    pool = Pool(asked=0)
    state = pool.state()
    assert not state.mean.any() and state.asked == ()
    np.testing.assert_allclose(state.precision, pool.prior.precision)
    np.testing.assert_allclose(state.agnostic, pool.prior.precision)
    empty = PoolState.of(pool.items, pool.prior, [], [], num_options=3)
    np.testing.assert_array_equal(empty.precision, state.precision)


def test_a_question_without_an_answer_counts_only_where_no_answers_are_needed():
    pool = Pool(1002)
    answers = pool.choices.copy()
    answers[1] = -1
    state = pool.state(choices=answers)
    kept = [0, 2, 3]
    found = estimate((pool.items[pool.questions[kept]], pool.choices[kept]), prior=pool.prior)
    np.testing.assert_allclose(state.mean, found.theta)
    np.testing.assert_allclose(state.precision, found.precision)
    np.testing.assert_allclose(state.agnostic, pool.state().agnostic)
    assert len(state.asked) == 4


def test_the_draws_are_those_of_the_laplace_posterior_and_of_the_seed():
    pool = Pool(1003)
    state = pool.state(draws=20_000, seed=[3, 4])
    covariance = np.linalg.inv(state.precision)
    spread = np.sqrt(np.diag(covariance))
    assert (np.abs(state.draws.mean(axis=0) - state.mean) < 5 * spread / np.sqrt(20_000)).all()
    np.testing.assert_allclose(np.cov(state.draws.T), covariance, atol=0.05 * np.abs(covariance).max())
    same, other = pool.state(draws=5, seed=[3, 4]), pool.state(draws=5, seed=[3, 5])
    np.testing.assert_array_equal(pool.state(draws=5, seed=[3, 4]).draws, same.draws)
    assert not np.allclose(same.draws, other.draws)
    assert pool.state(draws=5, seed=[3, 4]).rng.random() == same.rng.random() != other.rng.random()


def test_the_kept_products_are_those_of_the_inverses():
    state = Pool(1004).state()
    covariance, agnostic = np.linalg.inv(state.precision), np.linalg.inv(state.agnostic)
    np.testing.assert_allclose(state.solved, state.items @ covariance)
    np.testing.assert_allclose(state.whitened @ state.whitened.T, state.items @ covariance @ state.items.T)
    whitened = state.agnostic_whitened
    np.testing.assert_allclose(whitened @ whitened.T, state.items @ agnostic @ state.items.T)
    np.testing.assert_allclose(state.solve(state.items[2]), covariance @ state.items[2])
    np.testing.assert_allclose(state.solve(state.items[:3]), state.items[:3] @ covariance)
    assert state.solved is state.solved  # computed once


def test_the_probabilities_are_those_of_the_logit_also_for_large_utilities():
    pool = Pool(1005)
    state = pool.state()
    questions = pool.all_questions()
    expected = choice_probabilities(pool.items[questions], state.mean)
    np.testing.assert_allclose(state.probabilities(questions), expected.T)
    for index, theta in enumerate(state.draws):
        expected = choice_probabilities(pool.items[questions], theta)
        np.testing.assert_allclose(state.draw_probabilities(questions)[:, :, index], expected.T)
    large = PoolState(
        items=1e3 * state.items,
        mean=state.mean,
        precision=state.precision,
        draws=state.draws,
        agnostic=state.agnostic,
        num_options=3,
    )
    np.testing.assert_allclose(large.draw_probabilities(questions).sum(axis=0), 1.0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_options": 10}, "at least K = 10 items, got 9"),
        ({"num_options": 1}, "num_options"),
        ({"questions": [[0, 1, 9]], "choices": [0]}, "questions in 0..8, got 9"),
        ({"questions": [[0, 1, 2]], "choices": [3]}, "choices in -1..2, got 3"),
        ({"questions": [[0, 1, 2]], "choices": [0, 1]}, "choices of shape"),
        ({"questions": [[0, 1]], "choices": [0]}, "questions of shape"),
        ({"items": np.full((9, 4), np.nan)}, "finite items"),
        ({"prior": GaussianPrior.isotropic(4, 0.0)}, "proper prior"),
        ({"prior": GaussianPrior.isotropic(3, 1.0)}, "dimension 4"),
    ],
)
def test_what_does_not_fit_is_said(change, message):
    pool = Pool()
    given = {"items": pool.items, "prior": pool.prior, "questions": [], "choices": [], "num_options": 3} | change
    with pytest.raises(ValueError, match=message):
        PoolState.of(
            given["items"], given["prior"], given["questions"], given["choices"], num_options=given["num_options"]
        )


def test_a_precision_that_is_singular_is_said():
    good = Pool().state()
    state = PoolState(
        items=good.items,
        mean=good.mean,
        precision=np.zeros((4, 4)),
        draws=good.draws,
        agnostic=good.agnostic,
        num_options=2,
    )
    with pytest.raises(ValueError, match="precision as a positive definite matrix"):
        _ = state.solved
    for name in ("greedy_d", "naive", "thinning"):
        with pytest.raises(ValueError, match="agnostic as a positive definite matrix"):
            make_rule(name).propose(replace(Pool(asked=0).state(), agnostic=np.zeros((4, 4))))


def test_a_state_without_a_generator_asks_the_same_each_time():
    good = Pool(n=40).state()
    parts = (good.items, good.mean, good.precision, good.draws, good.agnostic)
    asked = [make_rule("random_distinct").propose(PoolState(*parts, num_options=3)).tolist() for _ in range(2)]
    assert asked[0] == asked[1]


def test_a_state_without_draws_is_refused():
    with pytest.raises(ValueError, match="at least one draw"):
        replace(Pool().state(), draws=np.empty((0, 4)))  # to draw until items differ would never end


# ---------------------------------------------------------------------------------------------------- products


@pytest.mark.parametrize("kind", ["all", "one lane", "two lanes", "one question", "repeats"])
def test_inner_products_whatever_the_questions(kind):
    rng = np.random.default_rng(1006)
    rows = rng.normal(size=(30, 5))
    questions = np.array([rng.choice(30, 4, replace=False) for _ in range(30)])
    if kind == "one lane":
        questions[:, [0, 2, 3]] = [4, 7, 9]
    elif kind == "two lanes":
        questions[:, [1, 3]] = [4, 7]
    elif kind == "one question":
        questions = questions[:1]
    elif kind == "repeats":
        questions[:] = [4, 4, 7, 7]
    products = ItemProducts(rows)
    for _ in range(2):  # the second time from what is kept
        chosen = rows[questions]
        expected = chosen @ chosen.transpose(0, 2, 1)
        np.testing.assert_allclose(products.gram(questions), expected.transpose(1, 2, 0), atol=1e-12)
        leads = chosen[:, 1:] - chosen[:, :1]
        expected = (leads @ leads.transpose(0, 2, 1)).transpose(1, 2, 0)
        np.testing.assert_allclose(products.differences(questions), expected, atol=1e-12)
        for i, j in itertools.product(range(4), repeat=2):
            expected = np.square(chosen[:, i] - chosen[:, j]).sum(axis=1)
            np.testing.assert_allclose(products.squared_distances(questions)[i, j], expected, atol=1e-12)


def test_only_so_many_products_are_kept(monkeypatch):
    monkeypatch.setattr(products_module, "_LINES", 3)
    rows = np.random.default_rng(1007).normal(size=(12, 4))
    products = ItemProducts(rows)
    for item in (0, 1, 2, 3, 4, 0):
        questions = np.stack([np.full(12, item), np.arange(12)], axis=1)
        np.testing.assert_allclose(products.gram(questions)[0, 1], rows @ rows[item])
        assert len(products._lines) <= 3


# ------------------------------------------------------------------------------------------------------ search


def spread(rows: np.ndarray):
    """Determinant of the Gram matrix of the options: a value with many local optima."""

    def value(questions):
        chosen = rows[questions]
        return np.linalg.det(chosen @ chosen.transpose(0, 2, 1) + 0.1 * np.eye(questions.shape[1]))

    return value


@pytest.mark.parametrize("K", [2, 3])
@pytest.mark.parametrize("exhaustive", [0, 5000])
@pytest.mark.parametrize("seed", range(1000, 1005))
def test_the_search_finds_the_best_question_of_a_tiny_pool(K, exhaustive, seed):
    rng = np.random.default_rng(seed)
    value = spread(rng.normal(size=(12, 4)))
    question, worth = search_questions(value, 12, K, rng=rng, exhaustive=exhaustive)
    best, most = brute_force(lambda one: float(value(np.array([one]))[0]), 12, K)
    assert frozenset(question.tolist()) == best
    assert worth == pytest.approx(most)


def test_no_replacement_improves_what_one_start_finds():
    rng = np.random.default_rng(1008)
    value = spread(rng.normal(size=(40, 6)))
    for _ in range(60):
        question, worth = search_questions(value, 40, 4, rng=rng, starts=1, exhaustive=0)
        assert len(set(question.tolist())) == 4
        for lane in range(4):
            others = np.setdiff1d(np.arange(40), question)
            table = np.tile(question, (len(others), 1))
            table[:, lane] = others
            assert value(table).max() <= worth * (1 + 1e-9)


@pytest.mark.parametrize("exhaustive", [0, 5000])
def test_an_item_comes_twice_only_where_it_may(exhaustive):
    def value(questions):  # item 3 is worth most, twice or thrice as well
        return (questions == 3).sum(axis=1) + 1e-3 * questions.sum(axis=1)

    rng = np.random.default_rng(1009)
    question, _ = search_questions(value, 9, 3, rng=rng, exhaustive=exhaustive)
    assert set(question.tolist()) == {3, 7, 8}
    question, worth = search_questions(value, 9, 3, rng=rng, exhaustive=exhaustive, repeats=True)
    assert question.tolist() == [3, 3, 3]
    assert worth == pytest.approx(3.009)


def test_all_items_are_tried_in_the_place_of_one_option_at_once():
    sizes = []

    def value(questions):
        sizes.append(len(questions))
        return questions.sum(axis=1).astype(float)

    search_questions(value, 500, 4, rng=np.random.default_rng(0), starts=2, exhaustive=0)
    assert set(sizes) == {500}


@pytest.mark.parametrize("exhaustive", [0, 5000])
def test_a_value_that_is_no_number_is_said(exhaustive):
    with pytest.raises(ValueError, match="NaN"):
        search_questions(
            lambda table: np.where(table[:, 0] == 0, np.nan, 1.0),
            6,
            2,
            rng=np.random.default_rng(1),
            starts=8,
            exhaustive=exhaustive,
        )


# ---------------------------------------------------------------------------------------------------- registry


@pytest.mark.parametrize("K", [2, 3])
@pytest.mark.parametrize("name", sorted(RULES))
def test_every_rule_asks_about_k_different_items_and_says_what_it_is(name, K):
    pool = Pool(1010, n=12, K=K)
    rule = make_rule(name)
    assert isinstance(rule, Rule) and rule.name == name
    assert PLANNERS[name].title and isinstance(rule.adaptive, bool)
    question = rule.propose(pool.state(seed=5))
    assert question.shape == (K,) and question.dtype.kind == "i"
    assert len(set(question.tolist())) == K and 0 <= question.min() and question.max() < 12
    again = make_rule(name).propose(pool.state(seed=5))
    np.testing.assert_array_equal(question, again)


@pytest.mark.parametrize("name", sorted(RULES))
def test_every_rule_answers_before_the_first_question(name):
    question = make_rule(name).propose(Pool(1011, n=12, K=3, asked=0).state())
    assert len(set(question.tolist())) == 3


@pytest.mark.parametrize("name", sorted(name for name in RULES if not make_rule(name).adaptive))
def test_rules_that_are_not_adaptive_look_at_no_answer(name):
    pool = Pool(1012, n=12)
    one = make_rule(name).propose(pool.state(seed=7))
    other = make_rule(name).propose(pool.state(seed=7, choices=(pool.choices + 1) % 3))
    np.testing.assert_array_equal(one, other)


def test_options_reach_the_rule_and_wrong_ones_are_said():
    rule = make_rule("adaptive_v", sigma=np.eye(4), starts=2)
    assert rule.starts == 2
    with pytest.raises(TypeError, match="no option 'start'; its options: sigma, starts, exhaustive, repeats"):
        make_rule("adaptive_v", start=2)
    with pytest.raises(ValueError, match="rule as one of .*'bald'"):
        make_rule("bold")
    with pytest.raises(ValueError, match="starts"):
        make_rule("bald", starts=0)
