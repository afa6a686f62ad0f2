"""One person's answers under a Gaussian, in the span of the answers.

The answers depend on z = B' u alone, with the columns of B an orthonormal basis of the rows of the differences (n k of
them, or all d directions). Under u ~ N(m, C), z = B' m + L w with L L' = B' C B and w ~ N(0, I); given w, u = m + G w
plus a remainder about which the answers say nothing, with G = C B L^-T. So r = min(n k, d) numbers suffice.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import qr, solve_triangular

from edpbrl_gym._arrays import Floats
from edpbrl_gym.estimation.newton import maximise
from edpbrl_gym.estimation.population.answers import Answered
from edpbrl_gym.estimation.variational import GaussianFit, fit_gaussian

__all__ = ["Local", "Span", "fit_local"]

_MODE_TOLERANCE = 1e-4  # the mode only starts the variational fit


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
        if count * others >= dimension:
            return cls(answered, None)
        if answered.empty:
            return cls(Answered(np.zeros((count, others, 0)), answered.offsets), np.zeros((dimension, 0)))
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
        rows, offsets = self.answered.rows, self.answered.offsets
        if middle.any():
            shift = rows @ middle
            offsets = shift if offsets is None else offsets + shift
        return Local(Answered(rows @ lower, offsets), lower, loadings)


@dataclass(frozen=True, eq=False)
class Local:
    """Answers in w, whose prior is N(0, I).

    Attributes:
        answered: The answers in w: rows (n, k, r).
        lower: L, (r, r).
        loadings: G, (d, r).
    """

    answered: Answered
    lower: Floats
    loadings: Floats


def fit_local(
    answered: Answered,
    *,
    start: tuple[Floats, Floats] | None = None,
    tolerance: float = 1e-4,
    max_iterations: int = 200,
    shortest: float = 1.0 / 64.0,
) -> GaussianFit:
    """The variational Gaussian of w ~ N(0, I) given answers.

    Args:
        answered: Answers in w, (n, k, r).
        start: Mean (r,) and precision (r, r) of an earlier fit; None: the mode and the Hessian there.
        tolerance: Rise of the bound in the last step, in nats.
        max_iterations: Maximum number of steps.
        shortest: Shortest share of a step that is tried.
    """
    rank = answered.rows.shape[2]
    if answered.empty or rank == 0:
        curvature = np.zeros((len(answered.rows), answered.rows.shape[1], answered.rows.shape[1]))
        likelihood = float(answered.log_likelihood(np.zeros((1, rank)))[0])
        return GaussianFit(np.zeros(rank), np.eye(rank), curvature, likelihood, likelihood, True, 0)
    if start is None:
        mode = maximise(
            answered.rows,
            np.eye(rank),
            np.zeros(rank),
            tolerance=_MODE_TOLERANCE,
            max_iterations=100,
            offsets=answered.offsets,
        )
        start = mode.theta, mode.precision
    return fit_gaussian(
        answered.rows,
        answered.offsets,
        1.0,
        *start,
        tolerance=tolerance,
        max_iterations=max_iterations,
        shortest=shortest,
    )
