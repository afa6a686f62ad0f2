"""The information rules of the literature: values from their definitions, and questions from a brute-force search."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from edpbrl_gym.planners.pool import PoolState
from edpbrl_gym.planners.registry import make_rule
from tests.helpers.rules_tools import Pool, brute_force, information, log_det

RULES = ("greedy_d", "adaptive_d", "adaptive_a", "adaptive_v", "naive", "apo", "directed_fisher")


def definition(name: str, pool: Pool, state: PoolState, question) -> float:
    """The value of one question, with whole matrices."""
    options = pool.items[list(question)]
    asked = [pool.items[list(one)] for one in pool.questions]
    if name == "greedy_d":
        before = pool.prior.precision + sum(information(one, np.zeros(options.shape[1])) for one in asked)
        return log_det(before + information(options, np.zeros(options.shape[1]))) - log_det(before)
    if name == "naive":
        before = pool.prior.precision + sum(one.T @ one / pool.K for one in asked)
        return log_det(before + options.T @ options / pool.K) - log_det(before)
    before = state.precision
    if name == "apo":
        pairs = itertools.combinations(options, 2)
        return sum(float(np.sqrt((a - b) @ np.linalg.solve(before, a - b))) for a, b in pairs)
    after = before + information(options, state.mean)
    if name == "adaptive_d":
        return log_det(after) - log_det(before)
    if name == "directed_fisher":
        best, second = np.argsort(-(pool.items @ state.mean))[:2]
        v = pool.items[best] - pool.items[second]
        target = np.outer(v, v)
    else:
        target = np.eye(len(before)) if name == "adaptive_a" else pool.items.T @ pool.items / len(pool.items)
    return float(np.trace(target @ np.linalg.inv(before)) - np.trace(target @ np.linalg.inv(after)))


@pytest.mark.parametrize("K", [2, 3, 4])
@pytest.mark.parametrize("name", RULES)
def test_the_value_of_every_question_is_that_of_the_definition(name, K):
    pool = Pool(1020, n=8, K=K)
    state = pool.state()
    questions = pool.all_questions()
    values = make_rule(name).prepare(state)(questions)
    assert values.shape == (len(questions),)
    np.testing.assert_allclose(values, [definition(name, pool, state, one) for one in questions], rtol=1e-9)


@pytest.mark.parametrize("name", RULES)
def test_the_value_does_not_depend_on_the_order_of_the_options(name):
    pool = Pool(1021, K=4)
    value = make_rule(name).prepare(pool.state())
    questions = pool.all_questions()
    np.testing.assert_allclose(value(questions), value(questions[:, [2, 0, 3, 1]]), rtol=1e-9)


@pytest.mark.parametrize("K", [2, 3])
@pytest.mark.parametrize("exhaustive", [0, 5000])
@pytest.mark.parametrize("name", RULES)
def test_the_question_is_the_one_of_a_brute_force_search(name, exhaustive, K):
    for seed in (1022, 1023, 1024):
        pool = Pool(seed, n=10, K=K)
        state = pool.state()
        best, most = brute_force(lambda one, p=pool, s=state: definition(name, p, s, one), 10, K)
        question = make_rule(name, exhaustive=exhaustive).propose(state)
        assert frozenset(question.tolist()) == best, (seed, definition(name, pool, state, question), most)


@pytest.mark.parametrize("name", RULES)
def test_the_exchange_comes_close_to_the_best_question_where_there_are_many(name):
    pool = Pool(1025, n=40, d=6, K=3)
    values = make_rule(name).prepare(pool.state())(pool.all_questions())
    state = pool.state()
    found = make_rule(name).prepare(state)(make_rule(name, exhaustive=0).propose(state)[None])[0]
    assert found >= 0.97 * values.max()
    assert found > np.quantile(values, 0.999)


# ------------------------------------------------------------------------------------------------------- facts


def test_greedy_d_asks_the_pair_that_is_farthest_apart():
    pool = Pool(1026, n=12, K=2, asked=3)
    inverse = np.linalg.inv(pool.state().agnostic)
    distance = {}
    for i, j in itertools.combinations(range(12), 2):
        difference = pool.items[i] - pool.items[j]
        distance[i, j] = float(difference @ inverse @ difference)
    question = make_rule("greedy_d").propose(pool.state())
    assert tuple(sorted(question.tolist())) == max(distance, key=distance.__getitem__)
    questions = pool.all_questions()
    values = make_rule("greedy_d").prepare(pool.state())(questions)
    expected = np.log1p([distance[tuple(one)] / 4 for one in questions.tolist()])  # F(S; 0) = x x' / 4
    np.testing.assert_allclose(values, expected)


def test_greedy_d_asked_again_and_again_gives_the_design_of_its_own_sum():
    pool = Pool(1027, n=12, K=2, asked=0)
    matrix = pool.prior.precision.copy()
    asked: list[list[int]] = []
    for _ in range(6):
        # no answers: it runs ahead
        state = PoolState.of(pool.items, pool.prior, asked, [-1] * len(asked), num_options=2)
        question = make_rule("greedy_d").propose(state)
        best, _ = brute_force(lambda one, m=matrix: log_det(m + information(pool.items[list(one)], np.zeros(4))), 12, 2)
        assert frozenset(question.tolist()) == best
        matrix += information(pool.items[question], np.zeros(4))
        asked.append(question.tolist())
    np.testing.assert_allclose(PoolState.of(pool.items, pool.prior, asked, [-1] * 6, num_options=2).agnostic, matrix)


@pytest.mark.parametrize("K", [2, 4])
def test_adaptive_d_is_the_determinant_with_the_weighted_differences_to_the_mean(K):
    """log det(I + B H^-1 B') with B = rows sqrt(p_k) (x_k - xbar)."""
    pool = Pool(1028, K=K)
    state = pool.state()
    questions = pool.all_questions()
    expected = []
    for one in questions:
        options = pool.items[one]
        p = np.exp(options @ state.mean) / np.exp(options @ state.mean).sum()
        rows = np.sqrt(p)[:, None] * (options - p @ options)
        expected.append(log_det(np.eye(K) + rows @ np.linalg.inv(state.precision) @ rows.T))
    np.testing.assert_allclose(make_rule("adaptive_d").prepare(state)(questions), expected, rtol=1e-9)


def test_adaptive_d_before_any_answer_is_greedy_d():
    pool = Pool(1029, asked=0)
    questions = pool.all_questions()
    one, other = (make_rule(name).prepare(pool.state())(questions) for name in ("adaptive_d", "greedy_d"))
    np.testing.assert_allclose(one, other)


def test_v_with_the_identity_is_a_and_with_one_direction_the_directed_rule():
    pool = Pool(1030)
    state, questions = pool.state(), pool.all_questions()
    np.testing.assert_allclose(
        make_rule("adaptive_v", sigma=np.eye(4)).prepare(state)(questions),
        make_rule("adaptive_a").prepare(state)(questions),
    )
    v = np.array([1.0, -2.0, 0.5, 0.0])
    np.testing.assert_allclose(
        make_rule("adaptive_v", sigma=np.outer(v, v)).prepare(state)(questions),
        make_rule("directed_fisher", direction=v).prepare(state)(questions),
    )


def test_v_takes_the_second_moment_of_the_pool_that_it_is_given():
    one, other = Pool(1031), Pool(1032)
    rule = make_rule("adaptive_v")  # one rule, two pools
    for pool in (one, other, one):
        state, questions = pool.state(), pool.all_questions()
        expected = [definition("adaptive_v", pool, state, question) for question in questions]
        np.testing.assert_allclose(rule.prepare(state)(questions), expected, rtol=1e-9)


def test_apo_with_pairs_is_the_largest_posterior_deviation():
    pool = Pool(1033, n=12, K=2)
    state = pool.state()
    covariance = np.linalg.inv(state.precision)
    table = np.array([[(x - y) @ covariance @ (x - y) for y in pool.items] for x in pool.items])
    best = np.unravel_index(table.argmax(), table.shape)
    assert set(make_rule("apo").propose(state).tolist()) == set(best)


def test_the_directed_rule_with_pairs_is_its_formula():
    pool = Pool(1034, K=2)
    state = pool.state()
    v = np.array([0.3, 1.0, -1.0, 2.0])
    covariance = np.linalg.inv(state.precision)
    questions = pool.all_questions()
    expected = []
    for i, j in questions:
        x = pool.items[i] - pool.items[j]
        p = 1 / (1 + np.exp(-x @ state.mean))
        kappa = p * (1 - p)
        expected.append(kappa * (x @ covariance @ v) ** 2 / (1 + kappa * x @ covariance @ x))
    values = make_rule("directed_fisher", direction=v).prepare(state)(questions)
    np.testing.assert_allclose(values, expected)


def test_without_an_estimate_the_directed_rule_takes_any_two_items():
    pool = Pool(1035, n=12, K=2, asked=0)
    seen = {frozenset(make_rule("directed_fisher").propose(pool.state(seed=seed)).tolist()) for seed in range(12)}
    assert len(seen) > 3


def test_the_naive_design_asks_about_large_options_that_are_alike():
    rng = np.random.default_rng(1036)
    pool = Pool(1036, n=10, K=2, asked=0)
    pool.items = 0.3 * rng.normal(size=(10, 4))
    pool.items[:2] = [[9.0, 0.1, 0.0, 0.0], [9.0, -0.1, 0.0, 0.0]]
    state = pool.state()
    assert set(make_rule("naive").propose(state).tolist()) == {0, 1}
    assert set(make_rule("greedy_d").propose(state).tolist()) != {0, 1}
    alike = make_rule("adaptive_d").prepare(state)(np.array([[0, 1]]))[0]
    assert alike < 0.1 * make_rule("adaptive_d").prepare(state)(pool.all_questions()).max()


@pytest.mark.parametrize("name", [name for name in RULES if name != "naive"])  # its flaw, tested above
def test_identical_options_are_worth_nothing(name):
    pool = Pool(1037, K=3)
    pool.items[5] = pool.items[4] = pool.items[3]
    values = make_rule(name).prepare(pool.state())(np.array([[3, 4, 5], [0, 1, 2]]))
    assert abs(values[0]) < 1e-7 < values[1]


@pytest.mark.parametrize("name", RULES)
def test_values_stay_finite_where_the_answer_is_certain(name):
    pool = Pool(1038, K=3)
    pool.items *= 1e3
    values = make_rule(name).prepare(pool.state())(pool.all_questions())
    assert np.isfinite(values).all() and (values > -1e-9).all()


@pytest.mark.parametrize(
    ("name", "option", "value", "message"),
    [
        ("adaptive_v", "sigma", np.ones((4, 3)), "sigma"),
        ("adaptive_v", "sigma", -np.eye(4), "positive semidefinite sigma"),
        ("adaptive_v", "sigma", np.eye(3), "sigma of dimension 4"),
        ("directed_fisher", "direction", np.ones(3), "direction of dimension 4"),
        ("directed_fisher", "direction", np.full(4, np.nan), "finite direction"),
    ],
)
def test_options_that_do_not_fit_are_said(name, option, value, message):
    with pytest.raises(ValueError, match=message):
        make_rule(name, **{option: value}).propose(Pool().state())
