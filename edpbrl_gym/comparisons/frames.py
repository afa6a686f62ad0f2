"""Questions as tables of pandas, and tables of pandas as questions.

Tables that do not fit raise a ValueError that names column and row.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from edpbrl_gym._arrays import Floats
from edpbrl_gym._compat import require
from edpbrl_gym._validation import check_integers
from edpbrl_gym.comparisons.layouts import KEYS, Layout, find_layout, plain_name
from edpbrl_gym.comparisons.long_tables import gathered, question_keys, read_long
from edpbrl_gym.comparisons.tables import Table, table_of_arrow

if TYPE_CHECKING:
    import pandas

    from edpbrl_gym.comparisons.records import Comparisons

__all__ = ["answers_of_frame", "long_frame", "one_person", "options_of_frame", "table_of_frame"]

_CHOSEN = "chosen"


def table_of_frame(frame: pandas.DataFrame) -> Table:
    """A DataFrame as a table; levels of its index that have a name are columns."""
    import pyarrow

    try:
        arrow = pyarrow.Table.from_pandas(frame.rename(columns=str))
    except (pyarrow.ArrowException, TypeError, ValueError) as error:
        raise ValueError(f"Expected a table with one type in each column, got another ({error})") from None
    table = table_of_arrow(arrow, Path("the DataFrame"))
    if len(table) < len(frame):
        raise ValueError(f"Expected a value in each row of the DataFrame, got {len(frame) - len(table)} empty row(s)")
    return table


def one_person(people: list[Comparisons], source: object, person: object = None) -> Comparisons:
    """The person with a name, or the only person of a table."""
    if person is not None:
        found = next((one for one in people if one.who == str(person)), None)
        if found is None:
            there = ", ".join(one.who for one in people[:5]) + (", ..." if len(people) > 5 else "")
            raise ValueError(f"Expected answers of the person {str(person)!r} in {source}, got those of {there}")
        return found
    if len(people) > 1:
        names = ", ".join(one.who for one in people[:3])
        raise ValueError(
            f"Expected answers of one person in {source}, got {len(people)} people ({names}, ...); name one "
            "(--person, person=), take each of them (load_people, `edpbrl fit-population`), or leave the column of the "
            "person out, if every question has its own number, for one taste of all"
        )
    return people[0]


def answers_of_frame(frame: pandas.DataFrame, choices: Any = None) -> Comparisons:
    """The answers of one person in a long table, with the choices in a column of it, or apart.

    Args:
        frame: The table, a row for each option.
        choices: The chosen option of each question, (n,), by its name, or its place if options have no names; a
            pandas.Series with the questions as index is taken in their order. Or a truth value for each row, (m,).
    """
    table = table_of_frame(frame)
    if choices is None:
        return one_person(read_long(table).comparisons(), table.source)
    layout = find_layout(table.header)
    if layout is not None:
        raise ValueError(
            f"Expected options without choices beside the choices, got the column {layout.chosen or layout.rank}; drop "
            "it, or leave the choices out"
        )
    layout = find_layout([*table.header, _CHOSEN])
    if layout is None or not len(table):
        raise ValueError(
            f"Expected a row for each option, and the question as a column or a level of the index, in {table.source}, "
            f"got {len(table)} row(s) of {', '.join(table.header)}; name the column question"
        )
    marks = ["1" if mark else "0" for mark in _marks(table, layout, choices)]
    marked = Table(
        table.source, [*table.header, _CHOSEN], [*table.columns, marks], table.places, [*table.kinds, "number"],
        table.separator, table.indices,
    )  # fmt: skip
    return one_person(read_long(marked, layout).comparisons(), table.source)


def _marks(table: Table, layout: Layout, choices: Any) -> list[bool]:
    """Whether each row was chosen."""
    persons, questions, options = question_keys(table, layout)
    rows = list(gathered(persons, questions).values())
    index = getattr(choices, "index", None)
    given = np.asarray(choices)
    if given.shape == (len(table),):
        if not np.isin(given, (0, 1)).all():
            raise ValueError(f"Expected a truth value for each of the {len(table)} rows, got others; give 0 and 1")
        return [bool(one) for one in given]
    if given.shape != (len(rows),):
        raise ValueError(
            f"Expected a choice for each of the {len(rows)} questions, or a truth value for each of the {len(table)} "
            f"rows, got choices of shape {given.shape}"
        )
    names = [questions[one[0]] for one in rows]
    if (
        index is not None
        and not callable(index)
        and set(map(str, index)) == set(names)
        and len(set(names)) == len(names)
    ):
        place = {str(name): number for number, name in enumerate(index)}
        given = given[[place[name] for name in names]]
    marks = [False] * len(table)
    if options is None:
        for number, choice in enumerate(check_integers(given, "choices", shape=(len(rows),), low=0).tolist()):
            if choice >= len(rows[number]):
                raise ValueError(
                    f"Expected a choice in 0..{len(rows[number]) - 1} of question {names[number]}, got {choice}"
                )
            marks[rows[number][choice]] = True
        return marks
    for number, choice in enumerate(given.tolist()):
        wanted = str(int(choice)) if isinstance(choice, float) and choice.is_integer() else str(choice)
        found = [row for row in rows[number] if options[row] == wanted]
        if not found:
            there = ", ".join(options[row] for row in rows[number])
            raise ValueError(f"Expected the name of an option ({there}) for question {names[number]}, got {choice!r}")
        marks[found[0]] = True
    return marks


def options_of_frame(
    frame: pandas.DataFrame, dimension: int, attributes: tuple[str, ...] | None
) -> tuple[Floats, list[list[int]]]:
    """Features of options in rows, (m, d), and the rows of each question; without a question all rows are one.

    Rows of options that are not available are in no question, and NaN.

    Args:
        frame: The table.
        dimension: Number of features d.
        attributes: Names of the columns; None: all but the keys, of which there must be d.
    """
    table = table_of_frame(frame)
    layout = find_layout(table.header) or find_layout([*table.header, _CHOSEN])
    keys = () if layout is None else layout.keys
    others = {name for key in KEYS.values() for name in key}
    free = [name for name in table.header if name not in table.indices and name not in keys]
    names = list(attributes) if attributes else [name for name in free if name.lower() not in others]
    missing = [name for name in names if name not in table]
    if missing or len(names) != dimension:
        raise ValueError(
            f"Expected the {dimension} features {', '.join(attributes or ())} as columns of {table.source}, got "
            f"{', '.join(free) or 'none'}"
        )
    rows = list(range(len(table)))
    available = next((name for name in table.header if plain_name(name) in KEYS["available"]), None)
    if available is not None and available not in names:
        rows = np.flatnonzero(table.truths(available)).tolist()
    features = np.full((len(table), len(names)), np.nan)
    features[rows] = table.numbers(*names, rows=rows)
    if layout is None:
        return features, [rows]
    persons, questions, _ = question_keys(table, layout)
    found = gathered([persons[row] for row in rows], [questions[row] for row in rows]).values()
    return features, [[rows[place] for place in question] for question in found]


def long_frame(comparisons: Comparisons) -> pandas.DataFrame:
    """See ``Comparisons.to_pandas``."""
    pandas: Any = require("pandas", "tables")
    sizes, responses, who = comparisons.sizes, comparisons.responses, comparisons.who
    present = comparisons.present
    question, option = np.nonzero(present)
    columns: dict[str, Any] = {
        **({"person": [who] * len(question)} if who else {}),
        "question": question,
        "episode": comparisons.episode[question],
        "step": comparisons.step[question],
        "option": option + 1,
    }
    if comparisons.texts is not None:
        columns["text"] = [text for texts in comparisons.texts for text in texts]
    columns["chosen"] = [responses[q].first == k for q, k in zip(question.tolist(), option.tolist(), strict=True)]
    if any(response.kind != "best" for response in responses):
        columns["response"] = np.repeat([response.kind for response in responses], sizes)
        places = [
            response.places(size).get(option)
            for response, size in zip(responses, sizes.tolist(), strict=True)
            for option in range(size)
        ]
        columns["place"] = pandas.array(places, dtype="Int64")
    if any(response.levels for response in responses):
        levels = [
            response.levels[option] + 1 if response.levels else None
            for response, size in zip(responses, sizes.tolist(), strict=True)
            for option in range(size)
        ]
        columns["level"] = pandas.array(levels, dtype="Int64")
    if comparisons.answered_at is not None:
        columns["answered_at"] = comparisons.answered_at[question]
    features = pandas.DataFrame(comparisons.features[present], columns=list(comparisons.attributes))
    return pandas.concat([pandas.DataFrame(columns), features], axis=1)
