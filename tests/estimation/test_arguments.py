"""Arguments of the estimation room: what their messages name, the ends of their ranges, and what is not given."""

from __future__ import annotations

import inspect
from dataclasses import replace

import numpy as np
import pytest

from edpbrl_gym.comparisons import Comparisons
from edpbrl_gym.estimation import (
    Estimate,
    GaussianPrior,
    Posterior,
    VocabularyPrior,
    choice_accuracy,
    cosine_error,
    estimate,
    fit_posterior,
    fit_prior,
    learn_outside,
    learn_ties,
    log_evidence,
    preference_error,
    sample_pairs,
)
from edpbrl_gym.likelihood import BestOf, Ranking, Response, Terms


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


@pytest.mark.parametrize(
    ("call", "shape"),
    [
        (lambda: GaussianPrior(np.zeros(3)), "precision of shape (d, d), got shape (3,)"),
        (lambda: GaussianPrior(np.eye(3), np.zeros((3, 1))), "mean of shape (3,), got shape (3, 1)"),
        (lambda: GaussianPrior.from_covariance(np.zeros(3)), "covariance of shape (d, d), got shape (3,)"),
        (lambda: GaussianPrior.from_embeddings(np.zeros(3)), "features of shape (N, d), got shape (3,)"),
        (lambda: GaussianPrior.from_estimates(np.zeros(3)), "thetas of shape (n, d), got shape (3,)"),
        (
            lambda: GaussianPrior.from_estimates(np.eye(3), posterior_covariance=np.eye(2)),
            "posterior_covariance of shape (3, 3), got shape (2, 2)",
        ),
        (lambda: VocabularyPrior(np.zeros(3)), "features of shape (N, d), got shape (3,)"),
        (lambda: VocabularyPrior(np.eye(3)).near([1.0], 2), "theta of shape (3,), got shape (1,)"),
        (lambda: Posterior(np.zeros((2, 1)), np.eye(2)), "mean of shape (d,), got shape (2, 1)"),
        (lambda: Posterior(np.zeros(2), np.eye(3)), "precision of shape (2, 2), got shape (3, 3)"),
        (lambda: Posterior.of_mixture([gaussian()], [0.5, 0.5]), "weights of shape (1,), got shape (2,)"),
        (lambda: gaussian().interval(np.zeros(2)), "rows of shape (n, 2), got shape (2,); theta has 2 features"),
        (lambda: gaussian().standard_deviation(np.eye(3)), "rows of shape (n, 2), got shape (3, 3); theta has"),
        (lambda: gaussian().expected_accuracy(np.zeros((4, 3))), "differences of shape (n, 2), got shape (4, 3)"),
        (lambda: gaussian().expected_accuracy(np.zeros(4)), "options of shape (n, K, 2), got shape (4,)"),
        (
            lambda: gaussian().choice_probabilities(np.zeros((4, 2, 3))),
            "options of shape (n, K, 2), got shape (4, 2, 3); theta has 2 features",
        ),
        (lambda: cosine_error([1.0], [[1.0]]), "truth of shape (d,), got shape (1, 1)"),
        (lambda: cosine_error([1.0], [1.0, 2.0]), "estimate of shape (2,), got shape (1,)"),
        (lambda: preference_error([1.0], [1.0], [1.0], [[0, 0]]), "features of shape (n, d), got shape (1,)"),
        (lambda: preference_error([1.0], [1.0], [[1.0]], [0, 0]), "pairs of shape (p, 2), got shape (2,)"),
        (lambda: preference_error([1.0, 2.0], [1.0], [[1.0]], [[0, 0]]), "estimate of shape (1,), got shape (2,)"),
        (lambda: preference_error([1.0], [1.0, 2.0], [[1.0]], [[0, 0]]), "truth of shape (1,), got shape (2,)"),
        (
            lambda: sample_pairs(3, prompts=2, pairs=1, rng=np.random.default_rng(0)),
            "sizes of shape (H,), got shape ()",
        ),
        (lambda: choice_accuracy(answered(), [1.0]), "estimate of shape (2,), got shape (1,)"),
        (lambda: estimate(data(), start=[0.0]), "start of shape (2,), got shape (1,)"),
        (
            lambda: fit_prior(data(), base=ridge(), start=fit_prior(data(d=3), base=ridge(3))),
            "start.estimate.theta of shape (2,), got shape (3,)",
        ),
        (
            lambda: fit_posterior(data(), base=ridge(), scale=1.0, start=fit_prior(data(d=3), base=ridge(3))),
            "start.estimate.theta of shape (2,), got shape (3,)",
        ),
        (
            lambda: estimate(data()).diagnose(truth=[1.0]),
            "truth of shape (2,), got shape (1,); as many features as the estimate",
        ),
    ],
)
def test_a_wrong_shape_is_named_beside_the_expected_one(call, shape):
    with pytest.raises(ValueError) as caught:
        call()
    assert f"Expected {shape}" in str(caught.value)


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda: estimate(data(), regularization=np.nan), "regularization (lambda)"),
        (lambda: estimate(data(), tolerance=-1.0), "tolerance"),
        (lambda: estimate(data(), max_iterations=0), "max_iterations"),
        (lambda: fit_prior(data(), base=ridge(), bounds=(0.0, 1.0)), "bounds[0]"),
        (lambda: fit_prior(data(), base=ridge(), bounds=(1.0, np.inf)), "bounds[1]"),
        (lambda: fit_prior(data(), base=ridge(), bounds=(-2.0, -1.0)), "bounds[0]"),
        (lambda: fit_prior(data(), base=ridge(), bounds=(1.0, 0.0)), "bounds[1]"),
        (lambda: fit_prior(data(), base=ridge(), typical_scale=0.0), "typical_scale"),
        (lambda: fit_prior(data(), base=ridge(), precision=0.0), "precision"),
        (lambda: fit_prior(data(), base=ridge(), max_evaluations=0), "max_evaluations"),
        (lambda: fit_prior(data(), base=ridge(), log_spread=-1.0), "log_spread"),
        (lambda: fit_prior(data(), base=ridge(), log_spread=np.nan), "log_spread"),
        (lambda: fit_posterior(data(), base=ridge(), scale=0.0), "scale"),
        (lambda: fit_posterior(data(), base=ridge(), draws=1), "draws"),
        (lambda: gaussian().scaled(0.0), "factor"),
        (lambda: gaussian().scaled(-1.0), "factor"),
        (lambda: gaussian().draws(-1, np.random.default_rng(0)), "size"),
        (lambda: gaussian().interval(np.eye(2), 0.0), "level"),
        (lambda: gaussian().interval(np.eye(2), 1.0), "level"),
        (lambda: gaussian().expected_accuracy(np.eye(2), draws=0), "draws"),
        (lambda: gaussian().expected_accuracy(np.eye(2), against="all"), "against"),
        (lambda: ridge().scaled(0.0), "factor"),
        (lambda: GaussianPrior.isotropic(0, 1.0), "dimension"),
        (lambda: GaussianPrior.isotropic(1, -1e-9), "regularization (lambda)"),
        (lambda: GaussianPrior.from_embeddings(np.eye(2), power=-1e-9), "power"),
        (lambda: GaussianPrior.from_embeddings(np.eye(2), scale=0.0), "scale"),
        (lambda: GaussianPrior.from_embeddings(np.eye(2), floor=0.0), "floor"),
        (lambda: GaussianPrior.from_embeddings(np.eye(2), shrunk=np.nan), "shrunk"),
        (lambda: GaussianPrior.from_estimates(np.eye(2), scale=0.0), "scale"),
        (lambda: VocabularyPrior(np.eye(3), isotropic=-0.1), "isotropic"),
        (lambda: VocabularyPrior(np.eye(3), near=0.0), "near"),
        (lambda: VocabularyPrior(np.eye(3), share=-0.1), "share"),
        (lambda: VocabularyPrior(np.eye(3), neighbours=(0,)), "neighbours"),
        (lambda: estimate(data()).diagnose(level=0.0), "level"),
        (lambda: estimate(data()).diagnose(draws=0), "draws"),
        (lambda: estimate(data()).diagnose(seed=-1), "seed"),
        (lambda: estimate(data()).diagnose(limit=0.99), "limit"),
        (lambda: sample_pairs([3], prompts=1, pairs=1, rng=np.random.default_rng(0)), "prompts"),
        (lambda: sample_pairs([3], prompts=2, pairs=0, rng=np.random.default_rng(0)), "pairs"),
        (lambda: sample_pairs([3, 0], prompts=2, pairs=1, rng=np.random.default_rng(0)), "sizes"),
        (lambda: preference_error([1.0], [1.0], [[1.0], [2.0]], [[0, 2]]), "pairs in 0..1"),
        (lambda: preference_error([1.0], [1.0], [[1.0], [2.0]], [[-1, 0]]), "pairs in 0..1"),
        (lambda: learn_ties(answered(), base=ridge(), typical_nu=0.0), "typical_nu"),
        (lambda: learn_ties(answered(), base=ridge(), log_spread=0.0), "spread"),
        (lambda: learn_ties(answered(), base=ridge(), typical_scale=0.0), "typical_scale"),
        (lambda: learn_outside(answered(), base=ridge(), reference=[0, 0], typical_offset=np.inf), "typical_offset"),
        (lambda: learn_outside(answered(), base=ridge(), reference=[0, 0], spread=0.0), "spread"),
        (lambda: learn_outside(answered(), base=ridge(), reference=[0, 0], typical_scale=-1.0), "typical_scale"),
    ],
)
def test_a_number_outside_its_range_is_named(call, name):
    with pytest.raises(ValueError) as caught:
        call()
    words = str(caught.value)
    assert words.startswith("Expected") and name in words


def test_the_ends_of_ranges_that_belong_to_them():
    options, choices = data()
    assert GaussianPrior.from_embeddings(np.eye(3), floor=1.0).proper
    np.testing.assert_allclose(
        GaussianPrior.from_embeddings(np.diag([1.0, 2, 3]), floor=1.0, scale=0.5).precision, 2 * np.eye(3), atol=1e-12
    )
    assert fit_prior((options, choices), base=ridge(), bounds=(0.2, 0.2)).scale == pytest.approx(0.2)
    small = fit_prior((options, choices), base=ridge(), bounds=(0.01, 0.02))
    assert 0.01 <= small.scale <= 0.02
    assert fit_prior((options, choices), base=ridge(), max_evaluations=1).grid.shape == (1, 2)
    assert fit_posterior((options, choices), base=ridge(), scale=0.5, draws=2).scale == 0.5
    assert gaussian().expected_accuracy(np.zeros((1, 3, 2)), draws=1) in (0.0, 1.0)
    assert estimate((options, choices)).diagnose(limit=1.0, draws=1, seed=0).limit == 1.0
    assert estimate((options, choices), max_iterations=1).iterations == 1
    assert VocabularyPrior(np.eye(3), share=0.0, isotropic=0.0, neighbours=(1,)).neighbours == (1,)
    assert VocabularyPrior(np.eye(3), power=0.0).base.proper
    pairs = sample_pairs([2], prompts=2, pairs=1, rng=np.random.default_rng(0))
    assert sorted(pairs.tokens[:, 0]) == [0, 1] and pairs.pairs.tolist() == [[0, 1]]
    with pytest.raises(ValueError, match="at least two prompts, got one"):
        sample_pairs([1, 1], prompts=2, pairs=1, rng=np.random.default_rng(0))
    assert preference_error([1.0], [1.0], [[1.0], [2.0]], [[1, 0], [0, 1]]) == 0.0
    assert Posterior(np.zeros(1), np.eye(1)).scaled(0.5).precision[0, 0] == 4.0


DEFAULTS = {
    estimate: dict(prior=None, regularization=None, model=None, tolerance=1e-8, max_iterations=100, start=None),
    fit_prior: dict(
        model=None, bounds=(1e-4, 1e6), typical_scale=1.0, log_spread=3.0, start=None, precision=0.02,
        max_evaluations=40,
    ),
    fit_posterior: dict(model=None, scale=None, log_spread=3.0, start=None, draws=512),
    learn_ties: dict(typical_nu=1.0, log_spread=1.0, typical_scale=1.0),
    learn_outside: dict(typical_offset=0.0, spread=2.0, typical_scale=1.0),
    Estimate.diagnose: dict(truth=None, level=0.95, draws=1000, seed=0, limit=4.0),
    Posterior.interval: dict(level=0.9),
    Posterior.expected_accuracy: dict(against="truth", draws=512, rng=None),
    GaussianPrior.from_embeddings: dict(power=0.5, scale=1.0, floor=1e-4, centred=True, shrunk=False, gram=None),
    GaussianPrior.from_estimates: dict(target=None, posterior_covariance=None, normalise=False, scale=None),
    VocabularyPrior: dict(power=0.75, neighbours=None, share=0.5, isotropic=0.2, near=0.3),
}  # fmt: skip


@pytest.mark.parametrize("function", DEFAULTS, ids=lambda function: function.__qualname__)
def test_signatures_have_the_documented_defaults(function):
    parameters = inspect.signature(function).parameters.values()
    assert {p.name: p.default for p in parameters if p.default is not p.empty} == DEFAULTS[function]


def test_what_is_not_given_is_the_default_when_it_is_run():
    options, choices = data(n=20, d=3, k=4)
    both, rows = (options, choices), np.random.default_rng(1).normal(size=(9, 3)) * [1.0, 2.0, 5.0]
    found, given = (
        estimate(both),
        estimate(both, regularization=1.0, tolerance=1e-8, max_iterations=100, prior=None, start=None),
    )
    np.testing.assert_array_equal(found.theta, given.theta)
    # tolerances and limits show where they end a search: nothing converges to 1e-300, no peak is known to 1e-200 nats
    split = np.array([[[0.0], [1.0]]] * 3)
    endless = estimate((split, [1, 1, 1]), regularization=0.0, tolerance=1e-300)
    assert endless.iterations == 100 and not endless.converged
    assert len(fit_prior(both, base=ridge(3), precision=1e-200).grid) == 40
    fit = fit_prior(both, base=ridge(3))
    same = fit_prior(
        both, base=ridge(3), bounds=(1e-4, 1e6), typical_scale=1.0, log_spread=3.0, precision=0.02, max_evaluations=40
    )
    np.testing.assert_array_equal(fit.grid, same.grid)
    loose = fit_posterior(both, base=ridge(3))
    exact = fit_posterior(both, base=ridge(3), scale=None, log_spread=3.0, draws=512, start=fit)
    assert (loose.scale, loose.log_evidence) == (exact.scale, exact.log_evidence)
    np.testing.assert_array_equal(loose.posterior.precision, exact.posterior.precision)
    posterior = Posterior.from_estimate(found)
    np.testing.assert_array_equal(posterior.interval(rows), posterior.interval(rows, level=0.9))
    accuracy = posterior.expected_accuracy(options, against="truth", draws=512, rng=np.random.default_rng(0))
    assert posterior.expected_accuracy(options) == accuracy
    assert found.diagnose() == found.diagnose(truth=None, level=0.95, draws=1000, seed=0, limit=4.0)
    assert found.diagnose(seed=0).radius != found.diagnose(seed=1).radius
    prior = GaussianPrior.from_embeddings(rows)
    again = GaussianPrior.from_embeddings(rows, 0.5, 1.0, floor=1e-4, centred=True, shrunk=False)
    np.testing.assert_array_equal(prior.precision, again.precision)
    few = np.diag([1.0, 1e-3, 1e-7])  # the last direction is below the floor
    variances = np.linalg.eigvalsh(GaussianPrior.from_embeddings(few, power=1.0).covariance)
    assert variances[0] / variances[-1] == pytest.approx(1e-4)
    people = rows + 1.0
    np.testing.assert_array_equal(
        GaussianPrior.from_estimates(people).precision,
        GaussianPrior.from_estimates(people, target=None, normalise=False, scale=None).precision,
    )


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (data()[0], "Expected answers as Comparisons, Terms or a pair (options, answers), got ndarray"),
        (list(data()), "Expected answers as Comparisons, Terms or a pair (options, answers), got list"),
        ((*data(), 1), "Expected answers as Comparisons, Terms or a pair (options, answers), got tuple"),
        (
            (data()[0][:1], [Response.best(0)]),
            "Expected a model of the responses, got none; give model=BestOf(), Ranking(), ...",
        ),
    ],
)
def test_what_are_no_answers(bad, message):
    with pytest.raises(TypeError) as caught:
        estimate(bad)
    assert str(caught.value) == message


def test_a_model_is_passed_on():
    rng = np.random.default_rng(2)
    options = rng.normal(size=(15, 3, 2))
    responses = Ranking().sample(options, [1.0, -1.0], rng.random(15))
    terms = Ranking().terms(options, responses)
    for one in (fit_prior, fit_posterior):
        by_model, by_terms = one((options, responses), base=ridge(), model=Ranking()), one(terms, base=ridge())
        assert (by_model.scale, by_model.log_evidence) == (by_terms.scale, by_terms.log_evidence)
    prior = VocabularyPrior(rng.normal(size=(30, 2)))
    np.testing.assert_array_equal(prior.fit((options, responses), model=Ranking()).theta, prior.fit(terms).theta)
    with pytest.raises(ValueError, match="no model beside Terms"):
        fit_posterior(terms, base=ridge(), model=BestOf())
    with pytest.raises(ValueError, match="no model beside Terms"):
        prior.fit(terms, model=BestOf())


def test_offsets_that_are_all_0_are_none():
    options, choices = data()
    assert estimate((options, choices)).fitted.offsets is None
    offsets = np.zeros(options.shape[:2])
    offsets[0, 0] = -np.inf if choices[0] else 0.5
    fitted = estimate(Terms(options, offsets, choices)).fitted
    assert fitted.offsets is not None and fitted.offsets.shape == (12, 2) and fitted.differences.shape == (12, 2, 2)


def test_the_evidence_needs_a_precision_with_a_determinant():
    found = estimate(data())
    for wrong in (np.zeros((2, 2)), np.diag([1.0, -1.0])):
        with pytest.raises(ValueError, match="positive definite precision of the estimate, got a singular one"):
            log_evidence(replace(found, precision=wrong), ridge())


def test_a_singular_precision_has_no_covariance():
    singular = replace(estimate(data()), precision=np.zeros((2, 2)))
    with pytest.raises(ValueError, match=r"got a singular one \(no prior and too few answers\); use regularization"):
        singular.covariance()
    with pytest.raises(ValueError, match=r"got a singular one \(because\); use"):
        replace(singular, reason="because").covariance()
