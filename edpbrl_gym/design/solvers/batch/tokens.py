"""Values, scores and curvatures of many users' weights on the tokens that they share.

With z = x - m the tokens less their mean, I = Lambda + sum_b c_b sum_i w_i z_i z_i' is linear in the products x x' of
a block but for the means, so those of all users come from one matrix product with the packed triangles of x x'; so do
the scores z' G z. In the lifted coordinates (docs/method.md) the Hessian of the negative is, over all tokens of user u,

    D:     (K + E) o (K + E),       K_ij = sqrt(c_i c_j) z_i' I^-1 z_j,   E_ij = 1 within a block, else 0
    A, V:  2 (K + E) o A,           A_ij = sqrt(c_i c_j) z_i' I^-1 V I^-1 z_j

Changes of weights sum to 0 in every block, so E o E, constant within a block, is left out: K o (K + 2 E) keeps the
digits of a small K.

The inverse comes from the Cholesky factor: its errors are of both sides, z' I^-1 E I^-1 z, as the analysis in
`design.rounding` asks. That of an LU factor has errors of one side, which weak priors make a hundred times as large.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from edpbrl_gym.design.criteria import ACriterion, VCriterion
from edpbrl_gym.design.problem import DesignProblem
from edpbrl_gym.design.solvers.batch.arrays import Arrays, inverse_of_factors
from edpbrl_gym.design.solvers.newton.tokens.layout import PromptLayout

__all__ = ["Evaluation", "SharedTokens"]


@dataclass(frozen=True)
class Evaluation:
    """What the weights of some users are worth.

    Attributes:
        prior: Lambda, shape (U, d, d).
        weights: Shape (U, n).
        value: s(I), shape (U,).
        information: I, shape (U, d, d).
        inverse: I^-1, shape (U, d, d).
        means: Mean of each block less its centre, shape (U, B, d).
    """

    prior: Any
    weights: Any
    value: Any
    information: Any
    inverse: Any
    means: Any

    def of(self, users: Any) -> Evaluation:
        """That of some users; an index or a mask."""
        return Evaluation(
            self.prior[users],
            self.weights[users],
            self.value[users],
            self.information[users],
            self.inverse[users],
            self.means[users],
        )

    def with_users(self, users: Any, other: Evaluation) -> Evaluation:
        """This one, changed in place at some users to another of them."""
        for name in ("weights", "value", "information", "inverse", "means"):
            getattr(self, name)[users] = getattr(other, name)
        return self


class SharedTokens:
    """The tokens of a problem's blocks, each less the mean of its block.

    Args:
        problem: A problem with a `PromptMDP` and the criterion A, V or D; its prior is not used.
        layout: Its blocks.
        arrays: Where to compute.

    Attributes:
        blocks: Tokens of each block.
        scale: c_b of each block.
    """

    def __init__(self, problem: DesignProblem, layout: PromptLayout, arrays: Arrays) -> None:
        self.arrays = arrays
        self.dimension = problem.dimension
        self.scale = [float(value) for value in layout.scale]
        parts = [problem.rows(rows) for rows in layout.rows]
        starts = np.cumsum([0] + [len(part) for part in parts])
        self.blocks = [slice(int(a), int(b)) for a, b in zip(starts[:-1], starts[1:], strict=True)]
        rows = np.concatenate([part - part.mean(axis=0) for part in parts])
        upper = np.triu_indices(self.dimension)
        position = np.zeros((self.dimension, self.dimension), dtype=np.intp)
        position[upper] = np.arange(len(upper[0]))
        self._unpacked = arrays.array(np.maximum(position, position.T))
        self._upper = tuple(arrays.array(index) for index in upper)
        self._twice = arrays.array(np.where(upper[0] == upper[1], 1.0, 2.0))
        self._rows = arrays.array(rows)
        self._products = arrays.array(rows[:, upper[0]] * rows[:, upper[1]])
        scale = np.repeat(self.scale, np.diff(starts))
        self._scale = arrays.array(scale)
        self._scaled = arrays.array(np.sqrt(scale)[:, None] * rows)
        self._target: Any = None
        if isinstance(problem.criterion, (ACriterion, VCriterion)):
            self._target = arrays.array(np.ascontiguousarray(problem.criterion.target_factor(self.dimension)))
        self._isotropic = isinstance(problem.criterion, ACriterion)

    def __len__(self) -> int:
        return self.blocks[-1].stop

    def evaluate(self, weights: Any, prior: Any) -> Evaluation:
        """Evaluate weights (U, n) with the priors (U, d, d); the value is NaN where rounding has lost the prior."""
        xp = self.arrays.namespace
        means = xp.stack([weights[:, block] @ self._rows[block] for block in self.blocks], 1)
        information = ((weights * self._scale) @ self._products)[:, self._unpacked]
        for number, scale in enumerate(self.scale):
            mean = means[:, number]
            information -= (scale * mean)[:, :, None] * mean[:, None, :]
        information += prior
        factors = self.arrays.cholesky(information)
        roots = inverse_of_factors(self.arrays, factors)
        value = self._value(factors, roots)
        return Evaluation(prior, weights, value, information, roots.swapaxes(1, 2) @ roots, means)

    def _value(self, factors: Any, roots: Any) -> Any:
        """s(I) from L of I = L L' and L^-1."""
        if self._target is None:
            xp = self.arrays.namespace
            return 2.0 * xp.log(xp.diagonal(factors, 0, 1, 2)).sum(1)
        half = roots if self._isotropic else roots @ self._target
        return -(half * half).sum((1, 2))

    def curvature(self, evaluation: Evaluation) -> Any:
        """G = ds/dI, shape (U, d, d)."""
        inverse = evaluation.inverse
        if self._target is None:
            return inverse
        half = inverse if self._isotropic else inverse @ self._target
        return half @ half.swapaxes(1, 2)

    def scores(self, evaluation: Evaluation, curvature: Any) -> Any:
        """c_b z' G z of all tokens, shape (U, n): the gradient but for a constant of each block."""
        scores = (curvature[:, self._upper[0], self._upper[1]] * self._twice) @ self._products.T
        for block, mean in zip(self.blocks, evaluation.means.swapaxes(0, 1), strict=True):
            slope = (curvature @ mean[:, :, None])[:, :, 0]
            scores[:, block] -= 2.0 * (slope @ self._rows[block].T)
            scores[:, block] += (slope * mean).sum(1)[:, None]
        scores *= self._scale
        return scores

    def magnitude(self, evaluation: Evaluation, curvature: Any) -> Any:
        """Size of the terms of the largest scores, summed over the blocks; |G_ij| <= sqrt(G_ii G_jj). Shape (U,)."""
        xp = self.arrays.namespace
        diagonal = xp.diagonal(curvature, 0, 1, 2)
        total = 0.0
        for block, scale, mean in zip(self.blocks, self.scale, evaluation.means.swapaxes(0, 1), strict=True):
            largest = xp.amax(diagonal @ (self._rows[block] ** 2).T, 1)
            total = total + scale * (largest + (mean * mean * diagonal).sum(1))
        return total

    def subtracted(self, evaluation: Evaluation) -> Any:
        """Diagonal of what the means subtract of the second moments, shape (U, d)."""
        return sum(scale * evaluation.means[:, number] ** 2 for number, scale in enumerate(self.scale))

    def hessians(self, evaluation: Evaluation, index: Any, parts: list[slice], *, single: bool) -> Any:
        """Hessians of the negative, on changes that sum to 0 in every block.

        Args:
            evaluation: Where.
            index: Tokens of each user, shape (U, k).
            parts: Those of each block.
            single: In float32.

        Returns:
            Array (U, k, k).
        """
        cast = self.arrays.cast
        rows = cast(self._scaled, single)[index]
        for part, scale, mean in zip(parts, self.scale, evaluation.means.swapaxes(0, 1), strict=True):
            rows[:, part] -= cast(scale**0.5 * mean, single)[:, None, :]
        halves = rows @ cast(evaluation.inverse, single)
        others = None  # whose inner products are 2 A
        if self._target is not None:
            others = 2.0**0.5 * (halves if self._isotropic else halves @ cast(self._target, single))
        same = self._same_block(parts, 2.0 if others is None else 1.0, single)
        users, count = len(rows), rows.shape[1]
        hessians = self.arrays.empty(rows, (users, count, count))
        size = max(1, self.arrays.strip_bytes // (rows.itemsize * count**2))
        for begin in range(0, users, size):  # so few that they stay in a cache
            some = slice(begin, begin + size)
            products = hessians[some]
            self.arrays.namespace.matmul(halves[some], rows[some].swapaxes(1, 2), out=products)
            if others is None:
                products *= products + same
            else:
                products += same
                products *= others[some] @ others[some].swapaxes(1, 2)
        return hessians

    def _same_block(self, parts: list[slice], value: float, single: bool) -> Any:
        """A value within the blocks and 0 between them, shape (k, k), or a number if there is one block."""
        if len(parts) == 1:
            return value
        result = np.zeros((parts[-1].stop, parts[-1].stop))
        for part in parts:
            result[part, part] = value
        return self.arrays.cast(self.arrays.array(result), single)
