"""Newton's method on the weights of a working set, each step a quadratic program over the simplices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from edpbrl_gym._arrays import Floats
from edpbrl_gym.design.criteria import SingularInformationError
from edpbrl_gym.design.deadline import NEVER, Deadline
from edpbrl_gym.design.solvers.newton.projected import solve_by_gradients
from edpbrl_gym.design.solvers.newton.simplex_qp import solve_simplex_qp
from edpbrl_gym.design.solvers.newton.tokens.curvature import Curvature

__all__ = ["ByProducts", "Objective", "centred_gradient", "cleaned", "improve", "restricted_gap", "uniform_weights"]


_SMALLEST = 1e-13  # smaller weights are set to 0
_ARMIJO = 0.1
ROUNDING = 1e-13  # relative, of the objective
_SUSPECT = 1e-6  # relative, of the objective: a smaller slope calls for its condition number
_QP_SHARE = 1e-2  # the quadratic program is solved to this share of the restricted gap


class ByProducts(Protocol):
    """How an objective of many weights is maximised: by products with its Hessian, not by its factors.

    The active-set program of `simplex_qp` takes a factor for nearly every entry that leaves the support; from hundreds
    on accelerated projected gradients (`projected`), a few dozen products, are ten times as fast or more.

    Attributes:
        above: Weights above which products are cheaper.
        share: Of the gap, to which the quadratic program is solved.
    """

    above: float
    share: float

    def at(self, space: Any, weights: Floats, gradient: Floats, gap: float) -> Curvature:
        """Hessian of the negative at weights, where the gradient (up to a constant in every block) has this gap."""
        ...

    def renew(self) -> bool:
        """Whether there is more to know of the Hessian than the last step, which failed, was told."""
        ...


class Objective(Protocol):
    """A concave function of weights on a product of simplices, to be maximised.

    Attributes:
        parts: Entries of each simplex.
        by_products: How many weights are dealt with; None for always by factors.
    """

    parts: list[slice]
    by_products: ByProducts | None

    def condition(self, weights: Floats) -> float:
        """Condition number of what the function is computed from; eps times that is a relative error of its value."""
        ...

    def value(self, weights: Floats) -> float:
        """The function; SingularInformationError where it is minus infinity."""
        ...

    def gradient(self, weights: Floats) -> Floats:
        """Its gradient, shape (k,)."""
        ...

    def derivatives(self, weights: Floats) -> tuple[Floats, Floats]:
        """Its gradient (k,), and the Hessian (k, k) of its negative, which may be overwritten."""
        ...


def improve(
    space: Objective,
    weights: Floats,
    *,
    target: float,
    max_steps: int,
    deadline: Deadline = NEVER,
    observe: Callable[[Floats, float], object] = lambda *_: False,
    gradient_first: bool = False,
    rounding: float = ROUNDING,
) -> tuple[Floats, float, float]:
    """Newton steps until the gap over the working set is at most `target`.

    Args:
        space: The objective on the working set.
        weights: Feasible weights, shape (k,).
        target: Gap to reach.
        max_steps: Steps at most.
        deadline: When to return what has been reached; the steps look at it, and what they solve.
        observe: Called with the weights and their value after every step; a true return value ends the steps.
        gradient_first: Whether to look at the gradient alone after every step, which may save the last Hessian.
        rounding: Relative, of the values; among smaller changes the slope decides on a step.

    Returns:
        The weights, their value in the space, and the size of the last step (0 if none).
    """
    value, step = space.value(weights), 0.0
    products = space.by_products
    if products is not None and len(weights) <= products.above:
        products = None
    for number in range(max_steps):
        if deadline.passed:
            break
        if gradient_first and number:
            gradient = centred_gradient(space.gradient(weights), weights, space.parts)
            if restricted_gap(gradient, space.parts) <= target:
                break
        if products is not None:
            gradient = centred_gradient(space.gradient(weights), weights, space.parts)
            gap = restricted_gap(gradient, space.parts)
            if gap <= target:
                break
            curvature = products.at(space, weights, gradient, gap)
            tolerance = max(products.share * gap, 0.5 * target)
            aim = solve_by_gradients(curvature, gradient, weights, space.parts, tolerance=tolerance, deadline=deadline)
        else:
            gradient, hessian = space.derivatives(weights)
            gradient = centred_gradient(gradient, weights, space.parts)
            gap = restricted_gap(gradient, space.parts)
            if gap <= target:
                break
            tolerance = max(_QP_SHARE * gap, 0.5 * target) / len(space.parts)
            aim = solve_simplex_qp(hessian, gradient, weights, space.parts, tolerance=tolerance, deadline=deadline)
        improvement = _search(space, weights, value, aim, gradient, deadline, rounding)
        if improvement is None:
            if products is not None and products.renew():
                continue
            break
        weights, value, step = improvement
        if observe(weights, value):
            break
    return weights, value, step


def restricted_gap(gradient: Floats, parts: list[slice]) -> float:
    """Sum over the blocks of the largest entry of a centred gradient."""
    return float(sum(max(0.0, float(gradient[part].max())) for part in parts))


def centred_gradient(gradient: Floats, weights: Floats, parts: list[slice]) -> Floats:
    """Gradient less its mean in every block: changes of weights sum to 0 only to rounding, and g may be large."""
    result = gradient.copy()
    for part in parts:
        result[part] -= weights[part] @ gradient[part]
    return result


def uniform_weights(parts: list[slice]) -> Floats:
    """The same weight for everything in a block, 1 in all."""
    sizes = [part.stop - part.start for part in parts]
    return np.repeat(1.0 / np.array(sizes), sizes)


def cleaned(weights: Floats, parts: list[slice]) -> Floats:
    """Weights without the smallest ones, summing to 1 in every block."""
    result = np.where(weights < _SMALLEST, 0.0, weights)
    for part in parts:
        result[part] /= result[part].sum()
    return result


def _search(
    space: Objective,
    weights: Floats,
    value: float,
    aim: Floats,
    gradient: Floats,
    deadline: Deadline,
    rounding: float,
) -> tuple[Floats, float, float] | None:
    """Backtrack from the full step; None if no step raises the objective, or the time is up before one is found."""
    aim = cleaned(aim, space.parts)
    slope = float(gradient @ (aim - weights))
    if slope <= 0:
        return None
    size = max(1.0, abs(value))
    if slope <= _SUSPECT * size:  # all that is to be gained may be less than the value errs by
        rounding = max(rounding, float(np.finfo(np.float64).eps) * space.condition(weights))
    step = 1.0
    for _ in range(40):
        if step < 1.0 and deadline.passed:
            return None
        candidate = aim if step == 1.0 else cleaned(weights + step * (aim - weights), space.parts)
        try:
            new_value = space.value(candidate)
        except SingularInformationError:  # only without a proper prior
            step /= 4
            continue
        rise = new_value - value
        if rise >= _ARMIJO * step * slope and rise > 0:
            return candidate, new_value, step
        # the objective is flat to rounding long before the gap is small: then the slope decides, as in the
        # approximate Wolfe condition of Hager and Zhang (2005)
        if new_value >= value - rounding * size:
            end = float(centred_gradient(space.gradient(candidate), candidate, space.parts) @ (aim - weights))
            if end >= -(1.0 - 2.0 * _ARMIJO) * slope:
                return candidate, new_value, step
        # where the parabola through what is known has its top
        step *= float(np.clip(0.5 * step * slope / (step * slope - rise), 0.1, 0.5)) if np.isfinite(rise) else 0.1
    return None
