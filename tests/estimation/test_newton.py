"""The Newton estimate: optimality, derivatives, convergence, Laplace posterior, and data without a maximum."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edpbrl_gym.comparisons import Comparisons
from edpbrl_gym.estimation import GaussianPrior, estimate
from edpbrl_gym.estimation.data import answer_differences
from edpbrl_gym.estimation.newton import maximise
from edpbrl_gym.likelihood.choice import choice_probabilities, fisher_information, log_likelihood, score


def answers(options, theta, rng):
    return (choice_probabilities(options, theta).cumsum(axis=1) < rng.random((len(options), 1))).sum(axis=1)


def problem(seed, n=60, num_options=4, d=5, spread=1.0):
    rng = np.random.default_rng(seed)
    options, theta = spread * rng.normal(size=(n, num_options, d)), rng.normal(size=d)
    return options, answers(options, theta, rng), theta


@settings(max_examples=40)
@given(
    st.integers(0, 10**6),
    st.integers(0, 40),
    st.integers(2, 6),
    st.integers(1, 12),
    st.floats(0.01, 100),
    st.floats(1e-3, 1e3),
)
def test_the_gradient_vanishes_at_the_estimate(seed, n, num_options, d, spread, regularization):
    options, choices, _ = problem(seed, n, num_options, d, spread)
    result = estimate((options, choices), regularization=regularization)
    assert result.converged, result.reason
    gradient = score(options, choices, result.theta) - regularization * result.theta
    assert np.linalg.norm(gradient) == pytest.approx(result.gradient_norm, abs=1e-9 * (1 + spread * n))
    length = np.sqrt(gradient @ np.linalg.solve(result.precision, gradient))
    assert length <= 1e-7
    assert result.log_likelihood == pytest.approx(log_likelihood(options, choices, result.theta), rel=1e-9, abs=1e-9)
    penalty = 0.5 * regularization * result.theta @ result.theta
    assert result.log_posterior == pytest.approx(result.log_likelihood - penalty, rel=1e-9, abs=1e-9)
    expected = fisher_information(options, result.theta) + regularization * np.eye(d)
    np.testing.assert_allclose(result.precision, expected, rtol=1e-7, atol=1e-9 * np.abs(expected).max())


def test_the_precision_is_the_hessian_of_the_objective():
    """Finite differences of the gradient, for an anisotropic prior."""
    options, choices, _ = problem(2, d=4)
    root = np.random.default_rng(0).normal(size=(4, 4))
    prior = GaussianPrior.from_precision(root @ root.T + np.eye(4))
    result = estimate((options, choices), prior=prior)
    step = 1e-5
    rows = [
        (score(options, choices, result.theta + e) - score(options, choices, result.theta - e)) / (2 * step)
        for e in step * np.eye(4)
    ]
    np.testing.assert_allclose(result.precision, prior.precision - np.array(rows), atol=1e-6)


def test_any_start_leads_to_the_same_maximum():
    options, choices, _ = problem(3)
    first = estimate((options, choices))
    for start in (100 * np.ones(5), -30 * np.eye(5)[0], first.theta):
        other = estimate((options, choices), start=start)
        assert other.converged
        np.testing.assert_allclose(other.theta, first.theta, atol=1e-8)
    assert other.iterations == 0


def test_a_far_start_needs_the_damping():
    """From saturated utilities the full Newton step overshoots; ``estimate`` would start at 0 instead."""
    options, choices, _ = problem(9, n=400, d=3)
    far = np.array([40.0, -40.0, 40.0])
    step = np.linalg.solve(
        fisher_information(options, far) + 0.01 * np.eye(3), score(options, choices, far) - 0.01 * far
    )
    objective = [log_likelihood(options, choices, t) - 0.005 * t @ t for t in (far, far + step)]
    assert objective[1] < objective[0]
    differences = answer_differences((options, choices))[0]
    end = maximise(differences, 0.01 * np.eye(3), far, tolerance=1e-8, max_iterations=100)
    assert end.reason == "" and end.iterations > 0
    expected = estimate((options, choices), regularization=0.01).theta
    np.testing.assert_allclose(end.theta, expected, atol=1e-8)
    np.testing.assert_allclose(estimate((options, choices), regularization=0.01, start=far).theta, expected, atol=1e-8)


@pytest.mark.parametrize("seed", range(40))
def test_extreme_scales_converge(seed):
    """Features up to 1e3, lambda down to 1e-8, separable answers, wild starts: the curvature spans 14 decades."""
    rng = np.random.default_rng(seed)
    options = 10 ** rng.uniform(-3, 3) * rng.normal(size=(rng.integers(1, 60), rng.integers(2, 7), rng.integers(1, 20)))
    options = np.round(options) if seed % 3 == 0 else options
    choices = (options @ rng.normal(size=options.shape[2])).argmax(axis=1)
    start = None if seed % 2 else 100 * rng.normal(size=options.shape[2])
    result = estimate((options, choices), regularization=10 ** rng.uniform(-8, 4), start=start)
    assert result.converged, result.reason


def test_the_estimate_does_not_depend_on_the_scale_of_the_features():
    """theta / s for features * s when the prior is scaled along, with the same number of iterations."""
    options, choices, _ = problem(4)
    first = estimate((options, choices), regularization=1.0)
    for scale in (1e-6, 1e6):
        other = estimate((scale * options, choices), regularization=scale**2)
        assert other.converged and other.iterations == first.iterations
        np.testing.assert_allclose(scale * other.theta, first.theta, rtol=1e-9, atol=1e-9)


def test_no_answers_return_the_mode_of_the_prior():
    result = estimate((np.zeros((0, 4, 3)), np.zeros(0, dtype=int)), regularization=2.0)
    assert result.converged and result.iterations == 0
    np.testing.assert_array_equal(result.theta, np.zeros(3))
    np.testing.assert_allclose(result.covariance(), np.eye(3) / 2, atol=1e-15)


def test_float32_features_and_a_comparisons_object():
    options, choices, _ = problem(5)
    comparisons = Comparisons.of_choices(options, choices, np.arange(60) // 6, np.arange(60) % 6)
    stored = comparisons.features.astype(np.float64)
    expected = estimate((stored, choices), regularization=0.3)
    result = estimate(comparisons, regularization=0.3)
    np.testing.assert_array_equal(result.theta, expected.theta)


def test_same_input_same_output():
    options, choices, _ = problem(6, n=300, d=40)
    first, second = estimate((options, choices)), estimate((options.copy(), choices.copy()))
    np.testing.assert_allclose(first.theta, second.theta, rtol=0, atol=1e-9)
    order = np.random.default_rng(0).permutation(300)
    np.testing.assert_allclose(estimate((options[order], choices[order])).theta, first.theta, rtol=0, atol=1e-9)


def test_more_features_than_answers():
    options, choices, _ = problem(7, n=20, d=300)
    result = estimate((options, choices), regularization=0.1)
    assert result.converged
    gradient = score(options, choices, result.theta) - 0.1 * result.theta
    np.testing.assert_allclose(gradient, 0.0, atol=1e-7)


def test_a_thousand_features():
    """The largest dimension that the dense Newton steps are meant for, d = 1024: more features than answers."""
    rng = np.random.default_rng(8)
    options = rng.normal(size=(300, 4, 1024))
    options /= np.linalg.norm(options, axis=-1, keepdims=True)
    choices = (options @ (3 * rng.normal(size=1024)) + rng.gumbel(size=(300, 4))).argmax(axis=1)
    result = estimate((options, choices), regularization=1.0)
    assert result.converged
    residual = np.zeros(1024)  # of the equation lambda theta = sum of x_chosen - E[x]
    for shown, choice in zip(options, choices, strict=True):
        weight = np.exp(shown @ result.theta)
        residual += shown[choice] - weight @ shown / weight.sum()
    np.testing.assert_allclose(result.theta, residual, rtol=0, atol=1e-6)


def test_it_recovers_theta_from_a_hundred_thousand_answers():
    rng = np.random.default_rng(8)
    options, theta = rng.normal(size=(100_000, 4, 6)), rng.normal(size=6)
    result = estimate((options, answers(options, theta, rng)), regularization=1e-6)
    assert result.converged
    error = (result.theta - theta) / np.sqrt(np.diag(result.covariance()))
    assert np.abs(error).max() < 4
    np.testing.assert_allclose(result.theta, theta, atol=0.03)


def test_the_laplace_covariance_matches_the_spread_of_estimates():
    """300 repeated experiments, a vanishing prior: normalised errors are standard normal."""
    rng = np.random.default_rng(10)
    options, theta = rng.normal(size=(500, 3, 2)), np.array([0.7, -0.4])
    squares = []
    for _ in range(300):
        result = estimate((options, answers(options, theta, rng)), regularization=1e-6)
        error = result.theta - theta
        squares.append(error @ result.precision @ error)
    assert np.mean(squares) == pytest.approx(2.0, abs=5 * np.sqrt(4 / 300))  # chi square, 2 degrees of freedom
    np.testing.assert_allclose(result.covariance() @ result.precision, np.eye(2), atol=1e-10)


def test_too_few_iterations_are_reported():
    options, choices, _ = problem(12)
    result = estimate((options, choices), regularization=1e-3, max_iterations=1)
    assert not result.converged and result.iterations == 1
    assert "raise max_iterations" in result.reason


def test_a_tolerance_below_rounding_stops_with_a_reason():
    options, choices, _ = problem(12)
    result = estimate((options, choices), tolerance=1e-30)
    assert result.iterations < 30
    assert result.converged or "larger tolerance" in result.reason
    np.testing.assert_allclose(result.theta, estimate((options, choices)).theta, atol=1e-9)


def test_the_chosen_option_is_the_reference():
    options, choices, theta = problem(13)
    differences = answer_differences((options, choices))[0]
    assert differences.shape == (60, 3, 5)
    end = maximise(differences, np.eye(5), theta, tolerance=1e-8, max_iterations=50)
    p = choice_probabilities(options, end.theta)
    np.testing.assert_allclose(end.probabilities[:, 0], p[np.arange(60), choices], rtol=1e-10)
    np.testing.assert_allclose(end.score, score(options, choices, end.theta), atol=1e-10)


# --- without a prior ---------------------------------------------------------------------------------------------


def test_maximum_likelihood_where_it_exists():
    options, choices, _ = problem(14, n=200)
    result = estimate((options, choices), regularization=0.0)
    assert result.converged and result.reason == ""
    np.testing.assert_allclose(score(options, choices, result.theta), 0.0, atol=1e-7)
    np.testing.assert_allclose(result.theta, estimate((options, choices), regularization=1e-9).theta, atol=1e-6)


@pytest.mark.parametrize("seed", range(4))
def test_completely_separable_answers_are_reported(seed):
    rng = np.random.default_rng(seed)
    options, theta = rng.normal(size=(30, 4, 3)), rng.normal(size=3)
    result = estimate((options, (options @ theta).argmax(axis=1)), regularization=0.0)
    assert not result.converged
    assert "separable" in result.reason and "regularization > 0" in result.reason
    assert np.isfinite(result.theta).all()
    assert estimate((options, (options @ theta).argmax(axis=1)), regularization=1e-3).converged


def test_quasi_separable_answers_are_reported():
    """Feature 0 is answered both ways; feature 1 differs in one question only, so its coefficient runs away."""
    options = np.zeros((21, 2, 2))
    options[:20, 1, 0] = 1.0
    options[20, 1] = [1.0, 1.0]
    choices = np.array([0] * 10 + [1] * 10 + [1])
    result = estimate((options, choices), regularization=0.0)
    assert not result.converged and "separable" in result.reason
    assert estimate((options[:20, :, :1], choices[:20]), regularization=0.0).converged


@settings(max_examples=40)
@given(st.integers(0, 10**6), st.integers(1, 12), st.integers(2, 4), st.integers(1, 3))
def test_the_verdict_agrees_with_integer_geometry(seed, n, num_options, d):
    """Small integer features, so that ties and quasi-separation are common; an LP in another form decides."""
    from scipy.optimize import linprog

    rng = np.random.default_rng(seed)
    options = rng.integers(-2, 3, size=(n, num_options, d)).astype(float)
    choices = rng.integers(num_options, size=n)
    rows = np.concatenate([x[c] - np.delete(x, c, axis=0) for x, c in zip(options, choices, strict=True)])
    if np.linalg.matrix_rank(rows) < d:
        with pytest.raises(ValueError, match="options that differ in all"):
            estimate((options, choices), regularization=0.0)
        return
    answer = linprog(-rows.sum(axis=0), A_ub=-rows, b_ub=np.zeros(len(rows)), bounds=[(-1, 1)] * d)
    result = estimate((options, choices), regularization=0.0)
    assert result.converged == (-answer.fun < 1e-9), result.reason


def test_options_that_never_differ_in_a_direction():
    options, choices, _ = problem(15)
    options[:, :, 2] = 1.0
    with pytest.raises(ValueError, match="all 5 directions without a prior, got differences of rank 4"):
        estimate((options, choices), regularization=0.0)


def test_no_answers_without_a_prior():
    with pytest.raises(ValueError, match="rank 0"):
        estimate((np.zeros((0, 2, 3)), np.zeros(0, dtype=int)), regularization=0.0)


def test_a_prior_on_some_directions_only():
    """Separable in the free direction: no maximum. Separable in the penalised one: a maximum."""
    rng = np.random.default_rng(16)
    options = rng.normal(size=(40, 3, 2))
    choices = options[:, :, 0].argmax(axis=1)
    free_second = GaussianPrior.from_precision(np.diag([1.0, 0.0]))
    free_first = GaussianPrior.from_precision(np.diag([0.0, 1.0]))
    assert not free_second.proper and free_second.null_space.shape == (2, 1)
    assert estimate((options, choices), prior=free_second).converged
    result = estimate((options, choices), prior=free_first)
    assert not result.converged and "separable" in result.reason


def test_covariance_of_a_singular_precision():
    options = np.array([[[1.0], [0.0]]])
    result = estimate((options, [0]), regularization=0.0)
    assert not result.converged
    singular = type(result)(**{**vars(result), "precision": np.zeros((1, 1))})
    with pytest.raises(ValueError, match="separable"):
        singular.covariance()


# --- bad input ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (dict(regularization=-1.0), ValueError, r"regularization \(lambda\) >= 0, got -1"),
        (dict(regularization=float("nan")), ValueError, "finite regularization"),
        (dict(regularization="much"), TypeError, "as a number, got 'much'"),
        (dict(options=np.zeros((3, 1, 2))), ValueError, "at least 2 options"),
        (dict(options=np.full((3, 2, 2), np.inf)), ValueError, "infinite"),
        (dict(choices=[0, 1, 5]), ValueError, "got 5 at index"),
        (dict(choices=[0, 1]), ValueError, "one choice for each of the 3 questions"),
        (dict(prior=GaussianPrior.isotropic(7, 1.0)), ValueError, "prior of dimension 2 .* got one of 7"),
        (dict(prior=GaussianPrior.isotropic(2, 1.0), regularization=1.0), ValueError, "either prior or regularization"),
        (dict(prior=np.eye(2)), TypeError, r"GaussianPrior, got ndarray.*from_precision"),
        (dict(start=[0.0]), ValueError, "start of shape"),
        (dict(start=[0.0, np.nan]), ValueError, "finite start"),
        (dict(tolerance=0.0), ValueError, "tolerance > 0"),
        (dict(max_iterations=0), ValueError, "max_iterations >= 1"),
        (dict(max_iterations=1.5), TypeError, "max_iterations as an integer"),
    ],
)
def test_bad_input_is_named(change, error, message):
    arguments = dict(options=np.ones((3, 2, 2)), choices=[0, 1, 0]) | change
    with pytest.raises(error, match=message):
        estimate((arguments.pop("options"), arguments.pop("choices")), **arguments)
