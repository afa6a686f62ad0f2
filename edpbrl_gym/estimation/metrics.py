"""Quality of an estimate of the taste: the paper's two errors, and the accuracy on held-out questions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from edpbrl_gym._validation import check_array, check_count, check_integers

if TYPE_CHECKING:
    from edpbrl_gym.comparisons import Comparisons

__all__ = ["PairSample", "choice_accuracy", "cosine_error", "preference_error", "sample_pairs"]


def cosine_error(estimate: ArrayLike, truth: ArrayLike) -> float:
    """Return 1 - cos(estimate, truth), in [0, 2]; an estimate of 0 has no direction and counts as orthogonal (1).

    Args:
        estimate: theta_hat, shape (d,).
        truth: theta*, shape (d,), not 0.

    Raises:
        ValueError: If the shapes differ, an entry isn't finite, or the truth is 0.
    """
    true = check_array(truth, "truth", shape=("d",))
    guess = check_array(estimate, "estimate", shape=(len(true),))
    norm = float(np.linalg.norm(true))
    if norm == 0:
        raise ValueError("Expected a truth other than 0, got 0; it has no direction")
    length = float(np.linalg.norm(guess))
    if length == 0:
        return 1.0
    return 1.0 - float(np.clip((guess / length) @ (true / norm), -1.0, 1.0))


@dataclass(frozen=True, eq=False)
class PairSample:
    """Prompts, and pairs of them on which an estimate is evaluated.

    Attributes:
        tokens: Token index per step of each prompt, shape (n, H).
        pairs: Prompt indices of each pair, shape (p, 2), i < j.
    """

    tokens: NDArray[np.int64]
    pairs: NDArray[np.int64]


def sample_pairs(sizes: ArrayLike, *, prompts: int, pairs: int, rng: np.random.Generator) -> PairSample:
    """Draw distinct random prompts and distinct unordered pairs of them.

    If the vocabulary has fewer prompts (or the prompts fewer pairs) than requested, all of them are returned.

    Args:
        sizes: Tokens of each step, shape (H,).
        prompts: Number of prompts, at least 2 (the paper: 1,000).
        pairs: Number of pairs, at least 1 (the paper: 5,000).
        rng: Source of randomness.

    Raises:
        ValueError: If the vocabulary has only one prompt.
    """
    counts = check_integers(sizes, "sizes", shape=("H",), low=1)
    prompts = check_count(prompts, "prompts", minimum=2)
    pairs = check_count(pairs, "pairs")
    total = float(np.prod(counts.astype(np.float64)))
    if total < 2:
        raise ValueError("Expected a vocabulary with at least two prompts, got one; add tokens")
    num_prompts = int(min(prompts, total))
    if total <= 100 * num_prompts and total < 2**31:  # few prompts: draw their numbers without replacement
        prompt_numbers = rng.choice(int(total), size=num_prompts, replace=False)
        tokens = np.stack(np.unravel_index(prompt_numbers, tuple(counts)), axis=1).astype(np.int64)
    else:  # many prompts: repeats are rare, draw again until there are none
        tokens = np.empty((0, len(counts)), dtype=np.int64)
        while len(tokens) < num_prompts:
            draws = np.stack([rng.integers(size, size=num_prompts) for size in counts], axis=1)
            stacked = np.concatenate([tokens, draws])
            first_rows = np.sort(np.unique(stacked, axis=0, return_index=True)[1])
            tokens = stacked[first_rows][:num_prompts]
    possible = num_prompts * (num_prompts - 1) // 2
    pair_numbers = rng.choice(possible, size=min(pairs, possible), replace=False)
    left_indices, right_indices = np.triu_indices(num_prompts, k=1)
    return PairSample(
        tokens, np.stack([left_indices[pair_numbers], right_indices[pair_numbers]], axis=1).astype(np.int64)
    )


def preference_error(estimate: ArrayLike, truth: ArrayLike, features: ArrayLike, pairs: ArrayLike) -> float:
    """Return the share of pairs that the estimate and the truth order differently.

    Ties: a pair to which the truth is indifferent has no right answer and is left out; a pair to which the estimate is
    indifferent (an estimate of 0 always is) counts one half, like a guess.

    Args:
        estimate: theta_hat, shape (d,).
        truth: theta*, shape (d,).
        features: Features of the prompts, shape (n, d).
        pairs: Indices of two prompts for each pair, shape (p, 2).

    Raises:
        ValueError: If shapes don't fit, an entry isn't finite, or the truth is indifferent on every pair.
    """
    rows = check_array(features, "features", shape=("n", "d"))
    guess = check_array(estimate, "estimate", shape=(rows.shape[1],))
    true = check_array(truth, "truth", shape=(rows.shape[1],))
    index = check_integers(pairs, "pairs", shape=("p", 2), low=0, high=len(rows) - 1)
    difference = rows[index[:, 0]] - rows[index[:, 1]]
    true_signs = np.sign(difference @ true)
    estimated_signs = np.sign(difference @ guess)
    decided = true_signs != 0
    if not decided.any():
        raise ValueError("Expected a pair that the truth is not indifferent to, got none; use other prompts")
    wrong = np.where(estimated_signs == 0, 0.5, (estimated_signs != true_signs).astype(np.float64))
    return float(wrong[decided].mean())


def choice_accuracy(comparisons: Comparisons, estimate: ArrayLike) -> float:
    """Return the share of questions whose answer is the option with the highest estimated utility.

    If the estimate ties several best options and the answer is among them, it counts 1 / (their number).

    Args:
        comparisons: Answered questions that were not used for the estimate; they may differ in their number of options.
        estimate: theta_hat, shape (d,).

    Raises:
        ValueError: If there is no question or the dimensions differ.
    """
    options = check_array(comparisons.features, "comparisons.features", shape=("n", "K", "d"))
    if not len(options):
        raise ValueError("Expected at least one held-out question, got none")
    utilities = options @ check_array(estimate, "estimate", shape=(options.shape[2],))
    utilities[~comparisons.present] = -np.inf
    best = utilities == utilities.max(axis=1, keepdims=True)
    chosen_is_best = best[np.arange(len(best)), comparisons.choice]
    return float((chosen_is_best / best.sum(axis=1)).mean())
