"""The answers of a study as CSV, JSON lines and parquet, without what identifies people, and with a data dictionary."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edpbrl_gym._files import replacing_folder
from edpbrl_gym._places import write_atomically
from edpbrl_gym.comparisons import Comparisons
from edpbrl_gym.comparisons.csv_files import write_csv
from edpbrl_gym.study.export_rows import ANSWERS, pseudonym
from edpbrl_gym.study.exported import STUDY, StudyTables, columns_of, facts_of, tables_of
from edpbrl_gym.study.materials import Materials
from edpbrl_gym.study.people import Predictor, comparisons_of
from edpbrl_gym.study.records import Record
from edpbrl_gym.study.store import Store

__all__ = ["Exported", "export", "gather"]

_DICTIONARY = "dictionary.csv"
Track = Callable[[list[Record]], Iterable[Record]]


@dataclass(frozen=True)
class Exported:
    """What was written.

    Attributes:
        participants: Number of participants.
        answers: Number of answers that count.
        people: Files of comparisons, one for each person with an answer that names a best option.
    """

    participants: int
    answers: int
    people: list[Path]


def gather(
    store: Store, materials: Materials, *, identified: bool = False, track: Track = iter
) -> tuple[StudyTables, dict[str, Comparisons]]:
    """All tables, with predictions of the test questions, and the comparisons of each person.

    Args:
        store: The study's database.
        materials: What its questions are made of.
        identified: Also give external identifiers and times.
        track: Iterates over the participants, and may show how far it is.
    """
    records = store.records()
    predictor = Predictor(materials)
    people: dict[str, Comparisons] = {}
    predictions: list[dict[str, Any]] = []
    for record in track(records):
        name = pseudonym(store.secret, record.participant)
        comparisons = comparisons_of(name, record, materials, identified=identified)
        if comparisons is not None and len(comparisons.decided):
            people[name] = comparisons
        if record.participant.status in ("asking", "finished"):
            predictions += predictor.rows(name, record, comparisons)
    facts = facts_of(materials.config, deleted=store.counts()["deleted"])
    tables = tables_of(records, store.secret, facts, predictions=predictions, identified=identified)
    return tables, people


def export(store: Store, materials: Materials, out: Path, *, identified: bool = False, track: Track = iter) -> Exported:
    """Write a folder with everything that was asked and answered.

    ``answers`` (.csv, .jsonl, .parquet) has a row for every question asked, ``participants.csv`` for every participant,
    ``events.csv`` for every event, ``predictions.csv`` for every answer to a test question and what was known before
    it; ``study.json`` has facts about the study; ``dictionary.csv`` gives the meaning of every column;
    ``comparisons/`` has a file for each person, which `edpbrl estimate` and `edpbrl fit-population` read. `edpbrl
    report` makes a report of the folder. Times are relative to consent, so that no date is told.

    Args:
        store: The study's database.
        materials: What its questions are made of.
        out: The folder, which a former export may be in; it is replaced as a whole.
        identified: Also write external identifiers and times.
        track: As for ``gather``.

    Raises:
        OSError: The folder holds something else, or can't be written.
    """
    if out.exists() and (not out.is_dir() or (any(out.iterdir()) and not (out / _DICTIONARY).is_file())):
        raise FileExistsError(
            f"Expected a new folder or a former export at {out}, found something else; choose another"
        )
    tables, people = gather(store, materials, identified=identified, track=track)
    with replacing_folder(out) as part:
        _write(part, tables, identified=identified)
        _write_people(part / "comparisons", people, materials)
    total = sum(row["counts"] for row in tables.answers)
    files = [out / "comparisons" / f"{name}.parquet" for name in sorted(people)]
    return Exported(len(tables.participants), total, files)


def _write(part: Path, tables: StudyTables, *, identified: bool) -> None:
    columns = columns_of(identified=identified)
    for name, listed in columns.items():
        names = [column.name for column in listed]
        cells = [{key: _cell(row[key]) for key in names} for row in getattr(tables, name)]
        write_csv(part / f"{name}.csv", names, cells)
    _write_text(part / "answers.jsonl", [json.dumps(row, ensure_ascii=False) for row in tables.answers])
    _write_parquet(part / "answers.parquet", tables.answers)
    meanings = [
        {"file": name, "column": column.name, "type": column.type, "meaning": column.meaning}
        for name, listed in columns.items()
        for column in listed
    ]
    write_csv(part / _DICTIONARY, ["file", "column", "type", "meaning"], meanings)
    _write_text(part / STUDY, [json.dumps(tables.study, ensure_ascii=False, indent=1)])


def _write_text(path: Path, lines: list[str]) -> None:
    write_atomically(path, lambda file: file.write_text("\n".join([*lines, ""]), encoding="utf-8"))


def _cell(value: Any) -> Any:
    """A value as a cell of a CSV file: lists and objects as JSON."""
    return json.dumps(value, ensure_ascii=False) if isinstance(value, (list, dict)) else value


def _write_parquet(path: Path, rows: list[dict[str, Any]]) -> None:
    import pyarrow
    import pyarrow.parquet

    kinds = {
        "text": pyarrow.string(),
        "integer": pyarrow.int64(),
        "boolean": pyarrow.bool_(),
        "number": pyarrow.float64(),
        "list of texts": pyarrow.list_(pyarrow.string()),
        "list of integers": pyarrow.list_(pyarrow.int64()),
        "list of lists of integers": pyarrow.list_(pyarrow.list_(pyarrow.int64())),
    }
    schema = pyarrow.schema([(column.name, kinds[column.type]) for column in ANSWERS])
    table = pyarrow.Table.from_pylist(rows, schema=schema)
    write_atomically(path, lambda file: pyarrow.parquet.write_table(table, file))


def _write_people(folder: Path, people: dict[str, Comparisons], materials: Materials) -> None:
    """Comparisons of each person, and the vocabulary beside them for the commands that read them."""
    folder.mkdir()
    for name, comparisons in people.items():
        comparisons.to_parquet(folder / f"{name}.parquet")
    vocabulary = materials.vocabulary
    document = {
        "settings": {"encoder": materials.config.questions.encoder, "vocabulary": None, "split": "all", "seed": 0},
        "vocabulary_fingerprint": vocabulary.fingerprint,
        "vocabulary": {"names": vocabulary.names, "tokens": vocabulary.tokens},
    }
    _write_text(folder / "design.json", [json.dumps(document, ensure_ascii=False)])
