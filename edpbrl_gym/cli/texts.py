"""Texts in a file: one in each line, or cells of a table."""

from __future__ import annotations

import json
import re
from pathlib import Path

from edpbrl_gym.cli.console import UsageError

__all__ = ["read_texts"]

_TABLE = re.compile(r'(^|[,;\t|])"?option_1"?([,;\t|]|$)')


def read_texts(source: Path, columns: tuple[str, ...], what: str) -> tuple[list[str], list[str]]:
    """The texts of a file, without empty ones, and the columns that they come from if it is a table.

    Where no columns are given, they are prompt, else text, else option_1, option_2, ...; ``what`` is for messages.
    """
    from edpbrl_gym._texts import read_lines
    from edpbrl_gym.comparisons.tables import is_table

    if not source.is_file():
        raise UsageError(f"Expected a file of {what}s at {source}, found none")
    names: list[str] = []
    if is_table(source):
        names, texts = _from_table(source, columns, what)
    elif columns:
        raise UsageError(f"Expected a table (.csv, .tsv or .parquet) with --column, got {source}")
    else:
        texts = [line.strip() for line in read_lines(source) if line.strip()]
        if _is_json(texts):
            raise UsageError(f"Expected a {what} in each line of {source}, got JSON; write it as a table or as lines")
        if texts and _TABLE.search(texts[0]):
            raise UsageError(
                f"Expected a {what} in each line of {source}, got the header of a table; give it a name ending in .csv"
            )
    if not texts:
        raise UsageError(f"Expected at least one {what} in {source}, found none")
    return texts, names


def _is_json(lines: list[str]) -> bool:
    """Whether lines are JSON, together or each on its own, not texts in brackets."""
    if not lines or lines[0][0] not in "[{":
        return False
    for text in ("\n".join(lines), lines[0]):
        try:
            return isinstance(json.loads(text), (dict, list))
        except (ValueError, RecursionError):
            continue
    return False


def _from_table(source: Path, columns: tuple[str, ...], what: str) -> tuple[list[str], list[str]]:
    from edpbrl_gym.comparisons.tables import read_table

    table = read_table(source, f"a table of {what}s")
    names = list(columns)
    if not names:
        options = [name for name in table.header if name.startswith("option_")]
        candidates = (["prompt"], ["text"], options)
        names = next((names for names in candidates if names and names[0] in table), [])
    missing = [name for name in names if name not in table]
    if missing or not names:
        expected = ", ".join(missing) or "prompt, text or option_1, option_2, ..."
        raise UsageError(
            f"Expected the column(s) {expected} in {source}, which has {', '.join(table.header)}; name the columns "
            f"with {what}s by --column"
        )
    return names, [text for row in zip(*map(table.texts, names), strict=True) for text in row if text]
