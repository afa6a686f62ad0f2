"""The tables of an export: each column explained once, rows made from the database, files read again."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from pathlib import Path
from statistics import median
from typing import Any

from edpbrl_gym._files import reading
from edpbrl_gym.comparisons.tables import read_table
from edpbrl_gym.likelihood import AnswerFormat, Response, make_format
from edpbrl_gym.study.config import NAMED_PRIORS, StudyConfig
from edpbrl_gym.study.exclusions import excluded_by
from edpbrl_gym.study.preregistration import preregistered
from edpbrl_gym.study.records import History, Participant, Record, StoredAnswer, StoredQuestion

__all__ = [
    "ANSWERS",
    "CROWD",
    "EVENTS",
    "IDENTITIES",
    "OPTIONS",
    "PAGES",
    "PAIRS",
    "PARTICIPANTS",
    "PREDICTIONS",
    "STUDY",
    "TAKING_PART",
    "Column",
    "StudyTables",
    "answer_rows",
    "columns_of",
    "counts",
    "event_rows",
    "facts_of",
    "first_of",
    "identity_row",
    "is_export",
    "of_study",
    "participant_row",
    "pseudonym",
    "read_tables",
    "seconds_of",
    "since",
    "tables_of",
]

STUDY = "study.json"
Rows = list[dict[str, Any]]
TAKING_PART = ("asking", "finished", "timed_out")
"""Statuses of people who are asked, or were to the end or until they left."""


@dataclass(frozen=True)
class Column:
    """A column: its name, type and meaning."""

    name: str
    type: str
    meaning: str


def _columns() -> dict[str, tuple[Column, ...]]:
    """Those of each table in ``columns.txt``."""
    found: dict[str, list[Column]] = {}
    for line in (Path(__file__).parent / "columns.txt").read_text(encoding="utf-8").splitlines():
        if line.startswith("["):
            columns = found[line[1:-1]] = []
        elif not line.startswith("#"):
            columns.append(Column(*line.split(" | ")))
    return {name: tuple(columns) for name, columns in found.items()}


_COLUMNS = _columns()
PARTICIPANTS, ANSWERS, EVENTS, PREDICTIONS = (
    _COLUMNS["who"] + _COLUMNS[name] for name in ("participants", "answers", "events", "predictions")
)
OPTIONS, PAIRS = (_COLUMNS["who"] + _COLUMNS[name] for name in ("options", "pairs"))
CROWD, IDENTITIES = _COLUMNS["crowd"], _COLUMNS["who"] + _COLUMNS["identities"]
PAGES = _COLUMNS["who"]  # then those of the pages: see ``forms.export``
_OWN_EVENTS = ("consent", "comprehension", "status", "undo", "forecast", "sure", "style_choice")


def of_study(records: Iterable[Record], *, pilot: bool) -> list[Record]:
    """The records of those who came to the study itself, or to its pilot."""
    return [record for record in records if record.participant.pilot == pilot]


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
            "shown_s": since(participant, question.shown_at),
            "answered_s": since(participant, None if answer is None else answer.answered_at),
            "first_input_ms": timing and timing.first_input_ms, "answer_ms": timing and timing.answer_ms,
            "visibility_changes": timing and timing.visibility_changes, "device": _device(answer),
            "config": None if answer is None else answer.config[:16],
            "code_version": None if answer is None else answer.code_version,
        })  # fmt: skip
    return rows


def seconds_of(row: Mapping[str, Any]) -> float | None:
    """Seconds for an answer, by the browser if it measured them, otherwise by the server; None: unknown."""
    if row["answer_ms"] is not None:
        return float(row["answer_ms"]) / 1000
    if row["shown_s"] is None or row["answered_s"] is None:
        return None
    return float(row["answered_s"] - row["shown_s"])


def first_of(row: Mapping[str, Any]) -> int | None:
    """The option that an answer of ``ANSWERS`` names as the best, from 0; None if it names none."""
    return Response.from_numbers(row["answer"], row["order"] or ()).first if row["answer"] else None


def participant_row(name: str, participant: Participant, history: History, format: AnswerFormat) -> dict[str, Any]:
    """A row of ``PARTICIPANTS``, but for what its answers' times say."""
    live = [(question, answer) for question, answer in history if answer is not None and not question.struck]
    best = {question.id: answer.response.first for question, answer in live if answer is not None}
    checks = [(question, answer) for question, answer in live if question.expected is not None]
    pairs = [
        (best.get(question.repeat_of or 0), best[question.id]) for question, _ in live if question.kind == "repeat"
    ]
    pairs = [pair for pair in pairs if None not in pair]
    last = max((answer.answered_at for _, answer in live if answer is not None), default=None)
    seconds = since(participant, last)
    return {
        "participant": name, "arm": participant.arm, "language": participant.language,
        "consent_version": participant.consent_version, "status": participant.status, "pilot": participant.pilot,
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


def identity_row(name: str, participant: Participant) -> dict[str, Any]:
    """A row of ``IDENTITIES``, with a column for each identifier of the link."""
    known = {column.name: getattr(participant, column.name) for column in _COLUMNS["identities"]}
    own = {"participant", *known}
    given = {f"{key}_in_link" if key in own else key: value for key, value in participant.external.items()}
    return {"participant": name, **known, **given}


def event_rows(
    name: str, participant: Participant, events: list[dict[str, Any]], *, identified: bool
) -> list[dict[str, Any]]:
    """Rows of ``EVENTS``."""
    return [
        {
            "participant": name,
            "after_s": since(participant, event["at"]),
            "kind": event["kind"],
            "detail": event["detail"] if identified or event["kind"] in _OWN_EVENTS else None,
        }
        for event in events
    ]


def since(participant: Participant, time: str | None) -> float | None:
    """Seconds from a participant's consent to a time."""
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
    crowd: Rows = field(default_factory=list)  # rows of ``CROWD``, best first; empty without a pool or enough people
    identities: Rows = field(default_factory=list)  # rows of ``IDENTITIES``; empty unless people are identified


def columns_of(identities: Sequence[Mapping[str, Any]] = ()) -> dict[str, tuple[Column, ...]]:
    """The columns of each table, those of ``identities`` with the names that links gave to identifiers."""
    columns = {
        "participants": PARTICIPANTS,
        "answers": ANSWERS,
        "events": EVENTS,
        "predictions": PREDICTIONS,
        "crowd": CROWD,
    }
    known = {column.name for column in IDENTITIES}
    names = dict.fromkeys(name for row in identities for name in row if name not in known)
    given = tuple(Column(name, "text", "identifier with which the participant arrived") for name in names)
    return {**columns, "identities": (*IDENTITIES, *given)} if identities else columns


def facts_of(config: StudyConfig, *, deleted: int, pilot: bool = False) -> dict[str, Any]:
    """What a report must know of a study, or of its pilot, beside its tables, as JSON can hold it."""
    questions, checks = config.questions, config.checks
    return {
        "kind": "study",
        "pilot": pilot,
        "title": config.title,
        "arms": [
            {
                "name": arm.name,
                "planner": arm.planner,
                "weight": arm.weight,
                "population": str(arm.prior) if str(arm.prior) in NAMED_PRIORS else arm.prior is not None,
            }
            for arm in config.arms
        ],
        "feedback": questions.feedback,
        "format": questions.format,
        **({} if questions.levels is None else {"levels": questions.levels}),
        "options": questions.options,
        "number": questions.number,
        "least": questions.least,
        "practice": config.practice.questions,
        "comprehension": sum(one.accept is not None for page in config.pages for one in page.questions),
        "attention": checks.attention,
        "repeated": checks.repeated,
        "test": checks.test,
        "pictures": config.pictures is not None,
        "vocabulary": questions.vocabulary,
        "encoder": questions.encoder,
        "seed": config.seed,
        "exclusions": config.exclusions.as_json(),
        "pay": None if config.recruitment.pay is None else asdict(config.recruitment.pay),
        "preregistration": preregistered(config),
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
    identities: Rows = []
    for name, record in sorted((pseudonym(secret, one.participant), one) for one in records):
        participant = record.participant
        asked = answer_rows(name, participant, record.history)
        times = [seconds for row in asked if row["counts"] and (seconds := seconds_of(row)) is not None]
        row = participant_row(name, participant, record.history, format)
        row["median_s"] = round(median(times), 3) if times else None
        participants.append({**row, "excluded": excluded_by(facts["exclusions"], row)})
        identities += [identity_row(name, participant)] if identified else []
        answers += asked
        events += event_rows(name, participant, record.events, identified=identified)
    ordered = sorted(predictions, key=lambda row: (row["participant"], row["after"], row["asked"]))
    return StudyTables(dict(facts), participants, answers, events, ordered, identities=identities)


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
    tables = {
        name: _read(path, columns)
        for name, columns in columns_of().items()
        if (path := folder / f"{name}.csv").is_file() or name != "crowd"  # which earlier exports do not have
    }
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
