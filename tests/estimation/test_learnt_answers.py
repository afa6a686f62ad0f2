"""nu of ties and the offset of an outside option, learnt with the scale of the prior."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import logsumexp
from scipy.stats import norm

from edpbrl_gym.comparisons import Comparisons
from edpbrl_gym.estimation import GaussianPrior, fit_prior, learn_outside, learn_ties
from edpbrl_gym.estimation.learnt_answers import _log_evidence_at_random
from edpbrl_gym.likelihood import BestOf, Response, WithOutside, WithTies

D, K = 4, 3


def answers_of(model, n, seed, strength=2.0):
    rng = np.random.default_rng(seed)
    options, theta = rng.normal(size=(n, K, D)).astype(np.float32), strength * rng.normal(size=D)
    responses = tuple(model.sample(options, theta, rng.random(n)))
    return Comparisons(options, responses, np.arange(n), np.zeros(n, dtype=int)), theta


@pytest.mark.parametrize("nu", [0.3, 3.0])
def test_nu_is_found_where_the_answers_determine_it(nu):
    told, theta = answers_of(WithTies(nu), 600, seed=1)
    found = learn_ties(told, base=GaussianPrior.isotropic(D, 1.0))
    assert isinstance(found.model, WithTies) and abs(np.log(found.model.nu / nu)) < 0.45
    np.testing.assert_allclose(found.fit.estimate.theta, theta, atol=0.9)
    assert found.fit.estimate.converged


@pytest.mark.parametrize("offset", [-1.5, 1.0])
def test_the_offset_is_found_and_improves_the_estimate(offset):
    reference = np.full(D, 0.3)
    told, theta = answers_of(WithOutside(offset, reference), 600, seed=2)
    found = learn_outside(told, base=GaussianPrior.isotropic(D, 1.0), reference=reference)
    assert isinstance(found.model, WithOutside) and abs(found.model.offset - offset) < 0.4
    np.testing.assert_allclose(found.fit.estimate.theta, theta, atol=0.9)


@pytest.mark.parametrize("learn", ["ties", "outside"])
def test_the_climb_finds_the_joint_maximum_of_a_grid(learn):
    """Against the objective on a fine grid, each point with its own best scale."""
    base, reference, spread = GaussianPrior.isotropic(D, 1.0), np.zeros(D), 1.0 if learn == "ties" else 2.0
    model = WithTies(0.8) if learn == "ties" else WithOutside(0.4, reference)
    told, _ = answers_of(model, 30, seed=3)
    if learn == "ties":
        found, at = learn_ties(told, base=base), lambda x: WithTies(float(np.exp(x)))
        best = float(np.log(found.model.nu))
    else:
        found, at = learn_outside(told, base=base, reference=reference), lambda x: WithOutside(x, reference)
        best = found.model.offset

    def objective(x):
        fit = fit_prior(told.terms(at(x)), base=base)
        return fit.log_evidence - 0.5 * (np.log(fit.scale) / 3.0) ** 2 - 0.5 * (x / spread) ** 2

    grid = np.linspace(-3.0, 3.0, 61)
    values = np.array([objective(x) for x in grid])
    assert abs(best - grid[values.argmax()]) < 0.3
    assert objective(best) > values.max() - 0.03
    assert found.grid[:, 1].max() > values.max() - 0.1  # what it says it saw
    # the odds, by summing over the grid, against best-of-K without the ties or skips at an unknown rate
    named = told.decided
    silent = len(told) - len(named)
    plain = fit_prior(named.terms(BestOf()), base=base)
    weights = np.exp(spread * np.random.default_rng(0).standard_normal(400_000))
    rate = np.log(np.mean((weights / (K + weights)) ** silent * (K / (K + weights)) ** len(named)))
    other = plain.log_evidence - 0.5 * (np.log(plain.scale) / 3.0) ** 2 + rate
    total = np.log(np.exp(values - values.max()).sum() * (grid[1] - grid[0])) + values.max()
    expected = total - np.log(spread * np.sqrt(2 * np.pi)) - other
    assert found.log_odds == pytest.approx(expected, abs=0.3)
    same = fit_prior(told.terms(found.model), base=base)
    np.testing.assert_allclose(found.fit.estimate.theta, same.estimate.theta, atol=0.05)


def test_the_odds_tell_skips_that_mean_something_from_those_at_random():
    base, reference = GaussianPrior.isotropic(D, 1.0), np.zeros(D)
    picky, _ = answers_of(WithOutside(1.0, reference), 150, seed=6)
    assert learn_outside(picky, base=base, reference=reference).log_odds > 3.0
    plain, _ = answers_of(BestOf(), 150, seed=6)
    at_random = np.random.default_rng(0).random(150) < 0.2
    hurried = tuple(Response.skip() if skip else r for skip, r in zip(at_random, plain.responses, strict=True))
    assert learn_outside(replace(plain, responses=hurried), base=base, reference=reference).log_odds < -3.0


def test_skips_of_a_person_who_calls_ties_do_not_count():
    told, _ = answers_of(WithTies(1.0), 40, seed=7)
    more = Comparisons.concatenate([told, replace(told, responses=(Response.skip(),) * 40)])
    found, again = (learn_ties(each, base=GaussianPrior.isotropic(D, 1.0)) for each in (told, more))
    assert found.model.nu == pytest.approx(again.model.nu) and found.log_odds == pytest.approx(again.log_odds)


def test_without_answers_or_without_ties_the_prior_decides():
    none = Comparisons.empty(K, D)
    for found in (
        learn_ties(none, base=GaussianPrior.isotropic(D, 1.0), typical_nu=0.5).model.nu,
        np.exp(learn_outside(none, base=GaussianPrior.isotropic(D, 1.0), reference=np.zeros(D)).model.offset) / 2,
    ):
        assert found == pytest.approx(0.5, rel=0.05)
    told, _ = answers_of(BestOf(), 60, seed=4)
    few = learn_ties(told, base=GaussianPrior.isotropic(D, 1.0))
    assert few.model.nu < 0.45  # sixty questions without one tie
    plain = fit_prior(told, base=GaussianPrior.isotropic(D, 1.0)).estimate.theta
    assert few.fit.estimate.theta @ plain > 0.99 * np.linalg.norm(few.fit.estimate.theta) * np.linalg.norm(plain)


def test_the_answers_and_arguments_that_are_refused():
    told, _ = answers_of(BestOf(), 6, seed=5)
    base = GaussianPrior.isotropic(D, 1.0)
    with pytest.raises(TypeError, match="answers as Comparisons, got tuple"):
        learn_ties((told.features, told.choice), base=base)
    with pytest.raises(ValueError, match="typical_nu"):
        learn_ties(told, base=base, typical_nu=0.0)
    with pytest.raises(ValueError, match="spread"):
        learn_outside(told, base=base, reference=np.zeros(D), spread=0.0)
    with pytest.raises(ValueError, match="reference"):
        learn_outside(told, base=base, reference=np.zeros(D + 1))
    ranked = Comparisons(told.features[:1], (Response.ranking([0, 1, 2]),), [0], [0])
    with pytest.raises(ValueError, match="takes only 'best', 'tie' or 'skip'"):
        learn_ties(ranked, base=base)


def test_what_is_not_given_is_as_documented():
    told, _ = answers_of(WithTies(1.0), 60, seed=8)
    base = GaussianPrior.isotropic(D, 1.0)
    given = learn_ties(told, base=base, typical_nu=1.0, log_spread=1.0, typical_scale=1.0)
    np.testing.assert_array_equal(learn_ties(told, base=base).grid, given.grid)
    skipped, _ = answers_of(WithOutside(0.5, np.zeros(D)), 60, seed=9)
    given = learn_outside(skipped, base=base, reference=np.zeros(D), typical_offset=0.0, spread=2.0, typical_scale=1.0)
    np.testing.assert_array_equal(learn_outside(skipped, base=base, reference=[0] * D).grid, given.grid)


@pytest.mark.parametrize(("silent", "total"), [(0, 0), (0, 7), (3, 10), (12, 12)])
def test_the_probability_of_ties_at_a_constant_rate_is_an_integral(silent, total):
    centre, width = 0.4, 1.3

    def density(x):
        share = np.exp(x) / (K + np.exp(x))
        return norm.pdf(x, centre, width) * share**silent * (1 - share) ** (total - silent)

    expected, error = quad(density, centre - 9 * width, centre + 9 * width, limit=200)
    assert error < 1e-8
    found = _log_evidence_at_random(silent, total, K, centre, width)
    assert found == pytest.approx(np.log(expected), abs=1e-6)


@pytest.mark.parametrize("learn", ["ties", "outside"])
def test_what_is_typical_is_what_is_found_without_answers(learn):
    base, none = GaussianPrior.isotropic(D, 1.0), Comparisons.empty(K, D)
    if learn == "ties":
        found = learn_ties(none, base=base, typical_nu=0.2, typical_scale=10.0, log_spread=0.5)
        weight = np.log(found.model.nu / 0.2)
    else:
        found = learn_outside(
            none, base=base, reference=np.zeros(D), typical_offset=-2.0, typical_scale=10.0, spread=0.5
        )
        weight = found.model.offset + 2.0
    assert found.fit.scale == pytest.approx(10.0, rel=1e-3) and weight == pytest.approx(0.0, abs=1e-3)
    assert found.log_odds == pytest.approx(0.0, abs=1e-3)
    assert (np.diff(found.grid[:, 0]) >= 0).all() and found.grid[:, 1].max() == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize("learn", ["ties", "outside"])
def test_the_objective_is_the_evidence_with_both_priors(learn):
    base, reference = GaussianPrior.isotropic(D, 1.0), np.full(D, 0.2)
    model = WithTies(0.8) if learn == "ties" else WithOutside(0.4, reference)
    told, _ = answers_of(model, 40, seed=11)
    if learn == "ties":
        found = learn_ties(told, base=base, typical_nu=2.0, log_spread=0.7, typical_scale=4.0)
        centre, width = np.log(2.0), 0.7
    else:
        found = learn_outside(told, base=base, reference=reference, typical_offset=1.0, spread=0.7, typical_scale=4.0)
        centre, width = 1.0, 0.7
    for weight, value in found.grid:
        at = WithTies(float(np.exp(weight))) if learn == "ties" else WithOutside(weight, reference)
        fit = fit_prior(told.terms(at), base=base, typical_scale=4.0)
        expected = fit.log_evidence - 0.5 * (np.log(fit.scale / 4.0) / 3.0) ** 2
        assert value == pytest.approx(expected - 0.5 * ((weight - centre) / width) ** 2, abs=0.03)
    best = np.log(found.model.nu) if learn == "ties" else found.model.offset
    assert abs(best - found.grid[found.grid[:, 1].argmax(), 0]) < 1.0
    assert np.abs(found.grid[:, 0] - best).min() < 1e-12  # the fit that is returned is one of those
    # Laplace's integral over log w, against best-of-K with ties or skips at an unknown rate
    grid = np.linspace(best - 4 * width, best + 4 * width, 41)

    def objective(weight):
        at = WithTies(float(np.exp(weight))) if learn == "ties" else WithOutside(float(weight), reference)
        fit = fit_prior(told.terms(at), base=base, typical_scale=4.0)
        penalty = 0.5 * (np.log(fit.scale / 4.0) / 3.0) ** 2
        return fit.log_evidence - penalty + norm.logpdf(weight, centre, width)

    whole = logsumexp([objective(one) for one in grid]) + np.log(grid[1] - grid[0])
    named = told.decided
    plain = fit_prior(named.terms(BestOf()), base=base, typical_scale=4.0)
    rest = plain.log_evidence - 0.5 * (np.log(plain.scale / 4.0) / 3.0) ** 2
    rate = _log_evidence_at_random(len(told) - len(named), len(told), K, centre, width)
    assert found.log_odds == pytest.approx(whole - rest - rate, abs=0.15)


def test_a_person_who_only_calls_ties_ends_at_the_limit():
    """All ties, and next to no prior on nu: the largest nu, where the width of the integral is that of the prior."""
    options = np.random.default_rng(12).normal(size=(10, K, D)).astype(np.float32)
    told = Comparisons(options, (Response.tie(),) * 10, np.arange(10), np.zeros(10, dtype=int))
    base = GaussianPrior.isotropic(D, 1.0)
    found = learn_ties(told, base=base, log_spread=1e3)
    assert found.model.nu == pytest.approx(1e4)
    fit = fit_prior(told.terms(WithTies(1e4)), base=base)
    integral = fit.log_evidence - 0.5 * (np.log(fit.scale) / 3.0) ** 2 - 0.5 * (np.log(1e4) / 1e3) ** 2
    at_random = np.log(0.5)  # half of the prior says that everything is a tie, half that nothing is
    assert found.log_odds == pytest.approx(integral - at_random, abs=0.02)
