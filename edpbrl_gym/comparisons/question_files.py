"""Questions of a study as a table, read back with its ``choice`` column filled in.

``choice`` holds the number 1..K of the best option, or several numbers in order, best first, for a partial ranking
("4 1 7" or "4 > 1 > 7"). A column ``worst``, which a study may add, holds the number of the worst option beside the
best; a column ``rating`` in the place of ``choice`` the level of each option in order, from 1. A question with fewer
options than others leaves the last cells empty.
"""

from __future__ import annotations

import logging
import math
import os
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from edpbrl_gym._places import write_atomically
from edpbrl_gym.comparisons.delimited import write_csv
from edpbrl_gym.comparisons.records import Comparisons
from edpbrl_gym.comparisons.refusals import is_tie, refuse_other_forms, tie_error
from edpbrl_gym.comparisons.tables import WHOLE, Table, read_table
from edpbrl_gym.features import TextEncoder, as_encoder
from edpbrl_gym.features.notices import differing, equal_options, same_options
from edpbrl_gym.likelihood import FORMATS, Response
from edpbrl_gym.likelihood.table import format_by_columns
from edpbrl_gym.vocabulary.tokens import normalise, unseen

__all__ = ["ANSWER_COLUMNS", "check_same_options", "holds_answers", "read_answers", "read_questions", "write_questions"]

_log = logging.getLogger(__name__)
_WHAT = "a table of questions"
_START = "start from the questions file of `edpbrl design`"
ANSWER_COLUMNS = tuple(dict.fromkeys(name for one in FORMATS.values() for name in one.columns))


def write_questions(path: str | os.PathLike[str], questions: Sequence[tuple[int, int, list[str]]]) -> Path:
    """Write questions to a .csv or .parquet file: columns episode, step, option_1 ... option_K and an empty choice.

    A study fills in ``choice`` with the number 1..K of the option that the person likes best, or richer answers (see
    the module). Options that a spreadsheet would interpret as formulas are escaped in a .csv file (see ``delimited``).

    Args:
        path: File ending in .csv or .parquet.
        questions: Entries (episode, step, K texts), of which the last cells stay empty where K is not the largest.
    """
    target = Path(path)
    rows: list[dict[str, Any]] = [
        {"episode": episode, "step": step, **{f"option_{number + 1}": text for number, text in enumerate(texts)}}
        for episode, step, texts in questions
    ]
    most = max((len(texts) for _, _, texts in questions), default=0)
    options = [f"option_{number + 1}" for number in range(most)]
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
    table = read_table(source, _WHAT)
    return "choice" in table and any(table.entries("choice"))


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
    table = read_table(source, _WHAT)
    names = _options(table.header, source)
    if not len(table):
        raise ValueError(f"Expected at least one question in {source}, got none; {_START}")
    rows = range(len(table))
    texts = _texts(table, names, rows)
    episodes, steps = (_counters(table, name, rows).tolist() for name in ("episode", "step"))
    table.name_left_out([*names, "episode", "step", *ANSWER_COLUMNS])
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
            in its name, a question has fewer than two options or an empty one before its last, an option has control
            characters, no question is answered, or an answer is a tie, or isn't made of numbers of its options (the
            message names row and column); or no question has two options with different embeddings.
    """
    source = Path(path)
    if not source.is_file():
        raise FileNotFoundError(f"Expected a file of answered questions at {source}, found none; check the path")
    table = read_table(source, _WHAT)
    names = _options(table.header, source)
    entries = {name: table.entries(name) for name in ANSWER_COLUMNS if name in table}
    cells = [{name: column[row] for name, column in entries.items() if column[row]} for row in range(len(table))]
    texts = _texts(table, names, range(len(table)))
    answered = [row for row, cell in enumerate(cells) if cell]
    if not answered:
        raise ValueError(
            f"Expected at least one answer in the column choice of {source}, got none; fill in 1..{len(names)}"
        )
    responses = tuple(_response(cells[row], _position(table, row), len(texts[row]), source) for row in answered)
    counters = {name: _counters(table, name, answered) for name in ("episode", "step")}
    table.name_left_out([*names, "episode", "step", *ANSWER_COLUMNS])
    texts = [texts[row] for row in answered]
    flat = [text for question in texts for text in question]
    ends = np.cumsum([len(question) for question in texts])
    encoder = as_encoder(encoder)
    comparisons = Comparisons(
        features=np.split(encoder.encode(flat, progress=progress), ends[:-1]),  # type: ignore[arg-type]
        responses=responses,
        texts=texts,
        who=source.name,
        metadata={"encoder": encoder.name, "encoder_fingerprint": encoder.fingerprint, "file": source.name},
        **counters,
    )
    check_same_options(comparisons, source)
    return comparisons, len(table) - len(answered)


def _position(table: Table, row: int) -> str:
    return f"question {row + 1} ({table.places[row]})"


def _least(header: Sequence[str]) -> float:
    """Least number of options that the formats of the columns of answers need; infinite without such columns."""
    return min(
        (one.least for one in FORMATS.values() if one.columns[:1] and one.columns[0] in header), default=math.inf
    )


def _texts(table: Table, names: Sequence[str], rows: Sequence[int]) -> list[list[str]]:
    """The texts of the options of each question; empty cells at its end are no options."""
    least = _least(table.header)
    columns = [table.texts(name) for name in names]
    texts = []
    for row in rows:
        cells = [column[row] for column in columns]
        while len(cells) > least and not cells[-1]:
            cells.pop()
        for name, cell in zip(names, cells, strict=False):
            _check_option(cell, f"column {name} of {_position(table, row)}", table.source)
        texts.append([normalise(cell) for cell in cells])
    return texts


def _counters(table: Table, name: str, rows: Sequence[int]) -> np.ndarray:
    """The column as integers; zeros if there is no such column."""
    return table.whole_numbers(name, rows) if name in table else np.zeros(len(rows), dtype=np.int64)


def _options(header: list[str], source: Path) -> list[str]:
    """The names option_1 ... option_K of the header, in order."""
    option_columns = [name for name in header if "option" in name.lower()]  # a misspelt one must not vanish
    repeated = [
        name for name, count in Counter(header).items() if count > 1 and name in (*option_columns, *ANSWER_COLUMNS)
    ]
    if repeated:
        raise ValueError(f"Expected every column once in {source}, got {repeated[0]} more than once; remove one")
    expected = [f"option_{number}" for number in range(1, len(option_columns) + 1)]
    if len(option_columns) < _least(header):
        refuse_other_forms(header, source)
        raise ValueError(
            f"Expected columns option_1, option_2, ... and choice in {source}, or those of a long table (question, "
            f"option, chosen, attributes), got {', '.join(header)}; {_START}"
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


def _response(cells: dict[str, str], position: str, options: int, source: Path) -> Response:
    """The answer of a row: of the format whose columns are filled in."""
    for text in cells.values():
        if is_tie(text):
            raise tie_error(text, f"{position} of {source}")
    format = format_by_columns(cells)
    if format is None:
        raise ValueError(f"Expected a choice beside the {next(iter(cells))} option in {position} of {source}, got none")
    most = format.highest(options)
    given = [
        _number(part, text, position, most, source)
        for text in cells.values()
        for part in re.split(r"\s*>\s*|\s+", text)
    ]
    try:
        return format.from_cells(given, options)
    except ValueError:
        got = " and ".join(f"{name} {text!r}" for name, text in cells.items())
        raise ValueError(f"Expected {format.words(options).expected} in {source}, got {got} in {position}") from None


def _number(part: str, text: str, position: str, most: int, source: Path) -> int:
    match = WHOLE.fullmatch(part)
    number = int(match[1]) if match else 0
    if not 1 <= number <= most:
        raise ValueError(
            f"Expected choices 1..{most} in {source}, got {text!r} in {position}; write the number of the preferred "
            "option, or leave the cell empty where there is no answer"
        )
    return number - 1


def check_same_options(comparisons: Comparisons, source: str | os.PathLike[str]) -> None:
    """Warn of questions with different options that have equal features; a warning names the first two.

    Args:
        comparisons: Answers of a file.
        source: The file, for the message.

    Raises:
        ValueError: No question has two options with different features, so nothing can be learnt.
    """
    if comparisons.texts is None or not len(comparisons):
        return
    found = same_options(comparisons.texts, comparisons.features)
    if not found:
        return
    question, one, other = found[0]
    options = comparisons.texts[question]
    first, second = differing(options[one], options[other])
    encoder = comparisons.metadata.get("encoder", "the encoder")
    pair = (
        f"in question {question + 1} option {one + 1} ({first!r}) and option {other + 1} ({second!r}) have equal "
        f"embeddings by {encoder}"
    )
    there = comparisons.present
    if not (~equal_options(comparisons.features) & there[:, :, None] & there[:, None]).any():
        raise ValueError(
            f"Expected options with different embeddings in {source}, got none, so nothing can be learnt from these "
            f"answers: {pair}; shorten what they share, or take another encoder"
        )
    _log.warning(
        "%d of %d questions of %s have different options with equal embeddings, about which nothing can be learnt: %s",
        len(found), len(comparisons), source, pair,
    )  # fmt: skip
