"""The estimate under N(m, s C) for many scales s of one prior, in the coordinates where the prior is N(0, s I).

With C = R R' and theta = m + R u the prior of u is N(0, s I), and the answers depend on D R u only, D the differences.
Where D has fewer rows than columns, D R = B Q' with orthonormal columns in Q, and u = Q v + (the rest): the answers say
nothing about the rest, whose posterior is its prior, so that mode and evidence come from v alone, one number for each
row of D (the span of the answers, as in Gaussian process classification).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve, qr
from scipy.linalg.blas import dtrmm

from edpbrl_gym.estimation.map_estimate import Estimate
from edpbrl_gym.estimation.newton import Maximum, maximise
from edpbrl_gym.estimation.prior import GaussianPrior
from edpbrl_gym.estimation.variational import GaussianFit, fit_gaussian, importance_log_evidence
from edpbrl_gym.likelihood.choice import information_from_differences

__all__ = ["WhitenedAnswers"]

Floats = NDArray[np.float64]

# Newton decrement that is enough to compare scales: the log posterior is off by half its square
_ROUGH = 1e-4
_FINE = 1e-8
# last rise of the variational bound, in nats
_ROUGH_BOUND, _FINE_BOUND = 1e-3, 1e-5
_MAX_ITERATIONS = 100


class WhitenedAnswers:
    """Answers in the whitened coordinates of a base prior; remembers the last mode as the next start.

    Args:
        differences: to the chosen alternatives, (n, K - 1, d).
        offsets: relative to the chosen alternatives, (n, K - 1), or None.
        base: a proper prior.
    """

    def __init__(self, differences: Floats, offsets: Floats | None, base: GaussianPrior) -> None:
        self._differences, self._offsets, self._base = differences, offsets, base
        self._root = base.covariance_root()
        rows = differences.reshape(-1, base.dimension)
        shift = (rows @ base.mean).reshape(differences.shape[:2]) if base.mean.any() else None
        self._shifted = shift if offsets is None else offsets if shift is None else offsets + shift
        white = dtrmm(1.0, self._root, rows.T, trans_a=1).T  # rows @ root
        self._span: Floats | None = None
        if 0 < len(rows) < base.dimension:
            self._span, triangle = qr(white.T, mode="economic", check_finite=False)
            white = triangle.T
        self.rank = white.shape[1]
        self._rows = np.ascontiguousarray(white).reshape(*differences.shape[:2], self.rank)
        self._point = np.zeros(self.rank)
        self._last: tuple[float, Maximum] | None = None
        self._gaussian: tuple[float, float, GaussianFit] | None = None

    def start_at(self, theta: Floats) -> None:
        """Begin the next estimate at theta, (d,)."""
        white = np.linalg.solve(self._root, theta - self._base.mean)
        self._point = white if self._span is None else self._span.T @ white

    def log_evidence(self, scale: float) -> float:
        """Laplace log evidence at a scale, from an estimate that is precise enough to compare scales.

        Raises:
            ValueError: the estimate did not converge.
        """
        end = self._maximise(scale, _ROUGH)
        return self._evidence(end, scale)

    def estimate(self, scale: float) -> tuple[Estimate, float]:
        """The estimate of theta at a scale, to the usual tolerance, and its log evidence."""
        end = self._maximise(scale, _FINE)
        theta = self._unwhiten(end.theta)
        rows = self._differences.reshape(-1, self._base.dimension)
        prior = self._base.precision / scale
        score = -(end.probabilities[:, 1:].ravel() @ rows)
        gradient = score - prior @ (theta - self._base.mean)
        found = Estimate(
            theta=theta,
            converged=not end.reason,
            iterations=end.iterations,
            gradient_norm=float(np.linalg.norm(gradient)),
            log_likelihood=end.log_likelihood,
            log_posterior=end.log_posterior,
            precision=information_from_differences(self._differences, end.probabilities) + prior,
            reason=end.reason,
        )
        return found, self._evidence(end, scale)

    def gaussian(self, scale: float) -> tuple[Floats, Floats, GaussianFit]:
        """The variational Gaussian at a scale: its mean (d,) and precision (d, d), and the fit in these coordinates."""
        found = self._fit_gaussian(scale, _FINE_BOUND)
        rows = np.matmul(found.curvature, self._differences).reshape(-1, self._base.dimension)
        return self._unwhiten(found.mean), rows.T @ rows + self._base.precision / scale, found

    def sampled_evidence(self, scale: float, draws: int) -> float:
        """Log evidence at a scale by importance sampling from the variational Gaussian."""
        return importance_log_evidence(self._rows, self._shifted, scale, self._fit_gaussian(scale, _ROUGH_BOUND), draws)

    def _fit_gaussian(self, scale: float, tolerance: float) -> GaussianFit:
        if self._gaussian is None:
            end = self._maximise(scale, _ROUGH)
            mean, precision = end.theta, end.precision
        else:  # from the last scale's
            before, reached, last = self._gaussian
            if before == scale and reached <= tolerance:
                return last
            mean = last.mean
            precision = last.precision + (1.0 / scale - 1.0 / before) * np.eye(self.rank)
        found = fit_gaussian(self._rows, self._shifted, scale, mean, precision, tolerance=tolerance)
        self._gaussian = scale, tolerance, found
        return found

    def _unwhiten(self, point: Floats) -> Floats:
        white = point if self._span is None else self._span @ point
        return np.asarray(self._base.mean + self._root @ white)

    def _maximise(self, scale: float, tolerance: float) -> Maximum:
        start, factor = self._start(scale)
        end = maximise(
            self._rows,
            np.eye(self.rank) / scale,
            start,
            tolerance=tolerance,
            max_iterations=_MAX_ITERATIONS,
            offsets=self._shifted,
            factor=factor,
        )
        self._last = scale, end
        return end

    def _start(self, scale: float) -> tuple[Floats, tuple[Floats, bool] | None]:
        """The mode at a new scale if the log-likelihood were quadratic, (A + I/s) v = (A + I/s0) v0, and its factor."""
        if self._last is None:
            return self._point, None
        before, end = self._last
        moved = end.precision + (1.0 / scale - 1.0 / before) * np.eye(self.rank)
        factor = cho_factor(moved, lower=True, check_finite=False)
        return np.asarray(cho_solve(factor, end.precision @ end.theta, check_finite=False)), factor

    def _evidence(self, end: Maximum, scale: float) -> float:
        factor = np.linalg.cholesky(end.precision)
        log_determinant = 2.0 * float(np.log(np.diagonal(factor)).sum()) + self.rank * float(np.log(scale))
        return end.log_posterior - 0.5 * log_determinant
