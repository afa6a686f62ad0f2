"""Newton's method on the weights of a working set: in every step a quadratic program over the simplices.

Of few weights its solution comes from a primal active set (`solve_simplex_qp`), which needs a factor of the Hessian
for nearly every entry that leaves the support; of many from products with the Hessian (`curvature`), which from
hundreds of weights on are ten times as fast or more.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.linalg import lapack

from edpbrl_gym._arrays import Booleans, Floats
from edpbrl_gym.design.criteria import SingularInformationError
from edpbrl_gym.design.problem import NEVER, Deadline
from edpbrl_gym.design.solvers.newton.objective import Objective

__all__ = ["centred_gradient", "maximise", "solve_simplex_qp"]


_SMALLEST = 1e-13  # smaller weights are set to 0
_ARMIJO = 0.1  # share of the rise that the slope promises, which a step must reach
_ROUNDING = 1e-13  # relative, of the objective: among smaller changes the slope decides on a step
_ROUNDING_SINGLE = 1e-6  # the same in float32
_SUSPECT = 1e-6  # relative, of the objective: a smaller slope calls for its condition number
_QP_SHARE = 1e-2  # the quadratic program is solved to this share of the restricted gap
_PRODUCTS_SHARE = 0.1  # the same by products
_TRIALS = 40  # of steps in one search

_JITTER = 1e-10  # relative, on the Hessian's diagonal; equal tokens make it singular
_LARGEST_JITTER = 1e-4  # where cancellation has left it indefinite, more is added, 100 times as much each time
_FACTORS = 60  # Cholesky factors of a quadratic program at most
_PATIENCE = 2  # rounds in which no fewer entries are exchanged


def maximise(
    objective: Objective,
    weights: Floats,
    *,
    target: float,
    max_steps: int,
    deadline: Deadline = NEVER,
    observe: Callable[[Floats, float], object] = lambda *_: False,
) -> tuple[Floats, float, float]:
    """Newton steps until the gap over the working set is at most `target`.

    Args:
        objective: The objective on the working set.
        weights: Feasible weights, shape (k,).
        target: Gap to reach.
        max_steps: Steps at most.
        deadline: When to return what has been reached; the steps look at it, and what they solve.
        observe: Called with the weights and their value after every step; a true return value ends the steps.

    Returns:
        The weights, their value in the objective, and the size of the last step (0 if none).
    """
    value, step = objective.value(weights), 0.0
    parts, curvature = objective.parts, objective.curvature
    for _ in range(max_steps):
        if deadline.passed:
            break
        if curvature is not None:
            gradient, hessian = objective.gradient(weights), None
        else:
            gradient, hessian = objective.derivatives(weights)
        gradient = centred_gradient(gradient, weights, parts)
        gap = sum(max(0.0, float(gradient[part].max())) for part in parts)
        if gap <= target:
            break
        if curvature is not None:
            tolerance = max(_PRODUCTS_SHARE * gap, 0.5 * target)
            aim = curvature.step(objective, weights, gradient, gap, tolerance=tolerance, deadline=deadline)
        else:
            assert hessian is not None
            tolerance = max(_QP_SHARE * gap, 0.5 * target) / len(parts)
            aim = solve_simplex_qp(hessian, gradient, weights, parts, tolerance=tolerance, deadline=deadline)
        improvement = _search(objective, weights, value, aim, gradient, deadline)
        if improvement is None:
            if curvature is not None and curvature.renew():
                continue
            break
        weights, value, step = improvement
        if observe(weights, value):
            break
    return weights, value, step


def centred_gradient(gradient: Floats, weights: Floats, parts: list[slice]) -> Floats:
    """Gradient less its mean in every block: changes of weights sum to 0 only to rounding, and g may be large."""
    result = gradient.copy()
    for part in parts:
        result[part] -= weights[part] @ gradient[part]
    return result


def _cleaned(weights: Floats, parts: list[slice]) -> Floats:
    """Weights without the smallest ones, summing to 1 in every block."""
    result = np.where(weights < _SMALLEST, 0.0, weights)
    for part in parts:
        result[part] /= result[part].sum()
    return result


def _search(
    objective: Objective, weights: Floats, value: float, aim: Floats, gradient: Floats, deadline: Deadline
) -> tuple[Floats, float, float] | None:
    """Backtrack from the full step; None if no step raises the objective, or the time is up before one is found."""
    parts = objective.parts
    aim = _cleaned(aim, parts)
    slope = float(gradient @ (aim - weights))
    if slope <= 0:
        return None
    rounding = _ROUNDING_SINGLE if objective.dtype == np.float32 else _ROUNDING
    size = max(1.0, abs(value))
    if slope <= _SUSPECT * size:  # all that is to be gained may be less than the value errs by
        rounding = max(rounding, float(np.finfo(np.float64).eps) * objective.condition(weights))
    step = 1.0
    for _ in range(_TRIALS):
        if step < 1.0 and deadline.passed:
            return None
        candidate = aim if step == 1.0 else _cleaned(weights + step * (aim - weights), parts)
        try:
            new_value = objective.value(candidate)
        except SingularInformationError:  # only without a proper prior
            step /= 4
            continue
        rise = new_value - value
        if rise >= _ARMIJO * step * slope and rise > 0:
            return candidate, new_value, step
        # the objective is flat to rounding long before the gap is small: then the slope decides, as in the
        # approximate Wolfe condition of Hager and Zhang (2005)
        if new_value >= value - rounding * size:
            end = float(centred_gradient(objective.gradient(candidate), candidate, parts) @ (aim - weights))
            if end >= -(1.0 - 2.0 * _ARMIJO) * slope:
                return candidate, new_value, step
        # where the parabola through what is known has its top
        step *= float(np.clip(0.5 * step * slope / (step * slope - rise), 0.1, 0.5)) if np.isfinite(rise) else 0.1
    return None


def solve_simplex_qp(
    hessian: Floats,
    gradient: Floats,
    weights: Floats,
    blocks: list[slice],
    *,
    tolerance: float,
    max_factorizations: int = _FACTORS,
    deadline: Deadline = NEVER,
) -> Floats:
    """Minimise -g'(v - w) + (v - w)' H (v - w) / 2 over v >= 0 whose entries sum to 1 in every block.

    Each pass solves the equality-constrained program on the free variables with one Cholesky factor. If the solution
    has negative entries, all of them are fixed at 0 at once when the projected point is better, else only those that
    block the step. At a minimiser over the free variables those fixed ones whose multiplier has the wrong sign are
    freed. The objective never rises, so a program cut short still returns a feasible point at least as good as w.

    Args:
        hessian: H, symmetric positive semidefinite, shape (k, k); its diagonal is enlarged in place (relative 1e-10, or
            more where rounding has made it indefinite).
        gradient: g, shape (k,).
        weights: w, feasible, shape (k,).
        blocks: Entries of each block, in order.
        tolerance: Largest wrong-signed multiplier to accept.
        max_factorizations: Cholesky factors at most.
        deadline: When to be cut short.

    Returns:
        v, shape (k,), feasible.
    """
    program = _Program(hessian, gradient, weights, blocks, tolerance, deadline)
    diagonal = np.einsum("ii->i", hessian)
    size = diagonal + diagonal.mean()
    jitter = _JITTER
    diagonal += jitter * size + np.finfo(float).tiny
    current = weights.copy()
    slope = gradient.copy()  # g - H (v - w), minus the gradient of the objective at v
    free = (weights > 0) | program.wrong(weights, gradient)
    together = True  # exchange many entries at once, as long as that helps
    for _ in range(max_factorizations):
        if deadline.passed:
            break
        target = program.minimiser(slope, current, free)
        if target is None:
            if jitter >= _LARGEST_JITTER:
                break
            jitter *= 100.0
            diagonal += jitter * size
            slope = program.slope(current)
            continue
        negative = target < 0
        if negative.any():
            found = None
            if together and negative.sum() > max_factorizations:  # more than could be fixed one by one
                found = program.exchanged(current, target, free)
            if found is not None and _change(current, slope, *found[:2]) < 0:
                current, slope, free = found
            else:
                together = False
                current, slope, free = program.restricted(current, slope, target, free)
            continue
        current = target
        slope = program.slope(current)
        wrong = ~free & program.wrong(current, slope)
        if not wrong.any():
            break
        free |= wrong
    return current


class _Program:
    """The data of a quadratic program, as in `solve_simplex_qp`, and the moves that its active set makes."""

    def __init__(
        self,
        hessian: Floats,
        gradient: Floats,
        weights: Floats,
        blocks: list[slice],
        tolerance: float,
        deadline: Deadline,
    ) -> None:
        self._hessian, self._gradient, self._weights = hessian, gradient, weights
        self._blocks, self._tolerance, self._deadline = blocks, tolerance, deadline

    def slope(self, point: Floats) -> Floats:
        """Minus the gradient at a point."""
        return np.asarray(self._gradient - self._hessian @ (point - self._weights))

    def wrong(self, point: Floats, slope: Floats) -> Booleans:
        """Entries whose multiplier has the wrong sign at a point, if they are fixed at 0."""
        levels = np.empty_like(slope)
        for block in self._blocks:
            levels[block] = point[block] @ slope[block]
        return np.asarray(slope > levels + self._tolerance)

    def minimiser(self, slope: Floats, current: Floats, free: Booleans) -> Floats | None:
        """Minimiser over the free entries, the others as they are (0); None if the Hessian can't be factored."""
        indices = np.flatnonzero(free)
        factor, failed = lapack.dpotrf(self._hessian[np.ix_(indices, indices)].T, lower=1, overwrite_a=1, clean=0)
        if failed:
            return None
        right = np.zeros((len(indices), len(self._blocks) + 1), order="F")
        right[:, 0] = slope[indices]
        for number, block in enumerate(self._blocks):
            right[:, number + 1] = (indices >= block.start) & (indices < block.stop)
        indicators = right[:, 1:].copy()
        solved, _ = lapack.dpotrs(factor, right, lower=1, overwrite_b=1)
        target = current.copy()
        with np.errstate(over="ignore", invalid="ignore"):  # a Hessian of zeros has no minimiser: not finite
            schur = indicators.T @ solved[:, 1:]
            missing = indicators.T @ solved[:, 0] + indicators.T @ current[indices] - 1.0
            try:
                multipliers = np.linalg.solve(schur, missing)
            except np.linalg.LinAlgError:
                return None
            target[indices] += solved[:, 0] - solved[:, 1:] @ multipliers
            # large steps along a nearly singular Hessian cancel, and the sums lose digits: once more for what is left
            target[indices] -= solved[:, 1:] @ np.linalg.solve(schur, indicators.T @ target[indices] - 1.0)
        return target if np.isfinite(target).all() else None

    def exchanged(self, current: Floats, target: Floats, free: Booleans) -> tuple[Floats, Floats, Booleans] | None:
        """Block principal pivoting (Portugal, Judice and Vicente 1994) from the minimiser; None if it comes to no end.

        All negative entries are fixed at 0 and all whose multiplier has the wrong sign are freed, at once. Nearly equal
        tokens make the Hessian nearly singular and leave by the hundreds: one by one each would cost a factor. Once
        that no longer lowers the number of exchanges, it only fixes, which ends at a feasible point.
        """
        kept, fewest, patience = free.copy(), len(free) + 1, _PATIENCE
        while True:
            slope = self.slope(target)
            negative = kept & (target < 0)
            if not negative.any():
                return target, slope, kept
            kept = kept & ~negative
            if patience:
                wrong = ~kept & ~negative & self.wrong(target, slope)
                exchanges = int(negative.sum() + wrong.sum())
                patience = patience - 1 if exchanges >= fewest else _PATIENCE
                fewest = min(fewest, exchanges)
                kept |= wrong
            if self._deadline.passed or not all(kept[block].any() for block in self._blocks):
                return None
            start = np.where(kept, current, 0.0)
            found = self.minimiser(self.slope(start), start, kept)
            if found is None:
                return None
            target = found

    def restricted(
        self, current: Floats, slope: Floats, target: Floats, free: Booleans
    ) -> tuple[Floats, Floats, Booleans]:
        """Next point, its slope and its free entries when the minimiser leaves the simplex."""
        negative = target < 0
        projected = np.maximum(target, 0.0)
        for block in self._blocks:
            projected[block] /= projected[block].sum()
        projected_slope = self.slope(projected)
        if _change(current, slope, projected, projected_slope) < 0:
            return projected, projected_slope, free & ~negative
        ratios = current[negative] / (current[negative] - target[negative])
        step = float(ratios.min())
        point = np.maximum(current + step * (target - current), 0.0)
        blocking = np.zeros_like(free)
        blocking[np.flatnonzero(negative)[ratios <= step]] = True
        point[blocking] = 0.0
        for block in self._blocks:
            point[block] /= point[block].sum()
        return point, self.slope(point), free & ~blocking


def _change(start: Floats, slope: Floats, end: Floats, end_slope: Floats) -> float:
    """What the quadratic objective changes by between two points, exactly."""
    return -0.5 * float((slope + end_slope) @ (end - start))
