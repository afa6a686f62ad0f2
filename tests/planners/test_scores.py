"""The value of a question for every replacement of an option, and the search over them, against brute force."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edpbrl_gym.estimation import Posterior
from edpbrl_gym.likelihood.choice import choice_probabilities, fisher_information
from edpbrl_gym.planners.exchange import exchange
from edpbrl_gym.planners.scores import (
    ExpectedBest,
    ExpectedInformation,
    ExpectedVariance,
    MutualInformation,
    _trace_of_solution,
)

SCORES = ("information", "trace", "variance", "mutual", "best")


class Case:
    """A random posterior, random candidates, and a question of K of them."""

    def __init__(self, seed: int, *, options: int = 4, draws: int = 5, tokens: int = 9, d: int = 6, size: float = 1.0):
        rng = np.random.default_rng(seed)
        root = rng.normal(size=(d, d))
        self.precision = root @ root.T + 0.3 * np.eye(d)
        self.tokens = size * rng.normal(size=(tokens, d))
        self.offsets = rng.normal(size=(options, d))
        self.draws = rng.normal(size=(draws, d))
        self.contrasts = rng.normal(size=(d, 3))
        self.chosen = rng.permutation(tokens)[:options]
        self.lane = int(rng.integers(options))

    def score(self, name: str, dtype=np.float64):
        """The score of that name, prepared."""
        root = Posterior(np.zeros(len(self.precision)), self.precision).inverse_factor
        made = {
            "information": lambda: ExpectedInformation(self.draws, root),
            "trace": lambda: ExpectedVariance(self.draws, root),
            "variance": lambda: ExpectedVariance(self.draws, root, contrasts=self.contrasts),
            "mutual": lambda: MutualInformation(self.draws),
            "best": lambda: ExpectedBest(self.draws),
        }[name]()
        made.prepare(self.tokens.astype(dtype), self.offsets)
        return made

    def value(self, name: str, chosen) -> float:
        """The same from the definition, for one whole question."""
        options = self.tokens[np.asarray(chosen)] + self.offsets
        if name == "best":
            return float(np.mean([(options @ theta).max() for theta in self.draws]))
        data = np.mean([fisher_information(options[None], theta) for theta in self.draws], axis=0)
        if name in ("trace", "variance"):
            taken_off = np.linalg.inv(self.precision) - np.linalg.inv(self.precision + data)
            return float(np.trace(self.weights(name) @ taken_off))
        if name == "information":
            return float(np.linalg.slogdet(self.precision + data)[1] - np.linalg.slogdet(self.precision)[1])
        each = np.array([choice_probabilities(options[None], theta)[0] for theta in self.draws])
        joint = each / len(each)  # of the draw m and the answer k
        return float((joint * np.log(joint / (joint.sum(axis=0) * joint.sum(axis=1, keepdims=True)))).sum())

    def weights(self, name: str):
        """S of the variance tr(S P), (d, d)."""
        return np.eye(len(self.precision)) if name == "trace" else self.contrasts @ self.contrasts.T

    def replaced(self, name: str) -> list[float]:
        """Value of the question with each token in the lane."""
        found = []
        for token in range(len(self.tokens)):
            chosen = self.chosen.copy()
            chosen[self.lane] = token
            found.append(self.value(name, chosen))
        return found


@pytest.mark.parametrize("name", SCORES)
@given(seed=st.integers(0, 10_000), options=st.integers(2, 6), draws=st.integers(1, 7))
@settings(max_examples=40)
def test_replacements_are_the_values_of_the_changed_questions(name, seed, options, draws):
    case = Case(seed, options=options, draws=draws)
    found = case.score(name).replacements(case.chosen, case.lane)
    np.testing.assert_allclose(found, case.replaced(name), rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("name", SCORES)
def test_the_replaced_option_is_ignored(name):
    case = Case(3)
    score = case.score(name)
    other = case.chosen.copy()
    other[case.lane] = (other[case.lane] + 1) % len(case.tokens)
    np.testing.assert_array_equal(score.replacements(case.chosen, case.lane), score.replacements(other, case.lane))


@pytest.mark.parametrize("name", SCORES)
def test_single_precision_candidates_give_the_same_values_to_six_digits(name):
    case = Case(4, tokens=200, d=20)
    exact = case.score(name).replacements(case.chosen, case.lane)
    np.testing.assert_allclose(case.score(name, np.float32).replacements(case.chosen, case.lane), exact, rtol=2e-5)


@pytest.mark.parametrize("name", SCORES)
@pytest.mark.parametrize("size", [1e-9, 1e3])
def test_answers_that_say_nothing_are_worth_nothing(name, size):
    """Options that are all alike, or whose winner no draw doubts."""
    case = Case(5, size=size)
    case.offsets[:] = 0.0
    if size == 1e3:
        case.draws[:] = case.draws[0]
    found = case.score(name).replacements(case.chosen, case.lane)
    assert np.isfinite(found).all()
    if name != "best":
        assert (found >= -1e-14 * max(1.0, size) ** 2).all()  # rounding of inner products of this size
        np.testing.assert_allclose(np.median(found), 0.0, atol=1e-6)


def test_equal_options_are_a_question_of_fewer_options():
    case = Case(6, options=3)
    case.chosen[:] = 2
    case.offsets[:] = case.offsets[0]
    found = case.score("information").replacements(case.chosen, 0)
    assert abs(found[2]) < 1e-9
    np.testing.assert_allclose(found, [case.value("information", [token, 2, 2]) for token in range(9)], atol=1e-9)


def test_one_draw_at_the_mean_is_the_information_at_the_estimate():
    case = Case(7, draws=1)
    options = case.tokens[case.chosen] + case.offsets
    at_mean = case.precision + fisher_information(options[None], case.draws[0])
    expected = np.linalg.slogdet(at_mean)[1] - np.linalg.slogdet(case.precision)[1]
    found = case.score("information").replacements(case.chosen, case.lane)[case.chosen[case.lane]]
    np.testing.assert_allclose(found, expected, rtol=1e-10)


def test_inverse_factor():
    case = Case(8)
    root = Posterior(np.zeros(6), case.precision).inverse_factor
    np.testing.assert_allclose(root.T @ root, np.linalg.inv(case.precision), rtol=1e-9, atol=1e-12)
    np.testing.assert_array_equal(root, np.tril(root))


def distinct(lane, chosen):
    mask = np.ones(9, dtype=bool)
    mask[np.delete(chosen, lane)] = False
    return mask


@pytest.mark.parametrize("name", SCORES)
@given(seed=st.integers(0, 10_000), sweeps=st.integers(1, 4))
@settings(max_examples=25)
def test_exchange_never_lowers_the_value_and_keeps_to_what_is_allowed(name, seed, sweeps):
    case = Case(seed, options=3)
    start = case.chosen.copy()
    forbidden = int(np.setdiff1d(np.arange(9), start)[0])

    def allowed(lane, chosen):
        mask = distinct(lane, chosen)
        mask[forbidden] = False
        return mask

    rng = np.random.default_rng(seed)
    chosen, value = exchange(case.score(name), allowed, case.chosen, sweeps=sweeps, rng=rng)
    assert value >= case.value(name, start) - 1e-9
    np.testing.assert_allclose(value, case.value(name, chosen), rtol=1e-9, atol=1e-10)
    assert len(set(chosen.tolist())) == 3 and forbidden not in chosen
    np.testing.assert_array_equal(case.chosen, start)


@pytest.mark.parametrize("name", SCORES)
def test_exchange_ends_where_no_single_replacement_helps(name):
    case = Case(11, options=3)
    score = case.score(name)
    chosen, value = exchange(score, distinct, case.chosen, sweeps=50, rng=np.random.default_rng(0))
    for lane in range(3):
        values = np.where(distinct(lane, chosen), score.replacements(chosen, lane), -np.inf)
        assert values.max() <= value + 1e-9


@pytest.mark.parametrize("name", SCORES)
def test_exchange_finds_the_best_question_of_a_small_pool_from_most_starts(name):
    found = []
    for seed in range(4):
        case = Case(seed, options=3)
        case.offsets[:] = 0.0  # then the order of the options does not matter
        best = max(case.value(name, chosen) for chosen in itertools.combinations(range(9), 3))
        score = case.score(name)
        for start in range(10):
            rng = np.random.default_rng(start)
            _, value = exchange(score, distinct, rng.permutation(9)[:3], sweeps=10, rng=rng)
            assert value <= best + 1e-9
            found.append(value > best - 1e-9)
    assert np.mean(found) > 0.6


@pytest.mark.parametrize("contrasts", [None, "some"])
def test_many_options_by_lapack_are_the_loops_over_entries(contrasts, monkeypatch):
    from edpbrl_gym.planners import scores

    rng = np.random.default_rng(8)
    tokens, offsets, draws = rng.normal(size=(40, 6)), rng.normal(size=(7, 6)), rng.normal(size=(5, 6))
    root = Posterior(np.zeros(6), np.eye(6) + 0.3).inverse_factor
    some = None if contrasts is None else rng.normal(size=(6, 3))
    question = np.array([3, 9, 20, 21, 0, 1, 39])
    for score in (ExpectedInformation(draws, root), ExpectedVariance(draws, root, contrasts=some)):
        score.prepare(tokens, offsets)
        lapack = score.replacements(question, 2)
        monkeypatch.setattr(scores, "_MANY", 100)
        np.testing.assert_allclose(lapack, score.replacements(question, 2), rtol=1e-8)
        monkeypatch.undo()


@pytest.mark.parametrize("size", [1.0, 400.0])
def test_shares_are_those_of_the_softmax(size):
    """From exponentials that are computed once, or where these would overflow from differences of utilities."""
    case = Case(3, size=size)
    score = case.score("mutual")
    shares, others = score._shares(case.chosen, case.lane)
    assert (score._exponentials()[1] is None) == (size > 1.0)
    rest = np.delete(np.arange(len(case.chosen)), case.lane)
    for token, row in enumerate(case.tokens):
        options = np.concatenate([[row + case.offsets[case.lane]], (case.tokens[case.chosen] + case.offsets)[rest]])
        chances = np.array([choice_probabilities(options[None], theta)[0] for theta in case.draws])
        np.testing.assert_allclose(shares[token], chances[:, 0], rtol=1e-10, atol=1e-300)
    np.testing.assert_allclose(others.sum(axis=0), 1.0)


def test_the_phase_of_a_determinant_is_the_trace_of_a_solution():
    rng = np.random.default_rng(8)
    for size in (1, 5, 7, 11):
        left, right = (part @ part.transpose(0, 2, 1) for part in rng.normal(size=(2, 50, size, size)))
        matrices = np.eye(size) + left @ right * np.logspace(-6, 6, 50)[:, None, None]
        targets = left @ left * np.logspace(-8, 8, 50)[::-1, None, None]
        expected = np.trace(np.linalg.solve(matrices, targets), axis1=1, axis2=2)
        np.testing.assert_allclose(_trace_of_solution(matrices, targets), expected, rtol=1e-8)
