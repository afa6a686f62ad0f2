"""The diagnosis of an estimate beside direct formulas, and its bounds beside exact enumeration of all answers."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chi2

from edpbrl_gym.comparisons import Comparisons
from edpbrl_gym.estimation import Diagnosis, Estimate, GaussianPrior, Posterior, VocabularyPrior, estimate, fit_prior
from edpbrl_gym.likelihood import Ranking, Response, WithTies
from edpbrl_gym.likelihood.choice import choice_probabilities, fisher_information


def sampled(options, theta, rng):
    """Answers of a user with the taste theta, (n,)."""
    probabilities = choice_probabilities(options, theta)
    return (probabilities.cumsum(axis=1) < rng.random((len(options), 1))).sum(axis=1)


def random_case(seed, n=12, k=3, d=4, size=1.0):
    rng = np.random.default_rng(seed)
    options, theta = size * rng.normal(size=(n, k, d)), rng.normal(size=d)
    return options, theta, sampled(options, theta, rng)


def smallest_eigenvalue(matrix):
    return float(np.linalg.eigvalsh(matrix).min())


def largest_change(options, change):
    return float(np.ptp(options @ change, axis=1).max())


# -- the inequality of generalised self-concordance ------------------------------------------------------------------


@settings(max_examples=100)
@given(st.integers(0, 10**6), st.integers(1, 6), st.integers(2, 5), st.integers(1, 5), st.floats(0.01, 10.0))
def test_the_information_changes_by_no_more_than_the_exponential_of_the_utility_change(seed, n, k, d, size):
    rng = np.random.default_rng(seed)
    options, theta, change = rng.normal(size=(n, k, d)), rng.normal(size=d), size * rng.normal(size=d)
    before, after = fisher_information(options, theta), fisher_information(options, theta + change)
    delta = largest_change(options, change)
    slack = 1e-12 * np.trace(before) * np.exp(delta)
    assert smallest_eigenvalue(after - np.exp(-delta) * before) >= -slack
    assert smallest_eigenvalue(np.exp(delta) * before - after) >= -slack


def test_the_exponential_is_nearly_attained():
    # an option that is almost never chosen: its probability, and with it the variance, grows by exp(delta)
    options, theta = np.array([[[0.0], [1.0]]]), np.array([-20.0])
    ratio = fisher_information(options, theta + 1.0) / fisher_information(options, theta)
    assert ratio.item() == pytest.approx(np.e, rel=1e-6)


def test_the_paper_s_form_of_the_inequality_fails():
    # standard self-concordance would give I(theta + D) >= (1 - |D|_I)^2 I(theta)
    options, theta, change = np.array([[[0.0], [1.0]]]), np.array([-8.0]), np.array([-3.0])
    before, after = fisher_information(options, theta).item(), fisher_information(options, theta + change).item()
    radius = np.sqrt(before) * abs(change.item())
    assert radius < 0.1
    assert after < 0.1 * (1 - radius) ** 2 * before
    assert after >= np.exp(-3.0) * before


# -- the numbers by direct formulas ----------------------------------------------------------------------------------


@pytest.mark.parametrize("k", [2, 3, 5])
def test_the_numbers_with_a_known_truth(k):
    options, theta, choices = random_case(3, k=k)
    root = np.random.default_rng(0).normal(size=(4, 4))
    prior = GaussianPrior(0.1 * root @ root.T + np.eye(4), np.array([0.2, -0.1, 0.0, 0.3]))
    result = estimate((options, choices), prior=prior)
    found = result.diagnose(truth=theta)
    change, apart = result.theta - theta, theta - prior.mean
    assert found.radius == pytest.approx(np.sqrt(change @ fisher_information(options, theta) @ change))
    assert found.radius_holds == (found.radius < 1)
    assert found.paper_constant == (pytest.approx((1 - found.radius) ** -4) if found.radius < 1 else np.inf)
    assert found.prior_distance == pytest.approx(apart @ prior.precision @ apart)
    assert found.prior_distance_interval == (found.prior_distance, found.prior_distance)
    delta = largest_change(options, change)
    assert found.utility_error == pytest.approx(delta)
    pairs = options[:, :, None] - options[:, None, :]
    assert found.feature_radius == pytest.approx(np.linalg.norm(pairs, axis=3).max())
    information = fisher_information(options, theta)
    effective = np.trace(information @ np.linalg.inv(information + prior.precision))
    assert found.effective_parameters == pytest.approx(effective)
    share = (1 - np.exp(-delta)) / delta
    assert found.total_constant == pytest.approx(share**-2)
    assert found.total_constant <= np.exp(2 * delta)
    middle = (share**-1 + delta / (np.exp(delta) - 1)) / 2
    assert found.matrix_constant == pytest.approx((middle + delta / 2 * np.sqrt(effective + 1)) ** 2)
    assert (found.questions, found.dimension, found.truth_known) == (12, 4, True)


def test_without_a_truth_they_are_quantiles_of_the_posterior():
    options, _, choices = random_case(5, n=60, size=0.5)
    result = estimate((options, choices), regularization=0.5)
    found = result.diagnose(level=0.9, draws=4000, seed=7)
    draws = Posterior.from_estimate(result).draws(4000, np.random.default_rng(7))
    changes = draws - result.theta
    radii = [np.sqrt(c @ fisher_information(options, t) @ c) for c, t in zip(changes, draws, strict=True)]
    errors = [largest_change(options, change) for change in changes]
    distances = 0.5 * (draws**2).sum(axis=1)
    assert found.radius == pytest.approx(np.quantile(radii, 0.9))
    assert found.utility_error == pytest.approx(np.quantile(errors, 0.9))
    assert found.prior_distance == pytest.approx(np.quantile(distances, 0.9))
    assert found.prior_distance_interval == pytest.approx(tuple(np.quantile(distances, [0.05, 0.95])))
    assert found.prior_distance_of_estimate == pytest.approx(0.5 * result.theta @ result.theta)
    # the closed form of the mean, which takes the information at theta_hat
    assert np.mean(np.square(radii)) == pytest.approx(found.effective_parameters, rel=0.1)
    assert result.diagnose(level=0.9, draws=4000, seed=7) == found
    assert result.diagnose(level=0.9, draws=4000, seed=8) != found


def test_blocks_of_draws_are_the_whole(monkeypatch):
    options, _, choices = random_case(6)
    result = estimate((options, choices))
    whole = result.diagnose(draws=50)
    monkeypatch.setattr("edpbrl_gym.estimation.diagnosis._BLOCK_NUMBERS", 7 * 12 * 2)
    assert result.diagnose(draws=50).summary() == whole.summary()


def test_absent_alternatives_of_rankings_do_not_count():
    options, theta, _ = random_case(8, n=6, k=4)
    rng = np.random.default_rng(0)
    responses = [Response.ranking(tuple(rng.permutation(4).tolist())) for _ in range(6)]
    result = estimate((options, responses), model=Ranking())
    found = result.diagnose(truth=theta)
    change = result.theta - theta
    terms = Ranking().terms(options, responses)
    assert found.radius == pytest.approx(np.sqrt(change @ terms.information(theta) @ change))
    assert found.utility_error == pytest.approx(largest_change(options, change))
    pairs = options[:, :, None] - options[:, None, :]
    assert found.feature_radius == pytest.approx(np.linalg.norm(pairs, axis=3).max())


def test_a_unit_norm_taste_meets_the_ridge_of_one_with_equality():
    options, theta, choices = random_case(9)
    theta = theta / np.linalg.norm(theta)
    result = estimate((options, choices), regularization=1.0)
    assert result.diagnose(truth=theta).prior_holds
    assert not estimate((options, choices), regularization=100.0).diagnose(truth=theta).prior_holds


def test_without_answers_only_the_prior_speaks():
    result = estimate(Comparisons.empty(3, 4), regularization=2.0)
    found = result.diagnose(draws=20_000)
    assert (found.radius, found.utility_error, found.feature_radius) == (0, 0, 0)
    assert found.effective_parameters == pytest.approx(0.0, abs=1e-12)
    assert found.radius_holds
    assert (found.total_constant, found.matrix_constant) == (1.0, 1.0)
    # a Gaussian prior expects chi-squared with d degrees of freedom where the paper assumes at most 1
    assert found.prior_distance == pytest.approx(chi2(4).ppf(0.95), rel=0.05)
    assert not found.prior_holds


# -- what the theory says --------------------------------------------------------------------------------------------


def enumerated(options, theta, prior):
    """Every set of answers with its probability and its estimate; n questions of K options, K^n of them."""
    probabilities = choice_probabilities(options, theta)
    for answers in itertools.product(range(options.shape[1]), repeat=len(options)):
        choices = np.array(answers)
        weight = float(np.prod(probabilities[np.arange(len(options)), choices]))
        yield weight, estimate((options, choices), prior=prior)


@pytest.mark.parametrize("seed", range(4))
def test_the_bounds_hold_over_all_answers(seed):
    rng = np.random.default_rng(seed)
    options, theta = 0.8 * rng.normal(size=(7, 2, 2)), rng.normal(size=2)
    prior = GaussianPrior(np.diag([0.6, 1.2]), 0.3 * rng.normal(size=2))
    apart = theta - prior.mean
    theta = prior.mean + apart / np.sqrt(apart @ prior.precision @ apart)  # the prior's assumption, with equality
    hessian = fisher_information(options, theta) + prior.precision
    mean_square, mass, diagnoses = np.zeros((2, 2)), 0.0, []
    for weight, result in enumerated(options, theta, prior):
        error = result.theta - theta
        mean_square += weight * np.outer(error, error)
        mass += weight
        diagnoses.append(result.diagnose(truth=theta))
    assert mass == pytest.approx(1.0)
    assert all(found.prior_holds for found in diagnoses)
    total = max(found.total_constant for found in diagnoses)
    effective = np.trace(np.linalg.solve(hessian, fisher_information(options, theta)))
    assert np.trace(hessian @ mean_square) <= total * (effective + 1)
    delta = max(found.utility_error for found in diagnoses)
    share = (1 - np.exp(-delta)) / delta
    middle = (1 / share + delta / np.expm1(delta)) / 2
    constant = (middle + delta / 2 * np.sqrt(effective + 1)) ** 2
    assert smallest_eigenvalue(constant * np.linalg.inv(hessian) - mean_square) >= 0
    # the error is not so small that any constant would do
    assert np.linalg.eigvals(hessian @ mean_square).real.max() > 0.3


def test_a_bounded_random_matrix_does_not_bound_the_mean_square():
    # the step of the paper's proof from M <= I to E[M u u' M] <= E[u u'], with M that depends on u
    first, second = np.eye(2)
    tilted = (first + second) / np.sqrt(2)
    cases = [(np.sqrt(2) * first, np.outer(first, first)), (np.sqrt(2) * second, np.outer(tilted, tilted))]
    np.testing.assert_allclose(sum(np.outer(u, u) for u, _ in cases) / 2, np.eye(2))
    assert all(np.linalg.eigvalsh(bounded).max() <= 1 + 1e-12 for _, bounded in cases)
    assert np.linalg.eigvalsh(sum(np.outer(m @ u, m @ u) for u, m in cases) / 2).max() > 1.3


def repeated(n, repeats, d=3):
    """The diagnoses of an almost unpenalised estimate in repetitions with n answers each."""
    rng = np.random.default_rng(n)
    theta = np.array([1.0, -0.5, 0.3])[:d]
    found = []
    for _ in range(repeats):
        options = 0.7 * rng.normal(size=(n, 4, d))
        found.append(
            estimate((options, sampled(options, theta, rng)), regularization=1e-3).diagnose(truth=theta, limit=2.0)
        )
    return found


def test_more_answers_do_not_shrink_the_local_radius_but_the_utility_error():
    few, more, most = (repeated(n, 150) for n in (100, 400, 1600))
    for found in (few, more, most):
        squares = np.array([one.radius**2 for one in found])
        # chi-squared with 3 degrees of freedom: mean 3, standard deviation sqrt(6)
        assert squares.mean() == pytest.approx(3.0, abs=4 * np.sqrt(6 / 150))
        assert np.mean([one.radius_holds for one in found]) == pytest.approx(
            chi2(3).cdf(1.0), abs=4 * np.sqrt(0.2 * 0.8 / 150)
        )
    errors = [np.mean([one.utility_error for one in found]) for found in (few, more, most)]
    # halved by four times the answers, but for the largest of more normal features
    assert errors[0] > 1.5 * errors[1] > 1.5**2 * errors[2]
    shares = [np.mean([one.bound_holds for one in found]) for found in (few, more, most)]
    assert shares[0] < 0.5 < 0.9 < shares[2] and shares[0] <= shares[1] <= shares[2]


# -- interface -------------------------------------------------------------------------------------------------------


def test_fits_of_priors_are_diagnosed_under_the_prior_that_was_found():
    options, theta, choices = random_case(11, n=40)
    fit = fit_prior((options, choices), base=GaussianPrior.isotropic(4, 1.0))
    found = fit.estimate.diagnose(truth=theta)
    assert found.prior_distance == pytest.approx(theta @ fit.prior.precision @ theta)
    same = estimate((options, choices), prior=fit.prior).diagnose(truth=theta)
    assert found.radius == pytest.approx(same.radius, rel=1e-5)
    assert fit.estimate.fitted.prior is fit.prior
    taste = VocabularyPrior(options.reshape(-1, 4)).fit((options, choices))
    change = taste.theta - theta
    expected = np.sqrt(change @ fisher_information(options, theta) @ change)
    assert taste.estimate.diagnose(truth=theta).radius == pytest.approx(expected)


def test_the_summary_names_what_holds():
    options, theta, choices = random_case(12, n=40)
    result = estimate((options, choices), regularization=1.0)
    exact, unknown = result.diagnose(truth=theta), result.diagnose(level=0.8)
    assert "theta* given" in exact.summary() and "interval" not in exact.summary()
    assert "80%" in unknown.summary() and "interval" in unknown.summary()
    assert len(exact.summary().splitlines()) == 4
    assert exact.summary().count("FAILS") == 3 - exact.radius_holds - exact.prior_holds - exact.bound_holds


def test_what_can_not_be_diagnosed_is_refused():
    options, theta, choices = random_case(13)
    result = estimate((options, choices))
    with pytest.raises(ValueError, match=r"Expected truth of shape \(4,\), got shape \(3,\)"):
        result.diagnose(truth=theta[:3])
    with pytest.raises(ValueError, match=r"Expected level in \(0, 1\), got 1.0"):
        result.diagnose(level=1.0)
    with pytest.raises(ValueError, match="limit"):
        result.diagnose(limit=0.5)
    with pytest.raises(ValueError, match="draws"):
        result.diagnose(draws=0)
    with pytest.raises(ValueError, match="without its answers"):
        Estimate(theta, True, 1, 0.0, 0.0, 0.0, np.eye(4)).diagnose()
    separable = estimate((np.array([[[0.0], [1.0]]] * 3), [1, 1, 1]), regularization=0.0)
    with pytest.raises(ValueError, match="converged"):
        separable.diagnose()


def test_the_summary_to_the_letter():
    known = Diagnosis(
        questions=12, dimension=4, truth_known=True, level=0.95, effective_parameters=2.345, radius=0.5,
        radius_holds=True, paper_constant=16.0, prior_distance=1.5, prior_distance_interval=(1.5, 1.5),
        prior_distance_of_estimate=0.75, prior_holds=False, utility_error=0.25, feature_radius=3.125,
        total_constant=1.28, matrix_constant=1.66, limit=4.0, bound_holds=False,
    )  # fmt: skip
    assert known.summary() == (
        "12 answers, 4 features, 2.3 effective parameters (theta* given)\n"
        "local radius           holds: r = 0.5, must be below 1; C = (1 - r)^-4 = 16\n"
        "prior around theta*    FAILS: (theta* - m)' P (theta* - m) = 1.5, must be at most 1 (0.75 at theta_hat)\n"
        "bound of this library  FAILS: delta = 0.25 for options up to 3.12 apart; constant 1.28 (limit 4), "
        "1.66 for the matrix"
    )
    unknown = replace(
        known, truth_known=False, level=0.8, prior_distance_interval=(0.5, 2.0), radius_holds=False, prior_holds=True,
        bound_holds=True,
    )  # fmt: skip
    assert unknown.summary() == (
        "12 answers, 4 features, 2.3 effective parameters (quantiles at 80% of the Laplace posterior)\n"
        "local radius           FAILS: r = 0.5, must be below 1; C = (1 - r)^-4 = 16\n"
        "prior around theta*    holds: (theta* - m)' P (theta* - m) = 1.5, must be at most 1 (0.75 at theta_hat, "
        "interval 0.5 to 2)\n"
        "bound of this library  holds: delta = 0.25 for options up to 3.12 apart; constant 1.28 (limit 4), "
        "1.66 for the matrix"
    )


@pytest.mark.parametrize(("k", "d"), [(5, 1), (2, 4), (6, 2)])
def test_the_feature_radius_is_over_all_pairs_of_options(k, d):
    for seed in range(5):
        options, _, choices = random_case(seed, n=3, k=k, d=d)
        pairs = options[:, :, None] - options[:, None, :]
        found = estimate((options, choices)).diagnose(draws=1).feature_radius
        assert found == pytest.approx(np.linalg.norm(pairs, axis=3).max())


def test_the_limit_of_the_constant_decides_with_the_prior():
    options, theta, choices = random_case(4, n=200, size=0.2)
    near = estimate((options, choices), regularization=1e-3)
    found = near.diagnose(truth=theta)
    assert found.prior_holds and 1.0 < found.total_constant
    assert near.diagnose(truth=theta, limit=1.001 * found.total_constant).bound_holds
    assert not near.diagnose(truth=theta, limit=0.999 * found.total_constant).bound_holds
    far = estimate((options, choices), regularization=100.0).diagnose(truth=theta, limit=1e9)
    assert not far.prior_holds and not far.bound_holds
    assert near.diagnose(truth=theta).limit == 4.0 and near.diagnose(truth=theta).level == 0.95


def test_offsets_of_ties_count_in_all_numbers():
    options, theta, _ = random_case(6, n=30)
    model, rng = WithTies(2.0), np.random.default_rng(1)
    terms = model.terms(options, model.sample(options, theta, rng.random(30)))
    result = estimate(terms, regularization=0.7)
    found = result.diagnose(truth=theta)
    information, change = terms.information(theta), result.theta - theta
    assert found.radius == pytest.approx(np.sqrt(change @ information @ change))
    assert found.effective_parameters == pytest.approx(
        np.trace(np.linalg.solve(information + 0.7 * np.eye(4), information))
    )
    drawn = result.diagnose(draws=200, seed=3, level=0.6)
    thetas = Posterior.from_estimate(result).draws(200, np.random.default_rng(3))
    changes = result.theta - thetas
    radii = [np.sqrt(one @ terms.information(at) @ one) for one, at in zip(changes, thetas, strict=True)]
    assert drawn.radius == pytest.approx(np.quantile(radii, 0.6))
    distances = 0.7 * np.square(thetas).sum(axis=1)
    assert drawn.prior_distance == pytest.approx(np.quantile(distances, 0.6))
    assert drawn.prior_distance_interval == pytest.approx(tuple(np.quantile(distances, [0.2, 0.8])))
    assert drawn.prior_distance_of_estimate == pytest.approx(0.7 * result.theta @ result.theta)
    at_estimate = terms.information(result.theta)
    expected = np.trace(np.linalg.solve(at_estimate + 0.7 * np.eye(4), at_estimate))
    assert drawn.effective_parameters == pytest.approx(expected)
    assert (drawn.questions, drawn.dimension, drawn.truth_known) == (len(terms), 4, False)
    spread = np.ptp(
        np.concatenate(
            [
                np.zeros((200, 1, len(terms))),
                (changes @ terms.differences()[0].reshape(-1, 4).T).reshape(200, len(terms), -1).transpose(0, 2, 1),
            ],
            axis=1,
        ),
        axis=1,
    ).max(axis=1)
    assert drawn.utility_error == pytest.approx(np.quantile(spread, 0.6))
    assert drawn.radius_holds == (drawn.radius < 1)
    assert drawn.paper_constant == (pytest.approx((1 - drawn.radius) ** -4) if drawn.radius_holds else np.inf)
