"""Sessions of a new person under a population: draws and forecasts, and that another population is refused."""

from __future__ import annotations

import json

import numpy as np
import pytest

from edpbrl_gym.estimation import VocabularyPrior
from edpbrl_gym.oracles import SyntheticUser
from edpbrl_gym.planners import ComposedFeatures, make_planner
from edpbrl_gym.session import run
from tests.helpers.communities import known_population
from tests.helpers.session_planners import WORDS, D, encoder, resume, same, session

MEANS = 3.0 * np.eye(2, D)
TOKENS = encoder().encode(WORDS.all_tokens)


def planner(population):
    features = ComposedFeatures(WORDS, TOKENS, encoder(), prompts=20)
    return make_planner("adaptive", WORDS, features, prior=population, num_options=3, seed=5, draws=8)


@pytest.fixture(scope="module")
def population():
    return known_population(MEANS[0])


def test_a_session_under_a_population_is_resumed_as_it_was(population, tmp_path):
    with session(planner(population), prior=population, folder=tmp_path / "one") as one:
        run(one, SyntheticUser(MEANS[1]), 7)
        shown = one.progress((0, 6)).curve
        with pytest.raises(RuntimeError, match="open"):
            resume(tmp_path / "one", planner(population), prior=population)
        one.close()
        with resume(tmp_path / "one", planner(population), prior=population) as other:
            in_memory = session(planner(population), prior=population)
            run(in_memory, SyntheticUser(MEANS[1]), 7)
            same(in_memory, other)
            np.testing.assert_array_equal(other.progress((0, 6)).curve, shown)
    settings = json.loads((tmp_path / "one/session.json").read_text())
    assert settings["population"] == settings["population_of_the_planner"] == population.fingerprint


def test_another_population_is_refused(population, tmp_path):
    with session(planner(population), prior=population, folder=tmp_path / "one") as one:
        run(one, SyntheticUser(MEANS[1]), 2)
    other = known_population(MEANS[0] + 1e-9)
    for chosen, prior, said in (
        (population, other, "the population with"),
        (population, None, "the population with"),
        (other, population, "the population of the planner"),
    ):
        with pytest.raises(ValueError, match=said) as refused:
            resume(tmp_path / "one", planner(chosen), prior=prior)
        assert population.fingerprint in str(refused.value)
    resume(tmp_path / "one", planner(population), prior=population).close()
    with session(folder=tmp_path / "none") as one:
        run(one, SyntheticUser(MEANS[1]), 2)
    assert "population" not in json.loads((tmp_path / "none/session.json").read_text())
    with pytest.raises(ValueError, match=r"the population with .*None"):
        resume(tmp_path / "none", one.planner, prior=population)


def test_draws_and_forecast_are_those_of_the_mixture(population):
    one = session(planner(population), prior=population)
    first = one.draws()
    assert first.shape == (320, D)
    near = np.linalg.norm(first - MEANS[0], axis=1) < 3.0 * 0.5 * np.sqrt(D)
    assert 0.65 < near.mean() < 0.9  # seven tenths from the population, the others from the fallback
    run(one, SyntheticUser(MEANS[0]), 9)
    fit = population.with_fallback(VocabularyPrior(TOKENS, power=1.0)).fit(one.comparisons.terms(one.model))
    assert one.outlook.fit_and_draws(one.comparisons.terms(one.model))[0].weights == pytest.approx(fit.weights)
    draws = one.draws()
    assert draws.mean(axis=0) == pytest.approx(fit.posterior.mean, abs=0.25)
    progress = one.progress((0, 12))
    assert 0.5 <= progress.accuracy <= progress.curve[-1] <= 1.0
    assert len(one.recommend(2)) == 2
