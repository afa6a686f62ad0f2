"""Files with answers: comparisons (.parquet), questions files with their choice filled in, and long tables.

A place without such a file raises a FileNotFoundError; a file of another form, a damaged one, one without an answer
that names a best option, the same file twice, or features of different encoders a ValueError that names it.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from edpbrl_gym.comparisons.frames import one_person, table_of_frame
from edpbrl_gym.comparisons.layouts import find_layout
from edpbrl_gym.comparisons.long_tables import read_long, refuse_incomplete
from edpbrl_gym.comparisons.queries import is_frame
from edpbrl_gym.comparisons.question_files import ANSWER_COLUMNS, check_same_options, read_answers
from edpbrl_gym.comparisons.records import Comparisons
from edpbrl_gym.comparisons.refusals import refuse_other_forms
from edpbrl_gym.comparisons.tables import column_names, is_table, read_table
from edpbrl_gym.features import TextEncoder, load_encoder

if TYPE_CHECKING:
    import pandas

__all__ = [
    "answer_files",
    "form_of",
    "holds_answers_of_a_person",
    "load_comparisons",
    "load_people",
    "read_people",
    "read_person",
]

Form = Literal["comparisons", "questions", "long"]

_log = logging.getLogger(__name__)


def answer_files(places: Sequence[Path]) -> list[Path]:
    """The files at some places, of a folder its .parquet, .csv and .tsv files in the order of their names.

    Other files of a folder are named in the log, but for hidden ones and .json.
    """
    found: list[Path] = []
    for place in places:
        if place.is_dir():
            files = sorted(one for one in place.iterdir() if is_table(one))
            others = sorted(one.name for one in place.iterdir() if one.is_file() and one not in files)
            others = [name for name in others if not name.startswith(".") and not name.endswith(".json")]
            if files and others:
                _log.warning("Ignored in %s: %s; answers are .parquet, .csv or .tsv files", place, ", ".join(others))
            if not files:
                raise ValueError(
                    f"Expected files of answers (.parquet or .csv), one for each person, in {place}, got none"
                )
            found += files
        elif place.is_file():
            found.append(place)
        else:
            raise FileNotFoundError(f"Expected a file of answers, or a folder of them, at {place}, found none")
    seen: dict[Path, Path] = {}
    for path in found:
        if seen.setdefault(path.resolve(), path) is not path:
            raise ValueError(f"Expected the answers of each person once, got {path} twice; leave one out")
    return found


def form_of(path: Path) -> Form:
    """What a file of answers is, by its columns: comparisons, a questions file, or a long table.

    A damaged parquet file counts as comparisons, and a table of none of these forms as a questions file, whose readers
    say what is wrong with it.
    """
    try:
        columns = column_names(path)
    except ValueError:
        if path.suffix.lower() == ".parquet":
            return "comparisons"
        raise
    if find_layout(columns) is not None:
        return "long"
    if any(name.startswith("option_") for name in columns):
        return "questions"
    refuse_other_forms(columns, path)
    refuse_incomplete(columns, path)
    return "comparisons" if path.suffix.lower() == ".parquet" else "questions"


def holds_answers_of_a_person(path: Path) -> bool:
    """Whether a file has the columns of one person's answers: comparisons, or a questions file."""
    if not is_table(path):
        return False
    columns = set(column_names(path))
    numbered = {"episode", "step"} <= columns
    return (numbered and "features" in columns) or (
        "option_1" in columns and (numbered or not columns.isdisjoint(ANSWER_COLUMNS))
    )


def read_person(
    path: Path, encoder: Callable[[], TextEncoder], *, person: str | None = None, progress: bool = False
) -> tuple[Comparisons, int]:
    """A person's answers that name a best option, and the number of questions without one.

    Args:
        path: File of comparisons or of questions, or a long table.
        encoder: Loads the encoder of a questions file; not called for others.
        person: Name of the person in a long table of several.
        progress: Show a progress bar while encoding.
    """
    people, unanswered = _read(path, encoder, progress=progress)
    return one_person(people, path, person), unanswered


def read_people(
    files: Sequence[Path], encoder: Callable[[Path], TextEncoder], *, progress: bool = False
) -> list[Comparisons]:
    """The answers of several people with the same features: one file for each, or long tables.

    Args:
        files: Their files, at least one.
        encoder: Loads the encoder of a questions file.
        progress: Show a progress bar while encoding.
    """
    people: list[Comparisons] = []
    for path in files:
        if form_of(path) != "long" and not holds_answers_of_a_person(path):
            raise ValueError(
                f"Expected the answers of a person (option_1, option_2, ..., choice), as `edpbrl estimate` reads them, "
                f"or a long table (question, option, chosen, attributes) in {path}; got columns "
                f"{', '.join(column_names(path))}"
            )
        people += _read(path, lambda path=path: encoder(path), progress=progress)[0]  # type: ignore[misc]
        first, other = _features(people[0]), _features(people[-1])
        if first != other:
            raise ValueError(
                f"Expected the same features in all files, got {first} in {files[0]} and {other} in {path}"
            )
    return people


def load_people(
    source: str | os.PathLike[str] | pandas.DataFrame | Sequence[str | os.PathLike[str]],
    *,
    encoder: TextEncoder | str = "minilm",
) -> list[Comparisons]:
    """The answers of people, whatever they are stored in.

    Args:
        source: A long table (.parquet, .csv, .tsv or a pandas.DataFrame) with a row for each option, of one person or
            many; a file of one person's answers (comparisons, or a questions file with its choices filled in); a folder
            of such files, or a list of files and folders. See `edpbrl_gym.comparisons.long_tables` for the columns.
        encoder: Encoder of the texts of questions files, or its name; not loaded without any.

    Returns:
        The answers of each person that name a best option; ``who`` is the person, or the file of questions. Features of
        long tables are their attributes, named in ``metadata["attributes"]``.

    Raises:
        TypeError: A source of another type.
        FileNotFoundError: There is no such file or folder.
        ValueError: A table that is none of these, or a damaged one; the message names the place.
    """
    if is_frame(source):
        return read_long(table_of_frame(source)).comparisons()
    places = [source] if isinstance(source, (str, os.PathLike)) else source
    if not isinstance(places, Iterable) or not all(isinstance(place, (str, os.PathLike)) for place in places):
        came = ", ".join(type(one).__name__ for one in places) if isinstance(places, list) else type(source).__name__
        raise TypeError(f"Expected a path, a list of paths or a pandas.DataFrame, got {came}")
    loaded: list[TextEncoder] = []

    def load(_: Path) -> TextEncoder:
        if not loaded:
            loaded.append(load_encoder(encoder) if isinstance(encoder, str) else encoder)
        return loaded[0]

    return read_people(answer_files([Path(place) for place in places]), load)


def load_comparisons(
    source: str | os.PathLike[str] | pandas.DataFrame,
    *,
    person: str | None = None,
    encoder: TextEncoder | str = "minilm",
) -> Comparisons:
    """The answers of one person; see ``load_people``.

    Args:
        source: A file, or a pandas.DataFrame.
        person: Name of the person in a table of several.
        encoder: Encoder of the texts of a questions file, or its name.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: As for ``load_people``; or several people of whom none is named, or no such person.
    """
    return one_person(load_people(source, encoder=encoder), "the DataFrame" if is_frame(source) else source, person)


def _read(path: Path, encoder: Callable[[], TextEncoder], *, progress: bool) -> tuple[list[Comparisons], int]:
    """The answers of everybody in a file that name a best option, and the number of questions without one."""
    form = form_of(path)
    if form == "questions":
        comparisons, unanswered = read_answers(path, encoder(), progress=progress)
        return [comparisons], unanswered
    if form == "long":
        table = read_long(read_table(path))
        people = table.comparisons()
        return [replace(one, who=path.name) if not one.who else one for one in people], table.left_out
    comparisons = Comparisons.from_parquet(path)
    decided = comparisons.informative
    if not len(decided):
        raise ValueError(f"Expected answers that name a best option in {path}, got none")
    check_same_options(decided, path)
    return [decided], len(comparisons) - len(decided)


def _features(comparisons: Comparisons) -> str:
    """The features in words, different where they differ."""
    metadata = comparisons.metadata
    if "attributes" in metadata:
        return f"the attributes {', '.join(metadata['attributes'])}"
    if "encoder" not in metadata:
        return f"{comparisons.dimension} features of no known encoder"
    weights = str(metadata.get("encoder_fingerprint"))[:16]
    return f"{comparisons.dimension} features, encoder {metadata['encoder']} (sha256 {weights})"
