"""Pieces of text that several makers of pages share."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Sequence
from typing import Any

from docstrings import as_rst

__all__ = ["first_paragraph", "markdown_table", "rst_heading", "rst_table"]


def first_paragraph(thing: Any) -> str:
    """The first paragraph of a docstring, on one line."""
    text = inspect.getdoc(thing) or ""
    return " ".join(text.split("\n\n")[0].split())


def rst_heading(text: str, underline: str = "=") -> str:
    """A heading in reStructuredText."""
    return f"{text}\n{underline * len(text)}\n"


def rst_table(header: Sequence[str], rows: Iterable[Sequence[str]], widths: str = "auto") -> str:
    """A list-table, whose cells are reStructuredText of one paragraph each."""
    lines = [".. list-table::", "   :header-rows: 1", f"   :widths: {widths}", ""]
    for row in [header, *rows]:
        for number, cell in enumerate(row):
            lines.append(f"   {'* ' if number == 0 else '  '}- {as_rst([cell])[0]}".rstrip())
    return "\n".join(lines) + "\n"


def markdown_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    lines += ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    return "\n".join(lines) + "\n"
