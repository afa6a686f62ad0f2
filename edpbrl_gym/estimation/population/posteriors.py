"""One person's posteriors under several Gaussian priors, in the span of the answers, and their evidence.

The priors share everything: one span, one variational fit of all of them at once, and the points of importance
sampling, as a point that is likely under one scale of the fallback is also likely under its neighbours.

The answers depend on z = B' u alone, with the columns of B an orthonormal basis of the rows of the differences (n k of
them, or all d directions). Under u ~ N(m, C), z = B' m + L w with L L' = B' C B and w ~ N(0, I); given w, u = m + G w
plus a remainder about which the answers say nothing, with G = C B L^-T. So r = min(n k, d) numbers suffice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import qr, solve_triangular

from edpbrl_gym._arrays import Floats
from edpbrl_gym.estimation.population.answers import Answered
from edpbrl_gym.estimation.population.geometry import geometry_of, inverse_lower
from edpbrl_gym.estimation.population.points import DEFENSIVE_RANK, Gaussians, Shared, shared_points
from edpbrl_gym.estimation.population.sites import Sites, fit_sites

__all__ = ["Local", "Posteriors", "Span"]

_TOLERANCE = 3e-3  # nats; importance sampling corrects what is missing

_POINTS, _POINTS_OF_MANY = 2048, 1024  # of all variational Gaussians together, to compare the priors
_LEAST_LOG, _MOST_LOG = 6, 9


@dataclass(frozen=True, eq=False)
class Span:
    """Answers in the coordinates z.

    Attributes:
        answered: The answers in z: rows (n, k, r).
        basis: B, (d, r); None: the identity.
    """

    answered: Answered
    basis: Floats | None

    @classmethod
    def of(cls, answered: Answered) -> Span:
        """The span of answers in u."""
        count, others, dimension = answered.rows.shape
        if answered.empty:
            return cls(Answered(np.zeros((count, others, 0)), answered.offsets), np.zeros((dimension, 0)))
        if count * others >= dimension:
            return cls(answered, None)
        basis, triangle = qr(answered.rows.reshape(-1, dimension).T, mode="economic", check_finite=False)
        rows = np.ascontiguousarray(triangle.T).reshape(count, others, -1)
        return cls(Answered(rows, answered.offsets), basis)

    def under(self, mean: Floats, covariance: Floats) -> Local:
        """The answers under u ~ N(mean, covariance)."""
        middle = mean if self.basis is None else self.basis.T @ mean
        cross = covariance if self.basis is None else covariance @ self.basis
        inner = cross if self.basis is None else self.basis.T @ cross
        lower: Floats = np.asarray(np.linalg.cholesky((inner + inner.T) / 2), dtype=np.float64)
        loadings = solve_triangular(lower, cross.T, lower=True, check_finite=False).T if len(lower) else cross
        rows = self.answered.rows
        offsets = rows @ middle
        if self.answered.offsets is not None:
            offsets += self.answered.offsets
        return Local(rows @ lower, offsets, middle, lower, loadings)


@dataclass(frozen=True, eq=False)
class Local:
    """Answers in w, whose prior is N(0, I).

    Attributes:
        rows: (n, k, r).
        offsets: (n, k).
        middle: B' m, (r,).
        lower: L, (r, r).
        loadings: G, (d, r).
        scale: Factor of the covariance, of which L and G have the root.
    """

    rows: Floats
    offsets: Floats
    middle: Floats
    lower: Floats
    loadings: Floats
    scale: float = 1.0

    def scaled(self, scale: float) -> Local:
        """Under the covariance times ``scale``."""
        root = float(np.sqrt(scale))
        return Local(self.rows * root, self.offsets, self.middle, self.lower * root, self.loadings * root, scale)


@dataclass(frozen=True, eq=False)
class Posteriors:
    """The posteriors under J priors.

    Attributes:
        span: The answers in z, r numbers.
        locals: The answers under each prior.
        sites: The variational Gaussians.
        inner: Their means of w, (J, r).
        reduction: I minus their covariances of w, (J, r, r): what the answers took away.
        fits: The variational Gaussians of z.
        priors: The priors of z.
    """

    span: Span
    locals: tuple[Local, ...]
    sites: Sites
    inner: Floats
    reduction: Floats
    fits: Gaussians
    priors: Gaussians

    @classmethod
    def of(cls, span: Span, under: Sequence[Local]) -> Posteriors:
        """The variational Gaussians under the given priors."""
        rows = np.stack([local.rows for local in under])
        count, questions, others, rank = rows.shape
        if not rank:
            return cls._with(span, tuple(under), rows, Sites.empty(count, questions, others))
        offsets = np.stack([local.offsets for local in under])
        return cls._with(span, tuple(under), rows, fit_sites(geometry_of(rows), offsets, tolerance=_TOLERANCE))

    @classmethod
    def _with(cls, span: Span, under: tuple[Local, ...], rows: Floats, sites: Sites) -> Posteriors:
        count, questions, others, rank = rows.shape
        flat = rows.reshape(count, questions * others, rank)
        inner = np.matmul(flat.transpose(0, 2, 1), sites.scores.reshape(count, -1, 1))[..., 0]
        weighted = np.matmul(sites.information, rows).reshape(flat.shape)
        precision = np.matmul(flat.transpose(0, 2, 1), weighted) + np.eye(rank)
        factor = np.linalg.cholesky((precision + precision.transpose(0, 2, 1)) / 2)
        inverse = inverse_lower(factor)
        middles = np.stack([local.middle for local in under])
        lowers = np.stack([local.lower for local in under])
        inverses = inverse_lower(lowers)
        determinants = np.log(lowers.diagonal(axis1=1, axis2=2)).sum(axis=1)
        fits = Gaussians(
            middles + np.matmul(lowers, inner[..., None])[..., 0],
            np.matmul(lowers, inverse.transpose(0, 2, 1)),
            np.matmul(factor.transpose(0, 2, 1), inverses),
            determinants - np.log(factor.diagonal(axis1=1, axis2=2)).sum(axis=1),
        )
        reduction = np.eye(rank) - np.matmul(inverse.transpose(0, 2, 1), inverse)
        return cls(span, under, sites, inner, reduction, fits, Gaussians(middles, lowers, inverses, determinants))

    def log_evidence(self) -> Floats:
        """Log evidence of the answers under each prior, (J,), by importance sampling."""
        few = self.inner.shape[1] <= DEFENSIVE_RANK
        size = np.ceil(np.log2((_POINTS if few else _POINTS_OF_MANY) / len(self.fits)))
        log_points = np.full(len(self.fits), np.clip(size, _LEAST_LOG, _MOST_LOG), dtype=np.intp)
        shared = shared_points(self.fits, self.priors, log_points)
        return shared.log_means(self._log_ratios(shared))

    def weigh(self, log_points: NDArray[np.intp]) -> tuple[Floats, Floats]:
        """Points z, (S, r), and log of likelihood times prior density over the density of the proposals, (J, S).

        Args:
            log_points: Logarithm of the number of points from each variational Gaussian; see ``shared_points``.
        """
        shared = shared_points(self.fits, self.priors, log_points)
        return shared.points, self._log_ratios(shared)

    def _log_ratios(self, shared: Shared) -> Floats:
        return shared.log_priors + (self.span.answered.log_likelihood(shared.points) - shared.log_proposals)
