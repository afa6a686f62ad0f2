"""From occupancies to a first set of T x K prompts: whole counts of tokens, grouped into balanced questions.

A design says how often a token should be shown; T K lanes show it a whole number of times. The whole part of every
count is taken as it is, the fractions by systematic sampling: one random number, equal strides through the cumulated
fractions, so that every token is shown its count rounded down or up. The tokens of a step are then dealt to the T
questions one lane at a time; each lane is an assignment problem that keeps the mean of every question close to the mean
of the step, because a question loses the square of that difference (SPEC F3).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.optimize import linear_sum_assignment

from edpbrl_gym._arrays import AnyFloats, Floats, Indices
from edpbrl_gym.design.problem import DesignProblem
from edpbrl_gym.design.query_sets.repair import check_enough_tokens, complete_episode
from edpbrl_gym.design.query_sets.restrictions import TokenRules

__all__ = ["apportion", "balanced_questions", "first_tokens"]


_GROUP = 500  # questions that are dealt together: an assignment problem costs the cube of it


def apportion(weights: Floats, total: int, rng: np.random.Generator) -> Indices:
    """Whole counts that sum to ``total``, each within one of ``total * weights``.

    Args:
        weights: Non-negative, summing to 1, shape (n,).
        total: Sum of the counts.
        rng: One draw shuffles the tokens, one starts the strides.

    Returns:
        Counts (n,); their expectation is ``total * weights``.
    """
    share = total * weights / weights.sum()
    counts = np.floor(share + 1e-9)
    remainder = total - int(counts.sum())
    fractions = np.maximum(share - counts, 0.0)
    if remainder > 0:
        order = rng.permutation(len(weights))
        cumulated = np.cumsum(fractions[order])
        points = (rng.random() + np.arange(remainder)) * (cumulated[-1] / remainder)
        hit = np.searchsorted(cumulated, np.minimum(points, np.nextafter(cumulated[-1], 0.0)), side="right")
        np.add.at(counts, order[hit], 1)
    return counts.astype(np.int64)


def balanced_questions(features: AnyFloats, tokens: Indices, lanes: int, rng: np.random.Generator) -> Indices:
    """Deal T K tokens to T questions so that the mean of each question is close to the mean of all.

    Args:
        features: Feature rows of the step's tokens, in a metric where distances matter, shape (n, d).
        tokens: T K tokens, with repeats.
        lanes: K.
        rng: Order in which the tokens are dealt.

    Returns:
        Tokens of the questions, shape (T, K).
    """
    used, places = np.unique(tokens, return_inverse=True)  # a copy of all rows could be gigabytes
    dealt = rng.permutation(places).reshape(-1, lanes)
    centred = np.asarray(features[used], dtype=np.float64)
    centred -= centred[places].mean(axis=0)
    for begin in range(0, len(dealt), _GROUP):
        part = dealt[begin : begin + _GROUP]
        total = centred[part[:, 0]]
        for lane in range(1, lanes):
            # |total + x|^2 up to what does not depend on the pairing; equal tokens cost more than any other pairing
            cost = 2.0 * total @ centred[part[:, lane]].T
            repeated = (part[:, :lane, None] == part[None, None, :, lane]).any(axis=1)
            cost[repeated] += 1.0 + 4.0 * float(np.abs(cost).max())
            question, token = linear_sum_assignment(cost)
            part[question, lane] = part[token, lane]
            total = total + centred[part[:, lane]]
    return np.asarray(used[dealt], dtype=np.int64)


def first_tokens(
    problem: DesignProblem,
    mean_rows: Floats,
    blocks: Sequence[AnyFloats],
    rules: TokenRules,
    rng: np.random.Generator,
) -> Indices:
    """Tokens (T, K, H) that show each step's tokens as often as a design does, and keep the restrictions.

    Args:
        problem: The design problem, with a prompt MDP.
        mean_rows: Mean occupancy of the rows, shape (H, N).
        blocks: Features of each step's tokens.
        rules: The restrictions.
        rng: Source of randomness.

    Raises:
        InfeasibleRestrictionsError: If no lanes keep the restrictions.
    """
    episodes, lanes = problem.episodes, problem.num_policies
    check_enough_tokens(rules, lanes)
    tokens = np.empty((episodes, lanes, problem.horizon), dtype=np.int64)
    for step, (low, high) in enumerate(rules.ranges):
        weights = np.asarray(mean_rows[step, low:high], dtype=np.float64)
        if rules.shared(step):
            tokens[:, :, 0] = _bases(weights, episodes, rules, rng)[:, None]
            continue
        counts = apportion(weights, episodes * lanes, rng)
        copies = np.repeat(np.arange(high - low), counts)
        tokens[:, :, step] = rng.permutation(balanced_questions(blocks[step], copies, lanes, rng))
    return _lawful(tokens, rules, rng)


def _bases(weights: Floats, episodes: int, rules: TokenRules, rng: np.random.Generator) -> Indices:
    """First token of each episode where the lanes share it; on state features it bears no information."""
    restrictions = rules.restrictions
    if restrictions.base is not None:
        return np.full(episodes, restrictions.base - rules.first[0])
    if restrictions.shared_base == "all":
        return np.full(episodes, int(np.argmax(weights)))
    counts = apportion(weights, episodes, rng)
    return rng.permutation(np.repeat(np.arange(len(weights)), counts))


def _lawful(tokens: Indices, rules: TokenRules, rng: np.random.Generator) -> Indices:
    """Repair each episode; where all share one base, the first episode's repair decides on it."""
    result = np.empty_like(tokens)
    for episode, lanes in enumerate(tokens):
        result[episode] = complete_episode(rules, lanes, rng)
        if episode == 0 and rules.restrictions.shared_base == "all":
            rules = rules.with_base(int(result[0, 0, 0]))
    return result
