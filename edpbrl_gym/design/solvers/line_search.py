"""Exact line search: the best point of a segment of designs, at the cost of one symmetric eigenvalue problem.

Along d(g) = d + g (d' - d) the surrogate information is quadratic, I(g) = I + g A - g^2 T dm' dm. Lifting every row
to (phi_n ; e_h) makes it affine: with the Cholesky factor I = L L' and

    C = [[ L^-1 A L^-T,  sqrt(T) L^-1 dm' ], [ sqrt(T) dm L^-T,  0 ]]        (d + H) x (d + H), eigenpairs (mu_i, w_i),

    det I(g) = det I * prod_i (1 + g mu_i),       I(g)^-1 = L^-T [ (1 + g C)^-1 ]_11 L^-1,

so D is sum_i log(1 + g mu_i) and A, V are -sum_i c_i / (1 + g mu_i) with c_i = ||B' L^-T w_i,1||^2: along the whole
segment the slope costs O(d), and its root is found to machine precision. (Measured against safeguarded Newton on
Cholesky factors at d = 384 and 768: 1.9 times faster for D, 2.7 to 4 times for V.) A criterion of another kind is
searched by the root of its slope, one gradient for each trial.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.linalg import lapack, solve_triangular
from scipy.optimize import brentq

from edpbrl_gym._arrays import Floats
from edpbrl_gym.design.criteria import (
    ACriterion,
    Criterion,
    DCriterion,
    SingularInformationError,
    VCriterion,
    cholesky,
)

__all__ = ["Segment", "exact_step"]


_MAX_HALVINGS = 200
_SINGULAR = 1e-13  # 1 + g mu below this: the information matrix is singular to working precision


@dataclass(frozen=True)
class Segment:
    """A segment of designs in terms of their moments.

    Attributes:
        information: I at the start, prior included, shape (d, d).
        means: m_h at the start, shape (H, d).
        moment_change: Change of sum_h Phi' diag(d_h) Phi over a unit step, shape (d, d).
        mean_change: Change of m_h over a unit step, shape (H, d).
        episodes: T.
        longest: Largest step that stays feasible.
    """

    information: Floats
    means: Floats
    moment_change: Floats
    mean_change: Floats
    episodes: float
    longest: float

    @property
    def slope(self) -> Floats:
        """A = dI/dg at the start, shape (d, d)."""
        cross = self.means.T @ self.mean_change
        return np.asarray(self.episodes * (self.moment_change - cross - cross.T))

    def at(self, step: float) -> Floats:
        """Information after a step."""
        bend = self.mean_change.T @ self.mean_change
        return self.information + step * self.slope - step**2 * self.episodes * bend


def exact_step(criterion: Criterion, segment: Segment) -> float:
    """Maximise the criterion over the segment.

    Args:
        criterion: A, V or D in closed form; any other criterion through its gradient.
        segment: The segment.

    Returns:
        The step in [0, segment.longest].
    """
    if segment.longest <= 0.0:
        return 0.0
    if isinstance(criterion, (ACriterion, DCriterion, VCriterion)):
        slope = _spectral_slope(criterion, segment)
    else:
        slope = _gradient_slope(criterion, segment)
    return _root_of_decreasing(slope, segment.longest)


def _spectral_slope(criterion: ACriterion | DCriterion | VCriterion, segment: Segment) -> Callable[[float], float]:
    """Slope of the criterion along the segment, by the eigenvalues of the lifted direction."""
    factor = cholesky(segment.information)
    dimension, steps = len(factor), len(segment.mean_change)
    lifted = np.zeros((dimension + steps, dimension + steps))
    reduced, _ = lapack.dsygst(segment.slope, factor, lower=1)  # L^-1 A L^-T, lower triangle
    lifted[:dimension, :dimension] = reduced
    cross = solve_triangular(factor, segment.mean_change.T, lower=True, check_finite=False)
    lifted[dimension:, :dimension] = np.sqrt(segment.episodes) * cross.T
    if isinstance(criterion, DCriterion):
        eigenvalues = np.linalg.eigvalsh(lifted)

        def slope(step: float) -> float:
            scale = 1.0 + step * eigenvalues
            return float((eigenvalues / scale).sum()) if scale.min() > _SINGULAR else -np.inf

        return slope
    eigenvalues, vectors = np.linalg.eigh(lifted)
    target = solve_triangular(factor, criterion.target_factor(dimension), lower=True, check_finite=False)
    projected = vectors[:dimension].T @ target
    weights = eigenvalues * np.einsum("ir,ir->i", projected, projected)

    def trace_slope(step: float) -> float:
        scale = 1.0 + step * eigenvalues
        return float((weights / scale**2).sum()) if scale.min() > _SINGULAR else -np.inf

    return trace_slope


def _gradient_slope(criterion: Criterion, segment: Segment) -> Callable[[float], float]:
    linear, bend = segment.slope, segment.mean_change.T @ segment.mean_change

    def slope(step: float) -> float:
        curvature = criterion.gradient(segment.at(step))
        return float(np.vdot(curvature, linear - 2.0 * step * segment.episodes * bend))

    return slope


def _root_of_decreasing(slope: Callable[[float], float], longest: float) -> float:
    """Maximiser in [0, longest] of a concave function by its slope, which may be -inf near `longest`."""
    if _guarded(slope, 0.0) <= 0.0:
        return 0.0
    low, high, at_high = 0.0, longest, _guarded(slope, longest)
    if at_high >= 0.0:
        return longest
    for _ in range(_MAX_HALVINGS):  # a step to a vertex may end in a singular matrix: move the end off it
        if np.isfinite(at_high):
            return float(brentq(slope, low, high, xtol=1e-15, rtol=8.9e-16, maxiter=200))
        middle = 0.5 * (low + high)
        at_middle = _guarded(slope, middle)
        if at_middle > 0.0:
            low = middle
        else:
            high, at_high = middle, at_middle
    return low


def _guarded(slope: Callable[[float], float], step: float) -> float:
    """Slope, with -inf where the information matrix is singular."""
    try:
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            value = slope(step)
    except SingularInformationError:
        return -np.inf
    return value if np.isfinite(value) else -np.inf
