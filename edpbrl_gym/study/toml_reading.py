"""Strict reading of a TOML document: every mistake is noted and explained, and reading goes on after each."""

from __future__ import annotations

import difflib
import math
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from edpbrl_gym._files import errors_naming

__all__ = ["Mistakes", "Table", "read_document"]

_MAX_SHOWN = 60  # characters of a value in a message


class Mistakes(ValueError):
    """What is wrong in a document, all of it.

    Attributes:
        source: The document.
        mistakes: One sentence each: the key, what was expected, what came, what to do.
    """

    def __init__(self, source: str, mistakes: Sequence[str]) -> None:
        self.source = source
        self.mistakes = tuple(mistakes)
        number = "1 mistake" if len(self.mistakes) == 1 else f"{len(self.mistakes)} mistakes"
        super().__init__(f"{number} in {source}: {'; '.join(self.mistakes)}")


def read_document(path: Path) -> dict[str, Any]:
    """Read a TOML file.

    Raises:
        FileNotFoundError: There is no such file.
        Mistakes: It is no TOML in UTF-8.
    """
    if not path.is_file():
        raise FileNotFoundError(f"Expected a file at {path}, found none; check the path")
    with errors_naming(path):
        data = path.read_bytes()
    try:
        return tomllib.loads(data.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise Mistakes(
            str(path), [f"expected UTF-8, got another byte in line {line}; save the file as UTF-8"]
        ) from None
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise Mistakes(str(path), [f"expected TOML, got something else: {error}; correct that line"]) from None


class Table:
    """A table of the document whose values are taken key by key; a wrong value is noted, and its default returned.

    Args:
        values: The table.
        name: Its dotted name, "" for the document.
        mistakes: List to which mistakes are added, shared by all tables of a document.
    """

    def __init__(self, values: dict[str, Any], name: str, mistakes: list[str]) -> None:
        self._values = values
        self._name = name
        self._taken: set[str] = set()
        self.mistakes = mistakes

    def key(self, name: str) -> str:
        """The full name of a key, for messages."""
        return f"{self._name}.{name}" if self._name else name

    def note(self, name: str, expected: str, remedy: str = "") -> None:
        """Note a mistake in the value of a key."""
        got = _shown(self._values[name]) if name in self._values else "nothing"
        self.mistakes.append(f"{self.key(name)}: expected {expected}, got {got}{f'; {remedy}' if remedy else ''}")

    def has(self, name: str) -> bool:
        """Whether the key is there."""
        return name in self._values

    def _take(self, name: str, kind: type | tuple[type, ...], expected: str, required: bool, remedy: str) -> Any:
        """The value of a key if it has the type; None if not, or if there is none."""
        self._taken.add(name)
        if name not in self._values:
            if required:
                self.note(name, expected, remedy or "add it")
            return None
        value = self._values[name]
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            self.note(name, expected, remedy)
            return None
        return value

    def text(self, name: str, default: str | None = None, *, of: str = "a text", empty: bool = False) -> str:
        """A text in quotes, trimmed; required without a default."""
        value = self._take(name, str, f"{of} in quotes", default is None, "")
        if value is not None and not empty and not value.strip():
            self.note(name, f"{of} in quotes", "write it between the quotes")
            value = None
        return (default or "") if value is None else value.strip()

    def choice(self, name: str, allowed: Sequence[str], default: str) -> str:
        """One of some words."""
        expected = f"one of {', '.join(map(repr, allowed))}"
        value = self._take(name, str, expected, False, "")
        if value is None:
            return default
        if value not in allowed:
            close = difflib.get_close_matches(value, allowed, 1)
            self.note(name, expected, f"did you mean {close[0]!r}?" if close else "")
            return default
        return str(value)

    def integer(self, name: str, default: int, *, minimum: int, maximum: int | None = None) -> int:
        """A whole number in a range."""
        most = f" and at most {maximum}" if maximum is not None else ""
        expected = f"a whole number of at least {minimum}{most}"
        value = self._take(name, int, expected, False, f"write {name} = {default}, without quotes")
        if value is None:
            return default
        if value < minimum or (maximum is not None and value > maximum):
            self.note(name, expected)
            return default
        return int(value)

    def number(self, name: str, default: float, *, minimum: float, maximum: float) -> float:
        """A number in a range."""
        expected = f"a number from {minimum:g} to {maximum:g}"
        value = self._take(name, (int, float), expected, False, f"write {name} = {default:g}, without quotes")
        if value is None:
            return default
        if not math.isfinite(value) or not minimum <= value <= maximum:
            self.note(name, expected)
            return default
        return float(value)

    def flag(self, name: str, default: bool) -> bool:
        """Either true or false."""
        value = self._take(name, bool, "true or false", False, "write it without quotes, in small letters")
        return default if value is None else bool(value)

    def texts(self, name: str, default: Sequence[str], *, of: str, least: int = 1) -> tuple[str, ...]:
        """A list of at least ``least`` different texts."""
        expected = f"a list of {of}, at least {least}, each once"
        value = self._take(name, list, expected, False, "write texts in quotes between [ and ]")
        if value is None:
            return tuple(default)
        texts = [one.strip() for one in value if isinstance(one, str) and one.strip()]
        if len(texts) != len(value) or len(set(texts)) != len(texts) or len(texts) < least:
            self.note(name, expected, "write texts in quotes between [ and ]")
            return tuple(default)
        return tuple(texts)

    def table(self, name: str) -> Table:
        """A table; an empty one if there is none."""
        value = self._take(name, dict, "a table", False, f"begin it with a line [{self.key(name)}]")
        return Table(value or {}, self.key(name), self.mistakes)

    def tables(self, name: str) -> list[Table]:
        """A list of tables, empty if there is none."""
        remedy = f"begin each of them with a line [[{self.key(name)}]]"
        value = self._take(name, list, "a list of tables", False, remedy)
        if value is not None and not all(isinstance(one, dict) for one in value):
            self.note(name, "a list of tables", remedy)
            value = None
        return [Table(one, f"{self.key(name)}[{index}]", self.mistakes) for index, one in enumerate(value or [], 1)]

    def remaining(self) -> dict[str, Any]:
        """All values that were not taken, as they are."""
        rest = {name: value for name, value in self._values.items() if name not in self._taken}
        self._taken |= set(rest)
        return rest

    def refuse_others(self) -> None:
        """Note the keys that were not taken: they would be ignored."""
        for name in self._values:
            if name not in self._taken:
                close = difflib.get_close_matches(name, sorted(self._taken), 1)
                remedy = f"did you mean {close[0]!r}?" if close else "take it out"
                known = ", ".join(sorted(self._taken))
                self.mistakes.append(f"{self.key(name)}: expected one of the keys {known}, got {name!r}; {remedy}")


def _shown(value: Any) -> str:
    text = repr(value)
    kinds = {bool: "", str: "", int: "", float: "", list: "a list, ", dict: "a table, "}
    return f"{kinds.get(type(value), '')}{text if len(text) <= _MAX_SHOWN else text[:_MAX_SHOWN] + '...'}"
