"""The tables of an export: each column explained once, rows made from the database, files read again."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from edpbrl_gym._files import reading
from edpbrl_gym.comparisons.tables import read_table
from edpbrl_gym.likelihood import AnswerFormat, Response, make_format
from edpbrl_gym.study.config import StudyConfig
from edpbrl_gym.study.records import History, Participant, Record, StoredAnswer, StoredQuestion

__all__ = [
    "ANSWERS",
    "EVENTS",
    "IDENTIFYING",
    "PARTICIPANTS",
    "PREDICTIONS",
    "STUDY",
    "Column",
    "StudyTables",
    "answer_rows",
    "columns_of",
    "counts",
    "event_rows",
    "facts_of",
    "first_of",
    "is_export",
    "participant_row",
    "pseudonym",
    "read_tables",
    "tables_of",
]

STUDY = "study.json"
Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class Column:
    """A column: its name, type and meaning."""

    name: str
    type: str
    meaning: str


_WHO = Column("participant", "text", "pseudonym, the same in all files and exports of this study")

ANSWERS = (
    _WHO,
    Column("arm", "text", "method that chose the questions that count"),
    Column("asked", "integer", "order in which the questions were asked, from 0"),
    Column("number", "integer", "place in the sequence, from 0; after undo a question is asked again at its place"),
    Column(
        "kind",
        "text",
        "practice, normal (counts), attention (says what to choose), repeat (asked again), test (for all)",
    ),
    Column("taken_back", "boolean", "whether the participant took the answer back, or went back before it"),
    Column("counts", "boolean", "whether estimates use the answer: normal, answered, not taken back"),
    Column("options", "list of texts", "the options, numbered from 1"),
    Column(
        "tokens",
        "list of lists of integers",
        "token indices of each option in the vocabulary, from 0; empty with planner oracle",
    ),
    Column("positions", "list of integers", "number of the option at each position of the page"),
    Column("expected", "integer", "option that an attention check asks for"),
    Column("repeats", "integer", "asked of the question that a repeat asks again"),
    Column(
        "answer", "text", "best, best_worst, ranking, partial, rating, tie (cannot tell), skip; empty: not answered"
    ),
    Column(
        "order",
        "list of integers",
        "numbers of the options in the answer: best first; for best_worst best, worst; for rating levels from 1",
    ),
    Column("shown_s", "number", "seconds from consent until the question was first shown, by the server's clock"),
    Column("answered_s", "number", "seconds from consent until the answer was stored, by the server's clock"),
    Column("first_input_ms", "integer", "milliseconds from appearance to the first input, by the browser"),
    Column("answer_ms", "integer", "milliseconds from appearance to the answer, by the browser"),
    Column("visibility_changes", "integer", "how often the page was hidden or shown again, by the browser"),
    Column("device", "text", "phone (narrower than 600 pixels), tablet (than 1,024) or desktop"),
    Column("config", "text", "first 16 digits of the configuration's SHA-256"),
    Column("code_version", "text", "version of edpbrl-gym that stored the answer"),
)

PARTICIPANTS = (
    _WHO,
    Column("arm", "text", "method that chose the questions that count"),
    Column("language", "text", "language of the pages"),
    Column("consent_version", "text", "version of the consent text that was agreed to; empty: no consent"),
    Column("status", "text", "enrolled, consented, asking, finished, failed (the comprehension check) or withdrawn"),
    Column("answered", "integer", "answers that count"),
    Column("undone", "integer", "answers taken back"),
    Column("attention_asked", "integer", "attention checks answered"),
    Column("attention_passed", "integer", "attention checks answered as asked"),
    Column("repeats_asked", "integer", "repeats of which both answers name a best option"),
    Column("repeats_agreed", "integer", "repeats with the same best option as before"),
    Column("minutes", "number", "minutes from consent to the last answer"),
)

EVENTS = (
    _WHO,
    Column("after_s", "number", "seconds from consent; negative before it, empty without consent"),
    Column(
        "kind",
        "text",
        "consent, comprehension, status, undo, sure (the stopping rule), style_choice (the last question: learnt, "
        "random or tie), refused, others of the pages",
    ),
    Column("detail", "JSON", "more about it; only with --identified for kinds that pages define"),
)

PREDICTIONS = (
    _WHO,
    Column("asked", "integer", "asked of a test question that names a best option"),
    Column("after", "integer", "number of the participant's answers that count from which it is predicted"),
    Column("last", "boolean", "whether these are all of them"),
    Column("probabilities", "list of numbers", "of each option, in its order, to be named best; averaged over the "
           "posterior under the arm's prior"),
)  # fmt: skip

IDENTIFYING = (
    Column("external", "JSON", "identifiers with which the participant arrived"),
    Column("code", "text", "random name in the database"),
    Column("created_at", "time", "arrival, UTC"),
    Column("consented_at", "time", "consent, UTC"),
)
_OWN_EVENTS = ("consent", "comprehension", "status", "undo", "forecast", "sure", "style_choice")


def pseudonym(secret: str, participant: Participant) -> str:
    """A name that nobody without the database's secret can trace to the participant."""
    return f"p{hashlib.sha256(f'{secret}/{participant.code}'.encode()).hexdigest()[:12]}"


def counts(question: StoredQuestion, answer: StoredAnswer | None) -> bool:
    """Whether estimates use the answer to a question."""
    return question.kind == "normal" and not question.struck and answer is not None


def answer_rows(name: str, participant: Participant, history: History) -> list[dict[str, Any]]:
    """A row of ``ANSWERS`` for every question asked."""
    order = {question.id: place for place, (question, _) in enumerate(history)}
    rows = []
    for asked, (question, answer) in enumerate(history):
        timing = None if answer is None else answer.timing
        rows.append({
            "participant": name, "arm": participant.arm, "asked": asked, "number": question.number,
            "kind": question.kind, "taken_back": question.struck, "counts": counts(question, answer),
            "options": question.texts, "tokens": question.tokens,
            "positions": [option + 1 for option in question.positions],
            "expected": None if question.expected is None else question.expected + 1,
            "repeats": None if question.repeat_of is None else order.get(question.repeat_of),
            "answer": None if answer is None else answer.response.kind,
            "order": None if answer is None else list(answer.response.numbers),
            "shown_s": _since(participant, question.shown_at),
            "answered_s": _since(participant, None if answer is None else answer.answered_at),
            "first_input_ms": timing and timing.first_input_ms, "answer_ms": timing and timing.answer_ms,
            "visibility_changes": timing and timing.visibility_changes, "device": _device(answer),
            "config": None if answer is None else answer.config[:16],
            "code_version": None if answer is None else answer.code_version,
        })  # fmt: skip
    return rows


def first_of(row: Mapping[str, Any]) -> int | None:
    """The option that an answer of ``ANSWERS`` names as the best, from 0; None if it names none."""
    return Response.from_numbers(row["answer"], row["order"] or ()).first if row["answer"] else None


def participant_row(
    name: str, participant: Participant, history: History, format: AnswerFormat, *, identified: bool
) -> dict[str, Any]:
    """A row of ``PARTICIPANTS``, with ``IDENTIFYING`` if wanted."""
    live = [(question, answer) for question, answer in history if answer is not None and not question.struck]
    best = {question.id: answer.response.first for question, answer in live if answer is not None}
    checks = [(question, answer) for question, answer in live if question.expected is not None]
    pairs = [
        (best.get(question.repeat_of or 0), best[question.id]) for question, _ in live if question.kind == "repeat"
    ]
    pairs = [pair for pair in pairs if None not in pair]
    last = max((answer.answered_at for _, answer in live if answer is not None), default=None)
    seconds = _since(participant, last)
    row = {
        "participant": name, "arm": participant.arm, "language": participant.language,
        "consent_version": participant.consent_version, "status": participant.status,
        "answered": sum(counts(question, answer) for question, answer in live),
        "undone": sum(question.struck and answer is not None for question, answer in history),
        "attention_asked": len(checks),
        "attention_passed": sum(
            answer is not None and format.followed(answer.response, question.expected or 0)
            for question, answer in checks
        ),
        "repeats_asked": len(pairs), "repeats_agreed": sum(first == again for first, again in pairs),
        "minutes": None if seconds is None else round(seconds / 60, 2),
    }  # fmt: skip
    if identified:
        row |= {column.name: getattr(participant, column.name) for column in IDENTIFYING}
    return row


def event_rows(
    name: str, participant: Participant, events: list[dict[str, Any]], *, identified: bool
) -> list[dict[str, Any]]:
    """Rows of ``EVENTS``."""
    return [
        {
            "participant": name,
            "after_s": _since(participant, event["at"]),
            "kind": event["kind"],
            "detail": event["detail"] if identified or event["kind"] in _OWN_EVENTS else None,
        }
        for event in events
    ]


def _since(participant: Participant, time: str | None) -> float | None:
    if time is None or participant.consented_at is None:
        return None
    passed = datetime.fromisoformat(time) - datetime.fromisoformat(participant.consented_at)
    return round(passed.total_seconds(), 3)


def _device(answer: StoredAnswer | None) -> str | None:
    if answer is None or answer.timing.viewport is None:
        return None
    width = answer.timing.viewport[0]
    return "phone" if width < 600 else "tablet" if width < 1024 else "desktop"


@dataclass(frozen=True)
class StudyTables:
    """Everything that an export says, except files of comparisons."""

    study: dict[str, Any]  # facts about the study: see ``facts_of``
    participants: Rows  # rows of ``PARTICIPANTS``
    answers: Rows  # rows of ``ANSWERS``
    events: Rows  # rows of ``EVENTS``
    predictions: Rows = field(default_factory=list)  # rows of ``PREDICTIONS``, empty where nothing was predicted


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
        **({} if questions.levels is None else {"levels": questions.levels}),
        "options": questions.options,
        "number": questions.number,
        "least": questions.least,
        "practice": config.practice.questions,
        "comprehension": len(config.practice.comprehension),
        "attention": checks.attention,
        "repeated": checks.repeated,
        "test": checks.test,
        "pictures": config.pictures is not None,
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
    """The tables of all participants; participants are ordered by pseudonym, which tells no order of arrival."""
    format = make_format(facts["format"], levels=facts["levels"]) if "levels" in facts else make_format(facts["format"])
    participants: Rows = []
    answers: Rows = []
    events: Rows = []
    for name, record in sorted((pseudonym(secret, one.participant), one) for one in records):
        participant = record.participant
        participants.append(participant_row(name, participant, record.history, format, identified=identified))
        answers += answer_rows(name, participant, record.history)
        events += event_rows(name, participant, record.events, identified=identified)
    ordered = sorted(predictions, key=lambda row: (row["participant"], row["after"], row["asked"]))
    return StudyTables(dict(facts), participants, answers, events, ordered)


def is_export(folder: Path) -> bool:
    """Whether a folder holds an export with what a report needs."""
    return (folder / STUDY).is_file() and (folder / "answers.csv").is_file()


def read_tables(folder: Path) -> StudyTables:
    """The tables of an export."""
    if not is_export(folder):
        raise FileNotFoundError(f"Expected an export of `edpbrl study export` at {folder}, found none; check the path")
    path = folder / STUDY
    with reading("facts about a study", path, advice="export again"):
        study = dict(json.loads(path.read_text(encoding="utf-8")))
    tables = {name: _read(folder / f"{name}.csv", columns) for name, columns in columns_of().items()}
    return StudyTables(study, **tables)


def _read(path: Path, columns: Sequence[Column]) -> Rows:
    """The rows of a file; columns that are not known are left out."""
    with reading("the table of an export", path, advice="export again"):
        table = read_table(path, whole=True)
        missing = {column.name for column in columns} - set(table.header)
        if missing:
            raise ValueError(f"it has no column {min(missing)}")
        cells = [table.columns[table.header.index(column.name)] for column in columns]
        return [
            {column.name: _value(cell, column.type) for column, cell in zip(columns, row, strict=True)}
            for row in zip(*cells, strict=True)
        ]


def _value(cell: str, kind: str) -> Any:
    if cell == "":
        return None
    if kind == "integer":
        return int(float(cell))
    if kind == "number":
        return float(cell)
    if kind == "boolean":
        return {"True": True, "False": False}[cell]
    return cell if kind in ("text", "time") else json.loads(cell)
