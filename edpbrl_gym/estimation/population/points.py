"""Quasi-random points of a normal distribution, and importance sampling for one person."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy.linalg import solve_triangular
from scipy.special import logsumexp, ndtri

from edpbrl_gym._arrays import Floats
from edpbrl_gym.estimation.population.answers import Answered
from edpbrl_gym.estimation.variational import GaussianFit

__all__ = ["DEFENSIVE_RANK", "Weighted", "log_normal", "normal_net", "weigh"]

# up to this many dimensions a third of the points comes from the prior: then no weight exceeds three times the largest
# likelihood, however much narrower than the posterior's tails the Gaussian is (Hesterberg, 1995)
DEFENSIVE_RANK = 20
_TINY = 2.0**-53
_LOG_TWO_PI = float(np.log(2.0 * np.pi))


@lru_cache(maxsize=16)
def _sobol(dimension: int, log_points: int) -> Floats:
    from scipy.stats import qmc  # takes a second to import and is needed only here

    points = np.asarray(qmc.Sobol(dimension, scramble=True, seed=0).random_base2(log_points))
    points.flags.writeable = False
    return points


def normal_net(dimension: int, log_points: int, shift: Floats | None = None) -> Floats:
    """2^log_points points of the standard normal distribution: scrambled Sobol points and their mirror images.

    Args:
        dimension: d; 0 gives points without coordinates.
        log_points: At least 1.
        shift: Added to the uniform points modulo 1, (d,), so that the errors of several people are independent.
    """
    if dimension == 0:
        return np.zeros((1 << log_points, 0))
    uniform = _sobol(dimension, log_points - 1)
    if shift is not None:
        uniform = (uniform + shift) % 1.0
    half = ndtri(np.clip(uniform, _TINY, 1.0 - _TINY))
    return np.concatenate([half, -half])


def log_normal(points: Floats, mean: Floats, lower: Floats) -> Floats:
    """Log density of N(mean, lower lower') at points (S, d), (S,)."""
    dimension = points.shape[1]
    if not dimension:
        return np.zeros(len(points))
    white = solve_triangular(lower, (points - mean).T, lower=True, check_finite=False)
    log_determinant = float(np.log(np.diagonal(lower)).sum())
    return np.asarray(-0.5 * np.square(white).sum(axis=0) - log_determinant - 0.5 * dimension * _LOG_TWO_PI)


@dataclass(frozen=True, eq=False)
class Weighted:
    """Weighted points of a posterior.

    Attributes:
        points: (S, r).
        weights: (S,), sum 1.
        log_evidence: Log of the mean of p(answers | w) p(w) / q(w).
        effective: Number of equally weighted points that would say as much (Kong, 1992).
    """

    points: Floats
    weights: Floats
    log_evidence: float
    effective: float


def weigh(answered: Answered, fit: GaussianFit, log_points: int) -> Weighted:
    """Importance sampling of the posterior of w ~ N(0, I) from its variational Gaussian.

    Weights above sqrt(S) times their mean are cut there (Ionides, 2008): in many dimensions a single point could
    otherwise represent everything. The evidence is computed before that.

    Args:
        answered: Answers in w.
        fit: Their variational Gaussian.
        log_points: 2^log_points points from the Gaussian, and half as many from the prior in few dimensions.
    """
    rank = len(fit.mean)
    factor = np.linalg.cholesky(fit.precision)
    normal = normal_net(rank, log_points)
    spread = solve_triangular(factor, normal.T, lower=True, trans="T", check_finite=False).T if rank else normal
    points = fit.mean + spread
    if rank <= DEFENSIVE_RANK:
        shift = np.full(rank, 0.5)  # other points than those of the Gaussian
        points = np.concatenate([points, normal_net(rank, log_points - 1, shift)])
    log_prior = -0.5 * np.square(points).sum(axis=1)
    white = (points - fit.mean) @ factor
    log_fit = -0.5 * np.square(white).sum(axis=1) + float(np.log(np.diagonal(factor)).sum())
    if rank <= DEFENSIVE_RANK:
        log_proposal = np.logaddexp(log_fit + np.log(2.0 / 3.0), log_prior + np.log(1.0 / 3.0))
    else:
        log_proposal = log_fit
    logs = answered.log_likelihood(points) + log_prior - log_proposal
    evidence = float(logsumexp(logs)) - float(np.log(len(logs)))
    weights = np.minimum(np.exp(logs - evidence), np.sqrt(len(logs)))
    weights /= weights.sum()
    return Weighted(points, weights, evidence, float(1.0 / np.square(weights).sum()))
