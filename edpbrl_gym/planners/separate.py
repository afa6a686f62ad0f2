"""Acquisition values of options that are answered one by one, such as ratings.

With the K options x_k and W = diag(w), w_k the Fisher information of an answer about theta . x_k averaged over draws
theta_m, a question has the information X' W X, without differences to other options, so that K may be 1. With R of the
posterior covariance P = R' R, z_k = R x_k and M = I + sum_k w_k z_k z_k' the posterior covariance after it is
R' M^-1 R; a candidate a beside the others adds one term to M (Sherman & Morrison, 1950).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve

from edpbrl_gym._arrays import Floats
from edpbrl_gym.estimation import Posterior
from edpbrl_gym.likelihood import AnswerFormat
from edpbrl_gym.planners.scores import QuestionScore, Table

__all__ = ["SeparateOptions"]


class SeparateOptions(QuestionScore):
    """The scores of `AdaptivePlanner` for a format whose answers are about each option by itself.

    Args:
        draws: theta_m, (M, d).
        format: The format, with its own parameters.
        posterior: Of theta.
        score: "information": log det M; "variance": the reduction of tr(B' P B); "mutual": the sum over the options of
            the mutual information between their answers and theta (Houlsby et al., 2011).
        contrasts: B, (d, r), of "variance"; None: I.
    """

    def __init__(
        self,
        draws: Floats,
        format: AnswerFormat,
        posterior: Posterior,
        *,
        score: str,
        contrasts: Floats | None = None,
    ) -> None:
        super().__init__(draws)
        self._format, self._score = format, score
        if score != "mutual":
            self._root = posterior.inverse_factor
            self._targets = self._root if contrasts is None else self._root @ contrasts

    def _take_tokens(self, tokens: Table) -> None:
        super()._take_tokens(tokens)
        if self._score != "mutual":
            self._white = np.asarray(tokens, dtype=np.float64) @ self._root.T

    def _take_offsets(self, offsets: Floats) -> None:
        super()._take_offsets(offsets)
        if self._score != "mutual":
            self._white_offsets = offsets @ self._root.T

    def replacements(self, question: NDArray[np.int64], lane: int) -> Floats:
        others = np.delete(np.arange(len(question)), lane)
        before = [
            self._told((self._utilities[question[k]] + self._offset_utilities[k])[None])[0] for k in others.tolist()
        ]
        told = self._told(self._utilities + self._offset_utilities[lane])
        if self._score == "mutual":
            return np.asarray(told + sum(before))
        rows = self._white[question[others]] + self._white_offsets[others]
        inner = np.eye(len(self._root)) + (rows.T * np.array(before, dtype=np.float64)) @ rows
        factor = cho_factor(inner, lower=True)
        white = self._white + self._white_offsets[lane]
        solved = cho_solve(factor, white.T)
        growth = told * np.einsum("nd,dn->n", white, solved)
        if self._score == "information":
            return np.asarray(2.0 * np.log(np.diagonal(factor[0])).sum() + np.log1p(growth))
        known = np.vdot(self._targets, self._targets) - np.vdot(self._targets, cho_solve(factor, self._targets))
        return np.asarray(known + told * np.square(self._targets.T @ solved).sum(axis=0) / (1.0 + growth))

    def _told(self, values: Floats) -> Floats:
        """What an answer about an option tells, from its utilities at the draws (n, M): w, or mutual information."""
        count = values.size
        if self._score != "mutual":
            return np.asarray(self._format.weights(values.reshape(count, 1)).reshape(values.shape).mean(axis=1))
        p = self._format.probabilities(values.reshape(count, 1, 1), np.ones(1)).reshape(*values.shape, -1)
        return np.asarray(_entropy(p.mean(axis=1)) - _entropy(p).mean(axis=1))


def _entropy(probabilities: Floats) -> Floats:
    return np.asarray(-(probabilities * np.log(probabilities + np.finfo(np.float64).tiny)).sum(axis=-1))
