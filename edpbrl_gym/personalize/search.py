"""Prompts for an estimated taste: beam search over a vocabulary, or a search by a model of the scores."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from edpbrl_gym._arrays import Floats
from edpbrl_gym._validation import check_array, check_choice_of, check_count
from edpbrl_gym.features import TextEncoder
from edpbrl_gym.personalize.surrogate import search_by_model
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
    method: Literal["beam", "model"] = "beam",
    track: Callable[[int, int], object] | None = None,
) -> list[Prompt]:
    """Search for the prompts with the highest theta . phi(prompt).

    Method "beam": at each step the ``width`` best partial prompts are extended by the ``shortlist`` tokens whose own
    embeddings score best, and every extension is embedded as a whole text. The search is greedy over prefixes, so it
    finds good prompts, but not necessarily the best ones.

    Method "model": a Gaussian process predicts the scores of complete prompts from those embedded so far, and only
    ``width`` prompts for each step after the first are embedded, a sixteenth of the beam's texts with the same
    arguments at the default shortlist. For text encoders, with which the score of a prompt is roughly a weighted sum of
    the scores of its tokens (`edpbrl_gym.personalize.surrogate`); with another encoder the scores of the prompts are
    still true, but the beam finds better prompts.

    Args:
        vocabulary: Vocabulary of the prompts.
        encoder: The encoder with which theta was estimated.
        theta: The taste, shape (d,).
        count: Number of prompts; fewer are returned if the vocabulary allows no more.
        base: Text with which every prompt begins, in place of the first step; None searches that step too.
        width: Number of partial prompts kept after each step, or, for "model", of prompts embedded for each step after
            the first; at least twice ``count``.
        shortlist: Number of tokens of each step that may be tried (all bases always may), by the scores of their own
            embeddings.
        per_base: Maximum number of prompts with the same first token, so that they differ in more than their last
            words. Without effect with a fixed ``base``.
        method: "beam" or "model".
        track: Callback of (steps done, all steps), or for "model" of (prompts embedded, all).

    Returns:
        The prompts, best first.

    Raises:
        ValueError: If the method is unknown, theta's dimension isn't the encoder's, theta is 0 or not finite, or a
            count is below 1.
    """
    taste = check_taste(theta, encoder)
    count = check_count(count, "count")
    width = max(check_count(width, "width"), 2 * count)
    check_count(shortlist, "shortlist")
    check_count(per_base, "per_base")
    if base is not None and not base.strip():
        raise ValueError("Expected a base text, got an empty one; leave it out to search the bases too")
    check_choice_of(method, "method", ("beam", "model"))
    search = _Search(vocabulary, encoder, taste, count, base and base.strip(), width, shortlist, per_base, track)
    beam = search.by_model() if method == "model" else search.by_beam()
    final = pick(beam.scores, beam.tokens, count, per_base if base is None else None)
    return [Prompt(beam.texts[i], float(beam.scores[i]), beam.tokens[i]) for i in final]


@dataclass(frozen=True, eq=False)
class _Search:
    """The checked arguments of `best_prompts`."""

    vocabulary: Vocabulary
    encoder: TextEncoder
    taste: Floats
    count: int
    base: str | None
    width: int
    shortlist: int
    per_base: int
    track: Callable[[int, int], object] | None

    def by_beam(self) -> _Beam:
        """Partial prompts step by step."""
        beam = _Beam(
            [] if self.base is None else [self.base],
            [] if self.base is None else [()],
            np.zeros(int(self.base is not None)),
        )
        steps = self.vocabulary.tokens if self.base is None else self.vocabulary.tokens[1:]
        for number, step in enumerate(steps):
            beam = _extend(beam, step, self.encoder, self.taste, self.shortlist)
            diverse = self.base is None and number > 0
            keep = pick(beam.scores, beam.tokens, self.width, max(self.per_base, 2) if diverse else None)
            beam = _Beam([beam.texts[i] for i in keep], [beam.tokens[i] for i in keep], beam.scores[keep])
            if self.track is not None:
                self.track(number + 1, len(steps))
        if not steps:
            beam = _Beam(beam.texts, beam.tokens, self.encoder.encode(beam.texts).astype(np.float64) @ self.taste)
        return beam

    def by_model(self) -> _Beam:
        """Complete prompts, chosen by a model of the scores."""
        if self.vocabulary.horizon == 1:  # nothing to predict: the tokens are the prompts, or the base is
            return self.by_beam()
        steps = self.vocabulary.tokens if self.base is None else self.vocabulary.tokens[1:]
        sizes = [len(step) for step in steps]
        rows = self.encoder.encode([token for step in steps for token in step]).astype(np.float64)

        def text(tokens: tuple[int, ...]) -> str:
            words = [step[token] for step, token in zip(steps, tokens, strict=True)]
            return SEPARATOR.join(words if self.base is None else [self.base, *words])

        def score(prompts: list[tuple[int, ...]]) -> Floats:
            return self.encoder.encode([text(prompt) for prompt in prompts]).astype(np.float64) @ self.taste

        scores = search_by_model(
            np.split(rows, np.cumsum(sizes)[:-1]),
            self.taste,
            score,
            count=self.count if self.base is not None else -(-self.count // self.per_base),
            texts=self.width * (self.vocabulary.horizon - 1),
            shortlist=self.shortlist,
            diverse=self.base is None,
            track=self.track,
        )
        return _Beam([text(tokens) for tokens in scores], list(scores), np.array(list(scores.values())))


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
