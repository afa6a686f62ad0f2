"""The best prompts from about a hundred embedded texts: a Gaussian process predicts the scores of all others.

The score theta . phi(prompt) of a prompt with the tokens t_0 .. t_{H-1} is modelled as

    f = c + sum_h w_h theta . phi(t_h) + sum_h u_h(t_h) + r(t_0 .. t_{H-1}),

with theta . phi(t_h) the known score of the token alone. Constant c, weights w_h, deviations u_h and the interaction r
are Gaussian and independent, so given some true scores all others have a posterior in closed form (Rasmussen &
Williams, 2006, chapter 2). Deviations of two tokens of a step are correlated by the square of their cosine (0 if it is
negative), interactions by the product over the steps of 0.6 + 0.4 times that square. With MiniLM the weights alone
explain about 70% of the variance of the scores of random prompts.

The prompts that are looked for share at most some tokens with each other: the best, then the best of those that differ
enough from it, and so on. The unknown prompts that are embedded, a batch at a time, are those whose mean plus standard
deviation is the most above the score of the prompt whose place they would take (each choice lowers the variance of the
next ones, as if its score were known). Candidates for a place are the best combinations by the additive part of the
model that differ enough from all better prompts, and the best prompts so far with one token replaced.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, cho_factor, cho_solve, solve_triangular

from edpbrl_gym._arrays import Floats
from edpbrl_gym._threads import one_blas_thread
from edpbrl_gym.personalize.differing import pick

__all__ = ["search_by_model"]

_Tokens = tuple[int, ...]

_WEIGHT, _WEIGHT_DEVIATION = 0.26, 0.1  # of a token's score: a prompt of six tokens is about their sum times 0.26
_CONSTANT = 10.0  # standard deviation of c, in units of the spread of the additive part
_DEVIATION = 2.0  # of u_h, in units of the spread of the tokens' weighted scores in the step
_INTERACTION = 0.5  # of r, in units of the spread of the additive part
_OWN = 0.6  # correlation of interactions of prompts without a similar token in a step
_OPTIMISM = 1.0  # standard deviations added to the mean
_COMBINATIONS, _NEIGHBOURS = 24, 24  # for each place; tokens of each step tried in the best prompts
_PLACES = 12  # places for which combinations are made at a time
_JITTER = 1e-6  # of the variance of the additive part
_BATCH = 16  # prompts scored at a time


def search_by_model(
    features: Sequence[Floats],
    theta: Floats,
    score: Callable[[list[_Tokens]], Floats],
    *,
    count: int,
    texts: int,
    shortlist: int,
    most: int,
    track: Callable[[int, int], object] | None = None,
) -> dict[_Tokens, float]:
    """Choose prompts to score, so that the best ones that differ are among them.

    Args:
        features: Embeddings of the tokens of each step, (V_h, d).
        theta: The taste, (d,).
        score: True scores of prompts, given as tuples of tokens.
        count: Number of prompts that are looked for.
        texts: Number of prompts to score; if there are no more, all of them are.
        shortlist: Tokens of each step that may appear, by their own scores.
        most: Number of steps in which two of the prompts that are looked for may have the same token.
        track: Callback of (prompts scored, all).

    Returns:
        The scored prompts with their scores.
    """
    allowed = [np.argsort(-(rows @ theta), kind="stable")[:shortlist] for rows in features]
    total = min(texts, int(np.prod([float(len(tokens)) for tokens in allowed])))
    model = _Model([rows[tokens] for rows, tokens in zip(features, allowed, strict=True)], theta)
    known: dict[_Tokens, float] = {}
    round_number = 0
    while len(known) < total:
        with one_blas_thread():
            model.learn(known)
            leaders = _Leaders.of(known, len(features), count, most)
            candidates = _candidates(model.tables(), known, leaders, round_number)
            chosen = model.promising(candidates, leaders, min(_BATCH, total - len(known)))
        prompts = [tuple(int(token) for token in candidates[place]) for place in chosen]
        values = score([_translated(prompt, allowed) for prompt in prompts])
        known.update(zip(prompts, values.tolist(), strict=True))
        round_number += 1
        if track is not None:
            track(len(known), total)
    return {_translated(prompt, allowed): value for prompt, value in known.items()}


def _translated(prompt: _Tokens, allowed: Sequence[NDArray[np.intp]]) -> _Tokens:
    return tuple(int(tokens[place]) for tokens, place in zip(allowed, prompt, strict=True))


@dataclass(frozen=True)
class _Leaders:
    """The best scored prompts that differ enough, (m, H), best first, and their scores, (m,)."""

    prompts: NDArray[np.int64]
    scores: Floats
    count: int  # of prompts that are looked for
    most: int

    @classmethod
    def of(cls, known: dict[_Tokens, float], steps: int, count: int, most: int) -> _Leaders:
        prompts = np.array(list(known), dtype=np.int64).reshape(-1, steps)
        scores = np.array(list(known.values()))
        best = pick(scores, prompts, count, most, fill=False)
        return cls(prompts[best], scores[best], count, most)


@dataclass(frozen=True)
class _Known:
    prompts: NDArray[np.int64]
    factor: tuple[Floats, bool]
    weights: Floats  # of the scored prompts in the posterior mean


class _Model:
    """The Gaussian process over the scores of prompts; see the module."""

    def __init__(self, features: Sequence[Floats], theta: Floats) -> None:
        norms = [np.linalg.norm(rows, axis=1, keepdims=True) for rows in features]
        self.units = [rows / np.where(norm > 0, norm, 1.0) for rows, norm in zip(features, norms, strict=True)]
        self.scores = [rows @ theta for rows in features]
        spreads = _WEIGHT * np.array([scores.std() for scores in self.scores])
        size = float(np.sqrt(np.sum(spreads**2))) or 1.0
        self.deviations = (_DEVIATION * spreads) ** 2
        self.interaction = (_INTERACTION * size) ** 2
        self.jitter = _JITTER * size**2
        steps = len(features)
        self.linear_mean = np.array([0.0] + [_WEIGHT] * steps)
        self.linear_variance = np.array([(_CONSTANT * size) ** 2] + [_WEIGHT_DEVIATION**2] * steps)
        self.known: _Known | None = None

    def learn(self, known: dict[_Tokens, float]) -> None:
        """Condition on the scores of all scored prompts."""
        if not known:
            return
        prompts = np.array(list(known))
        matrix = self._covariance(prompts, prompts)
        factor = self._factor(matrix)
        residual = np.array(list(known.values())) - self._linear(prompts) @ self.linear_mean
        self.known = _Known(prompts, factor, cho_solve(factor, residual))

    def _factor(self, matrix: Floats) -> tuple[Floats, bool]:
        """The Cholesky factor of a covariance with a jitter.

        Cosines cut at 0 are no covariance where many are negative, as in few dimensions; the jitter then grows until
        they are one.
        """
        diagonal = np.diag_indices_from(matrix)
        jitter = self.jitter
        while True:
            matrix[diagonal] += jitter
            try:
                factor = cho_factor(matrix, lower=True)
            except LinAlgError:
                if jitter > np.trace(matrix):  # the features are not finite
                    raise
                jitter *= 10.0
            else:
                self.jitter = jitter
                return factor[0], bool(factor[1])

    def tables(self) -> list[Floats]:
        """The additive part of the posterior mean, for each token of each step, without the constant."""
        if self.known is None:
            return [_WEIGHT * scores for scores in self.scores]
        prompts, weights = self.known.prompts, self.known.weights
        linear = self.linear_mean + self.linear_variance * (self._linear(prompts).T @ weights)
        return [
            linear[1 + step] * scores
            + self.deviations[step] * (self._similarity(step, np.arange(len(scores)), prompts[:, step]) @ weights)
            for step, scores in enumerate(self.scores)
        ]

    def promising(self, prompts: NDArray[np.int64], leaders: _Leaders, number: int) -> list[int]:
        """Which prompts to score next: those that may be the most above the leader whose place they would take.

        A prompt that differs enough from all leaders takes a place of its own, and none is left without a candidate.
        """
        linear = self._linear(prompts)
        mean = linear @ self.linear_mean
        solved = np.zeros((0, len(prompts)))
        if self.known is not None:
            cross = self._covariance(self.known.prompts, prompts)
            mean = mean + cross.T @ self.known.weights
            solved = solve_triangular(self.known.factor[0], cross, lower=True)
        variance = np.square(linear) @ self.linear_variance + self.deviations.sum() + self.interaction
        variance = variance - np.square(solved).sum(axis=0)
        floors = leaders.scores.tolist()
        clashes = (prompts[:, None] == leaders.prompts[None]).sum(axis=2) > leaders.most
        clashes = np.column_stack([clashes, np.ones(len(prompts), dtype=bool)])
        places = clashes.argmax(axis=1)  # of the first leader that is too near
        uses = np.zeros(leaders.count + 1, dtype=np.int64)
        empty = float(mean.min()) - 1e3 * float(np.ptp(mean) + np.sqrt(variance.max()))
        chosen: list[int] = []
        for _ in range(min(number, len(prompts))):
            full = len(floors) == leaders.count
            gains = mean + _OPTIMISM * np.sqrt(np.maximum(variance, 0.0))
            gains = gains - np.array([*floors, floors[-1] if full else empty])[places]
            gains[chosen] = -np.inf
            fresh = np.where(uses[places] < -(-number // leaders.count), gains, -np.inf)
            best = int(np.argmax(fresh if np.isfinite(fresh).any() else gains))
            uses[places[best]] += 1
            if places[best] == len(floors) and not full:
                near = (prompts == prompts[best]).sum(axis=1) > leaders.most
                places[(places == len(floors)) & ~near] += 1
                floors.append(float(mean[best]))
            cross = self._covariance(prompts[[best]], prompts)[0] - solved[:, best] @ solved
            row = cross / np.sqrt(max(float(variance[best]), 0.0) + self.jitter)
            most = np.sqrt(np.maximum(variance, 0.0))
            row = np.clip(row, -most, most)  # exceeded only where the covariance is none (see ``_factor``)
            solved, variance = np.vstack([solved, row]), variance - row**2
            chosen.append(best)
        return chosen

    def _linear(self, prompts: NDArray[np.int64]) -> Floats:
        columns = [scores[prompts[:, step]] for step, scores in enumerate(self.scores)]
        return np.column_stack([np.ones(len(prompts)), *columns])

    def _similarity(self, step: int, first: NDArray[np.int64], second: NDArray[np.int64]) -> Floats:
        units = self.units[step]
        similarity = np.square(np.maximum(units[first] @ units[second].T, 0.0))
        return np.where(first[:, None] == second, 1.0, similarity)  # also for a token whose embedding is 0

    def _covariance(self, first: NDArray[np.int64], second: NDArray[np.int64]) -> Floats:
        total = (self._linear(first) * self.linear_variance) @ self._linear(second).T
        product = np.full(total.shape, self.interaction)
        for step, deviation in enumerate(self.deviations):
            ours, place_ours = np.unique(first[:, step], return_inverse=True)
            theirs, place_theirs = np.unique(second[:, step], return_inverse=True)
            similarity = self._similarity(step, ours, theirs)[np.ix_(place_ours, place_theirs)]
            total += deviation * similarity
            product *= _OWN + (1.0 - _OWN) * similarity
        return np.asarray(total + product)


def _candidates(
    tables: Sequence[Floats], known: dict[_Tokens, float], leaders: _Leaders, round_number: int
) -> NDArray[np.int64]:
    """Prompts without a score that may be among the best that differ, (n, H), at least one."""
    orders = [np.argsort(-table, kind="stable")[:_NEIGHBOURS].tolist() for table in tables]
    best: list[_Tokens] = [tuple(prompt) for prompt in leaders.prompts.tolist()]
    filled, found = len(best), dict[_Tokens, None]()
    every = -(-filled // _PLACES) or 1  # of many places, some in each round
    for place in [*range(round_number % every, filled, every), *range(filled, min(leaders.count, filled + _PLACES))]:
        combinations = _best_sums(tables, _COMBINATIONS, best[:place], leaders.most)
        found.update(dict.fromkeys(combinations))
        if place >= filled and not combinations:
            break
        if place >= filled:
            best.append(combinations[0])
    for prompt in best[:filled]:
        for step, order in enumerate(orders):
            for token in order:
                found[*prompt[:step], token, *prompt[step + 1 :]] = None
    fresh = [prompt for prompt in found if prompt not in known]
    if not fresh:  # all neighbours are known; among one more of the best sums than are known at least one is not
        fresh = [prompt for prompt in _best_sums(tables, len(known) + 1) if prompt not in known]
    return np.array(fresh)


def _best_sums(tables: Sequence[Floats], count: int, others: Sequence[_Tokens] = (), most: int = 0) -> list[_Tokens]:
    """The combinations of one entry of each table with the largest sums, largest first, at most ``count``.

    Without ``others`` this is exact, since a combination among the best has a beginning among the best. Those that
    share at most ``most`` entries with each of the others are grown from the best beginnings of each number of shared
    entries.
    """
    sums, prompts = np.zeros(1), np.zeros((1, 0), dtype=np.int64)
    given = np.array(others, dtype=np.int64).reshape(len(others), len(tables))
    shared = np.zeros((1, len(given)), dtype=np.int64)
    for step, table in enumerate(tables):
        order = np.argsort(-table, kind="stable")[: count + len(given)]
        values = np.add.outer(sums, table[order]).ravel()
        before, token = np.divmod(np.arange(len(values)), len(order))
        overlaps = shared[before] + (order[token][:, None] == given[None, :, step])
        level = overlaps.max(axis=1, initial=0)
        ranked = np.argsort(-values, kind="stable")
        keep = np.concatenate([ranked[level[ranked] == value][:count] for value in range(most + 1)])
        keep = keep[np.argsort(-values[keep], kind="stable")]
        sums, shared = values[keep], overlaps[keep]
        prompts = np.concatenate([prompts[before[keep]], order[token[keep]][:, None]], axis=1)
    return [tuple(row) for row in prompts[:count].tolist()]
