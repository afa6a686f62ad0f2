"""Text tables whose columns are separated by a character: which one, the cells as they were written, safe CSV files.

A spreadsheet interprets a cell that begins with =, +, - or @ as a formula, which may send the table elsewhere. Text
cells with such a beginning (or a tab or a line end, which spreadsheets skip, or apostrophes before it) are written with
an apostrophe in front, which ``tables.read_table`` removes.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, zip_longest
from pathlib import Path
from typing import Any

from edpbrl_gym._places import write_atomically

__all__ = ["SAMPLE", "Delimited", "escape_cell", "original_cell", "read_delimited", "write_csv"]


SAMPLE = 1000
"""Records that show the separator and the header."""

_NAMES = {",": "comma", ";": "semicolon", "\t": "tab", "|": "vertical bar"}
_ROW_NAME = re.compile(r'[\r\n]"(\d+(?:\.[\w.-]+)?)"')  # R: 1, 2, ... or 1.bus, 1.car, ...


@dataclass(frozen=True)
class Delimited:
    """A text as a table, without rows in which every cell is empty."""

    header: list[str]  # names of the columns, trimmed; "row names" for the names of rows that R writes without one
    columns: list[list[str]]
    lines: list[int]  # on which each row ends, from 1
    separator: str


def read_delimited(text: str, path: Path, what: str, *, whole: bool = False, limit: int | None = None) -> Delimited:
    """Read a text as a table; the arguments are those of ``tables.read_table``."""
    first = re.match(r'"?sep=([^\r\n])"?[,;\t| ]*(\r\n|\r|\n|$)', text, re.IGNORECASE)
    if first is not None:
        separator, skipped = first[1], 1
        if separator not in _NAMES:
            raise ValueError(
                f"Expected a first line sep= with a comma, semicolon, tab or vertical bar in {path}, got {separator!r}"
            )
        text = text[first.end() :]
    else:
        separator, skipped = _separator(text, path, what), 0
    records = _records(text, separator, path, what, skipped, limit)
    if not records or not any(cell.strip() for cell in records[0][1]):
        raise ValueError(f"Expected {what} with a header in {path}, could not read it: there is no header")
    header = [original_cell(name).strip() for name in records[0][1]]
    other = _separator(text, path, what) if skipped and len(header) == 1 else separator
    if other != separator and len(_records(text, other, path, what, limit=1)[0][1]) > 1:
        raise ValueError(
            f"Expected {_NAMES[separator]}s between the columns of {path}, as its first line sep={separator} says, got "
            "none in the header; remove that line"
        )
    records = records[1:]
    if _has_row_names(header, [cells for _, cells in records], text, separator):
        header = ["row names", *header]
    for line, cells in records:
        if len(cells) > len(header):
            raise ValueError(
                f"Expected {len(header)} field(s) in each row of {path}, as in its header, got {len(cells)} in "
                f"line {line}; put texts that hold a {_NAMES[separator]} in double quotes "
                f'("a gate{separator} fog"){", and write numbers with a decimal point" * (separator == ",")}'
            )
        if whole and len(cells) < len(header):
            raise ValueError(
                f"Expected {len(header)} field(s) in each row of {path}, as in its header, got {len(cells)} in line "
                f"{line}; the file may be cut"
            )
    filled = [(line, cells) for line, cells in records if any(cell.strip() for cell in cells)]
    columns = [list(column) for column in zip_longest(*(cells for _, cells in filled), fillvalue="")]
    columns += [[""] * len(filled) for _ in header[len(columns) :]]
    columns = [[original_cell(cell) if cell[:1] == "'" else cell for cell in column] for column in columns]
    return Delimited(header, columns, [line for line, _ in filled], separator)


def _separator(text: str, path: Path, what: str) -> str:
    """What separates the columns of a text: most columns, and as many cells in all of its first rows, show it."""
    scores: dict[str, float] = {}
    failed: list[tuple[int, str]] = []
    for separator in _NAMES:
        try:
            records = _records(text, separator, path, what, limit=SAMPLE)
        except ValueError:
            failed.append((re.split(r"[\r\n]", text, maxsplit=1)[0].count(separator), separator))
            continue
        columns = len(records[0][1]) if records else 0
        lengths = {len(cells) for _, cells in records[1:]}
        even = lengths <= {columns} or lengths == {columns + 1}
        if columns > 1:
            scores[separator] = columns if even else columns / 2
    if not scores:  # a single column, or a separator with which reading says what is wrong
        return max(failed)[1] if failed and max(failed)[0] else "\t" if ".tsv" in path.name.lower() else ","
    winners = [separator for separator, score in scores.items() if score == max(scores.values())]
    if len(winners) > 1:
        raise ValueError(
            f"Expected one separator of columns in {path}, got {_NAMES[winners[0]]} and {_NAMES[winners[1]]}, which "
            f"both fit; write sep={winners[0]} or sep={winners[1]} as its first line"
        )
    return winners[0]


def _records(
    text: str, separator: str, path: Path, what: str, skipped: int = 0, limit: int | None = None
) -> list[tuple[int, list[str]]]:
    """The cells of each line that isn't blank, or of the first ones, with the number of the line."""
    # a quoted cell may stand after a space, as people write by hand
    bare = re.sub(r'"(?:[^"]|"")*"', '"', text) if ' "' in text else ""
    spaced = re.search(rf'{re.escape(separator)} +"', bare) is not None
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True, skipinitialspace=spaced)
    try:
        return [(reader.line_num + skipped, cells) for cells in islice(reader, limit) if cells]
    except csv.Error as error:
        raise ValueError(
            f"Expected {what} as CSV in {path}, could not read it ({error}, line {reader.line_num + skipped}); save it "
            "as CSV in UTF-8, columns separated by commas"
        ) from None


def _has_row_names(header: list[str], rows: list[list[str]], text: str, separator: str) -> bool:
    """Whether each row begins with a name that the header lacks, as R's write.table writes them.

    A comma inside an unquoted text gives rows with a cell too many as well, but no quoted distinct numbers.
    """
    if not rows or any(len(cells) != len(header) + 1 for cells in rows):
        return False
    names = {cells[0] for cells in rows}
    return len(names) == len(rows) and (separator == "\t" or names <= set(_ROW_NAME.findall(text)))


_FORMULA = re.compile(r"'*[=+\-@\t\r\n]")


def escape_cell(text: str) -> str:
    """Return the text as a cell that no spreadsheet interprets as a formula."""
    return f"'{text}" if _FORMULA.match(text) else text


def original_cell(cell: str) -> str:
    """Undo ``escape_cell``."""
    return cell[1:] if cell.startswith("'") and _FORMULA.match(cell) else cell


def write_csv(path: Path, header: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> None:
    """Write a table atomically with its texts escaped; numbers are written so that they are read back exactly.

    A row has the cell of each column by its name; None and NaN, or no such name, leave it empty.

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
