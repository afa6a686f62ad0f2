"""A convex quadratic program over a product of simplices by accelerated projected gradients, for many variables."""

from __future__ import annotations

import numpy as np

from edpbrl_gym._arrays import Floats
from edpbrl_gym.design.deadline import NEVER, Deadline
from edpbrl_gym.design.solvers.newton.tokens.curvature import Curvature

__all__ = ["project", "solve_by_gradients"]


_POWER_STEPS = 4
_SMALLEST_CURVATURE = 1e-10  # of the largest entry of the gradient
_MARGIN = 1.15  # of the largest eigenvalue over its estimate
# a step beside its product, in float32 multiplications of the same time, measured from 8 to 5,000 variables
_STEP = 1.5e6
_ENTRY = 2.5e3  # a variable of it


def solve_by_gradients(
    curvature: Curvature,
    gradient: Floats,
    weights: Floats,
    parts: list[slice],
    *,
    tolerance: float,
    max_products: int = 60,
    deadline: Deadline = NEVER,
) -> Floats:
    """Minimise q(v) = -g'(v - w) + (v - w)' H (v - w) / 2 over v >= 0 whose entries sum to 1 in every block.

    Nesterov's accelerated gradient method in the metric of the diagonal of H, restarted where it would go uphill
    (O'Donoghue and Candes, 2015); the projection is exact.

    Args:
        curvature: H.
        gradient: g, shape (k,).
        weights: w, feasible, shape (k,).
        parts: Entries of each block.
        tolerance: Stop at a gap max_v <-q', v - v_now> of this.
        max_products: Products with H at most.
        deadline: When to be cut short.

    Returns:
        v, feasible, with q(v) <= q(w) = 0.
    """
    steepest = float(np.abs(gradient).max())
    if steepest == 0.0:
        return weights.copy()
    # where H vanishes the gradient alone decides: a step to a vertex, in numbers that do not overflow
    diagonal = curvature.diagonal + 1e-7 * curvature.diagonal.mean() + _SMALLEST_CURVATURE * steepest
    largest = _MARGIN * largest_eigenvalue(curvature, diagonal, parts)
    change, product = np.zeros_like(weights), np.zeros_like(weights)  # v - w and H (v - w)
    last, last_product = change, product
    momentum = 1.0
    for _ in range(max_products):
        if deadline.passed:
            break
        following = 0.5 * (1.0 + np.sqrt(1.0 + 4.0 * momentum**2))
        share = (momentum - 1.0) / following
        point, point_product = change + share * (change - last), product + share * (product - last_product)
        slope = gradient - point_product  # minus the derivative of q
        candidate = project(weights + point + slope / (largest * diagonal), diagonal, parts) - weights
        candidate_product = curvature.product(candidate)
        deadline.spend(curvature.work + _STEP + _ENTRY * len(weights))
        step = candidate - point
        bend, bound = float(step @ (candidate_product - point_product)), float(step @ (diagonal * step))
        if bend > largest * bound * (1.0 + 1e-6):  # the estimate of the largest eigenvalue was too small
            largest = 1.05 * bend / bound
            continue
        if share > 0.0 and float(slope @ (candidate - change)) < 0:
            momentum, last, last_product = 1.0, change, product
            continue
        momentum = following
        last, last_product, change, product = change, product, candidate, candidate_product
        residual = gradient - product
        gap = sum(float(residual[part].max() - (weights[part] + change[part]) @ residual[part]) for part in parts)
        if gap <= tolerance:
            break
    if float(change @ (0.5 * product - gradient)) > 0:
        return weights
    return np.asarray(np.maximum(weights + change, 0.0))


def project(point: Floats, diagonal: Floats, parts: list[slice]) -> Floats:
    """The closest point of the simplices in the metric of a diagonal: v_i = max(0, p_i - nu / h_i), exactly."""
    result = np.empty_like(point)
    for part in parts:
        values, inverse = point[part], 1.0 / diagonal[part]
        edges = values * diagonal[part]  # the value of nu at which an entry vanishes
        order = np.argsort(-edges)
        levels = (np.cumsum(values[order]) - 1.0) / np.cumsum(inverse[order])
        count = max(1, int(np.count_nonzero(levels < edges[order])))
        projection = (edges - levels[count - 1]) * inverse
        # once more, now among numbers of at most about 1: sums of a distant point lose the 1
        positive = projection > 0
        projection -= (projection[positive].sum() - 1.0) / inverse[positive].sum() * inverse
        result[part] = np.maximum(projection, 0.0)
    return result


def largest_eigenvalue(curvature: Curvature, diagonal: Floats, parts: list[slice]) -> float:
    """Largest eigenvalue of the scaled H on changes that sum to 0 in every block, by power iteration (from below)."""
    root = np.sqrt(diagonal)
    vector = np.random.default_rng(0).standard_normal(len(diagonal))
    value = 1.0
    for _ in range(_POWER_STEPS):
        for part in parts:  # orthogonal to D^-1/2 1, the constraint in scaled coordinates
            normal = 1.0 / root[part]
            vector[part] -= normal * (normal @ vector[part]) / (normal @ normal)
        length = float(np.linalg.norm(vector))
        if length == 0.0:  # H v = 0, or no change is feasible
            break
        vector = curvature.product(vector / length / root) / root
        value = float(np.linalg.norm(vector))
    return max(value, 1.0)
