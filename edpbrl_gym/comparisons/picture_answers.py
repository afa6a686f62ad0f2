"""Answers about pictures, as ImageReward, HPD and Pick-a-Pic have them: pictures of a prompt with ranks or labels.

A file is JSON, JSON lines, CSV or parquet. An entry has a list of pictures with a list of ranks (1 the best) or of
preferences (1 for the preferred); or two pictures, as files or as their bytes, with two labels; or one picture with its
rank, where entries of one prompt are a question. Equal ranks of the best are a tie; below the best, the order ends at
the first tie. A tie of two is kept where no question has an order, which no likelihood takes together with it.
"""

from __future__ import annotations

import ast
import hashlib
import json
import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from edpbrl_gym._files import reading
from edpbrl_gym._pictures import file_within, read_picture
from edpbrl_gym._texts import decode, read_bytes
from edpbrl_gym.comparisons.layouts import plain_name
from edpbrl_gym.comparisons.records import Comparisons
from edpbrl_gym.comparisons.refusals import shows_pictures
from edpbrl_gym.comparisons.tables import read_table
from edpbrl_gym.features.images import ImageEncoder, load_image_encoder
from edpbrl_gym.likelihood import Response

__all__ = ["IMAGE_ENCODER", "PICTURE_ENCODER", "PictureSource", "holds_pictures", "read_picture_answers"]

_log = logging.getLogger(__name__)

PICTURE_ENCODER = "picture:"
"""How the name of an encoder begins whose features are those of pictures."""

IMAGE_ENCODER = "efficientnet-lite0"
"""The encoder of pictures where none is named."""

_LISTS = ("imagepath", "imagepaths", "images", "generations", "filepath", "filepaths", "pictures", "image", "file")
_PAIR = ("jpg{}", "image{}", "image{}path", "imagepath{}", "path{}", "picture{}")
_URLS = ("image{}url", "url{}")
_RANKS = ("rank", "ranks", "ranking")  # the lower, the better
_LIKED = ("humanpreference", "preference", "preferences", "label", "labels")  # the higher, the better
_PEOPLE = ("person", "user", "userid", "userhash", "annotator", "annotatorid", "worker", "workerid")
_GROUPS = ("promptid", "prompt", "caption", "text")
_CHUNK = 32  # rows, or pictures, in memory at a time


class PictureSource(NamedTuple):
    """What reads the pictures that answers are about.

    Attributes:
        encoder: Encoder of pictures, or its name.
        folder: Folder to which the paths of pictures are relative; None: that of the file of answers.
    """

    encoder: ImageEncoder | str = IMAGE_ENCODER
    folder: Path | None = None


class _Question(NamedTuple):
    place: str
    person: str
    pictures: list[str | bytes]
    values: list[float]  # of each picture; the higher, the better


def holds_pictures(path: Path) -> bool:
    """Whether a file of JSON holds answers about pictures, by its keys."""
    if path.suffix.lower() not in (".json", ".jsonl", ".ndjson") or not path.is_file():
        return False
    with open(path, "rb") as file:
        start = file.read(20_000).decode("utf-8", "ignore")
    return shows_pictures(re.findall(r'"([^"\\]{1,60})"\s*:', start))


def read_picture_answers(path: Path, source: PictureSource) -> tuple[list[Comparisons], int]:
    """The answers of everybody in a file, with the features of the pictures, and the number of questions without one.

    Questions of which a picture can't be read are left out, and named in the log.

    Raises:
        FileNotFoundError: There is no such folder.
        ValueError: A damaged file, entries without pictures or ranks, or no question with an answer and its pictures.
    """
    folder = path.parent if source.folder is None else Path(source.folder).expanduser()
    if not folder.is_dir():
        raise FileNotFoundError(f"Expected the folder of the pictures of {path} at {folder}, found none")
    rows = _Rows(folder, source.encoder)
    people: dict[str, list[tuple[list[str], Response]]] = {}
    unread: dict[str, str] = {}
    silent = 0
    for question in _questions(path):
        response = _response(question.values)
        if response is None:
            silent += 1
            continue
        try:
            keys = [rows.key(picture) for picture in question.pictures]
        except (ValueError, OSError) as error:
            unread[question.place] = str(error)
            continue
        if len(set(keys)) < len(keys):
            unread[question.place] = "the same picture twice"
        else:
            people.setdefault(question.person, []).append((keys, response))
    found = []
    for person, answers in people.items():
        ordered = any(len(response.order) > 1 for _, response in answers)
        kept = [one for one in answers if one[1].order or not ordered]
        silent += len(answers) - len(kept)
        if any(response.order for _, response in kept):
            found.append(_comparisons(kept, person or path.name, rows, path))
    if not found:
        why = next(iter(unread.values()), "")
        raise ValueError(
            f"Expected pictures and a ranking of them in {path} with the pictures in {folder}, got no question that "
            f"names a best one and whose pictures can be read{f' ({why})' if why else ''}; give their folder "
            "(--pictures, pictures=)"
        )
    if unread:
        place, why = next(iter(unread.items()))
        _log.warning("Left out of %s: %d questions without their pictures; %s: %s", path, len(unread), place, why)
    return found, silent + len(unread)


class _Rows:
    """The features of pictures by their keys; the encoder is loaded when the first pictures can be read."""

    def __init__(self, folder: Path, encoder: ImageEncoder | str) -> None:
        self.folder, self._encoder = folder, encoder
        self._rows: dict[str, NDArray[np.float32]] = {}
        self._waiting: dict[str, Any] = {}  # pictures that are read and not encoded yet

    @property
    def encoder(self) -> ImageEncoder:
        if isinstance(self._encoder, str):
            self._encoder = load_image_encoder(self._encoder)
        return self._encoder

    def key(self, picture: str | bytes) -> str:
        """The key of a picture, which is read now; ValueError or OSError where it can't be."""
        key = picture if isinstance(picture, str) else hashlib.sha256(picture).hexdigest()[:16]
        if key not in self._rows and key not in self._waiting:
            file = file_within(self.folder, picture) if isinstance(picture, str) else picture
            self._waiting[key] = read_picture(file)
            if len(self._waiting) >= _CHUNK:
                self._encode()
        return key

    def _encode(self) -> None:
        if self._waiting:
            rows = self.encoder.encode_images(list(self._waiting.values()))
            self._rows.update(zip(self._waiting, rows, strict=True))
            self._waiting.clear()

    def features(self, keys: Sequence[str]) -> NDArray[np.float32]:
        self._encode()
        return np.stack([self._rows[key] for key in keys])


def _comparisons(answers: list[tuple[list[str], Response]], who: str, rows: _Rows, path: Path) -> Comparisons:
    encoder = rows.encoder
    return Comparisons(
        features=[rows.features(keys) for keys, _ in answers],  # type: ignore[arg-type]
        responses=tuple(response for _, response in answers),
        episode=np.arange(len(answers)),
        step=np.zeros(len(answers), dtype=np.int64),
        texts=[keys for keys, _ in answers],
        who=who,
        metadata={
            "encoder": PICTURE_ENCODER + encoder.name, "encoder_fingerprint": encoder.fingerprint, "file": path.name
        },
    )  # fmt: skip


def _response(values: Sequence[float]) -> Response | None:
    """The answer that values say, the higher the better; None: none."""
    order: list[int] = []
    for value in sorted(set(values), reverse=True):
        level = [option for option, other in enumerate(values) if other == value]
        if len(level) > 1:
            break
        order += level
    if not order:
        return Response.tie() if len(values) == 2 else None
    if len(values) == 2 or len(order) == 1:
        return Response.best(order[0])
    return Response.ranking(order) if len(order) == len(values) else Response.partial(order)


# -- entries -----------------------------------------------------------------------------------------------------------


def _entries(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """The entries of a file with their places, by the plain names of their columns."""
    if path.suffix.lower() == ".parquet":
        import pyarrow.parquet

        with reading("answers about pictures", path):
            number = 0
            for batch in pyarrow.parquet.ParquetFile(path).iter_batches(_CHUNK):
                for row in batch.to_pylist():
                    number += 1
                    yield f"row {number}", {plain_name(name): value for name, value in row.items()}
        return
    if not path.suffix.lower().startswith((".json", ".ndjson")):
        table = read_table(path, "answers about pictures")
        names = [plain_name(name) for name in table.header]
        for place, *cells in zip(table.places, *table.columns, strict=True):
            yield place, {name: _listed(cell) for name, cell in zip(names, cells, strict=True)}
        return
    text = decode(read_bytes(path), path)
    with reading("answers about pictures as JSON, or a JSON object in each line", path):
        if text.lstrip().startswith("["):
            entries = list(enumerate(json.loads(text), start=1))
        else:
            lines = enumerate(text.splitlines(), start=1)
            entries = [(number, json.loads(line)) for number, line in lines if line.strip()]
    for number, entry in entries:
        if not isinstance(entry, dict):
            raise ValueError(f"Expected an object as entry {number} of {path}, got {type(entry).__name__}")
        yield f"entry {number}", {plain_name(name): value for name, value in entry.items()}


def _listed(cell: str) -> Any:
    """A cell, or the list that it is in the notation of Python or JSON."""
    if cell.lstrip().startswith("["):
        with suppress(ValueError, SyntaxError, RecursionError, MemoryError):
            return ast.literal_eval(cell.strip())
    return cell


def _questions(path: Path) -> Iterator[_Question]:
    """The questions of a file, in its order."""
    single: dict[tuple[str, str], _Question] = {}
    for place, entry in _entries(path):
        if str(entry.get("haslabel", True)).lower() in ("false", "0"):
            continue
        where = f"{place} of {path}"
        if _named(entry, _URLS) is not None and _named(entry, _PAIR) is None:
            raise ValueError(
                f"Expected pictures as files or bytes in {where}, got their addresses; download them, and name the "
                "files image_0 and image_1"
            )
        pictures = _named(entry, _PAIR) or _first(entry, _LISTS)
        labels, ranks = _named(entry, ("label{}",)), _first(entry, _RANKS)
        values = labels or ranks or _first(entry, _LIKED)
        if pictures is None or values is None:
            raise ValueError(
                f"Expected pictures (image_path) and their rank or human_preference in {where}, got "
                f"{', '.join(entry) or 'nothing'}"
            )
        sign = -1.0 if labels is None and ranks is not None else 1.0
        person = str(_first(entry, _PEOPLE) or "")
        if isinstance(pictures, (list, tuple)):
            numbers = _numbers(values, len(pictures), sign, where)
            yield _Question(place, person, [_picture(one, where) for one in pictures], numbers)
            continue
        question = single.setdefault((person, str(_first(entry, _GROUPS) or "")), _Question(place, person, [], []))
        question.pictures.append(_picture(pictures, where))
        question.values.extend(_numbers([values], 1, sign, where))
    yield from (question for question in single.values() if len(question.pictures) > 1)


def _first(entry: Mapping[str, Any], names: Sequence[str]) -> Any:
    """The value of the first of some columns that has one; None: none has."""
    return next((entry[name] for name in names if entry.get(name) not in (None, "")), None)


def _named(entry: Mapping[str, Any], names: Sequence[str]) -> list[Any] | None:
    """The values of a pair of columns that end in 0 and 1; None: there are none."""
    for name in names:
        found = [entry.get(name.format(number)) for number in (0, 1)]
        if all(value is not None and value != "" for value in found):
            return found
    return None


def _picture(value: Any, where: str) -> str | bytes:
    if isinstance(value, dict):  # as the library datasets stores pictures
        value = value.get("bytes") or value.get("path")
    if not isinstance(value, (str, bytes)) or not value:
        raise ValueError(f"Expected a file of a picture, or its bytes, in {where}, got {type(value).__name__}")
    return value


def _numbers(values: Any, count: int, sign: float, where: str) -> list[float]:
    try:
        found = [sign * float(value) for value in values]
    except (TypeError, ValueError):
        found = []
    if len(found) != count or not np.isfinite(found).all():
        raise ValueError(f"Expected a rank or label of each of {count} pictures in {where}, got {values!r:.80}")
    return found
