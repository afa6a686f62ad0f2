"""What a person likes by their posterior: prompts with credible intervals of their utilities, and phrases."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from edpbrl_gym._seeds import generator
from edpbrl_gym._validation import check_array, check_count, check_number
from edpbrl_gym.estimation.metrics import sample_pairs
from edpbrl_gym.features import TextEncoder
from edpbrl_gym.personalize.search import best_prompts
from edpbrl_gym.vocabulary import Vocabulary

__all__ = ["Recommendation", "Standing", "StepWords", "recommend", "standings", "step_words"]

_LEVEL = 0.9  # of the intervals of standings


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


@dataclass(frozen=True)
class StepWords:
    """What is known about the phrases of a step; both tuples are empty where nothing is sure yet.

    Attributes:
        step: Name of the step.
        liked: Phrases that the person surely likes more than the step's average phrase, the surest lead first.
        disliked: Those that they surely like less.
    """

    step: str
    liked: tuple[str, ...]
    disliked: tuple[str, ...]


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
    """Search for prompts with a large estimated utility that differ, and score them by draws of the taste.

    Any two of them have the same token in at most half of the steps (``best_prompts`` of `personalize.search`).

    Args:
        vocabulary: Vocabulary of the prompts.
        encoder: Encoder of the prompts.
        estimate: Estimate of theta, (d,).
        draws: Draws from its posterior, (s, d).
        count: Number of prompts.
        level: Level of the central credible intervals (quantiles of the draws), in (0, 1).
        **search: ``base``, ``width``, ``shortlist``, ``shared``, ``method`` of ``best_prompts``; unless given, the
            method is "model".

    Returns:
        The prompts, the largest expected utility first; fewer than ``count`` where no more differ enough.

    Raises:
        ValueError: The estimate is 0, or an argument is out of its range.
    """
    level = _checked_level(level)
    prompts = best_prompts(vocabulary, encoder, estimate, count=count, **{"method": "model", **search})
    rows = encoder.encode([prompt.text for prompt in prompts]).astype(np.float64)
    values = check_array(draws, "draws", shape=("s", rows.shape[1])) @ rows.T
    low, high = np.quantile(values, [(1 - level) / 2, (1 + level) / 2], axis=0)
    means = values.mean(axis=0)
    return [
        Recommendation(prompts[i].text, float(means[i]), float(low[i]), float(high[i]), prompts[i].tokens)
        for i in np.argsort(-means, kind="stable")
    ]


def standings(
    vocabulary: Vocabulary, encoder: TextEncoder, draws: ArrayLike, texts: Sequence[str], *, others: int = 50
) -> list[Standing]:
    """Compare prompts with random ones of the vocabulary, under draws of the taste, with intervals of 90%.

    Args:
        vocabulary: Vocabulary of the random prompts.
        encoder: Encoder of the prompts.
        draws: Draws from the posterior of theta, (s, d).
        texts: The prompts.
        others: Number of random prompts; all of them where the vocabulary has fewer.

    Raises:
        ValueError: An argument is out of its range.
    """
    sample = sample_pairs(vocabulary.sizes, prompts=others, pairs=1, rng=generator(0, "other prompts"))
    other_texts = [vocabulary.prompt(tokens) for tokens in sample.tokens]
    rows = encoder.encode([*texts, *other_texts]).astype(np.float64)
    values = check_array(draws, "draws", shape=("s", rows.shape[1])) @ rows.T
    utilities, other_utilities = values[:, : len(texts)], values[:, len(texts) :]
    shares = (utilities[:, :, None] > other_utilities[:, None]).mean(axis=2)
    low, high = np.quantile(shares, [(1 - _LEVEL) / 2, (1 + _LEVEL) / 2], axis=0)
    return [Standing(*map(float, row)) for row in zip(shares.mean(axis=0), low, high, strict=True)]


def step_words(
    vocabulary: Vocabulary, encoder: TextEncoder, draws: ArrayLike, *, count: int = 3, level: float = 0.9
) -> list[StepWords]:
    """Find the phrases of each step that are surely better or worse than the step's average, by draws of the taste.

    A phrase's lead is theta . (phi(phrase) - mean over the step's phrases of phi). It is sure where its
    (1 - ``level``)-quantile over the draws is above 0, and phrases are ordered by that quantile.

    Args:
        vocabulary: Vocabulary of the phrases.
        encoder: Encoder of the phrases.
        draws: Draws from the posterior of theta, (s, d).
        count: Number of liked and of disliked phrases of a step, at most.
        level: Probability that each phrase is on its side of the average, in [0.5, 1).

    Raises:
        ValueError: An argument is out of its range.
    """
    level, count = _checked_level(level), check_count(count, "count")
    if level < 0.5:
        raise ValueError(f"Expected level in [0.5, 1), got {level}: a phrase could be liked and disliked at once")
    found = []
    for name, step in zip(vocabulary.names, vocabulary.tokens, strict=True):
        rows = encoder.encode(list(step)).astype(np.float64)
        leads = check_array(draws, "draws", shape=("s", rows.shape[1])) @ (rows - rows.mean(axis=0)).T
        low, high = np.quantile(leads, [1 - level, level], axis=0)
        sides = [[step[i] for i in np.argsort(-bound, kind="stable")[:count] if bound[i] > 0] for bound in (low, -high)]
        found.append(StepWords(name, tuple(sides[0]), tuple(sides[1])))
    return found


def _checked_level(level: float) -> float:
    if check_number(level, "level", minimum=0.0, exclusive=True) >= 1:
        raise ValueError(f"Expected level in (0, 1), got {level}")
    return float(level)
