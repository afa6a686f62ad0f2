"""Long tables: one row for each option of a question, as R's mlogit, xlogit, choice-learn and pandas have them.

Keys are recognised by the names of their columns (``layouts.KEYS``). What was chosen is a truth value in each row, or
the name of the chosen option in all rows of a question, or a rank in each row, 1 the best. All other columns that
differ between the options of a question are attributes, the features; what is the same for all options is left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from edpbrl_gym._arrays import Floats, Indices
from edpbrl_gym.comparisons.layouts import KEYS, Layout, find_layout, plain_name
from edpbrl_gym.comparisons.refusals import is_tie, refuse_other_forms, tie_error
from edpbrl_gym.comparisons.tables import KINDS, TRUTHS, Table
from edpbrl_gym.likelihood import Response

if TYPE_CHECKING:
    from edpbrl_gym.comparisons.records import Comparisons

__all__ = ["LongTable", "gathered", "question_keys", "read_long", "refuse_incomplete"]


@dataclass(frozen=True, eq=False)
class LongTable:
    """What a long table says about the attributes of its m rows."""

    people: dict[str, list[list[int]]]  # rows of each question of each person, in the order in which they first appear
    orders: dict[str, list[list[int]]]  # of each question the places of its options: the chosen one, or the ranked ones
    ranked: bool
    features: Floats  # (m, d)
    attributes: tuple[str, ...]  # names of the d attributes
    texts: list[str] | None  # text, or else name, of the option in each row; None: they have none but numbers
    steps: Indices | None  # episode and step of each row, (m, 2), where the table has both
    left_out: int  # number of questions without an answer, or with one option that could be chosen

    def comparisons(self) -> list[Comparisons]:
        """The answers of each person."""
        from edpbrl_gym.comparisons.records import Comparisons

        found = []
        for name, questions in self.people.items():
            heads = [rows[0] for rows in questions]
            steps = np.column_stack([np.arange(len(heads)), np.zeros(len(heads), dtype=np.int64)])
            steps = steps if self.steps is None else self.steps[heads]
            answers = zip(self.orders[name], questions, strict=True)
            found.append(
                Comparisons(
                    features=[self.features[rows].astype(np.float32) for rows in questions],  # type: ignore[arg-type]
                    responses=tuple(self._response(order, len(rows)) for order, rows in answers),
                    episode=steps[:, 0],
                    step=steps[:, 1],
                    texts=None if self.texts is None else [[self.texts[row] for row in rows] for rows in questions],
                    who=name,
                    metadata={"attributes": list(self.attributes)},
                )
            )
        return found

    def _response(self, order: list[int], options: int) -> Response:
        if not self.ranked:
            return Response.best(order[0])
        return Response.ranking(order) if len(order) == options else Response.partial(order)


def read_long(table: Table, layout: Layout | None = None) -> LongTable:
    """Read a long table with these columns; None: those that ``find_layout`` finds.

    Raises:
        ValueError: A missing column, an empty or repeated key, an attribute that is no finite number, an answer that is
            a tie or names no option, or a question with fewer than 2 options or other than one chosen.
    """
    columns = find_layout(table.header) if layout is None else layout
    if columns is None:
        raise _no_layout(table.header, table.source)
    if not len(table):
        raise ValueError(f"Expected rows of options in {table.source}, got an empty table")
    persons, numbers, options = question_keys(table, columns)
    questions = gathered(persons, numbers)
    for (person, question), rows in questions.items():
        where = _where(table, rows, person, question)
        if len(rows) < 2:
            refuse_other_forms(table.header, table.source)  # as where each row is a question
            raise ValueError(f"Expected at least 2 options in {where}, got 1; each option has a row of its own")
        if options is not None and len({options[row] for row in rows}) < len(rows):
            raise ValueError(
                f"Expected every option once in {where}, got one twice; questions of one person need different numbers"
            )
    answers = _ranks(table, columns, questions) if columns.rank else _choices(table, columns, questions, options)
    if columns.rank and columns.chosen:
        for key, rows in _choices(table, columns, questions, options).items():
            if answers[key][:1] != rows:
                raise ValueError(
                    f"Expected the option of {columns.rank} 1 as the chosen one in "
                    f"{_where(table, questions[key], *key)}, got another; rename {columns.rank} if it is an attribute"
                )
    told = [name for name in table.header if plain_name(name) in KEYS["available"]]
    if len(told) > 1:
        raise ValueError(
            f"Expected one column of availability in {table.source}, got {', '.join(told)}; remove the others"
        )
    if columns.available is not None:
        questions = _available(table, columns.available, questions, answers)
    kept = {key: rows for key, rows in questions.items() if len(rows) > 1 and answers.get(key)}
    if not kept:
        raise ValueError(f"Expected at least one answered question in {table.source}, got none")
    rows = [row for question in kept.values() for row in question]
    new = {row: number for number, row in enumerate(rows)}
    people: dict[str, list[list[int]]] = {}
    orders: dict[str, list[list[int]]] = {}
    for key, question in kept.items():
        people.setdefault(key[0], []).append([new[row] for row in question])
        orders.setdefault(key[0], []).append([question.index(row) for row in answers[key]])
    features, attributes = _attributes(table, columns, rows, [one for each in people.values() for one in each])
    single = sum(len(rows) == 1 for rows in questions.values())
    silent = len(questions) - len(kept) - single
    more = [(single, "with one available option"), (silent, "without an answer")]
    table.name_left_out(
        (*columns.keys, *attributes, *_STEPS), *(f"{count} questions {what}" for count, what in more if count)
    )
    texts = options if columns.text is None else table.texts(columns.text)
    if texts is not None:
        texts = [texts[row] for row in rows]
        texts = None if all(map(_is_number, texts)) else texts
    steps = [table.whole_numbers(name, rows) for name in _STEPS] if all(name in table for name in _STEPS) else None
    return LongTable(
        people, orders, columns.rank is not None, features, attributes, texts,
        None if steps is None else np.column_stack(steps), len(questions) - len(kept),
    )  # fmt: skip


_STEPS = ("episode", "step")
_LOST = 0.01  # of the largest difference
_COUNTED = 10  # rows, from which on a column of growing whole numbers is no attribute


def question_keys(table: Table, columns: Layout) -> tuple[list[str], list[str], list[str] | None]:
    """Person, question and option of each row; options are None where they have no names."""
    persons = [""] * len(table) if columns.person is None else _labels(table, columns.person)
    return persons, _labels(table, columns.question), None if columns.option is None else _labels(table, columns.option)


def gathered(persons: Iterable[Any], questions: Iterable[Any]) -> dict[tuple[Any, Any], list[int]]:
    """The rows of each question of each person, in the order in which they first appear."""
    found: dict[tuple[Any, Any], list[int]] = {}
    for row, key in enumerate(zip(persons, questions, strict=True)):
        found.setdefault(key, []).append(row)
    return found


def refuse_incomplete(columns: Sequence[str], source: object) -> None:
    """Refuse a table that has several keys of a long table, but not all."""
    plain = {plain_name(name) for name in columns}
    if sum(not plain.isdisjoint(KEYS[key]) for key in ("person", "question", "option", "chosen")) > 1:
        raise _no_layout(columns, source)


def _no_layout(columns: Sequence[str], source: object) -> ValueError:
    refuse_other_forms(columns, source)
    plain = {plain_name(name) for name in columns}
    lacking = [
        name for name, keys in (("question", ("question",)), ("chosen", ("chosen", "rank")))
        if not any(plain & set(KEYS[key]) for key in keys)
    ]  # fmt: skip
    return ValueError(
        f"Expected a long table with a row for each option and the columns person, question, option, chosen and "
        f"attributes in {source}, it lacks {' and '.join(lacking) or 'some'} (there are {', '.join(columns)})"
    )


def _where(table: Table, rows: list[int], person: str, question: str) -> str:
    of = f" of person {person}" if person else ""
    return f"question {question}{of} in {table.source} ({table.places[rows[0]]})"


def _is_number(cell: str) -> bool:
    return re.fullmatch(r"[+-]?[0-9]+(\.[0-9]+)?", cell) is not None


def _whole(cell: str) -> str:
    """The cell, as 2 where pandas wrote 2.0."""
    return cell[: cell.index(".")] if re.fullmatch(r"[+-]?[0-9]+\.0+", cell) else cell


def _labels(table: Table, name: str) -> list[str]:
    return [_whole(cell) for cell in table.keys(name)]


Rows = dict[tuple[Any, Any], list[int]]


def _choices(table: Table, columns: Layout, questions: Rows, options: list[str] | None) -> Rows:
    """The chosen row of each answered question: by truth values, or by the option's name."""
    assert columns.chosen is not None
    cells = [_whole(cell) for cell in table.entries(columns.chosen)]
    answered = {key: rows for key, rows in questions.items() if any(cells[row] for row in rows)}
    truths = [TRUTHS.get(cell.lower()) for cell in cells]
    by_truth = {key: [row for row in rows if truths[row]] for key, rows in answered.items()}
    if all(len(rows) == 1 for rows in by_truth.values()) and all(
        truths[row] is not None for rows in answered.values() for row in rows
    ):
        return by_truth
    by_truths = any(len(by_truth[key]) == 1 and None not in [truths[row] for row in answered[key]] for key in answered)
    by_name: Rows = {}
    if options is not None:
        by_name = {key: [row for row in rows if options[row] == cells[row]] for key, rows in answered.items()}
        if all(len({cells[row] for row in rows}) == 1 == len(by_name[key]) for key, rows in answered.items()):
            return by_name
    for key, rows in answered.items():
        where = _where(table, rows, *key)
        if not by_truths and options is not None and len({cells[row] for row in rows}) == 1 == len(by_name[key]):
            continue  # what is wrong is elsewhere
        wrong = next((row for row in rows if truths[row] is None), None)
        if wrong is not None and is_tie(cells[wrong]):
            raise tie_error(cells[wrong], where)
        if wrong is not None:
            named = "" if options is None else ", or the name of one of its options in all rows of a question"
            raise ValueError(
                f"Expected 0 or 1 (or true, false){named} in the column {columns.chosen}, {table.places[wrong]} of "
                f"{table.source}, got {cells[wrong]!r}{_nothing(cells[wrong], 'the cells of a question')}"
            )
        if len(by_truth[key]) != 1:
            advice = "; ties can't be read from files yet: remove the question" if by_truth[key] else ""
            raise ValueError(f"Expected exactly one chosen option in {where}, got {len(by_truth[key])}{advice}")
    raise AssertionError("an answer is wrong and none was found")


def _ranks(table: Table, columns: Layout, questions: Rows) -> Rows:
    """The rows of each answered question in the order of their ranks."""
    assert columns.rank is not None
    cells = [_whole(cell) for cell in table.entries(columns.rank)]
    found = {}
    for key, rows in questions.items():
        ranked = [row for row in rows if cells[row]]
        wrong = next((row for row in ranked if not _is_number(cells[row])), None)
        if wrong is not None:
            raise ValueError(
                f"Expected the ranks 1, 2, ... in the column {columns.rank}, {table.places[wrong]} of {table.source}, "
                f"got {cells[wrong]!r}{_nothing(cells[wrong], 'the cell of an option')}"
            )
        order = {cells[row]: row for row in ranked}
        if len(order) < len(ranked):
            tied = next(row for row in ranked if order[cells[row]] != row)
            raise tie_error(f"{columns.rank} {cells[tied]}", _where(table, rows, *key))
        if set(order) != {str(number) for number in range(1, len(ranked) + 1)}:
            raise ValueError(
                f"Expected the ranks 1, 2, ... in the column {columns.rank} of {_where(table, rows, *key)}, got "
                f"{', '.join(order)}; rename the column if it is an attribute"
            )
        found[key] = [order[str(number)] for number in range(1, len(ranked) + 1)]
    return found


def _nothing(cell: str, what: str) -> str:
    known = cell.lower() in ("na", "nan", "none", "null", "n/a", "-")
    return f"; leave {what} without an answer empty" if known else ""


def _available(table: Table, name: str, questions: Rows, answers: Rows) -> Rows:
    """The questions without the rows of options that could not be chosen."""
    truths = table.truths(name)
    for rows in answers.values():
        away = next((row for row in rows if not truths[row]), None)
        if away is not None:
            raise ValueError(
                f"Expected a chosen option that was available in {table.places[away]} of {table.source}, got {name} = 0"
            )
    return {key: [row for row in rows if truths[row]] for key, rows in questions.items()}


def _attributes(
    table: Table, columns: Layout, rows: list[int], questions: list[list[int]]
) -> tuple[Floats, tuple[str, ...]]:
    """The attributes of these rows, (m, d), and their names; ``questions`` are the places of their rows in ``rows``."""
    known = {name for names in KEYS.values() for name in names} - {"available", "text"}
    names = [
        name
        for name in table.header
        if name not in (*columns.keys, *_STEPS) and name not in table.indices and plain_name(name) not in known
    ]
    if not names:
        raise ValueError(f"Expected at least one column of an attribute in {table.source}, got none")
    first = np.empty(len(rows), dtype=np.int64)
    for question in questions:
        first[question] = question[0]
    varying = []
    for name in dict.fromkeys(names):
        whole = table.columns[table.header.index(name)]
        cells = np.array([whole[row] for row in rows], dtype=object)
        other = table.kinds[table.header.index(name)] not in KINDS  # which numbers() refuses by its name
        if other or ((cells != cells[first]).any() and not _counts(whole)):
            varying.append(name)
    features = table.numbers(*varying, rows=rows)
    differ = (features != features[first]).any(axis=0)
    if not differ.any():
        raise ValueError(
            f"Expected attributes that differ between the options of a question in {table.source}, got none"
        )
    features, names = features[:, differ], [name for name, kept in zip(varying, differ, strict=True) if kept]
    for place, name in enumerate(names):
        _check_digits(table, name, rows, features[:, place], features[first, place])
    return features, tuple(names)


def _check_digits(table: Table, name: str, rows: list[int], values: Floats, others: Floats) -> None:
    """Refuse an attribute whose differences to the first rows of its questions are lost in single precision."""
    with np.errstate(over="ignore"):
        lost = np.abs(values - values.astype(np.float32))
    worst = int(lost.argmax())
    if not lost[worst] <= _LOST * np.abs(values - others).max():
        cell = table.columns[table.header.index(name)][rows[worst]]
        raise ValueError(
            f"Expected differences between options in the attribute {name} that its first 7 digits show, got {cell} in "
            f"{table.places[rows[worst]]} of {table.source}; subtract a constant from the column, or take another unit"
        )


def _counts(cells: list[str]) -> bool:
    """Whether the cells are whole numbers that grow from row to row: the numbers of rows."""
    numbers = [int(cell) for cell in cells if re.fullmatch("[0-9]{1,18}", cell)]
    return len(numbers) == len(cells) >= _COUNTED and all(one < other for one, other in pairwise(numbers))
