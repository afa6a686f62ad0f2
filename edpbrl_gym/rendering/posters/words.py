"""From a text to the tokens of a poster."""

from __future__ import annotations

import functools
import re
from random import Random

from edpbrl_gym._seeds import derive_seed
from edpbrl_gym.rendering.posters.colours import LIGHTS, PALETTES
from edpbrl_gym.rendering.posters.compositions import COMPOSITIONS
from edpbrl_gym.rendering.posters.ornaments import ORNAMENTS
from edpbrl_gym.rendering.posters.shapes import SUBJECTS
from edpbrl_gym.rendering.posters.textures import MANNERS

__all__ = ["STEPS", "tokens_of"]

STEPS: dict[str, tuple[str, ...]] = {
    "subject": SUBJECTS,
    "palette": PALETTES,
    "composition": tuple(COMPOSITIONS),
    "light": tuple(LIGHTS),
    "texture": tuple(MANNERS),
    "ornament": tuple(ORNAMENTS),
}
"""Step -> its tokens: those of the vocabulary "posters"."""


def _words(text: str) -> str:
    return " ".join(re.findall(r"[^\W_]+", text.casefold().replace("'", "")))


@functools.cache
def _phrases() -> tuple[tuple[str, str, str], ...]:
    """Words, step and token: every token without its article, then a subject's last word alone; longer ones first."""
    whole = [
        (re.sub(r"^(a|an|the) ", "", _words(token)), step, token) for step, all_ in STEPS.items() for token in all_
    ]
    last = [(_words(token).rpartition(" ")[2], "subject", token) for token in SUBJECTS]
    return (*sorted(whole, key=lambda row: -len(row[0])), *last)


def tokens_of(text: str, seed: int) -> dict[str, str]:
    """The token of each step that a text names, in any order; other words are ignored.

    A step that the text does not name gets a token that depends on the seed and on the text's other words: prompts of
    tokens alone differ by their tokens only. Of two tokens of a step the longer one counts.
    """
    rest, found = f" {_words(text)} ", dict[str, str]()
    for words, step, token in _phrases():
        if f" {words} " in rest and step not in found:
            found[step] = token
            rest = rest.replace(f" {words} ", " ", 1)
    rest = " ".join(word for word in rest.split() if word not in ("a", "an", "the"))
    for step, tokens in STEPS.items():
        if step not in found:
            found[step] = Random(derive_seed(seed, "posters", step, rest)).choice(tokens)
    return {step: found[step] for step in STEPS}
