"""Points of Gaussians and what they integrate: against densities of scipy, known integrals and grids."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import log_softmax, logsumexp, ndtr
from scipy.stats import multivariate_normal

from edpbrl_gym.estimation import GaussianPrior
from edpbrl_gym.estimation.population.answers import Answered, Frame, answered_people
from edpbrl_gym.estimation.population.cloud import Cloud, Proposals
from edpbrl_gym.estimation.population.draws import Source, mixture_draws
from edpbrl_gym.estimation.population.parts import Parts
from edpbrl_gym.estimation.population.points import Gaussians, log_normal, normal_net, shared_points
from edpbrl_gym.estimation.population.posteriors import Posteriors
from edpbrl_gym.estimation.population.spans import Span
from edpbrl_gym.estimation.population.variational_steps import VariationalPeople
from tests.helpers.communities import simulated


def some_covariance(rng, dimension):
    root = rng.normal(size=(dimension, dimension))
    return root @ root.T + 0.5 * np.eye(dimension)


def gaussians(means, covariances):
    roots = np.linalg.cholesky(covariances)
    return Gaussians(means, roots, np.linalg.inv(roots), np.linalg.slogdet(roots)[1])


@pytest.mark.parametrize("shift", [None, [[0.3, 0.9, 0.55], [0.1, 0.2, 0.7]]])
def test_a_net_has_one_point_in_each_stratum_and_its_mirror_image(shift):
    nets = normal_net(3, 6, None if shift is None else np.array(shift))
    assert nets.shape == (64, 3) if shift is None else (2, 64, 3)
    for net in nets.reshape(-1, 64, 3):
        for column in ndtr(net[:32]).T:
            assert sorted((32 * column).astype(int)) == list(range(32))
        np.testing.assert_array_equal(net[32:], -net[:32])
        assert np.cov(net.T, bias=True) == pytest.approx(np.eye(3), abs=0.15)
    if shift is not None:
        assert np.abs(nets[0] - nets[1]).max() > 1.0
    assert normal_net(0, 4, None if shift is None else np.zeros((2, 0))).shape == (*nets.shape[:-2], 16, 0)


def test_densities_are_those_of_scipy():
    rng = np.random.default_rng(0)
    points, mean, covariance = rng.normal(size=(9, 3)), rng.normal(size=3), some_covariance(rng, 3)
    expected = multivariate_normal.logpdf(points, mean, covariance)
    lower = np.linalg.cholesky(covariance)
    assert log_normal(points, mean, np.linalg.inv(lower)) == pytest.approx(expected)
    one = gaussians(np.stack([np.zeros(3), mean]), np.stack([np.eye(3), covariance]))
    assert len(one) == 2
    assert one.log_densities(points)[1] - 1.5 * np.log(2 * np.pi) == pytest.approx(expected)
    np.testing.assert_allclose(one.points(points, 1), mean + points @ lower.T)


@pytest.mark.parametrize(("dimension", "sizes"), [(2, [7, 7, 7]), (2, [8, 0, 6]), (21, [8, 8, 8])])
def test_shared_points_integrate_all_gaussians(dimension, sizes):
    """The integral of each prior and of each proposal is 1, with many dimensions without points of the priors."""
    rng = np.random.default_rng(1)
    means = 0.3 * rng.normal(size=(3, dimension))
    covariances = np.stack([(0.8 + 0.2 * part) * np.eye(dimension) for part in range(3)])
    fits, priors = gaussians(means, covariances), gaussians(np.zeros((3, dimension)), 1.5 * covariances)
    shared = shared_points(fits, priors, np.array(sizes))
    near = [1 << size if size else 0 for size in sizes]
    counts = np.array(near + ([number // 2 for number in near] if dimension == 2 else []))
    assert len(shared.points) == counts.sum()
    assert shared.known == pytest.approx(counts[counts > 0] / counts.sum())
    np.testing.assert_allclose(shared.shares.sum(axis=0), 1.0)
    together = [kind.log_densities(shared.points) for kind in (fits, priors)]
    assert shared.log_priors == pytest.approx(together[1])
    used = np.concatenate(together)[: len(counts)][counts > 0]
    assert shared.log_proposals == pytest.approx(logsumexp(used, axis=0, b=shared.known[:, None]))
    exact = shared.log_means(used - shared.log_proposals)
    assert exact == pytest.approx(np.zeros(len(used)), abs=1e-3)
    if dimension == 2:
        assert shared.log_means(priors.log_densities(shared.points) - shared.log_proposals) == pytest.approx(
            np.zeros(3), abs=0.05
        )
        tilted = used[:1] + shared.points[:, :1].T - shared.log_proposals  # E exp(x) of N(m, v) is exp(m + v / 2)
        assert shared.log_means(tilted) == pytest.approx([means[0, 0] + 0.4], abs=0.05)


def test_answers_are_those_of_the_logit():
    rng = np.random.default_rng(2)
    rows, offsets, points = rng.normal(size=(5, 2, 3)), rng.normal(size=(5, 2)), rng.normal(size=(7, 3))
    offsets[1, 1] = -np.inf  # an absent alternative
    for given in (offsets, None):
        person = Answered(rows, given)
        values = rows @ points.T + (0.0 if given is None else given[..., None])
        logs = log_softmax(np.concatenate([np.zeros((5, 1, 7)), values], axis=1), axis=1)[:, 0].sum(axis=0)
        assert person.log_likelihood(points) == pytest.approx(logs)
        assert not person.empty
        again = answered_people([person.terms()], None)[0]
        assert again.log_likelihood(points) == pytest.approx(logs)
        assert Answered(100 * rows, given).log_likelihood(30 * points) == pytest.approx(
            np.array([Answered(100 * rows, given).log_likelihood(30 * point[None])[0] for point in points])
        )
    nothing = Answered(np.zeros((0, 2, 3)), None)
    assert nothing.empty and Answered(np.zeros((4, 0, 3)), None).empty
    assert nothing.log_likelihood(points).tolist() == [0.0] * 7


def test_the_frame_of_a_base_prior():
    """Answers as functions of u and of theta = m + R u, and Gaussians of both."""
    rng = np.random.default_rng(3)
    base = GaussianPrior.from_covariance(some_covariance(rng, 3), rng.normal(size=3))
    frame, points = Frame.of(base), rng.normal(size=(6, 3))
    for offsets in (rng.normal(size=(4, 2)), None):
        person = Answered(rng.normal(size=(4, 2, 3)), offsets)
        outside = base.mean + points @ frame.root.T
        assert frame.inside(person).log_likelihood(points) == pytest.approx(person.log_likelihood(outside))
    assert frame.root @ frame.root.T == pytest.approx(base.covariance)
    centred = Frame.of(GaussianPrior.isotropic(3, 4.0)).inside(Answered(np.ones((1, 1, 3)), None))
    assert centred.offsets is None and centred.rows == pytest.approx(np.full((1, 1, 3), 0.5))
    mean, covariance = rng.normal(size=3), some_covariance(rng, 3)
    prior = frame.prior(mean, covariance)
    assert prior.mean == pytest.approx(base.mean + frame.root @ mean)
    assert prior.covariance == pytest.approx(frame.root @ covariance @ frame.root.T)


def by_grid(people, parts, size, width):
    """Log-likelihoods, memberships and sums over people by a sum over a grid."""
    dimension = parts.dimension
    axis = np.linspace(-width, width, size)
    grid = np.stack(np.meshgrid(*[axis] * dimension, indexing="ij"), axis=-1).reshape(-1, dimension)
    cell = dimension * np.log(axis[1] - axis[0])
    logs = np.stack([
        np.log(w) + multivariate_normal.logpdf(grid, m, c) + cell
        for w, m, c in zip(parts.weights, parts.means, parts.covariances, strict=True)
    ])  # fmt: skip
    likelihoods, shares, sums = [], [], []
    for person in people:
        joint = logs + person.log_likelihood(grid)
        likelihoods.append(logsumexp(joint))
        weights = np.exp(joint - likelihoods[-1])
        shares.append(weights.sum(axis=1))
        sums.append((weights @ grid, np.einsum("mg,gd,ge->mde", weights, grid, grid)))
    return np.array(likelihoods), np.array(shares), [np.array(one) for one in zip(*sums, strict=True)]


def some_people(dimension, number, seed=4):
    rng = np.random.default_rng(seed)
    people = answered_people(simulated(rng.normal(size=(number, dimension)), 4, 3, seed + 1), None)
    people[0] = Answered(people[0].rows, rng.normal(size=people[0].rows.shape[:2]))
    return people


CASES = [(1, 1, 9, 1e-7), (2, 1, 9, 1e-6), (2, 2, 10, 4e-3), (1, 2, 10, 4e-3), (2, 1, 8, 1e-2)]


@pytest.mark.parametrize(("dimension", "number", "log_points", "error"), CASES)
def test_a_cloud_integrates_as_a_grid(dimension, number, log_points, error, monkeypatch):
    """Product grids for one Gaussian of few features, quasi-random points for types, in several blocks of people."""
    monkeypatch.setattr("edpbrl_gym.estimation.population.cloud._BLOCK_NUMBERS", 1 << 13)
    rng = np.random.default_rng(6)
    people = some_people(dimension, 5)
    covariances = np.stack([some_covariance(rng, dimension) / 2 for _ in range(number)])
    means = np.linspace(-1, 1, number * dimension).reshape(number, dimension)
    parts = Parts(rng.dirichlet(np.full(number, 9.0)), means, covariances, np.ones(number))
    cloud = Cloud(people, Proposals.variational(people, parts), parts, log_points, 0)
    found = cloud.expect(parts)
    likelihoods, shares, (first, second) = by_grid(people, parts, 4001 if dimension == 1 else 241, 12.0)
    assert found.log_likelihoods == pytest.approx(likelihoods, abs=error)
    assert found.memberships == pytest.approx(shares, abs=error)
    assert found.moments.counts == pytest.approx(shares.sum(axis=0), abs=5 * error)
    assert found.moments.first == pytest.approx(first.sum(axis=0), abs=10 * error)
    assert found.moments.second == pytest.approx(second.sum(axis=0), abs=30 * error)
    assert (found.effective > 0.02).all() and (found.effective <= 1.0).all()
    # Gaussians with the moments of the posteriors
    near = cloud.proposals(people, parts)
    exact = first / shares[..., None]
    assert near.means == pytest.approx(exact, abs=20 * error)
    spread = second / shares[..., None, None] - exact[..., :, None] * exact[..., None, :]
    assert near.covariances == pytest.approx(spread, abs=50 * error)
    # another population with the same points
    other = Parts(parts.weights[::-1], parts.means + 0.2, 0.9 * parts.covariances, parts.scales)
    moved = cloud.expect(other).log_likelihoods
    assert moved == pytest.approx(by_grid(people, other, 4001 if dimension == 1 else 241, 12.0)[0], abs=2 * error)


def test_where_too_few_points_count_proposals_are_variational():
    people, parts = some_people(3, 4), Parts.single(3, 1.0)
    variational = Proposals.variational(people, parts)
    few, many = (Cloud(people, variational, parts, size, 0).proposals(people, parts) for size in (2, 10))
    np.testing.assert_array_equal(few.means, variational.means)
    np.testing.assert_array_equal(few.covariances, variational.covariances)
    assert np.abs(many.means - variational.means).max() > 1e-3


def test_variational_proposals_are_those_of_the_bound():
    """Their sums over people are the statistics of the variational step of EM."""
    rng = np.random.default_rng(7)
    people = some_people(3, 6)
    parts = Parts(np.ones(1), rng.normal(size=(1, 3)), some_covariance(rng, 3)[None], np.ones(1))
    found, steps = Proposals.variational(people, parts), VariationalPeople(people).expect(parts).moments
    assert found.means[:, 0].sum(axis=0) == pytest.approx(steps.first[0], abs=0.15)
    second = found.covariances[:, 0].sum(axis=0) + found.means[:, 0].T @ found.means[:, 0]
    assert second == pytest.approx(steps.second[0], abs=0.3)


@pytest.mark.parametrize("count", [0, 2, 5])
def test_a_span_holds_all_that_answers_say(count):
    rng = np.random.default_rng(8)
    rows, mean, covariance = rng.normal(size=(count, 2, 6)), rng.normal(size=6), some_covariance(rng, 6)
    for offsets in (rng.normal(size=(count, 2)), None):
        span = Span.of(Answered(rows, offsets))
        rank = min(2 * count, 6)
        basis = np.eye(6) if span.basis is None else span.basis
        assert basis.shape == (6, rank)
        assert basis.T @ basis == pytest.approx(np.eye(rank)) and span.answered.rows @ basis.T == pytest.approx(rows)
        assert (span.basis is None) == (count == 5)
        local = span.under(mean, covariance)
        assert local.middle == pytest.approx(basis.T @ mean)
        assert local.lower @ local.lower.T == pytest.approx(basis.T @ covariance @ basis)
        np.testing.assert_array_equal(local.lower, np.tril(local.lower))
        assert local.loadings @ local.lower.T == pytest.approx(covariance @ basis)
        assert local.rows @ local.rows.transpose(0, 2, 1) == pytest.approx(rows @ covariance @ rows.transpose(0, 2, 1))
        assert local.offsets == pytest.approx(rows @ mean + (0.0 if offsets is None else offsets))
        wider, expected = local.scaled(4.0), span.under(mean, 4.0 * covariance)
        for name in ("rows", "offsets", "middle", "lower", "loadings"):
            assert getattr(wider, name) == pytest.approx(getattr(expected, name))
        assert (local.scale, wider.scale) == (1.0, 4.0)


def test_draws_of_a_mixture_have_its_moments():
    """More features than differences, two priors: against points of the priors weighted by the likelihood."""
    rng = np.random.default_rng(9)
    person = answered_people(simulated(rng.normal(size=(1, 5)), 1, 3, 10), None)[0]
    priors = [GaussianPrior.from_covariance(some_covariance(rng, 5), 1.5 * rng.normal(size=5)) for _ in range(2)]
    sources, span = [Source.of(prior) for prior in priors], Span.of(person)
    locals_ = [span.under(sources[0].prior.mean, sources[0].covariance)]
    locals_.append(span.under(sources[1].prior.mean, sources[1].covariance).scaled(2.0))
    posteriors, logs = Posteriors.of(span, locals_), np.log([0.7, 0.3])
    evidence = posteriors.log_evidence()
    weights = np.exp(logs + evidence - logsumexp(logs + evidence))
    thetas, shares = mixture_draws(posteriors, sources, weights, logs)
    assert shares.sum() == pytest.approx(1.0)
    draws = np.concatenate([
        rng.multivariate_normal(source.prior.mean, scale * source.covariance, 150_000)
        for source, scale in zip(sources, (1.0, 2.0), strict=True)
    ])  # fmt: skip
    exact = np.exp(person.log_likelihood(draws)) * np.repeat([0.7, 0.3], 150_000)
    totals = exact.reshape(2, -1).sum(axis=1)
    assert weights == pytest.approx(totals / totals.sum(), abs=0.01)
    assert evidence == pytest.approx(np.log(totals / 150_000 / [0.7, 0.3]), abs=0.02)
    exact /= exact.sum()
    middle, covariance = exact @ draws, np.cov(draws.T, aweights=exact, ddof=0)
    spread = np.sqrt(np.diag(covariance))
    assert (shares @ thetas - middle) / spread == pytest.approx(np.zeros(5), abs=0.1)
    found = np.cov(thetas.T, aweights=shares, ddof=0)
    assert found / np.outer(spread, spread) == pytest.approx(covariance / np.outer(spread, spread), abs=0.15)
    only = mixture_draws(posteriors, sources, np.array([1.0, 0.0]), np.array([0.0, -np.inf]))
    assert len(only[0]) == 1024 + 512
    own = np.exp(person.log_likelihood(draws[:150_000]))
    assert (only[1] @ only[0] - own @ draws[:150_000] / own.sum()) / spread == pytest.approx(np.zeros(5), abs=0.1)
