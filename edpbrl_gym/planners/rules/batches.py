"""Rules that plan many questions at once without answers, and the baselines: random questions, random rollouts.

Sources: batch thinning, A. Schlaginhaufen, R. Ouhamma and M. Kamgarpour, "Efficient preference-based reinforcement
learning: randomized exploration meets experimental design" (2025). DopeWolfe: K. Thekumparampil, G. Hiranandani,
K. Kalantari, S. Sabach and B. Kveton, "Comparing few to rank many: active human preference learning using randomized
Frank-Wolfe method" (2025). Random questions and rollouts are the baselines of all papers on the subject.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from scipy.linalg import cho_factor, cho_solve, solve_triangular
from scipy.optimize import brentq

from edpbrl_gym._arrays import Floats, Indices
from edpbrl_gym.likelihood.choice import fisher_information
from edpbrl_gym.planners.rules.state import Lanes, PoolState, draw_questions, positive_definite_factor

__all__ = ["SubsetDesign", "dopewolfe", "random_distinct", "rollout_pool", "solve_subset_design", "thin", "thinning"]

_LONGEST = 1.0 - 1e-6  # step of the design: a whole step to one subset may be singular
_REACHED = 1e-9  # of the batch's gain in log det: rounding
_START = 32  # rows of the random subsets at the start, in multiples of d
_IDENTITY = 0.01  # weight of the identity at the start, of the mean eigenvalue of the rest
_SLACK = 1e-9  # of d: a gap as small as this is rounding
_OVERSAMPLING = 4  # candidates of thinning, in multiples of the questions to ask
_SINGLE = 64  # questions for whose candidates a single one is thinned, so that the best of them is informative


def random_distinct(state: PoolState) -> Indices:
    """K different items, each set of K equally likely."""
    return _random(1, state)[0]


def thinning(state: PoolState, count: int | None = None) -> Indices:
    """Batch thinning: ask as few questions of a batch as carry the information of the whole batch.

    W = V; keep picking argmax over the batch of x' W^-1 x, x the difference of a pair, and add x x' to W, until det W
    is that of V plus the whole batch. For K options x x' is F(S; 0), and the pick is argmax log det(W + F(S; 0)), the
    same for K = 2 where F(S; 0) = x x' / 4. Candidates may be picked repeatedly, which lets fewer questions reach the
    determinant of the batch. The candidates are random questions, four times as many as there are to ask.
    """
    candidates = _random(_OVERSAMPLING * (_SINGLE if count is None else count), state)
    return thin(candidates, state.items, state.agnostic, limit=1 if count is None else count)


def dopewolfe(
    state: PoolState, count: int = 1, *, subsets: int = 64, iterations: int | None = None, seed: int = 0
) -> Indices:
    """D-optimal design over distributions on K-subsets, by a randomised Frank-Wolfe method; questions are its samples.

    max over distributions pi on K-subsets of log det sum_S pi_S K^2 F(S; 0), K^2 F(S; 0) = sum over the pairs of S of
    (x_i - x_j)(x_i - x_j)'. Each step scores ``subsets`` random subsets only and moves to the best of them. The design
    of a pool is solved once, with its own seed, so that it depends on the pool only. ``iterations``: None is 18 d, at
    least 600; with too few of them much of the weight is still on the random subsets of the start.
    """

    def solved() -> SubsetDesign:
        return solve_subset_design(
            state.items,
            state.num_options,
            rng=np.random.default_rng([seed, state.num_items]),
            subsets=subsets,
            iterations=max(600, 18 * state.dimension) if iterations is None else iterations,
            lanes=state.lanes,
        )

    design = state.kept(("design", state.num_options, subsets, iterations, seed), solved)
    return design.questions[state.rng.choice(len(design.weights), count, p=design.weights)]


def rollout_pool(state: PoolState, *, rule: str = "random_distinct", size: int = 2000, seed: int = 0) -> Indices:
    """Any rule on a pool of random rollouts: the candidates are drawn once, and no search looks beyond them.

    A baseline: what sampling-based packages do where a trajectory is an option. ``rule`` chooses from ``size`` random
    items of the pool (all of a smaller one) and from items of earlier questions. For prompts of several steps
    `RulePlanner` passes random trajectories as items.
    """
    from edpbrl_gym.planners.registry import make_rule  # which knows this module

    def drawn() -> tuple[Indices, Floats]:
        rng = np.random.default_rng([seed, state.num_items])
        shares = []
        for items, options in state.groups:  # each group gets its share of the candidates
            share = max(len(options), min(-(-size * len(options) // state.num_options), len(items)))
            shares.append(items[rng.choice(len(items), share, replace=False)])
        chosen = np.sort(np.concatenate(shares))
        return chosen, state.items[chosen]

    candidates, features = state.kept(("candidates", size, seed), drawn)
    lanes = None if state.lanes is None else Lanes(state.lanes.of_items[candidates], state.lanes.of_options)
    asked = state.asked_items
    # some rules use the options of earlier questions, so these are items of the inner pool too, but of no lane
    outside = np.setdiff1d(asked, candidates)
    if len(outside):
        candidates = np.concatenate([candidates, outside])
        features = state.items[candidates]
        lanes = lanes and Lanes(np.append(lanes.of_items, np.full(len(outside), -1)), lanes.of_options)
    position = {int(item): index for index, item in enumerate(candidates)}
    renamed = tuple(tuple(position[int(i)] for i in row) for row in asked)
    inner = replace(state, items=features, asked=renamed, lanes=lanes)
    return np.asarray(candidates[make_rule(rule).propose(inner)])


def thin(batch: Indices, items: Floats, agnostic: Floats, *, limit: int) -> Indices:
    """The fewest questions of a batch (b, K) with the determinant of the whole, picked greedily, at most ``limit``.

    Raises:
        ValueError: V is not positive definite, or all items of the batch are the same.
    """
    factor = positive_definite_factor(agnostic, "agnostic")
    target = _log_det_gain(factor, fisher_information(items[batch]))
    if target <= 0.0:
        raise ValueError("Expected candidates with items that differ, got a batch that says nothing about theta")
    rows = _information_rows(items, batch)  # (b, K - 1, d): F(S; 0) = rows' rows
    flat = rows.reshape(-1, rows.shape[2])
    whitened = np.ascontiguousarray(solve_triangular(factor, flat.T, lower=True, check_finite=False).T)
    whitened = whitened.reshape(rows.shape)
    picks: list[int] = []
    gain = 0.0
    while len(picks) < limit and gain < target * (1.0 - _REACHED):
        gains = np.linalg.slogdet(np.matmul(whitened, whitened.transpose(0, 2, 1)) + np.eye(rows.shape[1]))[1]
        picks.append(int(gains.argmax()))
        gain += float(gains[picks[-1]])
        # in the metric after W <- W + B' B: times (E + Q' Q)^-1/2, Q the whitened pick (k, d)
        _, values, vectors = np.linalg.svd(whitened[picks[-1]], full_matrices=False)
        whitened = whitened + ((whitened @ vectors.T) * (1.0 / np.sqrt(1.0 + values**2) - 1.0)) @ vectors
    return batch[picks]


class SubsetDesign(NamedTuple):
    """A distribution over questions.

    Attributes:
        questions: Its support, (s, K).
        weights: pi, (s,), sums to 1.
        gap: max over the last step's subsets of tr(M^-1 K^2 F(S; 0)) - d: the first-order gain of another step.
    """

    questions: Indices
    weights: Floats
    gap: float


def solve_subset_design(
    pool: Floats,
    size: int,
    *,
    rng: np.random.Generator,
    subsets: int = 64,
    iterations: int = 600,
    lanes: Lanes | None = None,
) -> SubsetDesign:
    """The randomised Frank-Wolfe method for the D-optimal distribution on K-subsets of a pool.

    It starts from equal weights on random subsets, 32 d / (K - 1) of them: from a single one it would take d / (K - 1)
    steps to cover every direction once. A hundredth of the start is the identity, so that M^-1 exists where the items
    don't span all directions. Steps M <- (1 - a) M + a K^2 F(S; 0) have rank K - 1, so that M^-1 costs O(K d^2) and the
    best a the eigenvalues of a matrix of size K - 1. Each of the ``iterations`` scores ``subsets`` random subsets.

    Raises:
        ValueError: Items that are all the same.
    """
    dimension = pool.shape[1]
    first = draw_questions(-(-_START * dimension // (size - 1)), len(pool), size, rng, lanes=lanes)
    flat = size * _information_rows(pool, first).reshape(-1, dimension)
    moment = flat.T @ flat / len(first)
    scale = float(np.trace(moment)) / dimension
    if scale <= 0.0:
        raise ValueError("Expected items that differ, got a pool in which all are the same")
    matrix = _IDENTITY * scale * np.eye(dimension) + (1.0 - _IDENTITY) * moment
    inverse = cho_solve(cho_factor(matrix, lower=True), np.eye(dimension))
    # in units of the weight that remains on the start
    weights: dict[tuple[int, ...], float] = {}
    for question in (np.sort(first, axis=1) if lanes is None else first).tolist():
        weights[tuple(question)] = weights.get(tuple(question), 0.0) + (1.0 - _IDENTITY) / len(first)
    start_weight, gap = 1.0, 0.0
    for _ in range(iterations):
        questions = draw_questions(subsets, len(pool), size, rng, lanes=lanes)
        rows = size * _information_rows(pool, questions)
        products = (rows.reshape(-1, dimension) @ inverse).reshape(rows.shape)  # one product, not one a subset
        traces = np.vecdot(rows, products).sum(axis=1)
        best = int(traces.argmax())
        gap = float(traces[best]) - dimension
        if gap <= _SLACK * dimension:
            continue
        gram = products[best] @ rows[best].T
        length = _best_step(np.linalg.eigvalsh((gram + gram.T) / 2), dimension)
        inner = gram + (1.0 - length) / length * np.eye(len(gram))
        inverse = (inverse - products[best].T @ cho_solve(cho_factor(inner), products[best])) / (1.0 - length)
        start_weight *= 1.0 - length
        key = tuple(sorted(questions[best].tolist()) if lanes is None else questions[best].tolist())
        weights[key] = weights.get(key, 0.0) + length / start_weight
    mass = np.array(list(weights.values()))
    return SubsetDesign(np.array(list(weights), dtype=np.int64), mass / mass.sum(), gap)


def _best_step(eigenvalues: Floats, dimension: int) -> float:
    """The best a of (1 - a) M + a A; the eigenvalues mu are those of M^-1/2 A M^-1/2.

    log det gains (d - r) log(1 - a) + sum_i log(1 + a (mu_i - 1)), concave in a, over the r given eigenvalues.
    """
    num_zeros = dimension - len(eigenvalues)
    excess = np.maximum(eigenvalues, 0.0) - 1.0

    def slope(step: float) -> float:
        return float((excess / (1.0 + step * excess)).sum()) - num_zeros / (1.0 - step)

    return _LONGEST if slope(_LONGEST) >= 0.0 else float(brentq(slope, 0.0, _LONGEST, xtol=1e-15))


def _random(count: int, state: PoolState) -> Indices:
    return draw_questions(count, state.num_items, state.num_options, state.rng, lanes=state.lanes)


def _information_rows(items: Floats, questions: Indices) -> Floats:
    """Rows B with B' B = F(S; 0) of each question, (m, K - 1, d): differences of an option to the mean of those before.

    The weights are those of ``choice.information_from_differences`` with p = 1/K.
    """
    size = questions.shape[1]
    options = items[questions]
    rows = np.empty((len(questions), size - 1, items.shape[1]))
    mean = options[:, 0].copy()
    for k in range(1, size):
        step = options[:, k] - mean
        rows[:, k - 1] = np.sqrt(k / (k + 1.0) / size) * step
        mean += step / (k + 1.0)
    return rows


def _log_det_gain(factor: Floats, information: Floats) -> float:
    """The gain log det(V + I) - log det V, V = L L'."""
    inner = solve_triangular(factor, information, lower=True, check_finite=False)
    inner = solve_triangular(factor, inner.T, lower=True, check_finite=False)
    inner[np.diag_indices_from(inner)] += 1.0
    return float(np.linalg.slogdet(inner)[1])
