"""Write prompts for several similar tastes in one beam search: what is embedded for one of them serves all."""

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
_Scores = dict[_Tokens, NDArray[np.float64]]  # of partial prompts: their scores under each of n tastes, (n,)


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

    What a token adds to the score is nearly the same behind every partial prompt. So the tokens of a step that score
    best on their own are embedded behind a few partial prompts only, and behind all others those that did best there.
    Every taste keeps its best partial prompts out of all that were embedded for any taste.

    Args:
        vocabulary: Where the tokens come from.
        encoder: The encoder with which the tastes were estimated.
        thetas: The tastes, each of shape (d,).
        count: Prompts wanted for each taste, no two with the same first token; fewer come back where the vocabulary
            allows no more.
        width: Partial prompts that each taste keeps after each step; raised to twice ``count`` where it is smaller.
        shortlist: Tokens of each step that each taste proposes, by the scores of their own embeddings.
        probes: Partial prompts behind which all proposed tokens are tried.
        tries: Tokens that each taste tries behind each of its partial prompts, by their mean scores in the probes.

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
        alone = encoder.encode(list(step)).astype(np.float64) @ tastes
        proposed = np.unique(np.argsort(-alone, axis=0, kind="stable")[:shortlist]).tolist()
        scores = _extended(beams, scores, proposed, score, probes, tries)
    return [
        [Prompt(vocabulary.prompt(tokens), float(scores[tokens][taste]), tokens) for tokens in found]
        for taste, found in enumerate(_best(scores, count, 1))
    ]


def _best(scores: _Scores, count: int, per_base: int | None) -> list[list[_Tokens]]:
    """For each taste, the prompts with the best scores, at most ``per_base`` with the same first token."""
    prompts = list(scores)
    return [[prompts[place] for place in pick(own, prompts, count, per_base)] for own in np.stack([*scores.values()]).T]


def _extended(
    beams: list[list[_Tokens]],
    scores: _Scores,
    proposed: list[int],
    score: Callable[[list[_Tokens]], _Scores],
    probes: int,
    tries: int,
) -> _Scores:
    """Scores of partial prompts one step longer: the probes with all proposed tokens, the others with the best."""
    kept = list(dict.fromkeys(prefix for beam in beams for prefix in beam))
    means = np.array([scores[prefix].mean() for prefix in kept])
    probed = [kept[place] for place in pick(means, kept, probes, 1)]
    found = score([(*prefix, token) for prefix in probed for token in proposed])
    wanted: dict[_Tokens, None] = {}
    for taste, beam in enumerate(beams):
        gains = [sum(found[(*prefix, token)][taste] for prefix in probed) for token in proposed]
        best = [proposed[place] for place in np.argsort(-np.array(gains), kind="stable")[:tries]]
        wanted.update(((*prefix, token), None) for prefix in beam for token in best)
    return found | score([prompt for prompt in wanted if prompt not in found])
