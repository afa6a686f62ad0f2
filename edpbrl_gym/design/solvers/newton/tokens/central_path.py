"""Many tokens in few dimensions by an interior point on the design problem itself.

The Hessian on k tokens has no more than d (d + 1) / 2 + B d directions: with y = L^-1 z and orthogonal axes in which
the scores are sum_i p_i y_i^2 (D: p = 1), it is

    H = c c' [ f sum_{i <= j} m_ij (y_i y_j)(y_i y_j)' + (2 / c) sum_i p_i y_i y_i' within a block ],
    m_ii = p_i, m_ij = p_i + p_j, f = 1 for D and 2 for A and V,

less what vanishes on changes that sum to 0 in every block (`space`). So a Newton step on the central path takes one
factor of that many rows, whatever the number of tokens, and some ten lead to the optimum also where it is a choice
among thousands of tokens that are nearly as good, which working sets find a few at a time.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import DTypeLike, NDArray

from edpbrl_gym._arrays import Floats
from edpbrl_gym.design.criteria import SingularInformationError
from edpbrl_gym.design.deadline import NEVER, Deadline
from edpbrl_gym.design.solvers.newton.interior import LowRankHessian, follow_central_path
from edpbrl_gym.design.solvers.newton.master import centred_gradient, cleaned, restricted_gap
from edpbrl_gym.design.solvers.newton.tokens.feature_space import FeatureSpace

__all__ = ["hessian_directions", "solve_on_central_path"]


_MAX_FACTORS = 40
_SINGLE = 3e3  # of S' H S beside the identity (`LowRankHessian`), from which on float32 hides the identity


def solve_on_central_path(
    space: FeatureSpace,
    weights: Floats,
    *,
    target: float,
    deadline: Deadline = NEVER,
    observe: Callable[[Floats, float], object] = lambda *_: False,
) -> tuple[Floats, float]:
    """Weights on a working set whose gap there is at most `target`, if that can be reached.

    Args:
        space: The objective on the working set, every block of which has tokens.
        weights: Positive weights to begin with, shape (k,).
        target: Gap to reach.
        deadline: When to return the best so far.
        observe: Called with the best weights so far and their value after every step that found better ones; a true
            return value ends the steps.

    Returns:
        The weights with the smallest gap, shape (k,), and their value in the space.

    Raises:
        SingularInformationError: If the first information matrix is singular, or too nearly for float64.
    """
    program = _Program(space, weights, target, observe)
    sizes = np.array([part.stop - part.start for part in space.parts])
    try:
        follow_central_path(program, weights, sizes, np.ones(len(sizes)), deadline=deadline, max_factors=_MAX_FACTORS)
    except SingularInformationError:  # on the way: the best so far is regular
        pass
    best = cleaned(program.weights, space.parts)
    return best, space.value(best)


class _Program:
    """The design problem on a working set, for `follow_central_path`; keeps the weights with the smallest gap."""

    def __init__(
        self, space: FeatureSpace, weights: Floats, target: float, observe: Callable[[Floats, float], object]
    ) -> None:
        self._space, self._target, self._observe = space, target, observe
        self._kind: DTypeLike = np.float32
        self._gap = np.inf
        self._stopped = False
        self._hessian: LowRankHessian | None = None
        self._take(weights)

    @property
    def hessian(self) -> LowRankHessian:
        """See `Program`."""
        if self._hessian is None:
            self._hessian = LowRankHessian(hessian_directions(self._space, self._at, self._kind))
        return self._hessian

    def move(self, point: Floats, change_product: Floats) -> None:
        """See `Program`."""
        if self.hessian.largest > _SINGLE:
            self._kind = np.float64
        weights = point.copy()
        for part in self._space.parts:
            weights[part] /= weights[part].sum()
        self._take(weights)
        if self.weights is weights:
            self._stopped = bool(self._observe(weights, self._space.value(weights)))

    def enough(self, point: Floats, left: float) -> bool:
        """See `Program`."""
        return self._stopped or self._gap <= self._target

    def _take(self, weights: Floats) -> None:
        space = self._space
        self._at, self._hessian = weights, None
        self.slope = space.gradient(weights)
        gap = restricted_gap(centred_gradient(self.slope, weights, space.parts), space.parts)
        if gap < self._gap:
            self.weights, self._gap = weights, gap


def hessian_directions(space: FeatureSpace, weights: Floats, kind: DTypeLike) -> NDArray:
    """Z with H = Z Z', shape (k, r)."""
    solved, scores = space.principal(weights)
    solved = solved.astype(kind, copy=False)
    size, dimension = solved.shape
    factor = 1.0 if space.is_d else 2.0
    pairs = np.sqrt(factor * (scores[:, None] + scores))
    np.fill_diagonal(pairs, np.sqrt(factor * scores))
    pairs, within = pairs.astype(kind), np.sqrt(2.0 * scores)
    columns = np.zeros((dimension * (dimension + 1) // 2 + len(space.parts) * dimension, size), dtype=kind)
    axes = np.ascontiguousarray(solved.T)
    scaled = axes * space.scale.astype(kind)
    begin = 0
    for axis in range(dimension):
        end = begin + dimension - axis
        np.multiply(axes[axis:], scaled[axis], out=columns[begin:end])
        columns[begin:end] *= pairs[axis, axis:, None]
        begin = end
    for part in space.parts:
        end = begin + dimension
        columns[begin:end, part] = scaled[:, part] * (within / np.sqrt(space.scale[part.start])).astype(kind)[:, None]
        begin = end
    return columns.T
