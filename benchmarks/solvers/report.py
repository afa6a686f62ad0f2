"""The tables of docs/performance.md and docs/solver-measurements.md, between the markers of the pages."""

from __future__ import annotations

import re
from pathlib import Path

from benchmarks.solvers import cells, results, tables

__all__ = ["filled", "write"]


def write(source: Path, page: Path) -> None:
    """Fill a page's tables from the results.

    Raises:
        FileNotFoundError: If there are no results, or there is no page.
        ValueError: If the page asks for a table that does not exist.
    """
    if not source.exists():
        raise FileNotFoundError(f"Expected results in {source}; make them with: python -m benchmarks.solvers run.")
    lines = cells.with_units(results.read(source).values())
    text = page.read_text(encoding="utf-8")
    page.write_text(filled(text, lines), encoding="utf-8")
    print(f"wrote the tables of {page} from {len(lines)} runs")


def filled(text: str, lines: list[results.Line]) -> str:
    """The page with everything between ``<!-- table: name -->`` and ``<!-- end -->`` made anew."""
    measured = cells.with_units(lines)

    def table(match: re.Match[str]) -> str:
        name = match[1]
        if name not in tables.TABLES:
            raise ValueError(f"The page asks for a table {name!r}; known are {', '.join(tables.TABLES)}.")
        return f"<!-- table: {name} -->\n{tables.TABLES[name](measured)}\n<!-- end -->"

    return re.sub(r"<!-- table: ([a-z-]+) -->\n.*?<!-- end -->", table, text, flags=re.S)
