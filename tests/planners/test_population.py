"""Planners under a population: what they estimate, and that types of people are told apart and states go on."""

import numpy as np
import pytest

from edpbrl_gym.estimation import VocabularyPrior
from edpbrl_gym.estimation.mixture import MixturePosterior
from edpbrl_gym.likelihood import Response
from edpbrl_gym.planners import AdaptivePlanner, ComposedFeatures, TokenFeatures, make_planner
from edpbrl_gym.vocabulary import Vocabulary
from tests.helpers.communities import known_types
from tests.helpers.session_planners import WORDS, D, encoder

TOKENS = encoder().encode(WORDS.all_tokens)
POOL = Vocabulary(("item",), (WORDS.all_tokens,))
START = np.empty((3, 0), dtype=np.int64)
MEANS = 4.0 * np.eye(3, D)


@pytest.fixture(scope="module")
def population():
    return known_types(MEANS)


def pool_planner(population, name="adaptive", **options):
    options = {"prior": population, "num_options": 3, **options}
    return make_planner(name, POOL, TokenFeatures(POOL, TOKENS), **options)


def answers(planner, count, theta, seed=0):
    rng, asked = np.random.default_rng(seed), []
    for _ in range(count):
        question = planner.ask(START)
        asked.append(question.tolist())
        features = TOKENS[question].astype(np.float64)
        choice = int((features @ theta + rng.gumbel(size=3)).argmax())
        planner.tell(features[None], [Response.best(choice)])
    return asked


@pytest.mark.parametrize("name", ["adaptive", "adaptive-mutual", "adaptive-best", "random", "bald", "greedy_d"])
def test_every_family_estimates_by_the_population(population, name):
    planner = pool_planner(population, name)
    falling = population.with_fallback(VocabularyPrior(TOKENS))  # the default where there is none
    before = falling.fit((np.zeros((0, 3, D)), np.zeros(0, dtype=int)))
    share = before.memberships.sum()
    assert 0.5 < share < 1.0
    assert planner.posterior.mean == pytest.approx(share * population.gaussian.mean)  # the fallback is about 0
    asked = answers(planner, 5, MEANS[1])
    replayed = pool_planner(population, name)
    assert answers(replayed, 5, MEANS[1]) == asked
    rng = np.random.default_rng(0)
    features = TOKENS[np.array(asked)].astype(np.float64)
    chosen = [int((row @ MEANS[1] + rng.gumbel(size=3)).argmax()) for row in features]
    expected = falling.fit((features, np.array(chosen)))
    assert planner.estimate.theta == pytest.approx(expected.theta, abs=1e-6)
    assert planner.posterior.mean == pytest.approx(expected.posterior.mean, abs=1e-6)


@pytest.mark.parametrize("kind", range(3))
def test_questions_are_planned_with_the_types(population, kind):
    planner = pool_planner(population)
    planned = planner._taste.planned
    assert isinstance(planned, MixturePosterior) and planned.weights == pytest.approx(np.full(3, 1 / 3))
    for _ in range(12):  # without noise: with it, a dozen answers may look like those of somebody else
        features = TOKENS[planner.ask(START)].astype(np.float64)
        planner.tell(features[None], [Response.best(int((features @ MEANS[kind]).argmax()))])
    planner.ask(START)
    draws = planner._taste.planned.draws(64, np.random.default_rng(0))
    nearest = np.linalg.norm(draws[:, None] - MEANS, axis=2).argmin(axis=1)
    assert (nearest == kind).mean() > 0.9  # after a dozen answers the type is known


def test_a_population_of_other_features_is_refused():
    with pytest.raises(ValueError, match=r"2 features \(the population's\), got 8"):
        pool_planner(known_types(np.eye(2)))


def test_types_are_told_apart_by_mutual_information(population):
    one = known_types(MEANS[:1])
    assert [pool_planner(population).score, pool_planner(one).score] == ["mutual", "trace"]
    assert pool_planner(population, "adaptive-theta-hat").score == "trace"  # without draws there is none
    assert pool_planner(population, score="trace").score == "trace"
    features = ComposedFeatures(WORDS, TOKENS, encoder(), prompts=20)
    assert AdaptivePlanner(WORDS, options=features, prior=one, num_options=3).score == "information"
    # two sharp types that like items 0 and 1: the question shows both, as it decides between the types
    items = np.eye(D)[[0, 1, 2, 3, 4]]
    words = Vocabulary(("item",), (tuple("abcde"),))
    sharp = known_types(np.array([[6.0, *np.zeros(7)], [0.0, 6.0, *np.zeros(6)]]), spread=0.05)
    planner = AdaptivePlanner(words, options=TokenFeatures(words, items), prior=sharp, num_options=2)
    assert sorted(planner.ask(np.empty((2, 0), dtype=np.int64)).tolist()) == [0, 1]


def test_for_a_person_unlike_all_others_questions_are_planned_as_without_others(population):
    prior = VocabularyPrior(TOKENS)
    planner = pool_planner(population, prior=population.with_fallback(prior))
    answers(planner, 20, np.full(D, -8.0))
    planner._taste.asked()
    planner._taste.refresh()
    fit = planner._taste.current()
    assert fit.fallback_weight > 0.5
    assert planner._taste.planned.mean == pytest.approx(fit.alone.planned.mean)
    assert planner._taste.planned.precision == pytest.approx(fit.alone.planned.precision)
