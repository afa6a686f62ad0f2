"""The D-criterion of truncated prompts: its value for whole batches, and the contribution of each prompt.

One question compares the K prompts of a trajectory after the same number of words. With X (K, d) the embeddings of the
K truncated prompts, its information at theta = 0 is (Appendix "Vocabulary-Free Experimental Design via
REINFORCE" of the paper, the equation of I_h)

    I_h = X' (E / K - 1 1' / K^2) X = C' C,   C = (X - 1 mean(X)) / sqrt(K),

and the objective of a meta-sample of T trajectories with H positions each is L = log det(sum_t sum_h I_h + lambda E).

With all n = T H K rows C stacked, Sylvester's identity gives log det(C'C + lambda E_d) = (d - n) log lambda +
log det(C C' + lambda E_n), so that everything happens in min(d, n) dimensions.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from edpbrl_gym._arrays import Floats
from edpbrl_gym._validation import check_array, check_number

__all__ = ["TruncatedObjective", "d_objective"]


def d_objective(features: ArrayLike, regularization: float = 1.0) -> Floats:
    """Return log det(sum_t sum_h I_h + lambda E) of every meta-sample, shape (M,); see `TruncatedObjective`."""
    return TruncatedObjective(features, regularization).values


class TruncatedObjective:
    """The D-criterion of M meta-samples, and its parts.

    All computation is in float64. Parts are computed on first use, and raise a ValueError if lambda is too small.

    Args:
        features: embeddings of the truncated prompts, (M, T, K, H, d), K >= 2: ``features[m, t, q, h]`` is the prompt
            of policy q in trajectory t of meta-sample m after h + 1 words.
        regularization: lambda, above 0.

    Attributes:
        shape: (M, T, K, H, d).
        values: the objective, (M,).

    Raises:
        TypeError: the features are no array of numbers.
        ValueError: wrong shape, NaN, fewer than two policies, or lambda that is not positive.
    """

    def __init__(self, features: ArrayLike, regularization: float = 1.0) -> None:
        rows = check_array(
            features, "features", shape=("M", "T", "K", "H", "d"), hint="M meta-samples of T trajectories of K prompts"
        )
        if rows.shape[2] < 2 or 0 in rows.shape:
            raise ValueError(
                f"Expected features (M, T, K, H, d) with at least K = 2 policies and no empty axis, got {rows.shape}"
            )
        self.regularization = check_number(regularization, "regularization (lambda)", minimum=0.0, exclusive=True)
        self.shape: tuple[int, ...] = rows.shape
        # position first: the rows of the first h positions are the first h T K rows
        self._rows: Floats = np.array(np.moveaxis(rows, 3, 1), order="C")  # a copy, (M, H, T, K, d)
        self._rows -= self._rows.mean(axis=3, keepdims=True)
        self._rows /= np.sqrt(rows.shape[2])

    @property
    def _wide(self) -> bool:
        """Whether there are fewer rows than features, so that the mathematics is n x n instead of d x d."""
        _, episodes, policies, words, dimension = self.shape
        return episodes * policies * words < dimension

    def _flat(self, samples: slice = slice(None)) -> Floats:
        rows = self._rows[samples]
        return rows.reshape(len(rows), -1, self.shape[-1])

    @cached_property
    def _factor(self) -> Floats:
        """Cholesky factor of C C' + lambda E (n x n) or C' C + lambda E (d x d), for every meta-sample."""
        rows = self._flat()
        product = rows @ rows.swapaxes(1, 2) if self._wide else rows.swapaxes(1, 2) @ rows
        size = product.shape[-1]
        product[:, range(size), range(size)] += self.regularization
        return self._cholesky(product)

    def _cholesky(self, matrices: Floats) -> Floats:
        """Cholesky factors, or a ValueError where rounding leaves a matrix that is not positive definite."""
        try:
            return np.asarray(np.linalg.cholesky(matrices))
        except np.linalg.LinAlgError as error:
            raise ValueError(
                "Expected regularization (lambda) large enough that the information of the prompts is positive "
                f"definite in float64, got {self.regularization:g}; raise it"
            ) from error

    @cached_property
    def values(self) -> Floats:
        """The objective L of every meta-sample, (M,)."""
        diagonal = np.diagonal(self._factor, axis1=1, axis2=2)
        logarithms: Floats = 2.0 * np.log(diagonal).sum(axis=1)
        missing = self.shape[-1] - diagonal.shape[1] if self._wide else 0
        return logarithms + missing * np.log(self.regularization)

    @cached_property
    def contributions(self) -> Floats:
        """Gain of a prompt from position h on, (M, T, K, H + 1): the difference of L with and without it.

        Removing the prompt of policy q from a question replaces it by the mean of the other K - 1, which gives the
        information of a question of K - 1 options, scaled by (K - 1) / K. With x_q = phi_q - mean,

            I_h = I_h without q + x_q x_q' / (K - 1)

        (the variance between q and the others, and within the others), so removing the positions from h on is a
        downdate of rank H - h. By the determinant lemma its effect is -log det(E - K / (K - 1) C_q A^-1 C_q'), where
        A = C'C + lambda E and C_q has the prompt's H - h rows; all blocks of C A^-1 C' come from one factorisation.

        ``contributions[..., 0]`` is that of the whole prompt, ``contributions[..., H]`` is 0. None is negative, and
        what remains (``values`` minus a contribution) does not depend on the removed words.
        """
        samples, episodes, policies, words, _ = self.shape
        blocks = self._leverage_blocks().reshape(-1, words, words)
        inner = np.eye(words) - blocks * (policies / (policies - 1))
        # reversed order: the leading blocks of the factor are those of the last positions
        diagonal = np.diagonal(self._cholesky(inner[:, ::-1, ::-1]), axis1=1, axis2=2)
        gains = -2.0 * np.cumsum(np.log(diagonal), axis=1)[:, ::-1]
        result = np.zeros((samples, episodes, policies, words + 1))
        result[..., :words] = np.maximum(gains, 0.0).reshape(samples, episodes, policies, words)
        return result

    def _leverage_blocks(self) -> Floats:
        """Blocks of C A^-1 C' of every prompt's own rows, (M, T, K, H, H)."""
        samples, episodes, policies, words, _ = self.shape
        blocks = np.empty((samples, episodes * policies, words, words))
        # row of position h and prompt p is h T K + p
        prompts = np.arange(episodes * policies)[:, None] + episodes * policies * np.arange(words)
        for sample, factor in enumerate(self._factor):
            if self._wide:  # C (C'C + lambda)^-1 C' = E - lambda (C C' + lambda)^-1
                inverse = np.linalg.inv(factor)  # of a triangular matrix; (F F')^-1 = inverse' inverse
                columns = np.swapaxes(inverse[:, prompts], 0, 1)  # (T K, n, H)
                blocks[sample] = np.eye(words) - self.regularization * (np.swapaxes(columns, 1, 2) @ columns)
            else:
                solution = np.linalg.solve(factor, self._flat(slice(sample, sample + 1))[0].T)  # (d, n)
                columns = np.swapaxes(solution[:, prompts], 0, 1)
                blocks[sample] = np.swapaxes(columns, 1, 2) @ columns
        return blocks.reshape(samples, episodes, policies, words, words)
