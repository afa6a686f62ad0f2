"""Prompts for several similar tastes in one beam search, with shared embeddings."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from edpbrl_gym._validation import check_count
from edpbrl_gym.features import TextEncoder
from edpbrl_gym.personalize.search import Prompt, check_taste, pick
from edpbrl_gym.vocabulary import Vocabulary

__all__ = ["best_prompts_together"]

_Tokens = tuple[int, ...]
_Scores = dict[_Tokens, NDArray[np.float64]]  # scores of partial prompts under each of n tastes, (n,)


def best_prompts_together(
    vocabulary: Vocabulary,
    encoder: TextEncoder,
    thetas: Sequence[ArrayLike],
    *,
    count: int = 10,
    width: int = 20,
    shortlist: int = 16,
    probes: int = 2,
    tries: int = 3,
) -> list[list[Prompt]]:
    """Search for the best prompts of several similar tastes; embeds about a quarter of the texts of separate searches.

    A token adds nearly the same to the score after every partial prompt. So the tokens of a step that score best on
    their own are embedded after a few partial prompts (the probes), and only the best of them after all others. Every
    taste keeps its best partial prompts out of all that were embedded for any taste.

    Args:
        vocabulary: Vocabulary of the prompts.
        encoder: The encoder with which the tastes were estimated.
        thetas: The tastes, each of shape (d,).
        count: Number of prompts for each taste, no two with the same first token; fewer are returned if the vocabulary
            allows no more.
        width: Number of partial prompts that each taste keeps after each step, at least twice ``count``.
        shortlist: Number of tokens of each step that each taste proposes, by the scores of their own embeddings.
        probes: Number of partial prompts after which all proposed tokens are tried.
        tries: Number of tokens that each taste tries after each of its partial prompts, by their mean scores in the
            probes.

    Returns:
        The prompts of each taste, best first.

    Raises:
        ValueError: If there is no theta, one isn't of the encoder's dimension, is 0 or not finite, or a count is
            below 1.
    """
    if not len(thetas):
        raise ValueError("Expected at least one taste theta, got none")
    tastes = np.stack([check_taste(theta, encoder) for theta in thetas], axis=1)
    count = check_count(count, "count")
    width = max(check_count(width, "width"), 2 * count)
    for value, name in ((shortlist, "shortlist"), (probes, "probes"), (tries, "tries")):
        check_count(value, name)

    def score(prompts: list[_Tokens]) -> _Scores:
        rows = encoder.encode([vocabulary.prompt(tokens) for tokens in prompts]).astype(np.float64) @ tastes
        return dict(zip(prompts, rows, strict=True))

    scores = score([(token,) for token in range(vocabulary.sizes[0])])
    for number, step in enumerate(vocabulary.tokens[1:]):
        beams = _best(scores, width, 2 if number else None)
        token_scores = encoder.encode(list(step)).astype(np.float64) @ tastes
        proposed = np.unique(np.argsort(-token_scores, axis=0, kind="stable")[:shortlist]).tolist()
        scores = _extended(beams, scores, proposed, score, probes, tries)
    return [
        [Prompt(vocabulary.prompt(tokens), float(scores[tokens][taste]), tokens) for tokens in prompts_of_taste]
        for taste, prompts_of_taste in enumerate(_best(scores, count, 1))
    ]


def _best(scores: _Scores, count: int, per_base: int | None) -> list[list[_Tokens]]:
    """For each taste, the prompts with the best scores, at most ``per_base`` with the same first token."""
    prompts = list(scores)
    return [
        [prompts[place] for place in pick(taste_scores, prompts, count, per_base)]
        for taste_scores in np.stack([*scores.values()]).T
    ]


def _extended(
    beams: list[list[_Tokens]],
    scores: _Scores,
    proposed: list[int],
    score: Callable[[list[_Tokens]], _Scores],
    probes: int,
    tries: int,
) -> _Scores:
    """Scores of partial prompts one step longer: the probes with all proposed tokens, the others with the best."""
    prefixes = list(dict.fromkeys(prefix for beam in beams for prefix in beam))
    means = np.array([scores[prefix].mean() for prefix in prefixes])
    probe_prefixes = [prefixes[place] for place in pick(means, prefixes, probes, 1)]
    probe_scores = score([(*prefix, token) for prefix in probe_prefixes for token in proposed])
    candidates: dict[_Tokens, None] = {}
    for taste, beam in enumerate(beams):
        gains = [sum(probe_scores[(*prefix, token)][taste] for prefix in probe_prefixes) for token in proposed]
        best = [proposed[place] for place in np.argsort(-np.array(gains), kind="stable")[:tries]]
        candidates.update(((*prefix, token), None) for prefix in beam for token in best)
    return probe_scores | score([prompt for prompt in candidates if prompt not in probe_scores])
