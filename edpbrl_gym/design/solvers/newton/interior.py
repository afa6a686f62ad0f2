"""A concave function over a product of simplices by an interior point, for many blocks or many changes.

The method is Mehrotra's predictor and corrector (SIAM J. Optim. 2, 1992) with Gondzio's corrections towards the centre
(Comput. Optim. Appl. 6, 1996), which cost a solution with the same factor; where the function is not quadratic, its
gradient and Hessian are those at every point. It takes some ten factors whatever the solution looks like, where an
active set (`simplex_qp`) takes one for nearly every entry that leaves the support.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.linalg import lapack

from edpbrl_gym._arrays import Floats, Positions
from edpbrl_gym.design.deadline import NEVER, Deadline

__all__ = [
    "FACTORS",
    "DenseHessian",
    "Hessian",
    "LowRankHessian",
    "Program",
    "follow_central_path",
    "solve_by_interior_point",
]


FACTORS = 12  # that a solution takes, about
_MAX_FACTORS = 50
_TO_BOUNDARY = 0.99  # share of the longest step
_CORRECTIONS = 2  # with the same factor
_LONGER, _MORE = 1.3, 0.1  # a correction aims at a step that is longer by this factor and this amount
_OUTLIER = 10.0  # products of an entry with its slack this many times above or below their mean are corrected
_SHORTEST = 1e-6  # steps below make no progress any more
_VANISHED = 1e-4  # share of a block below which an entry with a slack to match is 0


class Hessian(Protocol):
    """A positive semidefinite matrix H, shape (k, k), for the interior point."""

    def product(self, vector: Floats) -> Floats:
        """H v, shape (k,)."""
        ...

    def factor(self, root: Floats, blocks: _Blocks) -> _Factor | None:
        """What solves with I + S' H S, S = C' diag(root), C the projection of `_Blocks.centred`; None if it fails."""
        ...


class Program(Protocol):
    """A concave function at a point that moves, to be maximised.

    Attributes:
        slope: Its gradient, up to a constant in every block, shape (k,).
    """

    slope: Floats

    @property
    def hessian(self) -> Hessian:
        """Hessian of its negative."""
        ...

    def move(self, point: Floats, change_product: Floats) -> None:
        """Take slope and Hessian to another point, to which the change times the last Hessian is given."""
        ...

    def enough(self, point: Floats, left: float) -> bool:
        """Whether to stop at a point where the complementarity is `left`."""
        ...


class _Factor(Protocol):
    def solve(self, right: Floats) -> Floats:
        """(I + S' H S)^-1 v for v = S' H p, from p."""
        ...


class _Blocks:
    """Sums over consecutive entries in the metric of weights t: C = I - E' (E diag(t) E')^-1 E diag(t).

    Args:
        sizes: Entries of each block, shape (B,).
        weights: t, shape (k,).
    """

    def __init__(self, sizes: Positions, weights: Floats) -> None:
        self.weights = weights
        self._owner = np.repeat(np.arange(len(sizes)), sizes)
        self._bounds = np.concatenate(([0], np.cumsum(sizes)))
        self.totals = self.sums(weights)

    def spread(self, values: Floats) -> Floats:
        """Values of the blocks for their entries."""
        return values[self._owner]

    def sums(self, values: Floats) -> Floats:
        """Sum of each block."""
        return np.asarray(np.add.reduceat(values, self._bounds[:-1]))

    def centred(self, values: Floats) -> Floats:
        """C values: less the weighted mean of each block."""
        shares = (self.weights / self.spread(self.totals)).astype(values.dtype, copy=False)
        if len(self.totals) == 1:
            return np.asarray(values - shares @ values)
        shape = (len(self.totals), len(shares))
        means = sparse.csr_array((shares, np.arange(len(shares)), self._bounds), shape=shape) @ values
        return np.asarray(values - means[self._owner])

    def scattered(self, values: Floats, root: Floats) -> Floats:
        """S values with S = C' diag(root)."""
        scaled = root * values
        return np.asarray(scaled - self.weights * self.spread(self.sums(scaled) / self.totals))


class DenseHessian:
    """H as a matrix.

    Args:
        matrix: H, shape (k, k).
    """

    def __init__(self, matrix: Floats) -> None:
        self._matrix = matrix

    def product(self, vector: Floats) -> Floats:
        """See `Hessian`."""
        return np.asarray(self._matrix @ vector)

    def factor(self, root: Floats, blocks: _Blocks) -> _Factor | None:
        """See `Hessian`: a Cholesky factor of k rows."""
        inner = blocks.centred(np.ascontiguousarray(blocks.centred(self._matrix).T))
        inner *= root[:, None]
        inner *= root
        lower = _cholesky_of_identity_plus(inner)
        return None if lower is None else _DenseFactor(self, lower, root, blocks)


@dataclass(frozen=True)
class _DenseFactor:
    hessian: DenseHessian
    lower: Floats
    root: Floats
    blocks: _Blocks

    def solve(self, right: Floats) -> Floats:
        product = self.root * self.blocks.centred(self.hessian.product(right))
        return np.asarray(lapack.dpotrs(self.lower, product, lower=1)[0])


class LowRankHessian:
    """H = Z Z' of fewer columns than rows.

    Args:
        rows: Z, shape (k, r); products are taken in its precision, factors in float64.

    Attributes:
        largest: Largest diagonal entry of S' H S when it was last factored; 0 before. Beside it the identity is lost
            where it exceeds the inverse of the precision.
    """

    def __init__(self, rows: NDArray) -> None:
        self._rows = rows
        self.largest = 0.0

    def product(self, vector: Floats) -> Floats:
        """See `Hessian`."""
        rows = self._rows
        return (rows @ (vector.astype(rows.dtype, copy=False) @ rows)).astype(np.float64, copy=False)

    def factor(self, root: Floats, blocks: _Blocks) -> _Factor | None:
        """See `Hessian`: a Cholesky factor of r rows."""
        scaled = blocks.centred(self._rows)
        scaled *= root.astype(scaled.dtype, copy=False)[:, None]
        gram = (scaled.T @ scaled).astype(np.float64, copy=False)
        self.largest = float(np.diag(gram).max(initial=0.0))
        lower = _cholesky_of_identity_plus(gram)
        return None if lower is None else _LowRankFactor(self._rows, scaled, lower)


@dataclass(frozen=True)
class _LowRankFactor:
    rows: NDArray
    scaled: NDArray
    lower: Floats

    def solve(self, right: Floats) -> Floats:
        kind = self.rows.dtype
        inner = (right.astype(kind, copy=False) @ self.rows).astype(np.float64, copy=False)
        solved = lapack.dpotrs(self.lower, inner, lower=1)[0].astype(kind, copy=False)
        return (self.scaled @ solved).astype(np.float64, copy=False)


def _cholesky_of_identity_plus(matrix: Floats) -> Floats | None:
    matrix[np.diag_indices(len(matrix))] += 1.0
    lower, failed = lapack.dpotrf(matrix.T, lower=1, overwrite_a=1, clean=0)
    return None if failed else lower


def solve_by_interior_point(
    hessian: Hessian,
    gradient: Floats,
    sizes: Positions,
    totals: Floats,
    *,
    share: float,
    offset: float = 0.0,
    smallest: float = 0.0,
    deadline: Deadline = NEVER,
) -> Floats | None:
    """Maximise q(v) = g'v - v' H v / 2 over v >= 0 whose entries sum to a given total in every block.

    All points are feasible, so their complementarity, v's with the slack s, bounds the distance from the largest value.

    Args:
        hessian: H.
        gradient: g, shape (k,).
        sizes: Consecutive entries of each block, at least 1, shape (B,).
        totals: Their sums, positive, shape (B,).
        share: Stop at a complementarity of this share of q + offset.
        offset: Added to q, which makes it the gain over where one was.
        smallest: Stop at this complementarity in any case.
        deadline: When to give up.

    Returns:
        v, shape (k,), 0 where the slack outweighs what is left; None if the deadline passed or rounding ended the steps
        before the first complementarity was halved.
    """
    blocks = _Blocks(sizes, np.repeat(totals / sizes, sizes))
    program = _Quadratic(hessian, gradient, blocks.weights, share, offset, smallest)
    found = follow_central_path(program, blocks.weights, sizes, totals, deadline=deadline)
    if found is None:
        return None
    point, slack = found
    # on the central path, where point * slack is the same everywhere, these are the entries below a share of the total
    scale = float(point @ slack) / len(point) / blocks.spread(totals) ** 2
    point = np.where(point * scale < _VANISHED**2 * slack, 0.0, point)
    return np.asarray(point * blocks.spread(totals / blocks.sums(point)))


class _Quadratic:
    """The program of `solve_by_interior_point`, beginning at `point`."""

    def __init__(
        self, hessian: Hessian, gradient: Floats, point: Floats, share: float, offset: float, smallest: float
    ) -> None:
        self.hessian: Hessian = hessian
        self.slope = gradient - hessian.product(point)
        self._gradient, self._share, self._offset, self._smallest = gradient, share, offset, smallest

    def move(self, point: Floats, change_product: Floats) -> None:
        self.slope = self.slope - change_product

    def enough(self, point: Floats, left: float) -> bool:
        rise = 0.5 * float(point @ (self._gradient + self.slope))  # q
        return left <= max(self._smallest, self._share * (self._offset + rise))


def follow_central_path(
    program: Program,
    point: Floats,
    sizes: Positions,
    totals: Floats,
    *,
    deadline: Deadline = NEVER,
    max_factors: int = _MAX_FACTORS,
) -> tuple[Floats, Floats] | None:
    """Maximise a concave function over v >= 0 whose entries sum to a given total in every block.

    Args:
        program: The function, at the point.
        point: Where to begin, feasible and positive, shape (k,).
        sizes: Consecutive entries of each block, at least 1, shape (B,).
        totals: Their sums, positive, shape (B,).
        deadline: When to give up.
        max_factors: Factors of the Hessian at most.

    Returns:
        v and its slack, shape (k,) each; None if the deadline passed or rounding ended the steps before the first
        complementarity was halved.
    """
    blocks = _Blocks(sizes, point)
    slope = program.slope
    level = np.maximum.reduceat(slope, np.concatenate(([0], np.cumsum(sizes)[:-1])))
    typical = float((blocks.spread(level) - slope) @ point) / float(totals.sum())
    slack = blocks.spread(level) - slope + max(typical, np.finfo(float).tiny)
    first = left = float(point @ slack)
    for _ in range(max_factors):
        left = float(point @ slack)
        if program.enough(point, left):
            break
        if deadline.passed:
            return None
        blocks = _Blocks(sizes, point / slack)
        root = np.sqrt(blocks.weights)
        factor = program.hessian.factor(root, blocks)
        if factor is None:
            break
        residual = blocks.centred(program.slope + slack)
        step = _Step(program.hessian, factor, blocks, root, residual, blocks.sums(point) - totals)
        change, product, dual, length = _centred_step(step, point, slack)
        if not length > _SHORTEST:
            break
        point = point + length * change
        slack = slack + length * dual
        program.move(point, length * product)
    return (point, slack) if left <= 0.5 * first else None


@dataclass(frozen=True)
class _Step:
    """Newton steps of one factor: D dv + ds = r and E dv = -residual, with D = slack / point and E the sums.

    ds = H dv - E' dy - dual_residual takes gradient and slack together to a constant in every block, to first order.
    """

    hessian: Hessian
    factor: _Factor
    blocks: _Blocks
    root: Floats
    dual_residual: Floats  # of slope and slack, up to a constant in every block: 0 where the function is quadratic
    residual: Floats  # of the sums, rounding

    def towards(self, right: Floats) -> tuple[Floats, Floats, Floats]:
        """Change of the point, H times it, and change of the slack."""
        blocks, weights = self.blocks, self.blocks.weights
        right = right + self.dual_residual
        direct = weights * blocks.centred(right) - weights * blocks.spread(self.residual / blocks.totals)
        change = direct - blocks.scattered(self.factor.solve(direct), self.root)
        product = self.hessian.product(change)
        level = (self.residual + blocks.sums(weights * (right - product))) / blocks.totals
        return change, product, product + blocks.spread(level) - self.dual_residual


def _centred_step(step: _Step, point: Floats, slack: Floats) -> tuple[Floats, Floats, Floats, float]:
    """Change of the point, H times it, change of the slack, and how long a step to make."""

    def length(change: Floats, dual: Floats) -> float:
        return _TO_BOUNDARY * min(_longest(point, change), _longest(slack, dual))

    # predictor: as if all complementarity could go at once
    change, _, dual = step.towards(-slack)
    reach = min(_longest(point, change), _longest(slack, dual))
    left = float(point @ slack)
    mean = (float((point + reach * change) @ (slack + reach * dual)) / left) ** 3 * left / len(point)
    aim = -slack + (mean - change * dual) / point
    change, product, dual = step.towards(aim)
    made = length(change, dual)
    for _ in range(_CORRECTIONS):
        further = min(1.0, _LONGER * made + _MORE)
        products = (point + further * change) * (slack + further * dual)
        outliers = np.clip(products, mean / _OUTLIER, mean * _OUTLIER) - products
        corrected = aim + np.maximum(outliers, -mean * _OUTLIER) / point
        candidate = step.towards(corrected)
        longer = length(candidate[0], candidate[2])
        if longer < made + _MORE * (further - made):
            break
        (change, product, dual), made, aim = candidate, longer, corrected
    return change, product, dual, made


def _longest(values: Floats, change: Floats) -> float:
    """Longest step up to 1 that keeps positive values from becoming negative."""
    return float(1.0 / max(1.0, float((-change / values).max())))
