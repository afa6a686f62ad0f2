"""Prompts as people write them, composed from a vocabulary: what the project's own language model is trained on.

A prompt is drawn in three stages: its skeleton (which steps, in which order), one token for each part, and the
connectives (``phrasing``). Tokens are uniform within their step, so the composition is the only structure there is:
what a model can learn is the phrases, how they join, and that one phrase tells next to nothing about another.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import TypeVar

import numpy as np

from edpbrl_gym._validation import check_count
from edpbrl_gym.vocabulary import Vocabulary
from release.models.phrasing import SUBJECT, WITH, joins, openings, role_of, with_article

__all__ = ["MAX_PARTS", "Corpus", "compose_corpus", "compose_prompts", "is_reserved"]

MAX_PARTS = 6
_PARTS = (0.06, 0.16, 0.24, 0.24, 0.18, 0.12)  # share of prompts with 1, 2, ... parts
_LEAD = 0.1  # another part stands before the subject
_NO_SUBJECT = 0.04
_TWICE = 0.15  # a second token of a step that has been used
_OPENINGS = ("a photo of ", "a painting of ", "a picture of ", "an illustration of ", "a drawing of ")
_OPENING = 0.12
_RESERVED = 16  # of 256: every sixteenth pair of tokens belongs to the held-out prompts
_ATTEMPTS = 20_000
_MISSES = 200  # repeats in a row after which a small vocabulary has no more prompts

_Part = tuple[int, str]  # step and token
_Option = TypeVar("_Option")


class _Draws:
    """Uniform numbers of one seeded generator, drawn in blocks: numpy is slow one number at a time."""

    def __init__(self, seed: int, stream: int) -> None:
        self._rng = np.random.default_rng([seed, stream])
        self._block: list[float] = []

    def uniform(self) -> float:
        if not self._block:
            self._block = self._rng.random(8192).tolist()
        return self._block.pop()

    def one_of(self, options: Sequence[_Option]) -> _Option:
        return options[int(self.uniform() * len(options))]

    def weighted(self, options: Sequence[tuple[_Option, float]]) -> _Option:
        left = self.uniform() * sum(weight for _, weight in options)
        for option, weight in options:
            left -= weight
            if left < 0:
                return option
        return options[-1][0]


@dataclass(frozen=True)
class Corpus:
    """Prompts to train on and prompts to judge by.

    Every held-out prompt holds at least one **reserved** pair of tokens, no training prompt holds any: the phrases of a
    held-out prompt are known one by one, their combination is new.

    Attributes:
        train: The training prompts; repeats are possible, and unavoidable with a small vocabulary.
        held_out: Distinct prompts, none of which is a training prompt.
        fingerprint: sha256 (hex) of all prompts in their order.
    """

    train: tuple[str, ...]
    held_out: tuple[str, ...]
    fingerprint: str = field(init=False)

    def __post_init__(self) -> None:
        digest = hashlib.sha256()
        for prompt in (*self.train, "", *self.held_out):
            digest.update(prompt.encode("utf-8") + b"\n")
        object.__setattr__(self, "fingerprint", digest.hexdigest())


def is_reserved(first: str, second: str, seed: int) -> bool:
    """Whether a pair of tokens, in either order, belongs to the held-out prompts: one pair in 16, by a seeded hash."""
    low, high = sorted((first, second))
    return hashlib.blake2b(f"{seed}\0{low}\0{high}".encode(), digest_size=1).digest()[0] < _RESERVED


def _reserved_pairs(parts: Sequence[_Part], seed: int) -> bool:
    return any(is_reserved(a, b, seed) for (_, a), (_, b) in combinations(parts, 2))


class _Composer:
    """Draws prompts from one vocabulary.

    Args:
        vocabulary: Where the tokens come from; the step named like "bases" is the subject, else the first.
        draws: The random numbers.
    """

    def __init__(self, vocabulary: Vocabulary, draws: _Draws) -> None:
        self._tokens = vocabulary.tokens
        self._draws = draws
        self._roles = [role_of(name) for name in vocabulary.names]
        self._subject = self._roles.index(SUBJECT) if SUBJECT in self._roles else 0

    def skeleton(self, least: int) -> list[int]:
        """Return the steps of a prompt in the order in which they are written, at least ``least`` of them."""
        draws = self._draws
        size = draws.weighted([(n, share) for n, share in enumerate(_PARTS, start=1) if n >= least])
        others = [step for step in range(len(self._tokens)) if step != self._subject]
        steps: list[int] = [] if others and draws.uniform() < _NO_SUBJECT else [self._subject]
        used: list[int] = []
        while len(steps) < size:
            if not others or (used and draws.uniform() < _TWICE):
                steps.append(draws.one_of(used or steps))
                continue
            used.append(others.pop(int(draws.uniform() * len(others))))
            steps.append(used[-1])
        if len(steps) > 2 and draws.uniform() < _LEAD:
            steps[0], steps[1] = steps[1], steps[0]
        return steps

    def parts(self, least: int, accept: Callable[[Sequence[_Part]], bool]) -> list[_Part]:
        """Return the parts of a prompt: tokens are drawn again until they differ and are accepted.

        The skeleton stays while it can, so that a condition on the tokens hardly changes how long prompts are.
        """
        for attempt in range(_ATTEMPTS):
            if attempt % 200 == 0:
                steps = self.skeleton(least)
            found = [(step, self._draws.one_of(self._tokens[step])) for step in steps]
            if len(set(found)) == len(found) and accept(found):
                return found
        raise ValueError(
            f"Expected a vocabulary with enough combinations for training and held-out prompts, got steps of "
            f"{[len(step) for step in self._tokens]} tokens; add tokens, or try another seed"
        )

    def write(self, parts: list[_Part]) -> str:
        """Return the text: the parts with their connectives, "with" at most once."""
        draws = self._draws
        rest = list(parts)
        text, opened = "", False
        if rest[0][0] == self._subject:
            subject = rest.pop(0)[1]
            rest, opening = self._opening(rest, subject)
            text, opened = opening + subject, True
        else:
            text = rest.pop(0)[1]
        direct = opened  # a connective without a comma follows the subject only
        with_used, last = " with " in f" {text} ", ""
        for step, token in rest:
            options = joins(self._roles[step], token)
            can_have = any(template == WITH for template, _ in options)
            if with_used:
                options = tuple(option for option in options if option[0] != WITH)
            if last == WITH and can_have:  # "with lace cuffs and button eyes"
                options = (*options, (" and {}", 1.0))
            last = draws.weighted(options)
            with_used |= last == WITH
            comma = "," if last[0] != "," and not direct and last != " and {}" else ""
            text += comma + _fill(last, token)
            direct = step == self._subject
        return text

    def _opening(self, rest: list[_Part], subject: str) -> tuple[list[_Part], str]:
        """Return the parts still to write and what stands before the subject: "a photo of ", a style, or nothing."""
        draws = self._draws
        if subject.split()[0] not in ("a", "an", "the", "two"):
            return rest, ""
        for place, (step, token) in enumerate(rest):
            ways = openings(self._roles[step], token)
            if ways and draws.uniform() < 0.3:
                return rest[:place] + rest[place + 1 :], _fill(draws.weighted(ways), token)
        return rest, draws.one_of(_OPENINGS) if draws.uniform() < _OPENING else ""


def _fill(template: str, token: str) -> str:
    return template.replace("{a}", with_article(token)).replace("{}", token)


def compose_prompts(vocabulary: Vocabulary, count: int, seed: int) -> list[str]:
    """Return prompts as people write them, composed from the vocabulary's tokens.

    One to six parts in varied order, the subject mostly first, joined by commas and by the connectives of
    ``phrasing``. Tokens are uniform in their step; the same arguments give the same prompts.

    Args:
        vocabulary: Any vocabulary; connectives other than commas go to steps named like the built-in ones.
        count: Number of prompts; repeats are possible.
        seed: Seed of everything.

    Raises:
        ValueError: ``count`` below 1, or a negative seed.
    """
    count = check_count(count, "count")
    composer = _Composer(vocabulary, _Draws(check_count(seed, "seed", minimum=0), 0))
    return [composer.write(composer.parts(1, lambda parts: True)) for _ in range(count)]


def compose_corpus(vocabulary: Vocabulary, *, train: int, held_out: int, seed: int) -> Corpus:
    """Return training prompts and held-out prompts with combinations that no training prompt has.

    One pair of tokens in 16 is reserved (``is_reserved``). Training prompts hold no reserved pair, held-out prompts
    at least one, hence two parts or more. A held-out text that could also be read as a training prompt is drawn again.

    Args:
        vocabulary: Where the tokens come from.
        train: Number of training prompts.
        held_out: Number of distinct held-out prompts; fewer come back where the vocabulary has no more.
        seed: Seed of the prompts and of the choice of reserved pairs.

    Raises:
        ValueError: Counts below 1, or a vocabulary without reserved combinations.
    """
    train, held_out = check_count(train, "train"), check_count(held_out, "held_out")
    seed = check_count(seed, "seed", minimum=0)
    composer = _Composer(vocabulary, _Draws(seed, 1))
    kept = [composer.write(composer.parts(1, lambda parts: not _reserved_pairs(parts, seed))) for _ in range(train)]
    known = set(kept)
    judge = _Composer(vocabulary, _Draws(seed, 2))
    new: dict[str, None] = {}
    misses = 0  # in a row
    while len(new) < held_out and misses < _MISSES:
        text = judge.write(judge.parts(2, lambda parts: _reserved_pairs(parts, seed)))
        misses = misses + 1 if text in new or text in known else 0
        if not misses:
            new[text] = None
    if not new:
        raise ValueError("Expected a vocabulary with combinations to hold out, found none; add tokens")
    return Corpus(tuple(kept), tuple(new))
