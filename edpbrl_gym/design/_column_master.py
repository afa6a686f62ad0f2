"""The restricted master of the general solver: Newton on the weights of a few columns (paths or policies).

With the information I = Lambda + T sum_i d_i z_i z_i' = L L', d = E w the masses of the nodes i = (step, row),
z_i = x_i - m_h (m_h the mean of its step) and V = B B', the derivatives on the nodes are those of the lifted problem

    K_ij = z_i' I^-1 z_j + [same step] / T,    A_ij = z_i' I^-1 V I^-1 z_j,
    D:     gradient T (K_ii - 1/T),  Hessian of -s  T^2 K o K
    A, V:  gradient T A_ii,          Hessian of -s  2 T^2 K o A             (o elementwise)

and on the columns E'g and E' N E. Where the columns visit many nodes the same Hessian comes from their moments
S_a = sum_i E_ia z_i z_i' and c_a,h = sum of E_ia z_i over the nodes i of step h, up to a constant on each pair of
blocks, which changes nothing on the simplices:

    D:     T^2 <L^-1 S_a L^-T, L^-1 S_b L^-T> + 2 T <c_a L^-T, c_b L^-T>
    A, V:  2 T^2 <L^-1 S_a I^-1 B, L^-1 S_b I^-1 B> + 2 T <c_a I^-1 B, c_b I^-1 B>
"""

from __future__ import annotations

from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.linalg import blas, lapack, solve_triangular

from edpbrl_gym.design import information
from edpbrl_gym.design._columns import Column, ColumnSet
from edpbrl_gym.design._master import improve
from edpbrl_gym.design.criteria import (
    ACriterion,
    DCriterion,
    VCriterion,
    cholesky,
)
from edpbrl_gym.design.problem import DesignProblem

__all__ = ["ColumnMaster", "ColumnPoint"]

FloatArray = NDArray[np.float64]

_SPARSE_COST = 8.0  # time of a sparse multiplication in dense ones


@dataclass(frozen=True)
class ColumnPoint:
    """Weights on a working set and what the information matrix at them is.

    Attributes:
        columns: The working set.
        weights: Non-negative, sum to 1 in every block, shape (k,).
        means: Mean of the centred features at each step, shape (H, d).
        factor: Lower Cholesky factor L of I, shape (d, d).
        half: L^-1 B for A and V, shape (d, r); None for D.
        value: s(I).
    """

    columns: ColumnSet
    weights: FloatArray
    means: FloatArray
    factor: FloatArray
    half: FloatArray | None
    value: float

    @property
    def support(self) -> list[Column]:
        """Columns with weight."""
        return [self.columns.columns[number] for number in np.flatnonzero(self.weights)]

    @property
    def occupancy(self) -> FloatArray:
        """Mean occupancy, shape (H, M)."""
        return self.columns.occupancy(self.weights)


class ColumnMaster:
    """Newton's method on the weights of a working set of columns, and the scores of all rows.

    Args:
        problem: The problem; criterion A, V or D.
        masses: Mass of each block; they sum to 1, shape (B,).
    """

    def __init__(self, problem: DesignProblem, masses: FloatArray) -> None:
        self._problem = problem
        self._masses = masses
        features = np.asarray(problem.features, dtype=np.float64)
        self._features: FloatArray = features - features.mean(axis=0)  # a common part changes nothing but rounding
        self._moments: WeakKeyDictionary[Column, tuple[FloatArray, FloatArray]] = WeakKeyDictionary()
        self._target: FloatArray | None = None
        if isinstance(problem.criterion, (ACriterion, VCriterion)):
            self._target = problem.criterion.target_factor(problem.dimension)
        elif not isinstance(problem.criterion, DCriterion):
            raise ValueError(f"Expected the criterion A, V or D, got {problem.criterion.name!r}.")

    # -- points and scores ---------------------------------------------------------------------------------------

    def point(self, columns: ColumnSet, weights: FloatArray) -> ColumnPoint:
        """Evaluate the objective; SingularInformationError where it is infinite."""
        problem = self._problem
        second, means = self._sums(columns, columns.incidence @ weights)
        factor = cholesky(problem.episodes * (second - means.T @ means) + problem.prior)
        if self._target is None:
            return ColumnPoint(columns, weights, means, factor, None, 2.0 * float(np.log(np.diag(factor)).sum()))
        half = solve_triangular(factor, self._target, lower=True, check_finite=False)
        return ColumnPoint(columns, weights, means, factor, half, -float(np.vdot(half, half)))

    def moved(self, point: ColumnPoint, columns: ColumnSet) -> ColumnPoint:
        """The same combination on another working set that holds all columns with weight."""
        weights = columns.weights_of(point.columns, point.weights)
        return ColumnPoint(columns, weights, point.means, point.factor, point.half, point.value)

    def scores(self, point: ColumnPoint) -> FloatArray:
        """Scores T ||F (x - m_h)||^2 of all rows at all steps, shape (H, N): the gradient up to a constant per step."""
        factor = self._score_factor(point)
        if factor.shape[0] == factor.shape[1]:  # triangular: half the work
            shape = np.asfortranarray(self._features.T)
            product = blas.dtrmm(1.0, factor, shape, lower=int(not np.triu(factor, 1).any())).T
        else:
            product = self._features @ factor.T
        centre = point.means @ factor.T
        scores = np.einsum("nr,nr->n", product, product) - 2.0 * (centre @ product.T)
        scores += np.einsum("hr,hr->h", centre, centre)[:, None]
        return np.asarray(self._problem.episodes * scores)

    def levels(self, point: ColumnPoint, scores: FloatArray) -> FloatArray:
        """Reward of the current combination in each block, shape (B,)."""
        columns = point.columns
        rewards = columns.incidence.T @ scores[columns.steps, columns.rows]
        return np.array([point.weights[own] @ rewards[own] for own in columns.slices])

    def _sums(self, columns: ColumnSet, masses: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Second moment (d, d) and mean at each step (H, d) of masses on the nodes."""
        shape = (self._problem.horizon, len(self._features))
        by_step = sparse.csr_array((masses, (columns.steps, columns.rows)), shape=shape)
        total = np.bincount(columns.rows, weights=masses, minlength=shape[1]).astype(np.float64)
        return information.second_moment(self._features, total), np.asarray(by_step @ self._features)

    def _score_factor(self, point: ColumnPoint) -> FloatArray:
        """F with score T ||F (x - m)||^2: L^-1 for D, B' I^-1 for A and V (its triangular factor if that is less)."""
        inverse, _ = lapack.dtrtri(point.factor, lower=1)
        inverse = np.tril(inverse)
        if point.half is None:
            return inverse
        factor = np.asarray(point.half.T @ inverse)
        if 2 * factor.shape[0] > factor.shape[1]:
            factor = np.asarray(np.linalg.qr(factor, mode="r"), dtype=np.float64)
        return factor

    # -- derivatives ---------------------------------------------------------------------------------------------

    def derivatives(self, point: ColumnPoint, *, hessian: bool = True) -> tuple[FloatArray, FloatArray]:
        """Gradient (k,) and Hessian of -s (k, k) over the columns; an empty array where none is asked for."""
        if self._moments_are_cheaper(point):
            return self._by_moments(point, hessian)
        return self._by_nodes(point, hessian)

    def _moments_are_cheaper(self, point: ColumnPoint) -> bool:
        """Compare the multiplications of the two forms of the Hessian."""
        columns = point.columns
        n, k, d = len(columns.rows), len(columns), self._problem.dimension
        r = d if point.half is None else min(d, point.half.shape[1])
        product = min(n * k, _SPARSE_COST * columns.incidence.nnz)
        by_nodes = n * d * (d + n) + n * product + k * product
        by_moments = 2.0 * k * d * d * r + k * k * r * (d + self._problem.horizon)
        missing = sum(len(own.indices) for own in columns.columns if own not in self._moments)
        return by_moments + missing * d * d < by_nodes

    def _by_nodes(self, point: ColumnPoint, hessian: bool) -> tuple[FloatArray, FloatArray]:
        columns, episodes = point.columns, self._problem.episodes
        shifted = self._features[columns.rows] - point.means[columns.steps]
        solved = solve_triangular(point.factor, shifted.T, lower=True, check_finite=False)
        scored = solved if point.half is None else point.half.T @ solved
        gradient = columns.incidence.T @ (episodes * np.einsum("rn,rn->n", scored, scored))
        if not hessian:
            return gradient, np.empty((0, 0))
        inner = solved.T @ solved
        for step in range(self._problem.horizon):  # nodes are sorted by step
            low, high = np.searchsorted(columns.steps, [step, step + 1])
            inner[low:high, low:high] += 1.0 / episodes
        if point.half is None:
            inner *= inner
        else:
            inner *= 2.0 * (scored.T @ scored)
        inner *= episodes**2
        if _SPARSE_COST * columns.incidence.nnz < inner.shape[0] * len(columns):
            return gradient, np.asarray(columns.incidence.T @ (columns.incidence.T @ inner).T)
        dense = columns.incidence.toarray()
        return gradient, np.asarray(dense.T @ (inner @ dense))

    def _by_moments(self, point: ColumnPoint, hessian: bool) -> tuple[FloatArray, FloatArray]:
        columns, episodes, means = point.columns, self._problem.episodes, point.means
        pairs = [self._moments_of(column) for column in columns.columns]
        mass = np.array([self._masses[column.block] for column in columns.columns])
        first = np.stack([pair[1] for pair in pairs]) - mass[:, None, None] * means  # c_a, (k, H, d)
        cross = np.einsum("khd,he->kde", first, means, optimize=True)
        second = np.stack([pair[0] for pair in pairs]) - mass[:, None, None] * (means.T @ means)
        second -= cross + cross.transpose(0, 2, 1)  # S_a, (k, d, d)
        factor = self._score_factor(point)
        gradient = episodes * (second.reshape(len(columns), -1) @ (factor.T @ factor).ravel())
        if not hessian:
            return gradient, np.empty((0, 0))
        inverse = np.tril(lapack.dtrtri(point.factor, lower=1)[0])
        right = inverse.T if point.half is None else inverse.T @ point.half
        own = np.matmul(inverse, second @ right).reshape(len(columns), -1)
        steps = (first @ right).reshape(len(columns), -1)
        if point.half is None:
            return gradient, np.asarray(episodes**2 * (own @ own.T) + 2.0 * episodes * (steps @ steps.T))
        return gradient, np.asarray(2.0 * episodes**2 * (own @ own.T) + 2.0 * episodes * (steps @ steps.T))

    def _moments_of(self, column: Column) -> tuple[FloatArray, FloatArray]:
        """Second moment (d, d) and first moment of each step (H, d) of a column; kept as long as the column lives."""
        if column not in self._moments:
            alone = ColumnSet(self._problem.mdp, [column])
            self._moments[column] = self._sums(alone, alone.incidence.toarray()[:, 0])
        return self._moments[column]

    # -- Newton's method -----------------------------------------------------------------------------------------

    def improve(self, point: ColumnPoint, *, target: float, max_steps: int) -> tuple[ColumnPoint, float]:
        """Newton steps until the gap over the working set is at most `target`.

        Returns:
            The last point and the size of its last step (0 if none).
        """
        restricted = _Restricted(self, point)
        # `improve` asks no more of a space than what _Restricted has
        weights, _, step = improve(restricted, point.weights, target=target, max_steps=max_steps)  # type: ignore[arg-type]
        return restricted.at(weights), step


class _Restricted:
    """The objective on the weights of a working set, as `improve` wants it; the last point is kept."""

    def __init__(self, master: ColumnMaster, point: ColumnPoint) -> None:
        self._master = master
        self._last = point
        self.parts = point.columns.slices

    def at(self, weights: FloatArray) -> ColumnPoint:
        if weights is not self._last.weights:
            self._last = self._master.point(self._last.columns, weights)
        return self._last

    def value(self, weights: FloatArray) -> float:
        return self.at(weights).value

    def gradient(self, weights: FloatArray) -> FloatArray:
        return self._master.derivatives(self.at(weights), hessian=False)[0]

    def derivatives(self, weights: FloatArray) -> tuple[FloatArray, FloatArray]:
        return self._master.derivatives(self.at(weights))
