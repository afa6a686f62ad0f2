"""Photos that participants hand in: what a study asks for, and what is kept of a file."""

from __future__ import annotations

import hashlib
import io
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from edpbrl_gym._compat import Need, check_installed
from edpbrl_gym._pictures import read_picture

if TYPE_CHECKING:
    from edpbrl_gym.study.config_reading import Table

__all__ = ["OWN_PHOTOS", "OwnPhotos", "Photo", "RefusedPhotoError", "Why", "read_own_photos", "reencoded"]

OWN_PHOTOS = "photos"
"""Name of the text that asks for consent to the photos, texts/photos.LANGUAGE.txt."""
LONGEST = 1600
"""Pixels of the longer side of a photo that is kept, at most."""
_QUALITY = 90  # of the JPEG that is kept
_MOST, _MOST_MEGABYTES = 50, 50
_HEIF = (b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"mif1", b"msf1", b"avif")
Why = Literal["type", "heic", "unreadable", "large", "most"]


@dataclass(frozen=True)
class OwnPhotos:
    """The photos that a study asks each participant for."""

    version: str  # of the text, stored with the consent to it
    least: int = 3  # photos of a participant
    most: int = 20
    megabytes: int = 10  # largest file
    required: bool = True  # whether who hands in none takes no part
    rated: bool = True  # whether participants say how much they like each of theirs


@dataclass(frozen=True)
class Photo:
    """What is kept of a photo: its pixels."""

    jpeg: bytes
    width: int
    height: int

    @property
    def digest(self) -> str:
        """By which a second copy is known."""
        return hashlib.sha256(self.jpeg).hexdigest()


class RefusedPhotoError(ValueError):
    """A file that can't be taken; ``why`` is the end of the name of the message that says so."""

    def __init__(self, why: Why) -> None:
        super().__init__(f"Expected a whole JPEG, PNG or WebP of a size that is taken, got another file ({why})")
        self.why = why


def reencoded(data: bytes) -> Photo:
    """The pixels of a photo as a JPEG of at most ``LONGEST`` pixels a side, turned upright, and nothing else of it.

    What cameras write beside the pixels (place, time, device, names, small copies, profiles) is left behind.

    Raises:
        RefusedPhotoError: The file is no JPEG, PNG or WebP, has too many pixels, or is cut or damaged.
    """
    from PIL import Image

    if data[4:8] == b"ftyp" and data[8:12] in _HEIF:
        raise RefusedPhotoError("heic")
    if not (
        data.startswith((b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n")) or (data[:4] == b"RIFF" and data[8:12] == b"WEBP")
    ):
        raise RefusedPhotoError("type")
    try:
        seen = read_picture(data, longest=LONGEST)
    except ValueError:
        raise RefusedPhotoError("unreadable") from None
    clean = Image.new("RGB", seen.size)  # a comment of the first file would go along with its picture
    clean.paste(seen)
    stream = io.BytesIO()
    clean.save(stream, format="JPEG", quality=_QUALITY)
    return Photo(stream.getvalue(), *clean.size)


def read_own_photos(document: Table) -> OwnPhotos | None:
    """The table ``[own_photos]`` of a document, None without one; mistakes are noted.

    Raises:
        ModuleNotFoundError: There are to be photos, and nothing is installed that reads them.
    """
    given, table = document.has("own_photos"), document.table("own_photos")
    if not given:
        return None
    check_installed(Need("PIL", "photos of participants", "pictures"))
    most = table.integer("most", OwnPhotos.most, minimum=1, maximum=_MOST)
    result = OwnPhotos(
        version=table.text("version", of="the version of the text about the photos"),
        least=table.integer("least", min(OwnPhotos.least, most), minimum=1, maximum=most),
        most=most,
        megabytes=table.integer("megabytes", OwnPhotos.megabytes, minimum=1, maximum=_MOST_MEGABYTES),
        required=table.flag("required", True),
        rated=table.flag("rated", True),
    )
    table.refuse_others()
    return result
