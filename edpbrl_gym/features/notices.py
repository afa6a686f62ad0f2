"""Texts for an encoder, checked, and what it does not tell apart, said to the user."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = [
    "MULTILINGUAL_ADVICE",
    "SAME",
    "Notices",
    "check_texts",
    "differing",
    "equal_options",
    "notices_of",
    "same_options",
    "tell_notices",
]

_log = logging.getLogger(__name__)
_SHOWN = 60  # characters of a text in a message
# Distance of two rows, as a share of the longest, below which they are one. Rows of one text in float32 differ by up to
# 1e-6 from batch to batch; the nearest tokens of a step of the built-in vocabularies are 0.46 apart with minilm.
SAME = 1e-5
_MOST_PIECES = 1.5  # of a word, above which it may be none of the encoder's language
_EXPANSION = 18  # most characters that Unicode's compatibility forms make of one (U+FDFA)

MULTILINGUAL_ADVICE = (
    "it reads English, without accents and capitals; for other languages take an encoder that reads them, such as "
    "sentence-transformers:sentence-transformers/paraphrase-multilingual-MiniLM-L12-v2"
)

Pieces = Callable[[list[str]], Sequence[tuple[int, int]]]


def check_texts(texts: Sequence[str]) -> list[str]:
    """Return ``texts`` as a list of strings.

    Raises:
        TypeError: A single string, something that is not a sequence, or an element that is not a string.
    """
    if isinstance(texts, (str, bytes)):
        raise TypeError(f"Expected a list of texts, got the single text {texts!r}; write [{texts!r}]")
    try:
        strings = list(texts)
    except TypeError:
        raise TypeError(f"Expected a list of texts, got {type(texts).__name__}") from None
    for index, text in enumerate(strings):
        if not isinstance(text, str):
            raise TypeError(
                f"Expected strings as texts, got {text!r} ({type(text).__name__}) at index {index}; convert it first"
            )
    return strings


class Notices:
    """Tells which texts one encoder does not read in full, each text once.

    The warning is repeated when their number has doubled, since a session embeds a few texts at a time.

    Args:
        name: Name of the encoder.
        limit: Largest number of pieces that it reads of a text, with the marks at begin and end; None: no limit.
        unit: What a piece is called.
        pieces: Number of pieces of each text, with the marks, and number of unknown ones among them.
        advice: What to do about unknown characters.
    """

    def __init__(self, name: str, limit: int | None, unit: str, pieces: Pieces, advice: str = "") -> None:
        self._name, self._limit, self._unit, self._pieces, self._advice = name, limit, unit, pieces, advice
        self._known: set[int] = set()  # hashes of texts that have been looked at
        self._cut = self._strange = 0  # texts so far
        self._told_cut = self._told_strange = 0
        self._unknown = self._total = 0  # pieces of the strange texts

    def tell(self, texts: Sequence[str]) -> None:
        """Warn of the texts that are not read in full and have not been looked at before."""
        new = [text for text in dict.fromkeys(texts) if self._may_be_cut(text) or not text.isascii()]
        new = [text for text in new if hash(text) not in self._known]
        if not new:
            return
        self._known.update(map(hash, new))
        counts = self._pieces(new)
        cut = [(text, count) for text, (count, _) in zip(new, counts, strict=True) if count > (self._limit or count)]
        strange = [(text, *count) for text, count in zip(new, counts, strict=True) if count[1]]
        self._total += sum(count - 2 for _, count, _ in strange)
        self._unknown += sum(unknown for _, _, unknown in strange)
        self._cut, self._strange = self._cut + len(cut), self._strange + len(strange)
        if cut and self._cut >= 2 * self._told_cut:
            self._told_cut = self._cut
            text, count = cut[0]
            _log.warning(
                "%s reads the first %d %s of a text: %s longer, so %s no effect; the first: %r (%d %s)",
                self._name, self._limit, self._unit, _texts(self._cut, "is", "are"),
                "its end has" if self._cut == 1 else "their ends have", _shortened(text), count, self._unit,
            )  # fmt: skip
        if strange and self._strange >= 2 * self._told_strange:
            self._told_strange = self._strange
            _log.warning(
                "%s does not know characters of %s (%.0f%% of their %s), such as %r: texts that differ in these alone "
                "get one embedding%s",
                self._name, _texts(self._strange, "", ""), 100 * self._unknown / self._total, self._unit,
                _shortened(strange[0][0]), f"; {self._advice}" if self._advice else "",
            )  # fmt: skip

    def reads_poorly(self, texts: Sequence[str]) -> str:
        """What to say about texts that seem to be in a language that the encoder does not read; "": nothing.

        It cuts a word of the built-in vocabularies into 1.05 to 1.3 pieces, of Spanish phrases into 1.6, of French ones
        into 2.0, of German ones into 2.4.
        """
        if not self._advice:
            return ""
        counts = self._pieces(list(texts))
        pieces = sum(count - 2 for count, _ in counts) / max(1, sum(len(text.split()) for text in texts))
        if pieces <= _MOST_PIECES:
            return ""
        return (
            f"{self._name} cuts a word of these texts into {pieces:.1f} pieces, an English one into 1.2: {self._advice}"
        )

    def _may_be_cut(self, text: str) -> bool:
        """Whether a text may be longer than the limit: it has one piece for each character at most, and two marks."""
        return self._limit is not None and len(text) * (1 if text.isascii() else _EXPANSION) + 2 > self._limit


def notices_of(encoder: Any) -> Notices | None:
    """The notices of an encoder, also of one behind a memo or a cache; None if it has none."""
    while encoder is not None:
        found = getattr(encoder, "notices", None)
        if isinstance(found, Notices):
            return found
        encoder = getattr(encoder, "encoder", None)
    return None


def tell_notices(encoder: Any, texts: Sequence[str]) -> None:
    """Warn of the texts that an encoder does not read in full."""
    notices = getattr(encoder, "notices", None)
    if isinstance(notices, Notices):
        notices.tell(texts)


def same_options(texts: Sequence[Sequence[str]], features: ArrayLike) -> list[tuple[int, int, int]]:
    """Return (question, option, other option) for questions with two texts whose features are equal up to rounding.

    Of each question it is the first such pair; the features are (n, K, d).
    """
    rows = np.asarray(features)
    equal = equal_options(rows)
    found: dict[int, tuple[int, int, int]] = {}
    for one, other in combinations(range(rows.shape[1]), 2):
        for number in np.flatnonzero(equal[:, one, other]).tolist():
            options = texts[number]
            if other < len(options) and options[one] != options[other]:
                found.setdefault(number, (number, one, other))
    return [found[number] for number in sorted(found)]


def equal_options(rows: NDArray[np.floating]) -> NDArray[np.bool_]:
    """Which options of each question (n, K, d) have equal features, (n, K, K)."""
    tolerance = SAME * float(np.nanmax(np.linalg.norm(rows, axis=2), initial=0.0))
    count = rows.shape[1]
    equal = np.zeros((len(rows), count, count), dtype=np.bool_)
    for option in range(count):
        equal[:, option] = np.linalg.norm(rows - rows[:, option : option + 1], axis=2) <= tolerance
    return equal


def differing(text: str, other: str) -> tuple[str, str]:
    """Return two texts shortened for a message, from a word before their first difference."""
    start = len(os.path.commonprefix([text, other]))
    start = max(text.rfind(" ", 0, start) + 1, start - _SHOWN // 3)
    if max(len(text), len(other)) <= _SHOWN:
        start = 0
    dots = "..." if start else ""
    return f"{dots}{text[start : start + _SHOWN]}", f"{dots}{other[start : start + _SHOWN]}"


def _texts(count: int, one: str, several: str) -> str:
    return f"{count} text{'' if count == 1 else 's'} {one if count == 1 else several}".strip()


def _shortened(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
