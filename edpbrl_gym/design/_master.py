"""The restricted master of the working-set solver: Newton on the weights of a few tokens.

With I = Lambda + sum_i c w_i z_i z_i', z_i = x_i - m_b (m_b the mean of its block b), I = L L' and V = B B',

    K_ij = z_i' I^-1 z_j,   A_ij = z_i' I^-1 V I^-1 z_j,   S_ij = [same block] / c,
    D:     gradient c K_ii,  Hessian of -s  c c' (K + S) o (K + S)
    A, V:  gradient c A_ii,  Hessian of -s  2 c c' (K + S) o A

(o elementwise). These are the derivatives of the lifted problem, in which s is concave in the weights and the mean
does not appear: phi~ = (phi; e_b) with M~ = sum_i c w_i phi~_i phi~_i' + diag(Lambda, 0) has (M~^-1)_11 = I^-1.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack, solve_triangular

from edpbrl_gym.design._blocks import TokenBlocks
from edpbrl_gym.design._simplex_qp import solve_simplex_qp
from edpbrl_gym.design.criteria import (
    ACriterion,
    DCriterion,
    SingularInformationError,
    VCriterion,
    cholesky,
)
from edpbrl_gym.design.problem import DesignProblem

__all__ = ["Master", "Point"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.intp]

_SMALLEST = 1e-13  # smaller weights are set to 0
_ARMIJO = 0.1
_ROUNDING = 1e-13  # relative, of the objective
_QP_SHARE = 1e-2  # the quadratic program is solved to this share of the restricted gap


@dataclass(frozen=True)
class Point:
    """Weights on a working set and what the information matrix at them is.

    Attributes:
        tokens: Working set, sorted, shape (k,).
        weights: Non-negative, sum to 1 in every block, shape (k,).
        features: Centred features of the working set, shape (k, d).
        shifted: Features less the mean of their block under the weights, shape (k, d).
        means: These means, shape (B, d).
        factor: Lower Cholesky factor L of I, shape (d, d).
        half: L^-1 B for A and V, shape (d, r); None for D.
        value: s(I).
    """

    tokens: IntArray
    weights: FloatArray
    features: FloatArray
    shifted: FloatArray
    means: FloatArray
    factor: FloatArray
    half: FloatArray | None
    value: float

    @property
    def support(self) -> IntArray:
        """Tokens with mass."""
        return self.tokens[self.weights > 0]


class Master:
    """Newton's method on the weights of a working set.

    Args:
        problem: The problem; criterion A, V or D.
        blocks: Its blocks.
    """

    def __init__(self, problem: DesignProblem, blocks: TokenBlocks) -> None:
        self._prior = problem.prior
        self._blocks = blocks
        self._target: FloatArray | None = None
        if isinstance(problem.criterion, (ACriterion, VCriterion)):
            self._target = problem.criterion.target_factor(problem.dimension)
        elif not isinstance(problem.criterion, DCriterion):
            raise ValueError(f"Expected the criterion A, V or D, got {problem.criterion.name!r}.")

    def point(self, tokens: IntArray, weights: FloatArray, features: FloatArray | None = None) -> Point:
        """Evaluate the objective at weights on sorted tokens; SingularInformationError where it is infinite."""
        rows = self._blocks.centred(tokens) if features is None else features
        means = np.stack([weights[own] @ rows[own] for own in self._slices(tokens)])
        block = self._blocks.block[tokens]
        shifted = rows - means[block]
        used = weights > 0
        root = shifted[used] * np.sqrt(self._blocks.scale[block[used]] * weights[used])[:, None]
        factor = cholesky(root.T @ root + self._prior)
        half = None
        if self._target is None:
            value = 2.0 * float(np.log(np.diag(factor)).sum())
        else:
            half = solve_triangular(factor, self._target, lower=True, check_finite=False)
            value = -float(np.vdot(half, half))
        return Point(tokens, weights, rows, shifted, means, factor, half, value)

    def extended(self, point: Point, tokens: IntArray) -> Point:
        """The same weights on another sorted working set that holds all tokens with mass."""
        weights = np.zeros(len(tokens))
        weights[np.searchsorted(tokens, point.support)] = point.weights[point.weights > 0]
        features = self._blocks.centred(tokens)
        shifted = features - point.means[self._blocks.block[tokens]]
        return Point(tokens, weights, features, shifted, point.means, point.factor, point.half, point.value)

    def score_factor(self, point: Point) -> FloatArray:
        """F with score c ||F (x - m)||^2: L^-1 for D, B' I^-1 for A and V (its triangular factor if that is less)."""
        inverse, _ = lapack.dtrtri(point.factor, lower=1)
        inverse = np.tril(inverse)
        if point.half is None:
            return inverse
        factor = np.asarray(point.half.T @ inverse)
        if 2 * factor.shape[0] > factor.shape[1]:
            factor = np.asarray(np.linalg.qr(factor, mode="r"), dtype=np.float64)
        return factor

    def gradient(self, point: Point) -> FloatArray:
        """Scores of the working set in float64, shape (k,)."""
        return self._derivatives(point, hessian=False)[0]

    def improve(self, point: Point, *, target: float, max_steps: int) -> tuple[Point, float]:
        """Newton steps until the gap over the working set is at most `target`.

        Returns:
            The last point and the size of its last step (0 if none).
        """
        slices = self._slices(point.tokens)
        scale = self._blocks.scale
        step = 0.0
        for _ in range(max_steps):
            gradient, hessian = self._derivatives(point, hessian=True)
            gradient = _centred(gradient, point.weights, slices)
            gap = sum(max(0.0, float(gradient[own].max())) for own in slices)
            if gap <= target:
                return point, step
            tolerance = max(_QP_SHARE * gap, 0.5 * target) / len(scale)
            aim = solve_simplex_qp(hessian, gradient, point.weights, slices, tolerance=tolerance)
            found = self._search(point, aim, gradient, slices)
            if found is None:
                return point, step
            point, step = found
        return point, step

    def _derivatives(self, point: Point, *, hessian: bool) -> tuple[FloatArray, FloatArray]:
        """Gradient (k,) and Hessian of -s (k, k) over the working set; an empty array where none is asked for."""
        scale = self._blocks.scale[self._blocks.block[point.tokens]]
        solved = solve_triangular(point.factor, point.shifted.T, lower=True, check_finite=False)
        scored = solved if point.half is None else point.half.T @ solved
        gradient = scale * np.einsum("rk,rk->k", scored, scored)
        if not hessian:
            return gradient, np.empty((0, 0))
        inner = solved.T @ solved
        for number, own in enumerate(self._slices(point.tokens)):
            inner[own, own] += 1.0 / self._blocks.scale[number]
        if point.half is None:
            inner *= inner
        else:
            inner *= 2.0 * (scored.T @ scored)
        if scale.min() == scale.max():
            inner *= scale[0] ** 2
        else:
            inner *= scale[:, None]
            inner *= scale
        return gradient, inner

    def _search(
        self, point: Point, aim: FloatArray, gradient: FloatArray, slices: list[slice]
    ) -> tuple[Point, float] | None:
        """Backtrack from the full step; None if no step raises the objective."""
        aim = _cleaned(aim, slices)
        slope = float(gradient @ (aim - point.weights))
        if slope <= 0:
            return None
        step = 1.0
        for _ in range(40):
            weights = aim if step == 1.0 else _cleaned(point.weights + step * (aim - point.weights), slices)
            try:
                moved = self.point(point.tokens, weights, point.features)
            except SingularInformationError:  # only without a proper prior
                step /= 4
                continue
            if moved.value >= point.value + _ARMIJO * step * slope and moved.value > point.value:
                return moved, step
            # the objective is flat to rounding long before the gap is small: then the slope decides, as in the
            # approximate Wolfe condition of Hager and Zhang (2005)
            if moved.value >= point.value - _ROUNDING * max(1.0, abs(point.value)):
                end = float(_centred(self.gradient(moved), moved.weights, slices) @ (aim - point.weights))
                if end >= -(1.0 - 2.0 * _ARMIJO) * slope:
                    return moved, step
            step /= 2
        return None

    def _slices(self, tokens: IntArray) -> list[slice]:
        bounds = np.searchsorted(tokens, self._blocks.starts)
        return [slice(int(begin), int(end)) for begin, end in zip(bounds[:-1], bounds[1:], strict=True)]


def _centred(gradient: FloatArray, weights: FloatArray, slices: list[slice]) -> FloatArray:
    """Gradient less its mean in every block: changes of weights sum to 0 only to rounding, and g may be large."""
    result = gradient.copy()
    for own in slices:
        result[own] -= weights[own] @ gradient[own]
    return result


def _cleaned(weights: FloatArray, slices: list[slice]) -> FloatArray:
    """Weights without the smallest ones, summing to 1 in every block."""
    result = np.where(weights < _SMALLEST, 0.0, weights)
    for own in slices:
        result[own] /= result[own].sum()
    return result
