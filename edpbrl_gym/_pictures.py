"""Pictures from untrusted files: only few formats and a maximum size, since every decoder can be attacked."""

from __future__ import annotations

import io
import os
import struct
import threading
import warnings
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from PIL.Image import Image

__all__ = [
    "ENDINGS",
    "FORMATS",
    "LONGEST",
    "MAX_PIXELS",
    "as_png",
    "check_pictures",
    "converted",
    "file_within",
    "open_picture",
    "read_picture",
]

FORMATS = ("PNG", "JPEG", "WEBP")
MAX_PIXELS = 50_000_000  # more than any model here produces or reads; 150 MB once decoded
LONGEST = 1024
"""Pixels of the longer side of a picture that ``read_picture`` returns, at most."""
ENDINGS = (".png", ".jpg", ".jpeg", ".jpe", ".jfif", ".webp", ".gif", ".heic", ".heif")
"""Of the names of files that ``read_picture`` may read."""


_PNG = b"\x89PNG\r\n\x1a\n"
_TURNS = dict(zip(range(2, 9), (0, 3, 1, 5, 4, 6, 2), strict=True))  # orientation of EXIF -> Image.Transpose
_HEIF = (b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"mif1", b"msf1")
_OPENING = threading.Lock()  # warning filters belong to the process, not to a thread


@contextmanager
def _opened(source: str | os.PathLike[str] | bytes, formats: tuple[str, ...], named: str) -> Iterator[Image]:
    """Open a picture whose pixels are read in the block; what goes wrong there is a ValueError that names it."""
    from PIL import Image, UnidentifiedImageError

    name = "bytes" if isinstance(source, bytes) else str(source)
    if not isinstance(source, bytes) and not Path(source).is_file():
        raise FileNotFoundError(f"Expected an image file at {name}, found none")
    try:
        with _OPENING, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of damaged EXIF, and of many pixels, which are counted below
            picture = Image.open(io.BytesIO(source) if isinstance(source, bytes) else source, formats=formats)
        try:
            if picture.width * picture.height > MAX_PIXELS:
                raise ValueError(f"{picture.width} x {picture.height} pixels, at most {MAX_PIXELS:,} are opened")
            yield picture
        except BaseException:
            picture.close()
            raise
    except Image.DecompressionBombError:
        raise ValueError(
            f"Expected an image file at {name}, but it can't be read (at most {MAX_PIXELS:,} pixels are opened)"
        ) from None
    except UnidentifiedImageError:
        raise ValueError(
            f"Expected an image file at {name}, but it can't be read (no {named}); convert it to one of these"
        ) from None
    except (OSError, ValueError, SyntaxError, EOFError, struct.error, zlib.error) as error:
        reason = " ".join(str(error).split())
        raise ValueError(f"Expected an image file at {name}, but it can't be read ({reason})") from None


def open_picture(source: str | os.PathLike[str] | bytes) -> Image:
    """Open a PNG, JPEG or WebP of at most ``MAX_PIXELS`` pixels, decoded; a ``with`` statement closes it.

    Args:
        source: A file, or its bytes.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: Another format, too many pixels, or a truncated or damaged picture; the message names the file.
    """
    with _opened(source, FORMATS, "PNG, JPEG or WebP") as picture:
        picture.load()
        return picture


def read_picture(source: str | os.PathLike[str] | bytes, *, longest: int = LONGEST) -> Image:
    """Read a picture as people see it: upright, in RGB, on white where it is transparent, of an animation the first.

    Args:
        source: A PNG, JPEG, WebP or GIF of at most ``MAX_PIXELS`` pixels, or its bytes; also HEIC where pillow_heif
            is installed.
        longest: Pixels of its longer side; a larger one is made smaller.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: Another format, too many pixels, or a truncated or damaged picture; the message names the file.
    """
    from PIL import Image

    formats: tuple[str, ...] = (*FORMATS, "GIF")
    named = "PNG, JPEG, WebP or GIF"
    if _is_heif(source):
        try:
            reader = import_module("pillow_heif")  # no extra brings it: its wheels hold code under the GPL
        except ImportError:
            raise ValueError(
                f"Expected an image file at {'bytes' if isinstance(source, bytes) else source}, but it can't be read "
                "(HEIC); install pillow-heif, or convert it to JPEG"
            ) from None
        reader.register_heif_opener()
        formats, named = ("HEIF",), "HEIC"
    with _opened(source, formats, named) as opened, opened as picture:
        turn = _TURNS.get(_orientation(picture))
        picture.draft(None, (longest, longest))  # a large JPEG is decoded at half its size, or less
        picture.load()
        seen = _on_white(picture)
    seen.thumbnail((longest, longest), Image.Resampling.LANCZOS, reducing_gap=3.0)
    return seen if turn is None else seen.transpose(Image.Transpose(turn))


def _is_heif(source: str | os.PathLike[str] | bytes) -> bool:
    if isinstance(source, bytes):
        head = source[:12]
    elif not Path(source).is_file():
        return False
    else:
        try:
            with open(source, "rb") as file:
                head = file.read(12)
        except OSError:  # which opening it reports
            return False
    return head[4:8] == b"ftyp" and head[8:] in _HEIF


def _orientation(picture: Image) -> int:
    """The orientation that EXIF gives, 1 where it can't be read."""
    try:
        with _OPENING, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return int(picture.getexif().get(0x0112, 1))
    except Exception:  # damaged EXIF raises errors of any kind, and is no reason to refuse the picture
        return 1


def _on_white(picture: Image) -> Image:
    """A decoded picture in RGB, on white."""
    import numpy as np
    from PIL import Image

    if picture.mode == "I" or picture.mode.startswith("I;16"):  # 16 bits, which convert() would cut off
        levels = np.clip(np.asarray(picture, dtype=np.float32) / 257.0, 0.0, 255.0)
        picture = Image.fromarray(np.rint(levels).astype(np.uint8))
    if not picture.has_transparency_data:
        return picture.convert("RGB")
    clear = picture.convert("RGBA")
    white = Image.new("RGB", clear.size, "white")
    white.paste(clear, mask=clear)
    return white


def file_within(folder: Path, name: str) -> Path:
    """The file of a folder that a table names, as it is written: links are followed, ".." leads nowhere else.

    Raises:
        ValueError: It is not below the folder.
    """
    relative = os.path.normpath(name.strip().replace("\\", "/"))
    if os.path.isabs(relative):
        relative = os.path.relpath(relative, os.path.abspath(folder))
    if relative.split(os.sep)[0] in ("..", ".", "") or "\0" in relative:
        raise ValueError(f"it is not below {folder}; move it there, or give the folder around all pictures")
    return folder / relative


def check_pictures(images: Any) -> None:
    """Check that these are several pictures or files of pictures, not one."""
    if isinstance(images, (str, bytes, os.PathLike)) or not hasattr(images, "__len__"):
        raise TypeError(f"Expected a list of pictures, got {type(images).__name__}; write [picture]")
    from PIL import Image

    for index, image in enumerate(images):
        if not isinstance(image, (str, os.PathLike, Image.Image)):
            raise TypeError(f"Expected PIL images or image files, got {type(image).__name__} at index {index}")


def converted(image: Image | str | os.PathLike[str], mode: str) -> Image:
    """A picture, or that of a file, in a colour mode of PIL."""
    if not isinstance(image, (str, os.PathLike)):
        return image.convert(mode)
    with open_picture(image) as opened:
        return opened.convert(mode)


def as_png(data: bytes) -> tuple[bytes, tuple[int, int]]:
    """A picture as a PNG in RGB, on white where it is transparent, without what is written beside it; and its size.

    A PNG in RGB keeps its bytes, but for texts in it, such as a prompt.

    Raises:
        ValueError: It is no picture, or is cut or damaged.
    """
    if data.startswith(_PNG):
        data = _pixels_of(data)
        with open_picture(data) as picture:
            if picture.mode == "RGB" and not picture.has_transparency_data:
                return data, picture.size
    seen, stream = read_picture(data, longest=MAX_PIXELS), io.BytesIO()
    seen.save(stream, format="PNG")
    return stream.getvalue(), seen.size


def _pixels_of(data: bytes) -> bytes:
    """A PNG with the chunks that its pixels need, each with its check sum, up to the last one."""
    kept, place, kind = [_PNG], len(_PNG), b""
    while kind != b"IEND":
        end = place + 12 + int.from_bytes(data[place : place + 4], "big")
        chunk = data[place:end]
        if len(chunk) < end - place or len(chunk) < 12:
            raise ValueError(f"Expected a whole PNG, got {len(data):,} bytes of one that is cut")
        if zlib.crc32(chunk[4:-4]) != int.from_bytes(chunk[-4:], "big"):
            raise ValueError(f"Expected a whole PNG, got one with damage at byte {place:,} of {len(data):,}")
        kind, place = chunk[4:8], end
        if kind[:1].isupper() or kind in (b"tRNS", b"gAMA", b"cHRM", b"sRGB", b"iCCP"):
            kept.append(chunk)
    return b"".join(kept)
