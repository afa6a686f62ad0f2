"""What was answered on pages as one wide table, a row for each participant, with a meaning for every column."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from edpbrl_gym.study.config import StudyConfig
from edpbrl_gym.study.export_tables import PAGES, Column, pseudonym, since
from edpbrl_gym.study.forms.conditions import RATHER_NOT
from edpbrl_gym.study.forms.pages import Page, entries_of
from edpbrl_gym.study.records import Record

__all__ = ["page_columns", "page_table"]

Rows = list[dict[str, Any]]


def page_columns(config: StudyConfig) -> tuple[Column, ...]:
    """The columns of the pages of a configuration: PAGE.QUESTION, for a page that comes again PAGE.TIME.QUESTION."""
    found = list(PAGES) if config.pages else []
    for page in config.pages:
        for time in range(1, page.times(config.most_choices) + 1):
            key = page.name if page.every is None else f"{page.name}.{time}"
            found += _of_page(page, key)
    return tuple(found)


def _of_page(page: Page, key: str) -> list[Column]:
    found = [
        Column(f"{key}.sent_s", "number", f"seconds from consent until the page was answered: {page.title}"),
        Column(f"{key}.answer_ms", "integer", "milliseconds from appearance to the answer, by the browser"),
    ]
    for question in page.questions:
        name = f"{key}.{question.name}"
        found += [Column(name + end, kind, _line(meaning)) for end, kind, meaning in question.columns()]
        if question.rather_not:
            found.append(Column(f"{name}.rather_not", "boolean", f"whether they would rather not say: {question.text}"))
    return found


def _line(text: str) -> str:
    return " ".join(text.split())


def page_table(records: Iterable[Record], secret: str, config: StudyConfig) -> tuple[tuple[Column, ...], Rows]:
    """The table, in the order of the pseudonyms.

    An empty cell is a question that was not asked, or to which nothing was answered. What was answered to questions
    that the configuration no longer has follows in columns of its own.
    """
    columns = page_columns(config)
    pages = {page.name: page for page in config.pages}
    rows: Rows = []
    more: dict[str, Column] = {}
    for who, record in sorted((pseudonym(secret, one.participant), one) for one in records):
        row: dict[str, Any] = {"participant": who}
        for key, detail in entries_of(record.events).items():
            at = next(event["at"] for event in record.events if event["detail"] is detail)
            row[f"{key}.sent_s"] = since(record.participant, at)
            row[f"{key}.answer_ms"] = detail["timing"].get("answer_ms")
            page = pages.get(key.partition(".")[0])
            questions = {question.name: question for question in page.questions} if page else {}
            for name, answer in detail["answers"].items():
                question, cell = questions.get(name), f"{key}.{name}"
                if answer == RATHER_NOT:
                    row[f"{cell}.rather_not"] = True
                elif question is None:
                    row[cell] = answer
                elif answer is not None:
                    if isinstance(answer, question.types):
                        row |= {cell + end: value for end, value in question.cells(answer).items()}
                    else:  # it was of another kind
                        row[f"{cell}.before"] = answer
                    if question.rather_not:
                        row[f"{cell}.rather_not"] = False
        rows.append(row)
    known = {column.name for column in columns}
    for row in rows:
        for name in row.keys() - known:
            more[name] = Column(name, "JSON", "answered to a question, or page, that the configuration no longer has")
    if more and not columns:
        columns = PAGES
    more.pop("participant", None)
    columns = (*columns, *(more[name] for name in sorted(more)))
    return columns, [{column.name: row.get(column.name) for column in columns} for row in rows]
