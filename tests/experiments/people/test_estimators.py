"""Estimators with and without other people, and the replay of a person's answers."""

from __future__ import annotations

import numpy as np
import pytest

from edpbrl_gym.estimation import GaussianPrior, estimate, fit_posterior
from edpbrl_gym.estimation.population import fit_population
from edpbrl_gym.experiments.people.data import Person
from edpbrl_gym.experiments.people.estimators import (
    ESTIMATORS,
    HIERARCHICAL_BAYES,
    Fit,
    make_estimator,
    population_by_em,
)
from edpbrl_gym.experiments.people.protocol import NewPerson, make_fold
from edpbrl_gym.experiments.people.replay import judge, replay
from tests.helpers.made_people import MEAN, SPREAD, made_people


@pytest.fixture(scope="module")
def fold():
    return make_fold(made_people(40, 12).standardised(), 0, folds=4, most=6, held_out=4)


@pytest.fixture(scope="module")
def estimators(fold):
    return {name: make_estimator(name, fold.known, 3) for name in ESTIMATORS if name != HIERARCHICAL_BAYES}


def test_one_round_of_em_is_the_mean_and_spread_of_the_estimates(fold):
    people = [person.terms() for person in fold.known]
    prior = population_by_em(people, rounds=1)
    ones = [estimate(one, regularization=1.0) for one in people]
    assert np.allclose(prior.mean, np.mean([one.theta for one in ones], axis=0))
    assert population_by_em(people).mean[0] > prior.mean[0]  # estimates are pulled towards 0, less with each round
    with pytest.raises(ValueError, match="at least 2 other people"):
        population_by_em(people[:1])


def test_em_finds_the_population_of_many_people():
    prior = population_by_em([person.terms() for person in made_people(300, 30).standardised().people], rounds=25)
    assert np.allclose(prior.mean, MEAN, atol=0.25)
    assert np.allclose(np.sqrt(np.diag(prior.covariance)), SPREAD, atol=0.4)


def test_without_answers_each_says_what_it_knew_before(fold, estimators):
    none = fold.new[0].asked.select([]).terms()
    options = fold.new[0].held_out.options
    for name in ("ridge100", "ridge1", "ridge-fit"):
        assert not estimators[name].fit(none).theta.any()
    prior = population_by_em([person.terms() for person in fold.known])
    fit = estimators["population-em6"].fit(none)
    assert np.allclose(fit.theta, prior.mean) and np.allclose(estimators["population-em6"].plan(none).mean, prior.mean)
    draws = np.random.default_rng(0).multivariate_normal(prior.mean, prior.covariance, 50_000)
    utilities = options @ draws.T
    powers = np.exp(utilities - utilities.max(axis=1, keepdims=True))
    assert np.allclose(fit.probabilities(options), (powers / powers.sum(axis=1, keepdims=True)).mean(axis=2), atol=0.01)


def test_estimates_are_those_of_the_library(fold, estimators):
    answers, options = fold.new[1].asked.terms(), fold.new[1].held_out.options
    for name, ridge in (("ridge100", 100.0), ("ridge1", 1.0)):
        fit = estimators[name].fit(answers)
        assert np.allclose(fit.theta, estimate(answers, regularization=ridge).theta)
        base = GaussianPrior.isotropic(3, ridge)
        expected = fit_posterior(answers, base=base, scale=1.0).posterior.choice_probabilities(options)
        assert np.allclose(fit.probabilities(options), expected)
    for one in estimators.values():
        fit = one.fit(answers)
        assert np.allclose(fit.probabilities(options).sum(axis=1), 1.0)
        assert one.plan(answers).precision.shape == (3, 3)
    with pytest.raises(ValueError, match="ridge1"):
        make_estimator("ridge", fold.known, 3)


# -- replay ----------------------------------------------------------------------------------------------------------


def test_every_checkpoint_has_a_row_for_every_held_out_question(fold, estimators):
    rows = replay(estimators["ridge1"], "random", fold.new[0], (0, 3, 8, 30))
    assert [(row["answers"], row["question"]) for row in rows] == [(n, q) for n in (0, 3, 8) for q in range(4)]
    assert np.isnan(rows[0]["seconds_question"]) and rows[-1]["seconds_question"] >= 0
    assert all(row["hit"] == pytest.approx(1 / 3) and row["confidence"] == pytest.approx(1 / 3) for row in rows[:4])


def test_rules_ask_the_same_questions_in_another_order(fold, estimators):
    person = fold.new[2]
    every = len(person.asked)
    ends = {}
    for rule in ("random", "adaptive", "bald"):
        rows = replay(estimators["population-em6"], rule, person, (1, every))
        ends[rule] = [row["log_probability"] for row in rows]
    for rule in ("adaptive", "bald"):
        assert np.allclose(ends[rule][4:], ends["random"][4:], atol=1e-6) and ends[rule][:4] != ends["random"][:4]


def test_held_out_answers_change_no_estimate(fold, estimators):
    person = fold.new[3]
    other = Person("x", person.held_out.options, person.held_out.sizes, (person.held_out.chosen + 1) % 3)
    first, second = (
        replay(estimators["population-em6"], "adaptive", NewPerson(person.place, person.asked, held_out), (0, 2, 5))
        for held_out in (person.held_out, other)
    )
    assert [row["confidence"] for row in first] == [row["confidence"] for row in second]
    assert [row["hit"] for row in first] != [row["hit"] for row in second]


def test_ties_share_a_hit_and_missing_options_get_no_probability():
    options = np.array([[[1.0], [1.0], [0.0]], [[1.0], [0.0], [9.0]], [[2.0], [0.0], [1.0]]])
    held_out = Person("p", options, np.array([3, 2, 3]), np.array([1, 1, 2]))
    seen = []

    def probabilities(rows):
        seen.append(rows.shape)
        return np.full(rows.shape[:2], 1.0 / rows.shape[1])

    rows = judge(Fit(np.array([0.5]), probabilities), held_out)
    assert sorted(seen) == [(1, 2, 1), (2, 3, 1)]
    assert [row["hit"] for row in rows] == [0.5, 0.0, 0.0]
    assert [row["confidence"] for row in rows] == pytest.approx([1 / 3, 1 / 2, 1 / 3])
    assert [row["log_probability"] for row in rows] == pytest.approx(-np.log([3, 2, 3]))
    expected = [np.exp(0.5) / (2 * np.exp(0.5) + 1), 1 / (1 + np.exp(0.5)), np.exp(0.5) / (np.exp(1) + 1 + np.exp(0.5))]
    assert [row["log_probability_at_estimate"] for row in rows] == pytest.approx(np.log(expected))


def test_other_people_help():
    """The point of it all, on made people: with no answer at all better than alone with four."""
    people = made_people(60, 12, seed=3).standardised()
    alone, together = [], []
    for number in range(3):
        fold = make_fold(people, number, folds=3, most=12, held_out=4)
        first, second = (make_estimator(name, fold.known, 3) for name in ("ridge-fit", "population-em6"))
        for person in fold.new:
            alone += [row["log_probability"] for row in replay(first, "random", person, (4,))]
            together += [row["log_probability"] for row in replay(second, "random", person, (0,))]
    assert np.mean(together) > np.mean(alone)


def test_populations_are_those_of_the_library(fold, estimators):
    answers, options = fold.new[1].asked.terms(), fold.new[1].held_out.options
    expected = fit_population([person.terms() for person in fold.known], kind="gaussian").fit(answers)
    fit = estimators["population-gaussian"].fit(answers)
    assert np.allclose(fit.theta, expected.theta)
    assert np.allclose(fit.probabilities(options), expected.choice_probabilities(options))
    assert np.allclose(estimators["population-gaussian"].plan(answers).mean, expected.planned.mean)


@pytest.mark.parametrize("name", ["population-gaussian", "population-types", "population-factors"])
def test_populations_take_people_with_missing_options(name):
    part = make_fold(made_people(24, 8, sizes=(3, 2)).standardised(), 0, folds=8, most=1, held_out=4)
    rows = replay(make_estimator(name, part.known, 3), "adaptive", part.new[0], (0, 2, 4))
    assert len(rows) == 12 and all(np.isfinite(row["log_probability"]) for row in rows)
