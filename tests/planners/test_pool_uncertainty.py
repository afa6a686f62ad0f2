"""BALD, volume removal, disagreement and qEUBO: against formulas written out for one question, and what is known."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy.stats import multivariate_normal, norm

from edpbrl_gym.estimation import GaussianPrior
from edpbrl_gym.planners.pool.state import PoolState
from edpbrl_gym.planners.pool.uncertainty import Bald, Disagreement, DrawMoments, QEubo, VolumeRemoval

RULES = [Bald, VolumeRemoval, Disagreement, QEubo]


def make_state(
    *, n: int = 10, d: int = 4, K: int = 2, draws: int = 16, seed: int = 1000, scale: float = 1.5
) -> PoolState:
    rng = np.random.default_rng(seed)
    items = scale * rng.standard_normal((n, d))
    theta = rng.standard_normal(d)
    questions = np.stack([rng.choice(n, K, replace=False) for _ in range(5)])
    choices = (items[questions] @ theta + rng.gumbel(size=(5, K))).argmax(axis=1)
    prior = GaussianPrior.isotropic(d, 1.0)
    return PoolState.of(items, prior, questions, choices, num_options=K, draws=draws, seed=seed)


def softmax(values: np.ndarray) -> np.ndarray:
    powers = np.exp(values - values.max())
    return powers / powers.sum()


def probabilities(state: PoolState, question: tuple[int, ...]) -> np.ndarray:
    """p_m of one question, (M, K), one draw after the other."""
    return np.array([softmax(state.items[list(question)] @ theta) for theta in state.draws])


def written_out(rule: type, state: PoolState, question: tuple[int, ...]) -> float:
    """The rule's value of one question, as its source has it."""
    table = probabilities(state, question)
    options = state.items[list(question)]
    if rule is Bald:
        # Bayes' theorem by enumeration: prior 1/M on the draws, the answer k has the posterior p_m,k / sum_m p_m,k
        gained = 0.0
        for k in range(table.shape[1]):
            evidence = table[:, k].mean()
            posterior = table[:, k] / table[:, k].sum()
            gained += evidence * sum(w * np.log(w * len(table)) for w in posterior)
        return gained
    if rule is VolumeRemoval:
        return -sum(table[:, k].mean() ** 2 for k in range(table.shape[1]))
    if rule is Disagreement:
        if len(question) == 2:
            return float(np.var([theta @ (options[0] - options[1]) for theta in state.draws]))
        return float(np.trace(np.cov(table.T, bias=True)))
    if len(question) == 2:
        covariance = np.linalg.inv(state.precision)
        x = options[0] - options[1]
        s, (one, two) = np.sqrt(x @ covariance @ x), options @ state.mean
        u = (one - two) / s
        return float(two + s * (norm.pdf(u) + u * norm.cdf(u)))
    return float(np.mean([max(theta @ x for x in options) for theta in state.draws]))


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("K", [2, 3])
def test_value_and_proposal_agree_with_a_search_through_all_questions(rule: type, K: int) -> None:
    state = make_state(K=K)
    table = np.array(list(itertools.combinations(range(state.num_items), K)))
    expected = np.array([written_out(rule, state, tuple(question)) for question in table])
    value = rule().prepare(state)
    np.testing.assert_allclose(value(table), expected, atol=1e-12)
    # one question alone, and many that share all options but one, take other paths through the code
    np.testing.assert_allclose([value(question[None])[0] for question in table], expected, atol=1e-12)
    best = set(table[expected.argmax()].tolist())
    assert set(rule().propose(state).tolist()) == best
    found = set(rule(exhaustive=0, starts=8).propose(state).tolist())  # coordinate exchange
    assert found == best


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("K", [2, 3, 4])
@pytest.mark.parametrize("lane", [0, 1])
def test_questions_that_share_options_have_the_same_values(rule: type, K: int, lane: int) -> None:
    state = make_state(n=12, K=K)
    table = np.tile(np.arange(K), (12, 1))
    table[:, lane] = np.arange(12)
    value = rule().prepare(state)
    single = [value(question[None])[0] for question in table]
    np.testing.assert_allclose(value(table), single, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("K", [2, 4])
def test_the_order_of_the_options_does_not_matter(K: int) -> None:
    state = make_state(n=8, K=K)
    questions = np.array(list(itertools.permutations(range(K))))
    for rule in RULES:
        np.testing.assert_allclose(np.ptp(rule().prepare(state)(questions)), 0.0, atol=1e-12)


def test_utilities_that_would_overflow_give_the_same_moments_as_small_shifts_of_them() -> None:
    plain = make_state(n=8, d=3, K=3)
    huge = PoolState(
        items=400.0 * plain.items,
        mean=plain.mean,
        precision=plain.precision,
        draws=plain.draws,
        agnostic=plain.agnostic,
        num_options=3,
    )
    questions = np.array(list(itertools.combinations(range(8), 3)))
    found = DrawMoments(huge)(questions)
    for index, question in enumerate(questions):
        table = probabilities(huge, tuple(question))
        np.testing.assert_allclose(found.mean[:, index], table.mean(axis=0), atol=1e-12)
        np.testing.assert_allclose(found.square[:, index], (table**2).mean(axis=0), atol=1e-12)
        entropy = -sum(p * np.log(p) for row in table for p in row if p > 0) / len(table)
        assert found.entropy[index] == pytest.approx(entropy, abs=1e-9)


def test_mutual_information_is_between_zero_and_log_k_and_zero_for_equal_options() -> None:
    state = make_state(n=10, K=3, scale=4.0)
    value = Bald().prepare(state)
    values = value(np.array(list(itertools.combinations(range(10), 3))))
    assert values.min() > 0 and values.max() < np.log(3)
    assert value(np.array([[4, 4, 4]]))[0] == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize("K", [2, 3])
def test_identical_options_are_a_global_optimum_of_volume_removal(K: int) -> None:
    state = make_state(K=K)
    value = VolumeRemoval().prepare(state)
    same = value(np.array([[item] * K for item in range(state.num_items)]))
    np.testing.assert_allclose(same, -1.0 / K, atol=1e-12)  # the bound: sum_k q_k^2 >= 1/K for any distribution q
    different = value(np.array(list(itertools.combinations(range(state.num_items), K))))
    assert different.max() < -1.0 / K - 1e-9
    for exhaustive in (0, 5000):
        chosen = VolumeRemoval(repeats=True, exhaustive=exhaustive, starts=4).propose(state)
        assert len(set(chosen.tolist())) == 1
        assert Bald().prepare(state)(chosen[None])[0] == pytest.approx(0.0, abs=1e-12)  # and nothing is learnt from it
        assert len(set(VolumeRemoval(exhaustive=exhaustive).propose(state).tolist())) == K


def test_other_rules_gain_nothing_by_repeating_an_item() -> None:
    state = make_state(K=2)
    for rule in (Bald, Disagreement):
        assert len(set(rule(repeats=True).propose(state).tolist())) == 2


def test_disagreement_of_many_draws_is_the_variance_of_the_posterior() -> None:
    state = make_state(draws=40_000)
    questions = np.array(list(itertools.combinations(range(state.num_items), 2)))
    values = Disagreement().prepare(state)(questions)
    np.testing.assert_allclose(values, state.products.squared_distances(questions)[1, 0], rtol=0.05)


def test_closed_form_of_qeubo_agrees_with_monte_carlo() -> None:
    state = make_state(n=6)
    rng = np.random.default_rng(1001)
    thetas = multivariate_normal(state.mean, np.linalg.inv(state.precision)).rvs(200_000, random_state=rng)
    utilities = thetas @ state.items.T
    value = QEubo().prepare(state)
    for pair in itertools.combinations(range(6), 2):
        best = utilities[:, pair].max(axis=1)
        error = best.std() / np.sqrt(len(best))
        assert abs(value(np.array([pair]))[0] - best.mean()) < 4.5 * error


def test_qeubo_of_an_item_against_itself_is_its_expected_utility() -> None:
    state = make_state(n=6)
    value = QEubo().prepare(state)
    same = np.array([[item, item] for item in range(6)])
    np.testing.assert_allclose(value(same), state.utilities, atol=1e-7)


def test_qeubo_looks_for_good_items() -> None:
    """With a posterior that is nearly a point, the question holds the best item; a rule of learning need not."""
    base = make_state(n=9, K=3)
    sure = PoolState(
        items=base.items,
        mean=base.mean,
        precision=1e8 * np.eye(4),
        draws=base.mean + 1e-4 * np.random.default_rng(0).standard_normal((16, 4)),
        agnostic=base.agnostic,
        num_options=3,
    )
    assert int(sure.utilities.argmax()) in QEubo().propose(sure)
