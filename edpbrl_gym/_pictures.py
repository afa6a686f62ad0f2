"""Pictures from untrusted files: only three formats and a maximum size, since every decoder can be attacked."""

from __future__ import annotations

import io
import os
import struct
import threading
import warnings
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from PIL.Image import Image

__all__ = ["FORMATS", "MAX_PIXELS", "open_picture"]

FORMATS = ("PNG", "JPEG", "WEBP")
MAX_PIXELS = 50_000_000  # more than any model here produces or reads; 150 MB once decoded


_OPENING = threading.Lock()  # warning filters belong to the process, not to a thread


@contextmanager
def open_picture(source: str | os.PathLike[str] | bytes) -> Iterator[Image]:
    """Open a PNG, JPEG or WebP of at most ``MAX_PIXELS`` pixels, decoded.

    Args:
        source: A file, or its bytes.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: Another format, too many pixels, or a truncated or damaged picture; the message names the file.
    """
    name = "bytes" if isinstance(source, bytes) else str(source)
    if not isinstance(source, bytes) and not Path(source).is_file():
        raise FileNotFoundError(f"Expected an image file at {name}, found none")
    with _decoded(source, name) as picture:
        yield picture


def _decoded(source: str | os.PathLike[str] | bytes, name: str) -> Image:
    from PIL import Image, UnidentifiedImageError

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
