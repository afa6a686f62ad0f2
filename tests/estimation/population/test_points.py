"""Points of Gaussians and what they integrate: against densities of scipy, known integrals and grids."""

import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import multivariate_normal

from edpbrl_gym.estimation.population.answers import Answered, answered_people
from edpbrl_gym.estimation.population.cloud import Cloud, Proposals
from edpbrl_gym.estimation.population.parts import Parts
from edpbrl_gym.estimation.population.points import Gaussians, shared_points
from tests.helpers.communities import simulated


def some_covariance(rng, dimension):
    root = rng.normal(size=(dimension, dimension))
    return root @ root.T + 0.5 * np.eye(dimension)


def gaussians(means, covariances):
    roots = np.linalg.cholesky(covariances)
    return Gaussians(means, roots, np.linalg.inv(roots), np.linalg.slogdet(roots)[1])


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


def by_grid(people, parts, size, width):
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
