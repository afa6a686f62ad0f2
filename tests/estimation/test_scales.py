"""The search for the scale of a prior, and the estimates at all scales in whitened coordinates."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize_scalar

from edpbrl_gym.estimation import GaussianPrior, Posterior, estimate, fit_posterior, fit_prior, log_evidence
from edpbrl_gym.estimation.data import answer_differences
from edpbrl_gym.estimation.scale_search import _away_from_ends, _vertex, climb
from edpbrl_gym.estimation.whitened import WhitenedAnswers
from edpbrl_gym.likelihood import WithTies


def answers(seed=0, n=40, k=3, d=4, size=1.0):
    rng = np.random.default_rng(seed)
    options, theta = rng.normal(size=(n, k, d)), size * rng.normal(size=d)
    return options, (options @ theta + rng.gumbel(size=(n, k))).argmax(axis=1)


def climbed(objective, start=0.0, limits=(-100.0, 100.0), **options):
    """The peak, and the arguments in the order in which they were tried."""
    tried = []
    given = dict(step=1.0, precision=1e-3, max_evaluations=40) | options
    return climb(lambda x: tried.append(x) or objective(x), start, limits, **given), tried


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_steps_double_up_to_a_thousandfold_and_end_at_a_limit(sign):
    peak, tried = climbed(lambda x: sign * x, limits=(-50.0, 50.0))
    steps = np.minimum(2.0 ** np.arange(20) if sign > 0 else 2.0 ** np.arange(1, 21), np.log(1e3)).cumsum()
    expected = steps[steps < 50.0]
    found = np.array(tried[1:] if sign > 0 else tried[2:])
    np.testing.assert_allclose(sign * found[:-1], expected)
    assert tried[0] == 0.0 and tried[1] == 1.0 and found[-1] == sign * 50.0
    assert peak == (sign * 50.0, 0.0)


def test_a_start_outside_the_limits_is_moved_to_them():
    for start, first in ((9.0, 2.0), (-9.0, -3.0), (1.0, 1.0)):
        peak, tried = climbed(lambda x: -((x - 0.5) ** 2), start, (-3.0, 2.0))
        assert tried[0] == first and peak.at == pytest.approx(0.5, abs=1e-6) and min(tried) >= -3.0 <= max(tried) <= 2.0
    assert climbed(lambda x: x, 2.0, (-3.0, 2.0))[0] == (2.0, 0.0)
    assert climbed(lambda x: -x, -3.0, (-3.0, 2.0))[0] == (-3.0, 0.0)
    only, tried = climbed(lambda x: x, 0.0, (1.0, 1.0))
    assert only == (1.0, 0.0) and tried == [1.0]


def test_a_parabola_is_found_at_once_with_its_curvature():
    peak, tried = climbed(lambda x: 7.0 - 3.0 * (x - 0.4) ** 2)
    assert tried[:3] == [0.0, 1.0, -2.0] and len(tried) <= 6
    assert peak.at == pytest.approx(0.4) and peak.curvature == pytest.approx(6.0)


def test_limits_of_evaluations_are_kept_and_give_the_best_so_far():
    for most in range(1, 12):
        peak, tried = climbed(lambda x: -np.cosh(x - 20.3), precision=1e-9, max_evaluations=most)
        assert len(tried) == len(set(tried)) == most
        if peak.curvature == 0.0:
            assert peak.at == max(tried)
    assert climbed(lambda x: -((x - 20.0) ** 2), max_evaluations=2)[0] == (1.0, 0.0)


def test_a_wide_bracket_is_halved_until_a_parabola_can_be_trusted():
    """A parabola is trusted up to a width of 1.6 at a precision of 0.02, and of the cube root for others."""
    for precision in (0.02, 0.02 / 8, 0.16):
        for at in (0.0, 0.3, 5.1):
            peak, tried = climbed(lambda x, a=at: -((x - a) ** 2), precision=precision, step=4.0)
            lower, upper = max(x for x in tried if x < peak.at + 1e-9), min(x for x in tried if x > peak.at - 1e-9)
            values = sorted(tried, key=lambda x, a=at: (x - a) ** 2)
            best = values[0]
            left, right = max(x for x in tried if x < best), min(x for x in tried if x > best)
            assert max(best - left, right - best) <= 1.6 * np.cbrt(precision / 0.02) + 1e-12
            assert lower <= peak.at + 1e-9 and upper >= peak.at - 1e-9
    loose, tight = (len(climbed(lambda x: -np.cosh(x - 2.2), precision=p)[1]) for p in (0.5, 1e-5))
    assert loose < tight


def test_a_flat_function_ends_the_search():
    peak, tried = climbed(lambda x: 0.0, limits=(-5.0, 5.0))
    assert -5.0 <= peak.at <= 5.0 and peak.curvature == 0.0 and len(tried) < 12


@pytest.mark.parametrize("seed", range(6))
def test_the_vertex_of_three_points(seed):
    rng = np.random.default_rng(seed)
    points = np.sort(rng.normal(size=3))
    second, first, constant = -rng.uniform(0.1, 5), rng.normal(), rng.normal()
    values = np.polyval([second, first, constant], points)
    at, promise, bend = _vertex(tuple(points), tuple(values))
    assert at == pytest.approx(-first / (2 * second)) and bend == pytest.approx(-2 * second)
    assert promise == pytest.approx(np.polyval([second, first, constant], at) - values[1], abs=1e-9)
    assert _vertex((0.0, 1.0, 2.0), (1.0, 1.0, 1.0)) == (1.0, 0.0, 0.0)


@pytest.mark.parametrize(
    ("vertex", "expected"), [(1.05, 1.2), (2.0, 2.0), (2.95, 2.8), (1.0, 1.2), (0.99, 0.9), (0.5, 0.5), (0.01, 0.1)]
)
def test_a_vertex_keeps_a_tenth_of_its_side_from_known_points(vertex, expected):
    assert _away_from_ends(vertex, 0.0, 1.0, 3.0) == pytest.approx(expected)


# --- fit_prior --------------------------------------------------------------------------------------------------------


def test_scales_that_are_tried_and_their_evidence():
    data, base = answers(), GaussianPrior.isotropic(4, 1.0)
    fit = fit_prior(data, base=base, typical_scale=0.5)
    assert fit.grid.shape[1] == 2 and (np.diff(fit.grid[:, 0]) > 0).all()
    for scale, value in fit.grid:
        prior = base.scaled(scale)
        assert value == pytest.approx(log_evidence(estimate(data, prior=prior), prior), abs=1e-3)
    assert np.abs(fit.grid[:, 0] - 0.5).min() < 1e-12 and np.abs(fit.grid[:, 0] - 1.5).min() < 1e-12  # threefold
    warm = fit_prior(data, base=base, start=fit)
    for first in (fit.scale, 1.6 * fit.scale):
        assert np.abs(warm.grid[:, 0] / first - 1).min() < 1e-12
    assert len(warm.grid) <= len(fit.grid)


def test_bounds_of_the_scale_where_nothing_is_said():
    """A base far from the person: the default bounds, 1e-4 and 1e6, end the search."""
    data = answers(n=60, d=1, k=2, size=2.0)
    for precision, bound in ((1e9, 1e6), (1e-9, 1e-4)):
        base = GaussianPrior.isotropic(1, precision)
        fit = fit_prior(data, base=base, log_spread=np.inf)
        assert fit.scale == pytest.approx(bound, rel=1e-12) and fit.at_bound
        found = fit_posterior(data, base=base, log_spread=np.inf, start=fit, draws=64)
        assert found.scale == pytest.approx(bound, rel=1e-12) and found.scale_deviation == 0.0
    inside = fit_prior(data, base=GaussianPrior.isotropic(1, 1.0))
    assert not inside.at_bound


@pytest.mark.parametrize(("typical", "spread"), [(0.01, 0.1), (20.0, 0.3)])
def test_the_prior_on_the_scale_is_log_normal(typical, spread):
    data, base = answers(1), GaussianPrior.isotropic(4, 1.0)

    def loss(log_scale):
        prior = base.scaled(np.exp(log_scale))
        penalty = 0.5 * ((log_scale - np.log(typical)) / spread) ** 2
        return penalty - log_evidence(estimate(data, prior=prior), prior)

    best = minimize_scalar(loss, bounds=np.log(typical) + np.array([-3.0, 3.0]), method="bounded").x
    fit = fit_prior(data, base=base, typical_scale=typical, log_spread=spread, precision=1e-4)
    assert np.log(fit.scale) == pytest.approx(best, abs=0.02)


@pytest.mark.parametrize("bounds", [(1.0,), (1.0, 2.0, 3.0), (2.0, 1.0)])
def test_bounds_that_are_no_interval(bounds):
    with pytest.raises(ValueError) as caught:
        fit_prior(answers(), base=GaussianPrior.isotropic(4, 1.0), bounds=bounds)
    assert str(bounds) in str(caught.value) and "(smallest, largest)" in str(caught.value)


# --- whitened coordinates ---------------------------------------------------------------------------------------------


def some_base(d, mean=True, seed=3):
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(d, d))
    return GaussianPrior.from_covariance(root @ root.T / d + 0.2 * np.eye(d), rng.normal(size=d) if mean else None)


@pytest.mark.parametrize(("n", "d"), [(40, 4), (2, 4), (2, 5), (0, 3)])
@pytest.mark.parametrize("mean", [False, True])
@pytest.mark.parametrize("ties", [False, True])
def test_the_estimate_at_a_scale_is_that_under_the_scaled_prior(n, d, mean, ties):
    options, choices = answers(2, n=n, d=d)
    model = WithTies(1.5)
    rng = np.random.default_rng(0)
    terms = (
        model.terms(options, model.sample(options, np.ones(d), rng.random(n)))
        if ties and n
        else answer_differences((options, choices))
    )
    differences, offsets = terms if isinstance(terms, tuple) else answer_differences(terms)
    base = some_base(d, mean)
    whitened = WhitenedAnswers(differences, offsets, base)
    rows = differences.shape[0] * differences.shape[1]
    assert whitened.rank == (max(rows, 1) if rows < d else d)
    for scale in (1.0, 5.0, 0.3):
        found, prior, evidence = whitened.estimate(scale)
        data = (options, choices) if isinstance(terms, tuple) else terms
        expected = estimate(data, prior=base.scaled(scale))
        np.testing.assert_allclose(prior.precision, base.precision / scale)
        np.testing.assert_allclose(prior.mean, base.mean)
        np.testing.assert_allclose(found.theta, expected.theta, atol=1e-7)
        np.testing.assert_allclose(found.precision, expected.precision, rtol=1e-6, atol=1e-8)
        assert found.log_likelihood == pytest.approx(expected.log_likelihood, abs=1e-7)
        assert found.log_posterior == pytest.approx(expected.log_posterior, abs=1e-7)
        assert evidence == pytest.approx(log_evidence(expected, prior), abs=1e-6)
        assert whitened.log_evidence(scale) == pytest.approx(evidence, abs=1e-4)
        score = -sum(
            (np.exp(v) / (1 + np.exp(v).sum())) @ rows_of
            for rows_of, v in zip(
                differences,
                differences @ found.theta + (0 if offsets is None else offsets),
                strict=True,
            )
        )
        gradient = score - prior.precision @ (found.theta - base.mean)
        assert found.gradient_norm == pytest.approx(np.linalg.norm(gradient), abs=1e-9)
        assert found.converged and found.reason == "" and found.fitted.prior is prior
        assert found.fitted.differences is differences and found.fitted.offsets is offsets


@pytest.mark.parametrize(("n", "d"), [(40, 4), (2, 7)])
def test_each_estimate_starts_where_the_last_one_says(n, d):
    """For answers that say little the log-likelihood is nearly quadratic, and the start at a new scale nearly exact."""
    options, choices = answers(4, n=n, d=d)
    differences, _ = answer_differences((0.01 * options, choices))
    whitened = WhitenedAnswers(differences, None, some_base(d))
    first = whitened._maximise(1.0, 1e-8)
    start, factor = whitened._start(3.0)
    then = whitened._maximise(3.0, 1e-8)
    assert np.linalg.norm(start - then.theta) < 0.02 * np.linalg.norm(first.theta - then.theta)
    assert np.linalg.norm(first.theta - then.theta) > 1e-3
    np.testing.assert_allclose(np.tril(factor[0]) @ np.tril(factor[0]).T, then.precision, rtol=0.01, atol=1e-3)
    again = whitened._maximise(3.0, 1e-8)
    assert again.iterations == 0 and whitened._last == (3.0, again)


@pytest.mark.parametrize(("n", "d"), [(40, 4), (2, 7)])
def test_a_start_is_given_in_the_coordinates_of_theta(n, d):
    differences, _ = answer_differences(answers(5, n=n, d=d))
    base = some_base(d)
    best = WhitenedAnswers(differences, None, base).estimate(1.0)[0]
    warm = WhitenedAnswers(differences, None, base)
    warm.start_at(best.theta)
    assert warm.estimate(1.0)[0].iterations == 0 < best.iterations


@pytest.mark.parametrize(("n", "d"), [(30, 3), (2, 7)])
def test_the_gaussian_at_a_scale_and_what_is_kept_of_it(n, d, monkeypatch):
    from edpbrl_gym.estimation import whitened as module

    fits, fit = [], module.fit_gaussian
    monkeypatch.setattr(module, "fit_gaussian", lambda *args, **given: fits.append(given) or fit(*args, **given))
    data, base = answers(6, n=n, d=d), some_base(d)
    answered = WhitenedAnswers(answer_differences(data)[0], None, base)
    rough = answered.sampled_evidence(2.0, 64)
    mean, precision, _ = answered.gaussian(2.0)
    assert [one["tolerance"] for one in fits] == [1e-3, 1e-5]  # a rough fit is no fine one
    assert answered.sampled_evidence(2.0, 64) == pytest.approx(rough, abs=0.05) and len(fits) == 2  # but the other way
    alone = fit_posterior(data, base=base.scaled(2.0), scale=1.0).posterior
    np.testing.assert_allclose(mean, alone.mean, atol=2e-2)
    np.testing.assert_allclose(precision, alone.precision, rtol=0.05, atol=0.05)
    count = len(fits)
    other, _, _ = answered.gaussian(0.5)  # another scale is another fit
    assert len(fits) == count + 1
    alone = fit_posterior(data, base=base.scaled(0.5), scale=1.0).posterior
    np.testing.assert_allclose(other, alone.mean, atol=2e-2)


# --- the posterior at an uncertain scale ------------------------------------------------------------------------------


def test_the_scale_and_its_deviation_are_those_of_the_sampled_evidence():
    data, base = answers(7, n=60, d=3), GaussianPrior.isotropic(3, 1.0)
    found = fit_posterior(data, base=base, log_spread=1.5)

    def objective(log_scale):
        value = fit_posterior(data, base=base, scale=float(np.exp(log_scale))).log_evidence
        return value - 0.5 * (log_scale / 1.5) ** 2

    grid = np.log(found.scale) + np.linspace(-1.5, 1.5, 7)
    values = np.array([objective(x) for x in grid])
    second, first, _ = np.polyfit(grid - grid[3], values, 2)
    assert values[3] > values.max() - 0.06
    assert found.scale_deviation == pytest.approx((-2 * second) ** -0.5, rel=0.25)
    assert found.log_evidence == pytest.approx(fit_posterior(data, base=base, scale=found.scale).log_evidence, abs=0.01)
    assert isinstance(found.posterior, Posterior) and found.converged and found.iterations >= 0


def test_the_uncertain_scale_widens_along_the_move_of_the_mean():
    """The covariance plus m m', m the change of the mean by one standard deviation of log(scale)."""
    data, base = answers(8, n=25, d=3), GaussianPrior.isotropic(3, 1.0)
    found = fit_posterior(data, base=base)
    fixed = fit_posterior(data, base=base, scale=found.scale)
    further = fit_posterior(data, base=base, scale=found.scale * np.exp(found.scale_deviation))
    move = further.posterior.mean - fixed.posterior.mean
    np.testing.assert_allclose(found.posterior.mean, fixed.posterior.mean, atol=5e-3)
    added = found.posterior.covariance() - fixed.posterior.covariance()
    assert np.linalg.norm(move) > 0.1
    np.testing.assert_allclose(added, np.outer(move, move), atol=0.1 * move @ move)


def test_a_start_changes_where_a_posterior_is_sought_not_what_it_is():
    data, base = answers(9, n=30, d=3), GaussianPrior.isotropic(3, 1.0)
    for given in ({}, {"scale": 2.0}):
        plain = fit_posterior(data, base=base, **given)
        started = fit_posterior(data, base=base, start=fit_prior(data, base=base), **given)
        assert started.scale == pytest.approx(plain.scale, rel=1e-9)
        np.testing.assert_allclose(started.posterior.mean, plain.posterior.mean, atol=5e-3)
    begun = fit_prior(data, base=base, log_spread=0.2)
    plain = fit_posterior(data, base=base, log_spread=0.2)
    started = fit_posterior(data, base=base, log_spread=0.2, start=begun)
    assert (started.scale, started.bound) == (plain.scale, plain.bound)
