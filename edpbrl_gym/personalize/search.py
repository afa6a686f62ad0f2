"""Prompts for an estimated taste: beam search over a vocabulary, or a search by a model of the scores."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from edpbrl_gym._arrays import Floats
from edpbrl_gym._validation import check_array, check_choice_of, check_count
from edpbrl_gym.features import MemoEncoder, TextEncoder
from edpbrl_gym.personalize.differing import most_shared, pick
from edpbrl_gym.personalize.surrogate import search_by_model
from edpbrl_gym.vocabulary import Vocabulary

__all__ = ["Prompt", "best_prompts", "check_taste", "random_prompts"]


@dataclass(frozen=True)
class Prompt:
    """A prompt with its score.

    Attributes:
        text: The prompt.
        score: theta . phi(text), with phi the unit-norm embedding of the whole text.
        tokens: Token index of each step of the vocabulary, without its subject where a base takes that place.
    """

    text: str
    score: float
    tokens: tuple[int, ...]


_SHORTLIST = {"beam": 16, "model": 128}


def best_prompts(
    vocabulary: Vocabulary,
    encoder: TextEncoder,
    theta: ArrayLike,
    *,
    count: int = 10,
    base: str | None = None,
    width: int | None = None,
    shortlist: int | None = None,
    shared: float = 0.5,
    method: Literal["beam", "model"] = "beam",
    track: Callable[[int, int], object] | None = None,
) -> list[Prompt]:
    """Search for prompts with high theta . phi(prompt) that differ: the best, then the best that differs from it, ...

    Any two of them have the same token in at most ``shared`` of the steps that have more than one token.

    Method "beam": at each step the ``width`` best partial prompts are extended by the ``shortlist`` tokens whose own
    embeddings score best, and every extension is embedded as a whole text. The search is greedy over prefixes, so it
    finds good prompts, but not necessarily the best ones. Each further prompt is a search of its own, among the partial
    prompts that share few enough tokens with those found before.

    Method "model": a Gaussian process predicts the scores of complete prompts from those embedded so far, and only
    ``width`` prompts for each step after the first are embedded, a tenth of the beam's texts. For text encoders, with
    which the score of a prompt is roughly a weighted sum of the scores of its tokens
    (`edpbrl_gym.personalize.surrogate`); with another encoder the scores of the prompts are still true, but the beam
    finds better prompts.

    Args:
        vocabulary: Vocabulary of the prompts.
        encoder: The encoder with which theta was estimated.
        theta: The taste, shape (d,).
        count: Number of prompts; fewer are returned where no more are found that differ enough.
        base: Text with which every prompt begins (``Vocabulary.with_subject``); None searches all steps.
        width: Number of partial prompts kept after each step (None: 20), or, for "model", of prompts embedded for each
            step after the first (None: 20 and 4 for each prompt); at least twice ``count``.
        shortlist: Number of tokens of each step that may be tried (for "beam" all bases always may), by the scores of
            their own embeddings (None: 16, or for "model" 128); at least ``count``.
        shared: Largest share of the steps in which two of the prompts may have the same token, rounded down to whole
            steps: with 0.5 two of five. 0: no token twice; 1: only different prompts.
        method: "beam" or "model".
        track: Callback of (steps done, all steps), or for "model" of (prompts embedded, all).

    Returns:
        The prompts, best first.

    Raises:
        ValueError: If the method is unknown, theta's dimension isn't the encoder's, theta is 0 or not finite, a count
            is below 1, or ``shared`` is not in [0, 1].
    """
    if not isinstance(encoder, MemoEncoder):  # with the tokens that a session or planner has embedded
        encoder = MemoEncoder(encoder, vocabulary=vocabulary)
    taste = check_taste(theta, encoder)
    check_choice_of(method, "method", ("beam", "model"))
    count = check_count(count, "count")
    usual_width = 20 if method == "beam" else 20 + 4 * count
    width = max(usual_width if width is None else check_count(width, "width"), 2 * count)
    shortlist = max(_SHORTLIST[method] if shortlist is None else check_count(shortlist, "shortlist"), count)
    if base is not None:
        vocabulary = vocabulary.with_subject(base)
    most = most_shared(shared, sum(size > 1 for size in vocabulary.sizes))
    search = _Search(vocabulary, encoder, taste, count, width, shortlist, most, track)
    scores = search.by_model() if method == "model" else search.by_beam()
    prompts = list(scores)
    best = [prompts[place] for place in pick(np.array(list(scores.values())), prompts, count, most)]
    return [Prompt(search.text(prompt), scores[prompt], search.indices(prompt)[base is not None :]) for prompt in best]


@dataclass(frozen=True, eq=False)
class _Search:
    """The checked arguments of `best_prompts`; a prompt is the tokens of the steps with more than one."""

    vocabulary: Vocabulary
    encoder: TextEncoder
    taste: Floats
    count: int
    width: int
    shortlist: int
    most: int
    track: Callable[[int, int], object] | None

    @property
    def steps(self) -> tuple[tuple[str, ...], ...]:
        """The tokens of the steps that are searched."""
        return tuple(step for step in self.vocabulary.tokens if len(step) > 1)

    def indices(self, tokens: tuple[int, ...]) -> tuple[int, ...]:
        """The token of each step of the vocabulary, up to where a partial prompt ends."""
        rest, found = iter(tokens), list[int]()
        for size in self.vocabulary.sizes:
            token = 0 if size == 1 else next(rest, None)
            if token is None:
                break
            found.append(token)
        return tuple(found)

    def text(self, tokens: tuple[int, ...]) -> str:
        """The prompt, complete or not, of some tokens."""
        return self.vocabulary.prompt(self.indices(tokens))

    def score(self, prompts: Sequence[tuple[int, ...]]) -> Floats:
        """True scores of prompts, (n,)."""
        return self.encoder.encode([self.text(prompt) for prompt in prompts]).astype(np.float64) @ self.taste

    def by_beam(self) -> dict[tuple[int, ...], float]:
        """Partial prompts step by step, once for each prompt that is looked for."""
        if not self.steps:
            return {(): float(self.score([()])[0])}
        free = self.vocabulary.sizes[0] > 1  # what the prompts begin with
        tried = [
            range(len(step)) if free and not place else self._shortlisted(step) for place, step in enumerate(self.steps)
        ]
        scores: dict[tuple[int, ...], float] = {}
        found: list[tuple[int, ...]] = []
        width, narrowed = self.width, True
        while len(found) < self.count and (narrowed or not found):
            beam: list[tuple[int, ...]] = [()]
            narrowed = False
            for place, tokens in enumerate(tried):
                longer = self._differing([(*prompt, token) for prompt in beam for token in tokens], found)
                new = [prompt for prompt in longer if prompt not in scores]
                scores.update(zip(new, self.score(new).tolist(), strict=True))
                # the first prompt's beam keeps other first tokens, which a greedy search over prefixes may need later
                per_base = 2 if free and place and not found else width
                beam = _best(longer, [scores[prompt] for prompt in longer], width, per_base)
                narrowed |= len(beam) < len(longer)
                if self.track is not None:
                    self.track(len(found) * len(tried) + place + 1, self.count * len(tried))
            found += beam[:1]
            if beam:
                narrowed = True
            else:  # all that this beam leads to is too near to what was found
                width *= 4
        return {prompt: score for prompt, score in scores.items() if len(prompt) == len(tried)}

    def _shortlisted(self, step: Sequence[str]) -> list[int]:
        # the prompts are scored as whole texts; a token's own score only selects the candidates
        scores = self.encoder.encode(list(step)).astype(np.float64) @ self.taste
        order: list[int] = np.argsort(-scores, kind="stable")[: self.shortlist].tolist()
        return order

    def _differing(self, prompts: list[tuple[int, ...]], found: list[tuple[int, ...]]) -> list[tuple[int, ...]]:
        """Those that may become prompts that differ from all that were found."""
        if not found or not prompts:
            return prompts
        tokens = np.array(prompts)
        shared = (tokens[:, None] == np.array(found)[None, :, : tokens.shape[1]]).sum(axis=2)
        return [prompt for prompt, most in zip(prompts, shared.max(axis=1).tolist(), strict=True) if most <= self.most]

    def by_model(self) -> dict[tuple[int, ...], float]:
        """Complete prompts, chosen by a model of the scores."""
        if len(self.steps) < 2:  # nothing to predict: the tokens are the prompts
            return self.by_beam()
        sizes = [len(step) for step in self.steps]
        rows = self.encoder.encode([token for step in self.steps for token in step]).astype(np.float64)
        return search_by_model(
            np.split(rows, np.cumsum(sizes)[:-1]),
            self.taste,
            self.score,
            count=self.count,
            texts=self.width * (self.vocabulary.horizon - 1),
            shortlist=self.shortlist,
            most=self.most,
            track=self.track,
        )


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


def _best(prompts: list[tuple[int, ...]], scores: Sequence[float], count: int, per_base: int) -> list[tuple[int, ...]]:
    """The ``count`` prompts with the best scores, best first, at most ``per_base`` with the same first token."""
    best: list[tuple[int, ...]] = []
    uses: dict[int, int] = {}
    for place in np.argsort(-np.asarray(scores), kind="stable").tolist():
        first_token = prompts[place][0]
        if uses.get(first_token, 0) < per_base:
            uses[first_token] = uses.get(first_token, 0) + 1
            best.append(prompts[place])
            if len(best) == count:
                break
    return best


def random_prompts(vocabulary: Vocabulary, count: int, rng: np.random.Generator) -> list[str]:
    """Return ``count`` prompts with uniformly drawn tokens."""
    return [vocabulary.prompt([int(rng.integers(size)) for size in vocabulary.sizes]) for _ in range(count)]
