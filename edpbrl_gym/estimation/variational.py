"""The best Gaussian approximation of the posterior: variational inference, where Laplace's method is too narrow.

Laplace's Gaussian is centred at the mode. With few answers and a strong taste the posterior is skewed: its mass lies
further out than its mode, the mode's curvature is too high, intervals are too narrow and the evidence is too low. The
Gaussian N(mu, H^-1) with the least Kullback-Leibler divergence to the posterior (Opper & Archambeau, 2009) takes
expectations under itself where Laplace's method takes values at one point:

    0 = E[score(theta)] - P (mu - m),        H = P + E[information(theta)],        theta ~ N(mu, H^-1).

Both expectations need only a question's K - 1 utility differences. The Gaussian maximises the bound
E[log-likelihood] - KL(N(mu, H^-1) || prior) on the log evidence; importance sampling from it estimates the evidence.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from scipy.linalg import solve_triangular
from scipy.special import logsumexp, ndtri

from edpbrl_gym._arrays import Floats

__all__ = ["GaussianFit", "fit_gaussian", "importance_log_evidence", "normal_points", "symmetric_roots"]


_LOG_POINTS = 7  # 128 points of the normal distribution in K - 1 dimensions
_SHORTEST = 1.0 / 64.0  # share of a step that is tried; where none raises the bound, the fit ends


@dataclass(frozen=True, eq=False)
class GaussianFit:
    """A Gaussian approximation of a posterior whose prior is N(0, s I).

    Attributes:
        mean: mu, (r,).
        precision: H, (r, r).
        curvature: Symmetric roots of each question's expected information in its differences, (n, k, k).
        log_evidence: The lower bound on the log evidence.
        log_likelihood: Expected log-likelihood under the Gaussian.
        converged: Whether the fixed point was reached.
        score: Expected gradient of the log-likelihood, (r,).
        iterations: Number of steps.
    """

    mean: Floats
    precision: Floats
    curvature: Floats
    log_evidence: float
    log_likelihood: float
    score: Floats
    converged: bool = False
    iterations: int = 0


@lru_cache(maxsize=16)
def normal_points(dimension: int) -> Floats:
    """Points of the standard normal, (S, dimension): scrambled Sobol, mirrored, with exactly the covariance I."""
    from scipy.stats import qmc  # takes a second to import and is needed only here

    half = ndtri(qmc.Sobol(dimension, scramble=True, seed=0).random_base2(_LOG_POINTS - 1))
    points = np.concatenate([half, -half])
    factor = np.linalg.cholesky(points.T @ points / len(points))
    points = np.asarray(solve_triangular(factor, points.T, lower=True).T)
    points.flags.writeable = False
    return np.asarray(points)


def fit_gaussian(
    rows: Floats,
    offsets: Floats | None,
    scale: float,
    mean: Floats,
    precision: Floats,
    *,
    tolerance: float,
    max_iterations: int = 200,
) -> GaussianFit:
    """The variational Gaussian for the prior N(0, scale I).

    Newton steps with the expected gradient and Hessian, shortened where the bound falls.

    Args:
        rows: Differences to the chosen alternatives, (n, k, r).
        offsets: Offsets relative to the chosen alternatives, (n, k), -inf for absent ones; None: 0.
        scale: Prior variance of a coordinate.
        mean: Initial mean, such as the mode, (r,).
        precision: Initial precision, such as the Hessian at the mode, (r, r).
        tolerance: Bound on the rise of the objective in the last step, in nats.
        max_iterations: Maximum number of steps.
    """
    state = _evaluate(rows, offsets, scale, mean, precision)
    iteration, converged = 0, False
    while iteration < max_iterations and not converged:
        flat = np.matmul(state.curvature, rows).reshape(-1, rows.shape[2])
        target = flat.T @ flat
        target[np.diag_indices(len(target))] += 1.0 / scale
        factor = np.linalg.cholesky(target)
        step = _solve(factor, state.score - state.mean / scale)
        length = 1.0
        while True:
            proposal = _evaluate(
                rows,
                offsets,
                scale,
                state.mean + length * step,
                state.precision + length * (target - state.precision),
            )
            if proposal.log_evidence >= state.log_evidence or length <= _SHORTEST:
                break
            length /= 2
        rise = proposal.log_evidence - state.log_evidence
        converged = rise <= tolerance  # below 0 where the integration error of the points allows no further rise
        state, iteration = (proposal if rise > 0 else state), iteration + 1
    return replace(state, converged=converged, iterations=iteration)


def importance_log_evidence(
    rows: Floats, offsets: Floats | None, scale: float, mean: Floats, precision: Floats, draws: int
) -> float:
    """Log evidence by importance sampling from the Gaussian: log of the mean of p(answers | theta) p(theta) / q(theta).

    It lies above the bound and is accurate if the Gaussian is close to the posterior. The draws are the same for all
    scales, so that the value is a smooth function of the scale.

    Args:
        rows: Differences, as for :func:`fit_gaussian`.
        offsets: Offsets, as for :func:`fit_gaussian`.
        scale: Prior variance of a coordinate.
        mean: Of the Gaussian q, (r,).
        precision: Of q, (r, r).
        draws: Number of draws, even; half of them are mirrored.
    """
    rank = rows.shape[2]
    half = np.random.default_rng(0).standard_normal((draws // 2, rank))
    normal = np.concatenate([half, -half])
    factor = np.linalg.cholesky(precision)
    deviations = solve_triangular(factor, normal.T, lower=True, trans="T", check_finite=False)
    thetas = mean[:, None] + deviations
    values = (rows.reshape(-1, rank) @ thetas).reshape(*rows.shape[:2], len(normal))
    if offsets is not None:
        values += offsets[:, :, None]
    largest = np.maximum(values.max(axis=1), 0.0)
    likelihood = -(np.log(np.exp(values - largest[:, None]).sum(axis=1) + np.exp(-largest)) + largest).sum(axis=0)
    prior = -0.5 * np.square(thetas).sum(axis=0) / scale - 0.5 * rank * np.log(scale)
    proposal = -0.5 * np.square(normal).sum(axis=1) + np.log(np.diagonal(factor)).sum()
    return float(logsumexp(likelihood + prior - proposal) - np.log(len(normal)))


def _solve(factor: Floats, right: Floats) -> Floats:
    half = solve_triangular(factor, right, lower=True, check_finite=False)
    return np.asarray(solve_triangular(factor, half, lower=True, trans="T", check_finite=False))


def _evaluate(rows: Floats, offsets: Floats | None, scale: float, mean: Floats, precision: Floats) -> GaussianFit:
    num_questions, num_others, rank = rows.shape
    factor = np.asarray(np.linalg.cholesky(precision), dtype=np.float64)
    white = solve_triangular(factor, rows.reshape(-1, rank).T, lower=True, check_finite=False)
    whitened_rows = white.T.reshape(num_questions, num_others, rank)
    spread = symmetric_roots(whitened_rows @ whitened_rows.transpose(0, 2, 1))
    points = normal_points(num_others)
    values = (rows @ mean)[:, None, :] + points @ spread.transpose(0, 2, 1)  # (n, S, k)
    if offsets is not None:
        values += offsets[:, None, :]
    largest = np.maximum(values.max(axis=2, keepdims=True), 0.0)
    weights = np.exp(values - largest)
    total = weights.sum(axis=2, keepdims=True) + np.exp(-largest)
    likelihood = -float((np.log(total) + largest).mean(axis=1).sum())
    weights /= total
    average = weights.mean(axis=1)
    second = weights.transpose(0, 2, 1) @ weights / len(points)
    curvature = -second
    diagonal = np.arange(num_others)
    curvature[:, diagonal, diagonal] += average
    inverse = solve_triangular(factor, np.eye(rank), lower=True, check_finite=False)
    trace = float(np.square(inverse).sum())
    log_determinant = 2.0 * float(np.log(np.diagonal(factor)).sum())
    divergence = 0.5 * ((trace + float(mean @ mean)) / scale - rank + rank * np.log(scale) + log_determinant)
    score = -(average.ravel() @ rows.reshape(-1, rank))
    return GaussianFit(mean, precision, symmetric_roots(curvature), likelihood - float(divergence), likelihood, score)


def symmetric_roots(matrices: Floats) -> Floats:
    """Symmetric roots of positive semidefinite matrices (n, k, k); equal options make them singular."""
    values, vectors = np.linalg.eigh(matrices)
    return np.asarray((vectors * np.sqrt(np.maximum(values, 0.0))[:, None, :]) @ vectors.transpose(0, 2, 1))
