"""The one reader of tables that people hand over, as spreadsheets, pandas, R and databases write them.

A text file is read whatever separates its columns, in UTF-8, UTF-16 or UTF-32, with any line end, packed by gzip or
not. A parquet file gives the levels of a pandas index as columns. Cells are texts; what they mean is asked by column,
with methods that refuse what they would have to guess. An empty cell, null and NaN are no value. The words None, NA,
nan and null are texts like others, and no numbers.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edpbrl_gym._arrays import Floats
from edpbrl_gym._files import reading
from edpbrl_gym._texts import decode, read_bytes
from edpbrl_gym.comparisons.delimited import SAMPLE, read_delimited

__all__ = ["ENDINGS", "KINDS", "TRUTHS", "WHOLE", "Table", "column_names", "is_table", "read_table", "table_of_arrow"]

_log = logging.getLogger(__name__)

ENDINGS = (".parquet", ".csv", ".tsv", ".csv.gz", ".tsv.gz")
"""Of the names of tables, in any case."""

KINDS = ("text", "number", "truth value", "date")
"""Kinds of columns that can be read; see ``Table``."""

WHOLE = re.compile(r"([0-9]{1,18})([.,]0+)?")
"""A whole number; pandas writes 2.0, or 2,0, where another cell of the column is empty."""

_INDEX = re.compile(
    r"Unnamed: \d+(_level_\d+)?|__index_level_\d+__|row[ ._]?(names?|numbers?|ids?)|index", re.IGNORECASE
)
TRUTHS = {
    **dict.fromkeys(("1", "1.0", "true", "t", "yes"), True), **dict.fromkeys(("0", "0.0", "false", "f", "no"), False)
}  # fmt: skip
_POINT = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_COMMA = re.compile(r"[+-]?(\d+(,\d*)?|,\d+)([eE][+-]?\d+)?", re.ASCII)


@dataclass(frozen=True)
class Table:
    """A table as it was handed over.

    Each method that reads a column raises a ValueError with the place for no such column, more than one, one of another
    type, or a cell that it can't take.

    Rows in which every cell is empty are left out.
    """

    source: Path
    header: list[str]  # names of the columns, trimmed
    columns: list[list[str]]  # cells of each column, "" where there is nothing
    places: list[str]  # where each row stands: "line 3" of a text file (on which it ends), "row 2" of parquet, from 1
    kinds: list[str]  # of each column, one of ``KINDS`` ("text" in a text file) or another type of parquet
    separator: str = ""  # of the columns of a text file
    indices: frozenset[str] = field(default_factory=frozenset)  # columns that number or name rows, of pandas or R

    def __len__(self) -> int:
        return len(self.places)

    def __contains__(self, name: object) -> bool:
        return name in self.header

    def texts(self, name: str) -> list[str]:
        """The column's texts, trimmed, "" where there is none."""
        return self._cells(name, "texts", ("text",))

    def entries(self, name: str) -> list[str]:
        """The column's texts, numbers and truth values as texts, trimmed, "" where there is none."""
        return self._cells(name, "texts or numbers", ("text", "number", "truth value"))

    def keys(self, name: str) -> list[str]:
        """The column's texts, numbers, truth values or dates as texts that tell rows apart."""
        cells = self._cells(name, "texts or numbers", KINDS)
        if "" in cells:
            raise self._wrong(f"a{'n' * (name[:1] in 'aeio')} {name}", name, cells.index(""))
        return cells

    def truths(self, name: str) -> NDArray[np.bool_]:
        """The column of 0 and 1, or of true and false (any case), or yes and no, (n,)."""
        cells = self._cells(name, "0 and 1, or true and false", ("text", "number", "truth value"))
        for row, cell in enumerate(cells):
            if cell.lower() not in TRUTHS:
                raise self._wrong("0 or 1 (or true, false)", name, row)
        return np.array([TRUTHS[cell.lower()] for cell in cells], dtype=bool)

    def whole_numbers(self, name: str, rows: Sequence[int] | None = None) -> NDArray[np.int64]:
        """The column of whole numbers from 0, of all rows or some, (n,)."""
        cells = self._cells(name, "whole numbers", ("text", "number"))
        rows = range(len(self)) if rows is None else rows
        for row in rows:
            if WHOLE.fullmatch(cells[row]) is None:
                raise self._wrong("a whole number", name, row)
        return np.array([int(re.split("[.,]", cells[row])[0]) for row in rows], dtype=np.int64)

    def numbers(self, *names: str, rows: Sequence[int] | None = None) -> Floats:
        """Columns of finite numbers, of all rows or some, (n, number of columns), with one decimal sign in all of them.

        A column of nothing but true and false is 1 and 0.
        """
        columns = [self._cells(name, "numbers", ("text", "number", "truth value")) for name in names]
        rows = range(len(self)) if rows is None else rows
        columns = [_of_truths(cells) for cells in columns]
        comma = self._decimal_comma(names, columns)
        found = np.empty((len(rows), len(names)))
        for column, (name, cells) in enumerate(zip(names, columns, strict=True)):
            for number, row in enumerate(rows):
                if (_COMMA if comma else _POINT).fullmatch(cells[row]) is None:
                    raise self._wrong("a finite number", name, row, _advice(cells[row], comma))
                found[number, column] = float(cells[row].replace(",", "."))
                if not np.isfinite(found[number, column]):
                    raise self._wrong("a finite number", name, row)
        if comma:
            _tell(self.source, f"Decimal commas in {self.source}: read as decimal points")
        return found

    def name_left_out(self, used: Iterable[str], *more: str) -> None:
        """Say in one line of the log, once for a folder, which columns are not used, and what else was left out."""
        unused = [
            (repr(name) if "," in name else name) or "(without a name)"
            for name in dict.fromkeys(self.header)
            if name not in set(used)
        ]
        what = [f"the column{'s' * (len(unused) > 1)} {', '.join(unused)}"] if unused else []
        if what or more:
            _tell(self.source, f"Left out of {self.source}: {'; '.join([*what, *more])}")

    def _cells(self, name: str, expected: str, kinds: Sequence[str]) -> list[str]:
        count = self.header.count(name)
        if count != 1:
            there = ", ".join(self.header) if not count else f"it {count} times; remove or rename one"
            raise ValueError(f"Expected one column {name} in {self.source}, got {there}")
        place = self.header.index(name)
        kind, cells = self.kinds[place], self.columns[place]
        if kind not in kinds and any(cells):
            raise ValueError(
                f"Expected {expected} in the column {name} of {self.source}, got the type {kind}; convert the column "
                "before the file is written"
            )
        return [cell.strip() for cell in cells]

    def _wrong(self, expected: str, name: str, row: int, advice: str = "") -> ValueError:
        cell = self.columns[self.header.index(name)][row]
        came = repr(cell) if cell.strip() else "an empty cell"
        where = f"the column {name}, {self.places[row]} of {self.source}"
        return ValueError(f"Expected {expected} in {where}, got {came}{f'; {advice}' if advice else ''}")

    def _decimal_comma(self, names: Sequence[str], columns: Sequence[list[str]]) -> bool:
        """Whether these columns have decimal commas.

        Where columns are separated by commas, they haven't. Elsewhere a sign before exactly three digits, "1,200", may
        separate thousands: it is decimal if another cell proves it, or if every number of its column has one.
        """
        if self.separator in ("", ","):
            return False
        commas = [[cell for cell in cells if _COMMA.fullmatch(cell) and "," in cell] for cells in columns]
        points = [[cell for cell in cells if _POINT.fullmatch(cell) and "." in cell] for cells in columns]
        if any(commas) and any(points):
            (comma, first), (point, second) = (
                next((number, cells[0]) for number, cells in enumerate(some) if cells) for some in (commas, points)
            )
            other = f"{second!r} in the column {names[point]}, {self.places[columns[point].index(second)]}"
            advice = f"there is {other}: write all numbers with a decimal point"
            raise self._wrong("one decimal sign", names[comma], columns[comma].index(first), advice)
        signed = commas if any(commas) else points if self.separator == ";" else []
        if any(re.fullmatch(r"[+-]?[1-9]\d{0,2}[.,]\d{3}", cell) is None for cells in signed for cell in cells):
            return any(commas)
        for name, cells, some in zip(names, columns, signed, strict=False):
            if some and len(some) < len(cells):
                raise self._wrong(
                    "a number that can be read in one way only", name, cells.index(some[0]),
                    "it may have a decimal sign or a separator of thousands: write numbers with a decimal point and "
                    "without separators of thousands, separated by commas or tabs",
                )  # fmt: skip
        return any(commas)


_TOLD: set[tuple[Path, str]] = set()


def _tell(source: Path, message: str) -> None:
    """Write a line to the log, once for the files of a folder."""
    key = (source.parent, message.replace(str(source), ""))
    if key not in _TOLD:
        _TOLD.add(key)
        _log.warning("%s", message)


def _of_truths(cells: list[str]) -> list[str]:
    if cells and all(cell.lower() in ("true", "false", "") for cell in cells):
        return [{"true": "1", "false": "0"}.get(cell.lower(), "") for cell in cells]
    return cells


def _advice(cell: str, comma: bool) -> str:
    if not cell or cell.lower() in ("na", "nan", "none", "null", "n/a", "-", "."):
        return "fill it in, or leave this row or column out"
    if re.fullmatch(r"[+-]?\d[\d., '\u00a0\u2009\u202f_\u2019]*", cell, re.ASCII):
        return (
            "write numbers with a decimal " + ("comma" if comma else "point") + " and without separators of thousands"
        )
    return ""


def is_table(path: Path) -> bool:
    """Whether a file is a table by its name."""
    return path.name.lower().endswith(ENDINGS)


def column_names(path: Path) -> list[str]:
    """Names of the columns of a table; of a parquet file only the schema is read."""
    if path.suffix.lower() != ".parquet":
        return read_table(path, limit=SAMPLE).header
    import pyarrow
    import pyarrow.parquet

    try:
        return list(pyarrow.parquet.read_schema(path).names)
    except (pyarrow.ArrowException, OSError) as error:
        raise ValueError(f"Expected a parquet file in {path}, got a damaged or other one ({error})") from None


def read_table(path: Path, what: str = "a table", *, whole: bool = False, limit: int | None = None) -> Table:
    """Read a table.

    Args:
        path: A parquet file (by its name, or its contents), or a text file with a header.
        what: What the file should hold, for messages.
        whole: Refuse rows of a text file with fewer cells than the header.
        limit: Read no more than so many records of a text file, with the header.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: It is damaged, no table, has no header, or a row has more cells than the header.
    """
    if path.suffix.lower() == ".parquet":
        return _of_parquet(path, what)
    data = read_bytes(path)
    if data.startswith(b"PAR1"):
        return _of_parquet(path, what)
    if data.startswith(b"PK\x03\x04"):
        raise ValueError(
            f"Expected {what} as CSV or parquet in {path}, got a workbook or another packed file; save the sheet as "
            "CSV (UTF-8)"
        )
    if data.startswith(b"\x1f\x8b"):
        raise ValueError(f"Expected {what} in {path}, got a file packed by gzip; give it a name ending in .gz")
    text = decode(data, path)
    if text.lstrip()[:1] in ("[", "{"):
        raise ValueError(
            f"Expected a table (CSV or parquet) in {path}, got JSON; write it as one, for example with "
            "pandas.read_json(...).to_csv(..., index=False)"
        )
    return _of_text(text, path, what, whole=whole, limit=limit)


def _of_text(text: str, path: Path, what: str, *, whole: bool, limit: int | None) -> Table:
    found = read_delimited(text, path, what, whole=whole, limit=limit)
    header, columns = found.header, found.columns
    kept = [place for place, name in enumerate(header) if name or any(columns[place])]
    names = [header[place] for place in kept]
    indices = {name for name in names if _INDEX.fullmatch(name)} | ({""} if names and not names[0] else set())
    return Table(
        path, names, [columns[place] for place in kept], [f"line {line}" for line in found.lines],
        ["text"] * len(names), found.separator, frozenset(indices),
    )  # fmt: skip


def _of_parquet(path: Path, what: str) -> Table:
    import pyarrow.parquet

    with reading(what, path):
        return table_of_arrow(pyarrow.parquet.read_table(path, partitioning=None), path)


def table_of_arrow(table: Any, path: Path) -> Table:
    """A pyarrow.Table as a table from ``path``."""
    names, kinds, columns = [], [], []
    for name, column in zip(table.column_names, table.columns, strict=True):
        kind = _kind(column.type)
        names.append(name.strip())
        kinds.append(kind)
        columns.append([_cell(value, kind) for value in column.to_pylist()])
    described = _pandas_index(table.schema.metadata)
    for level in described:
        if isinstance(level, dict) and level.get("name") is not None and level["name"] not in names:
            steps = range(level["start"], level["stop"], level["step"])
            if len(steps) == table.num_rows:  # an index that counts is described and not stored
                names.append(str(level["name"]))
                kinds.append("number")
                columns.append([str(number) for number in steps])
    filled = [row for row in range(table.num_rows) if any(column[row] for column in columns)]
    indices = {str(level.get("name")) if isinstance(level, dict) else str(level) for level in described}
    indices |= {name for name in names if _INDEX.fullmatch(name) or not name}
    return Table(
        path, names, [[column[row] for row in filled] for column in columns], [f"row {row + 1}" for row in filled],
        kinds, "", frozenset(indices & set(names)),
    )  # fmt: skip


def _pandas_index(metadata: Any) -> list[Any]:
    """The levels of a pandas index: names of columns, or descriptions of counting ones."""
    try:
        levels = json.loads((metadata or {}).get(b"pandas", b"{}")).get("index_columns", [])
        return [level for level in levels if isinstance(level, (str, dict))]
    except (ValueError, AttributeError, TypeError):
        return []


def _kind(kind: Any) -> str:
    import pyarrow.types as types

    if types.is_dictionary(kind):
        return _kind(kind.value_type)
    tests = {
        "text": (types.is_string, types.is_large_string, types.is_string_view, types.is_null),
        "number": (types.is_integer, types.is_floating, types.is_decimal),
        "truth value": (types.is_boolean,),
        "date": (types.is_date, types.is_timestamp),
    }
    return next((name for name, some in tests.items() if any(test(kind) for test in some)), str(kind))


def _cell(value: Any, kind: str) -> str:
    if value is None or (kind == "number" and value != value):
        return ""
    return str(value) if kind in KINDS else "..."  # others are never shown
