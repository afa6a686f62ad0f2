"""What the pages say in each language: messages of this package and of a study, translations of a study's own texts."""

from __future__ import annotations

import csv
import difflib
import io
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from string import Formatter
from typing import Any

from edpbrl_gym._texts import read_text

__all__ = [
    "Messages",
    "available_languages",
    "has_messages",
    "load_messages",
    "messages_with",
    "read_messages",
    "read_translations",
]

_FALLBACK = "en"
_FOLDER = Path(__file__).parent / "web" / "messages"
_OTHERS = "ask_"  # begin the names of messages of `edpbrl ask`, which no study shows


class Messages:
    """The texts of one language, by name: ``messages("left", number=3)``."""

    def __init__(self, language: str, texts: dict[str, str]) -> None:
        self.language = language
        self.direction = texts["direction"]  # "ltr" or "rtl"
        self.texts = texts  # by name

    def __call__(self, name: str, /, **values: Any) -> str:
        """The text of a name with its values; in a text from right to left they keep their own direction."""
        if self.direction == "rtl":
            values = {one: f"\u2066{value}\u2069" for one, value in values.items()}
        return self.texts[name].format(**values)


def available_languages() -> list[str]:
    """Codes of the languages in which the pages have texts."""
    return sorted(one.name.removesuffix(".toml") for one in _FOLDER.iterdir() if one.name.endswith(".toml"))


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
    path = _FOLDER / f"{chosen}.toml"
    return Messages(chosen, tomllib.loads(path.read_text(encoding="utf-8")))


def messages_with(language: str, own: Mapping[str, str]) -> Messages:
    """The texts of a language with those that a study has itself."""
    known = load_messages(language)
    return Messages(language if own and not has_messages(language) else known.language, {**known.texts, **own})


def _placeholders(text: str) -> set[str]:
    return {name for _, name, _, _ in Formatter().parse(text) if name is not None}


def _files_of(folder: Path, suffix: str, languages: Iterable[str], mistakes: list[str]) -> Iterator[tuple[str, Path]]:
    """Each language with its file LANGUAGE + suffix of a folder; other files are noted as mistakes."""
    known = list(languages)
    for path in sorted(folder.glob("*")) if folder.is_dir() else []:
        language = path.name.removesuffix(suffix)
        if path.suffix == suffix and language in known:
            yield language, path
            continue
        listed = ", ".join(f"{one}{suffix}" for one in known)
        mistakes.append(
            f"{path}: expected a file of one of the study's languages ({listed}); rename it, or take it out"
        )


def read_messages(folder: Path, languages: Iterable[str], mistakes: list[str]) -> dict[str, dict[str, str]]:
    """The messages of a study, by language: files LANGUAGE.toml of its folder ``messages``; what is wrong is noted.

    A language that this package has needs the messages that are to be others; another one needs them all.
    """
    found = {}
    for language, path in _files_of(folder, ".toml", languages, mistakes):
        try:
            given = tomllib.loads(read_text(path))
        except (OSError, ValueError) as error:
            mistakes.append(f"{path}: expected messages in TOML and UTF-8, got something else ({error}); correct it")
            continue
        found[language] = _checked(path, language, given, mistakes)
    return found


def _checked(path: Path, language: str, given: dict[str, Any], mistakes: list[str]) -> dict[str, str]:
    english = load_messages(_FALLBACK).texts
    own = {}
    for name, text in given.items():
        if name not in english:
            close = difflib.get_close_matches(name, english, 1)
            remedy = f"did you mean {close[0]!r}?" if close else "take it out"
            mistakes.append(f"{path}: expected names of messages, got the unknown {name!r}; {remedy}")
        elif not isinstance(text, str) or not text.strip():
            mistakes.append(f"{path}: {name}: expected a text in quotes, got {text!r}")
        elif name == "direction" and text not in ("ltr", "rtl"):
            mistakes.append(f"{path}: direction: expected 'ltr' or 'rtl', got {text!r}")
        else:
            try:
                there, wanted = _placeholders(text), _placeholders(english[name])
            except ValueError as error:
                mistakes.append(f"{path}: {name}: expected a text with whole words in braces, got {text!r} ({error})")
                continue
            if there != wanted:
                words = ", ".join(f"{{{one}}}" for one in sorted(wanted)) or "no words in braces"
                got = ", ".join(f"{{{one}}}" for one in sorted(there)) or "none"
                mistakes.append(f"{path}: {name}: expected {words}, got {got}")
                continue
            own[name] = text
    missing = [name for name in english if name not in given and not name.startswith(_OTHERS)]
    if missing and not has_messages(language):
        more = f" and {len(missing) - 5} more" if len(missing) > 5 else ""
        mistakes.append(
            f"{path}: expected all messages, since this package has none in {language}, {len(missing)} are missing: "
            f"{', '.join(missing[:5])}{more}; translate a copy of {_FOLDER / 'en.toml'}"
        )
    return own


def read_translations(folder: Path, languages: Iterable[str], mistakes: list[str]) -> dict[str, dict[str, str]]:
    """The translations of a study's own texts, by language: files LANGUAGE.csv of its folder ``translations``.

    Each has the columns original and shown. What is wrong is noted.
    """
    found: dict[str, dict[str, str]] = {}
    for language, path in _files_of(folder, ".csv", languages, mistakes):
        try:
            rows = list(csv.reader(io.StringIO(read_text(path)), strict=True))
        except (OSError, ValueError, csv.Error) as error:
            mistakes.append(f"{path}: expected a table in UTF-8, got something else ({error}); correct it")
            continue
        if not rows or rows[0] != ["original", "shown"]:
            got = ",".join(rows[0]) if rows else ""
            mistakes.append(f"{path}: expected the columns original,shown in the first line, got {got!r}")
            continue
        texts: dict[str, str] = {}
        for number, row in enumerate(rows[1:], 2):
            cells = [cell.strip() for cell in row]
            if not any(cells):
                continue
            if len(cells) != 2 or not all(cells):
                mistakes.append(f"{path}: row {number}: expected two texts, got {','.join(row)!r}")
            elif texts.setdefault(cells[0], cells[1]) != cells[1]:
                mistakes.append(f"{path}: row {number}: expected each original once, got {cells[0]!r} twice")
        found[language] = texts
    return found
