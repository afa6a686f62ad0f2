"""The answers of a study as files, without what identifies people: tables, a data dictionary, comparisons."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from edpbrl_gym._files import replacing_folder
from edpbrl_gym._places import write_atomically
from edpbrl_gym.comparisons import Comparisons
from edpbrl_gym.comparisons.delimited import write_csv
from edpbrl_gym.likelihood import Response
from edpbrl_gym.likelihood.table import takes
from edpbrl_gym.study.export_long import long_tables
from edpbrl_gym.study.export_scripts import write_scripts
from edpbrl_gym.study.export_tables import (
    ANSWERS,
    STUDY,
    TAKING_PART,
    Column,
    StudyTables,
    columns_of,
    counts,
    facts_of,
    of_study,
    pseudonym,
    tables_of,
)
from edpbrl_gym.study.forms.export import page_table
from edpbrl_gym.study.materials import Materials
from edpbrl_gym.study.records import Record
from edpbrl_gym.study.store import Store

__all__ = ["Exported", "Predictor", "comparisons_of", "export", "gather"]

_SHARES = (0.25, 0.5, 0.75)  # of the questions, after which predictions are made too
_DICTIONARY = "dictionary.csv"
Track = Callable[[list[Record]], Iterable[Record]]


def comparisons_of(name: str, record: Record, materials: Materials, *, identified: bool = False) -> Comparisons | None:
    """The answers that count, under a participant's pseudonym; None without any.

    Posts of an oracle know the episodes and steps of its environment.
    """
    normal = [(question, answer) for question, answer in record.live if answer is not None and counts(question, answer)]
    if not normal:
        return None
    horizon, feedback = materials.vocabulary.horizon, materials.config.questions.feedback
    index = np.arange(len(normal))
    episode, step = (index, index * 0 + horizon - 1) if feedback == "prompt" else np.divmod(index, horizon)
    if record.posts:
        episode, step = np.array([(post.episode, post.step) for post in record.posts[: len(normal)]]).T
    kinds = materials.model.kinds
    mixes = [*kinds, "tie"] if takes([*kinds, "tie"]) else kinds  # others can't be mixed with ties
    given = [answer for _, answer in normal]
    encoder = materials.encoder
    return Comparisons(
        features=[encoder.encode(question.texts) for question, _ in normal],  # type: ignore[arg-type]
        responses=tuple(one.response if one.response.kind in mixes else Response.skip() for one in given),
        episode=episode,
        step=step,
        texts=[question.texts for question, _ in normal],
        who=name,
        answered_at=_times([one.answered_at for one in given]) if identified else None,
        metadata={
            "encoder": encoder.name,
            "encoder_fingerprint": encoder.fingerprint,
            "vocabulary_fingerprint": materials.vocabulary.fingerprint,
            "feedback": feedback,
            "arm": record.participant.arm,
        },
    )


def _times(times: list[str]) -> Any:
    return np.array([np.datetime64(time.removesuffix("+00:00"), "us") for time in times])


class Predictor:
    """Predicts a participant's answers to the test questions from those that count.

    The prior is the population of the participant's arm where it has one, otherwise the default of `edpbrl estimate`.
    As in the participant's session, "can't tell" teaches nothing.
    """

    def __init__(self, materials: Materials) -> None:
        self._materials = materials
        self._arms = {arm.name: arm for arm in materials.config.arms}

    def rows(self, name: str, record: Record, comparisons: Comparisons | None) -> list[dict[str, Any]]:
        """Rows of ``PREDICTIONS``: after a quarter, half and three quarters of the questions, and after all answers."""
        order = {question.id: place for place, (question, _) in enumerate(record.history)}
        tests = [
            question
            for question, answer in record.live
            if question.kind == "test" and answer is not None and answer.response.first is not None
        ]
        if not tests or comparisons is None or record.participant.arm not in self._arms:
            return []
        arm = self._materials.crowds.arm(self._arms[record.participant.arm], record.participant)
        prior = self._materials.prior(arm, self._materials.estimate_prior)
        options = [prior.feature_map(self._materials.encoder.encode(question.texts)) for question in tests]
        kinds = self._materials.model.kinds
        told = tuple(one if one.kind in kinds else Response.skip() for one in comparisons.responses)
        learnt, total = replace(comparisons, responses=told), len(comparisons)
        rows = []
        for after in _moments(self._materials.config.questions.number, total):
            fit = prior.fit(prior.mapped(learnt.select(np.arange(after))).terms(self._materials.model))
            probabilities = fit.posterior.choice_probabilities(options)
            rows += [
                {
                    "participant": name,
                    "asked": order[question.id],
                    "after": after,
                    "last": after == total,
                    "probabilities": values[: len(question.texts)].tolist(),
                }
                for question, values in zip(tests, probabilities, strict=True)
            ]
        return rows


def _moments(number: int, total: int) -> Sequence[int]:
    """Numbers of answers from which to predict: shares of the questions, the same for everybody, and all answers."""
    early = {round(share * number) for share in _SHARES}
    return sorted({after for after in early if 0 < after < total} | {total})


@dataclass(frozen=True)
class Exported:
    """What was written."""

    participants: int  # number of participants
    answers: int  # number of answers that count
    people: list[Path]  # files of comparisons, one for each person with an answer that names a best option


def gather(
    store: Store, materials: Materials, *, identified: bool = False, pilot: bool = False, track: Track = iter
) -> tuple[StudyTables, dict[str, Comparisons]]:
    """All tables, with predictions of the test questions and the crowd, and the comparisons of each person.

    Those of the study without its pilot, or of the pilot alone.
    """
    records = of_study(store.records(), pilot=pilot)
    materials.rest_on(store)
    predictor = Predictor(materials)
    people: dict[str, Comparisons] = {}
    predictions: list[dict[str, Any]] = []
    for record in track(records):
        name = pseudonym(store.secret, record.participant)
        comparisons = comparisons_of(name, record, materials, identified=identified)
        if comparisons is not None and len(comparisons.informative):
            people[name] = comparisons
        if record.participant.status in TAKING_PART:
            predictions += predictor.rows(name, record, comparisons)
    facts = facts_of(materials.config, deleted=store.counts()["deleted"], pilot=pilot)
    crowd: list[dict[str, Any]] = []
    if materials.crowds.has_pool:
        crowd, facts["crowd"] = materials.crowds.table(records)
    tables = tables_of(records, store.secret, facts, predictions=predictions, identified=identified)
    return replace(tables, crowd=crowd), people


def export(
    store: Store,
    materials: Materials,
    out: Path,
    *,
    identified: bool = False,
    pilot: bool = False,
    track: Track = iter,
) -> Exported:
    """Write a folder with everything that was asked and answered, in the study or in its pilot.

    ``answers`` (.csv, .jsonl, .parquet) has a row for every question asked, ``participants.csv`` for every participant,
    ``pages.csv`` too, with what was answered on pages, if there are any, ``events.csv`` for every event,
    ``options.csv`` for every option of a question that was answered, ``pairs.csv`` for every two of them that an answer
    orders, with scripts that fit a conditional logit (``export_scripts``),
    ``predictions.csv`` for every answer to a test question and what was known before it, ``crowd.csv`` for every item
    of a pool that enough of those who finished were shown; ``study.json`` has facts about the study; ``dictionary.csv``
    gives the meaning of every column; ``comparisons/`` has a file for each person, which `edpbrl estimate` and `edpbrl
    fit-population` read. `edpbrl report` makes a report of the folder. Times are relative to consent, so that no date
    is told; with ``identified``, ``identities.csv`` says who is who, and when.

    Raises:
        OSError: The folder holds something else, or can't be written.
    """
    if out.exists() and (not out.is_dir() or (any(out.iterdir()) and not (out / _DICTIONARY).is_file())):
        raise FileExistsError(
            f"Expected a new folder or a former export at {out}, found something else; choose another"
        )
    tables, people = gather(store, materials, identified=identified, pilot=pilot, track=track)
    columns, rows = page_table(of_study(store.records(), pilot=pilot), store.secret, materials.config)
    with replacing_folder(out) as part:
        long = long_tables(tables, materials)
        _write(part, tables, columns_of(tables.identities), long | ({"pages": (columns, rows)} if columns else {}))
        write_scripts(part, *long["options"])
        _write_people(part / "comparisons", people, materials)
    total = sum(row["counts"] for row in tables.answers)
    files = [out / "comparisons" / f"{name}.parquet" for name in sorted(people)]
    return Exported(len(tables.participants), total, files)


def _write(
    part: Path,
    tables: StudyTables,
    columns: dict[str, tuple[Column, ...]],
    more: dict[str, tuple[tuple[Column, ...], list[dict[str, Any]]]],
) -> None:
    """Write the tables with these columns, and more of them."""
    written = {name: (listed, getattr(tables, name)) for name, listed in columns.items()} | more
    for name, (listed, rows) in written.items():
        names = [column.name for column in listed]
        cells = [{key: _cell(row.get(key)) for key in names} for row in rows]
        write_csv(part / f"{name}.csv", names, cells)
    _write_text(part / "answers.jsonl", [json.dumps(row, ensure_ascii=False) for row in tables.answers])
    _write_parquet(part / "answers.parquet", tables.answers)
    meanings = [
        {"file": name, "column": column.name, "type": column.type, "meaning": column.meaning}
        for name, (listed, _) in written.items()
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
