"""The answers of a study as CSV, JSON lines and parquet, without what identifies people, and with a data dictionary."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from edpbrl_gym._files import replacing_folder
from edpbrl_gym._places import write_atomically
from edpbrl_gym.comparisons import Comparisons
from edpbrl_gym.comparisons.csv_files import write_csv
from edpbrl_gym.likelihood import Response
from edpbrl_gym.study.export_rows import (
    ANSWERS,
    EVENTS,
    IDENTIFYING,
    PARTICIPANTS,
    Column,
    answer_rows,
    counts,
    event_rows,
    participant_row,
    pseudonym,
)
from edpbrl_gym.study.materials import Materials
from edpbrl_gym.study.posts import Posts
from edpbrl_gym.study.records import Participant, Post
from edpbrl_gym.study.store import History, Store

__all__ = ["Exported", "export"]

_DICTIONARY = "dictionary.csv"


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


def export(store: Store, materials: Materials, out: Path, *, identified: bool = False) -> Exported:
    """Write a folder with everything that was asked and answered.

    ``answers`` (.csv, .jsonl, .parquet) has a row for every question asked, ``participants.csv`` for every participant,
    ``events.csv`` for every event; ``dictionary.csv`` gives the meaning of every column; ``comparisons/`` has a file
    for each person, which `edpbrl estimate` and `edpbrl fit-population` read. Times are relative to consent, so that no
    date is told.

    Args:
        store: The study's database.
        materials: What its questions are made of.
        out: The folder, which a former export may be in; it is replaced as a whole.
        identified: Also write external identifiers and times.

    Raises:
        OSError: The folder holds something else, or can't be written.
    """
    if out.exists() and (not out.is_dir() or (any(out.iterdir()) and not (out / _DICTIONARY).is_file())):
        raise FileExistsError(
            f"Expected a new folder or a former export at {out}, found something else; choose another"
        )
    tables: dict[str, list[dict[str, Any]]] = {"answers": [], "participants": [], "events": []}
    people: dict[str, Comparisons] = {}
    everyone = store.participants()
    for participant in everyone:
        name, history = pseudonym(store.secret, participant), store.full_history(participant.id)
        tables["answers"] += answer_rows(name, participant, history)
        tables["participants"].append(participant_row(name, participant, history, identified=identified))
        tables["events"] += event_rows(name, participant, store.events(participant.id), identified=identified)
        posts = Posts(store.database).all(participant.id)
        comparisons = _comparisons(name, participant, history, posts, materials, identified=identified)
        if comparisons is not None and len(comparisons.decided):
            people[name] = comparisons
    for rows in tables.values():
        rows.sort(key=lambda row: row["participant"])  # stable; the order of arrival is told by nothing
    with replacing_folder(out) as part:
        _write(part, tables, identified=identified)
        _write_people(part / "comparisons", people, materials)
    total = sum(row["counts"] for row in tables["answers"])
    return Exported(len(everyone), total, [out / "comparisons" / f"{name}.parquet" for name in sorted(people)])


def _comparisons(
    name: str,
    participant: Participant,
    history: History,
    posts: list[Post],
    materials: Materials,
    *,
    identified: bool,
) -> Comparisons | None:
    """The answers that count; None without any. Posts of an oracle know the episodes and steps of its environment."""
    normal = [(question, answer) for question, answer in history if counts(question, answer)]
    normal.sort(key=lambda pair: pair[0].number)
    if not normal:
        return None
    horizon, feedback = materials.vocabulary.horizon, materials.config.questions.feedback
    index = np.arange(len(normal))
    episode, step = (index, index * 0 + horizon - 1) if feedback == "prompt" else np.divmod(index, horizon)
    if posts:
        episode, step = np.array([(post.episode, post.step) for post in posts[: len(normal)]]).T
    given = [answer for _, answer in normal if answer is not None]
    kinds = materials.model.kinds
    mixes = [*kinds, "tie"] if materials.config.questions.format == "best" else kinds  # others can't be mixed with ties
    encoder = materials.encoder
    return Comparisons(
        features=np.stack([encoder.encode(question.texts) for question, _ in normal]),
        responses=tuple(one.response if one.response.kind in mixes else Response.skip() for one in given),
        episode=episode,
        step=step,
        texts=[question.texts for question, _ in normal],
        who=name,
        answered_at=_times([one.answered_at for one in given]) if identified else None,
        metadata={
            "encoder": encoder.name,
            "encoder_fingerprint": encoder.fingerprint,
            "feedback": feedback,
            "arm": participant.arm,
        },
    )


def _times(times: list[str]) -> Any:
    return np.array([np.datetime64(time.removesuffix("+00:00"), "us") for time in times])


def _write(part: Path, tables: dict[str, list[dict[str, Any]]], *, identified: bool) -> None:
    import pandas

    columns: dict[str, tuple[Column, ...]] = {
        "answers": ANSWERS,
        "participants": (*PARTICIPANTS, *(IDENTIFYING if identified else ())),
        "events": EVENTS,
    }
    for name, rows in tables.items():
        names = [column.name for column in columns[name]]
        cells = [{key: _cell(row[key]) for key in names} for row in rows]
        whole = [column.name for column in columns[name] if column.type == "integer"]
        write_csv(part / f"{name}.csv", pandas.DataFrame(cells, columns=names).astype(dict.fromkeys(whole, "Int64")))
    lines = [json.dumps(row, ensure_ascii=False) for row in tables["answers"]]
    write_atomically(part / "answers.jsonl", lambda file: file.write_text("\n".join([*lines, ""]), encoding="utf-8"))
    _write_parquet(part / "answers.parquet", tables["answers"])
    meanings = [
        {"file": name, "column": column.name, "type": column.type, "meaning": column.meaning}
        for name, listed in columns.items()
        for column in listed
    ]
    write_csv(part / _DICTIONARY, pandas.DataFrame(meanings))


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
    text = json.dumps(document, ensure_ascii=False)
    write_atomically(folder / "design.json", lambda file: file.write_text(text, encoding="utf-8"))
