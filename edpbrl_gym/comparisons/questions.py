"""Questions as a table for a study: written before asking, read back with a ``choice`` column."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from edpbrl_gym._places import write_atomically
from edpbrl_gym.comparisons import Comparisons
from edpbrl_gym.comparisons.csv_files import read_csv, write_csv
from edpbrl_gym.features import TextEncoder
from edpbrl_gym.vocabulary.tokens import normalise, unseen

__all__ = ["holds_answers", "read_answers", "write_questions"]

_START = "start from the questions file of `edpbrl design`"


def write_questions(path: str | os.PathLike[str], questions: Sequence[tuple[int, int, list[str]]]) -> Path:
    """Write questions to a .csv or .parquet file: columns episode, step, option_1 ... option_K and an empty choice.

    A study fills in ``choice`` with the number 1..K of the option that the person likes best. Options that a
    spreadsheet would take for formulas have an apostrophe before them in a .csv file (``csv_files``).

    Args:
        path: File ending in .csv or .parquet.
        questions: Entries (episode, step, K texts).
    """
    import pandas

    target = Path(path)
    rows = [
        {"episode": episode, "step": step, **{f"option_{number + 1}": text for number, text in enumerate(texts)}}
        for episode, step, texts in questions
    ]
    table = pandas.DataFrame(rows)
    table["choice"] = pandas.array([None] * len(table), dtype="Int64")
    if target.suffix == ".csv":
        write_csv(target, table)
    elif target.suffix == ".parquet":
        write_atomically(target, lambda name: table.to_parquet(name, index=False))
    else:
        raise ValueError(f"Expected a file ending in .csv or .parquet, got {target}")
    return target


def holds_answers(path: str | os.PathLike[str]) -> bool:
    """Return whether someone has answered a question of the file; False where there is no such file.

    Raises:
        ValueError: If it can't be read as a table.
    """
    source = Path(path)
    if not source.is_file():
        return False
    table = _read_table(source)
    if "choice" not in table.header:
        return False
    place = table.header.index("choice")
    return any(row[place] for row in table.rows)


def read_answers(
    path: str | os.PathLike[str], encoder: TextEncoder, *, progress: bool = False
) -> tuple[Comparisons, int]:
    """Read a questions file whose ``choice`` column was filled in, and embed its options.

    Rows without any cell filled are left out, as spreadsheets write them below a table.

    Args:
        path: File of ``write_questions`` (.csv or .parquet).
        encoder: Embeds the options.
        progress: Show a progress bar while encoding.

    Returns:
        The answered questions, and how many were left without an answer.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If a column is missing, the options aren't numbered 1..K without gaps, another column has "option"
            in its name, an option is empty or holds characters that can't be seen, no question is answered, or a
            choice isn't a number 1..K (the message names row and column).
    """
    source = Path(path)
    if not source.is_file():
        raise FileNotFoundError(f"Expected a file of answered questions at {source}, found none; check the path")
    table = _read_table(source)
    names = _options(table.header, source)
    places = [table.header.index(name) for name in names]
    choice = table.header.index("choice")
    asked = [number for number, row in enumerate(table.rows) if any(row)]
    for number in asked:
        for name, place in zip(names, places, strict=True):
            _check_option(table.rows[number][place], f"column {name} of {table.where[number]}", source)
    answered = [number for number in asked if table.rows[number][choice]]
    if not answered:
        raise ValueError(
            f"Expected at least one answer in the column choice of {source}, got none; fill in 1..{len(names)}"
        )
    choices = [_choice(table.rows[number][choice], table.where[number], len(names), source) for number in answered]
    counters = {name: _whole_numbers(name, table, answered, source) for name in ("episode", "step")}
    texts = [[normalise(table.rows[number][place]) for place in places] for number in answered]
    flat = [text for question in texts for text in question]
    features = encoder.encode(flat, progress=progress).reshape(len(texts), len(names), -1)
    comparisons = Comparisons.of_choices(
        features=features,
        choice=np.array(choices, dtype=np.int64),
        texts=texts,
        who=source.name,
        metadata={"encoder": encoder.name, "encoder_fingerprint": encoder.fingerprint, "file": source.name},
        **counters,
    )
    return comparisons, len(asked) - len(answered)


@dataclass(frozen=True)
class _Table:
    """A table as trimmed texts, "" where a cell is empty, with the words for each row's place."""

    header: list[str]
    rows: list[list[str]]
    where: list[str]


def _read_table(source: Path) -> _Table:
    if source.suffix != ".parquet":
        try:
            found = read_csv(source)
        except (ValueError, OSError) as error:
            raise ValueError(f"Expected a table of questions in {source}, could not read it: {error}") from None
        where = [f"question {number} (line {line})" for number, line in enumerate(found.lines, start=1)]
        return _Table(found.header, [[cell.strip() for cell in row] for row in found.rows], where)
    import pandas

    try:
        table = pandas.read_parquet(source)
    except (OSError, ValueError) as error:
        raise ValueError(f"Expected a table of questions in {source}, could not read it: {error}") from None
    cells = table.astype(object).where(table.notna(), "").to_numpy().tolist()
    rows = [[str(cell).strip() for cell in row] for row in cells]
    return _Table([str(name) for name in table.columns], rows, [f"question {n}" for n in range(1, len(rows) + 1)])


def _options(header: list[str], source: Path) -> list[str]:
    """The names option_1 ... option_K of the header, in order."""
    named = [name for name in header if "option" in name.lower()]  # a misspelt one must not vanish
    twice = [name for name, count in Counter(header).items() if count > 1 and name in (*named, "choice")]
    if twice:
        raise ValueError(f"Expected every column once in {source}, got {twice[0]} more than once; remove one")
    wanted = [f"option_{number}" for number in range(1, len(named) + 1)]
    if len(named) < 2 or "choice" not in header:
        raise ValueError(
            f"Expected columns option_1, option_2, ... and choice in {source}, got {', '.join(header)}; {_START}"
        )
    missing = [name for name in wanted if name not in named]
    if missing:
        raise ValueError(
            f"Expected the options of {source} as the columns {', '.join(wanted)}, without a gap, got "
            f"{', '.join(named)}; {missing[0]} is missing: {_START}, and rename columns that aren't options"
        )
    return wanted


def _check_option(text: str, where: str, source: Path) -> None:
    if not text:
        raise ValueError(
            f"Expected text in every option of {source}, got an empty cell in {where}; write the option that was "
            "shown, or remove the row"
        )
    problem = unseen(" ".join(re.split(r"[\t\r\n]", text)))  # cells may hold several lines
    if problem is not None:
        raise ValueError(f"Expected readable text in {where} of {source}, got {problem}")


def _choice(text: str, where: str, options: int, source: Path) -> int:
    found = re.fullmatch(r"([0-9]{1,6})(\.0+)?", text)  # spreadsheets write 2.0
    number = int(found[1]) if found else 0
    if not 1 <= number <= options:
        raise ValueError(
            f"Expected choices 1..{options} in {source}, got {text!r} in {where}; write the number of the preferred "
            "option"
        )
    return number - 1


def _whole_numbers(name: str, table: _Table, answered: list[int], source: Path) -> np.ndarray:
    """The column as integers; zeros where there is no such column."""
    if name not in table.header:
        return np.zeros(len(answered), dtype=np.int64)
    place = table.header.index(name)
    numbers = []
    for row in answered:
        found = re.fullmatch(r"([0-9]{1,18})(\.0+)?", table.rows[row][place])
        if found is None:
            raise ValueError(
                f"Expected whole numbers in the column {name} of {source}, got {table.rows[row][place]!r} in "
                f"{table.where[row]}; write those of the questions file, or remove the column"
            )
        numbers.append(int(found[1]))
    return np.array(numbers, dtype=np.int64)
