"""Quasi-random points of normal distributions, and importance sampling with the points of several Gaussians at once.

A mixture of proposals with fixed shares serves all targets together: no weight is large where any of the proposals has
its mass (Hesterberg, 1995; Owen & Zhou, 2000, the balance heuristic).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from edpbrl_gym._arrays import Floats

__all__ = ["DEFENSIVE_RANK", "Gaussians", "log_normal", "normal_net", "shared_points"]

# up to this many dimensions a third of the points comes from the priors: then no weight exceeds three times the largest
# likelihood, however much narrower than the posterior's tails the Gaussians are
DEFENSIVE_RANK = 20
_BITS = 30
_TINY = 2.0**-53
_LOG_TWO_PI = float(np.log(2.0 * np.pi))


@lru_cache(maxsize=16)
def _sobol(dimension: int, log_points: int) -> NDArray[np.int64]:
    """Scrambled Sobol points times 2^_BITS."""
    from scipy.stats import qmc  # takes a second to import and is needed only here

    points = qmc.Sobol(dimension, scramble=True, seed=0, bits=_BITS).random_base2(log_points)
    digits = np.asarray(points * 2.0**_BITS).astype(np.int64)
    digits.flags.writeable = False
    return digits


def normal_net(dimension: int, log_points: int, shift: Floats | None = None) -> Floats:
    """2^log_points points of the standard normal distribution: scrambled Sobol points and their mirror images.

    Args:
        dimension: d; 0 gives points without coordinates.
        log_points: At least 1.
        shift: In [0, 1), (..., d), a digital shift of the uniform points, so that the errors of several people are
            independent; None: 0.

    Returns:
        (..., 2^log_points, d).
    """
    shifts = np.zeros(dimension) if shift is None else shift
    if dimension == 0:
        return np.zeros((*shifts.shape[:-1], 1 << log_points, 0))
    digits = (shifts * 2.0**_BITS).astype(np.int64)
    shifted = _sobol(dimension, log_points - 1) ^ digits[..., None, :]  # keeps the net, as adding modulo 1 does not
    half = ndtri((shifted + 0.5) / 2.0**_BITS)
    return np.concatenate([half, -half], axis=-2)


def log_normal(points: Floats, mean: Floats, inverse: Floats) -> Floats:
    """Log density at points (S, d) of the Gaussian whose covariance has the inverse Cholesky factor ``inverse``."""
    white = (points - mean) @ inverse.T
    constant = float(np.log(np.diagonal(inverse)).sum()) - 0.5 * points.shape[1] * _LOG_TWO_PI
    return np.asarray(constant - 0.5 * np.einsum("sd,sd->s", white, white))


@dataclass(frozen=True, eq=False)
class Gaussians:
    """N(m_j, R_j R_j') in r dimensions.

    Attributes:
        means: m_j, (C, r).
        roots: R_j, (C, r, r), not necessarily triangular.
        inverses: Their inverses.
        log_determinants: log |det R_j|, (C,).
    """

    means: Floats
    roots: Floats
    inverses: Floats
    log_determinants: Floats

    def __len__(self) -> int:
        return len(self.means)

    def points(self, normal: Floats, which: int) -> Floats:
        """Points of one of them from standard normal ones, (S, r)."""
        return np.asarray(self.means[which] + normal @ self.roots[which].T)

    def log_densities(self, points: Floats) -> Floats:
        """At points (S, r), without the constant r/2 log(2 pi): (C, S)."""
        white = np.matmul(points[None] - self.means[:, None], self.inverses.transpose(0, 2, 1))
        return np.asarray(-0.5 * np.square(white).sum(axis=2) - self.log_determinants[:, None])


@dataclass(frozen=True, eq=False)
class Shared:
    """Points of several proposals.

    Attributes:
        points: (S, r).
        log_priors: The priors' log densities there, (J, S).
        log_proposals: The log density of all proposals together, (S,).
        shares: The posterior probability of each proposal, (C, S).
        known: Their expectations, the shares of the points that each proposal gave, (C,).
    """

    points: Floats
    log_priors: Floats
    log_proposals: Floats
    shares: Floats
    known: Floats

    def log_means(self, logs: Floats) -> Floats:
        """Logarithms of the integrals of exp(logs), (J, S), over the density of the proposals.

        The means of the points' ``shares`` differ from the known ones by chance, and the integrals are corrected by
        regression on them (Owen & Zhou, 2000): a posterior near one of the proposals gets next to no error.
        """
        largest = logs.max(axis=1, keepdims=True)
        values = np.exp(logs - largest)
        plain = values.mean(axis=1)
        centred = self.shares - self.known[:, None]
        system = centred @ centred.T
        system[np.diag_indices(len(system))] += 1e-9 * np.trace(system) + _TINY  # shares are linearly dependent
        slopes = np.linalg.solve(system, centred @ (values - plain[:, None]).T)
        corrected = plain - centred.mean(axis=1) @ slopes
        return np.asarray(np.log(np.clip(corrected, 0.5 * plain, 2.0 * plain)) + largest[:, 0])


@lru_cache(maxsize=64)
def _independent_nets(dimension: int, log_points: int, count: int) -> Floats:
    """Nets with different errors, (count, 2^log_points, d)."""
    nets = normal_net(dimension, log_points, np.random.default_rng(0).random((count, dimension)))
    nets.flags.writeable = False
    return nets


def shared_points(fits: Gaussians, priors: Gaussians, log_points: NDArray[np.intp]) -> Shared:
    """Points of all posteriors together, and what importance sampling with them needs.

    Args:
        fits: Gaussians near the posteriors under J priors.
        priors: The priors.
        log_points: 2^l points come from each Gaussian, none for l < 1; in few dimensions half as many from its prior.
    """
    dimension = fits.means.shape[1]
    kinds = ((fits, 0), (priors, 1)) if dimension <= DEFENSIVE_RANK else ((fits, 0),)
    blocks, sizes = [], []
    for kind, fewer in kinds:
        for which, log in enumerate(log_points):
            if log >= 1:
                net = _independent_nets(dimension, int(log) - fewer, 2 * len(fits))[which + len(fits) * fewer]
                blocks.append(kind.points(net, which))
            sizes.append((1 << int(log)) >> fewer if log >= 1 else 0)
    points = np.concatenate(blocks)
    log_priors = priors.log_densities(points)
    used = np.array(sizes) > 0
    logs = np.concatenate([fits.log_densities(points), log_priors])[: len(sizes)][used]
    shares = np.array(sizes)[used] / len(points)
    logs += np.log(shares)[:, None]
    largest = logs.max(axis=0)
    log_proposals = np.log(np.exp(logs - largest).sum(axis=0)) + largest
    return Shared(points, log_priors, log_proposals, np.exp(logs - log_proposals), shares)
