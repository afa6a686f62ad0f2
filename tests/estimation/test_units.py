"""No estimate depends on the unit of the features: with c times the features, theta is divided by c, the rest stays."""

import warnings

import numpy as np
import pytest

from edpbrl_gym.estimation import GaussianPrior, fit_posterior, fit_prior
from edpbrl_gym.estimation.map_estimate import answer_terms
from edpbrl_gym.estimation.neighbourhood import VocabularyPrior
from edpbrl_gym.estimation.population import fit_population
from edpbrl_gym.estimation.prior_scale import ScaleSearch

UNITS = (1e-4, 1e3)


def answers(seed=0, n=200, k=4, d=4, noiseless=False):
    rng = np.random.default_rng(seed)
    options, theta = rng.normal(size=(n, k, d)), rng.normal(size=d)
    return options, (options @ theta + (0.0 if noiseless else rng.gumbel(size=(n, k)))).argmax(axis=1)


def held_out(theta, options, choices):
    values = options @ theta
    return float(np.mean(values[np.arange(len(choices)), choices] - np.logaddexp.reduce(values, axis=1)))


@pytest.mark.parametrize("noiseless", [False, True])
@pytest.mark.parametrize("unit", UNITS)
def test_a_scale_by_evidence_does_not_depend_on_the_unit(unit, noiseless):
    options, choices = answers(n=400, noiseless=noiseless)
    later, (options, choices) = (options[200:], choices[200:]), (options[:200], choices[:200])
    base = GaussianPrior.isotropic(4, 1.0)
    expected = fit_prior((options, choices), base=base)
    found = fit_prior((unit * options, choices), base=base)
    assert found.scale * unit**2 == pytest.approx(expected.scale, rel=1e-6)
    assert found.log_evidence == pytest.approx(expected.log_evidence, abs=1e-6)
    np.testing.assert_allclose(unit * found.estimate.theta, expected.estimate.theta, rtol=1e-5, atol=1e-7)
    assert found.estimate.converged and not found.at_bound and not found.flat
    assert held_out(found.estimate.theta, unit * later[0], later[1]) > held_out(np.zeros(4), *later) + 0.2
    wide = fit_posterior((options, choices), base=base)
    scaled = fit_posterior((unit * options, choices), base=base)
    np.testing.assert_allclose(unit * scaled.posterior.mean, wide.posterior.mean, rtol=1e-4, atol=1e-5)
    assert scaled.log_evidence == pytest.approx(wide.log_evidence, abs=1e-3)


@pytest.mark.parametrize("unit", UNITS)
def test_the_prior_of_a_vocabulary_does_not_depend_on_the_unit(unit):
    options, choices = answers(n=30, d=6)
    tokens = options.reshape(-1, 6)
    expected, found = (
        VocabularyPrior(tokens).fit((options, choices)),
        VocabularyPrior(unit * tokens).fit((unit * options, choices)),
    )
    np.testing.assert_allclose(found.weights, expected.weights, atol=1e-5)
    np.testing.assert_allclose(unit * found.theta, expected.theta, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(unit * found.posterior.mean, expected.posterior.mean, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("kind", ["gaussian", "factors"])
def test_a_population_does_not_depend_on_the_unit(kind):
    people = [answers(seed, n=8, k=3, d=2) for seed in range(24)]
    number = {"factors": 1} if kind == "factors" else {}
    chosen = people[3][0][:2], people[3][1][:2]
    fits = {}
    for unit in (1.0, *UNITS):
        population = fit_population([(unit * x, y) for x, y in people], kind=kind, rounds=20, **number)
        person = unit * chosen[0], chosen[1]
        fits[unit] = [
            population.fit(person, **given)
            for given in ({}, {"fallback": GaussianPrior.isotropic(2, 1.0)}, {"fallback": None})
        ]
    for unit in UNITS:
        for found, expected in zip(fits[unit], fits[1.0], strict=True):
            np.testing.assert_allclose(unit * found.theta, expected.theta, rtol=1e-3, atol=1e-4)
            assert found.fallback_weight == pytest.approx(expected.fallback_weight, abs=1e-4)


def test_a_second_and_higher_maximum_is_found():
    """Two peaks of the evidence, the higher one far from the typical scale, on either side."""
    data = answers(n=20)
    for far in (-8.0, 8.0):
        search = ScaleSearch(answer_terms(data), GaussianPrior.isotropic(4, 1.0), 1.0, np.inf, 0.01, 40)

        def evidence(scale, far=far):
            position = np.log(scale)
            return float(np.logaddexp(-2.0 * position**2, 30.0 - 2.0 * (position - far) ** 2))

        assert search.run(evidence, 1.0, 0.5, local=True)[0] == pytest.approx(1.0, abs=0.1)
        assert np.log(search.run(evidence, 1.0, 0.5)[0]) == pytest.approx(far, abs=0.1)


def test_a_few_extreme_options_do_not_hide_the_scale():
    rng = np.random.default_rng(3)
    theta = 3000.0 * np.array([1.0, -0.5, 0.25])
    small = 1e-3 * rng.normal(size=(150, 3, 3))
    choices = (small @ theta + rng.gumbel(size=(150, 3))).argmax(axis=1)
    large = np.zeros((2, 3, 3))
    large[:, 1:, 0] = -300.0  # both answers are right at any scale
    data = np.concatenate([small, large]), np.concatenate([choices, [0, 0]])
    fit = fit_prior(data, base=GaussianPrior.isotropic(3, 1.0))
    assert held_out(fit.estimate.theta, small, choices) > -0.6


def test_a_flat_evidence_is_told_once_there_are_many_answers():
    base = GaussianPrior.isotropic(2, 1.0)
    same = np.ones((30, 3, 2))
    with pytest.warns(UserWarning, match="within 1 nat at all scales"):
        assert fit_prior((same, np.zeros(30, dtype=int)), base=base).flat
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert fit_prior((same[:2], np.zeros(2, dtype=int)), base=base).flat
        assert not fit_prior(answers(), base=GaussianPrior.isotropic(4, 1.0)).flat
