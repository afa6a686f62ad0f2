"""Acquisition values of questions whose answers are several choices, such as rankings, or the best and the worst.

Each choice is among the options not yet picked (`AnswerFormat.picks`). The weights W of the expected Fisher information
X' W X are the mean over draws theta_m of the sum over the sets that may be left of the probability that they are, times
diag(p) - p p' of the choice among them. As in `scores`, a is the option that is replaced, Y (K - 1, d) has the
differences x_j - x_a, W_a is W without a, and with the posterior covariance P everything is a function of matrices of
size K - 1: the gain in log det is that of I + W_a G, G = Y P Y', and the reduction of tr(B' P B) is
tr((I + W_a G)^-1 W_a T), T = Y P B B' P Y'.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from edpbrl_gym._arrays import Floats
from edpbrl_gym.planners.scores import QuestionScore, Table

__all__ = ["SequentialChoices"]

_Sets = dict[tuple[int, ...], Floats]


class SequentialChoices(QuestionScore):
    """The scores of `AdaptivePlanner` for a format whose answers are several choices.

    Args:
        draws: theta_m, (M, d).
        picks: The choices, 1 for a best and -1 for a worst of the options that are left, fewer than K.
        root: R of the posterior covariance P = R' R, (d, d), ``Posterior.inverse_factor``.
        score: "information": the gain in log det of the posterior precision; "variance": the reduction of tr(B' P B).
        contrasts: B, (d, r), of "variance"; None: I.
    """

    def __init__(
        self,
        draws: Floats,
        picks: tuple[int, ...],
        root: Floats,
        *,
        score: str,
        contrasts: Floats | None = None,
    ) -> None:
        super().__init__(draws)
        self._picks, self._root, self._score = picks, root, score
        self._targets = root if contrasts is None else root @ contrasts

    def _take_tokens(self, tokens: Table) -> None:
        super()._take_tokens(tokens)
        self._white = np.asarray(tokens, dtype=np.float64) @ self._root.T
        self._moved = self._white @ self._targets

    def _take_offsets(self, offsets: Floats) -> None:
        super()._take_offsets(offsets)
        self._white_offsets = offsets @ self._root.T
        self._moved_offsets = self._white_offsets @ self._targets

    def replacements(self, question: NDArray[np.int64], lane: int) -> Floats:
        weights = self._weights(self._others(question, lane), lane)
        after = weights @ _products(self._white, self._white_offsets, question, lane)
        after += np.eye(len(question) - 1)
        if self._score == "information":
            return np.asarray(np.linalg.slogdet(after)[1])
        moved = weights @ _products(self._moved, self._moved_offsets, question, lane)
        return np.asarray(np.trace(np.linalg.solve(after, moved), axis1=1, axis2=2))

    def _weights(self, others: Floats, lane: int) -> Floats:
        """W_a with each replacement, (n, K - 1, K - 1), from the utilities of the other options, (K - 1, M).

        Of the sets of others that may be left there is the probability that they are, (n, M): with a, and without it.
        """
        own = self._utilities + self._offset_utilities[lane]
        count = len(others)
        weights = np.zeros((count, count, len(own)))
        beside: _Sets = {tuple(range(count)): np.ones_like(own)}
        without: _Sets = {}
        for sign in self._picks:
            left_beside: _Sets = {}
            left_without: _Sets = {}
            for members in dict.fromkeys((*beside, *without)):
                values = sign * others[list(members)]
                highest = values.max(axis=0)  # scipy's logsumexp takes longer than all the rest
                q, diagonal = np.exp(values - highest), np.arange(len(members))
                total = q.sum(axis=0)
                q /= total
                top = highest + np.log(total)
                pairs = q[:, None] * q[None]
                found = np.zeros((len(members), len(members), len(own)))
                if members in beside:
                    share = expit(sign * own - top)
                    rest = beside[members] * (1.0 - share)
                    found -= np.tensordot(pairs, (rest * (1.0 - share)).T, 1)
                    found[diagonal, diagonal] += q @ rest.T
                    _add(left_without, members, beside[members] * share)
                    _add_smaller(left_beside, members, rest, q)
                if members in without:
                    found -= np.tensordot(pairs, without[members].T, 1)
                    found[diagonal, diagonal] += q @ without[members].T
                    _add_smaller(left_without, members, without[members], q)
                weights[np.ix_(members, members)] += found
            beside, without = left_beside, left_without
        return np.asarray(weights.transpose(2, 0, 1) / len(self.draws))


def _products(rows: Floats, offsets: Floats, question: NDArray[np.int64], lane: int) -> Floats:
    """Inner products of the differences to each replacement of option ``lane``, (n, K - 1, K - 1)."""
    others = np.delete(np.arange(len(question)), lane)
    fixed, own = rows[question[others]] + offsets[others], rows + offsets[lane]
    cross, norms = own @ fixed.T, np.einsum("nd,nd->n", own, own)
    return np.asarray(fixed @ fixed.T - cross[:, :, None] - cross[:, None] + norms[:, None, None])


def _add_smaller(table: _Sets, members: tuple[int, ...], chance: Floats, shares: Floats) -> None:
    """Each member is picked with its share (M,) of a chance (n, M); one that is alone leaves nothing to tell."""
    if len(members) > 1:
        for place in range(len(members)):
            _add(table, members[:place] + members[place + 1 :], chance * shares[place])


def _add(table: _Sets, members: tuple[int, ...], chance: Floats) -> None:
    table[members] = table[members] + chance if members in table else chance
