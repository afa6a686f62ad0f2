"""Draws of all parts and scales of a fit: against importance sampling, and the same random numbers for all answers."""

from types import SimpleNamespace

import numpy as np
import pytest

from edpbrl_gym.estimation import GaussianPrior, fit_prior, sampling
from edpbrl_gym.estimation.evidence import fit_given
from edpbrl_gym.estimation.sampling import sample_parts
from edpbrl_gym.likelihood import BestOf, Ranking, WithTies

D = 3


def answers(model, n, *, d=D, k=3, mode_only=False, seed=0, scale=1.0):
    rng = np.random.default_rng(seed)
    options, theta = rng.normal(size=(n, k, d)), scale * rng.normal(size=d)
    return model.terms(options, model.sample(options, theta, None if mode_only else rng.random(n)))


def weighted(terms, base, log_scales, log_prior, draws=4000):
    """Mean and covariance of theta, its scale averaged over: importance sampling from the prior at every scale."""
    rng = np.random.default_rng(1)
    root = np.linalg.cholesky(base.covariance).T
    thetas = np.concatenate([np.exp(value / 2) * rng.standard_normal((draws, D)) @ root for value in log_scales])
    differences, offsets = terms.differences()
    values = np.einsum("tkd,nd->ntk", differences, thetas) + offsets
    logs = -np.log1p(np.exp(values).sum(axis=2)).sum(axis=1)
    logs += np.repeat(log_prior(np.asarray(log_scales)), draws)
    weights = np.exp(logs - logs.max())
    weights /= weights.sum()
    mean = weights @ thetas
    return mean, (thetas - mean).T @ ((thetas - mean) * weights[:, None])


@pytest.mark.parametrize(
    ("model", "n", "mode_only"), [(BestOf(), 8, True), (BestOf(), 30, False), (Ranking(), 5, True)]
)
def test_the_scale_is_averaged_over(model, n, mode_only):
    terms = answers(model, n, mode_only=mode_only)
    base = GaussianPrior.isotropic(D, 1.0)
    fit = fit_prior(terms, base=base, typical_scale=1.0, log_spread=1.0)
    mean, covariance = weighted(terms, base, np.linspace(-4, 4, 17), lambda value: -0.5 * value**2, draws=40_000)
    draws = np.concatenate([sample_parts([fit], [1.0], terms, draws=320, seed=seed) for seed in range(12)])
    sizes = np.sqrt(np.diag(covariance))
    np.testing.assert_allclose(draws.mean(axis=0) / sizes, mean / sizes, atol=0.12)
    np.testing.assert_allclose(np.cov(draws.T) / np.outer(sizes, sizes), covariance / np.outer(sizes, sizes), atol=0.2)
    alone = np.concatenate(
        [sample_parts([fit_given(terms, fit.prior)], [1.0], terms, draws=320, seed=seed) for seed in range(6)]
    )
    assert np.trace(np.cov(alone.T)) < 0.9 * np.trace(np.cov(draws.T))  # a known scale leaves less open


def test_a_known_scale_stays():
    terms, base = answers(BestOf(), 10), GaussianPrior.isotropic(D, 0.5)
    mean, covariance = weighted(terms, base, [0.0], lambda value: 0.0 * value, draws=100_000)
    fit = fit_given(terms, base)
    draws = np.concatenate([sample_parts([fit], [1.0], terms, draws=320, seed=seed) for seed in range(12)])
    sizes = np.sqrt(np.diag(covariance))
    np.testing.assert_allclose(draws.mean(axis=0) / sizes, mean / sizes, atol=0.1)
    np.testing.assert_allclose(np.cov(draws.T) / np.outer(sizes, sizes), covariance / np.outer(sizes, sizes), atol=0.12)


def test_fewer_answers_than_features_leave_the_prior_elsewhere():
    terms, base = answers(BestOf(), 2, d=12, k=2), GaussianPrior.isotropic(12, 1.0)
    draws = np.concatenate([sample_parts([fit_given(terms, base)], [1.0], terms, draws=320, seed=s) for s in range(10)])
    span = np.linalg.qr(terms.differences()[0].reshape(-1, 12).T)[0]
    rest = draws - draws @ span @ span.T
    assert np.square(rest).sum(axis=1).mean() == pytest.approx(10, rel=0.05)


def test_parts_get_their_weights():
    terms = answers(BestOf(), 6)
    parts = [fit_given(terms, GaussianPrior.isotropic(D, 1e6)), fit_given(terms, GaussianPrior.isotropic(D, 1e-2))]
    draws = sample_parts(parts, [0.25, 0.75], terms, draws=320, seed=0)
    assert draws.shape == (320, D)
    assert (np.linalg.norm(draws, axis=1) < 0.1).sum() == 80  # the first part keeps theta at 0
    with pytest.raises(ValueError, match="sum 1"):
        sample_parts(parts, [0.5, 0.4], terms, draws=10, seed=0)


def test_similar_answers_give_similar_draws():
    """One more answer that says little moves the draws by much less than another seed does."""
    terms, base = answers(BestOf(), 13, d=12), GaussianPrior.isotropic(12, 0.3)
    rows = np.array(terms.rows)
    rows[12] = rows[12, :1] + 0.05 * (rows[12] - rows[12, :1])
    more = type(terms)(rows, terms.offsets, terms.chosen)
    first, again, second = (
        sample_parts([fit_given(one, base)], [1.0], one, draws=320, seed=0) for one in (more[:12], more[:12], more)
    )
    np.testing.assert_array_equal(first, again)
    other = sample_parts([fit_given(more, base)], [1.0], more, draws=320, seed=1)
    moved, noise = (np.abs(np.median(np.square(second - one).sum(axis=1))) for one in (first, other))
    assert moved < 0.1 * noise


def test_before_the_first_answer_they_are_from_the_prior():
    terms, base = answers(BestOf(), 4)[:0], GaussianPrior.isotropic(D, 4.0)
    draws = sample_parts([fit_given(terms, base)], [1.0], terms, draws=320, seed=0)
    np.testing.assert_allclose(np.cov(draws.T), np.eye(D) / 4, atol=0.06)


def as_other(fit):
    """A part of which the estimate alone is known, as of priors that are no single Gaussian."""
    return SimpleNamespace(estimate=fit.estimate, mean=fit.mean, log_evidence=fit.log_evidence)


def many(part, terms, seeds=63):
    return np.concatenate([sample_parts([part], [1.0], terms, draws=320, seed=seed) for seed in range(seeds)])


def by_importance(terms, base, draws=200_000):
    """Mean and covariance under a known scale: importance sampling from a Gaussian twice as wide as Laplace's."""
    posterior = fit_given(terms, base).posterior
    rng = np.random.default_rng(1)
    wide = type(posterior)(posterior.mean, posterior.precision / 2.0)
    thetas = wide.draws(draws, rng)
    differences, offsets = terms.differences()
    logs = -np.log1p(np.exp(np.einsum("tkd,nd->ntk", differences, thetas) + offsets).sum(axis=2)).sum(axis=1)
    logs -= 0.5 * np.einsum("ni,ij,nj->n", thetas, base.precision, thetas)
    centred = thetas - posterior.mean
    logs += 0.5 * np.einsum("ni,ij,nj->n", centred, wide.precision, centred)
    weights = np.exp(logs - logs.max())
    weights /= weights.sum()
    mean = weights @ thetas
    return mean, (thetas - mean).T @ ((thetas - mean) * weights[:, None])


@pytest.mark.parametrize("kind", [lambda fit: fit, as_other])
@pytest.mark.parametrize(
    ("model", "n", "mode_only"),
    [(BestOf(), 6, True), (BestOf(), 40, False), (Ranking(), 5, True), (WithTies(0.5), 8, False)],
)
def test_mean_and_covariance_are_those_of_the_posterior(model, n, mode_only, kind):
    terms, base = answers(model, n, mode_only=mode_only), GaussianPrior.isotropic(D, 0.5)
    draws = many(kind(fit_given(terms, base)), terms)
    mean, covariance = by_importance(terms, base)
    sizes = np.sqrt(np.diag(covariance))
    np.testing.assert_allclose(draws.mean(axis=0) / sizes, mean / sizes, atol=0.08)
    np.testing.assert_allclose(np.cov(draws.T) / np.outer(sizes, sizes), covariance / np.outer(sizes, sizes), atol=0.1)


def test_answers_without_doubt_are_where_laplace_fails(monkeypatch):
    """The test has something to find: for an argmax user Laplace's mean is far off, the draws' mean is not.

    The chains of a session are short; a sixth of Laplace's error is left, and long ones leave nothing.
    """
    terms, base = answers(BestOf(), 6, mode_only=True), GaussianPrior.isotropic(D, 0.05)
    fit = fit_given(terms, base)
    mean, covariance = by_importance(terms, base)
    sizes = np.sqrt(np.diag(covariance))
    assert np.abs((fit.posterior.mean - mean) / sizes).max() > 0.8
    assert np.abs((many(fit, terms).mean(axis=0) - mean) / sizes).max() < 0.2
    monkeypatch.setattr(sampling, "_STEPS", 60)
    assert np.abs((many(fit, terms).mean(axis=0) - mean) / sizes).max() < 0.08


def test_they_are_seeded_and_as_many_as_asked_for():
    terms = answers(BestOf(), 5)
    fit = fit_given(terms, GaussianPrior.isotropic(D, 0.5))
    first, second = (sample_parts([fit], [1.0], terms, draws=21, seed=7) for _ in range(2))
    assert first.shape == (21, D)
    np.testing.assert_array_equal(first, second)
    with pytest.raises(ValueError, match="Expected weights >= 0"):
        sample_parts([fit], [0.5], terms, draws=1, seed=0)
