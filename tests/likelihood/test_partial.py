"""Partial rankings, against definitions written out, the other formats and draws; grids of up to twelve options."""

import itertools
from math import perm

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

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
    response_model_of,
)
from edpbrl_gym.oracles import ImperfectUser


def problem(seed, n=4, num_options=4, d=3, spread=1.0):
    rng = np.random.default_rng(seed)
    return spread * rng.normal(size=(n, num_options, d)), rng.normal(size=d)


def choice_by_choice(values, order):
    """Probability of an order of taps, in plain Python."""
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


@pytest.mark.parametrize("count", [2, 3, 5, 6])
def test_one_tap_is_best_of_k_and_all_but_one_the_ranking(count):
    options, theta = problem(3, num_options=count)
    one, most = PartialRanking(1), PartialRanking(count - 1)
    np.testing.assert_allclose(one.probabilities(options, theta), BestOf().probabilities(options, theta), rtol=1e-12)
    np.testing.assert_allclose(one.weights(options @ theta), BestOf().weights(options @ theta), atol=1e-15)
    np.testing.assert_allclose(most.probabilities(options, theta), Ranking().probabilities(options, theta), rtol=1e-10)
    for model in (most, PartialRanking(count), PartialRanking(99)):
        np.testing.assert_array_equal(model.weights(options @ theta), Ranking().weights(options @ theta))
    draws = np.random.default_rng(0).random(4)
    rankings = Ranking().sample(options, theta, draws)
    assert [r.order for r in most.sample(options, theta, draws)] == [r.order[: count - 1] for r in rankings]
    same = [rankings, most.sample(options, theta, draws), [Response.partial(r.order) for r in rankings]]
    expected = Ranking().terms(options, rankings)
    for answers in same:  # all K taps, or all but the last, and the ranking itself
        found = most.terms(options, answers)
        for name in ("log_likelihood", "score", "information"):
            np.testing.assert_allclose(getattr(found, name)(theta), getattr(expected, name)(theta), atol=1e-12)


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


@pytest.mark.parametrize("refused", [Response.tie(), Response.best_worst(0, 1)])
def test_other_answers_are_refused(refused):
    options, _ = problem(0, n=2)
    with pytest.raises(ValueError, match="takes only 'partial', 'best', 'ranking' or 'skip', got .* at question 1"):
        PartialRanking().terms(options, [Response.best(0), refused])
    with pytest.raises(ValueError, match="'best_worst' takes only"):
        BestWorst().terms(options, [Response.partial([0]), Response.skip()])
    with pytest.raises(ValueError, match="'ranking' takes only"):
        Ranking().terms(options, [Response.partial([0, 1, 2, 3]), Response.skip()])


def test_bad_numbers_of_taps_and_too_many_orders():
    for taps, error in ((0, ValueError), (1.5, TypeError), (True, TypeError)):
        with pytest.raises(error, match="taps"):
            PartialRanking(taps)
    with pytest.raises(ValueError, match="at most 40,320 orders to list, got 95,040 of 5 taps among K = 12"):
        PartialRanking(5).outcomes(12)
    with pytest.raises(ValueError, match="at most 4,096 sets .* got 8,178 before 12 taps among K = 13"):
        PartialRanking(20).weights(np.zeros((1, 13)))


# ---------------------------------------------------------------- twelve options


def test_twelve_options_and_three_taps():
    options, theta = problem(7, n=2, num_options=12, spread=0.7)
    model = PartialRanking(3)
    outcomes, p = model.outcomes(12), model.probabilities(options, theta)
    assert len(outcomes) == perm(12, 3) == 1320 and p.shape == (2, 1320)
    np.testing.assert_allclose(p.sum(axis=1), 1.0, atol=1e-12)
    values = options @ theta
    for place in range(0, 1320, 97):
        order = outcomes[place].order
        np.testing.assert_allclose(p[:, place], [choice_by_choice(v, order) for v in values], rtol=1e-10)


def test_draws_of_twelve_options_have_the_probabilities():
    options, theta = problem(8, n=1, num_options=12, spread=0.5)
    model, count = PartialRanking(3), 40_000
    drawn = model.sample(np.repeat(options, count, axis=0), theta, np.random.default_rng(1).random(count))
    place = {outcome: index for index, outcome in enumerate(model.outcomes(12))}
    seen = np.bincount([place[answer] for answer in drawn], minlength=len(place))
    assert chisquare(seen, count * model.probabilities(options, theta)[0]).pvalue > 1e-4
    best = model.sample(options, theta, None)[0].order
    assert best == tuple(np.argsort(-(options[0] @ theta))[:3])


@pytest.mark.parametrize("model", [PartialRanking(1), PartialRanking(3), PartialRanking(11), Ranking()])
def test_more_taps_tell_no_less_and_a_grid_of_twelve_gives_finite_weights(model):
    values = np.random.default_rng(2).normal(size=(3, 12)) * np.array([[0.1], [2.0], [40.0]])
    found, less = model.weights(values), BestOf().weights(values)
    np.testing.assert_allclose(found.sum(axis=2), 0.0, atol=1e-12)
    assert np.linalg.eigvalsh(found - less).min() > -1e-12


@pytest.mark.parametrize("count", [9, 12])
@pytest.mark.parametrize("model", [BestOf(), BestWorst(), PartialRanking(3)], ids=lambda model: model.name)
def test_every_format_of_large_grids_is_learnt_and_kept(model, count, tmp_path):
    """Probabilities over all outcomes, simulated answers, files, and a taste learnt from them."""
    options, theta = problem(count, n=150, num_options=count, d=4)
    theta = 2.0 * theta
    outcomes = model.outcomes(count)
    np.testing.assert_allclose(model.probabilities(options[:3], theta).sum(axis=1), 1.0, atol=1e-11)
    step = 1e-5
    slope = [
        (np.log(model.probabilities(options[:1], theta + e)) - np.log(model.probabilities(options[:1], theta - e)))
        for e in step * np.eye(4)
    ]
    scores = np.stack(slope, axis=-1)[0] / (2 * step)
    at = model.probabilities(options[:1], theta)[0]
    np.testing.assert_allclose(model.information(options[:1], theta), (scores.T * at) @ scores, atol=1e-5)
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
    assert response_model_of(kinds) == BestOf() == response_model_of([])
    assert response_model_of([*kinds, Response.best_worst(0, 1)]) == BestWorst()
    assert response_model_of([*kinds, Response.ranking([1, 0])]) == Ranking()
    assert isinstance(response_model_of([*kinds, Response.ranking([1, 0]), Response.partial([1])]), PartialRanking)
    assert isinstance(response_model_of([*kinds, Response.tie()]), WithTies)
    with pytest.raises(ValueError, match="one response model takes, got the kinds best_worst, tie"):
        response_model_of([Response.best_worst(0, 1), Response.tie()])
