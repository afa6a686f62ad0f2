"""The restricted master of the general solver: Newton on the weights of a few columns (paths or policies).

With the information I = Lambda + T sum_i d_i z_i z_i' = L L', d = E w the masses of the nodes i = (step, row),
z_i = x_i - m_h (m_h the mean of its step) and V = B B', the derivatives on the nodes are those of the lifted problem

    K_ij = z_i' I^-1 z_j + [same step] / T,    A_ij = z_i' I^-1 V I^-1 z_j,
    D:     gradient T (K_ii - 1/T),  Hessian of -s  T^2 K o K               (o elementwise; less its constant part)
    A, V:  gradient T A_ii,          Hessian of -s  2 T^2 K o A

and on the columns E'g and E' N E. Where the columns visit many nodes the same Hessian comes from their moments
S_a = sum_i E_ia z_i z_i' and c_a,h = sum of E_ia z_i over the nodes i of step h, up to a constant on each pair of
blocks, which changes nothing on the simplices:

    D:     T^2 <L^-1 S_a L^-T, L^-1 S_b L^-T> + 2 T <c_a L^-T, c_b L^-T>
    A, V:  2 T^2 <L^-1 S_a I^-1 B, L^-1 S_b I^-1 B> + 2 T <c_a I^-1 B, c_b I^-1 B>
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy as np
from scipy import sparse
from scipy.linalg import blas, lapack, solve_triangular

from edpbrl_gym._arrays import Floats, Positions
from edpbrl_gym.design import information
from edpbrl_gym.design.criteria import (
    ACriterion,
    DCriterion,
    SingularInformationError,
    VCriterion,
    cholesky,
)
from edpbrl_gym.design.deadline import NEVER, Deadline
from edpbrl_gym.design.problem import DesignProblem
from edpbrl_gym.design.rounding import factor_condition
from edpbrl_gym.design.solvers.line_search import Segment, exact_step
from edpbrl_gym.design.solvers.newton.columns.columns import Column, ColumnSet
from edpbrl_gym.design.solvers.newton.columns.costs import (
    moments_cost,
    new_moments_cost,
    nodes_cost,
    scores_cost,
    sparse_congruence_pays,
)
from edpbrl_gym.design.solvers.newton.master import ByProducts, improve

__all__ = ["ColumnMaster", "ColumnPoint", "Local"]


@dataclass(frozen=True)
class Local:
    """The objective around an occupancy.

    Attributes:
        second: Second moment of the centred features over all steps, shape (d, d).
        means: Their mean at each step, shape (H, d).
        matrix: Information I, prior included, shape (d, d).
        factor: Its lower Cholesky factor L, shape (d, d).
        half: L^-1 B for A and V, shape (d, r); None for D.
        value: s(I).
    """

    second: Floats
    means: Floats
    matrix: Floats
    factor: Floats
    half: Floats | None
    value: float

    def score_factor(self) -> Floats:
        """F with score T ||F (x - m)||^2: L^-1 for D, B' I^-1 for A and V (its triangular factor if that is less)."""
        inverse = self.inverse_factor()
        if self.half is None:
            return inverse
        factor = np.asarray(self.half.T @ inverse)
        if 2 * factor.shape[0] > factor.shape[1]:
            factor = np.asarray(np.linalg.qr(factor, mode="r"), dtype=np.float64)
        return factor

    def inverse_factor(self) -> Floats:
        """L^-1, lower triangular, shape (d, d)."""
        return np.asarray(np.tril(lapack.dtrtri(self.factor, lower=1)[0]))


@dataclass(frozen=True)
class ColumnPoint:
    """Weights on a working set and the objective around their combination.

    Attributes:
        columns: The working set.
        weights: Non-negative, sum to 1 in every block, shape (k,).
        local: The objective there.
    """

    columns: ColumnSet
    weights: Floats
    local: Local

    @property
    def value(self) -> float:
        """s(I)."""
        return self.local.value

    @property
    def support(self) -> list[Column]:
        """Columns with weight."""
        return [self.columns.columns[number] for number in np.flatnonzero(self.weights)]

    @property
    def occupancy(self) -> Floats:
        """Mean occupancy, shape (H, M)."""
        return self.columns.occupancy(self.weights)


class ColumnMaster:
    """Newton's method on the weights of a working set of columns, and the scores of all rows.

    Args:
        problem: The problem; criterion A, V or D.
        masses: Mass of each block; they sum to 1, shape (B,).
    """

    def __init__(self, problem: DesignProblem, masses: Floats) -> None:
        self._problem = problem
        self._masses = masses
        features = np.asarray(problem.features, dtype=np.float64)
        self._features: Floats = features - features.mean(axis=0)  # a common part changes nothing but rounding
        self._moments: WeakKeyDictionary[Column, tuple[Floats, Floats]] = WeakKeyDictionary()
        self._target: Floats | None = None
        if isinstance(problem.criterion, (ACriterion, VCriterion)):
            self._target = problem.criterion.target_factor(problem.dimension)
        elif not isinstance(problem.criterion, DCriterion):
            raise ValueError(f"Expected the criterion A, V or D, got {problem.criterion.name!r}.")

    # -- points and scores ---------------------------------------------------------------------------------------

    def point(self, columns: ColumnSet, weights: Floats) -> ColumnPoint:
        """Evaluate the objective; SingularInformationError where it is infinite."""
        return ColumnPoint(
            columns, weights, self._local(*self._sums(columns.steps, columns.rows, columns.incidence @ weights))
        )

    def moved(self, point: ColumnPoint, columns: ColumnSet) -> ColumnPoint:
        """The same combination on another working set that holds all columns with weight."""
        return ColumnPoint(columns, columns.weights_of(point.columns, point.weights), point.local)

    def leapt(self, point: ColumnPoint, column: Column) -> ColumnPoint:
        """All weight on a column of the only block if that is at least as good as the point, else the point.

        The objective is concave: it is if it falls from there towards the point. Newton's method on the weights could
        not see the difference of two columns that are nearly the same.
        """
        columns = point.columns
        weights = np.array([float(one.key == column.key) for one in columns.columns])
        try:
            alone = self.point(columns, weights)
        except SingularInformationError:  # only without a proper prior
            return point
        scores = self.scores(alone.local)
        return alone if self.levels(alone, scores)[0] >= self.levels(point, scores)[0] else point

    def towards(self, local: Local, column: Column) -> Local:
        """The objective after an exact Frank-Wolfe step to a column of the only block."""
        second, means = self._moments_of(column)
        change, shift = second - local.second, means - local.means
        segment = Segment(
            information=local.matrix,
            means=local.means,
            moment_change=change,
            mean_change=shift,
            episodes=self._problem.episodes,
            longest=1.0,
        )
        step = exact_step(self._problem.criterion, segment)
        return self._local(local.second + step * change, local.means + step * shift)

    def scores(self, local: Local) -> Floats:
        """Scores T ||F (x - m_h)||^2 of all rows at all steps, shape (H, N): the gradient up to a constant per step."""
        factor = local.score_factor()
        if factor.shape[0] == factor.shape[1]:  # triangular: half the work
            shape = np.asfortranarray(self._features.T)
            product = blas.dtrmm(1.0, factor, shape, lower=int(not np.triu(factor, 1).any())).T
        else:
            product = self._features @ factor.T
        centre = local.means @ factor.T
        scores = np.einsum("nr,nr->n", product, product) - 2.0 * (centre @ product.T)
        scores += np.einsum("hr,hr->h", centre, centre)[:, None]
        return np.asarray(self._problem.episodes * scores)

    def condition(self, point: ColumnPoint) -> float:
        """Condition number of the information matrix (`rounding`)."""
        local = point.local
        return factor_condition(local.factor, local.means, np.full(len(local.means), self._problem.episodes))

    def levels(self, point: ColumnPoint, scores: Floats) -> Floats:
        """Reward of the current combination in each block, shape (B,)."""
        return point.columns.levels(point.weights, scores)

    def _local(self, second: Floats, means: Floats) -> Local:
        matrix = self._problem.episodes * (second - means.T @ means) + self._problem.prior
        factor = cholesky(matrix)
        if self._target is None:
            return Local(second, means, matrix, factor, None, 2.0 * float(np.log(np.diag(factor)).sum()))
        half = solve_triangular(factor, self._target, lower=True, check_finite=False)
        return Local(second, means, matrix, factor, half, -float(np.vdot(half, half)))

    def _sums(self, steps: Positions, rows: Positions, masses: Floats) -> tuple[Floats, Floats]:
        """Second moment (d, d) and mean at each step (H, d) of masses on nodes."""
        shape = (self._problem.horizon, len(self._features))
        by_step = sparse.csr_array((masses, (steps, rows)), shape=shape)
        total = np.bincount(rows, weights=masses, minlength=shape[1]).astype(np.float64)
        return information.second_moment(self._features, total), np.asarray(by_step @ self._features)

    # -- derivatives ---------------------------------------------------------------------------------------------

    def derivatives(self, point: ColumnPoint, *, hessian: bool = True) -> tuple[Floats, Floats]:
        """Gradient (k,) and Hessian of -s (k, k) over the columns; an empty array where none is asked for."""
        if self._nodes_pay(point, hessian):
            return self.by_nodes(point, hessian)
        if hessian:
            return self.by_moments(point)
        columns = point.columns
        return columns.incidence.T @ self.scores(point.local)[columns.steps, columns.rows], np.empty((0, 0))

    def _nodes_pay(self, point: ColumnPoint, hessian: bool) -> bool:
        """Derivatives by nodes, against the Hessian by moments or the gradient by the scores of all rows."""
        columns, half, dimension = point.columns, point.local.half, self._problem.dimension
        rank = 0 if half is None else min(dimension, half.shape[1])
        by_nodes = nodes_cost(columns.incidence.shape, columns.incidence.nnz, dimension, rank, hessian=hessian)
        if not hessian:
            return by_nodes <= scores_cost(self._problem, rank)
        lengths = [len(column.indices) for column in columns.columns if column not in self._moments]
        new = sum(new_moments_cost(length, len(self._features), dimension) for length in lengths)
        return by_nodes <= new + moments_cost(len(columns), self._problem.horizon, dimension, rank)

    def by_nodes(self, point: ColumnPoint, hessian: bool) -> tuple[Floats, Floats]:
        """Gradient and Hessian through the Hessian on the nodes; an empty array where none is asked for."""
        columns, local, episodes = point.columns, point.local, self._problem.episodes
        shifted = self._features[columns.rows] - local.means[columns.steps]
        solved = solve_triangular(local.factor, shifted.T, lower=True, check_finite=False)
        scored = solved if local.half is None else local.half.T @ solved
        gradient = columns.incidence.T @ (episodes * np.einsum("rn,rn->n", scored, scored))
        if not hessian:
            return gradient, np.empty((0, 0))
        inner = solved.T @ solved
        # the square of [same step] / T would vanish on the simplices but for rounding
        factor = inner.copy() if local.half is None else 2.0 * (scored.T @ scored)
        share = (2.0 if local.half is None else 1.0) / episodes
        for step in range(self._problem.horizon):  # nodes are sorted by step
            low, high = np.searchsorted(columns.steps, [step, step + 1])
            inner[low:high, low:high] += share
        inner *= factor
        inner *= episodes**2
        if sparse_congruence_pays(columns.incidence.nnz, columns.incidence.shape):
            return gradient, np.asarray(columns.incidence.T @ (columns.incidence.T @ inner).T)
        dense = columns.incidence.toarray()
        return gradient, np.asarray(dense.T @ (inner @ dense))

    def by_moments(self, point: ColumnPoint) -> tuple[Floats, Floats]:
        """Gradient and Hessian through the moments of the columns."""
        columns, local, episodes = point.columns, point.local, self._problem.episodes
        means, size = local.means, len(point.columns)
        pairs = [self._moments_of(column) for column in columns.columns]
        mass = np.array([self._masses[column.block] for column in columns.columns])[:, None, None]
        first = np.stack([pair[1] for pair in pairs]) - mass * means  # c_a, (k, H, d)
        second = np.stack([pair[0] for pair in pairs])
        cross = np.einsum("khd,he->kde", first + 0.5 * mass * means, means, optimize=True)
        second -= cross
        second -= cross.transpose(0, 2, 1)  # S_a, (k, d, d)
        factor = local.score_factor()
        gradient = episodes * (second.reshape(size, -1) @ (factor.T @ factor).ravel())
        inverse = local.inverse_factor()
        right = inverse.T if local.half is None else inverse.T @ local.half
        second_products = np.matmul(inverse, second @ right).reshape(size, -1)
        first_products = (first @ right).reshape(size, -1)
        scale = 1.0 if local.half is None else 2.0
        return gradient, np.asarray(
            scale * episodes**2 * (second_products @ second_products.T)
            + 2.0 * episodes * (first_products @ first_products.T)
        )

    def _moments_of(self, column: Column) -> tuple[Floats, Floats]:
        """Second moment (d, d) and first moment of each step (H, d) of a column; kept as long as the column lives."""
        if column not in self._moments:
            mdp = self._problem.mdp
            steps, pairs = np.divmod(column.indices, mdp.num_pairs)
            self._moments[column] = self._sums(steps, mdp.pair_row[pairs], column.values)
        return self._moments[column]

    # -- Newton's method -----------------------------------------------------------------------------------------

    def improve(
        self,
        point: ColumnPoint,
        *,
        target: float,
        max_steps: int,
        deadline: Deadline = NEVER,
        observe: Callable[[ColumnPoint], object] = lambda _: False,
    ) -> tuple[ColumnPoint, float]:
        """Newton steps until the gap over the working set is at most `target`, the time is up or `observe` says so.

        Returns:
            The last point and the size of its last step (0 if none).
        """
        restricted = _Restricted(self, point)
        weights, _, step = improve(
            restricted,
            point.weights,
            target=target,
            max_steps=max_steps,
            deadline=deadline,
            observe=lambda weights, _: observe(restricted.at(weights)),
            gradient_first=True,
        )
        return restricted.at(weights), step


class _Restricted:
    """The objective on the weights of a working set, in the form that `improve` takes; the last point is kept."""

    def __init__(self, master: ColumnMaster, point: ColumnPoint) -> None:
        self._master = master
        self._last = point
        self.parts = point.columns.slices
        self.by_products: ByProducts | None = None

    def at(self, weights: Floats) -> ColumnPoint:
        if weights is not self._last.weights:
            self._last = self._master.point(self._last.columns, weights)
        return self._last

    def condition(self, weights: Floats) -> float:
        return self._master.condition(self.at(weights))

    def value(self, weights: Floats) -> float:
        return self.at(weights).value

    def gradient(self, weights: Floats) -> Floats:
        return self._master.derivatives(self.at(weights), hessian=False)[0]

    def derivatives(self, weights: Floats) -> tuple[Floats, Floats]:
        return self._master.derivatives(self.at(weights))
