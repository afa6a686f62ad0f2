"""The objective on a working set of tokens by the d x d information matrix, for any prior (the formulas: `space`)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import DTypeLike, NDArray
from scipy.linalg import blas, lapack

from edpbrl_gym._arrays import Floats, Positions
from edpbrl_gym.design.criteria import SingularInformationError, cholesky
from edpbrl_gym.design.rounding import factor_condition
from edpbrl_gym.design.solvers.newton.quasi_newton import Costs, CurvatureModel
from edpbrl_gym.design.solvers.newton.tokens.backend import NumpyBackend
from edpbrl_gym.design.solvers.newton.tokens.blocks import TokenBlocks
from edpbrl_gym.design.solvers.newton.tokens.costs import products_above, step_costs, stored_hessian_pays
from edpbrl_gym.design.solvers.newton.tokens.curvature import (
    LARGEST_MATRIX,
    Curvature,
    ImplicitCurvature,
    MatrixCurvature,
)
from edpbrl_gym.design.solvers.newton.tokens.forms import ScoreForm, factor_form
from edpbrl_gym.design.solvers.newton.tokens.space import Space

__all__ = ["FeatureSpace"]


_FACTORED = 3000  # tokens whose Hessian may be factored, dozens of times, where products with it lead nowhere
_CHUNK = 512  # rows that are copied and multiplied while they are in the cache
_TRIANGLE = 64  # rows of a triangle that LAPACK inverts at once
_SINGULAR_SINGLE = "Expected an information matrix that float32 can invert, got a singular one; use float64."
_NUMPY = NumpyBackend()


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
        self.curvatures = CurvatureModel(
            FeatureSpace.diagonal,
            FeatureSpace.curvature,
            FeatureSpace.costs,
            above=products_above(blocks.dimension, self._grams),
        )
        self.by_products = self.curvatures

    def factor(self) -> None:
        """Take factors of the Hessian where products would be cheaper: only they tell nearly equal tokens apart."""
        if len(self.tokens) <= _FACTORED:
            self.curvatures.above = _FACTORED

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
        return factor_condition(at.factor, at.means, self._block_scale, at.inverse)

    def diagonal(self, weights: Floats) -> Floats:
        """Diagonal of the Hessian of -s, less the part that vanishes on changes that sum to 0 in every block."""
        gradient = self.gradient(weights)
        if self._target is None:
            return np.asarray(gradient * (gradient + 2.0))
        at = self._at(weights)
        if self._leverages is None:
            self._leverages = self._squares(at, ScoreForm.of_factor(at.inverse))
        return np.asarray(2.0 * gradient * (self._leverages + 1.0))

    @property
    def stores_hessian(self) -> bool:
        """Whether a Hessian that is stored costs less than products without it, and fits into memory."""
        size, dimension = len(self.tokens), self._blocks.dimension
        return size <= LARGEST_MATRIX and stored_hessian_pays(size, dimension, self._grams)

    def costs(self, weights: Floats) -> Costs:
        """Of steps on this working set."""
        size, dimension = len(self.tokens), self._blocks.dimension
        return step_costs(int(np.count_nonzero(weights)), size, dimension, self._grams, stored=self.stores_hessian)

    @property
    def is_d(self) -> bool:
        """Whether the criterion is D."""
        return self._target is None

    @property
    def _grams(self) -> int:
        """Inner products that an entry of the Hessian consists of."""
        return 1 if self._target is None else 2

    def curvature(self, weights: Floats) -> Curvature:
        """Hessian of -s as an operator, in float32."""
        solved, scored = self.solved(weights)
        solved_single = solved.astype(np.float32, copy=False)
        scored_single = None if self._target is None else scored.astype(np.float32, copy=False)
        kind = MatrixCurvature if self.stores_hessian else ImplicitCurvature
        return kind(solved_single, scored_single, self.scale, self.parts)

    def form(self, weights: Floats) -> ScoreForm:
        """L^-1 for D, B' I^-1 for A and V (its triangular factor if it has d rows or more)."""
        return self._form(self._at(weights))

    def solved(self, weights: Floats) -> tuple[NDArray, NDArray]:
        """L^-1 z, and what the scores are squared norms of, a row for each token."""
        at = self._at(weights)
        form = self._form(at)
        directions, inverse = (factor.astype(self.dtype, copy=False) for factor in (form.directions, at.inverse))
        solved = np.empty_like(self.rows)
        scored = solved
        if self._target is not None:
            scored = np.empty((len(self.tokens), len(directions)), dtype=self.dtype)
        for chunk, rows in self._centred(at):
            if self._target is not None:
                scored[chunk] = _NUMPY.factor_product(rows.copy(), directions, form.triangle)
            solved[chunk] = _NUMPY.factor_product(rows, inverse, "lower")
        return solved, scored

    def principal(self, weights: Floats) -> tuple[NDArray, Floats]:
        """Features y in which the scores are c sum_i p_i y_i^2 and I is the identity, a row for each token; and p."""
        solved = np.empty_like(self.rows)
        at = self._at(weights)
        for chunk, rows in self._centred(at):
            solved[chunk] = _NUMPY.factor_product(rows, at.inverse.astype(rows.dtype, copy=False), "lower")
        if at.half is None:
            return solved, np.ones(solved.shape[1])
        scores, axes = np.linalg.eigh(at.half @ at.half.T)
        return solved @ axes.astype(solved.dtype, copy=False), np.maximum(scores, 0.0)

    def _squares(self, at: _Factored, form: ScoreForm) -> Floats:
        """Scores of the working set in a metric, shape (k,)."""
        result = np.empty(len(self.tokens))
        directions = form.directions.astype(self.dtype, copy=False)
        for chunk, rows in self._centred(at):
            result[chunk] = _NUMPY.factor_squares(rows, directions, form.triangle)
        return np.asarray(self.scale * result)

    def _form(self, at: _Factored) -> ScoreForm:
        if at.form is None:
            kind = self.dtype
            inverse = at.inverse.astype(kind, copy=False)
            half = at.half
            if half is not None:
                half = inverse if self._identity else half.astype(kind, copy=False)
            at.form = factor_form(inverse, half)
        return at.form

    def _centred(self, at: _Factored) -> Iterator[tuple[slice, Floats]]:
        """Features less the mean of their block, a chunk at a time, in an array that the next one overwrites."""
        for part, mean in zip(self.parts, at.means.astype(self.dtype), strict=True):
            for begin in range(part.start, part.stop, _CHUNK):
                chunk = slice(begin, min(begin + _CHUNK, part.stop))
                yield chunk, np.subtract(self.rows[chunk], mean, out=self._scratch[: chunk.stop - begin])

    @cached_property
    def _scratch(self) -> NDArray:
        """A chunk of rows."""
        return np.empty((min(_CHUNK, len(self.tokens)), self._blocks.dimension), dtype=self.dtype)

    def _at(self, weights: Floats) -> _Factored:
        """The information at some weights; what was computed last is kept."""
        if self._cache is None or not np.array_equal(self._cache[0], weights):
            means, data = self._moments(weights)
            factor, inverse = _factored(data + self._prior, self.dtype)
            half = None
            if self._target is not None:
                half = inverse if self._identity else inverse @ self._target
            self._cache = weights.copy(), _Factored(means, data, factor, inverse, half)
        return self._cache[1]

    def _moments(self, weights: Floats) -> tuple[Floats, Floats]:
        """Mean of each block, shape (B, d), and information of the data about the means, shape (d, d)."""
        add = blas.ssyrk if self.dtype == np.float32 else blas.dsyrk
        means = np.zeros((len(self.parts), self._blocks.dimension))
        total = np.zeros(self._prior.shape, dtype=self.dtype, order="F")  # its upper triangle
        for part, mean, scale in zip(self.parts, means, self._block_scale, strict=True):
            used = part.start + np.flatnonzero(weights[part])
            for begin in range(0, len(used), _CHUNK):
                chunk = used[begin : begin + _CHUNK]
                roots = np.sqrt(weights[chunk]).astype(self.dtype)
                rows = self._scratch[: len(chunk)]
                if len(chunk) == chunk[-1] + 1 - chunk[0]:
                    np.multiply(self.rows[chunk[0] : chunk[-1] + 1], roots[:, None], out=rows)
                else:
                    np.take(self.rows, chunk, axis=0, out=rows, mode="clip")
                    rows *= roots[:, None]
                mean += roots @ rows
                total = add(scale, rows.T, beta=1.0, c=total, overwrite_c=1)
        data = total.T.astype(np.float64)  # its lower triangle
        data += np.tril(data, -1).T
        weighted = means * np.sqrt(self._block_scale)[:, None]
        data -= weighted.T @ weighted
        return means, data


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


def _factored(information: Floats, dtype: np.dtype) -> tuple[Floats, Floats]:
    """Cholesky factor L of I and its inverse, computed in a precision, both float64."""
    factorise = lapack.spotrf if dtype == np.float32 else lapack.dpotrf
    upper, failed = factorise(information.astype(dtype).T, lower=0, clean=1, overwrite_a=1)  # L', in columns
    pivots = np.diag(upper)
    if failed or pivots.min() ** 2 <= len(pivots) * np.finfo(dtype).eps * pivots.max() ** 2:
        if dtype == np.float32:
            raise SingularInformationError(_SINGULAR_SINGLE)
        upper = np.asarray(cholesky(information)).T  # which says what is wrong
    inverse = np.zeros_like(upper)
    _invert(upper, inverse)
    return np.asarray(upper.T, dtype=np.float64), np.asarray(inverse.T, dtype=np.float64)


def _invert(upper: NDArray, inverse: NDArray) -> None:
    """Write the inverse of an upper triangle into zeros, by halves: a half to 0.8 of the time of LAPACK's own."""
    single, size = upper.dtype == np.float32, len(upper)
    if size <= _TRIANGLE:
        inverse[...] = (lapack.strtri if single else lapack.dtrtri)(upper, lower=0)[0]
        return
    first, last = slice(size // 2), slice(size // 2, size)
    _invert(upper[first, first], inverse[first, first])
    _invert(upper[last, last], inverse[last, last])
    multiply = blas.strmm if single else blas.dtrmm
    product = multiply(-1.0, inverse[first, first], upper[first, last])
    inverse[first, last] = multiply(1.0, inverse[last, last], product, side=1, overwrite_b=1)
