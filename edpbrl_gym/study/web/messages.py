"""The texts of the pages in several languages, from files that anyone can translate."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from string import Formatter
from typing import Any

__all__ = ["Messages", "available_languages", "has_messages", "load_messages", "preferred_language"]

_FALLBACK = "en"


class Messages:
    """The texts of one language, by name: ``messages("left", number=3)``.

    Attributes:
        language: Code of the language of the texts.
        direction: "ltr" or "rtl".
    """

    def __init__(self, language: str, texts: dict[str, str]) -> None:
        self.language = language
        self.direction = texts["direction"]
        self._texts = texts

    def __call__(self, name: str, /, **values: Any) -> str:
        """The text of a name with its values; in a text from right to left they keep their own direction."""
        if self.direction == "rtl":
            values = {one: f"\u2066{value}\u2069" for one, value in values.items()}
        return self._texts[name].format(**values)

    @property
    def names(self) -> dict[str, set[str]]:
        """The names of all texts with those of their values."""
        return {
            name: {field for _, field, _, _ in Formatter().parse(text) if field} for name, text in self._texts.items()
        }


def available_languages() -> list[str]:
    """Codes of the languages in which the pages have texts."""
    folder = files("edpbrl_gym.study.web") / "messages"
    return sorted(one.name.removesuffix(".toml") for one in folder.iterdir() if one.name.endswith(".toml"))


def has_messages(language: str) -> bool:
    """Whether the pages have texts in a language, or in its base language ("zh" for "zh-Hans")."""
    return _file_of(language) is not None


def _file_of(language: str) -> str | None:
    available = available_languages()
    return next((code for code in (language, language.partition("-")[0]) if code in available), None)


@cache
def load_messages(language: str) -> Messages:
    """The texts of a language, of its base language if it has none, else in English."""
    chosen = _file_of(language) or _FALLBACK
    path = files("edpbrl_gym.study.web") / "messages" / f"{chosen}.toml"
    return Messages(chosen, tomllib.loads(path.read_text(encoding="utf-8")))


def preferred_language(accepted: str, offered: Sequence[str]) -> str:
    """The offered language that a browser's Accept-Language header prefers; the first one if it names none."""
    wanted = []
    for part in accepted[:500].split(","):
        code, _, quality = part.partition(";q=")
        try:
            wanted.append((-float(quality or 1), code.strip().lower()))
        except ValueError:
            continue
    for _, code in sorted(wanted, key=lambda pair: pair[0]):
        for language in offered:
            if code and language.lower().partition("-")[0] == code.partition("-")[0]:
                return language
    return offered[0]
