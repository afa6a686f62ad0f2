"""A convex quadratic program over a product of simplices by a primal active set."""

from __future__ import annotations

import numpy as np
from scipy.linalg import lapack

from edpbrl_gym._arrays import Booleans, Floats
from edpbrl_gym.design.deadline import NEVER, Deadline

__all__ = ["solve_simplex_qp"]


_JITTER = 1e-10  # relative; equal tokens make the Hessian singular
_PATIENCE = 2  # rounds in which no fewer entries are exchanged
_LARGEST_JITTER = 1e-4  # where cancellation has left it indefinite, more is added, 100 times as much each time


def solve_simplex_qp(
    hessian: Floats,
    gradient: Floats,
    weights: Floats,
    blocks: list[slice],
    *,
    tolerance: float,
    max_factorizations: int = 60,
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
    diagonal = np.einsum("ii->i", hessian)
    size = diagonal + diagonal.mean()
    jitter = _JITTER
    diagonal += jitter * size + np.finfo(float).tiny
    current = weights.copy()
    slope = gradient.copy()  # g - H (v - w), minus the gradient of the objective at v
    free = (weights > 0) | (gradient > _levels(weights, gradient, blocks) + tolerance)
    together = True  # exchange many entries at once, as long as that helps
    for _ in range(max_factorizations):
        if deadline.passed:
            break
        target = minimiser(hessian, slope, current, free, blocks, deadline)
        if target is None:
            if jitter >= _LARGEST_JITTER:
                break
            jitter *= 100.0
            diagonal += jitter * size
            slope = gradient - hessian @ (current - weights)
            continue
        negative = target < 0
        if negative.any():
            found = None
            if together and negative.sum() > max_factorizations:  # more than could be fixed one by one
                found = _exchange(hessian, gradient, weights, current, target, free, blocks, tolerance, deadline)
            if found is not None and _change(current, slope, *found[:2]) < 0:
                current, slope, free = found
            else:
                together = False
                current, slope, free = _restrict(hessian, gradient, weights, current, slope, target, free, blocks)
            continue
        current = target
        slope = gradient - hessian @ (current - weights)
        wrong = ~free & (slope > _levels(current, slope, blocks) + tolerance)
        if not wrong.any():
            break
        free |= wrong
    return current


def _levels(weights: Floats, slope: Floats, blocks: list[slice]) -> Floats:
    """Multiplier of each block's constraint at these weights, for every entry."""
    levels = np.empty_like(slope)
    for block in blocks:
        levels[block] = weights[block] @ slope[block]
    return levels


def _change(start: Floats, slope: Floats, end: Floats, end_slope: Floats) -> float:
    """What the objective changes by between two points, exactly: it is quadratic."""
    return -0.5 * float((slope + end_slope) @ (end - start))


def minimiser(
    hessian: Floats,
    slope: Floats,
    current: Floats,
    free: Booleans,
    blocks: list[slice],
    deadline: Deadline = NEVER,
) -> Floats | None:
    """Minimiser over the free entries, the others as they are (0); None if the Hessian can't be factored.

    The work that it notes is in float32 multiplications of the same time, measured from 50 to 3,000 free entries.
    """
    indices = np.flatnonzero(free)
    deadline.spend(5e6 + 300.0 * len(indices) ** 2 + 0.37 * len(indices) ** 3)
    factor, failed = lapack.dpotrf(hessian[np.ix_(indices, indices)].T, lower=1, overwrite_a=1, clean=0)
    if failed:
        return None
    right = np.zeros((len(indices), len(blocks) + 1), order="F")
    right[:, 0] = slope[indices]
    for number, block in enumerate(blocks):
        right[:, number + 1] = (indices >= block.start) & (indices < block.stop)
    indicators = right[:, 1:].copy()
    solved, _ = lapack.dpotrs(factor, right, lower=1, overwrite_b=1)
    target = current.copy()
    with np.errstate(over="ignore", invalid="ignore"):  # a Hessian of zeros has no minimiser: not finite
        schur = indicators.T @ solved[:, 1:]
        try:
            multipliers = np.linalg.solve(schur, indicators.T @ solved[:, 0] + indicators.T @ current[indices] - 1.0)
        except np.linalg.LinAlgError:
            return None
        target[indices] += solved[:, 0] - solved[:, 1:] @ multipliers
        # large steps along a nearly singular Hessian cancel, and the sums lose digits: once more for what is left
        target[indices] -= solved[:, 1:] @ np.linalg.solve(schur, indicators.T @ target[indices] - 1.0)
    return target if np.isfinite(target).all() else None


def _exchange(
    hessian: Floats,
    gradient: Floats,
    weights: Floats,
    current: Floats,
    target: Floats,
    free: Booleans,
    blocks: list[slice],
    tolerance: float,
    deadline: Deadline,
) -> tuple[Floats, Floats, Booleans] | None:
    """Block principal pivoting (Portugal, Judice and Vicente 1994) from the minimiser; None if it comes to no end.

    All negative entries are fixed at 0 and all whose multiplier has the wrong sign are freed, at once. Nearly equal
    tokens make the Hessian nearly singular and leave by the hundreds: one by one each would cost a factor. Once that no
    longer lowers the number of exchanges, it only fixes, which ends at a feasible point.
    """
    kept, fewest, patience = free.copy(), len(free) + 1, _PATIENCE
    while True:
        target_slope = gradient - hessian @ (target - weights)
        negative = kept & (target < 0)
        if not negative.any():
            return target, target_slope, kept
        kept = kept & ~negative
        if patience:
            wrong = ~kept & ~negative & (target_slope > _levels(target, target_slope, blocks) + tolerance)
            exchanged = int(negative.sum() + wrong.sum())
            patience = patience - 1 if exchanged >= fewest else _PATIENCE
            fewest = min(fewest, exchanged)
            kept |= wrong
        if deadline.passed or not all(kept[block].any() for block in blocks):
            return None
        start = np.where(kept, current, 0.0)
        found = minimiser(hessian, gradient - hessian @ (start - weights), start, kept, blocks, deadline)
        if found is None:
            return None
        target = found


def _restrict(
    hessian: Floats,
    gradient: Floats,
    weights: Floats,
    current: Floats,
    slope: Floats,
    target: Floats,
    free: Booleans,
    blocks: list[slice],
) -> tuple[Floats, Floats, Booleans]:
    """Next point, its slope and its free entries when the minimiser leaves the simplex."""
    negative = target < 0
    projected = np.maximum(target, 0.0)
    for block in blocks:
        projected[block] /= projected[block].sum()
    projected_slope = gradient - hessian @ (projected - weights)
    if _change(current, slope, projected, projected_slope) < 0:
        return projected, projected_slope, free & ~negative
    ratios = current[negative] / (current[negative] - target[negative])
    step = float(ratios.min())
    point = np.maximum(current + step * (target - current), 0.0)
    blocking = np.zeros_like(free)
    blocking[np.flatnonzero(negative)[ratios <= step]] = True
    point[blocking] = 0.0
    for block in blocks:
        point[block] /= point[block].sum()
    return point, gradient - hessian @ (point - weights), free & ~blocking
