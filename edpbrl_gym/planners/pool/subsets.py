"""Sets of questions planned without answers: thinned batches, and D-optimal distributions on K-subsets."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve, solve_triangular
from scipy.optimize import brentq

from edpbrl_gym._arrays import Floats, Indices
from edpbrl_gym._validation import check_array, check_count, check_integers, check_number
from edpbrl_gym.likelihood.choice import fisher_information
from edpbrl_gym.planners.pool.lanes import draw_questions
from edpbrl_gym.planners.pool.state import positive_definite_factor

__all__ = ["SubsetDesign", "check_share", "solve_subset_design", "thin"]


_LONGEST = 1.0 - 1e-6  # step of the design: a whole step to one subset may be singular
_REACHED = 1e-9  # of the batch's gain in log det: rounding
_START = 32  # rows of the random subsets at the start, in multiples of d
_IDENTITY = 0.01  # weight of the identity at the start, of the mean eigenvalue of the rest
_SLACK = 1e-9  # of d: a gap as small as this is rounding


def thin(
    candidates: NDArray[np.integer],
    items: Floats,
    agnostic: Floats,
    *,
    limit: int | None = None,
    repeats: bool = True,
    share: float = 1.0,
) -> Indices:
    """The fewest questions of a batch, picked greedily, with the determinant of the whole batch.

    Args:
        candidates: The batch, (b, K) indices of items.
        items: (n, d).
        agnostic: V, positive definite, (d, d).
        limit: Maximum number of questions; None: b.
        repeats: Whether a candidate may be picked again.
        share: Stop at this share of the batch's gain in log det.

    Returns:
        The picks, in their order, (t, K). Without a limit, b picks that don't reach the determinant give the batch.

    Raises:
        ValueError: Indices out of range, V that is not positive definite, or questions of items that are all the same.
    """
    pool = check_array(items, "items", shape=("n", "d"))
    batch = check_integers(candidates, "candidates", shape=("b", "K"), low=0, high=len(pool) - 1)
    max_picks = len(batch) if limit is None else min(check_count(limit, "limit"), len(batch) if not repeats else limit)
    prior = check_array(agnostic, "agnostic", shape=(pool.shape[1], pool.shape[1]))
    factor = positive_definite_factor(prior, "agnostic")
    target = check_share(share) * _log_det_gain(factor, fisher_information(pool[batch]))
    if target <= 0.0:
        raise ValueError("Expected candidates with items that differ, got a batch that says nothing about theta")
    rows = _information_rows(pool, batch)  # (b, K - 1, d): F(S; 0) = rows' rows
    whitened = _whiten(factor, rows)
    picks: list[int] = []
    gain, available = 0.0, np.ones(len(batch), dtype=bool)
    while len(picks) < max_picks and gain < target * (1.0 - _REACHED):
        inner = np.matmul(whitened, whitened.transpose(0, 2, 1)) + np.eye(rows.shape[1])
        gains = np.where(available, np.linalg.slogdet(inner)[1], -np.inf)
        best = int(gains.argmax())
        picks.append(best)
        gain += float(gains[best])
        available[best] = repeats
        whitened = _after(whitened, whitened[best])
    if limit is None and gain < target * (1.0 - _REACHED):
        return batch.copy()
    return batch[picks]


@dataclass(frozen=True, eq=False)
class SubsetDesign:
    """A distribution over questions.

    Attributes:
        questions: Its support, (s, K).
        weights: pi, (s,), sums to 1.
        log_determinant: log det of the information after the last step: that of pi and, with the weight ``start``, the
            multiple of the identity with which the method starts.
        gap: max over the last step's subsets of tr(M^-1 K^2 F(S; 0)) - d: the first-order gain of another step.
        start: Weight that remains on the identity.
    """

    questions: Indices
    weights: Floats
    log_determinant: float
    gap: float
    start: float

    def sample(self, size: int, rng: np.random.Generator) -> Indices:
        """Independent questions, (size, K)."""
        return self.questions[rng.choice(len(self.weights), size, p=self.weights)]

    def information(self, items: Floats) -> Floats:
        """The sum over S of pi_S K^2 F(S; 0), (d, d)."""
        rows = _information_rows(items, self.questions) * self.questions.shape[1]
        flat = (rows * np.sqrt(self.weights)[:, None, None]).reshape(-1, items.shape[1])
        return np.asarray(flat.T @ flat)


def solve_subset_design(
    items: Floats,
    num_options: int,
    *,
    rng: np.random.Generator,
    subsets: int = 64,
    iterations: int = 600,
    lanes: tuple[Indices, ...] | None = None,
) -> SubsetDesign:
    """The randomised Frank-Wolfe method for the D-optimal distribution on K-subsets of a pool.

    It starts from equal weights on random subsets, 32 d / (K - 1) of them: from a single one it would take d / (K - 1)
    steps to cover every direction once. A hundredth of the start is the identity, so that M^-1 exists where the items
    don't span all directions. Steps M <- (1 - a) M + a K^2 F(S; 0) have rank K - 1, so that M^-1 costs O(K d^2) and the
    best a the eigenvalues of a matrix of size K - 1.

    Args:
        items: (n, d).
        num_options: K <= n.
        rng: Draws the subsets.
        subsets: Random subsets scored in each step.
        iterations: Number of steps.
        lanes: Checked lanes, see `PoolState`; None: all subsets.

    Raises:
        ValueError: Fewer items than K, or items that are all the same.
    """
    pool = check_array(items, "items", shape=("n", "d"))
    size = check_count(num_options, "num_options (K)", minimum=2)
    dimension = pool.shape[1]
    check_count(subsets, "subsets")
    first = draw_questions(-(-_START * dimension // (size - 1)), len(pool), size, rng, lanes=lanes)
    flat = size * _information_rows(pool, first).reshape(-1, dimension)
    moment = flat.T @ flat / len(first)
    scale = float(np.trace(moment)) / dimension
    if scale <= 0.0:
        raise ValueError("Expected items that differ, got a pool in which all are the same")
    matrix = _IDENTITY * scale * np.eye(dimension) + (1.0 - _IDENTITY) * moment
    factor = cho_factor(matrix, lower=True)
    inverse, log_det = cho_solve(factor, np.eye(dimension)), 2.0 * float(np.log(np.diagonal(factor[0])).sum())
    # in units of the weight that remains on the start
    weights: dict[tuple[int, ...], float] = {}
    for question in (np.sort(first, axis=1) if lanes is None else first).tolist():
        weights[tuple(question)] = weights.get(tuple(question), 0.0) + (1.0 - _IDENTITY) / len(first)
    start_weight, gap = 1.0, 0.0
    for _ in range(check_count(iterations, "iterations")):
        questions = draw_questions(subsets, len(pool), size, rng, lanes=lanes)
        rows = size * _information_rows(pool, questions)
        products = (rows.reshape(-1, dimension) @ inverse).reshape(rows.shape)  # one product, not one a subset
        traces = np.vecdot(rows, products).sum(axis=1)
        best = int(traces.argmax())
        gap = float(traces[best]) - dimension
        if gap <= _SLACK * dimension:
            continue
        gram = products[best] @ rows[best].T
        length, gain = _best_step(np.linalg.eigvalsh((gram + gram.T) / 2), dimension)
        inner = gram + (1.0 - length) / length * np.eye(len(gram))
        inverse = (inverse - products[best].T @ cho_solve(cho_factor(inner), products[best])) / (1.0 - length)
        log_det += gain
        start_weight *= 1.0 - length
        key = tuple(sorted(questions[best].tolist()) if lanes is None else questions[best].tolist())
        weights[key] = weights.get(key, 0.0) + length / start_weight
    mass = np.array(list(weights.values()))
    return SubsetDesign(
        np.array(list(weights), dtype=np.int64), mass / mass.sum(), log_det, gap, _IDENTITY * start_weight
    )


def _best_step(eigenvalues: Floats, dimension: int) -> tuple[float, float]:
    """The best a of (1 - a) M + a A, and the gain in log det; the eigenvalues mu are those of M^-1/2 A M^-1/2.

    log det gains (d - r) log(1 - a) + sum_i log(1 + a (mu_i - 1)), concave in a, over the r given eigenvalues.
    """
    num_zeros = dimension - len(eigenvalues)
    excess = np.maximum(eigenvalues, 0.0) - 1.0

    def slope(step: float) -> float:
        return float((excess / (1.0 + step * excess)).sum()) - num_zeros / (1.0 - step)

    step = _LONGEST if slope(_LONGEST) >= 0.0 else float(brentq(slope, 0.0, _LONGEST, xtol=1e-15))
    return step, num_zeros * float(np.log1p(-step)) + float(np.log1p(step * excess).sum())


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


def _whiten(factor: Floats, rows: Floats) -> Floats:
    """L^-1 r for rows (m, k, d)."""
    flat = rows.reshape(-1, rows.shape[2])
    return np.ascontiguousarray(solve_triangular(factor, flat.T, lower=True, check_finite=False).T).reshape(rows.shape)


def _after(whitened: Floats, pick: Floats) -> Floats:
    """Rows in the metric after W <- W + B' B: whitened rows times (E + Q' Q)^-1/2, Q the whitened pick (k, d)."""
    _, values, vectors = np.linalg.svd(pick, full_matrices=False)
    factors = 1.0 / np.sqrt(1.0 + values**2) - 1.0
    along = whitened @ vectors.T
    return np.asarray(whitened + (along * factors) @ vectors)


def _log_det_gain(factor: Floats, information: Floats) -> float:
    """The gain log det(V + I) - log det V, V = L L'."""
    inner = solve_triangular(factor, information, lower=True, check_finite=False)
    inner = solve_triangular(factor, inner.T, lower=True, check_finite=False)
    inner[np.diag_indices_from(inner)] += 1.0
    return float(np.linalg.slogdet(inner)[1])


def check_share(share: float) -> float:
    """The share, in (0, 1]; ValueError otherwise."""
    number = check_number(share, "share", minimum=0.0, exclusive=True)
    if number > 1.0:
        raise ValueError(f"Expected share in (0, 1], got {share}")
    return number
