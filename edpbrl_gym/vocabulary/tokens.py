"""Valid tokens, and the equality of tokens."""

from __future__ import annotations

import re
import unicodedata

__all__ = ["MAX_LENGTH", "fold", "normalise", "refusal", "unseen"]

MAX_LENGTH = 1000  # characters; the phrases of prompt writers are far shorter

# Characters that are invisible in a list of tokens but make two of them different, or that affect a terminal: control
# characters (with tabs and line ends), separators of lines and paragraphs, zero-width and bidirectional controls,
# letters without a glyph, tags, surrogates and noncharacters. Arabic number signs are in the same category (Cf) but
# visible.
_UNSEEN = re.compile(
    "[\x00-\x1f\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b-\u200f\u2028-\u202e\u2060-\u2064"
    "\u2066-\u206f\u2800\u3164\ud800-\udfff\ufdd0-\ufdef\ufeff\uffa0\ufff9-\ufffb\ufffe\uffff\U00013430-\U0001343f\U0001bca0-\U0001bca3"
    "\U0001d173-\U0001d17a\U000e0001\U000e0020-\U000e007f"
    + "".join(f"{chr(plane + 0xFFFE)}{chr(plane + 0xFFFF)}" for plane in range(0x10000, 0x110000, 0x10000))
    + "]"
)
_VARIATION = re.compile("[\ufe00-\ufe0f\U000e0100-\U000e01ef]")  # selectors: a variant of the same character


def normalise(text: str) -> str:
    """Return the text in Unicode's composed form (NFC): a letter and a combining accent become one character."""
    return unicodedata.normalize("NFC", text)


def fold(token: str) -> str:
    """Return the form in which equal tokens are identical: composed, case folded, white space as one space.

    Variation selectors are removed: they only choose the glyph of a character.
    """
    without_selectors = _VARIATION.sub("", token)
    return normalise(" ".join(normalise(without_selectors).split()).casefold())


def refusal(text: str) -> str | None:
    """Return why a text can't be a token or a step's name, as the end of "Expected ..., got"; None if it can."""
    if len(text) > MAX_LENGTH:
        return f"{len(text):,} characters, beginning {text[:40]!r}; write at most {MAX_LENGTH:,}, one token per line"
    return unseen(text)


def unseen(text: str) -> str | None:
    """Return the first invisible character of a text, as the end of "Expected ..., got"; None if there is none."""
    match = _UNSEEN.search(text)
    if match is None:
        return None
    character = match[0]
    name = unicodedata.name(character, "a control character")
    advice = "remove it or write a space"
    if character in "\u200c\u200d":  # in Persian, Hindi or emoji it changes what is read
        advice = "joiners of letters and emoji are not supported: write this phrase without a word that needs one"
    return (
        f"U+{ord(character):04X} ({name}) as character {match.start() + 1} of {text[:80]!r}, which can't be seen; "
        f"{advice}"
    )
