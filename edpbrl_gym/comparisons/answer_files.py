"""Files with the answers of one person each: comparisons (.parquet), or questions files with their choice filled in."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from edpbrl_gym.comparisons import Comparisons
from edpbrl_gym.comparisons.csv_files import read_header
from edpbrl_gym.comparisons.question_files import read_answers
from edpbrl_gym.features import TextEncoder

__all__ = ["answer_files", "column_names", "holds_answers_of_a_person", "is_comparisons", "read_people", "read_person"]

_ENDINGS = (".parquet", ".csv")


def answer_files(places: Sequence[Path]) -> list[Path]:
    """The files at some places, of a folder its .parquet and .csv files in the order of their names.

    Raises:
        FileNotFoundError: There is no such file or folder.
        ValueError: A folder without such files, or a file twice, whose person would count twice.
    """
    found: list[Path] = []
    for place in places:
        if place.is_dir():
            files = sorted(one for one in place.iterdir() if one.suffix in _ENDINGS)
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


def column_names(path: Path) -> list[str]:
    """Names of the columns of a .parquet or .csv file.

    Raises:
        ValueError: It can't be read as one.
    """
    if path.suffix != ".parquet":
        return read_header(path)
    import pyarrow
    import pyarrow.parquet

    try:
        return list(pyarrow.parquet.read_schema(path).names)
    except (pyarrow.ArrowException, OSError) as error:
        raise ValueError(f"Expected a parquet file in {path}, got a damaged or other one ({error})") from None


def is_comparisons(path: Path) -> bool:
    """Whether it is a .parquet file of comparisons, not one of questions; a damaged one counts as such."""
    if path.suffix != ".parquet":
        return False
    try:
        return not any(name.startswith("option_") for name in column_names(path))
    except ValueError:
        return True  # Comparisons.from_parquet says what is wrong with it


def holds_answers_of_a_person(path: Path) -> bool:
    """Whether a file has the columns of a person's answers, as `edpbrl estimate` reads them.

    Raises:
        ValueError: It can't be read as a table.
    """
    if path.suffix not in _ENDINGS:
        return False
    columns = set(column_names(path))
    return {"episode", "step"} <= columns and ("features" in columns or "option_1" in columns)


def read_person(path: Path, encoder: Callable[[], TextEncoder], *, progress: bool = False) -> tuple[Comparisons, int]:
    """A person's answers that name a best option, and the number of questions without one.

    Args:
        path: File of comparisons or of questions.
        encoder: Loads the encoder of a questions file; not called for comparisons.
        progress: Show a progress bar while encoding.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: A damaged file, or one without such an answer.
    """
    if not is_comparisons(path):
        return read_answers(path, encoder(), progress=progress)
    comparisons = Comparisons.from_parquet(path)
    decided = comparisons.decided
    if not len(decided):
        raise ValueError(f"Expected answers that name a best option in {path}, got none")
    return decided, len(comparisons) - len(decided)


def read_people(
    files: Sequence[Path], encoder: Callable[[Path], TextEncoder], *, progress: bool = False
) -> list[Comparisons]:
    """The answers of several people with the same features, one file for each.

    Args:
        files: Their files, at least one.
        encoder: Loads the encoder of a questions file.
        progress: Show a progress bar while encoding.

    Raises:
        ValueError: A file that holds no person's answers, or files with features of different encoders.
    """
    people: list[Comparisons] = []
    for path in files:
        if not holds_answers_of_a_person(path):
            raise ValueError(
                f"Expected the answers of a person, as `edpbrl estimate` reads them, in {path}; got columns "
                f"{', '.join(column_names(path))}"
            )
        people.append(read_person(path, lambda path=path: encoder(path), progress=progress)[0])  # type: ignore[misc]
        first, other = _features(people[0]), _features(people[-1])
        if first != other:
            raise ValueError(
                f"Expected the same features in all files, got {first} in {files[0]} and {other} in {path}"
            )
    return people


def _features(comparisons: Comparisons) -> str:
    """The features in words, different where they differ."""
    metadata = comparisons.metadata
    if "encoder" not in metadata:
        return f"{comparisons.dimension} features of no known encoder"
    weights = str(metadata.get("encoder_fingerprint"))[:16]
    return f"{comparisons.dimension} features, encoder {metadata['encoder']} (sha256 {weights})"
