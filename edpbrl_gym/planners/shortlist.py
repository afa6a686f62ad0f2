"""Search of a large step: exact values of a few hundred candidates, chosen from all by a cheap value of a pair.

What an option x adds to a question is nearly what the pair of x and c adds, where c is what x competes with and S the
posterior covariance after the other options' answer. With y = x - c, u = theta_hat . y and s2 = y' P y,

    w = E[p (1 - p)],  p = sigmoid(theta . y),  theta . y ~ N(u, s2)        (Gaussian approximation of p (1 - p)),
    variance taken off: w y' S S y / (1 + w y' S y),    information gained: log(1 + w y' S y).

All tokens are compared by this in the span of their leading directions, so that a question costs two products of
(n, q) with (q, q). Then the exchange searches among the best of them, a few at random, and the present options, by
the exact value. Because the options of a question should differ in what they ask, the list is made anew given the
question found (S is then the covariance after it, c the mean of its options weighted by their variances of choice)
until a list gains nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from scipy.linalg.blas import dtrmm

from edpbrl_gym._arrays import Booleans, Floats, Floats32, Indices
from edpbrl_gym.estimation import Posterior
from edpbrl_gym.estimation.covariance import leading_directions
from edpbrl_gym.planners.exchange import exchange
from edpbrl_gym.planners.scores import QuestionScore

__all__ = ["Knowledge", "Shortlists"]

_DIRECTIONS = 48  # q
_PASSES = 2  # over the tokens, to find the leading directions
_BEST, _RANDOM = 200, 400  # candidates of a list; random ones in the first list only
_FIRST_SWEEPS = 2  # over the first list; further lists refine what it gives
_LISTS = 3
_GAIN = 1e-3  # relative gain of a list below which the search ends
_ROWS = 4096  # of a block, which stays in the processor's cache
_LOGISTIC = 8.0 / np.pi  # a normal density of this variance has the height of sigmoid (1 - sigmoid) at 0


@dataclass(frozen=True, eq=False)
class Knowledge:
    """What is known about the taste when a question is chosen.

    Attributes:
        posterior: Of the taste; its covariance is P = R' R.
        variance: Whether the search is for the variance that an answer takes off (else for information).
        contrasts: B of the variance tr(B' P B), (d, r); None: the trace of P.
    """

    posterior: Posterior
    variance: bool
    contrasts: Floats | None = None


class Allowed(Protocol):
    """Which tokens a lane may take beside those of all lanes (K,): all tokens of the step, or those listed."""

    def __call__(self, lane: int, question: Indices, among: Indices | slice = ...) -> Booleans: ...


class Shortlists:
    """The tokens of a step in the span of their leading directions, and the search among them.

    Args:
        tokens: Features of all tokens, (n, d).
    """

    def __init__(self, tokens: Floats32) -> None:
        self.tokens = tokens
        self._basis = _leading_directions(tokens)
        self._rows = tokens @ self._basis.astype(np.float32)
        self._centre = self._rows.mean(axis=0, dtype=np.float64)

    def search(
        self,
        score: QuestionScore,
        known: Knowledge,
        offsets: Floats,
        allowed: Allowed,
        starts: list[Indices],
        *,
        sweeps: int,
        rng: np.random.Generator,
    ) -> Indices:
        """Tokens (K,) of a question of a large value, among those that ``allowed`` lets the lanes take.

        Each lane's prefix adds its offset, (K, d). The best result of the random legal starts on the first list is
        improved on further ones; ``sweeps`` as for ``exchange``.
        """
        usable = np.logical_or.reduce([allowed(lane, starts[0]) for lane in range(len(offsets))])
        shift = self._basis.T @ offsets.mean(axis=0)
        reduced = _Reduced(known, self._basis)
        listed = self._best(reduced, self._centre, usable)
        others = np.flatnonzero(usable)
        listed = np.union1d(listed, rng.choice(others, size=min(_RANDOM, len(others)), replace=False))
        question, value = starts[0], -np.inf
        for number in range(_LISTS):
            begun, most = (starts, _FIRST_SWEEPS) if number == 0 else ([question], sweeps)
            listed = np.unique(np.concatenate([listed, *begun]))
            score.prepare(self.tokens[listed], offsets)
            legal = _among(allowed, listed)
            results = [exchange(score, legal, np.searchsorted(listed, start), sweeps=most, rng=rng) for start in begun]
            places, found = max(results, key=lambda result: result[1])
            question, before, value = listed[places], value, found
            if value <= before + _GAIN * abs(before):
                break
            if number + 1 < _LISTS:
                after, middle = reduced.after(self.tokens[question] + offsets, score.draws)
                listed = self._best(after, middle - shift, usable)
        return question

    def _best(self, known: _Reduced, centre: Floats, usable: Booleans) -> Indices:
        """The usable tokens with the highest values beside ``centre``, (q,)."""
        values = np.empty(len(self._rows), dtype=np.float32)
        middle = centre.astype(np.float32)
        for start in range(0, len(values), _ROWS):
            values[start : start + _ROWS] = known.values(self._rows[start : start + _ROWS] - middle)
        values[~usable] = -np.inf
        count = min(_BEST, int(np.count_nonzero(usable)))
        return np.argpartition(-values, count - 1)[:count]


class _Reduced:
    """The value of a pair of options, by the difference of their features in the leading directions.

    Args:
        known: What is known before the question.
        basis: D, orthonormal, (d, q).
    """

    def __init__(self, known: Knowledge, basis: Floats) -> None:
        self._known, self._basis = known, basis
        self._root = known.posterior.inverse_factor
        self._mean = basis.T @ known.posterior.mean
        self._image = dtrmm(1.0, self._root.T, basis, trans_a=1)
        self._moved = self._contrasted(dtrmm(1.0, self._root.T, self._image)) if known.variance else None
        values, vectors = np.linalg.eigh(self._image.T @ self._image)
        values = np.maximum(values, np.finfo(np.float64).eps * values[-1])
        self._whitening = vectors / np.sqrt(values)
        self._unwhitening = vectors * np.sqrt(values)
        self._set_forms(np.zeros((len(basis.T), 0)), self._moved)

    def _contrasted(self, columns: Floats) -> Floats:
        return columns if self._known.contrasts is None else self._known.contrasts.T @ columns

    def _set_forms(self, pull: Floats, moved: Floats | None) -> None:
        """Coordinates z of a difference in which y' P y = z' z and y' S B B' S y = sum of t z^2: one product for both.

        Args:
            pull: y' P y - y' S y = |pull' y|^2, (q, k).
            moved: B' S D; None: the search is for information.
        """
        coordinates, shares = self._unwhitening, np.zeros(len(self._unwhitening))
        if moved is not None:
            white = moved @ self._whitening
            shares, vectors = np.linalg.eigh(white.T @ white)
            coordinates = coordinates @ vectors
        self._columns = np.concatenate([coordinates, pull, self._mean[:, None]], axis=1).astype(np.float32)
        self._sums = np.zeros((self._columns.shape[1], 4), dtype=np.float32)  # of squares: y' P y, t z^2, pull, mean
        self._sums[: len(shares), 0] = 1.0
        self._sums[: len(shares), 1] = shares
        self._sums[len(shares) : -1, 2] = 1.0
        self._sums[-1, 3] = 1.0

    def values(self, rows: Floats32) -> Floats32:
        """Values of n differences (n, q), (n,)."""
        images = rows @ self._columns
        variance, target, pulled, mean = np.ascontiguousarray((np.square(images, out=images) @ self._sums).T)
        width = variance + np.float32(_LOGISTIC)
        weight = np.exp(-0.5 * mean / width) / np.sqrt(2.0 * np.float32(np.pi) * width)
        left = weight * (variance - pulled)  # of what the other options leave
        if self._moved is None:
            return np.asarray(np.log1p(left))
        return np.asarray(weight * target / (1.0 + left))

    def after(self, options: Floats, draws: Floats) -> tuple[_Reduced, Floats]:
        """The same after an answer about options (K, d), and their middle (q,), each weighted by W_kk."""
        utilities = options @ draws.T
        chances = np.exp(utilities - utilities.max(axis=0))
        chances /= chances.sum(axis=0)
        weights = np.diag(chances.mean(axis=1)) - chances @ chances.T / len(draws)  # W, positive semidefinite
        values, vectors = np.linalg.eigh(weights)
        # S = P - F' F, F = C^-1 W^(1/2)' X P, with C C' = I + W^(1/2)' X P X' W^(1/2)
        columns = options.T @ (vectors * np.sqrt(np.maximum(values, 0.0)))
        image = dtrmm(1.0, self._root.T, columns, trans_a=1)
        factor = np.linalg.cholesky(np.eye(len(options)) + image.T @ image)
        taken = np.linalg.solve(factor, image.T)
        pull = taken @ self._image
        later = copy(self)
        moved = self._moved
        if moved is not None:  # R' (R S D), S D = P D - F' F D
            moved = moved - self._contrasted(dtrmm(1.0, self._root.T, taken.T)) @ pull
        later._set_forms(pull.T, moved)
        shares = np.diagonal(weights) + np.finfo(np.float64).tiny
        return later, self._basis.T @ (shares @ options / shares.sum())


def _among(allowed: Allowed, listed: Indices) -> Callable[[int, Indices], Booleans]:
    """Which of the listed tokens a lane may take, given the places of all lanes' tokens in the list."""
    return lambda lane, places: allowed(lane, listed[places], listed)


def _leading_directions(tokens: Floats32) -> Floats:
    """Orthonormal directions in which the tokens are largest, (d, q)."""
    dimension = tokens.shape[1]
    if dimension <= _DIRECTIONS:
        return np.eye(dimension)

    def times(columns: Floats) -> Floats:
        single, total = columns.astype(np.float32), np.zeros_like(columns)
        for start in range(0, len(tokens), _ROWS):
            block = tokens[start : start + _ROWS]
            total += block.T @ (block @ single)
        return total

    return leading_directions(times, dimension, _DIRECTIONS, iterations=_PASSES)
