"""How well estimates predict answers that they have not seen: prequential log probabilities (Dawid, 1984).

The evidence of a prior that was chosen after seeing the answers is too high. What it predicts is not: the answers are
taken in blocks, each predicted from those before it alone,

    log p(y_1..y_n) = sum over blocks b of log p(y_b | y before b),

with the choice made anew before each block. The sum is an honest log evidence of the whole procedure, choice included.
"""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable

import numpy as np
from scipy.special import logsumexp

from edpbrl_gym.estimation.posterior import Posterior
from edpbrl_gym.estimation.variational import normal_points
from edpbrl_gym.likelihood import Terms

__all__ = ["Prequential", "block_ends", "predictive_log_probability"]

_FIRST, _GROWTH = 4, 1.5  # the first block has so many answers; each later one makes them so many times more
_KEPT = 64  # sums kept by a Prequential


def predictive_log_probability(posterior: Posterior, terms: Terms) -> float:
    """Sum over the terms of the log probability of the choice, each averaged over the posterior on its own.

    The average of softmax(v)_chosen over the normal distribution of a term's J - 1 utility differences, by
    quasi-Monte Carlo with 128 points.

    Args:
        posterior: Of theta, (d,).
        terms: The choices.
    """
    differences, offsets = terms.differences()
    if not differences.size:
        return 0.0
    middle = np.vecdot(differences, posterior.mean) + offsets
    deviations = posterior.roots(differences)
    values = middle[:, None, :] + normal_points(middle.shape[1]) @ deviations.transpose(0, 2, 1)
    top = np.maximum(values.max(axis=2), 0.0)
    logs = -(top + np.log(np.exp(-top) + np.exp(values - top[:, :, None]).sum(axis=2)))
    return float((logsumexp(logs, axis=1) - np.log(logs.shape[1])).sum())


def block_ends(count: int) -> list[int]:
    """Ends of the blocks of ``count`` terms; the first block is predicted by nobody, the last one may be cut."""
    ends = [_FIRST]
    while ends[-1] < count:
        ends.append(int(np.ceil(ends[-1] * _GROWTH)))
    return [min(end, count) for end in ends]


class Prequential:
    """Log probability of answers under one procedure over that under another, each seeing the past alone.

    Sums of whole blocks are kept, so that answers that come one by one cost a fit at the end of each block only. What
    is kept changes no result. Safe to use from several threads.

    Args:
        fit: Returns the posteriors of the two procedures, (first, second), from the terms so far.
    """

    def __init__(self, fit: Callable[[Terms], tuple[Posterior, Posterior]]) -> None:
        self._fit = fit
        self._sums: OrderedDict[bytes, float] = OrderedDict()
        self._last: tuple[bytes, tuple[Posterior, Posterior]] | None = None
        self._lock = threading.Lock()

    def log_ratio(self, terms: Terms) -> float:
        """The log of the ratio; 0 for so few terms that nothing is predicted."""
        ends = block_ends(len(terms))
        total, known = 0.0, 0
        for number in range(len(ends) - 1, 0, -1):  # the longest prefix whose sum is known
            kept = self._sums.get(_digest(terms, ends[number]))
            if kept is not None:
                total, known = kept, number
                break
        for number in range(known + 1, len(ends)):
            block = terms.select(np.arange(ends[number - 1], ends[number]))
            first, second = self._posteriors(terms, ends[number - 1])
            total += predictive_log_probability(first, block) - predictive_log_probability(second, block)
            if ends[number] == int(np.ceil(ends[number - 1] * _GROWTH)):
                with self._lock:
                    self._sums[_digest(terms, ends[number])] = total
                    while len(self._sums) > _KEPT:
                        self._sums.popitem(last=False)
        return total

    def _posteriors(self, terms: Terms, count: int) -> tuple[Posterior, Posterior]:
        key, last = _digest(terms, count), self._last
        if last is None or last[0] != key:
            self._last = last = key, self._fit(terms.select(np.arange(count)))
        return last[1]


def _digest(terms: Terms, count: int) -> bytes:
    digest = hashlib.blake2b(str((count, *terms.rows.shape[1:])).encode("ascii"), digest_size=16)
    for part in (terms.rows, terms.offsets, terms.chosen):
        digest.update(np.ascontiguousarray(part[:count]).tobytes())
    return digest.digest()
