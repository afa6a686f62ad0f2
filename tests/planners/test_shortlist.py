"""The search of large steps among shortlists, against direct formulas and searches of all tokens."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit

from edpbrl_gym.design.questions import Restrictions
from edpbrl_gym.estimation import Posterior
from edpbrl_gym.estimation.neighbourhood import VocabularyPrior
from edpbrl_gym.likelihood.choice import fisher_information
from edpbrl_gym.planners import AdaptivePlanner, TokenFeatures, shortlist
from edpbrl_gym.planners.exchange import exchange
from edpbrl_gym.planners.shortlist import Knowledge
from edpbrl_gym.vocabulary import Vocabulary

N, D, K = 3000, 12, 4


def rows_of(seed: int, count: int = N) -> np.ndarray:
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(count // 25, D)) * np.arange(1, D + 1) ** -0.5
    rows = centres[rng.integers(len(centres), size=count)] + 0.5 * rng.normal(size=(count, D))
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


ROWS = rows_of(0)
POOL = Vocabulary(("item",), (tuple(f"item {number}" for number in range(N)),))


def make(rows=ROWS, **options) -> AdaptivePlanner:
    return AdaptivePlanner(POOL, options=TokenFeatures(POOL, rows), prior=VocabularyPrior(rows), **options)


def posterior_of(seed: int, *, nearly_known: bool) -> Posterior:
    """Nearly known: the covariance spans ten orders of magnitude, as after certain answers or under a strong prior."""
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(D, D))
    precision = root @ root.T + 0.2 * np.eye(D)
    if nearly_known:
        basis = np.linalg.qr(root)[0]
        precision = (basis * np.logspace(-2, 8, D)) @ basis.T
    return Posterior(rng.normal(size=D), precision)


@pytest.mark.parametrize("nearly_known", [False, True])
@pytest.mark.parametrize("variance", [True, False])
@pytest.mark.parametrize("contrasts", [None, "some"])
@pytest.mark.parametrize("asked", [False, True])
def test_the_value_of_a_pair_is_that_of_its_formula(variance, contrasts, asked, nearly_known):
    """In as many directions as there are features nothing is left out."""
    rng = np.random.default_rng(3)
    posterior, pairs = posterior_of(1, nearly_known=nearly_known), rng.normal(size=(20, D))
    some = None if contrasts is None else rng.normal(size=(D, 3))
    reduced = shortlist._Reduced(Knowledge(posterior, variance, some), np.eye(D))
    before = left = posterior.covariance()
    if asked:
        options, draws = rng.normal(size=(K, D)), posterior.draws(7, rng)
        information = np.mean([fisher_information(options[None], theta) for theta in draws], axis=0)
        left = np.linalg.inv(posterior.precision + information)
        reduced, centre = reduced.after(options, draws)
        chances = np.exp(options @ draws.T)
        chances /= chances.sum(axis=0)
        shares = (chances * (1.0 - chances)).mean(axis=1)
        np.testing.assert_allclose(centre, shares @ options / shares.sum(), rtol=1e-9)
    target = left @ left if some is None else left @ some @ some.T @ left
    expected = []
    for y in pairs:
        width = y @ before @ y + 8.0 / np.pi
        weight = np.exp(-((y @ posterior.mean) ** 2) / (2 * width)) / np.sqrt(2 * np.pi * width)
        part = weight * (y @ left @ y)
        expected.append(weight * (y @ target @ y) / (1 + part) if variance else np.log1p(part))
    np.testing.assert_allclose(reduced.values(pairs.astype(np.float32)), expected, rtol=1e-3 if nearly_known else 2e-4)


def test_the_weight_of_a_pair_is_near_its_mean():
    """The normal density stands for the mean of p (1 - p) within a few per cent of its height."""
    nodes = np.random.default_rng(0).normal(size=200_000)
    for mean, deviation in ((0.0, 0.3), (0.0, 3.0), (1.0, 1.0), (3.0, 2.0)):
        chance = expit(mean + deviation * nodes)
        width = deviation**2 + 8.0 / np.pi
        weight = np.exp(-(mean**2) / (2 * width)) / np.sqrt(2 * np.pi * width)
        assert weight == pytest.approx(float((chance * (1 - chance)).mean()), abs=0.01)


@pytest.mark.parametrize("score", ["trace", "information", "variance"])
def test_questions_are_nearly_as_good_as_those_of_a_search_of_all_tokens(score):
    found = []
    for seed in range(3):
        planner = make(score=score, seed=seed, num_options=K)
        rng, theta = np.random.default_rng(seed), 5.0 * np.random.default_rng(seed).normal(size=D)
        for answers in range(9):
            question = planner.ask(np.empty((K, 0), dtype=int))
            if answers in (0, 8):
                measured = planner.question_score(np.random.default_rng([seed, answers]))  # the same draws
                measured.prepare(ROWS.astype(np.float32), np.zeros((K, D)))
                value = measured.replacements(question, 0)[question[0]]
                best = max(
                    exchange(measured, distinct, rng.permutation(N)[:K], sweeps=20, rng=rng)[1] for _ in range(2)
                )
                found.append(value / best)
            utilities = ROWS[question] @ theta + rng.gumbel(size=K)
            planner.tell(ROWS[question][None], [int(utilities.argmax())])
    assert np.mean(found) > 0.97 and min(found) > 0.9


def distinct(lane, question):
    mask = np.ones(N, dtype=bool)
    mask[np.delete(question, lane)] = False
    return mask


@pytest.mark.parametrize("score", ["trace", "mutual"])
def test_the_same_calls_give_the_same_questions(score):
    first, second = make(score=score), make(score=score)
    for _ in range(3):
        question = first.ask(np.empty((K, 0), dtype=int))
        assert len(set(question.tolist())) == K
        np.testing.assert_array_equal(second.ask(np.empty((K, 0), dtype=int)), question)
        for planner in (first, second):
            planner.tell(ROWS[question][None], [0])


def test_other_items_have_lists_of_their_own():
    start, others = np.empty((4, 0), dtype=int), rows_of(9)
    moved, unused = make(), make()
    moved.ask(start)  # makes the lists of the first items
    for planner in (moved, unused):
        planner.replace_items(others)
    moved.asked = 0
    np.testing.assert_array_equal(moved.ask(start), unused.ask(start))


def test_restrictions_are_honoured():
    """The tokens that are worth most may not be shown beside the first token."""
    words = Vocabulary(("first", "second"), (("a", "b"), tuple(f"item {number}" for number in range(N))))
    rows = np.concatenate([ROWS[:2], ROWS])
    prior = VocabularyPrior(ROWS)
    worth = np.argsort(-np.einsum("nd,de,ne->n", ROWS, prior.base.covariance, ROWS))[:400]
    forbidden = tuple((first, 2 + int(token)) for first in range(2) for token in worth)
    planner = AdaptivePlanner(
        words, options=TokenFeatures(words, rows), prior=prior, restrictions=Restrictions(forbidden=forbidden), seed=1
    )
    begun = np.array([[0], [1], [0], [1]])
    question = planner.ask(begun)
    assert len(set(question.tolist())) == 4 and not set(question.tolist()) & set(worth.tolist())
