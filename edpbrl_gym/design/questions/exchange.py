"""Coordinate exchange of prompts on state features: every token may be replaced by any token of its step.

In a question at step h, options X (K, d), replace option q by token y. With u = x_q - m, v = y - m, m the mean of the
other options and c = (K - 1)/K^2 the information changes by -c u u' + c v v'. Let (a, b, g) be (u'Au, u'Av, v'Av) with
A = I^-1, and (a', b', g') the same with B = A V A. Then

    rho = (1 - c a)(1 + c g) + c^2 b^2 = det(I') / det(I),
    D:        gain = log rho,
    A and V:  gain = (c / rho) [(1 - c a) g' + 2 c b b' - (1 + c g) a'],

and all three products come from y'A x_j for the K options and y'A y: one matrix product scores all replacements of all
options of many questions at once. Such scores choose; whether a replacement gains is then computed anew, in float64,
with the inverse as it is at that moment, so the value never falls. Of a criterion without a closed form the score is
the upper bound c (v'Gv - u'Gu), G its gradient, and replacements are looked at until no bound exceeds the best gain.

See Meyer and Nachtsheim, "The coordinate-exchange algorithm for constructing exact optimal experimental designs",
Technometrics 37 (1995).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edpbrl_gym._arrays import AnyFloats, Floats, Indices
from edpbrl_gym.design.problem import NEVER, Deadline
from edpbrl_gym.design.questions.restrictions import TokenRules
from edpbrl_gym.design.questions.state import Change, State, least_gain, option_weight

__all__ = ["PromptExchange", "gather_options"]


_SCORES = 4_000_000  # scores that are held at once
_ROWS = 4096  # rows of a product that are held at once


def gather_options(blocks: Sequence[AnyFloats], tokens: Indices) -> Floats:
    """Options of all questions, shape (T * H, K, d) in float64, ordered by episode and step."""
    steps = [np.asarray(blocks[step][tokens[:, :, step]], dtype=np.float64) for step in range(tokens.shape[2])]
    options = np.stack(steps, axis=1)  # (T, H, K, d)
    return np.asarray(options.reshape(-1, *options.shape[2:]))


class PromptExchange:
    """Exchanges tokens of a set of prompts as long as the criterion gains.

    Args:
        blocks: Feature rows of each step's tokens, arrays (tokens, d), float64 or float32.
        tokens: The prompts to begin with, shape (T, K, H); they keep the restrictions.
        state: Information and inverse; reset to these prompts.
        rules: The restrictions.
        deadline: When a sweep ends between two questions.

    Attributes:
        tokens: The prompts as they are.
        exchanges: Tokens replaced so far.
    """

    def __init__(
        self,
        blocks: Sequence[AnyFloats],
        tokens: Indices,
        state: State,
        rules: TokenRules,
        deadline: Deadline = NEVER,
    ) -> None:
        self.tokens = tokens.copy()
        self.exchanges = 0
        self._blocks = blocks
        self._state = state
        self._rules = rules
        self._deadline = deadline
        self._weight = option_weight(tokens.shape[1])
        state.reset(gather_options(blocks, self.tokens))

    @property
    def value(self) -> float:
        """The criterion."""
        return self._state.value

    def sweep(self, rng: np.random.Generator) -> float:
        """Go through all steps once; returns the value, computed anew from the prompts."""
        for step in rng.permutation(len(self._blocks)):
            if not self._rules.shared(int(step)):  # equal options bear no information, whatever they are
                self._sweep_step(int(step))
        return self._state.reset(gather_options(self._blocks, self.tokens))

    def _sweep_step(self, step: int) -> None:
        block, episodes = self._blocks[step], len(self.tokens)
        norms = self.norms(block)
        at_once = max(1, _SCORES // (len(block) * self.tokens.shape[1]))
        for begin in range(0, episodes, at_once):
            chunk = np.arange(begin, min(begin + at_once, episodes))
            promise = self.scores(step, norms, chunk).max(axis=(1, 2)).astype(np.float64)
            order = np.argsort(-promise, kind="stable")
            for episode in chunk[order][promise[order] > least_gain(self._state.value)]:
                if self._deadline.passed:
                    return
                norms = self._improve_question(step, int(episode), norms)

    def _improve_question(self, step: int, episode: int, norms: tuple[AnyFloats, ...]) -> tuple[AnyFloats, ...]:
        """Replace options of one question, the best replacement first, until none gains."""
        block, state = self._blocks[step], self._state
        signs = np.array([-self._weight, self._weight])
        for _ in range(2 * self.tokens.shape[1]):
            scores = self.scores(step, norms, np.array([episode]))[0]
            options = np.asarray(block[self.tokens[episode, :, step]], dtype=np.float64)
            best, found = least_gain(state.value), None
            while True:
                lane, token = (int(i) for i in np.unravel_index(int(np.argmax(scores)), scores.shape))
                if not scores[lane, token] > best:
                    break
                mean = np.delete(options, lane, axis=0).mean(axis=0)
                rows = np.stack([options[lane] - mean, np.asarray(block[token], dtype=np.float64) - mean])
                gain = state.gain(rows, signs)  # the score may be a bound, or rounding
                if gain > best:
                    best, found = gain, (lane, token, rows)
                if not state.bounded:
                    break
                scores[lane, token] = -np.inf
            if found is None:
                break
            lane, token, rows = found
            change = state.change(rows, signs)
            self.tokens[episode, lane, step] = token
            self.exchanges += 1
            norms = self.norms(block) if change is None else norms_after(block, norms, change)
        return norms

    def norms(self, block: AnyFloats) -> tuple[AnyFloats, ...]:
        """The products y'Ay and, of a trace, y'By of all tokens of a step."""
        state = self._state
        matrices = [state.metric] if state.target is None else [state.metric, state.target]
        norms = []
        for matrix in matrices:
            values = np.empty(len(block), dtype=block.dtype)
            for begin in range(0, len(block), _ROWS):
                part = block[begin : begin + _ROWS]
                values[begin : begin + _ROWS] = np.vecdot(part @ matrix.astype(block.dtype), part)
            norms.append(values)
        return tuple(norms)

    def scores(self, step: int, norms: tuple[AnyFloats, ...], episodes: Indices) -> AnyFloats:
        """Gain of every replacement or its bound, shape (n, K, tokens of the step); -inf where it is not allowed."""
        block, state = self._blocks[step], self._state
        tokens = self.tokens[episodes, :, step]
        options = np.asarray(block[tokens], dtype=np.float64)
        first = _products(block, options, norms[0], state.metric)
        gains: AnyFloats
        if state.bounded:
            gains = self._weight * (first[2] - first[0])
        elif state.target is None:
            gains = _determinant_gain(first, self._weight)
        else:
            gains = _trace_gain(first, _products(block, options, norms[1], state.target), self._weight)
        np.put_along_axis(gains, tokens[:, :, None], -np.inf, axis=2)  # itself
        for index, episode in enumerate(episodes):
            ids = self._rules.ids(self.tokens[episode])
            for lane in range(len(ids)):
                mask = self._rules.allowed_ids(step, ids[lane], np.delete(ids, lane, axis=0))
                gains[index, lane, ~mask] = -np.inf
        return gains


def _products(
    block: AnyFloats, options: Floats, norms: AnyFloats, matrix: Floats
) -> tuple[AnyFloats, AnyFloats, AnyFloats]:
    """(u'Au, u'Av, v'Av) of every replacement: shapes (n, K, 1), (n, K, tokens), (n, K, tokens).

    Args:
        block: Feature rows of the tokens y, shape (tokens, d).
        options: x_j, shape (n, K, d).
        norms: y'Ay, shape (tokens,).
        matrix: A, shape (d, d).
    """
    count, lanes, dimension = options.shape
    solved = options @ matrix
    gram = solved @ options.transpose(0, 2, 1)  # x_i'A x_j
    inner = (solved.reshape(-1, dimension).astype(block.dtype) @ block.T).reshape(count, lanes, -1)  # x_j'A y
    # row q of `mean` averages the options other than q
    mean = (np.ones((lanes, lanes)) - np.eye(lanes)) / (lanes - 1)
    away = np.eye(lanes) - mean  # u_q = sum_j away[q, j] x_j
    old = np.einsum("qi,nij,qj->nq", away, gram, away)[..., None]
    mixed = np.einsum("qi,nij,qj->nq", away, gram, mean)[..., None]
    centre = np.einsum("qi,nij,qj->nq", mean, gram, mean)[..., None]
    kind = block.dtype
    old, mixed, centre = (part.astype(kind) for part in (old, mixed, centre))
    cross = away.astype(kind) @ inner - mixed
    new = norms - 2.0 * (mean.astype(kind) @ inner) + centre
    return old, cross, new


def _determinant_gain(products: tuple[AnyFloats, AnyFloats, AnyFloats], weight: float) -> AnyFloats:
    """Gain log det(I') - log det(I); -inf where I' would be singular."""
    old, cross, new = products
    ratio = (1.0 - weight * old) * (1.0 + weight * new) + (weight * cross) ** 2
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(np.where(ratio > 0, np.log(np.maximum(ratio, 0)), -np.inf))


def _trace_gain(
    products: tuple[AnyFloats, AnyFloats, AnyFloats],
    targets: tuple[AnyFloats, AnyFloats, AnyFloats],
    weight: float,
) -> AnyFloats:
    """Gain tr VA - tr VA'; -inf where I' would be singular."""
    old, cross, new = products
    old_target, cross_target, new_target = targets
    less, more = 1.0 - weight * old, 1.0 + weight * new
    ratio = less * more + (weight * cross) ** 2
    gain = weight * (less * new_target + 2.0 * weight * cross * cross_target - more * old_target)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(np.where(ratio > 0, gain / ratio, -np.inf))


def norms_after(block: AnyFloats, norms: tuple[AnyFloats, ...], change: Change) -> tuple[AnyFloats, ...]:
    """The norms under the inverse after a change, from those before."""
    half, solved = (block @ part.T.astype(block.dtype) for part in (change.half, change.solved))
    first = norms[0] - np.vecdot(half, solved)
    if change.cross is None:
        return (first,)
    cross = block @ change.cross.T.astype(block.dtype)
    middle = change.middle.astype(block.dtype)
    second = norms[1] - 2.0 * np.vecdot(solved, cross) + np.vecdot(solved @ middle, solved)
    return first, second
