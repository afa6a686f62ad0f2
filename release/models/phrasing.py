"""How a vocabulary's token joins a prompt: the connectives people use, by the step's role and the token's words.

Nothing here knows grammar: a token is judged by its first and last word, and a token without a rule follows a comma, as
most parts of written prompts do. The rules suit the built-in steps; the steps of other vocabularies get them by name.
"""

from __future__ import annotations

import re

__all__ = ["SUBJECT", "WITH", "joins", "openings", "role_of", "with_article"]

SUBJECT = "bases"  # the role of the step that says what is seen
_ROLES = (SUBJECT, "ambient", "style", "composition", "lighting", "detail")

_PREPOSITIONS = frozenset(
    "above across after against along amid among around as at before behind below beneath beside between beyond by "
    "down during facing from in inside into like near on out over past seen shot through toward under up viewed "
    "when while with within".split()
)
_DETERMINERS = frozenset("a an the one two three four several many every no half its their".split())
_COUNTABLE = frozenset(
    "advertisement album anime banner bookplate card cartoon carving chart collage comic cover diorama doodle drawing "
    "engraving etching film frame fresco icon illustration map miniature model mosaic mural page painting panel photo "
    "photograph picture plate portrait postcard poster print relief scene scroll sculpture sheet sketch stamp still "
    "tapestry veduta watercolor woodcut".split()
)
_VIEWS = frozenset("close-up cross-section panorama photo portrait shot view".split())
_LIGHT = frozenset(
    "afterglow backlight backlighting candlelight dark darkness daylight dusk gaslight glare glow haze light lighting "
    "moonlight shade starlight sun sunlight sunset sunshine twilight".split()
)
_LAMPS = frozenset(
    "bulb bulbs candle candles embers fireflies fireworks flames flash flashlight footlights headlights lamp "
    "lamps lantern lanterns lights lightning monitors moon neon screen spotlight spotlights torches".split()
)
_EFFECTS = frozenset(
    "blacks bloom clouds contrast flare halation halo highlights horizon rays reflections shadow shadows silhouettes "
    "sparklers sky tones".split()
)
_TIMES = frozenset("afternoon dawn evening morning night".split())
_PARTICIPLE = re.compile(r"[a-z-]{2,}(?:ed|ing|ly|lit)$")

WITH = " with {}"
# templates: {} is the token, {a} the token with its article; one that begins with a comma never joins directly
_COMMA = ((", {}", 1.0),)


def role_of(name: str) -> str | None:
    """Return the built-in step that a step's name means (``"2-ambient"`` is ``"ambient"``), None if it means none."""
    folded = name.casefold()
    return next((role for role in _ROLES if role in folded), None)


def with_article(token: str) -> str:
    """Return the token as one thing: ``"a"`` or ``"an"`` before it, unless it begins with a determiner."""
    if token.split()[0].casefold() in _DETERMINERS:
        return token
    sounds_vowel = re.match(r"(?i)(?!one\b|uni|use|eu|u-|uk)[aeiou]|hour|honest|heir|8|11\b|18", token)
    return f"{'an' if sounds_vowel else 'a'} {token}"


def _is_clause(words: list[str]) -> bool:
    """Whether the token says how something is done ("looking straight up", "polished to perfection")."""
    return len(words) > 1 and bool(_PARTICIPLE.match(words[0])) and (words[1] in _PREPOSITIONS or words[1] == "to")


def openings(role: str | None, token: str) -> tuple[tuple[str, float], ...]:
    """Return how a token may open a prompt before its subject, as (template, weight); none for most tokens.

    ``{}`` stands for the token, as in "mechanical pencil sketch of"; the subject follows.
    """
    words = token.split()
    last = words[-1].casefold()
    if _is_clause(words) or words[0] in _PREPOSITIONS or {"of", "with", "on", "in"} & set(words):
        return ()
    if (role == "style" and last in _COUNTABLE) or (role == "composition" and last in _VIEWS):
        return (("{} of ", 2.0), ("{a} of ", 1.0))
    return ()


def joins(role: str | None, token: str) -> tuple[tuple[str, float], ...]:
    """Return how a token may follow what is written already, as (template, weight), the comma always among them."""
    words = token.split()
    last = words[-1].casefold()
    if role is None or role == SUBJECT or _is_clause(words):
        return _COMMA
    if words[0] in _PREPOSITIONS:
        return (*_COMMA, (" {}", 1.0))
    if role == "ambient":
        return _ambient(words, last)
    if role == "style":
        as_made = (" in the style of {a}", 0.8) if last in _COUNTABLE else (", {} style", 0.5)
        return (*_COMMA, as_made) if words[0] not in _DETERMINERS else (*_COMMA, (" in the style of {}", 0.8))
    if role == "lighting":
        if last in _LAMPS and len(words) > 1:
            return (*_COMMA, (" lit by {}" if last.endswith("s") else " lit by {a}", 1.2))
        if last in _LIGHT:
            return (*_COMMA, (" in {}", 1.0), (" under {}", 0.2))
        if last in _EFFECTS:
            return (*_COMMA, (WITH, 0.8))
    if role == "detail" and (len(words) > 1 or last.endswith("s")):
        return (*_COMMA, (WITH, 1.0))
    return _COMMA


def _ambient(words: list[str], last: str) -> tuple[tuple[str, float], ...]:
    if len(words) == 1 and words[0].islower() and "-" not in words[0]:
        return ((", {}", 1.0), (", {} mood", 0.3), (", {} atmosphere", 0.3), (" in {a} mood", 0.2))
    if last in _TIMES and words[0].islower() and words[0] not in _DETERMINERS:
        return (*_COMMA, (" at dawn" if words == ["dawn"] else " on {a}", 0.8))
    return _COMMA
