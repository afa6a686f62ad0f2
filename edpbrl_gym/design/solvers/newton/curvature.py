"""What Newton's method knows of the Hessian of many weights, and its steps by products with it.

Every step from w to w + s changes the gradient by -y, and H s = y to first order; so BFGS updates of what is known of H
learn from gradients that are computed anyway (Nocedal and Wright, "Numerical optimization", 2006, section 7.2, the
compact form). Beginning with the diagonal alone this takes a few gradients a digit where H, scaled by its diagonal, is
nearly the identity but for a few directions, as on features without clusters; beginning with the whole H two digits for
every three gradients on any features, but H costs as much as several gradients. So the diagonal comes first, and H is
made where the steps show that the diagonal is too little.

Scaled by its diagonal the Hessian of the design problem is well conditioned on the supports of good designs (condition
numbers of 2 to 12 on isotropic and on clustered features, for lambda from 0.01 to 100), so a first-order method for the
quadratic program over the product of simplices takes about ten products, in float32: accelerated projected gradients.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import blas

from edpbrl_gym._arrays import Floats
from edpbrl_gym.design.problem import NEVER, Deadline
from edpbrl_gym.design.solvers.newton.objective import InformationObjective, Objective

__all__ = ["IDLE", "CurvatureModel", "Diagonal", "Hessian", "Secants", "project", "solve_by_gradients"]


_PRODUCTS = 60  # with H in one program at most
_POWER_STEPS = 4  # that estimate the largest eigenvalue, from below
_MARGIN = 1.15  # of the largest eigenvalue over its estimate
_SMALLEST_CURVATURE = 1e-10  # of the largest entry of the gradient


def solve_by_gradients(
    curvature: Diagonal | Hessian | Secants,
    gradient: Floats,
    weights: Floats,
    parts: list[slice],
    *,
    tolerance: float,
    max_products: int = _PRODUCTS,
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
    largest = _MARGIN * _largest_eigenvalue(curvature, diagonal, parts)
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


def _largest_eigenvalue(curvature: Diagonal | Hessian | Secants, diagonal: Floats, parts: list[slice]) -> float:
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


IDLE = 0.7  # of the weights: with fewer that have mass or should have some, no Hessian is made of all
# A Hessian of k tokens is made where steps leave more than exp(-_HESSIAN d / k) of the gap: half of it at k = 6 d, 0.85
# at k = 24 d, since what it costs, in gradients, grows as k / d.
_HESSIAN = 4.0
_RECENT = 4  # steps that tell the rate
_LARGEST = 6000  # tokens whose Hessian is stored: 144 MB in float32
_MEMORY = 20  # secants
_CURVED = 1e-10  # s'y over |s| |y|: less is rounding
_TILE = 256  # rows of the Hessian made at once, while they are in the cache


class Diagonal:
    """A diagonal as an operator.

    Args:
        diagonal: Shape (k,).
    """

    def __init__(self, diagonal: Floats) -> None:
        self.diagonal = diagonal

    def product(self, vector: Floats) -> Floats:
        """H v, shape (k,)."""
        return np.asarray(self.diagonal * vector)


class Hessian:
    """The Hessian of -s as an operator in float32; formulas in `objective`.

    With y_i = L^-1 z_i and u_i what the scores are squared norms of,

        D:     H_ij = c_i c_j (y_i' y_j + S_ij)^2,    A, V:  H_ij = 2 c_i c_j (y_i' y_j + S_ij) u_i' u_j.

    In D the square of S is left out: c_i c_j S_ij^2 is 1 within a block and 0 outside, so it vanishes on changes that
    sum to 0 in every block, and with a strong prior it would leave nothing but rounding of the rest in float32.

    Args:
        objective: The objective.
        weights: Where, shape (k,).

    Attributes:
        diagonal: Its diagonal, float64, shape (k,).
    """

    def __init__(self, objective: InformationObjective, weights: Floats) -> None:
        in_full, in_score = objective.solved(weights)
        root = np.sqrt(objective.scale).astype(np.float32)[:, None]
        is_d = in_score is in_full
        # with sqrt(c) y and sqrt(2 c) u: D (K + 2 [same block]) o K, A and V (K + [same block]) o A, in few passes
        solved = in_full.astype(np.float32, copy=False) * root
        scored = solved if is_d else in_score.astype(np.float32, copy=False) * (np.float32(np.sqrt(2.0)) * root)
        shift = np.float32(2.0 if is_d else 1.0)
        size = len(solved)
        self._matrix = np.empty((size, size), dtype=np.float32)  # only its upper triangle is filled
        for begin in range(0, size, _TILE):
            rows = slice(begin, min(begin + _TILE, size))
            tile = solved[rows] @ solved[begin:].T
            second = tile.copy() if is_d else scored[rows] @ scored[begin:].T
            for part in objective.parts:  # the tokens of the tile's own blocks
                overlap = slice(max(part.start, rows.start), min(part.stop, rows.stop))
                if overlap.start < overlap.stop:
                    across = slice(max(part.start, begin) - begin, part.stop - begin)
                    tile[overlap.start - begin : overlap.stop - begin, across] += shift
            np.multiply(tile, second, out=self._matrix[rows, begin:])
        self.diagonal: Floats = np.diag(self._matrix).astype(np.float64)

    def product(self, vector: Floats) -> Floats:
        """H v, shape (k,)."""
        # the transpose is what BLAS takes as it is: the upper triangle of a C-ordered array is its lower one
        return np.asarray(blas.ssymv(1.0, self._matrix.T, vector.astype(np.float32), lower=1), dtype=np.float64)


class Secants:
    """A curvature with BFGS corrections.

    Args:
        base: What is corrected.
        parts: Entries of each block: changes of weights sum to 0 there, so gradients matter up to a constant.
    """

    def __init__(self, base: Diagonal | Hessian, parts: list[slice]) -> None:
        self._base, self._parts = base, parts
        self._pairs: list[tuple[Floats, Floats, Floats]] = []  # s, B s, y
        self._correction: tuple[Floats, Floats] | None = None  # U and M with H = B - U M U'
        self.diagonal = base.diagonal

    def learn(self, step: Floats, change: Floats) -> None:
        """Take in that H s = y.

        Args:
            step: s, shape (k,).
            change: y, minus the change of the gradient, up to a constant in every block, shape (k,).
        """
        centred = change.copy()
        inverse = 1.0 / (self.diagonal + 1e-12 * self.diagonal.max() + np.finfo(float).tiny)
        for part in self._parts:
            if part.stop > part.start:
                centred[part] -= inverse[part] @ change[part] / inverse[part].sum()
        if not step @ centred > _CURVED * np.linalg.norm(step) * np.linalg.norm(centred):
            return
        self._pairs = [*self._pairs[1 - _MEMORY :], (step, self._base.product(step), centred)]
        self._correct()

    def rebased(self, base: Diagonal) -> None:
        """Correct something else by the same secants."""
        self._base, self.diagonal = base, base.diagonal
        self._pairs = [(step, base.product(step), change) for step, _, change in self._pairs]
        self._correct()

    def product(self, vector: Floats) -> Floats:
        """H v, shape (k,)."""
        result = self._base.product(vector)
        if self._correction is not None:
            columns, middle = self._correction
            result = result - columns @ (middle @ (columns.T @ vector))
        return result

    def _correct(self) -> None:
        self._correction = None
        if not self._pairs:
            return
        steps, products, changes = (np.stack(arrays, axis=1) for arrays in zip(*self._pairs, strict=True))
        inner = steps.T @ changes
        lower = np.tril(inner, -1)
        outer = steps.T @ products
        matrix = np.block([[0.5 * (outer + outer.T), lower], [lower.T, -np.diag(np.diag(inner))]])
        scale = 1.0 / np.sqrt(np.abs(np.diag(matrix)) + np.finfo(float).tiny)
        try:
            middle = np.linalg.inv(matrix * np.outer(scale, scale))
        except np.linalg.LinAlgError:
            middle = np.full_like(matrix, np.nan)
        if not np.isfinite(middle).all():  # steps that repeat each other: begin again with the last
            self._pairs = self._pairs[-1:] if len(self._pairs) > 1 else []
            self._correct()
            return
        self._correction = np.concatenate([products, changes], axis=1), middle * np.outer(scale, scale)


class CurvatureModel:
    """What is known of the Hessian of -s at the points that Newton's method visits.

    Args:
        gaps: Gaps at the points visited on more weights, which tell the rate.
    """

    def __init__(self, gaps: list[float] | None = None) -> None:
        self.gaps = list(gaps or ())  # since the secants began
        self._secants: Secants | None = None
        self._whole = False  # whether the secants correct a Hessian, not its diagonal
        self._last: tuple[Floats, Floats] | None = None  # weights and gradient
        self._renewed = False  # since the last step that raised the objective

    def step(
        self,
        objective: Objective,
        weights: Floats,
        gradient: Floats,
        gap: float,
        *,
        tolerance: float,
        deadline: Deadline,
    ) -> Floats:
        """Where a Newton step from some weights leads, shape (k,), its quadratic program solved to a gap of tolerance.

        Gradient and gap are those at the weights, the gradient up to a constant in every block.
        """
        assert isinstance(objective, InformationObjective)
        curvature = self._at(objective, weights, gradient, gap)
        return solve_by_gradients(curvature, gradient, weights, objective.parts, tolerance=tolerance, deadline=deadline)

    def renew(self) -> bool:
        """Whether there is more to know of the Hessian than the last step, which failed, was told."""
        self._renewed = not self._renewed
        return self._renewed

    def _at(self, objective: InformationObjective, weights: Floats, gradient: Floats, gap: float) -> Secants:
        settled = False  # most weights stayed positive or 0 in the last step
        if self._last is not None and self._secants is not None:
            settled = bool(np.mean((weights > 0) == (self._last[0] > 0)) > IDLE)
            step = weights - self._last[0]
            self._secants.learn(step, self._last[1] - gradient)
            self._renewed = self._renewed and not step.any()
        self._last = weights.copy(), gradient
        self.gaps.append(gap)
        active = int(np.count_nonzero((weights > 0) | (gradient > 0)))
        # where few entries matter, whoever keeps the others should drop them first: H grows with their square
        pays = settled and active > IDLE * len(weights) and self._too_slow(objective, gap)
        if (self._renewed or pays) and len(weights) <= _LARGEST:
            self._secants, self._whole = Secants(Hessian(objective, weights), objective.parts), True
            self.gaps = [gap]
        if not self._whole:
            base = Diagonal(objective.hessian_diagonal(weights))
            if self._secants is None:
                self._secants = Secants(base, objective.parts)
            else:
                self._secants.rebased(base)
        assert self._secants is not None
        return self._secants

    def _too_slow(self, objective: InformationObjective, gap: float) -> bool:
        steps = min(len(self.gaps) - 1, _RECENT)
        if steps < 1:
            return False
        left = (gap / self.gaps[-1 - steps]) ** (1.0 / steps)
        return bool(left > np.exp(-_HESSIAN * objective.rows.shape[1] / len(objective.tokens)))
