"""Arguments of the estimation room: what is refused, and how; the ends of ranges that belong to them."""

import re

import numpy as np
import pytest

from edpbrl_gym.comparisons import Comparisons
from edpbrl_gym.estimation import (
    GaussianPrior,
    Posterior,
    VocabularyPrior,
    choice_accuracy,
    cosine_error,
    estimate,
    fit_posterior,
    fit_prior,
    preference_error,
    sample_pairs,
)
from edpbrl_gym.estimation.mixture import MixturePosterior
from edpbrl_gym.estimation.population import choose_population, fit_population
from edpbrl_gym.likelihood import BestOf, Ranking, Response, Terms
from tests.helpers.communities import known_population, simulated


def data(n=12, k=3, d=2, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, k, d)), rng.integers(k, size=n)


def ridge(d=2, precision=1.0):
    return GaussianPrior.isotropic(d, precision)


def gaussian(d=2):
    return Posterior(np.zeros(d), np.eye(d))


def answered(n=4, k=3, d=2):
    options, choices = data(n, k, d)
    return Comparisons.of_choices(options, choices, np.arange(n), np.zeros(n, dtype=int))


def terms():
    options, choices = data()
    return Terms(options, np.zeros(options.shape[:2]), choices)


def pairs(sizes, prompts=2, number=1):
    return sample_pairs(sizes, prompts=prompts, pairs=number, rng=np.random.default_rng(0))


PEOPLE = simulated(np.zeros((20, 2)), 2, 3, 0)
OTHERS = simulated(np.zeros((20, 3)), 2, 3, 0)
POPULATION = known_population(np.eye(2)[0])
from_embeddings = GaussianPrior.from_embeddings
REFUSED = [
    # estimate
    (lambda: estimate(data(), regularization=-1.0), "regularization (lambda) >= 0, got -1"),
    (lambda: estimate(data(), regularization=np.nan), "finite regularization"),
    (lambda: estimate(data(), regularization="much"), "as a number, got 'much'"),
    (lambda: estimate((np.zeros((3, 1, 2)), [0, 0, 0])), "at least 2 options"),
    (lambda: estimate((np.full((3, 2, 2), np.inf), [0, 1, 0])), "infinite"),
    (lambda: estimate((np.ones((3, 2, 2)), [0, 1, 5])), "got 5 at index"),
    (lambda: estimate((np.ones((3, 2, 2)), [0, 1])), "one choice for each of the 3 questions"),
    (lambda: estimate([np.ones((3, 2)), np.ones((2, 2))], [0, 2]), "choices in 0..1 in question 1, got 2"),
    (lambda: estimate(np.zeros((6, 3)), [0]), "shape (n, K, d), got shape (6, 3); give X"),
    (lambda: estimate(data(), prior=ridge(7)), "prior of dimension 2 (the options'), got one of 7"),
    (lambda: estimate(data(), prior=ridge(), regularization=1.0), "either prior or regularization"),
    (lambda: estimate(data(), prior=np.eye(2)), "Expected prior as a GaussianPrior, got ndarray"),
    (lambda: estimate(data(), start=[0.0]), "start of shape (2,), got shape (1,)"),
    (lambda: estimate(data(), start=[0.0, np.nan]), "finite start"),
    (lambda: estimate(data(), tolerance=0.0), "tolerance > 0"),
    (lambda: estimate(data(), max_iterations=0), "max_iterations >= 1"),
    (lambda: estimate(data(), max_iterations=1.5), "max_iterations as an integer"),
    (lambda: estimate(data()[0]), "a long table (pandas.DataFrame) or a pair (options, answers), got ndarray"),
    (lambda: estimate(answered(), [0]), "got Comparisons, which has answers; give it alone"),
    (lambda: estimate((data()[0][:1], [Response.best(0)])), "Expected a model of the responses, got none; give model="),
    (lambda: estimate(terms(), model=BestOf()), "no model beside Terms"),
    (lambda: estimate((np.zeros((0, 2, 3)), []), regularization=0.0), "rank 0; use regularization > 0"),
    (lambda: estimate(data()).predict(np.zeros((3, 3))), "theta has 2 features"),
    (lambda: estimate(data()).predict(np.zeros((1, 2))), "at least 2 options"),
    (lambda: estimate(data()).predict(np.full((2, 2), np.nan)), "NaN"),
    (lambda: estimate(data()).predict("a cat"), "real numbers"),
    (lambda: estimate(data()).predict(np.zeros(2)), "shape"),
    (lambda: estimate(data()).predict(np.zeros((2, 2)), output="odds"), "output as one of"),
    # the scale of a prior
    (lambda: fit_prior(terms(), base=ridge(), model=BestOf()), "no model beside Terms"),
    (lambda: fit_prior(data(), base=np.eye(2)), "base as a GaussianPrior, got ndarray"),
    (lambda: fit_prior(data(), base=ridge(2, 0.0)), "proper prior"),
    (lambda: fit_prior(data(), base=ridge(3)), "base of dimension 2"),
    (lambda: fit_prior(data(), base=ridge(), typical_scale=0.0), "typical_scale"),
    (lambda: fit_prior(data(), base=ridge(), log_spread=np.nan), "log_spread > 0"),
    (lambda: fit_prior(data(), base=ridge(), start=fit_prior(data(d=3), base=ridge(3))), "start.estimate.theta of"),
    (lambda: fit_posterior(data(), base=ridge(), scale=0.0), "scale"),
    (lambda: fit_posterior(data(), base=ridge(), draws=1), "draws"),
    # posteriors
    (lambda: Posterior(np.zeros((2, 1)), np.eye(2)), "mean of shape (d,), got shape (2, 1)"),
    (lambda: Posterior(np.zeros(2), np.eye(3)), "precision of shape (2, 2), got shape (3, 3)"),
    (lambda: Posterior(np.array([0.0, np.nan]), np.eye(2)), "finite mean"),
    (lambda: Posterior(np.zeros(2), np.diag([1.0, 0.0])), "positive definite"),
    (lambda: Posterior.of_mixture([gaussian()], [0.5, 0.5]), "weights of shape (1,), got shape (2,)"),
    (lambda: Posterior.of_mixture([gaussian()] * 2, [-0.5, 1.5]), "weights >= 0 with the sum 1"),
    (lambda: Posterior.of_mixture([gaussian()] * 2, [0.5, 0.6]), "weights >= 0 with the sum 1"),
    (lambda: MixturePosterior.of([gaussian()] * 2, [0.5, 0.6]), "weights >= 0 with the sum 1"),
    (lambda: gaussian().scaled(0.0), "factor > 0"),
    (lambda: gaussian().draws(-1, np.random.default_rng(0)), "size >= 0"),
    (lambda: gaussian().interval(np.eye(2), 1.0), "level in (0, 1)"),
    (lambda: gaussian().interval(np.zeros(2)), "rows of shape (n, 2), got shape (2,); theta has 2 features"),
    (lambda: gaussian().expected_accuracy(np.eye(2), draws=0), "draws"),
    (lambda: gaussian().expected_accuracy(np.zeros((0, 4, 2))), "at least 1 question"),
    (lambda: gaussian().expected_accuracy(np.zeros((3, 1, 2))), "2 options"),
    (lambda: gaussian().choice_probabilities(np.zeros((4, 2, 3))), "got shape (4, 2, 3); theta has 2 features"),
    (lambda: gaussian().choice_probabilities(np.zeros((4, 1, 2))), "2 options"),
    # priors
    (lambda: ridge(3, -0.1), "regularization (lambda) >= 0, got -0.1"),
    (lambda: ridge(0), "dimension >= 1"),
    (lambda: ridge().scaled(0.0), "factor > 0"),
    (lambda: ridge(2, 0.0).covariance, "proper prior"),
    (lambda: GaussianPrior(np.zeros(3)), "precision of shape (d, d), got shape (3,)"),
    (lambda: GaussianPrior(np.zeros((0, 0))), "got shape (0, 0)"),
    (lambda: GaussianPrior(np.ones((2, 3))), "square"),
    (lambda: GaussianPrior([[1.0, 2.0], [0.0, 1.0]]), "symmetric"),
    (lambda: GaussianPrior([[1.0, np.nan], [0.0, 1.0]]), "finite precision"),
    (lambda: GaussianPrior(np.diag([1.0, -1.0])), "semidefinite precision matrix, got the eigenvalue -1"),
    (lambda: GaussianPrior(np.eye(3), np.zeros(2)), "the precision has 3 rows"),
    (lambda: GaussianPrior.from_covariance(np.diag([1.0, 0.0])), "positive definite covariance"),
    (lambda: from_embeddings(np.zeros(3)), "features of shape (N, d), got shape (3,)"),
    (lambda: from_embeddings(np.ones((1, 3))), "at least 2 tokens"),
    (lambda: from_embeddings(np.full((5, 3), 0.1)), "all equal"),
    (lambda: from_embeddings(np.full((5, 3), np.nan)), "finite features"),
    (lambda: from_embeddings(np.eye(3), power=-1), "power >= 0"),
    (lambda: from_embeddings(np.eye(3), scale=0), "scale > 0"),
    (lambda: from_embeddings(np.eye(3), floor=2), "floor in (0, 1]"),
    (lambda: from_embeddings(np.eye(3), floor=0.0), "floor > 0"),
    (lambda: from_embeddings(np.eye(3), shrunk=np.nan), "shrunk"),
    (lambda: VocabularyPrior(np.zeros(3)), "features of shape (N, d), got shape (3,)"),
    (lambda: VocabularyPrior(np.ones((5, 3))), "all equal"),
    (lambda: VocabularyPrior(np.eye(3), share=1.0), "share in [0, 1), got 1.0"),
    (lambda: VocabularyPrior(np.eye(3), share=-0.1), "finite share >= 0"),
    (lambda: VocabularyPrior(np.eye(3), isotropic=1.0), "isotropic in [0, 1), got 1.0"),
    (lambda: VocabularyPrior(np.eye(3)).near([1.0], 2), "theta of shape (3,), got shape (1,)"),
    (lambda: VocabularyPrior(np.eye(3)).fit(data()), "base of dimension 2"),
    (lambda: VocabularyPrior(np.eye(3)).fit(data()[0]), "a pair (options, answers), got ndarray"),
    # populations
    (lambda: fit_population(PEOPLE[:19]), "at least 20 people to fit a population, got 19"),
    (lambda: fit_population([*PEOPLE, OTHERS[0]]), "same features, got 3 features for person 20"),
    (lambda: fit_population(PEOPLE[0][0]), "sequence with one item per person"),
    (lambda: fit_population([*PEOPLE, "yes"]), "Person 20: "),
    (lambda: fit_population(PEOPLE, kind="normal"), "kind"),
    (lambda: fit_population(PEOPLE, factors=2), "only with kind='factors'"),
    (lambda: fit_population(PEOPLE, base=ridge(2, 0.0)), "proper"),
    (lambda: fit_population(PEOPLE, base=ridge(3)), "dimension 2"),
    (lambda: fit_population(PEOPLE, kind="factors", factors=3), "at most 2 factors"),
    (lambda: choose_population(PEOPLE, candidates=()), "at least one candidate"),
    (lambda: choose_population(PEOPLE, candidates=(-1, 1)), "candidates"),
    (lambda: choose_population(PEOPLE, folds=21), "as many people as folds, got 20 people and 21"),
    (lambda: choose_population(PEOPLE, folds=1), "folds"),
    (lambda: choose_population(PEOPLE[:8]), "at least 20 people"),
    (lambda: POPULATION.updated(PEOPLE[:5]), "at least 20 people to update a population, got 5"),
    (lambda: POPULATION.updated(PEOPLE, forgetting=1.0), "forgetting in"),
    (lambda: POPULATION.updated(OTHERS), "same features"),
    (lambda: POPULATION.fit((np.zeros((1, 3, 4)), [0])), "2 features"),
    (lambda: POPULATION.fit(PEOPLE[0], fallback_weight=1.0), "fallback_weight in"),
    (lambda: POPULATION.fit(PEOPLE[0], fallback_weight=0.0), "fallback_weight"),
    (lambda: POPULATION.fit(PEOPLE[0], fallback_weight=-0.5), "fallback_weight"),
    (lambda: POPULATION.fit(PEOPLE[0], fallback=3), "fallback as a VocabularyPrior or a GaussianPrior"),
    (lambda: POPULATION.fit(PEOPLE[0], fallback=ridge(3)), "fallback of dimension 2"),
    (lambda: POPULATION.fit(PEOPLE[0], fallback=VocabularyPrior(np.eye(3))), "fallback of dimension 2"),
    (lambda: POPULATION.with_fallback(VocabularyPrior(np.eye(3))), "2 features (the population's), got 3"),
    (lambda: POPULATION.with_fallback(POPULATION.base), "VocabularyPrior"),
    (lambda: POPULATION.fit(PEOPLE[0]).choice_probabilities(np.zeros((1, 3, 5))), "options"),
    # metrics
    (lambda: cosine_error([1.0], [[1.0]]), "truth of shape (d,), got shape (1, 1)"),
    (lambda: cosine_error([1.0], [1.0, 2.0]), "estimate of shape (2,), got shape (1,)"),
    (lambda: cosine_error(np.ones(3), np.zeros(3)), "other than 0"),
    (lambda: preference_error([1.0], [1.0], [1.0], [[0, 0]]), "features of shape (n, d), got shape (1,)"),
    (lambda: preference_error([1.0], [1.0], [[1.0]], [0, 0]), "pairs of shape (p, 2), got shape (2,)"),
    (lambda: preference_error([1.0], [1.0, 2.0], [[1.0]], [[0, 0]]), "truth of shape (1,), got shape (2,)"),
    (lambda: preference_error([1.0], [1.0], [[1.0], [2.0]], [[0, 2]]), "pairs in 0..1"),
    (lambda: choice_accuracy(answered(), [1.0]), "estimate of shape (2,), got shape (1,)"),
    (lambda: choice_accuracy(Comparisons.empty(3, 2), np.ones(2)), "at least one held-out question, got none"),
    (lambda: pairs(3), "sizes of shape (H,), got shape ()"),
    (lambda: pairs([3], prompts=1), "prompts"),
    (lambda: pairs([3], number=0), "pairs"),
    (lambda: pairs([3, 0]), "sizes"),
    (lambda: pairs([1, 1]), "at least two prompts, got one"),
]


@pytest.mark.parametrize(("call", "message"), REFUSED, ids=[message for _, message in REFUSED])
def test_what_is_refused(call, message):
    with pytest.raises((ValueError, TypeError), match=f"Expected.*{re.escape(message)}|^{re.escape(message)}"):
        call()


def test_the_ends_of_ranges_that_belong_to_them():
    assert fit_posterior(data(), base=ridge(), scale=0.5, draws=2).scale == 0.5
    assert gaussian().expected_accuracy(np.zeros((1, 3, 2)), draws=1) in (0.0, 1.0)
    assert estimate(data(), max_iterations=1).iterations == 1
    assert sorted(pairs([2]).tokens[:, 0]) == [0, 1]


def test_a_model_is_passed_on():
    rng = np.random.default_rng(2)
    options = rng.normal(size=(15, 3, 2))
    responses = Ranking().sample(options, [1.0, -1.0], rng.random(15))
    ranked = Ranking().terms(options, responses)
    for one in (fit_prior, fit_posterior):
        by_model, by_terms = one((options, responses), base=ridge(), model=Ranking()), one(ranked, base=ridge())
        assert (by_model.scale, by_model.log_evidence) == (by_terms.scale, by_terms.log_evidence)
    prior = VocabularyPrior(rng.normal(size=(30, 2)))
    np.testing.assert_array_equal(prior.fit((options, responses), model=Ranking()).theta, prior.fit(ranked).theta)


def test_a_singular_precision_has_no_covariance():
    split = estimate((np.array([[[1.0], [0.0]]]), [0]), regularization=0.0)
    singular = type(split)(**{**vars(split), "precision": np.zeros((1, 1))})
    with pytest.raises(ValueError, match=r"got a singular one \(the answers are separable.*use regularization > 0"):
        singular.covariance()
