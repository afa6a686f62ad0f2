"""Planners under a population: what they estimate, whom they know, and where they fall back."""

import numpy as np
import pytest

from edpbrl_gym.estimation import VocabularyPrior
from edpbrl_gym.likelihood import Response
from edpbrl_gym.planners import TokenFeatures, make_planner
from edpbrl_gym.vocabulary import Vocabulary
from tests.helpers.communities import known_population
from tests.helpers.session_planners import WORDS, D, encoder

TOKENS = encoder().encode(WORDS.all_tokens)
POOL = Vocabulary(("item",), (WORDS.all_tokens,))
START = np.empty((3, 0), dtype=np.int64)
MEAN = 4.0 * np.eye(D)[0]


@pytest.fixture(scope="module")
def population():
    return known_population(MEAN)


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
    share = 1.0 - before.fallback_weight
    assert 0.5 < share < 1.0
    assert planner.posterior.mean == pytest.approx(share * population.gaussian.mean)  # the fallback is about 0
    asked = answers(planner, 5, MEAN)
    replayed = pool_planner(population, name)
    assert answers(replayed, 5, MEAN) == asked
    rng = np.random.default_rng(0)
    features = TOKENS[np.array(asked)].astype(np.float64)
    chosen = [int((row @ MEAN + rng.gumbel(size=3)).argmax()) for row in features]
    expected = falling.fit((features, np.array(chosen)))
    assert planner.estimate.theta == pytest.approx(expected.theta, abs=1e-6)
    assert planner.posterior.mean == pytest.approx(expected.posterior.mean, abs=1e-6)


def test_a_population_of_other_features_is_refused():
    with pytest.raises(ValueError, match=r"2 features \(the population's\), got 8"):
        pool_planner(known_population(np.eye(2)[0]))


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
