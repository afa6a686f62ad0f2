"""The value of a question for every replacement of an option, and the search over them, against brute force."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edpbrl_gym.estimation import Posterior
from edpbrl_gym.likelihood.choice import choice_probabilities, fisher_information
from edpbrl_gym.planners.exchange import exchange
from edpbrl_gym.planners.scores import ExpectedBest, ExpectedInformation, ExpectedVariance, MutualInformation

SCORES = ("information", "trace", "variance", "mutual", "best")


class Case:
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
        posterior = Posterior(np.zeros(len(self.precision)), self.precision)
        made = {
            "information": lambda: ExpectedInformation(self.draws, posterior),
            "trace": lambda: ExpectedVariance(self.draws, posterior),
            "variance": lambda: ExpectedVariance(self.draws, posterior, contrasts=self.contrasts),
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
@given(seed=st.integers(0, 10_000), options=st.integers(2, 8), draws=st.integers(1, 7))
@settings(max_examples=40)
def test_replacements_are_the_values_of_the_changed_questions(name, seed, options, draws):
    case = Case(seed, options=options, draws=draws)
    found = case.score(name).replacements(case.chosen, case.lane)
    np.testing.assert_allclose(found, case.replaced(name), rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("name", SCORES)
def test_candidates_that_are_the_same_array_may_get_other_offsets(name):
    case = Case(6, tokens=20)
    score, tokens = case.score(name), case.tokens.copy()
    score.prepare(tokens, case.offsets[::-1] + 1.0)
    score.replacements(case.chosen, case.lane)
    score.prepare(tokens, case.offsets)
    found = score.replacements(case.chosen, case.lane)
    np.testing.assert_allclose(found, case.replaced(name), rtol=1e-9, atol=1e-10)


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


@pytest.mark.parametrize("name", ["information", "trace"])
def test_utilities_whose_exponentials_would_overflow(name):
    case = Case(3, size=400.0)
    found = case.score(name).replacements(case.chosen, case.lane)
    np.testing.assert_allclose(found, case.replaced(name), rtol=1e-6, atol=1e-10)
