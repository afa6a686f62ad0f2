"""The certificates of many users' designs, with what rounding may hide of them (`design.rounding`)."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from edpbrl_gym._arrays import Floats
from edpbrl_gym.design.problem import DesignProblem
from edpbrl_gym.design.rounding import CONDITION_STEPS, rounding_of
from edpbrl_gym.design.solvers.batch.tokens import Evaluation, SharedTokens

__all__ = ["Certificates", "Pricing", "certified", "priced"]


class Pricing(NamedTuple):
    """Scores of all tokens for some users.

    Attributes:
        excess: Score less the mean score of the block under the weights, shape (U, n).
        curvature: G, shape (U, d, d).
        levels: Mean scores of the blocks, summed, shape (U,).
        gap: Largest excess of each block, summed, shape (U,): <gradient, d - dbar> is at most this for all d.
    """

    excess: Any
    curvature: Any
    levels: Any
    gap: Any


class Certificates(NamedTuple):
    """In float64, each of shape (U,): the value, the gap as computed, and the allowances for rounding of both."""

    value: Floats
    computed_gap: Floats
    of_gap: Floats
    of_value: Floats


def priced(tokens: SharedTokens, evaluation: Evaluation) -> Pricing:
    """Score all tokens in float64."""
    xp = tokens.arrays.namespace
    curvature = tokens.curvature(evaluation)
    excess = tokens.scores(evaluation, curvature)
    levels, gap = 0.0, 0.0
    for block in tokens.blocks:
        level = (evaluation.weights[:, block] * excess[:, block]).sum(1)
        excess[:, block] -= level[:, None]
        levels = levels + level
        gap = gap + xp.amax(excess[:, block], 1).clip(min=0.0)
    return Pricing(excess, curvature, levels, gap)


def certified(problem: DesignProblem, tokens: SharedTokens, evaluation: Evaluation, pricing: Pricing) -> Certificates:
    """Certificates from an evaluation and its prices, both in float64.

    Args:
        problem: Its criterion and dimension.
        tokens: The tokens.
        evaluation: Of some users.
        pricing: Of the same users.
    """
    to_numpy = tokens.arrays.numpy
    data = evaluation.information - evaluation.prior
    learned = to_numpy((evaluation.inverse * data).sum((1, 2)))
    condition = to_numpy(_conditions(tokens, evaluation))
    magnitude = to_numpy(tokens.magnitude(evaluation, pricing.curvature))
    value, gap = to_numpy(evaluation.value), to_numpy(pricing.gap)
    reward = to_numpy(pricing.levels) + gap
    allowances = [
        rounding_of(
            problem,
            condition=float(condition[user]),
            value=float(value[user]),
            learned=float(learned[user]),
            reward=float(reward[user]),
            magnitude=float(magnitude[user]),
        )
        for user in range(len(value))
    ]
    of_gap, of_value = np.array(allowances).T
    return Certificates(value, gap, of_gap, of_value)


def _conditions(tokens: SharedTokens, evaluation: Evaluation) -> Any:
    """Condition numbers of the information matrices, as `rounding.factor_condition`, shape (U,)."""
    xp = tokens.arrays.namespace
    diagonal = xp.diagonal(evaluation.information, 0, 1, 2)
    root = xp.sqrt(diagonal + tokens.subtracted(evaluation))
    start = np.random.default_rng(0).standard_normal((1, tokens.dimension))
    vector = xp.zeros_like(root) + tokens.arrays.array(start)
    largest = xp.ones_like(evaluation.value)  # kappa is never less
    for _ in range(CONDITION_STEPS):
        vector = vector / xp.sqrt((vector * vector).sum(1))[:, None]
        image = root * (evaluation.inverse @ (root * vector)[:, :, None])[:, :, 0]
        largest = xp.maximum(largest, (vector * image).sum(1))
        vector = image
    return largest
