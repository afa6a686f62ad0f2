"""Lists of choices by name, in several languages: the first column is what is stored.

Names of countries and languages are those of the Unicode CLDR, of ISO 3166-1 and ISO 639-1.
"""

from __future__ import annotations

import csv
import unicodedata
from functools import cache
from importlib.resources import files

__all__ = ["LISTS", "list_choices", "list_translations"]

LISTS = {"countries": "countries.csv", "languages": "languages.csv"}
"""Files by name."""


@cache
def _rows(name: str) -> list[dict[str, str]]:
    text = (files("edpbrl_gym.study.forms.lists") / LISTS[name]).read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines()))


def list_choices(name: str) -> tuple[str, ...]:
    """The choices in English, as they are stored."""
    return tuple(row["en"] for row in _rows(name))


def list_translations(name: str) -> dict[str, dict[str, str]]:
    """By language: the names by what is stored."""
    languages = [language for language in _rows(name)[0] if language != "en"]
    return {language: {row["en"]: row[language] for row in _rows(name)} for language in languages}


def sort_key(text: str) -> str:
    """By which names are ordered: letters with marks beside those without."""
    return "".join(one for one in unicodedata.normalize("NFKD", text.casefold()) if not unicodedata.combining(one))
