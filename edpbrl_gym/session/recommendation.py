"""Recommended prompts with credible intervals of their utilities."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from edpbrl_gym._validation import check_array, check_number
from edpbrl_gym.features import TextEncoder
from edpbrl_gym.personalize.search import best_prompts
from edpbrl_gym.vocabulary import Vocabulary

__all__ = ["Recommendation", "recommend"]


@dataclass(frozen=True)
class Recommendation:
    """A prompt that the person will like.

    Attributes:
        text: The prompt.
        score: Its expected utility, the posterior mean of theta . phi(text), in the person's own units (see
            ``Estimate.theta``).
        low: Lower end of the credible interval of the utility.
        high: Upper end.
        tokens: Token index of each step.
    """

    text: str
    score: float
    low: float
    high: float
    tokens: tuple[int, ...]


def recommend(
    vocabulary: Vocabulary,
    encoder: TextEncoder,
    estimate: ArrayLike,
    draws: ArrayLike,
    *,
    count: int,
    level: float,
    **search: Any,
) -> list[Recommendation]:
    """Search for the prompts with the largest estimated utility, and score them by draws of the taste.

    Args:
        vocabulary: Vocabulary of the prompts.
        encoder: Encoder of the prompts.
        estimate: Estimate of theta, (d,).
        draws: Draws from its posterior, (s, d).
        count: Number of prompts.
        level: Level of the central credible intervals (quantiles of the draws), in (0, 1).
        **search: ``base``, ``width``, ``shortlist``, ``per_base``, ``method`` of ``best_prompts``; unless given,
            the method is "model" and the width 16.

    Returns:
        The prompts, the largest expected utility first.

    Raises:
        ValueError: The estimate is 0, or an argument is out of its range.
    """
    level = check_number(level, "level", minimum=0.0, exclusive=True)
    if level >= 1:
        raise ValueError(f"Expected level in (0, 1), got {level}")
    prompts = best_prompts(vocabulary, encoder, estimate, count=count, **{"method": "model", "width": 16, **search})
    rows = encoder.encode([prompt.text for prompt in prompts]).astype(np.float64)
    values = check_array(draws, "draws", shape=("s", rows.shape[1])) @ rows.T
    low, high = np.quantile(values, [(1 - level) / 2, (1 + level) / 2], axis=0)
    means = values.mean(axis=0)
    return [
        Recommendation(prompts[i].text, float(means[i]), float(low[i]), float(high[i]), prompts[i].tokens)
        for i in np.argsort(-means, kind="stable")
    ]
