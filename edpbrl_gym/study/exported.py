"""The tables of an export, in memory: made from the database, written to a folder and read from it again."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from edpbrl_gym._files import reading
from edpbrl_gym.comparisons.csv_files import original_cell
from edpbrl_gym.study.config import StudyConfig
from edpbrl_gym.study.export_rows import (
    ANSWERS,
    EVENTS,
    IDENTIFYING,
    PARTICIPANTS,
    PREDICTIONS,
    Column,
    answer_rows,
    event_rows,
    participant_row,
    pseudonym,
)
from edpbrl_gym.study.records import Record

__all__ = ["STUDY", "StudyTables", "columns_of", "facts_of", "is_export", "read_tables", "tables_of"]

STUDY = "study.json"
Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class StudyTables:
    """Everything that an export says, except files of comparisons.

    Attributes:
        study: Facts about the study: see ``facts_of``.
        participants: Rows of ``PARTICIPANTS``.
        answers: Rows of ``ANSWERS``.
        events: Rows of ``EVENTS``.
        predictions: Rows of ``PREDICTIONS``, empty where nothing was predicted.
    """

    study: dict[str, Any]
    participants: Rows
    answers: Rows
    events: Rows
    predictions: Rows = field(default_factory=list)


def columns_of(*, identified: bool = False) -> dict[str, tuple[Column, ...]]:
    """The columns of each table."""
    return {
        "participants": (*PARTICIPANTS, *(IDENTIFYING if identified else ())),
        "answers": ANSWERS,
        "events": EVENTS,
        "predictions": PREDICTIONS,
    }


def facts_of(config: StudyConfig, *, deleted: int) -> dict[str, Any]:
    """What a report must know of a study beside its tables, as JSON can hold it."""
    questions, checks = config.questions, config.checks
    return {
        "kind": "study",
        "title": config.title,
        "arms": [
            {"name": arm.name, "planner": arm.planner, "weight": arm.weight, "population": arm.prior is not None}
            for arm in config.arms
        ],
        "feedback": questions.feedback,
        "format": questions.format,
        "options": questions.options,
        "number": questions.number,
        "least": questions.least,
        "practice": config.practice.questions,
        "comprehension": len(config.practice.comprehension),
        "attention": checks.attention,
        "repeated": checks.repeated,
        "test": checks.test,
        "pictures": config.renderer is not None,
        "vocabulary": questions.vocabulary,
        "encoder": questions.encoder,
        "seed": config.seed,
        "config": config.fingerprint[:16],
        "deleted": deleted,
    }


def tables_of(
    records: Iterable[Record],
    secret: str,
    facts: Mapping[str, Any],
    *,
    predictions: Sequence[dict[str, Any]] = (),
    identified: bool = False,
) -> StudyTables:
    """The tables of all participants; participants are ordered by pseudonym, which tells no order of arrival.

    Args:
        records: Of the participants.
        secret: The store's secret, which makes the pseudonyms.
        facts: From ``facts_of``.
        predictions: Rows of ``PREDICTIONS``.
        identified: Also give external identifiers and times.
    """
    participants: Rows = []
    answers: Rows = []
    events: Rows = []
    for name, record in sorted((pseudonym(secret, one.participant), one) for one in records):
        participant = record.participant
        participants.append(participant_row(name, participant, record.history, identified=identified))
        answers += answer_rows(name, participant, record.history)
        events += event_rows(name, participant, record.events, identified=identified)
    ordered = sorted(predictions, key=lambda row: (row["participant"], row["after"], row["asked"]))
    return StudyTables(dict(facts), participants, answers, events, ordered)


def is_export(folder: Path) -> bool:
    """Whether a folder holds an export with what a report needs."""
    return (folder / STUDY).is_file() and (folder / "answers.csv").is_file()


def read_tables(folder: Path) -> StudyTables:
    """The tables of an export.

    Raises:
        FileNotFoundError: There is none.
        ValueError: A file is damaged, or was changed; the message names it.
    """
    if not is_export(folder):
        raise FileNotFoundError(f"Expected an export of `edpbrl study export` at {folder}, found none; check the path")
    path = folder / STUDY
    with reading("facts about a study", path, advice="export again"):
        study = dict(json.loads(path.read_text(encoding="utf-8")))
    tables = {name: _read(folder / f"{name}.csv", columns) for name, columns in columns_of().items()}
    return StudyTables(study, **tables)


def _read(path: Path, columns: Sequence[Column]) -> Rows:
    """The rows of a file; columns that are not known are left out."""
    with (
        reading("the table of an export", path, advice="export again"),
        path.open(encoding="utf-8", newline="") as file,
    ):
        reader = csv.DictReader(file)
        missing = {column.name for column in columns} - set(reader.fieldnames or ())
        if missing:
            raise ValueError(f"it has no column {min(missing)}")
        rows = []
        for row in reader:
            if None in row or None in row.values():
                raise ValueError(f"line {reader.line_num} has not as many cells as the header")
            rows.append({column.name: _value(row[column.name], column.type) for column in columns})
        return rows


def _value(cell: str, kind: str) -> Any:
    """The value of a cell."""
    if cell == "":
        return None
    if kind == "integer":
        return int(float(cell))
    if kind == "number":
        return float(cell)
    if kind == "boolean":
        return {"True": True, "False": False}[cell]
    return original_cell(cell) if kind in ("text", "time") else json.loads(cell)
