"""The photos of participants in a study's database."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import delete, func, insert, select, update

from edpbrl_gym.study.database import Database
from edpbrl_gym.study.own_photos import OwnPhotos, Photo, RefusedPhotoError
from edpbrl_gym.study.records import NotAskingError
from edpbrl_gym.study.rows import add_event_row, locked, now
from edpbrl_gym.study.tables import photos

__all__ = ["AGREED", "DECLINED", "DONE", "RATED", "PhotoStore", "StoredPhoto", "photos_wait", "ratings_wait"]

AGREED, DONE, RATED, DECLINED = "photos_agreed", "photos_done", "photos_rated", "photos_declined"
"""Kinds of events."""
_LISTED = (photos.c.key, photos.c.width, photos.c.height, photos.c.rating)


@dataclass(frozen=True)
class StoredPhoto:
    """A photo of a participant, without its pixels."""

    key: str  # random, in its address
    width: int
    height: int
    rating: int | None  # how much its owner likes it, from 1 (not at all) to 5; None: not said


def photos_wait(settings: OwnPhotos | None, events: list[dict[str, Any]]) -> bool:
    """Whether a participant has still to hand in photos."""
    return settings is not None and not any(one["kind"] in (DONE, DECLINED) for one in events)


def ratings_wait(settings: OwnPhotos | None, events: list[dict[str, Any]]) -> bool:
    """Whether a participant who has handed in photos has still to say how much they like them."""
    kinds = {one["kind"] for one in events}
    return settings is not None and settings.rated and DONE in kinds and RATED not in kinds


class PhotoStore:
    """The photos in a study's database, each with one participant; they go with the participant (see ``rows``)."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, participant: int, photo: Photo, most: int) -> None:
        """Store a photo; a second copy of one counts once.

        Raises:
            RefusedPhotoError: The participant has handed in the most photos already.
            NotAskingError: The participation has ended, or gone on to the questions.
        """
        own = photos.c.participant == participant
        with self._database.writing() as connection:
            _check_waits(locked(connection, participant))
            if connection.execute(select(photos.c.id).where(own, photos.c.digest == photo.digest)).first():
                return
            if connection.execute(select(func.count()).where(own)).scalar_one() >= most:
                raise RefusedPhotoError("most")
            row = {
                "participant": participant,
                "key": secrets.token_urlsafe(24),
                "digest": photo.digest,
                "width": photo.width,
                "height": photo.height,
                "jpeg": photo.jpeg,
                "added_at": now(),
            }
            connection.execute(insert(photos).values(**row))
            add_event_row(connection, participant, "photo_added", {})

    def of(self, participant: int) -> list[StoredPhoto]:
        """The photos of a participant, in the order in which they came."""
        query = select(*_LISTED).where(photos.c.participant == participant).order_by(photos.c.id)
        with self._database.reading() as connection:
            return [StoredPhoto(*row) for row in connection.execute(query)]

    def jpeg(self, participant: int, key: str) -> bytes | None:
        """The photo with a key; None: this participant has none."""
        query = select(photos.c.jpeg).where(photos.c.participant == participant, photos.c.key == key)
        with self._database.reading() as connection:
            found = connection.execute(query).scalar()
        return None if found is None else bytes(found)

    def remove(self, participant: int, key: str) -> None:
        """Delete a photo of a participant, without effect if it is deleted already."""
        with self._database.writing() as connection:
            _check_waits(locked(connection, participant))
            own = (photos.c.participant == participant, photos.c.key == key)
            if connection.execute(delete(photos).where(*own)).rowcount:
                add_event_row(connection, participant, "photo_removed", {})

    def decline(self, participant: int) -> None:
        """Store that a participant hands in no photos; those that there are go."""
        with self._database.writing() as connection:
            _check_waits(locked(connection, participant))
            connection.execute(delete(photos).where(photos.c.participant == participant))
            add_event_row(connection, participant, DECLINED, {})

    def rate(self, participant: int, ratings: Mapping[str, int]) -> None:
        """Store how much a participant likes each photo, by its key, from 1 to 5."""
        with self._database.writing() as connection:
            _check_waits(locked(connection, participant))
            for key, rating in ratings.items():
                own = (photos.c.participant == participant, photos.c.key == key)
                connection.execute(update(photos).where(*own).values(rating=rating))
            add_event_row(connection, participant, RATED, {})


def _check_waits(row: Any) -> None:
    if row.status != "consented":
        raise NotAskingError(f"Expected a participant who hands in photos, this one is {row.status}")
