"""Valid tokens, and the equality of tokens."""

from __future__ import annotations

import re
import unicodedata

__all__ = ["MAX_LENGTH", "fold", "normalise", "refusal", "unseen"]

MAX_LENGTH = 1000  # characters; the phrases of prompt writers are far shorter

# What is no text: control characters (with tabs and line ends), separators of lines and paragraphs, embeddings,
# overrides and isolates of the direction, tags that stand in no flag (they hide whole sentences), surrogates and
# noncharacters.
_REFUSED = re.compile(
    "[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u206f\ud800-\udfff\ufdd0-\ufdef\ufff9-\ufffb\ufffe\uffff"
    "\U000e0001\U000e0020-\U000e007f"
    + "".join(f"{chr(plane + 0xFFFE)}{chr(plane + 0xFFFF)}" for plane in range(0x10000, 0x110000, 0x10000))
    + "]"
)
_FLAG = re.compile("\U0001f3f4[\U000e0030-\U000e007a]+\U000e007f")  # of a region: a black flag, tags, the end of tags
# What can be text but isn't seen by itself: variation selectors, zero-width spaces, soft hyphens, marks of direction,
# fillers. Two tokens must not differ by these alone.
_UNSEEN = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u200e\u200f\u2060-\u2064\u2800\u3164"
    "\ufe00-\ufe0f\ufeff\uffa0\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    "\U000e0100-\U000e01ef]"
)
# Joiners and non-joiners change what is read between letters of Persian or Hindi, and between emoji, nowhere else.
_IDLE_JOINER = re.compile("(?<![^\x00-\u02ff])[\u200c\u200d]+|[\u200c\u200d]+(?![^\x00-\u02ff])")


def normalise(text: str) -> str:
    """Return the text in Unicode's composed form (NFC): a letter and a combining accent become one character."""
    return unicodedata.normalize("NFC", text)


def fold(token: str) -> str:
    """Return the form in which equal tokens are identical: composed, case folded, white space as one space.

    What can't be seen is removed, and joiners where nothing is joined.
    """
    seen = _IDLE_JOINER.sub("", _UNSEEN.sub("", token))
    return normalise(" ".join(normalise(seen).split()).casefold())


def refusal(text: str) -> str | None:
    """Return why a text can't be a token or a step's name, as the end of "Expected ..., got"; None if it can."""
    if len(text) > MAX_LENGTH:
        return f"{len(text):,} characters, beginning {text[:40]!r}; write at most {MAX_LENGTH:,}, one token per line"
    return unseen(text)


def unseen(text: str) -> str | None:
    """Return the first character that is no text, as the end of "Expected ..., got"; None if there is none."""
    match = _REFUSED.search(_FLAG.sub(lambda flag: "x" * len(flag[0]), text))
    if match is not None:
        character = match[0]
        name = unicodedata.name(character, "a control character")
        return (
            f"U+{ord(character):04X} ({name}) as character {match.start() + 1} of {text[:80]!r}, which can't be seen; "
            "remove it or write a space"
        )
    if text.strip() and not fold(text):
        names = ", ".join(f"U+{ord(character):04X}" for character in text[:8])
        return f"only characters that can't be seen ({names}); write what is meant"
    return None
