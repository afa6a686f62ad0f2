"""The objective on a working set of tokens: value, gradient and Hessian in their weights, in two coordinate systems.

With I = Lambda + sum_i c w_i z_i z_i', z_i = x_i - m_b (m_b the mean of its block b), and V = B B',

    K_ij = z_i' I^-1 z_j,   A_ij = z_i' I^-1 V I^-1 z_j,   S_ij = [same block] / c,
    D:     gradient c K_ii,  Hessian of -s  c c' K o (K + 2 S)
    A, V:  gradient c A_ii,  Hessian of -s  2 c c' (K + S) o A

(o elementwise). These are the derivatives of the lifted problem, in which s is concave in the weights and the mean
does not appear: phi~ = (phi; e_b) with M~ = sum_i c w_i phi~_i phi~_i' + diag(Lambda, 0) has (M~^-1)_11 = I^-1. The
square of S is left out of D's Hessian: it vanishes on changes that sum to 0 in every block, and where answers say
little, nothing but rounding would be left of the rest.

`FeatureSpace` works with the d x d matrix I and takes any prior. `TokenSpace` works with k x k matrices of inner
products in the metric of a proper prior, which is less when the working set is smaller than the dimension: with
P_ij = z_i' Lambda^-1 z_j, W = diag(c w) and N = E + W^(1/2) P W^(1/2),

    K = P - P W^(1/2) N^-1 W^(1/2) P,   log det I = log det Lambda + log det N   (Woodbury).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import DTypeLike, NDArray
from scipy.linalg import lapack, solve_triangular

from edpbrl_gym._arrays import Floats, Positions
from edpbrl_gym.design.criteria import SingularInformationError, cholesky
from edpbrl_gym.design.metric import PriorMetric
from edpbrl_gym.design.rounding import factor_condition, woodbury_condition
from edpbrl_gym.design.solvers.newton.master import ByProducts
from edpbrl_gym.design.solvers.newton.quasi_newton import Costs, CurvatureModel
from edpbrl_gym.design.solvers.newton.tokens.backend import NumpyBackend
from edpbrl_gym.design.solvers.newton.tokens.blocks import CHUNK, TokenBlocks
from edpbrl_gym.design.solvers.newton.tokens.curvature import (
    LARGEST_MATRIX,
    Curvature,
    ImplicitCurvature,
    MatrixCurvature,
)
from edpbrl_gym.design.solvers.newton.tokens.forms import ScoreForm

__all__ = ["FeatureSpace", "Space", "TokenSpace"]


LARGE = 700  # tokens above which products with the Hessian are cheaper than its factors
_LARGEST_CANCELLATION = 50.0  # prior's part of a score to the largest score: float32 then errs by about 1e-5 of it
_SINGULAR_SINGLE = "Expected an information matrix that float32 can invert, got a singular one; use float64."
_PRODUCTS = 20.0  # with the Hessian, in a quadratic program
_NUMPY = NumpyBackend()


class Space(ABC):
    """The objective on a sorted working set.

    Args:
        blocks: The blocks.
        tokens: The working set, shape (k,).

    Attributes:
        tokens: The working set.
        parts: Where its blocks lie in it.
        rows: Centred features, shape (k, d).
        scale: c of each token, shape (k,).
        by_products: How Newton steps on many tokens are taken.
        offset: s(I) - value: what the values of this space leave out.
    """

    offset = 0.0
    by_products: ByProducts | None = None

    def __init__(self, blocks: TokenBlocks, tokens: Positions, dtype: DTypeLike = np.float64) -> None:
        self.tokens = tokens
        self.parts = blocks.parts(tokens)
        self.rows = blocks.centred(tokens, dtype)
        self.scale: Floats = np.repeat(blocks.scale, [part.stop - part.start for part in self.parts])
        self._block_scale = blocks.scale

    def means(self, weights: Floats) -> Floats:
        """Mean of the centred features in each block, shape (B, d)."""
        used = weights.astype(self.rows.dtype, copy=False)
        return np.stack([used[part] @ self.rows[part] for part in self.parts]).astype(np.float64)

    def roots(self, weights: Floats) -> Floats:
        """sqrt(c w) (x - m) for the tokens with mass: R with R' R the information of the data, shape (k', d)."""
        used = weights > 0
        means = np.repeat(self.means(weights), [int(used[part].sum()) for part in self.parts], axis=0)
        return np.asarray((self.rows[used] - means) * np.sqrt(self.scale[used] * weights[used])[:, None])

    @abstractmethod
    def value(self, weights: Floats) -> float:
        """s(I) - offset; SingularInformationError where it is infinite."""

    @abstractmethod
    def gradient(self, weights: Floats) -> Floats:
        """Scores of the working set, shape (k,)."""

    @abstractmethod
    def derivatives(self, weights: Floats) -> tuple[Floats, Floats]:
        """Gradient (k,) and Hessian of -s (k, k)."""

    @abstractmethod
    def learned(self, weights: Floats) -> float:
        """tr(I^-1 I_data): the effective number of parameters that the data determine."""

    def trace(self, weights: Floats) -> float:
        """tr(I_data)."""
        roots = self.roots(weights)
        return float(np.vdot(roots, roots))

    @abstractmethod
    def condition(self, weights: Floats) -> float:
        """Condition number of what value and scores are computed from (`rounding`)."""

    @property
    def magnitude(self) -> float:
        """Largest numbers of which scores are differences, summed over the blocks; 0 where they are none."""
        return 0.0

    @abstractmethod
    def form(self, weights: Floats) -> ScoreForm:
        """The scores of all tokens at these weights, as a quadratic form of their features less the block's mean."""

    def _hessian(self, inner: Floats, score_gram: Floats | None) -> Floats:
        """Hessian of -s from K and A (None for D), without S o S: it vanishes on feasible changes; overwrites K."""
        factor = inner.copy() if score_gram is None else 2.0 * score_gram
        for number, part in enumerate(self.parts):
            inner[part, part] += (2.0 if score_gram is None else 1.0) / self._block_scale[number]
        inner *= factor
        if self.scale[0] == self.scale[-1] and self.scale.min() == self.scale.max():
            inner *= self.scale[0] ** 2
        else:
            inner *= self.scale[:, None]
            inner *= self.scale
        return inner


class FeatureSpace(Space):
    """The d x d matrix I, for any prior.

    Triangular systems are solved by multiplying with the inverse of the factor, which takes a third of the time for
    as many right sides as there are tokens, and errs no more (Higham, 2002, section 14.2).

    Args:
        blocks: The blocks.
        tokens: The working set.
        prior: Lambda, shape (d, d).
        target: B with V = B B' for A and V, shape (d, r); None for D.
        dtype: Of the sums over tokens; float32 takes half the time and is enough far from the optimum.

    Attributes:
        curvatures: What is known of the Hessian, the `by_products` of this space.
    """

    def __init__(
        self,
        blocks: TokenBlocks,
        tokens: Positions,
        prior: Floats,
        target: Floats | None,
        dtype: DTypeLike = np.float64,
    ) -> None:
        super().__init__(blocks, tokens, dtype)
        self._prior = prior
        self._target = target
        self._identity = target is not None and np.array_equal(target, np.eye(len(target)))
        self._cache: tuple[Floats, _Factored] | None = None
        self._leverages: Floats | None = None  # c K_ii at the first weights that the curvature was needed at
        self.curvatures = CurvatureModel(FeatureSpace.diagonal, FeatureSpace.curvature, FeatureSpace.costs, above=LARGE)
        self.by_products = self.curvatures

    def value(self, weights: Floats) -> float:
        """See the base class."""
        at = self._at(weights)
        if at.half is None:
            return 2.0 * float(np.log(np.diag(at.factor)).sum())
        return -float(np.vdot(at.half, at.half))

    def gradient(self, weights: Floats) -> Floats:
        """See the base class."""
        at = self._at(weights)
        if at.gradient is None:
            at.gradient = self._squares(at, self._form(at))
        return at.gradient.copy()

    def derivatives(self, weights: Floats) -> tuple[Floats, Floats]:
        """See the base class."""
        solved, scored = self.solved(weights)
        gradient = self.scale * np.einsum("kr,kr->k", scored, scored)
        return gradient, self._hessian(solved @ solved.T, None if self._target is None else scored @ scored.T)

    def learned(self, weights: Floats) -> float:
        """See the base class."""
        if self._target is None:
            return float(weights @ self.gradient(weights))
        at = self._at(weights)
        if at.learned is None:
            at.learned = float(np.vdot(at.inverse @ at.data, at.inverse))
        return at.learned

    def trace(self, weights: Floats) -> float:
        """See the base class."""
        return float(np.trace(self._at(weights).data))

    def condition(self, weights: Floats) -> float:
        """See the base class."""
        at = self._at(weights)
        return factor_condition(at.factor, at.means, self._block_scale)

    def diagonal(self, weights: Floats) -> Floats:
        """Diagonal of the Hessian of -s, less the part that vanishes on changes that sum to 0 in every block."""
        gradient = self.gradient(weights)
        if self._target is None:
            return np.asarray(gradient * (gradient + 2.0))
        at = self._at(weights)
        if self._leverages is None:
            self._leverages = self._squares(at, ScoreForm.of_factor(at.inverse))
        return np.asarray(2.0 * gradient * (self._leverages + 1.0))

    def costs(self, weights: Floats) -> Costs:
        """Of steps on this working set; the factors are times measured in operations of a float32 product."""
        size, dimension = self.rows.shape
        grams = 1 if self._target is None else 2
        evaluation = 2.7 * (np.count_nonzero(weights) + size) * dimension**2 + 6.0 * dimension**3
        solved = 2.7 * grams * size * dimension**2
        if size > LARGEST_MATRIX:
            return Costs(evaluation, solved, _PRODUCTS * 5.0 * size * dimension**2)
        return Costs(evaluation, solved + (1.3 * grams * dimension + 10.0) * size**2, _PRODUCTS * 8.0 * size**2)

    def curvature(self, weights: Floats) -> Curvature:
        """Hessian of -s as an operator, in float32."""
        solved, scored = self.solved(weights)
        solved_single = solved.astype(np.float32, copy=False)
        scored_single = None if self._target is None else scored.astype(np.float32, copy=False)
        kind = MatrixCurvature if len(weights) <= LARGEST_MATRIX else ImplicitCurvature
        return kind(solved_single, scored_single, self.scale, self.parts)

    def form(self, weights: Floats) -> ScoreForm:
        """L^-1 for D, B' I^-1 for A and V (its triangular factor if that is less)."""
        return self._form(self._at(weights))

    def solved(self, weights: Floats) -> tuple[NDArray, NDArray]:
        """L^-1 z, and what the scores are squared norms of, a row for each token."""
        at = self._at(weights)
        form = self._form(at)
        directions, inverse = (factor.astype(self.rows.dtype, copy=False) for factor in (form.directions, at.inverse))
        solved = np.empty_like(self.rows)
        scored = solved
        if self._target is not None:
            scored = np.empty((len(self.rows), len(directions)), dtype=self.rows.dtype)
        for chunk, rows in self._centred(at):
            if self._target is not None:
                scored[chunk] = _NUMPY.factor_product(rows.copy(), directions, form.triangle)
            solved[chunk] = _NUMPY.factor_product(rows, inverse, "lower")
        return solved, scored

    def _squares(self, at: _Factored, form: ScoreForm) -> Floats:
        """Scores of the working set in a metric, shape (k,)."""
        result = np.empty(len(self.tokens))
        directions = form.directions.astype(self.rows.dtype, copy=False)
        for chunk, rows in self._centred(at):
            result[chunk] = _NUMPY.factor_squares(rows, directions, form.triangle)
        return np.asarray(self.scale * result)

    def _form(self, at: _Factored) -> ScoreForm:
        if at.form is None:
            kind = self.rows.dtype
            half = None if at.half is None else at.half.astype(kind, copy=False)
            at.form = _factor_form(at.inverse.astype(kind, copy=False), half)
        return at.form

    def _centred(self, at: _Factored) -> Iterator[tuple[slice, Floats]]:
        """Features less the mean of their block, a chunk at a time."""
        for part, mean in zip(self.parts, at.means, strict=True):
            for begin in range(part.start, part.stop, CHUNK):
                chunk = slice(begin, min(begin + CHUNK, part.stop))
                yield chunk, self.rows[chunk] - mean.astype(self.rows.dtype)

    def _at(self, weights: Floats) -> _Factored:
        """The information at some weights; what was computed last is kept."""
        if self._cache is None or not np.array_equal(self._cache[0], weights):
            means = self.means(weights)
            used = np.flatnonzero(weights)
            roots = np.sqrt(self.scale[used] * weights[used]).astype(self.rows.dtype)
            data = np.zeros_like(self._prior)
            for begin in range(0, len(used), CHUNK):
                chunk = slice(begin, begin + CHUNK)
                root = self.rows[chunk if len(used) == len(weights) else used[chunk]] * roots[chunk, None]
                data += root.T @ root
            weighted = means * np.sqrt(self._block_scale)[:, None]
            data -= weighted.T @ weighted
            factor, inverse = _factored(data + self._prior, self.rows.dtype)
            half = None
            if self._target is not None:
                half = inverse if self._identity else inverse @ self._target
            self._cache = weights.copy(), _Factored(means, data, factor, inverse, half)
        return self._cache[1]


@dataclass
class _Factored:
    """What a `FeatureSpace` knows at some weights.

    Attributes:
        means: Of the centred features in each block, shape (B, d).
        data: Information of the data, I - Lambda, shape (d, d).
        factor: L with I = L L', shape (d, d).
        inverse: L^-1.
        half: L^-1 B for A and V, shape (d, r).
        form: The scores as a quadratic form, once it is needed.
        gradient: Scores of the working set, once they are needed.
        learned: tr(I^-1 I_data), once it is needed.
    """

    means: Floats
    data: Floats
    factor: Floats
    inverse: Floats
    half: Floats | None
    form: ScoreForm | None = None
    gradient: Floats | None = None
    learned: float | None = None


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
            return _factor_form(np.tril(lapack.dtrtri(factor, lower=1)[0]), solved_target)
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


def _factored(information: Floats, dtype: np.dtype) -> tuple[Floats, Floats]:
    """Cholesky factor L of I and its inverse, computed in a precision, both float64."""
    factorise, invert = (lapack.spotrf, lapack.strtri) if dtype == np.float32 else (lapack.dpotrf, lapack.dtrtri)
    upper, failed = factorise(information.astype(dtype).T, lower=0, clean=1, overwrite_a=1)  # L', in columns
    pivots = np.diag(upper)
    if failed or pivots.min() ** 2 <= len(pivots) * np.finfo(dtype).eps * pivots.max() ** 2:
        if dtype == np.float32:
            raise SingularInformationError(_SINGULAR_SINGLE)
        upper = np.asarray(cholesky(information)).T  # which says what is wrong
    inverse, _ = invert(upper, lower=0)
    return np.asarray(upper.T, dtype=np.float64), np.asarray(inverse.T, dtype=np.float64)


def _factor_form(inverse: Floats, half: Floats | None) -> ScoreForm:
    """L^-1 for D, B' I^-1 for A and V (its triangular factor if that is less), from L^-1 and L^-1 B."""
    if half is None:
        return ScoreForm.of_factor(inverse)
    product = np.asarray(half.T @ inverse)
    if 2 * product.shape[0] > product.shape[1]:
        product = np.asarray(np.linalg.qr(product, mode="r"))
    return ScoreForm.of_factor(product)
