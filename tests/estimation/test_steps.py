"""The steps of both Newton methods: lengths, accuracies, reasons to stop, and when a likelihood has no maximum."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.optimize
from scipy.linalg import cho_factor

from edpbrl_gym.estimation import GaussianPrior, conjugate, estimate, map_estimate, newton
from edpbrl_gym.estimation.conjugate import climb
from edpbrl_gym.estimation.data import answer_differences
from edpbrl_gym.estimation.newton import Objective, log_posterior, maximise, step_length
from edpbrl_gym.estimation.separation import is_separable, smallest_singular_value
from edpbrl_gym.likelihood import Ranking, Terms, WithTies
from edpbrl_gym.likelihood.choice import choice_probabilities, fisher_information

EPSILON = np.finfo(np.float64).eps


def problem(seed=0, n=40, k=4, d=5, spread=1.0):
    rng = np.random.default_rng(seed)
    options, theta = spread * rng.normal(size=(n, k, d)), rng.normal(size=d) / spread
    choices = (choice_probabilities(options, theta).cumsum(axis=1) < rng.random((n, 1))).sum(axis=1)
    return options, np.minimum(choices, k - 1)


def length_of(point, direction, decrement, differences, precision):
    changes = (differences.reshape(-1, len(direction)) @ direction).reshape(point.values.shape)
    return step_length(point, changes, direction, precision @ direction, decrement)


@pytest.mark.parametrize("halvings", [0, 1, 4])
def test_a_step_is_the_longest_of_the_halved_ones_with_a_sufficient_gain(halvings):
    """The gain of the objective itself, computed apart, against a share of 1e-4 of what the decrement promises."""
    differences, precision = answer_differences(problem())[0], np.diag([1.0, 2, 3, 4, 5])
    point = Objective(differences, precision.dot, None, None).at(np.full(5, 0.3))
    direction = 2.0**halvings * np.linalg.solve(
        fisher_information(*problem()[:1], point.theta) + precision, point.gradient
    )

    def gain(length):
        moved = log_posterior(differences, precision, point.theta + length * direction)
        return moved - log_posterior(differences, precision, point.theta)

    length = 2.0**-halvings
    assert all(gain(2.0**-j) < gain(length) for j in range(halvings))  # as a Newton step is the best of its direction
    largest = np.sqrt(gain(length) / (1e-4 * length))  # the decrement for which the gain is just sufficient
    assert length_of(point, direction, largest * (1 - 1e-6), differences, precision) >= length
    assert length_of(point, direction, largest * (1 + 1e-6), differences, precision) < length
    assert length_of(point, -1e25 * direction, 1.0, differences, precision) == 0.0  # downwards there is none


def test_losses_below_the_rounding_of_the_sum_are_tolerated():
    differences = answer_differences(problem(n=400))[0]
    point = Objective(differences, np.eye(5).dot, None, None).at(np.zeros(5))
    rounding = EPSILON * (1.0 + abs(point.log_likelihood))
    nothing = np.zeros(5)
    assert length_of(point, nothing, np.sqrt(15 * rounding / 1e-4), differences, np.eye(5)) == 1.0
    assert length_of(point, nothing, np.sqrt(17 * rounding / 1e-4), differences, np.eye(5)) == 0.5


def test_the_objective_and_its_parts():
    differences, mean = answer_differences(problem())[0], np.arange(5.0)
    offsets = np.random.default_rng(1).normal(size=differences.shape[:2])
    precision, theta = np.diag([1.0, 2, 3, 4, 5]), np.full(5, 0.3)
    point = Objective(differences, precision.dot, offsets, mean).at(theta)
    values = differences @ theta + offsets
    np.testing.assert_allclose(point.values, values)
    expected = -np.log1p(np.exp(values).sum(axis=1)).sum()
    assert point.log_likelihood == pytest.approx(expected)
    penalty = 0.5 * (theta - mean) @ precision @ (theta - mean)
    assert point.log_posterior == pytest.approx(expected - penalty)
    assert log_posterior(differences, precision, theta, offsets=offsets, prior_mean=mean) == point.log_posterior
    np.testing.assert_allclose(point.slope, precision @ (theta - mean))
    np.testing.assert_allclose(point.gradient, point.score - point.slope)
    numeric = scipy.optimize.approx_fprime(
        theta, lambda at: log_posterior(differences, precision, at, offsets=offsets, prior_mean=mean), 1e-6
    )
    np.testing.assert_allclose(point.gradient, numeric, atol=1e-4)
    np.testing.assert_allclose(point.probabilities.sum(axis=1), 1.0)
    np.testing.assert_allclose(point.probabilities[:, 1:] / point.probabilities[:, :1], np.exp(values))


# --- reasons ---------------------------------------------------------------------------------------------------------


def test_a_singular_precision_is_a_reason():
    end = maximise(np.zeros((3, 2, 2)), np.zeros((2, 2)), np.ones(2), tolerance=1e-8, max_iterations=9)
    assert end.reason == "the posterior precision is singular in floating point"
    assert end.iterations == 0 and end.theta.tolist() == [1.0, 1.0]
    np.testing.assert_array_equal(end.precision, np.zeros((2, 2)))


def test_steps_without_gain_are_a_reason(monkeypatch):
    differences = answer_differences(problem())[0]
    monkeypatch.setattr(newton, "step_length", lambda *args: 0.0)
    end = maximise(differences, np.eye(5), np.zeros(5), tolerance=1e-8, max_iterations=9)
    decrement = np.sqrt(end.score @ np.linalg.solve(end.precision, end.score))
    assert end.reason == f"no step raises the log posterior (Newton decrement {decrement:.2e})"
    # with a factor that was given, one is made at the point before this is believed
    factor = cho_factor(end.precision)
    assert (
        maximise(differences, np.eye(5), np.zeros(5), tolerance=1e-8, max_iterations=9, factor=factor).reason
        == end.reason
    )


def test_the_other_reasons():
    options, choices = problem()
    found = estimate((options, choices), tolerance=1e-30)
    gradient = found.gradient_norm
    assert found.converged or (
        found.reason.startswith("rounding stops progress at a Newton decrement of ")
        and found.reason.endswith("; use a larger tolerance")
    )
    assert gradient < 1e-9
    few = estimate((options, choices), regularization=1e-3, max_iterations=1)
    decrement = few.reason.split()[4]
    assert few.reason == f"the Newton decrement is {decrement} after 1 iterations; raise max_iterations"
    assert 1e-8 < float(decrement) < 10
    enough = estimate((options, choices))
    assert enough.reason == "" and enough.converged
    split = estimate((np.array([[[0.0], [1.0]]] * 3), [1, 1, 1]), regularization=0.0)
    assert split.reason == (
        "the answers are separable: a direction ranks every chosen option at least as high as the others, so the "
        "likelihood has no maximum; use regularization > 0 or ask more questions"
    )


@pytest.mark.parametrize(
    ("decrement", "stalled", "iteration", "expected"),
    [
        (1e-8, 9, 5, ""),
        (2e-8, 2, 4, None),
        (2e-8, 3, 4, "rounding stops progress at a Newton decrement of 2.00e-08; use a larger tolerance"),
        (2e-8, 0, 5, "the Newton decrement is 2.00e-08 after 5 iterations; raise max_iterations"),
    ],
)
def test_when_the_iteration_stops(decrement, stalled, iteration, expected):
    assert newton._reason_to_stop(decrement, 1e-8, stalled, iteration, 5) == expected


def test_stopping_where_rounding_remains():
    """At a maximum to rounding, a tolerance that can't be met ends the iteration after a few factors, not all 1,000."""
    differences = answer_differences(problem(n=200))[0]
    start = maximise(differences, np.eye(5), np.zeros(5), tolerance=1e-8, max_iterations=50).theta
    end = maximise(differences, np.eye(5), start, tolerance=1e-300, max_iterations=1000)
    assert end.iterations <= 10 and ("larger tolerance" in end.reason or "no step" in end.reason or end.reason == "")


def test_steps_taken_before_count_as_iterations():
    differences = answer_differences(problem())[0]
    plain = maximise(differences, np.eye(5), np.zeros(5), tolerance=1e-8, max_iterations=50)
    later = maximise(differences, np.eye(5), np.zeros(5), tolerance=1e-8, max_iterations=50, taken=7)
    assert plain.reason == later.reason == "" and later.iterations == plain.iterations + 7
    none = maximise(differences, np.eye(5), np.zeros(5), tolerance=1e-8, max_iterations=7, taken=7)
    assert none.iterations == 7 and "after 7 iterations" in none.reason and not none.theta.any()


def test_a_factor_that_is_given_or_old_saves_factors_and_changes_no_maximum(monkeypatch):
    differences = answer_differences(problem(n=300, d=8))[0]
    made = []
    monkeypatch.setattr(newton, "cho_factor", lambda *args, **options: made.append(1) or cho_factor(*args, **options))
    plain = maximise(differences, np.eye(8), np.zeros(8), tolerance=1e-8, max_iterations=50)
    assert len(made) <= plain.iterations  # a factor at each point would be one more
    made.clear()
    near = plain.theta + 1e-3
    factor = cho_factor(plain.precision, lower=True)
    warm = maximise(differences, np.eye(8), near, tolerance=1e-8, max_iterations=50, factor=factor)
    assert warm.reason == "" and len(made) == 1  # the last point's own
    np.testing.assert_allclose(warm.theta, plain.theta, atol=1e-9)
    wrong = cho_factor(1e-3 * np.eye(8), lower=True)
    far = maximise(differences, np.eye(8), np.zeros(8), tolerance=1e-8, max_iterations=50, factor=wrong)
    assert far.reason == ""
    np.testing.assert_allclose(far.theta, plain.theta, atol=1e-9)
    for end in (plain, warm, far):  # convergence is never judged by an old factor
        np.testing.assert_allclose(end.precision, fisher_information(problem(n=300, d=8)[0], end.theta) + np.eye(8))


def test_without_answers_a_start_leads_to_the_mean_of_the_prior():
    prior = GaussianPrior(np.diag([1.0, 4.0]), np.array([1.0, -2.0]))
    for end in (
        maximise(
            np.zeros((0, 2, 2)), prior.precision, np.ones(2), tolerance=1e-8, max_iterations=9, prior_mean=prior.mean
        ),
        climb(np.zeros((0, 2, 2)), prior, np.ones(2), tolerance=1e-8, max_iterations=9),
    ):
        np.testing.assert_allclose(end.theta, prior.mean, atol=1e-9)
        assert end.reason == "" and 1 <= end.iterations <= 2


# --- conjugate gradients ----------------------------------------------------------------------------------------------


def test_reasons_of_the_climb(monkeypatch):
    differences, prior = answer_differences(problem())[0], GaussianPrior.isotropic(5, 1e-3)
    short = climb(differences, prior, np.zeros(5), tolerance=1e-8, max_iterations=1)
    assert short.reason == "not converged" and short.iterations == 1 and short.theta.any()
    end = climb(differences, prior, np.zeros(5), tolerance=1e-8, max_iterations=50)
    assert end.reason == "" and end.iterations <= 8
    monkeypatch.setattr(GaussianPrior, "solver", lambda self: None)
    none = climb(differences, prior, np.ones(5), tolerance=1e-8, max_iterations=50)
    assert none.reason == "the prior's precision is singular in floating point"
    assert none.iterations == 0 and none.theta.tolist() == [1.0] * 5


def test_a_tolerance_that_can_not_be_met_ends_the_climb():
    differences, prior = answer_differences(problem(n=200))[0], GaussianPrior.isotropic(5, 1.0)
    end = climb(differences, prior, np.zeros(5), tolerance=1e-300, max_iterations=1000)
    best = climb(differences, prior, np.zeros(5), tolerance=1e-8, max_iterations=1000)
    assert end.reason in ("", "not converged") and end.iterations <= best.iterations + 8
    np.testing.assert_allclose(end.theta, best.theta, atol=1e-8)


def test_steps_are_as_accurate_as_the_gradient_is_small(monkeypatch):
    """The share that a step may leave falls from 0.1 with the bound sqrt(g' P^-1 g), down to what the end needs."""
    seen, step = [], conjugate._Curvature.newton_step

    def record(self, point, forcing):
        seen.append((np.linalg.norm(point.gradient) / np.sqrt(0.01), forcing))
        return step(self, point, forcing)

    monkeypatch.setattr(conjugate._Curvature, "newton_step", record)
    differences, prior = answer_differences(problem(n=100, d=20))[0], GaussianPrior.isotropic(20, 0.01)
    end = climb(differences, prior, np.zeros(20), tolerance=1e-6, max_iterations=50)
    assert end.reason == "" and len(seen) == end.iterations >= 3
    first = seen[0][0]
    for bound, forcing in seen:
        assert forcing == pytest.approx(0.1 * max(min(1.0, bound / first), 1e-6 / bound))
    assert seen[0][1] == pytest.approx(0.1) and seen[-1][1] < 0.02


@pytest.mark.parametrize("forcing", [0.5, 1e-3])
@pytest.mark.parametrize("factored", [False, True])
def test_a_step_solves_the_newton_equations_as_well_as_asked(forcing, factored):
    options, choices = problem(n=100, d=30)
    differences, prior = answer_differences((options, choices))[0], GaussianPrior.isotropic(30, 0.5)
    point = Objective(differences, prior.times, None, None).at(np.full(30, 0.1))
    hessian = fisher_information(options, point.theta) + prior.precision
    curvature = conjugate._Curvature(differences, prior, prior.solver())
    curvature._affordable = np.inf
    if factored:
        assert curvature._factor(point)
        vector = curvature._solve(point.gradient)
        assert vector.dtype == np.float64
        np.testing.assert_allclose(vector, np.linalg.solve(hessian, point.gradient), rtol=1e-3, atol=1e-4)
    metric = np.linalg.inv(hessian) if factored else np.linalg.inv(prior.precision)
    step, changes, prior_step = curvature.newton_step(point, forcing)
    residual = point.gradient - hessian @ step
    left = np.sqrt(residual @ metric @ residual) / np.sqrt(point.gradient @ metric @ point.gradient)
    assert left <= 1.001 * forcing
    if not factored and forcing == 0.5:
        assert left > 1e-3  # no more exactly than a step is worth
    np.testing.assert_allclose(changes, differences @ step, atol=1e-4)
    np.testing.assert_allclose(prior_step, prior.precision @ step, rtol=1e-9)
    assert changes.dtype == np.float64 and changes.shape == differences.shape[:2]


def test_a_hessian_without_a_factor_in_float32_gives_no_step():
    differences = np.array([[[1e3, 1e3]]])
    prior = GaussianPrior.isotropic(2, 1e-9)
    point = Objective(differences, prior.times, None, None).at(np.zeros(2))
    curvature = conjugate._Curvature(differences, prior, prior.solver())
    assert curvature.newton_step(point, 0.1) is not None
    curvature._products = curvature._affordable  # from here on a factor is cheaper than products
    assert curvature.newton_step(point, 0.1) is None
    fine = conjugate._Curvature(differences, GaussianPrior.isotropic(2, 1.0), prior.solver())
    fine._products = fine._affordable
    assert fine.newton_step(point, 0.1) is not None and fine._products <= 2  # counted anew


@pytest.mark.parametrize(("count", "dimension"), [(3000, 400), (40, 30)])
def test_a_factor_is_taken_once_products_cost_twice_as_much(count, dimension):
    """Operations of a Hessian and its factor, 2 N d^2 + d^3 / 3, over those of a product, 4 N d, within a factor of 4
    where sizes decide; where they don't, calls do: a few products."""
    rows = np.broadcast_to(np.zeros(1), (count, 1, dimension))
    prior = GaussianPrior.isotropic(dimension, 1.0)
    affordable = conjugate._Curvature(rows, prior, prior.solver())._affordable
    operations = 2 * (2 * count * dimension**2 + dimension**3 / 3) / (4 * count * dimension)
    if count > 1000:  # a product reads memory, a Hessian is in the cache: ten times as many operations a second
        assert operations / 20 < affordable < operations / 4
    else:
        assert 4 < affordable < 8


# --- starts -----------------------------------------------------------------------------------------------------------


def test_a_start_worse_than_the_mean_of_the_prior_is_ignored_and_none_is_changed():
    options, choices = problem()
    far, best = np.full(5, 50.0), estimate((options, choices))
    plain = estimate((options, choices), max_iterations=2)
    np.testing.assert_array_equal(estimate((options, choices), max_iterations=2, start=far).theta, plain.theta)
    start = best.theta.copy()
    again = estimate((options, choices), start=start)
    assert again.iterations == 0 and not np.shares_memory(again.theta, start)
    prior = GaussianPrior(np.eye(5), np.arange(5.0))
    empty = estimate((options[:0], choices[:0]), prior=prior)
    assert empty.iterations == 0 and not np.shares_memory(empty.theta, prior.mean) and empty.theta.flags.writeable


def test_a_start_is_compared_with_the_mean_by_the_whole_objective():
    """Offsets and the prior's mean belong to it: between two points the better one is where the steps begin."""
    rng = np.random.default_rng(4)
    options = rng.normal(size=(30, 3, 2))
    terms = WithTies(3.0).terms(options, WithTies(3.0).sample(options, [3.0, 0.0], rng.random(30)))
    prior = GaussianPrior(0.3 * np.eye(2), np.array([-2.0, 1.0]))
    differences, offsets = answer_differences(terms)
    best = estimate(terms, prior=prior).theta
    for start in (best + 0.1, 2 * prior.mean - best):
        here, there = (
            terms.log_likelihood(point) - 0.15 * (point - prior.mean) @ (point - prior.mean)
            for point in (start, prior.mean)
        )
        found = estimate(terms, prior=prior, start=start, max_iterations=1)
        begun = start if here > there else prior.mean
        expected = maximise(
            differences, prior.precision, begun.copy(), tolerance=1e-8, max_iterations=1, offsets=offsets,
            prior_mean=prior.mean,
        )  # fmt: skip
        np.testing.assert_allclose(found.theta, expected.theta, atol=1e-9)


def test_half_of_the_steps_are_left_to_dense_newton(monkeypatch):
    asked = []
    monkeypatch.setattr(map_estimate, "climb", lambda *args, **given: asked.append(given) or climb(*args, **given))
    estimate(problem(), tolerance=1e-7)
    estimate(problem(), max_iterations=7)
    assert [(one["tolerance"], one["max_iterations"]) for one in asked] == [(1e-7, 50), (1e-8, 3)]


# --- existence of a maximum -------------------------------------------------------------------------------------------


def test_the_smallest_singular_value():
    rng = np.random.default_rng(5)
    differences, directions = rng.normal(size=(7, 2, 4)), np.linalg.qr(rng.normal(size=(4, 3)))[0]
    values = np.linalg.svd(differences.reshape(-1, 4) @ directions, compute_uv=False)
    assert smallest_singular_value(differences, directions) == pytest.approx(values[-1])
    nearly = np.array([[[1.0, 0.0]], [[0.0, 1e-14]]])
    assert smallest_singular_value(nearly, np.eye(2)) == pytest.approx(1e-14)
    with pytest.raises(ValueError) as caught:
        smallest_singular_value(np.array([[[1.0, 0.0]], [[0.0, 1e-17]]]), np.eye(2))
    assert str(caught.value).startswith("Expected options that differ in all 2 directions without a prior, got")
    with pytest.raises(ValueError, match="differences of rank 0"):
        smallest_singular_value(np.zeros((0, 1, 2)), np.eye(2))
    with pytest.raises(ValueError, match="differences of rank 0"):
        smallest_singular_value(np.zeros((3, 1, 2)), np.eye(2))


def mixed(size):
    """Two answers that contradict each other, and the last point of a maximisation that was cut short."""
    differences = size * np.array([[1.0], [-0.5]])
    return differences, np.array([0.9, 0.1]), np.eye(1), np.array([-0.5 * size]), float(np.linalg.norm(differences))


@pytest.mark.parametrize("size", [1e-9, 1.0, 1e9])
def test_the_linear_program_does_not_depend_on_the_units(size):
    assert not is_separable(*mixed(size))
    differences, *rest = mixed(size)
    assert is_separable(np.abs(differences), *rest) and is_separable(-np.abs(differences), *rest)
    one = size * np.array([[1.0, 0.0], [-1.0, 0.0], [0.3, 1.0]])  # only the last answer speaks of the second feature
    assert is_separable(one, np.full(3, 0.01), np.eye(2), np.full(2, size), size)


def test_a_certificate_makes_the_linear_program_unnecessary(monkeypatch):
    programs, solve = [], scipy.optimize.linprog
    monkeypatch.setattr(scipy.optimize, "linprog", lambda *args, **given: programs.append(1) or solve(*args, **given))
    assert estimate(problem(n=200), regularization=0.0).converged and not programs
    assert not estimate((np.array([[[0.0], [1.0]]] * 3), [1, 1, 1]), regularization=0.0).converged and programs
    monkeypatch.setattr(
        scipy.optimize, "linprog", lambda *a, **b: scipy.optimize.OptimizeResult(status=1, message="limit", fun=0.0)
    )
    with pytest.raises(RuntimeError, match="The linear program for separability was not solved: limit"):
        is_separable(*mixed(1.0))


def test_absent_alternatives_are_no_rejected_ones():
    """A ranking's last stage has two alternatives: a padded third one would make the smallest probability 0."""
    rng = np.random.default_rng(6)
    options = 0.5 * rng.normal(size=(60, 3, 2))
    terms = Ranking().terms(options, Ranking().sample(options, [1.0, -1.0], rng.random(60)))
    differences, offsets = answer_differences(terms)
    absent = np.isneginf(offsets)
    assert absent.any() and not absent.all()
    probabilities = rng.random((len(differences), 3))
    rows, chances = map_estimate._rejected(differences, offsets, probabilities)
    assert len(rows) == len(chances) == (~absent).sum()
    np.testing.assert_array_equal(rows, differences[~absent])
    np.testing.assert_array_equal(chances, probabilities[:, 1:][~absent])
    found = estimate(terms, regularization=0.0)
    assert found.converged
    plain = Terms(options, np.zeros((60, 3)), np.zeros(60, dtype=int))
    rows, chances = map_estimate._rejected(plain.differences()[0], None, probabilities[:60])
    assert rows.shape == (120, 2) and chances.tolist() == probabilities[:60, 1:].ravel().tolist()
