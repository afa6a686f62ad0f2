"""The prior with a scale for each block: its derivatives, one block beside the usual search, noise, and its map."""

from __future__ import annotations

import numpy as np
import pytest

from edpbrl_gym.estimation import GaussianPrior, fit_prior
from edpbrl_gym.estimation.blocks import ScalesOfBlocks
from edpbrl_gym.estimation.map_estimate import answer_differences, answer_terms
from edpbrl_gym.estimation.priors import default_prior, make_prior
from edpbrl_gym.estimation.whitened import WhitenedAnswers
from edpbrl_gym.likelihood import Ranking, Response
from edpbrl_gym.likelihood.rating import Rating


def rows(count, dimension, seed=0):
    found = np.random.default_rng(seed).normal(size=(count, dimension)) * np.arange(1, dimension + 1) ** -0.3
    return found / np.linalg.norm(found, axis=1, keepdims=True)


def asked(items, utilities, count, seed=0, num_options=4):
    """Options (n, K, d) of a pool and the choices of a noisy person."""
    rng = np.random.default_rng(seed)
    shown = rng.integers(len(items), size=(count, num_options))
    return items[shown], (utilities[shown] + rng.gumbel(size=shown.shape)).argmax(axis=1)


@pytest.mark.parametrize("count", [3, 40])  # fewer and more differences than features
def test_the_derivatives_are_those_of_finite_differences(count):
    rng = np.random.default_rng(count)
    options, parts = rng.normal(size=(count, 4, 14)), (slice(0, 5), slice(5, 12), slice(12, 14))
    best = (answer_terms((options, rng.integers(4, size=count))),)
    orders = [Response.ranking(rng.permutation(4).tolist()) for _ in range(count)]
    for terms in (*best, answer_terms((options, orders), Ranking())):
        search = ScalesOfBlocks(*answer_differences(terms), parts, np.full(len(parts), 0.5), common=3.0, ratio=1.0)
        at, step = np.array([-0.7, 0.4, 1.5]), 1e-4
        _, slopes = search.log_evidence(at)
        for number, unit in enumerate(np.eye(3)):
            rise = search.log_evidence(at + step * unit)[0] - search.log_evidence(at - step * unit)[0]
            assert slopes[number] == pytest.approx(rise / (2 * step), abs=1e-6)


def test_the_evidence_is_that_of_the_gaussian_with_these_scales():
    options, choices = asked(rows(30, 9), 3 * rows(30, 1, 1)[:, 0], 6)
    terms, scales = answer_terms((options, choices)), np.array([0.3, 2.0])
    prior = GaussianPrior.from_precision(np.diag(1 / np.repeat(scales, [4, 5])))
    expected = WhitenedAnswers(*answer_differences(terms), prior).log_evidence(1.0)
    found, _ = ScalesOfBlocks(
        *answer_differences(terms), (slice(0, 4), slice(4, 9)), np.ones(2), common=3.0, ratio=1.0
    ).log_evidence(np.log(scales))
    assert found == pytest.approx(expected, abs=1e-5)


def test_one_block_is_the_usual_prior_with_its_scale():
    items = rows(60, 12)
    prior = make_prior("blocks", items)
    assert (prior.blocks, prior.dimension) == ((12,), 12)
    data = asked(items, items @ (6 * np.random.default_rng(3).normal(size=12)), 40)
    mapped = prior.feature_map(data[0]), data[1]
    fit = prior.fit(mapped)
    usual = fit_prior(mapped, base=GaussianPrior.isotropic(12, 1.0), typical_scale=1.0)
    assert fit.scales[0] == pytest.approx(usual.scale, rel=1e-9)
    np.testing.assert_allclose(fit.estimate.theta, usual.estimate.theta, atol=1e-6)
    assert fit.log_evidence == pytest.approx(usual.log_evidence, abs=1e-6)
    # in the features' own coordinates that is the prior of the embeddings about their mean
    plain = GaussianPrior.from_embeddings(items, power=0.75, floor=1e-12)
    covariance = prior.landmarks[1:].T @ prior.landmarks[1:]
    size = np.trace(plain.covariance) / np.trace(covariance)
    np.testing.assert_allclose(covariance * size, plain.covariance, atol=1e-8)


def test_a_block_of_noise_gets_a_small_scale_and_costs_little():
    text, noise, held = rows(200, 10), rows(200, 30, 1), rows(100, 10, 2)
    theta = 12 * np.random.default_rng(4).normal(size=10)
    both = np.concatenate([text, noise], axis=1) / np.sqrt(2)
    prior = make_prior("blocks", both, blocks=[10, 30])
    data = asked(both, text @ theta, 150)
    fit = prior.fit((prior.feature_map(data[0]), data[1]))
    assert fit.shares[1] < 0.05 and fit.estimate.converged
    turned = make_prior("blocks", both[:, ::-1], blocks=[30, 10])
    other = turned.fit((turned.feature_map(data[0][..., ::-1]), data[1]))
    np.testing.assert_allclose(other.shares[::-1], fit.shares, rtol=0.02)
    scores = prior.feature_map(np.concatenate([held, rows(100, 30, 5)], axis=1) / np.sqrt(2)) @ fit.estimate.theta
    assert np.corrcoef(scores, held @ theta)[0, 1] > 0.9
    planned = prior.fit(answer_terms((prior.feature_map(data[0]), data[1]))).planned
    np.testing.assert_allclose(planned.mean, fit.estimate.theta)
    title, facts, _ = prior.described(fit)
    assert title.startswith("blocks of features (10 features 9") and facts["prior"] == "blocks"


def test_the_scale_does_not_depend_on_the_unit_and_the_map_is_made_again_from_its_landmarks():
    items = np.concatenate([rows(40, 6), 1e3 * rows(40, 50, 1)], axis=1)
    prior = make_prior("blocks", items, blocks=[6, 50], components=20)
    assert prior.dimension == 26 and prior.space and prior.fingerprint == prior.space
    mapped = prior.feature_map(items)
    np.testing.assert_allclose(mapped.mean(axis=0), 0, atol=1e-9)
    np.testing.assert_allclose([np.square(mapped[:, part]).sum(1).mean() for part in prior.parts], [1, 1], rtol=0.05)
    shrunk = items * np.repeat([1.0, 1e-3], [6, 50])
    other = make_prior("blocks", shrunk, blocks=[6, 50], components=20)
    np.testing.assert_allclose(np.abs(other.feature_map(shrunk)), np.abs(mapped), atol=1e-8)
    again = make_prior("blocks", prior.landmarks, **prior.options)
    np.testing.assert_array_equal(again.feature_map(items[None]), mapped[None])
    assert again.space == prior.space and again.parts == prior.parts
    np.testing.assert_array_equal(again.start().precision, 2 * np.eye(26))


def test_no_answers_ratings_and_what_is_refused():
    items = np.concatenate([rows(40, 6), rows(40, 5, 1)], axis=1)
    prior = make_prior("blocks", items, blocks=(6, 5))
    nothing = prior.fit((np.zeros((0, 3, 11)), np.zeros(0, dtype=int)))
    np.testing.assert_allclose(nothing.scales, [0.5, 0.5], rtol=1e-3)
    np.testing.assert_array_equal(nothing.estimate.theta, 0)
    levels = [Response.rating([int(value)]) for value in np.random.default_rng(0).integers(5, size=12)]
    assert prior.fit((prior.feature_map(items[:12, None]), levels), model=Rating()).estimate.converged
    assert default_prior(()) == default_prior((384,)) == "words" and default_prior((384, 1280)) == "blocks"
    assert default_prior((384, 1280), 300) == "items" and default_prior((384, 1280), 3000) == "blocks"
    assert default_prior((384,), 300) == "words"
    with pytest.raises(ValueError, match=r"blocks of 11 features together, got \[6, 6\]"):
        make_prior("blocks", items, blocks=(6, 6))
    with pytest.raises(ValueError, match=r"equal ones in features 6\.\.11"):
        make_prior("blocks", np.concatenate([items[:, :6], np.ones((40, 5))], axis=1), blocks=(6, 5))
    assert make_prior("ridge", items, blocks=(6, 5)).dimension == 11
