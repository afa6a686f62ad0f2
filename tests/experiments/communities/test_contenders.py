"""The contenders of the study against brute force on small problems."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy.linalg import subspace_angles
from scipy.optimize import approx_fprime, minimize

from edpbrl_gym.estimation import GaussianPrior, estimate, fit_prior
from edpbrl_gym.experiments.communities.averaged_models import AveragedModels
from edpbrl_gym.experiments.communities.bilinear import AllAnswers
from edpbrl_gym.experiments.communities.prototypes import Prototypes
from edpbrl_gym.experiments.communities.reward_basis import RewardBasis, learn_basis
from edpbrl_gym.experiments.people.data import Person
from edpbrl_gym.likelihood import Terms
from edpbrl_gym.likelihood.choice import fisher_information, log_likelihood


def answered(thetas, questions, options=3, seed=0):
    """Terms of people who answer random questions by the multinomial logit."""
    rng = np.random.default_rng(seed)
    people = []
    for theta in np.atleast_2d(thetas):
        rows = rng.normal(size=(questions, options, len(theta)))
        chosen = (rows @ theta + rng.gumbel(size=rows.shape[:2])).argmax(axis=1)
        people.append(Terms(rows, np.zeros(rows.shape[:2]), chosen))
    return people


def questions(count, dimension, options=3, seed=5):
    rows = np.random.default_rng(seed).normal(size=(count, options, dimension))
    return Person("new", rows, np.full(count, options), np.zeros(count, dtype=np.int64))


# -- the likelihood of all people ------------------------------------------------------------------------------------


def test_the_loss_of_all_people_is_minus_their_log_likelihood_and_has_these_gradients():
    rng = np.random.default_rng(0)
    root = rng.normal(size=(4, 4))
    people = answered(rng.normal(size=(3, 4)), 5)
    answers = AllAnswers.of(people, root)
    basis, weights = rng.normal(size=(4, 2)), rng.normal(size=(3, 2))
    value, by_basis, by_weights = answers.loss(basis, weights)
    each = [log_likelihood(one.rows, one.chosen, root @ basis @ row) for one, row in zip(people, weights, strict=True)]
    assert value == pytest.approx(-sum(each))
    flat = approx_fprime(basis.ravel(), lambda one: answers.loss(one.reshape(4, 2), weights)[0])
    np.testing.assert_allclose(by_basis.ravel(), flat, atol=1e-4)
    flat = approx_fprime(weights.ravel(), lambda one: answers.loss(basis, one.reshape(3, 2))[0])
    np.testing.assert_allclose(by_weights.ravel(), flat, atol=1e-4)
    at_zero = answers.loss(np.eye(4), np.zeros((3, 4)))[2]
    np.testing.assert_allclose(answers.scores(), -at_zero)


# -- PReF ------------------------------------------------------------------------------------------------------------


def test_a_basis_of_rank_two_is_recovered():
    rng = np.random.default_rng(1)
    true = np.linalg.qr(rng.normal(size=(6, 2)))[0]
    thetas = 3.0 * rng.normal(size=(80, 2)) @ true.T
    answers = AllAnswers.of(answered(thetas, 40), np.eye(6))
    basis, weights = learn_basis(answers, 2, 0.1)
    assert np.degrees(subspace_angles(basis, true)).max() < 8
    found = weights @ basis.T
    cosines = (found * thetas).sum(axis=1) / np.linalg.norm(found, axis=1) / np.linalg.norm(thetas, axis=1)
    assert np.median(cosines) > 0.97


def test_a_new_persons_coefficients_minimise_the_penalised_loss():
    prior = GaussianPrior.from_covariance(np.diag([4.0, 1.0, 1.0, 0.5]))
    model = RewardBasis(answered(np.random.default_rng(2).normal(size=(30, 4)), 8), prior, rank=2, penalty=0.7)
    (new,) = answered(np.array([2.0, -1.0, 0.5, 0.0]), 6, seed=9)

    def loss(one):
        return -log_likelihood(new.rows, new.chosen, model.basis @ one) + 0.35 * one @ one

    best = minimize(loss, np.zeros(2)).x
    fit = model.fit(new)
    np.testing.assert_allclose(fit.theta, model.basis @ best, atol=1e-3)
    utilities = new.rows @ fit.theta
    powers = np.exp(utilities)
    np.testing.assert_allclose(fit.probabilities(new.rows), powers / powers.sum(axis=1, keepdims=True))
    assert not model.fit(Terms(new.rows[:0], new.offsets[:0], new.chosen[:0])).theta.any()


def test_prefs_question_has_the_most_uncertain_pairs():
    model = RewardBasis(
        answered(np.random.default_rng(3).normal(size=(30, 4)), 8), GaussianPrior.isotropic(4, 1.0), rank=2, penalty=0.5
    )
    (new,) = answered(np.array([1.0, -1.0, 0.5, 0.0]), 4, seed=9)
    left = questions(20, 4)
    coefficients = np.linalg.lstsq(model.basis, model.fit(new).theta, rcond=None)[0]
    hessian = 0.5 * np.eye(2) + fisher_information(new.rows @ model.basis, coefficients).reshape(-1, 2, 2).sum(axis=0)
    inverse = np.linalg.inv(hessian)

    def value(options):
        pairs = [(one - other) @ model.basis for one, other in itertools.combinations(options, 2)]
        return sum(np.sqrt(pair @ inverse @ pair) for pair in pairs)

    assert model.choose(new, left) == np.argmax([value(options) for options in left.options])


# -- PAL -------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def mixture():
    rng = np.random.default_rng(4)
    prototypes = 4.0 * np.eye(3)
    weights = rng.dirichlet(np.full(3, 0.2), size=90)
    people = answered(weights @ prototypes, 40)
    return prototypes, Prototypes(people, GaussianPrior.isotropic(3, 0.1), number=3, penalty=0.01)


def test_prototypes_are_recovered_up_to_their_order(mixture):
    true, model = mixture
    found = model.prototypes.T
    cosines = (found @ true.T) / np.linalg.norm(found, axis=1)[:, None] / 4.0
    assert sorted(cosines.argmax(axis=1)) == [0, 1, 2]
    assert cosines.max(axis=1).min() > 0.95


def test_a_new_persons_weights_maximise_the_likelihood_on_the_simplex(mixture):
    _, model = mixture
    (new,) = answered(np.array([2.5, 1.5, 0.0]), 12, seed=8)
    weights = model.weights(new)
    assert weights.min() >= 0 and weights.sum() == pytest.approx(1.0)
    grid = [(i / 60, j / 60, 1 - (i + j) / 60) for i in range(61) for j in range(61 - i)]
    best = max(log_likelihood(new.rows, new.chosen, model.prototypes @ np.array(one)) for one in grid)
    assert log_likelihood(new.rows, new.chosen, model.prototypes @ weights) >= best - 1e-6
    none = Terms(new.rows[:0], new.offsets[:0], new.chosen[:0])
    assert model.weights(none).sum() == pytest.approx(1.0) and model.fit(none).theta.shape == (3,)


# -- Meta-PO ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def averaged():
    """Three earlier people whose estimates are set by hand."""
    model = AveragedModels(answered(np.eye(2), 3), GaussianPrior.isotropic(2, 1.0))
    model.earlier = np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]])
    return model


def test_weights_count_the_pairs_that_an_earlier_model_orders_as_the_own_one(averaged):
    rows = np.array([[[1.0, 0.0], [0.0, 1.0], [0.5, 0.5]], [[2.0, 1.0], [0.0, 2.0], [3.0, 0.0]]])
    new = Terms(rows, np.zeros((2, 3)), np.array([0, 0]))
    own = np.array([1.0, 0.1])  # orders the pairs (0 over 1, 0 over 2) as: yes, yes; yes, no
    # leads of the chosen options: (1, -1), (.5, -.5); (2, -1), (-1, 1). Agreements: 4; 0; 0
    np.testing.assert_allclose(averaged.weights(new, own), [1.0, 0.0, 0.0, 0.0])
    own = np.array([1.0, 1.5])  # no, no; yes, yes: agreements 1; 3; 3... by the signs of x and y
    leads = np.array([[1.0, -1.0], [0.5, -0.5], [2.0, -1.0], [-1.0, 1.0]])
    agreed = [sum((lead @ one > 0) == (lead @ own > 0) for lead in leads) for one in averaged.earlier]
    assert agreed == [1, 3, 3]
    np.testing.assert_allclose(averaged.weights(new, own)[:3], np.array([1, 3, 3]) / 7)


def test_earlier_models_lose_a_tenth_with_each_answer_after_the_fifth(averaged):
    (new,) = answered(np.array([2.0, 0.5]), 16)
    own = fit_prior(new, base=averaged.prior).estimate.theta
    for count, share in ((1, 1.0), (5, 1.0), (6, 0.9), (10, 0.5), (15, 0.0), (16, 0.0)):
        some = Terms(new.rows[:count], new.offsets[:count], new.chosen[:count])
        weights = averaged.weights(some, own)
        assert weights[:-1].sum() == pytest.approx(share) and weights.sum() == pytest.approx(1.0)
    np.testing.assert_allclose(averaged.fit(new).theta, own)  # the own model alone is left
    none = Terms(new.rows[:0], new.offsets[:0], new.chosen[:0])
    np.testing.assert_allclose(averaged.weights(none, own), 0.25)
    np.testing.assert_allclose(averaged.fit(none).theta, averaged.earlier.sum(axis=0) / 4)


def test_meta_pos_question_maximises_the_transfer_acquisition_function(averaged):
    (new,) = answered(np.array([2.0, 0.5]), 8, seed=3)
    left = questions(12, 2)
    own = averaged.plan(new)
    weights = averaged.weights(new, own.mean)
    shown = new.rows.reshape(-1, 2)
    draws = np.random.default_rng(0).multivariate_normal(own.mean, own.covariance(), 200_000)
    best = (shown @ own.mean).max()

    def value(option):
        earlier = [max(option @ one - (shown @ one).max(), 0.0) for one in averaged.earlier]
        return weights[:-1] @ earlier + weights[-1] * np.maximum(draws @ option - best, 0.0).mean()

    totals = np.array([sum(value(option) for option in options) for options in left.options])
    assert averaged.choose(new, left) == totals.argmax()


def test_earlier_models_are_estimates_at_the_scale_of_the_highest_evidence():
    people = answered(np.array([[3.0, 0.0], [0.0, 0.3]]), 20)
    prior = GaussianPrior.isotropic(2, 1.0)
    model = AveragedModels(people, prior)
    for row, person in zip(model.earlier, people, strict=True):
        scale = fit_prior(person, base=prior).scale
        np.testing.assert_allclose(row, estimate(person, prior=prior.scaled(scale)).theta, atol=1e-5)
