"""The estimate under N(m, s C) for many scales s of one prior, in the coordinates where the prior is N(0, s I).

With C = R R' and theta = m + R u the prior of u is N(0, s I), and the answers depend only on D R u, D the differences.
If D has fewer rows than columns, D R = B Q' with orthonormal columns in Q, and u = Q v + a remainder about which the
answers say nothing, so that its posterior is its prior. Mode and evidence then come from v alone, which has one entry
for each row of D (the span of the answers, as in Gaussian process classification).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
from scipy.linalg import cho_factor, cho_solve, qr
from scipy.linalg.blas import dtrmm

from edpbrl_gym._arrays import Floats
from edpbrl_gym._validation import check_array
from edpbrl_gym.estimation.map_estimate import Estimate
from edpbrl_gym.estimation.newton import Maximum, maximise, posterior_precision
from edpbrl_gym.estimation.prior import GaussianPrior
from edpbrl_gym.estimation.variational import GaussianFit, fit_gaussian, importance_log_evidence
from edpbrl_gym.likelihood.choice import information_rows

__all__ = ["WhitenedAnswers", "typical_scale"]


# Newton decrements: _ROUGH suffices to compare scales, as the error of the log posterior is half its square
_ROUGH = 1e-4
_FINE = 1e-8
# rises of the variational bound in the last step, in nats
_ROUGH_BOUND, _FINE_BOUND = 1e-3, 1e-5
_MAX_ITERATIONS = 100


def typical_scale(differences: Sequence[Floats]) -> float:
    """The scale s at which a utility difference has the prior variance 2 under N(0, s I), in the median.

    That is the variance for two orthogonal options of norm 1 at s = 1. A prior on the scale with this median does not
    depend on the unit of the features. It is 1 where nothing was compared.

    Args:
        differences: Differences to the chosen alternatives, where the prior is N(0, s I); arrays (n, k, r).
    """
    squares = np.concatenate([np.einsum("nkr,nkr->nk", rows, rows).ravel() for rows in differences])
    compared = squares[squares > 0]
    return 2.0 / float(np.median(compared)) if len(compared) else 1.0


class WhitenedAnswers:
    """Answers in the whitened coordinates of a base prior; each estimate starts from the last one.

    Args:
        differences: Differences to the chosen alternatives, (n, K - 1, d).
        offsets: Offsets relative to the chosen alternatives, (n, K - 1), or None.
        base: Proper prior.
    """

    def __init__(self, differences: Floats, offsets: Floats | None, base: GaussianPrior) -> None:
        self._differences, self._offsets, self._base = differences, offsets, base
        self._root = base.covariance_root()
        rows = differences.reshape(-1, base.dimension)
        shift = (rows @ base.mean).reshape(differences.shape[:2]) if base.mean.any() else None
        self._shifted = shift if offsets is None else offsets if shift is None else offsets + shift
        white = dtrmm(1.0, self._root, rows.T, trans_a=1).T  # rows @ root
        self._span: Floats | None = None
        if not len(rows):
            self._span, white = np.eye(base.dimension, 1), white[:, :1]  # one direction stands for all
        elif len(rows) < base.dimension:
            self._span, triangle = qr(white.T, mode="economic")
            white = triangle.T
        self.rank = white.shape[1]
        self._rows = np.ascontiguousarray(white).reshape(*differences.shape[:2], self.rank)
        self._point = np.zeros(self.rank)
        self._last: tuple[float, Maximum] | None = None
        self._gaussian: tuple[float, float, GaussianFit] | None = None

    @property
    def typical_scale(self) -> float:
        """`typical_scale` of the differences."""
        return typical_scale([self._rows])

    def start_at(self, theta: Floats) -> None:
        """Start the next estimate at theta, (d,), that of an earlier fit."""
        theta = check_array(theta, "start.estimate.theta", shape=(self._base.dimension,))
        white = np.linalg.solve(self._root, theta - self._base.mean)
        self._point = white if self._span is None else self._span.T @ white

    def log_evidence(self, scale: float) -> float:
        """Laplace log evidence at a scale, with a tolerance that suffices to compare scales.

        Raises:
            ValueError: The estimate did not converge.
        """
        maximum = self._maximise(scale, _ROUGH)
        return self._evidence(maximum, scale)

    def log_evidence_slopes(self, blocks: Sequence[slice]) -> tuple[float, Floats]:
        """Laplace log evidence at scale 1, and its derivatives by the log of the prior variance of each block, (B,).

        With S the posterior covariance, u the mode and A the differences in whitened coordinates, the derivative by
        that of block b is (u_b' u_b - tr(I - S_bb)) / 2 minus half the trace of S times the change of A' W A, as the
        mode moves by S u_b and with it the weights W of the logit.

        Args:
            blocks: Of the whitened coordinates; the root of the base's covariance has no entries between two of them.
        """
        maximum = self._maximise(1.0, _FINE)
        inverse = cho_solve((np.linalg.cholesky(maximum.precision), True), np.eye(self.rank), check_finite=False)
        basis = np.eye(self.rank) if self._span is None else self._span
        known = np.eye(self.rank) - inverse
        spread = self._rows @ inverse
        covariances = spread @ self._rows.transpose(0, 2, 1)  # of the utilities of each question, (n, K - 1, K - 1)
        variances = np.diagonal(covariances, axis1=1, axis2=2)
        shares = maximum.probabilities[:, 1:]
        slopes = []
        for block in blocks:
            rows = basis[block]
            point = rows @ maximum.theta
            change = spread @ (rows.T @ point)
            moved = shares * (change - np.vecdot(shares, change)[:, None])
            curvature = np.vdot(moved, variances) - 2.0 * np.einsum("nk,nkj,nj->", shares, covariances, moved)
            slopes.append(0.5 * float(point @ point - np.vdot(rows @ known, rows) - curvature))
        return self._evidence(maximum, 1.0), np.array(slopes)

    def estimate(self, scale: float) -> tuple[Estimate, GaussianPrior, float]:
        """The estimate of theta at a scale, to the usual tolerance, its prior, and its log evidence."""
        maximum = self._maximise(scale, _FINE)
        theta = self._unwhiten(maximum.theta)
        rows = self._differences.reshape(-1, self._base.dimension)
        prior = self._base.scaled(scale)
        score = -(maximum.probabilities[:, 1:].ravel() @ rows)
        gradient = score - prior.precision @ (theta - self._base.mean)
        result = Estimate(
            theta=theta,
            converged=not maximum.reason,
            iterations=maximum.iterations,
            gradient_norm=float(np.linalg.norm(gradient)),
            log_likelihood=maximum.log_likelihood,
            log_posterior=maximum.log_posterior,
            precision=partial(posterior_precision, self._differences, maximum.probabilities, prior.precision),
            reason=maximum.reason,
        )
        return result, prior, self._evidence(maximum, scale)

    def laplace(self, scale: float) -> tuple[Floats, Floats, float]:
        """Laplace's posterior at a scale: its mean (d,), rows Y, and the log evidence.

        Its precision is that of the prior plus Y' Y.
        """
        maximum = self._maximise(scale, _FINE)
        rows = np.asarray(information_rows(self._differences, maximum.probabilities), dtype=np.float64)
        return self._unwhiten(maximum.theta), rows, self._evidence(maximum, scale)

    @property
    def rows(self) -> Floats:
        """The differences in the coordinates v, (n, K - 1, rank)."""
        return self._rows

    def values(self, point: Floats) -> Floats:
        """Utilities relative to the chosen alternatives at v, (rank,): (n, K - 1)."""
        values = np.vecdot(self._rows, point)
        return np.asarray(values if self._shifted is None else values + self._shifted)

    def mode(self, scale: float) -> tuple[Floats, Floats, float]:
        """The mode at a scale in the coordinates v, (rank,), the precision there, and the Laplace log evidence."""
        maximum = self._maximise(scale, _FINE)
        return maximum.theta, maximum.precision, self._evidence(maximum, scale)

    def thetas(self, points: Floats, rest: Floats) -> Floats:
        """Tastes, (c, d), of points v (c, rank); ``rest`` (c, d) fills all other coordinates."""
        if self._span is not None:
            points = rest + (points - rest @ self._span) @ self._span.T
        return np.asarray(self._base.mean + dtrmm(1.0, self._root, points.T).T)

    def gaussian(self, scale: float) -> tuple[Floats, Floats, GaussianFit]:
        """The variational Gaussian at a scale: its mean (d,) and precision (d, d), and the fit in these coordinates."""
        fit = self._fit_gaussian(scale, _FINE_BOUND)
        rows = np.matmul(fit.curvature, self._differences).reshape(-1, self._base.dimension)
        return self._unwhiten(fit.mean), rows.T @ rows + self._base.precision / scale, fit

    def sampled_evidence(self, scale: float, draws: int) -> float:
        """Log evidence at a scale by importance sampling from the variational Gaussian."""
        fit = self._fit_gaussian(scale, _ROUGH_BOUND)
        return importance_log_evidence(self._rows, self._shifted, scale, fit.mean, fit.precision, draws)

    def _fit_gaussian(self, scale: float, tolerance: float) -> GaussianFit:
        if self._gaussian is None:
            maximum = self._maximise(scale, _ROUGH)
            mean, precision = maximum.theta, maximum.precision
        else:  # start from the fit at the last scale
            last_scale, last_tolerance, last_fit = self._gaussian
            if last_scale == scale and last_tolerance <= tolerance:
                return last_fit
            mean = last_fit.mean
            precision = last_fit.precision + (1.0 / scale - 1.0 / last_scale) * np.eye(self.rank)
        fit = fit_gaussian(self._rows, self._shifted, scale, mean, precision, tolerance=tolerance)
        self._gaussian = scale, tolerance, fit
        return fit

    def _unwhiten(self, point: Floats) -> Floats:
        white = point if self._span is None else self._span @ point
        return np.asarray(self._base.mean + self._root @ white)

    def _maximise(self, scale: float, tolerance: float) -> Maximum:
        start, factor = self._start(scale)
        maximum = maximise(
            self._rows,
            np.eye(self.rank) / scale,
            start,
            tolerance=tolerance,
            max_iterations=_MAX_ITERATIONS,
            offsets=self._shifted,
            factor=factor,
        )
        self._last = scale, maximum
        return maximum

    def _start(self, scale: float) -> tuple[Floats, tuple[Floats, bool] | None]:
        """Mode at a new scale for a quadratic log-likelihood, (A + I/s) v = (A + I/s0) v0, with the Cholesky factor."""
        if self._last is None:
            return self._point, None
        last_scale, last_maximum = self._last
        precision = last_maximum.precision + (1.0 / scale - 1.0 / last_scale) * np.eye(self.rank)
        factor = cho_factor(precision, lower=True, check_finite=False)
        return np.asarray(cho_solve(factor, last_maximum.precision @ last_maximum.theta, check_finite=False)), factor

    def _evidence(self, maximum: Maximum, scale: float) -> float:
        factor = np.linalg.cholesky(maximum.precision)
        log_determinant = 2.0 * float(np.log(np.diagonal(factor)).sum()) + self.rank * float(np.log(scale))
        return maximum.log_posterior - 0.5 * log_determinant
