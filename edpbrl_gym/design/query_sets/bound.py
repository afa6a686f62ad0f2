"""The best that any questions of K options can do: a bound between query sets and the surrogate.

The surrogate (SPEC F3) bounds every query set, but it asks for questions whose mean never moves, and few vocabularies
have such K-tuples. Here the unknowns are the questions themselves: weights w over all K-tuples of tokens of a step,

    maximise s( Lambda + sum_h sum_tuples w_h(tuple) C(tuple) ),   w_h >= 0, sum w_h = T,

a concave problem with too many columns to write down. Columns are generated: with G = ds/dI the best tuple maximises

    tr(G C) = (1/K^2) sum_{i<j} D_ij,    D_ij = (x_i - x_j)'G(x_i - x_j),

a heaviest K-subset. Weights follow the multiplicative algorithm (Yu, "Monotonic convergence of a general algorithm for
computing optimal designs", Annals of Statistics 38, 2010). At any weights concavity certifies

    s* <= s(I) + T sum_h max_tuple tr(G C) - tr(G (I - Lambda)).

The certificate needs the maximum itself, or an upper bound of it. For K = 2 and 3 all subsets are looked at. A heavy
4-subset holds a heavy triple: every edge lies in two of its four triples, so one of them weighs at least half; only the
triples that heavy are extended. For K > 4 a K-subset weighs at most K (K - 1) / 12 of the heaviest 4-subset.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edpbrl_gym._arrays import AnyFloats, Floats, Indices
from edpbrl_gym._threads import one_blas_thread
from edpbrl_gym._validation import check_count
from edpbrl_gym.design.problem import DesignProblem
from edpbrl_gym.design.query_sets.result import QuerySet
from edpbrl_gym.design.query_sets.state import InverseState
from edpbrl_gym.mdp import PromptMDP

__all__ = ["QuestionBound", "heaviest_subset", "question_bound"]


_MOST_TOKENS = 5000  # of a step: all distances between them are kept
_NEW_COLUMNS = 200  # of each step and round
_SLACK = 1e-6  # relative; float32 distances err by less
_TOLERANCE = 1e-3  # of the efficiency


@dataclass(frozen=True, eq=False, kw_only=True)
class QuestionBound:
    """What questions of K options can reach at best.

    Attributes:
        value: Criterion of the fractional questions that were found; reached by weights, not by whole questions.
        upper_bound: No query set of these T, K and H has a larger value.
        columns: Different questions with weight.
        rounds: Rounds of new questions.
        seconds: Time taken.
    """

    value: float
    upper_bound: float
    columns: int
    rounds: int
    seconds: float


def question_bound(problem: DesignProblem, start: QuerySet, *, rounds: int = 6, steps: int = 15) -> QuestionBound:
    """Bound the value of every query set of a prompt problem on state features, restrictions or none.

    Stops early when the bound is within 0.1% of the value, in terms of the efficiency.

    Args:
        problem: A problem with a `PromptMDP` of at most 5,000 tokens a step, and the criterion A, V or D.
        start: A query set of the problem, to begin with its questions; a good one saves rounds.
        rounds: Rounds of new questions at most.
        steps: Multiplicative steps in each round.

    Returns:
        The bound; valid after any number of rounds, tight after many.

    Raises:
        TypeError: If the criterion is not A, V or D.
        ValueError: If the MDP is no `PromptMDP`, a step has too many tokens, or the start is of another problem.
    """
    _check(problem, start)
    check_count(rounds, "rounds")
    check_count(steps, "steps")
    begin = time.perf_counter()
    with one_blas_thread():
        master = _Questions(problem, start)
        best, count = np.inf, 0
        while count < rounds:
            count += 1
            for _ in range(steps):
                master.reweigh()
            best = min(best, master.price())
            if 1.0 - problem.criterion.efficiency(master.value, best, problem.dimension) <= _TOLERANCE:
                break
    return QuestionBound(
        value=master.value, upper_bound=best, columns=master.size, rounds=count, seconds=time.perf_counter() - begin
    )


def _check(problem: DesignProblem, start: QuerySet) -> None:
    mdp = problem.mdp
    if not isinstance(mdp, PromptMDP):
        raise ValueError(f"Expected a problem with a PromptMDP, got one with a {type(mdp).__name__}.")
    if max(mdp.sizes) > _MOST_TOKENS:
        raise ValueError(
            f"Expected at most {_MOST_TOKENS} tokens at a step, got {max(mdp.sizes)}: all distances between them are "
            "kept; take a subset of the vocabulary."
        )
    if start.problem_fingerprint != problem.fingerprint or start.feedback != "state":
        raise ValueError("Expected a query set of this problem on state features to begin with, got another one.")


class _Questions:
    """Weighted questions of all steps."""

    def __init__(self, problem: DesignProblem, start: QuerySet) -> None:
        assert isinstance(problem.mdp, PromptMDP)
        self._problem = problem
        self._blocks = [problem.features[problem.mdp.step_pairs(step)] for step in range(problem.horizon)]
        self._state = InverseState(problem.criterion, problem.prior)
        self._tuples: list[Indices] = []
        self._weights: list[Floats] = []
        for step in range(problem.horizon):
            tuples, counts = np.unique(np.sort(start.tokens[:, :, step], axis=1), axis=0, return_counts=True)
            self._tuples.append(tuples)
            self._weights.append(counts * (problem.episodes / counts.sum()))
        self._power = 1.0 if problem.criterion.name == "D" else 0.5
        self._measure()

    @property
    def value(self) -> float:
        return self._state.value

    @property
    def size(self) -> int:
        return sum(len(tuples) for tuples in self._tuples)

    def _rows(self, step: int) -> Floats:
        """Centred options of the questions of a step, shape (n, K, d); C is the mean of their squares."""
        options = np.asarray(self._blocks[step][self._tuples[step]], dtype=np.float64)
        return np.asarray(options - options.mean(axis=1, keepdims=True))

    def _measure(self) -> None:
        """Information and its inverse at the weights, and tr(G C) of every question."""
        information = self._problem.prior.copy()
        rows = [self._rows(step) for step in range(len(self._blocks))]
        for step, centred in enumerate(rows):
            scaled = (centred * np.sqrt(self._weights[step] / centred.shape[1])[:, None, None]).reshape(
                -1, centred.shape[2]
            )
            information += scaled.T @ scaled
        self._state.factorise(information)
        curvature = self._state.curvature
        self._scores = [np.vecdot(centred @ curvature, centred).mean(axis=1) for centred in rows]

    def reweigh(self) -> None:
        """One multiplicative step; questions with negligible weight are removed."""
        episodes = self._problem.episodes
        for step, score in enumerate(self._scores):
            weights = self._weights[step] * score**self._power
            weights *= episodes / weights.sum()
            keep = weights > 1e-4 * episodes / len(weights)
            self._tuples[step] = self._tuples[step][keep]
            self._weights[step] = weights[keep] * (episodes / weights[keep].sum())
        self._measure()

    def price(self) -> float:
        """Add heavy questions of every step; returns the certified bound at the weights before."""
        curvature, episodes = self._state.curvature, self._problem.episodes
        bound = self.value - float(np.vdot(curvature, self._state.information - self._problem.prior))
        for step, block in enumerate(self._blocks):
            lanes = self._tuples[step].shape[1]
            distances = _distances(block, curvature)
            subsets, weights = _local_subsets(distances, lanes)
            bound += episodes * heaviest_subset(distances, lanes, float(weights.max())) / lanes**2
            self._add(step, subsets[np.argsort(-weights)][:_NEW_COLUMNS])
        self._measure()
        return bound

    def _add(self, step: int, tuples: Indices) -> None:
        """New questions begin with a tenth of the weight, those that are there already with their own."""
        existing = {tuple(row) for row in self._tuples[step].tolist()}
        new_tuples = np.array([row for row in tuples.tolist() if tuple(row) not in existing], dtype=np.int64)
        if not len(new_tuples):
            return
        share = np.full(len(new_tuples), 0.1 * self._problem.episodes / len(new_tuples))
        self._tuples[step] = np.concatenate([self._tuples[step], new_tuples])
        self._weights[step] = np.concatenate([0.9 * self._weights[step], share])


def _distances(block: AnyFloats, curvature: Floats) -> NDArray[np.float32]:
    """Squared distances of all tokens of a step in the metric G, shape (n, n)."""
    rows = np.asarray(block, dtype=np.float64)
    gram = (rows @ curvature) @ rows.T
    norms = np.diag(gram)
    return np.maximum(norms[:, None] + norms[None, :] - gram - gram.T, 0.0).astype(np.float32)


def _local_subsets(distances: NDArray[np.float32], size: int) -> tuple[Indices, Floats]:
    """Heavy subsets from a greedy start at every token and exchanges of one token: subsets (m, size), weights (m,)."""
    count = len(distances)
    members = np.arange(count)[:, None]
    tokens = np.arange(count)
    for _ in range(size - 1):
        total = distances[members].sum(axis=1)
        np.put_along_axis(total, members, -1.0, axis=1)
        members = np.concatenate([members, total.argmax(axis=1)[:, None]], axis=1)
    for _ in range(2):
        for position in range(size):
            rest = np.delete(members, position, axis=1)
            total = distances[rest].sum(axis=1)
            np.put_along_axis(total, rest, -1.0, axis=1)
            replacement = total.argmax(axis=1)
            gains = total[tokens, replacement] > total[tokens, members[:, position]]
            members[gains, position] = replacement[gains]
    subsets = np.unique(np.sort(members, axis=1), axis=0)
    inside = distances[subsets[:, :, None], subsets[:, None, :]].astype(np.float64)
    return subsets.astype(np.int64), inside.sum(axis=(1, 2)) / 2.0


def heaviest_subset(distances: AnyFloats, size: int, known: float = 0.0) -> float:
    """Upper bound of the sum of the distances within any subset of ``size`` elements; exact for sizes up to 4.

    Args:
        distances: Symmetric, non-negative, zero on the diagonal, shape (n, n); repeated elements are allowed.
        size: K >= 2.
        known: Weight of some subset; a good one saves work for K >= 4.
    """
    count = len(distances)
    if size == 2:
        return float(distances.max()) * (1.0 + _SLACK)
    if size == 3:
        return max(float(_triples(distances, first).max(initial=0.0)) for first in range(count)) * (1.0 + _SLACK)
    if size > 4:
        return heaviest_subset(distances, 4) * size * (size - 1) / 12.0
    best = known
    for first in range(count):
        pairs = np.argwhere(np.triu(_triples(distances, first) >= best / 2.0 * (1.0 - _SLACK)))
        for begin in range(0, len(pairs), 4096):
            second, third = pairs[begin : begin + 4096].T + first
            triple = distances[first, second] + distances[first, third] + distances[second, third]
            fourth = distances[first] + distances[second] + distances[third]
            best = max(best, float((triple + fourth.max(axis=1)).max(initial=0.0)))
    return best * (1.0 + _SLACK)


def _triples(distances: AnyFloats, first: int) -> AnyFloats:
    """Weights of the triples (first, i, j) with i, j >= first, shape (n - first, n - first)."""
    edges = distances[first, first:]
    return np.asarray(distances[first:, first:] + edges[:, None] + edges[None, :])
