"""Recommended prompts with credible intervals of their utilities."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from edpbrl_gym._seeds import generator
from edpbrl_gym._validation import check_array, check_number
from edpbrl_gym.estimation.metrics import sample_pairs
from edpbrl_gym.features import TextEncoder
from edpbrl_gym.personalize.search import best_prompts
from edpbrl_gym.vocabulary import Vocabulary

__all__ = ["Recommendation", "Standing", "different", "recommend", "standings"]


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


@dataclass(frozen=True)
class Standing:
    """The share of random prompts that the person likes less than a prompt.

    Attributes:
        share: Its posterior mean, 0 to 1.
        low: Lower end of its credible interval.
        high: Upper end.
    """

    share: float
    low: float
    high: float


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
    level = _checked_level(level)
    prompts = best_prompts(vocabulary, encoder, estimate, count=count, **{"method": "model", "width": 16, **search})
    rows = encoder.encode([prompt.text for prompt in prompts]).astype(np.float64)
    values = check_array(draws, "draws", shape=("s", rows.shape[1])) @ rows.T
    low, high = np.quantile(values, [(1 - level) / 2, (1 + level) / 2], axis=0)
    means = values.mean(axis=0)
    return [
        Recommendation(prompts[i].text, float(means[i]), float(low[i]), float(high[i]), prompts[i].tokens)
        for i in np.argsort(-means, kind="stable")
    ]


def different(prompts: Sequence[Recommendation], count: int) -> list[Recommendation]:
    """The best prompts that share at most half of their tokens with each better one among them, then the best others.

    Args:
        prompts: Prompts of one vocabulary, best first.
        count: Number of prompts, at most.

    Returns:
        The prompts, best first.
    """
    chosen: list[int] = []
    for index, prompt in enumerate(prompts):
        shared = (
            sum(token == other for token, other in zip(prompt.tokens, prompts[better].tokens, strict=True))
            for better in chosen
        )
        if all(2 * number <= len(prompt.tokens) for number in shared):
            chosen.append(index)
    others = [index for index in range(len(prompts)) if index not in chosen]
    return [prompts[index] for index in sorted([*chosen, *others][:count])]


def standings(
    vocabulary: Vocabulary,
    encoder: TextEncoder,
    draws: ArrayLike,
    texts: Sequence[str],
    *,
    level: float = 0.9,
    others: int = 100,
    seed: int = 0,
) -> list[Standing]:
    """Compare prompts with random ones of the vocabulary, under draws of the taste.

    Args:
        vocabulary: Vocabulary of the random prompts.
        encoder: Encoder of the prompts.
        draws: Draws from the posterior of theta, (s, d).
        texts: The prompts.
        level: Level of the central credible intervals (quantiles of the draws), in (0, 1).
        others: Number of random prompts; all of them where the vocabulary has fewer.
        seed: Seed of the random prompts.

    Raises:
        ValueError: An argument is out of its range.
    """
    level = _checked_level(level)
    sample = sample_pairs(vocabulary.sizes, prompts=others, pairs=1, rng=generator(seed, "other prompts"))
    other_texts = [vocabulary.prompt(tokens) for tokens in sample.tokens]
    rows = encoder.encode([*texts, *other_texts]).astype(np.float64)
    values = check_array(draws, "draws", shape=("s", rows.shape[1])) @ rows.T
    utilities, other_utilities = values[:, : len(texts)], values[:, len(texts) :]
    shares = (utilities[:, :, None] > other_utilities[:, None]).mean(axis=2)
    low, high = np.quantile(shares, [(1 - level) / 2, (1 + level) / 2], axis=0)
    return [Standing(*map(float, row)) for row in zip(shares.mean(axis=0), low, high, strict=True)]


def _checked_level(level: float) -> float:
    if check_number(level, "level", minimum=0.0, exclusive=True) >= 1:
        raise ValueError(f"Expected level in (0, 1), got {level}")
    return float(level)
