"""Many convex quadratic programs over products of simplices at once, by accelerated projected gradients.

The method of `newton.projected` on stacks of small dense Hessians: some twenty products with them, which cost less than
one factorisation and run in float32.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from edpbrl_gym.design.deadline import Deadline
from edpbrl_gym.design.solvers.batch.arrays import Arrays

__all__ = ["solve_programs"]


_POWER_STEPS = 4
_MARGIN = 1.15  # of the largest eigenvalue over its estimate
_PROJECTION_STEPS = 20
_CHECKED = 2  # products between two looks at the gap
_PRODUCTS = 150


def solve_programs(
    arrays: Arrays,
    hessians: Any,
    gradients: Any,
    weights: Any,
    parts: list[slice],
    *,
    targets: Any,
    deadline: Deadline,
) -> Any:
    """Minimise q(v) = -g'(v - w) + (v - w)' H (v - w) / 2 over v >= 0 whose entries sum to 1 in every part.

    Nesterov's accelerated gradient method in the metric of the diagonal of H, restarted where it would go uphill
    (O'Donoghue and Candes, 2015).

    Args:
        arrays: Where to compute.
        hessians: H, shape (U, k, k), positive semidefinite on changes that sum to 0 in every part.
        gradients: g, shape (U, k).
        weights: w, feasible, shape (U, k).
        parts: Entries of each simplex.
        targets: Stop at a gap max_v <-q', v - v_now> of this, shape (U,).
        deadline: When to be cut short.

    Returns:
        The changes v - w, shape (U, k), of a value q <= 0.
    """
    xp = arrays.namespace
    run = _Run(arrays, hessians, gradients, weights, parts, targets)
    result = xp.zeros_like(weights)
    users = arrays.array(np.arange(len(weights)))
    for product in range(1, _PRODUCTS + 1):
        run.step()
        last = product == _PRODUCTS or deadline.passed
        if product % _CHECKED and not last:
            continue
        done = run.done()
        finished = int(done.sum())
        if finished == len(users) or last:
            result[users] = run.descent()
            break
        if 2 * finished >= len(users):  # a copy of the rest costs about as much as one product
            result[users[done]] = run.descent()[done]
            users = users[~done]
            run.keep(~done)
    return result


class _Run:
    """State of the method for users who are not done; arguments as in `solve_programs`."""

    def __init__(
        self, arrays: Arrays, hessians: Any, gradients: Any, weights: Any, parts: list[slice], targets: Any
    ) -> None:
        self._xp = arrays.namespace
        self._parts = parts
        self._hessians, self._gradients, self._weights, self._targets = hessians, gradients, weights, targets
        diagonal = self._xp.diagonal(hessians, 0, 1, 2)
        steepest = self._xp.amax(abs(gradients), 1)[:, None]
        # where H vanishes the gradient alone decides: a step to a vertex, in numbers that do not overflow
        tiny = 1e-30
        self._inverse = 1.0 / (diagonal + 1e-6 * diagonal.mean(1)[:, None] + 1e-7 * steepest + tiny)
        self._largest = _MARGIN * self._largest_eigenvalues(arrays)
        self._change = self._xp.zeros_like(weights)
        self._last = self._product = self._last_product = self._change
        self._momentum = self._xp.ones_like(targets)
        self._levels: list[Any] = [None] * len(parts)
        self._widest = [self._xp.amax(self._inverse[:, part], 1) for part in parts]

    def keep(self, users: Any) -> None:
        """Go on with some users only."""
        for name in ("hessians", "gradients", "weights", "targets", "inverse", "largest", "momentum"):
            setattr(self, f"_{name}", getattr(self, f"_{name}")[users])
        for name in ("change", "last", "product", "last_product"):
            setattr(self, f"_{name}", getattr(self, f"_{name}")[users])
        self._levels = [level[users] for level in self._levels]
        self._widest = [widest[users] for widest in self._widest]

    def step(self) -> None:
        """One product; where the step was too long or uphill the point stays, with a shorter step or no momentum."""
        xp = self._xp
        following = 0.5 * (1.0 + xp.sqrt(1.0 + 4.0 * self._momentum**2))
        share = ((self._momentum - 1.0) / following)[:, None]
        point = self._change + share * (self._change - self._last)
        point_product = self._product + share * (self._product - self._last_product)
        slope = self._gradients - point_product  # minus the derivative of q
        goal = self._weights + point
        goal += slope * self._inverse / self._largest[:, None]
        candidate = self._projected(goal) - self._weights
        product = (self._hessians @ candidate[:, :, None])[:, :, 0]
        step = candidate - point
        bend = (step * (product - point_product)).sum(1)
        bound = (step * step / self._inverse).sum(1)
        steep = bend > self._largest * bound * (1.0 + 1e-5)  # the estimate of the largest eigenvalue was too small
        uphill = (share[:, 0] > 0) & ((slope * (candidate - self._change)).sum(1) < 0) & ~steep
        moves = ~(steep | uphill)
        if bool(moves.all()):
            self._momentum = following
            self._last, self._last_product = self._change, self._product
            self._change, self._product = candidate, product
            return
        self._largest = xp.where(steep, 1.05 * bend / xp.where(steep, bound, 1.0), self._largest)
        self._momentum = xp.where(moves, following, xp.where(uphill, 1.0, self._momentum))
        resets, moves = ~steep[:, None], moves[:, None]
        self._last = xp.where(resets, self._change, self._last)
        self._last_product = xp.where(resets, self._product, self._last_product)
        self._change = xp.where(moves, candidate, self._change)
        self._product = xp.where(moves, product, self._product)

    def done(self) -> Any:
        """Who has reached the target, a mask (U,)."""
        residual = self._gradients - self._product
        weighted = (self._weights + self._change) * residual
        gap = sum(self._xp.amax(residual[:, part], 1) - weighted[:, part].sum(1) for part in self._parts)
        return gap <= self._targets

    def descent(self) -> Any:
        """The change, or none where it is worth less than that."""
        worse = ~((self._change * (0.5 * self._product - self._gradients)).sum(1) <= 0)
        return self._xp.where(worse[:, None], 0.0, self._change)

    def _projected(self, point: Any) -> Any:
        """The closest point of the simplices in the metric: v_i = max(0, p_i - nu / h_i).

        nu by Newton's method on the sum of v, which is convex and piecewise linear in nu, from the nu of the last step:
        after one step the iterates rise to the solution, and mostly reach it at the next.
        """
        for number, part in enumerate(self._parts):
            values, inverse, widest = point[:, part], self._inverse[:, part], self._widest[number]
            # the largest entry of v is at least 1 / k; beyond the last entry the sum has no slope
            level = self._xp.amax((values - 1.0 / values.shape[1]) / inverse, 1)
            if self._levels[number] is not None:
                level = self._xp.minimum(level, self._levels[number])
            else:
                level = self._xp.minimum(level, (values.sum(1) - 1.0) / inverse.sum(1))
            for _ in range(_PROJECTION_STEPS):
                positive = values > level[:, None] * inverse
                following = ((values * positive).sum(1) - 1.0) / (inverse * positive).sum(1)
                moved = abs(following - level) * widest
                level = following
                if bool((moved <= 1e-6 * (1.0 + abs(level) * widest)).all()):
                    break
            self._levels[number] = level
            projection = (values - level[:, None] * inverse).clip(min=0.0)
            point[:, part] = projection / projection.sum(1)[:, None]
        return point

    def _largest_eigenvalues(self, arrays: Arrays) -> Any:
        """Of the scaled H on changes that sum to 0 in every part, by power iteration (from below); shape (U,)."""
        xp = self._xp
        root = xp.sqrt(self._inverse)
        start = arrays.array(np.random.default_rng(0).standard_normal((1, root.shape[1])))
        vector = xp.zeros_like(root) + arrays.cast(start, single=root.dtype == xp.float32)
        value = xp.ones_like(self._targets)
        for _ in range(_POWER_STEPS):
            for part in self._parts:  # orthogonal to the constraint in scaled coordinates
                normal = root[:, part]
                share = (normal * vector[:, part]).sum(1) / (normal * normal).sum(1)
                vector[:, part] -= share[:, None] * normal
            length = xp.sqrt((vector * vector).sum(1)) + 1e-30
            vector = (self._hessians @ (root * vector / length[:, None])[:, :, None])[:, :, 0] * root
            value = xp.sqrt((vector * vector).sum(1))
        return value.clip(min=1.0)
