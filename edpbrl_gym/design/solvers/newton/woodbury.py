"""The objective on a working set of tokens by inner products in the metric of a proper prior (formulas: `objective`).

These are k x k matrices, less than d x d where the working set is smaller than the dimension: with
P_ij = z_i' Lambda^-1 z_j, W = diag(c w) and N = E + W^(1/2) P W^(1/2),

    K = P - P W^(1/2) N^-1 W^(1/2) P,   log det I = log det Lambda + log det N   (Woodbury).
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import cho_solve, lapack, solve_triangular

from edpbrl_gym._arrays import Floats, Positions
from edpbrl_gym.design.certificate import condition_number
from edpbrl_gym.design.criteria import cholesky
from edpbrl_gym.design.problem import DesignProblem
from edpbrl_gym.design.solvers.newton.objective import Objective
from edpbrl_gym.design.solvers.newton.scores import PriorMetric, ScoreForm, factor_form
from edpbrl_gym.design.solvers.newton.tokens import Tokens

__all__ = ["LARGEST_RATIO", "WoodburyObjective", "woodbury_condition"]


LARGEST_RATIO = (
    1e6  # data to prior in one direction, up to which inner products in the prior's metric keep enough digits
)
_LARGEST_CANCELLATION = 50.0  # prior's part of a score to the largest score: float32 then errs by about 1e-5 of it


class WoodburyObjective(Objective):
    """Inner products in the metric of a proper prior.

    Args:
        tokens: All tokens.
        chosen: The working set.
        metric: The metric of the prior.
        problem: The problem: its prior, its criterion, in closed form, and s(Lambda), which is the offset.
    """

    def __init__(self, tokens: Tokens, chosen: Positions, metric: PriorMetric, problem: DesignProblem) -> None:
        super().__init__(tokens, chosen)
        form = problem.criterion.form
        assert form is not None
        self._target = target = form.target(problem.dimension)  # B with V = B B', (d, r); None for log det I
        self.offset = problem.baseline
        self._metric = metric
        self._prior = problem.prior
        self._block = np.repeat(np.arange(len(self.parts)), [part.stop - part.start for part in self.parts])
        self._half = metric.half(self.rows)
        self._gram = self._half @ self._half.T
        # for A against lambda I the products with B = E are those of the prior
        self._isotropic_a = bool(metric.isotropic) and form.identity
        self._columns: Floats | None = None  # C = X Lambda^-1 B, (k, r)
        self._second: Floats | None = None  # C C', (k, k), where that is less
        if self._isotropic_a:
            assert metric.isotropic is not None
            self._second = self._gram / metric.isotropic
        elif target is not None:
            columns = metric.half_transposed(self._half) @ target
            if columns.shape[1] <= len(chosen):
                self._columns = columns
            else:
                self._second = columns @ columns.T

    @property
    def largest(self) -> float:
        """Largest c x' Lambda^-1 x: what the data can add to the prior in one direction."""
        return float((self.scale * np.diag(self._gram)).max(initial=0.0))

    def value(self, weights: Floats) -> float:
        """s(I) - s(Lambda)."""
        used = np.flatnonzero(weights)
        root = np.sqrt(self.scale[used] * weights[used])
        factor = _factor(self._centred_gram(self._gram, weights, used, used) * np.outer(root, root))
        if self._target is None:
            return 2.0 * float(np.log(np.diag(factor)).sum())
        if self._columns is not None:
            columns = self._centred_columns(weights)[used] * root[:, None]
            solved = solve_triangular(factor, columns, lower=True, check_finite=False)
            return float(np.vdot(solved, solved))
        assert self._second is not None
        inner = self._centred_gram(self._second, weights, used, used) * np.outer(root, root)
        solved = solve_triangular(factor, inner, lower=True, check_finite=False)
        return float(np.trace(solve_triangular(factor, solved.T, lower=True, check_finite=False)))

    def gradient(self, weights: Floats) -> Floats:
        """The diagonal of K or A alone."""
        return self._gradient_and_grams(weights, hessian=False)[0]

    def derivatives(self, weights: Floats) -> tuple[Floats, Floats]:
        """From K and A."""
        gradient, inner, score_gram = self._gradient_and_grams(weights, hessian=True)
        assert inner is not None
        return gradient, self._hessian(inner, score_gram)

    def learned(self, weights: Floats) -> float:
        """From the eigenvalues of the data's part in the metric of the prior."""
        half = self._metric.half(self.roots(weights))
        sizes = np.maximum(np.linalg.eigvalsh(half @ half.T), 0.0)
        return float((sizes / (1.0 + sizes)).sum())

    def trace(self, weights: Floats) -> float:
        """The squared norm of `roots`."""
        roots = self.roots(weights)
        return float(np.vdot(roots, roots))

    def condition(self, weights: Floats) -> float:
        """That of Lambda + R'R, and that of Lambda."""
        return woodbury_condition(self._metric, self._prior, self.roots(weights), self.means(weights), self._all.scale)

    @property
    def magnitude(self) -> float:
        """That of P, or of C C'."""
        if self._columns is not None:
            squares = np.einsum("kr,kr->k", self._columns, self._columns)
        else:
            squares = np.diag(self._gram if self._second is None else self._second)
        return sum(float((self.scale[part] * squares[part]).max()) for part in self.parts)

    def form(self, weights: Floats) -> ScoreForm:
        """The base and a negative term for each token with mass; for V as many terms as B has columns.

        Where the data outweigh the prior so much that these terms would cancel in float32, that of the d x d matrix.
        """
        used = np.flatnonzero(weights)
        root = np.sqrt(self.scale[used] * weights[used])
        half = self._half[used].copy()
        block = self._block[used]
        for number, part in enumerate(self.parts):
            half[block == number] -= weights[part] @ self._half[part]
        half *= root[:, None]
        if self.largest > _LARGEST_CANCELLATION * self._spread(weights) and (self._target is None or self._isotropic_a):
            data = self._metric.whole(half)
            factor = cholesky(data.T @ data + self._prior)
            solved_target = None if self._target is None else solve_triangular(factor, self._target, lower=True)
            return factor_form(np.tril(lapack.dtrtri(factor, lower=1)[0]), solved_target)
        if self._target is not None and not self._isotropic_a:
            factor = _factor(half @ half.T)
            target_half = self._metric.half(self._target.T)
            inner = solve_triangular(factor, half @ target_half.T, lower=True, check_finite=False)
            solved = solve_triangular(factor, half, lower=True, check_finite=False)
            return ScoreForm.of_factor(self._metric.half_transposed(target_half - inner.T @ solved))
        sizes, vectors = np.linalg.eigh(half @ half.T)
        positive = sizes > 1e-14 * max(1.0, float(sizes[-1]))
        sizes, vectors = sizes[positive], vectors[:, positive]
        directions = self._metric.half_transposed((vectors / np.sqrt(sizes)).T @ half)
        share = sizes / (1.0 + sizes)
        if not self._isotropic_a:
            return ScoreForm(1.0, directions, -share)
        precision = self._metric.isotropic
        assert precision is not None
        return ScoreForm(1.0 / precision, directions, -(2.0 * share - share**2) / precision)

    def _spread(self, weights: Floats) -> float:
        """Largest score of the working set, in the units of `largest`."""
        unit = self._metric.isotropic if self._isotropic_a else 1.0
        return float(self.gradient(weights).max(initial=0.0)) * (unit or 1.0)

    def _gradient_and_grams(self, weights: Floats, *, hessian: bool) -> tuple[Floats, Floats | None, Floats | None]:
        """Gradient, K and A; K is None without the Hessian, A is None for D."""
        everything = np.arange(len(weights))
        used = np.flatnonzero(weights)
        root = np.sqrt(self.scale[used] * weights[used])
        inner = self._centred_gram(self._gram, weights, everything, everything)
        factor = _factor(inner[np.ix_(used, used)] * np.outer(root, root))
        half = solve_triangular(factor, root[:, None] * inner[used], lower=True, check_finite=False)  # N^-1/2 W^1/2 P
        if self._target is None:
            gradient = self.scale * (np.diag(inner) - np.einsum("sk,sk->k", half, half))
            return gradient, inner - half.T @ half if hessian else None, None
        if self._columns is not None:
            columns = self._centred_columns(weights)
            solved = solve_triangular(factor, root[:, None] * columns[used], lower=True, check_finite=False)
            columns = columns - half.T @ solved  # X I^-1 B
            gradient = self.scale * np.einsum("kr,kr->k", columns, columns)
            if not hessian:
                return gradient, None, None
            return gradient, inner - half.T @ half, columns @ columns.T
        assert self._second is not None
        score_gram = self._centred_gram(self._second, weights, everything, everything)
        solved = solve_triangular(factor, root[:, None] * score_gram[used], lower=True, check_finite=False)
        score_gram -= half.T @ solved  # (E + P W)^-1 C C'
        solved = solve_triangular(factor, root[:, None] * score_gram[:, used].T, lower=True, check_finite=False)
        score_gram -= solved.T @ half
        gradient = self.scale * np.diag(score_gram)
        return gradient, inner - half.T @ half if hessian else None, score_gram

    def _centred_gram(self, gram: Floats, weights: Floats, rows: Positions, columns: Positions) -> Floats:
        """Inner products of the rows less the means of their blocks, from those of the centred rows."""
        means = np.stack([weights[part] @ gram[part] for part in self.parts])  # (B, k)
        across = np.stack([means[:, part] @ weights[part] for part in self.parts])  # (B, B)
        result = gram[np.ix_(rows, columns)] if len(rows) < len(gram) else gram.copy()
        result -= means[self._block[rows]][:, columns]
        result -= means[self._block[columns]][:, rows].T
        result += across[0, 0] if len(across) == 1 else across[np.ix_(self._block[rows], self._block[columns])]
        return np.asarray(result)

    def _centred_columns(self, weights: Floats) -> Floats:
        assert self._columns is not None
        means = np.stack([weights[part] @ self._columns[part] for part in self.parts])
        return np.asarray(self._columns - means[self._block])


def _factor(inner: Floats) -> Floats:
    """Lower Cholesky factor of N = E + W^(1/2) P W^(1/2)."""
    matrix = inner.copy()
    matrix.flat[:: len(matrix) + 1] += 1.0
    return np.asarray(np.linalg.cholesky(matrix))


def woodbury_condition(metric: PriorMetric, prior: Floats, roots: Floats, means: Floats, scale: Floats) -> float:
    """Condition number (`certificate`) of Lambda + R'R by products with k vectors, plus that of Lambda, used as well.

    The means m, shape (B, d), are what was subtracted as sum scale_b m_b m_b'.
    """
    half = metric.half(roots)
    factor = np.asfortranarray(_factor(half @ half.T))  # or every solution would copy it

    def solve(vector: Floats) -> Floats:
        product = metric.half(vector[None])[0]
        product = product - half.T @ cho_solve((factor, True), half @ product, check_finite=False)
        return metric.half_transposed(product[None])[0]

    prior_diagonal = np.diag(prior)
    condition = condition_number(prior_diagonal + np.einsum("kd,kd->d", roots, roots) + scale @ means**2, solve)
    if metric.isotropic:
        return condition + 1.0
    return condition + condition_number(prior_diagonal, lambda vector: metric.solve(vector[None])[0])
