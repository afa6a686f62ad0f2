"""Long tables: one row for each option of a question, with the columns person, question, option, chosen, attributes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edpbrl_gym._arrays import Floats
from edpbrl_gym.experiments.people.data import People, Person

__all__ = ["LONG", "Layout", "people_of_long", "people_of_rows"]


@dataclass(frozen=True)
class Layout:
    """The columns of a long table.

    Attributes:
        person: Column of the person.
        question: Column of the question; numbers may begin anew with every person.
        option: Column of the option.
        chosen: Column that is true or 1 in the row of the chosen option.
        attributes: Columns of the attributes; None: all others that vary within a question.
        labelled: Whether the same option has a meaning of its own in all questions, such as "train": then each option
            but the first gets an attribute that is 1 for it.
    """

    person: str = "person"
    question: str = "question"
    option: str = "option"
    chosen: str = "chosen"
    attributes: tuple[str, ...] | None = None
    labelled: bool = False

    @property
    def keys(self) -> tuple[str, str, str, str]:
        """The columns that are no attributes."""
        return self.person, self.question, self.option, self.chosen

    def fits(self, columns: Sequence[str]) -> bool:
        """Whether a table with these columns has this layout."""
        return set(self.keys) | set(self.attributes or ()) <= set(columns)


LONG = Layout()


def people_of_long(table: Any, layout: Layout, *, name: str, source: str, first_line: int = 1) -> People:
    """Read a long table.

    Args:
        table: pandas DataFrame.
        layout: Its columns.
        name: Name of the data.
        source: File or package, for messages.
        first_line: Number of the first row, for messages: 2 for a text file with a header.

    Raises:
        ValueError: A missing column, an empty or repeated key, an attribute that is no finite number, or a question
            with fewer than 2 options or other than one chosen; the message names the line and what was expected.
    """
    missing = [column for column in layout.keys if column not in table.columns]
    if missing:
        raise ValueError(
            f"Expected the columns {', '.join(layout.keys)} and attributes in {source}, it lacks "
            f"{', '.join(missing)} (there are {', '.join(map(str, table.columns))})"
        )
    if not len(table):
        raise ValueError(f"Expected rows of options in {source}, got an empty table")
    for column in layout.keys:
        empty = table[column].isna().to_numpy()
        if empty.any():
            raise ValueError(f"Expected a {column} in line {int(empty.argmax()) + first_line} of {source}, got none")
    names = [column for column in table.columns if column not in layout.keys]
    names = names if layout.attributes is None else list(layout.attributes)
    if not names:
        raise ValueError(f"Expected at least one column of an attribute in {source}, got none")
    features = np.column_stack([_numbers(table, column, source, first_line) for column in names])
    chosen = _truths(table, layout.chosen, source, first_line)
    options = table[layout.option].astype(str).to_numpy()
    if layout.labelled:
        labels = list(dict.fromkeys(options))[1:]
        features = np.column_stack([features, *[(options == label).astype(np.float64) for label in labels]])
        names = [*names, *(f"is_{label}" for label in labels)]
    keys = [table[column].astype(str).to_numpy() for column in (layout.person, layout.question)]
    return people_of_rows(
        keys[0], keys[1], options, chosen, features, names,
        name=name, source=source, first_line=first_line, keep_all=layout.attributes is not None,
    )  # fmt: skip


def people_of_rows(
    persons: NDArray[Any],
    questions: NDArray[Any],
    options: NDArray[Any],
    chosen: NDArray[np.bool_],
    features: Floats,
    attributes: Sequence[str],
    *,
    name: str,
    source: str,
    first_line: int = 1,
    keep_all: bool = True,
) -> People:
    """Gather the rows of options into questions and people, in the order in which they first appear.

    Args:
        persons: Person of each row, (m,).
        questions: Question of each row, (m,).
        options: Option of each row, (m,).
        chosen: Whether it was chosen, (m,).
        features: Attributes, (m, d).
        attributes: Names of the attributes, d of them.
        name: Name of the data.
        source: File or package, for messages.
        first_line: Number of the first row, for messages.
        keep_all: Keep attributes that are the same for all options of every question; they decide no choice.

    Raises:
        ValueError: A question with fewer than 2 options, an option twice, or other than one chosen; or no attribute
            that varies.
    """
    numbers: dict[tuple[Any, Any], list[int]] = {}
    for row, key in enumerate(zip(persons, questions, strict=True)):
        numbers.setdefault(key, []).append(row)
    for (person, question), rows in numbers.items():
        where = f"question {question} of person {person} in {source} (line {rows[0] + first_line})"
        if len(rows) < 2:
            raise ValueError(f"Expected at least 2 options in {where}, got 1; each option has a row of its own")
        if len(set(options[rows])) < len(rows):
            raise ValueError(f"Expected every option once in {where}, got one twice")
        if (count := int(chosen[rows].sum())) != 1:
            raise ValueError(f"Expected exactly one chosen option in {where}, got {count}")
    if not keep_all:
        varying = np.zeros(features.shape[1], dtype=bool)
        for rows in numbers.values():
            varying |= np.ptp(features[rows], axis=0) > 0
        if not varying.any():
            raise ValueError(f"Expected attributes that differ between the options of a question in {source}, got none")
        features = features[:, varying]
        attributes = [one for one, kept in zip(attributes, varying, strict=True) if kept]
    by_person: dict[Any, list[list[int]]] = {}
    for (person, _), rows in numbers.items():
        by_person.setdefault(person, []).append(rows)
    most = max(map(len, numbers.values()))
    people = tuple(_person(str(person), rows, features, chosen, most) for person, rows in by_person.items())
    return People(name, people, tuple(map(str, attributes)), source)


def _person(name: str, questions: list[list[int]], features: Floats, chosen: NDArray[np.bool_], most: int) -> Person:
    table = np.zeros((len(questions), most, features.shape[1]))
    for number, rows in enumerate(questions):
        table[number, : len(rows)] = features[rows]
    picks = np.array([int(np.argmax(chosen[rows])) for rows in questions])
    return Person(name, table, np.array([len(rows) for rows in questions]), picks)


def _numbers(table: Any, column: str, source: str, first_line: int) -> Floats:
    """A column as finite numbers, (m,)."""
    import pandas

    values = pandas.to_numeric(table[column], errors="coerce").to_numpy(dtype=np.float64, na_value=np.nan)
    wrong = ~np.isfinite(values)
    if wrong.any():
        row = int(wrong.argmax())
        raise ValueError(
            f"Expected a finite number in the column {column}, line {row + first_line} of {source}, got "
            f"{table[column].iloc[row]!r}"
        )
    return np.asarray(values)


_TRUTHS = {"1": True, "1.0": True, "true": True, "0": False, "0.0": False, "false": False}


def _truths(table: Any, column: str, source: str, first_line: int) -> NDArray[np.bool_]:
    """A column of 0 and 1, or of true and false, (m,)."""
    texts = table[column].astype(str).str.strip().str.lower().to_numpy()
    wrong = np.array([text not in _TRUTHS for text in texts])
    if wrong.any():
        row = int(wrong.argmax())
        raise ValueError(
            f"Expected 0 or 1 (or true, false) in the column {column}, line {row + first_line} of {source}, got "
            f"{table[column].iloc[row]!r}"
        )
    return np.array([_TRUTHS[text] for text in texts])
