"""Questions of a study as a table, read back with its ``choice`` column filled in.

``choice`` holds the number 1..K of the best option, or several numbers in order, best first, for a partial ranking
("4 1 7" or "4 > 1 > 7"). A column ``worst``, which a study may add, holds the number of the worst option beside the
best.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from edpbrl_gym._files import reading
from edpbrl_gym._places import write_atomically
from edpbrl_gym.comparisons import Comparisons
from edpbrl_gym.comparisons.csv_files import read_csv, write_csv
from edpbrl_gym.features import TextEncoder
from edpbrl_gym.likelihood import Response
from edpbrl_gym.vocabulary.tokens import normalise, unseen

__all__ = ["holds_answers", "read_answers", "read_questions", "write_questions"]

_START = "start from the questions file of `edpbrl design`"


def write_questions(path: str | os.PathLike[str], questions: Sequence[tuple[int, int, list[str]]]) -> Path:
    """Write questions to a .csv or .parquet file: columns episode, step, option_1 ... option_K and an empty choice.

    A study fills in ``choice`` with the number 1..K of the option that the person likes best, or richer answers (see
    the module). Options that a spreadsheet would interpret as formulas are escaped in a .csv file (see ``csv_files``).

    Args:
        path: File ending in .csv or .parquet.
        questions: Entries (episode, step, K texts).
    """
    target = Path(path)
    rows: list[dict[str, Any]] = [
        {"episode": episode, "step": step, **{f"option_{number + 1}": text for number, text in enumerate(texts)}}
        for episode, step, texts in questions
    ]
    options = [name for name in (rows[0] if rows else {}) if name.startswith("option_")]
    header = ["episode", "step", *options, "choice"]
    if target.suffix == ".csv":
        write_csv(target, header, rows)
    elif target.suffix == ".parquet":
        import pyarrow
        import pyarrow.parquet

        kinds = [pyarrow.string() if name in options else pyarrow.int64() for name in header]
        table = pyarrow.Table.from_pylist(rows, schema=pyarrow.schema(list(zip(header, kinds, strict=True))))
        write_atomically(target, lambda name: pyarrow.parquet.write_table(table, name))
    else:
        raise ValueError(f"Expected a file ending in .csv or .parquet, got {target}")
    return target


def holds_answers(path: str | os.PathLike[str]) -> bool:
    """Return whether a question of the file has been answered; False if there is no such file.

    Raises:
        ValueError: If it can't be read as a table.
    """
    source = Path(path)
    if not source.is_file():
        return False
    table = _read_table(source)
    if "choice" not in table.header:
        return False
    column = table.header.index("choice")
    return any(row[column] for row in table.rows)


def read_questions(path: str | os.PathLike[str]) -> list[tuple[int, int, list[str]]]:
    """The questions of a file of ``write_questions``, answered or not: entries (episode, step, K texts).

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If a column is missing, an option is empty, episode or step are no whole numbers, or there is no
            question (the message names row and column).
    """
    source = Path(path)
    if not source.is_file():
        raise FileNotFoundError(f"Expected a file of questions at {source}, found none; check the path")
    table = _read_table(source)
    columns = [(name, table.header.index(name)) for name in _options(table.header, source)]
    rows = [number for number, row in enumerate(table.rows) if any(row)]
    if not rows:
        raise ValueError(f"Expected at least one question in {source}, got none; {_START}")
    for number in rows:
        for name, column in columns:
            _check_option(table.rows[number][column], f"column {name} of {table.positions[number]}", source)
    episodes, steps = (_whole_numbers(name, table, rows, source).tolist() for name in ("episode", "step"))
    texts = [[normalise(table.rows[number][column]) for _, column in columns] for number in rows]
    return list(zip(episodes, steps, texts, strict=True))


def read_answers(
    path: str | os.PathLike[str], encoder: TextEncoder, *, progress: bool = False
) -> tuple[Comparisons, int]:
    """Read a questions file whose ``choice`` column was filled in, and embed its options.

    Empty rows, which spreadsheets write below a table, are left out.

    Args:
        path: File of ``write_questions`` (.csv or .parquet).
        encoder: Encoder of the options.
        progress: Show a progress bar while encoding.

    Returns:
        The answered questions, and the number of unanswered ones.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If a column is missing, the options aren't numbered 1..K without gaps, another column has "option"
            in its name, an option is empty or has invisible characters, no question is answered, or an
            answer isn't made of numbers 1..K (the message names row and column).
    """
    source = Path(path)
    if not source.is_file():
        raise FileNotFoundError(f"Expected a file of answered questions at {source}, found none; check the path")
    table = _read_table(source)
    names = _options(table.header, source)
    columns = [table.header.index(name) for name in names]
    choice = table.header.index("choice")
    non_empty = [number for number, row in enumerate(table.rows) if any(row)]
    for number in non_empty:
        for name, column in zip(names, columns, strict=True):
            _check_option(table.rows[number][column], f"column {name} of {table.positions[number]}", source)
    answered = [number for number in non_empty if table.rows[number][choice]]
    if not answered:
        raise ValueError(
            f"Expected at least one answer in the column choice of {source}, got none; fill in 1..{len(names)}"
        )
    worst = table.header.index("worst") if "worst" in table.header else None
    responses = tuple(_response(table, number, choice, worst, len(names), source) for number in answered)
    counters = {name: _whole_numbers(name, table, answered, source) for name in ("episode", "step")}
    texts = [[normalise(table.rows[number][column]) for column in columns] for number in answered]
    flat = [text for question in texts for text in question]
    features = encoder.encode(flat, progress=progress).reshape(len(texts), len(names), -1)
    comparisons = Comparisons(
        features=features,
        responses=responses,
        texts=texts,
        who=source.name,
        metadata={"encoder": encoder.name, "encoder_fingerprint": encoder.fingerprint, "file": source.name},
        **counters,
    )
    return comparisons, len(non_empty) - len(answered)


@dataclass(frozen=True)
class _Table:
    """A table as trimmed texts, "" for empty cells, with each row's position for messages."""

    header: list[str]
    rows: list[list[str]]
    positions: list[str]


def _read_table(source: Path) -> _Table:
    if source.suffix != ".parquet":
        try:
            csv_table = read_csv(source)
        except (ValueError, OSError) as error:
            raise ValueError(f"Expected a table of questions in {source}, could not read it: {error}") from None
        positions = [f"question {number} (line {line})" for number, line in enumerate(csv_table.lines, start=1)]
        return _Table(csv_table.header, [[cell.strip() for cell in row] for row in csv_table.rows], positions)
    import pyarrow.parquet

    with reading("a table of questions", source):
        table = pyarrow.parquet.read_table(source)
        columns = [column.to_pylist() for column in table.columns]
    cells = [["" if cell is None or cell != cell else str(cell).strip() for cell in column] for column in columns]
    rows = [list(row) for row in zip(*cells, strict=True)]
    return _Table(table.column_names, rows, [f"question {n}" for n in range(1, len(rows) + 1)])


def _options(header: list[str], source: Path) -> list[str]:
    """The names option_1 ... option_K of the header, in order."""
    option_columns = [name for name in header if "option" in name.lower()]  # a misspelt one must not vanish
    repeated = [
        name for name, count in Counter(header).items() if count > 1 and name in (*option_columns, "choice", "worst")
    ]
    if repeated:
        raise ValueError(f"Expected every column once in {source}, got {repeated[0]} more than once; remove one")
    expected = [f"option_{number}" for number in range(1, len(option_columns) + 1)]
    if len(option_columns) < 2 or "choice" not in header:
        raise ValueError(
            f"Expected columns option_1, option_2, ... and choice in {source}, got {', '.join(header)}; {_START}"
        )
    missing = [name for name in expected if name not in option_columns]
    if missing:
        raise ValueError(
            f"Expected the options of {source} as the columns {', '.join(expected)}, without a gap, got "
            f"{', '.join(option_columns)}; {missing[0]} is missing: {_START}, and rename columns that aren't options"
        )
    return expected


def _check_option(text: str, position: str, source: Path) -> None:
    if not text:
        raise ValueError(
            f"Expected text in every option of {source}, got an empty cell in {position}; write the option that was "
            "shown, or remove the row"
        )
    problem = unseen(" ".join(re.split(r"[\t\r\n]", text)))  # cells may hold several lines
    if problem is not None:
        raise ValueError(f"Expected readable text in {position} of {source}, got {problem}")


def _response(table: _Table, row: int, choice: int, worst: int | None, options: int, source: Path) -> Response:
    """The answer of a row: the best option, several in order, or the best and the worst."""
    position, text = table.positions[row], table.rows[row][choice]
    order = tuple(_number(part, text, position, options, source) for part in re.split(r"\s*>\s*|\s+", text))
    last = "" if worst is None else table.rows[row][worst]
    if last:
        order = (*order, _number(last, last, position, options, source))
    if len(set(order)) != len(order) or (last and len(order) != 2):
        raise ValueError(
            f"Expected each option once in {source}, and one best option beside a worst one, got {text!r}"
            f"{f' and worst {last!r}' if last else ''} in {position}"
        )
    if last:
        return Response.best_worst(*order)
    return Response.best(order[0]) if len(order) == 1 else Response.partial(order)


def _number(part: str, text: str, position: str, options: int, source: Path) -> int:
    match = re.fullmatch(r"([0-9]{1,6})(\.0+)?", part)  # spreadsheets write 2.0
    number = int(match[1]) if match else 0
    if not 1 <= number <= options:
        raise ValueError(
            f"Expected choices 1..{options} in {source}, got {text!r} in {position}; write the number of the preferred "
            "option"
        )
    return number - 1


def _whole_numbers(name: str, table: _Table, answered: list[int], source: Path) -> np.ndarray:
    """The column as integers; zeros if there is no such column."""
    if name not in table.header:
        return np.zeros(len(answered), dtype=np.int64)
    column = table.header.index(name)
    numbers = []
    for row in answered:
        match = re.fullmatch(r"([0-9]{1,18})(\.0+)?", table.rows[row][column])
        if match is None:
            raise ValueError(
                f"Expected whole numbers in the column {name} of {source}, got {table.rows[row][column]!r} in "
                f"{table.positions[row]}; write those of the questions file, or remove the column"
            )
        numbers.append(int(match[1]))
    return np.array(numbers, dtype=np.int64)
