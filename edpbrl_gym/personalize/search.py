"""Prompts for an estimated taste: beam search over a vocabulary with the embeddings of partial prompts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from edpbrl_gym._arrays import Floats
from edpbrl_gym._validation import check_array, check_count
from edpbrl_gym.features import TextEncoder
from edpbrl_gym.vocabulary import SEPARATOR, Vocabulary

__all__ = ["Prompt", "best_prompts", "check_taste", "pick", "random_prompts"]


@dataclass(frozen=True)
class Prompt:
    """A prompt with its score.

    Attributes:
        text: The prompt.
        score: theta . phi(text), with phi the unit-norm embedding of the whole text.
        tokens: Token index of each step of the search, without the step that a fixed base replaces.
    """

    text: str
    score: float
    tokens: tuple[int, ...]


@dataclass(frozen=True)
class _Beam:
    texts: list[str]
    tokens: list[tuple[int, ...]]
    scores: Floats


def best_prompts(
    vocabulary: Vocabulary,
    encoder: TextEncoder,
    theta: ArrayLike,
    *,
    count: int = 10,
    base: str | None = None,
    width: int = 20,
    shortlist: int = 16,
    per_base: int = 1,
    track: Callable[[int, int], object] | None = None,
) -> list[Prompt]:
    """Search for the prompts with the highest theta . phi(prompt).

    At each step the ``width`` best partial prompts are extended by the ``shortlist`` tokens whose own embeddings score
    best, and every extension is embedded as a whole text. The search is greedy over prefixes, so it finds good prompts,
    but not necessarily the best ones.

    Args:
        vocabulary: Vocabulary of the prompts.
        encoder: The encoder with which theta was estimated.
        theta: The taste, shape (d,).
        count: Number of prompts; fewer are returned if the vocabulary allows no more.
        base: Text with which every prompt begins, in place of the first step; None searches that step too.
        width: Number of partial prompts kept after each step, at least twice ``count``.
        shortlist: Number of tokens of each step tried after each partial prompt (all bases are always tried).
        per_base: Maximum number of prompts with the same first token, so that they differ in more than their last
            words. Without effect with a fixed ``base``.
        track: Callback of (steps done, all steps).

    Returns:
        The prompts, best first.

    Raises:
        ValueError: If theta's dimension isn't the encoder's, theta is 0 or not finite, or a count is below 1.
    """
    taste = check_taste(theta, encoder)
    count = check_count(count, "count")
    width = max(check_count(width, "width"), 2 * count)
    check_count(shortlist, "shortlist")
    check_count(per_base, "per_base")
    if base is not None and not base.strip():
        raise ValueError("Expected a base text, got an empty one; leave it out to search the bases too")
    beam = _Beam([] if base is None else [base.strip()], [] if base is None else [()], np.zeros(int(base is not None)))
    steps = vocabulary.tokens if base is None else vocabulary.tokens[1:]
    for number, step in enumerate(steps):
        beam = _extend(beam, step, encoder, taste, shortlist)
        diverse = base is None and number > 0
        keep = pick(beam.scores, beam.tokens, width, max(per_base, 2) if diverse else None)
        beam = _Beam([beam.texts[i] for i in keep], [beam.tokens[i] for i in keep], beam.scores[keep])
        if track is not None:
            track(number + 1, len(steps))
    if not steps:
        beam = _Beam(beam.texts, beam.tokens, encoder.encode(beam.texts).astype(np.float64) @ taste)
    final = pick(beam.scores, beam.tokens, count, per_base if base is None else None)
    return [Prompt(beam.texts[i], float(beam.scores[i]), beam.tokens[i]) for i in final]


def check_taste(theta: ArrayLike, encoder: TextEncoder) -> Floats:
    """Return theta as a checked float64 array, shape (d,).

    Raises:
        ValueError: If its dimension isn't the encoder's, it is 0 or not finite.
    """
    taste = check_array(
        theta, "theta", shape=(encoder.dimension,), hint=f"it must have been estimated with {encoder.name}"
    )
    if not taste.any():
        raise ValueError(
            "Expected a taste theta other than 0, got 0: it likes every prompt the same; answer questions first"
        )
    return taste


def _extend(beam: _Beam, step: tuple[str, ...], encoder: TextEncoder, taste: Floats, shortlist: int) -> _Beam:
    token_scores = encoder.encode(list(step)).astype(np.float64) @ taste
    if not beam.texts:
        return _Beam(list(step), [(index,) for index in range(len(step))], token_scores)
    # the prompts below are scored as whole texts; a token's own score only selects the candidates
    candidates = np.argsort(-token_scores, kind="stable")[:shortlist]
    texts = [f"{text}{SEPARATOR}{step[index]}" for text in beam.texts for index in candidates]
    tokens = [(*so_far, int(index)) for so_far in beam.tokens for index in candidates]
    return _Beam(texts, tokens, encoder.encode(texts).astype(np.float64) @ taste)


def pick(scores: Floats, tokens: Sequence[tuple[int, ...]], count: int, per_base: int | None) -> list[int]:
    """Return the indices of the ``count`` best scores, best first, at most ``per_base`` with the same first token."""
    indices: list[int] = []
    uses: dict[int, int] = {}
    for index in np.argsort(-scores, kind="stable").tolist():
        first_token = tokens[index][0] if tokens[index] else -1
        if per_base is not None and uses.get(first_token, 0) >= per_base:
            continue
        uses[first_token] = uses.get(first_token, 0) + 1
        indices.append(index)
        if len(indices) == count:
            break
    return indices


def random_prompts(vocabulary: Vocabulary, count: int, rng: np.random.Generator) -> list[str]:
    """Return ``count`` prompts with uniformly drawn tokens."""
    return [vocabulary.prompt([int(rng.integers(size)) for size in vocabulary.sizes]) for _ in range(count)]
