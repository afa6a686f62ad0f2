"""The photos of participants in an export: a table without them, and files where an export names people."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from edpbrl_gym._places import write_atomically
from edpbrl_gym.study.export_tables import PHOTOS, Column, pseudonym
from edpbrl_gym.study.photo_store import PhotoStore
from edpbrl_gym.study.records import Record
from edpbrl_gym.study.store import Store

__all__ = ["photo_table", "write_photos"]


def photo_table(store: Store, records: Iterable[Record]) -> tuple[tuple[Column, ...], list[dict[str, Any]]]:
    """A row for each photo, in the order of the pseudonyms."""
    photos = PhotoStore(store.database)
    rows = [
        {"participant": name, "photo": number, "width": one.width, "height": one.height, "rating": one.rating}
        for name, row in sorted((pseudonym(store.secret, one.participant), one.participant.id) for one in records)
        for number, one in enumerate(photos.of(row), 1)
    ]
    return PHOTOS, rows


def write_photos(folder: Path, store: Store, records: Iterable[Record]) -> None:
    """Write each photo as PSEUDONYM-NUMBER.jpg to a new folder."""
    photos = PhotoStore(store.database)
    folder.mkdir()
    for record in records:
        name = pseudonym(store.secret, record.participant)
        for number, one in enumerate(photos.of(record.participant.id), 1):
            jpeg = photos.jpeg(record.participant.id, one.key)
            if jpeg is not None:  # None: removed meanwhile
                _write(folder / f"{name}-{number}.jpg", jpeg)


def _write(path: Path, jpeg: bytes) -> None:
    write_atomically(path, lambda file: file.write_bytes(jpeg))
