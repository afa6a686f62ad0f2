"""The exact expected information as a function of one policy, the others fixed: a classical design problem.

With S_q and m_q the second moment and the mean of policy q at a step (sums over the steps are understood), Cov_q =
S_q - m_q m_q' and mbar the mean of the m_q, the exact expectation (`information.exact_information`) is

    I = Lambda + (T/K^2) [ (K-1) sum_q S_q - sum_{q != p} m_q m_p' ]
      = Lambda + (T/K^2) [ (K-1) sum_q Cov_q + K sum_q (m_q - mbar)(m_q - mbar)' ].

It holds no square of a single m_q, so it is affine in each d_q. Completing the square with u, the mean of the others'
m_p, and z = x - u,

    I = C + c sum_n d_q(n) z_n z_n',    c = T (K-1) / K^2,
    C = Lambda + (T/K^2) [ (K-1) sum_{p != q} Cov_p + K sum_{p != q} (m_p - u)(m_p - u)' ]  >=  Lambda:

the information of a linear regression on the rows z with the prior precision C. The gradient is c ||F z||^2 with
F'F = ds/dI, and the Hessian on the masses of two rows is (K_ij = z_i' I^-1 z_j, A_ij = z_i' I^-1 V I^-1 z_j)

    D:  -c^2 K_ij^2,        A, V:  -2 c^2 K_ij A_ij.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy import sparse
from scipy.linalg import blas, lapack, solve_triangular

from edpbrl_gym._arrays import Floats, Positions
from edpbrl_gym.design.chunks import Features, row_chunks
from edpbrl_gym.design.criteria import cholesky
from edpbrl_gym.design.rounding import factor_condition
from edpbrl_gym.design.solvers.newton.columns.columns import ColumnSet
from edpbrl_gym.design.solvers.newton.master import ByProducts
from edpbrl_gym.design.solvers.newton.quasi_newton import Renewed

__all__ = ["BlockSpace", "CentredFeatures", "Local", "Moments", "Surroundings"]


COPIED = 20_000_000  # numbers of float32 features up to which a float64 copy is kept
FEW = 300  # columns up to which the Hessian is factored
LARGEST_GRAM = 4000  # nodes up to which their matrix of inner products is formed


@dataclass(frozen=True)
class Moments:
    """Moments of the features that one policy shows.

    Attributes:
        covariance: Sum over the steps of the covariance of the row shown, shape (d, d).
        means: Its mean at each step, shape (H, d).
    """

    covariance: Floats
    means: Floats


class CentredFeatures:
    """Features less their mean over all rows, which changes nothing but the rounding.

    Args:
        features: Phi, shape (N, d); of float32 features with many numbers no float64 copy is kept.
    """

    def __init__(self, features: Features) -> None:
        self._features = features
        self._shift = sum(rows.sum(axis=0) for _, rows in row_chunks(features)) / len(features)
        self._copy: Floats | None = None
        if features.dtype == np.float64 or features.size <= COPIED:
            self._copy = np.asarray(features - self._shift, dtype=np.float64)

    @property
    def dimension(self) -> int:
        """Number of features d."""
        return int(self._features.shape[1])

    def rows(self, indices: Positions) -> Floats:
        """Some rows, shape (n, d)."""
        if self._copy is not None:
            return np.asarray(self._copy[indices])
        return np.asarray(self._features[indices].astype(np.float64) - self._shift)

    def scores(self, factor: Floats, centres: Floats) -> Floats:
        """||F (x_n - u_h)||^2 for F of shape (r, d) and centres of shape (H, d): an array (H, N)."""
        result = np.empty((len(centres), len(self._features)))
        middle = centres @ factor.T
        for part, rows in self._chunks():
            product = _times(rows, factor)
            result[:, part] = np.einsum("nr,nr->n", product, product) - 2.0 * (middle @ product.T)
        result += np.einsum("hr,hr->h", middle, middle)[:, None]
        return result

    def linear(self, directions: Floats) -> Floats:
        """Inner products of directions (H, d) with all rows: an array (H, N)."""
        result = np.empty((len(directions), len(self._features)))
        for part, rows in self._chunks():
            result[:, part] = directions @ rows.T
        return result

    def moments(self, columns: ColumnSet, weights: Floats, horizon: int) -> Moments:
        """Moments of a combination of columns."""
        masses = columns.incidence @ weights
        used = np.flatnonzero(masses)
        steps, rows, mass = columns.steps[used], columns.rows[used], masses[used]
        distinct_rows, place = np.unique(rows, return_inverse=True)
        features = self.rows(distinct_rows)
        by_step = sparse.csr_array((mass, (steps, place)), shape=(horizon, len(distinct_rows)))
        means = np.asarray(by_step @ features)
        half = features * np.sqrt(np.bincount(place, weights=mass, minlength=len(distinct_rows)))[:, None]
        return Moments(half.T @ half - means.T @ means, means)

    def _chunks(self) -> Iterator[tuple[slice, Floats]]:
        if self._copy is not None:
            yield slice(0, len(self._copy)), self._copy
            return
        for part, rows in row_chunks(self._features):
            yield part, rows - self._shift


@dataclass(frozen=True)
class Local:
    """The objective at a point.

    Attributes:
        value: s(I).
        factor: Lower Cholesky factor L of I, shape (d, d).
        half: L^-1 B for A and V with V = B B', shape (d, r); None for D.
    """

    value: float
    factor: Floats
    half: Floats | None

    @classmethod
    def at(cls, matrix: Floats, target: Floats | None) -> Local:
        """From I and B (None for D); SingularInformationError if I is singular."""
        factor = cholesky(matrix)
        if target is None:
            return cls(2.0 * float(np.log(np.diag(factor)).sum()), factor, None)
        half = solve_triangular(factor, target, lower=True, check_finite=False)
        return cls(-float(np.vdot(half, half)), factor, half)

    def score_factor(self) -> Floats:
        """F with F'F = ds/dI: L^-1 for D, B' I^-1 for A and V (its triangular factor if that has fewer rows)."""
        inverse = np.tril(lapack.dtrtri(self.factor, lower=1)[0])
        if self.half is None:
            return np.asarray(inverse)
        factor = np.asarray(self.half.T @ inverse)
        return factor if len(factor) <= len(inverse) else np.asarray(np.linalg.qr(factor, mode="r"))


@dataclass(frozen=True)
class Surroundings:
    """What the other policies contribute to the block of one: C, u and c of the module's text.

    Attributes:
        base: C, shape (d, d).
        centres: u at each step, shape (H, d).
        scale: c.
    """

    base: Floats
    centres: Floats
    scale: float

    @classmethod
    def of(cls, prior: Floats, others: list[Moments], episodes: float) -> Surroundings:
        """From the moments of the other K - 1 policies."""
        count = len(others) + 1
        centres = np.mean([moments.means for moments in others], axis=0)
        spread = np.zeros_like(prior)
        for moments in others:
            shift = moments.means - centres
            spread += (count - 1) * moments.covariance + count * (shift.T @ shift)
        unit = episodes / count**2
        return cls(prior + unit * spread, centres, unit * (count - 1))

    def information(self, moments: Moments) -> Floats:
        """I with a policy of these moments, shape (d, d)."""
        shift = moments.means - self.centres
        return np.asarray(self.base + self.scale * (moments.covariance + shift.T @ shift))


class _Stored:
    """A Hessian in the form that `projected` takes."""

    def __init__(self, matrix: Floats) -> None:
        self._matrix = matrix
        self.diagonal: Floats = np.diag(matrix).copy()
        self.work = float(matrix.size)

    def product(self, vector: Floats) -> Floats:
        return np.asarray(self._matrix @ vector)


class BlockSpace:
    """The block of one policy on the weights of some columns, an objective for `newton.master.improve`.

    Args:
        features: The rows.
        around: What the other policies contribute.
        columns: The columns.
        target: B with V = B B' for A and V, shape (d, r); None for D.

    Attributes:
        parts: Columns of each of the MDP's blocks: the weights sum to 1 in each.
        by_products: How Newton steps on many columns are taken; the other policies move anyway, so not very exactly.
    """

    def __init__(
        self, features: CentredFeatures, around: Surroundings, columns: ColumnSet, target: Floats | None
    ) -> None:
        self.parts = columns.slices
        self.by_products: ByProducts | None = Renewed(BlockSpace.curvature, above=FEW, share=0.1)
        self._around = around
        self._target = target
        self._rows = features.rows(columns.rows) - around.centres[columns.steps]
        incidence = columns.incidence
        self._incidence = None if _is_identity(incidence) else incidence
        self._cache: tuple[Floats, Local] | None = None

    def condition(self, weights: Floats) -> float:
        """Condition number of the information matrix."""
        return factor_condition(self._at(weights).factor, np.zeros((0, len(self._around.base))), np.zeros(0))

    def value(self, weights: Floats) -> float:
        """s(I); SingularInformationError where it is infinite."""
        return self._at(weights).value

    def gradient(self, weights: Floats) -> Floats:
        """Shape (k,)."""
        return self._gradient(self._solved(weights)[1])

    def derivatives(self, weights: Floats) -> tuple[Floats, Floats]:
        """Gradient (k,) and Hessian of -s (k, k)."""
        solved, scored = self._solved(weights)
        same = self._target is None
        curvature = (1.0 if same else 2.0) * self._around.scale**2
        if self._incidence is not None and len(self._rows) > LARGEST_GRAM:
            products = np.stack(
                [_column_product(self._incidence, number, solved, scored) for number in range(self.parts[-1].stop)]
            )
            flat = products.reshape(len(products), -1)
            return self._gradient(scored), curvature * (flat @ flat.T)
        hessian = solved.T @ solved
        hessian *= hessian if same else scored.T @ scored
        hessian *= curvature
        if self._incidence is not None:
            hessian = np.asarray(self._incidence.T @ (self._incidence.T @ hessian).T)
        return self._gradient(scored), hessian

    def curvature(self, weights: Floats) -> _Stored:
        """Hessian of -s as an operator."""
        return _Stored(self.derivatives(weights)[1])

    def _gradient(self, scored: Floats) -> Floats:
        rewards = self._around.scale * np.einsum("rn,rn->n", scored, scored)
        return rewards if self._incidence is None else np.asarray(self._incidence.T @ rewards)

    def _at(self, weights: Floats) -> Local:
        if self._cache is None or not np.array_equal(self._cache[0], weights):
            masses = weights if self._incidence is None else self._incidence @ weights
            used = np.flatnonzero(masses)
            half = self._rows[used] * np.sqrt(self._around.scale * masses[used])[:, None]
            self._cache = weights.copy(), Local.at(self._around.base + half.T @ half, self._target)
        return self._cache[1]

    def _solved(self, weights: Floats) -> tuple[Floats, Floats]:
        """L^-1 z, and what the scores are squared norms of, a column for each node."""
        local = self._at(weights)
        solved = solve_triangular(local.factor, self._rows.T, lower=True, check_finite=False)
        return solved, solved if local.half is None else local.half.T @ solved


def _times(rows: Floats, factor: Floats) -> Floats:
    """Return rows F', in half the time where F is triangular."""
    if factor.shape[0] != factor.shape[1]:
        return np.asarray(rows @ factor.T)
    upper = not np.tril(factor, -1).any()
    if not upper and np.triu(factor, 1).any():
        return np.asarray(rows @ factor.T)
    return np.asarray(blas.dtrmm(1.0, factor, rows.T, lower=int(not upper)).T)


def _is_identity(matrix: sparse.csc_array) -> bool:
    count = matrix.shape[1]
    return bool(
        matrix.shape[0] == count
        and matrix.nnz == count
        and (matrix.data == 1.0).all()
        and (matrix.indices == np.arange(count)).all()
    )


def _column_product(incidence: sparse.csc_array, column: int, solved: Floats, scored: Floats) -> Floats:
    """sum_i E_i (L^-1 z_i)(scored z_i)' for one column of E."""
    entries = slice(incidence.indptr[column], incidence.indptr[column + 1])
    nodes, mass = incidence.indices[entries], incidence.data[entries]
    return np.asarray((solved[:, nodes] * mass) @ scored[:, nodes].T)
