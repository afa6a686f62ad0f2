"""The tokens of a prompt problem as blocks: one simplex for each distinct vocabulary.

Steps with exactly the same feature rows share a block b of weight c_b = T times their number: the covariance of a
step is matrix-concave in its weights, so using the mean of their weights at all of them is no worse. Scores depend on
differences within a block only; the features are therefore centred once, in float64, before they are rounded to
float32: a common mean, however large, costs no digits.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import DTypeLike, NDArray
from scipy.linalg import blas

from edpbrl_gym.design.problem import DesignProblem
from edpbrl_gym.mdp import PromptMDP

__all__ = ["TokenBlocks"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.intp]

_CHUNK = 2048  # rows scored at once: bounds the memory of the product


class TokenBlocks:
    """Distinct vocabularies of a problem; their tokens are numbered 0..n-1, block after block.

    Args:
        problem: A design problem with a `PromptMDP`.

    Attributes:
        scale: c_b, shape (B,).
        starts: First token of each block, and n, shape (B + 1,).
        block: Block of each token, shape (n,).
    """

    def __init__(self, problem: DesignProblem) -> None:
        if not isinstance(problem.mdp, PromptMDP):
            raise TypeError(f"Expected a problem with a PromptMDP, got {type(problem.mdp).__name__}.")
        self._mdp = problem.mdp
        self._features = problem.features
        slices = [problem.mdp.step_pairs(step) for step in range(problem.horizon)]
        steps: list[list[int]] = []
        for step, pairs in enumerate(slices):
            for own in steps:
                if _equal(problem.features[slices[own[0]]], problem.features[pairs]):
                    own.append(step)
                    break
            else:
                steps.append([step])
        self.steps: tuple[tuple[int, ...], ...] = tuple(tuple(own) for own in steps)
        self.scale: FloatArray = np.array([problem.episodes * len(own) for own in steps], dtype=np.float64)
        first = [slices[own[0]] for own in steps]
        sizes = [pairs.stop - pairs.start for pairs in first]
        self.starts: IntArray = np.concatenate(([0], np.cumsum(sizes))).astype(np.intp)
        self.block: IntArray = np.repeat(np.arange(len(steps)), sizes)
        self._rows: IntArray = np.concatenate([np.arange(pairs.start, pairs.stop) for pairs in first])
        self._centre: FloatArray = np.stack([problem.features[pairs].mean(axis=0) for pairs in first])
        self._rounded: dict[np.dtype, NDArray] = {}

    def __len__(self) -> int:
        return len(self.block)

    @property
    def slices(self) -> list[slice]:
        """Tokens of each block."""
        return [self.tokens(number) for number in range(len(self.scale))]

    def tokens(self, number: int) -> slice:
        """Tokens of block `number`."""
        return slice(int(self.starts[number]), int(self.starts[number + 1]))

    def centred(self, tokens: IntArray) -> FloatArray:
        """Features of some tokens less the mean of their block, float64, shape (k, d)."""
        return np.asarray(self._features[self._rows[tokens]] - self._centre[self.block[tokens]])

    def scores(self, factor: FloatArray, means: FloatArray, dtype: DTypeLike = np.float32) -> FloatArray:
        """Scores c_b ||F (x - m_b)||^2 of all tokens: one product of (n, d) with F.

        Args:
            factor: F, shape (r, d); half the work if it is triangular (r = d).
            means: Mean of the centred features in each block under the current weights, shape (B, d).
            dtype: Precision of the product.

        Returns:
            Scores, float64, shape (n,).
        """
        features = self._all(np.dtype(dtype))
        kind = features.dtype
        small = np.asfortranarray(factor, dtype=kind)
        triangle = _triangle(factor)
        multiply = blas.strmm if kind == np.float32 else blas.dtrmm
        result = np.empty(len(self))
        for number, mean in enumerate(means.astype(kind)):
            own = self.tokens(number)
            for begin in range(own.start, own.stop, _CHUNK):
                part = slice(begin, min(begin + _CHUNK, own.stop))
                shifted = features[part] - mean
                if triangle:  # the transpose of a C-ordered array is what BLAS overwrites in place
                    product = multiply(1.0, small, shifted.T, lower=triangle == "lower", overwrite_b=True).T
                else:
                    product = shifted @ small.T
                result[part] = np.einsum("nr,nr->n", product, product)
            result[own] *= self.scale[number]
        return result

    def occupancy(self, tokens: IntArray, weights: FloatArray) -> FloatArray:
        """Occupancy (H, M) with these weights at every step of their block."""
        result = np.zeros((self._mdp.horizon, self._mdp.num_pairs))
        for number, steps in enumerate(self.steps):
            own = self.block[tokens] == number
            local = tokens[own] - self.starts[number]
            for step in steps:
                result[step, self._mdp.offsets[step] + local] = weights[own]
        return result

    def weights(self, occupancy: FloatArray) -> FloatArray:
        """Weights of all tokens, shape (n,), from an occupancy (H, M): the mean over the steps of each block."""
        result = np.empty(len(self))
        for number, steps in enumerate(self.steps):
            own = [occupancy[step, self._mdp.step_pairs(step)] for step in steps]
            result[self.tokens(number)] = np.mean(own, axis=0)
        return result

    def _all(self, dtype: np.dtype) -> NDArray:
        if dtype not in self._rounded:
            rounded = np.empty((len(self), self._features.shape[1]), dtype=dtype)
            for begin in range(0, len(self), _CHUNK):
                part = np.arange(begin, min(begin + _CHUNK, len(self)))
                rounded[part] = self.centred(part)
            self._rounded[dtype] = rounded
        return self._rounded[dtype]


def _equal(one: FloatArray, other: FloatArray) -> bool:
    """Whether two vocabularies are the same; the first rows settle it for most."""
    return one.shape == other.shape and bool((one[0] == other[0]).all()) and bool((one == other).all())


def _triangle(factor: FloatArray) -> str | None:
    """Which triangle a square factor fills, "lower" or "upper"; None if it is no triangle."""
    if factor.shape[0] != factor.shape[1]:
        return None
    if not np.triu(factor, 1).any():
        return "lower"
    return None if np.tril(factor, -1).any() else "upper"
