"""CSV files that are safe to open in a spreadsheet and are read back exactly.

A spreadsheet interprets a cell that begins with =, +, - or @ as a formula, which may send the table elsewhere. Text
cells with such a beginning (or a tab or a line end, which spreadsheets skip, or apostrophes before it) are written with
an apostrophe in front, which ``read_csv`` removes. A spreadsheet that separates columns by semicolons splits cells
there, and may interpret the text after a semicolon as a formula.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edpbrl_gym._files import errors_naming
from edpbrl_gym._places import write_atomically

__all__ = ["CsvTable", "escape_cell", "original_cell", "read_csv", "read_header", "write_csv"]

_FORMULA = re.compile(r"'*[=+\-@\t\r\n]")
_NAMES = {",": "comma", ";": "semicolon", "\t": "tab"}


@dataclass(frozen=True)
class CsvTable:
    """A CSV file as texts.

    Attributes:
        header: Names of the columns, trimmed.
        rows: Cells of each row, as many as in the header; blank lines are left out.
        lines: Line of the file on which each row ends, counted from 1.
    """

    header: list[str]
    rows: list[list[str]]
    lines: list[int]


def escape_cell(text: str) -> str:
    """Return the text as a cell that no spreadsheet interprets as a formula."""
    return f"'{text}" if _FORMULA.match(text) else text


def original_cell(cell: str) -> str:
    """Undo ``escape_cell``."""
    return cell[1:] if cell.startswith("'") and _FORMULA.match(cell) else cell


def write_csv(path: Path, header: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> None:
    """Write a table atomically with its texts escaped; numbers are written so that they are read back exactly.

    Args:
        path: The file.
        header: Names of the columns.
        rows: Cell of each column by its name; None and NaN, or no such name, leave it empty.

    Raises:
        RunFolderError: If the file can't be written.
    """
    lines = [list(header), *([_cell(row.get(name)) for name in header] for row in rows)]
    returns = any("\r" in cell for line in lines for cell in line)
    quoting: Any = csv.QUOTE_ALL if returns else csv.QUOTE_MINIMAL  # the latter leaves a lone \r unquoted

    def write(temporary: Path) -> None:
        with open(temporary, "w", newline="", encoding="utf-8") as file:
            csv.writer(file, quoting=quoting, lineterminator="\n").writerows(lines)

    write_atomically(path, write)


def _cell(value: Any) -> str:
    if value is None or value != value:  # NaN
        return ""
    if isinstance(value, str):
        return escape_cell(value)
    return repr(float(value)) if isinstance(value, float) else str(value)  # numpy's numbers name their type in a repr


def _separator(file: Any, path: Path) -> str:
    """The separator of a CSV file: spreadsheets write semicolons if the decimal sign is a comma."""
    if path.suffix.lower() == ".tsv":
        return "\t"
    header = file.readline()
    file.seek(0)
    return ";" if ";" in header and "," not in header else ","


def read_header(path: Path) -> list[str]:
    """Names of the columns of a CSV file, without reading its rows; see ``read_csv``.

    Raises:
        ValueError: If it is not a CSV file in UTF-8.
    """
    try:
        with errors_naming(path), open(path, newline="", encoding="utf-8-sig") as file:
            return _header(csv.reader(file, delimiter=_separator(file, path), strict=True))
    except (UnicodeDecodeError, csv.Error) as error:
        raise _unreadable(path, error) from None


def read_csv(path: Path) -> CsvTable:
    """Read a CSV file in UTF-8 as texts, cells as they were before ``write_csv``.

    Columns are separated by commas, in .tsv by tabs, and by semicolons if the header has these and no comma.

    Prompts contain commas. A row with more cells than the header has such a prompt without quotes: it is an error, as
    pandas would silently read only a part of the prompt.

    Raises:
        ValueError: If it is not a CSV file in UTF-8, has no header, or a row has more cells than the header.
    """
    rows, lines = [], []
    try:
        with errors_naming(path), open(path, newline="", encoding="utf-8-sig") as file:
            separator = _separator(file, path)
            reader = csv.reader(file, delimiter=separator, strict=True)
            header = _header(reader)
            for row in reader:
                if len(row) > len(header):
                    raise ValueError(
                        f"Expected {len(header)} field(s) in each row of {path}, as in its header, got {len(row)} in "
                        f"line {reader.line_num}; put prompts that hold a {_NAMES[separator]} in double quotes "
                        '("a gate, fog")'
                    )
                if row:
                    rows.append([original_cell(cell) for cell in row] + [""] * (len(header) - len(row)))
                    lines.append(reader.line_num)
    except (UnicodeDecodeError, csv.Error) as error:
        raise _unreadable(path, error) from None
    if not any(header):
        raise ValueError(f"Expected a CSV file with a header at {path}, got none")
    return CsvTable(header, rows, lines)


def _header(reader: Iterator[list[str]]) -> list[str]:
    return [original_cell(name).strip() for name in next(reader, [])]


def _unreadable(path: Path, error: Exception) -> ValueError:
    return ValueError(
        f"Expected a CSV file in UTF-8 at {path}, but it can't be read ({error}); save it as CSV with UTF-8"
    )
