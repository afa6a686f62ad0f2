"""Heads of phrases, and tokens held out head by head.

The head of a phrase is the word that says what it is: "engraving" of "a fine engraving on copper". Tokens with the same
head are near copies of each other for an encoder ("oil on canvas", "thick oil on canvas"), so a test side that is to be
new must not share heads with the training side.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

import numpy as np

from edpbrl_gym.vocabulary.tokens import fold

__all__ = ["draw_heads", "head_word"]

_WORD = re.compile(r"[^\W_]+(?:['\u2019-][^\W_]+)*")
# what follows the head begins with one of these
_PREPOSITIONS = frozenset(
    "of on in with at over under by from through between into onto to for as like above below behind before after "
    "against along across around among beside beneath near inside outside within without during until toward towards "
    "past off out up down upside away than beyond amid atop per via but not where when while that which who straight "
    "overhead underfoot together asleep".split()
)
_DETERMINERS = frozenset("a an the his her its their our your my this these some no every".split())
_CLAUSE = _PREPOSITIONS | _DETERMINERS
# beside -ed and -ing, what may stand between the head and the clause: "a face LIT by a lamp", "a fox AND a hare"
_IRREGULAR = frozenset(
    "lit worn seen left made held hung drawn cut set torn split caught hidden grown thrown taken just and or".split()
)
_NOUNS = frozenset(
    "painting drawing engraving etching carving lettering printing lighting building ceiling morning evening spring "
    "string clothing dining living opening setting rigging shading panelling flooring cladding daybed".split()
)


def head_word(token: str) -> str:
    """Return the head of a token, lower case and singular, by a rule for English noun phrases.

    Leading prepositions and articles are left out, the rest is cut at the next one, and of what remains, without a
    participle before the cut, the last word is the head: "portrait of a captain" gives "portrait", "two foxes curled up
    on straw" gives "fox". A text without words is its own head; in other languages it is mostly the last word.
    """
    text = fold(token)
    words = [text[found.start() : found.end()] for found in _WORD.finditer("".join(map(_letter, text)))]
    start = 0
    while start < len(words) - 1 and words[start] in _CLAUSE:
        start += 1
    end = next((index for index in range(start + 1, len(words)) if words[index] in _CLAUSE), len(words))
    if end < len(words):
        while end - start > 1 and _is_between(words[end - 1]):
            end -= 1
    return _singular(words[end - 1]) if words else text


def _letter(character: str) -> str:
    """The character; an "x" for one that is a part of a word without being a letter: marks of vowels, joiners."""
    return "x" if unicodedata.category(character)[0] == "M" or character in "\u200c\u200d" else character


def _is_between(word: str) -> bool:
    return word in _IRREGULAR or (len(word) > 5 and word.endswith(("ed", "ing")) and word not in _NOUNS)


def _singular(word: str) -> str:
    for possessive in ("'s", "\u2019s"):
        word = word.removesuffix(possessive)
    if len(word) > 4 and word.endswith("ies"):
        return word[:-3] + "y"
    if len(word) > 4 and word.endswith(("sses", "shes", "ches", "xes", "zes")):
        return word[:-2]
    if len(word) > 3 and word.endswith("s") and not word.endswith(("ss", "us", "is", "as")):
        return word[:-1]
    return word


def draw_heads(tokens: Sequence[str], count: int, rng: np.random.Generator) -> set[int]:
    """Return the indices of about ``count`` tokens: all that share the head of one of them, and not all there are.

    Heads are drawn in a random order as long as a number of tokens can still be reached that is as near to ``count`` as
    whole groups allow (of two equally near, the smaller).

    Raises:
        ValueError: All tokens have the same head.
    """
    groups: dict[str, list[int]] = {}
    for index, token in enumerate(tokens):
        groups.setdefault(head_word(token), []).append(index)
    if len(groups) < 2:
        raise ValueError(f"all {len(tokens)} have the head word {next(iter(groups))!r}")
    drawn = list(groups.values())
    drawn = [drawn[index] for index in rng.permutation(len(drawn))]
    reachable = [1]  # bit t: the groups from here on, the last ones first, can give t tokens
    for group in reversed(drawn):
        reachable.append(reachable[-1] | reachable[-1] << len(group))
    totals = [total for total in range(1, len(tokens)) if reachable[-1] >> total & 1]
    missing = min(totals, key=lambda total: (abs(total - count), total))
    chosen: set[int] = set()
    for group, rest in zip(drawn, reversed(reachable[:-1]), strict=True):
        if missing >= len(group) and rest >> (missing - len(group)) & 1:
            chosen.update(group)
            missing -= len(group)
    return chosen
