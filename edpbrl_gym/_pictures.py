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

__all__ = ["FORMATS", "MAX_PIXELS", "check_pictures", "converted", "open_picture"]

FORMATS = ("PNG", "JPEG", "WEBP")
MAX_PIXELS = 50_000_000  # more than any model here produces or reads; 150 MB once decoded


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
