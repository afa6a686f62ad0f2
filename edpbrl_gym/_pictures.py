"""Pictures from untrusted files: only three formats and a maximum size, since every decoder can be attacked."""

from __future__ import annotations

import io
import os
import struct
import threading
import warnings
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from PIL.Image import Image

__all__ = ["FORMATS", "MAX_PIXELS", "as_png", "check_pictures", "converted", "open_picture"]

FORMATS = ("PNG", "JPEG", "WEBP")
MAX_PIXELS = 50_000_000  # more than any model here produces or reads; 150 MB once decoded


_PNG = b"\x89PNG\r\n\x1a\n"
_OPENING = threading.Lock()  # warning filters belong to the process, not to a thread


def open_picture(source: str | os.PathLike[str] | bytes) -> Image:
    """Open a PNG, JPEG or WebP of at most ``MAX_PIXELS`` pixels, decoded; a ``with`` statement closes it.

    Args:
        source: A file, or its bytes.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: Another format, too many pixels, or a truncated or damaged picture; the message names the file.
    """
    from PIL import Image, UnidentifiedImageError

    name = "bytes" if isinstance(source, bytes) else str(source)
    if not isinstance(source, bytes) and not Path(source).is_file():
        raise FileNotFoundError(f"Expected an image file at {name}, found none")
    try:
        with _OPENING, warnings.catch_warnings():
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # the number of pixels is checked below
            picture = Image.open(io.BytesIO(source) if isinstance(source, bytes) else source, formats=FORMATS)
        try:
            if picture.width * picture.height > MAX_PIXELS:
                raise ValueError(f"{picture.width} x {picture.height} pixels, at most {MAX_PIXELS:,} are opened")
            picture.load()
        except BaseException:
            picture.close()
            raise
        return picture
    except UnidentifiedImageError:
        raise ValueError(
            f"Expected an image file at {name}, but it can't be read (no PNG, JPEG or WebP); convert it to one of these"
        ) from None
    except (
        OSError,
        ValueError,
        SyntaxError,
        EOFError,
        struct.error,
        zlib.error,
        Image.DecompressionBombError,
    ) as error:
        raise ValueError(f"Expected an image file at {name}, but it can't be read ({error})") from None


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
        size = picture.size
        if picture.format == "PNG" and picture.mode == "RGB" and "transparency" not in picture.info:
            return data, size
        from PIL import Image

        paper = Image.new("RGBA", size, "white")
        paper.alpha_composite(picture.convert("RGBA"))
        stream = io.BytesIO()
        paper.convert("RGB").save(stream, format="PNG")
    return stream.getvalue(), size


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
