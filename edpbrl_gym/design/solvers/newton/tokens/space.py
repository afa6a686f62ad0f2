"""The objective on a working set of tokens: value, gradient and Hessian in their weights, in two coordinate systems.

With I = Lambda + sum_i c w_i z_i z_i', z_i = x_i - m_b (m_b the mean of its block b), and V = B B',

    K_ij = z_i' I^-1 z_j,   A_ij = z_i' I^-1 V I^-1 z_j,   S_ij = [same block] / c,
    D:     gradient c K_ii,  Hessian of -s  c c' K o (K + 2 S)
    A, V:  gradient c A_ii,  Hessian of -s  2 c c' (K + S) o A

(o elementwise). These are the derivatives of the lifted problem, in which s is concave in the weights and the mean
does not appear: phi~ = (phi; e_b) with M~ = sum_i c w_i phi~_i phi~_i' + diag(Lambda, 0) has (M~^-1)_11 = I^-1. The
square of S is left out of D's Hessian: it vanishes on changes that sum to 0 in every block, and where answers say
little, nothing but rounding would be left of the rest.

`FeatureSpace` (`feature_space`) works with d x d matrices, `TokenSpace` (`token_space`) with k x k ones.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cached_property

import numpy as np
from numpy.typing import DTypeLike, NDArray

from edpbrl_gym._arrays import Floats, Positions
from edpbrl_gym.design.solvers.newton.master import ByProducts
from edpbrl_gym.design.solvers.newton.tokens.blocks import TokenBlocks
from edpbrl_gym.design.solvers.newton.tokens.forms import ScoreForm

__all__ = ["Space"]


class Space(ABC):
    """The objective on a sorted working set.

    Args:
        blocks: The blocks.
        tokens: The working set, shape (k,).

    Attributes:
        tokens: The working set.
        parts: Where its blocks lie in it.
        dtype: Precision of its features.
        scale: c of each token, shape (k,).
        by_products: How Newton steps on many tokens are taken.
        offset: s(I) - value: what the values of this space leave out.
    """

    offset = 0.0
    by_products: ByProducts | None = None

    def __init__(self, blocks: TokenBlocks, tokens: Positions, dtype: DTypeLike = np.float64) -> None:
        self.tokens = tokens
        self.parts = blocks.parts(tokens)
        self.dtype = np.dtype(dtype)
        self._blocks = blocks
        self.scale: Floats = np.repeat(blocks.scale, [part.stop - part.start for part in self.parts])
        self._block_scale = blocks.scale

    @cached_property
    def rows(self) -> NDArray:
        """Centred features, shape (k, d): read-only, made when they are needed."""
        return self._blocks.centred(self.tokens, self.dtype)

    def means(self, weights: Floats) -> Floats:
        """Mean of the centred features in each block, shape (B, d)."""
        used = weights.astype(self.dtype, copy=False)
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
