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
from edpbrl_gym.comparisons.layouts import find_layout, plain_name
from edpbrl_gym.comparisons.long_tables import read_long, refuse_incomplete
from edpbrl_gym.comparisons.picture_answers import IMAGE_ENCODER, PictureSource, holds_pictures, read_picture_answers
from edpbrl_gym.comparisons.queries import is_frame
from edpbrl_gym.comparisons.question_files import ANSWER_COLUMNS, check_same_options, read_answers
from edpbrl_gym.comparisons.records import Comparisons
from edpbrl_gym.comparisons.refusals import refuse_other_forms, shows_pictures
from edpbrl_gym.comparisons.tables import column_names, is_table, read_table
from edpbrl_gym.features import TextEncoder, load_encoder
from edpbrl_gym.features.images import ImageEncoder

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

Form = Literal["comparisons", "questions", "long", "pictures"]

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
    """What a file of answers is, by its columns: comparisons, a questions file, a long table, or pictures with ranks.

    A damaged parquet file counts as comparisons, and a table of none of these forms as a questions file, whose readers
    say what is wrong with it.
    """
    if holds_pictures(path):
        return "pictures"
    try:
        columns = column_names(path)
    except ValueError:
        if path.suffix.lower() == ".parquet":
            return "comparisons"
        raise
    layout, pictured = find_layout(columns), shows_pictures(columns)
    if layout is not None and not (pictured and plain_name(layout.question) == "id"):
        return "long"
    if any(name.startswith("option_") for name in columns):
        return "questions"
    if pictured:
        return "pictures"
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
    path: Path,
    encoder: Callable[[], TextEncoder],
    *,
    person: str | None = None,
    pictures: PictureSource = PictureSource(),  # noqa: B008 - it is immutable
    progress: bool = False,
) -> tuple[Comparisons, int]:
    """A person's answers that name a best option, and the number of questions without one.

    Args:
        path: File of comparisons or of questions, a long table, or pictures with ranks.
        encoder: Loads the encoder of a questions file; not called for others.
        person: Name of the person in a long table of several.
        pictures: Reads the pictures of answers about pictures.
        progress: Show a progress bar while encoding.
    """
    people, unanswered = _read(path, encoder, pictures, progress=progress)
    return one_person(people, path, person), unanswered


def read_people(
    files: Sequence[Path],
    encoder: Callable[[Path], TextEncoder],
    *,
    pictures: PictureSource = PictureSource(),  # noqa: B008
    progress: bool = False,
) -> list[Comparisons]:
    """The answers of several people with the same features: one file for each, or long tables.

    Args:
        files: Their files, at least one.
        encoder: Loads the encoder of a questions file.
        pictures: Reads the pictures of answers about pictures.
        progress: Show a progress bar while encoding.
    """
    people: list[Comparisons] = []
    for path in files:
        if form_of(path) not in ("long", "pictures") and not holds_answers_of_a_person(path):
            raise ValueError(
                f"Expected the answers of a person (option_1, option_2, ..., choice), as `edpbrl estimate` reads them, "
                f"or a long table (question, option, chosen, attributes) in {path}; got columns "
                f"{', '.join(column_names(path))}"
            )
        people += _read(path, lambda path=path: encoder(path), pictures, progress=progress)[0]  # type: ignore[misc]
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
    image_encoder: ImageEncoder | str = IMAGE_ENCODER,
    pictures: str | os.PathLike[str] | None = None,
) -> list[Comparisons]:
    """The answers of people, whatever they are stored in.

    Args:
        source: A long table (.parquet, .csv, .tsv or a pandas.DataFrame) with a row for each option, of one person or
            many; a file of one person's answers (comparisons, or a questions file with its choices filled in); a folder
            of such files, or a list of files and folders. See `edpbrl_gym.comparisons.long_tables` for the columns.
            Also prompts with pictures and a ranking or labels of them, as ImageReward, HPD and Pick-a-Pic have them
            (.json, .jsonl, .parquet, .csv; `edpbrl_gym.comparisons.picture_answers`).
        encoder: Encoder of the texts of questions files, or its name; not loaded without any.
        image_encoder: Encoder of the pictures that answers are about, or its name.
        pictures: Folder to which the paths of pictures are relative (None: that of the file).

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

    seen = PictureSource(image_encoder, None if pictures is None else Path(pictures))
    return read_people(answer_files([Path(place) for place in places]), load, pictures=seen)


def load_comparisons(
    source: str | os.PathLike[str] | pandas.DataFrame,
    *,
    person: str | None = None,
    encoder: TextEncoder | str = "minilm",
    image_encoder: ImageEncoder | str = IMAGE_ENCODER,
    pictures: str | os.PathLike[str] | None = None,
) -> Comparisons:
    """The answers of one person; see ``load_people``.

    Args:
        source: A file, or a pandas.DataFrame.
        person: Name of the person in a table of several.
        encoder: Encoder of the texts of a questions file, or its name.
        image_encoder: Encoder of the pictures that answers are about, or its name.
        pictures: Folder to which the paths of pictures are relative (None: that of the file).

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: As for ``load_people``; or several people of whom none is named, or no such person.
    """
    people = load_people(source, encoder=encoder, image_encoder=image_encoder, pictures=pictures)
    return one_person(people, "the DataFrame" if is_frame(source) else source, person)


def _read(
    path: Path, encoder: Callable[[], TextEncoder], pictures: PictureSource, *, progress: bool
) -> tuple[list[Comparisons], int]:
    """The answers of everybody in a file that name a best option, and the number of questions without one."""
    form = form_of(path)
    if form == "questions":
        comparisons, unanswered = read_answers(path, encoder(), progress=progress)
        return [comparisons], unanswered
    if form == "pictures":
        return read_picture_answers(path, pictures)
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
