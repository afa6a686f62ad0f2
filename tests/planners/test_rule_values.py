"""Rules that maximise a value: values from their definitions, questions from searches written out, known facts."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import multivariate_normal, norm

from edpbrl_gym.planners.registry import RULES, make_rule
from edpbrl_gym.planners.rules import PoolState
from edpbrl_gym.planners.rules.uncertainty import DrawMoments
from tests.helpers.rules_tools import Pool, information, log_det

VALUED = sorted(name for name, entry in RULES.items() if entry.kind == "value")
INFORMATION = ("greedy_d", "adaptive_d", "adaptive_a", "adaptive_v", "naive", "apo", "directed_fisher", "idrl")


def shares(state: PoolState, question) -> np.ndarray:
    powers = [np.exp(utilities - utilities.max()) for utilities in state.draws @ state.items[list(question)].T]
    return np.array([one / one.sum() for one in powers])


def drop_of_trace(target: np.ndarray, before: np.ndarray, after: np.ndarray) -> float:
    return float(np.trace(target @ np.linalg.inv(before)) - np.trace(target @ np.linalg.inv(after)))


def direction(name: str, state: PoolState) -> np.ndarray:
    if name == "directed_fisher":
        best, second = np.argsort(-(state.items @ state.mean))[:2]
        return state.items[best] - state.items[second]
    covariance = np.linalg.inv(state.precision)
    candidates = sorted({int((state.items @ theta).argmax()) for theta in state.draws})
    assert len(candidates) > 2
    leads = [state.items[i] - state.items[j] for i, j in itertools.combinations(candidates, 2)]
    return max(leads, key=lambda lead: float(lead @ covariance @ lead))


def definition(name: str, pool: Pool, state: PoolState, question) -> float:
    """The value of one question, with whole matrices, one draw after the other."""
    options, zero = state.items[list(question)], np.zeros(state.dimension)
    asked, before = [state.items[list(one)] for one in pool.questions], state.precision
    match name:
        case "greedy_d":
            known = pool.prior.precision + sum(information(one, zero) for one in asked)
            return log_det(known + information(options, zero)) - log_det(known)
        case "naive":
            known = pool.prior.precision + sum(one.T @ one / pool.K for one in asked)
            return log_det(known + options.T @ options / pool.K) - log_det(known)
        case "apo":
            pairs = itertools.combinations(options, 2)
            return sum(float(np.sqrt((a - b) @ np.linalg.solve(before, a - b))) for a, b in pairs)
        case "bald":  # Bayes: prior 1/M on the draws, the answer k has the posterior p_m,k / sum_m p_m,k
            columns = shares(state, question).T
            posteriors = [(column.mean(), column / column.sum()) for column in columns]
            return float(sum(e * (p * np.log(p * len(p))).sum() for e, p in posteriors))
        case "volume_removal":
            return -float(np.square(shares(state, question).mean(axis=0)).sum())
        case "disagreement" if pool.K == 2:
            return float(np.var(state.draws @ (options[0] - options[1])))
        case "disagreement":
            return float(np.trace(np.cov(shares(state, question).T, bias=True)))
        case "qeubo" if pool.K == 2:
            x, (one, two) = options[0] - options[1], options @ state.mean
            s = np.sqrt(x @ np.linalg.inv(before) @ x)
            u = (one - two) / s
            return float(two + s * (norm.pdf(u) + u * norm.cdf(u)))
        case "qeubo":
            return float(np.mean([max(theta @ x for x in options) for theta in state.draws]))
    after = before + information(options, state.mean)
    if name == "adaptive_d":
        return log_det(after) - log_det(before)
    if name in ("directed_fisher", "idrl"):
        v = direction(name, state)
        return drop_of_trace(np.outer(v, v), before, after)
    target = np.eye(len(before)) if name == "adaptive_a" else state.items.T @ state.items / state.num_items
    return drop_of_trace(target, before, after)


@pytest.mark.parametrize("K", [2, 3, 4])
@pytest.mark.parametrize("name", VALUED)
def test_values_are_those_of_the_definition_and_the_question_has_the_largest(name, K):
    pool = Pool(1022, n=8, K=K)
    state, questions = pool.state(draws=16), pool.all_questions()
    expected = np.array([definition(name, pool, state, one) for one in questions])
    value = make_rule(name).value(state)
    np.testing.assert_allclose(value(questions), expected, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(value(questions[:, ::-1]), expected, rtol=1e-9, atol=1e-12)  # in any order
    # one question alone, and questions that share all options but one, take other paths through the code
    np.testing.assert_allclose([value(one[None])[0] for one in questions], expected, rtol=1e-9, atol=1e-12)
    table = np.tile(np.arange(K), (8, 1))
    table[:, 1] = np.arange(8)
    np.testing.assert_allclose(value(table), [value(one[None])[0] for one in table], rtol=1e-9, atol=1e-12)
    for exhaustive in (0, 5000):  # coordinate exchange, and all questions
        found = make_rule(name, exhaustive=exhaustive, starts=60).propose(state)
        assert set(found.tolist()) == set(questions[expected.argmax()].tolist())


@pytest.mark.parametrize("name", VALUED)
def test_the_exchange_comes_close_to_the_best_question_where_there_are_many(name):
    pool = Pool(1025, n=40, d=6, K=3)
    state = pool.state()
    value = make_rule(name).value(state)
    values = value(pool.all_questions())
    found = value(make_rule(name, exhaustive=0).propose(state)[None])[0]
    assert found >= values.max() - 0.03 * abs(values.max()) and found >= np.quantile(values, 0.999)


@pytest.mark.parametrize("name", INFORMATION)
def test_values_stay_finite_where_the_answer_is_certain_and_equal_options_teach_nothing(name):
    pool = Pool(1038, K=3)
    pool.items *= 1e3
    values = make_rule(name).value(pool.state())(pool.all_questions())
    assert np.isfinite(values).all() and (values > -1e-9).all()
    pool = Pool(1037, K=3)
    pool.items[5] = pool.items[4] = pool.items[3]
    values = make_rule(name).value(pool.state())(np.array([[3, 4, 5], [0, 1, 2]]))
    assert (abs(values[0]) < 1e-7 < values[1]) != (name == "naive")  # its flaw


def test_what_is_kept_for_a_pool_is_not_used_for_another():
    pools, memory, rule = [Pool(1031), Pool(1032)], {}, make_rule("adaptive_v")
    for pool in (*pools, pools[0]):
        state, questions = replace(pool.state(), memory=memory), pool.all_questions()
        expected = [definition("adaptive_v", pool, state, question) for question in questions]
        np.testing.assert_allclose(rule.value(state)(questions), expected, rtol=1e-9)


def test_without_an_estimate_the_directed_rule_takes_any_two_items():
    pool = Pool(1035, n=12, K=2, asked=0)
    seen = {frozenset(make_rule("directed_fisher").propose(pool.state(seed=seed)).tolist()) for seed in range(12)}
    assert len(seen) > 3


def test_idrl_compares_the_top_two_where_all_draws_agree():
    pool = Pool(1000)
    state = pool.state()
    agreed = replace(state, draws=np.repeat(state.mean[None], 3, axis=0))
    questions = pool.all_questions()
    directed = make_rule("directed_fisher")
    np.testing.assert_allclose(make_rule("idrl").value(agreed)(questions), directed.value(state)(questions))


def test_the_naive_design_asks_about_large_options_that_are_alike():
    pool = Pool(1036, n=10, K=2, asked=0)
    pool.items *= 0.3
    pool.items[:2] = [[9.0, 0.1, 0.0, 0.0], [9.0, -0.1, 0.0, 0.0]]
    state = pool.state()
    assert set(make_rule("naive").propose(state).tolist()) == {0, 1}
    assert set(make_rule("greedy_d").propose(state).tolist()) != {0, 1}


def test_utilities_that_would_overflow_give_the_same_moments_as_small_shifts_of_them():
    pool = Pool(1000, n=8, d=3)
    plain = pool.state()
    huge = replace(plain, items=400.0 * plain.items)
    questions = pool.all_questions()
    found = DrawMoments(huge)(questions)
    for index, question in enumerate(questions):
        table = shares(huge, question)
        np.testing.assert_allclose(found.mean[:, index], table.mean(axis=0), atol=1e-12)
        np.testing.assert_allclose(found.square[:, index], (table**2).mean(axis=0), atol=1e-12)
        entropy = -sum(p * np.log(p) for row in table for p in row if p > 0) / len(table)
        assert found.entropy[index] == pytest.approx(entropy, abs=1e-9)


@pytest.mark.parametrize("K", [2, 3])
def test_identical_options_are_an_optimum_of_volume_removal_and_worth_nothing_to_bald(K):
    pool = Pool(1000, K=K)
    same = np.array([[item] * K for item in range(len(pool.items))])
    volume, bald = (make_rule(name).value(pool.state()) for name in ("volume_removal", "bald"))
    np.testing.assert_allclose(volume(same), -1.0 / K, atol=1e-12)  # the bound: sum_k q_k^2 >= 1/K
    assert volume(pool.all_questions()).max() < -1.0 / K - 1e-9
    np.testing.assert_allclose(bald(same), 0.0, atol=1e-12)
    assert 0 < bald(pool.all_questions()).min() and bald(pool.all_questions()).max() < np.log(K)


def test_disagreement_of_many_draws_is_the_variance_of_the_posterior_and_qeubo_that_of_monte_carlo():
    pool = Pool(1000, n=6, K=2)
    state, questions = pool.state(draws=40_000), pool.all_questions()
    values = make_rule("disagreement").value(state)(questions)
    np.testing.assert_allclose(values, state.products.squared_distances(questions)[1, 0], rtol=0.05)
    thetas = multivariate_normal(state.mean, np.linalg.inv(state.precision)).rvs(200_000, random_state=1001)
    best = (thetas @ state.items.T)[:, questions].max(axis=2)
    qeubo = make_rule("qeubo").value(state)
    assert (np.abs(qeubo(questions) - best.mean(axis=0)) < 4.5 * best.std(axis=0) / np.sqrt(200_000)).all()
    same = np.array([[item, item] for item in range(6)])
    np.testing.assert_allclose(qeubo(same), state.utilities, atol=1e-7)
