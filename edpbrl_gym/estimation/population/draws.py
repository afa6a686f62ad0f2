"""Weighted points of a person's whole taste under a mixture of posteriors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.linalg import solve_triangular

from edpbrl_gym._arrays import Floats
from edpbrl_gym.estimation.population.points import normal_net
from edpbrl_gym.estimation.population.posteriors import Posteriors
from edpbrl_gym.estimation.prior import GaussianPrior

__all__ = ["Source", "mixture_draws"]

_POINTS = 1024  # from all variational Gaussians together, and half as many from the priors
_LEAST_LOG = 4


@dataclass(frozen=True, eq=False)
class Source:
    """A Gaussian prior with what computations need of it: covariance and its lower Cholesky factor, (d, d) each."""

    prior: GaussianPrior
    covariance: Floats
    lower: Floats

    @classmethod
    def of(cls, prior: GaussianPrior) -> Source:
        """The same prior.

        Raises:
            ValueError: An improper prior.
        """
        covariance = prior.covariance
        lower = np.asarray(np.linalg.cholesky((covariance + covariance.T) / 2), dtype=np.float64)
        return cls(prior, covariance, lower)


def mixture_draws(
    posteriors: Posteriors, sources: Sequence[Source], weights: Floats, logs: Floats
) -> tuple[Floats, Floats]:
    """Points of theta under several posteriors, (S, d), and their weights, (S,), which sum to 1.

    Each posterior gets as many points as its weight. Weights above sqrt(S) times their mean are cut there (Ionides,
    2008): in many dimensions a single point could otherwise represent everything.

    Args:
        posteriors: The posteriors in the span of the answers.
        sources: The priors of theta, but for their scales.
        weights: Posterior weights; 0: without the posterior.
        logs: Logarithms of prior weights, up to a constant, (J,).
    """
    log_points = np.clip(np.rint(np.log2(np.maximum(_POINTS * weights, 1.0))), _LEAST_LOG, None)
    points, targets = posteriors.weigh(np.where(weights > 0.0, log_points, 0.0).astype(np.intp))
    joint = np.exp(targets + logs[:, None] - (targets + logs[:, None]).max())  # (J, S)
    total = joint.sum(axis=0)
    shares = np.minimum(total, np.sqrt(len(points)) * total.mean())
    shares /= shares.sum()
    if posteriors.span.basis is None:
        return points, shares
    # each point in the span belongs to one posterior, as likely as it is there
    places = (np.arange(len(points)) * (np.sqrt(5.0) - 1.0) / 2.0) % 1.0
    owners = (np.cumsum(joint, axis=0) < places * total).sum(axis=0)
    return _completed(posteriors, sources, points, np.minimum(owners, len(joint) - 1)), shares


def _completed(posteriors: Posteriors, sources: Sequence[Source], points: Floats, owners: Floats) -> Floats:
    """Points of theta given points in the span: about other directions the answers say nothing."""
    basis = posteriors.span.basis
    assert basis is not None
    dimension = len(basis)
    normal = normal_net(dimension, int(np.ceil(np.log2(len(points)))), np.full(dimension, 0.5))
    normal = np.random.default_rng(0).permutation(normal)[: len(points)]
    thetas = np.empty((len(points), dimension))
    for row in np.unique(owners):
        local, source, own = posteriors.locals[row], sources[row], owners == row
        whole = np.sqrt(local.scale) * (normal[own] @ source.lower.T)
        inside = points[own] - local.middle - whole @ basis
        if len(local.lower):
            inside = solve_triangular(local.lower, inside.T, lower=True, check_finite=False).T
        thetas[own] = source.prior.mean + whole + inside @ local.loadings.T
    return thetas
