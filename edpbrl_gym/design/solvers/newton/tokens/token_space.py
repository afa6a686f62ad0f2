"""The objective on a working set of tokens by inner products in the metric of a proper prior (formulas: `space`).

These are k x k matrices, less than d x d where the working set is smaller than the dimension: with
P_ij = z_i' Lambda^-1 z_j, W = diag(c w) and N = E + W^(1/2) P W^(1/2),

    K = P - P W^(1/2) N^-1 W^(1/2) P,   log det I = log det Lambda + log det N   (Woodbury).
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import lapack, solve_triangular

from edpbrl_gym._arrays import Floats, Positions
from edpbrl_gym.design.criteria import cholesky
from edpbrl_gym.design.metric import PriorMetric
from edpbrl_gym.design.rounding import woodbury_condition
from edpbrl_gym.design.solvers.newton.tokens.blocks import TokenBlocks
from edpbrl_gym.design.solvers.newton.tokens.forms import ScoreForm, factor_form
from edpbrl_gym.design.solvers.newton.tokens.space import Space

__all__ = ["TokenSpace"]


_LARGEST_CANCELLATION = 50.0  # prior's part of a score to the largest score: float32 then errs by about 1e-5 of it


class TokenSpace(Space):
    """Inner products in the metric of a proper prior.

    Args:
        blocks: The blocks.
        tokens: The working set.
        metric: The metric of the prior.
        prior: Lambda, shape (d, d).
        target: B with V = B B', shape (d, r); None for D.
        baseline: s(Lambda), the offset.
        isotropic_a: Whether V is the identity and the prior lambda I: then A needs no product with B.
    """

    def __init__(
        self,
        blocks: TokenBlocks,
        tokens: Positions,
        metric: PriorMetric,
        prior: Floats,
        target: Floats | None,
        *,
        baseline: float,
        isotropic_a: bool = False,
    ) -> None:
        super().__init__(blocks, tokens)
        self.offset = baseline
        self._metric = metric
        self._prior = prior
        self._block = np.repeat(np.arange(len(self.parts)), [part.stop - part.start for part in self.parts])
        self._half = metric.half(self.rows)
        self._gram = self._half @ self._half.T
        self._target = target
        self._isotropic_a = isotropic_a
        self._columns: Floats | None = None  # C = X Lambda^-1 B, (k, r)
        self._second: Floats | None = None  # C C', (k, k), where that is less
        if isotropic_a:
            assert metric.isotropic is not None
            self._second = self._gram / metric.isotropic
        elif target is not None:
            columns = metric.half_transposed(self._half) @ target
            if columns.shape[1] <= len(tokens):
                self._columns = columns
            else:
                self._second = columns @ columns.T

    @property
    def largest(self) -> float:
        """Largest c x' Lambda^-1 x: what the data can add to the prior in one direction."""
        return float((self.scale * np.diag(self._gram)).max(initial=0.0))

    def value(self, weights: Floats) -> float:
        """s(I) - s(Lambda). See the base class."""
        used = np.flatnonzero(weights)
        root = np.sqrt(self.scale[used] * weights[used])
        factor = self._factor(self._centred_gram(self._gram, weights, used, used), root)
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
        """See the base class."""
        return self._parts_of(weights, hessian=False)[0]

    def derivatives(self, weights: Floats) -> tuple[Floats, Floats]:
        """See the base class."""
        gradient, inner, score_gram = self._parts_of(weights, hessian=True)
        assert inner is not None
        return gradient, self._hessian(inner, score_gram)

    def learned(self, weights: Floats) -> float:
        """See the base class."""
        half = self._metric.half(self.roots(weights))
        sizes = np.maximum(np.linalg.eigvalsh(half @ half.T), 0.0)
        return float((sizes / (1.0 + sizes)).sum())

    def condition(self, weights: Floats) -> float:
        """See the base class."""
        means = self.means(weights)
        return woodbury_condition(self._metric, self._prior, self.roots(weights), means, self._block_scale)

    @property
    def magnitude(self) -> float:
        """Of P, or of C C'. See the base class."""
        if self._columns is not None:
            squares = np.einsum("kr,kr->k", self._columns, self._columns)
        else:
            squares = np.diag(self._gram if self._second is None else self._second)
        return sum(float((self.scale[part] * squares[part]).max()) for part in self.parts)

    def form(self, weights: Floats) -> ScoreForm:
        """The base and a negative term for each token with mass; for V as many terms as B has columns.

        Where the data outweigh the prior so much that these terms would cancel in float32, the form of `FeatureSpace`.
        """
        used = np.flatnonzero(weights)
        root = np.sqrt(self.scale[used] * weights[used])
        half = self._half[used].copy()
        block = self._block[used]
        for number in range(len(self.parts)):
            half[block == number] -= weights[self.parts[number]] @ self._half[self.parts[number]]
        half *= root[:, None]
        if self.largest > _LARGEST_CANCELLATION * self._spread(weights) and (self._target is None or self._isotropic_a):
            data = self._metric.whole(half)
            factor = cholesky(data.T @ data + self._prior)
            solved_target = None if self._target is None else solve_triangular(factor, self._target, lower=True)
            return factor_form(np.tril(lapack.dtrtri(factor, lower=1)[0]), solved_target)
        if self._target is not None and not self._isotropic_a:
            gram = half @ half.T
            factor = self._factor(gram, None)
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

    def _parts_of(self, weights: Floats, *, hessian: bool) -> tuple[Floats, Floats | None, Floats | None]:
        """Gradient, K and A; K is None without the Hessian, A is None for D."""
        everything = np.arange(len(weights))
        used = np.flatnonzero(weights)
        root = np.sqrt(self.scale[used] * weights[used])
        inner = self._centred_gram(self._gram, weights, everything, everything)
        factor = self._factor(inner[np.ix_(used, used)], root)
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

    def _factor(self, inner: Floats, root: Floats | None) -> Floats:
        """Lower Cholesky factor of N = E + W^(1/2) P W^(1/2)."""
        matrix = inner.copy() if root is None else inner * np.outer(root, root)
        matrix.flat[:: len(matrix) + 1] += 1.0
        return np.asarray(np.linalg.cholesky(matrix))

    def _centred_gram(self, gram: Floats, weights: Floats, rows: Positions, columns: Positions) -> Floats:
        """Inner products of the rows less the means of their blocks, from those of the centred rows."""
        means = np.stack([weights[part] @ gram[part] for part in self.parts])  # (B, k)
        across = np.stack([means[:, part] @ weights[part] for part in self.parts])  # (B, B)
        result = gram[np.ix_(rows, columns)] if len(rows) < len(gram) else gram.copy()
        result -= means[self._block[rows]][:, columns]
        result -= means[self._block[columns]][:, rows].T
        if len(across) == 1:
            result += across[0, 0]
        else:
            result += across[np.ix_(self._block[rows], self._block[columns])]
        return np.asarray(result)

    def _centred_columns(self, weights: Floats) -> Floats:
        assert self._columns is not None
        means = np.stack([weights[part] @ self._columns[part] for part in self.parts])
        return np.asarray(self._columns - means[self._block])
