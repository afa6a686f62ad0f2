"""A table of texts, for the terminal and for Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["TextTable"]


@dataclass(frozen=True)
class TextTable:
    """A table for the terminal and for Markdown."""

    title: str  # above it, "" for none
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""  # below it, "" for none
    words: int = 2  # number of columns on the left that hold words; the others hold numbers, aligned to the right

    def markdown(self) -> list[str]:
        """Lines of a Markdown section; none without rows."""
        if not self.rows:
            return []
        lines = [f"## {self.title}", ""] if self.title else []
        rule = "---|" * self.words + "---:|" * (len(self.header) - self.words)
        lines += [f"| {' | '.join(self.header)} |", f"|{rule}", *(f"| {' | '.join(row)} |" for row in self.rows)]
        return [*lines, *(["", self.note] if self.note else [])]

    def rich(self) -> Any:
        """A rich table."""
        from rich.table import Table
        from rich.text import Text

        table = Table(title=Text(self.title) if self.title else None, title_justify="left")
        for number, name in enumerate(self.header):
            table.add_column(Text(name), justify="left" if number < self.words else "right", overflow="fold")
        for row in self.rows:
            table.add_row(*[Text(text) for text in row])
        return table
