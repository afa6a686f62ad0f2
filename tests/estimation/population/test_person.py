"""A person's fit under a population: against brute-force integrals, with the fallback, and its degenerate cases."""

import numpy as np
import pytest
from scipy.special import logsumexp, softmax

from edpbrl_gym.estimation import GaussianPrior, Posterior, VocabularyPrior, fit_prior
from edpbrl_gym.estimation.population import fit_population
from tests.helpers.communities import simulated

MEAN, COVARIANCE = np.array([2.0, -1.0]), np.array([[0.5, 0.2], [0.2, 0.4]])


@pytest.fixture(scope="module")
def population():
    thetas = np.random.default_rng(0).multivariate_normal(MEAN, COVARIANCE, 100)
    return fit_population(simulated(thetas, 5, 3, 1))


def exact(data, gaussians, logs):
    axis = np.linspace(-60.0, 60.0, 601)
    grid = np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1).reshape(-1, 2)
    options, choices = data
    values = options @ grid.T
    likelihood = np.zeros(len(grid))
    for question, choice in zip(values, choices, strict=True):
        likelihood += question[choice] - logsumexp(question, axis=0)
    evidence, densities = [], []
    for gaussian in gaussians:
        centred = grid - gaussian.mean
        density = -0.5 * np.einsum("gi,ij,gj->g", centred, gaussian.precision, centred)
        density += 0.5 * gaussian.log_determinant - np.log(2 * np.pi) + 2 * np.log(axis[1] - axis[0])
        densities.append(likelihood + density)
        evidence.append(logsumexp(densities[-1]))
    weights = softmax(np.array(logs) + evidence)
    points = sum(w * np.exp(d - e) for w, d, e in zip(weights, densities, evidence, strict=True))
    return grid, points, np.array(evidence), weights


@pytest.mark.parametrize("count", [1, 6])
def test_weights_evidence_and_probabilities_agree_with_integrals(population, count):
    options = np.random.default_rng(2).normal(size=(count + 3, 3, 2))
    data = options[:count], np.arange(count) % 3
    fallback = GaussianPrior.from_covariance(np.diag([1.5, 0.7]))
    fit = population.fit(data, fallback=fallback)
    steps = np.linspace(-2, 2, 7)
    node_logs = np.log(0.03) - 0.5 * steps**2 - logsumexp(-0.5 * steps**2)
    kept = slice(0, 7)  # at the largest scale the Gaussian approximation is off by 0.05
    part = population.gaussian
    typical = (np.trace(part.covariance) + part.mean @ part.mean) / 2.2  # as strong as the population's people
    gaussians = [part, *(fallback.scaled(float(typical * np.exp(1.5 * step))) for step in steps)][kept]
    logs = np.concatenate([[np.log(0.97)], node_logs])[kept]
    grid, points, evidence, weights = exact(data, gaussians, logs)
    assert [part.log_evidence for part in fit.parts[kept]] == pytest.approx(evidence, abs=0.02)
    found = np.array(fit.weights)[kept]
    assert found / found.sum() == pytest.approx(weights, abs=0.005)
    probabilities = softmax(options[count:] @ grid.T, axis=1) @ points
    assert fit.choice_probabilities(options[count:]) == pytest.approx(probabilities, abs=0.03)


def test_choice_probabilities_under_one_gaussian_are_exact(population):
    options = np.random.default_rng(3).normal(size=(6, 3, 2))
    data = options[:2], np.array([0, 1])
    fit = population.fit(data, fallback=None)
    grid, points, _, _ = exact(data, [population.gaussian], [0.0])
    probabilities = fit.choice_probabilities(options)
    assert probabilities == pytest.approx(softmax(options @ grid.T, axis=1) @ points, abs=3e-3)
    assert probabilities.sum(axis=1) == pytest.approx(np.ones(6))
    assert fit.weights == pytest.approx([1.0])
    assert fit.theta == pytest.approx(points @ grid, abs=0.05)


def test_before_any_answer_the_prior_speaks(population):
    fit = population.fit((np.zeros((0, 3, 2)), np.zeros(0, dtype=int)))
    assert fit.weights[0] == pytest.approx(0.97)
    assert fit.fallback_weight == pytest.approx(0.03)
    assert fit.planned.mean == pytest.approx(population.gaussian.mean)
    assert fit.planned.precision == pytest.approx(population.gaussian.precision)
    assert fit.theta == pytest.approx(0.97 * population.gaussian.mean)
    assert isinstance(fit.posterior, Posterior)
    assert fit.estimate.converged


def test_an_atypical_person_falls_back_and_is_predicted_as_well_as_alone(population):
    theta = np.array([-4.0, 3.0])
    options, choices = simulated(theta[None], 24, 3, 4)[0]
    data = options[:20], choices[:20]
    fit = population.fit(data)
    assert fit.fallback_weight > 0.9
    assert fit.planned.mean @ theta > 0  # planned with the fallback
    alone = fit_prior(data, base=population.base).estimate.theta
    new = np.random.default_rng(5).normal(size=(300, 3, 2))
    truth = softmax(new @ theta, axis=1)
    own = (truth * np.log(softmax(new @ alone, axis=1))).sum(axis=1).mean()
    assert (truth * np.log(fit.choice_probabilities(new))).sum(axis=1).mean() > own - 0.02
    unsafe = population.fit(data, fallback=None).choice_probabilities(new)
    assert (truth * np.log(unsafe)).sum(axis=1).mean() < own - 0.05


def test_a_typical_person_keeps_the_population(population):
    data = simulated(MEAN[None], 10, 3, 6)[0]
    assert population.fit(data).fallback_weight < 0.1


def test_more_features_than_answers_leave_the_rest_to_the_prior():
    rng = np.random.default_rng(7)
    people = simulated(rng.normal(size=(25, 30)) * 0.5, 4, 2, 8)
    population = fit_population(people, kind="factors", factors=0)
    data = people[0]
    fit = population.fit(data, fallback=None)
    differences = data[0][:, 0] - data[0][:, 1]
    outside = np.linalg.svd(differences)[2][4:]  # directions about which the answers say nothing
    prior = population.gaussian
    deviation = fit.parts[0].posterior.standard_deviation(outside)
    assert deviation == pytest.approx(np.sqrt(np.diag(outside @ prior.covariance @ outside.T)), rel=1e-6)


def test_the_posterior_is_the_mixture_of_the_parts(population):
    fit = population.fit((np.random.default_rng(4).normal(size=(3, 3, 2)), np.array([0, 2, 1])))
    mean = fit.weights @ np.stack([part.posterior.mean for part in fit.parts])
    assert fit.posterior.mean == pytest.approx(mean, abs=0.01)  # parts below 0.001 are left out


def words(**options):
    tokens = np.random.default_rng(20).normal(size=(200, 2)) @ np.diag([1.0, 0.4]) + [0.3, 0.0]
    return VocabularyPrior(tokens, **options)


@pytest.mark.parametrize("count", [1, 6, 12])
def test_a_vocabulary_is_weighed_as_by_integrals(population, count):
    """The base over its scales by quadrature, the other parts by their weight relative to it."""
    options = np.random.default_rng(21).normal(size=(count, 3, 2))
    data = options, np.arange(count) % 3
    prior, part = words(), population.gaussian
    fit = population.fit(data, fallback=prior, fallback_weight=0.4)
    square = np.trace(part.covariance) + part.mean @ part.mean
    steps = np.linspace(-2, 2, 7)
    scales = square / np.trace(prior.base.covariance) * np.exp(1.5 * steps)
    gaussians = [part, *(prior.base.scaled(float(scale)) for scale in scales)]
    logs = [np.log(0.6), *(np.log(0.4) - 0.5 * steps**2 - logsumexp(-0.5 * steps**2))]
    evidence = exact(data, gaussians, logs)[2]
    alone = prior.fit(data)
    assert alone.local
    base = logsumexp(evidence[1:] + logs[1:])
    assert alone.log_gain == pytest.approx(np.log(0.8 * 0.7) - np.log(alone.weights[0]))
    expected = softmax([evidence[0] + logs[0], base + alone.log_gain])
    assert fit.weights[0] == pytest.approx(expected[0], abs=0.005)
    assert fit.weights[1:] == pytest.approx(expected[1] * alone.weights, abs=0.005)
    assert fit.fallback_weight == pytest.approx(expected[1], abs=0.005)
    assert [one.scale for one in fit.parts[1:]] == [one.scale for one in alone.parts]
    plain = population.fit(data, fallback=words(isotropic=0.0, share=0.0), fallback_weight=0.4)
    gaussian = population.fit(data, fallback=prior.base.scaled(scales[3]), fallback_weight=0.4)  # one part: no gain
    assert plain.alone.log_gain == pytest.approx(0.0, abs=1e-12)
    assert plain.fallback_weight == pytest.approx(gaussian.fallback_weight)


@pytest.mark.parametrize("count", [0, 8])
def test_with_all_weight_a_vocabulary_speaks_as_without_others(population, count):
    options, choices = simulated(np.array([[-4.0, 3.0]]), 8, 3, 4)[0]
    data, prior = (options[:count], choices[:count]), words()
    fit = population.fit(data, fallback=prior, fallback_weight=1.0 - 1e-12)
    alone = prior.fit(data)
    new = np.random.default_rng(22).normal(size=(5, 3, 2))
    assert fit.choice_probabilities(new) == pytest.approx(alone.posterior.choice_probabilities(new))
    assert fit.theta == pytest.approx(alone.theta, abs=1e-9)
    assert fit.estimate.theta == pytest.approx(alone.theta, abs=1e-9)
    for found, expected in ((fit.planned, alone.planned), (fit.posterior, alone.posterior)):
        assert found.mean == pytest.approx(expected.mean) and found.precision == pytest.approx(expected.precision)


def test_between_both_a_vocabulary_counts_by_its_weight(population):
    data, prior = simulated(np.array([[0.5, 1.0]]), 3, 3, 23)[0], words()
    fit = population.fit(data, fallback=prior, fallback_weight=0.2)
    share, new = fit.fallback_weight, np.random.default_rng(24).normal(size=(5, 3, 2))
    assert 0.05 < share < 0.95
    own = population.fit(data, fallback=None)
    expected = (1 - share) * own.choice_probabilities(new) + share * fit.alone.posterior.choice_probabilities(new)
    assert fit.choice_probabilities(new) == pytest.approx(expected, abs=2e-3)
    assert fit.theta == pytest.approx((1 - share) * own.theta + share * fit.alone.theta, abs=1e-3)
    mixed = Posterior.of_mixture([own.posterior, fit.alone.posterior], [1 - share, share])
    assert fit.posterior.mean == pytest.approx(mixed.mean) and fit.posterior.precision == pytest.approx(mixed.precision)
    chosen = own.posterior if share <= 0.5 else fit.alone.planned
    assert fit.planned.mean == pytest.approx(chosen.mean) and fit.planned.precision == pytest.approx(chosen.precision)


def test_a_population_keeps_its_fallback(population, tmp_path):
    data, prior = simulated(MEAN[None], 4, 3, 25)[0], words()
    falling = population.with_fallback(prior)
    assert falling.fingerprint == population.fingerprint and population.fallback is None
    fit = falling.fit(data)
    assert fit.alone is not None
    assert fit.weights == pytest.approx(population.fit(data, fallback=prior).weights)
    assert falling.fit(data, fallback=None).fallback_weight == 0.0
    later = falling.updated(simulated(np.random.default_rng(26).normal(size=(20, 2)), 3, 3, 27))
    assert later.fallback is prior
    falling.save(tmp_path / "p.safetensors")
    assert population.load(tmp_path / "p.safetensors").fallback is None
