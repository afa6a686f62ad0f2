"""Partial rankings, against definitions written out, the other formats and draws; grids of up to twelve options."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edpbrl_gym.comparisons import Comparisons
from edpbrl_gym.comparisons.queries import Queries
from edpbrl_gym.estimation import estimate
from edpbrl_gym.likelihood import (
    BestOf,
    BestWorst,
    PartialRanking,
    Ranking,
    Response,
    WithTies,
    format_of,
)
from edpbrl_gym.oracles import ImperfectUser


def problem(seed, n=4, num_options=4, d=3, spread=1.0):
    rng = np.random.default_rng(seed)
    return spread * rng.normal(size=(n, num_options, d)), rng.normal(size=d)


def choice_by_choice(values, order):
    left, probability = list(range(len(values))), 1.0
    for option in order:
        probability *= np.exp(values[option]) / sum(np.exp(values[j]) for j in left)
        left.remove(option)
    return probability


@settings(max_examples=25)
@given(st.integers(0, 10**6), st.integers(2, 5), st.integers(1, 6), st.floats(0.1, 20.0))
def test_an_order_of_taps_is_its_choices_and_the_sum_of_the_rankings_that_begin_with_it(seed, count, taps, spread):
    options, theta = problem(seed, n=2, num_options=count, spread=spread)
    model, stages = PartialRanking(taps), min(taps, count - 1)
    outcomes, p = model.outcomes(count), model.probabilities(options, theta)
    assert [outcome.order for outcome in outcomes] == list(itertools.permutations(range(count), stages))
    rankings = {r.order: q for r, q in zip(Ranking().outcomes(count), Ranking().probabilities(options, theta).T)}  # noqa: B905
    for outcome, found in zip(outcomes, p.T, strict=True):
        values = options @ theta
        np.testing.assert_allclose(found, [choice_by_choice(v, outcome.order) for v in values], rtol=1e-9)
        whole = sum(q for order, q in rankings.items() if order[:stages] == outcome.order)
        np.testing.assert_allclose(found, whole, rtol=1e-9)


def test_answers_of_any_length_in_one_likelihood_and_its_gradient():
    options, theta = problem(5, n=6, num_options=5)
    answers = [
        Response.partial([2]),
        Response.partial([4, 0, 1]),
        Response.best(3),
        Response.skip(),
        Response.ranking([1, 0, 4, 3, 2]),
        Response.partial([0, 3, 2, 1, 4]),
    ]
    terms = PartialRanking().terms(options, answers)
    assert len(terms) == 1 + 3 + 1 + 4 + 4
    values = options @ theta
    expected = sum(np.log(choice_by_choice(v, a.order)) for v, a in zip(values, answers, strict=True))
    assert terms.log_likelihood(theta) == pytest.approx(expected, abs=1e-11)
    moves = 1e-5 * np.eye(3)
    slope = [(terms.log_likelihood(theta + e) - terms.log_likelihood(theta - e)) / 2e-5 for e in moves]
    np.testing.assert_allclose(terms.score(theta), slope, atol=1e-7)
    found = estimate((options, answers), model=PartialRanking(), regularization=0.5)
    assert found.converged
    at_estimate = [
        (terms.log_likelihood(found.theta + e) - terms.log_likelihood(found.theta - e)) / 2e-5 for e in moves
    ]
    np.testing.assert_allclose(at_estimate, 0.5 * found.theta, atol=1e-6)  # the gradient of the ridge


@pytest.mark.parametrize("model", [PartialRanking(1), PartialRanking(3), PartialRanking(11), Ranking()])
def test_more_taps_tell_no_less_and_a_grid_of_twelve_gives_finite_weights(model):
    values = np.random.default_rng(2).normal(size=(3, 12)) * np.array([[0.1], [2.0], [40.0]])
    found, less = model.weights(values), BestOf().weights(values)
    np.testing.assert_allclose(found.sum(axis=2), 0.0, atol=1e-12)
    assert np.linalg.eigvalsh(found - less).min() > -1e-12


@pytest.mark.parametrize("count", [9, 12])
@pytest.mark.parametrize("model", [BestOf(), BestWorst(), PartialRanking(3)], ids=lambda model: model.name)
def test_every_format_of_large_grids_is_learnt_and_kept(model, count, tmp_path):
    options, theta = problem(count, n=150, num_options=count, d=4)
    theta = 2.0 * theta
    outcomes = model.outcomes(count)
    np.testing.assert_allclose(model.probabilities(options[:3], theta).sum(axis=1), 1.0, atol=1e-11)
    place = np.arange(150)
    queries = Queries(options.astype(np.float32), place, 0 * place)
    user = ImperfectUser(theta, mode="sampled", response=model.name, mistake_rate=0.05, seed=1)
    answers = user.answer(queries).responses
    assert set(answers) <= set(outcomes) and {answer.kind for answer in answers} <= set(model.kinds)
    told = Comparisons(queries.features, answers, place, 0 * place)
    told.to_parquet(tmp_path / "told.parquet")
    again = Comparisons.from_parquet(tmp_path / "told.parquet")
    assert again.responses == answers
    found = estimate(again, model=model, regularization=0.1).theta
    assert found @ theta > 0.95 * np.linalg.norm(found) * np.linalg.norm(theta)


def test_what_simulated_people_tap_is_recorded():
    user = ImperfectUser(np.ones(3), response="partial", taps=2)
    assert user.describe()["taps"] == 2 and "taps" not in ImperfectUser(np.ones(3)).describe()
    with pytest.raises(ValueError, match="taps"):
        ImperfectUser(np.ones(3), response="partial", taps=0)


def test_the_model_of_answers():
    kinds = [Response.best(0), Response.skip()]
    assert format_of(kinds) == BestOf() == format_of([])
    assert format_of([*kinds, Response.best_worst(0, 1)]) == BestWorst()
    assert format_of([*kinds, Response.ranking([1, 0])]) == Ranking()
    assert isinstance(format_of([*kinds, Response.ranking([1, 0]), Response.partial([1])]), PartialRanking)
    assert isinstance(format_of([*kinds, Response.tie()]), WithTies)
    with pytest.raises(ValueError, match="one answer format takes, got the kinds best_worst, tie"):
        format_of([Response.best_worst(0, 1), Response.tie()])
