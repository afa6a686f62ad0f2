"""Newton steps on the weights of a block: by factors of the Hessian on few columns, by products with it on many.

The active-set program of `newton.master` takes a factor for nearly every column that leaves, and from a start with a
dense support hundreds leave: there accelerated projected gradients, a few dozen products, are ten times as fast or
more. These steps are not those that `improve` takes on many tokens: the others move anyway, so they are solved less
far (`_QP_SHARE`), with a new Hessian every time, and a plain backtracking search.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from edpbrl_gym.design.criteria import SingularInformationError
from edpbrl_gym.design.deadline import NEVER, Deadline
from edpbrl_gym.design.exact.block import BlockSpace
from edpbrl_gym.design.solvers.newton.master import centred_gradient, cleaned, improve, restricted_gap
from edpbrl_gym.design.solvers.newton.projected import solve_by_gradients

__all__ = ["newton_steps"]

FloatArray = NDArray[np.float64]

FEW = 300  # columns up to which the Hessian is factored
_QP_SHARE = 0.1  # of the gap, to which the quadratic program of many columns is solved
_ARMIJO = 0.1
_HALVINGS = 30


class _Stored:
    """A Hessian as `solve_by_gradients` wants it."""

    def __init__(self, matrix: FloatArray) -> None:
        self._matrix = matrix
        self.diagonal: FloatArray = np.diag(matrix).copy()

    def product(self, vector: FloatArray) -> FloatArray:
        return np.asarray(self._matrix @ vector)


def newton_steps(
    space: BlockSpace, weights: FloatArray, *, target: float, max_steps: int, deadline: Deadline = NEVER
) -> FloatArray:
    """Newton steps until the gap over the columns is at most `target`.

    Args:
        space: The block on some columns.
        weights: Feasible weights, shape (k,).
        target: Gap to reach.
        max_steps: Steps at most.
        deadline: When to return what has been reached.

    Returns:
        Weights with a larger objective, or the same.
    """
    if len(weights) <= FEW:
        return improve(space, weights, target=target, max_steps=max_steps, deadline=deadline)[0]
    for _ in range(max_steps):
        if deadline.passed:
            break
        gradient, hessian = space.derivatives(weights)
        gradient = centred_gradient(gradient, weights, space.parts)
        gap = restricted_gap(gradient, space.parts)
        if gap <= target:
            break
        curvature = _Stored(hessian)
        tolerance = max(_QP_SHARE * gap, 0.5 * target)
        aim = solve_by_gradients(curvature, gradient, weights, space.parts, tolerance=tolerance, deadline=deadline)
        aim = cleaned(aim, space.parts)
        moved = _searched(space, weights, aim, float(gradient @ (aim - weights)))
        if moved is None:
            break
        weights = moved
    return weights


def _searched(space: BlockSpace, weights: FloatArray, aim: FloatArray, slope: float) -> FloatArray | None:
    """Backtrack from the full step; None if no step raises the objective."""
    value, step = space.value(weights), 1.0
    for _ in range(_HALVINGS):
        if slope <= 0.0:
            return None
        moved = aim if step == 1.0 else weights + step * (aim - weights)
        try:
            reached = space.value(moved)
        except SingularInformationError:  # only without a proper prior
            reached = -np.inf
        if reached > value and reached >= value + _ARMIJO * step * slope:
            return moved
        step /= 2.0
    return None
